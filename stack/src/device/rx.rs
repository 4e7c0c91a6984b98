//! The receive half of the packet plane: frames in batches, headers copied out once, payload behind counted handles.

use core::cell::RefCell;

use crate::time::Instant;

/// The most bytes of a frame that are copied out when it is polled.
pub const HEAD_MAX: usize = 256;

/// A counted handle on received bytes. Dropping the last one gives the buffer back to the device. A device whose ring may move between
/// threads has handles that are `Send`.
pub trait RxBuffer: Clone + 'static {
    /// Bytes behind this handle.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `out.len()` bytes, from `offset` on, out of the buffer. A range past the end is a caller's mistake: the
    /// implementation may panic.
    fn copy_to(&self, offset: usize, out: &mut [u8]);

    /// The Internet checksum's running sum (RFC 1071, not folded to its complement) over `len` bytes from `offset` on.
    fn checksum(&self, offset: usize, len: usize) -> u16;

    /// A second handle on a part of the bytes.
    #[must_use]
    fn slice(&self, offset: usize, len: usize) -> Self;

    /// This handle, on a part of the bytes.
    #[must_use]
    fn into_slice(self, offset: usize, len: usize) -> Self {
        self.slice(offset, len)
    }
}

/// The handle of a device whose frames always fit into [`HEAD_MAX`] bytes, and of tests.
#[derive(Clone, Debug)]
pub enum NoRx {}

impl RxBuffer for NoRx {
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

/// What the device found out about a frame's checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumVerdict {
    /// Nothing: the stack verifies.
    #[default]
    Unknown,
    /// IP and transport checksums are right, or the medium cannot corrupt.
    Good,
    /// At least one is wrong.
    Bad,
}

/// What came with a frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct RxMeta {
    /// The flow tag of the rule that matched; zero if none.
    pub flow_tag: u32,
    /// The device's verdict on the checksums.
    pub checksum: ChecksumVerdict,
    /// The VLAN tag that the device stripped (PCP, DEI and VID as on the wire).
    pub vlan: Option<u16>,
    /// When the frame arrived, by the device's clock.
    pub hardware_time: Option<Instant>,
    /// How many TCP segments of one flow the device merged into this frame ([`super::Capabilities::lro`]); below two: none.
    pub coalesced: u16,
}

/// One received frame: its first bytes as a private copy, the rest behind a handle.
#[derive(Clone, Debug)]
pub struct RxFrame<B> {
    /// A copy of the frame's first `head_len` bytes, beginning with the Ethernet header. All of its headers are in it.
    pub head: [u8; HEAD_MAX],
    /// Invariant: at most [`HEAD_MAX`].
    pub head_len: u16,
    /// The frame's bytes after the head, if there are any.
    pub body: Option<B>,
    /// The head's bytes where the device received them, if it was asked for that ([`super::Queues::lend_heads`]): payload among them
    /// can go up to the program by reference.
    /// (Whoever has use for it takes it.)
    pub lent_head: RefCell<Option<B>>,
    /// What came with it.
    pub meta: RxMeta,
}

impl<B: RxBuffer> RxFrame<B> {
    fn empty() -> Self {
        Self { head: [0; HEAD_MAX], head_len: 0, body: None, lent_head: RefCell::new(None), meta: RxMeta::default() }
    }

    /// The copied bytes.
    #[inline]
    pub fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.head_len).min(HEAD_MAX)]
    }

    /// The whole frame's length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.head_len) + self.body.as_ref().map_or(0, RxBuffer::len)
    }

    /// Whether the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Storage for the frames of one poll, used again for the next: polling allocates nothing.
#[derive(Debug)]
pub struct RxBatch<B> {
    frames: Vec<RxFrame<B>>,
    len: usize,
}

impl<B: RxBuffer> RxBatch<B> {
    /// Room for `capacity` frames.
    pub fn new(capacity: usize) -> Self {
        Self { frames: (0..capacity).map(|_| RxFrame::empty()).collect(), len: 0 }
    }

    /// How many frames are in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it has no room left.
    pub fn is_full(&self) -> bool {
        self.len == self.frames.len()
    }

    /// For the device: the next free frame, to be filled in place, with handles and `meta` cleared; its `head` holds old bytes.
    /// It counts at once. `None`: full.
    #[inline]
    pub fn push_slot(&mut self) -> Option<&mut RxFrame<B>> {
        let frame = self.frames.get_mut(self.len)?;
        self.len += 1;
        frame.head_len = 0;
        debug_assert!(frame.body.is_none() && frame.lent_head.get_mut().is_none(), "frames were cleared");
        frame.meta = RxMeta::default();
        Some(frame)
    }

    /// The frames received, to be read or taken from.
    #[inline]
    pub fn frames_mut(&mut self) -> &mut [RxFrame<B>] {
        &mut self.frames[..self.len]
    }

    /// Empties it, and lets go of the buffers that nobody took.
    #[inline]
    pub fn clear(&mut self) {
        for frame in &mut self.frames[..self.len] {
            // (Asked first: most have neither, and dropping nothing costs more.)
            if frame.body.is_some() || frame.lent_head.get_mut().is_some() {
                frame.body = None;
                *frame.lent_head.get_mut() = None;
            }
        }
        self.len = 0;
    }
}
