//! Sockets above the ring and the kernel: what comes by the interface comes to the ring, what comes by another link to the kernel, and the program takes both
//! from one socket. Routes are the kernel's own.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};

use ringway_stack::Error;
use ringway_stack::device::Protocol;
use ringway_stack::ring::{RecvFlags, SendFlags};
use ringway_stack::socket::State;

use crate::program::Program;
use crate::world::in_worlds;

fn ask(to: SocketAddr) -> String {
    let mut stream = TcpStream::connect(to).expect("somebody listens");
    stream.write_all(b"who?").expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn a_listener_accepts_by_the_ring_and_by_the_kernel() {
    in_worlds(|world| {
        let mut program = Program::new(world);
        let mut listener = program.socket(Protocol::Tcp);
        let any = SocketAddr::new(program.any(), 0);
        let port = program.call(world, |env| listener.bind(env, any)).expect("a port").port();
        program.call(world, |env| listener.listen(env, 8)).expect("it listens");
        assert!(matches!(listener.state(), State::Listening(_)) && listener.flows().len() == 1);
        let (by_ring, by_kernel) = (SocketAddr::new(world.link.local, port), SocketAddr::new(program.loopback(), port));
        let peers = [world.link.as_peer(move || ask(by_ring)), std::thread::spawn(move || ask(by_kernel))];
        let mut served = [0, 0];
        for _ in 0..2 {
            let id = program.id();
            let mut accepted = program.until(world, "a connection", |env| listener.accept(env, id));
            let is_kernels = matches!(accepted.state(), State::Kernel);
            let mut bytes = [0; 8];
            let len = program.until(world, "a question", |env| accepted.recv(env, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()));
            assert_eq!(&bytes[..len], b"who?");
            let answer: &[u8] = if is_kernels { b"the kernel" } else { b"the ring" };
            let sent = program.until(world, "room", |env| accepted.send(env, &[IoSlice::new(answer)], SendFlags::empty()));
            assert_eq!(sent, answer.len());
            program.call(world, |env| accepted.close(env, false));
            served[usize::from(is_kernels)] += 1;
        }
        assert_eq!(served, [1, 1]);
        world.until("the peers' ends", |_| peers.iter().all(std::thread::JoinHandle::is_finished).then_some(()));
        assert_eq!(peers.map(|peer| peer.join().expect("a peer")), ["the ring", "the kernel"]);
        program.call(world, |env| listener.close(env, false));
        // (The connection that waits out its TIME-WAIT has a rule of its own by now.)
        assert!(world.device.rules() <= 1);
        // (A child that another test of this process is just starting may have the kernel's listener until it executes.)
        let refused = move || {
            let is_refused = TcpStream::connect(by_ring).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused);
            if !is_refused {
                std::thread::sleep(Duration::from_millis(20));
            }
            is_refused
        };
        let peer = world.link.as_peer(move || (0..50).any(|_| refused()));
        assert!(peer.join().expect("the peer"), "somebody listens still");
    });
}

#[test]
fn a_connection_goes_where_the_route_says() {
    in_worlds(|world| {
        let mut program = Program::new(world);
        let serve = |listener: TcpListener| {
            let mut stream = listener.accept().expect("a connection").0;
            stream.write_all(b"hello").expect("it is read");
        };
        let (tell, told) = std::sync::mpsc::channel();
        let remote = world.link.remote;
        let peers = world.link.as_peer(move || {
            let listener = TcpListener::bind(SocketAddr::new(remote, 0)).expect("a listener");
            tell.send(listener.local_addr().expect("its address")).expect("we wait");
            serve(listener);
        });
        let kernels = TcpListener::bind(SocketAddr::new(program.loopback(), 0)).expect("a listener");
        let here = kernels.local_addr().expect("its address");
        let beside = std::thread::spawn(move || serve(kernels));
        for (to, by_kernel) in [(told.recv().expect("it listens"), false), (here, true)] {
            let mut socket = program.socket(Protocol::Tcp);
            let begun = program.call(world, |env| socket.connect(env, to));
            assert!(matches!(begun, Ok(()) | Err(Error::InProgress)), "{begun:?}");
            assert_eq!(matches!(socket.state(), State::Kernel), by_kernel, "{to}");
            let mut bytes = [0; 8];
            let len = program.until(world, "what the peer says", |env| {
                match socket.recv(env, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()) {
                    // (The handshake is under way.)
                    Err(Error::NotConnected) => Err(Error::WouldBlock),
                    read => read,
                }
            });
            assert_eq!(&bytes[..len], b"hello");
            program.call(world, |env| socket.close(env, false));
        }
        world.until("the peers' ends", |_| (peers.is_finished() && beside.is_finished()).then_some(()));
        peers.join().expect("the peer");
        beside.join().expect("the kernel's side");
    });
}

#[test]
fn a_datagram_socket_hears_both_and_answers_each_by_its_way() {
    in_worlds(|world| {
        let mut program = Program::new(world);
        let mut socket = program.socket(Protocol::Udp);
        let any = SocketAddr::new(program.any(), 0);
        let port = program.call(world, |env| socket.bind(env, any)).expect("a port").port();
        let say = |from: IpAddr, to: IpAddr| {
            move || {
                let own = UdpSocket::bind(SocketAddr::new(from, 0)).expect("a socket");
                own.send_to(b"hello", SocketAddr::new(to, port)).expect("it leaves");
                let mut bytes = [0; 16];
                let (len, answerer) = own.recv_from(&mut bytes).expect("an answer");
                assert_eq!(answerer, SocketAddr::new(to, port));
                String::from_utf8_lossy(&bytes[..len]).into_owned()
            }
        };
        let (loopback, local, remote) = (program.loopback(), world.link.local, world.link.remote);
        let peers = [world.link.as_peer(say(remote, local)), std::thread::spawn(say(loopback, loopback))];
        for _ in 0..2 {
            let mut bytes = [0; 16];
            let got =
                program.until(world, "a datagram", |env| socket.recv_from(env, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()));
            assert_eq!(&bytes[..got.copied], b"hello");
            let answer = format!("hello, {}", got.from.port());
            let sent = program.until(world, "room", |env| socket.send_to(env, &[IoSlice::new(answer.as_bytes())], Some(got.from)));
            assert_eq!(sent, answer.len());
        }
        world.until("the peers' ends", |_| peers.iter().all(std::thread::JoinHandle::is_finished).then_some(()));
        assert!(peers.into_iter().all(|peer| peer.join().expect("a peer").starts_with("hello, ")));
        let counters = world.ring.queues().counters();
        assert!(counters.received >= 1 && counters.sent >= 1, "{counters:?}");
    });
}
