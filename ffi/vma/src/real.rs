//! libc's own functions, below the ones that this library puts in front of them.
//!
//! Each is found by `dlsym(RTLD_NEXT, …)` on its first call and remembered; [`resolve_all`] does it for all of them when
//! the library is loaded, so that no lookup happens in a signal handler or between fork and exec. Within the library,
//! `libc::close` and its like name the interposed functions: whoever means the kernel's says `real::close`.

use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use libc::{
    epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t, off_t, pollfd, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
    uid_t,
};

#[cold]
pub(crate) fn resolve(place: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    // SAFETY: the name is a C string; RTLD_NEXT asks for the definition after this library's.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    place.store(found, Ordering::Relaxed);
    found
}

/// The program's calls of sigaction come to this library, which is preloaded or linked. They go past a library that was opened by dlopen(3).
static HANDLERS_ARE_SEEN: AtomicBool = AtomicBool::new(true);

/// Whether the program's signal handlers are installed by way of this library.
#[inline]
pub(crate) fn handlers_are_seen() -> bool {
    HANDLERS_ARE_SEEN.load(Ordering::Relaxed)
}

/// Finds out whose `sigaction` the program calls. (This library's own name for its function would be bound to the same one.)
pub(crate) fn look_at_handlers() {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"sigaction".as_ptr()) };
    HANDLERS_ARE_SEEN.store(object_of(found) == object_of((&raw const HANDLERS_ARE_SEEN).cast()), Ordering::Relaxed);
}

/// Where the object is loaded in which the address lies. Null: in none.
fn object_of(address: *const c_void) -> *mut c_void {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr writes to the place that it is given, which is valid as it is: null pointers.
    unsafe {
        libc::dladdr(address, info.as_mut_ptr());
        info.assume_init().dli_fbase
    }
}

macro_rules! real {
    ($($name:ident = $symbol:literal ($($arg:ident: $type:ty),*) -> $return:ty;)*) => {
        #[allow(non_upper_case_globals, reason = "named after the functions")]
        mod places {
            use super::{AtomicPtr, c_void, ptr};
            $(pub(super) static $name: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());)*
        }

        /// Looks all of them up.
        pub(crate) fn resolve_all() {
            $(resolve(&places::$name, const { cstr(concat!($symbol, "\0")) });)*
        }

        $(
            /// libc's function of this name; its contract is the caller's to keep.
            #[inline]
            #[allow(clippy::too_many_arguments, reason = "libc's signature")]
            pub(crate) unsafe fn $name($($arg: $type),*) -> $return {
                let mut found = places::$name.load(Ordering::Relaxed);
                if found.is_null() {
                    found = resolve(&places::$name, const { cstr(concat!($symbol, "\0")) });
                    if found.is_null() {
                        return missing() as $return;
                    }
                }
                // SAFETY: the symbol has this signature in libc's headers. Variadic ones are called with their
                // argument in the register where va_arg looks for it on every ABI that Linux has for 64 bits. It may unwind:
                // a cancellation point of libc's ends the thread so.
                let function: unsafe extern "C-unwind" fn($($type),*) -> $return = unsafe { core::mem::transmute(found) };
                // SAFETY: the caller keeps the function's contract.
                unsafe { function($($arg),*) }
            }
        )*
    };
}

const fn cstr(name: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("a symbol's name has one NUL, at its end"),
    }
}

/// A libc that lacks the function: as a kernel that lacks the system call.
#[cold]
fn missing() -> isize {
    crate::errno::set(libc::ENOSYS);
    -1
}

real! {
    socket = "socket"(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    bind = "bind"(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    listen = "listen"(fd: c_int, backlog: c_int) -> c_int;
    connect = "connect"(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int;
    accept4 = "accept4"(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int;
    accept = "accept"(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    shutdown = "shutdown"(fd: c_int, how: c_int) -> c_int;
    getsockname = "getsockname"(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getpeername = "getpeername"(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int;
    getsockopt = "getsockopt"(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int;
    setsockopt = "setsockopt"(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int;

    read = "read"(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t;
    read_chk = "__read_chk"(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t) -> ssize_t;
    readv = "readv"(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t;
    recv = "recv"(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t;
    recv_chk = "__recv_chk"(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t;
    recvfrom = "recvfrom"(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t) -> ssize_t;
    recvfrom_chk = "__recvfrom_chk"(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t) -> ssize_t;
    recvmsg = "recvmsg"(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    recvmmsg = "recvmmsg"(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    write = "write"(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t;
    writev = "writev"(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t;
    send = "send"(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t;
    sendto = "sendto"(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, to_len: socklen_t) -> ssize_t;
    sendmsg = "sendmsg"(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    sendmmsg = "sendmmsg"(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    sendfile = "sendfile"(out: c_int, input: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    pread = "pread64"(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t) -> ssize_t;

    preadv2 = "preadv64v2"(fd: c_int, vectors: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    pwritev2 = "pwritev64v2"(fd: c_int, vectors: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    splice = "splice"(input: c_int, at: *mut off_t, output: c_int, to: *mut off_t, len: size_t, flags: c_uint) -> ssize_t;

    open = "open64"(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    openat = "openat64"(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    creat = "creat64"(path: *const c_char, mode: c_uint) -> c_int;
    open_2 = "__open64_2"(path: *const c_char, flags: c_int) -> c_int;
    openat_2 = "__openat64_2"(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    pipe2 = "pipe2"(ends: *mut c_int, flags: c_int) -> c_int;
    socketpair = "socketpair"(domain: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int;
    eventfd = "eventfd"(count: c_uint, flags: c_int) -> c_int;
    timerfd_create = "timerfd_create"(clock: c_int, flags: c_int) -> c_int;
    signalfd = "signalfd"(fd: c_int, mask: *const sigset_t, flags: c_int) -> c_int;
    memfd_create = "memfd_create"(name: *const c_char, flags: c_uint) -> c_int;
    inotify_init1 = "inotify_init1"(flags: c_int) -> c_int;

    fdopen = "fdopen"(fd: c_int, mode: *const c_char) -> *mut c_void;
    fclose = "fclose"(stream: *mut c_void) -> c_int;
    vdprintf = "vdprintf"(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    vdprintf_chk = "__vdprintf_chk"(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    vasprintf_chk = "__vasprintf_chk"(out: *mut *mut c_char, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    vasprintf = "vasprintf"(out: *mut *mut c_char, format: *const c_char, arguments: *mut c_void) -> c_int;

    pthread_cancel = "pthread_cancel"(thread: libc::pthread_t) -> c_int;
    syscall = "syscall"(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long;

    close = "close"(fd: c_int) -> c_int;
    close_range = "close_range"(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    closefrom = "closefrom"(first: c_int) -> c_int;
    dup = "dup"(fd: c_int) -> c_int;
    dup2 = "dup2"(old: c_int, new: c_int) -> c_int;
    dup3 = "dup3"(old: c_int, new: c_int, flags: c_int) -> c_int;
    fcntl = "fcntl"(fd: c_int, command: c_int, argument: usize) -> c_int;
    fcntl64 = "fcntl64"(fd: c_int, command: c_int, argument: usize) -> c_int;
    ioctl = "ioctl"(fd: c_int, request: c_ulong, argument: usize) -> c_int;

    poll = "poll"(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    poll_chk = "__poll_chk"(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int;
    ppoll = "ppoll"(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    ppoll_chk = "__ppoll_chk"(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t) -> c_int;
    select = "select"(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    pselect = "pselect"(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    epoll_create = "epoll_create"(size: c_int) -> c_int;
    epoll_create1 = "epoll_create1"(flags: c_int) -> c_int;
    epoll_ctl = "epoll_ctl"(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    epoll_wait = "epoll_wait"(epoll: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int;
    epoll_pwait = "epoll_pwait"(epoll: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    epoll_pwait2 = "epoll_pwait2"(epoll: c_int, events: *mut epoll_event, count: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;

    execve = "execve"(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    execv = "execv"(path: *const c_char, arguments: *const *const c_char) -> c_int;
    execvp = "execvp"(file: *const c_char, arguments: *const *const c_char) -> c_int;
    execvpe = "execvpe"(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fexecve = "fexecve"(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    execveat = "execveat"(directory: c_int, path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char, flags: c_int) -> c_int;
    fork_alone = "_Fork"() -> libc::pid_t;
    clone = "clone"(entry: Option<unsafe extern "C" fn(*mut c_void) -> c_int>, stack: *mut c_void, flags: c_int, argument: *mut c_void, a: c_long, b: c_long, c: c_long) -> c_int;
    posix_spawn_file_actions_adddup2 = "posix_spawn_file_actions_adddup2"(actions: *mut c_void, old: c_int, new: c_int) -> c_int;
    setuid = "setuid"(user: uid_t) -> c_int;
    seteuid = "seteuid"(user: uid_t) -> c_int;
    setreuid = "setreuid"(user: uid_t, effective: uid_t) -> c_int;
    setresuid = "setresuid"(user: uid_t, effective: uid_t, saved: uid_t) -> c_int;
    chroot = "chroot"(path: *const c_char) -> c_int;
    unshare = "unshare"(flags: c_int) -> c_int;
    setns = "setns"(fd: c_int, kind: c_int) -> c_int;
    prctl = "prctl"(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int;

    pthread_sigmask = "pthread_sigmask"(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int;
    sigprocmask = "sigprocmask"(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int;
    sigaction = "sigaction"(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int;
    longjmp = "longjmp"(environment: *mut c_void, value: c_int) -> c_int;
    longjmp_bsd = "_longjmp"(environment: *mut c_void, value: c_int) -> c_int;
    siglongjmp = "siglongjmp"(environment: *mut c_void, value: c_int) -> c_int;
    longjmp_checked = "__longjmp_chk"(environment: *mut c_void, value: c_int) -> c_int;
    _exit = "_exit"(status: c_int) -> c_int;
    quick_exit = "quick_exit"(status: c_int) -> c_int;
}
