use core::net::Ipv6Addr;
use core::time::Duration;

use proptest::prelude::*;

use super::ndisc::{Invalid, Opt, Options, OptionsBuf, Prefix, Router};
use super::*;
use crate::addr::MacAddr;
use crate::wire::ipv4;
use crate::wire::ipv6::extension::{DESTINATION_OPTIONS, FRAGMENT};

mod capture;
mod listeners;

const A: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xa);
const B: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xb);
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xa);
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 0x99);
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xa]);

fn header(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, payload_len: usize) -> ipv6::Header {
    ipv6::Header { src, dst, next_header, hop_limit: 255, traffic_class: 0, flow_label: 0, payload_len: payload_len as u16 }
}

fn packet(header: &ipv6::Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ipv6::LEN];
    header.emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

const FAULTS: [Fault; 6] = [
    Fault::DestinationUnreachable(Unreachable::Port),
    Fault::DestinationUnreachable(Unreachable::Other(77)),
    Fault::PacketTooBig { mtu: 0x0001_0203 },
    Fault::TimeExceeded { code: 1 },
    Fault::ParameterProblem { code: 2, pointer: 0x0102_0304 },
    Fault::ParameterProblem { code: 0, pointer: 4 },
];

/// What an error from B about `packet` is for A.
fn reported(fault: Fault, packet: &[u8]) -> Vec<u8> {
    let mut out = vec![0; LEN + QUOTED_MAX];
    let len = emit_error((B, A), fault, packet, &mut out);
    out.truncate(len);
    out
}

#[test]
fn every_code_of_unreachable_is_its_own() {
    for code in 0..=255 {
        assert_eq!(Unreachable::from_code(code).code(), code);
        assert_eq!(matches!(Unreachable::from_code(code), Unreachable::Other(_)), code > 8);
    }
    // RFC 4443 s3.1 numbers them.
    assert_eq!((Unreachable::BeyondScope.code(), Unreachable::Port.code(), Unreachable::RejectRoute.code()), (2, 4, 6));
}

/// RFC 4443 s2.4 (c): "as much of invoking packet as possible without the ICMPv6 packet exceeding the minimum IPv6 MTU".
#[test]
fn errors_quote_as_much_as_fits_and_are_read_back() {
    let transport = [0x12, 0x34, 0, 53, 0xde, 0xad, 0xbe, 0xef];
    for len in [8, 100, 1192, 1193, 9000] {
        let payload = [&transport[..], &vec![7; len - 8]].concat();
        let header = header(A, B, ipv4::PROTOCOL_TCP, len);
        let original = packet(&header, &payload);
        for fault in FAULTS {
            let bytes = reported(fault, &original);
            assert_eq!(bytes.len(), LEN + original.len().min(1232));
            assert!(ipv6::LEN + bytes.len() <= 1280);
            let (message, at) = Message::parse(&bytes).unwrap();
            let Message::Error { fault: read, quoted } = message else { panic!("an error") };
            assert_eq!((read, at, quoted.header, quoted.protocol), (fault, LEN, header, ipv4::PROTOCOL_TCP));
            assert_eq!((quoted.src_port(), quoted.dst_port(), quoted.seq().0), (0x1234, 53, 0xdead_beef));
            assert_eq!(quoted.packet_len(), original.len());
            assert_eq!(super::super::ipv6::Header { src: B, dst: A, ..header }.check_upper(ipv6::PROTOCOL_ICMPV6, &bytes), Ok(()));
        }
    }
}

/// RFC 4443 s2.4 (d): whose packet it was stands behind whatever headers it had.
#[test]
fn quoted_packets_are_read_through_their_headers() {
    let udp = [0x12, 0x34, 0, 53, 0, 16, 1, 2];
    let options = [FRAGMENT, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let first = [ipv4::PROTOCOL_UDP, 0, 0, 1, 1, 2, 3, 4];
    let payload = [&options[..], &first, &udp, &[9; 8]].concat();
    let quoted = packet(&header(A, B, DESTINATION_OPTIONS, payload.len()), &payload);
    let bytes = reported(FAULTS[0], &quoted);
    let Ok((Message::Error { quoted, .. }, _)) = Message::parse(&bytes) else { panic!("an error") };
    assert_eq!((quoted.protocol, quoted.src_port(), quoted.dst_port()), (ipv4::PROTOCOL_UDP, 0x1234, 53));
    // Cut off before the ports, it says nothing of use.
    for len in LEN..LEN + ipv6::LEN + 16 + 8 + 8 {
        assert_eq!(Message::parse(&bytes[..len]), Err(ParseError::Truncated), "{len}");
    }
    // Nor does a later fragment, which has no ports.
    let later = [ipv4::PROTOCOL_UDP, 0, 5, 0xa9, 1, 2, 3, 4];
    let payload = [&later[..], &udp].concat();
    let bytes = reported(FAULTS[0], &packet(&header(A, B, FRAGMENT, payload.len()), &payload));
    assert_eq!(Message::parse(&bytes), Err(ParseError::Truncated));
    // Nor does what is no IPv6 packet.
    let mut bytes = reported(FAULTS[0], &packet(&header(A, B, ipv4::PROTOCOL_UDP, 8), &udp));
    bytes[LEN] = 0x45;
    assert_eq!(Message::parse(&bytes), Err(ParseError::Malformed));
}

/// RFC 8201 s4: no report makes a path narrower than 1280, or wider than it was.
#[test]
fn reports_of_tiny_or_growing_paths_are_discarded() {
    for mtu in [0, 1, 68, 576, 1279, 1500, 1501, 65_535, 65_536 + 1280, u32::MAX] {
        assert_eq!(believed_mtu(1500, mtu), None, "{mtu}");
    }
    assert_eq!((believed_mtu(1500, 1280), believed_mtu(1500, 1499)), (Some(1280), Some(1499)));
    assert_eq!(believed_mtu(1280, 1280), None, "such a packet passes everywhere");
    assert_eq!(believed_mtu(65_575, 65_535), Some(65_535));
}

/// RFC 4443 s2.4 (e), sentence by sentence.
#[test]
fn no_error_is_sent_about_these() {
    let unreachable = FAULTS[0];
    let option = Fault::ParameterProblem { code: CODE_UNRECOGNIZED_OPTION, pointer: 42 };
    // A packet with an option of this type, at 42, before its upper layer.
    let may = |src, dst, kind: u8, (protocol, first): (u8, Option<u8>), fault, many| {
        let payload = [&[protocol, 0, kind, 4, 0, 0, 0, 0][..], first.as_slice()].concat();
        let header = header(src, dst, DESTINATION_OPTIONS, payload.len());
        may_answer(&header, &packet(&header, &payload), fault, many)
    };
    let tcp = (ipv4::PROTOCOL_TCP, Some(0));
    let icmp = |kind| (ipv6::PROTOCOL_ICMPV6, kind);
    assert!(may(A, B, 0x80, tcp, unreachable, false));
    // (e.1), (e.2).
    for kind in [0, 1, 4, 127, 137] {
        assert!(!may(A, B, 0x80, icmp(Some(kind)), unreachable, false), "{kind}");
    }
    assert!(may(A, B, 0x80, icmp(Some(128)), unreachable, false));
    assert!(!may(A, B, 0x80, icmp(None), unreachable, false), "it may have been one");
    let later = [ipv6::PROTOCOL_ICMPV6, 0, 5, 0xa8, 1, 2, 3, 4, 128, 0, 0, 0];
    let of_later = header(A, B, FRAGMENT, later.len());
    assert!(!may_answer(&of_later, &packet(&of_later, &later), unreachable, false), "so may a later fragment of one");
    // (e.3) to (e.5), with their exceptions.
    for (dst, many) in [(GROUP, false), (GROUP, true), (B, true)] {
        assert!(!may(A, dst, 0x80, tcp, unreachable, many));
        assert!(!may(A, dst, 0xc1, tcp, option, many));
        assert!(may(A, dst, 0x80, tcp, option, many));
        assert!(may(A, dst, 0xc1, tcp, FAULTS[2], many));
        assert!(!may(A, dst, 0x80, icmp(Some(1)), FAULTS[2], many), "an error stays one");
    }
    assert!(may(A, B, 0xc1, tcp, option, false));
    // (e.6).
    assert!(!may(Ipv6Addr::UNSPECIFIED, B, 0x80, tcp, FAULTS[2], false));
    assert!(!may(GROUP, B, 0x80, tcp, unreachable, false));
}

fn solicitation(options: Options<'_>) -> ndisc::Message<'_> {
    ndisc::Message::NeighborSolicitation { target: B, options }
}

/// The message of a packet that `message` makes, read again.
fn reread(
    src: Ipv6Addr,
    dst: Ipv6Addr,
    message: &ndisc::Message<'_>,
    change: impl Fn(&mut ipv6::Header, &mut Vec<u8>),
) -> Result<(), Invalid> {
    let mut out = vec![0; ipv6::LEN + message.len()];
    assert_eq!(message.emit_packet(src, dst, &mut out), out.len());
    let (mut header, at) = ipv6::Header::parse(&out).unwrap();
    assert_eq!((header.hop_limit, usize::from(header.payload_len)), (255, message.len()));
    let mut bytes = out.split_off(at);
    assert_eq!(header.check_upper(ipv6::PROTOCOL_ICMPV6, &bytes), Ok(()));
    change(&mut header, &mut bytes);
    let read = ndisc::Message::parse(&header, &bytes)?;
    assert_eq!(read, *message);
    Ok(())
}

fn unchanged(_: &mut ipv6::Header, _: &mut Vec<u8>) {}

/// RFC 4861 s7.1.1 and s7.1.2: "A node MUST silently discard any received Neighbor Solicitation messages that do not satisfy …".
#[test]
fn neighbour_messages_that_are_to_be_discarded() {
    let (mine, bare) = (OptionsBuf::default().source(MAC), Options::default());
    let ask = solicitation(mine.options());
    assert_eq!(reread(A, B, &ask, unchanged), Ok(()));
    for hop_limit in [0, 1, 64, 254] {
        assert_eq!(reread(A, B, &ask, |header, _| header.hop_limit = hop_limit), Err(Invalid::HopLimit));
    }
    assert_eq!(reread(A, B, &ask, |_, bytes| bytes[1] = 1), Err(Invalid::Code));
    assert_eq!(reread(A, B, &ask, |_, bytes| bytes[0] = 132), Err(Invalid::Kind));
    assert_eq!(reread(A, B, &solicitation(bare), |_, bytes| bytes.truncate(23)), Err(Invalid::Truncated));
    assert_eq!(reread(A, B, &ask, |_, bytes| bytes.truncate(31)), Err(Invalid::Truncated));
    assert_eq!(reread(A, B, &ask, |_, bytes| bytes[25] = 0), Err(Invalid::Option));
    assert_eq!(reread(A, B, &ask, |_, bytes| bytes[25] = 2), Err(Invalid::Truncated));
    assert_eq!(reread(A, B, &ask, |_, bytes| bytes[8] = 0xff), Err(Invalid::Target));
    // From nobody: to the solicited-node group alone, and without an address.
    let nobody = Ipv6Addr::UNSPECIFIED;
    assert_eq!(reread(nobody, ipv6::solicited_node(B), &solicitation(bare), unchanged), Ok(()));
    assert_eq!(reread(nobody, B, &solicitation(bare), unchanged), Err(Invalid::Destination));
    assert_eq!(reread(nobody, ipv6::solicited_node(B), &ask, unchanged), Err(Invalid::Source));
    // Advertisements.
    let answer = |solicited| ndisc::Message::NeighborAdvertisement { target: B, router: true, solicited, overriding: false, options: bare };
    assert_eq!(reread(B, A, &answer(true), unchanged), Ok(()));
    assert_eq!(reread(B, ipv6::ALL_NODES, &answer(false), unchanged), Ok(()));
    assert_eq!(reread(B, ipv6::ALL_NODES, &answer(true), unchanged), Err(Invalid::Destination));
    assert_eq!(reread(B, A, &answer(true), |_, bytes| bytes[8] = 0xff), Err(Invalid::Target));
    assert_eq!(reread(B, A, &answer(true), |header, _| header.hop_limit = 254), Err(Invalid::HopLimit));
}

/// RFC 4861 s6.1.1, s6.1.2, s8.1.
#[test]
fn routers_messages_that_are_to_be_discarded() {
    let mine = OptionsBuf::default().source(MAC);
    let (options, bare) = (mine.options(), Options::default());
    let ask = |options| ndisc::Message::RouterSolicitation { options };
    assert_eq!(reread(A, ipv6::ALL_ROUTERS, &ask(options), unchanged), Ok(()));
    assert_eq!(reread(Ipv6Addr::UNSPECIFIED, ipv6::ALL_ROUTERS, &ask(bare), unchanged), Ok(()));
    assert_eq!(reread(Ipv6Addr::UNSPECIFIED, ipv6::ALL_ROUTERS, &ask(options), unchanged), Err(Invalid::Source));
    let router = Router {
        hop_limit: 64,
        flags: 0x80,
        lifetime: Duration::from_secs(1800),
        reachable: Duration::from_millis(30_000),
        retransmit: Duration::from_millis(1000),
    };
    let advertisement = ndisc::Message::RouterAdvertisement { router, options };
    assert_eq!(reread(LINK_LOCAL, ipv6::ALL_NODES, &advertisement, unchanged), Ok(()));
    assert_eq!(reread(A, ipv6::ALL_NODES, &advertisement, unchanged), Err(Invalid::Source));
    assert_eq!(reread(LINK_LOCAL, ipv6::ALL_NODES, &advertisement, |_, bytes| bytes.truncate(15)), Err(Invalid::Truncated));
    let redirect = |target, destination| ndisc::Message::Redirect { target, destination, options };
    assert_eq!(reread(LINK_LOCAL, A, &redirect(B, B), unchanged), Ok(()));
    assert_eq!(reread(LINK_LOCAL, A, &redirect(LINK_LOCAL, B), unchanged), Ok(()));
    assert_eq!(reread(LINK_LOCAL, A, &redirect(A, B), unchanged), Err(Invalid::Target));
    assert_eq!(reread(LINK_LOCAL, A, &redirect(LINK_LOCAL, GROUP), unchanged), Err(Invalid::Destination));
    assert_eq!(reread(B, A, &redirect(LINK_LOCAL, B), unchanged), Err(Invalid::Source));
    assert_eq!(reread(LINK_LOCAL, A, &redirect(B, B), |_, bytes| bytes.truncate(39)), Err(Invalid::Truncated));
}

/// RFC 4861 s4.6: options that are not known, and of known ones those of another length, are passed over.
#[test]
fn options_are_read_in_order() {
    let prefix = [
        &[3, 4, 64, 0xc0, 0, 1, 0x51, 0x80, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0][..],
        &Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, 0).octets(),
    ]
    .concat();
    let bytes = [
        &[1, 1, 2, 0, 0, 0, 0, 1][..],
        &[5, 1, 0, 0, 0, 0, 0x05, 0xdc],
        &prefix,
        &[25, 1, 0, 0, 0, 0, 0, 0],
        &[1, 2, 2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        &[2, 1, 0x33, 0x33, 0, 0, 0, 1],
        &[14, 1, 1, 2, 3, 4, 5, 6],
        &[4, 2, 0, 0, 0, 0, 0, 0, 0x60, 1, 2, 3, 4, 5, 6, 7],
    ]
    .concat();
    let options = Options::parse(&bytes).unwrap();
    let expected = [
        Opt::Source(MacAddr([2, 0, 0, 0, 0, 1])),
        Opt::Mtu(1500),
        Opt::Prefix(Prefix {
            len: 64,
            on_link: true,
            autonomous: true,
            valid: Duration::from_secs(86_400),
            preferred: Duration::from_secs(u32::MAX.into()),
            prefix: "2001:db8:0:7::".parse().unwrap(),
        }),
        Opt::Other(25),
        Opt::Other(1),
        // A group's address is none that a neighbour can have.
        Opt::Other(2),
        Opt::Nonce([1, 2, 3, 4, 5, 6]),
        Opt::Redirected(&[0x60, 1, 2, 3, 4, 5, 6, 7]),
    ];
    assert_eq!(options.iter().collect::<Vec<_>>(), expected);
    assert_eq!((options.source(), options.target(), options.nonce()), (Some(MacAddr([2, 0, 0, 0, 0, 1])), None, Some([1, 2, 3, 4, 5, 6])));
    let zero = Options::parse(&[1, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    assert_eq!(zero.source(), None, "nobody's address");
    let mut too_long = prefix;
    too_long[2] = 129;
    assert_eq!(Options::parse(&too_long).unwrap().iter().next(), Some(Opt::Other(3)));
}

/// Any fixed part of a message, and options of likely shapes behind it.
fn discovery() -> impl Strategy<Value = Vec<u8>> {
    let option = (0..15u8, 0..6u8, proptest::collection::vec(any::<u8>(), 46)).prop_map(|(kind, len, mut data)| {
        data.truncate((usize::from(len) * 8).max(2) - 2);
        [&[kind, len][..], &data].concat()
    });
    let options = proptest::collection::vec(option, 0..5).prop_map(|options| options.concat());
    (130..=143u8, proptest::collection::vec(any::<u8>(), 7..40), options).prop_map(|(kind, mut fixed, options)| {
        fixed[0] = 0;
        [&[kind][..], &fixed, &options].concat()
    })
}

proptest! {
    #[test]
    fn echo_roundtrips(id: u16, seq: u16, is_reply: bool, data in proptest::collection::vec(any::<u8>(), 0..100)) {
        let mut out = vec![0; LEN + data.len()];
        prop_assert_eq!(emit_echo((A, B), is_reply, (id, seq), &data, &mut out), out.len());
        let expected = if is_reply { Message::EchoReply { id, seq } } else { Message::EchoRequest { id, seq } };
        prop_assert_eq!(Message::parse(&out), Ok((expected, LEN)));
        prop_assert_eq!(&out[LEN..], &data);
        prop_assert_eq!(header(A, B, 0, 0).check_upper(ipv6::PROTOCOL_ICMPV6, &out), Ok(()));
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..6u8) {
        let _ = Message::parse(&bytes);
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        if let Some(version) = bytes.get_mut(8) {
            *version = 0x60;
        }
        let _ = Message::parse(&bytes);
        let _ = may_answer(&header(A, B, kind, bytes.len()), &bytes, Fault::ParameterProblem { code: 2, pointer: u32::from(kind) * 50 }, false);
        let mut out = vec![0; LEN + QUOTED_MAX];
        emit_error((A, B), FAULTS[0], &bytes, &mut out);
    }

    #[test]
    fn no_discovery_panics_and_what_is_read_is_written_again(bytes in discovery(), link_local: bool, hop_limit in prop_oneof![Just(1u8), Just(255u8)]) {
        let mut header = header(if link_local { LINK_LOCAL } else { A }, B, ipv6::PROTOCOL_ICMPV6, bytes.len());
        header.hop_limit = hop_limit;
        if let Ok(message) = mld::Message::parse(&header, Some(0), &bytes)
            && let mld::Message::Report { records } = message
        {
            let _ = records.iter().map(|record| record.sources.iter().count()).sum::<usize>();
        }
        if let Ok(message) = ndisc::Message::parse(&header, &bytes) {
            let _ = message.options().iter().count();
            prop_assert_eq!(message.len(), bytes.len());
            let mut out = vec![0; ipv6::LEN + bytes.len()];
            prop_assert_eq!(message.emit_packet(header.src, header.dst, &mut out), out.len());
            prop_assert_eq!(ndisc::Message::parse(&header, &out[ipv6::LEN..]), Ok(message));
        }
    }
}
