//! A wire in memory, the same one for both stacks: frames lie in places of a pool that is there from the start, and pass in the order in which they were sent.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use ringway_stack::device::{RxBuffer, TxBuffer};
use ringway_stack::wire::checksum;

/// Frames that one host may send before the other has to look.
pub(crate) const QUEUE_MAX: usize = 1024;
/// Places of a pool: what lies in two queues, and what a stack holds until it is read.
const PLACES: u32 = 4096;
/// What carries more bytes than this has payload.
const HEADERS_MAX: usize = 100;

/// Who computes checksums and verifies them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksums {
    /// The stack, all of them.
    Stack,
    /// A device that does it in no time: nobody.
    Device,
}

/// Places of one length. The one that was freed last is taken first: it is still cached.
pub(crate) struct Pool {
    places: Box<[Place]>,
    free: RefCell<Vec<u32>>,
}

struct Place {
    bytes: RefCell<Box<[u8]>>,
    handles: Cell<u32>,
}

impl Pool {
    /// Of places with so many bytes each.
    pub(crate) fn new(len: usize) -> Rc<Self> {
        let place = |_| Place { bytes: RefCell::new(vec![0; len].into()), handles: Cell::new(0) };
        Rc::new(Self { places: (0..PLACES).map(place).collect(), free: RefCell::new((0..PLACES).rev().collect()) })
    }

    /// A free place. `None`: all are taken.
    pub(crate) fn take(self: &Rc<Self>) -> Option<Bytes> {
        let place = self.free.borrow_mut().pop()?;
        self.places[place as usize].handles.set(1);
        Some(Bytes { pool: Rc::clone(self), place, at: 0, len: self.places[place as usize].bytes.borrow().len() })
    }
}

/// A counted handle on bytes of a place. The last one frees it.
pub(crate) struct Bytes {
    pool: Rc<Pool>,
    place: u32,
    at: usize,
    len: usize,
}

impl Bytes {
    fn place(&self) -> &Place {
        &self.pool.places[self.place as usize]
    }

    /// Reads them.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&[u8]) -> R) -> R {
        read(&self.place().bytes.borrow()[self.at..self.at + self.len])
    }

    /// Writes the first `len` of them, which are all from then on.
    pub(crate) fn fill<R>(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> R {
        self.len = len;
        write(&mut self.place().bytes.borrow_mut()[self.at..self.at + len])
    }
}

impl Clone for Bytes {
    fn clone(&self) -> Self {
        let handles = &self.place().handles;
        handles.set(handles.get() + 1);
        Self { pool: Rc::clone(&self.pool), ..*self }
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let handles = &self.place().handles;
        handles.set(handles.get() - 1);
        if handles.get() == 0 {
            self.pool.free.borrow_mut().push(self.place);
        }
    }
}

impl RxBuffer for Bytes {
    fn len(&self) -> usize {
        self.len
    }
    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        self.read(|bytes| out.copy_from_slice(&bytes[offset..offset + out.len()]));
    }
    fn checksum(&self, offset: usize, len: usize) -> u16 {
        self.read(|bytes| checksum::sum(&bytes[offset..offset + len]))
    }
    fn slice(&self, offset: usize, len: usize) -> Self {
        self.clone().into_slice(offset, len)
    }
    fn into_slice(mut self, offset: usize, len: usize) -> Self {
        assert!(offset + len <= self.len, "bytes past the end");
        (self.at, self.len) = (self.at + offset, len);
        self
    }
}

impl TxBuffer for Bytes {
    fn capacity(&self) -> usize {
        self.len
    }
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.place().bytes.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        RxBuffer::copy_to(self, offset, out);
    }
    fn checksum(&self, offset: usize, len: usize) -> u16 {
        RxBuffer::checksum(self, offset, len)
    }
}

/// Frames on their way in one direction.
pub(crate) struct Direction {
    frames: RefCell<VecDeque<Bytes>>,
    segments: Cell<u64>,
}

impl Direction {
    /// With nothing on its way.
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self { frames: RefCell::new(VecDeque::with_capacity(2 * QUEUE_MAX)), segments: Cell::new(0) })
    }

    /// No host may send more for now.
    pub(crate) fn is_full(&self) -> bool {
        self.frames.borrow().len() >= QUEUE_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.borrow().is_empty()
    }

    pub(crate) fn push(&self, frame: Bytes) {
        if frame.len > HEADERS_MAX {
            self.segments.set(self.segments.get() + 1);
        }
        self.frames.borrow_mut().push_back(frame);
    }

    pub(crate) fn pop(&self) -> Option<Bytes> {
        self.frames.borrow_mut().pop_front()
    }

    /// Frames with payload that were sent so far.
    pub(crate) fn segments(&self) -> u64 {
        self.segments.get()
    }
}
