//! A connection.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

use super::config::Config;
use super::iomap::IoMap;
use super::socket::{Socket, io_result};
use crate::calls::{connect, direct, open, stream};

/// A stream of bytes each way, as `std::net::TcpStream` is one, and direct writes beside it. A reference reads and writes as well, so that one thread can read
/// while another writes.
///
/// It is closed when it is dropped, and the last [`IoMap`] of it: what was written still arrives, for which that waits, 30 seconds at most. (One that does not
/// block does not wait.)
#[derive(Debug)]
pub struct Stream(Arc<Socket>);

impl Stream {
    /// Connects. [`Config::connect`] does the same with options.
    ///
    /// # Errors
    /// `ConnectionRefused`: nobody of this user listens there; `TimedOut`: who does, does not answer; `NetworkUnreachable`: the address is none of this
    /// machine's; `OutOfMemory`: no more buffers can be registered; `Interrupted`; `Other` (ENODEV): there is no device.
    pub fn connect(to: SocketAddr) -> io::Result<Self> {
        Config::new().connect(to)
    }

    pub(super) fn connect_by(socket: Socket, to: SocketAddr) -> io::Result<Self> {
        io_result(connect::connect(socket.0, |_| Ok(to)))?;
        Ok(Self::of(socket))
    }

    pub(super) fn of(socket: Socket) -> Self {
        Self(Arc::new(socket))
    }

    /// Our address.
    ///
    /// # Errors
    /// None but in a fork's child, which has none of its parent's sockets.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local()
    }

    /// The peer's address.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.remote()
    }

    /// Ends a direction, or both: the peer reads what was written, and then the end. That it has arrived is waited for, 30 seconds at most.
    ///
    /// # Errors
    /// `NotConnected`; `Interrupted`: it goes on by itself.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => libc::SHUT_RD,
            Shutdown::Write => libc::SHUT_WR,
            Shutdown::Both => libc::SHUT_RDWR,
        };
        io_result(open::shutdown(self.0.0, how))
    }

    /// Whether reads and writes return where they would wait.
    ///
    /// # Errors
    /// As [`Stream::local_addr`].
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        self.0.set_nonblocking(on)
    }

    /// Reads, and leaves what was read to be read again.
    ///
    /// # Errors
    /// As reading: `WouldBlock`, `ConnectionReset`, `TimedOut`, `Interrupted`.
    pub fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        io_result(stream::recv(self.0.0, &mut [IoSliceMut::new(bytes)], libc::MSG_PEEK))
    }

    /// Why the connection failed, once (SO_ERROR).
    ///
    /// # Errors
    /// As [`Stream::local_addr`].
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.take_error()
    }

    /// How many bytes of a message go into one packet (TCP_MAXSEG).
    ///
    /// # Errors
    /// As [`Stream::local_addr`].
    pub fn path_mtu(&self) -> io::Result<u32> {
        self.0.number(libc::IPPROTO_TCP, libc::TCP_MAXSEG)
    }

    /// Maps a buffer of `len` bytes, all zero, for the peer's [`Stream::write_at`] (riomap). The peer knows it by `offset`; `None`: by the buffer's address. It
    /// can be written for certain once the peer has read something that was written after this call.
    ///
    /// # Errors
    /// `OutOfMemory`: the peer has room for no more ([`Config::mappings`]), or the device; `InvalidInput`: no bytes, more than 4 GiB, or an offset of more
    /// than 63 bits; `NotConnected`.
    pub fn map(&self, len: usize, offset: Option<u64>) -> io::Result<IoMap> {
        IoMap::new(&self.0, len, offset)
    }

    /// Writes into what the peer has mapped at `offset`, and gives how many bytes that were: less than there are where the mapping ends, none where there is no
    /// mapping (riowrite). The peer is not told; what is written to the stream afterwards comes after it.
    ///
    /// # Errors
    /// As writing: `WouldBlock`, `BrokenPipe`, `ConnectionReset`, `Interrupted`; `InvalidInput`: an offset of more than 63 bits.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        io_result(direct::write(self.0.0, bytes, offset, 0))
    }

    /// Its number, for rsocket(7)'s calls in C: it stays this stream's to close.
    pub fn number(&self) -> RawFd {
        self.0.0
    }
}

/// Errors: `WouldBlock`: there is nothing, and it does not block; `ConnectionReset`: the peer is gone; `TimedOut`: it does not answer; `Interrupted`. No bytes: the
/// peer writes no more.
impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        io_result(stream::recv(self.0.0, &mut [IoSliceMut::new(bytes)], 0))
    }

    fn read_vectored(&mut self, pieces: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        io_result(stream::recv(self.0.0, pieces, 0))
    }
}

/// Errors: `WouldBlock`: there is no room, and it does not block; `BrokenPipe`: this side was shut down; `ConnectionReset`: the peer is gone, or has closed;
/// `Interrupted`. One that blocks writes all of the bytes, unless something of that comes between.
impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io_result(stream::send(self.0.0, &[IoSlice::new(bytes)], 0))
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        io_result(stream::send(self.0.0, pieces, 0))
    }

    /// Nothing is held back.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (&*self).read(bytes)
    }

    fn read_vectored(&mut self, pieces: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(pieces)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
