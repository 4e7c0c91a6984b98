use super::*;

/// TCP's or UDP's packet of IPv4 or IPv6 without checksums, whose payload is `payload`.
fn packet(v6: bool, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let l4: Vec<u8> = match protocol {
        TCP => vec![0, 5, 0, 7, 0xff, 0xff, 0xff, 0x00, 0, 0, 0, 1, 0x50, 0x80 | 0x10 | 0x08 | 0x01, 2, 0, 0, 0, 0, 0],
        _ => [&[0, 5, 0, 7], &(8 + payload.len() as u16).to_be_bytes()[..], &[0, 0]].concat(),
    };
    let len = (l4.len() + payload.len()) as u16;
    let mut out = vec![2; 12];
    if v6 {
        out.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        out.extend(len.to_be_bytes());
        out.extend([protocol, 64]);
        out.extend([0xfd; 32]);
    } else {
        out.extend([8, 0, 0x45, 0]);
        out.extend((20 + len).to_be_bytes());
        out.extend([0xff, 0xff, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    }
    out.extend(l4);
    out.extend(payload);
    out
}

fn transmit(frame: Vec<u8>, cs_flags: u8) -> Transmit {
    let ethernet = Ethernet { cs_flags, ..Ethernet::with_headers(&[]) };
    Transmit { qpn: 1, wqe_counter: 0, ethernet, frames: vec![frame], segmented: false }
}

fn checks(frame: &[u8]) -> u8 {
    verdict(frame, &Headers::parse(frame).unwrap()).checks
}

#[test]
fn checksums_are_filled_in_where_they_are_asked_for() {
    let payload: Vec<u8> = (0..101).collect();
    for (v6, protocol) in [(false, TCP), (false, UDP), (true, TCP), (true, UDP)] {
        let bare = packet(v6, protocol, &payload);
        let all = &frames(&transmit(bare.clone(), c::ETH_L3_CSUM | c::ETH_L4_CSUM))[0];
        assert_eq!(checks(all), c::CQE_L2_OK | c::CQE_L3_OK | c::CQE_L4_OK);
        // An independent judge.
        assert_eq!(crate::checksum::verify(all), ringway_stack::device::ChecksumVerdict::Good);
        assert_eq!(frames(&transmit(bare.clone(), 0)), std::slice::from_ref(&bare), "nothing was asked for");
        let half = &frames(&transmit(bare, c::ETH_L3_CSUM))[0];
        let l4_ok = protocol == UDP && !v6;
        assert_eq!(checks(half) & c::CQE_L4_OK != 0, l4_ok, "IPv4's datagrams may have none");
    }
    assert_eq!(checks(&packet(false, TCP, &payload)), c::CQE_L2_OK);
}

#[test]
fn completions_say_what_a_frame_is() {
    let facts = |frame: &[u8]| verdict(frame, &Headers::parse(frame).unwrap());
    let tcp = facts(&packet(false, TCP, &[]));
    assert_eq!((tcp.l3_type, tcp.l4_type), (c::CQE_L3_IPV4, 3));
    let tcp = facts(&packet(true, TCP, &[1]));
    assert_eq!((tcp.l3_type, tcp.l4_type, tcp.checks & c::CQE_L3_OK), (c::CQE_L3_IPV6, 4, c::CQE_L3_OK));
    assert_eq!(facts(&packet(false, UDP, &[1])).l4_type, 2);
    let mut syn = packet(false, TCP, &[]);
    syn[14 + 20 + 13] = 2;
    assert_eq!(facts(&syn).l4_type, 1);
    let other = facts(&[2; 60]);
    assert_eq!((other.checks, other.l3_type, other.l4_type), (c::CQE_L2_OK, 0, 0));
    let mut fragment = packet(false, UDP, &[1]);
    fragment[21] = 1;
    assert_eq!((facts(&fragment).l4_type, checks(&fragment) & c::CQE_L4_OK), (0, 0));
    assert_eq!(facts(&[&[0; 14][..], &[0x12, 0x34, 0x56]].concat()).checksum, 0x6834);
}

#[test]
fn a_large_send_is_cut_and_each_piece_is_a_packet_of_its_own() {
    let payload: Vec<u8> = (0..250).collect();
    for v6 in [false, true] {
        let bare = packet(v6, TCP, &payload);
        let header = bare.len() - payload.len();
        let ethernet = Ethernet { cs_flags: c::ETH_L3_CSUM | c::ETH_L4_CSUM, mss: 100, ..Ethernet::with_headers(&bare[..header]) };
        let cut = frames(&Transmit { qpn: 1, wqe_counter: 0, ethernet, frames: vec![bare], segmented: true });
        assert_eq!(cut.iter().map(Vec::len).collect::<Vec<_>>(), [header + 100, header + 100, header + 50]);
        assert_eq!(cut.iter().flat_map(|frame| frame[header..].to_vec()).collect::<Vec<_>>(), payload);
        for (index, frame) in cut.iter().enumerate() {
            assert_eq!(crate::checksum::verify(frame), ringway_stack::device::ChecksumVerdict::Good);
            let tcp = header - 20;
            assert_eq!(be32(frame, tcp + 4), Some(0xffff_ff00u32.wrapping_add(100 * index as u32)));
            let flags = [CWR | ACK, ACK, ACK | PSH | FIN][index];
            assert_eq!(frame[tcp + 13], flags);
            assert!(v6 || be16(frame, 18) == Some(0xffffu16.wrapping_add(index as u16)));
        }
    }
}

#[test]
fn tags_are_inserted_and_short_frames_padded() {
    let mut one = transmit(vec![7; 20], 0);
    one.ethernet.header = HeaderField::InsertVlan(0x1234);
    let out = &frames(&one)[0];
    assert_eq!((out.len(), &out[10..18]), (60, &[7, 7, 0x81, 0, 0x12, 0x34, 7, 7][..]));
    assert!(out[24..].iter().all(|byte| *byte == 0));
    // What is no TCP is cut all the same.
    let ethernet = Ethernet { mss: 80, ..Ethernet::with_headers(&[7; 14]) };
    let cut = frames(&Transmit { qpn: 1, wqe_counter: 0, ethernet, frames: vec![vec![7; 14 + 100]], segmented: true });
    assert_eq!(cut.iter().map(Vec::len).collect::<Vec<_>>(), [94, 60]);
}
