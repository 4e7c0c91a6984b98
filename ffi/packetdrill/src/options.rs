//! getsockopt(2) and setsockopt(2), as far as they mean something to the stack. What changes nothing that a peer or a program can see here is remembered;
//! what asks for something that the stack lacks is ENOPROTOOPT, so that a script fails where it asks, not where it misses it.

use core::ffi::c_int;
use core::time::Duration;

use libc::{linger, timeval};
use ringway_stack::tcp;

use crate::calls::TCP_INQ;
use crate::errno::Errno;
use crate::info;
use crate::memory;
use crate::sockets::{Kind, Socket};
use crate::world::World;

const TCP_CC_INFO: c_int = 26;
const TCP_FASTOPEN_CONNECT: c_int = 30;
const TCP_FASTOPEN_KEY: c_int = 33;
const TCP_FASTOPEN_NO_COOKIE: c_int = 34;
const SO_MEMINFO: c_int = 55;
/// What SO_MEMINFO has: nine numbers (SK_MEMINFO_VARS).
const MEMINFO_LEN: usize = 9 * 4;
/// TCP_MSS_DEFAULT: what TCP_MAXSEG says before there is a connection.
const MSS_DEFAULT: c_int = 536;
/// The greatest value that TCP_MAXSEG takes (MAX_TCP_WINDOW), and the least (TCP_MIN_MSS).
const MSS_RANGE: core::ops::RangeInclusive<c_int> = 88..=32_767;

/// setsockopt(2).
///
/// # Errors
/// EBADF, EINVAL; ENOPROTOOPT: the stack has no such thing.
pub(crate) fn set(world: &mut World, fd: c_int, level: c_int, name: c_int, value: &[u8]) -> Result<(), Errno> {
    world.socket(fd)?;
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            let linger: linger = whole(value)?;
            world.socket(fd)?.linger = (linger.l_onoff != 0).then_some(linger.l_linger.max(0) as u32);
            return Ok(());
        }
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) => {
            let time: timeval = whole(value)?;
            let time = Duration::from_secs(time.tv_sec.max(0) as u64) + Duration::from_micros(time.tv_usec.clamp(0, 999_999) as u64);
            let which = usize::from(name == libc::SO_SNDTIMEO);
            world.socket(fd)?.timeouts[which] = Some(time).filter(|time| !time.is_zero());
            return Ok(());
        }
        (libc::IPPROTO_TCP, TCP_FASTOPEN_KEY) => {
            let keys = tcp::FastOpenKeys::of_bytes(value).ok_or(Errno::INVALID)?;
            return world.configure(fd, |config| config.fast_open.keys = Some(keys));
        }
        _ => {}
    }
    let value: c_int = match value {
        // Options of IP's may be a byte (ip(7)).
        [byte] if matches!(level, libc::IPPROTO_IP | libc::IPPROTO_IPV6) => c_int::from(*byte),
        _ => whole(value)?,
    };
    match level {
        libc::SOL_SOCKET => set_common(world, fd, name, value),
        libc::IPPROTO_TCP => set_tcp(world, fd, name, value),
        libc::IPPROTO_IP | libc::IPPROTO_IPV6 => set_ip(world, fd, level, name, value),
        _ => Err(Errno::NO_OPTION),
    }
}

fn set_common(world: &mut World, fd: c_int, name: c_int, value: c_int) -> Result<(), Errno> {
    let bytes = usize::try_from(value).unwrap_or(usize::MAX >> 2);
    match name {
        libc::SO_RCVBUF | libc::SO_RCVBUFFORCE => world.configure(fd, |config| config.rcvbuf = Some(bytes)),
        // Linux doubles it for what it has beside the bytes (socket(7)), of which long segments have next to nothing: so all of it can be filled.
        libc::SO_SNDBUF | libc::SO_SNDBUFFORCE => world.configure(fd, |config| config.sndbuf = Some(bytes.saturating_mul(2))),
        libc::SO_KEEPALIVE => {
            let keepalive = world.socket(fd)?.keepalive;
            world.configure(fd, |config| config.keepalive = (value != 0).then_some(keepalive))
        }
        libc::SO_REUSEADDR | libc::SO_PRIORITY | libc::SO_MARK | libc::SO_BUSY_POLL => remember(world, fd, libc::SOL_SOCKET, name, value),
        libc::SO_REUSEPORT => {
            world.configure(fd, |config| config.reuse_port = value != 0)?;
            remember(world, fd, libc::SOL_SOCKET, name, value)
        }
        _ => Err(Errno::NO_OPTION),
    }
}

fn set_tcp(world: &mut World, fd: c_int, name: c_int, value: c_int) -> Result<(), Errno> {
    let seconds = u64::try_from(value).ok().filter(|value| *value > 0);
    let positive = || seconds.map(Duration::from_secs).ok_or(Errno::INVALID);
    match name {
        libc::TCP_FASTOPEN => {
            let most = usize::try_from(value).map_err(|_| Errno::INVALID)?;
            world.configure(fd, |config| config.fast_open.under_way_max = most)
        }
        TCP_FASTOPEN_CONNECT => {
            if world.settings.fast_open & 1 == 0 {
                return Err(Errno::NOT_SUPPORTED);
            }
            world.socket(fd)?.defers_connect = value != 0;
            Ok(())
        }
        TCP_FASTOPEN_NO_COOKIE => {
            world.socket(fd)?.without_cookie = value != 0;
            world.configure(fd, |config| config.fast_open.without_cookie = value != 0)
        }
        libc::TCP_NODELAY => {
            let is_corked = world.socket(fd)?.config.cork;
            world.configure(fd, |config| (config.nodelay, config.cork) = (value != 0, config.cork && value == 0))?;
            // "However, setting this option forces an explicit flush of pending output, even if TCP_CORK is currently set." (tcp(7))
            world.configure(fd, |config| config.cork = is_corked)
        }
        libc::TCP_CORK => world.configure(fd, |config| config.cork = value != 0),
        libc::TCP_QUICKACK => world.configure(fd, |config| config.quickack = value != 0),
        libc::TCP_MAXSEG => {
            if value != 0 && !MSS_RANGE.contains(&value) {
                return Err(Errno::INVALID);
            }
            world.configure(fd, |config| config.mss_user = u16::try_from(value).ok().filter(|mss| *mss > 0))
        }
        libc::TCP_USER_TIMEOUT => {
            let ms = u64::try_from(value).map_err(|_| Errno::INVALID)?;
            world.configure(fd, |config| config.user_timeout = (ms > 0).then(|| Duration::from_millis(ms)))
        }
        libc::TCP_SYNCNT => {
            let count = u32::try_from(value).ok().filter(|count| (1..=127).contains(count)).ok_or(Errno::INVALID)?;
            world.configure(fd, |config| config.syn_retries = count)
        }
        libc::TCP_LINGER2 => {
            let time = seconds.map(Duration::from_secs);
            world.configure(fd, |config| config.fin_wait2 = time.unwrap_or(config.fin_wait2))
        }
        libc::TCP_KEEPIDLE => keepalive(world, fd, positive()?, |keepalive, time| keepalive.idle = time),
        libc::TCP_KEEPINTVL => keepalive(world, fd, positive()?, |keepalive, time| keepalive.interval = time),
        libc::TCP_KEEPCNT => {
            positive()?;
            keepalive(world, fd, Duration::ZERO, |keepalive, _| keepalive.count = value as u32)
        }
        TCP_INQ => {
            world.socket(fd)?.tells_rest = value != 0;
            Ok(())
        }
        _ => Err(Errno::NO_OPTION),
    }
}

fn keepalive(world: &mut World, fd: c_int, time: Duration, change: impl Fn(&mut tcp::Keepalive, Duration)) -> Result<(), Errno> {
    let socket = world.socket(fd)?;
    change(&mut socket.keepalive, time);
    let keepalive = socket.keepalive;
    world.configure(fd, |config| config.keepalive = config.keepalive.map(|_| keepalive))
}

fn set_ip(world: &mut World, fd: c_int, level: c_int, name: c_int, value: c_int) -> Result<(), Errno> {
    match (level, name) {
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            let tos = u8::try_from(value).map_err(|_| Errno::INVALID)?;
            // The two bits of ECN are TCP's (do_ip_setsockopt: INET_ECN_MASK of a stream's stay).
            world.configure(fd, |config| config.tos = config.tos & 3 | tos & !3)
        }
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => {
            let ttl = u8::try_from(value).ok().filter(|ttl| *ttl > 0).ok_or(Errno::INVALID)?;
            world.configure(fd, |config| config.ttl = ttl)
        }
        (libc::IPPROTO_IP, libc::IP_FREEBIND) | (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => remember(world, fd, level, name, value),
        _ => Err(Errno::NO_OPTION),
    }
}

fn remember(world: &mut World, fd: c_int, level: c_int, name: c_int, value: c_int) -> Result<(), Errno> {
    let remembered = &mut world.socket(fd)?.remembered;
    remembered.retain(|(at, called, _)| (*at, *called) != (level, name));
    remembered.push((level, name, value));
    Ok(())
}

/// getsockopt(2): the value's bytes.
///
/// # Errors
/// EBADF; ENOPROTOOPT: the stack has no such thing.
pub(crate) fn get(world: &mut World, fd: c_int, level: c_int, name: c_int) -> Result<Vec<u8>, Errno> {
    let now = world.now();
    let defaults = [world.settings.tcp.rcvbuf_initial, world.settings.tcp.sndbuf_initial];
    let (socket, ring) = world.socket_and_ring(fd)?;
    let flow = socket.flow();
    match (level, name) {
        (libc::IPPROTO_TCP, libc::TCP_INFO) => {
            let info = flow.and_then(|flow| ring.info(flow));
            let details = flow.and_then(|flow| ring.tcp_details(now, flow));
            return Ok(info::tcp_info(info.as_ref(), details.as_ref()));
        }
        // The controller has nothing to tell.
        (libc::IPPROTO_TCP, TCP_CC_INFO) => return Ok(Vec::new()),
        (libc::SOL_SOCKET, SO_MEMINFO) => return Ok(vec![0; MEMINFO_LEN]),
        (libc::SOL_SOCKET, libc::SO_LINGER) => {
            let linger = linger { l_onoff: socket.linger.is_some().into(), l_linger: socket.linger.unwrap_or(0) as c_int };
            return Ok(memory::bytes_of(&linger));
        }
        (libc::SOL_SOCKET, libc::SO_ERROR) => {
            let error = flow.and_then(|flow| ring.take_error(flow)).map_or(0, |error| error.errno());
            return Ok(error.to_ne_bytes().to_vec());
        }
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => {
            let info = flow.filter(|_| matches!(socket.kind, Kind::Stream { .. })).and_then(|flow| ring.info(flow));
            let mss = info.map(|info| c_int::from(info.mss)).filter(|mss| *mss > 0);
            let mss = mss.or(socket.config.mss_user.map(c_int::from)).unwrap_or(MSS_DEFAULT);
            return Ok(mss.to_ne_bytes().to_vec());
        }
        _ => {}
    }
    number(socket, defaults, level, name).map(|value| value.to_ne_bytes().to_vec())
}

fn number(socket: &Socket, [rcvbuf, sndbuf]: [usize; 2], level: c_int, name: c_int) -> Result<c_int, Errno> {
    let config = &socket.config;
    let seconds = |time: Duration| time.as_secs() as c_int;
    Ok(match (level, name) {
        (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_STREAM,
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => socket.domain,
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
        (libc::SOL_SOCKET, libc::SO_ACCEPTCONN) => matches!(socket.kind, Kind::Listener(_)).into(),
        // Linux says what it doubled (socket(7)).
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => config.rcvbuf.map_or(rcvbuf, |bytes| bytes.saturating_mul(2)) as c_int,
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => config.sndbuf.unwrap_or(sndbuf) as c_int,
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => config.keepalive.is_some().into(),
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => config.nodelay.into(),
        (libc::IPPROTO_TCP, libc::TCP_CORK) => config.cork.into(),
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => config.quickack.into(),
        (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => config.syn_retries as c_int,
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => config.user_timeout.map_or(0, |time| time.as_millis() as c_int),
        (libc::IPPROTO_TCP, libc::TCP_LINGER2) => seconds(config.fin_wait2),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => seconds(socket.keepalive.idle),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => seconds(socket.keepalive.interval),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => socket.keepalive.count as c_int,
        (libc::IPPROTO_TCP, TCP_INQ) => socket.tells_rest.into(),
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => config.tos.into(),
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) => config.ttl.into(),
        _ => {
            let found = socket.remembered.iter().find(|(at, called, _)| (*at, *called) == (level, name));
            found.map(|(.., value)| *value).ok_or(Errno::NO_OPTION)?
        }
    })
}

/// A value of that type, whose bytes are all there.
fn whole<T: memory::Plain>(bytes: &[u8]) -> Result<T, Errno> {
    if bytes.len() >= size_of::<T>() { Ok(memory::of_bytes(bytes)) } else { Err(Errno::INVALID) }
}
