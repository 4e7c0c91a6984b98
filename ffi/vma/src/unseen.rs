//! A fork that neither the handlers of pthread_atfork(3) nor an exported function saw: by the program's own `syscall` instruction.
//!
//! Its child has descriptors, and copies of private memory, but nothing of what its parent shares with peers. So the words by which every
//! call finds the library's state lie in pages that the kernel gives to a child as zeroes (madvise(2), MADV_WIPEONFORK): the child finds
//! nothing, which costs a call that finds something no instruction, and whoever finds nothing looks here.

use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ringway_preload::vfork::SHARES_MEMORY;

use crate::{fdtable, fork, process, real};

/// A value in pages of its own.
#[cfg_attr(target_arch = "x86_64", repr(C, align(4096)))]
#[cfg_attr(not(target_arch = "x86_64"), repr(C, align(65536)))]
pub(crate) struct Wiped<T>(T);

impl<T> Wiped<T> {
    /// `value`: it is to mean something where all of it is zero.
    pub(crate) const fn new(value: T) -> Self {
        Self(value)
    }

    /// From now on, a child finds zeroes. `false`: the kernel has no such thing (before 4.14).
    pub(crate) fn wipe_on_fork(&'static self) -> bool {
        let place = core::ptr::from_ref(self).cast_mut().cast();
        // SAFETY: whole pages that nothing else lies in, and in this process nothing changes.
        unsafe { libc::madvise(place, size_of::<Self>(), libc::MADV_WIPEONFORK) == 0 }
    }
}

impl<T> Deref for Wiped<T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// The process that this is; zero: it may be another one than it was.
static HERE: Wiped<AtomicU32> = Wiped::new(AtomicU32::new(0));

/// [`install`] has been called.
static IS_INSTALLED: AtomicBool = AtomicBool::new(false);

/// When the library is loaded.
pub(crate) fn install() {
    HERE.store(ask_pid().cast_unsigned(), Ordering::Relaxed);
    // (In this order: a child that has the mark has the rest.)
    let is_known = fdtable::wipe_on_fork() && process::wipe_on_fork() && HERE.wipe_on_fork();
    IS_INSTALLED.store(is_known, Ordering::Relaxed);
    // (There may be a child that nothing of ours would see.)
    if !is_known || !real::handlers_are_seen() {
        SHARES_MEMORY.store(true, Ordering::Relaxed);
    }
}

/// The calling process's id, as the kernel has it.
pub(crate) fn ask_pid() -> i32 {
    // SAFETY: getpid has no preconditions.
    unsafe { libc::getpid() }
}

/// The calling process's id: from a page that no child inherits, and so without a system call, unless a child may share that page.
#[inline]
pub(crate) fn own_pid() -> i32 {
    let known = HERE.load(Ordering::Relaxed);
    if known == 0 || SHARES_MEMORY.load(Ordering::Relaxed) { ask_pid() } else { known.cast_signed() }
}

/// Whoever found nothing looks whether that is because it is in a child.
#[inline(always)]
pub(crate) fn look() {
    if !is_here() {
        notice();
    }
}

/// Whether nothing is gone.
#[inline(always)]
pub(crate) fn is_here() -> bool {
    HERE.load(Ordering::Relaxed) != 0
}

#[cold]
#[inline(never)]
fn notice() {
    if IS_INSTALLED.load(Ordering::Relaxed) {
        let saved = crate::errno::current();
        restore();
        crate::boundary!((), fork::notice());
        crate::errno::set(saved);
    }
}

/// In a child: all is where it was.
pub(crate) fn restore() {
    HERE.store(ask_pid().cast_unsigned(), Ordering::Relaxed);
    fdtable::restore();
}
