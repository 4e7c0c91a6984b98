//! Pieces of a copy on aarch64, by Advanced SIMD's moves, which every such processor that runs Linux has. Unaligned moves are allowed on any address of ordinary memory.
//!
//! Each function copies as many bytes as its name (or `len`) says.
//!
//! # Safety
//! As [`super::opaque`] with that length.

use core::arch::asm;

/// A processor may have no string copy (FEAT_MOPS), so that long copies are made of pieces, too.
///
/// # Safety
/// See the module's documentation.
#[inline]
pub(super) unsafe fn bulk(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        super::pieces(src, dst, len);
    }
}

/// All loads come before all stores, so that what is far away comes in at once.
///
/// # Safety
/// See the module's documentation.
#[inline]
pub(super) unsafe fn piece64(src: *const u8, dst: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "ldp {a:q}, {b:q}, [{s}]", "ldp {c:q}, {e:q}, [{s}, #32]", "stp {a:q}, {b:q}, [{d}]", "stp {c:q}, {e:q}, [{d}, #32]",
            a = out(vreg) _, b = out(vreg) _, c = out(vreg) _, e = out(vreg) _,
            s = in(reg) src, d = in(reg) dst, options(nostack, preserves_flags)
        );
    }
}

/// The last sixty-four of `len` bytes, which are at least as many.
///
/// # Safety
/// See the module's documentation.
#[inline]
pub(super) unsafe fn last64(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { piece64(src.add(len - 64), dst.add(len - 64)) };
}

/// The first and the last thirty-two of `len` bytes, which are at least as many.
///
/// # Safety
/// See the module's documentation.
#[inline]
pub(super) unsafe fn ends32(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        ends16(src, dst, 32);
        ends16(src.add(len - 32), dst.add(len - 32), 32);
    }
}

/// The first and the last sixteen of `len` bytes, which are at least as many.
///
/// # Safety
/// See the module's documentation.
#[inline]
pub(super) unsafe fn ends16(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        piece16(src, dst);
        piece16(src.add(len - 16), dst.add(len - 16));
    }
}

/// Sixteen bytes.
///
/// # Safety
/// See the module's documentation.
#[inline]
unsafe fn piece16(src: *const u8, dst: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ldr {x:q}, [{s}]", "str {x:q}, [{d}]", x = out(vreg) _, s = in(reg) src, d = in(reg) dst, options(nostack, preserves_flags));
    }
}

/// Eight bytes.
///
/// # Safety
/// See the module's documentation.
#[inline]
pub(super) unsafe fn piece8(src: *const u8, dst: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ldr {x}, [{s}]", "str {x}, [{d}]", x = out(reg) _, s = in(reg) src, d = in(reg) dst, options(nostack, preserves_flags));
    }
}

/// Four bytes.
///
/// # Safety
/// See the module's documentation.
#[inline]
pub(super) unsafe fn piece4(src: *const u8, dst: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ldr {x:w}, [{s}]", "str {x:w}, [{d}]", x = out(reg) _, s = in(reg) src, d = in(reg) dst, options(nostack, preserves_flags));
    }
}

/// Brings a line near, to read it. An address that leads nowhere is no mistake.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8) {
    // SAFETY: a prefetch reads and writes nothing, and faults nowhere.
    unsafe { asm!("prfm pldl1keep, [{p}]", p = in(reg) at, options(nostack, preserves_flags, readonly)) };
}

/// The same, to write it. (A processor without it does nothing.)
#[inline(always)]
pub(crate) fn prefetch_for_write(at: *const u8) {
    // SAFETY: as above.
    unsafe { asm!("prfm pstl1keep, [{p}]", p = in(reg) at, options(nostack, preserves_flags)) };
}
