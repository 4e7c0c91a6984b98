//! A device that remembers its rules, has buffers of any length and as many as a drill leaves it, and can be of a VLAN or change its MAC address.

use core::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::device::{
    Attached, Capabilities, Device, DeviceEvent, FlowRule, MacAddr, OpenError, Queues, QueuesConfig, RuleError, RuleId, RxBatch, SendError,
    Steering, Target, TxFrame, Wake,
};
use ringway_stack::offload::DeviceKind;

use crate::drills::card::OWN;
use crate::heap::{self, Buffer, Received};

/// What lies between the ring and the drill.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) to_stack: VecDeque<Vec<u8>>,
    pub(super) from_stack: Vec<Vec<u8>>,
    /// Frames were queued, and the device was not told.
    pub(super) queued: bool,
    /// The device takes so many frames more; `None`: any number.
    pub(super) room: Option<usize>,
    pub(super) events: VecDeque<DeviceEvent>,
    pub(super) rules: BTreeMap<u64, FlowRule>,
    pub(super) rules_ever: u64,
    /// How often a rule was moved.
    pub(super) moves: u32,
    /// The flow tag of what comes.
    pub(super) tag: u32,
    /// Rules steer when the drill says so.
    pub(super) is_slow: bool,
    /// Rules that were ended and never begun, or ended twice.
    pub(super) rules_wrong: u64,
    /// Send buffers that the stack has, how many it may have, and their length.
    pub(super) buffers: Rc<Cell<usize>>,
    pub(super) buffers_max: usize,
    pub(super) buffer_len: usize,
    pub(super) mac: MacAddr,
    /// Frames that it was given, and was to drop ([`ringway_stack::device::TxOffload::dummy`]).
    pub(super) dummies: usize,
}

impl Port {
    pub(super) fn new() -> Self {
        Self {
            to_stack: VecDeque::new(),
            from_stack: Vec::new(),
            queued: false,
            room: None,
            events: VecDeque::new(),
            rules: BTreeMap::new(),
            rules_ever: 0,
            moves: 0,
            tag: 0,
            is_slow: false,
            rules_wrong: 0,
            buffers: Rc::default(),
            buffers_max: usize::MAX,
            buffer_len: 2048,
            mac: OWN,
            dummies: 0,
        }
    }
}

/// The device.
#[derive(Clone, Debug)]
pub(super) struct AdapterCard {
    capabilities: Capabilities,
    port: Rc<RefCell<Port>>,
}

/// Its ring.
#[derive(Debug)]
pub(super) struct Adapter {
    card: AdapterCard,
    port: Rc<RefCell<Port>>,
}

impl Adapter {
    pub(super) fn new(port: &Rc<RefCell<Port>>, point_to_point: bool, inline_max: usize) -> Self {
        let least = Capabilities::least(DeviceKind::Sim, 1500);
        let capabilities = Capabilities { point_to_point, gather_max: 32, inline_max, dummy: true, ..least };
        let card = AdapterCard { capabilities, port: port.clone() };
        Self { card, port: port.clone() }
    }

    /// The same, as one of several rings of its device.
    pub(super) fn of_several(mut self) -> Self {
        self.card.capabilities.rings_max = 4;
        self.card.capabilities.steering |= Steering::TAG;
        self
    }
}

impl Device for AdapterCard {
    type Queues = Adapter;

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn open(&self, _: &QueuesConfig) -> Result<Adapter, OpenError> {
        Err(OpenError::Full)
    }

    fn attach(&self, rule: &FlowRule, _: Target) -> Result<Attached, RuleError> {
        let port = &mut *self.port.borrow_mut();
        port.rules_ever += 1;
        port.rules.insert(port.rules_ever, *rule);
        Ok(Attached { rule: RuleId(port.rules_ever), is_ready: !port.is_slow })
    }

    fn retarget(&self, _: RuleId, _: Target, _: u32) -> Result<(), RuleError> {
        self.port.borrow_mut().moves += 1;
        Ok(())
    }

    fn detach(&self, rule: RuleId) {
        let port = &mut *self.port.borrow_mut();
        if port.rules.remove(&rule.0).is_none() {
            port.rules_wrong += 1;
        }
    }
}

impl Queues for Adapter {
    type Device = AdapterCard;
    type Rx = Received;
    type Tx = Buffer;

    fn device(&self) -> &AdapterCard {
        &self.card
    }

    fn mac(&self) -> MacAddr {
        self.port.borrow().mac
    }

    fn poll_rx(&mut self, _now: Instant, batch: &mut RxBatch<Received>) -> usize {
        let port = &mut *self.port.borrow_mut();
        let mut count = 0;
        while !batch.is_full()
            && let Some(frame) = port.to_stack.pop_front()
        {
            let Some(slot) = batch.push_slot() else { break };
            Received::fill(slot, frame);
            slot.meta.flow_tag = port.tag;
            count += 1;
        }
        count
    }

    fn rx_ready(&self) -> bool {
        let port = self.port.borrow();
        !port.to_stack.is_empty() || !port.events.is_empty()
    }

    fn tx_alloc(&mut self, _len: usize) -> Option<Buffer> {
        let port = self.port.borrow();
        (port.buffers.get() < port.buffers_max).then(|| Buffer::lend_of(&port.buffers, port.buffer_len))
    }

    fn send(&mut self, frame: &TxFrame<'_, Buffer>) -> Result<(), SendError> {
        let port = &mut *self.port.borrow_mut();
        match &mut port.room {
            Some(0) => return Err(SendError::Full),
            Some(room) => *room -= 1,
            None => {}
        }
        port.queued = true;
        if frame.offload.dummy {
            port.dummies += 1;
            return Ok(());
        }
        port.from_stack.push(heap::gathered(frame));
        Ok(())
    }

    fn doorbell(&mut self) {
        self.port.borrow_mut().queued = false;
    }

    fn reap(&mut self) {}

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.port.borrow_mut().events.pop_front()
    }

    fn arm(&mut self, _wake: Wake) -> bool {
        false
    }

    fn disarm(&mut self) {}
}
