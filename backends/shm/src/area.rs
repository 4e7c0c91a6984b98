//! Memory of ours that one peer writes to by itself, without a system call: receive buffers of the streams that it sends us.
//!
//! Each link has an area of its own, so that nobody else's bytes are within the peer's reach. There is nothing in it but those bytes: what of them counts,
//! the ring says. They are only copied, and a peer that writes where nothing was granted spoils what it sends itself.
//!
//! A part of it is published as a region is, with key, bounds and queue pair, and revoked when it is dropped. Mapped memory cannot be taken away from a writer, so the
//! part is given to nobody else while the peer is in the middle of a write to it ([`Write::is_under_way`]); nobody waits for that.

use core::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::fd::Fd;
use crate::link::Link;
use crate::memfd;
use crate::protocol::{Place, Region, Write};
use crate::stores::SharedMemory;

/// Parts begin at multiples of this: a page.
const ALIGNMENT: usize = 4096;

/// A link's area, on its owner's side.
#[derive(Debug)]
pub(crate) struct Area {
    memory: SharedMemory,
    /// By where they begin.
    taken: Mutex<Vec<Taken>>,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    at: usize,
    len: usize,
    key: u32,
    /// Its owner has let go of it.
    is_over: bool,
}

impl Area {
    /// Makes one; `None`: no bytes are asked for, or the system gives none.
    pub(crate) fn create(bytes: usize) -> Option<(Self, Fd)> {
        if bytes == 0 {
            return None;
        }
        let made = memfd::create_area(bytes).inspect_err(|error| tracing::debug!("no memory for a peer to write to: {error}"));
        let (memory, fd) = made.ok()?;
        Some((Self { memory, taken: Mutex::default() }, fd))
    }

    /// Takes the first part that is free. `is_written`: whether a part that is over, by its key, is written to all the same.
    fn take(&self, len: usize, key: u32, is_written: impl Fn(u32) -> bool) -> Option<usize> {
        let len = len.max(1).checked_next_multiple_of(ALIGNMENT)?;
        let mut taken = self.lock();
        taken.retain(|part| !part.is_over || is_written(part.key));
        let (mut at, mut place) = (0, taken.len());
        for (index, part) in taken.iter().enumerate() {
            if part.at - at >= len {
                place = index;
                break;
            }
            at = part.at + part.len;
        }
        if len > self.memory.len() - at {
            return None;
        }
        taken.insert(place, Taken { at, len, key, is_over: false });
        Some(at)
    }

    fn let_go(&self, at: usize) {
        self.lock().iter_mut().filter(|part| part.at == at).for_each(|part| part.is_over = true);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Memory that one peer may write to, by key, until it is dropped. Its bytes are some or others at first, and may change at any time.
#[derive(Debug)]
pub struct AreaPart {
    /// Invariant: it has an area, of which `len` bytes from `at` on are this part's.
    link: Arc<Link>,
    at: usize,
    len: usize,
    key: u32,
}

impl AreaPart {
    /// Takes and publishes a part of a link's area. `qp`: the queue pair of ours that the peer's is connected to; `address`: of its first byte, as the peer names it.
    pub(crate) fn share(link: Arc<Link>, key: u32, qp: u32, address: u64, len: usize) -> Option<Self> {
        let (member, peer) = (&link.member, &link.peer);
        if member.is_forked() {
            return None;
        }
        let is_written = |key| link.alive.load(Ordering::Relaxed) && Write::is_under_way(member.id, key, &peer.view);
        let at = link.area.as_ref()?.take(len, key, is_written)?;
        let place = Place::Area(at as u64);
        if !member.publish(&Region { key, peer: peer.id, qp, address, len: len as u64, place }) {
            link.area.as_ref()?.let_go(at);
            return None;
        }
        Some(Self { link, at, len, key })
    }

    /// Bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes from `offset` on out.
    ///
    /// # Panics
    /// They are not all in it.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        let at = self.checked(offset, out.len());
        if let Some(area) = self.link.area.as_ref().filter(|_| !self.link.member.is_forked()) {
            area.memory.read(at, out);
        }
    }

    /// Copies bytes in, from `offset` on.
    ///
    /// # Panics
    /// They do not all fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let at = self.checked(offset, bytes.len());
        if let Some(area) = self.link.area.as_ref().filter(|_| !self.link.member.is_forked()) {
            area.memory.write_to_pool(at, bytes);
        }
    }

    fn checked(&self, offset: usize, len: usize) -> usize {
        assert!(offset <= self.len && len <= self.len - offset, "{len} bytes at {offset} are outside of the part");
        self.at + offset
    }
}

impl Drop for AreaPart {
    fn drop(&mut self) {
        self.link.member.revoke(self.key);
        if let Some(area) = &self.link.area {
            area.let_go(self.at);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{ALIGNMENT, Area};
    use crate::layout::SEGMENT_MIN;

    #[test]
    fn parts_are_taken_from_the_front_and_only_once_nobody_writes_there() {
        let (area, _fd) = Area::create(SEGMENT_MIN.next_multiple_of(ALIGNMENT)).unwrap();
        let (nobody, somebody) = (|_: u32| false, |key: u32| key == 1);
        assert_eq!(area.take(ALIGNMENT + 1, 1, nobody), Some(0));
        assert_eq!(area.take(0, 2, nobody), Some(2 * ALIGNMENT));
        assert_eq!(area.take(ALIGNMENT, 3, nobody), Some(3 * ALIGNMENT));
        assert_eq!(area.take(usize::MAX, 4, nobody), None);
        assert_eq!(area.take(area.memory.len() - 4 * ALIGNMENT + 1, 4, nobody), None, "as much as is not there");
        area.let_go(0);
        assert_eq!(area.take(ALIGNMENT, 5, somebody), Some(4 * ALIGNMENT), "the first part is written to");
        assert_eq!(area.take(2 * ALIGNMENT, 6, nobody), Some(0));
        area.let_go(2 * ALIGNMENT);
        assert_eq!(area.take(2 * ALIGNMENT, 7, nobody), Some(5 * ALIGNMENT), "it does not fit between");
        assert_eq!(area.take(ALIGNMENT, 8, nobody), Some(2 * ALIGNMENT));
        assert!(Area::create(0).is_none());
    }
}
