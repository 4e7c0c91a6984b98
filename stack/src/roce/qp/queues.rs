//! Send and receive queues: bounded, and allocated once.

use std::collections::VecDeque;

use crate::roce::memory::{AccessError, Memory, Pd, Regions};
use crate::roce::psn::Psn;
use crate::roce::work::{Data, MESSAGE_MAX, PostError, SendOp, SendWr, Sge, Sges, Status};

/// A request to send, on its way.
#[derive(Clone, Debug)]
pub(in crate::roce) struct SendWqe {
    pub(in crate::roce) id: u64,
    pub(in crate::roce) op: SendOp,
    pub(in crate::roce) sges: Sges,
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

/// A send queue.
#[derive(Debug)]
pub(in crate::roce) struct SendQueue {
    wqes: VecDeque<SendWqe>,
    depth: usize,
    sges_max: usize,
    inline_max: usize,
    /// `inline_max` bytes for each place.
    inline: Vec<u8>,
    /// The place of the first request.
    head: usize,
}

impl SendQueue {
    pub(super) fn new(depth: usize, sges_max: usize, inline_max: usize) -> Self {
        let wqes = VecDeque::with_capacity(depth);
        Self { wqes, depth, sges_max, inline_max, inline: vec![0; depth * inline_max], head: 0 }
    }

    pub(super) fn post(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        if self.wqes.len() == self.depth {
            return Err(PostError::Full);
        }
        let place = self.place(self.wqes.len());
        let (sges, inline, len) = match wr.data {
            Data::Gather(list) => {
                let (sges, len) = gathered(list, self.sges_max)?;
                (sges, false, len)
            }
            Data::Inline(_) if wr.op.is_read_or_atomic() => return Err(PostError::Operation),
            Data::Inline(bytes) => {
                let out = self.inline[place..place + self.inline_max].get_mut(..bytes.len()).ok_or(PostError::TooLong)?;
                out.copy_from_slice(bytes);
                (Sges::new(), true, bytes.len() as u32)
            }
        };
        let SendWr { id, op, signaled, solicited, fence, .. } = *wr;
        self.wqes.push_back(SendWqe { id, op, sges, inline, len, signaled, solicited, fence, started: None, failed: None });
        Ok(())
    }

    /// Where the inline bytes of the request at `index` begin.
    fn place(&self, index: usize) -> usize {
        (self.head + index) % self.depth.max(1) * self.inline_max
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
            return regions.gather(pd, &wqe.sges, offset, out);
        }
        let at = self.place(index) + offset as usize;
        out.copy_from_slice(self.inline.get(at..at + out.len()).ok_or(AccessError::Bounds)?);
        Ok(())
    }

    pub(in crate::roce) fn pop(&mut self) -> Option<SendWqe> {
        let wqe = self.wqes.pop_front()?;
        self.head = (self.head + 1) % self.depth;
        Some(wqe)
    }

    #[inline]
    pub(in crate::roce) fn get(&self, index: usize) -> Option<&SendWqe> {
        self.wqes.get(index)
    }

    #[inline]
    pub(in crate::roce) fn get_mut(&mut self, index: usize) -> Option<&mut SendWqe> {
        self.wqes.get_mut(index)
    }

    pub(in crate::roce) fn head(&self) -> Option<&SendWqe> {
        self.wqes.front()
    }

    pub(super) fn clear(&mut self) {
        self.wqes.clear();
    }
}

/// A receive.
#[derive(Clone, Debug)]
pub(in crate::roce) struct RecvWqe {
    pub(in crate::roce) id: u64,
    pub(in crate::roce) sges: Sges,
    /// Bytes that it has room for.
    pub(in crate::roce) len: u32,
}

/// A receive queue. A message takes the first of it, which leaves when the message is complete.
#[derive(Debug)]
pub(in crate::roce) struct RecvQueue {
    wqes: VecDeque<RecvWqe>,
    depth: usize,
    sges_max: usize,
}

impl RecvQueue {
    pub(super) fn new(depth: usize, sges_max: usize) -> Self {
        Self { wqes: VecDeque::with_capacity(depth), depth, sges_max }
    }

    pub(super) fn post(&mut self, id: u64, list: &[Sge]) -> Result<(), PostError> {
        if self.wqes.len() == self.depth {
            return Err(PostError::Full);
        }
        let (sges, len) = gathered(list, self.sges_max)?;
        self.wqes.push_back(RecvWqe { id, sges, len });
        Ok(())
    }

    pub(in crate::roce) fn head(&self) -> Option<&RecvWqe> {
        self.wqes.front()
    }

    pub(in crate::roce) fn pop(&mut self) -> Option<RecvWqe> {
        self.wqes.pop_front()
    }

    pub(in crate::roce) fn len(&self) -> usize {
        self.wqes.len()
    }

    pub(super) fn clear(&mut self) {
        self.wqes.clear();
    }
}

fn gathered(list: &[Sge], max: usize) -> Result<(Sges, u32), PostError> {
    if list.len() > max {
        return Err(PostError::TooLong);
    }
    let sges = Sges::try_from(list).map_err(|_| PostError::TooLong)?;
    let len = sges.iter().try_fold(0u32, |sum, sge| sum.checked_add(sge.len)).filter(|len| *len <= MESSAGE_MAX);
    Ok((sges, len.ok_or(PostError::TooLong)?))
}
