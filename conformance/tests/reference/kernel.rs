//! The reference: the kernel's sockets on the loopback. By IPv4, both hosts are addresses of this machine. By IPv6, whose loopback is one address,
//! they are told apart by their ports.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use ringway_conformance::reference::sockets::{
    Address, EPHEMERAL, Errno, Flags, Host, How, Kind, Received, Revents, SLOTS, Setting, Slot, Sockets,
};
use ringway_sim::Family;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

/// A port that no program uses: who has it, has the addresses.
const CLAIM: u16 = 4999;

/// The first port that programs name, and how many they do.
const FIRST_NAMED: u16 = 5000;
const NAMED: u16 = 4;

/// IPv6's ports that are shared out among programs: each has one that says whose they are, and each host's named ones.
const PORTS_FROM: u16 = 8000;
const PORTS_EACH: u16 = 1 + 2 * NAMED;

/// What a receive buffer holds before the call.
const MARK: u8 = 0xa5;

/// The kernel's sockets, on addresses that nobody else uses.
pub(crate) struct Kernel {
    home: Home,
    sockets: [Option<OwnedFd>; SLOTS],
    _claim: OwnedFd,
}

/// Where the hosts are.
enum Home {
    /// An address each.
    Ips([Ipv4Addr; 2]),
    /// Ports each. Those that programs name begin here, A's and then B's; of others (`true`: TCP's) it is known whose they are.
    Ports(u16, RefCell<BTreeMap<(bool, u16), Host>>),
}

/// Hands out pairs of loopback addresses, or ports, each once: what an earlier program left behind (TIME_WAIT) is in no later one's way.
pub(crate) struct Addresses {
    next: u32,
}

impl Addresses {
    /// Begins at a random place, so that two runs on one machine rarely meet.
    pub(crate) fn new() -> Self {
        let mut bytes = [0; 4];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).expect("randomness");
        Self { next: u32::from_ne_bytes(bytes) }
    }

    fn pair(&mut self) -> [Ipv4Addr; 2] {
        // 127.1.0.0 to 127.254.255.255, two at a time.
        let first = 0x7f01_0000 + self.next % (0xfe_0000 / 2) * 2;
        self.next = self.next.wrapping_add(1);
        [first, first + 1].map(Ipv4Addr::from_bits)
    }
}

impl Kernel {
    /// Claims two addresses, or ports for two hosts.
    pub(crate) fn new(addresses: &mut Addresses, family: Family) -> Self {
        loop {
            let (home, address) = match family {
                Family::V4 => {
                    let ips = addresses.pair();
                    (Home::Ips(ips), SocketAddr::new(ips[0].into(), CLAIM))
                }
                Family::V6 => {
                    let claim = addresses.ports();
                    (Home::Ports(claim + 1, RefCell::default()), SocketAddr::new(Ipv6Addr::LOCALHOST.into(), claim))
                }
            };
            let claim = open(family, Kind::Udp).expect("a socket");
            if net::bind(&claim, &address).is_ok() && home.is_free() {
                return Self { home, sockets: [const { None }; SLOTS], _claim: claim };
            }
        }
    }

    fn family(&self) -> Family {
        if matches!(self.home, Home::Ips(_)) { Family::V4 } else { Family::V6 }
    }

    fn raw(&self, address: Address) -> SocketAddr {
        match &self.home {
            Home::Ips(ips) => SocketAddr::new(ips[address.host as usize].into(), address.port),
            Home::Ports(first, _) => {
                let is_named = (FIRST_NAMED..FIRST_NAMED + NAMED).contains(&address.port);
                let named = || first + address.host as u16 * NAMED + (address.port - FIRST_NAMED);
                SocketAddr::new(Ipv6Addr::LOCALHOST.into(), if is_named { named() } else { address.port })
            }
        }
    }

    /// Which host's an address of sockets of that kind is, and with which port.
    fn address(&self, is_tcp: bool, raw: Option<net::SocketAddrAny>) -> Option<Address> {
        let raw = SocketAddr::try_from(raw?).ok()?;
        match (&self.home, raw.ip()) {
            (Home::Ips(ips), IpAddr::V4(ip)) => Some(Address { host: if ip == ips[0] { Host::A } else { Host::B }, port: raw.port() }),
            (Home::Ports(first, _), IpAddr::V6(_)) => {
                let at = raw.port().wrapping_sub(*first);
                if at >= 2 * NAMED {
                    return Some(Address { host: self.owner(is_tcp, raw.port()), port: raw.port() });
                }
                Some(Address { host: if at < NAMED { Host::A } else { Host::B }, port: FIRST_NAMED + at % NAMED })
            }
            _ => None,
        }
    }

    /// Whose a port is that the system chose: of the socket that has it, or had it.
    fn owner(&self, is_tcp: bool, port: u16) -> Host {
        let has_it = |slot: &Slot| {
            let Some(fd) = &self.sockets[slot.index()] else { return false };
            let local = net::getsockname(fd).ok().and_then(|raw| SocketAddr::try_from(raw).ok());
            self.is_tcp(*slot) == is_tcp && local.is_some_and(|local| local.port() == port)
        };
        let Home::Ports(_, owners) = &self.home else { return Host::B };
        // (One may be named to a socket of the other protocol.)
        let had_it = || [is_tcp, !is_tcp].iter().find_map(|&is_tcp| owners.borrow().get(&(is_tcp, port)).copied());
        Slot::all().find(has_it).map(Slot::host).or_else(had_it).unwrap_or(Host::B)
    }

    /// A socket has the port that it has: whose that is, is known from now on.
    fn note_port(&self, slot: Slot) {
        if let Home::Ports(_, owners) = &self.home
            && let Ok(raw) = net::getsockname(self.fd(slot))
            && let Ok(raw) = SocketAddr::try_from(raw)
        {
            owners.borrow_mut().insert((self.is_tcp(slot), raw.port()), slot.host());
        }
    }

    fn is_tcp(&self, slot: Slot) -> bool {
        sockopt::socket_type(self.fd(slot)) == Ok(SocketType::STREAM)
    }

    fn fd(&self, slot: Slot) -> &OwnedFd {
        self.sockets[slot.index()].as_ref().expect("the slot holds a socket")
    }

    /// What routing does on a host of its own: a socket without an address gets the host's. (Here it would get 127.0.0.1.)
    fn ensure_bound(&self, slot: Slot) {
        if self.local(slot).is_none() {
            // A socket that may not be bound now says so in the call itself.
            let _ = net::bind(self.fd(slot), &self.raw(Address { host: slot.host(), port: 0 }));
            self.note_port(slot);
        }
    }
}

impl Addresses {
    /// The first of as many ports as a program has.
    fn ports(&mut self) -> u16 {
        let places = u32::from((EPHEMERAL - PORTS_FROM) / PORTS_EACH);
        let place = (self.next % places) as u16;
        self.next = self.next.wrapping_add(1);
        PORTS_FROM + place * PORTS_EACH
    }
}

impl Home {
    /// Whether nobody has one of the ports, and nothing is left of an earlier socket there.
    fn is_free(&self) -> bool {
        let Self::Ports(first, _) = self else { return true };
        (*first..first + 2 * NAMED).all(|port| {
            let at = SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port);
            [Kind::Tcp, Kind::Udp].into_iter().all(|kind| open(Family::V6, kind).is_ok_and(|socket| net::bind(&socket, &at).is_ok()))
        })
    }
}

fn open(family: Family, kind: Kind) -> io::Result<OwnedFd> {
    let family = match family {
        Family::V4 => AddressFamily::INET,
        Family::V6 => AddressFamily::INET6,
    };
    let kind = match kind {
        Kind::Tcp => SocketType::STREAM,
        Kind::Udp => SocketType::DGRAM,
    };
    net::socket_with(family, kind, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

fn errno(error: io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

impl Sockets for Kernel {
    fn socket(&mut self, slot: Slot, kind: Kind) -> Result<(), Errno> {
        self.sockets[slot.index()] = Some(open(self.family(), kind).map_err(errno)?);
        Ok(())
    }

    fn bind(&mut self, slot: Slot, port: u16) -> Result<(), Errno> {
        net::bind(self.fd(slot), &self.raw(Address { host: slot.host(), port })).map_err(errno)?;
        self.note_port(slot);
        Ok(())
    }

    fn listen(&mut self, slot: Slot, backlog: i32) -> Result<(), Errno> {
        if self.is_tcp(slot) {
            self.ensure_bound(slot);
        }
        net::listen(self.fd(slot), backlog).map_err(errno)
    }

    fn connect(&mut self, slot: Slot, to: Address) -> Result<(), Errno> {
        self.ensure_bound(slot);
        net::connect(self.fd(slot), &self.raw(to)).map_err(errno)
    }

    fn disconnect(&mut self, slot: Slot) -> Result<(), Errno> {
        net::connect_unspec(self.fd(slot)).map_err(errno)
    }

    fn accept(&mut self, slot: Slot, into: Slot) -> Result<Address, Errno> {
        let (fd, from) = net::acceptfrom_with(self.fd(slot), SocketFlags::NONBLOCK | SocketFlags::CLOEXEC).map_err(errno)?;
        self.sockets[into.index()] = Some(fd);
        Ok(self.address(true, from).expect("accept gives an address of the family"))
    }

    fn send(&mut self, slot: Slot, data: &[u8], more: bool) -> Result<usize, Errno> {
        let flags = if more { SendFlags::MORE } else { SendFlags::empty() };
        if !self.is_tcp(slot) {
            self.ensure_bound(slot);
        }
        net::send(self.fd(slot), data, flags | SendFlags::NOSIGNAL).map_err(errno)
    }

    fn send_to(&mut self, slot: Slot, data: &[u8], to: Address) -> Result<usize, Errno> {
        self.ensure_bound(slot);
        net::sendto(self.fd(slot), data, SendFlags::NOSIGNAL, &self.raw(to)).map_err(errno)
    }

    fn recv(&mut self, slot: Slot, len: usize, flags: Flags) -> Result<Received, Errno> {
        // Rust's buffers cannot tell whether MSG_TRUNC wrote to them: this mark shows through where it did not.
        let mut bytes = vec![MARK; len];
        let mut raw = RecvFlags::empty();
        raw.set(RecvFlags::PEEK, flags.peek);
        raw.set(RecvFlags::TRUNC, flags.trunc);
        let (_, count, from) = net::recvfrom(self.fd(slot), &mut bytes[..], raw).map_err(errno)?;
        let from = self.address(self.is_tcp(slot), from);
        let stream = from.is_none();
        if stream && flags.trunc {
            assert!(bytes.iter().all(|&byte| byte == MARK), "MSG_TRUNC wrote to the buffer");
            bytes.clear();
        }
        bytes.truncate(count);
        Ok(Received { count, bytes, from })
    }

    fn shutdown(&mut self, slot: Slot, how: How) -> Result<(), Errno> {
        let how = match how {
            How::Read => net::Shutdown::Read,
            How::Write => net::Shutdown::Write,
            How::Both => net::Shutdown::Both,
        };
        net::shutdown(self.fd(slot), how).map_err(errno)
    }

    fn close(&mut self, slot: Slot) {
        self.sockets[slot.index()] = None;
    }

    fn set(&mut self, slot: Slot, setting: Setting) -> Result<(), Errno> {
        let fd = self.fd(slot);
        match setting {
            Setting::NoDelay(on) => sockopt::set_tcp_nodelay(fd, on),
            Setting::Cork(on) => sockopt::set_tcp_cork(fd, on),
            Setting::LingerZero(on) => sockopt::set_socket_linger(fd, on.then_some(Duration::ZERO)),
        }
        .map_err(errno)
    }

    fn take_error(&mut self, slot: Slot) -> Errno {
        sockopt::socket_error(self.fd(slot)).expect("SO_ERROR can always be read").map_or_else(errno, |()| Errno(0))
    }

    fn local(&self, slot: Slot) -> Option<Address> {
        let raw = net::getsockname(self.fd(slot)).expect("getsockname of an open socket");
        self.note_port(slot);
        let address = self.address(self.is_tcp(slot), Some(raw))?;
        Some(Address { host: slot.host(), ..address }).filter(|address| address.port != 0)
    }

    fn peer(&self, slot: Slot) -> Result<Address, Errno> {
        let peer = net::getpeername(self.fd(slot)).map_err(errno)?;
        Ok(self.address(self.is_tcp(slot), peer).expect("a peer of the family"))
    }

    fn revents(&self, slot: Slot) -> Revents {
        let asked = PollFlags::IN | PollFlags::OUT | PollFlags::PRI | PollFlags::RDHUP;
        let mut fds = [PollFd::new(self.fd(slot), asked)];
        rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("poll");
        Revents(fds[0].revents().bits())
    }

    fn unread(&self, slot: Slot) -> Result<u64, Errno> {
        io::ioctl_fionread(self.fd(slot)).map_err(errno)
    }

    fn pass(&mut self, ms: u64) {
        let time = Timespec { tv_sec: (ms / 1000).cast_signed(), tv_nsec: (ms % 1000 * 1_000_000).cast_signed() };
        rustix::event::poll(&mut [], Some(&time)).expect("a sleep");
    }
}
