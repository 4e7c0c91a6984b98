//! The Extra API's socket options: SO_VMA_USER_DATA, SO_VMA_RING_ALLOC_LOGIC (vma.md s2.15). What else is of its numbers is
//! the kernel's to refuse.

use core::ffi::{c_int, c_void};
use core::mem::size_of;

use libc::socklen_t;

use super::{Asked, Direction, Logic, OnRings};
use crate::errno::Errno;
use crate::extra::cyclic::UserMemory;
use crate::moving;
use crate::process::{Offload, Process};
use crate::slab::Key;

const USER_DATA: c_int = 2801;
const ALLOC_LOGIC: c_int = 2810;
const USER_MEMORY: c_int = 2811;

/// `vma_ring_alloc_logic_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
struct AllocLogic {
    comp_mask: u32,
    logic: u32,
    profile: u32,
    user_id: u32,
    /// Bit 0: ingress, bit 1: "engress".
    directions: u32,
}

/// Bits of `comp_mask`.
const HAS_PROFILE: u32 = 1;
const HAS_USER_ID: u32 = 2;
const HAS_INGRESS: u32 = 4;
const HAS_EGRESS: u32 = 8;

/// Whether an option is one of these.
#[inline]
pub(crate) const fn concerns(level: c_int, name: c_int) -> bool {
    level == libc::SOL_SOCKET && matches!(name, USER_DATA | ALLOC_LOGIC | USER_MEMORY)
}

/// setsockopt(2).
///
/// # Errors
/// EFAULT: no value; EINVAL: of another length, or not a value.
///
/// # Safety
/// `value` is null, or `len` bytes can be read there.
pub(crate) unsafe fn set(process: &Process, key: Key, name: c_int, value: *const c_void, len: socklen_t) -> Result<c_int, Errno> {
    if value.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    let is_long = |bytes: usize| if len as usize == bytes { Ok(()) } else { Err(Errno(libc::EINVAL)) };
    let mut guard = process.lock();
    let offload = &mut *guard;
    let on = &mut offload.sockets.find_mut(key).ok_or(Errno(libc::EBADF))?.rare().rings;
    match name {
        USER_DATA => {
            is_long(size_of::<u64>())?;
            // SAFETY: the caller's promise: so many bytes.
            on.user_data = Some(unsafe { value.cast::<u64>().read_unaligned() });
        }
        USER_MEMORY => {
            is_long(size_of::<libc::iovec>())?;
            // SAFETY: as above.
            let memory = unsafe { value.cast::<libc::iovec>().read_unaligned() };
            let memory = UserMemory::new(memory.iov_base.cast(), memory.iov_len);
            let profile = on.asked[Direction::Rx as usize].map_or(0, |asked| asked.profile);
            if memory.is_none() || !offload.cyclic.fits(profile, memory) {
                return Err(Errno(libc::EINVAL));
            }
            if on.ring(Direction::Rx).is_some() {
                tracing::warn!("SO_VMA_RING_USER_MEMORY on a socket that has its ring already: it is for the next one");
            }
            on.user_memory = memory;
        }
        _ => {
            is_long(size_of::<AllocLogic>())?;
            // SAFETY: as above.
            let wanted = unsafe { value.cast::<AllocLogic>().read_unaligned() };
            let direction = set_logic(offload, key, wanted)?;
            drop(guard);
            if let Some(direction) = direction {
                moving::steered::follow_logic(process, key, direction);
            }
        }
    }
    Ok(0)
}

/// Of which direction another ring was asked for; of both, to receive. `None`: of none.
fn set_logic(offload: &mut Offload, key: Key, wanted: AllocLogic) -> Result<Option<Direction>, Errno> {
    let has = |bit| wanted.comp_mask & bit != 0;
    let logic = Logic::from_number(wanted.logic.into());
    let (Some(logic), true) = (logic, has(HAS_PROFILE | HAS_USER_ID | HAS_INGRESS | HAS_EGRESS)) else { return Err(Errno(libc::EINVAL)) };
    let on = &mut offload.sockets.find_mut(key).ok_or(Errno(libc::EBADF))?.rare().rings;
    if has(HAS_PROFILE) && (on.has_profile || !offload.cyclic.fits(wanted.profile, on.user_memory)) {
        return Err(Errno(libc::EINVAL));
    }
    on.has_profile |= has(HAS_PROFILE);
    let directions =
        [(Direction::Rx, has(HAS_INGRESS) && wanted.directions & 1 != 0), (Direction::Tx, has(HAS_EGRESS) && wanted.directions & 2 != 0)];
    let is_cyclic = has(HAS_PROFILE) && offload.cyclic.geometry(wanted.profile).is_some();
    for (direction, is_meant) in directions {
        if is_meant && is_cyclic {
            // What arrives before anybody asks for the ring is to have its headers.
            offload.begin_rings();
        }
        if is_meant {
            ask(offload, key, direction, |profile| Asked {
                logic,
                user_id: if has(HAS_USER_ID) { wanted.user_id } else { 0 },
                profile: if has(HAS_PROFILE) { wanted.profile } else { profile },
            });
        }
    }
    Ok(directions.into_iter().find(|(_, is_meant)| *is_meant).map(|(direction, _)| direction))
}

/// Changes what a socket's ring is chosen by; `change` gets the profile that it had.
fn ask(offload: &mut Offload, key: Key, direction: Direction, change: impl FnOnce(u32) -> Asked) {
    let Some(socket) = offload.sockets.find_mut(key) else { return };
    let asked = &mut socket.rare().rings.asked[direction as usize];
    *asked = Some(change(asked.map_or(0, |asked| asked.profile)));
    if offload.sockets.find(key).is_some_and(|socket| offload.is_on_cyclic_ring(socket)) {
        offload.keep_one_flow(key);
        offload.fit_flows(key);
    }
    offload.change_ring(key.index, direction);
}

/// getsockopt(2).
///
/// # Errors
/// EFAULT: nowhere to write to; EINVAL: no room, or nothing to tell.
///
/// # Safety
/// As getsockopt(2).
pub(crate) unsafe fn get(process: &Process, key: Key, name: c_int, value: *mut c_void, len: *mut socklen_t) -> Result<c_int, Errno> {
    if value.is_null() || len.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise.
    let room = unsafe { len.read() } as usize;
    let guard = process.lock();
    let socket = guard.sockets.find(key).ok_or(Errno(libc::EBADF))?;
    let on = socket.rare.as_ref().map(|rare| &rare.rings);
    match name {
        USER_DATA if room == size_of::<u64>() => {
            let data = on.and_then(|on| on.user_data).unwrap_or_else(|| default_user_data(socket.fd));
            // SAFETY: the caller's promise: so much room.
            unsafe { value.cast::<u64>().write_unaligned(data) };
        }
        _ => return Err(Errno(libc::EINVAL)),
    }
    Ok(0)
}

/// What completions carry unless the program says otherwise: the descriptor.
pub(in crate::extra) const fn default_user_data(fd: c_int) -> u64 {
    fd as u64
}

/// SO_BINDTODEVICE has put a socket onto the device that the stack's ring stands for, or taken it off: a ring is to be had for it at once.
pub(crate) fn bound_to_device(offload: &mut Offload, key: Key, is_on_device: bool) {
    let Some(socket) = offload.sockets.find_mut(key) else { return };
    if is_on_device || socket.rare.is_some() {
        let OnRings { is_on_device: known, .. } = &mut socket.rare().rings;
        *known = is_on_device;
    }
}

const _: () = assert!(size_of::<AllocLogic>() == 20);
