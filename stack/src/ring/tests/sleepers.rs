//! What is to wake who sleeps on a ring, and which frames need not.

use super::*;

/// No delayed acknowledgment comes between.
fn config() -> tcp::Config {
    tcp::Config { quickack: true, sndbuf: Some(4608), ..tcp::Config::default() }
}

#[test]
fn who_waits_for_no_acknowledgment_is_woken_for_none() {
    let mut pair = Pair::new();
    assert_eq!(pair.a.wake(), Wake::Solicited);
    let (client, server, _) = pair.connected_with(&config());
    assert_eq!((pair.a.wake(), pair.b.wake()), (Wake::Solicited, Wake::Solicited));
    write(&mut pair.a, pair.now, client, b"in flight").unwrap();
    assert_eq!(pair.a.wake(), Wake::Solicited, "bytes that are in flight are nothing to wait for");
    assert!(!pair.a.queues().unsolicited, "bytes may not wait");
    pair.b.poll(pair.now);
    assert!(pair.b.queues().unsolicited, "a pure acknowledgment may");
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, server, 64).unwrap(), b"in flight");
    assert_eq!((pair.a.wake(), pair.b.wake()), (Wake::Solicited, Wake::Solicited));
}

#[test]
fn a_handshake_is_waited_for_at_both_ends() {
    let mut pair = Pair::new();
    pair.b.tcp_listen(SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 80), 4, &config()).unwrap();
    pair.a.set_neighbour(B, Some(pair.b.queues.mac));
    pair.b.set_neighbour(A, Some(pair.a.queues.mac));
    pair.connect(5000);
    assert_eq!(pair.a.wake(), Wake::Any);
    pair.b.poll(pair.now);
    assert_eq!(pair.b.wake(), Wake::Any, "the accept waits for the third segment");
    assert!(!pair.b.queues().unsolicited);
    pair.settle();
    assert_eq!((pair.a.wake(), pair.b.wake()), (Wake::Solicited, Wake::Solicited));
}

#[test]
fn what_nagle_holds_waits_for_an_acknowledgment() {
    let mut pair = Pair::new();
    let (client, ..) = pair.connected_with(&config());
    write(&mut pair.a, pair.now, client, b"first").unwrap();
    assert_eq!(pair.a.wake(), Wake::Solicited);
    write(&mut pair.a, pair.now, client, b"held").unwrap();
    assert!(pair.a.may_await_acknowledgment());
    assert_eq!(pair.a.wake(), Wake::Any);
    pair.settle();
    assert_eq!(pair.a.wake(), Wake::Solicited);
}

#[test]
fn a_shut_window_waits_for_its_opening() {
    let mut pair = Pair::new();
    let listening = tcp::Config { rcvbuf: Some(2304), ..config() };
    let (client, server, _) = pair.connected_with(&listening);
    while write(&mut pair.a, pair.now, client, &[7; 1000]).is_ok_and(|wrote| wrote == 1000) && pair.a.wake() == Wake::Solicited {
        pair.settle();
    }
    pair.settle();
    assert_eq!(pair.a.wake(), Wake::Any, "bytes wait for room at the reader");
    while read(&mut pair.b, pair.now, server, 64 << 10).is_ok() {
        pair.settle();
    }
    assert_eq!(pair.a.wake(), Wake::Solicited, "all of them were read");
}

#[test]
fn a_writer_waits_for_room() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected_with(&config());
    while pair.a.take_event().is_some() {}
    let mut wrote = 0;
    while let Ok(more) = write(&mut pair.a, pair.now, client, &[7; 4000]) {
        wrote += more;
    }
    assert_eq!(pair.a.wake(), Wake::Any);
    assert!(!pair.a.readiness(client).contains(Readiness::OUT), "{wrote} bytes are more than two thirds of the room");
    while let Some(event) = pair.a.take_event() {
        assert!(!event.edges.contains(Readiness::OUT));
    }
    pair.settle();
    while read(&mut pair.b, pair.now, server, 64 << 10).is_ok() {
        pair.settle();
    }
    assert!(pair.a.readiness(client).contains(Readiness::OUT));
    assert_eq!(pair.a.wake(), Wake::Solicited);
}

#[test]
fn the_end_of_a_stream_is_waited_for_while_the_program_has_the_socket() {
    for closes in [false, true] {
        let mut pair = Pair::new();
        let (client, server, _) = pair.connected_with(&config());
        match closes {
            false => pair.a.shutdown(pair.now, client, Shutdown::Write).unwrap(),
            true => pair.a.close(pair.now, client, false),
        }
        assert_eq!(pair.a.wake(), if closes { Wake::Solicited } else { Wake::Any }, "closed: {closes}");
        pair.settle();
        assert_eq!(pair.a.wake(), Wake::Solicited, "the end is acknowledged");
        pair.b.shutdown(pair.now, server, Shutdown::Write).unwrap();
        assert_eq!(pair.b.wake(), Wake::Any, "a poll for the hang-up waits for the last acknowledgment");
        pair.settle();
        assert_eq!((pair.a.wake(), pair.b.wake()), (Wake::Solicited, Wake::Solicited));
    }
}

#[test]
fn a_loss_is_waited_for_and_what_tells_of_it_may_not_wait() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected_with(&tcp::Config { sndbuf: None, ..config() });
    pair.a.tcp_configure(pair.now, client, |config| config.nodelay = true).unwrap();
    write(&mut pair.a, pair.now, client, b"lost").unwrap();
    pair.b.queues().inward.lock().unwrap().clear();
    assert_eq!(pair.a.wake(), Wake::Solicited);
    write(&mut pair.a, pair.now, client, b"found").unwrap();
    pair.b.poll(pair.now);
    assert!(!pair.b.queues().unsolicited, "it tells of a gap");
    pair.a.poll(pair.now);
    assert_eq!(pair.a.wake(), Wake::Any, "something may be lost");
    pair.pass(Duration::from_secs(2));
    assert_eq!(read(&mut pair.b, pair.now, server, 64).unwrap(), b"lostfound");
    assert_eq!((pair.a.wake(), pair.b.wake()), (Wake::Solicited, Wake::Solicited));
}

#[test]
fn a_probe_and_a_challenge_may_not_wait() {
    let mut pair = Pair::new();
    let keepalive = tcp::Keepalive { idle: Duration::from_secs(1), interval: Duration::from_secs(1), count: 3 };
    let (client, ..) = pair.connected_with(&config());
    pair.a.tcp_configure(pair.now, client, |config| config.keepalive = Some(keepalive)).unwrap();
    pair.now += Duration::from_millis(1500);
    pair.a.poll(pair.now);
    assert!(!pair.b.queues().inward.lock().unwrap().is_empty() && !pair.a.queues().unsolicited, "a probe asks for an answer");
    assert_eq!(pair.a.wake(), Wake::Solicited, "which nobody waits for but a timer");
    pair.settle();

    // RFC 5961 s4: a SYN in an open connection. (Half a second after the answer to the probe, which counts as one, too.)
    pair.now += Duration::from_millis(600);
    let (local, remote) = (SocketAddr::new(A, 5000), SocketAddr::new(B, 80));
    let mut other = Pair::new();
    let (_, syn) = other.connect_seen(local.port());
    assert_eq!(other.a.tcp_state(local, remote), Some(tcp::State::SynSent));
    pair.b.queues().inward.lock().unwrap().push_back(syn);
    pair.b.poll(pair.now);
    assert!(!pair.a.queues().inward.lock().unwrap().is_empty() && !pair.b.queues().unsolicited, "a challenge asks for an answer");
}

/// Of many acknowledgments that a process slept through, each is looked at before the timer that it stops.
#[test]
fn frames_come_before_timers_however_many_they_are() {
    let mut pair = Pair::new();
    let listener = pair.b.tcp_listen(SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 80), 200, &config()).unwrap();
    let clients: Vec<_> = (0..100).map(|number| pair.connect(5000 + number)).collect();
    pair.settle();
    while pair.b.tcp_accept(listener).is_ok() {}
    for &client in &clients {
        write(&mut pair.a, pair.now, client, b"to all").unwrap();
    }
    while pair.b.poll(pair.now) > 0 {}
    assert!(pair.a.queues().inward.lock().unwrap().len() >= clients.len());
    pair.now += Duration::from_secs(2);
    pair.a.poll(pair.now);
    for &client in &clients {
        assert_eq!(pair.a.info(client).unwrap().counters.retransmissions, 0);
    }
}
