//! `register_recv_callback`: the program looks at what arrives before its reader does.
//!
//! The ring keeps what arrives on such a socket apart ([`Ring::set_recv_filter`]) until a thread of the program's is inside one of its own calls that
//! receive or wait for readiness. That call stops ([`super::resume`]), its thread calls the callback for one packet after the other, with no
//! lock held, and tells the ring what was decided. One thread at a time does so for one socket; a thread that never comes back from a
//! callback (by longjmp, a C++ exception, its end) has decided to drop the packet.
//!
//! What the kernel receives on a socket, and sockets that it alone carries, have no callbacks.
//!
//! [`Ring::set_recv_filter`]: ringway_stack::ring::Ring::set_recv_filter

mod call;

use core::ffi::{c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::VecDeque;

use libc::{iovec, size_t};
use ringway_devices::RxBuf;
use ringway_stack::device::LendBuffer;
use ringway_stack::device::Protocol;
use ringway_stack::ring::{Decision, FlowId, Lent, Shown};
use ringway_stack::time::Instant;

use super::abi::Info;
use crate::fdtable::{self, Entry};
use crate::mux::note_activity;
use crate::process::{self, Offload, Process, process_or_init};
use crate::slab::Key;
use crate::socket::{Socket, plain};
use crate::{errno, mux};

pub(super) use call::run;

/// `vma_recv_callback_t`. (What it returns is whatever the program returned.)
pub(super) type Function = unsafe extern "C-unwind" fn(c_int, size_t, *mut iovec, *mut Info, *mut c_void) -> c_int;

/// Something was held of some socket's, ever: who tells of readiness has to look for that.
static ANY_HELD: AtomicBool = AtomicBool::new(false);

/// Whether anything was ever held.
#[inline]
pub(crate) fn was_any_held() -> bool {
    ANY_HELD.load(Ordering::Relaxed)
}

/// `vma_recv_callback_retval_t`.
const DROP: c_int = 0;
const HOLD: c_int = 2;

/// A callback that calls what runs callbacks: so deep, and no deeper.
const DEPTH_MAX: usize = 8;

/// A socket's callback.
#[derive(Clone, Debug)]
pub(crate) struct Callback {
    /// `None`: it was taken away while it ran.
    function: Option<Function>,
    /// The program's, which alone knows what it points to.
    context: usize,
    /// The number under which it was registered.
    fd: c_int,
    /// It is in [`Callbacks::due`].
    listed: bool,
}

/// What the process's callbacks are doing.
#[derive(Debug, Default)]
pub(crate) struct Callbacks {
    /// A socket has, or had, a callback.
    used: bool,
    /// Sockets with packets that nobody has decided about, and that no thread's callback is at.
    due: VecDeque<Key>,
    running: Vec<Running>,
    /// Some of these are left.
    any_left: bool,
    serial: u64,
}

/// What a callback is called for next.
struct Next {
    key: Key,
    ring: FlowId,
    function: Function,
    context: usize,
    /// The number that the callback is told.
    fd: c_int,
    /// The program asked for times of reception.
    wants_time: bool,
    /// It asked for the card's times (SO_TIMESTAMPING).
    wants_card_time: bool,
    shown: Shown,
}

/// A callback that runs.
#[derive(Debug)]
struct Running {
    serial: u64,
    /// Its thread ([`me`]).
    thread: usize,
    socket: Key,
    ring: FlowId,
    len: usize,
    packet: usize,
    /// Its thread will not come back.
    left: bool,
}

impl Callback {
    /// As the child of a fork has it.
    pub(crate) fn for_child(&self) -> Option<Self> {
        self.function.map(|_| Self { listed: false, ..self.clone() })
    }
}

impl Callbacks {
    /// Whether there are, or were, any.
    #[inline]
    pub(crate) fn are_used(&self) -> bool {
        self.used
    }

    /// There is one.
    fn begin(&mut self) {
        if !self.used {
            self.used = true;
            // (Receives that find nothing have something else to do from now on.)
            plain::unsay_all();
        }
    }

    /// Whether the calling thread is to run some. One look, where there are none.
    #[inline]
    pub(crate) fn are_due(&self) -> bool {
        self.used && self.are_due_here()
    }

    #[cold]
    fn are_due_here(&self) -> bool {
        let mine = me();
        (!self.due.is_empty() || self.any_left)
            && self.running.iter().filter(|running| running.thread == mine && !running.left).count() < DEPTH_MAX
    }

    /// Whether the calling thread is in the callback of that socket: if so, waiting for its packets would be for ever.
    pub(crate) fn is_mine(&self, socket: Key) -> bool {
        !self.running.is_empty() && self.running.iter().any(|running| running.socket == socket && running.thread == me() && !running.left)
    }

    fn runs(&self, socket: Key) -> bool {
        self.running.iter().any(|running| running.socket == socket)
    }
}

/// The calling thread.
fn me() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}

/// See the header.
pub(super) extern "C" fn register_recv_callback(fd: c_int, function: Option<Function>, context: *mut c_void) -> c_int {
    let Entry::Socket(key) = fdtable::lookup(fd) else { return errno::fail(libc::EINVAL) };
    let Some(process) = process_or_init().filter(|process| process.is_owner()) else { return errno::fail(libc::EINVAL) };
    crate::boundary!(-1, {
        let mut guard = process.lock();
        let offload = &mut *guard;
        let is_running = offload.callbacks.runs(key);
        let Some(socket) = offload.sockets.find_mut(key).filter(|socket| socket.source() != mux::Source::Kernel) else {
            return errno::fail(libc::EINVAL);
        };
        match function {
            Some(function) => {
                let listed = socket.rare().callback.as_ref().is_some_and(|callback| callback.listed);
                socket.rare().callback = Some(Callback { function: Some(function), context: context.expose_provenance(), fd, listed });
                offload.callbacks.begin();
                offload.end_former(key);
                offload.begin_lending();
                offload.begin_filter(key);
            }
            // What it is about to decide is decided first.
            None if is_running => {
                if let Some(callback) = &mut socket.rare().callback {
                    callback.function = None;
                }
            }
            None => offload.end_filter(key),
        }
        0
    })
}

impl Offload {
    /// A socket of the ring's is there: if it has a callback, what arrives is for that first.
    pub(crate) fn begin_filter(&mut self, key: Key) {
        let Self { sockets, rings, callbacks, .. } = self;
        let Some(socket) = sockets.find(key).filter(|socket| socket.callback().is_some()) else { return };
        for id in socket.flows() {
            callbacks.begin();
            // (A listener has nothing to look at.)
            let _ = rings.of_mut(id).set_recv_filter(id, true);
        }
    }

    fn end_filter(&mut self, key: Key) {
        let Self { sockets, rings, .. } = self;
        let Some(socket) = sockets.find_mut(key) else { return };
        if socket.rare.as_mut().and_then(|rare| rare.callback.take()).is_some() {
            for id in socket.flows() {
                let _ = rings.of_mut(id).set_recv_filter(id, false);
            }
            self.dispatch();
        }
    }

    /// Something arrived on a socket, by its index.
    pub(super) fn note_candidate(&mut self, index: u32) {
        // (What a thread is at already is heard of with each packet that it lets through.)
        if self.callbacks.used
            && let Some(key) = self.sockets.key_at(index)
            && !self.callbacks.runs(key)
        {
            self.list(key);
        }
    }

    /// Has some thread look at a socket's packets, if there are any and none does.
    #[cold]
    fn list(&mut self, key: Key) {
        let Self { callbacks, sockets, rings, .. } = self;
        let Some(socket) = sockets.find_mut(key) else { return };
        let has_candidate = socket.flows().any(|id| rings.of(id).has_candidate(id));
        let Some(callback) = socket.rare.as_mut().and_then(|rare| rare.callback.as_mut()) else { return };
        if !callback.listed && !callbacks.runs(key) && has_candidate {
            callback.listed = true;
            callbacks.due.push_back(key);
            note_activity();
        }
    }

    /// The next packet to be decided about, on whatever socket: what it is, once `take` has its pieces.
    fn next_candidate(&mut self, process: &Process, mut take: impl FnMut(Lent<RxBuf>)) -> Option<Next> {
        while let Some(key) = self.callbacks.due.pop_front() {
            if let Some(next) = self.candidate_of(process, key, &mut take) {
                return Some(next);
            }
        }
        None
    }

    /// The same of one socket, which is not listed any more.
    #[inline]
    fn candidate_of(&mut self, process: &Process, key: Key, mut take: impl FnMut(Lent<RxBuf>)) -> Option<Next> {
        let Self { sockets, rings, .. } = self;
        let socket = sockets.find_mut(key)?;
        // (Which of several flows has waited longer is not asked: each has its senders' order.)
        let ring = socket.flows().find(|&id| rings.of(id).has_candidate(id)).or(socket.ring_id());
        let (protocol, fd) = (socket.protocol, socket.fd);
        let wants_time = socket.ancillary.timestamp != 0 || socket.ancillary.software_times;
        let wants_card_time = socket.ancillary.hardware_times;
        let callback = socket.rare.as_mut()?.callback.as_mut()?;
        callback.listed = false;
        let (ring, function, context) = (ring?, callback.function?, callback.context);
        let fd = if fdtable::peek(callback.fd).socket() == Some(key) { callback.fd } else { fd };
        let (is_datagram, stack) = (protocol == Protocol::Udp, rings.of_mut(ring));
        // vma.md s2.1: of a stream, what comes behind bytes that wait to be read waits there too, so that their order is kept.
        while !is_datagram && stack.has_candidate(ring) && stack.info(ring).is_some_and(|info| info.recv_queue > 0) {
            let _ = stack.decide(process.now(), ring, Decision::Admit);
        }
        if RxBuf::are_copies_lent() {
            // The very copies that the callback may write to are what its reader gets.
            stack.make_candidate_writable(ring);
        }
        match stack.candidate_each(ring, &mut take) {
            Ok(shown) => Some(Next { key, ring, function, context, fd, wants_time, wants_card_time, shown }),
            Err(_) => {
                self.dispatch();
                None
            }
        }
    }

    /// Acts on what a callback decided, if it is known (it is not in the child of a fork): whose packet it was, if that may have others.
    fn settle(&mut self, process: &Process, serial: u64, answer: c_int) -> Option<Key> {
        let place = self.callbacks.running.iter().position(|running| running.serial == serial)?;
        let running = self.callbacks.running.swap_remove(place);
        let packet = ptr::without_provenance_mut(running.packet);
        let decision = match answer {
            DROP => Decision::Drop,
            // It may have given it back already.
            HOLD if self.loans.hold(packet, running.ring, running.len) => Decision::Hold,
            HOLD => Decision::Drop,
            _ => Decision::Admit,
        };
        if decision != Decision::Hold {
            self.loans.forget(packet);
        }
        if decision == Decision::Admit && RxBuf::are_copies_lent() {
            // (It may have been the first to write to anything that was lent.)
            self.rings.of_mut(running.ring).take_written_candidate(running.ring);
        }
        let _ = self.rings.of_mut(running.ring).decide(process.now(), running.ring, decision);
        if decision == Decision::Hold {
            self.tell_of_held(running.socket);
        }
        let was_taken_away =
            self.sockets.find(running.socket).and_then(|s| s.callback()).is_some_and(|callback| callback.function.is_none());
        if was_taken_away {
            self.end_filter(running.socket);
            return None;
        }
        Some(running.socket)
    }

    /// A packet of a socket's was decided about, and others are about to be shown. Who watches the socket, or sleeps for it, is told at once, since a
    /// callback may wait for them; who looks by itself is told to look, and the ring's event waits until the turn is over.
    fn tell_of_decided(&mut self, key: Key) {
        let is_plain = |socket: &Socket| !socket.watch.is_watched() && !socket.watch.is_slept_for();
        if !self.extra_rings.has_completions && self.sockets.find(key).is_some_and(is_plain) {
            note_activity();
            self.mux.calls += 1;
        } else {
            self.dispatch();
        }
    }

    /// [`Offload::settle`] for a callback that is its thread's last for now.
    fn settle_last(&mut self, process: &Process, serial: u64, answer: c_int) {
        if let Some(key) = self.settle(process, serial, answer) {
            self.list(key);
        }
        self.dispatch();
    }

    /// A socket is about to be closed: what a callback is looking at was read, so that a stream's end is no reset for its sake.
    pub(crate) fn drop_shown(&mut self, now: Instant, key: Key) {
        if let Some(id) = self.callbacks.running.iter().find(|running| running.socket == key).map(|running| running.ring) {
            let _ = self.rings.of_mut(id).decide(now, id, Decision::Drop);
        }
    }

    /// vma.md s2.1: who polls a socket is told of what is held. (Who receives on it goes on waiting.)
    fn tell_of_held(&mut self, key: Key) {
        let Some(socket) = self.sockets.find_mut(key) else { return };
        let is_polled = mux::thread::with(|thread| thread.polls.get());
        if is_polled || socket.watch.is_watched() {
            socket.rare().held.set(true);
            ANY_HELD.store(true, Ordering::Relaxed);
            self.announce(key.index, mux::IN);
        }
    }

    /// Callbacks that their threads left have dropped their packets.
    fn sweep(&mut self, process: &Process) {
        if !self.callbacks.any_left {
            return;
        }
        while let Some(left) = self.callbacks.running.iter().find(|running| running.left).map(|running| running.serial) {
            self.settle_last(process, left, DROP);
        }
        self.callbacks.any_left = false;
    }

    /// Wakes those who wait for sockets that are due: the calling thread leaves that to them.
    fn hand_on(&mut self) {
        for place in 0..self.callbacks.due.len() {
            if let Some(&key) = self.callbacks.due.get(place) {
                self.announce(key.index, mux::IN);
            }
        }
    }
}

/// The thread leaves the callback `serial` behind: somebody else is to clean up. Async-signal-safe outside the state's lock, where handlers run.
pub(super) fn forsake(serial: u64) {
    let Some(process) = process::process().filter(|process| !process.has_lock()) else { return };
    let mut guard = process.lock();
    let Some(running) = guard.callbacks.running.iter_mut().find(|running| running.serial == serial) else { return };
    running.left = true;
    let socket = running.socket;
    guard.callbacks.any_left = true;
    guard.announce(socket.index, mux::IN);
}
