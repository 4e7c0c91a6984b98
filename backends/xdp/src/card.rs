//! The interface as a card: its flow rules, in the map that the program in front of it looks up.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_stack::device::{Attached, Capabilities, Device, FlowRule, OpenError, QueuesConfig, RuleError, RuleId, Steering, Target};
use ringway_stack::offload::DeviceKind;

use crate::bpf::{self, Map, Update};
use crate::error::AttachError;
use crate::interface::Interface;
use crate::key::{self, Key};
use crate::program::program;
use crate::queues::XdpQueues;
use crate::settings::Settings;

/// Flow rules of one interface.
const RULES_MAX: u32 = 1 << 16;
/// Queues of one interface that can have rings.
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
    _link: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    /// Each rule's key, and the queue that it steers to.
    rules: BTreeMap<u64, (Key, u32)>,
    last: u64,
    /// Queues that have rings.
    taken: Vec<u32>,
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
            rings_max: queues as usize,
            is_beside_kernel: true,
            rules_max: RULES_MAX as usize,
            steering: Steering::IPV6,
            ..Capabilities::least(DeviceKind::Xdp, interface.mtu)
        };
        let state = Mutex::default();
        Ok(Self(Arc::new(Shared { capabilities, interface, settings: settings.clone(), rules, sockets, state, _link: link })))
    }

    pub(crate) fn interface(&self) -> &Interface {
        &self.0.interface
    }

    /// A ring's socket takes its place, and frames that rules steer to that queue.
    pub(crate) fn place(&self, queue: u32, socket: i32) -> io::Result<()> {
        self.0.sockets.put(&queue.to_ne_bytes(), socket as u32, None)
    }

    /// A ring is no more: its rules end with it, and its queue is free.
    pub(crate) fn leave(&self, queue: u32) {
        let mut state = self.state();
        state.taken.retain(|taken| *taken != queue);
        let ended: Vec<u64> = state.rules.iter().filter(|(_, rule)| rule.1 == queue).map(|(id, _)| *id).collect();
        for id in ended {
            if let Some((key, _)) = state.rules.remove(&id) {
                self.forget(&key);
            }
        }
        // (The kernel has taken it out already where the socket was closed.)
        let _ = self.0.sockets.remove(&queue.to_ne_bytes());
    }

    /// Rules that steer now.
    pub fn rules(&self) -> usize {
        self.state().rules.len()
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
        let queue = {
            let mut state = self.state();
            let free = (0..self.0.capabilities.rings_max as u32).find(|queue| !state.taken.contains(queue)).ok_or(OpenError::Full)?;
            state.taken.push(free);
            free
        };
        XdpQueues::open(self, &self.0.settings, queue).map_err(|error| {
            tracing::warn!("{}: queue {queue}: {error}", self.0.settings.interface);
            self.leave(queue);
            OpenError::Full
        })
    }

    fn attach(&self, rule: &FlowRule, target: Target) -> Result<Attached, RuleError> {
        let Target::Queue(queue) = target else { return Err(RuleError::NoQueue) };
        let flow = rule.as_five_tuple().ok_or_else(|| self.0.capabilities.lacks("rules but those of sockets"))?;
        let mut state = self.state();
        if !state.taken.contains(&queue.0) {
            return Err(RuleError::NoQueue);
        }
        let key = key::of(&flow);
        self.0.rules.put(&key, queue.0, Some(Update::New)).map_err(|error| match error.raw_os_error() {
            Some(libc::EEXIST) => RuleError::Taken,
            _ => RuleError::Full,
        })?;
        state.last += 1;
        let id = state.last;
        state.rules.insert(id, (key, queue.0));
        Ok(Attached { rule: RuleId(id), is_ready: true })
    }

    fn retarget(&self, rule: RuleId, target: Target, tag: u32) -> Result<(), RuleError> {
        let Target::Queue(queue) = target else { return Err(RuleError::NoQueue) };
        if tag != 0 {
            return Err(self.0.capabilities.lacks("flow tags").into());
        }
        let mut state = self.state();
        if !state.taken.contains(&queue.0) {
            return Err(RuleError::NoQueue);
        }
        let known = state.rules.get_mut(&rule.0).ok_or(RuleError::Ended)?;
        self.0.rules.put(&known.0, queue.0, Some(Update::Existing)).map_err(|_| RuleError::Ended)?;
        known.1 = queue.0;
        Ok(())
    }

    fn detach(&self, rule: RuleId) {
        if let Some((key, _)) = self.state().rules.remove(&rule.0) {
            self.forget(&key);
        }
    }
}
