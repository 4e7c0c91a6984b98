//! A received segment's payload: bytes that were copied out of the frame already, then a handle on the rest.

use crate::device::{RxBuffer, RxFrame};

/// The payload of one segment.
#[derive(Clone, Debug)]
pub struct RxPayload<'a, R> {
    /// The bytes that came with the copied headers.
    pub head: &'a [u8],
    /// The frame whose copied bytes `head` is a part of, if there is one: the device may lend them.
    pub frame: Option<&'a RxFrame<R>>,
    /// The bytes after them.
    pub body: Option<R>,
}

impl<'a, R: RxBuffer> RxPayload<'a, R> {
    /// No payload.
    pub const EMPTY: Self = Self { head: &[], frame: None, body: None };

    /// Its length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.head.len() + self.body.as_ref().map_or(0, RxBuffer::len)
    }

    /// The headers before it, from Ethernet on, if it is a frame's.
    pub(crate) fn network_headers(&self) -> Option<&'a [u8]> {
        let frame = self.frame?;
        let at = self.head.as_ptr().addr().checked_sub(frame.head().as_ptr().addr())?;
        frame.head().get(..at)
    }

    /// A handle of its own on the head, if there is a head, and the device lends it.
    #[cold]
    pub(crate) fn held_head(&self) -> Option<R> {
        let (frame, at) = self.place()?;
        let lent = frame.lent_head.borrow();
        // (A device that lends less than the whole head lends nothing.)
        lent.as_ref().filter(|lent| at + self.head.len() <= lent.len()).map(|lent| lent.slice(at, self.head.len()))
    }

    /// The device's own handle on the head, where [`RxPayload::held_head`] would have made a second one: of a frame that is nobody else's.
    #[inline(always)]
    pub(crate) fn take_head(&self) -> Option<R> {
        let (frame, at) = self.place()?;
        let lent = frame.lent_head.borrow_mut().take()?;
        if at + self.head.len() <= lent.len() { Some(lent.into_slice(at, self.head.len())) } else { None }
    }

    /// The frame that there is a head in, and where.
    #[inline]
    fn place(&self) -> Option<(&'a RxFrame<R>, usize)> {
        let frame = self.frame.filter(|_| !self.head.is_empty())?;
        Some((frame, self.head.as_ptr().addr().checked_sub(frame.head().as_ptr().addr())?))
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the first `len` bytes (at most all) off.
    pub(super) fn split_to(&mut self, len: usize) -> Self {
        let from_head = len.min(self.head.len());
        let (head, rest) = self.head.split_at(from_head);
        self.head = rest;
        let frame = self.frame;
        let from_body = len - from_head;
        if from_body == 0 {
            return Self { head, frame, body: None };
        }
        let Some(body) = self.body.take() else { return Self { head, frame, body: None } };
        if from_body >= body.len() {
            return Self { head, frame, body: Some(body) };
        }
        let first = body.slice(0, from_body);
        self.body = Some(body.slice(from_body, body.len() - from_body));
        Self { head, frame, body: Some(first) }
    }

    /// Drops all bytes behind the first `len`.
    pub(super) fn truncate(&mut self, len: usize) {
        *self = self.split_to(len);
    }
}
