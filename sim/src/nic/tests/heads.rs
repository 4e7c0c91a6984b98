//! Heads that are lent: every frame lies in a receive buffer, as long as enough of those are left.

use super::*;
use ringway_stack::device::HEAD_MAX;

fn lending(config: NicConfig) -> (Nic, SimQueues) {
    let nic = nic(config);
    let mut device = nic.ring();
    device.lend_heads(true).unwrap();
    (nic, device)
}

fn polled(device: &mut SimQueues) -> RxBatch<SimRx> {
    let mut batch = RxBatch::new(64);
    device.poll_rx(Instant::ZERO, &mut batch);
    batch
}

fn frame(len: usize) -> Vec<u8> {
    let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(len).collect();
    frames::udp(address("10.0.0.2:9"), address("10.0.0.1:80"), &bytes)
}

fn bytes(buffer: &SimRx) -> Vec<u8> {
    let mut bytes = vec![0; buffer.len()];
    buffer.copy_to(0, &mut bytes);
    bytes
}

#[test]
fn each_frame_is_one_buffer() {
    for len in [0, 10, 214, 215, 1400] {
        let (nic, mut device) = lending(NicConfig::default());
        let sent = frame(len);
        receive(&nic, &sent).outcome.unwrap();
        let mut batch = polled(&mut device);
        let frame = &mut batch.frames_mut()[0];
        assert_eq!((frame.head(), frame.len(), frame.to_vec()), (&sent[..sent.len().min(HEAD_MAX)], sent.len(), sent.clone()));
        let whole = frame.take_buffer().unwrap();
        assert_eq!(bytes(&whole), sent);
        assert_eq!(nic.outstanding().rx_buffers, 1);
        let held = whole.slice(1, 2);
        drop((whole, batch));
        assert_eq!((bytes(&held), nic.outstanding().rx_buffers), (sent[1..3].to_vec(), 1));
        drop(held);
        assert_eq!(nic.outstanding(), Outstanding::default());
    }
}

#[test]
fn merged_segments_are_lent_as_one() {
    let (nic, mut device) = lending(NicConfig::full());
    for i in 0..3u32 {
        let tcp = frames::Tcp { seq: 100 + 20 * i, flags: 0x10, timestamp: Some(1) };
        receive(&nic, &frames::tcp(address("10.0.0.2:9"), address("10.0.0.1:80"), tcp, &[7; 20])).outcome.unwrap();
    }
    let mut batch = polled(&mut device);
    let [frame] = batch.frames_mut() else { panic!("one frame") };
    assert_eq!((frame.meta.coalesced, bytes(&frame.held_from(0).unwrap())), (3, frame.to_vec()));
    assert!(device.lent_all_heads());
}

#[test]
fn small_frames_leave_half_of_the_buffers_to_large_ones() {
    let (nic, mut device) = lending(NicConfig { rx_buffers_max: 8, ..NicConfig::default() });
    let mut held = Vec::new();
    for _ in 0..10 {
        receive(&nic, &frame(100)).outcome.unwrap();
        held.extend(polled(&mut device).frames_mut()[0].take_buffer());
    }
    assert_eq!((held.len(), nic.outstanding().rx_buffers), (4, 4));
    assert!(!device.lent_all_heads());
    for room in [true, true, true, true, false] {
        assert_eq!(receive(&nic, &frame(1000)).outcome.is_ok(), room);
    }
}

#[test]
fn a_nic_that_lends_no_heads_says_so() {
    let mut device = nic(NicConfig::bare()).ring();
    assert!(!device.capabilities().lends_heads);
    assert_eq!(device.lend_heads(true).unwrap_err().what, "heads to lend");
    let (nic, mut device) = lending(NicConfig::default());
    device.lend_heads(false).unwrap();
    receive(&nic, &frame(10)).outcome.unwrap();
    assert!(polled(&mut device).frames_mut()[0].held_from(0).is_none());
}
