//! Steering by VXLAN tunnel: the NIC looks into the encapsulation, and each tenant's network gets a queue of its own.
//!
//!     cargo run -p ringway-sim --example raw_vxlan
//!
//! All frames have the same outer addresses and port; they differ in the tunnel's network identifier (VNI) alone, or in headers
//! behind it.

use core::time::Duration;

use ringway_stack::device::{FlowRule, HeaderMatch, Protocol, TransportMatch, VxlanMatch};

use frames::{Done, Pair, UDP_HEAD};

#[path = "raw/frames.rs"]
mod frames;

/// Where VXLAN is sent to, and the bytes of its header (RFC 7348 s5).
const VXLAN_PORT: u16 = 4789;
const VXLAN_HEAD: usize = 8;

pub(crate) fn main() -> Done {
    let mut pair = Pair::new();
    let mut inside = pair.another_receiver();
    // Everything in tunnel 77; and of tunnel 78, datagrams to port 53 inside.
    pair.to.steer(&in_tunnel(77, HeaderMatch::default()).tag(77))?;
    let dns = TransportMatch { protocol: Protocol::Udp, src_port: None, dst_port: Some(53) };
    inside.steer(&in_tunnel(78, HeaderMatch { transport: Some(dns), ..HeaderMatch::default() }).tag(78))?;

    for (vni, inner_port) in [(76, 7), (77, 7), (78, 7), (78, 53), (77, 53)] {
        let frame = encapsulated(&pair, vni, inner_port);
        let (head, payload) = frame.split_at(UDP_HEAD);
        let checksums = pair.from.checksums();
        pair.from.send(head, payload, checksums)?;
    }

    let tenant = pair.exchange(Duration::from_millis(1));
    let dns = pair.poll(&mut inside);
    println!("tunnel 77: {} of 5 frames", tenant.len());
    println!("tunnel 78, port 53 inside: {} of 5 frames", dns.len());
    assert!(tenant.iter().all(|frame| vni_of(&frame.bytes) == 77 && frame.tag == 77));
    assert_eq!((tenant.len(), dns.len()), (2, 1));
    assert_eq!((vni_of(&dns[0].bytes), dns[0].tag), (78, 78));
    Ok(())
}

fn in_tunnel(vni: u32, inner: HeaderMatch) -> FlowRule {
    FlowRule { vxlan: Some(VxlanMatch { vni: Some(vni), inner }), ..FlowRule::any() }
}

/// A datagram of four bytes in a tunnel.
fn encapsulated(pair: &Pair, vni: u32, inner_port: u16) -> Vec<u8> {
    let inner = [&pair.udp(0, 4, inner_port)[..], b"data"].concat();
    // The I flag says that the identifier is valid; it is 24 bits long.
    let vxlan = [&[8, 0, 0, 0][..], &(vni << 8).to_be_bytes()].concat();
    let outer = pair.udp(0, VXLAN_HEAD + inner.len(), VXLAN_PORT);
    [outer, vxlan, inner].concat()
}

fn vni_of(frame: &[u8]) -> u32 {
    u32::from_be_bytes([0, frame[UDP_HEAD + 4], frame[UDP_HEAD + 5], frame[UDP_HEAD + 6]])
}
