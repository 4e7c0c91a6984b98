//! Tasks that wait for a socket.

use core::mem;
use core::task::Waker;

use ringway_stack::ring::Readiness;

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Bytes, a datagram, a connection, an end.
    Read,
    /// Room, the end of a handshake.
    Write,
}

/// The tasks that wait for one socket. Each stands there once a side, however often it asks.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    read: Vec<Waker>,
    write: Vec<Waker>,
}

impl Waiters {
    pub(crate) fn add(&mut self, side: Side, waker: &Waker) {
        let list = match side {
            Side::Read => &mut self.read,
            Side::Write => &mut self.write,
        };
        if !list.iter().any(|known| known.will_wake(waker)) {
            list.push(waker.clone());
        }
    }

    /// Moves those whom `edges` concern to `woken`.
    pub(crate) fn take(&mut self, edges: Readiness, woken: &mut Vec<Waker>) {
        let ends = Readiness::HUP | Readiness::ERR;
        if edges.intersects(Readiness::IN | Readiness::RDHUP | ends) {
            woken.append(&mut self.read);
        }
        if edges.intersects(Readiness::OUT | ends) {
            woken.append(&mut self.write);
        }
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.read.is_empty() && self.write.is_empty()
    }

    /// Everybody, for a socket that is gone.
    pub(crate) fn into_all(mut self) -> Vec<Waker> {
        let mut all = mem::take(&mut self.read);
        all.append(&mut self.write);
        all
    }
}
