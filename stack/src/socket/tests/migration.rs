//! Connections that go over to the ring of who uses them.

use super::*;
use crate::socket::{Allocation, Logic};

/// A connection of A's, by thread, and B's end of it.
struct Linked {
    pair: Pair,
    client: Socket,
    server: Socket,
    listener: Socket,
}

const RATIO: u32 = 2;

impl Linked {
    fn new(spread: Spread) -> Self {
        let mut pair = Pair::new(1, 2);
        for host in [&mut pair.a, &mut pair.b] {
            host.choice.set_ratios(Some(RATIO), Some(RATIO));
        }
        let mut listener = pair.b.listener(pair.now, 80, spread);
        listener.setup.allocation.rx = Logic::Thread;
        let mut client = pair.a.socket(Protocol::Tcp, Spread::One);
        client.setup.allocation = Allocation { rx: Logic::Thread, tx: Logic::Thread, user_id: 0 };
        pair.a.caller = Caller { thread: 1, core: 0 };
        pair.a.call(pair.now, |env| {
            client.bind(env, SocketAddr::from(([0; 4], 5000))).expect("a fresh socket");
            assert_eq!(client.connect(env, SocketAddr::new(ip(2, 2), 80)), Err(Error::InProgress));
            assert_eq!(client.connect(env, SocketAddr::new(ip(2, 2), 80)), Err(Error::Already));
        });
        pair.settle();
        let server = pair.b.accept(pair.now, &mut listener).expect("it waits");
        Self { pair, client, server, listener }
    }

    fn write(&mut self, thread: u64, bytes: &[u8]) -> Result<usize, Error> {
        self.pair.a.caller = Caller { thread, core: 0 };
        self.pair.a.call(self.pair.now, |env| self.client.send(env, &[IoSlice::new(bytes)], SendFlags::empty()))
    }

    fn echo(&mut self, thread: u64, byte: u8) -> u16 {
        assert_eq!(self.write(thread, &[byte]), Ok(1));
        self.pair.settle();
        let mut bytes = [0; 8];
        let read = self.pair.b.call(self.pair.now, |env| self.server.recv(env, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()));
        assert_eq!((read, bytes[0]), (Ok(1), byte));
        self.ring()
    }

    fn ring(&self) -> u16 {
        self.client.flows().first().expect("it is in a ring").ring
    }

    fn end(mut self) {
        let Self { client, server, listener, .. } = self;
        self.pair.a.close(self.pair.now, client);
        self.pair.settle();
        [server, listener].into_iter().for_each(|socket| self.pair.b.close(self.pair.now, socket));
        assert_eq!((self.pair.a.flows(), self.pair.b.flows(), self.pair.fabric.rules()), (0, 0, 0));
    }
}

#[test]
fn only_a_thread_that_calls_again_and_again_takes_a_connection_over() {
    let mut linked = Linked::new(Spread::Every);
    let threads = [1, 2, 2, 1, 2, 3, 2, 2, 2, 2, 1];
    let rings: Vec<_> = threads.iter().zip(0..).map(|(&thread, byte)| linked.echo(thread, byte)).collect();
    // (The third thread's call ends the second one's row; its ring is the first one's, and it has called once.)
    assert_eq!(rings, [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]);
    assert_eq!(linked.pair.fabric.rules(), 4, "two of the listener's, and one for each end");
    linked.end();
}

#[test]
fn without_a_ratio_or_by_another_logic_it_stays() {
    for logic in [Logic::Thread, Logic::Interface, Logic::Socket] {
        let mut linked = Linked::new(Spread::Every);
        linked.client.setup.allocation = Allocation { rx: logic, tx: logic, user_id: 0 };
        if logic == Logic::Thread {
            linked.pair.a.choice.set_ratios(None, None);
        }
        assert!((0..20).all(|byte| linked.echo(2, byte) == 0), "{logic:?}");
        linked.end();
    }
}

#[test]
fn where_there_is_no_room_it_stays_and_nothing_is_lost() {
    let mut linked = Linked::new(Spread::Every);
    linked.pair.a.rings.0[1] = {
        let card = linked.pair.a.rings.0[1].queues().card();
        let config = RingConfig { number: 1, addresses: vec![ip(2, 1)], flows_max: 0, ..RingConfig::default() };
        Ring::new(card.queue(1), config, [9; 32])
    };
    assert!((0..10).all(|byte| linked.echo(2, byte) == 0));
    assert_eq!(linked.pair.a.call(linked.pair.now, |env| linked.client.migrate(env, 1)), Err(Error::NoBuffers));
    assert_eq!(linked.echo(1, 77), 0);
    linked.end();
}

#[test]
fn where_no_ring_has_room_it_waits_for_one() {
    // What a listener of one ring accepts comes by its rule; another ring has to have one for it, and so has this one when it comes back.
    let mut linked = Linked::new(Spread::One);
    linked.pair.fabric.refuse(true);
    let now = linked.pair.now;
    let from = linked.server.flows()[0].ring;
    assert_eq!(linked.pair.b.call(now, |env| linked.server.migrate(env, 1 - from)), Err(Error::NoBuffers));
    assert!(linked.server.flows().is_empty() && linked.server.next_deadline(now).is_some());
    assert_eq!(linked.server.readiness(&mut linked.pair.b.rings, &linked.pair.b.choice), Readiness::empty());
    let mut bytes = [0; 8];
    let read = linked.pair.b.call(now, |env| linked.server.recv(env, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()));
    assert_eq!(read, Err(Error::WouldBlock));
    assert_eq!(linked.write(1, b"meanwhile"), Ok(9));
    linked.pair.settle();
    linked.pair.fabric.refuse(false);
    linked.pair.b.call(linked.pair.now, |env| linked.server.settle(env));
    assert_eq!(linked.server.flows().first().map(|flow| flow.ring), Some(1 - from));
    // What came to nobody is sent again.
    linked.pair.now += Duration::from_secs(2);
    linked.pair.settle();
    let mut bytes = [0; 16];
    let read = linked.pair.b.call(linked.pair.now, |env| linked.server.recv(env, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()));
    assert_eq!(read.map(|len| &bytes[..len]), Ok(&b"meanwhile"[..]));
    linked.end();
}

#[test]
fn a_ring_of_another_link_is_none() {
    let mut pair = Pair::new(2, 1);
    let mut listener = pair.b.listener(pair.now, 80, Spread::One);
    let client = pair.a.connecting(pair.now, 5000, SocketAddr::new(ip(2, 2), 80));
    pair.settle();
    let mut server = pair.b.accept(pair.now, &mut listener).expect("it waits");
    for number in [1, 9] {
        assert_eq!(pair.b.call(pair.now, |env| server.migrate(env, number)), Err(Error::Invalid));
    }
    assert_eq!(pair.b.call(pair.now, |env| server.migrate(env, 0)), Ok(()), "where it is");
    pair.a.close(pair.now, client);
}

#[test]
fn an_attempt_that_is_refused_says_so_and_can_be_made_again() {
    let mut pair = Pair::new(1, 2);
    let to = SocketAddr::new(ip(2, 2), 80);
    let mut client = pair.a.connecting(pair.now, 5000, to);
    pair.settle();
    assert!(client.readiness(&mut pair.a.rings, &pair.a.choice).contains(Readiness::ERR));
    assert_eq!(pair.a.call(pair.now, |env| client.take_error(env)), Some(Error::Refused));
    assert!(matches!(client.state(), State::Bound(_)));
    let mut listener = pair.b.listener(pair.now, 80, Spread::Every);
    assert_eq!(pair.a.call(pair.now, |env| client.connect(env, to)), Err(Error::InProgress));
    pair.settle();
    pair.a.call(pair.now, |env| client.settle(env));
    assert!(matches!(client.state(), State::Connected(_)));
    assert_eq!(pair.a.call(pair.now, |env| client.connect(env, to)), Err(Error::AlreadyConnected));
    assert!(pair.b.accept(pair.now, &mut listener).is_ok());
}
