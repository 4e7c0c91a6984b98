//! A connection that moves to another ring by way of bytes goes on as if it had not: whatever its peer sees, and its program, is what they would have seen.

use core::time::Duration;

use ringway_stack::ring::{NextHop, Ring, RingConfig, SendFlags, Shutdown};
use ringway_stack::tcp::{Config, Keepalive, State};

use super::Drill;
use super::bench::{Bench, Heard, Peer, TIME_WAIT, describe};
use super::card::{Card, PEER};
use super::paths;
use crate::segment::{ACK, FIN, PSH};

pub(super) const DRILLS: &[Drill] = &[("a connection that moves unnoticed", unnoticed)];

/// What was seen: each frame with its time, and after each step how the connection stood.
type Transcript = (Vec<Heard>, Vec<String>);

/// One connection, played twice.
fn unnoticed(bench: &mut Bench) {
    let seed = bench.below(u64::MAX);
    let [stays, moves] = [false, true].map(|moves| transcript(&mut bench.another(seed), moves));
    let what = |heard: &Heard| {
        let mut bytes = heard.bytes.clone();
        // IP's identification is the ring's (RFC 6864 s4.1), and with it the header's checksum.
        for at in [18, 19, 24, 25] {
            bytes[at] = 0;
        }
        (heard.at, bytes)
    };
    let which = stays.0.iter().zip(&moves.0).find(|(one, other)| what(one) != what(other));
    let which = which.map(|(one, other)| [one, other].map(|heard| format!("{} ns: {}", heard.at.as_nanos(), describe(heard))));
    bench.must(
        which.is_none() && stays.0.len() == moves.0.len(),
        format_args!("{} frames of a connection that stays, and {} of one that moves: {which:?}", stays.0.len(), moves.0.len()),
    );
    let which = stays.1.iter().zip(&moves.1).find(|(one, other)| one != other);
    bench.must(which.is_none(), format_args!("a connection that moved stands otherwise than if it had not: {which:?}"));
}

fn transcript(bench: &mut Bench, moves: bool) -> Transcript {
    let mut setup = bench.setup();
    // (Sizes of buffers are the connection's, or the host's.)
    setup.config.rcvbuf = setup.config.rcvbuf.filter(|_| bench.chance(2));
    setup.config.nodelay = bench.chance(2);
    let mut peer = bench.connect(&setup);
    let mut end = End { written: 0, seen: peer.rcv, gap: 0, last: None, frames: Vec::new() };
    let mut standing = Vec::new();
    for _ in 0..bench.between(10, 60) {
        if bench.chance(3) && moves {
            bench_moves(bench, &setup.config, &mut peer);
        }
        step(bench, &mut peer, &mut end);
        end.hear(bench, &mut peer);
        let info = bench.ring.info(peer.id()).map(|info| format!("{info:?}"));
        let readiness = bench.ring.readiness(peer.id());
        standing.push(format!("{:?} {readiness:?} {info:?}", bench.state(&peer)));
    }
    bench.ring.close(bench.now, peer.id(), true);
    (end.frames, standing)
}

/// It goes to another ring, which knows of the program's options only what comes with it.
fn bench_moves(bench: &mut Bench, config: &Config, peer: &mut Peer) {
    let Ok(handover) = bench.ring.detach_stream(bench.now, peer.id()) else { return };
    let ends = (handover.local(), handover.remote());
    let Some(bytes) = handover.snapshot() else {
        // It is over.
        let back = bench.ring.adopt(bench.now, handover).map_err(|(error, _)| error);
        bench.must(back.is_ok(), format_args!("{back:?} of a connection that comes back"));
        peer.socket = back.ok();
        return;
    };
    drop(handover);
    let ring_config = RingConfig { time_wait: TIME_WAIT, ..RingConfig::default() };
    bench.ring = bench.infected(Ring::new(Card::new(&bench.wire), ring_config, [9; 32]));
    let base = Config { nodelay: !config.nodelay, rcvbuf: None, ..config.clone() };
    let adopted = bench.ring.adopt_snapshot(bench.now, ends, NextHop::Mac(PEER), &base, &bytes);
    bench.must(adopted.is_ok(), format_args!("{adopted:?} of a connection that moves"));
    peer.socket = adopted.ok();
    let goes_on = bench.ring.tcp_go_on(bench.now, peer.id());
    bench.must(goes_on.is_ok(), format_args!("{goes_on:?} of a connection that moved"));
    bench.poll();
}

/// The peer's end, beyond what [`Peer`] is.
struct End {
    /// Bytes that the program wrote.
    written: usize,
    /// Behind all that the peer has seen.
    seen: u32,
    /// Bytes before what the peer sent last, which it has yet to send.
    gap: u32,
    /// The last segment with bytes that was heard.
    last: Option<Heard>,
    frames: Vec<Heard>,
}

impl End {
    /// Takes in what was sent.
    fn hear(&mut self, bench: &mut Bench, peer: &mut Peer) {
        for heard in bench.take() {
            if heard.end().wrapping_sub(self.seen).cast_signed() > 0 {
                self.seen = heard.end();
            }
            bench.note_window(peer, &heard);
            if heard.len() > 0 {
                self.last = Some(heard.clone());
            }
            self.frames.push(heard);
        }
    }

    /// SACK for the end of what was seen, if there is a hole before it.
    fn sack(&self, bench: &mut Bench, peer: &Peer) -> Vec<u8> {
        let open = self.seen.wrapping_sub(peer.rcv);
        if !peer.sack || open < 2 {
            return Vec::new();
        }
        let from = peer.rcv.wrapping_add(1 + bench.below(u64::from(open) - 1) as u32);
        let mut option = vec![1, 1, 5, 10];
        option.extend(from.to_be_bytes());
        option.extend(self.seen.to_be_bytes());
        option
    }
}

/// What the peer, the program or the network does next.
fn step(bench: &mut Bench, peer: &mut Peer, end: &mut End) {
    match bench.below(20) {
        // (Segments lie in no more buffers than the device gathers.)
        0..=3 => {
            let (len, more) = (bench.between(700, 9000) as usize, bench.chance(5));
            let flags = if more { SendFlags::MORE } else { SendFlags::empty() };
            if matches!(bench.state(peer), Some(State::Established | State::CloseWait)) {
                end.written += bench.write(peer, end.written, len, flags);
            }
        }
        4..=6 => {
            let len = bench.between(1, 1400) as u32;
            let flags = if bench.chance(2) { ACK | PSH } else { ACK };
            bench.give(peer, peer.nxt.wrapping_add(end.gap), peer.rcv, flags, len);
            if end.gap == 0 {
                peer.nxt = peer.nxt.wrapping_add(len);
            }
        }
        // What was left out, or from now on is.
        7 if end.gap > 0 => {
            bench.give(peer, peer.nxt, peer.rcv, ACK, end.gap);
            peer.nxt = peer.nxt.wrapping_add(end.gap);
            end.gap = 0;
        }
        7 => end.gap = bench.between(1, 3000) as u32,
        8..=10 => {
            let open = u64::from(end.seen.wrapping_sub(peer.rcv));
            let more = bench.below(open + 1) as u32;
            peer.rcv = peer.rcv.wrapping_add(if bench.chance(2) { open as u32 } else { more });
            bench.give(peer, peer.nxt, peer.rcv, ACK, 0);
        }
        11 => {
            let sack = end.sack(bench, peer);
            for _ in 0..bench.between(1, 4) {
                bench.give_with(peer, peer.nxt, peer.rcv, ACK, 0, &sack);
            }
        }
        12 => {
            let len = bench.between(1, 20_000) as usize;
            let _ = bench.read(peer, len);
        }
        13 => {
            peer.window = bench.pick(&[0, 0, 500, 60_000, 60_000]);
            bench.give(peer, peer.nxt, peer.rcv, ACK, 0);
        }
        14 => {
            let (which, time) = (bench.below(5), Duration::from_millis(bench.between(300, 3000)));
            let set = bench.ring.tcp_configure(bench.now, peer.id(), |config| match which {
                0 => config.nodelay ^= true,
                1 => config.cork ^= true,
                2 => config.quickack ^= true,
                3 => config.user_timeout = Some(time * 20),
                _ => config.keepalive = Some(Keepalive { idle: time, interval: time / 2, count: 9 }),
            });
            bench.must(set.is_ok(), format_args!("setsockopt(2): {set:?}"));
        }
        15 => {
            if let Some(last) = &end.last {
                let mtu = bench.between(600, 1400) as u16;
                paths::unreachable(bench, last, 4, mtu);
            }
        }
        16 if bench.chance(8) => {
            let how = if bench.chance(2) { Shutdown::Read } else { Shutdown::Write };
            let shut = bench.ring.shutdown(bench.now, peer.id(), how);
            let is_over = bench.state(peer).is_none_or(|state| state == State::TimeWait);
            bench.must(shut.is_ok() || is_over, format_args!("shutdown(2): {shut:?} of a connection that is not over"));
        }
        16 if bench.chance(8) && end.gap == 0 => {
            bench.give(peer, peer.nxt, peer.rcv, ACK | FIN, 0);
            peer.nxt = peer.nxt.wrapping_add(1);
        }
        17 => {
            let time = bench.between(100, 5000);
            bench.pass(Duration::from_millis(time));
        }
        _ => {
            let time = bench.between(1, 60_000);
            bench.pass(Duration::from_micros(time));
        }
    }
}
