//! The simulated NIC: [`SimDevice`], one ring's queues and buffers, with every limit enforced and every buffer counted.
//!
//! It is as unforgiving as the contract allows: bytes of a send buffer that was sent may not be written again, a frame that was
//! queued must be followed by a doorbell, and an offload may be asked for only if the capabilities name it. A breach panics,
//! naming the contract, since no later symptom would point back at it.

mod buffer;
mod config;

pub use buffer::{SimRx, SimTx};
pub use config::NicConfig;

use core::mem;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ringway_stack::Instant;
use ringway_stack::device::{
    Capabilities, ChecksumVerdict, Device, DeviceEvent, FlowRule, HEAD_MAX, MacAddr, RuleError, RuleId, RxBatch, RxMeta, SendError, TxFrame,
};

use crate::checksum;
use crate::dissect::ETHERNET_LEN;
use buffer::Pool;

/// Frames shorter than this are padded (IEEE 802.3 s4A.2.3.2.3, without the frame check sequence).
const FRAME_LEN_MIN: usize = 60;

/// Buffers, queue slots and rules that are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// Send buffers that someone holds a handle on.
    pub tx_buffers: usize,
    /// Receive buffers that someone holds a handle on, those of queued frames included.
    pub rx_buffers: usize,
    /// Frames queued for sending, or sent and not reaped.
    pub tx_frames: usize,
    /// Frames received and not polled.
    pub rx_frames: usize,
    /// Flow rules attached.
    pub rules: usize,
}

/// Why the NIC dropped an arriving frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxDrop {
    /// The receive queue was full.
    QueueFull,
    /// No receive buffer was posted.
    NoBuffer,
}

/// A simulated NIC with one ring.
#[derive(Debug)]
pub struct SimDevice {
    capabilities: Capabilities,
    mac: MacAddr,
    config: NicConfig,
    rx: VecDeque<Received>,
    /// Queued since the last doorbell.
    queued: Vec<Queued>,
    /// Handed to the hardware, which has not read them.
    posted: VecDeque<Queued>,
    /// Read by the hardware and on their way to the wire; the buffers belong to it.
    sending: VecDeque<Vec<SimTx>>,
    /// Completed, not reaped.
    completed: Vec<Vec<SimTx>>,
    /// Something was refused since the last completion: whoever asked wants to try again.
    starved: bool,
    tx_pool: Arc<Pool>,
    rx_pool: Arc<Pool>,
    rules: BTreeMap<u64, FlowRule>,
    rules_made: u64,
    events: VecDeque<DeviceEvent>,
}

#[derive(Debug)]
struct Received {
    head: Arc<[u8]>,
    body: Option<SimRx>,
    meta: RxMeta,
}

/// A frame between [`Device::send`] and the wire: headers copied, payload still in the stack's buffers.
#[derive(Debug)]
struct Queued {
    inline: Vec<u8>,
    body: Vec<(SimTx, usize, usize)>,
    checksum: bool,
    vlan: Option<u16>,
    dummy: bool,
}

impl SimDevice {
    /// A NIC with nothing in its queues.
    pub fn new(mac: MacAddr, config: NicConfig) -> Self {
        Self {
            capabilities: config.capabilities(),
            mac,
            rx: VecDeque::new(),
            queued: Vec::new(),
            posted: VecDeque::new(),
            sending: VecDeque::new(),
            completed: Vec::new(),
            starved: false,
            tx_pool: Pool::new(config.tx_buffers_max),
            rx_pool: Pool::new(config.rx_buffers_max),
            rules: BTreeMap::new(),
            rules_made: 0,
            events: VecDeque::new(),
            config,
        }
    }

    /// What is in use right now. All zero once every socket is gone and the wire is quiet, or something leaked.
    pub fn outstanding(&self) -> Outstanding {
        Outstanding {
            tx_buffers: self.tx_pool.outstanding(),
            rx_buffers: self.rx_pool.outstanding(),
            tx_frames: self.tx_slots_used(),
            rx_frames: self.rx.len(),
            rules: self.rules.len(),
        }
    }

    /// The wire's side: a frame arrives.
    pub(crate) fn receive(&mut self, now: Instant, bytes: &Arc<[u8]>) -> Result<(), RxDrop> {
        if self.rx.len() >= self.config.rx_queue_max {
            return Err(RxDrop::QueueFull);
        }
        let body = match bytes.len().checked_sub(HEAD_MAX) {
            None | Some(0) => None,
            Some(len) => Some(SimRx::new(&self.rx_pool, bytes, HEAD_MAX, len).ok_or(RxDrop::NoBuffer)?),
        };
        let checksum = if self.config.rx_checksum { checksum::verify(bytes) } else { ChecksumVerdict::Unknown };
        let meta = RxMeta { checksum, hardware_time: Some(now), ..RxMeta::default() };
        self.rx.push_back(Received { head: Arc::clone(bytes), body, meta });
        Ok(())
    }

    /// The wire's side: reads the next posted frame out of the stack's buffers. Dummies are completed on the way.
    pub(crate) fn transmit(&mut self) -> Option<Vec<u8>> {
        loop {
            let frame = self.posted.pop_front()?;
            let dummy = frame.dummy;
            let (bytes, buffers) = frame.read();
            if !dummy {
                self.sending.push_back(buffers);
                return Some(bytes);
            }
            self.completed.push(buffers);
        }
    }

    /// The wire's side: the oldest frame that was read has left. Says whether someone waits for room.
    pub(crate) fn complete(&mut self) -> bool {
        let buffers = self.sending.pop_front().expect("a completion for a frame that was never read");
        self.completed.push(buffers);
        mem::take(&mut self.starved)
    }

    /// Something happened beside frames.
    pub(crate) fn notify(&mut self, event: DeviceEvent) {
        self.events.push_back(event);
    }

    /// It has another Ethernet address from now on.
    pub(crate) fn set_mac(&mut self, mac: MacAddr) {
        self.mac = mac;
    }

    /// Panics if frames were queued and no doorbell followed.
    pub(crate) fn check_doorbell(&self) {
        assert!(self.queued.is_empty(), "device contract: {} frames were queued without a doorbell", self.queued.len());
    }

    fn tx_slots_used(&self) -> usize {
        self.queued.len() + self.posted.len() + self.sending.len() + self.completed.len()
    }
}

impl Device for SimDevice {
    type Rx = SimRx;
    type Tx = SimTx;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn mac(&self) -> MacAddr {
        self.mac
    }

    fn poll_rx(&mut self, _now: Instant, batch: &mut RxBatch<SimRx>) -> usize {
        let mut polled = 0;
        while !self.rx.is_empty() {
            let Some(slot) = batch.push_slot() else { break };
            let Some(frame) = self.rx.pop_front() else { break };
            let head_len = frame.head.len().min(HEAD_MAX);
            slot.head[..head_len].copy_from_slice(&frame.head[..head_len]);
            slot.head_len = u16::try_from(head_len).unwrap_or(0);
            slot.body = frame.body;
            slot.meta = frame.meta;
            polled += 1;
        }
        polled
    }

    fn rx_ready(&self) -> bool {
        !self.rx.is_empty()
    }

    fn tx_alloc(&mut self, len: usize) -> Option<SimTx> {
        assert!(len > 0, "device contract: a send buffer has at least one byte");
        let buffer = SimTx::new(&self.tx_pool, self.config.tx_buffer_bytes);
        self.starved |= buffer.is_none();
        buffer
    }

    fn send(&mut self, frame: &TxFrame<'_, SimTx>) -> Result<(), SendError> {
        let offload = frame.offload;
        assert!(!offload.checksum || self.config.tx_checksum, "device contract: checksum offload was asked of a NIC that has none");
        assert!(offload.tso_mss.is_none(), "device contract: TSO was asked of a NIC that has none");
        assert!(frame.head.len() >= ETHERNET_LEN, "device contract: a head without an Ethernet header");
        let tag_len = if frame.head[12..14] == [0x81, 0x00] { 4 } else { 0 };
        if frame.len() > self.config.mtu + ETHERNET_LEN + tag_len
            || frame.body.len() > self.config.gather_max
            || frame.head.len() > HEAD_MAX
        {
            return Err(SendError::TooLong);
        }
        if self.tx_slots_used() >= self.config.tx_queue_max {
            self.starved = true;
            return Err(SendError::Full);
        }
        let mut queued =
            Queued { inline: frame.head.to_vec(), body: Vec::new(), checksum: offload.checksum, vlan: offload.vlan, dummy: offload.dummy };
        for slice in frame.body {
            slice.buffer.seal(slice.offset, slice.len);
            queued.body.push((slice.buffer.clone(), slice.offset, slice.len));
        }
        if frame.len() <= self.config.inline_max {
            queued.inline_body();
        }
        self.queued.push(queued);
        Ok(())
    }

    fn doorbell(&mut self) {
        self.posted.extend(self.queued.drain(..));
    }

    fn reap(&mut self) {
        self.completed.clear();
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.events.pop_front()
    }

    fn attach(&mut self, rule: &FlowRule) -> Result<RuleId, RuleError> {
        if self.rules.values().any(|held| held == rule) {
            return Err(RuleError::Taken);
        }
        if self.rules.len() >= self.config.rules_max {
            return Err(RuleError::Full);
        }
        self.rules_made += 1;
        self.rules.insert(self.rules_made, *rule);
        Ok(RuleId(self.rules_made))
    }

    fn detach(&mut self, rule: RuleId) {
        let held = self.rules.remove(&rule.0);
        assert!(held.is_some(), "device contract: a rule was detached that is not attached");
    }

    fn arm(&mut self) -> bool {
        !self.rx_ready()
    }

    fn disarm(&mut self) {}
}

impl Queued {
    /// Copies the payload now, so that no buffer is referenced any more.
    fn inline_body(&mut self) {
        for (buffer, offset, len) in mem::take(&mut self.body) {
            buffer.append_to(offset, len, &mut self.inline);
        }
    }

    /// What the hardware does: gathers the bytes, applies the offloads, pads. The buffers come along, still held.
    fn read(self) -> (Vec<u8>, Vec<SimTx>) {
        let mut bytes = self.inline;
        let mut buffers = Vec::with_capacity(self.body.len());
        for (buffer, offset, len) in self.body {
            buffer.append_to(offset, len, &mut bytes);
            buffers.push(buffer);
        }
        if let Some(tag) = self.vlan {
            let [hi, lo] = tag.to_be_bytes();
            bytes.splice(12..12, [0x81, 0x00, hi, lo]);
        }
        if self.checksum {
            checksum::fill(&mut bytes);
        }
        if bytes.len() < FRAME_LEN_MIN {
            bytes.resize(FRAME_LEN_MIN, 0);
        }
        (bytes, buffers)
    }
}

#[cfg(test)]
mod tests;
