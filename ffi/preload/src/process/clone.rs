//! The ways to fork that pass by the handlers of pthread_atfork(3): `_Fork`, clone(2), and the system calls by their numbers.
//!
//! vfork(2) by its number is a fork whose parent waits: it returns twice, which no function in between can (glibc's manual: vfork is to be
//! called by its name). What shares its parent's memory (CLONE_VM) is a thread, or a child that execs, and has nothing of its own.

use core::ffi::{c_int, c_long, c_void};
use core::ptr;

use super::vfork;
use crate::types::Begin;
use crate::{Exports, Intercept, next};

/// Flags by which the child comes to be where its parent cannot be asked.
pub const APART: u64 = (libc::CLONE_NEWNET | libc::CLONE_NEWPID | libc::CLONE_NEWUSER) as u64;
/// The parent waits until the child execs or ends.
pub const SUSPENDS: u64 = libc::CLONE_VFORK as u64;
const SHARES_MEMORY: u64 = libc::CLONE_VM as u64;
const IS_THREAD: u64 = libc::CLONE_THREAD as u64;

/// What cannot be done as a fork is left to the kernel: a child that shares memory may ask which process it is.
fn leave(flags: u64) {
    if flags & SHARES_MEMORY != 0 && flags & IS_THREAD == 0 {
        vfork::note();
    }
}

/// What a system call by its number is: `None` if it is no fork.
///
/// # Safety
/// As the system call.
pub(crate) unsafe fn by_number<L: Intercept>(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> Option<c_long> {
    /// The parts of clone3's argument up to the stack (clone(2)).
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Arguments {
        flags: u64,
        others: [u64; 4],
        stack: u64,
        more: [u64; 2],
    }
    // SAFETY: the program's own arguments, but for the flags that the library stands in for.
    let by_clone = |flags: u64| L::fork(flags, |flags| unsafe { next::syscall(libc::SYS_clone, flags as c_long, b, c, d, e, f) });
    // SAFETY: no arguments that are addresses.
    #[cfg(target_arch = "x86_64")]
    let plainly = |flags: u64| L::fork(flags, |flags| unsafe { next::syscall(libc::SYS_clone, flags as c_long, 0, 0, 0, 0, 0) });
    match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork => Some(plainly(libc::SIGCHLD as u64)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_vfork => Some(plainly(SUSPENDS | libc::SIGCHLD as u64)),
        libc::SYS_clone => {
            let flags = a as u64;
            // (With a stack of its own it never comes back here, with its parent's memory there is nothing to be done. A child that shares
            // its parent's memory and stack is vfork's.)
            match (flags & SHARES_MEMORY != 0, b != 0) {
                (false, false) => Some(by_clone(flags)),
                (true, false) if flags & SUSPENDS != 0 => Some(by_clone(flags & !SHARES_MEMORY)),
                _ => {
                    leave(flags);
                    None
                }
            }
        }
        libc::SYS_clone3 if a != 0 && b as usize >= size_of::<Arguments>() => {
            let given: *const Arguments = ptr::with_exposed_provenance(a as usize);
            // SAFETY: the program's promise to the system call: as many bytes as it says.
            let mut arguments = unsafe { given.read_unaligned() };
            let flags = arguments.flags;
            let is_vfork = flags & SHARES_MEMORY != 0 && flags & SUSPENDS != 0;
            // (One that has more to say than we know of is left as it is.)
            if arguments.stack != 0 || flags & SHARES_MEMORY != 0 && !is_vfork {
                leave(flags);
                return None;
            }
            if flags & SUSPENDS == 0 {
                // SAFETY: the program's own arguments.
                return Some(L::fork(flags, |_| unsafe { next::syscall(number, a, b, c, d, e, f) }));
            }
            Some(L::fork(flags & !SHARES_MEMORY, |flags| {
                arguments.flags = flags;
                let place = (&raw mut arguments).expose_provenance() as c_long;
                // SAFETY: the structure lives until it returns, in the child's copy as well.
                unsafe { next::syscall(number, place, size_of::<Arguments>() as c_long, 0, 0, 0, 0) }
            }))
        }
        _ => None,
    }
}

/// What a child of clone(3) begins with.
struct Start {
    begin: Begin,
    argument: *mut c_void,
}

unsafe extern "C" fn begin<L: Intercept>(start: *mut c_void) -> c_int {
    L::forked();
    // SAFETY: the child's copy of what `with_function` has on its stack.
    let start = unsafe { &*start.cast_const().cast::<Start>() };
    // SAFETY: the program's own function and argument.
    let status = unsafe { (start.begin)(start.argument) };
    // As libc's does, but for what the child has to do before it ends.
    // SAFETY: plain integers.
    unsafe { <L as Exports>::_exit(status) }
}

/// clone(2), as libc has it: with a function to begin with. `more`: the arguments that a caller may have left out.
///
/// # Safety
/// As clone(2).
pub(crate) unsafe fn with_function<L: Intercept>(
    entry: Option<Begin>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    more: [c_long; 3],
) -> c_int {
    let [a, b, c] = more;
    let own = u64::from(flags as u32);
    let Some(entry) = entry.filter(|_| !stack.is_null() && own & SHARES_MEMORY == 0) else {
        leave(own);
        // SAFETY: the program's own arguments.
        return unsafe { next::clone(entry, stack, flags, argument, a, b, c) };
    };
    let mut start = Start { begin: entry, argument };
    let place = (&raw mut start).cast();
    // SAFETY: the program's stack and arguments; what `place` names lives on in the child's copy of this stack.
    L::fork(own, |flags| c_long::from(unsafe { next::clone(Some(begin::<L>), stack, flags as c_int, place, a, b, c) })) as c_int
}
