//! rpoll: rsockets and other descriptors together. Any number of threads may wait for one rsocket.

use core::time::Duration;
use std::os::fd::RawFd;

use libc::pollfd;
use ringway_host::sleep::ppoll;
use ringway_host::spin::Outcome;
use ringway_preload::Errno;
use ringway_stack::Instant;
use ringway_stack::flow::Readiness;

use crate::library::{Entered, Library, enter_or_none};
use crate::wait::Looking;

/// Waits until a descriptor is ready, and says how many are. `None`: without a limit.
///
/// # Errors
/// EINTR; EINVAL: more descriptors than RLIMIT_NOFILE; ENOMEM, EMFILE: there is nothing to sleep on.
pub(crate) fn poll(fds: &mut [pollfd], timeout: Option<Duration>) -> Result<usize, Errno> {
    poll_unless(fds, timeout, |_| false)
}

/// The same; it ends as if the time were up once `is_over` says so, which is asked whenever something happens.
///
/// # Errors
/// As [`poll`].
pub(super) fn poll_unless(fds: &mut [pollfd], timeout: Option<Duration>, is_over: impl Fn(&Library) -> bool) -> Result<usize, Errno> {
    let mut looking = Looking::new(false);
    loop {
        let Some(mut library) = enter_or_none() else {
            // There is no rsocket at all.
            return kernel(fds, timeout);
        };
        let now = looking.poll(&mut library);
        let mut others = Others::of(&library, fds);
        let ours = look(&mut library, now, fds);
        let began = looking.began(&library);
        // (A wait of no time looks once, however late the clock is looked at.)
        let left = timeout.map(|timeout| if timeout.is_zero() { timeout } else { (began + timeout).since(now) });
        if ours > 0 || left == Some(Duration::ZERO) || is_over(&library) {
            drop(library);
            looking.ended(now, if ours > 0 { Outcome::Satisfied } else { Outcome::InVain });
            return Ok(ours + others.ask(fds)?);
        }
        if looking.is_interrupted() {
            drop(library);
            looking.ended(now, Outcome::InVain);
            let ready = others.ask(fds)?;
            return if ready > 0 { Ok(ready) } else { Err(Errno(libc::EINTR)) };
        }
        if looking.goes_on(now) {
            drop(library);
            looking.pause(now);
            let ready = others.ask(fds)?;
            if ready > 0 {
                return Ok(ready);
            }
            continue;
        }
        looking.sleep(library, &mut others.fds, left)?;
        if others.fds.iter().any(|fd| fd.revents != 0) {
            // With what rsockets are ready by now.
            let ours = enter_or_none().map_or(0, |mut library| {
                let now = library.poll();
                look(&mut library, now, fds)
            });
            return Ok(ours + others.tell(fds));
        }
    }
}

/// Descriptors that are none of ours, for the kernel to answer for.
struct Others {
    fds: Vec<pollfd>,
    /// Where each came from.
    places: Vec<usize>,
}

impl Others {
    fn of(library: &Entered, fds: &[pollfd]) -> Self {
        let theirs = |(_, fd): &(usize, &pollfd)| fd.fd >= 0 && !library.table.contains_key(&fd.fd);
        let (places, fds) = fds.iter().enumerate().filter(theirs).map(|(place, fd)| (place, pollfd { revents: 0, ..*fd })).unzip();
        Self { fds, places }
    }

    /// How many are ready now; says so in `fds`, too.
    fn ask(&mut self, fds: &mut [pollfd]) -> Result<usize, Errno> {
        if self.fds.is_empty() {
            return Ok(0);
        }
        kernel(&mut self.fds, Some(Duration::ZERO))?;
        Ok(self.tell(fds))
    }

    fn tell(&self, fds: &mut [pollfd]) -> usize {
        for (place, fd) in self.places.iter().zip(&self.fds) {
            fds[*place].revents = fd.revents;
        }
        self.fds.iter().filter(|fd| fd.revents != 0).count()
    }
}

fn kernel(fds: &mut [pollfd], timeout: Option<Duration>) -> Result<usize, Errno> {
    ppoll(fds, timeout, None).map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EINTR)))
}

/// Says which rsockets are ready; how many are.
fn look(library: &mut Entered, now: Instant, fds: &mut [pollfd]) -> usize {
    let mut ready = 0;
    for fd in fds {
        fd.revents = 0;
        let Ok(readiness) = readiness_of(library, now, fd.fd) else { continue };
        fd.revents = events_of(readiness) & (fd.events | libc::POLLERR | libc::POLLHUP);
        ready += usize::from(fd.revents != 0);
    }
    ready
}

/// What an rsocket is ready for.
pub(crate) fn readiness_of(library: &mut Library, now: Instant, fd: RawFd) -> Result<Readiness, Errno> {
    let Library { sockets, table, plane, fabric, .. } = library;
    let entry = table.get_mut(&fd).ok_or(Errno(libc::EBADF))?;
    if let Ok(id) = entry.stream() {
        return Ok(sockets.readiness(now, plane, id).unwrap_or(Readiness::ERR));
    }
    // One that is not bound has room, and nothing else.
    let Ok((open, udp)) = entry.open_datagram() else { return Ok(Readiness::OUT) };
    open.take_udp(now, udp, plane, fabric);
    open.state.poll(now, plane);
    Ok(open.readiness())
}

/// As poll(2) says it.
pub(crate) fn events_of(ready: Readiness) -> i16 {
    let pairs = [
        (Readiness::IN, libc::POLLIN | libc::POLLRDNORM),
        (Readiness::OUT, libc::POLLOUT | libc::POLLWRNORM),
        (Readiness::ERR, libc::POLLERR),
        (Readiness::HUP, libc::POLLHUP),
        (Readiness::RDHUP, libc::POLLRDHUP),
    ];
    pairs.into_iter().filter(|(flag, _)| ready.contains(*flag)).fold(0, |events, (_, event)| events | event)
}
