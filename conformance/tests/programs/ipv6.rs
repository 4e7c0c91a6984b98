//! IPv6 on this machine: socat and iperf3 by `::1`, and a server that takes both families.

use rustix::process::Signal;

use crate::harness::{Case, free_port};
use crate::{http, iperf3};

/// The most payload that one segment of the kernel's loopback carries.
const SEGMENT: u64 = 65_463;

/// A file to a file.
#[test]
fn file() {
    let case = Case::new("ipv6-socat-file");
    let (path, copy) = (case.path("file"), case.path("copy"));
    http::fill(&path, 100_000_000);
    let port = free_port();
    let to = format!("-u TCP6-LISTEN:{port},bind=[::1] CREATE:{}", copy.display());
    let server = case.program("socat").args(&to).serve(port);
    case.program("socat").args(&format!("-u FILE:{} TCP6:[::1]:{port}", path.display())).run();
    server.finish();
    assert_eq!(http::digest(&case, &copy), http::digest(&case, &path));
    case.offloaded(&["socat"], 100_000_000, 1_500);
}

/// A process for each connection, of a server that is bound to `::` and sends a file: one client comes by IPv6, and one by IPv4.
#[test]
fn both_families_at_a_server_that_forks() {
    const SIZE: u64 = 20_000_000;
    let case = Case::new("ipv6-socat-both");
    let path = case.path("file");
    http::fill(&path, SIZE);
    let port = free_port();
    let server = case.program("socat").args(&format!("-U TCP6-LISTEN:{port},fork,ipv6only=0 FILE:{}", path.display())).serve(port);
    for (name, from) in [("six", "TCP6:[::1]"), ("four", "TCP4:127.0.0.1")] {
        let copy = case.path(name);
        case.program("socat").args(&format!("-u {from}:{port} CREATE:{}", copy.display())).run();
        assert_eq!(http::digest(&case, &copy), http::digest(&case, &path), "{name}");
    }
    server.signal(Signal::TERM);
    assert_eq!(server.wait().status.code(), Some(143));
    case.inherited(&["socat"], 2 * SIZE, 2 * SIZE / SEGMENT);
}

#[test]
fn streams() {
    let case = Case::new("ipv6-iperf3");
    let answer = iperf3::exchange_with("::1", &case, None, "-P 4 --bidir");
    let bytes = iperf3::received(&answer);
    assert!(bytes > 50_000_000, "{bytes} bytes in two seconds");
    case.offloaded(&["iperf3"], bytes, bytes / SEGMENT);
}

#[test]
fn datagrams() {
    iperf3::udp_to("::1", "ipv6-iperf3-udp");
}
