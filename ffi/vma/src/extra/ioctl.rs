//! `ioctl`: control messages to the library itself.

use core::ffi::{c_int, c_void};
use core::mem::size_of;
use std::sync::OnceLock;

use libc::size_t;
use ringway_shm::HeadMemory;

use crate::{errno, process};

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

/// A control message: its type, and its bytes.
struct Message<'a>(c_int, &'a [u8]);

/// The next of the messages, and those behind it. `Err`: it is cut short.
fn next(bytes: &[u8]) -> Result<Option<(Message<'_>, &[u8])>, ()> {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    if bytes.is_empty() {
        return Ok(None);
    }
    let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(usize::from_ne_bytes);
    let kind = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(c_int::from_ne_bytes);
    let (Some(len), Some(kind)) = (word(0), kind(12)) else { return Err(()) };
    if len < HEADER || len > bytes.len() {
        return Err(());
    }
    let rest = bytes.get(len.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
    Ok(Some((Message(kind, &bytes[HEADER..len]), rest)))
}

/// See the header.
pub(super) unsafe extern "C" fn ioctl(messages: *const c_void, len: size_t) -> c_int {
    if messages.is_null() {
        return 0;
    }
    // SAFETY: the program's promise: so many bytes.
    let mut bytes = unsafe { core::slice::from_raw_parts(messages.cast::<u8>(), len) };
    loop {
        match next(bytes) {
            Err(()) => return errno::fail(libc::EINVAL),
            Ok(None) => return 0,
            Ok(Some((Message(USER_ALLOC, payload), rest))) => {
                if let Err(code) = take(payload) {
                    return errno::fail(code);
                }
                bytes = rest;
            }
            Ok(Some((_, rest))) => bytes = rest,
        }
    }
}

fn take(payload: &[u8]) -> Result<(), c_int> {
    // The device has its memory already.
    if process::process().is_some() || payload.len() != size_of::<UserAlloc>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: as many bytes as it has; of any bits, for the program alone knows its functions (and a null one is `None`).
    let asked = unsafe { payload.as_ptr().cast::<UserAlloc>().read_unaligned() };
    let (Some(allocate), Some(free)) = (asked.allocate, asked.free) else { return Err(libc::EINVAL) };
    match asked.flags & (FOR_TX | FOR_RX) {
        0 => Err(libc::EINVAL),
        // What is sent lies in memory that peers see as well.
        FOR_TX => Err(libc::EOPNOTSUPP),
        // (The first counts.)
        _ => MEMORY.set(HeadMemory { allocate, free }).map_err(|_| libc::EINVAL),
    }
}

const _: () = assert!(size_of::<UserAlloc>() == 17 && size_of::<libc::cmsghdr>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: usize, kind: c_int, payload: &[u8]) -> Vec<u8> {
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.extend(1_i32.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(payload);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn messages_follow_each_other_and_none_is_cut() {
        let mut bytes = message(19, 5, b"abc");
        bytes.extend(message(16, 6, b""));
        let (Message(kind, payload), rest) = next(&bytes).unwrap().unwrap();
        assert_eq!((kind, payload), (5, &b"abc"[..]));
        let (Message(kind, payload), rest) = next(rest).unwrap().unwrap();
        assert_eq!((kind, payload, rest), (6, &b""[..], &b""[..]));
        assert!(next(rest).unwrap().is_none());
        for (bytes, why) in [(&bytes[..15], "no header"), (&bytes[..18], "no payload")] {
            assert!(next(bytes).is_err(), "{why}");
        }
        for len in [0, 15, usize::MAX] {
            assert!(next(&message(len, 5, b"abc")).is_err(), "{len}");
        }
    }
}
