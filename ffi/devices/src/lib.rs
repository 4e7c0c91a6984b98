//! The devices that Ringway's libraries and commands know: the one list of them, and the only crate beside `backends` that names theirs.
//!
//! What a ring, its queues and its buffers do is the contract's (`ringway_stack::device`, `ringway_host::queues`); here is which device each is on.
//! Shared memory is always there; interfaces (`ringway_xdp`) and cards (`ringway_mlx5`) are those that RINGWAY_DEVICE names. To add a device is to give each enum here a variant.
//!
//! What is shared memory's alone stands behind these names as well, until another device needs its own: who has an address, and is connected
//! ([`Rendezvous`]); and what processes tell each other about a connection that changes its owner ([`Dialogue`]).
//!
//! - [`messages`]: the message plane that rsockets run on
//! - [`broker`]: who lends interfaces to programs without privileges

mod absent;
pub mod broker;
mod buffers;
mod handover;
pub mod messages;
mod ring;

use std::path::Path;
use std::sync::Arc;

use ringway_host::HeadMemory;
use ringway_mlx5::{Mlx5Device, Mlx5Queues};
use ringway_params::kind::{Driver, Named};
use ringway_rxe::{PacketSettings, RxeDevice, RxeQueues};
use ringway_shm::{Settings, ShmQueues};
use ringway_stack::device::{Capabilities, Queues as _, QueuesConfig};
use ringway_xdp::{XdpDevice, XdpQueues};

pub use ringway_rxe::Reach;
pub use ringway_shm::{AttachError, Dialogue, DialogueHandler, Fd, MemberRef, Rendezvous, ResolveError, Resolved, Search, is_internal};
pub use ringway_xdp::{InFront, Landing, Runs, Survey};

pub use self::buffers::RxBuf;
use self::buffers::lent;
pub use self::handover::{Entered, Handover, UdpHandover};
pub use self::ring::Ring;

/// Does what an interface is asked for in a function of its own: what shared memory is asked for, a few dozen instructions at a time, is to be no longer for it.
#[inline(never)]
fn apart<T>(of_interface: impl FnOnce() -> T) -> T {
    of_interface()
}

/// A device's queues, for a ring.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "they are on their way into a ring")]
pub enum RingQueues {
    /// Shared memory's.
    Shm(ShmQueues),
    /// An interface's.
    Xdp(XdpQueues),
    /// A card's.
    Mlx5(Mlx5Queues),
    /// A verbs device's.
    Rxe(RxeQueues),
}

impl RingQueues {
    /// See [`ringway_stack::device::Queues::capabilities`].
    pub fn capabilities(&self) -> &Capabilities {
        match self {
            Self::Shm(of) => of.capabilities(),
            Self::Xdp(of) => of.capabilities(),
            Self::Mlx5(of) => of.capabilities(),
            Self::Rxe(of) => of.capabilities(),
        }
    }
}

/// What shared memory is attached with.
#[derive(Clone, Debug)]
pub struct SharedMemory {
    /// Send buffers: of each 19, 16 have 2 KiB and 3 have 32 KiB, which is 128 KiB.
    pub send_buffers: usize,
    /// Frames that were received and not read yet, at the most.
    pub received_frames: usize,
    /// Send buffers are to be in huge pages.
    pub huge_pages: bool,
    /// The program's own memory for the heads of what is received.
    pub head_memory: Option<HeadMemory>,
}

impl Default for SharedMemory {
    fn default() -> Self {
        let Settings { pool_bytes, heads_max, huge_pages, .. } = Settings::default();
        Self { send_buffers: pool_bytes / (128 << 10) * 19, received_frames: heads_max, huge_pages, head_memory: None }
    }
}

impl SharedMemory {
    fn settings(&self) -> Settings {
        Settings {
            pool_bytes: (self.send_buffers * (128 << 10)).div_ceil(19),
            listeners_are_bound: true,
            huge_pages: self.huge_pages,
            heads_max: self.received_frames,
            head_memory: self.head_memory,
            ..Settings::default()
        }
    }

    /// Attaches to it.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach(&self) -> Result<(RingQueues, Arc<Rendezvous>), AttachError> {
        ringway_shm::attach(&self.settings()).map(|(queues, rendezvous)| (RingQueues::Shm(queues), rendezvous))
    }

    /// Attaches once more, for another ring. (One of the process's members is listed; and the memory that the program named for heads is used once.)
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach_another(&self, beside: &Rendezvous) -> Result<(RingQueues, Arc<Rendezvous>), AttachError> {
        let settings = Settings { is_listed: false, head_memory: None, ..self.settings() };
        ringway_shm::attach_beside(&settings, beside).map(|(queues, rendezvous)| (RingQueues::Shm(queues), rendezvous))
    }
}

/// What an interface, or a card, is attached with.
#[derive(Clone, Debug)]
pub struct Interface<'a> {
    /// Which one, and which of its queues.
    pub named: Named<'a>,
    /// Where a broker listens, if one does.
    pub broker: &'a Path,
    /// Frames that the kernel may leave there before they are looked at, if more are wanted than by default.
    pub received_frames: Option<u32>,
    /// Bytes of a card's memory, for what each ring on it sends.
    pub staged_bytes: usize,
    /// The memory of a card's rings may be on huge pages, where there are some.
    pub huge_pages: bool,
    /// Frames that the kernel takes from a queue of an interface each time that it is asked to; zero: it is not asked.
    pub busy_poll: u16,
}

/// Why an interface, or a card, was not attached to.
#[derive(Clone, Debug)]
pub struct NotAttached {
    /// What is in the way.
    pub why: String,
    /// That is another process, which has it: it may be free later.
    pub is_taken: bool,
}

impl From<String> for NotAttached {
    fn from(why: String) -> Self {
        Self { why, is_taken: false }
    }
}

/// The memory of received frames is locked: the most that are asked for.
const RECEIVED_FRAMES_MAX: u32 = 1 << 17;

impl Interface<'_> {
    /// The kernel's interface: whose addresses and routes the device's rings have.
    ///
    /// # Errors
    /// There is no such card, or it has none.
    pub fn of_kernel(&self) -> Result<String, String> {
        let name = self.named.name;
        match self.named.driver {
            Driver::Xdp => Ok(name.to_owned()),
            Driver::Mlx5 | Driver::Rxe => {
                ringway_mlx5::interface_of(name, 1).map_err(|error| format!("the card has no interface: {error}"))
            }
        }
    }

    /// The card, if it is one: a device of its own, whose rings are not the interface's.
    pub fn card(&self) -> Option<&str> {
        (self.named.driver != Driver::Xdp).then_some(self.named.name)
    }

    fn settings(&self) -> ringway_xdp::Settings {
        let plain = ringway_xdp::Settings::new(self.named.name);
        let wanted = self.received_frames.unwrap_or(0).min(RECEIVED_FRAMES_MAX);
        ringway_xdp::Settings {
            queues: self.named.queues,
            received_frames: wanted.max(plain.received_frames),
            segmentation: true,
            checksums: true,
            busy_poll: self.busy_poll,
            ..plain
        }
    }

    /// Of an interface: puts a program in front of it, and opens its rings: as many as `wanted` says, which is told whether the interface says what comes to which of them, but
    /// no more than it has queues. Or has a broker open one, where one listens. Of a card: opens one ring.
    ///
    /// # Errors
    /// What is in the way.
    pub fn attach(&self, wanted: impl FnOnce(bool) -> u32) -> Result<Vec<RingQueues>, NotAttached> {
        if self.named.driver == Driver::Mlx5 {
            return self.open_card().map(|queues| vec![RingQueues::Mlx5(queues)]).map_err(|error| error.to_string().into());
        }
        if self.named.driver == Driver::Rxe {
            return self.open_verbs_device().map(|queues| vec![RingQueues::Rxe(queues)]).map_err(|error| error.to_string().into());
        }
        let settings = self.settings();
        let own = XdpDevice::attach(&settings).and_then(|device| device.open_rings(wanted(device.knows_queues())));
        let rings = own.or_else(|own| {
            let is_taken = own.is_taken();
            // (A broker gives all queues to one.)
            if settings.queues.is_some() || !self.broker.exists() {
                return Err(NotAttached { is_taken, why: own.to_string() });
            }
            let lent = XdpDevice::attach_by(self.broker, &settings).and_then(|device| device.open_ring());
            lent.map(|ring| vec![ring]).map_err(|lent| NotAttached { is_taken: is_taken || lent.is_taken(), why: format!("{own}; {lent}") })
        })?;
        Ok(rings.into_iter().map(RingQueues::Xdp).collect())
    }

    fn open_verbs_device(&self) -> Result<RxeQueues, ringway_rxe::OpenError> {
        let plain = PacketSettings::new(self.named.name);
        let received_frames = (self.received_frames.unwrap_or(0).min(RECEIVED_FRAMES_MAX) as usize).max(plain.received_frames);
        RxeDevice::open_device(&PacketSettings { received_frames, ..plain })?.open_ring()
    }

    /// (Beside the kernel, whose is what no rule of the ring's is for.)
    fn open_card(&self) -> Result<Mlx5Queues, ringway_mlx5::AttachError> {
        Mlx5Device::open_card(&self.settings_of_card())?.open_ring(&QueuesConfig { steered_only: true })
    }

    fn settings_of_card(&self) -> ringway_mlx5::Settings {
        let plain = ringway_mlx5::Settings::new(self.named.name);
        let received_frames = self.received_frames.unwrap_or(0).min(RECEIVED_FRAMES_MAX).max(plain.received_frames);
        ringway_mlx5::Settings { received_frames, staged_bytes: self.staged_bytes, huge_pages: self.huge_pages, ..plain }
    }
}

/// An RDMA device.
#[derive(Clone, Debug)]
pub struct CardFound {
    /// Its name.
    pub name: String,
    /// The interface of its first port, if a ring can be had on it; or what is in the way.
    pub interface: Result<String, String>,
}

/// All RDMA devices of this machine.
///
/// # Errors
/// None may be looked at: what is missing.
pub fn cards_found() -> Result<Vec<CardFound>, String> {
    let all = ringway_mlx5::survey().map_err(|error| error.to_string())?;
    let found =
        |card: ringway_mlx5::Candidate| CardFound { name: card.device, interface: card.interface.map_err(|error| error.to_string()) };
    Ok(all.into_iter().map(found).collect())
}

/// What a verbs device can do, by name: only looked at.
#[derive(Clone, Debug)]
pub struct VerbsDeviceFound {
    /// Its name.
    pub name: String,
    /// The interface of its first port, and the longest datagram there in bytes, if a ring can be had on it; or what is in the way.
    pub port: Result<(String, usize), String>,
}

/// All RDMA devices, as verbs devices: with queue pairs for rsockets, and rings in UD datagrams.
///
/// # Errors
/// None may be looked at: what is missing.
pub fn verbs_devices_found() -> Result<Vec<VerbsDeviceFound>, String> {
    let names = ringway_rxe::device_names().map_err(|error| error.to_string())?;
    let found = |name: String| VerbsDeviceFound { port: ringway_rxe::survey(&name).map_err(|error| error.to_string()), name };
    Ok(names.into_iter().map(found).collect())
}

/// An interface, as a device to be: only looked at.
///
/// # Errors
/// It is none: why.
pub fn interface_found(name: &str) -> Result<Survey, String> {
    Survey::of(name).map_err(|error| error.to_string())
}

/// Bytes that a ring on an interface locks, by default.
pub fn locked_by_interface() -> u64 {
    ringway_xdp::Settings::new("").locked()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_shared_memory_is_attached_as_it_says_itself() {
        let (set, plain) = (SharedMemory::default().settings(), Settings::default());
        assert_eq!((set.pool_bytes, set.heads_max), (plain.pool_bytes, plain.heads_max));
    }

    #[test]
    fn send_buffers_are_as_many_as_is_said() {
        for count in [1, 19, 512, 8192, 311_296] {
            let bytes = SharedMemory { send_buffers: count, ..SharedMemory::default() }.settings().pool_bytes;
            let (small, large) = (bytes / 4 / 2048, bytes * 3 / 4 / 32_768);
            assert!((small + large).abs_diff(count) <= 2, "{count}: {small} and {large}");
            assert!(bytes <= Settings::POOL_BYTES_MAX);
        }
    }

    #[test]
    fn frames_of_an_interface_or_a_card_are_more_if_somebody_says_so() {
        let frames = |received_frames| {
            let named = Named { driver: Driver::Xdp, name: "a0", queues: None };
            let interface = Interface { named, broker: Path::new("/"), received_frames, staged_bytes: 0, huge_pages: true, busy_poll: 0 };
            [interface.settings().received_frames, interface.settings_of_card().received_frames]
        };
        assert_eq!(frames(None), [2048; 2]);
        assert_eq!([7, 16_384, u32::MAX].map(|wanted| frames(Some(wanted))), [2048, 16_384, RECEIVED_FRAMES_MAX].map(|found| [found; 2]));
    }
}
