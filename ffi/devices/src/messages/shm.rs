//! Shared memory's message plane, by Soft RoCE: processes of one user on one machine.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

use ringway_shm::{
    AreaPart, AttachError, DialogueHandler, Ports, PublishedRegion, RegionWrite, Rendezvous, ResolveError, Resolved, ShmQueues, WriteError,
};
use ringway_stack::device::messages::{Memory, Region};
use ringway_stack::device::{Device as _, FlowRule, MacAddr, Protocol, QueueId, Queues as _, RuleError, RuleId, Target};
use ringway_stack::roce::{self, Node, NodeConfig, SoftRoce, Tuning, Vouched, qp::Mtu};
use ringway_stack::rsocket::DirectTarget;

use super::NotWritten;

/// The message plane. `M`: what its queue pairs may read and write.
pub(super) type Plane<M> = SoftRoce<ShmQueues, M, Vouched<Fabric>>;

/// How long to wait for an acknowledgment: 4.096 us * 2^v, which is 67 ms. Nothing is lost on shared memory but what a peer that is stopped has no room for.
const ACK_TIMEOUT: u8 = 14;

/// Of a long send the first message is half a packet: the peer copies it while the rest is copied here, and shorter ones cost more than that gains.
pub(super) const TRANSFER_FIRST: u32 = 16 << 10;

/// A receive buffer's length, unless somebody says another: while a reader is in one half, the sender goes on in the other, and with 128 KiB, librdmacm's default, both wait for each other
/// most of the time.
pub(super) const RECV_BUFFER: u32 = 1 << 20;

/// Address space for the receive buffers of streams from one peer: of 256 that are as long as they are by default.
const AREA_BYTES: usize = 256 << 20;

/// Who is there, and has which port.
#[derive(Clone, Debug)]
pub struct Fabric(Arc<Rendezvous>);

/// Which process has an address.
#[derive(Debug)]
pub(super) struct Found {
    /// Its adapter.
    pub(super) gid: IpAddr,
    resolved: Resolved,
}

/// Joins, with an adapter that has no connections. `seed`: for numbers that nobody is to guess.
///
/// # Errors
/// [`AttachError`]: there is no shared memory to be had.
pub(super) fn attach<M: Memory + From<AreaPart>>(seed: u64) -> Result<(Plane<M>, Fabric), AttachError> {
    let settings = ringway_shm::Settings { ports: Ports::RdmaCm, area_bytes: AREA_BYTES, ..ringway_shm::Settings::default() };
    let (queues, rendezvous) = ringway_shm::attach(&settings)?;
    let fabric = Fabric(rendezvous);
    let config = NodeConfig {
        gid: Some(gid_of(fabric.0.member_ref().id())),
        mtu: Mtu::B32768,
        ack_timeout: ACK_TIMEOUT,
        // (As long as rsockets' datagrams are, with their headers.)
        tuning: Tuning {
            retries_for_ever: true,
            bytes_are_vouched: true,
            acknowledges_late: true,
            datagram_mtu: Mtu::B2048,
            ..Tuning::default()
        },
        ..NodeConfig::new(IpAddr::V6(Ipv6Addr::LOCALHOST))
    };
    let mut node = Node::new(config, seed);
    node.share_by(Box::new(fabric.clone()));
    Ok((SoftRoce::new(queues, node, Vouched::new(fabric.clone())), fabric))
}

/// A member's adapter has a link-local address of its number, which the rendezvous vouches for.
fn gid_of(id: u64) -> IpAddr {
    Ipv6Addr::from(0xfe80_u128 << 112 | u128::from(id)).into()
}

/// The member whose adapter has that address.
const fn id_of(gid: IpAddr) -> Option<u64> {
    match gid {
        IpAddr::V6(gid) => Some(gid.to_bits() as u64),
        IpAddr::V4(_) => None,
    }
}

impl roce::Neighbours for Fabric {
    fn neighbours(&self) -> Vec<(MacAddr, IpAddr)> {
        self.0.peers().into_iter().map(|peer| (peer.mac, gid_of(peer.id))).collect()
    }
}

impl<M: From<AreaPart>> roce::Sharing<M> for Fabric {
    fn share(&mut self, peer: IpAddr, qp: u32, region: &Region) -> Option<M> {
        let len = usize::try_from(region.len).ok()?;
        self.0.share(id_of(peer)?, region.key, qp, region.address, len).map(M::from)
    }

    fn place(&mut self, peer: IpAddr, qp: u32, key: u32, address: u64, bytes: &[u8]) -> bool {
        id_of(peer).is_some_and(|owner| self.0.write_shared(&RegionWrite { owner, qp, key, address, bytes }))
    }
}

impl Fabric {
    /// See [`super::Fabric::answer_questions`].
    pub(super) fn answer_questions(&self, answer: impl Fn(&str) -> String + Send + Sync + 'static) {
        self.0.set_control_handler(Box::new(answer));
    }

    /// See [`super::Fabric::have_dialogues`].
    pub(super) fn have_dialogues(&self, answers: Arc<dyn DialogueHandler>) {
        self.0.set_dialogue_handler(answers);
    }

    /// How many processes it talks to now, itself included where it does.
    pub(super) fn peers(&self) -> usize {
        self.0.peers().len()
    }

    /// Who has a port for datagrams, as far as is known already: nobody is asked.
    pub(super) fn known_datagrams(&self, at: SocketAddr) -> Option<Found> {
        self.found(self.0.search(Protocol::Udp, at).ok()?.found?)
    }

    /// How many processes were lost so far.
    pub(super) fn losses(&self) -> u64 {
        self.0.losses()
    }

    /// Whether that is still so.
    pub(super) fn still_holds(&self, found: &Found) -> bool {
        self.0.still_valid(&found.resolved)
    }

    fn found(&self, resolved: Resolved) -> Option<Found> {
        let peer = self.0.peers().into_iter().find(|peer| peer.mac == resolved.mac)?;
        Some(Found { gid: gid_of(peer.id), resolved })
    }

    /// Who has a port; none: nobody has. Takes up to half a second where somebody does not answer: no lock is to be held.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub(super) fn find(&self, protocol: Protocol, to: SocketAddr) -> Result<Option<Found>, ResolveError> {
        let resolved = self.0.resolve(protocol, to).inspect_err(|error| tracing::debug!("who has {to}: {error}"))?;
        Ok(resolved.and_then(|resolved| self.found(resolved)))
    }

    /// Lets the peer of a queue pair write to a region by itself, whose first byte is at `start`; if there is no place for one more, it writes by its queue pair.
    ///
    /// # Safety
    /// The program has promised the memory until [`Fabric::close_to_peer`], and until nobody [writes](Fabric::is_written_by_peer) there any more.
    pub(super) unsafe fn open_to_peer<M: Memory>(&self, plane: &Plane<M>, qp: u32, region: &Region, start: usize) {
        let Some(peer) = plane.node().hca().peer_of(qp).and_then(|(gid, _)| id_of(gid)) else { return };
        let Region { address, key, len } = *region;
        // SAFETY: the caller's promise.
        unsafe { self.0.publish_region(&PublishedRegion { key, peer, qp, address, len, start }) };
    }

    /// Ends that.
    pub(super) fn close_to_peer(&self, key: u32) {
        self.0.revoke_region(key);
    }

    /// Whether a peer is in the middle of a write to a region that was closed to it.
    pub(super) fn is_written_by_peer(&self, key: u32) -> bool {
        self.0.is_region_written(key)
    }

    /// Writes to a peer's memory at once, if it lets us, and if nothing that was posted before is overtaken.
    ///
    /// # Errors
    /// [`NotWritten`].
    pub(super) fn write<M: Memory>(&self, plane: &Plane<M>, target: &DirectTarget, bytes: &[u8]) -> Result<(), NotWritten> {
        let DirectTarget { qp, key, address, .. } = *target;
        let (gid, qp) = plane.caught_up_peer(qp).ok_or(NotWritten::Refused)?;
        let owner = id_of(gid).ok_or(NotWritten::Refused)?;
        self.0.write_region(&RegionWrite { owner, qp, key, address, bytes }).map_err(|error| match error {
            WriteError::Refused => NotWritten::Refused,
            WriteError::Fault => NotWritten::Fault,
        })
    }

    /// Takes a port of RDMA-CM's, so that others find it here.
    ///
    /// # Errors
    /// [`RuleError::Taken`]: another process of this user's, or a socket of this one, has it; else there is no room for one more.
    pub(super) fn claim<M: Memory>(plane: &mut Plane<M>, protocol: Protocol, at: SocketAddr) -> Result<RuleId, RuleError> {
        let rule = FlowRule::flow(protocol, at, None);
        let attached = plane.queues_mut().device().attach(&rule, Target::Queue(QueueId(0)))?;
        Ok(attached.rule)
    }

    /// Gives a port back.
    pub(super) fn give_up<M: Memory>(plane: &mut Plane<M>, rule: RuleId) {
        plane.queues_mut().device().detach(rule);
    }

    /// The descriptor to sleep on once the plane is armed.
    pub(super) fn wait_fd<M: Memory>(plane: &mut Plane<M>) -> RawFd {
        plane.queues_mut().wait_fd().unwrap_or(-1)
    }

    /// The descriptor that is readable when [`Fabric::service`] has work.
    pub(super) fn service_fd(&self) -> RawFd {
        self.0.epoll_fd()
    }

    /// Greets who comes, and notices who is gone.
    pub(super) fn service(&self) {
        self.0.service();
    }

    /// In a fork's child, which has none of it.
    pub(super) fn after_fork_in_child(&self) {
        self.0.after_fork_in_child();
    }
}
