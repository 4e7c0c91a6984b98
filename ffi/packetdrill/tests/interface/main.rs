//! What packetdrill does with the library, by the structure of C functions alone.

mod tester;

use core::ffi::c_int;
use std::ptr;
use std::thread;

use ringway_stack::wire::tcp::{Flags, Options};

use tester::{Segment, Tester, errno, sockaddr};

const PSH_ACK: Flags = Flags::PSH.union(Flags::ACK);

fn ack(seq: u32, ack: u32) -> Segment {
    Segment { flags: Flags::ACK, seq, ack, ..Segment::default() }
}

fn data(seq: u32, acked: u32, bytes: &[u8]) -> Segment {
    Segment { flags: PSH_ACK, bytes: bytes.to_vec(), ..ack(seq, acked) }
}

#[test]
fn a_connection_is_accepted_carries_bytes_both_ways_and_ends() {
    let tester = Tester::v4("net.ipv4.tcp_timestamps=0");
    let listener = tester.listener(0);
    let (fd, iss) = tester.open(listener);
    tester.send(&data(1, iss + 1, b"question"));
    assert_eq!(tester.read(fd, 100).unwrap(), b"question");
    // (The first bytes of a connection are acknowledged at once.)
    assert_eq!(tester.expect(), ack(iss + 1, 9));
    assert_eq!(tester.write(fd, b"answer"), Ok(6));
    let answer = tester.expect();
    assert_eq!((answer.flags, answer.seq, answer.ack, &answer.bytes[..]), (PSH_ACK, iss + 1, 9, &b"answer"[..]));
    tester.send(&ack(9, iss + 7));
    tester.close(fd);
    assert_eq!(tester.expect().flags, Flags::FIN | Flags::ACK);
    tester.send(&Segment { flags: Flags::FIN | Flags::ACK, ..ack(9, iss + 8) });
    let last = tester.expect();
    assert_eq!((last.flags, last.seq, last.ack), (Flags::ACK, iss + 8, 10));
    assert_eq!(tester.receive(), None, "nothing is left to happen, though TIME-WAIT ends");
    tester.close(listener);
}

#[test]
fn flags_are_the_sysctls_of_what_is_opened() {
    let syn = |flags: &str| {
        let tester = Tester::v4(flags);
        let listener = tester.listener(0);
        let timestamps = Some((7, 0));
        let options = Options { mss: Some(1000), window_scale: Some(3), sack_permitted: true, timestamps, ..Options::default() };
        tester.send(&Segment { flags: Flags::SYN, options, ..Segment::default() });
        let options = tester.expect().options;
        tester.close(listener);
        (options.mss, options.window_scale, options.sack_permitted, options.timestamps.is_some())
    };
    assert_eq!(syn(""), (Some(1460), Some(7), true, true));
    assert_eq!(syn("tcp_timestamps=0,tcp_sack=0,mtu=1400,tcp_rmem=4096 540000 15728640"), (Some(1360), Some(8), false, false));
    assert_eq!(syn("tcp_window_scaling=0,nonsense,tcp_rmem=x"), (Some(1460), None, true, true));
}

#[test]
fn sysctls_change_while_a_listener_stands() {
    let file = std::env::temp_dir().join(format!("ringway-packetdrill-sysctls-{}", std::process::id()));
    std::fs::write(&file, "").unwrap();
    let tester = Tester::v4(&format!("sysctls={}", file.display()));
    let listener = tester.listener(0);
    let has_timestamps = || {
        let options = Options { timestamps: Some((7, 0)), ..Options::default() };
        tester.send(&Segment { flags: Flags::SYN, options, ..Segment::default() });
        let answer = tester.expect();
        tester.send(&Segment { flags: Flags::RST, seq: 1, ..Segment::default() });
        answer.options.timestamps.is_some()
    };
    assert!(has_timestamps());
    std::fs::write(&file, "net.ipv4.tcp_sack=1\nnet.ipv4.tcp_timestamps=0\n").unwrap();
    assert!(!has_timestamps());
    std::fs::remove_file(&file).unwrap();
    assert!(!has_timestamps());
    tester.close(listener);
}

/// A connection that the host opens: how connect(2) goes, while the peer answers.
fn opened(tester: &mut Tester, domain: c_int, name: std::net::SocketAddr) {
    let fd = tester.socket(domain, libc::SOCK_NONBLOCK);
    assert_eq!((tester.name(tester.calls.connect, fd, name), errno()), (-1, libc::EINPROGRESS));
    // The port is the host's to choose.
    let mut own = [0u8; 2];
    let mut packet = vec![0u8; 65_536];
    let (mut len, mut time) = (packet.len(), 0);
    // SAFETY: there is that much room.
    unsafe { (tester.calls.netdev_receive)(tester.calls.userdata, packet.as_mut_ptr().cast(), &raw mut len, &raw mut time) };
    let at = if packet[0] >> 4 == 4 { 20 } else { 40 };
    own.copy_from_slice(&packet[at..at + 2]);
    tester.host.set_port(u16::from_be_bytes(own));
    let iss = u32::from_be_bytes(packet[at + 4..at + 8].try_into().unwrap());
    assert_eq!((tester.name(tester.calls.connect, fd, name), errno()), (-1, libc::EALREADY));
    assert_eq!(tester.poll(fd, libc::POLLOUT, 0), (0, 0));
    let options = Options { mss: Some(1000), ..Options::default() };
    tester.send(&Segment { flags: Flags::SYN | Flags::ACK, ack: iss + 1, options, ..Segment::default() });
    assert_eq!(tester.poll(fd, libc::POLLOUT, 0), (1, libc::POLLOUT));
    assert_eq!(tester.expect().flags, Flags::ACK);
    assert_eq!(tester.get(fd, libc::SOL_SOCKET, libc::SO_ERROR), Ok(0));
    assert_eq!(tester.name(tester.calls.connect, fd, name), 0, "the first call after is told of it");
    assert_eq!((tester.name(tester.calls.connect, fd, name), errno()), (-1, libc::EISCONN));
    tester.close(fd);
}

#[test]
fn connections_are_opened_over_ipv4_ipv6_and_mapped_addresses() {
    let peer = "192.0.2.1:8080".parse().unwrap();
    let mut v4 = Tester::new("local_ip=10.1.2.3", "10.1.2.3:1".parse().unwrap(), peer);
    opened(&mut v4, libc::AF_INET, peer);
    let mut mapped = Tester::new("", "192.168.0.1:1".parse().unwrap(), peer);
    opened(&mut mapped, libc::AF_INET6, "[::ffff:192.0.2.1]:8080".parse().unwrap());
    let peer = "[fd3d:fa7b:d17d::1]:8080".parse().unwrap();
    let mut v6 = Tester::new("mtu=1520", "[fd3d:0a0b:17d6::1]:1".parse().unwrap(), peer);
    opened(&mut v6, libc::AF_INET6, peer);
    assert_eq!((v4.name(v4.calls.connect, v4.socket(libc::AF_INET, 0), peer), errno()), (-1, libc::EAFNOSUPPORT));
}

#[test]
fn a_refusal_ends_a_connect() {
    let tester = Tester::v4("");
    let fd = tester.socket(libc::AF_INET, libc::SOCK_NONBLOCK);
    assert_eq!(tester.name(tester.calls.bind, fd, tester.host), 0);
    assert_eq!((tester.name(tester.calls.connect, fd, tester.peer), errno()), (-1, libc::EINPROGRESS));
    let syn = tester.expect();
    tester.send(&Segment { flags: Flags::RST | Flags::ACK, ..ack(0, syn.seq + 1) });
    assert_eq!(tester.poll(fd, libc::POLLOUT, 0).1 & libc::POLLERR, libc::POLLERR);
    assert_eq!(tester.get(fd, libc::SOL_SOCKET, libc::SO_ERROR), Ok(libc::ECONNREFUSED));
    tester.close(fd);
}

#[test]
fn time_is_virtual_and_timers_go_off_on_time() {
    let tester = Tester::v4("net.ipv4.tcp_timestamps=0");
    let listener = tester.listener(0);
    let begin = tester.time();
    assert!(tester.time() > begin, "it goes on with every look");
    let (fd, iss) = tester.open(listener);
    tester.pass(1_000_000);
    let sent = tester.time();
    tester.write(fd, &[7; 500]).unwrap();
    let first = tester.receive().unwrap();
    assert!((sent..sent + 10).contains(&first.1));
    // RFC 6298 s2.4, Linux's least: 200 ms.
    let again = tester.receive().unwrap();
    assert_eq!(again.0, first.0);
    assert!((200_000..210_000).contains(&(again.1 - first.1)), "{}", again.1 - first.1);
    assert!(tester.time() >= again.1);
    tester.send(&ack(1, iss + 501));
    assert_eq!(tester.receive(), None);
    tester.close(fd);
    assert_eq!(tester.expect().flags, Flags::FIN | Flags::ACK);
    tester.close(listener);
}

/// A call of the second thread, while the first does something.
fn meanwhile<T: Send>(tester: &Tester, call: impl FnOnce(&Tester) -> T + Send, first: impl FnOnce()) -> (T, i64) {
    thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let second = scope.spawn(move || {
            // SAFETY: the call has no memory to care for.
            tell.send(unsafe { libc::gettid() }).unwrap();
            let result = call(tester);
            (result, tester.time())
        });
        // As packetdrill: until the call blocks.
        let file = format!("/proc/self/task/{}/stat", told.recv().unwrap());
        while std::fs::read_to_string(&file).is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.starts_with(" S")) {
            thread::yield_now();
        }
        first();
        second.join().unwrap()
    })
}

#[test]
fn calls_that_block_return_when_what_they_wait_for_comes() {
    let tester = Tester::v4("net.ipv4.tcp_timestamps=0");
    let listener = tester.listener(0);
    let begin = tester.time();
    let (fd, ended) = meanwhile(
        &tester,
        |tester| tester.accept(listener),
        || {
            tester.pass(100_000);
            tester.send(&Segment { flags: Flags::SYN, ..Segment::default() });
            let answer = tester.expect();
            tester.pass(100_000);
            tester.send(&ack(1, answer.seq + 1));
            tester.pass(700_000);
        },
    );
    assert!(fd >= 0 && (200_000..200_100).contains(&(ended - begin)), "{fd}, {}", ended - begin);
    let begin = tester.time();
    let (bytes, ended) = meanwhile(
        &tester,
        |tester| tester.read(fd, 100),
        || {
            tester.pass(300_000);
            tester.send(&Segment { flags: Flags::FIN | Flags::ACK, ..ack(1, 0) });
            tester.pass(300_000);
            tester.send(&Segment { flags: Flags::RST, ..ack(1, 0) });
            tester.pass(300_000);
        },
    );
    assert_eq!(bytes, Err(libc::ECONNRESET), "an acknowledgment of nothing that was sent ended nothing");
    assert!((600_000..600_100).contains(&(ended - begin)), "{}", ended - begin);
    // A wait that ends by itself does so on time.
    let begin = tester.time();
    let (found, ended) = meanwhile(&tester, |tester| tester.poll(listener, libc::POLLIN, 250), || tester.pass(900_000));
    assert!(found == (0, 0) && (250_000..250_100).contains(&(ended - begin)), "{found:?}, {}", ended - begin);
    tester.close(fd);
    tester.close(listener);
}

#[test]
fn a_wait_of_the_first_thread_lets_time_pass_and_does_not_hang() {
    let tester = Tester::v4("");
    let listener = tester.listener(0);
    let begin = tester.time();
    assert_eq!(tester.poll(listener, libc::POLLIN, 250), (0, 0));
    assert!((250_000..250_100).contains(&(tester.time() - begin)));
    assert_eq!((tester.accept(listener), errno()), (-1, libc::EDEADLK), "nobody could send a SYN");
    tester.close(listener);
}

#[test]
fn pointers_that_lead_nowhere_cost_nothing_but_the_call() {
    let tester = Tester::v4("");
    let listener = tester.listener(0);
    let (fd, iss) = tester.open(listener);
    let calls = &tester.calls;
    // SAFETY: what the pointers name is never touched.
    unsafe {
        assert_eq!((calls.write)(calls.userdata, fd, ptr::null(), 9), -1);
        assert_eq!(errno(), libc::EFAULT);
        tester.send(&data(1, iss + 1, b"stays"));
        assert_eq!((calls.read)(calls.userdata, fd, ptr::without_provenance_mut(8), 9), -1);
        assert_eq!(errno(), libc::EFAULT);
        assert_eq!((calls.recvmsg)(calls.userdata, fd, ptr::null_mut(), 0), -1);
        assert_eq!(errno(), libc::EFAULT);
        assert_eq!((calls.connect)(calls.userdata, fd, ptr::null(), 16), -1);
        assert_eq!(errno(), libc::EFAULT);
        assert_eq!((calls.connect)(calls.userdata, fd, sockaddr(tester.peer).as_ptr().cast(), 1), -1);
        assert_eq!(errno(), libc::EINVAL);
        assert_eq!((calls.netdev_send)(calls.userdata, ptr::null(), 40), -1);
    }
    assert_eq!(tester.read(fd, 100).unwrap(), b"stays");
    assert_eq!(tester.write(99_999, b"x"), Err(libc::EBADF));
    tester.close(fd);
    tester.close(listener);
    assert_eq!(tester.read(fd, 1), Err(libc::EBADF));
}

#[test]
fn packets_that_are_none_do_nothing() {
    let tester = Tester::v4("");
    let listener = tester.listener(0);
    for bytes in [&[][..], &[0x45], &[0x60; 39], &[0xff; 60], &[0x45; 19], &[0x4f; 1500]] {
        // SAFETY: the bytes are there.
        assert_eq!(unsafe { (tester.calls.netdev_send)(tester.calls.userdata, bytes.as_ptr().cast(), bytes.len()) }, 0);
    }
    assert_eq!(tester.receive(), None);
    let (fd, _) = tester.open(listener);
    tester.close(fd);
    tester.close(listener);
}

#[test]
fn epoll_tells_edges_levels_and_once() {
    let tester = Tester::v4("net.ipv4.tcp_timestamps=0");
    let listener = tester.listener(0);
    let (fd, iss) = tester.open(listener);
    let calls = &tester.calls;
    let control = |epoll, operation, events: c_int| {
        let mut event = libc::epoll_event { events: events as u32, u64: 77 };
        // SAFETY: the event is there.
        unsafe { (calls.epoll_ctl)(calls.userdata, epoll, operation, fd, &raw mut event) }
    };
    let wait = |epoll| {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: there is room for one event.
        let found = unsafe { (calls.epoll_wait)(calls.userdata, epoll, &raw mut event, 1, 0) };
        let (events, data) = (event.events as c_int, event.u64);
        assert!(found == 0 || data == 77);
        (found, events)
    };
    // SAFETY: plain numbers.
    let [level, edge, once] = [(); 3].map(|()| unsafe { (calls.epoll_create)(calls.userdata, 1) });
    assert_eq!(control(level, libc::EPOLL_CTL_ADD, libc::EPOLLIN), 0);
    assert_eq!((control(level, libc::EPOLL_CTL_ADD, libc::EPOLLIN), errno()), (-1, libc::EEXIST));
    assert_eq!(control(edge, libc::EPOLL_CTL_ADD, libc::EPOLLIN | libc::EPOLLET), 0);
    assert_eq!(control(once, libc::EPOLL_CTL_ADD, libc::EPOLLIN | libc::EPOLLONESHOT), 0);
    assert_eq!([level, edge, once].map(wait), [(0, 0); 3]);
    for (seq, told_once) in [(1, 1), (2, 0)] {
        tester.send(&data(seq, iss + 1, b"x"));
        assert_eq!([level, edge, once].map(|epoll| wait(epoll).0), [1, 1, told_once]);
        assert_eq!([level, edge, once].map(|epoll| wait(epoll).0), [1, 0, 0]);
    }
    assert_eq!(control(once, libc::EPOLL_CTL_MOD, libc::EPOLLIN | libc::EPOLLONESHOT), 0);
    assert_eq!(wait(once), (1, libc::EPOLLIN));
    assert_eq!((control(once, libc::EPOLL_CTL_DEL, 0), wait(once)), (0, (0, 0)));
    [fd, level, edge, once, listener].into_iter().for_each(|fd| tester.close(fd));
}

#[test]
fn options_are_the_rings_or_refused() {
    let tester = Tester::v4("tcp_wmem=4096 50000 4194304");
    let listener = tester.listener(0);
    let (fd, _) = tester.open(listener);
    let (socket, tcp) = (libc::SOL_SOCKET, libc::IPPROTO_TCP);
    assert_eq!(tester.get(fd, socket, libc::SO_SNDBUF), Ok(50_000));
    assert_eq!((tester.set(fd, socket, libc::SO_SNDBUF, 21_000), tester.get(fd, socket, libc::SO_SNDBUF)), (0, Ok(42_000)));
    assert_eq!((tester.get(fd, tcp, libc::TCP_MAXSEG), tester.get(fd, socket, libc::SO_ACCEPTCONN)), (Ok(1000), Ok(0)));
    assert_eq!((tester.set(fd, tcp, libc::TCP_MAXSEG, 9), errno()), (-1, libc::EINVAL));
    assert_eq!((tester.set(fd, socket, 60, 1), errno()), (-1, libc::ENOPROTOOPT), "SO_ZEROCOPY");
    // TCP_NODELAY sends what TCP_CORK holds, and the cork stays.
    assert_eq!(tester.set(fd, tcp, libc::TCP_CORK, 1), 0);
    tester.write(fd, b"held").unwrap();
    assert_eq!(tester.set(fd, tcp, libc::TCP_NODELAY, 1), 0);
    let begin = tester.time();
    let (segment, time) = tester.receive().unwrap();
    assert!(segment.bytes == b"held" && time <= begin, "{time} {begin}");
    assert_eq!(tester.get(fd, tcp, libc::TCP_CORK), Ok(1));
    tester.close(fd);
    tester.close(listener);
}

#[test]
fn the_systems_getsockopt_tells_of_our_sockets_and_of_the_kernels() {
    use ringway_packetdrill::preloaded::getsockopt;
    let tester = Tester::v4("");
    let listener = tester.listener(0);
    let mut info = [0xeeu8; 512];
    let mut len = info.len() as u32;
    // SAFETY: there is that much room. (Other tests' hosts may be those that were made last: then the descriptor is the kernel's, and no socket.)
    let told = unsafe { getsockopt(listener, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &raw mut len) };
    assert!((told == 0 && info[0] == 10) || (told == -1 && errno() == libc::ENOTSOCK));
    let kernels = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut value, mut len): (c_int, u32) = (0, 4);
    let fd = std::os::fd::AsRawFd::as_raw_fd(&kernels);
    // SAFETY: there is room for an int.
    assert_eq!(unsafe { getsockopt(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN, (&raw mut value).cast(), &raw mut len) }, 0);
    assert_eq!(value, 1);
    tester.close(listener);
}
