//! The interface as a card: its flow rules, in the map that the program in front of it looks up.

mod landing;

pub use self::landing::Landing;

use core::sync::atomic::AtomicBool;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ringway_host::{Fd, Lender};
use ringway_stack::device::{
    Attached, Capabilities, Device, FiveTuple, FlowRule, OpenError, QueueId, QueuesConfig, RuleError, RuleId, Steering, Target,
};
use ringway_stack::offload::DeviceKind;

use crate::broker::client::Client;
use crate::error::AttachError;
use crate::front::{Program, RULES_MAX};
use crate::interface::Interface;
use crate::key::{self, Key};
use crate::loan::{Loan, Prepared};
use crate::metadata;
use crate::queues::XdpQueues;
use crate::rss::Rss;
use crate::rules::Rules;
use crate::settings::Settings;
use crate::strays::Exchange;
use crate::tso::{self, Segmenter};
use crate::watch::{self, Watch};

/// Connections of one interface that are left to the kernel. Of more, the oldest is forgotten, which has ended by then, most likely.
const EXEMPT_MAX: usize = 1 << 14;
/// Queues of one interface that are served.
pub(crate) const QUEUES_MAX: u32 = 64;

/// An interface.
#[derive(Clone, Debug)]
pub struct XdpDevice(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    capabilities: Capabilities,
    interface: Interface,
    /// The queues of it that are served. Invariant: there is one.
    served: Vec<u32>,
    settings: Settings,
    front: Front,
    /// By which what is to be cut leaves, where something may be.
    segmenter: Option<Segmenter>,
    /// How it spreads what it receives, and when it was asked.
    rss: Mutex<Option<(Option<Rss>, Instant)>>,
    /// Something was noted that [`XdpDevice::take_landings`] has yet to tell.
    has_landings: AtomicBool,
    watch: Watch,
    state: Mutex<State>,
}

/// What is in front of the interface.
#[derive(Debug)]
enum Front {
    /// The process's own program.
    Own(Program),
    /// A broker's, which serves this process.
    Lent(Arc<Client>),
}

#[derive(Debug, Default)]
struct State {
    rules: Rules,
    /// Connections that are the kernel's, whatever other rule matches them: the oldest first.
    exempt: VecDeque<Key>,
    /// The rings that there are, a bit for each.
    rings: u64,
    /// Of how many the interface's queues are.
    count: u32,
    /// For the next ring that is lent, if a queue was not free for the last one.
    prepared: Option<Prepared>,
}

impl State {
    /// The ring that is meant, which has one queue of frames.
    fn ring(&self, target: Target) -> Result<u32, RuleError> {
        match target {
            Target::Queue(QueueId(ring)) if ring < u64::BITS && self.rings & 1 << ring != 0 => Ok(ring),
            _ => Err(RuleError::NoQueue),
        }
    }

    fn end_exemption(&mut self, program: &Program, key: &Key) {
        if let Some(at) = self.exempt.iter().position(|known| known == key) {
            self.exempt.remove(at);
            let _ = program.end(key);
        }
    }

    fn exempt(&mut self, program: &Program, key: Key) -> bool {
        self.end_exemption(program, &key);
        if self.exempt.len() == EXEMPT_MAX
            && let Some(oldest) = self.exempt.pop_front()
        {
            let _ = program.end(&oldest);
        }
        let is_left = program.leave(&key).is_ok();
        if is_left {
            self.exempt.push_back(key);
        }
        is_left
    }
}

impl Shared {
    /// A rule for a flow, whichever way.
    fn insert(&self, state: &mut State, flow: &FiveTuple) -> Result<(), RuleError> {
        match &self.front {
            Front::Own(program) => {
                let key = key::of(flow);
                state.end_exemption(program, &key);
                program.steer(&key).map_err(|error| match error.raw_os_error() {
                    Some(libc::EEXIST) => RuleError::Taken,
                    _ => RuleError::Full,
                })
            }
            Front::Lent(client) => client.attach(flow),
        }
    }

    fn remove(&self, flow: &FiveTuple) {
        let removed = match &self.front {
            Front::Own(program) => program.end(&key::of(flow)),
            Front::Lent(client) => client.detach(flow),
        };
        // (Of an interface that is gone there are none any more.)
        if let Err(error) = removed
            && !self.watch.is_gone()
        {
            tracing::warn!("{}: a flow rule does not end: {error}", self.settings.interface);
        }
    }
}

impl XdpDevice {
    /// What there is one of.
    pub(crate) const A_RING: &str = "a ring";

    /// Puts the program in front of an interface of this network namespace. It steers nothing before it has rules, and everything is the kernel's again
    /// once all handles and rings are gone, whatever they end by.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach(settings: &Settings) -> Result<Self, AttachError> {
        let interface = Interface::find(&settings.interface)?;
        let served = served(settings, &interface)?;
        let program = Program::attach(&interface, served[0], settings.queues.is_some())?;
        Self::new(settings, interface, served, Front::Own(program))
    }

    /// Has a broker attach to it, which listens there, and gives this process the ring.
    ///
    /// # Errors
    /// [`AttachError::NotLent`]; [`AttachError::NoInterface`], [`AttachError::NotEthernet`].
    pub fn attach_by(broker: &Path, settings: &Settings) -> Result<Self, AttachError> {
        let interface = Interface::find(&settings.interface)?;
        let client = Client::open(broker, &settings.interface)
            .map_err(|why| AttachError::NotLent { broker: broker.to_owned(), why: Box::new(why) })?;
        let served = (0..interface.queues.min(QUEUES_MAX)).collect();
        Self::new(settings, interface, served, Front::Lent(Arc::new(client)))
    }

    fn new(settings: &Settings, interface: Interface, served: Vec<u32>, front: Front) -> Result<Self, AttachError> {
        let watch = Watch::new().map_err(AttachError::system("timerfd_create"))?;
        // (Who has the interface from a broker has no packet socket.)
        let may_cut = settings.segmentation && interface.is_virtual && matches!(front, Front::Own(_));
        let segmenter = if may_cut {
            Segmenter::open(interface.index).inspect_err(|error| tracing::debug!("no segmentation: {error}")).ok()
        } else {
            None
        };
        // (What a broker lends it has registered.)
        let tx_checksum = settings.checksums && matches!(front, Front::Own(_)) && metadata::is_offered(&interface);
        let capabilities = Capabilities {
            tx_checksum,
            gather_max: ringway_stack::device::GATHER_LIMIT,
            is_beside_kernel: true,
            lends_heads: true,
            lro: settings.segmentation,
            rules_max: RULES_MAX as usize,
            rings_max: served.len(),
            steering: Steering::IPV6,
            tso_max: segmenter.as_ref().map(|_| tso::FRAME_MAX),
            ..Capabilities::least(DeviceKind::Xdp, interface.mtu)
        };
        Ok(Self(Arc::new(Shared {
            capabilities,
            interface,
            served,
            settings: settings.clone(),
            front,
            segmenter,
            rss: Mutex::default(),
            has_landings: AtomicBool::new(false),
            watch,
            state: Mutex::default(),
        })))
    }

    /// The broker that does in this process's stead what takes privileges, if it has the ring from one, which is there.
    pub fn lender(&self) -> Option<Arc<dyn Lender>> {
        match &self.0.front {
            Front::Lent(client) if !client.is_gone() => Some(Arc::clone(client) as Arc<dyn Lender>),
            _ => None,
        }
    }

    /// For a broker: what another process's ring is made of. The ring's place is taken until [`XdpDevice::leave`].
    ///
    /// # Errors
    /// As [`XdpDevice::open_ring`].
    pub(crate) fn lend_ring(&self) -> Result<(Loan, Arc<Fd>), AttachError> {
        let Front::Own(program) = &self.0.front else { return Err(AttachError::Taken { what: Self::A_RING }) };
        let lend = || {
            let mut prepared = self.state().prepared.take();
            let loan = Loan::make(self, &self.0.settings, &mut prepared);
            self.state().prepared = prepared;
            loan
        };
        self.take(1, lend).map(|loan| (loan, program.link()))
    }

    /// What a broker has lent this process, once.
    pub(crate) fn loan(&self) -> Option<Result<Loan, AttachError>> {
        match &self.0.front {
            Front::Own(_) => None,
            Front::Lent(client) => Some(client.loan().ok_or(AttachError::Taken { what: Self::A_RING })),
        }
    }

    /// Whether the program is still in front of the interface of that name, which has as many queues as it had.
    pub(crate) fn is_in_front(&self) -> bool {
        let Front::Own(program) = &self.0.front else { return false };
        Interface::find(&self.0.settings.interface).is_ok_and(|found| {
            let is_same = (found.index, found.queues) == (self.interface().index, self.interface().queues);
            is_same && program.front() == watch::Front::Ours
        })
    }

    /// Whether the interface is gone for this process, for good.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.0.watch.is_gone()
    }

    /// What is to be looked at now and then: whether the program is there still.
    #[inline]
    pub(crate) fn watch(&self) -> &Watch {
        &self.0.watch
    }

    /// Looks whether the program is in front of the interface still, and does what there is to be done where it is not. `is_unbound`: the socket of a ring says that the interface
    /// is gone.
    #[cold]
    pub(crate) fn look(&self, now: ringway_stack::time::Instant, is_unbound: bool) {
        let front = || match &self.0.front {
            _ if is_unbound => watch::Front::NoInterface,
            Front::Own(program) => program.front(),
            Front::Lent(client) => client.front(),
        };
        let attach = || match &self.0.front {
            Front::Own(program) => program.attach_again(self.interface()),
            Front::Lent(_) => Err(io::Error::other("it is a broker's, who puts it there for the next program")),
        };
        if self.0.watch.look(now, &self.0.settings.interface, front, attach)
            && let Front::Own(program) = &self.0.front
        {
            // (Should it come back by somebody's hand, it is to keep nothing from the kernel.)
            program.clear();
        }
    }

    fn take<T>(&self, count: u32, open: impl FnOnce() -> Result<T, AttachError>) -> Result<T, AttachError> {
        {
            let mut state = self.state();
            if state.rings != 0 {
                return Err(AttachError::Taken { what: Self::A_RING });
            }
            (state.rings, state.count) = (u64::MAX >> (u64::BITS - count), count);
        }
        open().inspect_err(|_| self.state().rings = 0)
    }

    /// As [`Device::open`], which cannot say as much of why not: the interface's only ring, which has all of its queues.
    ///
    /// # Errors
    /// [`AttachError`]; [`AttachError::Taken`]: there is a ring already.
    pub fn open_ring(&self) -> Result<XdpQueues, AttachError> {
        self.take(1, || XdpQueues::open(self, &self.0.settings, 0, None))
    }

    /// Opens all rings that the interface is to have, among which its queues are shared out: as many as are asked for, but no more than there are queues, and at least one. Of a
    /// broker's, there is one. What they have to send from is shared out as well.
    ///
    /// # Errors
    /// As [`XdpDevice::open_ring`].
    pub fn open_rings(&self, count: u32) -> Result<Vec<XdpQueues>, AttachError> {
        let count = if matches!(self.0.front, Front::Own(_)) { count.clamp(1, self.queues()) } else { 1 };
        self.take(count, || {
            let exchange = if count > 1 { Some(Arc::new(Exchange::new(count).map_err(AttachError::system("eventfd"))?)) } else { None };
            (0..count).map(|ring| XdpQueues::open(self, &self.0.settings, ring, exchange.clone())).collect()
        })
    }

    /// How many rings the interface's queues are shared out among.
    pub(crate) fn rings(&self) -> u32 {
        self.state().count
    }

    /// The queues of a ring.
    pub(crate) fn queues_of(&self, ring: u32) -> impl Iterator<Item = u32> {
        self.0.served.iter().copied().skip(ring as usize).step_by(self.rings() as usize)
    }

    /// Whether others have queues of the interface, or nobody has.
    pub fn is_partial(&self) -> bool {
        self.0.served.len() < self.interface().queues as usize
    }

    pub(crate) fn interface(&self) -> &Interface {
        &self.0.interface
    }

    /// Whether segments that come one behind the other go up as one.
    pub(crate) fn coalesces(&self) -> bool {
        self.0.settings.segmentation
    }

    /// By which what is to be cut leaves, where something may be ([`Capabilities::tso_max`]).
    pub(crate) fn segmenter(&self) -> Option<&Segmenter> {
        self.0.segmenter.as_ref()
    }

    /// The sockets of a ring take their places: one for each of its queues.
    pub(crate) fn place(&self, ring: u32, sockets: impl Iterator<Item = RawFd>) -> io::Result<()> {
        let Front::Own(program) = &self.0.front else { return Ok(()) };
        // (Who has the first queue is the owner.)
        if ring == 0 {
            program.clear();
        }
        self.queues_of(ring).zip(sockets).try_for_each(|(queue, socket)| program.place(queue, socket))
    }

    /// Checksums of what is sent are left to the interface.
    pub(crate) fn leaves_checksums(&self) -> bool {
        self.0.capabilities.tx_checksum
    }

    /// Queues of the interface that are served.
    pub fn queues(&self) -> u32 {
        self.0.served.len() as u32
    }

    /// All that the interface has.
    pub fn queues_there(&self) -> u32 {
        self.interface().queues
    }

    /// A ring is no more: its rules end with it.
    pub(crate) fn leave(&self, ring: u32) {
        let mut state = self.state();
        state.rings &= !(1 << ring);
        let rules = state.rules.remove_all(ring);
        let is_last = state.rings == 0;
        match &self.0.front {
            Front::Own(program) => {
                rules.iter().for_each(|flow| self.0.remove(flow));
                let exempt = if is_last { core::mem::take(&mut state.exempt) } else { VecDeque::new() };
                exempt.iter().for_each(|key| drop(program.end(key)));
                // (The kernel takes a socket out that is closed.)
            }
            // (With the connection the rules end.)
            Front::Lent(client) => client.end(),
        }
    }

    /// Rules that steer now.
    pub fn rules(&self) -> usize {
        self.state().rules.len()
    }

    /// Has the frames of a connection go to the kernel from now on, whatever rule matches its listener's. Until the connection has a rule again. Whether they do.
    pub fn leave_to_kernel(&self, flow: &FiveTuple) -> bool {
        match &self.0.front {
            Front::Own(program) => self.state().exempt(program, key::of(flow)),
            Front::Lent(client) => client.leave_to_kernel(flow),
        }
    }

    /// Whether that connection is left to the kernel.
    pub(crate) fn is_left(&self, flow: &FiveTuple) -> bool {
        self.state().exempt.contains(&key::of(flow))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for XdpDevice {
    type Queues = XdpQueues;

    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    fn open(&self, config: &QueuesConfig) -> Result<XdpQueues, OpenError> {
        // (What no rule steers is the kernel's, whatever a ring asks for.)
        let _ = config;
        self.open_ring().map_err(|error| {
            tracing::warn!("{}: {error}", self.0.settings.interface);
            OpenError::Full
        })
    }

    fn attach(&self, rule: &FlowRule, target: Target) -> Result<Attached, RuleError> {
        let flow = rule.as_five_tuple().ok_or_else(|| self.0.capabilities.lacks("rules but those of sockets"))?;
        if self.is_gone() {
            return Err(RuleError::Full);
        }
        let mut state = self.state();
        let ring = state.ring(target)?;
        if state.rules.may_have(&flow, ring)? {
            self.0.insert(&mut state, &flow)?;
        }
        Ok(Attached { rule: state.rules.add(flow, ring), is_ready: true })
    }

    fn retarget(&self, rule: RuleId, target: Target, tag: u32) -> Result<(), RuleError> {
        if tag != 0 {
            return Err(self.0.capabilities.lacks("flow tags").into());
        }
        let mut state = self.state();
        let ring = state.ring(target)?;
        state.rules.retarget(rule, ring)
    }

    fn detach(&self, rule: RuleId) {
        let mut state = self.state();
        if let Some(flow) = state.rules.remove(rule) {
            self.0.remove(&flow);
        }
    }
}

/// The queues of an interface that are to be served.
fn served(settings: &Settings, interface: &Interface) -> Result<Vec<u32>, AttachError> {
    let there = interface.queues.min(QUEUES_MAX);
    let (first, last) = settings.queues.unwrap_or((0, there - 1));
    if last >= there || first > last {
        return Err(AttachError::NoQueue { interface: settings.interface.clone(), asked: last, there });
    }
    Ok((first..=last).collect())
}
