//! The driver's side: [`SimQueues`], one ring as the [`Device`] contract has it.

use core::cell::RefMut;
use core::mem;
use std::net::SocketAddr;

use ringway_stack::Instant;
use ringway_stack::device::{
    Completion, CyclicConfig, CyclicError, CyclicId, CyclicPacket, DeviceEvent, DeviceMemory, DeviceMemoryError, FiveTuple, HEAD_MAX,
    MacAddr, Moderation, Pacing, QueueId, Queues, RateError, RxBatch, SendError, TxFrame, TxOffload, Unsupported, Wake,
};

use super::buffer::{SimRx, SimTx};
use super::card::queue_id;
use super::config::NicConfig;
use super::cyclic::Cyclic;
use super::faults::NicFault;
use super::hardware::Hardware;
use super::offload::Cut;
use super::pacing::Bucket;
use super::{Nic, Outstanding};
use crate::dissect::{ETHERNET_LEN, TCP, be16, transport_at};

/// One ring of a simulated NIC. Dropping it gives everything back that it had.
#[derive(Debug)]
pub struct SimQueues {
    nic: Nic,
    ring: usize,
}

/// How a ring and its NIC stand, as far as it bears on laws.
pub(crate) struct Standing {
    /// Its receive buffers are short.
    pub(crate) scarce: bool,
    pub(crate) rx_buffers_max: usize,
    /// The NIC may merge segments of what it receives.
    pub(crate) merges: bool,
    /// The pieces that it gathers into a frame, and how long each is that a stack has filled.
    pub(crate) gathers: (u32, u32),
    /// A program speaks Ethernet itself on one of the NIC's rings ([`Nic::steered_ring`]).
    pub(crate) has_raw_ring: bool,
    /// Each of the NIC's rings has a MAC address of its own.
    pub(crate) has_mac_per_ring: bool,
}

impl SimQueues {
    /// The only ring of a NIC of its own.
    pub fn new(mac: MacAddr, config: NicConfig) -> Self {
        Nic::new(mac, config).ring()
    }

    pub(super) const fn of_nic(nic: Nic, ring: usize) -> Self {
        Self { nic, ring }
    }

    /// The NIC that it is a ring of.
    pub fn nic(&self) -> &Nic {
        &self.nic
    }

    /// What checkers want to know of it before each poll.
    pub(crate) fn standing(&self) -> Standing {
        let hardware = self.nic.hardware();
        let ring = &hardware.rings[self.ring];
        Standing {
            scarce: ring.suffers(NicFault::RxExhausted, hardware.now) || ring.rx_scarce(),
            rx_buffers_max: hardware.config.rx_buffers_max,
            merges: hardware.config.lro && hardware.config.rx_checksum,
            gathers: [hardware.config.gather_max, hardware.config.tx_buffer_bytes].map(|n| u32::try_from(n).unwrap_or(u32::MAX)).into(),
            has_mac_per_ring: hardware.config.mac_per_ring,
            has_raw_ring: hardware.rings.iter().any(|ring| ring.open && ring.steered_only),
        }
    }

    /// Connections (the host's address, and the peer's) whose rule its NIC took and then failed, since somebody asked.
    pub(crate) fn take_unsteered(&self) -> Vec<(SocketAddr, SocketAddr)> {
        mem::take(&mut self.hardware().unsteered)
    }

    /// Whether it has lent every frame's head since it was asked to ([`Queues::lend_heads`]), for all that was received then.
    pub(crate) fn lent_all_heads(&self) -> bool {
        let hardware = self.nic.hardware();
        let ring = &hardware.rings[self.ring];
        ring.lends && !ring.kept_head
    }

    /// Makes it use buffers again that are still held ([`ringway_stack::mutants::Mutant::RecycleHeld`]).
    #[cfg(feature = "mutants")]
    pub(crate) fn recycle_held(&mut self) {
        self.hardware().rings[self.ring].recycled = Some(Default::default());
    }

    /// What this ring has in use right now; device memory counts for each ring of the NIC.
    pub fn outstanding(&self) -> Outstanding {
        let hardware = self.nic.hardware();
        hardware.rings[self.ring].outstanding(hardware.steering.rules_of(self.ring), hardware.memory.used())
    }

    /// If there is nothing to poll but what the ring's owner slept through: what [`SimQueues::spoken`] is.
    pub(crate) fn slept_through(&self) -> Option<u64> {
        let hardware = self.nic.hardware();
        let ring = &hardware.rings[self.ring];
        ring.is_slept_through().then_some(ring.spoken)
    }

    /// How many segments with bytes, SYN or FIN it was given to send.
    pub(crate) fn spoken(&self) -> u64 {
        self.nic.hardware().rings[self.ring].spoken
    }

    fn hardware(&self) -> RefMut<'_, Hardware> {
        self.nic.hardware()
    }

    /// Whether the send queue takes nothing right now, for no reason of its own.
    fn send_fails(&self, hardware: &mut Hardware) -> bool {
        let now = hardware.now;
        if let Some(until) = hardware.trouble.strikes(NicFault::SendFull, self.ring, now) {
            hardware.rings[self.ring].until[NicFault::SendFull as usize].get_or_insert(until);
        }
        hardware.is_down() || hardware.rings[self.ring].suffers(NicFault::SendFull, now)
    }

    fn check_offload(&self, frame: &TxFrame<'_, SimTx>) -> Result<Option<Cut>, SendError> {
        let TxOffload { checksum, tso_mss, vlan, .. } = frame.offload;
        let lacks = |what| Err(SendError::Unsupported(self.capabilities().lacks(what)));
        if checksum && !self.capabilities().tx_checksum {
            return lacks("checksum offload");
        }
        if vlan.is_some() && !self.capabilities().vlan_insert {
            return lacks("VLAN insertion");
        }
        let Some(mss) = tso_mss else { return Ok(None) };
        if self.capabilities().tso_max.is_none() {
            return lacks("TSO");
        }
        Cut::plan(frame.head, mss).map_or_else(|| lacks("TSO for what is no plain IPv4 TCP frame"), |cut| Ok(Some(cut)))
    }

    fn check_len(&self, frame: &TxFrame<'_, SimTx>, cut: Option<Cut>) -> Result<(), SendError> {
        let tag_len = if frame.head[12..14] == [0x81, 0x00] { 4 } else { 0 };
        let frame_max = match cut {
            Some(_) => self.capabilities().tso_max.unwrap_or(0),
            None => self.capabilities().mtu + ETHERNET_LEN + tag_len,
        };
        let too_long = frame.len() > frame_max
            || cut.is_some_and(|cut| cut.packet_len() > self.capabilities().mtu)
            || frame.body.len() > self.capabilities().gather_max
            || frame.head.len() > HEAD_MAX;
        if too_long { Err(SendError::TooLong) } else { Ok(()) }
    }

    fn check_memory(&self) -> Result<(), DeviceMemoryError> {
        if self.capabilities().device_memory == 0 {
            return Err(self.capabilities().lacks("device memory").into());
        }
        Ok(())
    }
}

impl Queues for SimQueues {
    type Device = Nic;
    type Rx = SimRx;
    type Tx = SimTx;

    fn device(&self) -> &Nic {
        &self.nic
    }

    fn id(&self) -> QueueId {
        queue_id(self.ring)
    }

    fn mac(&self) -> MacAddr {
        self.hardware().mac_of(self.ring)
    }

    /// `now` is the host's clock, which may be ahead of the NIC's own.
    fn poll_rx(&mut self, _now: Instant, batch: &mut RxBatch<SimRx>) -> usize {
        let mut hardware = self.hardware();
        let before = batch.len();
        let count = hardware.rings[self.ring].poll(batch);
        if hardware.config.mac_per_ring {
            hardware.polled(self.ring, batch, before);
        }
        count
    }

    fn rx_ready(&self) -> bool {
        self.hardware().rings[self.ring].has_something()
    }

    fn rx_scarce(&self) -> bool {
        let hardware = self.hardware();
        let ring = &hardware.rings[self.ring];
        ring.suffers(NicFault::RxExhausted, hardware.now) || ring.rx_scarce()
    }

    fn tx_alloc(&mut self, len: usize) -> Option<SimTx> {
        assert!(len > 0, "device contract: a send buffer has at least one byte");
        let hardware = &mut *self.hardware();
        if hardware.registration_fails(self.ring) {
            return None;
        }
        let ring = &mut hardware.rings[self.ring];
        let buffer = SimTx::new(&ring.tx_pool, hardware.config.tx_buffer_bytes);
        ring.starved |= buffer.is_none();
        buffer
    }

    fn tx_free(&mut self, _: usize) -> usize {
        let hardware = self.hardware();
        let pool = &hardware.rings[self.ring].tx_pool;
        pool.max().saturating_sub(pool.outstanding()).saturating_mul(hardware.config.tx_buffer_bytes)
    }

    fn send(&mut self, frame: &TxFrame<'_, SimTx>) -> Result<(), SendError> {
        self.send_with_cookie(frame, 0)
    }

    fn send_with_cookie(&mut self, frame: &TxFrame<'_, SimTx>, cookie: u64) -> Result<(), SendError> {
        if cookie != 0 && !self.capabilities().completions {
            return Err(self.capabilities().lacks("completions of sends").into());
        }
        assert!(frame.head.len() >= ETHERNET_LEN, "device contract: a head without an Ethernet header");
        let cut = self.check_offload(frame)?;
        self.check_len(frame, cut)?;
        let hardware = &mut *self.hardware();
        let fails = self.send_fails(hardware);
        if hardware.config.mac_per_ring && hardware.is_gone(frame.head) {
            return Err(SendError::NoPeer);
        }
        let (tx_queue_max, inline_max) = (hardware.config.tx_queue_max, hardware.config.inline_max);
        let inner_checksum = hardware.config.vxlan;
        let ring = &mut hardware.rings[self.ring];
        if fails || ring.tx_slots_used() >= tx_queue_max || (cookie != 0 && !ring.takes_cookies(tx_queue_max)) {
            ring.starved = true;
            return Err(SendError::Full);
        }
        let TxOffload { checksum, vlan, dummy, unsolicited, flow, .. } = frame.offload;
        let mut queued = ring.blank();
        queued.inline.extend_from_slice(frame.head);
        (queued.checksum, queued.inner_checksum, queued.vlan, queued.dummy, queued.cut) = (checksum, inner_checksum, vlan, dummy, cut);
        (queued.unsolicited, queued.flow, queued.cookie) = (unsolicited, flow, cookie);
        ring.cookies += usize::from(cookie != 0);
        ring.spoken += u64::from(speaks(frame));
        for slice in frame.body {
            slice.buffer.seal(slice.offset, slice.len);
            queued.body.push((slice.buffer.clone(), slice.offset, slice.len));
        }
        if frame.len() <= inline_max {
            queued.inline_body();
        }
        ring.queued.push(queued);
        if hardware.config.mac_per_ring {
            hardware.sent(self.ring, frame.head);
        }
        Ok(())
    }

    fn note_processed(&mut self) {
        let mut hardware = self.hardware();
        if hardware.config.mac_per_ring {
            hardware.death_notes.processed(self.ring);
        }
    }

    fn note_unfinished(&mut self, mac: MacAddr, flow: &FiveTuple, is_unfinished: bool) {
        let mut hardware = self.hardware();
        if hardware.config.mac_per_ring {
            hardware.death_notes.note(self.ring, mac, flow, is_unfinished);
        }
    }

    fn left_finished(&mut self, mac: MacAddr, flow: &FiveTuple) -> bool {
        let hardware = self.hardware();
        hardware.config.mac_per_ring
            && hardware.config.tells_finished
            && hardware.death_notes.left_finished(self.ring, hardware.mac_of(self.ring), mac, flow)
    }

    fn doorbell(&mut self) {
        let hardware = &mut *self.hardware();
        let now = hardware.now;
        let late = hardware.trouble.strikes(NicFault::Doorbell, self.ring, now).unwrap_or(now);
        // Frames never overtake: what an earlier doorbell still holds up holds these up too.
        let ready_at = hardware.rings[self.ring].posted.back().map_or(late, |(earlier, _)| late.max(*earlier));
        hardware.hand_over(self.ring, ready_at);
    }

    fn reap(&mut self) {
        self.hardware().reap(self.ring);
    }

    fn completion(&mut self) -> Option<Completion> {
        let ring = &mut self.hardware().rings[self.ring];
        let completion = ring.completions.pop_front()?;
        ring.cookies -= 1;
        Some(completion)
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.hardware().rings[self.ring].events.pop_front()
    }

    fn arm(&mut self, wake: Wake) -> bool {
        self.hardware().rings[self.ring].wake = wake;
        !self.rx_ready()
    }

    fn disarm(&mut self) {
        self.hardware().rings[self.ring].wake = Wake::Any;
    }

    fn lend_heads(&mut self, on: bool) -> Result<(), Unsupported> {
        if !self.capabilities().lends_heads {
            return Err(self.capabilities().lacks("heads to lend"));
        }
        self.hardware().rings[self.ring].lends = on;
        Ok(())
    }

    fn pace(&mut self, pacing: Pacing) -> Result<(), Unsupported> {
        if !self.capabilities().pacing {
            return Err(self.capabilities().lacks("packet pacing"));
        }
        self.hardware().rings[self.ring].bucket = Bucket::new(pacing, self.capabilities().mtu + ETHERNET_LEN);
        Ok(())
    }

    fn set_rate(&mut self, flow: u32, rate: Pacing) -> Result<(), RateError> {
        let max = self.capabilities().paced_flows_max;
        if max == 0 {
            return Err(self.capabilities().lacks("pacing of single flows").into());
        }
        assert!(flow != 0, "device contract: a rate for no flow");
        let frame_max = self.capabilities().mtu + ETHERNET_LEN;
        let buckets = &mut self.hardware().rings[self.ring].flow_buckets;
        match Bucket::new(rate, frame_max) {
            None => drop(buckets.remove(&flow)),
            Some(_) if buckets.len() >= max && !buckets.contains_key(&flow) => return Err(RateError::Full),
            Some(bucket) => drop(buckets.insert(flow, bucket)),
        }
        Ok(())
    }

    fn moderate(&mut self, moderation: Moderation) -> Result<(), Unsupported> {
        if !self.capabilities().moderation {
            return Err(self.capabilities().lacks("completion moderation"));
        }
        // Without a period, a count alone might never be reached.
        self.hardware().rings[self.ring].moderation = (moderation.period_us > 0).then_some(moderation);
        Ok(())
    }

    fn cyclic_create(&mut self, config: &CyclicConfig) -> Result<CyclicId, CyclicError> {
        if !self.capabilities().striding {
            return Err(self.capabilities().lacks("striding receive queue").into());
        }
        let hardware = &mut *self.hardware();
        let ring = &mut hardware.rings[self.ring];
        if ring.cyclic.len() >= hardware.config.cyclic_queues_max {
            return Err(CyclicError::Full);
        }
        ring.cyclic_made += 1;
        ring.cyclic.insert(ring.cyclic_made, Cyclic::new(*config)?);
        Ok(CyclicId(ring.cyclic_made))
    }

    fn cyclic_read(&mut self, queue: CyclicId, packets_max: usize, packets: &mut Vec<CyclicPacket>) -> Result<Option<SimRx>, CyclicError> {
        let mut hardware = self.hardware();
        let ring = &mut hardware.rings[self.ring];
        let cyclic = ring.cyclic.get_mut(&queue.0).ok_or(CyclicError::Unknown)?;
        Ok(cyclic.read(packets_max, packets))
    }

    fn cyclic_destroy(&mut self, queue: CyclicId) -> Result<(), CyclicError> {
        let mut hardware = self.hardware();
        let cyclic = &mut hardware.rings[self.ring].cyclic;
        let held = cyclic.get(&queue.0).ok_or(CyclicError::Unknown)?;
        if held.rules > 0 || held.held() > 0 {
            return Err(CyclicError::Busy);
        }
        cyclic.remove(&queue.0);
        Ok(())
    }

    fn dm_alloc(&mut self, len: usize) -> Result<DeviceMemory, DeviceMemoryError> {
        self.check_memory()?;
        self.hardware().memory.alloc(len)
    }

    fn dm_copy_to(&mut self, memory: DeviceMemory, offset: usize, bytes: &[u8]) -> Result<(), DeviceMemoryError> {
        self.check_memory()?;
        let hardware = self.hardware();
        hardware.memory.copy_to(memory, offset, bytes, |block, range| {
            let waiting = |ring: &super::queues::RingState| {
                let frames = ring.queued.iter().chain(ring.posted.iter().map(|(_, frame)| frame));
                frames.flat_map(|frame| &frame.body).any(|(buffer, at, len)| buffer.reads(*at, *len, block, &range))
            };
            hardware.rings.iter().any(waiting)
        })
    }

    fn dm_copy_from(&mut self, memory: DeviceMemory, offset: usize, out: &mut [u8]) -> Result<(), DeviceMemoryError> {
        self.check_memory()?;
        self.hardware().memory.copy_from(memory, offset, out)
    }

    fn dm_register(&mut self, memory: DeviceMemory, offset: usize, len: usize) -> Result<SimTx, DeviceMemoryError> {
        self.check_memory()?;
        self.hardware().memory.register(memory, offset, len)
    }

    fn dm_free(&mut self, memory: DeviceMemory) -> Result<(), DeviceMemoryError> {
        self.check_memory()?;
        self.hardware().memory.free(memory)
    }
}

impl Drop for SimQueues {
    fn drop(&mut self) {
        self.hardware().close_ring(self.ring);
    }
}

/// Whether it is a segment with bytes, SYN or FIN.
fn speaks(frame: &TxFrame<'_, SimTx>) -> bool {
    const FIN_OR_SYN: u8 = 0x03;
    let head = frame.head;
    let ip = ETHERNET_LEN + if be16(head, 12) == Some(0x8100) { 4 } else { 0 };
    let transport = transport_at(head, ip).filter(|_| matches!(be16(head, ip - 2), Some(0x0800 | 0x86dd)));
    let Some((TCP, tcp)) = transport else { return false };
    let Some(&[offset, flags]) = head.get(tcp + 12..tcp + 14) else { return false };
    flags & FIN_OR_SYN != 0 || frame.len() > tcp + usize::from(offset >> 4) * 4
}
