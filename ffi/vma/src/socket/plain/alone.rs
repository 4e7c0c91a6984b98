//! A receive that waits for one plain socket, by its ring's lock alone ([`crate::mux::alone`]).

use core::ffi::c_int;
use std::io::IoSliceMut;
use std::os::fd::RawFd;

use libc::pollfd;
use ringway_stack::Error;
use ringway_stack::ring::RecvFlags;
use ringway_stack::time::Instant;

use super::datagrams::Taken;
use super::{Came, Plain, RECEIVE_FLAGS, table};
use crate::errno::Errno;
use crate::mux::alone::{self, Awaited, Ended, Look};
use crate::mux::wait::SpinClass;
use crate::process::Process;
use crate::rings::{ProcessRing, RingSet};
use crate::slab::Key;
use crate::socket::datagram::ask_kernel;

/// Receives on a plain socket that had nothing, and waits. `None`: the call is to go the long way; nothing was taken.
#[cold]
#[inline(never)]
pub(super) fn receive(
    process: &Process,
    plain: Plain,
    (fd, key): (c_int, Key),
    into: &mut [IoSliceMut<'_>],
    (flags, kernel): (c_int, &dyn Fn(c_int) -> isize),
) -> Option<Came> {
    if flags & !RECEIVE_FLAGS != 0 || !plain.waits_alone(flags) {
        return None;
    }
    let timeout = plain.receive_timeout();
    let half = [pollfd { fd, events: libc::POLLIN, revents: 0 }];
    let mut receive = Receive { plain, key, into, half, kernel, is_held: false, came: None };
    match alone::run(process, SpinClass::Rx, timeout, timeout.is_none(), &mut receive) {
        Ended::Found(came) => Some(came),
        Ended::LongWay(begun) => begun.map(|begun| Came::Waits(begun, timeout)),
    }
}

/// A receive on a plain socket.
struct Receive<'a, 'b> {
    plain: Plain,
    key: Key,
    into: &'a mut [IoSliceMut<'b>],
    /// The kernel's, of a socket of datagrams.
    half: [pollfd; 1],
    kernel: &'a dyn Fn(c_int) -> isize,
    /// Something of the flow's is held back.
    is_held: bool,
    came: Option<Came>,
}

impl Awaited for Receive<'_, '_> {
    type Found = Came;

    fn begin(&mut self) -> Option<RingSet> {
        self.plain.is_still(self.key).then_some(RingSet::of(self.plain.flow.ring))
    }

    fn look(&mut self, own: &mut ProcessRing, _: u16, now: Instant) -> Option<Look> {
        if !self.plain.is_still(self.key) {
            return None;
        }
        let flow = self.plain.flow;
        if self.plain.is_of_datagrams() {
            own.poll_if_due(now);
            match own.ring.udp_recv(flow, self.into, RecvFlags::empty()) {
                Err(Error::WouldBlock) => {}
                Err(Error::BadSocket) => return None,
                result => self.came = Some(Came::Datagram(own.datagrams.taken(flow, result)?)),
            }
        } else {
            match own.receive(now, flow, self.into, RecvFlags::empty(), false) {
                Err(Error::WouldBlock) => {}
                Err(Error::BadSocket) => return None,
                result => self.came = Some(Came::Bytes(result)),
            }
        }
        self.is_held = own.ring.is_held(flow);
        Some(Look { has_more: own.has_more_to_do(), held: self.is_held.then_some(flow), flow: Some(flow) })
    }

    fn rest(&mut self) -> bool {
        !self.is_held
    }

    fn is_ready(&self) -> bool {
        self.came.is_some()
    }

    fn take(&mut self) -> Came {
        self.came.take().unwrap_or(Came::Nothing(Errno(libc::EAGAIN)))
    }

    fn ended(&mut self, by: Errno) -> Came {
        let last = if by == Errno(libc::EAGAIN) && self.plain.is_of_datagrams() { self.ask_kernel() } else { None };
        last.unwrap_or(Came::Nothing(by))
    }

    fn begin_sleep(&mut self, _: u16, waker: RawFd) -> bool {
        self.plain.begin_sleep(self.key, waker)
    }

    fn end_sleep(&mut self, waker: RawFd) {
        table::end_sleep(self.key.index, waker);
    }

    fn kernel(&self) -> &[pollfd] {
        if self.plain.is_of_datagrams() { &self.half } else { &[] }
    }

    fn ask_kernel(&mut self) -> Option<Came> {
        ask_kernel(self.half[0].fd, self.kernel).map(|received| Came::Datagram(received.map(Taken::Kernel)))
    }
}
