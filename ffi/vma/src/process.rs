//! The process's offloaded state: its rings, sockets and epoll instances, behind one lock (but for the data of plain connections, where there are several
//! rings: [`crate::rings`]).
//!
//! It is made by the first call that could use it, is never freed (a call may be under way in any thread), and is
//! replaced after a fork. If it cannot be made, the whole process stays on the kernel, and one log line says why.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock};

use ringway_devices::{MemberRef, Rendezvous, Ring, RxBuf};
use ringway_host::{Addresses, Clock, Pidfd};
use ringway_report::ClosedSockets;
use ringway_stack::device::LendBuffer;
use ringway_stack::offload::Reason;
use ringway_stack::ring::{FlowId, RingConfig};
use ringway_stack::tcp;
use ringway_stack::time::Instant;

use crate::extra::threads;
use crate::fork::sharing::Sharing;
use crate::interfaces::Interfaces;
use crate::lock::{Guard, Lock, Protected};
use crate::mux::Wakes;
use crate::params::{self, Params};
use crate::rings::{ProcessRing, RINGS_MAX, RingSet, Rings};
use crate::slab::Key;
use crate::socket::table::Sockets;
use crate::unseen::{self, Wiped};
use crate::{cancel, crash, fork, log, mux, report, rules};

/// The state, as every call finds it: gone in the child of a fork that nobody told of, so that it notices ([`unseen`]).
static PROCESS: Wiped<AtomicPtr<Process>> = Wiped::new(AtomicPtr::new(ptr::null_mut()));
/// The same, for such a child.
static STATE: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());
static FORKS: AtomicU32 = AtomicU32::new(0);
/// Set once the process is to stay on the kernel: nothing is tried again.
static DECLINED: OnceLock<Reason> = OnceLock::new();
/// Held while the state is made, and across a fork.
pub(crate) static INIT: Lock<()> = Lock::new(());

/// See the module's documentation.
pub(crate) struct Process {
    /// The process that made it. A vfork child shares this memory but not this id.
    pub(crate) owner_pid: i32,
    pub(crate) clock: Clock,
    pub(crate) params: &'static Params,
    /// What each ring is to its peers, by its number.
    rendezvous: [OnceLock<Arc<Rendezvous>>; RINGS_MAX],
    pub(crate) addresses: Addresses,
    /// What TCP connections start with.
    pub(crate) tcp_defaults: tcp::Config,
    /// Where the statistics are published.
    pub(crate) published: report::Published,
    /// The progress thread's own handle, so that exit and fork can reach it.
    pub(crate) progress: Mutex<Option<ringway_host::Progress>>,
    state: Lock<Offload>,
    /// The rings, by their numbers. (Behind what refers to them.)
    rings: [OnceLock<Box<Lock<ProcessRing>>>; RINGS_MAX],
}

/// What the lock protects.
pub(crate) struct Offload {
    pub(crate) rings: Rings,
    pub(crate) sockets: Sockets,
    pub(crate) mux: mux::State,
    /// Sums over closed sockets.
    pub(crate) closed: ClosedSockets,
    /// What was decided, per call and reason.
    pub(crate) decisions: Vec<Decided>,
    /// Addresses whose holders are being asked.
    pub(crate) greetings: Vec<crate::socket::greeting::Greeting>,
    /// Connections on their way to the kernel.
    pub(crate) moves: Vec<crate::moving::Move>,
    /// Of those, connections that leave together with their other ends.
    pub(crate) departures: crate::moving::together::Departures,
    /// How many connections over interfaces the kernel has taken over.
    pub(crate) to_kernel: u64,
    /// Connections on their way to another ring.
    pub(crate) migrations: crate::moving::migration::Migrations,
    /// What the kernel has no room for yet.
    pub(crate) backlogs: crate::moving::Backlogs,
    /// Connections that peers have just taken to the kernel.
    pub(crate) taken: Vec<crate::moving::Taken>,
    /// Connections that are the kernel's before they were accepted.
    pub(crate) unaccepted: std::collections::VecDeque<crate::moving::Unaccepted>,
    /// Some listener is, or was, another process's as well.
    pub(crate) shares_listeners: bool,
    /// A retreat from shared listeners is under way.
    pub(crate) retreating: bool,
    /// What children are to take over.
    /// A connection of the parent's that is on our ring and has no socket yet ([`crate::moving`]): its ends here and there.
    pub(crate) adopting: Option<(std::net::SocketAddr, std::net::SocketAddr)>,
    pub(crate) awaiting_child: Vec<crate::moving::awaiting_child::AwaitingChild>,
    /// What is kept for children.
    pub(crate) former_descriptors: Vec<crate::moving::FormerDescriptor>,
    /// Closed listeners whose waiting connections are on their way.
    pub(crate) retreats: u32,
    /// Since when connections wait at a listener that other processes share.
    pub(crate) waiting_since: Option<Instant>,
    /// Connections that the progress thread is to move to the kernel: a vfork child asked for them, or a peer sent urgent data.
    pub(crate) leaving: Vec<(Key, Reason)>,
    /// Whether children have our connections, too.
    pub(crate) sharing: Sharing,
    /// What is lent to the program.
    pub(crate) loans: crate::extra::Loans,
    /// What sees first what arrives.
    pub(crate) callbacks: crate::extra::Callbacks,
    /// The Extra API's rings.
    pub(crate) extra_rings: crate::extra::Rings,
    /// Those of them that are cyclic.
    pub(crate) cyclic: crate::extra::Cyclic,
    /// What SocketXtreme has lent.
    pub(crate) buffers: crate::extra::Buffers,
    /// The ports of connections whose program named none.
    pub(crate) ports: crate::socket::ports::Ports,
    /// What accepted connections have in common.
    pub(crate) option_sets: crate::socket::common::OptionSets,
    /// The process has closed everything, for it ends: nothing begins to move any more.
    pub(crate) ending: bool,
    /// The rings of interfaces, if there are any, and what they need of the kernel.
    pub(crate) interfaces: Option<Box<Interfaces>>,
    /// Those that another process has had so far.
    pub(crate) late: crate::interfaces::late::Late,
    /// Groups that come by them.
    pub(crate) groups: crate::socket::groups::claims::Claims,
    pub(crate) shared_ports: crate::socket::shared_ports::SharedPorts,
    /// Rings that other processes are shown.
    pub(crate) captures: Vec<crate::capture::Capture>,
    /// The process that inherited sockets come from, while it holds rules that are to be had when it ends.
    pub(crate) parent: Option<Pidfd>,
}

/// How often one call was decided in one way; no reason: it was offloaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided {
    pub(crate) what: &'static str,
    pub(crate) reason: Option<Reason>,
    pub(crate) count: u64,
}

/// The process's state, if it has any.
#[inline]
pub(crate) fn process() -> Option<&'static Process> {
    // SAFETY: what the pointer names is leaked on purpose, so it lives for ever.
    let found = unsafe { PROCESS.load(Ordering::Acquire).as_ref() };
    if found.is_none() {
        unseen::look();
    }
    found
}

/// Lets the kernel take the state away from a child.
pub(crate) fn wipe_on_fork() -> bool {
    PROCESS.wipe_on_fork()
}

/// The process's state, made if there is none. `None`: the process runs on the kernel.
pub(crate) fn process_or_init() -> Option<&'static Process> {
    if let Some(process) = process() {
        return Some(process);
    }
    if DECLINED.get().is_some() {
        return None;
    }
    init()
}

/// How often this process has been forked off from one with offloaded state, plus one for each generation.
#[inline]
pub(crate) fn fork_generation() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// The state of a parent, taken away from the child of a fork.
pub(crate) fn take_for_child() -> Option<&'static Process> {
    FORKS.fetch_add(1, Ordering::Relaxed);
    PROCESS.store(ptr::null_mut(), Ordering::Release);
    let old = STATE.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: leaked, as in `process`.
    unsafe { old.as_ref() }
}

/// In the child of a fork that nobody told of: its parent's state.
pub(crate) fn state_of_the_dead() -> Option<&'static Process> {
    // SAFETY: leaked, as in `process`.
    unsafe { STATE.load(Ordering::Acquire).as_ref() }
}

/// Whether the process stays on the kernel for good.
pub(crate) fn is_declined() -> bool {
    DECLINED.get().is_some()
}

/// Leaves the process on the kernel from now on.
pub(crate) fn decline(reason: Reason, detail: &str) {
    if DECLINED.set(reason).is_ok() {
        log::declined(reason, detail);
    }
}

#[cold]
fn init() -> Option<&'static Process> {
    // A handler that interrupted this very function makes do with the kernel.
    if INIT.is_mine() {
        return None;
    }
    let _masked = cancel::Masked::new();
    let _one_at_a_time = INIT.lock();
    if let Some(process) = process() {
        return Some(process);
    }
    if DECLINED.get().is_some() {
        return None;
    }
    if !threads::any_wants_offload() {
        // (For now: a thread's sockets may be wanted later.)
        static TOLD: Once = Once::new();
        TOLD.call_once(|| log::declined(Reason::SwitchedOff, "VMA_OFFLOADED_SOCKETS=0; unset it, or set it to 1"));
        return None;
    }
    match make() {
        Ok(process) => Some(process),
        Err((reason, detail)) => {
            decline(reason, &detail);
            None
        }
    }
}

fn make() -> Result<&'static Process, (Reason, String)> {
    let params = params::read();
    log::start();
    if params.handle_sigsegv {
        crash::install();
    }
    if params.lend_copies {
        RxBuf::lend_copies();
    }
    params::admissible()?;
    rules::load();
    let no_resources = |e: &dyn core::fmt::Display| (Reason::NoResources, e.to_string());

    let clock = Clock::new();
    let (device, rendezvous) = params.shared_memory().attach().map_err(|e| no_resources(&e))?;
    let capabilities = device.capabilities();
    let tcp_defaults = params.tcp_defaults(capabilities.mtu, capabilities.gather_max);
    let config = RingConfig { batch: params.cq_poll_batch_max, ..RingConfig::default() };
    let ring = boxed(Ring::new(device, config, params::random_seed().map_err(|e| no_resources(&e))?));
    // SAFETY: it lies in the process's table, which goes after what refers to it, if ever.
    let own = unsafe { &*ptr::from_ref(&*ring) };
    let made = Box::into_raw(Box::new(Process {
        owner_pid: unseen::own_pid(),
        clock,
        params,
        published: report::Published::new(&rendezvous.member_name()),
        rendezvous: first(rendezvous),
        addresses: Addresses::new(),
        tcp_defaults,
        progress: Mutex::new(None),
        state: Lock::new(Offload {
            rings: Rings::new(own),
            sockets: Sockets::new(),
            mux: mux::State::default(),
            closed: ClosedSockets::default(),
            decisions: Vec::new(),
            greetings: Vec::new(),
            moves: Vec::new(),
            departures: crate::moving::together::Departures::default(),
            to_kernel: 0,
            migrations: crate::moving::migration::Migrations::default(),
            backlogs: crate::moving::Backlogs::default(),
            taken: Vec::new(),
            unaccepted: std::collections::VecDeque::new(),
            leaving: Vec::new(),
            sharing: Sharing::default(),
            waiting_since: None,
            retreating: false,
            loans: crate::extra::Loans::new(),
            callbacks: crate::extra::Callbacks::default(),
            extra_rings: crate::extra::Rings::new(params::settings()),
            cyclic: crate::extra::Cyclic::default(),
            buffers: crate::extra::Buffers::default(),
            ending: false,
            ports: crate::socket::ports::Ports::default(),
            option_sets: crate::socket::common::OptionSets::default(),
            shares_listeners: false,
            adopting: None,
            awaiting_child: Vec::new(),
            former_descriptors: Vec::new(),
            retreats: 0,
            interfaces: None,
            late: crate::interfaces::late::Late::default(),
            groups: crate::socket::groups::claims::Claims::default(),
            shared_ports: crate::socket::shared_ports::SharedPorts::default(),
            captures: Vec::new(),
            parent: None,
        }),
        rings: first(ring),
    }));
    // SAFETY: made just now, and freed below only where nobody has come to know of it.
    let process: &'static Process = unsafe { &*made };
    report::serve(process);
    crate::moving::serve(process, process.rendezvous());
    Interfaces::attach(process);
    let progress = match mux::progress::start(process) {
        Ok(progress) => progress,
        Err(error) => {
            process.published.withdraw();
            // What it has is the program's again: descriptors, above all, for it may have been those that there were too few of.
            // SAFETY: from `Box::into_raw`. There is no thread, and what has the reference is what its rendezvous answers with, which only that
            // thread calls, and which ends with it.
            drop(unsafe { Box::from_raw(made) });
            return Err(no_resources(&error));
        }
    };
    *process.progress.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(progress);
    STATE.store(ptr::from_ref(process).cast_mut(), Ordering::Release);
    PROCESS.store(ptr::from_ref(process).cast_mut(), Ordering::Release);
    fork::adopt(process);
    log::offloading(process);
    Ok(process)
}

/// A ring where it is to stay.
fn boxed(ring: Ring) -> Box<Lock<ProcessRing>> {
    Box::new(Lock::new(ProcessRing::new(ring)))
}

/// A table of what there may be several of, with the first.
fn first<T>(first: T) -> [OnceLock<T>; RINGS_MAX] {
    let mut table = [const { OnceLock::new() }; RINGS_MAX];
    table[0] = first.into();
    table
}

impl Process {
    /// What the ring that has a flow is to its peers.
    #[inline]
    pub(crate) fn rendezvous_of(&self, flow: FlowId) -> &Arc<Rendezvous> {
        self.rendezvous_at(flow.ring)
    }

    /// As [`Process::rendezvous_of`], by the ring's number.
    #[inline]
    pub(crate) fn rendezvous_at(&self, ring: u16) -> &Arc<Rendezvous> {
        // (It is there before the ring is.)
        self.rendezvous[usize::from(ring)].get().unwrap_or_else(|| self.rendezvous())
    }

    /// That of the ring which the process began with, and is known by.
    pub(crate) fn rendezvous(&self) -> &Arc<Rendezvous> {
        self.rendezvous[0].get().expect("it is made with the process")
    }

    /// A ring of that number is there from now on.
    pub(crate) fn add_ring(&'static self, number: u16, ring: Ring, rendezvous: Arc<Rendezvous>) -> &'static Lock<ProcessRing> {
        crate::moving::serve(self, &rendezvous);
        let _ = self.rendezvous[usize::from(number)].set(rendezvous);
        self.add_ring_of_interface(number, ring)
    }

    /// The same, of one that no peer has to find.
    pub(crate) fn add_ring_of_interface(&'static self, number: u16, ring: Ring) -> &'static Lock<ProcessRing> {
        self.rings[usize::from(number)].get_or_init(|| boxed(ring))
    }

    /// A ring, for who needs no more than that, and has not the process's lock.
    #[inline]
    pub(crate) fn ring(&self, number: u16) -> Option<&Lock<ProcessRing>> {
        self.rings.get(usize::from(number))?.get().map(|ring| &**ring)
    }

    /// Whether it has more than one.
    #[inline]
    pub(crate) fn has_several_rings(&self) -> bool {
        self.rings[1].get().is_some()
    }

    /// Whether the calling thread has the process's lock, or a ring's. Async-signal-safe.
    pub(crate) fn has_lock(&self) -> bool {
        self.state.is_mine() || self.rings.iter().map_while(OnceLock::get).any(|ring| ring.is_mine())
    }

    /// Whether no thread has any of its locks.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.state.is_free() && self.rings.iter().map_while(OnceLock::get).all(|ring| ring.is_free())
    }

    /// Whether one of its rings is known by that name.
    pub(crate) fn is_own(&self, member: &MemberRef) -> bool {
        self.rendezvous_of_all().any(|own| own.member_ref() == *member)
    }

    /// What its rings are known by.
    pub(crate) fn own_members(&self) -> Vec<u64> {
        self.rendezvous_of_all().map(|own| own.member_ref().id()).collect()
    }

    /// Of each ring.
    pub(crate) fn rendezvous_of_all(&self) -> impl Iterator<Item = &Rendezvous> {
        // (A ring on an interface has none.)
        self.rendezvous.iter().filter_map(|rendezvous| rendezvous.get().map(|rendezvous| &**rendezvous))
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, Offload> {
        self.state.lock()
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, Offload>> {
        self.state.try_lock()
    }

    /// The lock itself, for the fork handlers.
    pub(crate) const fn state(&self) -> &Lock<Offload> {
        &self.state
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Whether the calling process is the one that this state belongs to: false in a vfork child. Costs a system call.
    pub(crate) fn is_owner(&self) -> bool {
        self.owner_pid == unseen::ask_pid()
    }

    /// As [`Process::is_owner`], for calls that a program makes with each connection: costs a system call once there was such a child.
    #[inline]
    pub(crate) fn is_callers(&self) -> bool {
        self.owner_pid == unseen::own_pid()
    }
}

impl Protected for Offload {
    type Left = Wakes;

    #[inline]
    fn let_go(&mut self) -> Option<Wakes> {
        self.rings.let_go();
        self.mux.take_wakes()
    }

    fn done(wakes: Wakes) {
        wakes.signal();
    }
}

impl Offload {
    /// Polls the rings that have anything to do, and hands their events on.
    #[inline]
    pub(crate) fn poll_if_due(&mut self, now: Instant) {
        self.poll_these(self.rings.all(), now);
    }

    /// As [`Offload::poll_if_due`], some of them.
    #[inline]
    pub(crate) fn poll_these(&mut self, rings: RingSet, now: Instant) {
        let mut has_polled = false;
        for ring in rings.iter() {
            let own = self.rings.at_mut(ring);
            if own.ring.is_due(now) {
                own.poll(now);
                has_polled = true;
            }
            // (A thread that had the ring's lock alone may have polled what nobody was told of yet.)
            has_polled |= own.has_events();
        }
        if has_polled {
            self.dispatch();
        }
    }

    /// Whether nothing of the process's waits for the progress thread but what its rings have.
    pub(crate) fn has_nothing_to_look_after(&self) -> bool {
        let has_left = self.leaving.is_empty() && self.awaiting_child.is_empty() && self.former_descriptors.is_empty();
        has_left && self.parent.is_none() && !self.shares_listeners && crate::descendants::forks() == 0
    }

    /// [`Offload::poll_if_due`], before a call answers from what the ring knows. Not where the program takes the ring's events itself
    /// (SocketXtreme): they are told in the polls that it asks for.
    #[inline]
    pub(crate) fn catch_up(&mut self, now: Instant) {
        if !self.is_heard() {
            self.poll_if_due(now);
        }
    }

    /// Our socket that stands above a flow.
    #[inline]
    pub(crate) fn socket_of(&self, flow: FlowId) -> Option<u32> {
        let index = self.rings.socket_above(flow)?;
        let socket = self.sockets.get(index)?;
        socket.has_flow(flow).then_some(index)
    }

    /// Remembers which of our sockets stands above a flow.
    pub(crate) fn link(&mut self, flow: FlowId, index: u32) {
        self.rings.put_above(flow, index);
        if let Some(socket) = self.sockets.get(index) {
            socket.watch.concerns(&mut self.mux, RingSet::of(flow.ring));
        }
        if let Some(key) = self.sockets.key_at(index) {
            self.begin_filter(key);
        }
        self.put_on_ring(flow, index);
    }

    /// Counts a decision for (`None`) or against offloading.
    pub(crate) fn decided(&mut self, what: &'static str, reason: Option<Reason>) {
        match self.decisions.iter_mut().find(|d| d.what == what && d.reason == reason) {
            Some(decision) => decision.count += 1,
            None => self.decisions.push(Decided { what, reason, count: 1 }),
        }
    }

    /// Leaves a socket to the kernel for good.
    pub(crate) fn leave_to_kernel(&mut self, key: Key, what: &'static str, reason: Reason) {
        self.decided(what, Some(reason));
        self.leave_rings(key.index);
        let Some(socket) = self.sockets.find_mut(key) else { return };
        socket.kind = crate::socket::Kind::Kernel;
        socket.reason = Some(reason);
        for (fd, entry) in descriptors_of(socket.fd, socket.fds, key) {
            // (One that is being closed is out of the table already, and stays so.)
            if entry.socket() == Some(key) {
                crate::fdtable::change_if(fd, entry, crate::fdtable::Entry::Kernel(key));
            }
        }
        mux::refresh(self, key.index);
        self.follow_to_kernel(key);
    }
}

/// The descriptors of a socket: the one it knows, or all of them by a walk over the table if it was duplicated.
fn descriptors_of(fd: i32, fds: u32, key: Key) -> Vec<(i32, crate::fdtable::Entry)> {
    if fds == 1 {
        return vec![(fd, crate::fdtable::peek(fd))];
    }
    crate::fdtable::entries().filter(|(_, entry)| entry.socket() == Some(key)).collect()
}
