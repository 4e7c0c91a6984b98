//! `ioctl`: control messages to the library itself.

use core::ffi::{c_int, c_void};
use core::mem::size_of;
use std::sync::OnceLock;

use libc::size_t;
use ringway_host::HeadMemory;

use crate::errno::Errno;
use crate::{cmsg, errno, process};

const USER_ALLOC: c_int = 2900;
const FOR_TX: u8 = 1;
const FOR_RX: u8 = 2;

/// `vma_cmsg_ioctl_user_alloc_t`.
#[repr(C, packed)]
#[derive(Clone, Copy)]
struct UserAlloc {
    flags: u8,
    allocate: Option<unsafe extern "C" fn(usize) -> *mut c_void>,
    free: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// The program's allocator for what is received.
static MEMORY: OnceLock<HeadMemory> = OnceLock::new();

/// The allocator that the device is to be attached with.
pub(crate) fn head_memory() -> Option<HeadMemory> {
    MEMORY.get().copied()
}

/// See the header.
pub(super) unsafe extern "C" fn ioctl(messages: *const c_void, len: size_t) -> c_int {
    if messages.is_null() {
        return 0;
    }
    // SAFETY: the program's promise: so many bytes.
    let Some(room) = (unsafe { cmsg::room(messages, len) }) else { return errno::fail(libc::EINVAL) };
    // The device has its memory already, if there is a process.
    let result = obey(room, process::process().is_some(), |memory| MEMORY.set(memory).is_ok());
    result.map_or_else(|Errno(code)| errno::fail(code), |()| 0)
}

/// Does what the messages say, up to the first that is refused. Those of other types are another version's. `set`: `false`: it is set already.
fn obey(room: &[u8], is_late: bool, mut set: impl FnMut(HeadMemory) -> bool) -> Result<(), Errno> {
    cmsg::each(room, |message| match message.kind {
        USER_ALLOC if is_late => Err(Errno(libc::EINVAL)),
        USER_ALLOC => {
            let memory = asked(message.payload)?;
            // (The first counts.)
            if set(memory) { Ok(()) } else { Err(Errno(libc::EINVAL)) }
        }
        _ => Ok(()),
    })
}

fn asked(payload: &[u8]) -> Result<HeadMemory, Errno> {
    if payload.len() != size_of::<UserAlloc>() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: as many bytes as it has; of any bits, for the program alone knows its functions (and a null one is `None`).
    let asked = unsafe { payload.as_ptr().cast::<UserAlloc>().read_unaligned() };
    let (Some(allocate), Some(free)) = (asked.allocate, asked.free) else { return Err(Errno(libc::EINVAL)) };
    match asked.flags & (FOR_TX | FOR_RX) {
        0 => Err(Errno(libc::EINVAL)),
        // What is sent lies in memory that peers see as well.
        FOR_TX => Err(Errno(libc::EOPNOTSUPP)),
        _ => Ok(HeadMemory { allocate, free }),
    }
}

const _: () = assert!(size_of::<UserAlloc>() == 17);

#[cfg(test)]
mod tests;
