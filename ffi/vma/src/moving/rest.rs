//! What the kernel has no room for before somebody reads.

use std::net::SocketAddrV4;

use ringway_shm::Fd;
use ringway_stack::offload::Reason;

use super::{Move, Role, pair};
use crate::errno::Errno;
use crate::process::Process;

/// What is owed to the readers of the placeholder, and found no room before they read.
pub(super) struct Rest {
    /// The placeholder's other side.
    pub(super) other: Fd,
    pub(super) bytes: Vec<u8>,
    /// And then a reset, not an end.
    pub(super) is_reset: bool,
    /// Closed when it is written: somebody waits for that.
    pub(super) until: Option<Fd>,
}

impl Rest {
    /// Writes what there is room for; what is left, if anything is.
    pub(super) fn after(other: Fd, bytes: Vec<u8>, is_reset: bool) -> Result<Option<Self>, Errno> {
        let written = pair::write_some(other.raw(), &bytes)?;
        let rest = bytes[written..].to_vec();
        Ok((!rest.is_empty()).then_some(Self { other, bytes: rest, is_reset, until: None }))
    }

    /// Writes it as the room comes. `is_awaited`: the process does not end meanwhile, if that is its choice.
    pub(super) fn write_for(self, process: &'static Process, local: SocketAddrV4, remote: SocketAddrV4, is_awaited: bool) {
        if is_awaited {
            let writing = Move { local, remote, key: None, role: Role::Writing, reason: Reason::SharedConnection, reuse_address: None };
            process.lock().moves.push(writing);
        }
        self.write();
        if is_awaited {
            process.lock().moves.retain(|moving| !(moving.is_between(local, remote) && moving.is_rest()));
        }
    }

    fn write(self) {
        // Who is killed here leaves no stream that seems to end.
        pair::break_off(&self.other);
        if pair::write_all(self.other.raw(), &self.bytes).is_ok() && !self.is_reset {
            pair::end_in_order(&self.other);
        }
        drop(self.other);
        drop(self.until);
    }
}
