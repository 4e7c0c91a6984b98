//! Peers that have to be asked first, which takes as long as they please: by a thread of its own, so that no call waits that must not.
//!
//! A connection that a nonblocking connect(2) opens meanwhile is in SYN-SENT, and its SYN leaves when the peer has answered. Where it does
//! not, the kernel's connect(2) has its turn, on the placeholder, and the program sees what it would have seen of that.

use core::ffi::c_int;
use core::time::Duration;
use std::net::SocketAddr;

use ringway_devices::ResolveError;
use ringway_host::Blocked;
use ringway_stack::device::Protocol;
use ringway_stack::offload::Reason;
use ringway_stack::ring::{FlowId, NextHop};

use super::address::Raw;
use super::{Kind, common};
use crate::errno::{self, Errno};
use crate::mux;
use crate::process::{self, Offload, Process};
use crate::real;
use crate::slab::Key;

/// Addresses that are asked about at a time: each has a thread for each ring that asks.
const GREETINGS_MAX: usize = 8;

/// How long a datagram waits for an answer before the kernel takes it, and how long one does whose sender is not to block: a peer that runs
/// answers in a tenth of a millisecond, and one that does not is remembered as silent.
const DATAGRAM: Duration = Duration::from_millis(20);
const DATAGRAM_AT_ONCE: Duration = Duration::from_millis(2);

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// The ring that wants to know.
    pub(super) ring: u16,
    /// Of datagrams; none of connections.
    pub(super) from: Option<SocketAddr>,
    pub(super) to: SocketAddr,
}

/// An address whose holder is being asked.
#[derive(Debug)]
pub(crate) struct Greeting {
    question: Question,
    /// The sockets that are being connected there.
    waiting: Vec<Key>,
}

/// Has the holder of an address asked, for datagrams from there or for connections, unless somebody asks already. `false`: there is no thread
/// for it.
pub(super) fn begin(process: &Process, question: Question) -> bool {
    let mut guard = process.lock();
    if find(&guard, question).is_some() {
        return true;
    }
    // (One of another process's state is nobody's to keep.)
    let Some(process) = process::process().filter(|own| core::ptr::eq(*own, process) && own.is_owner()) else { return false };
    let mut others: Vec<_> = guard.greetings.iter().map(|greeting| (greeting.question.from, greeting.question.to)).collect();
    others.sort_unstable();
    others.dedup();
    if others.len() >= GREETINGS_MAX && !others.contains(&(question.from, question.to)) {
        return false;
    }
    guard.greetings.push(Greeting { question, waiting: Vec::new() });
    // No handler of the program's runs on a thread that is not its.
    let _undisturbed = Blocked::new();
    let ask = move || crate::boundary!((), run(process, question));
    if let Err(error) = std::thread::Builder::new().name("ringway-greet".to_owned()).spawn(ask) {
        tracing::debug!("nobody can be asked about {}: {error}", question.to);
        guard.greetings.pop();
        return false;
    }
    true
}

fn find(offload: &Offload, question: Question) -> Option<usize> {
    offload.greetings.iter().position(|greeting| greeting.question == question)
}

/// A connection waits for the answer. `false`: it is there already.
pub(super) fn join(offload: &mut Offload, question: Question, key: Key) -> bool {
    let Some(at) = find(offload, question) else { return false };
    offload.greetings[at].waiting.push(key);
    true
}

/// Waits for the answer, as long as a datagram may.
pub(super) fn await_end(process: &Process, question: Question, may_block: bool) {
    let longest = if may_block { DATAGRAM } else { DATAGRAM_AT_ONCE };
    let saved = errno::current();
    let started = std::time::Instant::now();
    while started.elapsed() < longest && find(&process.lock(), question).is_some() {
        crate::moving::pause();
    }
    errno::set(saved);
}

fn run(process: &'static Process, question: Question) {
    let (rendezvous, to) = (process.rendezvous_at(question.ring), question.to);
    let result = match question.from {
        Some(from) => rendezvous.resolve_datagram(from, to),
        None => rendezvous.resolve(Protocol::Tcp, to),
    };
    let mut guard = process.lock();
    let Some(at) = find(&guard, question) else { return };
    for key in guard.greetings.swap_remove(at).waiting {
        settle(process, &mut guard, key, to, result.as_ref().err());
    }
    guard.dispatch();
}

/// A connection that waits to know where it goes, if the socket is one.
fn pending(offload: &Offload, key: Key) -> Option<(FlowId, SocketAddr)> {
    let socket = offload.sockets.find(key)?;
    let Kind::Connecting(id) = socket.kind else { return None };
    (offload.rings.of(id).tcp_hop(id) == Some(NextHop::Pending)).then_some((id, socket.peer?))
}

/// Sends a connection to `to` on its way: over the ring, or through the kernel for that reason.
pub(super) fn settle(process: &Process, offload: &mut Offload, key: Key, to: SocketAddr, error: Option<&ResolveError>) {
    let Some((id, _)) = pending(offload, key).filter(|&(_, peer)| peer == to) else { return };
    // (Of several that share an address, each connection has the next one.)
    let found = error.map_or_else(|| process.rendezvous_of(id).search(Protocol::Tcp, to).ok()?.found, |_| None);
    let Some(hop) = found else {
        leave(process, offload, key, error.map_or(Reason::NoOffloadedPeer, ResolveError::reason));
        return;
    };
    match offload.rings.of_mut(id).tcp_route(process.now(), id, NextHop::Mac(hop.mac)) {
        Ok(()) => offload.decided("connect", None),
        Err(error) => tracing::debug!("a connection to {to} does not want to go there: {error}"),
    }
}

/// Leaves a connection to the kernel that waits to know where it goes. `false`: it is none.
pub(crate) fn leave(process: &Process, offload: &mut Offload, key: Key, reason: Reason) -> bool {
    let Some((id, peer)) = pending(offload, key) else { return false };
    let is_own = common::own(offload, key);
    let Some(socket) = offload.sockets.find_mut(key) else { return false };
    let address = Raw::new(peer, socket.family);
    let result = if is_own { connect_at_once(socket.fd, &address) } else { Err(Errno(libc::ENOBUFS)) };
    offload.rings.of_mut(id).close(process.now(), id, true);
    match result {
        Ok(()) | Err(Errno(libc::EINPROGRESS)) => offload.leave_to_kernel(key, "connect", reason),
        // The program learns it from SO_ERROR, as of any connect that it did not wait for.
        Err(Errno(error)) => {
            socket.kind = Kind::Fresh;
            socket.peer = None;
            socket.rare().error = Some(error);
            mux::refresh(offload, key.index);
        }
    }
    true
}

/// As [`leave`], with every such connection: others are about to share their sockets.
pub(crate) fn leave_all(process: &Process, offload: &mut Offload) {
    let keys: Vec<Key> = offload.greetings.iter().flat_map(|greeting| greeting.waiting.iter().copied()).collect();
    for key in keys {
        leave(process, offload, key, Reason::SharedConnection);
    }
}

/// connect(2) that waits for nothing, whatever the program has made of O_NONBLOCK meanwhile.
fn connect_at_once(fd: c_int, to: &Raw) -> Result<(), Errno> {
    // SAFETY: plain integers.
    let flags = unsafe { real::fcntl(fd, libc::F_GETFL, 0) };
    let waits = flags >= 0 && flags & libc::O_NONBLOCK == 0;
    if waits {
        // SAFETY: plain integers.
        unsafe { real::fcntl(fd, libc::F_SETFL, (flags | libc::O_NONBLOCK) as usize) };
    }
    // SAFETY: the address is as long as it says.
    let result = if unsafe { real::connect(fd, to.as_ptr(), to.len()) } < 0 { Err(Errno::last()) } else { Ok(()) };
    if waits {
        // SAFETY: plain integers.
        unsafe { real::fcntl(fd, libc::F_SETFL, flags as usize) };
    }
    result
}
