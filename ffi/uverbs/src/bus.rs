//! The bus: RoCE's packets and Ethernet frames between processes of one user on this machine, as datagrams of Unix sockets. A byte before
//! each says which it is.
//!
//! Each process has a slot, which is the name of its socket and the top of its queue pairs' numbers: so a packet's destination says whose it
//! is. (Whose frames are, `engine/segment.rs` knows.) Names are abstract, so that a slot is free when its process has died, however that came. Who sent a datagram the kernel says
//! (SCM_CREDENTIALS); another user's is dropped.
//!
//! A bus whose name is an absolute path is a folder with a socket for each slot: for processes in several network namespaces, each of which has abstract names of its own.

mod lives;

use core::mem::MaybeUninit;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::thread;
use std::time::{Duration, Instant};

use ringway_host::Fd;
use ringway_preload::Errno;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno as Error;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, sockopt,
};
use rustix::process::getuid;

use crate::paths::from_rustix;
use lives::Lives;

/// Processes on a bus at most.
pub(crate) const SLOTS: u8 = 255;
/// How long what waits is sent before this end is gone.
const DRAIN_MAX: Duration = Duration::from_millis(200);
/// Packets that wait for room at their receivers: more are lost, as on a wire.
const WAITING_MAX: usize = 4096;

/// What a datagram is: its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A packet of RoCE, from its IP header on.
    Packet = 1,
    /// An Ethernet frame.
    Frame = 2,
    /// What a process wants of frames (`engine/segment.rs`).
    Wants = 3,
    /// The port of whoever gets it goes down (0) or up (1): from outside, to see what a program does.
    Port = 4,
    /// Something happens to the card of whoever gets it (`engine/events.rs`): from outside, too.
    Fault = 5,
}

impl Kind {
    /// What a datagram is, and the rest of it.
    pub(crate) fn split(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let (first, rest) = datagram.split_first()?;
        [Self::Packet, Self::Frame, Self::Wants, Self::Port, Self::Fault]
            .into_iter()
            .find(|kind| *kind as u8 == *first)
            .map(|kind| (kind, rest))
    }
}

/// A process's end.
#[derive(Debug)]
pub(crate) struct Bus {
    socket: Fd,
    slot: u8,
    name: String,
    /// Whose the slot is: a forked child's copy is not.
    pid: u32,
    waiting: VecDeque<(u8, Vec<u8>)>,
    /// Those whose end is waited for.
    lives: Lives,
    /// By which others wait for this one's.
    life: Option<Fd>,
}

/// What became of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// Sent, or lost.
    Gone,
    /// There is no room for it.
    Full,
    /// There is no such socket.
    Nobody,
}

/// A socket for datagrams, whose number is none of the program's.
fn socket(flags: SocketFlags) -> Result<Fd, Errno> {
    Fd::of(|| rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)).map_err(from_rustix)
}

impl Bus {
    /// Takes the first free slot of the bus `name`.
    ///
    /// # Errors
    /// EMFILE: all are taken; what the kernel says of the socket.
    pub(crate) fn join(name: String) -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket(flags)?;
        sockopt::set_socket_passcred(&socket, true).map_err(from_rustix)?;
        let mut bus =
            Self { socket, slot: SLOTS, name, pid: std::process::id(), waiting: VecDeque::new(), lives: Lives::default(), life: None };
        let _lock = bus.lock()?;
        for slot in 0..SLOTS {
            let address = bus.address(slot)?;
            let bound = match rustix::net::bind(&bus.socket, &address) {
                Err(Error::ADDRINUSE) if bus.is_left(slot) => rustix::net::bind(&bus.socket, &address),
                bound => bound,
            };
            match bound {
                Ok(()) => {
                    bus.slot = slot;
                    if let Some(path) = bus.life_path(slot) {
                        // (A process that was killed left it behind.)
                        let _ = rustix::fs::unlink(path);
                    }
                    bus.life = Some(lives::live(&bus.life_of(slot)?)?);
                    return Ok(bus);
                }
                Err(Error::ADDRINUSE) => {}
                Err(error) => return Err(from_rustix(error)),
            }
        }
        Err(Errno(libc::EMFILE))
    }

    /// The socket of a slot, on a bus that is a folder.
    fn path(&self, slot: u8) -> Option<String> {
        self.name.starts_with('/').then(|| format!("{}/{}-{slot}", self.name, getuid().as_raw()))
    }

    /// Nobody else takes a slot, or a dead one's, meanwhile: of a bus that is a folder.
    fn lock(&self) -> Result<Option<Fd>, Errno> {
        if self.path(0).is_none() {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = Fd::of(|| rustix::fs::open(&*self.name, flags, Mode::empty())).map_err(from_rustix)?;
        rustix::fs::flock(&folder, FlockOperation::LockExclusive).map_err(from_rustix)?;
        Ok(Some(folder))
    }

    /// Whether a slot's socket was left behind by a process that has died; it is removed then.
    fn is_left(&self, slot: u8) -> bool {
        let (Some(path), Ok(address)) = (self.path(slot), self.address(slot)) else { return false };
        let asked = socket(SocketFlags::CLOEXEC);
        let is_dead = asked.is_ok_and(|socket| rustix::net::connect(&socket, &address) == Err(Error::CONNREFUSED));
        is_dead && rustix::fs::unlink(path).is_ok()
    }

    fn address(&self, slot: u8) -> Result<SocketAddrUnix, Errno> {
        if let Some(path) = self.path(slot) {
            return SocketAddrUnix::new(path).map_err(from_rustix);
        }
        SocketAddrUnix::new_abstract_name(self.abstract_name(slot).as_bytes()).map_err(from_rustix)
    }

    fn abstract_name(&self, slot: u8) -> String {
        format!("ringway-connectx/{}/{}/{slot}", getuid().as_raw(), self.name)
    }

    /// The slot.
    pub(crate) fn slot(&self) -> u8 {
        self.slot
    }

    /// The socket.
    pub(crate) fn socket(&self) -> &Fd {
        &self.socket
    }

    /// Takes a service of connection management, until what this returns is dropped: who asks for it then finds somebody there. (On a bus that is a folder, nobody can tell.)
    ///
    /// # Errors
    /// EADDRINUSE: another process has it.
    pub(crate) fn claim(&self, service: u64) -> Result<Option<Fd>, Errno> {
        let Some(address) = self.service(service)? else { return Ok(None) };
        let socket = socket(SocketFlags::CLOEXEC)?;
        rustix::net::bind(&socket, &address).map_err(from_rustix)?;
        Ok(Some(socket))
    }

    /// Takes a port to be bound to, in the same way; `of` says what ports it is one of.
    ///
    /// # Errors
    /// EADDRINUSE: another process has it.
    pub(crate) fn claim_port(&self, of: &str, port: u16) -> Result<Option<Fd>, Errno> {
        if self.path(0).is_some() {
            return Ok(None);
        }
        let name = format!("ringway-connectx/{}/{}/port-{of}-{port}", getuid().as_raw(), self.name);
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(from_rustix)?;
        let socket = socket(SocketFlags::CLOEXEC)?;
        rustix::net::bind(&socket, &address).map_err(from_rustix)?;
        Ok(Some(socket))
    }

    /// Whether somebody has the service, as far as can be told.
    pub(crate) fn is_claimed(&self, service: u64) -> bool {
        let Ok(Some(address)) = self.service(service) else { return true };
        let asked = socket(SocketFlags::CLOEXEC);
        asked.is_ok_and(|socket| rustix::net::connect(&socket, &address).is_ok())
    }

    fn service(&self, service: u64) -> Result<Option<SocketAddrUnix>, Errno> {
        if self.path(0).is_some() {
            return Ok(None);
        }
        let name = format!("ringway-connectx/{}/{}/service-{service:x}", getuid().as_raw(), self.name);
        SocketAddrUnix::new_abstract_name(name.as_bytes()).map(Some).map_err(from_rustix)
    }

    /// Sends a datagram to every process on the bus, this one included.
    pub(crate) fn send_to_all(&mut self, kind: Kind, bytes: &[u8]) {
        for slot in 0..SLOTS {
            self.send(slot, kind, bytes);
        }
    }

    /// Sends a datagram to every other process on the bus.
    pub(crate) fn send_to_others(&mut self, kind: Kind, bytes: &[u8]) {
        let own = self.slot;
        for slot in (0..SLOTS).filter(|slot| *slot != own) {
            self.send(slot, kind, bytes);
        }
    }

    /// Sends to a slot. Where nobody is, it is lost, and the answer is no.
    pub(crate) fn send(&mut self, slot: u8, kind: Kind, bytes: &[u8]) -> bool {
        // What waits for the same slot goes first.
        let waits = self.waiting.iter().any(|(to, _)| *to == slot);
        let sent = if waits { Sent::Full } else { self.try_send(slot, &[&[kind as u8], bytes]) };
        if sent == Sent::Full && self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((slot, [&[kind as u8], bytes].concat()));
        }
        sent != Sent::Nobody
    }

    /// Sends what waited, as far as there is room now.
    pub(crate) fn flush(&mut self) {
        let (mut full, mut still) = ([false; 256], VecDeque::new());
        for (slot, packet) in std::mem::take(&mut self.waiting) {
            if full[usize::from(slot)] || self.try_send(slot, &[&packet]) == Sent::Full {
                full[usize::from(slot)] = true;
                still.push_back((slot, packet));
            }
        }
        self.waiting = still;
    }

    /// Sends what waited, and waits for room for it; not for long, since who has none may never have.
    pub(crate) fn drain(&mut self) {
        let begin = Instant::now();
        while self.waiting() > 0 && begin.elapsed() < DRAIN_MAX {
            self.flush();
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// How many packets wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn try_send(&self, slot: u8, parts: &[&[u8]]) -> Sent {
        let Ok(address) = self.address(slot) else { return Sent::Nobody };
        let parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let (mut control, flags) = (SendAncillaryBuffer::default(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        match rustix::net::sendmsg_addr(&self.socket, &address, &parts, &mut control, flags) {
            Err(Error::AGAIN | Error::NOBUFS | Error::INTR) => Sent::Full,
            Err(Error::CONNREFUSED | Error::NOENT) => Sent::Nobody,
            _ => Sent::Gone,
        }
    }

    /// The next datagram; `None` if there is none. An empty one is another user's.
    pub(crate) fn receive(&self, out: &mut [u8]) -> Option<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(out)], &mut control, RecvFlags::DONTWAIT).ok()?;
        let is_own = |message| matches!(message, RecvAncillaryMessage::ScmCredentials(who) if who.uid == getuid());
        Some(if control.drain().any(is_own) { received.bytes } else { 0 })
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            return;
        }
        // (What cannot be removed is found to be left behind by the next one.)
        for path in [self.life_path(self.slot), self.path(self.slot)].into_iter().flatten() {
            let _ = rustix::fs::unlink(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_reach_their_slot_wait_for_room_and_are_lost_where_nobody_is() {
        let name = format!("test-{}", std::process::id());
        let (mut a, b) = (Bus::join(name.clone()).unwrap(), Bus::join(name.clone()).unwrap());
        assert_eq!((a.slot(), b.slot()), (0, 1));
        let mut out = [0; 64];
        assert_eq!(b.receive(&mut out), None);
        assert!(!a.send(7, Kind::Packet, b"to nobody"));
        let packets = 3000u32;
        for number in 0..packets {
            assert!(a.send(1, Kind::Frame, &number.to_be_bytes()));
        }
        assert!(a.waiting() > 0, "a socket of the kernel's does not hold so many");
        for number in 0..packets {
            a.flush();
            assert_eq!(b.receive(&mut out), Some(5));
            assert_eq!(Kind::split(&out[..5]), Some((Kind::Frame, &number.to_be_bytes()[..])));
        }
        assert_eq!((a.waiting(), b.receive(&mut out)), (0, None));
        assert_eq!((Kind::split(&[9, 1]), Kind::split(&[])), (None, None));
        drop(a);
        assert_eq!(Bus::join(name).unwrap().slot(), 0, "its slot is free again");
    }

    #[test]
    fn a_service_is_one_process_s_until_it_lets_go_of_it() {
        let bus = Bus::join(format!("services-{}", std::process::id())).unwrap();
        assert!(!bus.is_claimed(7));
        let claim = bus.claim(7).unwrap();
        assert!(claim.is_some() && bus.is_claimed(7) && !bus.is_claimed(8));
        assert_eq!(bus.claim(7).map(|_| ()), Err(Errno(libc::EADDRINUSE)));
        drop(claim);
        assert!(!bus.is_claimed(7) && bus.claim(7).is_ok());
    }

    #[test]
    fn a_folder_is_a_bus_for_whoever_sees_it() {
        let folder = std::env::temp_dir().join(format!("connectx-bus-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let name = folder.to_str().unwrap().to_owned();
        let join = || Bus::join(name.clone()).unwrap();
        let (mut a, b) = (join(), join());
        assert!(a.send(1, Kind::Frame, b"frame") && !a.send(2, Kind::Frame, b"nobody"));
        let mut out = [0; 64];
        assert_eq!((a.slot(), b.slot(), b.receive(&mut out)), (0, 1, Some(6)));
        // (As if its process had been killed.)
        let mut left = join();
        left.pid = 0;
        assert_eq!(left.slot(), 2);
        drop(left);
        assert!(folder.join(format!("{}-2", getuid().as_raw())).exists() && !a.send(2, Kind::Frame, b"nobody"));
        assert_eq!(join().slot(), 2);
        drop((a, b));
        std::fs::remove_dir(&folder).expect("it is empty");
        assert!(Bus::join(name).is_err());
    }
}
