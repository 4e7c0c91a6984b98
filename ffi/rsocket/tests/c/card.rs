//! The same programs on a ConnectX (RINGWAY_DEVICE=mlx5:NAME): the software one, preloaded, on a bus of each test's own.

use std::process::Command;

use crate::{TIMEOUT_S, compile, program, unroutable};

/// A program on the card, in a network namespace of its own, which has the loopback and what these lines of sh(1) make, if there are any. `None`: there is none to be had.
fn command(name: &str, arguments: &[&str], network: Option<&str>) -> Option<Command> {
    let card = compile::libraries().join("librsocket.so").canonicalize().expect("the library").with_file_name("libringway_connectx.so");
    assert!(card.exists(), "{} is built with ringway-uverbs", card.display());
    let mut command = Command::new("timeout");
    command.arg(TIMEOUT_S);
    if let Some(network) = network {
        command.args(unroutable::namespace()?).args(["sh", "-ec", &format!("ip link set lo up\n{network}\nexec \"$@\""), "sh"]);
    }
    command.arg("env").arg(format!("LD_PRELOAD={}", card.display())).arg(program(name)).args(arguments);
    command
        .env("RINGWAY_DEVICE", "mlx5:mlx5_0")
        .env("RINGWAY_TEST_CARD", "process")
        .env("RINGWAY_CONNECTX_BUS", format!("rsocket-{name}-{}", std::process::id()));
    Some(command)
}

fn succeeds(name: &str, command: Option<Command>) {
    let Some(mut command) = command else {
        assert!(std::env::var_os("CI").is_none(), "no network namespaces are to be had");
        return eprintln!("left out: {name} needs a network namespace");
    };
    let output = command.output().expect("timeout(1) is part of coreutils");
    assert!(output.status.success(), "{name}: {:?}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
}

#[test]
fn programs_run_on_a_card() {
    for name in ["polls", "direct", "repoll", "threads", "streams", "killed", "spins", "stopped", "signals", "ends"] {
        succeeds(name, command(name, &[], None));
    }
}

/// (A process that is stopped has its card stopped as well.)
#[test]
fn direct_placement_as_far_as_a_card_in_the_process_has_it() {
    succeeds("placed", command("placed", &[], None));
}

/// (Where no route leads to 192.0.2.1.)
#[test]
fn datagrams() {
    succeeds("datagrams", command("datagrams", &[], Some("")));
}

/// (Where no route leads to 192.0.2.1.)
#[test]
fn errors() {
    succeeds("errors", command("errors", &[], Some("")));
}

#[test]
fn addresses_that_no_way_leads_to() {
    let run = |which: &str, addresses: &[String]| {
        let arguments: Vec<&str> = [which].into_iter().chain(addresses.iter().map(String::as_str)).collect();
        command("unroutable", &arguments, Some(unroutable::ROUTES))
    };
    succeeds("unroutable", run("both", &unroutable::addresses()));
    succeeds("unroutable, of streams", run("streams", &unroutable::addresses_of_streams()));
    // And librdmacm's own library says the same there.
    let mut theirs = run("streams", &unroutable::addresses_of_streams());
    if let Some(command) = &mut theirs {
        command.env("LD_LIBRARY_PATH", unroutable::librdmacm());
    }
    succeeds("unroutable, with librdmacm", theirs);
}
