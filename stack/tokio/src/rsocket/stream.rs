//! A connection.

use core::fmt;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::io;
use std::net::SocketAddr;

use ringway_stack::Error;
use ringway_stack::device::messages::{Connections, Messages};
use ringway_stack::rsocket::{Mapping, OptionName, OptionValue, Shutdown, SocketId};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::net::Net;
use crate::waiters::Side;

/// An rsocket's stream. Dropping it closes it: what was written still arrives.
pub struct RsocketStream<D: Connections> {
    net: Net<D>,
    id: SocketId,
}

impl<D: Connections> fmt::Debug for RsocketStream<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RsocketStream").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<D: Connections> RsocketStream<D> {
    pub(super) const fn new(net: Net<D>, id: SocketId) -> Self {
        Self { net, id }
    }

    /// Connects to `peer`, with these options, of `SOL_RDMA` for instance. Dropping the future gives the attempt up.
    ///
    /// # Errors
    /// `ConnectionRefused`, `TimedOut`, `HostUnreachable`; `InvalidInput`: an option that cannot be so; `Other`: no more buffers can be registered.
    pub async fn connect(net: &Net<D>, peer: impl Into<SocketAddr>, options: &[(OptionName, OptionValue)]) -> io::Result<Self> {
        let peer = peer.into();
        let id = net.call(|state, _| Ok(state.sockets.socket()))?;
        let stream = Self::new(net.clone(), id);
        net.call(|state, now| {
            for (name, value) in options {
                state.sockets.set_option(now, id, *name, value)?;
            }
            match state.sockets.connect(now, &mut state.device, id, peer) {
                Err(Error::InProgress) => Ok(()),
                begun => begun,
            }
        })?;
        poll_fn(|cx| stream.poll_connected(cx)).await?;
        Ok(stream)
    }

    fn poll_connected(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let error = self.net.poll_call(cx, self.id, Side::Write, |state, now| {
            state.sockets.readiness(now, &mut state.device, self.id)?;
            if state.sockets.is_connecting(self.id)? {
                return Err(Error::WouldBlock);
            }
            state.sockets.option(&state.device, self.id, OptionName::Error)
        });
        error.map(|error| match error? {
            OptionValue::Number(0) => Ok(()),
            OptionValue::Number(code) => Err(io::Error::from_raw_os_error(code.cast_signed())),
            OptionValue::Linger(..) | OptionValue::Bytes(_) => Err(io::ErrorKind::InvalidData.into()),
        })
    }

    /// The peer's address.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.net.call(|state, _| state.sockets.remote(self.id))
    }

    /// Looks at what a read would give; zero: the stream has ended. Cancel-safe.
    ///
    /// # Errors
    /// As for reading.
    pub async fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_receive(cx, into, true)).await
    }

    /// Maps memory for the peer's [`RsocketStream::write_at`] (riomap). The peer knows it by `offset`; `None`: by its address as the device names it.
    ///
    /// # Errors
    /// `NotConnected`; `InvalidInput`; `Other`: the peer has room for no more, or the device.
    pub fn map(&self, memory: <D as Messages>::Memory, offset: Option<u64>) -> io::Result<Mapping> {
        self.net.call(|state, _| state.sockets.map(&mut state.device, self.id, memory, true, offset))
    }

    /// Ends a mapping, and gives the memory back (riounmap).
    ///
    /// # Errors
    /// `InvalidInput`: it is none of this stream's.
    pub fn unmap(&self, mapping: &Mapping) -> io::Result<<D as Messages>::Memory> {
        self.net.call(|state, _| state.sockets.unmap(&mut state.device, self.id, mapping.region.address, mapping.region.len))
    }

    /// Writes into what the peer has mapped at `offset`, and gives how many bytes that were: less than there are where the mapping ends, or where there was no
    /// room for more; zero where there is no mapping (riowrite). Cancel-safe.
    ///
    /// # Errors
    /// As for writing.
    pub async fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let write = |cx: &mut Context<'_>| {
            self.net.poll_call(cx, self.id, Side::Write, |state, now| {
                state.sockets.write_direct(now, &mut state.device, self.id, bytes, offset)
            })
        };
        poll_fn(write).await
    }

    fn poll_receive(&self, cx: &Context<'_>, into: &mut [u8], peek: bool) -> Poll<io::Result<usize>> {
        self.net.poll_call(cx, self.id, Side::Read, |state, now| state.sockets.recv(now, &mut state.device, self.id, into, peek))
    }
}

impl<D: Connections> AsyncRead for RsocketStream<D> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_receive(cx, into.initialize_unfilled(), false).map_ok(|n| into.advance(n))
    }
}

impl<D: Connections> AsyncWrite for RsocketStream<D> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.net.poll_call(cx, self.id, Side::Write, |state, now| state.sockets.send(now, &mut state.device, self.id, data))
    }

    /// Nothing waits here: what was written is the device's.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.net.call(|state, now| state.sockets.shutdown(now, &mut state.device, self.id, Shutdown::Write)))
    }
}

impl<D: Connections> Drop for RsocketStream<D> {
    fn drop(&mut self) {
        self.net.close(self.id);
    }
}
