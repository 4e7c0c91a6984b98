//! The interface as a card: its flow rules, in the map that the program in front of it looks up.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::RawFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_host::{Fd, Lender};
use ringway_stack::device::{
    Attached, Capabilities, Device, FiveTuple, FlowRule, OpenError, QueueId, QueuesConfig, RuleError, RuleId, Steering, Target,
};
use ringway_stack::offload::DeviceKind;

use crate::bpf::{self, Map};
use crate::broker::client::Client;
use crate::error::AttachError;
use crate::interface::Interface;
use crate::key::{self, Key};
use crate::loan::{Loan, Prepared};
use crate::program::program;
use crate::queues::XdpQueues;
use crate::settings::Settings;

/// Flow rules of one interface.
const RULES_MAX: u32 = 1 << 16;
/// Connections of one interface that are left to the kernel. Of more, the oldest is forgotten, which has ended by then, most likely.
const EXEMPT_MAX: usize = 1 << 14;
/// What a rule's value says: the frame is the ring's, or the kernel's.
const STEERED: u32 = 0;
const LEFT: u32 = 1;
/// Queues of one interface that are served.
pub(crate) const QUEUES_MAX: u32 = 64;

/// An interface.
#[derive(Clone, Debug)]
pub struct XdpDevice(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    capabilities: Capabilities,
    interface: Interface,
    settings: Settings,
    front: Front,
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

#[derive(Debug)]
struct Program {
    rules: Map,
    sockets: Map,
    /// The program is in front of the interface as long as this is open.
    link: Fd,
}

#[derive(Debug, Default)]
struct State {
    rules: BTreeMap<u64, FiveTuple>,
    /// Connections that are the kernel's, whatever other rule matches them: the oldest first.
    exempt: VecDeque<Key>,
    last: u64,
    /// There is a ring.
    is_taken: bool,
    /// For the next ring that is lent, if a queue was not free for the last one.
    prepared: Option<Prepared>,
}

impl State {
    /// Whether that is the ring, which has one queue of frames.
    fn has(&self, target: Target) -> bool {
        self.is_taken && target == Target::Queue(QueueId(0))
    }
}

impl Shared {
    /// A rule for a flow, whichever way.
    fn insert(&self, state: &mut State, flow: &FiveTuple) -> Result<(), RuleError> {
        match &self.front {
            Front::Own(program) => {
                let key = key::of(flow);
                program.end_exemption(state, &key);
                program.rules.insert(&key, STEERED).map_err(|error| match error.raw_os_error() {
                    Some(libc::EEXIST) => RuleError::Taken,
                    _ => RuleError::Full,
                })
            }
            Front::Lent(client) => client.attach(flow),
        }
    }

    fn remove(&self, flow: &FiveTuple) {
        let removed = match &self.front {
            Front::Own(program) => program.rules.remove(&key::of(flow)),
            Front::Lent(client) => client.detach(flow),
        };
        if let Err(error) = removed {
            tracing::warn!("{}: a flow rule does not end: {error}", self.settings.interface);
        }
    }
}

impl Program {
    fn end_exemption(&self, state: &mut State, key: &Key) {
        if let Some(at) = state.exempt.iter().position(|known| known == key) {
            state.exempt.remove(at);
            let _ = self.rules.remove(key);
        }
    }

    fn exempt(&self, state: &mut State, key: Key) -> bool {
        self.end_exemption(state, &key);
        if state.exempt.len() == EXEMPT_MAX
            && let Some(oldest) = state.exempt.pop_front()
        {
            let _ = self.rules.remove(&oldest);
        }
        let is_left = self.rules.insert(&key, LEFT).is_ok();
        if is_left {
            state.exempt.push_back(key);
        }
        is_left
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
        let queues = interface.queues.min(QUEUES_MAX);
        let rules = Map::hash(key::LEN, RULES_MAX).map_err(AttachError::system("BPF_MAP_CREATE of flow rules"))?;
        let sockets = Map::sockets(queues).map_err(AttachError::system("BPF_MAP_CREATE of sockets"))?;
        let loaded = bpf::load(&program(rules.fd(), sockets.fd())).map_err(AttachError::system("BPF_PROG_LOAD"))?;
        let link = bpf::attach(&loaded, interface.index).map_err(AttachError::system("BPF_LINK_CREATE"))?;
        Ok(Self::new(settings, interface, Front::Own(Program { rules, sockets, link })))
    }

    /// Has a broker attach to it, which listens there, and gives this process the ring.
    ///
    /// # Errors
    /// [`AttachError::NotLent`]; [`AttachError::NoInterface`], [`AttachError::NotEthernet`].
    pub fn attach_by(broker: &Path, settings: &Settings) -> Result<Self, AttachError> {
        let interface = Interface::find(&settings.interface)?;
        let client = Client::open(broker, &settings.interface)
            .map_err(|why| AttachError::NotLent { broker: broker.to_owned(), why: Box::new(why) })?;
        Ok(Self::new(settings, interface, Front::Lent(Arc::new(client))))
    }

    fn new(settings: &Settings, interface: Interface, front: Front) -> Self {
        let capabilities = Capabilities {
            gather_max: ringway_stack::device::GATHER_LIMIT,
            is_beside_kernel: true,
            lends_heads: true,
            rules_max: RULES_MAX as usize,
            steering: Steering::IPV6,
            ..Capabilities::least(DeviceKind::Xdp, interface.mtu)
        };
        Self(Arc::new(Shared { capabilities, interface, settings: settings.clone(), front, state: Mutex::default() }))
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
    pub(crate) fn lend_ring(&self) -> Result<(Loan, RawFd), AttachError> {
        let Front::Own(program) = &self.0.front else { return Err(AttachError::Taken { what: Self::A_RING }) };
        let lend = || {
            let mut prepared = self.state().prepared.take();
            let loan = Loan::make(self, &self.0.settings, &mut prepared);
            self.state().prepared = prepared;
            loan
        };
        self.take(lend).map(|loan| (loan, program.link.raw()))
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
            found.queues == self.interface().queues && bpf::interface_of(&program.link).is_ok_and(|of| of == found.index)
        })
    }

    fn take<T>(&self, open: impl FnOnce() -> Result<T, AttachError>) -> Result<T, AttachError> {
        if core::mem::replace(&mut self.state().is_taken, true) {
            return Err(AttachError::Taken { what: Self::A_RING });
        }
        open().inspect_err(|_| self.state().is_taken = false)
    }

    /// As [`Device::open`], which cannot say as much of why not.
    ///
    /// # Errors
    /// [`AttachError`]; [`AttachError::Taken`]: there is a ring already.
    pub fn open_ring(&self) -> Result<XdpQueues, AttachError> {
        self.take(|| XdpQueues::open(self, &self.0.settings))
    }

    pub(crate) fn interface(&self) -> &Interface {
        &self.0.interface
    }

    /// The sockets of the ring take their places: one for each queue.
    pub(crate) fn place(&self, sockets: impl Iterator<Item = RawFd>) -> io::Result<()> {
        let Front::Own(program) = &self.0.front else { return Ok(()) };
        (0u32..).zip(sockets).try_for_each(|(queue, socket)| program.sockets.put(&queue.to_ne_bytes(), socket as u32))
    }

    /// Queues of the interface that are served.
    pub(crate) fn queues(&self) -> u32 {
        self.interface().queues.min(QUEUES_MAX)
    }

    /// The ring is no more: its rules end with it.
    pub(crate) fn leave(&self) {
        let mut state = self.state();
        state.is_taken = false;
        let (rules, exempt) = (core::mem::take(&mut state.rules), core::mem::take(&mut state.exempt));
        match &self.0.front {
            Front::Own(program) => {
                rules.values().for_each(|flow| self.0.remove(flow));
                exempt.iter().for_each(|key| drop(program.rules.remove(key)));
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
            Front::Own(program) => program.exempt(&mut self.state(), key::of(flow)),
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
        let mut state = self.state();
        if !state.has(target) {
            return Err(RuleError::NoQueue);
        }
        self.0.insert(&mut state, &flow)?;
        state.last += 1;
        let id = state.last;
        state.rules.insert(id, flow);
        Ok(Attached { rule: RuleId(id), is_ready: true })
    }

    fn retarget(&self, rule: RuleId, target: Target, tag: u32) -> Result<(), RuleError> {
        if tag != 0 {
            return Err(self.0.capabilities.lacks("flow tags").into());
        }
        let state = self.state();
        match state.rules.contains_key(&rule.0) {
            _ if !state.has(target) => Err(RuleError::NoQueue),
            true => Ok(()),
            false => Err(RuleError::Ended),
        }
    }

    fn detach(&self, rule: RuleId) {
        let mut state = self.state();
        if let Some(flow) = state.rules.remove(&rule.0) {
            self.0.remove(&flow);
        }
    }
}
