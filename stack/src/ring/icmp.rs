//! ICMP in the ring: pings, errors sent, and errors received, of which only those count that their connection can believe.

use std::net::{IpAddr, SocketAddr};

use super::Ring;
use super::input::Packet;
use super::ip::IpHeader;
use super::path;
use super::slots::Flow;
use crate::device::{Protocol, Queues};
use crate::error::Error;
use crate::flow::Readiness;
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::tcp;
use crate::time::Instant;
use crate::wire::checksum::Checksum;
use crate::wire::tcp::SeqNumber;
use crate::wire::{ethernet, icmp, ipv4};

impl<Q: Queues> Ring<Q> {
    /// RFC 1122 s4.1.3.1: a datagram for a port that nobody has is answered, unless it was for many.
    pub(super) fn port_unreachable(&mut self, packet: &Packet<'_, Q::Rx>) {
        // RFC 1122 s3.2.2: nor is one that was for every host of the link, or that no one host can have sent.
        let IpHeader::V4(header) = packet.header else { return self.port_unreachable_v6(packet) };
        let ipv4::Header { src, dst, .. } = header;
        let was_for_many =
            dst.is_multicast() || dst.is_broadcast() || (packet.was_for_many() && !self.config.is(Mutant::ErrorForFrameToMany));
        if was_for_many || src.is_unspecified() {
            return;
        }
        // RFC 792: the header as it came, options included, and the first bytes behind it.
        let mut quote = [0; icmp::QUOTE_MAX];
        let head = packet.frame.head();
        let quoted_len = usize::from(header.header_len) + icmp::QUOTED_MIN;
        let came = ethernet::Header::parse(head).ok().and_then(|(_, at)| head.get(at..at + quoted_len));
        let (Some(came), Some(mut quote)) = (came, quote.get_mut(..quoted_len)) else { return };
        quote.copy_from_slice(came);
        mark!(self, PortUnreachableSent);
        if self.config.is(Mutant::UnreachableForgetsOptions) {
            quote[0] = 0x45;
            quote.copy_within(quoted_len - icmp::QUOTED_MIN.., ipv4::LEN);
            quote = &mut quote[..ipv4::LEN + icmp::QUOTED_MIN];
        }
        if self.config.is(Mutant::UnreachableShortQuote) {
            let end = quote.len();
            quote[end - 4..].fill(0);
        }
        if self.config.is(Mutant::UnreachableQuotesAnswer) {
            quote[12..ipv4::LEN].rotate_left(4);
        }
        let Ok(quoted) = icmp::Quoted::parse(quote) else { return };
        let message = icmp::Message::DestinationUnreachable { code: icmp::CODE_PORT_UNREACHABLE, mtu: 0, quoted };
        if self.output.icmp(&mut self.queues, &Self::envelope_back(packet), &message, quote).is_err() {
            self.output.counters.tx_drops += 1;
        }
    }

    pub(super) fn on_icmp(&mut self, now: Instant, packet: &Packet<'_, Q::Rx>) -> Option<()> {
        if !packet.verified && !packet.sum_is_good(Checksum::new()) && !self.config.is(Mutant::IcmpChecksumUnchecked) {
            return None;
        }
        let (message, at) = icmp::Message::parse(packet.head).ok()?;
        match message {
            icmp::Message::EchoRequest { id, seq } => {
                // A ping longer than a head goes unanswered, rather than answered wrongly.
                if packet.body.is_some() {
                    return None;
                }
                let seq = if self.config.is(Mutant::PingWrongNumber) { seq + 1 } else { seq };
                let reply = icmp::Message::EchoReply { id, seq };
                let data = &packet.head[at..];
                let data = if self.config.is(Mutant::PingCutShort) { &data[..data.len().min(56)] } else { data };
                let sent = self.output.icmp(&mut self.queues, &Self::envelope_back(packet), &reply, data);
                if sent.is_err() {
                    self.output.counters.tx_drops += 1;
                }
                sent.ok()
            }
            icmp::Message::DestinationUnreachable { code: icmp::CODE_FRAGMENTATION_NEEDED, mtu, quoted } => {
                self.on_fragmentation_needed(now, mtu, &quoted).or_else(|| self.pass_on(packet, false).then_some(()))
            }
            icmp::Message::DestinationUnreachable { code, quoted, .. } => {
                let hard = self.config.is(Mutant::EveryErrorIsHard)
                    || code == icmp::CODE_PORT_UNREACHABLE
                    || (code == icmp::CODE_PROTOCOL_UNREACHABLE && !self.config.is(Mutant::ProtocolUnreachableIsSoft));
                // (Linux's icmp_err_convert: an administrator's refusals last, and networks and hosts that are unknown.)
                let lasts = hard || matches!(code, 6..=10 | 13..=15);
                self.on_unreachable(now, (hard, lasts), &quoted).or_else(|| self.pass_on(packet, false).then_some(()))
            }
            // As Linux has it, no route that ends (RFC 1122 s3.2.2.4).
            icmp::Message::TimeExceeded { quoted, .. } => {
                self.on_unreachable(now, (false, false), &quoted).or_else(|| self.pass_on(packet, false).then_some(()))
            }
            _ => None,
        }
    }

    /// RFC 1122 s4.2.3.9 and RFC 5927: for TCP, an error only counts if it quotes what we have in flight, and then it is a hint;
    /// during a handshake it ends the attempt. (Hard: nobody is there to take it; lasting: who tries again fares no better.)
    fn on_unreachable(&mut self, now: Instant, (hard, lasts): (bool, bool), quoted: &icmp::Quoted) -> Option<()> {
        let local = SocketAddr::new(IpAddr::V4(quoted.header.src), quoted.src_port());
        let remote = SocketAddr::new(IpAddr::V4(quoted.header.dst), quoted.dst_port());
        match quoted.header.protocol {
            ipv4::PROTOCOL_TCP => {
                let index = self.demux.find(Protocol::Tcp, local, remote)?;
                let stream = self.slots.stream_at(index)?;
                stream.connection.on_unreachable(quoted.seq(), hard);
                self.after_input(now, index);
            }
            ipv4::PROTOCOL_UDP => {
                let index = self.demux.find(Protocol::Udp, local, remote)?;
                return self.udp_unreachable(index, remote, (hard, lasts));
            }
            _ => return None,
        }
        Some(())
    }

    /// RFC 1191, with the checks of RFC 5927 s7: for TCP, only about what is in flight and was longer than the reported MTU, which no
    /// report brings below a floor.
    fn on_fragmentation_needed(&mut self, now: Instant, mtu: u16, quoted: &icmp::Quoted) -> Option<()> {
        let local = SocketAddr::new(IpAddr::V4(quoted.header.src), quoted.src_port());
        let remote = SocketAddr::new(IpAddr::V4(quoted.header.dst), quoted.dst_port());
        let floors = mtu == 0 && self.config.is(Mutant::OldRouterMeansFloor);
        let mtu = if floors { 0 } else { path::reported(quoted.header.total_len, mtu) };
        match quoted.header.protocol {
            ipv4::PROTOCOL_TCP => {
                let index = self.demux.find(Protocol::Tcp, local, remote)?;
                let stream = self.slots.stream_at(index)?;
                if !stream.connection.believes_path_mtu(quoted.seq(), quoted.header.total_len, mtu) {
                    return None;
                }
                let least = if self.config.is(Mutant::BelieveTinyPath) { 68 } else { tcp::Family::V4.path_mtu_min() };
                self.path_shrank(now, (index, quoted.seq()), remote.ip(), mtu.max(least));
                Some(())
            }
            // Nothing here cuts datagrams up, so that there is nothing to remember: as with Linux's IP_PMTUDISC_DO, the program is told.
            ipv4::PROTOCOL_UDP if self.config.is(Mutant::TooBigUntold) => None,
            ipv4::PROTOCOL_UDP => {
                let index = self.demux.find(Protocol::Udp, local, remote)?;
                self.udp_error(index, remote, Error::MessageTooLong)
            }
            _ => None,
        }
    }

    /// All connections to a destination share its path (RFC 1191 s6.1), those to come included; but the segment that did not pass, which began at `seq`, was one
    /// connection's, which alone sends again what is on its way (s6.4).
    pub(super) fn path_shrank(&mut self, now: Instant, (quoted, seq): (u32, SeqNumber), destination: IpAddr, mtu: u16) {
        if !self.config.is(Mutant::PathMtuOfOne) {
            self.paths.learn(now, destination, mtu);
        }
        let shares = |flow: &Flow<Q>| {
            flow.stream_ends().is_some_and(|(_, remote)| remote.ip() == destination || self.config.is(Mutant::PathMtuForAll))
        };
        let sharers = self.slots.iter().filter_map(|(id, flow)| shares(flow).then_some(id.index));
        for index in sharers.collect::<Vec<_>>() {
            if let Some(stream) = self.slots.stream_at(index) {
                if index == quoted || self.config.is(Mutant::PathMtuResendsAll) {
                    stream.connection.on_packet_too_big(now, seq, mtu);
                } else {
                    stream.connection.set_path_mtu(now, mtu);
                }
                self.after_input(now, index);
            }
        }
    }

    /// Somebody cannot be reached by UDP: as [`Ring::udp_error`], where that lasts, or the socket is told of what may pass, too.
    pub(super) fn udp_unreachable(&mut self, index: u32, remote: SocketAddr, (hard, lasts): (bool, bool)) -> Option<()> {
        let Flow::Udp(flow) = self.slots.at(index)? else { return None };
        if !lasts && !flow.options.passing_errors {
            return None;
        }
        self.udp_error(index, remote, if hard { Error::Refused } else { Error::HostUnreachable })
    }

    /// An error for a connected UDP socket; one that isn't never asked (RFC 1122 s4.1.3.3).
    pub(super) fn udp_error(&mut self, index: u32, remote: SocketAddr, error: Error) -> Option<()> {
        let Flow::Udp(flow) = self.slots.at(index)? else { return None };
        let asks = flow.remote.is_none() && self.config.is(Mutant::UnconnectedHearsErrors);
        if flow.remote.is_none_or(|(peer, _)| peer != remote) && !asks {
            return None;
        }
        mark!(self, UnreachableReceived);
        flow.error = Some(error);
        if !self.config.is(Mutant::UdpErrorRaisesNothing) {
            self.raise(index, Readiness::ERR | Readiness::IN | Readiness::OUT);
        }
        Some(())
    }
}
