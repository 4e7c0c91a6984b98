//! What each call of libc's comes to.

use core::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use libc::{
    epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off64_t, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec,
};
use ringway_preload::errno::{THEIRS, is_nowhere, optional, to_int};
use ringway_preload::sets::Sets;
use ringway_preload::{Errno, Intercept, Timeout, boundary, errno, messages as several, next};
use rsocket::api;

use crate::socket::{self, Socket, State, forgotten};
use crate::table::{self, is_internal};
use crate::{Rspreload, datagram, epoll, fork, handover, messages, options, poll, stdio};

/// Descriptors in one call: as many as RLIMIT_NOFILE can allow (fs.nr_open's default).
const FDS_MAX: usize = 1 << 20;

/// What a call returned: a descriptor that is none of those it was before, or a failure.
#[inline]
fn new(fd: c_int) -> c_int {
    if fd >= 0 && table::is_known(fd) {
        boundary!((), forgotten(fd));
    }
    fd
}

/// Has `body` do it, unless it says that it is the kernel's to do.
fn unless_theirs(kernel: impl Fn() -> c_int, body: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    match boundary!(Err(Errno(libc::EIO)), body()) {
        Err(THEIRS) => kernel(),
        result => to_int(result),
    }
}

/// A descriptor gets the number of another one, which is closed by that.
fn onto(old: c_int, target: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    if !table::is_owner() {
        return kernel();
    }
    if is_internal(target) {
        return errno::fail(libc::EBADF);
    }
    let copy = kernel();
    if copy >= 0 && old != target {
        boundary!((), options::duplicated(old, copy));
    }
    copy
}

/// Calls `body` with the parts of a range of descriptors between the library's own, until one fails.
fn around_internals(first: c_uint, last: c_uint, mut body: impl FnMut(c_uint, c_uint) -> c_int) -> c_int {
    let mut from = first;
    for fd in (first..=last.min(FDS_MAX as c_uint)).filter(|&fd| is_internal(fd.cast_signed())) {
        if fd > from && body(from, fd - 1) != 0 {
            return -1;
        }
        from = fd + 1;
    }
    if from <= last { body(from, last) } else { 0 }
}

fn close_tracked(first: c_uint, last: c_uint) {
    let tracked: Vec<c_int> = {
        let table = table::lock();
        let all = table.sockets.keys().chain(table.epolls.keys());
        all.copied().filter(|fd| (first..=last).contains(&fd.cast_unsigned())).collect()
    };
    tracked.into_iter().for_each(forgotten);
}

/// A name that is told where the program wants it.
///
/// # Safety
/// As getsockname(2).
unsafe fn name(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    kernel: impl Fn() -> c_int,
    of: fn(c_int) -> Result<std::net::SocketAddr, Errno>,
) -> c_int {
    let Some(socket) = table::socket(fd) else { return kernel() };
    if socket.keeps_names.load(Ordering::Relaxed) {
        return kernel();
    }
    unless_theirs(kernel, || {
        let (State::Connected(key) | State::Connecting(key)) = socket.state() else {
            return if socket.is_datagram { peer_of(&socket, of, address, len) } else { Err(THEIRS) };
        };
        if is_nowhere(address) {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the caller's promise.
        unsafe { api::write_address(of(key)?, socket.family, address, len) }.map(|()| 0)
    })
}

/// A datagram socket's own name is the kernel's to tell; its peer's is not.
fn peer_of(
    socket: &Socket,
    of: fn(c_int) -> Result<std::net::SocketAddr, Errno>,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> Result<c_int, Errno> {
    let is_peer = core::ptr::fn_addr_eq(of, api::remote as fn(c_int) -> Result<std::net::SocketAddr, Errno>);
    let (State::Datagram(_), true) = (socket.state(), is_peer) else { return Err(THEIRS) };
    let to = socket.more().to.ok_or(Errno(libc::ENOTCONN))?;
    // SAFETY: the program's promise to getpeername(2).
    unsafe { api::write_address(to, socket.family, address, len) }.map(|()| 0)
}

impl Intercept for Rspreload {
    fn loaded() {
        ringway_preload::log::start("RSPRELOAD_LOG", "rspreload");
        table::own();
        fork::install();
    }

    fn is_known(fd: c_int) -> bool {
        table::is_known(fd)
    }

    fn is_socket(fd: c_int) -> bool {
        table::socket(fd).is_some_and(|socket| socket.key().is_some())
    }

    unsafe fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        // SAFETY: plain integers.
        let fd = unsafe { next::socket(domain, kind, protocol) };
        if fd >= 0 {
            boundary!((), socket::made(fd, domain, kind, protocol));
        }
        fd
    }

    unsafe fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
        // SAFETY: the program's promise to bind(2).
        let bound = unsafe { next::bind(fd, address, len) };
        if let Some(socket) = table::socket(fd)
            && bound == 0
            && socket.is_datagram
            && socket.state() == State::Fresh
        {
            boundary!((), datagram::bound(fd, &socket));
        }
        bound
    }

    unsafe fn listen(fd: c_int, backlog: c_int) -> c_int {
        // SAFETY: plain integers.
        let done = unsafe { next::listen(fd, backlog) };
        if let Some(socket) = table::socket(fd)
            && done == 0
        {
            boundary!((), socket::listening(fd, &socket, backlog));
        }
        done
    }

    unsafe fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
        // SAFETY: the program's promise to connect(2).
        let kernel = || unsafe { next::connect(fd, address, len) };
        let Some(socket) = table::socket(fd) else { return kernel() };
        unless_theirs(kernel, || {
            if let State::Listening(_) | State::Kernel | State::Lost | State::ForkActive | State::ForkPassive = socket.state() {
                return Err(THEIRS);
            }
            if socket::look_at_connecting(fd, &socket) {
                return Err(THEIRS);
            }
            // SAFETY: the program's promise to connect(2).
            let Ok(to) = (unsafe { api::read_address(address, len, socket.family) }) else { return Err(THEIRS) };
            match socket.state() {
                _ if socket.is_datagram => datagram::connect(fd, &socket, to).map(|()| 0),
                // (It says itself that it is connected, or about to be.)
                State::Connecting(key) | State::Connected(key) => api::connect(key, to).map(|()| 0),
                _ => socket::connect(fd, &socket, to).map(|()| 0),
            }
        })
    }

    unsafe fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int, next: impl Fn() -> c_int) -> c_int {
        let Some(socket) = table::socket(fd).filter(|socket| matches!(socket.state(), State::Listening(_))) else { return new(next()) };
        loop {
            let accepted = boundary!(Err(Errno(libc::EIO)), {
                match !address.is_null() && (is_nowhere(address) || is_nowhere(len)) {
                    true => Err(Errno(libc::EFAULT)),
                    false => socket::accept(fd, &socket, flags),
                }
            });
            match accepted {
                Ok((fd, peer)) => {
                    // SAFETY: the program's promise to accept(2).
                    let _ = unsafe { api::write_address(peer, socket.family, address, len) };
                    return fd;
                }
                Err(THEIRS) => {
                    let fd = next();
                    if fd >= 0 {
                        boundary!((), socket::accepted_by_kernel(&socket, fd, flags));
                        return fd;
                    }
                    // (Another process has taken it.)
                    if errno::current() != libc::EAGAIN || !socket.blocks() {
                        return fd;
                    }
                }
                Err(error) => return to_int(Err(error)),
            }
        }
    }

    unsafe fn shutdown(fd: c_int, how: c_int) -> c_int {
        // SAFETY: plain integers.
        boundary!(Some(-1), options::shutdown(fd, how)).unwrap_or_else(|| unsafe { next::shutdown(fd, how) })
    }

    unsafe fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
        // SAFETY: the program's promise to getsockname(2).
        unsafe { name(fd, address, len, || next::getsockname(fd, address, len), api::local) }
    }

    unsafe fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
        // SAFETY: the program's promise to getpeername(2).
        unsafe { name(fd, address, len, || next::getpeername(fd, address, len), api::remote) }
    }

    unsafe fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int {
        // SAFETY: the program's promise to getsockopt(2).
        unsafe { options::get(fd, level, name, value, len).unwrap_or_else(|| next::getsockopt(fd, level, name, value, len)) }
    }

    unsafe fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int {
        // SAFETY: the program's promise to setsockopt(2).
        unsafe { options::set(fd, level, name, value, len) }
    }

    unsafe fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
        // SAFETY: the program's promise to read(2).
        unsafe { messages::recv(fd, buffer, len, 0).unwrap_or_else(|| next::read(fd, buffer, len)) }
    }

    unsafe fn readv(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: the program's promise to readv(2).
        unsafe { messages::readv(fd, vectors, count).unwrap_or_else(|| next::readv(fd, vectors, count)) }
    }

    unsafe fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
        // SAFETY: the program's promise to recv(2).
        unsafe { messages::recv(fd, buffer, len, flags).unwrap_or_else(|| next::recv(fd, buffer, len, flags)) }
    }

    unsafe fn recvfrom(
        fd: c_int,
        buffer: *mut c_void,
        len: size_t,
        flags: c_int,
        from: *mut sockaddr,
        from_len: *mut socklen_t,
    ) -> ssize_t {
        // SAFETY: the program's promise to recvfrom(2).
        unsafe {
            messages::recvfrom(fd, buffer, len, flags, from, from_len)
                .unwrap_or_else(|| next::recvfrom(fd, buffer, len, flags, from, from_len))
        }
    }

    unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        // SAFETY: the program's promise to recvmsg(2).
        unsafe { messages::recvmsg(fd, message, flags).unwrap_or_else(|| next::recvmsg(fd, message, flags)) }
    }

    unsafe fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
        let is_ours = table::socket(fd).is_some_and(|socket| socket.key().is_some());
        if !is_ours || count > 0 && is_nowhere(messages) {
            // SAFETY: the program's promise to recvmmsg(2).
            return unsafe { next::recvmmsg(fd, messages, count, flags, timeout) };
        }
        // SAFETY: the program's promise to recvmmsg(2).
        match unsafe { Timeout::Timespec(timeout).read() } {
            // SAFETY: as above.
            Ok(limit) => unsafe {
                several::receive_each(messages, count, flags, timeout, limit, |message, flags| Self::recvmsg_of(fd, message, flags))
            },
            Err(error) => to_int(Err(error)),
        }
    }

    unsafe fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
        // SAFETY: the program's promise to write(2).
        unsafe { messages::send(fd, buffer, len, 0).unwrap_or_else(|| next::write(fd, buffer, len)) }
    }

    unsafe fn writev(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: the program's promise to writev(2).
        unsafe { messages::writev(fd, vectors, count).unwrap_or_else(|| next::writev(fd, vectors, count)) }
    }

    unsafe fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t {
        // SAFETY: the program's promise to send(2).
        unsafe { messages::send(fd, buffer, len, flags).unwrap_or_else(|| next::send(fd, buffer, len, flags)) }
    }

    unsafe fn sendto(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, to_len: socklen_t) -> ssize_t {
        // SAFETY: the program's promise to sendto(2).
        unsafe { messages::sendto(fd, buffer, len, flags, to, to_len).unwrap_or_else(|| next::sendto(fd, buffer, len, flags, to, to_len)) }
    }

    unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        // SAFETY: the program's promise to sendmsg(2).
        unsafe { messages::sendmsg(fd, message, flags).unwrap_or_else(|| next::sendmsg(fd, message, flags)) }
    }

    unsafe fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        if table::socket(fd).is_none() || count > 0 && is_nowhere(messages) {
            // SAFETY: the program's promise to sendmmsg(2).
            return unsafe { next::sendmmsg(fd, messages, count, flags) };
        }
        // SAFETY: the program's promise to sendmmsg(2).
        unsafe { several::send_each(messages, count, |message| Self::sendmsg_of(fd, message, flags)) }
    }

    unsafe fn sendfile(out: c_int, input: c_int, offset: *mut off64_t, count: size_t) -> ssize_t {
        // SAFETY: the program's promise to sendfile(2).
        unsafe { messages::sendfile(out, input, offset, count).unwrap_or_else(|| next::sendfile(out, input, offset, count)) }
    }

    unsafe fn splice(input: c_int, at: *mut off64_t, output: c_int, to: *mut off64_t, len: size_t, flags: c_uint) -> ssize_t {
        // (As with what the kernel cannot splice: programs read and write then.)
        if Self::is_socket(input) || Self::is_socket(output) {
            return errno::fail(libc::EINVAL) as ssize_t;
        }
        // SAFETY: the program's promise to splice(2).
        unsafe { next::splice(input, at, output, to, len, flags) }
    }

    unsafe fn poll(fds: *mut pollfd, count: nfds_t, timeout: Timeout, mask: *const sigset_t, next: impl Fn() -> c_int) -> c_int {
        let len = usize::try_from(count).unwrap_or(usize::MAX);
        if len == 0 || len > FDS_MAX || is_nowhere(fds) {
            return next();
        }
        unless_theirs(next, || {
            // SAFETY: the program's promise to poll(2).
            let fds = unsafe { core::slice::from_raw_parts_mut(fds, len) };
            if !fds.iter().any(|entry| poll::concerns(entry.fd)) {
                return Err(THEIRS);
            }
            // SAFETY: as above.
            let (timeout, mask) = unsafe { (timeout.read()?, optional(mask)?) };
            poll::poll(fds, timeout, mask).map(|ready| ready as c_int)
        })
    }

    unsafe fn select(count: c_int, sets: [*mut fd_set; 3], timeout: Timeout, mask: *const sigset_t, next: impl Fn() -> c_int) -> c_int {
        let len = usize::try_from(count).unwrap_or(usize::MAX);
        if len > FDS_MAX || sets.iter().any(|set| !set.is_null() && is_nowhere(*set)) {
            return next();
        }
        unless_theirs(next, || {
            // SAFETY: the program's promise to select(2).
            let mut sets = unsafe { Sets::new(len, sets) };
            if !sets.any(poll::concerns) {
                return Err(THEIRS);
            }
            // SAFETY: as above.
            let (limit, mask) = unsafe { (timeout.read()?, optional(mask)?) };
            let began = Instant::now();
            let ready = poll::select(&mut sets, limit, mask);
            if let Some(limit) = limit {
                // SAFETY: as above.
                unsafe { timeout.write_left(limit.checked_sub(began.elapsed()).unwrap_or(Duration::ZERO)) };
            }
            ready.map(|ready| ready as c_int)
        })
    }

    fn epoll_create(next: impl Fn() -> c_int) -> c_int {
        let fd = new(next());
        if fd >= 0 && table::is_owner() {
            boundary!((), table::lock().insert_epoll(fd));
        }
        fd
    }

    unsafe fn epoll_ctl(instance: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        // SAFETY: the program's promise to epoll_ctl(2).
        let asked = if is_nowhere(event) { None } else { Some(unsafe { event.read_unaligned() }) };
        match boundary!(Some(Err(Errno(libc::EIO))), epoll::control(instance, operation, fd, asked)) {
            Some(done) => to_int(done.map(|()| 0)),
            // SAFETY: the program's promise to epoll_ctl(2).
            None => unsafe { next::epoll_ctl(instance, operation, fd, event) },
        }
    }

    unsafe fn epoll_wait(
        instance: c_int,
        events: *mut epoll_event,
        count: c_int,
        timeout: Timeout,
        mask: *const sigset_t,
        next: impl Fn() -> c_int,
    ) -> c_int {
        if !table::is_epoll(instance) || !table::is_owner() {
            return next();
        }
        to_int(boundary!(Err(Errno(libc::EIO)), {
            // SAFETY: the program's promise to epoll_wait(2).
            unsafe { timeout.read().and_then(|timeout| epoll::wait(instance, events, count, timeout, optional(mask)?, next)) }
                .map(|ready| ready as c_int)
        }))
    }

    unsafe fn close(fd: c_int) -> c_int {
        if is_internal(fd) && table::is_owner() {
            // The program cannot mean it: it was never given that number.
            return errno::fail(libc::EBADF);
        }
        if table::is_known(fd) {
            boundary!((), forgotten(fd));
        }
        // SAFETY: plain integers.
        unsafe { next::close(fd) }
    }

    unsafe fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        const CLOEXEC: c_int = 4;
        // SAFETY: plain integers.
        let kernel = |first, last| unsafe { next::close_range(first, last, flags) };
        if first > last || flags & CLOEXEC != 0 || !table::is_owner() {
            return kernel(first, last);
        }
        boundary!((), close_tracked(first, last));
        around_internals(first, last, kernel)
    }

    unsafe fn closefrom(first: c_int) {
        // SAFETY: plain integers.
        unsafe { <Self as Intercept>::close_range(c_uint::try_from(first).unwrap_or(0), c_uint::MAX, 0) };
    }

    unsafe fn dup(fd: c_int) -> c_int {
        // SAFETY: plain integers.
        let copy = unsafe { next::dup(fd) };
        if copy >= 0 && (table::is_known(fd) || table::is_known(copy)) && table::is_owner() {
            boundary!((), options::duplicated(fd, copy));
        }
        copy
    }

    unsafe fn dup2(old: c_int, new: c_int) -> c_int {
        // SAFETY: plain integers.
        onto(old, new, || unsafe { next::dup2(old, new) })
    }

    unsafe fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
        // SAFETY: plain integers.
        onto(old, new, || unsafe { next::dup3(old, new, flags) })
    }

    unsafe fn fcntl(fd: c_int, command: c_int, argument: usize, next: impl Fn() -> c_int) -> c_int {
        let copies = matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC);
        if !table::is_known(fd) {
            return if copies { new(next()) } else { next() };
        }
        boundary!(-1, options::control(fd, command, argument, next))
    }

    unsafe fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
        // SAFETY: the program's promise to ioctl(2).
        unsafe { options::ioctl(fd, request, argument).unwrap_or_else(|| next::ioctl(fd, request, argument)) }
    }

    fn open(next: impl Fn() -> c_int) -> c_int {
        new(next())
    }

    unsafe fn open_pair(ends: *const c_int, next: impl Fn() -> c_int) -> c_int {
        let result = next();
        if result == 0 {
            // SAFETY: the kernel wrote both just now.
            let (first, second) = unsafe { (ends.read_unaligned(), ends.add(1).read_unaligned()) };
            new(first);
            new(second);
        }
        result
    }

    unsafe fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void {
        // SAFETY: the program's promise to fdopen(3).
        unsafe { stdio::fdopen(fd, mode) }
    }

    unsafe fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        if table::socket(fd).is_none() {
            // SAFETY: the program's promise to vdprintf(3).
            return unsafe { next::vdprintf(fd, format, arguments) };
        }
        // SAFETY: as above.
        unsafe { stdio::vdprintf(fd, format, arguments) }
    }

    unsafe fn vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        if table::socket(fd).is_none() {
            // SAFETY: the program's promise to vdprintf(3).
            return unsafe { next::vdprintf_chk(fd, flag, format, arguments) };
        }
        // SAFETY: as above.
        unsafe { stdio::vdprintf(fd, format, arguments) }
    }

    unsafe fn posix_spawn_file_actions_adddup2(actions: *mut c_void, old: c_int, new: c_int) -> c_int {
        if let Some(socket) = table::socket(old)
            && socket.state() == State::ForkPassive
        {
            boundary!((), handover::stay(old, &socket));
        }
        // SAFETY: the program's promise to posix_spawn_file_actions_adddup2(3).
        unsafe { next::posix_spawn_file_actions_adddup2(actions, old, new) }
    }

    fn before_exec() {
        if table::is_owner() {
            fork::before_exec();
        }
    }

    fn after_exec() {
        if table::is_owner() {
            fork::after_exec();
        }
    }

    fn before_exit() {
        if table::is_owner() {
            fork::before_exit();
        }
    }
}

impl Rspreload {
    unsafe fn recvmsg_of(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        // SAFETY: the caller's promise, that of recvmsg(2).
        unsafe { <Self as ringway_preload::Exports>::recvmsg(fd, message, flags) }
    }

    unsafe fn sendmsg_of(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        // SAFETY: the caller's promise, that of sendmsg(2).
        unsafe { <Self as ringway_preload::Exports>::sendmsg(fd, message, flags) }
    }
}
