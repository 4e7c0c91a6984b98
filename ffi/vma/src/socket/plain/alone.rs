//! A receive that waits for one plain socket, and sleeps by its ring's lock alone ([`crate::mux::alone`]).

use core::ffi::c_int;
use std::io::IoSliceMut;

use ringway_stack::Error;
use ringway_stack::ring::RecvFlags;
use ringway_stack::time::Instant;

use super::datagrams::Taken;
use super::{Came, Entered, Plain, RECEIVE_FLAGS};
use crate::errno::Errno;
use crate::mux::alone::{Slept, Wait, Watched};
use crate::mux::wait::SpinClass;
use crate::process::Process;
use crate::slab::Key;
use crate::socket::datagram::ask_kernel;

/// Receives on a plain socket that had nothing, and waits. `None`: the call is to go the long way; nothing was taken.
#[cold]
#[inline(never)]
pub(super) fn receive(
    process: &Process,
    plain: Plain,
    on: (c_int, Key),
    into: &mut [IoSliceMut<'_>],
    (flags, kernel): (c_int, &dyn Fn(c_int) -> isize),
) -> Option<Came> {
    if flags & !RECEIVE_FLAGS != 0 || !plain.waits_alone(flags) {
        return None;
    }
    let timeout = plain.receive_timeout();
    Wait::run(process, SpinClass::Rx, timeout, timeout.is_none(), |wait| {
        let came = receive_waiting(process, wait, plain, on, into, kernel);
        came.or_else(|| wait.begun().map(|begun| Came::Waits(begun, timeout)))
    })
}

/// `None`: the wait is to go on the long way.
fn receive_waiting(
    process: &Process,
    wait: &mut Wait<'_>,
    plain: Plain,
    (fd, key): (c_int, Key),
    into: &mut [IoSliceMut<'_>],
    kernel: &dyn Fn(c_int) -> isize,
) -> Option<Came> {
    let half = plain.is_of_datagrams().then_some(fd);
    loop {
        let mut entered = Entered::new(process, key).filter(|entered| entered.plain == plain)?;
        let now = process.now();
        if wait.is_cancelled() {
            return Some(Came::Nothing(Errno(libc::EINTR)));
        }
        if let Some(came) = take(&mut entered, now, into) {
            entered.leave(process, now);
            wait.found(now);
            return came;
        }
        if let Some(error) = wait.end(now) {
            entered.leave(process, now);
            // (What the kernel has by now counts.)
            let last = half.filter(|_| error == Errno(libc::EAGAIN)).and_then(|fd| ask_kernel(fd, kernel));
            return Some(last.map_or(Came::Nothing(error), |received| Came::Datagram(received.map(Taken::Kernel))));
        }
        let flow = entered.flow;
        let slept = if wait.spins(now) {
            entered.leave(process, now);
            Slept::Look
        } else if entered.own.ring.is_held(flow) {
            Slept::LongWay
        } else if entered.own.has_more_to_do() {
            drop(entered);
            super::see_to_the_rest(process, flow.ring, now, None);
            wait.try_again()
        } else {
            let begin = |waker| plain.begin_sleep(key, waker);
            wait.sleep(entered.own, (flow.ring, Some(flow), Watched::Socket(key.index)), begin, half, now)
        };
        match slept {
            Slept::Look => {}
            Slept::Kernel => match ask_kernel(fd, kernel) {
                Some(received) => return Some(Came::Datagram(received.map(Taken::Kernel))),
                None if matches!(wait.was_in_vain(), Slept::LongWay) => return None,
                None => {}
            },
            Slept::LongWay => return None,
        }
    }
}

/// What the flow has. `None`: nothing; `Some(None)`: the call is to go the long way.
#[expect(clippy::option_option, reason = "the outer one says whether to go on waiting")]
fn take(entered: &mut Entered<'_>, now: Instant, into: &mut [IoSliceMut<'_>]) -> Option<Option<Came>> {
    let (flow, is_of_datagrams) = (entered.flow, entered.plain.is_of_datagrams());
    let own = &mut *entered.own;
    if !is_of_datagrams {
        return match own.receive(now, flow, into, RecvFlags::empty(), false) {
            Err(Error::WouldBlock) => None,
            Err(Error::BadSocket) => Some(None),
            result => Some(Some(Came::Bytes(result))),
        };
    }
    own.poll_if_due(now);
    match own.ring.udp_recv(flow, into, RecvFlags::empty()) {
        Err(Error::WouldBlock) => None,
        Err(Error::BadSocket) => Some(None),
        result => Some(own.datagrams.taken(flow, result).map(Came::Datagram)),
    }
}
