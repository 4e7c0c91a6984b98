//! How destinations of datagrams are reached, remembered: a server answers many clients in turn, and is not to ask the rendezvous for each datagram.
//!
//! A socket remembers both, what leads over the ring and what is the kernel's ([`Routes`]); beside a ring lies what leads over it for sockets that send by
//! the ring's lock alone ([`super::plain`]).

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use ringway_stack::Instant;
use ringway_stack::device::MacAddr;

use crate::devices::{Rendezvous, Resolved};

/// Destinations that are remembered. (A peer's memory is let go of when it is gone: what is bounded here are addresses.)
const MOST: usize = 1024;

/// How long a destination that nobody offloads is left to the kernel before it is asked for again: at first, for who has bound it a moment ago may be about
/// to publish it, and at the most. Each time it is twice as long as the last.
const KERNEL_FOR_MIN: Duration = Duration::from_millis(1);
const KERNEL_FOR_MAX: Duration = Duration::from_millis(128);

/// How long one is left to the kernel whose holder is being asked.
const UNASKED_FOR: Duration = Duration::from_millis(1);

/// How long a way to an address is believed that other sockets may come to share, of which nobody tells: those of programs that don't run this
/// library. (One that does run it tells at once.)
const SHARED_FOR: Duration = Duration::from_millis(10);

/// What is remembered of destinations: of the last one at hand, of those before by their addresses.
#[derive(Debug)]
pub(in crate::socket) struct Recent<T> {
    last: Option<(SocketAddr, T)>,
    others: BTreeMap<SocketAddr, T>,
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self { last: None, others: BTreeMap::new() }
    }
}

impl<T> Recent<T> {
    /// What is remembered of a destination, which is the last one from now on.
    #[inline]
    pub(in crate::socket) fn find(&mut self, to: SocketAddr) -> Option<&T> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != to) {
            self.recall(to)?;
        }
        self.last.as_ref().map(|(_, found)| found)
    }

    fn recall(&mut self, to: SocketAddr) -> Option<()> {
        self.others.contains_key(&to).then_some(())?;
        // (The one goes in before the other goes out, so that a server of two clients allocates nothing by the datagram.)
        if let Some((before, known)) = self.last.take() {
            self.others.insert(before, known);
        }
        self.last = self.others.remove_entry(&to);
        Some(())
    }

    /// The same, without making it the last one.
    fn peek(&self, to: SocketAddr) -> Option<&T> {
        match &self.last {
            Some((last, found)) if *last == to => Some(found),
            _ => self.others.get(&to),
        }
    }

    /// Remembers a destination, as the last one.
    pub(in crate::socket) fn put(&mut self, to: SocketAddr, what: T) {
        self.others.remove(&to);
        let Some((before, known)) = self.last.replace((to, what)).filter(|(before, _)| *before != to) else { return };
        if self.others.len() == MOST {
            // Which of them will be asked for again is not known.
            self.others.pop_first();
        }
        self.others.insert(before, known);
    }

    /// Forgets a destination.
    pub(super) fn forget(&mut self, to: SocketAddr) {
        self.last.take_if(|(last, _)| *last == to);
        self.others.remove(&to);
    }

    /// Forgets all of which that is not so.
    pub(super) fn retain(&mut self, holds: impl Fn(&T) -> bool) {
        self.last.take_if(|(_, last)| !holds(last));
        self.others.retain(|_, other| holds(other));
    }
}

/// A way over the ring to an address, and until when it is believed.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(super) hop: Resolved,
    until: Instant,
}

impl Way {
    fn new(hop: Resolved, now: Instant) -> Self {
        let until = if hop.is_shared { now + SHARED_FOR } else { Instant::MAX };
        Self { hop, until }
    }

    /// Whether it still leads there.
    #[inline]
    pub(super) fn holds(&self, rendezvous: &Rendezvous, now: Instant) -> bool {
        now < self.until && rendezvous.still_valid(&self.hop)
    }
}

/// How a destination is reached.
#[derive(Debug)]
enum By {
    Ring(Way),
    /// Through the kernel, until then, which was said to be for so long.
    Kernel(Instant, Duration),
}

/// A UDP socket's.
#[derive(Debug, Default)]
pub(crate) struct Routes(Recent<By>);

impl Routes {
    /// A destination is reached over the ring.
    pub(super) fn over_ring(&mut self, to: SocketAddr, hop: Resolved, now: Instant) {
        self.0.put(to, By::Ring(Way::new(hop, now)));
    }

    /// A destination is left to the kernel, for longer than it was the last time.
    pub(super) fn left_to_kernel(&mut self, to: SocketAddr, now: Instant) {
        let spell = match self.0.peek(to) {
            Some(By::Kernel(_, last)) => (*last * 2).clamp(KERNEL_FOR_MIN, KERNEL_FOR_MAX),
            _ => KERNEL_FOR_MIN,
        };
        self.0.put(to, By::Kernel(now + spell, spell));
    }

    /// The holder of a destination is being asked.
    pub(super) fn unasked(&mut self, to: SocketAddr, now: Instant) {
        self.0.put(to, By::Kernel(now + UNASKED_FOR, Duration::ZERO));
    }

    /// Of a destination nothing is known any more.
    pub(super) fn forget(&mut self, to: SocketAddr) {
        self.0.forget(to);
    }

    /// Where a destination is: `Some(None)` is the kernel, `None` is not known.
    #[inline]
    pub(super) fn find(&mut self, to: SocketAddr, rendezvous: &Rendezvous, now: Instant) -> Option<Option<MacAddr>> {
        match self.0.find(to)? {
            By::Ring(way) if way.holds(rendezvous, now) => Some(Some(way.hop.mac)),
            By::Kernel(until, _) if now < *until => Some(None),
            _ => None,
        }
    }

    /// Whether the last datagram to that address was not the kernel's.
    pub(crate) fn is_by_ring(&self, to: SocketAddr) -> bool {
        matches!(self.0.peek(to), Some(By::Ring(_)))
    }

    /// Whether it was.
    pub(super) fn is_by_kernel(&self, to: SocketAddr) -> bool {
        matches!(self.0.peek(to), Some(By::Kernel(..)))
    }

    /// The way over the ring to an address, whether it is still believed or not.
    pub(super) fn way_to(&self, to: SocketAddr) -> Option<&Way> {
        match self.0.peek(to)? {
            By::Ring(way) => Some(way),
            By::Kernel(..) => None,
        }
    }

    /// The way of the last datagram, if it went over the ring.
    pub(super) fn last_over_ring(&self) -> Option<(SocketAddr, &Way)> {
        match &self.0.last {
            Some((to, By::Ring(way))) => Some((*to, way)),
            _ => None,
        }
    }

    /// Lets go of peers that are no more, and so of their memory.
    pub(crate) fn forget_dead(&mut self, rendezvous: &Rendezvous) {
        self.0.retain(|by| matches!(by, By::Kernel(..)) || matches!(by, By::Ring(way) if rendezvous.still_valid(&way.hop)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// Who has bound its address a moment ago is found as soon as it publishes it, and who never does is hardly ever asked for.
    #[test]
    fn what_is_the_kernels_is_asked_for_at_once_and_then_ever_less_often() {
        let mut routes = Routes::default();
        let spell = |routes: &Routes, to, now| match routes.0.peek(to) {
            Some(By::Kernel(until, _)) => until.since(now),
            other => panic!("{other:?}"),
        };
        let mut now = Instant::ZERO;
        let mut spells = Vec::new();
        while spells.len() < 10 {
            routes.left_to_kernel(port(7), now);
            spells.push(spell(&routes, port(7), now).as_millis());
            now += spell(&routes, port(7), now);
        }
        assert_eq!(spells, [1, 2, 4, 8, 16, 32, 64, 128, 128, 128]);
        routes.left_to_kernel(port(8), now);
        assert_eq!(spell(&routes, port(8), now), KERNEL_FOR_MIN, "of another destination nothing is known");
        routes.unasked(port(7), now);
        routes.left_to_kernel(port(7), now);
        assert_eq!(spell(&routes, port(7), now), KERNEL_FOR_MIN);
    }

    #[test]
    fn what_was_put_is_found_and_no_more_than_so_many_are() {
        let mut recent = Recent::default();
        for number in 0..MOST as u16 + 9 {
            recent.put(port(number), number);
        }
        assert_eq!(recent.others.len(), MOST);
        let found = [0, 1000, 999].map(|number| recent.find(port(number)).copied());
        assert_eq!(found, [None, Some(1000), Some(999)]);
        assert_eq!(recent.last, Some((port(999), 999)));
        recent.put(port(1000), 7);
        assert_eq!((recent.peek(port(1000)), recent.peek(port(999)), recent.others.len()), (Some(&7), Some(&999), MOST));
        recent.forget(port(1000));
        recent.retain(|number| *number != 999);
        assert_eq!([1000, 999, 998].map(|number| recent.find(port(number)).copied()), [None, None, Some(998)]);
    }
}
