//! The send half of the packet plane: gather lists over the device's own buffers, with offloads.

use super::Unsupported;

/// The most slices of send buffers in one frame, whatever the device gathers.
pub const GATHER_LIMIT: usize = 16;

/// A counted handle on a send buffer of the device. Dropping the last one (the device's own included) frees the buffer.
/// `Send` as [`super::RxBuffer`]'s are.
///
/// Bytes are written once, before the first frame that refers to them is sent; a retransmission refers to them again.
/// Writing *behind* bytes that were sent already (filling the rest of the buffer) is allowed.
pub trait TxBuffer: Clone + 'static {
    /// How many bytes fit.
    fn capacity(&self) -> usize;

    /// Copies `bytes` into the buffer at `offset`. Past the end: may panic.
    fn write(&mut self, offset: usize, bytes: &[u8]);

    /// Copies bytes out again (for software checksums, and for frames that are sent inline).
    fn copy_to(&self, offset: usize, out: &mut [u8]);

    /// The Internet checksum's running sum (RFC 1071) over `len` bytes from `offset` on.
    fn checksum(&self, offset: usize, len: usize) -> u16;
}

/// A part of a send buffer.
#[derive(Clone, Copy, Debug)]
pub struct TxSlice<'a, T> {
    /// The buffer.
    pub buffer: &'a T,
    /// Where the part begins, in bytes.
    pub offset: usize,
    /// How long it is, in bytes.
    pub len: usize,
}

/// What the device is to do to a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxOffload {
    /// Fill in the IPv4 and the transport checksum (else the stack did). Of a VXLAN frame: the inner ones and the outer IPv4's, on a
    /// device with [`super::Capabilities::vxlan`]; the outer UDP checksum stays what it is (RFC 7348 s5: zero, usually).
    pub checksum: bool,
    /// Cut the payload of an IPv4 TCP frame into segments of this many bytes each: `head` is repeated, with sequence number and IP
    /// identification counting up, PSH and FIN on the last one only, CWR on the first, and checksums filled in.
    pub tso_mss: Option<u16>,
    /// Insert this VLAN tag.
    pub vlan: Option<u16>,
    /// It raises no solicited event: it says nothing but what has arrived (a pure acknowledgment), and who sleeps need not be woken for it, unless that
    /// was asked for ([`super::Wake`]). A device that cannot tell its peers ignores it.
    pub unsolicited: bool,
    /// The flow that it is of, as a flow tag; zero: of none. A device holds it to the flow's rate, where it was given one ([`super::Queues::set_rate`]).
    pub flow: u32,
    /// Take the frame down the whole path, but never put it on the wire (VMA's dummy send: warms caches).
    pub dummy: bool,
}

/// A frame to send: `head`, then the slices of `body` in order.
#[derive(Clone, Copy, Debug)]
pub struct TxFrame<'a, T> {
    /// All headers, from Ethernet on; the device copies it.
    pub head: &'a [u8],
    /// The payload. At most [`super::Capabilities::gather_max`] slices.
    pub body: &'a [TxSlice<'a, T>],
    /// The offloads.
    pub offload: TxOffload,
}

impl<T> TxFrame<'_, T> {
    /// The frame's length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        let body = match self.body {
            [] => 0,
            [only] => only.len,
            several => several.iter().map(|slice| slice.len).sum(),
        };
        self.head.len() + body
    }

    /// Whether the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Why a frame was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The send queue (or the receiver's, on shared memory) is full; [`super::Queues::reap`] and try again.
    #[error("the send queue is full")]
    Full,
    /// No host has that MAC address.
    #[error("no host has this MAC address")]
    NoPeer,
    /// Longer than the MTU (with TSO: than [`super::Capabilities::tso_max`]) allows, more slices than the device gathers, or a head longer than [`super::HEAD_MAX`].
    #[error("the frame is too long")]
    TooLong,
    /// The caller: an offload that the capabilities don't name, or TSO for what is no plain IPv4 TCP frame.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}
