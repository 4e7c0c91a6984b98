use core::time::Duration;

use super::pair::Side::{A, B};
use super::pair::{Pair, ms, pattern};
use crate::error::Error;
use crate::flow::Readiness;
use crate::tcp::{Config, State};
use crate::wire::tcp::{Flags, Header, SeqNumber};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn one_side_ends_and_the_other_goes_on() {
    let mut pair = Pair::plain();
    pair.write(A, b"request").unwrap();
    pair.shutdown(A);
    pair.settle();
    assert_eq!((pair.state(A), pair.state(B)), (State::FinWait2, State::CloseWait));
    assert_eq!(pair.write(A, b"x"), Err(Error::Pipe));
    assert_eq!(pair.read(B), b"request");
    assert_eq!(pair.read_some(B, 1), Ok(vec![]), "the end of the stream");
    assert!(pair.side(B).readiness().contains(Readiness::RDHUP | Readiness::IN | Readiness::OUT));
    assert!(!pair.side(B).readiness().contains(Readiness::HUP));
    let data = pattern(100_000);
    assert_eq!(pair.transfer(B, &data), data);
    pair.shutdown(B);
    pair.settle();
    assert_eq!((pair.state(A), pair.state(B)), (State::TimeWait, State::Closed));
    assert!(pair.side(B).is_finished() && !pair.a.is_finished());
    assert!(pair.a.readiness().contains(Readiness::HUP));
    pair.run(MINUTE);
    assert!(pair.a.is_finished());
    assert_eq!(pair.a.take_error(), None);
}

#[test]
fn a_short_exchange_needs_no_segment_too_many() {
    let mut pair = Pair::plain();
    pair.write(A, b"all").unwrap();
    pair.shutdown(A);
    pair.transmit();
    let sent = pair.sent(A);
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].payload.as_slice(), sent[0].header.flags), (&b"all"[..], Flags::ACK | Flags::PSH | Flags::FIN));
}

#[test]
fn both_end_at_once() {
    let mut pair = Pair::plain();
    pair.shutdown(A);
    pair.shutdown(B);
    pair.settle();
    assert_eq!((pair.state(A), pair.state(B)), (State::TimeWait, State::TimeWait));
    pair.run(MINUTE + ms(1));
    assert!(pair.a.is_finished() && pair.side(B).is_finished());
}

#[test]
fn time_wait_acknowledges_the_fin_again() {
    let mut pair = Pair::plain();
    pair.shutdown(A);
    pair.settle();
    // B's FIN arrives, but the last acknowledgment doesn't.
    pair.shutdown(B);
    pair.lose(|packet| packet.from == A);
    pair.run(ms(100));
    assert_eq!((pair.state(A), pair.state(B)), (State::TimeWait, State::LastAck));
    pair.lose_nothing();
    pair.run(ms(1000));
    assert_eq!((pair.state(A), pair.state(B)), (State::TimeWait, State::Closed));
    pair.run(MINUTE - ms(1050));
    assert_eq!(pair.state(A), State::TimeWait, "the time began anew");
    pair.run(ms(500));
    assert!(pair.a.is_finished());
}

/// Found by the simulator (337391/duplication+reordering+corruption+bandwidth+mtu+flap+nic_reset+cq_overrun+send_full+doorbell/5/request+churn):
/// an answer to an old duplicate was answered by a reset, and the next connection read another duplicate as its own (RFC 1337).
#[test]
fn a_reset_does_not_end_time_wait() {
    let mut pair = Pair::plain();
    pair.shutdown(A);
    pair.settle();
    pair.shutdown(B);
    pair.settle();
    let fin = pair.sent(B).into_iter().find(|p| p.is(Flags::FIN)).unwrap();
    let reset = Header { flags: Flags::RST, seq: fin.header.seq + 1, ..fin.header };
    pair.deliver(A, &reset, &[]);
    assert_eq!(pair.state(A), State::TimeWait);
    pair.run(MINUTE + ms(500));
    assert!(pair.a.is_finished());
}

#[test]
fn time_wait_makes_room_for_a_new_syn() {
    let mut pair = Pair::plain();
    pair.shutdown(A);
    pair.settle();
    pair.shutdown(B);
    pair.settle();
    let fin = pair.sent(B).into_iter().find(|p| p.is(Flags::FIN)).unwrap();
    let mut syn = fin.header;
    syn.flags = Flags::SYN;
    assert!(!pair.a.accepts_new_syn(&syn), "an old duplicate");
    syn.seq = SeqNumber(syn.seq.0.wrapping_add(1000));
    assert!(pair.a.accepts_new_syn(&syn));
    syn.seq = SeqNumber(syn.seq.0.wrapping_sub(100_000));
    assert!(!pair.a.accepts_new_syn(&syn));
    syn.options.timestamps = Some((fin.header.options.timestamps.unwrap().0 + 1, 0));
    assert!(pair.a.accepts_new_syn(&syn), "newer by its timestamp");
}

#[test]
fn a_reset_ends_both_directions_but_what_arrived_can_be_read() {
    let mut pair = Pair::plain();
    pair.write(A, b"last words").unwrap();
    pair.settle();
    pair.a.abort();
    assert!(!pair.a.is_finished(), "the reset must go out first");
    pair.settle();
    assert!(pair.a.is_finished());
    assert_eq!(pair.state(B), State::Closed);
    let ready = pair.side(B).readiness();
    assert_eq!(ready, Readiness::all() - Readiness::PRI);
    assert_eq!(pair.read_some(B, 100), Ok(b"last words".to_vec()));
    assert_eq!(pair.read_some(B, 100), Err(Error::Reset));
    assert_eq!(pair.read_some(B, 100), Ok(vec![]));
    assert_eq!(pair.write(B, b"x"), Err(Error::Pipe));
}

#[test]
fn writing_after_a_reset_tells_why_once() {
    let mut pair = Pair::plain();
    pair.a.abort();
    pair.settle();
    assert_eq!(pair.write(B, b"x"), Err(Error::Reset));
    assert_eq!(pair.write(B, b"x"), Err(Error::Pipe));
}

#[test]
fn closing_with_unread_bytes_resets() {
    let mut pair = Pair::plain();
    pair.write(A, b"nobody reads this").unwrap();
    pair.settle();
    let now = pair.now;
    pair.side(B).orphan(now);
    pair.settle();
    assert!(pair.side(B).is_finished());
    assert_eq!(pair.read_some(A, 1), Err(Error::Reset));
}

#[test]
fn closing_sends_what_is_queued_and_then_waits_for_a_minute() {
    let mut pair = Pair::plain();
    let data = pattern(10_000);
    pair.write(A, &data).unwrap();
    let now = pair.now;
    pair.a.orphan(now);
    assert!(pair.a.is_flushing());
    pair.settle();
    assert!(!pair.a.is_flushing());
    assert_eq!(pair.read(B), data);
    assert_eq!(pair.state(A), State::FinWait2);
    pair.run(MINUTE);
    assert!(pair.a.is_finished());
    // The peer, which still writes, hears of it from whoever gets its segments now; here nobody answers at all.
}

#[test]
fn bytes_for_a_closed_socket_are_reset() {
    let mut pair = Pair::plain();
    let now = pair.now;
    pair.a.orphan(now);
    pair.settle();
    pair.write(B, b"still there?").unwrap();
    pair.settle();
    assert!(pair.a.is_finished());
    assert_eq!(pair.read_some(B, 1), Ok(vec![]), "the end of the stream had been received");
    assert_eq!(pair.write(B, b"x"), Err(Error::Pipe));
}

#[test]
fn the_peer_dies() {
    let mut pair = Pair::plain();
    pair.write(A, b"unread").unwrap();
    pair.settle();
    pair.side(B).peer_died(false);
    assert_eq!(pair.read_some(B, 100), Ok(b"unread".to_vec()));
    assert_eq!(pair.read_some(B, 100), Err(Error::Reset));
    // After its end of stream, that is what the reader gets, and nothing else shows.
    let gone_after_its_end = || {
        let mut pair = Pair::plain();
        pair.write(A, b"unread").unwrap();
        pair.shutdown(A);
        pair.settle();
        pair.side(B).peer_died(true);
        assert_eq!(pair.read_some(B, 100), Ok(b"unread".to_vec()));
        assert_eq!(pair.read_some(B, 100), Ok(vec![]));
        assert_eq!(pair.state(B), State::CloseWait);
        pair
    };
    // Until it answers: the bytes are taken, and then there is a reset.
    let mut pair = gone_after_its_end();
    assert_eq!(pair.write(B, b"answer"), Ok(6));
    assert!(pair.side(B).is_finished());
    assert_eq!(pair.write(B, b"more"), Err(Error::Pipe));
    // Or it closes.
    let mut pair = gone_after_its_end();
    pair.shutdown(B);
    assert!(pair.side(B).is_finished());
    assert_eq!(pair.side(B).take_error(), None);
    // What it has not acknowledged is lost.
    let mut pair = Pair::plain();
    pair.shutdown(A);
    pair.settle();
    pair.write(B, b"answer").unwrap();
    pair.side(B).peer_died(true);
    assert!(pair.side(B).is_finished());
    assert_eq!(pair.side(B).take_error(), Some(Error::Pipe));
}

#[test]
fn a_peer_that_had_finished_ends_its_streams_when_it_dies() {
    // What was sent without an acknowledgment yet has arrived, or the device would not say so.
    let mut pair = Pair::plain();
    pair.write(A, b"unread").unwrap();
    pair.settle();
    pair.write(B, b"processed").unwrap();
    pair.transmit();
    pair.side(B).peer_died(true);
    assert_eq!(pair.state(B), State::CloseWait);
    assert_eq!(pair.side(B).send_queue(), 0);
    assert!(!pair.side(B).readiness().intersects(Readiness::ERR | Readiness::HUP));
    assert_eq!(pair.read_some(B, 100), Ok(b"unread".to_vec()));
    assert_eq!(pair.read_some(B, 100), Ok(vec![]));
    // Neither a window nor bytes that arrived are told to nobody; and no timer is left to end it.
    assert!(!pair.side(B).wants_transmit());
    pair.run(Duration::from_secs(300));
    assert_eq!(pair.state(B), State::CloseWait);
    assert_eq!(pair.write(B, b"answer"), Ok(6));
    assert_eq!(pair.side(B).take_error(), Some(Error::Pipe));
    assert_eq!(pair.write(B, b"more"), Err(Error::Pipe));

    // With its own stream ended, there is nothing left.
    let mut pair = Pair::plain();
    pair.shutdown(B);
    pair.settle();
    pair.side(B).peer_died(true);
    assert!(pair.side(B).is_finished());
    assert_eq!(pair.read_some(B, 100), Ok(vec![]));
    assert_eq!(pair.side(B).take_error(), None);

    // Bytes that were not sent yet would be answered by a reset, after the end.
    let mut pair = Pair::plain();
    pair.write(B, b"not sent").unwrap();
    pair.side(B).peer_died(true);
    assert_eq!(pair.read_some(B, 100), Ok(vec![]));
    assert_eq!(pair.side(B).take_error(), Some(Error::Pipe));
}

#[test]
fn what_the_end_of_a_process_would_lose_is_unfinished() {
    let mut pair = Pair::plain();
    assert!(!pair.side(A).is_unfinished());
    pair.write(A, b"words").unwrap();
    assert!(pair.side(A).is_unfinished(), "nothing is sent yet");
    pair.settle();
    assert!(!pair.side(A).is_unfinished());
    assert!(pair.side(B).is_unfinished(), "nothing is read yet");
    pair.read_some(B, 3).unwrap();
    assert!(pair.side(B).is_unfinished());
    pair.read_some(B, 3).unwrap();
    assert!(!pair.side(B).is_unfinished());
    let now = pair.now;
    pair.side(B).configure(now, |config| config.linger_zero = true);
    assert!(pair.side(B).is_unfinished());
}

/// It was sent to where the peer was, or from where this end was: who dies before it is sent again has not ended its stream in order.
#[test]
fn what_was_on_its_way_when_an_end_went_elsewhere_is_unfinished_until_it_is_sent_again() {
    let mut pair = Pair::plain();
    pair.write(A, &pattern(10_000)).unwrap();
    pair.lose(|_| true);
    while pair.transmit() {}
    pair.lose_nothing();
    assert!(!pair.side(A).is_unfinished(), "all of it was sent");
    let now = pair.now;
    pair.side(A).go_on_elsewhere(now);
    assert!(pair.side(A).is_unfinished());
    // As much goes at once as the window lets, and the rest with the acknowledgments, not a timer.
    pair.transmit();
    assert!(pair.side(A).is_unfinished());
    pair.run(ms(150));
    assert!(!pair.side(A).is_unfinished());
    assert_eq!(pair.read(B).len(), 10_000);
    // From then on it is as any other: a timeout says only that the peer is slow.
    pair.settle();
    pair.write(A, &pattern(1000)).unwrap();
    pair.lose(|_| true);
    pair.run(ms(1000));
    assert!(pair.side(A).counters().retransmissions > 1 && !pair.side(A).is_unfinished());
}

/// The device says that the peer was through with every frame that it got: those that went to where it was before it moved are not among them.
#[test]
fn a_peer_that_dies_before_it_is_sent_again_what_went_astray_did_not_end_in_order() {
    let mut pair = Pair::plain();
    pair.write(A, &pattern(10_000)).unwrap();
    pair.lose(|_| true);
    while pair.transmit() {}
    let now = pair.now;
    pair.side(A).go_on_elsewhere(now);
    pair.side(A).peer_died(true);
    assert_eq!(pair.read_some(A, 1), Err(Error::Reset));
    // Where nothing was on its way, nothing is missing.
    let mut pair = Pair::plain();
    pair.write(A, b"words").unwrap();
    pair.settle();
    let now = pair.now;
    pair.side(A).go_on_elsewhere(now);
    pair.side(A).peer_died(true);
    assert_eq!(pair.read_some(A, 1), Ok(vec![]));
}

#[test]
fn shutting_down_reading_keeps_the_peer_going() {
    let mut pair = Pair::plain();
    pair.side(B).shutdown_read();
    assert_eq!(pair.read_some(B, 1), Ok(vec![]));
    pair.write(A, b"x").unwrap();
    pair.settle();
    assert_eq!(pair.state(A), State::Established);
    assert_eq!(pair.a.send_queue(), 0);
}

#[test]
fn a_connection_closed_during_its_handshake_is_gone() {
    let mut pair = Pair::new(&Config::default(), &Config::default());
    pair.transmit();
    let now = pair.now;
    pair.a.orphan(now);
    assert!(pair.a.is_finished());
}

#[test]
fn an_orphan_whose_peer_vanished_gives_up() {
    let mut pair = Pair::plain();
    pair.lose(|_| true);
    pair.write(A, b"x").unwrap();
    let now = pair.now;
    pair.a.orphan(now);
    pair.run(Duration::from_secs(300));
    assert!(pair.a.is_finished());
}
