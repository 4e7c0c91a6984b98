//! Which of this library's modules each call goes to. (What a method promises, and what it may expect, stands with the trait.)

use ringway_preload::types::*;
use ringway_preload::{Intercept, Means, Timeout};

use super::signal::{self, mask::without_faults};
use super::{Vma, clone, epoll, exec, fd, file, means, open, poll, receive, recvfrom, select, send, socket, splice, stdio};
use crate::fdtable::{self, Entry};
use crate::mux::thread;
use crate::mux::wait::leave_wait;
use crate::{exit, fork, process, real};

impl Intercept for Vma {
    fn loaded() {
        fork::install();
    }

    #[inline]
    fn is_known(fd: c_int) -> bool {
        // Only looked at: most system calls begin with something else than a descriptor.
        !matches!(fdtable::peek(fd), Entry::None | Entry::Internal)
    }

    #[inline]
    fn is_socket(fd: c_int) -> bool {
        matches!(fdtable::lookup(fd), Entry::Socket(_))
    }

    #[inline(always)]
    unsafe fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { socket::socket(domain, kind, protocol) }
    }

    #[inline(always)]
    unsafe fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { socket::bind(fd, address, len) }
    }

    #[inline(always)]
    unsafe fn listen(fd: c_int, backlog: c_int) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { socket::listen(fd, backlog) }
    }

    #[inline(always)]
    unsafe fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { socket::connect(fd, address, len) }
    }

    #[inline(always)]
    unsafe fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int, next: impl Fn() -> c_int) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { socket::accept(fd, address, len, flags, next) }
    }

    #[inline(always)]
    unsafe fn shutdown(fd: c_int, how: c_int) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { socket::shutdown(fd, how) }
    }

    #[inline(always)]
    unsafe fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { socket::getsockname(fd, address, len) }
    }

    #[inline(always)]
    unsafe fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { socket::getpeername(fd, address, len) }
    }

    #[inline(always)]
    unsafe fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { socket::getsockopt(fd, level, name, value, len) }
    }

    #[inline(always)]
    unsafe fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { socket::setsockopt(fd, level, name, value, len) }
    }

    #[inline(always)]
    unsafe fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
        // SAFETY: the caller's promise.
        unsafe { receive::read(fd, buffer, len) }
    }

    #[inline(always)]
    unsafe fn readv(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: the caller's promise.
        unsafe { receive::readv(fd, vectors, count) }
    }

    #[inline(always)]
    unsafe fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
        // SAFETY: the caller's promise.
        unsafe { receive::recv(fd, buffer, len, flags) }
    }

    #[inline(always)]
    unsafe fn recvfrom(
        fd: c_int,
        buffer: *mut c_void,
        len: size_t,
        flags: c_int,
        from: *mut sockaddr,
        from_len: *mut socklen_t,
    ) -> ssize_t {
        // SAFETY: the caller's promise.
        unsafe { recvfrom::recvfrom(fd, buffer, len, flags, from, from_len) }
    }

    #[inline(always)]
    unsafe fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        // SAFETY: the caller's promise.
        unsafe { receive::recvmsg(fd, message, flags) }
    }

    #[inline(always)]
    unsafe fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { receive::recvmmsg(fd, messages, count, flags, timeout) }
    }

    #[inline(always)]
    unsafe fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
        // SAFETY: the caller's promise.
        unsafe { send::write(fd, buffer, len) }
    }

    #[inline(always)]
    unsafe fn writev(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: the caller's promise.
        unsafe { send::writev(fd, vectors, count) }
    }

    #[inline(always)]
    unsafe fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t {
        // SAFETY: the caller's promise.
        unsafe { send::send(fd, buffer, len, flags) }
    }

    #[inline(always)]
    unsafe fn sendto(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, to_len: socklen_t) -> ssize_t {
        // SAFETY: the caller's promise.
        unsafe { send::sendto(fd, buffer, len, flags, to, to_len) }
    }

    #[inline(always)]
    unsafe fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        // SAFETY: the caller's promise.
        unsafe { send::sendmsg(fd, message, flags) }
    }

    #[inline(always)]
    unsafe fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { send::sendmmsg(fd, messages, count, flags) }
    }

    #[inline(always)]
    unsafe fn sendfile(out: c_int, input: c_int, offset: *mut off64_t, count: size_t) -> ssize_t {
        // SAFETY: the caller's promise.
        unsafe { file::sendfile(out, input, offset, count) }
    }

    #[inline(always)]
    unsafe fn splice(input: c_int, at: *mut off64_t, output: c_int, to: *mut off64_t, len: size_t, flags: c_uint) -> ssize_t {
        // SAFETY: the caller's promise.
        unsafe { splice::splice(input, at, output, to, len, flags) }
    }

    #[inline(always)]
    unsafe fn poll(fds: *mut pollfd, count: nfds_t, timeout: Timeout, mask: *const sigset_t, next: impl Fn() -> c_int) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { poll::poll(fds, count, timeout, mask, next) }
    }

    #[inline(always)]
    unsafe fn select(count: c_int, sets: [*mut fd_set; 3], timeout: Timeout, mask: *const sigset_t, next: impl Fn() -> c_int) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { select::select(count, sets, timeout, mask, next) }
    }

    #[inline(always)]
    unsafe fn epoll_ctl(instance: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { epoll::control(instance, operation, fd, event) }
    }

    #[inline(always)]
    unsafe fn epoll_wait(
        instance: c_int,
        events: *mut epoll_event,
        count: c_int,
        timeout: Timeout,
        mask: *const sigset_t,
        next: impl Fn() -> c_int,
    ) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { epoll::wait(instance, events, count, timeout, mask, next) }
    }

    #[inline(always)]
    unsafe fn close(fd: c_int) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { fd::close(fd) }
    }

    #[inline(always)]
    unsafe fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { fd::close_range(first, last, flags) }
    }

    #[inline(always)]
    unsafe fn closefrom(first: c_int) {
        // SAFETY: the caller's promise.
        unsafe { fd::closefrom(first) }
    }

    #[inline(always)]
    unsafe fn dup(fd: c_int) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { fd::dup(fd) }
    }

    #[inline(always)]
    unsafe fn dup2(old: c_int, new: c_int) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { fd::dup2(old, new) }
    }

    #[inline(always)]
    unsafe fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { fd::dup3(old, new, flags) }
    }

    #[inline(always)]
    unsafe fn fcntl(fd: c_int, command: c_int, argument: usize, next: impl Fn() -> c_int) -> c_int {
        fd::fcntl(fd, command, argument, next)
    }

    #[inline(always)]
    unsafe fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { fd::ioctl(fd, request, argument) }
    }

    #[inline(always)]
    unsafe fn signalfd(fd: c_int, mask: *const sigset_t, flags: c_int) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { open::signalfd(fd, mask, flags) }
    }

    #[inline(always)]
    unsafe fn open_pair(ends: *const c_int, next: impl Fn() -> c_int) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { open::pair(ends, next) }
    }

    #[inline(always)]
    unsafe fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void {
        // SAFETY: the caller's promise.
        unsafe { stdio::fdopen(fd, mode) }
    }

    #[inline(always)]
    unsafe fn fclose(stream: *mut c_void) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { stdio::fclose(stream) }
    }

    #[inline(always)]
    unsafe fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { stdio::vdprintf(fd, format, arguments) }
    }

    #[inline(always)]
    unsafe fn vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { stdio::vdprintf_chk(fd, flag, format, arguments) }
    }

    #[inline(always)]
    unsafe fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { signal::sigaction(signal, new, old) }
    }

    #[inline(always)]
    unsafe fn posix_spawn_file_actions_adddup2(actions: *mut c_void, old: c_int, new: c_int) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { exec::add_duplicate(actions, old, new) }
    }

    fn epoll_create(next: impl Fn() -> c_int) -> c_int {
        epoll::create(next)
    }

    fn open(next: impl Fn() -> c_int) -> c_int {
        open::one(next)
    }

    unsafe fn pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { without_faults(how, set, |set| real::pthread_sigmask(how, set, old)) }
    }

    unsafe fn sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { without_faults(how, set, |set| real::sigprocmask(how, set, old)) }
    }

    fn fork(flags: u64, next: impl FnOnce(u64) -> c_long) -> c_long {
        clone::forked(flags, next)
    }

    fn forked() {
        fork::child();
    }

    fn before_exec() {
        exec::before();
    }

    fn after_exec() {
        exec::after();
    }

    fn before_exit() {
        exit::finish_from_anywhere();
    }

    fn before_giving_up(means: Means) {
        means::before(means);
    }

    fn before_jump() {
        leave_wait();
    }

    fn fork_generation() -> u32 {
        process::fork_generation()
    }

    fn may_be_cancelled() {
        thread::register();
    }

    fn ended_unsure() -> bool {
        thread::take_unsure()
    }
}
