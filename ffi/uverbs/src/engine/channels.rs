//! Descriptors that a program reads events from: completion channels, and a context's own for what is asynchronous (rdma/ib_user_verbs.h,
//! `ib_uverbs_comp_event_desc`, `ib_uverbs_async_event_desc`).

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};

use ringway_host::Fd;
use ringway_preload::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::paths::from_rustix;

/// Asynchronous events that wait at most.
const ASYNC_MAX: usize = 1024;

/// A channel, from the card's side. Both ends are the kernel's, so that reading, polling and duplicating them needs nothing of ours.
#[derive(Debug)]
pub(crate) struct Channel {
    writer: Fd,
    /// The program's end once more: what it has not read can be taken back.
    reader: Fd,
    waiting: VecDeque<Vec<u8>>,
    /// Descriptors of the program's end.
    pub(super) descriptors: u32,
}

/// Both ends of what a program reads from, and its own descriptor of the second: of them all, only that has a number of the program's.
///
/// # Errors
/// What the kernel says of sockets.
pub(crate) fn ends() -> Result<(Fd, Fd, OwnedFd), Errno> {
    let (theirs, ours) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map_err(from_rustix)?;
    let copy = Fd::of(|| rustix::io::fcntl_dupfd_cloexec(theirs.as_fd(), 0)).map_err(from_rustix)?;
    Ok((Fd::of(|| Ok::<_, Errno>(ours))?, copy, theirs))
}

impl Channel {
    /// A channel, and the program's end of it.
    pub(crate) fn new() -> Result<(Self, OwnedFd), Errno> {
        let (writer, reader, theirs) = ends()?;
        Ok((Self { writer, reader, waiting: VecDeque::new(), descriptors: 1 }, theirs))
    }

    /// Tells of an event: the handle that the program gave the object. Unread events of a queue are never more than its arm requests.
    pub(crate) fn send(&mut self, user_handle: u64) {
        self.waiting.push_back(user_handle.to_ne_bytes().to_vec());
        self.flush();
    }

    /// Tells of an asynchronous event: {element 0, event_type 8, reserved 12}. What nobody reads is lost at some time.
    pub(crate) fn send_async(&mut self, element: u64, kind: u32) -> bool {
        if self.waiting.len() >= ASYNC_MAX {
            return false;
        }
        self.waiting.push_back([&element.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 4]].concat());
        self.flush();
        true
    }

    /// Hands over what there was no room for.
    pub(crate) fn flush(&mut self) {
        while let Some(message) = self.waiting.front() {
            let sent = rustix::net::send(&self.writer, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            if matches!(sent, Err(rustix::io::Errno::AGAIN)) {
                break;
            }
            self.waiting.pop_front();
        }
    }

    /// Takes back what was not read of an object's events; how many they were.
    pub(crate) fn take_back(&mut self, user_handle: u64) -> u32 {
        let mut unread = VecDeque::new();
        let mut bytes = [0; 16];
        while let Ok((_, len @ 8..)) = rustix::net::recv(&self.reader, &mut bytes, RecvFlags::DONTWAIT) {
            unread.push_back(bytes[..len.min(16)].to_vec());
        }
        unread.append(&mut self.waiting);
        let all = unread.len();
        unread.retain(|message| message.first_chunk() != Some(&user_handle.to_ne_bytes()));
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
    #[test]
    fn asynchronous_events_name_an_object_and_what_happened() {
        let (mut channel, theirs) = Channel::new().unwrap();
        assert!(channel.send_async(7, 3) && channel.send_async(1, 10) && channel.send_async(7, 1));
        assert_eq!(channel.take_back(7), 2);
        let mut bytes = [0; 16];
        rustix::io::read(&theirs, &mut bytes).unwrap();
        assert_eq!(bytes, *[&1u64.to_ne_bytes()[..], &10u32.to_ne_bytes(), &[0; 4]].concat());
        while channel.waiting.len() < ASYNC_MAX {
            assert!(channel.send_async(7, 3));
        }
        assert!(!channel.send_async(7, 3), "nobody reads them");
    }
}
