//! One ring's queues, made of the channels to all peers.

mod host;

use std::collections::VecDeque;
use std::sync::Arc;

use ringway_host::HostQueues;
use ringway_stack::Instant;
use ringway_stack::device::{DeviceEvent, FiveTuple, MacAddr, Queues, RxBatch, SendError, TxFrame, Unsupported, Wake};

use crate::channel::{Channel, Left, NotSent};
use crate::copy;
use crate::device::ShmDevice;
use crate::error::{AttachError, Forged};
use crate::heads::Heads;
use crate::limit::Limit;
use crate::member::{Member, Notice, mac_of, slot_of};
use crate::pool::{Allocator, TxBuf};
use crate::protocol::{Armer, CoreClaims};
use crate::rendezvous::{Rendezvous, Silences};
use crate::rx_buf::RxBuf;
use crate::settings::Settings;
use crate::sync::{Ordering, fence};
use crate::sys;
use crate::wakeups::WakeUps;

/// Frames taken from one peer before the next one's turn.
const QUOTA: usize = 32;
/// Between two looks at peers that wait for buffers, in polls. Slots are told of at once; only handles dropped while
/// nothing is received need this.
const POLLS_PER_SWEEP: u32 = 1024;

/// Ids that are tried until one has its names. (The second is needed by nobody who draws 64 bits.)
const IDS_TRIED: usize = 8;

/// Joins: makes this process a member, with a segment, a wake-up descriptor and a control socket.
///
/// # Errors
/// [`AttachError`]; nothing is left behind.
pub fn attach(settings: &Settings) -> Result<(ShmQueues, Arc<Rendezvous>), AttachError> {
    copy::reset_bulk_copied();
    attach_as(settings, Arc::default(), random_id)
}

/// Joins once more, as another member of the same process: of peers that do not answer, both know what one has found out.
///
/// # Errors
/// As [`attach`].
pub fn attach_beside(settings: &Settings, beside: &Rendezvous) -> Result<(ShmQueues, Arc<Rendezvous>), AttachError> {
    attach_as(settings, beside.silences(), random_id)
}

fn random_id() -> Result<u64, AttachError> {
    sys::random_u64().map_err(AttachError::system("random number"))
}

/// As [`attach`], under an id of `draw`'s: another one where a name is taken already.
pub(crate) fn attach_as(
    settings: &Settings,
    silences: Arc<Silences>,
    mut draw: impl FnMut() -> Result<u64, AttachError>,
) -> Result<(ShmQueues, Arc<Rendezvous>), AttachError> {
    let mut tries = 0;
    let (member, rendezvous) = loop {
        let member = Arc::new(Member::new(settings, draw()?)?);
        match Rendezvous::new(member.clone(), settings, Arc::clone(&silences)) {
            Ok(rendezvous) => break (member, Arc::new(rendezvous)),
            Err(AttachError::System { source, .. }) if source.raw_os_error() == Some(libc::EADDRINUSE) && tries < IDS_TRIED => tries += 1,
            Err(error) => return Err(error),
        }
    };
    let mut device = ShmQueues::new(member, rendezvous.clone());
    device.spare_heads = settings.head_memory.map(|memory| Heads::within(settings.heads_max, memory));
    device.heads_max = settings.heads_max;
    Ok((device, rendezvous))
}

/// Shared memory as a NIC. Dropping it leaves: peers see this member gone.
#[derive(Debug)]
pub struct ShmQueues {
    device: ShmDevice,
    member: Arc<Member>,
    rendezvous: Arc<Rendezvous>,
    allocator: Allocator,
    /// By slot.
    channels: Vec<Option<Box<Channel>>>,
    /// The slots in use, in no order.
    active: Vec<u16>,
    /// Where in `active` the next poll begins.
    turn: usize,
    /// Slots written to since the last doorbell.
    touched: Vec<u16>,
    /// Slots of which frames were received that the stack may not be through with.
    under_way: Vec<u16>,
    events: VecDeque<DeviceEvent>,
    /// What peers have left of whose end the stack was told last, or is yet to be told.
    left: Vec<(MacAddr, Left)>,
    /// The peer of whose end it was told last.
    told: Option<MacAddr>,
    /// Where small frames are kept, while the ring lends them.
    heads: Option<Heads>,
    /// Those in the program's memory, until the ring lends.
    spare_heads: Option<Heads>,
    heads_max: usize,
    armer: Armer,
    pauses: Armer,
    core_claims: CoreClaims,
    polls: u32,
    /// The thread that slept has taken the wake-ups.
    slept_out: bool,
    /// See [`HostQueues::begin_sleep`].
    has_sleeper: bool,
}

impl ShmQueues {
    fn new(member: Arc<Member>, rendezvous: Arc<Rendezvous>) -> Self {
        let allocator = Allocator::new(member.segment.clone(), member.pool_shape.0, member.pool_shape.1);
        Self {
            device: ShmDevice::new(rendezvous.clone()),
            member,
            rendezvous,
            allocator,
            channels: Vec::new(),
            active: Vec::new(),
            turn: 0,
            touched: Vec::new(),
            under_way: Vec::new(),
            events: VecDeque::new(),
            left: Vec::new(),
            told: None,
            heads: None,
            spare_heads: None,
            heads_max: 0,
            armer: Armer::default(),
            pauses: Armer::of_pauses(),
            core_claims: CoreClaims::default(),
            polls: 0,
            slept_out: false,
            has_sleeper: false,
        }
    }

    /// Send buffers that there are.
    pub fn buffers(&self) -> usize {
        self.allocator.all()
    }

    /// Send buffers that are handed out or held by peers.
    pub fn buffers_in_use(&mut self) -> usize {
        self.allocator.in_use()
    }

    /// The link to a member, for tests that forge its memory.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn link(&self, mac: MacAddr) -> Option<Arc<crate::link::Link>> {
        self.channels.get(slot_of(mac))?.as_deref().map(|channel| channel.link.clone())
    }

    /// The slot of the channel that `mac` names.
    #[inline]
    fn find(&mut self, mac: MacAddr) -> Option<usize> {
        let slot = slot_of(mac);
        let is_there = |device: &Self| matches!(device.channels.get(slot), Some(Some(channel)) if channel.link.mac.is(mac));
        if is_there(self) {
            return Some(slot);
        }
        // The rendezvous may have just connected it.
        self.take_notices();
        is_there(self).then_some(slot)
    }

    /// Sends a frame that the short way is not for.
    #[inline(never)]
    fn send_any(&mut self, frame: &TxFrame<'_, TxBuf>) -> Result<(), SendError> {
        if frame.offload.tso_mss.is_some() {
            return Err(self.capabilities().lacks("TSO").into());
        }
        let Some(&mac) = frame.head.first_chunk() else { return Err(SendError::NoPeer) };
        let Some(slot) = self.find(MacAddr(mac)) else { return Err(SendError::NoPeer) };
        let Some(channel) = self.channels.get_mut(slot).and_then(Option::as_deref_mut) else { return Err(SendError::NoPeer) };
        match channel.tx.send(&channel.link, self.allocator.pool(), &self.member.segment, frame) {
            Ok(()) => {
                if !frame.offload.dummy {
                    channel.tx.touch(slot, &mut self.touched, frame.offload.unsolicited);
                }
                Ok(())
            }
            Err(NotSent::Refused(error)) => Err(error),
            Err(NotSent::Forged(forged)) => {
                self.fail(slot, forged);
                Err(SendError::NoPeer)
            }
        }
    }

    #[cold]
    fn take_notices(&mut self) {
        if !self.member.has_notices() {
            return;
        }
        for notice in self.member.take_notices() {
            match notice {
                Notice::Joined(link) => {
                    let slot = slot_of(link.mac);
                    if self.channels.len() <= slot {
                        self.channels.resize_with(slot + 1, || None);
                    }
                    self.channels[slot] = Some(Box::new(Channel::new(link)));
                    self.active.push(slot as u16);
                }
                Notice::Gone(mac) => {
                    if let Some(Some(channel)) = self.channels.get_mut(slot_of(mac))
                        && channel.link.mac == mac
                    {
                        channel.is_dying = true;
                    }
                }
            }
        }
    }

    /// A peer has died, and all that it had sent is received.
    #[cold]
    fn bury(&mut self, slot: usize) {
        let Some(Some(channel)) = self.channels.get(slot) else { return };
        self.left.push((channel.link.mac, channel.left()));
        self.end(slot);
    }

    /// Ends a peer: reports it, takes our buffers back, and frees its slot.
    #[cold]
    fn end(&mut self, slot: usize) {
        let Some(mut channel) = self.channels.get_mut(slot).and_then(Option::take) else { return };
        channel.tx.reclaim(&mut self.allocator);
        self.active.retain(|&other| usize::from(other) != slot);
        self.touched.retain(|&other| usize::from(other) != slot);
        self.under_way.retain(|&other| usize::from(other) != slot);
        self.turn = 0;
        self.events.push_back(DeviceEvent::PeerGone(channel.link.mac));
        self.rendezvous.release_slot(&channel.link);
        tracing::debug!(pid = channel.link.pid, mac = %channel.link.mac, "peer gone");
    }

    #[cold]
    fn fail(&mut self, slot: usize, forged: Forged) {
        static LINES: Limit = Limit::new();
        if let Some(left_out) = LINES.pass() {
            tracing::warn!(slot, "ending a peer: {forged}{left_out}");
        }
        self.end(slot);
    }

    /// Makes the descriptor to sleep on unreadable.
    pub(crate) fn clear_wake_ups(&mut self) {
        if core::mem::take(&mut self.slept_out) {
            // What has come since then ends the next sleep, once more than is needed.
            return;
        }
        for slot in self.member.wake_ups.clear() {
            if WakeUps::is_of_sleeper(slot) && !self.has_sleeper {
                self.clear_sleeper();
            }
            self.woken_by(slot);
        }
    }

    fn woken_by(&mut self, slot: u64) {
        // (Of a peer that is not polled yet, one lies in its connection uncounted.)
        if let Some(Some(channel)) = self.channels.get_mut(slot as usize)
            && let Some(connection) = &channel.link.connection
        {
            channel.wake_ups.add_one(connection);
        }
    }

    /// Polls the only peer.
    #[inline(always)]
    fn poll_only(&mut self, slot: usize, batch: &mut RxBatch<RxBuf>) {
        let Some(channel) = self.channels.get_mut(slot).and_then(Option::as_deref_mut) else { return };
        let consumed = channel.rx.slots.consumed();
        let end = Self::poll_channel(channel, mac_of(0, 0), None, batch, usize::MAX);
        if channel.rx.slots.consumed() != consumed && !channel.is_under_way {
            channel.is_under_way = true;
            self.under_way.push(slot as u16);
        }
        if let Some(end) = end {
            self.end_peer(slot, end);
        }
    }

    /// Polls each in turn.
    #[inline(never)]
    fn poll_all(&mut self, batch: &mut RxBatch<RxBuf>) {
        let own = mac_of(0, 0);
        let quota = if self.active.len() == 1 { usize::MAX } else { QUOTA };
        let mut ended = None;
        for _ in 0..self.active.len() {
            if self.turn >= self.active.len() {
                self.turn = 0;
            }
            let slot = usize::from(self.active[self.turn]);
            self.turn += 1;
            let Some(channel) = self.channels.get_mut(slot).and_then(Option::as_deref_mut) else { continue };
            let consumed = channel.rx.slots.consumed();
            let end = Self::poll_channel(channel, own, self.heads.as_mut(), batch, quota);
            if channel.rx.slots.consumed() != consumed && !channel.is_under_way {
                channel.is_under_way = true;
                self.under_way.push(slot as u16);
            }
            if let Some(end) = end {
                // One a poll: the list changes under it. The others end in the next.
                ended = Some((slot, end));
                break;
            }
            if batch.is_full() {
                break;
            }
        }
        if let Some((slot, end)) = ended {
            self.end_peer(slot, end);
        }
    }

    /// A peer has died, or is at fault.
    #[cold]
    #[inline(never)]
    fn end_peer(&mut self, slot: usize, end: Result<(), Forged>) {
        match end {
            Ok(()) => self.bury(slot),
            Err(forged) => self.fail(slot, forged),
        }
    }

    /// Polls one peer. Whether it must end now.
    #[inline(always)]
    fn poll_channel(
        channel: &mut Channel,
        own: MacAddr,
        heads: Option<&mut Heads>,
        batch: &mut RxBatch<RxBuf>,
        quota: usize,
    ) -> Option<Result<(), Forged>> {
        let received = channel.rx.receive(&channel.link, own, heads, batch, quota);
        if received.has_told {
            fence(Ordering::SeqCst);
            wake_if_waiting(channel);
        }
        match received.forged {
            Some(forged) => Some(Err(forged)),
            // What was received just now is processed first: an answer to it must not find the peer gone.
            None if channel.is_dying && received.count == 0 && !channel.rx.slots.is_ready(&channel.link.theirs) => Some(Ok(())),
            None => None,
        }
    }

    #[cold]
    fn next_event(&mut self) -> Option<DeviceEvent> {
        if let Some(told) = self.told.take() {
            self.left.retain(|(mac, _)| *mac != told);
        }
        let event = self.events.pop_front();
        if let Some(DeviceEvent::PeerGone(mac)) = event {
            self.told = Some(mac);
        }
        event
    }

    /// Wakes the peers that sleep for want of room and may have some now.
    #[cold]
    fn sweep_waiting(&mut self) {
        fence(Ordering::SeqCst);
        for &slot in &self.active {
            if let Some(channel) = self.channels[usize::from(slot)].as_deref_mut() {
                wake_if_waiting(channel);
            }
        }
    }
}

/// The caller has put a sequentially consistent fence between what it published and this.
fn wake_if_waiting(channel: &mut Channel) {
    if channel.peer_waits_for_room() && channel.tx.kicker.must_kick(&channel.link.peer.view, false) {
        channel.link.wake();
    }
}

impl Queues for ShmQueues {
    type Device = ShmDevice;
    type Rx = RxBuf;
    type Tx = TxBuf;

    fn device(&self) -> &ShmDevice {
        &self.device
    }

    fn mac(&self) -> MacAddr {
        mac_of(0, 0)
    }

    #[inline]
    fn poll_rx(&mut self, _now: Instant, batch: &mut RxBatch<RxBuf>) -> usize {
        if self.member.has_notices() {
            self.take_notices();
        }
        self.polls = self.polls.wrapping_add(1);
        if self.polls.is_multiple_of(POLLS_PER_SWEEP) {
            self.sweep_waiting();
        }
        let before = batch.len();
        // (One peer is what most have, and no handles on small frames.)
        match (&*self.active, &self.heads) {
            (&[slot], None) => self.poll_only(usize::from(slot), batch),
            _ => self.poll_all(batch),
        }
        batch.len() - before
    }

    fn lend_heads(&mut self, on: bool) -> Result<(), Unsupported> {
        match (&self.heads, on) {
            (None, true) => self.heads = Some(self.spare_heads.take().unwrap_or_else(|| Heads::new(self.heads_max))),
            (Some(_), false) => self.heads = None,
            _ => {}
        }
        Ok(())
    }

    #[inline]
    fn rx_ready(&self) -> bool {
        let has_frame = |&slot: &u16| {
            self.channels[usize::from(slot)].as_deref().is_some_and(|channel| channel.is_dying || channel.rx.is_ready(&channel.link))
        };
        self.active.iter().any(has_frame) || self.member.has_notices() || !self.events.is_empty()
    }

    fn tx_alloc(&mut self, len: usize) -> Option<TxBuf> {
        if let Some(buffer) = self.allocator.alloc(len) {
            return Some(buffer);
        }
        self.reap();
        self.allocator.alloc(len).or_else(|| self.allocator.alloc_small())
    }

    fn tx_free(&mut self, len: usize) -> usize {
        self.allocator.free_bytes(len)
    }

    // (Into whoever puts the frame together, so that what is known of it there need not be written down and looked at again.)
    #[inline(always)]
    fn send(&mut self, frame: &TxFrame<'_, TxBuf>) -> Result<(), SendError> {
        let Self { channels, allocator, member, touched, .. } = self;
        if let Some(&mac) = frame.head.first_chunk()
            && let slot = slot_of(MacAddr(mac))
            && let Some(Some(channel)) = channels.get_mut(slot)
            && channel.link.mac.is(MacAddr(mac))
            && channel.tx.sends_small(&channel.link, allocator.pool(), &member.segment, frame)
        {
            channel.tx.touch(slot, touched, frame.offload.unsolicited);
            return Ok(());
        }
        self.send_any(frame)
    }

    #[inline]
    fn doorbell(&mut self) {
        if self.touched.is_empty() {
            return;
        }
        // Between our publishing and our look at the peers' generations (protocol::wake).
        fence(Ordering::SeqCst);
        while let Some(slot) = self.touched.pop() {
            let Some(channel) = self.channels[usize::from(slot)].as_deref_mut() else { continue };
            channel.tx.is_touched = false;
            let may_wait = channel.tx.may_wait(&channel.link);
            if channel.tx.kicker.must_kick(&channel.link.peer.view, may_wait) || channel.tx.must_press(&channel.link) {
                channel.link.wake();
            }
        }
    }

    fn reap(&mut self) {
        let mut failed = None;
        for &slot in &self.active {
            let Some(channel) = self.channels[usize::from(slot)].as_deref_mut() else { continue };
            if let Err(forged) = channel.tx.reap(&channel.link, &mut self.allocator) {
                failed = Some((usize::from(slot), forged));
            }
        }
        if let Some((slot, forged)) = failed {
            self.fail(slot, forged);
        }
    }

    #[inline(always)]
    fn poll_event(&mut self) -> Option<DeviceEvent> {
        if self.told.is_none() && self.events.is_empty() { None } else { self.next_event() }
    }

    #[inline]
    fn note_processed(&mut self) {
        while let Some(slot) = self.under_way.pop() {
            if let Some(channel) = self.channels[usize::from(slot)].as_deref_mut() {
                channel.note_processed();
            }
        }
    }

    #[inline]
    fn note_unfinished(&mut self, mac: MacAddr, flow: &FiveTuple, is_unfinished: bool) {
        if let Some(slot) = self.find(mac)
            && let Some(channel) = self.channels[slot].as_deref_mut()
        {
            channel.unfinished.note(&channel.link.own, flow, is_unfinished);
        }
    }

    fn left_finished(&mut self, mac: MacAddr, flow: &FiveTuple) -> bool {
        self.left.iter().any(|(its, left)| *its == mac && left.is_finished(flow))
    }

    fn arm(&mut self, wake: Wake) -> bool {
        for &slot in &self.active {
            let Some(channel) = self.channels[usize::from(slot)].as_deref_mut() else { continue };
            if channel.rx.slots.has_unpublished() {
                channel.rx.slots.publish_consumed(&channel.link.own);
            }
            if channel.tx.is_blocked {
                channel.tx.set_waiting(&channel.link, true);
            }
        }
        // Its fence orders all of the above before the looks below, at both ends.
        self.armer.arm(&*self.member.segment, wake);
        let has_room = |device: &mut Self| {
            device.reap();
            device.active.iter().any(|&slot| {
                let channel = device.channels[usize::from(slot)].as_deref_mut();
                channel.is_some_and(|channel| channel.tx.is_blocked && channel.tx.has_room(&channel.link).unwrap_or(true))
            })
        };
        let is_blocked = |device: &Self| device.channels.iter().flatten().any(|channel| channel.tx.is_blocked);
        if self.rx_ready() || (is_blocked(self) && has_room(self)) {
            self.disarm();
            return false;
        }
        self.sweep_waiting();
        true
    }

    fn disarm(&mut self) {
        if !self.armer.is_armed() {
            return;
        }
        self.armer.disarm(&*self.member.segment);
        for &slot in &self.active {
            let Some(channel) = self.channels[usize::from(slot)].as_deref_mut() else { continue };
            if channel.tx.is_blocked {
                channel.tx.is_blocked = false;
                channel.tx.set_waiting(&channel.link, false);
            }
        }
        self.clear_wake_ups();
    }

    fn wait_fd(&self) -> Option<i32> {
        Some(self.member.wake_ups.fd())
    }
}

impl Drop for ShmQueues {
    fn drop(&mut self) {
        self.rendezvous.leave();
    }
}
