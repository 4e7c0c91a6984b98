//! The order in which the card sees what the processor writes, and the processor what the card writes.
//!
//! The same four places as in rdma-core's util/udma_barrier.h: x86-64 keeps stores to ordinary memory in order, and only what goes to
//! write-combining memory needs an instruction; aarch64 needs one everywhere.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use core::arch::asm;
#[cfg(not(target_arch = "aarch64"))]
use core::sync::atomic::{Ordering, fence};

/// Entries are in memory before the doorbell record that tells of them.
#[inline(always)]
pub(crate) fn before_record() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier.
    unsafe {
        asm!("dmb oshst", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "aarch64"))]
    fence(Ordering::Release);
}

/// The doorbell record is in memory before the register is written.
#[inline(always)]
pub(crate) fn before_register() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a barrier.
    unsafe {
        asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier.
    unsafe {
        asm!("dsb st", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fence(Ordering::SeqCst);
}

/// The register's write leaves the processor's write-combining buffers now, and before the next one.
#[inline(always)]
pub(crate) fn after_register() {
    before_register();
}

/// What a completion says, and what the card wrote before it, is read after its owner's bit.
#[inline(always)]
pub(crate) fn after_owner() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier.
    unsafe {
        asm!("dmb oshld", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "aarch64"))]
    fence(Ordering::Acquire);
}
