//! A wire with a device at each end. What goes in comes out.

use core::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use ringway_stack::Instant;
use ringway_stack::device::{
    Capabilities, DeviceEvent, HEAD_MAX, MacAddr, Queues, RxBatch, RxBuffer, SendError, SingleQueue, TxBuffer, TxFrame, Wake,
};
use ringway_stack::offload::DeviceKind;

type Queue = Rc<RefCell<VecDeque<Vec<u8>>>>;

pub(super) struct Wire {
    card: SingleQueue<Self>,
    mac: MacAddr,
    out: Queue,
    into: Queue,
}

impl Wire {
    pub(super) fn pair() -> (Self, Self) {
        let (there, back) = (Queue::default(), Queue::default());
        let end = |last, out: &Queue, into: &Queue| Self {
            card: SingleQueue::new(capabilities()),
            mac: MacAddr([2, 0, 0, 0, 0, last]),
            out: Rc::clone(out),
            into: Rc::clone(into),
        };
        (end(1, &there, &back), end(2, &back, &there))
    }
}

fn capabilities() -> Capabilities {
    Capabilities { gather_max: 8, ..Capabilities::least(DeviceKind::Sim, 1500) }
}

#[derive(Clone)]
pub(super) struct Rx(Arc<[u8]>, usize, usize);

impl RxBuffer for Rx {
    fn len(&self) -> usize {
        self.2
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0[self.1 + offset..][..out.len()]);
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        sum(&self.0[self.1 + offset..][..len])
    }

    fn slice(&self, offset: usize, len: usize) -> Self {
        Self(Arc::clone(&self.0), self.1 + offset, len)
    }
}

#[derive(Clone)]
pub(super) struct Tx(Arc<Mutex<Vec<u8>>>);

impl TxBuffer for Tx {
    fn capacity(&self) -> usize {
        2048
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.0.lock().expect("one thread")[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0.lock().expect("one thread")[offset..offset + out.len()]);
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        sum(&self.0.lock().expect("one thread")[offset..offset + len])
    }
}

fn sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

impl Queues for Wire {
    type Device = SingleQueue<Self>;
    type Rx = Rx;
    type Tx = Tx;

    fn device(&self) -> &SingleQueue<Self> {
        &self.card
    }

    fn mac(&self) -> MacAddr {
        self.mac
    }

    fn poll_rx(&mut self, _: Instant, batch: &mut RxBatch<Rx>) -> usize {
        let mut polled = 0;
        while self.rx_ready() {
            let Some(slot) = batch.push_slot() else { break };
            let Some(frame) = self.into.borrow_mut().pop_front() else { break };
            slot.fill(&frame, (frame.len() > HEAD_MAX).then(|| Rx(frame.as_slice().into(), 0, frame.len())));
            polled += 1;
        }
        polled
    }

    fn rx_ready(&self) -> bool {
        !self.into.borrow().is_empty()
    }

    fn tx_alloc(&mut self, _: usize) -> Option<Tx> {
        Some(Tx(Arc::new(Mutex::new(vec![0; 2048]))))
    }

    fn send(&mut self, frame: &TxFrame<'_, Tx>) -> Result<(), SendError> {
        let mut bytes = frame.head.to_vec();
        for slice in frame.body {
            let at = bytes.len();
            bytes.resize(at + slice.len, 0);
            slice.buffer.copy_to(slice.offset, &mut bytes[at..]);
        }
        self.out.borrow_mut().push_back(bytes);
        Ok(())
    }

    fn doorbell(&mut self) {}

    fn reap(&mut self) {}

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        None
    }

    fn arm(&mut self, _wake: Wake) -> bool {
        !self.rx_ready()
    }

    fn disarm(&mut self) {}
}
