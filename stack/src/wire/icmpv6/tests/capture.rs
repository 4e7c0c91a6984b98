//! What Linux says (conformance/data/README.md): every frame is read, and written again byte for byte.

use core::net::Ipv6Addr;
use std::collections::BTreeMap;

use super::super::*;
use crate::wire::ipv6::extension::{self, ChainError, HOP_BY_HOP, Upper, walk};
use crate::wire::{ethernet, ipv4, tcp, udp};

struct Packet {
    header: ipv6::Header,
    bytes: &'static [u8],
    walked: Result<Upper, ChainError>,
}

/// All packets in order, their own lengths long.
fn packets() -> impl Iterator<Item = Packet> {
    crate::capture::ipv6().map(|frame| {
        let (ethernet, at) = ethernet::Header::parse(frame).unwrap();
        assert_eq!(ethernet.ethertype, ethernet::ETHERTYPE_IPV6);
        if ethernet.dst.is_multicast() {
            let (header, _) = ipv6::Header::parse(&frame[at..]).unwrap();
            assert_eq!(ethernet.dst, crate::addr::MacAddr::of_group_v6(header.dst));
        }
        let (header, _) = ipv6::Header::parse(&frame[at..]).unwrap();
        let bytes = &frame[at..at + ipv6::LEN + usize::from(header.payload_len)];
        Packet { header, bytes, walked: walk(&header, bytes) }
    })
}

/// Writes what `packet` has at its front up to its upper layer: the headers that a host sends.
fn headers_again(packet: &Packet, upper: &Upper) -> Vec<u8> {
    let mut out = vec![0; ipv6::LEN];
    packet.header.emit(&mut out);
    if let Some(value) = upper.router_alert.filter(|_| upper.at == ipv6::LEN + 8) {
        out.resize(ipv6::LEN + 8, 0);
        extension::emit_router_alert(upper.protocol, value, &mut out[ipv6::LEN..]);
    }
    if let Some(fragment) = upper.fragment {
        let at = out.len();
        out.resize(at + extension::Fragment::LEN, 0);
        fragment.emit(&mut out[at..]);
    }
    out
}

/// The kind of a message, for the count of what was seen; and the message written again.
fn message_again(packet: &Packet, upper: &Upper, bytes: &[u8]) -> (String, Vec<u8>) {
    let (header, addresses) = (&packet.header, (packet.header.src, packet.header.dst));
    let mut out = vec![0; bytes.len()];
    if let Ok(message) = ndisc::Message::parse(header, bytes) {
        let mut whole = vec![0; ipv6::LEN + message.len()];
        message.emit_packet(header.src, header.dst, &mut whole);
        let name = format!("{message:?}").split(' ').next().unwrap_or_default().to_owned();
        return (name, whole.split_off(ipv6::LEN));
    }
    if let Ok(message) = mld::Message::parse(header, upper.router_alert, bytes) {
        return listener_again(addresses, &message, bytes);
    }
    let (message, at) = Message::parse(bytes).unwrap();
    let (name, len) = match message {
        Message::EchoRequest { id, seq } => ("EchoRequest", emit_echo(addresses, false, (id, seq), &bytes[at..], &mut out)),
        Message::EchoReply { id, seq } => ("EchoReply", emit_echo(addresses, true, (id, seq), &bytes[at..], &mut out)),
        Message::Error { fault, .. } => {
            let len = emit_error(addresses, fault, &bytes[at..], &mut out);
            return (format!("{fault:?}").split(" {").next().unwrap_or_default().to_owned(), out[..len].to_vec());
        }
        Message::Other { kind, code } => panic!("type {kind}, code {code}"),
    };
    (name.to_owned(), out[..len].to_vec())
}

fn listener_again(addresses: (Ipv6Addr, Ipv6Addr), message: &mld::Message<'_>, bytes: &[u8]) -> (String, Vec<u8>) {
    let mut out = vec![0; mld::HEADERS_LEN + bytes.len()];
    let name = match *message {
        mld::Message::Query { group, v2, .. } => {
            mld::emit_query(addresses, group, be16(bytes[4], bytes[5]), &bytes[24..], &mut out);
            if v2.is_some() { "QueryV2" } else { "QueryV1" }
        }
        mld::Message::ReportV1 { group } => {
            assert_eq!(mld::emit_v1(addresses.0, group, false, &mut out), addresses.1);
            "ReportV1"
        }
        mld::Message::Done { group } => {
            assert_eq!(mld::emit_v1(addresses.0, group, true, &mut out), addresses.1);
            "Done"
        }
        mld::Message::Report { records } => {
            let mut again = vec![];
            for record in records.iter() {
                let at = again.len();
                again.resize(at + mld::RECORD_LEN + record.sources.len() * 16, 0);
                mld::emit_record(record.kind, record.group, &record.sources.iter().collect::<Vec<_>>(), &mut again[at..]);
            }
            mld::emit_report(addresses.0, records.iter().count() as u16, &again, &mut out);
            "Report"
        }
    };
    (name.to_owned(), out.split_off(mld::HEADERS_LEN))
}

#[test]
fn every_frame_is_read_and_written_again() {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut see = |name: String| *seen.entry(name).or_default() += 1;
    for packet in packets() {
        assert_eq!(packet.header.check_addresses(), Ok(()));
        let upper = match packet.walked {
            Ok(upper) => upper,
            Err(error) => {
                see(format!("{error}"));
                continue;
            }
        };
        let again = headers_again(&packet, &upper);
        // (Destination options, of which a host sends none, are left out. Linux's bridge, which asks for listeners, pads with two single
        // bytes, and its hosts with one option of two.)
        if again.len() == upper.at {
            let mut front = packet.bytes[..upper.at].to_vec();
            if front.ends_with(&[5, 2, 0, 0, 0, 0]) {
                see("router alert of a bridge".to_owned());
                front[ipv6::LEN + 6] = 1;
            }
            assert_eq!(again, front);
        } else {
            assert_eq!(again[..ipv6::LEN], packet.bytes[..ipv6::LEN]);
            see("destination options".to_owned());
        }
        let bytes = &packet.bytes[upper.at..];
        if !upper.is_whole() {
            see(if upper.fragment.is_some_and(|fragment| fragment.is_first()) { "first fragment" } else { "later fragment" }.to_owned());
            continue;
        }
        if [ipv4::PROTOCOL_TCP, ipv4::PROTOCOL_UDP, ipv6::PROTOCOL_ICMPV6].contains(&upper.protocol) {
            assert_eq!(packet.header.check_upper(upper.protocol, bytes), Ok(()));
        }
        let (name, again) = match upper.protocol {
            ipv6::PROTOCOL_ICMPV6 => message_again(&packet, &upper, bytes),
            ipv4::PROTOCOL_TCP => {
                let (header, at) = tcp::Header::parse(bytes).unwrap();
                let mut out = vec![0; at];
                header.emit(&mut out);
                ("TCP".to_owned(), [&out, &bytes[at..]].concat())
            }
            ipv4::PROTOCOL_UDP => {
                let (header, at) = udp::Header::parse(bytes).unwrap();
                let mut out = vec![0; at];
                header.emit(&mut out);
                ("UDP".to_owned(), [&out, &bytes[at..]].concat())
            }
            other => (format!("protocol {other}"), bytes.to_vec()),
        };
        assert_eq!(again, bytes, "{name}");
        see(name);
    }
    let mut seen: Vec<_> = seen.into_iter().map(|(name, count)| format!("{count} {name}")).collect();
    seen.sort();
    assert_eq!(seen, EXPECTED);
}

/// How many of each there are. The parameter problem is a packet that Linux answered with one.
const EXPECTED: [&str; 25] = [
    "1 DestinationUnreachable(Address)",
    "1 DestinationUnreachable(NoRoute)",
    "1 Done",
    "1 PacketTooBig",
    "1 QueryV2",
    "1 Redirect",
    "1 TimeExceeded",
    "1 destination options",
    "1 parameter problem 2 at 42",
    "1 protocol 200",
    "12 TCP",
    "16 NeighborSolicitation",
    "17 ReportV1",
    "2 DestinationUnreachable(Port)",
    "2 ParameterProblem",
    "2 UDP",
    "36 Report",
    "4 EchoReply",
    "4 QueryV1",
    "4 first fragment",
    "5 router alert of a bridge",
    "6 later fragment",
    "8 EchoRequest",
    "8 NeighborAdvertisement",
    "9 RouterSolicitation",
];

/// Linux's errors, and what it does not pass on, are ours: for each error, the packet that it is about is in the capture, too.
#[test]
fn linux_answers_as_we_would() {
    let mut checked = vec![];
    let all: Vec<_> = packets().collect();
    for (number, packet) in all.iter().enumerate() {
        let Ok(upper) = packet.walked else { continue };
        let bytes = &packet.bytes[upper.at..];
        let icmp = upper.protocol == ipv6::PROTOCOL_ICMPV6 && upper.is_whole();
        let Some((Message::Error { fault, .. }, at)) = icmp.then(|| Message::parse(bytes).ok()).flatten() else { continue };
        // The original, but for the hops that it has made meanwhile.
        let alike = |original: &&Packet| original.bytes.len() >= bytes.len() - at && original.bytes[8..bytes.len() - at] == bytes[at + 8..];
        let original = all[..number].iter().rev().find(alike).expect("its packet is there");
        let mut quoted = original.bytes.to_vec();
        quoted[7] = bytes[at + 7];
        let mut out = vec![0; LEN + QUOTED_MAX];
        let len = emit_error((packet.header.src, packet.header.dst), fault, &quoted, &mut out);
        assert_eq!(out[..len], *bytes, "{fault:?}");
        assert!(may_answer(&original.header, original.bytes, fault, false), "{fault:?}");
        // What we would have said ourselves.
        match (original.walked, fault) {
            (Err(ChainError::Problem(problem)), fault) => assert_eq!(Fault::from(problem), fault),
            (Ok(upper), Fault::ParameterProblem { .. }) => assert_eq!(Fault::from(upper.unrecognized()), fault),
            (Ok(_), Fault::PacketTooBig { mtu }) => assert_eq!(believed_mtu(original.bytes.len(), mtu), Some(1300)),
            _ => {}
        }
        checked.push(format!("{fault:?}"));
    }
    checked.sort();
    let expected = [
        "DestinationUnreachable(Address)",
        "DestinationUnreachable(NoRoute)",
        "DestinationUnreachable(Port)",
        "DestinationUnreachable(Port)",
        "PacketTooBig { mtu: 1300 }",
        "ParameterProblem { code: 1, pointer: 6 }",
        "ParameterProblem { code: 2, pointer: 42 }",
        "TimeExceeded { code: 0 }",
    ];
    assert_eq!(checked, expected);
    assert!(all.iter().any(|packet| packet.header.next_header == HOP_BY_HOP));
}
