//! The message plane that rsockets run on: shared memory's, an interface's (`xdp:eth0`), or a verbs device's, as RINGWAY_DEVICE says (`rxe:rxe0`: any RDMA device by its name).
//!
//! - `plane`: `Messages` and `Connections`, of whichever it is
//! - `shm`: shared memory's
//! - `xdp`: an interface's

mod plane;
mod shm;
mod xdp;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ringway_params::kind::Driver;
use ringway_rxe::{Adapter, OpenError, Settings, device_names};
pub use ringway_rxe::{CardMemory, Pages};
pub use ringway_shm::AreaPart;
use ringway_shm::{AttachError, DialogueHandler, ResolveError};
use ringway_stack::device::messages::{Connections as _, Memory, Region};
use ringway_stack::device::{Protocol, RuleError, RuleId};
use ringway_stack::offload::DeviceKind;
use ringway_stack::rsocket::{self, DirectTarget};

pub use self::plane::Plane;
pub use self::xdp::NotAttached;

/// What queue pairs may read and write, on any of the devices.
pub trait PlaneMemory: Memory + From<Vec<u8>> + From<AreaPart> + CardMemory {}

impl<M: Memory + From<Vec<u8>> + From<AreaPart> + CardMemory> PlaneMemory for M {}

/// Who is there, and has which port.
#[derive(Clone, Debug)]
pub struct Fabric(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Shm(shm::Fabric),
    /// Peers are found by connection management's own packets.
    Xdp(xdp::Fabric),
    /// Peers are found by librdmacm, as a connection begins.
    Verbs,
}

/// How long a peer on a verbs device may take to answer, where TCP would do as well.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Who has an address.
#[derive(Debug)]
pub struct Found(Option<shm::Found>);

impl Found {
    /// The adapter, where it is known before a connection begins.
    pub fn gid(&self) -> Option<IpAddr> {
        self.0.as_ref().map(|found| found.gid)
    }
}

/// Why bytes are not where they were to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotWritten {
    /// The queue pair is to carry them: nothing was written.
    Refused,
    /// The peer has let its program's memory go that it had mapped.
    Fault,
}

/// Why there is no message plane.
#[derive(Debug, thiserror::Error)]
pub enum NoPlane {
    /// There is no shared memory to be had.
    #[error("no shared memory: {0}")]
    Shm(#[from] AttachError),
    /// The interface that RINGWAY_DEVICE names is not to be had.
    #[error(transparent)]
    Xdp(#[from] NotAttached),
    /// The RDMA device that RINGWAY_DEVICE names is not to be had.
    #[error(transparent)]
    Verbs(#[from] OpenError),
}

/// Joins, with an adapter that has no connections: that of the device, if `device`, which is RINGWAY_DEVICE's value, names one. `broker`: where one listens, if one does, by which an
/// interface is had without privileges. `seed`: for numbers that nobody is to guess.
///
/// # Errors
/// [`NoPlane`].
pub fn attach<M: PlaneMemory>(seed: u64, device: &str, broker: &Path) -> Result<(Plane<M>, Fabric), NoPlane> {
    match ringway_params::kind::rsocket_device(device) {
        Some(named) if named.driver == Driver::Xdp => {
            let (plane, fabric) = xdp::attach(seed, &named, broker)?;
            Ok((Plane::Xdp(Box::new(plane)), Fabric(Kind::Xdp(fabric))))
        }
        Some(named) => Ok((Plane::Verbs(Box::new(Adapter::open(Settings::new(named.name))?)), Fabric(Kind::Verbs))),
        None => {
            if ringway_params::kind::interfaces(device).is_some() {
                tracing::warn!("rsockets have one device, and {device} names several: they are on shared memory");
            }
            let (plane, fabric) = shm::attach(seed)?;
            Ok((Plane::Shm(Box::new(plane)), Fabric(Kind::Shm(fabric))))
        }
    }
}

/// Whether `device`, which is RINGWAY_DEVICE's value, has rsockets on a network, and not on shared memory.
pub fn is_on_network(device: &str) -> bool {
    ringway_params::kind::rsocket_device(device).is_some()
}

/// Names of the devices that a message plane can be had on.
///
/// # Errors
/// None may be looked at: what is missing.
pub fn verbs_devices() -> Result<Vec<String>, String> {
    device_names().map_err(|error| error.to_string())
}

impl<M: PlaneMemory> Plane<M> {
    /// A receive buffer's length, unless somebody says another.
    pub const fn recv_buffer(&self) -> u32 {
        match self {
            Self::Shm(_) => shm::RECV_BUFFER,
            Self::Xdp(_) => xdp::RECV_BUFFER,
            // (As librdmacm has it: it is locked.)
            Self::Verbs(_) => 1 << 17,
        }
    }

    /// The length of a long send's first message.
    pub const fn transfer_first(&self) -> u32 {
        match self {
            Self::Shm(_) => shm::TRANSFER_FIRST,
            Self::Xdp(_) => rsocket::config::TRANSFER_FIRST,
            // (Each message is a system call where the kernel is the device.)
            Self::Verbs(_) => rsocket::config::TRANSFER_MAX,
        }
    }

    /// Whether what it has to tell by itself may wait while its program makes no call: it has no timers of ours, and its packets go without us.
    pub const fn is_patient(&self) -> bool {
        matches!(self, Self::Verbs(_))
    }

    /// How often a stream asks whether its peer is there, whatever its program says; `None`: the device tells of peers that are gone.
    pub const fn keepalive(&self) -> Option<Duration> {
        match self {
            Self::Shm(_) | Self::Verbs(_) => None,
            Self::Xdp(_) => Some(xdp::KEEPALIVE),
        }
    }

    /// Says soon that nobody answers, where that would take long: about a minute, as a verbs device's connection management has it. (On an interface it is [two
    /// seconds](ringway_stack::roce) whoever asks.)
    pub const fn give_up_soon(&mut self) {
        if let Self::Verbs(adapter) = self {
            adapter.set_answer_within(ANSWER_WITHIN);
        }
    }

    /// Whether a peer of datagrams that is gone is noticed.
    pub const fn tells_of_peers(&self) -> bool {
        matches!(self, Self::Shm(_))
    }

    /// What kind of device it is.
    pub const fn kind(&self) -> DeviceKind {
        match self {
            Self::Shm(_) => DeviceKind::Shm,
            Self::Xdp(_) => DeviceKind::Xdp,
            Self::Verbs(_) => DeviceKind::Rxe,
        }
    }
}

impl Fabric {
    /// From now on `answer` says what `ringway stats` and its kin hear of this process. It is called by whoever calls [`Fabric::service`]. (On a verbs device nobody asks.)
    pub fn answer_questions(&self, answer: impl Fn(&str) -> String + Send + Sync + 'static) {
        if let Kind::Shm(fabric) = &self.0 {
            fabric.answer_questions(answer);
        }
    }

    /// From now on `answers` has dialogues with other processes, such as `ringway capture`, by whoever calls [`Fabric::service`]. (On a verbs device there are none.)
    pub fn have_dialogues(&self, answers: Arc<dyn DialogueHandler>) {
        if let Kind::Shm(fabric) = &self.0 {
            fabric.have_dialogues(answers);
        }
    }

    /// How many processes of this machine it talks to now, itself included where it does.
    pub fn peers(&self) -> usize {
        match &self.0 {
            Kind::Shm(fabric) => fabric.peers(),
            Kind::Xdp(_) | Kind::Verbs => 0,
        }
    }

    /// Whether all peers are processes of this machine. If not, any address may be one.
    pub const fn is_this_machine(&self) -> bool {
        matches!(self.0, Kind::Shm(_))
    }

    /// Whether an address of another machine's may be asked for an rsocket, by who has TCP for it as well: the device leads there.
    pub fn may_ask<M: PlaneMemory>(&self, plane: &Plane<M>, to: IpAddr) -> bool {
        match &self.0 {
            Kind::Shm(_) => false,
            Kind::Xdp(of) => of.leads_to(to),
            Kind::Verbs => plane.leads_to(None, SocketAddr::new(to, 0)),
        }
    }

    /// Who has a port for connections; none: nobody has. Takes up to half a second where somebody does not answer: no lock is to be held.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub fn resolve(&self, to: SocketAddr) -> Result<Option<Found>, ResolveError> {
        self.find(Protocol::Tcp, to)
    }

    /// The same of a port for datagrams.
    ///
    /// # Errors
    /// As [`Fabric::resolve`].
    pub fn resolve_datagrams(&self, to: SocketAddr) -> Result<Option<Found>, ResolveError> {
        self.find(Protocol::Udp, to)
    }

    fn find(&self, protocol: Protocol, to: SocketAddr) -> Result<Option<Found>, ResolveError> {
        match &self.0 {
            Kind::Shm(of) => Ok(of.find(protocol, to)?.map(|found| Found(Some(found)))),
            Kind::Xdp(_) | Kind::Verbs => Ok(Some(Found(None))),
        }
    }

    /// Who has a port for datagrams, as far as is known already: nobody is asked.
    pub fn known_datagrams(&self, at: SocketAddr) -> Option<Found> {
        match &self.0 {
            Kind::Shm(of) => of.known_datagrams(at).map(|found| Found(Some(found))),
            Kind::Xdp(_) | Kind::Verbs => Some(Found(None)),
        }
    }

    /// How many processes were lost so far.
    pub fn losses(&self) -> u64 {
        match &self.0 {
            Kind::Shm(of) => of.losses(),
            Kind::Xdp(_) | Kind::Verbs => 0,
        }
    }

    /// Whether that is still so.
    pub fn still_holds(&self, found: &Found) -> bool {
        match (&self.0, &found.0) {
            (Kind::Shm(of), Some(found)) => of.still_holds(found),
            _ => true,
        }
    }

    /// Lets the peer of a queue pair write to a region by itself, whose first byte is at `start`; if there is no place for one more, it writes by its queue pair.
    ///
    /// # Safety
    /// The program has promised the memory until [`Fabric::close_to_peer`], and until nobody [writes](Fabric::is_written_by_peer) there any more.
    pub unsafe fn open_to_peer<M: PlaneMemory>(&self, plane: &Plane<M>, qp: u32, region: &Region, start: usize) {
        if let (Kind::Shm(of), Plane::Shm(plane)) = (&self.0, plane) {
            // SAFETY: the caller's promise.
            unsafe { of.open_to_peer(plane, qp, region, start) };
        }
    }

    /// Ends that.
    pub fn close_to_peer(&self, key: u32) {
        if let Kind::Shm(of) = &self.0 {
            of.close_to_peer(key);
        }
    }

    /// Whether a peer is in the middle of a write to a region that was closed to it.
    pub fn is_written_by_peer(&self, key: u32) -> bool {
        matches!(&self.0, Kind::Shm(of) if of.is_written_by_peer(key))
    }

    /// Writes to a peer's memory at once, if it lets us, and if nothing that was posted before is overtaken.
    ///
    /// # Errors
    /// [`NotWritten`].
    pub fn write<M: PlaneMemory>(&self, plane: &Plane<M>, target: &DirectTarget, bytes: &[u8]) -> Result<(), NotWritten> {
        match (&self.0, plane) {
            (Kind::Shm(of), Plane::Shm(plane)) => of.write(plane, target, bytes),
            _ => Err(NotWritten::Refused),
        }
    }

    /// Takes a port of RDMA-CM's, so that others find it here.
    ///
    /// # Errors
    /// [`RuleError::Taken`]: another process, or a socket of this one, has it; else there is no room for one more.
    pub fn claim<M: PlaneMemory>(plane: &mut Plane<M>, protocol: Protocol, at: SocketAddr) -> Result<RuleId, RuleError> {
        match plane {
            Plane::Shm(plane) => shm::Fabric::claim(plane, protocol, at),
            Plane::Xdp(plane) => plane.claim(protocol, at),
            Plane::Verbs(adapter) => adapter.claim(protocol, at),
        }
    }

    /// Gives a port back.
    pub fn give_up<M: PlaneMemory>(plane: &mut Plane<M>, rule: RuleId) {
        match plane {
            Plane::Shm(plane) => shm::Fabric::give_up(plane, rule),
            Plane::Xdp(plane) => plane.give_up(rule),
            Plane::Verbs(adapter) => adapter.give_up(rule),
        }
    }

    /// The descriptor to sleep on once the plane is armed.
    pub fn wait_fd<M: PlaneMemory>(plane: &mut Plane<M>) -> RawFd {
        match plane {
            Plane::Shm(plane) => shm::Fabric::wait_fd(plane),
            Plane::Xdp(plane) => plane.wait_fd(),
            Plane::Verbs(adapter) => adapter.wait_fd(),
        }
    }

    /// The descriptor that is readable when [`Fabric::service`] has work; -1: it never has.
    pub fn service_fd(&self) -> RawFd {
        match &self.0 {
            Kind::Shm(of) => of.service_fd(),
            Kind::Xdp(of) => of.service_fd(),
            Kind::Verbs => -1,
        }
    }

    /// See [`Plane::is_patient`].
    pub const fn is_patient(&self) -> bool {
        matches!(self.0, Kind::Verbs)
    }

    /// Greets who comes, and notices who is gone, or what the kernel says of the network.
    pub fn service(&self) {
        match &self.0 {
            Kind::Shm(of) => of.service(),
            Kind::Xdp(of) => of.service(),
            Kind::Verbs => {}
        }
    }

    /// In a fork's child, which has none of it.
    pub fn after_fork_in_child(&self) {
        match &self.0 {
            Kind::Shm(of) => of.after_fork_in_child(),
            Kind::Xdp(_) | Kind::Verbs => ringway_host::fd::close_all_in_child(),
        }
    }
}
