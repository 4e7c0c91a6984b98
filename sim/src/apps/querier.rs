//! A router that asks who listens to groups of IPv6 (RFC 3810 s5.1): to any, to one, from some sources; now and then wrongly, as no router of the link
//! would. It hears no answers: the checkers see them on the wire.
//!
//! Like a [`Prober`](super::Prober), it sends frames by hand over a raw queue, from a MAC address that no host has.

use core::time::Duration;
use std::net::{IpAddr, Ipv6Addr};

use ringway_stack::Instant;
use ringway_stack::device::{MacAddr, TxOffload};
use ringway_stack::raw::RawQueue;

use super::prober::PROBER_MAC;
use crate::checksum;
use crate::dissect;
use crate::host::{App, Context, Step};
use crate::nic::SimQueues;
use crate::random::RandomStream;

const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xfffe);
/// An address of it that is not its link's.
const AFAR: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0xfffe);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const HOP_BY_HOP: u8 = 0;
/// A router alert for listener discovery (RFC 2711 s2.1).
const ALERT: [u8; 8] = [58, 0, 5, 2, 0, 0, 1, 0];
/// How long the last frames may take to leave.
const FAREWELL: Duration = Duration::from_millis(200);

/// What a [`Querier`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Querying {
    /// Questions that it asks.
    pub questions: u32,
    /// The longest pause between two.
    pub pause_max: Duration,
}

/// What is wrong with a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    None,
    Checksum,
    HopLimit,
    Source,
    Alert,
    Cut,
}

/// A router that asks.
#[derive(Debug)]
pub struct Querier {
    /// Until it has finished.
    queue: Option<RawQueue<SimQueues>>,
    vlan: Option<u16>,
    groups: Vec<IpAddr>,
    querying: Querying,
    dice: RandomStream,
    asked: u32,
    next_at: Instant,
}

impl Querier {
    /// Asks about these groups, and about all, by frames with the tag of `vlan`.
    pub fn new(queue: RawQueue<SimQueues>, vlan: Option<u16>, groups: Vec<IpAddr>, querying: Querying, dice: RandomStream) -> Self {
        Self { queue: Some(queue), vlan, groups, querying, dice, asked: 0, next_at: Instant::ZERO }
    }

    fn question(&mut self) -> Vec<u8> {
        use Flaw::{Alert, Checksum, Cut, HopLimit, Source};
        let group = self.dice.pick(&self.groups);
        let about = if self.dice.below(2) == 0 { None } else { Some(group) };
        let about = about.and_then(|group| if let IpAddr::V6(group) = group { Some(group) } else { None });
        let count = if about.is_some() { self.dice.pick(&[0, 0, 1, 3]) } else { 0 };
        let sources = (0..count).map(|n| if n == 0 { 1 + self.dice.below(4) } else { 0x9_0000 + n });
        let sources: Vec<_> = sources.map(|n| Ipv6Addr::from_bits((0xfd00 << 112) + u128::from(n))).collect();
        let within = u16::try_from(self.dice.magnitude(1, 5_000)).unwrap_or(1);
        let flaw = self.dice.pick(&[Flaw::None, Flaw::None, Flaw::None, Flaw::None, Checksum, HopLimit, Source, Alert, Cut]);
        question(self.vlan, about, within, &sources, flaw)
    }
}

/// A question of the second version, in a frame.
pub(crate) fn question(vlan: Option<u16>, about: Option<Ipv6Addr>, within_ms: u16, sources: &[Ipv6Addr], flaw: Flaw) -> Vec<u8> {
    let mut message = vec![130, 0, 0, 0];
    message.extend(within_ms.to_be_bytes());
    message.extend([0, 0]);
    message.extend(about.unwrap_or(Ipv6Addr::UNSPECIFIED).octets());
    // (Two for robustness, and as many seconds between two questions as ever: RFC 3810 s9.1, s9.2.)
    message.extend([2, 125]);
    let promised = sources.len() + usize::from(flaw == Flaw::Cut);
    message.extend(u16::try_from(promised).unwrap_or(0).to_be_bytes());
    message.extend(sources.iter().flat_map(Ipv6Addr::octets));

    let dst = about.unwrap_or(ALL_NODES);
    let src = if flaw == Flaw::Source { AFAR } else { ROUTER };
    let mut frame = [MacAddr::of_group(dst.into()).0, PROBER_MAC.0].concat();
    if let Some(vlan) = vlan {
        frame.extend([0x81, 0]);
        frame.extend(vlan.to_be_bytes());
    }
    let alert = if flaw == Flaw::Alert { [58, 0, 1, 4, 0, 0, 0, 0] } else { ALERT };
    let ip_at = frame.len() + 2;
    dissect::extend_with_ip(&mut frame, (src.into(), dst.into()), HOP_BY_HOP, alert.len() + message.len());
    frame[ip_at + 7] = if flaw == Flaw::HopLimit { 255 } else { 1 };
    frame.extend(alert);
    let at = frame.len();
    frame.extend(message);
    checksum::fill_icmpv6(&mut frame, at);
    if flaw == Flaw::Checksum {
        frame[at + 2] ^= 0x55;
    }
    frame
}

impl App for Querier {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        if cx.now < self.next_at {
            return Step::Until(self.next_at);
        }
        if self.asked == self.querying.questions {
            self.queue = None;
            return Step::Finished;
        }
        let question = self.question();
        self.asked += 1;
        if let Some(queue) = &mut self.queue {
            queue.reap();
            // What the NIC refuses is lost, as anywhere else on its way.
            let _ = queue.send(&question, &[], TxOffload::default());
            queue.flush();
        }
        let longest = u64::try_from(self.querying.pause_max.as_nanos()).unwrap_or(u64::MAX);
        let pause = Duration::from_nanos(self.dice.magnitude(1_000, longest));
        self.next_at = cx.now + if self.asked == self.querying.questions { FAREWELL } else { pause };
        Step::Until(self.next_at)
    }
}
