//! What arrived out of order: kept until the gap before it is filled, and reported by SACK (RFC 2018).

use std::collections::VecDeque;

use arrayvec::ArrayVec;

use super::arrivals::Arrival;
use super::fields::{Fields, SnapshotError};
use super::payload::RxPayload;
use super::recv_queue::{COPY_BREAK, RecvQueue};
use crate::device::RxBuffer;
use crate::mutants::{Mutant, Mutation};
use crate::wire::tcp::{SackBlock, SackBlocks, SeqNumber};

/// The most gaps that are kept track of. A peer that makes more (only one that means to does) has its segments dropped.
pub(super) const BLOCKS_MAX: usize = 256;
/// Small payloads of one block are gathered in pieces of at most this many bytes.
const PIECE_BYTES_MAX: usize = 16 << 10;

enum Piece<R> {
    Bytes(Vec<u8>),
    Buffer(R),
}

/// Bytes `[start, end)`, without a gap.
struct Block<R> {
    start: SeqNumber,
    end: SeqNumber,
    /// Each with when it came, or the last of it, where that is known.
    pieces: VecDeque<(Piece<R>, Option<Arrival>)>,
}

impl<R: RxBuffer> Block<R> {
    /// `lends`: nothing is copied, however small it is.
    fn append(&mut self, payload: RxPayload<'_, R>, at: Option<Arrival>, lends: bool) {
        self.end += payload.len();
        let lent = if lends { payload.held_head() } else { None };
        match lent {
            Some(lent) => self.pieces.push_back((Piece::Buffer(lent), at)),
            None => self.append_bytes(payload.head, at),
        }
        match payload.body {
            Some(body) if body.len() <= COPY_BREAK && !lends => {
                let mut copy = [0; COPY_BREAK];
                let copy = &mut copy[..body.len()];
                body.copy_to(0, copy);
                self.append_bytes(copy, at);
            }
            Some(body) => self.pieces.push_back((Piece::Buffer(body), at)),
            None => {}
        }
    }

    fn append_bytes(&mut self, bytes: &[u8], at: Option<Arrival>) {
        if bytes.is_empty() {
            return;
        }
        match self.pieces.back_mut() {
            Some((Piece::Bytes(last), time)) if last.len() + bytes.len() <= PIECE_BYTES_MAX => {
                last.extend_from_slice(bytes);
                *time = at;
            }
            _ => self.pieces.push_back((Piece::Bytes(bytes.to_vec()), at)),
        }
    }
}

/// The out-of-order queue as a snapshot has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// Where the blocks lie: in order, disjoint, not adjacent, none empty.
    pub(super) blocks: Vec<SackBlock>,
    /// What is to be reported of them: see [`Reassembly`].
    recent: Vec<SackBlock>,
    newest: Option<SackBlock>,
    dropped: Option<SackBlock>,
    duplicate: Option<SackBlock>,
    pub(super) fin: Option<SeqNumber>,
}

impl Held {
    /// What it consists of.
    pub(super) fn walk(&mut self, fields: &mut impl Fields) -> Result<(), SnapshotError> {
        let Self { blocks, recent, newest, dropped, duplicate, fin } = self;
        fields.ranges(blocks, BLOCKS_MAX)?;
        fields.ranges(recent, 4)?;
        for one in [newest, dropped, duplicate] {
            fields.option(one, |fields, range| fields.range(range))?;
        }
        fields.option(fin, |fields, number| fields.number(number))
    }

    /// Bytes of the blocks.
    pub(super) fn len(&self) -> usize {
        self.blocks.iter().map(|block| block.end.since(block.start)).sum()
    }

    /// Whether no bytes are in it.
    pub(super) fn is_bare(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Whether it can lie in the window `(nxt, adv]`.
    pub(super) fn is_within(&self, nxt: SeqNumber, adv: SeqNumber) -> bool {
        let mut behind = nxt;
        let in_order = self.blocks.iter().all(|block| {
            let fits = block.start.gt(behind) && block.end.gt(block.start) && block.end.le(adv);
            behind = block.end;
            fits
        });
        // What is reported need not be held any more; a range it must be.
        let mut reported = self.recent.iter().chain(&self.newest).chain(&self.dropped).chain(&self.duplicate);
        in_order && reported.all(|range| range.start.lt(range.end)) && self.fin.is_none_or(|fin| fin.gt(nxt) && fin.ge(behind))
    }
}

/// The out-of-order queue. Its bytes are bounded by the receive window, since the caller trims segments to it.
pub(super) struct Reassembly<R> {
    /// Invariant: in order, disjoint, not adjacent, none empty.
    blocks: VecDeque<Block<R>>,
    /// The blocks that changed last, most recent first (RFC 2018 s4).
    recent: ArrayVec<SackBlock, 4>,
    /// The segment that arrived last, if it was taken in here.
    newest: Option<SackBlock>,
    /// The segment that arrived last, if it was dropped: it is reported all the same (RFC 2018 s8).
    dropped: Option<SackBlock>,
    /// What arrived twice, until it is reported (RFC 2883).
    duplicate: Option<SackBlock>,
    /// Where the peer's stream ends, if its FIN came early.
    pub(super) fin: Option<SeqNumber>,
    /// As the receive queue that the bytes will go to: they stay where the device put them.
    pub(super) lends: bool,
    pub(super) mutation: Mutation,
}

impl<R: RxBuffer> Reassembly<R> {
    pub(super) fn new() -> Self {
        let (blocks, recent, mutation) = (VecDeque::new(), ArrayVec::new(), Mutation::HEALTHY);
        Self { blocks, recent, newest: None, dropped: None, duplicate: None, fin: None, lends: false, mutation }
    }

    /// Whether nothing is kept and nothing is left to report.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.dropped.is_none() && self.duplicate.is_none() && self.fin.is_none()
    }

    /// Whether there is a gap before something that arrived.
    pub(super) fn has_gap(&self) -> bool {
        !self.blocks.is_empty() || self.dropped.is_some() || self.fin.is_some()
    }

    /// Whether any bytes are kept.
    pub(super) fn has_bytes(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// Drops all bytes that are kept, though they may have been reported. Where the stream ends is remembered: that takes no room.
    ///
    /// RFC 2018 s8: "The first SACK block MUST reflect the newest segment. Even if the newest segment is going to be discarded […] Except for
    /// the newest segment, all SACK blocks MUST NOT report any old data which is no longer actually held by the receiver."
    pub(super) fn prune(&mut self) {
        self.blocks.clear();
        if !self.mutation.is(Mutant::PrunedStillReported) {
            self.recent.clear();
        }
        self.dropped = self.newest.take();
    }

    /// Whether something arrived twice and is to be reported.
    pub(super) fn has_duplicate(&self) -> bool {
        self.duplicate.is_some()
    }

    /// Remembers to report `[start, end)` as received twice. It arrived last: what was dropped before is not the newest segment any more.
    pub(super) fn note_duplicate(&mut self, start: SeqNumber, end: SeqNumber) {
        (self.newest, self.dropped) = (None, None);
        if start.lt(end) {
            self.duplicate = Some(SackBlock { start, end });
        }
    }

    /// The duplicate was reported.
    pub(super) fn duplicate_reported(&mut self) {
        self.duplicate = None;
    }

    /// Keeps the parts of `payload`, which begins at `seq` and came at that time, that aren't there yet.
    pub(super) fn insert(&mut self, seq: SeqNumber, mut payload: RxPayload<'_, R>, arrival: Option<Arrival>) {
        let end = seq + payload.len();
        (self.newest, self.dropped) = (None, None);
        let mut at = seq;
        let mut covered = true;
        while at.lt(end) {
            let index = self.blocks.partition_point(|block| block.end.le(at));
            let part_end = match self.blocks.get(index) {
                Some(block) if block.start.le(at) => {
                    let skip = block.end.min(end);
                    payload.split_to(skip.since(at));
                    at = skip;
                    continue;
                }
                Some(block) => block.start.min(end),
                None => end,
            };
            covered = false;
            if !self.put(index, at, payload.split_to(part_end.since(at)), arrival) {
                return;
            }
            at = part_end;
            if at.lt(end) && self.mutation.is(Mutant::TailBehindHeldLost) {
                break;
            }
        }
        if covered && !self.mutation.is(Mutant::NoDsackForHeldBytes) {
            self.note_duplicate(seq, end);
        }
        self.newest = seq.lt(end).then_some(SackBlock { start: seq, end });
        self.note_recent(seq);
    }

    /// Puts bytes that no block has before block `index`. `false`: no room for another block.
    fn put(&mut self, index: usize, at: SeqNumber, payload: RxPayload<'_, R>, arrival: Option<Arrival>) -> bool {
        let index = match index.checked_sub(1) {
            Some(before) if self.blocks[before].end == at => {
                self.blocks[before].append(payload, arrival, self.lends);
                before
            }
            _ => {
                let most = if self.mutation.is(Mutant::OneBlockKept) { 1 } else { BLOCKS_MAX };
                if self.blocks.len() >= most {
                    return false;
                }
                let mut block = Block { start: at, end: at, pieces: VecDeque::new() };
                block.append(payload, arrival, self.lends);
                self.blocks.insert(index, block);
                index
            }
        };
        let joins = !self.mutation.is(Mutant::BlocksNotJoined)
            && self.blocks.get(index + 1).is_some_and(|next| next.start == self.blocks[index].end);
        if joins && let Some(mut next) = self.blocks.remove(index + 1) {
            let block = &mut self.blocks[index];
            block.end = next.end;
            block.pieces.append(&mut next.pieces);
        }
        true
    }

    /// The block around `seq` changed last.
    fn note_recent(&mut self, seq: SeqNumber) {
        let index = self.blocks.partition_point(|block| block.end.le(seq));
        let Some(block) = self.blocks.get(index) else { return };
        let block = match self.mutation.is(Mutant::SackNamesSegment) {
            true => self.newest.unwrap_or(SackBlock { start: block.start, end: block.end }),
            false => SackBlock { start: block.start, end: block.end },
        };
        let repeats = self.mutation.is(Mutant::SackRepeatsSubsets);
        self.recent.retain(|old| repeats || old.start.lt(block.start) || old.end.gt(block.end));
        self.recent.truncate(3);
        self.recent.insert(0, block);
    }

    /// Moves what follows `rcv_nxt` without a gap to `queue`, and gives the new `rcv_nxt`.
    pub(super) fn drain(&mut self, mut rcv_nxt: SeqNumber, queue: &mut RecvQueue<R>) -> SeqNumber {
        (self.newest, self.dropped) = (None, None);
        // RFC 2883 s4, (2): "Each duplicate contiguous sequence of data received is reported in at most one D-SACK block": of what fills a gap and has several
        // that were held already, the first, as there is room for one (s4.2.2).
        if let Some(block) = self.blocks.front().filter(|block| block.start.lt(rcv_nxt))
            && self.duplicate.is_none()
        {
            self.duplicate = Some(SackBlock { start: block.start, end: block.end.min(rcv_nxt) });
        }
        while self.blocks.front().is_some_and(|block| block.start.le(rcv_nxt)) {
            let Some(block) = self.blocks.pop_front() else { break };
            let mut skip = rcv_nxt.since(block.start);
            for (piece, arrival) in block.pieces {
                match piece {
                    Piece::Bytes(bytes) => {
                        let from = skip.min(bytes.len());
                        skip -= from;
                        if from < bytes.len() {
                            queue.push_bytes(&bytes[from..], arrival);
                        }
                    }
                    Piece::Buffer(buffer) => {
                        let from = skip.min(buffer.len());
                        skip -= from;
                        let rest = buffer.len() - from;
                        queue.push_buffer(if from == 0 { buffer } else { buffer.slice(from, rest) }, arrival);
                    }
                }
            }
            rcv_nxt = if self.mutation.is(Mutant::DrainStepsBack) { block.end } else { rcv_nxt.max(block.end) };
        }
        if !self.mutation.is(Mutant::SackOfAcknowledged) {
            self.recent.retain(|block| block.end.gt(rcv_nxt));
        }
        rcv_nxt
    }

    /// The blocks to report: first a duplicate (RFC 2883 s4), then the most recent ones.
    pub(super) fn sack(&self) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        for block in self.duplicate.iter().chain(&self.dropped).chain(&self.recent) {
            blocks.push(*block);
        }
        blocks
    }

    /// For a snapshot: where the blocks lie and what is to be reported, and the blocks' bytes, one behind the other.
    pub(super) fn written(&self) -> (Held, Vec<u8>) {
        // How the bytes lie in pieces is the device's, and how they come from now on; so is whether they are lent.
        let Self { blocks, recent, newest, dropped, duplicate, fin, lends: _, mutation: _ } = self;
        let mut bytes = Vec::new();
        for (piece, _) in blocks.iter().flat_map(|block| &block.pieces) {
            match piece {
                Piece::Bytes(copied) => bytes.extend_from_slice(copied),
                Piece::Buffer(buffer) => {
                    let at = bytes.len();
                    bytes.resize(at + buffer.len(), 0);
                    buffer.copy_to(0, &mut bytes[at..]);
                }
            }
        }
        let held = Held {
            blocks: blocks.iter().map(|block| SackBlock { start: block.start, end: block.end }).collect(),
            recent: recent.to_vec(),
            newest: *newest,
            dropped: *dropped,
            duplicate: *duplicate,
            fin: *fin,
        };
        (held, bytes)
    }

    /// What [`Reassembly::written`] gave. `bytes` has as many as the blocks.
    pub(super) fn resume(held: &Held, mut bytes: &[u8]) -> Self {
        let Held { blocks, recent, newest, dropped, duplicate, fin } = held;
        let mut reassembly = Self::new();
        for &SackBlock { start, end } in blocks {
            let Some((its, rest)) = bytes.split_at_checked(end.since(start)) else { break };
            bytes = rest;
            let mut block = Block { start, end, pieces: VecDeque::new() };
            its.chunks(PIECE_BYTES_MAX).for_each(|piece| block.append_bytes(piece, None));
            reassembly.blocks.push_back(block);
        }
        reassembly.recent = recent.iter().copied().take(4).collect();
        (reassembly.newest, reassembly.dropped, reassembly.duplicate, reassembly.fin) = (*newest, *dropped, *duplicate, *fin);
        reassembly
    }

    /// How many separate ranges are kept.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn block_count(&self) -> usize {
        self.blocks.len()
    }
}
