//! poll and select: rsockets and other descriptors together.

use core::ffi::c_int;
use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use libc::{pollfd, sigset_t};
use ringway_preload::Errno;
use ringway_preload::sets::Sets;
use rsocket::api::{self, Look, Waiting};

use crate::socket::{Socket, State, listen_too, look_at_connecting};
use crate::{epoll, handover, table};

/// Whether the kernel alone cannot answer for a descriptor.
pub(crate) fn concerns(fd: c_int) -> bool {
    if table::is_epoll(fd) {
        return epoll::has_rsockets(fd);
    }
    table::socket(fd).is_some_and(|socket| !matches!(socket.state(), State::Fresh | State::Kernel | State::Lost))
}

/// What a descriptor of a call is.
enum Part {
    /// A socket of ours.
    Socket(Arc<Socket>),
    /// An epoll instance that waits for some.
    Epoll,
}

/// A call's descriptors, in two parts.
struct Parts {
    /// Where each is in the call.
    ours: Vec<(usize, Part)>,
    /// For the kernel, and where each came from.
    theirs: Vec<pollfd>,
    places: Vec<usize>,
}

impl Parts {
    fn of(fds: &[pollfd]) -> Self {
        let mut parts = Self { ours: Vec::new(), theirs: Vec::new(), places: Vec::new() };
        for (place, entry) in fds.iter().enumerate().filter(|(_, entry)| entry.fd >= 0) {
            let fd = entry.fd;
            let mut events = Some(entry.events);
            if let Some(socket) = table::socket(fd) {
                prepare(fd, &socket);
                if socket.state() == State::ForkActive {
                    // What the server says comes first.
                    events = Some(libc::POLLIN);
                } else if !socket.is_kernels_too() {
                    events = None;
                }
                if socket.key().is_some() || socket.state() == State::Listening(None) {
                    parts.ours.push((place, Part::Socket(socket)));
                }
            } else if table::is_epoll(fd) && epoll::has_rsockets(fd) {
                epoll::look_after(fd);
                parts.ours.push((place, Part::Epoll));
            }
            if let Some(events) = events {
                parts.theirs.push(pollfd { fd, events, revents: 0 });
                parts.places.push(place);
            }
        }
        parts
    }

    /// Says what of ours is ready; whether anything is, or is to be looked at anew.
    fn look(&self, look: &mut Look<'_>, fds: &mut [pollfd]) -> bool {
        let mut is_any = false;
        for (place, part) in &self.ours {
            let entry = &mut fds[*place];
            let always = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
            entry.revents = match part {
                Part::Epoll if epoll::is_ready(entry.fd, look) => libc::POLLIN & entry.events,
                Part::Epoll => 0,
                Part::Socket(socket) => match socket.key() {
                    Some(key) => look.events(key) & (entry.events | always),
                    None => {
                        is_any |= socket.retries.load(Ordering::Relaxed);
                        0
                    }
                },
            };
            is_any |= entry.revents != 0;
        }
        is_any
    }
}

/// Before a wait for a socket.
fn prepare(fd: c_int, socket: &Arc<Socket>) {
    match socket.state() {
        State::Listening(None) => listen_too(fd, socket),
        // The process that waits for it is the one that uses it.
        State::ForkPassive => drop(handover::settle(fd, socket, true)),
        _ => {}
    }
}

/// Waits until a descriptor is ready, and says how many are.
///
/// # Errors
/// EINTR; EINVAL: more descriptors than RLIMIT_NOFILE; ENOMEM, EMFILE.
pub(crate) fn poll(fds: &mut [pollfd], timeout: Option<Duration>, mask: Option<&sigset_t>) -> Result<usize, Errno> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let mut parts = Parts::of(fds);
        fds.iter_mut().for_each(|fd| fd.revents = 0);
        let mut theirs = core::mem::take(&mut parts.theirs);
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // (A signal ends it, whatever its handler: signal(7).)
        api::wait(&mut theirs, Waiting { timeout: left, mask, restarts: false }, |look| parts.look(look, fds))?;
        api::look(|look| parts.look(look, fds));
        for (place, theirs) in parts.places.iter().zip(&theirs) {
            fds[*place].revents |= theirs.revents;
        }
        let mut has_moved = false;
        for (place, part) in &parts.ours {
            let fd = fds[*place].fd;
            if let Part::Socket(socket) = part
                && fds[*place].revents != 0
                && look_at_connecting(fd, socket)
            {
                fds[*place].revents = 0;
                has_moved = true;
            }
        }
        has_moved |= settle_active(fds);
        let ready = fds.iter().filter(|fd| fd.revents != 0).count();
        let is_over = deadline.is_some_and(|deadline| deadline <= Instant::now());
        if ready > 0 || is_over && !has_moved {
            return Ok(ready);
        }
    }
}

/// A server has said how its connection goes on: it does.
fn settle_active(fds: &mut [pollfd]) -> bool {
    let mut has_moved = false;
    for entry in fds.iter_mut().filter(|entry| entry.revents != 0) {
        if let Some(socket) = table::socket(entry.fd)
            && socket.state() == State::ForkActive
        {
            let _ = handover::settle(entry.fd, &socket, true);
            entry.revents = 0;
            has_moved = true;
        }
    }
    has_moved
}

/// Leaves the descriptors that are ready in the sets, and says how many bits there are.
///
/// # Errors
/// EBADF: one is not open; [`poll`]'s.
pub(crate) fn select(sets: &mut Sets<'_>, timeout: Option<Duration>, mask: Option<&sigset_t>) -> Result<usize, Errno> {
    let mut fds = sets.to_poll();
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let ready = poll(&mut fds, left, mask)?;
        if fds.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) {
            return Err(Errno(libc::EBADF));
        }
        if ready == 0 || fds.iter().any(|fd| sets.matches(fd)) {
            return Ok(sets.fill(&fds));
        }
        fds.retain(|fd| fd.revents == 0);
    }
}
