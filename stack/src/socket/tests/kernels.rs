//! The part of a socket that is the kernel's.

use core::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::*;
use crate::ring::{Datagram, Shutdown};

/// A kernel that has what a test puts into it.
#[derive(Clone, Default)]
struct Part(Rc<RefCell<Inside>>);

#[derive(Default)]
struct Inside {
    waiting: VecDeque<u8>,
    sent: Vec<Option<SocketAddr>>,
    connected: Option<SocketAddr>,
    backlog: Option<usize>,
    closed: bool,
}

impl Kernel for Part {
    fn bind(&mut self, local: SocketAddr) -> Result<SocketAddr, Error> {
        Ok(if local.port() == 0 { SocketAddr::new(local.ip(), 49_152) } else { local })
    }
    fn listen(&mut self, backlog: usize) -> Result<(), Error> {
        self.0.borrow_mut().backlog = Some(backlog);
        Ok(())
    }
    fn accept(&mut self) -> Result<Box<dyn Kernel>, Error> {
        self.0.borrow_mut().waiting.pop_front().ok_or(Error::WouldBlock)?;
        Ok(Box::new(Self::default()))
    }
    fn connect(&mut self, remote: SocketAddr) -> Result<(), Error> {
        self.0.borrow_mut().connected = Some(remote);
        Ok(())
    }
    fn readiness(&self) -> Readiness {
        if self.0.borrow().waiting.is_empty() { Readiness::OUT } else { Readiness::OUT | Readiness::IN }
    }
    fn send(&mut self, data: &[IoSlice<'_>], to: Option<SocketAddr>) -> Result<usize, Error> {
        self.0.borrow_mut().sent.push(to);
        Ok(data.iter().map(|data| data.len()).sum())
    }
    fn recv(&mut self, into: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<Datagram, Error> {
        let waiting = &mut self.0.borrow_mut().waiting;
        let &byte = waiting.front().ok_or(Error::WouldBlock)?;
        if !flags.contains(RecvFlags::PEEK) {
            waiting.pop_front();
        }
        into[0][0] = byte;
        let from = SocketAddr::from(([127, 0, 0, 1], 9));
        Ok(Datagram { copied: 1, len: 1, from, to: from.ip(), received: Instant::ZERO, hardware_time: None, drops: 0 })
    }
    fn take_error(&mut self) -> Option<Error> {
        None
    }
    fn shutdown(&mut self, _: Shutdown) -> Result<(), Error> {
        Ok(())
    }
    fn close(&mut self) {
        self.0.borrow_mut().closed = true;
    }
}

impl Part {
    fn comes(&self, byte: u8) {
        self.0.borrow_mut().waiting.push_back(byte);
    }
}

fn with_kernel(host: &mut Host, protocol: Protocol, spread: Spread) -> (Socket, Part) {
    let part = Part::default();
    (Socket::new(host.id(), Setup { spread, ..Setup::new(protocol) }, Some(Box::new(part.clone()))), part)
}

fn next(host: &mut Host, now: Instant, socket: &mut Socket) -> Result<u8, Error> {
    let mut bytes = [0; 4];
    host.call(now, |env| socket.recv_from(env, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()))?;
    Ok(bytes[0])
}

#[test]
fn neither_the_kernels_datagrams_nor_the_rings_starve() {
    let mut pair = Pair::new(1, 1);
    let (mut socket, part) = with_kernel(&mut pair.b, Protocol::Udp, Spread::One);
    pair.b.call(pair.now, |env| socket.bind(env, SocketAddr::from(([0; 4], 53)))).expect("a fresh socket");
    let mut sender = pair.a.socket(Protocol::Udp, Spread::One);
    pair.a.call(pair.now, |env| sender.bind(env, SocketAddr::from(([0; 4], 6000)))).expect("a fresh socket");
    let mut arrive = |pair: &mut Pair, byte: u8| {
        let to = SocketAddr::new(ip(2, 2), 53);
        pair.a.call(pair.now, |env| sender.send_to(env, &[IoSlice::new(&[byte])], Some(to))).expect("it is on the link");
        pair.settle();
    };
    (1..4).for_each(|byte| arrive(&mut pair, byte));
    (101..104).for_each(|byte| part.comes(byte));
    // The kernel's are found with the first call, behind what had come by then.
    assert_eq!(next(&mut pair.b, pair.now, &mut socket), Ok(1));
    (4..7).for_each(|byte| arrive(&mut pair, byte));
    let order: Vec<_> = (0..8).map(|_| next(&mut pair.b, pair.now, &mut socket).expect("it waits")).collect();
    assert_eq!(order, [2, 3, 101, 4, 5, 6, 102, 103]);
    assert_eq!(next(&mut pair.b, pair.now, &mut socket), Err(Error::WouldBlock));
    pair.b.close(pair.now, socket);
    assert!(part.0.borrow().closed);
}

#[test]
fn a_listener_accepts_from_the_kernel_too() {
    let mut pair = Pair::new(1, 2);
    let (mut listener, part) = with_kernel(&mut pair.b, Protocol::Tcp, Spread::Every);
    pair.b.call(pair.now, |env| {
        listener.bind(env, SocketAddr::from(([0; 4], 80))).expect("a fresh socket");
        listener.listen(env, 5).expect("nobody listens there");
        listener.listen(env, 7).expect("it listens");
    });
    assert_eq!(part.0.borrow().backlog, Some(7));
    part.comes(0);
    assert!(listener.readiness(&mut pair.b.rings, &pair.b.choice).contains(Readiness::IN));
    let accepted = pair.b.accept(pair.now, &mut listener).expect("the kernel's");
    assert!(matches!(accepted.state(), State::Kernel));
    let client = pair.a.connecting(pair.now, 5000, SocketAddr::new(ip(2, 2), 80));
    pair.settle();
    assert_eq!(remote(&pair.b.accept(pair.now, &mut listener).expect("a ring's")).port(), 5000);
    pair.a.close(pair.now, client);
}

#[test]
fn what_no_ring_leads_to_is_the_kernels() {
    let mut pair = Pair::new(1, 1);
    let nowhere = SocketAddr::new(ip(77, 7), 80);
    let (mut stream, part) = with_kernel(&mut pair.a, Protocol::Tcp, Spread::One);
    assert_eq!(pair.a.call(pair.now, |env| stream.connect(env, nowhere)), Ok(()));
    assert_eq!(part.0.borrow().connected, Some(nowhere));
    assert!(matches!(stream.state(), State::Kernel));
    // This host's own address is the kernel's, as long as loopback has no ring.
    let (mut local, part) = with_kernel(&mut pair.a, Protocol::Tcp, Spread::One);
    assert_eq!(pair.a.call(pair.now, |env| local.connect(env, SocketAddr::new(ip(2, 1), 80))), Ok(()));
    assert!(part.0.borrow().connected.is_some());
    // Of a datagram socket, one destination may be the kernel's, and another a ring's.
    let (mut datagrams, part) = with_kernel(&mut pair.a, Protocol::Udp, Spread::One);
    for to in [nowhere, SocketAddr::new(ip(2, 2), 53)] {
        assert_eq!(pair.a.call(pair.now, |env| datagrams.send_to(env, &[IoSlice::new(b"x")], Some(to))), Ok(1));
    }
    assert_eq!(part.0.borrow().sent, [Some(nowhere)]);
    assert_eq!(datagrams.local().map(|local| local.port()), Some(49_152), "the kernel chose it");
    // Without a kernel there is nobody.
    let mut alone = pair.a.socket(Protocol::Tcp, Spread::One);
    assert_eq!(pair.a.call(pair.now, |env| alone.connect(env, nowhere)), Err(Error::HostUnreachable));
}
