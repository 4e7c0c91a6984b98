use super::*;
use crate::checksum;

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
const FIN: u8 = 0x01;

fn segment(seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let tcp = frames::Tcp { seq, flags, timestamp: Some(seq) };
    frames::tcp(address("10.0.0.2:9"), address("10.0.0.1:80"), tcp, payload)
}

fn lro() -> (Nic, SimQueues) {
    let nic = nic(NicConfig::full());
    let device = nic.ring();
    (nic, device)
}

/// How many segments each polled frame was, and its payload's length.
fn shape(device: &mut SimQueues) -> Vec<(u16, usize)> {
    poll(device).iter().map(|(bytes, meta)| (meta.coalesced.max(1), bytes.len() - 66)).collect()
}

#[test]
fn segments_in_order_become_one_frame() {
    let (nic, mut device) = lro();
    for (seq, flags) in [(100, ACK), (1100, ACK), (2100, ACK | PSH)] {
        receive(&nic, &segment(seq, flags, &[seq.to_be_bytes()[3]; 1000])).outcome.unwrap();
    }
    assert_eq!(nic.outstanding().rx_frames, 1);
    let [(bytes, meta)] = &poll(&mut device)[..] else { panic!("one frame") };
    assert_eq!((meta.coalesced, meta.checksum), (3, ChecksumVerdict::Good));
    assert_eq!(checksum::verify(bytes), ChecksumVerdict::Good);
    assert_eq!(bytes[38..42], 100u32.to_be_bytes(), "the first sequence number");
    assert_eq!(bytes[47], ACK | PSH);
    assert_eq!(bytes[58..62], 2100u32.to_be_bytes(), "the last timestamp");
    assert_eq!(bytes[66..], [[100; 1000], [76; 1000], [52; 1000]].concat());
    drop(device);
    assert_eq!(nic.outstanding(), Outstanding::default());
}

#[test]
fn short_segments_within_a_head_are_merged_too() {
    let (nic, mut device) = lro();
    for i in 0..3 {
        receive(&nic, &segment(100 + 20 * i, ACK, &[1; 20])).outcome.unwrap();
    }
    assert_eq!(shape(&mut device), [(3, 60)]);
    assert_eq!(nic.outstanding(), Outstanding::default());
}

#[test]
fn anything_unusual_ends_a_merger() {
    let merged = |frames: &[Vec<u8>]| {
        let (nic, mut device) = lro();
        frames.iter().for_each(|frame| receive(&nic, frame).outcome.unwrap());
        shape(&mut device)
    };
    let one = |seq, flags| segment(seq, flags, &[1; 1000]);
    assert_eq!(merged(&[one(0, ACK), one(2000, ACK), one(1000, ACK)]), [(1, 1000); 3], "a gap");
    let mut older = one(1000, ACK);
    older[58..62].copy_from_slice(&(u32::MAX - 5).to_be_bytes());
    checksum::fill(&mut older);
    assert_eq!(merged(&[one(0, ACK), older]), [(1, 1000); 2], "an older timestamp");
    assert_eq!(merged(&[one(0, ACK), one(1000, ACK | FIN)]), [(1, 1000); 2], "an end");
    assert_eq!(merged(&[one(0, ACK | PSH), one(1000, ACK)]), [(1, 1000); 2], "a push");
    assert_eq!(merged(&[one(0, ACK), segment(1000, ACK, &[]), one(1000, ACK)]), [(1, 1000), (1, 0), (1, 1000)], "an acknowledgment");
    assert_eq!(merged(&[one(0, ACK), segment(1000, ACK, &[1; 500]), one(1500, ACK)]), [(2, 1500), (1, 1000)], "a short one is the last");
    let mut marked = one(1000, ACK);
    marked[15] = 3;
    checksum::fill(&mut marked);
    assert_eq!(merged(&[one(0, ACK), marked]), [(1, 1000); 2], "a congestion mark");
    let mut damaged = one(1000, ACK);
    damaged[100] ^= 1;
    assert_eq!(merged(&[one(0, ACK), damaged]), [(1, 1000); 2], "a bad checksum");
    let many: Vec<_> = (0..80).map(|i| one(1000 * i, ACK)).collect();
    assert_eq!(merged(&many), [(65, 65_000), (15, 15_000)], "a packet has at most 65,535 bytes");
}

#[test]
fn a_poll_ends_all_mergers_and_flows_do_not_mix() {
    let (nic, mut device) = lro();
    receive(&nic, &segment(0, ACK, &[1; 1000])).outcome.unwrap();
    assert_eq!(shape(&mut device), [(1, 1000)]);
    receive(&nic, &segment(1000, ACK, &[1; 1000])).outcome.unwrap();
    let tcp = frames::Tcp { seq: 5, flags: ACK, timestamp: Some(1) };
    let other = frames::tcp(address("10.0.0.2:10"), address("10.0.0.1:80"), tcp, &[2; 700]);
    receive(&nic, &other).outcome.unwrap();
    receive(&nic, &segment(2000, ACK, &[1; 1000])).outcome.unwrap();
    assert_eq!(shape(&mut device), [(2, 2000), (1, 700)]);
}

#[test]
fn without_coalescing_nothing_is_merged() {
    for config in [NicConfig { lro: false, ..NicConfig::full() }, NicConfig { rx_checksum: false, ..NicConfig::full() }] {
        let nic = nic(config);
        let mut device = nic.ring();
        assert!(!device.capabilities().lro);
        for seq in [0, 1000] {
            receive(&nic, &segment(seq, ACK, &[1; 1000])).outcome.unwrap();
        }
        assert_eq!(shape(&mut device), [(1, 1000); 2]);
    }
}

#[test]
fn tags_are_taken_out_if_the_nic_does() {
    let frame = segment(0, ACK, &[1; 1000]);
    for (config, tag, len) in [(NicConfig::full(), Some(0x6005), frame.len()), (NicConfig::default(), None, frame.len() + 4)] {
        let nic = nic(config);
        let mut device = nic.ring();
        receive(&nic, &frames::tagged(&frame, 0x6005)).outcome.unwrap();
        let [(bytes, meta)] = &poll(&mut device)[..] else { panic!("one frame") };
        assert_eq!((meta.vlan, bytes.len(), meta.checksum), (tag, len, ChecksumVerdict::Good));
    }
}

#[test]
fn checksums_inside_a_tunnel_are_verified_if_the_nic_can() {
    let inner = frames::udp(address("10.0.0.2:9"), address("10.0.0.1:80"), b"inner");
    let mut damaged = inner.clone();
    damaged[44] ^= 1;
    let verdict = |config: NicConfig, inner: &[u8]| {
        let nic = nic(config);
        let mut device = nic.ring();
        receive(&nic, &frames::vxlan(5, inner)).outcome.unwrap();
        poll(&mut device)[0].1.checksum
    };
    assert_eq!(verdict(NicConfig::full(), &inner), ChecksumVerdict::Good);
    assert_eq!(verdict(NicConfig::full(), &damaged), ChecksumVerdict::Bad);
    assert_eq!(verdict(NicConfig::default(), &damaged), ChecksumVerdict::Unknown);
    assert_eq!(verdict(NicConfig::bare(), &inner), ChecksumVerdict::Unknown);
}

#[test]
fn the_time_of_arrival_comes_along_if_the_nic_has_it() {
    for (hardware_time, expected) in [(true, Some(at(77))), (false, None)] {
        let nic = nic(NicConfig { hardware_time, ..NicConfig::default() });
        let mut device = nic.ring();
        nic.receive(at(77), &segment(0, ACK, &[1; 10]).into());
        assert_eq!(poll(&mut device)[0].1.hardware_time, expected);
    }
}
