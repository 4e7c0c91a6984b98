//! On shared memory, with both ends in this process.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::thread;

use super::*;

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Two ends, of which the first may have that many buffers mapped for it.
fn pair(mappings: u32) -> (Stream, Stream) {
    let listener = Listener::bind(any()).unwrap();
    let at = listener.local_addr().unwrap();
    let connecting = thread::spawn(move || Config::new().mappings(mappings).connect(at).unwrap());
    let (accepted, from) = listener.accept().unwrap();
    let connected = connecting.join().unwrap();
    assert_eq!((connected.peer_addr().unwrap(), connected.local_addr().unwrap()), (at, from));
    (connected, accepted)
}

#[test]
fn streams_read_and_write_as_others_do() {
    let (mut a, mut b) = pair(0);
    let sent: Vec<u8> = (0..3_000_000u32).map(|i| (i ^ i >> 8) as u8).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            a.write_all(&sent).unwrap();
            a.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        b.read_to_end(&mut got).unwrap();
        assert!(got == sent);
    });
    // A reference does, too.
    (&b).write_all(b"answer").unwrap();
    let mut some = [0; 10];
    assert_eq!(a.peek(&mut some[..3]).unwrap(), 3);
    (&a).read_exact(&mut some[..6]).unwrap();
    assert_eq!(some[..6], *b"answer");
    assert_eq!(a.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    drop(b);
    assert_eq!(a.read(&mut some).unwrap(), 0);
    assert!(a.take_error().unwrap().is_none() && a.path_mtu().unwrap() >= 256);
}

#[test]
fn errors_have_their_kinds() {
    let taken = Listener::bind(any()).unwrap();
    let at = taken.local_addr().unwrap();
    assert_eq!(Listener::bind(at).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert_eq!(Listener::bind("192.0.2.1:0".parse().unwrap()).unwrap_err().kind(), ErrorKind::AddrNotAvailable);
    assert_eq!(Stream::connect("192.0.2.1:9".parse().unwrap()).unwrap_err().kind(), ErrorKind::NetworkUnreachable);
    taken.set_nonblocking(true).unwrap();
    assert_eq!(taken.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(taken);
    assert_eq!(Stream::connect(at).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let (mut a, b) = pair(0);
    a.set_nonblocking(true).unwrap();
    assert_eq!(a.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(b.map(100, None).unwrap_err().kind(), ErrorKind::OutOfMemory, "the peer has set nothing aside");
    assert_eq!(b.map(0, None).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(b.map(1, Some(u64::MAX)).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn direct_writes_are_there_before_what_follows() {
    let (mut a, mut b) = pair(2);
    let maps = [b.map(1000, Some(50)).unwrap(), b.map(64, None).unwrap()];
    assert_eq!((maps[0].offset(), maps[0].len()), (50, 1000));
    b.write_all(&maps[1].offset().to_ne_bytes()).unwrap();
    let mut offset = [0; 8];
    a.read_exact(&mut offset).unwrap();
    assert_eq!(a.write_at(&[7; 1100], 50).unwrap(), 1000, "as far as it is mapped");
    assert_eq!(a.write_at(b"tail", u64::from_ne_bytes(offset) + 60).unwrap(), 4);
    assert_eq!(a.write_at(b"x", 49).unwrap(), 0, "nothing is mapped there");
    a.write_all(b"!").unwrap();
    b.read_exact(&mut [0]).unwrap();
    let mut bytes = [0; 1200];
    assert_eq!(maps[0].read(0, &mut bytes), 1000);
    assert_eq!(bytes[..1000], [7; 1000]);
    assert_eq!((maps[1].read(60, &mut bytes), &bytes[..4]), (4, &b"tail"[..]));
    assert_eq!((maps[0].read(1001, &mut bytes), maps[0].byte(999), maps[0].byte(1000)), (0, Some(7), None));
    assert_eq!((maps[0].write(998, b"long"), maps[0].byte(999)), (2, Some(b'o')));

    // What is dropped is written no more, and a stream lives as long as its buffers.
    let [first, second] = maps;
    drop(first);
    drop(b);
    assert_eq!(a.write_at(b"late", u64::from_ne_bytes(offset)).unwrap(), 4);
    assert_eq!(second.byte(3), Some(b'e'));
    drop(second);
    assert_eq!(a.read(&mut [0]).unwrap(), 0, "now it is closed");
}

#[test]
fn datagrams_have_senders_and_ends() {
    let [a, b] = [(); 2].map(|()| Datagram::bind(any()).unwrap());
    let to = b.local_addr().unwrap();
    let mut some = [0; 100];
    // The first ones go by UDP, the later ones by queue pairs.
    for round in 0..20u8 {
        assert_eq!(a.send_to(&[round; 30], to).unwrap(), 30);
        assert_eq!(b.peek_from(&mut some[..5]).unwrap().0, 5);
        assert_eq!(b.recv_from(&mut some).unwrap(), (30, a.local_addr().unwrap()));
        assert_eq!(some[..30], [round; 30]);
    }
    a.connect(to).unwrap();
    assert_eq!(a.peer_addr().unwrap(), to);
    assert_eq!(a.send(b"to you").unwrap(), 6);
    assert_eq!(b.recv(&mut some).unwrap(), 6);
    assert_eq!(a.send(&[0; 3000]).unwrap_err().raw_os_error(), Some(libc::EMSGSIZE));
    b.set_nonblocking(true).unwrap();
    assert_eq!(b.recv(&mut some).unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// `ringway sockets` asks like this.
#[test]
fn who_asks_hears_of_the_sockets() {
    let (mut a, mut b) = pair(0);
    a.write_all(&[1; 3000]).unwrap();
    b.read_exact(&mut [0; 3000]).unwrap();
    let uid = rustix::process::geteuid().as_raw();
    let own = i32::try_from(std::process::id()).unwrap();
    let member = ringway_host::members::members(uid).unwrap().into_iter().find(|member| member.pid == own).expect("it is listed");
    let said = ringway_host::members::query(&member.name, ringway_report::SOCKETS, std::time::Duration::from_secs(10)).unwrap();
    let report: ringway_report::ProcessReport = serde_json::from_str(&said).unwrap();
    assert_eq!(report.device.unwrap().kind, "shm");
    let find = |stream: &Stream| report.sockets.iter().find(|socket| socket.fd == stream.number()).unwrap();
    let (sent, got) = (find(&a), find(&b));
    assert_eq!((sent.protocol.as_str(), sent.state.as_str(), got.state.as_str()), ("rstream", "ESTABLISHED", "ESTABLISHED"));
    assert_eq!((sent.local.clone(), sent.tx_bytes, got.rx_bytes, got.recv_queue), (got.remote.clone(), 3000, 3000, 0));
}

/// `ringway capture` asks like this, and sees RoCEv2's frames.
#[test]
fn who_captures_sees_frames_both_ways() {
    use ringway_host::capture::{Answer, BYTES_MIN, SNAPLEN_MAX, Watched};
    let (mut a, mut b) = pair(0);
    let own = i32::try_from(std::process::id()).unwrap();
    let members = ringway_host::members::members(rustix::process::geteuid().as_raw()).unwrap();
    let member = members.into_iter().find(|member| member.pid == own).expect("it is listed");
    let watched = Watched::new(&member).unwrap();
    watched.ask(0, BYTES_MIN, SNAPLEN_MAX, None).unwrap();
    let mut reader = loop {
        match watched.answer().unwrap() {
            Some(Answer::Shown { device, reader, .. }) if device == "shm" => break reader,
            None => thread::yield_now(),
            other => panic!("{other:?}"),
        }
    };
    // So few bytes go with their message.
    a.write_all(b"captured").unwrap();
    b.read_exact(&mut [0; 8]).unwrap();
    let frames: Vec<_> =
        std::iter::from_fn(|| reader.next_frame()).filter(|frame| frame.bytes.windows(8).any(|some| some == b"captured")).collect();
    assert!(frames.iter().any(|frame| frame.is_sent) && frames.iter().any(|frame| !frame.is_sent), "{frames:?}");
    // RoCEv2's port, behind Ethernet and IPv6.
    assert!(frames.iter().all(|frame| frame.bytes[56..58] == 4791u16.to_be_bytes()));
}
