//! A device between a ring and the hand that drills it: it takes every frame, unless it was told not to, and gives those that it was given.

use core::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::device::{Capabilities, DeviceEvent, MacAddr, Queues, RxBatch, SendError, SingleQueue, TxFrame, Wake};
use ringway_stack::offload::DeviceKind;

use crate::heap::{self, Buffer, Received};

/// The stack's MAC address, and its peer's.
pub(super) const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub(super) const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// Buffers that a frame is gathered from, at most.
pub(super) const GATHER_MAX: usize = 4;

/// Frames both ways.
#[derive(Debug, Default)]
pub(super) struct Wire {
    pub(super) to_stack: VecDeque<Vec<u8>>,
    pub(super) from_stack: VecDeque<Vec<u8>>,
    /// The device takes so many frames more; `None`: any number.
    pub(super) room: Option<usize>,
    /// Frames were queued, and the device was not told.
    pub(super) queued: bool,
    /// The last frame need not wake a peer that sleeps ([`ringway_stack::device::TxOffload::unsolicited`]).
    pub(super) is_unsolicited: bool,
    /// What befalls the device.
    pub(super) events: VecDeque<DeviceEvent>,
    /// Send buffers that the stack has.
    pub(super) buffers: Rc<Cell<usize>>,
    /// Bytes of each that it is given; `None`: more than a frame has.
    pub(super) buffer_bytes: Option<usize>,
}

/// The device.
#[derive(Debug)]
pub(super) struct Card {
    card: SingleQueue<Self>,
    wire: Rc<RefCell<Wire>>,
}

impl Card {
    pub(super) fn new(wire: &Rc<RefCell<Wire>>) -> Self {
        Self::with(wire, true)
    }

    fn with(wire: &Rc<RefCell<Wire>>, point_to_point: bool) -> Self {
        let capabilities = Capabilities { point_to_point, gather_max: GATHER_MAX, ..Capabilities::least(DeviceKind::Sim, 1500) };
        Self { card: SingleQueue::new(capabilities), wire: wire.clone() }
    }

    /// As it is on a link where addresses have to be asked for.
    pub(super) fn on_link(wire: &Rc<RefCell<Wire>>) -> Self {
        Self::with(wire, false)
    }
}

impl Queues for Card {
    type Device = SingleQueue<Self>;
    type Rx = Received;
    type Tx = Buffer;

    fn device(&self) -> &SingleQueue<Self> {
        &self.card
    }

    fn mac(&self) -> MacAddr {
        OWN
    }

    fn poll_rx(&mut self, _now: Instant, batch: &mut RxBatch<Received>) -> usize {
        let wire = &mut *self.wire.borrow_mut();
        let mut count = 0;
        while !batch.is_full()
            && let Some(frame) = wire.to_stack.pop_front()
        {
            let Some(slot) = batch.push_slot() else { break };
            Received::fill(slot, frame);
            count += 1;
        }
        count
    }

    fn rx_ready(&self) -> bool {
        let wire = self.wire.borrow();
        !wire.to_stack.is_empty() || !wire.events.is_empty()
    }

    fn tx_alloc(&mut self, _len: usize) -> Option<Buffer> {
        let wire = self.wire.borrow();
        Some(wire.buffer_bytes.map_or_else(|| Buffer::lend(&wire.buffers), |len| Buffer::lend_of(&wire.buffers, len)))
    }

    fn send(&mut self, frame: &TxFrame<'_, Buffer>) -> Result<(), SendError> {
        let wire = &mut *self.wire.borrow_mut();
        match &mut wire.room {
            Some(0) => return Err(SendError::Full),
            Some(room) => *room -= 1,
            None => {}
        }
        wire.from_stack.push_back(heap::gathered(frame));
        (wire.queued, wire.is_unsolicited) = (true, frame.offload.unsolicited);
        Ok(())
    }

    fn doorbell(&mut self) {
        self.wire.borrow_mut().queued = false;
    }

    fn reap(&mut self) {}

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.wire.borrow_mut().events.pop_front()
    }

    fn arm(&mut self, _wake: Wake) -> bool {
        false
    }

    fn disarm(&mut self) {}
}
