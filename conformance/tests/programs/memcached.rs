//! memcached, whose four threads share its connections, with two load generators of libmemcached's and its protocol by hand.

use rustix::process::Signal;

use crate::harness::{Case, Launch, before_port, free_port};

#[test]
fn by_hand() {
    by_hand_in(Case::new("memcached-by-hand"));
}

pub(crate) fn by_hand_in(case: Case) {
    let port = free_port();
    let server = start(&case, port).serve(port);
    assert_eq!(case.python("memcache.py").arg(port.to_string()).run().stdout, "equal\n");
    server.stop(Signal::TERM);
    case.offloaded(&["memcached", "python3"], 20_000_000, 5_000);
}

#[test]
fn many_clients() {
    many_clients_in(Case::new("memcached-many"));
}

pub(crate) fn many_clients_in(case: Case) {
    let port = free_port();
    let server = start(&case, port).serve(port);
    for test in ["set", "get"] {
        let load = format!("--servers=127.0.0.1:{port} --concurrency=8 --execute-number=2000 --initial-load=1000 --test={test}");
        let answer = case.program("memcslap").args(&load).run();
        assert!(answer.stdout.contains("seconds"), "{}{}", answer.stdout, answer.stderr);
    }
    load("127.0.0.1", case.program("memcaslap"), port, 20_000);
    server.stop(Signal::TERM);
    case.offloaded(&["memcached", "memcslap", "memcaslap"], 5_000_000, 20_000);
}

/// Two threads with sixteen connections to a server that is found at `host`, which ask so often, and look at every answer.
pub(crate) fn load(host: &str, memcaslap: Launch<'_>, port: u16, questions: u32) {
    let servers = format!("--servers={}:{port}", before_port(host));
    let answer = memcaslap.args(&servers).args(&format!("--threads=2 --concurrency=16 --execute_number={questions} --verify=1.0")).run();
    for wrong in ["verify_misses", "verify_failed", "get_misses"] {
        assert!(answer.stdout.contains(&format!("{wrong}: 0\n")), "{wrong}:\n{}", answer.stdout);
    }
}

pub(crate) fn start(case: &Case, port: u16) -> Launch<'_> {
    case.program("memcached").args(&options_at("127.0.0.1", port))
}

/// Options of a server that is found at `host`.
pub(crate) fn options_at(host: &str, port: u16) -> String {
    format!("-u root -U 0 -l {host} -p {port} -t 4")
}
