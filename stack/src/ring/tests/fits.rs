//! Which of a port's sockets gets what comes.

use super::*;

fn open(ring: &mut Ring<Cable>, local: &str, reuse: Reuse, cookie: u64) -> Result<FlowId, Error> {
    ring.udp_open(local.parse().unwrap(), &UdpOptions { reuse, cookie, ..UdpOptions::default() })
}

fn hop(port: u16) -> Option<(SocketAddr, NextHop)> {
    Some((SocketAddr::new(A, port), NextHop::Neighbour(A)))
}

/// Who of `sockets` gets a datagram from a port.
fn heard(pair: &mut Pair, from: u16, sockets: &[FlowId]) -> Vec<usize> {
    let sender = pair.a.udp_open(SocketAddr::new(A, from), &UdpOptions::default()).unwrap();
    let to = Some((SocketAddr::new(B, 9), NextHop::Neighbour(B)));
    pair.a.udp_send(pair.now, sender, &[IoSlice::new(b"?")], A, to).unwrap();
    pair.settle();
    pair.a.close(pair.now, sender, false);
    let mut hears = |socket: &FlowId| pair.b.udp_recv(*socket, &mut [], RecvFlags::empty()).is_ok();
    (0..sockets.len()).filter(|&at| hears(&sockets[at])).collect()
}

#[test]
fn a_socket_with_a_peer_hears_it_whatever_was_bound_later_until_it_has_none() {
    let mut pair = Pair::new();
    let any = open(&mut pair.b, "0.0.0.0:9", Reuse::Address, 1).unwrap();
    let own = open(&mut pair.b, "0.0.0.0:9", Reuse::Address, 2).unwrap();
    assert_eq!(heard(&mut pair, 5000, &[any, own]), [1], "the last");
    pair.b.udp_connect(own, B, hop(5000)).unwrap();
    let late = open(&mut pair.b, "10.0.0.2:9", Reuse::Address, 3).unwrap();
    let sockets = [any, own, late];
    assert_eq!(pair.b.info(own).unwrap().local, SocketAddr::new(B, 9));
    assert_eq!((heard(&mut pair, 5000, &sockets), heard(&mut pair, 5001, &sockets)), (vec![1], vec![2]));
    // Another peer, of which none is like the one before.
    pair.b.udp_connect(own, B, hop(5001)).unwrap();
    assert_eq!((heard(&mut pair, 5000, &sockets), heard(&mut pair, 5001, &sockets)), (vec![2], vec![1]));
    pair.b.close(pair.now, late, false);
    assert_eq!(heard(&mut pair, 5000, &sockets), [0]);
    pair.b.udp_connect(own, IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), None).unwrap();
    assert_eq!(pair.b.info(own).unwrap().local, SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 9));
    assert_eq!((heard(&mut pair, 5000, &sockets), heard(&mut pair, 5001, &sockets)), (vec![1], vec![1]));
    pair.b.close(pair.now, own, false);
    assert_eq!(heard(&mut pair, 5000, &sockets), [0]);
    pair.b.close(pair.now, any, false);
    assert_eq!(pair.b.usage(), Usage::default());
    assert!(pair.b.queues().table().rules.is_empty(), "{:?}", pair.b.queues().table().rules);
}

/// As the kernel has it: what comes from their peer is for the last, SO_REUSEPORT or not.
#[test]
fn of_several_with_one_peer_the_last_hears_it() {
    let mut pair = Pair::new();
    let sockets: Vec<_> = (1..9).map(|cookie| open(&mut pair.b, "10.0.0.2:9", Reuse::Port, cookie).unwrap()).collect();
    for &socket in &sockets {
        pair.b.udp_connect(socket, B, hop(5000)).unwrap();
    }
    assert_eq!((heard(&mut pair, 5000, &sockets), heard(&mut pair, 5001, &sockets)), (vec![7], vec![]));
    pair.b.close(pair.now, sockets[7], false);
    assert_eq!(heard(&mut pair, 5000, &sockets), [6]);
}

#[test]
fn an_address_is_shared_by_those_who_all_allow_it_and_may_come_to_be() {
    let mut pair = Pair::new();
    let first = open(&mut pair.b, "10.0.0.2:9", Reuse::No, 1).unwrap();
    assert_eq!(open(&mut pair.b, "10.0.0.2:9", Reuse::Address, 2), Err(Error::AddressInUse));
    pair.b.udp_configure(first, |options| options.reuse = Reuse::Address).unwrap();
    assert_eq!(open(&mut pair.b, "10.0.0.2:9", Reuse::No, 2), Err(Error::AddressInUse));
    let second = open(&mut pair.b, "10.0.0.2:9", Reuse::Address, 2).unwrap();
    assert_eq!(heard(&mut pair, 5000, &[first, second]), [1]);
    // It is not alone, and cannot be.
    assert_eq!(pair.b.udp_configure(first, |options| options.reuse = Reuse::No), Err(Error::AddressInUse));
    pair.b.close(pair.now, second, false);
    assert_eq!(heard(&mut pair, 5000, &[first]), [0]);
}

#[test]
fn a_socket_whose_address_the_device_has_no_rule_for_stays_as_it_was() {
    let mut pair = Pair::new();
    let any = open(&mut pair.b, "0.0.0.0:9", Reuse::No, 0).unwrap();
    pair.b.queues().table().is_full = true;
    assert_eq!(pair.b.udp_connect(any, B, hop(5000)), Err(Error::NoBuffers));
    assert_eq!((heard(&mut pair, 5000, &[any]), heard(&mut pair, 5001, &[any])), (vec![0], vec![0]));
}

#[test]
fn listeners_that_share_a_port_share_its_connections() {
    let mut pair = Pair::new();
    let config = tcp::Config { reuse_port: true, ..tcp::Config::default() };
    let at = SocketAddr::new(B, 80);
    assert!(pair.b.tcp_listen(at, 99, &tcp::Config::default()).is_ok_and(|alone| {
        let shared = pair.b.tcp_listen(at, 99, &config);
        pair.b.close(pair.now, alone, false);
        shared == Err(Error::AddressInUse)
    }));
    let listeners = [(); 3].map(|()| pair.b.tcp_listen(at, 99, &config).unwrap());
    for port in 5000..5060 {
        pair.connect(port);
    }
    pair.settle();
    let waiting = listeners.map(|listener| pair.b.tcp_waiting(listener).len());
    assert!(waiting.iter().sum::<usize>() == 60 && waiting.iter().all(|&count| count > 5), "{waiting:?}");
    // Those of one that is closed are reset, and the others' are not.
    pair.b.close(pair.now, listeners[0], false);
    pair.settle();
    assert_eq!(listeners[1..].iter().map(|&listener| pair.b.tcp_waiting(listener).len()).sum::<usize>(), 60 - waiting[0]);
}
