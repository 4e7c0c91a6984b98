//! One connection of a [`Stranger`](super::Stranger): how it opens, misbehaves, behaves and parts.

use core::time::Duration;

use ringway_stack::Instant;

use super::segment::{Arrived, Outgoing};
use crate::apps::{Pattern, Shared};
use crate::random::RandomStream;
use crate::segment::{ACK, FIN, PSH, RST, SYN};

const SYN_RETRY: Duration = Duration::from_millis(400);
const SYN_TRIES: u32 = 12;
/// Without news for so long, everything not acknowledged is sent again.
const RETRY: Duration = Duration::from_millis(300);
/// No visit takes longer.
const VISIT_MAX: Duration = Duration::from_secs(25);
/// Segments that are sent at once while it behaves.
const BURST: u32 = 8;

/// How a visit ends, once all moves were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goodbye {
    /// It sends the rest of its stream, ends it, and acknowledges the other one's.
    Fin,
    /// It sends a reset.
    Reset,
    /// It is not heard of again.
    Vanish,
}

/// What a visit is to be like.
#[derive(Clone, Copy, Debug)]
pub struct Visit {
    /// The stream that it sends, and its length.
    pub pattern: Pattern,
    /// Bytes of that stream.
    pub total: u64,
    /// The MSS that its SYN announces, if it does.
    pub mss: Option<u16>,
    /// Whether it agrees to SACK.
    pub sack: bool,
    /// Most bytes of payload in one of its segments; at least two.
    pub payload_max: u32,
    /// How many moves it makes that are out of order.
    pub moves: u32,
    /// The time between two moves.
    pub interval: Duration,
    /// How it parts.
    pub goodbye: Goodbye,
}

/// How far a visit got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visited {
    /// The connection was opened.
    pub opened: bool,
    /// All of the stream, and its end, were acknowledged.
    pub delivered: bool,
    /// The other side sent a reset.
    pub reset: bool,
    /// It is over.
    pub over: bool,
}

/// A visit under way.
#[derive(Debug)]
pub(super) struct Session {
    port: u16,
    visit: Visit,
    visited: Shared<Visited>,
    began_at: Instant,
    next_at: Instant,
    iss: u32,
    /// The other side's initial sequence number; `None`: no SYN-ACK has come.
    irs: Option<u32>,
    /// What the other side acknowledged, and when that changed last.
    una: u32,
    una_at: Instant,
    /// Behind what was sent in order.
    nxt: u32,
    /// The right edge of the other side's window.
    edge: u32,
    /// What is acknowledged: behind all that arrived in order. (The rest is not kept.)
    rcv_nxt: u32,
    /// The last segment that arrived out of order.
    beyond: Option<(u32, u32)>,
    peer_ended: bool,
    window: u16,
    tries: u32,
    moves: u32,
    /// The time until it repeats its last acknowledgment, while neither side has anything new.
    pause: Duration,
}

type Send<'a> = &'a mut dyn FnMut(&Outgoing<'_>);

impl Session {
    pub(super) fn new(now: Instant, port: u16, iss: u32, visit: Visit, visited: Shared<Visited>) -> Self {
        let first = iss.wrapping_add(1);
        Self {
            port,
            visit,
            visited,
            began_at: now,
            next_at: now,
            pause: visit.interval,
            iss,
            irs: None,
            una: first,
            una_at: now,
            nxt: first,
            edge: first,
            rcv_nxt: 0,
            beyond: None,
            peer_ended: false,
            window: u16::MAX,
            tries: 0,
            moves: 0,
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Takes in a segment of the other side's.
    pub(super) fn receive(&mut self, now: Instant, arrived: &Arrived) {
        if self.irs.is_none() && arrived.has(SYN | ACK) && arrived.ack == self.una {
            self.irs = Some(arrived.seq);
            self.rcv_nxt = arrived.seq.wrapping_add(1);
            self.visited.change(|v| v.opened = true);
            self.next_at = now;
        }
        // (A SYN-ACK of another connection, after a crash, is none of its business.)
        if self.irs.is_none() || arrived.has(SYN) && self.irs != Some(arrived.seq) {
            return;
        }
        if arrived.has(RST) {
            self.visited.change(|v| v.reset = true);
            return;
        }
        if distance(self.una, arrived.ack) > 0 {
            (self.una, self.una_at) = (arrived.ack, now);
            self.nxt = later(self.nxt, self.una);
        }
        self.edge = later(self.edge, arrived.ack.wrapping_add(u32::from(arrived.window)));
        self.pause = self.visit.interval;
        self.next_at = self.next_at.min(now + self.pause);
        let end = arrived.seq.wrapping_add(arrived.len);
        if distance(arrived.seq, self.rcv_nxt) < 0 {
            self.beyond = Some((arrived.seq, end)).filter(|_| arrived.len > 0);
            return;
        }
        self.rcv_nxt = later(self.rcv_nxt, end);
        if arrived.has(FIN) && end == self.rcv_nxt && !self.peer_ended {
            self.peer_ended = true;
            self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
        }
    }

    /// Does what is due. When the next thing is; `None`: it is over.
    pub(super) fn step(&mut self, now: Instant, dice: &mut RandomStream, send: Send<'_>) -> Option<Instant> {
        while self.next_at <= now {
            let late = now.since(self.began_at) > VISIT_MAX || self.visited.read().reset;
            let next = match self.irs {
                _ if late => None,
                None => self.open(now, send),
                Some(_) if self.moves < self.visit.moves => self.misbehave(now, dice, send),
                Some(_) => self.part(now, send),
            };
            let Some(next_at) = next else {
                self.visited.change(|v| v.over = true);
                return None;
            };
            self.next_at = next_at;
        }
        Some(self.next_at)
    }

    fn open(&mut self, now: Instant, send: Send<'_>) -> Option<Instant> {
        self.tries += 1;
        let mut options = Vec::new();
        if let Some(mss) = self.visit.mss {
            options.extend([2, 4]);
            options.extend(mss.to_be_bytes());
        }
        if self.visit.sack {
            options.extend([1, 1, 4, 2]);
        }
        send(&Outgoing { seq: self.iss, ack: 0, flags: SYN, window: self.window, options: &options, payload: &[] });
        (self.tries <= SYN_TRIES).then_some(now + SYN_RETRY)
    }

    /// One move that no stack of ours would make, or one that any would.
    fn misbehave(&mut self, now: Instant, dice: &mut RandomStream, send: Send<'_>) -> Option<Instant> {
        self.moves += 1;
        let room = distance(self.una, self.edge).max(0).unsigned_abs();
        let somewhere = |dice: &mut RandomStream, bound: u32| u32::try_from(dice.below(u64::from(bound))).unwrap_or(0);
        let len = 1 + somewhere(dice, self.visit.payload_max);
        let (una, edge, rcv_nxt, payload_max) = (self.una, self.edge, self.rcv_nxt, self.visit.payload_max);
        let far = somewhere(dice, 100_000);
        match dice.below(16) {
            // Across the right edge of the window, or beyond it.
            0 | 1 => {
                let reach = 1 + somewhere(dice, (payload_max - 1).min(room.max(1)));
                self.data(edge.wrapping_sub(reach), payload_max, ACK, send);
            }
            2 => self.data(edge.wrapping_add(far % 2_000), len, ACK, send),
            // Behind a gap; what was acknowledged once more; without an acknowledgment.
            3 | 4 => self.data(una.wrapping_add(1 + far % room.max(1)), len, ACK | PSH, send),
            5 => self.data(una.wrapping_sub(far % 3_000), len, ACK, send),
            6 => self.data(self.nxt, len, PSH, send),
            // Acknowledgments of what was never sent, of what is long gone, and three times the same.
            7 => self.bare(una, rcv_nxt.wrapping_add(1 + far), ACK, &[], send),
            8 => self.bare(una, rcv_nxt.wrapping_sub(far), ACK, &[], send),
            9 => (0..3).for_each(|_| self.bare(una, rcv_nxt, ACK, &[], send)),
            // Reports of what never came, or came and was not kept.
            10 if self.visit.sack => {
                let start = rcv_nxt.wrapping_add(1 + far % 20_000);
                let (start, end) = self.beyond.unwrap_or((start, start.wrapping_add(len)));
                self.bare(una, rcv_nxt, ACK, &sack(start, end), send);
            }
            11 => {
                self.window = dice.pick(&[0, 1, 100, 1460, 20_000, u16::MAX]);
                self.bare(una, rcv_nxt, ACK, &[], send);
            }
            // A reset, or a SYN, that is in the window but not where it belongs.
            12 => self.bare(una.wrapping_add(1 + far % room.max(2)), rcv_nxt, RST, &[], send),
            13 => self.bare(una.wrapping_add(far % room.max(1)), rcv_nxt, SYN | (u8::from(far % 2 == 0) * ACK), &[], send),
            // The end of its stream, before the rest of it.
            14 if room > 0 => self.data(self.end().wrapping_sub(len), len, ACK | FIN, send),
            _ => self.forward(send),
        }
        Some(now + self.visit.interval)
    }

    /// Ends the visit, properly or not.
    fn part(&mut self, now: Instant, send: Send<'_>) -> Option<Instant> {
        self.window = u16::MAX;
        match self.visit.goodbye {
            Goodbye::Vanish => return None,
            Goodbye::Reset => {
                self.bare(self.una, self.rcv_nxt, RST | ACK, &[], send);
                return None;
            }
            Goodbye::Fin => {}
        }
        if distance(self.end(), self.una) > 0 {
            let news = !self.visited.read().delivered;
            self.visited.change(|v| v.delivered = true);
            // Behind the end of the stream there is nothing: this is not to be believed (RFC 9293 s3.10.7.4).
            let ghost = Outgoing {
                seq: self.una,
                ack: self.rcv_nxt,
                flags: ACK,
                window: self.window,
                options: &[],
                payload: &[b'!'; 10][..if news { 10 } else { 0 }],
            };
            send(&ghost);
            return (!self.peer_ended).then_some(now + RETRY / 2);
        }
        if now.since(self.una_at) > RETRY {
            self.nxt = self.una;
            self.una_at = now;
        }
        let before = self.nxt;
        for _ in 0..BURST {
            self.forward(send);
        }
        if before == self.nxt {
            self.bare(self.nxt, self.rcv_nxt, ACK, &[], send);
            self.pause = (self.pause * 2).min(RETRY);
        } else {
            self.pause = self.visit.interval;
        }
        Some(now + self.pause)
    }

    /// Sends what comes next, if the window has room for it.
    fn forward(&mut self, send: Send<'_>) {
        let room = distance(self.nxt, self.edge).max(0).unsigned_abs().min(self.visit.payload_max);
        let left = distance(self.nxt, self.end());
        if left < 0 || room == 0 && left > 0 {
            return;
        }
        let len = left.unsigned_abs().min(room);
        let last = len == left.unsigned_abs();
        self.data(self.nxt, len, if last { ACK | FIN } else { ACK }, send);
        self.nxt = self.nxt.wrapping_add(len + u32::from(last));
    }

    /// Where its FIN is.
    fn end(&self) -> u32 {
        self.iss.wrapping_add(1).wrapping_add(u32::try_from(self.visit.total).unwrap_or(u32::MAX))
    }

    /// Sends at most `len` bytes of its stream from `seq` on: only what there is of it. A FIN is sent where it belongs, or not at all.
    fn data(&self, seq: u32, len: u32, flags: u8, send: Send<'_>) {
        let first = self.iss.wrapping_add(1);
        let seq = if distance(first, seq) < 0 { first } else { seq };
        let left = distance(seq, self.end());
        if left < 0 {
            return;
        }
        let len = len.min(left.unsigned_abs()).min(self.visit.payload_max);
        let flags = if len == left.unsigned_abs() { flags } else { flags & !FIN };
        let mut payload = vec![0; usize::try_from(len).unwrap_or(0)];
        self.visit.pattern.fill(u64::from(seq.wrapping_sub(first)), &mut payload);
        send(&Outgoing { seq, ack: self.rcv_nxt, flags, window: self.window, options: &[], payload: &payload });
    }

    fn bare(&self, seq: u32, ack: u32, flags: u8, options: &[u8], send: Send<'_>) {
        send(&Outgoing { seq, ack, flags, window: self.window, options, payload: &[] });
    }
}

/// One SACK block (RFC 2018 s3).
fn sack(start: u32, end: u32) -> [u8; 12] {
    let mut option = [1, 1, 5, 10, 0, 0, 0, 0, 0, 0, 0, 0];
    option[4..8].copy_from_slice(&start.to_be_bytes());
    option[8..].copy_from_slice(&end.to_be_bytes());
    option
}

/// How far `to` is ahead of `from` (RFC 9293 s3.4).
fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from).cast_signed()
}

fn later(a: u32, b: u32) -> u32 {
    if distance(a, b) > 0 { b } else { a }
}
