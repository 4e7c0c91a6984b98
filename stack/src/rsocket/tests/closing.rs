//! How connections end: never by hanging.

use core::time::Duration;

use super::pair::{A, B, Options, Pair, pattern};
use crate::error::Error;
use crate::flow::Readiness;
use crate::roce::packet::datagram::Datagram;
use crate::rsocket::options::{OptionName, OptionValue};
use crate::rsocket::wire::{Control, Message};
use crate::rsocket::{Shutdown, Sizes};

fn plain() -> Pair {
    let mut pair = Pair::connected([Options::new(A), Options::new(B)]);
    pair.settle();
    pair
}

/// The control messages that `end` sent since the last call.
fn controls(pair: &mut Pair, end: usize) -> Vec<Control> {
    let words = pair.writes(end).into_iter().filter_map(|(_, immediate, _)| immediate);
    words.filter_map(|word| if let Message::Control(control) = Message::parse(word) { Some(control) } else { None }).collect()
}

#[test]
fn what_was_sent_before_a_close_arrives_and_then_the_end() {
    let mut pair = plain();
    let all = pattern(1, 0, 60_000);
    assert_eq!(pair.send(A, &all), Ok(60_000));
    pair.close(A);
    pair.settle();
    assert_eq!(pair.ends[A].sockets.closing(), 0);
    assert_eq!(controls(&mut pair, A), [Control::Disconnect]);
    assert_eq!(pair.readiness(B), Readiness::IN | Readiness::OUT | Readiness::HUP | Readiness::RDHUP);
    assert_eq!(pair.drain(B), (all, Ok(0)));
    assert_eq!(pair.send(B, b"x"), Err(Error::Reset));
    pair.close(B);
    assert_eq!(pair.ends[B].sockets.closing(), 0);
}

#[test]
fn each_direction_ends_by_itself() {
    let mut pair = plain();
    assert_eq!(pair.send(A, b"last"), Ok(4));
    pair.shutdown(A, Shutdown::Write).unwrap();
    assert_eq!(pair.send(A, b"x"), Err(Error::Pipe));
    pair.settle();
    assert_eq!(controls(&mut pair, A), [Control::Shutdown]);
    assert!(pair.readiness(B).contains(Readiness::IN | Readiness::OUT | Readiness::RDHUP));
    assert_eq!(pair.drain(B), (b"last".to_vec(), Ok(0)));
    assert_eq!(pair.send(B, b"answer"), Ok(6));
    pair.settle();
    assert_eq!(pair.drain(A), (b"answer".to_vec(), Err(Error::WouldBlock)));
    pair.shutdown(B, Shutdown::Write).unwrap();
    pair.settle();
    assert_eq!(controls(&mut pair, B), [Control::Disconnect], "who neither reads nor sends is gone");
    assert_eq!(pair.drain(A), (vec![], Ok(0)));
    assert!(pair.ends.iter_mut().all(|end| end.sockets.is_drained(end.socket).unwrap()));
}

#[test]
fn who_reads_no_more_may_still_send() {
    let mut pair = plain();
    pair.shutdown(A, Shutdown::Read).unwrap();
    assert_eq!(pair.recv(A, &mut [0; 4]), Ok(0));
    assert_eq!(pair.send(A, b"x"), Ok(1));
    pair.settle();
    assert_eq!(controls(&mut pair, A), [], "nobody is told");
    assert_eq!(pair.drain(B).0, b"x");
    pair.shutdown(A, Shutdown::Write).unwrap();
    pair.settle();
    assert_eq!(controls(&mut pair, A), [Control::Disconnect]);
}

#[test]
fn what_went_in_silence_has_arrived_when_an_end_of_reading_is_over() {
    let mut pair = plain();
    // (Fewer than a quarter of the queue: none of them asks for a completion.)
    (0..5).for_each(|_| assert_eq!(pair.send(A, b"word"), Ok(4)));
    pair.settle();
    let is_drained = |pair: &mut Pair| pair.ends[A].sockets.is_drained(pair.ends[A].socket).unwrap();
    assert!(!is_drained(&mut pair), "nobody has asked");
    pair.shutdown(A, Shutdown::Read).unwrap();
    pair.settle();
    let _ = pair.readiness(A);
    assert!(is_drained(&mut pair));
    assert_eq!(controls(&mut pair, A), [], "nobody is told");
    assert_eq!(pair.drain(B).0, b"wordwordwordwordword");
    // Nobody asks any more.
    assert_eq!(pair.send(A, b"more"), Ok(4));
    pair.settle();
    let _ = pair.readiness(A);
    assert!(!is_drained(&mut pair));
    // Others may send while somebody waits.
    pair.shutdown(A, Shutdown::Read).unwrap();
    assert_eq!(pair.send(A, b"more"), Ok(4));
    for _ in 0..2 {
        pair.settle();
        let _ = pair.readiness(A);
    }
    assert!(is_drained(&mut pair));
}

#[test]
fn both_may_end_at_once() {
    for how in [Shutdown::Write, Shutdown::Both] {
        let mut pair = plain();
        for end in [A, B] {
            assert_eq!(pair.send(end, b"bye"), Ok(3));
            pair.shutdown(end, how).unwrap();
        }
        pair.settle();
        for end in [A, B] {
            assert_eq!(pair.drain(end), (b"bye".to_vec(), Ok(0)), "{how:?}");
            let end = &mut pair.ends[end];
            assert!(end.sockets.is_drained(end.socket).unwrap(), "{how:?}");
        }
        [A, B].into_iter().for_each(|end| pair.close(end));
        pair.settle();
        assert_eq!(pair.ends.iter().map(|end| end.sockets.closing()).sum::<usize>(), 0);
    }
}

#[test]
fn a_close_waits_for_a_peer_that_hears_nothing_and_no_longer_than_it_is_told() {
    let mut pair = plain();
    pair.fate = Box::new(|_, _| vec![]);
    assert_eq!(pair.send(A, b"x"), Ok(1));
    pair.close(A);
    assert_eq!(pair.ends[A].sockets.closing(), 1);
    // Retries end long before.
    pair.run(Duration::from_secs(1));
    assert_eq!(pair.ends[A].sockets.closing(), 0);
}

#[test]
fn a_close_does_not_wait_for_ever_for_a_peer_that_takes_nothing() {
    let mut options = [Options::new(A), Options::new(B)];
    options[A].settings.close_timeout = Duration::from_secs(3);
    options[B].settings.sizes = Sizes { recv_queue: 16, ..Sizes::default() };
    let mut pair = Pair::connected(options);
    pair.settle();
    // B's program never looks again: its receives run out, and its adapter says so for ever.
    let before = pair.now;
    let end = before + Duration::from_secs(100);
    let sent = (0..40).filter(|_| pair.send(A, b"x").is_ok()).count();
    assert_eq!(sent, 16);
    pair.close(A);
    assert!(pair.run_until(end, |pair| pair.ends[A].sockets.closing() == 0));
    assert!(pair.now - before <= Duration::from_secs(3));
    // What B got it can read; and it is told that this is not all.
    pair.settle();
    assert_eq!(pair.drain(B), (vec![b'x'; 16], Err(Error::Reset)));
}

#[test]
fn a_peer_that_dies_is_told_from_one_that_ends() {
    let mut pair = plain();
    assert_eq!(pair.send(A, b"x"), Ok(1));
    pair.settle();
    // The machine ends the connection; the program said nothing.
    pair.ends[A].sockets.abort_all(pair.now, &mut pair.ends[A].node);
    pair.settle();
    assert_eq!(pair.drain(B), (b"x".to_vec(), Err(Error::Reset)));
    assert!(pair.readiness(B).contains(Readiness::ERR | Readiness::HUP));
}

#[test]
fn keepalives_find_out_that_the_peer_is_gone() {
    let mut pair = plain();
    let (now, end) = (pair.now, &mut pair.ends[A]);
    end.sockets.set_option(now, end.socket, OptionName::KeepIdle, &OptionValue::Number(5)).unwrap();
    end.sockets.set_option(now, end.socket, OptionName::KeepAlive, &OptionValue::Number(1)).unwrap();
    pair.writes(A);
    pair.run(Duration::from_secs(26));
    let writes = pair.writes(A);
    assert_eq!(writes.len(), 5);
    assert!(writes.iter().all(|(reth, immediate, bytes)| (reth.len, *immediate, bytes.len()) == (0, None, 0)), "{writes:?}");
    assert_eq!(pair.readiness(B), Readiness::OUT, "B's program hears nothing");
    pair.fate = Box::new(|_, _| vec![]);
    pair.run(Duration::from_secs(6));
    assert!(pair.readiness(A).contains(Readiness::ERR | Readiness::HUP));
    assert_eq!(pair.recv(A, &mut [0]), Err(Error::TimedOut));
    assert_eq!(pair.send(A, b"x"), Err(Error::TimedOut));
}

#[test]
fn nothing_is_left_of_connections_that_ended() {
    let mut pair = Pair::plain();
    for _ in 0..5 {
        pair.connect_now();
        assert_eq!(pair.send(A, b"x"), Ok(1));
        [A, B].into_iter().for_each(|end| pair.close(end));
        pair.run(Duration::from_secs(1));
        for end in &mut pair.ends {
            end.socket = end.sockets.socket();
            assert_eq!(end.sockets.closing(), 0);
        }
    }
    // Both say goodbye, and nothing more.
    pair.log.clear();
    pair.run(Duration::from_secs(100));
    let rest: Vec<_> = pair.log.iter().map(|(end, bytes)| (*end, Datagram::parse(bytes).unwrap().packet.header)).collect();
    assert!(rest.is_empty(), "{rest:?}");
}
