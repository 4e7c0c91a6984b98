//! Collecting events by a ring's lock alone: from an instance all of whose sockets are on one ring, as that of a thread with a ring of its own is.
//!
//! An event of a plain socket ([`crate::socket::plain`]) is put onto the list of the one instance that watches it by whoever has the ring's lock, and
//! taken from there by whoever has it. What is not plain, of sockets or of instances, is for who has the process's lock.

use core::time::Duration;
use std::os::fd::RawFd;

use libc::epoll_event;
use ringway_stack::ring::Event;
use ringway_stack::time::Instant;

use super::super::alone::{Slept, Wait, Watched};
use super::super::expand;
use super::super::interest::Target;
use super::super::wait::SpinClass;
use super::collect::{collect_kernel, ours_of};
use super::{Lists, table};
use crate::errno::Errno;
use crate::fdtable::{self, Entry};
use crate::lock::Guard;
use crate::process::{Offload, Process};
use crate::rings::{Above, Only, ProcessRing};
use crate::socket::{plain, table as sockets};

/// Tells the instance that alone watches a socket what happened to that. `false`: it is for who has the process's lock. For who has the ring's.
pub(crate) fn tell(event: Event, above: &Above, only: Only) -> bool {
    let Some(mut lists) = table::lists_of(only.epoll, event.flow.ring) else { return false };
    lists.interest.edge(only.item, expand(event.edges.bits()));
    above.note_told(|edge| lists.interest.is_told(only.item, expand(edge.bits())));
    true
}

/// A collection under the process's lock is over. If the instance is plain, the next one need not have that.
pub(super) fn say_if_plain(offload: &Offload, index: u32) {
    let may_be = offload.rings.are_locked() && !offload.is_heard() && !offload.rings_are_used();
    let Some(instance) = offload.mux.epolls.get(index).filter(|_| may_be) else { return };
    if let Some(ring) = instance.rings.only()
        && instance.parents.is_empty()
        && instance.sleepers.is_empty()
        && instance.ring.is_none()
        && !instance.adopted
    {
        table::publish(index, ring);
    }
}

/// `epoll_wait` on a plain instance, if there is something to report, or nothing to wait for. `None`: it is to go the long way.
pub(super) fn collect(
    process: &Process,
    (index, epfd): (u32, RawFd),
    now: Instant,
    events: &mut [epoll_event],
    timeout: Option<Duration>,
) -> Option<Result<usize, Errno>> {
    let ring = table::ring_of(index)?;
    let mut own = process.ring(ring)?.lock();
    if own.watch.has_spinners() {
        return None;
    }
    own.poll_if_due(now);
    let has_more = own.has_more_to_do();
    let ratio = process.params.select_skip_os;
    let looked = look(&own, (index, epfd, ring), events, |lists, room| lists.asks_kernel(index, now, ratio, room));
    drop(own);
    if has_more {
        plain::see_to_the_rest(process, ring, now, None);
    }
    let Looked { mut count, mut is_whole, has_members, asks_kernel, round } = looked?;
    if asks_kernel {
        count = match collect_kernel(process, index, epfd, count, events, round) {
            Ok(count) => count,
            Err(error) => return Some(Err(error)),
        };
        if count == 0 {
            // (Both had their turn: of one event, ours had none.)
            (count, is_whole) = {
                let again = look(&process.ring(ring)?.lock(), (index, epfd, ring), events, |_, _| false)?;
                (again.count, again.is_whole)
            };
        }
    }
    // (Where there is nothing, and nothing is to be waited for, what the kernel has by now counts, however seldom it is asked.)
    let is_all = is_whole && !has_more && (asks_kernel || !has_members);
    (count != 0 || is_all && timeout == Some(Duration::ZERO)).then_some(Ok(count))
}

/// As [`collect`], of a call that found nothing and waits, by its ring's lock alone. `None`: it is to go the long way.
pub(super) fn wait(
    process: &Process,
    (index, epfd): (u32, RawFd),
    events: &mut [epoll_event],
    timeout: Option<Duration>,
) -> Option<Result<usize, Errno>> {
    Wait::run(process, SpinClass::Select, timeout, false, |wait| {
        loop {
            let ring = table::ring_of(index)?;
            let mut own = process.ring(ring)?.lock();
            let now = process.now();
            own.poll_if_due(now);
            let has_more = own.has_more_to_do();
            // (The real epoll is among what the thread sleeps on.)
            let Looked { count, is_whole, has_members, .. } = look(&own, (index, epfd, ring), events, |_, _| false)?;
            let end = if count == 0 { wait.end(now) } else { None };
            if has_more {
                drop(own);
                plain::see_to_the_rest(process, ring, now, None);
            } else if count == 0 && is_whole && end.is_none() && !wait.spins(now) {
                let begin = |waker| table::begin_sleep(index, ring, waker);
                match wait.sleep(own, (ring, None, Watched::Epoll(index)), begin, has_members.then_some(epfd), now) {
                    Slept::Look => continue,
                    Slept::LongWay => return None,
                    Slept::Kernel => {}
                }
                match collect_kernel(process, index, epfd, 0, events, 0) {
                    Ok(0) if matches!(wait.was_in_vain(), Slept::LongWay) => return None,
                    Ok(0) => continue,
                    found => return Some(found),
                }
            }
            if count != 0 {
                wait.found(now);
                return Some(Ok(count));
            }
            match end {
                Some(Errno(libc::EINTR)) => return Some(Err(Errno(libc::EINTR))),
                // (What the kernel has by now counts.)
                Some(_) if !has_more && is_whole && has_members => return Some(collect_kernel(process, index, epfd, 0, events, 0)),
                Some(_) if !has_more && is_whole => return Some(Ok(0)),
                // (What is not plain is looked at the long way, and so is what another one sees to.)
                Some(_) => return None,
                None if !is_whole || has_more && matches!(wait.try_again(), Slept::LongWay) => return None,
                None => {}
            }
        }
    })
}

/// What a look found.
struct Looked {
    count: usize,
    /// All that was on the list was plain.
    is_whole: bool,
    /// The real epoll has members.
    has_members: bool,
    /// It is the real epoll's turn.
    asks_kernel: bool,
    round: u32,
}

/// `asks_kernel`: whether it is the real epoll's turn as well, where there is so much room for events.
fn look(
    own: &Guard<'_, ProcessRing>,
    (index, epfd, ring): (u32, RawFd, u16),
    events: &mut [epoll_event],
    asks_kernel: impl FnOnce(&mut Lists, usize) -> bool,
) -> Option<Looked> {
    let mut lists = table::lists_of(index, ring)?;
    // (Its number may be another instance's by now.)
    if fdtable::peek(epfd) != Entry::Epoll(index) {
        return None;
    }
    let (round, has_members) = lists.begin();
    let asks_kernel = asks_kernel(&mut lists, events.len());
    let room = if asks_kernel { ours_of(events.len()) } else { events.len() };
    let mut is_whole = true;
    let count = lists.interest.collect(
        round,
        room,
        |item| {
            let ready = match item.target {
                Target::Socket(socket) => sockets::flow_of(socket, ring).map(|flow| {
                    // The item leaves the list, perhaps.
                    if let Some(above) = own.above(flow) {
                        above.look();
                    }
                    expand(own.ring.readiness(flow).bits())
                }),
                Target::KernelHalf(_) | Target::Kernel => Some(0),
                Target::Epoll(_) | Target::Ring(_) => None,
            };
            is_whole &= ready.is_some();
            ready
        },
        |place, data, ready| events[place] = epoll_event { events: ready, u64: data },
    );
    Some(Looked { count, is_whole, has_members, asks_kernel, round })
}
