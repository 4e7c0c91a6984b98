//! The part of a socket that is the kernel's: what comes by links without a ring, and all of a socket that no ring serves.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use crate::error::Error;
use crate::flow::Readiness;
use crate::ring::{Datagram, RecvFlags, Shutdown};
use crate::time::Instant;

/// A socket of the kernel's that stands beside a socket here, under its descriptor. No call blocks. Who implements it knows its readiness without a
/// system call (by epoll, say): it is asked with every receive.
#[expect(clippy::missing_errors_doc, reason = "they are the kernel's")]
pub trait Kernel {
    /// bind(2). Returns the address, with the port that the kernel chose if none was given. It is who knows whether an address is free.
    fn bind(&mut self, local: SocketAddr) -> Result<SocketAddr, Error>;
    /// listen(2).
    fn listen(&mut self, backlog: usize) -> Result<(), Error>;
    /// accept(2).
    fn accept(&mut self) -> Result<Box<dyn Kernel>, Error>;
    /// connect(2).
    fn connect(&mut self, remote: SocketAddr) -> Result<(), Error>;
    /// poll(2).
    fn readiness(&self) -> Readiness;
    /// sendmsg(2).
    fn send(&mut self, data: &[IoSlice<'_>], to: Option<SocketAddr>) -> Result<usize, Error>;
    /// recvmsg(2). Of a stream, only [`Datagram::copied`] is looked at. [`Datagram::received`] need not be filled in.
    fn recv(&mut self, into: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<Datagram, Error>;
    /// SO_ERROR.
    fn take_error(&mut self) -> Option<Error>;
    /// shutdown(2).
    fn shutdown(&mut self, how: Shutdown) -> Result<(), Error>;
    /// close(2).
    fn close(&mut self);
}

/// A socket's, and since when it has something to take.
pub(super) struct Beside {
    pub(super) part: Box<dyn Kernel>,
    since: Option<Instant>,
}

impl Beside {
    pub(super) fn new(part: Box<dyn Kernel>) -> Self {
        Self { part, since: None }
    }

    /// Since when something is known to wait; `None`: nothing does.
    pub(super) fn arrived(&mut self, now: Instant) -> Option<Instant> {
        let waits = self.part.readiness().intersects(Readiness::IN | Readiness::ERR);
        self.since = waits.then(|| self.since.unwrap_or(now));
        self.since
    }

    /// What was found has been taken: what may be behind it is found anew, so that it has its turn behind what is with the rings by now.
    pub(super) fn taken(&mut self) {
        self.since = None;
    }
}
