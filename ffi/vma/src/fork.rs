//! fork(2): everything offloaded stays the parent's, which neither shares its ring with the child nor loses it.
//!
//! The child forgets the parent's state without touching it (its shared mappings are the parent's to write). The table of
//! descriptors stays; the child's first use of one makes it a state of its own, in which listeners and UDP sockets are
//! published anew. Connections change their owner, or move to the kernel, when the child first uses them ([`crate::moving`]).
//! So a program that becomes a daemon after it listened goes on, and one that only forks to exec a helper pays for two pointers.
//!
//! Who has an inherited listener's rule must also accept. So a process that forks before it ever waited on a listener gives
//! the rule up (connections that nobody accepted yet are reset), and each process publishes a listener when it first waits on
//! it: a parent that leaves accepting to its workers is not in their way. What a parent keeps is published when it ends.
//!
//! The handlers of pthread_atfork(3) see fork, forkpty and what else is made of fork. The other ways of libc's run them by themselves
//! (`exports::clone`), and a child of a way below libc notices by itself ([`unseen`]).

pub(crate) mod sharing;
pub(crate) mod suspension;

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};

use ringway_devices::Rendezvous;
use ringway_host::Pidfd;
use ringway_stack::offload::Reason;

use crate::descendants;
use crate::exports::signal;
use crate::fdtable::{self, Entry};
use crate::lock::Lock;
use crate::memory;
use crate::moving::{self, inherited};
use crate::process::{self, Offload, Process};
use crate::slab::Key;
use crate::socket::{Kind, Socket, accept, common, datagram, greeting, listen, plain};
use crate::unseen;

/// In a child: the state that its parent had, to be adopted.
static INHERITED: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// The locks beside the state's, in the order in which they are taken. A child whose parent had another thread hold one would
/// never get it.
static OUTER: [&Lock<()>; 2] = [&process::INIT, &accept::KERNEL_ACCEPT];

/// Which of [`OUTER`] the prepare handler locked; written under the first of them, by the thread that forks.
static LOCKED: AtomicU32 = AtomicU32::new(0);

/// Listeners are to be given up as soon as nobody waits at them; written under the state's lock, by the thread that forks.
static RETREAT: AtomicBool = AtomicBool::new(false);

/// The child of a fork whose tables these are, while it has no state of its own.
static TABLES_OF: AtomicI32 = AtomicI32::new(0);

/// Whether the calling process is the one whose tables these are: false in a vfork child, which may only touch descriptors.
pub(crate) fn tables_are_ours() -> bool {
    process::process().map_or_else(
        || {
            let child = TABLES_OF.load(Ordering::Relaxed);
            child == 0 || child == unseen::own_pid()
        },
        Process::is_callers,
    )
}

/// In a child that has made no state of its own yet: its parent's.
pub(crate) fn forker() -> Option<&'static Process> {
    // SAFETY: states are leaked, so what the pointer names lives.
    unsafe { INHERITED.load(Ordering::Acquire).as_ref() }
}

/// Registers the handlers, when the library is loaded: the program's own prepare handlers run before ours.
pub(crate) fn install() {
    unseen::install();
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

/// A fork is under way of which our handlers are told; written with every lock held, or by the only thread that there is.
static IS_TOLD: AtomicBool = AtomicBool::new(false);

/// Before a fork: nothing of ours is in the middle of a change.
pub(crate) extern "C" fn prepare() {
    let mut locked = 0;
    for (bit, lock) in OUTER.iter().enumerate() {
        // A signal handler that forks may have interrupted its own thread with the lock held.
        if !lock.is_mine() {
            core::mem::forget(lock.lock());
            locked |= 1 << bit;
        }
    }
    LOCKED.store(locked, Ordering::Relaxed);
    if let Some(process) = process::process() {
        let mut guard = process.lock();
        if process.is_owner() {
            guard.share_flows();
            RETREAT.store(listen::give_up_unawaited(process, &mut guard), Ordering::Relaxed);
            greeting::leave_all(process, &mut guard);
            common::own_all(&mut guard);
        }
        let is_shared = |socket: &Socket| {
            matches!(socket.kind, Kind::Connecting(_) | Kind::Stream(_) | Kind::Moving | Kind::Listener(_)) || socket.is_left_by_fork
        };
        descendants::before(guard.sockets.iter().any(|(_, socket)| is_shared(socket)));
        if process.is_owner() {
            sharing::begin(&mut guard, process.now());
        }
        // No other thread is in the middle of something with a ring.
        guard.rings.take_all();
        core::mem::forget(guard);
    }
    memory::lock_for_fork();
    IS_TOLD.store(true, Ordering::Relaxed);
}

/// After it, in the parent, or if it failed.
pub(crate) extern "C" fn parent() {
    IS_TOLD.store(false, Ordering::Relaxed);
    // Taken first: with the state's lock go the signals that were put off, and their handlers may fork.
    let locked = LOCKED.swap(0, Ordering::Relaxed);
    // SAFETY: `prepare` locked it.
    unsafe { memory::unlock_after_fork() };
    if let Some(process) = process::process() {
        descendants::after_in_parent();
        // SAFETY: `prepare` locked it, and forgot the guard.
        unsafe { process.state().unlock_after_fork() };
        if RETREAT.swap(false, Ordering::Relaxed) {
            crate::boundary!((), moving::retreat::begin(process));
        }
    }
    unlock_outer(locked);
}

fn unlock_outer(locked: u32) {
    for (bit, lock) in OUTER.iter().enumerate().rev() {
        if locked & 1 << bit != 0 {
            // SAFETY: `prepare` locked it, and forgot the guard.
            unsafe { lock.unlock_after_fork() };
        }
    }
}

/// After it, in the child.
pub(crate) extern "C" fn child() {
    // What other libraries do in such a handler may have needed it before.
    if !IS_TOLD.swap(false, Ordering::Relaxed) {
        return;
    }
    unseen::restore();
    TABLES_OF.store(unseen::own_pid(), Ordering::Relaxed);
    // What was put off during the fork was for the parent.
    signal::forget_deferred();
    // Its parent's threads wait for nothing of its own.
    memory::forget_waiters();
    OUTER.iter().for_each(|lock| lock.forget_waiters());
    // SAFETY: `prepare` locked it.
    unsafe { memory::unlock_after_fork() };
    inherit();
    unlock_outer(LOCKED.swap(0, Ordering::Relaxed));
    suspension::pass_to_child();
}

/// Makes what the parent had an inheritance.
fn inherit() {
    // Their rings are its parent's.
    plain::unsay_all_in_child();
    if let Some(old) = process::take_for_child() {
        INHERITED.store(ptr::from_ref(old).cast_mut(), Ordering::Release);
        // SAFETY: the parent's other threads, which may have used the state, are not in this process.
        let state = unsafe { old.state().value_of_the_dead() };
        common::leave_to_parent(state);
        crate::mux::beside::leave_to_parent(state);
        inherited::inherit(old);
        descendants::after_in_child();
        old.published.leave_to_parent();
        old.rendezvous_of_all().for_each(Rendezvous::after_fork_in_child);
        ringway_host::fd::close_all_in_child();
    }
}

/// In a child that has found out by itself that it is one ([`unseen`]).
pub(crate) fn notice() {
    if IS_TOLD.load(Ordering::Relaxed) {
        return child();
    }
    TABLES_OF.store(unseen::own_pid(), Ordering::Relaxed);
    signal::forget_deferred();
    let is_whole = memory::look_after_unseen_fork();
    for lock in OUTER {
        // SAFETY: fork copied only this thread, and the locks protect no value.
        unsafe { lock.free_of_the_dead() };
    }
    let was_at_rest = process::state_of_the_dead().is_none_or(Process::is_at_rest);
    if is_whole && was_at_rest {
        tracing::debug!("the process has come from a fork that the library did not see");
        inherit();
        inherited::announce();
        return;
    }
    // Their rings are its parent's.
    plain::unsay_all_in_child();
    // Nobody can tell what that call has done of its work.
    if let Some(old) = process::take_for_child() {
        old.published.leave_to_parent();
        old.rendezvous_of_all().for_each(Rendezvous::after_fork_in_child);
        ringway_host::fd::close_all_in_child();
    }
    for (fd, entry) in fdtable::entries() {
        if entry.socket().is_some() || matches!(entry, Entry::Epoll(_)) {
            fdtable::change(fd, Entry::None);
        }
    }
    process::decline(
        Reason::SharedConnection,
        "the process has come from a fork that the library did not see, in the middle of another thread's call; what it inherited is its parent's",
    );
}

/// Takes over what a parent had, into a state that was just made. Called with no lock held.
pub(crate) fn adopt(process: &'static Process) {
    let old = INHERITED.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: states are leaked, so what the pointer names lives.
    let Some(old) = (unsafe { old.as_ref() }) else { return };
    // SAFETY: this process has no thread that knew the old state: fork copied only the one that called it, which held
    // its lock, and it was taken out of reach there.
    let (owner, parent, old) = (old.owner_pid, old.rendezvous().member_ref(), unsafe { old.state().value_of_the_dead() });
    // The child's copy of what its parent watched.
    drop(old.parent.take());
    let mut guard = process.lock();
    let offload = &mut *guard;
    let is_on_interfaces = old.interfaces.is_some() || old.late.are_taken();
    offload.ask_for_interfaces_of(parent);
    for (fd, entry) in fdtable::entries() {
        let Some(key) = entry.socket() else { continue };
        if let Some(socket) = offload.sockets.find_mut(key) {
            socket.fds += 1;
        } else if let Some(socket) = old.sockets.find(key) {
            let mut child = inherited(socket, fd);
            child.is_left_by_fork &= is_on_interfaces;
            offload.shares_listeners |= child.is_shared;
            offload.sockets.insert_at(key, child);
        } else {
            fdtable::change(fd, Entry::None);
        }
    }
    publish(process, offload);
    crate::mux::epoll::adopt(old, offload);
    wait_for_rules(process, offload, owner);
    if offload.has_datagrams_left() {
        sharing::begin(offload, process.now());
    }
}

/// A parent's socket as its child has it, before anything is published.
fn inherited(socket: &Socket, fd: i32) -> Socket {
    let mut copy = socket.copy_for_child(fd);
    copy.kind = match socket.kind {
        // Not of those that are in the table: they are marked as inherited there.
        Kind::Connecting(_) | Kind::Stream(_) | Kind::Moving => Kind::Kernel,
        Kind::Listener(_) => {
            // Published once this process waits for its connections: nobody is to connect to a mere helper. (Not if it was shut down.)
            let is_published = matches!(socket.kind, Kind::Listener(Some(_)));
            copy.reason = if is_published { Some(Reason::RuleTaken) } else { socket.reason };
            copy.is_shared = true;
            Kind::Listener(None)
        }
        Kind::Datagram(_) => {
            copy.is_left_by_fork = true;
            Kind::Datagram(None)
        }
        kind @ (Kind::Fresh | Kind::Kernel) => kind,
    };
    copy
}

/// Publishes what is not: UDP sockets, and listeners that this process waits on. While another process holds a rule, the kernel
/// serves this one.
fn publish(process: &Process, offload: &mut Offload) {
    let keys: Vec<Key> = offload.sockets.iter().map(|(key, _)| key).collect();
    for key in keys {
        match offload.sockets.find(key) {
            Some(Socket { kind: Kind::Listener(None), waited: true, .. }) => listen::retry(offload, key),
            Some(Socket { kind: Kind::Datagram(None), bound: Some(_), .. }) => datagram::publish(process, offload, key),
            _ => {}
        }
    }
}

/// The rules that the parent holds are to be had when it ends: the progress thread watches for that.
fn wait_for_rules(process: &Process, offload: &mut Offload, owner: i32) {
    if !offload.sockets.iter().any(|(_, socket)| socket.reason == Some(Reason::RuleTaken) || socket.is_left_by_fork) {
        return;
    }
    match Pidfd::new(owner) {
        Ok(parent) => {
            offload.parent = Some(parent);
            offload.mux.call_progress();
        }
        Err(error) => {
            tracing::debug!(%error, "the parent cannot be watched");
            publish(process, offload);
        }
    }
}

/// Publishes what the parent held, once it has ended. For the progress thread.
pub(crate) fn look_after_parent(process: &Process, offload: &mut Offload) {
    if offload.parent.as_ref().is_some_and(Pidfd::has_ended) {
        offload.parent = None;
        publish(process, offload);
        offload.want_interfaces();
        offload.dispatch();
    }
}
