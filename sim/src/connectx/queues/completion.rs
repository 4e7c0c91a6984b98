//! A completion queue, as the card sees it.

use super::QueueBuffer;
use crate::connectx::constants as c;
use crate::connectx::cqe::compressed::Compression;
use crate::connectx::cqe::{Cqe, CqeBytes, CqeSize, Received};
use crate::connectx::memory::{Memory, word};
use crate::connectx::violation::Violation;

/// Bits of a counter of completions.
const COUNTER: u32 = 0xff_ffff;

/// What a card that polls for arm requests finds in the doorbell record before the first: libmlx5's first request may be all zeroes, as the
/// record is at first (spec/uverbs.md s6), and it has no bit above 29.
pub const NEVER_ARMED: u32 = u32::MAX;

/// A completion queue that was made.
#[derive(Clone, Copy, Debug)]
pub struct CqConfig {
    /// Its number, 24 bits.
    pub cqn: u32,
    /// Address of its first entry.
    pub addr: u64,
    /// It has 2^this entries, up to 2^22.
    pub log_entries: u8,
    /// Bytes of an entry.
    pub size: CqeSize,
    /// Address of its doorbell record.
    pub record: u64,
    /// How receives are compressed, if they are.
    pub compression: Option<Compression>,
}

/// What an armed queue waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    Any,
    Solicited,
}

/// What came of a completion or of an arm request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// An event is due.
    pub event: bool,
    /// A rule that the driver broke, and that the card goes on after.
    pub broken: Option<Violation>,
}

/// A completion queue.
#[derive(Clone, Debug)]
pub struct CompletionQueue {
    config: CqConfig,
    /// Completions written, a running counter.
    producer: u32,
    /// `producer` at the last event: only newer completions raise another (spec/uverbs.md s6).
    told: u32,
    /// One behind the newest solicited completion.
    solicited: u32,
    armed: Option<Armed>,
    /// The number of the arm request that the last event answered; the driver's next one differs.
    answered: Option<u32>,
    /// The number of the request that is in force.
    request: u32,
    /// The arm request that was seen last, in the register or by [`poll_arm`](Self::poll_arm).
    seen: u32,
    pub(super) failed: bool,
}

impl CompletionQueue {
    /// An empty queue, not armed.
    pub fn new(config: CqConfig) -> Self {
        Self { config, producer: 0, told: 0, solicited: 0, armed: None, answered: None, request: 0, seen: NEVER_ARMED, failed: false }
    }

    /// Whether completions were lost, and no more are written.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Receives in a run at most, if it compresses.
    pub fn run_max(&self) -> Option<u32> {
        self.config.compression.map(|compression| compression.run_max)
    }

    /// What completes there comes from a striding queue: so a run's indices follow each other by strides.
    pub fn set_striding(&mut self) {
        if let Some(compression) = &mut self.config.compression {
            compression.striding = true;
        }
    }

    /// Entries.
    pub fn entries(&self) -> u32 {
        self.ring().entries()
    }

    /// Writes a completion.
    ///
    /// # Errors
    /// The queue is full or not mapped, and has failed.
    pub fn push<M: Memory + ?Sized>(&mut self, memory: &mut M, cqe: &Cqe) -> Result<Written, Violation> {
        let broken = self.room(memory, 1)?;
        self.store(memory, 0, &cqe.encode(self.lap()))?;
        self.written(1, cqe.is_solicited());
        Ok(Written { event: self.event(), broken })
    }

    /// Writes completions of receives, compressed as far as they can be.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_run<M: Memory + ?Sized>(&mut self, memory: &mut M, receives: &[Received]) -> Result<Written, Violation> {
        let (mut rest, mut all) = (receives, Written::default());
        while let Some(first) = rest.first() {
            let run = self.config.compression.map_or(1, |c| c.run(rest).min(self.entries() as usize));
            let (now, later) = rest.split_at(run.max(1));
            let written = match self.config.compression {
                Some(compression) if now.len() > 1 => {
                    let broken = self.room(memory, now.len() as u32)?;
                    for (at, bytes) in compression.compress(now, self.lap()) {
                        self.store(memory, at, &bytes)?;
                    }
                    self.written(now.len() as u32, now.iter().any(|r| r.solicited));
                    Written { event: self.event(), broken }
                }
                _ => self.push(memory, &Cqe::Received(*first))?,
            };
            all = Written { event: all.event | written.event, broken: all.broken.or(written.broken) };
            rest = later;
        }
        Ok(all)
    }

    /// The driver wrote an arm request into the register. Where the record says something else, the register counts.
    ///
    /// A request with the number that the last event answered is an old one, and ignored (`guessed`: the number's purpose is known, the
    /// card's exact rule is not).
    ///
    /// # Errors
    /// [`Violation::QueueUnmapped`].
    pub fn arm<M: Memory + ?Sized>(&mut self, memory: &M, request: u32) -> Result<Written, Violation> {
        let number = request >> 28 & 3;
        self.seen = request;
        let record = word(memory, self.config.record, c::CQ_ARM_DB).map_err(Violation::QueueUnmapped)?;
        if self.answered != Some(number) {
            self.armed = Some(if request & c::CQ_DB_REQ_NOT_SOL != 0 { Armed::Solicited } else { Armed::Any });
            self.request = number;
            // What the driver consumed before it armed raises nothing.
            let consumer = request & COUNTER;
            if is_newer(consumer, self.told) && !is_newer(consumer, self.producer & COUNTER) {
                self.told = consumer;
            }
        }
        let broken = (record != request).then_some(Violation::ArmDiffers { register: request, record });
        Ok(Written { event: self.event(), broken })
    }

    /// Arms by the doorbell record alone, if there is another request than the last time: for a card that cannot see its registers. The
    /// record must have held [`NEVER_ARMED`] when the queue was made.
    ///
    /// # Errors
    /// [`Violation::QueueUnmapped`].
    pub fn poll_arm<M: Memory + ?Sized>(&mut self, memory: &M) -> Result<Written, Violation> {
        let request = word(memory, self.config.record, c::CQ_ARM_DB).map_err(Violation::QueueUnmapped)?;
        if request == self.seen {
            return Ok(Written::default());
        }
        self.arm(memory, request)
    }

    /// The arm request in the doorbell record, if no register was written for it. The record must have held [`NEVER_ARMED`] when the queue was made.
    pub fn unrung<M: Memory + ?Sized>(&self, memory: &M) -> Option<u32> {
        word(memory, self.config.record, c::CQ_ARM_DB).ok().filter(|request| *request != self.seen)
    }

    /// Whether an event is due; if so, it was raised.
    fn event(&mut self) -> bool {
        let due = match self.armed {
            None => false,
            Some(Armed::Any) => is_newer(self.producer & COUNTER, self.told),
            Some(Armed::Solicited) => is_newer(self.solicited, self.told),
        };
        if due {
            (self.armed, self.answered, self.told) = (None, Some(self.request), self.producer & COUNTER);
        }
        due
    }

    /// Fails unless `count` entries are free. What is returned is a broken rule after which the card goes on.
    fn room<M: Memory + ?Sized>(&mut self, memory: &M, count: u32) -> Result<Option<Violation>, Violation> {
        let overrun = Violation::CqOverrun { cqn: self.config.cqn };
        if self.failed {
            return Err(overrun);
        }
        let consumer = match word(memory, self.config.record, c::CQ_SET_CI) {
            Ok(consumer) => consumer & COUNTER,
            Err(unmapped) => {
                self.failed = true;
                return Err(Violation::QueueUnmapped(unmapped));
            }
        };
        let producer = self.producer & COUNTER;
        if is_newer(consumer, producer) {
            return Ok(Some(Violation::ConsumerAhead { consumer, producer }));
        }
        if (producer.wrapping_sub(consumer) & COUNTER) + count > self.entries() {
            self.failed = true;
            return Err(overrun);
        }
        Ok(None)
    }

    fn store<M: Memory + ?Sized>(&mut self, memory: &mut M, at: u32, bytes: &CqeBytes) -> Result<(), Violation> {
        let entry = self.ring().entry(self.producer.wrapping_add(at));
        let at = entry.wrapping_add(self.config.size.offset());
        // The owner's bit is seen last.
        let (body, owner) = bytes.split_at(bytes.len() - 1);
        let stored = memory.write(at, body).and_then(|()| memory.write(at.wrapping_add(body.len() as u64), owner));
        stored.map_err(|unmapped| {
            self.failed = true;
            Violation::QueueUnmapped(unmapped)
        })
    }

    fn written(&mut self, count: u32, solicited: bool) {
        self.producer = self.producer.wrapping_add(count);
        if solicited {
            self.solicited = self.producer & COUNTER;
        }
    }

    /// The owner's bit of the entry that is written next (spec/uverbs.md s6).
    fn lap(&self) -> bool {
        self.producer & self.entries() != 0
    }

    fn ring(&self) -> QueueBuffer {
        let log_stride = self.config.size.bytes().ilog2() as u8;
        QueueBuffer { addr: self.config.addr, log_stride, log_entries: self.config.log_entries }
    }
}

/// Whether the counter `a` is ahead of `b`.
fn is_newer(a: u32, b: u32) -> bool {
    let distance = a.wrapping_sub(b) & COUNTER;
    distance != 0 && distance < 1 << 23
}
