//! How connections begin.

use core::time::Duration;

use super::pair::{A, B, Options, PORT, Pair, pattern};
use crate::device::messages::Connections;
use crate::error::Error;
use crate::flow::Readiness;
use crate::roce::mad::{Mad, Message};
use crate::roce::packet::datagram::Datagram;
use crate::rsocket::options::{OptionName, OptionValue};
use crate::rsocket::wire::{ByteOrder, TargetSge};
use crate::rsocket::{Host, Sizes};

#[test]
fn a_connection_has_names_and_is_ready() {
    let mut pair = Pair::connected([Options::new(A), Options::new(B)]);
    let [a, b] = &pair.ends;
    assert_eq!(b.sockets.remote(b.socket).unwrap().ip().to_string(), "10.9.0.1");
    assert_eq!(b.sockets.local(b.socket).unwrap().to_string(), format!("10.9.0.2:{PORT}"));
    assert_eq!(a.sockets.remote(a.socket).unwrap(), b.sockets.local(b.socket).unwrap());
    pair.settle();
    assert_eq!((pair.readiness(A), pair.readiness(B)), (Readiness::OUT, Readiness::OUT));
    let mut some = [0; 10];
    assert_eq!(pair.recv(A, &mut some), Err(Error::WouldBlock));
}

#[test]
fn the_first_thing_that_each_side_says_is_where_the_second_half_of_its_buffer_is() {
    let mut pair = Pair::connected([Options::new(A), Options::new(B)]);
    pair.settle();
    for end in [A, B] {
        let writes = pair.writes(end);
        assert_eq!(writes.len(), 1, "{writes:?}");
        let (reth, immediate, bytes) = &writes[0];
        assert_eq!((reth.len, *immediate), (16, Some(0x8000_0180)), "as in the capture");
        let sge = TargetSge::parse(bytes[..].try_into().unwrap(), ByteOrder::Little);
        assert_eq!(sge.len, 65_536);
    }
}

#[test]
fn a_long_send_is_cut_as_librdmacm_cuts_it() {
    let mut pair = Pair::connected([Options::new(A), Options::new(B)]);
    pair.settle();
    pair.writes(A);
    let lens = |pair: &mut Pair| pair.writes(A).iter().map(|(_, immediate, _)| immediate.unwrap()).collect::<Vec<_>>();
    assert_eq!(pair.send(A, &pattern(0, 0, 5000)), Ok(5000));
    pair.settle();
    assert_eq!(lens(&mut pair), [2048, 2952], "as in the capture");
    assert_eq!(pair.send(A, &[1; 16]), Ok(16));
    pair.settle();
    assert_eq!(lens(&mut pair), [16]);
}

#[test]
fn where_nobody_listens_connecting_is_refused() {
    let mut pair = Pair::plain();
    pair.begin_connect();
    let (now, end) = (pair.now, &mut pair.ends[A]);
    let to = "10.9.0.2:1".parse().unwrap();
    assert_eq!(end.sockets.connect(now, &mut end.node, end.socket, to), Err(Error::Already));
    assert_eq!(pair.send(A, b"x"), Err(Error::WouldBlock));
    pair.settle();
    assert_eq!(pair.readiness(A), Readiness::IN | Readiness::OUT | Readiness::ERR | Readiness::HUP | Readiness::RDHUP);
    let end = &mut pair.ends[A];
    let mut error = || end.sockets.option(&end.node, end.socket, OptionName::Error).unwrap();
    assert_eq!((error(), error()), (OptionValue::Number(111), OptionValue::Number(0)), "once");
    assert_eq!(pair.send(A, b"x"), Err(Error::NotConnected));
}

#[test]
fn where_nobody_answers_connecting_times_out() {
    let mut pair = Pair::plain();
    pair.listen();
    pair.fate = Box::new(|_, _| vec![]);
    pair.begin_connect();
    pair.run(Duration::from_secs(60));
    assert!(pair.readiness(A).contains(Readiness::ERR));
    let end = &mut pair.ends[A];
    assert_eq!(end.sockets.option(&end.node, end.socket, OptionName::Error), Ok(OptionValue::Number(110)));
}

#[test]
fn where_nothing_leads_connecting_fails_at_once() {
    let mut pair = Pair::plain();
    let (now, end) = (pair.now, &mut pair.ends[A]);
    end.sockets.bind(end.socket, "10.9.0.77:5".parse().unwrap()).unwrap();
    let to = "10.9.0.2:1".parse().unwrap();
    assert_eq!(end.sockets.connect(now, &mut end.node, end.socket, to), Err(Error::HostUnreachable));
}

/// The connection management datagrams whose kind `which` says, lost the first time.
fn lose_first(pair: &mut Pair, which: fn(&Message) -> bool) {
    let mut lost = false;
    pair.fate = Box::new(move |_, bytes| {
        let packet = Datagram::parse(bytes).unwrap().packet;
        let is_it = Mad::parse(packet.payload).is_ok_and(|mad| packet.header.dest_qp == 1 && which(&mad.message));
        if is_it && !core::mem::replace(&mut lost, true) { vec![] } else { vec![(super::pair::LATENCY, bytes.to_vec())] }
    });
}

#[test]
fn each_message_of_connection_management_may_be_lost() {
    let kinds: [fn(&Message) -> bool; 3] =
        [|m| matches!(m, Message::Request(_)), |m| matches!(m, Message::Reply(_)), |m| matches!(m, Message::ReadyToUse(_))];
    for which in kinds {
        let mut pair = Pair::plain();
        lose_first(&mut pair, which);
        pair.connect_now();
        assert_eq!(pair.send(A, b"hello"), Ok(5));
        assert_eq!(pair.send(B, b"you"), Ok(3));
        pair.settle();
        assert_eq!((pair.drain(B).0, pair.drain(A).0), (b"hello".to_vec(), b"you".to_vec()));
    }
}

#[test]
fn a_message_says_as_much_as_connection_management_would() {
    let mut pair = Pair::plain();
    // No RTU ever arrives.
    pair.fate = Box::new(move |_, bytes| {
        let packet = Datagram::parse(bytes).unwrap().packet;
        let mad = Mad::parse(packet.payload).ok().filter(|_| packet.header.dest_qp == 1);
        if mad.is_some_and(|mad| matches!(mad.message, Message::ReadyToUse(_))) {
            vec![]
        } else {
            vec![(super::pair::LATENCY, bytes.to_vec())]
        }
    });
    let before = pair.now;
    pair.connect_now();
    assert!(pair.now - before < Duration::from_millis(1), "nobody waits for a repetition");
}

#[test]
fn a_peer_of_another_version_is_refused() {
    let mut pair = Pair::plain();
    let listener = pair.listen();
    let raw = super::hostile::raw(&mut pair.ends[A].node);
    let (now, to) = (pair.now, "10.9.0.2:7471".parse().unwrap());
    let mut private = raw.data.emit();
    private[0] = 2;
    pair.ends[A].node.connect(now, raw.qp, "0.0.0.0:0".parse().unwrap(), to, &private).unwrap();
    pair.settle();
    assert_eq!(pair.accept(listener), None);
    assert!(pair.ends[B].sockets.accept(listener).is_err());
}

#[test]
fn a_listener_s_backlog_is_bounded_and_its_end_ends_what_waits() {
    let mut pair = Pair::plain();
    let listener = pair.listen();
    let end = &mut pair.ends[B];
    end.sockets.listen(&mut end.node, listener, 2).unwrap();
    let now = pair.now;
    let end = &mut pair.ends[A];
    let sockets: Vec<_> = (0..3).map(|_| end.sockets.socket()).collect();
    for socket in &sockets {
        let to = "10.9.0.2:7471".parse().unwrap();
        assert_eq!(end.sockets.connect(now, &mut end.node, *socket, to), Err(Error::InProgress));
    }
    pair.settle();
    let states = |pair: &mut Pair| -> Vec<bool> {
        let (now, end) = (pair.now, &mut pair.ends[A]);
        sockets.iter().map(|socket| end.sockets.readiness(now, &mut end.node, *socket).unwrap().contains(Readiness::HUP)).collect()
    };
    assert_eq!(states(&mut pair), [false, false, true]);
    pair.close(B);
    pair.settle();
    assert_eq!(states(&mut pair), [true, true, true]);
}

#[test]
fn accepted_sockets_have_their_listener_s_sizes() {
    let sizes = Sizes { send_queue: 20, recv_queue: 30, inline: 0, send_buffer: 8192, recv_buffer: 4096, iomap: 3 };
    let mut options = [Options::new(A), Options::new(B)];
    options[B].settings.sizes = sizes;
    let mut pair = Pair::connected(options);
    let end = &mut pair.ends[B];
    let mut get = |name| end.sockets.option(&end.node, end.socket, name).unwrap();
    assert_eq!(get(OptionName::RecvQueue), OptionValue::Number(30));
    assert_eq!(get(OptionName::MaxSegment), OptionValue::Number(1024));
    let now = pair.now;
    let set = pair.ends[B].sockets.set_option(now, pair.ends[B].socket, OptionName::SendQueue, &OptionValue::Number(5));
    assert_eq!(set, Err(Error::Invalid), "it is connected");
}

#[test]
fn ipv6_is_as_good() {
    let mut pair = Pair::plain();
    let end = &mut pair.ends[B];
    end.sockets.bind(end.socket, "[::]:7471".parse().unwrap()).unwrap();
    end.sockets.listen(&mut end.node, end.socket, 8).unwrap();
    let (now, end) = (pair.now, &mut pair.ends[A]);
    assert_eq!(end.sockets.connect(now, &mut end.node, end.socket, "[fd00::2]:7471".parse().unwrap()), Err(Error::InProgress));
    pair.settle();
    let listener = pair.ends[B].socket;
    assert_eq!(pair.accept(listener).unwrap().ip().to_string(), "fd00::1");
    assert_eq!(pair.send(A, b"x"), Ok(1));
    pair.settle();
    assert_eq!(pair.drain(B).0, b"x");
}

#[test]
fn hosts_of_both_byte_orders_and_without_immediate_data_understand_each_other() {
    for (by_sends, orders) in [false, true].into_iter().flat_map(|by_sends| {
        use ByteOrder::{Big, Little};
        [(by_sends, [Little, Big]), (by_sends, [Big, Little]), (by_sends, [Big, Big]), (by_sends, [Little, Little])]
    }) {
        let options = [A, B].map(|end| {
            let mut options = Options::new(end);
            options.host = Host { order: orders[end], by_sends, ..Host::default() };
            options.settings.sizes = Sizes { recv_buffer: 4096, inline: if end == A { 64 } else { 0 }, ..Sizes::default() };
            options
        });
        let mut pair = Pair::connected(options);
        for (from, to) in [(A, B), (B, A)] {
            let all = pattern(from as u64, 0, 30_000);
            let (mut sent, mut got) = (0, Vec::new());
            let end = pair.now + Duration::from_secs(10);
            let done = pair.run_until(end, |pair| {
                sent += pair.send(from, &all[sent..]).unwrap_or(0);
                got.extend(pair.drain(to).0);
                got.len() == all.len()
            });
            assert!(done && got == all, "{orders:?}, by sends: {by_sends}: {} of {}", got.len(), all.len());
        }
    }
}
