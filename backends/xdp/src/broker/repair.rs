//! Sockets of a program that are in repair mode (TCP_REPAIR), which only a broker's beginning and ending of it are wanted for.
//!
//! In that mode a socket may be bound beside others', and pretend to be any connection's: so it is there for a connection that the program has a rule for, no longer than that
//! rule lasts, and no longer than [`REPAIRED_WITHIN`]. Then it is taken out of it, and is no connection's ([`leave::retire`]).
//! Each question about one is answered by a thread ([`Threads`]), for a thread of the program may hold the socket's lock.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use ringway_host::leave;
use ringway_stack::device::{FiveTuple, Protocol};

use super::allowed::{self, kernel};
use super::guest::{Guest, Lent};
use super::house::House;
use super::listener::cookie_of;
use super::message::Refusal;
use super::threads::{Done, Threads};

/// The most that a connection's buffers are made at a program's wish, each (a ring has 16 MiB to send, and the kernel counts more than bytes).
const BUFFER_MAX: u32 = 64 << 20;
/// How long a connection may take to be written down.
const REPAIRED_WITHIN: Duration = Duration::from_secs(5);
/// Sockets of one ring that are in repair mode at a time.
pub(super) const REPAIRED_MAX: usize = 16;

/// Our address, and the peer's.
pub(super) type Ends = (SocketAddr, SocketAddr);

/// A socket in repair mode, as long as this is there.
#[derive(Debug)]
pub(super) struct Repaired {
    socket: OwnedFd,
    /// Which it is, whatever descriptor it is passed by.
    cookie: u64,
    local: SocketAddr,
    remote: SocketAddr,
    since: Instant,
}

/// Those of a ring.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    all: Vec<Repaired>,
    /// The ring is no more. (What a thread has ended meanwhile is to be nobody's.)
    is_over: Arc<AtomicBool>,
}

impl Repaired {
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn flow(&self) -> FiveTuple {
        FiveTuple { protocol: Protocol::Tcp, local: self.local, remote: Some(self.remote) }
    }
}

impl Repairs {
    fn index(&self, socket: &OwnedFd) -> Result<usize, Refusal> {
        let cookie = cookie_of(socket.as_fd());
        self.all.iter().position(|repaired| Some(repaired.cookie) == cookie).ok_or(Refusal::NotInRepair)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Those that are to be in repair mode no more.
    fn take_if(&mut self, is_over: impl Fn(&Repaired) -> bool) -> Vec<Repaired> {
        self.all.extract_if(.., |repaired| is_over(repaired)).collect()
    }
}

impl Lent {
    /// Whether a connection comes by one of the rules: its own, or its listener's.
    pub(super) fn has(&self, connection: &FiveTuple) -> bool {
        self.rules.contains_key(connection) || self.rules.contains_key(&FiveTuple { remote: None, ..*connection })
    }

    /// A rule has ended: sockets that were in repair mode by it are nobody's.
    pub(super) fn retire_ruleless(&mut self, threads: &Threads, uid: u32) {
        let mut repairs = core::mem::take(&mut self.repairs);
        let over = repairs.take_if(|repaired| !self.has(&repaired.flow()));
        self.repairs = repairs;
        over.into_iter().for_each(|repaired| threads.retire(uid, repaired));
    }

    /// The same of those that are so for too long.
    pub(super) fn retire_late(&mut self, threads: &Threads, uid: u32) {
        let late = self.repairs.take_if(|repaired| repaired.since.elapsed() > REPAIRED_WITHIN);
        late.into_iter().for_each(|repaired| threads.retire(uid, repaired));
    }

    /// The ring is no more, and its rules have ended.
    pub(super) fn retire_all(&mut self, threads: &Threads, uid: u32) {
        self.repairs.is_over.store(true, Ordering::SeqCst);
        self.repairs.all.drain(..).for_each(|repaired| threads.retire(uid, repaired));
    }
}

impl Guest {
    /// A connection that a socket in repair mode may be: it comes to the ring, and no other user's socket would have it.
    fn may_repair(&mut self, house: &mut House, local: SocketAddr, remote: SocketAddr) -> Result<(), Refusal> {
        let uid = self.uid;
        let ring = self.ring()?;
        let flow = FiveTuple { protocol: Protocol::Tcp, local, remote: Some(remote) };
        if !ring.has(&flow) {
            return Err(Refusal::NotItsFlow(local));
        }
        allowed::may_have(&mut house.monitor, ring.link, &mut house.holders, &flow, uid)
    }

    /// (What is left of the descriptors is the caller's to close.)
    pub(super) fn begin_repair(&mut self, house: &mut House, passed: &mut Vec<OwnedFd>, (local, remote): Ends) -> Result<(), Refusal> {
        self.may_repair(house, local, remote)?;
        let (guest, uid) = (self.id, self.uid);
        let (socket, repairs) = (passed.last().ok_or(Refusal::Descriptor)?, &self.ring()?.repairs);
        if repairs.index(socket).is_ok() {
            return Err(Refusal::Malformed("the socket is in repair mode".to_owned()));
        }
        if repairs.all.len() >= REPAIRED_MAX {
            return Err(Refusal::Repairs(REPAIRED_MAX));
        }
        let cookie = cookie_of(socket.as_fd()).ok_or(Refusal::Descriptor)?;
        let socket = passed.pop().ok_or(Refusal::Descriptor)?;
        self.is_asked = true;
        house.threads.ask(uid, 1, move || {
            let (answer, began) = match leave::begin_repair(socket.as_fd(), local) {
                Ok(()) => (Ok(()), Some(Repaired { socket, cookie, local, remote, since: Instant::now() })),
                Err(error) => (Err(kernel(&error)), None),
            };
            Done { guest, uid, answer, began }
        });
        Ok(())
    }

    /// Whether what a thread has put into repair mode may be so still: else it is not.
    pub(super) fn has_begun(&mut self, repaired: Repaired, threads: &Threads) -> Result<(), Refusal> {
        match &mut self.ring {
            Some(ring) if ring.has(&repaired.flow()) => {
                ring.repairs.all.push(repaired);
                Ok(())
            }
            _ => {
                let local = repaired.local;
                threads.retire(self.uid, repaired);
                Err(Refusal::NotItsFlow(local))
            }
        }
    }

    /// The socket is a connection's again: of one that is the program's still.
    pub(super) fn end_repair(&mut self, house: &mut House, passed: &mut Vec<OwnedFd>, probes: bool) -> Result<(), Refusal> {
        let (guest, uid) = (self.id, self.uid);
        let (socket, ring) = (passed.last().ok_or(Refusal::Descriptor)?, self.ring()?);
        let at = ring.repairs.index(socket)?;
        let (repaired, is_over) = (ring.repairs.all.swap_remove(at), Arc::clone(&ring.repairs.is_over));
        let (local, remote) = (repaired.local, repaired.remote);
        if let Err(why) = self.may_repair(house, local, remote) {
            house.threads.retire(uid, repaired);
            return Err(why);
        }
        let passed = core::mem::take(passed);
        self.is_asked = true;
        house.threads.ask(uid, 1 + passed.len(), move || {
            let ended = leave::end_repair(repaired.socket(), (local, remote), probes);
            if ended.is_ok() && is_over.load(Ordering::SeqCst) {
                let _ = leave::retire(repaired.socket());
            }
            drop((passed, repaired));
            Done { guest, uid, answer: ended.map_err(|error| kernel(&error)), began: None }
        });
        Ok(())
    }

    pub(super) fn reserve(&mut self, house: &mut House, passed: &mut Vec<OwnedFd>, receive: u32, send: u32) -> Result<(), Refusal> {
        let (guest, uid) = (self.id, self.uid);
        self.ring()?.repairs.index(passed.last().ok_or(Refusal::Descriptor)?)?;
        let socket = passed.pop().ok_or(Refusal::Descriptor)?;
        let [receive, send] = [receive, send].map(|len| len.min(BUFFER_MAX) as usize);
        self.is_asked = true;
        house.threads.ask(uid, 1, move || {
            let reserved = leave::reserve(socket.as_fd(), receive, send);
            drop(socket);
            Done { guest, uid, answer: reserved.map_err(|error| kernel(&error)), began: None }
        });
        Ok(())
    }
}
