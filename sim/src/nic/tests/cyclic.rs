use ringway_stack::device::{CyclicConfig, CyclicError, CyclicId, CyclicPacket, Target};

use super::*;

/// A queue of eight strides of 64 bytes that gets everything.
fn queue() -> (Nic, SimQueues, CyclicId, RuleId) {
    let nic = nic(NicConfig::default());
    let mut device = nic.ring();
    let queue = device.cyclic_create(&CyclicConfig { stride_bytes: 64, strides: 8 }).unwrap();
    let rule = device.device().attach(&FlowRule::any().tag(9), Target::Cyclic(device.id(), queue)).unwrap();
    (nic, device, queue, rule.rule)
}

fn frame(mark: u8, len: usize) -> Vec<u8> {
    frames::experimental(frames::mac(0), frames::mac(1), &vec![mark; len - 14])
}

fn read(device: &mut SimQueues, queue: CyclicId, max: usize) -> Option<(SimRx, Vec<CyclicPacket>)> {
    let mut packets = Vec::new();
    device.cyclic_read(queue, max, &mut packets).unwrap().map(|run| (run, packets))
}

/// The mark of each packet of a run.
fn marks((run, packets): &(SimRx, Vec<CyclicPacket>)) -> Vec<u8> {
    let mark = |packet: &CyclicPacket| {
        let mut byte = [0];
        run.copy_to(packet.offset + packet.len - 1, &mut byte);
        byte[0]
    };
    packets.iter().map(mark).collect()
}

#[test]
fn packets_lie_one_behind_the_other() {
    let (nic, mut device, queue, _) = queue();
    for mark in 1..=3 {
        receive(&nic, &frame(mark, 60)).outcome.unwrap();
    }
    receive(&nic, &frame(4, 100)).outcome.unwrap();
    assert!(device.rx_ready());
    assert!(poll(&mut device).is_empty(), "they go nowhere else");
    let run = read(&mut device, queue, 3).unwrap();
    assert_eq!(marks(&run), [1, 2, 3]);
    assert_eq!(run.1.iter().map(|p| (p.offset, p.len, p.meta.flow_tag)).collect::<Vec<_>>(), [(0, 60, 9), (64, 60, 9), (128, 60, 9)]);
    assert_eq!(run.0.len(), 3 * 64);
    let last = read(&mut device, queue, 9).unwrap();
    assert_eq!((marks(&last), last.0.len()), (vec![4], 128), "a long one takes two strides");
    assert!(read(&mut device, queue, 9).is_none());
    assert!(!device.rx_ready());
}

#[test]
fn what_is_being_read_is_never_overwritten() {
    let (nic, mut device, queue, _) = queue();
    for mark in 1..=8 {
        receive(&nic, &frame(mark, 60)).outcome.unwrap();
    }
    assert_eq!(receive(&nic, &frame(9, 60)).outcome, Err(RxDrop::NoBuffer), "every stride is full");
    let first = read(&mut device, queue, 4).unwrap();
    let part = first.0.slice(64, 64);
    let second = read(&mut device, queue, 4).unwrap();
    drop(second);
    drop(first);
    assert_eq!(receive(&nic, &frame(9, 60)).outcome, Err(RxDrop::NoBuffer), "a part of the first run is held");
    assert_eq!(nic.outstanding().cyclic_runs, 1);
    let mut byte = [0];
    part.copy_to(20, &mut byte);
    assert_eq!(byte, [2]);
    drop(part);
    for mark in 11..=18 {
        receive(&nic, &frame(mark, 60)).outcome.unwrap();
    }
    assert_eq!(marks(&read(&mut device, queue, 99).unwrap()), (11..=18).collect::<Vec<_>>());
}

#[test]
fn a_run_ends_at_the_linear_end() {
    let (nic, mut device, queue, _) = queue();
    for mark in 1..=6 {
        receive(&nic, &frame(mark, 60)).outcome.unwrap();
    }
    drop(read(&mut device, queue, 6));
    receive(&nic, &frame(7, 60)).outcome.unwrap();
    receive(&nic, &frame(8, 100)).outcome.unwrap();
    receive(&nic, &frame(9, 60)).outcome.unwrap();
    let before = read(&mut device, queue, 99).unwrap();
    assert_eq!(marks(&before), [7]);
    let after = read(&mut device, queue, 99).unwrap();
    assert_eq!(marks(&after), [8, 9], "a packet never wraps: one stride was skipped");
    // Both held: six strides and the skipped one. Three packets more would need what they hold.
    let fits = (0..9).filter(|_| receive(&nic, &frame(1, 60)).outcome.is_ok()).count();
    assert_eq!(fits, 3);
    drop((before, after));
}

#[test]
fn a_run_that_fills_the_whole_buffer_is_one_run() {
    let (nic, mut device, queue, _) = queue();
    for round in 0..3 {
        for mark in 0..8 {
            receive(&nic, &frame(10 * round + mark, 60)).outcome.unwrap();
        }
        let run = read(&mut device, queue, 99).unwrap();
        assert_eq!((run.0.len(), run.1.len()), (512, 8));
    }
}

#[test]
fn queues_are_counted_and_checked() {
    let (nic, mut device, queue, rule) = queue();
    let create = |device: &mut SimQueues, stride_bytes, strides| device.cyclic_create(&CyclicConfig { stride_bytes, strides });
    for (stride_bytes, strides) in [(100, 8), (64, 7), (64, 0), (0, 8), (32, 8)] {
        assert_eq!(create(&mut device, stride_bytes, strides), Err(CyclicError::Invalid), "{stride_bytes} {strides}");
    }
    for _ in 0..3 {
        create(&mut device, 64, 8).unwrap();
    }
    assert_eq!(create(&mut device, 64, 8), Err(CyclicError::Full));
    assert_eq!(device.cyclic_destroy(queue), Err(CyclicError::Busy), "a rule steers to it");
    device.device().detach(rule);
    device.cyclic_destroy(queue).unwrap();
    assert_eq!(device.cyclic_destroy(queue), Err(CyclicError::Unknown));
    assert_eq!(device.device().attach(&FlowRule::any(), Target::Cyclic(device.id(), queue)), Err(RuleError::NoQueue));
    assert_eq!(nic.outstanding().cyclic_queues, 3);
    drop(device);
    assert_eq!(nic.outstanding(), Outstanding::default());
    let mut without = super::nic(NicConfig { cyclic_queues_max: 0, ..NicConfig::default() }).ring();
    assert!(matches!(create(&mut without, 64, 8), Err(CyclicError::Unsupported(_))));
}
