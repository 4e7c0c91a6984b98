//! Control messages as a program lays them out (cmsg(3)): read as far as they are whole, and never beyond the room that the program names,
//! whatever their lengths say.

use core::ffi::{c_int, c_void};
use core::mem::size_of;

use crate::errno::{Errno, is_nowhere};

/// A message's header, in bytes.
pub const HEADER: usize = size_of::<libc::cmsghdr>();

/// sendmsg(2): a longer room is none.
const ROOM_MAX: usize = c_int::MAX as usize;

/// A control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// SOL_SOCKET, IPPROTO_IP, …
    pub level: c_int,
    /// The type, which is the level's.
    pub kind: c_int,
    /// What is behind the header.
    pub payload: &'a [u8],
}

/// A message whose length is less than its header's, or more than what is there; or the beginning of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut;

impl From<Cut> for Errno {
    fn from(_: Cut) -> Self {
        Self(libc::EINVAL)
    }
}

/// The next of the messages, and those behind it. (They may lie anywhere: nothing is taken for aligned.)
///
/// # Errors
/// It is cut.
pub fn next(bytes: &[u8]) -> Result<Option<(Message<'_>, &[u8])>, Cut> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (header, _) = bytes.split_first_chunk::<HEADER>().ok_or(Cut)?;
    let word = |at: usize| c_int::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let len = header.first_chunk().map_or(0, |&len| usize::from_ne_bytes(len));
    let payload = bytes.get(HEADER..len).ok_or(Cut)?;
    let rest = bytes.get(len.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
    Ok(Some((Message { level: word(8), kind: word(12), payload }, rest)))
}

/// Looks at the messages in their order, up to one that is cut.
///
/// # Errors
/// `look`'s; or there is one that is cut.
pub fn each<E: From<Cut>>(mut bytes: &[u8], mut look: impl FnMut(Message<'_>) -> Result<(), E>) -> Result<(), E> {
    while let Some((message, rest)) = next(bytes)? {
        look(message)?;
        bytes = rest;
    }
    Ok(())
}

/// The room that a program names. `None`: there is none, or it is longer than any.
///
/// # Safety
/// `len` bytes can be read at `at`, unless it leads nowhere for certain.
pub unsafe fn room<'a>(at: *const c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise; a slice's length is less.
    (!is_nowhere(at) && len <= ROOM_MAX).then(|| unsafe { core::slice::from_raw_parts(at.cast::<u8>(), len) })
}

const _: () = assert!(HEADER == 16, "a header is a length, a level and a type, without holes");

#[cfg(test)]
mod tests;
