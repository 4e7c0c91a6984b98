//! A connection between two rings of one device.

use std::net::SocketAddr;

use ringway_host::leave::{Leave as _, LeaveError, ToKernel, Unsent};
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
            // (The peer listens to this device alone: what the kernel would send it would be answered by a reset.)
            Self::Rxe(of) => Err((LeaveError::Ring(ringway_stack::Error::NotSupported), Self::Rxe(of))),
        }
    }
}
