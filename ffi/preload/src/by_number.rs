//! syscall(2), libc's function for system calls by number: where one is on a descriptor of the library's, or concerns the process as a
//! whole, it is the function of that name.
//!
//! Left to the kernel are poll, select and epoll by number (libraries wait by these themselves), and whatever does not come through libc:
//! the program's own `syscall` instruction, io_uring.

use core::ffi::{c_int, c_long, c_uint, c_void};
use core::ptr;

use libc::{size_t, ssize_t};

use crate::process::{clone, means};
use crate::{Exports, Intercept, next};

/// syscall(2).
///
/// # Safety
/// As the system call.
pub unsafe fn call<L: Intercept>(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the program's promise to the system call.
    if let Some(result) = unsafe { of_the_process::<L>(number, arguments) } {
        return result;
    }
    let concerns_us = match number {
        libc::SYS_close_range => true,
        _ => L::is_known(a as c_int) || matches!(number, libc::SYS_dup3) && L::is_known(b as c_int),
    };
    #[cfg(target_arch = "x86_64")]
    let concerns_us = concerns_us || number == libc::SYS_dup2 && L::is_known(b as c_int);
    // SAFETY: the program's promise to the system call, which has the arguments of libc's function.
    let answer = if concerns_us { unsafe { of_a_descriptor::<L>(number, arguments) } } else { None };
    // SAFETY: the program's arguments, as they are.
    answer.unwrap_or_else(|| unsafe { next::syscall(number, a, b, c, d, e, f) })
}

/// The calls that concern the process as a whole; `None`: it is none, or the kernel's after all that we had to do.
///
/// # Safety
/// As the call.
unsafe fn of_the_process<L: Intercept>(number: c_long, arguments: [c_long; 6]) -> Option<c_long> {
    let [a, b, c, d, e, _] = arguments;
    let place = |address: c_long| ptr::with_exposed_provenance::<c_void>(address as usize);
    // SAFETY: the caller's promise, for each.
    unsafe {
        match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_fork | libc::SYS_vfork => clone::by_number::<L>(number, arguments),
            libc::SYS_clone | libc::SYS_clone3 => clone::by_number::<L>(number, arguments),
            libc::SYS_execve => Some(c_long::from(<L as Exports>::execve(place(a).cast(), place(b).cast(), place(c).cast()))),
            libc::SYS_execveat => {
                Some(c_long::from(<L as Exports>::execveat(a as c_int, place(b).cast(), place(c).cast(), place(d).cast(), e as c_int)))
            }
            libc::SYS_exit_group => <L as Exports>::_exit(a as c_int),
            libc::SYS_seccomp | libc::SYS_prctl | libc::SYS_setuid | libc::SYS_setreuid | libc::SYS_setresuid => {
                means::by_number::<L>(number, a);
                None
            }
            libc::SYS_chroot | libc::SYS_pivot_root | libc::SYS_unshare | libc::SYS_setns => {
                means::by_number::<L>(number, a);
                None
            }
            _ => None,
        }
    }
}

/// The call of a number; `None`: it is none that a library stands in front of.
///
/// # Safety
/// As the call.
unsafe fn of_a_descriptor<L: Intercept>(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> Option<c_long> {
    let n = a as c_int;
    let (at, len) = (ptr::with_exposed_provenance_mut::<c_void>(b as usize), c as size_t);
    let (to, to_len) = (ptr::with_exposed_provenance_mut(e as usize), f);
    let size = |result: ssize_t| Some(result as c_long);
    let int = |result: c_int| Some(c_long::from(result));
    // SAFETY: the caller's promise, for each.
    unsafe {
        match number {
            libc::SYS_close => int(<L as Exports>::close(n)),
            libc::SYS_close_range => int(<L as Exports>::close_range(a as c_uint, b as c_uint, c as c_int)),
            libc::SYS_dup => int(<L as Exports>::dup(n)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => int(<L as Exports>::dup2(n, b as c_int)),
            libc::SYS_dup3 => int(<L as Exports>::dup3(n, b as c_int, c as c_int)),
            libc::SYS_fcntl if matches!(b as c_int, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC | libc::F_SETFL) => {
                int(<L as Exports>::fcntl(n, b as c_int, c as usize))
            }
            libc::SYS_read => size(<L as Exports>::read(n, at, len)),
            libc::SYS_readv => size(<L as Exports>::readv(n, at.cast(), c as c_int)),
            libc::SYS_recvfrom => {
                size(<L as Exports>::recvfrom(n, at, len, d as c_int, to, ptr::with_exposed_provenance_mut(to_len as usize)))
            }
            libc::SYS_recvmsg => size(<L as Exports>::recvmsg(n, at.cast(), c as c_int)),
            libc::SYS_write => size(<L as Exports>::write(n, at, len)),
            libc::SYS_writev => size(<L as Exports>::writev(n, at.cast(), c as c_int)),
            libc::SYS_sendto => size(<L as Exports>::sendto(n, at, len, d as c_int, to, to_len as libc::socklen_t)),
            libc::SYS_sendmsg => size(<L as Exports>::sendmsg(n, at.cast(), c as c_int)),
            libc::SYS_sendfile => size(<L as Exports>::sendfile(n, b as c_int, ptr::with_exposed_provenance_mut(c as usize), d as size_t)),
            libc::SYS_bind => int(<L as Exports>::bind(n, at.cast(), c as libc::socklen_t)),
            libc::SYS_listen => int(<L as Exports>::listen(n, b as c_int)),
            libc::SYS_connect => int(<L as Exports>::connect(n, at.cast(), c as libc::socklen_t)),
            libc::SYS_accept => int(<L as Exports>::accept(n, at.cast(), ptr::with_exposed_provenance_mut(c as usize))),
            libc::SYS_accept4 => int(<L as Exports>::accept4(n, at.cast(), ptr::with_exposed_provenance_mut(c as usize), d as c_int)),
            libc::SYS_shutdown => int(<L as Exports>::shutdown(n, b as c_int)),
            libc::SYS_getsockname => int(<L as Exports>::getsockname(n, at.cast(), ptr::with_exposed_provenance_mut(c as usize))),
            libc::SYS_getpeername => int(<L as Exports>::getpeername(n, at.cast(), ptr::with_exposed_provenance_mut(c as usize))),
            libc::SYS_getsockopt => {
                let (value, len) = (ptr::with_exposed_provenance_mut(d as usize), ptr::with_exposed_provenance_mut(e as usize));
                int(<L as Exports>::getsockopt(n, b as c_int, c as c_int, value, len))
            }
            libc::SYS_setsockopt => {
                let value = ptr::with_exposed_provenance(d as usize);
                int(<L as Exports>::setsockopt(n, b as c_int, c as c_int, value, e as libc::socklen_t))
            }
            _ => None,
        }
    }
}
