//! A send queue, as the card sees it.

use std::collections::VecDeque;

use super::{Action, QueueBuffer, Transmit, gather};
use crate::connectx::constants as c;
use crate::connectx::cqe::{Cqe, Failed, Sent};
use crate::connectx::keys::KeyTable;
use crate::connectx::memory::{Memory, word};
use crate::connectx::violation::{Verdict, Violation};
use crate::connectx::wqe::{Body, Control, DataSegment, Ethernet, Piece, SendRules, SendWqe, Transport};

/// A send queue that was made.
#[derive(Clone, Copy, Debug)]
pub struct SendConfig {
    /// How its entries are read.
    pub rules: SendRules,
    /// Its blocks; an entry of it has 64 bytes.
    pub ring: QueueBuffer,
    /// Address of its doorbell record.
    pub record: u64,
    /// Its protection domain.
    pub pd: u32,
    /// User's index, 24 bits.
    pub uidx: u32,
    /// Its completion queue.
    pub cqn: u32,
}

/// How a request ended that others had to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Well, with so many bytes read.
    Done {
        /// Bytes that a read or an atomic brought, else 0.
        bytes: u32,
    },
    /// Not.
    Failed {
        /// `SYNDROME_*`.
        syndrome: u8,
        /// The vendor's own number.
        vendor: u8,
    },
}

/// An entry that was taken.
#[derive(Clone, Copy, Debug)]
struct Taken {
    control: Control,
    index: u16,
    /// Nothing while others have to answer.
    outcome: Option<Outcome>,
}

/// A send queue.
#[derive(Clone, Debug)]
pub struct SendQueue {
    config: SendConfig,
    /// Blocks fetched, a running counter.
    consumer: u16,
    /// Blocks that doorbells have told of, a running counter; never behind `consumer`.
    rung: u16,
    /// Blocks whose entries are completed; never ahead of `consumer`.
    retired: u16,
    /// Entries taken and not completed, oldest first. Invariant: no more than the ring has blocks.
    taken: VecDeque<Taken>,
    pub(super) failed: bool,
    /// The syndrome by which the next entry ends, whatever it says.
    spoiled: Option<u8>,
}

impl SendQueue {
    /// A queue that has taken nothing.
    pub fn new(config: SendConfig) -> Self {
        Self { config, consumer: 0, rung: 0, retired: 0, taken: VecDeque::new(), failed: false, spoiled: None }
    }

    /// The entry that is taken next ends with this syndrome, by an error of the card's own.
    pub fn spoil(&mut self, syndrome: u8) {
        self.spoiled = Some(syndrome);
    }

    /// The driver has it send again after a failure (SQE to RTS): what is posted from now on is no more flushed.
    pub fn resume(&mut self) {
        self.failed = false;
    }

    /// Whether it has failed: what is posted from now on is flushed.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// The block that is fetched next, a running counter.
    pub fn consumer(&self) -> u16 {
        self.consumer
    }

    /// Whether there is an entry that was rung for and not fetched.
    pub fn has_rung(&self) -> bool {
        self.rung != self.consumer
    }

    /// Bytes of the first frame of the entry that is fetched next; `None`: it has none, or breaks a rule.
    pub fn next_frame_len<M: Memory + ?Sized>(&self, memory: &M) -> Option<usize> {
        let control = self.control(memory).ok().filter(|_| self.has_rung() && !self.failed)?;
        let mut bytes = vec![0; usize::from(control.ds) * c::DS_UNIT];
        self.config.ring.read(memory, self.consumer.into(), &mut bytes).ok()?;
        let total = |pieces: &[Piece]| pieces.iter().map(Piece::len).sum::<u64>() as usize;
        match SendWqe::parse(&bytes, self.consumer, &self.config.rules).ok()?.body {
            Body::Frame(ethernet, pieces) => Some(ethernet.headers().len() + total(&pieces)),
            Body::Segmented(ethernet, pieces) => Some(ethernet.headers().len() + total(&pieces).min(ethernet.mss.into())),
            Body::Frames(ethernet, pieces) => Some(ethernet.headers().len() + pieces.first().map_or(0, Piece::len) as usize),
            _ => None,
        }
    }

    /// Blocks that the doorbell record says are posted, and that were never rung for.
    ///
    /// # Errors
    /// [`Violation::QueueUnmapped`].
    pub fn unrung<M: Memory + ?Sized>(&self, memory: &M) -> Result<u16, Violation> {
        Ok(self.posted(memory)?.wrapping_sub(self.rung.wrapping_sub(self.consumer)))
    }

    /// Blocks that the doorbell record says are posted, and that were not fetched.
    fn posted<M: Memory + ?Sized>(&self, memory: &M) -> Result<u16, Violation> {
        let producer = word(memory, self.config.record, c::SND_DBR).map_err(Violation::QueueUnmapped)?;
        Ok((producer as u16).wrapping_sub(self.consumer))
    }

    /// The driver rang for the entry at block `index`; `blueflame` has its blocks if it was written into the register.
    ///
    /// Takes what the doorbell record says is posted: at most as many entries as there are blocks.
    pub fn ring<M: Memory + ?Sized>(&mut self, memory: &M, keys: &KeyTable, index: u16, blueflame: &[u8]) -> Vec<Action> {
        let mut actions = self.note(memory, index);
        self.take_posted(memory, keys, (index, blueflame), usize::MAX, &mut actions);
        actions
    }

    /// The driver rang for the entry at block `index`: what the doorbell record says now is the card's to take, by [`take_rung`](Self::take_rung).
    pub fn note<M: Memory + ?Sized>(&mut self, memory: &M, index: u16) -> Vec<Action> {
        let mut actions = Vec::new();
        match self.posted(memory) {
            Ok(posted) => {
                // A doorbell for an entry that was taken with an earlier one is in order.
                let ahead = index.wrapping_sub(self.consumer);
                if ahead < 1 << 15 && ahead >= posted {
                    let violation = Violation::DoorbellAheadOfRecord { rung: index, producer: self.consumer.wrapping_add(posted) };
                    actions.push(self.broken(violation));
                }
                self.rung = self.consumer.wrapping_add(posted);
            }
            // A queue that the card cannot reach has said so once.
            Err(_) if self.failed => {}
            Err(violation) => self.break_down(violation, &mut actions),
        }
        actions
    }

    /// Takes at most so many entries of what was rung for.
    pub fn take_rung<M: Memory + ?Sized>(&mut self, memory: &M, keys: &KeyTable, entries_max: usize) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.has_rung() {
            self.take_posted(memory, keys, (self.consumer, &[]), entries_max, &mut actions);
        }
        actions
    }

    fn take_posted<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        keys: &KeyTable,
        (index, blueflame): (u16, &[u8]),
        entries_max: usize,
        actions: &mut Vec<Action>,
    ) {
        let posted = self.rung.wrapping_sub(self.consumer);
        let (open, capacity) = (self.consumer.wrapping_sub(self.retired), self.config.ring.entries());
        if u32::from(open) + u32::from(posted) > capacity {
            let control = self.control(memory).unwrap_or(Control::decode(&[0; 16]));
            self.fail(control, Violation::Overrun { posted: open.wrapping_add(posted), capacity }, actions);
            // Which entries are whole is not known any more.
            self.consumer = self.consumer.wrapping_add(posted);
        } else {
            let end = self.consumer.wrapping_add(posted);
            for _ in 0..entries_max {
                if self.consumer == end {
                    break;
                }
                if let Err(violation) = self.take(memory, keys, (index, blueflame), end, actions) {
                    self.break_down(violation, actions);
                    break;
                }
            }
        }
        self.complete(actions);
    }

    /// The driver puts it in error: what is posted is flushed, now and with each later doorbell.
    pub fn stop<M: Memory + ?Sized>(&mut self, memory: &M, keys: &KeyTable) -> Vec<Action> {
        self.failed = true;
        for taken in &mut self.taken {
            taken.outcome = Some(flushed());
        }
        self.poll(memory, keys, usize::MAX)
    }

    /// Takes what the doorbell record says is posted, as if the doorbell for it had come: for a card that looks at records because it cannot
    /// see its registers. Nothing where nothing is posted; and at most so many entries, the rest with the next look.
    pub fn poll<M: Memory + ?Sized>(&mut self, memory: &M, keys: &KeyTable, entries_max: usize) -> Vec<Action> {
        // (A doorbell for what was taken says nothing about the index.)
        let mut actions = self.note(memory, self.consumer.wrapping_sub(1));
        if self.rung != self.consumer {
            self.take_posted(memory, keys, (self.consumer, &[]), entries_max, &mut actions);
        }
        actions
    }

    /// The bytes of the queue from block `index` on, as many as there is room for.
    ///
    /// # Errors
    /// [`Violation::QueueUnmapped`].
    pub fn blocks<M: Memory + ?Sized>(&self, memory: &M, index: u16, out: &mut [u8]) -> Result<(), Violation> {
        self.config.ring.read(memory, index.into(), out).map_err(Violation::QueueUnmapped)
    }

    /// The request at block `index` ended. Those before it that wait are done, too, if it is (acknowledgments are cumulative).
    pub fn finish(&mut self, index: u16, outcome: Outcome) -> Vec<Action> {
        let mut actions = Vec::new();
        let Some(at) = self.taken.iter().position(|taken| taken.index == index) else { return actions };
        for taken in self.taken.iter_mut().take(at) {
            taken.outcome.get_or_insert(Outcome::Done { bytes: 0 });
        }
        self.taken[at].outcome.get_or_insert(outcome);
        if let Outcome::Failed { .. } = outcome {
            self.failed = true;
            for taken in self.taken.iter_mut().skip(at + 1) {
                taken.outcome = Some(flushed());
            }
        }
        self.complete(&mut actions);
        actions
    }

    /// The first segment of the next entry.
    fn control<M: Memory + ?Sized>(&self, memory: &M) -> Result<Control, Violation> {
        let mut first = [0; c::DS_UNIT];
        self.config.ring.read(memory, self.consumer.into(), &mut first).map_err(Violation::QueueUnmapped)?;
        Ok(Control::decode(&first))
    }

    /// Takes one entry, which ends before block `end` or is wrong.
    fn take<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        keys: &KeyTable,
        (rung, blueflame): (u16, &[u8]),
        end: u16,
        actions: &mut Vec<Action>,
    ) -> Result<(), Violation> {
        let control = self.control(memory)?;
        let posted = end.wrapping_sub(self.consumer);
        let blocks = control.blocks();
        if self.failed {
            self.taken.push_back(Taken { control, index: self.consumer, outcome: Some(flushed()) });
        } else if let Some(syndrome) = self.spoiled.take() {
            let outcome = Outcome::Failed { syndrome, vendor: Violation::vendor_of(syndrome) };
            self.failed = true;
            self.taken.push_back(Taken { control, index: self.consumer, outcome: Some(outcome) });
        } else if blocks > posted {
            self.fail(control, Violation::BeyondProducer { blocks, posted }, actions);
        } else {
            let mut bytes = vec![0; usize::from(control.ds) * c::DS_UNIT];
            self.config.ring.read(memory, self.consumer.into(), &mut bytes).map_err(Violation::QueueUnmapped)?;
            let common = bytes.len().min(blueflame.len());
            if rung == self.consumer && bytes[..common] != blueflame[..common] {
                actions.push(self.broken(Violation::BlueFlameDiffers));
            }
            if let Err(violation) = self.read(&bytes, keys).and_then(|wqe| self.start(memory, wqe, actions)) {
                self.fail(control, violation, actions);
            }
        }
        self.consumer = self.consumer.wrapping_add(blocks.min(posted));
        Ok(())
    }

    /// Reads an entry and checks its keys.
    fn read(&self, bytes: &[u8], keys: &KeyTable) -> Result<SendWqe, Violation> {
        let mut wqe = SendWqe::parse(bytes, self.consumer, &self.config.rules)?;
        let place = |s: &DataSegment, write| keys.check_local(s.lkey, self.config.pd, s.addr, s.len(), write);
        let check = |s: &DataSegment, write| place(s, write).map(drop);
        match &mut wqe.body {
            Body::Nop => {}
            Body::Read(_, segments) => segments.iter().try_for_each(|segment| check(segment, true))?,
            Body::Atomic(_, _, segment) => check(segment, true)?,
            // What a frame is made of is read here; what a request names, by who answers it.
            Body::Frame(_, pieces) | Body::Segmented(_, pieces) | Body::Frames(_, pieces) => {
                for segment in pieces.iter_mut().filter_map(Piece::memory_mut) {
                    segment.addr = place(segment, false)?;
                }
            }
            Body::Send(_, pieces) | Body::Write(_, pieces) => {
                pieces.iter_mut().filter_map(Piece::memory_mut).try_for_each(|segment| check(segment, false))?;
            }
        }
        Ok(wqe)
    }

    /// Does what a well-formed entry asks for.
    ///
    /// # Errors
    /// [`Violation::PayloadUnmapped`], of a frame; what requests read is read by who answers them.
    fn start<M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        SendWqe { control, body }: SendWqe,
        actions: &mut Vec<Action>,
    ) -> Result<(), Violation> {
        let (qpn, wqe_counter) = (self.config.rules.qpn, control.index);
        // A datagram's buffers are the driver's again once it is on its way, which is the transport's to say as well.
        let waits = self.config.rules.transport != Transport::Raw && body != Body::Nop;
        let one = |ethernet: &Ethernet, pieces: &[Piece]| gather(memory, ethernet.headers(), pieces);
        let action = match body {
            Body::Nop => None,
            Body::Frame(ethernet, pieces) => {
                let frames = vec![one(&ethernet, &pieces)?];
                Some(Action::Transmit(Transmit { qpn, wqe_counter, ethernet, frames, segmented: false }))
            }
            Body::Segmented(ethernet, pieces) => {
                let frames = vec![one(&ethernet, &pieces)?];
                Some(Action::Transmit(Transmit { qpn, wqe_counter, ethernet, frames, segmented: true }))
            }
            Body::Frames(ethernet, pieces) => {
                let frames = pieces.chunks(1).map(|piece| one(&ethernet, piece)).collect::<Result<_, _>>()?;
                Some(Action::Transmit(Transmit { qpn, wqe_counter, ethernet, frames, segmented: false }))
            }
            body => Some(Action::Request { qpn, control, body }),
        };
        actions.extend(action);
        let outcome = (!waits).then_some(Outcome::Done { bytes: 0 });
        self.taken.push_back(Taken { control, index: self.consumer, outcome });
        Ok(())
    }

    /// The entry that the queue is at breaks a rule.
    fn fail(&mut self, control: Control, violation: Violation, actions: &mut Vec<Action>) {
        actions.push(self.broken(violation));
        let Verdict::Completion { syndrome, vendor } = violation.verdict() else { return };
        self.failed = true;
        self.taken.push_back(Taken { control, index: self.consumer, outcome: Some(Outcome::Failed { syndrome, vendor }) });
    }

    /// The card cannot reach the queue.
    fn break_down(&mut self, violation: Violation, actions: &mut Vec<Action>) {
        actions.push(self.broken(violation));
        actions.push(Action::QueueFailed { number: self.config.rules.qpn });
        self.failed = true;
    }

    /// Completes the oldest entries, in order, as far as they have ended.
    fn complete(&mut self, actions: &mut Vec<Action>) {
        while let Some(&Taken { control, index, outcome: Some(outcome) }) = self.taken.front() {
            self.taken.pop_front();
            let (cqn, qpn, opcode) = (self.config.cqn, self.config.rules.qpn, control.opcode);
            match outcome {
                Outcome::Done { bytes } if control.wants_completion() => {
                    let (uidx, byte_count) = (self.config.uidx, bytes);
                    let cqe = Cqe::Sent(Sent { uidx, byte_count, timestamp: 0, opcode, qpn, wqe_counter: index });
                    actions.push(Action::Complete { cqn, cqe });
                }
                Outcome::Done { .. } => {}
                Outcome::Failed { syndrome, vendor } => {
                    let srqn_uidx = self.config.uidx;
                    let cqe = Cqe::Failed(Failed { receive: false, srqn_uidx, vendor, syndrome, opcode, qpn, wqe_counter: index });
                    actions.push(Action::Complete { cqn, cqe });
                }
            }
        }
        self.retired = self.taken.front().map_or(self.consumer, |taken| taken.index);
    }

    fn broken(&self, violation: Violation) -> Action {
        Action::Broken { number: self.config.rules.qpn, violation }
    }
}

fn flushed() -> Outcome {
    match Violation::Flushed.verdict() {
        Verdict::Completion { syndrome, vendor } => Outcome::Failed { syndrome, vendor },
        _ => Outcome::Failed { syndrome: c::SYNDROME_WR_FLUSH, vendor: 0 },
    }
}
