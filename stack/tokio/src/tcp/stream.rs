//! A connection.

use core::fmt;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::cell::Cell;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;

use ringway_stack::Error;
use ringway_stack::device::Queues;
use ringway_stack::ring::{FlowId, FlowInfo, Readiness, RecvFlags, SendFlags, Shutdown};
use ringway_stack::tcp::{Config, State};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::halves::{self, OwnedReadHalf, OwnedWriteHalf};
use crate::address::{same_version, unmapped};
use crate::error::io_error;
use crate::net::Net;
use crate::waiters::Side;

/// A TCP connection, as tokio's. Dropping it closes it: what was written is still sent, unless bytes had not been read (the peer
/// gets a reset, RFC 2525 s2.17) or [`TcpStream::set_zero_linger`] was called.
pub struct TcpStream<Q: Queues> {
    net: Net<Q>,
    id: FlowId,
    abort: Cell<bool>,
}

impl<Q: Queues> fmt::Debug for TcpStream<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpStream").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<Q: Queues> TcpStream<Q> {
    pub(super) fn new(net: Net<Q>, id: FlowId) -> Self {
        Self { net, id, abort: Cell::new(false) }
    }

    /// Connects to `peer`, from the net's address. Dropping the future gives the attempt up.
    ///
    /// # Errors
    /// `ConnectionRefused`, `TimedOut`, `HostUnreachable`, `InvalidInput` for port or address zero; `Unsupported` if our
    /// address is of another IP version than the peer's.
    pub async fn connect(net: &Net<Q>, peer: impl Into<SocketAddr>) -> io::Result<Self> {
        Self::connect_from(net, SocketAddr::new(net.ip(), 0), peer).await
    }

    /// Connects to `peer` from `local` (port zero: one is chosen; address `0.0.0.0` or `::`: the net's).
    ///
    /// # Errors
    /// `AddrInUse`; else as [`TcpStream::connect`].
    pub async fn connect_from(net: &Net<Q>, local: impl Into<SocketAddr>, peer: impl Into<SocketAddr>) -> io::Result<Self> {
        let (mut local, peer) = (unmapped(local.into()), unmapped(peer.into()));
        if local.ip().is_unspecified() {
            local.set_ip(net.ip());
        }
        same_version(local.ip(), peer.ip()).map_err(io_error)?;
        let hop = (net.config().route)(peer.ip());
        let id = net.open_at(local, |ring, now, local| ring.tcp_connect(now, local, peer, hop, &net.config().tcp))?;
        let stream = Self::new(net.clone(), id);
        poll_fn(|cx| stream.poll_connected(cx)).await?;
        Ok(stream)
    }

    /// Our address.
    ///
    /// # Errors
    /// The ring is away.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.info().map(|info| info.local)
    }

    /// The peer's address.
    ///
    /// # Errors
    /// The ring is away.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.net.call(|ring, _| ring.info(self.id).and_then(|info| info.remote).ok_or(Error::NotConnected))
    }

    /// The connection as `ss` would show it.
    ///
    /// # Errors
    /// The ring is away.
    pub fn info(&self) -> io::Result<FlowInfo> {
        self.net.call(|ring, _| ring.info(self.id).ok_or(Error::BadSocket))
    }

    /// Whether small segments go out at once (TCP_NODELAY).
    ///
    /// # Errors
    /// The ring is away.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.config(|config| config.nodelay)
    }

    /// Sends small segments at once, or not.
    ///
    /// # Errors
    /// The ring is away.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.config(|config| config.nodelay = on)
    }

    /// Time to live of its packets.
    ///
    /// # Errors
    /// The ring is away.
    pub fn ttl(&self) -> io::Result<u32> {
        self.config(|config| u32::from(config.ttl))
    }

    /// Reads or changes what can be decided about a connection: keepalive, buffers, timeouts and the rest.
    ///
    /// # Errors
    /// The ring is away.
    pub fn config<R>(&self, change: impl FnOnce(&mut Config) -> R) -> io::Result<R> {
        self.net.call(|ring, now| {
            let mut result = None;
            ring.tcp_configure(now, self.id, |config| result = Some(change(config)))?;
            result.ok_or(Error::BadSocket)
        })
    }

    /// From now on dropping the stream resets the connection (SO_LINGER with a time of zero).
    pub fn set_zero_linger(&self) {
        self.abort.set(true);
    }

    /// Takes the pending error (SO_ERROR).
    ///
    /// # Errors
    /// The ring is away.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.net.call(|ring, _| Ok(ring.take_error(self.id).map(crate::io_error)))
    }

    /// Copies bytes without taking them off the queue; zero: the stream has ended. Cancel-safe.
    ///
    /// # Errors
    /// As for reading.
    pub async fn peek(&self, into: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_receive(cx, into, RecvFlags::PEEK)).await
    }

    /// Reads what is there.
    ///
    /// # Errors
    /// `WouldBlock`; else as for reading.
    pub fn try_read(&self, into: &mut [u8]) -> io::Result<usize> {
        self.net.call(|ring, now| ring.tcp_recv(now, self.id, &mut [IoSliceMut::new(into)], RecvFlags::empty()))
    }

    /// Writes what there is room for.
    ///
    /// # Errors
    /// `WouldBlock`; else as for writing.
    pub fn try_write(&self, data: &[u8]) -> io::Result<usize> {
        self.net.call(|ring, now| ring.tcp_send(now, self.id, &[IoSlice::new(data)], SendFlags::empty()))
    }

    /// Resolves when a read would not block.
    ///
    /// # Errors
    /// The ring is away.
    pub async fn readable(&self) -> io::Result<()> {
        self.ready(Side::Read, Readiness::IN | Readiness::RDHUP | Readiness::HUP | Readiness::ERR).await
    }

    /// Resolves when a write would not block.
    ///
    /// # Errors
    /// The ring is away.
    pub async fn writable(&self) -> io::Result<()> {
        self.ready(Side::Write, Readiness::OUT | Readiness::HUP | Readiness::ERR).await
    }

    /// Splits it in two that may go to different tasks.
    pub fn into_split(self) -> (OwnedReadHalf<Q>, OwnedWriteHalf<Q>) {
        halves::split(self)
    }

    async fn ready(&self, side: Side, any_of: Readiness) -> io::Result<()> {
        let look = |ring: &mut ringway_stack::ring::Ring<Q>, _| {
            if ring.readiness(self.id).intersects(any_of) { Ok(()) } else { Err(Error::WouldBlock) }
        };
        poll_fn(|cx| self.net.poll_call(cx, self.id, side, look)).await
    }

    fn poll_connected(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        self.net.poll_call(cx, self.id, Side::Write, |ring, _| {
            if let Some(error) = ring.take_error(self.id) {
                return Err(error);
            }
            match ring.info(self.id).and_then(|info| info.state) {
                Some(State::SynSent | State::SynReceived) => Err(Error::WouldBlock),
                Some(State::Closed) | None => Err(Error::Aborted),
                Some(_) => Ok(()),
            }
        })
    }

    pub(super) fn poll_receive(&self, cx: &Context<'_>, into: &mut [u8], flags: RecvFlags) -> Poll<io::Result<usize>> {
        self.net.poll_call(cx, self.id, Side::Read, |ring, now| ring.tcp_recv(now, self.id, &mut [IoSliceMut::new(into)], flags))
    }

    pub(super) fn poll_fill(&self, cx: &Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_receive(cx, into.initialize_unfilled(), RecvFlags::empty()).map_ok(|n| into.advance(n))
    }

    pub(super) fn poll_send(&self, cx: &Context<'_>, data: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.net.poll_call(cx, self.id, Side::Write, |ring, now| ring.tcp_send(now, self.id, data, SendFlags::empty()))
    }

    pub(super) fn shutdown_write(&self) -> io::Result<()> {
        self.net.call(|ring, now| ring.shutdown(now, self.id, Shutdown::Write))
    }
}

impl<Q: Queues> AsyncRead for TcpStream<Q> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_fill(cx, into)
    }
}

impl<Q: Queues> AsyncWrite for TcpStream<Q> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, &[IoSlice::new(data)])
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Nothing waits here: what was written is the ring's.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown_write())
    }
}

impl<Q: Queues> Drop for TcpStream<Q> {
    fn drop(&mut self) {
        self.net.close(self.id, self.abort.get());
    }
}
