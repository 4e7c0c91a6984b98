//! A ring: a receive queue, a send queue, and the memory of both.

mod host;

use core::time::Duration;
use std::io;
use std::sync::Arc;

use ringway_host::CardSleep;
use ringway_stack::device::{
    Completion, CyclicConfig, CyclicError, CyclicId, CyclicPacket, Device as _, DeviceEvent, DeviceMemory, DeviceMemoryError, HEAD_MAX,
    MacAddr, Pacing, QueueId, Queues, RxBatch, SendError, TxFrame, TxOffload, Unsupported, Wake,
};
use ringway_stack::time::Instant;

use crate::buffer::{Place, SendBuffer};
use crate::card::Mlx5Device;
use crate::clock::CardClock;
use crate::cqe::{CompletionQueue, Cqe};
use crate::cyclic::{Cyclic, Parts};
use crate::device_memory::OnCard;
use crate::error::AttachError;
use crate::mailbox::{Mailbox, RECEIVE_FAILED, RECEIVE_LOST, SEND_FAILED};
use crate::memory::{Memory, Received, Sizes};
use crate::mutants::{self, Mutant};
use crate::receive::{ReceiveQueue, Taken};
use crate::retry::Retry;
use crate::send::{SendParts, SendQueue};
use crate::verbs::Wq;
use crate::wqe::{DS_MAX, INLINE_MAX, ds, head_len};

/// Bytes of an Ethernet header, with a VLAN tag.
const ETHERNET_MAX: usize = 18;
/// The smallest chunk: as much as a frame of 1500 bytes wants, and a power of two.
const CHUNK_MIN: usize = 2048;
/// Frames that a ring has at the least to receive into.
const FRAMES_MIN: u32 = 16;
/// How often queues are looked after.
const TEND_EVERY: Duration = Duration::from_millis(1);
/// Cyclic queues of a ring.
const CYCLIC_MAX: usize = 64;
/// Of a send queue: what the card and the library allow.
const BLOCKS: core::ops::RangeInclusive<u32> = 64..=8192;

/// What a ring has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames received.
    pub received: u64,
    /// Frames posted to send.
    pub sent: u64,
    /// Times that the card was told of them.
    pub doorbells: u64,
    /// Of these, those by which it was given the only frame's entry as well (BlueFlame).
    pub whole_entries: u64,
    /// Frames that were copied, for the card to have where they lay.
    pub copied: u64,
    /// Times that the receive queue failed and was started again.
    pub receive_failures: u64,
    /// Times that the send queue failed and was made anew.
    pub send_failures: u64,
    /// Frames whose payload was copied into the card's memory and sent from there, and bytes of it; and frames for which there was no room
    /// ([`Settings::staged_bytes`](crate::Settings::staged_bytes)).
    pub staged: u64,
    /// See `staged`.
    pub staged_bytes: u64,
    /// See `staged`.
    pub staged_not: u64,
    /// Compressed runs of completions, of the receive queue that is there and of cyclic queues.
    pub compressed_runs: u64,
}

/// How a receive queue that has failed comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// It is reset.
    Reset,
    /// Its completion queue has failed: both are made anew.
    Anew,
}

/// A ring of a card.
#[derive(Debug)]
pub struct Mlx5Queues {
    id: u32,
    receive: ReceiveQueue,
    send: SendQueue,
    sleep: CardSleep,
    mailbox: Arc<Mailbox>,
    memory: Arc<Memory>,
    on_card: OnCard,
    clock: Option<CardClock>,
    /// Short frames come with a handle as well.
    lends_heads: bool,
    /// Cyclic queues, by their names, and the last name.
    cyclic: Vec<(u64, Cyclic)>,
    last_cyclic: u64,
    /// Frames of so many bytes are sent in line, and fit whatever their head is.
    short_max: usize,
    /// The card fills in checksums.
    has_checksums: bool,
    /// Chunks that are to be posted.
    refill: Vec<u32>,
    /// Chunks that others have handles on, or had until lately.
    held: usize,
    /// Frames were lost, and nobody was told yet.
    was_reset: bool,
    /// The receive queue could not be started again, or not be made anew.
    stopped: Option<Again>,
    /// The card is gone.
    is_gone: bool,
    /// When its queues are looked after next.
    tend_at: Instant,
    retry: Retry,
    counters: Counters,
    device: Mlx5Device,
}

impl Mlx5Queues {
    pub(crate) fn open(device: &Mlx5Device, id: u32) -> Result<Self, AttachError> {
        let settings = device.settings();
        let mtu = device.capabilities().mtu;
        let receives = settings.received_frames.clamp(FRAMES_MIN, 1 << 15).next_power_of_two();
        let sizes = Sizes {
            chunk: (mtu + ETHERNET_MAX).next_power_of_two().max(CHUNK_MIN),
            receives,
            sends: settings.send_buffers.max(FRAMES_MIN),
            copies: settings.copied_frames,
            returned: true,
            huge_pages: settings.huge_pages,
        };
        let memory = Arc::new(Memory::register(device.pd(), sizes).map_err(AttachError::system("memory for frames"))?);
        let mailbox = device.post().open(id).map_err(AttachError::system("eventfd"))?;
        let closing = |error| {
            device.post().close(id);
            error
        };
        let receive = receive_queue(device, &memory, id).map_err(AttachError::system("a receive queue")).map_err(closing)?;
        let parts = SendParts {
            pd: Arc::clone(device.pd()),
            blocks: settings.send_blocks.clamp(*BLOCKS.start(), *BLOCKS.end()).next_power_of_two(),
            port: settings.port,
            owner: id,
            clock: device.clock(),
            staged_bytes: settings.staged_bytes.min(device.capabilities().device_memory),
            mailbox: Arc::clone(&mailbox),
        };
        let send = SendQueue::new(parts).map_err(AttachError::system("a send queue")).map_err(closing)?;
        let sleep = CardSleep::new(core::iter::once(receive.channel_fd()), &[mailbox.waker.fd()]);
        let sleep = sleep.map_err(AttachError::system("epoll")).map_err(closing)?;
        let on_card = OnCard::new(device.pd());
        let (clock, device, refill) = (device.clock(), device.clone(), memory.receives().collect());
        let (lends_heads, was_reset, is_gone, stopped, held) = (false, false, false, None, 0);
        let (retry, counters) = (Retry::default(), Counters::default());
        let (short_max, has_checksums) = (INLINE_MAX.min(mtu + ETHERNET_MAX - 4), device.capabilities().tx_checksum);
        let mut ring = Self {
            id,
            receive,
            send,
            sleep,
            mailbox,
            memory,
            on_card,
            clock,
            lends_heads,
            cyclic: Vec::new(),
            last_cyclic: 0,
            short_max,
            has_checksums,
            refill,
            held,
            was_reset,
            stopped,
            is_gone,
            tend_at: Instant::ZERO,
            retry,
            counters,
            device,
        };
        ring.refill();
        Ok(ring)
    }

    /// What it has done.
    pub fn counters(&self) -> Counters {
        let crate::send::SendCounters { frames, doorbells, whole, failures } = self.send.counters;
        let cyclic = self.cyclic.iter().map(|(_, cyclic)| cyclic.cq().runs());
        let compressed_runs = self.receive.cq().runs() + cyclic.sum::<u64>();
        let staged = self.send.staged();
        Counters {
            compressed_runs,
            sent: frames,
            doorbells,
            whole_entries: whole,
            send_failures: failures,
            staged: staged.frames,
            staged_bytes: staged.bytes,
            staged_not: staged.too_full,
            ..self.counters
        }
    }

    /// Shows the first block of the entry that was posted last, before the card is told of it, to be changed: so tests ask what the card says of wrong ones.
    ///
    /// # Safety
    /// The card does what the entry says, with whatever memory it names.
    #[doc(hidden)]
    pub unsafe fn change_last_entry(&mut self, change: impl FnOnce(&mut [u8; 64])) {
        // SAFETY: the caller's promise.
        unsafe { self.send.change_last(change) };
    }

    /// Where a cyclic queue's buffer lies, how long it is in bytes, and by which key the card knows it. It is there as long as the queue, and the card writes
    /// where nobody has a handle.
    pub fn cyclic_memory(&self, queue: CyclicId) -> Option<(*mut u8, usize, u32)> {
        self.cyclic.iter().find(|(name, _)| *name == queue.0).map(|(_, cyclic)| cyclic.buffer())
    }

    /// Received frames that others have handles on, or had when frames were taken last.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Blocks of the send queue whose frames are not known to have left.
    pub fn unsent(&self) -> usize {
        self.send.unsent()
    }

    pub(crate) fn wq(&self) -> &Arc<Wq> {
        self.receive.wq()
    }

    /// Gives the card chunks to receive into.
    #[inline(always)]
    fn refill(&mut self) {
        if self.memory.has_returned() || !self.refill.is_empty() {
            self.post_returned();
        }
        self.receive.publish();
    }

    #[inline(never)]
    fn post_returned(&mut self) {
        self.held -= self.memory.take_returned(&mut self.refill).min(self.held);
        while let Some(chunk) = self.refill.pop() {
            if !self.receive.post(chunk) {
                self.refill.push(chunk);
                break;
            }
        }
    }

    /// Takes frames that go into a head, as long as nothing else comes: how many, and whether there is more.
    #[inline(always)]
    fn receive_short(&mut self, batch: &mut RxBatch<Received>) -> (usize, bool) {
        let (memory, clock) = (&self.memory, self.clock);
        self.receive.take_short(HEAD_MAX, &mut self.refill, clock, |chunk, len, meta| {
            let Some(head) = batch.push_head(len, meta) else { return false };
            // SAFETY: the card has written the frame there, and nobody has a handle; its chunk is posted again after this, at the earliest.
            unsafe { memory.copy_head(chunk, len, head) };
            true
        })
    }

    /// Takes frames.
    #[inline(always)]
    fn receive(&mut self, batch: &mut RxBatch<Received>) -> usize {
        let (mut count, has_more) = if self.lends_heads { (0, true) } else { self.receive_short(batch) };
        if has_more {
            count += self.receive_any(batch);
        }
        self.receive.release();
        count
    }

    /// Does now and then what is not to be done with each look.
    #[cold]
    fn tend(&mut self, now: Instant) {
        self.tend_at = now + TEND_EVERY;
        self.was_reset |= self.send.tend(now);
        if self.is_gone {
            return;
        }
        if self.device.has_leavers() {
            self.device.dismiss_leavers();
        }
        self.cyclic.iter_mut().for_each(|(_, cyclic)| cyclic.tend());
        if let Some(again) = self.stopped
            && self.retry.is_due()
        {
            self.restart(again);
        }
    }

    /// Takes frames, whatever comes.
    #[inline(never)]
    fn receive_any(&mut self, batch: &mut RxBatch<Received>) -> usize {
        let mut count = 0;
        let mut has_failed = false;
        while !batch.is_full() {
            match self.receive.take() {
                None => break,
                Some(Taken::Frame(chunk, len, cqe)) => {
                    self.deliver(chunk, len, cqe, batch);
                    count += 1;
                }
                Some(Taken::Failed(chunk, cqe)) => {
                    self.refill.push(chunk);
                    if !has_failed {
                        let (syndrome, vendor) = cqe.syndromes();
                        tracing::warn!("a receive has failed: {syndrome:#x}, {vendor:#x}");
                    }
                    has_failed = true;
                }
                Some(Taken::Nothing) => {}
            }
        }
        if has_failed {
            self.restart(Again::Reset);
        }
        count
    }

    #[inline]
    fn deliver(&mut self, chunk: u32, len: usize, cqe: Cqe, batch: &mut RxBatch<Received>) {
        let Some(frame) = batch.push_slot() else { return };
        let head = len.min(HEAD_MAX);
        // SAFETY: the card has written the frame there, and its completion was taken; nobody has a handle yet.
        unsafe { self.memory.copy_head(chunk, head, &mut frame.head) };
        if len <= HEAD_MAX && !self.lends_heads {
            frame.set_head(head);
            self.refill.push(chunk);
        } else if self.held >= self.memory.receives().len() / 2
            // SAFETY: as above.
            && let Some(copy) = self.memory.hold_copy(unsafe { self.memory.bytes(chunk, len) })
        {
            // (Of as many chunks that others have, what comes is copied.)
            self.counters.copied += 1;
            frame.set_whole(head, Some(copy));
            self.refill.push(chunk);
        } else {
            self.held += 1;
            if mutants::is(Mutant::ChunkGivenAway) {
                self.refill.push(chunk);
            }
            frame.set_whole(head, Some(self.memory.hold(chunk, len as u32)));
        }
        frame.meta = cqe.meta(self.clock.as_ref());
    }

    /// The receive queue has failed: it is emptied, and comes back.
    #[cold]
    fn restart(&mut self, again: Again) {
        if self.is_gone {
            return;
        }
        self.counters.receive_failures += 1;
        // (One whose completion queue has failed is of no use until it is made anew.)
        let again = if self.stopped == Some(Again::Anew) { Again::Anew } else { again };
        if mutants::is(Mutant::RestartForgotten) {
            return;
        }
        let started = match again {
            Again::Reset => self.receive.restart(&mut self.refill),
            Again::Anew => self.make_anew(),
        };
        self.stopped = started.as_ref().err().map(|_| again);
        self.retry.ended(started.is_ok());
        self.was_reset = true;
        if let Err(error) = started {
            tracing::error!("a receive queue that has failed is not started again yet: {error}");
        }
    }

    /// Another receive queue takes the place of the one that is there, with all that leads to it.
    #[cold]
    fn make_anew(&mut self) -> io::Result<()> {
        self.receive.stop(&mut self.refill)?;
        let mut made = receive_queue(&self.device, &self.memory, self.id)?;
        self.device.lead_elsewhere(self.id, made.wq())?;
        // (So that whoever sleeps is woken by it, if somebody does.)
        made.cq_mut().arm();
        let former = core::mem::replace(&mut self.receive, made);
        self.sleep_on_all()?;
        drop(former);
        // (Unless it may be a cyclic queue that has failed: then it is this one's turn once more.)
        if self.cyclic.is_empty() {
            self.mailbox.forget(RECEIVE_FAILED | RECEIVE_LOST);
        }
        Ok(())
    }

    /// The card is gone: nothing is asked of it any more.
    #[cold]
    fn end(&mut self) {
        (self.is_gone, self.stopped) = (true, None);
        self.send.end();
        if let Err(error) = self.sleep.set_frames(core::iter::empty()) {
            tracing::error!("what came by a card that is gone is slept on: {error}");
        }
    }

    /// What the card has told of failures that no completion may tell of.
    #[cold]
    fn look_at_failures(&mut self) {
        let failed = self.mailbox.take_failures();
        if failed == 0 || self.is_gone {
            return;
        }
        if failed & SEND_FAILED != 0 {
            self.send.give_up(None);
            self.was_reset = true;
        }
        if failed & (RECEIVE_FAILED | RECEIVE_LOST) != 0 {
            self.restart(if failed & RECEIVE_LOST != 0 { Again::Anew } else { Again::Reset });
            self.refill();
            // (Which of the ring's receive queues it was, nobody has said.)
            self.cyclic.iter_mut().for_each(|(_, cyclic)| cyclic.restart());
        }
    }

    /// Completion queues of everything that is received.
    fn completion_queues(&mut self) -> impl Iterator<Item = &mut CompletionQueue> {
        core::iter::once(self.receive.cq_mut()).chain(self.cyclic.iter_mut().map(|(_, cyclic)| cyclic.cq_mut()))
    }

    /// Whoever sleeps is woken by all queues that the ring has.
    fn sleep_on_all(&mut self) -> io::Result<()> {
        let cyclic = self.cyclic.iter().map(|(_, cyclic)| cyclic.channel_fd());
        self.sleep.set_frames(core::iter::once(self.receive.channel_fd()).chain(cyclic))
    }

    #[inline(always)]
    fn cyclic_mut(&mut self, queue: CyclicId) -> Option<&mut Cyclic> {
        // (Mostly there is one.)
        let (first, others) = self.cyclic.split_first_mut()?;
        let found = if first.0 == queue.0 { first } else { others.iter_mut().find(|(name, _)| *name == queue.0)? };
        Some(&mut found.1)
    }

    fn lacks_striding(&self) -> CyclicError {
        self.device.capabilities().lacks("striding receive queue").into()
    }

    fn has_memory(&self) -> Result<(), DeviceMemoryError> {
        let caps = self.device.capabilities();
        if caps.device_memory > 0 { Ok(()) } else { Err(caps.lacks("device memory").into()) }
    }

    /// What is asked of the card that it does not do to a frame, or to one so long.
    fn check(&self, frame: &TxFrame<'_, SendBuffer>) -> Result<(), SendError> {
        let caps = self.device.capabilities();
        let TxOffload { checksum, tso_mss, vlan, .. } = frame.offload;
        if checksum && !caps.tx_checksum {
            return Err(caps.lacks("checksum offload").into());
        }
        // (A tag that the card puts in is not counted yet.)
        let on_wire = caps.mtu + ethernet_len(frame.head);
        let longest = match tso_mss {
            None => on_wire,
            Some(_) => caps.tso_max.ok_or_else(|| caps.lacks("TSO"))?,
        };
        let mss_fits = tso_mss.is_none_or(|mss| mss > 0 && usize::from(mss) + frame.head.len() <= on_wire);
        let slices = frame.body.len();
        let fits = frame.len() <= longest && frame.head.len() <= HEAD_MAX && slices <= caps.gather_max && mss_fits;
        if !fits || ds(head_len(frame.head.len(), vlan), slices) > DS_MAX {
            return Err(SendError::TooLong);
        }
        Ok(())
    }
}

/// A receive queue of a ring, with as many entries as there are chunks to receive into.
fn receive_queue(device: &Mlx5Device, memory: &Arc<Memory>, ring: u32) -> io::Result<ReceiveQueue> {
    let (entries, strips_tags) = (memory.receives().len() as u32, device.capabilities().vlan_strip);
    ReceiveQueue::new(device.pd(), memory, entries, strips_tags, device.compresses(), ring)
}

/// Bytes of an Ethernet header, with its tag if it has one.
#[inline]
fn ethernet_len(head: &[u8]) -> usize {
    if head.get(12..14) == Some(&[0x81, 0x00]) { ETHERNET_MAX } else { ETHERNET_MAX - 4 }
}

impl Drop for Mlx5Queues {
    fn drop(&mut self) {
        let cyclic = self.cyclic.iter().map(|(_, cyclic)| Arc::clone(cyclic.memory()));
        self.device.leave(self.id, core::iter::once(Arc::clone(&self.memory)).chain(cyclic));
    }
}

impl Queues for Mlx5Queues {
    type Device = Mlx5Device;
    type Rx = Received;
    type Tx = SendBuffer;

    fn device(&self) -> &Mlx5Device {
        &self.device
    }

    fn id(&self) -> QueueId {
        QueueId(self.id)
    }

    fn mac(&self) -> MacAddr {
        self.device.own_mac()
    }

    #[inline]
    fn poll_rx(&mut self, now: Instant, batch: &mut RxBatch<Received>) -> usize {
        if now >= self.tend_at {
            self.tend(now);
        }
        let count = self.receive(batch);
        self.counters.received += count as u64;
        self.refill();
        count
    }

    fn rx_ready(&self) -> bool {
        let has_news = self.mailbox.has_mail() || self.was_reset;
        self.receive.is_ready() || has_news || self.cyclic.iter().any(|(_, cyclic)| cyclic.is_ready())
    }

    /// (A queue that the system refuses to start again tells nobody when it would not.)
    fn deadline(&self) -> Option<Instant> {
        let has_more = !self.is_gone && (self.device.has_leavers() || self.cyclic.iter().any(|(_, cyclic)| cyclic.is_stopped()));
        let is_short = self.stopped.is_some() || self.send.is_missing() || has_more;
        (is_short && !mutants::is(Mutant::StoppedSleeps)).then_some(self.tend_at)
    }

    fn rx_scarce(&self) -> bool {
        let (entries, posted) = self.receive.usage();
        posted < entries / 4
    }

    fn tx_alloc(&mut self, _: usize) -> Option<SendBuffer> {
        self.memory.take_send().map(|buffer| SendBuffer(Place::Host(buffer)))
    }

    fn tx_free(&mut self, _: usize) -> usize {
        self.memory.free_sends() * crate::memory::SEND_BUFFER
    }

    #[inline]
    fn send(&mut self, frame: &TxFrame<'_, SendBuffer>) -> Result<(), SendError> {
        let TxOffload { checksum, tso_mss, vlan, dummy, .. } = frame.offload;
        let is_plain = frame.body.is_empty() && tso_mss.is_none() && vlan.is_none() && !dummy;
        if is_plain && frame.head.len() <= self.short_max && checksum <= self.has_checksums {
            return self.send.post_short(frame.head, checksum);
        }
        self.send_with_cookie(frame, 0)
    }

    fn send_with_cookie(&mut self, frame: &TxFrame<'_, SendBuffer>, cookie: u64) -> Result<(), SendError> {
        self.check(frame)?;
        self.send.post(frame, cookie)
    }

    fn doorbell(&mut self) {
        self.send.doorbell();
    }

    fn reap(&mut self) {
        self.was_reset |= self.send.reap();
    }

    fn completion(&mut self) -> Option<Completion> {
        self.send.next_completion()
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        if self.mailbox.has_mail() {
            self.look_at_failures();
            if let Some(event) = self.mailbox.take() {
                if event == DeviceEvent::Gone {
                    self.end();
                }
                return Some(event);
            }
        }
        for (_, cyclic) in &mut self.cyclic {
            self.was_reset |= cyclic.take_failure();
        }
        core::mem::take(&mut self.was_reset).then_some(DeviceEvent::Reset)
    }

    fn arm(&mut self, _: Wake) -> bool {
        if self.rx_ready() {
            return false;
        }
        for queue in self.completion_queues() {
            queue.take_events();
            queue.arm();
        }
        // (What came meanwhile is an event at once.)
        self.sleep.set_armed(true);
        true
    }

    fn disarm(&mut self) {
        if self.sleep.set_armed(false) {
            self.completion_queues().for_each(CompletionQueue::take_events);
        }
    }

    fn wait_fd(&self) -> Option<i32> {
        Some(self.sleep.fd())
    }

    fn lend_heads(&mut self, on: bool) -> Result<(), Unsupported> {
        self.lends_heads = on;
        Ok(())
    }

    fn dm_alloc(&mut self, len: usize) -> Result<DeviceMemory, DeviceMemoryError> {
        self.has_memory()?;
        self.on_card.alloc(len)
    }

    fn dm_copy_to(&mut self, memory: DeviceMemory, offset: usize, bytes: &[u8]) -> Result<(), DeviceMemoryError> {
        self.has_memory()?;
        self.on_card.copy_to(memory, offset, bytes, self.send.on_card())
    }

    fn dm_copy_from(&mut self, memory: DeviceMemory, offset: usize, out: &mut [u8]) -> Result<(), DeviceMemoryError> {
        self.has_memory()?;
        self.on_card.copy_from(memory, offset, out)
    }

    fn dm_register(&mut self, memory: DeviceMemory, offset: usize, len: usize) -> Result<SendBuffer, DeviceMemoryError> {
        self.has_memory()?;
        Ok(SendBuffer(Place::Card(self.on_card.register(memory, offset, len)?)))
    }

    fn cyclic_create(&mut self, config: &CyclicConfig) -> Result<CyclicId, CyclicError> {
        let Some(caps) = self.device.striding() else { return Err(self.lacks_striding()) };
        if self.is_gone || self.cyclic.len() >= CYCLIC_MAX {
            return Err(CyclicError::Full);
        }
        let of_card = self.device.capabilities();
        let parts = Parts {
            pd: self.device.pd(),
            caps,
            frame_max: of_card.mtu + ETHERNET_MAX,
            strips_tags: of_card.vlan_strip,
            compresses: self.device.compresses(),
            huge_pages: self.device.settings().huge_pages,
            clock: self.clock,
            owner: self.id,
        };
        let queue = Cyclic::new(&parts, config)?;
        let name = self.last_cyclic + 1;
        let full = |error: io::Error| {
            tracing::warn!("a cyclic queue: {error}");
            CyclicError::Full
        };
        self.device.add_cyclic(self.id, name, queue.wq()).map_err(full)?;
        self.cyclic.push((name, queue));
        self.last_cyclic = name;
        self.sleep_on_all().map_err(full)?;
        Ok(CyclicId(name))
    }

    fn cyclic_read(
        &mut self,
        queue: CyclicId,
        packets_max: usize,
        packets: &mut Vec<CyclicPacket>,
    ) -> Result<Option<Received>, CyclicError> {
        let before = packets.len();
        let Some(run) = self.cyclic_mut(queue).map(|queue| queue.read(packets_max, packets)) else {
            return Err(if self.device.striding().is_none() { self.lacks_striding() } else { CyclicError::Unknown });
        };
        self.counters.received += (packets.len() - before) as u64;
        Ok(run)
    }

    fn cyclic_destroy(&mut self, queue: CyclicId) -> Result<(), CyclicError> {
        let Some(held) = self.cyclic_mut(queue).map(|queue| queue.is_held()) else {
            return Err(if self.device.striding().is_none() { self.lacks_striding() } else { CyclicError::Unknown });
        };
        if held || !self.device.remove_cyclic(self.id, queue.0) {
            return Err(CyclicError::Busy);
        }
        let ended = self.cyclic.iter().position(|(name, _)| *name == queue.0).map(|at| self.cyclic.swap_remove(at));
        if let Err(error) = self.sleep_on_all() {
            tracing::error!("queues of a ring that lost one are not slept on: {error}");
        }
        drop(ended);
        Ok(())
    }

    fn dm_free(&mut self, memory: DeviceMemory) -> Result<(), DeviceMemoryError> {
        self.has_memory()?;
        self.on_card.free(memory)
    }

    fn pace(&mut self, pacing: Pacing) -> Result<(), Unsupported> {
        let caps = self.device.capabilities();
        let lacks = caps.lacks("packet pacing at this rate");
        if !caps.pacing {
            return Err(lacks);
        }
        self.send.pace(pacing).map_err(|error| {
            tracing::warn!("a rate is refused: {error}");
            lacks
        })
    }
}
