//! The out-of-order queue beside a map of bytes.

use super::peer::THEIRS;
use super::{Bytes, bytes_at};
use crate::tcp::RxPayload;
use crate::tcp::reassembly::{BLOCKS_MAX, Reassembly};
use crate::tcp::recv_queue::RecvQueue;
use crate::tcp::test_util::TestRx;
use crate::wire::tcp::SeqNumber;

/// Bytes of the window.
const WINDOW: usize = 4096;
const STEPS_MAX: usize = 2000;

pub(crate) fn reassembly(input: &[u8]) {
    let mut bytes = Bytes::new(input);
    let how = bytes.byte();
    let begin = SeqNumber([0, 0xffff_fc00, 0x7fff_fc00, 1000][usize::from(how & 3)]);
    let mut story = Story { nxt: begin, held: vec![false; WINDOW], queue: Reassembly::new(), reader: RecvQueue::new(), read: begin };
    story.queue.lends = how & 4 != 0;
    if how & 4 != 0 {
        story.reader.lend_from_now_on();
    }
    for _ in 0..STEPS_MAX {
        if bytes.is_empty() {
            break;
        }
        story.step(&mut bytes);
        story.check();
    }
}

struct Story {
    nxt: SeqNumber,
    /// Which of the bytes behind `nxt` have come.
    held: Vec<bool>,
    queue: Reassembly<TestRx>,
    reader: RecvQueue<TestRx>,
    /// Up to where the reader has read.
    read: SeqNumber,
}

impl Story {
    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.byte() % 16 {
            0..=9 => self.arrive_early(bytes),
            10 | 11 => self.arrive_in_order(bytes),
            12 => self.take_all(),
            13 => self.move_elsewhere(),
            14 => {
                self.queue.prune();
                self.held.fill(false);
            }
            _ => {
                let (start, len) = (self.nxt - bytes.below(300), bytes.below(300));
                self.queue.note_duplicate(start, start + len);
                assert!(len == 0 || self.queue.sack().as_slice()[0].start == start, "a duplicate is reported first");
                self.queue.duplicate_reported();
            }
        }
    }

    fn arrive_early(&mut self, bytes: &mut Bytes<'_>) {
        let at = 1 + bytes.short() as usize % (WINDOW - 1);
        let len = bytes.len(600).min(WINDOW - at);
        let payload = bytes_at(self.nxt + at, len, THEIRS);
        let (head, body) = payload.split_at(bytes.len(len));
        let body = (!body.is_empty()).then(|| TestRx::new(body));
        self.queue.insert(self.nxt + at, RxPayload { head, frame: None, body }, None);
        if len == 0 {
            return;
        }
        let told = self.told();
        let before = core::mem::replace(&mut self.held, told);
        let is_full = self.queue.block_count() >= BLOCKS_MAX;
        for (place, (had, has)) in before.iter().zip(&self.held).enumerate() {
            let came = (at..at + len).contains(&place);
            assert!(*has || !had, "a byte is forgotten");
            assert!(!*has || *had || came, "a byte that never came");
            assert!(*has || !came || is_full, "a byte is dropped, and there is room");
        }
    }

    fn arrive_in_order(&mut self, bytes: &mut Bytes<'_>) {
        let len = 1 + bytes.len(400);
        self.reader.push_bytes(&bytes_at(self.nxt, len, THEIRS), None);
        let behind = self.held.iter().skip(len).take_while(|held| **held).count();
        // (What is behind a part that was held as well comes with it.)
        let nxt = self.queue.drain(self.nxt + len, &mut self.reader);
        assert_eq!(nxt, self.nxt + len + behind, "up to the next gap");
        self.held.drain(..len + behind);
        self.held.resize(WINDOW, false);
        self.nxt = nxt;
    }

    fn take_all(&mut self) {
        let waits = self.reader.to_vec();
        assert_eq!(waits.len(), self.nxt.since(self.read));
        assert!(waits == bytes_at(self.read, waits.len(), THEIRS), "the stream's bytes, in order");
        let mut out = vec![0; waits.len()];
        assert_eq!(self.reader.read(&mut [std::io::IoSliceMut::new(&mut out)], false), out.len());
        assert!(out == waits, "what is read is what waits");
        self.read = self.nxt;
    }

    fn move_elsewhere(&mut self) {
        let (held, bytes) = self.queue.written();
        let lends = self.queue.lends;
        self.queue = Reassembly::resume(&held, &bytes);
        self.queue.lends = lends;
        assert_eq!(self.queue.written(), (held, bytes), "what was written is read the same");
    }

    /// What is held behind `nxt`, as the queue tells.
    fn told(&self) -> Vec<bool> {
        let (held, _) = self.queue.written();
        let mut told = vec![false; WINDOW];
        for block in &held.blocks {
            told[block.start.since(self.nxt)..block.end.since(self.nxt)].fill(true);
        }
        told
    }

    fn check(&self) {
        let (held, bytes) = self.queue.written();
        assert!(held.blocks.len() <= BLOCKS_MAX && held.blocks.len() == self.queue.block_count());
        assert!(held.is_within(self.nxt, self.nxt + WINDOW), "{held:?} behind {:?}", self.nxt);
        assert!(self.told() == self.held, "held is what came");
        let mut at = 0;
        for block in &held.blocks {
            let len = block.end.since(block.start);
            assert!(bytes[at..at + len] == bytes_at(block.start, len, THEIRS), "each byte in its place");
            at += len;
        }
        assert_eq!(at, bytes.len());
        assert!(self.queue.sack().as_slice().iter().all(|block| block.start.lt(block.end)));
    }
}
