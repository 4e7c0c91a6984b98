//! A listener that is given up to a fork's child, while connections wait to be accepted: whoever accepts first is to have them, and so
//! they go to the kernel's half of the listener, whose queue all processes share. It is their other ends that can bring them there.

use core::time::Duration;
use std::net::SocketAddr;
use std::time::Instant;

use ringway_devices::{Dialogue, MemberRef};
use ringway_host::Blocked;
use ringway_stack::ring::{FlowId, NextHop};

use super::{ANSWER, PATIENCE, owner, peer};
use crate::descendants;
use crate::exit::Patience;
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::socket::{Kind, Socket, listen};

/// How long connections may wait at a listener that others share, before they are left to whoever accepts first.
const PROMPT: Duration = Duration::from_millis(20);

/// How long a listener still answers those who found it just before it was withdrawn.
const GRACE: Duration = Duration::from_millis(3);

/// How long the end of a process waits for what waited at its listeners.
const END: Duration = Duration::from_secs(2);

/// Which listeners are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    /// Those that nobody here ever waited on, for good.
    Unawaited,
    /// Those that others share, for now: this process is busy with something else.
    Shared,
    /// One that this process closes, and others have.
    Closed(FlowId),
}

/// Begins to give up the listeners that nobody here ever waited on; it goes on by itself.
pub(crate) fn begin(process: &'static Process) {
    begin_for(process, Which::Unawaited);
}

/// `false`: there is no thread to be had.
fn begin_for(process: &'static Process, which: Which) -> bool {
    let _undisturbed = Blocked::new();
    let started = std::thread::Builder::new().name("ringway-retreat".to_owned()).spawn(move || crate::boundary!((), run(process, which)));
    if let Err(error) = &started {
        tracing::warn!("connections that wait to be accepted cannot be moved to the kernel: {error}");
    }
    started.is_ok()
}

/// A listener that other processes have is closed here: what waits, or is on its way, goes to the kernel's half before its end. `false`:
/// nobody else has it.
pub(crate) fn close(process: &'static Process, offload: &mut Offload, socket: &Socket) -> bool {
    if !matches!(socket.kind, Kind::Listener(Some(_))) {
        return false;
    }
    if !(socket.is_shared || descendants::shared_since(socket.birth)) {
        return false;
    }
    socket.flows().for_each(|id| withdraw(process, offload, id));
    true
}

fn withdraw(process: &'static Process, offload: &mut Offload, id: FlowId) {
    offload.rings.of_mut(id).tcp_withdraw(id);
    if begin_for(process, Which::Closed(id)) {
        offload.retreats += 1;
    } else {
        offload.rings.of_mut(id).close(process.now(), id, false);
        offload.dispatch();
    }
}

/// The process becomes another program, which has no ring: its listeners are whoever's who accepts in the kernel.
pub(crate) fn at_exec(process: &'static Process, keeps: impl Fn(i32) -> bool, patience: &mut Patience) {
    {
        let mut guard = process.lock();
        let kept: Vec<Key> = guard.sockets.iter().filter(|(_, socket)| keeps(socket.fd)).map(|(key, _)| key).collect();
        for key in kept {
            share(&mut guard, key);
        }
    }
    at_end(process, patience);
}

/// The process ends: as if it closed its listeners, and waited for that.
pub(crate) fn at_end(process: &'static Process, patience: &mut Patience) {
    {
        let mut guard = process.lock();
        let offload = &mut *guard;
        for (key, id) in shared(offload) {
            withdraw(process, offload, id);
            // Should there be no end after all (an exec that fails), it is published again with the next wait.
            listen::left_to_others(offload, key);
        }
    }
    let started = Instant::now();
    while process.lock().retreats > 0 && started.elapsed() < END && patience.lasts(END) {
        super::pause();
    }
}

/// The progress thread's look at listeners that several processes wait on: with one queue for all of them, whoever is free accepts; so
/// what this process does not accept soon goes back into that queue. The next time it is to look; `None`: nothing waits.
pub(crate) fn look_after(process: &'static Process, offload: &mut Offload, now: ringway_stack::Instant) -> Option<ringway_stack::Instant> {
    // Most processes share nothing, and are not to go through their sockets for that.
    if !offload.shares_listeners && descendants::forks() == 0 {
        return None;
    }
    let mut waiting = shared(offload);
    waiting.retain(|&(key, id)| !offload.rings.of(id).tcp_waiting(id).is_empty() && !is_left_there(offload, key, id));
    if waiting.is_empty() {
        offload.waiting_since = None;
        return None;
    }
    let since = *offload.waiting_since.get_or_insert(now);
    if now.since(since) < PROMPT {
        return Some(since + PROMPT);
    }
    offload.waiting_since = None;
    // (Of what waits on an interface there is no other end to bring it anywhere. But who comes from now on comes by the kernel, until this process waits again.)
    let (there, within): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(_, id)| offload.rings.interfaces.contains(id.ring));
    there.into_iter().for_each(|(key, _)| offload.leave_interfaces(key));
    if !within.is_empty() && !offload.retreating {
        offload.retreating = begin_for(process, Which::Shared);
    }
    Some(now + PROMPT)
}

/// Whether a listener's flow is on an interface, and withdrawn already.
fn is_left_there(offload: &Offload, key: Key, id: FlowId) -> bool {
    offload.rings.interfaces.contains(id.ring) && offload.sockets.find(key).is_some_and(|socket| socket.is_left_by_fork)
}

/// Another program is to have this listener, if it is one: from now on its queue is everybody's.
pub(crate) fn share(offload: &mut Offload, key: Key) {
    if let Some(socket) = offload.sockets.find_mut(key)
        && matches!(socket.kind, Kind::Listener(_))
    {
        socket.is_shared = true;
        offload.shares_listeners = true;
        offload.leave_interfaces(key);
        offload.mux.call_progress();
    }
}

/// What the listeners have on the ring whose open file other processes have.
fn shared(offload: &Offload) -> Vec<(Key, FlowId)> {
    let is_shared = |socket: &Socket| socket.is_shared || descendants::shared_since(socket.birth);
    let listeners = offload.sockets.iter().filter(|(_, socket)| matches!(socket.kind, Kind::Listener(_)) && is_shared(socket));
    listeners.flat_map(|(key, socket)| socket.flows().map(move |id| (key, id))).collect()
}

fn run(process: &'static Process, which: Which) {
    let started = Instant::now();
    let mut first = None;
    loop {
        let mut guard = process.lock();
        let offload = &mut *guard;
        let now = process.now();
        offload.poll_if_due(now);
        let (mut waiting, mut half_open) = (Vec::new(), 0);
        let listeners: Vec<(Option<Key>, FlowId)> = match which {
            Which::Unawaited => listen::unawaited(offload).into_iter().map(|(key, id)| (Some(key), id)).collect(),
            Which::Shared => shared(offload).into_iter().map(|(key, id)| (Some(key), id)).collect(),
            Which::Closed(id) => vec![(None, id)],
        };
        for (key, id) in listeners {
            let streams = offload.rings.of(id).tcp_waiting(id);
            let handshakes = offload.rings.of(id).tcp_half_open(id);
            if which != Which::Shared {
                half_open += handshakes;
            }
            if which == Which::Unawaited
                && let Some(key) = key
                && listen::is_quiet(offload, key)
            {
                listen::give_up(offload, key);
            }
            waiting.extend(streams.into_iter().filter_map(|stream| Caller::of(process, offload, stream)));
        }
        if let Which::Closed(id) = which
            && (waiting.is_empty() && half_open == 0 && started.elapsed() > GRACE || started.elapsed() > PATIENCE)
        {
            offload.rings.of_mut(id).close(now, id, false);
            offload.retreats -= 1;
            offload.dispatch();
            return;
        }
        drop(guard);
        // Of a listener that goes on listening, newcomers are the next look's.
        if which == Which::Shared {
            let known = first.get_or_insert_with(|| waiting.clone());
            waiting.retain(|caller| known.contains(caller));
        }
        let is_over = waiting.is_empty() && half_open == 0 && !matches!(which, Which::Closed(_));
        if is_over || started.elapsed() > PATIENCE {
            if which == Which::Shared {
                process.lock().retreating = false;
            }
            return;
        }
        for caller in waiting {
            caller.call(process);
        }
        super::pause();
    }
}

/// The other end of a connection that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Caller {
    member: MemberRef,
    local: SocketAddr,
    remote: SocketAddr,
}

impl Caller {
    fn of(process: &Process, offload: &Offload, stream: FlowId) -> Option<Self> {
        let info = offload.rings.of(stream).info(stream)?;
        let Some(NextHop::Mac(mac)) = offload.rings.of(stream).tcp_hop(stream) else { return None };
        Some(Self { member: process.rendezvous_of(stream).member_at(mac)?, local: info.remote?, remote: info.local })
    }

    /// Asks it to move its end, as a child would.
    fn call(&self, process: &'static Process) {
        if process.is_own(&self.member) {
            let mut guard = process.lock();
            if let Some(key) = peer::socket_between(&guard, self.local, self.remote) {
                owner::begin(process, &mut guard, key);
            }
        } else if let Ok(Some(dialogue)) = Dialogue::begin(&self.member, ANSWER) {
            let _ = dialogue.ask(format!("release {} {}", self.local, self.remote).as_bytes(), &[], ANSWER);
        }
    }
}
