//! This process as its peers see it, and what its device and its rendezvous tell each other.

use core::sync::atomic::{AtomicBool, Ordering, fence};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_stack::device::MacAddr;

use crate::error::AttachError;
use crate::fd::Fd;
use crate::layout::{
    MAGIC_AT, MEMBER_MAGIC, OWNER_AT, POOL_AT, POOL_LEN_AT, RULES_LEN_AT, RULES_V6_LEN_AT, RULES_VERSION_AT, VERSION, VERSION_AT,
};
use crate::link::Link;
use crate::memfd;
use crate::pool::Pool;
use crate::protocol::{Region, WriteWords};
use crate::rendezvous::names::Whose;
use crate::settings::{Ports, Settings};
use crate::stores::SharedMemory;
use crate::wakeups::WakeUps;
use crate::{sys, user};

/// What the rendezvous tells the device.
#[derive(Debug)]
pub(crate) enum Notice {
    /// A peer joined.
    Joined(Arc<Link>),
    /// A peer's liveness ended: drain its ring, then let go of it.
    Gone(MacAddr),
}

/// Shared by the device, the rendezvous, the links and the received handles.
#[derive(Debug)]
pub(crate) struct Member {
    /// Random, unique among members.
    pub(crate) id: u64,
    pub(crate) uid: u32,
    pub(crate) pid: i32,
    ports: Ports,
    /// See [`Settings::area_bytes`].
    pub(crate) area_bytes: usize,
    pub(crate) segment: Arc<SharedMemory>,
    pub(crate) segment_fd: Fd,
    pub(crate) wake_ups: WakeUps,
    /// Small and large buffers.
    pub(crate) pool_shape: (u32, u32),
    /// Set in a fork's child, which has none of the mappings.
    forked: AtomicBool,
    /// The keys of regions that are published, by their places.
    regions: Mutex<BTreeMap<usize, u32>>,
    noticed: AtomicBool,
    notices: Mutex<Vec<Notice>>,
}

impl Member {
    /// Makes the segment and its descriptors. `id`: random.
    pub(crate) fn new(settings: &Settings, id: u64) -> Result<Self, AttachError> {
        let uid = user::own()?;
        let pool_shape = settings.pool_shape();
        let pool_bytes = Pool::bytes(pool_shape.0, pool_shape.1);
        let needed = (POOL_AT + pool_bytes).next_multiple_of(4096);
        let limit = sys::file_size_limit();
        if limit < needed as u64 {
            return Err(AttachError::FileSizeLimit { limit, needed: needed as u64 });
        }
        let (segment, segment_fd) = memfd::create(c"ringway-member", needed).map_err(AttachError::system("member segment"))?;
        if settings.huge_pages {
            segment.prefer_huge_pages();
        }
        let wake_ups = WakeUps::new().map_err(AttachError::system("wake-up descriptors"))?;
        for (at, value) in [
            (VERSION_AT, VERSION),
            (OWNER_AT, id),
            (POOL_LEN_AT, pool_bytes as u64),
            (RULES_VERSION_AT, 0),
            (RULES_LEN_AT, 0),
            (RULES_V6_LEN_AT, 0),
            (MAGIC_AT, MEMBER_MAGIC),
        ] {
            segment.store(at, value, Ordering::Release);
        }
        Ok(Self {
            id,
            uid,
            pid: sys::pid(),
            ports: settings.ports,
            area_bytes: settings.area_bytes.min(Settings::AREA_BYTES_MAX),
            segment: Arc::new(segment),
            segment_fd,
            wake_ups,
            pool_shape,
            forked: AtomicBool::new(false),
            regions: Mutex::default(),
            noticed: AtomicBool::new(false),
            notices: Mutex::new(Vec::new()),
        })
    }

    /// Among whose rules its own are.
    pub(crate) const fn whose(&self) -> Whose {
        Whose { uid: self.uid, ports: self.ports }
    }

    /// Whether this is a child of the member's process, which must not touch the mappings.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.forked.load(Ordering::Relaxed)
    }

    pub(crate) fn set_forked(&self) {
        self.forked.store(true, Ordering::Relaxed);
    }

    /// Publishes a region, if there is a place for it.
    pub(crate) fn publish(&self, region: &Region) -> bool {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        let place = Region::place(region.key);
        if self.is_forked() || regions.contains_key(&place) {
            return false;
        }
        region.publish(&*self.segment);
        regions.insert(place, region.key);
        true
    }

    /// Revokes it.
    pub(crate) fn revoke(&self, key: u32) {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_forked() && regions.get(&Region::place(key)) == Some(&key) {
            Region::revoke(key, &*self.segment);
            regions.remove(&Region::place(key));
        }
    }

    /// Leaves a notice to the device, and wakes whoever sleeps on it.
    pub(crate) fn notify(&self, notice: Notice) {
        self.lock().push(notice);
        self.noticed.store(true, Ordering::Release);
        // Joining and leaving are rare, so the sleeper is woken without asking whether there is one.
        fence(Ordering::SeqCst);
        self.wake_ups.signal();
    }

    /// Whether there are notices.
    #[inline]
    pub(crate) fn has_notices(&self) -> bool {
        self.noticed.load(Ordering::Acquire)
    }

    pub(crate) fn take_notices(&self) -> Vec<Notice> {
        let mut notices = self.lock();
        self.noticed.store(false, Ordering::Relaxed);
        core::mem::take(&mut *notices)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Notice>> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The Ethernet address by which this member knows the peer in `slot`: locally administered, with the slot, so that a sender
/// finds the channel by it, and a generation, so that a dead peer's address never names its successor.
pub(crate) const fn mac_of(slot: u16, generation: u32) -> MacAddr {
    let [_, a, b, c] = generation.to_be_bytes();
    let [hi, lo] = slot.to_be_bytes();
    MacAddr([0x02, a, b, c, hi, lo])
}

/// The slot in such an address.
#[inline]
pub(crate) const fn slot_of(mac: MacAddr) -> usize {
    u16::from_be_bytes([mac.0[4], mac.0[5]]) as usize
}
