//! Buffers that know how many of them are out.

use core::cell::{Cell, RefCell};
use core::mem;
use core::ops::Range;
use std::rc::Rc;

use ringway_stack::device::{RxBuffer, TxBuffer};

use super::memory::Block;
use crate::checksum;

/// What a send buffer holds before it is written: recognisable, and never what a workload writes for long.
const POISON: u8 = 0xa5;

/// A limited number of buffers. They are counted; the memory of send buffers is used again.
#[derive(Debug)]
pub(super) struct Pool {
    outstanding: Cell<usize>,
    max: usize,
    spare: RefCell<Vec<Contents>>,
}

impl Pool {
    pub(super) fn new(max: usize) -> Rc<Self> {
        Rc::new(Self { outstanding: Cell::new(0), max, spare: RefCell::default() })
    }

    pub(super) fn outstanding(&self) -> usize {
        self.outstanding.get()
    }

    /// How many there are in all.
    pub(super) fn max(&self) -> usize {
        self.max
    }

    /// How many may still be taken.
    pub(super) fn left(&self) -> usize {
        self.max.saturating_sub(self.outstanding())
    }

    pub(super) fn take(self: &Rc<Self>) -> Option<Token> {
        if self.outstanding() >= self.max {
            return None;
        }
        self.outstanding.set(self.outstanding() + 1);
        Some(Token {
            pool: Rc::clone(self),
            #[cfg(feature = "mutants")]
            overwritten: core::cell::OnceCell::new(),
        })
    }

    /// Memory of `len` bytes, all poison, none of them sent.
    fn memory(&self, len: usize) -> Contents {
        match self.spare.borrow_mut().pop().filter(|spare| spare.bytes.len() == len) {
            Some(mut spare) => {
                spare.defined = 0;
                spare.sealed.clear();
                spare
            }
            None => Contents { bytes: vec![0; len].into(), defined: 0, sealed: Vec::new() },
        }
    }
}

/// One buffer's place in the pool, given back when its last handle is gone.
#[derive(Debug)]
pub(super) struct Token {
    pool: Rc<Pool>,
    /// What a NIC that is a mutant received into the buffer while it was held.
    #[cfg(feature = "mutants")]
    overwritten: core::cell::OnceCell<Rc<[u8]>>,
}

#[cfg(feature = "mutants")]
impl Token {
    pub(super) fn overwrite(&self, bytes: &Rc<[u8]>) {
        let _ = self.overwritten.set(Rc::clone(bytes));
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.pool.outstanding.set(self.pool.outstanding() - 1);
    }
}

/// A handle on received bytes.
#[derive(Clone, Debug)]
pub struct SimRx {
    bytes: Rc<[u8]>,
    token: Rc<Token>,
    offset: usize,
    len: usize,
}

impl SimRx {
    /// A buffer of the pool's with these bytes in it.
    pub(super) fn new(pool: &Rc<Pool>, bytes: &Rc<[u8]>) -> Option<Self> {
        Some(Self::whole(Rc::clone(bytes), Rc::new(pool.take()?)))
    }

    /// All of `bytes`, counted by `token`.
    pub(super) fn whole(bytes: Rc<[u8]>, token: Rc<Token>) -> Self {
        Self { offset: 0, len: bytes.len(), bytes, token }
    }

    /// The same buffer, with `bytes` in it.
    pub(super) fn refilled(self, bytes: &Rc<[u8]>) -> Self {
        Self::whole(Rc::clone(bytes), self.token)
    }

    #[cfg(feature = "mutants")]
    pub(super) fn token(&self) -> std::rc::Weak<Token> {
        Rc::downgrade(&self.token)
    }

    fn part(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset + len <= self.len, "device contract: bytes {offset}..{} of a part of {}", offset + len, self.len);
        let range = self.offset + offset..self.offset + offset + len;
        #[cfg(feature = "mutants")]
        if let Some(other) = self.token.overwritten.get().and_then(|other| other.get(range.clone())) {
            return other;
        }
        &self.bytes[range]
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

/// A handle on a send buffer, or on registered device memory.
#[derive(Clone, Debug)]
pub struct SimTx {
    source: Source,
    capacity: usize,
}

#[derive(Clone, Debug)]
enum Source {
    Host(Rc<HostBuffer>),
    /// From this byte of the block on.
    Device(Rc<Block>, usize),
}

#[derive(Debug)]
struct HostBuffer {
    contents: RefCell<Contents>,
    token: Token,
}

#[derive(Debug, Default)]
struct Contents {
    bytes: Box<[u8]>,
    /// So many of the bytes were written, or looked at; the others count as poison, and are once someone looks.
    defined: usize,
    /// Ranges that frames have referred to. Invariant: sorted, disjoint, not adjacent.
    sealed: Vec<(usize, usize)>,
}

impl SimTx {
    pub(super) fn new(pool: &Rc<Pool>, capacity: usize) -> Option<Self> {
        let token = pool.take()?;
        let contents = RefCell::new(pool.memory(capacity));
        Some(Self { source: Source::Host(Rc::new(HostBuffer { contents, token })), capacity })
    }

    pub(super) fn on_device(block: Rc<Block>, range: Range<usize>) -> Self {
        Self { source: Source::Device(block, range.start), capacity: range.len() }
    }

    /// From now on these bytes may be on the wire at any time.
    pub(super) fn seal(&self, offset: usize, len: usize) {
        assert!(offset + len <= self.capacity, "device contract: a slice past the end of its buffer");
        if let Source::Host(cell) = &self.source
            && len > 0
        {
            cell.contents.borrow_mut().seal(offset, offset + len);
        }
    }

    pub(super) fn append_to(&self, offset: usize, len: usize, out: &mut Vec<u8>) {
        self.with(offset, len, |bytes| out.extend_from_slice(bytes));
    }

    /// Whether a frame with these bytes of the handle reads any of `range` of device memory.
    pub(super) fn reads(&self, offset: usize, len: usize, block: &Rc<Block>, range: &Range<usize>) -> bool {
        match &self.source {
            Source::Host(_) => false,
            Source::Device(own, base) => Rc::ptr_eq(own, block) && base + offset < range.end && range.start < base + offset + len,
        }
    }

    fn with<R>(&self, offset: usize, len: usize, look: impl FnOnce(&[u8]) -> R) -> R {
        assert!(offset + len <= self.capacity, "device contract: a slice past the end of its buffer");
        match &self.source {
            Source::Host(cell) => look(cell.contents.borrow_mut().read(offset, offset + len)),
            Source::Device(block, base) => block.with(|bytes| look(&bytes[base + offset..base + offset + len])),
        }
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        self.token.pool.spare.borrow_mut().push(mem::take(self.contents.get_mut()));
    }
}

impl Contents {
    fn read(&mut self, start: usize, end: usize) -> &[u8] {
        self.define(end);
        &self.bytes[start..end]
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.define(offset);
        let end = offset + bytes.len();
        self.bytes[offset..end].copy_from_slice(bytes);
        self.defined = self.defined.max(end);
    }

    /// Poisons what nobody has written before `end`.
    fn define(&mut self, end: usize) {
        if self.defined < end {
            self.bytes[self.defined..end].fill(POISON);
            self.defined = end;
        }
    }

    fn seal(&mut self, mut start: usize, mut end: usize) {
        // Nearly always right behind what was sent last.
        if let Some(last) = self.sealed.last_mut()
            && last.1 == start
        {
            last.1 = end;
            return;
        }
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
        let Source::Host(cell) = &self.source else { panic!("device contract: device memory is written by dm_copy_to only") };
        let mut contents = cell.contents.borrow_mut();
        let end = offset + bytes.len();
        let clash = contents.sealed.iter().find(|&&(s, e)| s < end && offset < e);
        assert!(clash.is_none(), "device contract: bytes {offset}..{end} were written after {clash:?} had been sent");
        contents.write(offset, bytes);
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        self.with(offset, out.len(), |bytes| out.copy_from_slice(bytes));
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        self.with(offset, len, |bytes| checksum::sum(0, bytes))
    }
}
