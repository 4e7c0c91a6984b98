//! Programs that know nothing of rsockets, on an interface (RINGWAY_DEVICE=xdp:IF): two network namespaces of the test's own, with a bridge between them.

#[path = "../../../rsocket/tests/wire/world.rs"]
mod world;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use self::world::{Host, World, addresses, limited};

/// The library that this build made.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let library = test.parent().expect("target/<profile>/deps/<test>").join("librspreload.so");
    assert!(library.exists(), "librspreload.so is built with its tests");
    library
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wire/plain.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rspreload-plain");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]).arg(source).arg("-o").arg(&program);
        assert!(gcc.status().expect("gcc must be installed").success(), "plain.c does not compile");
        program
    })
}

/// One end; `device`: it has the library, on that interface, by itself or (`mlx5:` and the interface) with a software ConnectX that is plugged into it.
fn end(role: &str, device: Option<&str>, carrier: &str) -> Command {
    let mut command = limited(program());
    command.args([role, &addresses(false)[1].to_string(), carrier]).env_remove("RDMAV_FORK_SAFE").env("RSPRELOAD_CONFIG", "/dev/null");
    if let Some(interface) = device.and_then(|device| device.strip_prefix("mlx5:")) {
        let card = library().with_file_name("libringway_connectx.so");
        assert!(card.exists(), "{} is built with ringway-uverbs", card.display());
        command.env("LD_PRELOAD", format!("{}:{}", card.display(), library().display()));
        command.env("RINGWAY_CONNECTX_WIRE", interface).env("RINGWAY_DEVICE", "mlx5:mlx5_0");
    } else if let Some(device) = device {
        command.env("LD_PRELOAD", library()).env("RINGWAY_DEVICE", device).env("RINGWAY_BROKER", "");
    }
    command
}

/// Runs both ends; how long the client took.
fn talk(of_server: Option<&str>, of_client: Option<&str>, carrier: &str) -> Option<Duration> {
    let Some(world) = World::make(1500) else {
        assert!(std::env::var_os("CI").is_none(), "no network namespaces, or no ip(8), are to be had");
        eprintln!("left out: network namespaces need root, and ip(8)");
        return None;
    };
    let mut server = world.start(Host::Server, end("server", of_server, carrier));
    server.is_ready();
    let began = Instant::now();
    world.start(Host::Client, end("client", of_client, carrier)).ends_well();
    let took = began.elapsed();
    server.ends_well();
    Some(took)
}

#[test]
fn both_ends_on_an_interface_are_rsockets() {
    talk(Some("xdp:wb"), Some("xdp:wa"), "rsocket");
}

#[test]
fn whoever_has_no_rsockets_is_reached_by_tcp_and_soon() {
    let took = talk(None, Some("xdp:wa"), "kernel");
    assert!(took.is_none_or(|took| took < Duration::from_secs(10)), "{took:?}");
    talk(Some("xdp:wb"), None, "kernel");
}

#[test]
fn both_ends_on_cards_are_rsockets() {
    talk(Some("mlx5:wb"), Some("mlx5:wa"), "rsocket");
}

/// The interface, and the card at its other end, speak the same.
#[test]
fn one_end_on_a_card_and_one_on_an_interface_are_rsockets() {
    talk(Some("xdp:wb"), Some("mlx5:wa"), "rsocket");
    talk(Some("mlx5:wb"), Some("xdp:wa"), "rsocket");
}

#[test]
fn on_a_card_whoever_has_no_rsockets_is_reached_by_tcp_and_soon() {
    let took = talk(None, Some("mlx5:wa"), "kernel");
    assert!(took.is_none_or(|took| took < Duration::from_secs(10)), "{took:?}");
    talk(Some("mlx5:wb"), None, "kernel");
}

/// There is no such interface.
#[test]
fn without_the_device_all_goes_by_tcp() {
    talk(Some("xdp:none0"), Some("xdp:none0"), "kernel");
}
