//! rsetsockopt, rgetsockopt, rfcntl.

use core::ffi::{c_int, c_long};
use std::os::fd::RawFd;

use ringway_preload::Errno;
use ringway_stack::rsocket::options::Stage;
use ringway_stack::rsocket::{OptionName, OptionValue};

use crate::library::{enter, errno};

/// Linux's TCP_CONGESTION: kept by nobody, as with librdmacm.
const TCP_CONGESTION: c_int = 13;

/// Sets an option to the value that these bytes are.
///
/// # Errors
/// EBADF; ENOTSUP: rsockets have no such option, or it can only be got; EINVAL: too few bytes, or a value out of its range; also of SOL_RDMA's options, once the
/// connection was begun.
pub(crate) fn set(fd: RawFd, level: c_int, number: c_int, value: &[u8]) -> Result<(), Errno> {
    let mut library = enter()?;
    let now = library.poll();
    let entry = library.entry(fd)?;
    match (level, number) {
        (libc::IPPROTO_IP, libc::IP_TOS) => {
            entry.tos = value.first().copied().ok_or(Errno(libc::EINVAL))?;
            return Ok(());
        }
        (libc::IPPROTO_TCP, TCP_CONGESTION) => return Ok(()),
        _ => {}
    }
    let name = OptionName::from_numbers(level, number).ok_or(Errno(libc::ENOTSUP))?;
    let word = |at: usize| value.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_ne_bytes);
    let value = match name {
        OptionName::Route => OptionValue::Bytes(value.to_vec()),
        OptionName::Linger => OptionValue::Linger(word(0).ok_or(Errno(libc::EINVAL))? != 0, word(4).ok_or(Errno(libc::EINVAL))?),
        _ => OptionValue::Number(word(0).ok_or(Errno(libc::EINVAL))?),
    };
    if name == OptionName::V6Only {
        entry.v6_only = value != OptionValue::Number(0);
    }
    if let Ok((datagram, udp)) = entry.datagram() {
        let stage = if datagram.open.is_some() { Stage::Opened } else { Stage::Fresh };
        if let (OptionName::V6Only, OptionValue::Number(on)) = (name, &value) {
            rustix::net::sockopt::set_ipv6_v6only(udp, *on != 0).map_err(|error| Errno(error.raw_os_error()))?;
        }
        return datagram.options.set(name, &value, stage).map_err(errno);
    }
    let id = entry.stream()?;
    library.sockets.set_option(now, id, name, &value).map_err(errno)
}

/// An option's value, as bytes.
///
/// # Errors
/// EBADF; ENOTSUP: rsockets have no such option.
pub(crate) fn get(fd: RawFd, level: c_int, number: c_int) -> Result<Vec<u8>, Errno> {
    let mut library = enter()?;
    let now = library.poll();
    let entry = library.entry(fd)?;
    if (level, number) == (libc::IPPROTO_IP, libc::IP_TOS) {
        return Ok(c_int::from(entry.tos).to_ne_bytes().to_vec());
    }
    let name = OptionName::from_numbers(level, number).ok_or(Errno(libc::ENOTSUP))?;
    if let Ok((datagram, _)) = entry.datagram() {
        return Ok(bytes_of(datagram.options.get(name, None, None)));
    }
    let id = entry.stream()?;
    let (sockets, device) = library.parts();
    if name == OptionName::Error {
        // What has failed since is known then.
        sockets.readiness(now, device, id).map_err(errno)?;
    }
    sockets.option(device, id, name).map(bytes_of).map_err(errno)
}

fn bytes_of(value: OptionValue) -> Vec<u8> {
    match value {
        OptionValue::Number(number) => number.to_ne_bytes().to_vec(),
        OptionValue::Linger(on, seconds) => [u32::from(on), seconds].map(u32::to_ne_bytes).concat(),
        OptionValue::Bytes(bytes) => bytes,
    }
}

/// F_GETFL and F_SETFL (O_NONBLOCK alone), F_GETFD and F_SETFD.
///
/// # Errors
/// EBADF; ENOTSUP: another command.
pub(crate) fn control(fd: RawFd, command: c_int, argument: c_long) -> Result<c_int, Errno> {
    let mut library = enter()?;
    let entry = library.entry(fd)?;
    match command {
        libc::F_GETFL => Ok(libc::O_RDWR | if entry.is_nonblocking { libc::O_NONBLOCK } else { 0 }),
        libc::F_SETFL => {
            entry.is_nonblocking = argument & c_long::from(libc::O_NONBLOCK) != 0;
            Ok(0)
        }
        libc::F_GETFD | libc::F_SETFD => {
            // SAFETY: the descriptor is ours, and both commands take a number.
            let done = unsafe { libc::fcntl(fd, command, argument) };
            if done < 0 { Err(Errno::last()) } else { Ok(done) }
        }
        _ => Err(Errno(libc::ENOTSUP)),
    }
}
