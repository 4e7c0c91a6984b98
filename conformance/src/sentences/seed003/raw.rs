//! 003.1 to 003.3: frames that the program makes itself, past the kernel.

use core::time::Duration;
use std::net::SocketAddrV4;

use anyhow::{Context as _, Result, bail, ensure};
use ringway_stack::device::{
    ChecksumVerdict, EthernetMatch, FlowRule, HeaderMatch, IpMatch, Pacing, Protocol, Queues, Steering, TxOffload, VxlanMatch,
};
use ringway_stack::raw::RawQueue;

use super::{packets, tso};
use crate::sentences::frames::{UDP_HEAD, checksums_hold, flags, pattern};
use crate::sentences::{Case, Rig, Side, refusal};

/// Longer than any frame here is under way.
const A_WHILE: Duration = Duration::from_micros(200);
/// An ethertype for local experiments (IEEE 802), which no stack knows.
const EXPERIMENTAL: u16 = 0x88b5;

pub(super) fn supported<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("what a device lacks it refuses with a typed error; what it has it does", packets, refusals)]
}

pub(super) fn bypass<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("a request and its answer, through the device alone", packets, round_trip)]
}

pub(super) fn provided<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::new("headers arrive as they were provided, right or wrong", packets, headers_untouched),
        Case::new("of any protocol", |c| c.steering.contains(Steering::ETHERNET), any_ethertype),
        Case::new("checksums are filled in when asked for", |c| c.tx_checksum, checksum_asked_for),
        Case::new("segments are cut when asked for", tso, cut_only_when_asked),
        Case::new("a VLAN tag is inserted when asked for", |c| c.vlan_insert, vlan_asked_for),
    ]
}

fn refusals<R: Rig>(rig: &mut R) -> Result<()> {
    let capabilities = rig.capabilities();
    let head = rig.headers().tcp(0, flags::ACK, 1, &[], 4_000);
    let tos = FlowRule {
        outer: HeaderMatch { ip: Some(IpMatch::V4 { src: None, dst: None, tos: Some(4) }), ..HeaderMatch::default() },
        ..FlowRule::any()
    };
    let vxlan = FlowRule { vxlan: Some(VxlanMatch { vni: Some(1), inner: HeaderMatch::default() }), ..FlowRule::any() };
    let tagged = rig.rule(Protocol::Udp, 7).tag(9);
    let cut = TxOffload { tso_mss: Some(1_000), checksum: capabilities.tx_checksum, ..TxOffload::default() };
    let steers = |by| capabilities.steering.contains(by);
    let unlimited = Pacing::UNLIMITED;
    let ring = rig.sender()?;
    let asked: [(&str, bool, Result<()>); 8] = [
        ("pacing", capabilities.pacing, ring.pace(unlimited).map_err(Into::into)),
        ("TSO", capabilities.tso_max.is_some(), ring.send(&head, &pattern(4_000), cut).map_err(Into::into)),
        ("rates of flows", capabilities.paced_flows_max > 0, ring.set_rate(1, unlimited).map_err(Into::into)),
        ("completions", capabilities.completions, told(ring)),
        ("steering by ToS", steers(Steering::TOS), ring.steer(&tos).map(drop).map_err(Into::into)),
        ("flow tags", steers(Steering::TAG), ring.steer(&tagged).map(drop).map_err(Into::into)),
        ("steering by VXLAN", steers(Steering::VXLAN), ring.steer(&vxlan).map(drop).map_err(Into::into)),
        ("device memory", capabilities.device_memory > 0, ring.memory(64).map(drop).map_err(Into::into)),
    ];
    for (what, has, outcome) in asked {
        match (has, outcome) {
            (true, outcome) => outcome.with_context(|| format!("{what} is among its capabilities"))?,
            (false, Ok(())) => bail!("{what}: a silent no"),
            (false, Err(error)) => {
                let refused = refusal(&error).with_context(|| format!("{what}: no typed refusal: {error:#}"))?;
                ensure!(refused.device == capabilities.kind, "{what}: refused in another device's name");
            }
        }
    }
    rig.run_for(A_WHILE);
    Ok(())
}

/// A send that is to be told of.
fn told(ring: &mut RawQueue<impl Queues>) -> Result<()> {
    Ok(ring.send_with_cookie(&[0xff; 60], &[], TxOffload::default(), 1)?)
}

fn round_trip<R: Rig>(rig: &mut R) -> Result<()> {
    let headers = rig.headers();
    let rule = rig.rule(Protocol::Udp, 7);
    rig.receiver()?.steer(&rule)?;
    let request = pattern(300);
    rig.sender()?.send(&headers.udp(0, 7, request.len()), &request, TxOffload::default())?;
    let received = rig.exchange(A_WHILE)?;
    ensure!(received.len() == 1 && received[0].bytes[UDP_HEAD..] == request, "the request: {} frames", received.len());

    let back = FlowRule::flow(Protocol::Udp, SocketAddrV4::new(headers.from.ip, 9).into(), None);
    rig.sender()?.steer(&back)?;
    let answer: Vec<u8> = request.iter().rev().copied().collect();
    rig.receiver()?.send(&headers.reversed().udp(0, 9, answer.len()), &answer, TxOffload::default())?;
    rig.run_for(A_WHILE);
    let received = rig.arrived(Side::Sender, 0)?;
    ensure!(received.len() == 1 && received[0].bytes[UDP_HEAD..] == answer, "the answer: {} frames", received.len());
    Ok(())
}

fn headers_untouched<R: Rig>(rig: &mut R) -> Result<()> {
    let rule = rig.rule(Protocol::Udp, 7);
    rig.receiver()?.steer(&rule)?;
    let right = rig.headers().udp(0x28, 7, 100);
    let payload = pattern(100);
    // Identification, time to live, IP checksum, UDP length, UDP checksum: nobody's business but the program's.
    for at in [18, 22, 24, 38, 40] {
        let mut head = right.clone();
        head[at] ^= 0x55;
        rig.sender()?.send(&head, &payload, TxOffload::default())?;
        let received = rig.exchange(A_WHILE)?;
        ensure!(received.len() == 1, "byte {at} changed: {} frames", received.len());
        ensure!(received[0].bytes == [&head[..], &payload].concat(), "byte {at} changed: something was mended");
    }
    Ok(())
}

fn any_ethertype<R: Rig>(rig: &mut R) -> Result<()> {
    let ethernet = EthernetMatch { ethertype: Some(EXPERIMENTAL), ..EthernetMatch::default() };
    rig.receiver()?.steer(&FlowRule { outer: HeaderMatch { ethernet, ..HeaderMatch::default() }, ..FlowRule::any() })?;
    let (head, payload) = (rig.headers().ethernet(EXPERIMENTAL), pattern(700));
    rig.sender()?.send(&head, &payload, TxOffload::default())?;
    let received = rig.exchange(A_WHILE)?;
    ensure!(received.len() == 1 && received[0].bytes == [head, payload].concat(), "{} frames", received.len());
    Ok(())
}

fn checksum_asked_for<R: Rig>(rig: &mut R) -> Result<()> {
    let capabilities = rig.capabilities();
    for protocol in [Protocol::Udp, Protocol::Tcp] {
        let port = if protocol == Protocol::Udp { 7 } else { 80 };
        let rule = rig.rule(protocol, port);
        rig.receiver()?.steer(&rule)?;
        let payload = pattern(501);
        let headers = rig.headers();
        let mut head = match protocol {
            Protocol::Udp => headers.udp(0, port, payload.len()),
            Protocol::Tcp => headers.tcp(0, flags::ACK, 7, &[], payload.len()),
        };
        head[24..26].fill(0xee);
        rig.sender()?.send(&head, &payload, TxOffload { checksum: true, ..TxOffload::default() })?;
        let received = rig.exchange(A_WHILE)?;
        ensure!(received.len() == 1, "{protocol:?}: {} frames", received.len());
        // Between processes that share memory nobody reads checksums, and the verdict says that the bytes are right.
        ensure!(capabilities.point_to_point || checksums_hold(&received[0].bytes), "{protocol:?}: wrong on the wire");
        ensure!(!capabilities.rx_checksum || received[0].meta.checksum == ChecksumVerdict::Good, "{protocol:?}: the verdict");
    }
    Ok(())
}

fn cut_only_when_asked<R: Rig>(rig: &mut R) -> Result<()> {
    let rule = rig.rule(Protocol::Tcp, 80);
    rig.receiver()?.steer(&rule)?;
    let payload = pattern(rig.capabilities().mtu - 40);
    let head = rig.headers().tcp(0, flags::ACK, 7, &[], payload.len());
    let checksum = rig.sender()?.checksums();
    for (tso_mss, frames) in [(None, 1), (Some(600), payload.len().div_ceil(600))] {
        rig.sender()?.send(&head, &payload, TxOffload { tso_mss, ..checksum })?;
        let received = rig.exchange(A_WHILE)?;
        ensure!(received.len() == frames, "{tso_mss:?}: {} frames, not {frames}", received.len());
    }
    Ok(())
}

fn vlan_asked_for<R: Rig>(rig: &mut R) -> Result<()> {
    const TAG: u16 = 0x6005;
    let rule = rig.rule(Protocol::Udp, 7);
    rig.receiver()?.steer(&rule)?;
    let (head, payload) = (rig.headers().udp(0, 7, 100), pattern(100));
    for vlan in [Some(TAG), None] {
        rig.sender()?.send(&head, &payload, TxOffload { vlan, ..TxOffload::default() })?;
        let received = rig.exchange(A_WHILE)?;
        ensure!(received.len() == 1, "{vlan:?}: {} frames", received.len());
        let frame = &received[0];
        let on_wire = (frame.bytes[12..14] == [0x81, 0]).then(|| u16::from_be_bytes([frame.bytes[14], frame.bytes[15]]));
        ensure!(frame.meta.vlan.or(on_wire) == vlan, "{vlan:?}: {:?} beside the frame, {on_wire:?} in it", frame.meta.vlan);
    }
    Ok(())
}
