//! Flows with rates of their own: what leaves when.

use super::*;
use ringway_stack::device::{Pacing, RateError};

/// A byte takes a microsecond, two, or four.
const FAST: Pacing = rate(8_000_000);
const HALF: Pacing = rate(4_000_000);
const SLOW: Pacing = rate(2_000_000);

const fn rate(rate_bps: u64) -> Pacing {
    Pacing { rate_bps, burst_bytes: 1_000, typical_packet_bytes: 1_000 }
}

/// Queues a frame of `len` bytes, the first of which behind the header is `mark`.
fn queue(device: &mut SimQueues, flow: u32, mark: u8, len: usize) {
    let frame = frames::experimental(frames::mac(1), frames::mac(0), &vec![mark; len - 14]);
    let mut buffer = device.tx_alloc(frame.len() - 14).unwrap();
    buffer.write(0, &frame[14..]);
    let body = [TxSlice { buffer: &buffer, offset: 0, len: frame.len() - 14 }];
    device.send(&TxFrame { head: &frame[..14], body: &body, offload: TxOffload { flow, ..TxOffload::default() } }).unwrap();
}

/// All that leaves, each frame by its mark, and the time in microseconds.
fn departures(nic: &Nic) -> Vec<(u8, u64)> {
    let (mut now, mut left) = (Instant::ZERO, Vec::new());
    loop {
        while let Some(frame) = nic.transmit(now) {
            left.push((frame[14], now.as_nanos() / 1_000));
            nic.complete();
        }
        match nic.next_at() {
            Some(at) => now = at,
            None => return left,
        }
    }
}

fn of(left: &[(u8, u64)], mark: u8) -> Vec<u64> {
    left.iter().filter(|(of, _)| *of == mark).map(|(_, at)| *at).collect()
}

#[test]
fn two_flows_of_one_ring_leave_at_two_rates_and_a_third_at_once() {
    let nic = nic(NicConfig::default());
    let mut device = nic.ring();
    device.set_rate(1, FAST).unwrap();
    device.set_rate(2, SLOW).unwrap();
    for _ in 0..5 {
        [(1, 1), (2, 2), (3, 3), (0, 4)].into_iter().for_each(|(flow, mark)| queue(&mut device, flow, mark, 1_000));
    }
    device.doorbell();
    let left = departures(&nic);
    assert_eq!(of(&left, 1), [0, 1_000, 2_000, 3_000, 4_000]);
    assert_eq!(of(&left, 2), [0, 4_000, 8_000, 12_000, 16_000]);
    assert_eq!((of(&left, 3), of(&left, 4)), (vec![0; 5], vec![0; 5]));
    device.reap();
    assert_eq!(nic.outstanding(), Outstanding::default());
}

#[test]
fn a_flow_keeps_its_order_whatever_the_lengths() {
    let nic = nic(NicConfig::default());
    let mut device = nic.ring();
    device.set_rate(1, FAST).unwrap();
    for (mark, len) in [(1, 1_000), (2, 1_000), (3, 100)] {
        queue(&mut device, 1, mark, len);
    }
    device.doorbell();
    // There would have been tokens for the short one before.
    assert_eq!(departures(&nic), [(1, 0), (2, 1_000), (3, 1_100)]);
}

#[test]
fn the_rings_own_rate_counts_beside() {
    let nic = nic(NicConfig::default());
    let mut device = nic.ring();
    device.pace(HALF).unwrap();
    device.set_rate(1, FAST).unwrap();
    device.set_rate(2, SLOW).unwrap();
    for mark in [1, 2, 1, 2, 1, 1] {
        queue(&mut device, u32::from(mark), mark, 1_000);
    }
    device.doorbell();
    let left = departures(&nic);
    let all: Vec<u64> = left.iter().map(|(_, at)| *at).collect();
    assert_eq!(all, [0, 2_000, 4_000, 6_000, 8_000, 10_000]);
    assert_eq!(of(&left, 2).windows(2).map(|two| two[1] - two[0]).min(), Some(4_000));
}

#[test]
fn a_rate_can_be_changed_and_lifted_for_what_is_queued_already() {
    let nic = nic(NicConfig::default());
    let mut device = nic.ring();
    device.set_rate(1, SLOW).unwrap();
    (0..4).for_each(|mark| queue(&mut device, 1, mark, 1_000));
    device.doorbell();
    assert_eq!((leaving(&nic, at(0)).len(), nic.next_at()), (1, Some(at(4_000_000))));
    device.set_rate(1, FAST).unwrap();
    assert_eq!(leaving(&nic, at(1_000_000)).len(), 1);
    device.set_rate(1, Pacing::UNLIMITED).unwrap();
    assert_eq!((leaving(&nic, at(1_000_000)).len(), nic.next_at()), (2, None));
}

#[test]
fn cut_segments_are_paced_one_by_one_and_hold_up_no_other_flow() {
    let nic = nic(NicConfig::full());
    let mut device = nic.ring();
    device.set_rate(1, Pacing { burst_bytes: 1_054, ..FAST }).unwrap();
    let tcp = frames::Tcp { seq: 1, flags: 0x10, timestamp: None };
    let head = frames::tcp(address("10.0.0.1:80"), address("10.0.0.2:9"), tcp, &[]);
    let mut buffer = device.tx_alloc(3_000).unwrap();
    buffer.write(0, &[9; 3_000]);
    let body = [TxSlice { buffer: &buffer, offset: 0, len: 3_000 }];
    let offload = TxOffload { checksum: true, tso_mss: Some(1_000), flow: 1, ..TxOffload::default() };
    device.send(&TxFrame { head: &head, body: &body, offload }).unwrap();
    queue(&mut device, 2, 2, 1_000);
    device.doorbell();
    let left = departures(&nic);
    assert_eq!(of(&left, 2), [0]);
    let cut: Vec<u64> = left.iter().filter(|(mark, _)| *mark != 2).map(|(_, at)| *at).collect();
    assert_eq!(cut, [0, 1_054, 2_108]);
}

#[test]
fn as_many_flows_have_a_rate_as_the_nic_says_and_none_where_it_paces_none() {
    let mut device = nic(NicConfig { paced_flows_max: 2, ..NicConfig::default() }).ring();
    assert_eq!(device.capabilities().paced_flows_max, 2);
    device.set_rate(1, FAST).unwrap();
    device.set_rate(2, FAST).unwrap();
    assert_eq!(device.set_rate(3, FAST), Err(RateError::Full));
    assert_eq!(device.set_rate(2, SLOW), Ok(()), "it has one");
    device.set_rate(1, Pacing::UNLIMITED).unwrap();
    assert_eq!(device.set_rate(3, FAST), Ok(()));
    let mut without = nic(NicConfig::bare()).ring();
    assert_eq!(without.set_rate(1, FAST), Err(without.capabilities().lacks("pacing of single flows").into()));
    assert_eq!(without.set_rate(1, Pacing::UNLIMITED).map_err(|error| matches!(error, RateError::Unsupported(_))), Err(true));
}

#[test]
fn another_owner_of_a_ring_finds_no_rates() {
    let nic = nic(NicConfig { paced_flows_max: 1, ..NicConfig::default() });
    let mut device = nic.ring();
    device.set_rate(1, SLOW).unwrap();
    drop(device);
    let mut device = nic.ring();
    (0..3).for_each(|mark| queue(&mut device, 1, mark, 1_000));
    device.doorbell();
    assert_eq!(departures(&nic), [(0, 0), (1, 0), (2, 0)]);
    assert_eq!(device.set_rate(2, SLOW), Ok(()));
}
