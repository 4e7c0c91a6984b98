//! fork, exec and daemon(3).

use std::fs;

use crate::harness::{Case, PATIENCE, eventually, free_port};

#[test]
fn helpers() {
    let case = Case::new("helpers");
    let port = free_port();
    let server = case.python("peer.py").args(&format!("serve_echo {port} 1")).serve(port);
    assert_eq!(case.python("helpers.py").arg(port.to_string()).run().stdout, "equal\n");
    server.finish();
    case.offloaded(&["python3"], 500_000, 2_000);
}

#[test]
fn daemon() {
    for when in ["before", "after"] {
        let case = Case::new("daemon");
        let port = free_port();
        let pidfile = case.path("pid");
        case.python("daemonised.py").args(&format!("{port} {when}")).arg(&pidfile).run();
        eventually("the daemon listens", PATIENCE, || pidfile.exists());
        let pid = fs::read_to_string(&pidfile).expect("the pid file");
        assert_eq!(case.python("peer.py").args(&format!("talk {port} 1000000")).run().stdout, "equal\n");
        eventually("the daemon ended", PATIENCE, || !fs::exists(format!("/proc/{pid}")).expect("/proc"));
        if when == "before" {
            case.offloaded(&["python3"], 2_000_000, 30);
        } else {
            // A listener that was opened before the fork: the kernel may serve it.
            case.done();
        }
    }
}
