//! fork(2): everything offloaded stays the parent's, which neither shares its ring with the child nor loses it.
//!
//! The child forgets the parent's state without touching it (its shared mappings are the parent's to write). The table of
//! descriptors stays; the child's first use of one makes it a state of its own, in which listeners and UDP sockets are
//! published anew and connections are marked as the parent's. So a program that becomes a daemon after it listened goes on,
//! and one that only forks to exec a helper pays for two pointers.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::sync::Once;

use ringway_stack::offload::Reason;

use crate::fdtable::{self, Entry};
use crate::process::{self, Offload, Process};
use crate::slab::Key;
use crate::socket::{Kind, Socket, datagram, listen};

/// In a child: the state that its parent had, to be adopted.
static INHERITED: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// Registers the handlers; only the first call does anything.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(Some(prepare), Some(parent), Some(child));
    });
}

extern "C" fn prepare() {
    if let Some(process) = process::process() {
        core::mem::forget(process.lock());
    }
}

extern "C" fn parent() {
    if let Some(process) = process::process() {
        // SAFETY: `prepare` locked it, and forgot the guard.
        unsafe { process.state().unlock_after_fork() };
    }
}

extern "C" fn child() {
    if let Some(old) = process::take_for_child() {
        INHERITED.store(ptr::from_ref(old).cast_mut(), Ordering::Release);
        old.rendezvous.after_fork_in_child();
        // What was put off during the fork was for the parent.
        crate::lock::DEFERRED.store(0, Ordering::Relaxed);
    }
}

/// Takes over what a parent had, into a state that was just made. Called with no lock held.
pub(crate) fn adopt(process: &'static Process) {
    let old = INHERITED.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: states are leaked, so what the pointer names lives.
    let Some(old) = (unsafe { old.as_ref() }) else { return };
    // SAFETY: this process has no thread that knew the old state: fork copied only the one that called it, which held
    // its lock, and it was taken out of reach there.
    let old = unsafe { old.state().value_of_the_dead() };
    let mut guard = process.lock();
    let offload = &mut *guard;
    let mut forked = 0u32;
    for (fd, entry) in fdtable::entries() {
        let Some(key) = entry.socket() else { continue };
        if let Some(socket) = offload.sockets.find_mut(key) {
            socket.fds += 1;
        } else if let Some(socket) = old.sockets.find(key) {
            forked += u32::from(matches!(socket.kind, Kind::Connecting(_) | Kind::Stream(_) | Kind::Forked));
            offload.sockets.insert_at(key, inherited(socket, fd));
        } else {
            fdtable::change(fd, Entry::None);
        }
    }
    let keys: Vec<Key> = offload.sockets.iter().map(|(key, _)| key).collect();
    for &key in &keys {
        publish(process, offload, key);
    }
    crate::mux::epoll::adopt(old, offload);
    drop(guard);
    if forked > 0 {
        tracing::warn!(
            "{forked} connection(s) were inherited across fork and stay with the parent ({}): {}",
            Reason::ForkedConnection,
            Reason::ForkedConnection.advice()
        );
    }
}

/// A parent's socket as its child has it, before anything is published.
fn inherited(socket: &Socket, fd: i32) -> Socket {
    let mut copy = socket.copy_for_child(fd);
    copy.kind = match socket.kind {
        Kind::Connecting(_) | Kind::Stream(_) | Kind::Forked => {
            copy.reason = Some(Reason::ForkedConnection);
            Kind::Forked
        }
        Kind::Listener(_) => Kind::Listener(None),
        Kind::Datagram(_) => Kind::Datagram(None),
        kind @ (Kind::Fresh | Kind::Kernel) => kind,
    };
    copy
}

/// Publishes an inherited listener or UDP socket. While the parent lives it holds the rule, and the kernel serves the child.
fn publish(process: &Process, offload: &mut Offload, key: Key) {
    match offload.sockets.find(key).map(|s| (s.kind, s.backlog)) {
        Some((Kind::Listener(None), _)) => listen::publish(offload, key),
        Some((Kind::Datagram(None), _)) => datagram::publish(process, offload, key),
        _ => {}
    }
}
