//! SCM_RIGHTS (unix(7)): a connection that is sent to another process is the kernel's from then on.

use core::ffi::c_int;
use core::mem::size_of;

use libc::msghdr;
use ringway_stack::offload::Reason;

use crate::moving;

/// Before a message is sent: moves the connections among the descriptors in it.
///
/// # Safety
/// `message` is null, or the program's promise to sendmsg(2) holds for it.
#[inline]
pub(super) unsafe fn before(message: *const msghdr) {
    // SAFETY: the caller's promise.
    if !message.is_null() && unsafe { (*message).msg_controllen } != 0 {
        // SAFETY: the caller's promise.
        crate::boundary!((), unsafe { look_through(message) });
    }
}

#[cold]
unsafe fn look_through(message: *const msghdr) {
    // SAFETY: the caller's promise: the control buffer is readable for the length that the message says, and the macros stay in it.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: as above; the descriptors may be unaligned.
        unsafe {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = ((*header).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                for i in 0..bytes / size_of::<c_int>() {
                    let fd = libc::CMSG_DATA(header).cast::<c_int>().add(i).read_unaligned();
                    moving::hand_out(fd, Reason::SharedConnection);
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}
