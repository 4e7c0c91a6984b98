//! Connections that leave both their rings for the kernels of their hosts, on a device whose peers hear nothing of the kernel beside it
//! ([`crate::device::Capabilities::leaves_at_both_ends`]): one end alone would be answered by a reset of the other host's kernel.
//!
//! Who has to leave takes the connection off its ring ([`Ring::detach_stream`]) and into its kernel, where it says nothing yet, and asks the other end to come as well
//! ([`Ring::tcp_ask_to_leave`]). That one ([`Ring::tcp_take_leaver`]) does the same, and asks in its turn: either's question tells the other that its kernel has the connection, so that the own one may speak,
//! and is answered. What each kernel goes on with is what its ring had, at whatever moment it left: what was on its way between the rings then is lost, as a network loses it, and sent again. If the other end
//! stays, or says nothing for [`ASKED_FOR`], the asker takes the connection back. A question of an asker that has done so, and that comes late, is a question nevertheless: whoever hears it asks the one whose ring has the
//! connection again, and speaks to nobody's kernel before that has answered: a copy of the question that it followed is no answer.
//!
//! What is said goes in segments of the connection without payload (`wire::tcp::Parting`), which may be lost, come twice or late like all segments. A question is repeated until it is answered, and answered each
//! time: by who has left for as long as [`REMEMBERED`].
//!
//! A process that is killed while its kernel says nothing yet leaves a kernel that never will, and the other end's waits for ever, if its program only reads. So if the process of the other end is gone within
//! [`REMEMBERED`] of a connection's leaving, whoever has the kernel's socket hears of it ([`Ring::tcp_take_bereft`]), to ask the other kernel whether it is still there.
//!
//! Whoever guesses a connection's numbers could have it leave. A question has to name numbers that its peer can have sent and can expect: in the window, and acknowledging nothing that was not sent nor less than
//! what was acknowledged before (RFC 5961 s5.2 takes less). An answer has to name the question's number, of 64 bits. What is neither changes nothing, and there is no more than one answer to a segment.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::Ring;
use super::arp::resolve;
use super::demux::FlowKey;
use super::handover::Handover;
use super::input::Packet;
use super::output::Envelope;
use super::types::{FlowId, NextHop};
use crate::device::{FiveTuple, Protocol, Queues};
use crate::error::Error;
use crate::flow::Readiness;
use crate::tcp::{Plausible, State};
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, Parting, SeqNumber, Word};

/// Ours, and the peer's.
type Ends = (SocketAddr, SocketAddr);

/// How long an asker waits for an answer.
pub const ASKED_FOR: Duration = Duration::from_secs(10);
/// The same of one that follows, whose peer waits for just that.
const FOLLOWED_FOR: Duration = Duration::from_secs(2);
/// How long who has left answers those who ask again.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Between two questions: at first, and at most. In between it doubles.
const AGAIN_MIN: Duration = Duration::from_millis(20);
const AGAIN_MAX: Duration = Duration::from_millis(500);
/// Most connections of which something is known here.
const PARTINGS_MAX: usize = 1024;

/// What became of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// None has come.
    Awaited,
    /// The other end's kernel has the connection.
    There,
    /// The other end stays on its ring, or knows nothing of the connection.
    Stays,
    /// It has said nothing for [`ASKED_FOR`].
    Silent,
    /// Its process is gone, or the device.
    Gone,
}

#[derive(Debug)]
enum Stage {
    /// We have left, say nothing, and ask: by ourselves, or because of a question of that number.
    Asks { number: u64, followed: Option<u64>, again_at: Instant, pause: Duration, until: Instant },
    /// We have asked, and that came of it.
    Answered(Answer),
    /// The peer has left, and asks; until then, if nobody hears it.
    Wanted { number: u64, until: Instant },
    /// Both have left.
    Left { until: Instant },
}

#[derive(Debug)]
struct Known {
    stage: Stage,
    plausible: Plausible,
    /// What we say of the connection.
    seq: SeqNumber,
    ack: SeqNumber,
    hop: NextHop,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Partings {
    known: BTreeMap<Ends, Known>,
    /// Connections whose peers have left.
    leavers: VecDeque<FlowId>,
    /// Connections that have left, and whose other ends' processes are gone since. (No more than are known at a time: they are taken as soon as it is seen that there are any.)
    bereft: Vec<Ends>,
    drawn: u64,
}

impl Partings {
    /// Makes room for one more. `false`: all that is known is under way.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.known.len() < PARTINGS_MAX {
            return true;
        }
        self.known.retain(|_, known| !matches!(known.stage, Stage::Left { until } | Stage::Wanted { until, .. } if until <= now));
        if self.known.len() >= PARTINGS_MAX {
            let left = |known: &Known| if let Stage::Left { until } = known.stage { Some(until) } else { None };
            let oldest = self.known.iter().filter_map(|(ends, known)| Some((left(known)?, *ends))).min();
            oldest.and_then(|(_, ends)| self.known.remove(&ends));
        }
        self.known.len() < PARTINGS_MAX
    }

    /// The number of the peer's question, if it has asked.
    fn question_of(&self, ends: Ends) -> Option<u64> {
        match self.known.get(&ends)?.stage {
            Stage::Wanted { number, .. } => Some(number),
            _ => None,
        }
    }

    /// Questions that are not answered yet are answered so, of the connections that `which` names; those that have left are bereft of their peers.
    pub(super) fn are_gone(&mut self, which: impl Fn(&FiveTuple) -> bool) {
        let Self { known, bereft, .. } = self;
        known.retain(|&(local, remote), known| {
            let is_awaited = matches!(known.stage, Stage::Asks { .. } | Stage::Left { .. });
            if !is_awaited || !which(&FiveTuple { protocol: Protocol::Tcp, local, remote: Some(remote) }) {
                return true;
            }
            if matches!(known.stage, Stage::Left { .. }) {
                bereft.push((local, remote));
                return false;
            }
            known.stage = Stage::Answered(Answer::Gone);
            true
        });
        bereft.truncate(PARTINGS_MAX);
    }
}

impl<Q: Queues> Ring<Q> {
    /// Asks the other end of a connection, which this ring has just given away ([`Ring::detach_stream`]), to leave its ring for its kernel: this end's kernel has the connection by now, and hears what that
    /// one says. What came of it, [`Ring::tcp_answer`] says. (What it sends to the ring meanwhile is to be kept: [`Ring::tcp_keep_late`].)
    ///
    /// # Errors
    /// [`Error::NoBuffers`]: too many are under way.
    pub fn tcp_ask_to_leave(&mut self, now: Instant, handover: &Handover<Q>) -> Result<(), Error> {
        if !self.partings.has_room(now) {
            return Err(Error::NoBuffers);
        }
        let ends = (handover.local(), handover.remote());
        let number = self.draw_number(now);
        let (plausible, seq, ack) = handover.numbers();
        let followed = self.partings.question_of(ends);
        let until = now + if followed.is_some() { FOLLOWED_FOR } else { ASKED_FOR };
        let stage = Stage::Asks { number, followed, again_at: now, pause: AGAIN_MIN, until };
        self.partings.known.insert(ends, Known { stage, plausible, seq, ack, hop: handover.hop() });
        self.tcp_answer(now, ends.0, ends.1);
        Ok(())
    }

    /// What became of the question to the peer of a connection between these addresses (ours, the peer's). To be called now and then, whether something has come or not: it asks again when that is due.
    pub fn tcp_answer(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) -> Answer {
        let Some(known) = self.partings.known.get_mut(&(local, remote)) else { return Answer::Silent };
        match &mut known.stage {
            Stage::Answered(answer) => *answer,
            Stage::Asks { until, .. } if *until <= now => {
                known.stage = Stage::Answered(Answer::Silent);
                Answer::Silent
            }
            Stage::Asks { number, again_at, pause, .. } => {
                if *again_at <= now {
                    let said = Parting { word: Word::Leave, number: *number };
                    (*again_at, *pause) = (now + *pause, (*pause * 2).min(AGAIN_MAX));
                    self.say(now, (local, remote), said);
                }
                Answer::Awaited
            }
            Stage::Wanted { .. } | Stage::Left { .. } => Answer::There,
        }
    }

    /// The next connection whose peer has left its ring, be it the program's or closed: it is to follow, by a question of its own ([`Ring::tcp_ask_to_leave`]), or stays
    /// ([`Ring::tcp_has_parted`]).
    pub fn tcp_take_leaver(&mut self) -> Option<FlowId> {
        self.partings.leavers.pop_front()
    }

    /// Whether there is one.
    pub fn has_leavers(&self) -> bool {
        !self.partings.leavers.is_empty()
    }

    /// Connections (our address, the peer's) that have left for the kernels a short while ago, and whose other ends' processes are gone: theirs may have been killed before its kernel spoke, which then says
    /// nothing, ever. (Nobody else's answer is forgotten by that: who is gone asks no more.)
    pub fn tcp_take_bereft(&mut self) -> Vec<(SocketAddr, SocketAddr)> {
        core::mem::take(&mut self.partings.bereft)
    }

    /// Whether there are any.
    pub fn has_bereft(&self) -> bool {
        !self.partings.bereft.is_empty()
    }

    /// A connection between these addresses (ours, the peer's) has left for our kernel, for good, or stays with this ring: who asks is told.
    pub fn tcp_has_parted(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr, has_left: bool) {
        let ends = (local, remote);
        let Some(known) = self.partings.known.get_mut(&ends) else { return };
        let asked = if let Stage::Wanted { number, .. } = known.stage { Some(number) } else { None };
        known.stage = Stage::Left { until: now + REMEMBERED };
        debug_assert!(asked.is_none() || !has_left, "who follows asks first");
        if let Some(number) = asked {
            self.say(now, ends, Parting { word: Word::Stay, number });
        }
        if !has_left {
            self.partings.known.remove(&ends);
        }
        self.output.flush(&mut self.queues);
    }

    /// A connection between these addresses (ours, the peer's) does not leave: its peer is told, if it has asked.
    pub fn tcp_stays(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr) {
        if self.partings.question_of((local, remote)).is_some() {
            self.tcp_has_parted(now, local, remote, false);
        }
    }

    /// A number that nobody can foretell.
    fn draw_number(&mut self, now: Instant) -> u64 {
        let mut seed = self.secret;
        self.partings.drawn += 1;
        let words = [u64::MAX, self.partings.drawn, now.as_nanos()];
        for (byte, by) in seed.iter_mut().zip(words.iter().flat_map(|word| word.to_le_bytes())) {
            *byte ^= by;
        }
        ChaCha8Rng::from_seed(seed).next_u64()
    }

    /// Says something of a connection that is known here. (What the device refuses is lost: it is said again.)
    fn say(&mut self, now: Instant, (local, remote): Ends, said: Parting) {
        let Some(known) = self.partings.known.get(&(local, remote)) else { return };
        let (seq, ack) = (known.seq, known.ack);
        let mac = match known.hop {
            NextHop::Mac(mac) => Some(mac),
            NextHop::Pending => None,
            NextHop::Neighbour(ip) => resolve(now, (local.ip(), ip), &mut self.neighbours, &mut self.output, &mut self.queues),
        };
        let Some(mac) = mac else { return };
        let to = Envelope { src: local.ip(), dst: remote.ip(), mac, ttl: 64, tos: 0 };
        self.say_to(&to, (local.port(), remote.port()), (seq, ack), said);
        self.output.flush(&mut self.queues);
    }

    fn say_to(&mut self, to: &Envelope, (src_port, dst_port): (u16, u16), (seq, ack): (SeqNumber, SeqNumber), said: Parting) {
        // (Below the window, as a keepalive is: who does not know what it means answers by an acknowledgment, and takes nothing from it. RFC 9293 s3.8.4.)
        let header = Header { src_port, dst_port, seq: seq - 1, ack, flags: Flags::ACK, ..Header::default() };
        if self.output.tcp_with_options(&mut self.queues, to, &header, &said.emit()).is_err() {
            self.output.counters.tx_drops += 1;
        }
    }

    /// The peer of a connection, or somebody in its name, speaks of leaving.
    #[cold]
    #[inline(never)]
    pub(super) fn on_parting(&mut self, packet: &Packet<'_, Q::Rx>, header: &Header, said: Parting) -> Option<()> {
        let (remote, local) = packet.header.ends(header.src_port, header.dst_port);
        if header.flags != Flags::ACK || packet.was_for_many() {
            return None;
        }
        let numbers = (header.seq + 1usize, header.ack);
        match self.demux.exact(FlowKey::new(Protocol::Tcp, local, remote)) {
            Some(index) => self.on_parting_of_stream(index, packet, numbers, said),
            None => self.on_parting_of_left((local, remote), packet, numbers, said),
        }
    }

    /// Of one that is on this ring. (That the peer is there already may be what it says to a question of ours that we gave up.)
    fn on_parting_of_stream(
        &mut self,
        index: u32,
        packet: &Packet<'_, Q::Rx>,
        numbers: (SeqNumber, SeqNumber),
        said: Parting,
    ) -> Option<()> {
        let (id, now) = (self.slots.id_at(index), self.polled_at);
        let stream = self.slots.stream_at(index)?;
        let (ends, hop, state) = ((stream.local, stream.remote), stream.hop, stream.connection.state());
        let (plausible, is_accepted) = (stream.connection.plausible(), stream.parent.is_none());
        let (seq, ack) = (stream.connection.sent_up_to(), stream.connection.received_up_to());
        self.slots.rest(index);
        // Who is not accepted yet has nobody who could take it elsewhere: the question comes again.
        if said.word == Word::Stay || !state.is_synchronized() || !is_accepted || !plausible.includes(numbers) {
            return None;
        }
        if state == State::TimeWait {
            self.say_to(
                &Self::envelope_back(packet),
                (ends.0.port(), ends.1.port()),
                (numbers.1, numbers.0),
                Parting { word: Word::Stay, ..said },
            );
            return Some(());
        }
        if !self.partings.known.contains_key(&ends) && !self.partings.has_room(now) {
            return None;
        }
        let stage = Stage::Wanted { number: said.number, until: now + ASKED_FOR };
        self.partings.known.insert(ends, Known { stage, plausible, seq, ack, hop });
        if !self.partings.leavers.contains(&id) {
            self.partings.leavers.push_back(id);
        }
        self.raise(index, Readiness::PRI);
        Some(())
    }

    /// Of one that is not, or no more.
    fn on_parting_of_left(&mut self, ends: Ends, packet: &Packet<'_, Q::Rx>, numbers: (SeqNumber, SeqNumber), said: Parting) -> Option<()> {
        let is_asked = said.word == Word::Leave;
        let answer = match self.partings.known.get_mut(&ends) {
            Some(known) => {
                let is_plausible = known.plausible.includes(numbers);
                match (&known.stage, said.word) {
                    (Stage::Asks { number, .. }, Word::There) if *number == said.number => known.stage = Stage::Answered(Answer::There),
                    (Stage::Asks { number, .. }, Word::Stay) if *number == said.number => known.stage = Stage::Answered(Answer::Stays),
                    // Both ask: either has left. (One may have taken the connection back since it asked what was followed.)
                    (Stage::Asks { followed, .. }, Word::Leave) if is_plausible && *followed != Some(said.number) => {
                        known.stage = Stage::Answered(Answer::There);
                    }
                    _ => {}
                }
                (is_asked && is_plausible && matches!(known.stage, Stage::Answered(Answer::There) | Stage::Left { .. }))
                    .then_some(Word::There)
            }
            None => is_asked.then_some(Word::Stay),
        }?;
        let to = Self::envelope_back(packet);
        self.say_to(&to, (ends.0.port(), ends.1.port()), (numbers.1, numbers.0), Parting { word: answer, ..said });
        Some(())
    }
}

impl<Q: Queues> Handover<Q> {
    /// What its peer can have sent and can expect; what was sent last, and what is expected.
    fn numbers(&self) -> (Plausible, SeqNumber, SeqNumber) {
        let connection = &self.stream.connection;
        (connection.plausible(), connection.sent_up_to(), connection.received_up_to())
    }
}

#[cfg(test)]
mod tests;
