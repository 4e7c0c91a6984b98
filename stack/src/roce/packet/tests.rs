use std::net::Ipv4Addr;

use proptest::prelude::*;

use super::datagram::{Addresses, Datagram, DatagramError, OVERHEAD_MAX, Path};
use super::frame::Frame;
use super::*;
use crate::roce::capture;

fn tail() -> impl Strategy<Value = Tail> {
    prop_oneof![Just(Tail::None), any::<u32>().prop_map(Tail::Immediate), any::<u32>().prop_map(Tail::Invalidate)]
}

fn reth() -> impl Strategy<Value = Reth> {
    any::<(u64, u32, u32)>().prop_map(|(address, rkey, len)| Reth { address, rkey, len })
}

fn aeth() -> impl Strategy<Value = Aeth> {
    let codes =
        [NakCode::SequenceError, NakCode::InvalidRequest, NakCode::RemoteAccess, NakCode::RemoteOperational, NakCode::InvalidRdRequest];
    let syndrome = prop_oneof![
        (0..32u8).prop_map(Syndrome::Ack),
        (0..32u8).prop_map(Syndrome::RnrNak),
        proptest::sample::select(codes.to_vec()).prop_map(Syndrome::Nak),
    ];
    (syndrome, 0..1u32 << 24).prop_map(|(syndrome, msn)| Aeth { syndrome, msn })
}

fn atomic() -> impl Strategy<Value = AtomicEth> {
    any::<(u64, u32, u64, u64)>().prop_map(|(address, rkey, swap_add, compare)| AtomicEth { address, rkey, swap_add, compare })
}

fn body() -> impl Strategy<Value = Body> {
    let deth = (any::<u32>(), 0..1u32 << 24).prop_map(|(qkey, src_qp)| Deth { qkey, src_qp });
    let plain = [Body::SendFirst, Body::SendMiddle, Body::WriteMiddle, Body::ReadResponseMiddle, Body::CongestionNotification];
    prop_oneof![
        proptest::sample::select(plain.to_vec()),
        tail().prop_map(Body::SendLast),
        tail().prop_map(Body::SendOnly),
        reth().prop_map(Body::WriteFirst),
        any::<Option<u32>>().prop_map(Body::WriteLast),
        (reth(), any::<Option<u32>>()).prop_map(|(reth, immediate)| Body::WriteOnly(reth, immediate)),
        reth().prop_map(Body::ReadRequest),
        aeth().prop_map(Body::ReadResponseFirst),
        aeth().prop_map(Body::ReadResponseLast),
        aeth().prop_map(Body::ReadResponseOnly),
        aeth().prop_map(Body::Acknowledge),
        (aeth(), any::<u64>()).prop_map(|(aeth, original)| Body::AtomicAcknowledge(aeth, original)),
        atomic().prop_map(Body::CompareSwap),
        atomic().prop_map(Body::FetchAdd),
        (deth, any::<Option<u32>>()).prop_map(|(deth, immediate)| Body::Datagram(deth, immediate)),
    ]
}

fn header() -> impl Strategy<Value = Header> {
    (body(), any::<[bool; 6]>(), any::<u16>(), 0..1u32 << 24, 0..1u32 << 24).prop_map(|(body, flags, pkey, dest_qp, psn)| {
        let [unreliable, solicited, migrated, fecn, becn, ack_request] = flags;
        let unreliable = unreliable && body.is_of_uc();
        Header { body, unreliable, solicited, migrated, pkey, fecn, becn, dest_qp, ack_request, psn: Psn::new(psn) }
    })
}

fn path() -> impl Strategy<Value = Path> {
    let v4 = any::<([u8; 4], [u8; 4])>().prop_map(|(src, dst)| (Addresses::V4 { src: src.into(), dst: dst.into() }, 0));
    let v6 = (any::<([u8; 16], [u8; 16])>(), 0..1u32 << 20)
        .prop_map(|((src, dst), label)| (Addresses::V6 { src: src.into(), dst: dst.into() }, label));
    (prop_oneof![v4, v6], any::<(u8, u8, u16)>()).prop_map(|((addresses, flow_label), (traffic_class, hop_limit, src_port))| Path {
        addresses,
        traffic_class,
        hop_limit,
        flow_label,
        src_port,
    })
}

fn emitted(path: &Path, header: &Header, payload: &[u8]) -> Vec<u8> {
    let payload = if header.body.has_payload() { payload } else { &[] };
    let datagram = Datagram { path: *path, id: 0, packet: Packet { header: *header, payload }, ip_header: &[] };
    let mut out = vec![0xa5; OVERHEAD_MAX + payload.len()];
    let len = datagram.emit(&mut out);
    out.truncate(len);
    out
}

proptest! {
    #[test]
    fn packets_roundtrip(path in path(), header in header(), payload in proptest::collection::vec(any::<u8>(), 0..600)) {
        let bytes = emitted(&path, &header, &payload);
        let parsed = Datagram::parse(&bytes).expect("what was emitted parses");
        prop_assert_eq!(parsed.path, path);
        prop_assert_eq!(parsed.packet.header, header);
        prop_assert_eq!(parsed.packet.payload, if header.body.has_payload() { &payload[..] } else { &[] });
        let mut again = vec![0; bytes.len() + OVERHEAD_MAX];
        let len = parsed.emit(&mut again);
        prop_assert_eq!(&again[..len], &bytes[..]);
        prop_assert!(Datagram::parse(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn what_routers_change_leaves_the_crc_alone(
        mut path in path(),
        header in header(),
        traffic_class: u8,
        hop_limit: u8,
        label in 0..1u32 << 20,
    ) {
        let crc = |bytes: &[u8]| bytes[bytes.len() - 4..].to_vec();
        let before = emitted(&path, &header, b"payload");
        (path.traffic_class, path.hop_limit, path.flow_label) = (traffic_class, hop_limit, label);
        let marked = Header { fecn: !header.fecn, becn: !header.becn, ..header };
        prop_assert_eq!(crc(&before), crc(&emitted(&path, &marked, b"payload")));
    }

    #[test]
    fn one_flipped_bit_is_found_or_may_change_on_the_way(path in path(), header in header(), bit in any::<proptest::sample::Index>()) {
        let mut bytes = emitted(&path, &header, b"payload");
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        if let Ok(parsed) = Datagram::parse(&bytes) {
            // Of IPv4 the header checksum finds the rest.
            let v6 = matches!(path.addresses, Addresses::V6 { .. });
            prop_assert!(v6 || bit / 8 >= 20);
            let same = Header { fecn: header.fecn, becn: header.becn, ..parsed.packet.header };
            prop_assert_eq!(same, header);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Packet::parse(&bytes);
        let _ = Datagram::parse(&bytes);
        let _ = Frame::parse(&bytes);
    }

    #[test]
    fn mutated_packets_never_panic(
        path in path(),
        header in header(),
        at in any::<proptest::sample::Index>(),
        byte: u8,
        cut in any::<proptest::sample::Index>(),
    ) {
        let mut bytes = emitted(&path, &header, b"some payload");
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let ip_len = if bytes[0] >> 4 == 4 { 20 } else { 40 };
        let _ = Packet::parse(bytes.get(ip_len + 8..).unwrap_or(&[]));
        let _ = Datagram::parse(&bytes[..cut.index(bytes.len())]);
    }
}

#[test]
fn the_capture_decodes_and_encodes_to_the_same_bytes() {
    let mut opcodes = std::collections::BTreeMap::new();
    let mut others = 0;
    for bytes in capture::frames() {
        let frame = match Frame::parse(bytes) {
            Ok(frame) => frame,
            Err(error) => {
                assert_eq!(error, DatagramError::Other, "RoCE frames decode, and every CRC checks");
                others += 1;
                continue;
            }
        };
        *opcodes.entry(frame.datagram.packet.header.body.opcode()).or_insert(0) += 1;
        let mut again = vec![0; bytes.len() + OVERHEAD_MAX];
        let len = frame.emit(&mut again);
        assert_eq!(&again[..len], bytes);
    }
    assert_eq!(others, 24, "ARP, ICMP and ICMPv6, as tshark counts them");
    // As tshark counts them: WRITE first, middle, last, last with immediate, only with immediate, acknowledgments, UD.
    assert_eq!(
        opcodes.into_iter().collect::<Vec<_>>(),
        [(0x06, 48), (0x07, 24), (0x08, 24), (0x09, 24), (0x0b, 13), (0x11, 60), (0x64, 10)]
    );
}

#[test]
fn the_first_write_of_the_capture_is_what_it_is() {
    let bytes = capture::frames().nth(22).expect("there are 227");
    let frame = Frame::parse(bytes).expect("it is a WRITE");
    let datagram = frame.datagram;
    assert_eq!(datagram.path.addresses, Addresses::V4 { src: Ipv4Addr::new(10, 9, 0, 2), dst: Ipv4Addr::new(10, 9, 0, 1) });
    assert_eq!(datagram.path.hop_limit, 64);
    let header = datagram.packet.header;
    let Body::WriteOnly(reth, Some(immediate)) = header.body else { panic!("{header:?}") };
    assert_eq!((reth.len, immediate), (16, 16), "16 bytes of data, as the immediate says (rdma.md s1.11)");
    assert_eq!((header.psn, header.dest_qp, header.ack_request, header.pkey), (Psn::new(5_815_665), 0x11, true, 0xffff));
    assert_eq!(datagram.packet.payload.len(), 16);
}

/// IBTA spec, volume 1, table 38: code and form are RC's, the three bits before it say 1.
#[test]
fn unreliable_connections_have_opcodes_of_their_own() {
    let reth = Reth { address: 1, rkey: 2, len: 3 };
    let of_uc = [
        Body::SendFirst,
        Body::SendMiddle,
        Body::SendLast(Tail::None),
        Body::SendLast(Tail::Immediate(4)),
        Body::SendOnly(Tail::None),
        Body::SendOnly(Tail::Immediate(4)),
        Body::WriteFirst(reth),
        Body::WriteMiddle,
        Body::WriteLast(None),
        Body::WriteLast(Some(4)),
        Body::WriteOnly(reth, None),
        Body::WriteOnly(reth, Some(4)),
    ];
    for (body, opcode) in of_uc.into_iter().zip(0x20..) {
        let header = Header { unreliable: true, ..Header::new(body, 7, Psn::new(9)) };
        let mut out = [0; HEADERS_MAX];
        let len = header.emit(0, &mut out);
        assert_eq!((header.opcode(), out[0]), (opcode, opcode));
        assert_eq!(Packet::parse(&out[..len]).map(|packet| packet.header), Ok(header));
    }
    for opcode in 0x2c..0x40 {
        let bytes: Vec<u8> = core::iter::once(opcode).chain([0; 43]).collect();
        assert_eq!(Packet::parse(&bytes), Err(ParseError::Malformed), "{opcode:#x}");
    }
}

#[test]
fn what_is_not_as_it_should_be_is_refused() {
    let path = Path::new(Addresses::V4 { src: Ipv4Addr::LOCALHOST, dst: Ipv4Addr::LOCALHOST }, 0);
    let header = Header::new(Body::SendOnly(Tail::None), 7, Psn::new(9));
    let good = emitted(&path, &header, b"12345");
    assert!(Datagram::parse(&good).is_ok());
    let mut long = good.clone();
    long.extend([0; 10]);
    assert!(Datagram::parse(&long).is_ok(), "Ethernet pads short frames");

    let transport = &good[28..good.len() - 4];
    let mut padded = transport.to_vec();
    padded[1] |= 0x30;
    assert_eq!(Packet::parse(&padded).map(|p| p.payload.len()), Ok(5), "three bytes of padding");
    assert_eq!(Packet::parse(&transport[..transport.len() - 1]), Err(ParseError::Malformed), "no multiple of four");
    let mut request = [0; 28];
    Header::new(Body::ReadRequest(Reth::default()), 7, Psn::new(9)).emit(0, &mut request);
    assert!(Packet::parse(&request).is_ok());
    let long = [&request[..], &[0; 4]].concat();
    assert_eq!(Packet::parse(&long), Err(ParseError::Malformed), "a request with payload");
    request[1] = 0x01;
    assert_eq!(Packet::parse(&request), Err(ParseError::Malformed), "another header version");
    request[..2].copy_from_slice(&[0x2c, 0]);
    assert_eq!(Packet::parse(&request), Err(ParseError::Malformed), "unreliable connections have no reads");
}
