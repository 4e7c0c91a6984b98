//! One connection, whose program and whose peer do what the input says.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};

use super::peer::{Conn, OURS, Peer, THEIRS};
use super::{ALGORITHMS, Bytes, bytes_at, config};
use crate::error::Error;
use crate::tcp::test_util::TestTx;
use crate::tcp::{Config, Connection, Decision, Lent, Opening, Snapshot, State};
use crate::time::Instant;
use crate::wire::tcp::{Flags, Header, SeqNumber};

/// No more steps than this, so that none of them is for ever.
const STEPS_MAX: usize = 600;

/// The most that may wait for a reader beyond the limit: the window is told in units, and goes back by none of them.
const SLACK: usize = 2 << 14;

pub(crate) fn connection(input: &[u8]) {
    World::after(input).take_all();
}

/// The connection as it is after the program `input`.
pub(super) fn connection_after(input: &[u8]) -> Conn {
    World::after(input).conn
}

struct World {
    now: Instant,
    config: Config,
    peer: Peer,
    conn: Conn,
    /// What was written ends here.
    written: SeqNumber,
    /// What was read ends here, once there is a stream.
    read: Option<SeqNumber>,
    /// Pieces that the program has borrowed, in bytes.
    lent: usize,
    /// The most that ever could wait for the reader.
    limit_max: usize,
    /// The program looked at segments before its reader had them, and may have kept some from it.
    filters: bool,
}

impl World {
    fn after(input: &[u8]) -> Self {
        let mut bytes = Bytes::new(input);
        let mut world = Self::new(&mut bytes);
        for _ in 0..STEPS_MAX {
            if bytes.is_empty() || world.conn.is_finished() {
                break;
            }
            world.step(&mut bytes);
            world.check();
        }
        world
    }

    fn new(bytes: &mut Bytes<'_>) -> Self {
        let now = Instant::from_nanos(5_000_000_000);
        let config = config(bytes);
        let mut peer = Peer::new(bytes);
        let opening = Opening { iss: SeqNumber([1, 0xffff_ff00, 0x7fff_ff00][bytes.below(3)]), timestamp_offset: bytes.word() };
        let how = bytes.byte();
        let syn = peer.syn(now, bytes);
        let mut conn = if how & 1 == 0 {
            Connection::accept(now, &config, &syn, opening)
        } else {
            Connection::connect(now, &config, peer.ports.1, peer.ports.0, opening)
        };
        // Most inputs are to get past the handshake.
        if how & 6 != 0 {
            peer.transmit(now, &mut conn, usize::MAX);
            let answer = match how & 1 {
                0 => Header { seq: peer.iss + 1, options: Default::default(), ..peer.next(now, &conn) },
                _ => Header { flags: syn.flags | Flags::ACK, ack: opening.iss + 1, ..syn },
            };
            let options = if how & 1 == 0 { peer.next(now, &conn).options } else { answer.options };
            peer.deliver(now, &mut conn, &Header { options, ..answer }, 0, 0);
        }
        let limit_max = conn.receive_limit();
        Self { now, config, peer, conn, written: opening.iss + 1, read: None, lent: 0, limit_max, filters: false }
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.byte() % 24 {
            0..=2 => self.write(bytes),
            3 | 4 => self.read(bytes),
            5 | 6 => self.peer.transmit(self.now, &mut self.conn, usize::MAX),
            7 => self.peer.transmit(self.now, &mut self.conn, bytes.below(4)),
            8 | 9 => self.pass(bytes),
            10 => self.run_to_deadline(),
            11..=13 => {
                let (header, len) = self.peer.strange(self.now, &self.conn, bytes);
                self.peer.deliver(self.now, &mut self.conn, &header, len, bytes.byte());
            }
            14 | 15 => {
                let header = self.peer.next(self.now, &self.conn);
                let how = bytes.byte();
                self.peer.deliver(self.now, &mut self.conn, &header, bytes.len(3000), how);
            }
            16 => {
                let header = self.peer.next(self.now, &self.conn);
                let header = Header { flags: Flags::ACK | Flags::FIN, ..header };
                self.peer.deliver(self.now, &mut self.conn, &header, bytes.len(200), 0);
            }
            17 => self.configure(bytes),
            18 => self.lend(bytes),
            19 => self.move_elsewhere(bytes.byte()),
            20 => self.path(bytes),
            21 => self.filter(bytes),
            22 => self.end(bytes),
            _ => self.conn.prune_out_of_order(),
        }
        if self.read.is_none() && self.conn.state().is_synchronized() {
            let (_, _, rcv_nxt, _) = self.conn.numbers();
            let fin = usize::from(self.conn.has_peer_ended());
            self.read = Some(rcv_nxt - (self.conn.available() + fin));
        }
    }

    fn check(&mut self) {
        self.conn.check();
        self.limit_max = self.limit_max.max(self.conn.receive_limit());
        let held = self.conn.received_and_held();
        let most = self.limit_max + self.limit_max / 2 + SLACK + 65_535;
        assert!(held <= most, "{held} bytes are kept, of {most}");
        let queued = self.conn.send_queue();
        assert!(queued <= 2 * self.conn.cwnd() + (8 << 20), "{queued} bytes are queued");
        // What can be read now can be read.
        let _ = (self.conn.readiness(), self.conn.take_edges(), self.conn.details(self.now), self.conn.take_sooner_deadline());
    }

    fn write(&mut self, bytes: &mut Bytes<'_>) {
        let how = bytes.byte();
        let data = bytes_at(self.written, bytes.len(20_000), OURS);
        let mut buffers = if how & 0x30 == 0x30 { 1 } else { usize::MAX };
        let size = [2048, 300, 9000, 1 << 16][usize::from(how & 3)];
        let (first, second) = data.split_at(data.len() / (1 + usize::from(how >> 6)));
        let wrote = self.conn.write(self.now, &[IoSlice::new(first), IoSlice::new(second)], how & 4 != 0, &mut |_| {
            buffers = buffers.checked_sub(1)?;
            Some(TestTx::new(size))
        });
        if let Ok(n) = wrote {
            assert!(n <= data.len());
            self.written += n;
        }
    }

    fn read(&mut self, bytes: &mut Bytes<'_>) {
        let how = bytes.byte();
        let mut out = vec![0; bytes.len(70_000)];
        let is_peek = how & 1 == 1;
        let first = if how & 2 == 0 { 0 } else { usize::from(how).min(out.len()) };
        let (first, second) = out.split_at_mut(first);
        let n = self.conn.read(self.now, &mut [IoSliceMut::new(first), IoSliceMut::new(second)], is_peek).unwrap_or(0);
        self.got(&out[..n], !is_peek);
        let _ = self.conn.arrival(if is_peek { n } else { 0 });
    }

    /// The reader has these bytes: they are the stream's next ones.
    fn got(&mut self, got: &[u8], takes: bool) {
        let Some(read) = &mut self.read else {
            assert!(got.is_empty(), "bytes of no stream");
            return;
        };
        // (What a filter dropped nobody reads.)
        if !self.filters {
            assert!(got == bytes_at(*read, got.len(), THEIRS), "{} bytes are not the stream's", got.len());
        }
        if takes {
            *read += got.len();
        }
    }

    fn pass(&mut self, bytes: &mut Bytes<'_>) {
        let time = match bytes.byte() {
            ms @ 0..=199 => Duration::from_millis(ms.into()),
            seconds => Duration::from_secs(u64::from(seconds - 199).pow(2)),
        };
        self.now += time;
        if self.conn.deadline().is_some_and(|due| due <= self.now) {
            self.on_timer();
        }
    }

    fn run_to_deadline(&mut self) {
        if let Some(due) = self.conn.deadline() {
            self.now = self.now.max(due);
            self.on_timer();
        }
    }

    fn on_timer(&mut self) {
        self.conn.on_timer(self.now);
        assert!(self.conn.deadline().is_none_or(|due| due > self.now), "a timer that ran is over: {:?}", self.conn.state());
    }

    fn configure(&mut self, bytes: &mut Bytes<'_>) {
        let (which, value) = (bytes.byte() % 12, bytes.byte());
        let is = value & 1 == 1;
        self.conn.configure(self.now, |config| match which {
            0 => config.nodelay = is,
            1 => config.cork = is,
            2 => config.quickack = is,
            3 => config.keepalive = is.then(Default::default),
            4 => config.user_timeout = is.then(|| Duration::from_millis(u64::from(value) * 50)),
            5 => config.rcvbuf = is.then_some(usize::from(value) << 8),
            6 => config.sndbuf = is.then_some(usize::from(value) << 8),
            7 => config.congestion = ALGORITHMS[usize::from(value) % 4],
            8 => config.mss_user = is.then_some(u16::from(value) << 3),
            9 => config.arrival_times = is,
            10 => config.urgent_waits = is,
            _ => config.delayed_ack = Duration::from_millis(value.into()),
        });
        self.limit_max = self.limit_max.max(self.conn.receive_limit());
    }

    fn lend(&mut self, bytes: &mut Bytes<'_>) {
        let how = bytes.byte();
        if how & 1 == 1 {
            let back = bytes.len(self.lent);
            self.lent -= back;
            self.conn.give_back(self.now, back);
            return;
        }
        let lent = self.conn.lend(|buffer| if how & 2 == 0 { usize::MAX } else { crate::device::RxBuffer::len(buffer).min(how.into()) });
        if let Ok(Some(piece)) = lent {
            let got = copied(&piece);
            self.lent += got.len();
            self.got(&got, true);
        }
    }

    /// Another process takes the connection over.
    fn move_elsewhere(&mut self, how: u8) {
        let Some(snapshot) = self.conn.snapshot() else { return };
        let snapshot = Snapshot::from_bytes(&snapshot.to_bytes()).expect("what was written can be read");
        let mut alloc = |len: usize| Some(TestTx::new(len.clamp(1, 1 << 16)));
        let (lends, ports) = (self.lent, (self.conn.local_port(), self.conn.remote_port()));
        let moved = Connection::resume(self.now, &self.config, ports, &snapshot, &mut alloc);
        let mut moved: Conn = moved.expect("there are buffers");
        assert_eq!(lends, 0, "what is lent does not move");
        let (una, nxt, rcv_nxt, _) = self.conn.numbers();
        let (other_una, other_nxt, other_rcv, _) = moved.numbers();
        assert_eq!((una, nxt, rcv_nxt), (other_una, other_nxt, other_rcv));
        if how & 1 == 1 {
            moved.go_on_elsewhere(self.now);
        }
        self.conn = moved;
    }

    fn path(&mut self, bytes: &mut Bytes<'_>) {
        let (una, ..) = self.conn.numbers();
        let which = bytes.byte();
        let seq = SeqNumber(una.0.wrapping_add(bytes.near()));
        match which % 6 {
            0 => self.conn.set_path_mtu(self.now, bytes.short()),
            1 => self.conn.on_packet_too_big(self.now, seq, bytes.short()),
            2 => self.conn.on_unreachable(seq, which & 128 != 0),
            3 => self.conn.on_host_unreachable(),
            4 => self.conn.on_link_up(),
            _ => _ = self.conn.believes_path_mtu(seq, bytes.short(), bytes.short()),
        }
    }

    fn filter(&mut self, bytes: &mut Bytes<'_>) {
        let how = bytes.byte();
        if how.is_multiple_of(4) {
            let on = how & 4 != 0;
            self.filters |= on;
            self.conn.set_recv_filter(on);
        }
        if self.conn.candidate().is_some() {
            let decision = [Decision::Admit, Decision::Drop, Decision::Hold][usize::from(how >> 3) % 3];
            let len = self.conn.decide(self.now, decision);
            if decision == Decision::Hold {
                self.lent += len.unwrap_or(0);
            }
        }
    }

    /// The program, or its host, has enough.
    fn end(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.byte() % 16 {
            0..=4 => self.conn.shutdown_write(self.now),
            5 => self.conn.shutdown_read(),
            6 | 7 => self.conn.orphan(self.now),
            8 => self.conn.abort(),
            9 => self.conn.peer_died(false),
            10 => self.conn.peer_died(true),
            11 => self.conn.go_on_elsewhere(self.now),
            12 => self.conn.peer_gone(),
            13 => _ = self.conn.accepts_new_syn(&self.peer.syn(self.now, bytes)),
            14 => _ = self.conn.take_error(),
            _ => self.conn.lend_from_now_on(),
        }
    }

    /// Whatever waits is the stream's, to its end.
    fn take_all(&mut self) {
        if self.conn.state() == State::Closed {
            return;
        }
        let mut out = vec![0; 1 << 16];
        for _ in 0..1000 {
            match self.conn.read(self.now, &mut [IoSliceMut::new(&mut out)], false) {
                Ok(0) | Err(Error::WouldBlock) => return,
                Ok(n) => self.got(&out[..n], true),
                Err(_) => return,
            }
        }
        panic!("a queue without an end");
    }
}

fn copied(piece: &Lent<crate::tcp::test_util::TestRx>) -> Vec<u8> {
    match piece {
        Lent::Copied(copy) => copy.clone(),
        Lent::Buffer(buffer) => {
            let mut copy = vec![0; crate::device::RxBuffer::len(buffer)];
            crate::device::RxBuffer::copy_to(buffer, 0, &mut copy);
            copy
        }
    }
}
