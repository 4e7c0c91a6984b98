//! vfork(2), whose child has its parent's memory and descriptors of its own: whatever asks which process it is in is to ask the kernel, once
//! there was such a child.
//!
//! It returns twice to where it was called from, so nothing of ours may be in between: what is noted is noted on the way to libc's.

use core::arch::naked_asm;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use crate::next;

/// There was a child that shares its parent's memory and is no thread. (One that the program's own `syscall` instruction makes is not seen. It
/// may exec and exit, which ask the kernel; vfork(2) allows it no more.) A library that cannot tell sets it too.
pub static SHARES_MEMORY: AtomicBool = AtomicBool::new(false);

/// libc's.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// When the library is loaded; or when a constructor that runs before that calls vfork.
pub(crate) extern "C" fn resolve() -> *mut c_void {
    next::resolve(&REAL, c"vfork")
}

cfg_if::cfg_if! {
    if #[cfg(target_arch = "x86_64")] {
        macro_rules! vfork {
            () => {
                naked_asm!(
                    ".cfi_startproc",
                    "endbr64",
                    "mov byte ptr [rip + {noted}], 1",
                    "mov rax, [rip + {real}]",
                    "test rax, rax",
                    "jne 2f",
                    "sub rsp, 8",
                    ".cfi_adjust_cfa_offset 8",
                    "call {resolve}",
                    "add rsp, 8",
                    ".cfi_adjust_cfa_offset -8",
                    "2:",
                    "jmp rax",
                    ".cfi_endproc",
                    noted = sym SHARES_MEMORY,
                    real = sym REAL,
                    resolve = sym resolve,
                )
            };
        }
    } else if #[cfg(target_arch = "aarch64")] {
        macro_rules! vfork {
            () => {
                naked_asm!(
                    ".cfi_startproc",
                    // (bti c)
                    "hint #34",
                    "adrp x16, {noted}",
                    "mov w17, #1",
                    "strb w17, [x16, #:lo12:{noted}]",
                    "adrp x16, {real}",
                    "ldr x16, [x16, #:lo12:{real}]",
                    "cbnz x16, 2f",
                    "stp x29, x30, [sp, #-16]!",
                    ".cfi_adjust_cfa_offset 16",
                    ".cfi_rel_offset x29, 0",
                    ".cfi_rel_offset x30, 8",
                    "bl {resolve}",
                    "mov x16, x0",
                    "ldp x29, x30, [sp], #16",
                    ".cfi_adjust_cfa_offset -16",
                    ".cfi_restore x29",
                    ".cfi_restore x30",
                    "2:",
                    "br x16",
                    ".cfi_endproc",
                    noted = sym SHARES_MEMORY,
                    real = sym REAL,
                    resolve = sym resolve,
                )
            };
        }
    }
}

/// vfork(2), as exported functions jump here.
///
/// # Safety
/// As vfork(2).
#[doc(hidden)]
#[unsafe(naked)]
pub unsafe extern "C" fn vfork() {
    vfork!()
}

/// A child is about to be made that shares memory, and is no thread.
pub(super) fn note() {
    SHARES_MEMORY.store(true, Ordering::Relaxed);
}
