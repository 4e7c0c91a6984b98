//! No device: what takes the place of a ring's queues that the process has given up. Nothing comes, and nothing can be sent; rules are to be had, and steer nothing.

use std::io;

use ringway_host::{CardQueues, CardSleep};
use ringway_stack::device::{
    Capabilities, DeviceEvent, LendBuffer, MacAddr, Queues, RxBatch, RxBuffer, SendError, SingleQueue, TxBuffer, TxFrame, Wake,
};
use ringway_stack::offload::DeviceKind;
use ringway_stack::time::Instant;

/// The longest packet of what is not there, in bytes: Ethernet's.
const MTU: usize = 1500;

/// See the module's documentation.
#[derive(Debug)]
pub struct AbsentQueues {
    device: SingleQueue<Self>,
    sleep: CardSleep,
}

impl AbsentQueues {
    /// # Errors
    /// The system's: there is no descriptor to be had.
    pub(super) fn new() -> io::Result<Self> {
        let capabilities = Capabilities::least(DeviceKind::Xdp, MTU);
        Ok(Self { device: SingleQueue::new(capabilities), sleep: CardSleep::new(core::iter::empty(), &[])? })
    }
}

/// A buffer of it: there is none.
#[derive(Clone, Debug)]
pub enum Nothing {}

impl RxBuffer for Nothing {
    fn len(&self) -> usize {
        match *self {}
    }

    fn copy_to(&self, _: usize, _: &mut [u8]) {
        match *self {}
    }

    fn checksum(&self, _: usize, _: usize) -> u16 {
        match *self {}
    }

    fn slice(&self, _: usize, _: usize) -> Self {
        match *self {}
    }
}

impl LendBuffer for Nothing {
    fn for_each_piece(&self, _: impl FnMut(*const u8, usize)) {
        match *self {}
    }

    fn only_piece(&self) -> Option<(*const u8, usize)> {
        match *self {}
    }

    fn make_writable(&mut self) {
        match *self {}
    }

    fn take_written(&mut self) {
        match *self {}
    }
}

impl TxBuffer for Nothing {
    fn capacity(&self) -> usize {
        match *self {}
    }

    fn write(&mut self, _: usize, _: &[u8]) {
        match *self {}
    }

    fn copy_to(&self, _: usize, _: &mut [u8]) {
        match *self {}
    }

    fn checksum(&self, _: usize, _: usize) -> u16 {
        match *self {}
    }
}

impl Queues for AbsentQueues {
    type Device = SingleQueue<Self>;
    type Rx = Nothing;
    type Tx = Nothing;

    fn device(&self) -> &SingleQueue<Self> {
        &self.device
    }

    fn mac(&self) -> MacAddr {
        MacAddr::default()
    }

    fn poll_rx(&mut self, _: Instant, _: &mut RxBatch<Nothing>) -> usize {
        0
    }

    fn rx_ready(&self) -> bool {
        false
    }

    fn tx_alloc(&mut self, _: usize) -> Option<Nothing> {
        None
    }

    fn send(&mut self, _: &TxFrame<'_, Nothing>) -> Result<(), SendError> {
        Err(SendError::Full)
    }

    fn doorbell(&mut self) {}

    fn reap(&mut self) {}

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        None
    }

    fn arm(&mut self, _: Wake) -> bool {
        self.sleep.set_armed(true);
        true
    }

    fn disarm(&mut self) {
        self.sleep.set_armed(false);
    }

    fn wait_fd(&self) -> Option<i32> {
        Some(self.sleep.fd())
    }
}

impl CardQueues for AbsentQueues {
    fn sleep(&self) -> &CardSleep {
        &self.sleep
    }

    fn frames(&self) -> usize {
        0
    }

    fn send_buffers(&self) -> (usize, usize) {
        (0, 0)
    }

    fn bytes_copied(&self) -> u64 {
        0
    }
}
