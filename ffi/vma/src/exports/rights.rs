//! SCM_RIGHTS (unix(7)): a connection that is sent to another process is the kernel's from then on.

use libc::msghdr;
use ringway_preload::messages;
use ringway_stack::offload::Reason;

use crate::moving;

/// Before a message is sent: moves the connections among the descriptors in it.
///
/// # Safety
/// `message` leads nowhere for certain, or the program's promise to sendmsg(2) holds for it.
#[inline]
pub(super) unsafe fn before(message: *const msghdr) {
    // SAFETY: the caller's promise.
    if unsafe { messages::has_control(message) } {
        // SAFETY: the caller's promise.
        crate::boundary!((), unsafe { messages::passed(message, |fd| moving::hand_out(fd, Reason::SharedConnection)) });
    }
}
