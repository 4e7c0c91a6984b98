//! What the kernel has no room for before somebody reads: kept here, and written as the room comes, all of it by one thread.

use std::net::SocketAddr;

use ringway_devices::Fd;
use ringway_host::Blocked;
use ringway_host::sleep::EventFd;

use super::pair;
use crate::descendants;
use crate::errno::Errno;
use crate::exit;
use crate::process::{Offload, Process};
use crate::real;

/// What is kept for other processes, which end: so many backlogs, and so many bytes, at a time.
const COUNT_MAX: usize = 1024;
const BYTES_MAX: usize = 64 << 20;

/// Written under the lock at a time, so that the program does not wait for long.
const AT_A_TIME: usize = 256 << 10;

/// What is owed to the readers of the placeholder, and found no room before they read.
#[derive(Debug)]
pub(super) struct Backlog {
    /// The placeholder's other side.
    pub(super) other: Fd,
    pub(super) bytes: Vec<u8>,
    /// How many of them are written.
    pub(super) written: usize,
    /// And then a reset, not an end.
    pub(super) is_reset: bool,
    /// Closed when it is written: somebody waits for that.
    #[expect(dead_code, reason = "it is kept only to be closed")]
    pub(super) until: Option<Fd>,
    /// Forks before its reader was made: those since may read it when this process has ended. `None`: others may in any case.
    pub(super) birth: Option<u32>,
}

/// Every backlog of a process.
#[derive(Debug, Default)]
pub(crate) struct Backlogs {
    all: Vec<Backlog>,
    /// Wakes the thread that writes them.
    bell: Option<EventFd>,
    is_served: bool,
}

impl Backlog {
    /// Writes what there is room for; what is left, if anything is.
    pub(super) fn after(other: Fd, bytes: Vec<u8>, is_reset: bool) -> Result<Option<Self>, Errno> {
        let written = pair::write_some(other.raw(), &bytes)?;
        Ok((written < bytes.len()).then_some(Self { other, bytes, written, is_reset, until: None, birth: None }))
    }

    /// Writes some of it. `true`: there is no more to be done.
    fn write(&mut self) -> bool {
        let end = self.bytes.len().min(self.written + AT_A_TIME);
        let Ok(count) = pair::write_some(self.other.raw(), &self.bytes[self.written..end]) else { return true };
        if count > 0 {
            exit::pulse();
        }
        self.written += count;
        if self.written < self.bytes.len() {
            return false;
        }
        if !self.is_reset {
            pair::end_in_order(&self.other);
            pair::end_writing(self.other.raw());
        }
        true
    }

    /// Whether somebody may read it who lives longer than this process.
    fn is_awaited(&self) -> bool {
        self.birth.is_none_or(descendants::shared_since)
    }
}

impl Backlogs {
    /// Whether so much more can be kept for another process.
    pub(super) fn has_room(&self, more: usize) -> bool {
        let kept: usize = self.all.iter().map(|rest| rest.bytes.len()).sum();
        self.all.len() < COUNT_MAX && kept.saturating_add(more) <= BYTES_MAX
    }

    /// Whether the process does not end before they are written, if that is its choice.
    pub(super) fn are_awaited(&self) -> bool {
        self.all.iter().any(Backlog::is_awaited)
    }

    /// The process ends before: what others may read is no whole stream, whoever else has the descriptor.
    pub(super) fn give_up(&mut self) {
        self.all.iter().filter(|rest| rest.is_awaited()).for_each(|rest| pair::dissolve(rest.other.raw()));
        self.all.retain(|rest| !rest.is_awaited());
    }

    /// Writes some of each, and forgets those that are done. What the others wait for.
    fn write(&mut self) -> Vec<libc::pollfd> {
        self.all.retain_mut(|rest| !rest.write());
        let wait_for = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let bell = self.bell.iter().map(|bell| wait_for(bell.fd(), libc::POLLIN));
        bell.chain(self.all.iter().map(|rest| wait_for(rest.other.raw(), libc::POLLOUT))).collect()
    }
}

/// Writes a rest as the room comes. `false`: nobody does.
pub(super) fn add(process: &'static Process, offload: &mut Offload, rest: Backlog) -> bool {
    // Who is killed here leaves no stream that seems to end.
    pair::break_off(&rest.other);
    let backlogs = &mut offload.backlogs;
    if backlogs.bell.is_none() {
        backlogs.bell = EventFd::new().ok();
    }
    let Some(bell) = &backlogs.bell else { return false };
    bell.signal();
    backlogs.all.push(rest);
    if !backlogs.is_served {
        let _undisturbed = Blocked::new();
        let started = std::thread::Builder::new().name("ringway-rest".to_owned()).spawn(move || crate::boundary!((), serve(process)));
        backlogs.is_served = started.is_ok();
        if started.is_err() {
            backlogs.all.pop();
        }
    }
    backlogs.is_served
}

fn serve(process: &'static Process) {
    loop {
        let mut entries = {
            let mut offload = process.lock();
            let backlogs = &mut offload.backlogs;
            if let Some(bell) = &backlogs.bell {
                bell.clear();
            }
            let entries = backlogs.write();
            if backlogs.all.is_empty() {
                backlogs.is_served = false;
                return;
            }
            entries
        };
        // SAFETY: as many pollfds as it says. (The descriptors are this thread's to close, but for the process's end.)
        unsafe { real::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, -1) };
    }
}

/// A connection that a peer has taken to the kernel in a dialogue that goes on: in it, it may leave a rest as well.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(super) dialogue: u64,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// Forks before the socket was made.
    pub(super) birth: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(len: usize) -> Backlog {
        let (_, other) = pair::pipe().unwrap();
        Backlog { other, bytes: vec![0; len], written: 0, is_reset: false, until: None, birth: Some(descendants::forks()) }
    }

    #[test]
    fn so_much_is_kept_for_others() {
        let mut backlogs = Backlogs::default();
        assert!(backlogs.has_room(BYTES_MAX) && !backlogs.has_room(BYTES_MAX + 1));
        backlogs.all.push(rest(10));
        assert!(backlogs.has_room(BYTES_MAX - 10) && !backlogs.has_room(BYTES_MAX - 9) && !backlogs.has_room(usize::MAX));
        backlogs.all.extend((1..COUNT_MAX.min(200)).map(|_| rest(0)));
        assert!(backlogs.has_room(1), "{} of {COUNT_MAX}", backlogs.all.len());
    }

    #[test]
    fn what_no_child_can_read_is_not_awaited() {
        let mut backlogs = Backlogs::default();
        backlogs.all.push(rest(1));
        assert!(!backlogs.are_awaited());
        backlogs.all.push(Backlog { birth: None, ..rest(1) });
        assert!(backlogs.are_awaited());
        backlogs.give_up();
        assert_eq!(backlogs.all.len(), 1);
    }
}
