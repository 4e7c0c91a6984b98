//! Random programs over a random network, seed by seed: sends, receives, direct writes, shutdowns and closes, while packets are lost, doubled, late, out of order
//! and damaged. What is sent arrives once and in order; what was written directly is there before what was sent after it; nothing that was granted is lost or
//! used twice; no memory changes that nobody mapped; and everything ends.

use core::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::pair::{A, B, End, Fate, LATENCY, Options, Pair, pattern};
use super::record::Record;
use crate::device::messages::{Access, Memory, Messages};
use crate::error::Error;
use crate::roce::Flaw;
use crate::roce::qp::Mtu;
use crate::rsocket::wire::ByteOrder;
use crate::rsocket::{Host, Mapping, OptionName, OptionValue, Shutdown, Sizes};

/// Bytes that each end maps for the other's direct writes, and where.
const MAPPED: usize = 700;
const OFFSET: u64 = 12_345;

struct Dice(ChaCha8Rng);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// One end's program, and what it knows.
struct Program {
    /// Bytes that it is to send in all, and has sent.
    total: usize,
    sent: usize,
    /// Bytes that it got.
    got: usize,
    /// It closes as soon as it has sent all, instead of waiting for the peer's end.
    hasty: bool,
    shut: bool,
    closed: bool,
    /// It saw the end of what the peer sent.
    at_end: bool,
    failed: Option<Error>,
    mapping: Option<Mapping>,
    /// The direct write that is under way: its number, and how much of it is written.
    round: u8,
    written: usize,
    /// Direct writes that were complete, by how many bytes of the stream were sent before: these come after it.
    complete: Vec<(usize, u8)>,
    /// A region that nobody may touch.
    canary: u32,
}

struct World {
    pair: Pair,
    dice: Dice,
    programs: [Program; 2],
    harsh: bool,
    /// The longest send, and how often in a hundred turns a program reads: where messages are short and readers slow, credits run out before room does.
    send_max: u64,
    reads: u64,
    /// Somebody gave up, which is for the record to explain.
    has_given_up: bool,
    seed: u64,
}

fn network(seed: u64, worst: u64, dice: &mut Dice) -> Fate {
    let percents: [u64; 4] = core::array::from_fn(|_| if dice.chance(60) { dice.below(worst) } else { 0 });
    let [loss, double, late, damage] = percents;
    let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed ^ 0x6e65_7477));
    Box::new(move |_, bytes| {
        let copies = if dice.chance(loss) { 0 } else { 1 + u64::from(dice.chance(double)) };
        (0..copies)
            .map(|_| {
                let mut bytes = bytes.to_vec();
                if dice.chance(damage) {
                    for _ in 0..=dice.below(3) {
                        let bit = dice.below(bytes.len() as u64 * 8) as usize;
                        bytes[bit / 8] ^= 1 << (bit % 8);
                    }
                }
                let delay = if dice.chance(late) { LATENCY * (1 + dice.below(100) as u32) } else { LATENCY };
                (delay, bytes)
            })
            .collect()
    })
}

fn options(dice: &mut Dice, flaw: Flaw) -> [Options; 2] {
    let by_sends = dice.chance(25);
    let mtu = dice.pick(&Mtu::ALL);
    [A, B].map(|end| {
        let mut options = Options::new(end);
        options.settings.sizes = Sizes {
            send_queue: 16 + dice.below(40) as u16,
            recv_queue: 16 + dice.below(40) as u16,
            inline: dice.below(100) as u16,
            send_buffer: 2048 + dice.below(10_000) as u32,
            recv_buffer: dice.pick(&[500, 4096, 10_000, 131_072]),
            iomap: 2,
        };
        options.host = Host { order: dice.pick(&[ByteOrder::Little, ByteOrder::Big]), by_sends, flaw, ..Host::default() };
        options.node.mtu = mtu;
        options.node.ack_timeout = 8 + dice.below(4) as u8;
        options.node.min_rnr_timer = 1 + dice.below(12) as u8;
        options.node.tuning.window = dice.pick(&[1, 3, 33, 128]);
        options.node.tuning.count_credits = dice.chance(30);
        options.node.tuning.flaw = flaw;
        options
    })
}

impl World {
    fn new(seed: u64, flaw: Flaw) -> Self {
        let mut dice = Dice(ChaCha8Rng::seed_from_u64(seed));
        let harsh = dice.chance(25);
        let mut options = options(&mut dice, flaw);
        for options in &mut options {
            options.node.tuning.acknowledges_late = seed % 4 == 3;
            // (Most messages go the short way there.)
            options.is_v6 = seed % 3 == 1;
        }
        let mut pair = Pair::connected(options);
        pair.fate = network(seed, if harsh { 90 } else { 7 }, &mut dice);
        let (send_max, reads) = (dice.pick(&[40, 6000, 6000]), dice.pick(&[8, 60, 60]));
        let programs = [A, B].map(|end| {
            let End { node, sockets, socket } = &mut pair.ends[end];
            let mapping = dice.chance(60).then(|| sockets.map(node, *socket, vec![0; MAPPED], true, Some(OFFSET)).unwrap());
            let pd = Messages::alloc_pd(node);
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            let canary = Messages::register(node, pd, vec![0x5a; 4096], access).unwrap().key;
            Program {
                total: dice.below(40_000.min(send_max * 100)) as usize,
                sent: 0,
                got: 0,
                hasty: dice.chance(30),
                shut: false,
                closed: false,
                at_end: false,
                failed: None,
                mapping,
                round: 1,
                written: 0,
                complete: Vec::new(),
                canary,
            }
        });
        if harsh {
            // What ends a connection may be lost as often as it is sent; who then waits for its peer finds out by this alone.
            for End { sockets, socket, .. } in &mut pair.ends {
                for (name, value) in [(OptionName::KeepIdle, 20), (OptionName::KeepAlive, 1)] {
                    sockets.set_option(pair.now, *socket, name, &OptionValue::Number(value)).unwrap();
                }
            }
        }
        Self { pair, dice, programs, harsh, send_max, reads, has_given_up: false, seed }
    }

    fn step(&mut self, end: usize) {
        if self.programs[end].closed {
            return;
        }
        if self.dice.chance(60) {
            self.send(end);
        }
        if self.dice.chance(30) {
            self.write_direct(end);
        }
        if self.dice.chance(self.reads) {
            self.recv(end);
        }
        let program = &mut self.programs[end];
        let all_sent = program.sent == program.total || program.failed.is_some();
        if all_sent && !program.shut && !program.hasty && self.dice.chance(50) {
            program.shut = true;
            // It may have ended meanwhile.
            let _ = self.pair.shutdown(end, Shutdown::Write);
        }
        let program = &mut self.programs[end];
        if all_sent && (program.hasty || program.shut && (program.at_end || program.failed.is_some())) && self.dice.chance(30) {
            program.closed = true;
            self.pair.close(end);
        }
    }

    fn send(&mut self, end: usize) {
        let len = 1 + self.dice.below(self.send_max) as usize;
        let program = &mut self.programs[end];
        let len = len.min(program.total - program.sent);
        if len == 0 || program.failed.is_some() {
            return;
        }
        let bytes = pattern(self.seed + end as u64, program.sent as u64, len);
        match self.pair.send(end, &bytes) {
            Ok(sent) => self.programs[end].sent += sent,
            Err(Error::WouldBlock) => {}
            Err(error) => self.fail(end, error),
        }
    }

    /// Whoever closes before its peer has sent all, or because it gave up, makes the peer's calls fail. Whoever gives up must have had to.
    fn fail(&mut self, end: usize, error: Error) {
        let (seed, peer) = (self.seed, &self.programs[1 - end]);
        let gave_up = match error {
            Error::TimedOut => end,
            Error::Reset if peer.closed && (peer.hasty || peer.failed.is_some()) => return self.programs[end].failed = Some(error),
            // What it sent last did not get through, of which its program does not hear any more.
            Error::Reset if peer.closed => 1 - end,
            _ => panic!("seed {seed}: {error} at {end}"),
        };
        self.has_given_up = true;
        if let Some(record) = &self.pair.record {
            let explained = record.explain(gave_up);
            assert!(explained.is_ok(), "seed {seed}: {error} at {end}, but {explained:?}");
        }
        self.programs[end].failed = Some(error);
    }

    /// Writes over all that the peer has mapped, round by round.
    fn write_direct(&mut self, end: usize) {
        let program = &self.programs[end];
        // Nothing is to be written once the program has said that it sends no more.
        if program.failed.is_some() || program.shut || program.round == u8::MAX {
            return;
        }
        let bytes = vec![program.round; MAPPED - program.written];
        let at = OFFSET + program.written as u64;
        match self.pair.write_direct(end, &bytes, at) {
            Ok(len) => {
                let program = &mut self.programs[end];
                program.written += len;
                if program.written == MAPPED {
                    program.complete.push((program.sent, program.round));
                    (program.round, program.written) = (program.round + 1, 0);
                }
            }
            Err(Error::WouldBlock) => {}
            Err(error) => self.fail(end, error),
        }
    }

    fn recv(&mut self, end: usize) {
        let mut some = vec![0; 1 + self.dice.below(5000) as usize];
        match self.pair.recv(end, &mut some) {
            Ok(0) => {
                let peer = &self.programs[1 - end];
                assert_eq!(self.programs[end].got, peer.sent, "seed {}: the end comes after all that was sent", self.seed);
                self.programs[end].at_end = true;
            }
            Ok(len) => {
                let program = &mut self.programs[end];
                let expected = pattern(self.seed + 1 - end as u64, program.got as u64, len);
                assert!(some[..len] == expected, "seed {}: bytes arrive once and in order", self.seed);
                program.got += len;
                self.check_mapped(end);
            }
            Err(Error::WouldBlock) => {}
            Err(error) => self.fail(end, error),
        }
    }

    /// What was written directly before the bytes that came is there.
    fn check_mapped(&self, end: usize) {
        let Some(mapping) = self.programs[end].mapping else { return };
        let got = self.programs[end].got;
        let last = self.programs[1 - end].complete.iter().rev().find(|(sent, _)| *sent < got);
        let mut bytes = vec![0; MAPPED];
        Messages::memory(&self.pair.ends[end].node, mapping.region.key).unwrap().read(0, &mut bytes);
        let least = last.map_or(0, |(_, round)| *round);
        assert!(bytes.iter().all(|byte| *byte >= least), "seed {}: direct writes come before what follows them", self.seed);
    }

    fn check_credits(&self) {
        let streams = [A, B].map(|end| self.pair.ends[end].sockets.stream_of(self.pair.ends[end].socket));
        if let [Some(a), Some(b)] = streams {
            a.check_credits(b);
            b.check_credits(a);
        }
    }

    /// Writes down what goes over the wire from now on.
    fn recording(mut self) -> Self {
        let qps = [A, B].map(|end| self.pair.ends[end].sockets.qp(self.pair.ends[end].socket).unwrap());
        self.pair.record = Some(Record::new(qps));
        self
    }

    /// Runs a world, and where somebody gave up, once more with a record.
    fn check(seed: u64, flaw: Flaw) -> Outcome {
        let outcome = Self::new(seed, flaw).run();
        if outcome.has_given_up { Self::new(seed, flaw).recording().run() } else { outcome }
    }

    fn run(mut self) -> Outcome {
        let end = self.pair.now + Duration::from_secs(900);
        while self.programs.iter().any(|program| !program.closed) {
            for end in [A, B] {
                self.step(end);
                self.pair.ends[end].sockets.check();
            }
            self.check_credits();
            let step = LATENCY * (1 + self.dice.below(40) as u32);
            self.pair.run(step);
            self.pair.log.clear();
            assert!(self.pair.now < end, "seed {} (harsh: {}): it hangs", self.seed, self.harsh);
        }
        let closing = |pair: &mut Pair| pair.ends.iter().all(|end| end.sockets.closing() == 0);
        let end = self.pair.now + Duration::from_secs(31);
        assert!(self.pair.run_until(end, closing), "seed {}: closing ends", self.seed);
        // However much is lost, connection management has an end, too.
        self.pair.run(Duration::from_secs(60));
        for end in [A, B] {
            assert_eq!(self.pair.ends[end].node.connections(), 0, "seed {}: nothing is left of a connection", self.seed);
            let memory = Messages::memory(&self.pair.ends[end].node, self.programs[end].canary).unwrap();
            assert!(*memory == vec![0x5a; 4096], "seed {}: no other memory changes", self.seed);
        }
        Outcome {
            harsh: self.harsh,
            has_failed: self.programs.iter().any(|program| program.failed.is_some()),
            has_given_up: self.has_given_up,
            rounds: self.programs.iter().map(|program| program.complete.len()).sum(),
        }
    }
}

/// What came of a world.
struct Outcome {
    harsh: bool,
    has_failed: bool,
    has_given_up: bool,
    /// Direct writes that were complete.
    rounds: usize,
}

#[test]
fn seeds() {
    let (mut failed, mut rounds) = (0, 0);
    for seed in 0..300 {
        let outcome = World::check(seed, Flaw::None);
        failed += usize::from(outcome.has_failed);
        rounds += outcome.rounds;
    }
    assert!(
        failed < 150 && rounds > 1000,
        "{failed} failed, {rounds} direct writes: the network or the programs are not what they should be"
    );
}

#[test]
fn flaws_are_caught() {
    let escaped = crate::roce::tests::flaws::escaped(&Flaw::OF_RSOCKETS, |seed, flaw| {
        World::check(seed, flaw);
    });
    assert!(escaped.is_empty(), "{escaped:?}");
}

/// A campaign of any length: `RINGWAY_MESSAGE_SEEDS=300..20000`.
#[test]
#[ignore = "as long as one likes: RINGWAY_MESSAGE_SEEDS says which seeds"]
fn more_seeds() {
    let mut given_up = Vec::new();
    crate::roce::tests::seeds::run(|seed| {
        let outcome = World::check(seed, Flaw::None);
        given_up.extend(Some(seed).filter(|_| outcome.has_given_up && !outcome.harsh));
    });
    println!("in gentle networks somebody had to give up in {given_up:?}");
}
