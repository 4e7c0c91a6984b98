//! A child's side: what it inherited is its parent's until it asks for it.

use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::io;
use std::net::SocketAddr;

use ringway_devices::{Dialogue, MemberRef};

use super::{ANSWER, PATIENCE, pair, pause_again};
use crate::descendants;
use crate::errno;
use crate::fdtable::{self, Entry};
use crate::process::Process;
use crate::real;
use crate::slab::Key;
use crate::socket::{Family, Kind, Socket};

/// Forks of forks that keep what they inherited apart.
const GENERATIONS: usize = 8;
/// Where an inherited entry's index has the generation.
const GENERATION_SHIFT: u32 = 26;

/// The states of this process's ancestors, as they were when it, or its own ancestors, were forked off.
static ANCESTORS: [AtomicPtr<Process>; GENERATIONS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; GENERATIONS];

/// In the child of a fork: everything that its parent owned is inherited. Async-signal-safe.
pub(crate) fn inherit(parent: &'static Process) {
    let Some((generation, place)) = ANCESTORS.iter().enumerate().find(|(_, place)| place.load(Ordering::Relaxed).is_null()) else {
        return;
    };
    // SAFETY: the parent's other threads, which may have used the state, are not in this process.
    let sockets = unsafe { &parent.state().value_of_the_dead().sockets };
    let mut any = false;
    for (fd, entry) in fdtable::entries() {
        let (Entry::Socket(key) | Entry::Moving(key)) = entry else { continue };
        let is_connection =
            sockets.find(key).is_some_and(|socket| matches!(socket.kind, Kind::Stream(_) | Kind::Connecting(_) | Kind::Moving));
        if is_connection && key.index < 1 << GENERATION_SHIFT {
            let index = key.index | (generation as u32) << GENERATION_SHIFT;
            fdtable::change(fd, Entry::Inherited(Key { index, generation: key.generation }));
            any = true;
        }
    }
    if any {
        place.store(core::ptr::from_ref(parent).cast_mut(), Ordering::Relaxed);
    }
}

/// What is known of an inherited connection.
pub(super) struct InheritedConnection {
    pub(super) owner: MemberRef,
    /// As the owner had it at the fork.
    pub(super) socket: &'static Socket,
    family: Family,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// What the child has is a placeholder that its parent's connections have in common: nobody prepared for the fork.
    pub(super) is_common: bool,
}

fn inherited_connection(key: Key) -> Option<InheritedConnection> {
    let generation = (key.index >> GENERATION_SHIFT) as usize;
    // SAFETY: states are leaked, so what the pointer names lives.
    let parent = unsafe { ANCESTORS.get(generation)?.load(Ordering::Relaxed).as_ref() }?;
    let key = Key { index: key.index & ((1 << GENERATION_SHIFT) - 1), generation: key.generation };
    // SAFETY: as in `inherit`; nobody in this process writes it but `fork::adopt`, which leaves sockets' addresses alone.
    let socket = unsafe { parent.state().value_of_the_dead() }.sockets.find(key)?;
    let (owner, family, is_common) = (parent.rendezvous().member_ref(), socket.family, socket.common.is_some());
    Some(InheritedConnection { owner, socket, family, local: socket.bound?, remote: socket.peer?, is_common })
}

/// The addresses of an inherited connection that is the kernel's now, as the program knows them: its own, and its peer's.
pub(crate) fn names(fd: c_int) -> Option<(SocketAddr, SocketAddr, Family)> {
    let Entry::Settled(key) = fdtable::peek(fd) else { return None };
    let known = inherited_connection(key).filter(|_| !fdtable::is_stale_now(fd))?;
    Some((known.local, known.remote, known.family))
}

/// The program uses an inherited connection: it becomes ours, if nobody else has it any more. Else its owner is asked to move it to the
/// kernel, and waited for; from then on the descriptor is the kernel's, and none of ours.
#[cold]
pub(crate) fn settle(fd: c_int, key: Key) -> Entry {
    settle_as(fd, key, true)
}

fn settle_as(fd: c_int, key: Key, may_own: bool) -> Entry {
    let saved = errno::current();
    if !crate::fork::tables_are_ours() {
        // A vfork child: what it uses moves, but the entries are its parent's, who settles in its turn.
        if let Some(inherited_connection) = inherited_connection(key).filter(|_| !fdtable::is_stale_now(fd)) {
            inherited_connection.claim(fd, key);
        }
        errno::set(saved);
        return Entry::None;
    }
    if fdtable::is_stale_now(fd) {
        // It was closed by a call that the library did not see, and is something else by now.
        fdtable::clear(fd);
        return Entry::None;
    }
    if let Some(inherited_connection) = inherited_connection(key) {
        if may_own && let Some(ours) = inherited_connection.adopt(fd, key) {
            errno::set(saved);
            return ours;
        }
        inherited_connection.claim(fd, key);
    }
    for (copy, entry) in fdtable::entries() {
        if entry == Entry::Inherited(key) {
            fdtable::change_if(copy, entry, Entry::Settled(key));
        }
    }
    errno::set(saved);
    Entry::None
}

/// In a vfork child, whose `fd` is still the placeholder that its parent's connections have in common: the connection's own, which the
/// parent, `owner`, has by now.
pub(super) fn claim_moved(owner: &MemberRef, fd: c_int, local: SocketAddr, remote: SocketAddr) {
    let words = format!("release {local} {remote}");
    let answer = Dialogue::begin(owner, ANSWER).ok().flatten().and_then(|dialogue| dialogue.ask(words.as_bytes(), &[], ANSWER).ok());
    match answer {
        Some((words, passed)) if words == b"here" && !passed.is_empty() => {
            let _ = pair::replace(fd, &passed[0]);
        }
        _ => tracing::warn!("the connection {local} - {remote} is not to be had for a vfork child"),
    }
}

/// The child of a fork that nobody saw tells its parent of itself: what both have does not end before both are done with it.
pub(crate) fn announce() {
    let Some(parent) = crate::fork::forker() else { return };
    if !fdtable::entries().any(|(_, entry)| matches!(entry, Entry::Inherited(_))) {
        return;
    }
    // Ours is closed by exec, and by the end of the process.
    let Some([reading, _]) = descendants::pipe_out_of_the_way() else { return };
    let told = Dialogue::begin(&parent.rendezvous().member_ref(), ANSWER)
        .ok()
        .flatten()
        .and_then(|dialogue| dialogue.ask(b"forked", &[reading], ANSWER).ok());
    if told.is_none() {
        tracing::debug!("the parent, process {}, does not hear of its child", parent.owner_pid);
    }
    fdtable::clear(reading);
    // SAFETY: made above, and nobody else closes it.
    unsafe { real::close(reading) };
}

/// A child without a state of its own hands inherited listeners to another program: their owner is told.
pub(crate) fn share_listeners(which: impl Fn(c_int) -> bool) {
    let Some(parent) = crate::fork::forker() else { return };
    // SAFETY: as in `inherited_connection`.
    let sockets = unsafe { &parent.state().value_of_the_dead().sockets };
    for (fd, entry) in fdtable::entries() {
        if let Entry::Socket(key) = entry
            && let Some(local) = sockets.find(key).filter(|s| matches!(s.kind, Kind::Listener(_))).and_then(|s| s.bound)
            && which(fd)
            && let Ok(Some(dialogue)) = Dialogue::begin(&parent.rendezvous().member_ref(), ANSWER)
        {
            let _ = dialogue.ask(format!("share {local}").as_bytes(), &[], ANSWER);
        }
    }
}

/// Settles every inherited connection that `which` names: of this process, which is about to lose the means.
pub(crate) fn settle_all(which: impl Fn(c_int) -> bool) {
    if ANCESTORS[0].load(Ordering::Relaxed).is_null() {
        return;
    }
    for (fd, entry) in fdtable::entries() {
        if let Entry::Inherited(key) = entry
            && which(fd)
        {
            settle_as(fd, key, false);
        }
    }
}

impl InheritedConnection {
    fn claim(&self, fd: c_int, key: Key) {
        let words = format!("release {} {}", self.local, self.remote);
        let started = std::time::Instant::now();
        // (Connected it may be before all that was owed was written into it.)
        loop {
            let ask = |dialogue: Dialogue| dialogue.ask(words.as_bytes(), &[], ANSWER);
            match Dialogue::begin(&self.owner, ANSWER).and_then(|dialogue| dialogue.map(ask).transpose()) {
                // However long: what is owed comes first, as a send to a slow reader waits.
                Ok(Some((words, _))) if words == b"wait" => pause_again(started),
                // It is busy, or ends just now: then nobody is there the next time.
                Err(error) if is_passing(&error) && started.elapsed() < PATIENCE => pause_again(started),
                Ok(Some((words, passed))) if words == b"here" && !passed.is_empty() => {
                    for (copy, _) in fdtable::entries().filter(|&(_, entry)| entry == Entry::Inherited(key)) {
                        let _ = pair::replace(copy, &passed[0]);
                    }
                    return;
                }
                _ if !self.is_common && is_connected(fd) && !is_in_repair(fd) => return,
                answer => {
                    let stays = matches!(&answer, Ok(Some((words, _))) if words == b"stays");
                    self.tell_why(stays);
                    self.leave_repair(key, fd, matches!(answer, Ok(None)));
                    if self.is_common && pair::socket(self.family).and_then(|fresh| pair::replace(fd, &fresh)).is_err() {
                        return;
                    }
                    pair::reset(fd, self.family, self.local, self.remote);
                    return;
                }
            }
        }
    }
}

impl InheritedConnection {
    /// It is reset in this process. `stays`: its owner has it still.
    fn tell_why(&self, stays: bool) {
        let (local, remote, owner) = (self.local, self.remote, self.owner.pid());
        if stays {
            tracing::warn!(
                "the connection {local} - {remote} goes on in process {owner} alone, which could not give it to the kernel (its log says why): for this process, which inherited it, it is reset. \
                 Let that process alone use it, give the processes at both ends CAP_NET_ADMIN, or leave such connections to the kernel by a rule (libvma.conf: use os)"
            );
        } else {
            tracing::warn!("the connection {local} - {remote}, inherited from process {owner}, which has it no more, is reset");
        }
    }

    /// Its owner died while it put the connection into the kernel, or stands still: there it says nothing, and hears no reset. All of its numbers get a socket without it. If it is nobody's any more (`is_dead`),
    /// the other end gets a reset, if this process may send one (CAP_NET_ADMIN).
    fn leave_repair(&self, key: Key, fd: c_int, is_dead: bool) {
        if self.is_common || !is_in_repair(fd) {
            return;
        }
        let Ok(fresh) = pair::socket(self.family) else { return };
        if is_dead {
            pair::end_repair_aloud(fd);
        }
        for (copy, _) in fdtable::entries().filter(|&(_, entry)| entry == Entry::Inherited(key)) {
            let _ = pair::replace(copy, &fresh);
        }
    }
}

/// Whether a process has begun to put a connection behind the descriptor, and has not gone on to the end (TCP_REPAIR).
fn is_in_repair(fd: c_int) -> bool {
    let mut is_on: c_int = 0;
    let mut len = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the value is as long as it says.
    let asked = unsafe { real::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR, (&raw mut is_on).cast(), &raw mut len) };
    asked == 0 && is_on != 0
}

/// Whether a question that failed so may be asked again.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, UnexpectedEof, WouldBlock};
    matches!(error.kind(), TimedOut | UnexpectedEof | WouldBlock | BrokenPipe | ConnectionReset)
}

/// Whether the kernel has a connection behind the descriptor, or has had one.
fn is_connected(fd: c_int) -> bool {
    const CLOSE: u8 = 7;
    // SAFETY: all of it is integers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { core::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the structure is as long as it says.
    let asked = unsafe { real::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &raw mut len) };
    asked != 0 || info.tcpi_state != CLOSE
}
