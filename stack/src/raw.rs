//! Raw Ethernet: a device's queues without a stack between. The program supplies every header and the payload, steers what it wants to
//! receive, and asks for offloads; what the device lacks is a typed error.
//!
//! One payload is cut by the device, another lies in the device's own memory:
//!
//! ```
//! use ringway_stack::device::{FlowRule, Pacing, Queues, RxBatch, TxOffload};
//! use ringway_stack::raw::{RawError, RawQueue};
//! use ringway_stack::time::Instant;
//!
//! fn talk<Q: Queues>(queues: Q, tcp_head: &[u8], udp_head: &[u8], now: Instant) -> Result<usize, RawError> {
//!     let mut queue = RawQueue::new(queues);
//!     queue.pace(Pacing { rate_bps: 100_000_000, burst_bytes: 3_000, typical_packet_bytes: 1_500 })?;
//!     // A 32 KiB TCP payload leaves in segments of 1,448 bytes, the head repeated in front of each.
//!     queue.send(tcp_head, &[7; 32 << 10], TxOffload { tso_mss: Some(1448), ..queue.checksums() })?;
//!     // 512 bytes that lie on the device already.
//!     let memory = queue.memory(512)?;
//!     queue.write_memory(memory, 0, &[1; 512])?;
//!     queue.send_memory(udp_head, memory, 0, 512, queue.checksums())?;
//!     queue.flush();
//!     queue.steer(&FlowRule::any().tag(42))?;
//!     let mut batch = RxBatch::new(32);
//!     Ok(queue.poll(now, &mut batch))
//! }
//! ```

use arrayvec::ArrayVec;

use crate::device::{
    Attached, Capabilities, Completion, Device as _, DeviceEvent, DeviceMemory, DeviceMemoryError, FlowRule, GATHER_LIMIT, MacAddr,
    Moderation, Pacing, Queues, RateError, RuleError, RuleId, RxBatch, SendError, TxBuffer, TxFrame, TxOffload, TxSlice, Unsupported,
};
use crate::mutants::{Mutant, Strain};
use crate::time::Instant;

/// Why a raw queue refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RawError {
    /// See [`SendError`].
    #[error(transparent)]
    Send(#[from] SendError),
    /// The machine: all send buffers are in use. [`RawQueue::reap`], and try again.
    #[error("no send buffer left")]
    NoBuffers,
    /// See [`RuleError`].
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// See [`DeviceMemoryError`].
    #[error(transparent)]
    Memory(#[from] DeviceMemoryError),
    /// See [`RateError`].
    #[error(transparent)]
    Rate(#[from] RateError),
    /// The caller: the device lacks it.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

/// One ring of a device, for a program that speaks Ethernet itself.
#[derive(Debug)]
pub struct RawQueue<Q> {
    queues: Q,
    strain: Strain,
}

impl<Q: Queues> RawQueue<Q> {
    /// Takes a device's ring over.
    pub const fn new(queues: Q) -> Self {
        Self { queues, strain: Strain::HEALTHY }
    }

    /// Makes the queue a mutant.
    #[cfg(feature = "mutants")]
    pub const fn mutate(&mut self, mutant: Mutant) {
        self.strain = Strain { mutant };
    }

    /// What the device can do.
    pub fn capabilities(&self) -> &Capabilities {
        self.queues.capabilities()
    }

    /// The ring's Ethernet address.
    pub fn mac(&self) -> MacAddr {
        self.queues.mac()
    }

    /// The ring itself, for whatever has no method here.
    pub const fn queues_mut(&mut self) -> &mut Q {
        &mut self.queues
    }

    /// Gives the ring back.
    pub fn into_queues(self) -> Q {
        self.queues
    }

    /// Offloads for a frame whose checksums the device fills in, if it can.
    pub fn checksums(&self) -> TxOffload {
        TxOffload { checksum: self.capabilities().tx_checksum, ..TxOffload::default() }
    }

    /// Steers matching frames to this queue.
    ///
    /// # Errors
    /// [`RawError::Rule`].
    pub fn steer(&mut self, rule: &FlowRule) -> Result<Attached, RawError> {
        Ok(self.queues.steer(rule)?)
    }

    /// Ends what [`RawQueue::steer`] began.
    pub fn unsteer(&mut self, rule: RuleId) {
        self.queues.device().detach(rule);
    }

    /// Limits this queue's send rate.
    ///
    /// # Errors
    /// [`RawError::Unsupported`].
    pub fn pace(&mut self, pacing: Pacing) -> Result<(), RawError> {
        Ok(self.queues.pace(pacing)?)
    }

    /// Limits the rate of what this queue sends under one flow tag ([`TxOffload::flow`]).
    ///
    /// # Errors
    /// [`RawError::Rate`].
    pub fn set_rate(&mut self, flow: u32, rate: Pacing) -> Result<(), RawError> {
        Ok(self.queues.set_rate(flow, rate)?)
    }

    /// Coalesces completions.
    ///
    /// # Errors
    /// [`RawError::Unsupported`].
    pub fn moderate(&mut self, moderation: Moderation) -> Result<(), RawError> {
        Ok(self.queues.moderate(moderation)?)
    }

    /// Queues one frame: `head` (all headers, at most [`crate::device::HEAD_MAX`] bytes), then a copy of `payload`. It leaves with the
    /// next [`RawQueue::flush`].
    ///
    /// # Errors
    /// [`RawError::Send`], [`RawError::NoBuffers`]; nothing was queued.
    pub fn send(&mut self, head: &[u8], payload: &[u8], offload: TxOffload) -> Result<(), RawError> {
        let mut buffers = ArrayVec::<(Q::Tx, usize), GATHER_LIMIT>::new();
        let mut left = payload;
        while !left.is_empty() {
            if buffers.is_full() {
                return Err(SendError::TooLong.into());
            }
            let mut buffer = self.alloc(left.len())?;
            let (bytes, rest) = left.split_at(left.len().min(buffer.capacity()));
            buffer.write(0, bytes);
            buffers.push((buffer, bytes.len()));
            left = rest;
        }
        let body: ArrayVec<TxSlice<'_, Q::Tx>, GATHER_LIMIT> =
            buffers.iter().map(|(buffer, len)| TxSlice { buffer, offset: 0, len: *len }).collect();
        self.send_slices(head, &body, offload)
    }

    /// As [`RawQueue::send_slices`]; and once the device is done with the frame, [`RawQueue::completion`] gives `cookie` back. Zero: no completion is wanted.
    ///
    /// # Errors
    /// [`RawError::Send`], as [`Queues::send_with_cookie`] has it; nothing was queued.
    pub fn send_with_cookie(&mut self, head: &[u8], body: &[TxSlice<'_, Q::Tx>], offload: TxOffload, cookie: u64) -> Result<(), RawError> {
        let frame = TxFrame { head, body, offload };
        match self.queues.send_with_cookie(&frame, cookie) {
            Err(SendError::Full) => {
                self.queues.reap();
                Ok(self.queues.send_with_cookie(&frame, cookie)?)
            }
            sent => Ok(sent?),
        }
    }

    /// The next completion of a send with a cookie, if the hardware is done with one that has not been told of yet.
    pub fn completion(&mut self) -> Option<Completion> {
        self.queues.completion().or_else(|| {
            self.queues.reap();
            self.queues.completion()
        })
    }

    /// Queues one frame whose payload lies in buffers of the device already.
    ///
    /// # Errors
    /// [`RawError::Send`]; nothing was queued.
    pub fn send_slices(&mut self, head: &[u8], body: &[TxSlice<'_, Q::Tx>], offload: TxOffload) -> Result<(), RawError> {
        self.send_with_cookie(head, body, offload, 0)
    }

    /// Queues one frame whose payload is `len` bytes of device memory from `offset` on.
    ///
    /// # Errors
    /// [`RawError::Memory`], [`RawError::Send`]; nothing was queued.
    pub fn send_memory(
        &mut self,
        head: &[u8],
        memory: DeviceMemory,
        offset: usize,
        len: usize,
        offload: TxOffload,
    ) -> Result<(), RawError> {
        let offset = if self.strain.is(Mutant::RawMemoryOffsetIgnored) { 0 } else { offset };
        let buffer = self.queues.dm_register(memory, offset, len)?;
        self.send_slices(head, &[TxSlice { buffer: &buffer, offset: 0, len }], offload)
    }

    /// Allocates device memory.
    ///
    /// # Errors
    /// [`RawError::Memory`].
    pub fn memory(&mut self, len: usize) -> Result<DeviceMemory, RawError> {
        Ok(self.queues.dm_alloc(len)?)
    }

    /// Copies bytes into device memory, in multiples of 4 bytes.
    ///
    /// # Errors
    /// [`RawError::Memory`].
    pub fn write_memory(&mut self, memory: DeviceMemory, offset: usize, bytes: &[u8]) -> Result<(), RawError> {
        Ok(self.queues.dm_copy_to(memory, offset, bytes)?)
    }

    /// Copies bytes out of device memory, in multiples of 4 bytes.
    ///
    /// # Errors
    /// [`RawError::Memory`].
    pub fn read_memory(&mut self, memory: DeviceMemory, offset: usize, out: &mut [u8]) -> Result<(), RawError> {
        Ok(self.queues.dm_copy_from(memory, offset, out)?)
    }

    /// Gives device memory back.
    ///
    /// # Errors
    /// [`RawError::Memory`].
    pub fn free_memory(&mut self, memory: DeviceMemory) -> Result<(), RawError> {
        Ok(self.queues.dm_free(memory)?)
    }

    /// Hands everything queued to the hardware.
    pub fn flush(&mut self) {
        self.queues.doorbell();
    }

    /// Takes back what the hardware is done with.
    pub fn reap(&mut self) {
        self.queues.reap();
    }

    /// Moves received frames into `batch`; how many.
    pub fn poll(&mut self, now: Instant, batch: &mut RxBatch<Q::Rx>) -> usize {
        self.queues.poll_rx(now, batch)
    }

    /// The next event of the device, if any.
    pub fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.queues.poll_event()
    }

    fn alloc(&mut self, len: usize) -> Result<Q::Tx, RawError> {
        if let Some(buffer) = self.queues.tx_alloc(len) {
            return Ok(buffer);
        }
        self.queues.reap();
        self.queues.tx_alloc(len).ok_or(RawError::NoBuffers)
    }
}
