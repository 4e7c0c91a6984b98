//! One datagram socket in several rings.

use super::*;
use crate::ring::UdpOptions;

const PORT: u16 = 53;

impl Host {
    pub(super) fn datagrams(&mut self, now: Instant, port: u16, spread: Spread) -> Socket {
        let mut socket = self.socket(Protocol::Udp, spread);
        self.call(now, |env| socket.bind(env, SocketAddr::from(([0; 4], port)))).expect("a fresh socket");
        socket
    }

    pub(super) fn send(&mut self, now: Instant, socket: &mut Socket, bytes: &[u8], to: Option<SocketAddr>) -> Result<usize, Error> {
        self.call(now, |env| socket.send_to(env, &[IoSlice::new(bytes)], to))
    }

    /// The next datagram's first byte, and who sent it.
    pub(super) fn next(&mut self, now: Instant, socket: &mut Socket, flags: RecvFlags) -> Result<(u8, SocketAddr), Error> {
        let mut bytes = [0; 64];
        let datagram = self.call(now, |env| socket.recv_from(env, &mut [IoSliceMut::new(&mut bytes)], flags))?;
        Ok((bytes[0], datagram.from))
    }
}

#[test]
fn datagrams_of_all_links_and_rings_are_read_in_the_order_of_arrival() {
    let mut pair = Pair::new(2, 2);
    let mut receiver = pair.b.datagrams(pair.now, PORT, Spread::Every);
    assert_eq!(receiver.flows().len(), 4);
    let mut senders: Vec<_> = (0..4).map(|n| pair.a.datagrams(pair.now, 6000 + n, Spread::One)).collect();
    for number in 0..40u8 {
        let (link, sender) = (2 + u32::from(number) % 2, &mut senders[usize::from(number / 3) % 4]);
        pair.a.send(pair.now, sender, &[number], Some(SocketAddr::new(ip(link, 2), PORT))).expect("it is on the link");
        pair.settle();
    }
    let full = pair.b.rings.0.iter().filter(|ring| ring.counters().rx_packets > 0).count();
    assert_eq!(full, 4, "each ring has some");
    assert!(receiver.readiness(&mut pair.b.rings, &pair.b.choice).contains(Readiness::IN | Readiness::OUT));
    for number in 0..40u8 {
        assert_eq!(pair.b.next(pair.now, &mut receiver, RecvFlags::PEEK).map(|(byte, _)| byte), Ok(number));
        let (byte, from) = pair.b.next(pair.now, &mut receiver, RecvFlags::empty()).expect("it waits");
        let link = 2 + u32::from(number) % 2;
        assert_eq!((byte, from.ip()), (number, ip(link, 1)), "from the address of the link that it came by");
    }
    assert_eq!(pair.b.next(pair.now, &mut receiver, RecvFlags::empty()), Err(Error::WouldBlock));
    senders.into_iter().for_each(|socket| pair.a.close(pair.now, socket));
    pair.b.close(pair.now, receiver);
    assert_eq!((pair.a.flows(), pair.b.flows(), pair.fabric.rules()), (0, 0, 0));
}

#[test]
fn with_a_peer_it_has_the_address_of_the_way_there_and_hears_nobody_else() {
    let mut pair = Pair::new(2, 2);
    let mut socket = pair.b.datagrams(pair.now, PORT, Spread::Every);
    let (mut peer, mut other) = (pair.a.datagrams(pair.now, 6000, Spread::One), pair.a.datagrams(pair.now, 6001, Spread::One));
    let at = SocketAddr::new(ip(3, 1), 6000);
    pair.b.call(pair.now, |env| socket.connect(env, at)).expect("it is on the link");
    assert_eq!(socket.local(), Some(SocketAddr::new(ip(3, 2), PORT)));
    let to = SocketAddr::new(ip(3, 2), PORT);
    pair.a.send(pair.now, &mut other, &[1], Some(to)).expect("it is on the link");
    pair.a.send(pair.now, &mut peer, &[2], Some(to)).expect("it is on the link");
    pair.settle();
    assert_eq!(pair.b.next(pair.now, &mut socket, RecvFlags::empty()), Ok((2, at)));
    assert_eq!(pair.b.next(pair.now, &mut socket, RecvFlags::empty()), Err(Error::WouldBlock));
    assert_eq!(pair.b.send(pair.now, &mut socket, &[3], None), Ok(1));
    pair.settle();
    assert_eq!(pair.a.next(pair.now, &mut peer, RecvFlags::empty()), Ok((3, to)));
    // Without, it is as it was.
    pair.b.call(pair.now, |env| socket.set_peer(env, None)).expect("it is a datagram socket");
    assert_eq!(socket.local(), Some(SocketAddr::from(([0; 4], PORT))));
    assert_eq!(pair.b.send(pair.now, &mut socket, &[3], None), Err(Error::DestinationRequired));
    pair.a.send(pair.now, &mut other, &[4], Some(SocketAddr::new(ip(2, 2), PORT))).expect("it is on the link");
    pair.settle();
    assert_eq!(pair.b.next(pair.now, &mut socket, RecvFlags::empty()).map(|(byte, _)| byte), Ok(4));
}

#[test]
fn a_peer_that_one_ring_refuses_changes_nothing() {
    let mut pair = Pair::new(1, 2);
    let mut socket = pair.b.datagrams(pair.now, PORT, Spread::Every);
    // The last ring has a socket with that pair of addresses, which is not to be shared.
    let last = &mut pair.b.rings.0[1];
    let at = SocketAddr::new(ip(2, 1), 6000);
    let own = last.udp_open(SocketAddr::new(ip(2, 2), PORT), &UdpOptions::default()).expect("another address");
    last.udp_connect(own, ip(2, 2), Some((at, crate::ring::NextHop::Neighbour(at.ip())))).expect("it is bound");
    assert_eq!(pair.b.call(pair.now, |env| socket.connect(env, at)), Err(Error::AddressInUse));
    assert_eq!(socket.local(), Some(SocketAddr::from(([0; 4], PORT))));
    pair.b.rings.0[1].close(pair.now, own, false);
    for port in [6001, 6002] {
        let mut other = pair.a.datagrams(pair.now, port, Spread::One);
        pair.a.send(pair.now, &mut other, &[7], Some(SocketAddr::new(ip(2, 2), PORT))).expect("it is on the link");
        pair.settle();
        assert_eq!(pair.b.next(pair.now, &mut socket, RecvFlags::empty()).map(|(byte, _)| byte), Ok(7), "both rings hear everybody");
    }
}

#[test]
fn datagrams_leave_by_the_route_of_the_moment() {
    let mut pair = Pair::new(2, 1);
    let mut sender = pair.a.datagrams(pair.now, 6000, Spread::One);
    let mut receiver = pair.b.datagrams(pair.now, PORT, Spread::One);
    let to = SocketAddr::new(ip(3, 2), PORT);
    let mut from = |pair: &mut Pair| {
        pair.a.send(pair.now, &mut sender, &[1], Some(to))?;
        pair.settle();
        pair.b.next(pair.now, &mut receiver, RecvFlags::empty()).map(|(_, from)| from.ip())
    };
    assert_eq!(from(&mut pair), Ok(ip(3, 1)));
    // The link is gone, and with it the way.
    pair.a.tables = tables(1, 1, &[], 2);
    assert_eq!(from(&mut pair), Err(Error::HostUnreachable));
}

#[test]
fn a_threads_ring_sends_for_it_once_it_has_sent_for_long_enough() {
    let mut pair = Pair::new(1, 2);
    pair.a.choice.set_ratios(Some(2), Some(2));
    let mut socket = pair.a.socket(Protocol::Udp, Spread::Every);
    socket.setup.allocation.tx = crate::socket::Logic::Thread;
    pair.a.call(pair.now, |env| socket.bind(env, SocketAddr::from(([0; 4], 6000)))).expect("a fresh socket");
    let mut ring = |pair: &mut Pair, thread| {
        let before: Vec<_> = pair.a.rings.0.iter().map(|ring| ring.counters().tx_packets).collect();
        pair.a.caller = Caller { thread, core: 0 };
        pair.a.send(pair.now, &mut socket, &[1], Some(SocketAddr::new(ip(2, 2), PORT))).expect("it is on the link");
        pair.a.rings.0.iter().zip(before).position(|(ring, before)| ring.counters().tx_packets > before)
    };
    let threads = [1, 1, 2, 2, 1, 2, 2, 2, 2, 1];
    let rings = threads.map(|thread| ring(&mut pair, thread).expect("it was sent"));
    assert_eq!(rings, [0, 0, 0, 0, 0, 0, 0, 1, 1, 1]);
}

#[test]
fn a_port_that_one_ring_has_already_leaves_nothing_open() {
    let mut pair = Pair::new(2, 2);
    let any = SocketAddr::from(([0; 4], PORT));
    let taken = pair.b.rings.0[3].udp_open(any, &UdpOptions::default()).expect("a fresh ring");
    let mut socket = pair.b.socket(Protocol::Udp, Spread::Every);
    assert_eq!(pair.b.call(pair.now, |env| socket.bind(env, any)), Err(Error::AddressInUse));
    assert!(matches!(socket.state(), State::Fresh));
    assert_eq!((pair.b.flows(), pair.fabric.rules()), (1, 1));
    pair.b.rings.0[3].close(pair.now, taken, false);
    assert_eq!(pair.b.call(pair.now, |env| socket.bind(env, any)), Ok(any));
}
