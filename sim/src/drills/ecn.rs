//! Explicit congestion notification (RFC 3168): what is agreed on, what may be marked, and what follows from a mark at either end.

use core::time::Duration;

use ringway_stack::ring::{NextHop, SendFlags};
use ringway_stack::tcp::{Config, Ecn};

use super::Drill;
use super::bench::{Bench, Heard, Setup, TICK, TOS_AT};
use super::card::PEER;
use super::sending::probe;
use crate::segment::{ACK, CWR, ECE, PSH, SYN};

pub(super) const DRILLS: &[Drill] = &[
    ("marks that a peer tells of", told),
    ("marks that a peer is told of", echoed),
    ("marks that a DCTCP is told of", exactly),
    ("a window of one segment that is marked", least),
    ("what is capable of marks", capable),
    ("a SYN that asks for marks in vain", in_vain),
    ("a SYN that comes again without asking for marks", plain_again),
];

const MSS: u32 = 200;

/// The two bits of a packet (RFC 3168 s5).
fn codepoint(heard: &Heard) -> u8 {
    heard.bytes[TOS_AT] & 3
}

/// Both ends speak of marks, or one does not.
fn setup(bench: &mut Bench, agrees: bool) -> Setup {
    let mut setup = bench.setup();
    (setup.mss, setup.window, setup.scale) = (MSS as u16, 60_000, Some(8));
    setup.config.sndbuf = Some(1 << 20);
    let (ours, theirs) = if agrees { (true, true) } else { bench.pick(&[(true, false), (false, true), (false, false)]) };
    setup.config.ecn = match (ours, setup.passive) {
        (true, true) => bench.pick(&[Ecn::Accepted, Ecn::Asked]),
        (true, false) => Ecn::Asked,
        // (Who does not ask accepts nothing of the kind in the answer.)
        (false, true) => Ecn::Off,
        (false, false) => bench.pick(&[Ecn::Off, Ecn::Accepted]),
    };
    setup.ecn = theirs && (setup.passive || ours || bench.chance(2));
    setup
}

/// RFC 3168 s6.1.1, s6.1.4 to s6.1.6: new bytes are capable, if both ends agreed; nothing else is.
fn capable(bench: &mut Bench) {
    let agrees = bench.chance(2);
    let setup = setup(bench, agrees);
    let mut peer = bench.connect(&setup);
    bench.write(&peer, 0, 6 * peer.mss as usize, SendFlags::empty());
    let wanted = if agrees { 2 } else { 0 };
    let una = peer.rcv;
    for heard in bench.take() {
        bench.must(
            codepoint(&heard) == wanted,
            format_args!("RFC 3168 s6.1.1: new bytes with {}, where {wanted} is right", codepoint(&heard)),
        );
        bench.must(heard.flags & (ECE | CWR) == 0, "RFC 3168 s6.1.2, s6.1.3: nothing was marked");
        bench.take_in(&mut peer, &heard);
    }
    probe(bench, &mut peer);
    // The peer's bytes are acknowledged.
    bench.give(&peer, peer.nxt, una, ACK, 100);
    peer.nxt = peer.nxt.wrapping_add(100);
    let Some(ack) = bench.await_segment(setup.config.delayed_ack + TICK) else {
        return bench.must(false, "RFC 9293 s3.8.6.3: bytes are not acknowledged");
    };
    bench.must(codepoint(&ack) == 0, "RFC 3168 s6.1.4: an acknowledgment without bytes is capable of marks");
    // Nothing else is, and the first byte is sent again.
    let Some(again) = bench.await_segment(Duration::from_secs(4)) else {
        return bench.must(false, "RFC 6298 s5.4: nothing is sent again");
    };
    bench.must(again.seq == una && again.len() > 0, "RFC 6298 s5.4: the first byte is sent again");
    bench.must(codepoint(&again) == 0, "RFC 3168 s6.1.5: what is sent again is capable of marks");
    bench.must(again.flags & CWR == 0, "RFC 3168 s6.1.2: CWR is for new bytes");
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 3168 s6.1.2: of a window in which anything was marked, half is left (RFC 5681 s3.1, equation 4), once; and the next new segment says so.
fn told(bench: &mut Bench) {
    let setup = setup(bench, true);
    let mut peer = bench.connect(&setup);
    let full = peer.mss;
    bench.write(&peer, 0, 200 * full as usize, SendFlags::empty());
    bench.receive(&mut peer);
    let mut una = peer.rcv.wrapping_sub(10 * full);
    let count = bench.between(12, 24) as u32;
    while peer.rcv.wrapping_sub(una) / full < count {
        bench.pass(Duration::from_millis(2));
        una = una.wrapping_add(full);
        bench.give(&peer, peer.nxt, una, ACK, 0);
        bench.receive(&mut peer);
    }
    let (flight, until) = (peer.rcv.wrapping_sub(una), peer.rcv);
    let (mut said, mut out) = (0, 0);
    while una != until {
        una = una.wrapping_add(full);
        bench.give(&peer, peer.nxt, una, ACK | ECE, 0);
        for heard in bench.take() {
            bench.must(codepoint(&heard) == 2, "RFC 3168 s6.1.2: new bytes are capable of marks after one, too");
            let says = heard.has(CWR);
            bench.must(says == (out == 0), format_args!("RFC 3168 s6.1.2: CWR is {says} on segment {out} since the window came down"));
            (said, out) = (said + u32::from(says), out + 1);
            bench.take_in(&mut peer, &heard);
        }
    }
    let half = flight / 2;
    let in_flight = peer.rcv.wrapping_sub(una);
    let law = "RFC 3168 s6.1.2, RFC 5681 s3.1: what is in flight once all that was, when a mark was told of, is acknowledged";
    bench.must(in_flight.abs_diff(half) <= 2 * full, format_args!("{law}: {in_flight} of {flight}"));
    bench.must(said == 1, format_args!("RFC 3168 s6.1.2: {said} segments say that the window came down"));
    // What is acknowledged now was sent after the peer could know, so that another mark is another one.
    let flight = in_flight;
    una = una.wrapping_add(full);
    bench.give(&peer, peer.nxt, una, ACK, 0);
    bench.receive(&mut peer);
    let until = peer.rcv;
    let mut said = 0;
    while una != until {
        una = una.wrapping_add(full);
        bench.give(&peer, peer.nxt, una, ACK | ECE, 0);
        for heard in bench.take() {
            said += u32::from(heard.has(CWR));
            bench.take_in(&mut peer, &heard);
        }
    }
    let in_flight = peer.rcv.wrapping_sub(una);
    bench.must(in_flight.abs_diff(flight / 2) <= 2 * full, format_args!("{law}, the second time: {in_flight} of {flight}"));
    bench.must(said == 1, format_args!("RFC 3168 s6.1.2: {said} segments say that the window came down again"));
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 3168 s6.1.3: what is sent says that something was marked, from then on until the peer answers; and not before.
fn echoed(bench: &mut Bench) {
    let setup = setup(bench, true);
    let mut peer = bench.connect(&setup);
    let mut echoes = false;
    for _ in 0..bench.between(4, 12) {
        bench.pass(Duration::from_millis(7));
        let (marked, answers) = (bench.chance(3), bench.chance(3));
        // One that answers ends what was told, and tells of itself what it is.
        echoes = marked || echoes && !answers;
        let flags = ACK | PSH | if answers { CWR } else { 0 };
        let len = bench.between(1, 200) as u32;
        match marked {
            true => bench.give_marked(&peer, peer.nxt, peer.rcv, flags, len),
            false => bench.give(&peer, peer.nxt, peer.rcv, flags, len),
        }
        peer.nxt = peer.nxt.wrapping_add(len);
        if bench.chance(2) {
            let written = peer.rcv.wrapping_sub(peer.irs) as usize - 1;
            bench.write(&peer, written, 50, SendFlags::empty());
        }
        bench.pass(setup.config.delayed_ack + TICK);
        for heard in bench.take() {
            let says = heard.has(ECE);
            let law = "RFC 3168 s6.1.3: whether a mark is told of";
            bench.must(says == echoes, format_args!("{law}: {says}, and {echoes} is right (marked {marked}, answers {answers})"));
            bench.take_in(&mut peer, &heard);
        }
        bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
        bench.take();
    }
    // A mark on an acknowledgment is none of a byte that could have been dropped.
    bench.give(&peer, peer.nxt, peer.rcv, ACK | CWR, 10);
    peer.nxt = peer.nxt.wrapping_add(10);
    bench.pass(setup.config.delayed_ack + TICK);
    bench.take();
    bench.give_marked(&peer, peer.nxt, peer.rcv, ACK, 0);
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 10);
    peer.nxt = peer.nxt.wrapping_add(10);
    let ack = bench.await_segment(setup.config.delayed_ack + TICK);
    bench.must(ack.is_some_and(|ack| !ack.has(ECE)), "RFC 3168 s6.1.3: a packet without bytes was marked, which is not told of");
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 8257 s3.2: DCTCP's sender hears of each byte whether it was marked, whatever its CWR says, and although acknowledgments are delayed.
fn exactly(bench: &mut Bench) {
    let mut setup = setup(bench, true);
    setup.config.congestion = ringway_stack::tcp::congestion::Algorithm::Dctcp;
    let mut peer = bench.connect(&setup);
    let (mut una, mut marked, mut told) = (peer.nxt, 0, 0);
    let mut echoes = false;
    for _ in 0..bench.between(10, 40) {
        echoes = if bench.chance(2) { echoes } else { bench.chance(2) };
        let flags = ACK | if bench.chance(3) { CWR } else { 0 };
        let len = bench.between(1, 100) as u32;
        match echoes {
            true => bench.give_marked(&peer, peer.nxt, peer.rcv, flags, len),
            false => bench.give(&peer, peer.nxt, peer.rcv, flags, len),
        }
        peer.nxt = peer.nxt.wrapping_add(len);
        marked += if echoes { len } else { 0 };
        if bench.chance(4) {
            bench.pass(setup.config.delayed_ack + TICK);
        }
        if bench.chance(4) {
            let written = peer.rcv.wrapping_sub(peer.irs) as usize - 1;
            bench.write(&peer, written, 50, SendFlags::empty());
        }
        for heard in bench.take() {
            told += if heard.has(ECE) { heard.ack.wrapping_sub(una) } else { 0 };
            una = heard.ack;
            bench.take_in(&mut peer, &heard);
        }
    }
    bench.pass(setup.config.delayed_ack + TICK);
    for heard in bench.take() {
        told += if heard.has(ECE) { heard.ack.wrapping_sub(una) } else { 0 };
        una = heard.ack;
    }
    bench.must(una == peer.nxt, "RFC 9293 s3.8.6.3: bytes are not acknowledged");
    bench.must(told == marked, format_args!("RFC 8257 s3.2: {told} bytes are told of as marked, and {marked} were"));
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 3168 s6.1.2: with a window of one segment, and a mark, the next one waits for the retransmission timer.
fn least(bench: &mut Bench) {
    let mut setup = setup(bench, true);
    setup.config.congestion = ringway_stack::tcp::congestion::Algorithm::Reno;
    let mut peer = bench.connect(&setup);
    let full = peer.mss;
    bench.write(&peer, 0, 100 * full as usize, SendFlags::empty());
    bench.receive(&mut peer);
    let mut una = peer.rcv.wrapping_sub(10 * full);
    // Each mark leaves half, and one segment in the end.
    for _ in 0..12 {
        let until = peer.rcv;
        while una != until {
            una = una.wrapping_add(full);
            bench.give(&peer, peer.nxt, una, ACK | ECE, 0);
            bench.receive(&mut peer);
        }
        let info = bench.ring.info(peer.id());
        if info.is_some_and(|info| info.cwnd <= full as usize) && una == peer.rcv {
            break;
        }
    }
    let begun = bench.now;
    let next = bench.await_segment(Duration::from_secs(4));
    let waited = bench.now.since(begun);
    bench.must(next.is_some(), "RFC 3168 s6.1.2: a window of one segment that is marked is shut for good");
    bench.must(
        waited + TICK >= Duration::from_millis(200),
        format_args!("RFC 3168 s6.1.2: a new segment after {waited:?}, where a mark came with a window of one, and the timer is no shorter than 200 ms"),
    );
    bench.ring.close(bench.now, peer.id(), true);
}

/// RFC 3168 s6.1.1.1: a SYN that got no answer asks no more.
fn in_vain(bench: &mut Bench) {
    let config = Config { ecn: Ecn::Asked, ..Config::default() };
    let (local, remote) = bench.addresses(false);
    let socket = bench.ring.tcp_connect(bench.now, local.into(), remote.into(), NextHop::Mac(PEER), &config);
    let first = bench.one("RFC 9293 s3.10.1: an active open");
    bench.must(first.flags == SYN | ECE | CWR && codepoint(&first) == 0, "RFC 3168 s6.1.1: a SYN that asks for ECN");
    let Some(again) = bench.await_segment(Duration::from_secs(4)) else {
        return bench.must(false, "RFC 9293 s3.8.1: a SYN that got no answer is sent again");
    };
    bench.must(again.flags == SYN, "RFC 3168 s6.1.1.1: a SYN that got no answer asks for ECN again");
    // (It is the first one that gets an answer, perhaps; but who sent one that does not ask sends nothing that is capable.)
    let says = bench.pick(&[0, ECE]);
    let options = [2, 4, 2, 0];
    bench.queue((remote, local), 77, again.end(), SYN | ACK | says, 60_000, &options, &[]);
    bench.take();
    let Ok(socket) = socket else { return };
    let bytes = super::bench::bytes_at(0, 100);
    let _ = bench.ring.tcp_send(bench.now, socket, &[std::io::IoSlice::new(&bytes)], SendFlags::empty());
    let heard = bench.one("RFC 9293 s3.10.4: bytes go");
    bench.must(codepoint(&heard) == 0, "RFC 3168 s6.1.1: a SYN did not ask, and bytes are capable of marks");
    bench.ring.close(bench.now, socket, true);
}

/// The same of a peer's SYN: nothing is capable of marks once one has not asked.
fn plain_again(bench: &mut Bench) {
    let config = Config { nodelay: true, ..Config::default() };
    let listener = bench.listen(16, &config);
    let (local, remote) = bench.addresses(true);
    let options = [2, 4, 2, 0];
    let comes = |bench: &mut Bench, flags| {
        bench.queue((remote, local), 99, 0, SYN | flags, 60_000, &options, &[]);
        bench.one("RFC 9293 s3.10.7.2, s3.10.7.4: a SYN is answered")
    };
    let first = comes(bench, ECE | CWR);
    bench.must(first.flags == SYN | ACK | ECE, "RFC 3168 s6.1.1: a SYN that asks for ECN is answered");
    bench.pass(Duration::from_millis(700));
    let second = comes(bench, 0);
    bench.must(second.flags == SYN | ACK, "RFC 3168 s6.1.1: a SYN that does not ask for ECN is answered as if it did");
    bench.queue((remote, local), 100, second.end(), ACK, 60_000, &[], &[]);
    bench.take();
    let socket = bench.ring.tcp_accept(listener);
    let Ok(socket) = socket else { return bench.must(false, format_args!("accept(2): {socket:?}")) };
    let bytes = super::bench::bytes_at(0, 100);
    let _ = bench.ring.tcp_send(bench.now, socket, &[std::io::IoSlice::new(&bytes)], SendFlags::empty());
    let heard = bench.one("RFC 9293 s3.10.4: bytes go");
    bench.must(codepoint(&heard) == 0, "RFC 3168 s6.1.1: the peer's last SYN did not ask, and bytes are capable of marks");
    bench.ring.close(bench.now, socket, true);
}
