use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr};

use proptest::prelude::*;

use super::*;
use crate::device::Protocol;
use crate::time::Instant;

const LIMITS: Limits = Limits { frame_len: 9018, frames: 8, of_address: 4, patience: Duration::from_millis(100) };

fn at(ms: u64) -> Instant {
    Instant::from_nanos(ms * 1_000_000)
}

fn source(host: u8, qp: u32) -> Source {
    Source { address: IpAddr::V4(Ipv4Addr::new(10, 9, 0, host)), qp }
}

/// The datagrams of a frame.
fn datagrams(number: u16, frame: &[u8], max: usize) -> Vec<Vec<u8>> {
    let datagram = |header: Header| {
        let Piece { at, len } = header.piece();
        [&header.emit(), &frame[at..at + len]].concat()
    };
    pieces(number, frame.len(), max).unwrap().map(datagram).collect()
}

fn add(to: &mut Reassembly, now: Instant, from: Source, datagram: &[u8]) -> Option<Vec<u8>> {
    let (header, bytes) = Header::parse(datagram).unwrap();
    to.add(now, from, header, bytes).map(<[u8]>::to_vec)
}

#[test]
fn a_header_is_eight_bytes_and_another_version_or_flag_is_refused() {
    let header = Header { frame: 0x1234, frame_len: 1514, index: 1, count: 2 };
    let bytes = header.emit();
    assert_eq!(bytes, [1, 0, 0x12, 0x34, 0x05, 0xea, 1, 2]);
    assert_eq!(header.piece(), Piece { at: 757, len: 757 });
    let with = |at: usize, value: u8| {
        let mut datagram = [&bytes[..], &[7; 757]].concat();
        datagram[at] = value;
        Header::parse(&datagram).map(|(header, _)| header)
    };
    assert_eq!(with(0, 1), Ok(header));
    assert_eq!(with(0, 2), Err(HeaderError::Version(2)));
    assert_eq!(with(1, 8), Err(HeaderError::Flags(8)));
    assert_eq!(with(7, 0), Err(HeaderError::Pieces { index: 1, count: 0, len: 1514 }));
    assert_eq!(with(7, 65), Err(HeaderError::Pieces { index: 1, count: 65, len: 1514 }));
    assert_eq!(with(6, 2), Err(HeaderError::Pieces { index: 2, count: 2, len: 1514 }));
    assert_eq!(with(4, 0x06), Err(HeaderError::Len(757)));
    assert_eq!(Header::parse(&bytes[..7]), Err(HeaderError::Short));
}

#[test]
fn pieces_that_would_be_empty_are_no_frames() {
    // Of 5 bytes in 4 pieces, 2 each, the last would have none.
    let datagram = [&Header { frame: 0, frame_len: 5, index: 0, count: 4 }.emit()[..], &[0; 2]].concat();
    assert!(matches!(Header::parse(&datagram), Err(HeaderError::Pieces { .. })));
    assert!(
        pieces(0, 0, 1024).is_none() && pieces(0, 65_536, 4096).is_none() && pieces(0, 60_000, 256).is_none() && pieces(0, 1, 8).is_none()
    );
}

#[test]
fn a_frame_is_put_together_once_whichever_way_its_pieces_come() {
    let frame: Vec<u8> = (0..3000_u32).map(|n| n as u8).collect();
    let mut reassembly = Reassembly::new(LIMITS);
    let all = datagrams(9, &frame, 1024);
    assert_eq!(all.len(), 3);
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let [first, second, third] = order.map(|at| add(&mut reassembly, self::at(0), source(1, 7), &all[at]));
        assert_eq!((first, second, third), (None, None, Some(frame.clone())));
    }
    assert_eq!((reassembly.waiting(), reassembly.given_up()), (0, 0));
}

#[test]
fn what_has_waited_too_long_is_given_up_and_a_number_that_comes_round_mixes_nothing() {
    let (old, new) = (vec![1; 2000], vec![2; 1500]);
    let mut reassembly = Reassembly::new(LIMITS);
    let (of_old, of_new) = (datagrams(5, &old, 1024), datagrams(5, &new, 1024));
    assert_eq!(add(&mut reassembly, at(0), source(1, 7), &of_old[0]), None);
    assert_eq!(add(&mut reassembly, at(1), source(1, 7), &of_new[1]), None, "another length: another frame");
    assert_eq!(reassembly.given_up(), 1);
    assert_eq!(add(&mut reassembly, at(2), source(1, 7), &of_new[0]), Some(new.clone()));
    assert_eq!(add(&mut reassembly, at(3), source(1, 7), &of_new[0]), None);
    assert_eq!(add(&mut reassembly, at(104), source(1, 7), &of_new[1]), None, "its other piece was given up");
    assert_eq!((reassembly.waiting(), reassembly.given_up()), (1, 2));
}

#[test]
fn one_address_takes_no_room_from_another() {
    let (frame, mut reassembly) = (vec![3; 2000], Reassembly::new(LIMITS));
    let [first, second] = <[_; 2]>::try_from(datagrams(1, &frame, 1024)).unwrap();
    assert_eq!(add(&mut reassembly, at(0), source(1, 7), &first), None);
    // Of a liar with a thousand queue pairs.
    for qp in 0..1000 {
        assert_eq!(add(&mut reassembly, at(1), source(2, qp), &first), None);
        assert!(reassembly.waiting() <= 1 + LIMITS.of_address);
    }
    assert_eq!(add(&mut reassembly, at(2), source(1, 7), &second), Some(frame));
}

#[test]
fn a_frame_that_is_too_long_is_never_begun() {
    let (frame, mut reassembly) = (vec![3; 9019], Reassembly::new(LIMITS));
    for datagram in datagrams(1, &frame, 1024) {
        assert_eq!(add(&mut reassembly, at(0), source(1, 7), &datagram), None);
    }
    assert_eq!((reassembly.waiting(), reassembly.given_up()), (0, 9));
}

proptest! {
    #[test]
    fn any_bytes_are_a_header_that_means_something_or_are_refused(datagram in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok((header, bytes)) = Header::parse(&datagram) {
            let Piece { at, len } = header.piece();
            prop_assert!(len > 0 && len == bytes.len() && at + len <= usize::from(header.frame_len));
            prop_assert_eq!(&header.emit()[..], &datagram[..HEADER_LEN]);
        }
    }

    #[test]
    fn a_frame_comes_out_as_it_went_in(len in 1_usize..9018, max in 200_usize..4096, seed in any::<u64>(), drop_one in any::<bool>()) {
        let frame: Vec<u8> = (0..len).map(|n| (n as u64 ^ seed) as u8).collect();
        let mut all = datagrams(seed as u16, &frame, max);
        prop_assert!(all.iter().all(|datagram| datagram.len() <= max && datagram.len() > HEADER_LEN));
        // In some order, and one of them twice.
        let count = all.len();
        (0..count).for_each(|n| all.swap(n, (seed as usize).wrapping_mul(n + 1) % count));
        let lost = if drop_one { Some(all.remove(seed as usize % count)) } else { None };
        all.insert(0, all.first().or(lost.as_ref()).unwrap().clone());
        let mut reassembly = Reassembly::new(LIMITS);
        let out: Vec<_> = all.iter().filter_map(|datagram| add(&mut reassembly, at(0), source(1, 1), datagram)).collect();
        if lost.is_none() {
            prop_assert!(out.first() == Some(&frame) && out.iter().all(|frame| frame.len() == len));
        } else if count > 1 {
            prop_assert!(out.is_empty(), "a piece was lost");
        }
    }

    /// A liar's headers, all well-formed, from a few addresses: memory stays in its bounds, and nothing panics.
    #[test]
    fn what_waits_is_bounded(sent in proptest::collection::vec((0_u8..4, 0_u32..3, 0_u16..4, 2_usize..9018, 0_u8..64, 0_u64..300), 0..400)) {
        let mut reassembly = Reassembly::new(LIMITS);
        let mut now = 0;
        for (host, qp, number, len, index, pause) in sent {
            now += pause / 20;
            let all: Vec<_> = pieces(number, len, 200).into_iter().flatten().collect();
            let Some(header) = all.get(usize::from(index)) else { continue };
            let bytes = vec![host; header.piece().len];
            let _ = reassembly.add(at(now), source(host, qp), *header, &bytes);
            prop_assert!(reassembly.waiting() <= LIMITS.frames);
            for host in 0..4 {
                prop_assert!(reassembly.waiting.iter().filter(|partial| partial.source.address == source(host, 0).address).count() <= LIMITS.of_address);
            }
            prop_assert!(reassembly.waiting.len() + reassembly.spare.len() <= LIMITS.frames + 1);
        }
    }
}

/// An Ethernet header, an IPv4 one of that protocol at that offset (in units of 8 bytes), and ports 1000 and 80.
fn frame(protocol: u8, offset: u8) -> Vec<u8> {
    let ethernet = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    let ip = [0x45, 0, 0, 28, 0, 0, 0, offset, 64, protocol, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
    [&ethernet[..], &ip, &[3, 232, 0, 80, 0, 8, 0, 0]].concat()
}

#[test]
fn a_frame_says_between_whom_it_goes() {
    let [src, dst] = ["10.9.0.1:1000", "10.9.0.2:80"].map(|text| text.parse::<std::net::SocketAddr>().unwrap());
    for (number, protocol) in [(6, Protocol::Tcp), (17, Protocol::Udp)] {
        assert_eq!(Ends::of(&frame(number, 0)), Some(Ends::Flow { protocol, src, dst }));
        assert_eq!(Ends::of(&frame(number, 0)[..37]), None, "it is cut off");
    }
    let hosts = |is_fragment| Some(Ends::Hosts { src: src.ip(), dst: dst.ip(), is_fragment });
    assert_eq!([Ends::of(&frame(17, 5)), Ends::of(&frame(1, 0))], [hosts(true), hosts(false)]);
    let mut arp = frame(6, 0);
    arp[13] = 6;
    assert_eq!(Ends::of(&arp), None);
}

#[test]
fn a_fragment_of_ipv6_has_its_ports_behind_its_own_header() {
    let of = |next: u8, rest: &[u8]| {
        let mut packet = vec![0; 54];
        (packet[12], packet[13], packet[14], packet[20], packet[37], packet[53]) = (0x86, 0xdd, 0x60, next, 1, 2);
        packet.extend_from_slice(rest);
        Ends::of(&packet)
    };
    let flow = of(17, &[3, 232, 0, 80, 0, 8, 0, 0]).unwrap();
    assert!(matches!(flow, Ends::Flow { protocol: Protocol::Udp, .. }) && flow.dst() == "::2".parse::<IpAddr>().unwrap());
    assert_eq!(of(44, &[17, 0, 0, 1, 0, 0, 0, 0, 3, 232, 0, 80, 0, 8, 0, 0]), Some(flow));
    assert!(matches!(of(44, &[17, 0, 0, 9, 0, 0, 0, 0, 3, 232, 0, 80]), Some(Ends::Hosts { is_fragment: true, .. })));
}
