//! Completion channels: descriptors that a program reads events from (rdma/ib_user_verbs.h, `ib_uverbs_comp_event_desc`).

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};

use ringway_preload::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::paths::from_rustix;

/// A channel, from the card's side. Both ends are the kernel's, so that reading, polling and duplicating them needs nothing of ours.
#[derive(Debug)]
pub(crate) struct Channel {
    writer: OwnedFd,
    /// The program's end once more: what it has not read can be taken back.
    reader: OwnedFd,
    waiting: VecDeque<u64>,
    /// Descriptors of the program's end.
    pub(super) descriptors: u32,
}

impl Channel {
    /// A channel, and the program's end of it.
    pub(crate) fn new() -> Result<(Self, OwnedFd), Errno> {
        let (writer, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(from_rustix)?;
        let reader = rustix::io::fcntl_dupfd_cloexec(theirs.as_fd(), 0).map_err(from_rustix)?;
        Ok((Self { writer, reader, waiting: VecDeque::new(), descriptors: 1 }, theirs))
    }

    /// Tells of an event. Unread events of a queue are never more than its arm requests.
    pub(crate) fn send(&mut self, user_handle: u64) {
        self.waiting.push_back(user_handle);
        self.flush();
    }

    /// Hands over what there was no room for.
    pub(crate) fn flush(&mut self) {
        while let Some(handle) = self.waiting.front() {
            let sent = rustix::net::send(&self.writer, &handle.to_ne_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            if matches!(sent, Err(rustix::io::Errno::AGAIN)) {
                break;
            }
            self.waiting.pop_front();
        }
    }

    /// Takes back what was not read of a queue's events; how many they were.
    pub(crate) fn take_back(&mut self, user_handle: u64) -> u32 {
        let mut unread = VecDeque::new();
        let mut bytes = [0; 8];
        while let Ok((_, 8)) = rustix::net::recv(&self.reader, &mut bytes, RecvFlags::DONTWAIT) {
            unread.push_back(u64::from_ne_bytes(bytes));
        }
        unread.append(&mut self.waiting);
        let all = unread.len();
        unread.retain(|handle| *handle != user_handle);
        let taken = all - unread.len();
        self.waiting = unread;
        self.flush();
        taken as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_queue_are_taken_back_if_they_were_not_read() {
        let (mut channel, theirs) = Channel::new().unwrap();
        for handle in [1, 2, 1, 1] {
            channel.send(handle);
        }
        let mut bytes = [0; 8];
        rustix::io::read(&theirs, &mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 1);
        assert_eq!(channel.take_back(1), 2);
        rustix::io::read(&theirs, &mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 2);
        assert_eq!(channel.take_back(2), 0);
    }
}
