//! Fields of firmware commands: numbers of up to 32 bits at any bit within a word of 32, all big endian, bits counted from the
//! most significant one (infiniband/mlx5dv.h).

use std::ffi::c_void;

/// Where a field lies in its word: how far it is shifted, and its mask before that.
fn place(bit_off: usize, bit_sz: usize) -> (u32, u32) {
    debug_assert!((1..=32).contains(&bit_sz) && bit_off % 32 + bit_sz <= 32, "a field of {bit_sz} bits at {bit_off}");
    ((32 - bit_sz - bit_off % 32) as u32, u32::MAX >> (32 - bit_sz))
}

/// Writes the field of `bit_sz` bits at bit `bit_off` of the command `p`, which is aligned to 4 bytes.
#[inline]
pub unsafe fn _devx_set(p: *mut c_void, value: u32, bit_off: usize, bit_sz: usize) {
    let (shift, mask) = place(bit_off, bit_sz);
    // SAFETY: the caller's command has that word.
    unsafe {
        let word = p.cast::<u32>().add(bit_off / 32);
        *word = (u32::from_be(*word) & !(mask << shift) | (value & mask) << shift).to_be();
    }
}

/// Reads the field of `bit_sz` bits at bit `bit_off` of the command `p`, which is aligned to 4 bytes.
#[inline]
pub unsafe fn _devx_get(p: *const c_void, bit_off: usize, bit_sz: usize) -> u32 {
    let (shift, mask) = place(bit_off, bit_sz);
    // SAFETY: the caller's command has that word.
    unsafe { u32::from_be(*p.cast::<u32>().add(bit_off / 32)) >> shift & mask }
}

/// Writes the 64 bits at bit `bit_off` of the command `p`, which is aligned to 8 bytes.
#[inline]
pub unsafe fn _devx_set64(p: *mut c_void, v: u64, bit_off: usize) {
    // SAFETY: the caller's command has these 8 bytes.
    unsafe { *p.cast::<u64>().add(bit_off / 64) = v.to_be() };
}

/// Reads the 64 bits at bit `bit_off` of the command `p`, which is aligned to 8 bytes.
#[inline]
pub unsafe fn _devx_get64(p: *const c_void, bit_off: usize) -> u64 {
    // SAFETY: the caller's command has these 8 bytes.
    unsafe { u64::from_be(*p.cast::<u64>().add(bit_off / 64)) }
}
