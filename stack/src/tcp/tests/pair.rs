//! Two connections, a wire with faults on demand, and virtual time.

use core::time::Duration;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::Ipv4Addr;

use crate::device::{MacAddr, RxBatch, SendError};
use crate::error::Error;
use crate::tcp::test_util::{TestRx, TestTx};
use crate::tcp::{Carriage, Config, Connection, Opening, RxPayload, Segment, State};
use crate::time::Instant;
use crate::wire::tcp::{Cookie, FastOpen, Flags, Header, SeqNumber};
use crate::wire::{ethernet, fixed, ipv4};

pub(super) type Conn = Connection<TestRx, TestTx>;

/// How many of a segment's payload bytes come with the copied headers.
const HEAD: usize = 190;

pub(super) const MS: Duration = Duration::from_millis(1);

pub(super) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// What the device's clock says.
pub(super) fn card_time(now: Instant) -> Instant {
    Instant::from_nanos(now.as_nanos() + 7)
}

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The end that connects.
    A,
    /// The end that accepts.
    B,
}

use Side::{A, B};

impl Side {
    pub(super) fn peer(self) -> Self {
        match self {
            A => B,
            B => A,
        }
    }
}

/// A segment on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) from: Side,
    pub(super) header: Header,
    pub(super) payload: Vec<u8>,
    pub(super) sent: Instant,
    /// It may be marked.
    pub(super) capable: bool,
}

impl Packet {
    pub(super) fn is(&self, flags: Flags) -> bool {
        self.header.flags.contains(flags)
    }
}

/// An end that was written down and read in again, if it moves now.
pub(super) type Moves = Box<dyn FnMut(Side, Instant, &Conn) -> Option<Conn>>;

/// Decides what happens to a packet: how often and after which delays it arrives, given the wire's latency.
pub(super) type Fate = Box<dyn FnMut(&Packet, Duration) -> Vec<Duration>>;

pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) a: Conn,
    /// `None` until the first SYN came.
    pub(super) b: Option<Conn>,
    pub(super) config_b: Config,
    pub(super) latency: Duration,
    /// Decides about each packet; the default is one arrival after the latency.
    pub(super) fate: Fate,
    /// Decides which of those that are capable of it are marked; none are by default.
    pub(super) marks: Box<dyn FnMut(&Packet) -> bool>,
    on_wire: VecDeque<(Instant, u64, Packet)>,
    order: u64,
    /// Everything ever sent, lost or not.
    pub(super) log: Vec<Packet>,
    /// Bytes of each send buffer.
    pub(super) buffer: usize,
    /// How many segments the device takes before it is full.
    pub(super) device_room: usize,
    /// Segments that were left to the device to cut.
    pub(super) cuts: u64,
    /// What takes the place of an end before it sends, if anything.
    pub(super) moves: Option<Moves>,
    /// The cookie that B's listener gives to A, if it gives any (RFC 7413).
    pub(super) cookie: Option<Cookie>,
    /// Segments of fixed shape arrive as from a ring that knows it.
    pub(super) has_short_way: bool,
    /// How many have arrived so.
    pub(super) short: u64,
}

pub(super) const OPENING_A: Opening = Opening { iss: SeqNumber(0xffff_fff0), timestamp_offset: 0x8000_0000 };
pub(super) const OPENING_B: Opening = Opening { iss: SeqNumber(0x7fff_fff0), timestamp_offset: 77 };

impl Pair {
    /// Before the first SYN.
    pub(super) fn new(config_a: &Config, config_b: &Config) -> Self {
        let now = Instant::from_nanos(5_000_000_000);
        Self {
            now,
            a: Conn::connect(now, config_a, 40_000, 80, OPENING_A),
            b: None,
            config_b: config_b.clone(),
            latency: MS,
            fate: Box::new(|_, latency| vec![latency]),
            marks: Box::new(|_| false),
            on_wire: VecDeque::new(),
            order: 0,
            log: Vec::new(),
            buffer: 2048,
            device_room: usize::MAX,
            cuts: 0,
            moves: None,
            cookie: None,
            has_short_way: true,
            short: 0,
        }
    }

    /// With the handshake done.
    pub(super) fn open(config_a: &Config, config_b: &Config) -> Self {
        let mut pair = Self::new(config_a, config_b);
        pair.settle();
        assert_eq!(pair.state(A), State::Established);
        assert_eq!(pair.state(B), State::Established);
        pair.a.take_edges();
        pair.side(B).take_edges();
        pair.log.clear();
        pair
    }

    pub(super) fn plain() -> Self {
        Self::open(&Config::default(), &Config::default())
    }

    pub(super) fn side(&mut self, side: Side) -> &mut Conn {
        match side {
            A => &mut self.a,
            B => self.b.as_mut().expect("the SYN has arrived"),
        }
    }

    pub(super) fn state(&mut self, side: Side) -> State {
        self.side(side).state()
    }

    /// Loses every packet that `lost` names; the others arrive.
    pub(super) fn lose(&mut self, mut lost: impl FnMut(&Packet) -> bool + 'static) {
        self.fate = Box::new(move |packet, latency| if lost(packet) { vec![] } else { vec![latency] });
    }

    pub(super) fn lose_nothing(&mut self) {
        self.lose(|_| false);
    }

    pub(super) fn write(&mut self, side: Side, data: &[u8]) -> Result<usize, Error> {
        self.write_more(side, data, false)
    }

    pub(super) fn write_more(&mut self, side: Side, data: &[u8], more: bool) -> Result<usize, Error> {
        let (now, buffer) = (self.now, self.buffer);
        self.side(side).write(now, &[IoSlice::new(data)], more, &mut |_| Some(TestTx::new(buffer)))
    }

    /// Writes the end of a record, all of it.
    pub(super) fn write_record(&mut self, side: Side, data: &[u8]) {
        let written = self.write(side, data);
        self.side(side).end_record(&[IoSlice::new(data)], &written);
        assert_eq!(written, Ok(data.len()));
    }

    /// Everything that can be read now.
    pub(super) fn read(&mut self, side: Side) -> Vec<u8> {
        let mut all = Vec::new();
        while let Ok(bytes) = self.read_some(side, 64 << 10) {
            if bytes.is_empty() {
                break;
            }
            all.extend(bytes);
        }
        all
    }

    pub(super) fn read_some(&mut self, side: Side, len: usize) -> Result<Vec<u8>, Error> {
        let now = self.now;
        let mut out = vec![0; len];
        let n = self.side(side).read(now, &mut [IoSliceMut::new(&mut out)], false)?;
        out.truncate(n);
        Ok(out)
    }

    pub(super) fn shutdown(&mut self, side: Side) {
        let now = self.now;
        self.side(side).shutdown_write(now);
    }

    /// Sends what both ends want to send. Whether there was anything.
    pub(super) fn transmit(&mut self) -> bool {
        let mut any = false;
        for side in [A, B] {
            let (now, latency) = (self.now, self.latency);
            let conn = match side {
                A => &mut self.a,
                B => match &mut self.b {
                    Some(conn) => conn,
                    None => continue,
                },
            };
            if let Some(moved) = self.moves.as_mut().and_then(|moves| moves(side, now, conn)) {
                *conn = moved;
            }
            let mut out = Vec::new();
            let mut room = self.device_room;
            let mut cuts = 0;
            any |= conn.poll_transmit(now, &mut |segment| {
                room = room.checked_sub(1).ok_or(SendError::Full)?;
                cuts += u64::from(segment.cut.is_some());
                out.extend(cut(segment.cut, packet(side, now, segment)));
                Ok(())
            });
            self.cuts += cuts;
            for packet in out {
                for delay in (self.fate)(&packet, latency) {
                    let at = now + delay;
                    let place = self.on_wire.partition_point(|(other, ..)| *other <= at);
                    self.on_wire.insert(place, (at, self.order, packet.clone()));
                    self.order += 1;
                }
                self.log.push(packet);
            }
        }
        any
    }

    fn next_arrival(&self) -> Option<Instant> {
        self.on_wire.front().map(|(at, ..)| *at)
    }

    fn next_timer(&self) -> Option<Instant> {
        let b = self.b.as_ref().and_then(Conn::deadline);
        [self.a.deadline(), b].into_iter().flatten().min()
    }

    fn deliver_due(&mut self) {
        while self.next_arrival().is_some_and(|at| at <= self.now) {
            let Some((_, _, packet)) = self.on_wire.pop_front() else { return };
            let marked = packet.capable && (self.marks)(&packet);
            self.deliver_perhaps_marked(packet.from.peer(), &packet.header, &packet.payload, marked);
            // As a ring does: what follows from a segment goes out before the next one is looked at.
            self.transmit();
        }
    }

    /// Puts a segment before a connection, as if it had come from the wire.
    pub(super) fn deliver(&mut self, to: Side, header: &Header, payload: &[u8]) {
        self.deliver_perhaps_marked(to, header, payload, false);
    }

    fn deliver_perhaps_marked(&mut self, to: Side, header: &Header, payload: &[u8], marked: bool) {
        // What arrives has been through the codec.
        let mut bytes = [0; 60];
        let len = header.emit(&mut bytes);
        let (header, _) = Header::parse(&bytes[..len]).expect("what was emitted parses");
        let now = self.now;
        // As a ring does.
        if self.b.is_some() && self.side(to).acknowledges_before(marked, payload.len()) {
            self.transmit();
        }
        if to == B && self.b.is_none() {
            assert!(header.flags.contains(Flags::SYN), "nothing else can come first");
            self.b = Some(self.accepted(&header, payload));
            return;
        }
        let (head, body) = payload.split_at(payload.len().min(HEAD));
        if self.has_short_way && body.is_empty() && header.options.are_stamps_at_most() {
            let mut batch = RxBatch::new(1);
            let frame = batch.push_slot().expect("one fits");
            let tos = if marked { 3 } else { 0 };
            frame.fill(&framed(&bytes[..len], head, tos), None);
            frame.meta.hardware_time = Some(card_time(now));
            let segment = fixed::Segment::parse(frame.head()).expect("it has that shape");
            self.short += 1;
            if !self.side(to).on_fixed_segment(now, &segment, frame) {
                self.side(to).on_fixed_segment_at_length(now, &segment, frame);
            }
            return;
        }
        let body = (!body.is_empty()).then(|| TestRx::new(body));
        self.side(to).on_coalesced(now, &header, RxPayload { head, frame: None, body }, Carriage { marked, ..Carriage::default() });
    }

    /// What B's listener makes of a SYN, and of what came with it.
    fn accepted(&self, syn: &Header, payload: &[u8]) -> Conn {
        let asked = syn.options.fast_open();
        let offer = asked.filter(|_| self.cookie.is_some()).map(|asked| FastOpen { cookie: self.cookie, ..asked });
        match asked.and_then(|asked| asked.cookie) {
            Some(shown) if self.cookie == Some(shown) => {
                let payload = RxPayload { body: Some(TestRx::new(payload)), ..RxPayload::EMPTY };
                Conn::accept_fast(self.now, &self.config_b, (syn, payload), OPENING_B, None, false)
            }
            _ => {
                let mut conn = Conn::accept(self.now, &self.config_b, syn, OPENING_B);
                offer.into_iter().for_each(|offer| conn.offer_cookie(offer));
                conn
            }
        }
    }

    /// Puts segments that follow one another before a connection as one, as a device that merges them does.
    pub(super) fn deliver_merged(&mut self, to: Side, packets: &[Packet]) {
        let last = packets.last().expect("at least one");
        let header = Header { seq: packets[0].header.seq, ..last.header };
        let payload: Vec<u8> = packets.iter().flat_map(|p| p.payload.clone()).collect();
        let (now, body) = (self.now, TestRx::new(&payload));
        let carriage = Carriage { segments: packets.len() as u16, ..Carriage::default() };
        self.side(to).on_coalesced(now, &header, RxPayload { body: Some(body), ..RxPayload::EMPTY }, carriage);
        self.transmit();
    }

    fn advance_to(&mut self, at: Instant) {
        self.now = self.now.max(at);
        self.deliver_due();
        let now = self.now;
        for conn in [Some(&mut self.a), self.b.as_mut()].into_iter().flatten() {
            if conn.deadline().is_some_and(|due| due <= now) {
                conn.on_timer(now);
                assert!(conn.deadline().is_none_or(|due| due > now), "a timer that ran is over: {:?}", conn.state());
            }
        }
    }

    /// Lets this much time pass, with all that happens in it.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.run_until(end, |_| false);
    }

    /// Goes on until `done`, at most until `end`. Whether it was done.
    pub(super) fn run_until(&mut self, end: Instant, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        loop {
            self.transmit();
            if done(self) {
                return true;
            }
            if self.device_room < usize::MAX && (self.a.wants_transmit() || self.b.as_ref().is_some_and(Conn::wants_transmit)) {
                continue;
            }
            match [self.next_arrival(), self.next_timer()].into_iter().flatten().min() {
                Some(next) if next <= end => self.advance_to(next),
                _ => {
                    self.now = end;
                    return false;
                }
            }
        }
    }

    /// Lets everything arrive that is on its way, and what follows from it; no timers.
    pub(super) fn settle(&mut self) {
        for _ in 0..100_000 {
            self.transmit();
            let Some(next) = self.next_arrival() else { return };
            self.now = self.now.max(next);
            self.deliver_due();
        }
        panic!("the two never stop talking");
    }

    /// The packets that `side` sent since the last call.
    pub(super) fn sent(&mut self, side: Side) -> Vec<Packet> {
        let (mine, rest) = core::mem::take(&mut self.log).into_iter().partition(|packet| packet.from == side);
        self.log = rest;
        mine
    }

    /// Writes all of `data` from one side, reads it on the other, however long that takes (an hour at most).
    pub(super) fn transfer(&mut self, from: Side, data: &[u8]) -> Vec<u8> {
        let mut written = 0;
        let mut got = Vec::new();
        let end = self.now + Duration::from_secs(3600);
        let done = self.run_until(end, |pair| {
            // Until nothing more moves at this instant.
            loop {
                let before = (written, got.len());
                if written < data.len()
                    && let Ok(n) = pair.write(from, &data[written..])
                {
                    written += n;
                }
                if pair.b.is_some() {
                    got.extend(pair.read(from.peer()));
                }
                pair.transmit();
                if before == (written, got.len()) {
                    break;
                }
            }
            got.len() >= data.len()
        });
        assert!(done, "{} of {} bytes arrived, {written} were written", got.len(), data.len());
        got
    }
}

pub(super) fn packet(from: Side, sent: Instant, segment: &Segment<'_, TestTx>) -> Packet {
    use crate::device::TxBuffer;
    let mut payload = Vec::new();
    for slice in segment.payload {
        let mut part = vec![0; slice.len];
        slice.buffer.copy_to(slice.offset, &mut part);
        payload.extend(part);
    }
    assert_eq!(payload.len(), segment.payload_len);
    Packet { from, header: segment.header, payload, sent, capable: segment.capable }
}

/// What a device makes of a segment: pieces of at most `mss` bytes, PSH and FIN on the last one only.
fn cut(mss: Option<u16>, packet: Packet) -> Vec<Packet> {
    let Some(mss) = mss.map(usize::from) else { return vec![packet] };
    assert!(packet.payload.len() > mss, "nothing to cut");
    let pieces = packet.payload.chunks(mss).enumerate();
    let piece = |(i, payload): (usize, &[u8])| {
        let mut header = Header { seq: packet.header.seq + i * mss, ..packet.header };
        if (i + 1) * mss < packet.payload.len() {
            header.flags -= Flags::PSH | Flags::FIN;
        }
        if i > 0 {
            header.flags -= Flags::CWR;
        }
        Packet { header, payload: payload.to_vec(), ..packet }
    };
    pieces.map(piece).collect()
}

/// Bytes that tell where in the stream they are.
pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

/// A segment's frame, between hosts that do not matter here.
fn framed(header: &[u8], payload: &[u8], tos: u8) -> Vec<u8> {
    let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let total_len = (ipv4::LEN + header.len() + payload.len()) as u16;
    let ip = ipv4::Header {
        src,
        dst,
        protocol: ipv4::PROTOCOL_TCP,
        ttl: 64,
        tos,
        id: 0,
        total_len,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        header_len: ipv4::LEN as u8,
    };
    let mut below = [0; ethernet::LEN + ipv4::LEN];
    let link = ethernet::Header { dst: MacAddr([2; 6]), src: MacAddr([4; 6]), vlan: None, ethertype: ethernet::ETHERTYPE_IPV4 };
    let at = link.emit(&mut below);
    ip.emit(&mut below[at..], false);
    [&below, header, payload].concat()
}
