//! Bytes, as they go and come.

use core::time::Duration;

use super::pair::{A, B, End, Options, Pair, pattern};
use crate::error::Error;
use crate::flow::Readiness;
use crate::roce::packet::datagram::Datagram;
use crate::rsocket::Sizes;

fn with_sizes(sizes: Sizes) -> Pair {
    let options = [A, B].map(|end| {
        let mut options = Options::new(end);
        options.settings.sizes = sizes;
        options
    });
    Pair::connected(options)
}

/// Sends all of `bytes` from `from`, while the peer reads.
fn transfer(pair: &mut Pair, from: usize, bytes: &[u8]) -> Vec<u8> {
    let (mut sent, mut got) = (0, Vec::new());
    let end = pair.now + Duration::from_secs(60);
    pair.run_until(end, |pair| {
        sent += pair.send(from, &bytes[sent..]).unwrap_or(0);
        got.extend(pair.drain(1 - from).0);
        got.len() == bytes.len()
    });
    got
}

#[test]
fn bytes_arrive_in_order_whatever_the_sizes() {
    let sizes = [
        Sizes::default(),
        Sizes { recv_buffer: 1, ..Sizes::default() },
        Sizes { recv_buffer: 4096, send_buffer: 2048, ..Sizes::default() },
        Sizes { send_queue: 16, recv_queue: 16, inline: 0, ..Sizes::default() },
        Sizes { send_queue: 17, recv_queue: 300, send_buffer: 5000, recv_buffer: 7777, inline: 15, iomap: 0 },
        Sizes { send_queue: 300, recv_queue: 16, send_buffer: 1 << 20, recv_buffer: 1 << 20, inline: 500, iomap: 0 },
    ];
    for (index, sizes) in sizes.into_iter().enumerate() {
        let mut pair = with_sizes(sizes);
        let len = if sizes.recv_buffer == 1 { 500 } else { 400_000 };
        let all = pattern(index as u64, 0, len);
        for from in [A, B] {
            assert!(transfer(&mut pair, from, &all) == all, "{sizes:?}");
        }
    }
}

#[test]
fn a_peer_that_does_not_read_is_not_overrun() {
    let mut pair = with_sizes(Sizes { recv_queue: 20, ..Sizes::default() });
    pair.settle();
    let mut sent = 0;
    for _ in 0..50 {
        sent += pair.send(A, b"x").unwrap_or(0);
        pair.settle();
    }
    assert_eq!(sent, 20, "as many messages as it said");
    assert!(!pair.readiness(A).contains(Readiness::OUT));
    let mut some = [0; 9];
    assert_eq!(pair.recv(B, &mut some), Ok(9));
    pair.settle();
    assert!(!pair.readiness(A).contains(Readiness::OUT), "credits come when half of them are due");
    assert_eq!(pair.recv(B, &mut some), Ok(9));
    pair.settle();
    assert!(pair.readiness(A).contains(Readiness::OUT));
    let more = (0..50).map(|_| pair.send(A, b"x").unwrap_or(0)).sum::<usize>();
    assert!((10..=18).contains(&more), "{more}");
}

#[test]
fn a_full_receive_buffer_stops_the_sender() {
    let mut pair = with_sizes(Sizes { recv_buffer: 8192, ..Sizes::default() });
    pair.settle();
    let all = pattern(1, 0, 100_000);
    let mut sent = 0;
    for _ in 0..20 {
        sent += pair.send(A, &all[sent..]).unwrap_or(0);
        pair.settle();
    }
    assert_eq!(sent, 8192);
    assert_eq!(pair.drain(B), (all[..8192].to_vec(), Err(Error::WouldBlock)));
    pair.settle();
    assert!(pair.readiness(A).contains(Readiness::OUT));
}

#[test]
fn bytes_can_be_looked_at_first() {
    let mut pair = with_sizes(Sizes { recv_buffer: 8192, ..Sizes::default() });
    pair.settle();
    let all = pattern(3, 0, 3000);
    for round in 0..4 {
        // Across the end of the buffer, in the third round.
        assert_eq!(pair.send(A, &all[..1000]).unwrap() + pair.send(A, &all[1000..]).unwrap(), 3000, "round {round}");
        pair.settle();
        let (now, End { node, sockets, socket }) = (pair.now, &mut pair.ends[B]);
        let mut some = [0; 2900];
        assert_eq!(sockets.recv(now, node, *socket, &mut some, true), Ok(2900));
        assert!(some == all[..2900]);
        assert_eq!(pair.drain(B), (all.clone(), Err(Error::WouldBlock)));
        pair.settle();
    }
}

#[test]
fn nothing_is_nothing() {
    let mut pair = with_sizes(Sizes::default());
    assert_eq!(pair.send(A, &[]), Ok(0));
    assert_eq!(pair.recv(A, &mut []), Ok(0));
    pair.settle();
    assert_eq!(pair.recv(B, &mut [0]), Err(Error::WouldBlock));
}

#[test]
fn short_messages_go_the_short_way() {
    let options = [A, B].map(|end| Options { is_v6: true, ..Options::new(end) });
    let mut pair = Pair::connected(options);
    pair.settle();
    let before = pair.ends.each_ref().map(|end| end.node.hca().predicted());
    for round in 0..1000_u32 {
        for end in [A, B] {
            let bytes = pattern(1, round.into(), 1 + round as usize % 64);
            assert_eq!(pair.send(end, &bytes), Ok(bytes.len()));
            pair.settle();
            assert_eq!(pair.drain(1 - end), (bytes, Err(Error::WouldBlock)));
        }
    }
    for (end, before) in pair.ends.iter().zip(before) {
        let after = end.node.hca().predicted();
        // (What it is to know of credits goes that way, too.)
        assert!(after.sent - before.sent >= 1000 && after.received - before.received >= 1000, "{after:?}");
        assert_eq!(end.node.hca().dropped(), crate::roce::Dropped::default());
    }
}

#[test]
fn a_completion_wakes_who_asked() {
    use crate::device::messages::Messages;
    let mut pair = with_sizes(Sizes::default());
    pair.settle();
    let end = &mut pair.ends[B];
    end.sockets.arm(&mut end.node, end.socket);
    let cq = end.sockets.cq(end.socket).unwrap();
    assert!(!pair.ends[B].node.take_cq_event(cq));
    pair.send(A, b"x").unwrap();
    pair.settle();
    assert!(pair.ends[B].node.take_cq_event(cq));
}

#[test]
fn who_looks_at_bytes_first_sees_all_of_them_whatever_was_read_before() {
    let mut pair = with_sizes(Sizes::default());
    pair.settle();
    for word in [b"ab", b"cd"] {
        assert_eq!(pair.send(A, word), Ok(2));
    }
    pair.settle();
    let mut byte = [0];
    assert_eq!((pair.recv(B, &mut byte), byte), (Ok(1), *b"a"));
    let (now, mut seen) = (pair.now, [0; 3]);
    let end = &mut pair.ends[B];
    assert_eq!(end.sockets.recv(now, &mut end.node, end.socket, &mut seen, true), Ok(3));
    assert_eq!(&seen, b"bcd");
}

#[test]
fn the_last_message_that_there_is_room_for_asks_not_to_wait() {
    let mut pair = with_sizes(Sizes { send_queue: 16, ..Sizes::default() });
    pair.settle();
    pair.fate = Box::new(|_, _| vec![]);
    pair.log.clear();
    let sent = (0..100).take_while(|_| pair.send(A, b"x") == Ok(1)).count();
    pair.run_until(pair.now, |_| false);
    let is_solicited = |(from, bytes): &(usize, Vec<u8>)| (*from == A).then(|| Datagram::parse(bytes).unwrap().packet.header.solicited);
    let solicited: Vec<_> = pair.log.iter().filter_map(is_solicited).take(sent).collect();
    assert_eq!((sent, solicited.len()), (12, 12));
    assert_eq!(solicited.iter().position(|solicited| *solicited), Some(11));
}
