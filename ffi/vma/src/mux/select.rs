//! select and pselect, in terms of poll.

use core::time::Duration;

use libc::{c_ulong, pollfd};

use super::poll::{concerns, poll_until};
use crate::errno::Errno;
use crate::extra::resume::{self, DUE};
use crate::process::Process;

/// What makes a descriptor readable, writable and exceptional (select(2), "Correspondence between select() and poll()
/// notifications").
const READABLE: i16 = libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLIN | libc::POLLHUP | libc::POLLERR;
const WRITABLE: i16 = libc::POLLWRBAND | libc::POLLWRNORM | libc::POLLOUT | libc::POLLERR;
const EXCEPTIONAL: i16 = libc::POLLPRI;

const WORD_BITS: usize = c_ulong::BITS as usize;

/// One of select's three sets: as many bits as the call has descriptors, which may be more than FD_SETSIZE.
pub(crate) struct Set<'a>(Option<&'a mut [c_ulong]>);

impl Set<'_> {
    /// The set at `bits`; null is the empty one.
    ///
    /// # Safety
    /// `bits` is null, or valid for reading and writing `count` bits, in whole words, for as long as the set lives.
    pub(crate) unsafe fn new(bits: *mut libc::fd_set, count: usize) -> Self {
        // SAFETY: the caller's promise; fd_set is an array of words.
        Self((!bits.is_null()).then(|| unsafe { core::slice::from_raw_parts_mut(bits.cast(), count.div_ceil(WORD_BITS)) }))
    }

    fn has(&self, fd: usize) -> bool {
        self.0.as_ref().is_some_and(|words| words[fd / WORD_BITS] >> (fd % WORD_BITS) & 1 != 0)
    }

    /// Clears the bits below `count`.
    fn clear(&mut self, count: usize) {
        if let Some(words) = &mut self.0 {
            for fd in 0..count {
                words[fd / WORD_BITS] &= !(1 << (fd % WORD_BITS));
            }
        }
    }

    fn add(&mut self, fd: usize) {
        if let Some(words) = &mut self.0 {
            words[fd / WORD_BITS] |= 1 << (fd % WORD_BITS);
        }
    }
}

/// The three sets of a call.
pub(crate) struct Sets<'a> {
    pub(crate) count: usize,
    pub(crate) read: Set<'a>,
    pub(crate) write: Set<'a>,
    pub(crate) except: Set<'a>,
}

impl Sets<'_> {
    /// Whether any descriptor in them is one that the kernel cannot answer for.
    pub(crate) fn concern_us(&self) -> bool {
        (0..self.count).any(|fd| (self.read.has(fd) || self.write.has(fd) || self.except.has(fd)) && i32::try_from(fd).is_ok_and(concerns))
    }

    fn to_poll(&self) -> Vec<pollfd> {
        let wanted = |set: &Set<'_>, fd, events| if set.has(fd) { events } else { 0 };
        (0..self.count)
            .filter_map(|fd| {
                let events = wanted(&self.read, fd, libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND)
                    | wanted(&self.write, fd, libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND)
                    | wanted(&self.except, fd, EXCEPTIONAL);
                (events != 0).then(|| pollfd { fd: i32::try_from(fd).unwrap_or(-1), events, revents: 0 })
            })
            .collect()
    }

    /// Bits that a poll's result sets; how many.
    fn fill(&mut self, fds: &[pollfd]) -> usize {
        let wanted = fds.iter().map(|fd| self.matching(fd)).collect::<Vec<_>>();
        for set in [&mut self.read, &mut self.write, &mut self.except] {
            set.clear(self.count);
        }
        let mut bits = 0;
        for (fd, wanted) in fds.iter().zip(wanted) {
            let number = usize::try_from(fd.fd).unwrap_or(0);
            for (set, is_set) in [&mut self.read, &mut self.write, &mut self.except].into_iter().zip(wanted) {
                if is_set {
                    set.add(number);
                    bits += 1;
                }
            }
        }
        bits
    }

    /// In which of its sets a polled descriptor is ready.
    fn matching(&self, fd: &pollfd) -> [bool; 3] {
        let number = usize::try_from(fd.fd).unwrap_or(0);
        [(&self.read, READABLE), (&self.write, WRITABLE), (&self.except, EXCEPTIONAL)]
            .map(|(set, events)| fd.revents & events != 0 && set.has(number))
    }
}

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
        if ready == 0 || fds.iter().any(|fd| sets.matching(fd).contains(&true)) {
            return Ok(sets.fill(&fds));
        }
        // Hung up, and nobody asked whether it is readable: poll says so for ever, select never does.
        fds.retain(|fd| fd.revents == 0);
    }
}

#[cfg(test)]
mod tests;
