//! Striding queues as UDP sockets' receive queues: the device writes datagrams behind each other into one buffer, and a program reads them there, whole as they came
//! ([`crate::cyclic::Strides`]).
//!
//! A socket's rule leads to the queue, and so to nobody's receive buffer: what the program does not read in time the device drops. What does not come by the socket's
//! own rule (groups, fragments, what was on its way before) waits in the socket as ever, and [`Ring::cyclic_read`] has it. Whoever wants something of
//! each datagram (a peer, a filter, another ring) has the rule lead back first.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::super::Ring;
use super::super::slots::Flow;
use super::super::tap::Seen;
use super::super::types::{FlowId, Reuse};
use crate::cyclic::{CyclicError, Layout, Run, Strides};
use crate::device::{self, ChecksumVerdict, CyclicId, CyclicPacket, Device as _, Protocol, Queues, RxBuffer, Target};
use crate::error::Error;
use crate::flow::Readiness;
use crate::time::Instant;
use crate::wire::checksum::Checksum;
use crate::wire::{ethernet, ipv4, udp};

/// Packets that one look takes from a queue at a time, and how often it does.
const PACKETS_MAX: usize = 256;
const TURNS_MAX: usize = 16;
/// Bytes of the longest headers that are looked at: Ethernet's with a tag, IPv4's with all its options, and UDP's.
const HEADERS_MAX: usize = ethernet::LEN + ethernet::VLAN_LEN + ipv4::LEN_MAX + udp::LEN;

/// A ring's striding queues, by their names.
pub(in crate::ring) type StridingQueues<B> = BTreeMap<u64, Strides<B>>;

impl<Q: Queues> Ring<Q> {
    /// A striding queue for records of this layout. Nothing comes there yet ([`Ring::udp_to_strides`]).
    ///
    /// # Errors
    /// [`device::CyclicError`]; `Invalid` also if no device writes such records ([`Layout::striding`]).
    pub fn strides_open(&mut self, layout: &Layout) -> Result<CyclicId, device::CyclicError> {
        let strides = Strides::new(layout).ok_or(device::CyclicError::Invalid)?;
        let queue = self.queues.cyclic_create(strides.config())?;
        self.strides.insert(queue.0, strides);
        Ok(queue)
    }

    /// Ends a striding queue, with what waits there. Sockets that it was for receive as others do.
    pub fn strides_close(&mut self, queue: CyclicId) {
        let of_queue = |(id, flow): (FlowId, &Flow<Q>)| match flow {
            Flow::Udp(udp) if udp.strides == Some(queue) => Some(id),
            _ => None,
        };
        let sockets: Vec<FlowId> = self.slots.iter().filter_map(of_queue).collect();
        for id in sockets {
            // (It is one of UDP's.)
            let _ = self.udp_from_strides(id);
            if let Ok(udp) = self.slots.udp(id) {
                udp.in_strides = 0;
            }
        }
        if self.strides.remove(&queue.0).is_some() {
            // (All handles are gone, and so are the rules, unless one could not be moved: the queue ends with the ring, then.)
            let _ = self.queues.cyclic_destroy(queue);
        }
    }

    /// Has a UDP socket's datagrams come to a striding queue from now on.
    ///
    /// # Errors
    /// [`Error::BadSocket`]; [`Error::NotSupported`]: no such queue, or the socket is not of UDP and IPv4, or shares its address, has a peer, a filter or no rule of its own that
    /// steers; or what the device says which does not move the rule. All is as before.
    pub fn udp_to_strides(&mut self, id: FlowId, queue: CyclicId) -> Result<(), Error> {
        let may_move = |udp: &super::UdpFlow<Q>| {
            let has_rule = udp.rule.is_some_and(|rule| self.rules.may_move(rule));
            let is_simple = udp.options.reuse == Reuse::No && udp.remote.is_none() && udp.filter.is_none();
            has_rule && is_simple && !udp.shut_read && udp.local.is_ipv4() && udp.strides.is_none()
        };
        let rule = match self.slots.find(id).ok_or(Error::BadSocket)? {
            Flow::Udp(udp) if self.strides.contains_key(&queue.0) && may_move(udp) => udp.rule,
            _ => None,
        };
        let rule = rule.ok_or(Error::NotSupported)?;
        let target = Target::Cyclic(self.queues.id(), queue);
        self.queues.device().retarget(rule, target, self.tag_of(id.index)).map_err(super::rule_error)?;
        self.slots.udp(id)?.strides = Some(queue);
        Ok(())
    }

    /// Has a UDP socket's datagrams come to the socket again, if they came to a striding queue. What waits there can still be read there.
    ///
    /// # Errors
    /// [`Error::BadSocket`], [`Error::NotSupported`] (not UDP); or what the device says which does not move the rule, and all is as before.
    pub fn udp_from_strides(&mut self, id: FlowId) -> Result<(), Error> {
        let udp = self.slots.udp(id)?;
        let (Some(_), rule) = (udp.strides, udp.rule) else { return Ok(()) };
        if let Some(rule) = rule {
            let target = self.queues.id().into();
            self.queues.device().retarget(rule, target, self.tag_of(id.index)).map_err(super::rule_error)?;
        }
        self.slots.udp(id)?.strides = None;
        Ok(())
    }

    /// Gives out the next run of a striding queue: where its packets lie in the queue's buffer, whole, one behind the other. As [`Ring::cyclic_read`] has it, with two
    /// linear ends in the buffer; the device may write to what was given out once a call has gone on behind the next of them.
    ///
    /// # Errors
    /// [`CyclicError::Invalid`], [`CyclicError::Oversized`]; [`Error::BadSocket`]: no such queue.
    pub fn strides_read(&mut self, now: Instant, queue: CyclicId, min: usize, max: usize) -> Result<Option<Run>, CyclicError> {
        if self.strides.get(&queue.0).is_some_and(|strides| strides.waiting() < max) {
            self.take_strided_of(now, queue);
        }
        let Self { strides, slots, .. } = self;
        let strides = strides.get_mut(&queue.0).ok_or(Error::BadSocket)?;
        strides.read(min, max, |socket| {
            if let Some(Flow::Udp(udp)) = slots.at(socket) {
                udp.in_strides = udp.in_strides.saturating_sub(1);
            }
        })
    }

    /// Packets of a striding queue that were seen and not given out.
    pub fn strides_waiting(&self, queue: CyclicId) -> usize {
        self.strides.get(&queue.0).map_or(0, Strides::waiting)
    }

    /// Copies bytes of what a striding queue has given out: see [`Strides::copy_to`].
    pub fn strides_copy(&self, queue: CyclicId, place: usize, out: &mut [u8]) -> bool {
        self.strides.get(&queue.0).is_some_and(|strides| strides.copy_to(place, out))
    }

    /// A socket is gone, or its slot is to be another's.
    pub(super) fn forget_strided(&mut self, index: u32) {
        self.strides.values_mut().for_each(|strides| strides.forget(index));
    }

    /// Looks at what has come to all striding queues, so that who waits for it is told. Returns how many packets that were.
    #[cold]
    pub(in crate::ring) fn take_strided(&mut self, now: Instant) -> usize {
        let queues: Vec<u64> = self.strides.keys().copied().collect();
        queues.into_iter().map(|queue| self.take_strided_of(now, CyclicId(queue))).sum()
    }

    fn take_strided_of(&mut self, now: Instant, queue: CyclicId) -> usize {
        let mut count = 0;
        let mut packets = Vec::new();
        for _ in 0..TURNS_MAX {
            // (A device that is gone has none any more.)
            let Ok(Some(run)) = self.queues.cyclic_read(queue, PACKETS_MAX, &mut packets) else { break };
            count += packets.len();
            let owned = packets.drain(..).map(|packet| (packet, self.on_strided(&run, &packet))).collect::<Vec<_>>();
            if let Some(strides) = self.strides.get_mut(&queue.0) {
                strides.add(run, owned, now);
            }
        }
        count
    }

    /// Whose a packet is. `None`: nobody's, or it is damaged.
    fn on_strided(&mut self, run: &Q::Rx, packet: &CyclicPacket) -> Option<u32> {
        let mut head = [0; HEADERS_MAX];
        let head = &mut head[..packet.len.min(HEADERS_MAX)];
        run.copy_to(packet.offset, head);
        if let Some(tap) = self.output.tap() {
            let rest = |out: &mut [u8]| {
                let len = out.len().min(packet.len - head.len());
                run.copy_to(packet.offset + head.len(), &mut out[..len]);
            };
            tap.frame(&Seen { is_sent: false, head, len: packet.len, vlan: packet.meta.vlan, checksums_left: false, rest: &rest });
        }
        self.output.counters.rx_packets += 1;
        let owner = self.owner_of(run, packet, head);
        match owner {
            None => self.output.counters.rx_drops += 1,
            Some(index) => self.raise(index, Readiness::IN),
        }
        owner
    }

    fn owner_of(&mut self, run: &Q::Rx, packet: &CyclicPacket, head: &[u8]) -> Option<u32> {
        let (link, at) = ethernet::Header::parse(head).ok()?;
        let vlan = packet.meta.vlan.or(link.vlan).map(|tag| tag & 0xfff);
        let is_for_us = link.dst == self.mac && vlan == self.config.vlan.map(|tag| tag & 0xfff);
        let bytes = head.get(at..).filter(|_| is_for_us && link.ethertype == ethernet::ETHERTYPE_IPV4)?;
        let (header, len) = ipv4::Header::parse(bytes).ok()?;
        let total = usize::from(header.total_len);
        let is_whole = header.protocol == ipv4::PROTOCOL_UDP && !header.is_fragment() && at + total <= packet.len;
        let (ports, payload_at) = udp::Header::parse(bytes.get(len..).filter(|_| is_whole)?).ok()?;
        let datagram = usize::from(ports.len);
        let is_good = match packet.meta.checksum {
            ChecksumVerdict::Good => true,
            ChecksumVerdict::Bad => false,
            ChecksumVerdict::Unknown => {
                let mut sum = header.pseudo_header(datagram);
                let is_there = datagram >= payload_at && len + datagram <= total && ipv4::verify_checksum(bytes);
                // RFC 768: a checksum of zero says that there is none.
                is_there && (ports.checksum == 0 || is_datagram_good(&mut sum, run, packet.offset + at + len, datagram))
            }
        };
        if !is_good || datagram < payload_at || len + datagram > total || !self.is_ours(header.dst.into()) {
            return None;
        }
        let (remote, local) = (SocketAddr::new(header.src.into(), ports.src_port), SocketAddr::new(header.dst.into(), ports.dst_port));
        let tagged = self.tagged_datagram(packet.meta.flow_tag, &local, &remote);
        let index = tagged.or_else(|| self.demux.find(Protocol::Udp, local, remote))?;
        let Some(Flow::Udp(udp)) = self.slots.at(index) else { return None };
        udp.in_strides += 1;
        udp.counters.rx_packets += 1;
        udp.counters.rx_bytes += (datagram - payload_at) as u64;
        self.output.counters.rx_bytes += (datagram - payload_at) as u64;
        Some(index)
    }
}

fn is_datagram_good<B: RxBuffer>(sum: &mut Checksum, run: &B, at: usize, len: usize) -> bool {
    sum.add_sum(run.checksum(at, len), len);
    sum.is_good()
}
