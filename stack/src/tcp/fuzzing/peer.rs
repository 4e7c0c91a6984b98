//! A peer that is a program's: it knows the connection's numbers, and says about them what it likes.

use super::{Bytes, bytes_at, payload_of};
use crate::device::SendError;
use crate::tcp::test_util::{TestRx, TestTx};
use crate::tcp::{Carriage, Connection, RxPayload};
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, Options, SackBlock, SackBlocks, SeqNumber};

pub(super) type Conn = Connection<TestRx, TestTx>;

/// What a peer's bytes are salted with, and the program's own.
pub(super) const THEIRS: u32 = 0x5eed_0001;
pub(super) const OURS: u32 = 0x0bad_cafe;

/// What the peer's host knows.
pub(super) struct Peer {
    /// What its timestamps are ahead of the time.
    stamps: u32,
    /// The last timestamp that it got.
    echo: u32,
    /// What it will send first.
    pub(super) iss: SeqNumber,
    pub(super) ports: (u16, u16),
}

impl Peer {
    pub(super) fn new(bytes: &mut Bytes<'_>) -> Self {
        let iss = SeqNumber([0, 0xffff_fff0, 0x7fff_ff00, 12_345][bytes.below(4)]);
        Self { stamps: bytes.word(), echo: 0, iss, ports: (80, 40_000) }
    }

    pub(super) fn stamp(&self, now: Instant) -> u32 {
        self.stamps.wrapping_add(now.as_millis() as u32)
    }

    /// A SYN, which offers what the program says.
    pub(super) fn syn(&self, now: Instant, bytes: &mut Bytes<'_>) -> Header {
        let offers = bytes.byte();
        let options = Options {
            mss: (offers & 1 == 0).then(|| bytes.short()),
            window_scale: (offers & 2 == 0).then(|| bytes.byte()),
            sack_permitted: offers & 4 == 0,
            timestamps: (offers & 8 == 0).then(|| (self.stamp(now), self.echo)),
            ..Options::default()
        };
        let flags = Flags::SYN | if offers & 16 == 0 { Flags::empty() } else { Flags::from_bits_retain(0xc0) };
        let (src_port, dst_port) = self.ports;
        Header { src_port, dst_port, seq: self.iss, flags, window: bytes.short(), options, ..Header::default() }
    }

    /// A segment that goes on where the connection is: `len` bytes, and everything acknowledged.
    pub(super) fn next(&self, now: Instant, conn: &Conn) -> Header {
        let (_, snd_nxt, rcv_nxt, _) = conn.numbers();
        let (src_port, dst_port) = self.ports;
        let options = Options { timestamps: Some((self.stamp(now), self.echo)), ..Options::default() };
        Header { src_port, dst_port, seq: rcv_nxt, ack: snd_nxt, flags: Flags::ACK, window: 0xffff, options, ..Header::default() }
    }

    /// A segment near the connection's numbers, and how many bytes it has.
    pub(super) fn strange(&self, now: Instant, conn: &Conn, bytes: &mut Bytes<'_>) -> (Header, usize) {
        let (snd_una, snd_nxt, rcv_nxt, rcv_adv) = conn.numbers();
        let next = self.next(now, conn);
        let shape = bytes.byte();
        let off = |base: SeqNumber, by: u32| SeqNumber(base.0.wrapping_add(by));
        let seq = off([rcv_nxt, rcv_adv][usize::from(shape & 1)], bytes.near());
        let ack = off([snd_nxt, snd_una][usize::from(shape >> 1 & 1)], bytes.near());
        let flags = match shape >> 2 & 3 {
            0 | 1 => Flags::ACK,
            2 => Flags::ACK | Flags::PSH,
            _ => Flags::from_bits_retain(bytes.byte()),
        };
        let window = if shape & 16 == 0 { 0xffff } else { bytes.short() };
        let mut options = if shape & 32 == 0 { next.options } else { Options::default() };
        if shape & 64 != 0 {
            let stamps = (self.stamp(now).wrapping_add(bytes.near()), self.echo.wrapping_add(bytes.near()));
            options.timestamps = Some(stamps);
        }
        if shape & 128 != 0 {
            options.sack = sack_blocks(snd_una, conn.mss().into(), bytes);
        }
        let header = Header { seq, ack, flags, window, urgent: bytes.byte().into(), options, ..next };
        (header, bytes.len(4000))
    }

    /// Puts a segment before the connection: its payload is what the stream has there.
    pub(super) fn deliver(&mut self, now: Instant, conn: &mut Conn, header: &Header, len: usize, how: u8) {
        let mut wire = [0; 60];
        let header_len = header.emit(&mut wire);
        let (header, _) = Header::parse(&wire[..header_len]).expect("what was emitted parses");
        // (A SYN takes the first number, and its payload follows.)
        let first = if header.flags.contains(Flags::SYN) { header.seq + 1 } else { header.seq };
        let payload = bytes_at(first, len, THEIRS);
        let (head, body) = payload.split_at(match how & 3 {
            0 => len.min(190),
            1 => len,
            2 => 0,
            _ => len / 2,
        });
        let marked = how & 4 != 0;
        if conn.acknowledges_before(marked, len) {
            self.transmit(now, conn, usize::MAX);
        }
        let body = (!body.is_empty()).then(|| TestRx::new(body));
        let carriage = Carriage { segments: u16::from(how >> 3 & 3) + 1, marked };
        conn.on_coalesced(now, &header, RxPayload { head, frame: None, body }, carriage);
    }

    /// Takes what the connection has to send, so many segments at most, and looks at each.
    pub(super) fn transmit(&mut self, now: Instant, conn: &mut Conn, mut room: usize) {
        let synchronized = conn.state().is_synchronized();
        let (_, _, rcv_nxt, rcv_adv) = conn.numbers();
        let mss = usize::from(conn.mss());
        let mut stamps = None;
        conn.poll_transmit(now, &mut |segment| {
            room = room.checked_sub(1).ok_or(SendError::Full)?;
            let header = &segment.header;
            let mut wire = [0; 60];
            let len = header.emit(&mut wire);
            assert_eq!(Header::parse(&wire[..len]), Ok((*header, len)), "what is sent can be read");
            let payload = payload_of(segment);
            assert_eq!(payload, bytes_at(header.seq, payload.len(), OURS), "each byte in its place");
            let longest = segment.cut.map_or(segment.payload_len, usize::from);
            assert!(longest <= mss.max(1), "{longest} bytes in a segment, of at most {mss}");
            if synchronized && header.flags.contains(Flags::ACK) && !header.flags.contains(Flags::RST) {
                assert_eq!(header.ack, rcv_nxt, "what came is acknowledged");
                assert!(header.options.sack.as_slice().iter().all(|block| block.start.lt(block.end)), "{:?}", header.options.sack);
            }
            stamps = header.options.timestamps.or(stamps);
            Ok(())
        });
        let edge = conn.numbers().3;
        assert!(!synchronized || edge.ge(rcv_adv), "a window's edge never moves back: {rcv_adv:?}, {edge:?}");
        if let Some((value, _)) = stamps {
            self.echo = value;
        }
    }
}

fn sack_blocks(una: SeqNumber, mss: usize, bytes: &mut Bytes<'_>) -> SackBlocks {
    let mut blocks = SackBlocks::default();
    let count = bytes.byte();
    for _ in 0..count % 4 + 1 {
        let (unit, start, len) = match bytes.byte() % 4 {
            0 => (mss.max(1), usize::from(bytes.byte()), usize::from(bytes.byte() % 8)),
            1 => (1, usize::from(bytes.byte()), usize::from(bytes.byte())),
            2 => (1, usize::from(bytes.short()), usize::from(bytes.short())),
            _ => (1, bytes.near() as usize, bytes.near() as usize),
        };
        let start = una + unit.wrapping_mul(start);
        blocks.push(SackBlock { start, end: start + unit.wrapping_mul(len) });
    }
    blocks
}
