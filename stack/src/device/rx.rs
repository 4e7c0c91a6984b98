//! The receive half of the packet plane: frames in batches, headers copied out once, payload behind a counted handle.

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

/// One received frame, whole: a private copy of its first bytes, and at most one handle, on the buffer that the others lie in.
///
/// The head has all of the frame's headers in it. It is exactly those where they came apart from the payload ([`RxFrame::set_parted`]), and all of the
/// frame where that is short. A device that cannot tell headers from payload has a rule instead, [`RxFrame::fill`]'s: as much as goes into a head, and
/// a handle on the whole frame. Where the payload begins is what the headers say: they are parsed once, by who polls.
#[derive(Clone, Debug)]
pub struct RxFrame<B> {
    /// Where the head is, beginning with the Ethernet header: a device that is not to copy it twice receives into it. Behind the head are old bytes.
    pub head: [u8; HEAD_MAX],
    /// Invariant: at most [`HEAD_MAX`].
    head_len: u16,
    /// Which of the frame's bytes is the buffer's first. Invariant: at most `head_len`.
    buffer_at: u16,
    /// (Whoever has use for it takes it.)
    buffer: RefCell<Option<B>>,
    /// What came with it.
    pub meta: RxMeta,
}

impl<B: RxBuffer> RxFrame<B> {
    fn empty() -> Self {
        Self { head: [0; HEAD_MAX], head_len: 0, buffer_at: 0, buffer: RefCell::new(None), meta: RxMeta::default() }
    }

    /// For a device that cannot tell where the headers end: the frame is `bytes`, of which as many are the head as go into one. `buffer`: all of them, where
    /// the device received them; it need not be there if the frame is no longer than a head, unless the device lends those ([`super::Queues::lend_heads`]).
    pub fn fill(&mut self, bytes: &[u8], buffer: Option<B>) {
        let head_len = bytes.len().min(HEAD_MAX);
        debug_assert!(buffer.as_ref().map_or(head_len, RxBuffer::len) == bytes.len(), "a frame's buffer has all of its bytes");
        self.head[..head_len].copy_from_slice(&bytes[..head_len]);
        self.set_whole(head_len, buffer);
    }

    /// For a device that has received the first `head_len` bytes into [`RxFrame::head`] already, and has all of the frame in `buffer`, if it has one.
    #[inline]
    pub fn set_whole(&mut self, head_len: usize, buffer: Option<B>) {
        self.set(head_len, 0, buffer);
    }

    /// For a device to which headers and payload come apart, and that has received the former into [`RxFrame::head`]: they are `head_len` bytes, and `rest` is
    /// what follows, if anything does.
    #[inline]
    pub fn set_parted(&mut self, head_len: usize, rest: Option<B>) {
        self.set(head_len, head_len, rest);
    }

    /// For a device that has received all of the frame into [`RxFrame::head`]: it is `head_len` bytes, and was [just pushed](RxBatch::push_slot).
    #[inline(always)]
    pub fn set_head(&mut self, head_len: usize) {
        debug_assert!(head_len <= HEAD_MAX && self.buffer.get_mut().is_none(), "a head is no longer than that, and has no buffer");
        (self.head_len, self.buffer_at) = (head_len as u16, head_len as u16);
    }

    #[inline(always)]
    fn set(&mut self, head_len: usize, buffer_at: usize, buffer: Option<B>) {
        debug_assert!(head_len <= HEAD_MAX, "a head is no longer than that");
        (self.head_len, self.buffer_at) = (head_len as u16, buffer_at as u16);
        *self.buffer.get_mut() = buffer;
    }

    /// The copied bytes.
    #[inline]
    pub fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.head_len).min(HEAD_MAX)]
    }

    /// The whole frame's length in bytes, as long as nobody has taken its buffer.
    #[inline]
    pub fn len(&self) -> usize {
        let of_buffer = |buffer: &B| usize::from(self.buffer_at) + buffer.len();
        usize::from(self.head_len).max(self.buffer.borrow().as_ref().map_or(0, of_buffer))
    }

    /// Whether the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `out.len()` bytes, from `offset` on, out of the frame. A range past the end is a caller's mistake: it panics.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) {
        let copied = self.head().get(offset..).unwrap_or_default();
        let (first, rest) = out.split_at_mut(copied.len().min(out.len()));
        first.copy_from_slice(&copied[..first.len()]);
        if !rest.is_empty() {
            let at = offset + first.len() - usize::from(self.buffer_at);
            self.buffer.borrow().as_ref().expect("bytes past the frame's end").copy_to(at, rest);
        }
    }

    /// A copy of the whole frame.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.copy_to(0, &mut bytes);
        bytes
    }

    /// A second handle on the frame's bytes from `offset` on, if they lie in a buffer.
    pub fn held_from(&self, offset: usize) -> Option<B> {
        self.held(offset, self.len().checked_sub(offset)?)
    }

    /// A second handle on `len` of the frame's bytes, if they lie in a buffer.
    pub(crate) fn held(&self, offset: usize, len: usize) -> Option<B> {
        let buffer = self.buffer.borrow();
        let at = offset.checked_sub(usize::from(self.buffer_at))?;
        buffer.as_ref().filter(|buffer| at + len <= buffer.len()).map(|buffer| buffer.slice(at, len))
    }

    /// The frame's own handle, on `len` of its bytes, if they lie in its buffer.
    #[inline(always)]
    pub(crate) fn take(&self, offset: usize, len: usize) -> Option<B> {
        let buffer = self.buffer.borrow_mut().take()?;
        let at = offset.checked_sub(usize::from(self.buffer_at))?;
        if at + len <= buffer.len() { Some(buffer.into_slice(at, len)) } else { None }
    }

    /// Lets go of the buffer.
    #[inline(never)]
    fn let_go(&mut self) {
        *self.buffer.get_mut() = None;
    }

    /// The frame's own handle, on all that lies in its buffer, if it has one.
    pub fn take_buffer(&mut self) -> Option<B> {
        self.buffer.get_mut().take()
    }

    /// What is not in the head: the buffer, and how many bytes of it those are, the last ones. `None`: there is nothing, and a buffer stays where it is.
    #[inline(always)]
    pub(crate) fn take_rest(&mut self) -> Option<(B, usize)> {
        let in_head = usize::from(self.head_len - self.buffer_at);
        let buffer = self.buffer.get_mut();
        match buffer.as_ref()?.len() {
            len if len > in_head => Some((buffer.take()?, len - in_head)),
            _ => None,
        }
    }

    /// Where in its buffer the first byte is that is not in the head.
    #[inline(always)]
    pub(crate) const fn rest_at(&self) -> usize {
        (self.head_len - self.buffer_at) as usize
    }

    /// Where in its buffer the frame's byte `offset` is. `None`: it is in the head alone.
    #[inline(always)]
    pub(crate) fn in_buffer(&self, offset: usize) -> Option<usize> {
        offset.checked_sub(usize::from(self.buffer_at))
    }

    /// Where in the frame a part of its head begins.
    #[inline(always)]
    pub(crate) fn offset_of(&self, part: &[u8]) -> Option<usize> {
        part.as_ptr().addr().checked_sub(self.head.as_ptr().addr())
    }

    /// The same frame, whose buffer was taken, with this one.
    pub(crate) fn with_buffer(&self, buffer: Option<B>) -> Self {
        let Self { head, head_len, buffer_at, meta, .. } = *self;
        Self { head, head_len, buffer_at, buffer: RefCell::new(buffer), meta }
    }

    /// The same frame with another handle: for a device that stands before another one.
    pub fn map<C>(self, hand_out: impl FnOnce(B) -> Option<C>) -> RxFrame<C> {
        let Self { head, head_len, buffer_at, buffer, meta } = self;
        RxFrame { head, head_len, buffer_at, buffer: RefCell::new(buffer.into_inner().and_then(hand_out)), meta }
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

    /// For the device: the next free frame, to be filled in place, with handle and `meta` cleared; its `head` holds old bytes.
    /// It counts at once. `None`: full.
    #[inline]
    pub fn push_slot(&mut self) -> Option<&mut RxFrame<B>> {
        let frame = self.frames.get_mut(self.len)?;
        self.len += 1;
        (frame.head_len, frame.buffer_at) = (0, 0);
        debug_assert!(frame.buffer.get_mut().is_none(), "frames were cleared");
        frame.meta = RxMeta::default();
        Some(frame)
    }

    /// For the device: the next free frame is all head, of so many bytes, which are to be filled in where they belong. It counts at once. `None`: full.
    #[inline(always)]
    pub fn push_head(&mut self, head_len: usize, meta: &RxMeta) -> Option<&mut [u8; HEAD_MAX]> {
        debug_assert!(head_len <= HEAD_MAX, "a head is no longer than that");
        let frame = self.frames.get_mut(self.len)?;
        self.len += 1;
        debug_assert!(frame.buffer.get_mut().is_none(), "frames were cleared");
        (frame.head_len, frame.buffer_at, frame.meta) = (head_len as u16, head_len as u16, *meta);
        Some(&mut frame.head)
    }

    /// The frames received, to be read or taken from.
    #[inline]
    pub fn frames_mut(&mut self) -> &mut [RxFrame<B>] {
        &mut self.frames[..self.len]
    }

    /// Empties it, and lets go of the buffers that nobody took.
    #[inline(always)]
    pub fn clear(&mut self) {
        for frame in &mut self.frames[..self.len] {
            // (Asked first: most have none, and dropping nothing costs more.)
            if frame.buffer.get_mut().is_some() {
                frame.let_go();
            }
        }
        self.len = 0;
    }
}

#[cfg(test)]
mod tests;
