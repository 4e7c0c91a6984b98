//! The simulated NIC: the packet plane of a ConnectX, in virtual time.
//!
//! A [`Nic`] has several rings ([`SimQueues`]), one steering table, one wire and some memory of its own. It is as unforgiving as the contract
//! allows: bytes of a send buffer that was sent may not be written again, a frame that was queued must be followed by a doorbell, and what is
//! detached must have been attached. A breach panics, naming the contract, since no later symptom would point back at it. What the
//! capabilities don't name is refused with a typed error. Every limit is enforced and every buffer counted.

mod buffer;
mod card;
mod config;
mod cyclic;
mod faults;
mod fields;
mod hardware;
mod lro;
mod mac_per_ring;
mod memory;
mod offload;
mod pacing;
mod queues;
mod recycling;
mod ring;
mod rss;
mod steering;

pub use buffer::{SimRx, SimTx};
pub use config::NicConfig;
pub use faults::{NicFault, NicFaults, NicStrike, Strength};
pub(crate) use mac_per_ring::LeftBehind;
pub use pacing::Bucket;
pub use ring::SimQueues;

use core::cell::{RefCell, RefMut};
use core::fmt;
use core::ops::AddAssign;
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::device::{Capabilities, Device as _, DeviceEvent, MacAddr, QueuesConfig};

use hardware::Hardware;

/// Buffers, queue slots and rules that are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outstanding {
    /// Send buffers that someone holds a handle on.
    pub tx_buffers: usize,
    /// Receive buffers that someone holds a handle on, those of queued frames included.
    pub rx_buffers: usize,
    /// Frames queued for sending, or sent and not reaped.
    pub tx_frames: usize,
    /// Frames received and not polled.
    pub rx_frames: usize,
    /// Flow rules attached.
    pub rules: usize,
    /// Cyclic queues.
    pub cyclic_queues: usize,
    /// Runs of cyclic queues that someone reads.
    pub cyclic_runs: usize,
    /// Bytes of device memory allocated.
    pub device_memory: usize,
}

impl AddAssign for Outstanding {
    fn add_assign(&mut self, other: Self) {
        let Self { tx_buffers, rx_buffers, tx_frames, rx_frames, rules, cyclic_queues, cyclic_runs, device_memory } = self;
        *tx_buffers += other.tx_buffers;
        *rx_buffers += other.rx_buffers;
        *tx_frames += other.tx_frames;
        *rx_frames += other.rx_frames;
        *rules += other.rules;
        *cyclic_queues += other.cyclic_queues;
        *cyclic_runs += other.cyclic_runs;
        *device_memory += other.device_memory;
    }
}

/// Why the NIC dropped an arriving frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxDrop {
    /// The receive queue was full.
    QueueFull,
    /// No receive buffer was posted, or no stride free.
    NoBuffer,
    /// The NIC or the ring was down after a fault, or no ring wanted the frame.
    Down,
}

/// What became of an arriving frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reception {
    /// Whether at least one ring got it, or why the first one did not.
    pub outcome: Result<(), RxDrop>,
    /// When whoever sleeps on a ring is to be woken for it; `None`: not for this frame alone.
    pub wake_at: Option<Instant>,
}

/// A frame that leaves a NIC.
#[derive(Debug)]
pub(crate) struct Departure {
    pub(crate) bytes: Rc<[u8]>,
    /// The NIC filled in all of its checksums, over and inside whatever it tunnels.
    pub(crate) sound: bool,
    /// It may wait, says its sender.
    pub(crate) unsolicited: bool,
    /// [`Nic::take_handed`] gave it when it was handed over.
    pub(crate) shown: bool,
}

/// A simulated NIC: a handle, whose clones are of the same one. The drivers' side are [`Device`](ringway_stack::device::Device), and [`SimQueues`] for each ring.
#[derive(Clone)]
pub struct Nic {
    hardware: Rc<RefCell<Hardware>>,
    capabilities: Rc<Capabilities>,
}

impl fmt::Debug for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Nic").field(&self.hardware().mac).finish()
    }
}

impl Nic {
    /// A NIC without rings.
    pub fn new(mac: MacAddr, config: NicConfig) -> Self {
        Self::seeded(mac, config, 0, 0)
    }

    /// A NIC without rings, whose faults follow from a world's seed and a host's number.
    pub fn seeded(mac: MacAddr, config: NicConfig, seed: u64, host: u32) -> Self {
        let capabilities = Rc::new(config.capabilities());
        Self { hardware: Rc::new(RefCell::new(Hardware::new(mac, config, seed, host))), capabilities }
    }

    /// A ring for a stack. The first of them gets the IP frames, and each of them gets the others, that no rule steers.
    ///
    /// # Panics
    /// The NIC has [`NicConfig::rings_max`] of them already.
    pub fn ring(&self) -> SimQueues {
        self.open(&QueuesConfig { steered_only: false }).expect("there is room for another ring")
    }

    /// A ring that gets nothing but what its rules steer to it.
    ///
    /// # Panics
    /// The NIC has [`NicConfig::rings_max`] of them already.
    pub fn steered_ring(&self) -> SimQueues {
        self.open(&QueuesConfig { steered_only: true }).expect("there is room for another ring")
    }

    /// The wire's side: a frame's last bit arrives.
    pub fn receive(&self, now: Instant, bytes: &Rc<[u8]>) -> Reception {
        self.arrive(now, bytes, false, false)
    }

    /// As [`Nic::receive`]. `sound`: the checksums are known to be right; `unsolicited`: the sender says that it may wait.
    pub(crate) fn arrive(&self, now: Instant, bytes: &Rc<[u8]>, sound: bool, unsolicited: bool) -> Reception {
        self.hardware().receive(now, bytes, sound, unsolicited)
    }

    /// The wire's side: the next frame that leaves now, read out of the stack's buffers. Dummies complete on the way.
    pub fn transmit(&self, now: Instant) -> Option<Rc<[u8]>> {
        self.depart(now).map(|departure| departure.bytes)
    }

    /// As [`Nic::transmit`].
    pub(crate) fn depart(&self, now: Instant) -> Option<Departure> {
        self.hardware().transmit(now)
    }

    /// The oldest frame that was handed over and has not been taken yet, as it will be on the wire if it gets there: of those that may leave late, or
    /// never, for a fault or a rate.
    pub(crate) fn take_handed(&self) -> Option<Rc<[u8]>> {
        self.hardware().take_handed()
    }

    /// The wire's side: the oldest frame that was read has left. Whether someone waits for room.
    ///
    /// # Panics
    /// There is no such frame.
    pub fn complete(&self) -> bool {
        self.hardware().complete()
    }

    /// The wire's side: when the frame that was read last will have left. It completes then, and [`Nic::complete`] need not be called.
    pub(crate) fn leaves(&self, at: Instant) {
        self.hardware().leaves(at);
    }

    /// Lets complete what has left by `now`. Whether someone waits for room.
    pub(crate) fn settle(&self, now: Instant) -> bool {
        self.hardware().settle(now)
    }

    /// Whether no fault of its own ever strikes it.
    pub(crate) fn is_calm(&self) -> bool {
        self.hardware().trouble.calm
    }

    /// When [`Nic::advance`] and [`Nic::transmit`] have something to do, if no frame arrives and no driver calls before.
    pub fn next_at(&self) -> Option<Instant> {
        self.hardware().next_at()
    }

    /// Lets what is due by `now` happen. Whether whoever sleeps on a ring is to be woken.
    pub fn advance(&self, now: Instant) -> bool {
        self.hardware().advance(now)
    }

    /// Switches faults on or off; what they brought about ends with them.
    pub fn set_faults(&self, on: bool) {
        self.hardware().set_faults(on);
    }

    /// Something happened to the port that every ring is told of.
    pub(crate) fn notify(&self, event: DeviceEvent) {
        for ring in &mut self.hardware().rings {
            ring.events.push_back(event);
        }
    }

    /// It has another Ethernet address from now on.
    pub(crate) fn set_mac(&self, mac: MacAddr) {
        self.hardware().mac = mac;
    }

    /// The faults that struck since the last call.
    pub fn take_strikes(&self) -> Vec<NicStrike> {
        self.hardware().trouble.take_strikes()
    }

    /// [`Nic::take_strikes`] and [`Nic::next_at`], at once.
    pub(crate) fn news(&self) -> (Vec<NicStrike>, Option<Instant>) {
        let mut hardware = self.hardware();
        (hardware.trouble.take_strikes(), hardware.next_at())
    }

    /// No further faults strike, but what they brought about goes on.
    #[cfg(test)]
    fn trouble_off(&self) {
        self.hardware().trouble.on = false;
    }

    /// What each of its rings would leave behind if its host died now ([`NicConfig::mac_per_ring`]).
    pub(crate) fn left_behind(&self) -> Vec<(MacAddr, Rc<LeftBehind>)> {
        self.hardware().left_behind()
    }

    /// A peer is dead, and its rings are told.
    pub(crate) fn tell_of_death(&self, mac: MacAddr, left: &Rc<LeftBehind>) {
        self.hardware().tell_of_death(mac, Rc::clone(left));
        self.notify(DeviceEvent::PeerGone(mac));
    }

    /// Whether each of its rings has a MAC address of its own.
    pub(crate) fn has_mac_per_ring(&self) -> bool {
        self.hardware().config.mac_per_ring
    }

    /// What is in use right now, on all rings. All zero once every socket is gone and the wire is quiet, or something leaked.
    pub fn outstanding(&self) -> Outstanding {
        self.hardware().outstanding()
    }

    /// Receive buffers of each of its rings.
    pub(crate) fn rx_buffers_max(&self) -> usize {
        self.hardware().config.rx_buffers_max
    }

    /// Its Ethernet address.
    pub fn mac(&self) -> MacAddr {
        self.hardware().mac
    }

    /// Whether something arrived on a ring of [`Nic::steered_ring`] since the last call: its owner is a program, not a stack.
    pub(crate) fn take_news(&self) -> bool {
        self.hardware().take_news()
    }

    /// Whether [`Nic::take_news`] would say so.
    pub(crate) fn has_news(&self) -> bool {
        self.hardware().rings.iter().any(|ring| ring.open && ring.steered_only && ring.news)
    }

    /// Panics if frames were queued and no doorbell followed.
    pub(crate) fn check_doorbells(&self) {
        self.hardware().check_doorbells();
    }

    fn hardware(&self) -> RefMut<'_, Hardware> {
        self.hardware.borrow_mut()
    }
}

#[cfg(test)]
mod tests;
