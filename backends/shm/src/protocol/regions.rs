//! Memory regions that a peer may write to by itself, and how they stop being that. Their owner publishes them in memory of its own; who writes says so in its own,
//! looks whether the region is still published, and writes. Whoever revokes a region looks who writes to it after that. With a sequentially consistent fence between each one's store and look
//! (the store buffering litmus test), either the writer finds the region revoked, or the owner finds the writer, and waits for it.
//!
//! What the owner publishes is only believed to the effect that the kernel is asked to write to the owner's own process there. What a writer says is only believed
//! to the effect that the owner waits for a while.

use super::{ReadWords, WriteWords};
use crate::layout::{REGION_BYTES, REGIONS_AT, REGIONS_MAX, WRITING_AT};
use crate::sync::{Ordering, fence};

/// An entry's words: the key with [`IS_PUBLISHED`], or zero; then the others, in the order of [`Region`]'s fields.
const KEY: usize = 0;
const PEER: usize = 8;
const QP: usize = 16;
const ADDRESS: usize = 24;
const LEN: usize = 32;
const START: usize = 40;

const IS_PUBLISHED: u64 = 1 << 32;
/// It lies in the area of the link with its peer.
const IS_IN_AREA: u64 = 1 << 33;

/// Where a region's first byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the memory of its owner's process.
    Process(u64),
    /// In the area of the link with its peer ([`crate::area`]).
    Area(u64),
}

/// A region that one peer may write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// Its remote key.
    pub(crate) key: u32,
    /// The member whose queue pair may write there.
    pub(crate) peer: u64,
    /// The owner's queue pair, to which that one is connected.
    pub(crate) qp: u32,
    /// The address by which writes name its first byte.
    pub(crate) address: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// Where it begins.
    pub(crate) place: Place,
}

impl Region {
    /// Which entry a region of that key has. (Keys count places, and their lowest byte those who had a place.)
    pub(crate) const fn place(key: u32) -> usize {
        (key >> 8) as usize & (REGIONS_MAX - 1)
    }

    const fn entry(key: u32) -> usize {
        REGIONS_AT + Self::place(key) * REGION_BYTES
    }

    /// Publishes it, in a place that is free.
    pub(crate) fn publish(&self, own: &impl WriteWords) {
        let at = Self::entry(self.key);
        let (kind, start) = match self.place {
            Place::Process(start) => (IS_PUBLISHED, start),
            Place::Area(start) => (IS_PUBLISHED | IS_IN_AREA, start),
        };
        for (offset, value) in [(PEER, self.peer), (QP, self.qp.into()), (ADDRESS, self.address), (LEN, self.len), (START, start)] {
            own.store(at + offset, value, Ordering::Relaxed);
        }
        own.store(at + KEY, kind | u64::from(self.key), Ordering::Release);
    }

    /// Revokes it: nobody begins to write there any more. Who has begun is found by [`Write::is_under_way`].
    pub(crate) fn revoke(key: u32, own: &impl WriteWords) {
        own.store(Self::entry(key) + KEY, 0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The region of that key that `peer` publishes.
    fn find(key: u32, peer: &impl ReadWords) -> Option<Self> {
        let at = Self::entry(key);
        let published = peer.load(at + KEY, Ordering::Acquire);
        if published & !IS_IN_AREA != IS_PUBLISHED | u64::from(key) {
            return None;
        }
        let word = |offset| peer.load(at + offset, Ordering::Relaxed);
        let qp = u32::try_from(word(QP)).ok()?;
        let place = if published & IS_IN_AREA == 0 { Place::Process(word(START)) } else { Place::Area(word(START)) };
        Some(Self { key, peer: word(PEER), qp, address: word(ADDRESS), len: word(LEN), place })
    }
}

/// A write to a peer's region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    /// The member that writes.
    pub(crate) writer: u64,
    /// The member whose region it is.
    pub(crate) owner: u64,
    /// The owner's queue pair, to which the writer's is connected.
    pub(crate) qp: u32,
    pub(crate) key: u32,
    pub(crate) address: u64,
    /// Bytes.
    pub(crate) len: u64,
}

impl Write {
    /// What is said of it while it is under way. (Of the owner a part is enough: who is taken for another one is waited for in vain, for a moment.)
    const fn word(owner: u64, key: u32) -> u64 {
        owner << 32 | key as u64
    }

    /// Says that it is under way, and gives where it goes in the owner's process, if the owner lets it: by key, bounds, and whose queue pair asks. [`Write::end`]
    /// follows in any case.
    pub(crate) fn begin(&self, own: &impl WriteWords, owner: &impl ReadWords) -> Option<Place> {
        own.store(WRITING_AT, Self::word(self.owner, self.key), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let region = Region::find(self.key, owner).filter(|region| (region.peer, region.qp) == (self.writer, self.qp))?;
        let offset = self.address.checked_sub(region.address)?;
        let end = offset.checked_add(self.len)?;
        if end > region.len {
            return None;
        }
        Some(match region.place {
            Place::Process(start) => Place::Process(start.checked_add(offset)?),
            Place::Area(start) => Place::Area(start.checked_add(offset)?),
        })
    }

    /// It is done, or was not.
    pub(crate) fn end(own: &impl WriteWords) {
        own.store(WRITING_AT, 0, Ordering::Release);
    }

    /// Whether `peer` writes to the region of `owner` that was revoked.
    pub(crate) fn is_under_way(owner: u64, key: u32, peer: &impl ReadWords) -> bool {
        peer.load(WRITING_AT, Ordering::Acquire) == Self::word(owner, key)
    }
}
