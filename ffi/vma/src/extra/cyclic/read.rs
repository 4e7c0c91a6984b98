//! `vma_cyclic_buffer_read` and `get_mem_info`.

use core::ffi::{c_int, c_void};
use core::mem::{offset_of, size_of};
use std::time::SystemTime;

use libc::{size_t, timespec};
use ringway_stack::Instant;
use ringway_stack::cyclic::{CyclicError, Run};
use ringway_stack::ring::Readiness;

use super::memory::Memory;
use crate::errno::{self, Errno, to_int};
use crate::extra::callback;
use crate::mux::epoll::ring as descriptor;
use crate::process::{Offload, Process, process};
use crate::slab::Key;

/// `vma_completion_cb_t`.
#[repr(C)]
pub(in crate::extra) struct Completion {
    comp_mask: u32,
    payload_ptr: *mut c_void,
    payload_length: size_t,
    packets: size_t,
    usr_hdr_ptr: *mut c_void,
    usr_hdr_ptr_length: size_t,
    hw_timestamp: timespec,
}

/// VMA_CB_MASK_TIMESTAMP.
const HAS_TIME: u32 = 1;

/// Frames that one call takes from the device, at most; some more, if the last of them come together.
const FRAMES_MAX: usize = 256;

/// See the header.
pub(in crate::extra) unsafe extern "C-unwind" fn cyclic_buffer_read(
    fd: c_int,
    completion: *mut Completion,
    min: size_t,
    max: size_t,
    flags: c_int,
) -> c_int {
    if completion.is_null() || min > max || max == 0 || flags != libc::MSG_DONTWAIT {
        return errno::fail(libc::EINVAL);
    }
    let Some(process) = process() else { return errno::fail(libc::EBADFD) };
    let mut found = crate::bare_boundary!(Err(Errno(libc::EIO)), read(process, fd, min, max, true));
    if let Ok(Read::Due) = found {
        // (Nothing of ours is on the stack that needs dropping.)
        callback::run();
        // (In the child of a fork that one made, there is another process, or none.)
        let Some(process) = crate::process::process() else { return errno::fail(libc::EBADFD) };
        found = crate::bare_boundary!(Err(Errno(libc::EIO)), read(process, fd, min, max, false));
    }
    to_int(found.map(|found| {
        // SAFETY: the program's promise.
        let wants_time = unsafe { (&raw const (*completion).comp_mask).read_unaligned() } & HAS_TIME != 0;
        let run = if let Read::Found(run) = found { Some(run) } else { None };
        // SAFETY: as above.
        unsafe { put(completion, run, if wants_time { crate::process::process() } else { None }) };
        0
    }))
}

/// What a call found: where its payload begins, where its headers do, and what of both.
type Found = (*mut u8, *mut u8, Run);

/// How a look at a ring ended.
enum Read {
    Found(Found),
    /// There are not as many as were asked for.
    Nothing,
    /// Receive callbacks are to be called first, by the caller.
    Due,
}

fn errno_of(error: CyclicError) -> Errno {
    match error {
        CyclicError::Invalid { .. } => Errno(libc::EINVAL),
        CyclicError::Oversized(_) => Errno(libc::EMSGSIZE),
        CyclicError::Socket(error) => Errno::from(error),
    }
}

impl From<Option<Found>> for Read {
    fn from(found: Option<Found>) -> Self {
        found.map_or(Self::Nothing, Self::Found)
    }
}

fn read(process: &Process, fd: c_int, min: usize, max: usize, may_call: bool) -> Result<Read, Errno> {
    let now = process.now();
    let mut guard = process.lock();
    let offload = &mut *guard;
    let ring = descriptor::of(offload, fd).ok_or(Errno(libc::EBADFD))?;
    offload.mux.calls += 1;
    if may_call && offload.callbacks.are_due() {
        return Ok(Read::Due);
    }
    let is_due = offload.cyclic.find(ring).is_some_and(|cyclic| core::mem::take(&mut cyclic.asks_kernel));
    let by_kernel = if is_due { offload.take_from_kernel(ring, now, max) } else { Ok(()) };
    let mut found = by_kernel.and_then(|()| offload.fill(ring, now, min, max));
    // (What they let through may be what was asked for.)
    if may_call && matches!(found, Ok(None)) && offload.callbacks.are_due() {
        return Ok(Read::Due);
    }
    let finds_nothing = matches!(found, Ok(None));
    if offload.asks_kernel(ring, now, finds_nothing, process.params.rx_udp_poll_os_ratio) {
        if finds_nothing {
            found = offload.take_from_kernel(ring, now, max).and_then(|()| offload.read_cyclic(ring, now, min, max));
        } else if let Some(cyclic) = offload.cyclic.find(ring) {
            cyclic.asks_kernel = true;
        }
    }
    offload.dispatch();
    offload.forget_read(ring);
    found.map(Read::from)
}

impl Offload {
    /// Moves what waits, and then what has arrived, to where it is read. By turns, for as long as there is room for more of it: so that sockets
    /// whose packets are read few at a time do not fill until they drop some.
    fn fill(&mut self, ring: Key, now: Instant, min: usize, max: usize) -> Result<Option<Found>, Errno> {
        self.gather(ring)?;
        let mut polled = 0;
        loop {
            // (As many as there may be, or nothing yet: they stay there.)
            let found = self.read_cyclic(ring, now, max, max)?;
            if found.is_some() {
                return Ok(found);
            }
            if polled >= FRAMES_MAX || !self.rings.is_due(now) {
                break;
            }
            match self.rings.poll(self.rings.all(), now) {
                0 => break,
                frames => polled += frames,
            }
            self.dispatch();
        }
        if min == max { Ok(None) } else { self.read_cyclic(ring, now, min, max) }
    }

    /// Looks up which of the stack's sockets a ring has, and sees to their room.
    fn gather(&mut self, ring: Key) -> Result<(), Errno> {
        let Self { cyclic, sockets, rings, .. } = self;
        let cyclic = cyclic.find(ring).ok_or(Errno(libc::EBADFD))?;
        cyclic.ids.clear();
        let room = cyclic.room();
        for &member in &cyclic.members {
            let Some(socket) = sockets.get_mut(member) else { continue };
            let before = cyclic.ids.len();
            cyclic.ids.extend(socket.flows());
            for &id in &cyclic.ids[before..] {
                // It stays for SO_ERROR: packets are no worse for it.
                if let Some(error) = rings.of_mut(id).take_error(id) {
                    socket.rare().error = Some(Errno::from(error).0);
                }
                // (The program may have set SO_RCVBUF since. Of a socket that is not of UDP, which is never here, it would be an error.)
                let _ = rings.of_mut(id).udp_configure(id, |options| options.rcvbuf = options.rcvbuf.max(room));
            }
        }
        cyclic.ids.sort_by_key(|id| id.ring);
        Ok(())
    }

    fn read_cyclic(&mut self, ring: Key, now: Instant, min: usize, max: usize) -> Result<Option<Found>, Errno> {
        let Self { cyclic, rings, .. } = self;
        let cyclic = cyclic.find(ring).ok_or(Errno(libc::EBADFD))?;
        for striding in &mut cyclic.striding {
            if let Some(run) = striding.read(rings, now, min, max).map_err(errno_of)? {
                return Ok(Some((striding.at(run.payload.start), core::ptr::null_mut(), run)));
            }
        }
        // (Where the kernel alone carries its sockets, any ring hands on what was written there.)
        let mut of_rings = cyclic.ids.chunk_by(|id, next| id.ring == next.ring).map(|ids| (ids[0].ring, ids)).peekable();
        let none = of_rings.peek().is_none().then_some((0, &[][..]));
        for (ring, ids) in of_rings.chain(none) {
            if let Some(run) = rings.at_mut(ring).ring.cyclic_read(ids, &mut cyclic.buffer, min, max).map_err(errno_of)? {
                let memory: &Memory = cyclic.buffer.memory();
                return Ok(Some((memory.at(run.payload.start), memory.at(run.headers.start), run)));
            }
        }
        Ok(None)
    }
}

impl Offload {
    /// Under SocketXtreme, a ring's descriptor is readable while something is to be told: not for packets that were read here.
    fn forget_read(&mut self, ring: Key) {
        if !self.extra_rings.has_completions {
            return;
        }
        for _ in 0..self.waiting_on(ring) {
            let Some(key) = self.take_waiting(ring) else { break };
            let Some(socket) = self.sockets.find_mut(key) else { continue };
            let is_read = self.cyclic.find(ring).is_some_and(|cyclic| cyclic.members.contains(&key.index));
            let mut ids = socket.flows().filter(|_| is_read);
            // Packets are read here, and errors were left for SO_ERROR: how a socket ended, and all of those that are only on the same ring, is told by
            // completions.
            let waits = ids.any(|id| self.rings.of(id).udp_backlog(id).is_some_and(|backlog| backlog.packets > 0));
            drop(ids);
            let waiting = &mut socket.rare().rings.waiting;
            if !is_read || waiting.forget(Readiness::IN | Readiness::OUT | Readiness::ERR) || waits {
                self.requeue(ring, key);
            } else {
                waiting.unqueue();
            }
        }
    }
}

/// Fills a completion in; its time if there is a clock to tell it by.
///
/// # Safety
/// There is room for it. (It may lie anywhere.)
unsafe fn put(completion: *mut Completion, found: Option<Found>, clock: Option<&Process>) {
    let Some((payload, headers, run)) = found else {
        // SAFETY: the caller's promise.
        return unsafe { (&raw mut (*completion).packets).write_unaligned(0) };
    };
    let headers = if run.headers.is_empty() { core::ptr::null_mut() } else { headers };
    // SAFETY: as above.
    unsafe {
        (&raw mut (*completion).payload_ptr).write_unaligned(payload.cast());
        (&raw mut (*completion).payload_length).write_unaligned(run.payload.len());
        (&raw mut (*completion).packets).write_unaligned(run.packets);
        (&raw mut (*completion).usr_hdr_ptr).write_unaligned(headers.cast());
        (&raw mut (*completion).usr_hdr_ptr_length).write_unaligned(run.headers.len());
        if let Some(process) = clock {
            (&raw mut (*completion).hw_timestamp).write_unaligned(on_the_wall(process, run.received));
        }
    }
}

/// When that was, by the wall's clock.
fn on_the_wall(process: &Process, at: Instant) -> timespec {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let then = now.saturating_sub(process.now().since(at));
    timespec { tv_sec: i64::try_from(then.as_secs()).unwrap_or(i64::MAX), tv_nsec: then.subsec_nanos().into() }
}

/// See the header.
pub(in crate::extra) unsafe extern "C" fn mem_info(fd: c_int, addr: *mut *mut c_void, len: *mut size_t, lkey: *mut u32) -> c_int {
    let Some(process) = process().filter(|process| process.is_owner()) else { return errno::fail(libc::EINVAL) };
    if addr.is_null() || len.is_null() || lkey.is_null() {
        return errno::fail(libc::EINVAL);
    }
    crate::boundary!(-1, {
        let mut guard = process.lock();
        let offload = &mut *guard;
        let found = descriptor::of(offload, fd).and_then(|ring| offload.cyclic.find(ring));
        let Some(cyclic) = found else { return errno::fail(libc::EINVAL) };
        // (No card knows of what software writes to.)
        let of_software = (cyclic.buffer.memory().at(0), cyclic.buffer.layout().bytes(), 0);
        let (base, bytes, key) = cyclic.striding.first().map_or(of_software, |striding| (striding.at(0), striding.len, striding.lkey));
        // SAFETY: the program's promise: there is room for each.
        unsafe {
            addr.write_unaligned(base.cast());
            len.write_unaligned(bytes);
            lkey.write_unaligned(key);
        }
        0
    })
}

const _: () = assert!(size_of::<Completion>() == 64 && offset_of!(Completion, hw_timestamp) == 48);
