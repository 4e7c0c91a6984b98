//! Connections that change owner, as the child of a fork goes that inherited them: see [`super::awaiting_child`], whose parent's part it is.

use core::ffi::c_int;
use core::time::Duration;
use std::time::Instant;

use ringway_devices::{Dialogue, Fd, MemberRef};
use ringway_host::Blocked;
use ringway_stack::device::MacAddr;
use ringway_stack::ring::{FlowId, NextHop};

use super::inherited::InheritedConnection;
use super::{ANSWER, PATIENCE, memfd, pause};
use crate::descendants;
use crate::extra::threads;
use crate::fdtable::{self, Entry};
use crate::process::{self, Process};
use crate::slab::Key;
use crate::socket::Kind;

/// How long the parent may take to close what it leaves to its child, as it does right after the fork. Then both use it.
const PARTING: Duration = Duration::from_millis(10);

/// What became of it.
enum Outcome {
    Ours,
    /// It stays its owner's.
    Back,
    /// Nobody says.
    Unknown,
}

impl InheritedConnection {
    /// Takes it onto a ring of this process's own, under all of its numbers. `None`: it stays its owner's, which is to move it to the kernel.
    pub(super) fn adopt(&self, fd: c_int, inherited: Key) -> Option<Entry> {
        if !self.is_ours_alone() {
            return None;
        }
        let process = process::process_or_init().filter(|process| process.is_owner() && !process.has_lock())?;
        // One thread does it, for all that use the connection first at once, and nobody forks meanwhile.
        let _undisturbed = Blocked::new();
        let _alone = process::INIT.lock();
        match fdtable::peek(fd) {
            Entry::Inherited(known) if known == inherited => {}
            Entry::Settled(_) => return Some(Entry::None),
            entry => return Some(entry),
        }
        let dialogue = Dialogue::begin(&self.owner, ANSWER).ok()??;
        let peer = self.await_parting(&dialogue)?;
        let mac = process.rendezvous().meet(&peer).ok()??;
        let id = self.take(process, &dialogue, mac)?;
        match self.await_peer(process, &dialogue) {
            Outcome::Ours => return Some(self.enter(process, id, mac, fd, inherited)),
            // Without a word: what the peer knows of it is its owner's.
            Outcome::Back => {
                let mut guard = process.lock();
                guard.adopting = None;
                drop(guard.rings.of_mut(id).detach_stream(process.now(), id));
            }
            // If the peer sends to us by now, it sees a reset.
            Outcome::Unknown => {
                let mut guard = process.lock();
                guard.adopting = None;
                guard.rings.of_mut(id).close(process.now(), id, true);
                guard.dispatch();
            }
        }
        None
    }

    /// Whether nobody but this process and its parent can have it, and nothing of this process's knows the descriptor already.
    fn is_ours_alone(&self) -> bool {
        // SAFETY: getppid has no preconditions.
        let parent = unsafe { libc::getppid() };
        parent == self.owner.pid()
            && !descendants::shared_since(0)
            && !self.is_common
            && self.socket.rare.is_none()
            && !self.socket.watch.is_watched()
            && threads::wants_offload()
    }

    fn ask(&self, dialogue: &Dialogue, verb: &str, more: &str) -> Option<(String, Vec<Fd>)> {
        let words = format!("{verb} {} {}{more}", self.local, self.remote);
        let (words, passed) = dialogue.ask(words.as_bytes(), &[], ANSWER).ok()?;
        Some((String::from_utf8(words).ok()?, passed))
    }

    /// Waits until the parent has closed it: where its peer is. `None`: it has not, or cannot leave it to us.
    fn await_parting(&self, dialogue: &Dialogue) -> Option<MemberRef> {
        let started = Instant::now();
        loop {
            let (answer, _) = self.ask(dialogue, "adopt", "")?;
            match answer.split_once(' ') {
                Some(("meet", id)) => return u64::from_str_radix(id, 16).ok().map(MemberRef::told),
                None if answer == "open" && started.elapsed() < PARTING => pause(),
                _ => return None,
            }
        }
    }

    /// Takes it onto the ring, where it says nothing yet.
    fn take(&self, process: &Process, dialogue: &Dialogue, mac: MacAddr) -> Option<FlowId> {
        let (answer, passed) = self.ask(dialogue, "give", "")?;
        let bytes = passed.first().filter(|_| answer == "given").and_then(|file| memfd::read(file).ok())?;
        let (ends, hop) = ((self.local, self.remote), NextHop::Mac(mac));
        let mut guard = process.lock();
        let id = guard.rings.first_mut().ring.adopt_snapshot(process.now(), ends, hop, &self.socket.tcp, &bytes).ok()?;
        guard.adopting = Some((self.local, self.remote));
        Some(id)
    }

    /// Waits until the peer sends to us.
    fn await_peer(&self, process: &Process, dialogue: &Dialogue) -> Outcome {
        let member = format!(" {:016x}", process.rendezvous().member_ref().id());
        let started = Instant::now();
        while let Some((answer, _)) = self.ask(dialogue, "handover", &member)
            && started.elapsed() < PATIENCE
        {
            match answer.as_str() {
                "yours" => return Outcome::Ours,
                "wait" => pause(),
                _ => return Outcome::Back,
            }
        }
        Outcome::Unknown
    }

    /// It is ours: the program's numbers name it.
    fn enter(&self, process: &Process, id: FlowId, mac: MacAddr, fd: c_int, inherited: Key) -> Entry {
        let mut guard = process.lock();
        let offload = &mut *guard;
        offload.adopting = None;
        let mut socket = self.socket.copy_for_child(fd);
        (socket.kind, socket.ring, socket.reason, socket.is_adopted) = (Kind::Stream(id), id.ring, None, true);
        // SAFETY: plain integers.
        socket.nonblocking = unsafe { crate::real::fcntl(fd, libc::F_GETFL, 0) } & libc::O_NONBLOCK != 0;
        let numbers: Vec<c_int> = fdtable::entries().filter(|&(_, entry)| entry == Entry::Inherited(inherited)).map(|(fd, _)| fd).collect();
        socket.fds = numbers.len() as u32;
        let key = offload.sockets.insert(socket);
        offload.link(id, key.index);
        offload.decided("fork", None);
        for number in numbers {
            fdtable::change_if(number, Entry::Inherited(inherited), Entry::Socket(key));
        }
        // (What fails here is found by the program's next call.)
        let _ = offload.rings.of_mut(id).tcp_retarget(process.now(), id, NextHop::Mac(mac));
        offload.dispatch();
        tracing::debug!("the connection {} - {}, inherited from process {}, is ours", self.local, self.remote, self.owner.pid());
        Entry::Socket(key)
    }
}
