//! The devices that rsockets run on: shared memory alone so far.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

use ringway_host::Addresses;
use ringway_preload::Errno;
use ringway_shm::{Ports, PublishedRegion, RegionWrite, Rendezvous, ResolveError, Resolved, ShmQueues, WriteError};
use ringway_stack::device::messages::Region;
use ringway_stack::device::{Device as _, FlowRule, MacAddr, Protocol, QueueId, Queues as _, RuleError, RuleId, Target};
use ringway_stack::roce::{self, Node, NodeConfig, SoftRoce, Tuning, qp::Mtu};
use ringway_stack::rsocket::DirectTarget;

use crate::memory::Bytes;

/// The message plane.
pub(crate) type Plane = SoftRoce<ShmQueues, Bytes, Fabric>;

/// How long to wait for an acknowledgment: 4.096 us * 2^v, which is 67 ms. Nothing is lost on shared memory but what a peer that is stopped has no room for.
const ACK_TIMEOUT: u8 = 14;

/// Of a long send the first message is half a packet: the peer copies it while the rest is copied here, and shorter ones cost more than that gains.
pub(crate) const TRANSFER_FIRST: u32 = 16 << 10;

/// Who is there, and has which port.
#[derive(Clone)]
pub(crate) struct Fabric(Arc<Rendezvous>);

/// Which process has an address.
pub(crate) struct Found {
    /// Its adapter.
    pub(crate) gid: IpAddr,
    resolved: Resolved,
}

/// Why bytes are not where they were to be written.
pub(crate) enum NotWritten {
    /// The queue pair is to carry them: nothing was written.
    Refused,
    /// The peer has let its program's memory go that it had mapped.
    Fault,
}

/// Which addresses are this machine's.
static ADDRESSES: Addresses = Addresses::new();

/// Joins, with an adapter that has no connections. `seed`: for numbers that nobody is to guess.
///
/// # Errors
/// ENODEV: there is no shared memory to be had; it was logged.
pub(crate) fn attach(seed: u64) -> Result<(Plane, Fabric), Errno> {
    let settings = ringway_shm::Settings { ports: Ports::RdmaCm, is_listed: false, ..ringway_shm::Settings::default() };
    let (queues, rendezvous) = ringway_shm::attach(&settings).map_err(|error| {
        tracing::warn!("no shared memory for rsockets: {error}");
        Errno(libc::ENODEV)
    })?;
    let fabric = Fabric(rendezvous);
    let config = NodeConfig {
        gid: Some(gid_of(fabric.0.member_ref().id())),
        mtu: Mtu::B32768,
        ack_timeout: ACK_TIMEOUT,
        // (As long as rsockets' datagrams are, with their headers.)
        tuning: Tuning { retries_for_ever: true, bytes_are_vouched: true, datagram_mtu: Mtu::B2048, ..Tuning::default() },
        ..NodeConfig::new(IpAddr::V6(Ipv6Addr::LOCALHOST))
    };
    Ok((SoftRoce::new(queues, Node::new(config, seed), fabric.clone()), fabric))
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

/// Whether connections to `address` stay on this machine.
pub(crate) fn is_ours(address: IpAddr) -> bool {
    ADDRESSES.contains(address)
}

/// Whether a descriptor is a device's.
pub(crate) fn is_internal(fd: RawFd) -> bool {
    ringway_shm::is_internal(fd)
}

impl roce::Neighbours for Fabric {
    fn neighbours(&self) -> Vec<(MacAddr, IpAddr)> {
        self.0.peers().into_iter().map(|peer| (peer.mac, gid_of(peer.id))).collect()
    }
}

impl Fabric {
    /// Who has a port for connections. Takes up to half a second where somebody does not answer: no lock is to be held.
    ///
    /// # Errors
    /// ECONNREFUSED: nobody of this user has; ETIMEDOUT: who has does not answer; EHOSTUNREACH: the system is at fault, and ENOMEM, if it lacks room.
    pub(crate) fn resolve(&self, to: SocketAddr) -> Result<IpAddr, Errno> {
        self.find(Protocol::Tcp, to).map(|found| found.gid)
    }

    /// The same of a port for datagrams.
    ///
    /// # Errors
    /// As [`Fabric::resolve`].
    pub(crate) fn resolve_datagrams(&self, to: SocketAddr) -> Result<Found, Errno> {
        self.find(Protocol::Udp, to)
    }

    /// Who has a port for datagrams, as far as is known already: nobody is asked.
    pub(crate) fn known_datagrams(&self, at: SocketAddr) -> Option<Found> {
        self.found(self.0.search(Protocol::Udp, at).ok()?.found?)
    }

    /// How many processes were lost so far.
    pub(crate) fn losses(&self) -> u64 {
        self.0.losses()
    }

    /// Whether that is still so.
    pub(crate) fn still_holds(&self, found: &Found) -> bool {
        self.0.still_valid(&found.resolved)
    }

    fn found(&self, resolved: Resolved) -> Option<Found> {
        let peer = self.0.peers().into_iter().find(|peer| peer.mac == resolved.mac)?;
        Some(Found { gid: gid_of(peer.id), resolved })
    }

    fn find(&self, protocol: Protocol, to: SocketAddr) -> Result<Found, Errno> {
        let found = self.0.resolve(protocol, to).map_err(|error| {
            tracing::debug!("who has {to}: {error}");
            Errno(match error {
                ResolveError::Silent => libc::ETIMEDOUT,
                ResolveError::Full => libc::ENOMEM,
                ResolveError::OtherUser { .. } | ResolveError::Unverified => libc::ECONNREFUSED,
                _ => libc::EHOSTUNREACH,
            })
        })?;
        found.and_then(|resolved| self.found(resolved)).ok_or(Errno(libc::ECONNREFUSED))
    }

    /// Lets the peer of a queue pair write to a region by itself, whose first byte is at `start`; if there is no place for one more, it writes by its queue pair.
    ///
    /// # Safety
    /// The program has promised the memory until [`Fabric::close_to_peer`], and until nobody [writes](Fabric::is_written_by_peer) there any more.
    pub(crate) unsafe fn open_to_peer(&self, plane: &Plane, qp: u32, region: &Region, start: usize) {
        let Some(peer) = plane.node().hca().peer_of(qp).and_then(|(gid, _)| id_of(gid)) else { return };
        let Region { address, key, len } = *region;
        // SAFETY: the caller's promise.
        unsafe { self.0.publish_region(&PublishedRegion { key, peer, qp, address, len, start }) };
    }

    /// Ends that.
    pub(crate) fn close_to_peer(&self, key: u32) {
        self.0.revoke_region(key);
    }

    /// Whether a peer is in the middle of a write to a region that was closed to it.
    pub(crate) fn is_written_by_peer(&self, key: u32) -> bool {
        self.0.is_region_written(key)
    }

    /// Writes to a peer's memory at once, if it lets us, and if nothing that was posted before is overtaken.
    pub(crate) fn write(&self, plane: &Plane, target: &DirectTarget, bytes: &[u8]) -> Result<(), NotWritten> {
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
    /// EADDRINUSE: another process of this user's, or a socket of this one, has it; ENOMEM: no room for one more.
    pub(crate) fn claim(plane: &mut Plane, protocol: Protocol, at: SocketAddr) -> Result<RuleId, Errno> {
        let rule = FlowRule::flow(protocol, at, None);
        let attached = plane.queues_mut().device().attach(&rule, Target::Queue(QueueId(0)));
        attached.map(|attached| attached.rule).map_err(|error| match error {
            RuleError::Taken => Errno(libc::EADDRINUSE),
            _ => Errno(libc::ENOMEM),
        })
    }

    /// Gives a port back.
    pub(crate) fn give_up(plane: &mut Plane, rule: RuleId) {
        plane.queues_mut().device().detach(rule);
    }

    /// The descriptor to sleep on once the plane is armed.
    pub(crate) fn wait_fd(plane: &mut Plane) -> RawFd {
        plane.queues_mut().wait_fd().unwrap_or(-1)
    }

    /// The descriptor that is readable when [`Fabric::service`] has work.
    pub(crate) fn service_fd(&self) -> RawFd {
        self.0.epoll_fd()
    }

    /// Greets who comes, and notices who is gone.
    pub(crate) fn service(&self) {
        self.0.service();
    }

    /// In a fork's child, which has none of it.
    pub(crate) fn after_fork_in_child(&self) {
        self.0.after_fork_in_child();
    }
}
