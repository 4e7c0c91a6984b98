//! System calls, made directly.
//!
//! This crate lives inside a library that stands in front of libc's `socket`, `poll`, `close` and the rest; calling those
//! from here would call back into that library. `libc::syscall` goes past it: it looks whether its first argument is a socket of the
//! program's, which this crate's descriptors never are, and passes everything else on.

use core::ffi::{CStr, c_long};
use core::mem::{self, MaybeUninit};
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use arrayvec::ArrayVec;
use ringway_host::numbers;
use rustix::net::SendFlags;

use crate::fd::Fd;

/// The most descriptors that one greeting carries.
pub(crate) const PASSED_MAX: usize = 3;
/// asm-generic/socket.h
const SO_PASSRIGHTS: i32 = 83;
/// Room for one descriptor more than a greeting has, so that a surplus is noticed (and closed).
const CONTROL_BYTES: usize = 64;

fn check(result: c_long) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

fn retry(mut call: impl FnMut() -> c_long) -> io::Result<i32> {
    loop {
        match check(call()) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Where a test may end this process: before a call by which peers learn something of it.
#[inline]
fn visible() {
    #[cfg(test)]
    crate::store_hook::before_call();
}

pub(crate) fn pid() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_getpid) as i32 }
}

/// Of the clock that nobody sets.
pub(crate) fn monotonic_seconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    u64::try_from(now.tv_sec).unwrap_or(0)
}

pub(crate) fn effective_uid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_geteuid) as u32 }
}

/// Moves a descriptor to a number of at least `least`, close-on-exec. If there is no room, it stays where it is.
pub(crate) fn move_above(fd: i32, least: i32) -> i32 {
    // SAFETY: plain integers.
    match check(unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_DUPFD_CLOEXEC, least) }) {
        Ok(high) => {
            close(fd);
            high
        }
        Err(_) => fd,
    }
}

pub(crate) fn close(fd: i32) {
    visible();
    // SAFETY: the caller owns the number.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

pub(crate) fn random_u64() -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    // SAFETY: `bytes` is writable for its length. Reads of up to 256 bytes are never cut short (getrandom(2)).
    retry(|| unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), 0) })?;
    Ok(u64::from_ne_bytes(bytes))
}

pub(crate) fn memfd_create(name: &CStr) -> io::Result<Fd> {
    /// Linux 6.3; older kernels answer EINVAL.
    const MFD_NOEXEC_SEAL: u32 = 8;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: `name` is a C string.
    let call = |flags: u32| check(unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), flags) });
    Fd::make(|| match call(flags | MFD_NOEXEC_SEAL) {
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => call(flags),
        result => result,
    })
}

pub(crate) fn ftruncate(fd: &Fd, len: usize) -> io::Result<()> {
    // SAFETY: no memory is involved.
    retry(|| unsafe { libc::syscall(libc::SYS_ftruncate, fd.raw(), len) }).map(drop)
}

pub(crate) fn add_seals(fd: &Fd, seals: i32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::syscall(libc::SYS_fcntl, fd.raw(), libc::F_ADD_SEALS, seals) }).map(drop)
}

pub(crate) fn seals(fd: &Fd) -> io::Result<i32> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::syscall(libc::SYS_fcntl, fd.raw(), libc::F_GET_SEALS) })
}

/// Whether it is a memory file: no other has seals (fcntl(2)).
pub(crate) fn has_seals(fd: i32) -> bool {
    // SAFETY: no memory is involved.
    check(unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GET_SEALS) }).is_ok()
}

pub(crate) fn file_len(fd: &Fd) -> io::Result<usize> {
    usize::try_from(status(fd)?.st_size).map_err(|_| io::ErrorKind::InvalidData.into())
}

fn status(fd: &Fd) -> io::Result<libc::stat> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat fills the structure when it succeeds. (libvma does not stand in front of it.)
    unsafe {
        check(c_long::from(libc::fstat(fd.raw(), stat.as_mut_ptr())))?;
        Ok(stat.assume_init())
    }
}

pub(crate) fn is_tmpfs(fd: &Fd) -> io::Result<bool> {
    Ok(file_system(fd)? == libc::TMPFS_MAGIC as u64)
}

/// The magic number of a descriptor's file system (statfs(2)).
fn file_system(fd: &Fd) -> io::Result<u64> {
    let mut stat = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: fstatfs fills the structure when it succeeds.
    let stat = unsafe {
        check(c_long::from(libc::fstatfs(fd.raw(), stat.as_mut_ptr())))?;
        stat.assume_init()
    };
    Ok(stat.f_type as u64)
}

/// A descriptor that becomes readable after so many seconds.
pub(crate) fn timer(seconds: i64) -> io::Result<Fd> {
    let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
    // SAFETY: no memory is involved.
    let timer = Fd::make(|| check(unsafe { libc::syscall(libc::SYS_timerfd_create, libc::CLOCK_MONOTONIC, flags) }))?;
    let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let once = libc::itimerspec { it_interval: none, it_value: libc::timespec { tv_sec: seconds, ..none } };
    // SAFETY: a readable value; no old one is asked for.
    check(unsafe { libc::syscall(libc::SYS_timerfd_settime, timer.raw(), 0, &raw const once, core::ptr::null::<u8>()) })?;
    Ok(timer)
}

pub(crate) fn eventfd() -> io::Result<Fd> {
    // SAFETY: no memory is involved.
    Fd::make(|| check(unsafe { libc::syscall(libc::SYS_eventfd2, 0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }))
}

/// Makes an eventfd readable. (A full counter is readable too, so a failure changes nothing.)
pub(crate) fn eventfd_signal(fd: &Fd) {
    visible();
    let one = 1u64;
    // SAFETY: eight readable bytes.
    unsafe { libc::syscall(libc::SYS_write, fd.raw(), core::ptr::from_ref(&one), 8) };
}

/// Makes it unreadable again; leaves errno alone, for it often is so already (EAGAIN).
pub(crate) fn eventfd_clear(fd: &Fd) {
    let mut count = 0u64;
    // SAFETY: eight writable bytes; errno is this thread's own.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        libc::syscall(libc::SYS_read, fd.raw(), core::ptr::from_mut(&mut count), 8);
        *errno = saved;
    }
}

/// RLIMIT_FSIZE: growing a file beyond it is answered with a signal.
pub(crate) fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit64 { rlim_cur: u64::MAX, rlim_max: u64::MAX };
    // SAFETY: fills the structure, or leaves it as it is.
    unsafe {
        libc::syscall(libc::SYS_prlimit64, 0, libc::RLIMIT_FSIZE, core::ptr::null::<libc::rlimit64>(), core::ptr::from_mut(&mut limit))
    };
    limit.rlim_cur
}

/// A socket that takes no descriptors, where the kernel can be told so.
pub(crate) fn unix_socket(kind: i32) -> io::Result<Fd> {
    let kind = kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is involved.
    let socket = Fd::make(|| check(unsafe { libc::syscall(libc::SYS_socket, libc::AF_UNIX, kind, 0) }))?;
    #[cfg(test)]
    if crate::closing::IS_OLD_KERNEL.get() {
        return Ok(socket);
    }
    let _ = set_takes_rights(&socket, false);
    Ok(socket)
}

/// Whether descriptors can be passed to this socket, and for a listener to those that connect to it, from before they are accepted on (Linux 6.16).
pub(crate) fn set_takes_rights(fd: &Fd, takes: bool) -> io::Result<()> {
    let value = i32::from(takes);
    // SAFETY: four readable bytes.
    check(unsafe { libc::syscall(libc::SYS_setsockopt, fd.raw(), libc::SOL_SOCKET, SO_PASSRIGHTS, &raw const value, 4) }).map(drop)
}

/// As far as the kernel knows.
pub(crate) fn takes_rights(fd: &Fd) -> bool {
    let (mut value, mut len) = (1i32, 4u32);
    // SAFETY: both are writable.
    check(unsafe { libc::syscall(libc::SYS_getsockopt, fd.raw(), libc::SOL_SOCKET, SO_PASSRIGHTS, &raw mut value, &raw mut len) })
        .map_or(true, |_| value != 0)
}

pub(crate) fn netlink_socket(family: i32) -> io::Result<Fd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is involved.
    Fd::make(|| check(unsafe { libc::syscall(libc::SYS_socket, libc::AF_NETLINK, kind, family) }))
}

/// What the kernel calls a socket (socket(7), SO_COOKIE).
#[cfg(all(test, not(loom)))]
pub(crate) fn cookie(fd: i32) -> io::Result<u64> {
    let mut cookie = 0u64;
    let mut len = mem::size_of::<u64>() as libc::socklen_t;
    let (value, len) = (core::ptr::from_mut(&mut cookie), core::ptr::from_mut(&mut len));
    // SAFETY: eight writable bytes, as the length says.
    check(unsafe { libc::syscall(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, libc::SO_COOKIE, value, len) })?;
    Ok(cookie)
}

/// The abstract address of `name` (unix(7)): a zero byte, then the name.
fn abstract_address(name: &str) -> io::Result<(libc::sockaddr_un, usize)> {
    // SAFETY: all zeroes is a valid sockaddr_un.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let room = address.sun_path.get_mut(1..=name.len()).ok_or(io::ErrorKind::InvalidInput)?;
    for (to, from) in room.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok((address, mem::offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len()))
}

pub(crate) fn listen_abstract(fd: &Fd, name: &str, backlog: i32) -> io::Result<()> {
    let (address, len) = abstract_address(name)?;
    visible();
    // SAFETY: `address` is readable for `len` bytes, which lie within it.
    check(unsafe { libc::syscall(libc::SYS_bind, fd.raw(), core::ptr::from_ref(&address), len) })?;
    visible();
    // SAFETY: no memory is involved.
    check(unsafe { libc::syscall(libc::SYS_listen, fd.raw(), backlog) }).map(drop)
}

pub(crate) fn connect_abstract(fd: &Fd, name: &str) -> io::Result<()> {
    visible();
    let (address, len) = abstract_address(name)?;
    // SAFETY: `address` is readable for `len` bytes, which lie within it.
    retry(|| unsafe { libc::syscall(libc::SYS_connect, fd.raw(), core::ptr::from_ref(&address), len) }).map(drop)
}

/// Accepts a connection, whose close may take long where whoever connected could pass descriptors.
/// One more descriptor of the same file.
pub(crate) fn duplicate(fd: &Fd) -> io::Result<Fd> {
    // SAFETY: plain integers.
    Fd::make(|| check(unsafe { libc::syscall(libc::SYS_fcntl, fd.raw(), libc::F_DUPFD_CLOEXEC, 0) }))
}

pub(crate) fn accept(fd: &Fd) -> io::Result<Fd> {
    visible();
    let null = core::ptr::null_mut::<u8>();
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: null address: none is written.
    let socket = Fd::make(|| retry(|| unsafe { libc::syscall(libc::SYS_accept4, fd.raw(), null, null, flags) }))?;
    if takes_rights(&socket) {
        socket.set_slow();
    }
    Ok(socket)
}

/// Who is at the other end, as the kernel vouches: of a connected socket who connected, of a connecting one who listens.
pub(crate) fn peer_credentials(fd: &Fd) -> io::Result<libc::ucred> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = mem::size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the structure is writable for `len` bytes.
    check(unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            fd.raw(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            core::ptr::from_mut(&mut credentials),
            core::ptr::from_mut(&mut len),
        )
    })?;
    Ok(credentials)
}

/// A pidfd of the process whose [`peer_credentials`] those are (SO_PEERPIDFD, Linux 6.5).
pub(crate) fn peer_pidfd(fd: &Fd) -> io::Result<Fd> {
    const SO_PEERPIDFD: i32 = 77;
    let mut pidfd = -1i32;
    let mut len = mem::size_of::<i32>() as libc::socklen_t;
    let (value, size) = (&raw mut pidfd, &raw mut len);
    Fd::make(|| {
        // SAFETY: the number is writable for `len` bytes.
        check(unsafe { libc::syscall(libc::SYS_getsockopt, fd.raw(), libc::SOL_SOCKET, SO_PEERPIDFD, value, size) })?;
        Ok(pidfd)
    })
}

/// The inode that is a process's own in all namespaces, and for all time.
///
/// # Errors
/// The system's; [`io::ErrorKind::Unsupported`]: the kernel is older than 6.9, and has one for all pidfds.
pub(crate) fn pidfs_inode(pidfd: &Fd) -> io::Result<u64> {
    const PID_FS_MAGIC: u64 = 0x5049_4446;
    if file_system(pidfd)? != PID_FS_MAGIC {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(status(pidfd)?.st_ino)
}

/// Sends one message with descriptors.
pub(crate) fn send_with(fd: &Fd, bytes: &[u8], passed: &[i32]) -> io::Result<()> {
    visible();
    assert!(passed.len() <= PASSED_MAX);
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0u64; CONTROL_BYTES / 8];
    // SAFETY: all zeroes is a valid msghdr.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    if !passed.is_empty() {
        let passed_bytes = mem::size_of_val(passed) as u32;
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: pure arithmetic; then: the control buffer is aligned, and large enough for PASSED_MAX descriptors.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(passed_bytes) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(passed_bytes) as _;
            core::ptr::copy_nonoverlapping(passed.as_ptr().cast::<u8>(), libc::CMSG_DATA(header), passed_bytes as usize);
        }
    }
    // SAFETY: the message refers to live memory; sendmsg only reads it.
    let sent = retry(|| unsafe { libc::syscall(libc::SYS_sendmsg, fd.raw(), &raw const message, libc::MSG_NOSIGNAL) })?;
    if sent as usize == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Sends what fits.
pub(crate) fn send(fd: &Fd, bytes: &[u8]) -> io::Result<usize> {
    visible();
    let null = core::ptr::null::<u8>();
    // SAFETY: `bytes` is readable for its length; no address.
    retry(|| unsafe { libc::syscall(libc::SYS_sendto, fd.raw(), bytes.as_ptr(), bytes.len(), libc::MSG_NOSIGNAL, null, 0) })
        .map(|n| n as usize)
}

/// Bytes of a wake-up.
pub(crate) const WAKE_UP_BYTES: usize = 1;

/// Sends a wake-up, if there is room for it: MSG_DONTWAIT is this call's own, whoever else has the socket. Leaves errno alone, for it is sent
/// in the middle of the program's calls. (So it does not go by libc's function either, which takes longer to find that the call is not the program's
/// than the rest of the way takes.)
#[inline]
pub(crate) fn send_wake_up(fd: &Fd) {
    visible();
    // SAFETY: the descriptor stays open as long as what it was lent by.
    let socket = unsafe { BorrowedFd::borrow_raw(fd.raw()) };
    let _ = rustix::net::send(socket, &[0; WAKE_UP_BYTES], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Takes some messages out of a socket's queue, unread.
pub(crate) fn discard_messages(fd: &Fd) {
    const MESSAGES: usize = 16;
    // (A byte for each of them: QEMU's user emulation takes nothing out for a message without a buffer.)
    let mut byte = 0u8;
    let mut iov = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: all zeroes is a valid mmsghdr; all messages have the one byte, and what does not fit there is discarded (recv(2)). errno is this thread's
    // own.
    unsafe {
        let mut messages: [libc::mmsghdr; MESSAGES] = mem::zeroed();
        for message in &mut messages {
            (message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen) = (&raw mut iov, 1);
        }
        let errno = libc::__errno_location();
        let saved = *errno;
        let none = core::ptr::null::<libc::timespec>();
        libc::syscall(libc::SYS_recvmmsg, fd.raw(), messages.as_mut_ptr(), MESSAGES, libc::MSG_DONTWAIT, none);
        *errno = saved;
    }
}

/// Ends a connection, for both sides.
pub(crate) fn shut_down(fd: i32) {
    visible();
    // SAFETY: no memory is involved.
    unsafe { libc::syscall(libc::SYS_shutdown, fd, libc::SHUT_RDWR) };
}

/// Receives what is there.
pub(crate) fn receive(fd: &Fd, into: &mut [u8]) -> io::Result<usize> {
    let null = core::ptr::null::<u8>();
    // SAFETY: `into` is writable for its length; no address.
    retry(|| unsafe { libc::syscall(libc::SYS_recvfrom, fd.raw(), into.as_mut_ptr(), into.len(), 0, null, null) }).map(|n| n as usize)
}

/// Descriptors that came with a message.
pub(crate) type Passed = ArrayVec<Fd, { CONTROL_BYTES / 4 }>;

/// Receives one message with its descriptors. Zero bytes: the other end is closed.
///
/// # Errors
/// The system's; EMFILE, where there was no room for all of a greeting's descriptors (unix(7): the rest is lost, with MSG_CTRUNC).
pub(crate) fn receive_with(fd: &Fd, into: &mut [u8]) -> io::Result<(usize, Passed)> {
    visible();
    numbers::make_internal(|| receive_passed(fd, into))
}

fn receive_passed(fd: &Fd, into: &mut [u8]) -> io::Result<(usize, Passed)> {
    let mut iov = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let mut control = [0u64; CONTROL_BYTES / 8];
    // SAFETY: all zeroes is a valid msghdr.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES as _;
    // SAFETY: the message refers to live, writable memory.
    let len = retry(|| unsafe { libc::syscall(libc::SYS_recvmsg, fd.raw(), &raw mut message, libc::MSG_CMSG_CLOEXEC) })?;
    let mut passed = Passed::new();
    // SAFETY: the kernel filled the control buffer as `message` now says; the macros stay within it.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: a header within the control buffer, with `cmsg_len` bytes of it and its data.
        unsafe {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                for i in 0..bytes / mem::size_of::<i32>() {
                    let raw = libc::CMSG_DATA(header).cast::<i32>().add(i).read_unaligned();
                    if let Ok(fd) = Fd::passed(raw) {
                        passed.push(fd);
                    }
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    if message.msg_flags & libc::MSG_CTRUNC != 0 && passed.len() < PASSED_MAX {
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    Ok((len as usize, passed))
}

/// Waits until `events` hold on `fd`, at most `timeout`. An interrupted wait counts as over; the caller looks at its clock.
pub(crate) fn wait_for(fd: &Fd, events: i16, timeout: Duration) -> io::Result<i16> {
    let mut entry = libc::pollfd { fd: fd.raw(), events, revents: 0 };
    let timeout = libc::timespec { tv_sec: timeout.as_secs() as libc::time_t, tv_nsec: timeout.subsec_nanos().into() };
    let null = core::ptr::null::<u8>();
    // SAFETY: one entry, readable and writable; the timeout is readable; no signal mask.
    match check(unsafe { libc::syscall(libc::SYS_ppoll, core::ptr::from_mut(&mut entry), 1, core::ptr::from_ref(&timeout), null, 0) }) {
        Err(e) if e.kind() != io::ErrorKind::Interrupted => Err(e),
        _ => Ok(entry.revents),
    }
}

/// Whether the other end of a socket is gone.
pub(crate) fn is_hung_up(fd: &Fd) -> bool {
    wait_for(fd, libc::POLLRDHUP, Duration::ZERO).is_ok_and(|events| events & (libc::POLLHUP | libc::POLLRDHUP | libc::POLLERR) != 0)
}

/// An epoll instance.
#[derive(Debug)]
pub(crate) struct Epoll(Fd);

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: no memory is involved.
        Fd::make(|| check(unsafe { libc::syscall(libc::SYS_epoll_create1, libc::EPOLL_CLOEXEC) })).map(Self)
    }

    pub(crate) fn raw(&self) -> i32 {
        self.0.raw()
    }

    pub(crate) fn add(&self, fd: &Fd, events: i32, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, events, token)
    }

    pub(crate) fn modify(&self, fd: &Fd, events: i32, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, events, token)
    }

    /// Closing isn't enough: a child of fork may hold a copy, and epoll watches the file, not the number.
    pub(crate) fn remove(&self, fd: &Fd) {
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    fn control(&self, operation: i32, fd: &Fd, events: i32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: `event` is readable.
        check(unsafe { libc::syscall(libc::SYS_epoll_ctl, self.0.raw(), operation, fd.raw(), &raw mut event) }).map(drop)
    }

    /// The tokens that are ready now.
    pub(crate) fn ready<const N: usize>(&self) -> ArrayVec<u64, N> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; N];
        let null = core::ptr::null::<u8>();
        // SAFETY: `events` is writable for its entries; timeout zero; no signal mask.
        let count =
            check(unsafe { libc::syscall(libc::SYS_epoll_pwait, self.0.raw(), events.as_mut_ptr(), events.len(), 0, null, 8_usize) })
                .unwrap_or(0);
        events.iter().take(count as usize).map(|event| event.u64).collect()
    }
}

/// Copies `bytes` into another process's memory, the last one last. Part of them may be there when it fails.
///
/// # Errors
/// EFAULT: it has not so much writable memory there; ESRCH; EPERM, ENOSYS: the kernel does not let us.
pub(crate) fn write_to_process(pid: i32, to: u64, bytes: &[u8]) -> io::Result<()> {
    let Some((last, others)) = bytes.split_last() else { return Ok(()) };
    let last = core::slice::from_ref(last);
    if cfg!(target_arch = "x86_64") {
        // Stores that follow a copy are seen after it, and the kernel copies piece after piece.
        return write_pieces(pid, to, &[others, last]);
    }
    write_pieces(pid, to, &[others])?;
    fence(Ordering::SeqCst);
    write_pieces(pid, to + others.len() as u64, &[last])
}

fn write_pieces(pid: i32, to: u64, pieces: &[&[u8]]) -> io::Result<()> {
    let len: usize = pieces.iter().map(|piece| piece.len()).sum();
    if len == 0 {
        return Ok(());
    }
    let local: ArrayVec<libc::iovec, 2> =
        pieces.iter().map(|piece| libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() }).collect();
    let remote = libc::iovec { iov_base: core::ptr::without_provenance_mut(to as usize), iov_len: len };
    visible();
    // (All of a register counts.)
    let (count, flags): (usize, usize) = (1, 0);
    // SAFETY: the pieces are live slices, which are only read. What is written is another process's memory, or what this one's program has promised to itself.
    let written = unsafe { libc::syscall(libc::SYS_process_vm_writev, pid, local.as_ptr(), local.len(), &raw const remote, count, flags) };
    match usize::try_from(written) {
        Ok(written) if written == len => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Bytes of a page. Async-signal-safe (it reads what the loader left).
pub(crate) fn page_bytes() -> usize {
    // SAFETY: no preconditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// A page of zeros, which a fork's child does not have. Async-signal-safe.
pub(crate) fn anonymous_page() -> Option<NonNull<u8>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
    let page = unsafe { libc::mmap(core::ptr::null_mut(), page_bytes(), protection, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: our own fresh mapping.
    unsafe { libc::madvise(page, page_bytes(), libc::MADV_DONTFORK) };
    NonNull::new(page.cast())
}

/// Puts the page `from` in the place of the one at `to`, in one step for whoever reads there. `false`: all is as it was (but where the kernel fails late, nothing is at `to` any more), without `from`. Async-signal-safe.
///
/// # Safety
/// `from` is a page of the caller's, and nothing else is lost with what is mapped at `to`.
pub(crate) unsafe fn move_page(from: NonNull<u8>, to: *mut u8) -> bool {
    let (len, flags) = (page_bytes(), libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED);
    // SAFETY: the caller's promise.
    let moved = unsafe { libc::mremap(from.as_ptr().cast(), len, len, flags, to) } != libc::MAP_FAILED;
    if !moved {
        // SAFETY: the caller's own.
        unsafe { libc::munmap(from.as_ptr().cast(), len) };
    }
    moved
}
