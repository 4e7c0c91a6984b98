//! What must hold of a driver, whatever happens to its card: seen from between the stack and the driver on one side, and from the card on the other.
//!
//! - No rule of the card's is broken, but by a fault that struck (`rule`).
//! - The card sends what was handed over, byte for byte with its offloads, in order and once; what leaves is whole (`sent`).
//! - What is polled is what the card received, byte for byte with all that it says of it, in order and once. Gaps are where a queue failed (`received`).
//! - Each cookie comes back once, and as sent if and only if its frame was (`cookies`).

use std::collections::{BTreeMap, VecDeque};

use ringway_sim::connectx::constants as c;
use ringway_sim::connectx::cqe::Received;
use ringway_sim::connectx::offload;
use ringway_sim::connectx::packet::{Headers, TCP, UDP};
use ringway_sim::connectx::queues::Transmit;
use ringway_stack::Instant;
use ringway_stack::device::{ChecksumVerdict, RxMeta, SendStatus, TxOffload};

/// A frame that was handed over.
struct Handed {
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
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Laws {
    rings: BTreeMap<u32, RingLaws>,
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
    pub(super) fn handed(&mut self, ring: u32, bytes: Vec<u8>, offload: TxOffload, cookie: u64) {
        let laws = self.rings.entry(ring).or_default();
        let fate = if offload.dummy { Fate::NoFrame } else { Fate::OnItsWay };
        if cookie != 0 && laws.cookies.insert(cookie, fate).is_some() {
            self.breach("cookies", format_args!("the cookie {cookie} is used twice"));
            return;
        }
        laws.handed.push_back(Handed { bytes, offload, cookie });
    }

    /// A ring has a new send queue: what was handed over and did not leave never will.
    pub(super) fn sends_begin(&mut self, ring: u32) {
        self.rings.entry(ring).or_default().handed.clear();
    }

    /// What a ring was to get may be lost up to here.
    pub(super) fn receives_fail(&mut self, ring: u32) {
        let laws = self.rings.entry(ring).or_default();
        laws.may_miss = laws.delivered.len();
    }

    /// The card sends an entry of a ring's.
    pub(super) fn leaves(&mut self, ring: u32, transmit: &Transmit) {
        self.sent += 1;
        let laws = self.rings.entry(ring).or_default();
        // (A frame that is no frame leaves no trace, but that those behind it are next.)
        while laws.handed.front().is_some_and(|handed| handed.offload.dummy) {
            laws.handed.pop_front();
        }
        let Some(handed) = laws.handed.pop_front() else {
            return self.breach("sent", format_args!("ring {ring}: a frame leaves that nobody handed over"));
        };
        laws.cookies.entry(handed.cookie).and_modify(|fate| *fate = Fate::Left);
        let mut bytes = handed.bytes;
        if let Some(tag) = handed.offload.vlan {
            bytes.splice(12..12, [0x81, 0x00, (tag >> 8) as u8, tag as u8]);
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
            self.breach("sent", format_args!("ring {ring}: {:?} is asked for, not flags {flags:#x} and mss {mss}", handed.offload));
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
        self.rings.entry(ring).or_default().delivered.push_back(Delivered { bytes, facts, at });
    }

    /// The driver hands a frame to the stack.
    pub(super) fn polled(&mut self, ring: u32, bytes: &[u8], meta: &RxMeta) {
        self.received += 1;
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
