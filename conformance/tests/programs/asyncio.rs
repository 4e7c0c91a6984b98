//! python3's asyncio streams: epoll, non-blocking sockets, half-closed connections, and back-pressure.

use crate::harness::{Case, free_port};

#[test]
fn many_streams() {
    let case = Case::new("asyncio");
    let port = free_port();
    let (streams, size) = (64, 500_000);
    let server = case.python("streams.py").args(&format!("serve {port} {streams}")).serve(port);
    assert_eq!(case.python("streams.py").args(&format!("talk {port} {streams} {size}")).run().stdout, "equal\n");
    server.finish();
    case.offloaded(&["python3"], 2 * streams * size, 2 * streams * size / 65_483);
}

#[test]
fn own_listener() {
    let case = Case::new("own-listener");
    assert_eq!(case.python("own_listener.py").run().stdout, "equal\n");
    case.offloaded(&["python3"], 800 * 32_000, 1_000);
}

#[test]
fn threads() {
    let case = Case::new("threads");
    let port = free_port();
    let server = case.python("peer.py").args(&format!("serve_echo {port} 4")).serve(port);
    let clients: Vec<_> = (0..4).map(|_| case.python("peer.py").args(&format!("talk {port} 5000000")).spawn()).collect();
    for client in clients {
        assert_eq!(client.finish().stdout, "equal\n");
    }
    server.finish();
    case.offloaded(&["python3"], 40_000_000, 600);
}
