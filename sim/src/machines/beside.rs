//! The kernel's part of a machine's sockets: a queue that the program fills itself.

use core::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::rc::Rc;

use ringway_stack::ring::{Datagram, Readiness, RecvFlags, Shutdown};
use ringway_stack::socket::Kernel;
use ringway_stack::{Error, Instant};

/// How much waits there, and what became of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Beside(Rc<RefCell<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    waiting: u32,
    is_closed: bool,
}

impl Beside {
    /// Something comes by the kernel.
    pub(super) fn comes(&self) {
        self.0.borrow_mut().waiting += 1;
    }

    pub(super) fn waiting(&self) -> u32 {
        self.0.borrow().waiting
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.borrow().is_closed
    }

    fn take(&self) -> Result<(), Error> {
        let mut queue = self.0.borrow_mut();
        queue.waiting = queue.waiting.checked_sub(1).ok_or(Error::WouldBlock)?;
        Ok(())
    }
}

impl Kernel for Beside {
    fn bind(&mut self, local: SocketAddr) -> Result<SocketAddr, Error> {
        Ok(local)
    }

    fn listen(&mut self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn accept(&mut self) -> Result<Box<dyn Kernel>, Error> {
        self.take().map(|()| Box::new(Self::default()) as Box<dyn Kernel>)
    }

    fn connect(&mut self, _: SocketAddr) -> Result<(), Error> {
        Err(Error::HostUnreachable)
    }

    fn readiness(&self) -> Readiness {
        if self.waiting() > 0 { Readiness::IN } else { Readiness::empty() }
    }

    fn send(&mut self, _: &[IoSlice<'_>], _: Option<SocketAddr>) -> Result<usize, Error> {
        Err(Error::HostUnreachable)
    }

    fn recv(&mut self, _: &mut [IoSliceMut<'_>], _: RecvFlags) -> Result<Datagram, Error> {
        self.take()?;
        let from = SocketAddr::from(([127, 0, 0, 1], 9));
        Ok(Datagram { copied: 0, len: 0, from, to: from.ip(), received: Instant::ZERO, hardware_time: None, drops: 0 })
    }

    fn take_error(&mut self) -> Option<Error> {
        None
    }

    fn shutdown(&mut self, _: Shutdown) -> Result<(), Error> {
        Ok(())
    }

    fn close(&mut self) {
        self.0.borrow_mut().is_closed = true;
    }
}
