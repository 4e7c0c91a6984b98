//! The same programs on a ConnectX (RINGWAY_DEVICE=mlx5:NAME): the software one, preloaded, on a bus of each test's own.

use std::process::Command;

use crate::{TIMEOUT_S, compile, program};

fn run(name: &str) {
    let card = compile::libraries().join("librsocket.so").canonicalize().expect("the library").with_file_name("libringway_connectx.so");
    assert!(card.exists(), "{} is built with ringway-uverbs", card.display());
    let mut command = Command::new("timeout");
    command.args([TIMEOUT_S, "env"]).arg(format!("LD_PRELOAD={}", card.display())).arg(program(name));
    command.env("RINGWAY_DEVICE", "mlx5:mlx5_0").env("RINGWAY_CONNECTX_BUS", format!("rsocket-{name}-{}", std::process::id()));
    let output = command.output().expect("timeout(1) is part of coreutils");
    assert!(output.status.success(), "{name}: {:?}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
}

#[test]
fn programs_run_on_a_card() {
    for name in ["polls", "direct", "repoll", "threads", "streams", "killed"] {
        run(name);
    }
}
