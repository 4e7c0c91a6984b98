//! What programs do with the sockets that they pass: hold their locks, keep them in repair mode, or have them linger. Others go on.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use super::hostile::{Raw, as_nobody, flow, lingering, opens};
use super::serving::{NOBODY, Serving, with_broker};
use super::talk;
use crate::cable::{Cable, ENDS, eventually};
use crate::kills::rules_of;

const TCP_CLOSE: u32 = 7;

/// A thread that holds a socket's lock: it sends from a page that does not come before this is dropped. (By userfaultfd(2), which holds it as a file system of a program's own does.)
struct Held {
    pages: OwnedFd,
    page: usize,
    sender: Option<JoinHandle<()>>,
}

const PAGE: usize = 4096;

impl Held {
    fn lock(socket: &impl AsFd) -> Self {
        // SAFETY: plain integers.
        let pages = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) };
        assert!(pages >= 0, "userfaultfd: {}", std::io::Error::last_os_error());
        // SAFETY: it is new, and nobody else's.
        let pages = unsafe { OwnedFd::from_raw_fd(pages as i32) };
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, where the kernel likes.
        let page = unsafe { libc::mmap(core::ptr::null_mut(), PAGE, protection, flags, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        let page = page as usize;
        // linux/userfaultfd.h: UFFDIO_API, UFFDIO_REGISTER of what is missing.
        control(&pages, 0xc018_aa3f, &mut [0xaa, 0, 0]);
        control(&pages, 0xc020_aa00, &mut [page as u64, PAGE as u64, 1, 0]);
        let socket = socket.as_fd().try_clone_to_owned().expect("a descriptor");
        let sender = std::thread::spawn(move || {
            // SAFETY: the page is there as long as the thread runs; the kernel reads of it.
            unsafe { libc::send(socket.as_raw_fd(), page as *const libc::c_void, 1, libc::MSG_NOSIGNAL) };
        });
        // (Told of a page that is missing, for which it waits.)
        let read = rustix::io::read(&pages, &mut [0_u8; 32]).expect("a message");
        assert_eq!(read, 32);
        Self { pages, page, sender: Some(sender) }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // UFFDIO_ZEROPAGE.
        control(&self.pages, 0xc020_aa04, &mut [self.page as u64, PAGE as u64, 0, 0]);
        self.sender.take().into_iter().for_each(|sender| sender.join().expect("it sends"));
        // SAFETY: it is ours, and nobody has a reference into it.
        unsafe { libc::munmap(self.page as *mut libc::c_void, PAGE) };
    }
}

fn control(pages: &OwnedFd, request: libc::c_ulong, words: &mut [u64]) {
    // SAFETY: each of these requests reads and writes as many words as it is given here.
    let done = unsafe { libc::ioctl(pages.as_raw_fd(), request, words.as_mut_ptr()) };
    assert_eq!(done, 0, "{request:x}: {}", std::io::Error::last_os_error());
}

fn option(socket: &OwnedFd, level: i32, name: i32) -> u32 {
    let (mut value, mut len) = ([0_u8; 4], 4);
    // SAFETY: both are writable for their lengths.
    let found = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut len) };
    assert_eq!(found, 0);
    u32::from_ne_bytes(value)
}

/// Its state, and whether it is in repair mode. (TCP_INFO begins with the state.)
fn state(socket: &OwnedFd) -> (u32, bool) {
    let info = option(socket, libc::IPPROTO_TCP, libc::TCP_INFO).to_ne_bytes();
    (info[0].into(), option(socket, libc::IPPROTO_TCP, libc::TCP_REPAIR) != 0)
}

/// Nobody's connection, and nobody's to make one with over an interface.
fn await_retired(socket: &OwnedFd) {
    eventually("it is in repair mode no more, and connected to nobody", || state(socket) == (TCP_CLOSE, false));
    assert_eq!(option(socket, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX), 1, "it hears of the loopback alone");
}

fn fresh() -> OwnedFd {
    as_nobody(|| socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket"))
}

fn begin(remote: &str) -> String {
    format!(r#"{{"begin-repair":{{"local":"10.78.0.1:9000","remote":"{remote}"}}}}"#)
}

const END: &str = r#"{"end-repair":{"probes":false}}"#;
const PEER: &str = "10.78.0.2:7";

fn descriptors_of(broker: &Serving) -> usize {
    fs::read_dir(format!("/proc/{}/fd", broker.pid())).expect("it is there").count()
}

fn talks(cable: &Cable, broker: &Serving) {
    let [_, there] = ENDS[0];
    assert_eq!(talk(cable, broker, there), "");
}

/// A ring, a rule for all that comes to a port, and a socket that is connected to somebody in repair mode.
fn repairs(broker: &Serving, rule: Option<&str>) -> (Raw, Vec<OwnedFd>, OwnedFd) {
    let raw = Raw::new(&broker.socket());
    let ring = opens(&raw);
    assert_eq!(raw.ask(&flow("attach", true, "10.78.0.1:9000", rule)), "\"done\"");
    let socket = fresh();
    assert_eq!(raw.ask_with(&begin(PEER), &[socket.as_fd()]), "\"done\"");
    connect(&socket, &PEER.parse::<SocketAddr>().expect("an address")).expect("in repair mode it is at once");
    (raw, ring, socket)
}

#[test]
fn a_socket_whose_lock_is_held_keeps_nobody_else_waiting() {
    with_broker(NOBODY, |cable, broker| {
        let before = descriptors_of(broker);
        let raw = Raw::new(&broker.socket());
        let ring = opens(&raw);
        assert_eq!(raw.ask(&flow("attach", true, "10.78.0.1:9000", None)), "\"done\"");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let stream = TcpStream::connect(listener.local_addr().expect("its address")).expect("it listens");
        let held = Held::lock(&stream);
        raw.say(begin(PEER).as_bytes(), &[stream.as_fd()]);
        // What it asks behind that is not heard.
        raw.say(flow("attach", true, "10.78.0.1:9001", None).as_bytes(), &[]);
        for _ in 0..100 {
            assert!(Raw::new(&broker.socket()).ask("{\"served\":{\"version\":2}}").contains("a0"));
        }
        assert_eq!(rules_of(broker.pid()), 1);
        drop((raw, ring));
        eventually("it has left", || broker.said("has left a0") == 1);
        assert_eq!(rules_of(broker.pid()), 0);
        talks(cable, broker);
        assert!(descriptors_of(broker) > before, "the question is not through");
        drop(held);
        eventually("nothing of it is left", || descriptors_of(broker) == before);
    });
}

#[test]
fn a_socket_in_repair_mode_is_nobodys_when_its_program_dies_while_its_lock_is_held() {
    with_broker(NOBODY, |cable, broker| {
        // Held before the program ends repair mode, and after its death.
        for asks in [true, false] {
            let (raw, ring, socket) = repairs(broker, None);
            assert_eq!(state(&socket), (1, true));
            select_receive_queue(&socket);
            let held = Held::lock(&socket);
            if asks {
                raw.say(END.as_bytes(), &[socket.as_fd()]);
                assert!(Raw::new(&broker.socket()).ask("{\"served\":{\"version\":2}}").contains("a0"));
            }
            drop((raw, ring));
            eventually("its rules are gone", || rules_of(broker.pid()) == 0);
            talks(cable, broker);
            drop(held);
            await_retired(&socket);
        }
    });
}

#[test]
fn a_socket_in_repair_mode_does_not_outlive_its_rule() {
    with_broker(NOBODY, |_, broker| {
        for rule in [None, Some(PEER)] {
            let (raw, ring, socket) = repairs(broker, rule);
            assert_eq!(raw.ask(&flow("detach", true, "10.78.0.1:9000", rule)), "\"done\"");
            await_retired(&socket);
            assert!(raw.ask_with(END, &[socket.as_fd()]).contains("not-in-repair"));
            assert!(raw.ask_with(&begin(PEER), &[socket.as_fd()]).contains("not-its-flow"));
            drop((raw, ring));

            // And not its program, nor too long a time.
            let (raw, ring, socket) = repairs(broker, rule);
            drop((raw, ring));
            await_retired(&socket);
            let (raw, ring, socket) = repairs(broker, rule);
            await_retired(&socket);
            drop((raw, ring));
        }
    });
}

#[test]
fn a_socket_leaves_repair_mode_for_the_connection_that_it_was_in_it_for() {
    with_broker(NOBODY, |_, broker| {
        let (raw, ring, socket) = repairs(broker, Some(PEER));
        assert!(raw.ask_with(&begin("10.78.0.2:8"), &[fresh().as_fd()]).contains("not-its-flow"));
        assert_eq!(raw.ask_with(END, &[socket.as_fd()]), "\"done\"");
        assert_eq!(state(&socket), (1, false));
        assert!(raw.ask_with(END, &[socket.as_fd()]).contains("not-in-repair"));
        // (It is the next one's connection at once.)
        set_socket_linger(&socket, Some(Duration::ZERO)).expect("an option");
        drop((raw, ring, socket));

        // It has become another one's.
        let (raw, ring, socket) = repairs(broker, Some(PEER));
        let nobody = [0_u8; 16];
        // SAFETY: the address (of AF_UNSPEC) is readable for its length.
        assert_eq!(unsafe { libc::connect(socket.as_raw_fd(), nobody.as_ptr().cast(), 16) }, 0);
        connect(&socket, &"10.78.0.2:8".parse::<SocketAddr>().expect("an address")).expect("in repair mode it is at once");
        assert!(raw.ask_with(END, &[socket.as_fd()]).contains("kernel"));
        await_retired(&socket);
        drop((raw, ring, socket));

        // Or another user listens there by now.
        let (raw, ring, socket) = repairs(broker, Some(PEER));
        // SAFETY: the address (of AF_UNSPEC) is readable for its length.
        assert_eq!(unsafe { libc::connect(socket.as_raw_fd(), nobody.as_ptr().cast(), 16) }, 0);
        let _roots = TcpListener::bind("10.78.0.1:9000").expect("it shares its port");
        assert!(raw.ask_with(END, &[socket.as_fd()]).contains("anothers-socket"));
        await_retired(&socket);
        drop((raw, ring, socket));
    });
}

#[test]
fn what_lingers_of_a_users_counts_against_that_user() {
    with_broker(NOBODY, |cable, broker| {
        let before = descriptors_of(broker);
        let raw = Raw::new(&broker.socket());
        let ring = opens(&raw);
        let (slow, peers): (Vec<TcpStream>, Vec<TcpStream>) = (0..100).map(|_| lingering()).unzip();
        // (Ours are closed before the broker has copies: its own are the last ones.)
        broker.signal(libc::SIGSTOP);
        raw.say(b"{\"served\":{\"version\":2}}", &slow.iter().map(AsFd::as_fd).collect::<Vec<_>>());
        drop(slow);
        broker.signal(libc::SIGCONT);
        assert!(raw.hear().0.contains("descriptor"));
        assert_eq!(raw.hear().0, "", "it is over");
        assert!(descriptors_of(broker) > before + 90);
        let told = Raw::new(&broker.socket()).ask("{\"served\":{\"version\":2}}");
        assert!(told.contains("lingering"), "{told}");
        // Root is another user.
        assert!(Raw::as_oneself(&broker.socket()).ask("{\"served\":{\"version\":2}}").contains("a0"));
        drop((raw, ring, peers));
        eventually("all are closed", || descriptors_of(broker) == before);
        talks(cable, broker);
    });
}

fn select_receive_queue(socket: &OwnedFd) {
    let queue = 1_u32;
    // SAFETY: the value is readable for its length.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_REPAIR_QUEUE, (&raw const queue).cast(), 4) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
