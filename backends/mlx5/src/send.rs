//! A ring's send queue: entries posted, the doorbell, and what became of them.
//!
//! Entries are counted in blocks of 64 bytes by counters of 16 bits: `tail` is where the oldest one begins that is not completed, `head` where the next one will.
//! The last entry before each doorbell asks for a completion, which says that all up to it are done, and so does each whose sender wants to hear of it.
//!
//! When an entry fails, the card takes no more from the queue. Those before it were sent, it was not, and those behind it were not tried. The queue pair is ended
//! and made anew then, so that nothing of the old one is left at the card when its buffers are given back.

use core::time::Duration;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use rdma_core_sys as sys;
use ringway_stack::device::{Completion, Pacing, SendError, SendStatus, TxFrame, TxOffload};
use ringway_stack::time::Instant;

use crate::buffer::{Place, SendBuffer};
use crate::clock::CardClock;
use crate::cqe::{CompletionQueue, Cqe};
use crate::device_memory::CardBuffer;
use crate::doorbell::Doorbell;
use crate::mailbox::{Mailbox, SEND_FAILED};
use crate::mutants::{self, Mutant};
use crate::retry::Retry;
use crate::staging::{Staging, StagingCounters};
use crate::verbs::{Completions, Cq, Pd, SendQp};
use crate::wqe::{Ask, Blocks, INLINE_MAX, UNITS, blocks, ds, head_len};

/// Of the network and of the transport header.
const BOTH_CHECKSUMS: u8 = sys::MLX5_ETH_WQE_L3_CSUM | sys::MLX5_ETH_WQE_L4_CSUM;

/// How long nothing moves before the doorbell is rung again.
const STUCK: Duration = Duration::from_millis(10);

/// What a send queue is made of, once and again.
#[derive(Clone, Debug)]
pub(crate) struct SendParts {
    pub(crate) pd: Arc<Pd>,
    pub(crate) blocks: u32,
    pub(crate) port: u8,
    /// The ring's number, by which its events are known.
    pub(crate) owner: u32,
    pub(crate) clock: Option<CardClock>,
    /// Bytes of the card's memory into which what is sent is copied.
    pub(crate) staged_bytes: usize,
    /// Where failures of the queue are told that no completion tells of.
    pub(crate) mailbox: Arc<Mailbox>,
}

/// An entry that was posted, by its first block.
#[derive(Clone, Copy, Debug, Default)]
struct Posted {
    /// Its first block, by which it is told from one that was there a round before.
    at: u16,
    blocks: u16,
    /// Pieces of memory that it refers to.
    pieces: u32,
    cookie: u64,
}

/// What a queue has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SendCounters {
    pub(crate) frames: u64,
    pub(crate) doorbells: u64,
    /// Of these, those that had the entry with them.
    pub(crate) whole: u64,
    pub(crate) failures: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct SendQueue {
    parts: SendParts,
    /// `None` while it has failed and could not be made anew.
    live: Option<Live>,
    /// By the first block of each.
    posted: Box<[Posted]>,
    /// Handles on what entries refer to: a place for each unit of the queue.
    held: Box<[Option<SendBuffer>]>,
    /// Parts of the card's memory that entries refer to, oldest first, by the first block of each.
    on_card: VecDeque<(u16, CardBuffer)>,
    /// What is copied to the card, if anything is.
    staging: Option<Staging>,
    tail: u16,
    head: u16,
    /// Up to where the card was told.
    rung: u16,
    /// The entry posted last.
    last: u16,
    /// Cookies that are on their way.
    cookies: usize,
    /// Entries with a cookie or with pieces: while there are none, nothing is to be let go of one by one.
    laden: usize,
    completions: VecDeque<Completion>,
    rate: Pacing,
    retry: Retry,
    /// The card is gone, and no queue is made any more.
    is_over: bool,
    /// `tail` and `rung` when the queue was tended last and they had changed, and when that was.
    tended: (u16, u16, Instant),
    pub(crate) counters: SendCounters,
}

/// The queue as the card has it. (The queue pair ends before its completion queue, which it holds.)
#[derive(Debug)]
struct Live {
    qp: SendQp,
    cq: CompletionQueue,
    blocks: Blocks,
    doorbell: Doorbell,
}

/// What counts as room in a queue of so many blocks.
#[inline(always)]
fn room(blocks: usize) -> usize {
    blocks + if mutants::is(Mutant::RoomMiscounted) { 8 } else { 0 }
}

impl Live {
    fn new(parts: &SendParts, rate: Pacing) -> io::Result<Self> {
        let SendParts { pd, blocks, port, owner, .. } = parts;
        let cq = Arc::new(Cq::new(pd, *blocks, None, *owner, Completions::Whole)?);
        let qp = SendQp::new(pd, &cq, *blocks, *port, *owner)?;
        let layout = qp.layout()?;
        let blocks = Blocks::new(&layout, qp.number());
        let live = Self {
            cq: CompletionQueue::new(cq)?,
            blocks,
            // SAFETY: the value holds the queue pair.
            doorbell: unsafe { Doorbell::of_sends(&layout, qp.has_own_register()) },
            qp,
        };
        if rate != Pacing::UNLIMITED && !mutants::is(Mutant::RateForgotten) {
            live.pace(rate)?;
        }
        Ok(live)
    }

    fn pace(&self, rate: Pacing) -> io::Result<()> {
        // (Of steps of a kilobit the next one below, and one for less than that.)
        let kilobits = u32::try_from(rate.rate_bps / 1000).unwrap_or(u32::MAX).max(u32::from(rate.rate_bps > 0));
        self.qp.set_rate(kilobits, rate.burst_bytes, rate.typical_packet_bytes)
    }
}

/// The card's memory that a queue asks for; `None`, and a line in the log: it has not as much.
fn staging(parts: &SendParts) -> Option<Staging> {
    let made = Staging::new(&parts.pd, parts.staged_bytes);
    if let Err(error) = &made {
        tracing::warn!("{} bytes of the card's memory for what is sent are refused: {error}", parts.staged_bytes);
    }
    made.ok()
}

impl SendQueue {
    pub(crate) fn new(parts: SendParts) -> io::Result<Self> {
        let live = Live::new(&parts, Pacing::UNLIMITED)?;
        let count = live.blocks.count();
        let staging = if parts.staged_bytes > 0 { staging(&parts) } else { None };
        Ok(Self {
            parts,
            staging,
            posted: vec![Posted::default(); count].into(),
            held: vec![None; count * UNITS].into(),
            on_card: VecDeque::new(),
            live: Some(live),
            tail: 0,
            head: 0,
            rung: 0,
            last: 0,
            cookies: 0,
            laden: 0,
            completions: VecDeque::with_capacity(count),
            rate: Pacing::UNLIMITED,
            retry: Retry::default(),
            is_over: false,
            tended: (0, 0, Instant::ZERO),
            counters: SendCounters::default(),
        })
    }

    /// Parts of the card's memory that frames on their way are made of.
    pub(crate) fn on_card(&self) -> impl Iterator<Item = &CardBuffer> {
        self.on_card.iter().map(|(_, buffer)| buffer)
    }

    /// What was sent from the card's memory.
    pub(crate) fn staged(&self) -> StagingCounters {
        self.staging.as_ref().map_or_else(StagingCounters::default, |staging| staging.counters)
    }

    /// Blocks that are the card's.
    pub(crate) fn unsent(&self) -> usize {
        self.head.wrapping_sub(self.tail).into()
    }

    /// Writes an entry for a frame that is no longer than [`INLINE_MAX`], asks for nothing more than checksums, and has no cookie.
    #[inline(always)]
    pub(crate) fn post_short(&mut self, frame: &[u8], checksum: bool) -> Result<(), SendError> {
        let Some(live) = &mut self.live else { return Err(self.no_queue()) };
        let (block, taken) = (self.head, blocks(ds(frame.len(), 0)));
        if usize::from(block.wrapping_sub(self.tail)) + taken > room(self.posted.len()) {
            return Err(SendError::Full);
        }
        let checksums = if checksum && !mutants::is(Mutant::ChecksumsUnasked) { BOTH_CHECKSUMS } else { 0 };
        if !live.blocks.write_short(block, taken, frame, checksums) {
            let ask = Ask { opcode: sys::MLX5_OPCODE_SEND, checksums, mss: 0 };
            live.blocks.begin(block, frame.len(), 0, ask).put_head(frame, None);
        }
        let place = live.blocks.place(block);
        self.posted[place] = Posted { at: block, blocks: taken as u16, pieces: 0, cookie: 0 };
        (self.last, self.head) = (block, block.wrapping_add(taken as u16));
        self.counters.frames += 1;
        Ok(())
    }

    /// Whether it has failed, and could not be made anew yet.
    pub(crate) fn is_missing(&self) -> bool {
        self.live.is_none() && !self.is_over
    }

    /// Why nothing is posted while there is no queue.
    #[cold]
    fn no_queue(&self) -> SendError {
        if self.is_over { SendError::NoPeer } else { SendError::Full }
    }

    /// Writes an entry for a frame whose length and offloads were looked at.
    pub(crate) fn post(&mut self, frame: &TxFrame<'_, SendBuffer>, cookie: u64) -> Result<(), SendError> {
        let Some(live) = &mut self.live else { return Err(self.no_queue()) };
        if cookie != 0 && self.cookies + self.completions.len() >= self.posted.len() {
            return Err(SendError::Full);
        }
        let TxOffload { checksum, tso_mss, vlan, dummy, .. } = frame.offload;
        let head = head_len(frame.head.len(), vlan);
        let whole = head_len(frame.len(), vlan);
        // (A large send has its headers in line, and nothing else. What lies on the card is not fetched to be put in line.)
        let is_whole = whole <= INLINE_MAX && tso_mss.is_none() && !frame.body.iter().any(|slice| slice.buffer.is_on_card());
        let in_line = if is_whole { whole } else { head };
        let mut pieces = if is_whole { 0 } else { frame.body.iter().filter(|slice| slice.len > 0).count() };
        if usize::from(self.head.wrapping_sub(self.tail)) + blocks(ds(in_line, pieces)) > room(self.posted.len()) {
            return Err(SendError::Full);
        }
        let staging = self.staging.as_mut().filter(|_| pieces > 0);
        let staged = staging.and_then(|staging| staging.stage(self.head, frame.body));
        if staged.is_some() {
            pieces = 1;
        }
        let taken = blocks(ds(in_line, pieces));
        let ask = Ask {
            opcode: match (dummy, tso_mss) {
                (true, _) => sys::MLX5_OPCODE_NOP,
                (false, Some(_)) => sys::MLX5_OPCODE_TSO,
                (false, None) => sys::MLX5_OPCODE_SEND,
            },
            checksums: if (checksum || tso_mss.is_some()) && !mutants::is(Mutant::ChecksumsUnasked) { BOTH_CHECKSUMS } else { 0 },
            mss: if mutants::is(Mutant::CutForgotten) { 0 } else { tso_mss.unwrap_or(0) },
        };
        let block = self.head;
        let place = live.blocks.place(block);
        let mut entry = live.blocks.begin(block, in_line, pieces, ask);
        entry.put_head(frame.head, vlan);
        if is_whole {
            for slice in frame.body {
                let Some(part) = slice.buffer.in_process(slice.offset, slice.len) else { continue };
                // SAFETY: within a send buffer, to which nobody writes there any more, and which is no part of the queue.
                unsafe { entry.put(part, slice.len) };
            }
        } else if let Some((at, lkey)) = staged {
            entry.point(core::ptr::without_provenance(at), frame.len() - frame.head.len(), lkey);
        } else {
            for (at, slice) in frame.body.iter().filter(|slice| slice.len > 0).enumerate() {
                let (part, lkey) = slice.buffer.part(slice.offset, slice.len);
                entry.point(part, slice.len, lkey);
                if let Place::Card(buffer) = &slice.buffer.0 {
                    self.on_card.push_back((block, buffer.slice(slice.offset, slice.len)));
                }
                let unit = (place * UNITS + at) & (self.held.len() - 1);
                self.held[unit] = (!mutants::is(Mutant::BuffersLetGo)).then(|| slice.buffer.clone());
            }
        }
        if cookie != 0 {
            // (Its time is its own.)
            live.blocks.ask_completion(block);
        }
        self.posted[place] = Posted { at: block, blocks: taken as u16, pieces: pieces as u32, cookie };
        self.cookies += usize::from(cookie != 0);
        self.laden += usize::from(cookie != 0 || pieces > 0);
        (self.last, self.head) = (block, block.wrapping_add(taken as u16));
        self.counters.frames += 1;
        Ok(())
    }

    /// Hands over what was posted.
    #[inline(always)]
    pub(crate) fn doorbell(&mut self) {
        let Some(live) = &mut self.live else { return };
        if self.rung == self.head {
            return;
        }
        let asks_late = mutants::is(Mutant::AskedTooLate);
        let bell = if asks_late { live.blocks.bell(self.last) } else { live.blocks.ask_completion(self.last) };
        // (What is sent alone is waited for, most likely; where the next is there already, the card fetches several at once.)
        let (is_alone, blocks) = (self.rung == self.last, self.head.wrapping_sub(self.last));
        if is_alone && blocks <= live.doorbell.blocks_max() {
            // SAFETY: the entry's blocks are in the queue, and written.
            unsafe { live.doorbell.send_whole(self.head, blocks.into(), live.blocks.from(self.last)) };
            self.counters.whole += 1;
        } else {
            live.doorbell.ring_sends(self.head, bell);
        }
        if asks_late {
            live.blocks.ask_completion(self.last);
        }
        self.rung = self.head;
        self.counters.doorbells += 1;
    }

    /// Changes the first block of the entry posted last.
    ///
    /// # Safety
    /// The card does what the entry says.
    #[cold]
    pub(crate) unsafe fn change_last(&mut self, change: impl FnOnce(&mut [u8; 64])) {
        if let Some(live) = &mut self.live
            && self.rung != self.head
        {
            // SAFETY: a block of the queue that the card was not told of, and that nobody else refers to.
            change(unsafe { &mut *live.blocks.block(self.last) });
        }
    }

    /// Takes completions. Whether frames were lost.
    #[inline(always)]
    pub(crate) fn reap(&mut self) -> bool {
        while self.tail != self.rung
            && let Some(live) = &mut self.live
        {
            match live.cq.peek_sent() {
                Ok(cqe) if self.laden == 0 => {
                    live.cq.advance();
                    self.complete_all_through(cqe.counter());
                }
                Err(false) => break,
                Ok(_) | Err(true) => {
                    if self.reap_next() {
                        return true;
                    }
                }
            }
        }
        if let Some(live) = &mut self.live {
            live.cq.release();
        }
        false
    }

    /// Does what nobody may come to otherwise, as long as the queue is short of nothing. Whether frames were lost.
    ///
    /// A failure is taken notice of, also where nothing but short frames was sent, for which nobody reaps; a queue that could not be made anew is tried once more; and
    /// where nothing has moved for [`STUCK`], the doorbell is rung again: should the card have missed one, what it was for would wait for the next frame, and if there is no
    /// room for one, for ever.
    #[cold]
    pub(crate) fn tend(&mut self, now: Instant) -> bool {
        if self.live.is_none() {
            if !self.is_over && self.retry.is_due() {
                self.make_anew();
            }
            return false;
        }
        let are_lost = !mutants::is(Mutant::FailureUnnoticed) && self.reap();
        let (tail, rung, since) = self.tended;
        if (tail, rung) != (self.tail, self.rung) || self.tail == self.rung {
            self.tended = (self.tail, self.rung, now);
        } else if now >= since + STUCK
            && self.rung == self.head
            && !mutants::is(Mutant::BellOnce)
            && let Some(live) = &mut self.live
        {
            live.doorbell.ring_sends(self.rung, live.blocks.bell(self.last));
            self.tended = (self.tail, self.rung, now);
            self.counters.doorbells += 1;
        }
        are_lost
    }

    /// Takes a completion, perhaps of a failure. Whether it was.
    #[inline(never)]
    fn reap_next(&mut self) -> bool {
        let Some(cqe) = self.live.as_mut().and_then(|live| live.cq.take()) else { return false };
        if !cqe.is_sent() {
            self.fail(cqe);
            return true;
        }
        let (counter, cycles) = (cqe.counter(), cqe.cycles());
        let at = self.parts.clock.map(|clock| clock.time(cycles));
        self.complete_through(counter, at);
        false
    }

    pub(crate) fn next_completion(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    /// All entries up to the one that begins at `counter` were sent, which the card says, and there is nothing to be done for any of them.
    #[inline(always)]
    fn complete_all_through(&mut self, counter: u16) {
        if counter == self.last && self.rung == self.head {
            self.tail = self.head;
        } else {
            self.complete_some_through(counter);
        }
    }

    /// The same, where more were posted since.
    #[inline]
    fn complete_some_through(&mut self, counter: u16) {
        let posted = self.posted[usize::from(counter) & (self.posted.len() - 1)];
        if counter.wrapping_sub(self.tail) >= self.rung.wrapping_sub(self.tail) || posted.at != counter || posted.blocks == 0 {
            return self.say_senseless(counter);
        }
        self.tail = counter.wrapping_add(posted.blocks);
    }

    #[cold]
    fn say_senseless(&self, counter: u16) {
        tracing::error!("the card has sent entry {counter:#x}, of {:#x} to {:#x}", self.tail, self.rung);
    }

    /// All entries up to the one that begins at `counter` were sent, which the card says.
    fn complete_through(&mut self, counter: u16, at: Option<Instant>) {
        // (What it says of no entry is not believed.)
        if counter.wrapping_sub(self.tail) >= self.rung.wrapping_sub(self.tail) {
            return self.say_senseless(counter);
        }
        while self.tail != self.rung {
            let is_last = self.tail == counter;
            self.let_go(SendStatus::Sent, at);
            if is_last {
                break;
            }
        }
    }

    /// The oldest entry is done.
    fn let_go(&mut self, status: SendStatus, at: Option<Instant>) {
        let place = usize::from(self.tail) & (self.posted.len() - 1);
        let Posted { blocks, pieces, cookie, .. } = core::mem::take(&mut self.posted[place]);
        self.laden -= usize::from(cookie != 0 || pieces > 0);
        while self.on_card.front().is_some_and(|(block, _)| *block == self.tail) {
            self.on_card.pop_front();
        }
        if let Some(staging) = &mut self.staging {
            staging.let_go(self.tail);
        }
        for at in 0..pieces as usize {
            let unit = (place * UNITS + at) & (self.held.len() - 1);
            self.held[unit] = None;
        }
        if cookie != 0 && mutants::is(Mutant::CookieLost) && self.cookies > 1 {
            self.cookies -= 1;
        } else if cookie != 0 {
            self.cookies -= 1;
            self.completions.push_back(Completion { cookie, at: at.filter(|_| status == SendStatus::Sent), status });
        }
        self.tail = self.tail.wrapping_add(blocks.max(1));
    }

    /// An entry has failed, and the queue with it.
    #[cold]
    fn fail(&mut self, cqe: Cqe) {
        let (counter, (syndrome, vendor)) = (cqe.counter(), cqe.syndromes());
        tracing::warn!("send entry {counter:#x} has failed: syndrome {syndrome:#x}, {vendor:#x}");
        // (The completion is read no more: with the queue pair its queue ends.)
        self.give_up(Some(counter));
    }

    /// Ends the queue pair and makes another one. Of what was posted, the entry at `failed` failed, and those behind it were not tried; those before it were sent.
    #[cold]
    pub(crate) fn give_up(&mut self, failed: Option<u16>) {
        self.counters.failures += u64::from(!self.is_over);
        self.live = None;
        // (Its failure was told by an event as well, perhaps.)
        self.parts.mailbox.forget(SEND_FAILED);
        let failed = failed.filter(|at| at.wrapping_sub(self.tail) < self.head.wrapping_sub(self.tail));
        let mut status = if failed.is_some() { SendStatus::Sent } else { SendStatus::Flushed };
        while self.tail != self.head {
            if failed == Some(self.tail) && !mutants::is(Mutant::FailedIsSent) {
                status = SendStatus::Failed;
            }
            self.let_go(status, None);
            if status == SendStatus::Failed {
                status = SendStatus::Flushed;
            }
        }
        self.make_anew();
    }

    /// The card is gone, and what was posted with it.
    #[cold]
    pub(crate) fn end(&mut self) {
        self.is_over = true;
        self.give_up(None);
    }

    #[cold]
    fn make_anew(&mut self) {
        (self.tail, self.head, self.rung, self.last) = (0, 0, 0, 0);
        if self.is_over || mutants::is(Mutant::NotMadeAnew) {
            return;
        }
        match Live::new(&self.parts, self.rate) {
            // (As many blocks as before, since nothing else was asked for.)
            Ok(live) if live.blocks.count() == self.posted.len() => self.live = Some(live),
            Ok(live) => tracing::error!("a send queue of {} blocks, and not {}", live.blocks.count(), self.posted.len()),
            Err(error) => tracing::error!("a send queue that has failed is not made anew yet: {error}"),
        }
        self.retry.ended(self.live.is_some());
    }

    /// Holds the queue to a rate.
    pub(crate) fn pace(&mut self, rate: Pacing) -> io::Result<()> {
        if let Some(live) = self.live.as_ref().filter(|_| !mutants::is(Mutant::RateUnpassed)) {
            live.pace(rate)?;
        }
        self.rate = rate;
        Ok(())
    }
}
