//! Frames on their way in: parsed from the private copy of their head, verified, and handed to their flow.

use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use super::Ring;
use super::demux::{FlowKey, KeyV4};
use super::ip::IpHeader;
use super::output::Envelope;
use super::slots::{Flow, Stream};
use super::tap;
use super::types::NextHop;
use crate::device::{ChecksumVerdict, MacAddr, Protocol, Queues, RxBuffer, RxFrame};
use crate::flow::Readiness;
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::tcp::{self, RxPayload};
use crate::time::Instant;
use crate::wire::checksum::Checksum;
use crate::wire::{ethernet, ipv4, tcp as wire_tcp, udp};

/// The first address that is not one host's (RFC 1112 s4).
pub(super) const CLASS_D: u32 = 0xe000_0000;

/// What a packet has beyond the bytes that were copied: perhaps a [`Rest`], or [`Nothing`].
pub(super) trait Body<B: RxBuffer>: Sized {
    fn as_option(&self) -> Option<&Rest<B>>;

    fn into_option(self) -> Option<Rest<B>>;

    /// The first `len` bytes. `None`: there are not so many.
    fn cut(self, len: usize) -> Option<Self>;
}

/// Bytes of a frame that are not in its head.
pub(super) struct Rest<B> {
    /// The frame's buffer. They begin at [`RxFrame::rest_at`].
    buffer: B,
    pub(super) len: usize,
}

impl<B: RxBuffer> Body<B> for Option<Rest<B>> {
    #[inline(always)]
    fn as_option(&self) -> Option<&Rest<B>> {
        self.as_ref()
    }

    #[inline(always)]
    fn into_option(self) -> Self {
        self
    }

    #[inline(always)]
    fn cut(self, len: usize) -> Option<Self> {
        let held = self.as_ref().map_or(0, |rest| rest.len);
        match self {
            _ if len > held => None,
            Some(rest) if len < held => Some((len > 0).then_some(Rest { len, ..rest })),
            whole => Some(whole),
        }
    }
}

/// No body. Most frames are small: code of their own, in which no handle is moved about that may need dropping, saves a tenth of what receiving one
/// costs.
pub(super) struct Nothing;

impl<B: RxBuffer> Body<B> for Nothing {
    #[inline(always)]
    fn as_option(&self) -> Option<&Rest<B>> {
        None
    }

    #[inline(always)]
    fn into_option(self) -> Option<Rest<B>> {
        None
    }

    #[inline(always)]
    fn cut(self, len: usize) -> Option<Self> {
        (len == 0).then_some(self)
    }
}

/// What is left of a frame after its Ethernet and IPv4 headers.
pub(super) struct Packet<'a, B, Behind = Option<Rest<B>>> {
    pub(super) from: MacAddr,
    pub(super) header: IpHeader,
    /// The packet's bytes that were copied, from the transport header on.
    pub(super) head: &'a [u8],
    /// The frame that `head` is a part of.
    pub(super) frame: &'a RxFrame<B>,
    pub(super) body: Behind,
    pub(super) verified: bool,
    /// How many segments the device merged into it.
    pub(super) segments: u16,
}

impl<'a, B: RxBuffer, Behind: Body<B>> Packet<'a, B, Behind> {
    /// The bytes from `at`, which is in the head, to `len`. (Here alone it is decided where a payload is.)
    #[inline(always)]
    fn payload(self, at: usize, len: usize) -> RxPayload<'a, B> {
        let head = &self.head[at..len.min(self.head.len())];
        let frame = Some(self.frame);
        let Some(Rest { buffer, .. }) = self.body.into_option().filter(|_| len > self.head.len()) else {
            return RxPayload { head, frame, body: None };
        };
        match self.frame.offset_of(head).and_then(|offset| self.frame.in_buffer(offset)) {
            Some(offset) => RxPayload { head: &head[..0], frame, body: Some(buffer.into_slice(offset, len - at)) },
            // It begins beside the headers, and the buffer behind them.
            None => RxPayload { head, frame, body: Some(buffer.into_slice(0, len - self.head.len())) },
        }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.body.as_option().map_or(0, |rest| rest.len)
    }

    /// Copies as much of what is not in the head as fits; how much that was.
    pub(super) fn copy_rest(&self, out: &mut [u8]) -> usize {
        let Some(Rest { buffer, len }) = self.body.as_option() else { return 0 };
        let len = (*len).min(out.len());
        buffer.copy_to(self.frame.rest_at(), &mut out[..len]);
        len
    }

    /// Whether a checksum over pseudo header and everything in the packet comes out right.
    #[inline(always)]
    fn transport_checksum_good(&self, protocol: u8) -> bool {
        self.sum_is_good(self.header.pseudo_header(protocol, self.len()))
    }

    #[inline(always)]
    pub(super) fn sum_is_good(&self, sum: Checksum) -> bool {
        sum_is_good(sum, self.head, self.body.as_option(), self.frame)
    }

    /// Whether its frame was for more hosts than this one, whatever address it has: then nobody is told what is wrong with it (RFC 1122 s3.2.2).
    pub(super) fn was_for_many(&self) -> bool {
        ethernet::Header::parse(self.frame.head()).is_ok_and(|(link, _)| link.dst.is_multicast())
    }

    /// Without what follows its first `len` bytes.
    #[inline(always)]
    fn cut(self, len: usize) -> Option<Self> {
        let Self { from, header, head, frame, body, verified, segments } = self;
        let body = body.cut(len.saturating_sub(head.len()))?;
        Some(Self { from, header, head: &head[..len.min(head.len())], frame, body, verified, segments })
    }

    /// The same, with a body that is owned.
    pub(super) fn with_option(self) -> Packet<'a, B> {
        let Self { from, header, head, frame, body, verified, segments } = self;
        Packet { from, header, head, frame, body: body.into_option(), verified, segments }
    }

    /// The same, but for its body, to be referred to where it is nothing that most packets come to.
    #[inline(always)]
    fn aside(&self) -> Packet<'a, B> {
        let Self { from, header, head, frame, verified, segments, .. } = *self;
        Packet { from, header, head, frame, body: None, verified, segments }
    }
}

fn sum_is_good<B: RxBuffer>(mut sum: Checksum, head: &[u8], rest: Option<&Rest<B>>, frame: &RxFrame<B>) -> bool {
    sum.add(head);
    if let Some(Rest { buffer, len }) = rest {
        sum.add_sum(buffer.checksum(frame.rest_at(), *len), *len);
    }
    sum.is_good()
}

impl<B> Rest<B> {
    #[inline(always)]
    pub(super) const fn of(buffer: B, len: usize) -> Self {
        Self { buffer, len }
    }

    pub(super) fn into_buffer(self) -> B {
        self.buffer
    }

    const fn buffer(&self) -> &B {
        &self.buffer
    }
}

impl<Q: Queues> Ring<Q> {
    /// Looks at one batch of frames. Returns how many they were.
    #[inline(always)]
    pub(super) fn receive(&mut self, now: Instant) -> usize {
        let Some(mut batch) = self.batch.take() else { return 0 };
        let count = self.queues.poll_rx(now, &mut batch);
        if let Some(tap) = self.output.tap() {
            tap::received(tap, batch.frames_mut());
        }
        for frame in batch.frames_mut() {
            self.output.counters.rx_packets += 1;
            if self.on_frame(now, frame).is_none() {
                self.output.counters.rx_drops += 1;
            }
        }
        // (While a call reads, that is its last act.)
        if count > 0 && self.reader.is_nobody() {
            self.queues.note_processed();
        }
        batch.clear();
        // (There is nothing in its place that would need dropping.)
        core::mem::forget(self.batch.replace(batch));
        if count > 0 {
            self.batches.count += 1;
            if count > self.batches.max {
                self.batches.max = count;
            }
        }
        count
    }

    /// One frame. `None`: it was not for us, or not right.
    #[inline]
    pub(super) fn on_frame(&mut self, now: Instant, frame: &mut RxFrame<Q::Rx>) -> Option<()> {
        match frame.take_rest() {
            None => match self.on_predicted_frame(now, frame) {
                Some(()) => Some(()),
                None => self.on_short_frame(now, frame),
            },
            Some((buffer, len)) => self.on_long_frame(now, frame, Some(Rest::of(buffer, len))),
        }
    }

    #[inline(never)]
    fn on_short_frame(&mut self, now: Instant, frame: &RxFrame<Q::Rx>) -> Option<()> {
        self.on_frame_with(now, frame, Nothing)
    }

    #[inline(never)]
    fn on_long_frame(&mut self, now: Instant, frame: &RxFrame<Q::Rx>, body: Option<Rest<Q::Rx>>) -> Option<()> {
        self.on_frame_with(now, frame, body)
    }

    #[inline(always)]
    fn on_frame_with(&mut self, now: Instant, frame: &RxFrame<Q::Rx>, body: impl Body<Q::Rx>) -> Option<()> {
        let head = frame.head();
        let Ok((link, at)) = ethernet::Header::parse(head) else { return None };
        let mask = if self.config.is(Mutant::VlanPriorityCounts) { 0xffff } else { 0xfff };
        let vlan = frame.meta.vlan.or(link.vlan).map(|tag| tag & mask);
        if vlan != self.config.vlan.map(|tag| tag & 0xfff)
            || (link.dst != self.mac && !link.dst.is_multicast() && !self.config.is(Mutant::ForeignFramesTaken))
        {
            return None;
        }
        match link.ethertype {
            ethernet::ETHERTYPE_IPV4 => self.on_ipv4(now, link.src, &head[at..], body, frame),
            ethernet::ETHERTYPE_ARP => self.on_arp(now, &head[at..]),
            ethernet::ETHERTYPE_IPV6 => self.on_ipv6(now, link.src, &head[at..], body, frame),
            _ => None,
        }
    }

    #[inline(always)]
    fn on_ipv4(&mut self, now: Instant, from: MacAddr, bytes: &[u8], body: impl Body<Q::Rx>, frame: &RxFrame<Q::Rx>) -> Option<()> {
        let verified = match frame.meta.checksum {
            ChecksumVerdict::Good => true,
            _ if self.config.is(Mutant::AcceptBadChecksum) => true,
            ChecksumVerdict::Bad => {
                mark!(self, BadChecksum);
                return None;
            }
            ChecksumVerdict::Unknown => false,
        };
        let Ok((header, at)) = ipv4::Header::parse(bytes) else { return None };
        let at = if self.config.is(Mutant::OptionsArePayload) { ipv4::LEN } else { at };
        let is_part = header.is_fragment() && !self.config.is(Mutant::FragmentIsWhole);
        let is_damaged = !verified && !ipv4::verify_checksum(bytes) && !self.config.is(Mutant::IpChecksumUnchecked);
        let is_nobodys = header.src.to_bits() >= CLASS_D && !self.config.is(Mutant::ForeignSourceTaken);
        // (RFC 1122 s3.2.1.3: nor has one host an address of class D or E, or everybody's.)
        if is_part || is_damaged || is_nobodys || !self.is_ours(IpAddr::V4(header.dst)) {
            return None;
        }
        if header.dst.is_multicast() && !matches!(header.protocol, ipv4::PROTOCOL_UDP | ipv4::PROTOCOL_IGMP) {
            // RFC 9293 s3.9.2.3: a SYN for a group is dropped in silence; and a ping for many is answered by nobody here.
            return None;
        }
        // Ethernet pads short frames: the packet ends where its header says.
        let padded = bytes.len() + body.as_option().map_or(0, |rest| rest.len);
        let total = if self.config.is(Mutant::PaddingIsPayload) { padded } else { usize::from(header.total_len) };
        let (head, body) = (bytes.get(at..total.min(bytes.len()))?, body.cut(total.saturating_sub(bytes.len()))?);
        // (One for each branch: a packet that is not referred to stays in registers.)
        let segments = frame.meta.coalesced;
        let (protocol, dst, header) = (header.protocol, header.dst, IpHeader::V4(header));
        if protocol == ipv4::PROTOCOL_TCP {
            return self.on_tcp(now, Packet { from, header, head, frame, body, verified, segments });
        }
        match protocol {
            ipv4::PROTOCOL_UDP => self.on_udp(now, Packet { from, header, head, frame, body, verified, segments }),
            ipv4::PROTOCOL_ICMP => self.on_icmp(now, &Packet { from, header, head, frame, body: body.into_option(), verified, segments }),
            ipv4::PROTOCOL_IGMP => self.on_igmp(now, dst, head),
            _ => None,
        }
    }

    #[inline(always)]
    pub(super) fn is_ours(&self, ip: IpAddr) -> bool {
        self.config.addresses.is_empty() || self.config.is(Mutant::ForeignPacketsTaken) || self.is_one_of_ours(ip)
    }

    #[inline(never)]
    fn is_one_of_ours(&self, ip: IpAddr) -> bool {
        self.config.addresses.contains(&ip) || self.groups.hears(ip)
    }

    #[inline(always)]
    pub(super) fn on_tcp(&mut self, now: Instant, packet: Packet<'_, Q::Rx, impl Body<Q::Rx>>) -> Option<()> {
        let Ok((mut header, at)) = wire_tcp::Header::parse(packet.head) else { return None };
        if self.config.is(Mutant::UnknownOptionEndsParsing) {
            header.options = wire_tcp::Options::parse_known(&packet.head[wire_tcp::LEN..at]);
        }
        if !packet.verified && !packet.transport_checksum_good(ipv4::PROTOCOL_TCP) {
            mark!(self, BadChecksum);
            return None;
        }
        // (By its length nearly every segment is known to be none.)
        if at == wire_tcp::PARTING_HEADER_LEN
            && self.output.caps.leaves_at_both_ends
            && let Some(said) = wire_tcp::Parting::parse(&packet.head[wire_tcp::LEN..at])
        {
            return self.on_parting(&packet.aside(), &header, said);
        }
        let payload_len = packet.len() - at;
        self.output_rx(payload_len);
        // (Where they are needed. Most frames are for the flow that the last one was for.)
        let (ip, src_port, dst_port) = (packet.header, header.src_port, header.dst_port);
        let ends = move || ip.ends(src_port, dst_port);
        let found = match packet.header {
            IpHeader::V4(ip) if packet.frame.meta.flow_tag == 0 => {
                self.demux.same_as_last(KeyV4::of_tcp((ip.dst, header.dst_port), (ip.src, header.src_port)))
            }
            _ => None,
        };
        let found = match found {
            None => {
                let (remote, local) = ends();
                self.find_stream(packet.frame.meta.flow_tag, local, remote)
            }
            found => found,
        };
        match found.map(|index| (index, self.slots.at(index))) {
            Some((index, Some(Flow::Stream(_)))) => self.on_stream(now, index, packet, at, &header),
            Some((index, Some(Flow::Resting(_)))) => self.on_resting(now, index, packet.with_option(), at, &header),
            found => {
                let listener = found.and_then(|(index, flow)| matches!(flow, Some(Flow::Listener(_))).then_some(index));
                let (remote, local) = ends();
                if self.late.awaits(local, remote) {
                    return self.keep_late_frame(local, remote, packet.with_option());
                }
                let is_new = listener.is_some() && header.opens();
                if !is_new && self.pass_on(&packet, self.has_given_away(local, remote)) {
                    return Some(());
                }
                match listener {
                    Some(index) => {
                        let (aside, len) = (packet.aside(), packet.len());
                        self.on_listener(now, index, &aside, &header, local, remote, packet.payload(at, len))
                    }
                    None => self.refuse(&packet.aside(), &header, payload_len),
                }
            }
        }
    }

    /// A packet that is for no flow of this ring's is another ring's, perhaps. Whether it is on its way there.
    pub(super) fn pass_on(&mut self, packet: &Packet<'_, Q::Rx, impl Body<Q::Rx>>, had_it: bool) -> bool {
        self.queues.pass_on(packet.frame, packet.body.as_option().map(Rest::buffer), had_it)
    }

    /// The flow that a segment between these addresses is for.
    #[inline(never)]
    fn find_stream(&mut self, tag: u32, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        self.tagged(tag, local, remote).or_else(|| self.demux.find(Protocol::Tcp, local, remote))
    }

    /// A segment for a connection at rest, which is whole again by it.
    #[cold]
    #[inline(never)]
    fn on_resting(&mut self, now: Instant, index: u32, packet: Packet<'_, Q::Rx>, at: usize, header: &wire_tcp::Header) -> Option<()> {
        self.slots.stream_at(index)?;
        self.third_from = Some(packet.from);
        let taken = self.on_stream(now, index, packet, at, header);
        self.third_from = None;
        // (If it was nothing to it.)
        self.slots.rest(index);
        taken
    }

    /// A segment for a connection, whose payload begins `at` so many bytes.
    #[inline(always)]
    fn on_stream(
        &mut self,
        now: Instant,
        index: u32,
        packet: Packet<'_, Q::Rx, impl Body<Q::Rx>>,
        at: usize,
        header: &wire_tcp::Header,
    ) -> Option<()> {
        let Some(Flow::Stream(stream)) = self.slots.at(index) else { return None };
        let (ip, src_port, dst_port) = (packet.header, header.src_port, header.dst_port);
        let ends = move || ip.ends(src_port, dst_port);
        if self.output.caps.point_to_point && !stream.hop.is_mac(packet.from) {
            let (payload_len, (remote, local)) = (packet.len() - at, ends());
            return self.on_stranger(now, index, &packet.aside(), header, local, remote, payload_len);
        }
        let state = stream.connection.state();
        let is_handshake = matches!(state, tcp::State::SynSent | tcp::State::SynReceived);
        if state == tcp::State::TimeWait && header.opens() {
            let (remote, local) = ends();
            if stream.connection.accepts_new_syn(header)
                || self.unanswered_syns.is_retransmission(now, FlowKey::new(Protocol::Tcp, local, remote), header.seq)
            {
                return self.on_syn_in_time_wait(now, index, &packet.aside(), header, local, remote);
            }
        }
        let (carriage, len) = (tcp::Carriage { segments: packet.segments, marked: packet.header.is_marked() }, packet.len());
        if stream.connection.acknowledges_before(carriage.marked, len - at) {
            self.transmit(now, index);
        }
        let Some(Flow::Stream(stream)) = self.slots.at(index) else { return None };
        stream.connection.on_coalesced(now, header, packet.payload(at, len), carriage);
        if is_handshake {
            self.after_handshake_segment(now, index);
        }
        self.after_segment(now, index);
        Some(())
    }

    /// A connection has taken in a segment.
    #[inline(always)]
    pub(super) fn after_segment(&mut self, now: Instant, index: u32) {
        let Some(Flow::Stream(stream)) = self.slots.at(index) else { return };
        // Before anything is acknowledged: what is reported is still here, but for the newest segment.
        if stream.connection.holds_out_of_order() && self.queues.rx_scarce() && !self.config.is(Mutant::ScarceKeepsAll) {
            stream.connection.prune_out_of_order();
        }
        self.after_input(now, index);
    }

    /// A segment from another MAC address than the one that the connection is with.
    #[expect(clippy::too_many_arguments, reason = "one call site's pieces of one segment")]
    #[cold]
    fn on_stranger(
        &mut self,
        now: Instant,
        index: u32,
        packet: &Packet<'_, Q::Rx>,
        header: &wire_tcp::Header,
        local: SocketAddr,
        remote: SocketAddr,
        payload_len: usize,
    ) -> Option<()> {
        let was_there = self.former_macs.get(&index).is_some_and(|former| former.contains(packet.from));
        if !header.opens() {
            // (A reset might find the connection back there, and would be for it.)
            let is_late = was_there && !self.config.is(Mutant::LateFromFormerRefused);
            return if is_late { None } else { self.refuse(packet, header, payload_len) };
        }
        // (A second copy of the SYN that began it: nobody has begun another one there. RFC 9293 s3.10.7.4.)
        let is_old = |stream: &mut Stream<Q>| header.seq.le(stream.connection.received_up_to());
        if was_there && !self.config.is(Mutant::LateSynEndsConnection) && self.slots.live_at(index).is_some_and(is_old) {
            return None;
        }
        self.on_syn_from_another_mac(now, index);
        match self.demux.find(Protocol::Tcp, local, remote) {
            Some(listener) => self.on_listener(now, listener, packet, header, local, remote, RxPayload::EMPTY),
            None => self.refuse(packet, header, payload_len),
        }
    }

    /// RFC 9293 s3.10.7.4: a new SYN may end a TIME-WAIT early.
    fn on_syn_in_time_wait(
        &mut self,
        now: Instant,
        index: u32,
        packet: &Packet<'_, Q::Rx>,
        header: &wire_tcp::Header,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<()> {
        mark!(self, TimeWaitSyn);
        self.end_time_wait(index);
        match self.demux.find(Protocol::Tcp, local, remote) {
            // (What comes with it comes again.)
            Some(listener) => self.on_listener(now, listener, packet, header, local, remote, RxPayload::EMPTY),
            None => self.refuse(packet, header, 0),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one call site's pieces of one segment")]
    fn on_listener(
        &mut self,
        now: Instant,
        index: u32,
        packet: &Packet<'_, Q::Rx>,
        header: &wire_tcp::Header,
        local: SocketAddr,
        remote: SocketAddr,
        payload: RxPayload<'_, Q::Rx>,
    ) -> Option<()> {
        let flags = header.flags;
        if flags.contains(wire_tcp::Flags::RST) {
            return None;
        }
        if flags.contains(wire_tcp::Flags::ACK) || !flags.contains(wire_tcp::Flags::SYN) {
            if self.config.is(Mutant::ListenerRefusesNothing) {
                return None;
            }
            return self.refuse(packet, header, payload.len());
        }
        let hop = if self.output.caps.point_to_point { NextHop::Mac(packet.from) } else { self.hop_back(now, packet) };
        self.on_syn(now, index, (header, payload), local, remote, hop)
    }

    /// The way back to who sent a packet: through the neighbour table, which may learn from it at no cost.
    fn hop_back(&mut self, now: Instant, packet: &Packet<'_, Q::Rx>) -> NextHop {
        let (neighbour, mac) = (packet.header.src(), packet.from);
        let is_believed = self.config.is(Mutant::SynTeachesNeighbour);
        if !self.neighbours.are_the_kernels() && !is_believed {
            self.neighbours.told_by_syn(neighbour, mac);
        } else if self.neighbours.known(neighbour).is_none() || is_believed {
            // (The kernel knows better, and is asked by the first answer.)
            self.neighbours.learn_asker(now, neighbour, mac);
            // Whoever waits for that neighbour's answer need not wait any longer, and must not: what is known is not asked for again.
            if !self.waiting_neighbour.is_empty() || !self.held.is_empty() {
                self.neighbour_known(neighbour, mac);
            }
        }
        NextHop::Neighbour(neighbour)
    }

    /// A reset for a segment that belongs to no connection (RFC 9293 s3.10.7.1).
    fn refuse(&mut self, packet: &Packet<'_, Q::Rx>, header: &wire_tcp::Header, payload_len: usize) -> Option<()> {
        let (remote, local) = packet.header.ends(header.src_port, header.dst_port);
        let is_given_away = self.is_for_given_away(packet.from, local, remote);
        let was_for_many = packet.was_for_many() && !self.config.is(Mutant::ResetForFrameToMany);
        if self.config.reset_strangers && !header.flags.contains(wire_tcp::Flags::RST) && !was_for_many && !is_given_away {
            mark!(self, StrangerReset);
            let mut reset = tcp::reset_for(header, payload_len);
            if self.config.is(Mutant::ResetWrongNumber) {
                reset.seq += 1;
            }
            if self.config.is(Mutant::ResetForgetsSyn) && header.flags.contains(wire_tcp::Flags::SYN) {
                reset.ack = reset.ack - 1;
            }
            if self.config.is(Mutant::ResetWithoutAck) {
                reset.flags -= wire_tcp::Flags::ACK;
            }
            let to = Self::envelope_back(packet);
            let reset = tcp::Segment { header: reset, payload: &[], payload_len: 0, cut: None, unsolicited: false, capable: false };
            if self.output.tcp(&mut self.queues, &to, &reset).is_err() {
                self.output.counters.tx_drops += 1;
            }
        }
        None
    }

    pub(super) fn envelope_back(packet: &Packet<'_, Q::Rx>) -> Envelope {
        Envelope { src: packet.header.dst(), dst: packet.header.src(), mac: packet.from, ttl: 64, tos: 0 }
    }

    #[inline(always)]
    pub(super) fn on_udp(&mut self, now: Instant, packet: Packet<'_, Q::Rx, impl Body<Q::Rx>>) -> Option<()> {
        let (header, at) = udp::Header::parse(packet.head).ok()?;
        let len = if self.config.is(Mutant::UdpTailDelivered) { packet.len() } else { usize::from(header.len) };
        // (RFC 768: the checksum is over as many bytes as the datagram says that it has.)
        let packet = if len < packet.len() { packet.cut(len)? } else { packet };
        // RFC 8200 s8.1: of IPv6's, each has one.
        let needs_checksum = matches!(packet.header, IpHeader::V6(_)) && !self.config.is(Mutant::ZeroChecksumHeardV6)
            || self.config.is(Mutant::NeedUdpChecksum);
        if (header.checksum == 0 && needs_checksum) || len > packet.len() || (!packet.verified && self.is_udp_damaged(&header, &packet)) {
            return None;
        }
        let port = if self.config.is(Mutant::UdpMisattribute) { header.src_port ^ 1 } else { header.src_port };
        let (remote, local) = packet.header.ends(port, header.dst_port);
        if self.config.is(Mutant::EmptyDatagramDropped) && len == at {
            return None;
        }
        let len = if self.config.is(Mutant::UdpTruncate) { len.max(at + 1) - 1 } else { len };
        self.output_rx(len - at);
        // No two datagrams of a ring have the same time: so it is known which of two sockets has the older one.
        let now = now.max(self.datagram_at + Duration::from_nanos(1));
        self.datagram_at = now;
        if local.ip().is_multicast() {
            return self.deliver(now, remote, local, &packet.payload(at, len)).then_some(());
        }
        let tagged = self.tagged_datagram(packet.frame.meta.flow_tag, &local, &remote);
        let mut index = tagged.or_else(|| self.demux.find(Protocol::Udp, local, remote));
        if index.is_none() && self.config.is(Mutant::ConnectedHearsAll) {
            index = self.slots.iter().find_map(|(id, flow)| match flow {
                Flow::Udp(udp) if udp.local.port() == local.port() => Some(id.index),
                _ => None,
            });
        }
        let flow = match index.and_then(|index| Some((index, self.slots.at(index)?))) {
            Some((index, Flow::Udp(flow))) => Some((index, flow)),
            _ => None,
        };
        let Some((index, flow)) = flow else {
            if !self.config.is(Mutant::PortUnreachableUnsaid) {
                self.port_unreachable(&packet.aside());
            }
            return None;
        };
        let to = local.ip();
        let payload = packet.payload(at, len);
        if self.config.is(Mutant::UdpDuplicate) {
            flow.push(now, remote, to, payload.clone());
        }
        let raises = !(self.config.is(Mutant::SecondDatagramRaisesNothing) && flow.readiness().contains(Readiness::IN));
        // (Its reader, which polls just now, takes it.)
        let is_for_reader = self.reader.is(index) && flow.is_plain();
        if flow.push(now, remote, to, payload) {
            let is_kept = is_for_reader && self.reader.keeps(Readiness::IN);
            if raises && !is_kept {
                self.raise(index, Readiness::IN);
            }
        } else {
            #[cfg(feature = "marks")]
            if flow.has_lent() {
                self.marks.hit(crate::marks::Mark::DatagramDroppedByLoans);
            }
            mark!(self, DatagramDropped);
        }
        Some(())
    }

    /// RFC 768: a checksum of zero says that there is none.
    #[inline(always)]
    fn is_udp_damaged(&self, header: &udp::Header, packet: &Packet<'_, Q::Rx, impl Body<Q::Rx>>) -> bool {
        header.checksum != 0 && !self.config.is(Mutant::UdpChecksumUnchecked) && !packet.transport_checksum_good(ipv4::PROTOCOL_UDP)
    }

    #[inline]
    fn output_rx(&mut self, payload_len: usize) {
        self.output.counters.rx_bytes += payload_len as u64;
    }
}
