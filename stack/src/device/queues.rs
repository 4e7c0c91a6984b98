//! One ring's queues: frames in, frames out, their completions and buffers.

use super::{
    Attached, Capabilities, Completion, CyclicConfig, CyclicError, CyclicId, CyclicPacket, Device, DeviceEvent, DeviceMemory,
    DeviceMemoryError, FiveTuple, FlowRule, MacAddr, QueueId, RuleError, RxBatch, RxBuffer, RxFrame, SendError, TxBuffer, TxFrame,
    Unsupported,
};
use crate::time::Instant;

/// A send rate: of one ring, that is, of one send queue ([`Queues::pace`]); or of one of its flows ([`Queues::set_rate`]). Bytes count from the Ethernet
/// header on, padding and what Ethernet adds on the wire apart. (VMA's `struct vma_rate_limit_t` has kilobits a second, of 1000 bits, and the same for the
/// rest; SO_MAX_PACING_RATE bytes a second, socket(7).)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// Bits a second; zero lifts the limit. A device with coarser steps takes the next one below, and its lowest for less than that.
    pub rate_bps: u64,
    /// The longest burst in bytes; zero leaves it to the device.
    pub burst_bytes: u32,
    /// The typical packet in bytes; zero if unknown.
    pub typical_packet_bytes: u16,
}

impl Pacing {
    /// No limit.
    pub const UNLIMITED: Self = Self { rate_bps: 0, burst_bytes: 0, typical_packet_bytes: 0 };
}

/// Why a flow was not given a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// The caller: the device does not pace flows.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The device: [`Capabilities::paced_flows_max`] flows of the ring have one.
    #[error("no room for another flow with a rate of its own")]
    Full,
}

/// How completions are coalesced before the ring's descriptor becomes readable: after so many, or so long after the first. Whoever
/// polls sees them at once. A period of zero: not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moderation {
    /// After this many completions.
    pub count: u16,
    /// Or after this many microseconds.
    pub period_us: u16,
}

/// Which frames end the sleep of whoever armed a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Every frame.
    Any,
    /// Those that their sender has not marked as [unsolicited](super::TxOffload::unsolicited), as with the solicited events of verbs (ibv_req_notify_cq(3)): of the
    /// others, nobody waits for what they say, and they are found when something else ends the sleep. (A device that cannot tell them apart signals
    /// for all.)
    Solicited,
}

/// One ring of a [`Device`]: a receive queue, a send queue, their completions and their buffers.
pub trait Queues {
    /// The device that it is a ring of.
    type Device: Device<Queues = Self>;
    /// A handle on received bytes.
    type Rx: RxBuffer;
    /// A handle on a send buffer.
    type Tx: TxBuffer;

    /// The device that it is a ring of: flow rules are asked for there.
    fn device(&self) -> &Self::Device;

    /// What the device can do; constant for its life.
    fn capabilities(&self) -> &Capabilities {
        self.device().capabilities()
    }

    /// Which of the device's rings it is. The only one, unless it says otherwise.
    fn id(&self) -> QueueId {
        QueueId(0)
    }

    /// Steers matching frames here: [`Device::attach`] with this ring as its target.
    ///
    /// # Errors
    /// [`RuleError`].
    fn steer(&self, rule: &FlowRule) -> Result<Attached, RuleError> {
        self.device().attach(rule, self.id().into())
    }

    /// This ring's own Ethernet address.
    fn mac(&self) -> MacAddr;

    /// Moves received frames into `batch` until it is full or none is left, and posts what receive buffers have come back.
    /// Returns how many were added.
    fn poll_rx(&mut self, now: Instant, batch: &mut RxBatch<Self::Rx>) -> usize;

    /// Whether [`Queues::poll_rx`] would find a frame or [`Queues::poll_event`] an event. Cheap: it is what a spinning
    /// wait calls.
    fn rx_ready(&self) -> bool;

    /// When [`Queues::poll_rx`] must be called at the latest, even if nothing comes: there is something that the device could not do yet, and tries again then.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Whether few of the receive buffers that this ring shares among its flows are left: less than a quarter of them. The stack then lets go
    /// of what it holds without having promised to (RFC 2018 s8). Cheap, and a hint: on a NIC, a look at the receive queue's two
    /// indices. Never on a device whose received bytes lie in their sender's own buffers.
    fn rx_scarce(&self) -> bool {
        false
    }

    /// Takes a send buffer of at least one byte, at best `len` bytes long; none if they are all in use.
    fn tx_alloc(&mut self, len: usize) -> Option<Self::Tx>;

    /// Bytes of the free send buffers that [`Queues::tx_alloc`] takes those of `len` bytes from, where a program may come to the end of them: the
    /// stack has no stream queue more than what is left to others.
    fn tx_free(&mut self, len: usize) -> usize {
        let _ = len;
        usize::MAX
    }

    /// Queues one frame. The device holds its own references to the buffers until they have been sent (and, on shared
    /// memory, read).
    ///
    /// # Errors
    /// [`SendError`]; the frame was not queued, and nothing was consumed.
    fn send(&mut self, frame: &TxFrame<'_, Self::Tx>) -> Result<(), SendError>;

    /// As [`Queues::send`]; and once the device is done with the frame, [`Queues::completion`] gives `cookie` back. Zero: no completion is wanted.
    ///
    /// # Errors
    /// [`SendError`]; the frame was not queued. [`SendError::Unsupported`] on a device without completions. [`SendError::Full`] also where as many
    /// completions as the send queue has places are on their way, or have not been taken.
    fn send_with_cookie(&mut self, frame: &TxFrame<'_, Self::Tx>, cookie: u64) -> Result<(), SendError> {
        if cookie != 0 {
            return Err(self.capabilities().lacks("completions of sends").into());
        }
        self.send(frame)
    }

    /// Hands everything queued since the last doorbell to the hardware (or wakes the peers that sleep).
    fn doorbell(&mut self);

    /// Reaps send completions: afterwards, buffers and queue slots that the hardware is done with are free again.
    fn reap(&mut self);

    /// The next completion of a send with a cookie that [`Queues::reap`] has found, in the order in which the device was done with them. Each cookie comes
    /// once, or is lost with a [`DeviceEvent::Reset`].
    fn completion(&mut self) -> Option<Completion> {
        None
    }

    /// The next event, if any.
    fn poll_event(&mut self) -> Option<DeviceEvent>;

    /// No flow of this ring's is for a frame of the last [`Queues::poll_rx`]. On a device where a rule does not say which ring a frame comes to (an interface's
    /// queues are chosen by the interface alone), another ring may have its flow. `true`: it is on its way there. `buffer`: the frame's, if it was taken from it.
    /// `had_it`: this ring has given its flow away, and nobody else knows better what is to become of it, unless the device knows of a ring that has the flow now.
    fn pass_on(&mut self, frame: &RxFrame<Self::Rx>, buffer: Option<&Self::Rx>, had_it: bool) -> bool {
        let _ = (frame, buffer, had_it);
        false
    }

    /// The stack is through with all frames that [`Queues::poll_rx`] has given: what [`Queues::note_unfinished`] says takes account of them. For
    /// devices whose peers see, when this host dies, what it had not come to.
    fn note_processed(&mut self) {}

    /// Notes, where the device of the peer at `mac` sees it once this host is dead, whether a TCP connection is to end by a reset then (it has bytes that
    /// nobody read, or that were not sent), and not by the end of its stream. Called when that changes. `flow`: its two addresses.
    fn note_unfinished(&mut self, mac: MacAddr, flow: &FiveTuple, is_unfinished: bool) {
        let _ = (mac, flow, is_unfinished);
    }

    /// Whether a host that is gone had noted nothing of the kind about a TCP connection, and was through with all bytes of it that had been sent
    /// there: then the peer's program had read everything, and everything that it had written has arrived. `flow`: as it is here. It can be
    /// asked while [`DeviceEvent::PeerGone`] is next or was the last event. A device that cannot tell says no.
    fn left_finished(&mut self, mac: MacAddr, flow: &FiveTuple) -> bool {
        let _ = (mac, flow);
        false
    }

    /// Whether the peer of a TCP connection is one of those that are gone. `flow`: as it is here. It can be asked while [`DeviceEvent::PeersGone`] was the last event.
    fn is_gone(&self, flow: &FiveTuple) -> bool {
        let _ = flow;
        false
    }

    /// Makes the next received frame or event signal [`Queues::wait_fd`], of those that `wake` names. `false`: there is something to poll right now,
    /// and nothing was armed.
    fn arm(&mut self, wake: Wake) -> bool;

    /// Ends what [`Queues::arm`] began, and clears the signal.
    fn disarm(&mut self);

    /// The descriptor that becomes readable when an armed ring has something to poll. `None`: this device cannot be slept on.
    fn wait_fd(&self) -> Option<i32> {
        None
    }

    /// From now on, frames that are no longer than a head come with a handle as well (or no more), so that small payloads too can be received without a
    /// copy: [`super::RxFrame::set_whole`]. Costs a handle for each frame.
    ///
    /// # Errors
    /// [`Unsupported`] on a device that does not keep heads.
    fn lend_heads(&mut self, _on: bool) -> Result<(), Unsupported> {
        Err(self.capabilities().lacks("heads to lend"))
    }

    /// Limits this ring's send rate.
    ///
    /// # Errors
    /// [`Unsupported`] on a device without packet pacing.
    fn pace(&mut self, _pacing: Pacing) -> Result<(), Unsupported> {
        Err(self.capabilities().lacks("packet pacing"))
    }

    /// Limits the rate of what is sent under a flow tag ([`super::TxOffload::flow`], not zero), from now on and of what is queued already; the ring's own
    /// rate counts beside it. What is paced of one flow holds up no other's frames, which may overtake it; frames of one flow keep their order. A flow
    /// whose tag is to be another's gives its rate up first ([`Pacing::UNLIMITED`]): what is queued of it leaves then without.
    ///
    /// # Errors
    /// [`RateError`]; the flow has the rate that it had.
    fn set_rate(&mut self, _flow: u32, _rate: Pacing) -> Result<(), RateError> {
        Err(self.capabilities().lacks("pacing of single flows").into())
    }

    /// Coalesces completions.
    ///
    /// # Errors
    /// [`Unsupported`] on a device without completion moderation.
    fn moderate(&mut self, _moderation: Moderation) -> Result<(), Unsupported> {
        Err(self.capabilities().lacks("completion moderation"))
    }

    /// Creates a cyclic receive queue. Nothing is steered to it yet ([`super::Target::Cyclic`]).
    ///
    /// # Errors
    /// [`CyclicError`].
    fn cyclic_create(&mut self, _config: &CyclicConfig) -> Result<CyclicId, CyclicError> {
        Err(self.capabilities().lacks("striding receive queue").into())
    }

    /// Takes the next run of at most `packets_max` packets, which lie in the buffer one behind the other; a run ends at the buffer's
    /// linear end. Adds them to `packets`, and gives a handle on all of the run's strides: as long as it or a slice of it is held, they are not
    /// written again, and packets that find no free stride are dropped. `None`: nothing has arrived.
    ///
    /// # Errors
    /// [`CyclicError::Unsupported`], [`CyclicError::Unknown`].
    fn cyclic_read(
        &mut self,
        _queue: CyclicId,
        _packets_max: usize,
        _packets: &mut Vec<CyclicPacket>,
    ) -> Result<Option<Self::Rx>, CyclicError> {
        Err(self.capabilities().lacks("striding receive queue").into())
    }

    /// Destroys a cyclic queue, and what it holds.
    ///
    /// # Errors
    /// [`CyclicError::Busy`]: a rule steers to it or a run is held; [`CyclicError::Unsupported`], [`CyclicError::Unknown`].
    fn cyclic_destroy(&mut self, _queue: CyclicId) -> Result<(), CyclicError> {
        Err(self.capabilities().lacks("striding receive queue").into())
    }

    /// Allocates `len` bytes of device memory.
    ///
    /// # Errors
    /// [`DeviceMemoryError::Unsupported`], [`DeviceMemoryError::Full`], [`DeviceMemoryError::OutOfRange`] (of no bytes).
    fn dm_alloc(&mut self, _len: usize) -> Result<DeviceMemory, DeviceMemoryError> {
        Err(self.capabilities().lacks("device memory").into())
    }

    /// Copies `bytes` to `offset` bytes into device memory. Offset and length are multiples of [`super::DEVICE_MEMORY_ALIGN`] (the seed, 003:
    /// the address within the device memory must be a multiple of 4 bytes).
    ///
    /// # Errors
    /// [`DeviceMemoryError`]. [`DeviceMemoryError::Busy`]: a queued frame reads these bytes.
    fn dm_copy_to(&mut self, _memory: DeviceMemory, _offset: usize, _bytes: &[u8]) -> Result<(), DeviceMemoryError> {
        Err(self.capabilities().lacks("device memory").into())
    }

    /// Copies from `offset` bytes into device memory to `out`; aligned as for [`Queues::dm_copy_to`].
    ///
    /// # Errors
    /// [`DeviceMemoryError`].
    fn dm_copy_from(&mut self, _memory: DeviceMemory, _offset: usize, _out: &mut [u8]) -> Result<(), DeviceMemoryError> {
        Err(self.capabilities().lacks("device memory").into())
    }

    /// Registers `len` bytes from `offset` (any) on for sending: the handle serves in a [`super::TxSlice`] as any send buffer does, but is
    /// written with [`Queues::dm_copy_to`] only. Dropping the last one ends the registration.
    ///
    /// # Errors
    /// [`DeviceMemoryError`].
    fn dm_register(&mut self, _memory: DeviceMemory, _offset: usize, _len: usize) -> Result<Self::Tx, DeviceMemoryError> {
        Err(self.capabilities().lacks("device memory").into())
    }

    /// Gives device memory back.
    ///
    /// # Errors
    /// [`DeviceMemoryError::Busy`]: a registration is still held; [`DeviceMemoryError::Unknown`].
    fn dm_free(&mut self, _memory: DeviceMemory) -> Result<(), DeviceMemoryError> {
        Err(self.capabilities().lacks("device memory").into())
    }
}
