//! Two connections, and a network that loses, repeats, delays and changes what it carries, as the input says.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::Ipv4Addr;

use super::peer::{Conn, OURS, THEIRS};
use super::{Bytes, bytes_at, config, payload_of};
use crate::device::SendError;
use crate::error::Error;
use crate::tcp::test_util::{TestRx, TestTx};
use crate::tcp::{Carriage, Config, Connection, Opening, RxPayload, Segment, State, reset_for};
use crate::time::Instant;
use crate::wire::checksum::Checksum;
use crate::wire::ipv4;
use crate::wire::tcp::{Flags, Header, SeqNumber};

const STEPS_MAX: usize = 800;
/// What is written is not more, by each.
const WRITTEN_MAX: usize = 200_000;
/// Packets on their way; further ones are lost.
const WIRE_MAX: usize = 64;

const ISS: [SeqNumber; 2] = [SeqNumber(0xffff_e000), SeqNumber(0x7fff_f000)];
const SALTS: [u32; 2] = [OURS, THEIRS];

pub(crate) fn pair(input: &[u8]) {
    let mut bytes = Bytes::new(input);
    let mut world = World::new(&mut bytes);
    for _ in 0..STEPS_MAX {
        if bytes.is_empty() {
            break;
        }
        world.step(&mut bytes);
        world.ends.iter().flatten().for_each(|end| end.conn.check());
    }
    world.faults_end();
}

struct End {
    conn: Conn,
    written: usize,
    read: usize,
    /// The reader saw the other's end.
    ended: bool,
    is_shut: bool,
    /// It was reset, or gave up.
    broken: bool,
}

impl End {
    fn new(conn: Conn) -> Self {
        Self { conn, written: 0, read: 0, ended: false, is_shut: false, broken: false }
    }
}

/// A packet: to which end it goes, TCP's header and its payload, checksum and all, and whether it may be marked, or was.
struct Packet {
    to: usize,
    bytes: Vec<u8>,
    marked: bool,
    capable: bool,
    changed: bool,
}

struct World {
    now: Instant,
    configs: [Config; 2],
    ends: [Option<End>; 2],
    wire: Vec<Packet>,
}

impl World {
    fn new(bytes: &mut Bytes<'_>) -> Self {
        let now = Instant::from_nanos(5_000_000_000);
        let configs = [config(bytes), config(bytes)];
        let opening = Opening { iss: ISS[0], timestamp_offset: 0xffff_fff0 };
        let first = End::new(Connection::connect(now, &configs[0], 40_000, 80, opening));
        let mut world = Self { now, configs, ends: [Some(first), None], wire: Vec::new() };
        if bytes.byte() & 3 != 0 {
            for _ in 0..4 {
                world.transmit(0, usize::MAX);
                world.transmit(1, usize::MAX);
                world.deliver_all();
            }
        }
        world
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        let which = bytes.byte();
        let end = usize::from(which >> 7);
        match which % 16 {
            0 | 1 => self.write(end, bytes.len(20_000), which & 64 != 0),
            2 | 3 => self.read(end, bytes.len(60_000)),
            4 | 5 => self.transmit(end, if which & 64 == 0 { usize::MAX } else { 2 }),
            6 | 7 => {
                if let Some(at) = self.one(bytes) {
                    let packet = self.wire.remove(at);
                    self.deliver(&packet);
                }
            }
            8 => self.deliver_all(),
            9 => _ = self.one(bytes).map(|at| self.wire.swap_remove(at)),
            10 => {
                if let Some(at) = self.one(bytes) {
                    let Packet { to, ref bytes, marked, capable, changed } = self.wire[at];
                    self.wire.push(Packet { to, bytes: bytes.clone(), marked, capable, changed });
                }
            }
            11 => self.change(bytes),
            12 => self.pass(Duration::from_millis(u64::from(bytes.byte()).pow(2) / 4)),
            13 => _ = self.run_to_deadline(),
            14 => {
                if let Some(packet) = self.one(bytes).and_then(|at| self.wire.get_mut(at)) {
                    packet.marked |= packet.capable;
                }
            }
            _ => self.shut(end, bytes.byte()),
        }
    }

    /// One of the packets on their way.
    fn one(&self, bytes: &mut Bytes<'_>) -> Option<usize> {
        (!self.wire.is_empty()).then(|| bytes.below(self.wire.len()))
    }

    /// A byte of a packet becomes another one: the checksum tells.
    fn change(&mut self, bytes: &mut Bytes<'_>) {
        let Some(at) = self.one(bytes) else { return };
        let packet = &mut self.wire[at];
        let (place, by) = (bytes.short() as usize % packet.bytes.len(), bytes.byte());
        // (Changed twice it may be right again.)
        if by != 0 && !packet.changed {
            packet.bytes[place] ^= by;
            packet.changed = true;
        }
    }

    fn write(&mut self, side: usize, len: usize, more: bool) {
        let now = self.now;
        let Some(end) = &mut self.ends[side] else { return };
        let len = len.min(WRITTEN_MAX - end.written);
        let data = bytes_at(ISS[side] + 1 + end.written, len, SALTS[side]);
        match end.conn.write(now, &[IoSlice::new(&data)], more, &mut |_| Some(TestTx::new(2048))) {
            Ok(n) => end.written += n,
            Err(Error::WouldBlock | Error::Pipe) => {}
            Err(_) => end.broken = true,
        }
    }

    /// What is read is what was written, from its beginning on.
    fn read(&mut self, side: usize, len: usize) {
        let now = self.now;
        let other_written = self.ends[1 - side].as_ref().map_or(0, |other| other.written);
        let Some(end) = &mut self.ends[side] else { return };
        let mut out = vec![0; len];
        match end.conn.read(now, &mut [IoSliceMut::new(&mut out)], false) {
            Ok(0) if len > 0 => end.ended = true,
            Ok(n) => {
                let expected = bytes_at(ISS[1 - side] + 1 + end.read, n, SALTS[1 - side]);
                assert!(out[..n] == expected, "{n} bytes from {} on are others than were written", end.read);
                end.read += n;
                assert!(end.read <= other_written, "more was read than was written");
            }
            Err(Error::WouldBlock) => {}
            Err(_) => end.broken = true,
        }
    }

    fn shut(&mut self, side: usize, how: u8) {
        let now = self.now;
        let Some(end) = &mut self.ends[side] else { return };
        match how % 8 {
            0..=5 => {
                end.is_shut = true;
                end.conn.shutdown_write(now);
            }
            6 => {
                (end.is_shut, end.broken) = (true, true);
                end.conn.orphan(now);
            }
            _ if how & 128 != 0 => {
                (end.is_shut, end.broken) = (true, true);
                end.conn.abort();
            }
            _ => end.conn.prune_out_of_order(),
        }
    }

    fn transmit(&mut self, side: usize, mut room: usize) {
        let now = self.now;
        let Some(end) = &mut self.ends[side] else { return };
        let wire = &mut self.wire;
        end.conn.poll_transmit(now, &mut |segment| {
            room = room.checked_sub(1).ok_or(SendError::Full)?;
            for bytes in packets(side, segment) {
                if wire.len() < WIRE_MAX {
                    wire.push(Packet { to: 1 - side, bytes, marked: false, capable: segment.capable, changed: false });
                }
            }
            Ok(())
        });
    }

    fn deliver_all(&mut self) {
        for packet in core::mem::take(&mut self.wire) {
            self.deliver(&packet);
        }
    }

    fn deliver(&mut self, packet: &Packet) {
        let mut sum = pseudo_header(1 - packet.to, packet.bytes.len());
        sum.add(&packet.bytes);
        assert_eq!(sum.is_good(), !packet.changed, "a checksum tells that a byte changed");
        if packet.changed {
            return;
        }
        let (header, len) = Header::parse(&packet.bytes).expect("what was emitted parses");
        let now = self.now;
        let payload = &packet.bytes[len..];
        let Some(end) = &mut self.ends[packet.to] else {
            if header.opens() {
                let opening = Opening { iss: ISS[1], timestamp_offset: 5 };
                self.ends[1] = Some(End::new(Connection::accept(now, &self.configs[1], &header, opening)));
            }
            return;
        };
        // As a host does that has no such connection any more.
        if end.conn.is_finished() {
            if !header.flags.contains(Flags::RST) && self.wire.len() < WIRE_MAX {
                let bytes = with_checksum(packet.to, reset_for(&header, payload.len()), &[]);
                self.wire.push(Packet { to: 1 - packet.to, bytes, marked: false, capable: false, changed: false });
            }
            return;
        }
        if end.conn.acknowledges_before(packet.marked, payload.len()) {
            self.transmit(packet.to, usize::MAX);
        }
        let Some(end) = &mut self.ends[packet.to] else { return };
        let (head, body) = payload.split_at(payload.len().min(190));
        let body = (!body.is_empty()).then(|| TestRx::new(body));
        let carriage = Carriage { segments: 1, marked: packet.marked };
        end.conn.on_coalesced(now, &header, RxPayload { head, frame: None, body }, carriage);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.timers();
    }

    fn timers(&mut self) {
        for end in self.ends.iter_mut().flatten() {
            if end.conn.deadline().is_some_and(|due| due <= self.now) {
                end.conn.on_timer(self.now);
                assert!(end.conn.deadline().is_none_or(|due| due > self.now), "a timer that ran is over");
            }
        }
    }

    fn run_to_deadline(&mut self) -> bool {
        let due = self.ends.iter().flatten().filter_map(|end| end.conn.deadline()).min();
        if let Some(due) = due {
            self.now = self.now.max(due);
            self.timers();
        }
        due.is_some()
    }

    /// From now on everything arrives, both read, and neither writes any more: all that was written is read, or the connection has ended.
    fn faults_end(&mut self) {
        for _ in 0..20_000 {
            let mut moved = false;
            for side in 0..2 {
                self.transmit(side, usize::MAX);
                moved |= !self.wire.is_empty();
                self.now += Duration::from_micros(50);
                self.deliver_all();
                let before = self.ends[side].as_ref().map(|end| end.read);
                for _ in 0..4 {
                    self.read(side, 60_000);
                }
                moved |= self.ends[side].as_ref().map(|end| end.read) != before;
                // (Whoever corked, or said that more follows, ends; it may have had to wait for the handshake.)
                let Some(end) = &mut self.ends[side] else { continue };
                if !end.is_shut && matches!(end.conn.state(), State::Established | State::CloseWait) {
                    end.is_shut = true;
                    end.conn.shutdown_write(self.now);
                    moved = true;
                }
                end.broken |= end.conn.take_error().is_some();
            }
            self.timers();
            if self.is_over() || !moved && !self.run_to_deadline() {
                break;
            }
        }
        assert!(self.is_over(), "neither ended nor complete: {}", self.story());
        let [Some(first), Some(second)] = &self.ends else { return };
        if !(first.broken || second.broken) {
            assert_eq!((first.read, second.read), (second.written, first.written), "all that was written: {}", self.story());
        }
    }

    fn is_over(&self) -> bool {
        let is_done = |end: &End| end.conn.state() == State::Closed || end.broken && end.conn.is_finished();
        let read_all = |end: &End| end.ended || end.broken;
        match &self.ends {
            [Some(first), Some(second)] => {
                // (Who has no more to say than its end, which is acknowledged, does not hear that the other one has died: RFC 9293 s3.5.1.)
                let is_half_open = |end: &End, peer: &End| end.conn.state() == State::FinWait2 && peer.broken && is_done(peer);
                let is_over = |end: &End, peer: &End| read_all(end) || is_done(end) || is_half_open(end, peer);
                is_over(first, second) && is_over(second, first)
            }
            [Some(first), None] => is_done(first),
            _ => true,
        }
    }

    fn story(&self) -> String {
        let of = |end: &End| {
            format!("{:?} {} read, {} written, ended {}, broken {}", end.conn.state(), end.read, end.written, end.ended, end.broken)
        };
        self.ends.iter().flatten().map(of).collect::<Vec<_>>().join("; ")
    }
}

/// The packets that a device makes of a segment.
fn packets(side: usize, segment: &Segment<'_, TestTx>) -> Vec<Vec<u8>> {
    let payload = payload_of(segment);
    let unit = segment.cut.map_or(usize::MAX, usize::from);
    let count = payload.len().div_ceil(unit).max(1);
    let piece = |index: usize| {
        let part = payload.chunks(unit).nth(index).unwrap_or_default();
        let mut header = Header { seq: segment.header.seq + index.saturating_mul(unit), ..segment.header };
        if index + 1 < count {
            header.flags -= Flags::PSH | Flags::FIN;
        }
        if index > 0 {
            header.flags -= Flags::CWR;
        }
        with_checksum(side, header, part)
    };
    (0..count).map(piece).collect()
}

fn with_checksum(side: usize, mut header: Header, payload: &[u8]) -> Vec<u8> {
    header.checksum = 0;
    let mut bytes = vec![0; header.header_len()];
    header.emit(&mut bytes);
    bytes.extend_from_slice(payload);
    let mut sum = pseudo_header(side, bytes.len());
    sum.add(&bytes);
    bytes[16..18].copy_from_slice(&sum.finish().to_be_bytes());
    bytes
}

fn pseudo_header(from: usize, len: usize) -> Checksum {
    let hosts = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
    Checksum::pseudo_header(hosts[from], hosts[1 - from], ipv4::PROTOCOL_TCP, len)
}
