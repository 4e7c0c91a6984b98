//! Buffers that know how many of them are out.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_stack::device::{RxBuffer, TxBuffer};

use crate::checksum;

/// What a send buffer holds before it is written: recognisable, and never what a workload writes for long.
const POISON: u8 = 0xa5;

/// A limited number of buffers. Only counted: their memory is the allocator's.
#[derive(Debug)]
pub(super) struct Pool {
    outstanding: AtomicUsize,
    max: usize,
}

impl Pool {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { outstanding: AtomicUsize::new(0), max })
    }

    pub(super) fn outstanding(&self) -> usize {
        self.outstanding.load(Ordering::Relaxed)
    }

    fn take(self: &Arc<Self>) -> Option<Token> {
        if self.outstanding() >= self.max {
            return None;
        }
        self.outstanding.fetch_add(1, Ordering::Relaxed);
        Some(Token(Arc::clone(self)))
    }
}

/// One buffer's place in the pool, given back when its last handle is gone.
#[derive(Debug)]
struct Token(Arc<Pool>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.outstanding.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A handle on received bytes.
#[derive(Clone, Debug)]
pub struct SimRx {
    bytes: Arc<[u8]>,
    _token: Arc<Token>,
    offset: usize,
    len: usize,
}

impl SimRx {
    pub(super) fn new(pool: &Arc<Pool>, bytes: &Arc<[u8]>, offset: usize, len: usize) -> Option<Self> {
        Some(Self { _token: Arc::new(pool.take()?), bytes: Arc::clone(bytes), offset, len })
    }

    fn part(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset + len <= self.len, "device contract: bytes {offset}..{} of a part of {}", offset + len, self.len);
        &self.bytes[self.offset + offset..self.offset + offset + len]
    }
}

impl RxBuffer for SimRx {
    fn len(&self) -> usize {
        self.len
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(self.part(offset, out.len()));
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        checksum::sum(0, self.part(offset, len))
    }

    fn slice(&self, offset: usize, len: usize) -> Self {
        let _ = self.part(offset, len);
        Self { offset: self.offset + offset, len, ..self.clone() }
    }
}

/// A handle on a send buffer.
#[derive(Clone, Debug)]
pub struct SimTx {
    cell: Arc<Cell>,
    capacity: usize,
}

#[derive(Debug)]
struct Cell {
    contents: Mutex<Contents>,
    _token: Token,
}

#[derive(Debug)]
struct Contents {
    bytes: Box<[u8]>,
    /// Ranges that frames have referred to. Invariant: sorted, disjoint, not adjacent.
    sealed: Vec<(usize, usize)>,
}

impl SimTx {
    pub(super) fn new(pool: &Arc<Pool>, capacity: usize) -> Option<Self> {
        let token = pool.take()?;
        let contents = Contents { bytes: vec![POISON; capacity].into(), sealed: Vec::new() };
        Some(Self { cell: Arc::new(Cell { contents: Mutex::new(contents), _token: token }), capacity })
    }

    /// From now on these bytes may be on the wire at any time.
    pub(super) fn seal(&self, offset: usize, len: usize) {
        assert!(offset + len <= self.capacity, "device contract: a slice past the end of its buffer");
        if len > 0 {
            self.contents().seal(offset, offset + len);
        }
    }

    pub(super) fn append_to(&self, offset: usize, len: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.contents().bytes[offset..offset + len]);
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.cell.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Contents {
    fn seal(&mut self, mut start: usize, mut end: usize) {
        self.sealed.retain(|&(s, e)| {
            let apart = e < start || end < s;
            if !apart {
                (start, end) = (start.min(s), end.max(e));
            }
            apart
        });
        let at = self.sealed.partition_point(|&(s, _)| s < start);
        self.sealed.insert(at, (start, end));
    }
}

impl TxBuffer for SimTx {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        let mut contents = self.contents();
        let end = offset + bytes.len();
        let clash = contents.sealed.iter().find(|&&(s, e)| s < end && offset < e);
        assert!(clash.is_none(), "device contract: bytes {offset}..{end} were written after {clash:?} had been sent");
        contents.bytes[offset..end].copy_from_slice(bytes);
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.contents().bytes[offset..offset + out.len()]);
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        checksum::sum(0, &self.contents().bytes[offset..offset + len])
    }
}
