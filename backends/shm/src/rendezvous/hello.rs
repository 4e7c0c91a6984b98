//! What members say to each other, once: the listener greets (so that the connector knows whom it has), the connector
//! offers its descriptors, the listener answers with its own. (Or the connector says that it listens there too.)

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use arrayvec::ArrayVec;
use ringway_stack::device::MacAddr;

use crate::area::Area;
use crate::fd::Fd;
use crate::identity::Identity;
use crate::layout::VERSION;
use crate::link::{self, Link, PeerSegment};
use crate::member::Member;
use crate::memfd;
use crate::protocol::ReleaseWriter;
use crate::reads::View;
use crate::rx_buf::Flights;
use crate::settings::Settings;
use crate::stores::SharedMemory;
use crate::sys::{self, Passed};

const MAGIC: u64 = u64::from_le_bytes(*b"RingwayH");
const BYTES: usize = 32;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The listener's first words.
    Greeting = 1,
    /// The connector's descriptors: segment, channel, and an area, if it has one.
    Offer = 2,
    /// The listener's.
    Answer = 3,
    /// Instead of an offer: the connector has a listener at that address as well. Answered by closing the connection.
    Joined = 4,
}

/// A received message.
pub(super) struct Message {
    pub(super) kind: Kind,
    /// Who sent it.
    pub(super) id: u64,
    pub(super) passed: Passed,
}

/// Sends a message, with descriptors if it is an offer or an answer.
pub(crate) fn send(socket: &Fd, kind: Kind, id: u64, passed: &[i32]) -> io::Result<()> {
    let mut bytes = [0; BYTES];
    for (to, word) in bytes.chunks_exact_mut(8).zip([MAGIC, VERSION, kind as u64, id]) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    sys::send_with(socket, &bytes, passed)
}

/// What there was to receive.
pub(super) enum Incoming {
    Message(Message),
    /// Nothing yet.
    Nothing,
    /// A wake-up: the other end has a link already.
    WakeUp,
    /// The other end closed.
    Closed,
    /// Something else than a message of this version.
    Garbage,
    /// A message whose descriptors this process has no room for.
    NoRoom(io::Error),
}

/// Receives a message, if there is one.
pub(super) fn receive(socket: &Fd) -> Incoming {
    // One byte more, so that a longer message shows.
    let mut bytes = [0; BYTES + 1];
    let (len, passed) = match sys::receive_with(socket, &mut bytes) {
        Ok((0, _)) => return Incoming::Closed,
        Ok((sys::WAKE_UP_BYTES, passed)) if passed.is_empty() => return Incoming::WakeUp,
        Ok(received) => received,
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Incoming::Nothing,
        Err(e) if e.raw_os_error() == Some(libc::EMFILE) => return Incoming::NoRoom(e),
        Err(_) => return Incoming::Closed,
    };
    let word = |i: usize| bytes.get(i * 8..i * 8 + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    let kind = match word(2) {
        1 => Kind::Greeting,
        2 => Kind::Offer,
        3 => Kind::Answer,
        4 => Kind::Joined,
        _ => return Incoming::Garbage,
    };
    if len != BYTES || word(0) != MAGIC || word(1) != VERSION {
        return Incoming::Garbage;
    }
    Incoming::Message(Message { kind, id: word(3), passed })
}

/// Our half of a connection that is being made.
pub(super) struct Half {
    channel: SharedMemory,
    area: Option<Area>,
    pub(super) fds: HalfFds,
}

/// The descriptors that the peer gets, beside the member's own. They are not needed afterwards.
pub(super) struct HalfFds {
    channel: Fd,
    area: Option<Fd>,
}

impl HalfFds {
    /// Sends them.
    pub(super) fn send(&self, socket: &Fd, kind: Kind, member: &Member) -> io::Result<()> {
        let area = self.area.as_ref().map(Fd::raw);
        let passed: ArrayVec<i32, 3> = [member.segment_fd.raw(), self.channel.raw()].into_iter().chain(area).collect();
        send(socket, kind, member.id, &passed)
    }
}

impl Half {
    pub(super) fn new(member: &Member, peer: u64) -> io::Result<Self> {
        let (channel, channel_fd) = link::create_channel(member.id, peer)?;
        let (area, area_fd) = Area::create(member.area_bytes).unzip();
        Ok(Self { channel, area, fds: HalfFds { channel: channel_fd, area: area_fd } })
    }

    /// Joins it with the peer's half, over `connection` (none to ourselves). Hands the descriptors back.
    pub(super) fn join(self, member: &Arc<Member>, peer: PeerHalf, mac: MacAddr, connection: Option<Arc<Fd>>) -> (Arc<Link>, HalfFds) {
        let link = Link {
            member: member.clone(),
            peer: peer.segment,
            who: peer.who,
            pid: peer.who.map_or(member.pid, |who| who.pid),
            mac,
            own: self.channel,
            theirs: peer.channel,
            connection,
            alive: AtomicBool::new(true),
            releases: ReleaseWriter::new(),
            flights: Flights::new(),
            copied: AtomicU64::new(0),
            area: self.area,
            their_area: peer.area,
            is_closed_to_writes: AtomicBool::new(false),
        };
        (Arc::new(link), self.fds)
    }
}

/// What a peer passed, checked and mapped.
pub(super) struct PeerHalf {
    segment: PeerSegment,
    channel: View,
    area: Option<SharedMemory>,
    who: Option<Identity>,
}

impl PeerHalf {
    pub(super) fn open(member: &Member, id: u64, who: Identity, passed: Passed) -> io::Result<Self> {
        let mut passed = passed.into_iter();
        let (Some(segment), Some(channel), area, None) = (passed.next(), passed.next(), passed.next(), passed.next()) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let opened = PeerSegment::open(&segment)?;
        segment.set_at_once();
        if opened.id != id {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let view = link::open_channel(&channel, id, member.id)?;
        channel.set_at_once();
        let area = area.map(|area| open_area(member, &area)).transpose()?.flatten();
        Ok(Self { segment: opened, channel: view, area, who: Some(who) })
    }

    /// Our own half, for the channel to ourselves.
    pub(super) fn of_myself(member: &Member, half: &Half) -> io::Result<Self> {
        Ok(Self {
            segment: PeerSegment::open(&member.segment_fd)?,
            channel: link::open_channel(&half.fds.channel, member.id, member.id)?,
            area: half.fds.area.as_ref().map(|area| open_area(member, area)).transpose()?.flatten(),
            who: None,
        })
    }
}

/// Maps a peer's area, if this member writes to any: where there is no address space for it, frames carry what would go there.
fn open_area(member: &Member, fd: &Fd) -> io::Result<Option<SharedMemory>> {
    if member.area_bytes == 0 {
        return Ok(None);
    }
    match memfd::open_area(fd, Settings::AREA_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Ok(None),
        Err(error) => Err(error),
        Ok(area) => {
            fd.set_at_once();
            Ok(Some(area))
        }
    }
}
