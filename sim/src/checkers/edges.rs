//! Edges: every gain of readiness (poll(2)) and every arrival raises its event, and no event comes without a cause. What arrived is told by what was
//! read and what still waits (FIONREAD), and of streams by the wire as well.

use std::net::SocketAddr;

use ringway_stack::ring::Readiness;

use super::Moment;
use super::flow::Endpoint;
use super::shadow;

const NAME: &str = "edges";

/// What it remembers of a socket.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    /// At the last look.
    ready: Readiness,
    /// At any look since the last event.
    ever: Readiness,
    /// Arrivals at the last look: what was read or accepted, and what waits for that.
    arrivals: u64,
    /// Its program was told that there is something to read, or took it by a call that polled, since its host was serviced last.
    told: bool,
}

impl State {
    /// A look after a call of the program's: what it changed needs no event.
    pub(super) fn looked(&mut self, ready: Readiness, arrivals: u64) {
        self.ready = ready;
        self.ever |= ready;
        self.arrivals = arrivals;
    }

    /// An event says this.
    pub(super) fn told(&mut self, edges: Readiness) {
        self.told |= edges.contains(Readiness::IN);
    }

    /// All that came to a stream was looked at: more of it arrived in order than by the last service, which its program is told.
    pub(super) fn serviced(&mut self, moment: &Moment, own: &Endpoint, more: bool) {
        let told = core::mem::replace(&mut self.told, false);
        let judged = own.calm && shadow::State::is_alive(own) && !own.shadow.receiver.is_doubtful() && !own.shadow.unread;
        if more && judged && !told {
            moment.breach(NAME, "bytes arrived in order, as the wire shows, and no event says so");
        }
    }

    /// A look after a call of the program's on this socket, which has polled by itself, with these events. What came, the call may have taken, and what there was
    /// room for, it may have filled; but what it left to be read, somebody is told of.
    pub(super) fn polled_by_call(&mut self, moment: &Moment, local: SocketAddr, now: (Readiness, u64), edges: Readiness) {
        let (ready, arrived) = now;
        if (ready - self.ready).contains(Readiness::IN) && !edges.contains(Readiness::IN) {
            moment.breach(
                NAME,
                format_args!("a call that polled left something to be read of a socket ({local}), and the event says {edges:?}"),
            );
        }
        self.told = true;
        self.looked(ready, arrived);
    }

    /// A look after a poll, in which these events came. `had_room`: there may have been room to write, and be none any more.
    pub(super) fn polled(&mut self, moment: &Moment, local: SocketAddr, now: (Readiness, u64), edges: Readiness, had_room: bool) {
        let (ready, arrived) = now;
        let gained = ready - self.ready;
        if !edges.contains(gained) {
            moment.breach(NAME, format_args!("a socket ({local}) became {gained:?}, and the event says {edges:?}"));
        }
        if arrived > self.arrivals && !edges.contains(Readiness::IN) {
            moment.breach(NAME, format_args!("a socket ({local}) received something, and the event says {edges:?}"));
        }
        // Room follows from cwnd. What an acknowledgment made room for, a loss that the next one told of may have taken away; and what there was when a timer
        // told a writer that there may be buffers again, the restart after an idle time (RFC 5681 s4.1), if what that poll sent was the first for long.
        let mut ever = self.ever | ready | if had_room { Readiness::OUT } else { Readiness::empty() };
        // An error ends every wait: whoever waits to read or to write is told of it.
        if edges.contains(Readiness::ERR) {
            ever |= Readiness::IN | Readiness::OUT;
        }
        if !ever.contains(edges) {
            moment.breach(NAME, format_args!("the event of a socket ({local}) says {edges:?}, which it never was: {ever:?}"));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What a poll's events say is excused by room that there was until cwnd fell, and nothing else is.
    #[test]
    fn an_event_says_what_there_was() {
        let says = |edges: Readiness, had_room: bool| {
            let mut state = State::default();
            state.looked(Readiness::IN, 1);
            state.polled(&Moment::after(1), SocketAddr::from(([10, 0, 0, 1], 1)), (Readiness::IN, 1), edges, had_room);
        };
        let breaks = |edges: Readiness, had_room: bool| std::panic::catch_unwind(|| says(edges, had_room)).is_err();
        assert!(!breaks(Readiness::IN, false));
        assert!(!breaks(Readiness::OUT, true));
        assert!(breaks(Readiness::OUT, false));
        assert!(breaks(Readiness::RDHUP, true));
    }
}
