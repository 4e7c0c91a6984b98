//! Handles on bytes, of whichever device they lie in.

use ringway_shm::TxBuf as ShmTx;
use ringway_stack::device::{LendBuffer, RxBuffer, TxBuffer};
use ringway_xdp::{Received, SendBuffer};

use super::apart;

/// A handle on received bytes.
#[derive(Clone, Debug)]
pub(crate) enum RxBuf {
    Shm(ringway_shm::RxBuf),
    Xdp(Received),
}

/// A handle on a send buffer.
#[derive(Clone, Debug)]
pub(crate) enum TxBuf {
    Shm(ShmTx),
    Xdp(SendBuffer),
}

// A second device costs the first one's handles no room.
const _: () = assert!(size_of::<RxBuf>() == size_of::<ringway_shm::RxBuf>() && size_of::<TxBuf>() == size_of::<ShmTx>());

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

/// (A ring's buffers are its device's.)
impl AsRef<ShmTx> for TxBuf {
    #[inline(always)]
    fn as_ref(&self) -> &ShmTx {
        match self {
            Self::Shm(of) => of,
            Self::Xdp(_) => unreachable!("a send buffer of another device"),
        }
    }
}

impl AsRef<SendBuffer> for TxBuf {
    #[inline(always)]
    fn as_ref(&self) -> &SendBuffer {
        match self {
            Self::Xdp(of) => of,
            Self::Shm(_) => unreachable!("a send buffer of another device"),
        }
    }
}

macro_rules! by_device {
    ($this:expr, $of:ident => $call:expr) => {
        match $this {
            Self::Shm($of) => $call,
            Self::Xdp($of) => apart(|| $call),
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

impl TxBuffer for TxBuf {
    #[inline]
    fn capacity(&self) -> usize {
        by_device!(self, of => of.capacity())
    }

    #[inline]
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        by_device!(self, of => of.write(offset, bytes));
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        by_device!(self, of => of.copy_to(offset, out));
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        by_device!(self, of => of.checksum(offset, len))
    }
}
