//! 003.8 to 003.12: who gets a frame: by type of service, by flow id, by tunnel.

use core::time::Duration;
use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use ringway_stack::device::{Capabilities, FlowRule, HeaderMatch, IpMatch, Protocol, Steering, TransportMatch, TxOffload, VxlanMatch};

use super::{packets, tos};
use crate::sentences::frames::{UDP_HEAD, VXLAN_PORT, be16, be32, pattern};
use crate::sentences::{Case, Received, Rig, Side};

const A_WHILE: Duration = Duration::from_micros(400);
/// Expedited forwarding (RFC 3246): DSCP 46, above the two bits of ECN.
const EF: u8 = 46 << 2;
/// Assured forwarding 11 (RFC 2597): DSCP 10.
const AF11: u8 = 10 << 2;
/// Long enough that no frame needs padding.
const PAYLOAD: usize = 32;

pub(super) fn eight_bits<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("of 256 values, a rule steers its own", tos, one_of_all)]
}

pub(super) fn marks<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::new("each of the 64 codes arrives as it was marked", packets, every_code),
        Case::new("the queue of a level is not in the way of another's", |c| tos(c) && several(c), levels_apart),
    ]
}

pub(super) fn by_tos<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::new("codes to different rings", |c| tos(c) && several(c), codes_to_rings),
        Case::new("together with addresses and ports", tos, code_and_flow),
        Case::new("by IPv6's traffic class", |c| c.steering.contains(Steering::TOS | Steering::IPV6), traffic_class),
        Case::new("until the rule is detached", tos, until_detached),
    ]
}

pub(super) fn by_flow_id<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::new("each frame comes with the flow tag of its rule", tags, tag_of_each),
        Case::new("to the ring of its rule", |c| tags(c) && several(c), tag_and_ring),
        Case::new(
            "of rules that match, the first by priority tags it",
            |c| c.steering.contains(Steering::TAG | Steering::PRIORITY),
            first_tag,
        ),
    ]
}

pub(super) fn by_tunnel<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::new("tunnels to different rings", |c| tunnels(c) && several(c), tunnels_to_rings),
        Case::new("all 24 bits of the tunnel ID count", tunnels, all_bits_of_vni),
        Case::new("what only looks like a tunnel is none", tunnels, no_tunnel),
        Case::new("by headers inside, too", tunnels, inner_headers),
    ]
}

const fn several(c: &Capabilities) -> bool {
    c.rings_max > 2
}

fn tags(c: &Capabilities) -> bool {
    c.steering.contains(Steering::TAG)
}

fn tunnels(c: &Capabilities) -> bool {
    c.steering.contains(Steering::VXLAN)
}

fn marked(tos: u8) -> FlowRule {
    let ip = IpMatch::V4 { src: None, dst: None, tos: Some(tos) };
    FlowRule { outer: HeaderMatch { ip: Some(ip), ..HeaderMatch::default() }, ..FlowRule::any() }
}

fn send_udp<R: Rig>(rig: &mut R, tos: u8, port: u16) -> Result<()> {
    let head = rig.headers().udp(tos, port, PAYLOAD);
    Ok(rig.sender()?.send(&head, &[tos; PAYLOAD], TxOffload::default())?)
}

fn tos_of(received: &[Received]) -> Vec<u8> {
    received.iter().map(|frame| frame.bytes[15]).collect()
}

fn one_of_all<R: Rig>(rig: &mut R) -> Result<()> {
    // DSCP alone, with both bits of ECN, and the ends of the range.
    for wanted in [EF, EF | 3, 0, 1, 0x80, u8::MAX] {
        let rule = rig.receiver()?.steer(&marked(wanted))?;
        for tos in 0..=u8::MAX {
            send_udp(rig, tos, 7)?;
        }
        let received = tos_of(&rig.exchange(A_WHILE)?);
        ensure!(received == [wanted], "{wanted:#x}: {received:?}");
        rig.receiver()?.unsteer(rule.rule);
    }
    Ok(())
}

fn every_code<R: Rig>(rig: &mut R) -> Result<()> {
    let rule = rig.rule(Protocol::Udp, 7);
    rig.receiver()?.steer(&rule)?;
    for dscp in 0..64 {
        send_udp(rig, dscp << 2, 7)?;
        let received = tos_of(&rig.exchange(Duration::from_micros(40))?);
        ensure!(received == [dscp << 2], "DSCP {dscp}: {received:?}");
    }
    Ok(())
}

/// A receive queue that nobody polls fills up, and the other one goes on.
fn levels_apart<R: Rig>(rig: &mut R) -> Result<()> {
    const FLOOD: usize = 20_000;
    rig.receiver()?.steer(&marked(EF))?;
    rig.ring(Side::Receiver, 1)?.steer(&marked(AF11))?;
    for _ in 0..FLOOD / 200 {
        for _ in 0..200 {
            send_udp(rig, AF11, 7)?;
        }
        rig.run_for(A_WHILE);
    }
    send_udp(rig, EF, 7)?;
    let received = tos_of(&rig.exchange(A_WHILE)?);
    ensure!(received == [EF], "{received:?}");
    let flood = rig.arrived(Side::Receiver, 1)?.len();
    ensure!(flood > 0 && flood < FLOOD, "the flood did not fill its queue: {flood} of {FLOOD}");
    Ok(())
}

fn codes_to_rings<R: Rig>(rig: &mut R) -> Result<()> {
    for (ring, tos) in [(0, EF), (1, AF11)] {
        rig.ring(Side::Receiver, ring)?.steer(&marked(tos))?;
    }
    for tos in [0, EF, AF11, AF11, 0, EF, AF11] {
        send_udp(rig, tos, 7)?;
    }
    rig.run_for(A_WHILE);
    let (first, second) = (tos_of(&rig.arrived(Side::Receiver, 0)?), tos_of(&rig.arrived(Side::Receiver, 1)?));
    ensure!(first == [EF; 2] && second == [AF11; 3], "{first:?} and {second:?}");
    Ok(())
}

fn code_and_flow<R: Rig>(rig: &mut R) -> Result<()> {
    let mut rule = rig.rule(Protocol::Udp, 7);
    let Some(IpMatch::V4 { tos, .. }) = &mut rule.outer.ip else { anyhow::bail!("a rule for IPv4") };
    *tos = Some(EF);
    rig.receiver()?.steer(&rule)?;
    for (tos, port) in [(EF, 7), (EF, 8), (AF11, 7), (EF, 7)] {
        send_udp(rig, tos, port)?;
    }
    // To somebody else's address.
    let mut headers = rig.headers();
    headers.to.ip = Ipv4Addr::new(192, 0, 2, 1);
    rig.sender()?.send(&headers.udp(EF, 7, PAYLOAD), &[0; PAYLOAD], TxOffload::default())?;
    let received: Vec<_> = rig.exchange(A_WHILE)?.iter().map(|frame| (frame.bytes[15], be16(&frame.bytes, 36))).collect();
    ensure!(received == [(EF, 7); 2], "{received:?}");
    Ok(())
}

fn traffic_class<R: Rig>(rig: &mut R) -> Result<()> {
    let ip = IpMatch::V6 { src: None, dst: None, traffic_class: Some(EF) };
    rig.receiver()?.steer(&FlowRule { outer: HeaderMatch { ip: Some(ip), ..HeaderMatch::default() }, ..FlowRule::any() })?;
    for class in [0, EF, AF11] {
        let head = rig.headers().udp6(class, 7, PAYLOAD);
        rig.sender()?.send(&head, &[class; PAYLOAD], TxOffload::default())?;
    }
    send_udp(rig, EF, 7)?;
    let received: Vec<_> = rig.exchange(A_WHILE)?.iter().map(|frame| be16(&frame.bytes, 14)).collect();
    ensure!(received == [0x6000 | u16::from(EF) << 4], "{received:x?}");
    Ok(())
}

fn until_detached<R: Rig>(rig: &mut R) -> Result<()> {
    let rule = rig.receiver()?.steer(&marked(EF))?;
    for attached in [true, false] {
        send_udp(rig, EF, 7)?;
        let received = rig.exchange(A_WHILE)?.len();
        ensure!(received == usize::from(attached), "{received} frames");
        if attached {
            rig.receiver()?.unsteer(rule.rule);
        }
    }
    Ok(())
}

/// mlx5's flow tags have 24 bits, of which the last value is taken.
const TAGS: [(u16, u32); 3] = [(7, 1), (8, 0xab_cdef), (9, 0xff_fffe)];

fn tag_of_each<R: Rig>(rig: &mut R) -> Result<()> {
    for (port, tag) in TAGS {
        let rule = rig.rule(Protocol::Udp, port).tag(tag);
        rig.receiver()?.steer(&rule)?;
    }
    let untagged = rig.rule(Protocol::Udp, 10);
    rig.receiver()?.steer(&untagged)?;
    for port in [9, 7, 10, 8, 9, 11] {
        send_udp(rig, 0, port)?;
    }
    let received: Vec<u32> = rig.exchange(A_WHILE)?.iter().map(|frame| frame.meta.flow_tag).collect();
    ensure!(received == [TAGS[2].1, TAGS[0].1, 0, TAGS[1].1, TAGS[2].1], "{received:x?}");
    Ok(())
}

fn tag_and_ring<R: Rig>(rig: &mut R) -> Result<()> {
    for (ring, (port, tag)) in TAGS.into_iter().take(2).enumerate() {
        let rule = rig.rule(Protocol::Udp, port).tag(tag);
        rig.ring(Side::Receiver, ring)?.steer(&rule)?;
    }
    for port in [8, 7, 8] {
        send_udp(rig, 0, port)?;
    }
    rig.run_for(A_WHILE);
    for (ring, (_, tag)) in TAGS.into_iter().take(2).enumerate() {
        let tags: Vec<u32> = rig.arrived(Side::Receiver, ring)?.iter().map(|frame| frame.meta.flow_tag).collect();
        ensure!(tags == vec![tag; ring + 1], "ring {ring}: {tags:x?}");
    }
    Ok(())
}

fn first_tag<R: Rig>(rig: &mut R) -> Result<()> {
    let rule = rig.rule(Protocol::Udp, 7);
    rig.receiver()?.steer(&rule.tag(20).priority(FlowRule::PRIORITY_DEFAULT + 1))?;
    let first = rig.receiver()?.steer(&rule.tag(10).priority(FlowRule::PRIORITY_DEFAULT - 1))?;
    for tag in [10, 20] {
        send_udp(rig, 0, 7)?;
        let tags: Vec<u32> = rig.exchange(A_WHILE)?.iter().map(|frame| frame.meta.flow_tag).collect();
        ensure!(tags == [tag], "{tags:?}");
        if tag == 10 {
            rig.receiver()?.unsteer(first.rule);
        }
    }
    Ok(())
}

fn in_tunnel(vni: u32, inner: HeaderMatch) -> FlowRule {
    FlowRule { vxlan: Some(VxlanMatch { vni: Some(vni), inner }), ..FlowRule::any() }
}

/// Sends a datagram to `port` in a tunnel, with one byte of the VXLAN or outer headers changed if asked for.
fn send_tunnelled<R: Rig>(rig: &mut R, vni: u32, port: u16, change: Option<(usize, u8)>) -> Result<()> {
    let headers = rig.headers();
    let inner = [headers.udp(0, port, PAYLOAD), pattern(PAYLOAD)].concat();
    let mut head = headers.vxlan(vni, &inner);
    if let Some((at, to)) = change {
        head[at] = to;
    }
    Ok(rig.sender()?.send(&head, &inner, TxOffload::default())?)
}

fn vnis(received: &[Received]) -> Vec<u32> {
    received.iter().map(|frame| be32(&frame.bytes, UDP_HEAD + 4) >> 8).collect()
}

fn tunnels_to_rings<R: Rig>(rig: &mut R) -> Result<()> {
    for (ring, vni) in [(0, 77), (1, 78)] {
        rig.ring(Side::Receiver, ring)?.steer(&in_tunnel(vni, HeaderMatch::default()))?;
    }
    for vni in [78, 76, 77, 78] {
        send_tunnelled(rig, vni, 7, None)?;
    }
    rig.run_for(A_WHILE);
    let (first, second) = (vnis(&rig.arrived(Side::Receiver, 0)?), vnis(&rig.arrived(Side::Receiver, 1)?));
    ensure!(first == [77] && second == [78; 2], "{first:?} and {second:?}");
    Ok(())
}

fn all_bits_of_vni<R: Rig>(rig: &mut R) -> Result<()> {
    for vni in [0, 0xff_ffff, 0x12_3456] {
        let rule = rig.receiver()?.steer(&in_tunnel(vni, HeaderMatch::default()))?;
        for bit in 0..24 {
            send_tunnelled(rig, vni ^ 1 << bit, 7, None)?;
        }
        send_tunnelled(rig, vni, 7, None)?;
        let received = vnis(&rig.exchange(A_WHILE)?);
        ensure!(received == [vni], "{vni:#x}: {received:x?}");
        rig.receiver()?.unsteer(rule.rule);
    }
    Ok(())
}

fn no_tunnel<R: Rig>(rig: &mut R) -> Result<()> {
    rig.receiver()?.steer(&in_tunnel(77, HeaderMatch::default()).tag(0))?;
    // No valid identifier; another port; another protocol.
    for change in [(UDP_HEAD, 0), (37, (VXLAN_PORT & 0xff) as u8 + 1), (23, 6)] {
        send_tunnelled(rig, 77, 7, Some(change))?;
        let received = rig.exchange(A_WHILE)?.len();
        ensure!(received == 0, "byte {} changed, and it was steered", change.0);
    }
    send_tunnelled(rig, 77, 7, None)?;
    ensure!(rig.exchange(A_WHILE)?.len() == 1, "the tunnel itself");
    Ok(())
}

fn inner_headers<R: Rig>(rig: &mut R) -> Result<()> {
    let dns = TransportMatch { protocol: Protocol::Udp, src_port: None, dst_port: Some(53) };
    rig.receiver()?.steer(&in_tunnel(77, HeaderMatch { transport: Some(dns), ..HeaderMatch::default() }))?;
    for (vni, port) in [(77, 7), (77, 53), (78, 53)] {
        send_tunnelled(rig, vni, port, None)?;
    }
    // Port 53 outside says nothing about inside.
    send_udp(rig, 0, 53)?;
    let received: Vec<_> = rig.exchange(A_WHILE)?.iter().map(|f| (be32(&f.bytes, UDP_HEAD + 4) >> 8, be16(&f.bytes, 50 + 36))).collect();
    ensure!(received == [(77, 53)], "{received:?}");
    Ok(())
}
