//! A send that waits for room on one plain connection, by its ring's lock alone ([`crate::mux::alone`]).

use core::ffi::c_int;
use std::io::IoSlice;
use std::os::fd::RawFd;

use libc::pollfd;
use ringway_stack::Error;
use ringway_stack::ring::SendFlags;
use ringway_stack::time::Instant;

use super::super::stream::send_flags;
use super::super::vectors;
use super::{Plain, table};
use crate::errno::Errno;
use crate::mux::alone::{self, Awaited, Ended, Look};
use crate::mux::wait::SpinClass;
use crate::process::Process;
use crate::rings::{ProcessRing, RingSet};
use crate::slab::Key;

/// What became of the rest of a send.
pub(in crate::socket) enum Rest {
    /// What the call comes to: bytes in all, or an error where there are none.
    Ended(Result<usize, Errno>),
    /// So many bytes have gone by now, and it is to go on the long way.
    LongWay(usize),
    /// As that, and it has slept: what was changed since (O_NONBLOCK, SO_SNDTIMEO) is for the calls to come.
    Waits(usize),
}

/// Goes on with a blocking send on a plain connection, of which `done` bytes have gone.
#[cold]
#[inline(never)]
pub(in crate::socket) fn send_rest(process: &Process, key: Key, data: &[IoSlice<'_>], done: usize, flags: c_int) -> Rest {
    // (Who has set a timeout is kept waiting for so long for each part: that is the long way's.)
    let Some(plain) = Plain::find(key).filter(|plain| plain.waits_alone(flags) && !plain.has_send_timeout()) else {
        return Rest::LongWay(done);
    };
    let flags = send_flags(flags);
    let mut left = vectors::rest(data, done);
    let mut send = Send { plain, key, left: &mut left, done, flags, ended: None };
    match alone::run(process, SpinClass::Rx, None, true, &mut send) {
        Ended::Found(result) => Rest::Ended(result),
        // (The long way's wait would know nothing of a handler that has run since.)
        Ended::LongWay(Some(begun)) if begun.is_interrupted() => Rest::Ended(send.ended(Errno(libc::EINTR))),
        Ended::LongWay(Some(_)) => Rest::Waits(send.done),
        Ended::LongWay(None) => Rest::LongWay(send.done),
    }
}

/// A send on a plain connection. What makes room wakes the thread that sleeps for it: the peer's acknowledgment, for which the ring is armed since somebody awaits
/// it, or whoever takes that from the ring first.
struct Send<'a, 'b> {
    plain: Plain,
    key: Key,
    /// What has yet to go.
    left: &'a mut [IoSlice<'b>],
    done: usize,
    flags: SendFlags,
    ended: Option<Result<usize, Errno>>,
}

impl Awaited for Send<'_, '_> {
    type Found = Result<usize, Errno>;

    fn begin(&mut self) -> Option<RingSet> {
        self.plain.is_still(self.key).then_some(RingSet::of(self.plain.flow.ring))
    }

    fn look(&mut self, own: &mut ProcessRing, _: u16, now: Instant) -> Option<Look> {
        if !self.plain.is_still(self.key) {
            return None;
        }
        let flow = self.plain.flow;
        own.poll_if_due(now);
        match own.ring.tcp_send(now, flow, self.left, self.flags) {
            Ok(count) => {
                self.done += count;
                IoSlice::advance_slices(&mut self.left, count);
                self.ended = self.left.is_empty().then_some(Ok(self.done));
            }
            Err(Error::WouldBlock) => {}
            Err(Error::BadSocket) => return None,
            Err(error) => self.ended = Some(self.ended(error.into())),
        }
        // (What is held back for want of room in the peer's window is no reason not to sleep: the ring is armed for what makes room.)
        let held = own.ring.is_held(flow).then_some(flow);
        Some(Look { has_more: own.has_more_to_do(), held, flow: Some(flow) })
    }

    fn rest(&mut self) -> bool {
        true
    }

    fn is_ready(&self) -> bool {
        self.ended.is_some()
    }

    fn take(&mut self) -> Self::Found {
        self.ended.take().unwrap_or(Ok(self.done))
    }

    /// (What has gone counts.)
    fn ended(&mut self, by: Errno) -> Self::Found {
        if self.done > 0 { Ok(self.done) } else { Err(by) }
    }

    fn begin_sleep(&mut self, _: u16, waker: RawFd) -> bool {
        self.plain.begin_sleep(self.key, waker)
    }

    fn end_sleep(&mut self, waker: RawFd) {
        table::end_sleep(self.key.index, waker);
    }

    fn kernel(&self) -> &[pollfd] {
        &[]
    }

    fn ask_kernel(&mut self) -> Option<Self::Found> {
        None
    }
}
