//! Deciding before reading, of streams: the program is shown each segment's bytes, and lets the reader have them, keeps them, or has seen enough. What it
//! keeps or drops, it has read; so it does that only where nothing waits before it.

use std::collections::VecDeque;

use ringway_stack::ring::{Decision, FlowId, Ring};

use crate::nic::SimQueues;
use crate::random::RandomStream;

/// Of a million connections of a ring that lends, so many get a receive filter with their first read.
const FILTERED_PPM: u32 = 125_000;
/// Of a million reads, so many are the first without it.
const ENOUGH_PPM: u32 = 10_000;

/// A stream with a receive filter.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// Bytes that were there before anybody decided, of which nothing is known.
    before: usize,
    /// What was admitted behind them and waits to be read.
    admitted: VecDeque<u8>,
}

impl Segments {
    /// Begins to filter what a stream receives, or does not.
    pub(super) fn draw(stream: &mut RandomStream, ring: &mut Ring<SimQueues>, socket: FlowId) -> Option<Self> {
        if !stream.chance_ppm(FILTERED_PPM) || ring.set_recv_filter(socket, true).is_err() {
            return None;
        }
        Some(Self { before: ring.info(socket).map_or(0, |info| info.recv_queue), admitted: VecDeque::new() })
    }

    /// Whether the program has seen enough; the rest is the reader's.
    pub(super) fn ends(stream: &mut RandomStream, ring: &mut Ring<SimQueues>, socket: FlowId) -> bool {
        stream.chance_ppm(ENOUGH_PPM) && ring.set_recv_filter(socket, false).is_ok()
    }

    /// What is to become of the candidate. `fits`: who drops or keeps it can say that it was read, all of it.
    pub(super) fn decision(&self, stream: &mut RandomStream, fits: bool) -> Option<Decision> {
        let waits = self.before > 0 || !self.admitted.is_empty();
        match stream.below(4) {
            2 | 3 if waits => None,
            2 if fits => Some(Decision::Drop),
            3 if fits => Some(Decision::Hold),
            _ => Some(Decision::Admit),
        }
    }

    pub(super) fn admit(&mut self, bytes: Vec<u8>) {
        self.admitted.extend(bytes);
    }

    /// These bytes were read, or the stream's end if there are none: what is wrong with that. `undecided`: something waits for a decision.
    pub(super) fn misread(&mut self, read: &[u8], undecided: bool) -> Option<String> {
        let known = &read[self.before.min(read.len())..];
        if read.is_empty() && (undecided || self.before > 0 || !self.admitted.is_empty()) {
            return Some("the end of a stream was read before what waits for its reader, or for a decision".to_owned());
        }
        self.before -= read.len() - known.len();
        let admitted = self.admitted.len();
        if known.len() > admitted {
            return Some(format!("{} bytes of a stream were read; {admitted} were admitted", known.len()));
        }
        let expected: Vec<u8> = self.admitted.drain(..known.len()).collect();
        (expected != known).then(|| format!("{} bytes of a stream were read, which are not those that were admitted", known.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_admitted_is_read_in_order_and_before_the_end() {
        let mut filter = Segments { before: 2, admitted: b"admitted".iter().copied().collect() };
        assert_eq!(filter.misread(b"??adm", true), None);
        assert!(filter.misread(b"", false).is_some());
        assert_eq!(filter.misread(b"itt", true), None);
        assert!(filter.misread(b"de", false).is_some());
        assert!(filter.misread(b"beyond", false).is_some());
        assert!(filter.misread(b"", true).is_some());
        assert_eq!(filter.misread(b"", false), None);
    }
}
