//! Datagram sockets in one ring of a link, which go over to the ring of who uses them.

use super::*;
use crate::ring::{Reuse, UdpOptions};
use crate::socket::{Allocation, Logic};

const RATIO: u32 = 2;
const PORT: u16 = 53;

/// A socket of B's, by thread, and one of A's that sends to it.
struct Letters {
    pair: Pair,
    sender: Socket,
    receiver: Socket,
    sent: u8,
    read: u8,
}

impl Letters {
    fn new(options: UdpOptions) -> Self {
        let mut pair = Pair::new(1, 2);
        pair.b.choice.set_ratios(Some(RATIO), Some(RATIO));
        let sender = pair.a.datagrams(pair.now, 6000, Spread::One);
        let mut receiver = pair.b.socket(Protocol::Udp, Spread::One);
        receiver.setup.allocation = Allocation { rx: Logic::Thread, tx: Logic::Thread, user_id: 0 };
        receiver.setup.udp = options;
        pair.b.caller = Caller { thread: 1, core: 0 };
        pair.b.call(pair.now, |env| receiver.bind(env, SocketAddr::from(([0; 4], PORT)))).expect("a fresh socket");
        Self { pair, sender, receiver, sent: 0, read: 0 }
    }

    /// So many datagrams more, which lie in the device.
    fn come(&mut self, count: u8) {
        for _ in 0..count {
            let sent = self.pair.a.send(self.pair.now, &mut self.sender, &[self.sent], Some(SocketAddr::new(ip(2, 2), PORT)));
            assert_eq!(sent, Ok(1));
            self.sent += 1;
        }
    }

    /// What a thread's call reads: the next one, or nothing.
    fn read(&mut self, thread: u64) -> bool {
        self.pair.b.caller = Caller { thread, core: 0 };
        match self.pair.b.next(self.pair.now, &mut self.receiver, RecvFlags::empty()) {
            Ok((byte, _)) => {
                assert_eq!(byte, self.read, "in the order of arrival, each once");
                self.read += 1;
                true
            }
            Err(error) => {
                assert_eq!(error, Error::WouldBlock);
                false
            }
        }
    }

    fn rings(&self) -> Vec<u16> {
        self.receiver.flows().iter().map(|flow| flow.ring).collect()
    }

    fn migrate(&mut self, to: u16) -> Result<(), Error> {
        self.pair.b.call(self.pair.now, |env| self.receiver.migrate(env, to))
    }

    fn end(mut self) {
        let Self { sender, receiver, .. } = self;
        self.pair.a.close(self.pair.now, sender);
        self.pair.b.close(self.pair.now, receiver);
        assert_eq!((self.pair.a.flows(), self.pair.b.flows(), self.pair.fabric.rules()), (0, 0, 0));
    }
}

#[test]
fn what_came_before_is_read_first_and_all_of_it() {
    let mut letters = Letters::new(UdpOptions::default());
    assert_eq!(letters.rings(), [0]);
    letters.come(5);
    letters.pair.settle();
    // Some more are with the device when the second thread's third call takes it over.
    letters.come(3);
    assert!((0..3).all(|_| letters.read(2)));
    assert_eq!(letters.rings(), [0, 1], "the first is read to its end");
    letters.come(4);
    letters.pair.settle();
    assert!((0..5).all(|_| letters.read(2)));
    assert_eq!(letters.rings(), [1]);
    assert!((0..4).all(|_| letters.read(2)) && !letters.read(2));
    let State::Datagram(datagrams) = letters.receiver.state() else { panic!("it is one") };
    assert_eq!(datagrams.migrations(), 1);
    assert_eq!(letters.pair.fabric.rules(), 2, "one for each socket");
    letters.end();
}

#[test]
fn calls_of_its_own_thread_come_between() {
    let mut letters = Letters::new(UdpOptions::default());
    let rings = [2, 2, 1, 2, 3, 2, 2, 2, 1].map(|thread| {
        letters.come(1);
        letters.pair.settle();
        assert!(letters.read(thread));
        letters.rings()
    });
    let last = [&[0][..], &[0], &[0], &[0], &[0], &[0], &[0], &[1], &[1]];
    assert_eq!(rings.each_ref().map(|rings| &rings[..]), last);
    letters.end();
}

#[test]
fn who_sends_again_and_again_takes_it_over_as_well() {
    let mut letters = Letters::new(UdpOptions::default());
    letters.pair.b.caller = Caller { thread: 2, core: 0 };
    for _ in 0..=RATIO {
        let to = Some(SocketAddr::new(ip(2, 1), 6000));
        assert_eq!(letters.pair.b.send(letters.pair.now, &mut letters.receiver, &[7], to), Ok(1));
    }
    assert!(!letters.read(2));
    assert_eq!(letters.rings(), [1]);
    let sent: Vec<_> = letters.pair.b.rings.0.iter().map(|ring| ring.counters().tx_packets).collect();
    assert_eq!(sent, [2, 1], "the last by the new ring");
    letters.end();
}

/// All receive by one ring, and each thread sends by its own.
#[test]
fn what_is_sent_goes_by_the_ring_of_who_sends_though_nothing_is_said_of_receiving() {
    let mut letters = Letters::new(UdpOptions::default());
    letters.receiver.setup.allocation = Allocation { rx: Logic::Interface, tx: Logic::Thread, user_id: 0 };
    let to = Some(SocketAddr::new(ip(2, 1), 6000));
    letters.come(9);
    letters.pair.settle();
    assert!((0..9).all(|_| letters.read(2)) && letters.rings() == [0], "who only reads takes nothing over");
    for sends in 1..=RATIO + 1 {
        letters.pair.b.caller = Caller { thread: 2, core: 0 };
        assert_eq!(letters.pair.b.send(letters.pair.now, &mut letters.receiver, &[7], to), Ok(1));
        assert_eq!(letters.rings().last(), Some(&u16::from(sends > RATIO)));
    }
    let sent: Vec<_> = letters.pair.b.rings.0.iter().map(|ring| ring.counters().tx_packets).collect();
    assert_eq!(sent, [2, 1], "the last by the sender's ring");
    assert!(!letters.read(2));
    letters.end();
}

#[test]
fn a_rule_that_cannot_be_moved_and_a_ring_without_room_leave_all_as_it_was() {
    let mut letters = Letters::new(UdpOptions::default());
    letters.pair.fabric.refuse(true);
    assert_eq!(letters.migrate(1), Err(Error::NoBuffers));
    letters.come(1);
    letters.pair.settle();
    assert!(letters.read(1) && letters.rings() == [0]);
    letters.pair.fabric.refuse(false);
    letters.pair.b.rings.0[1] = {
        let card = letters.pair.b.rings.0[1].queues().card();
        let config = RingConfig { number: 1, addresses: vec![ip(2, 2)], flows_max: 0, ..RingConfig::default() };
        Ring::new(card.queue(1), config, [9; 32])
    };
    assert_eq!(letters.migrate(1), Err(Error::NoBuffers));
    letters.come(1);
    letters.pair.settle();
    assert!((0..5).all(|at| letters.read(2) == (at == 0)) && letters.rings() == [0]);
    letters.end();
}

#[test]
fn what_waits_in_the_ring_before_counts_against_its_buffer() {
    // Room for three datagrams of one byte.
    let mut letters = Letters::new(UdpOptions { rcvbuf: 800, ..UdpOptions::default() });
    letters.come(2);
    assert_eq!(letters.migrate(1), Ok(()));
    assert_eq!(letters.migrate(0), Err(Error::NoBuffers), "the first has yet to be read");
    letters.come(2);
    letters.pair.settle();
    letters.sent -= 1;
    assert!((0..3).all(|_| letters.read(2)) && !letters.read(2), "the last one found no room");
    letters.come(4);
    letters.pair.settle();
    assert!((0..3).all(|_| letters.read(2)) && !letters.read(2));
    letters.end();
}

#[test]
fn with_a_peer_it_goes_on_with_that_one() {
    let mut letters = Letters::new(UdpOptions::default());
    let peer = SocketAddr::new(ip(2, 1), 6000);
    letters.pair.b.call(letters.pair.now, |env| letters.receiver.connect(env, peer)).expect("it is on the link");
    letters.come(2);
    assert_eq!(letters.migrate(1), Ok(()));
    let mut other = letters.pair.a.datagrams(letters.pair.now, 6001, Spread::One);
    letters.pair.a.send(letters.pair.now, &mut other, &[99], Some(SocketAddr::new(ip(2, 2), PORT))).expect("it is on the link");
    letters.come(1);
    letters.pair.settle();
    assert!((0..3).all(|_| letters.read(2)) && !letters.read(2));
    assert_eq!(letters.rings(), [1]);
    // Without one, it hears everybody.
    letters.pair.b.call(letters.pair.now, |env| letters.receiver.set_peer(env, None)).expect("it is a datagram socket");
    letters.pair.a.send(letters.pair.now, &mut other, &[3], Some(SocketAddr::new(ip(2, 2), PORT))).expect("it is on the link");
    letters.pair.settle();
    assert!(letters.read(2));
    letters.pair.a.close(letters.pair.now, other);
    letters.end();
}

#[test]
fn what_shares_its_address_or_is_a_groups_stays() {
    let mut letters = Letters::new(UdpOptions { reuse: Reuse::Address, ..UdpOptions::default() });
    assert_eq!(letters.migrate(1), Err(Error::NoBuffers));
    letters.end();
    let mut letters = Letters::new(UdpOptions::default());
    let group = IpAddr::from([239, 1, 2, 3]);
    letters.pair.b.call(letters.pair.now, |env| letters.receiver.join(env, group, Some(LinkId(2)))).expect("it is on the link");
    assert_eq!(letters.migrate(1), Err(Error::NoBuffers));
    letters.pair.b.call(letters.pair.now, |env| letters.receiver.leave(env, group, None)).expect("it is a member");
    assert_eq!(letters.migrate(1), Ok(()));
    letters.end();
}
