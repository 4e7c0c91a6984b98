//! What arrived in order and waits for the reader.

use std::collections::VecDeque;
use std::io::IoSliceMut;

use super::arrivals::{Arrival, Arrivals};
use super::payload::RxPayload;
use super::recv_filter::{Decision, LentPieces, RecvFilter};
use crate::device::{LendBuffer, RxBuffer};
use crate::time::Instant;

/// Up to this many bytes are copied rather than held by their buffer: cheaper for the processor, and a sender of tiny segments
/// cannot pin a buffer with each.
pub(super) const COPY_BREAK: usize = 512;

enum Item<R> {
    /// So many bytes of `RecvQueue::bytes`.
    Bytes(usize),
    /// A device's buffer, of which the reader took so many bytes already.
    Buffer(R, usize),
}

/// The receive queue. Small payloads are appended to one byte vector that is used again; large ones stay where the device put
/// them until they are read.
pub(super) struct RecvQueue<R> {
    /// So many bytes of `bytes` come before all items. Small messages, read before the next one comes, need no items.
    lead: usize,
    /// Invariant: the first is a `Buffer`; no two neighbours are `Bytes`; none is empty.
    items: VecDeque<Item<R>>,
    /// The bytes of the lead and of all `Item::Bytes`, from `start` on.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
    /// Small payloads are copied, and nothing else is to be done about what arrives: it is not lent, and nobody asks when it came.
    only_copies: bool,
    /// Bytes are not copied, however few they are: the reader takes them by reference.
    lends: bool,
    /// Bytes that the reader took by reference, and has not given back; and those that it is not to have yet.
    lent: usize,
    /// Where bytes wait until the program lets the reader have them. (Then nothing is copied either.)
    filter: Option<Box<RecvFilter<R>>>,
    /// When the bytes came, for who asks.
    arrivals: Option<Box<Arrivals>>,
}

/// A piece of what was received, as it goes up to the program by reference.
#[derive(Clone, Debug)]
pub enum Lent<R> {
    /// Where the device received it.
    Buffer(R),
    /// Copied out of the device's buffer before anybody asked for it by reference.
    Copied(Vec<u8>),
}

impl<R: RxBuffer> Lent<R> {
    /// The mark of what a program was lent.
    #[cfg(feature = "marks")]
    pub(crate) fn mark(&self) -> crate::marks::Mark {
        match self {
            Self::Copied(_) => crate::marks::Mark::LentCopied,
            Self::Buffer(buffer) if buffer.len() < crate::device::HEAD_MAX => crate::marks::Mark::LentSmall,
            Self::Buffer(_) => crate::marks::Mark::LentLarge,
        }
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Buffer(buffer) => buffer.len(),
            Self::Copied(bytes) => bytes.len(),
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<R: LendBuffer> Lent<R> {
    /// Where the bytes lie: [`LendBuffer::for_each_piece`].
    pub fn for_each_piece(&self, mut piece: impl FnMut(*const u8, usize)) {
        match self {
            Self::Buffer(buffer) => buffer.for_each_piece(piece),
            Self::Copied(bytes) => piece(bytes.as_ptr(), bytes.len()),
        }
    }

    /// The program may write to them, once it is told: [`LendBuffer::make_writable`].
    pub fn make_writable(&mut self) {
        if let Self::Buffer(buffer) = self {
            buffer.make_writable();
        }
    }
}

impl<R: RxBuffer> RecvQueue<R> {
    pub(super) fn new() -> Self {
        Self {
            lead: 0,
            items: VecDeque::new(),
            bytes: Vec::new(),
            start: 0,
            len: 0,
            only_copies: true,
            lends: false,
            lent: 0,
            filter: None,
            arrivals: None,
        }
    }

    /// `on`: it is kept when the bytes come that arrive from now on. Else nothing is known of that.
    pub(super) fn keep_arrivals(&mut self, on: bool) {
        if on != self.arrivals.is_some() {
            self.arrivals = on.then(|| Box::new(Arrivals::new(self.len)));
            self.only_copies = !(on || self.lends);
        }
    }

    /// When the last byte came that was read, or, of those that wait, the last of `peeked`. `None`: it is not known.
    pub(super) fn arrival(&self, peeked: usize) -> Option<Arrival> {
        self.arrivals.as_ref()?.of_last(self.len, peeked)
    }

    /// Such bytes are among those that wait, where so many were that wait elsewhere until now, or came just now.
    fn note_arrival(&mut self, len: usize, at: Option<Arrival>) {
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.append(len, at, self.len);
        }
    }

    /// From now on, what arrives stays where the device put it.
    pub(super) fn lend_from_now_on(&mut self) {
        (self.lends, self.only_copies) = (true, false);
    }

    /// Whether it does.
    pub(super) fn lends(&self) -> bool {
        self.lends
    }

    /// Whether what arrives is copied, if it is small, and that is all.
    #[inline(always)]
    pub(super) fn only_copies(&self) -> bool {
        self.only_copies
    }

    /// `on`: bytes that arrive wait until [`RecvQueue::decide`]. Else those that wait are the reader's.
    pub(super) fn set_recv_filter(&mut self, on: bool) {
        if on {
            self.lend_from_now_on();
            self.filter.get_or_insert_with(|| Box::new(RecvFilter::new()));
        } else {
            while self.decide(Decision::Admit).is_some() {}
            self.filter = None;
        }
    }

    /// What is to be decided about next.
    pub(super) fn candidate(&self) -> Option<(&LentPieces<R>, Option<Arrival>)> {
        self.filter.as_ref()?.first()
    }

    pub(super) fn candidate_mut(&mut self) -> Option<&mut LentPieces<R>> {
        self.filter.as_mut()?.first_mut()
    }

    /// Decides about the candidate: how many bytes that was.
    pub(super) fn decide(&mut self, decision: Decision) -> Option<usize> {
        let (pieces, at) = self.filter.as_mut()?.pop()?;
        let len = pieces.iter().map(Lent::len).sum();
        if decision != Decision::Hold {
            self.lent -= len;
        }
        if decision == Decision::Admit {
            pieces.into_iter().for_each(|piece| match piece {
                Lent::Buffer(buffer) => self.append_buffer(buffer),
                Lent::Copied(bytes) => self.append_bytes(&bytes),
            });
            self.note_arrival(len, at);
        }
        Some(len)
    }

    /// Bytes that the reader is not to have yet.
    #[inline]
    pub(super) fn undecided(&self) -> usize {
        self.filter.as_ref().map_or(0, |filter| filter.len())
    }

    /// What counts against the receive window: bytes that wait, and bytes that are lent.
    #[inline]
    pub(super) fn charged(&self) -> usize {
        self.len + self.lent
    }

    /// Takes the oldest bytes by reference, in one piece: as many as `take` says of their buffer, or all that were copied. They count as lent.
    #[inline(never)]
    pub(super) fn lend(&mut self, take: impl FnOnce(&R) -> usize) -> Option<Lent<R>> {
        let piece = if self.lead > 0 {
            Lent::Copied(self.bytes[self.start..self.start + self.lead].to_vec())
        } else {
            match self.items.front()? {
                Item::Buffer(buffer, taken) => {
                    let rest = buffer.slice(*taken, buffer.len() - taken);
                    match take(&rest) {
                        n if n < rest.len() => Lent::Buffer(rest.slice(0, n)),
                        _ => Lent::Buffer(rest),
                    }
                }
                Item::Bytes(_) => return None,
            }
        };
        let n = piece.len();
        self.consume(n);
        self.lent += n;
        (n > 0).then_some(piece)
    }

    /// The reader is done with so many lent bytes. How many of them were lent.
    pub(super) fn give_back(&mut self, n: usize) -> usize {
        let n = n.min(self.lent - self.undecided());
        self.lent -= n;
        n
    }

    /// Bytes that wait.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits, and what comes is the reader's at once, by copying.
    #[inline(always)]
    pub(super) fn is_empty_and_copies(&self) -> bool {
        self.len == 0 && self.only_copies
    }

    /// Whether memory is held though nothing waits.
    #[cfg(test)]
    pub(super) fn holds_memory(&self) -> bool {
        self.bytes.capacity() > 0 || self.arrivals.as_ref().is_some_and(|arrivals| arrivals.holds_memory())
    }

    /// Appends the payload of a segment that came now.
    #[inline(always)]
    pub(super) fn push(&mut self, payload: RxPayload<'_, R>, now: Instant) {
        if !self.only_copies {
            return self.push_otherwise(payload, now);
        }
        if !payload.head.is_empty() {
            self.append_bytes(payload.head);
        }
        if let Some(body) = payload.body {
            self.append_or_copy(body);
        }
    }

    #[inline(never)]
    fn push_otherwise(&mut self, payload: RxPayload<'_, R>, now: Instant) {
        let (len, at) = (payload.len(), Some(payload.arrival(now)));
        if let Some(filter) = &mut self.filter {
            self.lent += filter.push(payload, at);
            return;
        }
        let lent = if self.lends { payload.held_head() } else { None };
        match lent {
            Some(lent) => self.append_buffer(lent),
            None if payload.head.is_empty() => {}
            None => self.append_bytes(payload.head),
        }
        if let Some(body) = payload.body {
            self.append_or_copy(body);
        }
        self.note_arrival(len, at);
    }

    /// Appends bytes, which came at that time, by copying them.
    pub(super) fn push_bytes(&mut self, bytes: &[u8], at: Option<Arrival>) {
        match &mut self.filter {
            Some(filter) => self.lent += filter.push_pieces([Lent::Copied(bytes.to_vec())].into_iter().collect(), at),
            None => {
                self.append_bytes(bytes);
                self.note_arrival(bytes.len(), at);
            }
        }
    }

    #[inline(always)]
    pub(super) fn append_bytes(&mut self, bytes: &[u8]) {
        self.make_room(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a buffer, or a copy of it if it is small. It came at that time.
    pub(super) fn push_buffer(&mut self, buffer: R, at: Option<Arrival>) {
        let len = buffer.len();
        match &mut self.filter {
            Some(filter) => self.lent += filter.push_pieces([Lent::Buffer(buffer)].into_iter().collect(), at),
            None => {
                self.append_or_copy(buffer);
                self.note_arrival(len, at);
            }
        }
    }

    fn append_or_copy(&mut self, buffer: R) {
        let len = buffer.len();
        if len == 0 {
            return;
        }
        if len <= COPY_BREAK && !self.lends {
            self.make_room(len);
            let at = self.bytes.len();
            self.bytes.resize(at + len, 0);
            buffer.copy_to(0, &mut self.bytes[at..]);
        } else {
            self.append_buffer(buffer);
        }
    }

    #[inline]
    fn append_buffer(&mut self, buffer: R) {
        self.len += buffer.len();
        self.items.push_back(Item::Buffer(buffer, 0));
    }

    /// Accounts for `len` bytes that are about to be appended to `bytes`.
    #[inline(always)]
    fn make_room(&mut self, len: usize) {
        self.len += len;
        match self.items.back_mut() {
            None => self.lead += len,
            Some(Item::Bytes(last)) => *last += len,
            Some(Item::Buffer(..)) => self.items.push_back(Item::Bytes(len)),
        }
        // A reader that never catches up must not make the vector grow without end; moving at most as many bytes as were read
        // since the last time costs each byte one move.
        if self.start > 4096 && self.start >= self.bytes.len() / 2 {
            self.drop_read();
        }
    }

    #[inline(never)]
    fn drop_read(&mut self) {
        self.bytes.drain(..self.start);
        self.start = 0;
    }

    /// Copies bytes out, as many as there are and fit; takes them off unless `peek`.
    #[inline(always)]
    pub(super) fn read(&mut self, into: &mut [IoSliceMut<'_>], peek: bool) -> usize {
        // One small message, one buffer: what a ping-pong does.
        if let [out] = &mut *into
            && self.items.is_empty()
        {
            let n = out.len().min(self.lead);
            out[..n].copy_from_slice(&self.bytes[self.start..self.start + n]);
            if !peek {
                self.consume_lead(n);
            }
            return n;
        }
        self.read_any(into, peek)
    }

    #[inline(never)]
    fn read_any(&mut self, into: &mut [IoSliceMut<'_>], peek: bool) -> usize {
        let n = self.copy(into);
        if !peek {
            self.consume(n);
        }
        n
    }

    fn copy(&self, into: &mut [IoSliceMut<'_>]) -> usize {
        let mut room = into.iter_mut().map(|slice| &mut **slice).filter(|slice| !slice.is_empty());
        let mut out: &mut [u8] = &mut [];
        let mut at = self.start;
        let mut copied = 0;
        let lead = Item::Bytes(self.lead);
        for item in core::iter::once(&lead).chain(&self.items) {
            let (mut from, to) = match item {
                Item::Bytes(n) => (at, at + n),
                Item::Buffer(buffer, taken) => (*taken, buffer.len()),
            };
            while from < to {
                if out.is_empty() {
                    match room.next() {
                        Some(next) => out = next,
                        None => return copied,
                    }
                }
                let len = out.len().min(to - from);
                let (now, later) = out.split_at_mut(len);
                match item {
                    Item::Bytes(_) => now.copy_from_slice(&self.bytes[from..from + len]),
                    Item::Buffer(buffer, _) => buffer.copy_to(from, now),
                }
                out = later;
                from += len;
                copied += len;
            }
            if matches!(item, Item::Bytes(_)) {
                at = to;
            }
        }
        copied
    }

    /// A copy of all bytes, those that nobody has decided about included.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.copy(&mut [IoSliceMut::new(&mut bytes)]);
        if let Some(filter) = &self.filter {
            filter.append_to(&mut bytes);
        }
        bytes
    }

    /// Takes bytes off that are all of the lead.
    #[inline(always)]
    fn consume_lead(&mut self, n: usize) {
        self.len -= n;
        self.lead -= n;
        self.start += n;
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    fn consume(&mut self, n: usize) {
        self.len -= n;
        let lead = n.min(self.lead);
        self.lead -= lead;
        self.start += lead;
        let mut left = n - lead;
        while left > 0 {
            let Some(front) = self.items.front_mut() else { break };
            let done = match front {
                Item::Bytes(len) => {
                    let took = left.min(*len);
                    *len -= took;
                    self.start += took;
                    left -= took;
                    *len == 0
                }
                Item::Buffer(buffer, taken) => {
                    let took = left.min(buffer.len() - *taken);
                    *taken += took;
                    left -= took;
                    *taken == buffer.len()
                }
            };
            if done {
                self.items.pop_front();
            }
        }
        // Bytes behind a buffer that was read lead now.
        if let Some(Item::Bytes(next)) = self.items.front() {
            self.lead += next;
            self.items.pop_front();
        }
        if self.start == self.bytes.len() {
            self.bytes.clear();
            self.start = 0;
        }
    }

    /// Lets go of everything that an idle connection need not hold.
    pub(super) fn release_idle(&mut self, forgets_lent: bool) {
        if self.len == 0 {
            let lent = if forgets_lent { self.undecided() } else { self.lent };
            let (filter, mut arrivals) = (self.filter.take(), self.arrivals.take());
            arrivals.iter_mut().for_each(|arrivals| arrivals.release_read());
            *self = Self { only_copies: self.only_copies, lends: self.lends, lent, filter, arrivals, ..Self::new() };
        }
    }

    /// Forgets all bytes: nobody will read them.
    pub(super) fn clear(&mut self) {
        *self = Self { only_copies: !self.lends, lends: self.lends, lent: self.lent - self.undecided(), ..Self::new() };
    }
}
