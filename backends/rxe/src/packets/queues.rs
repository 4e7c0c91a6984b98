//! A ring: frames are cut into datagrams on their way out, and put together on their way in.

use core::mem;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ringway_host::{CardQueues, CardSleep, SendBuffer, SendMemory};
use ringway_stack::device::{
    Device as _, DeviceEvent, FiveTuple, HEAD_MAX, MacAddr, Queues, RxBatch, SendError, TxFrame, TxOffload, Unsupported, Wake,
};
use ringway_stack::time::Instant;
use ringway_stack::ud::{Ends, Header, Limits, Reassembly, Source, pieces};

use super::card::{ETHERNET_MAX, News, RxeDevice};
use super::datagrams::{Datagrams, To};
use super::peers::Found;
use super::presences::Peer;
use super::received::{Pool, Received};

/// How long what the kernel has to tell may wait while polls follow each other: asking is a system call or two. The shorter one, while answers are awaited.
const LOOK_EVERY: [Duration; 2] = [Duration::from_millis(2), Duration::from_micros(200)];
/// Frames that wait for an answer about where they go, and how long.
const HELD_MAX: usize = 64;
const HELD_FOR: Duration = Duration::from_secs(2);
/// Frames of which some datagrams have come: of all, of one address, and for how long.
const PARTIAL_MAX: usize = 128;
const PARTIAL_OF_ADDRESS: usize = 32;
const PARTIAL_FOR: Duration = Duration::from_millis(100);

/// What a ring has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// Bytes of them.
    pub sent_bytes: u64,
    /// Datagrams that they took.
    pub sent_datagrams: u64,
    /// Frames to where nobody is.
    pub without_peer: u64,
    /// Datagrams that were refused: no header of ours, or not from where the frame says.
    pub refused: u64,
    /// Frames for which there was no room.
    pub no_room: u64,
    /// Times that the queue pair failed and was made anew.
    pub failures: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct RxeQueues {
    /// `None`: the device is gone, or the queue pair could not be made anew.
    datagrams: Option<Datagrams>,
    sleep: CardSleep,
    reassembly: Reassembly,
    pool: Arc<Pool>,
    memory: Arc<SendMemory>,
    /// Frames that wait for an answer about where they go.
    held: VecDeque<(Instant, Box<[u8]>)>,
    /// A frame on its way out.
    scratch: Vec<u8>,
    /// The last frame's number.
    last: u16,
    news: VecDeque<DeviceEvent>,
    /// When what the kernel has to tell was taken last, if it was.
    looked: Option<Instant>,
    lends_heads: bool,
    /// Peers have ended: their connections end once all that has come has been taken.
    has_gone: bool,
    /// Those of whom the stack hears.
    gone: BTreeSet<Peer>,
    counters: Counters,
    device: RxeDevice,
}

fn open_datagrams(device: &RxeDevice) -> io::Result<Datagrams> {
    let settings = device.settings();
    let (context, domain) = device.opened().ok_or(io::ErrorKind::NotConnected)?;
    let datagrams =
        Datagrams::open(&context, &domain, settings.sent_datagrams.max(64), settings.received_datagrams.max(64), device.datagram_len())?;
    device.set_queue_pair(Some(datagrams.number()));
    Ok(datagrams)
}

/// What is asked of the device that it does not do to a frame.
fn lacking(offload: &TxOffload) -> Option<&'static str> {
    let TxOffload { checksum, tso_mss, vlan, dummy, .. } = *offload;
    let asked =
        [(checksum, "checksum offload"), (tso_mss.is_some(), "segmentation"), (vlan.is_some(), "VLAN insertion"), (dummy, "dummy sends")];
    asked.iter().find(|(is_asked, _)| *is_asked).map(|&(_, what)| what)
}

impl RxeQueues {
    pub(super) fn open(device: &RxeDevice) -> io::Result<Self> {
        let datagrams = open_datagrams(device)?;
        let sleep = CardSleep::new(core::iter::once(datagrams.channel_fd()), &device.fds())?;
        let frame_len = device.capabilities().mtu + ETHERNET_MAX;
        let limits = Limits { frame_len, frames: PARTIAL_MAX, of_address: PARTIAL_OF_ADDRESS, patience: PARTIAL_FOR };
        let settings = device.settings();
        Ok(Self {
            datagrams: Some(datagrams),
            sleep,
            reassembly: Reassembly::new(limits),
            pool: Pool::new(settings.received_frames, frame_len),
            memory: SendMemory::new(settings.send_bytes),
            held: VecDeque::new(),
            scratch: Vec::new(),
            last: 0,
            news: VecDeque::new(),
            looked: None,
            lends_heads: false,
            has_gone: false,
            gone: BTreeSet::new(),
            counters: Counters::default(),
            device: device.clone(),
        })
    }

    /// What it has done.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Frames that wait for an answer about where they go.
    pub fn waiting(&self) -> usize {
        self.held.len()
    }

    /// Received frames that others have handles on.
    pub fn held(&self) -> usize {
        self.pool.held()
    }

    /// Takes what the kernel has to tell, now and then.
    fn look(&mut self, now: Instant) {
        if self.looked.is_some_and(|looked| now.since(looked) < LOOK_EVERY[usize::from(self.device.is_asking())]) {
            return;
        }
        if self.looked.replace(now).is_none() {
            // (What was sent before anybody said what time it is begins to wait now.)
            self.held.iter_mut().for_each(|(since, _)| *since = now);
        }
        let (mut has_answers, mut has_failed) = (false, false);
        let device = self.device.clone();
        device.look(now, |news| match news {
            News::Answers => has_answers = true,
            News::PeersGone => self.has_gone = true,
            News::Port(up) => self.news.push_back(DeviceEvent::Link { up }),
            News::Failed => has_failed = true,
            News::Gone => self.end(),
        });
        if has_failed || self.datagrams.as_ref().is_some_and(|datagrams| datagrams.has_failed) {
            self.make_anew();
        }
        if has_answers {
            self.send_held(now);
        }
    }

    /// The device is gone: nothing of it is held, so that its driver can go.
    fn end(&mut self) {
        if let Err(error) = self.sleep.set_frames(core::iter::empty()) {
            tracing::error!("what came by a device that is gone is slept on: {error}");
        }
        self.datagrams = None;
        self.held.clear();
        self.news.push_back(DeviceEvent::Gone);
    }

    /// The queue pair has failed: another one takes its place. Peers find it by what it sends, or ask again.
    #[cold]
    fn make_anew(&mut self) {
        self.counters.failures += 1;
        let _ = self.sleep.set_frames(core::iter::empty());
        self.device.set_queue_pair(None);
        // (The old one ends first: its memory is locked.)
        self.datagrams = None;
        match open_datagrams(&self.device) {
            Ok(datagrams) => {
                tracing::warn!("{}: a queue pair has failed, and was made anew", self.device.settings().device);
                if let Err(error) = self.sleep.set_frames(core::iter::once(datagrams.channel_fd())) {
                    tracing::error!("frames cannot be slept on: {error}");
                }
                self.datagrams = Some(datagrams);
                self.news.push_back(DeviceEvent::Reset);
            }
            Err(error) => {
                tracing::error!("{}: a queue pair has failed, and is not made anew: {error}", self.device.settings().device);
                self.held.clear();
                self.news.push_back(DeviceEvent::Gone);
            }
        }
    }

    /// Queues a frame, whose datagrams all have a place, or none goes.
    fn queue(&mut self, to: &To, frame: &[u8]) -> Result<(), SendError> {
        let Some(datagrams) = &mut self.datagrams else { return Ok(()) };
        self.last = self.last.wrapping_add(1);
        let all = || pieces(self.last, frame.len(), datagrams.len_max()).ok_or(SendError::TooLong);
        let (cut, count) = (all()?, all()?.count());
        if datagrams.places().1 < count {
            datagrams.reap();
        }
        if datagrams.places().1 < count {
            return Err(SendError::Full);
        }
        for header in cut {
            let piece = header.piece();
            datagrams.queue(to, [&header.emit(), &frame[piece.at..piece.at + piece.len]]);
        }
        self.counters.sent += 1;
        self.counters.sent_bytes += frame.len() as u64;
        self.counters.sent_datagrams += count as u64;
        Ok(())
    }

    /// A frame, whole, goes to where its peer is, or waits until that is known.
    fn route(&mut self, now: Instant, frame: &[u8]) -> Result<(), SendError> {
        let found = Ends::of(frame).map_or(Found::Nobody, |ends| self.device.find(&ends));
        match found {
            Found::At(to) => self.queue(&to, frame),
            Found::Asked => {
                if self.held.len() >= HELD_MAX {
                    self.held.pop_front();
                }
                self.held.push_back((now, frame.into()));
                Ok(())
            }
            Found::Nobody => {
                // (Lost, as on a link at whose other end nobody is.)
                self.counters.without_peer += 1;
                Ok(())
            }
        }
    }

    fn send_held(&mut self, now: Instant) {
        for (since, frame) in mem::take(&mut self.held) {
            if now.since(since) < HELD_FOR {
                let _ = self.route(since, &frame);
            }
        }
        self.doorbell();
    }

    /// Puts a frame that has come into the batch, which has room for it.
    fn put(batch: &mut RxBatch<Received>, pool: &Arc<Pool>, counters: &mut Counters, lends_heads: bool, frame: &[u8]) {
        let buffer = if frame.len() > HEAD_MAX || lends_heads { pool.keep(frame) } else { None };
        if buffer.is_none() && frame.len() > HEAD_MAX {
            counters.no_room += 1;
            return;
        }
        if let Some(slot) = batch.push_slot() {
            counters.received += 1;
            slot.fill(frame, buffer);
        }
    }
}

impl Drop for RxeQueues {
    fn drop(&mut self) {
        self.datagrams = None;
        self.device.leave();
    }
}

impl Queues for RxeQueues {
    type Device = RxeDevice;
    type Rx = Received;
    type Tx = SendBuffer;

    fn device(&self) -> &RxeDevice {
        &self.device
    }

    fn mac(&self) -> MacAddr {
        self.device.mac()
    }

    fn poll_rx(&mut self, now: Instant, batch: &mut RxBatch<Received>) -> usize {
        self.look(now);
        let before = batch.len();
        let Self { datagrams: Some(datagrams), reassembly, pool, counters, device, lends_heads, .. } = self else {
            self.has_gone = false;
            return 0;
        };
        let mut is_all = false;
        while !batch.is_full() {
            let Some(from) = datagrams.next() else {
                is_all = true;
                break;
            };
            let Ok((header, bytes)) = Header::parse(from.bytes) else {
                counters.refused += 1;
                continue;
            };
            let source = Source { address: from.address, qp: from.qpn };
            let Some(frame) = reassembly.add(now, source, header, bytes) else { continue };
            match Ends::of(&frame[..frame.len().min(HEAD_MAX)]) {
                Some(ends) if ends.src() == source.address => device.learn(&ends, source.qp),
                _ => {
                    counters.refused += 1;
                    continue;
                }
            }
            Self::put(batch, pool, counters, *lends_heads, frame);
        }
        datagrams.post_receives();
        if is_all && mem::take(&mut self.has_gone) {
            // (The stack asks for events once it has processed these frames.)
            self.gone.append(&mut self.device.take_gone());
            self.news.push_back(DeviceEvent::PeersGone);
        }
        batch.len() - before
    }

    fn rx_ready(&self) -> bool {
        self.has_gone || !self.news.is_empty() || self.datagrams.as_ref().is_some_and(Datagrams::has_some)
    }

    fn rx_scarce(&self) -> bool {
        self.pool.is_scarce()
    }

    fn tx_alloc(&mut self, len: usize) -> Option<SendBuffer> {
        self.memory.take(len)
    }

    fn tx_free(&mut self, _: usize) -> usize {
        self.memory.free()
    }

    fn send(&mut self, frame: &TxFrame<'_, SendBuffer>) -> Result<(), SendError> {
        if let Some(what) = lacking(&frame.offload) {
            return Err(self.capabilities().lacks(what).into());
        }
        if frame.len() > self.capabilities().mtu + ETHERNET_MAX || frame.head.len() > HEAD_MAX {
            return Err(SendError::TooLong);
        }
        let mut whole = mem::take(&mut self.scratch);
        whole.clear();
        whole.extend_from_slice(frame.head);
        for slice in frame.body {
            whole.extend_from_slice(slice.buffer.bytes(slice.offset, slice.len));
        }
        let sent = self.route(self.looked.unwrap_or(Instant::ZERO), &whole);
        self.scratch = whole;
        sent
    }

    fn doorbell(&mut self) {
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.doorbell();
        }
    }

    fn reap(&mut self) {
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.reap();
        }
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        let event = self.news.pop_front();
        if event != Some(DeviceEvent::PeersGone) && !self.gone.is_empty() && !self.news.contains(&DeviceEvent::PeersGone) {
            self.device.forget(mem::take(&mut self.gone));
        }
        event
    }

    fn is_gone(&self, flow: &FiveTuple) -> bool {
        self.device.is_with(&self.gone, flow)
    }

    fn lend_heads(&mut self, on: bool) -> Result<(), Unsupported> {
        self.lends_heads = on;
        Ok(())
    }

    fn arm(&mut self, _: Wake) -> bool {
        if self.has_gone || self.device.has_gone() || !self.news.is_empty() {
            return false;
        }
        if self.datagrams.as_mut().is_some_and(|datagrams| !datagrams.arm()) {
            return false;
        }
        self.sleep.set_armed(true);
        true
    }

    fn disarm(&mut self) {
        self.sleep.set_armed(false);
        if let Some(datagrams) = &mut self.datagrams {
            datagrams.disarm();
        }
    }

    fn wait_fd(&self) -> Option<i32> {
        Some(self.sleep.fd())
    }
}

impl CardQueues for RxeQueues {
    fn sleep(&self) -> &CardSleep {
        &self.sleep
    }

    fn frames(&self) -> usize {
        self.pool.frames()
    }

    fn send_buffers(&self) -> (usize, usize) {
        self.datagrams.as_ref().map_or((0, 0), |datagrams| {
            let (all, free) = datagrams.places();
            (all, all - free)
        })
    }

    fn bytes_copied(&self) -> u64 {
        self.counters.sent_bytes
    }
}
