//! syscall(2), libc's function for system calls by number: where one is on a socket of ours, or concerns the process as a whole, it is the
//! call of that name.
//!
//! Left to the kernel are poll, select and epoll by number (this library waits by these itself), and whatever does not come through libc:
//! the program's own `syscall` instruction (but for a fork, which its child notices: `unseen`), io_uring.

use core::ffi::{c_int, c_long, c_uint, c_void};
use core::ptr;

use libc::{size_t, ssize_t};

use super::{clone, ends, exec, fd, file, means, receive, send, socket};
use crate::fdtable::{self, Entry};
use crate::real;

/// syscall(2).
///
/// # Safety
/// As the system call.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long {
    // SAFETY: the program's promise to the system call.
    if let Some(result) = unsafe { of_the_process(number, [a, b, c, d, e, f]) } {
        return result;
    }
    let concerns_us = match number {
        libc::SYS_close_range => true,
        _ => is_ours(a as c_int) || matches!(number, libc::SYS_dup3) && is_ours(b as c_int),
    };
    #[cfg(target_arch = "x86_64")]
    let concerns_us = concerns_us || number == libc::SYS_dup2 && is_ours(b as c_int);
    // SAFETY: the program's promise to the system call, which has the arguments of libc's function.
    let answer = if concerns_us { unsafe { call(number, [a, b, c, d, e, f]) } } else { None };
    // SAFETY: the program's arguments, as they are.
    answer.unwrap_or_else(|| unsafe { real::syscall(number, a, b, c, d, e, f) })
}

/// The calls that concern the process as a whole; `None`: it is none, or the kernel's after all that we had to do.
///
/// # Safety
/// As the call.
unsafe fn of_the_process(number: c_long, arguments: [c_long; 6]) -> Option<c_long> {
    let [a, b, c, d, e, _] = arguments;
    let place = |address: c_long| ptr::with_exposed_provenance::<c_void>(address as usize);
    // SAFETY: the caller's promise, for each.
    unsafe {
        match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_fork | libc::SYS_vfork => clone::by_number(number, arguments),
            libc::SYS_clone | libc::SYS_clone3 => clone::by_number(number, arguments),
            libc::SYS_execve => Some(c_long::from(exec::execve(place(a).cast(), place(b).cast(), place(c).cast()))),
            libc::SYS_execveat => {
                Some(c_long::from(exec::execveat(a as c_int, place(b).cast(), place(c).cast(), place(d).cast(), e as c_int)))
            }
            libc::SYS_exit_group => ends::_exit(a as c_int),
            libc::SYS_seccomp | libc::SYS_prctl | libc::SYS_setuid | libc::SYS_setreuid | libc::SYS_setresuid => {
                means::by_number(number, a);
                None
            }
            libc::SYS_chroot | libc::SYS_pivot_root | libc::SYS_unshare | libc::SYS_setns => {
                means::by_number(number, a);
                None
            }
            _ => None,
        }
    }
}

fn is_ours(number: c_int) -> bool {
    // Only looked at: most system calls begin with something else than a descriptor.
    !matches!(fdtable::peek(number), Entry::None | Entry::Internal)
}

/// The call of a number; `None`: it means nothing to us.
///
/// # Safety
/// As the call.
unsafe fn call(number: c_long, [a, b, c, d, e, f]: [c_long; 6]) -> Option<c_long> {
    let n = a as c_int;
    let (at, len) = (ptr::with_exposed_provenance_mut::<c_void>(b as usize), c as size_t);
    let (to, to_len) = (ptr::with_exposed_provenance_mut(e as usize), f);
    let size = |result: ssize_t| Some(result as c_long);
    let int = |result: c_int| Some(c_long::from(result));
    // SAFETY: the caller's promise, for each.
    unsafe {
        match number {
            libc::SYS_close => int(fd::close(n)),
            libc::SYS_close_range => int(fd::close_range(a as c_uint, b as c_uint, c as c_int)),
            libc::SYS_dup => int(fd::dup(n)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => int(fd::dup2(n, b as c_int)),
            libc::SYS_dup3 => int(fd::dup3(n, b as c_int, c as c_int)),
            libc::SYS_fcntl if matches!(b as c_int, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC | libc::F_SETFL) => {
                int(fd::fcntl(n, b as c_int, c as usize))
            }
            libc::SYS_read => size(receive::read(n, at, len)),
            libc::SYS_readv => size(receive::readv(n, at.cast(), c as c_int)),
            libc::SYS_recvfrom => size(receive::recvfrom(n, at, len, d as c_int, to, ptr::with_exposed_provenance_mut(to_len as usize))),
            libc::SYS_recvmsg => size(receive::recvmsg(n, at.cast(), c as c_int)),
            libc::SYS_write => size(send::write(n, at, len)),
            libc::SYS_writev => size(send::writev(n, at.cast(), c as c_int)),
            libc::SYS_sendto => size(send::sendto(n, at, len, d as c_int, to, to_len as libc::socklen_t)),
            libc::SYS_sendmsg => size(send::sendmsg(n, at.cast(), c as c_int)),
            libc::SYS_sendfile => size(file::sendfile(n, b as c_int, ptr::with_exposed_provenance_mut(c as usize), d as size_t)),
            libc::SYS_bind => int(socket::bind(n, at.cast(), c as libc::socklen_t)),
            libc::SYS_listen => int(socket::listen(n, b as c_int)),
            libc::SYS_connect => int(socket::connect(n, at.cast(), c as libc::socklen_t)),
            libc::SYS_accept => int(socket::accept(n, at.cast(), ptr::with_exposed_provenance_mut(c as usize))),
            libc::SYS_accept4 => int(socket::accept4(n, at.cast(), ptr::with_exposed_provenance_mut(c as usize), d as c_int)),
            libc::SYS_shutdown => int(socket::shutdown(n, b as c_int)),
            libc::SYS_getsockname => int(socket::getsockname(n, at.cast(), ptr::with_exposed_provenance_mut(c as usize))),
            libc::SYS_getpeername => int(socket::getpeername(n, at.cast(), ptr::with_exposed_provenance_mut(c as usize))),
            libc::SYS_getsockopt => {
                let (value, len) = (ptr::with_exposed_provenance_mut(d as usize), ptr::with_exposed_provenance_mut(e as usize));
                int(socket::getsockopt(n, b as c_int, c as c_int, value, len))
            }
            libc::SYS_setsockopt => {
                let value = ptr::with_exposed_provenance(d as usize);
                int(socket::setsockopt(n, b as c_int, c as c_int, value, e as libc::socklen_t))
            }
            _ => None,
        }
    }
}
