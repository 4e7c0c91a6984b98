//! poll and ppoll over both worlds; select comes down to them.
//!
//! A set without a descriptor of ours never gets here ([`concerns`]). In a mixed set, what we carry is asked of the ring; the
//! rest, with the kernel's half of our sockets, of the kernel: when the ring has nothing, and every so often
//! (VMA_SELECT_POLL_OS_RATIO) when it has.

mod plain;

use core::time::Duration;

use libc::pollfd;
use ringway_host::sleep::ppoll;
use ringway_stack::time::Instant;

use super::thread::{self, Thread};
use super::wait::{SpinClass, Waited, Waiting, wait};
use super::{Source, epoll, readiness};
use crate::errno::Errno;
use crate::extra::resume::{self, Resume};
use crate::fdtable::{self, Entry};
use crate::process::{Offload, Process};
use crate::socket::{lifecycle, listen};

/// Reported whether asked for or not (poll(2)).
const ALWAYS: i16 = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;

/// Whether a descriptor is one that the kernel cannot answer for.
#[inline]
pub(crate) fn concerns(fd: i32) -> bool {
    match fdtable::lookup(fd) {
        Entry::Socket(_) => true,
        Entry::Epoll(index) => epoll::is_awaited(fd, index),
        _ => false,
    }
}

/// What to sleep for.
#[derive(Default)]
struct Plan {
    /// The set as the kernel is to see it: descriptors that are ours alone are -1.
    kernel: Vec<pollfd>,
    kernel_any: bool,
    sockets: Vec<u32>,
    epolls: Vec<u32>,
}

/// What a check under the lock found.
enum Found {
    /// So many descriptors are ready.
    Ready(usize),
    /// A descriptor became another kind of thing: plan again.
    Changed,
}

/// `poll`: fills in `revents`, and says how many descriptors are ready. `None`: until one is.
pub(crate) fn poll(
    process: &Process,
    fds: &mut [pollfd],
    timeout: Option<Duration>,
    sigmask: Option<&libc::sigset_t>,
) -> Result<usize, Errno> {
    let now = process.now();
    let resume = resume::taken();
    let deadline = timeout.map(|timeout| resume.map_or(now, |resume| resume.began) + timeout);
    poll_until(process, fds, deadline, sigmask, resume)
}

/// [`poll`]. `resume`: callbacks have run for the call already.
pub(super) fn poll_until(
    process: &Process,
    fds: &mut [pollfd],
    deadline: Option<Instant>,
    sigmask: Option<&libc::sigset_t>,
    resume: Option<Resume>,
) -> Result<usize, Errno> {
    let ready = wait_until(process, fds, deadline, sigmask, resume)?;
    if ready != 0 && crate::extra::was_any_held() {
        let offload = process.lock();
        for fd in fds.iter().filter(|fd| fd.revents & libc::POLLIN != 0) {
            if let Entry::Socket(key) = fdtable::peek(fd.fd)
                && let Some(socket) = offload.sockets.find(key)
            {
                socket.told_readable();
            }
        }
    }
    Ok(ready)
}

fn wait_until(
    process: &Process,
    fds: &mut [pollfd],
    deadline: Option<Instant>,
    sigmask: Option<&libc::sigset_t>,
    resume: Option<Resume>,
) -> Result<usize, Errno> {
    let started = process.now();
    let is_fresh = resume.is_none();
    let before = thread::with(Thread::marks);
    if is_fresh
        && sigmask.is_none()
        && let Some(found) = plain::poll(process, fds, started, deadline)
    {
        return found;
    }
    let resume = resume.unwrap_or_else(|| Resume::new(started)).polling();
    for fd in fds.iter().map(|fd| fd.fd) {
        // (What is on its way becomes ready when it has arrived.)
        if let entry @ Entry::Socket(_) = fdtable::lookup_with(fd, libc::MSG_DONTWAIT)
            && fdtable::is_stale(fd, started)
        {
            lifecycle::displaced(fd, entry);
        }
    }
    {
        let mut offload = process.lock();
        offload.poll_if_due(started);
        // What they decide about may be what is polled for.
        if is_fresh && offload.callbacks.are_due() {
            return Err(resume.due());
        }
        let ready = examine(&mut offload, fds);
        if ready != 0 && !kernel_is_due(process) {
            return Ok(ready);
        }
    }
    let marks = resume.marks.filter(|_| !is_fresh).unwrap_or(before);
    loop {
        let (mut plan, changes) = {
            let mut offload = process.lock();
            (plan(&mut offload, fds), offload.mux.changes)
        };
        let kernel: &mut [pollfd] = if plan.kernel_any { &mut plan.kernel } else { &mut [] };
        let (callbacks, since) = (resume.may_stop(|| process.now(), deadline), Some(marks));
        let mut w = Waiting {
            sockets: &plan.sockets,
            epolls: &plan.epolls,
            kernel,
            deadline,
            sigmask,
            spin: SpinClass::Select,
            restart: false,
            callbacks,
            since,
            polls: false,
        };
        let waited = wait(process, &mut w, |offload, _| match examine(offload, fds) {
            0 if offload.mux.changes != changes => Some(Found::Changed),
            0 => None,
            ready => {
                let polled = fds.iter().filter_map(|fd| if let Entry::Socket(key) = fdtable::peek(fd.fd) { Some(key) } else { None });
                offload.say_which_are_plain(polled);
                Some(Found::Ready(ready))
            }
        });
        match waited {
            Waited::Ready(Found::Changed) => {}
            Waited::Ready(Found::Ready(ready)) if plan.kernel_any => return Ok(ready.max(merge_kernel(process, fds, &mut plan))),
            Waited::Ready(Found::Ready(ready)) => return Ok(ready),
            Waited::Kernel => {
                examine(&mut process.lock(), fds);
                let ready = merge(process, fds, &plan.kernel);
                if ready != 0 {
                    return Ok(ready);
                }
            }
            Waited::TimedOut => {
                for fd in fds {
                    fd.revents = 0;
                }
                return Ok(0);
            }
            Waited::Interrupted => return Err(Errno(libc::EINTR)),
            Waited::Due => return Err(resume.due()),
        }
        // A handler that ran while something changed ends the call as well: the next wait would know nothing of it.
        if thread::with(|thread| thread.interrupted(marks, false)) {
            return Err(Errno(libc::EINTR));
        }
    }
}

/// Whether the kernel's part of a set is asked although ours has something (VMA_SELECT_SKIP_OS).
fn kernel_is_due(process: &Process) -> bool {
    thread::with(|thread| thread.kernel_is_due(process.params.select_skip_os))
}

/// Fills in what is known of descriptors that we carry; how many are ready. The others' `revents` become zero.
fn examine(offload: &mut Offload, fds: &mut [pollfd]) -> usize {
    let mut ready = 0;
    for fd in fds {
        let found = match fdtable::peek(fd.fd) {
            Entry::Socket(key) => offload.sockets.find(key).map_or(0, |socket| readiness(&offload.rings, socket)),
            Entry::Epoll(index) if !epoll::is_plain(index) && epoll::is_readable(offload, index) => super::IN,
            _ => 0,
        };
        // The bits of poll and epoll are the same, and those that poll knows are the lower half.
        #[expect(clippy::cast_possible_truncation, reason = "the upper half is epoll's own")]
        let found = (found as u16).cast_signed();
        fd.revents = found & (fd.events | ALWAYS);
        ready += usize::from(fd.revents != 0);
    }
    ready
}

fn plan(offload: &mut Offload, fds: &[pollfd]) -> Plan {
    let mut plan = Plan::default();
    for fd in fds {
        if fd.events & libc::POLLIN != 0
            && let Entry::Socket(key) = fdtable::peek(fd.fd)
        {
            listen::awaited(offload, key);
        }
        let events = match fdtable::peek(fd.fd) {
            Entry::Socket(key) | Entry::Moving(key) => match offload.sockets.find(key) {
                Some(socket) => {
                    plan.sockets.push(key.index);
                    kernel_events(socket.source(), fd.events)
                }
                None => Some(fd.events),
            },
            Entry::Epoll(_) => {
                plan.epolls.extend(epoll::register(offload, fd.fd));
                Some(fd.events)
            }
            _ => Some(fd.events),
        };
        let number = if events.is_some() { fd.fd } else { -1 };
        plan.kernel_any |= number >= 0;
        plan.kernel.push(pollfd { fd: number, events: events.unwrap_or(0), revents: 0 });
    }
    plan
}

fn kernel_events(source: Source, events: i16) -> Option<i16> {
    #[expect(clippy::cast_possible_truncation, reason = "what went in has 16 bits")]
    source.kernel_mask(u32::from(events.cast_unsigned())).map(|mask| (mask as u16).cast_signed())
}

/// Asks the kernel once, and adds what it says. How many are ready in all.
fn merge_kernel(process: &Process, fds: &mut [pollfd], plan: &mut Plan) -> usize {
    match ppoll(&mut plan.kernel, Some(Duration::ZERO), None) {
        Ok(found) if found != 0 => merge(process, fds, &plan.kernel),
        _ => 0,
    }
}

/// Adds what the kernel found to what we did. How many are ready in all. The next look at the kernel comes soon.
fn merge(process: &Process, fds: &mut [pollfd], kernel: &[pollfd]) -> usize {
    thread::with(Thread::kernel_delivered);
    let mut ready = 0;
    for (fd, found) in fds.iter_mut().zip(kernel) {
        fd.revents |= found.revents;
        ready += usize::from(fd.revents != 0);
        if found.revents & libc::POLLIN != 0
            && let Entry::Socket(key) = fdtable::peek(fd.fd)
            && let Some(socket) = process.lock().sockets.find_mut(key)
        {
            socket.kernel_poll.hint = true;
        }
    }
    ready
}
