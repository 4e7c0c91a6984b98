//! Which process is at the other end of a socket, as the kernel vouches for it.
//!
//! A pid says that within one PID namespace, and for as long as the process lives; a process of another namespace is called 0. A pidfd's
//! inode (Linux 6.9) is a process's own in all of them, and is never used again.

use std::io;

use crate::fd::Fd;
use crate::sys;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    /// As this process's namespace numbers it; 0 where it has no number there.
    pub(crate) pid: i32,
    /// Of its pidfd; 0 where the kernel does not tell processes by it.
    inode: u64,
}

impl Identity {
    /// Of who connected an accepted socket, or listens where a connected one was accepted.
    pub(crate) fn of_peer(socket: &Fd) -> io::Result<Self> {
        let credentials = sys::peer_credentials(socket)?;
        let inode = match sys::peer_pidfd(socket).and_then(|pidfd| sys::pidfs_inode(&pidfd)) {
            Ok(inode) => inode,
            // Want of descriptors says nothing of the other end.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => return Err(error),
            // An older kernel; or the process is gone, and has none any more.
            Err(_) => 0,
        };
        Ok(Self { uid: credentials.uid, pid: credentials.pid, inode })
    }

    /// Whether both are one process, for certain.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self == other && (self.pid != 0 || self.inode != 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself_and_a_stranger_nobody() {
        let name = format!("ringway-test-identity-{}", sys::pid());
        let listener = sys::unix_socket(libc::SOCK_SEQPACKET).unwrap();
        sys::listen_abstract(&listener, &name, 1).unwrap();
        let client = sys::unix_socket(libc::SOCK_SEQPACKET).unwrap();
        sys::connect_abstract(&client, &name).unwrap();
        let accepted = sys::accept(&listener).unwrap();
        let [one, other] = [&client, &accepted].map(|socket| Identity::of_peer(socket).unwrap());
        assert!(one.is(&other) && one.pid == sys::pid(), "{one:?}, {other:?}");
        // Two processes that this namespace has no number for are not one because of that.
        let unseen = Identity { pid: 0, inode: 0, ..one };
        assert!(!unseen.is(&unseen) && !one.is(&Identity { inode: one.inode + 1, ..one }));
        assert!(Identity { pid: 0, inode: 5, ..one }.is(&Identity { pid: 0, inode: 5, ..one }));
    }
}
