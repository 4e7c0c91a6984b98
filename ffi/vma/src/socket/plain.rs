//! Data of plain connections and UDP sockets, by their rings' locks alone: what another thread does on another ring is in nobody's way.
//!
//! What happens to a flow is told to whoever watches its socket by the process's lock, after the ring's was released; where nobody watches, there is
//! nothing to tell, and that lock is not taken. What cannot be done here at once (a call that has to wait, flags that say more) goes the long way.

mod alone;
mod datagrams;
mod ready;
mod sending;

use core::ffi::c_int;
use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};

use ringway_stack::Error;
use ringway_stack::ring::{Event, FlowId, Readiness, RecvFlags};
use ringway_stack::socket::Direction;
use ringway_stack::time::Instant;

pub(crate) use self::datagrams::{Beside, Taken, are_plain};
pub(crate) use self::ready::Asked;
pub(super) use self::sending::{Rest, send_rest};
use super::address::Address;
use super::table::{self, Audience, Lead, Plain, Traits};
use super::{Ancillary, Family, Kind, Socket};
use crate::errno::Errno;
use crate::extra::resume::Resume;
use crate::lock::Guard;
use crate::mux;
use crate::process::{Offload, Process};
use crate::rings::{ProcessRing, RingSet};
use crate::slab::Key;

/// Flags that change nothing here: a call that would wait goes the long way anyhow, and so does one that fails.
const SEND_FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_MORE;
const RECEIVE_FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CMSG_CLOEXEC;

/// The ring of a plain socket, held.
struct Entered<'a> {
    own: Guard<'a, ProcessRing>,
    flow: FlowId,
    plain: Plain,
}

impl<'a> Entered<'a> {
    /// `None`: it is not plain.
    #[inline(always)]
    fn new(process: &'a Process, key: Key) -> Option<Self> {
        let lead = Lead::find(key)?;
        let own = process.ring(lead.ring())?.lock();
        let plain = lead.settle()?;
        Some(Self { own, flow: plain.flow, plain })
    }

    /// A call receives, or sends, on a connection or UDP socket: it may be the one after which that goes over to the caller's ring.
    #[inline(always)]
    fn used(self, process: &'a Process, key: Key, direction: Direction) -> Option<Self> {
        if self.own.callers.expects_caller() { Some(self) } else { self.used_by_another(process, key, direction) }
    }

    #[cold]
    #[inline(never)]
    fn used_by_another(mut self, process: &'a Process, key: Key, direction: Direction) -> Option<Self> {
        if !self.own.note_caller(self.flow, direction) {
            return Some(self);
        }
        let flow = self.flow;
        drop(self);
        process.lock().send_over(key, flow, direction);
        Self::new(process, key)
    }

    /// Sends on a connection.
    #[inline(always)]
    fn send(self, process: &'a Process, now: Instant, key: Key, data: &[IoSlice<'_>], flags: c_int) -> Option<Sent> {
        let mut entered = self.used(process, key, Direction::Tx)?;
        let (flow, plain) = (entered.flow, entered.plain);
        let (result, is_held) = entered.own.send(now, flow, data, flags, true, process.params.rx_poll_on_tx_tcp);
        entered.leave_having_sent(process, now, is_held);
        match result {
            Err(Error::BadSocket) => None,
            Err(Error::WouldBlock) if !plain.is_not_to_wait(flags) => Some(Sent::Part(flow, 0)),
            Ok(done) if done < super::vectors::total(data) && !plain.is_not_to_wait(flags) => Some(Sent::Part(flow, done)),
            result => Some(Sent::Done(result)),
        }
    }

    /// Receives on a connection.
    #[inline(always)]
    fn receive(self, process: &'a Process, now: Instant, key: Key, into: &mut [IoSliceMut<'_>]) -> Option<Result<usize, Error>> {
        let mut entered = self.used(process, key, Direction::Rx)?;
        let result = entered.own.receive(now, entered.flow, into, RecvFlags::empty(), false);
        entered.leave(process, now);
        Some(result)
    }

    /// Lets go of the ring. Who is to be told of what happened is told.
    #[inline(always)]
    fn leave(self, process: &Process, now: Instant) {
        let is_held = self.own.ring.is_held(self.flow);
        self.leave_having_sent(process, now, is_held);
    }

    /// The same, where it is known whether something of the flow is held.
    #[inline(always)]
    fn leave_having_sent(mut self, process: &Process, now: Instant, is_held: bool) {
        let flow = self.flow;
        let has_more = self.own.has_more_to_do();
        self.own.release();
        if has_more || is_held {
            see_to_the_rest(process, flow.ring, now, is_held.then_some(flow));
        }
    }
}

/// Nothing is plain any more, as far as is known: no socket, and no epoll instance. For who has the process's lock, and changes what a call has to see
/// to. Async-signal-safe.
pub(crate) fn unsay_all() {
    table::unsay_all();
    mux::epoll::unsay_all();
}

/// In the child of a fork: nothing is plain any more, and nobody sleeps. Async-signal-safe.
pub(crate) fn unsay_all_in_child() {
    table::forget_sleepers();
    mux::epoll::forget_sleepers();
    unsay_all();
}

/// A call has left on a ring what only the process's lock can see to; `held`: a flow of which something is held back.
pub(crate) fn see_to_the_rest(process: &Process, ring: u16, now: Instant, held: Option<FlowId>) {
    let mut offload = process.lock();
    offload.rings.touch(ring);
    offload.dispatch();
    offload.attend(now);
    if let Some(flow) = held {
        offload.watch_held(now, flow);
    }
}

impl ProcessRing {
    /// A call that had this ring's lock alone is over. Whether there is something that only the process's lock can see to; events that nobody waits for
    /// are none.
    #[inline]
    pub(crate) fn has_more_to_do(&mut self) -> bool {
        self.note_call();
        // (A thread that spins on this ring finds by them that it is to look.)
        if self.watch.has_spinners() {
            return self.has_events() || self.wants_sooner() || self.ring.has_neighbour_questions();
        }
        while let Some(event) = self.take_event() {
            if !self.is_told(event) {
                self.untold = Some(event);
                return true;
            }
        }
        // (What a ring on an interface asks about neighbours is passed on by who has the process's lock.)
        self.watch.is_relied_on() || self.wants_sooner() || self.awaits_acknowledgments() || self.ring.has_neighbour_questions()
    }

    /// Tells whom it concerns of an event, or finds that it concerns nobody. `false`: that is for who has the process's lock.
    #[inline]
    fn is_told(&self, event: Event) -> bool {
        // (Urgent data take a connection to the kernel, whoever watches it.)
        if event.edges.contains(Readiness::PRI) {
            return false;
        }
        let Some(above) = self.above(event.flow) else { return false };
        match table::audience(above.socket()) {
            Audience::Nobody => true,
            Audience::Some | Audience::One if above.knows(event.edges) => true,
            Audience::Some | Audience::Any => false,
            Audience::One => above.only().is_some_and(|only| mux::epoll::plain::tell(event, above, only)),
        }
    }
}

/// Whether a socket is known to be of datagrams.
pub(crate) fn is_of_datagrams(key: Key) -> bool {
    Plain::find(key).is_some_and(Plain::is_of_datagrams)
}

/// What a plain socket's send came to.
pub(crate) enum Sent {
    /// All of it, or as much as it may take without waiting; or an error.
    Done(Result<usize, Error>),
    /// A part, or nothing yet; the call waits, and goes on with the rest.
    Part(FlowId, usize),
}

/// Sends on a plain socket; `to` is where a datagram is to go. `None`: it is to go the long way; nothing was done.
#[inline]
pub(crate) fn send(
    process: &Process,
    now: Instant,
    key: Key,
    data: &[IoSlice<'_>],
    (to, flags): (impl FnOnce(Family) -> Option<Address>, c_int),
) -> Option<Sent> {
    if flags & !SEND_FLAGS != 0 {
        return None;
    }
    let entered = Entered::new(process, key)?;
    if entered.plain.is_of_datagrams() {
        return datagrams::send(process, now, key, entered, data, (to, flags)).map(Sent::Done);
    }
    entered.send(process, now, key, data, flags)
}

/// As [`send`], for the short way of a call, which names no destination.
#[inline(always)]
pub(crate) fn send_at_once(process: &Process, now: Instant, key: Key, data: &[IoSlice<'_>], flags: c_int) -> Option<Sent> {
    let entered = Entered::new(process, key)?;
    if entered.plain.is_of_datagrams() {
        return datagrams::send_at_once(process, now, key, entered, data, flags).map(Sent::Done);
    }
    entered.send(process, now, key, data, flags)
}

/// What a plain socket's receive came to.
pub(crate) enum Came {
    /// Bytes of a connection.
    Bytes(Result<usize, Error>),
    /// A datagram.
    Datagram(Result<Taken, Errno>),
    /// Nothing: the wait ended with this.
    Nothing(Errno),
    /// Nothing: the call, which began so, waits with this timeout, and is to go on the long way.
    Waits(Resume, Option<Duration>),
}

/// As [`receive`], for the short way of a call: what has come, and how much that is.
#[inline(always)]
pub(crate) fn receive_at_once(
    process: &Process,
    now: Instant,
    (fd, key): (c_int, Key),
    into: &mut [IoSliceMut<'_>],
    (flags, kernel): (c_int, impl Fn(c_int) -> isize),
) -> Option<Result<usize, Errno>> {
    let entered = Entered::new(process, key)?;
    let plain = entered.plain;
    if plain.is_of_datagrams() {
        return datagrams::receive_at_once(process, now, (fd, key), entered, into, (flags, &kernel));
    }
    match entered.receive(process, now, key, into)? {
        Err(Error::BadSocket) => None,
        Err(Error::WouldBlock) if !plain.has_nothing(flags) => None,
        result => Some(result.map_err(Errno::from)),
    }
}

/// Receives on a plain socket, with `kernel` to receive from the kernel with extra flags. `None`: it is to go the long way; nothing was taken.
#[inline]
pub(crate) fn receive(
    process: &Process,
    now: Instant,
    (fd, key): (c_int, Key),
    into: &mut [IoSliceMut<'_>],
    (flags, kernel): (c_int, &dyn Fn(c_int) -> isize),
) -> Option<Came> {
    let entered = Entered::new(process, key)?;
    let plain = entered.plain;
    if plain.is_of_datagrams() {
        let came = datagrams::receive(process, now, (fd, key), entered, into, (flags, kernel)).map(Came::Datagram);
        return came.or_else(|| alone::receive(process, plain, (fd, key), into, (flags, kernel)));
    }
    if flags & !RECEIVE_FLAGS != 0 || into.first().is_none_or(|first| first.is_empty()) {
        return None;
    }
    match entered.receive(process, now, key, into)? {
        Err(Error::BadSocket) => None,
        Err(Error::WouldBlock) if !plain.has_nothing(flags) => alone::receive(process, plain, (fd, key), into, (flags, kernel)),
        result => Some(Came::Bytes(result)),
    }
}

impl Offload {
    /// A call has gone the long way with a connection. If it is plain, the next one need not.
    #[inline(always)]
    pub(super) fn say_if_plain(&mut self, key: Key, flow: FlowId) {
        if self.rings.are_locked() {
            self.say_what_is_plain(key, flow);
        }
    }

    #[inline(never)]
    fn say_what_is_plain(&mut self, key: Key, flow: FlowId) {
        if let Some(socket) = self.sockets.find(key)
            && self.is_plain(socket, flow)
        {
            self.say_that_it_is_plain(key, flow);
        }
    }

    /// A call has waited the long way for some sockets. Those that are plain are said to be, so that the next one need not.
    pub(crate) fn say_which_are_plain(&mut self, keys: impl Iterator<Item = Key>) {
        if !self.rings.are_locked() {
            return;
        }
        for key in keys.filter(|&key| Plain::find(key).is_none()) {
            match self.sockets.find(key).map(|socket| &socket.kind) {
                Some(&Kind::Stream(flow)) => self.say_if_plain(key, flow),
                Some(&Kind::Datagram(Some(flow))) => {
                    // (That the kernel's half has something may have been found when it was plain before.)
                    if let Some(left) = self.rings.at_mut(flow.ring).datagrams.take_kernel_poll(flow)
                        && let Some(socket) = self.sockets.find_mut(key)
                    {
                        socket.kernel_poll.go_on_from(left);
                    }
                    self.say_if_datagrams_are_plain(key, flow);
                }
                _ => {}
            }
        }
    }

    /// It is, as it stands now.
    fn say_that_it_is_plain(&mut self, key: Key, flow: FlowId) {
        // (What is for it may come to another ring, which whoever waits for it has to look at as well.)
        if self.rings.with_those_beside(RingSet::of(flow.ring)).only().is_none() {
            return;
        }
        let Some(socket) = self.sockets.find(key) else { return };
        let only = socket.watch.only();
        let traits = Traits {
            is_watched: socket.watch.is_watched() || socket.watch.is_slept_for(),
            is_watched_by_one: only.is_some(),
            is_of_datagrams: matches!(socket.kind, Kind::Datagram(_)),
            is_nonblocking: socket.nonblocking,
            receive_timeout: socket.receive_timeout,
            has_send_timeout: socket.send_timeout.is_some(),
            empty_is_all: !self.callbacks.are_used(),
        };
        if table::publish(key, flow, traits)
            && let Some(above) = self.rings.at_mut(flow.ring).above_mut(flow)
        {
            above.is_plain_for(only);
        }
    }

    pub(crate) fn is_plain(&self, socket: &Socket, flow: FlowId) -> bool {
        socket.kind == Kind::Stream(flow)
            && socket.receive_low_water <= 1
            && socket.rare.is_none()
            && socket.ancillary == Ancillary::default()
            && !socket.is_shared
            && !self.is_heard()
            && !self.rings_are_used()
    }
}
