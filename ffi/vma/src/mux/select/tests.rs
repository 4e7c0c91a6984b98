use super::*;

/// A set of 2048 bits: twice FD_SETSIZE.
fn words(fds: &[usize]) -> [c_ulong; 32] {
    let mut words = [0; 32];
    for fd in fds {
        words[fd / WORD_BITS] |= 1 << (fd % WORD_BITS);
    }
    words
}

fn sets<'a>(count: usize, read: &'a mut [c_ulong; 32], write: &'a mut [c_ulong; 32]) -> Sets<'a> {
    Sets { count, read: Set(Some(read)), write: Set(Some(write)), except: Set(None) }
}

#[test]
fn descriptors_beyond_fd_setsize_are_polled() {
    let (mut read, mut write) = (words(&[3, 1500]), words(&[1500, 1600]));
    let fds = sets(1600, &mut read, &mut write).to_poll();
    let wanted: Vec<_> = fds.iter().map(|fd| (fd.fd, fd.events & libc::POLLIN != 0, fd.events & libc::POLLOUT != 0)).collect();
    assert_eq!(wanted, [(3, true, false), (1500, true, true)], "1600 is not below the count");
}

#[test]
fn results_count_bits_and_leave_the_rest_of_the_words_alone() {
    let (mut read, mut write) = (words(&[1, 2, 70]), words(&[2, 5]));
    let mut sets = sets(66, &mut read, &mut write);
    let mut fds = sets.to_poll();
    for (fd, revents) in fds.iter_mut().zip([0, libc::POLLIN | libc::POLLOUT, libc::POLLHUP]) {
        fd.revents = revents;
    }
    assert_eq!(sets.fill(&fds), 2, "descriptor 5 hung up, which is not writable");
    assert_eq!((read, write), (words(&[2, 70]), words(&[2])));
}
