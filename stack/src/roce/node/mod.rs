//! A machine with one adapter and connection management over it: what the kernel's rdma_cm and librdmacm are to a card. An IP packet comes in, IP packets go
//! out, and queue pairs become ready as their connections do.
//!
//! - `connections`: what a program asks for
//! - `events`: what comes of it
//! - `services`: the same for datagrams
//! - `plane`: the adapter's message plane, as it is

mod connections;
mod events;
mod plane;
mod services;
#[cfg(test)]
mod tests;

use core::fmt::Debug;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::cm::{self, Cm, ConnectionId};
use super::hca::{Hca, Limits, Tuning};
use super::mad::{self, GSI_QP, Mad, Message};
use super::memory::Memory;
use super::network::Network;
use super::packet::Body;
use super::packet::datagram::Datagram;
use super::payload::Source;
use super::psn::Psn;
use super::qp::Mtu;
use crate::device::messages::{ConnectionEvent, Endpoint, Path, PortSpace, PostError, QpAttributes, Region, Rejection, SendWr};
use crate::time::{Instant, earlier};

/// The first port that is nobody's but who asks for any.
const EPHEMERAL_MIN: u16 = 32_768;

/// What a machine is like.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Its addresses, the preferred one of each family first.
    pub addresses: Vec<IpAddr>,
    /// Where its packets come from and go to, if that is none of its addresses: the adapter's GID, where several adapters are behind one address, as those of
    /// the processes of one machine are. Whoever connects then says by [`Node::resolve`] which adapter is meant.
    pub gid: Option<IpAddr>,
    /// The path MTU that it asks for and takes.
    pub mtu: Mtu,
    /// How long to wait for acknowledgments: 4.096 us * 2^v. RDMA-CM has 19, unless RDMA_OPTION_ID_ACK_TIMEOUT says otherwise.
    pub ack_timeout: u8,
    /// How long a peer is to wait where there is no receive; 5 bits (IBTA spec, table 45). Linux has 0, which is 655 ms; 12 is 0.64 ms.
    pub min_rnr_timer: u8,
    /// Connection management's.
    pub cm: cm::Config,
    /// The adapter's limits.
    pub limits: Limits,
    /// What its queue pairs have in common.
    pub tuning: Tuning,
    /// Where its queue pairs' numbers begin: [`Hca::with_first_qp`].
    pub first_qp: u16,
    /// How many places after that its first queue pair has its number: [`Hca::turned`].
    pub qps_turned: u64,
}

impl NodeConfig {
    /// With this address, and what RDMA-CM has.
    pub fn new(address: IpAddr) -> Self {
        Self {
            addresses: vec![address],
            gid: None,
            mtu: Mtu::B1024,
            ack_timeout: 19,
            min_rnr_timer: 12,
            cm: cm::Config::default(),
            limits: Limits::default(),
            tuning: Tuning::default(),
            first_qp: 0,
            qps_turned: 0,
        }
    }
}

/// What is known of a connection that the node has something to do for, or is asked about.
#[derive(Clone, Debug)]
enum Pending {
    /// We asked: what is not the peer's to say is in the attributes.
    Asked(Endpoint, Box<QpAttributes>),
    /// We asked for a datagrams' service, on this way.
    AskedService(Path, Mtu),
    /// The peer asks for one.
    Question,
    /// The peer asked.
    Waits(Box<QpAttributes>),
    /// The program makes its own queue pair ready, with these.
    Own(Box<QpAttributes>),
    /// The peer said no.
    Refused(Box<Rejection>),
}

/// Memory that two adapters reach, so that one places bytes where the other has them without a packet: [`crate::device::messages::Messages::share`]. Who carries packets between them
/// knows of it, and holds keys, bounds and queue pairs against what was shared.
pub trait Sharing<M>: Debug + Send {
    /// Memory for a region, as long as it is, in which the adapter at `peer` may place bytes by the queue pair that is connected to `qp`, until it is dropped.
    fn share(&mut self, peer: IpAddr, qp: u32, region: &Region) -> Option<M>;

    /// Places bytes in memory that the adapter at `peer` shares with its queue pair `qp`'s peer. `false`: nothing was written.
    fn place(&mut self, peer: IpAddr, qp: u32, key: u32, address: u64, bytes: &[u8]) -> bool;
}

/// A machine.
#[derive(Debug)]
pub struct Node<M> {
    config: NodeConfig,
    hca: Hca<M>,
    cm: Cm,
    /// Ports that are listened at, and for which address.
    listeners: BTreeMap<u16, SocketAddr>,
    /// The same of datagrams' services.
    services: BTreeMap<(PortSpace, u16), SocketAddr>,
    pending: BTreeMap<ConnectionId, Pending>,
    /// Whose adapter is behind addresses that are about to be connected to.
    resolved: BTreeMap<SocketAddr, IpAddr>,
    /// Whose is behind addresses that datagrams go to.
    datagrams_to: BTreeMap<SocketAddr, IpAddr>,
    events: VecDeque<(ConnectionId, ConnectionEvent)>,
    sharing: Option<Box<dyn Sharing<M>>>,
    /// On an ordinary network: what is known of it.
    network: Option<Network>,
    /// Our names of the connections that we asked for.
    names: BTreeMap<ConnectionId, SocketAddr>,
    next_port: u16,
    random: ChaCha8Rng,
}

impl<M: Memory> Node<M> {
    /// Without connections. `seed` is for the numbers that strangers are not to guess.
    pub fn new(config: NodeConfig, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        Self {
            hca: Hca::with_first_qp(config.limits, config.tuning, config.first_qp).turned(config.qps_turned),
            cm: Cm::new(config.cm, random.next_u64()),
            config,
            listeners: BTreeMap::new(),
            services: BTreeMap::new(),
            pending: BTreeMap::new(),
            resolved: BTreeMap::new(),
            datagrams_to: BTreeMap::new(),
            events: VecDeque::new(),
            sharing: None,
            network: None,
            names: BTreeMap::new(),
            next_port: EPHEMERAL_MIN,
            random,
        }
    }

    /// Gives it memory that it shares with other adapters.
    pub fn share_by(&mut self, sharing: Box<dyn Sharing<M>>) {
        self.sharing = Some(sharing);
    }

    /// It is on an ordinary network, whose addresses, routes and path MTU it has from now on.
    pub fn set_network(&mut self, network: Network) {
        self.config.addresses = network.addresses();
        self.config.mtu = network.mtu().unwrap_or(self.config.mtu);
        self.network = Some(network);
    }

    /// The adapter.
    pub const fn hca(&self) -> &Hca<M> {
        &self.hca
    }

    /// The adapter, for whoever has queue pairs of its own on it.
    pub const fn hca_mut(&mut self) -> &mut Hca<M> {
        &mut self.hca
    }

    /// Whether an IP packet is about a service that is listened at here, or a connection that there is: among several machines with one address, for whom it is. Of what is
    /// no connection management nobody knows.
    pub fn concerns(&self, bytes: &[u8]) -> bool {
        management_of(bytes).is_some_and(|mad| self.cm.concerns(&mad))
    }

    /// Which service an IP packet asks for: a connection with it, or its queue pair.
    pub fn service_asked(bytes: &[u8]) -> Option<u64> {
        match management_of(bytes)?.message {
            Message::Request(request) => Some(request.service_id),
            Message::ServiceIdRequest(request) => Some(request.service_id),
            _ => None,
        }
    }

    /// How many connections there are, those that are ending included.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.cm.connections()
    }

    /// The bytes that [`Node::poll_transmit`] needs room for.
    pub const PACKET_MAX: usize = Hca::<M>::PACKET_MAX;

    /// Takes an IP packet.
    pub fn on_packet(&mut self, now: Instant, bytes: &[u8]) {
        self.hca.on_packet(now, bytes);
        while let Some(management) = self.hca.receive_management() {
            self.cm.on_management(now, &management);
        }
        self.take_events(now);
    }

    /// Takes an IP packet if it goes the short way: see [`Hca::take_predicted`].
    #[inline]
    pub(super) fn take_predicted(&mut self, bytes: &[u8]) -> bool {
        self.hca.take_predicted(bytes)
    }

    /// Posts a request to send, and if its packet goes the short way, and at once, writes it to `out`: see [`Hca::post_and_transmit`].
    ///
    /// # Errors
    /// [`PostError`]; it was not taken.
    #[inline]
    pub(super) fn post_and_transmit(&mut self, now: Instant, qp: u32, wr: &SendWr<'_>, out: &mut [u8]) -> Result<Option<usize>, PostError> {
        self.hca.post_and_transmit(now, qp, wr, out)
    }

    /// Takes an IPv6 packet whose bytes are vouched for and stay where they are, but for its front: see [`Hca::on_front`].
    pub(super) fn on_front(&mut self, now: Instant, front: &[u8], len: usize, source: &dyn Source) -> bool {
        let is_taken = self.hca.on_front(now, front, len, source);
        if is_taken {
            self.take_events(now);
        }
        is_taken
    }

    /// Whether [`Node::poll_transmit`] may have something to write.
    pub(super) fn may_transmit(&self) -> bool {
        self.cm.may_transmit() || self.hca.may_transmit()
    }

    /// The same but for acknowledgments that may wait ([`super::Tuning::acknowledges_late`]).
    pub(super) fn is_urgent(&self) -> bool {
        self.cm.may_transmit() || self.hca.is_urgent()
    }

    /// Whether there are acknowledgments that may wait.
    #[inline]
    pub(super) fn is_owing(&self) -> bool {
        self.hca.is_owing()
    }

    /// Writes the next IP packet to `out`, which must have room for [`Node::PACKET_MAX`] bytes, and gives its length; `None` if there is none now.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<usize> {
        self.poll_transmit_some(now, out, true)
    }

    /// The same; acknowledgments that may wait do, unless `with_owing`.
    #[inline]
    pub(super) fn poll_transmit_some(&mut self, now: Instant, out: &mut [u8], with_owing: bool) -> Option<usize> {
        while let Some(management) = self.cm.poll_transmit() {
            // Where there is no room it is lost, as datagrams may be; what matters is sent again.
            self.hca.send_management(management);
        }
        self.hca.poll_transmit_some(now, out, with_owing)
    }

    /// The next connection to `to` goes to the adapter of this GID.
    pub fn resolve(&mut self, to: SocketAddr, gid: IpAddr) {
        self.resolved.insert(to, gid);
    }

    /// Datagrams to `to` go to the adapter of this GID; `None`: nobody knows any more. Whoever says so bounds how many there are.
    pub fn resolve_datagrams(&mut self, to: SocketAddr, gid: Option<IpAddr>) {
        match gid {
            Some(gid) => self.datagrams_to.insert(to, gid),
            None => self.datagrams_to.remove(&to),
        };
    }

    /// The adapter at this address is no more, as whoever carries packets knows: its connections end now, and not once nobody has answered for long enough.
    pub fn on_peer_gone(&mut self, now: Instant, peer: IpAddr) {
        self.hca.on_peer_gone(now, peer);
        self.cm.on_peer_gone(peer);
        self.datagrams_to.retain(|_, gid| *gid != peer);
        self.take_events(now);
    }

    /// The process that had these queue pairs (by their machine's address, and number) has ended, and its machine, which lives on, parts its connections, as the kernel's connection
    /// management does. Queue pairs that are connected with them are told nothing: what they send is not acknowledged.
    pub fn on_queue_pairs_gone(&mut self, now: Instant, is_gone: &dyn Fn(IpAddr, u32) -> bool) {
        self.cm.on_queue_pairs_gone(now, is_gone);
        self.take_events(now);
    }

    /// The peers' queue pairs of connections that stand, or are about to.
    pub fn remote_queue_pairs(&self) -> impl Iterator<Item = (IpAddr, u32)> {
        self.cm.remote_queue_pairs()
    }

    /// The adapter's port is down, or the adapter is no more: all connections end, those on their way too, and no peer is told. (Queue pairs are their program's to end, as with a card.)
    pub fn on_down(&mut self) {
        for id in self.cm.on_down() {
            self.tell(id, ConnectionEvent::Down);
        }
    }

    /// When to call [`Node::on_timer`] at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        earlier(self.hca.deadline(), self.cm.deadline())
    }

    /// Does what is due.
    pub fn on_timer(&mut self, now: Instant) {
        self.hca.on_timer(now);
        self.cm.on_timer(now);
        self.take_events(now);
    }

    fn psn(&mut self) -> Psn {
        Psn::new(self.random.next_u32())
    }

    /// A port for who asks for any. (Two connections may have the same: only the peer's program is told of it.)
    fn ephemeral_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = port.checked_add(1).unwrap_or(EPHEMERAL_MIN);
        port
    }

    fn service(port: u16) -> u64 {
        super::mad::private::service_id(PortSpace::Tcp, port)
    }
}

/// The connection management in an IP packet.
fn management_of(bytes: &[u8]) -> Option<Mad> {
    let packet = Datagram::parse(bytes).ok()?.packet;
    let to_management = packet.header.dest_qp == GSI_QP && matches!(packet.header.body, Body::Datagram(..));
    let bytes: &[u8; mad::LEN] = packet.payload.first_chunk().filter(|_| to_management)?;
    Mad::parse(bytes).ok()
}
