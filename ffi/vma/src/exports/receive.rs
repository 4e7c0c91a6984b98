//! read, recv and their kin.

use core::ffi::{c_int, c_uint, c_void};
use core::mem::size_of;
use core::time::Duration;
use std::io::IoSliceMut;
use std::net::IpAddr;

use libc::{iovec, mmsghdr, msghdr, size_t, ssize_t, timespec};
use ringway_preload::control::Control;
use ringway_preload::messages;
use ringway_preload::timeout::from_timespec;
use ringway_stack::Instant;
use ringway_stack::device::Protocol;
use ringway_stack::ring::Datagram;

use super::control::put_times;
use super::recvfrom::sender;
use super::send::MSG_CMSG_COMPAT;
use super::short;
use crate::cancel::Masked;
use crate::errno::{Errno, is_nowhere, optional, to_ssize};
use crate::extra::resume::Resume;
use crate::extra::rings::Direction;
use crate::fd_counters::{self, Way};
use crate::fdtable::{self, Entry, Found};
use crate::interfaces;
use crate::lock::Guard;
use crate::process::{Offload, Process, process, process_or_init};
use crate::real;
use crate::slab::Key;
use crate::socket::datagram::{self, Received};
use crate::socket::options::{SO_RXQ_OVFL, TCP_INQ};
use crate::socket::plain::{self, Came, Taken};
use crate::socket::{Ancillary, Family, Kind, Socket, lifecycle, special, stream, vectors};

/// What was received, and on what.
pub(super) enum Got {
    /// Bytes of a stream.
    Stream(usize),
    /// The same, of one that is to tell nothing of them.
    Plain(usize),
    /// Whatever the kernel put into the program's structures.
    Kernel(usize),
    /// The same, for a socket of whose datagrams the ring may have dropped some, which the program wants to know.
    KernelOfTwo(usize),
    /// A datagram of that ring.
    Datagram(Datagram, Family, Ancillary, u16),
}

/// Receives on a socket of ours, and counts how that ends; `kernel` receives from the kernel, with extra flags.
#[inline(never)]
pub(super) fn receive_on(
    fd: c_int,
    found: Found,
    into: &mut [IoSliceMut<'_>],
    flags: c_int,
    kernel: &dyn Fn(c_int) -> isize,
) -> Result<Got, Errno> {
    receive_here(fd, found, into, flags, kernel)
}

/// [`receive_on`] as part of the caller's code, for the calls that programs make most often.
#[inline(always)]
fn receive_here(fd: c_int, found: Found, into: &mut [IoSliceMut<'_>], flags: c_int, kernel: &dyn Fn(c_int) -> isize) -> Result<Got, Errno> {
    let got = receive_uncounted(fd, found, into, flags, kernel);
    fd_counters::ended(fd, Way::Rx, got.as_ref().err().map(|error| error.0));
    got
}

#[inline(always)]
fn receive_uncounted(
    fd: c_int,
    found: Found,
    into: &mut [IoSliceMut<'_>],
    flags: c_int,
    kernel: &dyn Fn(c_int) -> isize,
) -> Result<Got, Errno> {
    let Some(process) = process_or_init() else { return by_kernel(fd, kernel) };
    let now = process.now();
    let key = found.key;
    if found.is_stale(fd, now) {
        lifecycle::displaced(fd, Entry::Socket(key));
        return by_kernel(fd, kernel);
    }
    if process.has_several_rings()
        && let Some(came) = plain::receive(process, now, (fd, key), into, (flags, kernel))
    {
        return match came {
            Came::Bytes(result) => result.map(Got::Plain).map_err(Errno::from),
            Came::Datagram(result) => result.map(|taken| match taken {
                // (What is on an interface is not plain.)
                Taken::Ring { datagram, family, ancillary } => Got::Datagram(datagram, family, ancillary, 0),
                Taken::Kernel(count) => Got::Kernel(count),
            }),
            Came::Nothing(error) => Err(error),
            Came::Waits(begun, timeout) => go_on_waiting(process, (fd, key), into, (flags, kernel), (timeout, begun)),
        };
    }
    receive_locked(process, process.lock(), now, (fd, key), into, (flags, kernel))
}

/// What goes on here from the short way: all but a plain receive on a stream.
///
/// # Errors
/// As recv(2).
#[inline(never)]
pub(super) fn receive_any(
    process: &Process,
    guard: Guard<'_, Offload>,
    now: Instant,
    (fd, key): (c_int, Key),
    into: IoSliceMut<'_>,
    (flags, kernel): (c_int, &dyn Fn(c_int) -> isize),
) -> Result<usize, Errno> {
    receive_locked(process, guard, now, (fd, key), &mut [into], (flags, kernel)).map(|got| got.count(flags))
}

/// The same, under the process's lock.
#[inline(always)]
fn receive_locked(
    process: &Process,
    mut guard: Guard<'_, Offload>,
    now: Instant,
    (fd, key): (c_int, Key),
    into: &mut [IoSliceMut<'_>],
    (flags, kernel): (c_int, &dyn Fn(c_int) -> isize),
) -> Result<Got, Errno> {
    if guard.extra_rings.migrate[Direction::Rx as usize] {
        guard.note_use(key, Direction::Rx);
    }
    let Some(socket) = guard.sockets.find(key) else { return Err(Errno(libc::EBADF)) };
    match socket.kind {
        Kind::Stream(id) | Kind::Connecting(id) => {
            let (mut one, mut many);
            let all: &mut [iovec] = match &mut *into {
                _ if flags & libc::MSG_WAITALL == 0 => &mut [],
                [only] => {
                    one = [vectors::place(only)];
                    &mut one
                }
                several => {
                    many = several.iter_mut().map(vectors::place).collect::<Vec<_>>();
                    &mut many
                }
            };
            match stream::receive(process, guard, now, key, id, into, flags) {
                Err(Errno(libc::EBADF)) if fdtable::has_moved(fd) => by_kernel(fd, kernel),
                Err(Errno(libc::EBADF)) if crate::moving::is_back(process, (fd, key), Some(id)) => {
                    receive_again(process, (fd, key), into, (flags, kernel))
                }
                Ok(done) if !all.is_empty() && done > 0 => Ok(Got::Stream(done + rest_of_all(fd, all, done, flags))),
                result => result.map(Got::Stream),
            }
        }
        Kind::Datagram(_) => {
            let (family, ancillary) = (socket.family, socket.ancillary);
            // (Nothing of a datagram is urgent: Linux's udp_recvmsg does not look at MSG_OOB.)
            match datagram::receive(process, guard, now, (fd, key), into, flags & !libc::MSG_OOB, kernel)? {
                Received::Ring(datagram, ring) => Ok(Got::Datagram(datagram, family, ancillary, ring)),
                Received::Kernel(count) if ancillary.drops.is_some() && flags & libc::MSG_ERRQUEUE == 0 => Ok(Got::KernelOfTwo(count)),
                Received::Kernel(count) => Ok(Got::Kernel(count)),
                Received::End => Ok(Got::Stream(0)),
            }
        }
        Kind::Fresh | Kind::Listener(_) | Kind::Kernel | Kind::Moving => {
            if let Some(error) = guard.sockets.find_mut(key).and_then(Socket::take_left_error) {
                return Err(Errno(error));
            }
            let was_moving = guard.sockets.find(key).is_some_and(|socket| socket.kind == Kind::Moving);
            drop(guard);
            fdtable::lookup_with(fd, flags);
            if fdtable::is_moving(fd) && crate::moving::is_impatient(fd, flags) {
                return Err(Errno(libc::EAGAIN));
            }
            if was_moving && crate::moving::is_back(process, (fd, key), None) {
                return receive_again(process, (fd, key), into, (flags, kernel));
            }
            by_kernel(fd, kernel)
        }
    }
}

/// Of a connection that was to move, and is on its ring again.
#[cold]
#[inline(never)]
fn receive_again(
    process: &Process,
    (fd, key): (c_int, Key),
    into: &mut [IoSliceMut<'_>],
    (flags, kernel): (c_int, &dyn Fn(c_int) -> isize),
) -> Result<Got, Errno> {
    receive_locked(process, process.lock(), process.now(), (fd, key), into, (flags, kernel))
}

/// A call, which began so, waits on a plain socket with this timeout. The socket may be another thing by now.
#[cold]
fn go_on_waiting(
    process: &Process,
    (fd, key): (c_int, Key),
    into: &mut [IoSliceMut<'_>],
    (flags, kernel): (c_int, &dyn Fn(c_int) -> isize),
    (timeout, begun): (Option<Duration>, Resume),
) -> Result<Got, Errno> {
    let Some((kind, family, ancillary)) = process.lock().sockets.find(key).map(|socket| (socket.kind, socket.family, socket.ancillary))
    else {
        return Err(Errno(libc::EBADF));
    };
    match kind {
        Kind::Stream(id) => match stream::wait_for_more(process, key, id, into, (timeout, begun)) {
            Err(Errno(libc::EBADF)) if fdtable::has_moved(fd) => by_kernel(fd, kernel),
            Err(Errno(libc::EBADF)) if crate::moving::is_back(process, (fd, key), Some(id)) => {
                receive_again(process, (fd, key), into, (flags, kernel))
            }
            result => result.map(Got::Stream),
        },
        Kind::Datagram(_) => Ok(match datagram::wait_for_more(process, (fd, key), into, (flags, kernel), (timeout, begun))? {
            Received::Ring(datagram, ring) => Got::Datagram(datagram, family, ancillary, ring),
            Received::Kernel(count) => Got::Kernel(count),
            Received::End => Got::Stream(0),
        }),
        _ => {
            fdtable::lookup_with(fd, flags);
            if kind == Kind::Moving && crate::moving::is_back(process, (fd, key), None) {
                return receive_again(process, (fd, key), into, (flags, kernel));
            }
            by_kernel(fd, kernel)
        }
    }
}

/// Where the next bytes are.
pub(crate) enum Sort {
    /// On the ring.
    Ring,
    /// In the kernel.
    Kernel,
    /// Nowhere: the stream has ended.
    End,
}

/// Waits as recv(2) does, and takes nothing: for those who receive by reference.
///
/// # Errors
/// As recv(2).
pub(crate) fn wait_for_data(fd: c_int, flags: c_int) -> Result<Sort, Errno> {
    let mut byte = [0u8];
    let mut found = Err(Errno(libc::EBADF));
    let peeked = crate::receiving_point!({
        let at = byte.as_mut_ptr().cast::<c_void>();
        let look = flags & !libc::MSG_WAITALL | libc::MSG_PEEK;
        // SAFETY: there is room for a byte.
        let kernel = |extra| unsafe { real::recv(fd, at, 1, look | extra) };
        match ours(fd, look, || kernel(0)) {
            Err(-1) => -1,
            Err(_) => {
                found = Ok(Sort::Kernel);
                0
            }
            Ok(ours) => crate::bare_boundary!(-1, {
                let got = writable(at, 1).and_then(|slice| receive_on(fd, ours, &mut [slice], look, &kernel));
                to_ssize(got.map(|got| {
                    found = Ok(match got {
                        Got::Stream(0) | Got::Plain(0) => Sort::End,
                        Got::Stream(_) | Got::Plain(_) | Got::Datagram(..) => Sort::Ring,
                        Got::Kernel(_) | Got::KernelOfTwo(_) => Sort::Kernel,
                    });
                    0
                }))
            }),
        }
    });
    if peeked < 0 { Err(Errno::last()) } else { found }
}

/// A call that waits for all of it, and of which the connection moved to the kernel meanwhile, goes on there. How much more it got.
#[cold]
fn rest_of_all(fd: c_int, into: &mut [iovec], done: usize, flags: c_int) -> usize {
    let mut skip = done;
    for piece in into.iter_mut() {
        let taken = skip.min(piece.iov_len);
        // SAFETY: within the piece, or right behind it.
        piece.iov_base = unsafe { piece.iov_base.add(taken) };
        piece.iov_len -= taken;
        skip -= taken;
    }
    let waits = flags & (libc::MSG_PEEK | libc::MSG_DONTWAIT) == 0;
    if !waits || into.iter().all(|piece| piece.iov_len == 0) || !fdtable::has_moved(fd) {
        return 0;
    }
    let _masked = Masked::new();
    let patience = receive_timeout(fd);
    let mut got = 0;
    while let Some(first) = into.iter_mut().find(|piece| piece.iov_len > 0) {
        let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd.
        let ready = unsafe { real::poll(&raw mut entry, 1, patience) };
        // An error is the next call's to tell: this one has bytes to tell of (tcp_recvmsg). So is what lies behind urgent data.
        if ready != 1 || entry.revents & libc::POLLERR != 0 || is_at_mark(fd) {
            break;
        }
        let now = flags & !libc::MSG_WAITALL | libc::MSG_DONTWAIT;
        // SAFETY: the piece is the program's buffer, behind what was received already.
        let Ok(more @ 1..) = usize::try_from(unsafe { real::recv(fd, first.iov_base, first.iov_len, now) }) else { break };
        // SAFETY: within the piece, or right behind it.
        first.iov_base = unsafe { first.iov_base.add(more) };
        first.iov_len -= more;
        got += more;
    }
    got
}

/// Whether the next byte is an urgent one, which reads do not go past (tcp(7)).
fn is_at_mark(fd: c_int) -> bool {
    let mut mark: c_int = 0;
    // SAFETY: an int has room for the answer.
    unsafe { real::ioctl(fd, SIOCATMARK, (&raw mut mark).expose_provenance()) == 0 && mark != 0 }
}

/// SIOCATMARK (linux/sockios.h).
const SIOCATMARK: libc::c_ulong = 0x8905;

/// SO_RCVTIMEO in milliseconds, as poll counts; -1: none.
fn receive_timeout(fd: c_int) -> c_int {
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut len = size_of::<libc::timeval>() as libc::socklen_t;
    // SAFETY: the value is as long as it says.
    unsafe { real::getsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw mut time).cast(), &raw mut len) };
    match time.tv_sec.saturating_mul(1000).saturating_add(time.tv_usec / 1000) {
        0 if time.tv_usec == 0 => -1,
        ms => c_int::try_from(ms.max(1)).unwrap_or(c_int::MAX),
    }
}

/// What the kernel is asked in the middle of a call of ours ends no thread: the call's end does.
#[cold]
#[inline(never)]
fn by_kernel(fd: c_int, kernel: &dyn Fn(c_int) -> isize) -> Result<Got, Errno> {
    let _masked = Masked::new();
    let count = usize::try_from(kernel(0)).map_err(|_| Errno::last())?;
    fdtable::count_kernel_rx(fd);
    fd_counters::kernel_said(fd, Way::Rx, count.cast_signed());
    Ok(Got::Kernel(count))
}

impl Got {
    /// The call's return value: recv(2) tells a datagram's real length if asked by MSG_TRUNC.
    pub(super) fn count(&self, flags: c_int) -> usize {
        match self {
            Self::Stream(count) | Self::Plain(count) | Self::Kernel(count) | Self::KernelOfTwo(count) => *count,
            Self::Datagram(datagram, ..) if flags & libc::MSG_TRUNC != 0 => datagram.len,
            Self::Datagram(datagram, ..) => datagram.copied,
        }
    }
}

/// Looks up who is to receive. `Err` is the kernel's own result.
#[inline(always)]
pub(super) fn ours(fd: c_int, flags: c_int, kernel: impl FnOnce() -> isize) -> Result<Found, isize> {
    match fdtable::lookup_socket(fd, flags) {
        Ok(found) => Ok(found),
        Err(Entry::Kernel(_)) => {
            let count = kernel();
            if count >= 0 {
                fdtable::count_kernel_rx(fd);
            }
            fd_counters::kernel_said(fd, Way::Rx, count);
            Err(count)
        }
        Err(_) => Err(kernel()),
    }
}

/// read(2).
#[inline(always)]
pub(super) unsafe fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    // SAFETY: the program's promise to read(2). (Where there are flags, it is recv(2) that the kernel is asked for.)
    match unsafe { short::receive(fd, buffer, len, 0, move |extra| real::recv(fd, buffer, len, extra)) } {
        Some(Ok(count)) => count.cast_signed(),
        // SAFETY: the program's promise to read(2).
        other => unsafe { read_at_length(fd, buffer, len, other.and_then(Result::err)) },
    }
}

/// The same. `failed`: it went the short way, and so it ended.
#[inline(never)]
unsafe fn read_at_length(fd: c_int, buffer: *mut c_void, len: size_t, mut failed: Option<Errno>) -> ssize_t {
    crate::receiving_point!({
        if let Some(error) = failed.take() {
            to_ssize(Err(error))
        } else {
            // SAFETY: the program's promise to read(2).
            match ours(fd, 0, || unsafe { real::read(fd, buffer, len) }) {
                Err(result) => result,
                // Linux reads nothing from a socket without asking it, whatever its state (SysV's way); recv(2) asks.
                Ok(_) if len == 0 => 0,
                // SAFETY: the program's promise to read(2). With no flags, recv is read.
                Ok(found) => unsafe { receive_plain(fd, found, buffer, len, 0) },
            }
        }
    })
}

/// recv(2).
#[inline(always)]
pub(super) unsafe fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's promise.
    match unsafe { short::receive(fd, buffer, len, flags, move |extra| real::recv(fd, buffer, len, flags | extra)) } {
        Some(Ok(count)) => count.cast_signed(),
        // SAFETY: the program's promise.
        other => unsafe { recv_at_length(fd, buffer, len, flags, other.and_then(Result::err)) },
    }
}

/// The same. `failed`: it went the short way, and so it ended.
#[inline(never)]
unsafe fn recv_at_length(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, mut failed: Option<Errno>) -> ssize_t {
    crate::receiving_point!(match failed.take() {
        Some(error) => to_ssize(Err(error)),
        // SAFETY: the program's promise.
        None => unsafe { recv_once(fd, buffer, len, flags) },
    })
}

/// recv(2), where callbacks do not run: it stops for them.
///
/// # Safety
/// As recv(2).
#[inline(always)]
pub(super) unsafe fn recv_once(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's promise to recv(2).
    match ours(fd, flags, || unsafe { real::recv(fd, buffer, len, flags) }) {
        Err(result) => result,
        // SAFETY: the program's promise to recv(2).
        Ok(found) => unsafe { receive_plain(fd, found, buffer, len, flags) },
    }
}

#[inline(always)]
unsafe fn receive_plain(fd: c_int, found: Found, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's promise.
    let kernel = |extra| unsafe { real::recv(fd, buffer, len, flags | extra) };
    if buffer.is_null() && len > 0 && flags & libc::MSG_TRUNC != 0 {
        return crate::bare_boundary!(-1, to_ssize(discard(fd, found, len, flags, &kernel)));
    }
    crate::bare_boundary!(
        -1,
        to_ssize(
            writable(buffer, len).and_then(|slice| { receive_here(fd, found, &mut [slice], flags, &kernel).map(|got| got.count(flags)) })
        )
    )
}

/// tcp(7): a stream's MSG_TRUNC discards bytes, so that there need not be a buffer.
#[cold]
fn discard(fd: c_int, found: Found, len: usize, flags: c_int, kernel: &dyn Fn(c_int) -> isize) -> Result<usize, Errno> {
    let Some(process) = process_or_init() else { return by_kernel(fd, kernel).map(|got| got.count(flags)) };
    let guard = process.lock();
    match guard.sockets.find(found.key).map(|s| s.kind) {
        Some(Kind::Stream(id) | Kind::Connecting(id)) => special::discard(process, guard, found.key, id, len, flags),
        _ => {
            drop(guard);
            receive_on(fd, found, &mut [], flags, kernel).map(|got| got.count(flags))
        }
    }
}

/// The buffer as a slice.
pub(super) fn writable<'a>(buffer: *mut c_void, len: size_t) -> Result<IoSliceMut<'a>, Errno> {
    // SAFETY: the program promised `len` writable bytes to the call that leads here.
    unsafe { vectors::writable(buffer, len) }
}

/// readv(2).
#[inline(always)]
pub(super) unsafe fn readv(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program's promise.
    crate::receiving_point!(unsafe { readv_once(fd, buffers, count) })
}

unsafe fn readv_once(fd: c_int, buffers: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program's promise to readv(2).
    let found = match ours(fd, 0, || unsafe { real::readv(fd, buffers, count) }) {
        Err(result) => return result,
        Ok(found) => found,
    };
    let kernel = |extra| {
        // SAFETY: all of it is integers and pointers, for which zero is a value.
        let mut message: msghdr = unsafe { core::mem::zeroed() };
        message.msg_iov = buffers.cast_mut();
        message.msg_iovlen = usize::try_from(count).unwrap_or(0);
        // SAFETY: the program's promise to readv(2); recvmsg without flags is readv.
        unsafe { real::recvmsg(fd, &raw mut message, extra) }
    };
    crate::bare_boundary!(
        -1,
        // SAFETY: the program's promise to readv(2).
        to_ssize(vectors::count(count).and_then(|count| unsafe {
            vectors::with_writable(buffers, count, |into| match into.iter().all(|part| part.is_empty()) {
                // As in `read`.
                true => Ok(0),
                false => receive_on(fd, found, into, 0, &kernel).map(|got| got.count(0)),
            })
        }))
    )
}

/// recvmsg(2).
#[inline(always)]
pub(super) unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    crate::receiving_point!({
        // SAFETY: the program's promise to recvmsg(2).
        let kernel = |extra| unsafe { real::recvmsg(fd, message, flags | extra) };
        match ours(fd, flags, || kernel(0)) {
            Err(result) => result,
            // SAFETY: the program's promise to recvmsg(2).
            Ok(found) => crate::bare_boundary!(-1, to_ssize(unsafe { receive_message(fd, found, message, flags, &kernel) })),
        }
    })
}

unsafe fn receive_message(
    fd: c_int,
    found: Found,
    message: *mut msghdr,
    flags: c_int,
    kernel: &dyn Fn(c_int) -> isize,
) -> Result<usize, Errno> {
    if is_nowhere(message) {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise. The header is only written to after the call has its result.
    let (list, count, room) = unsafe { ((*message).msg_iov, (*message).msg_iovlen, (*message).msg_controllen) };
    // SAFETY: the caller's promise.
    if unsafe { !(*message).msg_name.is_null() && i32::try_from((*message).msg_namelen).is_err() } {
        return Err(Errno(libc::EINVAL));
    }
    if count > vectors::VECTORS_MAX {
        return Err(Errno(libc::EMSGSIZE));
    }
    if flags & MSG_CMSG_COMPAT != 0 {
        return Err(Errno(libc::EINVAL));
    }
    if flags & libc::MSG_ERRQUEUE != 0
        // SAFETY: the caller's promise.
        && let Some(result) = unsafe { receive_completion(found.key, message, flags) }
    {
        return result;
    }
    // SAFETY: the caller's promise.
    let got = unsafe { vectors::with_writable(list, count, |into| receive_on(fd, found, into, flags, kernel)) }?;
    // SAFETY: the caller's promise.
    let header = unsafe { &mut *message };
    match got {
        Got::Kernel(count) => Ok(count),
        Got::KernelOfTwo(count) => {
            let drops = |kernel| drops_of_both(found.key, kernel);
            // SAFETY: the caller's promise; the kernel has filled the room as far as it says.
            unsafe { Control::after_kernel(header, room) }.add_to(SO_RXQ_OVFL, drops);
            Ok(count)
        }
        Got::Stream(count) | Got::Plain(count) => {
            if !header.msg_name.is_null() {
                header.msg_namelen = 0;
            }
            header.msg_flags = flags & libc::MSG_CMSG_CLOEXEC;
            // SAFETY: the caller's promise.
            let mut control = unsafe { Control::new(header) };
            if matches!(got, Got::Stream(_))
                && let Some(Told { asked, times, waiting }) = told_of_stream(found.key, count, flags)
            {
                if let Some((received, by_card)) = times {
                    put_times(&mut control, asked, received, by_card);
                }
                if let Some(waiting) = waiting {
                    control.put(libc::IPPROTO_TCP, TCP_INQ, &waiting.to_ne_bytes());
                }
            }
            control.finish();
            Ok(count)
        }
        Got::Datagram(datagram, family, ancillary, ring) => {
            if !header.msg_name.is_null() {
                // SAFETY: the caller's promise.
                unsafe { sender(&datagram, family, ring).write(header.msg_name.cast(), &raw mut header.msg_namelen)? };
            }
            header.msg_flags = flags & libc::MSG_CMSG_CLOEXEC | if datagram.len > datagram.copied { libc::MSG_TRUNC } else { 0 };
            // SAFETY: the caller's promise.
            unsafe { write_ancillary(header, &datagram, ancillary, ring) };
            Ok(got_count(&datagram, flags))
        }
    }
}

/// What a connection tells beside what is received.
struct Told {
    asked: Ancillary,
    /// When the last byte came: as the ring and the card say. Of no byte there is none (tcp_recvmsg).
    times: Option<(Option<Instant>, Option<Duration>)>,
    /// For TCP_INQ, how much more can be received (tcp_inq_hint): the peer's FIN counts as a byte, also once it was read, so that the program goes on to the end.
    waiting: Option<c_int>,
}

/// What a connection was asked to tell of `count` bytes that were received with those flags just now. (Of those that another thread receives meanwhile, where one does.)
fn told_of_stream(key: Key, count: usize, flags: c_int) -> Option<Told> {
    let process = process()?;
    let mut guard = process.lock();
    let socket = guard.sockets.find(key)?;
    let (asked, id) = (socket.ancillary, socket.ring_id());
    // (A UDP socket whose reading end was shut has no more to tell.)
    if asked == Ancillary::default() || socket.protocol == Protocol::Udp {
        return None;
    }
    let times = (asked.tells_times() && count > 0).then(|| {
        let peeked = if flags & libc::MSG_PEEK != 0 { count } else { 0 };
        let Some((id, at)) = id.and_then(|id| Some((id, guard.rings.of(id).tcp_arrival(id, peeked)?))) else { return (None, None) };
        let by_card = at.hardware_time.filter(|_| asked.hardware_times);
        (Some(at.received), by_card.and_then(|by_card| guard.card_time(id.ring, by_card, at.received)))
    });
    let waiting = asked.inq.then(|| {
        // A connection that has just moved to the kernel may have more: its program is to look.
        let Some(id) = id else { return 1 };
        let now = process.now();
        guard.poll_if_due(now);
        let bytes = guard.rings.of(id).info(id).map_or(0, |info| info.recv_queue);
        let has_ended = guard.rings.of(id).tcp_details(now, id).is_some_and(|details| details.peer_ended);
        c_int::try_from(bytes + usize::from(has_ended)).unwrap_or(c_int::MAX)
    });
    Some(Told { asked, times, waiting })
}

/// The error queue of a connection: completions of sends with MSG_ZEROCOPY, a range at a time, as ip_recv_error tells them.
unsafe fn receive_completion(key: Key, message: *mut msghdr, flags: c_int) -> Option<Result<usize, Errno>> {
    let process = process()?;
    let mut guard = process.lock();
    let socket = guard.sockets.find(key)?;
    let (family, true) = (socket.family, matches!(socket.kind, Kind::Stream(_) | Kind::Connecting(_))) else { return None };
    let Some((first, last)) = special::take_completion(&mut guard, key) else { return Some(Err(Errno(libc::EAGAIN))) };
    drop(guard);
    // struct sock_extended_err: no error; by zero-copying; it was copied; and the range. Behind it the offender's address: nobody's.
    let mut bytes = [0u8; 16 + size_of::<libc::sockaddr_in6>()];
    (bytes[4], bytes[6]) = (5, 1);
    bytes[8..12].copy_from_slice(&first.to_ne_bytes());
    bytes[12..16].copy_from_slice(&last.to_ne_bytes());
    let (level, kind, offender) = match family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_RECVERR, size_of::<libc::sockaddr_in>()),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, size_of::<libc::sockaddr_in6>()),
    };
    // SAFETY: the caller's promise.
    let header = unsafe { &mut *message };
    if !header.msg_name.is_null() {
        header.msg_namelen = 0;
    }
    header.msg_flags = flags & libc::MSG_CMSG_CLOEXEC | libc::MSG_ERRQUEUE;
    // SAFETY: the caller's promise.
    let mut control = unsafe { Control::new(header) };
    control.put(level, kind, &bytes[..16 + offender]);
    control.finish();
    Some(Ok(0))
}

fn got_count(datagram: &Datagram, flags: c_int) -> usize {
    if flags & libc::MSG_TRUNC != 0 { datagram.len } else { datagram.copied }
}

/// Writes the control messages that the socket was asked for.
unsafe fn write_ancillary(header: &mut msghdr, datagram: &Datagram, asked: Ancillary, ring: u16) {
    // SAFETY: the caller's promise: the header's room is the program's.
    let mut control = unsafe { Control::new(header) };
    if asked.tells_times() {
        let by_card = datagram.hardware_time.filter(|_| asked.hardware_times);
        let by_card = by_card.and_then(|at| process()?.lock().card_time(ring, at, datagram.received));
        put_times(&mut control, asked, Some(datagram.received), by_card);
    }
    // (Linux is silent while there were none.)
    if let Some(drops @ 1..) = asked.drops.map(|kernel| kernel.wrapping_add(datagram.drops)) {
        control.put(libc::SOL_SOCKET, SO_RXQ_OVFL, &drops.to_ne_bytes());
    }
    if asked.packet_info
        && let IpAddr::V4(ip) = datagram.to
    {
        let to = ip.octets();
        // struct in_pktinfo: interface index, the address it came to, the one in the header.
        let mut info = [0u8; 12];
        info[..4].copy_from_slice(&interfaces::link_of(ring).to_ne_bytes());
        info[4..8].copy_from_slice(&to);
        info[8..].copy_from_slice(&to);
        control.put(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
    }
    if asked.packet_info6 {
        let mut info = [0u8; 20];
        let to = match datagram.to {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        info[..16].copy_from_slice(&to.octets());
        info[16..].copy_from_slice(&interfaces::link_of(ring).to_ne_bytes());
        control.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
    }
    control.finish();
}

/// The kernel's half of a socket says how many it has dropped: how many that makes with the ring's, modulo 2^32 as in the kernel.
fn drops_of_both(key: Key, kernel: u32) -> u32 {
    let Some(process) = process() else { return kernel };
    let mut guard = process.lock();
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find_mut(key) else { return kernel };
    if kernel != 0
        && let Some(drops) = &mut socket.ancillary.drops
    {
        *drops = kernel;
    }
    // (Not those that a datagram of the ring's will tell of which is read later: the count never falls.)
    let drops = socket.flows().filter_map(|id| offload.rings.of(id).udp_backlog(id)).map(|backlog| backlog.drops);
    let ring = drops.fold(0, u32::wrapping_add);
    kernel.wrapping_add(ring)
}

/// recvmmsg(2).
#[inline(always)]
pub(super) unsafe fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
    let Entry::Socket(key) = fdtable::lookup(fd) else {
        // SAFETY: the program's promise to recvmmsg(2).
        return unsafe { real::recvmmsg(fd, messages, count, flags, timeout) };
    };
    // SAFETY: the program's promise to recvmmsg(2): null, or a time.
    let limit = match unsafe { optional(timeout) }.and_then(from_timespec) {
        Ok(limit) => limit,
        Err(error) => return crate::errno::fail(error.0),
    };
    if let Some(error) = crate::boundary!(None, pending_error(key)) {
        return crate::errno::fail(error.0);
    }
    if is_nowhere(messages) && count > 0 {
        return crate::errno::fail(libc::EFAULT);
    }
    // SAFETY: the program's promise to recvmmsg(2), both times.
    unsafe { messages::receive_each(messages, count, flags, timeout, limit, |message, flags| super::recvmsg(fd, message, flags)) }
}

/// What a stream's connection failed with: Linux's recvmmsg says so first of all (do_recvmmsg), where recvmsg may yet have the
/// stream's end to tell.
fn pending_error(key: Key) -> Option<Errno> {
    let process = process_or_init()?;
    if plain::is_of_datagrams(key) {
        return None;
    }
    let mut guard = process.lock();
    let (Kind::Stream(id) | Kind::Connecting(id)) = guard.sockets.find(key)?.kind else { return None };
    guard.poll_if_due(process.now());
    guard.rings.of_mut(id).take_error(id).map(Errno::from)
}
