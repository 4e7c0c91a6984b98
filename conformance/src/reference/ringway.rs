//! Ringway's side: BSD sockets on two simulated hosts.
//!
//! What the ring knows is asked of the ring, with its errors as [`ringway_stack::Error::errno`] has them. What lies above it (a socket that
//! was never connected, ports, the second connect after a handshake) is done here as `libvma.so` does it, where
//! the kernel's placeholder answers for such a socket.

mod tcp;
mod udp;

use core::time::Duration;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ringway_sim::{Family, HostConfig, HostId, SimQueues, World, WorldConfig};
use ringway_stack::device::Steering;
use ringway_stack::ring::{FlowId, NextHop, Ring, UdpOptions};
use ringway_stack::tcp::Config;
use ringway_stack::{Error, Instant};

use super::sockets::{Address, EPHEMERAL, Errno, Flags, Host, How, Kind, Received, Revents, SLOTS, Setting, Slot, Sockets};

/// What a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// TCP, neither connected nor listening.
    Fresh,
    /// A connect was called, and no later one has said yet how it ended.
    Connecting(FlowId),
    /// Connected once.
    Stream(FlowId),
    /// Listening.
    Listener(FlowId),
    /// UDP, on the ring once it has a port.
    Datagram(Option<FlowId>),
}

struct Socket {
    state: State,
    /// Its port, as getsockname tells it.
    port: Option<u16>,
    /// The port is still this socket's.
    held: bool,
    /// It was given after the connection ended, and did not end with it.
    later: bool,
    /// The system chose the port, and takes it back with the connection.
    chosen: bool,
    peer: Option<Address>,
    /// What a disconnected socket still has to tell.
    error: Option<Errno>,
    /// Shut down before there was anything on the ring to shut down: reading, and writing.
    shut: [bool; 2],
    /// shutdown(2) found that a connect had failed: Linux (SS_DISCONNECTING) connects no more.
    spoilt: bool,
    linger_zero: bool,
    config: Config,
}

/// A simulated world without faults.
pub struct Ringway {
    world: World,
    hosts: [HostId; 2],
    sockets: [Option<Socket>; SLOTS],
    /// The next port that the system chooses, on each host. None is chosen twice.
    next_port: [u16; 2],
}

impl core::fmt::Debug for Ringway {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Ringway").field("world", &self.world).finish_non_exhaustive()
    }
}

impl Ringway {
    /// Two hosts that know each other, and speak that. Everything random follows from the seed.
    pub fn new(seed: u64, family: Family) -> Self {
        let mut world = World::new(WorldConfig::seeded(seed));
        let hosts = [("A", 1), ("B", 2)].map(|(name, number)| {
            let mut host = HostConfig::named(name);
            if family == Family::V6 {
                host.ip = Some(Ipv6Addr::from_bits((0xfd00 << 112) + number).into());
                host.nic.steering |= Steering::IPV6;
            }
            world.add_host(host)
        });
        world.introduce_all();
        Self { world, hosts, sockets: [const { None }; SLOTS], next_port: [EPHEMERAL; 2] }
    }

    fn ip(&self, host: Host) -> IpAddr {
        self.world.host(self.hosts[host as usize]).ip()
    }

    fn resolve(&self, address: Address) -> SocketAddr {
        SocketAddr::new(self.ip(address.host), address.port)
    }

    fn address(&self, raw: SocketAddr) -> Address {
        let host = if raw.ip() == self.ip(Host::A) { Host::A } else { Host::B };
        Address { host, port: raw.port() }
    }

    fn hop(&self, to: Address) -> NextHop {
        NextHop::Neighbour(self.ip(to.host))
    }

    fn get(&self, slot: Slot) -> &Socket {
        self.sockets[slot.index()].as_ref().expect("the slot holds a socket")
    }

    fn get_mut(&mut self, slot: Slot) -> &mut Socket {
        self.sockets[slot.index()].as_mut().expect("the slot holds a socket")
    }

    /// Calls a host's ring as one of its programs.
    fn call<R>(&mut self, slot: Slot, act: impl FnOnce(Instant, &mut ringway_sim::Sockets) -> R) -> R {
        self.world.call(self.hosts[slot.host() as usize], |cx| act(cx.now, cx.ring))
    }

    fn ring(&self, slot: Slot) -> &Ring<SimQueues> {
        self.world.host(self.hosts[slot.host() as usize]).ring()
    }

    /// Whether a socket of the host has the port.
    fn is_taken(&self, host: Host, kind: Kind, port: u16) -> bool {
        Slot::all().filter(|slot| slot.host() == host).any(|slot| match &self.sockets[slot.index()] {
            Some(socket) => kind_of(socket.state) == kind && socket.port == Some(port) && self.holds_port(slot),
            None => false,
        })
    }

    fn choose_port(&mut self, host: Host) -> u16 {
        let next = &mut self.next_port[host as usize];
        let port = *next;
        *next += 1;
        port
    }

    /// Whether the socket's port is its own: a connection that ended gave back what the system had chosen.
    fn holds_port(&self, slot: Slot) -> bool {
        let socket = self.get(slot);
        socket.held && (!socket.chosen || socket.later || !self.has_ended(slot))
    }

    /// The socket's address, which it is given now if it has none.
    fn ensure_bound(&mut self, slot: Slot) -> Address {
        let host = slot.host();
        if !self.holds_port(slot) {
            let port = self.choose_port(host);
            self.give_port(slot, port, true);
        }
        Address { host, port: self.get(slot).port.expect("just given") }
    }

    fn give_port(&mut self, slot: Slot, port: u16, chosen: bool) {
        let later = self.has_ended(slot);
        let socket = self.get_mut(slot);
        socket.later = later;
        socket.port = Some(port);
        socket.chosen = chosen;
        socket.held = true;
    }

    fn set_option(&mut self, slot: Slot, change: impl Fn(&mut Config)) -> Result<(), Errno> {
        let socket = self.get_mut(slot);
        change(&mut socket.config);
        match socket.state {
            State::Connecting(id) | State::Stream(id) | State::Listener(id) => {
                self.call(slot, |now, ring| ring.tcp_configure(now, id, change)).map_err(errno)
            }
            State::Fresh => Ok(()),
            // Linux's answer to a TCP option on a UDP socket.
            State::Datagram(_) => Err(Errno(92)),
        }
    }
}

impl Sockets for Ringway {
    fn socket(&mut self, slot: Slot, kind: Kind) -> Result<(), Errno> {
        let state = match kind {
            Kind::Tcp => State::Fresh,
            Kind::Udp => State::Datagram(None),
        };
        self.sockets[slot.index()] = Some(Socket::new(state, Config::default()));
        Ok(())
    }

    fn bind(&mut self, slot: Slot, port: u16) -> Result<(), Errno> {
        let state = self.get(slot).state;
        let idle = matches!(state, State::Fresh | State::Datagram(_)) || self.has_ended(slot);
        if !idle || self.holds_port(slot) {
            return Err(Errno::INVALID);
        }
        let kind = kind_of(state);
        if port == 0 {
            self.ensure_bound(slot);
        } else {
            if self.is_taken(slot.host(), kind, port) {
                return Err(Errno::IN_USE);
            }
            self.give_port(slot, port, false);
        }
        match kind {
            Kind::Tcp => Ok(()),
            Kind::Udp => self.udp_publish(slot).map(|_| ()),
        }
    }

    fn listen(&mut self, slot: Slot, backlog: i32) -> Result<(), Errno> {
        self.tcp_listen(slot, backlog)
    }

    fn connect(&mut self, slot: Slot, to: Address) -> Result<(), Errno> {
        match kind_of(self.get(slot).state) {
            Kind::Tcp => self.tcp_connect(slot, to),
            Kind::Udp => self.udp_connect(slot, to),
        }
    }

    fn disconnect(&mut self, slot: Slot) -> Result<(), Errno> {
        match kind_of(self.get(slot).state) {
            Kind::Tcp => self.tcp_disconnect(slot),
            Kind::Udp => self.udp_disconnect(slot),
        }
        Ok(())
    }

    fn accept(&mut self, slot: Slot, into: Slot) -> Result<Address, Errno> {
        self.tcp_accept(slot, into)
    }

    fn send(&mut self, slot: Slot, data: &[u8], more: bool) -> Result<usize, Errno> {
        match kind_of(self.get(slot).state) {
            Kind::Tcp => self.tcp_send(slot, data, more),
            Kind::Udp => self.udp_send(slot, data, None),
        }
    }

    fn send_to(&mut self, slot: Slot, data: &[u8], to: Address) -> Result<usize, Errno> {
        self.udp_send(slot, data, Some(to))
    }

    fn recv(&mut self, slot: Slot, len: usize, flags: Flags) -> Result<Received, Errno> {
        match kind_of(self.get(slot).state) {
            Kind::Tcp => self.tcp_recv(slot, len, flags),
            Kind::Udp => self.udp_recv(slot, len, flags),
        }
    }

    fn shutdown(&mut self, slot: Slot, how: How) -> Result<(), Errno> {
        match kind_of(self.get(slot).state) {
            Kind::Tcp => self.tcp_shutdown(slot, how),
            Kind::Udp => self.udp_shutdown(slot, how),
        }
    }

    fn close(&mut self, slot: Slot) {
        let Some(socket) = self.sockets[slot.index()].take() else { return };
        if let Some(id) = id_of(socket.state) {
            let abort = socket.linger_zero && kind_of(socket.state) == Kind::Tcp;
            self.call(slot, |now, ring| ring.close(now, id, abort));
        }
    }

    fn set(&mut self, slot: Slot, setting: Setting) -> Result<(), Errno> {
        match setting {
            Setting::NoDelay(on) => self.set_option(slot, |config| config.nodelay = on),
            Setting::Cork(on) => self.set_option(slot, |config| config.cork = on),
            Setting::LingerZero(on) => {
                self.get_mut(slot).linger_zero = on;
                Ok(())
            }
        }
    }

    fn take_error(&mut self, slot: Slot) -> Errno {
        if let Some(error) = self.get_mut(slot).error.take() {
            return error;
        }
        match id_of(self.get(slot).state) {
            Some(id) => Errno(self.call(slot, |_, ring| ring.take_error(id)).map_or(0, Error::errno)),
            None => Errno(0),
        }
    }

    fn local(&self, slot: Slot) -> Option<Address> {
        self.get(slot).port.map(|port| Address { host: slot.host(), port })
    }

    fn peer(&self, slot: Slot) -> Result<Address, Errno> {
        let connected = match self.get(slot).state {
            State::Connecting(id) | State::Stream(id) => self.is_connected(slot, id),
            State::Datagram(_) => true,
            State::Fresh | State::Listener(_) => false,
        };
        self.get(slot).peer.filter(|_| connected).ok_or(Errno::NOT_CONNECTED)
    }

    fn revents(&self, slot: Slot) -> Revents {
        let socket = self.get(slot);
        if let Some(id) = id_of(socket.state) {
            return Revents(u16::try_from(self.ring(slot).readiness(id).bits()).expect("poll's bits"));
        }
        // Linux's tcp_poll of a socket in TCP_CLOSE, and datagram_poll of one that nothing was sent to.
        let [read, write] = socket.shut;
        let mut revents = Revents::OUT;
        for (on, bits) in [
            (socket.state == State::Fresh || (read && write), Revents::HUP),
            (read, Revents::IN | Revents::RDHUP),
            (socket.error.is_some(), Revents::ERR),
        ] {
            revents |= if on { bits } else { 0 };
        }
        Revents(revents)
    }

    fn unread(&self, slot: Slot) -> Result<u64, Errno> {
        match self.get(slot).state {
            State::Listener(_) => Err(Errno::INVALID),
            state => Ok(id_of(state).and_then(|id| self.ring(slot).info(id)).map_or(0, |info| info.next_len as u64)),
        }
    }

    fn pass(&mut self, ms: u64) {
        self.world.run_for(Duration::from_millis(ms));
    }
}

impl Socket {
    const fn new(state: State, config: Config) -> Self {
        Self {
            state,
            port: None,
            held: false,
            later: false,
            chosen: false,
            peer: None,
            error: None,
            shut: [false; 2],
            spoilt: false,
            linger_zero: false,
            config,
        }
    }
}

const fn kind_of(state: State) -> Kind {
    match state {
        State::Datagram(_) => Kind::Udp,
        _ => Kind::Tcp,
    }
}

const fn id_of(state: State) -> Option<FlowId> {
    match state {
        State::Connecting(id) | State::Stream(id) | State::Listener(id) | State::Datagram(Some(id)) => Some(id),
        State::Fresh | State::Datagram(None) => None,
    }
}

fn errno(error: Error) -> Errno {
    Errno(error.errno())
}

fn options() -> UdpOptions {
    UdpOptions { rcvbuf: 212_992, ttl: 64, tos: 0, ..UdpOptions::default() }
}
