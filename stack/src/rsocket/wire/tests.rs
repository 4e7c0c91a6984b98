//! Codecs, held against the capture of librdmacm's own, and against themselves.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::roce::capture;
use crate::roce::mad::private::HEADER_LEN;
use crate::roce::mad::{Mad, Message as Management};
use crate::roce::packet::Body;
use crate::roce::packet::datagram::Datagram;
use crate::roce::packet::frame::Frame;

fn datagrams() -> impl Iterator<Item = Datagram<'static>> {
    capture::frames().filter_map(|bytes| Frame::parse(bytes).ok()).map(|frame| frame.datagram)
}

/// Private data of all requests and replies: where rsockets' begin.
fn private_data() -> Vec<Vec<u8>> {
    let mads = datagrams().filter(|d| d.packet.header.dest_qp == 1).filter_map(|d| Mad::parse(d.packet.payload).ok());
    mads.filter_map(|mad| match mad.message {
        Management::Request(request) => Some(request.private_data[HEADER_LEN..].to_vec()),
        Management::Reply(reply) => Some(reply.private_data.to_vec()),
        _ => None,
    })
    .collect()
}

#[test]
fn the_capture_s_private_data_decode_and_encode_to_the_same_bytes() {
    let all = private_data();
    assert_eq!(all.len(), 4);
    for bytes in &all {
        let data = ConnectionData::parse(bytes).unwrap();
        assert_eq!(data.emit()[..], bytes[..ConnectionData::LEN], "{data:?}");
        assert_eq!((data.order, data.has_iomap, data.credits, data.target_table.len), (ByteOrder::Little, true, 384, 2));
        assert!(bytes[ConnectionData::LEN..].iter().all(|byte| *byte == 0), "padding");
    }
    let first = ConnectionData::parse(&all[0]).unwrap();
    assert_eq!(first.target_table, TargetSge { address: 0x557d_215b_2000, key: 0x30f, len: 2 });
    assert_eq!(first.data_buffer, TargetSge { address: 0x7f7d_ca26_3000, key: 0x481, len: 0x1_0000 });
    assert!(ConnectionData::parse(&all[2]).unwrap().iomap_size > 0, "riostream has mappings");
}

#[test]
fn the_capture_s_messages_are_what_they_are() {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    for datagram in datagrams() {
        if let Body::WriteOnly(_, Some(word)) | Body::WriteLast(Some(word)) = datagram.packet.header.body {
            assert_eq!(Message::parse(word).word(), word);
            *counts.entry(word >> 29).or_default() += 1;
        }
    }
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [0, 4, 6, 7], "data, credits, mappings, the end: {counts:?}");
    assert_eq!(Message::parse(0x10), Message::Data(16));
    assert_eq!(Message::parse(0x8000_0180), Message::Sgl(384));
    assert_eq!(Message::parse(0xc000_0000), Message::IomapSgl(0));
    assert_eq!(Message::parse(0xe000_0000), Message::Control(Control::Disconnect));
    assert_eq!(Message::parse(0xe000_0002), Message::Control(Control::Shutdown));
}

#[test]
fn the_capture_s_tables_decode_and_encode_to_the_same_bytes() {
    let peers: Vec<_> = private_data().iter().map(|bytes| ConnectionData::parse(bytes).unwrap()).collect();
    let (mut targets, mut mappings) = (0, 0);
    for datagram in datagrams() {
        let Body::WriteOnly(reth, Some(word)) = datagram.packet.header.body else { continue };
        let payload = datagram.packet.payload;
        match (Message::parse(word), payload.len()) {
            (Message::Sgl(_), TargetSge::LEN) => {
                let bytes: [u8; TargetSge::LEN] = payload.try_into().unwrap();
                let sge = TargetSge::parse(&bytes, ByteOrder::Little);
                assert_eq!(sge.emit(ByteOrder::Little), bytes);
                // One half of the sender's buffer, into one of the two entries of the receiver's table.
                let is_half = |p: &ConnectionData| sge.key == p.data_buffer.key && sge.len == p.data_buffer.len;
                assert!(peers.iter().any(is_half), "{sge:?}");
                let at = |p: &ConnectionData| reth.address.wrapping_sub(p.target_table.address);
                assert!(peers.iter().any(|p| reth.rkey == p.target_table.key && matches!(at(p), 0 | 16)));
                targets += 1;
            }
            (Message::IomapSgl(index), IomapEntry::LEN) => {
                let bytes: [u8; IomapEntry::LEN] = payload.try_into().unwrap();
                let entry = IomapEntry::parse(&bytes, ByteOrder::Little);
                assert_eq!(entry.emit(ByteOrder::Little), bytes);
                let at = |p: &ConnectionData| p.target_table.address + 32 + 24 * u64::from(index);
                assert!(peers.iter().any(|p| reth.rkey == p.target_table.key && reth.address == at(p)));
                mappings += 1;
            }
            _ => {}
        }
    }
    assert!(targets >= 4 && mappings >= 2, "{targets} targets, {mappings} mappings");
}

#[test]
fn a_big_endian_reader_gets_big_endian_numbers() {
    let entry = IomapEntry { offset: 1, buffer: TargetSge { address: 2, key: 3, len: 4 } };
    let bytes = entry.emit(ByteOrder::Big);
    assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4]);
    assert_eq!(IomapEntry::parse(&bytes, ByteOrder::Big), entry);
}

#[test]
fn private_data_that_make_no_sense_are_refused() {
    let good = private_data().swap_remove(0);
    assert_eq!(ConnectionData::parse(&good[..39]), Err(ConnectionDataError::Malformed));
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        ConnectionData::parse(&bytes)
    };
    assert_eq!(with(0, 2), Err(ConnectionDataError::Version));
    assert_eq!(with(23, 0), Err(ConnectionDataError::Malformed), "a table without entries");
}

#[test]
fn counts_of_mappings_fit_into_eight_bits() {
    for (count, scaled, back) in
        [(0, 0, 0), (1, 1, 1), (128, 128, 128), (129, 128, 128), (256, 129, 256), (1000, 131, 768), (u16::MAX, 255, 32_512)]
    {
        assert_eq!((to_scale(count), from_scale(scaled)), (scaled, back), "{count}");
    }
}

#[test]
fn a_mapping_covers_its_own_offsets() {
    let entry = |offset, len| IomapEntry { offset, buffer: TargetSge { address: 0, key: 0, len } };
    assert_eq!(entry(100, 10).covers(99), None);
    assert_eq!(entry(100, 10).covers(100), Some(10));
    assert_eq!(entry(100, 10).covers(109), Some(1));
    assert_eq!(entry(100, 10).covers(110), None);
    assert_eq!(entry(u64::MAX - 1, 10).covers(u64::MAX), Some(9));
    assert_eq!(entry(0, 0).covers(0), None, "an entry that nobody wrote");
}

#[test]
fn datagrams_headers_are_what_the_manual_of_the_wire_says() {
    let v4 = DatagramHeader { source: "10.9.0.2:4660".parse().unwrap() };
    assert_eq!(v4.emit()[..], [4, 8, 0x12, 0x34, 10, 9, 0, 2]);
    let service = ServiceHeader { op: ServiceOp::Control, qpn: 0x11, address: "10.9.0.2".parse().unwrap() };
    assert_eq!(service.emit()[..], [0x55, 0x55, 0x55, 0x55, 4, 7, 16, 0, 0, 0, 0, 0x11, 10, 9, 0, 2]);
    let v6 = ServiceHeader { op: ServiceOp::Data, qpn: 0x11, address: "fd00::2".parse().unwrap() };
    assert_eq!(v6.emit().len(), ServiceHeader::LEN_V6);
}

proptest! {
    #[test]
    fn what_is_written_is_read(word: u32, offset: u64, address: u64, key: u32, len: u32, port: u16, ip: std::net::IpAddr, big: bool) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let entry = IomapEntry { offset, buffer: TargetSge { address, key, len } };
        prop_assert_eq!(IomapEntry::parse(&entry.emit(order), order), entry);
        let message = Message::parse(word);
        prop_assert_eq!(Message::parse(message.word()), message);
        let header = DatagramHeader { source: (ip, port).into() };
        let bytes = header.emit();
        prop_assert_eq!(DatagramHeader::parse(&bytes), Some((header, bytes.len())));
        let service = ServiceHeader { op: ServiceOp::Data, qpn: word & 0xff_ffff, address: ip };
        let bytes = service.emit();
        prop_assert_eq!(ServiceHeader::parse(&bytes), Some((service, bytes.len())));
    }

    #[test]
    fn no_bytes_are_too_strange(bytes: Vec<u8>) {
        let _ = (ConnectionData::parse(&bytes), DatagramHeader::parse(&bytes), ServiceHeader::parse(&bytes));
    }
}
