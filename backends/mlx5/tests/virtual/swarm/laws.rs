//! What must hold of a driver, whatever happens to its card: seen from between the stack and the driver on one side, and from the card on the other.
//!
//! - No rule of the card's is broken, but by a fault that struck (`rule`).
//! - The card sends what was handed over, byte for byte with its offloads, in order and once; what leaves is whole (`sent`).
//! - What is polled is what the card received, byte for byte with all that it says of it, in order and once. Gaps are where a queue failed (`received`).
//! - Each cookie comes back once, and as sent if and only if its frame was (`cookies`).
//! - A large send leaves as the segments that it is (`segments`), and no frame leaves earlier than its queue's rate allows (`pacing`).
//! - A frame that comes goes where the rules lead that were asked for, with the rule's tag, and nowhere else; a flow of a group to one queue (`steering`).

pub(super) mod pacing;
mod segments;
pub(super) mod steering;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ringway_sim::connectx::constants as c;
use ringway_sim::connectx::cqe::Received;
use ringway_sim::connectx::offload;
use ringway_sim::connectx::packet::{Headers, TCP, Tunnel, UDP};
use ringway_sim::connectx::queues::Transmit;
use ringway_stack::Instant;
use ringway_stack::device::{ChecksumVerdict, CyclicId, Pacing, QueueId, RxMeta, SendStatus, Target, TxOffload};

use pacing::Rate;
use steering::Steering;

/// Queues of strides are known by their number at the card and this, and all else by the ring's number.
pub(super) const STRIDING: u32 = 1 << 31;

/// A frame that was handed over.
struct Handed {
    /// Bytes of its headers.
    head: usize,
    bytes: Vec<u8>,
    offload: TxOffload,
    cookie: u64,
}

/// A frame that the card has received into a ring's queue.
struct Delivered {
    bytes: Vec<u8>,
    facts: Received,
    at: Instant,
}

/// What became of a cookie's frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    OnItsWay,
    Left,
    /// It has none: what became of it the driver alone knows.
    NoFrame,
}

/// What one ring has handed over and is to get.
#[derive(Default)]
struct RingLaws {
    handed: VecDeque<Handed>,
    delivered: VecDeque<Delivered>,
    /// Of the frames delivered, so many may be missing: a queue failed after them.
    may_miss: usize,
    cookies: BTreeMap<u64, Fate>,
    /// What was asked for.
    rate: Rate,
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Laws {
    rings: BTreeMap<u32, RingLaws>,
    /// Rings that were closed, to which a queue may have led for a while.
    closed: BTreeSet<u32>,
    pub(super) steering: Steering,
    /// Queues of strides, by their rings and names.
    pub(super) strides: BTreeMap<(u32, u64), u32>,
    /// Large sends, frames that left at a rate, and such as came in strides.
    pub(super) cut: u64,
    pub(super) paced: u64,
    pub(super) in_strides: u64,
    /// Breaches, the first first.
    pub(super) breaches: Vec<String>,
    /// A completion's time may be that of another one of its run.
    pub(super) times_are_shared: bool,
    /// Nanoseconds that a cycle of the card's clock may take, rounded up.
    cycle_ns: u64,
    /// Frames that were checked.
    pub(super) sent: u64,
    pub(super) received: u64,
}

impl Laws {
    /// Of a card whose clock's cycle takes no more nanoseconds than that.
    pub(super) fn new(cycle_ns: u64) -> Self {
        Self { cycle_ns, ..Self::default() }
    }

    pub(super) fn breach(&mut self, law: &str, what: impl core::fmt::Display) {
        self.breaches.push(format!("law {law}: {what}"));
    }

    /// The stack has handed a frame over, and the driver has taken it.
    pub(super) fn handed(&mut self, ring: u32, (head, bytes): (usize, Vec<u8>), offload: TxOffload, cookie: u64) {
        let laws = self.rings.entry(ring).or_default();
        let fate = if offload.dummy { Fate::NoFrame } else { Fate::OnItsWay };
        if cookie != 0 && laws.cookies.insert(cookie, fate).is_some() {
            self.breach("cookies", format_args!("the cookie {cookie} is used twice"));
            return;
        }
        laws.handed.push_back(Handed { head, bytes, offload, cookie });
    }

    /// A ring has a new send queue: what was handed over and did not leave never will.
    pub(super) fn sends_begin(&mut self, now: Instant, ring: u32) {
        let laws = self.rings.entry(ring).or_default();
        laws.handed.clear();
        // (And what the old one owes nobody asks of it.)
        laws.rate.forgive(now);
    }

    /// A ring is to keep to a rate.
    pub(super) fn paced(&mut self, now: Instant, ring: u32, pacing: Pacing) {
        // (Of steps of a kilobit, the next one below.)
        let kilobits = (pacing.rate_bps / 1000).max(u64::from(pacing.rate_bps > 0));
        self.rings.entry(ring).or_default().rate.set(now, kilobits * 1000);
    }

    /// A queue that rules lead to, as it is known here.
    pub(super) fn key(&self, target: Target) -> u32 {
        match target {
            Target::Queue(QueueId(ring)) => ring,
            Target::Cyclic(QueueId(ring), CyclicId(name)) => self.strides.get(&(ring, name)).copied().unwrap_or(0),
        }
    }

    /// A ring is closed, and what it had in strides.
    pub(super) fn closed(&mut self, ring: u32, may_stay: bool) {
        let mut queues: Vec<u32> = self.strides.iter().filter(|((of, _), _)| *of == ring).map(|(_, queue)| *queue).collect();
        queues.push(ring);
        self.steering.ended(|_, queue| queues.contains(&queue), may_stay);
        queues.into_iter().for_each(|queue| self.ended(queue));
    }

    /// Whether a queue has ended.
    pub(super) fn is_closed(&self, queue: u32) -> bool {
        self.closed.contains(&queue)
    }

    /// A queue has ended.
    pub(super) fn ended(&mut self, queue: u32) {
        self.rings.remove(&queue);
        self.closed.insert(queue);
        self.strides.retain(|_, other| *other != queue);
    }

    /// The rate of a ring's frame that has left as these.
    fn check_rate(&mut self, now: Instant, ring: u32, frames: &[Vec<u8>]) {
        let rate = &mut self.rings.entry(ring).or_default().rate;
        if !rate.is_limited() {
            return;
        }
        let due_at = rate.due_at();
        rate.charge(now, frames.iter().map(Vec::len).sum());
        self.paced += 1;
        if now < due_at {
            self.breach("pacing", format_args!("ring {ring}: a frame leaves at {now:?}, and not at {due_at:?} at the earliest"));
        }
    }

    /// What a ring was to get may be lost up to here.
    pub(super) fn receives_fail(&mut self, ring: u32) {
        let laws = self.rings.entry(ring).or_default();
        laws.may_miss = laws.delivered.len();
    }

    /// The card sends an entry of a ring's, which becomes these frames.
    pub(super) fn leaves(&mut self, now: Instant, ring: u32, transmit: &Transmit, frames: &[Vec<u8>]) {
        self.sent += 1;
        self.check_rate(now, ring, frames);
        let laws = self.rings.entry(ring).or_default();
        // (A frame that is no frame leaves no trace, but that those behind it are next.)
        while laws.handed.front().is_some_and(|handed| handed.offload.dummy) {
            laws.handed.pop_front();
        }
        let Some(handed) = laws.handed.pop_front() else {
            return self.breach("sent", format_args!("ring {ring}: a frame leaves that nobody handed over"));
        };
        laws.cookies.entry(handed.cookie).and_modify(|fate| *fate = Fate::Left);
        let (mut bytes, mut head) = (handed.bytes, handed.head);
        if let Some(tag) = handed.offload.vlan {
            bytes.splice(12..12, [0x81, 0x00, (tag >> 8) as u8, tag as u8]);
            head += 4;
        }
        let asks = handed.offload.checksum || handed.offload.tso_mss.is_some();
        let both = c::ETH_L3_CSUM | c::ETH_L4_CSUM;
        let is_same = transmit.frames.len() == 1 && transmit.frames[0] == bytes;
        if !is_same {
            let found = transmit.frames.iter().map(Vec::len).collect::<Vec<_>>();
            return self.breach(
                "sent",
                format_args!("ring {ring}: a frame of {} bytes leaves otherwise than it was handed over ({found:?})", bytes.len()),
            );
        }
        let cut = handed.offload.tso_mss.unwrap_or(0);
        if (transmit.ethernet.cs_flags & both == both) != asks || transmit.segmented != (cut > 0) || transmit.ethernet.mss != cut {
            let (flags, mss) = (transmit.ethernet.cs_flags, transmit.ethernet.mss);
            return self.breach("sent", format_args!("ring {ring}: {:?} is asked for, not flags {flags:#x} and mss {mss}", handed.offload));
        }
        if cut > 0 {
            self.cut += 1;
            if let Some(what) = segments::wrong(&bytes, head, cut.into(), frames) {
                self.breach("segments", format_args!("ring {ring}: {what}"));
            }
        }
    }

    /// A frame that came went to these queues, with these tags.
    pub(super) fn steered(&mut self, headers: &Headers, tunnel: Option<&Tunnel>, to: &[(u32, u32)], may_lag: bool) {
        if let Some(what) = self.steering.wrong(headers, tunnel, to, may_lag) {
            self.breach("steering", what);
        }
    }

    /// A frame is on the wire: what the stack sends has right checksums.
    pub(super) fn on_wire(&mut self, frame: &[u8], headers: &Headers) {
        let Some(ip) = headers.ip.filter(|ip| matches!(ip.protocol, TCP | UDP) && !ip.fragment) else { return };
        let checks = offload::verdict(frame, headers).checks;
        if checks & c::CQE_L3_OK == 0 || checks & c::CQE_L4_OK == 0 {
            self.breach("sent", format_args!("a frame of protocol {} leaves with a wrong checksum", ip.protocol));
        }
    }

    /// The card has received a frame into a ring's queue.
    pub(super) fn arrived(&mut self, ring: u32, bytes: Vec<u8>, facts: Received, at: Instant) {
        if !self.closed.contains(&ring) {
            self.rings.entry(ring).or_default().delivered.push_back(Delivered { bytes, facts, at });
        }
    }

    /// The driver hands a frame to the stack.
    pub(super) fn polled(&mut self, ring: u32, bytes: &[u8], meta: &RxMeta) {
        self.received += 1;
        self.in_strides += u64::from(ring & STRIDING != 0);
        let (shared, cycle_ns) = (self.times_are_shared, self.cycle_ns);
        let laws = self.rings.entry(ring).or_default();
        while let Some(front) = laws.delivered.pop_front() {
            let may_miss = laws.may_miss > 0;
            laws.may_miss = laws.may_miss.saturating_sub(1);
            let said = front.said(meta, shared, cycle_ns);
            if front.bytes == bytes && said.is_none() {
                return;
            }
            if !may_miss {
                let what = said.unwrap_or_else(|| format!("{} bytes that are not the {} received", bytes.len(), front.bytes.len()));
                return self.breach("received", format_args!("ring {ring}: {what}"));
            }
        }
        self.breach("received", format_args!("ring {ring}: {} bytes that the card has not received", bytes.len()));
    }

    /// What came before a queue failed and was not polled by now never will be.
    pub(super) fn forget_missed(&mut self, ring: u32) {
        let laws = self.rings.entry(ring).or_default();
        laws.delivered.drain(..core::mem::take(&mut laws.may_miss));
    }

    /// Queues that did not give all that came to them, and how many frames they kept: asked when nothing more is to come.
    pub(super) fn unpolled(&self) -> Vec<(u32, usize)> {
        let kept = self.rings.iter().map(|(ring, laws)| (*ring, laws.delivered.len().saturating_sub(laws.may_miss)));
        kept.filter(|(_, kept)| *kept > 0).collect()
    }

    /// A cookie comes back.
    pub(super) fn completed(&mut self, ring: u32, cookie: u64, status: SendStatus) {
        let laws = self.rings.entry(ring).or_default();
        let wrong = match (laws.cookies.remove(&cookie), status) {
            (None, _) => Some("comes back, and was not handed over or came back before"),
            (Some(Fate::OnItsWay), SendStatus::Sent) => Some("comes back as sent, and its frame has not left"),
            (Some(Fate::Left), SendStatus::Failed) => Some("comes back as failed, and its frame has left"),
            _ => None,
        };
        if let Some(what) = wrong {
            self.breach("cookies", format_args!("ring {ring}: the cookie {cookie} {what}"));
        }
    }

    /// Cookies that have not come back.
    pub(super) fn cookies_out(&self) -> usize {
        self.rings.values().map(|laws| laws.cookies.len()).sum()
    }
}

impl Delivered {
    /// What is wrong with what the driver says of the frame.
    fn said(&self, meta: &RxMeta, shared: bool, cycle_ns: u64) -> Option<String> {
        let Received { qpn_or_tag, checks, vlan, .. } = self.facts;
        let both = c::CQE_L3_OK | c::CQE_L4_OK;
        let is_good = meta.checksum == ChecksumVerdict::Good;
        if meta.flow_tag != qpn_or_tag {
            return Some(format!("the tag {:#x}, and not {qpn_or_tag:#x}", meta.flow_tag));
        }
        if is_good != (checks & both == both) {
            return Some(format!("checksums that are {:?}, and the card says {checks:#x}", meta.checksum));
        }
        if meta.vlan != vlan {
            return Some(format!("the tag {:?} of a VLAN, and not {vlan:?}", meta.vlan));
        }
        let time = meta.hardware_time.map_or(0, |time| time.as_nanos());
        let is_right = time.abs_diff(self.at.as_nanos()) <= cycle_ns;
        (!shared && !is_right).then(|| format!("the time {time}, and not {}", self.at.as_nanos()))
    }
}
