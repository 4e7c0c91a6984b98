//! Frames and buffers on the heap, for devices that have no card to model: those of [`drills`](crate::drills) and [`deaths`](crate::deaths).

use core::cell::{Cell, RefCell};
use std::rc::Rc;

use ringway_stack::device::{HEAD_MAX, RxBuffer, RxFrame, TxBuffer, TxFrame};

use crate::checksum;

pub(crate) const BUFFER_BYTES: usize = 2048;

/// Received bytes: a part of a frame.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    frame: Rc<Vec<u8>>,
    from: usize,
    len: usize,
}

impl Received {
    fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        &self.frame[self.from + offset..][..len]
    }

    /// Puts a frame into a slot, and holds it if it is longer than a head.
    pub(crate) fn fill(slot: &mut RxFrame<Self>, frame: Vec<u8>) {
        let frame = Rc::new(frame);
        slot.fill(&frame, (frame.len() > HEAD_MAX).then(|| Self { from: 0, len: frame.len(), frame: frame.clone() }));
    }
}

impl RxBuffer for Received {
    fn len(&self) -> usize {
        self.len
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(self.bytes(offset, out.len()));
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        checksum::sum(0, self.bytes(offset, len))
    }

    fn slice(&self, offset: usize, len: usize) -> Self {
        assert!(offset + len <= self.len, "a slice beyond its buffer");
        Self { frame: self.frame.clone(), from: self.from + offset, len }
    }
}

/// Bytes to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Buffer(Rc<Lent>);

/// They count until the last one lets go of them.
#[derive(Debug)]
struct Lent {
    /// As far as they were written; behind that are zeros.
    bytes: RefCell<Vec<u8>>,
    capacity: usize,
    count: Rc<Cell<usize>>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
    }
}

impl Lent {
    /// Its first `len` bytes are there.
    fn grow(&self, len: usize) {
        assert!(len <= self.capacity, "bytes beyond their buffer");
        let mut bytes = self.bytes.borrow_mut();
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
    }
}

impl Buffer {
    /// One more of those that `count` counts.
    pub(crate) fn lend(count: &Rc<Cell<usize>>) -> Self {
        Self::lend_of(count, BUFFER_BYTES)
    }

    /// As [`Buffer::lend`], of `len` bytes.
    pub(crate) fn lend_of(count: &Rc<Cell<usize>>, len: usize) -> Self {
        count.set(count.get() + 1);
        Self(Rc::new(Lent { bytes: RefCell::new(Vec::new()), capacity: len, count: count.clone() }))
    }
}

impl TxBuffer for Buffer {
    fn capacity(&self) -> usize {
        self.0.capacity
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.0.grow(offset + bytes.len());
        self.0.bytes.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        self.0.grow(offset + out.len());
        out.copy_from_slice(&self.0.bytes.borrow()[offset..offset + out.len()]);
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        self.0.grow(offset + len);
        checksum::sum(0, &self.0.bytes.borrow()[offset..offset + len])
    }
}

/// A frame that a stack sends, in one piece.
pub(crate) fn gathered(frame: &TxFrame<'_, Buffer>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(frame.head.len() + frame.body.iter().map(|slice| slice.len).sum::<usize>());
    bytes.extend_from_slice(frame.head);
    for slice in frame.body {
        let at = bytes.len();
        bytes.resize(at + slice.len, 0);
        slice.buffer.copy_to(slice.offset, &mut bytes[at..]);
    }
    bytes
}
