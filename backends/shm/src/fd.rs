//! Descriptors of this crate's own, remembered so that a fork's child can close its copies without taking a lock.

use core::sync::atomic::{AtomicU64, Ordering};
use std::io;

use ringway_host::numbers;

use crate::{closing, sys};

/// The highest descriptor number that can be remembered, plus one.
const LIMIT: usize = 1 << 20;

/// Where this crate's descriptors are numbered from, if there is room.
const HIGH: i32 = 600;

/// Whether a descriptor is this crate's own: whoever closes it for the program closes a stranger's.
pub fn is_internal(fd: i32) -> bool {
    OURS.has(fd)
}

/// A child of fork may find any lock held for ever; these words are always usable.
static OURS: Table = Table::new();

/// Numbers that have two owners: a vfork child has its parent's memory, and descriptors of its own.
static TWICE: Table = Table::new();

/// A set of descriptors, a bit each.
pub(crate) struct Table([AtomicU64; LIMIT / 64]);

impl Table {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; LIMIT / 64])
    }

    fn place(&self, fd: i32) -> Option<(&AtomicU64, u64)> {
        let at = usize::try_from(fd).ok()?;
        Some((self.0.get(at / 64)?, 1 << (at % 64)))
    }

    fn has(&self, fd: i32) -> bool {
        self.place(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Whether it was in before. `None`: there is no place for such a number.
    fn replace(&self, fd: i32) -> Option<bool> {
        self.place(fd).map(|(word, bit)| word.fetch_or(bit, Ordering::AcqRel) & bit != 0)
    }

    pub(crate) fn insert(&self, fd: i32) {
        self.replace(fd);
    }

    /// Whether it was in. (Pages of zeros stay unwritten.)
    pub(crate) fn remove(&self, fd: i32) -> bool {
        self.place(fd)
            .is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0 && word.fetch_and(!bit, Ordering::AcqRel) & bit != 0)
    }

    /// Takes out any of them.
    pub(crate) fn take_one(&self) -> Option<i32> {
        let each = self.0.iter().enumerate();
        each.filter(|(_, word)| word.load(Ordering::Relaxed) != 0).find_map(|(i, word)| {
            let bit = word.load(Ordering::Relaxed).trailing_zeros();
            let fd = (i * 64) as i32 + bit as i32;
            (bit < 64 && self.remove(fd)).then_some(fd)
        })
    }

    pub(crate) fn clear(&self) {
        for word in self.0.iter().filter(|word| word.load(Ordering::Relaxed) != 0) {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// An owned descriptor of the library's, of which the program does not know; closed on drop, unless a fork has closed it already.
#[derive(Debug)]
pub struct Fd(i32);

impl Fd {
    /// Takes ownership of what `make` makes, under a high number: the program's own descriptors are to be numbered as on the kernel.
    ///
    /// # Errors
    /// Those of `make`. EMFILE: a number beyond those that can be remembered.
    pub fn make(make: impl FnOnce() -> io::Result<i32>) -> io::Result<Self> {
        numbers::make_internal(|| Self::moved(make()?))
    }

    /// As [`Fd::make`], of both ends of something.
    ///
    /// # Errors
    /// As [`Fd::make`].
    pub fn make_pair(make: impl FnOnce() -> io::Result<[i32; 2]>) -> io::Result<[Self; 2]> {
        numbers::make_internal(|| {
            let [first, second] = make()?.map(Self::moved);
            Ok([first?, second?])
        })
    }

    fn moved(raw: i32) -> io::Result<Self> {
        Self::remember(if raw < HIGH { sys::move_above(raw, HIGH) } else { raw })
    }

    fn remember(raw: i32) -> io::Result<Self> {
        let Some(was_in) = OURS.replace(raw) else {
            sys::close(raw);
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        };
        if was_in {
            TWICE.insert(raw);
        }
        Ok(Self(raw))
    }

    /// Its number.
    #[inline]
    pub const fn raw(&self) -> i32 {
        self.0
    }

    /// Takes ownership of what another process passed. Until it is [`Fd::recognised`], it keeps its number (closing even a copy may take long), and
    /// whoever drops it leaves its close to a thread of its own.
    pub(crate) fn passed(raw: i32) -> io::Result<Self> {
        // (Memory, as members pass it.)
        if sys::has_seals(raw) {
            return Self::moved(raw);
        }
        let fd = Self::remember(raw)?;
        closing::set_slow(raw);
        Ok(fd)
    }

    /// It is a connection over which descriptors may have been passed, which are closed with it.
    pub(crate) fn set_slow(&self) {
        closing::set_slow_connection(self.0);
    }

    /// It is of a kind that is closed at once.
    pub(crate) fn set_at_once(&self) {
        closing::set_at_once(self.0);
    }

    /// It is of a kind that is closed at once, or is not the last descriptor of its file.
    ///
    /// # Errors
    /// As [`Fd::make`].
    pub fn recognised(self) -> io::Result<Self> {
        let raw = self.0;
        closing::set_at_once(raw);
        forget(raw);
        core::mem::forget(self);
        Self::moved(raw)
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        closing::close(self.0, forget);
    }
}

/// Whether the descriptor is still to be closed.
fn forget(raw: i32) -> bool {
    TWICE.remove(raw) || OURS.remove(raw)
}

/// Closes every descriptor of this crate's in a fork's child. Async-signal-safe.
pub(crate) fn close_all_in_child() {
    closing::forget_all_in_child();
    numbers::forget_all_in_child();
    TWICE.clear();
    for (i, word) in OURS.0.iter().enumerate() {
        // (Pages of zeros stay unwritten.)
        let mut bits = word.load(Ordering::Relaxed);
        if bits == 0 {
            continue;
        }
        word.store(0, Ordering::Relaxed);
        while bits != 0 {
            sys::close((i * 64) as i32 + bits.trailing_zeros() as i32);
            bits &= bits - 1;
        }
    }
}
