//! A received segment's payload: bytes that were copied out of the frame already, then a handle on the rest.

use crate::device::RxBuffer;

/// The payload of one segment.
#[derive(Clone, Debug)]
pub struct RxPayload<'a, R> {
    /// The bytes that came with the copied headers.
    pub head: &'a [u8],
    /// The same bytes where the device received them, if it lends them.
    pub lent_head: Option<R>,
    /// The bytes after them.
    pub body: Option<R>,
}

impl<'a, R: RxBuffer> RxPayload<'a, R> {
    /// No payload.
    pub const EMPTY: Self = Self { head: &[], lent_head: None, body: None };

    /// Its length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.head.len() + self.body.as_ref().map_or(0, RxBuffer::len)
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
        let lent_head = self.lent_head.as_ref().filter(|_| from_head > 0).map(|lent| lent.slice(0, from_head));
        self.lent_head = self.lent_head.take().filter(|_| !rest.is_empty()).map(|lent| lent.slice(from_head, rest.len()));
        let from_body = len - from_head;
        if from_body == 0 {
            return Self { head, lent_head, body: None };
        }
        let Some(body) = self.body.take() else { return Self { head, lent_head, body: None } };
        if from_body >= body.len() {
            return Self { head, lent_head, body: Some(body) };
        }
        let first = body.slice(0, from_body);
        self.body = Some(body.slice(from_body, body.len() - from_body));
        Self { head, lent_head, body: Some(first) }
    }

    /// Drops all bytes behind the first `len`.
    pub(super) fn truncate(&mut self, len: usize) {
        *self = self.split_to(len);
    }
}
