//! A socket: what stands above the ring and the kernel's placeholder descriptor.
//!
//! Every function here runs under the lock of [`crate::process::Process`] unless it says otherwise; those that block
//! take the process and lock it themselves.

pub(crate) mod accept;
pub(crate) mod address;
pub(crate) mod common;
mod congestion;
pub(crate) mod connect;
pub(crate) mod cork;
pub(crate) mod datagram;
pub(crate) mod flows;
mod forked;
pub(crate) mod greeting;
pub(crate) mod groups;
mod info;
pub(crate) mod lifecycle;
pub(crate) mod listen;
pub(crate) mod names;
pub(crate) mod options;
pub(crate) mod pacing;
pub(crate) mod plain;
pub(crate) mod ports;
pub(crate) mod rare;
pub(crate) mod refused;
pub(crate) mod routes;
pub(crate) mod shared_ports;
mod sharing;
mod six;
pub(crate) mod special;
pub(crate) mod stream;
pub(crate) mod table;
mod times;
mod ways;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub(crate) use ringway_preload::vectors;
use ringway_stack::device::Protocol;
use ringway_stack::offload::Reason;
use ringway_stack::ring::{FlowId, UdpOptions};
use ringway_stack::tcp;

use crate::mux;
use crate::rings::RingSet;

/// How the program names addresses on this socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`. Its IPv4-mapped addresses are IPv4's on the ring, and everywhere in here.
    V6,
}

impl Family {
    /// Of a socket that has such an address. (One of IPv6 can have either.)
    pub(crate) const fn of(address: SocketAddr) -> Self {
        Self::of_ip(address.ip())
    }

    pub(crate) const fn of_ip(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// What carries the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A TCP socket that is neither connected nor listening yet.
    Fresh,
    /// A TCP connection whose handshake the program has not been told the end of.
    Connecting(FlowId),
    /// A TCP connection.
    Stream(FlowId),
    /// A listening socket; `None`: only the kernel's half of it is there.
    Listener(Option<FlowId>),
    /// A UDP socket; `None`: not published (yet).
    Datagram(Option<FlowId>),
    /// Left to the kernel for good.
    Kernel,
    /// A connection that has left the ring, on its way to the kernel.
    Moving,
}

impl Kind {
    /// The ring's name of a connection.
    pub(crate) fn stream(self) -> Option<FlowId> {
        match self {
            Self::Connecting(id) | Self::Stream(id) => Some(id),
            _ => None,
        }
    }
}

/// One socket. Duplicated descriptors share it.
#[derive(Debug)]
pub(crate) struct Socket {
    /// How many descriptors name it.
    pub(crate) fds: u32,
    /// One of them: the placeholder that the kernel is asked through.
    pub(crate) fd: i32,
    pub(crate) family: Family,
    pub(crate) protocol: Protocol,
    pub(crate) kind: Kind,
    /// The ring of its flows, or of those that it will have.
    pub(crate) ring: u16,
    /// For which address the first flow of a listener, or a UDP socket, is, and the flows that it has beside that one ([`flows`]).
    pub(crate) flow_at: IpAddr,
    pub(crate) others: Vec<flows::Flow>,
    /// It has none on interfaces: other sockets may have its address, or it goes by other routes than most.
    pub(crate) stays_within: bool,
    /// Since a fork, what comes for it by interfaces is the kernel's, where each of the processes finds it: for a listener until this process waits there again, for a UDP
    /// socket until no other process has it.
    pub(crate) is_left_by_fork: bool,
    /// Others may come to have its address, and none has.
    pub(crate) is_alone_at_port: bool,
    /// O_NONBLOCK, which duplicates share as they do in the kernel.
    pub(crate) nonblocking: bool,
    /// SO_RCVTIMEO; `None` waits for ever.
    pub(crate) receive_timeout: Option<Duration>,
    /// SO_SNDTIMEO; `None` waits for ever.
    pub(crate) send_timeout: Option<Duration>,
    /// SO_LINGER.
    pub(crate) linger: Option<Duration>,
    /// SO_RCVLOWAT.
    pub(crate) receive_low_water: usize,
    /// SO_REUSEPORT: several sockets may share the address, which flow rules cannot express yet.
    pub(crate) reuse_port: bool,
    /// What the connection will be opened with; changed in place once there is one.
    pub(crate) tcp: tcp::Config,
    /// The same for UDP.
    pub(crate) udp: UdpOptions,
    /// Ancillary data that was asked for.
    pub(crate) ancillary: Ancillary,
    /// Whether `bind` was called, and to what (port 0 already resolved).
    pub(crate) bound: Option<SocketAddr>,
    /// No option says how its port is chosen, or shared: where a connect chooses one, the library may ([`ports`]).
    pub(crate) has_plain_port: bool,
    /// Whether the port in `bound` was chosen for a connect, which the program may have another of.
    pub(crate) bound_by_connect: bool,
    /// The connected peer.
    pub(crate) peer: Option<SocketAddr>,
    /// The longest packet, in bytes, that the route to a connection's peer carries, beside what its ring's device does.
    pub(crate) path_mtu: u16,
    /// Which directions were shut down.
    pub(crate) shut: Shut,
    /// How the destinations of its datagrams are reached.
    pub(crate) routes: routes::Routes,
    /// How the kernel's half of a UDP socket is asked.
    pub(crate) kernel_poll: datagram::KernelPoll,
    /// Who watches it.
    pub(crate) watch: mux::Watch,
    /// Why the ring does not carry it.
    pub(crate) reason: Option<Reason>,
    /// The backlog of a listener, to publish it again after a fork.
    pub(crate) backlog: i32,
    /// Whether this process ever waited for a listener's connections: one that only forks workers leaves the rule to them.
    pub(crate) waited: bool,
    /// TCP_KEEPIDLE and its like, which may be set before SO_KEEPALIVE is.
    pub(crate) keepalive: tcp::Keepalive,
    /// Forks before it was made: those since have it too.
    pub(crate) birth: u32,
    /// A listener that came from a parent, which may have it still, and may have other children.
    pub(crate) is_shared: bool,
    /// A connection that was a parent's, and is on our ring now.
    pub(crate) is_adopted: bool,
    /// The program is about to be another one, and exec closes it.
    pub(crate) is_left: bool,
    /// It was a connection of the ring, and moved to the kernel.
    pub(crate) moved: bool,
    /// A peer's urgent data were to take it to the kernel, which refused: that is tried once, and logged once. They are data as all others from then on.
    pub(crate) is_refused: bool,
    /// How often it went over to another ring of the process, for receiving and for sending.
    pub(crate) migrations: [u32; 2],
    /// Integer options (level, name, value) that accepted connections' placeholders are to show.
    pub(crate) inherited: Vec<(i32, i32, i32)>,
    /// Its placeholder is one that other connections have too: where ([`common::OptionSets`]).
    pub(crate) common: Option<u8>,
    /// What few sockets have.
    pub(crate) rare: Option<Box<rare::Rare>>,
}

/// Ancillary data that a socket was asked to deliver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ancillary {
    /// IP_PKTINFO.
    pub(crate) packet_info: bool,
    /// IPV6_RECVPKTINFO.
    pub(crate) packet_info6: bool,
    /// SO_TIMESTAMP or SO_TIMESTAMPNS in one of their forms: the type of the control message. Zero: neither.
    pub(crate) timestamp: i32,
    /// SO_TIMESTAMPING in one of its forms, asked for times of reception: the type of the control message.
    pub(crate) timestamping: i32,
    /// Of these, it was asked for software's, and for the card's.
    pub(crate) software_times: bool,
    pub(crate) hardware_times: bool,
    /// TCP_INQ.
    pub(crate) inq: bool,
    /// SO_RXQ_OVFL, on UDP: how many datagrams the kernel's half of the socket had dropped when that was last told.
    pub(crate) drops: Option<u32>,
}

impl Ancillary {
    /// Whether it was asked when something is received.
    pub(crate) const fn tells_times(&self) -> bool {
        self.timestamp != 0 || self.timestamping != 0
    }
}

/// Directions that the program shut down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shut {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl Socket {
    pub(crate) fn new(fd: i32, family: Family, protocol: Protocol, nonblocking: bool, tcp: tcp::Config) -> Self {
        Self {
            fds: 1,
            fd,
            family,
            protocol,
            kind: match protocol {
                Protocol::Tcp => Kind::Fresh,
                Protocol::Udp => Kind::Datagram(None),
            },
            ring: 0,
            flow_at: address::any(family).ip(),
            others: Vec::new(),
            stays_within: false,
            is_left_by_fork: false,
            is_alone_at_port: false,
            nonblocking,
            receive_timeout: None,
            send_timeout: None,
            linger: None,
            receive_low_water: 1,
            reuse_port: false,
            tcp,
            udp: UdpOptions::default(),
            ancillary: Ancillary::default(),
            bound: None,
            has_plain_port: true,
            bound_by_connect: false,
            peer: None,
            path_mtu: u16::MAX,
            shut: Shut::default(),
            routes: routes::Routes::default(),
            kernel_poll: datagram::KernelPoll::default(),
            watch: mux::Watch::default(),
            reason: Some(Reason::Undecided),
            backlog: 0,
            waited: false,
            keepalive: tcp::Keepalive::default(),
            migrations: [0; 2],
            birth: crate::descendants::forks(),
            is_shared: false,
            is_adopted: false,
            is_left: false,
            moved: false,
            is_refused: false,
            inherited: Vec::new(),
            common: None,
            rare: None,
        }
    }

    /// What few sockets have, made if there is none of it.
    pub(crate) fn rare(&mut self) -> &mut rare::Rare {
        self.rare.get_or_insert_default()
    }

    /// Whether an option is set by which the kernel prefers it to others of its address.
    pub(crate) fn prefers(&mut self, option: i32, is_set: bool) {
        if is_set || self.has_preference() {
            let preferences = &mut self.rare().preferences;
            preferences.retain(|known| *known != option);
            if is_set {
                preferences.push(option);
            }
        }
    }

    /// Whether there is such an option.
    pub(crate) fn has_preference(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| !rare.preferences.is_empty())
    }

    /// The callback that sees first what it receives.
    pub(crate) fn callback(&self) -> Option<&crate::extra::Callback> {
        self.rare.as_ref()?.callback.as_ref()
    }

    /// Whoever polls it is being told that it is readable.
    #[inline]
    pub(crate) fn told_readable(&self) {
        if let Some(rare) = &self.rare {
            rare.held.set(false);
        }
    }

    /// O_NONBLOCK, which another process that has the open file may have changed.
    pub(crate) fn is_nonblocking(&self) -> bool {
        if !self.is_shared && crate::descendants::forks() == self.birth {
            return self.nonblocking;
        }
        // SAFETY: plain integers.
        let status = unsafe { crate::real::fcntl(self.fd, libc::F_GETFL, 0) };
        if status < 0 { self.nonblocking } else { status & libc::O_NONBLOCK != 0 }
    }

    /// The kernel's half of a UDP socket is asked on as calls that went by a ring's lock alone have left it.
    pub(crate) fn go_on_asking_the_kernel(&mut self, left: datagram::KernelPoll) {
        self.kernel_poll.go_on_from(left);
    }

    /// Takes the error that a connection left which the program gave up.
    pub(crate) fn take_left_error(&mut self) -> Option<i32> {
        self.rare.as_mut()?.error.take()
    }

    /// The ring's socket, if there is one.
    #[inline]
    pub(crate) const fn ring_id(&self) -> Option<FlowId> {
        match self.kind {
            Kind::Connecting(id) | Kind::Stream(id) | Kind::Listener(Some(id)) | Kind::Datagram(Some(id)) => Some(id),
            _ => None,
        }
    }

    /// The rings that its flows are on.
    pub(crate) fn rings(&self) -> RingSet {
        self.flows().map(|flow| flow.ring).collect()
    }

    /// Where its readiness comes from.
    pub(crate) const fn source(&self) -> mux::Source {
        match self.kind {
            Kind::Fresh => mux::Source::Fresh,
            Kind::Connecting(id) | Kind::Stream(id) => mux::Source::Ring(id),
            Kind::Listener(id) | Kind::Datagram(id) => mux::Source::Both(id),
            Kind::Moving => mux::Source::Nobody,
            Kind::Kernel => mux::Source::Kernel,
        }
    }
}
