//! Whoever says what makes no sense, or asks for what is not its own, is told no; and others go on.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_linger, set_socket_recv_buffer_size, set_socket_send_buffer_size, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};

use super::serving::{NOBODY, Serving, with_broker};
use super::talk;
use crate::cable::{Cable, ENDS, PORT, eventually};
use crate::kills::rules_of;
use crate::namespaces::new_namespace;
use crate::programs::compile;

/// A connection to a broker, by hand.
pub(super) struct Raw(OwnedFd);

impl Raw {
    /// As nobody.
    pub(super) fn new(path: &Path) -> Self {
        let path = path.to_owned();
        as_nobody(move || Self::as_oneself(&path))
    }

    /// As who the calling thread is.
    pub(super) fn as_oneself(path: &Path) -> Self {
        let address = SocketAddrUnix::new(path).expect("a path");
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket");
        connect(&socket, &address).expect("a broker");
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(10))).expect("a timeout");
        Self(socket)
    }

    pub(super) fn say(&self, words: &[u8], passed: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !passed.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(passed)));
        }
        match sendmsg(&self.0, &[IoSlice::new(words)], &mut control, SendFlags::NOSIGNAL) {
            // (Since Linux 6.16 nobody passes descriptors to who takes none: SO_PASSRIGHTS. What is left are the words.)
            Err(rustix::io::Errno::PERM) if !passed.is_empty() => self.say(words, &[]),
            sent => drop(sent.expect("a message")),
        }
    }

    /// What comes, and how many descriptors with it. Empty: it is over.
    pub(super) fn hear(&self) -> (String, Vec<OwnedFd>) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(100))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 4096];
        let len = match recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) => message.bytes,
            Err(rustix::io::Errno::CONNRESET) => 0,
            Err(error) => panic!("no answer: {error}"),
        };
        let rights = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let passed = rights.flatten().collect();
        (String::from_utf8_lossy(&bytes[..len]).into_owned(), passed)
    }

    pub(super) fn ask(&self, words: &str) -> String {
        self.say(words.as_bytes(), &[]);
        self.hear().0
    }

    pub(super) fn ask_with(&self, words: &str, passed: &[BorrowedFd<'_>]) -> String {
        self.say(words.as_bytes(), passed);
        self.hear().0
    }
}

fn open() -> String {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net").expect("a namespace").ino();
    format!(r#"{{"open":{{"version":2,"interface":"a0","namespace":{namespace}}}}}"#)
}

pub(super) fn flow(what: &str, is_tcp: bool, local: &str, remote: Option<&str>) -> String {
    let remote = remote.map_or("null".to_owned(), |remote| format!("\"{remote}\""));
    format!(r#"{{"{what}":{{"is_tcp":{is_tcp},"local":"{local}","remote":{remote}}}}}"#)
}

/// Does something as nobody, in a thread at the calling one's end of the cable.
pub(super) fn as_nobody<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(|| {
        let nobody: u32 = NOBODY.parse().expect("a number");
        // SAFETY: plain integers. (The system call is the thread's alone, unlike libc's function.)
        let is_nobody = unsafe { libc::syscall(libc::SYS_setresuid, nobody, nobody, nobody) };
        assert_eq!(is_nobody, 0);
        work()
    });
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// While somebody's program talks by the ring.
fn while_others_talk(cable: &Cable, broker: &Serving, work: impl FnOnce()) {
    let [_, there] = ENDS[0];
    cable.while_served(&cable.program, &["serve", there, PORT], || {
        let mut talker = broker.start(&compile("tests/c/loads.c"), &["keeps", there, PORT]);
        eventually("it has a rule", || rules_of(broker.pid()) == 1);
        cable.await_sockets(false, "tcp", " 01 ", 1);
        work();
        talker.close_input();
        talker.ends_well();
    });
}

#[test]
fn nonsense_is_refused_and_others_go_on() {
    with_broker(NOBODY, |cable, broker| {
        while_others_talk(cable, broker, || {
            let path = broker.socket();
            let long = vec![b'x'; 100_000];
            let file = File::open("/dev/null").expect("a file");
            let many = vec![file.as_fd(); 150];
            // Who says these is told so, and heard no more.
            for (words, passed, answer) in [
                (&b"x"[..], &[][..], "malformed"),
                (b"\0\0\0\0", &[], "malformed"),
                (b"{\"open\":{}}", &[], "malformed"),
                (&long, &[], "malformed"),
                (&b"[".repeat(1000), &[], "malformed"),
                (b"{\"served\":{\"version\":7}}", &[], "version"),
                (flow("attach", true, "10.78.0.1:9000", None).as_bytes(), &[], "malformed"),
                (b"{\"end-repair\":{\"probes\":true}}", &many, "descriptor"),
                (b"{\"end-repair\":{\"probes\":true}}", &[], "descriptor"),
            ] {
                let raw = Raw::new(&path);
                raw.say(words, passed);
                let (said, _) = raw.hear();
                assert!(
                    said.contains("refused") && said.contains(answer),
                    "{:?}: {said}",
                    String::from_utf8_lossy(&words[..words.len().min(40)])
                );
                assert_eq!(raw.hear().0, "", "it is over");
            }
            // These are in order, and not to be had now.
            let raw = Raw::new(&path);
            assert_eq!(raw.ask("{\"served\":{\"version\":2}}"), r#"{"served":{"interfaces":["a0"]}}"#);
            assert!(raw.ask(&open()).contains("taken"));
            assert!(raw.ask(r#"{"open":{"version":2,"interface":"lo","namespace":0}}"#).contains("elsewhere"));
            assert!(raw.ask(&open().replace("a0", "lo")).contains("not-served"));
            // Nobody has more connections than that, and each of them is told.
            let all: Vec<Raw> = (0..80).map(|_| Raw::new(&path)).collect();
            let told: Vec<String> = all.iter().take(40).map(|raw| raw.ask("{\"served\":{\"version\":2}}")).collect();
            assert!(told[0].contains("a0") && told.iter().any(|said| said.contains("too-many")), "{told:?}");
        });
    });
}

#[test]
fn what_is_not_its_own_no_program_gets() {
    with_broker(NOBODY, |cable, broker| {
        let [[here, _], _] = ENDS;
        // Root's sockets.
        let listener = TcpListener::bind((here, 9100)).expect("a listener");
        let datagrams = UdpSocket::bind(("::", 9200)).expect("a socket");
        let path = broker.socket();
        let elsewhere = elsewhere();
        let raw = Raw::new(&path);
        let passed = opens(&raw);
        assert_eq!(passed.len(), 3, "a link, memory, and one socket");
        assert!(raw.ask(&open()).contains("malformed"), "one ring is enough");
        assert_eq!(raw.hear().0, "", "it is over");
        drop(passed);
        let raw = Raw::new(&path);
        let ring = opens(&raw);
        for (is_tcp, local, remote, answer) in [
            (true, "10.78.0.1:80", None, "privileged"),
            (false, "[fd78::1]:53", None, "privileged"),
            (true, "10.78.0.2:9000", None, "not-its-address"),
            (true, "0.0.0.0:9000", None, "not-its-address"),
            (true, "127.0.0.1:9000", None, "not-its-address"),
            (false, "224.0.0.1:9000", None, "group"),
            (false, "[ff15::7]:9000", None, "group"),
            (true, "10.78.0.1:9100", None, "anothers-socket"),
            (true, "10.78.0.1:9100", Some("10.78.0.2:7"), "anothers-socket"),
            (false, "10.78.0.1:9200", None, "anothers-socket"),
            (false, "[fd78::1]:9200", Some("[fd78::2]:7"), "anothers-socket"),
            (true, "10.78.0.1:9000", None, "done"),
            (true, "10.78.0.1:9000", None, "flow-taken"),
            (true, "[fd78::1]:9000", None, "done"),
        ] {
            let said = raw.ask(&flow("attach", is_tcp, local, remote));
            assert!(said.contains(answer), "{local} {remote:?}: {said}");
        }
        assert_eq!(rules_of(broker.pid()), 2);
        assert!(raw.ask(&flow("detach", true, "10.78.0.1:9001", None)).contains("not-its-flow"));
        // What it may not have, it may not move to the kernel either: it could put packets in for it.
        for (local, answer) in
            [("10.78.0.2:9000", "not-its-address"), ("10.78.0.1:80", "privileged"), ("10.78.0.1:9100", "anothers-socket")]
        {
            let said = raw.ask(&flow("leave-to-kernel", true, local, Some("10.78.0.2:7")));
            assert!(said.contains(answer), "{local}: {said}");
        }
        for address in ["224.0.0.1", "127.0.0.1", "::", "10.78.0.1"] {
            let said = raw.ask(&format!(r#"{{"use-neighbour":"{address}"}}"#));
            assert!(said.contains("no-neighbour"), "{address}: {said}");
        }
        assert_eq!(raw.ask(r#"{"use-neighbour":"10.78.0.2"}"#), "\"done\"");

        let own = as_nobody(|| TcpListener::bind("10.78.0.1:9001").expect("a socket"));
        let fresh = as_nobody(|| socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket"));
        let begin = |port| format!(r#"{{"begin-repair":{{"local":"10.78.0.1:{port}","remote":"10.78.0.2:8"}}}}"#);
        assert!(raw.ask_with(&begin(9001), &[fresh.as_fd()]).contains("not-its-flow"));
        assert!(raw.ask_with(&begin(9000), &[own.as_fd()]).contains("kernel"), "it is bound elsewhere");
        assert_eq!(raw.ask_with(&begin(9000), &[fresh.as_fd()]), "\"done\"");
        assert_eq!(raw.ask_with(r#"{"end-repair":{"probes":false}}"#, &[fresh.as_fd()]), "\"done\"");
        let inject = |port| {
            let packet = packet(here.parse().expect("an address"), port);
            raw.say(&[format!(r#"{{"inject":{{"local":"10.78.0.1:{port}"}}}}"#).as_bytes(), &[0], &packet].concat(), &[]);
            raw.hear().0
        };
        assert!(inject(9001).contains("not-its-flow"));
        // A rule for one connection is none for its port, and what was nobody's may have become somebody's.
        assert_eq!(raw.ask(&flow("attach", true, "10.78.0.1:9300", Some("10.78.0.2:8"))), "\"done\"");
        assert!(inject(9300).contains("not-its-flow"));
        assert_eq!(raw.ask(&flow("leave-to-kernel", true, "10.78.0.1:9300", Some("10.78.0.2:7"))), "\"done\"");
        let later = TcpListener::bind((here, 9300)).expect("a listener");
        assert!(inject(9300).contains("anothers-socket"));
        assert!(raw.ask_with(&begin(9300), &[fresh.as_fd()]).contains("anothers-socket"));
        drop(later);
        let reserve = r#"{"reserve":{"receive":4000000000,"send":4000000000}}"#;
        assert!(raw.ask_with(reserve, &[fresh.as_fd()]).contains("not-in-repair"));
        drop((raw, ring));
        eventually("its rules are gone", || rules_of(broker.pid()) == 0);

        // Descriptors of another kind end a connection, too.
        for wrong in
            [File::open("/dev/null").expect("a file").into(), OwnedFd::from(UdpSocket::bind("0.0.0.0:0").expect("a socket")), elsewhere]
        {
            let again = Raw::new(&path);
            let _ring = opens(&again);
            assert_eq!(again.ask(&flow("attach", true, "10.78.0.1:9000", None)), "\"done\"");
            assert!(again.ask_with(&begin(9000), &[wrong.as_fd()]).contains("descriptor"));
            assert_eq!(again.hear().0, "");
        }
        let again = Raw::new(&path);
        let ring = opens(&again);
        let many: Vec<BorrowedFd<'_>> = (0..150).map(|_| listener.as_fd()).collect();
        assert!(again.ask_with("{\"served\":{\"version\":2}}", &many).contains("descriptor"));

        drop((again, ring));

        // What takes a minute to close is nobody's to wait for but its owner's.
        let again = Raw::new(&path);
        let ring = opens(&again);
        let mut peers = Vec::new();
        for _ in 0..4 {
            let (slow, peer) = lingering();
            // (Ours is closed before the broker has a copy: its own is the last one.)
            broker.signal(libc::SIGSTOP);
            again.say(begin(9000).as_bytes(), &[slow.as_fd()]);
            drop(slow);
            broker.signal(libc::SIGCONT);
            let (said, _) = again.hear();
            assert!(said.contains("not-its-flow"), "{said}");
            peers.push(peer);
        }
        assert!(Raw::new(&path).ask("{\"served\":{\"version\":2}}").contains("a0"));
        drop((again, ring));
        drop((listener, datagrams));
        // And the interface is the next one's.
        let [_, there] = ENDS[0];
        assert_eq!(talk(cable, broker, there), "");
    });
}

/// The ring, however soon after another one it is.
pub(super) fn opens(raw: &Raw) -> Vec<OwnedFd> {
    let mut ring = Vec::new();
    eventually("the ring is free", || {
        raw.say(open().as_bytes(), &[]);
        let (said, passed) = raw.hear();
        assert!(["opened", "not-yet", "taken"].iter().any(|answer| said.contains(answer)), "{said}");
        ring = passed;
        said.contains("opened")
    });
    ring
}

/// A TCP socket of another network namespace.
fn elsewhere() -> OwnedFd {
    let made = std::thread::spawn(|| {
        let _namespace = new_namespace().expect("a namespace");
        socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket")
    });
    made.join().expect("a thread")
}

/// A connection, and its peer, who reads nothing of what waits to be sent to it; it is closed once that has read, or after a minute.
pub(super) fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    set_socket_recv_buffer_size(&listener, 1 << 12).expect("an option");
    let mut stream = TcpStream::connect(listener.local_addr().expect("its address")).expect("it listens");
    set_socket_send_buffer_size(&stream, 1 << 12).expect("an option");
    let (peer, _) = listener.accept().expect("a connection");
    stream.set_nonblocking(true).expect("an option");
    while stream.write(&[0; 1 << 16]).is_ok() {}
    stream.set_nonblocking(false).expect("an option");
    set_socket_linger(&stream, Some(Duration::from_secs(60))).expect("an option");
    (stream, peer)
}

/// A segment from nowhere, for that address, whose checksums are nobody's.
fn packet(to: std::net::Ipv4Addr, port: u16) -> Vec<u8> {
    let from: SocketAddr = "10.78.0.2:7".parse().expect("an address");
    let mut bytes = vec![0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 78, 0, 2];
    bytes.extend_from_slice(&to.octets());
    let sum = bytes.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum::<u32>();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend_from_slice(&from.port().to_be_bytes());
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    bytes
}
