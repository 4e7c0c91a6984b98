//! accept4(2): connections from both worlds. Those of the ring come first, but where the kernel has some as well, the worlds take turns.

use core::ffi::c_int;
use core::time::Duration;
use std::net::SocketAddr;

use libc::{sockaddr, socklen_t};
use ringway_host::Blocked;
use ringway_stack::Error;
use ringway_stack::device::Protocol;
use ringway_stack::ring::{FlowId, Readiness};

use super::address::Raw;
use super::common::Common;
use super::connect::kernel_result;
use super::{Family, Kind, Socket, common, lifecycle, listen};
use crate::errno::{self, Errno, THEIRS};
use crate::fdtable::{self, Entry};
use crate::lock::Lock;
use crate::moving;
use crate::mux::wait::{SpinClass, Waited, Waiting, wait};
use crate::process::{Offload, Process};
use crate::real;
use crate::slab::Key;

/// One kernel accept at a time: between "a connection waits" and taking it, no other thread may take it, or this one would
/// block in the kernel and never see the ring's.
pub(crate) static KERNEL_ACCEPT: Lock<()> = Lock::new(());

/// accept4(2).
///
/// # Errors
/// As accept4(2).
///
/// # Safety
/// As accept4(2): `out` and `len` are null, or valid for writing.
pub(crate) unsafe fn accept(
    process: &Process,
    fd: c_int,
    key: Key,
    out: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> Result<c_int, Errno> {
    // When the call's time is over, once it waits.
    let mut until = None;
    loop {
        let mut guard = process.lock();
        let Some(socket) = guard.sockets.find(key) else { return Err(Errno(libc::EBADF)) };
        let (kind, nonblocking, timeout) = (socket.kind, socket.nonblocking, socket.receive_timeout);
        let Kind::Listener(id) = kind else {
            return Err(THEIRS);
        };
        if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
            return Err(Errno(libc::EINVAL));
        }
        let ratio = process.params.rx_udp_poll_os_ratio;
        let (mut asks_first, mut is_left) = (false, false);
        if let Some(socket) = guard.sockets.find_mut(key) {
            socket.waited = true;
            is_left = socket.is_left_by_fork;
            asks_first = socket.kernel_poll.on_ring(ratio);
        }
        if is_left {
            guard.return_to_interfaces(key);
        }
        let id = id.or_else(|| {
            listen::retry(&mut guard, key);
            guard.sockets.find(key)?.ring_id()
        });
        if let Some(mut id) = id {
            if !waits(&guard, id) {
                let now = process.now();
                guard.poll_if_due(now);
            }
            id = guard.turn(key).unwrap_or(id);
            if waits(&guard, id) {
                drop(guard);
                if asks_first {
                    // SAFETY: the caller's promise.
                    match unsafe { from_kernel(process, fd, key, out, len, flags, (!nonblocking).then_some(timeout)) } {
                        Err(Errno(libc::EAGAIN)) => {}
                        result => return told(process, fd, key, result),
                    }
                }
                // SAFETY: the caller's promise.
                match unsafe { from_ring(process, key, id, out, len, flags) } {
                    Err(Errno(libc::EAGAIN)) => continue,
                    result => return result,
                }
            }
        }
        let nonblocking = guard.sockets.find(key).map_or(nonblocking, |socket| socket.is_nonblocking());
        drop(guard);
        // SAFETY: the caller's promise.
        match unsafe { from_kernel(process, fd, key, out, len, flags, (!nonblocking).then_some(timeout)) } {
            Err(Errno(libc::EAGAIN)) if !nonblocking => {}
            result => return told(process, fd, key, result),
        }
        let deadline = timeout.map(|timeout| *until.get_or_insert_with(|| process.now() + timeout));
        let mut kernel = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
        let mut waiting = Waiting {
            sockets: &[key.index],
            epolls: &[],
            kernel: &mut kernel,
            deadline,
            sigmask: None,
            spin: SpinClass::Rx,
            restart: timeout.is_none(),
            // (accept(2) is not among the calls in which they run.)
            callbacks: false,
            since: None,
            polls: false,
        };
        let ready = |offload: &mut Offload, _| match offload.sockets.find(key).map(|s| s.kind) {
            Some(Kind::Listener(Some(own))) => {
                let id = offload.turn(key).unwrap_or(own);
                waits(offload, id).then_some(())
            }
            Some(Kind::Listener(None)) => None,
            _ => Some(()),
        };
        match wait(process, &mut waiting, ready) {
            Waited::Ready(()) | Waited::Kernel | Waited::Due => {}
            Waited::TimedOut => return Err(Errno(libc::EAGAIN)),
            Waited::Interrupted => return Err(Errno(libc::EINTR)),
        }
    }
}

/// What the kernel says of its listener, whose end is the ring's as well: somebody may have ended it from outside (SOCK_DESTROY of sock_diag(7), `ss -K`), and
/// whoever connects is to be refused.
fn told(process: &Process, fd: c_int, key: Key, result: Result<c_int, Errno>) -> Result<c_int, Errno> {
    if result == Err(Errno(libc::EINVAL)) && !is_listening(fd) {
        listen::end(&mut process.lock(), key);
    }
    result
}

/// SO_ACCEPTCONN.
fn is_listening(fd: c_int) -> bool {
    let (mut is_listening, mut len): (c_int, socklen_t) = (0, size_of::<c_int>() as socklen_t);
    // SAFETY: both are valid for writing, the value for `len` bytes.
    let result = unsafe { real::getsockopt(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, (&raw mut is_listening).cast(), &raw mut len) };
    result != 0 || is_listening != 0
}

fn waits(offload: &Offload, id: FlowId) -> bool {
    offload.rings.of(id).readiness(id).contains(Readiness::IN)
}

/// Takes a connection for the program, which has not asked for it: its descriptor, and its peer's address.
///
/// # Errors
/// As accept4(2), without waiting.
pub(crate) fn by_itself(process: &Process, listener: Key, id: FlowId) -> Result<(c_int, Option<SocketAddr>), Errno> {
    take(process, listener, id, 0)
}

/// Takes a connection from the ring's queue, with a fresh placeholder.
unsafe fn from_ring(
    process: &Process,
    listener: Key,
    id: FlowId,
    out: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> Result<c_int, Errno> {
    let family = process.lock().sockets.find(listener).ok_or(Errno(libc::EBADF))?.family;
    let (fd, peer) = take(process, listener, id, flags)?;
    if let Some(peer) = peer {
        // SAFETY: the caller's promise.
        unsafe { Raw::new(peer, family).write(out, len)? };
    }
    Ok(fd)
}

fn take(process: &Process, listener: Key, id: FlowId, flags: c_int) -> Result<(c_int, Option<SocketAddr>), Errno> {
    // The placeholder comes first: with no descriptor left, the connection stays in the queue, as in the kernel.
    let (fd, common) = common::accepted(process, listener, flags)?;
    let mut guard = process.lock();
    let offload = &mut *guard;
    let accepted = match offload.rings.of_mut(id).tcp_accept(id) {
        Ok(accepted) => accepted,
        Err(error) => {
            drop(guard);
            // SAFETY: the descriptor was made above, and nobody knows of it.
            unsafe { real::close(fd) };
            return Err(if error == Error::WouldBlock { Errno(libc::EAGAIN) } else { Errno(libc::EINVAL) });
        }
    };
    let info = offload.rings.of(accepted).info(accepted);
    let Some(parent) = offload.sockets.find(listener) else { return Err(Errno(libc::EBADF)) };
    let mut socket = Socket::accepted(parent, fd, flags & libc::SOCK_NONBLOCK != 0);
    (socket.kind, socket.ring) = (Kind::Stream(accepted), accepted.ring);
    socket.reason = None;
    socket.bound = info.map(|i| i.local);
    socket.peer = info.and_then(|i| i.remote);
    let peer = socket.peer;
    match common {
        None => lifecycle::replay_options(&socket),
        Some(Common { place, .. }) => socket.common = Some(place),
    }
    let key = offload.sockets.insert(socket);
    offload.link(accepted, key.index);
    if offload.rings.interfaces.contains(accepted.ring) {
        offload.follow_path_mtu(process.now(), key);
    }
    offload.begin_pacing(key);
    offload.decided("accept", None);
    offload.dispatch();
    let entry = Entry::Socket(key);
    if !common.map_or_else(|| fdtable::set(fd, entry), |common| fdtable::set_of(fd, entry, common.identity)) {
        offload.sockets.remove(key);
        offload.rings.of_mut(accepted).close(process.now(), accepted, true);
        return Err(Errno(libc::EMFILE));
    }
    Ok((fd, peer))
}

/// As [`by_itself`], from the kernel's queue.
///
/// # Errors
/// EAGAIN: none waits there; else as accept4(2).
pub(crate) fn from_kernel_by_itself(process: &Process, fd: c_int, listener: Key) -> Result<c_int, Errno> {
    let (nonblocking, timeout) =
        process.lock().sockets.find(listener).map(|socket| (socket.is_nonblocking(), socket.receive_timeout)).ok_or(Errno(libc::EBADF))?;
    // SAFETY: nothing is to be written.
    unsafe { from_kernel(process, fd, listener, core::ptr::null_mut(), core::ptr::null_mut(), 0, (!nonblocking).then_some(timeout)) }
}

/// Takes a connection from the kernel's queue if one waits there: EAGAIN if none does.
unsafe fn from_kernel(
    process: &Process,
    fd: c_int,
    listener: Key,
    out: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
    blocking: Option<Option<Duration>>,
) -> Result<c_int, Errno> {
    // SAFETY: the caller's promise. (It never waits: see below.)
    let accept = || kernel_result(lifecycle::lowest_after_waiting(|| unsafe { real::accept4(fd, out, len, flags) }));
    let accepted = match blocking {
        None => accept()?,
        // (One system call, where the turn would take four and more.)
        Some(_) if !is_awaiting(fd) => return Err(Errno(libc::EAGAIN)),
        Some(timeout) => alone(|| without_blocking(fd, timeout, accept))?,
    };
    lifecycle::arriving(accepted);
    let mut guard = process.lock();
    let offload = &mut *guard;
    let (family, timeout) = offload.sockets.find_mut(listener).map_or((Family::V4, None), |listener| {
        listener.kernel_poll.delivered();
        (listener.family, listener.receive_timeout)
    });
    // The kernel made it while somebody who shares the listener may have had it `without_blocking`, and it inherited that.
    set_receive_timeout(accepted, timeout.map_or(libc::timeval { tv_sec: 0, tv_usec: 0 }, timeval));
    let mut socket = Socket::new(accepted, family, Protocol::Tcp, false, process.tcp_config());
    socket.kind = Kind::Kernel;
    let reason = moving::reason_of_accepted(offload, accepted, family);
    socket.reason = Some(reason);
    let key = offload.sockets.insert(socket);
    offload.decided("accept", Some(reason));
    if !fdtable::set(accepted, Entry::Kernel(key)) {
        offload.sockets.remove(key);
    }
    Ok(accepted)
}

/// Does what no other thread of the process is to do meanwhile, and without which it does not fork.
pub(crate) fn alone<T>(f: impl FnOnce() -> T) -> T {
    // A handler that leaves by longjmp would leave the locks behind.
    let _undisturbed = Blocked::new();
    let _one = KERNEL_ACCEPT.lock();
    f()
}

/// Accepts on a socket that blocks only if a connection waits, and never blocks: the ring's would not be seen. The open file may
/// be shared with other processes (a fork's), so "a connection waits" may be over by the time it is taken, and O_NONBLOCK is not
/// ours to set. Processes that run this library take turns by a record lock on the socket, which a process's end releases;
/// against all others there is a receive timeout (socket(7)) for the time of the call, in place of the program's.
fn without_blocking(fd: c_int, timeout: Option<Duration>, accept: impl FnOnce() -> Result<c_int, Errno>) -> Result<c_int, Errno> {
    let turn = Turn::take(fd).ok_or(Errno(libc::EAGAIN))?;
    if !is_awaiting(fd) {
        return Err(Errno(libc::EAGAIN));
    }
    set_receive_timeout(fd, libc::timeval { tv_sec: 0, tv_usec: 1 });
    let accepted = accept();
    set_receive_timeout(fd, timeout.map_or(libc::timeval { tv_sec: 0, tv_usec: 0 }, timeval));
    drop(turn);
    accepted
}

/// Whether there is anything to accept in the kernel, or an error to learn.
fn is_awaiting(fd: c_int) -> bool {
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd.
    unsafe { real::poll(&raw mut poll, 1, 0) != 0 }
}

/// The right to accept on a socket that may be shared between processes.
struct Turn(c_int);

impl Turn {
    /// `None`: another process has it; a moment has passed.
    fn take(fd: c_int) -> Option<Self> {
        if record_lock(fd, libc::F_WRLCK).is_ok() {
            return Some(Self(fd));
        }
        match Errno::last() {
            Errno(libc::EAGAIN | libc::EACCES) => {
                let mut nothing = libc::pollfd { fd: -1, events: 0, revents: 0 };
                let moment = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };
                // SAFETY: one pollfd that names no descriptor, and a valid time.
                unsafe { real::ppoll(&raw mut nothing, 1, &raw const moment, core::ptr::null()) };
                None
            }
            // Locks cannot be had here: the timeout alone must do.
            _ => Some(Self(fd)),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let saved = errno::current();
        let _ = record_lock(self.0, libc::F_UNLCK);
        errno::set(saved);
    }
}

fn record_lock(fd: c_int, kind: c_int) -> Result<(), Errno> {
    // SAFETY: all of it is integers, for which zero is a value: from the beginning, the whole.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    // SAFETY: the structure outlives the call.
    kernel_result(unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_SETLK, &raw const lock) } as c_int).map(drop)
}

fn set_receive_timeout(fd: c_int, time: libc::timeval) {
    let len = size_of::<libc::timeval>() as socklen_t;
    // SAFETY: the value is as long as it says.
    unsafe { real::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const time).cast(), len) };
}

fn timeval(time: Duration) -> libc::timeval {
    libc::timeval {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_usec: libc::suseconds_t::from(time.subsec_micros()),
    }
}
