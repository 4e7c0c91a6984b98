//! The interface as a card: its flow rules, in the map that the program in front of it looks up.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_host::Fd;
use ringway_stack::device::{
    Attached, Capabilities, Device, FiveTuple, FlowRule, OpenError, QueueId, QueuesConfig, RuleError, RuleId, Steering, Target,
};
use ringway_stack::offload::DeviceKind;

use crate::bpf::{self, Map};
use crate::error::AttachError;
use crate::interface::Interface;
use crate::key::{self, Key};
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
const QUEUES_MAX: u32 = 64;

/// An interface.
#[derive(Clone, Debug)]
pub struct XdpDevice(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    capabilities: Capabilities,
    interface: Interface,
    settings: Settings,
    rules: Map,
    sockets: Map,
    state: Mutex<State>,
    /// The program is in front of the interface as long as this is open.
    _link: Fd,
}

#[derive(Debug, Default)]
struct State {
    /// Their keys.
    rules: BTreeMap<u64, Key>,
    /// Connections that are the kernel's, whatever other rule matches them: the oldest first.
    exempt: VecDeque<Key>,
    last: u64,
    /// There is a ring.
    is_taken: bool,
}

impl State {
    /// Whether that is the ring, which has one queue of frames.
    fn has(&self, target: Target) -> bool {
        self.is_taken && target == Target::Queue(QueueId(0))
    }
}

impl Shared {
    fn end_exemption(&self, state: &mut State, key: &Key) {
        if let Some(at) = state.exempt.iter().position(|known| known == key) {
            state.exempt.remove(at);
            let _ = self.rules.remove(key);
        }
    }
}

impl XdpDevice {
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
        let capabilities = Capabilities {
            gather_max: ringway_stack::device::GATHER_LIMIT,
            is_beside_kernel: true,
            lends_heads: true,
            rules_max: RULES_MAX as usize,
            steering: Steering::IPV6,
            ..Capabilities::least(DeviceKind::Xdp, interface.mtu)
        };
        let state = Mutex::default();
        Ok(Self(Arc::new(Shared { capabilities, interface, settings: settings.clone(), rules, sockets, state, _link: link })))
    }

    /// As [`Device::open`], which cannot say as much of why not.
    ///
    /// # Errors
    /// [`AttachError`]; [`AttachError::Taken`]: there is a ring already.
    pub fn open_ring(&self) -> Result<XdpQueues, AttachError> {
        if core::mem::replace(&mut self.state().is_taken, true) {
            return Err(AttachError::Taken { what: "a ring" });
        }
        XdpQueues::open(self, &self.0.settings).inspect_err(|_| self.leave())
    }

    pub(crate) fn interface(&self) -> &Interface {
        &self.0.interface
    }

    /// The sockets of the ring take their places: one for each queue.
    pub(crate) fn place(&self, sockets: impl Iterator<Item = RawFd>) -> io::Result<()> {
        (0u32..).zip(sockets).try_for_each(|(queue, socket)| self.0.sockets.put(&queue.to_ne_bytes(), socket as u32))
    }

    /// Queues of the interface that are served.
    pub(crate) fn queues(&self) -> u32 {
        self.interface().queues.min(QUEUES_MAX)
    }

    /// The ring is no more: its rules end with it.
    pub(crate) fn leave(&self) {
        let mut state = self.state();
        state.is_taken = false;
        core::mem::take(&mut state.rules).values().for_each(|key| self.forget(key));
        core::mem::take(&mut state.exempt).iter().for_each(|key| self.forget(key));
        // (The kernel takes a socket out that is closed.)
    }

    /// Rules that steer now.
    pub fn rules(&self) -> usize {
        self.state().rules.len()
    }

    /// Has the frames of a connection go to the kernel from now on, whatever rule matches its listener's. Until the connection has a rule again. Whether they do.
    pub fn leave_to_kernel(&self, flow: &FiveTuple) -> bool {
        let key = key::of(flow);
        let mut state = self.state();
        self.0.end_exemption(&mut state, &key);
        if state.exempt.len() == EXEMPT_MAX
            && let Some(oldest) = state.exempt.pop_front()
        {
            self.forget(&oldest);
        }
        let is_left = self.0.rules.insert(&key, LEFT).is_ok();
        if is_left {
            state.exempt.push_back(key);
        }
        is_left
    }

    fn forget(&self, key: &Key) {
        if let Err(error) = self.0.rules.remove(key) {
            tracing::warn!("{}: a flow rule does not end: {error}", self.0.settings.interface);
        }
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
        let key = key::of(&flow);
        self.0.end_exemption(&mut state, &key);
        self.0.rules.insert(&key, STEERED).map_err(|error| match error.raw_os_error() {
            Some(libc::EEXIST) => RuleError::Taken,
            _ => RuleError::Full,
        })?;
        state.last += 1;
        let id = state.last;
        state.rules.insert(id, key);
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
        if let Some(key) = self.state().rules.remove(&rule.0) {
            self.forget(&key);
        }
    }
}
