//! Several rings on one interface, among which its queues are shared out. The peer's kernel has each of its flows come by a queue of its own choice, and says nothing of
//! it: what comes to another ring than has its flow finds that.

use std::io::{IoSlice, IoSliceMut, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::JoinHandle;

use ringway_host::Clock;
use ringway_stack::Error;
use ringway_stack::device::{Device as _, FlowRule, Protocol, QueueId, Queues as _, RuleError, Target, Wake};
use ringway_stack::ring::{FlowId, RecvFlags, Ring, RingConfig, SendFlags, Shutdown, UdpOptions};
use ringway_stack::tcp::{Config, State};
use ringway_xdp::{AttachError, Landing, Settings, XdpDevice, XdpQueues};

use crate::link::{Cable, Link};
use crate::peers::{STREAM, bytes, exchange};
use crate::world::{PATIENCE, World, on_link};

const RINGS: u32 = 4;
/// So many flows that, as the peer's kernel chooses, some come by each queue, most likely; and by more than one for sure, all but.
const FLOWS: usize = 24;

struct Several {
    clock: Clock,
    device: XdpDevice,
    rings: Vec<Ring<XdpQueues>>,
    link: Link,
}

/// Runs a test with as many rings as the interface has queues, over IPv4 and over IPv6.
fn with_rings(test: impl Fn(&mut Several) + Sync) {
    for is_v6 in [false, true] {
        on_link(Cable { is_v6, queues: RINGS, ..Cable::default() }, |link| test(&mut Several::on(link, RINGS)));
    }
}

impl Several {
    fn on(link: Link, count: u32) -> Self {
        let device = XdpDevice::attach(&Settings::new("a0")).expect("an interface with XDP");
        let queues = device.open_rings(count).expect("its rings");
        let ring = |(number, queues)| {
            Ring::new(queues, RingConfig { number, addresses: vec![link.local], ..RingConfig::default() }, [number as u8; 32])
        };
        let rings = (0..).zip(queues).map(ring).collect();
        Self { clock: Clock::system(), device, rings, link }
    }

    fn of(&mut self, flow: FlowId) -> &mut Ring<XdpQueues> {
        &mut self.rings[usize::from(flow.ring)]
    }

    /// Serves the rings until `done` gives something.
    fn until<T>(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        let end = self.clock.now() + PATIENCE;
        loop {
            let now = self.clock.now();
            self.rings.iter_mut().for_each(|ring| _ = ring.poll(now));
            if let Some(result) = done(self) {
                return result;
            }
            assert!(now < end, "not within {PATIENCE:?}: {what}; {:?}", self.counters());
        }
    }

    fn counters(&self) -> Vec<ringway_xdp::Counters> {
        self.rings.iter().map(|ring| ring.queues().counters()).collect()
    }

    /// Frames that went from ring to ring.
    fn passed_on(&self) -> u64 {
        self.counters().iter().map(|counters| counters.passed_on).sum()
    }

    fn connect(&mut self, ring: usize, port: u16, to: SocketAddr) -> FlowId {
        let (now, local) = (self.clock.now(), SocketAddr::new(self.link.local, port));
        self.rings[ring].tcp_connect(now, local, to, World::hop(), &Config::default()).expect("room")
    }

    fn await_established(&mut self, flow: FlowId) {
        self.until("a handshake", |several| {
            (several.of(flow).info(flow).and_then(|info| info.state) == Some(State::Established)).then_some(())
        });
    }

    /// Our half of [`exchange`], and the end.
    fn exchange(&mut self, flow: FlowId, peer: JoinHandle<Vec<u8>>) {
        let (ours, theirs) = (bytes(STREAM, 1), bytes(STREAM, 2));
        let (mut written, mut read, mut into) = (0, Vec::new(), vec![0; 1 << 16]);
        self.until("both streams", |several| {
            let now = several.clock.now();
            let ring = several.of(flow);
            while written < ours.len() {
                match ring.tcp_send(now, flow, &[IoSlice::new(&ours[written..])], SendFlags::empty()) {
                    Ok(len) => written += len,
                    Err(error) => {
                        assert_eq!(error, Error::WouldBlock);
                        break;
                    }
                }
                if written == ours.len() {
                    ring.shutdown(now, flow, Shutdown::Write).expect("our end");
                }
            }
            match ring.tcp_recv(now, flow, &mut [IoSliceMut::new(&mut into)], RecvFlags::empty()) {
                Ok(0) => return Some(()).filter(|()| written == ours.len()),
                Ok(len) => read.extend_from_slice(&into[..len]),
                Err(error) => assert_eq!(error, Error::WouldBlock),
            }
            None
        });
        assert!(read == theirs, "the peer's stream, byte for byte");
        let now = self.clock.now();
        self.of(flow).close(now, flow, false);
        self.until("the peer's end", |_| peer.is_finished().then_some(()));
        assert!(peer.join().expect("the peer") == ours, "our stream, byte for byte");
    }
}

/// A listener of the peer's, each of whose connections exchanges streams; one thread each.
fn listener_there(several: &Several, port: u16, count: usize) -> (SocketAddr, std::sync::mpsc::Receiver<JoinHandle<Vec<u8>>>) {
    let to = SocketAddr::new(several.link.remote, port);
    let (tell, told) = std::sync::mpsc::channel();
    let (give, given) = std::sync::mpsc::channel();
    several.link.as_peer(move || {
        let listener = TcpListener::bind(to).expect("a listener");
        tell.send(()).expect("we wait");
        for stream in listener.incoming().take(count) {
            let stream = stream.expect("our side connects");
            give.send(std::thread::spawn(|| exchange(stream))).expect("we wait");
        }
    });
    told.recv().expect("it listens");
    (to, given)
}

#[test]
fn what_a_listener_accepts_is_on_the_ring_that_it_comes_to() {
    with_rings(|several| {
        let local = SocketAddr::new(several.link.local, 5001);
        let listen = |ring: &mut Ring<XdpQueues>| ring.tcp_listen(local, FLOWS, &Config::default()).expect("room");
        let listeners: Vec<FlowId> = several.rings.iter_mut().map(listen).collect();
        assert_eq!(several.device.rules(), 1);
        let peer = several.link.as_peer(move || {
            let connect = |_| TcpStream::connect(local).expect("our side listens");
            let mut streams: Vec<_> = (0..FLOWS).map(connect).collect();
            streams.iter_mut().for_each(|stream| stream.write_all(b"hello").expect("it is read"));
            let mut said = String::new();
            streams.iter_mut().map(|stream| stream.read_to_string(&mut said).expect("our side answers")).sum::<usize>()
        });
        let (mut flows, mut served, mut accepted) = (Vec::new(), 0, [0; RINGS as usize]);
        several.until("all connections", |several| {
            for listener in &listeners {
                if let Ok(flow) = several.of(*listener).tcp_accept(*listener) {
                    accepted[usize::from(flow.ring)] += 1;
                    flows.push(flow);
                }
            }
            let now = several.clock.now();
            flows.retain(|flow| {
                let (ring, mut into) = (several.of(*flow), [0; 16]);
                let read = ring.tcp_recv(now, *flow, &mut [IoSliceMut::new(&mut into)], RecvFlags::empty());
                if let Ok(len) = read {
                    assert_eq!(&into[..len], b"hello");
                    assert_eq!(ring.tcp_send(now, *flow, &[IoSlice::new(b"goodbye")], SendFlags::empty()), Ok(7));
                    ring.close(now, *flow, false);
                    served += 1;
                }
                read.is_err()
            });
            (served == FLOWS).then_some(())
        });
        several.until("the peer's end", |_| peer.is_finished().then_some(()));
        assert_eq!(peer.join().expect("the peer"), FLOWS * 7);
        assert!(accepted.iter().filter(|count| **count > 0).count() > 1, "{accepted:?}");
        for (at, listener) in listeners.into_iter().enumerate() {
            let now = several.clock.now();
            several.of(listener).close(now, listener, false);
            // (What was accepted, and is not over yet, has rules of its own then.)
            let rule = FlowRule::flow(Protocol::Tcp, local, None);
            let taken =
                several.device.attach(&rule, Target::Queue(QueueId(RINGS - 1))).map(|attached| several.device.detach(attached.rule));
            assert_eq!(taken.is_ok(), at + 1 == RINGS as usize, "as long as one ring listens");
        }
    });
}

/// Answers come to whatever ring the peer's kernel chooses, which finds the connection.
#[test]
fn a_connection_that_any_ring_opens_carries_both_streams() {
    with_rings(|several| {
        let (to, peers) = listener_there(several, 7001, FLOWS);
        let mut landed = 0;
        for at in 0..FLOWS {
            let (ring, port) = (at % RINGS as usize, 6000 + at as u16);
            let flow = several.connect(ring, port, to);
            several.await_established(flow);
            let ends = (SocketAddr::new(several.link.local, port), to);
            let lands_elsewhere = |(local, remote, at): &(_, _, QueueId)| (*local, *remote) == ends && u32::from(flow.ring) != at.0;
            landed += several.device.take_landings().iter().filter(|landing| lands_elsewhere(landing)).count();
            let peer = peers.recv().expect("it has accepted");
            // (Few of them are read to their ends: that takes long.)
            if at < RINGS as usize {
                several.exchange(flow, peer);
            } else {
                let now = several.clock.now();
                several.of(flow).close(now, flow, true);
            }
        }
        assert!(several.passed_on() > 0 && landed > 0, "{landed} {:?}", several.counters());
    });
}

/// A connection that goes over to the ring that its frames come to gets them from there.
#[test]
fn a_connection_goes_over_to_where_its_frames_land() {
    with_rings(|several| {
        let (to, peers) = listener_there(several, 7001, FLOWS);
        for at in 0..FLOWS {
            let port = 6000 + at as u16;
            let flow = several.connect(0, port, to);
            several.await_established(flow);
            let peer = peers.recv().expect("it has accepted");
            let (now, local) = (several.clock.now(), SocketAddr::new(several.link.local, port));
            let landings = several.device.take_landings();
            let Some((_, _, QueueId(ring))) = landings.into_iter().find(|landing| (landing.0, landing.1) == (local, to)) else {
                several.of(flow).close(now, flow, true);
                continue;
            };
            let handover = several.of(flow).detach_stream(now, flow).expect("it is established");
            let flow = several.rings[ring as usize].adopt(now, handover).map_err(|(error, _)| error).expect("room");
            assert_eq!(u32::from(flow.ring), ring);
            let before = several.passed_on();
            several.exchange(flow, peer);
            // (But for what was on its way; and a kernel that hears nothing for long may choose another queue.)
            let after = several.passed_on() - before;
            assert!(after < 100, "{after} of {:?}", several.counters());
            return;
        }
        panic!("none landed elsewhere: {:?}", several.counters());
    });
}

#[test]
fn datagrams_come_to_every_ring_and_each_of_them_once() {
    with_rings(|several| {
        let local = SocketAddr::new(several.link.local, 5002);
        let open = |ring: &mut Ring<XdpQueues>| ring.udp_open(local, &UdpOptions::default()).expect("room");
        let flows: Vec<FlowId> = several.rings.iter_mut().map(open).collect();
        let remote = several.link.remote;
        let peer = several.link.as_peer(move || {
            for number in 0..FLOWS as u8 {
                let socket = UdpSocket::bind(SocketAddr::new(remote, 0)).expect("a socket");
                socket.send_to(&[number; 300], local).expect("it leaves");
                let mut into = [0; 16];
                let (len, from) = socket.recv_from(&mut into).expect("an answer");
                assert_eq!((&into[..len], from), (&[number][..], local));
            }
        });
        let (mut came, mut by_ring) = (Vec::new(), [0; RINGS as usize]);
        several.until("all datagrams", |several| {
            for flow in &flows {
                let (now, ring, mut into) = (several.clock.now(), several.of(*flow), [0; 400]);
                let Ok(datagram) = ring.udp_recv(*flow, &mut [IoSliceMut::new(&mut into)], RecvFlags::empty()) else { continue };
                let to = Some((datagram.from, World::hop()));
                assert_eq!(ring.udp_send(now, *flow, &[IoSlice::new(&into[..1])], local.ip(), to), Ok(1));
                by_ring[usize::from(flow.ring)] += 1;
                came.push(into[0]);
            }
            peer.is_finished().then_some(())
        });
        peer.join().expect("the peer");
        assert_eq!(came, (0..FLOWS as u8).collect::<Vec<_>>());
        assert!(by_ring.iter().filter(|count| **count > 0).count() > 1, "{by_ring:?}");
    });
}

/// What comes by another queue than a listener of one ring has goes there; and what no ring has, one of them answers, and not the kernel.
#[test]
fn what_one_ring_has_is_found_and_what_none_has_is_refused() {
    with_rings(|several| {
        let [here, nobodys] = [5003, 5005].map(|port| SocketAddr::new(several.link.local, port));
        let listener = several.rings[2].tcp_listen(here, FLOWS, &Config::default()).expect("room");
        let rule = FlowRule::flow(Protocol::Tcp, nobodys, None);
        several.device.attach(&rule, Target::Queue(QueueId(1))).expect("a rule, and no flow");
        for (to, are_refused) in [(here, false), (nobodys, true)] {
            let connected = several.link.as_peer(move || {
                let is_so = |_: &usize| match TcpStream::connect(to) {
                    Ok(_) => !are_refused,
                    Err(error) => are_refused && error.kind() == std::io::ErrorKind::ConnectionRefused,
                };
                (0..FLOWS).filter(is_so).count()
            });
            let before = several.passed_on();
            several.until("all answers", |_| connected.is_finished().then_some(()));
            assert_eq!(connected.join().expect("the peer"), FLOWS);
            let (passed, others) = (several.passed_on() - before, u64::from(RINGS) - 1);
            assert!(passed > 0 && (!are_refused || passed >= others * FLOWS as u64), "{passed}");
        }
        let now = several.clock.now();
        several.of(listener).close(now, listener, false);
    });
}

/// Who sleeps on the ring that has a connection is woken by what came to another, once that was polled.
#[test]
fn what_is_passed_on_wakes_who_sleeps() {
    with_rings(|several| {
        let local = SocketAddr::new(several.link.local, 5004);
        several.rings[0].tcp_listen(local, FLOWS, &Config::default()).expect("room");
        let peer = several.link.as_peer(move || (0..FLOWS).map(|_| TcpStream::connect(local)).collect::<Result<Vec<_>, _>>().map(drop));
        let queues = several.rings[0].queues_mut();
        let fd = queues.wait_fd().expect("a descriptor");
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut wakes = 0;
        several.until("all connections", |several| {
            if several.passed_on() > wakes && several.rings[0].queues_mut().arm(Wake::Any) {
                several.rings[0].queues_mut().disarm();
            }
            wakes = several.passed_on();
            let now = several.clock.now();
            several.rings[0].poll(now);
            if several.rings[0].queues_mut().arm(Wake::Any) {
                several.rings[1..].iter_mut().for_each(|ring| _ = ring.poll(now));
                // (Asked first: more may come in between.)
                let is_there = several.rings[0].queues().rx_ready();
                // The kernel publishes a frame, and wakes who sleeps a moment later: a sleeper's moment is had here too.
                let patience = if is_there { PATIENCE.as_millis() as i32 } else { 0 };
                // SAFETY: one entry is readable and writable.
                let is_readable = unsafe { libc::poll(&raw mut poll, 1, patience) } == 1;
                assert!(is_readable || !is_there, "what is there can be slept on");
                several.rings[0].queues_mut().disarm();
            }
            peer.is_finished().then_some(())
        });
        peer.join().expect("the peer").expect("our side listens");
        assert!(several.passed_on() > 0);
    });
}

#[test]
fn there_are_no_more_rings_than_queues_and_none_twice() {
    on_link(Cable { queues: 3, ..Cable::default() }, |link| {
        let mut several = Several::on(link, 9);
        assert_eq!(several.rings.len(), 3);
        assert!(matches!(several.device.open_ring(), Err(AttachError::Taken { .. })));
        let rule = FlowRule::flow(Protocol::Udp, (several.link.local, 9000).into(), None);
        assert_eq!(several.device.attach(&rule, Target::Queue(QueueId(3))).map(drop), Err(RuleError::NoQueue));
        several.device.attach(&rule, Target::Queue(QueueId(2))).expect("a rule");
        several.rings.pop();
        assert_eq!(several.device.rules(), 0, "it has ended with its ring");
        several.rings.clear();
        // With two rings, one has two queues.
        let again = several.device.open_rings(2).expect("they are free again");
        assert_eq!(again.iter().map(|ring| ring.received_by_queue().len()).collect::<Vec<_>>(), [2, 1]);
        let landing = several.device.lands_at(Protocol::Tcp, (several.link.local, 1).into(), (several.link.remote, 2).into());
        assert_eq!(landing, Landing::Unknown, "a veth pair does not say");
    });
}
