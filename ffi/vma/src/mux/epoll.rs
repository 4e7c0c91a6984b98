//! Epoll instances over both worlds.
//!
//! The descriptor that the program has is a real epoll of the kernel's, and descriptors that are not ours are the real
//! one's alone, with the program's own data: nothing is kept for them here. An instance is *registered* (gets an
//! [`Epoll`]) when the first offloaded socket, or another instance, is added to it; until then every call goes straight to
//! the kernel. Items of the kernel's half of our sockets, and nested instances, are members of the real epoll too; their
//! data is a token that leads back to the item.

use core::sync::atomic::{Ordering, fence};
use std::os::fd::RawFd;

use libc::epoll_event;
use ringway_host::EventFd;
use ringway_host::sleep::epoll_ctl;
use ringway_stack::time::Instant;

use super::interest::{Interest, Item, Target};
use super::turns::Turns;
use super::{Source, State, Watcher, note_activity};
use crate::errno::Errno;
use crate::fdtable::{self, Entry, UNREGISTERED};
use crate::lock::{Guard, Lock, Protected};
use crate::process::{Offload, fork_generation, process, process_or_init};
use crate::rings::RingSet;
use crate::socket::{Socket, listen};

mod collect;
pub(crate) mod plain;
pub(crate) mod ring;
mod table;

pub(super) use collect::is_readable;
use collect::target_readiness;
pub(crate) use collect::{after_plain_wait, wait_on};
pub(crate) use table::{Epolls, end_sleeps, forget_sleepers, unsay_all, wake_lone};

/// How deep instances may be nested (the kernel's EP_MAX_NESTS is 4, not counting the outermost).
pub(crate) const NESTING_MAX: u32 = 5;

/// An unregistered instance to which a kernel descriptor was added.
const UNREGISTERED_IN_USE: u32 = UNREGISTERED - 1;

/// The upper 24 bits of a token. No pointer and no descriptor looks like this; a program whose 64-bit data does (one in
/// sixteen million, if they are random) is served through an item.
const TOKEN_TAG: u64 = 0xa7_51d3;
const TOKEN_TAG_SHIFT: u32 = 40;
const GENERATION_SHIFT: u32 = 24;
const INDEX_MASK: u64 = (1 << GENERATION_SHIFT) - 1;

/// The token of the eventfd that tells threads which wait in the plain real epoll that the instance is registered now.
const REGISTERED_TOKEN: u64 = (TOKEN_TAG << TOKEN_TAG_SHIFT) | ((1 << TOKEN_TAG_SHIFT) - 1);

/// A registered instance.
#[derive(Debug)]
pub(crate) struct Epoll {
    /// What is collected from.
    shared: &'static Lock<Lists>,
    /// The descriptors that name it.
    fds: Vec<RawFd>,
    /// The instances that it is nested in.
    pub(super) parents: Vec<Watcher>,
    /// Threads that sleep in it.
    pub(super) sleepers: Vec<u32>,
    /// Items of descriptors that are the kernel's alone.
    aliases: u32,
    registered: Option<EventFd>,
    /// The process that registered it, by its place in a line of forks: a child shares the real epoll, and must not take
    /// its parent's members out.
    generation: u32,
    /// It came from the parent, or listeners in it were left to whoever waits there first, and this process has not waited in it since.
    adopted: bool,
    /// It is the descriptor of a ring of the Extra API.
    ring: Option<ring::End>,
    /// The process's rings on which what it watches has, or had, flows.
    pub(super) rings: RingSet,
}

/// What is collected from, by its own lock: a leaf, which only those take who have the process's lock, or a ring's.
#[derive(Debug)]
pub(super) struct Lists {
    pub(super) interest: Interest,
    /// Whether the real epoll may have members.
    kernel_members: bool,
    /// When collections ask the real epoll as well, and when one last did.
    turns: Turns,
    kernel_asked: Instant,
    rounds: u32,
}

impl Protected for Lists {
    type Left = ();
}

impl Lists {
    pub(super) const fn new() -> Self {
        Self { interest: Interest::new(), kernel_members: false, turns: Turns::new(), kernel_asked: Instant::ZERO, rounds: 0 }
    }

    fn next_round(&mut self) -> u32 {
        self.rounds = self.rounds.wrapping_add(1).max(1);
        self.rounds
    }
}

impl Epoll {
    fn new(epfd: RawFd, shared: &'static Lock<Lists>) -> Self {
        Self {
            shared,
            fds: vec![epfd],
            parents: Vec::new(),
            sleepers: Vec::new(),
            aliases: 0,
            registered: None,
            generation: fork_generation(),
            adopted: false,
            ring: None,
            rings: RingSet::NONE,
        }
    }
}

impl Epoll {
    /// What is collected from. Whoever has it comes to no ring that it has not come to before: rings' locks are taken first.
    #[inline]
    pub(super) fn lists(&self) -> Guard<'static, Lists> {
        self.shared.lock()
    }

    /// Whether the descriptor names it.
    pub(super) fn is_named(&self, fd: RawFd) -> bool {
        self.fds.contains(&fd)
    }

    /// One of the descriptors that name it.
    pub(super) fn fd(&self) -> RawFd {
        self.fds.first().copied().unwrap_or(crate::fd_counters::NO_FD)
    }
}

/// Whether calls on this entry go straight to the kernel.
pub(crate) const fn is_plain(index: u32) -> bool {
    index >= UNREGISTERED_IN_USE
}

/// Whether a wait for an instance's readiness (poll(2)) is ours. Where offloaded sockets may be added to it meanwhile, it is from now on.
pub(crate) fn is_awaited(fd: RawFd, index: u32) -> bool {
    if !is_plain(index) {
        return true;
    }
    // (Even before the program has its first socket, and in a fork's child.)
    let Some(process) = process_or_init().filter(|process| process.is_owner() && !process.has_lock()) else { return false };
    register(&mut process.lock(), fd).is_some()
}

/// A new instance of the kernel's becomes known.
pub(crate) fn on_create(fd: RawFd) {
    fdtable::set(fd, Entry::Epoll(UNREGISTERED));
}

/// A descriptor of an instance was closed, and is out of the descriptor table already.
pub(crate) fn on_close(fd: RawFd, index: u32) {
    if is_plain(index) {
        return;
    }
    let Some(process) = process() else { return };
    let mut offload = process.lock();
    let Some(instance) = offload.mux.epolls.get_mut(index) else { return };
    instance.fds.retain(|&known| known != fd);
    if instance.fds.is_empty() {
        destroy(&mut offload, index);
    } else {
        ring::lost_number(&mut offload, index, fd);
    }
}

/// A descriptor of an instance was duplicated.
pub(crate) fn on_dup(old: RawFd, new: RawFd) {
    let Entry::Epoll(mut index) = fdtable::lookup(old) else { return };
    // Even before the program has its first socket (tokio's runtime does this at its start): from now on both numbers must lead to one
    // instance.
    if let Some(process) = process_or_init() {
        let mut offload = process.lock();
        if let Some(registered) = register(&mut offload, old) {
            index = registered;
            if let Some(instance) = offload.mux.epolls.get_mut(index) {
                instance.fds.push(new);
            }
        }
    }
    fdtable::set(new, Entry::Epoll(index));
}

/// The child of a fork goes on with its parent's instances: the real epolls are shared, so their tokens must stay good.
pub(crate) fn adopt(old: &mut Offload, new: &mut Offload) {
    new.mux.epolls = std::mem::replace(&mut old.mux.epolls, Epolls::new());
    for (_, instance) in new.mux.epolls.iter_mut() {
        instance.sleepers.clear();
        instance.adopted = true;
        // The rings stay with the parent.
        instance.ring = None;
        instance.rings = RingSet::NONE;
    }
    for (key, socket) in old.sockets.iter_mut() {
        if let Some(adopted) = new.sockets.find_mut(key) {
            adopted.watch.items = std::mem::take(&mut socket.watch.items);
        }
    }
}

/// Before a fork that leaves listeners to whoever waits there first: who waits in an instance waits for those in it.
pub(crate) fn leave_listeners(offload: &mut Offload) {
    offload.mux.epolls.iter_mut().for_each(|(_, instance)| instance.adopted = true);
    table::unsay_all();
}

/// A process waits in an instance for the first time since a fork: it waits for the listeners in it.
#[cold]
fn await_adopted(offload: &mut Offload, index: u32, depth: u32) {
    let Some(instance) = offload.mux.epolls.get_mut(index) else { return };
    if !std::mem::replace(&mut instance.adopted, false) || depth == NESTING_MAX {
        return;
    }
    let targets: Vec<Target> = instance.lists().interest.items().map(|(_, item)| item.target).collect();
    for target in targets {
        match target {
            Target::Socket(socket) | Target::KernelHalf(socket) => {
                if let Some(key) = offload.sockets.key_at(socket) {
                    listen::awaited(offload, key);
                }
            }
            Target::Epoll(inner) => await_adopted(offload, inner, depth + 1),
            Target::Ring(_) | Target::Kernel => {}
        }
    }
}

/// `epoll_ctl` where at least one of the descriptors is ours. `None`: it is the kernel's to do, and nothing of ours.
pub(crate) fn control(epfd: RawFd, operation: i32, fd: RawFd, event: Option<epoll_event>) -> Option<Result<(), Errno>> {
    let target = fdtable::lookup(fd);
    let instance = match fdtable::lookup(epfd) {
        Entry::Epoll(index) => index,
        Entry::None if matches!(target, Entry::Socket(_)) && is_epoll(epfd, fd) => {
            on_create(epfd);
            UNREGISTERED
        }
        _ => return None,
    };
    let process = match target {
        // In the child of a fork, the state is made anew here: an inherited listener must not end up watched by the kernel alone.
        Entry::Socket(_) => process_or_init(),
        Entry::Epoll(_) if operation == libc::EPOLL_CTL_ADD || !is_plain(instance) => process_or_init(),
        _ if event.is_some_and(|event| looks_like_token(event.u64)) || has_aliases(instance) => process(),
        _ => None,
    };
    let Some(process) = process else {
        if operation == libc::EPOLL_CTL_ADD {
            note_kernel_member(epfd, instance);
        }
        return None;
    };
    let mut offload = process.lock();
    let target = match target {
        Entry::Socket(key) if offload.sockets.find(key).is_some_and(|socket| socket.source() != Source::Kernel) => {
            Target::Socket(key.index)
        }
        // (Itself, perhaps by another number, is nothing that the kernel lets an instance watch.)
        Entry::Epoll(other) if epfd != fd && (other != instance || instance == UNREGISTERED) => Target::Epoll(register(&mut offload, fd)?),
        _ if needs_alias(&offload, instance, fd, event) => Target::Kernel,
        _ => {
            drop(offload);
            note_kernel_member(epfd, instance);
            return None;
        }
    };
    match operation {
        libc::EPOLL_CTL_ADD => {
            let index = register(&mut offload, epfd)?;
            if let Entry::Socket(key) = fdtable::peek(fd) {
                listen::awaited(&mut offload, key);
            }
            Some(add(&mut offload, index, epfd, target, fd, event))
        }
        libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL => {
            let Some(watcher) = find(&offload, instance, target, fd) else { return Some(Err(Errno(libc::ENOENT))) };
            Some(if operation == libc::EPOLL_CTL_DEL {
                remove(&mut offload, watcher, epfd);
                Ok(())
            } else {
                modify(&mut offload, watcher, epfd, event)
            })
        }
        _ => Some(Err(Errno(libc::EINVAL))),
    }
}

/// Whether kernel descriptors of an instance may have items.
fn has_aliases(index: u32) -> bool {
    !is_plain(index) && process().is_some_and(|process| process.lock().mux.epolls.get(index).is_some_and(|instance| instance.aliases != 0))
}

/// Whether a kernel descriptor is served through an item: it has one, or its data looks like a token.
fn needs_alias(offload: &Offload, index: u32, fd: RawFd, event: Option<epoll_event>) -> bool {
    event.is_some_and(|event| looks_like_token(event.u64)) || find(offload, index, Target::Kernel, fd).is_some()
}

/// A descriptor that was not created through the library: is it an epoll instance? Deleting what is not in it says.
fn is_epoll(epfd: RawFd, fd: RawFd) -> bool {
    epoll_ctl(epfd, libc::EPOLL_CTL_DEL, fd, None).is_err_and(|error| error.raw_os_error() == Some(libc::ENOENT))
}

/// The real epoll of an instance has, or will have, a member.
fn note_kernel_member(epfd: RawFd, index: u32) {
    if index == UNREGISTERED {
        fdtable::change(epfd, Entry::Epoll(UNREGISTERED_IN_USE));
    } else if !is_plain(index)
        && let Some(process) = process()
    {
        process.lock().mux.has_kernel_members(index);
    }
}

impl State {
    /// What an instance watches is on these rings, too: who waits in it, or in one that it is nested in, waits for them.
    pub(super) fn concerns(&mut self, index: u32, rings: RingSet, depth: u32) {
        let Some(instance) = self.epolls.get_mut(index).filter(|instance| depth < NESTING_MAX && !instance.rings.has(rings)) else {
            return;
        };
        instance.rings = instance.rings.with(rings);
        // Who sleeps there, or spins, looks anew for what to look at.
        note_activity();
        for sleeper in instance.sleepers.clone() {
            self.wake(sleeper);
        }
        let parents = self.epolls.get(index).map_or(Vec::new(), |instance| instance.parents.clone());
        for parent in parents {
            self.concerns(parent.epoll, rings, depth + 1);
        }
    }

    /// Threads that sleep without the real epoll must look at it from now on.
    fn has_kernel_members(&mut self, index: u32) {
        // (Who sleeps by its ring's lock alone is woken by that as well.)
        let Some(instance) = self.epolls.get_mut(index) else { return };
        let before = std::mem::replace(&mut instance.lists().kernel_members, true);
        if !before {
            note_activity();
            for sleeper in instance.sleepers.clone() {
                self.wake(sleeper);
            }
        }
    }
}

/// The place of an instance in the table, made if it has none.
pub(super) fn register(offload: &mut Offload, epfd: RawFd) -> Option<u32> {
    let Entry::Epoll(index) = fdtable::lookup(epfd) else { return None };
    if !is_plain(index) {
        return Some(index);
    }
    let key = offload.mux.epolls.insert(epfd, index == UNREGISTERED_IN_USE);
    fdtable::change(epfd, Entry::Epoll(key.index));
    fence(Ordering::SeqCst);
    if fdtable::has_plain_waits(epfd)
        && let Some(instance) = offload.mux.epolls.get_mut(key.index)
    {
        instance.registered = call_plain_waiters(epfd);
    }
    Some(key.index)
}

/// Threads that wait in the plain real epoll are to come back: they find an event of ours there.
fn call_plain_waiters(epfd: RawFd) -> Option<EventFd> {
    let event = EventFd::new().ok()?;
    event.signal();
    fdtable::set(event.fd(), Entry::Internal);
    epoll_ctl(epfd, libc::EPOLL_CTL_ADD, event.fd(), Some(registered_event())).ok()?;
    Some(event)
}

fn registered_event() -> epoll_event {
    epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: REGISTERED_TOKEN }
}

fn destroy(offload: &mut Offload, index: u32) {
    let Some(key) = offload.mux.epolls.key_at(index) else { return };
    offload.forget_beside(key);
    let Some(instance) = offload.mux.epolls.remove(key) else { return };
    let lists = std::mem::replace(&mut *instance.lists(), Lists::new());
    for (item, Item { target, .. }) in lists.interest.items() {
        unlink(offload, *target, |watcher| watcher.epoll == index && watcher.item == item);
    }
    for parent in instance.parents {
        drop_item(&mut offload.mux, parent);
    }
    for sleeper in instance.sleepers {
        offload.mux.wake(sleeper);
    }
    if let Some(end) = instance.ring {
        offload.extra_rings.lost_descriptor(end.ring);
    }
    if let Some(event) = instance.registered {
        fdtable::clear(event.fd());
    }
    note_activity();
}

/// The list in which a target keeps who watches it.
fn watchers(offload: &mut Offload, target: Target) -> Option<&mut Vec<Watcher>> {
    match target {
        Target::Socket(socket) | Target::KernelHalf(socket) => offload.sockets.get_mut(socket).map(|socket| &mut socket.watch.items),
        Target::Epoll(inner) => offload.mux.epolls.get_mut(inner).map(|inner| &mut inner.parents),
        Target::Ring(_) | Target::Kernel => None,
    }
}

fn unlink(offload: &mut Offload, target: Target, which: impl Fn(&Watcher) -> bool) {
    if let Some(watchers) = watchers(offload, target) {
        watchers.retain(|watcher| !which(watcher));
    }
}

/// The item by its name: most descriptors are in one instance, so that the list is short.
fn find(offload: &Offload, epoll: u32, target: Target, fd: RawFd) -> Option<Watcher> {
    let watchers = match target {
        Target::Socket(socket) | Target::KernelHalf(socket) => &offload.sockets.get(socket)?.watch.items,
        Target::Epoll(inner) => &offload.mux.epolls.get(inner)?.parents,
        Target::Kernel => {
            let lists = offload.mux.epolls.get(epoll)?.lists();
            let mut items = lists.interest.items();
            return items.find(|(_, item)| item.target == Target::Kernel && item.fd == fd).map(|(item, _)| Watcher { epoll, item, fd });
        }
        Target::Ring(_) => return None,
    };
    watchers.iter().find(|watcher| watcher.epoll == epoll && watcher.fd == fd).copied()
}

fn source(offload: &Offload, target: Target) -> Source {
    match target {
        Target::Socket(socket) | Target::KernelHalf(socket) => offload.sockets.get(socket).map_or(Source::Kernel, Socket::source),
        // The inner real epoll is watched for everything; what is offloaded comes on top.
        Target::Epoll(_) | Target::Ring(_) | Target::Kernel => Source::Both(None),
    }
}

/// The rings that a target's readiness comes from.
fn rings_of(offload: &Offload, target: Target) -> RingSet {
    match target {
        Target::Socket(socket) | Target::KernelHalf(socket) => offload.sockets.get(socket).map_or(RingSet::NONE, Socket::rings),
        Target::Epoll(inner) => offload.mux.epolls.get(inner).map_or(RingSet::NONE, |inner| inner.rings),
        Target::Ring(_) | Target::Kernel => RingSet::NONE,
    }
}

/// A member of an instance is on another ring than before: where it has none left, nobody who waits in it need look. (One that it is nested in goes on to.)
pub(super) fn leave_rings(offload: &mut Offload, epoll: u32) {
    let Some(instance) = offload.mux.epolls.get(epoll) else { return };
    let targets: Vec<Target> = instance.lists().interest.items().map(|(_, item)| item.target).collect();
    let rings = targets.into_iter().map(|target| rings_of(offload, target)).fold(RingSet::NONE, RingSet::with);
    if let Some(instance) = offload.mux.epolls.get_mut(epoll) {
        instance.rings = rings;
    }
}

fn token(interest: &Interest, item: u32) -> u64 {
    TOKEN_TAG << TOKEN_TAG_SHIFT | u64::from(interest.generation(item)) << GENERATION_SHIFT | u64::from(item)
}

/// Bits that may be combined with EPOLLEXCLUSIVE (epoll_ctl(2)).
const EXCLUSIVE_OK: u32 =
    (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP | libc::EPOLLWAKEUP | libc::EPOLLET | libc::EPOLLEXCLUSIVE) as u32;

fn add(offload: &mut Offload, epoll: u32, epfd: RawFd, target: Target, fd: RawFd, event: Option<epoll_event>) -> Result<(), Errno> {
    let event = event.ok_or(Errno(libc::EFAULT))?;
    let exclusive = event.events & libc::EPOLLEXCLUSIVE as u32 != 0;
    if exclusive && (event.events & !EXCLUSIVE_OK != 0 || matches!(target, Target::Epoll(_))) {
        return Err(Errno(libc::EINVAL));
    }
    if target != Target::Kernel && find(offload, epoll, target, fd).is_some() {
        return Err(Errno(libc::EEXIST));
    }
    let kernel = source(offload, target).kernel_mask(event.events);
    let instance = offload.mux.epolls.get_mut(epoll).ok_or(Errno(libc::EBADF))?;
    let (item, token) = {
        let interest = &mut instance.lists().interest;
        let item = interest.add(Item { target, fd, events: event.events, data: event.u64, kernel });
        (item, token(interest, item))
    };
    if let Some(mask) = kernel {
        if let Err(error) = epoll_ctl(epfd, libc::EPOLL_CTL_ADD, fd, Some(epoll_event { events: mask, u64: token })) {
            instance.lists().interest.remove(item);
            return Err(Errno(error.raw_os_error().unwrap_or(libc::EINVAL)));
        }
        instance.aliases += u32::from(target == Target::Kernel);
        offload.mux.has_kernel_members(epoll);
    }
    if let Some(watchers) = watchers(offload, target) {
        watchers.push(Watcher { epoll, item, fd });
    }
    offload.mux.concerns(epoll, rings_of(offload, target), 0);
    reevaluate(offload, epoll, item, target);
    Ok(())
}

fn modify(offload: &mut Offload, watcher: Watcher, epfd: RawFd, event: Option<epoll_event>) -> Result<(), Errno> {
    let event = event.ok_or(Errno(libc::EFAULT))?;
    let instance = offload.mux.epolls.get(watcher.epoll).ok_or(Errno(libc::EBADF))?;
    let item = *instance.lists().interest.item(watcher.item).ok_or(Errno(libc::ENOENT))?;
    if (event.events | item.events) & libc::EPOLLEXCLUSIVE as u32 != 0 {
        return Err(Errno(libc::EINVAL));
    }
    let kernel = source(offload, item.target).kernel_mask(event.events);
    let instance = offload.mux.epolls.get(watcher.epoll).ok_or(Errno(libc::EBADF))?;
    set_kernel(instance, epfd, watcher, item.kernel, kernel)?;
    instance.lists().interest.modify(watcher.item, event.events, event.u64);
    if kernel.is_some() {
        offload.mux.has_kernel_members(watcher.epoll);
    }
    reevaluate(offload, watcher.epoll, watcher.item, item.target);
    Ok(())
}

/// Brings an item's membership in the real epoll from one mask to another.
fn set_kernel(instance: &Epoll, epfd: RawFd, watcher: Watcher, from: Option<u32>, to: Option<u32>) -> Result<(), Errno> {
    let token = token(&instance.lists().interest, watcher.item);
    let operation = match (from, to) {
        (None, None) => return Ok(()),
        (None, Some(_)) => libc::EPOLL_CTL_ADD,
        (Some(_), Some(_)) => libc::EPOLL_CTL_MOD,
        (Some(_), None) => libc::EPOLL_CTL_DEL,
    };
    let event = epoll_event { events: to.unwrap_or(0), u64: token };
    epoll_ctl(epfd, operation, watcher.fd, Some(event)).map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EINVAL)))?;
    if let Some(item) = instance.lists().interest.item_mut(watcher.item) {
        item.kernel = to;
    }
    Ok(())
}

fn remove(offload: &mut Offload, watcher: Watcher, epfd: RawFd) {
    let Some(instance) = offload.mux.epolls.get(watcher.epoll) else { return };
    let Some(item) = instance.lists().interest.remove(watcher.item) else { return };
    if item.kernel.is_some() {
        let _ = epoll_ctl(epfd, libc::EPOLL_CTL_DEL, watcher.fd, None);
    }
    unlink(offload, item.target, |other| *other == watcher);
}

/// What an item watches is gone: so is the item. (Its membership in the real epoll ends with the last descriptor; if that is
/// held elsewhere, the token's generation tells that it is stale.)
pub(super) fn drop_item(mux: &mut State, watcher: Watcher) {
    if let Some(instance) = mux.epolls.get(watcher.epoll)
        && let Some(item) = instance.lists().interest.remove(watcher.item)
        && item.kernel.is_some()
        && instance.generation == fork_generation()
        && let Some(&epfd) = instance.fds.first()
    {
        let _ = epoll_ctl(epfd, libc::EPOLL_CTL_DEL, watcher.fd, None);
    }
}

/// After adding and modifying: is it ready now?
fn reevaluate(offload: &mut Offload, epoll: u32, item: u32, target: Target) {
    let Offload { rings, sockets, mux, .. } = offload;
    let ready = target_readiness(rings, sockets, &mux.epolls, target, 0);
    mux.edge(epoll, item, ready);
}

/// A socket's source changed: the item's half in the real epoll follows.
pub(super) fn resettle(offload: &mut Offload, socket: u32, watcher: Watcher, source: Source) {
    let Some(instance) = offload.mux.epolls.get(watcher.epoll) else { return };
    let item = instance.lists().interest.item(watcher.item).copied();
    let (Some(item), Some(&epfd)) = (item, instance.fds.first()) else { return };
    let wanted = source.kernel_mask(item.events);
    if source == Source::Kernel {
        // From now on it is a kernel descriptor like any other: the program's own data goes into the real epoll.
        if item.kernel.is_some() {
            let _ = epoll_ctl(epfd, libc::EPOLL_CTL_DEL, watcher.fd, None);
        }
        instance.lists().interest.remove(watcher.item);
        let event = epoll_event { events: item.events, u64: item.data };
        if let Err(error) = epoll_ctl(epfd, libc::EPOLL_CTL_ADD, watcher.fd, Some(event)) {
            tracing::debug!(%error, fd = watcher.fd, "a socket left to the kernel cannot be watched there");
        }
        unlink(offload, Target::Socket(socket), |other| *other == watcher);
    } else if wanted != item.kernel {
        // EPOLLEXCLUSIVE forbids modifying: remove and add.
        let _ = set_kernel(instance, epfd, watcher, item.kernel, None).and_then(|()| set_kernel(instance, epfd, watcher, None, wanted));
    }
    if wanted.is_some() {
        offload.mux.has_kernel_members(watcher.epoll);
    }
}

/// Whether a program's own data could be taken for a token.
const fn looks_like_token(data: u64) -> bool {
    data >> TOKEN_TAG_SHIFT == TOKEN_TAG
}
