//! What received frames lie in: memory of the process, to which they are copied from where the device has put their pieces.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringway_stack::device::{LendBuffer, RxBuffer};
use ringway_stack::wire::checksum;

/// Room for a number of frames, which is used again.
#[derive(Debug)]
pub(crate) struct Pool {
    frame_len: usize,
    frames_max: usize,
    held: AtomicUsize,
    spare: Mutex<Vec<Box<[u8]>>>,
}

impl Pool {
    /// For so many frames of that many bytes.
    pub(crate) fn new(frames_max: usize, frame_len: usize) -> Arc<Self> {
        Arc::new(Self { frame_len, frames_max, held: AtomicUsize::new(0), spare: Mutex::default() })
    }

    /// A handle on a copy of a frame, which is no longer than was said. `None`: there is no room.
    pub(crate) fn keep(self: &Arc<Self>, frame: &[u8]) -> Option<Received> {
        if self.held() >= self.frames_max {
            return None;
        }
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut bytes = spare.unwrap_or_else(|| vec![0; self.frame_len].into());
        bytes.get_mut(..frame.len())?.copy_from_slice(frame);
        self.held.fetch_add(1, Ordering::Relaxed);
        let len = u16::try_from(frame.len()).ok()?;
        Some(Received { frame: Arc::new(Frame { bytes: UnsafeCell::new(bytes), pool: Arc::clone(self) }), at: 0, len })
    }

    /// Frames that there are handles on.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Whether few are left.
    pub(crate) fn is_scarce(&self) -> bool {
        self.held() >= self.frames_max / 4 * 3
    }

    /// How many there are.
    pub(crate) const fn frames(&self) -> usize {
        self.frames_max
    }
}

#[derive(Debug)]
struct Frame {
    bytes: UnsafeCell<Box<[u8]>>,
    pool: Arc<Pool>,
}

// SAFETY: the bytes are written before there is a handle, and read by handles from then on. Who writes to them later is the program that they were lent to, through the pointer
// that it was given: it has been told that it may, and that nobody else sees to the order of that.
unsafe impl Send for Frame {}
// SAFETY: as above.
unsafe impl Sync for Frame {}

impl Drop for Frame {
    fn drop(&mut self) {
        let bytes = core::mem::take(self.bytes.get_mut());
        self.pool.spare.lock().unwrap_or_else(PoisonError::into_inner).push(bytes);
        self.pool.held.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A handle on received bytes.
#[derive(Clone, Debug)]
pub struct Received {
    frame: Arc<Frame>,
    /// Invariant: `len` bytes from there on are the frame's.
    at: u16,
    len: u16,
}

impl Received {
    fn bytes(&self) -> &[u8] {
        // SAFETY: nobody but the program that they were lent to writes to them: see `Frame`.
        let all = unsafe { &*self.frame.bytes.get() };
        &all[usize::from(self.at)..usize::from(self.at) + usize::from(self.len)]
    }
}

impl RxBuffer for Received {
    fn len(&self) -> usize {
        self.len.into()
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.bytes()[offset..offset + out.len()]);
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        checksum::sum(&self.bytes()[offset..offset + len])
    }

    fn slice(&self, offset: usize, len: usize) -> Self {
        self.clone().into_slice(offset, len)
    }

    fn into_slice(mut self, offset: usize, len: usize) -> Self {
        assert!(offset + len <= usize::from(self.len), "a part of the bytes");
        (self.at, self.len) = (self.at + offset as u16, len as u16);
        self
    }
}

impl LendBuffer for Received {
    fn for_each_piece(&self, mut piece: impl FnMut(*const u8, usize)) {
        if self.len > 0 {
            let bytes = self.bytes();
            piece(bytes.as_ptr(), bytes.len());
        }
    }

    fn only_piece(&self) -> Option<(*const u8, usize)> {
        (self.len > 0).then(|| (self.bytes().as_ptr(), usize::from(self.len)))
    }

    /// They are the process's own.
    fn make_writable(&mut self) {}

    /// They are where they were.
    fn take_written(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_frames_are_kept_than_there_is_room_for_and_room_comes_back() {
        let pool = Pool::new(4, 100);
        let frame: Vec<u8> = (0..100).collect();
        let mut kept: Vec<_> = (0..4).map(|_| pool.keep(&frame).unwrap()).collect();
        assert!(pool.keep(&frame).is_none() && pool.is_scarce() && pool.held() == 4);
        let part = kept[0].slice(10, 3);
        kept.clear();
        assert_eq!(pool.held(), 1, "a part of one is held");
        let mut out = [0; 2];
        part.copy_to(1, &mut out);
        assert_eq!((out, part.len(), part.checksum(0, 2)), ([11, 12], 3, checksum::sum(&[10, 11])));
        drop(part);
        assert_eq!((pool.held(), pool.is_scarce()), (0, false));
        assert!(pool.keep(&[0; 101]).is_none(), "longer than a frame is");
        assert_eq!(pool.held(), 0);
    }
}
