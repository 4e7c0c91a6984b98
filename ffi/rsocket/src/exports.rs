//! The C symbols of `rdma/rsocket.h`. Pointers are checked as the kernel does, as far as that can be; what fails returns -1, with errno as the calls document.

use core::ffi::{c_int, c_long, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Once;

use libc::{epoll_event, fd_set, iovec, msghdr, nfds_t, off_t, pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval};
use ringway_preload::errno::{is_nowhere, to_int, to_ssize};
use ringway_preload::sets::Sets;
use ringway_preload::{Errno, Timeout, bare_boundary, log, vectors};

use crate::address;
use crate::calls::{connect, datagram, direct, open, options, poll, repoll, select, stream};
use crate::library::enter;
use crate::table::Family;

const FAULT: Errno = Errno(libc::EFAULT);

/// What a stream's call says of a datagram socket.
const NO_STREAM: Errno = Errno(libc::EOPNOTSUPP);

/// A call that returns a number, or -1.
macro_rules! int {
    ($body:expr) => {
        bare_boundary!(-1, to_int($body))
    };
}

/// A call that returns a count of bytes, or -1.
macro_rules! size {
    ($body:expr) => {
        bare_boundary!(-1, to_ssize($body))
    };
}

/// rsocket(7).
#[unsafe(no_mangle)]
pub extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    static LOG: Once = Once::new();
    // (A program in Rust, which does not come here, has a log of its own.)
    LOG.call_once(|| log::start("RSOCKET_LOG", "rsocket"));
    int!(open::socket(domain, kind, protocol))
}

/// rsocket(7).
///
/// # Safety
/// As bind(2)'s pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbind(socket: c_int, addr: *const sockaddr, addrlen: socklen_t) -> c_int {
    // SAFETY: the program's promise.
    int!(open::bind(socket, |family| unsafe { address::read(addr, addrlen, family) }).map(|()| 0))
}

/// rsocket(7).
#[unsafe(no_mangle)]
pub extern "C" fn rlisten(socket: c_int, backlog: c_int) -> c_int {
    int!(open::listen(socket, backlog).map(|()| 0))
}

/// rsocket(7).
///
/// # Safety
/// As accept(2)'s pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn raccept(socket: c_int, addr: *mut sockaddr, addrlen: *mut socklen_t) -> c_int {
    // SAFETY: the program's promise.
    let accept = || open::accept(socket).and_then(|(fd, peer, family)| unsafe { told(peer, family, addr, addrlen) }.map(|()| fd));
    int!(check_out(addr, addrlen).and_then(|()| accept()))
}

/// rsocket(7).
///
/// # Safety
/// As connect(2)'s pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rconnect(socket: c_int, addr: *const sockaddr, addrlen: socklen_t) -> c_int {
    // SAFETY: the program's promise.
    int!(connect::connect(socket, |family| unsafe { address::read(addr, addrlen, family) }).map(|()| 0))
}

/// rsocket(7).
#[unsafe(no_mangle)]
pub extern "C" fn rshutdown(socket: c_int, how: c_int) -> c_int {
    int!(open::shutdown(socket, how).map(|()| 0))
}

/// rsocket(7).
#[unsafe(no_mangle)]
pub extern "C" fn rclose(socket: c_int) -> c_int {
    int!(open::close(socket).map(|()| 0))
}

/// rsocket(7).
///
/// # Safety
/// As recv(2)'s pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrecv(socket: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's promise.
    size!(unsafe { vectors::writable(buf, len) }.and_then(|mut piece| {
        if flags & libc::MSG_PEEK != 0 {
            return recv(socket, &mut [piece], flags);
        }
        match stream::recv_piece(socket, &mut piece, flags) {
            Err(NO_STREAM) => datagram::recv(socket, &mut [piece], flags).map(|datagram| datagram.len),
            received => received,
        }
    }))
}

/// rsocket(7). A stream has no source to tell of: its length is set to zero.
///
/// # Safety
/// As recvfrom(2)'s pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrecvfrom(
    socket: c_int,
    buf: *mut c_void,
    len: size_t,
    flags: c_int,
    src_addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the program's promise.
    size!(check_out(src_addr, addrlen).and_then(|()| unsafe { vectors::writable(buf, len) }).and_then(|piece| {
        let received = receive(socket, &mut [piece], flags)?;
        // SAFETY: the program's promise.
        unsafe { tell_source(received.source, src_addr, addrlen) }?;
        Ok(received.len)
    }))
}

/// rsocket(7).
///
/// # Safety
/// As recvmsg(2)'s pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rrecvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's promise.
    size!(unsafe { message(msg) }.and_then(|message| {
        // SAFETY: the program's promise.
        let received = unsafe { vectors::with_writable(message.msg_iov, message.msg_iovlen, |pieces| receive(socket, pieces, flags)) }?;
        // SAFETY: the program's promise.
        unsafe { tell_source(received.source, message.msg_name.cast(), &raw mut message.msg_namelen) }?;
        message.msg_flags = if received.is_cut { libc::MSG_TRUNC } else { 0 };
        Ok(received.len)
    }))
}

/// rsocket(7).
///
/// # Safety
/// As read(2)'s pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rread(socket: c_int, buf: *mut c_void, count: size_t) -> ssize_t {
    // SAFETY: the program's promise.
    unsafe { rrecv(socket, buf, count, 0) }
}

/// rsocket(7).
///
/// # Safety
/// As readv(2)'s pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rreadv(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
    let read = |pieces: &mut [IoSliceMut<'_>]| recv(socket, pieces, 0);
    // SAFETY: the program's promise.
    size!(vectors::count(iovcnt).and_then(|count| unsafe { vectors::with_writable(iov, count, read) }))
}

/// rsocket(7).
///
/// # Safety
/// As send(2)'s pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsend(socket: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's promise.
    size!(unsafe { vectors::readable(buf, len) }.and_then(|piece| {
        match stream::send_piece(socket, &piece, flags) {
            Err(NO_STREAM) => datagram::send(socket, &[piece], flags, None),
            sent => sent,
        }
    }))
}

/// rsocket(7). EISCONN: a stream's bytes go to its peer, and nobody else can be named.
///
/// # Safety
/// As sendto(2)'s pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsendto(
    socket: c_int,
    buf: *const c_void,
    len: size_t,
    flags: c_int,
    dest_addr: *const sockaddr,
    addrlen: socklen_t,
) -> ssize_t {
    if dest_addr.is_null() {
        // SAFETY: the program's promise.
        return unsafe { rsend(socket, buf, len, flags) };
    }
    // SAFETY: the program's promise.
    size!(unsafe { vectors::readable(buf, len) }.and_then(|piece| {
        // SAFETY: the program's promise.
        let to = unsafe { destination(socket, dest_addr, addrlen) }?;
        datagram::send(socket, &[piece], flags, Some(to))
    }))
}

/// rsocket(7).
///
/// # Safety
/// As sendmsg(2)'s pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's promise; it is only read.
    size!(unsafe { message(msg.cast_mut()) }.and_then(|message| {
        let to = if message.msg_name.is_null() {
            None
        } else {
            // SAFETY: the program's promise.
            Some(unsafe { destination(socket, message.msg_name.cast(), message.msg_namelen) }?)
        };
        let send = |pieces: &[IoSlice<'_>]| match to {
            None => send(socket, pieces, flags),
            to => datagram::send(socket, pieces, flags, to),
        };
        // SAFETY: the program's promise.
        unsafe { vectors::with_readable(message.msg_iov, message.msg_iovlen, send) }
    }))
}

/// rsocket(7).
///
/// # Safety
/// As write(2)'s pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rwrite(socket: c_int, buf: *const c_void, count: size_t) -> ssize_t {
    // SAFETY: the program's promise.
    unsafe { rsend(socket, buf, count, 0) }
}

/// rsocket(7).
///
/// # Safety
/// As writev(2)'s pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rwritev(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
    let write = |pieces: &[IoSlice<'_>]| send(socket, pieces, 0);
    // SAFETY: the program's promise.
    size!(vectors::count(iovcnt).and_then(|count| unsafe { vectors::with_readable(iov, count, write) }))
}

/// rsocket(7).
///
/// # Safety
/// As poll(2)'s pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rpoll(fds: *mut pollfd, nfds: nfds_t, timeout: c_int) -> c_int {
    int!({
        let count = usize::try_from(nfds).unwrap_or(usize::MAX);
        if count > 0 && is_nowhere(fds) {
            Err(FAULT)
        } else if count > FDS_MAX {
            Err(Errno(libc::EINVAL))
        } else {
            // SAFETY: the program's promise.
            let fds = if count == 0 { &mut [] } else { unsafe { core::slice::from_raw_parts_mut(fds, count) } };
            poll::poll(fds, ringway_preload::timeout::from_ms(timeout)).map(|ready| ready as c_int)
        }
    })
}

/// rsocket(7).
///
/// # Safety
/// As select(2)'s pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rselect(
    nfds: c_int,
    readfds: *mut fd_set,
    writefds: *mut fd_set,
    exceptfds: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    int!({
        usize::try_from(nfds).ok().filter(|count| *count <= FDS_MAX).ok_or(Errno(libc::EINVAL)).and_then(|count| {
            // SAFETY: the program's promise.
            let mut sets = unsafe { Sets::new(count, [readfds, writefds, exceptfds]) };
            // SAFETY: the program's promise.
            let timeout = unsafe { Timeout::Timeval(timeout).read() }?;
            select::select(&mut sets, timeout).map(|ready| ready as c_int)
        })
    })
}

/// epoll_create1(2) for rsockets and other descriptors.
#[unsafe(no_mangle)]
pub extern "C" fn repoll_create(flags: c_int) -> c_int {
    int!(repoll::create(flags))
}

/// epoll_ctl(2).
///
/// # Safety
/// As epoll_ctl(2)'s pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn repoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    // SAFETY: the program's promise.
    let event = if is_nowhere(event) { None } else { Some(unsafe { event.read_unaligned() }) };
    int!(repoll::control(epfd, op, fd, event).map(|()| 0))
}

/// epoll_wait(2).
///
/// # Safety
/// As epoll_wait(2)'s pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn repoll_wait(epfd: c_int, events: *mut epoll_event, maxevents: c_int, timeout: c_int) -> c_int {
    int!({
        let count = usize::try_from(maxevents).unwrap_or(0);
        if count == 0 || count > FDS_MAX {
            Err(Errno(libc::EINVAL))
        } else if is_nowhere(events) {
            Err(FAULT)
        } else {
            // SAFETY: the program's promise.
            let events = unsafe { core::slice::from_raw_parts_mut(events, count) };
            repoll::wait(epfd, events, ringway_preload::timeout::from_ms(timeout)).map(|ready| ready as c_int)
        }
    })
}

/// Descriptors in one call: as many as RLIMIT_NOFILE can allow (fs.nr_open's default).
const FDS_MAX: usize = 1 << 20;

/// rsocket(7).
///
/// # Safety
/// As getpeername(2)'s pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgetpeername(socket: c_int, addr: *mut sockaddr, addrlen: *mut socklen_t) -> c_int {
    // SAFETY: the program's promise.
    int!(open::remote(socket).and_then(|(name, family)| unsafe { name_told(name, family, addr, addrlen) }))
}

/// rsocket(7).
///
/// # Safety
/// As getsockname(2)'s pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgetsockname(socket: c_int, addr: *mut sockaddr, addrlen: *mut socklen_t) -> c_int {
    // SAFETY: the program's promise.
    int!(open::local(socket).and_then(|(name, family)| unsafe { name_told(name, family, addr, addrlen) }))
}

/// rsocket(7).
///
/// # Safety
/// As setsockopt(2)'s pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rsetsockopt(socket: c_int, level: c_int, optname: c_int, optval: *const c_void, optlen: socklen_t) -> c_int {
    int!(check(socket).and_then(|()| {
        // SAFETY: the program's promise.
        let value = unsafe { vectors::readable(optval, optlen as usize) }?;
        options::set(socket, level, optname, &value).map(|()| 0)
    }))
}

/// rsocket(7).
///
/// # Safety
/// As getsockopt(2)'s pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rgetsockopt(socket: c_int, level: c_int, optname: c_int, optval: *mut c_void, optlen: *mut socklen_t) -> c_int {
    int!(check(socket).and_then(|()| {
        if is_nowhere(optlen) || is_nowhere(optval) {
            return Err(FAULT);
        }
        let value = options::get(socket, level, optname)?;
        // SAFETY: the program's promise: `optlen` bytes at `optval`.
        unsafe {
            let len = (optlen.read_unaligned() as usize).min(value.len());
            core::ptr::copy_nonoverlapping(value.as_ptr(), optval.cast(), len);
            optlen.write_unaligned(len as socklen_t);
        }
        Ok(0)
    }))
}

/// rsocket(7). (C passes a third argument or none: where there is none, `arg` is not looked at.)
#[unsafe(no_mangle)]
pub extern "C" fn rfcntl(socket: c_int, cmd: c_int, arg: c_long) -> c_int {
    int!(options::control(socket, cmd, arg))
}

/// rsocket(7).
///
/// # Safety
/// The buffer is the program's own, until riounmap or rclose.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn riomap(socket: c_int, buf: *mut c_void, len: size_t, prot: c_int, _flags: c_int, offset: off_t) -> off_t {
    // SAFETY: the program's promise.
    let mapped = bare_boundary!(Err(Errno(libc::EIO)), unsafe { direct::map(socket, buf.cast(), len, prot, offset) });
    match mapped {
        Ok(offset) => offset,
        Err(Errno(code)) => off_t::from(ringway_preload::errno::fail(code)),
    }
}

/// rsocket(7).
#[unsafe(no_mangle)]
pub extern "C" fn riounmap(socket: c_int, buf: *mut c_void, len: size_t) -> c_int {
    int!(direct::unmap(socket, buf.addr(), len).map(|()| 0))
}

/// rsocket(7).
///
/// # Safety
/// As write(2)'s pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn riowrite(socket: c_int, buf: *const c_void, count: size_t, offset: off_t, flags: c_int) -> size_t {
    // SAFETY: the program's promise.
    let written = size!(unsafe { vectors::readable(buf, count) }.and_then(|bytes| direct::write(socket, &bytes, offset, flags)));
    written.cast_unsigned()
}

/// Sends by a stream, or a datagram to whom its socket was connected.
fn send(fd: c_int, pieces: &[IoSlice<'_>], flags: c_int) -> Result<usize, Errno> {
    match stream::send(fd, pieces, flags) {
        Err(NO_STREAM) => datagram::send(fd, pieces, flags, None),
        sent => sent,
    }
}

/// What was received.
struct Received {
    len: usize,
    /// A datagram was longer than there was room for.
    is_cut: bool,
    /// Whose a datagram is, and the socket's family.
    source: Option<(SocketAddr, Family)>,
}

fn receive(fd: c_int, pieces: &mut [IoSliceMut<'_>], flags: c_int) -> Result<Received, Errno> {
    match stream::recv(fd, pieces, flags) {
        Err(NO_STREAM) => datagram::recv(fd, pieces, flags).map(|datagram| Received {
            len: datagram.len,
            is_cut: datagram.len < datagram.whole,
            source: Some((datagram.from, datagram.family)),
        }),
        received => received.map(|len| Received { len, is_cut: false, source: None }),
    }
}

fn recv(fd: c_int, pieces: &mut [IoSliceMut<'_>], flags: c_int) -> Result<usize, Errno> {
    receive(fd, pieces, flags).map(|received| received.len)
}

/// # Safety
/// As [`address::write`].
unsafe fn tell_source(source: Option<(SocketAddr, Family)>, addr: *mut sockaddr, len: *mut socklen_t) -> Result<(), Errno> {
    match source {
        // SAFETY: the caller's promise.
        Some((from, family)) => unsafe { address::write(from, family, addr, len) },
        None if is_nowhere(len) => Ok(()),
        None => {
            // SAFETY: the caller's promise: it leads to a length.
            unsafe { len.write_unaligned(0) };
            Ok(())
        }
    }
}

/// To whom a datagram is to go.
///
/// # Safety
/// As [`address::read`].
unsafe fn destination(fd: c_int, addr: *const sockaddr, len: socklen_t) -> Result<SocketAddr, Errno> {
    let family = {
        let mut library = enter()?;
        let entry = library.entry(fd)?;
        if entry.stream().is_ok() {
            return Err(Errno(libc::EISCONN));
        }
        entry.family
    };
    // SAFETY: the caller's promise.
    unsafe { address::read(addr, len, family) }
}

/// Whether a descriptor is an rsocket's.
fn check(fd: c_int) -> Result<(), Errno> {
    enter()?.entry(fd).map(|_| ())
}

/// Whether an address can be told there, if it is wanted.
fn check_out(addr: *mut sockaddr, len: *mut socklen_t) -> Result<(), Errno> {
    if !addr.is_null() && (is_nowhere(addr) || is_nowhere(len)) { Err(FAULT) } else { Ok(()) }
}

/// # Safety
/// As [`address::write`].
unsafe fn told(name: SocketAddr, family: Family, addr: *mut sockaddr, len: *mut socklen_t) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { address::write(name, family, addr, len) }
}

/// A name that must be told.
///
/// # Safety
/// As [`address::write`].
unsafe fn name_told(name: SocketAddr, family: Family, addr: *mut sockaddr, len: *mut socklen_t) -> Result<c_int, Errno> {
    if is_nowhere(addr) {
        return Err(FAULT);
    }
    // SAFETY: the caller's promise.
    unsafe { address::write(name, family, addr, len) }.map(|()| 0)
}

/// A message's header, without control data, of which rsockets have none.
///
/// # Safety
/// It leads nowhere, or to a header that nobody else uses meanwhile.
unsafe fn message<'a>(msg: *mut msghdr) -> Result<&'a mut msghdr, Errno> {
    if is_nowhere(msg) {
        return Err(FAULT);
    }
    // SAFETY: the caller's promise.
    let message = unsafe { &mut *msg };
    if !message.msg_control.is_null() && message.msg_controllen > 0 {
        return Err(Errno(libc::ENOTSUP));
    }
    Ok(message)
}
