//! The devices that a process may have rings on: the one module of the library that names their crates. Shared memory is always there; interfaces
//! (`ringway_xdp`) are those that RINGWAY_DEVICE names.
//!
//! What a ring, its queues and its buffers do is the contract's (`ringway_stack::device`, `ringway_host::queues`), and the rest of the library knows
//! them by the names below. What is shared memory's alone stands behind these names as well, until another device needs its own: who has an
//! address, and is connected ([`Rendezvous`]); and what processes tell each other about a connection that changes its owner ([`Dialogue`]).

mod buffers;
mod handover;
mod ring;

pub(crate) use self::buffers::RxBuf;
pub(crate) use self::handover::Handover;
pub(crate) use self::ring::Ring;

use std::path::Path;
use std::sync::Arc;

use ringway_params::kind::Named;
use ringway_params::{Id, Settings};
use ringway_shm::ShmQueues;
use ringway_stack::device::{Capabilities, Queues as _};
use ringway_xdp::{XdpDevice, XdpQueues};

pub(crate) use ringway_xdp::Landing;

pub(crate) use ringway_shm::{
    AttachError, Dialogue, DialogueHandler, Fd, MemberRef, Rendezvous, ResolveError, Resolved, Search, is_internal,
};

use self::buffers::lent;
use crate::params::{self, Params};

/// Does what an interface is asked for in a function of its own: what shared memory is asked for, a few dozen instructions at a time, is to be no longer for it.
#[inline(never)]
fn apart<T>(of_interface: impl FnOnce() -> T) -> T {
    of_interface()
}

/// A device's queues, for a ring.
pub(crate) enum RingQueues {
    Shm(ShmQueues),
    Xdp(XdpQueues),
}

impl RingQueues {
    pub(crate) fn capabilities(&self) -> &Capabilities {
        match self {
            Self::Shm(of) => of.capabilities(),
            Self::Xdp(of) => of.capabilities(),
        }
    }
}

/// Attaches to shared memory.
///
/// # Errors
/// [`AttachError`].
pub(crate) fn attach(params: &Params) -> Result<(RingQueues, Arc<Rendezvous>), AttachError> {
    ringway_shm::attach(&settings(params)).map(|(queues, rendezvous)| (RingQueues::Shm(queues), rendezvous))
}

/// Attaches once more, for another ring. (One of the process's members is listed; and the memory that the program named for small frames is used once.)
///
/// # Errors
/// [`AttachError`].
pub(crate) fn attach_another(params: &Params, beside: &Rendezvous) -> Result<(RingQueues, Arc<Rendezvous>), AttachError> {
    let settings = ringway_shm::Settings { is_listed: false, head_memory: None, ..settings(params) };
    ringway_shm::attach_beside(&settings, beside).map(|(queues, rendezvous)| (RingQueues::Shm(queues), rendezvous))
}

/// Puts a program in front of an interface, and opens its rings: as many as `wanted` says, which is told whether the interface says what comes to which of them, but no
/// more than it has queues. Or has a broker open one, where one listens at `broker`.
///
/// # Errors
/// What is in the way.
pub(crate) fn attach_interface(
    Named { name, queues }: Named<'_>,
    broker: &Path,
    wanted: impl FnOnce(bool) -> u32,
) -> Result<Vec<RingQueues>, String> {
    let settings = ringway_xdp::Settings { queues, ..of_interface(name, params::settings()) };
    let own = XdpDevice::attach(&settings).and_then(|device| device.open_rings(wanted(device.knows_queues())));
    let rings = own.or_else(|own| {
        // (A broker gives all queues to one.)
        if queues.is_some() || !broker.exists() {
            return Err(own.to_string());
        }
        let lent = XdpDevice::attach_by(broker, &settings).and_then(|device| device.open_ring());
        lent.map(|ring| vec![ring]).map_err(|lent| format!("{own}; {lent}"))
    })?;
    Ok(rings.into_iter().map(RingQueues::Xdp).collect())
}

/// VMA_RX_WRE has memory locked: the most that it does.
const RECEIVED_FRAMES_MAX: u32 = 1 << 17;

/// What an interface is attached with: more frames than by default, if somebody has said so. (The default of VMA_RX_WRE is a card's.)
fn of_interface(name: &str, said: &Settings) -> ringway_xdp::Settings {
    let settings = ringway_xdp::Settings { segmentation: true, ..ringway_xdp::Settings::new(name) };
    if !said.is_set(Id::RxWre) {
        return settings;
    }
    let frames = u32::try_from(said.number(Id::RxWre)).unwrap_or(u32::MAX).min(RECEIVED_FRAMES_MAX);
    ringway_xdp::Settings { received_frames: frames.max(settings.received_frames), ..settings }
}

/// What the shared-memory device is attached with. Of its pool, a quarter is small buffers (2 KiB), the rest large ones
/// (32 KiB): 19 buffers are 128 KiB.
fn settings(params: &Params) -> ringway_shm::Settings {
    ringway_shm::Settings {
        pool_bytes: (params.tx_bufs * (128 << 10)).div_ceil(19),
        listeners_are_bound: true,
        huge_pages: params.huge_pages,
        heads_max: params.rx_bufs,
        head_memory: crate::extra::ioctl::head_memory(),
        ..ringway_shm::Settings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::tests::with;

    #[test]
    fn nothing_set_means_what_shared_memory_means_by_itself() {
        let (set, plain) = (settings(&with(&[])), ringway_shm::Settings::default());
        assert_eq!((set.pool_bytes, set.heads_max), (plain.pool_bytes, plain.heads_max));
    }

    #[test]
    fn frames_of_an_interface_are_more_if_somebody_says_so() {
        let frames = |said: &[(&str, &str)]| {
            let said = Settings::read(|name| said.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()));
            of_interface("a0", &said).received_frames
        };
        assert_eq!(frames(&[]), 2048);
        let told = ["7", "16384", "9999999999"].map(|value| frames(&[("VMA_RX_WRE", value)]));
        assert_eq!(told, [2048, 16384, RECEIVED_FRAMES_MAX]);
    }

    #[test]
    fn buffers_are_as_many_as_is_said() {
        for count in ["1", "19", "512", "8192", "311296"] {
            let bytes = settings(&with(&[("VMA_TX_BUFS", count)])).pool_bytes;
            let (small, large) = (bytes / 4 / 2048, bytes * 3 / 4 / 32_768);
            let count: usize = count.parse().expect("a number");
            assert!((small + large).abs_diff(count) <= 2, "{count}: {small} and {large}");
            assert!(bytes <= ringway_shm::Settings::POOL_BYTES_MAX);
        }
    }
}
