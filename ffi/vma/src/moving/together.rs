//! A connection on a device whose peers hear nothing of the kernel beside it (a verbs device): it leaves for the kernels of both hosts, or it stays.
//!
//! Whichever process has to give it to the kernel begins: a thread takes it off the ring and into its placeholder, by TCP_REPAIR as on other interfaces ([`super::to_kernel`]), where it says nothing yet, and the
//! ring asks the other end to do the same ([`ringway_stack::ring::Ring::tcp_ask_to_leave`]). When that one has, the placeholder speaks. Until then calls wait, as those for a child's connection do on
//! shared memory. If the other end stays, because its process may not use TCP_REPAIR for one, or does not answer, the connection is back on the ring as if nothing had been, and the log says so.
//!
//! The other end ([`follow`]) does the same: its question is the answer to ours.
//!
//! A server may have a thousand connections that all are to leave. So one thread has all of them on their way ([`thread`]), a number of them at a time: the others wait on their rings, which costs nothing, and are
//! used as ever. Each that is on its way takes a descriptor, and two more are for all; one that the program has closed takes its own when it begins to wait.

mod thread;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use ringway_host::Blocked;
use ringway_host::leave::Kernel;
use ringway_stack::Instant;
use ringway_stack::offload::Reason;

use super::giving_up::File;
use super::{Move, Role, owner, pair, peer};
use crate::fdtable::{self, Entry};
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::socket::{Family, flows};

/// How long nobody tries again to move a connection that had to stay: a child that asks for it hears that it cannot have it, and a process that ends does not go on trying.
const STAYS_FOR: Duration = Duration::from_secs(5);
/// The same where the peer did not answer: calls waited for it.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// Of so many connections it is remembered that they had to stay.
const STAYED_MAX: usize = 1024;

/// Ours, and the peer's.
type Ends = (SocketAddr, SocketAddr);

/// The connections of a process that leave, or had to stay.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    /// Those whose turn has not come. Each is among the moves, in the role of who asks, and on its ring.
    waiting: VecDeque<Waiting>,
    /// By which all leave, while the thread is there.
    kernel: Option<Arc<Kernel>>,
    /// Those that could not move stay until then at the least.
    stayed: BTreeMap<Ends, Instant>,
    /// It was said that more wait than leave at a time, since the thread has begun.
    is_told: bool,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    ends: Ends,
    /// The peer has left, and waits.
    follows: bool,
    since: std::time::Instant,
}

impl Departures {
    /// It is not tried again for so long.
    fn note_stayed(&mut self, now: Instant, ends: Ends, how_long: Duration) {
        self.stayed.retain(|_, until| now < *until);
        if self.stayed.len() < STAYED_MAX {
            self.stayed.insert(ends, now + how_long);
        }
    }

    /// Whose peers wait go first.
    fn hurry(&mut self, ends: Ends) {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.ends == ends && !waiting.follows)
            && let Some(waiting) = self.waiting.remove(at)
        {
            let behind = self.waiting.iter().position(|waiting| !waiting.follows).unwrap_or(self.waiting.len());
            self.waiting.insert(behind, Waiting { follows: true, ..waiting });
        }
    }
}

/// Begins to move a connection into its placeholder. `key`: its socket, unless the program has closed it. `false`: it stays where it is, and the log says why.
pub(super) fn begin(process: &'static Process, offload: &mut Offload, (local, remote): Ends, key: Option<Key>, placeholder: RawFd) -> bool {
    if let Some(at) = offload.moves.iter().position(|moving| moving.is_between(local, remote)) {
        return go_on(offload, at, key, placeholder);
    }
    if offload.departures.stayed.get(&(local, remote)).is_some_and(|until| process.now() < *until) {
        tracing::debug!("the connection {local} - {remote} stays this process's alone, as it had to a moment ago");
        return false;
    }
    // It has ended, or was reset: whoever asks for it is told so, and does not come again.
    if offload.rings.tcp_between(local, remote).is_none() {
        return false;
    }
    // What has a socket has a descriptor until its turn comes. (But the first has its own before the means of all take the last.)
    let file = match key {
        Some(_) if offload.departures.kernel.is_some() || fdtable::is_stale_now(placeholder) => None,
        Some(_) | None => match peer::copy_of(placeholder) {
            Some(copy) => Some(Arc::new(File::new(copy))),
            None => {
                offload.departures.note_stayed(process.now(), (local, remote), STAYS_FOR);
                tracing::warn!("the connection {local} - {remote} stays this process's alone: no descriptor is to be had (RLIMIT_NOFILE)");
                return false;
            }
        },
    };
    if let Err(error) = ready(process, offload) {
        offload.departures.note_stayed(process.now(), (local, remote), STAYS_FOR);
        tracing::warn!("the connection {local} - {remote} stays this process's alone: {error}");
        return false;
    }
    let (role, reason) = (Role::Asking, Reason::SharedConnection);
    offload.moves.push(Move { local, remote, key, role, file, reason, reuse_address: None });
    offload.departures.waiting.push_back(Waiting { ends: (local, remote), follows: false, since: std::time::Instant::now() });
    true
}

/// It has begun already, and is the program's, or is no more since. `false`: there is no descriptor for one that the program closes.
fn go_on(offload: &mut Offload, at: usize, key: Option<Key>, placeholder: RawFd) -> bool {
    let moving = &mut offload.moves[at];
    if key.is_none() && moving.file.is_none() && moving.role == Role::Asking {
        match peer::copy_of(placeholder) {
            Some(copy) => moving.file = Some(Arc::new(File::new(copy))),
            None => {
                let Move { local, remote, .. } = offload.moves.swap_remove(at);
                tracing::warn!(
                    "the connection {local} - {remote} ends as it is closed, for children as well: no descriptor is to be had (RLIMIT_NOFILE)"
                );
                offload.departures.waiting.retain(|waiting| waiting.ends != (local, remote));
                return false;
            }
        }
    }
    offload.moves[at].key = key;
    true
}

/// The thread is there, and has what it takes.
fn ready(process: &'static Process, offload: &mut Offload) -> Result<(), Box<dyn core::error::Error>> {
    if offload.departures.kernel.is_some() {
        return Ok(());
    }
    let kernel = Arc::new(Kernel::open(process.clock)?);
    // No handler of the program's runs on a thread that is not its.
    let _undisturbed = Blocked::new();
    let own = Arc::clone(&kernel);
    std::thread::Builder::new().name("ringway-move".to_owned()).spawn(move || thread::run(process, &own))?;
    (offload.departures.kernel, offload.departures.is_told) = (Some(kernel), false);
    Ok(())
}

/// The peers of connections have left their rings, and ask for ours to follow. For the progress thread.
pub(super) fn follow(process: &'static Process, offload: &mut Offload) {
    ask_other_kernels(offload);
    if !offload.rings.iter().any(|own| own.ring.has_leavers()) {
        return;
    }
    // (What was raised for them is not to be taken for something else once they are taken.)
    offload.dispatch();
    let mut leavers = Vec::new();
    for own in offload.rings.iter_mut() {
        leavers.extend(core::iter::from_fn(|| own.ring.tcp_take_leaver()));
    }
    for id in leavers {
        let Some((local, remote)) = owner::ends(offload, id) else { continue };
        let key = offload.socket_of(id).and_then(|index| offload.sockets.key_at(index));
        let has_left = match key {
            Some(key) => owner::begin(process, offload, key),
            None => owner::leave_behind(process, offload, id),
        };
        offload.departures.hurry((local, remote));
        // (What is on its way by itself says so by itself.)
        if !has_left {
            let now = process.now();
            offload.rings.at_mut(id.ring).ring.tcp_has_parted(now, local, remote, false);
        }
    }
}

/// Those whose turn has not come are reset instead, for every process that has them.
pub(super) fn give_up(offload: &mut Offload, which: impl Fn(&Move) -> bool) {
    let waits = |offload: &Offload, moving: &Move| {
        moving.role == Role::Asking && offload.departures.waiting.iter().any(|waiting| moving.is_between(waiting.ends.0, waiting.ends.1))
    };
    while let Some(at) = offload.moves.iter().position(|moving| which(moving) && waits(offload, moving)) {
        let Move { local, remote, key, file, reason, .. } = offload.moves.swap_remove(at);
        offload.departures.waiting.retain(|waiting| waiting.ends != (local, remote));
        let now = flows::now();
        if let Some(id) = offload.rings.tcp_between(local, remote) {
            offload.rings.of_mut(id).close(now, id, true);
        }
        offload.rings.iter_mut().for_each(|own| own.ring.tcp_stays(now, local, remote));
        let socket = key.and_then(|key| offload.sockets.find(key));
        // (A number that was closed by a call that the library did not see is another file's by now.)
        let socket = socket.filter(|socket| !fdtable::is_stale_now(socket.fd)).map(|socket| (socket.fd, socket.family));
        if let Some((fd, family)) = socket.or_else(|| file.as_ref().map(|file| (file.raw(), Family::of(local)))) {
            pair::reset(fd, family, local, remote);
        }
        if let Some(key) = key {
            offload.arrived(key, reason);
        }
        offload.dispatch();
    }
}

/// Where the process at the other end is gone of what has left. For the progress thread, before it looks at the rings and after that.
pub(crate) fn ask_other_kernels(offload: &mut Offload) {
    if offload.rings.iter().any(|own| own.ring.has_bereft()) {
        let bereft: Vec<Ends> = offload.rings.iter_mut().flat_map(|own| own.ring.tcp_take_bereft()).collect();
        bereft.into_iter().for_each(|ends| ask_other_kernel(offload, ends));
    }
}

/// The process at the other end of a connection that has left is gone: our kernel asks the other one by a segment, which one that has no such connection answers by a reset.
fn ask_other_kernel(offload: &Offload, (local, remote): Ends) {
    let is_it = |key: &Key| {
        let socket = offload.sockets.find(*key);
        socket.is_some_and(|socket| socket.moved && socket.bound == Some(local) && socket.peer == Some(remote))
    };
    let mut entries = fdtable::entries();
    // (What children have is theirs to ask for, as is what the program has closed: it waits for nothing.)
    if let Some((fd, _)) = entries.find(|&(fd, entry)| matches!(entry, Entry::Kernel(key) if is_it(&key)) && !fdtable::is_stale_now(fd)) {
        pair::probe(fd);
    }
}
