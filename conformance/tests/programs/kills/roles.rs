//! What the processes do. Streams begin with who speaks; all that follows is determined by the stream's seed and position.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::since_epoch;

/// The environment's word for a process: its role, the survivor's port, the server's port, a seed.
pub(super) const ROLE: &str = "RINGWAY_KILLS_ROLE";
/// What a line of the survivor's begins with (libtest writes, too).
pub(super) const SAID: &str = "survivor: ";

/// A stream's first bytes: process and seed.
const HEADER: usize = 16;
/// The longest piece.
const PIECE_MAX: usize = 48 << 10;
/// The survivor's own connections to the server.
const CONNECTIONS: u64 = 2;
/// A port that its dead owner had must be free by then.
const BIND_WITHIN: Duration = Duration::from_secs(1);
/// A connect that takes longer has waited for somebody who was dead.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

fn pid() -> u64 {
    std::process::id().into()
}

/// The byte at `place` of the stream with that seed.
fn byte_at(seed: u64, place: u64) -> u8 {
    (seed.wrapping_add(place).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn is_right(bytes: &[u8], seed: u64, from: u64) -> bool {
    bytes.iter().zip(from..).all(|(&byte, place)| byte == byte_at(seed, place))
}

pub(super) fn play() {
    let role = std::env::var(ROLE).expect("started by the case");
    let words: Vec<&str> = role.split_whitespace().collect();
    let number = |i: usize| words[i].parse::<u64>().expect("a number");
    let at = |i: usize| SocketAddr::from((Ipv4Addr::LOCALHOST, number(i) as u16));
    let (survivor, server, seed) = (at(1), at(2), number(3));
    thread::scope(|scope| {
        match words[0] {
            "survivor" => {
                scope.spawn(|| serve(survivor, say));
                scope.spawn(|| echo_datagrams(survivor));
                for i in 0..CONNECTIONS {
                    scope.spawn(move || converse_for_ever(server, seed ^ i, say));
                }
                scope.spawn(move || exchange_datagrams(server, seed, say));
            }
            "server" => {
                scope.spawn(|| serve(server, say_nothing));
                scope.spawn(|| echo_datagrams(server));
            }
            "client" => {
                scope.spawn(move || converse_for_ever(survivor, seed, say_nothing));
                scope.spawn(move || converse_for_ever(server, seed ^ 1, say_nothing));
                scope.spawn(move || exchange_datagrams(survivor, seed, say_nothing));
            }
            other => panic!("no such role: {other}"),
        };
    });
}

type Say = fn(&str);

fn say(line: &str) {
    println!("{SAID}{line}");
}

fn say_nothing(_: &str) {}

fn fail(what: &str) -> ! {
    // The survivor's words end the case; a victim's panic is found in the log.
    println!("{SAID}{what}");
    panic!("{what}");
}

/// Binds the port that a dead one may just have had.
fn bound<T>(mut bind: impl FnMut() -> std::io::Result<T>) -> T {
    let begin = Instant::now();
    loop {
        match bind() {
            Ok(socket) => return socket,
            Err(e) if e.kind() == ErrorKind::AddrInUse && begin.elapsed() < BIND_WITHIN => thread::sleep(Duration::from_millis(1)),
            Err(e) => fail(&format!("bind: {e}")),
        }
    }
}

/// Echoes every stream, and holds it to be what its sender sends.
fn serve(at: SocketAddr, say: Say) {
    let listener = bound(|| TcpListener::bind(at));
    loop {
        match listener.accept() {
            Ok((stream, _)) => drop(thread::spawn(move || echo(stream, say))),
            // It died before it was accepted.
            Err(e) if e.kind() == ErrorKind::ConnectionAborted => {}
            Err(e) => fail(&format!("accept: {e}")),
        }
    }
}

fn echo(mut stream: TcpStream, say: Say) {
    let mut header = [0; HEADER];
    if stream.read_exact(&mut header).is_err() {
        return;
    }
    let [peer, seed] = [0, 8].map(|at| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes")));
    say(&format!("open {peer}"));
    let mut place = 0;
    let mut bytes = vec![0; PIECE_MAX];
    let end = if let Err(e) = stream.write_all(&pid().to_le_bytes()) {
        format!("{:?}", e.kind())
    } else {
        loop {
            match stream.read(&mut bytes) {
                Ok(0) => break "Eof".to_owned(),
                Ok(len) if !is_right(&bytes[..len], seed, place) => {
                    fail(&format!("corrupt at {place}..{} from {peer}", place + len as u64))
                }
                Ok(len) => {
                    place += len as u64;
                    if let Err(e) = stream.write_all(&bytes[..len]) {
                        break format!("{:?}", e.kind());
                    }
                }
                Err(e) => break format!("{:?}", e.kind()),
            }
        }
    };
    say(&format!("end {peer} {} {end} {place}", since_epoch().as_micros()));
}

fn converse_for_ever(to: SocketAddr, seed: u64, say: Say) {
    for turn in 0.. {
        let begin = Instant::now();
        let connected = TcpStream::connect(to);
        let took = begin.elapsed();
        if took > CONNECT_WITHIN {
            fail(&format!("connect took {took:?}: {connected:?}"));
        }
        match connected {
            Ok(stream) => {
                say(&format!("connected {}", took.as_micros()));
                converse(stream, seed.wrapping_mul(31).wrapping_add(turn), say);
            }
            Err(e) if matches!(e.kind(), ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset) => {
                thread::sleep(Duration::from_millis(2));
            }
            Err(e) => fail(&format!("connect: {e}")),
        }
    }
}

/// Sends pieces of all lengths, and holds their echo to be the same bytes.
fn converse(mut stream: TcpStream, seed: u64, say: Say) {
    let header = [pid().to_le_bytes(), seed.to_le_bytes()].concat();
    let mut peer = [0; 8];
    if stream.write_all(&header).and_then(|()| stream.read_exact(&mut peer)).is_err() {
        return;
    }
    let peer = u64::from_le_bytes(peer);
    say(&format!("open {peer}"));
    let mut place = 0;
    let mut bytes = vec![0; PIECE_MAX];
    let end = loop {
        let wish = u64::from(byte_at(!seed, place)).pow(2) % PIECE_MAX as u64 + 1;
        let len = usize::try_from(wish).unwrap_or(PIECE_MAX);
        bytes[..len].iter_mut().zip(place..).for_each(|(byte, at)| *byte = byte_at(seed, at));
        if let Err(e) = stream.write_all(&bytes[..len]) {
            break e;
        }
        bytes[..len].fill(0);
        if let Err(e) = stream.read_exact(&mut bytes[..len]) {
            break e;
        }
        if !is_right(&bytes[..len], seed, place) {
            fail(&format!("corrupt echo at {place}..{} from {peer}", place + wish));
        }
        place += wish;
    };
    say(&format!("end {peer} {} {:?} {place}", since_epoch().as_micros(), end.kind()));
}

fn echo_datagrams(at: SocketAddr) {
    let socket = bound(|| UdpSocket::bind(at));
    let mut bytes = vec![0; 1 << 16];
    loop {
        // An asker that died may show as an error of the next call.
        if let Ok((len, from)) = socket.recv_from(&mut bytes) {
            let _the_asker_may_be_gone = socket.send_to(&bytes[..len], from);
        }
    }
}

/// Sends datagrams, and holds what comes back to be one of them. Lost ones are lost.
fn exchange_datagrams(to: SocketAddr, seed: u64, say: Say) {
    let returned = AtomicU64::new(0);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap_or_else(|e| fail(&format!("bind: {e}")));
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
    let mut bytes = vec![0; 1 << 16];
    for place in 0_u64.. {
        let len = 8 + usize::from(byte_at(seed, place)) * 40;
        let datagram: Vec<u8> = place.to_le_bytes().into_iter().chain((0..len as u64).map(|i| byte_at(seed ^ place, i))).collect();
        let _nobody_there = socket.send_to(&datagram, to);
        let Ok((len, _)) = socket.recv_from(&mut bytes) else { continue };
        let number = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        if number > place || !is_right(&bytes[8..len], seed ^ number, 0) {
            fail(&format!("corrupt datagram {number} of {len} bytes"));
        }
        if (returned.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(100) {
            say("datagrams 100");
        }
    }
}
