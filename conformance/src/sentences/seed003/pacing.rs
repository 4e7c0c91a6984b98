//! 003.4: the rate of each send queue.

use core::time::Duration;

use anyhow::{Result, ensure};
use ringway_stack::device::{Pacing, Protocol, TxOffload};

use super::pacing;
use crate::sentences::frames::{TCP_HEAD, UDP_HEAD, be16, flags, pattern};
use crate::sentences::{Case, Received, Rig, Side};

/// Bytes of a frame.
const FRAME: usize = 1_000;
const PORT: u16 = 7;
/// Frames that leave one behind the other, at most this far apart.
const AT_ONCE: Duration = Duration::from_micros(10);

pub(super) fn rate_of_each<R: Rig>() -> Vec<Case<R>> {
    vec![
        Case::new("the rate, within 1% over a hundred frames", pacing, rate),
        Case::new("a burst leaves at once, and no more than it", pacing, burst),
        Case::new("an idle queue saves one burst up, and no more", pacing, burst_refills),
        Case::new("without a burst, typical packets are evenly spaced", pacing, typical_packet),
        Case::new("each send queue has its own", |c| c.pacing && c.rings_max > 2, per_send_queue),
        Case::new("it can be changed, and a rate of 0 lifts it", pacing, lifted),
        Case::new("what TSO cuts is paced packet by packet", |c| c.pacing && c.tso_max.is_some(), segments_are_paced),
    ]
}

/// A rate alone, of frames of that length.
const fn kbps(rate_kbps: u32) -> Pacing {
    Pacing { rate_bps: rate_kbps as u64 * 1000, burst_bytes: FRAME as u32, typical_packet_bytes: FRAME as u16 }
}

fn steer<R: Rig>(rig: &mut R, port: u16) -> Result<()> {
    let rule = rig.rule(Protocol::Udp, port);
    rig.receiver()?.steer(&rule)?;
    Ok(())
}

fn queue<R: Rig>(rig: &mut R, ring: usize, port: u16, frames: usize) -> Result<()> {
    let payload = [7; FRAME - UDP_HEAD];
    let head = rig.headers().udp(0, port, payload.len());
    for _ in 0..frames {
        rig.ring(Side::Sender, ring)?.send(&head, &payload, TxOffload::default())?;
    }
    Ok(())
}

/// The times between neighbours.
fn gaps<'a>(received: impl IntoIterator<Item = &'a Received>) -> Vec<Duration> {
    let times: Vec<_> = received.into_iter().map(|frame| frame.at).collect();
    times.windows(2).map(|pair| pair[1].since(pair[0])).collect()
}

/// Whether `time` is what `bytes` take at this rate, within a hundredth.
fn takes(time: Duration, bytes: usize, rate_kbps: u32) -> bool {
    let right_ns = bytes as u128 * 8_000_000 / u128::from(rate_kbps);
    time.as_nanos().abs_diff(right_ns) * 100 <= right_ns
}

fn rate<R: Rig>(rig: &mut R) -> Result<()> {
    const FRAMES: usize = 101;
    steer(rig, PORT)?;
    for rate_kbps in [10_000, 100_000, 1_000_000] {
        rig.sender()?.pace(kbps(rate_kbps))?;
        queue(rig, 0, PORT, FRAMES)?;
        let window = Duration::from_nanos(FRAME as u64 * 8_000_000 / u64::from(rate_kbps)) * (FRAMES as u32 + 10);
        let received = rig.exchange(window)?;
        ensure!(received.len() == FRAMES, "{rate_kbps} kbit/s: {} of {FRAMES} frames", received.len());
        let took: Duration = gaps(&received).iter().sum();
        ensure!(takes(took, (FRAMES - 1) * FRAME, rate_kbps), "{rate_kbps} kbit/s: a hundred frames took {took:?}");
    }
    Ok(())
}

fn burst<R: Rig>(rig: &mut R) -> Result<()> {
    const BURST: usize = 5;
    steer(rig, PORT)?;
    rig.sender()?.pace(Pacing { rate_bps: 8_000_000, burst_bytes: (BURST * FRAME) as u32, typical_packet_bytes: FRAME as u16 })?;
    queue(rig, 0, PORT, 12)?;
    let gaps = gaps(&rig.exchange(Duration::from_millis(20))?);
    ensure!(gaps.len() == 11, "{} of 12 frames", gaps.len() + 1);
    let (in_burst, behind) = gaps.split_at(BURST - 1);
    ensure!(in_burst.iter().all(|gap| *gap < AT_ONCE), "the burst is spread: {in_burst:?}");
    ensure!(behind.iter().all(|gap| takes(*gap, FRAME, 8_000)), "behind the burst, not at the rate: {behind:?}");
    Ok(())
}

fn burst_refills<R: Rig>(rig: &mut R) -> Result<()> {
    const BURST: usize = 3;
    steer(rig, PORT)?;
    rig.sender()?.pace(Pacing { rate_bps: 8_000_000, burst_bytes: (BURST * FRAME) as u32, typical_packet_bytes: FRAME as u16 })?;
    for round in 0..3 {
        queue(rig, 0, PORT, BURST + 2)?;
        // Enough for ten bursts to be saved up, if that were allowed.
        let gaps = gaps(&rig.exchange(Duration::from_millis(30))?);
        ensure!(gaps.len() == BURST + 1, "round {round}: {} frames", gaps.len() + 1);
        let quick = gaps.iter().take_while(|gap| **gap < AT_ONCE).count();
        ensure!(quick == BURST - 1, "round {round}: {} frames at once, not {BURST}", quick + 1);
    }
    Ok(())
}

fn typical_packet<R: Rig>(rig: &mut R) -> Result<()> {
    steer(rig, PORT)?;
    rig.sender()?.pace(Pacing { rate_bps: 8_000_000, burst_bytes: 0, typical_packet_bytes: FRAME as u16 })?;
    queue(rig, 0, PORT, 10)?;
    let gaps = gaps(&rig.exchange(Duration::from_millis(20))?);
    ensure!(gaps.len() == 9, "{} of 10 frames", gaps.len() + 1);
    ensure!(gaps.iter().all(|gap| takes(*gap, FRAME, 8_000)), "{gaps:?}");
    Ok(())
}

fn per_send_queue<R: Rig>(rig: &mut R) -> Result<()> {
    const FRAMES: usize = 20;
    for (ring, rate_kbps) in [(0, Some(8_000)), (1, Some(16_000)), (2, None)] {
        let port = PORT + ring as u16;
        steer(rig, port)?;
        if let Some(rate_kbps) = rate_kbps {
            rig.ring(Side::Sender, ring)?.pace(kbps(rate_kbps))?;
        }
        queue(rig, ring, port, FRAMES)?;
    }
    let received = rig.exchange(Duration::from_millis(40))?;
    let took = |ring: u16| -> (usize, Duration) {
        let gaps = gaps(received.iter().filter(|frame| be16(&frame.bytes, 36) == PORT + ring));
        (gaps.len(), gaps.iter().sum())
    };
    for (ring, rate_kbps) in [(0, 8_000), (1, 16_000)] {
        let (gaps, took) = took(ring);
        ensure!(gaps == FRAMES - 1 && takes(took, gaps * FRAME, rate_kbps), "queue {ring}: {gaps} gaps in {took:?}");
    }
    let (gaps, took) = took(2);
    ensure!(gaps == FRAMES - 1 && took < AT_ONCE * 10, "the queue without a rate: {gaps} gaps in {took:?}");
    Ok(())
}

fn lifted<R: Rig>(rig: &mut R) -> Result<()> {
    steer(rig, PORT)?;
    for rate_kbps in [8_000, 80_000, 0] {
        rig.sender()?.pace(kbps(rate_kbps))?;
        queue(rig, 0, PORT, 10)?;
        let took: Duration = gaps(&rig.exchange(Duration::from_millis(20))?).iter().sum();
        let right = if rate_kbps == 0 { took < AT_ONCE * 9 } else { takes(took, 9 * FRAME, rate_kbps) };
        ensure!(right, "{rate_kbps} kbit/s: ten frames in {took:?}");
    }
    Ok(())
}

fn segments_are_paced<R: Rig>(rig: &mut R) -> Result<()> {
    const MSS: u16 = (FRAME - TCP_HEAD) as u16;
    let rule = rig.rule(Protocol::Tcp, 80);
    rig.receiver()?.steer(&rule)?;
    rig.sender()?.pace(kbps(8_000))?;
    let payload = pattern(10 * usize::from(MSS));
    let head = rig.headers().tcp(0, flags::ACK, 1, &[], payload.len());
    let offload = TxOffload { tso_mss: Some(MSS), ..rig.sender()?.checksums() };
    rig.sender()?.send(&head, &payload, offload)?;
    let gaps = gaps(&rig.exchange(Duration::from_millis(20))?);
    ensure!(gaps.len() == 9, "{} of 10 segments", gaps.len() + 1);
    ensure!(gaps.iter().all(|gap| takes(*gap, FRAME, 8_000)), "{gaps:?}");
    Ok(())
}
