//! A listener.

use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll};
use std::io;
use std::net::SocketAddr;

use ringway_stack::Error;
use ringway_stack::device::Queues;
use ringway_stack::ring::FlowId;

use super::TcpStream;
use crate::address::unmapped;
use crate::net::Net;
use crate::waiters::Side;

/// Connections that wait to be accepted: tokio's number.
const BACKLOG: usize = 1024;

/// A TCP listener, as tokio's. Dropping it resets the connections that nobody accepted.
pub struct TcpListener<Q: Queues> {
    net: Net<Q>,
    id: FlowId,
}

impl<Q: Queues> fmt::Debug for TcpListener<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<Q: Queues> TcpListener<Q> {
    /// Listens on `local`. Port zero: one is chosen; address `0.0.0.0` or `::`: every address of the ring, of that IP version.
    ///
    /// # Errors
    /// `AddrInUse`; `Other` if the device or the ring has no room.
    #[expect(clippy::unused_async, reason = "as tokio's")]
    pub async fn bind(net: &Net<Q>, local: impl Into<SocketAddr>) -> io::Result<Self> {
        let id = net.open_at(unmapped(local.into()), |ring, _, local| ring.tcp_listen(local, BACKLOG, &net.config().tcp))?;
        Ok(Self { net: net.clone(), id })
    }

    /// Waits for a connection: the stream, and who is at its other end. Cancel-safe.
    ///
    /// # Errors
    /// The ring is away.
    pub async fn accept(&self) -> io::Result<(TcpStream<Q>, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// [`TcpListener::accept`], for futures written by hand.
    ///
    /// # Errors
    /// As [`TcpListener::accept`].
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream<Q>, SocketAddr)>> {
        let accepted = self.net.poll_call(cx, self.id, Side::Read, |ring, _| {
            let id = ring.tcp_accept(self.id)?;
            let remote = ring.info(id).and_then(|info| info.remote).ok_or(Error::BadSocket)?;
            Ok((id, remote))
        });
        accepted.map_ok(|(id, remote)| (TcpStream::new(self.net.clone(), id), remote))
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// The ring is away.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.net.call(|ring, _| ring.info(self.id).map(|info| info.local).ok_or(Error::BadSocket))
    }
}

impl<Q: Queues> Drop for TcpListener<Q> {
    fn drop(&mut self) {
        self.net.close(self.id, false);
    }
}
