//! A preloaded client with a server that is not, and the reverse: over the kernel, and nobody can tell.

use rustix::process::Signal;

use crate::harness::{Case, Launch, PYTHON, Side, World, free_port};
use crate::{http, iperf3, redis, sockperf};

#[test]
fn iperf3_tcp() {
    for side in Side::BOTH {
        let case = Case::new("mixed-iperf3");
        let bytes = iperf3::received(&iperf3::exchange(&case, Some(side), "-P 2 --bidir"));
        case.on_the_kernel(bytes / 65_483);
    }
}

#[test]
fn iperf3_udp() {
    for side in Side::BOTH {
        let case = Case::new("mixed-iperf3-udp");
        let answer = iperf3::exchange(&case, Some(side), "-u -b 50M -l 1400");
        case.on_the_kernel(answer["end"]["sum"]["packets"].as_u64().expect("packets") * 9 / 10);
    }
}

#[test]
fn redis_benchmark() {
    for side in Side::BOTH {
        let case = Case::new("mixed-redis");
        let port = free_port();
        let server = case.server(side, "redis-server").args(&redis::options(port)).serve(port);
        let client = case.client(side, "redis-benchmark").args(&format!("-h 127.0.0.1 -p {port} -n 10000 -t set,get --csv"));
        redis::measured(&client.run().stdout, 2);
        server.stop(Signal::TERM);
        case.on_the_kernel(20_000);
    }
}

/// One listener, asked at the same time by a client on Ringway and one on the kernel.
#[test]
fn both_worlds_at_once() {
    let case = Case::new("mixed-both");
    let port = free_port();
    let server = case.program("redis-server").args(&redis::options(port)).serve(port);
    let arguments = format!("-h 127.0.0.1 -p {port} -n 20000 -t set,get --csv");
    let (on, off) = (case.program("redis-benchmark").args(&arguments).spawn(), case.plain("redis-benchmark").args(&arguments).spawn());
    redis::measured(&on.finish().stdout, 2);
    redis::measured(&off.finish().stdout, 2);
    server.stop(Signal::TERM);
    if case.world() == World::Ringway {
        let reports = case.reports();
        assert!(reports.iter().any(|r| r.program == "redis-server" && r.ring.rx_bytes > 100_000), "{reports:#?}");
    }
    case.on_the_kernel(40_000);
}

#[test]
fn http_server() {
    for side in Side::BOTH {
        let case = Case::new("mixed-http");
        let (path, copy) = (case.path("file"), case.path("copy"));
        http::fill(&path, 20_000_000);
        let port = free_port();
        let server = http::serve(case.server(side, PYTHON), port, &case).serve(port);
        case.client(side, "curl").args(&format!("-sSf -o {} http://127.0.0.1:{port}/file", copy.display())).run();
        assert_eq!(http::digest(&case, &copy), http::digest(&case, &path));
        server.stop(Signal::INT);
        case.on_the_kernel(300);
    }
}

#[test]
fn sockperf_ping_pong() {
    for (side, common) in Side::BOTH.into_iter().flat_map(|side| [(side, "--tcp"), (side, "")]) {
        let case = Case::new("mixed-sockperf");
        let exchanges = |server: Launch<'_>, client: Launch<'_>| {
            let port = free_port();
            let server = server.args(&format!("server -i 127.0.0.1 -p {port} {common}")).serve(port);
            let said = client.args(&format!("ping-pong -i 127.0.0.1 -p {port} -t 1 {common}")).run();
            sockperf::right(&said, "ping-pong");
            server.stop(Signal::INT);
            sockperf::count(&said.stdout, "ReceivedMessages")
        };
        let of_kernel = exchanges(case.plain("sockperf"), case.plain("sockperf"));
        let mixed = exchanges(case.server(side, "sockperf"), case.client(side, "sockperf"));
        // (A wait that ends by a timer alone has a hundred a second.)
        assert!(mixed * sockperf::SLOWER_MAX >= of_kernel, "{mixed} exchanges, the kernel's {of_kernel}");
        case.on_the_kernel(2 * (of_kernel + mixed));
    }
}
