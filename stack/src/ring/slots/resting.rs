//! Connections in a small form ([`tcp::Rest`]): half-open ones that nobody has accepted yet, and those that the program has closed and that wait out
//! their TIME-WAIT. Whoever asks for the connection ([`Slots::stream_at`]) finds it whole; whoever looks at many of them looks at what all have.

use std::net::{SocketAddr, SocketAddrV4};

use super::{Flow, Silent, Slots, Stream};
use crate::device::{Queues, RuleId};
use crate::ring::types::{FlowId, NextHop};
use crate::tcp;
use crate::time::Instant;

/// A [`Stream`] at rest.
pub(in crate::ring) struct Resting {
    ends: Ends,
    pub(in crate::ring) hop: NextHop,
    pub(in crate::ring) rule: Option<RuleId>,
    pub(in crate::ring) parent: Option<FlowId>,
    /// [`Instant::MAX`]: none.
    wheel_at: Instant,
    far_at: Instant,
    shared: bool,
    noted: bool,
    rest: tcp::Rest,
}

/// Both addresses, ours first. (There are few connections of IPv6 yet, and their addresses are long.)
enum Ends {
    V4(SocketAddrV4, SocketAddrV4),
    V6(Box<(SocketAddr, SocketAddr)>),
}

impl Resting {
    /// The small form of a stream. `None`: it has none now.
    fn of<Q: Queues>(stream: &Stream<Q>) -> Option<Self> {
        #[rustfmt::skip]
        let &Stream {
            ref connection, local, remote, hop, rule, silent, wheel_at, far_at, parent, queued, orphan, stalled, shared, noted, is_paced,
        } = stream;
        // (One that is accepted, or may be, is the program's.)
        if silent != Silent::No || queued || stalled || is_paced || orphan == parent.is_some() {
            return None;
        }
        let ends = match (local, remote) {
            (SocketAddr::V4(local), SocketAddr::V4(remote)) => Ends::V4(local, remote),
            both => Ends::V6(Box::new(both)),
        };
        let (wheel_at, far_at) = (wheel_at.unwrap_or(Instant::MAX), far_at.unwrap_or(Instant::MAX));
        Some(Self { ends, hop, rule, parent, wheel_at, far_at, shared, noted, rest: connection.at_rest()? })
    }

    fn woken<Q: Queues>(&self) -> Stream<Q> {
        let (local, remote) = self.ends();
        let set = |at: Instant| Some(at).filter(|at| *at != Instant::MAX);
        Stream {
            connection: tcp::Connection::woken(&self.rest),
            local,
            remote,
            hop: self.hop,
            rule: self.rule,
            silent: Silent::No,
            wheel_at: set(self.wheel_at),
            far_at: set(self.far_at),
            parent: self.parent,
            queued: false,
            orphan: self.parent.is_none(),
            stalled: false,
            shared: self.shared,
            noted: self.noted,
            is_paced: false,
        }
    }

    /// The addresses, ours first.
    pub(in crate::ring) fn ends(&self) -> (SocketAddr, SocketAddr) {
        match &self.ends {
            Ends::V4(local, remote) => (SocketAddr::V4(*local), SocketAddr::V4(*remote)),
            Ends::V6(both) => **both,
        }
    }

    pub(in crate::ring) fn state(&self) -> tcp::State {
        self.rest.state()
    }

    /// See [`Stream::awaits_acknowledgment`].
    pub(in crate::ring) fn awaits_acknowledgment(&self) -> bool {
        self.state() == tcp::State::SynReceived
    }

    /// See [`tcp::Connection::lend_from_now_on`].
    pub(in crate::ring) fn lend_from_now_on(&mut self) {
        self.rest.lend_from_now_on();
    }

    /// The stream, beside this one: to be looked at.
    pub(in crate::ring) fn as_stream<Q: Queues>(&self) -> Stream<Q> {
        self.woken()
    }
}

impl<Q: Queues> Flow<Q> {
    /// One that rests is a stream again.
    #[cold]
    #[inline(never)]
    pub(super) fn wake(&mut self) {
        if let Self::Resting(resting) = self {
            *self = Self::Stream(Box::new(resting.woken()));
        }
    }

    /// Of a connection, at rest or not: its addresses (ours first).
    pub(in crate::ring) fn stream_ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        match self {
            Self::Stream(stream) => Some((stream.local, stream.remote)),
            Self::Resting(resting) => Some(resting.ends()),
            Self::Listener(_) | Self::Udp(_) => None,
        }
    }

    /// Of a connection, at rest or not: where its frames go.
    pub(in crate::ring) fn stream_hop(&self) -> Option<NextHop> {
        match self {
            Self::Stream(stream) => Some(stream.hop),
            Self::Resting(resting) => Some(resting.hop),
            Self::Listener(_) | Self::Udp(_) => None,
        }
    }

    /// Of a connection, at rest or not: see [`tcp::Connection::may_be_reused`]. (Whoever looks for a free port asks many.)
    pub(in crate::ring) fn may_be_reused(&self, now: Instant) -> bool {
        match self {
            Self::Stream(stream) => stream.connection.may_be_reused(now),
            Self::Resting(resting) => resting.rest.may_be_reused(now),
            Self::Listener(_) | Self::Udp(_) => false,
        }
    }

    /// Of a connection, at rest or not: its flow rule.
    pub(in crate::ring) fn stream_rule(&self) -> Option<RuleId> {
        match self {
            Self::Stream(stream) => stream.rule,
            Self::Resting(resting) => resting.rule,
            Self::Listener(_) | Self::Udp(_) => None,
        }
    }

    /// Of a connection, at rest or not: the listener that has not seen it accepted yet.
    pub(in crate::ring) fn stream_parent(&self) -> Option<FlowId> {
        match self {
            Self::Stream(stream) => stream.parent,
            Self::Resting(resting) => resting.parent,
            Self::Listener(_) | Self::Udp(_) => None,
        }
    }
}

impl<Q: Queues> Slots<Q> {
    /// Nothing is to be done for a connection at the moment: it rests, if it can.
    #[cold]
    #[inline(never)]
    pub(in crate::ring) fn rest(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        if let Some(Flow::Stream(stream)) = &slot.flow
            && let Some(resting) = Resting::of(stream)
        {
            slot.flow = Some(Flow::Resting(Box::new(resting)));
        }
    }

    /// Whether an entry of the timer wheel is a connection's that goes by it.
    pub(in crate::ring) fn goes_by(&self, index: u32, at: Instant) -> bool {
        match self.slots.get(index as usize).and_then(|slot| slot.flow.as_ref()) {
            Some(Flow::Stream(stream)) => stream.wheel_at == Some(at) || stream.far_at == Some(at),
            Some(Flow::Resting(resting)) => resting.wheel_at == at || resting.far_at == at,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
