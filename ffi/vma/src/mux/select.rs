//! select and pselect, in terms of poll.

use core::time::Duration;

use ringway_preload::sets::Sets;

use super::poll::poll_until;
use crate::errno::Errno;
use crate::extra::resume::{self, DUE};
use crate::process::Process;

/// `select`: leaves the ready descriptors in the sets, and says how many bits there are. `None`: until one is.
pub(crate) fn select(
    process: &Process,
    sets: &mut Sets<'_>,
    timeout: Option<Duration>,
    sigmask: Option<&libc::sigset_t>,
) -> Result<usize, Errno> {
    let mut fds = sets.to_poll();
    let mut resume = resume::taken();
    let began = resume.map_or_else(|| process.now(), |resume| resume.began);
    let deadline = timeout.map(|timeout| began + timeout);
    loop {
        let polled = poll_until(process, &mut fds, deadline, sigmask, resume.take());
        if polled == Err(DUE) {
            resume::rebase(began);
        }
        let ready = polled?;
        if fds.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) {
            return Err(Errno(libc::EBADF));
        }
        if ready == 0 || fds.iter().any(|fd| sets.matches(fd)) {
            return Ok(sets.fill(&fds));
        }
        fds.retain(|fd| fd.revents == 0);
    }
}
