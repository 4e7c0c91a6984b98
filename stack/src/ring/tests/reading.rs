//! Calls that poll for what they read.

use super::*;

/// A connection from MAC address to MAC address, whose events are taken: its ends at A and at B.
fn connected() -> (Pair, FlowId, FlowId) {
    let mut pair = Pair::new();
    for ring in [&mut pair.a, &mut pair.b] {
        ring.output.caps.point_to_point = true;
    }
    let listener = pair.b.tcp_listen(SocketAddr::new(B, 80), 4, &tcp::Config::default()).unwrap();
    let hop = NextHop::Mac(pair.b.queues.mac);
    let (local, remote) = (SocketAddr::new(A, 5000), SocketAddr::new(B, 80));
    let client = pair.a.tcp_connect(pair.now, local, remote, hop, &tcp::Config::default()).unwrap();
    pair.settle();
    let server = pair.b.tcp_accept(listener).unwrap();
    while pair.b.take_event().is_some() {}
    pair.b.queues.told.clear();
    (pair, client, server)
}

fn poll_and_read(pair: &mut Pair, id: FlowId, len: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; len];
    let n = pair.b.tcp_recv_polling(pair.now, id, &mut [IoSliceMut::new(&mut bytes)])?;
    bytes.truncate(n);
    Ok(bytes)
}

#[test]
fn bytes_that_go_to_the_caller_are_no_event_and_leave_nothing_unfinished() {
    let (mut pair, client, server) = connected();
    assert_eq!(poll_and_read(&mut pair, server, 64), Err(Error::WouldBlock));
    write(&mut pair.a, pair.now, client, b"ping").unwrap();
    assert_eq!(poll_and_read(&mut pair, server, 64), Ok(b"ping".to_vec()));
    assert_eq!((pair.b.take_event(), pair.b.queues.told.as_slice()), (None, &[Told::Processed][..]));
    assert!(!pair.b.readiness(server).contains(Readiness::IN));
}

#[test]
fn bytes_that_stay_are_an_event_and_unfinished_before_they_are_processed() {
    let (mut pair, client, server) = connected();
    write(&mut pair.a, pair.now, client, b"ping").unwrap();
    assert_eq!(poll_and_read(&mut pair, server, 1), Ok(b"p".to_vec()));
    assert_eq!(pair.b.take_event(), Some(Event { flow: server, edges: Readiness::IN }));
    assert_eq!(pair.b.queues.told, [Told::Unfinished(true), Told::Processed]);
    assert_eq!(poll_and_read(&mut pair, server, 64), Ok(b"ing".to_vec()));
    assert_eq!(pair.b.queues.told, [Told::Unfinished(true), Told::Processed, Told::Unfinished(false)]);
}

#[test]
fn an_end_that_comes_is_told() {
    let (mut pair, client, server) = connected();
    write(&mut pair.a, pair.now, client, b"ping").unwrap();
    pair.a.close(pair.now, client, false);
    assert_eq!(poll_and_read(&mut pair, server, 64), Ok(b"ping".to_vec()));
    assert_eq!(pair.b.take_event(), Some(Event { flow: server, edges: Readiness::IN | Readiness::RDHUP }));
    assert_eq!(poll_and_read(&mut pair, server, 64), Ok(Vec::new()));
}

#[test]
fn what_comes_for_others_meanwhile_is_told_as_ever() {
    let (mut pair, client, server) = connected();
    let hop = NextHop::Mac(pair.b.queues.mac);
    let (local, remote) = (SocketAddr::new(A, 5001), SocketAddr::new(B, 80));
    let other = pair.a.tcp_connect(pair.now, local, remote, hop, &tcp::Config::default()).unwrap();
    pair.settle();
    let listener = pair.b.take_event().expect("somebody is to be accepted").flow;
    let accepted = pair.b.tcp_accept(listener).unwrap();
    while pair.b.take_event().is_some() {}
    pair.b.queues.told.clear();
    write(&mut pair.a, pair.now, other, b"other").unwrap();
    write(&mut pair.a, pair.now, client, b"ping").unwrap();
    assert_eq!(poll_and_read(&mut pair, server, 64), Ok(b"ping".to_vec()));
    assert_eq!(pair.b.take_event(), Some(Event { flow: accepted, edges: Readiness::IN }));
    assert_eq!((pair.b.take_event(), pair.b.queues.told.as_slice()), (None, &[Told::Unfinished(true), Told::Processed][..]));
}

#[test]
fn a_send_looks_first_where_the_last_look_is_long_ago() {
    let send = |pair: &mut Pair, id: FlowId, stale: Instant| {
        pair.a.tcp_send_polling(pair.now, id, &[IoSlice::new(b"words")], SendFlags::empty(), stale)
    };
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    pair.b.close(pair.now, server, true);
    // The reset lies there.
    pair.now += Duration::from_micros(100);
    assert_eq!(send(&mut pair, client, Instant::ZERO), (Ok(5), false), "nobody has looked");
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    pair.b.close(pair.now, server, true);
    pair.now += Duration::from_micros(100);
    let now = pair.now;
    assert_eq!(send(&mut pair, client, now), (Err(Error::Reset), false));
}

#[test]
fn a_send_tells_whether_something_is_held() {
    let mut pair = Pair::new();
    let (client, ..) = pair.connected();
    let send = |pair: &mut Pair| pair.a.tcp_send_polling(pair.now, client, &[IoSlice::new(b"words")], SendFlags::empty(), Instant::ZERO);
    assert_eq!(send(&mut pair), (Ok(5), false));
    // (Nagle's algorithm: the first ones are not acknowledged.)
    assert_eq!(send(&mut pair), (Ok(5), true));
}

/// Sockets of ports 1000 and 1001 at A, and of 2000 and 2001 at B, from MAC address to MAC address.
fn datagrams() -> (Pair, [FlowId; 2], [FlowId; 2]) {
    let mut pair = Pair::new();
    for ring in [&mut pair.a, &mut pair.b] {
        ring.output.caps.point_to_point = true;
    }
    let open = |ring: &mut Ring<Cable>, ip, port| ring.udp_open(SocketAddr::new(ip, port), &UdpOptions::default()).unwrap();
    let senders = [1000, 1001].map(|port| open(&mut pair.a, A, port));
    let receivers = [2000, 2001].map(|port| open(&mut pair.b, B, port));
    (pair, senders, receivers)
}

fn send_datagram(pair: &mut Pair, from: FlowId, to: u16, bytes: &[u8]) {
    let to = (SocketAddr::new(B, to), NextHop::Mac(pair.b.queues.mac));
    assert_eq!(pair.a.udp_send(pair.now, from, &[IoSlice::new(bytes)], A, Some(to)), Ok(bytes.len()));
}

/// What a polling receive gets, and from which port.
fn poll_and_take(pair: &mut Pair, id: FlowId) -> Result<(Vec<u8>, u16), Error> {
    let mut bytes = vec![0; 64];
    let tell = |datagram: Datagram| (datagram.copied, datagram.from.port());
    let (len, from) = pair.b.udp_recv_polling(pair.now, id, &mut [IoSliceMut::new(&mut bytes)], tell)?;
    bytes.truncate(len);
    Ok((bytes, from))
}

#[test]
fn a_datagram_that_goes_to_the_caller_is_no_event() {
    let (mut pair, senders, receivers) = datagrams();
    assert_eq!(poll_and_take(&mut pair, receivers[0]), Err(Error::WouldBlock));
    assert!(pair.b.queues.told.is_empty(), "nobody has looked");
    send_datagram(&mut pair, senders[0], 2000, b"ping");
    assert_eq!(poll_and_take(&mut pair, receivers[0]), Ok((b"ping".to_vec(), 1000)));
    assert_eq!((pair.b.take_event(), pair.b.queues.told.as_slice()), (None, &[Told::Processed][..]));
    assert!(!pair.b.readiness(receivers[0]).contains(Readiness::IN));
}

#[test]
fn datagrams_that_stay_are_an_event_and_are_taken_without_a_look() {
    let (mut pair, senders, receivers) = datagrams();
    for bytes in [&b"one"[..], b"two"] {
        send_datagram(&mut pair, senders[0], 2000, bytes);
    }
    assert_eq!(poll_and_take(&mut pair, receivers[0]), Ok((b"one".to_vec(), 1000)));
    assert_eq!(pair.b.take_event(), Some(Event { flow: receivers[0], edges: Readiness::IN }));
    send_datagram(&mut pair, senders[1], 2000, b"three");
    assert_eq!(poll_and_take(&mut pair, receivers[0]), Ok((b"two".to_vec(), 1000)));
    assert_eq!(pair.b.queues.told, [Told::Processed], "what has come since lies where it came to");
    assert_eq!(poll_and_take(&mut pair, receivers[0]), Ok((b"three".to_vec(), 1001)));
    assert_eq!((pair.b.take_event(), pair.b.queues.told.len()), (None, 2));
}

#[test]
fn datagrams_for_others_are_told_of_meanwhile() {
    let (mut pair, senders, receivers) = datagrams();
    send_datagram(&mut pair, senders[0], 2001, b"other");
    assert_eq!(poll_and_take(&mut pair, receivers[0]), Err(Error::WouldBlock));
    assert_eq!((pair.b.take_event(), pair.b.take_event()), (Some(Event { flow: receivers[1], edges: Readiness::IN }), None));
    assert_eq!(pair.b.queues.told, [Told::Processed]);
    send_datagram(&mut pair, senders[0], 2000, b"own");
    assert_eq!(poll_and_take(&mut pair, receivers[1]), Ok((b"other".to_vec(), 1000)), "which was there already");
    assert_eq!(pair.b.take_event(), None, "nobody has looked");
    // Who is nobody's reader by now hears of it as ever.
    pair.b.poll(pair.now);
    assert_eq!(pair.b.take_event(), Some(Event { flow: receivers[0], edges: Readiness::IN }));
}

#[test]
fn of_a_group_s_members_the_one_who_polls_hears_of_nothing_but_the_datagram() {
    let (mut pair, senders, receivers) = datagrams();
    for ring in [&mut pair.a, &mut pair.b] {
        ring.output.caps.point_to_point = false;
    }
    let group = IpAddr::from([239, 0, 0, 9]);
    let members = [0, 1].map(|_| {
        let options = UdpOptions { reuse: Reuse::Address, ..UdpOptions::default() };
        let member = pair.b.udp_open(SocketAddr::new(group, 2009), &options).unwrap();
        pair.b.udp_join(pair.now, member, group, B).unwrap();
        member
    });
    let to = Some((SocketAddr::new(group, 2009), NextHop::Neighbour(group)));
    pair.a.udp_send(pair.now, senders[0], &[IoSlice::new(b"all")], A, to).unwrap();
    assert_eq!(poll_and_take(&mut pair, members[0]), Ok((b"all".to_vec(), 1000)));
    assert_eq!((pair.b.take_event(), pair.b.take_event()), (Some(Event { flow: members[1], edges: Readiness::IN }), None));
    assert_eq!(poll_and_take(&mut pair, members[1]), Ok((b"all".to_vec(), 1000)));
    assert!(!pair.b.readiness(receivers[0]).contains(Readiness::IN));
}

#[test]
fn a_datagram_that_is_to_be_decided_about_is_an_event_though_its_reader_polls() {
    let (mut pair, senders, receivers) = datagrams();
    pair.b.set_recv_filter(receivers[0], true).unwrap();
    send_datagram(&mut pair, senders[0], 2000, b"undecided");
    assert_eq!(poll_and_take(&mut pair, receivers[0]), Err(Error::WouldBlock));
    assert_eq!(pair.b.take_event(), Some(Event { flow: receivers[0], edges: Readiness::IN }));
}

#[test]
fn an_error_comes_before_what_lies_there() {
    let (mut pair, senders, receivers) = datagrams();
    pair.b.slots.udp(receivers[0]).unwrap().error = Some(Error::Refused);
    send_datagram(&mut pair, senders[0], 2000, b"later");
    assert_eq!(poll_and_take(&mut pair, receivers[0]), Err(Error::Refused));
    assert_eq!(poll_and_take(&mut pair, receivers[0]), Ok((b"later".to_vec(), 1000)));
    pair.b.close(pair.now, receivers[0], false);
    assert_eq!(poll_and_take(&mut pair, receivers[0]), Err(Error::BadSocket));
}
