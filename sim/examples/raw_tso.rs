//! TCP segmentation offload: one frame far longer than the MTU goes down to the NIC, packets come out.
//!
//!     cargo run -p ringway-sim --example raw_tso
//!
//! The program writes the headers once, as if the payload fitted into one packet, and says how long a segment is. The NIC repeats them in
//! front of each segment, with its own sequence number, lengths and checksums.

use core::time::Duration;

use ringway_stack::device::{FlowRule, TxOffload};

use frames::{Done, Pair, TCP_HEAD};

#[path = "raw/frames.rs"]
mod frames;

/// Bytes of payload in a segment: what the MTU leaves of 1,500 bytes.
const MSS: u16 = 1_460;
/// The first byte's sequence number: a little before it wraps around.
const SEQ: u32 = u32::MAX - 2_000;

pub(crate) fn main() -> Done {
    let mut pair = Pair::new();
    pair.to.steer(&FlowRule::any())?;
    let payload: Vec<u8> = (0..10_000u32).map(|i| (i % 251) as u8).collect();

    // Longer than the MTU, and nobody asked for segments: an error.
    let head = pair.tcp(SEQ, payload.len());
    let whole = pair.from.send(&head, &payload, TxOffload::default());
    println!("without TSO: {}", whole.expect_err("too long for one packet"));

    let offload = TxOffload { tso_mss: Some(MSS), ..pair.from.checksums() };
    pair.from.send(&head, &payload, offload)?;
    let received = pair.exchange(Duration::from_millis(1));

    let mut joined = Vec::new();
    for frame in &received {
        let (head, part) = frame.bytes.split_at(TCP_HEAD);
        let seq = u32::from_be_bytes([head[38], head[39], head[40], head[41]]);
        let total_len = u16::from_be_bytes([head[16], head[17]]);
        println!("segment: seq {seq}, {} bytes of payload, IP length {total_len}, flags {:#04x}", part.len(), head[47]);
        assert_eq!(seq, SEQ.wrapping_add(joined.len() as u32));
        assert_eq!(usize::from(total_len), frame.bytes.len() - 14);
        joined.extend_from_slice(part);
    }
    let lengths: Vec<usize> = received.iter().map(|frame| frame.bytes.len() - TCP_HEAD).collect();
    assert_eq!(lengths, [1_460, 1_460, 1_460, 1_460, 1_460, 1_460, 1_240]);
    assert_eq!(joined, payload, "nothing is lost on the way");
    Ok(())
}
