//! Retransmission timeouts, to a tick (RFC 6298, with Linux's bounds, which the stack declares), and when a connection is given up.

use core::time::Duration;

use ringway_stack::Error;
use ringway_stack::ring::SendFlags;
use ringway_stack::tcp::State;

use super::Drill;
use super::bench::{Bench, Peer, TICK};
use super::sending::roomy;
use crate::segment::ACK;

pub(super) const DRILLS: &[Drill] = &[
    ("a timeout's length", lengths),
    ("a connection that is given up", given_up),
    ("a user's timeout", user_timeout),
    ("an orphan that is given up", orphan),
    ("duplicates after a recovery", duplicates_after),
];

/// Linux's TCP_RTO_MIN and TCP_RTO_MAX.
const RTO_MIN: Duration = Duration::from_millis(200);
const RTO_MAX: Duration = Duration::from_secs(120);
/// Linux's tcp_orphan_retries.
const ORPHAN_RETRIES: u32 = 8;

/// RFC 6298 s2, by the book.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    srtt: Duration,
    var: Duration,
}

impl Estimate {
    fn first(rtt: Duration) -> Self {
        Self { srtt: rtt, var: rtt / 2 }
    }

    fn sample(&mut self, rtt: Duration) {
        let off = self.srtt.abs_diff(rtt);
        self.var = self.var * 3 / 4 + off / 4;
        self.srtt = self.srtt * 7 / 8 + rtt / 8;
    }

    fn rto(&self) -> Duration {
        (self.srtt + (4 * self.var).max(RTO_MIN)).min(RTO_MAX)
    }
}

/// RFC 6582 s3.2 step 2: what was sent twice may be answered by duplicates of what ended the recovery; and where both report what they got (RFC 2018), what
/// reports nothing is none (RFC 6675 s2).
fn duplicates_after(bench: &mut Bench) {
    let mut peer = roomy(bench);
    let first = bench.between(1, 6) as usize * peer.mss as usize;
    bench.write(&peer, 0, first, SendFlags::empty());
    bench.receive(&mut peer);
    let heard = bench.await_segment(RTO_MAX);
    bench.must(heard.is_some(), "RFC 6298 s5.4: nothing is sent again");
    bench.take();
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    let ended = peer.rcv;
    let second = bench.between(1, 6) as usize * peer.mss as usize;
    bench.write(&peer, first, second, SendFlags::empty());
    bench.receive(&mut peer);
    for number in 1..=bench.between(3, 6) {
        bench.give(&peer, peer.nxt, ended, ACK, 0);
        bench.silence(&format!("RFC 6582 s3.2 step 2: duplicate {number} of what ended a recovery shows no loss"));
    }
}

/// One segment goes out.
fn say(bench: &mut Bench, peer: &mut Peer, written: &mut usize) {
    *written += bench.write(peer, *written, 100, SendFlags::empty());
    let count = bench.receive(peer);
    bench.must(count == 1, format_args!("RFC 9293 s3.9.1.2: {count} segments for one write, with nothing in flight"));
}

/// Awaits that the bytes before `peer.rcv` are sent again, when `due` has passed since the last time.
fn again(bench: &mut Bench, peer: &Peer, due: Duration, slack: Duration, law: &str) {
    let since = bench.now;
    let heard = bench.await_segment(due + slack + TICK);
    let waited = bench.now.since(since);
    bench.must(heard.is_some(), format_args!("{law}: nothing is sent again after {waited:?}, and {due:?} are due"));
    let Some(heard) = heard else { return };
    bench.must(waited + slack + TICK >= due, format_args!("{law}: sent again after {waited:?}, and {due:?} are due"));
    bench.must(heard.len() > 0 && heard.end() == peer.rcv, "RFC 9293 s3.8.1: what was not acknowledged is sent again");
    bench.bytes_are_right(peer, &heard);
}

/// How many times as long as the first the timeout of such a number is. (The first one of one segment alone is a probe's time, after which the timer begins anew: RFC
/// 8985 s7.2, s7.3.)
fn doubled(peer: &Peer, number: u32) -> u32 {
    1 << number.saturating_sub(u32::from(peer.sack)).min(16)
}

/// The timeout after round trips of all lengths; doubled each time; and as before once something is acknowledged.
fn lengths(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.mss = 1000;
    let mut peer = bench.begin(&setup);
    let rtt = Duration::from_micros(bench.between(100, 900_000));
    bench.pass(rtt);
    bench.finish_handshake(&setup, &mut peer);
    let mut estimate = Estimate::first(rtt);
    let mut written = 0;
    for _ in 0..bench.below(6) {
        let rtt = Duration::from_micros(bench.between(100, 400_000)).min(estimate.rto() - 2 * TICK);
        say(bench, &mut peer, &mut written);
        bench.pass(rtt);
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
        bench.silence("RFC 9293 s3.10.7.4: an acknowledgment is not answered");
        estimate.sample(rtt);
    }
    say(bench, &mut peer, &mut written);
    let rto = estimate.rto();
    let timeouts = bench.between(1, 5) as u32;
    let slack = rto / 100;
    for number in 0..timeouts {
        let due = (rto * doubled(&peer, number)).min(RTO_MAX);
        again(bench, &peer, due, due / 100, "RFC 6298 s2.3, s5.5");
    }
    // Karn: without timestamps, what was sent more than once says nothing of the round trip (RFC 6298 s3), and the timer is as it was (s5.7).
    let pause = Duration::from_millis(bench.between(1, 100));
    bench.pass(pause);
    // Nor does an echo of what was never sent (RFC 7323 s3.2).
    let lies = peer.stamps && bench.chance(2);
    if lies {
        peer.echo = peer.echo.wrapping_sub(bench.between(1 << 20, 1 << 30) as u32);
    }
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
    bench.silence("RFC 9293 s3.10.7.4: an acknowledgment is not answered");
    bench.pass(Duration::from_millis(5));
    say(bench, &mut peer, &mut written);
    if !peer.stamps || lies {
        again(bench, &peer, rto, slack, "RFC 6298 s3, s5.7: the timeout after one whose acknowledgment says nothing");
    }
    bench.ring.close(bench.now, peer.id(), true);
}

/// tcp(7), tcp_retries2: so many retransmissions, from the last acknowledgment of something new on, and no more.
fn given_up(bench: &mut Bench) {
    let mut setup = bench.setup();
    setup.config.retries = bench.between(2, 15) as u32;
    let mut peer = bench.connect(&setup);
    let mut written = 0;
    say(bench, &mut peer, &mut written);
    let rto = RTO_MIN;
    // (Before the timeouts, there is a probe; unless it is not known yet whether another one repaired a loss.)
    let mut probes = peer.sack;
    // Some of them count no more.
    if bench.chance(2) {
        let number = bench.between(1, u64::from(setup.config.retries.min(5))) as u32;
        for number in 0..number {
            again(bench, &peer, rto * doubled(&peer, number), RTO_MIN / 20, "RFC 6298 s5.5");
        }
        probes &= number > 1;
        peer.echo = 0;
        let stamps = core::mem::replace(&mut peer.stamps, false);
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
        peer.stamps = stamps;
        bench.take();
        if bench.state(&peer) != Some(State::Established) {
            return;
        }
        if stamps {
            // Whether it counts without its timestamp is another's business.
            bench.ring.close(bench.now, peer.id(), true);
            return;
        }
        say(bench, &mut peer, &mut written);
    }
    if probes {
        again(bench, &peer, rto, rto / 50, "RFC 8985 s7.2");
    }
    for number in 0..setup.config.retries {
        let due = (rto * (1 << number.min(16))).min(RTO_MAX);
        again(bench, &peer, due, due / 50, "RFC 6298 s5.5");
    }
    let due = (rto * (1 << setup.config.retries.min(16))).min(RTO_MAX);
    bench.pass(due - due / 50 - TICK);
    let state = bench.state(&peer);
    bench.must(
        state == Some(State::Established),
        format_args!("tcp(7), tcp_retries2: {state:?} before the last retransmission had its time"),
    );
    bench.pass(due / 25 + 2 * TICK);
    let more = bench.take().iter().filter(|heard| heard.len() > 0).count();
    bench.must(more == 0, "tcp(7), tcp_retries2: one retransmission more than was asked for");
    let error = bench.ring.take_error(peer.id());
    bench.must(error == Some(Error::TimedOut), format_args!("tcp(7), tcp_retries2: {error:?} after the last of them"));
    bench.ring.close(bench.now, peer.id(), false);
}

/// RFC 5482 s3, tcp(7), TCP_USER_TIMEOUT: bytes stay without an acknowledgment for so long, and no longer (but for the first timeout, which is whole).
fn user_timeout(bench: &mut Bench) {
    let mut setup = bench.setup();
    let limit = Duration::from_millis(bench.between(1, 30_000));
    setup.config.user_timeout = Some(limit);
    // Bytes that stalled before, and arrived in the end, count no more.
    let stalled_before = limit > 3 * RTO_MIN && bench.chance(2);
    setup.stamps &= !stalled_before;
    let mut peer = bench.connect(&setup);
    let mut written = 0;
    if stalled_before {
        say(bench, &mut peer, &mut written);
        again(bench, &peer, RTO_MIN, RTO_MIN / 20, "RFC 6298 s2.3");
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
        let pause = Duration::from_millis(bench.below(40_000));
        bench.pass(pause);
        bench.silence("RFC 9293 s3.8.1: nothing is in flight");
    }
    say(bench, &mut peer, &mut written);
    let due = limit.max(RTO_MIN);
    bench.pass(due - RTO_MIN / 20);
    let state = bench.state(&peer);
    bench.must(state == Some(State::Established), format_args!("RFC 5482 s3: {state:?} before the {limit:?} that were asked for"));
    bench.pass(RTO_MIN / 10 + 2 * TICK);
    bench.take();
    let error = bench.ring.take_error(peer.id());
    bench.must(error == Some(Error::TimedOut), format_args!("RFC 5482 s3: {error:?} after the {limit:?} that were asked for"));
    bench.ring.close(bench.now, peer.id(), false);
}

/// tcp(7), tcp_orphan_retries: a socket that was closed is given up sooner.
fn orphan(bench: &mut Bench) {
    let setup = bench.setup();
    let mut peer = bench.connect(&setup);
    bench.write(&peer, 0, 100, SendFlags::empty());
    bench.ring.close(bench.now, peer.id(), false);
    bench.receive(&mut peer);
    let (mut count, most) = (0, ORPHAN_RETRIES + u32::from(peer.sack));
    while let Some(heard) = bench.await_segment(2 * RTO_MAX) {
        count += u32::from(heard.span() > 0);
        bench.must(count <= most, format_args!("tcp(7), tcp_orphan_retries: retransmission {count} of a socket that was closed"));
    }
    bench.must(count == most, format_args!("tcp(7), tcp_orphan_retries: {count} retransmissions, and {most} are to be"));
    let state = bench.state(&peer);
    bench.must(state.is_none(), format_args!("tcp(7), tcp_orphan_retries: {state:?} after the last of them"));
}
