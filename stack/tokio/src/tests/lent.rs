//! Nets that are lent their ring.

use core::time::Duration;
use std::io::ErrorKind;
use std::net::SocketAddr;

use ringway_stack::Instant;
use ringway_stack::ring::Ring;

use super::device::Wire;
use super::{A, B, PORT, Program, ring};
use crate::{Net, NetConfig, TcpListener, TcpStream};

fn lendable(device: Wire, ip: impl Into<std::net::IpAddr>) -> (Ring<Wire>, Net<Wire>) {
    let ip = ip.into();
    (ring(device, ip, 3), Net::borrowing(ring(Wire::pair().0, ip, 4), NetConfig::at(ip)))
}

/// Steps both programs, each with its ring, until neither can go on.
fn settle<T, U>(
    now: Instant,
    a: (&mut Ring<Wire>, &Net<Wire>, &mut Program<'_, T>),
    b: (&mut Ring<Wire>, &Net<Wire>, &mut Program<'_, U>),
) {
    loop {
        let busy = step(now, a.0, a.1, a.2) | step(now, b.0, b.1, b.2);
        if !busy {
            return;
        }
    }
}

fn step<T>(now: Instant, ring: &mut Ring<Wire>, net: &Net<Wire>, program: &mut Program<'_, T>) -> bool {
    let polled = ring.poll(now);
    let events: Vec<_> = core::iter::from_fn(|| ring.take_event()).collect();
    net.lend(ring, now, &events, || program.step()) || polled > 0 || !events.is_empty()
}

#[test]
fn sockets_work_while_the_ring_is_there_and_only_then() {
    let (a, b) = Wire::pair();
    let ((mut ring_a, net_a), (mut ring_b, net_b)) = (lendable(a, A), lendable(b, B));
    let mut client = Program::new(TcpStream::connect(&net_a, PORT));
    let mut server = Program::new(async {
        let listener = TcpListener::bind(&net_b, PORT).await?;
        listener.accept().await
    });
    let mut now = Instant::ZERO;
    while client.result.is_none() || server.result.is_none() {
        settle(now, (&mut ring_a, &net_a, &mut client), (&mut ring_b, &net_b, &mut server));
        now += Duration::from_millis(100);
    }
    let stream = client.result.take().unwrap().expect("connects");
    assert_eq!(stream.local_addr().unwrap_err().kind(), ErrorKind::NotConnected);
    assert_eq!(net_a.poll(), 0);
    let peer = net_a.lend(&mut ring_a, now, &[], || stream.peer_addr().unwrap());
    assert_eq!(peer, SocketAddr::from(PORT));

    // Dropped while the ring is away: it closes as soon as the ring is back.
    drop(stream);
    assert_eq!(ring_a.open_flows().len(), 1);
    net_a.lend(&mut ring_a, now, &[], || {});
    assert_eq!(ring_a.open_flows().len(), 0);
}

#[test]
#[should_panic(expected = "lent to a net that has one")]
fn a_ring_is_lent_once() {
    let (a, b) = Wire::pair();
    let ((mut first, net), mut second) = (lendable(a, A), ring(b, B.into(), 1));
    net.lend(&mut first, Instant::ZERO, &[], || net.lend(&mut second, Instant::ZERO, &[], || {}));
}
