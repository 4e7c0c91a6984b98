//! getsockopt(2) and setsockopt(2).
//!
//! An option is always set on the placeholder first: the kernel checks it, and getsockopt answers from there. What has a
//! meaning for the ring is then done on the ring too; what only the ring knows (a connection's error and state) is answered
//! from the ring.

mod classes;

use core::ffi::{c_int, c_void};
use core::mem::size_of;
use core::time::Duration;

use libc::socklen_t;
use ringway_host::numbers;
use ringway_stack::device::Protocol;
use ringway_stack::offload::Reason;
use ringway_stack::ring::UdpOptions;
use ringway_stack::tcp;

use self::classes::{concerns_datagrams_only, is_group_program, is_inherited, is_route, kernel_only};
use super::address::Raw;
use super::connect::kernel_result;
use super::{Family, Kind, Socket, common, congestion, cork, groups, info, lifecycle, pacing, sharing, six, times};
use crate::errno::{Errno, is_nowhere};
use crate::extra::rings::options as rings;
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::{extra, moving, real};

const TCP_ULP: c_int = 31;
const SO_ATTACH_REUSEPORT_EBPF: c_int = 52;
pub(crate) const SO_ZEROCOPY: c_int = 60;
pub(crate) const SO_RXQ_OVFL: c_int = 40;
const IP_LOCAL_PORT_RANGE: c_int = 51;
const SO_BINDTODEVICE: c_int = 25;
const SO_BINDTOIFINDEX: c_int = 62;
const SO_INCOMING_CPU: c_int = 49;
const SO_PEERNAME: c_int = 28;
pub(crate) const TCP_INQ: c_int = 36;
const UDP_CORK: c_int = 1;
/// The y2038-safe forms have the layout of the old ones on 64-bit machines.
const SO_RCVTIMEO_NEW: c_int = 66;
const SO_SNDTIMEO_NEW: c_int = 67;

/// Not a failure: the connection was on its way to the kernel when the option was to be set, or came to be.
const ON_ITS_WAY: Errno = Errno(-1);

/// Whether it is decided which families a socket takes: a connection has a port, which its placeholder may not have (do_ipv6_setsockopt).
fn has_its_families(offload: &Offload, key: Key) -> bool {
    let Some(Socket { family: Family::V6, kind: Kind::Stream(id) | Kind::Connecting(id), .. }) = offload.sockets.find(key) else {
        return false;
    };
    offload.rings.of(*id).info(*id).and_then(|info| info.state).is_some_and(|state| state != tcp::State::Closed)
}

/// setsockopt(2).
///
/// # Errors
/// As setsockopt(2): the kernel's.
///
/// # Safety
/// `value` is null, or `len` bytes can be read there.
pub(crate) unsafe fn set(
    process: &Process,
    fd: c_int,
    key: Key,
    option: (c_int, c_int),
    value: *const c_void,
    len: socklen_t,
) -> Result<c_int, Errno> {
    let result = loop {
        // SAFETY: the caller's promise.
        match unsafe { set_one(process, fd, key, option, value, len) } {
            // (It is set where the connection comes to be, on what it has then: the move itself sets and restores some.)
            Err(ON_ITS_WAY) if moving::stays(process, fd, key) => {}
            // SAFETY: the caller's promise.
            Err(ON_ITS_WAY) => break kernel_result(unsafe { real::setsockopt(fd, option.0, option.1, value, len) }),
            result => break result,
        }
    };
    if option.0 == libc::IPPROTO_TCP {
        return result;
    }
    // (Whatever else it was, it may say who hears a group, and how.)
    let mut guard = process.lock();
    if guard.sockets.find(key).is_some_and(|socket| socket.protocol == Protocol::Udp) {
        guard.settle_groups();
    }
    result
}

/// # Errors
/// As [`set`]; [`ON_ITS_WAY`].
///
/// # Safety
/// As [`set`].
unsafe fn set_one(
    process: &Process,
    fd: c_int,
    key: Key,
    (level, name): (c_int, c_int),
    value: *const c_void,
    len: socklen_t,
) -> Result<c_int, Errno> {
    let before = process.lock().sockets.find(key).map(|socket| socket.kind);
    if before == Some(Kind::Moving) {
        return Err(ON_ITS_WAY);
    }
    // SAFETY: the caller's promise.
    if let Some(result) = unsafe { extra::options::set(process, key, (level, name), value, len) } {
        if (level, name) == (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE) && result.is_ok() {
            pacing::tell_kernel(process, fd, key);
        }
        return result;
    }
    if rings::concerns(level, name) {
        // SAFETY: the caller's promise.
        return unsafe { rings::set(process, key, name, value, len) };
    }
    // SAFETY: the caller's promise; a bad pointer is the kernel's to find.
    let device = if level == libc::SOL_SOCKET { unsafe { device_of(name, value, len) } } else { Device::NotMeant };
    let mut guard = process.lock();
    let offload = &mut *guard;
    // SAFETY: the caller's promise; a bad pointer is the kernel's to find.
    let stamps = if times::is_timestamping(level, name) { unsafe { Argument::read(value, len) }.int() } else { 0 };
    let asks = device == Device::Other || kernel_only(level, name) || times::are_kernels(offload, stamps)?;
    if let Some(socket) = offload.sockets.find(key)
        && (asks || (level, name) == (libc::SOL_SOCKET, SO_ZEROCOPY) && socket.protocol == Protocol::Udp)
        && !(socket.protocol == Protocol::Tcp && concerns_datagrams_only(level, name))
    {
        let is_groups = level == libc::SOL_SOCKET && is_group_program(name);
        match socket.kind {
            Kind::Stream(_) | Kind::Connecting(_) => {
                let family = socket.family;
                drop(guard);
                if (level, name) == (libc::IPPROTO_TCP, TCP_ULP) {
                    // SAFETY: the caller's promise.
                    unsafe { ask_for_ulp(family, value, len) }?;
                }
                moving::hand_out(fd, Reason::KernelOnlyOption);
                // SAFETY: the caller's promise.
                kernel_result(unsafe { real::setsockopt(fd, level, name, value, len) })?;
                if (level, name) == (libc::IPPROTO_IPV6, six::ADDRESS_FORM)
                    && let Some(socket) = process.lock().sockets.find_mut(key)
                {
                    socket.family = Family::V4;
                }
                return Ok(0);
            }
            Kind::Listener(Some(_)) | Kind::Datagram(Some(_)) => {
                // The kernel's half is bound to the same address: peers find it once the rule is gone.
                offload.close_flows(key);
                offload.leave_to_kernel(key, "setsockopt", Reason::KernelOnlyOption);
                offload.dispatch();
            }
            Kind::Fresh | Kind::Listener(None) | Kind::Datagram(None) => {
                offload.leave_to_kernel(key, "setsockopt", Reason::KernelOnlyOption);
            }
            Kind::Kernel => {}
            Kind::Moving => return Err(ON_ITS_WAY),
        }
        if is_groups {
            leave_group(offload, key);
        }
    }
    if (level, name) == (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) && !value.is_null() && has_its_families(offload, key) {
        return Err(Errno(libc::EINVAL));
    }
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_CONGESTION) && len > 0 {
        drop(guard);
        // SAFETY: the caller's promise; a bad pointer is the kernel's to find.
        return unsafe { congestion::set(process, (fd, key), value, len) };
    }
    drop(guard);
    let is_preference = device != Device::NotMeant || (level, name) == (libc::SOL_SOCKET, SO_INCOMING_CPU);
    let former = if is_preference { sharing::former_receiver_of_own(process, fd, key) } else { None };
    // SAFETY: the caller's promise.
    unsafe { common::set_of_placeholder(process, (fd, key), (level, name), value, len) }?;
    if (level, name) == (libc::IPPROTO_UDP, UDP_CORK) {
        // The pieces are put together here: the placeholder gets whole datagrams.
        let off: c_int = 0;
        // SAFETY: the value is as long as it says.
        unsafe { real::setsockopt(fd, level, name, (&raw const off).cast(), size_of::<c_int>() as socklen_t) };
    }
    // SAFETY: the kernel read the option's bytes there just now.
    let argument = unsafe { Argument::read(value, len) };
    let mut guard = process.lock();
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find_mut(key) else { return Ok(0) };
    if level == libc::SOL_SOCKET && is_group_program(name) {
        socket.rare().has_group_program = true;
    }
    if socket.protocol == Protocol::Udp && groups::note(socket, (level, name), &argument.bytes[..argument.len]) {
        offload.uses_groups();
    }
    let Some(socket) = offload.sockets.find_mut(key) else { return Ok(0) };
    match socket.kind {
        // (Before or after the placeholder was told, or in between.)
        Kind::Kernel | Kind::Moving if matches!(before, Some(Kind::Stream(_) | Kind::Connecting(_))) => return Err(ON_ITS_WAY),
        Kind::Kernel | Kind::Moving => return Ok(0),
        _ => {}
    }
    if is_preference {
        let (preference, is_set) = match device {
            Device::NotMeant => (SO_INCOMING_CPU, argument.int() >= 0),
            _ => (SO_BINDTODEVICE, device == Device::Local),
        };
        socket.prefers(preference, is_set);
    }
    if (level, name) == (libc::SOL_SOCKET, SO_RXQ_OVFL) {
        // What has been sent already has arrived, on the kernel.
        offload.poll_if_due(process.now());
        offload.keep_one_flow(key);
    }
    let Some(socket) = offload.sockets.find_mut(key) else { return Ok(0) };
    apply(socket, process, level, name, &argument);
    sharing::leave_choice_to_kernel(offload, key);
    push(offload, process, key);
    let shares = level == libc::SOL_SOCKET
        && matches!(name, libc::SO_REUSEPORT | libc::SO_REUSEADDR)
        && offload.sockets.find(key).is_some_and(Socket::shares_address);
    if shares && offload.may_come_to_share(key) {
        offload.look_at_port_of(key);
        offload.fit_flows(key);
    } else if shares || device == Device::Local || is_route(level, name) && argument.int() != 0 {
        offload.keep_within(key);
    }
    if let Some(former) = former {
        drop(guard);
        former.lets_go(process);
        guard = process.lock();
    }
    let offload = &mut *guard;
    if matches!(device, Device::Local | Device::Any) {
        rings::bound_to_device(offload, key, device == Device::Local);
    }
    if (level, name) == (libc::IPPROTO_UDP, UDP_CORK) && !argument.flag() {
        // Its failure is nobody's: setsockopt has done what it was told.
        let _ = cork::push(process, guard, fd, key, 0);
    }
    Ok(0)
}

/// A program of the kernel's chooses among the sockets that share an address (SO_ATTACH_REUSEPORT_EBPF), one of which was given to it: those of this
/// process are all the kernel's from then on.
fn leave_group(offload: &mut Offload, key: Key) {
    let Some((bound, protocol)) = offload.sockets.find(key).and_then(|socket| Some((socket.bound?, socket.protocol))) else { return };
    let shares = |socket: &Socket| socket.bound == Some(bound) && socket.protocol == protocol && socket.reuse_port;
    let is_offloaded = |socket: &Socket| matches!(socket.kind, Kind::Listener(Some(_)) | Kind::Datagram(Some(_)));
    let sharers: Vec<_> = offload.sockets.iter().filter(|(_, socket)| shares(socket) && is_offloaded(socket)).map(|(key, _)| key).collect();
    for key in sharers {
        offload.close_flows(key);
        offload.leave_to_kernel(key, "setsockopt", Reason::KernelOnlyOption);
    }
    offload.dispatch();
}

/// Asks the kernel whether it has an upper layer protocol at all (TLS libraries try that on every connection), before a connection moves
/// there for its sake.
///
/// # Errors
/// As setsockopt(2): it has not.
///
/// # Safety
/// As setsockopt(2).
unsafe fn ask_for_ulp(family: Family, value: *const c_void, len: socklen_t) -> Result<(), Errno> {
    let fd = lifecycle::placeholder(family, libc::SOCK_CLOEXEC)?;
    // SAFETY: the caller's promise; a bad pointer is the kernel's to find.
    let asked = kernel_result(unsafe { real::setsockopt(fd, libc::IPPROTO_TCP, TCP_ULP, value, len) });
    // SAFETY: the descriptor was made above, and nobody knows of it.
    unsafe { real::close(fd) };
    match asked {
        // It has one that is for connections only.
        Ok(_) | Err(Errno(libc::ENOTCONN)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// What SO_BINDTODEVICE or SO_BINDTOIFINDEX names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Device {
    /// It is not that option.
    NotMeant,
    /// The one by which the kernel, too, brings whatever is local: no socket receives less for being bound to it.
    Local,
    /// None in particular, again.
    Any,
    Other,
}

/// # Safety
/// `value` is null, or `len` bytes can be read there.
unsafe fn device_of(option: c_int, value: *const c_void, len: socklen_t) -> Device {
    // SAFETY: the caller's promise.
    let argument = || unsafe { Argument::read(value, len) };
    let argument = match option {
        SO_BINDTODEVICE => argument(),
        // (What is no index changes nothing. In each network namespace, the loopback is the first.)
        SO_BINDTOIFINDEX => {
            return match argument().int() {
                ..0 => Device::NotMeant,
                0 => Device::Any,
                1 => Device::Local,
                2.. => Device::Other,
            };
        }
        _ => return Device::NotMeant,
    };
    let name = &argument.bytes[..argument.len];
    match name.split(|&byte| byte == 0).next() {
        Some(b"lo") => Device::Local,
        Some(b"") | None => Device::Any,
        Some(_) => Device::Other,
    }
}

/// An option's value in the forms that are needed.
pub(super) struct Argument {
    pub(super) bytes: [u8; 32],
    pub(super) len: usize,
}

impl Argument {
    /// # Safety
    /// `value` is null, or `len` bytes can be read there.
    pub(super) unsafe fn read(value: *const c_void, len: socklen_t) -> Self {
        let mut argument = Self { bytes: [0; 32], len: 0 };
        if !value.is_null() {
            argument.len = (len as usize).min(argument.bytes.len());
            // SAFETY: the caller's promise; at most the array's length.
            unsafe { core::ptr::copy_nonoverlapping(value.cast::<u8>(), argument.bytes.as_mut_ptr(), argument.len) };
        }
        argument
    }

    fn i64_at(&self, offset: usize) -> i64 {
        self.bytes[offset..offset + 8].try_into().map_or(0, i64::from_ne_bytes)
    }

    /// The option as an integer; IP options may come as a single byte.
    fn int(&self) -> c_int {
        if self.len >= 4 { self.bytes[..4].try_into().map_or(0, c_int::from_ne_bytes) } else { c_int::from(self.bytes[0]) }
    }

    fn flag(&self) -> bool {
        self.int() != 0
    }

    fn size(&self) -> usize {
        usize::try_from(self.int()).unwrap_or(0)
    }

    fn seconds(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.int()).unwrap_or(0))
    }

    /// A timeval; zero means no timeout.
    fn timeval(&self) -> Option<Duration> {
        let (seconds, micros) = (self.i64_at(0), self.i64_at(8));
        // Linux takes a negative time for "at once", but no shorter than a tick.
        if seconds < 0 {
            return Some(Duration::from_millis(1));
        }
        let time = Duration::from_secs(seconds.unsigned_abs()) + Duration::from_micros(micros.unsigned_abs());
        (!time.is_zero()).then_some(time)
    }

    fn linger(&self) -> Option<Duration> {
        let time = self.bytes[4..8].try_into().map_or(0, c_int::from_ne_bytes);
        self.flag().then(|| Duration::from_secs(u64::try_from(time).unwrap_or(0)))
    }
}

/// Notes what an option means for us.
fn apply(socket: &mut Socket, process: &Process, level: c_int, name: c_int, argument: &Argument) {
    if matches!((level, name), (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_REUSEPORT) | (libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE)) {
        socket.has_plain_port = false;
    }
    let tcp = &mut socket.tcp;
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO | SO_RCVTIMEO_NEW) => socket.receive_timeout = argument.timeval(),
        (libc::SOL_SOCKET, libc::SO_SNDTIMEO | SO_SNDTIMEO_NEW) => socket.send_timeout = argument.timeval(),
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            socket.linger = argument.linger();
            // (For the peer to know should this process be killed.)
            tcp.linger_zero = socket.linger == Some(Duration::ZERO);
        }
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT) => set_low_water(socket),
        (libc::SOL_SOCKET, SO_ZEROCOPY) => socket.rare().zerocopy = argument.flag(),
        (libc::IPPROTO_UDP, UDP_CORK) => socket.rare().cork = argument.flag(),
        // (Accepted sockets have it too: a server that starts again binds the port only if those that are left of the last one have SO_REUSEADDR
        // as well.)
        (libc::SOL_SOCKET, libc::SO_REUSEPORT | libc::SO_REUSEADDR) => {
            if name == libc::SO_REUSEPORT {
                socket.reuse_port = argument.flag();
            }
            // One that is bound already shares its address from now on, as far as others ask for that (udp_lib_lport_inuse).
            if matches!(socket.kind, Kind::Datagram(Some(_))) && socket.udp.cookie != 0 {
                socket.udp.reuse = sharing::reuse_of(socket.fd);
            }
        }
        (libc::SOL_SOCKET, libc::SO_RCVBUF | libc::SO_RCVBUFFORCE) => {
            let bytes = argument.size().max(process.params.rx_bytes_min);
            match socket.protocol {
                Protocol::Tcp => tcp.rcvbuf = Some(bytes),
                // The kernel doubles it for its overhead; the ring counts overhead likewise.
                Protocol::Udp => socket.udp.rcvbuf = bytes * 2,
            }
        }
        (libc::SOL_SOCKET, libc::SO_SNDBUF | libc::SO_SNDBUFFORCE) => tcp.sndbuf = Some(argument.size().max(2048)),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => tcp.keepalive = argument.flag().then_some(socket.keepalive),
        _ if times::concerns(level, name) => times::note(socket, name, argument.int()),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => tcp.nodelay = argument.flag() || process.params.tcp_nodelay,
        (libc::IPPROTO_TCP, libc::TCP_CORK) => tcp.cork = argument.flag(),
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => tcp.quickack = argument.flag() || process.params.tcp_quickack,
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => tcp.mss_user = u16::try_from(argument.int()).ok(),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => set_keepalive(socket, |k| k.idle = argument.seconds()),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => set_keepalive(socket, |k| k.interval = argument.seconds()),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => set_keepalive(socket, |k| k.count = argument.int().unsigned_abs()),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => {
            let ms = argument.int().unsigned_abs();
            tcp.user_timeout = (ms != 0).then(|| Duration::from_millis(u64::from(ms)));
        }
        (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => tcp.syn_retries = argument.int().unsigned_abs(),
        (libc::IPPROTO_TCP, libc::TCP_LINGER2) => {
            tcp.fin_wait2 = if argument.int() < 0 { Duration::ZERO } else { argument.seconds() };
        }
        (libc::SOL_SOCKET, SO_RXQ_OVFL) => {
            // (On a connection it means nothing, in the kernel as little as here.)
            socket.udp.tell_drops = argument.flag();
            socket.ancillary.drops = (argument.flag() && socket.protocol == Protocol::Udp).then_some(0);
        }
        (libc::IPPROTO_TCP, TCP_INQ) => socket.ancillary.inq = argument.flag(),
        (libc::IPPROTO_IP, libc::IP_TOS) => set_tos(socket, argument.int()),
        // (-1: the default.)
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => set_tos(socket, argument.int().max(0)),
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
            let ttl = u8::try_from(argument.int()).unwrap_or(64);
            socket.tcp.ttl = ttl;
            socket.udp.ttl = ttl;
        }
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => socket.ancillary.packet_info = argument.flag(),
        (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) => socket.ancillary.packet_info6 = argument.flag(),
        (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => socket.udp.passing_errors = argument.flag(),
        // The kernel's own, and its accepted sockets'.
        _ if is_inherited(level, name) => {}
        _ => return,
    }
    if matches!(socket.kind, Kind::Fresh | Kind::Listener(_)) && argument.len == size_of::<c_int>() {
        socket.inherited.retain(|&(l, n, _)| (l, n) != (level, name));
        socket.inherited.push((level, name, argument.int()));
    }
}

/// As much as the kernel, which has an upper limit, made of it. The receive buffer must be able to hold that (tcp_set_rcvlowat).
fn set_low_water(socket: &mut Socket) {
    let mut value: c_int = 1;
    let mut len = size_of::<c_int>() as socklen_t;
    // SAFETY: the value is as long as it says.
    unsafe { real::getsockopt(socket.fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, (&raw mut value).cast(), &raw mut len) };
    let bytes = usize::try_from(value).unwrap_or(1).max(1);
    socket.receive_low_water = bytes;
    let room = 2 * bytes + (64 << 10);
    if bytes > socket.tcp.rcvbuf.unwrap_or(socket.tcp.rcvbuf_initial) / 4 {
        socket.tcp.rcvbuf = Some(socket.tcp.rcvbuf.unwrap_or(0).max(room));
    }
}

fn set_tos(socket: &mut Socket, value: c_int) {
    let tos = value.to_le_bytes()[0];
    socket.tcp.tos = tos;
    socket.udp.tos = tos;
}

fn set_keepalive(socket: &mut Socket, change: impl FnOnce(&mut tcp::Keepalive)) {
    change(&mut socket.keepalive);
    if socket.tcp.keepalive.is_some() {
        socket.tcp.keepalive = Some(socket.keepalive);
    }
}

/// Makes an existing ring socket heed the socket's options.
pub(super) fn push(offload: &mut Offload, process: &Process, key: Key) {
    let Some(socket) = offload.sockets.find(key) else { return };
    for id in socket.flows() {
        let result = match socket.protocol {
            Protocol::Tcp => {
                let of_socket = offload.rings.tcp_config(id.ring, &socket.tcp, (socket.peer, socket.path_mtu));
                offload.rings.of_mut(id).tcp_configure(process.now(), id, |config| config.clone_from(&of_socket))
            }
            Protocol::Udp => {
                // (On an interface nobody shares a flow's address, but for a group's, whose members all do.)
                let is_there = offload.rings.interfaces.contains(id.ring);
                offload.rings.of_mut(id).udp_configure(id, |options| {
                    let (reuse, cookie) = if is_there { (options.reuse, options.cookie) } else { (socket.udp.reuse, socket.udp.cookie) };
                    *options = UdpOptions { reuse, cookie, ..socket.udp };
                })
            }
        };
        if let Err(error) = result {
            tracing::debug!("an option was not taken by the ring: {error}");
        }
    }
    offload.dispatch();
}

/// getsockopt(2).
///
/// # Errors
/// As getsockopt(2).
///
/// # Safety
/// As getsockopt(2): `value` and `len` are valid for writing.
pub(crate) unsafe fn get(
    process: &Process,
    fd: c_int,
    key: Key,
    (level, name): (c_int, c_int),
    value: *mut c_void,
    len: *mut socklen_t,
) -> Result<c_int, Errno> {
    // SAFETY: the caller's promise.
    if let Some(result) = unsafe { extra::options::get(process, key, (level, name), value, len) } {
        return result;
    }
    if rings::concerns(level, name) {
        // SAFETY: the caller's promise.
        return unsafe { rings::get(process, key, name, value, len) };
    }
    let mut guard = process.lock();
    let offload = &mut *guard;
    let Some(socket) = offload.sockets.find_mut(key) else { return Err(Errno(libc::EBADF)) };
    let kind = socket.kind;
    match (level, name, kind) {
        (libc::SOL_SOCKET, libc::SO_ERROR, Kind::Connecting(id) | Kind::Stream(id)) => {
            let now = process.now();
            offload.poll_if_due(now);
            let error = offload.rings.of_mut(id).take_error(id).map_or(0, |error| Errno::from(error).0);
            drop(guard);
            // SAFETY: the caller's promise.
            unsafe { answer(&error, value, len) }
        }
        (libc::SOL_SOCKET, libc::SO_ERROR, Kind::Fresh) if socket.rare.as_ref().is_some_and(|rare| rare.error.is_some()) => {
            let error = socket.take_left_error().unwrap_or(0);
            drop(guard);
            // SAFETY: the caller's promise.
            unsafe { answer(&error, value, len) }
        }
        (libc::SOL_SOCKET, libc::SO_ERROR, Kind::Datagram(Some(id))) => {
            offload.poll_if_due(process.now());
            let id = offload.turn(key).unwrap_or(id);
            let error = offload.rings.of_mut(id).take_error(id).map(|error| Errno::from(error).0);
            if let Some(error) = error.or_else(|| offload.sockets.find_mut(key)?.take_left_error()) {
                drop(guard);
                // SAFETY: the caller's promise.
                return unsafe { answer(&error, value, len) };
            }
            drop(guard);
            // SAFETY: the caller's promise.
            kernel_result(unsafe { real::getsockopt(fd, level, name, value, len) })
        }
        (libc::IPPROTO_UDP, UDP_CORK, Kind::Datagram(_)) => {
            let on = c_int::from(socket.rare.as_ref().is_some_and(|rare| rare.cork));
            drop(guard);
            // SAFETY: the caller's promise.
            unsafe { answer(&on, value, len) }
        }
        (libc::SOL_SOCKET, SO_PEERNAME, Kind::Connecting(_) | Kind::Stream(_)) => {
            // SAFETY: the caller's promise.
            unsafe { peer_name(socket, value, len) }
        }
        (libc::IPPROTO_IP, libc::IP_MTU, Kind::Connecting(_) | Kind::Stream(_))
        | (libc::IPPROTO_IPV6, libc::IPV6_MTU, Kind::Connecting(_) | Kind::Stream(_))
            if socket.peer.is_some() =>
        {
            // SAFETY: the caller's promise.
            unsafe { path_mtu(socket, (level, name), value, len) }
        }
        (libc::IPPROTO_TCP, libc::TCP_INFO, Kind::Connecting(id) | Kind::Stream(id)) => {
            let now = process.now();
            offload.poll_if_due(now);
            let info = info::tcp_info(offload, now, id);
            drop(guard);
            // SAFETY: the caller's promise.
            unsafe { answer(&info, value, len) }
        }
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG, Kind::Connecting(id) | Kind::Stream(id)) => {
            let mss = offload.rings.of(id).info(id).map_or(0, |info| c_int::from(info.mss));
            drop(guard);
            // SAFETY: the caller's promise.
            unsafe { answer(&mss, value, len) }
        }
        // Where a connect chose the placeholder's address, the kernel has taken the socket for one that wants IPv6 alone (inet6_bind).
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, Kind::Connecting(_) | Kind::Stream(_))
            if socket.family == Family::V6 && socket.bound_by_connect =>
        {
            let set = socket.inherited.iter().find(|&&(l, n, _)| (l, n) == (level, name)).map(|&(_, _, value)| c_int::from(value != 0));
            drop(guard);
            let told = set.unwrap_or_else(|| c_int::from(lifecycle::is_v6_only_from_the_start()));
            // SAFETY: the caller's promise.
            unsafe { answer(&told, value, len) }
        }
        // What the ring's connections run, whatever the placeholder's default is.
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION, Kind::Connecting(_) | Kind::Stream(_)) => {
            let name = congestion::name_of(socket.tcp.congestion);
            drop(guard);
            // SAFETY: the caller's promise.
            unsafe { answer(&name, value, len) }
        }
        // (What is not a connection yet may become the kernel's, whose default another process's may be.)
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION, Kind::Fresh | Kind::Listener(_))
            if socket.protocol == Protocol::Tcp && socket.tcp.congestion != process.params.tcp_congestion =>
        {
            let name = congestion::name_of(socket.tcp.congestion);
            drop(guard);
            // SAFETY: the caller's promise.
            unsafe { answer(&name, value, len) }
        }
        _ => {
            drop(guard);
            // SAFETY: the caller's promise.
            kernel_result(unsafe { real::getsockopt(fd, level, name, value, len) })
        }
    }
}

/// SO_PEERNAME: as much of the peer's name as there is room for, and no more room than that; also of a connection that has ended (sk_getsockopt).
unsafe fn peer_name(socket: &Socket, value: *mut c_void, len: *mut socklen_t) -> Result<c_int, Errno> {
    let mut name = [0u8; size_of::<libc::sockaddr_in6>()];
    let mut whole = name.len() as socklen_t;
    let peer = socket.peer.ok_or(Errno(libc::ENOTCONN))?;
    // SAFETY: there is room for each family's.
    unsafe { Raw::new(peer, socket.family).write(name.as_mut_ptr().cast(), &raw mut whole) }?;
    // SAFETY: the caller's promise.
    match is_nowhere(len) || unsafe { len.read() } <= whole {
        // SAFETY: the caller's promise.
        true => unsafe { answer(&name, value, len) },
        false => Err(Errno(libc::EINVAL)),
    }
}

/// IP_MTU and IPV6_MTU of a connection: the path's, which the kernel knows by its routes.
unsafe fn path_mtu(socket: &Socket, name: (c_int, c_int), value: *mut c_void, len: *mut socklen_t) -> Result<c_int, Errno> {
    let peer = Raw::new(socket.peer.ok_or(Errno(libc::ENOTCONN))?, socket.family);
    let domain = lifecycle::domain(socket.family);
    numbers::make_internal(|| {
        // SAFETY: plain integers.
        let fd = kernel_result(unsafe { real::socket(domain, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
        // SAFETY: the name is as long as it says; the caller's promise.
        let told = unsafe {
            kernel_result(real::connect(fd, peer.as_ptr(), peer.len()))
                .and_then(|_| kernel_result(real::getsockopt(fd, name.0, name.1, value, len)))
        };
        // SAFETY: made above, and nobody knows of it.
        unsafe { real::close(fd) };
        told
    })
}

/// Writes an answer, cut to the room there is.
unsafe fn answer<T: Copy>(answer: &T, value: *mut c_void, len: *mut socklen_t) -> Result<c_int, Errno> {
    if is_nowhere(len) || is_nowhere(value) {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise.
    let room = unsafe { len.read() };
    if i32::try_from(room).is_err() {
        return Err(Errno(libc::EINVAL));
    }
    let written = (room as usize).min(size_of::<T>());
    // SAFETY: at most the caller's room is written, and at most the answer read.
    unsafe {
        core::ptr::copy_nonoverlapping(core::ptr::from_ref(answer).cast::<u8>(), value.cast::<u8>(), written);
        len.write(written as socklen_t);
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argument<T: Copy>(value: T) -> Argument {
        // SAFETY: the value is as long as it says.
        unsafe { Argument::read((&raw const value).cast(), size_of::<T>() as socklen_t) }
    }

    #[test]
    fn times_are_read_as_linux_reads_them() {
        let timeval = |tv_sec, tv_usec| argument(libc::timeval { tv_sec, tv_usec }).timeval();
        assert_eq!(timeval(0, 0), None);
        assert_eq!(timeval(2, 500_000), Some(Duration::from_millis(2500)));
        assert_eq!(timeval(-1, 0), Some(Duration::from_millis(1)));
    }

    #[test]
    fn linger_is_on_off_and_seconds() {
        let linger = |l_onoff, l_linger| argument(libc::linger { l_onoff, l_linger }).linger();
        assert_eq!(linger(0, 5), None);
        assert_eq!(linger(1, 0), Some(Duration::ZERO));
        assert_eq!(linger(1, 5), Some(Duration::from_secs(5)));
    }

    #[test]
    fn an_answer_is_cut_to_the_room() {
        let mut out = [0xeeu8; 8];
        let mut len: socklen_t = 2;
        // SAFETY: two bytes of eight.
        unsafe { answer(&0x0102_0304_i32.to_be(), out.as_mut_ptr().cast(), &raw mut len) }.expect("valid");
        assert_eq!((len, out[..3].to_vec()), (2, vec![1, 2, 0xee]));
    }
}
