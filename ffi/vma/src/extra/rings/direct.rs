//! `get_ring_direct_descriptors`, `register_memory_on_ring`, `deregister_memory_on_ring`, `vma_modify_ring`: for programs that drive a NIC's own
//! queues. Shared memory has none: what can be said of it is said, and what only a NIC does fails with EOPNOTSUPP.

use core::ffi::{c_int, c_void};
use core::mem::{MaybeUninit, size_of};

use libc::size_t;

use crate::errno;
use crate::mux::epoll::ring as descriptor;
use crate::process::{Offload, process};
use crate::slab::Key;

/// `vma_modify_ring_mask`.
const CQ_MODERATION: u32 = 1;
const CQ_ARM: u32 = 2;

/// `vma_modify_ring_attr`, with its larger arm.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::extra) struct Change {
    mask: u32,
    ring: c_int,
    moderation: [u32; 2],
}

const _: () = assert!(size_of::<Change>() == 16);

/// `vma_mlx_hw_device_data`.
#[repr(C, align(8))]
pub(in crate::extra) struct Queues(MaybeUninit<[u8; 200]>);

const _: () = assert!(size_of::<Queues>() == 200);

/// See the header.
pub(in crate::extra) unsafe extern "C" fn get_ring_direct_descriptors(ring: c_int, out: *mut Queues) -> c_int {
    if out.is_null() || with(ring, |_, _| ()).is_none() {
        return errno::fail(libc::EINVAL);
    }
    // A device without a vendor, without capabilities, and no queues of which anything would be valid: all of it zero.
    // SAFETY: the program's promise: there is room for such a structure, aligned or not.
    unsafe { out.cast::<u8>().write_bytes(0, size_of::<Queues>()) };
    0
}

/// See the header.
pub(in crate::extra) extern "C" fn register_memory_on_ring(ring: c_int, address: *mut c_void, len: size_t, key: *mut u32) -> c_int {
    if address.is_null() || key.is_null() || len == 0 || with(ring, |_, _| ()).is_none() {
        return errno::fail(libc::EINVAL);
    }
    errno::fail(libc::EOPNOTSUPP)
}

/// See the header. Nothing is ever registered.
pub(in crate::extra) extern "C" fn deregister_memory_on_ring(_ring: c_int, _address: *mut c_void, _len: size_t) -> c_int {
    errno::fail(libc::EINVAL)
}

/// See the header.
pub(in crate::extra) unsafe extern "C" fn vma_modify_ring(change: *const Change) -> c_int {
    if change.is_null() {
        return errno::fail(libc::EINVAL);
    }
    // SAFETY: the program's promise: it is one, aligned or not.
    let change = unsafe { change.read_unaligned() };
    let Some(has_something) = with(change.ring, Offload::has_waiting) else { return errno::fail(libc::EINVAL) };
    match change.mask {
        // A ring's descriptor is always armed.
        mask if mask & CQ_ARM != 0 => c_int::from(has_something),
        mask if mask & CQ_MODERATION != 0 => errno::fail(libc::EOPNOTSUPP),
        _ => errno::fail(libc::EINVAL),
    }
}

/// `None`: the number is no ring's.
fn with<T>(ring: c_int, f: impl FnOnce(&mut Offload, Key) -> T) -> Option<T> {
    let process = process().filter(|process| process.is_owner())?;
    crate::boundary!(None, {
        let mut offload = process.lock();
        let ring = descriptor::of(&offload, ring)?;
        Some(f(&mut offload, ring))
    })
}

impl Offload {
    fn has_waiting(&mut self, ring: Key) -> bool {
        self.extra_rings.all.find(ring).is_some_and(|ring| !ring.waiting.is_empty())
    }
}
