//! SCM_RIGHTS (unix(7)): a connection that is sent to another process is the kernel's from then on.

use core::ffi::c_int;

use libc::msghdr;
use ringway_stack::offload::Reason;

use crate::errno::is_nowhere;
use crate::{cmsg, moving};

/// Before a message is sent: moves the connections among the descriptors in it.
///
/// # Safety
/// `message` leads nowhere for certain, or the program's promise to sendmsg(2) holds for it.
#[inline]
pub(super) unsafe fn before(message: *const msghdr) {
    // SAFETY: the caller's promise.
    if !is_nowhere(message) && unsafe { (*message).msg_controllen } != 0 {
        // SAFETY: the caller's promise.
        crate::boundary!((), unsafe { look_through(message) });
    }
}

#[cold]
unsafe fn look_through(message: *const msghdr) {
    // SAFETY: the caller's promise: the control room is readable for the length that the message says.
    let Some(room) = (unsafe { cmsg::room((*message).msg_control, (*message).msg_controllen) }) else { return };
    // (One that is cut is the kernel's to refuse, with all of the message.)
    let _whole = cmsg::each::<cmsg::Cut>(room, |message| {
        if (message.level, message.kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            for fd in message.payload.as_chunks().0 {
                moving::hand_out(c_int::from_ne_bytes(*fd), Reason::SharedConnection);
            }
        }
        Ok(())
    });
}
