//! A second preloaded library is thin: `examples/turned.rs` says what it does with four functions, and a C program that runs under it calls
//! these in all their forms, and others that it leaves to libc.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;

fn compile() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/turned.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("turned");
    let command = Command::new("gcc")
        .args(["-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-Wall", "-Wextra", "-o"])
        .arg(&program)
        .arg(&source)
        .status();
    assert!(command.expect("gcc must be installed").success(), "{} does not compile", source.display());
    program
}

/// The example that this build made.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let profile = test.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    let library = profile.join("examples/libturned.so");
    assert!(library.exists(), "it is built with the package's tests: `cargo build -p ringway-preload --examples`");
    library
}

fn run(program: &Path, port: u16, preload: Option<(&Path, u16)>) -> Output {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program).arg(port.to_string()).env_remove("LD_PRELOAD");
    if let Some((library, to)) = preload {
        command.env("LD_PRELOAD", library).env("TURN", format!("{port}:{to}"));
    }
    command.output().expect("timeout(1) is part of coreutils")
}

#[test]
fn connections_are_turned_and_calls_counted_in_every_form() {
    let program = compile();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
    // (The number of a UDP socket's port: there is no listener behind it.)
    let bound = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    let (to, nobody) = (listener.local_addr().expect("its address").port(), bound.local_addr().expect("its address").port());

    let refused = run(&program, nobody, None);
    assert_eq!(String::from_utf8_lossy(&refused.stderr), "connect: Connection refused\n");

    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.write_all(b"hellothereagain").expect("a peer");
        stream
    });
    let turned = run(&program, nobody, Some((&library(), to)));
    let said = String::from_utf8_lossy(&turned.stderr);
    assert!(turned.status.success(), "{said}");
    // The child of vfork, whose memory is its parent's; the program that the other child executes, with the library as well; the program
    // itself. (`timeout` ends by exit(3), which is not seen.)
    let expected = ["turned 1 received 15 polls 2 exits 1", "turned 0 received 0 polls 0 exits 1", "turned 1 received 15 polls 2 exits 2"];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    drop(server.join());
}
