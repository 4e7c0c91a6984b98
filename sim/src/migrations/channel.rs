//! What two processes tell each other beside their rings: who is at the other end of a connection by now, and which rings have met. As over a socket of the kernel's, nothing is lost, and
//! what is said waits for as long as who is asked is stopped.

use core::time::Duration;
use std::collections::BTreeSet;
use std::net::SocketAddr;

use ringway_stack::Instant;

use crate::random::{SplitMix, scale};

/// An answer. (The words are libvma's: `ffi/vma/src/moving/follow.rs`.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// What is sent goes to where the other end is now, from this ring.
    Follows(u16),
    /// There is no such connection, or it is not the asker's to move.
    No,
    /// It cannot be said yet.
    Wait,
    /// The connection is on this ring, which the asker's is to meet first.
    Meet(u16),
}

/// That the asker's end of a connection is on another ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    at: Instant,
    pub(super) number: u64,
    /// The connection's addresses, those first of who is asked.
    pub(super) ends: (SocketAddr, SocketAddr),
    /// The asker's ring.
    pub(super) ring: u16,
}

/// The channel between the two.
#[derive(Debug)]
pub(super) struct Channel {
    dice: SplitMix,
    delay_max: Duration,
    /// Of a hundred questions, so many are put off.
    put_off: u64,
    asked: u64,
    /// To each machine.
    questions: [Vec<Question>; 2],
    answers: [Vec<(Instant, u64, Answer)>; 2],
    /// Rings that know each other: the first machine's, and the second's.
    met: BTreeSet<(u16, u16)>,
    /// A machine is dead, and the other's rings were told.
    pub(super) is_dead: bool,
    pub(super) is_known_dead: bool,
}

impl Channel {
    pub(super) fn new(seed: u64, delay_max: Duration, put_off: u64) -> Self {
        Self {
            dice: SplitMix(seed),
            delay_max,
            put_off,
            asked: 0,
            questions: Default::default(),
            answers: Default::default(),
            met: BTreeSet::new(),
            is_dead: false,
            is_known_dead: false,
        }
    }

    fn later(&mut self, now: Instant) -> Instant {
        now + Duration::from_nanos(1 + scale(self.dice.next(), u64::try_from(self.delay_max.as_nanos()).unwrap_or(u64::MAX)))
    }

    fn pair(machine: usize, own: u16, peers: u16) -> (u16, u16) {
        if machine == 0 { (own, peers) } else { (peers, own) }
    }

    /// A machine's ring meets one of its peer's. Whether that is possible.
    pub(super) fn meet(&mut self, machine: usize, own: u16, peers: u16) -> bool {
        let pair = Self::pair(machine, own, peers);
        if !self.is_dead {
            self.met.insert(pair);
        }
        self.has_met(machine, own, peers)
    }

    pub(super) fn has_met(&self, machine: usize, own: u16, peers: u16) -> bool {
        !self.is_known_dead && self.met.contains(&Self::pair(machine, own, peers))
    }

    /// Asks a machine's peer. `None`: there is nobody any more.
    pub(super) fn ask(&mut self, now: Instant, machine: usize, (local, remote): (SocketAddr, SocketAddr), ring: u16) -> Option<u64> {
        if self.is_dead {
            return None;
        }
        self.asked += 1;
        let question = Question { at: self.later(now), number: self.asked, ends: (remote, local), ring };
        self.questions[1 - machine].push(question);
        Some(question.number)
    }

    /// What a machine was asked by now; and whether it says that it cannot tell yet.
    pub(super) fn take(&mut self, now: Instant, machine: usize) -> Vec<(Question, bool)> {
        let due: Vec<_> = self.questions[machine].extract_if(.., |question| question.at <= now).collect();
        due.into_iter().map(|question| (question, scale(self.dice.next(), 100) < self.put_off)).collect()
    }

    pub(super) fn answer(&mut self, now: Instant, machine: usize, number: u64, answer: Answer) {
        let at = self.later(now);
        self.answers[1 - machine].push((at, number, answer));
    }

    /// The answer to a machine's question, if it has come.
    pub(super) fn answered(&mut self, now: Instant, machine: usize, number: u64) -> Option<Answer> {
        let place = self.answers[machine].iter().position(|&(at, of, _)| of == number && at <= now)?;
        Some(self.answers[machine].swap_remove(place).2)
    }

    /// When a machine is asked, or answered, next.
    pub(super) fn next_at(&self, machine: usize) -> Option<Instant> {
        let questions = self.questions[machine].iter().map(|question| question.at);
        questions.chain(self.answers[machine].iter().map(|&(at, _, _)| at)).min()
    }
}
