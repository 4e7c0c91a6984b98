//! The message plane that rsockets run on: shared memory's, or a verbs device's, as RINGWAY_DEVICE says (`rxe:rxe0`: any RDMA device by its name).
//!
//! - `plane`: `Messages` and `Connections`, of whichever it is
//! - `shm`: shared memory's

mod plane;
mod shm;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::Arc;

use ringway_rxe::{Adapter, OpenError, Settings, device_names};
pub use ringway_rxe::{CardMemory, Pages};
pub use ringway_shm::AreaPart;
use ringway_shm::{AttachError, DialogueHandler, ResolveError};
use ringway_stack::device::messages::{Memory, Region};
use ringway_stack::device::{Protocol, RuleError, RuleId};
use ringway_stack::rsocket::{self, DirectTarget};

pub use self::plane::Plane;

/// What queue pairs may read and write, on any of the devices.
pub trait PlaneMemory: Memory + From<Vec<u8>> + From<AreaPart> + CardMemory {}

impl<M: Memory + From<Vec<u8>> + From<AreaPart> + CardMemory> PlaneMemory for M {}

/// Who is there, and has which port.
#[derive(Clone, Debug)]
pub struct Fabric(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Shm(shm::Fabric),
    /// Peers are found by librdmacm, as a connection begins.
    Verbs,
}

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
    /// The device that RINGWAY_DEVICE names is not to be had.
    #[error(transparent)]
    Verbs(#[from] OpenError),
}

/// Joins, with an adapter that has no connections: that of a verbs device, if `device`, which is RINGWAY_DEVICE's value, names one. `seed`: for numbers that nobody
/// is to guess.
///
/// # Errors
/// [`NoPlane`].
pub fn attach<M: PlaneMemory>(seed: u64, device: &str) -> Result<(Plane<M>, Fabric), NoPlane> {
    if let Some(name) = ringway_params::kind::verbs_device(device) {
        return Ok((Plane::Verbs(Box::new(Adapter::open(Settings::new(name))?)), Fabric(Kind::Verbs)));
    }
    let (plane, fabric) = shm::attach(seed)?;
    Ok((Plane::Shm(Box::new(plane)), Fabric(Kind::Shm(fabric))))
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
            // (As librdmacm has it: it is locked.)
            Self::Verbs(_) => 1 << 17,
        }
    }

    /// The length of a long send's first message.
    pub const fn transfer_first(&self) -> u32 {
        match self {
            Self::Shm(_) => shm::TRANSFER_FIRST,
            Self::Verbs(_) => rsocket::config::TRANSFER_FIRST,
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
            Kind::Verbs => 0,
        }
    }

    /// Whether all peers are processes of this machine. If not, any address may be one.
    pub const fn is_this_machine(&self) -> bool {
        matches!(self.0, Kind::Shm(_))
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
            Kind::Verbs => Ok(Some(Found(None))),
        }
    }

    /// Who has a port for datagrams, as far as is known already: nobody is asked.
    pub fn known_datagrams(&self, at: SocketAddr) -> Option<Found> {
        match &self.0 {
            Kind::Shm(of) => of.known_datagrams(at).map(|found| Found(Some(found))),
            Kind::Verbs => Some(Found(None)),
        }
    }

    /// How many processes were lost so far.
    pub fn losses(&self) -> u64 {
        match &self.0 {
            Kind::Shm(of) => of.losses(),
            Kind::Verbs => 0,
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
            Plane::Verbs(adapter) => adapter.claim(protocol, at),
        }
    }

    /// Gives a port back.
    pub fn give_up<M: PlaneMemory>(plane: &mut Plane<M>, rule: RuleId) {
        match plane {
            Plane::Shm(plane) => shm::Fabric::give_up(plane, rule),
            Plane::Verbs(adapter) => adapter.give_up(rule),
        }
    }

    /// The descriptor to sleep on once the plane is armed.
    pub fn wait_fd<M: PlaneMemory>(plane: &mut Plane<M>) -> RawFd {
        match plane {
            Plane::Shm(plane) => shm::Fabric::wait_fd(plane),
            Plane::Verbs(adapter) => adapter.wait_fd(),
        }
    }

    /// The descriptor that is readable when [`Fabric::service`] has work; -1: it never has.
    pub fn service_fd(&self) -> RawFd {
        match &self.0 {
            Kind::Shm(of) => of.service_fd(),
            Kind::Verbs => -1,
        }
    }

    /// Greets who comes, and notices who is gone.
    pub fn service(&self) {
        if let Kind::Shm(of) = &self.0 {
            of.service();
        }
    }

    /// In a fork's child, which has none of it.
    pub fn after_fork_in_child(&self) {
        match &self.0 {
            Kind::Shm(of) => of.after_fork_in_child(),
            Kind::Verbs => ringway_host::fd::close_all_in_child(),
        }
    }
}
