//! rselect, in terms of rpoll.

use core::time::Duration;

use libc::{c_ulong, pollfd};
use ringway_host::Clock;
use ringway_preload::Errno;

use super::poll::poll;

/// What makes a descriptor readable, writable and exceptional (select(2), "Correspondence between select() and poll() notifications").
const READABLE: i16 = libc::POLLIN | libc::POLLHUP | libc::POLLERR;
const WRITABLE: i16 = libc::POLLOUT | libc::POLLERR;
const EXCEPTIONAL: i16 = libc::POLLPRI;

const WORD_BITS: usize = c_ulong::BITS as usize;

/// One of the three sets.
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

    fn add(&mut self, fd: usize) {
        if let Some(words) = &mut self.0 {
            words[fd / WORD_BITS] |= 1 << (fd % WORD_BITS);
        }
    }

    fn clear(&mut self, fd: usize) {
        if let Some(words) = &mut self.0 {
            words[fd / WORD_BITS] &= !(1 << (fd % WORD_BITS));
        }
    }
}

/// Leaves the descriptors below `count` that are ready in the sets (readable, writable, exceptional), and says how many bits there are. `None`: until one is.
///
/// # Errors
/// EBADF: one is not open; [`poll`]'s.
pub(crate) fn select(count: usize, sets: &mut [Set<'_>; 3], timeout: Option<Duration>) -> Result<usize, Errno> {
    let wanted = [libc::POLLIN, libc::POLLOUT, EXCEPTIONAL];
    let mut fds: Vec<pollfd> = (0..count)
        .filter_map(|fd| {
            let events = sets.iter().zip(wanted).filter(|(set, _)| set.has(fd)).fold(0, |events, (_, event)| events | event);
            (events != 0).then(|| pollfd { fd: i32::try_from(fd).unwrap_or(-1), events, revents: 0 })
        })
        .collect();
    let deadline = timeout.map(|timeout| Clock::system().now() + timeout);
    loop {
        let left = deadline.map(|deadline| deadline.since(Clock::system().now()));
        let ready = poll(&mut fds, left)?;
        if fds.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) {
            return Err(Errno(libc::EBADF));
        }
        if ready == 0 || fds.iter().any(|fd| matching(sets, fd).contains(&true)) {
            return Ok(fill(count, sets, &fds));
        }
        // Hung up, and nobody asked whether it is readable: poll says so for ever, select never does.
        fds.retain(|fd| fd.revents == 0);
    }
}

/// In which of its sets a descriptor is ready.
fn matching(sets: &[Set<'_>; 3], fd: &pollfd) -> [bool; 3] {
    let number = usize::try_from(fd.fd).unwrap_or(0);
    let events = [READABLE, WRITABLE, EXCEPTIONAL];
    core::array::from_fn(|at| sets[at].has(number) && fd.revents & events[at] != 0)
}

/// Sets the bits of what is ready and no others; how many.
fn fill(count: usize, sets: &mut [Set<'_>; 3], fds: &[pollfd]) -> usize {
    let ready: Vec<_> = fds.iter().map(|fd| (usize::try_from(fd.fd).unwrap_or(0), matching(sets, fd))).collect();
    sets.iter_mut().for_each(|set| (0..count).for_each(|fd| set.clear(fd)));
    let mut bits = 0;
    for (fd, in_sets) in ready {
        for (set, _) in sets.iter_mut().zip(in_sets).filter(|(_, is_ready)| *is_ready) {
            set.add(fd);
            bits += 1;
        }
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_and_written_bit_by_bit() {
        let mut pipe = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
        let [read, write] = pipe.map(|fd| usize::try_from(fd).unwrap());
        let count = read.max(write) + 1;
        let bits = |fds: &[usize]| {
            let mut words = [0 as c_ulong; 16];
            fds.iter().for_each(|fd| words[fd / WORD_BITS] |= 1 << (fd % WORD_BITS));
            words
        };
        let (mut reads, mut writes) = (bits(&[read]), bits(&[write]));
        let mut ask = |timeout| {
            let mut sets = [Set(Some(&mut reads)), Set(Some(&mut writes)), Set(None)];
            select(count, &mut sets, timeout)
        };
        assert_eq!(ask(Some(Duration::ZERO)), Ok(1));
        assert_eq!((reads, writes), (bits(&[]), bits(&[write])));
        // SAFETY: both are ours.
        unsafe { (libc::close(pipe[0]), libc::close(pipe[1])) };
        let mut gone = bits(&[write]);
        assert_eq!(select(count, &mut [Set(Some(&mut gone)), Set(None), Set(None)], None), Err(Errno(libc::EBADF)));
    }
}
