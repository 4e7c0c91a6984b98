//! The way between two programs that goes by no network: what processes of one machine have in their kernel.

use core::time::Duration;
use std::collections::VecDeque;

use ringway_stack::Instant;
use ringway_stack::tcp::Undelivered;

use crate::random::{SplitMix, scale};

/// What a program says of its end of a connection, at the moment when that leaves its ring.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// Bytes that the connection took.
    pub(super) written: u64,
    /// It ended its stream.
    pub(super) ended: bool,
}

/// What one says to the other; most letters have the number of the dialogue that they belong to.
#[derive(Debug)]
pub(super) enum Letter {
    /// Take the connection off your ring.
    Leave(u64),
    /// It is off; that is all that I have of it.
    Left(u64, Box<(Undelivered, Account)>),
    /// Not now: ask again.
    Wait(u64),
    /// There is none here any more.
    Gone(u64),
    /// Mine is off as well. This is owed to you, and after it comes the end of the stream, or more.
    Take(u64, Box<(Vec<u8>, Account)>),
    /// I have it.
    Taken(u64),
    /// I wait no longer.
    HungUp(u64),
}

/// What two [`Sharer`](super::Sharer)s share beside their connection.
#[derive(Debug)]
pub struct Line {
    /// Letters for each, with the time that they take once they are noticed.
    letters: [VecDeque<(Duration, Letter)>; 2],
    dice: SplitMix,
    delay_max: Duration,
    lost_ppm: u32,
    talks: u64,
    /// Whose host has crashed.
    pub(super) dead: [bool; 2],
    /// Whose part in the first connection is over.
    pub(super) over: [bool; 2],
    /// Someone has begun to take the connection along.
    pub(super) begun: bool,
    /// Both ends left their rings, and each got what was owed to it.
    pub carried: bool,
    /// One end left its ring, the other was gone.
    pub alone: bool,
    /// Someone gave up waiting, and the connection was reset.
    pub broken: bool,
    /// A letter was lost: an end may have left its ring while the other goes on speaking to it.
    pub lost: bool,
    /// They connected once more, from the same addresses.
    pub again: bool,
}

impl Line {
    /// Whose delays (up to `delay_max`) and losses (of a million) follow from `key`.
    pub fn new(key: u64, delay_max: Duration, lost_ppm: u32) -> Self {
        Self {
            letters: [VecDeque::new(), VecDeque::new()],
            dice: SplitMix(key),
            delay_max,
            lost_ppm,
            talks: 0,
            dead: [false; 2],
            over: [false; 2],
            begun: false,
            carried: false,
            alone: false,
            broken: false,
            lost: false,
            again: false,
        }
    }

    pub(super) fn new_dialogue(&mut self) -> u64 {
        self.begun = true;
        self.talks += 1;
        self.talks
    }

    /// Sends a letter, which may get lost. That someone hung up is always noticed: the kernel says so.
    pub(super) fn post(&mut self, to: usize, letter: Letter) {
        let (fate, delay) = (scale(self.dice.next(), 1_000_000), self.dice.next());
        if fate < u64::from(self.lost_ppm) && !matches!(letter, Letter::HungUp(_)) {
            self.lost = true;
            return;
        }
        let delay_max = u64::try_from(self.delay_max.as_nanos()).unwrap_or(u64::MAX);
        // Each order of magnitude is as likely as any other: some find a connection as it was, others a later one.
        let delay = scale(delay, delay_max >> scale(self.dice.next(), 20));
        self.letters[to].push_back((Duration::from_nanos(delay), letter));
    }
}

/// Letters on their last way.
#[derive(Debug, Default)]
pub(super) struct Inbox(Option<(Instant, Letter)>);

impl Inbox {
    /// The next letter that has arrived.
    pub(super) fn take(&mut self, line: &mut Line, own: usize, now: Instant) -> Option<Letter> {
        if self.0.is_none() {
            self.0 = line.letters[own].pop_front().map(|(delay, letter)| (now + delay, letter));
        }
        self.0.take_if(|(at, _)| *at <= now).map(|(_, letter)| letter)
    }

    /// When the next one arrives.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.0.as_ref().map(|(at, _)| *at)
    }
}
