//! What went over the wire, and what became of it: from this follows whether an end that gave up had to.

use crate::device::messages::Psn;
use crate::roce::mad::{self, Mad, Message};
use crate::roce::packet::datagram::Datagram;
use crate::roce::packet::{Body, NakCode, Packet, Syndrome};
use crate::time::Instant;

/// A request is sent once and repeated seven times (RDMA-CM's retry_count).
const SENDS: usize = 8;

#[derive(Clone, Copy, Debug)]
enum What {
    Request {
        psn: Psn,
        wants_answer: bool,
    },
    Answer {
        psn: Psn,
        syndrome: Syndrome,
    },
    /// DREQ.
    Disconnect,
    Other,
}

/// A packet.
#[derive(Debug)]
struct Sent {
    at: Instant,
    from: usize,
    what: What,
    /// When copies arrived that were not damaged.
    arrived: Vec<Instant>,
}

/// All packets of one connection, and when its queue pairs ended.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) qps: [u32; 2],
    packets: Vec<Sent>,
    died: [Option<Instant>; 2],
}

impl Record {
    pub(super) const fn new(qps: [u32; 2]) -> Self {
        Self { qps, packets: Vec::new(), died: [None; 2] }
    }

    /// `end` sent a packet, of which these copies arrive.
    pub(super) fn sent<'a>(&mut self, at: Instant, end: usize, bytes: &[u8], copies: impl Iterator<Item = (Instant, &'a [u8])>) {
        let what = Datagram::parse(bytes).map_or(What::Other, |datagram| self.what(end, &datagram.packet));
        let arrived = copies.filter(|(_, copy)| Datagram::parse(copy).is_ok()).map(|(at, _)| at).collect();
        self.packets.push(Sent { at, from: end, what, arrived });
    }

    /// The queue pair of `end` is in the error state, or gone.
    pub(super) fn is_dead(&mut self, now: Instant, end: usize) {
        self.died[end].get_or_insert(now);
    }

    fn what(&self, end: usize, packet: &Packet<'_>) -> What {
        let header = &packet.header;
        match header.body {
            Body::Datagram(..) => {
                let mad = packet.payload.first_chunk::<{ mad::LEN }>().and_then(|bytes| Mad::parse(bytes).ok());
                if mad.is_some_and(|mad| matches!(mad.message, Message::DisconnectRequest(_))) { What::Disconnect } else { What::Other }
            }
            _ if header.dest_qp != self.qps[1 - end] => What::Other,
            Body::Acknowledge(aeth) => What::Answer { psn: header.psn, syndrome: aeth.syndrome },
            // (There are neither reads nor atomics.)
            _ => What::Request { psn: header.psn, wants_answer: header.ack_request },
        }
    }

    /// Holds against what went over the wire that `end` gave up: it sent its oldest request as often as it is to, nothing that it heard meanwhile says that the
    /// request has come, and whenever its peer had to answer, it did. A peer that was gone by then had given up for the same reasons, and nothing that it said
    /// of that by connection management arrived. (One that just closes has all that it sent acknowledged first: who acknowledged that waits for nothing.)
    pub(super) fn explain(&self, end: usize) -> Result<(), String> {
        let peer = 1 - end;
        let died = self.died[end].ok_or("its queue pair stands")?;
        let (oldest, since, is_sent_before) = self.oldest(end, died).ok_or("it has sent nothing")?;
        let sends = self.packets.iter().filter(|sent| sent.at <= died && sent.from == end && sent.is_request(oldest));
        let again = sends.filter(|sent| sent.at >= since).count();
        if again + usize::from(is_sent_before) < SENDS {
            return Err(format!("it sent its oldest request {again} times since it heard something"));
        }
        let alive_until = self.died[peer].unwrap_or(died).min(died);
        self.answers_were_sent(peer, alive_until)?;
        if self.died[peer].is_none_or(|gone| gone >= died) {
            return Ok(());
        }
        let mut ends = self.packets.iter().filter(|sent| sent.from == peer && matches!(sent.what, What::Disconnect));
        if ends.any(|sent| sent.arrived.iter().any(|at| *at < died)) {
            return Err("it was told that its peer has closed".into());
        }
        self.explain(peer).map_err(|why| format!("its peer was gone: {why}"))
    }

    /// The oldest request that was not acknowledged when its sender's queue pair ended; since when nothing was heard that says otherwise; and whether it was on its
    /// way by then.
    fn oldest(&self, end: usize, died: Instant) -> Option<(Psn, Instant, bool)> {
        let first = self.packets.iter().find_map(|sent| match sent.what {
            What::Request { psn, .. } if sent.from == end => Some((psn, sent.at)),
            _ => None,
        });
        let (mut oldest, mut since) = first?;
        let mut heard: Vec<(Instant, Psn, Syndrome)> = Vec::new();
        for sent in self.packets.iter().filter(|sent| sent.from != end) {
            if let What::Answer { psn, syndrome } = sent.what {
                heard.extend(sent.arrived.iter().filter(|at| **at < died).map(|at| (*at, psn, syndrome)));
            }
        }
        heard.sort_by_key(|(at, ..)| *at);
        let mut waits = false;
        for (at, psn, syndrome) in heard {
            let (next, is_progress) = match syndrome {
                Syndrome::Ack(_) => (psn + 1, false),
                Syndrome::RnrNak(_) => (psn, true),
                Syndrome::Nak(_) => (psn, false),
            };
            if oldest.lt(next) || oldest == next && is_progress {
                (oldest, since, waits) = (next, at, is_progress);
            }
        }
        let before = |sent: &&Sent| sent.from == end && sent.at < since && sent.is_request(oldest);
        Some((oldest, since, !waits && self.packets.iter().any(|sent| before(&sent))))
    }

    /// Until `until`, `end` answered all that asked for it.
    fn answers_were_sent(&self, end: usize, until: Instant) -> Result<(), String> {
        // Per time: what arrived comes before what is sent.
        let mut events: Vec<(Instant, bool, What)> = Vec::new();
        for sent in &self.packets {
            match sent.what {
                What::Answer { .. } if sent.from == end => events.push((sent.at, true, sent.what)),
                What::Request { .. } if sent.from != end => events.extend(sent.arrived.iter().map(|at| (*at, false, sent.what))),
                _ => {}
            }
        }
        events.retain(|(at, ..)| *at < until);
        events.sort_by_key(|(at, is_sent, _)| (*at, *is_sent));
        let first = self.packets.iter().find_map(|sent| match sent.what {
            What::Request { psn, .. } if sent.from != end => Some(psn),
            _ => None,
        });
        let Some(mut expected) = first else { return Ok(()) };
        let mut owed: Option<Instant> = None;
        for (at, _, what) in events {
            if owed.is_some_and(|since| since < at) {
                return Err(format!("end {end} did not answer what arrived at {owed:?}"));
            }
            match what {
                What::Request { psn, wants_answer } => {
                    let is_in_order = psn == expected;
                    expected = if is_in_order { psn + 1 } else { expected };
                    if wants_answer && (is_in_order || psn.lt(expected)) {
                        owed = Some(at);
                    }
                }
                What::Answer { psn, syndrome } => {
                    owed = None;
                    if matches!(syndrome, Syndrome::RnrNak(_) | Syndrome::Nak(NakCode::SequenceError)) {
                        expected = psn;
                    }
                }
                What::Disconnect | What::Other => {}
            }
        }
        Ok(())
    }
}

impl Sent {
    fn is_request(&self, number: Psn) -> bool {
        matches!(self.what, What::Request { psn, .. } if psn == number)
    }
}
