//! Writes to a peer's memory that need nothing of the peer's processor.
//!
//! A member publishes which memory of its program's which peer may write to. Keys and bounds are checked by who writes, against what the owner published and can
//! revoke at any time; then the kernel copies from process to process, once (process_vm_writev(2)). That it does so is the kernel's own decision: it lets a process write to those that it may
//! trace, and so to nothing that it could not write to anyway. Where it does not (Yama's ptrace_scope, a process that is not dumpable, a PID or user namespace between), or has
//! not got the call, frames carry the bytes.
//!
//! Where the owner shares memory that both map ([`Rendezvous::share`]), no system call is needed, and the kernel is not asked.
//!
//! Both ends may die at any time. What a writer has begun ends with it, before its connection does, which is why no writer whose connection has ended is waited
//! for. Whose owner has died is not written to: its connection has ended, which is looked at before each write. In the instant between, an owner could die, and its number go
//! to another process of the same user: the kernel gives each number once in pid_max before it begins anew.

use core::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use super::Rendezvous;
use super::links::Entry;
use crate::area::AreaPart;
use crate::error::WriteError;
use crate::link::Link;
use crate::protocol::{Place, Region, Write};
use crate::sys;

/// Memory of the program's that one peer may write to by itself.
#[derive(Clone, Copy, Debug)]
pub struct PublishedRegion {
    /// Its remote key.
    pub key: u32,
    /// The member ([`crate::PeerInfo::id`]) whose queue pair may write there.
    pub peer: u64,
    /// The queue pair of ours that that one is connected to.
    pub qp: u32,
    /// The address by which writes name its first byte.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// Where it begins in this process's memory.
    pub start: usize,
}

/// A write to a peer's region.
#[derive(Clone, Copy, Debug)]
pub struct RegionWrite<'a> {
    /// The member ([`crate::PeerInfo::id`]) whose region it is.
    pub owner: u64,
    /// Its queue pair, to which ours is connected.
    pub qp: u32,
    /// The region's remote key.
    pub key: u32,
    /// The address of the first byte.
    pub address: u64,
    /// What is written.
    pub bytes: &'a [u8],
}

impl Rendezvous {
    /// Lets a peer write to memory of the program's by itself, until [`Rendezvous::revoke_region`]. `false`: there is no place for one more with such a key.
    ///
    /// # Safety
    /// The program has promised the memory, for that long.
    pub unsafe fn publish_region(&self, region: &PublishedRegion) -> bool {
        let PublishedRegion { key, peer, qp, address, len, start } = *region;
        let has_left = self.lock().has_left;
        !has_left && self.member.publish(&Region { key, peer, qp, address, len, place: Place::Process(start as u64) })
    }

    /// Ends that. Nobody begins to write there from now on; who has begun ends soon ([`Rendezvous::is_region_written`]).
    pub fn revoke_region(&self, key: u32) {
        self.member.revoke(key);
    }

    /// Memory that a peer writes to by itself, and without a system call ([`Rendezvous::write_shared`]), as `len` bytes of the region of this key, until it is dropped. `qp`: our queue pair to which
    /// the peer's is connected; `address`: that by which writes name the first byte. `None`: there is no room ([`crate::Settings::area_bytes`]), or no such peer.
    pub fn share(&self, peer: u64, key: u32, qp: u32, address: u64, len: usize) -> Option<AreaPart> {
        let link = self.living(&mut self.lock(), peer)?;
        AreaPart::share(link, key, qp, address, len)
    }

    /// Writes to what a peer [shares](Rendezvous::share) with us: all bytes, or none. Enters no kernel. `false`: the owner does not let this member, or shares nothing there.
    pub fn write_shared(&self, write: &RegionWrite<'_>) -> bool {
        let Some(link) = self.link_to(write.owner).filter(|_| !self.member.is_forked()) else { return false };
        let Some(area) = &link.their_area else { return false };
        let written = self.begin_write(&link, write, |place| match place {
            Place::Area(start) => area.write_there(start, write.bytes),
            Place::Process(_) => false,
        });
        written == Some(true)
    }

    /// The link with a member that is alive. That of the last write is known without the rendezvous's lock, which takes two system calls ([`super::held`]).
    fn link_to(&self, id: u64) -> Option<Arc<Link>> {
        let is_it = |link: &Arc<Link>| link.peer.id == id && link.is_alive();
        let last = self.writing().upgrade().filter(is_it);
        if last.is_some() {
            return last;
        }
        let state = self.lock();
        let entry = state.by_id.get(&id).and_then(|slot| state.links.get(usize::from(*slot))?.as_ref());
        let link = entry.map(|entry| entry.link.clone());
        drop(state);
        let link = link.filter(is_it)?;
        *self.writing() = Arc::downgrade(&link);
        Some(link)
    }

    /// A member says of one write at a time: whoever has this does.
    fn writing(&self) -> MutexGuard<'_, Weak<Link>> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that a write is under way while `copy` does it, if the owner lets us.
    fn begin_write<T>(&self, link: &Link, write: &RegionWrite<'_>, copy: impl FnOnce(Place) -> T) -> Option<T> {
        let own = &*self.member.segment;
        let RegionWrite { owner, qp, key, address, bytes } = *write;
        let asked = Write { writer: self.member.id, owner, qp, key, address, len: bytes.len() as u64 };
        let _one = self.writing();
        let written = asked.begin(own, &link.peer.view).map(copy);
        Write::end(own);
        written
    }

    /// Whether a peer that is alive is in the middle of a write to a region that was revoked. That lasts as long as a copy of [`RegionWrite::bytes`] does, unless the
    /// peer is stopped just then.
    pub fn is_region_written(&self, key: u32) -> bool {
        let is_it = |entry: &Entry| {
            let link = &entry.link;
            let is_there = || link.is_alive() && !entry.socket.as_ref().is_some_and(|socket| sys::is_hung_up(socket));
            Write::is_under_way(self.member.id, key, &link.peer.view) && is_there()
        };
        !self.member.is_forked() && self.lock().links.iter().flatten().any(is_it)
    }

    /// Writes to a peer's region, all bytes or none as far as the caller is to know, and the last byte last. They are there when this returns.
    ///
    /// # Errors
    /// [`WriteError::Refused`]: the owner does not let this member, or the kernel does not: nothing was written. [`WriteError::Fault`]: what the owner published is not
    /// mapped there, or not writable; some may have been written.
    pub fn write_region(&self, write: &RegionWrite<'_>) -> Result<(), WriteError> {
        let is_there = |link: &Arc<Link>| !link.connection.as_ref().is_some_and(|connection| sys::is_hung_up(connection));
        let link = self.link_to(write.owner).filter(is_there).or_else(|| self.living(&mut self.lock(), write.owner));
        let Some(link) = link else { return Err(WriteError::Refused) };
        // (Of another PID namespace, it has no number here.)
        if link.pid <= 0 || link.is_closed_to_writes.load(Ordering::Relaxed) {
            return Err(WriteError::Refused);
        }
        let written = self.begin_write(&link, write, |place| match place {
            Place::Process(start) => Some(sys::write_to_process(link.pid, start, write.bytes)),
            Place::Area(_) => None,
        });
        match written.flatten() {
            None => Err(WriteError::Refused),
            Some(Ok(())) => Ok(()),
            Some(Err(error)) if error.raw_os_error() == Some(libc::EFAULT) => Err(WriteError::Fault),
            Some(Err(error)) => {
                // (It is gone, as will be heard, or the kernel does not let us, and will not.)
                if error.raw_os_error() != Some(libc::ESRCH) {
                    tracing::debug!(pid = link.pid, "no writes to the peer's memory: {error}");
                    link.is_closed_to_writes.store(true, Ordering::Relaxed);
                }
                Err(WriteError::Refused)
            }
        }
    }

    /// Says what a member says that ends, or is stopped, in the middle of a write.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn say_writing(&self, word: u64) {
        use crate::protocol::WriteWords as _;
        self.member.segment.store(crate::layout::WRITING_AT, word, Ordering::Release);
    }
}
