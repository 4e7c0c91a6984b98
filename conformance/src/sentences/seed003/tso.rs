//! 003.5 to 003.7: TCP segmentation offload.

use core::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use ringway_stack::device::{ChecksumVerdict, Protocol, SendError, TxOffload};
use ringway_stack::raw::RawError;

use super::tso;
use crate::sentences::frames::{TCP_HEAD, be16, be32, checksums_hold, flags, pattern};
use crate::sentences::{Case, Received, Rig};

const A_WHILE: Duration = Duration::from_micros(400);
const MSS: u16 = 1_000;
/// So that sequence numbers wrap around zero in the middle of the data.
const SEQ: u32 = u32::MAX - 3_500;
/// Two no-operations and a timestamp (RFC 7323).
const OPTIONS: [u8; 12] = [1, 1, 8, 10, 0xaa, 0xbb, 0xcc, 0xdd, 1, 2, 3, 4];

pub(super) fn accepts<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::new("data of every size up to the device's limit arrives whole", tso, every_size),
        Case::new("beyond it, or without TSO beyond the MTU, it is too long", tso, too_long),
    ]
}

pub(super) fn splits<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::new("packets of the segment size asked for, none beyond the MTU", tso, packet_sizes),
        Case::new("the user's L2/L3/L4 headers in each, options and all", tso, headers_in_each),
        Case::new("sequence numbers and identifications count up, lengths are each packet's", tso, fields_count),
        Case::new("PSH and FIN on the last only, CWR on the first only", tso, flags_in_place),
        Case::new("checksums are right in each", tso, checksums_in_each),
    ]
}

pub(super) fn offloads<R: Rig>() -> Vec<Case<R>> {
    vec![Case::new("one send call and one doorbell make every packet", tso, one_call)]
}

/// Sends data of `len` bytes with one call, and gives what arrived of it.
fn send<R: Rig>(rig: &mut R, flags: u8, options: &[u8], len: usize) -> Result<Vec<Received>> {
    let head = rig.headers().tcp(0x28, flags, SEQ, options, len);
    let offload = TxOffload { tso_mss: Some(MSS), ..rig.sender()?.checksums() };
    rig.sender()?.send(&head, &pattern(len), offload).with_context(|| format!("{len} bytes"))?;
    Ok(rig.exchange(A_WHILE)?)
}

fn steer<R: Rig>(rig: &mut R) -> Result<()> {
    let rule = rig.rule(Protocol::Tcp, 80);
    rig.receiver()?.steer(&rule)?;
    Ok(())
}

/// The longest data behind headers of `head` bytes.
fn data_max<R: Rig>(rig: &R, head: usize) -> usize {
    // An IPv4 packet's length has 16 bits, whatever the device takes.
    rig.capabilities().tso_max.unwrap_or(0).min(usize::from(u16::MAX)).saturating_sub(head)
}

fn every_size<R: Rig>(rig: &mut R) -> Result<()> {
    steer(rig)?;
    let (mtu, mss) = (rig.capabilities().mtu, usize::from(MSS));
    for len in [100, mss, mss + 1, mtu + 1, 2 * mtu, 10 * mss, 10 * mss + 999, 40_000, data_max(rig, TCP_HEAD)] {
        let joined: Vec<u8> = send(rig, flags::ACK, &[], len)?.iter().flat_map(|frame| frame.bytes[TCP_HEAD..].to_vec()).collect();
        ensure!(joined == pattern(len), "{len} bytes: {} arrived, or others", joined.len());
    }
    Ok(())
}

fn too_long<R: Rig>(rig: &mut R) -> Result<()> {
    let capabilities = rig.capabilities();
    let (mtu, tso_max) = (capabilities.mtu, capabilities.tso_max.unwrap_or(0));
    let checksums = rig.sender()?.checksums();
    let cut = |mss: usize| TxOffload { tso_mss: u16::try_from(mss).ok(), ..checksums };
    let tries =
        [("no TSO", mtu, checksums), ("beyond the limit", tso_max, cut(1_000)), ("segments beyond the MTU", 2 * mtu, cut(mtu - 39))];
    for (what, len, offload) in tries {
        let head = rig.headers().tcp(0, flags::ACK, 1, &[], len);
        let sent = rig.sender()?.send(&head, &pattern(len), offload);
        match sent {
            Err(RawError::Send(SendError::TooLong)) => {}
            Err(other) => return Err(other).context(what),
            Ok(()) => bail!("{what}: taken"),
        }
    }
    ensure!(rig.exchange(A_WHILE)?.is_empty(), "a refused frame left");
    Ok(())
}

fn packet_sizes<R: Rig>(rig: &mut R) -> Result<()> {
    steer(rig)?;
    let mtu = rig.capabilities().mtu;
    let sizes: Vec<usize> = send(rig, flags::ACK, &[], 4_250)?.iter().map(|frame| frame.bytes.len() - TCP_HEAD).collect();
    ensure!(sizes == [1_000, 1_000, 1_000, 1_000, 250], "{sizes:?}");
    // The longest segment that the MTU allows.
    let mss = u16::try_from(mtu - 40).unwrap_or(u16::MAX);
    let head = rig.headers().tcp(0, flags::ACK, SEQ, &[], 3 * mtu);
    let offload = TxOffload { tso_mss: Some(mss), ..rig.sender()?.checksums() };
    rig.sender()?.send(&head, &pattern(3 * mtu), offload)?;
    let sizes: Vec<usize> = rig.exchange(A_WHILE)?.iter().map(|frame| frame.bytes.len() - 14).collect();
    ensure!(sizes == [mtu, mtu, mtu, 40 + 3 * 40], "packets of {sizes:?} for an MTU of {mtu}");
    Ok(())
}

fn headers_in_each<R: Rig>(rig: &mut R) -> Result<()> {
    steer(rig)?;
    let given = rig.headers().tcp(0x28, flags::ACK, SEQ, &OPTIONS, 5_000);
    let received = send(rig, flags::ACK, &OPTIONS, 5_000)?;
    ensure!(received.len() == 5, "{} packets", received.len());
    // All but what must differ: IP length, identification and checksum, sequence number, flags, TCP checksum.
    let kept = [0..16, 20..24, 26..38, 42..47, 48..50, 52..66];
    for (i, frame) in received.iter().enumerate() {
        for part in kept.clone() {
            ensure!(frame.bytes[part.clone()] == given[part.clone()], "packet {i}: bytes {part:?}");
        }
    }
    Ok(())
}

fn fields_count<R: Rig>(rig: &mut R) -> Result<()> {
    steer(rig)?;
    let received = send(rig, flags::ACK, &[], 9_500)?;
    ensure!(received.len() == 10, "{} packets", received.len());
    let first_id = be16(&rig.headers().tcp(0, 0, 0, &[], 0), 18);
    for (i, frame) in (0u16..).zip(&received) {
        let (len, id, seq) = (be16(&frame.bytes, 16), be16(&frame.bytes, 18), be32(&frame.bytes, 38));
        ensure!(usize::from(len) == frame.bytes.len() - 14, "packet {i}: length {len}");
        ensure!(id == first_id.wrapping_add(i), "packet {i}: identification {id:#x}");
        ensure!(seq == SEQ.wrapping_add(u32::from(i) * u32::from(MSS)), "packet {i}: sequence number {seq}");
    }
    Ok(())
}

fn flags_in_place<R: Rig>(rig: &mut R) -> Result<()> {
    steer(rig)?;
    let all = flags::ACK | flags::PSH | flags::FIN | flags::CWR;
    let marks: Vec<u8> = send(rig, all, &[], 4_000)?.iter().map(|frame| frame.bytes[47]).collect();
    let right = [flags::ACK | flags::CWR, flags::ACK, flags::ACK, flags::ACK | flags::PSH | flags::FIN];
    ensure!(marks == right, "{marks:02x?}");
    let alone: Vec<u8> = send(rig, all, &[], 500)?.iter().map(|frame| frame.bytes[47]).collect();
    ensure!(alone == [all], "a single packet is first and last: {alone:02x?}");
    Ok(())
}

fn checksums_in_each<R: Rig>(rig: &mut R) -> Result<()> {
    steer(rig)?;
    for options in [&[][..], &OPTIONS] {
        let received = send(rig, flags::ACK | flags::PSH, options, 7_777)?;
        ensure!(received.len() == 8, "{} packets", received.len());
        for (i, frame) in received.iter().enumerate() {
            let (are_left, verdict) = (rig.leaves_checksums(), frame.meta.checksum);
            ensure!(are_left || checksums_hold(&frame.bytes), "packet {i} with {} bytes of options", options.len());
            ensure!(verdict != ChecksumVerdict::Bad, "packet {i}: the receiver's verdict");
            ensure!(!are_left || verdict == ChecksumVerdict::Good, "packet {i}: the receiver's verdict: {verdict:?}");
        }
    }
    Ok(())
}

fn one_call<R: Rig>(rig: &mut R) -> Result<()> {
    steer(rig)?;
    let len = data_max(rig, TCP_HEAD);
    let received = send(rig, flags::ACK, &[], len)?;
    ensure!(received.len() == len.div_ceil(usize::from(MSS)), "{} packets of {len} bytes", received.len());
    Ok(())
}
