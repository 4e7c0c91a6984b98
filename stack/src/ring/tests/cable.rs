//! The device of the tests: one end of a cable without faults, with flow rules that a test can look at, refuse and delay.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use super::*;
use crate::device::{
    Attached, Capabilities, ChecksumVerdict, Device, DeviceEvent, FiveTuple, FlowRule, OpenError, Pacing, QueuesConfig, RateError,
    RuleError, RuleId, RxBuffer, SendError, Target, TxBuffer, TxFrame, Unsupported, Wake,
};
use crate::offload::DeviceKind;

#[derive(Clone, Debug)]
pub(in crate::ring) struct Bytes(Arc<[u8]>, usize, usize);

impl Bytes {
    pub(in crate::ring) fn of(bytes: Vec<u8>) -> Self {
        let len = bytes.len();
        Self(bytes.into(), 0, len)
    }
}

impl RxBuffer for Bytes {
    fn len(&self) -> usize {
        self.2
    }
    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0[self.1 + offset..][..out.len()]);
    }
    fn checksum(&self, offset: usize, len: usize) -> u16 {
        crate::wire::checksum::sum(&self.0[self.1 + offset..][..len])
    }
    fn slice(&self, offset: usize, len: usize) -> Self {
        assert!(offset + len <= self.2);
        Self(self.0.clone(), self.1 + offset, len)
    }
}

#[derive(Clone, Debug)]
pub(in crate::ring) struct Buffer(Arc<Mutex<Vec<u8>>>);

impl TxBuffer for Buffer {
    fn capacity(&self) -> usize {
        self.0.lock().unwrap().len()
    }
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.0.lock().unwrap()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0.lock().unwrap()[offset..offset + out.len()]);
    }
    fn checksum(&self, offset: usize, len: usize) -> u16 {
        crate::wire::checksum::sum(&self.0.lock().unwrap()[offset..offset + len])
    }
}

pub(in crate::ring) type Wire = Arc<Mutex<VecDeque<Vec<u8>>>>;

pub(in crate::ring) struct Cable {
    card: Card,
    pub(in crate::ring) mac: MacAddr,
    pub(in crate::ring) out: Wire,
    pub(in crate::ring) inward: Wire,
    pub(in crate::ring) events: VecDeque<DeviceEvent>,
    /// Connections whose peers are gone.
    pub(in crate::ring) gone: Vec<FiveTuple>,
    /// Few receive buffers are left.
    pub(in crate::ring) scarce: bool,
    /// Frames that may still be sent before the queue counts as full.
    pub(in crate::ring) room: usize,
    /// What it says of those that it has no room for.
    pub(in crate::ring) refusal: SendError,
    lends: bool,
    /// Lengths of the frames that it was to drop.
    pub(in crate::ring) dummies: Vec<usize>,
    /// Frames that were queued since the last doorbell.
    pub(in crate::ring) unrung: usize,
    /// Whether what it sent last may wait.
    pub(in crate::ring) unsolicited: bool,
    /// What it was told for those who see this host dead.
    pub(in crate::ring) told: Vec<Told>,
    /// Rates of flows, how many there may be, and whose each frame was that it sent.
    pub(in crate::ring) rates: BTreeMap<u32, Pacing>,
    pub(in crate::ring) paced_max: usize,
    pub(in crate::ring) flows: Vec<u32>,
    /// The VLAN tags that it was to insert.
    pub(in crate::ring) vlans: Vec<Option<u16>>,
}

/// What a ring leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ring) enum Told {
    /// All frames so far were processed.
    Processed,
    /// A connection has bytes that nobody read, or that were not sent; or it has none any more.
    Unfinished(bool),
}

/// The card of a cable's end.
#[derive(Clone)]
pub(in crate::ring) struct Card {
    caps: Capabilities,
    table: Arc<Mutex<Table>>,
}

/// Its flow rules.
#[derive(Default)]
pub(in crate::ring) struct Table {
    pub(in crate::ring) rules: Vec<(FlowRule, RuleId)>,
    made: u64,
    /// It takes no more.
    pub(in crate::ring) is_full: bool,
    /// Its rules cannot be moved.
    pub(in crate::ring) is_fixed: bool,
    /// Its rules steer when they are said to.
    pub(in crate::ring) is_slow: bool,
}

impl Cable {
    /// An end with that MAC address, which sends to `out`.
    pub(in crate::ring) fn new(mac: MacAddr, out: &Wire, inward: &Wire) -> Self {
        let caps = Capabilities { inline_max: 128, gather_max: 8, dummy: true, ..Capabilities::least(DeviceKind::Sim, 1500) };
        Self {
            card: Card { caps, table: Arc::default() },
            mac,
            out: out.clone(),
            inward: inward.clone(),
            events: VecDeque::new(),
            gone: Vec::new(),
            scarce: false,
            room: usize::MAX,
            refusal: SendError::Full,
            lends: false,
            dummies: Vec::new(),
            unrung: 0,
            unsolicited: false,
            told: Vec::new(),
            rates: BTreeMap::new(),
            paced_max: 2,
            flows: Vec::new(),
            vlans: Vec::new(),
        }
    }

    /// The rule for these addresses.
    pub(in crate::ring) fn rule_of(&self, local: SocketAddr, remote: Option<SocketAddr>) -> Option<RuleId> {
        let is_it = |rule: &FlowRule| rule.addresses().is_some_and(|flow| (flow.local, flow.remote) == (local, remote));
        self.table().rules.iter().find(|(rule, _)| is_it(rule)).map(|(_, id)| *id)
    }

    /// The device says so.
    pub(in crate::ring) fn tell(&mut self, event: DeviceEvent) {
        self.events.push_back(event);
    }

    pub(in crate::ring) fn table(&self) -> MutexGuard<'_, Table> {
        self.card.table.lock().unwrap()
    }
}

impl Device for Card {
    type Queues = Cable;

    fn capabilities(&self) -> &Capabilities {
        &self.caps
    }
    fn open(&self, _: &QueuesConfig) -> Result<Cable, OpenError> {
        Err(OpenError::Full)
    }
    fn attach(&self, rule: &FlowRule, _: Target) -> Result<Attached, RuleError> {
        let mut table = self.table.lock().unwrap();
        if table.rules.iter().any(|(held, _)| held.collides_with(rule) && !(held.shared && rule.shared)) {
            return Err(RuleError::Taken);
        }
        if table.is_full {
            return Err(RuleError::Full);
        }
        table.made += 1;
        let id = RuleId(table.made);
        table.rules.push((*rule, id));
        Ok(Attached { rule: id, is_ready: !table.is_slow })
    }
    fn retarget(&self, _: RuleId, _: Target, _: u32) -> Result<(), RuleError> {
        if self.table.lock().unwrap().is_fixed { Err(self.caps.lacks("rules that can be moved").into()) } else { Ok(()) }
    }
    fn detach(&self, rule: RuleId) {
        let mut table = self.table.lock().unwrap();
        let at = table.rules.iter().position(|(_, id)| *id == rule).expect("it is attached");
        table.rules.remove(at);
    }
}

impl Queues for Cable {
    type Device = Card;
    type Rx = Bytes;
    type Tx = Buffer;

    fn device(&self) -> &Card {
        &self.card
    }
    fn mac(&self) -> MacAddr {
        self.mac
    }
    fn poll_rx(&mut self, _: Instant, batch: &mut RxBatch<Bytes>) -> usize {
        let mut count = 0;
        while !batch.is_full() {
            let Some(bytes) = self.inward.lock().unwrap().pop_front() else { break };
            let frame = batch.push_slot().unwrap();
            // (So short that payload lies beside the headers, as a peer that parts frames where it likes has it.)
            let head = bytes.len().min(100);
            frame.head[..head].copy_from_slice(&bytes[..head]);
            let (bytes, len): (Arc<[u8]>, _) = (bytes.as_slice().into(), bytes.len());
            if self.lends {
                frame.set_whole(head, Some(Bytes(bytes, 0, len)));
            } else {
                frame.set_parted(head, (len > head).then_some(Bytes(bytes, head, len - head)));
            }
            frame.meta.checksum = ChecksumVerdict::Unknown;
            count += 1;
        }
        count
    }
    fn rx_ready(&self) -> bool {
        !self.inward.lock().unwrap().is_empty()
    }
    fn rx_scarce(&self) -> bool {
        self.scarce
    }
    fn tx_alloc(&mut self, len: usize) -> Option<Buffer> {
        Some(Buffer(Arc::new(Mutex::new(vec![0; len.clamp(1, 4096)]))))
    }
    fn send(&mut self, frame: &TxFrame<'_, Buffer>) -> Result<(), SendError> {
        if frame.offload.dummy {
            self.unrung += 1;
            self.dummies.push(frame.len());
            return Ok(());
        }
        self.room = self.room.checked_sub(1).ok_or(self.refusal)?;
        self.unrung += 1;
        let mut bytes = frame.head.to_vec();
        for slice in frame.body {
            let at = bytes.len();
            bytes.resize(at + slice.len, 0);
            slice.buffer.copy_to(slice.offset, &mut bytes[at..]);
        }
        self.unsolicited = frame.offload.unsolicited;
        self.flows.push(frame.offload.flow);
        self.vlans.push(frame.offload.vlan);
        self.out.lock().unwrap().push_back(bytes);
        Ok(())
    }
    fn lend_heads(&mut self, on: bool) -> Result<(), Unsupported> {
        self.lends = on;
        Ok(())
    }
    fn set_rate(&mut self, flow: u32, rate: Pacing) -> Result<(), RateError> {
        match (self.paced_max, self.rates.contains_key(&flow)) {
            _ if rate.rate_bps == 0 => drop(self.rates.remove(&flow)),
            (0, _) => return Err(self.card.caps.lacks("pacing of single flows").into()),
            (max, false) if self.rates.len() >= max => return Err(RateError::Full),
            _ => drop(self.rates.insert(flow, rate)),
        }
        Ok(())
    }
    fn doorbell(&mut self) {
        self.unrung = 0;
    }
    fn reap(&mut self) {}
    fn note_processed(&mut self) {
        self.told.push(Told::Processed);
    }
    fn note_unfinished(&mut self, _: MacAddr, _: &FiveTuple, is_unfinished: bool) {
        self.told.push(Told::Unfinished(is_unfinished));
    }
    fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.events.pop_front()
    }
    fn is_gone(&self, flow: &FiveTuple) -> bool {
        self.gone.contains(flow)
    }
    fn arm(&mut self, _wake: Wake) -> bool {
        !self.rx_ready()
    }
    fn disarm(&mut self) {}
}
