//! How destinations of datagrams are reached, remembered: a server answers many clients in turn, and is not to ask for each datagram who has an address, or
//! where it is.
//!
//! A socket remembers both, what leads over one of its flows and what is the kernel's ([`Routes`]). A way to a process of this machine is believed for as
//! long as the rendezvous has that process there; one over an interface, for as long as the kernel's tables are the same. Beside a ring lies what leads
//! over it for sockets that send by the ring's lock alone ([`super::plain`]).

use core::time::Duration;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

use ringway_devices::{Rendezvous, Resolved};
use ringway_host::spin::current_core;
use ringway_stack::Instant;
use ringway_stack::ring::{FlowId, NextHop};

use super::{address, vectors};
use crate::interfaces::{Path, tables_generation};

/// Destinations that are remembered. (A peer's memory is let go of when it is gone: what is bounded here are addresses.)
const MOST: usize = 1024;

/// How long a destination that nobody offloads is left to the kernel before it is asked for again: at first, for who has bound it a moment ago may be about
/// to publish it, and at the most. Each time it is twice as long as the last.
const KERNEL_FOR_MIN: Duration = Duration::from_millis(1);
const KERNEL_FOR_MAX: Duration = Duration::from_millis(128);

/// How long one is left to the kernel whose holder is being asked.
const UNASKED_FOR: Duration = Duration::from_millis(1);

/// How long a way to an address is believed that other sockets share, or may come to share, of which nobody tells: those of programs that don't run this
/// library. (One that does run it tells at once.) On another processor it is not: the kernel may choose by that (SO_INCOMING_CPU, socket(7)).
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
    /// What is remembered of a destination, which is the last one from now on, with its address (not to be copied on the way of each datagram).
    #[inline]
    pub(in crate::socket) fn find(&mut self, to: &SocketAddr) -> Option<(&SocketAddr, &T)> {
        if self.last.as_ref().is_none_or(|(last, _)| last != to) {
            self.recall(*to)?;
        }
        self.last.as_ref().map(|(last, found)| (last, found))
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
    pub(super) fn retain(&mut self, mut holds: impl FnMut(&mut T) -> bool) {
        self.last.take_if(|(_, last)| !holds(last));
        self.others.retain(|_, other| holds(other));
    }
}

/// How a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sending {
    /// By which of the socket's flows.
    pub(crate) flow: FlowId,
    /// From which address, if that flow is of every address.
    pub(crate) source: IpAddr,
    pub(crate) hop: NextHop,
    /// The longest packet, in bytes, beside what the flow's device carries.
    pub(crate) mtu: u16,
}

impl Sending {
    /// Whether a datagram to there is no longer than the route's MTU has it. (What the device carries is the ring's to say.)
    #[inline]
    pub(super) fn carries(&self, data: &[IoSlice<'_>], to: &SocketAddr) -> bool {
        // RFC 768, beside RFC 791's or RFC 8200's fixed header.
        let headers = if to.is_ipv6() { 48 } else { 28 };
        self.mtu == u16::MAX || vectors::total(data) + headers <= usize::from(self.mtu)
    }
}

/// A way over one of a socket's flows to an address.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    sending: Sending,
    /// Who has the address, if a process of this machine does; and if others may share it, until when that is believed, and on which core.
    member: Option<(Resolved, Option<(Instant, usize)>)>,
    /// By which of the kernel's tables it was found, if it leads over an interface.
    tables: u64,
}

impl Way {
    /// To a process of this machine.
    pub(super) fn to_member(flow: FlowId, to: SocketAddr, member: Resolved, now: Instant) -> Self {
        let believed = member.is_shared.then(|| (now + SHARED_FOR, current_core()));
        let sending = Sending { flow, source: address::source_for(to.ip()), hop: NextHop::Mac(member.mac), mtu: u16::MAX };
        Self { sending, member: Some((member, believed)), tables: 0 }
    }

    /// Over an interface.
    pub(super) const fn by_tables(flow: FlowId, path: Path, tables: u64) -> Self {
        Self { sending: Sending { flow, source: path.source, hop: path.hop, mtu: path.mtu }, member: None, tables }
    }

    #[inline]
    pub(super) const fn sending(&self) -> Sending {
        self.sending
    }

    /// Whether it still leads there.
    #[inline]
    pub(super) fn holds(&self, rendezvous: &Rendezvous, now: Instant) -> bool {
        match &self.member {
            Some((member, believed)) => {
                believed.is_none_or(|(until, core)| now < until && core == current_core()) && rendezvous.still_valid(member)
            }
            None => self.tables == tables_generation(),
        }
    }

    /// Whether it leads to somebody who lives, as far as that can be told.
    pub(super) fn is_alive(&self, rendezvous: &Rendezvous) -> bool {
        self.member.as_ref().is_none_or(|(member, _)| rendezvous.still_valid(member))
    }
}

/// How a destination is reached.
#[derive(Debug)]
enum By {
    Flow(Way),
    /// Through the kernel, until then, which was said to be for so long.
    Kernel(Instant, Duration),
}

/// A UDP socket's.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    all: Recent<By>,
    /// By which of the kernel's tables ([`ringway_stack::net::Tables::generation`]).
    generation: u64,
}

impl Routes {
    /// A destination is reached that way.
    pub(super) fn by_flow(&mut self, to: SocketAddr, way: Way) {
        self.all.put(to, By::Flow(way));
    }

    /// A destination is left to the kernel, for longer than it was the last time.
    pub(super) fn left_to_kernel(&mut self, to: SocketAddr, now: Instant) {
        let spell = match self.all.peek(to) {
            Some(By::Kernel(_, last)) => (*last * 2).clamp(KERNEL_FOR_MIN, KERNEL_FOR_MAX),
            _ => KERNEL_FOR_MIN,
        };
        self.all.put(to, By::Kernel(now + spell, spell));
    }

    /// The holder of a destination is being asked.
    pub(super) fn unasked(&mut self, to: SocketAddr, now: Instant) {
        self.all.put(to, By::Kernel(now + UNASKED_FOR, Duration::ZERO));
    }

    /// Of a destination nothing is known any more.
    pub(super) fn forget(&mut self, to: SocketAddr) {
        self.all.forget(to);
    }

    /// The kernel's tables are those: what was found by others is not believed any more.
    #[inline]
    pub(super) fn follow(&mut self, generation: u64) {
        if core::mem::replace(&mut self.generation, generation) != generation {
            self.ask_tables_again();
        }
    }

    /// What is known by the kernel's tables alone, and what was left to the kernel, is asked for again.
    #[cold]
    pub(crate) fn ask_tables_again(&mut self) {
        self.all.retain(|by| match by {
            By::Flow(way) => way.member.is_some(),
            By::Kernel(until, _) => {
                *until = Instant::ZERO;
                true
            }
        });
    }

    /// How a destination is reached: `Some(None)` is the kernel, `None` is not known.
    #[inline]
    pub(super) fn find(&mut self, to: &SocketAddr, rendezvous: &Rendezvous, now: Instant) -> Option<Option<(&SocketAddr, &Sending)>> {
        let (to, by) = self.all.find(to)?;
        match by {
            By::Flow(way) if way.holds(rendezvous, now) => Some(Some((to, &way.sending))),
            By::Kernel(until, _) if now < *until => Some(None),
            _ => None,
        }
    }

    /// Whether the last datagram to that address was not the kernel's.
    pub(crate) fn is_by_ring(&self, to: SocketAddr) -> bool {
        matches!(self.all.peek(to), Some(By::Flow(_)))
    }

    /// Whether it was.
    pub(super) fn is_by_kernel(&self, to: SocketAddr) -> bool {
        matches!(self.all.peek(to), Some(By::Kernel(..)))
    }

    /// The flow by which it goes to an address. `None`: by the kernel, or it is not known.
    pub(super) fn flow_to(&self, to: SocketAddr) -> Option<FlowId> {
        match self.all.peek(to)? {
            By::Flow(way) => Some(way.sending.flow),
            By::Kernel(..) => None,
        }
    }

    /// How it goes by a flow to an address, whether that is still believed or not.
    pub(super) fn sending_by(&self, flow: FlowId, to: SocketAddr) -> Option<Sending> {
        match self.all.peek(to)? {
            By::Flow(way) => Some(way.sending).filter(|sending| sending.flow == flow),
            By::Kernel(..) => None,
        }
    }

    /// The way of the last datagram, if it went by that flow.
    pub(super) fn last_by(&self, flow: FlowId) -> Option<(SocketAddr, &Way)> {
        match &self.all.last {
            Some((to, By::Flow(way))) if way.sending.flow == flow => Some((*to, way)),
            _ => None,
        }
    }

    /// Lets go of peers that are no more, and so of their memory.
    pub(crate) fn forget_dead(&mut self, rendezvous: &Rendezvous) {
        self.all.retain(|by| matches!(by, By::Kernel(..)) || matches!(by, By::Flow(way) if way.is_alive(rendezvous)));
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
        let spell = |routes: &Routes, to, now| match routes.all.peek(to) {
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

    /// A way over an interface ends with the tables by which it was found, and what was left to the kernel is asked for again.
    #[test]
    fn other_tables_have_everything_asked_for_that_was_known_by_them() {
        let mut routes = Routes::default();
        let (flow, source) = (FlowId { ring: 1, index: 0, generation: 0 }, IpAddr::from([10, 0, 0, 1]));
        let hop = NextHop::Neighbour(IpAddr::from([10, 0, 0, 2]));
        routes.follow(5);
        routes.by_flow(port(7), Way::by_tables(flow, Path { ring: 1, source, hop, mtu: 1400 }, 5));
        routes.left_to_kernel(port(8), Instant::ZERO);
        routes.follow(5);
        assert_eq!(routes.sending_by(flow, port(7)), Some(Sending { flow, source, hop, mtu: 1400 }));
        assert!(routes.is_by_ring(port(7)) && routes.is_by_kernel(port(8)));
        routes.follow(6);
        assert!(!routes.is_by_ring(port(7)) && routes.sending_by(flow, port(7)).is_none());
        assert!(matches!(routes.all.peek(port(8)), Some(By::Kernel(Instant::ZERO, KERNEL_FOR_MIN))), "and for how long is not forgotten");
    }

    #[test]
    fn what_was_put_is_found_and_no_more_than_so_many_are() {
        let mut recent = Recent::default();
        for number in 0..MOST as u16 + 9 {
            recent.put(port(number), number);
        }
        assert_eq!(recent.others.len(), MOST);
        let found = [0, 1000, 999].map(|number| recent.find(&port(number)).map(|(_, found)| *found));
        assert_eq!(found, [None, Some(1000), Some(999)]);
        assert_eq!(recent.last, Some((port(999), 999)));
        recent.put(port(1000), 7);
        assert_eq!((recent.peek(port(1000)), recent.peek(port(999)), recent.others.len()), (Some(&7), Some(&999), MOST));
        recent.forget(port(1000));
        recent.retain(|number| *number != 999);
        assert_eq!([1000, 999, 998].map(|number| recent.find(&port(number)).map(|(_, found)| *found)), [None, None, Some(998)]);
    }
}
