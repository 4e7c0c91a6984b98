//! How readiness is told: seed 000's events, and connections that begin without waiting.

use core::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use ringway_stack::ring::{FlowId, Readiness};
use ringway_stack::{Error, tcp};

use super::Side::{self, Receiver, Sender};
use super::{Net, PORT};

/// What an answer takes at most, on a network that loses one frame in twenty.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// With several listeners, each connection is accepted from the one that it came to.
pub fn a_connection_waits_at_the_listener_that_it_came_to<N: Net>(net: &mut N) -> Result<()> {
    let mut listeners = Vec::new();
    for port in [PORT, PORT + 1, PORT + 2] {
        let address = net.address(Receiver, port);
        listeners.push((port, net.ring(Receiver).tcp_listen(address.into(), 4, &tcp::Config::default())?));
    }
    for (n, &(port, listener)) in listeners.iter().rev().enumerate() {
        let (now, local) = (net.now(), net.address(Sender, 3000 + n as u16));
        let (remote, hop) = (net.address(Receiver, port), net.hop(Receiver));
        net.ring(Sender).tcp_connect(now, local.into(), remote.into(), hop, &tcp::Config::default())?;
        until(net, Receiver, listener, Readiness::IN)?;
        for &(_, other) in listeners.iter().filter(|&&(other, _)| other != port) {
            ensure!(net.ring(Receiver).tcp_accept(other) == Err(Error::WouldBlock), "it came to {port}");
        }
        let child = net.ring(Receiver).tcp_accept(listener)?;
        let info = net.ring(Receiver).info(child).context("the connection is gone")?;
        ensure!((info.local, info.remote) == (remote.into(), Some(local.into())), "{info:?}");
    }
    Ok(())
}

/// What happens to a connection is told by epoll's bits: room, bytes, the peer's end, both ends, a reset.
pub fn what_happens_is_told_by_epolls_bits<N: Net>(net: &mut N) -> Result<()> {
    // Linux's <sys/epoll.h>.
    let (epollin, epollout, epollerr, epollhup, epollrdhup) = (0x1, 0x4, 0x8, 0x10, 0x2000);
    let (client, server) = net.connected(PORT, &tcp::Config::default())?;
    net.pass(Duration::from_millis(100));
    ensure!(told(net, Sender, client) == epollout, "a connection that came about");
    net.write(Sender, client, b"bytes");
    net.pass(Duration::from_millis(100));
    ensure!(told(net, Receiver, server) & (epollin | epollrdhup | epollhup | epollerr) == epollin, "bytes that arrived");
    net.read(server, 99)?;
    let now = net.now();
    net.ring(Sender).shutdown(now, client, ringway_stack::ring::Shutdown::Write)?;
    net.pass(Duration::from_millis(100));
    ensure!(told(net, Receiver, server) & (epollin | epollrdhup | epollhup | epollerr) == epollin | epollrdhup, "the peer's end");
    let now = net.now();
    net.ring(Receiver).shutdown(now, server, ringway_stack::ring::Shutdown::Write)?;
    net.pass(Duration::from_millis(100));
    ensure!(told(net, Receiver, server) & (epollhup | epollerr) == epollhup, "both ends");
    let (client, server) = net.connected(PORT + 1, &tcp::Config::default())?;
    net.pass(Duration::from_millis(100));
    told(net, Sender, client);
    let now = net.now();
    net.ring(Receiver).close(now, server, true);
    net.pass(Duration::from_millis(100));
    let reset = epollin | epollerr | epollhup;
    ensure!(told(net, Sender, client) & reset == reset, "a reset");
    ensure!(net.ring(Sender).take_error(client) == Some(Error::Reset));
    Ok(())
}

/// What happened since the last event of a socket is told by one.
pub fn one_event_tells_of_several_things<N: Net>(net: &mut N) -> Result<()> {
    let (client, server) = net.connected(PORT, &tcp::Config::default())?;
    net.pass(Duration::from_secs(5));
    net.events(Receiver, server);
    net.write(Sender, client, b"last words");
    let now = net.now();
    net.ring(Sender).close(now, client, false);
    // (Long enough for what is lost to be sent again.)
    net.pass(ANSWER_MAX);
    let events = net.events(Receiver, server);
    ensure!(matches!(events[..], [edges] if edges.contains(Readiness::IN | Readiness::RDHUP)), "bytes and an end: {events:?}");
    ensure!(net.events(Receiver, server).is_empty(), "what was told is told once");
    ensure!(net.read(server, 99)? == b"last words" && net.read(server, 99)?.is_empty());
    Ok(())
}

/// A connection begins without waiting for the peer; that it came about is told.
pub fn a_connection_begins_without_waiting<N: Net>(net: &mut N) -> Result<()> {
    let (now, local, remote, hop) = (net.now(), net.address(Sender, PORT), net.address(Receiver, PORT), net.hop(Receiver));
    net.ring(Receiver).tcp_listen(remote.into(), 4, &tcp::Config::default())?;
    let client = net.ring(Sender).tcp_connect(now, local.into(), remote.into(), hop, &tcp::Config::default())?;
    ensure!(net.now() == now, "it took {:?}", net.now().since(now));
    let state = |net: &mut N| net.ring(Sender).info(client).and_then(|info| info.state);
    ensure!(state(net) == Some(tcp::State::SynSent) && !net.ring(Sender).readiness(client).contains(Readiness::OUT));
    ensure!(net.write(Sender, client, b"early") == 0, "nothing can be written yet");
    until(net, Sender, client, Readiness::OUT)?;
    ensure!(state(net) == Some(tcp::State::Established) && net.write(Sender, client, b"now") == 3);
    Ok(())
}

/// What the events of a socket, since they were taken last, say as epoll's number.
fn told<N: Net>(net: &mut N, side: Side, socket: FlowId) -> u32 {
    net.events(side, socket).into_iter().fold(0, |told, edges| told | edges.bits())
}

/// Waits until an event of a socket tells of `edges`.
fn until<N: Net>(net: &mut N, side: Side, socket: FlowId, edges: Readiness) -> Result<()> {
    let deadline = net.now() + ANSWER_MAX;
    while net.now() < deadline {
        net.pass(Duration::from_millis(10));
        if net.events(side, socket).into_iter().any(|told| told.contains(edges)) {
            return Ok(());
        }
    }
    bail!("no event told of {edges:?} in {ANSWER_MAX:?}")
}
