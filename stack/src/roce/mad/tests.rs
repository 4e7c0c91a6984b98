use proptest::prelude::*;

use super::private::{IpHeader, PortSpace};
use super::*;
use crate::roce::capture;
use crate::roce::packet::Body;
use crate::roce::packet::datagram::Datagram;
use crate::roce::packet::frame::Frame;
use crate::roce::psn::Psn;

/// The management datagrams of the capture, with whether they come from 10.9.0.2, which connects.
fn mads() -> Vec<(bool, Vec<u8>)> {
    let frames = capture::frames().filter_map(|bytes| Frame::parse(bytes).ok());
    let mads = frames.filter(|frame| matches!(frame.datagram.packet.header.body, Body::Datagram(deth, None) if deth.qkey == GSI_QKEY));
    mads.map(|frame| (frame.datagram.path.addresses.src().to_string() == "10.9.0.2", frame.datagram.packet.payload.to_vec())).collect()
}

#[test]
fn the_capture_decodes_and_encodes_to_the_same_bytes() {
    let attributes: Vec<_> = mads()
        .into_iter()
        .map(|(_, bytes)| {
            let mad = Mad::parse(&bytes).expect("connection management");
            assert_eq!(mad.emit()[..], bytes[..], "{mad:?}");
            mad.message.attribute()
        })
        .collect();
    // REQ, REP, RTU, DREQ, DREP, twice.
    assert_eq!(attributes, [0x10, 0x13, 0x14, 0x15, 0x16, 0x10, 0x13, 0x14, 0x15, 0x16]);
}

#[test]
fn the_first_request_of_the_capture_is_what_it_is() {
    let (from_client, bytes) = mads().swap_remove(0);
    assert!(from_client);
    let Ok(Mad { transaction: 0x0000_0002_a4e2_f9a8, message: Message::Request(request) }) = Mad::parse(&bytes) else { panic!() };
    assert_eq!(request.local_id, 0xa8f9_e2a4);
    assert_eq!(private::of_service_id(request.service_id), Some((PortSpace::Tcp, 7471)));
    assert_eq!(private::service_id(PortSpace::Tcp, 7471), request.service_id);
    assert_eq!(request.ca_guid, 0x5054_00ff_fe00_0002);
    assert_eq!((request.qpn, request.starting_psn), (0x11, Psn::new(0xe7_8879)));
    assert_eq!((request.responder_resources, request.initiator_depth), (0, 0));
    assert_eq!((request.remote_response_timeout, request.local_response_timeout, request.cm_retries), (20, 20, 15));
    assert_eq!((request.retry_count, request.rnr_retry_count), (7, 7));
    assert_eq!((request.path_mtu, request.primary.ack_timeout, request.primary.hop_limit), (3, 19, 64));
    assert_eq!((request.flow_control, request.srq, request.transport), (true, false, 0));
    assert_eq!(request.primary.local_gid[10..], [0xff, 0xff, 10, 9, 0, 2]);
    assert_eq!(request.alternate, PathRecord::default());

    let header = IpHeader::parse(&request.private_data).expect("RDMA-CM's header");
    assert_eq!(header, IpHeader { src: "10.9.0.2:47624".parse().unwrap(), dst: "10.9.0.1".parse().unwrap() });
    assert_eq!(header.emit()[..], request.private_data[..private::HEADER_LEN]);
    assert_eq!(request.private_data[private::HEADER_LEN..][..4], [1, 2, 1, 0x80], "rsockets' version, flags and 384 credits");
}

#[test]
fn the_first_reply_of_the_capture_is_what_it_is() {
    let (_, bytes) = mads().swap_remove(1);
    let Ok(Mad { transaction: 0x0000_0002_a4e2_f9a8, message: Message::Reply(reply) }) = Mad::parse(&bytes) else { panic!() };
    assert_eq!((reply.local_id, reply.remote_id), (0xaeea_1863, 0xa8f9_e2a4));
    assert_eq!((reply.qpn, reply.starting_psn), (0x11, Psn::new(0x58_bd71)));
    assert_eq!((reply.ack_delay, reply.failover, reply.flow_control, reply.rnr_retry_count, reply.srq), (15, 0, true, 7, false));
    assert_eq!(reply.private_data[..4], [1, 2, 1, 0x80], "no header of RDMA-CM in a reply");
}

/// Each says which number it wants the other's first packet to have: "starting PSN" of a request and a reply.
#[test]
fn the_captures_first_packets_have_the_numbers_that_their_receivers_asked_for() {
    let asked = |at: usize| match Mad::parse(&mads().swap_remove(at).1).map(|mad| mad.message) {
        Ok(Message::Request(request)) => request.starting_psn,
        Ok(Message::Reply(reply)) => reply.starting_psn,
        other => panic!("{other:?}"),
    };
    let first_from = |host: &str| {
        let datagrams = capture::frames().filter_map(|bytes| Frame::parse(bytes).ok()).map(|frame| frame.datagram);
        let sent = |datagram: &Datagram<'_>| {
            let header = datagram.packet.header;
            header.dest_qp != 1 && !header.body.is_response() && datagram.path.addresses.src().to_string() == host
        };
        datagrams.into_iter().find(sent).map(|datagram| datagram.packet.header.psn)
    };
    assert_eq!([first_from("10.9.0.2"), first_from("10.9.0.1")], [Some(asked(1)), Some(asked(0))]);
}

#[test]
fn other_management_is_refused() {
    let good = mads().swap_remove(0).1;
    for (at, byte) in [(0, 2), (1, 3), (2, 1), (3, 1), (17, 0x19)] {
        let mut bytes = good.clone();
        bytes[at] = byte;
        assert_eq!(Mad::parse(&bytes), Err(ParseError::Malformed), "byte {at}");
    }
    assert_eq!(Mad::parse(&good[..255]), Err(ParseError::Truncated));
}

proptest! {
    /// What is parsed is told again in full: parsing what was emitted gives the same, whatever was reserved.
    #[test]
    fn messages_roundtrip(attribute in 0x10..0x19u16, mut bytes in proptest::collection::vec(any::<u8>(), LEN)) {
        bytes[..4].copy_from_slice(&[BASE_VERSION, CLASS_CM, CLASS_VERSION, METHOD_SEND]);
        bytes[16..18].copy_from_slice(&attribute.to_be_bytes());
        if let Ok(mad) = Mad::parse(&bytes) {
            prop_assert_eq!(mad.message.attribute(), attribute);
            let emitted = mad.emit();
            prop_assert_eq!(Mad::parse(&emitted), Ok(mad));
            prop_assert_eq!(&emitted[164..], &bytes[164..], "private data of all messages");
        } else {
            prop_assert!(matches!(attribute, 0x12 | 0x18), "only these have fields that can be wrong");
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..LEN + 10)) {
        let _ = Mad::parse(&bytes);
        let _ = IpHeader::parse(&bytes);
    }

    #[test]
    fn addresses_roundtrip(v6: bool, src: [u8; 16], dst: [u8; 16], port: u16) {
        let address = |octets: [u8; 16]| -> std::net::IpAddr {
            let v4 = [octets[0], octets[1], octets[2], octets[3]];
            if v6 { octets.into() } else { v4.into() }
        };
        let header = IpHeader { src: (address(src), port).into(), dst: address(dst) };
        prop_assert_eq!(IpHeader::parse(&header.emit()), Ok(header));
    }
}
