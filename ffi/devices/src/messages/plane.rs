//! The message plane, of whichever device it is. Each call is one match: below that, all is of one device.

use std::net::{IpAddr, SocketAddr};

use ringway_rxe::Adapter;
use ringway_stack::Instant;
use ringway_stack::device::messages::{
    Access, Arm, CmError, Completion, ConnectionEvent, ConnectionId, Connections, CreateError, MessageLimits, Messages, Modify,
    ModifyError, Mtu, NoWay, Path, Pd, PostError, QpConfig, Region, RegisterError, SendWr, Sge, State,
};
use ringway_stack::device::{MacAddr, Queues as _, Wake};

use ringway_stack::roce::{Tap, Traffic};

use super::{PlaneMemory, shm, xdp};

/// See the module's documentation. `M`: what its queue pairs may read and write.
pub enum Plane<M: PlaneMemory> {
    /// On shared memory.
    Shm(Box<shm::Plane<M>>),
    /// On an interface.
    Xdp(Box<xdp::Plane<M>>),
    /// On a verbs device.
    Verbs(Box<Adapter<M>>),
}

impl<M: PlaneMemory> Plane<M> {
    /// Takes what came and does what is due. How much that was. What follows is sent by [`Plane::transmit`].
    pub fn take(&mut self, now: Instant) -> usize {
        match self {
            Self::Shm(plane) => plane.take(now),
            Self::Xdp(plane) => plane.take(now),
            Self::Verbs(adapter) => adapter.poll(now),
        }
    }

    /// Whether there may be something to send.
    pub fn may_transmit(&self) -> bool {
        match self {
            Self::Shm(plane) => plane.may_transmit(),
            Self::Xdp(plane) => plane.may_transmit(),
            Self::Verbs(_) => false,
        }
    }

    /// The same as [`Plane::may_transmit`] but for acknowledgments that may wait.
    pub fn is_urgent(&self) -> bool {
        match self {
            Self::Shm(plane) => plane.is_urgent(),
            Self::Xdp(_) | Self::Verbs(_) => self.may_transmit(),
        }
    }

    /// Whether [`Plane::take`] has anything to do: a device's completions are taken from their queues without it, and to ask for more is a system call.
    pub fn is_due(&self, now: Instant) -> bool {
        match self {
            Self::Shm(_) | Self::Xdp(_) => true,
            Self::Verbs(adapter) => adapter.is_due(now),
        }
    }

    /// Sends what there is to send. (A device does so by itself.)
    pub fn transmit(&mut self, now: Instant) {
        match self {
            Self::Shm(plane) => plane.transmit(now),
            Self::Xdp(plane) => plane.transmit(now),
            Self::Verbs(_) => {}
        }
    }

    /// The same, but for acknowledgments that may wait for a moment yet: whoever polls goes on doing so, or calls [`Plane::transmit`] before it does not.
    #[inline]
    pub fn transmit_due(&mut self, now: Instant) {
        match self {
            Self::Shm(plane) => plane.transmit_due(now),
            Self::Xdp(_) | Self::Verbs(_) => self.transmit(now),
        }
    }

    /// Whether there is anything to take; `None`: to ask that costs as much as to take it.
    #[inline]
    pub fn is_ready(&self) -> Option<bool> {
        match self {
            Self::Shm(plane) => Some(plane.is_ready()),
            Self::Xdp(_) | Self::Verbs(_) => None,
        }
    }

    /// Makes what comes next wake whoever sleeps; `false`: there is something to poll for now.
    pub fn arm(&mut self, wake: Wake) -> bool {
        match self {
            Self::Shm(plane) => plane.arm(wake),
            Self::Xdp(plane) => plane.roce_mut().arm(wake),
            Self::Verbs(adapter) => adapter.arm(wake),
        }
    }

    /// Who slept on the descriptor of [`Fabric::wait_fd`](super::Fabric::wait_fd) found it readable.
    pub fn on_woken(&mut self) {
        if let Self::Verbs(adapter) = self {
            adapter.on_woken();
        }
    }

    /// Ends that. (What a device was asked for comes once, and is taken then.)
    pub fn disarm(&mut self) {
        match self {
            Self::Shm(plane) => plane.disarm(),
            Self::Xdp(plane) => plane.roce_mut().disarm(),
            Self::Verbs(_) => {}
        }
    }

    /// When to poll at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Shm(plane) => plane.deadline(),
            Self::Xdp(plane) => plane.roce().deadline(),
            Self::Verbs(adapter) => adapter.deadline(),
        }
    }

    /// Shows each frame to `tap` from now on, or to nobody: see [`ringway_stack::roce::SoftRoce::set_tap`]. A verbs device shows nobody its frames, and `tap` comes back.
    pub fn set_tap(&mut self, tap: Option<Box<Tap>>) -> Option<Box<Tap>> {
        match self {
            Self::Shm(plane) => plane.set_tap(tap),
            Self::Xdp(plane) => plane.roce_mut().set_tap(tap),
            Self::Verbs(_) => tap,
        }
    }

    /// What came and went, of packets that are not a verbs device's.
    pub const fn traffic(&self) -> Traffic {
        match self {
            Self::Shm(plane) => plane.traffic(),
            Self::Xdp(plane) => plane.roce().traffic(),
            Self::Verbs(_) => Traffic { received: 0, sent: 0, lost: 0, strange: 0 },
        }
    }

    /// Its Ethernet address, if it is known.
    pub fn mac(&mut self) -> Option<MacAddr> {
        match self {
            Self::Shm(plane) => Some(plane.queues_mut().mac()),
            Self::Xdp(plane) => Some(plane.roce_mut().queues_mut().mac()),
            Self::Verbs(_) => None,
        }
    }

    /// The next connection to `to` goes to this adapter.
    pub fn resolve(&mut self, to: SocketAddr, gid: IpAddr) {
        if let Self::Shm(plane) = self {
            plane.node_mut().resolve(to, gid);
        }
    }

    /// Datagrams to `to` go to this adapter; `None`: nobody knows any more.
    pub fn resolve_datagrams(&mut self, to: SocketAddr, gid: Option<IpAddr>) {
        if let Self::Shm(plane) = self {
            plane.node_mut().resolve_datagrams(to, gid);
        }
    }
}

macro_rules! by_device {
    (mut $this:expr, $of:ident => $call:expr) => {
        match $this {
            Self::Shm(plane) => {
                let $of = plane.node_mut();
                $call
            }
            Self::Xdp(plane) => {
                let $of = plane.node_mut();
                $call
            }
            Self::Verbs($of) => $call,
        }
    };
    ($this:expr, $of:ident => $call:expr) => {
        match $this {
            Self::Shm(plane) => {
                let $of = plane.node();
                $call
            }
            Self::Xdp(plane) => {
                let $of = plane.node();
                $call
            }
            Self::Verbs($of) => $call,
        }
    };
}

impl<M: PlaneMemory> Messages for Plane<M> {
    type Memory = M;

    fn message_limits(&self) -> MessageLimits {
        by_device!(self, of => of.message_limits())
    }

    fn alloc_pd(&mut self) -> Pd {
        by_device!(mut self, of => of.alloc_pd())
    }

    fn allocate(&mut self, len: usize) -> Result<M, RegisterError> {
        by_device!(mut self, of => of.allocate(len))
    }

    fn register(&mut self, pd: Pd, memory: M, access: Access) -> Result<Region, RegisterError> {
        by_device!(mut self, of => of.register(pd, memory, access))
    }

    fn deregister(&mut self, key: u32) -> Option<M> {
        by_device!(mut self, of => of.deregister(key))
    }

    fn memory(&self, key: u32) -> Option<&M> {
        by_device!(self, of => of.memory(key))
    }

    fn memory_mut(&mut self, key: u32) -> Option<&mut M> {
        by_device!(mut self, of => of.memory_mut(key))
    }

    fn create_cq(&mut self, depth: usize) -> Result<u32, CreateError> {
        by_device!(mut self, of => of.create_cq(depth))
    }

    fn destroy_cq(&mut self, cq: u32) -> Result<(), CreateError> {
        by_device!(mut self, of => of.destroy_cq(cq))
    }

    #[inline(always)]
    fn poll_cq(&mut self, cq: u32) -> Option<Completion> {
        by_device!(mut self, of => of.poll_cq(cq))
    }

    fn arm_cq(&mut self, cq: u32, arm: Arm) {
        by_device!(mut self, of => of.arm_cq(cq, arm));
    }

    fn take_cq_event(&mut self, cq: u32) -> bool {
        by_device!(mut self, of => of.take_cq_event(cq))
    }

    fn create_qp(&mut self, config: QpConfig) -> Result<u32, CreateError> {
        by_device!(mut self, of => of.create_qp(config))
    }

    fn destroy_qp(&mut self, qp: u32) -> Result<(), CreateError> {
        match self {
            // (It leaves its groups.)
            Self::Xdp(plane) => plane.destroy_qp(qp),
            Self::Shm(plane) => plane.node_mut().destroy_qp(qp),
            Self::Verbs(adapter) => adapter.destroy_qp(qp),
        }
    }

    fn modify_qp(&mut self, now: Instant, qp: u32, modify: &Modify) -> Result<(), ModifyError> {
        by_device!(mut self, of => of.modify_qp(now, qp, modify))
    }

    fn qp_state(&self, qp: u32) -> Option<State> {
        by_device!(self, of => of.qp_state(qp))
    }

    fn post_send(&mut self, now: Instant, qp: u32, wr: &SendWr<'_>) -> Result<(), PostError> {
        match self {
            // (Sent at once, if nothing is in its way.)
            Self::Shm(plane) => plane.post_send(now, qp, wr),
            Self::Xdp(plane) => plane.roce_mut().post_send(now, qp, wr),
            Self::Verbs(adapter) => adapter.post_send(now, qp, wr),
        }
    }

    fn post_recv(&mut self, now: Instant, qp: u32, id: u64, sges: &[Sge]) -> Result<(), PostError> {
        by_device!(mut self, of => of.post_recv(now, qp, id, sges))
    }

    fn share(&mut self, qp: u32, region: &Region) -> bool {
        by_device!(mut self, of => of.share(qp, region))
    }

    fn place(&mut self, qp: u32, key: u32, address: u64, bytes: &[u8]) -> bool {
        by_device!(mut self, of => of.place(qp, key, address, bytes))
    }
}

impl<M: PlaneMemory> Connections for Plane<M> {
    fn path(&self, from: Option<IpAddr>, to: IpAddr) -> Option<(Path, Mtu)> {
        by_device!(self, of => of.path(from, to))
    }

    fn datagram_path(&self, from: Option<IpAddr>, to: SocketAddr) -> Option<(Path, Mtu, IpAddr)> {
        by_device!(self, of => of.datagram_path(from, to))
    }

    fn no_way(&self, to: IpAddr) -> NoWay {
        by_device!(self, of => of.no_way(to))
    }

    fn leads_to(&self, from: Option<IpAddr>, to: SocketAddr) -> bool {
        match self {
            // (Who is there is asked by address, before.)
            Self::Shm(_) => true,
            Self::Xdp(plane) => plane.node().leads_to(from, to),
            Self::Verbs(adapter) => adapter.leads_to(from, to),
        }
    }

    fn listen(&mut self, at: SocketAddr, backlog: usize) -> Result<(), CmError> {
        by_device!(mut self, of => of.listen(at, backlog))
    }

    fn unlisten(&mut self, port: u16) {
        by_device!(mut self, of => of.unlisten(port));
    }

    fn connect(&mut self, now: Instant, qp: u32, from: SocketAddr, to: SocketAddr, private_data: &[u8]) -> Result<ConnectionId, CmError> {
        by_device!(mut self, of => of.connect(now, qp, from, to, private_data))
    }

    fn accept(&mut self, now: Instant, id: ConnectionId, qp: u32, private_data: &[u8]) -> Result<(), CmError> {
        by_device!(mut self, of => of.accept(now, id, qp, private_data))
    }

    fn reject(&mut self, now: Instant, id: ConnectionId) {
        by_device!(mut self, of => of.reject(now, id));
    }

    fn on_communication(&mut self, id: ConnectionId) {
        by_device!(mut self, of => of.on_communication(id));
    }

    fn destroy(&mut self, now: Instant, id: ConnectionId) {
        by_device!(mut self, of => of.destroy(now, id));
    }

    fn group_path(&self, from: Option<IpAddr>, group: IpAddr) -> Result<(Path, Mtu), CmError> {
        match self {
            Self::Xdp(plane) => plane.group_path(from, group),
            Self::Shm(plane) => plane.node().group_path(from, group),
            Self::Verbs(adapter) => adapter.group_path(from, group),
        }
    }

    fn join(&mut self, qp: u32, group: IpAddr) -> Result<(), CmError> {
        match self {
            Self::Xdp(plane) => plane.join(qp, group),
            Self::Shm(plane) => plane.node_mut().join(qp, group),
            Self::Verbs(adapter) => adapter.join(qp, group),
        }
    }

    fn leave(&mut self, qp: u32, group: IpAddr) -> Result<(), CmError> {
        match self {
            Self::Xdp(plane) => plane.leave(qp, group),
            Self::Shm(plane) => plane.node_mut().leave(qp, group),
            Self::Verbs(adapter) => adapter.leave(qp, group),
        }
    }

    fn local_name(&self, id: ConnectionId) -> Option<SocketAddr> {
        by_device!(self, of => of.local_name(id))
    }

    fn poll_connection(&mut self) -> Option<(ConnectionId, ConnectionEvent)> {
        by_device!(mut self, of => of.poll_connection())
    }
}
