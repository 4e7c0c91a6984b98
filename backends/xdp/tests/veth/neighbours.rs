//! Neighbours that the kernel beside the ring does not know yet, that are not there, and that move.

use std::io::{IoSlice, IoSliceMut, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc;
use std::thread::JoinHandle;

use ringway_stack::Error;
use ringway_stack::device::Protocol;
use ringway_stack::net::NeighbourState;
use ringway_stack::ring::{RecvFlags, SendFlags};
use ringway_stack::socket::Socket;

use crate::namespaces::ip;
use crate::program::Program;
use crate::world::{World, in_worlds};

/// The kernel forgets everybody.
fn forget_all() {
    ip("neigh flush dev a0\n");
}

/// Connects to a listener of the peer's, who reads until the end and says how much came.
fn connected(program: &mut Program, world: &mut World) -> (Socket, JoinHandle<usize>) {
    let (tell, told) = mpsc::channel();
    let remote = world.link.remote;
    let peer = world.link.as_peer(move || {
        let listener = TcpListener::bind(SocketAddr::new(remote, 0)).expect("a listener");
        tell.send(listener.local_addr().expect("its address")).expect("we wait");
        let mut stream: TcpStream = listener.accept().expect("a connection").0;
        let (mut bytes, mut len) = ([0; 4096], 0);
        loop {
            match stream.read(&mut bytes).expect("our stream") {
                0 => return len,
                read => len += read,
            }
            stream.write_all(b".").expect("we read");
        }
    });
    let to = told.recv().expect("it listens");
    forget_all();
    let mut socket = program.socket(Protocol::Tcp);
    let begun = program.call(world, |env| socket.connect(env, to));
    assert!(matches!(begun, Ok(()) | Err(Error::InProgress)), "{begun:?}");
    (socket, peer)
}

/// Sends a byte, and waits for its answer.
fn ping(program: &mut Program, world: &mut World, socket: &mut Socket) {
    program.until(world, "room", |env| match socket.send(env, &[IoSlice::new(b"?")], SendFlags::empty()) {
        Err(Error::NotConnected) => Err(Error::WouldBlock),
        sent => sent,
    });
    let mut byte = [0];
    program.until(world, "an answer", |env| socket.recv(env, &mut [IoSliceMut::new(&mut byte)], RecvFlags::empty()));
}

fn end(program: &mut Program, world: &mut World, mut socket: Socket, peer: JoinHandle<usize>) -> usize {
    program.call(world, |env| socket.close(env, false));
    world.until("the peer's end", |_| peer.is_finished().then_some(()));
    peer.join().expect("the peer")
}

#[test]
fn a_connection_to_an_unknown_neighbour_has_the_kernel_ask() {
    in_worlds(|world| {
        let mut program = Program::new(world);
        let (mut socket, peer) = connected(&mut program, world);
        ping(&mut program, world, &mut socket);
        let entry = {
            let tables = program.monitor.tables();
            tables.neighbour(program.link, world.link.remote).map(|entry| entry.state)
        };
        assert_eq!(entry, Some(NeighbourState::Reachable), "the kernel has asked, and knows now");
        assert_eq!(end(&mut program, world, socket, peer), 1);
    });
}

#[test]
fn the_first_datagram_to_an_unknown_neighbour_arrives() {
    in_worlds(|world| {
        let mut program = Program::new(world);
        let (tell, told) = mpsc::channel();
        let remote = world.link.remote;
        let peer = world.link.as_peer(move || {
            let own = UdpSocket::bind(SocketAddr::new(remote, 0)).expect("a socket");
            tell.send(own.local_addr().expect("its address")).expect("we wait");
            let mut bytes = [0; 16];
            let (len, from) = own.recv_from(&mut bytes).expect("a datagram");
            own.send_to(&bytes[..len], from).expect("it leaves");
        });
        let to = told.recv().expect("it is bound");
        forget_all();
        let mut socket = program.socket(Protocol::Udp);
        let any = SocketAddr::new(program.any(), 0);
        program.call(world, |env| socket.bind(env, any)).expect("a port");
        assert_eq!(program.call(world, |env| socket.send_to(env, &[IoSlice::new(b"hello")], Some(to))), Ok(5));
        let mut bytes = [0; 16];
        let got = program.until(world, "an answer", |env| socket.recv_from(env, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty()));
        assert_eq!((&bytes[..got.copied], got.from), (&b"hello"[..], to));
        peer.join().expect("the peer");
    });
}

/// As for a second or two after an interface has come up, and wherever it has none.
#[test]
fn a_neighbour_is_asked_for_without_an_address_of_the_link() {
    in_worlds(|world| {
        ip("addr flush dev a0 scope link\n");
        let mut program = Program::new(world);
        let (mut socket, peer) = connected(&mut program, world);
        let begun = world.now();
        ping(&mut program, world, &mut socket);
        assert!(world.now().since(begun).as_millis() < 900, "asked for at once");
        assert_eq!(end(&mut program, world, socket, peer), 1);
    });
}

#[test]
fn a_neighbour_that_is_not_there_is_unreachable() {
    in_worlds(|world| {
        let mut program = Program::new(world);
        let nobody = if world.link.local.is_ipv6() { "fd77::99" } else { "10.77.0.99" };
        let nobody = SocketAddr::new(nobody.parse().expect("an address"), 9);
        // The second time, the kernel has an entry that says so already, and is to ask again nevertheless.
        for _ in 0..2 {
            let (mut stream, mut datagrams) = (program.socket(Protocol::Tcp), program.socket(Protocol::Udp));
            let begun = program.call(world, |env| stream.connect(env, nobody));
            assert_eq!(begun, Err(Error::InProgress));
            program.call(world, |env| datagrams.connect(env, nobody)).expect("a datagram socket's peer");
            assert_eq!(program.call(world, |env| datagrams.send_to(env, &[IoSlice::new(b"hello")], None)), Ok(5));
            let mut errors = [None, None];
            let begun = world.now();
            world.until("both errors", |world| {
                let found = program.call(world, |env| [stream.take_error(env), datagrams.take_error(env)]);
                errors.iter_mut().zip(found).for_each(|(error, found)| *error = error.or(found));
                errors.iter().all(Option::is_some).then_some(())
            });
            assert_eq!(errors, [Some(Error::HostUnreachable); 2]);
            let took = world.now().since(begun);
            assert!((1..6).contains(&took.as_secs()), "the kernel's three questions, a second apart: {took:?}");
            program.call(world, |env| stream.close(env, false));
            program.call(world, |env| datagrams.close(env, false));
        }
    });
}

/// The peer's machine is replaced by another.
fn move_peer(world: &World) {
    world.link.as_peer(|| ip("link set b0 address 02:00:00:00:00:0c\n")).join().expect("the peer");
}

#[test]
fn a_neighbour_that_the_kernel_forgets_is_asked_for_again() {
    in_worlds(|world| {
        let mut program = Program::new(world);
        let (mut socket, peer) = connected(&mut program, world);
        ping(&mut program, world, &mut socket);
        move_peer(world);
        forget_all();
        ping(&mut program, world, &mut socket);
        assert_eq!(end(&mut program, world, socket, peer), 2);
    });
}

#[test]
fn a_neighbour_that_moves_in_silence_is_found_while_it_is_in_use() {
    in_worlds(|world| {
        // An answer is believed for a second or so, and a neighbour in use asked a second later.
        for family in ["ipv4", "ipv6"] {
            for (what, value) in [("base_reachable_time_ms", "500"), ("delay_first_probe_time", "1")] {
                std::fs::write(format!("/proc/sys/net/{family}/neigh/a0/{what}"), value).expect("a setting");
            }
        }
        let mut program = Program::new(world);
        let (mut socket, peer) = connected(&mut program, world);
        ping(&mut program, world, &mut socket);
        move_peer(world);
        ping(&mut program, world, &mut socket);
        assert_eq!(end(&mut program, world, socket, peer), 2);
    });
}
