//! Every parser, on any bytes: none panics, and what was read is written, and read again, as the same.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::roce::fuzzing as roce;
use crate::roce::mad::Mad;
use crate::roce::mad::private::{IpHeader, of_service_id, service_id};
use crate::roce::packet::Packet;
use crate::roce::packet::datagram::{Crc, Datagram, OVERHEAD_MAX};
use crate::roce::packet::frame::Frame;
use crate::rsocket::wire::{self as rsocket, ByteOrder, ConnectionData, DatagramHeader, IomapEntry, ServiceHeader};
use crate::ud;
use crate::wire::checksum::{self, Checksum};
use crate::wire::icmpv6::{self, mld, ndisc};
use crate::wire::ipv6::extension;
use crate::wire::tcp::Parting;
use crate::wire::{arp, ethernet, fixed, icmp, igmp, ipv4, ipv6, tcp, udp};

/// Longer inputs are cut off: no frame is.
const FRAME_MAX: usize = 9000;

/// The first byte says which parser; the rest are its bytes.
pub(super) fn frames(input: &[u8]) {
    const PARSERS: [fn(&[u8]); 19] = [
        frame,
        link,
        arp_packet,
        ip_v4,
        ip_v6,
        transport,
        icmp_v4,
        igmp_message,
        icmp_v6,
        neighbours,
        listeners,
        one_shape,
        roce_packet,
        roce_datagram,
        management,
        ud_datagram,
        rsockets,
        parting,
        sums,
    ];
    let Some((&which, bytes)) = input.split_first() else { return };
    PARSERS[usize::from(which) % PARSERS.len()](&bytes[..bytes.len().min(FRAME_MAX)]);
}

/// All that a frame has, from the outside in.
fn frame(bytes: &[u8]) {
    let Ok((header, at)) = ethernet::Header::parse(bytes) else { return };
    let _ = ud::Ends::of(bytes);
    let packet = &bytes[at..];
    match header.ethertype {
        ethernet::ETHERTYPE_IPV4 => {
            ip_v4(packet);
            let Ok((ip, len)) = ipv4::Header::parse(packet) else { return };
            let end = packet.len().min(ip.total_len.into());
            upper(ip.protocol, packet.get(len..end).unwrap_or_default());
        }
        ethernet::ETHERTYPE_IPV6 => {
            ip_v6(packet);
            neighbours(packet);
            listeners(packet);
            let Ok((ip, _)) = ipv6::Header::parse(packet) else { return };
            let Ok(found) = extension::walk(&ip, packet) else { return };
            upper(found.protocol, packet.get(found.at..).unwrap_or_default());
        }
        ethernet::ETHERTYPE_ARP => arp_packet(packet),
        _ => {}
    }
    one_shape(bytes);
    if let Ok(frame) = Frame::parse(bytes) {
        let mut out = vec![0; bytes.len() + OVERHEAD_MAX];
        let len = frame.emit(&mut out);
        let again = Frame::parse(&out[..len]).expect("what was written can be read");
        assert_eq!(
            (again.ethernet, again.datagram.path, again.datagram.packet),
            (frame.ethernet, frame.datagram.path, frame.datagram.packet)
        );
    }
}

fn upper(protocol: u8, bytes: &[u8]) {
    match protocol {
        ipv4::PROTOCOL_TCP | ipv4::PROTOCOL_UDP => transport(bytes),
        ipv4::PROTOCOL_ICMP => icmp_v4(bytes),
        ipv4::PROTOCOL_IGMP => igmp_message(bytes),
        ipv6::PROTOCOL_ICMPV6 => icmp_v6(bytes),
        _ => {}
    }
}

fn link(bytes: &[u8]) {
    let Ok((header, len)) = ethernet::Header::parse(bytes) else { return };
    assert_eq!(header.len(), len);
    let mut out = [0; ethernet::LEN + ethernet::VLAN_LEN];
    assert_eq!(header.emit(&mut out), len);
    assert_eq!(out[..len], bytes[..len]);
}

fn arp_packet(bytes: &[u8]) {
    let Ok((packet, len)) = arp::Packet::parse(bytes) else { return };
    let mut out = vec![0; len];
    assert_eq!(packet.emit(&mut out), len);
    assert_eq!(out, bytes[..len]);
}

fn ip_v4(bytes: &[u8]) {
    let _ = ipv4::verify_checksum(bytes);
    let Ok((header, len)) = ipv4::Header::parse(bytes) else { return };
    assert!(len <= bytes.len() && len <= header.total_len.into());
    let mut out = [0; ipv4::LEN];
    assert_eq!(header.emit(&mut out, true), ipv4::LEN);
    assert!(ipv4::verify_checksum(&out), "a checksum that was filled in is right");
    let (again, _) = ipv4::Header::parse(&out).expect("what was written can be read");
    assert_eq!(again, ipv4::Header { header_len: ipv4::LEN as u8, ..header });
}

fn ip_v6(bytes: &[u8]) {
    let Ok((header, len)) = ipv6::Header::parse(bytes) else { return };
    let mut out = [0; ipv6::LEN];
    assert_eq!(header.emit(&mut out), len);
    assert_eq!(out, bytes[..len]);
    let _ = (header.check_addresses(), header.check_upper(bytes[0], &bytes[len..]));
    let problem = match extension::walk(&header, bytes) {
        Ok(found) => {
            assert!(found.at <= ipv6::LEN + usize::from(header.payload_len), "{found:?} of {header:?}");
            assert!(found.named_at < found.at && found.named_at < bytes.len());
            if let Some(fragment) = found.fragment {
                let mut out = [0; extension::Fragment::LEN];
                fragment.emit(&mut out);
                assert!(fragment.offset.is_multiple_of(8) && out[0] == fragment.next_header);
            }
            found.unrecognized()
        }
        Err(extension::ChainError::Problem(problem)) => problem,
        Err(_) => return,
    };
    let fault = problem.into();
    let _ = icmpv6::may_answer(&header, bytes, fault, bytes[1] & 1 == 1);
    let mut out = [0; icmpv6::LEN + icmpv6::QUOTED_MAX];
    let len = icmpv6::emit_error((header.dst, header.src), fault, bytes, &mut out);
    if let Ok((again, _)) = icmpv6::Message::parse(&out[..len]) {
        let icmpv6::Message::Error { fault: told, .. } = again else { panic!("another message: {again:?}") };
        assert_eq!(told, fault);
    }
}

fn transport(bytes: &[u8]) {
    if let Ok((header, len)) = udp::Header::parse(bytes) {
        let mut out = [0; udp::LEN];
        assert_eq!(header.emit(&mut out), len);
        assert_eq!(out, bytes[..len]);
    }
    let Ok((header, len)) = tcp::Header::parse(bytes) else { return };
    assert!(len <= bytes.len());
    let mut out = [0; tcp::LEN_MAX];
    let emitted = header.emit(&mut out);
    let (again, _) = tcp::Header::parse(&out[..emitted]).expect("what was written can be read");
    let mut expected = header;
    expected.options.sack.truncate(again.options.sack.as_slice().len());
    assert_eq!(again, expected);
    let _ = tcp::Options::parse_known(&bytes[tcp::LEN..len]);
}

fn icmp_v4(bytes: &[u8]) {
    let Ok((message, len)) = icmp::Message::parse(bytes) else { return };
    let mut out = bytes.to_vec();
    let mut data = Checksum::new();
    data.add(&bytes[len..]);
    message.emit(&mut out, data);
    assert_eq!(checksum::sum(&out), 0xffff, "a checksum that was filled in is right");
    assert_eq!(icmp::Message::parse(&out), Ok((message, len)));
    if let icmp::Message::DestinationUnreachable { quoted, .. } | icmp::Message::TimeExceeded { quoted, .. } = message {
        let _ = (quoted.src_port(), quoted.dst_port(), quoted.seq());
    }
}

fn igmp_message(bytes: &[u8]) {
    let _ = igmp::Message::parse(bytes);
    let mut bytes = bytes.to_vec();
    let Some(sum) = bytes.get_mut(2..4) else { return };
    sum.fill(0);
    let right = !checksum::sum(&bytes);
    bytes[2..4].copy_from_slice(&right.to_be_bytes());
    let Ok(message) = igmp::Message::parse(&bytes) else { return };
    let packet = message.emit_packet(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(224, 0, 0, 1), 7);
    assert!(ipv4::verify_checksum(&packet));
    let (_, len) = ipv4::Header::parse(&packet).expect("what was written can be read");
    assert_eq!(igmp::Message::parse(&packet[len..]), Ok(message));
}

/// Between which addresses there is nothing to say against a message.
fn hosts() -> (Ipv6Addr, Ipv6Addr) {
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2))
}

fn icmp_v6(bytes: &[u8]) {
    let Ok((message, len)) = icmpv6::Message::parse(bytes) else { return };
    let mut out = vec![0; bytes.len() + icmpv6::LEN];
    let rest = &bytes[len..];
    let written = match message {
        icmpv6::Message::EchoRequest { id, seq } => icmpv6::emit_echo(hosts(), false, (id, seq), rest, &mut out),
        icmpv6::Message::EchoReply { id, seq } => icmpv6::emit_echo(hosts(), true, (id, seq), rest, &mut out),
        icmpv6::Message::Error { fault, quoted } => {
            let _ = (quoted.src_port(), quoted.dst_port(), quoted.seq());
            if let icmpv6::Fault::PacketTooBig { mtu } = fault
                && let Some(believed) = icmpv6::believed_mtu(quoted.packet_len(), mtu)
            {
                assert!(usize::from(believed) < quoted.packet_len() && believed >= 1280);
            }
            // (What is quoted behind many headers may not be in what is quoted again.)
            if rest.len() > icmpv6::QUOTED_MAX {
                return;
            }
            icmpv6::emit_error(hosts(), fault, rest, &mut out)
        }
        icmpv6::Message::Other { .. } => return,
    };
    let header = ipv6_header(hosts(), 64, written);
    assert_eq!(header.check_upper(ipv6::PROTOCOL_ICMPV6, &out[..written]), Ok(()));
    assert_eq!(icmpv6::Message::parse(&out[..written]), Ok((message, len)));
}

fn ipv6_header((src, dst): (Ipv6Addr, Ipv6Addr), hop_limit: u8, len: usize) -> ipv6::Header {
    let next_header = ipv6::PROTOCOL_ICMPV6;
    ipv6::Header { src, dst, next_header, hop_limit, traffic_class: 0, flow_label: 0, payload_len: len as u16 }
}

/// A packet of IPv6: its header as it is but for the hop limit, and neighbour discovery's message behind it.
fn neighbours(packet: &[u8]) {
    let Ok((mut header, at)) = ipv6::Header::parse(packet) else { return };
    let _ = ndisc::Message::parse(&header, &packet[at..]);
    header.hop_limit = 255;
    let Ok(message) = ndisc::Message::parse(&header, &packet[at..]) else { return };
    message.options().iter().take(packet.len()).for_each(|option| _ = option);
    let _ = (message.options().source(), message.options().target(), message.options().nonce());
    let mut out = vec![0; ipv6::LEN + message.len()];
    let len = message.emit_packet(header.src, header.dst, &mut out);
    assert_eq!(len, out.len());
    let (again, at) = ipv6::Header::parse(&out).expect("what was written can be read");
    assert_eq!(again.check_upper(ipv6::PROTOCOL_ICMPV6, &out[at..]), Ok(()));
    assert_eq!(ndisc::Message::parse(&again, &out[at..]), Ok(message));
}

/// The same of listener discovery: it comes from a neighbour, and with a router alert.
fn listeners(packet: &[u8]) {
    let Ok((mut header, at)) = ipv6::Header::parse(packet) else { return };
    let bytes = &packet[at..];
    let _ = mld::Message::parse(&header, None, bytes);
    (header.hop_limit, header.src) = (1, hosts().0);
    let Ok(message) = mld::Message::parse(&header, Some(mld::ROUTER_ALERT), bytes) else { return };
    let mut out = vec![0; mld::HEADERS_LEN + bytes.len() + 64];
    let len = match message {
        mld::Message::Query { group, .. } => {
            let code = u16::from_be_bytes([bytes[4], bytes[5]]);
            mld::emit_query((header.src, header.dst), group, code, &bytes[24..], &mut out)
        }
        mld::Message::ReportV1 { group } | mld::Message::Done { group } => {
            mld::emit_v1(header.src, group, matches!(message, mld::Message::Done { .. }), &mut out);
            mld::V1_PACKET_LEN
        }
        mld::Message::Report { records } => {
            let (mut written, mut count) = (Vec::new(), 0);
            for record in records.iter() {
                let sources: Vec<_> = record.sources.iter().collect();
                let at = written.len();
                written.resize(at + mld::RECORD_LEN + 16 * sources.len(), 0);
                mld::emit_record(record.kind, record.group, &sources, &mut written[at..]);
                count += 1;
            }
            mld::emit_report(header.src, count, &written, &mut out)
        }
    };
    let (again, _) = ipv6::Header::parse(&out[..len]).expect("what was written can be read");
    let found = extension::walk(&again, &out[..len]).expect("a hop-by-hop header of our own");
    assert_eq!((found.at, found.router_alert), (mld::HEADERS_LEN, Some(mld::ROUTER_ALERT)));
    assert_eq!(again.check_upper(ipv6::PROTOCOL_ICMPV6, &out[found.at..len]), Ok(()));
    let read = mld::Message::parse(&again, found.router_alert, &out[found.at..len]).expect("what was written can be read");
    match (message, read) {
        // (Data that mean nothing are not written again.)
        (mld::Message::Report { records }, mld::Message::Report { records: told }) => assert!(records.iter().eq(told.iter())),
        (message, told) => assert_eq!(message, told),
    }
}

/// What is read of a segment of the usual shape is what the other parsers read.
fn one_shape(frame: &[u8]) {
    let Some(segment) = fixed::Segment::parse(frame) else { return };
    let (link, at) = ethernet::Header::parse(frame).expect("it has that shape");
    let (ip, ip_len) = ipv4::Header::parse(&frame[at..]).expect("it has that shape");
    assert_eq!((link.src, link.dst, link.vlan), (segment.link_src(), segment.link_dst(), None));
    assert!(!ip.is_fragment() && ip_len == ipv4::LEN);
    assert_eq!(segment.hosts().to_be_bytes(), *[ip.src.octets(), ip.dst.octets()].as_flattened());
    assert_eq!(segment.is_marked(), ip.tos & 3 == 3);
    let bytes = &frame[at + ip_len..at + usize::from(ip.total_len)];
    let (header, len) = tcp::Header::parse(bytes).expect("it has that shape");
    assert_eq!((segment.header(), segment.payload()), (header, &bytes[len..]));
    assert_eq!((segment.src_port(), segment.dst_port()), (header.src_port, header.dst_port));
    assert_eq!(segment.ports(), u32::from(header.src_port) << 16 | u32::from(header.dst_port));
}

fn roce_packet(bytes: &[u8]) {
    let Ok(packet) = Packet::parse(bytes) else { return };
    let mut out = vec![0; bytes.len() + OVERHEAD_MAX];
    let len = packet.emit(&mut out);
    assert_eq!(Packet::parse(&out[..len]), Ok(packet));
    if packet.header.dest_qp == 1 {
        management(packet.payload);
    }
}

fn roce_datagram(bytes: &[u8]) {
    let _ = Datagram::parse(bytes);
    for crc in [Crc::LeftOut, Crc::Computed] {
        roce::write_only(bytes, crc);
    }
    roce::front(bytes);
    let Ok(datagram) = Datagram::parse_with(bytes, Crc::LeftOut) else { return };
    let mut out = vec![0; bytes.len() + OVERHEAD_MAX];
    let len = datagram.emit(&mut out);
    let again = Datagram::parse(&out[..len]).expect("what was written can be read");
    assert_eq!((again.path, again.id, again.packet), (datagram.path, datagram.id, datagram.packet));
    roce::write_only(&out[..len], Crc::Computed);
}

/// A datagram of connection management; its first bytes are the usual ones, whatever came.
fn management(bytes: &[u8]) {
    let _ = (Mad::parse(bytes), IpHeader::parse(bytes));
    let mut usual = bytes.to_vec();
    let Some(head) = usual.get_mut(..4) else { return };
    head.copy_from_slice(&[1, 7, 2, 3]);
    usual.resize(256, 0);
    if let Ok(mad) = Mad::parse(&usual) {
        assert_eq!(Mad::parse(&mad.emit()), Ok(mad));
    }
    if let Ok(header) = IpHeader::parse(bytes) {
        assert_eq!(IpHeader::parse(&header.emit()), Ok(header));
    }
    if let Some(number) = bytes.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
        && let Some((space, port)) = of_service_id(number)
    {
        assert_eq!(service_id(space, port), number);
    }
}

fn ud_datagram(bytes: &[u8]) {
    let Ok((header, piece)) = ud::Header::parse(bytes) else { return };
    assert_eq!(header.emit(), bytes[..ud::HEADER_LEN]);
    let place = header.piece();
    assert!(place.len == piece.len() && place.len > 0 && place.at + place.len <= header.frame_len.into());
}

fn rsockets(bytes: &[u8]) {
    if let Ok(data) = ConnectionData::parse(bytes) {
        assert_eq!(ConnectionData::parse(&data.emit()), Ok(data));
    }
    if let Some((header, len)) = DatagramHeader::parse(bytes) {
        assert_eq!(DatagramHeader::parse(&header.emit()), Some((header, len)));
    }
    if let Some((header, len)) = ServiceHeader::parse(bytes) {
        assert_eq!(ServiceHeader::parse(&header.emit()), Some((header, len)));
    }
    if let Some(word) = bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes)) {
        let message = rsocket::Message::parse(word);
        assert_eq!(rsocket::Message::parse(message.word()), message);
    }
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let Some(bytes) = bytes.first_chunk() else { return };
        let entry = IomapEntry::parse(bytes, order);
        assert_eq!(entry.emit(order), *bytes);
        let _ = entry.covers(u64::from(bytes[0]));
    }
}

fn parting(options: &[u8]) {
    if let Some(said) = Parting::parse(options) {
        assert_eq!(said.emit()[..], *options);
    }
}

/// The sum is that of RFC 1071, whatever the length, and however the bytes are cut.
fn sums(bytes: &[u8]) {
    let words = bytes.chunks(2).map(|two| u64::from(two[0]) << 8 | u64::from(two.get(1).copied().unwrap_or(0)));
    let mut expected: u64 = words.sum();
    while expected >> 16 != 0 {
        expected = (expected & 0xffff) + (expected >> 16);
    }
    assert_eq!(u64::from(checksum::sum(bytes)), expected);
    // (Cut where words end, but for the last piece.)
    let cut = bytes.first().map_or(0, |&at| usize::from(at) * 2).min(bytes.len()) / 2 * 2;
    let mut sum = Checksum::new();
    sum.add(&bytes[..cut]);
    sum.add(&bytes[cut..]);
    assert_eq!(u64::from(!sum.finish()), expected);
}
