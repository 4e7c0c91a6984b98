//! Datagrams.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;

use super::socket::{Socket, io_result};
use crate::calls::{connect, datagram};

/// A socket for datagrams, as `std::net::UdpSocket` is one. A datagram has 2040 bytes at most, or 2024 over IPv6 (2032 and 2020 to who has not answered yet);
/// one may be lost, if there is no room for it.
#[derive(Debug)]
pub struct Datagram(Socket);

impl Datagram {
    /// Binds one to an address of this machine's; port zero: to any port.
    ///
    /// # Errors
    /// `AddrInUse`: another socket has the port; `AddrNotAvailable`: the address is none of this machine's; `Other` (ENODEV): there is no device.
    pub fn bind(at: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(&at, libc::SOCK_DGRAM)?;
        socket.bind(at)?;
        Ok(Self(socket))
    }

    /// From now on it sends to this address, and hears of no other.
    ///
    /// # Errors
    /// `NetworkUnreachable`: the address is none of this machine's.
    pub fn connect(&self, to: SocketAddr) -> io::Result<()> {
        io_result(connect::connect(self.0.0, |_| Ok(to)))
    }

    /// Sends a datagram to `to`; its length.
    ///
    /// # Errors
    /// `Other` (EMSGSIZE): it is too long; `NetworkUnreachable`: the address is none of this machine's; `WouldBlock`: there is no room, and it does not block;
    /// `Interrupted`; `OutOfMemory`.
    pub fn send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        io_result(datagram::send(self.0.0, &[IoSlice::new(bytes)], 0, Some(to)))
    }

    /// Sends a datagram to whom it was connected; its length.
    ///
    /// # Errors
    /// As [`Datagram::send_to`]; `Other` (EDESTADDRREQ): to nobody; `ConnectionRefused`: nobody of this user has the port.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        io_result(datagram::send(self.0.0, &[IoSlice::new(bytes)], 0, None))
    }

    /// Receives a datagram: how many of its bytes there was room for (the others are lost), and who sent it.
    ///
    /// # Errors
    /// `WouldBlock`: there is none, and it does not block; `Interrupted`.
    pub fn recv_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.take(bytes, 0)
    }

    /// The same, and leaves it to be received again.
    ///
    /// # Errors
    /// As [`Datagram::recv_from`].
    pub fn peek_from(&self, bytes: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.take(bytes, libc::MSG_PEEK)
    }

    /// Receives a datagram of whom it was connected to.
    ///
    /// # Errors
    /// As [`Datagram::recv_from`].
    pub fn recv(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.take(bytes, 0).map(|(len, _)| len)
    }

    fn take(&self, bytes: &mut [u8], flags: i32) -> io::Result<(usize, SocketAddr)> {
        let received = io_result(datagram::recv(self.0.0, &mut [IoSliceMut::new(bytes)], flags))?;
        Ok((received.len, received.from))
    }

    /// Its address.
    ///
    /// # Errors
    /// None but in a fork's child, which has none of its parent's sockets.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local()
    }

    /// To whom it was connected.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.remote()
    }

    /// Whether calls return where they would wait.
    ///
    /// # Errors
    /// As [`Datagram::local_addr`].
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        self.0.set_nonblocking(on)
    }
}
