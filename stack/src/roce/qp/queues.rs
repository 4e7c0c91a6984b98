//! Send and receive queues: bounded, and allocated once.
//!
//! What is posted and ended the most is small: pieces of memory and inline bytes lie beside the entries, in places of their own, of which most are never touched. A
//! queue that runs empty begins anew at its first place, so that one that is never long stays in few cache lines.

use std::collections::VecDeque;

use crate::roce::memory::{AccessError, Memory, Pd, Regions};
use crate::roce::psn::Psn;
use crate::roce::work::{Data, MESSAGE_MAX, PostError, SendOp, SendWr, Sge, Status};

/// A request to send, on its way.
#[derive(Clone, Debug)]
pub(in crate::roce) struct SendWqe {
    pub(in crate::roce) id: u64,
    pub(in crate::roce) op: SendOp,
    /// How many pieces of memory it has ([`SendQueue::sges`]).
    sges: u8,
    pub(in crate::roce) inline: bool,
    /// Bytes of the message.
    pub(in crate::roce) len: u32,
    pub(in crate::roce) signaled: bool,
    pub(in crate::roce) solicited: bool,
    pub(in crate::roce) fence: bool,
    /// Its packets' numbers, once it was begun: those of its requests, or of a read's responses.
    pub(in crate::roce) started: Option<Started>,
    /// It can't be done, and ends like this when its turn comes.
    pub(in crate::roce) failed: Option<Status>,
}

/// Of a request that was begun.
#[derive(Clone, Copy, Debug)]
pub(in crate::roce) struct Started {
    pub(in crate::roce) first: Psn,
    pub(in crate::roce) packets: u32,
    /// Which message it is, counted from 1.
    pub(in crate::roce) ssn: Psn,
}

impl Started {
    /// The number after its last packet's.
    pub(in crate::roce) fn end(&self) -> Psn {
        self.first + self.packets
    }
}

/// Pieces of memory of a queue's entries, each of which has as many places.
#[derive(Debug)]
struct Pieces {
    sges: Vec<Sge>,
    of_each: usize,
}

impl Pieces {
    fn new(depth: usize, of_each: usize) -> Self {
        Self { sges: vec![Sge { address: 0, len: 0, lkey: 0 }; depth * of_each], of_each }
    }

    /// Keeps a list for the entry at `place`; how many there are, and how many bytes they have in all.
    #[inline]
    fn keep(&mut self, place: usize, list: &[Sge]) -> Result<(u8, u32), PostError> {
        if list.is_empty() {
            return Ok((0, 0));
        }
        let at = place * self.of_each;
        let kept = self.sges[at..at + self.of_each].get_mut(..list.len()).ok_or(PostError::TooLong)?;
        let len = list.iter().try_fold(0u32, |sum, sge| sum.checked_add(sge.len)).filter(|len| *len <= MESSAGE_MAX);
        let len = len.ok_or(PostError::TooLong)?;
        kept.copy_from_slice(list);
        Ok((list.len() as u8, len))
    }

    #[inline]
    fn of(&self, place: usize, count: u8) -> &[Sge] {
        let at = place * self.of_each;
        &self.sges[at..at + usize::from(count)]
    }
}

/// The place after so many more of `depth` places, of which there are as many at most.
#[inline]
const fn place_after(head: usize, further: usize, depth: usize) -> usize {
    let place = head + further;
    if place < depth { place } else { place - depth }
}

/// A send queue.
#[derive(Debug)]
pub(in crate::roce) struct SendQueue {
    wqes: VecDeque<SendWqe>,
    depth: usize,
    pieces: Pieces,
    inline_max: usize,
    /// `inline_max` bytes for each place.
    inline: Vec<u8>,
    /// The place of the first request. Invariant: below `depth`, if there are any.
    head: usize,
}

impl SendQueue {
    pub(super) fn new(depth: usize, sges_max: usize, inline_max: usize) -> Self {
        let (wqes, pieces) = (VecDeque::with_capacity(depth), Pieces::new(depth, sges_max));
        Self { wqes, depth, pieces, inline_max, inline: vec![0; depth * inline_max], head: 0 }
    }

    #[inline(always)]
    pub(super) fn post(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        if self.wqes.len() == self.depth {
            return Err(PostError::Full);
        }
        let place = self.place(self.wqes.len());
        let (sges, inline, len) = match wr.data {
            Data::Gather(list) => {
                let (sges, len) = self.pieces.keep(place, list)?;
                (sges, false, len)
            }
            Data::Inline(_) if wr.op.is_read_or_atomic() => return Err(PostError::Operation),
            Data::Inline(bytes) => {
                let at = place * self.inline_max;
                let out = self.inline[at..at + self.inline_max].get_mut(..bytes.len()).ok_or(PostError::TooLong)?;
                out.copy_from_slice(bytes);
                (0, true, bytes.len() as u32)
            }
        };
        let SendWr { id, op, signaled, solicited, fence, .. } = *wr;
        self.wqes.push_back(SendWqe { id, op, sges, inline, len, signaled, solicited, fence, started: None, failed: None });
        Ok(())
    }

    /// The place of the request at `index`.
    #[inline]
    const fn place(&self, index: usize) -> usize {
        place_after(self.head, index, self.depth)
    }

    /// The pieces of memory of the request at `index`: none, if its bytes are inline.
    pub(in crate::roce) fn sges(&self, index: usize) -> &[Sge] {
        self.wqes.get(index).map_or(&[], |wqe| self.pieces.of(self.place(index), wqe.sges))
    }

    /// The inline bytes of the request at `index`, if it has such: all of its message.
    #[inline]
    pub(in crate::roce) fn inline(&self, index: usize) -> Option<&[u8]> {
        let wqe = self.wqes.get(index).filter(|wqe| wqe.inline)?;
        let at = self.place(index) * self.inline_max;
        self.inline.get(at..at + wqe.len as usize)
    }

    /// The request at `index` and its inline bytes, if it has such.
    #[inline(always)]
    pub(in crate::roce) fn inline_mut(&mut self, index: usize) -> Option<(&mut SendWqe, &[u8])> {
        let at = self.place(index) * self.inline_max;
        let wqe = self.wqes.get_mut(index).filter(|wqe| wqe.inline)?;
        let bytes = self.inline.get(at..at + wqe.len as usize)?;
        Some((wqe, bytes))
    }

    /// Reads bytes of the message at `index`.
    pub(in crate::roce) fn read<M: Memory>(
        &self,
        index: usize,
        offset: u32,
        out: &mut [u8],
        pd: Pd,
        regions: &Regions<M>,
    ) -> Result<(), AccessError> {
        let Some(wqe) = self.wqes.get(index) else { return Err(AccessError::Bounds) };
        if !wqe.inline {
            return regions.gather(pd, self.sges(index), offset, out);
        }
        let at = offset as usize;
        let bytes = self.inline(index).and_then(|bytes| bytes.get(at..at + out.len()));
        out.copy_from_slice(bytes.ok_or(AccessError::Bounds)?);
        Ok(())
    }

    /// The first request is over.
    #[inline]
    pub(in crate::roce) fn pop(&mut self) {
        if self.wqes.len() <= 1 {
            return self.clear();
        }
        self.wqes.pop_front();
        self.head = place_after(self.head, 1, self.depth);
    }

    #[inline]
    pub(in crate::roce) fn get(&self, index: usize) -> Option<&SendWqe> {
        self.wqes.get(index)
    }

    #[inline]
    pub(in crate::roce) fn get_mut(&mut self, index: usize) -> Option<&mut SendWqe> {
        self.wqes.get_mut(index)
    }

    #[inline]
    pub(in crate::roce) fn head(&self) -> Option<&SendWqe> {
        self.wqes.front()
    }

    pub(super) fn clear(&mut self) {
        self.wqes.clear();
        self.head = 0;
    }
}

/// A receive.
#[derive(Clone, Copy, Debug)]
pub(in crate::roce) struct RecvWqe {
    pub(in crate::roce) id: u64,
    /// Bytes that it has room for.
    pub(in crate::roce) len: u32,
    /// How many pieces of memory it has ([`RecvQueue::first_sges`]).
    sges: u8,
}

/// A receive queue. A message takes the first of it, which leaves when the message is complete.
#[derive(Debug)]
pub(in crate::roce) struct RecvQueue {
    wqes: VecDeque<RecvWqe>,
    depth: usize,
    pieces: Pieces,
    /// The place of the first one. Invariant: below `depth`, if there are any.
    head: usize,
}

impl RecvQueue {
    pub(super) fn new(depth: usize, sges_max: usize) -> Self {
        Self { wqes: VecDeque::with_capacity(depth), depth, pieces: Pieces::new(depth, sges_max), head: 0 }
    }

    #[inline]
    pub(super) fn post(&mut self, id: u64, list: &[Sge]) -> Result<(), PostError> {
        if self.wqes.len() == self.depth {
            return Err(PostError::Full);
        }
        let (sges, len) = self.pieces.keep(place_after(self.head, self.wqes.len(), self.depth), list)?;
        self.wqes.push_back(RecvWqe { id, len, sges });
        Ok(())
    }

    #[inline]
    pub(in crate::roce) fn head(&self) -> Option<&RecvWqe> {
        self.wqes.front()
    }

    /// The first one's pieces of memory.
    pub(in crate::roce) fn first_sges(&self) -> &[Sge] {
        self.head().map_or(&[], |wqe| self.pieces.of(self.head, wqe.sges))
    }

    #[inline]
    pub(in crate::roce) fn pop(&mut self) -> Option<RecvWqe> {
        let wqe = self.wqes.pop_front()?;
        self.head = if self.wqes.is_empty() { 0 } else { place_after(self.head, 1, self.depth) };
        Some(wqe)
    }

    #[inline]
    pub(in crate::roce) fn len(&self) -> usize {
        self.wqes.len()
    }

    pub(super) fn clear(&mut self) {
        self.wqes.clear();
        self.head = 0;
    }
}
