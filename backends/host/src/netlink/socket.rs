//! An AF_NETLINK socket (netlink(7)), by system calls: libc's functions may be those of the library that this crate is linked into.

use core::mem;
use std::io;
use std::os::fd::RawFd;

use crate::fd::Fd;
use crate::syscall::check;

/// A socket that never blocks, and which hears nobody but the kernel. It stays in the network namespace of the thread that opened it.
#[derive(Debug)]
pub(super) struct Socket {
    fd: Fd,
}

impl Socket {
    /// Of one of netlink's protocols.
    pub(super) fn open(protocol: i32) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no memory is involved.
        let fd = Fd::make(|| unsafe { libc::syscall(libc::SYS_socket, libc::AF_NETLINK, kind, protocol) })?;
        let socket = Self { fd };
        // SAFETY: all zeroes is a valid sockaddr_nl.
        let mut address: libc::sockaddr_nl = unsafe { mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        let len = mem::size_of_val(&address);
        // SAFETY: the address is readable for its length.
        check(unsafe { libc::syscall(libc::SYS_bind, socket.fd.raw(), &raw const address, len) })?;
        Ok(socket)
    }

    pub(super) const fn raw(&self) -> RawFd {
        self.fd.raw()
    }

    /// Joins a group (`RTNLGRP_*`).
    pub(super) fn subscribe(&self, group: u32) -> io::Result<()> {
        self.set(libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, group)
    }

    /// Asks for room for `bytes` of messages that were not received yet.
    pub(super) fn set_receive_buffer(&self, bytes: u32) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)
    }

    fn set(&self, level: i32, option: i32, value: u32) -> io::Result<()> {
        let len = mem::size_of_val(&value);
        // SAFETY: the value is readable for its length.
        check(unsafe { libc::syscall(libc::SYS_setsockopt, self.fd.raw(), level, option, &raw const value, len) }).map(drop)
    }

    /// Sends a message to the kernel.
    pub(super) fn send(&self, message: &[u8]) -> io::Result<()> {
        let none = core::ptr::null::<u8>();
        // SAFETY: the message is readable for its length; there is no address (an unconnected netlink socket sends to the kernel).
        check(unsafe { libc::syscall(libc::SYS_sendto, self.fd.raw(), message.as_ptr(), message.len(), 0, none, 0) }).map(drop)
    }

    /// Receives what the kernel sent: one or several messages. What others sent is dropped. `buffer` grows if it is too small for a message,
    /// which is then lost, and the error is [`io::ErrorKind::OutOfMemory`].
    pub(super) fn receive<'a>(&self, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        loop {
            // SAFETY: all zeroes is a valid sockaddr_nl.
            let mut from: libc::sockaddr_nl = unsafe { mem::zeroed() };
            let mut len = mem::size_of_val(&from) as libc::socklen_t;
            let (data, room) = (buffer.as_mut_ptr(), buffer.len());
            // SAFETY: the buffer is writable for `room` bytes, the address for `len`.
            let received = check(unsafe {
                libc::syscall(libc::SYS_recvfrom, self.fd.raw(), data, room, libc::MSG_TRUNC, &raw mut from, &raw mut len)
            });
            let received = match received {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                received => usize::try_from(received?).unwrap_or(0),
            };
            if from.nl_pid != 0 {
                continue;
            }
            if received > room {
                buffer.resize(received.next_power_of_two(), 0);
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            return Ok(&buffer[..received]);
        }
    }
}
