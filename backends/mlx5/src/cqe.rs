//! A completion queue as it lies in memory: who owns an entry, what it says, how the card is told what was taken, and how an event is asked for.

mod run;

use std::io;
use std::sync::Arc;

use rdma_core_sys as sys;
use rdma_core_sys::mlx5_cqe64;

use ringway_stack::device::{ChecksumVerdict, RxMeta};

use crate::barrier;
use crate::clock::CardClock;
use crate::doorbell::Doorbell;
use crate::mutants::{self, Mutant};
use crate::verbs::Cq;
pub(crate) use run::{RUN_MAX, Run, Words};

/// Bits of a counter of completions.
const COUNTER: u32 = 0xff_ffff;
/// The format of what begins a compressed run, of two bits (linux/mlx5/device.h; infiniband/mlx5dv.h has none for it).
const COMPRESSED: u8 = 3;
/// Bytes of what a completion says; in an entry of 128 it is the second half.
const CQE: usize = size_of::<mlx5_cqe64>();

/// The owner's bit of a round.
#[inline(always)]
fn round_of(taken: u32, entries: u32) -> u8 {
    let is_odd = taken & (entries << u32::from(mutants::is(Mutant::OwnerTurnsLate))) != 0;
    u8::from(is_odd != mutants::is(Mutant::OwnerInverted))
}

/// Whether an entry is the driver's: the card has written it, and in this round. Rounds are told apart by the owner's bit.
#[inline(always)]
pub(crate) fn is_owned(op_own: u8, taken: u32, entries: u32) -> bool {
    let round = round_of(taken, entries);
    op_own < sys::MLX5_CQE_INVALID << 4 && op_own & sys::MLX5_CQE_OWNER_MASK == round
}

/// Where completions lie.
#[derive(Clone, Copy, Debug)]
struct Entries {
    /// The first one. Invariant: there are `count`, a power of two and one more than `mask`, 2^`log_stride` bytes from one to the next.
    first: *mut u8,
    count: u32,
    mask: u32,
    log_stride: u32,
}

impl Entries {
    /// The completion of a running counter.
    #[inline(always)]
    fn at(self, taken: u32) -> *mut mlx5_cqe64 {
        // SAFETY: one of the completions.
        unsafe { self.first.add(((taken & self.mask) as usize) << self.log_stride).cast() }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    /// Invariant: they live as long as `cq`.
    entries: Entries,
    doorbell: Doorbell,
    number: u32,
    /// Completions taken, a running counter. (The card's has fewer bits.)
    taken: u32,
    /// Of them, those that the card was told of.
    told: u32,
    /// Events that have come: a request has its number, so that the card tells an old one from a new one.
    events: u32,
    /// Compressed runs that were taken.
    runs: u64,
    /// Of a queue that compresses: the run that is being taken.
    run: Option<Box<Run>>,
    cq: Arc<Cq>,
}

// SAFETY: the memory is the queue's, which is there as long as the value; who has the value is the only one to read and write it, beside the card.
unsafe impl Send for CompletionQueue {}

impl CompletionQueue {
    pub(crate) fn new(cq: Arc<Cq>) -> io::Result<Self> {
        let layout = cq.layout()?;
        // SAFETY: the value holds the queue.
        let doorbell = unsafe { Doorbell::of_completions(&layout) };
        let sys::mlx5dv_cq { buf, cqe_cnt, cqe_size, cqn, .. } = layout;
        let stride = (cqe_size as usize).max(CQE);
        // SAFETY: within the first entry, at whose end its completion is.
        let first = unsafe { buf.cast::<u8>().add(stride - CQE) };
        let log_stride = if mutants::is(Mutant::CqeStride) { CQE.ilog2() } else { stride.ilog2() };
        let entries = Entries { first, count: cqe_cnt, mask: cqe_cnt - 1, log_stride };
        let run = cq.compresses().map(|strides| Box::new(Run::new(strides)));
        Ok(Self { entries, doorbell, number: cqn, taken: 0, told: 0, events: 0, runs: 0, run, cq })
    }

    pub(crate) fn cq(&self) -> &Arc<Cq> {
        &self.cq
    }

    /// The next completion, if the card has written it.
    #[inline(always)]
    fn peek(&self) -> Option<Cqe> {
        let cqe = Cqe(self.entries.at(self.taken));
        if !is_owned(cqe.op_own(), self.taken, self.entries.count) {
            return None;
        }
        barrier::after_owner();
        Some(cqe)
    }

    /// The completion behind the `ahead` next ones, if the card has written it and it is of a frame that was received, and [plain](Cqe::is_frame): one comparison tells.
    /// Else: whether there is one, of something else. (None [of a run](Self::is_in_run).)
    #[inline(always)]
    pub(crate) fn peek_frame(&self, ahead: u32) -> Result<Cqe, bool> {
        self.peek_of(sys::MLX5_CQE_RESP_SEND, ahead)
    }

    /// The next completion, if the card has written it and it is of an entry that was sent; else whether there is one, of something else.
    #[inline(always)]
    pub(crate) fn peek_sent(&self) -> Result<Cqe, bool> {
        self.peek_of(sys::MLX5_CQE_REQ, 0)
    }

    #[inline(always)]
    fn peek_of(&self, opcode: u8, ahead: u32) -> Result<Cqe, bool> {
        let taken = self.taken.wrapping_add(ahead);
        let (cqe, round) = (Cqe(self.entries.at(taken)), round_of(taken, self.entries.count));
        let op_own = cqe.op_own();
        // (Whether it was solicited does not matter.)
        if op_own & !2 != opcode << 4 | round {
            return Err(is_owned(op_own, taken, self.entries.count));
        }
        barrier::after_owner();
        Ok(cqe)
    }

    /// Whether there is a completion, of a run that was begun as well.
    #[inline(always)]
    pub(crate) fn is_ready(&self) -> bool {
        self.is_in_run() || self.peek().is_some()
    }

    /// Whether a run was begun, whose completions do not lie where others do.
    #[inline(always)]
    pub(crate) fn is_in_run(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.is_open())
    }

    /// Takes the next completion, of a run as well. It is there until the next one is taken, and until the card is told.
    pub(crate) fn take(&mut self) -> Option<Cqe> {
        if !self.is_in_run() {
            let cqe = self.peek()?;
            if !cqe.is_title() || !self.begin_run() {
                self.advance();
                return Some(cqe);
            }
        }
        self.advance();
        self.run.as_mut().map(|run| Cqe(run.step()))
    }

    /// The run that was begun, or that begins with what is next, if one does.
    #[inline(always)]
    pub(crate) fn open_run(&mut self) -> Option<&mut Run> {
        self.run.as_ref()?;
        let is_open = self.is_in_run() || self.peek().is_some_and(Cqe::is_title) && self.begin_run();
        if is_open { self.run.as_deref_mut() } else { None }
    }

    /// Begins the run whose title is next.
    #[inline(never)]
    fn begin_run(&mut self) -> bool {
        let Self { entries, taken, .. } = *self;
        // SAFETY: the title's owner is the driver, and so is that of all the run's.
        let has_begun =
            self.run.as_mut().is_some_and(|run| unsafe { run.begin(entries.count, |ahead| entries.at(taken.wrapping_add(ahead))) });
        self.runs += u64::from(has_begun);
        has_begun
    }

    /// Compressed runs that were taken.
    pub(crate) fn runs(&self) -> u64 {
        self.runs
    }

    /// Takes all that is there.
    #[cold]
    pub(crate) fn drain(&mut self) {
        while self.take().is_some() {}
    }

    /// So many completions that were looked at are taken.
    #[inline(always)]
    pub(crate) fn advance_by(&mut self, count: u32) {
        self.taken = self.taken.wrapping_add(count);
    }

    /// What the run that is open says of the frame behind the `ahead` next ones.
    #[inline(always)]
    pub(crate) fn run_words(&self, ahead: usize) -> Option<Words> {
        self.run.as_ref()?.words(ahead)
    }

    /// So many frames of the run that is open are taken.
    #[inline(always)]
    pub(crate) fn advance_run(&mut self, count: u32) {
        if let Some(run) = &mut self.run {
            run.advance_by(count as usize);
        }
        self.advance_by(count);
    }

    /// The completion that was looked at is taken.
    #[inline(always)]
    pub(crate) fn advance(&mut self) {
        self.taken = self.taken.wrapping_add(1);
    }

    /// Tells the card which entries it may write again.
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        if self.told != self.taken && !mutants::is(Mutant::ConsumerForgotten) {
            self.told = self.taken;
            self.doorbell.take_completions(self.taken.wrapping_add(u32::from(mutants::is(Mutant::ConsumerAhead))) & COUNTER);
        }
    }

    /// Asks for one event: at the next completion, or at once if there is one that was not taken.
    pub(crate) fn arm(&mut self) {
        self.doorbell.arm(self.number, self.taken & COUNTER, self.events);
    }

    /// Takes the events that have come.
    pub(crate) fn take_events(&mut self) {
        let events = self.cq.take_events();
        self.events = self.events.wrapping_add(if mutants::is(Mutant::EventsUncounted) { 0 } else { events });
    }
}

/// A completion that the card has written. It stays so until the card is told that it was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cqe(*const mlx5_cqe64);

/// Reads a field, in the card's order of bytes: a single read of memory.
macro_rules! field {
    ($cqe:expr, $($path:ident).+) => {
        // SAFETY: a completion lies there, whose bytes are of any value; the pointer is aligned as its entry is.
        unsafe { (&raw const (*$cqe.0).$($path).+).read_volatile() }
    };
}

impl Cqe {
    #[inline(always)]
    fn op_own(self) -> u8 {
        field!(self, op_own)
    }

    /// Whether it is of an entry that was sent.
    #[inline(always)]
    pub(crate) fn is_sent(self) -> bool {
        self.op_own() & !3 == sys::MLX5_CQE_REQ << 4
    }

    /// Whether it is of a received frame, and its bytes are what this module reads: no compressed one, and no payload in it.
    #[inline(always)]
    pub(crate) fn is_frame(self) -> bool {
        self.op_own() & !3 == sys::MLX5_CQE_RESP_SEND << 4
    }

    /// Whether it begins a compressed run.
    #[inline(always)]
    fn is_title(self) -> bool {
        self.op_own() >> 2 & 3 == COMPRESSED
    }

    /// Of a striding queue: the entry, in the card's order of bytes, whose first stride of the frame is [`counter`](Self::counter).
    #[inline(always)]
    pub(crate) fn striding_entry(self) -> u16 {
        field!(self, head.packet.wqe_id)
    }

    /// The entry that it is of.
    #[inline(always)]
    pub(crate) fn counter(self) -> u16 {
        u16::from_be(field!(self, wqe_counter))
    }

    /// Bytes received.
    #[inline(always)]
    pub(crate) fn byte_count(self) -> u32 {
        u32::from_be(field!(self, byte_cnt))
    }

    /// When, by the card's clock.
    #[inline(always)]
    pub(crate) fn cycles(self) -> u64 {
        u64::from_be(field!(self, timestamp))
    }

    /// The tag of the rule that a received frame came by; zero: none.
    #[inline(always)]
    pub(crate) fn flow_tag(self) -> u32 {
        let tag = field!(self, sop_drop_qpn);
        if mutants::is(Mutant::TagSwapped) { tag } else { u32::from_be(tag) & 0xff_ffff }
    }

    /// Whether the card has found both checksums of a received frame right. (If not: it is wrong, or was not looked at.)
    #[inline(always)]
    pub(crate) fn has_good_checksums(self) -> bool {
        let both = sys::MLX5_CQE_L3_OK | sys::MLX5_CQE_L4_OK;
        field!(self, head.packet.hds_ip_ext) & both == both || mutants::is(Mutant::VerdictBlind)
    }

    /// What it says of a frame.
    #[inline(always)]
    pub(crate) fn meta(self, clock: Option<&CardClock>) -> RxMeta {
        let hardware_time = clock.map(|clock| clock.time(self.cycles()));
        RxMeta {
            flow_tag: self.flow_tag(),
            checksum: if self.has_good_checksums() { ChecksumVerdict::Good } else { ChecksumVerdict::Unknown },
            vlan: self.vlan(),
            hardware_time,
            coalesced: 0,
        }
    }

    /// The VLAN tag that was taken off.
    #[inline(always)]
    pub(crate) fn vlan(self) -> Option<u16> {
        let is_tagged = field!(self, head.packet.l4_hdr_type_etc) & 1 != 0 && !mutants::is(Mutant::VlanLost);
        is_tagged.then(|| u16::from_be(field!(self, head.packet.vlan_info)))
    }

    /// Of a failure: the syndrome, and the vendor's own.
    pub(crate) fn syndromes(self) -> (u8, u8) {
        let failed: *const sys::mlx5_err_cqe = self.0.cast();
        // SAFETY: a completion of a failure has the same size, and its bytes may be of any value.
        unsafe { ((&raw const (*failed).syndrome).read_volatile(), (&raw const (*failed).vendor_err_synd).read_volatile()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_owned_in_the_round_that_its_bit_says() {
        let sent = sys::MLX5_CQE_REQ << 4;
        for (taken, bit) in [(0, 0), (7, 0), (8, 1), (15, 1), (16, 0), (COUNTER, 1)] {
            assert!(is_owned(sent | bit, taken, 8) && !is_owned(sent | (1 - bit), taken, 8), "{taken}");
            assert!(!is_owned(sys::MLX5_CQE_INVALID << 4 | bit, taken, 8), "never written");
        }
    }
}
