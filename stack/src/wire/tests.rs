use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::checksum::{self, Checksum};
use super::tcp::{Cookie, FastOpen, Flags, Options, SackBlock, SackBlocks, SeqNumber};
use super::{arp, ethernet, fixed, icmp, ipv4, ipv6, tcp, udp};
use crate::addr::MacAddr;

fn mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(MacAddr)
}

fn ip() -> impl Strategy<Value = Ipv4Addr> {
    any::<[u8; 4]>().prop_map(Ipv4Addr::from)
}

fn ipv4_header() -> impl Strategy<Value = ipv4::Header> {
    (ip(), ip(), any::<(u8, u8, u8, u16, bool, bool)>(), 20..=u16::MAX, 0..0x2000u16).prop_map(
        |(src, dst, (protocol, ttl, tos, id, dont_fragment, more_fragments), total_len, offset)| ipv4::Header {
            src,
            dst,
            protocol,
            ttl,
            tos,
            id,
            total_len,
            dont_fragment,
            more_fragments,
            fragment_offset: offset * 8,
            header_len: 20,
        },
    )
}

fn options() -> impl Strategy<Value = Options> {
    let blocks = proptest::collection::vec(any::<(u32, u32)>(), 0..=4);
    (any::<Option<u16>>(), any::<Option<u8>>(), any::<bool>(), any::<Option<(u32, u32)>>(), blocks).prop_map(
        |(mss, window_scale, sack_permitted, timestamps, blocks)| {
            let mut sack = SackBlocks::default();
            for (start, end) in blocks {
                sack.push(SackBlock { start: SeqNumber(start), end: SeqNumber(end) });
            }
            Options { mss, window_scale, sack_permitted, timestamps, sack }
        },
    )
}

fn tcp_header() -> impl Strategy<Value = tcp::Header> {
    (any::<(u16, u16, u32, u32, u8, u16, u16, u16)>(), options()).prop_map(
        |((src_port, dst_port, seq, ack, flags, window, checksum, urgent), options)| tcp::Header {
            src_port,
            dst_port,
            seq: SeqNumber(seq),
            ack: SeqNumber(ack),
            flags: Flags::from_bits_retain(flags),
            window,
            checksum,
            urgent,
            options,
        },
    )
}

proptest! {
    #[test]
    fn ipv6_roundtrips(
        addresses in any::<([u8; 16], [u8; 16])>(),
        octets in any::<(u8, u8, u8)>(),
        flow_label in 0..1u32 << 20,
        payload_len in any::<u16>(),
    ) {
        let (next_header, hop_limit, traffic_class) = octets;
        let (src, dst) = (addresses.0.into(), addresses.1.into());
        let header = ipv6::Header { src, dst, next_header, hop_limit, traffic_class, flow_label, payload_len };
        let mut out = [0; ipv6::LEN];
        prop_assert_eq!(header.emit(&mut out), ipv6::LEN);
        prop_assert_eq!(ipv6::Header::parse(&out), Ok((header, ipv6::LEN)));
        prop_assert!(ipv6::Header::parse(&out[..ipv6::LEN - 1]).is_err());
        out[0] = 0x40;
        prop_assert!(ipv6::Header::parse(&out).is_err());
    }

    #[test]
    fn ethernet_roundtrips(dst in mac(), src in mac(), vlan in any::<Option<u16>>(), ethertype in any::<u16>()) {
        prop_assume!(ethertype != ethernet::ETHERTYPE_VLAN);
        let header = ethernet::Header { dst, src, vlan, ethertype };
        let mut out = [0; 18];
        let len = header.emit(&mut out);
        prop_assert_eq!(len, header.len());
        prop_assert_eq!(ethernet::Header::parse(&out[..len]), Ok((header, len)));
        prop_assert!(ethernet::Header::parse(&out[..len - 1]).is_err());
    }

    #[test]
    fn arp_roundtrips(request in any::<bool>(), sender_mac in mac(), sender_ip in ip(), target_mac in mac(), target_ip in ip()) {
        let operation = if request { arp::Operation::Request } else { arp::Operation::Reply };
        let packet = arp::Packet { operation, sender_mac, sender_ip, target_mac, target_ip };
        let mut out = [0; arp::LEN];
        prop_assert_eq!(packet.emit(&mut out), arp::LEN);
        prop_assert_eq!(arp::Packet::parse(&out), Ok((packet, arp::LEN)));
    }

    #[test]
    fn ipv4_roundtrips_with_a_good_checksum(header in ipv4_header(), bit in 0..160usize) {
        let mut out = [0; ipv4::LEN];
        prop_assert_eq!(header.emit(&mut out, true), ipv4::LEN);
        prop_assert_eq!(ipv4::Header::parse(&out), Ok((header, ipv4::LEN)));
        prop_assert!(ipv4::verify_checksum(&out));
        out[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!ipv4::verify_checksum(&out), "one bit was flipped");
    }

    #[test]
    fn udp_roundtrips(src_port: u16, dst_port: u16, len in 8..=u16::MAX, checksum: u16) {
        let header = udp::Header { src_port, dst_port, len, checksum };
        let mut out = [0; udp::LEN];
        prop_assert_eq!(header.emit(&mut out), udp::LEN);
        prop_assert_eq!(udp::Header::parse(&out), Ok((header, udp::LEN)));
    }

    #[test]
    fn icmp_roundtrips(which in 0..4, id: u16, seq: u16, code: u8, header in ipv4_header(), options in 0..=10usize, transport: [u8; 8]) {
        let len = ipv4::LEN + 4 * options;
        let header = ipv4::Header { header_len: len as u8, total_len: header.total_len.max(len as u16), ..header };
        let mut quote = [1; icmp::QUOTE_MAX];
        header.emit(&mut quote, true);
        quote[0] += options as u8;
        quote[len..len + 8].copy_from_slice(&transport);
        let quoted = icmp::Quoted { header, transport };
        let message = match which {
            0 => icmp::Message::EchoRequest { id, seq },
            1 => icmp::Message::EchoReply { id, seq },
            2 => icmp::Message::DestinationUnreachable { code, mtu: id, quoted },
            _ => icmp::Message::TimeExceeded { code, quoted },
        };
        let quote = if which < 2 { &[] } else { &quote[..len + 8] };
        let mut out = [0; icmp::LEN + icmp::QUOTE_MAX];
        let mut sum = Checksum::new();
        sum.add(quote);
        prop_assert_eq!(message.emit(&mut out, sum), icmp::LEN);
        let end = icmp::LEN + quote.len();
        out[icmp::LEN..end].copy_from_slice(quote);
        prop_assert_eq!(icmp::Message::parse(&out[..end]), Ok((message, icmp::LEN)));
        prop_assert_eq!(checksum::sum(&out[..end]), 0xffff);
    }

    #[test]
    fn tcp_roundtrips_but_for_sack_blocks_that_do_not_fit(header in tcp_header()) {
        let mut out = [0; tcp::LEN_MAX];
        let len = header.emit(&mut out);
        prop_assert_eq!(len, header.header_len());
        let (parsed, parsed_len) = tcp::Header::parse(&out[..len]).unwrap();
        prop_assert_eq!(parsed_len, len);
        let kept = parsed.options.sack.as_slice().len();
        let mut expected = header;
        expected.options.sack.truncate(kept);
        prop_assert_eq!(parsed, expected);
        let blocks = header.options.sack.as_slice().len();
        prop_assert!(kept == blocks || len + 8 > tcp::LEN_MAX || (kept == 0 && len + 12 > tcp::LEN_MAX));
    }

    /// RFC 9293 s3.1 (MUST-68, MUST-69): what is sent has options with lengths, and nothing but options; a list is ended by the header's end, so that there
    /// is no padding behind it.
    #[test]
    fn every_byte_of_the_options_is_an_options(header in tcp_header()) {
        let mut out = [0; tcp::LEN_MAX];
        let len = header.emit(&mut out);
        let mut rest = &out[tcp::LEN..len];
        while let &[kind, ..] = rest {
            prop_assert!(kind != 0, "no end of the list");
            let len = if kind == 1 { 1 } else { usize::from(rest[1]) };
            prop_assert!(len == 1 && kind == 1 || len >= 2 && len <= rest.len());
            rest = &rest[len..];
        }
    }

    #[test]
    fn a_fast_open_option_roundtrips(header in tcp_header(), bytes: [u8; 16], words in 0..=8usize, is_experimental: bool) {
        let cookie = Cookie::new(&bytes[..2 * words]);
        prop_assert_eq!(cookie.is_some(), words >= 2);
        let option = FastOpen { cookie, is_experimental };
        let mut header = header;
        header.options.set_fast_open(Some(option));
        let mut out = [0; tcp::LEN_MAX];
        let len = header.emit(&mut out);
        prop_assert_eq!((len, len % 4), (header.header_len(), 0));
        let (parsed, _) = tcp::Header::parse(&out[..len]).unwrap();
        prop_assert_eq!(parsed.options.fast_open(), Some(option));
        prop_assert!(parsed.options.sack.as_slice().is_empty());
        prop_assert_eq!(parsed, header);
    }

    #[test]
    fn a_segment_of_fixed_layout_says_what_its_headers_say(
        link in (mac(), mac()),
        ip in ipv4_header(),
        mut header in tcp_header(),
        payload in proptest::collection::vec(any::<u8>(), 0..100),
        is_plain in any::<(bool, bool)>(),
        (padding, flip, bit) in any::<(u8, bool, u16)>(),
    ) {
        if is_plain.0 {
            header.options = Options { timestamps: header.options.timestamps, ..Options::default() };
        }
        let mut frame = [0; 14 + 20 + 60];
        let ethertype = ethernet::ETHERTYPE_IPV4;
        let ip_at = ethernet::Header { dst: link.0, src: link.1, vlan: None, ethertype }.emit(&mut frame);
        let tcp_at = ip_at + ipv4::LEN;
        let end = tcp_at + header.emit(&mut frame[tcp_at..]);
        let total_len = (end - ip_at + payload.len()) as u16;
        let ip = match is_plain.1 {
            true => ipv4::Header { protocol: ipv4::PROTOCOL_TCP, more_fragments: false, fragment_offset: 0, total_len, ..ip },
            false => ipv4::Header { total_len: total_len.saturating_add_signed(i16::from(padding.cast_signed())).max(20), ..ip },
        };
        ip.emit(&mut frame[ip_at..], true);
        let mut frame = [&frame[..end], &payload[..], &vec![0; usize::from(padding % 8)]].concat();
        if flip {
            let bit = usize::from(bit) % (8 * end);
            frame[bit / 8] ^= 1 << (bit % 8);
        }
        let segment = fixed::Segment::parse(&frame);
        if is_plain == (true, true) && !flip {
            prop_assert!(segment.is_some());
        }
        if let Some(segment) = segment {
            let (link, ip_at) = ethernet::Header::parse(&frame).unwrap();
            let (ip, ip_len) = ipv4::Header::parse(&frame[ip_at..]).unwrap();
            let packet = &frame[ip_at + ip_len..ip_at + usize::from(ip.total_len)];
            let (header, header_len) = tcp::Header::parse(packet).unwrap();
            prop_assert!(link.ethertype == ethernet::ETHERTYPE_IPV4 && !ip.is_fragment() && ip.protocol == ipv4::PROTOCOL_TCP);
            let hosts = u64::from(ip.src.to_bits()) << 32 | u64::from(ip.dst.to_bits());
            prop_assert_eq!((segment.link_dst(), segment.link_src(), segment.hosts()), (link.dst, link.src, hosts));
            prop_assert_eq!(segment.ports(), u32::from(header.src_port) << 16 | u32::from(header.dst_port));
            prop_assert_eq!((segment.header(), segment.payload()), (header, &packet[header_len..]));
        }
    }

    #[test]
    fn nothing_panics_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..80), offset in 0..16u8) {
        let _ = ethernet::Header::parse(&bytes);
        let _ = arp::Packet::parse(&bytes);
        let _ = ipv4::Header::parse(&bytes);
        let _ = fixed::Segment::parse(&bytes);
        let _ = ipv4::verify_checksum(&bytes);
        let _ = icmp::Message::parse(&bytes);
        let _ = udp::Header::parse(&bytes);
        let _ = tcp::Header::parse(&bytes);
        // A plausible data offset reaches the options far more often than chance does.
        let mut bytes = bytes;
        if let Some(byte) = bytes.get_mut(12) {
            *byte = offset << 4;
        }
        let _ = tcp::Header::parse(&bytes);
        if let Some(byte) = bytes.first_mut() {
            *byte = 3;
        }
        let _ = icmp::Message::parse(&bytes);
    }

    #[test]
    fn a_checksum_in_parts_is_that_of_the_whole(bytes in proptest::collection::vec(any::<u8>(), 0..300), a: usize, b: usize) {
        let (a, b) = (a % (bytes.len() + 1), b % (bytes.len() + 1));
        let (a, b) = (a.min(b), a.max(b));
        let mut parts = Checksum::new();
        parts.add(&bytes[..a]);
        parts.add_sum(checksum::sum(&bytes[a..b]), b - a);
        parts.add(&bytes[b..]);
        // The definition, word by word.
        let mut slow = 0u64;
        for pair in bytes.chunks(2) {
            slow += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
        }
        while slow > 0xffff {
            slow = (slow >> 16) + (slow & 0xffff);
        }
        prop_assert_eq!(parts.folded(), slow as u16);
        prop_assert_eq!(checksum::sum(&bytes), slow as u16);
    }

    #[test]
    fn sequence_numbers_compare_across_the_wrap(start: u32, ahead in 1..0x7fff_ffffusize) {
        let (a, b) = (SeqNumber(start), SeqNumber(start) + ahead);
        prop_assert!(a.lt(b) && b.gt(a) && a.le(b) && b.ge(a));
        prop_assert_eq!(b.since(a), ahead);
        prop_assert_eq!(a.since(b), 0);
        prop_assert_eq!((a.max(b), a.min(b)), (b, a));
        prop_assert!(a.within(a, b) && !b.within(a, b));
    }
}

#[test]
fn rfc_1071_example() {
    assert_eq!(checksum::sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
}

#[test]
fn a_linux_syn_is_emitted_byte_for_byte() {
    let header = tcp::Header {
        src_port: 40000,
        dst_port: 80,
        seq: SeqNumber(0x0102_0304),
        flags: Flags::SYN,
        window: 64240,
        options: Options {
            mss: Some(1460),
            window_scale: Some(7),
            sack_permitted: true,
            timestamps: Some((5, 0)),
            sack: SackBlocks::default(),
        },
        ..tcp::Header::default()
    };
    let mut out = [0; 40];
    assert_eq!(header.emit(&mut out), 40);
    let expected = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 5, 0, 0, 0, 0, 1, 3, 3, 7];
    assert_eq!(out[20..], expected);
    assert_eq!(out[12], 0xa0);
}

#[test]
fn a_cookie_of_another_length_is_none_and_blocks_come_before_one() {
    let parse = |options: &[u8]| {
        let mut segment = [0; tcp::LEN_MAX];
        segment[12] = ((20 + options.len().next_multiple_of(4)) as u8 / 4) << 4;
        segment[20..20 + options.len()].copy_from_slice(options);
        tcp::Header::parse(&segment).unwrap().0.options
    };
    assert_eq!(parse(&[34, 2]).fast_open(), Some(FastOpen::default()));
    assert_eq!(parse(&[254, 4, 0xf9, 0x89]).fast_open(), Some(FastOpen { is_experimental: true, ..FastOpen::default() }));
    assert_eq!(parse(&[34, 6, 1, 2, 3, 4]).fast_open(), Some(FastOpen { cookie: Cookie::new(&[1, 2, 3, 4]), is_experimental: false }));
    // Two bytes, an odd number of them, more than there may be, another experiment.
    for option in [
        &[34, 4, 1, 2][..],
        &[34, 7, 1, 2, 3, 4, 5],
        &[34, 20, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
        &[254, 4, 0xf9, 0x90],
    ] {
        assert_eq!(parse(option), Options::default(), "{option:?}");
    }
    let both = parse(&[34, 2, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
    assert_eq!((both.fast_open(), both.sack.as_slice().len()), (None, 1));
}

#[test]
fn options_with_lengths_that_lead_nowhere_end_the_list() {
    for bytes in [[2, 0, 5, 180], [2, 1, 5, 180], [8, 10, 0, 0], [5, 3, 0, 0]] {
        let mut segment = [0; 24];
        segment[12] = 0x60;
        segment[20..].copy_from_slice(&bytes);
        let (header, len) = tcp::Header::parse(&segment).unwrap();
        assert_eq!((header.options, len), (Options::default(), 24));
    }
}

/// RFC 9293 s3.2 (MUST-64).
#[test]
fn an_option_may_begin_at_any_byte() {
    for before in 0..4 {
        let mut segment = [1; 28];
        segment[12] = 0x70;
        segment[20 + before..][..4].copy_from_slice(&[2, 4, 5, 180]);
        assert_eq!(tcp::Header::parse(&segment).unwrap().0.options.mss, Some(1460), "behind {before} bytes");
    }
}
