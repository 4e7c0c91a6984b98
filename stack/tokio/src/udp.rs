//! UDP sockets.

use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;

use ringway_stack::device::Queues;
use ringway_stack::ring::{FlowId, Readiness, RecvFlags, Ring};
use ringway_stack::{Error, Instant};
use tokio::io::ReadBuf;

use crate::address::{any_like, same_version, unmapped};
use crate::net::Net;
use crate::waiters::Side;

/// A UDP socket, as tokio's. Any number of tasks may send and receive on it at once; each waiting one is woken by whatever arrives.
pub struct UdpSocket<Q: Queues> {
    net: Net<Q>,
    id: FlowId,
}

impl<Q: Queues> fmt::Debug for UdpSocket<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSocket").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<Q: Queues> UdpSocket<Q> {
    /// Binds to `local`. Port zero: one is chosen; address `0.0.0.0` or `::`: any address of the ring, of that IP version.
    ///
    /// # Errors
    /// `AddrInUse`; `Other` if the device or the ring has no room.
    #[expect(clippy::unused_async, reason = "as tokio's")]
    pub async fn bind(net: &Net<Q>, local: impl Into<SocketAddr>) -> io::Result<Self> {
        let options = net.config().udp;
        let id = net.open_at(unmapped(local.into()), |ring, _, local| ring.udp_open(local, &options))?;
        Ok(Self { net: net.clone(), id })
    }

    /// Fixes the peer: what others send is no longer received, and [`UdpSocket::send`] sends to it.
    ///
    /// # Errors
    /// `Unsupported` if the socket's address, or else the net's, is of another IP version than the peer's.
    #[expect(clippy::unused_async, reason = "as tokio's")]
    pub async fn connect(&self, peer: impl Into<SocketAddr>) -> io::Result<()> {
        let peer = unmapped(peer.into());
        let hop = (self.net.config().route)(peer.ip());
        self.net.call(|ring, _| {
            self.reaches(ring, peer)?;
            ring.udp_connect(self.id, any_like(peer.ip()), Some((peer, hop)))
        })
    }

    /// Sends a datagram to `peer`. It may be lost, here as anywhere on its way.
    ///
    /// # Errors
    /// `Other` if it is longer than UDP over the device can carry; `HostUnreachable`; `ConnectionRefused` if an earlier one was answered so;
    /// `Unsupported` as [`UdpSocket::connect`].
    #[expect(clippy::unused_async, reason = "as tokio's; a queue that is full loses the datagram, as a switch would")]
    pub async fn send_to(&self, data: &[u8], peer: impl Into<SocketAddr>) -> io::Result<usize> {
        self.send_inner(data, Some(unmapped(peer.into())))
    }

    /// Sends a datagram to the connected peer.
    ///
    /// # Errors
    /// `InvalidInput` without one; else as [`UdpSocket::send_to`].
    #[expect(clippy::unused_async, reason = "as tokio's")]
    pub async fn send(&self, data: &[u8]) -> io::Result<usize> {
        self.send_inner(data, None)
    }

    /// Receives a datagram: how many bytes were copied to `into` (the rest of a longer one is lost), and who sent it. Cancel-safe.
    ///
    /// # Errors
    /// `ConnectionRefused` if a datagram sent was answered so.
    pub async fn recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        poll_fn(|cx| self.poll_receive(cx, into, RecvFlags::empty())).await
    }

    /// Receives a datagram, of the connected peer if there is one. Cancel-safe.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub async fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        self.recv_from(into).await.map(|(n, _)| n)
    }

    /// As [`UdpSocket::recv_from`], but leaves the datagram in the queue.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub async fn peek_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        poll_fn(|cx| self.poll_receive(cx, into, RecvFlags::PEEK)).await
    }

    /// Receives a datagram if there is one.
    ///
    /// # Errors
    /// `WouldBlock`; else as [`UdpSocket::recv_from`].
    pub fn try_recv_from(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let datagram = self.net.call(|ring, _| ring.udp_recv(self.id, &mut [IoSliceMut::new(into)], RecvFlags::empty()))?;
        Ok((datagram.copied, datagram.from))
    }

    /// [`UdpSocket::recv_from`], for futures written by hand.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn poll_recv_from(&self, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<SocketAddr>> {
        let result = self.poll_receive(cx, into.initialize_unfilled(), RecvFlags::empty());
        result.map_ok(|(n, from)| {
            into.advance(n);
            from
        })
    }

    /// Resolves when there is something to receive, or an error.
    ///
    /// # Errors
    /// The ring is away.
    pub async fn readable(&self) -> io::Result<()> {
        poll_fn(|cx| {
            self.net.poll_call(cx, self.id, Side::Read, |ring, _| {
                if ring.readiness(self.id).intersects(Readiness::IN | Readiness::ERR) { Ok(()) } else { Err(Error::WouldBlock) }
            })
        })
        .await
    }

    /// The address it is bound to.
    ///
    /// # Errors
    /// The ring is away.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.net.call(|ring, _| ring.info(self.id).map(|info| info.local).ok_or(Error::BadSocket))
    }

    /// The connected peer.
    ///
    /// # Errors
    /// `NotConnected`.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.net.call(|ring, _| ring.info(self.id).and_then(|info| info.remote).ok_or(Error::NotConnected))
    }

    /// Takes the pending error (SO_ERROR).
    ///
    /// # Errors
    /// The ring is away.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.net.call(|ring, _| Ok(ring.take_error(self.id).map(crate::io_error)))
    }

    fn send_inner(&self, data: &[u8], peer: Option<SocketAddr>) -> io::Result<usize> {
        let to = peer.map(|peer| (peer, (self.net.config().route)(peer.ip())));
        let source = self.net.ip();
        self.net.call(|ring, now| {
            peer.map_or(Ok(()), |peer| self.reaches(ring, peer))?;
            ring.udp_send(now, self.id, &[IoSlice::new(data)], source, to)
        })
    }

    /// Whether the address that datagrams for `peer` leave from is of its IP version.
    fn reaches(&self, ring: &Ring<Q>, peer: SocketAddr) -> Result<(), Error> {
        let local = ring.info(self.id).ok_or(Error::BadSocket)?.local.ip();
        same_version(local, peer.ip())?;
        if local.is_unspecified() { same_version(self.net.ip(), peer.ip()) } else { Ok(()) }
    }

    fn poll_receive(&self, cx: &Context<'_>, into: &mut [u8], flags: RecvFlags) -> Poll<io::Result<(usize, SocketAddr)>> {
        let receive = |ring: &mut Ring<Q>, _: Instant| ring.udp_recv(self.id, &mut [IoSliceMut::new(into)], flags);
        self.net.poll_call(cx, self.id, Side::Read, receive).map_ok(|datagram| (datagram.copied, datagram.from))
    }
}

impl<Q: Queues> Drop for UdpSocket<Q> {
    fn drop(&mut self) {
        self.net.close(self.id, false);
    }
}
