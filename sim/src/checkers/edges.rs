//! Edges: every gain of readiness and every arrival raises its event, and no event comes without a cause.

use ringway_stack::ring::{Readiness, SocketInfo};

use super::Moment;

const NAME: &str = "edges";

/// What it remembers of a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    /// At the last look.
    ready: Readiness,
    /// At any look since the last event.
    ever: Readiness,
    /// Arrivals at the last look.
    arrivals: u64,
}

/// How much arrived in all: bytes of a stream, datagrams, connections (which wait, or were accepted).
fn arrivals(info: &SocketInfo) -> u64 {
    match info.state {
        Some(ringway_stack::tcp::State::Listen) => info.counters.rx_packets + info.recv_queue as u64,
        Some(_) => info.counters.rx_bytes,
        None => info.counters.rx_packets,
    }
}

impl State {
    /// A look after a call of the program's: what it changed needs no event.
    pub(super) fn looked(&mut self, ready: Readiness, info: &SocketInfo) {
        self.ready = ready;
        self.ever |= ready;
        self.arrivals = arrivals(info);
    }

    /// A look after a poll, in which these events came, and an acknowledgment, perhaps.
    pub(super) fn polled(&mut self, moment: &Moment, ready: Readiness, info: &SocketInfo, edges: Readiness, acknowledged: bool) {
        let gained = ready - self.ready;
        if !edges.contains(gained) {
            moment.breach(NAME, format_args!("a socket ({}) became {gained:?}, and the event says {edges:?}", info.local));
        }
        let arrived = arrivals(info);
        if arrived > self.arrivals && !edges.contains(Readiness::IN) {
            moment.breach(NAME, format_args!("a socket ({}) received something, and the event says {edges:?}", info.local));
        }
        // What an acknowledgment made room for, a loss that the next one told of may have taken away: room follows from cwnd.
        let mut ever = self.ever | ready | if acknowledged { Readiness::OUT } else { Readiness::empty() };
        // An error ends every wait: whoever waits to read or to write is told of it.
        if edges.contains(Readiness::ERR) {
            ever |= Readiness::IN | Readiness::OUT;
        }
        if !ever.contains(edges) {
            moment.breach(NAME, format_args!("the event of a socket ({}) says {edges:?}, which it never was: {ever:?}", info.local));
        }
        self.ready = ready;
        self.ever = if edges.is_empty() { ever } else { ready };
        self.arrivals = arrived;
    }
}

/// An event came for a socket that its program had closed.
pub(super) fn after_close(moment: &Moment, edges: Readiness) {
    moment.breach(NAME, format_args!("an event ({edges:?}) of a socket that was closed"));
}
