//! The device of the tests: a port of a switch, which has room for so many frames, and says who sent each.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;

use super::gid;
use crate::device::{
    Capabilities, DeviceEvent, HEAD_MAX, MacAddr, Queues, RxBatch, RxBuffer, SendError, SingleQueue, TxBuffer, TxFrame, Wake,
};
use crate::offload::DeviceKind;
use crate::roce::Neighbours;
use crate::time::Instant;

pub(super) const fn mac(number: u8) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, number])
}

#[derive(Default)]
struct State {
    /// By port: frames that came and were not polled.
    frames: BTreeMap<u8, VecDeque<Vec<u8>>>,
    events: BTreeMap<u8, VecDeque<DeviceEvent>>,
    room: usize,
}

#[derive(Clone)]
pub(super) struct Switch(Rc<RefCell<State>>);

impl Switch {
    /// Each port has room for so many frames.
    pub(super) fn new(room: usize) -> Self {
        Self(Rc::new(RefCell::new(State { room, ..State::default() })))
    }

    pub(super) fn port(&self, number: u8) -> Port {
        self.0.borrow_mut().frames.insert(number, VecDeque::new());
        let caps = Capabilities { gather_max: 4, ..Capabilities::least(DeviceKind::Sim, 5000) };
        Port { card: SingleQueue::new(caps), number, switch: self.clone() }
    }

    /// That machine is gone, and the others hear of it.
    pub(super) fn kill(&self, number: u8) {
        let mut state = self.0.borrow_mut();
        state.frames.remove(&number);
        let others: Vec<u8> = state.frames.keys().copied().collect();
        for other in others {
            state.events.entry(other).or_default().push_back(DeviceEvent::PeerGone(mac(number)));
        }
    }

    /// What came to a port.
    pub(super) fn take(&self, number: u8) -> Vec<Vec<u8>> {
        self.0.borrow_mut().frames.get_mut(&number).map(|frames| frames.drain(..).collect()).unwrap_or_default()
    }

    /// A frame of that port's, whatever its bytes say.
    pub(super) fn deliver(&self, from: u8, to: u8, mut frame: Vec<u8>) {
        if let Some(source) = frame.get_mut(6..12) {
            source.copy_from_slice(&mac(from).0);
        }
        if let Some(frames) = self.0.borrow_mut().frames.get_mut(&to) {
            frames.push_back(frame);
        }
    }

    pub(super) fn mac_of(&self, number: u8) -> MacAddr {
        mac(number)
    }
}

/// All ports' machines are neighbours.
pub(super) struct Here(pub(super) Switch);

impl Neighbours for Here {
    fn neighbours(&self) -> Vec<(MacAddr, IpAddr)> {
        self.0.0.borrow().frames.keys().map(|number| (mac(*number), gid(*number))).collect()
    }
}

pub(super) struct Port {
    card: SingleQueue<Self>,
    number: u8,
    switch: Switch,
}

#[derive(Clone)]
pub(super) struct Bytes(Rc<RefCell<Vec<u8>>>);

impl RxBuffer for Bytes {
    fn len(&self) -> usize {
        self.0.borrow().len()
    }
    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0.borrow()[offset..][..out.len()]);
    }
    fn checksum(&self, _: usize, _: usize) -> u16 {
        0
    }
    fn slice(&self, offset: usize, len: usize) -> Self {
        Self(Rc::new(RefCell::new(self.0.borrow()[offset..][..len].to_vec())))
    }
}

impl TxBuffer for Bytes {
    fn capacity(&self) -> usize {
        self.0.borrow().len()
    }
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.0.borrow_mut()[offset..][..bytes.len()].copy_from_slice(bytes);
    }
    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0.borrow()[offset..][..out.len()]);
    }
    fn checksum(&self, _: usize, _: usize) -> u16 {
        0
    }
}

impl Queues for Port {
    type Device = SingleQueue<Self>;
    type Rx = Bytes;
    type Tx = Bytes;

    fn device(&self) -> &SingleQueue<Self> {
        &self.card
    }
    fn mac(&self) -> MacAddr {
        mac(self.number)
    }
    fn poll_rx(&mut self, _: Instant, batch: &mut RxBatch<Bytes>) -> usize {
        let mut state = self.switch.0.borrow_mut();
        let Some(frames) = state.frames.get_mut(&self.number) else { return 0 };
        let mut count = 0;
        while !batch.is_full() {
            let Some(bytes) = frames.pop_front() else { break };
            let Some(frame) = batch.push_slot() else { break };
            let buffer = (bytes.len() > HEAD_MAX).then(|| Bytes(Rc::new(RefCell::new(bytes.clone()))));
            frame.fill(&bytes, buffer);
            count += 1;
        }
        count
    }
    fn rx_ready(&self) -> bool {
        self.switch.0.borrow().frames.get(&self.number).is_some_and(|frames| !frames.is_empty())
    }
    fn tx_alloc(&mut self, len: usize) -> Option<Bytes> {
        // (Shorter than a packet, so that one needs several.)
        let longest = if len > 5000 { 16_384 } else { 2048 };
        Some(Bytes(Rc::new(RefCell::new(vec![0; len.clamp(1, longest)]))))
    }
    fn send(&mut self, frame: &TxFrame<'_, Bytes>) -> Result<(), SendError> {
        let mut bytes = frame.head.to_vec();
        for slice in frame.body {
            let at = bytes.len();
            bytes.resize(at + slice.len, 0);
            TxBuffer::copy_to(slice.buffer, slice.offset, &mut bytes[at..]);
        }
        let mut state = self.switch.0.borrow_mut();
        let room = state.room;
        let Some(frames) = state.frames.get_mut(&bytes[5]) else { return Err(SendError::NoPeer) };
        if frames.len() >= room {
            return Err(SendError::Full);
        }
        frames.push_back(bytes);
        Ok(())
    }
    fn doorbell(&mut self) {}
    fn reap(&mut self) {}
    fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.switch.0.borrow_mut().events.get_mut(&self.number)?.pop_front()
    }
    fn arm(&mut self, _: Wake) -> bool {
        !self.rx_ready()
    }
    fn disarm(&mut self) {}
}
