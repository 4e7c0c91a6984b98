//! A connection's two halves, for two tasks.

use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;

use ringway_stack::device::Queues;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::TcpStream;

/// The half that reads. The connection closes when both halves are gone.
pub struct OwnedReadHalf<Q: Queues> {
    stream: Rc<TcpStream<Q>>,
}

/// The half that writes. Dropping it ends the stream in this direction, as a shutdown does.
pub struct OwnedWriteHalf<Q: Queues> {
    /// Invariant: there until the half is dropped or forgotten.
    stream: Option<Rc<TcpStream<Q>>>,
}

/// The program: the halves are not of one stream. They are in here, unharmed.
pub struct ReuniteError<Q: Queues>(pub OwnedReadHalf<Q>, pub OwnedWriteHalf<Q>);

impl<Q: Queues> fmt::Debug for OwnedReadHalf<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedReadHalf").field(&self.stream).finish()
    }
}

impl<Q: Queues> fmt::Debug for OwnedWriteHalf<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedWriteHalf").field(&self.stream).finish()
    }
}

impl<Q: Queues> fmt::Debug for ReuniteError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReuniteError").field(&self.0).field(&self.1).finish()
    }
}

impl<Q: Queues> fmt::Display for ReuniteError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tried to reunite halves that are not from the same stream")
    }
}

impl<Q: Queues> core::error::Error for ReuniteError<Q> {}

pub(super) fn split<Q: Queues>(stream: TcpStream<Q>) -> (OwnedReadHalf<Q>, OwnedWriteHalf<Q>) {
    let stream = Rc::new(stream);
    (OwnedReadHalf { stream: Rc::clone(&stream) }, OwnedWriteHalf { stream: Some(stream) })
}

impl<Q: Queues> OwnedReadHalf<Q> {
    /// The whole again.
    ///
    /// # Errors
    /// [`ReuniteError`]: `write` is of another stream.
    pub fn reunite(self, mut write: OwnedWriteHalf<Q>) -> Result<TcpStream<Q>, ReuniteError<Q>> {
        match write.stream.take() {
            Some(stream) if Rc::ptr_eq(&stream, &self.stream) => {
                drop(stream);
                Ok(Rc::into_inner(self.stream).expect("a stream has two halves, and both are here"))
            }
            other => Err(ReuniteError(self, OwnedWriteHalf { stream: other })),
        }
    }

    /// Our address.
    ///
    /// # Errors
    /// The ring is away.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.local_addr()
    }

    /// The peer's address.
    ///
    /// # Errors
    /// The ring is away.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.stream.peer_addr()
    }
}

impl<Q: Queues> OwnedWriteHalf<Q> {
    /// Drops the half without ending the stream.
    pub fn forget(mut self) {
        self.stream = None;
    }

    fn stream(&self) -> &TcpStream<Q> {
        self.stream.as_ref().expect("a half that is there has its stream")
    }
}

impl<Q: Queues> Drop for OwnedWriteHalf<Q> {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            // It fails if the connection is over: then there is nothing left to end.
            let _over = stream.shutdown_write();
        }
    }
}

impl<Q: Queues> AsyncRead for OwnedReadHalf<Q> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_fill(cx, into)
    }
}

impl<Q: Queues> AsyncWrite for OwnedWriteHalf<Q> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_send(cx, &[IoSlice::new(data)])
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.stream().poll_send(cx, data)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream().shutdown_write())
    }
}
