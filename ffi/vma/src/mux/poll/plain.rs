//! poll(2) of one plain socket, by its ring's lock alone.

use core::time::Duration;

use libc::pollfd;
use ringway_host::sleep::ppoll;
use ringway_stack::time::Instant;

use super::super::alone::{Slept, Wait, Watched};
use super::super::thread::{self, Thread};
use super::super::wait::SpinClass;
use super::{ALWAYS, kernel_is_due};
use crate::errno::Errno;
use crate::fdtable::{self, Entry};
use crate::process::Process;
use crate::slab::Key;
use crate::socket::plain::{self, Readable};

/// What may be asked for: all else, the kernel has to be asked about.
const READS: i16 = libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND;
const MEANT: i16 = READS | libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLRDHUP;

/// What a look found.
enum Look<'a> {
    /// This, which is not zero.
    Ready(i16),
    /// Nothing, so far.
    Nothing(Readable<'a>),
}

/// Polls one socket. `None`: it is to be polled the long way.
pub(super) fn poll(process: &Process, fd: &mut pollfd, started: Instant, deadline: Option<Instant>) -> Option<Result<usize, Errno>> {
    let Entry::Socket(key) = fdtable::peek(fd.fd) else { return None };
    let is_meant = process.has_several_rings() && fd.events & !MEANT == 0 && fd.events & READS != 0;
    if !is_meant || crate::extra::was_any_held() || fdtable::is_stale(fd.fd, started) {
        return None;
    }
    let (has_half, is_unwatched) = match look(process, fd, key, started)? {
        Look::Ready(found) => {
            fd.revents = found;
            return Some(Ok(1));
        }
        Look::Nothing(readable) => {
            let told = (readable.is_of_datagrams(), readable.is_unwatched());
            readable.leave(process, started);
            told
        }
    };
    if deadline.is_some_and(|deadline| deadline <= started) {
        return Some(Ok(usize::from(has_half && ask_kernel(process, fd, key))));
    }
    let timeout = deadline.map(|deadline| deadline.since(started));
    if !is_unwatched {
        return None;
    }
    Wait::run(process, SpinClass::Select, timeout, false, |wait| wait_for(process, wait, fd, key))
}

/// `None`: the wait is to go on the long way.
fn wait_for(process: &Process, wait: &mut Wait<'_>, fd: &mut pollfd, key: Key) -> Option<Result<usize, Errno>> {
    loop {
        let now = process.now();
        let mut readable = match look(process, fd, key, now)? {
            Look::Ready(found) => {
                fd.revents = found;
                wait.found(now);
                return Some(Ok(1));
            }
            Look::Nothing(readable) if readable.is_unwatched() => readable,
            Look::Nothing(_) => return None,
        };
        let (flow, has_half) = (readable.flow(), readable.is_of_datagrams());
        if let Some(end) = wait.end(now) {
            readable.leave(process, now);
            // (What the kernel has by now counts.)
            let found = end == Errno(libc::EAGAIN) && has_half && ask_kernel(process, fd, key);
            return Some(if end == Errno(libc::EAGAIN) { Ok(usize::from(found)) } else { Err(end) });
        }
        let slept = if wait.spins(now) {
            readable.leave(process, now);
            Slept::Look
        } else if readable.has_more_to_do() {
            drop(readable);
            plain::see_to_the_rest(process, flow.ring, now, None);
            wait.try_again()
        } else {
            let (own, begin) = readable.into_sleep(key);
            wait.sleep(own, (flow.ring, Some(flow), Watched::Socket(key.index)), begin, has_half.then_some(fd.fd), now)
        };
        match slept {
            Slept::Look => {}
            Slept::Kernel if ask_kernel(process, fd, key) => return Some(Ok(1)),
            Slept::Kernel if matches!(wait.was_in_vain(), Slept::Look) => {}
            Slept::Kernel | Slept::LongWay => return None,
        }
    }
}

/// Looks at our half, and at the kernel's if it is that one's turn although ours has something. `None`: the socket is not plain.
fn look<'a>(process: &'a Process, fd: &mut pollfd, key: Key, now: Instant) -> Option<Look<'a>> {
    let readable = Readable::new(process, key, now)?;
    fd.revents = 0;
    // The bits of poll and epoll are the same, and those that poll knows are the lower half.
    #[expect(clippy::cast_possible_truncation, reason = "the upper half is epoll's own")]
    let found = (readable.readiness() as u16).cast_signed() & (fd.events | ALWAYS);
    if found == 0 {
        return Some(Look::Nothing(readable));
    }
    let asks = readable.is_of_datagrams() && kernel_is_due(process);
    readable.leave(process, now);
    if asks {
        ask_kernel(process, fd, key);
    }
    Some(Look::Ready(found | core::mem::take(&mut fd.revents)))
}

/// Asks the kernel once about its half, which says nothing of room to send. Whether it has something.
fn ask_kernel(process: &Process, fd: &mut pollfd, key: Key) -> bool {
    let mut kernel = [pollfd { fd: fd.fd, events: fd.events & READS, revents: 0 }];
    if !matches!(ppoll(&mut kernel, Some(Duration::ZERO), None), Ok(1)) {
        return false;
    }
    fd.revents = kernel[0].revents;
    thread::with(Thread::kernel_delivered);
    if kernel[0].revents & libc::POLLIN != 0
        && let Some(mut readable) = Readable::new(process, key, process.now())
    {
        readable.hint();
        readable.leave(process, process.now());
    }
    true
}
