//! Two network namespaces and a cable between them: in one our ring stands beside the kernel, in the other there is the kernel alone.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::Command;

use ringway_host::Clock;
use ringway_stack::Instant;
use ringway_stack::device::{MacAddr, Queues as _};
use ringway_stack::ring::{NextHop, Ring, RingConfig};

use crate::device::{Card, PacketQueues};
use crate::namespaces::{enter, ip, mac, new_namespace, offloads_off};

const OUR_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0a]);
const PEERS_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0b]);

/// Runs a test in network namespaces of its thread's own, which end with it: once over IPv4, and once over IPv6. It fails where CI is set and they may not be
/// had; elsewhere it says so.
pub(crate) fn in_worlds(test: impl Fn(&mut World) + Sync) {
    for is_v6 in [false, true] {
        in_world(is_v6, RingConfig::default(), &test);
    }
}

/// The same over one of them, with a ring of this configuration.
pub(crate) fn in_world(is_v6: bool, config: RingConfig, test: impl FnOnce(&mut World) + Send) {
    let is_made = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let Some(mut world) = World::make(is_v6, config) else { return false };
            test(&mut world);
            true
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    if !is_made {
        assert!(std::env::var_os("CI").is_none(), "no network namespaces, or no ip(8), are to be had");
        eprintln!("left out: network namespaces need root, and ip(8)");
    }
}

pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) ring: Ring<PacketQueues>,
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
    /// Of the kernel beside the ring, and of the peer.
    here: File,
    there: File,
    next_port: u16,
}

impl World {
    fn make(is_v6: bool, config: RingConfig) -> Option<Self> {
        let here = new_namespace()?;
        let there = new_namespace()?;
        Command::new("ip").arg("-V").output().ok()?;
        let (id, fd) = (std::process::id(), here.as_raw_fd());
        ip(&format!(
            "link add b0 address {} type veth peer name a0 address {}\nlink set a0 netns /proc/{id}/fd/{fd}\n",
            mac(PEERS_MAC),
            mac(OUR_MAC)
        ));
        ip("link set lo up\nlink set b0 up\naddr add 10.77.0.2/24 dev b0\naddr add fd77::2/64 dev b0 nodad\n");
        offloads_off("b0");
        enter(&here);
        ip("link set lo up\nlink set a0 up\naddr add 10.77.0.1/24 dev a0\naddr add fd77::1/64 dev a0 nodad\n");
        let [local, remote] = if is_v6 { ["fd77::1", "fd77::2"] } else { ["10.77.0.1", "10.77.0.2"] };
        let index = std::fs::read_to_string("/sys/class/net/a0/ifindex").ok().and_then(|index| index.trim().parse().ok());
        let index = index.unwrap_or_else(|| interface("a0"));
        let queues = PacketQueues::open(index, OUR_MAC).expect("a packet socket with BPF");
        let [local, remote] = [local, remote].map(|ip| ip.parse().expect("an address"));
        let ring = Ring::new(queues, RingConfig { addresses: vec![local], ..config }, [7; 32]);
        let world = Self { clock: Clock::system(), ring, local, remote, here, there, next_port: 5000 };
        world.await_carrier();
        Some(world)
    }

    /// The interfaces are up a little later than they are set so.
    fn await_carrier(&self) {
        let to = SocketAddr::new(self.remote, 9);
        for _ in 0..200 {
            // (The kernel refuses it: the way there and back is open.)
            match TcpStream::connect(to) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return,
                _ => std::thread::sleep(core::time::Duration::from_millis(20)),
            }
        }
        panic!("no way from {} to {}", self.local, self.remote);
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn card(&self) -> Card {
        self.ring.queues().device().clone()
    }

    pub(crate) fn hop() -> NextHop {
        NextHop::Mac(PEERS_MAC)
    }

    /// An address of ours that nobody has.
    pub(crate) fn fresh(&mut self) -> SocketAddr {
        self.next_port += 1;
        SocketAddr::new(self.local, self.next_port)
    }

    /// Does something as the peer.
    pub(crate) fn as_peer<T>(&self, work: impl FnOnce() -> T) -> T {
        enter(&self.there);
        let done = work();
        enter(&self.here);
        done
    }

    /// A listener of the peer's.
    pub(crate) fn listener(&self) -> TcpListener {
        self.as_peer(|| TcpListener::bind(SocketAddr::new(self.remote, 0)).expect("a listener"))
    }

    /// A socket of the kernel beside the ring, bound to an address: what stands beside each offloaded socket.
    pub(crate) fn placeholder(&self, local: SocketAddr) -> OwnedFd {
        let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        // SAFETY: no memory is involved.
        let fd = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
        assert!(fd >= 0, "socket: {}", io::Error::last_os_error());
        // SAFETY: the kernel has just made it, for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let on = 1i32;
        // SAFETY: the value is readable for its length.
        let set = unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_REUSEADDR, (&raw const on).cast(), 4) };
        assert_eq!(set, 0);
        let address = sockaddr(local);
        // SAFETY: the address is readable for its length.
        let bound = unsafe { libc::bind(fd.as_raw_fd(), address.as_ptr().cast(), address.len() as u32) };
        assert_eq!(bound, 0, "bind to {local}: {}", io::Error::last_os_error());
        fd
    }
}

pub(crate) fn sockaddr(address: SocketAddr) -> Vec<u8> {
    let port = address.port().to_be_bytes();
    match address.ip() {
        IpAddr::V4(ip) => [&(libc::AF_INET as u16).to_ne_bytes()[..], &port, &ip.octets(), &[0; 8]].concat(),
        IpAddr::V6(ip) => [&(libc::AF_INET6 as u16).to_ne_bytes()[..], &port, &[0; 4], &ip.octets(), &[0; 4]].concat(),
    }
}

fn interface(name: &str) -> u32 {
    let name = std::ffi::CString::new(name).expect("a name");
    // SAFETY: the name ends with a zero.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}
