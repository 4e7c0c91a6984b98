//! The card: what its rings share. Flow rules, and which ring they lead to.
//!
//! Each rule is one of the kernel's, for a queue pair that hashes over receive queues: over one, a ring's; or over several, a group's. A rule that is moved, or a
//! group that changes, gets a second rule at the step's other number, and then the first one ends: so each frame comes to the old queue or to the new one, and to no
//! third place and not to both.

use core::ptr::NonNull;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdma_core_sys as sys;
use ringway_host::rdma_interface::{address_and_mtu, interface_of};
use ringway_stack::device::{
    Attached, Capabilities, CyclicId, Device, FlowRule, MacAddr, OpenError, QueueId, QueuesConfig, RuleError, RuleId, Steering, Target,
    TimeSource,
};
use ringway_stack::offload::DeviceKind;

use crate::clock::CardClock;
use crate::cqe::RUN_MAX;
use crate::cyclic::StridingCaps;
use crate::error::AttachError;
use crate::mailbox::{Hearing, Post};
use crate::memory::Memory;
use crate::mutants::{self, Mutant};
use crate::queues::Mlx5Queues;
use crate::settings::Settings;
use crate::spec::{self, Place, Spec};
use crate::verbs::{Context, Flow, HashOf, HashQp, Pd, Wq};
use crate::wqe::INLINE_MAX;

/// The largest IP packet that a port carries.
const MTU_MAX: usize = 9000;
/// Bytes of the longest large send: an IPv4 packet has no more.
const TSO_MAX: usize = 65_535 + 14;
/// A completion has so many bits for a tag.
const TAG_MAX: u32 = (1 << 24) - 1;
/// Rules that the kernel has room for, or more. (What there is no room for it refuses.)
const RULES_MAX: usize = 1 << 16;

/// A card, with a port of it.
#[derive(Clone, Debug)]
pub struct Mlx5Device(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    capabilities: Capabilities,
    settings: Settings,
    mac: MacAddr,
    clock: Option<CardClock>,
    striding: Option<StridingCaps>,
    compresses: bool,
    state: Mutex<State>,
    /// A group of rings still has one that has left it, since the system refused the change.
    has_leavers: AtomicBool,
    post: Post,
    pd: Arc<Pd>,
}

#[derive(Debug, Default)]
struct State {
    rings: BTreeMap<u32, RingEnd>,
    /// What is matched, and who has it. (What is for groups, each ring has for itself: hence its number.)
    entries: BTreeMap<(Spec, Option<u32>), Entry>,
    /// Where to find a rule's entry, and which ring it leads to.
    rules: BTreeMap<u64, (Spec, Option<u32>)>,
    last_rule: u64,
    last_ring: u32,
    /// What rings that were closed received into, as long as a group still has one of them.
    kept: Vec<Arc<Memory>>,
}

/// A ring, as flow rules see it.
#[derive(Debug)]
struct RingEnd {
    wq: Arc<Wq>,
    qp: Arc<HashQp>,
    /// The same of its cyclic queues.
    cyclic: BTreeMap<u64, (Arc<Wq>, Arc<HashQp>)>,
    /// It gets what no rule steers, by these rules. (While its receive queue is made anew they may be missing.)
    gets_strays: bool,
    strays: Vec<Flow>,
}

/// A rule of the kernel's, and whose it is.
#[derive(Debug)]
struct Entry {
    /// Rule, and where it leads. Invariant: not empty; one, unless it is shared.
    members: Vec<(u64, To)>,
    is_shared: bool,
    hash: HashOf,
    tag: u32,
    place: Place,
    /// What steers is not of these members, of which one has left.
    has_leaver: bool,
    /// What steers. (It is only read by who drops it.)
    _flow: Flow,
}

/// Where a rule leads: to a ring's own queue, or to a cyclic one of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct To {
    ring: u32,
    cyclic: Option<u64>,
}

impl State {
    /// The queue, and what leads to it alone.
    fn end(&self, to: To) -> Option<(&Arc<Wq>, &Arc<HashQp>)> {
        let end = self.rings.get(&to.ring)?;
        match to.cyclic {
            None => Some((&end.wq, &end.qp)),
            Some(name) => end.cyclic.get(&name).map(|(wq, qp)| (wq, qp)),
        }
    }

    /// The queue that is meant.
    fn aim(&self, target: Target) -> Result<To, RuleError> {
        let to = match target {
            Target::Queue(QueueId(ring)) => To { ring, cyclic: None },
            Target::Cyclic(QueueId(ring), CyclicId(name)) => To { ring, cyclic: Some(name) },
        };
        self.end(to).map(|_| to).ok_or(RuleError::NoQueue)
    }
}

impl Mlx5Device {
    /// Opens a card.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn open_card(settings: &Settings) -> Result<Self, AttachError> {
        Self::of_context(Context::open(&settings.device)?, settings, Hearing::ByThread)
    }

    /// As [`Mlx5Device::open_card`], of a card that these libraries have opened, whatever the settings call it. No thread hears of its events: the caller does, by
    /// [`Mlx5Device::hear`]. (For tests of which nothing is left to a scheduler.)
    ///
    /// # Errors
    /// [`AttachError`].
    ///
    /// # Safety
    /// The libraries behave as rdma-core's do, and opened the context; nobody else uses or closes it.
    #[doc(hidden)]
    pub unsafe fn open_context(
        verbs: &'static sys::Ibverbs,
        dv: &'static sys::Mlx5dv,
        context: NonNull<sys::ibv_context>,
        settings: &Settings,
    ) -> Result<Self, AttachError> {
        // SAFETY: the caller's promise.
        let context = unsafe { Context::of(verbs, dv, context) }?;
        Self::of_context(context, settings, Hearing::ByCaller)
    }

    /// Hears of what has happened to a card that was opened by [`Mlx5Device::open_context`].
    #[doc(hidden)]
    pub fn hear(&self) {
        self.0.post.hear();
    }

    fn of_context(context: Context, settings: &Settings, hearing: Hearing) -> Result<Self, AttachError> {
        let context = Arc::new(context);
        let attr = context.query().map_err(AttachError::system("ibv_query_device_ex"))?;
        let has_hashes = attr.rss_caps.supported_qpts & 1 << sys::IBV_QPT_RAW_PACKET != 0 && attr.max_wq_type_rq > 0;
        if !has_hashes {
            return Err(AttachError::Lacks { device: settings.device.clone(), what: "receive queues for raw packets" });
        }
        let (mac, mtu) = addresses(settings)?;
        let clock = CardClock::new(attr.hca_core_clock, attr.completion_timestamp_mask);
        let more = context.query_more().map_err(AttachError::system("mlx5dv_query_device"))?;
        let striding = StridingCaps::new(&more.striding_rq_caps);
        let formats = sys::MLX5DV_CQE_RES_FORMAT_CSUM | sys::MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX;
        let can_compress = more.cqe_comp_caps.max_num as usize <= RUN_MAX && more.cqe_comp_caps.supported_format & formats == formats;
        let compresses = settings.compresses && more.cqe_comp_caps.max_num > 0 && can_compress;
        let capabilities = Capabilities { striding: striding.is_some(), ..capabilities(settings, &attr, mtu, clock) };
        let pd = Arc::new(Pd::new(Arc::clone(&context)).map_err(AttachError::system("ibv_alloc_pd"))?);
        let post = Post::new(context, hearing).map_err(AttachError::system("the thread of the card's events"))?;
        let (settings, state, has_leavers) = (settings.clone(), Mutex::default(), AtomicBool::new(false));
        Ok(Self(Arc::new(Shared { capabilities, settings, mac, clock, striding, compresses, state, has_leavers, post, pd })))
    }

    /// As [`Device::open`], which cannot say as much of why not.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn open_ring(&self, config: &QueuesConfig) -> Result<Mlx5Queues, AttachError> {
        let ring = {
            let mut state = self.state();
            state.last_ring += 1;
            state.last_ring
        };
        let queues = Mlx5Queues::open(self, ring)?;
        let qp = self.leads_to(queues.wq()).map_err(AttachError::system("a queue pair for flow rules"))?;
        let mut end = RingEnd { wq: Arc::clone(queues.wq()), qp, cyclic: BTreeMap::new(), gets_strays: false, strays: Vec::new() };
        let mut state = self.state();
        let has_strays = state.rings.values().any(|ring| ring.gets_strays);
        if !self.0.settings.is_beside_kernel && !config.steered_only && !has_strays {
            end.gets_strays = true;
            end.strays = self.strays(&end.qp).map_err(AttachError::system("flow rules for what no other steers"))?;
        }
        state.rings.insert(ring, end);
        Ok(queues)
    }

    /// What has rules lead to a ring's receive queue.
    fn leads_to(&self, wq: &Arc<Wq>) -> io::Result<Arc<HashQp>> {
        HashQp::new(&self.0.pd, core::slice::from_ref(wq), HashOf::Addresses).map(Arc::new)
    }

    /// A ring has another receive queue from now on: its rules lead there. Where one cannot, the others still do what they did.
    ///
    /// # Errors
    /// What the system says of the first of which that is so.
    #[cold]
    pub(crate) fn lead_elsewhere(&self, ring: u32, wq: &Arc<Wq>) -> io::Result<()> {
        let qp = self.leads_to(wq)?;
        let mut state = self.state();
        let Some(end) = state.rings.get_mut(&ring) else { return Ok(()) };
        (end.wq, end.qp) = (Arc::clone(wq), Arc::clone(&qp));
        if end.gets_strays && !(mutants::is(Mutant::StraysForgotten) && end.strays.is_empty()) {
            // (Equal rules would be refused, were the old ones still there. What comes between is lost, as it was.)
            end.strays.clear();
            end.strays = self.strays(&qp)?;
        }
        let leads_there = |entry: &Entry| entry.members.iter().any(|(_, to)| *to == To { ring, cyclic: None });
        let keys: Vec<(Spec, Option<u32>)> =
            state.entries.iter().filter(|(_, entry)| leads_there(entry)).map(|(key, _)| key.clone()).collect();
        if mutants::is(Mutant::RulesLeftBehind) {
            return Ok(());
        }
        keys.iter().try_for_each(|key| {
            let Some(Entry { members, tag, .. }) = state.entries.get(key) else { return Ok(()) };
            let (members, tag) = (members.clone(), *tag);
            self.change(&mut state, key, members, tag).map_err(io::Error::other)
        })
    }

    /// Rules for broadcasts, for what is for the card's own address, and for groups of IPv6.
    fn strays(&self, qp: &Arc<HashQp>) -> io::Result<Vec<Flow>> {
        let prefixes: [&[u8]; 3] = [&[0xff; 6], &self.0.mac.0, &[0x33, 0x33]];
        prefixes
            .iter()
            .map(|prefix| Flow::new(qp, &mut Spec::of_addresses(prefix).attribute(Place::First, 0, self.0.settings.port)))
            .collect()
    }

    /// A ring has another cyclic queue, of that name.
    pub(crate) fn add_cyclic(&self, ring: u32, name: u64, wq: &Arc<Wq>) -> io::Result<()> {
        let qp = self.leads_to(wq)?;
        if let Some(end) = self.state().rings.get_mut(&ring) {
            end.cyclic.insert(name, (Arc::clone(wq), qp));
        }
        Ok(())
    }

    /// It has one less. `false`: not yet, since a rule leads there.
    pub(crate) fn remove_cyclic(&self, ring: u32, name: u64) -> bool {
        let (mut state, it) = (self.state(), To { ring, cyclic: Some(name) });
        if state.entries.values().any(|entry| entry.has_leaver || entry.members.iter().any(|(_, to)| *to == it)) {
            return false;
        }
        let ended = state.rings.get_mut(&ring).and_then(|end| end.cyclic.remove(&name));
        drop(state);
        drop(ended);
        true
    }

    /// What its striding queues can be like, if it has any.
    pub(crate) fn striding(&self) -> Option<&StridingCaps> {
        self.0.striding.as_ref()
    }

    /// Completions of receives are compressed.
    pub(crate) fn compresses(&self) -> bool {
        self.0.compresses
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn own_mac(&self) -> MacAddr {
        self.0.mac
    }

    pub(crate) fn clock(&self) -> Option<CardClock> {
        self.0.clock
    }

    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.0.pd
    }

    pub(crate) fn post(&self) -> &Post {
        &self.0.post
    }

    /// Rules that steer now.
    pub fn rules(&self) -> usize {
        self.state().entries.len()
    }

    /// A ring is no more: its rules end with it. It has received into this memory.
    pub(crate) fn leave(&self, ring: u32, memory: impl Iterator<Item = Arc<Memory>>) {
        let mut state = self.state();
        let of_it = |entry: &Entry| entry.members.iter().filter(|(_, to)| to.ring == ring).map(|(rule, _)| *rule).collect::<Vec<_>>();
        let rules: Vec<u64> = state.entries.values().flat_map(of_it).collect();
        rules.into_iter().for_each(|rule| self.end(&mut state, rule));
        if self.has_leavers() {
            // (The card may write there until it is asked in vain no more.)
            state.kept.extend(memory);
        }
        let end = state.rings.remove(&ring);
        drop(state);
        self.0.post.close(ring);
        drop(end);
    }

    /// Whether a group of rings still has one that has left it.
    pub(crate) fn has_leavers(&self) -> bool {
        self.0.has_leavers.load(Ordering::Relaxed)
    }

    /// Has groups lead where they should, of which the system has refused it. (What it still refuses is asked for again.)
    #[cold]
    pub(crate) fn dismiss_leavers(&self) {
        let mut state = self.state();
        let those = state.entries.iter().filter(|(_, entry)| entry.has_leaver);
        let keys: Vec<(Spec, Option<u32>)> = those.map(|(key, _)| key.clone()).collect();
        let is_done = keys.iter().all(|key| {
            let Some(Entry { members, tag, .. }) = state.entries.get(key) else { return true };
            let (members, tag) = (members.clone(), *tag);
            self.change(&mut state, key, members, tag).is_ok()
        });
        if is_done {
            state.kept.clear();
            self.0.has_leavers.store(false, Ordering::Relaxed);
        }
    }

    /// Makes the kernel's rule for an entry.
    fn flow(&self, state: &State, spec: &Spec, members: &[(u64, To)], hash: HashOf, (place, tag): (Place, u32)) -> Result<Flow, RuleError> {
        let ends: Vec<(&Arc<Wq>, &Arc<HashQp>)> = members.iter().filter_map(|(_, to)| state.end(*to)).collect();
        let qp = match ends[..] {
            [] => return Err(RuleError::NoQueue),
            [(_, only)] => Arc::clone(only),
            _ => {
                let queues: Vec<Arc<Wq>> = ends.iter().map(|(wq, _)| Arc::clone(wq)).collect();
                Arc::new(HashQp::new(&self.0.pd, &queues, hash).map_err(|error| refused(&error))?)
            }
        };
        Flow::new(&qp, &mut spec.attribute(place, tag, self.0.settings.port)).map_err(|error| refused(&error))
    }

    /// Has an entry lead to other members, or bear another tag.
    fn change(&self, state: &mut State, key: &(Spec, Option<u32>), members: Vec<(u64, To)>, tag: u32) -> Result<(), RuleError> {
        let Some(entry) = state.entries.get(key) else { return Err(RuleError::Ended) };
        let (hash, place) = (entry.hash, entry.place.other());
        let of_card = if mutants::is(Mutant::TagStays) { entry.tag } else { tag };
        let flow = self.flow(state, &key.0, &members, hash, (place, of_card))?;
        if let Some(entry) = state.entries.get_mut(key) {
            // (The new rule is there; now the old one ends.)
            let old = core::mem::replace(&mut entry._flow, flow);
            if mutants::is(Mutant::RuleStays) {
                core::mem::forget(old);
            }
            (entry.members, entry.tag, entry.place, entry.has_leaver) = (members, tag, place, false);
        }
        Ok(())
    }

    /// A rule ends.
    fn end(&self, state: &mut State, rule: u64) {
        let Some(key) = state.rules.remove(&rule) else { return };
        let Some(entry) = state.entries.get(&key) else { return };
        let (tag, mut members) = (entry.tag, entry.members.clone());
        members.retain(|(of, _)| *of != rule);
        if members.is_empty() {
            state.entries.remove(&key);
        } else if let Err(error) = self.change(state, &key, members.clone(), tag) {
            tracing::error!("a group of rings still has one that has left it: {error}");
            if let Some(entry) = state.entries.get_mut(&key) {
                (entry.members, entry.has_leaver) = (members, true);
            }
            self.0.has_leavers.store(true, Ordering::Relaxed);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the kernel says of a rule.
fn refused(error: &io::Error) -> RuleError {
    tracing::debug!("a flow rule is refused: {error}");
    match error.raw_os_error() {
        Some(libc::EEXIST | libc::EBUSY) => RuleError::Taken,
        _ => RuleError::Full,
    }
}

impl Device for Mlx5Device {
    type Queues = Mlx5Queues;

    fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    fn open(&self, config: &QueuesConfig) -> Result<Mlx5Queues, OpenError> {
        self.open_ring(config).map_err(|error| {
            tracing::warn!("{}: {error}", self.0.settings.device);
            OpenError::Full
        })
    }

    fn attach(&self, rule: &FlowRule, target: Target) -> Result<Attached, RuleError> {
        if !self.0.capabilities.steering.contains(rule.needs()) {
            return Err(self.0.capabilities.lacks("such flow rules").into());
        }
        if rule.tag > TAG_MAX {
            return Err(self.0.capabilities.lacks("flow tags of more than 24 bits").into());
        }
        if rule.vxlan.is_some_and(|tunnel| tunnel.vni.is_none()) {
            // (Of an identifier of which no bit counts the card does not even look whether it is there.)
            return Err(self.0.capabilities.lacks("flow rules for any tunnel").into());
        }
        let mut state = self.state();
        let to = state.aim(target)?;
        let is_of_group = spec::is_of_group(rule);
        let key = (Spec::of(rule, self.0.mac), is_of_group.then_some(to.ring));
        let id = state.last_rule + 1;
        match state.entries.get(&key) {
            Some(entry) if !(entry.is_shared && rule.shared) => return Err(RuleError::Taken),
            Some(entry) => {
                let (mut members, tag) = (entry.members.clone(), entry.tag);
                members.push((id, to));
                self.change(&mut state, &key, members, tag)?;
            }
            None => {
                let (members, hash, place) = (vec![(id, to)], spec::hash_of(rule), Place::First);
                // (Equal rules with different tags the kernel refuses; and those of groups are equal.)
                let tag = if is_of_group { 0 } else { rule.tag };
                let flow = self.flow(&state, &key.0, &members, hash, (place, tag))?;
                state
                    .entries
                    .insert(key.clone(), Entry { members, is_shared: rule.shared, hash, tag, place, has_leaver: false, _flow: flow });
            }
        }
        state.last_rule = id;
        state.rules.insert(id, key);
        Ok(Attached { rule: RuleId(id), is_ready: true })
    }

    fn retarget(&self, rule: RuleId, target: Target, tag: u32) -> Result<(), RuleError> {
        let mut state = self.state();
        let to = state.aim(target)?;
        let key = state.rules.get(&rule.0).cloned().ok_or(RuleError::Ended)?;
        if tag > TAG_MAX || key.1.is_some() {
            return Err(self.0.capabilities.lacks("a way to move this flow rule").into());
        }
        let mut members = state.entries.get(&key).ok_or(RuleError::Ended)?.members.clone();
        members.iter_mut().filter(|(of, _)| *of == rule.0).for_each(|member| member.1 = to);
        self.change(&mut state, &key, members, tag)
    }

    fn detach(&self, rule: RuleId) {
        self.end(&mut self.state(), rule.0);
    }
}

/// What the card can do.
fn capabilities(settings: &Settings, attr: &sys::ibv_device_attr_ex, mtu: usize, clock: Option<CardClock>) -> Capabilities {
    let on_raw = |types: u32| types & 1 << sys::IBV_QPT_RAW_PACKET != 0;
    let has_checksums = attr.raw_packet_caps & sys::IBV_RAW_PACKET_CAP_IP_CSUM != 0;
    let tso_max =
        (on_raw(attr.tso_caps.supported_qpts) && attr.tso_caps.max_tso > 0).then_some(TSO_MAX.min(attr.tso_caps.max_tso as usize));
    Capabilities {
        inline_max: INLINE_MAX,
        gather_max: ringway_stack::device::GATHER_LIMIT,
        tx_checksum: has_checksums,
        rx_checksum: has_checksums,
        tso_max,
        rings_max: 64,
        is_beside_kernel: settings.is_beside_kernel,
        rules_max: RULES_MAX,
        steering: Steering::ETHERNET | Steering::VLAN | Steering::TOS | Steering::IPV6 | Steering::VXLAN | Steering::TAG | Steering::RSS,
        vlan_insert: true,
        vlan_strip: attr.raw_packet_caps & sys::IBV_RAW_PACKET_CAP_CVLAN_STRIPPING != 0,
        pacing: on_raw(attr.packet_pacing_caps.supported_qpts),
        hardware_time: clock.is_some(),
        lends_heads: true,
        device_memory: attr.max_dm_size.try_into().unwrap_or(usize::MAX),
        dummy: true,
        completions: true,
        completion_time: clock.map(|_| TimeSource::Hardware),
        ..Capabilities::least(DeviceKind::Mlx5, mtu)
    }
}

/// An RDMA device of this machine, as a card.
#[derive(Debug)]
pub struct Candidate {
    /// Its name, as ibv_devices(1) lists it.
    pub device: String,
    /// The interface of its first port; or what is in the way of a ring on it.
    pub interface: Result<String, AttachError>,
}

/// Looks at all RDMA devices: has each open a ring, and close it again.
///
/// # Errors
/// [`AttachError`]: none may be looked at.
pub fn survey() -> Result<Vec<Candidate>, AttachError> {
    let look = |device: String| {
        let settings = Settings { received_frames: 16, copied_frames: 0, send_blocks: 64, send_buffers: 16, ..Settings::new(&device) };
        let ring = Mlx5Device::open_card(&settings).and_then(|card| card.open_ring(&QueuesConfig { steered_only: true }));
        let interface = ring.and_then(|_| {
            interface_of(&device, settings.port).map_err(|error| AttachError::NoInterface { device: device.clone(), port: 1, error })
        });
        Candidate { device, interface }
    };
    Ok(Context::names()?.into_iter().map(look).collect())
}

/// Address and MTU: as they are set, or the interface's.
fn addresses(settings: &Settings) -> Result<(MacAddr, usize), AttachError> {
    let Settings { device, port, mac, mtu, .. } = settings;
    let unknown = |error| AttachError::NoInterface { device: device.clone(), port: *port, error };
    let asked = || address_and_mtu(&interface_of(device, *port)?);
    let (mac, mtu) = match (mac, mtu) {
        (Some(mac), Some(mtu)) => (*mac, *mtu),
        (mac, mtu) => {
            let (own, its) = asked().map_err(unknown)?;
            (mac.unwrap_or(own), mtu.unwrap_or(its))
        }
    };
    Ok((mac, mtu.min(MTU_MAX)))
}
