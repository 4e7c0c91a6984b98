//! Control messages: written as the kernel writes them (put_cmsg): the one for which there is too little room is cut; and refused as it refuses
//! them.

use core::ffi::{c_int, c_uint};
use core::mem::size_of;

use libc::msghdr;

use crate::cmsg;
use crate::errno::{Errno, is_nowhere};

const _: () = assert!(size_of::<libc::cmsghdr>() == 16, "the layouts below are for 64 bits");

/// The room that a program gave for control messages.
pub struct Control<'a> {
    header: &'a mut msghdr,
    room: usize,
    used: usize,
}

impl<'a> Control<'a> {
    /// All of it, with nothing in it yet.
    ///
    /// # Safety
    /// The header's control room can be written.
    pub unsafe fn new(header: &'a mut msghdr) -> Self {
        let room = if is_nowhere(header.msg_control) { 0 } else { header.msg_controllen };
        Self { header, room, used: 0 }
    }

    /// Adds a message. MSG_CTRUNC: it was cut, or left out.
    pub fn put(&mut self, level: c_int, kind: c_int, bytes: &[u8]) {
        let left = self.room - self.used;
        if left < size_of::<libc::cmsghdr>() {
            self.header.msg_flags |= libc::MSG_CTRUNC;
            return;
        }
        // SAFETY: CMSG_LEN and CMSG_SPACE only compute.
        let (len, space) = unsafe { (libc::CMSG_LEN(bytes.len() as c_uint) as usize, libc::CMSG_SPACE(bytes.len() as c_uint) as usize) };
        if left < len {
            self.header.msg_flags |= libc::MSG_CTRUNC;
        }
        let len = len.min(left);
        let head = libc::cmsghdr { cmsg_len: len, cmsg_level: level, cmsg_type: kind };
        // SAFETY: `used + len` bytes are within the room that the program gave.
        unsafe {
            let at = self.header.msg_control.cast::<u8>().add(self.used);
            at.cast::<libc::cmsghdr>().write_unaligned(head);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), at.add(size_of::<libc::cmsghdr>()), len - size_of::<libc::cmsghdr>());
        }
        self.used = (self.used + space).min(self.room);
    }

    /// The room that the kernel has filled as far as the header says, of `room` bytes that there were.
    ///
    /// # Safety
    /// The header's control room can be written, and read as far as the kernel filled it.
    pub unsafe fn after_kernel(header: &'a mut msghdr, room: usize) -> Self {
        let used = if is_nowhere(header.msg_control) { 0 } else { header.msg_controllen };
        let room = if is_nowhere(header.msg_control) { 0 } else { room.max(used) };
        Self { header, room, used }
    }

    /// Changes the kernel's count in one of its messages of the socket's level, or adds a message where it had nothing to count.
    pub fn add_to(mut self, kind: c_int, change: impl FnOnce(u32) -> u32) {
        // SAFETY: as in `after_kernel`.
        let filled = unsafe { cmsg::room(self.header.msg_control, self.used) }.unwrap_or_default();
        let mut found = None;
        // (One that was cut for lack of room is the program's loss in the kernel, too.)
        let _ = cmsg::each(filled, |message| {
            if let (libc::SOL_SOCKET, Some(&count)) = (message.level, message.payload.first_chunk())
                && message.kind == kind
            {
                found = Some((message.payload.as_ptr().addr() - filled.as_ptr().addr(), u32::from_ne_bytes(count)));
            }
            Ok::<(), cmsg::Cut>(())
        });
        match (found, change(found.map_or(0, |(_, count)| count))) {
            (Some((at, _)), count) => {
                // SAFETY: the four bytes are within what the kernel filled.
                unsafe { self.header.msg_control.cast::<u8>().add(at).cast::<u32>().write_unaligned(count) };
            }
            (None, 0) => return,
            (None, count) => self.put(libc::SOL_SOCKET, kind, &count.to_ne_bytes()),
        }
        self.finish();
    }

    /// Tells the program how much of its room was used.
    pub fn finish(self) {
        self.header.msg_controllen = self.used;
    }
}

/// The control messages of what is sent on a stream: nothing of theirs is done, and those that Linux's tcp_sendmsg refuses are refused
/// (sock_cmsg_send: a length that lies, or of the socket's level a type that it does not know).
///
/// # Errors
/// EINVAL; EFAULT: there is no room; ENOBUFS: it is longer than any.
///
/// # Safety
/// The program's promise to sendmsg(2).
pub unsafe fn check_of_stream(header: &msghdr) -> Result<(), Errno> {
    if is_nowhere(header.msg_control) {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise.
    let room = unsafe { cmsg::room(header.msg_control, header.msg_controllen) };
    let mut bytes = room.ok_or(Errno(libc::ENOBUFS))?;
    // (What is shorter than a header behind the last is none.)
    while bytes.len() >= cmsg::HEADER
        && let Some((message, rest)) = cmsg::next(bytes)?
    {
        let is_known = match message.kind {
            libc::SCM_RIGHTS | libc::SCM_CREDENTIALS => true,
            libc::SO_MARK | libc::SO_TIMESTAMPING | libc::SO_PRIORITY => message.payload.len() == size_of::<u32>(),
            // (Linux knows it on sockets with SO_TXTIME. There is no such time here.)
            libc::SCM_TXTIME => message.payload.len() == size_of::<u64>(),
            _ => false,
        };
        if message.level == libc::SOL_SOCKET && !is_known {
            return Err(Errno(libc::EINVAL));
        }
        bytes = rest;
    }
    Ok(())
}

/// A timeval's or timespec's bytes.
pub fn pair(seconds: i64, fraction: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&seconds.to_ne_bytes());
    bytes[8..].copy_from_slice(&i64::from(fraction).to_ne_bytes());
    bytes
}
