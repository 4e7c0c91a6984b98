//! Moves that do not end in time. Whoever else has such a connection must not write into it what comes after what is still owed, as
//! if that had been written: it is reset, in every process, before this one is gone, or another has the descriptor.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::time::Instant;

use ringway_devices::Fd;

use super::owner::{Waited, await_all, waits};
use super::{ANSWER, Move, Role, pair, pause, peer, together};
use crate::errno::Errno;
use crate::exit::Patience;
use crate::process::{Offload, Process};

/// Of what others share, what nobody takes for so long is given up: it is as long as an answer may take.
const UNTAKEN: Duration = ANSWER;

/// How long those who move a connection have for noticing that it was given up: what a program finds then is a reset.
const NOTICE: Duration = Duration::from_millis(200);

/// The descriptor of a connection that moves, of which other processes may have the open file.
#[derive(Debug)]
pub(super) struct File {
    pub(super) fd: Fd,
    is_given_up: AtomicBool,
}

impl File {
    pub(super) const fn new(fd: Fd) -> Self {
        Self { fd, is_given_up: AtomicBool::new(false) }
    }

    pub(super) const fn raw(&self) -> i32 {
        self.fd.raw()
    }

    /// What is connected now is not written to if it was given up before; and if it is from now on, that undoes the connection.
    pub(super) fn check(&self) -> Result<(), Errno> {
        if self.is_given_up() { Err(Errno(libc::ETIMEDOUT)) } else { Ok(()) }
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::SeqCst)
    }

    fn give_up(&self) {
        self.is_given_up.store(true, Ordering::SeqCst);
        pair::dissolve(self.raw());
    }
}

/// Waits until nothing is on its way, and resets what is after that. `false`: something was.
pub(super) fn await_or_give_up(process: &Process, patience: &mut Patience) -> bool {
    if await_all(process, Waited::All, patience, UNTAKEN) {
        return true;
    }
    let mut guard = process.lock();
    give_up(&mut guard, |_| true);
    guard.backlogs.give_up();
    drop(guard);
    let started = Instant::now();
    while waits(&process.lock()) && started.elapsed() < NOTICE {
        pause();
    }
    false
}

/// Resets those of the connections under way that `which` names, for every process that has them.
pub(super) fn give_up(offload: &mut Offload, which: impl Fn(&Move) -> bool) {
    together::give_up(offload, &which);
    // (What the peer writes on its own, it does for nobody else.)
    for moving in offload.moves.iter().filter(|moving| moving.role != Role::Kept && which(moving)) {
        if let Some(file) = &moving.file {
            file.give_up();
        }
    }
    let waits_for_more = |moving: &Move| matches!(moving.role, Role::Peer(_)) && moving.key.is_some() && which(moving);
    while let Some(at) = offload.moves.iter().position(waits_for_more) {
        peer::abandon(offload, at);
    }
}
