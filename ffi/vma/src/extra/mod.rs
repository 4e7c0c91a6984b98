//! The VMA Extra API: what `include/mellanox/vma_extra.h` declares.
//!
//! A program gets the table by `getsockopt(-1, SOL_SOCKET, SO_VMA_GET_API)` ([`hand_out`]), before any socket exists, and keeps it. What the
//! functions lend is named by ids that are looked up, never by addresses that are believed ([`loans`]).

mod abi;
mod callback;
mod control;
mod cyclic;
pub(crate) mod dummy;
pub(crate) mod facts;
pub(crate) mod ioctl;
mod left;
mod loans;
mod network;
pub(crate) mod options;
pub(crate) mod resume;
pub(crate) mod rings;
mod table;
mod thread_name;
pub(crate) mod threads;
mod xtreme;
mod zcopy;

use core::ffi::{c_int, c_void};
use core::mem::size_of;

use libc::socklen_t;
use ringway_stack::ring::Readiness;

use crate::exports::signal::mask::keep_faults_open;
use crate::process::Offload;

pub(crate) use callback::{Callback, Callbacks, was_any_held};
pub(crate) use control::dump;
pub(crate) use cyclic::Cyclic;
pub(crate) use loans::Loans;
pub(crate) use rings::{OnRings, Rings};
pub(crate) use xtreme::Buffers;

/// SO_VMA_GET_API.
const GET_API: c_int = 2800;

impl Offload {
    /// Whether anybody here is to hear of what happens to sockets: two looks for each event of programs that know nothing of this.
    #[inline]
    pub(crate) fn is_heard(&self) -> bool {
        self.callbacks.are_used() || self.extra_rings.has_completions
    }

    /// Something happened to a socket, by its index.
    #[inline(never)]
    pub(crate) fn hear(&mut self, socket: u32, edges: Readiness) {
        self.note_candidate(socket);
        self.note_event(socket, edges);
    }
}

/// Whether a getsockopt(2) asks for the table.
#[inline]
pub(crate) const fn is_asked_for(fd: c_int, level: c_int, name: c_int) -> bool {
    fd == -1 && level == libc::SOL_SOCKET && name == GET_API
}

/// Hands the table out. `false`: there is no room for its address, and the kernel has the answer to that.
///
/// # Safety
/// As getsockopt(2).
pub(crate) unsafe fn hand_out(value: *mut c_void, len: *mut socklen_t) -> bool {
    // SAFETY: the caller's promise.
    if value.is_null() || len.is_null() || (unsafe { len.read() } as usize) < size_of::<*const c_void>() {
        return false;
    }
    keep_faults_open();
    // SAFETY: the caller's promise: there is room for a pointer.
    unsafe {
        value.cast::<*const c_void>().write_unaligned(table::chosen());
        len.write(size_of::<*const c_void>() as socklen_t);
    }
    true
}
