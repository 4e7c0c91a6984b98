//! Packet pacing: the NIC holds frames back so that a send queue keeps to its rate, and the program need not.
//!
//!     cargo run -p ringway-sim --example raw_pacing
//!
//! A queue is limited to 8 Mbit/s, a byte a microsecond, with a burst of two frames; another one of the same NIC is not limited. Rates
//! belong to send queues: a program that wants several rates opens several queues.

use core::time::Duration;

use ringway_stack::device::{FlowRule, Pacing, TxOffload};

use frames::{Done, Pair, UDP_HEAD};

#[path = "raw/frames.rs"]
mod frames;

/// Bytes of each frame.
const FRAME: usize = 1_000;
const PACED: u16 = 7;
const FREE: u16 = 9;

pub(crate) fn main() -> Done {
    let mut pair = Pair::new();
    let mut free = pair.another_sender();
    pair.to.steer(&FlowRule::any())?;
    pair.from.pace(Pacing { rate_bps: 8_000_000, burst_bytes: 2 * FRAME as u32, typical_packet_bytes: FRAME as u16 })?;

    let payload = [1; FRAME - UDP_HEAD];
    let (paced_head, free_head) = (pair.udp(0, payload.len(), PACED), pair.udp(0, payload.len(), FREE));
    for _ in 0..10 {
        pair.from.send(&paced_head, &payload, TxOffload::default())?;
        free.send(&free_head, &payload, TxOffload::default())?;
    }
    free.flush();

    let received = pair.exchange(Duration::from_millis(20));
    let times = |port: u16| -> Vec<u64> {
        let of_port = received.iter().filter(|frame| frame.bytes[36..38] == port.to_be_bytes());
        of_port.map(|frame| frame.at_us).collect()
    };
    let (paced, free_times) = (times(PACED), times(FREE));
    println!("paced queue: frames arrive at {paced:?} us");
    println!("other queue: frames arrive at {free_times:?} us");

    assert_eq!((paced.len(), free_times.len()), (10, 10));
    assert!(paced[1] - paced[0] < 10, "the burst leaves at once");
    assert!(paced.windows(2).skip(1).all(|pair| (990..=1_010).contains(&(pair[1] - pair[0]))), "then a byte a microsecond");
    assert!(free_times[9] - free_times[0] < 100, "the other queue has no limit");

    // A rate of zero lifts the limit.
    pair.from.pace(Pacing { rate_bps: 0, burst_bytes: 0, typical_packet_bytes: 0 })?;
    for _ in 0..10 {
        pair.from.send(&paced_head, &payload, TxOffload::default())?;
    }
    let lifted: Vec<u64> = pair.exchange(Duration::from_millis(20)).iter().map(|frame| frame.at_us).collect();
    println!("limit lifted: frames arrive at {lifted:?} us");
    assert!(lifted.len() == 10 && lifted[9] - lifted[0] < 100);
    Ok(())
}
