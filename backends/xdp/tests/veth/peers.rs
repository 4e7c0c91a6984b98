//! Connections and datagrams between our ring and the kernel behind the cable.

use std::io::{IoSlice, IoSliceMut, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use ringway_stack::Error;
use ringway_stack::device::{Device as _, Queues as _, Wake};
use ringway_stack::ring::{FlowId, RecvFlags, SendFlags, Shutdown, UdpOptions};
use ringway_stack::tcp::{Config, State};
use ringway_xdp::Settings;

use crate::link::Cable;
use crate::namespaces::offloads_off;
use crate::world::{World, in_world, in_worlds};

/// Bytes of a stream, each way.
pub(crate) const STREAM: usize = 2 << 20;

pub(crate) fn bytes(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|at| ((at / 7 + salt).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u8 ^ at as u8).collect()
}

/// The peer writes its stream and ends it, and reads ours to its end.
pub(crate) fn exchange(mut stream: TcpStream) -> Vec<u8> {
    let mut out = stream.try_clone().expect("a descriptor");
    let writer = std::thread::spawn(move || {
        out.write_all(&bytes(STREAM, 2)).expect("our side reads");
        out.shutdown(std::net::Shutdown::Write).expect("an end");
    });
    let mut read = Vec::new();
    stream.read_to_end(&mut read).expect("our side writes");
    writer.join().expect("it has written");
    read
}

/// We do the same, and close.
pub(crate) fn exchange_by_ring(world: &mut World, flow: FlowId) {
    let (ours, theirs) = (bytes(STREAM, 1), bytes(STREAM, 2));
    let (mut written, mut read, mut into) = (0, Vec::new(), vec![0; 1 << 16]);
    world.until("both streams", |world| {
        let now = world.clock.now();
        while written < ours.len() {
            match world.ring.tcp_send(now, flow, &[IoSlice::new(&ours[written..])], SendFlags::empty()) {
                Ok(len) => written += len,
                Err(error) => {
                    assert_eq!(error, Error::WouldBlock);
                    break;
                }
            }
            if written == ours.len() {
                world.ring.shutdown(now, flow, Shutdown::Write).expect("our end");
            }
        }
        match world.ring.tcp_recv(now, flow, &mut [IoSliceMut::new(&mut into)], RecvFlags::empty()) {
            Ok(0) => return Some(()).filter(|()| written == ours.len()),
            Ok(len) => read.extend_from_slice(&into[..len]),
            Err(error) => assert_eq!(error, Error::WouldBlock),
        }
        None
    });
    assert!(read == theirs, "the peer's stream, byte for byte");
    world.ring.close(world.clock.now(), flow, false);
}

/// Opens a connection to a listener of the peer's, which exchanges streams.
pub(crate) fn open(world: &mut World) -> (FlowId, std::thread::JoinHandle<Vec<u8>>) {
    let to = SocketAddr::new(world.link.remote, 7000);
    let (tell, told) = std::sync::mpsc::channel();
    let peer = world.link.as_peer(move || {
        let listener = TcpListener::bind(to).expect("a listener");
        tell.send(()).expect("we wait");
        exchange(listener.accept().expect("our side connects").0)
    });
    told.recv().expect("it listens");
    let local = world.fresh();
    // (Segments as long as the link has them.)
    let config = Config { mss_max: u16::MAX, ..Config::default() };
    let flow = world.ring.tcp_connect(world.now(), local, to, World::hop(), &config).expect("room");
    world.until("the handshake", |world| (world.ring.info(flow).and_then(|info| info.state) == Some(State::Established)).then_some(()));
    (flow, peer)
}

/// Both streams of a connection that we open, to their ends.
pub(crate) fn both_streams(world: &mut World) {
    let (flow, peer) = open(world);
    exchange_by_ring(world, flow);
    world.until("the peer's end", |_| peer.is_finished().then_some(()));
    assert!(peer.join().expect("the peer") == bytes(STREAM, 1), "our stream, byte for byte");
}

#[test]
fn a_connection_that_we_open_carries_both_streams() {
    in_worlds(both_streams);
}

#[test]
fn a_connection_that_we_accept_carries_both_streams() {
    in_worlds(|world| {
        let local = world.fresh();
        let listener = world.ring.tcp_listen(local, 4, &Config::default()).expect("room");
        let peer = world.link.as_peer(move || exchange(TcpStream::connect(local).expect("our side listens")));
        let flow = world.until("a connection", |world| world.ring.tcp_accept(listener).ok());
        exchange_by_ring(world, flow);
        world.until("the peer's end", |_| peer.is_finished().then_some(()));
        assert!(peer.join().expect("the peer") == bytes(STREAM, 1), "our stream, byte for byte");
    });
}

/// Segments that came one behind the other are one frame to the ring, and what it has the kernel cut is one system call.
#[test]
fn a_stream_takes_fewer_frames_and_calls_than_segments() {
    in_worlds(|world| {
        both_streams(world);
        let (of_queues, of_ring) = (world.ring.queues().counters(), world.ring.counters());
        assert!(of_ring.rx_packets < of_queues.received, "{of_queues:?} {of_ring:?}");
        assert!(of_queues.sent == of_ring.tx_packets && of_queues.wakeups < of_queues.sent / 2, "{of_queues:?} {of_ring:?}");
        assert_eq!(world.ring.queues().held(), 0);
    });
}

/// Datagrams of these lengths come, and go back.
pub(crate) fn echo<const COUNT: usize>(world: &mut World, lengths: [usize; COUNT]) {
    let local = world.fresh();
    let flow = world.ring.udp_open(local, &UdpOptions::default()).expect("room");
    let remote = world.link.remote;
    let peer = world.link.as_peer(move || {
        let socket = UdpSocket::bind(SocketAddr::new(remote, 0)).expect("a socket");
        let mut into = vec![0; 1 << 16];
        for len in lengths {
            socket.send_to(&bytes(len, len as u64), local).expect("it leaves");
            let (echoed, from) = socket.recv_from(&mut into).expect("an echo");
            assert!(from == local && into[..echoed] == bytes(len, len as u64), "{len} bytes");
        }
    });
    let mut into = vec![0; 1 << 16];
    for _ in lengths {
        let datagram =
            world.until("a datagram", |world| world.ring.udp_recv(flow, &mut [IoSliceMut::new(&mut into)], RecvFlags::empty()).ok());
        let to = Some((datagram.from, World::hop()));
        let sent = world.ring.udp_send(world.clock.now(), flow, &[IoSlice::new(&into[..datagram.copied])], local.ip(), to);
        assert_eq!(sent, Ok(datagram.copied));
    }
    world.until("the peer's end", |_| peer.is_finished().then_some(()));
    peer.join().expect("the peer");
}

#[test]
fn datagrams_come_and_go_whatever_their_length() {
    in_worlds(|world| echo(world, [0, 1, 7, 200, 213, 214, 215, 1000, 1400]));
}

/// What has no rule is the kernel's, while others have; and everything is once the device is gone.
#[test]
fn the_kernel_has_the_rest() {
    in_worlds(|world| {
        let (kernels, ours) = (world.fresh(), world.fresh());
        let listener = TcpListener::bind(kernels).expect("a listener of the kernel's");
        let served = std::thread::spawn(move || {
            for stream in listener.incoming().take(2) {
                stream.expect("a connection").write_all(b"kernel").expect("it is read");
            }
        });
        let ask = move || {
            let mut said = String::new();
            TcpStream::connect(kernels).expect("the kernel listens").read_to_string(&mut said).expect("it speaks");
            said
        };
        let flow = world.ring.tcp_listen(ours, 4, &Config::default()).expect("room");
        assert_eq!(world.device.rules(), 1);
        assert_eq!(world.link.as_peer(ask).join().expect("the peer"), "kernel");
        world.ring.close(world.now(), flow, false);
        assert_eq!(world.device.rules(), 0);
        let refused = world.link.as_peer(move || TcpStream::connect(ours).map(drop)).join().expect("the peer");
        assert_eq!(refused.map_err(|error| error.kind()), Err(std::io::ErrorKind::ConnectionRefused), "nobody listens there now");
        assert_eq!(world.link.as_peer(ask).join().expect("the peer"), "kernel");
        served.join().expect("the kernel's side");
    });
}

/// An ICMP error that quotes what we sent is ours, whatever of the peer's the kernel beside us hears.
#[test]
fn a_port_that_nobody_has_refuses() {
    in_worlds(|world| {
        let (local, closed) = (world.fresh(), SocketAddr::new(world.link.remote, 9));
        let flow = world.ring.udp_open(local, &UdpOptions::default()).expect("room");
        world.ring.udp_connect(flow, local.ip(), Some((closed, World::hop()))).expect("a peer");
        let sent = world.ring.udp_send(world.now(), flow, &[IoSlice::new(b"anybody?")], local.ip(), None);
        assert_eq!(sent, Ok(8));
        let error = world.until("an error", |world| world.ring.take_error(flow));
        assert_eq!(error, Error::Refused);
    });
}

/// Who sleeps on the ring is woken by what comes.
#[test]
fn a_ring_can_be_slept_on() {
    in_worlds(|world| {
        let local = world.fresh();
        let flow = world.ring.udp_open(local, &UdpOptions::default()).expect("room");
        let queues = world.ring.queues_mut();
        assert!(queues.arm(Wake::Any), "nothing has come");
        let mut poll = libc::pollfd { fd: queues.wait_fd().expect("a descriptor"), events: libc::POLLIN, revents: 0 };
        let mut wait = |milliseconds| {
            // SAFETY: one entry is readable and writable.
            unsafe { libc::poll(&raw mut poll, 1, milliseconds) }
        };
        assert_eq!(wait(20), 0);
        let remote = world.link.remote;
        let peer =
            world.link.as_peer(move || UdpSocket::bind(SocketAddr::new(remote, 0)).and_then(|socket| socket.send_to(b"wake up", local)));
        assert_eq!(wait(5000), 1);
        peer.join().expect("the peer").expect("it leaves");
        assert!(!world.ring.queues_mut().arm(Wake::Any), "there is something to poll");
        world.ring.queues_mut().disarm();
        assert_eq!(wait(0), 0, "who is not armed is not woken");
        let mut into = [0; 16];
        world.ring.poll(world.clock.now());
        let datagram = world.ring.udp_recv(flow, &mut [IoSliceMut::new(&mut into)], RecvFlags::empty()).expect("it has come");
        assert_eq!(&into[..datagram.copied], b"wake up");
    });
}

/// The peer's kernel spreads its flows over the queues of its interface, and so of ours: all of them come to the ring.
#[test]
fn whatever_queue_it_comes_by_is_ours() {
    for is_v6 in [false, true] {
        in_world(Cable { is_v6, queues: 4, ..Cable::default() }, &Settings::new("a0"), |mut world| comes_by_four_queues(&mut world));
    }
}

pub(crate) fn comes_by_four_queues(world: &mut World) {
    const CONNECTIONS: usize = 24;
    let local = world.fresh();
    let listener = world.ring.tcp_listen(local, CONNECTIONS, &Config::default()).expect("room");
    let peer = world.link.as_peer(move || {
        let connect = |_| TcpStream::connect(local).expect("our side listens");
        let mut streams: Vec<_> = (0..CONNECTIONS).map(connect).collect();
        streams.iter_mut().for_each(|stream| stream.write_all(b"hello").expect("it is read"));
        let mut said = String::new();
        streams.iter_mut().map(|stream| stream.read_to_string(&mut said).expect("our side answers")).sum::<usize>()
    });
    let mut served = 0;
    let mut flows = Vec::new();
    let mut into = [0; 16];
    world.until("all connections", |world| {
        flows.extend(world.ring.tcp_accept(listener).ok());
        let now = world.clock.now();
        flows.retain(|flow| {
            let read = world.ring.tcp_recv(now, *flow, &mut [IoSliceMut::new(&mut into)], RecvFlags::empty());
            if let Ok(len) = read {
                assert_eq!(&into[..len], b"hello");
                let sent = world.ring.tcp_send(now, *flow, &[IoSlice::new(b"goodbye")], SendFlags::empty());
                assert_eq!(sent, Ok(7));
                world.ring.close(now, *flow, false);
                served += 1;
            }
            read.is_err()
        });
        (served == CONNECTIONS).then_some(())
    });
    world.until("the peer's end", |_| peer.is_finished().then_some(()));
    assert_eq!(peer.join().expect("the peer"), CONNECTIONS * 7);
    let by_queue = world.ring.queues().received_by_queue();
    assert!(by_queue.len() == 4 && by_queue.iter().filter(|count| **count > 0).count() > 1, "{by_queue:?}");
}

/// Frames are the same whether they come by themselves, or when the kernel is asked to look for them.
#[test]
fn a_ring_that_has_its_queues_polled_gets_what_comes() {
    let settings = Settings { busy_poll: 64, ..Settings::new("a0") };
    in_world(Cable { queues: 2, ..Cable::default() }, &settings, |mut world| {
        both_streams(&mut world);
        echo(&mut world, [0, 1, 2, 1000, 1400]);
        let polls = |world: &World| world.ring.queues().counters().polls;
        let before = polls(&world);
        // (Who spins looks whether there is something, and polls the ring only then.)
        (0..10).for_each(|_| _ = world.ring.queues().rx_ready());
        assert!(before > 0, "nobody was asked");
        assert!(polls(&world) > before, "the kernel is asked by who only looks");
    });
}

/// The kernel does it, then; on veth as it comes, nobody does.
#[test]
fn checksums_that_are_left_to_an_interface_without_offloads_are_right() {
    for is_v6 in [false, true] {
        let settings = Settings { checksums: true, ..Settings::new("a0") };
        in_world(Cable { is_v6, ..Cable::default() }, &settings, |mut world| {
            if !world.device.capabilities().tx_checksum {
                assert!(std::env::var_os("CI").is_none(), "checksums are not left to veth");
                return eprintln!("left out: it takes Linux 6.11");
            }
            offloads_off("a0");
            both_streams(&mut world);
            echo(&mut world, [0, 1, 2, 1000, 1400]);
        });
    }
}
