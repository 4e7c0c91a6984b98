use core::net::Ipv6Addr;

use proptest::prelude::*;

use super::extension::*;
use super::*;
use crate::wire::udp;

const A: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xa);
const B: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xb);
const GROUP: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 0x99);
const UDP: u8 = ipv4::PROTOCOL_UDP;

fn header(dst: Ipv6Addr, next_header: u8, payload_len: usize) -> Header {
    Header { src: A, dst, next_header, hop_limit: 64, traffic_class: 0, flow_label: 0, payload_len: payload_len as u16 }
}

/// A packet whose payload is what `parts` are together.
fn packet(dst: Ipv6Addr, next_header: u8, parts: &[&[u8]]) -> (Header, Vec<u8>) {
    let payload = parts.concat();
    let header = header(dst, next_header, payload.len());
    let mut bytes = vec![0; LEN];
    header.emit(&mut bytes);
    bytes.extend(payload);
    (header, bytes)
}

fn walked(dst: Ipv6Addr, next_header: u8, parts: &[&[u8]]) -> Result<Upper, ChainError> {
    let (header, bytes) = packet(dst, next_header, parts);
    walk(&header, &bytes)
}

fn problem(code: u8, pointer: u32) -> Result<Upper, ChainError> {
    Err(ChainError::Problem(Problem { code, pointer }))
}

/// An options header around `options`, padded to a multiple of 8 bytes.
fn options(next: u8, options: &[u8]) -> Vec<u8> {
    let mut bytes = vec![next, 0];
    bytes.extend(options);
    match (8 - bytes.len() % 8) % 8 {
        0 => {}
        1 => bytes.push(0),
        n => bytes.extend([&[1, n as u8 - 2][..], &vec![0; n - 2]].concat()),
    }
    bytes[1] = (bytes.len() / 8 - 1) as u8;
    bytes
}

fn fragment(next_header: u8, offset: u16, more: bool) -> [u8; 8] {
    let mut out = [0; 8];
    Fragment { next_header, offset, more, id: 0x0102_0304 }.emit(&mut out);
    out
}

#[test]
fn a_packet_without_extension_headers_is_its_upper_layer() {
    let upper = walked(B, UDP, &[&[0; 8]]);
    assert_eq!(upper, Ok(Upper { protocol: UDP, at: 40, named_at: 6, fragment: None, router_alert: None }));
    assert!(upper.is_ok_and(|upper| upper.is_whole()));
    assert_eq!(walked(B, NO_NEXT_HEADER, &[]).map(|upper| upper.protocol), Ok(NO_NEXT_HEADER));
}

/// RFC 8200 s4.1: in whatever order, and any number of times, but that hop-by-hop options come first.
#[test]
fn headers_are_walked_in_any_order() {
    let routed = [DESTINATION_OPTIONS, 2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let upper = walked(
        B,
        HOP_BY_HOP,
        &[&options(DESTINATION_OPTIONS, &[5, 2, 0, 0]), &options(ROUTING, &[]), &routed, &options(UDP, &[0x1e, 2, 9, 9]), &[0; 8]],
    );
    assert_eq!(upper, Ok(Upper { protocol: UDP, at: 40 + 8 + 8 + 24 + 8, named_at: 80, fragment: None, router_alert: Some(0) }));
}

/// RFC 8200 s4: a zero that is not the IPv6 header's own is treated as unrecognized.
#[test]
fn hop_by_hop_options_come_first_or_not_at_all() {
    let parts: [&[u8]; 3] = [&options(HOP_BY_HOP, &[]), &options(UDP, &[]), &[0; 8]];
    assert_eq!(walked(B, DESTINATION_OPTIONS, &parts), problem(CODE_UNRECOGNIZED_NEXT_HEADER, 40));
    assert_eq!(walked(B, HOP_BY_HOP, &parts), problem(CODE_UNRECOGNIZED_NEXT_HEADER, 40));
}

/// RFC 4443 s3.4: code 1 points at the field that names the protocol.
#[test]
fn an_unknown_protocol_is_pointed_at_where_it_is_named() {
    let direct = walked(B, 200, &[]).unwrap();
    assert_eq!(direct.unrecognized(), Problem { code: 1, pointer: 6 });
    let behind = walked(B, DESTINATION_OPTIONS, &[&options(ROUTING, &[]), &[200, 0, 9, 0, 0, 0, 0, 0]]).unwrap();
    assert_eq!((behind.protocol, behind.unrecognized().pointer), (200, 48));
}

/// RFC 8200 s4.2: what an option's two highest bits ask for.
#[test]
fn unknown_options_say_themselves_what_to_do() {
    for (kind, dst, expected) in [
        (0x3f, B, Ok(())),
        (0x7f, B, Err(ChainError::Discard)),
        (0x80, B, Err(ChainError::Problem(Problem { code: 2, pointer: 44 }))),
        (0x80, GROUP, Err(ChainError::Problem(Problem { code: 2, pointer: 44 }))),
        (0xc3, B, Err(ChainError::Problem(Problem { code: 2, pointer: 44 }))),
        (0xc3, GROUP, Err(ChainError::Discard)),
    ] {
        for (outer, inner) in [(HOP_BY_HOP, UDP), (DESTINATION_OPTIONS, UDP)] {
            // Two bytes of padding come first.
            let header = options(inner, &[1, 0, kind, 1, 7]);
            assert_eq!(walked(dst, outer, &[&header, &[0; 8]]).map(drop), expected, "{kind:#x} to {dst}");
        }
    }
    // A router alert is known among hop-by-hop options, and is to be passed over elsewhere.
    let alert = options(UDP, &[5, 2, 0, 7]);
    assert_eq!(walked(B, HOP_BY_HOP, &[&alert, &[0; 8]]).unwrap().router_alert, Some(7));
    assert_eq!(walked(B, DESTINATION_OPTIONS, &[&alert, &[0; 8]]).unwrap().router_alert, None);
    assert_eq!(
        walked(B, HOP_BY_HOP, &[&options(UDP, &[5, 3, 0, 7, 7]), &[0; 8]]),
        Err(ChainError::Malformed),
        "RFC 2711 s2.1: it has 2 bytes"
    );
}

#[test]
fn options_that_lead_out_of_their_header_are_malformed() {
    for bytes in [[UDP, 0, 0x1e, 5, 0, 0, 0, 0], [UDP, 0, 1, 5, 0, 0, 0, 0], [UDP, 0, 1, 3, 0, 0, 0, 0x1e], [UDP, 0, 0x1e, 255, 0, 0, 0, 0]]
    {
        assert_eq!(walked(B, DESTINATION_OPTIONS, &[&bytes, &[0; 8]]), Err(ChainError::Malformed), "{bytes:?}");
    }
}

/// RFC 8200 s4.4, RFC 5095 s3: a routing type that is not known matters while segments are left.
#[test]
fn source_routes_end_here_or_are_refused() {
    for kind in [0, 1, 2, 4, 200] {
        assert!(walked(B, ROUTING, &[&[UDP, 0, kind, 0, 0, 0, 0, 0], &[0; 8]]).is_ok());
        assert_eq!(walked(B, ROUTING, &[&[UDP, 0, kind, 1, 0, 0, 0, 0], &[0; 8]]), problem(CODE_ERRONEOUS_FIELD, 42));
    }
}

/// RFC 2675 s4: who doesn't know jumbograms answers as to any other option. Without the option, an empty packet is one.
#[test]
fn jumbograms_are_refused() {
    let (mut header, mut bytes) = packet(B, HOP_BY_HOP, &[&options(UDP, &[0xc2, 4, 0, 1, 0, 0]), &[0; 100]]);
    assert_eq!(walk(&header, &bytes), problem(CODE_UNRECOGNIZED_OPTION, 42), "with a length beside the jumbo one");
    header.payload_len = 0;
    header.emit(&mut bytes);
    assert_eq!(walk(&header, &bytes), problem(CODE_UNRECOGNIZED_OPTION, 42));
    let (mut header, bytes) = packet(B, HOP_BY_HOP, &[&options(UDP, &[]), &[0; 100]]);
    header.payload_len = 0;
    assert_eq!(walk(&header, &bytes), Err(ChainError::Truncated));
}

#[test]
fn fragments_are_told_apart() {
    let first = walked(B, FRAGMENT, &[&fragment(UDP, 0, true), &[0; 16]]).unwrap();
    assert_eq!((first.protocol, first.at, first.is_whole()), (UDP, 48, false));
    assert_eq!(first.fragment, Some(Fragment { next_header: UDP, offset: 0, more: true, id: 0x0102_0304 }));
    assert!(first.fragment.is_some_and(|fragment| fragment.is_first() && !fragment.is_atomic()));
    // What a later one has at its front is no header, though it may look like one.
    let later = walked(B, FRAGMENT, &[&fragment(DESTINATION_OPTIONS, 1448, false), &options(UDP, &[0xff, 0])]).unwrap();
    assert_eq!((later.protocol, later.at, later.is_whole()), (DESTINATION_OPTIONS, 48, false));
    assert!(later.fragment.is_some_and(|fragment| !fragment.is_first() && fragment.offset == 1448));
    // RFC 6946 s4: one that is all of its packet is processed at once.
    let atomic = walked(B, FRAGMENT, &[&fragment(DESTINATION_OPTIONS, 0, false), &options(UDP, &[]), &[0; 8]]).unwrap();
    assert_eq!((atomic.protocol, atomic.at, atomic.is_whole()), (UDP, 56, true));
}

/// RFC 8200 s4.5.
#[test]
fn fragments_that_fit_together_with_nothing_are_told_so() {
    assert_eq!(walked(B, FRAGMENT, &[&fragment(UDP, 0, true), &[0; 15]]), problem(CODE_ERRONEOUS_FIELD, 4), "not a multiple of 8");
    assert!(walked(B, FRAGMENT, &[&fragment(UDP, 8, false), &[0; 15]]).is_ok(), "the last one may be");
    assert_eq!(walked(B, FRAGMENT, &[&fragment(UDP, 65_528, false), &[0; 8]]), problem(CODE_ERRONEOUS_FIELD, 42), "beyond 65,535");
    assert!(walked(B, FRAGMENT, &[&fragment(UDP, 65_528, false), &[0; 7]]).is_ok());
    let behind = walked(B, DESTINATION_OPTIONS, &[&options(FRAGMENT, &[]), &fragment(UDP, 65_520, false), &[0; 8]]);
    assert_eq!(behind, problem(CODE_ERRONEOUS_FIELD, 50), "the headers before it count");
    let twice = walked(B, FRAGMENT, &[&fragment(FRAGMENT, 0, false), &fragment(UDP, 0, false), &[0; 8]]);
    assert_eq!(twice, Err(ChainError::Malformed));
}

/// RFC 7112 s5: the first fragment has all headers, the upper layer's included.
#[test]
fn first_fragments_without_all_headers_are_told_so() {
    let incomplete = problem(CODE_INCOMPLETE_CHAIN, 0);
    assert_eq!(walked(B, FRAGMENT, &[&fragment(ipv4::PROTOCOL_TCP, 0, true), &[0; 16]]), incomplete);
    assert!(walked(B, FRAGMENT, &[&fragment(ipv4::PROTOCOL_TCP, 0, true), &[0; 24]]).is_ok());
    assert_eq!(walked(B, FRAGMENT, &[&fragment(UDP, 0, true)]), incomplete);
    let long = [&[UDP, 1][..], &[0; 6]].concat();
    assert_eq!(walked(B, FRAGMENT, &[&fragment(DESTINATION_OPTIONS, 0, true), &long]), incomplete);
    // What a frame has behind its packet is none of them, and it need not have anything there.
    let (header, mut bytes) = packet(B, FRAGMENT, &[&fragment(ROUTING, 0, true)]);
    assert_eq!(walk(&header, &bytes), incomplete);
    bytes.extend([UDP, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(walk(&header, &bytes), incomplete);
}

/// A frame may be longer than its packet (Ethernet pads), and shorter (it was cut off).
#[test]
fn the_packets_own_length_is_what_counts() {
    let (mut header, bytes) = packet(B, DESTINATION_OPTIONS, &[&options(UDP, &[]), &[0; 8]]);
    header.payload_len = 7;
    assert_eq!(walk(&header, &bytes), Err(ChainError::Truncated));
    header.payload_len = 16;
    for len in LEN..48 {
        assert_eq!(walk(&header, &bytes[..len]), Err(ChainError::Truncated));
    }
    // The upper layer itself may be elsewhere.
    assert!(walk(&header, &bytes[..48]).is_ok());
}

#[test]
fn chains_are_bounded() {
    let link = options(DESTINATION_OPTIONS, &[]);
    for (links, fits) in [(HEADERS_MAX - 1, true), (HEADERS_MAX, false), (6000, false)] {
        let end = [options(UDP, &[]), vec![0; 8]].concat();
        let chain = [link.repeat(links), end].concat();
        let result = walked(B, DESTINATION_OPTIONS, &[&chain]);
        assert_eq!(result.is_ok(), fits, "{links}: {result:?}");
        assert!(fits || result == Err(ChainError::TooMany));
    }
    for (count, fits) in [(OPTIONS_MAX, true), (OPTIONS_MAX + 1, false)] {
        let header = options(UDP, &[0x1e, 1, 0].repeat(count));
        assert_eq!(walked(B, DESTINATION_OPTIONS, &[&header, &[0; 8]]).is_ok(), fits);
    }
    // RFC 8504 s5.3: padding of more than 7 bytes, in one piece or several.
    for pads in [&[1, 6, 0, 0, 0, 0, 0, 0][..], &[0; 8], &[1, 2, 0, 0, 1, 2, 0, 0]] {
        let header = options(UDP, &[pads, &[0x1e, 0]].concat());
        assert_eq!(walked(B, DESTINATION_OPTIONS, &[&header, &[0; 8]]), Err(ChainError::TooMany));
    }
    // The longest header that there is, full of options of the greatest length.
    let longest = options(UDP, &[&[0x1e, 253][..], &[7; 253]].concat().repeat(8));
    assert_eq!(longest.len(), 2048);
    assert!(walked(B, DESTINATION_OPTIONS, &[&longest, &[0; 8]]).is_ok());
}

#[test]
fn addresses_that_no_wire_may_have() {
    let mapped: Ipv6Addr = "::ffff:192.0.2.1".parse().unwrap();
    let check = |src, dst| Header { src, ..header(dst, UDP, 0) }.check_addresses();
    assert_eq!(check(A, B), Ok(()));
    assert_eq!(check(Ipv6Addr::UNSPECIFIED, GROUP), Ok(()), "as duplicate address detection does");
    assert_eq!((check(mapped, B), check(A, mapped)), (Err(AddressError::V4Mapped), Err(AddressError::V4Mapped)));
    assert_eq!(check(GROUP, B), Err(AddressError::MulticastSource));
    assert_eq!(check(A, Ipv6Addr::UNSPECIFIED), Err(AddressError::UnspecifiedDestination));
    for narrow in ["ff00::1", "ff01::1", "ff11::1"] {
        assert_eq!(check(A, narrow.parse().unwrap()), Err(AddressError::NarrowScope), "{narrow}");
    }
    assert_eq!(check(A, ALL_NODES), Ok(()));
}

/// RFC 8200 s8.1: zero means no checksum, which IPv6 doesn't have; a sum that comes to zero is sent as all ones.
#[test]
fn udp_without_a_checksum_is_refused() {
    let header = header(B, UDP, 10);
    let mut datagram = [0, 1, 0, 2, 0, 10, 0, 0, 0, 0];
    let mut sum = header.pseudo_header(UDP, datagram.len());
    sum.add(&datagram);
    // Data that make the sum come to zero.
    datagram[8..].copy_from_slice(&sum.finish().to_be_bytes());
    assert_eq!(header.check_upper(UDP, &datagram), Err(ChecksumError::Missing), "though the sum would be right");
    datagram[6..8].copy_from_slice(&udp::nonzero_checksum(0).to_be_bytes());
    assert_eq!(header.check_upper(UDP, &datagram), Ok(()));
    datagram[9] ^= 1;
    assert_eq!(header.check_upper(UDP, &datagram), Err(ChecksumError::Wrong));
    let elsewhere = Header { dst: A, ..header };
    datagram[9] ^= 1;
    assert_eq!(elsewhere.check_upper(UDP, &datagram), Err(ChecksumError::Wrong), "it is for somebody else");
}

#[test]
fn traffic_class_is_two_fields() {
    let header = Header { traffic_class: 0xbb, ..header(B, UDP, 0) };
    assert_eq!((header.dscp(), header.ecn()), (0x2e, 3));
}

/// RFC 4291 s2.7.1 has this example; RFC 2464 s7 its Ethernet address.
#[test]
fn solicited_node_groups() {
    let group = solicited_node("4037::01:800:200e:8c6c".parse().unwrap());
    assert_eq!(group, "ff02::1:ff0e:8c6c".parse::<Ipv6Addr>().unwrap());
    assert_eq!(crate::addr::MacAddr::of_group_v6(group).0, [0x33, 0x33, 0xff, 0x0e, 0x8c, 0x6c]);
    assert_eq!(scope(group), 2);
}

/// Extension headers of likely shapes, which chance alone seldom makes.
fn chain() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let kind = prop_oneof![Just(HOP_BY_HOP), Just(ROUTING), Just(FRAGMENT), Just(DESTINATION_OPTIONS), Just(UDP), any::<u8>()];
    let link = (kind.clone(), 0..4u8, proptest::collection::vec(prop_oneof![0..6u8, any::<u8>()], 30));
    (kind, proptest::collection::vec(link, 0..14)).prop_map(|(first, links)| {
        let mut bytes = Vec::new();
        for (next, len, mut body) in links {
            body.truncate(usize::from(len) * 8 + 6);
            bytes.extend([next, len]);
            bytes.extend(body);
        }
        (first, bytes)
    })
}

proptest! {
    #[test]
    fn no_chain_panics_or_leads_out_of_its_packet(
        (first, mut bytes) in chain(), payload_len: Option<u16>, cut in any::<proptest::sample::Index>(), to_group: bool,
    ) {
        let dst = if to_group { GROUP } else { B };
        let (mut header, whole) = packet(dst, first, &[&bytes]);
        header.payload_len = payload_len.unwrap_or(header.payload_len);
        let head = &whole[..LEN + cut.index(bytes.len() + 1)];
        match walk(&header, head) {
            Ok(upper) => {
                prop_assert!(upper.at <= head.len() && upper.at <= LEN + usize::from(header.payload_len));
                prop_assert!(upper.named_at < upper.at && head[upper.named_at] == upper.protocol);
            }
            Err(ChainError::Problem(problem)) => prop_assert!((problem.pointer as usize) < head.len()),
            Err(_) => {}
        }
        // What follows the packet changes nothing.
        bytes.extend([0; 64]);
        let longer = packet(dst, first, &[&bytes]).1;
        if header.payload_len != 0 && usize::from(header.payload_len) + LEN <= whole.len() {
            prop_assert_eq!(walk(&header, &whole), walk(&header, &longer));
        }
        let _ = upper_of_quoted(&header, head);
    }

    #[test]
    fn quoted_packets_are_read_as_whole_ones_are((first, bytes) in chain()) {
        let (header, bytes) = packet(B, first, &[&bytes, &[1, 2, 3, 4, 5, 6, 7, 8]]);
        if let Ok(upper) = walk(&header, &bytes) && let Some(transport) = bytes[upper.at..].first_chunk() {
            let expected = upper.fragment.is_none_or(|fragment| fragment.is_first()).then_some((upper.protocol, *transport));
            prop_assert_eq!(upper_of_quoted(&header, &bytes), expected);
        }
    }

    #[test]
    fn fragment_headers_roundtrip(next_header in any::<u8>(), unit in 1..8180u16, more: bool, id: u32) {
        let fragment = Fragment { next_header, offset: unit * 8, more, id };
        let mut out = [0; Fragment::LEN];
        prop_assert_eq!(fragment.emit(&mut out), Fragment::LEN);
        let upper = walked(B, FRAGMENT, &[&out, &[0; 64]]);
        prop_assert_eq!(upper.map(|upper| (upper.fragment, upper.protocol, upper.at)), Ok((Some(fragment), next_header, 48)));
    }

    #[test]
    fn any_bytes_may_stand_where_a_packet_should(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok((header, _)) = Header::parse(&bytes) {
            let _ = (walk(&header, &bytes), header.check_addresses(), header.check_upper(bytes[0], &bytes));
        }
        let header = header(B, bytes.first().copied().unwrap_or_default(), bytes.len());
        let _ = (walk(&header, &bytes), upper_of_quoted(&header, &bytes));
    }
}
