//! The structure of functions that packetdrill calls, and the one symbol by which it gets them.

use core::ffi::{CStr, c_char, c_int, c_long, c_longlong, c_uint, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use libc::{epoll_event, iovec, msghdr, nfds_t, off64_t, pollfd, sockaddr, socklen_t, timeval};

use crate::host::Host;
use crate::settings::Settings;
use crate::{calls, preloaded};

type Addr = *const sockaddr;
type AddrMut = *mut sockaddr;
type Len = *mut socklen_t;
type User = *mut c_void;

/// A pointer that is handed back with each call, and the calls, in packetdrill's order. They are as the system's, but for that first argument; all of
/// them may be called from two threads.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each is named as the call of libc's that it stands for")]
pub struct Interface {
    pub userdata: User,
    /// Ends the host; the pointer is dead then.
    pub free: unsafe extern "C" fn(User),
    pub socket: unsafe extern "C" fn(User, c_int, c_int, c_int) -> c_int,
    pub bind: unsafe extern "C" fn(User, c_int, Addr, socklen_t) -> c_int,
    pub listen: unsafe extern "C" fn(User, c_int, c_int) -> c_int,
    pub accept: unsafe extern "C" fn(User, c_int, AddrMut, Len) -> c_int,
    pub connect: unsafe extern "C" fn(User, c_int, Addr, socklen_t) -> c_int,
    pub read: unsafe extern "C" fn(User, c_int, *mut c_void, usize) -> isize,
    pub readv: unsafe extern "C" fn(User, c_int, *const iovec, c_int) -> isize,
    pub recv: unsafe extern "C" fn(User, c_int, *mut c_void, usize, c_int) -> isize,
    pub recvfrom: unsafe extern "C" fn(User, c_int, *mut c_void, usize, c_int, AddrMut, Len) -> isize,
    pub recvmsg: unsafe extern "C" fn(User, c_int, *mut msghdr, c_int) -> isize,
    pub write: unsafe extern "C" fn(User, c_int, *const c_void, usize) -> isize,
    pub writev: unsafe extern "C" fn(User, c_int, *const iovec, c_int) -> isize,
    pub send: unsafe extern "C" fn(User, c_int, *const c_void, usize, c_int) -> isize,
    pub sendto: unsafe extern "C" fn(User, c_int, *const c_void, usize, c_int, Addr, socklen_t) -> isize,
    pub sendmsg: unsafe extern "C" fn(User, c_int, *const msghdr, c_int) -> isize,
    /// In C the argument behind the command is variable; on Linux's ABIs of x86-64 and aarch64 it comes where a fixed one does.
    pub fcntl: unsafe extern "C" fn(User, c_int, c_int, c_long) -> c_int,
    /// As `fcntl`.
    pub ioctl: unsafe extern "C" fn(User, c_int, c_ulong, *mut c_void) -> c_int,
    pub close: unsafe extern "C" fn(User, c_int) -> c_int,
    pub shutdown: unsafe extern "C" fn(User, c_int, c_int) -> c_int,
    pub getsockopt: unsafe extern "C" fn(User, c_int, c_int, c_int, *mut c_void, Len) -> c_int,
    pub setsockopt: unsafe extern "C" fn(User, c_int, c_int, c_int, *const c_void, socklen_t) -> c_int,
    pub poll: unsafe extern "C" fn(User, *mut pollfd, nfds_t, c_int) -> c_int,
    /// A packet of IP reaches the stack. 0, or -1.
    pub netdev_send: unsafe extern "C" fn(User, *const c_void, usize) -> c_int,
    /// The next packet of IP that the stack sends, when it has sent it (microseconds), and its length, which goes in as the buffer's. Time goes on until
    /// there is one; a length of zero: none will come. 0, or -1.
    pub netdev_receive: unsafe extern "C" fn(User, *mut c_void, *mut usize, *mut c_longlong) -> c_int,
    /// Microseconds pass.
    pub usleep: unsafe extern "C" fn(User, c_uint) -> c_int,
    pub gettimeofday: unsafe extern "C" fn(User, *mut timeval, *mut c_void) -> c_int,
    pub epoll_create: unsafe extern "C" fn(User, c_int) -> c_int,
    pub epoll_ctl: unsafe extern "C" fn(User, c_int, c_int, c_int, *mut epoll_event) -> c_int,
    pub epoll_wait: unsafe extern "C" fn(User, c_int, *mut epoll_event, c_int, c_int) -> c_int,
    pub pipe: unsafe extern "C" fn(User, *mut c_int) -> c_int,
    pub splice: unsafe extern "C" fn(User, c_int, *mut off64_t, c_int, *mut off64_t, usize, c_uint) -> isize,
}

/// Makes a host with the settings that `flags` names (`name=value`, separated by commas; null: none), and fills `interface` for it. If that fails,
/// `interface` stays as it is. Settings that mean nothing to the stack are told on standard error where `RINGWAY_PACKETDRILL_VERBOSE` is set.
///
/// # Safety
/// `flags` is null or a string that ends by a zero; `interface` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, interface: *mut Interface) {
    let made = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the caller's promise.
        let flags = if flags.is_null() { "" } else { unsafe { CStr::from_ptr(flags) }.to_str().unwrap_or_default() };
        let (settings, unknown) = Settings::parse(flags);
        if std::env::var_os("RINGWAY_PACKETDRILL_VERBOSE").is_some() {
            unknown.iter().for_each(|flag| eprintln!("ringway: {flag} changes nothing"));
        }
        Box::into_raw(Box::new(Host::new(settings)))
    }));
    if let Ok(host) = made {
        preloaded::remember(host);
        // SAFETY: the caller's promise.
        unsafe { interface.write(filled(host.cast())) };
    }
}

fn filled(userdata: User) -> Interface {
    Interface {
        userdata,
        free: calls::free,
        socket: calls::socket,
        bind: calls::bind,
        listen: calls::listen,
        accept: calls::accept,
        connect: calls::connect,
        read: calls::read,
        readv: calls::readv,
        recv: calls::recv,
        recvfrom: calls::recvfrom,
        recvmsg: calls::recvmsg,
        write: calls::write,
        writev: calls::writev,
        send: calls::send,
        sendto: calls::sendto,
        sendmsg: calls::sendmsg,
        fcntl: calls::fcntl,
        ioctl: calls::ioctl,
        close: calls::close,
        shutdown: calls::shutdown,
        getsockopt: calls::getsockopt,
        setsockopt: calls::setsockopt,
        poll: calls::poll,
        netdev_send: calls::netdev_send,
        netdev_receive: calls::netdev_receive,
        usleep: calls::usleep,
        gettimeofday: calls::gettimeofday,
        epoll_create: calls::epoll_create,
        epoll_ctl: calls::epoll_ctl,
        epoll_wait: calls::epoll_wait,
        pipe: calls::pipe,
        splice: calls::splice,
    }
}
