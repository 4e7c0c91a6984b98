//! What the peer reported, and what was noted of what was sent, beside what is known of each byte.

use core::time::Duration;

use super::Bytes;
use crate::tcp::records::{Arrived, Records};
use crate::tcp::rtt::Rtt;
use crate::tcp::scoreboard::{RANGES_MAX, Scoreboard};
use crate::time::Instant;
use crate::wire::tcp::{SackBlock, SeqNumber};

const FLIGHT_MAX: usize = 4096;
const STEPS_MAX: usize = 1500;

/// What is known of a byte in flight.
#[derive(Clone, Copy, Default)]
struct Byte {
    reported: bool,
    /// As the records have it: a report that came while there were too many of them is not in there.
    noted: bool,
    again: bool,
    /// It was reported once: from then on nobody has to know whether it was sent again.
    hazy: bool,
}

pub(crate) fn scoreboard(input: &[u8]) {
    let mut bytes = Bytes::new(input);
    let how = bytes.byte();
    let una = SeqNumber([0, 0xffff_fe00, 0x7fff_fe00, 77][usize::from(how & 3)]);
    let mss = [100, 1460, 88][usize::from(how >> 2) % 3];
    let mut story = Story { una, mss, ..Story::default() };
    for _ in 0..STEPS_MAX {
        if bytes.is_empty() {
            break;
        }
        story.now += Duration::from_millis(1);
        story.step(&mut bytes);
        story.check(&mut bytes);
    }
}

#[derive(Default)]
struct Story {
    now: Instant,
    mss: usize,
    una: SeqNumber,
    flight: Vec<Byte>,
    board: Scoreboard,
    records: Records,
    delivered: u64,
    /// More records than a model of bytes can follow.
    is_full: bool,
}

impl Story {
    fn nxt(&self) -> SeqNumber {
        self.una + self.flight.len()
    }

    /// A part of what is in flight, or a little more.
    fn part(&self, bytes: &mut Bytes<'_>, most: usize) -> (usize, usize) {
        let at = bytes.below(self.flight.len().max(1));
        (at, (at + bytes.len(most)).min(self.flight.len()))
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.byte() % 16 {
            0..=4 => self.send(bytes.len(3 * self.mss).min(FLIGHT_MAX - self.flight.len())),
            5..=9 => {
                let (at, end) = self.part(bytes, 500);
                self.report(at, end);
            }
            10 => self.report_nonsense(bytes),
            11 => {
                let (at, end) = self.part(bytes, self.mss);
                self.resend(at, end);
            }
            12 | 13 => {
                let len = bytes.len(self.flight.len());
                self.acknowledge(len);
            }
            14 => self.lose(bytes),
            _ => self.renege(),
        }
        self.is_full |= self.records.queue().len() >= 500;
        if self.flight.is_empty() {
            self.is_full = false;
            self.delivered = self.records.delivered();
        }
    }

    fn send(&mut self, len: usize) {
        if len == 0 {
            return;
        }
        self.records.push(self.now, (self.nxt(), self.nxt() + len), self.flight.len(), self.mss);
        self.flight.resize(self.flight.len() + len, Byte::default());
    }

    fn report(&mut self, at: usize, end: usize) {
        let range = (self.una + at, self.una + end);
        let told = self.board.add(SackBlock { start: range.0, end: range.1 }, self.una, self.nxt());
        let news = self.flight[at..end.max(at)].iter().any(|byte| !byte.reported);
        assert!(told == news || (news && self.board.ranges().len() >= RANGES_MAX), "{told}, and new is {news}");
        if !told {
            return;
        }
        self.flight[at..end].iter_mut().for_each(|byte| byte.reported = true);
        self.records.report(self.now, range, self.mss, &Rtt::new(), &mut Arrived::default());
        for byte in &mut self.flight[at..end] {
            self.delivered += u64::from(!byte.noted);
            (byte.noted, byte.hazy) = (true, true);
        }
    }

    /// A block that is not within what is in flight.
    fn report_nonsense(&mut self, bytes: &mut Bytes<'_>) {
        let (start, end) = (SeqNumber(self.una.0.wrapping_add(bytes.near())), SeqNumber(self.una.0.wrapping_add(bytes.near())));
        let len = self.flight.len() as u32;
        let (from, to) = (start.0.wrapping_sub(self.una.0), end.0.wrapping_sub(self.una.0));
        if from < to && to <= len {
            return self.report(from as usize, to as usize);
        }
        assert!(!self.board.add(SackBlock { start, end }, self.una, self.nxt()), "{start:?}..{end:?} was never sent");
    }

    fn resend(&mut self, at: usize, end: usize) {
        if at >= end {
            return;
        }
        self.records.resend(self.now, (self.una + at, self.una + end), self.flight.len(), self.mss);
        self.flight[at..end].iter_mut().for_each(|byte| byte.again = true);
    }

    fn acknowledge(&mut self, len: usize) {
        if len == 0 {
            return;
        }
        self.una += len;
        let mut arrived = Arrived::default();
        self.records.acknowledge(self.now, self.una, len, &Rtt::new(), &mut arrived);
        let _ = (arrived.timed(), arrived.latest(self.now));
        self.board.advance(self.una);
        self.delivered += self.flight.drain(..len).filter(|byte| !byte.noted).count() as u64;
        if self.flight.is_empty() {
            self.records.rest();
        }
    }

    fn lose(&mut self, bytes: &mut Bytes<'_>) {
        if self.flight.is_empty() {
            return;
        }
        self.records.look_from(self.una);
        let edge = self.una + (1 + bytes.below(self.flight.len()));
        for _ in 0..=self.records.queue().len() + 1 {
            let Some(record) = self.records.lose(edge, self.mss) else {
                assert!(self.records.lost_bytes() <= self.flight.len());
                return;
            };
            assert!(!record.reported && record.start.lt(edge), "{record:?} is lost before {edge:?}");
        }
        panic!("the same is lost again and again");
    }

    fn renege(&mut self) {
        self.board.clear();
        self.records.forget_reports();
        self.flight.iter_mut().for_each(|byte| (byte.reported, byte.noted) = (false, false));
    }

    fn check(&mut self, bytes: &mut Bytes<'_>) {
        self.check_board(bytes);
        self.check_records();
    }

    fn check_board(&self, bytes: &mut Bytes<'_>) {
        let mut told = vec![false; self.flight.len()];
        let ranges = self.board.ranges();
        assert!(ranges.len() <= RANGES_MAX && ranges.windows(2).all(|two| two[0].end.lt(two[1].start)), "{ranges:?}");
        for range in ranges {
            told[range.start.since(self.una)..range.end.since(self.una)].fill(true);
        }
        let reported: Vec<bool> = self.flight.iter().map(|byte| byte.reported).collect();
        assert!(told == reported, "what is reported");
        assert_eq!(self.board.bytes(), reported.iter().filter(|is| **is).count());
        assert_eq!(self.board.is_empty(), self.board.first().is_none());
        let at = bytes.below(self.flight.len() + 1);
        let (from, to) = (self.una + at, self.nxt());
        let holes = reported[at..].iter().filter(|is| !**is).count();
        assert_eq!(self.board.hole_bytes(from, to), holes, "bytes in holes");
        let hole = reported[at..].iter().position(|is| !is).map(|start| {
            let len = reported[at + start..].iter().position(|is| *is).unwrap_or(self.flight.len() - at - start);
            (from + start, from + (start + len))
        });
        assert_eq!(self.board.next_hole(from, to), hole, "the first hole");
        // RFC 6675 s4: more than two segments' worth of bytes are above it.
        if let Some(edge) = self.board.loss_edge(self.mss) {
            let above = reported[edge.since(self.una)..].iter().filter(|is| **is).count();
            assert!(above > 2 * self.mss, "{above} bytes are above the edge");
        } else {
            assert!(self.board.bytes() <= 2 * self.mss);
        }
        let longest = ranges.iter().map(|range| range.end.since(range.start)).max().unwrap_or(0);
        assert!(longest == 0 || self.board.has_range_of(longest) && !self.board.has_range_of(longest + 1));
    }

    fn check_records(&self) {
        let queue = self.records.queue();
        assert!(queue.len() <= Records::most(FLIGHT_MAX, self.mss), "{} records", queue.len());
        assert!(self.records.written().fits(self.una, self.nxt()), "{:?}", self.records);
        let mut next = self.una;
        for record in &queue {
            assert_eq!(record.start, next, "no byte is left out");
            next = record.end;
            if self.is_full {
                continue;
            }
            let (at, end) = (record.start.since(self.una), record.end.since(self.una));
            for byte in &self.flight[at..end] {
                assert_eq!(record.reported, byte.noted, "{record:?}");
                assert!(byte.hazy || record.again == byte.again, "{record:?}");
            }
        }
        assert_eq!(next, self.nxt(), "all that was sent has a record");
        if !self.is_full {
            assert_eq!(self.records.delivered(), self.delivered);
        }
    }
}
