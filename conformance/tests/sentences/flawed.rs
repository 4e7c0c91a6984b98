//! A device with one flaw, on top of a right one: what the cases are there to find.

use ringway_sim::{Nic, NicConfig, SimQueues, SimRx, SimTx};
use ringway_stack::Instant;
use ringway_stack::device::{
    Attached, Capabilities, Completion, Device, DeviceEvent, DeviceMemory, DeviceMemoryError, FlowRule, IpMatch, MacAddr, OpenError,
    Pacing, QueueId, Queues, QueuesConfig, RateError, RuleError, RuleId, RxBatch, SendError, Target, TxFrame, TxOffload, Unsupported,
    VxlanMatch, Wake,
};

/// What is wrong with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// It takes what it cannot do, and does nothing.
    SilentPacing,
    SilentSteering,
    SilentCutting,
    SilentMemory,
    SilentCompletions,
    SilentFlowRates,
    /// It refuses what its capabilities name.
    RefusesPacing,
    /// It does another thing than it was asked for.
    RateTooHigh,
    BurstForgotten,
    LimitNeverLifted,
    SegmentsTooShort,
    ChecksumsLeftOut,
    ChecksumsUnasked,
    TosIgnored,
    EcnIgnored,
    TagForgotten,
    TagCut,
    VniIgnored,
    InnerIgnored,
    RuleStays,
    UnalignedTaken,
    BusyFreed,
    FreedNever,
    CopiesUnderFrames,
    RegisteredFromStart,
    CopiesToStart,
    AllocatesNothing,
}

/// A configuration of the NIC underneath.
type Card = fn() -> NicConfig;

/// A rule that steers nothing.
const NO_RULE: RuleId = RuleId(u64::MAX);

impl Flaw {
    /// Each flaw, the NIC on which it shows, and a sentence that must find it.
    pub(crate) const ALL: [(Self, Card, &'static str); 27] = [
        (Self::SilentPacing, NicConfig::bare, "003.4"),
        (Self::SilentSteering, NicConfig::bare, "003.10"),
        (Self::SilentCutting, NicConfig::bare, "003.5"),
        (Self::SilentMemory, NicConfig::bare, "003.13"),
        (Self::SilentCompletions, NicConfig::bare, "003.1"),
        (Self::SilentFlowRates, NicConfig::bare, "003.1"),
        (Self::RefusesPacing, NicConfig::full, "003.1"),
        (Self::RateTooHigh, NicConfig::full, "003.4"),
        (Self::BurstForgotten, NicConfig::full, "003.4"),
        (Self::LimitNeverLifted, NicConfig::full, "003.4"),
        (Self::SegmentsTooShort, NicConfig::full, "003.6"),
        (Self::ChecksumsLeftOut, NicConfig::full, "003.3"),
        (Self::ChecksumsUnasked, NicConfig::full, "003.3"),
        (Self::TosIgnored, NicConfig::full, "003.10"),
        (Self::EcnIgnored, NicConfig::full, "003.8"),
        (Self::TagForgotten, NicConfig::full, "003.11"),
        (Self::TagCut, NicConfig::full, "003.11"),
        (Self::VniIgnored, NicConfig::full, "003.12"),
        (Self::InnerIgnored, NicConfig::full, "003.12"),
        (Self::RuleStays, NicConfig::full, "003.10"),
        (Self::UnalignedTaken, NicConfig::full, "003.22"),
        (Self::BusyFreed, NicConfig::full, "003.18"),
        (Self::FreedNever, NicConfig::full, "003.18"),
        (Self::CopiesUnderFrames, NicConfig::full, "003.20"),
        (Self::RegisteredFromStart, NicConfig::full, "003.24"),
        (Self::CopiesToStart, NicConfig::full, "003.25"),
        (Self::AllocatesNothing, NicConfig::full, "003.18"),
    ];
}

/// The device.
#[derive(Debug)]
pub(crate) struct Flawed {
    card: FlawedCard,
    pub(crate) device: SimQueues,
    pub(crate) flaw: Flaw,
}

impl Flawed {
    pub(crate) fn new(device: SimQueues, flaw: Flaw) -> Self {
        let card = FlawedCard { nic: device.nic().clone(), flaw };
        Self { card, device, flaw }
    }
}

/// Its card.
#[derive(Clone, Debug)]
pub(crate) struct FlawedCard {
    nic: Nic,
    flaw: Flaw,
}

impl FlawedCard {
    /// The rule that it attaches instead.
    fn misread(&self, mut rule: FlowRule) -> FlowRule {
        match (self.flaw, &mut rule.outer.ip, &mut rule.vxlan) {
            (Flaw::TosIgnored, Some(IpMatch::V4 { tos, .. }), _) => *tos = None,
            // As if the two bits were always zero.
            (Flaw::EcnIgnored, Some(IpMatch::V4 { tos: Some(tos), .. }), _) => *tos &= 0xfc,
            (Flaw::VniIgnored, _, Some(VxlanMatch { vni, .. })) => *vni = None,
            (Flaw::InnerIgnored, _, Some(VxlanMatch { inner, .. })) => *inner = ringway_stack::device::HeaderMatch::default(),
            (Flaw::TagCut, ..) => rule.tag &= 0xffff,
            _ => {}
        }
        rule
    }
}

impl Device for FlawedCard {
    type Queues = Flawed;

    fn capabilities(&self) -> &Capabilities {
        self.nic.capabilities()
    }

    fn open(&self, config: &QueuesConfig) -> Result<Flawed, OpenError> {
        Ok(Flawed::new(self.nic.open(config)?, self.flaw))
    }

    fn attach(&self, rule: &FlowRule, target: Target) -> Result<Attached, RuleError> {
        match self.nic.attach(&self.misread(*rule), target) {
            Err(RuleError::Unsupported(_)) if self.flaw == Flaw::SilentSteering => Ok(Attached { rule: NO_RULE, is_ready: true }),
            outcome => outcome,
        }
    }

    fn retarget(&self, rule: RuleId, target: Target, tag: u32) -> Result<(), RuleError> {
        self.nic.retarget(rule, target, tag)
    }

    fn detach(&self, rule: RuleId) {
        if rule != NO_RULE && self.flaw != Flaw::RuleStays {
            self.nic.detach(rule);
        }
    }
}

impl Queues for Flawed {
    type Device = FlawedCard;
    type Rx = SimRx;
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

    fn poll_rx(&mut self, now: Instant, batch: &mut RxBatch<SimRx>) -> usize {
        let polled = self.device.poll_rx(now, batch);
        if self.flaw == Flaw::TagForgotten {
            batch.frames_mut().iter_mut().for_each(|frame| frame.meta.flow_tag = 0);
        }
        polled
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
        let mut offload = frame.offload;
        match self.flaw {
            Flaw::ChecksumsLeftOut if offload.tso_mss.is_none() => offload.checksum = false,
            Flaw::ChecksumsUnasked => offload.checksum = true,
            Flaw::SegmentsTooShort => offload.tso_mss = offload.tso_mss.map(|mss| mss / 2),
            Flaw::SilentCutting if offload.tso_mss.is_some() => return Ok(()),
            _ => {}
        }
        self.device.send(&TxFrame { offload: TxOffload { ..offload }, ..*frame })
    }

    fn send_with_cookie(&mut self, frame: &TxFrame<'_, SimTx>, cookie: u64) -> Result<(), SendError> {
        match self.flaw {
            Flaw::SilentCompletions => self.send(frame),
            _ if cookie == 0 => self.send(frame),
            _ => self.device.send_with_cookie(frame, cookie),
        }
    }

    fn completion(&mut self) -> Option<Completion> {
        self.device.completion()
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

    fn pace(&mut self, pacing: Pacing) -> Result<(), Unsupported> {
        match self.flaw {
            Flaw::SilentPacing => Ok(()),
            Flaw::RefusesPacing => Err(self.capabilities().lacks("packet pacing")),
            Flaw::RateTooHigh => self.device.pace(Pacing { rate_bps: pacing.rate_bps / 50 * 51, ..pacing }),
            Flaw::BurstForgotten => self.device.pace(Pacing { burst_bytes: 0, ..pacing }),
            Flaw::LimitNeverLifted if pacing.rate_bps == 0 => Ok(()),
            _ => self.device.pace(pacing),
        }
    }

    fn set_rate(&mut self, flow: u32, rate: Pacing) -> Result<(), RateError> {
        if self.flaw == Flaw::SilentFlowRates { Ok(()) } else { self.device.set_rate(flow, rate) }
    }

    fn dm_alloc(&mut self, len: usize) -> Result<DeviceMemory, DeviceMemoryError> {
        match self.flaw {
            Flaw::SilentMemory => Ok(DeviceMemory(1)),
            Flaw::AllocatesNothing if len == 0 => self.device.dm_alloc(1),
            _ => self.device.dm_alloc(len),
        }
    }

    fn dm_copy_to(&mut self, memory: DeviceMemory, offset: usize, bytes: &[u8]) -> Result<(), DeviceMemoryError> {
        let offset = if self.flaw == Flaw::CopiesToStart { 0 } else { offset };
        match self.device.dm_copy_to(memory, offset, bytes) {
            Err(DeviceMemoryError::Unaligned) if self.flaw == Flaw::UnalignedTaken => Ok(()),
            Err(DeviceMemoryError::Busy) if self.flaw == Flaw::CopiesUnderFrames => Ok(()),
            outcome => outcome,
        }
    }

    fn dm_copy_from(&mut self, memory: DeviceMemory, offset: usize, out: &mut [u8]) -> Result<(), DeviceMemoryError> {
        self.device.dm_copy_from(memory, offset, out)
    }

    fn dm_register(&mut self, memory: DeviceMemory, offset: usize, len: usize) -> Result<SimTx, DeviceMemoryError> {
        let offset = if self.flaw == Flaw::RegisteredFromStart { 0 } else { offset };
        self.device.dm_register(memory, offset, len)
    }

    fn dm_free(&mut self, memory: DeviceMemory) -> Result<(), DeviceMemoryError> {
        if self.flaw == Flaw::FreedNever {
            return Ok(());
        }
        match self.device.dm_free(memory) {
            Err(DeviceMemoryError::Busy) if self.flaw == Flaw::BusyFreed => Ok(()),
            outcome => outcome,
        }
    }
}
