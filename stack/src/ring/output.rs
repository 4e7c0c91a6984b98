//! Frames on their way out: headers built in place, checksums where the device doesn't fill them in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;

use super::ip::{self, IpHeader};
use super::tap::{self, Tap};
use crate::device::{Capabilities, HEAD_MAX, MacAddr, Protocol, Queues, SendError, TxBuffer, TxFrame, TxOffload, TxSlice};
use crate::flow::Counters;
use crate::mutants::{Mutant, Mutation};
use crate::tcp::Segment;
use crate::wire::checksum::{self, Checksum};
use crate::wire::{arp, ethernet, icmp, igmp, ipv4, ipv6, tcp, udp};

/// The most bytes of a packet's headers without options: Ethernet with a VLAN tag, IPv6, TCP.
pub const HEADERS_MAX: usize = 14 + 4 + 40 + 20;

/// The two bits of ECN in the type of service, or traffic class, and what those have that are capable of it (RFC 3168 s5: ECT(0)).
const ECN_MASK: u8 = 3;
const ECT_0: u8 = 2;

/// From whom to whom, below the transport header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Envelope {
    pub(super) src: IpAddr,
    pub(super) dst: IpAddr,
    pub(super) mac: MacAddr,
    pub(super) ttl: u8,
    pub(super) tos: u8,
}

impl Envelope {
    /// Of a TCP segment, which says itself whether it is capable of ECN, whatever a program made of these bits (as Linux's IP_TOS).
    #[inline(always)]
    fn of_segment(mut self, capable: bool) -> Self {
        self.tos = self.tos & !ECN_MASK | if capable { ECT_0 } else { 0 };
        self
    }
}

/// The send side of a ring, apart from the device itself.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) caps: Capabilities,
    mac: MacAddr,
    /// The tag that the stack writes itself, because the device cannot.
    vlan_in_head: Option<u16>,
    /// What the device does to every frame.
    offload: TxOffload,
    /// Bytes before the IP header.
    link_len: usize,
    /// The longest frame that is sent without a buffer.
    inline_max: usize,
    /// Where the small ones are put together; `None` only meanwhile.
    scratch: Option<Box<[u8; HEAD_MAX]>>,
    /// Frames were queued since the last doorbell.
    queued: bool,
    /// Frames that refer to buffers were queued since the last reap.
    pub(super) lent: bool,
    packet_id: u16,
    pub(super) mutation: Mutation,
    pub(super) counters: Counters,
    /// Who captures.
    tap: Option<Box<dyn Tap>>,
    /// The device is to drop what it is given, or somebody captures: who sends looks once for both.
    is_special: bool,
}

impl Output {
    pub(super) fn new(caps: Capabilities, mac: MacAddr, vlan: Option<u16>) -> Self {
        let (vlan_in_head, vlan) = if caps.vlan_insert { (None, vlan) } else { (vlan, None) };
        let link_len = ethernet::LEN + if vlan_in_head.is_some() { ethernet::VLAN_LEN } else { 0 };
        Self {
            mac,
            vlan_in_head,
            offload: TxOffload { checksum: caps.tx_checksum, tso_mss: None, vlan, unsolicited: false, flow: 0, dummy: false },
            link_len,
            inline_max: caps.inline_max.min(HEAD_MAX),
            scratch: None,
            caps,
            queued: false,
            lent: false,
            packet_id: 0,
            mutation: Mutation::HEALTHY,
            counters: Counters::default(),
            tap: None,
            is_special: false,
        }
    }

    /// Whether the device is to drop what it is given ([`Ring::udp_dummy`](super::Ring::udp_dummy)).
    pub(super) fn set_dummy(&mut self, on: bool) {
        self.offload.dummy = on;
        self.is_special = on || self.tap.is_some();
    }

    /// Who captures from now on; returns who did.
    pub(super) fn set_tap(&mut self, tap: Option<Box<dyn Tap>>) -> Option<Box<dyn Tap>> {
        self.is_special = self.offload.dummy || tap.is_some();
        core::mem::replace(&mut self.tap, tap)
    }

    /// Who captures, if somebody does.
    pub(super) fn tap(&mut self) -> Option<&mut (dyn Tap + 'static)> {
        self.tap.as_deref_mut()
    }

    /// What is sent is this flow's, by its tag ([`super::rates::tag`]), until it is said to be none's: zero.
    #[inline]
    pub(super) fn set_flow(&mut self, tag: u32) {
        self.offload.flow = tag;
    }

    /// Whose what is sent is.
    pub(super) fn flow(&self) -> u32 {
        self.offload.flow
    }

    /// The host's MAC address.
    pub(super) fn mac(&self) -> MacAddr {
        self.mac
    }

    /// Frames are sent from this address from now on.
    pub(super) fn set_mac(&mut self, mac: MacAddr) {
        self.mac = mac;
    }

    /// The transport payload that one packet to `dst` can carry beside `header_len` bytes of transport header.
    #[inline]
    pub(super) fn payload_max(&self, dst: IpAddr, header_len: usize) -> usize {
        self.caps.mtu.min(usize::from(u16::MAX)) - ip::header_len(dst) - header_len
    }

    /// The bytes of a segment's frames on their way to `dst`, from the Ethernet header on; of each, if the device cuts it.
    pub(super) fn wire_len<T>(&self, dst: IpAddr, segment: &Segment<'_, T>) -> usize {
        let frames = segment.cut.map_or(1, |mss| segment.payload_len.div_ceil(usize::from(mss)));
        segment.payload_len + frames * (self.link_len + ip::header_len(dst) + segment.header.header_len())
    }

    /// The TCP payload of the longest segment that the device cuts, below all headers there may be; zero: it cuts none.
    pub(super) fn tso_payload_max(&self, dst: IpAddr) -> usize {
        const TCP_LEN_MAX: usize = 60;
        let packet_max = |frame_max: usize| frame_max.saturating_sub(ethernet::LEN + ethernet::VLAN_LEN).min(usize::from(u16::MAX));
        self.caps.tso_max.map_or(0, |frame_max| packet_max(frame_max).saturating_sub(ip::header_len(dst) + TCP_LEN_MAX))
    }

    #[inline]
    pub(super) fn ethernet(&self, dst: MacAddr, ethertype: u16) -> ethernet::Header {
        ethernet::Header { dst, src: self.mac, vlan: self.vlan_in_head, ethertype }
    }

    #[inline]
    fn lower(&mut self, to: &Envelope, protocol: u8, transport_len: usize, out: &mut [u8]) -> (usize, IpHeader) {
        let (src, dst) = match (to.src, to.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => (src, dst),
            (src, dst) => return self.lower_v6(to, (v6(src), v6(dst)), protocol, transport_len, out),
        };
        let at = self.ethernet(to.mac, ethernet::ETHERTYPE_IPV4).emit(out);
        self.packet_id = self.packet_id.wrapping_add(1);
        let header = ipv4_header((src, dst), to, protocol, self.packet_id, transport_len);
        (at + header.emit(&mut out[at..], !self.caps.tx_checksum), IpHeader::V4(header))
    }

    #[inline(never)]
    fn lower_v6(
        &mut self,
        to: &Envelope,
        (src, dst): (Ipv6Addr, Ipv6Addr),
        protocol: u8,
        transport_len: usize,
        out: &mut [u8],
    ) -> (usize, IpHeader) {
        let at = self.ethernet(to.mac, ethernet::ETHERTYPE_IPV6).emit(out);
        let header = ipv6::Header {
            src,
            dst,
            next_header: protocol,
            hop_limit: if self.mutation.is(Mutant::HopLimitOffByOne) { to.ttl.wrapping_add(1) } else { to.ttl },
            traffic_class: if self.mutation.is(Mutant::TrafficClassForgotten) { 0 } else { to.tos },
            flow_label: 0,
            payload_len: transport_len as u16,
        };
        (at + header.emit(&mut out[at..]), IpHeader::V6(header))
    }

    pub(super) fn send<Q: Queues>(
        &mut self,
        queues: &mut Q,
        head: &[u8],
        body: &[TxSlice<'_, Q::Tx>],
        payload_len: usize,
    ) -> Result<(), SendError> {
        self.send_cut(queues, head, body, payload_len, (None, false))
    }

    /// Whether a frame that the device has taken goes out, or is only to be dropped. Who captures sees it go.
    #[cold]
    #[inline(never)]
    fn counts_as_sent<T: TxBuffer>(&mut self, frame: &TxFrame<'_, T>) -> bool {
        if self.offload.dummy {
            self.counters.tx_dummies += 1;
        } else if let Some(tap) = self.tap() {
            tap::sent(tap, frame);
        }
        !self.offload.dummy
    }

    #[inline(always)]
    fn send_cut<Q: Queues>(
        &mut self,
        queues: &mut Q,
        head: &[u8],
        body: &[TxSlice<'_, Q::Tx>],
        payload_len: usize,
        (tso_mss, unsolicited): (Option<u16>, bool),
    ) -> Result<(), SendError> {
        let mut offload = self.offload;
        (offload.tso_mss, offload.unsolicited) = (tso_mss, unsolicited);
        let frame = TxFrame { head, body, offload };
        match queues.send(&frame) {
            // Slots that the hardware is done with are only free again once they are reaped.
            Err(SendError::Full) => {
                queues.reap();
                queues.send(&frame)?;
            }
            sent => {
                debug_assert!(!matches!(sent, Err(SendError::Unsupported(_))), "asked of a device that lacks it: {sent:?}");
                sent?;
            }
        }
        self.queued = true;
        self.lent |= !body.is_empty();
        if self.is_special && !self.counts_as_sent(&frame) {
            return Ok(());
        }
        // A device that cuts a packet counts its identification up.
        let packets = tso_mss.map_or(1, |mss| payload_len.div_ceil(usize::from(mss)));
        self.packet_id = self.packet_id.wrapping_add((packets - 1) as u16);
        self.counters.tx_packets += packets as u64;
        self.counters.tx_bytes += payload_len as u64;
        Ok(())
    }

    /// One TCP segment, or one for the device to cut.
    #[inline(always)]
    pub(super) fn tcp<Q: Queues>(&mut self, queues: &mut Q, to: &Envelope, segment: &Segment<'_, Q::Tx>) -> Result<(), SendError> {
        match (to.src, to.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst))
                if self.vlan_in_head.is_none() && self.caps.tx_checksum && segment.header.options.are_stamps_at_most() =>
            {
                self.tcp_of_fixed_layout(queues, to, (src, dst), segment)
            }
            _ => {
                // (Copies, so that nothing needs to be in memory of what goes the other way.)
                let &Segment { header, payload, payload_len, cut, unsolicited, capable } = segment;
                self.tcp_of_any_layout(queues, &{ *to }, &Segment { header, payload, payload_len, cut, unsolicited, capable })
            }
        }
    }

    /// Nearly every segment, where the device fills checksums in: of IPv4, without a tag, and with no options but timestamps. All is written to places
    /// that are known when this is compiled.
    #[inline(always)]
    fn tcp_of_fixed_layout<Q: Queues>(
        &mut self,
        queues: &mut Q,
        to: &Envelope,
        (src, dst): (Ipv4Addr, Ipv4Addr),
        segment: &Segment<'_, Q::Tx>,
    ) -> Result<(), SendError> {
        const IP_AT: usize = ethernet::LEN;
        const TCP_AT: usize = IP_AT + ipv4::LEN;
        let &Segment { ref header, payload, payload_len, cut, unsolicited, capable } = segment;
        let mut head = [0; TCP_AT + tcp::LEN + tcp::STAMPS_LEN];
        let header_len = header.emit_of_fixed_layout(&mut head[TCP_AT..]);
        ethernet::Header { dst: to.mac, src: self.mac, vlan: None, ethertype: ethernet::ETHERTYPE_IPV4 }.emit(&mut head[..IP_AT]);
        self.packet_id = self.packet_id.wrapping_add(1);
        let ip = ipv4_header((src, dst), &to.of_segment(capable), ipv4::PROTOCOL_TCP, self.packet_id, header_len + payload_len);
        ip.emit(&mut head[IP_AT..TCP_AT], false);
        self.send_cut(queues, &head[..TCP_AT + header_len], payload, payload_len, (cut, unsolicited))
    }

    #[inline(never)]
    pub(super) fn tcp_of_any_layout<Q: Queues>(
        &mut self,
        queues: &mut Q,
        to: &Envelope,
        segment: &Segment<'_, Q::Tx>,
    ) -> Result<(), SendError> {
        let &Segment { ref header, payload, payload_len, cut, unsolicited, capable } = segment;
        let mut head = [0; 128];
        let header_len = header.header_len();
        let (at, ip) = self.lower(&to.of_segment(capable), ipv4::PROTOCOL_TCP, header_len + payload_len, &mut head);
        let end = at + header.emit(&mut head[at..]);
        if !self.caps.tx_checksum {
            let mut sum = ip.pseudo_header(ipv4::PROTOCOL_TCP, header_len + payload_len);
            sum.add(&head[at..end]);
            add_slices(&mut sum, payload, self.mutation);
            let field = at + tcp::CHECKSUM_OFFSET;
            head[field..field + 2].copy_from_slice(&sum.finish().to_be_bytes());
        }
        self.send_cut(queues, &head[..end], payload, payload_len, (cut, unsolicited))
    }

    /// A TCP segment without payload, with these options in the place of its header's own.
    pub(super) fn tcp_with_options<Q: Queues>(
        &mut self,
        queues: &mut Q,
        to: &Envelope,
        header: &tcp::Header,
        options: &[u8],
    ) -> Result<(), SendError> {
        let mut head = [0; 128];
        let header_len = tcp::LEN + options.len();
        let (at, ip) = self.lower(to, ipv4::PROTOCOL_TCP, header_len, &mut head);
        let end = at + header.emit_with(options, &mut head[at..]);
        if !self.caps.tx_checksum {
            let mut sum = ip.pseudo_header(ipv4::PROTOCOL_TCP, header_len);
            sum.add(&head[at..end]);
            let field = at + tcp::CHECKSUM_OFFSET;
            head[field..field + 2].copy_from_slice(&sum.finish().to_be_bytes());
        }
        self.send(queues, &head[..end], &[], 0)
    }

    /// The headers of a packet without payload, whatever a socket of that protocol sends.
    pub(super) fn template(&mut self, to: &Envelope, protocol: Protocol, ports: (u16, u16)) -> ArrayVec<u8, HEADERS_MAX> {
        let mut head = [0; HEADERS_MAX];
        let end = match protocol {
            Protocol::Udp => {
                let (at, _) = self.lower(to, ipv4::PROTOCOL_UDP, udp::LEN, &mut head);
                at + udp::Header { src_port: ports.0, dst_port: ports.1, len: udp::LEN as u16, checksum: self.unfilled(to.dst) }
                    .emit(&mut head[at..])
            }
            Protocol::Tcp => {
                let header = tcp::Header { src_port: ports.0, dst_port: ports.1, flags: tcp::Flags::ACK, ..tcp::Header::default() };
                let (at, _) = self.lower(to, ipv4::PROTOCOL_TCP, header.header_len(), &mut head);
                at + header.emit(&mut head[at..])
            }
        };
        head[..end].iter().copied().collect()
    }

    /// Whether a datagram of this size is sent from [`Output::udp_inline`].
    #[inline]
    pub(super) fn udp_fits_inline(&self, dst: IpAddr, payload_len: usize) -> bool {
        // (An empty one always is, however little the device takes: its headers are no payload.)
        payload_len <= self.inline_max.saturating_sub(self.link_len + ip::header_len(dst) + udp::LEN)
    }

    /// One small datagram: `fill` writes the payload behind the headers, and no buffer is needed.
    #[inline]
    pub(super) fn udp_inline<Q: Queues>(
        &mut self,
        queues: &mut Q,
        to: &Envelope,
        ports: (u16, u16),
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        // (Zeroed once, not with every datagram.)
        let mut head = self.scratch.take().unwrap_or_else(|| Box::new([0; HEAD_MAX]));
        let end = match (to.src, to.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) if self.vlan_in_head.is_none() && self.caps.tx_checksum => {
                self.datagram_of_fixed_layout(to, (src, dst), ports, payload_len, fill, &mut head)
            }
            _ => self.datagram_of_any_layout(to, ports, payload_len, fill, &mut head[..]),
        };
        let sent = self.send(queues, &head[..end], &[], payload_len);
        self.scratch = Some(head);
        sent
    }

    /// Nearly every small datagram, where the device fills checksums in: of IPv4, without a tag. All is written to places that are known when this is compiled.
    #[inline(always)]
    fn datagram_of_fixed_layout(
        &mut self,
        to: &Envelope,
        (src, dst): (Ipv4Addr, Ipv4Addr),
        ports: (u16, u16),
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]),
        head: &mut [u8; HEAD_MAX],
    ) -> usize {
        const IP_AT: usize = ethernet::LEN;
        const UDP_AT: usize = IP_AT + ipv4::LEN;
        const PAYLOAD_AT: usize = UDP_AT + udp::LEN;
        let len = udp::LEN + payload_len;
        fill(&mut head[PAYLOAD_AT..PAYLOAD_AT + payload_len]);
        ethernet::Header { dst: to.mac, src: self.mac, vlan: None, ethertype: ethernet::ETHERTYPE_IPV4 }.emit(&mut head[..IP_AT]);
        self.packet_id = self.packet_id.wrapping_add(1);
        ipv4_header((src, dst), to, ipv4::PROTOCOL_UDP, self.packet_id, len).emit(&mut head[IP_AT..UDP_AT], false);
        udp::Header { src_port: ports.0, dst_port: ports.1, len: len as u16, checksum: 0 }.emit(&mut head[UDP_AT..PAYLOAD_AT]);
        PAYLOAD_AT + payload_len
    }

    #[inline(never)]
    fn datagram_of_any_layout(
        &mut self,
        to: &Envelope,
        ports: (u16, u16),
        payload_len: usize,
        fill: impl FnOnce(&mut [u8]),
        head: &mut [u8],
    ) -> usize {
        let payload_at = self.link_len + ip::header_len(to.dst) + udp::LEN;
        let end = payload_at + payload_len;
        fill(&mut head[payload_at..end]);
        let (at, ip) = self.lower(to, ipv4::PROTOCOL_UDP, udp::LEN + payload_len, head);
        let mut header =
            udp::Header { src_port: ports.0, dst_port: ports.1, len: (udp::LEN + payload_len) as u16, checksum: self.unfilled(to.dst) };
        header.emit(&mut head[at..]);
        if !self.caps.tx_checksum {
            let mut sum = ip.pseudo_header(ipv4::PROTOCOL_UDP, udp::LEN + payload_len);
            sum.add(&head[at..end]);
            header.checksum = self.udp_checksum(sum.finish());
            header.emit(&mut head[at..]);
        }
        end
    }

    /// What is in the place of a datagram's checksum that is yet to be computed, or that the device fills in. Not every device does (of shared memory
    /// nothing is lost), and a receiver takes no datagram of IPv6 without one (RFC 8200 s8.1).
    #[inline]
    fn unfilled(&self, dst: IpAddr) -> u16 {
        if self.caps.tx_checksum && dst.is_ipv6() { u16::MAX } else { 0 }
    }

    /// The checksum to send for a computed one.
    #[inline]
    fn udp_checksum(&self, computed: u16) -> u16 {
        if self.mutation.is(Mutant::ComputedZeroChecksumSent) { computed } else { udp::nonzero_checksum(computed) }
    }

    /// One datagram whose payload lies in buffers.
    pub(super) fn udp<Q: Queues>(
        &mut self,
        queues: &mut Q,
        to: &Envelope,
        ports: (u16, u16),
        payload: &[TxSlice<'_, Q::Tx>],
        payload_len: usize,
    ) -> Result<(), SendError> {
        let mut head = [0; 80];
        let (at, ip) = self.lower(to, ipv4::PROTOCOL_UDP, udp::LEN + payload_len, &mut head);
        let mut header =
            udp::Header { src_port: ports.0, dst_port: ports.1, len: (udp::LEN + payload_len) as u16, checksum: self.unfilled(to.dst) };
        let end = at + header.emit(&mut head[at..]);
        if !self.caps.tx_checksum {
            let mut sum = ip.pseudo_header(ipv4::PROTOCOL_UDP, udp::LEN + payload_len);
            sum.add(&head[at..end]);
            add_slices(&mut sum, payload, self.mutation);
            header.checksum = self.udp_checksum(sum.finish());
            header.emit(&mut head[at..]);
        }
        self.send(queues, &head[..end], payload, payload_len)
    }

    /// One ICMP message, with `data` behind it; data that don't fit into a head are cut (which an echo's are not, that lay in one: RFC 1122
    /// s3.2.2.6).
    pub(super) fn icmp<Q: Queues>(&mut self, queues: &mut Q, to: &Envelope, message: &icmp::Message, data: &[u8]) -> Result<(), SendError> {
        let data = &data[..data.len().min(HEAD_MAX - self.link_len - ipv4::LEN - icmp::LEN)];
        let mut sum = Checksum::new();
        sum.add(data);
        let mut body = [0; HEAD_MAX];
        let len = message.emit(&mut body, sum);
        body[len..len + data.len()].copy_from_slice(data);
        let len = len + data.len();
        let mut head = [0; HEAD_MAX];
        let (at, _) = self.lower(to, ipv4::PROTOCOL_ICMP, len, &mut head);
        head[at..at + len].copy_from_slice(&body[..len]);
        self.send(queues, &head[..at + len], &[], 0)
    }

    /// One ARP packet.
    pub(super) fn arp<Q: Queues>(&mut self, queues: &mut Q, to: MacAddr, packet: &arp::Packet) -> Result<(), SendError> {
        let mut head = [0; 64];
        let at = self.ethernet(to, ethernet::ETHERTYPE_ARP).emit(&mut head);
        let end = at + packet.emit(&mut head[at..]);
        self.send(queues, &head[..end], &[], 0)
    }

    /// One IGMP message to a group; all its checksums are computed here, since no device offers to.
    pub(super) fn igmp<Q: Queues>(&mut self, queues: &mut Q, src: Ipv4Addr, dst: Ipv4Addr, message: &igmp::Message) {
        let mut head = [0; 64];
        let at = self.ethernet(MacAddr::of_group(dst.into()), ethernet::ETHERTYPE_IPV4).emit(&mut head);
        self.packet_id = self.packet_id.wrapping_add(1);
        let mut packet = message.emit_packet(src, dst, self.packet_id);
        if self.mutation.is(Mutant::ReportWithoutAlert) {
            packet[ipv4::LEN..ipv4::LEN + 4].fill(1);
        }
        if self.mutation.is(Mutant::ReportTravels) {
            packet[8] = 64;
        }
        if self.mutation.is(Mutant::ReportWithoutAlert) || self.mutation.is(Mutant::ReportTravels) {
            packet[10..12].fill(0);
            let sum = !checksum::sum(&packet[..ipv4::LEN + 4]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        let end = at + packet.len();
        head[at..end].copy_from_slice(&packet);
        // What the device does not take is lost like a frame on the wire: reports are repeated.
        if self.send_summed(queues, &head[..end], &[]).is_err() {
            self.counters.tx_drops += 1;
        }
    }

    /// A frame with all its checksums, to which a device adds a VLAN tag at most.
    pub(super) fn send_summed<Q: Queues>(&mut self, queues: &mut Q, head: &[u8], body: &[TxSlice<'_, Q::Tx>]) -> Result<(), SendError> {
        let offload = TxOffload { vlan: self.offload.vlan, ..TxOffload::default() };
        let frame = TxFrame { head, body, offload };
        queues.send(&frame)?;
        if let Some(tap) = self.tap() {
            tap::sent(tap, &frame);
        }
        self.queued = true;
        self.lent |= !body.is_empty();
        self.counters.tx_packets += 1;
        Ok(())
    }

    /// A question for `target`'s Ethernet address, to everyone whom it may concern. Whether the device took it.
    pub(super) fn ask_neighbour<Q: Queues>(&mut self, queues: &mut Q, from: IpAddr, target: IpAddr) -> bool {
        self.ask_neighbour_at(queues, MacAddr::BROADCAST, from, target)
    }

    /// A question for `target`'s Ethernet address, to the host at `to`. Whether the device took it.
    pub(super) fn ask_neighbour_at<Q: Queues>(&mut self, queues: &mut Q, to: MacAddr, from: IpAddr, target: IpAddr) -> bool {
        match (from, target) {
            (IpAddr::V4(from), IpAddr::V4(target)) => self.arp_request(queues, to, from, target),
            (from, target) => self.solicit(queues, to, v6(from), v6(target)),
        }
    }

    /// Tells everyone the host's MAC address, which has changed (RFC 5227 s3; RFC 4861 s7.2.6). Whether the device took it.
    pub(super) fn announce<Q: Queues>(&mut self, queues: &mut Q, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => self.arp_request(queues, MacAddr::BROADCAST, ip, ip),
            IpAddr::V6(ip) => self.advertise(queues, MacAddr::of_group(ipv6::ALL_NODES.into()), (ip, ipv6::ALL_NODES), false).is_ok(),
        }
    }

    fn arp_request<Q: Queues>(&mut self, queues: &mut Q, to: MacAddr, from: Ipv4Addr, target: Ipv4Addr) -> bool {
        let packet = arp::Packet {
            operation: arp::Operation::Request,
            sender_mac: self.mac,
            sender_ip: from,
            target_mac: MacAddr::default(),
            target_ip: target,
        };
        self.arp(queues, to, &packet).is_ok()
    }

    /// Rings the doorbell, if anything was queued since the last time.
    #[inline]
    pub(super) fn flush<Q: Queues>(&mut self, queues: &mut Q) {
        if self.queued {
            self.queued = false;
            queues.doorbell();
        }
    }
}

#[inline(always)]
fn ipv4_header((src, dst): (Ipv4Addr, Ipv4Addr), to: &Envelope, protocol: u8, id: u16, transport_len: usize) -> ipv4::Header {
    ipv4::Header {
        src,
        dst,
        protocol,
        ttl: to.ttl,
        tos: to.tos,
        id,
        total_len: (ipv4::LEN + transport_len) as u16,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        header_len: ipv4::LEN as u8,
    }
}

/// (Both ends of a packet are of one family: what is not has no address.)
fn v6(ip: IpAddr) -> Ipv6Addr {
    if let IpAddr::V6(ip) = ip { ip } else { Ipv6Addr::UNSPECIFIED }
}

fn add_slices<T: TxBuffer>(sum: &mut Checksum, slices: &[TxSlice<'_, T>], mutation: Mutation) {
    for slice in slices {
        let len = if mutation.is(Mutant::OddSliceChecksum) { slice.len & !1 } else { slice.len };
        sum.add_sum(slice.buffer.checksum(slice.offset, slice.len), len);
    }
}
