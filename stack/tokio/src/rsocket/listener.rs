//! A listener.

use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll};
use std::io;
use std::net::SocketAddr;

use ringway_stack::device::messages::Connections;
use ringway_stack::rsocket::{OptionName, OptionValue, SocketId};

use super::net::Net;
use super::stream::RsocketStream;
use crate::waiters::Side;

/// Connections that wait to be accepted: tokio's number.
const BACKLOG: usize = 1024;

/// A listener of rsockets. Dropping it closes the connections that nobody accepted.
pub struct RsocketListener<D: Connections> {
    net: Net<D>,
    id: SocketId,
}

impl<D: Connections> fmt::Debug for RsocketListener<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RsocketListener").field("id", &self.id).finish_non_exhaustive()
    }
}

impl<D: Connections> RsocketListener<D> {
    /// Listens on `local`, which has a port. Its connections have these options, of `SOL_RDMA` for instance.
    ///
    /// # Errors
    /// `AddrInUse`; `InvalidInput`: no port, or an option that cannot be so.
    #[expect(clippy::unused_async, reason = "as tokio's")]
    pub async fn bind(net: &Net<D>, local: impl Into<SocketAddr>, options: &[(OptionName, OptionValue)]) -> io::Result<Self> {
        let local = local.into();
        let id = net.call(|state, _| Ok(state.sockets.socket()))?;
        let listener = Self { net: net.clone(), id };
        net.call(|state, now| {
            for (name, value) in options {
                state.sockets.set_option(now, id, *name, value)?;
            }
            state.sockets.bind(id, local)?;
            state.sockets.listen(&mut state.device, id, BACKLOG)
        })?;
        Ok(listener)
    }

    /// Waits for a connection: the stream, and who is at its other end. Cancel-safe.
    ///
    /// # Errors
    /// None.
    pub async fn accept(&self) -> io::Result<(RsocketStream<D>, SocketAddr)> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    /// [`RsocketListener::accept`], for futures written by hand.
    ///
    /// # Errors
    /// As [`RsocketListener::accept`].
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(RsocketStream<D>, SocketAddr)>> {
        let accepted = self.net.poll_call(cx, self.id, Side::Read, |state, _| state.sockets.accept(self.id));
        accepted.map_ok(|(id, remote)| (RsocketStream::new(self.net.clone(), id), remote))
    }

    /// The address it listens on.
    ///
    /// # Errors
    /// None.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.net.call(|state, _| state.sockets.local(self.id))
    }
}

impl<D: Connections> Drop for RsocketListener<D> {
    fn drop(&mut self) {
        self.net.close(self.id);
    }
}
