//! A buffer that the peer writes to.

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};
use std::alloc;
use std::io;
use std::sync::Arc;

use super::socket::{Socket, io_result};
use crate::calls::direct;

/// Whoever writes to it may do so in steps of a cache line.
const ALIGN: usize = 64;

/// A buffer that is mapped for the peer's [`super::Stream::write_at`] until it is dropped. It lives on when the stream is dropped, which is closed with it.
///
/// The peer writes at any time, and this side is not told. So bytes are only copied out and in: what a copy finds of a write that is under way is some of its
/// bytes, and not the last one. After the peer has sent something on the stream, all that it wrote here before is there.
///
/// Invariant: `bytes` are `layout`'s, from the allocator, and mapped by riomap; they go back to the allocator only once nobody writes there any more.
pub struct IoMap {
    socket: Arc<Socket>,
    bytes: NonNull<u8>,
    layout: Layout,
    offset: u64,
}

// SAFETY: the bytes are reached by pointer alone, from whatever thread: see the invariant.
unsafe impl Send for IoMap {}
// SAFETY: as above; two copies at once find what they find, as with the peer's writes.
unsafe impl Sync for IoMap {}

impl fmt::Debug for IoMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoMap").field("offset", &self.offset).field("len", &self.len()).finish_non_exhaustive()
    }
}

impl IoMap {
    pub(super) fn new(socket: &Arc<Socket>, len: usize, offset: Option<u64>) -> io::Result<Self> {
        let offset = offset.map_or(Ok(-1), i64::try_from).map_err(|_| io::ErrorKind::InvalidInput)?;
        let layout = Layout::from_size_align(len, ALIGN).ok().filter(|layout| layout.size() > 0).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the layout has a size.
        let bytes = NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the bytes are ours, readable and writable, until `drop` has unmapped them.
        let mapped = io_result(unsafe { direct::map(socket.0, bytes.as_ptr(), len, libc::PROT_WRITE, offset) });
        match mapped {
            Ok(offset) => Ok(Self { socket: Arc::clone(socket), bytes, layout, offset: offset.cast_unsigned() }),
            Err(error) => {
                // SAFETY: they were allocated just now, with this layout, and nobody has them.
                unsafe { alloc::dealloc(bytes.as_ptr(), layout) };
                Err(error)
            }
        }
    }

    /// By which offset the peer knows its first byte.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes it has; never none.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> usize {
        self.layout.size()
    }

    /// Copies bytes out, from `at` on, as many as there are up to the end; gives how many.
    pub fn read(&self, at: usize, out: &mut [u8]) -> usize {
        let len = self.len().saturating_sub(at).min(out.len());
        // What the peer wrote before whatever the program has seen is seen, too.
        fence(Ordering::Acquire);
        // SAFETY: `len` bytes lie at `at`, as just computed; `out` is other memory. Whoever writes meanwhile does so as a card would.
        unsafe { core::ptr::copy_nonoverlapping(self.bytes.as_ptr().add(at.min(self.len())), out.as_mut_ptr(), len) };
        len
    }

    /// One byte, as it is now, for a program that looks until the last byte of a write is there; `None`: beyond the end. What was written before it is there as well.
    pub fn byte(&self, at: usize) -> Option<u8> {
        // SAFETY: it lies in the buffer.
        let byte = (at < self.len()).then(|| unsafe { self.bytes.as_ptr().add(at).read_volatile() });
        fence(Ordering::Acquire);
        byte
    }

    /// Copies bytes in, from `at` on, as many as there is room for; gives how many.
    pub fn write(&self, at: usize, bytes: &[u8]) -> usize {
        let len = self.len().saturating_sub(at).min(bytes.len());
        // SAFETY: as in `read`.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.bytes.as_ptr().add(at.min(self.len())), len) };
        len
    }
}

impl Drop for IoMap {
    /// Ends the mapping (riounmap): a peer that writes there afterwards loses the connection. Where a peer was stopped in the middle of a write, the memory is never used again.
    fn drop(&mut self) {
        match direct::unmap(self.socket.0, self.bytes.addr().get(), self.layout.size()) {
            // SAFETY: the invariant: it is unmapped, and nobody writes there.
            Ok(()) => unsafe { alloc::dealloc(self.bytes.as_ptr(), self.layout) },
            // (In a fork's child it may still be its parent's.)
            Err(error) => tracing::warn!("a mapped buffer is left as it is: errno {}", error.0),
        }
    }
}
