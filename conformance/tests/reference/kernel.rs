//! The reference: the kernel's sockets on the loopback. Both hosts are addresses of this machine.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::Duration;

use ringway_conformance::reference::sockets::{Address, Errno, Flags, Host, How, Kind, Received, Revents, SLOTS, Setting, Slot, Sockets};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

/// A port that no program uses: who has it, has the addresses.
const CLAIM: u16 = 4999;

/// What a receive buffer holds before the call.
const MARK: u8 = 0xa5;

/// The kernel's sockets, on two addresses that nobody else uses.
pub(crate) struct Kernel {
    ips: [Ipv4Addr; 2],
    sockets: [Option<OwnedFd>; SLOTS],
    _claim: OwnedFd,
}

/// Hands out pairs of loopback addresses, each once: what an earlier program left behind (TIME_WAIT) is in no later one's way.
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
    /// Claims two addresses.
    pub(crate) fn new(addresses: &mut Addresses) -> Self {
        loop {
            let ips = addresses.pair();
            let claim = open(Kind::Udp).expect("a socket");
            if net::bind(&claim, &SocketAddrV4::new(ips[0], CLAIM)).is_ok() {
                return Self { ips, sockets: [const { None }; SLOTS], _claim: claim };
            }
        }
    }

    fn raw(&self, address: Address) -> SocketAddrV4 {
        SocketAddrV4::new(self.ips[address.host as usize], address.port)
    }

    fn address(&self, raw: Option<net::SocketAddrAny>) -> Option<Address> {
        let raw = SocketAddrV4::try_from(raw?).ok()?;
        let host = if *raw.ip() == self.ips[0] { Host::A } else { Host::B };
        Some(Address { host, port: raw.port() })
    }

    fn fd(&self, slot: Slot) -> &OwnedFd {
        self.sockets[slot.index()].as_ref().expect("the slot holds a socket")
    }

    /// What routing does on a host of its own: a socket without an address gets the host's. (Here it would get 127.0.0.1.)
    fn ensure_bound(&self, slot: Slot) {
        if self.local(slot).is_none() {
            // A socket that may not be bound now says so in the call itself.
            let _ = net::bind(self.fd(slot), &self.raw(Address { host: slot.host(), port: 0 }));
        }
    }
}

fn open(kind: Kind) -> io::Result<OwnedFd> {
    let kind = match kind {
        Kind::Tcp => SocketType::STREAM,
        Kind::Udp => SocketType::DGRAM,
    };
    net::socket_with(AddressFamily::INET, kind, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)
}

fn errno(error: io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

impl Sockets for Kernel {
    fn socket(&mut self, slot: Slot, kind: Kind) -> Result<(), Errno> {
        self.sockets[slot.index()] = Some(open(kind).map_err(errno)?);
        Ok(())
    }

    fn bind(&mut self, slot: Slot, port: u16) -> Result<(), Errno> {
        net::bind(self.fd(slot), &self.raw(Address { host: slot.host(), port })).map_err(errno)
    }

    fn listen(&mut self, slot: Slot, backlog: i32) -> Result<(), Errno> {
        if sockopt::socket_type(self.fd(slot)) == Ok(SocketType::STREAM) {
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
        Ok(self.address(from).expect("accept gives an IPv4 address"))
    }

    fn send(&mut self, slot: Slot, data: &[u8], more: bool) -> Result<usize, Errno> {
        let flags = if more { SendFlags::MORE } else { SendFlags::empty() };
        if sockopt::socket_type(self.fd(slot)) == Ok(SocketType::DGRAM) {
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
        let from = self.address(from);
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
        self.address(Some(raw)).filter(|address| address.port != 0)
    }

    fn peer(&self, slot: Slot) -> Result<Address, Errno> {
        let peer = net::getpeername(self.fd(slot)).map_err(errno)?;
        Ok(self.address(peer).expect("an IPv4 peer"))
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
