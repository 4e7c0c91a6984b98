//! A received segment's payload: bytes of a short frame, which were copied out already, or a handle on where it lies.

use crate::device::{RxBuffer, RxFrame};
use crate::time::Instant;

use super::arrivals::Arrival;

/// The payload of one segment. It is in one place but for a frame whose sender put some of it beside the headers: then it is the head, and then the body.
#[derive(Clone, Debug)]
pub struct RxPayload<'a, R> {
    /// The bytes that came with the copied headers. (If there are none, where they would be: behind those.)
    pub head: &'a [u8],
    /// The frame whose copied bytes `head` is a part of, if there is one: the device may lend them.
    pub frame: Option<&'a RxFrame<R>>,
    /// The bytes after them, or all.
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

    /// When the frame arrived that it came in, by the device's clock.
    #[inline(always)]
    pub(crate) fn hardware_time(&self) -> Option<Instant> {
        self.frame.and_then(|frame| frame.meta.hardware_time)
    }

    /// When it came, which the ring took from the device just now.
    #[inline]
    pub(super) fn arrival(&self, now: Instant) -> Arrival {
        Arrival { received: now, hardware_time: self.hardware_time() }
    }

    /// The headers before it, from Ethernet on, if it is a frame's.
    pub(crate) fn network_headers(&self) -> Option<&'a [u8]> {
        let frame = self.frame?;
        frame.head().get(..frame.offset_of(self.head)?)
    }

    /// A handle of its own on the head, if there is a head, and the device lends it.
    #[cold]
    pub(crate) fn held_head(&self) -> Option<R> {
        let (frame, at) = self.place()?;
        frame.held(at, self.head.len())
    }

    /// The device's own handle on the head, where [`RxPayload::held_head`] would have made a second one: of a frame that is nobody else's.
    #[inline(always)]
    pub(crate) fn take_head(&self) -> Option<R> {
        let (frame, at) = self.place()?;
        frame.take(at, self.head.len())
    }

    /// The frame that there is a head in, and where.
    #[inline]
    fn place(&self) -> Option<(&'a RxFrame<R>, usize)> {
        let frame = self.frame.filter(|_| !self.head.is_empty())?;
        Some((frame, frame.offset_of(self.head)?))
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
