//! Streams: what a reader gets is what its peer wrote, byte by byte from the first on, and an end without an error is the whole.

use core::fmt;
use std::io::IoSlice;

use ringway_stack::tcp::Undelivered;

use super::Moment;
use super::flow::Endpoint;

const NAME: &str = "stream";

/// Released bytes before the rest is moved down.
const SLACK: usize = 64 << 10;

/// What an endpoint's program wrote, as far as it may yet be compared with anything.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The program's calls are seen.
    watched: bool,
    /// See [`State::mistake`].
    mistaken: bool,
    /// The program ended its stream.
    ended: bool,
    bytes: Vec<u8>,
    /// Where in `bytes` the ones begin that are still needed, and which byte of the stream that is.
    start: usize,
    base: u64,
    /// What this endpoint's program has read of its peer's stream.
    read: u64,
    /// What arrived may be corrupted where no checksum tells: only lengths count.
    tainted: bool,
}

/// Why bytes are not the stream's.
#[derive(Debug)]
pub(super) enum Wrong {
    Beyond { offset: u64, len: usize, written: u64 },
    Byte { offset: u64 },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beyond { offset, len, written } => write!(f, "{len} bytes at offset {offset}, but only {written} were written"),
            Self::Byte { offset } => write!(f, "the byte at offset {offset} is not the one that was written"),
        }
    }
}

impl State {
    pub(super) fn watch(&mut self) {
        self.watched = !self.mistaken;
    }

    /// The calls that are seen may be another connection's.
    pub(super) fn mistake(&mut self) {
        (self.watched, self.mistaken) = (false, true);
    }

    /// Whether the program's calls are seen.
    pub(super) fn is_watched(&self) -> bool {
        self.watched
    }

    /// Whether the program ended its stream.
    pub(super) fn has_ended(&self) -> bool {
        self.watched && self.ended
    }

    pub(super) fn taint(&mut self) {
        self.tainted = true;
    }

    /// Whether what arrived may be corrupted.
    pub(super) fn is_tainted(&self) -> bool {
        self.tainted
    }

    pub(super) fn written(&self) -> u64 {
        self.base + (self.bytes.len() - self.start) as u64
    }

    /// What this endpoint's program has taken of its peer's stream.
    pub(super) fn taken(&self) -> u64 {
        self.read
    }

    /// The program wrote the first `len` bytes of `data`.
    pub(super) fn write(&mut self, data: &[IoSlice<'_>], len: usize) {
        let mut left = len;
        for slice in data {
            let part = &slice[..slice.len().min(left)];
            self.bytes.extend_from_slice(part);
            left -= part.len();
        }
    }

    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    pub(super) fn may_end_at(&self, offset: u64) -> bool {
        !self.watched || (self.ended && offset == self.written())
    }

    /// Whether `bytes` are the stream's at `offset`.
    pub(super) fn check(&self, offset: u64, bytes: &[u8]) -> Result<(), Wrong> {
        if !self.watched {
            return Ok(());
        }
        if offset + bytes.len() as u64 > self.written() {
            return Err(Wrong::Beyond { offset, len: bytes.len(), written: self.written() });
        }
        // What was released was acknowledged and read: nobody looks at it any more.
        let released = usize::try_from(self.base.saturating_sub(offset)).unwrap_or(usize::MAX).min(bytes.len());
        let rest = &bytes[released..];
        let at = self.start + usize::try_from((offset + released as u64).saturating_sub(self.base)).unwrap_or(0);
        if rest.is_empty() || self.bytes[at..at + rest.len()] == *rest {
            return Ok(());
        }
        let first = rest.iter().zip(&self.bytes[at..]).position(|(a, b)| a != b).unwrap_or(0);
        Err(Wrong::Byte { offset: offset + (released + first) as u64 })
    }

    fn release(&mut self, offset: u64) {
        let len = usize::try_from(offset.saturating_sub(self.base)).unwrap_or(0).min(self.bytes.len() - self.start);
        self.start += len;
        self.base += len as u64;
        if self.start > SLACK && self.start * 2 > self.bytes.len() {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }
}

/// A program read `len` bytes of `slices`; `peek`: and left them there.
pub(super) fn read<'a>(
    moment: &Moment,
    own: &mut Endpoint,
    peer: Option<&mut Endpoint>,
    slices: impl Iterator<Item = &'a [u8]>,
    len: usize,
    peek: bool,
) {
    let mut offset = own.stream.read;
    // (What another connection's program may read is compared with nothing.)
    if let Some(peer) = peer.filter(|_| !own.stream.mistaken) {
        let mut left = len;
        for slice in slices {
            let part = &slice[..slice.len().min(left)];
            match peer.stream.check(offset, part) {
                Err(Wrong::Byte { .. }) if own.stream.tainted => {}
                Err(wrong) => moment.breach(NAME, format_args!("{:?} read at offset {offset}: {wrong}", own.tuple)),
                Ok(()) => {}
            }
            offset += part.len() as u64;
            left -= part.len();
        }
        if !peek {
            // Until it is acknowledged it may be sent again, and is compared once more.
            let acknowledged = u64::from(peer.una.wrapping_sub(peer.iss).saturating_sub(1));
            let acknowledged = if peer.stream.written() < 1 << 31 { acknowledged } else { peer.offset(peer.una) };
            peer.stream.release(offset.min(acknowledged));
        }
    }
    if !peek {
        own.stream.read += len as u64;
    }
}

/// A program read the end of its peer's stream, and had heard of no error.
pub(super) fn ended(moment: &Moment, own: &Endpoint, peer: &Endpoint) {
    let (read, stream) = (own.stream.read, &peer.stream);
    if !stream.watched || own.stream.mistaken {
        return;
    }
    if !stream.ended {
        moment.breach(NAME, format_args!("RFC 9293 s3.6: the end of a stream, at offset {read}, that its writer did not end"));
    }
    if read != stream.written() {
        moment.breach(NAME, format_args!("RFC 9293 s3.6: the end of a stream at offset {read}, of {} written", stream.written()));
    }
}

/// What is known of an end that leaves its ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// The program had it,
    pub(super) accepted: bool,
    /// and had closed it.
    pub(super) closed: bool,
    /// It was over.
    pub(super) over: bool,
    /// The program had an error to hear of.
    pub(super) failed: bool,
}

/// A connection left its ring for another carrier, which is to go on with both streams where they are: what was written here and not
/// acknowledged, what was received and not read, and which of them ended.
pub(super) fn left(moment: &Moment, own: &Endpoint, peer: Option<&Endpoint>, undelivered: &Undelivered, known: Known) {
    let breach = |law: fmt::Arguments<'_>| moment.breach(NAME, format_args!("a connection that left its ring: {law}"));
    if (undelivered.accepted, undelivered.orphaned) != (known.accepted, known.closed) {
        breach(format_args!("accepted {}, closed {}, said of one that is {known:?}", undelivered.accepted, undelivered.orphaned));
    }
    // (Of what was never accepted no program had an error to hear of.)
    if known.accepted && undelivered.error.is_some() != known.failed {
        breach(format_args!("{:?}, said of one that is {known:?}", undelivered.error));
    }
    // (What had failed owes nobody anything more than what was received.)
    if own.stream.watched && !known.over {
        let from = own.offset(undelivered.sent_from.0);
        let to = from + undelivered.unacknowledged.len() as u64;
        if to != own.stream.written() {
            breach(format_args!("unacknowledged bytes from {from} to {to}, of {} that were written", own.stream.written()));
        }
        if let Err(wrong) = own.stream.check(from, &undelivered.unacknowledged) {
            breach(format_args!("unacknowledged bytes: {wrong}"));
        }
        if undelivered.ended != own.stream.ended {
            breach(format_args!("its stream ended: {}, said of one whose program says {}", undelivered.ended, own.stream.ended));
        }
    }
    let Some(peer) = peer.filter(|peer| peer.stream.watched) else { return };
    let (read, to) = (own.stream.read, peer.offset(undelivered.received_to.0));
    if !known.closed && read + undelivered.unread.len() as u64 != to {
        breach(format_args!("{} bytes unread after {read}, of {to} that were received", undelivered.unread.len()));
    }
    match peer.stream.check(read, &undelivered.unread) {
        Err(Wrong::Byte { .. }) if own.stream.tainted => {}
        Err(wrong) => breach(format_args!("unread bytes: {wrong}")),
        Ok(()) => {}
    }
    if undelivered.peer_ended && !peer.stream.may_end_at(to) {
        breach(format_args!("its peer's stream ended at {to}, which its writer did not say"));
    }
}

#[cfg(test)]
mod tests;
