//! Descriptors whose close takes as long as whoever passes them likes: nobody waits for it.

use std::io::Write;
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use ringway_host::members::query;
use ringway_stack::device::{Protocol, Queues};

use super::{Node, fresh_address, tcp, until};
use crate::fd::Fd;
use crate::rendezvous::{Kind, names, send_hello};
use crate::{closing, sys};

/// How long the attacker's descriptor takes to close.
const LINGER_SECONDS: i32 = 60;
/// How long anybody is to wait for anything.
const PATIENCE: Duration = Duration::from_secs(15);
const NOBODY: u32 = 65534;

/// A TCP socket with a full queue that lingers, and those who do not read it.
fn lingering() -> (TcpStream, (TcpListener, TcpStream)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let reader = listener.accept().unwrap().0;
    let linger = libc::linger { l_onoff: 1, l_linger: LINGER_SECONDS };
    // SAFETY: the value is readable for its length.
    unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), size_of_val(&linger) as u32);
    }
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 65536]).is_ok() {}
    (socket, (listener, reader))
}

/// A member as it is on this kernel, or on one that does not refuse descriptors.
fn victim(address: SocketAddrV4, is_old_kernel: bool) -> Node {
    closing::IS_OLD_KERNEL.set(is_old_kernel);
    let victim = Node::new();
    victim.device.steer(&tcp(address)).unwrap();
    closing::IS_OLD_KERNEL.set(false);
    victim
}

/// Somebody who connects to whatever the victim listens at, passes slow descriptors, and closes its own copies.
struct Attack {
    names: [(i32, String); 3],
    /// Waits to be recognised before it passes any.
    is_patient: bool,
}

impl Attack {
    fn on(victim: &Node, address: SocketAddrV4, is_patient: bool) -> Self {
        let own = sys::effective_uid();
        let names = [
            (libc::SOCK_SEQPACKET, names::rule(own, Protocol::Tcp, address)),
            (libc::SOCK_SEQPACKET, names::dialogues(own, victim.rendezvous.member_ref().id())),
            (libc::SOCK_STREAM, victim.rendezvous.member_name()),
        ];
        Self { names, is_patient }
    }

    /// How many of its messages were sent, and who has to live for the descriptors to be slow.
    fn run(&self) -> (usize, impl Sized + use<>) {
        let mut sent = 0;
        let mut readers = Vec::new();
        for (kind, name) in &self.names {
            let (slow, reader) = lingering();
            let socket = sys::unix_socket(*kind).unwrap();
            sys::connect_abstract(&socket, name).unwrap();
            // (Over the control socket, none are ever taken.)
            let patience = if *kind == libc::SOCK_STREAM { Duration::ZERO } else { PATIENCE };
            let begin = Instant::now();
            let passed = [slow.as_raw_fd(), slow.as_raw_fd()];
            loop {
                match send_hello(&socket, Kind::Offer, 77, &passed) {
                    Ok(()) => sent += 1,
                    Err(e) if self.is_patient && e.raw_os_error() == Some(libc::EPERM) && begin.elapsed() < patience => continue,
                    Err(_) => {}
                }
                break;
            }
            // (What was refused, its owner waits for.)
            std::thread::spawn(move || drop((slow, socket)));
            readers.push(reader);
        }
        std::thread::sleep(Duration::from_millis(100));
        (sent, readers)
    }
}

/// The victim answers, and greets others.
fn is_well(victim: &Node, address: SocketAddrV4) {
    let begin = Instant::now();
    let answer = query(&victim.rendezvous.member_name(), "stats", PATIENCE);
    assert!(answer.is_ok(), "{answer:?}");
    assert!(until("a greeting", || Node::new().find(address)).generation > 0);
    assert!(begin.elapsed() < PATIENCE);
}

fn refuses_rights() -> bool {
    sys::unix_socket(libc::SOCK_STREAM).is_ok_and(|socket| !sys::takes_rights(&socket))
}

#[test]
fn a_strangers_descriptors_hold_up_nobody() {
    for is_old_kernel in [false, true] {
        let address = fresh_address();
        let victim = victim(address, is_old_kernel);
        let attack = Attack::on(&victim, address, false);
        let is_refused = refuses_rights() && !is_old_kernel;
        // The victim may see who connects before anything is sent, and close the connections: then the stranger tries again.
        let insist = || {
            let begin = Instant::now();
            loop {
                let (sent, readers) = attack.run();
                if sent > 0 || is_refused || begin.elapsed() > PATIENCE {
                    return (sent, readers);
                }
            }
        };
        let outcome = std::thread::scope(|scope| {
            let stranger = || {
                // SAFETY: the raw call changes only this thread's user.
                (unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) } == 0).then(insist)
            };
            scope.spawn(stranger).join().unwrap()
        });
        let Some((sent, readers)) = outcome else {
            assert!(std::env::var_os("CI").is_none(), "another user needs privileges that this test run lacks");
            return;
        };
        assert!(if is_refused { sent == 0 } else { sent > 0 }, "{sent}");
        is_well(&victim, address);
        drop(readers);
    }
}

#[test]
fn a_peers_unexpected_descriptors_hold_up_nobody() {
    for is_old_kernel in [false, true] {
        let address = fresh_address();
        closing::IS_OLD_KERNEL.set(is_old_kernel);
        let (device, rendezvous) = crate::attach(&super::small()).unwrap();
        device.steer(&tcp(address)).unwrap();
        closing::IS_OLD_KERNEL.set(false);
        let own = sys::effective_uid();
        for name in [names::rule(own, Protocol::Tcp, address), names::dialogues(own, rendezvous.member_ref().id())] {
            let (slow, reader) = lingering();
            let socket = sys::unix_socket(libc::SOCK_SEQPACKET).unwrap();
            sys::connect_abstract(&socket, &name).unwrap();
            rendezvous.service();
            send_hello(&socket, Kind::Offer, 77, &[slow.as_raw_fd(), slow.as_raw_fd()]).unwrap();
            // What is on its way is the last.
            drop(slow);
            let begin = Instant::now();
            rendezvous.service();
            assert!(begin.elapsed() < PATIENCE, "{name}");
            drop((socket, reader));
        }
    }
}

#[test]
#[ignore = "run alone, by the test below"]
fn alone() {
    let address = fresh_address();
    let victim = victim(address, true);
    let attack = Attack::on(&victim, address, true);
    // (Where cores are busy, the victim may be through with its copies before the attacker closes its own, which then are the last.)
    let mut readers = Vec::new();
    until("a close that takes long", || {
        readers.push(attack.run().1);
        let begin = Instant::now();
        while closing::is_busy() && begin.elapsed() < Duration::from_millis(300) {
            std::thread::sleep(Duration::from_millis(10));
        }
        closing::is_busy().then_some(())
    });
    is_well(&victim, address);
    // All that follow wait for the first.
    let connect = || {
        let socket = sys::unix_socket(libc::SOCK_STREAM).unwrap();
        sys::connect_abstract(&socket, &victim.rendezvous.member_name()).ok().map(|()| socket)
    };
    let strangers: Vec<Fd> =
        (0..2000).map_while(|_| until("a place", || connect().map(Some).or_else(|| (!closing::has_room()).then_some(None)))).collect();
    // (How many is a matter of who is faster: each that the victim hangs up on makes room for another.)
    assert!((200..2000).contains(&strangers.len()), "{} were accepted", strangers.len());
    drop((strangers, readers));
    until("room", || closing::has_room().then_some(()));
    until("the end of the pause", || query(&victim.rendezvous.member_name(), "stats", PATIENCE).ok());
    is_well(&victim, address);
}

#[test]
fn more_than_can_be_closed_are_left_outside_until_it_can_be() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::rights::alone", "--ignored", "--test-threads=1"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
