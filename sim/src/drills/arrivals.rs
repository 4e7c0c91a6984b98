//! Single segments in each state of a connection, and what an RFC has them do (RFC 9293 s3.10.7, RFC 5961, RFC 7323 s5.3).

use core::time::Duration;

use ringway_stack::ring::{SendFlags, Shutdown};
use ringway_stack::tcp::State;

use super::Drill;
use super::bench::{Bench, Peer};
use crate::segment::{ACK, FIN, PSH, RST, SYN};

pub(super) const DRILLS: &[Drill] = &[
    ("a segment in SYN-SENT", syn_sent),
    ("a segment in SYN-RECEIVED", syn_received),
    ("segments that arrive", synchronized),
    ("a segment after weeks", weeks),
];

/// So many connections a run.
const CONNECTIONS: usize = 4;
/// Bytes that its program reads of each.
const READ_EACH: u32 = 100;
/// Longer than challenges are apart (Linux's tcp_invalid_ratelimit).
const BETWEEN_CHALLENGES: Duration = Duration::from_millis(600);

/// What one segment is to bring about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Nothing,
    /// One acknowledgment of what was received before, and nothing else.
    Acknowledgment,
    Any,
}

/// RFC 9293 s3.10.7.3.
fn syn_sent(bench: &mut Bench) {
    for _ in 0..4 {
        let mut setup = bench.setup();
        setup.passive = false;
        let mut peer = bench.begin(&setup);
        let strange = bench.pick(&[peer.irs, peer.irs.wrapping_sub(1000), peer.rcv.wrapping_add(1), peer.rcv.wrapping_add(1 << 20)]);
        let flags = bench.pick(&[SYN | ACK, ACK, RST | ACK, FIN | ACK, RST, FIN, 0]);
        let ack = if flags & RST != 0 && bench.chance(2) { peer.irs } else { strange };
        bench.give(&peer, peer.iss, ack, flags, 0);
        if flags & ACK != 0 && flags & RST == 0 {
            let reset = bench.one("RFC 9293 s3.10.7.3: an acknowledgment of what was not sent, in SYN-SENT, is answered by a reset");
            bench.must(reset.flags == RST && reset.seq == ack && reset.len() == 0, "RFC 9293 s3.10.7.3: <SEQ=SEG.ACK><CTL=RST>");
        } else {
            bench.silence("RFC 9293 s3.10.7.3: what says nothing of our SYN, in SYN-SENT, is dropped");
        }
        let state = bench.state(&peer);
        bench.must(
            state == Some(State::SynSent),
            format_args!("RFC 9293 s3.10.7.3: {state:?} after a segment that says nothing of our SYN"),
        );
        // Its end.
        match bench.below(3) {
            0 => {
                bench.give(&peer, 0, peer.rcv, RST | ACK, 0);
                let error = bench.ring.take_error(peer.id());
                let refused = Some(ringway_stack::Error::Refused);
                bench.must(error == refused, format_args!("connect(2): {error:?} of a connection that is refused"));
                bench.silence("RFC 9293 s3.5.3: a reset is not answered");
                bench.ring.close(bench.now, peer.id(), false);
            }
            1 => {
                // The peer's SYN crosses ours.
                let options = bench.syn_options(&setup, 0);
                bench.queue((peer.remote, peer.local), peer.iss, 0, SYN, setup.window, &options, &[]);
                peer.nxt = peer.iss.wrapping_add(1);
                let answer = bench.one("RFC 9293 s3.5: a SYN that crosses ours is answered");
                let right = answer.flags == SYN | ACK && answer.seq == peer.irs && answer.ack == peer.nxt;
                bench.must(right, "RFC 9293 s3.10.7.3: <SEQ=ISS><ACK=RCV.NXT><CTL=SYN,ACK>");
                let echo = answer.options.timestamps;
                bench.must(
                    !peer.stamps || echo.is_some_and(|(_, echo)| echo == bench.clock()),
                    "RFC 7323 s3.2: a SYN-ACK echoes the SYN's timestamp",
                );
                let syn = bench.syn_options(&setup, peer.echo);
                bench.queue((peer.remote, peer.local), peer.iss, peer.rcv, SYN | ACK, setup.window, &syn, &[]);
                bench.take();
                let state = bench.state(&peer);
                bench.must(state == Some(State::Established), format_args!("RFC 9293 s3.5, figure 8: {state:?} after a simultaneous open"));
                bench.ring.close(bench.now, peer.id(), true);
                bench.take();
            }
            _ => {
                bench.finish_handshake(&setup, &mut peer);
                bench.ring.close(bench.now, peer.id(), true);
                let reset = bench.one("RFC 9293 s3.10.5: an abort");
                bench.must(reset.has(RST) && reset.seq == peer.rcv, "RFC 9293 s3.10.5: <SEQ=SND.NXT><CTL=RST>");
            }
        }
    }
}

/// RFC 9293 s3.10.7.4, for a connection that a listener began.
fn syn_received(bench: &mut Bench) {
    for _ in 0..4 {
        let mut setup = bench.setup();
        setup.passive = true;
        let mut peer = bench.begin(&setup);
        bench.pass(Duration::from_millis(1));
        match bench.below(6) {
            0 => {
                let ack = bench.pick(&[peer.irs, peer.irs.wrapping_sub(5000), peer.rcv.wrapping_add(1), peer.rcv.wrapping_add(70_000)]);
                let len = bench.pick(&[0, 0, 20]);
                bench.give(&peer, peer.nxt, ack, ACK, len);
                let reset = bench.one("RFC 9293 s3.10.7.4: an unacceptable acknowledgment in SYN-RECEIVED is answered by a reset");
                bench.must(reset.flags == RST && reset.seq == ack, "RFC 9293 s3.10.7.4: <SEQ=SEG.ACK><CTL=RST>");
            }
            1 => {
                let seq = peer.nxt.wrapping_add(1 + bench.below(2000) as u32);
                bench.give(&peer, seq, 0, RST, 0);
                // (It waits for the SYN-ACK's own time to say anything.)
                let right = bench.take().iter().all(|ack| !ack.has(RST) && ack.ack == peer.nxt);
                bench.must(right, "RFC 5961 s3.2: <SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>, or nothing");
            }
            2 => {
                let flags = bench.pick(&[0, PSH, FIN]);
                bench.give(&peer, peer.nxt, 0, flags, 30);
                bench.silence("RFC 9293 s3.10.7.4: without an ACK bit it is dropped");
            }
            3 => {
                // The SYN once more: our answer was lost.
                let options = bench.syn_options(&setup, 0);
                bench.queue((peer.remote, peer.local), peer.iss, 0, SYN, setup.window, &options, &[]);
                let again = bench.one("RFC 9293 s3.10.7.4: a SYN that comes again is answered at once");
                bench.must(again.ack == peer.nxt, "RFC 9293 s3.10.7.4: what answers a SYN acknowledges it");
                let repeats = again.has(SYN) && again.seq == peer.irs || again.seq == peer.rcv;
                bench.must(repeats, "RFC 9293 s3.10.7.4: a SYN that comes again is answered by a SYN-ACK, or an acknowledgment");
            }
            4 => {
                let seq = peer.edge.wrapping_add(1 + bench.below(100_000) as u32);
                bench.give(&peer, seq, peer.rcv, ACK, 10);
                // (It waits for the SYN-ACK's own time to say anything.)
                let right = bench.take().iter().all(|ack| !ack.has(RST) && ack.ack == peer.nxt);
                bench.must(right, "RFC 9293 s3.10.7.4: <SEQ=SND.NXT><ACK=RCV.NXT><CTL=ACK>, or nothing");
            }
            _ => {
                bench.give(&peer, peer.nxt, 0, RST, 0);
                bench.silence("RFC 9293 s3.5.3: a reset is not answered");
                let state = bench.state(&peer);
                bench.must(state.is_none(), format_args!("RFC 9293 s3.10.7.4: {state:?} after an exact reset"));
                continue;
            }
        }
        let state = bench.state(&peer);
        bench.must(state == Some(State::SynReceived), format_args!("RFC 9293 s3.10.7.4: {state:?} after a segment that ends no handshake"));
        bench.finish_handshake(&setup, &mut peer);
        bench.ring.close(bench.now, peer.id(), true);
        bench.take();
    }
}

/// A connection in a state.
struct Stand {
    peer: Peer,
    state: State,
    /// What the stack sent and is not acknowledged begins here; it ends at `peer.rcv`.
    una: u32,
    /// A timestamp that is old by now.
    stale: u32,
}

fn stand(bench: &mut Bench) -> Stand {
    let setup = bench.setup();
    let mut peer = bench.connect(&setup);
    // What is acknowledged later has another timestamp than the SYN.
    bench.pass(Duration::from_millis(50));
    let stale = bench.clock().wrapping_sub(20);
    let state = bench.pick(&[
        State::Established,
        State::Established,
        State::FinWait1,
        State::FinWait2,
        State::CloseWait,
        State::Closing,
        State::LastAck,
        State::TimeWait,
    ]);
    // A segment in order, so that the newest timestamp is the newest.
    bench.give(&peer, peer.nxt, peer.rcv, ACK | PSH, READ_EACH);
    peer.nxt = peer.nxt.wrapping_add(READ_EACH);
    bench.pass(setup.config.delayed_ack + Duration::from_millis(5));
    let heard = bench.take();
    bench.must(!heard.is_empty(), "RFC 9293 s3.8.6.3: an acknowledgment is delayed no longer than was declared");
    for ack in &heard {
        bench.is_ack(ack, &peer, "RFC 9293 s3.8.6.3: what arrived is acknowledged");
        bench.note_window(&mut peer, ack);
    }
    let read = bench.read(&peer, 100);
    bench.must(read == Ok(100), format_args!("recv(2): {read:?} of 100 bytes that arrived"));
    bench.pass(Duration::from_millis(1));
    for ack in bench.take() {
        bench.note_window(&mut peer, &ack);
    }
    let una = peer.rcv;
    if matches!(state, State::Established | State::CloseWait | State::FinWait1 | State::Closing | State::LastAck) && bench.chance(2) {
        let len = bench.between(1, 300) as usize;
        bench.write(&peer, 0, len, SendFlags::empty());
        bench.receive(&mut peer);
    }
    let peer_first = matches!(state, State::CloseWait | State::LastAck);
    if peer_first {
        fin(bench, &mut peer, una);
    }
    let fin_sent = !matches!(state, State::Established | State::CloseWait);
    if fin_sent {
        let shut = bench.ring.shutdown(bench.now, peer.id(), Shutdown::Write);
        bench.must(shut.is_ok(), format_args!("shutdown(2): {shut:?}"));
        let last = bench.one("RFC 9293 s3.10.4: a FIN follows");
        bench.must(last.has(FIN) && last.len() == 0, "RFC 9293 s3.10.4: a FIN follows what was sent");
        bench.take_in(&mut peer, &last);
    }
    let una = match state {
        State::FinWait2 | State::TimeWait => {
            bench.give(&peer, peer.nxt, peer.rcv, ACK, 0);
            bench.silence("RFC 9293 s3.10.7.4: an acknowledgment of a FIN is not answered");
            peer.rcv
        }
        _ => una,
    };
    if matches!(state, State::Closing | State::TimeWait) {
        fin(bench, &mut peer, una);
    }
    let found = bench.state(&peer);
    bench.must(found == Some(state), format_args!("RFC 9293 s3.3.2: {found:?}, where {state:?} is to be"));
    Stand { peer, state, una, stale }
}

/// The peer's FIN.
fn fin(bench: &mut Bench, peer: &mut Peer, una: u32) {
    bench.give(peer, peer.nxt, una, ACK | FIN, 0);
    peer.nxt = peer.nxt.wrapping_add(1);
    let ack = bench.one("RFC 9293 s3.10.7.4: a FIN is acknowledged at once");
    bench.is_ack(&ack, peer, "RFC 9293 s3.10.7.4: a FIN is acknowledged");
    bench.note_window(peer, &ack);
}

/// Segments that a connection must see through, and those that it must take.
fn synchronized(bench: &mut Bench) {
    for _ in 0..CONNECTIONS {
        let mut stand = stand(bench);
        for _ in 0..bench.between(1, 4) {
            beside(bench, &mut stand);
        }
        ends(bench, stand);
    }
}

/// A segment that changes nothing: answered, or not.
fn beside(bench: &mut Bench, stand: &mut Stand) {
    let &mut Stand { ref mut peer, state, una, stale } = stand;
    let room = peer.edge.wrapping_sub(peer.nxt);
    let far = 1 + bench.below(100_000) as u32;
    let len = bench.pick(&[0, 1, 40]);
    let old_max = 50;
    let ended = !matches!(state, State::Established | State::FinWait1 | State::FinWait2);
    // RFC 5961 s5.2's MAX.SND.WND is the largest that the peer ever announced.
    let window = u32::from(peer.window) << peer.scale;
    let mut value = bench.clock();
    let (law, seq, ack, flags, len, answer) = match bench.below(12) {
        0 => ("RFC 9293 s3.10.7.4: beyond the window", peer.edge.wrapping_add(far), peer.rcv, ACK, len, Answer::Acknowledgment),
        1 => {
            let old = 1 + bench.below(old_max) as u32;
            ("RFC 9293 s3.10.7.4: received before", peer.nxt.wrapping_sub(old), una, ACK, len.min(old), Answer::Acknowledgment)
        }
        // (The window may be larger than was said, by what was read since and by what its scale leaves out.)
        2 => {
            let beyond = peer.edge.wrapping_add(far + READ_EACH + (1 << peer.scale));
            ("RFC 9293 s3.10.7.4: a reset beyond the window", beyond, peer.rcv, RST, 0, Answer::Nothing)
        }
        3 => {
            let old = 1 + bench.below(old_max) as u32;
            let flags = bench.pick(&[RST, RST | ACK]);
            (
                "RFC 9293 s3.10.7.4, RFC 5961 s3.2: a reset before the window",
                peer.nxt.wrapping_sub(old),
                peer.rcv,
                flags,
                0,
                Answer::Nothing,
            )
        }
        4 if !ended => {
            let seq = peer.nxt.wrapping_add(1 + far % (room - 1));
            let flags = bench.pick(&[RST, RST | ACK]);
            ("RFC 5961 s3.2: a reset in the window that is not exact", seq, peer.rcv, flags, 0, Answer::Acknowledgment)
        }
        5 if state != State::TimeWait => {
            let seq = bench.pick(&[peer.nxt, peer.iss, peer.nxt.wrapping_add(far), peer.edge.wrapping_add(far)]);
            let flags = bench.pick(&[SYN, SYN | ACK]);
            ("RFC 5961 s4.2: a SYN for a connection that stands", seq, peer.rcv, flags, 0, Answer::Acknowledgment)
        }
        6 => {
            let flags = bench.pick(&[0, PSH, FIN, FIN | PSH]);
            ("RFC 9293 s3.10.7.4: without an ACK bit", peer.nxt, 0, flags, len, Answer::Nothing)
        }
        7 if state != State::TimeWait => {
            let flags = if ended { ACK } else { bench.pick(&[ACK, ACK | PSH, ACK | FIN]) };
            (
                "RFC 9293 s3.10.7.4: an acknowledgment of what was never sent",
                peer.nxt,
                peer.rcv.wrapping_add(far),
                flags,
                len,
                Answer::Acknowledgment,
            )
        }
        8 if state != State::TimeWait => {
            let ack = una.wrapping_sub(window + 1 + far);
            ("RFC 5961 s5.2: an acknowledgment older than the largest window", peer.nxt, ack, ACK, len, Answer::Acknowledgment)
        }
        9 if peer.stamps => {
            value = stale;
            let flags = if ended { ACK } else { bench.pick(&[ACK, ACK | FIN]) };
            ("RFC 7323 s5.3: an old timestamp", peer.nxt, peer.rcv, flags, len.max(1), Answer::Acknowledgment)
        }
        10 if state == State::TimeWait => {
            let flags = bench.pick(&[RST, RST | ACK]);
            ("RFC 1337 s3: a reset in TIME-WAIT", peer.nxt, peer.rcv, flags, 0, Answer::Nothing)
        }
        // Nothing new at all.
        _ => ("RFC 9293 s3.10.7.4: an acknowledgment that says nothing new", peer.nxt, una, ACK, 0, Answer::Any),
    };
    bench.pass(BETWEEN_CHALLENGES);
    // (What times out meanwhile goes again.)
    bench.take().iter().for_each(|heard| bench.note_window(peer, heard));
    let before = queued(bench, peer);
    bench.give_stamped(peer, seq, ack, flags, len, &[], value);
    match answer {
        Answer::Nothing => bench.silence(law),
        Answer::Acknowledgment => {
            let heard = bench.one(law);
            bench.is_ack(&heard, peer, law);
            // (What it says of the window may be more by a unit: RFC 7323 s2.4.)
            bench.note_window(peer, &heard);
        }
        Answer::Any => bench.take().iter().for_each(|heard| bench.note_window(peer, heard)),
    }
    bench.pass(Duration::from_millis(1));
    let (after, found) = (queued(bench, peer), bench.state(peer));
    bench.must(after == before, format_args!("{law}: {before} bytes waited for their reader, and {after} do"));
    bench.must(found == Some(state), format_args!("{law}: {found:?} after {state:?}"));
}

fn queued(bench: &Bench, peer: &Peer) -> usize {
    peer.socket.and_then(|socket| bench.ring.info(socket)).map_or(0, |info| info.recv_queue)
}

/// A segment that counts.
fn ends(bench: &mut Bench, stand: Stand) {
    let Stand { mut peer, state, una, stale } = stand;
    bench.take();
    let (receives, all) = (matches!(state, State::Established | State::FinWait1 | State::FinWait2), peer.rcv);
    match bench.below(4) {
        0 if state != State::TimeWait => {
            let flags = bench.pick(&[RST, RST | ACK]);
            // RFC 7323 s5.2: however old it says that it is.
            let old = [&[1, 1, 8, 10][..], &stale.to_be_bytes(), &[0; 4]].concat();
            let options = if peer.stamps && bench.chance(2) { &old[..] } else { &[] };
            bench.give_with(&peer, peer.nxt, all, flags, 0, options);
            bench.silence("RFC 9293 s3.5.3: a reset is not answered");
            let found = bench.state(&peer);
            bench
                .must(found.is_none_or(|found| found == State::Closed), format_args!("RFC 9293 s3.10.7.4: {found:?} after an exact reset"));
            bench.give(&peer, peer.nxt, all, ACK, 0);
            let reset = bench.one("RFC 9293 s3.10.7.1: a segment for a connection that was reset");
            bench.must(reset.flags == RST && reset.seq == all, "RFC 9293 s3.10.7.1: <SEQ=SEG.ACK><CTL=RST>");
        }
        1 if receives => {
            // Bytes and a FIN behind them, of which some were received before: what is new counts.
            let (old, len) = (bench.below(50) as u32, bench.between(1, 60) as u32);
            let ends = bench.chance(2);
            let before = queued(bench, &peer);
            bench.give(&peer, peer.nxt.wrapping_sub(old), una, if ends { ACK | FIN } else { ACK }, old + len);
            peer.nxt = peer.nxt.wrapping_add(len + u32::from(ends));
            if !ends {
                bench.pass(Duration::from_millis(101));
            }
            let heard = bench.take();
            let acked = heard.iter().any(|ack| ack.has(ACK) && ack.ack == peer.nxt);
            bench.must(
                acked,
                format_args!("RFC 9293 s3.10.7.4: {len} new bytes behind {old} old ones, and a FIN ({ends}), are not acknowledged"),
            );
            let after = queued(bench, &peer);
            bench.must(after == before + len as usize, format_args!("RFC 9293 s3.10.7.4: {after} bytes wait, after {before} and {len}"));
            let found = bench.state(&peer);
            let next = match (state, ends) {
                (_, false) => state,
                (State::Established, _) => State::CloseWait,
                (State::FinWait1, _) => State::Closing,
                _ => State::TimeWait,
            };
            bench.must(found == Some(next), format_args!("RFC 9293 s3.10.7.4: {found:?} after a FIN in {state:?}"));
        }
        2 if receives => {
            // A FIN behind bytes, and nothing but that FIN is new.
            let old = 1 + bench.below(50) as u32;
            bench.give(&peer, peer.nxt.wrapping_sub(old), una, ACK | FIN, old);
            peer.nxt = peer.nxt.wrapping_add(1);
            let ack = bench.take();
            let acked = ack.iter().any(|ack| ack.ack == peer.nxt);
            bench.must(acked, "RFC 9293 s3.10.7.4: a FIN behind bytes that were received before is not acknowledged");
        }
        _ => {
            // All that is in flight is acknowledged.
            bench.give(&peer, peer.nxt, all, ACK, 0);
            bench.silence("RFC 9293 s3.10.7.4: an acknowledgment is not answered");
            let found = bench.state(&peer);
            let next = match state {
                State::FinWait1 => Some(State::FinWait2),
                State::Closing => Some(State::TimeWait),
                State::LastAck => None,
                _ => Some(state),
            };
            let right = found == next || next.is_none() && found == Some(State::Closed);
            bench.must(right, format_args!("RFC 9293 s3.10.7.4: {found:?} after an acknowledgment of all, in {state:?}"));
        }
    }
    bench.ring.close(bench.now, peer.id(), true);
    bench.take();
}

/// RFC 7323 s5.5: a timestamp that was remembered for more than 24 days says nothing of what comes now, though the peer's clock seems to have gone back.
fn weeks(bench: &mut Bench) {
    let mut setup = bench.setup();
    (setup.stamps, setup.config.timestamps) = (true, true);
    let mut peer = bench.connect(&setup);
    let days = bench.between(26, 48);
    bench.pass(Duration::from_secs(days * 24 * 3600));
    bench.take();
    bench.give(&peer, peer.nxt, peer.rcv, ACK, 10);
    peer.nxt = peer.nxt.wrapping_add(10);
    let Some(ack) = bench.await_segment(setup.config.delayed_ack * 2) else {
        return bench.must(false, "RFC 9293 s3.8.6.3: bytes are not acknowledged");
    };
    bench.is_ack(&ack, &peer, "RFC 7323 s5.5: a timestamp of weeks ago invalidates what comes now");
    bench.ring.close(bench.now, peer.id(), true);
}
