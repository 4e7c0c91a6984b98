//! What stands above a flow, as its ring knows it: by the ring's lock.

use core::cell::Cell;

use ringway_stack::ring::Readiness;

/// An item of an epoll instance, by which it watches a socket that no other watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Only {
    pub(crate) epoll: u32,
    pub(crate) item: u32,
}

/// Nobody.
const NONE: u32 = u32::MAX;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct Above {
    /// Our socket's index.
    socket: u32,
    /// Who alone watches the socket, where it is plain.
    only: Only,
    /// Whoever watches it knows that it may be readable, or may be writable, or does not want to know.
    told: Cell<Readiness>,
}

impl Above {
    /// No socket.
    pub(super) const fn nothing() -> Self {
        Self::new(NONE)
    }

    pub(super) const fn new(socket: u32) -> Self {
        Self { socket, only: Only { epoll: NONE, item: NONE }, told: Cell::new(Readiness::empty()) }
    }

    /// Our socket's index; `u32::MAX`: there is none.
    #[inline]
    pub(crate) const fn socket(&self) -> u32 {
        self.socket
    }

    /// The item of the epoll instance that alone watches the socket, if it is plain.
    #[inline]
    pub(crate) fn only(&self) -> Option<Only> {
        (self.only.epoll != NONE).then_some(self.only)
    }

    /// The socket is plain, and that alone watches it, if anybody does; whom nobody has told of anything.
    pub(crate) fn is_plain_for(&mut self, only: Option<Only>) {
        self.only = only.unwrap_or(Only { epoll: NONE, item: NONE });
        self.told.set(Readiness::empty());
    }

    /// Whether whoever watches the socket learns nothing new by such an event.
    #[inline]
    pub(crate) fn knows(&self, edges: Readiness) -> bool {
        self.told.get().contains(edges)
    }

    /// Whoever watches the socket was told of something. `are_told`: whether further events of a kind would be nothing new.
    #[inline]
    pub(crate) fn note_told(&self, are_told: impl Fn(Readiness) -> bool) {
        let told = |edge| if are_told(edge) { edge } else { Readiness::empty() };
        self.told.set(told(Readiness::IN) | told(Readiness::OUT));
    }

    /// Somebody who watches the socket looks at it, and is to be told of what happens from then on.
    #[inline]
    pub(crate) fn look(&self) {
        self.told.set(Readiness::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_watches_is_told_once_until_it_looks() {
        let mut above = Above::new(7);
        assert!(above.only().is_none() && !above.knows(Readiness::IN));
        above.note_told(|edge| edge == Readiness::IN);
        assert!(above.knows(Readiness::IN) && !above.knows(Readiness::OUT) && !above.knows(Readiness::IN | Readiness::RDHUP));
        above.look();
        assert!(!above.knows(Readiness::IN));
        above.note_told(|_| true);
        above.is_plain_for(Some(Only { epoll: 1, item: 2 }));
        assert!(above.only() == Some(Only { epoll: 1, item: 2 }) && !above.knows(Readiness::OUT), "it is another who watches, perhaps");
    }
}
