//! SocketXtreme: what happens on a ring is polled, and data are lent from where the device put them (vma.md s2.10 to 2.12).
//!
//! - [`harvest`]: what happened to a socket, as completions; [`kernel`]: what happened to it there; [`buffers`]: who has which buffer; [`abi`]: the structures of each layout
//!
//! Every call may come from any thread. Where threads poll one ring, each completion goes to one of them; those of one stream are taken in
//! order, so that threads which share a ring must agree on who handles what.

mod abi;
mod buffers;
mod harvest;
mod kernel;

use core::ffi::{c_int, c_uint};
use std::sync::Once;

use self::abi::{ACCEPTED, Completed, Layout};
pub(super) use self::abi::{Timed, TimedCompletion, TimedPacket, Untimed, UntimedCompletion, UntimedPacket};
pub(super) use self::buffers::Buff;
pub(crate) use self::buffers::Buffers;
use self::buffers::{Credit, Creditor};
pub(crate) use self::harvest::Waiting;
use self::harvest::{Next, Sink, harvest};
pub(super) use self::kernel::HELD_MAX;
use super::callback;
use super::rings::options::default_user_data;
use crate::errno;
use crate::lock::Guard;
use crate::mux::epoll::ring as descriptor;
use crate::params;
use crate::process::{Offload, Process, process, process_or_init};
use crate::slab::Key;
use crate::socket::accept;

/// VMA_SOCKETXTREME, of a program that calls what needs it; one line of the log if it is not set.
fn is_on() -> bool {
    if params::settings().flag(ringway_params::Id::Socketxtreme) {
        return true;
    }
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        crate::log::start();
        tracing::warn!("the program uses SocketXtreme, which VMA_SOCKETXTREME=1 switches on");
    });
    false
}

/// The program's array, from its front on.
struct Out<L: Layout> {
    at: *mut L::Completion,
    room: usize,
    put: usize,
}

impl<L: Layout> Sink for Out<L> {
    #[inline]
    fn is_full(&self) -> bool {
        self.put == self.room
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.put == 0
    }

    #[inline]
    fn put(&mut self, completed: &Completed) {
        // SAFETY: the program's promise of `room` completions, of which `put` are filled in. (They may lie anywhere.)
        unsafe { self.at.add(self.put).write_unaligned(L::completion(completed)) };
        self.put += 1;
    }
}

/// See the header.
pub(super) unsafe extern "C-unwind" fn poll<L: Layout>(fd: c_int, completions: *mut L::Completion, count: c_uint, _flags: c_int) -> c_int {
    if !is_on() {
        return errno::fail(libc::EOPNOTSUPP);
    }
    if completions.is_null() || count == 0 {
        return errno::fail(libc::EINVAL);
    }
    let Some(process) = process() else { return errno::fail(libc::EBADFD) };
    // (What is counted is returned.)
    let room = count.min(c_int::MAX.unsigned_abs()) as usize;
    let mut out = Out::<L> { at: completions, room, put: 0 };
    let mut polled = crate::bare_boundary!(Polled::Failed, poll_ring(process, fd, &mut out, true));
    if polled == Polled::Due {
        // (Nothing of ours is on the stack that needs dropping, and nothing was told yet.)
        callback::run();
        // (In the child of a fork that one made, there is another process, or none.)
        let Some(process) = crate::process::process() else { return errno::fail(libc::EBADFD) };
        polled = crate::bare_boundary!(Polled::Failed, poll_ring(process, fd, &mut out, false));
    }
    match polled {
        Polled::Done => out.put as c_int,
        Polled::NotARing => errno::fail(libc::EBADFD),
        Polled::Due | Polled::Failed => -1,
    }
}

/// How a look at a ring ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Polled {
    Done,
    /// The descriptor is not a ring's.
    NotARing,
    /// Receive callbacks are to be called first, by the caller.
    Due,
    /// It panicked; errno says so.
    Failed,
}

/// Frames that one call takes from the device, at most; some more, if the last of them come together.
const FRAMES_MAX: usize = 256;

fn poll_ring(process: &Process, fd: c_int, out: &mut impl Sink, may_call: bool) -> Polled {
    let now = process.now();
    let mut guard = process.lock();
    let Some(ring) = descriptor::of(&guard, fd) else { return Polled::NotARing };
    guard.mux.calls += 1;
    if may_call && guard.callbacks.are_due() {
        return Polled::Due;
    }
    // What waits comes first: if each call polled, those of a program that takes one packet at a time would fill its sockets until they drop.
    guard = tell(process, guard, ring, out);
    let mut polled = 0;
    while polled < FRAMES_MAX && !out.is_full() && guard.rings.is_due(now) {
        let all = guard.rings.all();
        match guard.rings.poll(all, now) {
            0 => break,
            frames => polled += frames,
        }
        guard.dispatch();
        guard = tell(process, guard, ring, out);
    }
    // What they let through may be all that there is. (If there is more, it is told first, for a callback may never return.)
    if may_call && out.is_empty() && guard.callbacks.are_due() {
        return Polled::Due;
    }
    let asks = guard.asks_kernel(ring, now, out.is_empty(), process.params.rx_udp_poll_os_ratio);
    drop(guard);
    if asks && !out.is_full() {
        let saved = errno::current();
        crate::boundary!((), kernel::look(process, fd, ring, out));
        errno::set(saved);
    }
    Polled::Done
}

/// Completions for what waits on a ring: each socket that waits now has one turn.
fn tell<'p>(process: &'p Process, mut guard: Guard<'p, Offload>, ring: Key, out: &mut impl Sink) -> Guard<'p, Offload> {
    let mut turns = guard.waiting_on(ring);
    while turns > 0 && !out.is_full() {
        turns -= 1;
        let Some(socket) = guard.take_waiting(ring) else { break };
        match harvest(&mut guard, socket, out) {
            Next::Nothing => {}
            Next::Again => guard.requeue(ring, socket),
            Next::Accept(id) => {
                drop(guard);
                let saved = errno::current();
                let accepted = crate::boundary!(None, accept::by_itself(process, socket, id).ok());
                errno::set(saved);
                guard = process.lock();
                if let Some((connection, peer)) = accepted {
                    let (user_data, listener) = (default_user_data(connection), guard.sockets.find(socket).map(|socket| socket.fd));
                    out.put(&Completed { packet: None, events: ACCEPTED, user_data, from: peer, listener, by_card: None });
                }
                // Others may wait there; or there was no descriptor, and the next call tries again.
                guard.note_others_at(socket);
            }
        }
    }
    guard
}

/// See the header.
pub(super) unsafe extern "C" fn free_packets<L: Layout>(packets: *mut L::Packet, count: c_int) -> c_int {
    if !is_on() {
        return errno::fail(libc::EOPNOTSUPP);
    }
    let Some(process) = process_or_init().filter(|_| !packets.is_null()) else { return errno::fail(libc::EINVAL) };
    crate::bare_boundary!(-1, {
        let mut guard = process.lock();
        let mut result = 0;
        for index in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the program's promise: so many packets.
            let first = unsafe { L::first_of(packets.add(index)) };
            match guard.buffers.take_packet(first) {
                Some(credit) => give_back(&mut guard, process, credit),
                None => {
                    result = errno::fail(libc::EINVAL);
                    break;
                }
            }
        }
        guard.dispatch();
        result
    })
}

/// See the header.
pub(super) extern "C" fn reference(buff: *mut Buff) -> c_int {
    let Some(process) = process() else { return errno::fail(libc::EINVAL) };
    crate::bare_boundary!(-1, process.lock().buffers.reference(buff).unwrap_or_else(|| errno::fail(libc::EINVAL)))
}

/// See the header.
pub(super) extern "C" fn unreference(buff: *mut Buff) -> c_int {
    let Some(process) = process() else { return errno::fail(libc::EINVAL) };
    crate::bare_boundary!(-1, {
        let mut guard = process.lock();
        let Some((left, credit)) = guard.buffers.unreference(buff) else { return errno::fail(libc::EINVAL) };
        give_back(&mut guard, process, credit);
        guard.dispatch();
        left
    })
}

#[inline(always)]
fn give_back(offload: &mut Offload, process: &Process, credit: Option<Credit>) {
    match credit {
        // (Datagrams need no clock.)
        Some(Credit { to: Creditor::Ring(to), bytes }) if offload.rings.of_mut(to).udp_give_back(to, bytes) => {}
        Some(Credit { to: Creditor::Ring(to), bytes }) => offload.rings.of_mut(to).give_back(process.now(), to, bytes),
        Some(Credit { to: Creditor::Kernel(to), bytes }) => offload.given_back_to_kernel(to, bytes),
        None => {}
    }
}

impl Offload {
    /// After a listener's turn: it has another if a connection waits.
    fn note_others_at(&mut self, socket: Key) {
        if harvest::waits_at(self, socket).is_some() {
            self.note_event(socket.index, ringway_stack::ring::Readiness::IN);
        }
    }
}
