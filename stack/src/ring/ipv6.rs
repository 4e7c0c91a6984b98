//! IPv6 in the ring (RFC 8200): packets on their way to their flow, ICMPv6 (RFC 4443), and neighbour discovery (RFC 4861).

use core::time::Duration;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::Ring;
use super::arp::Answer;
use super::input::{Body, Packet};
use super::ip::IpHeader;
use super::output::Output;
use crate::device::{ChecksumVerdict, HEAD_MAX, MacAddr, Protocol, Queues, RxFrame, SendError};
use crate::error::Error;
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::time::Instant;
use crate::wire::icmpv6::ndisc::{self, OptionsBuf};
use crate::wire::icmpv6::{self, Fault, Unreachable, mld};
use crate::wire::ipv6::extension::{self, ChainError};
use crate::wire::{ethernet, ipv4, ipv6};

impl<Q: Queues> Ring<Q> {
    #[inline(never)]
    pub(super) fn on_ipv6(
        &mut self,
        now: Instant,
        from: MacAddr,
        bytes: &[u8],
        body: impl Body<Q::Rx>,
        frame: &RxFrame<Q::Rx>,
    ) -> Option<()> {
        let verified = match frame.meta.checksum {
            ChecksumVerdict::Good => true,
            ChecksumVerdict::Bad => {
                mark!(self, BadChecksum);
                return None;
            }
            ChecksumVerdict::Unknown => false,
        };
        let (header, _) = ipv6::Header::parse(bytes).ok()?;
        if header.check_addresses().is_err() || !self.hears_v6(header.dst) {
            return None;
        }
        let total = ipv6::LEN + usize::from(header.payload_len);
        let upper = match extension::walk(&header, bytes) {
            Ok(upper) => upper,
            Err(ChainError::Problem(problem)) => {
                return self.answer_fault(now, from, &header, &bytes[..total.min(bytes.len())], problem.into(), frame);
            }
            Err(_) => return None,
        };
        if !upper.is_whole() {
            return None;
        }
        let (head, body) = (bytes.get(upper.at..total.min(bytes.len()))?, body.cut(total.saturating_sub(bytes.len()))?);
        let segments = frame.meta.coalesced;
        let was_for_many = header.dst.is_multicast();
        let packet = Packet { from, header: IpHeader::V6(header), head, frame, body, verified, segments };
        match upper.protocol {
            // RFC 9293 s3.9.2.3: a SYN for a group is dropped in silence.
            ipv4::PROTOCOL_TCP if !was_for_many => self.on_tcp(now, packet),
            ipv4::PROTOCOL_UDP => self.on_udp(now, packet),
            ipv6::PROTOCOL_ICMPV6 => self.on_icmpv6(now, &header, upper.router_alert, &packet.with_option()),
            ipv6::NO_NEXT_HEADER => None,
            _ => {
                let end = total.min(bytes.len());
                self.answer_fault(now, from, &header, &bytes[..end], upper.unrecognized().into(), frame)
            }
        }
    }

    /// Whether packets for this address are ours: our own, the groups in which questions about them are asked, and those of sockets.
    fn hears_v6(&self, ip: Ipv6Addr) -> bool {
        let own = |address: &IpAddr| matches!(address, IpAddr::V6(own) if ipv6::solicited_node(*own) == ip);
        let asks = ip.is_multicast() && (ip == ipv6::ALL_NODES || self.config.addresses.iter().any(own));
        asks || self.is_ours(IpAddr::V6(ip))
    }

    /// Tells a packet's sender what was wrong with it, if that may be told (RFC 4443 s2.4 (e)). `quote` begins with its IPv6 header.
    #[cold]
    fn answer_fault(
        &mut self,
        now: Instant,
        from: MacAddr,
        header: &ipv6::Header,
        quote: &[u8],
        fault: Fault,
        frame: &RxFrame<Q::Rx>,
    ) -> Option<()> {
        let was_for_many = ethernet::Header::parse(frame.head()).is_ok_and(|(link, _)| link.dst.is_multicast());
        let tells_all = self.config.is(Mutant::ErrorsAboutGroups);
        if self.config.is(Mutant::UnknownHeaderUnanswered) && matches!(fault, Fault::ParameterProblem { .. }) {
            return None;
        }
        // (Who was asked in a group answers with an address of its own; a ring that has none says nothing.)
        let IpAddr::V6(src) = self.answering_address(header.dst)? else { return None };
        let may = icmpv6::may_answer(header, quote, fault, was_for_many) || tells_all;
        if may && (self.icmpv6_errors.allows(now) || self.config.is(Mutant::ErrorsWithoutLimit)) {
            let quote = if self.config.is(Mutant::ErrorQuotesHeaderOnly) { &quote[..quote.len().min(ipv6::LEN)] } else { quote };
            let sent = self.output.icmpv6(&mut self.queues, from, (src, header.src), |addresses, out| {
                icmpv6::emit_error(addresses, fault, &quote[..quote.len().min(ERROR_QUOTE_MAX)], out)
            });
            if sent.is_err() {
                self.output.counters.tx_drops += 1;
            }
        }
        None
    }

    fn answering_address(&self, dst: Ipv6Addr) -> Option<IpAddr> {
        if !dst.is_multicast() {
            return Some(IpAddr::V6(dst));
        }
        self.config.addresses.iter().copied().find(IpAddr::is_ipv6)
    }

    /// RFC 4443 s3.1: a datagram for a port that nobody has is answered, unless it was for many.
    pub(super) fn port_unreachable_v6(&mut self, packet: &Packet<'_, Q::Rx>) {
        let IpHeader::V6(header) = packet.header else { return };
        mark!(self, PortUnreachableSent);
        // (The quote is made anew from what was read: extension headers are left out of it.)
        let mut quote = [0; ipv6::LEN + ERROR_QUOTE_MAX];
        let len = packet.head.len().min(ERROR_QUOTE_MAX - ipv6::LEN);
        let payload_len = packet.head.get(4..6).map_or(0, |len| u16::from_be_bytes([len[0], len[1]]));
        let plain = ipv6::Header { next_header: ipv4::PROTOCOL_UDP, payload_len, ..header };
        let at = plain.emit(&mut quote);
        quote[at..at + len].copy_from_slice(&packet.head[..len]);
        let fault = Fault::DestinationUnreachable(Unreachable::Port);
        self.answer_fault(self.datagram_at, packet.from, &plain, &quote[..at + len], fault, packet.frame);
    }

    fn on_icmpv6(&mut self, now: Instant, header: &ipv6::Header, router_alert: Option<u16>, packet: &Packet<'_, Q::Rx>) -> Option<()> {
        let len = packet.len();
        if !packet.verified && !packet.sum_is_good(header.pseudo_header(ipv6::PROTOCOL_ICMPV6, len)) {
            return None;
        }
        // (An error quotes more than many a device copies to the head.)
        let mut copied = [0; HEAD_MAX];
        let bytes = match &packet.body {
            None => packet.head,
            Some(_) => {
                let head = packet.head.len();
                copied.get_mut(..head)?.copy_from_slice(packet.head);
                let rest = packet.copy_rest(&mut copied[head..]);
                &copied[..head + rest]
            }
        };
        let (message, at) = icmpv6::Message::parse(bytes).ok()?;
        match message {
            icmpv6::Message::EchoRequest { id, seq } => {
                // A ping that is longer than that goes unanswered, rather than answered wrongly; so does one for many.
                let data = &bytes[at..];
                let data = if self.config.is(Mutant::EchoShortened) { &data[..data.len().max(1) - 1] } else { data };
                if len > bytes.len() || header.dst.is_multicast() || data.len() > PING_MAX {
                    return None;
                }
                let sent = self.output.icmpv6(&mut self.queues, packet.from, (header.dst, header.src), |addresses, out| {
                    icmpv6::emit_echo(addresses, true, (id, seq), data, out)
                });
                if sent.is_err() {
                    self.output.counters.tx_drops += 1;
                }
                sent.ok()
            }
            icmpv6::Message::Error { fault, quoted } => {
                self.on_icmpv6_error(now, fault, &quoted).or_else(|| self.pass_on(packet, false).then_some(()))
            }
            icmpv6::Message::Other { kind, .. } if mld::is_kind(kind) => self.on_listener_discovery(now, header, router_alert, packet),
            _ if len == bytes.len() => self.on_neighbour_discovery(now, header, packet.from, bytes),
            _ => None,
        }
    }

    /// RFC 5927, as of IPv4's errors: only those count that their connection can believe.
    fn on_icmpv6_error(&mut self, now: Instant, fault: Fault, quoted: &icmpv6::Quoted) -> Option<()> {
        let local = SocketAddr::new(IpAddr::V6(quoted.header.src), quoted.src_port());
        let remote = SocketAddr::new(IpAddr::V6(quoted.header.dst), quoted.dst_port());
        let protocol = match quoted.protocol {
            ipv4::PROTOCOL_TCP => Protocol::Tcp,
            ipv4::PROTOCOL_UDP => Protocol::Udp,
            _ => return None,
        };
        let index = self.demux.find(protocol, local, remote)?;
        if let Fault::PacketTooBig { mtu } = fault {
            let mtu = icmpv6::believed_mtu(quoted.packet_len(), mtu)?;
            if protocol == Protocol::Udp {
                return self.udp_error(index, remote, Error::MessageTooLong);
            }
            let len = u16::try_from(quoted.packet_len()).unwrap_or(u16::MAX);
            if !self.slots.stream_at(index)?.connection.believes_path_mtu(quoted.seq(), len, mtu) {
                return None;
            }
            if !self.config.is(Mutant::PacketTooBigIgnored) {
                self.path_shrank(now, (index, quoted.seq()), remote.ip(), mtu);
            }
            return Some(());
        }
        // RFC 1122 s4.2.3.9's hard ones, as Linux's icmpv6_err_convert has them.
        let hard = match fault {
            Fault::DestinationUnreachable(why) => why.is_hard(),
            Fault::ParameterProblem { code, .. } => code == extension::CODE_UNRECOGNIZED_NEXT_HEADER,
            Fault::TimeExceeded { .. } | Fault::PacketTooBig { .. } => false,
        };
        if protocol == Protocol::Udp {
            return self.udp_unreachable(index, remote, (hard, hard));
        }
        self.slots.stream_at(index)?.connection.on_unreachable(quoted.seq(), hard);
        self.after_input(now, index);
        Some(())
    }

    /// Who has an address is asked, answers, or says so unasked (RFC 4861 s7.2). Routers are the kernel's to know.
    fn on_neighbour_discovery(&mut self, now: Instant, header: &ipv6::Header, from: MacAddr, bytes: &[u8]) -> Option<()> {
        if self.output.caps.point_to_point {
            return None;
        }
        let near = ipv6::Header { hop_limit: ndisc::HOP_LIMIT, ..*header };
        let header = if self.config.is(Mutant::DiscoveryFromAfar) { &near } else { header };
        match ndisc::Message::parse(header, bytes).ok()? {
            ndisc::Message::NeighborSolicitation { target, options } => {
                if !self.config.addresses.contains(&IpAddr::V6(target)) && !self.config.is(Mutant::SolicitationOfOthersAnswered) {
                    return None;
                }
                // RFC 4861 s7.2.4: who has no address yet (it asks whether one is taken) is answered in everybody's hearing.
                let is_probe = header.src.is_unspecified();
                let unasked = self.config.is(Mutant::AskerWithoutMacIgnored) && options.source().is_none() && !is_probe;
                if unasked || is_probe && self.config.is(Mutant::AddressProbeIgnored) {
                    return None;
                }
                let sender_mac = options.source().filter(|mac| !mac.is_multicast());
                if let Some(mac) = sender_mac.filter(|_| !is_probe) {
                    self.neighbours.learn_asker(now, IpAddr::V6(header.src), mac);
                    self.neighbour_known(IpAddr::V6(header.src), mac);
                }
                let (to, dst) = if is_probe {
                    (MacAddr::of_group(IpAddr::V6(ipv6::ALL_NODES)), ipv6::ALL_NODES)
                } else {
                    (sender_mac.unwrap_or(from), header.src)
                };
                self.answer(now, Answer::Advertisement { from: target, to: dst, mac: to, solicited: !is_probe });
            }
            ndisc::Message::NeighborAdvertisement { target, solicited, overriding, options, .. } => {
                let mac = options.target();
                if mac.is_some_and(|mac| mac.is_multicast()) {
                    return None;
                }
                let ip = IpAddr::V6(target);
                let overriding = overriding || self.config.is(Mutant::OverridesUnbidden);
                if !self.neighbours.advertised(now, ip, mac, solicited, overriding) {
                    return None;
                }
                if let Some(mac) = self.neighbours.known(ip) {
                    self.neighbour_known(ip, mac);
                }
            }
            _ => return None,
        }
        Some(())
    }
}

/// How many errors may be sent (RFC 4443 s2.4 (f): a token bucket, of the size that it gives for a small device).
#[derive(Debug)]
pub(super) struct ErrorLimit {
    tokens: u32,
    since: Instant,
}

impl ErrorLimit {
    const TOKENS_MAX: u32 = 10;
    const TOKEN_EVERY: Duration = Duration::from_millis(100);

    pub(super) const fn new() -> Self {
        Self { tokens: Self::TOKENS_MAX, since: Instant::ZERO }
    }

    fn allows(&mut self, now: Instant) -> bool {
        while self.tokens < Self::TOKENS_MAX && now >= self.since + Self::TOKEN_EVERY {
            (self.tokens, self.since) = (self.tokens + 1, self.since + Self::TOKEN_EVERY);
        }
        if self.tokens == Self::TOKENS_MAX {
            self.since = now;
        }
        let allowed = self.tokens > 0;
        self.tokens -= u32::from(allowed);
        allowed
    }
}

/// What an error quotes here: what fits into a head behind its own headers.
const ERROR_QUOTE_MAX: usize = HEAD_MAX - ethernet::LEN - ethernet::VLAN_LEN - ipv6::LEN - icmpv6::LEN;
/// A ping's data that fit beside its headers.
const PING_MAX: usize = ERROR_QUOTE_MAX;

impl Output {
    /// One ICMPv6 message that `emit` writes, with its checksum, which no device fills in.
    pub(super) fn icmpv6<Q: Queues>(
        &mut self,
        queues: &mut Q,
        mac: MacAddr,
        (src, dst): (Ipv6Addr, Ipv6Addr),
        emit: impl FnOnce((Ipv6Addr, Ipv6Addr), &mut [u8]) -> usize,
    ) -> Result<(), SendError> {
        let mut head = [0; HEAD_MAX];
        let at = self.ethernet(mac, ethernet::ETHERTYPE_IPV6).emit(&mut head);
        let len = emit((src, dst), &mut head[at + ipv6::LEN..]);
        let header = ipv6::Header {
            src,
            dst,
            next_header: ipv6::PROTOCOL_ICMPV6,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            payload_len: len as u16,
        };
        header.emit(&mut head[at..]);
        self.send(queues, &head[..at + ipv6::LEN + len], &[], 0)
    }

    /// A question for `target`'s Ethernet address: to its group, or to the host at `to` alone. Whether the device took it.
    pub(super) fn solicit<Q: Queues>(&mut self, queues: &mut Q, to: MacAddr, from: Ipv6Addr, target: Ipv6Addr) -> bool {
        let all = self.mutation.is(Mutant::AllNodesSolicited);
        let group = if all { ipv6::ALL_NODES } else { ipv6::solicited_node(target) };
        let (mac, dst) = if to == MacAddr::BROADCAST { (MacAddr::of_group(IpAddr::V6(group)), group) } else { (to, target) };
        let options = OptionsBuf::default().source(self.mac());
        self.discovery(queues, mac, (from, dst), &ndisc::Message::NeighborSolicitation { target, options: options.options() }).is_ok()
    }

    /// Says to `dst` that `own` is ours.
    pub(super) fn advertise<Q: Queues>(
        &mut self,
        queues: &mut Q,
        mac: MacAddr,
        (own, dst): (Ipv6Addr, Ipv6Addr),
        solicited: bool,
    ) -> Result<(), SendError> {
        let options = OptionsBuf::default().target(self.mac());
        let options = options.options();
        let message = ndisc::Message::NeighborAdvertisement { target: own, router: false, solicited, overriding: true, options };
        self.discovery(queues, mac, (own, dst), &message)
    }

    fn discovery<Q: Queues>(
        &mut self,
        queues: &mut Q,
        mac: MacAddr,
        (src, dst): (Ipv6Addr, Ipv6Addr),
        message: &ndisc::Message<'_>,
    ) -> Result<(), SendError> {
        let mut head = [0; HEAD_MAX];
        let at = self.ethernet(mac, ethernet::ETHERTYPE_IPV6).emit(&mut head);
        let len = message.emit_packet(src, dst, &mut head[at..]);
        self.send(queues, &head[..at + len], &[], 0)
    }
}
