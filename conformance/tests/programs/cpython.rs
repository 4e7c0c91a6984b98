//! Python's own tests of what stands on sockets: test_socketserver, and test_asyncio's modules that use sockets.
//!
//! All of them pass on the kernel as they are, so none is left out. (test_asyncio's other modules use no socket.)

use crate::harness::{Case, PYTHON, World};

/// As `python3 -m test -u network` does: "network" is any socket at all.
const RUNNER: &str = "import sys, unittest; from test import support; support.use_resources = ['network']; \
                      unittest.main(module=None, argv=['unittest', '-v'] + sys.argv[1:])";

#[test]
fn socketserver() {
    passes("test_socketserver");
}

#[test]
fn asyncio_base_events() {
    passes("test_asyncio.test_base_events");
}

#[test]
fn asyncio_buffered_proto() {
    passes("test_asyncio.test_buffered_proto");
}

#[test]
fn asyncio_events() {
    passes("test_asyncio.test_events");
}

#[test]
fn asyncio_selector_events() {
    passes("test_asyncio.test_selector_events");
}

#[test]
fn asyncio_sendfile() {
    passes("test_asyncio.test_sendfile");
}

#[test]
fn asyncio_server() {
    passes("test_asyncio.test_server");
}

#[test]
fn asyncio_sock_lowlevel() {
    passes("test_asyncio.test_sock_lowlevel");
}

#[test]
fn asyncio_ssl() {
    passes("test_asyncio.test_ssl");
}

#[test]
fn asyncio_sslproto() {
    passes("test_asyncio.test_sslproto");
}

#[test]
fn asyncio_streams() {
    passes("test_asyncio.test_streams");
}

#[test]
fn asyncio_subprocess() {
    passes("test_asyncio.test_subprocess");
}

#[test]
fn asyncio_unix_events() {
    passes("test_asyncio.test_unix_events");
}

fn passes(module: &str) {
    let case = Case::new(&format!("cpython-{module}"));
    let answer = case.program(PYTHON).arg("-c").arg(RUNNER).arg(format!("test.{module}")).run();
    // unittest reports to standard error; its last line is "OK" or "OK (skipped=3)".
    let verdict = answer.stderr.lines().rfind(|l| !l.trim().is_empty()).unwrap_or_default();
    assert!(verdict.starts_with("OK"), "{}", answer.stderr);
    if case.world() == World::Ringway && OVER_TCP.contains(&module) {
        let moved: u64 = case.reports().iter().map(|r| r.ring.rx_bytes).sum();
        assert!(moved > 1_000, "the tests' connections were not offloaded: {moved} bytes");
    }
    case.done();
}

/// The modules whose tests send something over TCP: the others use pairs, pipes and mocks.
const OVER_TCP: [&str; 8] = [
    "test_socketserver",
    "test_asyncio.test_base_events",
    "test_asyncio.test_events",
    "test_asyncio.test_sendfile",
    "test_asyncio.test_sock_lowlevel",
    "test_asyncio.test_ssl",
    "test_asyncio.test_sslproto",
    "test_asyncio.test_streams",
];
