//! A cyclic (striding) receive queue: strides of one buffer, filled in order, written again only once nobody reads them.

use std::collections::VecDeque;
use std::rc::{Rc, Weak};

use ringway_stack::device::{CyclicConfig, CyclicError, CyclicPacket, RxMeta};

use super::buffer::{Pool, SimRx, Token};

/// The most bytes in one queue's buffer.
const BUFFER_MAX: usize = 1 << 28;

#[derive(Debug)]
pub(super) struct Cyclic {
    config: CyclicConfig,
    memory: Vec<u8>,
    /// Strides written so far, those skipped at the linear end included.
    written: u64,
    /// Strides that are free again. Invariant: `freed <= written <= freed + strides`.
    freed: u64,
    ready: VecDeque<Filled>,
    /// Runs given out, in order: where each ends, and whether it is still held.
    runs: VecDeque<(u64, Weak<Token>)>,
    pool: Rc<Pool>,
    /// Rules that steer here.
    pub(super) rules: usize,
}

#[derive(Debug)]
struct Filled {
    /// Its first and one-past-last stride, counted as `written` is.
    start: u64,
    end: u64,
    len: usize,
    meta: RxMeta,
}

impl Cyclic {
    pub(super) fn new(config: CyclicConfig) -> Result<Self, CyclicError> {
        let CyclicConfig { stride_bytes, strides } = config;
        if !stride_bytes.is_power_of_two() || !strides.is_power_of_two() || stride_bytes < 64 {
            return Err(CyclicError::Invalid);
        }
        let bytes = stride_bytes.checked_mul(strides).filter(|&bytes| bytes <= BUFFER_MAX).ok_or(CyclicError::Full)?;
        let (ready, runs, pool) = (VecDeque::new(), VecDeque::new(), Pool::new(usize::MAX));
        Ok(Self { config, memory: vec![0; bytes], written: 0, freed: 0, ready, runs, pool, rules: 0 })
    }

    /// Whether a read would find something.
    pub(super) fn has_packets(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Runs that someone reads.
    pub(super) fn held(&self) -> usize {
        self.pool.outstanding()
    }

    /// A packet arrives. `false`: there are not enough free strides in a row for it.
    pub(super) fn fill(&mut self, bytes: &[u8], meta: RxMeta) -> bool {
        self.reclaim();
        let strides = self.config.strides as u64;
        let wanted = bytes.len().div_ceil(self.config.stride_bytes).max(1) as u64;
        let to_end = strides - self.written % strides;
        // A packet never wraps: what is left before the linear end is skipped.
        let start = if wanted <= to_end { self.written } else { self.written + to_end };
        let end = start + wanted;
        if end > self.freed + strides {
            return false;
        }
        let at = self.offset(start);
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
        self.written = end;
        self.ready.push_back(Filled { start, end, len: bytes.len(), meta });
        true
    }

    /// The next run.
    pub(super) fn read(&mut self, packets_max: usize, packets: &mut Vec<CyclicPacket>) -> Option<SimRx> {
        let first = self.ready.front().filter(|_| packets_max > 0)?.start;
        let (base, mut end) = (self.offset(first), first);
        for _ in 0..packets_max {
            // Behind a wrap, the next packet begins before the run's end.
            let Some(next) = self.ready.front().filter(|next| next.start == end && (end == first || self.offset(end) > base)) else {
                break;
            };
            let place = self.offset(next.start);
            packets.push(CyclicPacket { offset: place - base, place, len: next.len, meta: next.meta });
            end = next.end;
            self.ready.pop_front();
        }
        let len = usize::try_from(end - first).unwrap_or(0) * self.config.stride_bytes;
        let token = Rc::new(self.pool.take()?);
        self.runs.push_back((end, Rc::downgrade(&token)));
        Some(SimRx::whole(self.memory[base..base + len].into(), token))
    }

    /// The device was reset: what nobody has read is lost.
    pub(super) fn clear(&mut self) {
        self.ready.clear();
        self.reclaim();
    }

    fn reclaim(&mut self) {
        while let Some((end, token)) = self.runs.front()
            && token.strong_count() == 0
        {
            self.freed = *end;
            self.runs.pop_front();
        }
        if self.runs.is_empty() && self.ready.is_empty() {
            self.freed = self.written;
        }
    }

    fn offset(&self, stride: u64) -> usize {
        usize::try_from(stride % self.config.strides as u64).unwrap_or(0) * self.config.stride_bytes
    }
}
