//! Steering by type of service: what is marked with a DSCP code goes to the queue that serves it.
//!
//!     cargo run -p ringway-sim --example raw_tos
//!
//! Voice (expedited forwarding) and bulk data (AF11) get a queue each, so that a full bulk queue never delays voice; whatever bears another
//! mark is neither's.

use core::time::Duration;

use ringway_stack::device::{FlowRule, HeaderMatch, IpMatch, TxOffload};

use frames::{Done, Pair};

#[path = "raw/frames.rs"]
mod frames;

/// Expedited forwarding: DSCP 46 (RFC 3246), above the two bits of ECN.
const EF: u8 = 46 << 2;
/// Assured forwarding, class 1, low drop: DSCP 10 (RFC 2597).
const AF11: u8 = 10 << 2;

pub(crate) fn main() -> Done {
    let mut pair = Pair::new();
    let mut bulk = pair.another_receiver();
    pair.to.steer(&marked(EF))?;
    bulk.steer(&marked(AF11))?;

    for tos in [0, EF, AF11, AF11, EF, EF] {
        let head = pair.udp(tos, 1, 7);
        pair.from.send(&head, &[tos], TxOffload::default())?;
    }

    let voice: Vec<u8> = pair.exchange(Duration::from_millis(1)).iter().map(|frame| frame.bytes[15]).collect();
    let bulk: Vec<u8> = pair.poll(&mut bulk).iter().map(|frame| frame.bytes[15]).collect();
    println!("voice queue: frames marked {voice:?}");
    println!("bulk queue:  frames marked {bulk:?}");
    assert_eq!(voice, [EF; 3]);
    assert_eq!(bulk, [AF11; 2]);
    Ok(())
}

/// Every IPv4 packet with this type of service.
fn marked(tos: u8) -> FlowRule {
    let ip = IpMatch::V4 { src: None, dst: None, tos: Some(tos) };
    FlowRule { outer: HeaderMatch { ip: Some(ip), ..HeaderMatch::default() }, ..FlowRule::any() }
}
