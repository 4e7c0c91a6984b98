//! Handles on bytes that lie in a peer's send buffers.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use arrayvec::ArrayVec;
use ringway_stack::device::{LendBuffer, RxBuffer};

use crate::copy::{self, Sum};
use crate::error::Forged;
use crate::heads::Head;
use crate::layout::{FLIGHTS, FRAME_MAX, GATHER_MAX, POOL_AT};
use crate::link::Link;
use crate::pool::release;
use crate::window;

/// A piece of a frame: an offset in the peer's pool, and a length. Checked when it was received.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Piece {
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

/// The received flights of a link: for each, how many handles there are, and where its bytes lie. A flight number comes back from the
/// peer only after we handed it back, so that its table is bounded, and no frame allocates.
#[derive(Debug)]
pub(crate) struct Flights {
    counts: Box<[AtomicU32]>,
    pieces: Box<[UnsafeCell<[Piece; GATHER_MAX]>]>,
}

// SAFETY: `pieces[i]` is written only by the device, while `counts[i]` is zero, and read only through handles, while it isn't; the
// count's acquire and release operations order the two.
unsafe impl Sync for Flights {}

impl Flights {
    pub(crate) fn new() -> Self {
        // SAFETY: all zeroes is a valid AtomicU32, and a valid cell of pieces. (Zeroed by the kernel at first use.)
        unsafe { Self { counts: Box::new_zeroed_slice(FLIGHTS).assume_init(), pieces: Box::new_zeroed_slice(FLIGHTS).assume_init() } }
    }

    /// Records where a flight's bytes lie. One caller at a time: the device.
    ///
    /// # Errors
    /// The peer reused a number that is still in use here, or made one up.
    fn begin(&self, flight: u16, pieces: &ArrayVec<Piece, GATHER_MAX>) -> Result<(), Forged> {
        let count = self.counts.get(usize::from(flight)).ok_or(Forged("a flight's number"))?;
        if count.load(Ordering::Acquire) != 0 {
            return Err(Forged("a flight that is in use"));
        }
        // SAFETY: the count is zero, so there is no handle that reads; and there is one device a link, so no other writer.
        let table = unsafe { &mut *self.pieces[usize::from(flight)].get() };
        *table = [Piece::default(); GATHER_MAX];
        table[..pieces.len()].copy_from_slice(pieces);
        count.store(1, Ordering::Release);
        Ok(())
    }
}

/// A counted handle on received bytes. Keeps the peer's memory mapped, so that it outlives the peer.
#[derive(Debug)]
pub struct RxBuf {
    source: Source,
    start: u32,
    len: u32,
}

#[derive(Debug)]
enum Source {
    /// In the peer's send buffers. Invariant: this handle is one of the flight's count.
    Peer { link: Arc<Link>, flight: u16 },
    /// A private copy.
    Copied(Arc<[u8]>),
    /// A small frame, in a receive buffer of the device's.
    Head(Head),
}

impl RxBuf {
    /// The handle on a flight that was just received.
    pub(crate) fn receive(link: &Arc<Link>, flight: u16, pieces: &ArrayVec<Piece, GATHER_MAX>) -> Result<Self, Forged> {
        let mut len = 0;
        for piece in pieces {
            let end = piece.offset as usize + piece.len as usize;
            if end > link.peer.pool_len {
                return Err(Forged("a gather list that points outside of the pool"));
            }
            len += piece.len as usize;
        }
        if len == 0 || len > FRAME_MAX {
            return Err(Forged("a gather list's length"));
        }
        link.flights.begin(flight, pieces)?;
        Ok(Self { source: Source::Peer { link: link.clone(), flight }, start: 0, len: len as u32 })
    }

    /// The same bytes in private memory, so that the peer gets its buffers back at once.
    pub(crate) fn into_copy(self) -> Self {
        let mut bytes: Arc<[u8]> = core::iter::repeat_n(0, self.len as usize).collect();
        if let Some(bytes) = Arc::get_mut(&mut bytes) {
            self.copy_to(0, bytes);
        }
        Self { source: Source::Copied(bytes), start: 0, len: self.len }
    }

    #[cold]
    fn copy(&mut self) {
        window::tell();
        let whole = Self { source: Source::Copied(Arc::default()), start: 0, len: 0 };
        *self = core::mem::replace(self, whole).into_copy();
    }

    /// The first `len` bytes of a receive buffer.
    pub(crate) fn of_head(head: Head, len: usize) -> Self {
        Self { source: Source::Head(head), start: 0, len: len as u32 }
    }

    #[inline]
    fn check(&self, offset: usize, len: usize) {
        let held = self.len as usize;
        assert!(offset <= held && len <= held - offset, "{len} bytes at {offset} are outside of the received buffer");
    }
}

impl RxBuffer for RxBuf {
    #[inline]
    fn len(&self) -> usize {
        self.len as usize
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        self.check(offset, out.len());
        let mut skip = self.start as usize + offset;
        match &self.source {
            Source::Copied(bytes) => out.copy_from_slice(&bytes[skip..skip + out.len()]),
            Source::Head(head) => out.copy_from_slice(&head.bytes()[skip..skip + out.len()]),
            Source::Peer { link, flight } => {
                // SAFETY: this handle is counted, so the table isn't written.
                let pieces = unsafe { &*link.flights.pieces[usize::from(*flight)].get() };
                let mut out = out;
                for piece in pieces {
                    let len = piece.len as usize;
                    if skip >= len {
                        skip -= len;
                        continue;
                    }
                    let (now, later) = out.split_at_mut((len - skip).min(out.len()));
                    link.peer.view.copy_out(POOL_AT + piece.offset as usize + skip, now);
                    out = later;
                    skip = 0;
                    if out.is_empty() {
                        break;
                    }
                }
            }
        }
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        self.check(offset, len);
        Sum::over(len, |at, piece| self.copy_to(offset + at, piece))
    }

    fn slice(&self, offset: usize, len: usize) -> Self {
        self.check(offset, len);
        let mut part = self.clone();
        part.start += offset as u32;
        part.len = len as u32;
        part
    }

    #[inline]
    fn into_slice(mut self, offset: usize, len: usize) -> Self {
        self.check(offset, len);
        self.start += offset as u32;
        self.len = len as u32;
        self
    }
}

impl LendBuffer for RxBuf {
    /// A peer's bytes stay where they are, and are copied by the first write to them; once the program has made one, they are copied here.
    #[inline]
    fn make_writable(&mut self) {
        if let Source::Peer { link, .. } = &self.source
            && (window::are_copies_lent() || !link.peer.window.is_listed())
        {
            self.copy();
        }
    }

    fn take_written(&mut self) {
        if !matches!(self.source, Source::Peer { .. }) {
            return;
        }
        let mut written: Arc<[u8]> = core::iter::repeat_n(0, self.len as usize).collect();
        let mut left = Arc::get_mut(&mut written).unwrap_or_default();
        self.for_each_piece(|from, len| {
            let (to, rest) = core::mem::take(&mut left).split_at_mut(len);
            // SAFETY: both are `len` bytes: of a window, or the view behind it, which last as long as this handle; and of a slice elsewhere.
            unsafe { copy::opaque(from, to.as_mut_ptr(), len) };
            left = rest;
        });
        *self = Self { source: Source::Copied(written), start: 0, len: self.len };
    }

    #[inline]
    fn only_piece(&self) -> Option<(*const u8, usize)> {
        let (start, len) = (self.start as usize, self.len as usize);
        match &self.source {
            Source::Head(head) => Some((head.bytes()[start..start + len].as_ptr(), len)),
            Source::Copied(bytes) => Some((bytes[start..start + len].as_ptr(), len)),
            Source::Peer { .. } => None,
        }
    }

    fn for_each_piece(&self, mut piece: impl FnMut(*const u8, usize)) {
        let (mut skip, mut left) = (self.start as usize, self.len as usize);
        match &self.source {
            Source::Copied(bytes) => piece(bytes[skip..skip + left].as_ptr(), left),
            Source::Head(head) => piece(head.bytes()[skip..skip + left].as_ptr(), left),
            Source::Peer { link, flight } => {
                // SAFETY: this handle is counted, so the table isn't written.
                let pieces = unsafe { &*link.flights.pieces[usize::from(*flight)].get() };
                for &Piece { offset, len } in pieces {
                    let len = len as usize;
                    let from = skip.min(len);
                    let taken = (len - from).min(left);
                    if taken > 0 {
                        let at = POOL_AT + offset as usize + from;
                        let address = link.peer.window.address(at, taken).unwrap_or_else(|| link.peer.view.address(at, taken));
                        piece(address, taken);
                    }
                    skip -= from;
                    left -= taken;
                }
            }
        }
    }

    #[inline]
    fn are_copies_lent() -> bool {
        window::are_copies_lent()
    }

    fn lend_copies() {
        window::lend_copies();
    }

    fn copy_on_write(address: usize) -> bool {
        window::copy_on_write(address)
    }
}

impl Clone for RxBuf {
    fn clone(&self) -> Self {
        let source = match &self.source {
            Source::Copied(bytes) => Source::Copied(bytes.clone()),
            Source::Head(head) => Source::Head(head.clone()),
            Source::Peer { link, flight } => {
                link.flights.counts[usize::from(*flight)].fetch_add(1, Ordering::Relaxed);
                Source::Peer { link: link.clone(), flight: *flight }
            }
        };
        Self { source, start: self.start, len: self.len }
    }
}

impl Drop for RxBuf {
    #[inline]
    fn drop(&mut self) {
        let Source::Peer { link, flight } = &self.source else { return };
        if release(&link.flights.counts[usize::from(*flight)]) {
            link.hand_back(*flight);
        }
    }
}
