//! Memory on the card (ibv_alloc_dm(3)).

use core::ffi::{c_int, c_uint, c_void};

use rdma_core_sys as sys;

use super::{answer, card_of, end, given, make, of};

/// Behind an allocation: where it lies.
type Base = *mut u8;

pub(super) unsafe extern "C" fn alloc_dm(context: *mut sys::ibv_context, attr: *mut sys::ibv_alloc_dm_attr) -> *mut sys::ibv_dm {
    // SAFETY: the driver's context and attribute.
    let (card, len) = unsafe { (card_of(context), (*attr).length) };
    let made = card.borrow_mut().make_own(len);
    let verbs = sys::ibv_dm { context, memcpy_to_dm: Some(memcpy_to_dm), memcpy_from_dm: Some(memcpy_from_dm), ..Default::default() };
    given(made.map(|base: Base| make(verbs, &card, base)))
}

pub(super) unsafe extern "C" fn free_dm(dm: *mut sys::ibv_dm) -> c_int {
    // SAFETY: made above.
    let memory = unsafe { end::<_, Base>(dm) };
    let mut card = memory.card.borrow_mut();
    card.end_own(memory.rest);
    card.end_answer()
}

pub(super) unsafe extern "C" fn reg_dm_mr(
    pd: *mut sys::ibv_pd,
    dm: *mut sys::ibv_dm,
    offset: u64,
    length: usize,
    _: c_uint,
) -> *mut sys::ibv_mr {
    // SAFETY: the driver's domain and memory.
    let (domain, memory) = unsafe { (of::<_, super::objects::Pd>(pd), of::<_, Base>(dm)) };
    let key = if offset == 0 { memory.card.borrow_mut().register_own(domain.rest.0, memory.rest, length) } else { Err(libc::EINVAL) };
    let addr = core::ptr::null_mut();
    given(key.map(|lkey| {
        let verbs = sys::ibv_mr { context: domain.verbs.context, pd, addr, length, lkey, rkey: lkey, ..Default::default() };
        make(verbs, &domain.card, ())
    }))
}

unsafe extern "C" fn memcpy_to_dm(dm: *mut sys::ibv_dm, offset: u64, from: *const c_void, len: usize) -> c_int {
    // SAFETY: made above; the bytes are readable.
    let (memory, bytes) = unsafe { (of::<_, Base>(dm), core::slice::from_raw_parts(from.cast::<u8>(), len)) };
    answer(memory.card.borrow_mut().write_own(memory.rest, offset as usize, bytes))
}

unsafe extern "C" fn memcpy_from_dm(to: *mut c_void, dm: *mut sys::ibv_dm, offset: u64, len: usize) -> c_int {
    // SAFETY: made above; the bytes are writable.
    let (memory, out) = unsafe { (of::<_, Base>(dm), core::slice::from_raw_parts_mut(to.cast::<u8>(), len)) };
    answer(memory.card.borrow().read_own(memory.rest, offset as usize, out))
}
