//! Receiving datagrams: from the ring, from the kernel's half of the socket, and in which turns.

use core::ffi::c_int;
use core::time::Duration;
use std::io::IoSliceMut;

use ringway_stack::ring::{Datagram, FlowId, Readiness, RecvFlags};
use ringway_stack::socket::Direction;
use ringway_stack::{Error, Instant};

use crate::cancel::Masked;
use crate::errno::{self, Errno};
use crate::extra::resume::Resume;
use crate::fd_counters::{self, Way};
use crate::lock::Guard;
use crate::mux::turns::{Ratio, Turns};
use crate::mux::wait::{SpinClass, Waited, Waiting, wait, wait_on};
use crate::process::{Offload, Process};
use crate::slab::Key;
use crate::socket::{Kind, Socket};
use crate::{fdtable, mux};

/// Calls that find nothing, this close together, are a program that spins.
const TIGHT: Duration = Duration::from_micros(5);

/// After how many of them the kernel is asked where VMA_RX_UDP_POLL_OS_RATIO is 0.
const SELDOM: u32 = 10_000;

/// When the kernel's half of the socket is asked. Asking costs a system call, so a spinning program does not pay for it on
/// every turn, and a stream of the ring's datagrams does not starve the kernel's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelPoll {
    /// Something saw the placeholder readable: ask at once.
    pub(crate) hint: bool,
    turns: Turns,
    /// The descriptor of the last call, and what the kernel had delivered through it.
    seen: (c_int, u64),
    /// When a call last found nothing.
    empty_at: Instant,
    /// What the process had sent through the kernel when that was asked last.
    sent: u64,
}

impl Default for KernelPoll {
    fn default() -> Self {
        Self { hint: false, turns: Turns::new(), seen: (-1, 0), empty_at: Instant::ZERO, sent: 0 }
    }
}

impl KernelPoll {
    /// A call begins, through that descriptor: whether to ask the kernel before the ring.
    #[inline]
    pub(crate) fn on_call(&mut self, fd: c_int, ratio: Ratio) -> bool {
        // (What the kernel delivers is counted without the lock under which this is.)
        let seen = (fd, fdtable::kernel_counts(fd).0);
        if seen != self.seen {
            if seen.0 == self.seen.0 {
                self.turns.delivered();
            }
            self.seen = seen;
        }
        self.on_ring(ratio)
    }

    /// [`KernelPoll::on_call`], where it has the ring be asked first. `false`: it has not, or more is to be asked to know, and nothing was noted.
    #[inline(always)]
    fn goes_to_ring(&mut self, fd: c_int, ratio: Ratio) -> bool {
        let goes = self.seen == (fd, fdtable::kernel_counts(fd).0) && !self.turns.would_be_due_beside_ring(ratio);
        if goes {
            self.turns.looked();
        }
        goes
    }

    /// A call looks at the ring, or found something there: whether the kernel's have waited long enough.
    #[inline]
    pub(crate) fn on_ring(&mut self, ratio: Ratio) -> bool {
        self.turns.looked();
        let ask = self.turns.is_due_beside_ring(ratio);
        if ask {
            self.asked();
        }
        ask
    }

    /// A call, which was counted when it began, found nothing on the ring: whether to ask the kernel now.
    pub(crate) fn on_empty(&mut self, now: Instant, ratio: Ratio) -> bool {
        let tight = now.since(self.empty_at) < TIGHT;
        self.empty_at = now;
        // (Who never does hears of the kernel's all the same.)
        let ratio = if ratio.looks == 0 { Ratio { looks: SELDOM, ..ratio } } else { ratio };
        // (What the program has just sent through the kernel it may expect to be there.)
        let ask = self.hint || !tight || self.sent != fdtable::sent_by_kernel() || self.turns.is_due(ratio);
        if ask {
            self.asked();
        }
        ask
    }

    /// A call is about to wait: whether to ask the kernel before it does.
    pub(crate) fn on_wait(&mut self, ratio: Ratio) -> bool {
        let ask = self.hint || self.turns.is_due(ratio);
        if ask {
            self.asked();
        }
        ask
    }

    /// Something came from the kernel.
    pub(crate) fn delivered(&mut self) {
        self.turns.delivered();
    }

    /// Goes on where calls that went by the ring's lock alone have left off.
    pub(in crate::socket) fn go_on_from(&mut self, left: Self) {
        *self = Self { hint: self.hint || left.hint, ..left };
    }

    fn asked(&mut self) {
        self.hint = false;
        self.sent = fdtable::sent_by_kernel();
        self.turns.asked();
    }
}

/// What a receive call brought: from the ring, or (already in the program's own structures) from the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Received {
    /// A datagram of that ring.
    Ring(Datagram, u16),
    Kernel(usize),
    /// Nothing: the reading end is shut.
    End,
}

/// recvmsg(2), with `kernel` to receive from the kernel with extra flags.
///
/// # Errors
/// As recvmsg(2).
#[inline(always)]
pub(crate) fn receive<'a>(
    process: &'a Process,
    guard: Guard<'a, Offload>,
    now: Instant,
    names: (c_int, Key),
    into: &mut [IoSliceMut<'_>],
    flags: c_int,
    kernel: &dyn Fn(c_int) -> isize,
) -> Result<Received, Errno> {
    match look_first(process, guard, now, names, into, flags, |datagram| datagram) {
        First::Datagram(datagram) => Ok(Received::Ring(datagram, 0)),
        First::Error(error) => Err(error),
        First::Nothing(guard, id) => nothing_came(process, (guard, id), now, names, into, flags, kernel),
        First::Other(guard) => receive_at_length(process, guard, now, names, into, flags, kernel),
    }
}

/// What a look at the ring of a process that has one came to.
pub(crate) enum First<'a, T> {
    /// A datagram, and what was to be known of it.
    Datagram(T),
    Error(Errno),
    /// Nothing is there: see [`nothing_came`].
    Nothing(Guard<'a, Offload>, FlowId),
    /// There is more to it than that: see [`receive_at_length`]. Nothing was done.
    Other(Guard<'a, Offload>),
}

/// Flags that change nothing of it.
const PLAIN_FLAGS: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_CMSG_CLOEXEC | libc::MSG_TRUNC;

/// Nearly every receive: the socket has one flow, on the process's only ring, and it is not the kernel's turn to be asked. `tell` says what is to be known
/// of the datagram.
#[inline(always)]
pub(crate) fn look_first<'a, T>(
    process: &Process,
    mut guard: Guard<'a, Offload>,
    now: Instant,
    (fd, key): (c_int, Key),
    into: &mut [IoSliceMut<'_>],
    flags: c_int,
    tell: impl FnOnce(Datagram) -> T,
) -> First<'a, T> {
    let offload = &mut *guard;
    let is_plain = !offload.rings.are_locked() && !offload.is_heard() && flags & !PLAIN_FLAGS == 0;
    if !is_plain || !offload.rings.first().callers.expects_caller() {
        return First::Other(guard);
    }
    let id = match offload.sockets.find_mut(key) {
        Some(socket) if !socket.has_several_flows() => match socket.kind {
            Kind::Datagram(Some(id)) if socket.kernel_poll.goes_to_ring(fd, process.params.rx_udp_poll_os_ratio) => id,
            _ => return First::Other(guard),
        },
        _ => return First::Other(guard),
    };
    let received = offload.rings.first_mut().ring.udp_recv_polling(now, id, into, tell);
    offload.dispatch();
    match received {
        Ok(datagram) => First::Datagram(datagram),
        Err(Error::WouldBlock) => First::Nothing(guard, id),
        Err(error) => First::Error(error.into()),
    }
}

/// [`receive`], whatever the socket is, and whoever is to be asked.
///
/// # Errors
/// As recvmsg(2).
#[inline(never)]
pub(crate) fn receive_at_length<'a>(
    process: &'a Process,
    mut guard: Guard<'a, Offload>,
    now: Instant,
    (fd, key): (c_int, Key),
    into: &mut [IoSliceMut<'_>],
    flags: c_int,
    kernel: &dyn Fn(c_int) -> isize,
) -> Result<Received, Errno> {
    let offload = &mut *guard;
    if let Some(id) = offload.sockets.find(key).and_then(Socket::ring_id) {
        offload.note_caller(key, id, Direction::Rx);
    }
    let Some(socket) = offload.sockets.find_mut(key) else { return Err(Errno(libc::EBADF)) };
    let ratio = process.params.rx_udp_poll_os_ratio;
    let Kind::Datagram(Some(mut id)) = socket.kind else {
        // Not published, so the ring brings nothing now; but it may be while a blocking call waits.
        let blocking = !socket.nonblocking && flags & libc::MSG_DONTWAIT == 0;
        let timeout = socket.receive_timeout;
        let resume = offload.call_under_way(now);
        drop(guard);
        if blocking && flags & libc::MSG_ERRQUEUE == 0 {
            return wait_to_receive(process, None, (fd, key), into, flags, kernel, (timeout, resume));
        }
        return from_kernel(fd, kernel, 0).map(Received::Kernel);
    };
    if flags & (libc::MSG_ERRQUEUE | libc::MSG_OOB) != 0 {
        drop(guard);
        return from_kernel(fd, kernel, 0).map(Received::Kernel);
    }
    let has_several = socket.has_several_flows();
    if offload.rings.are_locked()
        && let Some(left) = offload.rings.at_mut(id.ring).datagrams.take_kernel_poll(id)
    {
        socket.kernel_poll.go_on_from(left);
    }
    let ask_first = socket.kernel_poll.on_call(fd, ratio) && !socket.reads_ring_first();
    if ask_first {
        // (No lock is held while the kernel is asked.)
        drop(guard);
        if let Some(received) = ask_kernel(fd, kernel) {
            return received.map(Received::Kernel);
        }
        guard = process.lock();
    }
    let offload = &mut *guard;
    let ring_flags = if flags & libc::MSG_PEEK != 0 { RecvFlags::PEEK } else { RecvFlags::empty() };
    for polled in [false, true] {
        if polled {
            offload.poll_if_due(now);
        }
        if has_several {
            id = offload.turn(key).unwrap_or(id);
        }
        match offload.rings.of_mut(id).udp_recv(id, into, ring_flags) {
            Err(Error::WouldBlock) => {}
            result => {
                offload.dispatch();
                offload.say_if_datagrams_are_plain(key, id);
                return result.map(|datagram| Received::Ring(datagram, id.ring)).map_err(Errno::from);
            }
        }
    }
    nothing_came(process, (guard, id), now, (fd, key), into, flags, kernel)
}

/// [`receive`], when the ring has nothing.
///
/// # Errors
/// As recvmsg(2).
#[inline(never)]
pub(crate) fn nothing_came<'a>(
    process: &'a Process,
    (mut guard, id): (Guard<'a, Offload>, FlowId),
    now: Instant,
    (fd, key): (c_int, Key),
    into: &mut [IoSliceMut<'_>],
    flags: c_int,
    kernel: &dyn Fn(c_int) -> isize,
) -> Result<Received, Errno> {
    let ratio = process.params.rx_udp_poll_os_ratio;
    let offload = &mut *guard;
    let resume = offload.call_under_way(now);
    let Some(socket) = offload.sockets.find(key) else { return Err(Errno(libc::EBADF)) };
    let waits = !socket.nonblocking && flags & libc::MSG_DONTWAIT == 0;
    let timeout = socket.receive_timeout;
    if offload.callbacks.are_used() {
        let deadline = if waits { timeout.map(|timeout| resume.began + timeout) } else { Some(resume.began) };
        if let Some(stop) = offload.stop(resume, key, now, deadline) {
            return Err(stop);
        }
    }
    let Some(socket) = offload.sockets.find_mut(key) else { return Err(Errno(libc::EBADF)) };
    if !waits {
        // Who is connected to a program that is not on the ring hears of it through the kernel.
        let ask = socket.kernel_poll.on_empty(now, ratio) || socket.peer.is_some_and(|peer| socket.routes.is_by_kernel(peer));
        offload.say_if_datagrams_are_plain(key, id);
        drop(guard);
        return if ask { from_kernel(fd, kernel, libc::MSG_DONTWAIT).map(Received::Kernel) } else { Err(Errno(libc::EAGAIN)) };
    }
    if socket.kernel_poll.on_wait(ratio) {
        drop(guard);
        if let Some(received) = ask_kernel(fd, kernel) {
            return received.map(Received::Kernel);
        }
        return wait_to_receive(process, None, (fd, key), into, flags, kernel, (timeout, resume));
    }
    if offload.has_no_more_to_come(id) {
        return Ok(Received::End);
    }
    wait_to_receive(process, Some((guard, now)), (fd, key), into, flags, kernel, (timeout, resume))
}

impl Offload {
    /// A look of a call that waits. `None`: there is nothing.
    fn receive_datagram(
        &mut self,
        now: Instant,
        key: Key,
        into: &mut [IoSliceMut<'_>],
        flags: RecvFlags,
    ) -> Option<Result<Received, Errno>> {
        let Some(socket) = self.sockets.find(key) else { return Some(Err(Errno(libc::EBADF))) };
        let mut id = match socket.kind {
            Kind::Datagram(Some(id)) => id,
            Kind::Datagram(None) | Kind::Kernel => {
                // (Nobody polls for the check, and others rely on who looks: see [`Waiting::polls`].)
                self.poll_if_due(now);
                return None;
            }
            _ => return Some(Err(Errno(libc::EBADF))),
        };
        let has_several = socket.has_several_flows();
        let received = if !flags.is_empty() || has_several || self.is_heard() || self.rings.are_locked() {
            self.poll_if_due(now);
            if has_several {
                id = self.turn(key).unwrap_or(id);
            }
            self.rings.of_mut(id).udp_recv(id, into, flags)
        } else {
            self.rings.first_mut().ring.udp_recv_polling(now, id, into, |datagram| datagram)
        };
        self.dispatch();
        match received {
            Err(Error::WouldBlock) => self.has_no_more_to_come(id).then_some(Ok(Received::End)),
            result => Some(result.map(|datagram| Received::Ring(datagram, id.ring)).map_err(Errno::from)),
        }
    }

    /// Linux's blocking call returns zero once the socket's reading end is shut; one that doesn't block says EAGAIN.
    fn has_no_more_to_come(&self, id: FlowId) -> bool {
        self.rings.of(id).readiness(id).contains(Readiness::RDHUP)
    }
}

/// The kernel's answer, unless it has nothing.
pub(in crate::socket) fn ask_kernel(fd: c_int, kernel: &dyn Fn(c_int) -> isize) -> Option<Result<usize, Errno>> {
    let saved = errno::current();
    match from_kernel(fd, kernel, libc::MSG_DONTWAIT) {
        Err(Errno(libc::EAGAIN)) => {
            errno::set(saved);
            None
        }
        result => Some(result),
    }
}

/// What the kernel receives with these flags more.
pub(in crate::socket) fn from_kernel(fd: c_int, kernel: &dyn Fn(c_int) -> isize, extra: c_int) -> Result<usize, Errno> {
    let _masked = Masked::new();
    let count = usize::try_from(kernel(extra)).map_err(|_| Errno::last())?;
    fdtable::count_kernel_rx(fd);
    mux::thread::with(mux::thread::Thread::kernel_delivered);
    fd_counters::kernel_said(fd, Way::Rx, count.cast_signed());
    Ok(count)
}

/// Goes on with a receive that began so, and waits with this timeout.
///
/// # Errors
/// As [`receive`].
pub(crate) fn wait_for_more(
    process: &Process,
    (fd, key): (c_int, Key),
    into: &mut [IoSliceMut<'_>],
    (flags, kernel): (c_int, &dyn Fn(c_int) -> isize),
    (timeout, begun): (Option<Duration>, Resume),
) -> Result<Received, Errno> {
    wait_to_receive(process, None, (fd, key), into, flags, kernel, (timeout, begun))
}

/// `held`: the lock, by which nothing was found just now.
fn wait_to_receive<'a>(
    process: &'a Process,
    mut held: Option<(Guard<'a, Offload>, Instant)>,
    (fd, key): (c_int, Key),
    into: &mut [IoSliceMut<'_>],
    flags: c_int,
    kernel: &dyn Fn(c_int) -> isize,
    (timeout, resume): (Option<Duration>, Resume),
) -> Result<Received, Errno> {
    let ring_flags = if flags & libc::MSG_PEEK != 0 { RecvFlags::PEEK } else { RecvFlags::empty() };
    let saved = errno::current();
    let mut descriptors = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
    let deadline = timeout.map(|timeout| resume.began + timeout);
    let mut waiting = Waiting {
        sockets: &[key.index],
        epolls: &[],
        kernel: &mut descriptors,
        deadline,
        sigmask: None,
        spin: SpinClass::Rx,
        restart: timeout.is_none(),
        callbacks: resume.may_stop(|| process.now(), deadline),
        since: resume.marks,
        // (Who only peeks leaves it to be told of.)
        polls: ring_flags.is_empty(),
    };
    let mut check = |offload: &mut Offload, now| offload.receive_datagram(now, key, into, ring_flags);
    loop {
        let waited = match held.take() {
            Some(held) => wait_on(process, held, &mut waiting, &mut check),
            None => wait(process, &mut waiting, &mut check),
        };
        errno::set(saved);
        match waited {
            Waited::Ready(result) => return result,
            // Another thread may have been quicker.
            Waited::Kernel => {
                if let Some(received) = ask_kernel(fd, kernel) {
                    return received.map(Received::Kernel);
                }
                // (What poll(2) calls readable need not be: an error queue, a stream of datagrams that was shut.)
                if deadline.is_some_and(|deadline| deadline <= process.now()) {
                    return Err(Errno(libc::EAGAIN));
                }
            }
            Waited::TimedOut => return Err(Errno(libc::EAGAIN)),
            Waited::Due => return Err(resume.due()),
            Waited::Interrupted => return Err(Errno(libc::EINTR)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SELDOM_ASKED: Ratio = Ratio { looks: 100, is_exact: false };

    #[test]
    fn a_spinning_program_asks_the_kernel_at_the_ratio_and_a_quiet_one_always() {
        let mut poll = KernelPoll::default();
        let at = |us: u64| Instant::from_nanos(1_000_000_000 + us * 1000);
        let asks = |poll: &mut KernelPoll, us| poll.on_ring(SELDOM_ASKED) | poll.on_empty(at(us), SELDOM_ASKED);
        assert!(asks(&mut poll, 0), "after a long quiet");
        let asked = (1..=1000).filter(|&us| asks(&mut poll, us)).count();
        assert_eq!(asked, 10);
        assert!(asks(&mut poll, 1100), "after 100 us of quiet");
        poll.hint = true;
        assert!(asks(&mut poll, 1101), "somebody saw it readable");
        assert!(!asks(&mut poll, 1102));
        poll.delivered();
        assert!(asks(&mut poll, 1103), "something came from there");
    }

    #[test]
    fn a_busy_ring_does_not_starve_the_kernel() {
        let mut poll = KernelPoll::default();
        assert_eq!((0..1000).filter(|_| poll.on_ring(SELDOM_ASKED)).count(), 10);
        assert_eq!((0..1000).filter(|_| poll.on_ring(Ratio { looks: 0, ..SELDOM_ASKED })).count(), 0);
    }
}
