//! Handles on received bytes, of whichever device they lie in: what programs are lent.

use ringway_stack::device::{LendBuffer, RxBuffer};
use ringway_stack::tcp::Lent;
use ringway_xdp::Received;

use super::absent::Nothing;
use super::apart;

/// A handle on received bytes.
#[derive(Clone, Debug)]
pub enum RxBuf {
    /// In shared memory.
    Shm(ringway_shm::RxBuf),
    /// In the memory of an interface's frames.
    Xdp(Received),
    /// In that of a card's.
    Mlx5(ringway_mlx5::Received),
    /// In the process's own, to which a verbs device's datagrams are copied.
    Rxe(ringway_rxe::Received),
}

// A second device costs the first one's handles no room.
const _: () = assert!(size_of::<RxBuf>() == size_of::<ringway_shm::RxBuf>());

impl From<ringway_shm::RxBuf> for RxBuf {
    #[inline(always)]
    fn from(of: ringway_shm::RxBuf) -> Self {
        Self::Shm(of)
    }
}

impl From<Received> for RxBuf {
    #[inline(always)]
    fn from(of: Received) -> Self {
        Self::Xdp(of)
    }
}

impl From<ringway_mlx5::Received> for RxBuf {
    #[inline(always)]
    fn from(of: ringway_mlx5::Received) -> Self {
        Self::Mlx5(of)
    }
}

impl From<ringway_rxe::Received> for RxBuf {
    #[inline(always)]
    fn from(of: ringway_rxe::Received) -> Self {
        Self::Rxe(of)
    }
}

impl From<Nothing> for RxBuf {
    fn from(of: Nothing) -> Self {
        match of {}
    }
}

/// What a ring has lent.
#[inline]
pub(super) fn lent<B: Into<RxBuf>>(piece: Lent<B>) -> Lent<RxBuf> {
    match piece {
        Lent::Buffer(buffer) => Lent::Buffer(buffer.into()),
        Lent::Copied(bytes) => Lent::Copied(bytes),
    }
}

macro_rules! by_device {
    ($this:expr, $of:ident => $call:expr) => {
        match $this {
            Self::Shm($of) => $call,
            Self::Xdp($of) => apart(|| $call),
            Self::Mlx5($of) => apart(|| $call),
            Self::Rxe($of) => apart(|| $call),
        }
    };
}

impl RxBuffer for RxBuf {
    #[inline(always)]
    fn len(&self) -> usize {
        by_device!(self, of => of.len())
    }

    #[inline]
    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        by_device!(self, of => of.copy_to(offset, out));
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        by_device!(self, of => of.checksum(offset, len))
    }

    #[inline]
    fn slice(&self, offset: usize, len: usize) -> Self {
        by_device!(self, of => of.slice(offset, len).into())
    }

    #[inline]
    fn into_slice(self, offset: usize, len: usize) -> Self {
        by_device!(self, of => of.into_slice(offset, len).into())
    }
}

impl LendBuffer for RxBuf {
    fn for_each_piece(&self, piece: impl FnMut(*const u8, usize)) {
        by_device!(self, of => of.for_each_piece(piece));
    }

    #[inline]
    fn only_piece(&self) -> Option<(*const u8, usize)> {
        by_device!(self, of => of.only_piece())
    }

    #[inline]
    fn make_writable(&mut self) {
        by_device!(self, of => of.make_writable());
    }

    fn take_written(&mut self) {
        by_device!(self, of => of.take_written());
    }

    // (Of an interface, the bytes are the process's own.)
    #[inline]
    fn are_copies_lent() -> bool {
        ringway_shm::RxBuf::are_copies_lent()
    }

    fn lend_copies() {
        ringway_shm::RxBuf::lend_copies();
    }

    fn copy_on_write(address: usize) -> bool {
        ringway_shm::RxBuf::copy_on_write(address)
    }
}
