//! An interface's message plane, by Soft RoCE over AF_XDP: RoCEv2 with peers on any machine that the interface leads to.
//!
//! What comes for RoCE's UDP port (4791) at the interface's addresses is this process's; addresses, routes and neighbours are the kernel's. One process has the interface, for
//! packets of all queue pairs come by that port, and by any of its queues.

mod doors;
mod host;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringway_params::kind::Named;
use ringway_stack::Instant;
use ringway_stack::device::messages::Memory;
use ringway_stack::device::{Device as _, FlowRule, Protocol, QueueId, Queues as _, RuleError, RuleId, Target};
use ringway_stack::roce::packet::UDP_PORT;
use ringway_stack::roce::{Node, NodeConfig, Routed, SoftRoce, Tuning, cm};
use ringway_xdp::{Settings, XdpDevice, XdpQueues};

use self::doors::Doors;
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
    #[error("{interface}: UDP port 4791 is taken: by another process's rsockets, or by the kernel's soft-RoCE (rdma link)")]
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
    roce: SoftRoce<XdpQueues, M, Routed>,
    host: Arc<Host>,
    /// Of which of the kernel's tables it knows.
    generation: u64,
    /// The interface's addresses, each with the rule by which RoCE comes.
    addresses: BTreeMap<IpAddr, RuleId>,
    /// Ports of RDMA-CM's that are taken.
    ports: BTreeMap<RuleId, (Protocol, SocketAddr)>,
    next_port: u64,
    /// Nobody else on this machine has RoCE's port meanwhile.
    _doors: Doors,
}

/// The kernel's part of it.
#[derive(Clone, Debug)]
pub(super) struct Fabric(Arc<Host>);

/// Attaches to an interface, or has a broker do so. `seed`: for numbers that nobody is to guess.
///
/// # Errors
/// [`NotAttached`].
pub(super) fn attach<M: Memory>(seed: u64, named: &Named<'_>, broker: &Path) -> Result<(Plane<M>, Fabric), NotAttached> {
    if named.queues.is_some() {
        return Err(NotAttached::SomeQueues(named.to_string()));
    }
    let interface = || named.name.to_owned();
    let doors = Doors::take(named.name).map_err(|error| match error.raw_os_error() {
        Some(libc::EADDRINUSE) => NotAttached::PortTaken { interface: interface() },
        _ => NotAttached::Port { interface: interface(), error },
    })?;
    let queues = open(named.name, broker)?;
    let host = Arc::new(Host::open(named.name, queues.device().lender())?);
    let (network, generation) = host.network();
    let mtu = network.mtu().ok_or_else(|| NotAttached::Mtu { interface: interface() })?;
    let config = NodeConfig {
        addresses: Vec::new(),
        mtu,
        ack_timeout: ACK_TIMEOUT,
        cm: cm::Config { response_timeout: CM.0, retries: CM.1, ..cm::Config::default() },
        tuning: Tuning { datagram_mtu: mtu, ..Tuning::default() },
        ..NodeConfig::new(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
    };
    let mut node = Node::new(config, seed);
    node.set_network(network.clone());
    let mut plane = Plane {
        roce: SoftRoce::new(queues, node, Routed::new(network.clone())),
        host: Arc::clone(&host),
        generation,
        addresses: BTreeMap::new(),
        ports: BTreeMap::new(),
        next_port: 0,
        _doors: doors,
    };
    plane.set_addresses(&network.addresses());
    Ok((plane, Fabric(host)))
}

fn open(interface: &str, broker: &Path) -> Result<XdpQueues, NotAttached> {
    let settings = Settings::new(interface);
    let own = XdpDevice::attach(&settings).and_then(|device| device.open_ring());
    own.or_else(|own| {
        if !broker.exists() {
            return Err(NotAttached::Interface(format!("{interface}: {own}")));
        }
        let lent = XdpDevice::attach_by(broker, &settings).and_then(|device| device.open_ring());
        lent.map_err(|lent| NotAttached::Interface(format!("{interface}: {own}; {lent}")))
    })
}

impl<M: Memory> Plane<M> {
    pub(super) const fn roce(&self) -> &SoftRoce<XdpQueues, M, Routed> {
        &self.roce
    }

    pub(super) const fn roce_mut(&mut self) -> &mut SoftRoce<XdpQueues, M, Routed> {
        &mut self.roce
    }

    pub(super) const fn node(&self) -> &Node<M> {
        self.roce.node()
    }

    pub(super) const fn node_mut(&mut self) -> &mut Node<M> {
        self.roce.node_mut()
    }

    pub(super) fn poll(&mut self, now: Instant) -> usize {
        let has_changed = self.look();
        let done = self.roce.poll(now);
        self.ask(now);
        done + usize::from(has_changed)
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
            let rule = FlowRule::flow(Protocol::Udp, SocketAddr::new(*address, UDP_PORT), None);
            match device.attach(&rule, Target::Queue(QueueId(0))) {
                Ok(attached) => drop(self.addresses.insert(*address, attached.rule)),
                Err(error) => tracing::warn!("rsockets are not reached at {address}: {error}"),
            }
        }
    }

    /// Takes a port of RDMA-CM's. (No other process has the interface.)
    pub(super) fn claim(&mut self, protocol: Protocol, at: SocketAddr) -> Result<RuleId, RuleError> {
        let is_same = |known: SocketAddr| {
            let is_any = known.ip().is_unspecified() || at.ip().is_unspecified() || known.ip() == at.ip();
            known.port() == at.port() && known.is_ipv4() == at.is_ipv4() && is_any
        };
        if self.ports.values().any(|(other, known)| *other == protocol && is_same(*known)) {
            return Err(RuleError::Taken);
        }
        self.next_port += 1;
        self.ports.insert(RuleId(self.next_port), (protocol, at));
        Ok(RuleId(self.next_port))
    }

    pub(super) fn give_up(&mut self, rule: RuleId) {
        self.ports.remove(&rule);
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
