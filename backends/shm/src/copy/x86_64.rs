//! Pieces of a copy on x86-64, by SSE2's moves, which every such processor has. Unaligned moves are allowed on any address of ordinary memory.
//!
//! Each function copies as many bytes as its name (or `len`) says.
//!
//! # Safety
//! As [`super::opaque`] with that length.

use core::arch::asm;

/// The string copy of the processor.
///
/// # Safety
/// See the module's documentation.
#[inline]
pub(super) unsafe fn bulk(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("rep movsb", inout("rcx") len => _, inout("rsi") src => _, inout("rdi") dst => _, options(nostack, preserves_flags));
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
            "movdqu {a}, [{s}]", "movdqu {b}, [{s} + 16]", "movdqu {c}, [{s} + 32]", "movdqu {e}, [{s} + 48]",
            "movdqu [{d}], {a}", "movdqu [{d} + 16], {b}", "movdqu [{d} + 32], {c}", "movdqu [{d} + 48], {e}",
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, e = out(xmm_reg) _,
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
    unsafe {
        asm!(
            "movdqu {a}, [{s} + {n} - 64]", "movdqu {b}, [{s} + {n} - 48]", "movdqu {c}, [{s} + {n} - 32]", "movdqu {e}, [{s} + {n} - 16]",
            "movdqu [{d} + {n} - 64], {a}", "movdqu [{d} + {n} - 48], {b}", "movdqu [{d} + {n} - 32], {c}", "movdqu [{d} + {n} - 16], {e}",
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, e = out(xmm_reg) _,
            s = in(reg) src, d = in(reg) dst, n = in(reg) len, options(nostack, preserves_flags)
        );
    }
}

/// The first and the last thirty-two of `len` bytes, which are at least as many.
///
/// # Safety
/// See the module's documentation.
#[inline]
pub(super) unsafe fn ends32(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "movdqu {a}, [{s}]", "movdqu {b}, [{s} + 16]", "movdqu {c}, [{s} + {n} - 32]", "movdqu {e}, [{s} + {n} - 16]",
            "movdqu [{d}], {a}", "movdqu [{d} + 16], {b}", "movdqu [{d} + {n} - 32], {c}", "movdqu [{d} + {n} - 16], {e}",
            a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, e = out(xmm_reg) _,
            s = in(reg) src, d = in(reg) dst, n = in(reg) len, options(nostack, preserves_flags)
        );
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
        asm!(
            "movdqu {a}, [{s}]", "movdqu {b}, [{s} + {n} - 16]", "movdqu [{d}], {a}", "movdqu [{d} + {n} - 16], {b}",
            a = out(xmm_reg) _, b = out(xmm_reg) _, s = in(reg) src, d = in(reg) dst, n = in(reg) len, options(nostack, preserves_flags)
        );
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
        asm!("mov {x}, [{s}]", "mov [{d}], {x}", x = out(reg) _, s = in(reg) src, d = in(reg) dst, options(nostack, preserves_flags));
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
        asm!("mov {x:e}, [{s}]", "mov [{d}], {x:e}", x = out(reg) _, s = in(reg) src, d = in(reg) dst, options(nostack, preserves_flags));
    }
}

/// Brings a line near, to read it. An address that leads nowhere is no mistake.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8) {
    // SAFETY: a prefetch reads and writes nothing, and faults nowhere.
    unsafe { asm!("prefetcht0 [{p}]", p = in(reg) at, options(nostack, preserves_flags, readonly)) };
}

/// The same, to write it. (A processor without it does nothing.)
#[inline(always)]
pub(crate) fn prefetch_for_write(at: *const u8) {
    // SAFETY: as above.
    unsafe { asm!("prefetchw [{p}]", p = in(reg) at, options(nostack, preserves_flags)) };
}
