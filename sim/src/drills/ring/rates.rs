//! Sockets with rates of their own, on a NIC that paces them (SO_MAX_PACING_RATE, socket(7)).

use core::time::Duration;
use std::io::IoSlice;
use std::net::SocketAddrV4;

use ringway_stack::device::Pacing;
use ringway_stack::ring::{FlowId, NextHop, Ring, RingConfig, UdpOptions};
use ringway_stack::{Error, Instant};

use super::host::{OURS, address};
use crate::dissect::{self, Payload};
use crate::drills::bench::{Bench, bytes_at};
use crate::drills::card::{OWN, PEER};
use crate::{Nic, NicConfig, SimQueues};

/// A socket, and when frames of which length left of what it sent.
struct Sender {
    socket: FlowId,
    port: u16,
    rate: Option<Pacing>,
    left: Vec<(Instant, usize)>,
}

/// Of sockets in one ring, each keeps to its own rate on the wire, and none waits for another; a socket in the place of one that was closed has none.
pub(in crate::drills) fn rates(bench: &mut Bench) {
    let nic = Nic::new(OWN, NicConfig { inline_max: bench.pick(&[0, 128, 204]), paced_flows_max: 2, ..NicConfig::default() });
    let config = RingConfig { addresses: OURS.map(Into::into).to_vec(), ..RingConfig::default() };
    let mut ring = bench.infected(Ring::new(nic.ring(), config, [5; 32]));
    let mut senders = [500, 501, 502].map(|port| open(bench, &mut ring, port));
    for sender in &mut senders[..2] {
        limit(bench, &mut ring, sender);
    }
    let refused = ring.set_rate(Instant::from_nanos(1_000_000), senders[2].socket, Pacing { rate_bps: 1_000_000, ..Pacing::UNLIMITED });
    bench.must(refused == Err(Error::NoBuffers), format_args!("{refused:?} of a rate for a third socket, where two can have one"));
    let mut now = Instant::from_nanos(1_000_000);
    for _ in 0..bench.between(10, 30) {
        senders.iter().for_each(|sender| send(bench, &mut ring, sender, now));
    }
    now = wire(&nic, now, &mut senders);
    senders.iter().for_each(|sender| keeps_rate(bench, sender, Instant::from_nanos(1_000_000)));

    // Its place is the next one's.
    let paced = senders[0].socket;
    ring.close(now, paced, false);
    let mut next = [open(bench, &mut ring, 503)];
    bench.must(ring.rate(next[0].socket).is_none(), "a new socket has a rate");
    (0..20).for_each(|_| send(bench, &mut ring, &next[0], now));
    wire(&nic, now, &mut next);
    keeps_rate(bench, &next[0], now);
    let [next] = next;
    limit(bench, &mut ring, &mut Sender { left: Vec::new(), ..next });
}

fn open(bench: &Bench, ring: &mut Ring<SimQueues>, port: u16) -> Sender {
    let socket = ring.udp_open(SocketAddrV4::new(OURS[0], port).into(), &UdpOptions::default());
    bench.must(socket.is_ok(), format_args!("{socket:?} of a socket"));
    Sender { socket: socket.expect("it was opened"), port, rate: None, left: Vec::new() }
}

/// Gives a socket a rate that is drawn.
fn limit(bench: &mut Bench, ring: &mut Ring<SimQueues>, sender: &mut Sender) {
    let rate = Pacing {
        rate_bps: bench.between(1_000, 1_000_000) * 1_000,
        burst_bytes: bench.pick(&[0, 1_514, 4_000]),
        typical_packet_bytes: bench.pick(&[0, 300]),
    };
    let set = ring.set_rate(Instant::from_nanos(1_000_000), sender.socket, rate);
    bench.must(set.is_ok() && ring.rate(sender.socket) == Some(rate), format_args!("{set:?} of {rate:?}"));
    sender.rate = Some(rate);
}

fn send(bench: &mut Bench, ring: &mut Ring<SimQueues>, sender: &Sender, now: Instant) {
    let bytes = bytes_at(0, bench.between(1, 1_400) as usize);
    let to = Some((address(2, 600).into(), NextHop::Mac(PEER)));
    let sent = ring.udp_send(now, sender.socket, &[IoSlice::new(&bytes)], OURS[0].into(), to);
    bench.must(sent == Ok(bytes.len()), format_args!("send(2): {sent:?} of {} bytes", bytes.len()));
}

/// Lets all that the NIC was given leave. When the last one did.
fn wire(nic: &Nic, mut now: Instant, senders: &mut [Sender]) -> Instant {
    loop {
        while let Some(frame) = nic.transmit(now) {
            nic.complete();
            let Payload::Ip(ip) = dissect::payload(&frame) else { continue };
            let port = dissect::ports(&frame, &ip).map(|(from, _)| from.port());
            // (As it was handed over: what pads it is Ethernet's.)
            let of = senders.iter_mut().find(|sender| Some(sender.port) == port);
            of.into_iter().for_each(|sender| sender.left.push((now, ip.end)));
        }
        match nic.next_at() {
            Some(at) => now = now.max(at),
            None => return now,
        }
    }
}

/// No more bytes in any time than the rate has for it, and a burst; and no longer for all of them than they take at the rate.
fn keeps_rate(bench: &Bench, sender: &Sender, began: Instant) {
    const SLACK: Duration = Duration::from_micros(1);
    let (port, left) = (sender.port, &sender.left);
    let Some(&(last, _)) = left.last() else { return bench.must(false, format_args!("nothing left of port {port}")) };
    let Some(rate) = sender.rate else {
        return bench.must(last == began, format_args!("port {port}, which has no rate, waits {:?}", last.since(began)));
    };
    let takes = |bytes: usize| Duration::from_nanos((bytes as u128 * 8_000_000_000 / u128::from(rate.rate_bps)) as u64);
    let longest = left.iter().map(|(_, len)| *len).max().unwrap_or(0);
    let burst = match (rate.burst_bytes, rate.typical_packet_bytes) {
        (0, 0) => 1_514,
        (0, typical) => usize::from(typical),
        (burst, _) => burst as usize,
    };
    for (i, &(from, _)) in left.iter().enumerate() {
        let mut bytes = 0;
        for &(to, len) in &left[i + 1..] {
            bytes += len;
            let least = takes(bytes.saturating_sub(burst.max(longest)));
            bench.must(
                to.since(from) + SLACK >= least,
                format_args!("SO_MAX_PACING_RATE: {bytes} bytes of port {port} in {:?}, at {rate:?}", to.since(from)),
            );
        }
    }
    let all: usize = left.iter().map(|(_, len)| *len).sum();
    bench
        .must(last.since(began) <= takes(all) + SLACK, format_args!("{all} bytes of port {port} take {:?} at {rate:?}", last.since(began)));
}
