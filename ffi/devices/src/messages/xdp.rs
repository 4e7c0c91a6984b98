//! An interface's message plane, by Soft RoCE over AF_XDP: RoCEv2 with peers on any machine that the interface leads to.
//!
//! What comes for RoCE's UDP port (4791) at the interface's addresses is this process's, or its whose queue pair it is for ([`ringway_xdp::roce`]); addresses, routes and neighbours are the
//! kernel's. A process that has the interface by a broker has all of that port, alone.

mod doors;
mod groups;
mod host;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringway_host::capabilities::{self, Capability};
use ringway_params::kind::Named;
use ringway_stack::Instant;
use ringway_stack::device::messages::{CmError, Connections as _, CreateError, Memory, Messages as _, Mtu, Path as WayTo};
use ringway_stack::device::{Device as _, Protocol, Queues as _, RuleError, RuleId};
use ringway_stack::roce::mad::private::{PortSpace, of_service_id};
use ringway_stack::roce::{Limits, Node, NodeConfig, Routed, SoftRoce, Tuning, cm};
use ringway_xdp::roce::{Ports, RoceQueues, Seat};
use ringway_xdp::{AttachError, Settings};

use self::doors::Doors;
use self::groups::Memberships;
use self::host::Host;

/// How long to wait for an acknowledgment: 4.096 us * 2^v, which is 537 ms. (RDMA-CM has 2.1 s, on networks that lose nothing.) Eight of these in vain end a connection.
const ACK_TIMEOUT: u8 = 17;

/// How long an answer of a peer's connection management may take, 134 ms, and how often it is asked again: whoever is not there is known not to be after two seconds.
const CM: (u8, u8) = (15, 15);

/// How often a stream that says nothing asks whether its peer is there: nobody tells of a process that was killed.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(5);

/// A receive buffer's length, unless somebody says another: as on shared memory.
pub(super) const RECV_BUFFER: u32 = 1 << 20;

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum NotAttached {
    /// RoCE's packets come by any queue.
    #[error("{0}: rsockets take an interface with all of its queues")]
    SomeQueues(String),
    /// The interface is not to be had, neither by the process itself nor from a broker.
    #[error("{0}")]
    Interface(String),
    /// The kernel does not say which addresses and routes there are.
    #[error(transparent)]
    Kernel(#[from] ringway_host::netlink::Error),
    /// RoCE's port is somebody else's.
    #[error(
        "{interface}: UDP port 4791 is taken: by another process's rsockets, by a broker or of another user, or by the kernel's soft-RoCE (rdma link)"
    )]
    PortTaken {
        /// Where.
        interface: String,
    },
    /// The system: there is no UDP socket to be had.
    #[error("{interface}: no UDP socket at port 4791: {error}")]
    Port {
        /// Where.
        interface: String,
        /// What it said.
        #[source]
        error: std::io::Error,
    },
    /// Its packets are too short.
    #[error("{interface}: an MTU of less than 351 bytes has no room for RoCE's packets")]
    Mtu {
        /// Which one.
        interface: String,
    },
}

/// The message plane. `M`: what its queue pairs may read and write.
pub struct Plane<M> {
    roce: SoftRoce<RoceQueues, M, Routed>,
    host: Arc<Host>,
    /// Of which of the kernel's tables it knows.
    generation: u64,
    /// The interface's addresses, each with the rule by which RoCE comes.
    addresses: BTreeMap<IpAddr, RuleId>,
    /// Ports of RDMA-CM's that are taken.
    ports: BTreeMap<RuleId, (Protocol, SocketAddr)>,
    next_port: u64,
    /// Those that no other process is to have, where others are on the interface.
    shared: Option<Arc<Ports>>,
    memberships: Memberships,
    _place: Place,
}

/// What this process has RoCE's port on the interface by.
struct Place {
    _doors: Doors,
    /// `None`: alone.
    seat: Option<Seat>,
}

/// The kernel's part of it.
#[derive(Clone, Debug)]
pub(super) struct Fabric(Arc<Host>);

/// Attaches to an interface, or has a broker do so. `seed`: for numbers that nobody is to guess.
///
/// # Errors
/// [`NotAttached`].
pub(super) fn attach<M: Memory + From<Vec<u8>>>(seed: u64, named: &Named<'_>, broker: &Path) -> Result<(Plane<M>, Fabric), NotAttached> {
    if named.queues.is_some() {
        return Err(NotAttached::SomeQueues(named.to_string()));
    }
    let (queues, place, shared) = take_place(seed, named.name, broker)?;
    let first_qp = place.seat.as_ref().map_or(0, Seat::first_qp);
    let qps = if shared.is_some() { Seat::QPS } else { Limits::default().qps };
    let host = Arc::new(Host::open(named.name, queues.device().lender())?);
    let (network, generation) = host.network();
    let mtu = network.mtu().ok_or_else(|| NotAttached::Mtu { interface: named.name.to_owned() })?;
    let config = NodeConfig {
        addresses: Vec::new(),
        mtu,
        ack_timeout: ACK_TIMEOUT,
        cm: cm::Config { response_timeout: CM.0, retries: CM.1, ..cm::Config::default() },
        tuning: Tuning { datagram_mtu: mtu, ..Tuning::default() },
        limits: Limits { qps, ..Limits::default() },
        first_qp,
        qps_turned: seed,
        ..NodeConfig::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
    };
    let mut node = Node::new(config, seed);
    node.set_network(network.clone());
    let mut roce = SoftRoce::new(queues, node, Routed::new(network.clone()));
    if let Some(ports) = shared.clone() {
        roce.share_addresses(Box::new(move |service| port_of(service).is_some_and(|(protocol, port)| ports.is_others(protocol, port))));
    }
    let mut plane = Plane {
        roce,
        host: Arc::clone(&host),
        generation,
        addresses: BTreeMap::new(),
        ports: BTreeMap::new(),
        next_port: 0,
        shared,
        memberships: Memberships::new(host.link()),
        _place: place,
    };
    plane.set_addresses(&network.addresses());
    Ok((plane, Fabric(host)))
}

/// What has a service's number.
fn port_of(service: u64) -> Option<(Protocol, u16)> {
    match of_service_id(service)? {
        (PortSpace::Tcp, port) => Some((Protocol::Tcp, port)),
        (PortSpace::Udp, port) => Some((Protocol::Udp, port)),
        (PortSpace::Ipoib, _) => None,
    }
}

/// A place beside others where the process may have a packet socket, and else one alone.
fn take_place(seed: u64, interface: &str, broker: &Path) -> Result<(RoceQueues, Place, Option<Arc<Ports>>), NotAttached> {
    let settings = Settings::new(interface);
    let doors = |is_shared| {
        Doors::take(interface, is_shared).map_err(|error| match error.raw_os_error() {
            Some(libc::EADDRINUSE) => NotAttached::PortTaken { interface: interface.to_owned() },
            _ => NotAttached::Port { interface: interface.to_owned(), error },
        })
    };
    let failed = |error: AttachError| NotAttached::Interface(format!("{interface}: {error}"));
    let lacks = |capabilities: &[Capability]| !capabilities::lacking(capabilities).is_empty();
    // (Who may have a packet socket and no more is better served by a broker, if there is one.)
    if lacks(&[Capability::NetRaw]) || broker.exists() && lacks(&[Capability::NetAdmin, Capability::Bpf]) {
        let place = Place { _doors: doors(false)?, seat: None };
        return Ok((alone(&settings, broker)?, place, None));
    }
    let seat = Seat::take(interface, seed).map_err(failed)?;
    let doors = doors(true)?;
    let (queues, why_not) = RoceQueues::beside_others(&settings, &seat).map_err(failed)?;
    if let Some(error) = why_not {
        tracing::info!("{interface}: {error}; rsockets go by a packet socket");
    }
    let ports = Arc::new(seat.ports());
    Ok((queues, Place { _doors: doors, seat: Some(seat) }, Some(ports)))
}

fn alone(settings: &Settings, broker: &Path) -> Result<RoceQueues, NotAttached> {
    let interface = &settings.interface;
    RoceQueues::alone(settings).or_else(|own| {
        if !broker.exists() {
            return Err(NotAttached::Interface(format!("{interface}: {own}")));
        }
        RoceQueues::alone_by(broker, settings).map_err(|lent| NotAttached::Interface(format!("{interface}: {own}; {lent}")))
    })
}

impl<M: Memory + From<Vec<u8>>> Plane<M> {
    pub(super) const fn roce(&self) -> &SoftRoce<RoceQueues, M, Routed> {
        &self.roce
    }

    pub(super) const fn roce_mut(&mut self) -> &mut SoftRoce<RoceQueues, M, Routed> {
        &mut self.roce
    }

    pub(super) const fn node(&self) -> &Node<M> {
        self.roce.node()
    }

    pub(super) const fn node_mut(&mut self) -> &mut Node<M> {
        self.roce.node_mut()
    }

    pub(super) fn take(&mut self, now: Instant) -> usize {
        let has_changed = self.look();
        self.roce.take(now) + usize::from(has_changed)
    }

    /// (Neighbours are asked for as well.)
    pub(super) fn may_transmit(&self) -> bool {
        self.roce.may_transmit() || self.roce.has_questions()
    }

    pub(super) fn transmit(&mut self, now: Instant) {
        self.roce.transmit(now);
        self.ask(now);
    }

    /// Learns what the kernel's tables say, where there are newer ones.
    fn look(&mut self) -> bool {
        if self.host.generation() == self.generation {
            return false;
        }
        let (network, generation) = self.host.network();
        self.generation = generation;
        self.set_addresses(&network.addresses());
        self.roce.set_network(network);
        true
    }

    /// Has the kernel ask for neighbours, and sends what it knows the way of by then.
    fn ask(&mut self, now: Instant) {
        if !self.roce.has_questions() {
            return;
        }
        let questions: Vec<IpAddr> = core::iter::from_fn(|| self.roce.take_question()).collect();
        self.host.ask(&questions);
        if self.look() {
            self.roce.transmit(now);
        }
    }

    /// RoCE comes for these from now on, and for no others.
    fn set_addresses(&mut self, all: &[IpAddr]) {
        let device = self.roce.queues_mut().device().clone();
        for (_, rule) in self.addresses.extract_if(.., |known, _| !all.contains(known)) {
            device.detach(rule);
        }
        for address in all {
            if self.addresses.contains_key(address) {
                continue;
            }
            match device.hear(*address) {
                Ok(rule) => drop(self.addresses.insert(*address, rule)),
                Err(error) => tracing::warn!("rsockets are not reached at {address}: {error}"),
            }
        }
    }

    /// Takes a port of RDMA-CM's. (Among processes, one has it at all of the interface's addresses.)
    pub(super) fn claim(&mut self, protocol: Protocol, at: SocketAddr) -> Result<RuleId, RuleError> {
        let is_same = |known: SocketAddr| {
            let is_any = known.ip().is_unspecified() || at.ip().is_unspecified() || known.ip() == at.ip();
            known.port() == at.port() && known.is_ipv4() == at.is_ipv4() && is_any
        };
        if self.ports.values().any(|(other, known)| *other == protocol && is_same(*known)) {
            return Err(RuleError::Taken);
        }
        if let Some(ports) = &self.shared {
            ports.take(protocol, at.port()).map_err(|error| match error.raw_os_error() {
                Some(libc::EADDRINUSE) => RuleError::Taken,
                _ => RuleError::Full,
            })?;
        }
        self.next_port += 1;
        self.ports.insert(RuleId(self.next_port), (protocol, at));
        Ok(RuleId(self.next_port))
    }

    pub(super) fn give_up(&mut self, rule: RuleId) {
        if let Some((protocol, at)) = self.ports.remove(&rule)
            && let Some(ports) = &self.shared
        {
            ports.give_back(protocol, at.port());
        }
    }

    /// The way to a group. (Groups come by the packet socket, which who has the interface by a broker has not.)
    pub(super) fn group_path(&self, from: Option<IpAddr>, group: IpAddr) -> Result<(WayTo, Mtu), CmError> {
        if self.shared.is_none() {
            return Err(CmError::Unsupported);
        }
        self.node().group_path(from, group)
    }

    /// Has a queue pair hear a group, of which the kernel is a member for it.
    pub(super) fn join(&mut self, qp: u32, group: IpAddr) -> Result<(), CmError> {
        self.group_path(None, group)?;
        self.node_mut().join(qp, group)?;
        if let Err(error) = self.memberships.join(group) {
            tracing::warn!("the group {group} is not heard: {error}");
            self.leave(qp, group)?;
            return Err(CmError::Full);
        }
        Ok(())
    }

    pub(super) fn leave(&mut self, qp: u32, group: IpAddr) -> Result<(), CmError> {
        self.node_mut().leave(qp, group)?;
        self.leave_unheard();
        Ok(())
    }

    pub(super) fn destroy_qp(&mut self, qp: u32) -> Result<(), CreateError> {
        self.node_mut().destroy_qp(qp)?;
        self.leave_unheard();
        Ok(())
    }

    fn leave_unheard(&mut self) {
        if !self.memberships.is_empty() {
            self.memberships.retain(&self.roce.node().hca().groups().collect());
        }
    }

    pub(super) fn wait_fd(&mut self) -> RawFd {
        self.roce.queues_mut().wait_fd().unwrap_or(-1)
    }
}

impl Fabric {
    /// Whether an address is reached by the interface.
    pub(super) fn leads_to(&self, to: IpAddr) -> bool {
        self.0.network().0.leads_to(to)
    }

    pub(super) fn service_fd(&self) -> RawFd {
        self.0.fd()
    }

    pub(super) fn service(&self) {
        self.0.refresh();
    }
}
