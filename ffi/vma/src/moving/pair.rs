//! A connection of the kernel's between a placeholder, which sharers have, and a fresh descriptor for the other side.

use core::ffi::{c_int, c_void};
use core::mem::size_of;
use std::io;
use std::net::SocketAddr;

use libc::socklen_t;
use ringway_devices::Fd;

use crate::errno::Errno;
use crate::real;
use crate::socket::address::{self, Raw};
use crate::socket::connect::kernel_result;
use crate::socket::options::{SO_ZEROCOPY, TCP_INQ};
use crate::socket::{Family, accept};

/// Options that a connection keeps when another descriptor takes its place.
const KEPT: [(c_int, c_int); 25] = [
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
    (libc::SOL_SOCKET, libc::SO_OOBINLINE),
    (libc::SOL_SOCKET, libc::SO_RCVLOWAT),
    (libc::SOL_SOCKET, libc::SO_REUSEADDR),
    (libc::SOL_SOCKET, libc::SO_PRIORITY),
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::SOL_SOCKET, libc::SO_BUSY_POLL),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMP),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS),
    (libc::SOL_SOCKET, libc::SO_TIMESTAMPING),
    (libc::SOL_SOCKET, SO_ZEROCOPY),
    (libc::IPPROTO_TCP, libc::TCP_NODELAY),
    (libc::IPPROTO_TCP, TCP_INQ),
    (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT),
    (libc::IPPROTO_TCP, libc::TCP_LINGER2),
    (libc::IPPROTO_TCP, libc::TCP_SYNCNT),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT),
    (libc::IPPROTO_IP, libc::IP_TOS),
    (libc::IPPROTO_IP, libc::IP_TTL),
    (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
];
/// The same, of two words each: times and SO_LINGER.
const KEPT_WIDE: [c_int; 3] = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO, libc::SO_LINGER];

/// Connects the placeholder to a fresh descriptor, with the connection's own addresses as far as the kernel has them free.
/// `listener`: who has the placeholder's address. `is_told`: see [`connect_to`].
pub(super) fn connect(
    placeholder: c_int,
    family: Family,
    local: SocketAddr,
    remote: SocketAddr,
    listener: Option<c_int>,
    is_told: bool,
) -> Result<Fd, Errno> {
    let waiting = socket(family)?;
    set_int(waiting.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    // The port is free unless the peer's listener has it; then the kernel's addresses are not the program's, who is told its own.
    bind(waiting.raw(), remote, family).or_else(|_| bind(waiting.raw(), SocketAddr::new(remote.ip(), 0), family))?;
    // SAFETY: plain integers.
    kernel_result(unsafe { real::listen(waiting.raw(), 16) })?;
    let to = address::of_placeholder(waiting.raw(), family).ok_or(Errno(libc::EADDRNOTAVAIL))?;
    bind_beside(placeholder, family, local, listener);
    connect_to(placeholder, family, to, is_told)?;
    let me = address::of_placeholder(placeholder, family).ok_or(Errno(libc::ENOTCONN))?;
    accept(&waiting, family, me)
}

/// Connects the placeholder, whether it blocks or not, to somebody who listens on this machine. `is_told`: the program knows that it is
/// connected, and no call of its to connect is to say so again.
pub(super) fn connect_to(placeholder: c_int, family: Family, to: SocketAddr, is_told: bool) -> Result<(), Errno> {
    let raw = Raw::new(to, family);
    // SAFETY: the address is as long as it says.
    match kernel_result(unsafe { real::connect(placeholder, raw.as_ptr(), raw.len()) }) {
        // Of two interfaces of one machine, or with a full queue of connections to be accepted: the handshake takes a moment.
        Err(Errno(libc::EINPROGRESS)) => {
            wait_for(placeholder, libc::POLLOUT)?;
            match int(placeholder, libc::SOL_SOCKET, libc::SO_ERROR) {
                // SAFETY: the address is as long as it says.
                Some(0) if is_told => kernel_result(unsafe { real::connect(placeholder, raw.as_ptr(), raw.len()) }).map(drop),
                Some(0) => Ok(()),
                error => Err(Errno(error.unwrap_or(libc::ECONNREFUSED))),
            }
        }
        result => result.map(drop),
    }
}

/// Makes the placeholder what a connection is whose peer has reset it. One that is connected already is reset, too, on its other side:
/// what did not get through to the end must not look like a stream that ended.
pub(super) fn reset(placeholder: c_int, family: Family, local: SocketAddr, remote: SocketAddr) {
    dissolve(placeholder);
    if let Ok(other) = connect(placeholder, family, local, remote, None, true) {
        break_off(&other);
    }
}

/// Connects it to nobody (connect(2), AF_UNSPEC): a reset, whoever else has the open file.
pub(super) fn dissolve(fd: c_int) {
    let nobody = libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
    // SAFETY: the address is as long as it says.
    let connect = || kernel_result(unsafe { real::connect(fd, &raw const nobody, size_of::<libc::sockaddr>() as socklen_t) });
    // Some kernels (6.4 to 6.6) refuse while another process waits in a call on it, which ends by that.
    if connect() == Err(Errno(libc::EBUSY)) {
        // SAFETY: plain integers.
        unsafe { real::shutdown(fd, libc::SHUT_RDWR) };
        let _ = connect();
    }
}

/// What was being put into the socket (TCP_REPAIR) is there no more, in silence, and the socket is as any other.
pub(super) fn end_repair(fd: c_int) {
    dissolve(fd);
    take_error(fd);
    // (One that is connected to nobody says nothing at this.)
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR, 0);
    set_int(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0);
}

/// The same by a reset, whoever else has the open file: the other end's kernel may have the connection already, and would wait for ever.
pub(super) fn end_repair_aloud(fd: c_int) {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR, 0);
    dissolve(fd);
    set_int(fd, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0);
}

/// Makes closing the descriptor a reset.
pub(super) fn break_off(fd: &Fd) {
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the value is as long as it says.
    unsafe {
        real::setsockopt(fd.raw(), libc::SOL_SOCKET, libc::SO_LINGER, (&raw const at_once).cast(), size_of::<libc::linger>() as socklen_t)
    };
}

/// Lets the descriptor take so many bytes at once, if the process may (CAP_NET_ADMIN).
pub(super) fn make_room(fd: &Fd, bytes: usize) {
    // (The kernel doubles it, and counts what is around each segment's bytes as well: socket(7).)
    let wanted = c_int::try_from(bytes).unwrap_or(c_int::MAX).saturating_add(64 << 10);
    if int(fd.raw(), libc::SOL_SOCKET, libc::SO_SNDBUF).is_some_and(|room| room / 2 < wanted) {
        set_int(fd.raw(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, wanted);
    }
}

/// Makes closing the descriptor an end in order again.
pub(super) fn end_in_order(fd: &Fd) {
    let never = libc::linger { l_onoff: 0, l_linger: 0 };
    // SAFETY: the value is as long as it says.
    unsafe {
        real::setsockopt(fd.raw(), libc::SOL_SOCKET, libc::SO_LINGER, (&raw const never).cast(), size_of::<libc::linger>() as socklen_t)
    };
}

/// What a call of libc's returned.
fn called(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn made<T>(result: io::Result<T>) -> Result<T, Errno> {
    result.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EMFILE)))
}

pub(super) fn socket(family: Family) -> Result<Fd, Errno> {
    // (Its number is gone again at once, so nothing is to be known of who had it.)
    // SAFETY: plain integers.
    made(Fd::make(|| called(unsafe { real::socket(crate::socket::lifecycle::domain(family), libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) })))
}

/// A pipe's two ends, of which the second is written to, or closed.
pub(super) fn pipe() -> Result<(Fd, Fd), Errno> {
    let mut raw = [0; 2];
    // SAFETY: the array has room for both.
    made(Fd::make_pair(|| called(unsafe { real::pipe2(raw.as_mut_ptr(), libc::O_CLOEXEC) }).map(|_| raw))).map(Into::into)
}

/// Whether a descriptor is one of a pipe, which closing never waits for.
pub(super) fn is_pipe(fd: c_int) -> bool {
    // SAFETY: all of it is integers, for which zero is a value.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the structure is valid for writing.
    let known = unsafe { libc::fstat(fd, &raw mut status) } == 0;
    known && status.st_mode & libc::S_IFMT == libc::S_IFIFO
}

fn bind(fd: c_int, to: SocketAddr, family: Family) -> Result<(), Errno> {
    let raw = Raw::new(to, family);
    // SAFETY: the address is as long as it says.
    kernel_result(unsafe { real::bind(fd, raw.as_ptr(), raw.len()) }).map(drop)
}

/// Gives an accepted connection's placeholder its listener's address, which the kernel allows between sockets of one user that all
/// have SO_REUSEPORT (socket(7)); it matters to programs that don't run this library, and ask for the name.
pub(super) fn bind_beside(placeholder: c_int, family: Family, local: SocketAddr, listener: Option<c_int>) {
    if address::of_placeholder(placeholder, family).is_none_or(|bound| bound.port() != 0) {
        return;
    }
    let Some(listener) = listener else { return bind_sharing(placeholder, family, local) };
    // One at a time: another would take the option that this one sets for the program's, and leave it so.
    accept::alone(|| {
        let before = int(listener, libc::SOL_SOCKET, libc::SO_REUSEPORT);
        set_int(listener, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1);
        bind_sharing(placeholder, family, local);
        if let Some(before) = before {
            set_int(listener, libc::SOL_SOCKET, libc::SO_REUSEPORT, before);
        }
    });
}

fn bind_sharing(placeholder: c_int, family: Family, local: SocketAddr) {
    set_int(placeholder, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1);
    let _ = bind(placeholder, local, family);
    set_int(placeholder, libc::SOL_SOCKET, libc::SO_REUSEPORT, 0);
}

/// Accepts the placeholder's connection, `from` its address. The address may have been somebody's whose clients come still: nobody else gets in.
fn accept(waiting: &Fd, family: Family, from: SocketAddr) -> Result<Fd, Errno> {
    const STRANGERS_MAX: u32 = 64;
    for _ in 0..STRANGERS_MAX {
        wait_for(waiting.raw(), libc::POLLIN)?;
        let null = core::ptr::null_mut::<socklen_t>();
        // SAFETY: null addresses: none is written.
        let accepted = made(Fd::make(|| called(unsafe { real::accept4(waiting.raw(), null.cast(), null, libc::SOCK_CLOEXEC) })))?;
        if address::of_peer(accepted.raw(), family) == Some(from) {
            return Ok(accepted);
        }
    }
    Err(Errno(libc::ECONNABORTED))
}

/// The family of a descriptor that is one of a TCP stream.
pub(super) fn stream_family(fd: c_int) -> Option<Family> {
    let is_tcp = int(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL)? == libc::IPPROTO_TCP;
    match int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN)? {
        libc::AF_INET if is_tcp => Some(Family::V4),
        libc::AF_INET6 if is_tcp => Some(Family::V6),
        _ => None,
    }
}

/// Waits until a descriptor is ready. EAGAIN: it is not for a long time.
pub(super) fn wait_for(fd: c_int, events: i16) -> Result<(), Errno> {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    loop {
        // SAFETY: one valid pollfd.
        match kernel_result(unsafe { real::poll(&raw mut entry, 1, 5000) }) {
            Ok(0) => return Err(Errno(libc::EAGAIN)),
            Ok(_) => return Ok(()),
            Err(Errno(libc::EINTR)) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes all of it, for as long as the other side takes some now and then; what a descriptor that blocks does not is waited for here.
pub(super) fn write_all(fd: c_int, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match write_some(fd, bytes) {
            Ok(0) => wait_for(fd, libc::POLLOUT).or_else(|e| if e == Errno(libc::EAGAIN) { Ok(()) } else { Err(e) })?,
            Ok(count) => {
                bytes = &bytes[count..];
                crate::exit::pulse();
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes what there is room for.
pub(super) fn write_some(fd: c_int, bytes: &[u8]) -> Result<usize, Errno> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the bytes are readable for their length; no address.
    let count = unsafe { real::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) };
    match usize::try_from(count).map_err(|_| Errno::last()) {
        Err(Errno(libc::EAGAIN | libc::EINTR)) => Ok(0),
        result => result,
    }
}

/// Takes the error that is there to be told.
pub(super) fn take_error(fd: c_int) {
    int(fd, libc::SOL_SOCKET, libc::SO_ERROR);
}

/// Ends our stream.
pub(super) fn end_writing(fd: c_int) {
    // SAFETY: plain integers.
    unsafe { real::shutdown(fd, libc::SHUT_WR) };
}

/// Ends reading, which tells nobody: what arrived before is still to be read.
pub(super) fn end_reading(fd: c_int) {
    // SAFETY: plain integers.
    unsafe { real::shutdown(fd, libc::SHUT_RD) };
}

/// Gives `fresh` a placeholder's options and status flags.
pub(super) fn copy_options(fd: c_int, fresh: &Fd) {
    // SAFETY: plain integers.
    unsafe { real::fcntl(fresh.raw(), libc::F_SETFL, real::fcntl(fd, libc::F_GETFL, 0).max(0) as usize) };
    keep_signals(fd, fresh.raw());
    for (level, name) in KEPT {
        // (SO_TIMESTAMP's forms undo each other, even by being set to zero.)
        if let Some(value) = int(fd, level, name)
            && int(fresh.raw(), level, name) != Some(value)
        {
            set_int(fresh.raw(), level, name, value);
        }
    }
    for name in KEPT_WIDE {
        copy_wide(fd, fresh.raw(), name);
    }
}

/// Who is told of urgent data (F_SETOWN), and by which signal.
fn keep_signals(from: c_int, to: c_int) {
    /// struct f_owner_ex: what it names, and its number.
    #[repr(C)]
    struct Owner {
        kind: c_int,
        id: libc::pid_t,
    }
    const F_SETSIG: c_int = 10;
    const F_GETSIG: c_int = 11;
    const F_SETOWN_EX: c_int = 15;
    const F_GETOWN_EX: c_int = 16;
    let mut owner = Owner { kind: 0, id: 0 };
    // SAFETY: the structure has the kernel's layout, and outlives the calls; else plain integers.
    unsafe {
        let place = (&raw mut owner).expose_provenance();
        if real::fcntl(from, F_GETOWN_EX, place) == 0 && owner.id != 0 {
            real::fcntl(to, F_SETOWN_EX, place);
        }
        match real::fcntl(from, F_GETSIG, 0) {
            signal @ 1.. => real::fcntl(to, F_SETSIG, signal as usize),
            _ => 0,
        };
    }
}

/// Puts `fresh` under the number of a placeholder.
pub(super) fn replace(fd: c_int, fresh: &Fd) -> Result<(), Errno> {
    // SAFETY: plain integers.
    let descriptor = unsafe { real::fcntl(fd, libc::F_GETFD, 0) };
    let cloexec = if descriptor & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
    crate::fdtable::renew(fd, fresh.raw(), cloexec)
}

/// Lets another socket bind the port of this one, which is about to go. What SO_REUSEADDR was before.
pub(super) fn share_address(fd: c_int) -> Option<c_int> {
    let before = int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR);
    set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1);
    before
}

/// Sets SO_REUSEADDR as the program has it.
pub(super) fn set_reuse_address(fd: &Fd, value: c_int) {
    set_int(fd.raw(), libc::SOL_SOCKET, libc::SO_REUSEADDR, value);
}

/// Has the kernel send a segment on a connection that says nothing, to which the other end's kernel answers, by a reset if it has no such connection. (To end a repair that was not begun changes nothing but
/// SO_REUSEADDR.)
pub(super) fn probe(fd: c_int) {
    let reuse = int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR);
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR, 0);
    if let Some(reuse) = reuse {
        set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, reuse);
    }
}

fn int(fd: c_int, level: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: the value is as long as it says.
    let asked = unsafe { real::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    (asked == 0).then_some(value)
}

fn set_int(fd: c_int, level: c_int, name: c_int, value: c_int) {
    // SAFETY: the value is as long as it says.
    unsafe { real::setsockopt(fd, level, name, (&raw const value).cast(), size_of::<c_int>() as socklen_t) };
}

fn copy_wide(from: c_int, to: c_int, name: c_int) {
    let mut value = [0u64; 2];
    let mut len = size_of::<[u64; 2]>() as socklen_t;
    let place: *mut c_void = value.as_mut_ptr().cast();
    // SAFETY: the value has room for what it says; the kernel sets the option's own length.
    unsafe {
        if real::getsockopt(from, libc::SOL_SOCKET, name, place, &raw mut len) == 0 {
            real::setsockopt(to, libc::SOL_SOCKET, name, place, len);
        }
    }
}
