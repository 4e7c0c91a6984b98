//! A ring: a socket on each of its queues of the interface, over the same memory. Frames leave by the first one's. What comes for another ring of the interface is passed on to
//! it (`strays`).

mod busy;
mod host;
mod kernels;
mod passing;
mod receiving;
mod sending;

use std::sync::Arc;

use ringway_host::CardSleep;
use ringway_stack::device::{
    DeviceEvent, HEAD_MAX, MacAddr, QueueId, Queues, RxBatch, RxFrame, SendError, TxFrame, TxOffload, Unsupported, Wake,
};
use ringway_stack::time::Instant;

use self::busy::BusyPoll;
use self::kernels::Kernels;
use crate::card::XdpDevice;
use crate::coalesce::Coalescing;
use crate::error::AttachError;
use crate::interface::longest;
use crate::settings::Settings;
use crate::socket::XskSocket;
use crate::strays::{Exchange, Path};
use crate::umem::{CHUNK, Received, Umem};
use ringway_host::{SendBuffer, SendMemory};

/// Frames that each queue of the interface has at the least to receive into.
pub(crate) const FRAMES_MIN: u32 = 16;

/// Frames that each ring has at the least to send from, if there are as many.
const SENDS_MIN: u32 = 256;

/// What is asked of the device that it does not do to a frame.
#[inline]
fn lacking(offload: &TxOffload, has_checksums: bool) -> Option<&'static str> {
    let TxOffload { checksum, vlan, dummy, .. } = *offload;
    let asked = [(checksum && !has_checksums, "checksum offload"), (vlan.is_some(), "VLAN insertion"), (dummy, "dummy sends")];
    asked.iter().find(|(is_asked, _)| *is_asked).map(|&(_, what)| what)
}

/// Memory, and a socket on each of the ring's queues: the first one's, and the others'. Rings of one interface share out what there is to send from.
fn open_sockets(device: &XdpDevice, settings: &Settings, ring: u32) -> Result<(Umem, XskSocket, Vec<XskSocket>), AttachError> {
    let (interface, mut queues) = (device.interface(), device.queues_of(ring));
    let first = queues.next().ok_or(AttachError::Taken { what: "a queue" })?;
    let others: Vec<u32> = queues.collect();
    let own = 1 + others.len() as u32;
    let receives = settings.received_frames.max(own * FRAMES_MIN);
    let sends = settings.sent_frames.div_ceil(device.rings()).max(settings.sent_frames.min(SENDS_MIN));
    let umem = Umem::map(receives, sends, settings.copied_frames).map_err(AttachError::system("memory for frames"))?;
    let umem = if device.leaves_checksums() { umem.with_metadata() } else { umem };
    let first = XskSocket::open(&umem, interface, first, None)?;
    let open = |queue| XskSocket::open(&umem, interface, queue, Some(&first));
    let others = others.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
    Ok((umem, first, others))
}

/// What a ring has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames received, each by itself.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Bytes of them, which were all copied to where the kernel sends from: once by us, or by the kernel if it cuts them.
    pub sent_bytes: u64,
    /// System calls to send.
    pub wakeups: u64,
    /// System calls to have queues of the interface polled.
    pub polls: u64,
    /// Frames that were copied, for the kernel to have where they lay.
    pub copied: u64,
    /// Frames that were passed on to other rings.
    pub passed_on: u64,
    /// Connections that turned out to be the kernel's.
    pub left_to_kernel: u64,
}

/// A ring of an interface.
#[derive(Debug)]
pub struct XdpQueues {
    /// Which one.
    id: u32,
    /// The interface's other rings, if there are some.
    exchange: Option<Arc<Exchange>>,
    kernels: Kernels,
    /// Where the frames of this batch came to before, if they came to other rings.
    path: Option<Path>,
    /// One for each queue. Invariant: there is one. (The others first: they have the first one's memory.)
    others: Vec<XskSocket>,
    first: XskSocket,
    sleep: CardSleep,
    /// Which of them is looked at first.
    turn: usize,
    /// Short frames come with a handle as well.
    lends_heads: bool,
    umem: Arc<Umem>,
    memory: Arc<SendMemory>,
    /// Chunks to send from that are neither queued nor on their way.
    free: Vec<u32>,
    /// Chunks that are to go to the fill queue.
    refill: Vec<u32>,
    /// Chunks that others have handles on, or had until lately.
    held: usize,
    coalescing: Coalescing,
    counters: Counters,
    /// Where nothing has come, the kernel is asked to poll.
    busy_poll: Option<BusyPoll>,
    /// The ring was told that the interface is gone.
    is_gone: bool,
    device: XdpDevice,
}

impl XdpQueues {
    pub(crate) fn open(device: &XdpDevice, settings: &Settings, id: u32, exchange: Option<Arc<Exchange>>) -> Result<Self, AttachError> {
        let loan = device.loan();
        let is_own = loan.is_none();
        let (umem, first, others) = match loan {
            None => open_sockets(device, settings, id)?,
            Some(loan) => {
                let (umem, mut sockets) = loan?.adopt(settings.copied_frames)?;
                let others = sockets.split_off(sockets.len().min(1));
                (umem, sockets.pop().ok_or(AttachError::Taken { what: "a queue" })?, others)
            }
        };
        let inbox = exchange.as_ref().map(|exchange| exchange.fd(id));
        let wakers = core::iter::once(&first).chain(&others).map(XskSocket::fd).chain(inbox);
        let sleep = CardSleep::new(wakers, &[device.watch().fd()]).map_err(AttachError::system("epoll"))?;
        let (free, refill) = (umem.sends().collect(), umem.receives().collect());
        let memory = SendMemory::new(settings.send_bytes);
        let (umem, counters, device) = (Arc::new(umem), Counters::default(), device.clone());
        let (turn, lends_heads, is_gone, path, held, coalescing) = (0, false, false, None, 0, Coalescing::default());
        let mut ring = Self {
            id,
            exchange,
            kernels: Kernels::default(),
            path,
            others,
            first,
            sleep,
            turn,
            lends_heads,
            umem,
            memory,
            free,
            refill,
            held,
            coalescing,
            counters,
            busy_poll: None,
            is_gone,
            device,
        };
        ring.busy_poll = (is_own && settings.busy_poll > 0 && ring.prefers_busy_poll(settings)).then(BusyPoll::default);
        ring.refill();
        let placed = ring.device.place(id, ring.sockets().map(XskSocket::fd));
        placed.map_err(AttachError::system("BPF_MAP_UPDATE_ELEM of a socket"))?;
        Ok(ring)
    }

    /// What it has done.
    pub fn counters(&self) -> Counters {
        let polls = self.busy_poll.as_ref().map_or(0, BusyPoll::calls);
        Counters { polls, ..self.counters }
    }

    /// Frames received that others have handles on, or had when it was polled last.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// The interface's queues that are its.
    pub fn queues(&self) -> Vec<u32> {
        self.device.queues_of(self.id).collect()
    }

    /// How many frames have come by each of these.
    pub fn received_by_queue(&self) -> Vec<u32> {
        self.sockets().map(|socket| socket.received.taken()).collect()
    }

    fn sockets(&self) -> impl Iterator<Item = &XskSocket> {
        core::iter::once(&self.first).chain(&self.others)
    }

    /// Of so many chunks that others have, what comes is copied.
    fn held_max(&self) -> usize {
        self.umem.receives().len() / 4
    }

    fn socket_mut(&mut self, queue: usize) -> &mut XskSocket {
        if queue == 0 { &mut self.first } else { &mut self.others[queue - 1] }
    }

    /// Gives the kernel chunks to receive into: to each queue its own share of them.
    fn refill(&mut self) {
        self.held -= self.umem.take_returned(&mut self.refill);
        if self.refill.is_empty() {
            return;
        }
        let queues = 1 + self.others.len();
        let mut refill = core::mem::take(&mut self.refill);
        // (Each has room for all chunks. But of those that it has taken for a batch of frames the kernel says so a moment after the frames (xsk_flush): what has no room until
        // then goes the next time.)
        refill.retain(|&chunk| !self.socket_mut(chunk as usize % queues).fill.push(u64::from(chunk) * CHUNK as u64));
        self.refill = refill;
        for queue in 0..queues {
            let socket = self.socket_mut(queue);
            if socket.fill.publish() > 0 && socket.fill.needs_wakeup() {
                socket.wake_receiver();
            }
        }
    }
}

impl Drop for XdpQueues {
    fn drop(&mut self) {
        self.device.leave(self.id);
    }
}

impl Queues for XdpQueues {
    type Device = XdpDevice;
    type Rx = Received;
    type Tx = SendBuffer;

    fn device(&self) -> &XdpDevice {
        &self.device
    }

    fn id(&self) -> QueueId {
        QueueId(self.id)
    }

    fn mac(&self) -> MacAddr {
        self.device.interface().mac
    }

    fn poll_rx(&mut self, now: Instant, batch: &mut RxBatch<Received>) -> usize {
        if self.device.watch().is_due(now) {
            self.device.look(now, self.first.is_unbound());
        }
        // (Neither is to wait for the other's end.)
        let is_turn = self.path.take().is_none() || !self.has_frames();
        if is_turn && self.has_strays() {
            let count = self.receive_strays(batch);
            self.counters.received += count as u64;
            self.refill();
            return count;
        }
        self.finds_frames();
        let (queues, before) = (1 + self.others.len(), batch.len());
        self.coalescing.clear();
        for at in 0..queues {
            self.receive(now, (self.turn + at) % queues, batch);
        }
        // (None of them is to fill each batch.)
        self.turn = (self.turn + 1) % queues;
        self.refill();
        batch.len() - before
    }

    fn rx_ready(&self) -> bool {
        self.has_strays() || self.finds_frames() || self.device.is_gone() && !self.is_gone
    }

    fn pass_on(&mut self, frame: &RxFrame<Received>, buffer: Option<&Received>, had_it: bool) -> bool {
        self.passes_on(frame, buffer, had_it)
    }

    fn rx_scarce(&self) -> bool {
        let receives = self.umem.receives().len();
        if self.held < self.held_max() {
            return false;
        }
        let (copies_max, copies) = self.umem.copies();
        self.held + copies >= (receives + copies_max) / 4 * 3
    }

    fn tx_alloc(&mut self, len: usize) -> Option<SendBuffer> {
        self.memory.take(len)
    }

    fn tx_free(&mut self, _: usize) -> usize {
        self.memory.free()
    }

    fn send(&mut self, frame: &TxFrame<'_, SendBuffer>) -> Result<(), SendError> {
        if self.is_gone {
            // (It is lost, as all else.)
            return Ok(());
        }
        if let Some(what) = lacking(&frame.offload, self.umem.send_at() > 0) {
            return Err(self.capabilities().lacks(what).into());
        }
        if let Some(mss) = frame.offload.tso_mss {
            return self.send_cut(frame, mss);
        }
        let interface = self.device.interface();
        if frame.len() > longest(interface, frame.head)
            || frame.len() > self.umem.send_room() && !interface.is_long
            || frame.head.len() > HEAD_MAX
        {
            return Err(SendError::TooLong);
        }
        if frame.len() > self.umem.send_room() {
            self.queue_long(frame)?;
        } else {
            self.queue(frame)?;
        }
        self.counters.sent += 1;
        self.counters.sent_bytes += frame.len() as u64;
        Ok(())
    }

    fn doorbell(&mut self) {
        if self.is_gone {
            return;
        }
        self.first.send.publish();
        let mut waiting = self.first.send.waiting();
        while waiting > 0 && self.first.send.needs_wakeup() {
            self.counters.wakeups += 1;
            match self.first.wake_sender() {
                Ok(()) => {}
                // It has sent as many as it does at a time, or the device is full.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS)) => {}
                // The interface is down (ENETDOWN): what is queued leaves when it is up again. Or it is gone (ENXIO).
                Err(error) => {
                    if error.raw_os_error() == Some(libc::ENXIO) {
                        self.device.watch().look_soon();
                    }
                    return tracing::debug!("frames are not sent: {error}");
                }
            }
            let left = self.first.send.waiting();
            if left == waiting {
                // The next doorbell goes on.
                break;
            }
            waiting = left;
        }
    }

    fn reap(&mut self) {
        while let Some(address) = self.first.completions.pop() {
            let chunk = (address / CHUNK as u64) as u32;
            if self.umem.sends().contains(&chunk) {
                self.free.push(chunk);
            }
        }
        self.first.completions.release();
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        if !self.device.is_gone() || core::mem::replace(&mut self.is_gone, true) {
            return None;
        }
        if let Err(error) = self.sleep.set_frames(core::iter::empty()) {
            tracing::error!("what came by an interface that is gone is slept on: {error}");
        }
        Some(DeviceEvent::Gone)
    }

    fn lend_heads(&mut self, on: bool) -> Result<(), Unsupported> {
        self.lends_heads = on;
        Ok(())
    }

    fn arm(&mut self, _: Wake) -> bool {
        if self.rx_ready() {
            return false;
        }
        self.sleep.set_armed(true);
        // (What came meanwhile makes it readable at once.)
        true
    }

    fn disarm(&mut self) {
        self.sleep.set_armed(false);
    }

    fn wait_fd(&self) -> Option<i32> {
        Some(self.sleep.fd())
    }
}
