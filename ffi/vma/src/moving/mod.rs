//! Connections that leave the ring for the kernel, because a process that does not own them is to use them as well.
//!
//! A ring has one owner, but fork, exec and SCM_RIGHTS make several processes share a socket's open file. So when a second process
//! comes to use a connection, the connection becomes what the kernel shares well: a connection of the kernel's. Its owner (who has the
//! ring's end, [`owner`]) and its peer (the process at the other end, [`peer`]) take it off their rings and lay together what either has
//! not read yet ([`ringway_stack::tcp::Undelivered`]); the owner connects the placeholder itself, which all sharers have, to a fresh
//! descriptor, which takes the place of the peer's placeholder ([`pair`]); and what was owed is written into it, before anything
//! else. From then on it is the kernel's in every process, whoever uses it, in whatever turn.
//!
//! Within the process, a connection goes over to the ring of the thread that uses it ([`migration`]).
//!
//! What a fork's child alone goes on with changes its owner instead, and stays on the ring ([`awaiting_child`], [`adoption`]): the parent has closed
//! it when the child first uses it, or does so soon after.
//!
//! A move to the kernel begins when
//! - a fork's child first uses what it inherited ([`inherited`]: it asks the owner, and waits);
//! - the owner closes its last descriptor, or ends, while a child that was forked since is alive ([`crate::descendants`]);
//! - exec is to keep a descriptor, or one is sent by SCM_RIGHTS ([`crate::exports`]);
//! - the program sends urgent data (MSG_OOB), whose mark and signals are the kernel's;
//! - a process is about to lose the means: before it changes its user or root, or enters a sandbox;
//! - a process ends, or becomes another program, while a peer of its does not read what it has written ([`crate::exit`]): the kernel keeps
//!   that, and what the kernel has no room for, the peer's process.
//!
//! A connection over an interface has no peer to agree with: the kernel beside the interface takes it over as it is ([`to_kernel`]). On a verbs device, both
//! kernels do, at one time ([`together`]).
//!
//! The words of the dialogue (see [`Dialogue`](ringway_devices::Dialogue); addresses are the asked side's own, then the other's):
//! - `release L R` of a child to the owner: `wait`; `here` with a descriptor that is to take the place of the child's; `stays`, when the kernel cannot
//!   have it, and the owner goes on with it; or `gone`, when the child's own is the kernel's by now, or there is no such connection
//! - `leave L R REASON` (`alone`, if the owner's own program has closed it) of the owner to the peer: `left` or `unaccepted` with what is undelivered in
//!   a memfd, `wait`, or `gone`
//! - `adopt L R` of a child to the owner: `open`, while the owner has a descriptor of its own; `meet MEMBER`, who is at the other end; or `no`
//! - `give L R` then: `given`, with the connection in a memfd; or `no`
//! - `handover L R MEMBER` in the same dialogue, of the child that has it on its ring: `wait`; `yours`; or `back`, when it is not to be had after all
//! - `follow L R MEMBER` of the owner to the peer, when the connection is a child's, or on another ring of the owner's: `follows MEMBER`, who sends to that
//!   member from now on, from which ring of its own; `meet MEMBER`, whom that one does not know yet; `wait`; or `no`
//! - `forked`, with a pipe's reading end, of a child of a fork that nobody saw: `done`
//! - `share L` of a child that hands a listener to another program: `done`
//! - `take L R` of the owner to the peer, with the new descriptor and a memfd of what the owner is still to read: `taken`, or `gone`
//! - `keep L R` of an owner that ends to the peer, with the owner's own descriptor and a memfd of what is to be written into it before it is
//!   closed: `kept`, or `gone`; perhaps with a third descriptor, which is closed then. Only in the dialogue in which the connection was taken,
//!   or with a descriptor that is connected to a listener of the peer's in the kernel; and only so much for all ([`backlog`])
//!
//! Who dies in the middle takes the connection along, and the other side sees a reset; only a kill while what was owed is being written
//! may look like the end of a shorter stream. A move that does not end before its process does, or before others get the descriptor, is
//! given up, by a reset in every process ([`giving_up`]).

mod adoption;
mod at_exit;
pub(crate) mod awaiting_child;
mod backlog;
mod datagrams;
mod follow;
mod giving_up;
pub(crate) mod inherited;
mod job;
mod landing;
mod memfd;
pub(crate) mod migration;
pub(crate) mod owner;
mod pair;
mod peer;
pub(crate) mod retreat;
pub(crate) mod steered;
mod to_kernel;
pub(crate) mod together;

pub(crate) use backlog::{Backlogs, Taken};

use core::time::Duration;
pub(crate) use peer::copy_of;
use std::net::SocketAddr;
use std::sync::Arc;

use giving_up::File;
use ringway_devices::{Fd, Rendezvous};
use ringway_stack::offload::Reason;

use crate::exit::Patience;
use crate::lock::Guard;
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::socket::{Family, Kind, Socket, address};

/// A connection that is on its way to the kernel.
#[derive(Debug)]
pub(crate) struct Move {
    local: SocketAddr,
    remote: SocketAddr,
    /// Our socket, unless the program has closed it.
    key: Option<Key>,
    role: Role,
    /// What is written to on the way, and others may have.
    file: Option<Arc<File>>,
    reason: Reason,
    /// The socket's SO_REUSEADDR as the program has it, if it was set meanwhile.
    reuse_address: Option<i32>,
}

impl Move {
    fn is_between(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        (self.local, self.remote) == (local, remote)
    }
}

/// A connection that its peer moved, so that our descriptor is another one now than what children inherited before: kept for them.
#[derive(Debug)]
pub(crate) struct FormerDescriptor {
    local: SocketAddr,
    remote: SocketAddr,
    fd: Fd,
    birth: u32,
    /// The connection need not have moved yet.
    is_early: bool,
}

/// A connection that its peer moved before anybody here had accepted it: it comes from the kernel, for a reason that the kernel does not know.
#[derive(Debug)]
pub(crate) struct Unaccepted {
    remote: SocketAddr,
    reason: Reason,
}

/// So many are remembered; another process may accept them.
const UNACCEPTED_MAX: usize = 256;

/// Why a connection came from the kernel.
pub(crate) fn reason_of_accepted(offload: &mut Offload, fd: i32, family: Family) -> Reason {
    let known = if offload.unaccepted.is_empty() { None } else { address::of_peer(fd, family) };
    let at = known.and_then(|remote| offload.unaccepted.iter().position(|unaccepted| unaccepted.remote == remote));
    at.and_then(|at| offload.unaccepted.remove(at)).map_or(Reason::NoOffloadedPeer, |unaccepted| unaccepted.reason)
}

fn note_unaccepted(offload: &mut Offload, remote: SocketAddr, reason: Reason) {
    offload.unaccepted.retain(|unaccepted| unaccepted.remote != remote);
    if offload.unaccepted.len() >= UNACCEPTED_MAX {
        offload.unaccepted.pop_front();
    }
    offload.unaccepted.push_back(Unaccepted { remote, reason });
}

/// Lets go of what no child can ask for any more; whether something is left.
pub(crate) fn keep_former_descriptors(offload: &mut Offload) -> bool {
    offload.former_descriptors.retain(|former| crate::descendants::shared_since(former.birth));
    !offload.former_descriptors.is_empty()
}

/// What this process is in a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It began it, and has not asked yet.
    Asking,
    /// It began it, and the peer has left its ring.
    Owner,
    /// It has left its ring in this dialogue.
    Peer(u64),
    /// It has the descriptor that goes on, and writes into it what was owed.
    Writing,
    /// It began it, and the peer writes what was owed to it, whether we live on or not.
    Kept,
}

/// Between two looks at something that another process does.
const MOMENT: Duration = Duration::from_micros(100);

/// How long a program's call waits for a move that does not end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// How long a call waits for that which is not to wait: almost every move is over by then.
pub(crate) const MOMENTS: Duration = Duration::from_millis(20);

/// How long an answer of a process that is alive may take.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// Sets who answers other processes that talk to one of this one's members.
pub(crate) fn serve(process: &'static Process, rendezvous: &Rendezvous) {
    let member = rendezvous.member_ref().id();
    rendezvous.set_dialogue_handler(std::sync::Arc::new(peer::Answers { process, member }));
}

/// Another process is about to get a descriptor, or only the kernel can do what is asked: waits until the connection is the kernel's.
pub(crate) fn hand_out(fd: i32, reason: Reason) {
    use crate::fdtable::{Entry, lookup};
    let saved = crate::errno::current();
    // (What was inherited is settled by the lookup.)
    if let (Entry::Socket(key), Some(process)) = (lookup(fd), crate::process::process()) {
        retreat::share(&mut process.lock(), key);
        if !process.is_owner() {
            owner::lend(process, fd);
        } else if owner::begin_for(process, &mut process.lock(), key, reason)
            && !owner::await_all(process, owner::Waited::Ours, &mut Patience::of(PATIENCE), PATIENCE)
        {
            tracing::warn!("a connection that other processes share could not be moved to the kernel in time");
            if reason == Reason::SharedConnection {
                giving_up::give_up(&mut process.lock(), |moving| moving.key == Some(key));
            }
        }
    }
    crate::errno::set(saved);
}

/// The kernel is to do what the program asks of a connection, and this is begun, and waited for, for so long. `false`: it cannot be moved.
pub(crate) fn leave_to_kernel(process: &'static Process, key: Key, reason: Reason, patience: Duration) -> bool {
    let saved = crate::errno::current();
    let begun = owner::begin_for(process, &mut process.lock(), key, reason);
    let started = std::time::Instant::now();
    while begun && process.lock().moves.iter().any(|moving| moving.key == Some(key)) && started.elapsed() < patience {
        pause();
    }
    crate::errno::set(saved);
    begun
}

/// The two addresses behind a word.
fn addresses<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<(SocketAddr, SocketAddr)> {
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

pub(crate) fn pause() {
    pause_for(MOMENT);
}

/// A pause of who has waited since then, and goes on doing so: the longer, the longer, for there may be many that wait for something that takes the processor.
pub(crate) fn pause_again(since: std::time::Instant) {
    pause_for((since.elapsed() / 8).clamp(MOMENT, MOMENTS));
}

/// Below a second.
fn pause_for(time: Duration) {
    let mut nothing = libc::pollfd { fd: -1, events: 0, revents: 0 };
    let moment = libc::timespec { tv_sec: 0, tv_nsec: libc::c_long::from(time.subsec_nanos().cast_signed()) };
    // SAFETY: one pollfd that names no descriptor, and a valid time.
    unsafe { crate::real::ppoll(&raw mut nothing, 1, &raw const moment, core::ptr::null()) };
}

/// Locks the state for a close, whose number is out of the table already. What its peer began to move since the program's call looked is on
/// its way: without a socket, the descriptor that the peer sends would come to nobody, although children may have the connection.
pub(crate) fn lock_at_rest(process: &Process, key: Key) -> Guard<'_, Offload> {
    let started = std::time::Instant::now();
    loop {
        let guard = process.lock();
        let is_on_its_way = |socket: &Socket| socket.kind == Kind::Moving && socket.fds == 1;
        if !guard.sockets.find(key).is_some_and(is_on_its_way) || started.elapsed() > PATIENCE {
            return guard;
        }
        drop(guard);
        pause();
    }
}

/// Whether a call with these flags is not to wait for anything.
#[cold]
pub(crate) fn is_impatient(fd: i32, flags: i32) -> bool {
    // SAFETY: plain integers.
    flags & libc::MSG_DONTWAIT != 0 || unsafe { crate::real::fcntl(fd, libc::F_GETFL, 0) } & libc::O_NONBLOCK != 0
}

/// Waits, in a call of the program's, until the descriptor is on its way no more; what it is then.
#[cold]
pub(crate) fn await_end(fd: i32) -> crate::fdtable::Entry {
    await_end_for(fd, PATIENCE)
}

/// Whether a connection that was on its way when a call came to it, or that was this flow, is on a ring again: it could not be moved after all.
#[cold]
pub(crate) fn is_back(process: &Process, (fd, key): (i32, Key), before: Option<ringway_stack::ring::FlowId>) -> bool {
    let is_its = crate::fdtable::peek(fd) == crate::fdtable::Entry::Socket(key);
    is_its
        && process.lock().sockets.find(key).is_some_and(|socket| match socket.kind {
            Kind::Stream(id) | Kind::Connecting(id) => before != Some(id),
            _ => false,
        })
}

/// A call has come to a connection that was on its way: waits until that has ended. Whether the connection is on a ring, where the call is to be done again; it is the kernel's otherwise.
#[cold]
pub(crate) fn stays(process: &Process, fd: i32, key: Key) -> bool {
    crate::fdtable::lookup(fd);
    is_back(process, (fd, key), None)
}

/// As [`await_end`], for so long.
pub(crate) fn await_end_for(fd: i32, patience: Duration) -> crate::fdtable::Entry {
    use crate::fdtable::{Entry, peek};
    let holds_lock = crate::process::process().is_some_and(|process| process.has_lock());
    let saved = crate::errno::current();
    let started = std::time::Instant::now();
    while matches!(peek(fd), Entry::Moving(_)) && !holds_lock && started.elapsed() < patience {
        pause_again(started);
    }
    crate::errno::set(saved);
    match peek(fd) {
        // Whoever holds the lock looks the socket up, and finds it on its way.
        Entry::Moving(key) => Entry::Socket(key),
        entry => entry,
    }
}
