//! Reading by reference: what programs hold of what they read, and when they give it back.
//!
//! A read takes handles on the bytes where the device put them, copies the bytes out for the program, and holds the handles on: for no time at all,
//! for a drawn while, until the socket is closed, or beyond that. Loans come back in any order.

use core::mem;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSliceMut;

use ringway_stack::device::RxBuffer;
use ringway_stack::ring::{Datagram, Decision, FlowId, LentPieces, RecvFlags, Ring};
use ringway_stack::tcp::Lent;
use ringway_stack::{Error, Instant};

use super::filters::Filter;
use super::records::Reader;
use super::segments::Segments;
use crate::nic::{SimQueues, SimRx};
use crate::random::RandomStream;

/// The most loans of a ring at a time: nobody lets all of a NIC's buffers lie about.
const LOANS_MAX: usize = 512;
/// How long a program that gives nothing back before its socket's end waits for that end, at most; then it becomes one that does.
const PATIENCE_NS: (u64, u64) = (1_000_000_000, 20_000_000_000);

/// How the programs of a ring read by reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lending {
    /// Everything is lent from the start, so that nothing is copied before; else a socket begins with its first read.
    pub from_start: bool,
    /// Nothing is held for longer than this, but by those who keep it.
    pub hold_max: Duration,
    /// Of a million sockets, so many give nothing back until they are closed, or have waited too long for that.
    pub keeps_ppm: u32,
}

/// Something that a program took by reference.
#[derive(Debug)]
pub(super) struct Loan {
    pub(super) socket: FlowId,
    pieces: LentPieces<SimRx>,
    /// A copy, as it was when it was taken.
    copy: Vec<u8>,
}

impl Loan {
    /// What it was.
    pub(super) fn read(&self) -> &[u8] {
        &self.copy
    }

    /// What it is.
    pub(super) fn held(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.copy.len());
        self.pieces.iter().for_each(|piece| append(piece, &mut bytes));
        bytes
    }

    /// Whose it is, and its length, by which it is to be given back.
    pub(super) fn done(&self) -> (FlowId, usize) {
        (self.socket, self.copy.len())
    }
}

/// What is held on one ring.
#[derive(Debug)]
pub(super) struct Loans {
    lending: Lending,
    stream: RandomStream,
    now: Instant,
    /// By when it is given back, and a number.
    held: BTreeMap<(Instant, u64), Box<Loan>>,
    made: u64,
    loans_max: usize,
    /// What was taken since the checkers were told: how long it is, and whether any of it is a copy that ought not to have been made.
    taken: Vec<(usize, bool)>,
    /// Those who keep what they take, and until when they do at most; those who don't.
    keepers: BTreeMap<FlowId, Option<Instant>>,
    /// Connections that came from another ring: what they had received there may have been copied.
    adopted: BTreeSet<FlowId>,
    /// UDP sockets that are read from a cyclic buffer, and those that are not.
    readers: BTreeMap<FlowId, Option<Reader>>,
    /// Those about whose datagrams the program decides before they are read, and those of which it does not; and what is drawn for that.
    filters: BTreeMap<FlowId, Option<Filter>>,
    filtering: RandomStream,
    /// The same of streams.
    segments: BTreeMap<FlowId, Option<Segments>>,
    segment_filtering: RandomStream,
    /// What was wrong with what was read there since the checkers were told.
    wrong: Option<String>,
}

impl Loans {
    /// On a ring with so many receive buffers.
    pub(super) fn new(lending: Lending, [stream, filtering, segment_filtering]: [RandomStream; 3], rx_buffers: usize) -> Self {
        Self {
            lending,
            stream,
            now: Instant::ZERO,
            held: BTreeMap::new(),
            made: 0,
            loans_max: (rx_buffers / 4).min(LOANS_MAX),
            taken: Vec::new(),
            keepers: BTreeMap::new(),
            adopted: BTreeSet::new(),
            readers: BTreeMap::new(),
            filters: BTreeMap::new(),
            filtering,
            segments: BTreeMap::new(),
            segment_filtering,
            wrong: None,
        }
    }

    /// When it last was told the time.
    pub(super) fn now(&self) -> Instant {
        self.now
    }

    /// When the next is given back.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.held.first_key_value().map(|(&(at, _), _)| at)
    }

    /// A loan that has been held for long enough, or is one too many.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Box<Loan>> {
        self.now = now;
        let due = self.next_at().is_some_and(|at| at <= now) || self.held.len() > self.loans_max;
        if due { self.held.pop_first().map(|(_, loan)| loan) } else { None }
    }

    /// A socket is about to go: what its program gives back before. `may_outlive`: some of it may be held on.
    pub(super) fn take_of(&mut self, now: Instant, socket: FlowId, may_outlive: bool) -> Vec<Loan> {
        self.keepers.remove(&socket);
        self.readers.remove(&socket);
        self.filters.remove(&socket);
        self.segments.remove(&socket);
        self.adopted.remove(&socket);
        let mut back = Vec::new();
        for (_, loan) in self.held.extract_if(.., |_, loan| loan.socket == socket).collect::<Vec<_>>() {
            if may_outlive && self.stream.chance_ppm(500_000) {
                let until = now + self.drawn_hold();
                self.hold(until, loan);
            } else {
                back.push(*loan);
            }
        }
        back
    }

    /// A connection came from another ring.
    pub(super) fn adopted(&mut self, socket: FlowId) {
        self.adopted.insert(socket);
    }

    /// What was taken since the last call, in order.
    pub(super) fn take_taken(&mut self) -> Vec<(usize, bool)> {
        mem::take(&mut self.taken)
    }

    /// The memory of that, to be used again.
    pub(super) fn reuse(&mut self, mut taken: Vec<(usize, bool)>) {
        taken.clear();
        self.taken = taken;
    }

    /// As [`Ring::tcp_recv`], by reference.
    pub(super) fn tcp_recv(
        &mut self,
        ring: &mut Ring<SimQueues>,
        now: Instant,
        socket: FlowId,
        into: &mut [IoSliceMut<'_>],
    ) -> Result<usize, Error> {
        self.now = now;
        let room: usize = into.iter().map(|slice| slice.len()).sum();
        if room > 0 && self.filters_segments(ring, socket) {
            return self.recv_segments(ring, socket, into, room);
        }
        // What was copied is lent all at once, whether there is room for it or not.
        let uncopied = self.lending.from_start && ring.queues().lent_all_heads() && !self.adopted.contains(&socket);
        let waiting = |ring: &Ring<SimQueues>| ring.info(socket).map_or(0, |info| info.recv_queue);
        if room == 0 || !(uncopied || waiting(ring) <= room) || self.stream.chance_ppm(60_000) {
            return ring.tcp_recv(now, socket, into, RecvFlags::empty());
        }
        let mut read = 0;
        loop {
            let wanted = self.wanted(room - read);
            let Some(piece) = ring.tcp_lend(socket, |buffer| buffer.len().min(wanted))? else { return Ok(read) };
            let copied = matches!(piece, Lent::Copied(_));
            let mut pieces = LentPieces::new();
            pieces.push(piece);
            let bytes = self.lent(socket, pieces, copied && uncopied);
            scatter(into, read, bytes);
            read += bytes.len();
            // (An error that is pending is for the next read.)
            if read == room || waiting(ring) == 0 {
                return Ok(read);
            }
        }
    }

    /// As [`Ring::udp_recv`], by reference.
    pub(super) fn udp_recv(&mut self, ring: &mut Ring<SimQueues>, socket: FlowId, into: &mut [IoSliceMut<'_>]) -> Result<Datagram, Error> {
        let Self { readers, stream, .. } = self;
        // (A cyclic buffer's records have room for IPv4's headers.)
        let fits = ring.info(socket).is_some_and(|info| info.local.is_ipv4());
        let reader = readers.entry(socket).or_insert_with(|| stream.chance_ppm(250_000).then(|| Reader::draw(stream)).filter(|_| fits));
        if reader.is_none() && self.is_filtered(ring, socket) {
            return self.recv_filtered(ring, socket, into);
        }
        let Self { readers, stream, .. } = self;
        let reader = readers.get_mut(&socket).and_then(Option::as_mut);
        if stream.chance_ppm(60_000) {
            return ring.udp_recv(socket, into, RecvFlags::empty());
        }
        if let Some(reader) = reader {
            return reader.recv(ring, socket, into);
        }
        let (datagram, pieces) = ring.udp_lend(socket)?;
        let copied = pieces.iter().any(|piece| matches!(piece, Lent::Copied(_)));
        // What its own host tells a group never comes from a device.
        let uncopied = self.lending.from_start && ring.queues().lent_all_heads() && !datagram.to.is_multicast();
        let bytes = self.lent(socket, pieces, copied && uncopied);
        Ok(Datagram { copied: scatter(into, 0, bytes), ..datagram })
    }

    /// Whether the program decides about this socket's datagrams before they are read.
    fn is_filtered(&mut self, ring: &mut Ring<SimQueues>, socket: FlowId) -> bool {
        let Self { filters, filtering, .. } = self;
        let filter = filters.entry(socket).or_insert_with(|| Filter::draw(filtering, ring, socket));
        if filter.is_some() && Filter::ends(filtering, ring, socket) {
            *filter = None;
        }
        filter.is_some()
    }

    /// As [`Ring::udp_recv`], of what the program admits. What it drops, or holds, it has seen: that counts as read.
    fn recv_filtered(&mut self, ring: &mut Ring<SimQueues>, socket: FlowId, into: &mut [IoSliceMut<'_>]) -> Result<Datagram, Error> {
        while let Ok(candidate) = ring.candidate(socket)
            && let Some(filter) = self.filters.get_mut(&socket).and_then(Option::as_mut)
            && let Some(decision) = filter.decision(&mut self.filtering)
        {
            let mut bytes = Vec::new();
            candidate.pieces.iter().for_each(|piece| append(piece, &mut bytes));
            let len = ring.decide(self.now, socket, decision)?;
            let received = candidate.received.unwrap_or(self.now);
            let datagram = Datagram {
                copied: 0,
                len,
                from: candidate.from,
                to: candidate.to.ip(),
                received,
                hardware_time: candidate.hardware_time,
                drops: 0,
            };
            match decision {
                Decision::Admit => filter.admit(&candidate, bytes),
                Decision::Drop => return Ok(Datagram { copied: scatter(into, 0, &bytes), ..datagram }),
                Decision::Hold => {
                    let bytes = self.lent(socket, candidate.pieces, false);
                    return Ok(Datagram { copied: scatter(into, 0, bytes), ..datagram });
                }
            }
        }
        let datagram = ring.udp_recv(socket, into, RecvFlags::empty())?;
        let read = gather(into, datagram.copied);
        let filter = self.filters.get_mut(&socket).and_then(Option::as_mut);
        self.wrong = filter.and_then(|filter| filter.misread(datagram.from, &read));
        Ok(datagram)
    }

    /// Whether the program decides about this connection's segments before they are read.
    fn filters_segments(&mut self, ring: &mut Ring<SimQueues>, socket: FlowId) -> bool {
        let Self { segments, segment_filtering: stream, .. } = self;
        let filter = segments.entry(socket).or_insert_with(|| Segments::draw(stream, ring, socket));
        if filter.is_some() && Segments::ends(stream, ring, socket) {
            *filter = None;
        }
        filter.is_some()
    }

    /// As [`Ring::tcp_recv`], of what the program admits. What it drops, or holds, it has seen: that counts as read.
    fn recv_segments(
        &mut self,
        ring: &mut Ring<SimQueues>,
        socket: FlowId,
        into: &mut [IoSliceMut<'_>],
        room: usize,
    ) -> Result<usize, Error> {
        while let Ok(candidate) = ring.candidate(socket)
            && let Some(filter) = self.segments.get_mut(&socket).and_then(Option::as_mut)
        {
            let mut bytes = Vec::new();
            candidate.pieces.iter().for_each(|piece| append(piece, &mut bytes));
            let Some(decision) = filter.decision(&mut self.segment_filtering, bytes.len() <= room) else { break };
            ring.decide(self.now, socket, decision)?;
            match decision {
                Decision::Admit => filter.admit(bytes),
                Decision::Drop => return Ok(scatter(into, 0, &bytes)),
                Decision::Hold => {
                    let bytes = self.lent(socket, candidate.pieces, false);
                    return Ok(scatter(into, 0, bytes));
                }
            }
        }
        let len = ring.tcp_recv(self.now, socket, into, RecvFlags::empty())?;
        let read = gather(into, len);
        let undecided = ring.has_candidate(socket);
        let filter = self.segments.get_mut(&socket).and_then(Option::as_mut);
        self.wrong = filter.and_then(|filter| filter.misread(&read, undecided));
        Ok(len)
    }

    /// What was read wrongly since the last call.
    pub(super) fn take_wrong(&mut self) -> Option<String> {
        self.wrong.take()
    }

    /// How much of a buffer is taken, of so much that would be welcome.
    fn wanted(&mut self, room: usize) -> usize {
        if self.stream.chance_ppm(125_000) { 1 + usize::try_from(self.stream.below(room as u64)).unwrap_or(0) } else { room }
    }

    /// Notes a loan; its bytes.
    fn lent(&mut self, socket: FlowId, pieces: LentPieces<SimRx>, needlessly_copied: bool) -> &[u8] {
        let mut copy = Vec::with_capacity(pieces.iter().map(len_of).sum());
        pieces.iter().for_each(|piece| append(piece, &mut copy));
        self.taken.push((copy.len(), needlessly_copied));
        let until = match self.kept_until(socket) {
            Some(until) if until > self.now => until,
            _ => self.now + self.drawn_hold(),
        };
        let key = self.hold(until, Box::new(Loan { socket, pieces, copy }));
        self.held.get(&key).map_or(&[], |loan| loan.read())
    }

    fn hold(&mut self, until: Instant, loan: Box<Loan>) -> (Instant, u64) {
        self.made += 1;
        self.held.insert((until, self.made), loan);
        (until, self.made)
    }

    /// Until when the program of a socket keeps everything, if it does.
    fn kept_until(&mut self, socket: FlowId) -> Option<Instant> {
        let Self { keepers, stream, lending, now, .. } = self;
        *keepers.entry(socket).or_insert_with(|| {
            let patience = Duration::from_nanos(stream.magnitude(PATIENCE_NS.0, PATIENCE_NS.1));
            stream.chance_ppm(lending.keeps_ppm).then(|| *now + patience)
        })
    }

    fn drawn_hold(&mut self) -> Duration {
        if self.stream.chance_ppm(300_000) {
            return Duration::ZERO;
        }
        let most = u64::try_from(self.lending.hold_max.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.stream.magnitude(1_000.min(most), most))
    }
}

fn len_of(piece: &Lent<SimRx>) -> usize {
    match piece {
        Lent::Copied(bytes) => bytes.len(),
        Lent::Buffer(buffer) => buffer.len(),
    }
}

fn append(piece: &Lent<SimRx>, out: &mut Vec<u8>) {
    match piece {
        Lent::Copied(bytes) => out.extend_from_slice(bytes),
        Lent::Buffer(buffer) => {
            let at = out.len();
            out.resize(at + buffer.len(), 0);
            buffer.copy_to(0, &mut out[at..]);
        }
    }
}

/// The first `len` bytes of what was read into.
pub(crate) fn gather(into: &[IoSliceMut<'_>], len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    for slice in into {
        bytes.extend_from_slice(&slice[..slice.len().min(len - bytes.len())]);
    }
    bytes
}

/// Copies `bytes` to where the first `skip` bytes of `into` end, as many as fit; how many those are.
pub(super) fn scatter(into: &mut [IoSliceMut<'_>], mut skip: usize, bytes: &[u8]) -> usize {
    let mut left = bytes;
    for slice in into {
        let skipped = skip.min(slice.len());
        skip -= skipped;
        let out = &mut slice[skipped..];
        let (now, later) = left.split_at(out.len().min(left.len()));
        out[..now.len()].copy_from_slice(now);
        left = later;
    }
    bytes.len() - left.len()
}

#[cfg(test)]
mod tests;
