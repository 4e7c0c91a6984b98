use super::*;
use crate::checksum;
use crate::dissect::{be16, be32};
use ringway_stack::device::{Moderation, Pacing};

const PSH_FIN_ACK: u8 = 0x19;
const CWR: u8 = 0x80;

fn tcp_head(flags: u8) -> Vec<u8> {
    let tcp = frames::Tcp { seq: u32::MAX - 1000, flags, timestamp: Some(5) };
    frames::tcp(address("10.0.0.1:80"), address("10.0.0.2:9"), tcp, &[])
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 % 251) as u8).collect()
}

#[test]
fn a_long_segment_is_cut_as_the_stack_would_have() {
    let mut device = nic(NicConfig::full()).ring();
    let payload = pattern(3100);
    let offload = TxOffload { checksum: true, tso_mss: Some(1000), ..TxOffload::default() };
    let frames = send(&mut device, &tcp_head(PSH_FIN_ACK | CWR), &payload, offload).unwrap();
    assert_eq!(frames.iter().map(|f| f.len() - 66).collect::<Vec<_>>(), [1000, 1000, 1000, 100]);
    let mut joined = Vec::new();
    for (i, frame) in frames.iter().enumerate() {
        assert_eq!(checksum::verify(frame), ChecksumVerdict::Good);
        assert_eq!(be16(frame, 18), Some(1 + i as u16), "the identification counts up");
        assert_eq!(be32(frame, 38), Some((u32::MAX - 1000).wrapping_add(1000 * i as u32)), "so do sequence numbers, around zero");
        let flags = [0x10 | CWR, 0x10, 0x10, PSH_FIN_ACK][i];
        assert_eq!(frame[47], flags, "segment {i}");
        assert_eq!(frame[54..66], tcp_head(0)[54..66], "the options are repeated");
        joined.extend_from_slice(&frame[66..]);
    }
    assert_eq!(joined, payload);
    assert_eq!(device.outstanding().tx_frames, 1, "one slot for all");
    for left in [3, 2, 1, 0] {
        device.nic().complete();
        device.reap();
        assert_eq!(device.outstanding().tx_frames, usize::from(left > 0), "complete with the last");
    }
    assert_eq!(device.outstanding(), Outstanding::default());
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let offload = TxOffload { checksum: true, tso_mss: Some(1000), ..TxOffload::default() };
    let refused = |config: NicConfig, head: &[u8], offload| send(&mut nic(config).ring(), head, &[1; 3000], offload);
    let unsupported = |sent| matches!(sent, Err(SendError::Unsupported(_)));
    assert!(unsupported(refused(NicConfig { tso_max: None, ..NicConfig::full() }, &tcp_head(0x10), offload)));
    let datagram = frames::udp(address("10.0.0.1:80"), address("10.0.0.2:9"), &[]);
    assert!(unsupported(refused(NicConfig::full(), &datagram, offload)));
    assert!(unsupported(refused(NicConfig::full(), &tcp_head(0x10)[..40], offload)), "half a header");
    assert!(unsupported(refused(NicConfig::full(), &tcp_head(0x10), TxOffload { tso_mss: Some(0), ..offload })));
    let long = TxOffload { tso_mss: Some(1449), ..offload };
    assert_eq!(refused(NicConfig::full(), &tcp_head(0x10), long), Err(SendError::TooLong), "a segment beyond the MTU");
    assert_eq!(refused(NicConfig { tso_max: Some(2000), ..NicConfig::full() }, &tcp_head(0x10), offload), Err(SendError::TooLong));
    assert_eq!(refused(NicConfig::full(), &tcp_head(0x10), TxOffload { tso_mss: None, ..offload }), Err(SendError::TooLong));
}

#[test]
fn tags_are_inserted_if_the_nic_can() {
    let frame = frames::udp(address("10.0.0.1:80"), address("10.0.0.2:9"), &pattern(100));
    let offload = TxOffload { vlan: Some(0x6005), ..TxOffload::default() };
    let sent = send(&mut nic(NicConfig::full()).ring(), &frame, &[], offload).unwrap();
    assert_eq!(sent[0][..], frames::tagged(&frame, 0x6005));
    let mut without = nic(NicConfig::default()).ring();
    assert!(matches!(send(&mut without, &frame, &[], offload), Err(SendError::Unsupported(_))));
    let checksum = TxOffload { checksum: true, ..TxOffload::default() };
    assert!(matches!(send(&mut nic(NicConfig::bare()).ring(), &frame, &[], checksum), Err(SendError::Unsupported(_))));
}

#[test]
fn checksums_inside_a_tunnel_are_the_nics_if_it_can() {
    let right = frames::vxlan(5, &frames::udp(address("10.0.0.1:80"), address("10.0.0.2:9"), b"inner"));
    let mut wrong = right.clone();
    for checksum in [24, 50 + 24, 50 + 40] {
        wrong[checksum..checksum + 2].fill(0xee);
    }
    let offload = TxOffload { checksum: true, ..TxOffload::default() };
    let sent = send(&mut nic(NicConfig::full()).ring(), &wrong, &[], offload).unwrap();
    assert_eq!(sent[0][..], right);
    let plain = send(&mut nic(NicConfig::default()).ring(), &wrong, &[], offload).unwrap();
    assert_eq!(plain[0][50 + 24..50 + 26], [0xee, 0xee], "without, it is payload");
}

#[test]
fn a_dummy_never_reaches_the_wire() {
    let mut device = nic(NicConfig::default()).ring();
    let frame = frames::udp(address("10.0.0.1:80"), address("10.0.0.2:9"), &[]);
    assert!(send(&mut device, &frame, &[], TxOffload { dummy: true, ..TxOffload::default() }).unwrap().is_empty());
    device.reap();
    assert_eq!(device.outstanding(), Outstanding::default());
}

#[test]
fn a_paced_ring_waits_for_its_tokens_and_the_other_does_not() {
    let nic = nic(NicConfig::default());
    let (mut paced, mut free) = (nic.ring(), nic.ring());
    // A byte a microsecond, two frames at once.
    paced.pace(Pacing { rate_bps: 8_000_000, burst_bytes: 2_000, typical_packet_bytes: 1_000 }).unwrap();
    let head = frames::experimental(frames::mac(1), frames::mac(0), &[]);
    let mut sent = 0;
    for device in [&mut paced, &mut free] {
        for _ in 0..4 {
            sent += send(device, &head, &[0; 986], TxOffload::default()).unwrap().len();
        }
    }
    assert_eq!(sent, 2 + 4);
    assert_eq!(nic.next_at(), Some(at(1_000_000)));
    assert!(leaving(&nic, at(999_999)).is_empty());
    assert_eq!(leaving(&nic, at(1_000_000)).len(), 1);
    assert_eq!(nic.next_at(), Some(at(2_000_000)));
    paced.pace(Pacing { rate_bps: 0, burst_bytes: 0, typical_packet_bytes: 0 }).unwrap();
    assert_eq!(leaving(&nic, at(1_000_000)).len(), 1, "the limit was lifted");
    let mut without = super::nic(NicConfig { pacing: false, ..NicConfig::default() }).ring();
    assert!(without.pace(Pacing { rate_bps: 1_000, burst_bytes: 0, typical_packet_bytes: 0 }).is_err());
}

#[test]
fn cut_segments_are_paced_one_by_one() {
    let mut device = nic(NicConfig::full()).ring();
    device.pace(Pacing { rate_bps: 8_000_000, burst_bytes: 1_066, typical_packet_bytes: 0 }).unwrap();
    let offload = TxOffload { checksum: true, tso_mss: Some(1000), ..TxOffload::default() };
    assert_eq!(send(&mut device, &tcp_head(0x10), &pattern(3000), offload).unwrap().len(), 1);
    assert_eq!(device.nic().next_at(), Some(at(1_066_000)));
    assert_eq!(leaving(device.nic(), at(1_066_000)).len(), 1);
    assert_eq!(leaving(device.nic(), at(2_132_000)).len(), 1);
    assert_eq!(device.nic().next_at(), None);
}

#[test]
fn moderation_wakes_by_count_or_by_time() {
    let nic = nic(NicConfig::default());
    let mut device = nic.ring();
    let frame: Rc<[u8]> = frames::experimental(frames::mac(0), frames::mac(1), b"x").into();
    assert_eq!(nic.receive(at(5), &frame).wake_at, Some(at(5)), "without, at once");
    poll(&mut device);
    device.moderate(Moderation { count: 3, period_us: 10 }).unwrap();
    assert_eq!(nic.receive(at(100), &frame).wake_at, None);
    assert!(device.rx_ready(), "whoever polls sees it at once");
    assert_eq!(nic.receive(at(200), &frame).wake_at, None);
    assert_eq!(nic.receive(at(300), &frame).wake_at, Some(at(300)), "the third");
    assert_eq!(poll(&mut device).len(), 3);
    assert_eq!(nic.receive(at(1_000), &frame).wake_at, None);
    assert_eq!(nic.next_at(), Some(at(11_000)));
    assert!(!nic.advance(at(10_999)));
    assert!(nic.advance(at(11_000)), "ten microseconds after the first");
    assert_eq!(nic.next_at(), None);
    let mut without = super::nic(NicConfig { moderation: false, ..NicConfig::default() }).ring();
    assert!(without.moderate(Moderation { count: 1, period_us: 1 }).is_err());
}
