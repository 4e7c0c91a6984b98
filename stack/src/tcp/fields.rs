//! How a connection becomes words, and words a connection: each part says once, in order, what it consists of ([`crate::tcp::Snapshot`]).

use core::time::Duration;

use crate::time::Instant;
use crate::wire::tcp::{SackBlock, SeqNumber};

/// No queue is longer, and no window wider (RFC 7323 s2.3).
pub(super) const LONGEST: usize = 1 << 30;

/// Why bytes are no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// They are of another layout, whose number this is.
    #[error("a connection in layout {0}, which is not known here")]
    Version(u32),
    /// They end too early, or too late.
    #[error("a connection's bytes of the wrong length")]
    Length,
    /// A field has a value that it cannot have.
    #[error("a connection's field with a value that it cannot have")]
    Value,
    /// The fields contradict each other: no connection is so.
    #[error("a connection that cannot be")]
    Inconsistent,
}

/// Who walks over the fields of a part: it writes them down, or reads them in. Everything is words of 32 bits, the least significant byte first.
pub(super) trait Fields: Sized {
    /// The next word.
    fn word(&mut self, word: &mut u32) -> Result<(), SnapshotError>;

    fn long(&mut self, long: &mut u64) -> Result<(), SnapshotError> {
        let (mut low, mut high) = (*long as u32, (*long >> 32) as u32);
        self.word(&mut low)?;
        self.word(&mut high)?;
        *long = u64::from(low) | u64::from(high) << 32;
        Ok(())
    }

    fn short(&mut self, short: &mut u16) -> Result<(), SnapshotError> {
        let mut word = u32::from(*short);
        self.word(&mut word)?;
        *short = u16::try_from(word).map_err(|_| SnapshotError::Value)?;
        Ok(())
    }

    /// One that goes on counting: it may not be about to run over.
    fn count_of(&mut self, count: &mut u64) -> Result<(), SnapshotError> {
        self.at_most(count, u64::MAX / 2)
    }

    /// One that is no larger than that: it is written so, and refused where it is not.
    fn at_most(&mut self, long: &mut u64, most: u64) -> Result<(), SnapshotError> {
        *long = (*long).min(most);
        self.long(long)?;
        if *long > most { Err(SnapshotError::Value) } else { Ok(()) }
    }

    /// As [`Fields::at_most`].
    fn word_at_most(&mut self, word: &mut u32, most: u32) -> Result<(), SnapshotError> {
        *word = (*word).min(most);
        self.word(word)?;
        if *word > most { Err(SnapshotError::Value) } else { Ok(()) }
    }

    fn byte(&mut self, byte: &mut u8) -> Result<(), SnapshotError> {
        let mut word = u32::from(*byte);
        self.word(&mut word)?;
        *byte = u8::try_from(word).map_err(|_| SnapshotError::Value)?;
        Ok(())
    }

    /// A number of bytes, no larger than [`LONGEST`].
    fn size(&mut self, size: &mut usize) -> Result<(), SnapshotError> {
        let mut word = u32::try_from(*size).unwrap_or(u32::MAX);
        self.word_at_most(&mut word, LONGEST as u32)?;
        *size = word as usize;
        Ok(())
    }

    fn flag(&mut self, flag: &mut bool) -> Result<(), SnapshotError> {
        self.one_of(flag, &[false, true])
    }

    fn number(&mut self, number: &mut SeqNumber) -> Result<(), SnapshotError> {
        self.word(&mut number.0)
    }

    fn range(&mut self, range: &mut SackBlock) -> Result<(), SnapshotError> {
        self.number(&mut range.start)?;
        self.number(&mut range.end)
    }

    fn instant(&mut self, instant: &mut Instant) -> Result<(), SnapshotError> {
        let mut ns = instant.as_nanos();
        self.long(&mut ns)?;
        *instant = Instant::from_nanos(ns);
        Ok(())
    }

    fn duration(&mut self, duration: &mut Duration) -> Result<(), SnapshotError> {
        let mut ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.long(&mut ns)?;
        *duration = Duration::from_nanos(ns);
        Ok(())
    }

    /// One of these values, by its place.
    fn one_of<V: Copy + PartialEq>(&mut self, value: &mut V, all: &[V]) -> Result<(), SnapshotError> {
        let mut place = all.iter().position(|other| other == value).unwrap_or(0) as u32;
        self.word(&mut place)?;
        *value = *all.get(place as usize).ok_or(SnapshotError::Value)?;
        Ok(())
    }

    fn option<V: Default>(
        &mut self,
        option: &mut Option<V>,
        walk: impl FnOnce(&mut Self, &mut V) -> Result<(), SnapshotError>,
    ) -> Result<(), SnapshotError> {
        let mut is_there = option.is_some();
        self.flag(&mut is_there)?;
        if !is_there {
            *option = None;
            return Ok(());
        }
        walk(self, option.get_or_insert_default())
    }

    /// At most so many.
    fn ranges(&mut self, ranges: &mut Vec<SackBlock>, most: usize) -> Result<(), SnapshotError> {
        let mut count = ranges.len() as u32;
        self.word_at_most(&mut count, most as u32)?;
        ranges.resize(count as usize, SackBlock::default());
        ranges.iter_mut().try_for_each(|range| self.range(range))
    }
}

/// Writes fields down.
#[derive(Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Fields for Writer {
    fn word(&mut self, word: &mut u32) -> Result<(), SnapshotError> {
        self.0.extend_from_slice(&word.to_le_bytes());
        Ok(())
    }
}

/// Reads fields in.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// So many bytes as they are.
    pub(super) fn bytes(&mut self, len: u32) -> Result<&'a [u8], SnapshotError> {
        let (bytes, rest) = self.0.split_at_checked(len as usize).ok_or(SnapshotError::Length)?;
        self.0 = rest;
        Ok(bytes)
    }
}

impl Fields for Reader<'_> {
    fn word(&mut self, word: &mut u32) -> Result<(), SnapshotError> {
        let (first, rest) = self.0.split_first_chunk().ok_or(SnapshotError::Length)?;
        self.0 = rest;
        *word = u32::from_le_bytes(*first);
        Ok(())
    }
}
