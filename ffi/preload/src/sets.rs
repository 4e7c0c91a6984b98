//! select's three sets, in terms of poll.

use core::ffi::c_int;

use libc::{c_ulong, fd_set, pollfd};

/// What makes a descriptor readable, writable and exceptional (select(2), "Correspondence between select() and poll()
/// notifications").
const READABLE: i16 = libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLIN | libc::POLLHUP | libc::POLLERR;
const WRITABLE: i16 = libc::POLLWRBAND | libc::POLLWRNORM | libc::POLLOUT | libc::POLLERR;
const EXCEPTIONAL: i16 = libc::POLLPRI;

/// What poll is to be asked for a descriptor of each set.
const ASKED: [i16; 3] =
    [libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND, libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND, EXCEPTIONAL];

const WORD_BITS: usize = c_ulong::BITS as usize;

/// One of the three: as many bits as the call has descriptors, which may be more than FD_SETSIZE. `None`: the empty one.
struct Set<'a>(Option<&'a mut [c_ulong]>);

impl Set<'_> {
    fn has(&self, fd: usize) -> bool {
        self.0.as_ref().is_some_and(|words| words[fd / WORD_BITS] >> (fd % WORD_BITS) & 1 != 0)
    }

    fn put(&mut self, fd: usize, is_in: bool) {
        if let Some(words) = &mut self.0 {
            let (word, bit) = (&mut words[fd / WORD_BITS], 1 << (fd % WORD_BITS));
            if is_in { *word |= bit } else { *word &= !bit }
        }
    }
}

/// The three sets of a call: to be read, to be written, exceptional.
pub struct Sets<'a> {
    count: usize,
    sets: [Set<'a>; 3],
}

impl Sets<'_> {
    /// Those at `bits`, of which each may be null.
    ///
    /// # Safety
    /// Each is null, or valid for reading and writing `count` bits, in whole words, for as long as the sets live.
    pub unsafe fn new(count: usize, bits: [*mut fd_set; 3]) -> Self {
        let words = count.div_ceil(WORD_BITS);
        // SAFETY: the caller's promise; fd_set is an array of words.
        let set = |bits: *mut fd_set| (!bits.is_null()).then(|| unsafe { core::slice::from_raw_parts_mut(bits.cast(), words) });
        Self { count, sets: bits.map(|bits| Set(set(bits))) }
    }

    /// Whether that is so of any descriptor in them.
    pub fn any(&self, mut is_so: impl FnMut(c_int) -> bool) -> bool {
        (0..self.count).any(|fd| self.sets.iter().any(|set| set.has(fd)) && c_int::try_from(fd).is_ok_and(&mut is_so))
    }

    /// What poll is to be asked.
    pub fn to_poll(&self) -> Vec<pollfd> {
        let entry = |fd| {
            let events = self.sets.iter().zip(ASKED).filter(|(set, _)| set.has(fd)).fold(0, |events, (_, asked)| events | asked);
            (events != 0).then(|| pollfd { fd: c_int::try_from(fd).unwrap_or(-1), events, revents: 0 })
        };
        (0..self.count).filter_map(entry).collect()
    }

    /// In which of its sets a polled descriptor is ready.
    fn matching(&self, fd: &pollfd) -> [bool; 3] {
        let number = usize::try_from(fd.fd).unwrap_or(0);
        let events = [READABLE, WRITABLE, EXCEPTIONAL];
        core::array::from_fn(|at| fd.revents & events[at] != 0 && self.sets[at].has(number))
    }

    /// Whether a polled descriptor is ready in any of its sets. One that has hung up, and that nobody asked whether it is readable, is not: poll says so for
    /// ever, select never does.
    pub fn matches(&self, fd: &pollfd) -> bool {
        self.matching(fd).contains(&true)
    }

    /// Leaves the bits of what is ready, and no others; how many.
    pub fn fill(&mut self, fds: &[pollfd]) -> usize {
        let ready: Vec<_> = fds.iter().map(|fd| (usize::try_from(fd.fd).unwrap_or(0), self.matching(fd))).collect();
        for set in &mut self.sets {
            (0..self.count).for_each(|fd| set.put(fd, false));
        }
        let mut bits = 0;
        for (fd, in_sets) in ready {
            for (set, _) in self.sets.iter_mut().zip(in_sets).filter(|(_, is_ready)| *is_ready) {
                set.put(fd, true);
                bits += 1;
            }
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(fds: &[usize]) -> [c_ulong; 32] {
        let mut words = [0; 32];
        fds.iter().for_each(|fd| words[fd / WORD_BITS] |= 1 << (fd % WORD_BITS));
        words
    }

    #[test]
    fn sets_become_polls_and_back() {
        let (mut read, mut write) = (bits(&[3, 70, 1500]), bits(&[3]));
        // SAFETY: 2,048 bits each, which live as long; the third is null.
        let mut sets = unsafe { Sets::new(1501, [read.as_mut_ptr().cast(), write.as_mut_ptr().cast(), core::ptr::null_mut()]) };
        let mut fds = sets.to_poll();
        assert_eq!(fds.iter().map(|fd| fd.fd).collect::<Vec<_>>(), [3, 70, 1500]);
        assert_eq!(fds[0].events, ASKED[0] | ASKED[1]);
        assert!(sets.any(|fd| fd == 70) && !sets.any(|fd| fd == 71));
        fds[0].revents = libc::POLLOUT;
        fds[2].revents = libc::POLLHUP;
        assert!(sets.matches(&fds[0]) && !sets.matches(&fds[1]));
        assert_eq!(sets.fill(&fds), 2);
        assert_eq!((read, write), (bits(&[1500]), bits(&[3])));
    }

    #[test]
    fn hanging_up_is_nothing_to_who_only_writes() {
        let mut write = bits(&[5]);
        // SAFETY: as above.
        let sets = unsafe { Sets::new(6, [core::ptr::null_mut(), write.as_mut_ptr().cast(), core::ptr::null_mut()]) };
        assert!(!sets.matches(&pollfd { fd: 5, events: libc::POLLOUT, revents: libc::POLLHUP }));
    }
}
