//! Steering by flow id: a rule carries a tag, and each frame that it steers comes up with that tag.
//!
//!     cargo run -p ringway-sim --example raw_flow_id
//!
//! The program finds a frame's flow by a number of its own choosing (an index into a table, here) and looks at no header.

use core::time::Duration;
use std::net::SocketAddrV4;

use ringway_stack::device::{FlowRule, Protocol, TxOffload};

use frames::{B, Done, Pair};

#[path = "raw/frames.rs"]
mod frames;

/// A flow, as the program keeps it.
struct Flow {
    name: &'static str,
    port: u16,
    frames: usize,
}

pub(crate) fn main() -> Done {
    let mut pair = Pair::new();
    let mut flows = [
        Flow { name: "echo", port: 7, frames: 0 },
        Flow { name: "discard", port: 9, frames: 0 },
        Flow { name: "daytime", port: 13, frames: 0 },
    ];
    for (i, flow) in flows.iter().enumerate() {
        let rule = FlowRule::flow(Protocol::Udp, SocketAddrV4::new(B, flow.port).into(), None);
        // Zero means "no tag", so tags begin at one.
        pair.to.steer(&rule.tag(i as u32 + 1))?;
    }

    // Nobody asked for port 8.
    for port in [9, 7, 8, 9, 13, 9] {
        let head = pair.udp(0, 1, port);
        pair.from.send(&head, &[3], TxOffload::default())?;
    }

    let received = pair.exchange(Duration::from_millis(1));
    for frame in &received {
        flows[frame.tag as usize - 1].frames += 1;
    }
    for flow in &flows {
        println!("{}: {} frames", flow.name, flow.frames);
    }
    let tags: Vec<u32> = received.iter().map(|frame| frame.tag).collect();
    assert_eq!(tags, [2, 1, 2, 3, 2]);
    assert_eq!(flows.map(|flow| flow.frames), [1, 3, 1]);
    Ok(())
}
