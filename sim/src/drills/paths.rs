//! Paths whose MTU is smaller than the link's, and what is none of their doing (RFC 1191, RFC 8201, RFC 4821).

use core::time::Duration;

use ringway_stack::ring::SendFlags;

use super::Drill;
use super::bench::{Bench, Heard};
use super::card::{OWN, PEER};
use crate::addresses::ipv4;
use crate::checksum;
use crate::dissect::{self, Payload};
use crate::segment::ACK;

pub(super) const DRILLS: &[Drill] = &[("a packet that is too big", too_big), ("small segments that are lost", small_losses)];

const HEADERS: u32 = 40;
const STAMPS: u32 = 12;
/// Linux's min_pmtu.
const FLOOR: u32 = 552;
/// The plateau below an Ethernet's MTU (RFC 1191 s7.1).
const BELOW_ETHERNET: u32 = 1492;

/// RFC 1191 s5, s6.4: what was too big goes again at once in packets that fit, or that the next plateau says may fit; RFC 8201 s5.4: and it was not lost by
/// congestion.
fn too_big(bench: &mut Bench) {
    let mut setup = bench.setup();
    (setup.mss, setup.window, setup.scale) = (1460, 60_000, None);
    let mut peer = bench.connect(&setup);
    bench.write(&peer, 0, 14_000, SendFlags::empty());
    let sent = bench.take();
    sent.iter().for_each(|heard| bench.take_in(&mut peer, heard));
    bench.must(sent.len() >= 9, format_args!("RFC 6928 s2: {} segments at first", sent.len()));
    let is_old = bench.chance(2);
    let mtu = if is_old { BELOW_ETHERNET } else { bench.between(68, 1480) as u32 };
    report(bench, &sent[0], if is_old { 0 } else { mtu as u16 });
    // No report makes packets smaller than that (RFC 5927 s7.3).
    let mtu = mtu.max(FLOOR);
    let again = bench.take();
    let most = mtu - HEADERS - if peer.stamps { STAMPS } else { 0 };
    let first = again.first().map(|heard| (heard.seq, heard.len()));
    bench.must(
        first == Some((sent[0].seq, most)),
        format_args!("RFC 1191 s5, s7.1: {first:?} is sent again of {}, for an MTU of {mtu}, told ({})", sent[0].seq, !is_old),
    );
    again.iter().for_each(|heard| bench.bytes_are_right(&peer, heard));
    let fit = again.iter().all(|heard| heard.len() <= most);
    bench.must(fit, format_args!("RFC 1191 s6.4: segments that do not fit into {mtu}"));
    bench.must(
        again.len() >= 5,
        format_args!("RFC 8201 s5.4: {} segments of {} are sent again, as if they were lost by congestion", again.len(), sent.len()),
    );
    bench.ring.close(bench.now, peer.id(), true);
}

/// A router says that it has dropped a packet, which was too big.
fn report(bench: &mut Bench, dropped: &Heard, mtu: u16) {
    unreachable(bench, dropped, 4, mtu);
}

/// A router says that it has dropped a packet, for the reason that `code` says (RFC 792).
pub(super) fn unreachable(bench: &mut Bench, dropped: &Heard, code: u8, mtu: u16) {
    let Payload::Ip(ip) = dissect::payload(&dropped.bytes) else { return };
    let mut message = vec![3, code, 0, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend(&dropped.bytes[ip.offset..ip.l4 + 8]);
    let sum = !checksum::sum(0, &message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = [&OWN.0[..], &PEER.0[..], &[8, 0, 0x45, 0]].concat();
    frame.extend((20 + message.len() as u16).to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, 1, 0, 0, 10, 0, 0, 254]);
    frame.extend(ipv4(ip.src).octets());
    frame.extend(message);
    checksum::fill_ip_header(&mut frame);
    bench.give_frame(frame);
    bench.poll();
}

/// RFC 2923 s2.1, RFC 4821 s7.7: that small segments are lost says nothing of the path's MTU.
fn small_losses(bench: &mut Bench) {
    let mut setup = bench.setup();
    (setup.mss, setup.window, setup.scale) = (1460, 60_000, None);
    let mut peer = bench.connect(&setup);
    let len = bench.between(1, 500) as usize;
    bench.write(&peer, 0, len, SendFlags::empty());
    bench.receive(&mut peer);
    for _ in 0..bench.between(2, 5) {
        let again = bench.await_segment(Duration::from_secs(10));
        bench.must(again.is_some(), "RFC 6298 s5.4: what is lost is sent again");
    }
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    bench.take();
    bench.write(&peer, len, 6000, SendFlags::empty());
    let next = bench.take().first().map(|heard| heard.len());
    bench.must(
        next == Some(peer.mss),
        format_args!("RFC 4821 s7.7: {next:?} bytes in a full segment of {}, after small ones were lost", peer.mss),
    );
    bench.ring.close(bench.now, peer.id(), true);
}
