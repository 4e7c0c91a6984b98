//! What is changed while frames are on their way: rules, queues of strides, the second ring, the rate, memory on the card.

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use ringway_sim::random::RandomStream;
use ringway_stack::Instant;
use ringway_stack::device::{
    CyclicConfig, CyclicError, Device as _, DeviceMemoryError, FlowRule, HeaderMatch, IpMatch, Pacing, Protocol, Queues as _, QueuesConfig,
    Target, TransportMatch, VxlanMatch,
};

use super::built::{PORT, PORTS, SERVICES, STREAM_PORT, TAGS, TUNNELS};
use super::{Lanes, Strides, address};

/// Rules and queues of strides at most.
const RULES_MAX: usize = 8;
const STRIDES_MAX: usize = 2;

/// Changes that were made, and not refused, by what they were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) attached: u64,
    pub(crate) moved: u64,
    pub(crate) detached: u64,
    pub(crate) strides_made: u64,
    pub(crate) strides_ended: u64,
    /// Queues of strides that did not end, as rules led there or frames were held.
    pub(crate) strides_busy: u64,
    /// Second rings that were closed.
    pub(crate) rings_closed: u64,
    pub(crate) paced: u64,
    /// Memory on the card that was given back.
    pub(crate) freed: u64,
}

impl Changes {
    /// Each count.
    pub(crate) fn counts(&self) -> [(&'static str, u64); 9] {
        let Self { attached, moved, detached, strides_made, strides_ended, strides_busy, rings_closed, paced, freed } = *self;
        [
            ("rules made", attached),
            ("rules moved", moved),
            ("rules ended", detached),
            ("queues of strides made", strides_made),
            ("queues of strides ended", strides_ended),
            ("queues of strides in use", strides_busy),
            ("second rings closed", rings_closed),
            ("rates set", paced),
            ("memory on the card given back", freed),
        ]
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            attached: self.attached + other.attached,
            moved: self.moved + other.moved,
            detached: self.detached + other.detached,
            strides_made: self.strides_made + other.strides_made,
            strides_ended: self.strides_ended + other.strides_ended,
            strides_busy: self.strides_busy + other.strides_busy,
            rings_closed: self.rings_closed + other.rings_closed,
            paced: self.paced + other.paced,
            freed: self.freed + other.freed,
        }
    }
}

impl Lanes {
    /// One change.
    pub(super) fn change(&mut self, now: Instant) {
        match self.dice.below(12) {
            0..=3 => self.attach(),
            4 | 5 => self.retarget(),
            6 => self.detach(),
            7 => self.make_strides(),
            8 => self.end_strides(now),
            9 => self.second_ring(),
            10 => self.pace(),
            _ => self.free(),
        }
    }

    /// Where a rule may lead.
    fn target(&mut self) -> Option<Target> {
        let first = self.rings[0].as_ref()?.id();
        let mut targets = vec![Target::Queue(first)];
        targets.extend(self.rings[1].as_ref().map(|ring| Target::Queue(ring.id())));
        // (Twice, as it is what this is for.)
        let strides = self.strides.iter().map(|strides| Target::Cyclic(first, strides.id));
        targets.extend(strides.clone().chain(strides));
        Some(self.dice.pick(&targets))
    }

    fn attach(&mut self) {
        let Some(target) = self.target().filter(|_| self.rules.len() < RULES_MAX) else { return };
        let rule = rule(self.host, &mut self.dice);
        if let Ok(attached) = self.device.attach(&rule, target) {
            self.rules.push((attached.rule, target));
            self.done.attached += 1;
        }
    }

    fn retarget(&mut self) {
        let Some(target) = self.target().filter(|_| !self.rules.is_empty()) else { return };
        let at = self.dice.below(self.rules.len() as u64) as usize;
        let tag = tag(&mut self.dice);
        if self.device.retarget(self.rules[at].0, target, tag).is_ok() {
            self.rules[at].1 = target;
            self.done.moved += 1;
        }
    }

    fn detach(&mut self) {
        if !self.rules.is_empty() {
            let at = self.dice.below(self.rules.len() as u64) as usize;
            let (rule, _) = self.rules.swap_remove(at);
            self.device.detach(rule);
            self.done.detached += 1;
        }
    }

    fn make_strides(&mut self) {
        let Some(ring) = self.rings[0].as_mut().filter(|_| self.strides.len() < STRIDES_MAX) else { return };
        // One that no card has, or into whose buffer the longest frame does not fit.
        let wrong = self.dice.pick(&[(32, 64), (100, 64), (64, 63), (64, 16), (1 << 14, 8)]);
        let refused = ring.cyclic_create(&CyclicConfig { stride_bytes: wrong.0, strides: wrong.1 });
        assert_eq!(refused, Err(CyclicError::Invalid), "law strides: {wrong:?} is no form of a queue");
        let bytes = self.dice.pick(&[64, 128, 256, 512, 1024, 2048]);
        // As many as one frame takes, or several.
        let strides = (2048 / bytes).max(8) << self.dice.below(4);
        if let Ok(id) = ring.cyclic_create(&CyclicConfig { stride_bytes: bytes, strides }) {
            self.strides.push(Strides { id, bytes, held: Vec::new() });
            self.done.strides_made += 1;
        }
    }

    fn end_strides(&mut self, now: Instant) {
        if self.strides.is_empty() {
            return;
        }
        let at = self.dice.below(self.strides.len() as u64) as usize;
        let Some(ring) = &mut self.rings[0] else { return };
        let it = Target::Cyclic(ring.id(), self.strides[at].id);
        let (is_led_to, is_held) = (self.rules.iter().any(|(_, to)| *to == it), !self.strides[at].held.is_empty());
        match ring.cyclic_destroy(self.strides[at].id) {
            Ok(()) => {
                assert!(!is_led_to && !is_held, "law strides: a queue ends that is in use");
                self.strides.remove(at);
                self.done.strides_ended += 1;
            }
            // (A group that could not be changed may lead there still.)
            Err(error) => {
                let may_lag = self.device.card.borrow().trouble.until + Duration::from_secs(1) > now;
                let is_right = error == CyclicError::Busy && (is_led_to || is_held || may_lag);
                assert!(is_right, "law strides: a queue that nobody uses does not end: {error:?}");
                self.done.strides_busy += 1;
            }
        }
    }

    /// It comes, or goes, with the rules that lead to it.
    fn second_ring(&mut self) {
        match self.rings[1].take() {
            None => self.rings[1] = self.device.open(&QueuesConfig { steered_only: true }).ok(),
            Some(ring) => {
                let it = Target::Queue(ring.id());
                drop(ring);
                self.rules.retain(|(_, to)| *to != it);
                self.done.rings_closed += 1;
            }
        }
    }

    fn pace(&mut self) {
        let Some(ring) = &mut self.rings[0] else { return };
        let rate_bps = if self.dice.chance_ppm(250_000) { 0 } else { self.dice.magnitude(2_000_000, 2_000_000_000) };
        let (burst_bytes, typical_packet_bytes) = self.dice.pick(&[(0, 0), (0, 0), (4096, 0), (0, 1500)]);
        // (What is refused leaves the rate as it was.)
        let is_set = ring.pace(Pacing { rate_bps, burst_bytes, typical_packet_bytes }).is_ok();
        self.done.paced += u64::from(is_set && rate_bps > 0);
    }

    /// Memory on the card is given back, unless frames are on their way from there.
    fn free(&mut self) {
        let (Some(ring), Some((memory, _))) = (&mut self.rings[0], self.on_card) else { return };
        match ring.dm_free(memory) {
            Ok(()) => {
                self.on_card = None;
                self.done.freed += 1;
            }
            Err(error) => {
                let unsent = ring.queues.unsent();
                let is_right = error == DeviceMemoryError::Busy && unsent > 0;
                assert!(is_right, "law device memory: {error:?}, with {unsent} blocks on their way");
            }
        }
    }
}

fn tag(dice: &mut RandomStream) -> u32 {
    if dice.chance_ppm(200_000) { 0 } else { dice.magnitude(1, 0xff_ffff) as u32 }
}

/// A rule for what the other host sends here.
fn rule(host: usize, dice: &mut RandomStream) -> FlowRule {
    let port = PORT + dice.below(PORTS) as u16;
    let to = |port| SocketAddr::new(IpAddr::V4(address(host)), port);
    let mut rule = FlowRule::flow(Protocol::Udp, to(port), None).tag(tag(dice));
    match dice.below(8) {
        0 => {}
        1 => {
            let (dst, tos) = (Some(address(host)), Some(dice.pick(&SERVICES)));
            rule.outer.ip = Some(IpMatch::V4 { src: None, dst, tos });
        }
        2 => rule.outer.vlan = Some(dice.pick(&TAGS)),
        3 | 4 => {
            rule.outer = HeaderMatch::default();
            let transport = TransportMatch { protocol: Protocol::Udp, src_port: None, dst_port: Some(port) };
            let inner = HeaderMatch {
                ip: Some(IpMatch::V4 { src: None, dst: Some(address(host)), tos: None }),
                transport: Some(transport),
                ..HeaderMatch::default()
            };
            let inner = if dice.chance_ppm(500_000) { inner } else { HeaderMatch::default() };
            rule.vxlan = Some(VxlanMatch { vni: Some(dice.pick(&TUNNELS)), inner });
        }
        5 => return FlowRule::flow(Protocol::Tcp, to(STREAM_PORT), None).tag(tag(dice)).shared(),
        _ => return rule.shared(),
    }
    rule
}
