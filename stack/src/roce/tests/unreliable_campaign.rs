//! Random messages by unreliable connections over a random network, seed by seed: packets are lost, doubled, late, out of order and damaged. What came to each end, in which
//! order, is written down, and a model says by that alone which messages are complete, and what each byte of memory is.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use super::campaign::{Dice, mark, network};
use super::pair::Side::{A, B};
use super::pair::{BASE, LATENCY, Options, Pair, REGION, Side, pattern, psn};
use crate::roce::memory::Access;
use crate::roce::packet::Body;
use crate::roce::packet::datagram::Datagram;
use crate::roce::psn::Psn;
use crate::roce::qp::{Mtu, State, Transport};
use crate::roce::work::{Completion, Opcode, SendOp, Status};
use crate::roce::{Dcqcn, Flaw};

/// How the region of each end is used.
const TARGET_LEN: usize = 24 << 10; // The peer writes here.
const RECEIVES: usize = 24 << 10; // Receives, one place each.
const RECEIVE_LEN: usize = 4 << 10;
const RECEIVE_PLACES: usize = 5;
const SOURCE: usize = 48 << 10; // What is sent; nobody writes.
const SOURCE_LEN: usize = 16 << 10;
/// Bytes of a region that peers may not write.
const PRIVATE: usize = 8 << 10;

/// A message that was posted.
struct Posted {
    /// Where it goes in the peer's region; `None`: into a receive.
    to: Option<usize>,
    immediate: Option<u32>,
    data: Vec<u8>,
    packets: u32,
    /// Whether the peer's memory may be written there.
    is_allowed: bool,
}

/// A receive that is complete: its number, and what came into it.
#[derive(Debug, PartialEq, Eq)]
struct Received {
    id: u64,
    opcode: Opcode,
    len: u32,
    immediate: Option<u32>,
}

/// One end, as the model has it.
struct Model {
    left: u64,
    posted: Vec<Posted>,
    completed: u64,
    /// Which message and packet each number is.
    numbers: BTreeMap<u32, (usize, u32)>,
    next_psn: Psn,
    /// The number of the packet that is sent next.
    next_sent: Psn,
    receives_posted: u64,
    receives_used: u64,
    /// The message of the peer's that is in hand, and the packet that it goes on with.
    in_hand: Option<(usize, u32)>,
    expected: VecDeque<Received>,
    memory: Vec<u8>,
    private: u32,
}

struct World {
    pair: Pair,
    dice: Dice,
    models: [Model; 2],
    mtu: usize,
    seed: u64,
    /// Messages that came whole, and messages that were in hand and were dropped.
    whole: usize,
    dropped: usize,
}

impl World {
    fn new(seed: u64, flaw: Flaw) -> Self {
        let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed ^ 0x0075_6e72_656c));
        let harsh = dice.chance(50);
        let mut options =
            Options { mtu: dice.pick(&Mtu::ALL), v6: dice.chance(50), depth: 8 + dice.below(20) as usize, ..Options::default() };
        options.tuning.flaw = flaw;
        let marks = if dice.chance(30) { dice.below(60) } else { 0 };
        options.tuning.dcqcn = (marks > 0).then(|| Dcqcn::new(1_000_000_000));
        let mut pair = Pair::of(&options, Transport::Uc);
        pair.arrivals = Some(Vec::new());
        pair.eager = dice.chance(50);
        let mut fate = network(seed, harsh, &mut dice);
        let mut others = Dice(ChaCha8Rng::seed_from_u64(seed ^ 0x6465_7163));
        pair.fate = Box::new(move |packet| {
            let mut packet = packet.clone();
            if others.chance(marks) {
                mark(&mut packet.bytes);
            }
            fate(&packet)
        });
        let models = [A, B].map(|side| {
            let end = pair.end(side);
            end.bytes(SOURCE, SOURCE_LEN).copy_from_slice(&pattern(side as u32, SOURCE_LEN));
            let private = end.hca.register(end.pd, BASE, vec![0x55; PRIVATE], Access::LOCAL_WRITE).unwrap();
            let memory = end.bytes(0, REGION).to_vec();
            Model {
                left: 10 + dice.below(50),
                posted: Vec::new(),
                completed: 0,
                numbers: BTreeMap::new(),
                next_psn: psn(side),
                next_sent: psn(side),
                receives_posted: 0,
                receives_used: 0,
                in_hand: None,
                expected: VecDeque::new(),
                memory,
                private,
            }
        });
        Self { pair, dice, models, mtu: options.mtu.bytes() as usize, seed, whole: 0, dropped: 0 }
    }

    fn model(&mut self, side: Side) -> &mut Model {
        &mut self.models[side as usize]
    }

    /// Posts what fits and what the dice want.
    fn post(&mut self, side: Side) {
        while self.model(side).left > 0 && self.model(side).posted.len() as u64 - self.model(side).completed < 6 && self.dice.chance(70) {
            // Now and then longer than the peer's receives.
            let limit = if self.dice.chance(10) { 2 * RECEIVE_LEN } else { RECEIVE_LEN };
            let len = if self.dice.chance(10) { 0 } else { self.dice.below(limit as u64 + 1) as usize };
            let source = self.dice.below((SOURCE_LEN - len) as u64) as usize;
            let immediate = self.dice.chance(50).then(|| self.dice.below(1 << 32) as u32);
            let (op, to, is_allowed) = if self.dice.chance(50) {
                let to = self.dice.below((TARGET_LEN - len) as u64) as usize;
                let rkey = self.pair.end(side.peer()).key;
                // Without bytes the key means nothing.
                let (address, rkey, is_allowed) = match self.dice.below(10) {
                    0 if len > 0 => (BASE + to as u64, self.model(side.peer()).private, false),
                    1 if len > 0 => (BASE + (REGION - len + 1) as u64, rkey, false),
                    _ => (BASE + to as u64, rkey, true),
                };
                (SendOp::Write { address, rkey, immediate }, Some(to), is_allowed)
            } else {
                (SendOp::Send { immediate }, None, true)
            };
            let data = self.pair.end(side).bytes(SOURCE + source, len).to_vec();
            let packets = len.div_ceil(self.mtu).max(1) as u32;
            let model = self.model(side);
            let id = model.posted.len();
            for packet in 0..packets {
                model.numbers.insert((model.next_psn + packet).value(), (id, packet));
            }
            model.next_psn += packets;
            model.posted.push(Posted { to, immediate, data, packets, is_allowed });
            model.left -= 1;
            self.pair.post_op(side, id as u64, op, (SOURCE + source) as u64, len as u32);
        }
        let waiting = self.model(side).receives_posted - self.model(side).receives_used;
        if waiting < RECEIVE_PLACES as u64 && self.dice.chance(60) {
            let id = self.model(side).receives_posted;
            self.pair.post_recv(side, id, place(id) as u64, RECEIVE_LEN as u32);
            self.model(side).receives_posted += 1;
        }
    }

    /// What each packet that came is to do, by the model.
    fn foresee(&mut self) {
        for (to, bytes) in self.pair.arrivals.replace(Vec::new()).unwrap_or_default() {
            let Ok(datagram) = Datagram::parse(&bytes) else { continue };
            let header = datagram.packet.header;
            if matches!(header.body, Body::CongestionNotification) {
                continue;
            }
            let [a, b] = &mut self.models;
            let (own, peer) = if to == A { (a, &*b) } else { (b, &*a) };
            let (message, packet) = peer.numbers[&header.psn.value()];
            let had = own.in_hand.take();
            let goes_on = had == Some((message, packet));
            let taken = (packet == 0 || goes_on) && own.takes(&peer.posted[message], packet, self.mtu);
            let is_last = packet + 1 == peer.posted[message].packets;
            own.in_hand = (taken && !is_last).then_some((message, packet + 1));
            self.whole += usize::from(taken && is_last);
            self.dropped += usize::from(had.is_some() && !(goes_on && taken));
        }
    }

    /// Holds what came to each end, and what each end has sent, against the model.
    fn check(&mut self, side: Side) {
        let seed = self.seed;
        for completion in self.pair.end(side).poll() {
            assert_eq!(completion.status, Status::Success, "seed {seed}: {completion:?}");
            let Completion { id, opcode, len, immediate, .. } = completion;
            let model = self.model(side);
            if matches!(opcode, Opcode::Receive | Opcode::ReceiveWithImmediate) {
                let expected = model.expected.pop_front();
                assert_eq!(Some(Received { id, opcode, len, immediate }), expected, "seed {seed}: whole messages complete, in order");
            } else {
                assert_eq!(id, model.completed, "seed {seed}: in order, and once");
                model.completed += 1;
            }
        }
        let model = &mut self.models[side as usize];
        assert!(model.expected.is_empty(), "seed {seed}: a message that is complete completes");
        for packet in self.pair.sent(side) {
            let header = packet.header();
            if matches!(header.body, Body::CongestionNotification) {
                continue;
            }
            assert!(header.unreliable && !header.ack_request, "seed {seed}: nobody answers, or asks for it");
            assert_eq!(header.psn, model.next_sent, "seed {seed}: each packet is sent once");
            model.next_sent += 1;
        }
        let private = model.private;
        let end = self.pair.end(side);
        assert!(end.hca.memory(private).unwrap().iter().all(|byte| *byte == 0x55), "seed {seed}: nobody may write there");
        assert_eq!(end.state(), State::Rts, "seed {seed}: a peer's message is no reason to fail");
        let bytes = end.bytes(0, REGION).to_vec();
        assert!(bytes == self.model(side).memory, "seed {seed}: each byte is what the packets that came make it");
    }

    fn is_done(&self) -> bool {
        self.models.iter().all(|model| model.left == 0 && model.completed == model.posted.len() as u64)
    }

    /// How many messages came whole, and how many were in hand and were dropped.
    fn run(mut self) -> [usize; 2] {
        let end = self.pair.now + Duration::from_secs(60);
        while !self.is_done() {
            assert!(self.pair.now < end, "seed {}: it hangs", self.seed);
            [A, B].into_iter().for_each(|side| self.post(side));
            let step = LATENCY * (1 + self.dice.below(40) as u32);
            self.pair.run(step);
            self.foresee();
            [A, B].into_iter().for_each(|side| self.check(side));
        }
        self.pair.settle();
        self.foresee();
        [A, B].into_iter().for_each(|side| self.check(side));
        for model in &self.models {
            assert_eq!(model.next_sent, model.next_psn, "seed {}: all of it left", self.seed);
        }
        [self.whole, self.dropped]
    }
}

impl Model {
    /// Whether a packet of a message of the peer's is taken when its turn has come, and what it changes.
    fn takes(&mut self, message: &Posted, packet: u32, mtu: usize) -> bool {
        let from = packet as usize * mtu;
        let piece = &message.data[from..message.data.len().min(from + mtu)];
        let is_last = packet + 1 == message.packets;
        let has_receive = self.receives_used < self.receives_posted;
        let (at, is_taken) = match message.to {
            Some(to) => (to, message.is_allowed && (has_receive || !is_last || message.immediate.is_none())),
            None => (place(self.receives_used), has_receive && from + piece.len() <= RECEIVE_LEN),
        };
        if !is_taken {
            return false;
        }
        self.memory[at + from..at + from + piece.len()].copy_from_slice(piece);
        if is_last && (message.to.is_none() || message.immediate.is_some()) {
            let opcode = if message.to.is_some() { Opcode::ReceiveWithImmediate } else { Opcode::Receive };
            let (id, len, immediate) = (self.receives_used, message.data.len() as u32, message.immediate);
            self.expected.push_back(Received { id, opcode, len, immediate });
            self.receives_used += 1;
        }
        true
    }
}

fn place(id: u64) -> usize {
    RECEIVES + id as usize % RECEIVE_PLACES * RECEIVE_LEN
}

#[test]
fn seeds() {
    let (mut whole, mut dropped) = (0, 0);
    for seed in 0..400 {
        let [came, ended] = World::new(seed, Flaw::None).run();
        (whole, dropped) = (whole + came, dropped + ended);
    }
    // Otherwise the network would not be what it says.
    assert!(whole > 8000 && dropped > 400, "{whole} came whole, {dropped} did not");
}

/// A campaign of any length: `RINGWAY_MESSAGE_SEEDS=400..20000`.
#[test]
#[ignore = "as long as one likes: RINGWAY_MESSAGE_SEEDS says which seeds"]
fn more_seeds() {
    super::seeds::run(|seed| {
        World::new(seed, Flaw::None).run();
    });
}

#[test]
fn flaws_are_caught() {
    let escaped = crate::roce::tests::flaws::escaped(&Flaw::OF_UNRELIABLE, |seed, flaw| {
        World::new(seed, flaw).run();
    });
    assert!(escaped.is_empty(), "{escaped:?}");
}

const _: () = assert!(RECEIVES + RECEIVE_PLACES * RECEIVE_LEN <= SOURCE && SOURCE + SOURCE_LEN <= REGION && TARGET_LEN <= RECEIVES);
