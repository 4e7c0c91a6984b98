//! sockperf's switches for VMA, as far as Debian's build has them: `--load-vma`, `--dummy-send`, `--rate-limit`. It is built without VMA's header,
//! and so without the others, which a case tells: when a newer build has them, it fails, and they are to have their own.

use std::fs;

use ringway_report::{STATS_FILE_ENV, SocketReport};
use rustix::process::Signal;

use crate::harness::{Case, World, free_port, library};
use crate::sockperf::{SLOWER_MAX, count, right};

/// The library is not preloaded: sockperf opens it, and calls its functions by their addresses.
#[test]
fn load_vma() {
    let by_path = format!("--load-vma={}", library().display());
    for (name, how) in [("sockperf-load-vma-path", by_path.as_str()), ("sockperf-load-vma", "--load-vma")] {
        for protocol in ["--tcp", ""] {
            let of_kernel = exchanges_of_kernel(protocol);
            let case = Case::new(name);
            if case.world() == World::Kernel {
                return case.done();
            }
            let folder = library().parent().expect("a folder").to_owned();
            let loading = || case.plain("sockperf").env("LD_LIBRARY_PATH", &folder).env(STATS_FILE_ENV, case.path("report.%d"));
            let port = free_port();
            let server = loading().args(&format!("server -i 127.0.0.1 -p {port} {protocol} {how}")).serve(port);
            let client = format!("ping-pong -i 127.0.0.1 -p {port} {protocol} {how} -t 1 --mps 5000000 -m 64");
            let said = loading().args(&client).run();
            right(&said, "ping-pong");
            server.stop(Signal::INT);
            let exchanges = count(&said.stdout, "ReceivedMessages");
            assert!(exchanges * SLOWER_MAX >= of_kernel, "{exchanges} exchanges, the kernel's {of_kernel}");
            // (Messages of 64 bytes, both ways.)
            case.offloaded(&["sockperf"], exchanges * 64, exchanges);
        }
    }
}

/// How many exchanges two programs without the library have in a second, now.
fn exchanges_of_kernel(protocol: &str) -> u64 {
    let case = Case::new("sockperf-beside");
    let port = free_port();
    let server = case.plain("sockperf").args(&format!("server -i 127.0.0.1 -p {port} {protocol}")).serve(port);
    let client = format!("ping-pong -i 127.0.0.1 -p {port} {protocol} -t 1 --mps 5000000 -m 64");
    let said = case.plain("sockperf").args(&client).run();
    server.stop(Signal::INT);
    case.done();
    count(&said.stdout, "ReceivedMessages")
}

/// Between its messages the client sends dummies: they are counted, and nothing of them arrives.
#[test]
fn dummy_send() {
    // So few messages that there is time between them on a busy machine too, where each waits for both programs' turns.
    for (protocol, mode) in [
        ("--tcp", "ping-pong -t 2 --mps 20 -m 64"),
        ("", "ping-pong -t 2 --mps 20 -m 64"),
        ("", "under-load -t 2 --mps 100 --reply-every 2 -m 64"),
    ] {
        let case = Case::new("sockperf-dummy-send");
        if case.world() == World::Kernel {
            // (MSG_SYN, whose value the flag has, means nothing to Linux: it sends them.)
            return case.done();
        }
        let (port, sockets) = (free_port(), case.path("sockets"));
        let server = case.program("sockperf").args(&format!("server -i 127.0.0.1 -p {port} {protocol} -g")).serve(port);
        let client = case.program("sockperf").env("VMA_STATS_FILE", &sockets);
        let said = client.args(&format!("{mode} -i 127.0.0.1 -p {port} {protocol} --dummy-send=20000")).run();
        right(&said, mode.split_once(' ').expect("a mode and its options").0);
        let messages = count(&said.stdout, "SentMessages");
        let answered = server.stop(Signal::INT);
        let text = fs::read_to_string(&sockets).expect("the client's sockets left their statistics");
        let sockets: Vec<SocketReport> = text.lines().map(|line| serde_json::from_str(line).expect("a socket")).collect();
        let dummies: u64 = sockets.iter().map(|socket| socket.tx_dummies).sum();
        // Of those that fit between two messages (a thousand, and two hundred). Beside a load of eight a core it was more than half.
        assert!(dummies >= messages * 20, "{dummies} dummies, {messages} messages: {text}");
        // The server counts each message that reached it (the warm-up's too): had a dummy come, it would be a duplicate.
        let total = count(&answered.stdout, "Total");
        assert!(total >= messages && total < messages + 2_000, "{messages} sent: {}", answered.stdout);
        case.offloaded(&["sockperf"], messages * 16, messages);
    }
}

/// The ring paces streams. Datagrams the device does not pace, and the program is told so; the rate of the kernel's socket is set.
#[test]
fn rate_limit() {
    for protocol in ["--tcp", ""] {
        let case = Case::new("sockperf-rate-limit");
        let port = free_port();
        let sockperf = || case.program("sockperf").env("VMA_RING_ALLOCATION_LOGIC_TX", "20");
        let server = sockperf().args(&format!("server -i 127.0.0.1 -p {port} {protocol}")).serve(port);
        let client = format!("ping-pong -i 127.0.0.1 -p {port} {protocol} --rate-limit=1000000 -t 1 --mps 5000000 -m 64");
        let said = sockperf().args(&client).run();
        right(&said, "ping-pong");
        server.stop(Signal::INT);
        if case.world() == World::Ringway {
            let told = said.stderr.contains("SO_MAX_PACING_RATE: the device shm does not pace datagrams");
            assert_eq!(told, protocol.is_empty(), "{}", said.stderr);
        }
        case.offloaded(&["sockperf"], 5_000 * 16, 5_000);
    }
}

/// SocketXtreme, zero copy and callbacks: "Please compile with VMA Extra API to use these options".
#[test]
fn what_debians_build_has_not() {
    let case = Case::new("sockperf-not-built");
    let feed = case.path("feed");
    fs::write(&feed, format!("U:127.0.0.1:{}\n", free_port())).expect("the feed file");
    let xtreme = format!("server -f {} -F x", feed.display());
    for switch in [xtreme.as_str(), "server -i 127.0.0.1 --vmarxfiltercb", "ping-pong -i 127.0.0.1 --vmazcopyread -t 1"] {
        let answer = case.program("sockperf").args(switch).spawn().wait();
        let said = format!("{}{}", answer.stdout, answer.stderr);
        let refused = !answer.status.success() && said.contains("Please compile with VMA");
        assert!(refused, "this sockperf may have `{switch}`: it is to have a case of its own. It said ({}): {said}", answer.status);
    }
    case.done();
}
