//! A receive that waits for one plain socket, and sleeps on its ring by the ring's lock alone: threads that sleep and wake all the time would else meet
//! at the process's lock, each of them several times for each message.
//!
//! It does so where little is gained by spinning (more threads than cores, most often), and nobody else waits on the ring. Who wakes it:
//! - a peer, through the ring's descriptor: the ring is armed;
//! - whoever polls the ring meanwhile, and finds an event of the flow's ([`ProcessRing::take_event`]), or lets the ring be disarmed and cannot arm it
//!   again;
//! - whoever may change the socket, and so unsays that it is plain ([`Plain::begin_sleep`]);
//! - a signal, or a request to cancel the thread, as in any wait.

use core::ffi::c_int;
use core::time::Duration;
use std::io::IoSliceMut;
use std::os::fd::RawFd;

use ringway_host::sleep::ppoll;
use ringway_stack::Error;
use ringway_stack::ring::RecvFlags;
use ringway_stack::time::Instant;

use super::datagrams::Taken;
use super::{Came, Entered, Plain, RECEIVE_FLAGS};
use crate::errno;
use crate::mux::thread::{self, Marks, Thread};
use crate::mux::{Lone, wait};
use crate::process::Process;
use crate::real;
use crate::slab::Key;
use crate::socket::datagram::ask_kernel;
use crate::socket::table;

/// Times in a row that there is something to be seen to before the sleep; then others are busy on the ring.
const TRIES: u32 = 4;

/// A call that waits.
struct Waiting {
    began: Instant,
    spins_until: Instant,
    marks: Marks,
    waker: RawFd,
    tries: u32,
    has_slept: bool,
    /// A signal has ended it, as far as the kernel knows.
    is_over: bool,
}

/// What ended a sleep.
enum Slept {
    /// Something, perhaps.
    Look,
    /// The kernel's half of the socket is readable.
    Kernel,
    /// The wait is to go on the long way.
    LongWay,
}

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
    thread::with(|thread| {
        let mut waiting = Waiting::new(thread, process)?;
        let saved = errno::current();
        let came = waiting.receive(thread, process, plain, (fd, key), into, kernel);
        errno::set(saved);
        came.or_else(|| waiting.has_slept.then_some(Came::Waits))
    })
}

impl Waiting {
    /// `None`: this thread does not sleep soon, or cannot.
    fn new(thread: &Thread, process: &Process) -> Option<Self> {
        let spin = wait::short_spin(thread, process)?;
        let (began, marks) = (process.now(), thread.marks());
        if !real::handlers_are_seen() || thread.is_waiting() || !thread.can_be_cancelled() {
            return None;
        }
        Some(Self { began, spins_until: began + spin, marks, waker: thread::waker()?, tries: 0, has_slept: false, is_over: false })
    }

    /// `None`: the wait is to go on the long way.
    fn receive(
        &mut self,
        thread: &Thread,
        process: &Process,
        plain: Plain,
        (fd, key): (c_int, Key),
        into: &mut [IoSliceMut<'_>],
        kernel: &dyn Fn(c_int) -> isize,
    ) -> Option<Came> {
        let is_of_datagrams = plain.is_of_datagrams();
        loop {
            let mut entered = Entered::new(process, key).filter(|entered| entered.plain == plain)?;
            let now = process.now();
            let is_interrupted = self.is_over || thread.interrupted(self.marks, true);
            if is_interrupted && thread.is_cancelled() {
                return Some(Came::Interrupted);
            }
            if let Some(came) = take(&mut entered, now, into, is_of_datagrams) {
                entered.leave(process, now);
                wait::note_slept(thread, process, self.began, now);
                return came;
            }
            if is_interrupted {
                entered.leave(process, now);
                return Some(Came::Interrupted);
            }
            if now < self.spins_until {
                entered.leave(process, now);
                continue;
            }
            match self.sleep(thread, process, entered, key, is_of_datagrams.then_some(fd), now) {
                Slept::Look => {}
                Slept::Kernel => {
                    if let Some(received) = ask_kernel(fd, kernel) {
                        return Some(Came::Datagram(received.map(Taken::Kernel)));
                    }
                }
                Slept::LongWay => return None,
            }
        }
    }

    /// The flow has nothing at `now`: sleeps until something wakes the thread. `kernel`: the descriptor of the socket's other half.
    fn sleep(
        &mut self,
        thread: &Thread,
        process: &Process,
        mut entered: Entered<'_>,
        key: Key,
        kernel: Option<c_int>,
        now: Instant,
    ) -> Slept {
        let (flow, plain, waker) = (entered.flow, entered.plain, self.waker);
        if entered.own.ring.is_held(flow) {
            return Slept::LongWay;
        }
        self.tries += 1;
        if entered.own.has_more_to_do() || !entered.own.lie_down_alone(Lone { flow, waker }) {
            entered.leave(process, now);
            return if self.tries < TRIES { Slept::Look } else { Slept::LongWay };
        }
        if !plain.begin_sleep(key, waker) {
            entered.own.rise_alone();
            entered.leave(process, now);
            return Slept::LongWay;
        }
        thread.lies_down_alone(flow.ring, key.index);
        let timeout = entered.own.ring.sleep_deadline().map(|deadline| deadline.since(now));
        let ring = entered.own.wait_fd();
        drop(entered);
        (self.tries, self.has_slept) = (0, true);
        let slept = thread.sleeping(waker, self.marks, || poll(waker, ring, kernel, timeout));
        if let Some(mut own) = process.ring(flow.ring).map(crate::lock::Lock::lock)
            // (A handler may have waited meanwhile, and taken this wait for one that was left.)
            && thread.lone.take().is_some()
        {
            own.rise_alone();
            table::end_sleep(key.index);
        }
        let is_signalled = thread.signalled(self.marks);
        // Without a handler of the program's that the library saw, the kernel's word counts.
        self.is_over |= !is_signalled && matches!(&slept, Some(Err(error)) if error.raw_os_error() == Some(libc::EINTR));
        if is_signalled && !thread.interrupted(self.marks, true) {
            // (One with SA_RESTART ends no wait.)
            self.marks = thread.marks();
        }
        let Some(Ok((is_woken, is_readable))) = slept else { return Slept::Look };
        if is_woken {
            thread::clear_waker();
        }
        if is_readable && !is_signalled { Slept::Kernel } else { Slept::Look }
    }
}

/// What the flow has. `None`: nothing; `Some(None)`: the call is to go the long way.
#[expect(clippy::option_option, reason = "the outer one says whether to go on waiting")]
fn take(entered: &mut Entered<'_>, now: Instant, into: &mut [IoSliceMut<'_>], is_of_datagrams: bool) -> Option<Option<Came>> {
    let flow = entered.flow;
    let own = &mut *entered.own;
    if !is_of_datagrams {
        return match own.receive(now, flow, into, RecvFlags::empty(), false) {
            Err(Error::WouldBlock) => None,
            Err(Error::BadSocket) => Some(None),
            result => Some(Some(Came::Bytes(result))),
        };
    }
    own.poll_if_due(now);
    let result = own.ring.udp_recv(flow, into, RecvFlags::empty());
    match result {
        Err(Error::WouldBlock) => None,
        Err(Error::BadSocket) => Some(None),
        result => {
            let taken = own.datagrams.taken(flow, result);
            Some(taken.map(Came::Datagram))
        }
    }
}

/// Sleeps on the thread's eventfd, the ring's descriptor, and the kernel's half of the socket. Whether the first, and the last, are readable.
fn poll(waker: RawFd, ring: RawFd, kernel: Option<c_int>, timeout: Option<Duration>) -> std::io::Result<(bool, bool)> {
    let readable = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // (A number below zero is looked at by nobody.)
    let mut fds = [readable(waker), readable(ring), readable(kernel.unwrap_or(-1))];
    ppoll(&mut fds, timeout, None)?;
    Ok((fds[0].revents != 0, fds[2].revents != 0))
}
