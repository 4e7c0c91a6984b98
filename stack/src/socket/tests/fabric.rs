//! The devices of the tests: cards of several rings each, on one Ethernet without faults. Their rules are looked at as a NIC does: the most specific one
//! wins, and of a group's the sender's port says whose turn it is.

use core::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use crate::device::{
    Attached, Capabilities, ChecksumVerdict, Device, DeviceEvent, FlowRule, HEAD_MAX, MacAddr, NoRx, OpenError, Protocol, QueueId, Queues,
    QueuesConfig, RuleError, RuleId, RxBatch, SendError, Steering, Target, TxBuffer, TxFrame, Wake,
};
use crate::offload::DeviceKind;
use crate::time::Instant;
use crate::wire::{ethernet, ipv4, tcp, udp};

/// Frames that wait, by card and ring.
type Waiting = BTreeMap<(MacAddr, u32), VecDeque<Vec<u8>>>;

/// What the cards hang on.
#[derive(Clone, Default)]
pub(super) struct Fabric(Rc<RefCell<Wires>>);

#[derive(Default)]
struct Wires {
    waiting: Waiting,
    rules: Vec<(MacAddr, RuleId, FlowRule, Target)>,
    made: u64,
    /// No further rule is taken, and no socket's is moved.
    refuses: bool,
}

/// A card: the rings of one link.
#[derive(Clone)]
pub(super) struct Card {
    fabric: Fabric,
    mac: MacAddr,
    caps: Capabilities,
}

pub(super) struct Queue {
    card: Card,
    id: QueueId,
}

#[derive(Clone)]
pub(super) struct Buffer(Rc<RefCell<Vec<u8>>>);

impl Fabric {
    pub(super) fn card(&self, number: u8) -> Card {
        let steering = Steering::TAG | Steering::RSS;
        let caps = Capabilities { rings_max: 8, steering, gather_max: 8, ..Capabilities::least(DeviceKind::Sim, 200) };
        Card { fabric: self.clone(), mac: MacAddr([2, 0, 0, 0, 1, number]), caps }
    }

    /// Whether rules are refused from now on.
    pub(super) fn refuse(&self, refuses: bool) {
        self.0.borrow_mut().refuses = refuses;
    }

    /// How many rules there are.
    pub(super) fn rules(&self) -> usize {
        self.0.borrow().rules.len()
    }

    /// The ring that a rule steers such a frame to.
    fn steer(&self, mac: MacAddr, flow: Option<(Protocol, SocketAddr, SocketAddr)>) -> Option<u32> {
        let wires = self.0.borrow();
        let (protocol, local, remote) = flow?;
        let fits = |rule: &FlowRule| {
            rule.addresses().is_some_and(|of| {
                let is_local = of.local == local || (of.local.ip().is_unspecified() && of.local.port() == local.port());
                of.protocol == protocol && is_local && of.remote.is_none_or(|peer| peer == remote)
            })
        };
        let fitting: Vec<_> = wires.rules.iter().filter(|(at, _, rule, _)| *at == mac && fits(rule)).collect();
        let most = fitting.iter().map(|(_, _, rule, _)| rule.specificity()).max()?;
        let best: Vec<_> = fitting.iter().filter(|(_, _, rule, _)| rule.specificity() == most).collect();
        let (_, _, _, target) = best[usize::from(remote.port()) % best.len()];
        Some(target.queue().0)
    }
}

impl Card {
    pub(super) fn queue(&self, id: u32) -> Queue {
        Queue { card: self.clone(), id: QueueId(id) }
    }

    pub(super) const fn mac(&self) -> MacAddr {
        self.mac
    }
}

impl Queue {
    pub(super) fn card(&self) -> Card {
        self.card.clone()
    }
}

impl Device for Card {
    type Queues = Queue;

    fn capabilities(&self) -> &Capabilities {
        &self.caps
    }
    fn open(&self, _: &QueuesConfig) -> Result<Queue, OpenError> {
        Err(OpenError::Full)
    }
    fn attach(&self, rule: &FlowRule, target: Target) -> Result<Attached, RuleError> {
        let mut wires = self.fabric.0.borrow_mut();
        let collides = |held: &FlowRule| held.collides_with(rule) && !(held.shared && rule.shared);
        if wires.rules.iter().any(|(mac, _, held, _)| *mac == self.mac && collides(held)) {
            return Err(RuleError::Taken);
        }
        if wires.refuses {
            return Err(RuleError::Full);
        }
        wires.made += 1;
        let id = RuleId(wires.made);
        wires.rules.push((self.mac, id, *rule, target));
        Ok(Attached { rule: id, is_ready: true })
    }
    fn retarget(&self, rule: RuleId, target: Target, tag: u32) -> Result<(), RuleError> {
        let mut wires = self.fabric.0.borrow_mut();
        let refuses = wires.refuses;
        let held = wires.rules.iter_mut().find(|(mac, id, ..)| *id == rule && *mac == self.mac).expect("it is this card's");
        if refuses && held.2.addresses().is_some_and(|flow| flow.remote.is_none()) {
            return Err(RuleError::Full);
        }
        (held.2.tag, held.3) = (tag, target);
        Ok(())
    }
    fn detach(&self, rule: RuleId) {
        let mut wires = self.fabric.0.borrow_mut();
        let at = wires.rules.iter().position(|(mac, id, ..)| *id == rule && *mac == self.mac).expect("it is this card's");
        wires.rules.remove(at);
    }
}

impl TxBuffer for Buffer {
    fn capacity(&self) -> usize {
        self.0.borrow().len()
    }
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.0.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.0.borrow()[offset..offset + out.len()]);
    }
    fn checksum(&self, offset: usize, len: usize) -> u16 {
        crate::wire::checksum::sum(&self.0.borrow()[offset..offset + len])
    }
}

/// What a frame's receiver steers by.
fn flow_of(frame: &[u8]) -> Option<(Protocol, SocketAddr, SocketAddr)> {
    let (_, at) = ethernet::Header::parse(frame).ok()?;
    let (ip, len) = ipv4::Header::parse(frame.get(at..)?).ok()?;
    let rest = frame.get(at + len..)?;
    let (protocol, src, dst) = match ip.protocol {
        6 => tcp::Header::parse(rest).ok().map(|(header, _)| (Protocol::Tcp, header.src_port, header.dst_port))?,
        17 => udp::Header::parse(rest).ok().map(|(header, _)| (Protocol::Udp, header.src_port, header.dst_port))?,
        _ => return None,
    };
    Some((protocol, SocketAddr::new(IpAddr::V4(ip.dst), dst), SocketAddr::new(IpAddr::V4(ip.src), src)))
}

impl Queues for Queue {
    type Device = Card;
    type Rx = NoRx;
    type Tx = Buffer;

    fn device(&self) -> &Card {
        &self.card
    }
    fn id(&self) -> QueueId {
        self.id
    }
    fn mac(&self) -> MacAddr {
        self.card.mac
    }
    fn poll_rx(&mut self, _: Instant, batch: &mut RxBatch<NoRx>) -> usize {
        let mut wires = self.card.fabric.0.borrow_mut();
        let waiting = wires.waiting.entry((self.card.mac, self.id.0)).or_default();
        let mut count = 0;
        while !batch.is_full()
            && let Some(bytes) = waiting.pop_front()
        {
            let frame = batch.push_slot().expect("it is not full");
            frame.fill(&bytes, None);
            frame.meta.checksum = ChecksumVerdict::Good;
            count += 1;
        }
        count
    }
    fn rx_ready(&self) -> bool {
        let wires = self.card.fabric.0.borrow();
        wires.waiting.get(&(self.card.mac, self.id.0)).is_some_and(|waiting| !waiting.is_empty())
    }
    fn tx_alloc(&mut self, len: usize) -> Option<Buffer> {
        Some(Buffer(Rc::new(RefCell::new(vec![0; len.clamp(1, 4096)]))))
    }
    fn send(&mut self, frame: &TxFrame<'_, Buffer>) -> Result<(), SendError> {
        let mut bytes = frame.head.to_vec();
        for slice in frame.body {
            let at = bytes.len();
            bytes.resize(at + slice.len, 0);
            slice.buffer.copy_to(slice.offset, &mut bytes[at..]);
        }
        assert!(bytes.len() <= HEAD_MAX, "the fabric's frames are short");
        let mac = MacAddr(bytes[..6].try_into().expect("a frame"));
        let ring = self.card.fabric.steer(mac, flow_of(&bytes)).unwrap_or(0);
        self.card.fabric.0.borrow_mut().waiting.entry((mac, ring)).or_default().push_back(bytes);
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
