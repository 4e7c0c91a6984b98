//! A relay between the ends of a cable, in a namespace between theirs: each has a veth pair with it, and every frame goes through the simulator's link faults,
//! in real time. The frames are those of a wire, MTU-sized and with their checksums: what the kernel would leave to a card is switched off.

use core::fmt;
use std::io::{PipeReader, PipeWriter, pipe};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, bind, socket};
use ringway_sim::relay::{Port, Relay};
use ringway_sim::{FaultCounts, LinkConfig};
use ringway_stack::Instant as Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::cable::{Cable, Namespace, join};

/// The relay's interfaces: towards who asks, and towards who serves.
const INTERFACES: [&str; 2] = ["r0", "r1"];

/// An Ethernet header and the MTU of a veth pair.
const FRAME_MAX: usize = 14 + 1500;

/// Frames taken of one side before it is the other one's turn.
const BATCH: usize = 64;

/// So much waits in front of the relay while it has no processor: it loses nothing but what the faults have it lose.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// What a relay has done so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Relayed {
    pub(crate) counts: FaultCounts,
    /// Frames that arrived, and frames that left.
    pub(crate) passed: [u64; 2],
}

impl fmt::Display for Relayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [arrived, left] = self.passed;
        write!(f, "{arrived} frames came, {left} left")?;
        self.counts.named().filter(|(_, count)| *count > 0).try_for_each(|(name, count)| write!(f, ", {name} {count}"))
    }
}

/// A relay at work. It ends with this.
pub(crate) struct Relaying {
    so_far: Arc<Mutex<Relayed>>,
    /// Closed to end the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
    _between: Namespace,
}

impl Relaying {
    /// A cable through a relay.
    pub(crate) fn lay(seed: u64, link: LinkConfig) -> (Cable, Self) {
        let (cable, between) = (Cable::unjoined(), Namespace::hold());
        for (end, interface) in [&cable.asks, &cable.serves].into_iter().zip(INTERFACES) {
            join((end.namespace(), end.interface), (&between, interface));
            as_on_a_wire(end.namespace(), end.interface);
            as_on_a_wire(&between, interface);
            // (The kernel here has no address, and nothing to say.)
            between.ip(&format!("link set {interface} addrgenmode none\nlink set {interface} up\n"));
        }
        let sockets = between.within(|| INTERFACES.map(raw_socket));
        let so_far = Arc::new(Mutex::new(Relayed::default()));
        let (stopped, stop) = pipe().expect("a pipe");
        let seen = Arc::clone(&so_far);
        let thread = std::thread::spawn(move || relay(Relay::new(seed, link), &sockets, &stopped, &seen));
        cable.raise();
        (cable, Self { so_far, stop: Some(stop), thread: Some(thread), _between: between })
    }

    /// Ends it; what it has done.
    pub(crate) fn finish(mut self) -> Relayed {
        self.stop = None;
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
        *self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Relaying {
    fn drop(&mut self) {
        self.stop = None;
        self.thread.take().map(JoinHandle::join);
    }
}

/// Nothing is left to a card: checksums are filled in, segments and datagrams are cut, and nothing is put together again.
fn as_on_a_wire(namespace: &Namespace, interface: &str) {
    let options = format!("-K {interface} tx off tso off gso off gro off");
    let set = namespace.within(|| Command::new("ethtool").args(options.split(' ')).output().expect("cargo xtask test installs ethtool"));
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
}

/// A socket that has every frame of an interface.
fn raw_socket(interface: &str) -> OwnedFd {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let raw = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll).expect("a packet socket takes root");
    let mut interfaces = nix::ifaddrs::getifaddrs().expect("the interfaces");
    let own = interfaces.find_map(|its| its.address.filter(|_| its.interface_name == interface)?.as_link_addr().copied());
    bind(raw.as_raw_fd(), &own.expect("its address")).expect("the interface");
    sockopt::set_socket_recv_buffer_size_force(&raw, WAITING_BYTES_MAX).expect("room takes root");
    sockopt::set_socket_send_buffer_size_force(&raw, WAITING_BYTES_MAX).expect("room takes root");
    raw
}

/// Takes frames and sends them on when they are due, until `stopped` is closed at its other end.
fn relay(mut relay: Relay, sockets: &[OwnedFd; 2], stopped: &PipeReader, so_far: &Mutex<Relayed>) {
    let began = Instant::now();
    let now = || Nanos::from_nanos(u64::try_from(began.elapsed().as_nanos()).expect("500 years"));
    let mut buffer = [0; 1 << 16];
    loop {
        let mut is_idle = true;
        for port in Port::BOTH {
            for _ in 0..BATCH {
                let Some(len) = receive(&sockets[port as usize], &mut buffer) else { break };
                assert!(len <= FRAME_MAX, "a frame of {len} bytes: offloads are on");
                relay.arrive(now(), port, &buffer[..len]);
                is_idle = false;
            }
        }
        while let Some(leaving) = relay.leave(now()) {
            put(&sockets[leaving.port as usize], &leaving.bytes);
            is_idle = false;
        }
        *so_far.lock().unwrap_or_else(PoisonError::into_inner) = Relayed { counts: relay.counts(), passed: relay.passed() };
        if !is_idle {
            continue;
        }
        let mut events =
            [PollFd::new(&sockets[0], PollFlags::IN), PollFd::new(&sockets[1], PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        let timeout = relay.next_at().map(|at| Timespec::try_from(at.since(now())).expect("it is soon"));
        poll(&mut events, timeout.as_ref()).expect("poll");
        if events[2].revents().contains(PollFlags::HUP) {
            return;
        }
    }
}

/// A frame's length, if one is there.
fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> Option<usize> {
    match recv(socket.as_fd(), buffer, RecvFlags::TRUNC) {
        Ok((_, len)) => Some(len),
        // An interface goes down with the case.
        Err(Errno::AGAIN | Errno::NETDOWN) => None,
        Err(error) => panic!("a frame is not to be had: {error}"),
    }
}

fn put(socket: &OwnedFd, frame: &[u8]) {
    match send(socket.as_fd(), frame, SendFlags::empty()) {
        // What is behind it has no room, or is gone: as on a wire.
        Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::NETDOWN | Errno::NXIO) => {}
        Err(error) => panic!("a frame of {} bytes is not to be sent: {error}", frame.len()),
    }
}
