//! A connection between two members: both channels, mapped, and what it takes to wake the other.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::io;
use std::sync::Arc;

use ringway_stack::device::MacAddr;

use crate::area::Area;
use crate::fd::Fd;
use crate::identity::Identity;
use crate::layout::{CHANNEL_BYTES, CHANNEL_MAGIC, MAGIC_AT, MEMBER_MAGIC, OWNER_AT, POOL_AT, POOL_LEN_AT, TO_AT, VERSION, VERSION_AT};
use crate::member::Member;
use crate::memfd;
use crate::protocol::{ReadWords, ReleaseWriter, WriteWords};
use crate::reads::View;
use crate::rx_buf::Flights;
use crate::settings::Settings;
use crate::stores::SharedMemory;
use crate::sys;
use crate::window::Window;

/// What is shared by the device's channel, the rendezvous, and the handles on bytes that the peer sent.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) member: Arc<Member>,
    pub(crate) peer: PeerSegment,
    /// Its process, which has been vouched for ([`crate::Rendezvous`]); `None`: ourselves.
    pub(crate) who: Option<Identity>,
    pub(crate) pid: i32,
    /// How this member addresses the peer.
    pub(crate) mac: MacAddr,
    /// Our channel to the peer, which only we write.
    pub(crate) own: SharedMemory,
    /// The peer's channel to us.
    pub(crate) theirs: View,
    /// The connection that stands for the peer's life, over which each wakes the other. None to ourselves.
    pub(crate) connection: Option<Arc<Fd>>,
    pub(crate) alive: AtomicBool,
    pub(crate) releases: ReleaseWriter,
    pub(crate) flights: Flights,
    /// Frames received that were copied rather than held, for want of flights.
    pub(crate) copied: AtomicU64,
    /// Memory of ours that the peer writes to.
    pub(crate) area: Option<Area>,
    /// The peer's, that we write to.
    pub(crate) their_area: Option<SharedMemory>,
    /// The kernel does not let us write to the peer's memory.
    pub(crate) is_closed_to_writes: AtomicBool,
}

impl Link {
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    /// Wakes the peer. Never blocks.
    #[inline]
    pub(crate) fn wake(&self) {
        match &self.connection {
            // Where it cannot be sent, the peer has not taken out what was sent before, and so is awake; or it is gone.
            Some(connection) => sys::send_wake_up(connection),
            None => self.member.wake_ups.signal(),
        }
    }

    /// Hands a flight's buffers back to the peer.
    #[inline]
    pub(crate) fn hand_back(&self, flight: u16) {
        if !self.member.is_forked() {
            self.releases.push(&self.own, flight);
        }
    }
}

/// A peer's member segment, checked.
#[derive(Debug)]
pub(crate) struct PeerSegment {
    pub(crate) view: View,
    /// The same memory, for the program to whom some of it is lent.
    pub(crate) window: Window,
    pub(crate) id: u64,
    /// Bytes of its pool. Invariant: `POOL_AT + pool_len <= view.len()`.
    pub(crate) pool_len: usize,
}

impl PeerSegment {
    /// Checks and maps what a peer passed.
    pub(crate) fn open(fd: &Fd) -> io::Result<Self> {
        let view = memfd::open(fd, None, POOL_AT + Settings::POOL_BYTES_MAX)?;
        if view.len() < POOL_AT {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let word = |at| view.load(at, Ordering::Acquire);
        let (magic, version, id, pool_len) = (word(MAGIC_AT), word(VERSION_AT), word(OWNER_AT), word(POOL_LEN_AT));
        let pool_len = usize::try_from(pool_len).ok().filter(|&len| len <= view.len() - POOL_AT);
        match pool_len {
            Some(pool_len) if magic == MEMBER_MAGIC && version == VERSION => {
                let window = Window::new(memfd::open_again(fd, &view).ok());
                Ok(Self { view, window, id, pool_len })
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Makes our channel to the member `to`.
pub(crate) fn create_channel(from: u64, to: u64) -> io::Result<(SharedMemory, Fd)> {
    let (segment, fd) = memfd::create(c"ringway-channel", CHANNEL_BYTES)?;
    for (at, value) in [(VERSION_AT, VERSION), (OWNER_AT, from), (TO_AT, to), (MAGIC_AT, CHANNEL_MAGIC)] {
        segment.store(at, value, Ordering::Release);
    }
    Ok((segment, fd))
}

/// Checks and maps the channel that member `from` made for `to`.
pub(crate) fn open_channel(fd: &Fd, from: u64, to: u64) -> io::Result<View> {
    let view = memfd::open(fd, Some(CHANNEL_BYTES), CHANNEL_BYTES)?;
    let expected = [(MAGIC_AT, CHANNEL_MAGIC), (VERSION_AT, VERSION), (OWNER_AT, from), (TO_AT, to)];
    if expected.iter().all(|&(at, value)| view.load(at, Ordering::Acquire) == value) {
        Ok(view)
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}
