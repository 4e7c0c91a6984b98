//! One ring's queues, of whichever device it is on. Each call is a match: nothing on the path of a packet is virtual.

use std::os::fd::RawFd;

use ringway_host::HostQueues;
use ringway_host::queues::SLEEPER;
use ringway_shm::ShmQueues;
use ringway_stack::Instant;
use ringway_stack::device::{
    Capabilities, Device as _, DeviceEvent, FiveTuple, MacAddr, Queues, RxBatch, SendError, TxFrame, Unsupported, Wake,
};
use ringway_xdp::XdpQueues;

use super::{Card, RxBuf, TxBuf, apart};

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct RingQueues {
    device: Card,
    of: Of,
}

#[derive(Debug)]
enum Of {
    Shm(ShmQueues),
    Xdp(XdpQueues),
}

macro_rules! by_device {
    ($this:expr, $of:ident => $call:expr) => {
        match &$this.of {
            Of::Shm($of) => $call,
            Of::Xdp($of) => apart(|| $call),
        }
    };
    (mut $this:expr, $of:ident => $call:expr) => {
        match &mut $this.of {
            Of::Shm($of) => $call,
            Of::Xdp($of) => apart(|| $call),
        }
    };
}

impl RingQueues {
    pub(super) fn shm(of: ShmQueues) -> Self {
        Self { device: Card::Shm(of.device().clone()), of: Of::Shm(of) }
    }

    pub(super) fn xdp(of: XdpQueues) -> Self {
        Self { device: Card::Xdp(of.device().clone()), of: Of::Xdp(of) }
    }

    /// Whether a frame to that member, which found no room, may find some soon: see [`ShmQueues::is_worth_waiting`]. (An interface's queue is as long as it is.)
    pub(crate) fn is_worth_waiting(&mut self, mac: MacAddr) -> bool {
        match &mut self.of {
            Of::Shm(of) => of.is_worth_waiting(mac),
            Of::Xdp(_) => false,
        }
    }

    /// Somebody waited for room at that member in vain.
    pub(crate) fn give_up(&mut self, mac: MacAddr) {
        if let Of::Shm(of) = &mut self.of {
            of.give_up(mac);
        }
    }
}

impl Queues for RingQueues {
    type Device = Card;
    type Rx = RxBuf;
    type Tx = TxBuf;

    #[inline]
    fn device(&self) -> &Card {
        &self.device
    }

    #[inline]
    fn capabilities(&self) -> &Capabilities {
        self.device.capabilities()
    }

    fn mac(&self) -> MacAddr {
        by_device!(self, of => of.mac())
    }

    #[inline]
    fn poll_rx(&mut self, _: Instant, batch: &mut RxBatch<RxBuf>) -> usize {
        by_device!(mut self, of => of.poll_rx_as(batch))
    }

    #[inline]
    fn rx_ready(&self) -> bool {
        by_device!(self, of => of.rx_ready())
    }

    #[inline]
    fn rx_scarce(&self) -> bool {
        by_device!(self, of => of.rx_scarce())
    }

    #[inline]
    fn tx_alloc(&mut self, len: usize) -> Option<TxBuf> {
        match &mut self.of {
            Of::Shm(of) => of.tx_alloc(len).map(TxBuf::Shm),
            Of::Xdp(of) => apart(|| of.tx_alloc(len).map(TxBuf::Xdp)),
        }
    }

    fn tx_free(&mut self, len: usize) -> usize {
        by_device!(mut self, of => of.tx_free(len))
    }

    #[inline]
    fn send(&mut self, frame: &TxFrame<'_, TxBuf>) -> Result<(), SendError> {
        by_device!(mut self, of => of.send_as(frame))
    }

    #[inline]
    fn doorbell(&mut self) {
        by_device!(mut self, of => of.doorbell());
    }

    #[inline]
    fn reap(&mut self) {
        by_device!(mut self, of => of.reap());
    }

    #[inline(always)]
    fn poll_event(&mut self) -> Option<DeviceEvent> {
        by_device!(mut self, of => of.poll_event())
    }

    #[inline]
    fn note_processed(&mut self) {
        by_device!(mut self, of => of.note_processed());
    }

    #[inline]
    fn note_unfinished(&mut self, mac: MacAddr, flow: &FiveTuple, is_unfinished: bool) {
        by_device!(mut self, of => of.note_unfinished(mac, flow, is_unfinished));
    }

    fn left_finished(&mut self, mac: MacAddr, flow: &FiveTuple) -> bool {
        by_device!(mut self, of => of.left_finished(mac, flow))
    }

    fn arm(&mut self, wake: Wake) -> bool {
        by_device!(mut self, of => of.arm(wake))
    }

    fn disarm(&mut self) {
        by_device!(mut self, of => of.disarm());
    }

    fn wait_fd(&self) -> Option<i32> {
        by_device!(self, of => of.wait_fd())
    }

    fn lend_heads(&mut self, on: bool) -> Result<(), Unsupported> {
        by_device!(mut self, of => of.lend_heads(on))
    }
}

impl HostQueues for RingQueues {
    fn begin_sleep(&mut self) -> RawFd {
        by_device!(mut self, of => of.begin_sleep())
    }

    fn is_of_sleeper(event: u64) -> bool {
        event == SLEEPER
    }

    fn slept(&mut self, events: impl ExactSizeIterator<Item = u64>) {
        by_device!(mut self, of => of.slept(events));
    }

    fn clear_sleeper(&mut self) {
        by_device!(mut self, of => of.clear_sleeper());
    }

    fn end_sleep(&mut self) {
        by_device!(mut self, of => of.end_sleep());
    }

    fn claim_core(&mut self, core: usize) -> bool {
        by_device!(mut self, of => of.claim_core(core))
    }

    fn release_core(&mut self, core: usize) {
        by_device!(mut self, of => of.release_core(core));
    }

    fn pause(&mut self) {
        by_device!(mut self, of => of.pause());
    }

    fn resume(&mut self) -> bool {
        by_device!(mut self, of => of.resume())
    }

    fn queue_frames(&self) -> usize {
        by_device!(self, of => of.queue_frames())
    }

    fn tx_buffers(&mut self) -> (usize, usize) {
        by_device!(mut self, of => of.tx_buffers())
    }

    fn copied_bytes(&self) -> u64 {
        by_device!(self, of => of.copied_bytes())
    }
}
