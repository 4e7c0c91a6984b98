//! Soft RoCE: a [`Node`] on a device's queues, so that whatever carries frames has a message plane. Frames come and go here; queue pairs, memory and connections
//! are [`SoftRoce::node_mut`]'s.
//!
//! Where packets go, and who may speak for whom, is what its [`Ways`] say. Where the device vouches for who sent a frame ([`Vouched`]), a packet whose IP address is not that
//! one's is dropped, so that nobody speaks for somebody else. What a peer's queue has no room for waits, up to [`WAITING_MAX`] packets
//! or [`WAITING_BYTES_MAX`] a peer, so that one that is stopped holds up nobody else; and so does what is for a neighbour whom the host asks for. What is more than
//! that is lost, and sent again by the queue pair.

mod ways;

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use self::ways::{Neighbours, Routed, Vouched, Way, Ways};
use super::Node;
use super::mad::GSI_QP;
use super::memory::Memory;
use super::network::Network;
use super::packet::datagram::OVERHEAD_MAX;
use super::packet::write::WriteOnly;
use super::packet::{Aeth, BTH_LEN, Body, Syndrome};
use super::payload::Source;
use crate::device::messages::{PostError, SendWr};
use crate::device::{
    DeviceEvent, GATHER_LIMIT, MacAddr, Queues, RxBatch, RxBuffer, RxFrame, SendError, TxBuffer, TxFrame, TxOffload, TxSlice, Wake,
};
use crate::time::{Instant, earlier};
use crate::wire::{ethernet, ipv4, ipv6, udp};

/// Packets that wait for room at one peer.
pub const WAITING_MAX: usize = 256;
/// The same in bytes.
pub const WAITING_BYTES_MAX: usize = 4 << 20;
/// Peers for whom packets wait.
const WAITING_PEERS_MAX: usize = 1024;
/// When what waits for room is tried again, where nothing tells of room.
const ROOM_AFTER: Duration = Duration::from_micros(50);
/// When what waits for a neighbour is looked at again, whatever the host tells.
const NEIGHBOUR_AFTER: Duration = Duration::from_secs(1);
/// How long acknowledgments wait that may ([`super::Tuning::acknowledges_late`]), as long as somebody polls: of messages that are answered each, one goes for several.
const ACKNOWLEDGES_WITHIN: Duration = Duration::from_micros(50);
/// Frames that are taken from the device at a time.
const BATCH: usize = 32;
/// Batches in one [`SoftRoce::poll`]: others want the lock, too.
const BATCHES_MAX: usize = 8;
/// The headers that every packet has: they are copied, and what follows lies in buffers of the device.
const HEAD: usize = ethernet::LEN + ipv6::LEN + udp::LEN + BTH_LEN;

/// What is copied of a frame at first: all headers of any packet, and all of one that is short.
const FRONT: usize = 256;
const _: () = assert!(FRONT >= ethernet::LEN + 4 + OVERHEAD_MAX, "headers of IPv6, and a VLAN's tag");

/// The IP packet in a frame.
struct Behind<'a, R> {
    frame: &'a RxFrame<R>,
    ethernet_len: usize,
}

impl<R: RxBuffer> Source for Behind<'_, R> {
    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        self.frame.copy_to(self.ethernet_len + offset, out);
    }
}

/// What came and went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Packets received.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets for which there was no room, or whose receiver is not there.
    pub lost: u64,
    /// Frames that were no packets of who sent them.
    pub strange: u64,
}

/// Frames that wait for room.
#[derive(Debug, Default)]
struct Waiting {
    frames: VecDeque<Vec<u8>>,
    /// All of them have.
    bytes: usize,
}

/// Who sees each frame: whether it leaves, and all of its bytes. Called in the middle of the plane's work.
pub type Tap = dyn FnMut(bool, &[u8]) + Send;

/// Whether another machine with the same addresses has the service of this number.
pub type Elsewhere = dyn Fn(u64) -> bool + Send;

/// A message plane on a device's queues.
pub struct SoftRoce<Q: Queues, M, W> {
    queues: Q,
    node: Node<M>,
    ways: W,
    /// Frames that wait for room, or for their receiver's neighbour to answer, by their receiver.
    waiting: BTreeMap<IpAddr, Waiting>,
    /// When to look at them again, if nothing tells.
    look_at: Option<Instant>,
    /// Since when acknowledgments wait that may, as far as [`SoftRoce::transmit_due`] has seen.
    owing_since: Option<Instant>,
    /// `None` only while its frames are looked at.
    batch: Option<Box<RxBatch<Q::Rx>>>,
    frame: Vec<u8>,
    /// Frames were put into the queues of which their receivers were not told.
    has_untold: bool,
    traffic: Traffic,
    tap: Option<Box<Tap>>,
    /// Other machines have its addresses, too.
    elsewhere: Option<Box<Elsewhere>>,
}

impl<Q: Queues, M: Memory, W: Ways> SoftRoce<Q, M, W> {
    /// On these queues, whose device carries packets of at least [`super::NodeConfig::mtu`] and what goes around them.
    pub fn new(queues: Q, node: Node<M>, ways: W) -> Self {
        Self {
            queues,
            node,
            ways,
            waiting: BTreeMap::new(),
            look_at: None,
            owing_since: None,
            batch: Some(Box::new(RxBatch::new(BATCH))),
            frame: vec![0; ethernet::LEN + Node::<M>::PACKET_MAX],
            has_untold: false,
            traffic: Traffic::default(),
            tap: None,
            elsewhere: None,
        }
    }

    /// Other machines have its addresses, too, as several processes on one interface do, and see the same connection management: what concerns nothing here is left to them. Of a
    /// service that is not listened at here, `elsewhere` says whether another one has it; if nobody has, it is refused.
    pub fn share_addresses(&mut self, elsewhere: Box<Elsewhere>) {
        self.elsewhere = Some(elsewhere);
    }

    /// Shows each frame to `tap` from now on, or to nobody. Returns who saw them until now, to be dropped where that may take its time.
    pub fn set_tap(&mut self, tap: Option<Box<Tap>>) -> Option<Box<Tap>> {
        core::mem::replace(&mut self.tap, tap)
    }

    /// The message plane. What was asked of it goes out by [`SoftRoce::transmit`].
    pub const fn node_mut(&mut self) -> &mut Node<M> {
        &mut self.node
    }

    /// The message plane.
    pub const fn node(&self) -> &Node<M> {
        &self.node
    }

    /// Whom a connected queue pair is with (the adapter's address, and the queue pair there), if all that was posted is in the peer's queue, or was taken out of it
    /// already: then whatever is done at the peer in another way comes after it, to whoever looks into that queue first.
    pub fn caught_up_peer(&self, qp: u32) -> Option<(IpAddr, u32)> {
        let (peer, dest_qp) = self.node.hca().peer_of(qp).filter(|_| self.node.hca().has_sent_all(qp))?;
        (!self.waiting.contains_key(&peer)).then_some((peer, dest_qp))
    }

    /// The device's queues below.
    pub const fn queues_mut(&mut self) -> &mut Q {
        &mut self.queues
    }

    /// What came and went.
    pub const fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// When to poll at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        earlier(self.node.deadline(), self.look_at)
    }

    /// Takes what the device has, does what is due, and sends what follows. How many frames, events and timers there were.
    pub fn poll(&mut self, now: Instant) -> usize {
        let done = self.take(now);
        self.transmit(now);
        done
    }

    /// The same, and sends nothing yet: for who has more to send, and calls [`SoftRoce::transmit`] then.
    pub fn take(&mut self, now: Instant) -> usize {
        let mut done = self.receive(now);
        while let Some(event) = self.queues.poll_event() {
            done += 1;
            match event {
                DeviceEvent::PeerGone(mac) => self.on_peer_gone(now, mac),
                DeviceEvent::Gone => self.on_down(),
                _ => {}
            }
        }
        if self.node.deadline().is_some_and(|at| at <= now) {
            done += 1;
            self.node.on_timer(now);
        }
        done
    }

    /// Posts a request to send, as the node does. A message of one packet is in its receiver's queue by that, if nothing is in its way;
    /// [`SoftRoce::transmit`], and [`SoftRoce::transmit_due`], tell the receiver.
    ///
    /// # Errors
    /// [`PostError`]; it was not taken.
    pub fn post_send(&mut self, now: Instant, qp: u32, wr: &SendWr<'_>) -> Result<(), PostError> {
        if !self.waiting.is_empty() {
            return self.node.hca_mut().post_send(now, qp, wr);
        }
        let mut frame = core::mem::take(&mut self.frame);
        let posted = self.node.post_and_transmit(now, qp, wr, &mut frame[ethernet::LEN..]);
        if let Ok(Some(len)) = posted {
            let frame = &mut frame[..ethernet::LEN + len];
            if !self.sends_at_once(frame) {
                self.send_packet(now, frame);
            }
            self.has_untold = true;
        }
        self.frame = frame;
        posted.map(|_| ())
    }

    /// Whether [`SoftRoce::transmit`] may have something to send, or to tell.
    pub fn may_transmit(&self) -> bool {
        self.has_untold || !self.waiting.is_empty() || self.node.may_transmit()
    }

    /// The same but for acknowledgments that may wait ([`super::Tuning::acknowledges_late`]): until something else is sent, or somebody polls, or sleeps.
    #[inline]
    pub fn is_urgent(&self) -> bool {
        self.has_untold || self.may_send()
    }

    /// Whether there may be something to send, but for acknowledgments that may wait.
    #[inline]
    fn may_send(&self) -> bool {
        !self.waiting.is_empty() || self.node.is_urgent()
    }

    /// Sends what there is to send.
    pub fn transmit(&mut self, now: Instant) {
        self.owing_since = None;
        self.queues.reap();
        if !self.may_transmit() {
            // (What could not be told before is told now.)
            return self.tell();
        }
        self.send(now, true);
    }

    /// Tells receivers of what is in their queues.
    fn tell(&mut self) {
        self.has_untold = false;
        self.queues.doorbell();
    }

    /// The same, but for acknowledgments that may wait, until they have for a while. Whoever calls this sees to it that somebody goes on polling, or calls
    /// [`SoftRoce::transmit`].
    #[inline]
    pub fn transmit_due(&mut self, now: Instant) {
        let with_owing = self.owes_for_long(now);
        if with_owing || self.may_send() {
            self.queues.reap();
            self.send(now, with_owing);
        } else if self.has_untold {
            self.tell();
        }
    }

    /// Whether acknowledgments that may wait have for as long as they may.
    #[inline]
    fn owes_for_long(&mut self, now: Instant) -> bool {
        if !self.node.is_owing() {
            self.owing_since = None;
            return false;
        }
        let owes = now.since(*self.owing_since.get_or_insert(now)) >= ACKNOWLEDGES_WITHIN;
        self.owing_since = self.owing_since.filter(|_| !owes);
        owes
    }

    fn send(&mut self, now: Instant, with_owing: bool) {
        self.send_waiting(now);
        let mut frame = core::mem::take(&mut self.frame);
        while (self.node.is_urgent() || with_owing && self.node.is_owing())
            && let Some(len) = self.node.poll_transmit_some(now, &mut frame[ethernet::LEN..], with_owing)
        {
            self.send_packet(now, &mut frame[..ethernet::LEN + len]);
        }
        self.frame = frame;
        self.tell();
    }

    /// Makes the next frame, or room where there was none, signal the queues' descriptor; acknowledgments only if `wake` says so, or if something is to be sent
    /// as soon as one comes. `false`: there is something to poll for now.
    pub fn arm(&mut self, wake: Wake) -> bool {
        self.queues.arm(if self.node.hca().awaits_acknowledgment() { Wake::Any } else { wake })
    }

    /// Whether there is anything to poll for, as the device knows. It costs next to nothing.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.queues.rx_ready()
    }

    /// Ends what [`SoftRoce::arm`] began.
    pub fn disarm(&mut self) {
        self.queues.disarm();
    }

    fn receive(&mut self, now: Instant) -> usize {
        let Some(mut batch) = self.batch.take() else { return 0 };
        let mut done = 0;
        for _ in 0..BATCHES_MAX {
            let count = self.queues.poll_rx(now, &mut batch);
            for frame in batch.frames_mut() {
                self.on_frame(now, frame);
            }
            batch.clear();
            self.queues.note_processed();
            done += count;
            if count < BATCH {
                break;
            }
        }
        self.batch = Some(batch);
        done
    }

    fn on_frame(&mut self, now: Instant, frame: &RxFrame<Q::Rx>) {
        if let Some(tap) = &mut self.tap {
            tap(false, &frame.to_vec());
        }
        if self.takes_predicted(frame) {
            self.traffic.received += 1;
            return;
        }
        let mut bytes = core::mem::take(&mut self.frame);
        let is_taken = self.take_frame(now, frame, &mut bytes);
        self.frame = bytes;
        match is_taken {
            Some(()) => self.traffic.received += 1,
            None => self.traffic.strange += 1,
        }
    }

    /// Takes a frame whose packet goes the short way, from where it lies: all of it is in a copy of the device's.
    #[inline(always)]
    fn takes_predicted(&mut self, frame: &RxFrame<Q::Rx>) -> bool {
        let head = frame.head();
        let Some(packet) = packet_of_v6(head).filter(|packet| frame.len() == head.len() && WriteOnly::may_be(packet)) else { return false };
        // (Whose frame it is says the device.)
        let (Some(mac), Some(from)) = (head[6..].first_chunk(), packet[8..].first_chunk()) else { return false };
        let is_admitted =
            self.ways.surely_admits(*mac, *from) || ends_of(packet).is_some_and(|(from, to)| self.ways.admits(MacAddr(*mac), from, to));
        is_admitted && self.node.take_predicted(packet)
    }

    /// Takes the IP packet in a frame, if it is its sender's. `bytes`: where it is copied to. A long write's payload stays where it is, until it is copied to
    /// where it belongs, if the node lets it.
    fn take_frame(&mut self, now: Instant, frame: &RxFrame<Q::Rx>, bytes: &mut [u8]) -> Option<()> {
        let bytes = bytes.get_mut(..frame.len())?;
        let (front, rest) = bytes.split_at_mut(FRONT.min(frame.len()));
        frame.copy_to(0, front);
        let (header, len) = ethernet::Header::parse(front).ok()?;
        let (from, to) = ends_of(front.get(len..)?)?;
        if !self.ways.admits(header.src, from, to) {
            return None;
        }
        if !rest.is_empty() {
            let packet = Behind { frame, ethernet_len: len };
            if self.node.on_front(now, &front[len..], frame.len() - len, &packet) {
                return Some(());
            }
            // (The front stays as it was looked at.)
            frame.copy_to(FRONT, rest);
        }
        if !self.is_anothers(&bytes[len..]) {
            self.node.on_packet(now, &bytes[len..]);
        }
        Some(())
    }

    /// Whether an IP packet is connection management that another machine with this one's addresses is to answer, or nobody.
    fn is_anothers(&self, packet: &[u8]) -> bool {
        let Some(elsewhere) = self.elsewhere.as_ref().filter(|_| dest_qp_of(packet) == Some(GSI_QP)) else { return false };
        !self.node.concerns(packet) && Node::<M>::service_asked(packet).is_none_or(elsewhere)
    }

    fn send_packet(&mut self, now: Instant, frame: &mut [u8]) {
        let Some((_, to)) = ends_of(&frame[ethernet::LEN..]) else {
            self.traffic.lost += 1;
            return;
        };
        let ethertype = if to.is_ipv4() { ethernet::ETHERTYPE_IPV4 } else { ethernet::ETHERTYPE_IPV6 };
        ethernet::Header { dst: MacAddr([0; 6]), src: self.queues.mac(), vlan: None, ethertype }.emit(frame);
        // Behind what waits, to stay in order.
        if (self.waiting.is_empty() || !self.waiting.contains_key(&to)) && self.send_to(now, to, frame) {
            return;
        }
        let is_full = self.waiting.len() >= WAITING_PEERS_MAX && !self.waiting.contains_key(&to);
        let fits = |waiting: &Waiting| waiting.frames.len() < WAITING_MAX && waiting.bytes + frame.len() <= WAITING_BYTES_MAX;
        if is_full || !self.waiting.get(&to).is_none_or(fits) {
            self.traffic.lost += 1;
            return;
        }
        let waiting = self.waiting.entry(to).or_default();
        waiting.frames.push_back(frame.to_vec());
        waiting.bytes += frame.len();
    }

    /// Sends a frame of IPv6 that goes without buffers, if its way is at hand and there is room. Nothing waits for room.
    #[inline(always)]
    fn sends_at_once(&mut self, frame: &mut [u8]) -> bool {
        let to = frame.get(ethernet::LEN + 24..).and_then(|rest| rest.first_chunk());
        let Some(dst) = to.and_then(|to| self.ways.surely_leads(*to)) else { return false };
        ethernet::Header { dst, src: self.queues.mac(), vlan: None, ethertype: ethernet::ETHERTYPE_IPV6 }.emit(frame);
        let is_short = frame.len() <= self.queues.capabilities().inline_max;
        if !is_short || self.queues.send(&TxFrame { head: frame, body: &[], offload: TxOffload::default() }).is_err() {
            return false;
        }
        self.traffic.sent += 1;
        if let Some(tap) = &mut self.tap {
            tap(true, frame);
        }
        true
    }

    /// Sends a frame, or loses it. `false`: neither; it has to wait.
    fn send_to(&mut self, now: Instant, to: IpAddr, frame: &mut [u8]) -> bool {
        let sent = match self.ways.way(now, to) {
            Way::To(mac) => {
                frame[..mac.0.len()].copy_from_slice(&mac.0);
                self.send_frame(frame)
            }
            Way::Asked => {
                self.look_again(now + NEIGHBOUR_AFTER);
                return false;
            }
            Way::Nowhere => Err(SendError::NoPeer),
        };
        match sent {
            Ok(()) => {}
            Err(SendError::Full) => {
                if !W::TELLS_OF_ROOM {
                    self.look_again(now + ROOM_AFTER);
                }
                return false;
            }
            Err(_) => self.traffic.lost += 1,
        }
        true
    }

    fn look_again(&mut self, at: Instant) {
        self.look_at = Some(self.look_at.map_or(at, |known| known.min(at)));
    }

    fn send_waiting(&mut self, now: Instant) {
        if self.waiting.is_empty() {
            return;
        }
        self.look_at = None;
        let mut waiting = core::mem::take(&mut self.waiting);
        waiting.retain(|to, Waiting { frames, bytes }| {
            while let Some(frame) = frames.front_mut() {
                let len = frame.len();
                if !self.send_to(now, *to, frame) {
                    break;
                }
                *bytes -= len;
                frames.pop_front();
            }
            !frames.is_empty()
        });
        self.waiting = waiting;
    }

    /// Sends a frame: its headers, and what follows in buffers of the device, unless all of it goes without.
    fn send_frame(&mut self, frame: &[u8]) -> Result<(), SendError> {
        let offload = TxOffload { unsolicited: is_acknowledgment(frame), ..TxOffload::default() };
        if frame.len() <= self.queues.capabilities().inline_max {
            self.queues.send(&TxFrame { head: frame, body: &[], offload })?;
        } else {
            self.send_long(frame, offload)?;
        }
        self.traffic.sent += 1;
        if let Some(tap) = &mut self.tap {
            tap(true, frame);
        }
        Ok(())
    }

    #[inline(never)]
    fn send_long(&mut self, frame: &[u8], offload: TxOffload) -> Result<(), SendError> {
        let (head, mut rest) = frame.split_at(HEAD.min(frame.len()));
        let mut buffers = arrayvec::ArrayVec::<(Q::Tx, usize), GATHER_LIMIT>::new();
        while !rest.is_empty() {
            if buffers.len() == self.queues.capabilities().gather_max.min(GATHER_LIMIT) {
                return Err(SendError::Full);
            }
            let mut buffer = self.queues.tx_alloc(rest.len()).ok_or(SendError::Full)?;
            let (piece, behind) = rest.split_at(buffer.capacity().min(rest.len()));
            buffer.write(0, piece);
            buffers.push((buffer, piece.len()));
            rest = behind;
        }
        let body: arrayvec::ArrayVec<_, GATHER_LIMIT> =
            buffers.iter().map(|(buffer, len)| TxSlice { buffer, offset: 0, len: *len }).collect();
        self.queues.send(&TxFrame { head, body: &body, offload })
    }

    fn on_peer_gone(&mut self, now: Instant, mac: MacAddr) {
        if let Some(address) = self.ways.gone(mac) {
            self.waiting.remove(&address);
            self.node.on_peer_gone(now, address);
        }
    }

    /// Nothing comes and goes any more, for now or for good: connections end.
    fn on_down(&mut self) {
        self.waiting.clear();
        self.look_at = None;
        self.node.on_down();
    }
}

impl<Q: Queues, M: Memory> SoftRoce<Q, M, Routed> {
    /// What the host's tables say of the network, from now on. Where the link has gone down, connections end.
    pub fn set_network(&mut self, network: Network) {
        let goes_down = self.ways.network().is_running() && !network.is_running();
        self.node.set_network(network.clone());
        self.ways.set_network(network);
        if goes_down {
            self.on_down();
        }
    }

    /// The next neighbour that the host is to ask for, or to hear of that it is in use.
    pub fn take_question(&mut self) -> Option<IpAddr> {
        self.ways.take_question()
    }

    /// Whether there is one.
    pub fn has_questions(&self) -> bool {
        self.ways.has_questions()
    }
}

/// The packet in an Ethernet frame of IPv6, without a VLAN's tag.
#[inline]
fn packet_of_v6(frame: &[u8]) -> Option<&[u8]> {
    let (header, packet) = frame.split_first_chunk::<{ ethernet::LEN }>()?;
    (header[ethernet::LEN - 2..] == ethernet::ETHERTYPE_IPV6.to_be_bytes()).then_some(packet)
}

/// The base transport header, and what follows, of an IP packet.
fn transport_of(packet: &[u8]) -> Option<&[u8]> {
    let ip_len = if packet.first().is_some_and(|byte| byte >> 4 == 4) { ipv4::LEN } else { ipv6::LEN };
    packet.get(ip_len + udp::LEN..)
}

/// The queue pair that an IP packet is for (IBTA spec, volume 1, s9.2).
fn dest_qp_of(packet: &[u8]) -> Option<u32> {
    transport_of(packet)?.get(4..8).map(|bytes| u32::from_be_bytes([0, bytes[1], bytes[2], bytes[3]]))
}

/// Whether a frame, with an Ethernet header of ours, says nothing but what has arrived: no refusal, and no data.
fn is_acknowledgment(frame: &[u8]) -> bool {
    /// Bits of AETH's first byte that are zero in an acknowledgment (IBTA spec, volume 1, s9.7.5.2.3).
    const REFUSES: u8 = 0x60;
    let Some(transport) = frame.get(ethernet::LEN..).and_then(transport_of) else { return false };
    let opcode = Body::Acknowledge(Aeth { syndrome: Syndrome::Ack(0), msn: 0 }).opcode();
    transport.first() == Some(&opcode) && transport.get(BTH_LEN).is_some_and(|syndrome| syndrome & REFUSES == 0)
}

/// Source and destination of an IP packet.
fn ends_of(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    fn at<const N: usize>(packet: &[u8], offset: usize) -> Option<[u8; N]> {
        packet.get(offset..offset + N)?.try_into().ok()
    }
    match packet.first()? >> 4 {
        4 => Some((Ipv4Addr::from(at::<4>(packet, 12)?).into(), Ipv4Addr::from(at::<4>(packet, 16)?).into())),
        6 => Some((Ipv6Addr::from(at::<16>(packet, 8)?).into(), Ipv6Addr::from(at::<16>(packet, 24)?).into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
