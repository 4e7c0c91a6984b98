//! Who waits for connections.

use std::io;
use std::net::SocketAddr;

use super::config::Config;
use super::socket::{Socket, io_result};
use super::stream::Stream;
use crate::calls::open;

/// As `std`'s.
const BACKLOG: u32 = 128;

/// A listener, as `std::net::TcpListener` is one. It is closed when it is dropped, and so are connections that nobody has accepted.
#[derive(Debug)]
pub struct Listener(Socket);

impl Listener {
    /// Listens at an address of this machine's; port zero: at any port.
    ///
    /// # Errors
    /// `AddrInUse`: somebody of this user has the port; `AddrNotAvailable`: the address is none of this machine's; `Other` (ENODEV): there is no device.
    pub fn bind(at: SocketAddr) -> io::Result<Self> {
        Config::new().listen(at, BACKLOG)
    }

    pub(super) fn listen_by(socket: Socket, backlog: u32) -> io::Result<Self> {
        io_result(open::listen(socket.0, i32::try_from(backlog).unwrap_or(i32::MAX)))?;
        Ok(Self(socket))
    }

    /// Waits for the next connection; gives it with its peer's address. The stream blocks, whether the listener does or not.
    ///
    /// # Errors
    /// `WouldBlock`: it does not block, and nobody is there; `Interrupted`; `Other` (EMFILE, ENFILE): there is no descriptor left.
    pub fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        let (fd, peer, _) = io_result(open::accept(self.0.0))?;
        Ok((Stream::of(Socket(fd)), peer))
    }

    /// Its connections, one after the other, without an end.
    pub fn incoming(&self) -> impl Iterator<Item = io::Result<Stream>> + '_ {
        core::iter::repeat_with(|| self.accept().map(|(stream, _)| stream))
    }

    /// Its address.
    ///
    /// # Errors
    /// None but in a fork's child, which has none of its parent's sockets.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local()
    }

    /// Whether [`Listener::accept`] returns where it would wait.
    ///
    /// # Errors
    /// As [`Listener::local_addr`].
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        self.0.set_nonblocking(on)
    }
}
