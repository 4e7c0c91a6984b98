//! The functions that a preloaded library stands in front of: each once, with its C signature.
//!
//! A row is `"ABI" fn name = "symbol"(arguments) -> result, how;`, where `how` says what the function comes to:
//!
//! - `method`: the trait's method of that name, which by default is the next definition
//! - `next => …`: this, for which there is the next definition of that symbol too
//! - `alone => …`: this; its next definition is another row's, or is in `next`
//!
//! `L` is the library. A variadic function has its argument as the one parameter that its callers ever pass: it is in the register where
//! va_arg looks for it on every ABI that Linux has for 64 bits.

/// Hands the rows to one of those who make something of them (`rows`).
#[doc(hidden)]
#[macro_export]
macro_rules! functions {
    ($what:ident $with:tt) => { $crate::rows! { $what $with
        // Making, naming and connecting sockets.

        /// socket(2).
        "C" fn socket = "socket"(domain: c_int, kind: c_int, protocol: c_int) -> c_int, method;
        /// bind(2).
        "C" fn bind = "bind"(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int, method;
        /// listen(2).
        "C" fn listen = "listen"(fd: c_int, backlog: c_int) -> c_int, method;
        /// connect(2).
        "C-unwind" fn connect = "connect"(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int, method;
        /// accept(2).
        "C-unwind" fn accept = "accept"(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int,
            next => <L as Intercept>::accept(fd, address, len, 0, || next::accept(fd, address, len));
        /// accept4(2).
        "C-unwind" fn accept4 = "accept4"(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int,
            next => <L as Intercept>::accept(fd, address, len, flags, || next::accept4(fd, address, len, flags));
        /// shutdown(2).
        "C" fn shutdown = "shutdown"(fd: c_int, how: c_int) -> c_int, method;
        /// getsockname(2).
        "C" fn getsockname = "getsockname"(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int, method;
        /// getpeername(2).
        "C" fn getpeername = "getpeername"(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int, method;
        /// getsockopt(2).
        "C" fn getsockopt = "getsockopt"(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int, method;
        /// setsockopt(2).
        "C" fn setsockopt = "setsockopt"(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int, method;

        // Receiving.

        /// read(2).
        "C-unwind" fn read = "read"(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t, method;
        /// `read` as _FORTIFY_SOURCE calls it: it is libc's to end the program where the room is too small.
        "C-unwind" fn read_chk = "__read_chk"(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t) -> ssize_t,
            next => if len > room || !L::is_known(fd) { next::read_chk(fd, buffer, len, room) }
                else { <L as Exports>::read(fd, buffer, len) };
        /// readv(2).
        "C-unwind" fn readv = "readv"(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t, method;
        /// preadv2(2).
        "C-unwind" fn preadv2 = "preadv2"(fd: c_int, vectors: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t,
            alone => positioned::read::<L>(fd, vectors, count, offset, flags);
        /// preadv2(2), as programs with 64-bit offsets call it.
        "C-unwind" fn preadv64v2 = "preadv64v2"(fd: c_int, vectors: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t,
            alone => <L as Exports>::preadv2(fd, vectors, count, offset, flags);
        /// recv(2).
        "C-unwind" fn recv = "recv"(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t, method;
        /// `recv` as _FORTIFY_SOURCE calls it.
        "C-unwind" fn recv_chk = "__recv_chk"(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t,
            next => if len > room || !L::is_known(fd) { next::recv_chk(fd, buffer, len, room, flags) }
                else { <L as Exports>::recv(fd, buffer, len, flags) };
        /// recvfrom(2).
        "C-unwind" fn recvfrom = "recvfrom"(
            fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t
        ) -> ssize_t, method;
        /// `recvfrom` as _FORTIFY_SOURCE calls it.
        "C-unwind" fn recvfrom_chk = "__recvfrom_chk"(
            fd: c_int, buffer: *mut c_void, len: size_t, room: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t
        ) -> ssize_t,
            next => if len > room || !L::is_known(fd) { next::recvfrom_chk(fd, buffer, len, room, flags, from, from_len) }
                else { <L as Exports>::recvfrom(fd, buffer, len, flags, from, from_len) };
        /// recvmsg(2).
        "C-unwind" fn recvmsg = "recvmsg"(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t, method;
        /// recvmmsg(2).
        "C-unwind" fn recvmmsg = "recvmmsg"(
            fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec
        ) -> c_int, method;

        // Sending.

        /// write(2).
        "C-unwind" fn write = "write"(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t, method;
        /// writev(2).
        "C-unwind" fn writev = "writev"(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t, method;
        /// pwritev2(2).
        "C-unwind" fn pwritev2 = "pwritev2"(fd: c_int, vectors: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t,
            alone => positioned::write::<L>(fd, vectors, count, offset, flags);
        /// pwritev2(2), as programs with 64-bit offsets call it.
        "C-unwind" fn pwritev64v2 = "pwritev64v2"(fd: c_int, vectors: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t,
            alone => <L as Exports>::pwritev2(fd, vectors, count, offset, flags);
        /// send(2).
        "C-unwind" fn send = "send"(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t, method;
        /// sendto(2).
        "C-unwind" fn sendto = "sendto"(
            fd: c_int, buffer: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, to_len: socklen_t
        ) -> ssize_t, method;
        /// sendmsg(2).
        "C-unwind" fn sendmsg = "sendmsg"(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t, method;
        /// sendmmsg(2).
        "C-unwind" fn sendmmsg = "sendmmsg"(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int, method;
        /// sendfile(2).
        "C-unwind" fn sendfile = "sendfile"(out: c_int, input: c_int, offset: *mut off64_t, count: size_t) -> ssize_t, method;
        /// sendfile(2), as programs with 64-bit offsets call it; on 64-bit machines both are one.
        "C" fn sendfile64 = "sendfile64"(out: c_int, input: c_int, offset: *mut off64_t, count: size_t) -> ssize_t,
            alone => <L as Exports>::sendfile(out, input, offset, count);
        /// splice(2).
        "C-unwind" fn splice = "splice"(
            input: c_int, at: *mut off64_t, output: c_int, to: *mut off64_t, len: size_t, flags: c_uint
        ) -> ssize_t, method;

        // Waiting.

        /// poll(2).
        "C-unwind" fn poll = "poll"(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int,
            next => <L as Intercept>::poll(fds, count, Timeout::Ms(timeout), null(), || next::poll(fds, count, timeout));
        /// `poll` as _FORTIFY_SOURCE calls it: it ends the program if `room` bytes cannot hold `count` entries.
        "C-unwind" fn __poll_chk = "__poll_chk"(fds: *mut pollfd, count: nfds_t, timeout: c_int, room: size_t) -> c_int,
            next => if fits(count, room) { <L as Exports>::poll(fds, count, timeout) } else { next::__poll_chk(fds, count, timeout, room) };
        /// ppoll(2).
        "C-unwind" fn ppoll = "ppoll"(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int,
            next => <L as Intercept>::poll(fds, count, Timeout::Timespec(timeout), mask, || next::ppoll(fds, count, timeout, mask));
        /// `ppoll` as _FORTIFY_SOURCE calls it.
        "C-unwind" fn __ppoll_chk = "__ppoll_chk"(
            fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: size_t
        ) -> c_int,
            next => if fits(count, room) { <L as Exports>::ppoll(fds, count, timeout, mask) }
                else { next::__ppoll_chk(fds, count, timeout, mask, room) };
        /// select(2).
        "C-unwind" fn select = "select"(
            count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval
        ) -> c_int,
            next => <L as Intercept>::select(count, [read, write, except], Timeout::Timeval(timeout), null(),
                || next::select(count, read, write, except, timeout));
        /// pselect(2).
        "C-unwind" fn pselect = "pselect"(
            count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t
        ) -> c_int,
            next => <L as Intercept>::select(count, [read, write, except], Timeout::Timespec(timeout), mask,
                || next::pselect(count, read, write, except, timeout, mask));
        /// epoll_create(2).
        "C" fn epoll_create = "epoll_create"(size: c_int) -> c_int,
            next => <L as Intercept>::epoll_create(|| next::epoll_create(size));
        /// epoll_create1(2).
        "C" fn epoll_create1 = "epoll_create1"(flags: c_int) -> c_int,
            next => <L as Intercept>::epoll_create(|| next::epoll_create1(flags));
        /// epoll_ctl(2).
        "C" fn epoll_ctl = "epoll_ctl"(instance: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int, method;
        /// epoll_wait(2).
        "C-unwind" fn epoll_wait = "epoll_wait"(instance: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int,
            next => <L as Intercept>::epoll_wait(instance, events, count, Timeout::Ms(timeout), null(),
                || next::epoll_wait(instance, events, count, timeout));
        /// epoll_pwait(2).
        "C-unwind" fn epoll_pwait = "epoll_pwait"(
            instance: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, mask: *const sigset_t
        ) -> c_int,
            next => <L as Intercept>::epoll_wait(instance, events, count, Timeout::Ms(timeout), mask,
                || next::epoll_pwait(instance, events, count, timeout, mask));
        /// epoll_pwait2(2).
        "C-unwind" fn epoll_pwait2 = "epoll_pwait2"(
            instance: c_int, events: *mut epoll_event, count: c_int, timeout: *const timespec, mask: *const sigset_t
        ) -> c_int,
            next => <L as Intercept>::epoll_wait(instance, events, count, Timeout::Timespec(timeout), mask,
                || next::epoll_pwait2(instance, events, count, timeout, mask));

        // Descriptors: closing, duplicating, and their flags.

        /// close(2).
        "C-unwind" fn close = "close"(fd: c_int) -> c_int, method;
        /// close_range(2).
        "C" fn close_range = "close_range"(first: c_uint, last: c_uint, flags: c_int) -> c_int, method;
        /// closefrom(3).
        "C" fn closefrom = "closefrom"(first: c_int) -> (), method;
        /// dup(2).
        "C" fn dup = "dup"(fd: c_int) -> c_int, method;
        /// dup2(2).
        "C" fn dup2 = "dup2"(old: c_int, new: c_int) -> c_int, method;
        /// dup3(2).
        "C" fn dup3 = "dup3"(old: c_int, new: c_int, flags: c_int) -> c_int, method;
        /// fcntl(2).
        "C-unwind" fn fcntl = "fcntl"(fd: c_int, command: c_int, argument: usize) -> c_int,
            next => <L as Intercept>::fcntl(fd, command, argument, || next::fcntl(fd, command, argument));
        /// fcntl(2), as programs with 64-bit offsets call it.
        "C-unwind" fn fcntl64 = "fcntl64"(fd: c_int, command: c_int, argument: usize) -> c_int,
            next => <L as Intercept>::fcntl(fd, command, argument, || next::fcntl64(fd, command, argument));
        /// ioctl(2).
        "C" fn ioctl = "ioctl"(fd: c_int, request: c_ulong, argument: usize) -> c_int, method;

        // Calls that hand out descriptors. (On 64-bit machines open and open64 are one; a mode that was not passed is not looked at.)

        /// open(2).
        "C-unwind" fn open = "open"(path: *const c_char, flags: c_int, mode: c_uint) -> c_int,
            alone => <L as Intercept>::open_path(libc::AT_FDCWD, path, flags, || next::open(path, flags, mode));
        /// open64.
        "C-unwind" fn open64 = "open64"(path: *const c_char, flags: c_int, mode: c_uint) -> c_int,
            alone => <L as Intercept>::open_path(libc::AT_FDCWD, path, flags, || next::open(path, flags, mode));
        /// openat(2).
        "C-unwind" fn openat = "openat"(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int,
            alone => <L as Intercept>::open_path(directory, path, flags, || next::openat(directory, path, flags, mode));
        /// openat64.
        "C-unwind" fn openat64 = "openat64"(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int,
            alone => <L as Intercept>::open_path(directory, path, flags, || next::openat(directory, path, flags, mode));
        /// creat(2).
        "C-unwind" fn creat = "creat"(path: *const c_char, mode: c_uint) -> c_int,
            alone => <L as Intercept>::open(|| next::creat(path, mode));
        /// creat64.
        "C-unwind" fn creat64 = "creat64"(path: *const c_char, mode: c_uint) -> c_int,
            alone => <L as Intercept>::open(|| next::creat(path, mode));
        /// open(2), fortified.
        "C-unwind" fn open_2 = "__open_2"(path: *const c_char, flags: c_int) -> c_int,
            alone => <L as Intercept>::open_path(libc::AT_FDCWD, path, flags, || next::open_2(path, flags));
        /// open64, fortified.
        "C-unwind" fn open64_2 = "__open64_2"(path: *const c_char, flags: c_int) -> c_int,
            alone => <L as Intercept>::open_path(libc::AT_FDCWD, path, flags, || next::open_2(path, flags));
        /// openat(2), fortified.
        "C-unwind" fn openat_2 = "__openat_2"(directory: c_int, path: *const c_char, flags: c_int) -> c_int,
            alone => <L as Intercept>::open_path(directory, path, flags, || next::openat_2(directory, path, flags));
        /// openat64, fortified.
        "C-unwind" fn openat64_2 = "__openat64_2"(directory: c_int, path: *const c_char, flags: c_int) -> c_int,
            alone => <L as Intercept>::open_path(directory, path, flags, || next::openat_2(directory, path, flags));
        /// eventfd(2).
        "C-unwind" fn eventfd = "eventfd"(count: c_uint, flags: c_int) -> c_int,
            next => <L as Intercept>::open(|| next::eventfd(count, flags));
        /// timerfd_create(2).
        "C-unwind" fn timerfd_create = "timerfd_create"(clock: c_int, flags: c_int) -> c_int,
            next => <L as Intercept>::open(|| next::timerfd_create(clock, flags));
        /// memfd_create(2).
        "C-unwind" fn memfd_create = "memfd_create"(name: *const c_char, flags: c_uint) -> c_int,
            next => <L as Intercept>::open(|| next::memfd_create(name, flags));
        /// inotify_init(2).
        "C-unwind" fn inotify_init = "inotify_init"() -> c_int,
            alone => <L as Intercept>::open(|| next::inotify_init1(0));
        /// inotify_init1(2).
        "C-unwind" fn inotify_init1 = "inotify_init1"(flags: c_int) -> c_int,
            next => <L as Intercept>::open(|| next::inotify_init1(flags));
        /// signalfd(2): a new descriptor, unless one is named.
        "C-unwind" fn signalfd = "signalfd"(fd: c_int, mask: *const sigset_t, flags: c_int) -> c_int, method;
        /// pipe(2).
        "C-unwind" fn pipe = "pipe"(ends: *mut c_int) -> c_int,
            alone => L::open_pair(ends, || next::pipe2(ends, 0));
        /// pipe2(2).
        "C-unwind" fn pipe2 = "pipe2"(ends: *mut c_int, flags: c_int) -> c_int,
            next => L::open_pair(ends, || next::pipe2(ends, flags));
        /// socketpair(2).
        "C-unwind" fn socketpair = "socketpair"(domain: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int,
            next => L::open_pair(ends, || next::socketpair(domain, kind, protocol, ends));

        // stdio. (A va_list is passed by its address on 64-bit machines.)

        /// fdopen(3).
        "C-unwind" fn fdopen = "fdopen"(fd: c_int, mode: *const c_char) -> *mut c_void, method;
        /// fclose(3).
        "C-unwind" fn fclose = "fclose"(stream: *mut c_void) -> c_int, method;
        /// vdprintf(3).
        "C-unwind" fn vdprintf = "vdprintf"(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int, method;
        /// vdprintf(3), fortified.
        "C-unwind" fn vdprintf_chk = "__vdprintf_chk"(
            fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void
        ) -> c_int, method;

        // Threads and signals.

        /// pthread_cancel(3): a thread that waits in one of the library's calls is woken, as libc wakes one that waits in the kernel.
        "C" fn pthread_cancel = "pthread_cancel"(thread: pthread_t) -> c_int,
            next => cancel::request::<L>(thread);
        /// sigaction(2).
        "C" fn sigaction = "sigaction"(signal: c_int, new: *const Action, old: *mut Action) -> c_int, method;
        /// signal(2), with BSD's semantics as glibc has them: the handler stays, and calls are restarted.
        "C" fn signal = "signal"(number: c_int, handler: sighandler_t) -> sighandler_t,
            alone => signals::install::<L>(number, handler, signals::BSD);
        /// signal(2) under its BSD name.
        "C" fn bsd_signal = "bsd_signal"(number: c_int, handler: sighandler_t) -> sighandler_t,
            alone => <L as Exports>::signal(number, handler);
        /// signal(2) under its System V name for software signals.
        "C" fn ssignal = "ssignal"(number: c_int, handler: sighandler_t) -> sighandler_t,
            alone => <L as Exports>::signal(number, handler);
        /// signal(2) with System V's semantics: the handler runs once, with its signal unblocked, and calls are not restarted.
        "C" fn sysv_signal = "sysv_signal"(number: c_int, handler: sighandler_t) -> sighandler_t,
            alone => signals::install::<L>(number, handler, signals::SYSTEM_V);
        /// What `signal` is in programs compiled for System V's semantics.
        "C" fn sysv_signal_reserved = "__sysv_signal"(number: c_int, handler: sighandler_t) -> sighandler_t,
            alone => <L as Exports>::sysv_signal(number, handler);
        /// pthread_sigmask(3).
        "C" fn pthread_sigmask = "pthread_sigmask"(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int, method;
        /// sigprocmask(2).
        "C" fn sigprocmask = "sigprocmask"(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int, method;
        /// longjmp(3): out of a handler, it may leave a wait of the library's that nobody will return to.
        "C" fn longjmp = "longjmp"(environment: *mut c_void, value: c_int) -> !,
            alone => { L::before_jump(); next::longjmp(environment, value); std::process::abort() };
        /// longjmp(3) as BSD has it.
        "C" fn longjmp_bsd = "_longjmp"(environment: *mut c_void, value: c_int) -> !,
            alone => { L::before_jump(); next::longjmp_bsd(environment, value); std::process::abort() };
        /// siglongjmp(3).
        "C" fn siglongjmp = "siglongjmp"(environment: *mut c_void, value: c_int) -> !,
            alone => { L::before_jump(); next::siglongjmp(environment, value); std::process::abort() };
        /// longjmp(3) of programs compiled with _FORTIFY_SOURCE.
        "C" fn longjmp_checked = "__longjmp_chk"(environment: *mut c_void, value: c_int) -> !,
            alone => { L::before_jump(); next::longjmp_checked(environment, value); std::process::abort() };

        // The process's turning points.

        /// `_Fork`(3), fork without the handlers that libraries have for it.
        "C" fn fork_alone = "_Fork"() -> pid_t,
            next => L::fork(0, |_| c_long::from(next::fork_alone())) as pid_t;
        /// clone(2), as libc has it: with a function to begin with. What a caller did not pass is whatever is in its place, and is not
        /// looked at.
        "C" fn clone = "clone"(
            begin: Option<Begin>, stack: *mut c_void, flags: c_int, argument: *mut c_void, a: c_long, b: c_long, c: c_long
        ) -> c_int,
            next => clone::with_function::<L>(begin, stack, flags, argument, [a, b, c]);
        /// execve(2).
        "C" fn execve = "execve"(path: *const c_char, arguments: Strings, environment: Strings) -> c_int,
            next => exec::with::<L>(exec::exists(libc::AT_FDCWD, path), || next::execve(path, arguments, environment));
        /// execv(3).
        "C" fn execv = "execv"(path: *const c_char, arguments: Strings) -> c_int,
            next => exec::with::<L>(exec::exists(libc::AT_FDCWD, path), || next::execv(path, arguments));
        /// execvp(3).
        "C" fn execvp = "execvp"(file: *const c_char, arguments: Strings) -> c_int,
            next => exec::with::<L>(exec::is_found(file), || next::execvp(file, arguments));
        /// execvpe(3).
        "C" fn execvpe = "execvpe"(file: *const c_char, arguments: Strings, environment: Strings) -> c_int,
            next => exec::with::<L>(exec::is_found(file), || next::execvpe(file, arguments, environment));
        /// fexecve(3).
        "C" fn fexecve = "fexecve"(fd: c_int, arguments: Strings, environment: Strings) -> c_int,
            next => exec::with::<L>(true, || next::fexecve(fd, arguments, environment));
        /// execveat(2).
        "C" fn execveat = "execveat"(
            directory: c_int, path: *const c_char, arguments: Strings, environment: Strings, flags: c_int
        ) -> c_int,
            next => exec::with::<L>(flags & libc::AT_EMPTY_PATH != 0 || exec::exists(directory, path),
                || next::execveat(directory, path, arguments, environment, flags));
        /// execl(3), with up to 22 arguments.
        "C" fn execl = "execl"(
            path: *const c_char, a: *const c_char, b: *const c_char, c: *const c_char, d: *const c_char, e: *const c_char,
            f: *const c_char, g: *const c_char, h: *const c_char, i: *const c_char, j: *const c_char, k: *const c_char,
            l: *const c_char, m: *const c_char, n: *const c_char, o: *const c_char, p: *const c_char, q: *const c_char,
            r: *const c_char, s: *const c_char, t: *const c_char, u: *const c_char, v: *const c_char, w: *const c_char, x: *const c_char
        ) -> c_int,
            alone => exec::listed(&[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x],
                |arguments, _| <L as Exports>::execv(path, arguments));
        /// execlp(3), with up to 22 arguments.
        "C" fn execlp = "execlp"(
            file: *const c_char, a: *const c_char, b: *const c_char, c: *const c_char, d: *const c_char, e: *const c_char,
            f: *const c_char, g: *const c_char, h: *const c_char, i: *const c_char, j: *const c_char, k: *const c_char,
            l: *const c_char, m: *const c_char, n: *const c_char, o: *const c_char, p: *const c_char, q: *const c_char,
            r: *const c_char, s: *const c_char, t: *const c_char, u: *const c_char, v: *const c_char, w: *const c_char, x: *const c_char
        ) -> c_int,
            alone => exec::listed(&[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x],
                |arguments, _| <L as Exports>::execvp(file, arguments));
        /// execle(3), with up to 22 arguments.
        "C" fn execle = "execle"(
            path: *const c_char, a: *const c_char, b: *const c_char, c: *const c_char, d: *const c_char, e: *const c_char,
            f: *const c_char, g: *const c_char, h: *const c_char, i: *const c_char, j: *const c_char, k: *const c_char,
            l: *const c_char, m: *const c_char, n: *const c_char, o: *const c_char, p: *const c_char, q: *const c_char,
            r: *const c_char, s: *const c_char, t: *const c_char, u: *const c_char, v: *const c_char, w: *const c_char, x: *const c_char
        ) -> c_int,
            alone => exec::listed(&[a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x],
                |arguments, environment| <L as Exports>::execve(path, arguments, environment));
        /// posix_spawn_file_actions_adddup2(3).
        "C" fn posix_spawn_file_actions_adddup2 = "posix_spawn_file_actions_adddup2"(
            actions: *mut c_void, old: c_int, new: c_int
        ) -> c_int, method;
        /// _exit(2). Async-signal-safe, as POSIX has it.
        "C" fn _exit = "_exit"(status: c_int) -> !,
            alone => ends::exit::<L>(|| next::_exit(status));
        /// `_Exit`, C's name for it.
        "C" fn exit_now = "_Exit"(status: c_int) -> !,
            alone => <L as Exports>::_exit(status);
        /// quick_exit(3): its own handlers run first, in libc.
        "C" fn quick_exit = "quick_exit"(status: c_int) -> !,
            alone => ends::exit::<L>(|| next::quick_exit(status));
        /// daemon(3), whose own parent would end in libc's `_exit`, and take along what the child goes on with.
        "C" fn daemon = "daemon"(keep_directory: c_int, keep_streams: c_int) -> c_int,
            alone => ends::daemon::<L>(keep_directory != 0, keep_streams != 0);

        // Giving up means.

        /// setuid(2).
        "C" fn setuid = "setuid"(user: uid_t) -> c_int,
            next => { means::before::<L>(Means::Identity); next::setuid(user) };
        /// seteuid(2).
        "C" fn seteuid = "seteuid"(user: uid_t) -> c_int,
            next => { means::before::<L>(Means::Identity); next::seteuid(user) };
        /// setreuid(2).
        "C" fn setreuid = "setreuid"(user: uid_t, effective: uid_t) -> c_int,
            next => { means::before::<L>(Means::Identity); next::setreuid(user, effective) };
        /// setresuid(2).
        "C" fn setresuid = "setresuid"(user: uid_t, effective: uid_t, saved: uid_t) -> c_int,
            next => { means::before::<L>(Means::Identity); next::setresuid(user, effective, saved) };
        /// chroot(2).
        "C" fn chroot = "chroot"(path: *const c_char) -> c_int,
            next => { means::before::<L>(Means::Identity); next::chroot(path) };
        /// unshare(2): another network namespace has other processes.
        "C" fn unshare = "unshare"(flags: c_int) -> c_int,
            next => { means::before::<L>(Means::Identity); next::unshare(flags) };
        /// setns(2): as unshare.
        "C" fn setns = "setns"(fd: c_int, kind: c_int) -> c_int,
            next => { means::before::<L>(Means::Identity); next::setns(fd, kind) };
        /// prctl(2).
        "C" fn prctl = "prctl"(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int,
            next => {
                if option == libc::PR_SET_SECCOMP { means::before::<L>(Means::SystemCalls); }
                next::prctl(option, a, b, c, d)
            };

        // Anything, by its number.

        /// syscall(2).
        "C-unwind" fn syscall = "syscall"(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long,
            next => by_number::call::<L>(number, [a, b, c, d, e, f]);
    } };
}

/// What is made of the rows.
#[doc(hidden)]
#[macro_export]
macro_rules! rows {
    // The exported functions, in a module where nothing else is, and the trait by which the library itself finds them.
    (export [$library:ident] $(
        $(#[$doc:meta])*
        $abi:literal fn $name:ident = $symbol:literal($($arg:ident: $type:ty),*) -> $ret:ty, $how:ident $(=> $body:expr)?;
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As libc's function of that name.
            #[cfg_attr(not(test), unsafe(export_name = $symbol))]
            #[allow(clippy::too_many_arguments, clippy::many_single_char_names, reason = "libc's signature")]
            pub unsafe extern $abi fn $name($($arg: $type),*) -> $ret {
                // SAFETY: the program's promise to libc's function.
                unsafe { $crate::entry::$name::<$library>($($arg),*) }
            }
        )*

        impl $crate::Exports for $library {
            $(
                #[inline]
                unsafe fn $name($($arg: $type),*) -> $ret {
                    // SAFETY: the caller's promise.
                    unsafe { $name($($arg),*) }
                }
            )*
        }
    };

    (exports [] $(
        $(#[$doc:meta])*
        $abi:literal fn $name:ident = $symbol:literal($($arg:ident: $type:ty),*) -> $ret:ty, $how:ident $(=> $body:expr)?;
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As libc's function of that name.
            #[allow(clippy::too_many_arguments, clippy::many_single_char_names, reason = "libc's signature")]
            unsafe fn $name($($arg: $type),*) -> $ret;
        )*
    };

    (entry [] $(
        $(#[$doc:meta])*
        $abi:literal fn $name:ident = $symbol:literal($($arg:ident: $type:ty),*) -> $ret:ty, $how:ident $(=> $body:expr)?;
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As libc's function of that name.
            #[inline(always)]
            #[allow(unused_unsafe, clippy::too_many_arguments, clippy::many_single_char_names, reason = "as the function is")]
            pub unsafe fn $name<L: Intercept>($($arg: $type),*) -> $ret {
                // SAFETY: the caller's promise: the arguments are passed on as they are.
                unsafe { $crate::row!(entry $name($($arg),*), $how $(=> $body)?) }
            }
        )*
    };

    ($what:ident [] $(
        $(#[$doc:meta])*
        $abi:literal fn $name:ident = $symbol:literal($($arg:ident: $type:ty),*) -> $ret:ty, $how:ident $(=> $body:expr)?;
    )*) => {
        $( $crate::row! { $what $(#[$doc])* $name = $symbol($($arg: $type),*) -> $ret, $how } )*
    };
}

/// What is made of one row.
#[doc(hidden)]
#[macro_export]
macro_rules! row {
    (entry $name:ident($($arg:ident),*), method) => { <L as Intercept>::$name($($arg),*) };
    (entry $name:ident($($arg:ident),*), $how:ident => $body:expr) => { $body };

    (method $(#[$doc:meta])* $name:ident = $symbol:literal($($arg:ident: $type:ty),*) -> $ret:ty, method) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As libc's function of that name.
        #[inline(always)]
        unsafe fn $name($($arg: $type),*) -> $ret {
            // SAFETY: the caller's promise.
            unsafe { next::$name($($arg),*) }
        }
    };
    (method $(#[$doc:meta])* $name:ident = $symbol:literal $arguments:tt -> $ret:ty, $how:ident) => {};

    (next $(#[$doc:meta])* $name:ident = $symbol:literal $arguments:tt -> $ret:ty, alone) => {};
    (next $(#[$doc:meta])* $name:ident = $symbol:literal($($arg:ident: $type:ty),*) -> $ret:ty, $how:ident) => {
        $crate::next::next_definition! { $name = $symbol($($arg: $type),*) -> $ret; }
    };

    (resolve $(#[$doc:meta])* $name:ident = $symbol:literal $arguments:tt -> $ret:ty, alone) => {};
    (resolve $(#[$doc:meta])* $name:ident = $symbol:literal $arguments:tt -> $ret:ty, $how:ident) => { $name::resolve(); };
}
