//! A wire without faults between two rings: frames pass in the order in which they were sent, and nothing that has passed holds memory.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::device::{
    Capabilities, ChecksumVerdict, Device as _, DeviceEvent, HEAD_MAX, MacAddr, Queues, RxBatch, RxBuffer, SendError, SingleQueue,
    TxBuffer, TxFrame, Wake,
};
use ringway_stack::offload::DeviceKind;

/// Frames on their way in one direction.
type Frames = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// One end.
pub(crate) struct End {
    card: SingleQueue<Self>,
    mac: MacAddr,
    inward: Frames,
    outward: Frames,
}

/// The two ends of a wire, whose hosts have these numbers.
pub(crate) fn ends(a: u8, b: u8) -> (End, End) {
    let caps = Capabilities { point_to_point: true, ..Capabilities::least(DeviceKind::Sim, 1500) };
    let (ab, ba) = (Frames::default(), Frames::default());
    let end = |number, inward: &Frames, outward: &Frames| End {
        card: SingleQueue::new(caps.clone()),
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        inward: inward.clone(),
        outward: outward.clone(),
    };
    (end(a, &ba, &ab), end(b, &ab, &ba))
}

impl End {
    /// Frees what the queues keep for frames to come.
    pub(crate) fn shrink(&self) {
        self.inward.borrow_mut().shrink_to_fit();
    }

    /// Loses what is on its way here.
    pub(crate) fn lose(&self) {
        self.inward.borrow_mut().clear();
    }
}

/// Bytes of a frame, or a buffer to be sent.
#[derive(Clone)]
pub(crate) struct Bytes(Rc<RefCell<Vec<u8>>>, usize, usize);

impl Bytes {
    fn sum(&self, offset: usize, len: usize) -> u16 {
        let mut sum = ringway_stack::wire::checksum::Checksum::new();
        sum.add(&self.0.borrow()[self.1 + offset..][..len]);
        !sum.finish()
    }
}

impl RxBuffer for Bytes {
    fn len(&self) -> usize {
        self.2
    }
    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0.borrow()[self.1 + offset..][..out.len()]);
    }
    fn checksum(&self, offset: usize, len: usize) -> u16 {
        self.sum(offset, len)
    }
    fn slice(&self, offset: usize, len: usize) -> Self {
        Self(self.0.clone(), self.1 + offset, len)
    }
}

impl TxBuffer for Bytes {
    fn capacity(&self) -> usize {
        self.2
    }
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.0.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0.borrow()[offset..offset + out.len()]);
    }
    fn checksum(&self, offset: usize, len: usize) -> u16 {
        self.sum(offset, len)
    }
}

impl Queues for End {
    type Device = SingleQueue<Self>;
    type Rx = Bytes;
    type Tx = Bytes;

    fn device(&self) -> &SingleQueue<Self> {
        &self.card
    }
    fn capabilities(&self) -> &Capabilities {
        self.card.capabilities()
    }
    fn mac(&self) -> MacAddr {
        self.mac
    }
    fn poll_rx(&mut self, _: Instant, batch: &mut RxBatch<Bytes>) -> usize {
        let mut count = 0;
        while !batch.is_full() {
            let Some(bytes) = self.inward.borrow_mut().pop_front() else { break };
            let Some(frame) = batch.push_slot() else { break };
            let len = bytes.len();
            let bytes = Bytes(Rc::new(RefCell::new(bytes)), 0, len);
            frame.fill(&bytes.0.borrow(), (len > HEAD_MAX).then(|| bytes.clone()));
            frame.meta.checksum = ChecksumVerdict::Good;
            count += 1;
        }
        count
    }
    fn rx_ready(&self) -> bool {
        !self.inward.borrow().is_empty()
    }
    fn tx_alloc(&mut self, len: usize) -> Option<Bytes> {
        let len = len.clamp(1, 4096);
        Some(Bytes(Rc::new(RefCell::new(vec![0; len])), 0, len))
    }
    fn send(&mut self, frame: &TxFrame<'_, Bytes>) -> Result<(), SendError> {
        let mut bytes = frame.head.to_vec();
        for slice in frame.body {
            let at = bytes.len();
            bytes.resize(at + slice.len, 0);
            TxBuffer::copy_to(slice.buffer, slice.offset, &mut bytes[at..]);
        }
        self.outward.borrow_mut().push_back(bytes);
        Ok(())
    }
    fn doorbell(&mut self) {}
    fn reap(&mut self) {}
    fn poll_event(&mut self) -> Option<DeviceEvent> {
        None
    }
    fn arm(&mut self, _: Wake) -> bool {
        !self.rx_ready()
    }
    fn disarm(&mut self) {}
}
