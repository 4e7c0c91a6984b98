//! The types of the C signatures, by the names that the table of functions has for them.

pub use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

pub use libc::{
    epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off64_t, pid_t, pollfd, pthread_t, sighandler_t, sigset_t, size_t, sockaddr,
    socklen_t, ssize_t, timespec, timeval, uid_t,
};

/// sigaction(2)'s structure.
pub type Action = libc::sigaction;

/// What a child of clone(3) begins with.
pub type Begin = unsafe extern "C" fn(*mut c_void) -> c_int;

/// exec's arguments, or its environment.
pub type Strings = *const *const c_char;
