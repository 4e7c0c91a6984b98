//! rselect, in terms of rpoll.

use core::time::Duration;

use ringway_host::Clock;
use ringway_preload::Errno;
use ringway_preload::sets::Sets;

use super::poll::poll;

/// Leaves the descriptors that are ready in the sets (readable, writable, exceptional), and says how many bits there are. `None`: until one is.
///
/// # Errors
/// EBADF: one is not open; [`poll`]'s.
pub(crate) fn select(sets: &mut Sets<'_>, timeout: Option<Duration>) -> Result<usize, Errno> {
    let mut fds = sets.to_poll();
    let deadline = timeout.map(|timeout| Clock::system().now() + timeout);
    loop {
        let left = deadline.map(|deadline| deadline.since(Clock::system().now()));
        let ready = poll(&mut fds, left)?;
        if fds.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) {
            return Err(Errno(libc::EBADF));
        }
        if ready == 0 || fds.iter().any(|fd| sets.matches(fd)) {
            return Ok(sets.fill(&fds));
        }
        fds.retain(|fd| fd.revents == 0);
    }
}

#[cfg(test)]
mod tests {
    use core::ffi::c_ulong;

    use super::*;

    const WORD_BITS: usize = c_ulong::BITS as usize;

    #[test]
    fn sets_say_what_is_ready() {
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
        let ask = |[mut reads, mut writes]: [[c_ulong; 16]; 2], timeout| {
            let places = [reads.as_mut_ptr().cast(), writes.as_mut_ptr().cast(), core::ptr::null_mut()];
            // SAFETY: two sets of 1,024 bits that live, and none.
            let result = select(&mut unsafe { Sets::new(count, places) }, timeout);
            (result, [reads, writes])
        };
        assert_eq!(ask([bits(&[read]), bits(&[write])], Some(Duration::ZERO)), (Ok(1), [bits(&[]), bits(&[write])]));
        // SAFETY: both are ours.
        unsafe { (libc::close(pipe[0]), libc::close(pipe[1])) };
        assert_eq!(ask([bits(&[write]), bits(&[])], None).0, Err(Errno(libc::EBADF)));
    }
}
