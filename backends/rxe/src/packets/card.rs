//! The device as a card of one ring: its flow rules, and what it is told by librdmacm.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdma_core_sys as sys;
use ringway_host::rdma_interface::{address_and_mtu, interface_of};
use ringway_stack::device::messages::Addresses;
use ringway_stack::device::{
    Attached, Capabilities, Device, FiveTuple, FlowRule, GATHER_LIMIT, MacAddr, OpenError as NoRing, Protocol, QueueId, QueuesConfig,
    RuleError, RuleId, Steering, Target,
};
use ringway_stack::offload::DeviceKind;
use ringway_stack::time::Instant;
use ringway_stack::ud::{Ends, HEADER_LEN, PIECES_MAX};

use super::peers::{Found, Means, Peers};
use super::presences::{Peer, Presences, parse_answer};
use super::queues::RxeQueues;
use super::services::Services;
use crate::adapter::PORT;
use crate::async_events::{Happening, next};
use crate::cm::{EventChannel, Id};
use crate::error::OpenError;
use crate::verbs::{Context, Domain};

/// Rules of a device.
const RULES_MAX: usize = 1 << 16;
/// Events that are taken at a time: frames want their turn.
const EVENTS_MAX: usize = 64;
/// Bytes of an Ethernet header, with a VLAN tag.
pub(super) const ETHERNET_MAX: usize = 18;

/// How a device's packet plane is used.
#[derive(Clone, Debug)]
pub struct PacketSettings {
    /// The device's name (`rxe0`).
    pub device: String,
    /// Datagrams that it can receive before they are looked at.
    pub received_datagrams: u32,
    /// Datagrams that can be on their way out.
    pub sent_datagrams: u32,
    /// Frames that were received and not read yet, at the most.
    pub received_frames: usize,
    /// Bytes that connections can have queued to send.
    pub send_bytes: usize,
}

impl PacketSettings {
    /// What rings have.
    pub fn new(device: &str) -> Self {
        Self { device: device.to_owned(), received_datagrams: 1024, sent_datagrams: 512, received_frames: 8192, send_bytes: 32 << 20 }
    }
}

/// The interface of a device's port, and the longest datagram there: what a ring would have.
///
/// # Errors
/// As of [`RxeDevice::open_device`], as far as can be seen without making anything.
pub fn survey(device: &str) -> Result<(String, usize), OpenError> {
    let context = Context::open(device)?;
    let port = context.query_port(PORT).map_err(OpenError::system("ibv_query_port"))?;
    EventChannel::open()?;
    let interface = interface_of(device, PORT).map_err(OpenError::system("the device's interface"))?;
    Ok((interface, 128 << port.active_mtu.clamp(1, 5)))
}

/// Whether a peer's port is reached by a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Somebody is there.
    Yes,
    /// It is asked for.
    Asked,
    /// Nobody is there, or the host has no such device: the kernel may know better.
    No,
}

/// A verbs device, whose rings exchange Ethernet frames with others of its kind.
#[derive(Clone, Debug)]
pub struct RxeDevice(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    capabilities: Capabilities,
    settings: PacketSettings,
    mac: MacAddr,
    datagram_len: usize,
    async_fd: i32,
    state: Mutex<State>,
    events: Arc<EventChannel>,
}

#[derive(Debug, Default)]
struct State {
    rules: BTreeMap<u64, FiveTuple>,
    services: Services,
    peers: Peers,
    presences: Presences,
    /// Processes that have ended, of which the ring has yet to hear.
    gone: Vec<Peer>,
    /// Bound to the device for as long as there is a ring: by this the kernel tells of the device's removal (RDMA_CM_EVENT_DEVICE_REMOVAL) and waits until it is let go of. (Of rxe,
    /// whose driver disassociates nothing, verbs tells nothing.)
    sentinel: Option<Id>,
    /// `None`: it is gone. (Ends last: the others' objects are of these.)
    opened: Option<(Arc<Context>, Arc<Domain>)>,
    /// The ring's queue pair.
    qpn: Option<u32>,
    has_ring: bool,
    is_removed: bool,
    last_rule: u64,
    last_number: u32,
    /// Answers have come of which the ring has not heard.
    has_answers: bool,
    now: Instant,
}

impl State {
    fn number(&mut self) -> u32 {
        self.last_number = self.last_number.wrapping_add(1);
        self.last_number
    }
}

/// What a ring hears of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Something that was asked for is known.
    Answers,
    /// Peers have ended: [`RxeDevice::take_gone`], once all that they had sent has been taken.
    PeersGone,
    /// The port lost or found its carrier.
    Port(bool),
    /// The queue pair, or its completion queue, has failed.
    Failed,
    /// The device is gone.
    Gone,
}

/// An address of the device's, if it has another than a link-local one: a GID of RoCEv2 is one.
fn address_of(context: &Context) -> Option<IpAddr> {
    let entries = u32::try_from(context.query_port(PORT).ok()?.gid_tbl_len).unwrap_or(0);
    // SAFETY: both members of the union are 16 bytes.
    let ip = |entry: sys::ibv_gid_entry| Ipv6Addr::from(unsafe { entry.gid.raw });
    let mut all = (0..entries).filter_map(|index| context.gid(PORT, index)).map(ip).filter(|ip| !ip.is_unicast_link_local());
    all.next().map(|ip| IpAddr::V6(ip).to_canonical())
}

/// A service is what anybody may send to; a connection's own rule needs none.
fn needs_service(flow: &FiveTuple) -> bool {
    flow.protocol == Protocol::Udp || flow.remote.is_none()
}

impl RxeDevice {
    /// Opens a device.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_device(settings: &PacketSettings) -> Result<Self, OpenError> {
        let context = Arc::new(Context::open(&settings.device)?);
        let port = context.query_port(PORT).map_err(OpenError::system("ibv_query_port"))?;
        let domain = Arc::new(Domain::new(&context).map_err(OpenError::system("ibv_alloc_pd"))?);
        let events = EventChannel::open()?;
        let interface = interface_of(&settings.device, PORT).map_err(OpenError::system("the device's interface"))?;
        let (mac, mtu) = address_and_mtu(&interface).map_err(OpenError::system("the device's interface"))?;
        let datagram_len: usize = 128 << port.active_mtu.clamp(1, 5);
        // (A frame's length is a halfword, and its pieces are so many.)
        let frame_max = ((datagram_len - HEADER_LEN) * PIECES_MAX).min(usize::from(u16::MAX));
        let capabilities = Capabilities {
            gather_max: GATHER_LIMIT,
            is_beside_kernel: true,
            leaves_at_both_ends: true,
            lends_heads: true,
            rules_max: RULES_MAX,
            steering: Steering::IPV6,
            ..Capabilities::least(DeviceKind::Rxe, mtu.min(frame_max - ETHERNET_MAX))
        };
        let (settings, async_fd) = (settings.clone(), context.async_fd());
        let state = Mutex::new(State { opened: Some((context, domain)), ..State::default() });
        Ok(Self(Arc::new(Shared { capabilities, settings, mac, datagram_len, async_fd, state, events })))
    }

    /// Its ring.
    ///
    /// # Errors
    /// [`OpenError::Refused`]: memory that may not be locked, or queues; there is a ring already.
    pub fn open_ring(&self) -> Result<RxeQueues, OpenError> {
        if core::mem::replace(&mut self.state().has_ring, true) {
            return Err(OpenError::system("a ring")(io::ErrorKind::ResourceBusy.into()));
        }
        if let Err(error) = self.watch_removal() {
            tracing::warn!("{}: nobody would hear of its removal: {error}", self.0.settings.device);
        }
        RxeQueues::open(self).map_err(OpenError::system("a ring's queue pair")).inspect_err(|_| self.state().has_ring = false)
    }

    fn watch_removal(&self) -> io::Result<()> {
        let mut state = self.state();
        let Some((context, _)) = &state.opened else { return Err(io::ErrorKind::NotConnected.into()) };
        let own = address_of(context).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let id = Id::new(&self.0.events, sys::RDMA_PS_UDP, 0)?;
        id.bind(SocketAddr::new(own, 0))?;
        state.sentinel = Some(id);
        Ok(())
    }

    pub(super) fn mac(&self) -> MacAddr {
        self.0.mac
    }

    pub(super) fn settings(&self) -> &PacketSettings {
        &self.0.settings
    }

    /// The longest datagram in bytes.
    pub(super) fn datagram_len(&self) -> usize {
        self.0.datagram_len
    }

    /// The device while it is there, and what its objects are made of.
    pub(super) fn opened(&self) -> Option<(Arc<Context>, Arc<Domain>)> {
        self.state().opened.clone()
    }

    /// What makes known that there is something to look at: of connection management, and of the device.
    pub(super) fn fds(&self) -> [i32; 2] {
        [self.0.events.fd(), self.0.async_fd]
    }

    /// The ring has another queue pair, or none.
    pub(super) fn set_queue_pair(&self, qpn: Option<u32>) {
        self.state().qpn = qpn;
    }

    /// The ring is no more: its rules end with it.
    pub(super) fn leave(&self) {
        let mut state = self.state();
        state.rules.clear();
        state.services.clear();
        state.peers.clear();
        state.presences.clear();
        state.gone.clear();
        (state.sentinel, state.qpn, state.has_ring) = (None, None, false);
    }

    /// Where a frame goes.
    pub(super) fn find(&self, ends: &Ends) -> Found {
        let mut state = self.state();
        let Some((_, domain)) = state.opened.clone() else { return Found::Nobody };
        let means = Means { channel: &self.0.events, domain: &domain, now: state.now, number: state.number() };
        state.peers.find(means, ends)
    }

    /// A frame came from there.
    pub(super) fn learn(&self, ends: &Ends, qpn: u32) {
        let mut state = self.state();
        let now = state.now;
        state.peers.learn(now, ends, qpn);
    }

    /// Whether a peer's port is reached by this device from an address of ours. What was found longer ago than `fresh` is asked for again; who asks
    /// once more hears the answer, if it has come.
    pub fn reach(&self, now: Instant, protocol: Protocol, local: IpAddr, to: SocketAddr, fresh: Option<Duration>) -> Reach {
        let mut state = self.state();
        let Some((_, domain)) = state.opened.clone() else { return Reach::No };
        state.now = state.now.max(now);
        let find = |state: &mut State, fresh| {
            let means = Means { channel: &self.0.events, domain: &domain, now: state.now, number: state.number() };
            state.peers.reach(means, protocol, SocketAddr::new(local, 0), to, fresh)
        };
        let mut found = find(&mut state, fresh);
        if matches!(found, Found::Asked) {
            self.take_answers(&mut state);
            found = find(&mut state, None);
        }
        match found {
            Found::At(_) => Reach::Yes,
            Found::Asked => Reach::Asked,
            Found::Nobody => Reach::No,
        }
    }

    /// Takes what connection management has to tell, and answers who asks.
    fn take_answers(&self, state: &mut State) {
        let Some((_, domain)) = state.opened.clone() else { return };
        let means = Means { channel: &self.0.events, domain: &domain, now: state.now, number: 0 };
        for _ in 0..EVENTS_MAX {
            let Some(event) = self.0.events.next() else { break };
            let means = Means { number: state.number(), ..means };
            match event.kind {
                sys::RDMA_CM_EVENT_CONNECT_REQUEST if state.presences.is_listener(event.number) => {
                    state.presences.accept(means, event, state.qpn);
                }
                sys::RDMA_CM_EVENT_CONNECT_REQUEST => {
                    let presences = &mut state.presences;
                    state.services.answer(event, state.qpn, |at| presences.port_at(means.channel, means.number, at));
                }
                sys::RDMA_CM_EVENT_DEVICE_REMOVAL => state.is_removed = true,
                _ => {
                    // (An event is of a question, or of a presence.)
                    state.gone.extend(state.presences.on_event(&domain, &event, state.qpn));
                    if event.kind == sys::RDMA_CM_EVENT_ESTABLISHED
                        && let (Some(addresses), Some(port)) = (state.peers.asked_of(event.number), parse_answer(&event.private_data))
                    {
                        state.presences.seek(means, (addresses, event.datagrams_to.0), port);
                    }
                    state.has_answers |= state.peers.on_event(means, &event);
                }
            }
        }
        let last = &mut state.last_number;
        state.peers.tend(means, || {
            *last = last.wrapping_add(1);
            *last
        });
    }

    /// Whether peers have ended of which the ring has yet to hear.
    pub(super) fn has_gone(&self) -> bool {
        !self.state().gone.is_empty()
    }

    /// The peers that have ended.
    pub(super) fn take_gone(&self) -> BTreeSet<Peer> {
        core::mem::take(&mut self.state().gone).into_iter().collect()
    }

    /// Whether a connection is with one of these.
    pub(super) fn is_with(&self, gone: &BTreeSet<Peer>, flow: &FiveTuple) -> bool {
        let Some(remote) = flow.remote else { return false };
        let Some(addresses) = Addresses::new(flow.local.ip(), remote.ip()) else { return false };
        let known = self.state().peers.known(addresses, flow.protocol, remote.port());
        known.is_some_and(|qpn| gone.contains(&(addresses, qpn)))
    }

    /// These are asked for again by whoever sends to where they were.
    pub(super) fn forget(&self, gone: BTreeSet<Peer>) {
        let mut state = self.state();
        gone.into_iter().for_each(|peer| state.peers.forget(peer));
    }

    /// Whether answers are awaited.
    pub(super) fn is_asking(&self) -> bool {
        self.state().peers.is_asking()
    }

    /// It is that time. Takes what the kernel has to tell.
    pub(super) fn look(&self, now: Instant, mut tell: impl FnMut(News)) {
        let mut guard = self.state();
        let state = &mut *guard;
        state.now = state.now.max(now);
        let Some((context, _)) = state.opened.clone() else { return };
        self.take_answers(state);
        if core::mem::take(&mut state.has_answers) {
            tell(News::Answers);
        }
        if !state.gone.is_empty() {
            tell(News::PeersGone);
        }
        for _ in 0..EVENTS_MAX {
            let Some(happening) = next(&context) else { break };
            tracing::debug!("{}: {happening:?}", self.0.settings.device);
            match happening {
                Happening::QueuePair(qpn) if state.qpn == Some(qpn) => tell(News::Failed),
                Happening::CompletionQueue(_) => tell(News::Failed),
                Happening::PortDown(PORT) => tell(News::Port(false)),
                Happening::PortUp(PORT) => tell(News::Port(true)),
                Happening::Addresses => state.peers.forget_ways(),
                Happening::Device => state.is_removed = true,
                Happening::QueuePair(_) | Happening::PortDown(_) | Happening::PortUp(_) => {}
                Happening::Communication(_) | Happening::Other => {}
            }
        }
        if state.is_removed {
            tracing::warn!("{} has failed, or is being removed: what it carried fails", self.0.settings.device);
            // (Nothing of it may be held, or its driver waits: the ring lets go of what it has.)
            state.services.clear();
            state.peers.clear();
            state.presences.clear();
            state.gone.clear();
            (state.qpn, state.sentinel, state.opened) = (None, None, None);
            drop(guard);
            drop(context);
            tell(News::Gone);
        }
    }

    /// Rules that steer now.
    pub fn rules(&self) -> usize {
        self.state().rules.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for RxeDevice {
    type Queues = RxeQueues;

    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    fn open(&self, _: &QueuesConfig) -> Result<RxeQueues, NoRing> {
        self.open_ring().map_err(|error| {
            tracing::warn!("{}: {error}", self.0.settings.device);
            NoRing::Full
        })
    }

    fn attach(&self, rule: &FlowRule, target: Target) -> Result<Attached, RuleError> {
        let lacks = |what| RuleError::from(self.0.capabilities.lacks(what));
        let flow = rule.as_five_tuple().ok_or_else(|| lacks("rules but those of sockets"))?;
        if flow.local.ip().is_multicast() {
            return Err(lacks("rules of groups"));
        }
        if target != Target::Queue(QueueId(0)) {
            return Err(RuleError::NoQueue);
        }
        let mut guard = self.state();
        let state = &mut *guard;
        if state.opened.is_none() || state.rules.len() >= RULES_MAX {
            return Err(RuleError::Full);
        }
        if needs_service(&flow) {
            let number = state.number();
            state.services.add(&self.0.events, number, flow.protocol, flow.local)?;
        }
        state.last_rule += 1;
        let rule = state.last_rule;
        state.rules.insert(rule, flow);
        Ok(Attached { rule: RuleId(rule), is_ready: true })
    }

    fn retarget(&self, rule: RuleId, target: Target, tag: u32) -> Result<(), RuleError> {
        if tag != 0 {
            return Err(self.0.capabilities.lacks("flow tags").into());
        }
        if target != Target::Queue(QueueId(0)) {
            return Err(RuleError::NoQueue);
        }
        self.state().rules.contains_key(&rule.0).then_some(()).ok_or(RuleError::Ended)
    }

    fn detach(&self, rule: RuleId) {
        let mut state = self.state();
        if let Some(flow) = state.rules.remove(&rule.0)
            && needs_service(&flow)
        {
            state.services.remove(flow.protocol, flow.local);
        }
    }
}
