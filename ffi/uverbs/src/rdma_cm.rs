//! /dev/infiniband/rdma_cm: what the kernel's rdma_cm does for librdmacm (rdma/rdma_user_cm.h, version 4 of the interface), on the card's connection management. Identifiers are
//! `ringway_stack::cm`'s; a program's queue pairs are its own, so every connection is established late: the program makes its queue pair ready with what INIT_QP_ATTR says.
//!
//! - `commands`: what each command does
//! - `events`: what GET_EVENT gives
//! - `groups`: joining and leaving groups
//! - `layouts`: structures that both have
//! - `ports`: which ports identifiers are bound to
//!
//! A descriptor is one end of a socket pair, so that poll(2) and its like need nothing of ours: one byte lies in it while there are events.

mod commands;
mod events;
mod groups;
mod layouts;
mod ports;

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::os::fd::{AsFd as _, OwnedFd};

use ringway_host::Fd;
use ringway_host::netlink::Monitor;
use ringway_preload::Errno;
use ringway_stack::cm::{CmId, Event, EventKind, Manager};
use ringway_stack::roce::Node;
use ringway_stack::time::Instant;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::net::{RecvFlags, SendFlags};

use crate::engine::memory::{ProcessMemory, Registered};
use crate::engine::{Engine, channels, is_of_parent};
use crate::paths::from_rustix;
use crate::process;
use groups::Membership;
use ports::Ports;

/// Events of a channel that wait before no more requests are taken: of identifiers that the program has there are few each.
const EVENTS_MAX: usize = 4096;
/// Channels that were closed of which it is known how they were: threads may be on their way there.
const CLOSED_MAX: usize = 64;
/// Bytes of one command at most.
const COMMAND_MAX: usize = 4096;

/// A descriptor's side of it: `struct rdma_event_channel` of librdmacm.
#[derive(Debug)]
struct Channel {
    /// The other end of the program's descriptor.
    bell: Fd,
    /// The program's end once more.
    theirs: Fd,
    events: VecDeque<Event>,
}

/// What the program knows of an identifier.
#[derive(Clone, Copy, Debug)]
struct Known {
    id: CmId,
    /// Whose events go there: a context's number.
    channel: u32,
    /// What events name it by.
    uid: u64,
    /// Events that were told.
    reported: u32,
    /// RDMA_OPTION_ID_REUSEADDR: it may have a port that others have as well, until one of them listens.
    reuses: bool,
    /// RDMA_OPTION_ID_AFONLY: bound to all of IPv6's addresses, it has none of IPv4's.
    of_one_family: bool,
}

/// All channels and identifiers of a process.
#[derive(Debug, Default)]
pub(crate) struct RdmaCm {
    manager: Manager,
    channels: BTreeMap<u32, Channel>,
    /// Those that were closed last, and whether who asked there waited.
    closed: VecDeque<(u32, bool)>,
    /// By the number that the program knows it by.
    ids: BTreeMap<u32, Known>,
    last: u32,
    /// What listeners have on the bus.
    claims: BTreeMap<u32, Fd>,
    /// Groups that identifiers have joined, by the number that the program knows that by.
    memberships: BTreeMap<u32, Membership>,
    /// Ports on the bus that are bound to.
    ports: Ports,
    /// The kernel's routes and addresses.
    monitor: Option<Monitor>,
}

impl Channel {
    fn new() -> Result<(Self, OwnedFd), Errno> {
        let (bell, theirs, programs) = channels::ends()?;
        Ok((Self { bell, theirs, events: VecDeque::new() }, programs))
    }

    fn put(&mut self, event: Event) {
        if self.events.is_empty() {
            // (There is room for one.)
            let _ = rustix::net::send(&self.bell, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
        self.events.push_back(event);
    }

    /// Whether who asks for an event where there is none waits for it.
    fn may_wait(&self) -> bool {
        rustix::fs::fcntl_getfl(&self.theirs).is_ok_and(|flags| !flags.contains(OFlags::NONBLOCK))
    }

    fn silence_if_empty(&self) {
        if self.events.is_empty() {
            let mut byte = [0];
            while matches!(rustix::net::recv(&self.theirs, &mut byte, RecvFlags::DONTWAIT), Ok((_, 1..))) {}
        }
    }
}

impl RdmaCm {
    /// A channel of that number; the program's descriptor of it.
    ///
    /// # Errors
    /// What the kernel says of sockets; ENOMEM: its routes are not to be read.
    pub(crate) fn open(&mut self, channel: u32) -> Result<OwnedFd, Errno> {
        if self.monitor.is_none() {
            self.monitor = Some(Monitor::open().map_err(|error| {
                crate::log::warn(format_args!("connections by address need the kernel's routes: {error}"));
                Errno(libc::ENOMEM)
            })?);
        }
        let (new, theirs) = Channel::new()?;
        self.channels.insert(channel, new);
        Ok(theirs)
    }

    /// The channel's last descriptor was closed: its identifiers end.
    pub(crate) fn close(&mut self, now: Instant, node: &mut Node<Registered>, channel: u32) {
        let Some(closed) = self.channels.remove(&channel) else { return };
        self.closed.truncate(CLOSED_MAX - 1);
        self.closed.push_front((channel, closed.may_wait()));
        let of_channel = |known: &Known| known.channel == channel;
        for known in self.ids.values().filter(|known| of_channel(known)) {
            self.manager.destroy_id(now, node, known.id);
        }
        self.ids.retain(|_, known| !of_channel(known));
        self.claims.retain(|number, _| self.ids.contains_key(number));
        self.memberships.retain(|_, membership| self.ids.contains_key(&membership.id));
        self.ports.retain(|number| self.ids.contains_key(&number));
    }

    /// Takes what the card has to tell, and rings.
    pub(crate) fn poll(&mut self, now: Instant, node: &mut Node<Registered>) {
        self.manager.poll(now, node);
        while let Some(event) = self.manager.next_event() {
            self.put(now, node, event);
        }
    }

    fn put(&mut self, now: Instant, node: &mut Node<Registered>, event: Event) {
        if let (EventKind::ConnectRequest(_), Some(listener)) = (&event.kind, event.listener) {
            let known = self.known_of(listener).map(|(_, known)| known);
            let has_room = |known: &Known| self.channels.get(&known.channel).is_some_and(|channel| channel.events.len() < EVENTS_MAX);
            let Some(known) = known.filter(has_room) else {
                crate::log::say(format_args!("a request to connect is refused: the program reads no events"));
                return self.manager.destroy_id(now, node, event.id);
            };
            self.add(event.id, known.channel, 0);
        } else if self.known_of(event.id).is_some_and(|(_, known)| known.uid == 0) {
            // What becomes of a request before the program has agreed to it, it finds out when it does (ucma_event_handler).
            return;
        }
        let channel = self.known_of(event.id).map(|(_, known)| known.channel);
        if let Some(channel) = channel.and_then(|channel| self.channels.get_mut(&channel)) {
            channel.put(event);
        }
    }

    fn known_of(&self, id: CmId) -> Option<(u32, Known)> {
        self.ids.iter().find(|(_, known)| known.id == id).map(|(number, known)| (*number, *known))
    }

    fn add(&mut self, id: CmId, channel: u32, uid: u64) -> u32 {
        self.last += 1;
        self.ids.insert(self.last, Known { id, channel, uid, reported: 0, reuses: false, of_one_family: false });
        self.last
    }

    fn known(&self, number: u32) -> Result<Known, Errno> {
        self.ids.get(&number).copied().ok_or(Errno(libc::ENOENT))
    }
}

/// write(2) to a descriptor of it: one command. What the kernel's write(2) gives, all that was written.
///
/// # Errors
/// The command's.
pub(crate) fn write(channel: u32, at: u64, len: usize) -> Result<usize, Errno> {
    let memory = ProcessMemory::new();
    // (On the stack: no handler of the program's is to find this thread in the allocator, in which the card works as well.)
    let mut room = [0; COMMAND_MAX];
    let bytes = &mut room[..len.min(COMMAND_MAX)];
    memory.copy_in(at, bytes)?;
    loop {
        let done = {
            let mut engine = process::lock();
            let Some(open) = engine.as_mut().filter(|engine| engine.rdma_cm.channels.contains_key(&channel)) else {
                let waited = engine.as_ref().and_then(|engine| engine.rdma_cm.closed.iter().find(|(closed, _)| *closed == channel));
                let may_wait = waited.map(|(_, may_wait)| *may_wait).filter(|_| commands::is_get_event(bytes));
                drop(engine);
                return Err(gone(channel, may_wait));
            };
            let done = commands::run(open, channel, &memory, bytes);
            // What it has to send leaves now.
            open.turn();
            done
        };
        match done {
            Err(Errno(libc::EAGAIN)) if commands::is_get_event(bytes) => wait(channel)?,
            done => return done.map(|()| len),
        }
    }
}

/// What becomes of a command to a channel that is there no more. Another thread has closed it since the command was given: in the kernel, who waits there waits on, since the file is there
/// as long as somebody is in it, and gets no more events; so until a signal comes. `may_wait`: none if it is about no wait, or was closed long ago.
fn gone(channel: u32, may_wait: Option<bool>) -> Errno {
    if is_of_parent(channel) || process::is_removed() {
        return Errno(libc::EIO);
    }
    match may_wait {
        None => Errno(libc::EBADF),
        Some(false) => Errno(libc::EAGAIN),
        Some(true) => match poll(&mut [], None) {
            Err(error) => from_rustix(error),
            Ok(_) => Errno(libc::EINTR),
        },
    }
}

/// Waits for an event, or until the channel is gone, unless the descriptor is not to be waited at.
fn wait(channel: u32) -> Result<(), Errno> {
    let theirs = {
        let engine = process::lock();
        let Some(channel) = engine.as_ref().and_then(|engine| engine.rdma_cm.channels.get(&channel)) else { return Ok(()) };
        if !channel.may_wait() {
            return Err(Errno(libc::EAGAIN));
        }
        Fd::of(|| rustix::io::fcntl_dupfd_cloexec(channel.theirs.as_fd(), 0)).map_err(from_rustix)?
    };
    poll(&mut [PollFd::new(&theirs, PollFlags::IN)], None).map_err(from_rustix)?;
    Ok(())
}

/// Whether an address is the port's.
fn is_of_port(address: IpAddr) -> bool {
    address == IpAddr::V4(crate::sysfs::address())
}

impl Engine {
    /// A channel whose descriptors are those of a context.
    ///
    /// # Errors
    /// As [`RdmaCm::open`].
    pub(crate) fn open_rdma_cm(&mut self, context: u32) -> Result<OwnedFd, Errno> {
        self.rdma_cm.open(context)
    }
}

#[cfg(test)]
mod tests {
    use ringway_stack::cm::Incoming;
    use ringway_stack::device::messages::{PortSpace, PrivateData};
    use ringway_stack::roce::NodeConfig;

    use super::*;

    fn asked(id: CmId, listener: CmId) -> Event {
        let incoming = Incoming { private_data: PrivateData::default(), responder_resources: 1, initiator_depth: 1 };
        Event { id, listener: Some(listener), kind: EventKind::ConnectRequest(Box::new(incoming)) }
    }

    #[test]
    fn requests_that_a_program_does_not_read_are_refused_in_the_end() {
        let mut node = Node::<Registered>::new(NodeConfig::new([10, 0, 0, 1].into()), 1);
        let mut cm = RdmaCm::default();
        cm.channels.insert(5, Channel::new().unwrap().0);
        let listener = cm.manager.create_id_in(PortSpace::Tcp).unwrap();
        cm.add(listener, 5, 77);
        // (What comes with a request is an identifier already.)
        let mut asks = |cm: &mut RdmaCm| {
            let id = cm.manager.create_id_in(PortSpace::Tcp).unwrap();
            cm.put(Instant::ZERO, &mut node, asked(id, listener));
            id
        };
        for _ in 0..EVENTS_MAX {
            let id = asks(&mut cm);
            assert!(cm.known_of(id).is_some());
        }
        for _ in 0..10 {
            let id = asks(&mut cm);
            assert!(cm.known_of(id).is_none() && cm.manager.port_space(id).is_none(), "it is gone");
        }
        assert_eq!((cm.channels[&5].events.len(), cm.ids.len()), (EVENTS_MAX, EVENTS_MAX + 1));
        // One that is read makes room for another.
        cm.channels.get_mut(&5).unwrap().events.pop_front();
        let id = asks(&mut cm);
        assert!(cm.known_of(id).is_some());
    }
}
