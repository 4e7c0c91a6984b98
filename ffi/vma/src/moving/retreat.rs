//! A listener that is given up to a fork's child, while connections wait to be accepted: whoever accepts first is to have them, and so
//! they go to the kernel's half of the listener, whose queue all processes share. It is their other ends that can bring them there.

use std::net::SocketAddrV4;
use std::time::Instant;

use ringway_shm::Talk;
use ringway_stack::ring::{NextHop, SocketId};

use super::{ANSWER, PATIENCE, owner, peer};
use crate::process::{Offload, Process};
use crate::socket::accept::SignalsBlocked;
use crate::socket::listen;

/// Begins; it goes on by itself.
pub(crate) fn begin(process: &'static Process) {
    let _undisturbed = SignalsBlocked::new();
    let started = std::thread::Builder::new().name("ringway-retreat".to_owned()).spawn(move || crate::boundary!((), run(process)));
    if let Err(error) = started {
        tracing::warn!("connections that wait to be accepted cannot be moved to the kernel: {error}");
    }
}

fn run(process: &'static Process) {
    let started = Instant::now();
    loop {
        let mut guard = process.lock();
        let offload = &mut *guard;
        let now = process.now();
        offload.poll_if_due(now);
        let (mut waiting, mut embryos) = (Vec::new(), 0);
        for (key, id) in listen::unawaited(offload) {
            let before = waiting.len();
            waiting.extend(offload.ring.tcp_waiting(id).into_iter().filter_map(|stream| Caller::of(process, offload, stream)));
            embryos += offload.ring.tcp_embryos(id);
            if waiting.len() == before && offload.ring.tcp_embryos(id) == 0 {
                listen::give_up(process, offload, key, id);
            }
        }
        if waiting.is_empty() && embryos == 0 || started.elapsed() > PATIENCE {
            return;
        }
        drop(guard);
        for caller in waiting {
            caller.call(process);
        }
        super::pause();
    }
}

/// The other end of a connection that waits.
struct Caller {
    pid: i32,
    local: SocketAddrV4,
    remote: SocketAddrV4,
}

impl Caller {
    fn of(process: &Process, offload: &Offload, stream: SocketId) -> Option<Self> {
        let info = offload.ring.info(stream)?;
        let Some(NextHop::Station(mac)) = offload.ring.tcp_hop(stream) else { return None };
        Some(Self { pid: process.rendezvous.pid_of(mac)?, local: info.remote?, remote: info.local })
    }

    /// Asks it to move its end, as a child would.
    fn call(&self, process: &'static Process) {
        if self.pid == process.owner_pid {
            let mut guard = process.lock();
            if let Some(key) = peer::socket_between(&guard, self.local, self.remote) {
                owner::begin(process, &mut guard, key);
            }
        } else if let Ok(Some(talk)) = Talk::begin(self.pid, ANSWER) {
            let _ = talk.ask(format!("release {} {}", self.local, self.remote).as_bytes(), &[], ANSWER);
        }
    }
}
