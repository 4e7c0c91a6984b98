//! Collecting events: what is ready of what we carry, and of what the real epoll has.

use core::time::Duration;
use std::ops::Range;
use std::os::fd::RawFd;

use libc::epoll_event;
use ringway_host::sleep::{epoll_ctl, epoll_wait};
use ringway_stack::time::Instant;

use super::super::interest::{Item, Target};
use super::super::turns::Ratio;
use super::super::wait::{SpinClass, Waited, Waiting, wait};
use super::super::{IN, readiness, thread};
use super::{
    Epoll, Epolls, INDEX_MASK, Lists, NESTING_MAX, REGISTERED_TOKEN, TOKEN_TAG, TOKEN_TAG_SHIFT, await_adopted, is_plain, plain,
    registered_event, token,
};
use crate::errno::Errno;
use crate::extra::resume::{self, Resume};
use crate::fdtable::{self, Entry};
use crate::process::{Offload, Process, process};
use crate::rings::Rings;
use crate::socket::table::Sockets;

/// The real epoll is asked at least this often while offloaded sockets keep a program busy.
const KERNEL_EVERY: Duration = Duration::from_millis(1);

/// What an item's target is ready for, as far as we carry it.
#[inline]
pub(super) fn target_readiness(rings: &Rings, sockets: &Sockets, epolls: &Epolls, target: Target, depth: u32) -> u32 {
    match target {
        Target::Socket(socket) => {
            let Some(socket) = sockets.get(socket) else { return 0 };
            // The item leaves the ready list, perhaps.
            if rings.are_locked()
                && let Some(above) = socket.ring_id().and_then(|flow| rings.at(flow.ring).above(flow))
            {
                above.look();
            }
            readiness(rings, socket)
        }
        Target::Epoll(inner) => nested_readiness(rings, sockets, epolls, inner, depth),
        Target::Ring(instance) if epolls.get(instance).is_some_and(Epoll::has_completions) => IN,
        Target::Ring(_) | Target::KernelHalf(_) | Target::Kernel => 0,
    }
}

fn nested_readiness(rings: &Rings, sockets: &Sockets, epolls: &Epolls, index: u32, depth: u32) -> u32 {
    let Some(instance) = epolls.get(index).filter(|_| depth < NESTING_MAX) else { return 0 };
    rings.touch_these(instance.rings);
    // (An instance is in none that is in it, so that nobody comes to a lock twice.)
    let ready = instance.lists().interest.is_ready(|item| target_readiness(rings, sockets, epolls, item.target, depth + 1));
    if ready { IN } else { 0 }
}

/// Whether an instance, polled from outside, is readable for what we carry.
pub(crate) fn is_readable(offload: &mut Offload, index: u32) -> bool {
    let Offload { rings, sockets, mux, .. } = offload;
    nested_readiness(rings, sockets, &mux.epolls, index, 0) != 0
}

/// Reports what is ready of what we carry.
#[inline]
fn collect(offload: &mut Offload, index: u32, round: u32, events: &mut [epoll_event]) -> usize {
    let Offload { rings, sockets, mux, .. } = offload;
    let Some(instance) = mux.epolls.get(index) else { return 0 };
    rings.touch_these(instance.rings);
    let mut lists = instance.lists();
    if !lists.interest.may_be_ready() {
        return 0;
    }
    let collected = lists.interest.collect(
        round,
        0..events.len(),
        |item| {
            let ready = target_readiness(rings, sockets, &mux.epolls, item.target, 0);
            if let (Target::Socket(socket), true) = (item.target, ready & item.mask() & IN != 0)
                && let Some(socket) = sockets.get(socket)
            {
                socket.told_readable();
            }
            Some(ready)
        },
        |place, data, ready| events[place] = epoll_event { events: ready, u64: data },
    );
    // As the kernel: what is left over, or still ready, is the next waiter's.
    let next = instance.sleepers.first().copied().filter(|_| lists.interest.may_be_ready());
    drop(lists);
    if let Some(sleeper) = next {
        mux.wake(sleeper);
    }
    if collected != 0 {
        plain::say_if_plain(offload, index);
    }
    collected
}

/// The result of looking at both halves once.
struct Collected {
    count: usize,
    /// Whether the real epoll has members.
    members: bool,
}

/// `epoll_wait` on a registered instance. `None`: until something is ready.
pub(crate) fn wait_on(
    process: &Process,
    index: u32,
    epfd: RawFd,
    events: &mut [epoll_event],
    timeout: Option<Duration>,
    sigmask: Option<&libc::sigset_t>,
) -> Result<usize, Errno> {
    let started = process.now();
    if let Some(found) = plain::collect(process, (index, epfd), started, events, timeout) {
        return found;
    }
    let before = thread::with(thread::Thread::marks);
    if sigmask.is_none()
        && process.has_several_rings()
        && timeout != Some(Duration::ZERO)
        && let Some(found) = plain::wait(process, (index, epfd), events, timeout)
    {
        return found;
    }
    let resumed = resume::taken();
    let resume = resumed.unwrap_or_else(|| Resume::new(started)).polling();
    let deadline = timeout.map(|timeout| resume.began + timeout);
    let marks = resume.marks.filter(|_| resumed.is_some()).unwrap_or(before);
    let mut looked = look(process, index, epfd, (started, resumed.is_none().then_some(resume)), events)?;
    let mut waited_before = false;
    loop {
        if looked.count != 0 {
            return Ok(looked.count);
        }
        // As in poll: a handler that ran while something changed.
        if core::mem::replace(&mut waited_before, true) && thread::with(|thread| thread.interrupted(marks, false)) {
            return Err(Errno(libc::EINTR));
        }
        let mut kernel = [libc::pollfd { fd: epfd, events: libc::POLLIN, revents: 0 }];
        let kernel = if looked.members { &mut kernel[..] } else { &mut [] };
        let epolls = [index];
        let (callbacks, since, spin) = (resume.may_stop(|| process.now(), deadline), Some(marks), SpinClass::Select);
        let mut w =
            Waiting { sockets: &[], epolls: &epolls, kernel, deadline, sigmask, spin, restart: false, callbacks, since, polls: false };
        let waited = wait(process, &mut w, |offload, _| {
            let Some(instance) = offload.mux.epolls.get(index) else { return Some(Err(Errno(libc::EBADF))) };
            let (round, members) = instance.lists().begin();
            let count = collect(offload, index, round, events);
            (count != 0 || members != looked.members).then_some(Ok(Collected { count, members }))
        });
        looked = match waited {
            Waited::Ready(found) => found?,
            Waited::Kernel => {
                let count = collect_kernel(process, index, epfd, 0, events, 0)?;
                if count == 0 && deadline.is_some_and(|deadline| deadline <= process.now()) {
                    return Ok(0);
                }
                Collected { count, members: true }
            }
            Waited::TimedOut => return Ok(0),
            Waited::Interrupted => return Err(Errno(libc::EINTR)),
            Waited::Due => return Err(resume.due()),
        };
    }
}

impl Lists {
    /// Whether no collection has begun since that one.
    pub(super) const fn is_in(&self, round: u32) -> bool {
        self.rounds == round
    }

    /// A collection begins: its name, and whether the real epoll has members.
    pub(super) fn begin(&mut self) -> (u32, bool) {
        (self.next_round(), self.kernel_members)
    }

    /// A collection into so much room begins: whether it asks the real epoll as well.
    pub(super) fn asks_kernel(&mut self, index: u32, now: Instant, ratio: Ratio, room: usize) -> bool {
        if thread::with(|thread| thread.kernel_half_of.get() == Some(index) && thread.kernel_half_of.take().is_some()) {
            self.turns.delivered();
        }
        self.turns.looked();
        let is_late = ratio.looks != 0 && now.since(self.kernel_asked) >= KERNEL_EVERY;
        // (Where there is room for one event, whoever is asked first may have one each time.)
        let is_fair = room > 1 || self.turns.ring_had_one();
        let is_due = self.kernel_members && is_fair && (is_late || self.turns.is_due(ratio));
        if is_due {
            self.turns.asked();
            self.kernel_asked = now;
        }
        is_due
    }
}

/// What is for our half, of the room for events, where both halves are asked: both get some, whichever is busier.
pub(super) const fn ours_of(room: usize) -> usize {
    if room == 1 { 0 } else { room - room / 4 }
}

/// One look at our half, and at the real epoll if it was left out for long. `fresh`: callbacks that are due come first, for what they decide about
/// may be what is waited for.
fn look(
    process: &Process,
    index: u32,
    epfd: RawFd,
    (now, fresh): (Instant, Option<Resume>),
    events: &mut [epoll_event],
) -> Result<Collected, Errno> {
    let ratio = process.params.select_skip_os;
    let mut offload = process.lock();
    let all = offload.rings.all();
    let its = offload.mux.epolls.get(index).map_or(all, |instance| instance.rings.and(all));
    let its = if its.is_empty() { all } else { offload.rings.with_those_beside(its) };
    offload.poll_these(its, now);
    if let Some(resume) = fresh.filter(|_| offload.callbacks.are_due()) {
        return Err(resume.due());
    }
    if offload.mux.epolls.get(index).is_some_and(|instance| instance.adopted) {
        await_adopted(&mut offload, index, 0);
    }
    let (round, members, due) = {
        let mut lists = offload.mux.epolls.get(index).ok_or(Errno(libc::EBADF))?.lists();
        let (round, members) = lists.begin();
        (round, members, lists.asks_kernel(index, now, ratio, events.len()))
    };
    if !due {
        let count = collect(&mut offload, index, round, events);
        return Ok(Collected { count, members });
    }
    let room = ours_of(events.len());
    let mut count = collect(&mut offload, index, round, &mut events[..room]);
    drop(offload);
    count = collect_kernel(process, index, epfd, count, events, round)?;
    if count == 0 {
        count = collect(&mut process.lock(), index, round, events);
    }
    Ok(Collected { count, members })
}

/// Adds what the real epoll has ready to the first `count` events, of which those of the collection `round` are merged. Returns how
/// many there are now.
pub(super) fn collect_kernel(
    process: &Process,
    index: u32,
    epfd: RawFd,
    count: usize,
    events: &mut [epoll_event],
    round: u32,
) -> Result<usize, Errno> {
    let found = match epoll_wait(epfd, &mut events[count..], Some(Duration::ZERO), None) {
        Ok(found) => found,
        Err(error) if count != 0 || error.raw_os_error() == Some(libc::EINTR) => {
            tracing::trace!(%error, "the real epoll could not be asked");
            return Ok(count);
        }
        Err(error) => return Err(Errno(error.raw_os_error().unwrap_or(libc::EINVAL))),
    };
    if found != 0 {
        thread::with(|thread| thread.kernel_half_of.set(Some(index)));
    }
    let end = count + found;
    if events[count..end].iter().any(is_token) { Ok(translate(&mut process.lock(), index, events, count..end, round)) } else { Ok(end) }
}

#[inline]
const fn is_token(event: &epoll_event) -> bool {
    event.u64 >> TOKEN_TAG_SHIFT == TOKEN_TAG
}

/// Turns tokens among `range` of the events into what the program wants to see. Returns the new end.
fn translate(offload: &mut Offload, index: u32, events: &mut [epoll_event], range: Range<usize>, round: u32) -> usize {
    let Offload { sockets, mux, .. } = offload;
    let Some(instance) = mux.epolls.get(index) else { return range.start };
    let interest = &mut instance.lists().interest;
    let mut end = range.start;
    for place in range {
        let event = events[place];
        if !is_token(&event) {
            events[end] = event;
            end += 1;
            continue;
        }
        let item = u32::try_from(event.u64 & INDEX_MASK).unwrap_or(u32::MAX);
        if event.u64 == REGISTERED_TOKEN || event.u64 != token(interest, item) {
            continue;
        }
        if let Some(&Item { target: Target::Socket(socket), .. }) = interest.item(item)
            && let Some(socket) = sockets.get_mut(socket)
        {
            socket.kernel_poll.hint = true;
        }
        let earlier = if round == 0 { None } else { interest.reported_in(round, item) };
        let Some((data, ready)) = interest.kernel_event(item, event.events) else { continue };
        match earlier.and_then(|place| events.get_mut(place as usize)) {
            Some(earlier) => earlier.events |= ready,
            None => {
                events[end] = epoll_event { events: ready, u64: data };
                end += 1;
            }
        }
    }
    end
}

/// The result of a plain wait in the real epoll: whether the instance was registered meanwhile, in which case the events that are
/// not the program's are taken out. Returns how many remain.
pub(crate) fn after_plain_wait(epfd: RawFd, events: &mut [epoll_event]) -> Option<usize> {
    if !events.iter().any(is_token) {
        return None;
    }
    let (Entry::Epoll(index), Some(process)) = (fdtable::lookup(epfd), process()) else { return None };
    if is_plain(index) {
        return None;
    }
    let mut offload = process.lock();
    let count = events.len();
    let end = translate(&mut offload, index, events, 0..count, 0);
    if fdtable::has_plain_waits(epfd)
        && let Some(Epoll { registered: Some(event), .. }) = offload.mux.epolls.get(index)
    {
        // The next thread is to learn of it, too: modifying makes the edge again.
        let _ = epoll_ctl(epfd, libc::EPOLL_CTL_MOD, event.fd(), Some(registered_event()));
    }
    Some(end)
}
