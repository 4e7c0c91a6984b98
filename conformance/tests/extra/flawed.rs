//! A device with one flaw, on top of a right one: what the cases are there to find.

use core::cell::Cell;
use std::rc::Rc;

use ringway_conformance::extra::{cyclic, dummy, lending, recv_filter};
use ringway_sim::{Faults, Nic, SimQueues, SimRx, SimTx};
use ringway_stack::Instant;
use ringway_stack::device::{
    Attached, Capabilities, ChecksumVerdict, Device, DeviceEvent, FlowRule, MacAddr, OpenError, QueueId, Queues, QueuesConfig, RuleError,
    RuleId, RxBatch, RxBuffer, SendError, Target, TxFrame, TxOffload, Unsupported, Wake,
};

use crate::sim::{Case, SimNet};

/// What is wrong with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    /// Nothing.
    None,
    /// It sends what is to be sent to nobody.
    DummySent,
    /// It does not lend heads, and says that it does.
    HeadsKept,
    /// It uses buffers again that are still held.
    BuffersUsedAgain,
    /// It never frees them.
    BuffersKept,
    /// It receives everything twice.
    Doubled,
    /// It hands over another header than the one that came.
    SourceChanged,
}

/// Each flaw, and a case that must find it.
const FOUND_BY: [(Flaw, Case<Flawed>); 9] = [
    (Flaw::DummySent, dummy::a_dummy_datagram_reaches_nobody),
    (Flaw::DummySent, dummy::a_dummy_segment_is_no_part_of_its_stream),
    (Flaw::HeadsKept, lending::a_datagram_is_lent_from_where_the_device_put_it),
    (Flaw::BuffersUsedAgain, lending::what_is_held_stays_as_it_is),
    (Flaw::BuffersUsedAgain, recv_filter::what_is_held_stays_until_it_is_given_back),
    (Flaw::BuffersKept, lending::a_buffer_is_freed_with_its_last_reference),
    (Flaw::Doubled, recv_filter::a_datagram_is_read_once_it_is_admitted_and_never_if_it_is_dropped_or_held),
    (Flaw::SourceChanged, cyclic::records_are_the_packets_as_they_came),
    (Flaw::SourceChanged, lending::senders_are_named),
];

/// A case that no device could fail would be none.
#[test]
fn each_flaw_is_found_by_its_case() {
    for (flaw, case) in FOUND_BY {
        let run = |flaw| case(&mut SimNet::wrapped(1, Faults::default(), |device| Flawed::new(device, flaw)));
        if let Err(error) = run(Flaw::None) {
            panic!("without {flaw:?}: {error:#}");
        }
        let found = run(flaw).expect_err("the flaw was to be found");
        println!("{flaw:?}: {found:#}");
    }
}

/// The device.
struct Flawed {
    card: FlawedCard,
    device: SimQueues,
    batch: RxBatch<SimRx>,
    flaw: Flaw,
    /// Frames received so far.
    received: Rc<Cell<u64>>,
    kept: Vec<SimRx>,
}

impl Flawed {
    fn new(device: SimQueues, flaw: Flaw) -> Self {
        let card = FlawedCard(device.nic().clone());
        Self { card, device, batch: RxBatch::new(1), flaw, received: Rc::default(), kept: Vec::new() }
    }

    fn hand_out(&self, buffer: SimRx) -> Buffer {
        Buffer {
            inner: buffer,
            received: Rc::clone(&self.received),
            born: self.received.get(),
            spoils: self.flaw == Flaw::BuffersUsedAgain,
        }
    }

    /// Hands over what was polled, into room for two.
    fn hand_over(&mut self, batch: &mut RxBatch<Buffer>) {
        let copies = if self.flaw == Flaw::Doubled { 2 } else { 1 };
        let Some(from) = self.batch.frames_mut().first_mut() else { return };
        let mut from = from.clone();
        if self.flaw == Flaw::SourceChanged {
            from.head[35] ^= 1;
            from.meta.checksum = ChecksumVerdict::Good;
        }
        self.received.set(self.received.get() + 1);
        if self.flaw == Flaw::BuffersKept {
            self.kept.extend(from.held_from(0));
        }
        let is_head = from.len() == from.head().len();
        for _ in 0..copies {
            let Some(to) = batch.push_slot() else { return };
            *to = from.clone().map(|buffer| (!is_head || self.flaw != Flaw::HeadsKept).then(|| self.hand_out(buffer)));
        }
    }
}

/// A handle of the device's.
#[derive(Clone, Debug)]
struct Buffer {
    inner: SimRx,
    received: Rc<Cell<u64>>,
    /// How many frames had been received before it.
    born: u64,
    spoils: bool,
}

impl RxBuffer for Buffer {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        self.inner.copy_to(offset, out);
        if self.spoils && self.received.get() > self.born + 8 {
            out.iter_mut().for_each(|byte| *byte ^= 1);
        }
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        self.inner.checksum(offset, len)
    }

    fn slice(&self, offset: usize, len: usize) -> Self {
        Self { inner: self.inner.slice(offset, len), ..self.clone() }
    }
}

/// Its card, which has no flaw.
#[derive(Clone)]
struct FlawedCard(Nic);

impl Device for FlawedCard {
    type Queues = Flawed;

    fn capabilities(&self) -> &Capabilities {
        self.0.capabilities()
    }

    fn open(&self, config: &QueuesConfig) -> Result<Flawed, OpenError> {
        Ok(Flawed::new(self.0.open(config)?, Flaw::None))
    }

    fn attach(&self, rule: &FlowRule, target: Target) -> Result<Attached, RuleError> {
        self.0.attach(rule, target)
    }

    fn retarget(&self, rule: RuleId, target: Target, tag: u32) -> Result<(), RuleError> {
        self.0.retarget(rule, target, tag)
    }

    fn detach(&self, rule: RuleId) {
        self.0.detach(rule);
    }
}

impl Queues for Flawed {
    type Device = FlawedCard;
    type Rx = Buffer;
    type Tx = SimTx;

    fn device(&self) -> &FlawedCard {
        &self.card
    }

    fn id(&self) -> QueueId {
        self.device.id()
    }

    fn mac(&self) -> MacAddr {
        self.device.mac()
    }

    fn poll_rx(&mut self, now: Instant, batch: &mut RxBatch<Buffer>) -> usize {
        let before = batch.len();
        while batch.len() - before < 2 && self.device.poll_rx(now, &mut self.batch) > 0 {
            self.hand_over(batch);
            self.batch.clear();
        }
        batch.len() - before
    }

    fn rx_ready(&self) -> bool {
        self.device.rx_ready()
    }

    fn rx_scarce(&self) -> bool {
        self.device.rx_scarce()
    }

    fn tx_alloc(&mut self, len: usize) -> Option<SimTx> {
        self.device.tx_alloc(len)
    }

    fn send(&mut self, frame: &TxFrame<'_, SimTx>) -> Result<(), SendError> {
        let dummy = frame.offload.dummy && self.flaw != Flaw::DummySent;
        self.device.send(&TxFrame { offload: TxOffload { dummy, ..frame.offload }, ..*frame })
    }

    fn doorbell(&mut self) {
        self.device.doorbell();
    }

    fn reap(&mut self) {
        self.device.reap();
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.device.poll_event()
    }

    fn arm(&mut self, wake: Wake) -> bool {
        self.device.arm(wake)
    }

    fn disarm(&mut self) {
        self.device.disarm();
    }

    fn lend_heads(&mut self, on: bool) -> Result<(), Unsupported> {
        self.device.lend_heads(on)
    }
}
