//! A descriptor that is closed with its last owner.

use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;

use libc::c_int;
use ringway_preload::Errno;

use crate::calls::{open, options};

/// An rsocket's number, which is this library's alone until it is dropped.
#[derive(Debug)]
pub(super) struct Socket(pub(super) RawFd);

impl Socket {
    /// A new one, of the family of `like`. `kind`: SOCK_STREAM or SOCK_DGRAM.
    pub(super) fn new(like: &SocketAddr, kind: c_int) -> io::Result<Self> {
        let domain = if like.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        io_result(open::socket(domain, kind | libc::SOCK_CLOEXEC, 0)).map(Self)
    }

    pub(super) fn bind(&self, at: SocketAddr) -> io::Result<()> {
        io_result(open::bind(self.0, |_| Ok(at)))
    }

    pub(super) fn local(&self) -> io::Result<SocketAddr> {
        io_result(open::local(self.0)).map(|(name, _)| name)
    }

    pub(super) fn remote(&self) -> io::Result<SocketAddr> {
        io_result(open::remote(self.0)).map(|(name, _)| name)
    }

    pub(super) fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        let flags = if on { libc::O_NONBLOCK } else { 0 };
        io_result(options::control(self.0, libc::F_SETFL, flags.into())).map(|_| ())
    }

    pub(super) fn set_number(&self, level: c_int, number: c_int, value: u32) -> io::Result<()> {
        io_result(options::set(self.0, level, number, &value.to_ne_bytes()))
    }

    pub(super) fn number(&self, level: c_int, number: c_int) -> io::Result<u32> {
        let bytes = io_result(options::get(self.0, level, number))?;
        let word = bytes.first_chunk().ok_or(io::ErrorKind::InvalidData)?;
        Ok(u32::from_ne_bytes(*word))
    }

    /// SO_ERROR: why it failed, once.
    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        let code = self.number(libc::SOL_SOCKET, libc::SO_ERROR)?.cast_signed();
        Ok((code != 0).then(|| io::Error::from_raw_os_error(code)))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // A fork's child has none of its parent's.
        let _ = open::close(self.0);
    }
}

/// What a call said, as `std` has it.
pub(super) fn io_result<T>(result: Result<T, Errno>) -> io::Result<T> {
    result.map_err(|error| io::Error::from_raw_os_error(error.0))
}
