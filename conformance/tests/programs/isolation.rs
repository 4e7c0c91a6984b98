//! Who may meet whom: one user, one network namespace; and what a peer sees when the other is killed.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Signal, geteuid};

use crate::harness::{Case, PYTHON, World, eventually, free_port, library, script_path};

#[test]
fn a_killed_peer_ends_its_streams() {
    let case = Case::new("killed-peer");
    for _ in 0..5 {
        let port = free_port();
        let server = case.python("peer.py").args(&format!("serve_hold {port}")).serve(port);
        let mut client = case.python("peer.py").args(&format!("watch {port}")).spawn();
        client.wait_line("connected");
        server.signal(Signal::KILL);
        let killed = Instant::now();
        let seen = client.finish().stdout;
        let after = killed.elapsed();
        assert!(after < Duration::from_secs(1), "the client noticed after {after:?}");
        // It had read everything.
        assert_eq!(seen, "connected\nend of stream\n");
        server.wait();
    }
    case.done();
}

#[test]
fn another_user_is_refused() {
    assert!(geteuid().is_root(), "two users need root; cargo xtask test uses sudo for this case where it may");
    let case = Case::new("another-user");
    // The other user must be able to reach the library, the scripts and the report's directory, wherever this checkout is.
    let shared = std::env::temp_dir().join(format!("ringway-another-user-{}", std::process::id()));
    let script = shared.join("as_user.py");
    fs::create_dir_all(&shared).expect("a shared directory");
    for name in ["as_user.py", "peer.py"] {
        fs::copy(script_path(name), shared.join(name)).expect("the script");
    }
    if case.world() == World::Ringway {
        fs::copy(library(), shared.join("libvma.so")).expect("the library");
    }
    fs::set_permissions(&shared, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("permissions");
    let run = |uid: u32, call: &str| {
        let launch = case.plain(PYTHON).arg(&script).arg(uid.to_string()).args(call);
        if case.world() == World::Kernel { launch } else { launch.env("LD_PRELOAD", shared.join("libvma.so")) }
    };
    for (server, client) in [(0, 65_534), (65_534, 0)] {
        let port = free_port();
        let served = run(server, &format!("serve_echo {port} 1")).serve(port);
        assert_eq!(run(client, &format!("talk {port} 20000000")).run().stdout, "equal\n");
        served.finish();
    }
    fs::remove_dir_all(&shared).expect("the shared directory");
    case.on_the_kernel(400);
}

#[test]
fn two_network_namespaces_never_meet() {
    let case = Case::new("two-namespaces");
    let port = free_port();
    let peer = script_path("peer.py");
    // In a namespace of its own: root's right, or (where the kernel allows it) anybody's in a user namespace.
    let flags = if geteuid().is_root() { "--net" } else { "--map-root-user --net" };
    let mut there = case.program("unshare").args(flags).arg(PYTHON).arg(&peer).args(&format!("serve_name {port} there")).spawn();
    there.wait_line("listening");
    assert_eq!(case.python("peer.py").args(&format!("refused {port}")).run().stdout, "refused\n");
    let here = case.python("peer.py").args(&format!("serve_name {port} here")).serve(port);
    assert_eq!(case.python("peer.py").args(&format!("ask {port}")).run().stdout, "here\n");
    drop(here);
    eventually("the port is closed again", Duration::from_secs(1), || {
        case.python("peer.py").args(&format!("refused {port}")).run().stdout == "refused\n"
    });
    drop(there);
    case.done();
}

#[test]
fn no_port_left_to_bind() {
    let case = Case::new("no-ports");
    let flags = if geteuid().is_root() { "--net" } else { "--map-root-user --net" };
    let ran = case.program("unshare").args(flags).arg(PYTHON).arg(script_path("no_ports.py")).run();
    assert_eq!(ran.stdout, "equal\n");
    case.done();
}
