//! Descriptors of this crate's own, remembered so that a fork's child can close its copies without taking a lock.

use core::sync::atomic::{AtomicU64, Ordering};
use std::io;

use crate::sys;

/// The highest descriptor number that can be remembered, plus one.
const LIMIT: usize = 1 << 20;

/// Where this crate's descriptors are numbered from, if there is room.
const HIGH: i32 = 600;

/// Whether a descriptor is this crate's own: whoever closes it for the program closes a stranger's.
pub fn is_internal(fd: i32) -> bool {
    let word = usize::try_from(fd).ok().and_then(|n| OURS.get(n / 64));
    word.is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (fd % 64) != 0)
}

/// One bit a descriptor. A child of fork may find any lock held for ever; these words are always usable.
static OURS: [AtomicU64; LIMIT / 64] = [const { AtomicU64::new(0) }; LIMIT / 64];

/// Numbers that have two owners: a vfork child has its parent's memory, and descriptors of its own.
static TWICE: [AtomicU64; LIMIT / 64] = [const { AtomicU64::new(0) }; LIMIT / 64];

/// An owned descriptor of the library's, of which the program does not know; closed on drop, unless a fork has closed it already.
#[derive(Debug)]
pub struct Fd(i32);

impl Fd {
    /// Takes ownership of `raw`, under a high number: the program's own descriptors are to be numbered as on the kernel.
    ///
    /// # Errors
    /// EMFILE: a number beyond those that can be remembered.
    pub fn new(raw: i32) -> io::Result<Self> {
        let raw = if raw < HIGH { sys::move_above(raw, HIGH) } else { raw };
        let Some(word) = usize::try_from(raw).ok().and_then(|n| OURS.get(n / 64)) else {
            sys::close(raw);
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        };
        let bit = 1 << (raw % 64);
        if word.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            TWICE[raw as usize / 64].fetch_or(bit, Ordering::Relaxed);
        }
        Ok(Self(raw))
    }

    /// Its number.
    #[inline]
    pub const fn raw(&self) -> i32 {
        self.0
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        let bit = 1 << (self.0 % 64);
        let is_in = |table: &[AtomicU64; LIMIT / 64]| table[self.0 as usize / 64].fetch_and(!bit, Ordering::Relaxed) & bit != 0;
        if is_in(&TWICE) || is_in(&OURS) {
            sys::close(self.0);
        }
    }
}

/// Closes every descriptor of this crate's in a fork's child. Async-signal-safe.
pub(crate) fn close_all_in_child() {
    for (i, word) in OURS.iter().enumerate() {
        // (Pages of zeros stay unwritten.)
        let mut bits = word.load(Ordering::Relaxed);
        if bits == 0 {
            continue;
        }
        word.store(0, Ordering::Relaxed);
        TWICE[i].store(0, Ordering::Relaxed);
        while bits != 0 {
            sys::close((i * 64) as i32 + bits.trailing_zeros() as i32);
            bits &= bits - 1;
        }
    }
}
