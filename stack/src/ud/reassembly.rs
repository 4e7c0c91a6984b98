//! Frames put together from their pieces, whichever way these come.

use core::time::Duration;
use std::net::IpAddr;

use super::header::Header;
use crate::time::Instant;

/// Who sends: where from, as the network says it, and by which queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The address: the datagram's own, not the frame's.
    pub address: IpAddr,
    /// The queue pair's number.
    pub qp: u32,
}

/// What may wait here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest frame in bytes.
    pub frame_len: usize,
    /// Frames that are not complete, of all sources.
    pub frames: usize,
    /// And of one address, whatever queue pairs it names.
    pub of_address: usize,
    /// How long a frame waits for the next of its pieces.
    pub patience: Duration,
}

/// A frame of which some pieces have come.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) source: Source,
    /// A piece of it: all have the same number, length and count.
    header: Header,
    /// The pieces that have come, a bit for each.
    have: u64,
    touched: Instant,
    bytes: Box<[u8]>,
}

impl Partial {
    fn is_of(&self, source: &Source, header: &Header) -> bool {
        self.source == *source && self.header.frame == header.frame
    }

    fn is_complete(&self) -> bool {
        self.have.count_ones() == u32::from(self.header.count)
    }
}

/// See the module's documentation. Its memory is as much as the limits say at the most, and is used again.
#[derive(Debug)]
pub struct Reassembly {
    limits: Limits,
    pub(super) waiting: Vec<Partial>,
    /// The frame that was completed last.
    complete: Option<Box<[u8]>>,
    pub(super) spare: Vec<Box<[u8]>>,
    given_up: u64,
}

impl Reassembly {
    /// With nothing in it.
    pub const fn new(limits: Limits) -> Self {
        Self { limits, waiting: Vec::new(), complete: None, spare: Vec::new(), given_up: 0 }
    }

    /// Frames that never became complete, or were longer than the limit.
    pub const fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Frames that wait for pieces.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Takes a piece, as [`Header::parse`] gave it. The frame, if it is complete with that: it is the caller's until the next call.
    pub fn add<'a>(&'a mut self, now: Instant, source: Source, header: Header, bytes: &'a [u8]) -> Option<&'a [u8]> {
        debug_assert_eq!(header.piece().len, bytes.len(), "the codec has seen to that");
        if usize::from(header.frame_len) > self.limits.frame_len {
            self.given_up += 1;
            return None;
        }
        if header.count == 1 {
            return Some(bytes);
        }
        self.spare.extend(self.complete.take());
        self.give_up_old(now);
        let at = self.place_of(now, source, header);
        let partial = &mut self.waiting[at];
        let piece = header.piece();
        // (A piece that comes twice is the same one, or a liar's, whose own frame it is.)
        partial.bytes[piece.at..piece.at + piece.len].copy_from_slice(bytes);
        partial.have |= 1 << header.index;
        partial.touched = now;
        if !partial.is_complete() {
            return None;
        }
        let done = self.waiting.swap_remove(at);
        self.complete.insert(done.bytes).get(..usize::from(header.frame_len))
    }

    /// Where the frame of a piece is, or is from now on.
    fn place_of(&mut self, now: Instant, source: Source, header: Header) -> usize {
        if let Some(at) = self.waiting.iter().position(|partial| partial.is_of(&source, &header)) {
            let partial = &mut self.waiting[at];
            let (known, new) = (partial.header, header);
            if (known.frame_len, known.count) != (new.frame_len, new.count) {
                // The number came round, or the sender lies: the frame that it was is no more.
                (partial.header, partial.have) = (new, 0);
                self.given_up += 1;
            }
            return at;
        }
        let of_address = |partial: &Partial| partial.source.address == source.address;
        // (Who has as many as it may have makes room by its own oldest one, and so takes nothing from others.)
        if self.waiting.iter().filter(|partial| of_address(partial)).count() >= self.limits.of_address {
            self.give_up_oldest(of_address);
        } else if self.waiting.len() >= self.limits.frames {
            self.give_up_oldest(|_| true);
        }
        let bytes = self.spare.pop().unwrap_or_else(|| vec![0; self.limits.frame_len].into());
        self.waiting.push(Partial { source, header, have: 0, touched: now, bytes });
        self.waiting.len() - 1
    }

    fn give_up_old(&mut self, now: Instant) {
        while let Some(at) = self.waiting.iter().position(|partial| now.since(partial.touched) > self.limits.patience) {
            self.give_up(at);
        }
    }

    fn give_up_oldest(&mut self, is_meant: impl Fn(&Partial) -> bool) {
        let meant = self.waiting.iter().enumerate().filter(|(_, partial)| is_meant(partial));
        if let Some(at) = meant.min_by_key(|(_, partial)| partial.touched).map(|(at, _)| at) {
            self.give_up(at);
        }
    }

    fn give_up(&mut self, at: usize) {
        self.given_up += 1;
        self.spare.push(self.waiting.swap_remove(at).bytes);
    }
}
