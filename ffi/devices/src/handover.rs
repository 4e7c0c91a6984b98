//! A connection between two rings of one device.

use std::net::SocketAddr;

use ringway_host::leave::{self, Leave as _, LeaveError, ToKernel, Unsent};
use ringway_mlx5::Mlx5Queues;
use ringway_rxe::RxeQueues;
use ringway_shm::ShmQueues;
use ringway_stack::ring::{self, LatePacket, NextHop};
use ringway_xdp::XdpQueues;

/// See the module's documentation, and [`ring::Handover`].
#[derive(Debug)]
pub enum Handover {
    /// On shared memory.
    Shm(ring::Handover<ShmQueues>),
    /// On an interface.
    Xdp(ring::Handover<XdpQueues>),
    /// On a card.
    Mlx5(ring::Handover<Mlx5Queues>),
    /// On a verbs device.
    Rxe(ring::Handover<RxeQueues>),
}

/// A UDP socket's address between two rings of a card: see [`ring::UdpHandover`].
#[derive(Debug)]
pub struct UdpHandover(pub(super) Box<ring::UdpHandover<Mlx5Queues>>);

macro_rules! by_device {
    ($this:expr, $of:ident => $call:expr) => {
        match $this {
            Self::Shm($of) => $call,
            Self::Xdp($of) => $call,
            Self::Mlx5($of) => $call,
            Self::Rxe($of) => $call,
        }
    };
}

impl Handover {
    /// See [`ring::Handover::local`].
    pub fn local(&self) -> SocketAddr {
        by_device!(self, of => of.local())
    }

    /// See [`ring::Handover::remote`].
    pub fn remote(&self) -> SocketAddr {
        by_device!(self, of => of.remote())
    }

    /// See [`ring::Handover::hop`].
    pub fn hop(&self) -> NextHop {
        by_device!(self, of => of.hop())
    }

    /// See [`ring::Handover::snapshot`].
    pub fn snapshot(&self) -> Option<Vec<u8>> {
        by_device!(self, of => of.snapshot())
    }

    /// The kernel goes on with it: see [`ringway_host::leave::Leave::leave`].
    ///
    /// # Errors
    /// As there; it comes back whole.
    pub fn leave(self, by: &mut ToKernel<'_>, late: &mut dyn FnMut() -> Vec<LatePacket>) -> Result<Unsent, (LeaveError, Self)> {
        match self {
            Self::Shm(of) => by.leave(of, late).map_err(|refused| (refused.error, Self::Shm(refused.handover))),
            Self::Xdp(of) => by.leave(of, late).map_err(|refused| (refused.error, Self::Xdp(refused.handover))),
            Self::Mlx5(of) => by.leave(of, late).map_err(|refused| (refused.error, Self::Mlx5(refused.handover))),
            // (Alone it would be answered by a reset: see [`Handover::enter`].)
            Self::Rxe(of) => Err((LeaveError::Ring(ringway_stack::Error::NotSupported), Self::Rxe(of))),
        }
    }

    /// The kernel has it, and says nothing before the other end's kernel has it, too: see [`ToKernel::enter`].
    ///
    /// # Errors
    /// As there; it comes back whole. [`ringway_stack::Error::NotSupported`]: of its device, one end leaves without the other.
    pub fn enter(self, by: ToKernel<'_>) -> Result<Entered<'_>, (LeaveError, Self)> {
        match self {
            Self::Rxe(of) => by.enter(of).map(Entered).map_err(|refused| (refused.error, Self::Rxe(refused.handover))),
            _ => Err((LeaveError::Ring(ringway_stack::Error::NotSupported), self)),
        }
    }
}

/// A connection that the kernel has, and that says nothing yet: see [`leave::Entered`].
#[derive(Debug)]
pub struct Entered<'a>(pub(super) leave::Entered<'a, RxeQueues>);

impl Entered<'_> {
    /// See [`leave::Entered::speak`].
    ///
    /// # Errors
    /// As there.
    pub fn speak(self, late: &mut dyn FnMut() -> Vec<LatePacket>) -> Result<Unsent, LeaveError> {
        self.0.speak(late)
    }

    /// See [`leave::Entered::take_back`].
    pub fn take_back(self) -> Handover {
        Handover::Rxe(self.0.take_back())
    }
}
