//! Two adapters, a wire with faults on demand, and virtual time.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::roce::memory::{Access, Pd};
use crate::roce::packet::datagram::{Addresses, Datagram, Path};
use crate::roce::packet::{Body, Header};
use crate::roce::psn::Psn;
use crate::roce::qp::{Modify, Mtu, Peer, QpConfig, Sending, State, Transport};
use crate::roce::work::{Completion, Data, PostError, SendOp, SendWr, Sge, Status};
use crate::roce::{Hca, Limits, Tuning};
use crate::time::Instant;

pub(super) type Adapter = Hca<Vec<u8>>;

pub(super) const US: Duration = Duration::from_micros(1);
/// One way.
pub(super) const LATENCY: Duration = Duration::from_micros(5);
/// The first byte's address in both ends' regions.
pub(super) const BASE: u64 = 0x7f00_0000_0000;
pub(super) const REGION: usize = 64 << 10;
/// Inline bytes of a request.
pub(super) const INLINE_MAX: usize = 64;

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    A,
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

/// What both ends are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) mtu: Mtu,
    pub(super) v6: bool,
    pub(super) tuning: Tuning,
    pub(super) sending: Sending,
    pub(super) max_dest_rd_atomic: u8,
    pub(super) min_rnr_timer: u8,
    pub(super) access: Access,
    pub(super) depth: usize,
    pub(super) cq_depth: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mtu: Mtu::B1024,
            v6: false,
            tuning: Tuning::default(),
            sending: Sending { timeout: 10, max_rd_atomic: 4, ..Sending::default() },
            max_dest_rd_atomic: 4,
            min_rnr_timer: 12,
            access: Access::all(),
            depth: 64,
            cq_depth: 256,
        }
    }
}

/// One end.
pub(super) struct End {
    pub(super) hca: Adapter,
    pub(super) pd: Pd,
    pub(super) cq: u32,
    config: QpConfig,
    pub(super) qp: u32,
    /// The key of the one region.
    pub(super) key: u32,
}

/// A packet on the wire.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) from: Side,
    pub(super) bytes: Vec<u8>,
    pub(super) sent: Instant,
}

impl Packet {
    pub(super) fn header(&self) -> Header {
        Datagram::parse(&self.bytes).expect("what an adapter sends parses").packet.header
    }

    pub(super) fn body(&self) -> Body {
        self.header().body
    }

    pub(super) fn is_response(&self) -> bool {
        self.body().is_response()
    }
}

/// Decides what happens to a packet: the delays after which it arrives, and as which bytes.
pub(super) type Fate = Box<dyn FnMut(&Packet) -> Vec<(Duration, Vec<u8>)>>;

pub(super) struct Pair {
    pub(super) now: Instant,
    pub(super) ends: [End; 2],
    pub(super) fate: Fate,
    wire: VecDeque<(Instant, Side, Vec<u8>)>,
    /// All that was sent, lost or not, since [`Pair::sent`] was last called.
    log: Vec<Packet>,
    pub(super) keep_log: bool,
    /// What came to whom, in order, if it is asked for.
    pub(super) arrivals: Option<Vec<(Side, Vec<u8>)>>,
    /// Answers go out after each packet, and not only after all that came at one time.
    pub(super) eager: bool,
    /// For how long acknowledgments wait that may, and since when they do.
    pub(super) late: Option<Duration>,
    owing_since: [Option<Instant>; 2],
}

pub(super) fn psn(side: Side) -> Psn {
    // Both wrap soon.
    Psn::new(if side == A { 0xff_fff0 } else { 0xff_fffe })
}

pub(super) fn path(from: Side, v6: bool) -> Path {
    let host = |side: Side| if side == A { 1u8 } else { 2 };
    let (src, dst) = (host(from), host(from.peer()));
    let v4 = |host| Ipv4Addr::new(10, 9, 0, host);
    let addresses = if v6 {
        let v6 = |host: u8| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host));
        Addresses::V6 { src: v6(src), dst: v6(dst) }
    } else {
        Addresses::V4 { src: v4(src), dst: v4(dst) }
    };
    Path::new(addresses, 0x11)
}

impl End {
    fn new(options: &Options, transport: Transport) -> Self {
        let mut hca = Adapter::new(Limits::default(), options.tuning);
        let pd = hca.alloc_pd();
        let cq = hca.create_cq(options.cq_depth).unwrap();
        let config = QpConfig {
            transport,
            pd,
            send_cq: cq,
            recv_cq: cq,
            send_depth: options.depth,
            recv_depth: options.depth,
            sges_max: 4,
            inline_max: INLINE_MAX,
        };
        let qp = hca.create_qp(config).unwrap();
        let key = hca.register(pd, BASE, vec![0; REGION], Access::all()).unwrap();
        Self { hca, pd, cq, config, qp, key }
    }

    pub(super) fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge { address: BASE + offset, len, lkey: self.key }
    }

    pub(super) fn bytes(&mut self, offset: usize, len: usize) -> &mut [u8] {
        &mut self.hca.memory_mut(self.key).unwrap()[offset..offset + len]
    }

    pub(super) fn poll(&mut self) -> Vec<Completion> {
        let cq = self.cq;
        core::iter::from_fn(|| self.hca.poll_cq(cq)).collect()
    }

    pub(super) fn state(&self) -> State {
        self.hca.qp_state(self.qp).unwrap()
    }
}

impl Pair {
    /// Both connected and ready to send.
    pub(super) fn new(options: &Options) -> Self {
        Self::of(options, Transport::Rc)
    }

    /// The same, by this transport.
    pub(super) fn of(options: &Options, transport: Transport) -> Self {
        let mut pair = Self::unconnected(options, transport);
        for side in [A, B] {
            pair.connect(side, options);
        }
        pair
    }

    pub(super) fn plain() -> Self {
        Self::new(&Options::default())
    }

    /// Both in RESET.
    pub(super) fn unconnected(options: &Options, transport: Transport) -> Self {
        let end = || End::new(options, transport);
        Self {
            now: Instant::from_nanos(1_000_000),
            ends: [end(), end()],
            fate: Box::new(|packet| vec![(LATENCY, packet.bytes.clone())]),
            wire: VecDeque::new(),
            log: Vec::new(),
            keep_log: true,
            arrivals: None,
            eager: true,
            late: None,
            owing_since: [None; 2],
        }
    }

    pub(super) fn connect(&mut self, side: Side, options: &Options) {
        let peer = Peer {
            path: path(side, options.v6),
            mtu: options.mtu,
            dest_qp: self.end(side.peer()).qp,
            rq_psn: psn(side.peer()),
            max_dest_rd_atomic: options.max_dest_rd_atomic,
            min_rnr_timer: options.min_rnr_timer,
        };
        let sending = Sending { sq_psn: psn(side), ..options.sending };
        for modify in [Modify::Init { access: options.access, qkey: 0 }, Modify::Rtr(peer), Modify::Rts(sending)] {
            self.modify(side, &modify).unwrap();
        }
    }

    /// One more queue pair at each end, connected with each other; their number, which is the same at both.
    pub(super) fn add_qp(&mut self, options: &Options) -> u32 {
        let first = [self.end(A).qp, self.end(B).qp];
        for end in &mut self.ends {
            let config = QpConfig { transport: Transport::Rc, ..end.config };
            end.qp = end.hca.create_qp(config).unwrap();
        }
        for side in [A, B] {
            self.connect(side, options);
        }
        let added = self.end(A).qp;
        assert_eq!(added, self.end(B).qp);
        self.end(A).qp = first[0];
        self.end(B).qp = first[1];
        added
    }

    pub(super) fn modify(&mut self, side: Side, modify: &Modify) -> Result<(), crate::roce::qp::ModifyError> {
        let (now, qp) = (self.now, self.end(side).qp);
        self.end(side).hca.modify_qp(now, qp, modify)
    }

    pub(super) fn end(&mut self, side: Side) -> &mut End {
        &mut self.ends[side as usize]
    }

    /// Loses every packet that `lost` names; the others arrive.
    pub(super) fn lose(&mut self, mut lost: impl FnMut(&Packet) -> bool + 'static) {
        self.fate = Box::new(move |packet| if lost(packet) { vec![] } else { vec![(LATENCY, packet.bytes.clone())] });
    }

    /// Loses the `nth` packets of those that `which` names, counted from 1.
    pub(super) fn lose_nth(&mut self, nth: &'static [usize], which: impl Fn(&Packet) -> bool + 'static) {
        let mut count = 0;
        self.lose(move |packet| {
            count += usize::from(which(packet));
            which(packet) && nth.contains(&count)
        });
    }

    pub(super) fn post(&mut self, side: Side, wr: &SendWr<'_>) -> Result<(), PostError> {
        let (now, qp) = (self.now, self.end(side).qp);
        self.end(side).hca.post_send(now, qp, wr)
    }

    /// Posts an operation with `len` bytes of the region from `offset` on.
    pub(super) fn post_op(&mut self, side: Side, id: u64, op: SendOp, offset: u64, len: u32) {
        let sge = self.end(side).sge(offset, len);
        self.post(side, &SendWr::new(id, op, Data::Gather(&[sge]))).unwrap();
    }

    pub(super) fn post_recv(&mut self, side: Side, id: u64, offset: u64, len: u32) {
        let (now, qp, sge) = (self.now, self.end(side).qp, self.end(side).sge(offset, len));
        self.end(side).hca.post_recv(now, qp, id, &[sge]).unwrap();
    }

    /// The operations, towards the region of `side`'s peer.
    pub(super) fn write(&mut self, side: Side, offset: u64, immediate: Option<u32>) -> SendOp {
        SendOp::Write { address: BASE + offset, rkey: self.end(side.peer()).key, immediate }
    }

    pub(super) fn read(&mut self, side: Side, offset: u64) -> SendOp {
        SendOp::Read { address: BASE + offset, rkey: self.end(side.peer()).key }
    }

    pub(super) fn fetch_add(&mut self, side: Side, offset: u64, add: u64) -> SendOp {
        SendOp::FetchAdd { address: BASE + offset, rkey: self.end(side.peer()).key, add }
    }

    /// Whether all that an end has to send may wait, and does.
    fn waits(&mut self, side: Side) -> bool {
        let (hca, since) = (&self.ends[side as usize].hca, &mut self.owing_since[side as usize]);
        let Some(late) = self.late.filter(|_| hca.may_transmit() && !hca.is_urgent()) else {
            *since = None;
            return false;
        };
        if *since.get_or_insert(self.now) + late > self.now {
            return true;
        }
        *since = None;
        false
    }

    /// Sends what both ends want to send.
    pub(super) fn transmit(&mut self) {
        let mut out = [0; Adapter::PACKET_MAX];
        for side in [A, B] {
            if self.waits(side) {
                continue;
            }
            while let Some(len) = self.ends[side as usize].hca.poll_transmit(self.now, &mut out) {
                let packet = Packet { from: side, bytes: out[..len].to_vec(), sent: self.now };
                for (delay, bytes) in (self.fate)(&packet) {
                    let at = self.now + delay;
                    let place = self.wire.partition_point(|(other, ..)| *other <= at);
                    self.wire.insert(place, (at, side.peer(), bytes));
                }
                if self.keep_log {
                    self.log.push(packet);
                }
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        let timers = self.ends.iter().filter_map(|end| end.hca.deadline());
        let late = self.owing_since.iter().filter_map(|since| Some((*since)? + self.late?));
        self.wire.front().map(|(at, ..)| *at).into_iter().chain(timers).chain(late).min()
    }

    /// Goes on until `done`, at most until `end`. Whether it was done.
    pub(super) fn run_until(&mut self, end: Instant, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        loop {
            self.transmit();
            if done(self) {
                return true;
            }
            // What `done` posted is sent before time goes on.
            self.transmit();
            let Some(next) = self.next().filter(|next| *next <= end) else {
                self.now = end;
                return false;
            };
            self.now = self.now.max(next);
            while self.wire.front().is_some_and(|(at, ..)| *at <= self.now) {
                let Some((_, to, bytes)) = self.wire.pop_front() else { break };
                let now = self.now;
                self.end(to).hca.on_packet(now, &bytes);
                self.arrivals.iter_mut().for_each(|arrivals| arrivals.push((to, bytes.clone())));
                if self.eager {
                    self.transmit();
                }
            }
            for end in &mut self.ends {
                end.hca.on_timer(self.now);
                assert!(end.hca.deadline().is_none_or(|at| at > self.now), "timers that ran are over");
            }
        }
    }

    /// Lets this much time pass, with all that happens in it.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.run_until(end, |_| false);
    }

    /// Lets everything happen that is under way, however long it takes (an hour at most); then nothing is.
    pub(super) fn settle(&mut self) {
        let end = self.now + Duration::from_secs(3600);
        self.run_until(end, |pair| pair.next().is_none());
        assert!(self.next().is_none(), "the two never stop talking");
    }

    /// The packets that `side` sent since the last call.
    pub(super) fn sent(&mut self, side: Side) -> Vec<Packet> {
        let (mine, rest) = core::mem::take(&mut self.log).into_iter().partition(|packet| packet.from == side);
        self.log = rest;
        mine
    }

    /// The completions of `side`, all of which are successes: their numbers.
    pub(super) fn successes(&mut self, side: Side) -> Vec<u64> {
        let completions = self.end(side).poll();
        assert!(completions.iter().all(|c| c.status == Status::Success), "{completions:?}");
        completions.iter().map(|c| c.id).collect()
    }

    /// The completions of `side`: number and status.
    pub(super) fn statuses(&mut self, side: Side) -> Vec<(u64, Status)> {
        self.end(side).poll().iter().map(|c| (c.id, c.status)).collect()
    }

    /// Puts bytes before `side` as if they had come from the wire.
    pub(super) fn deliver(&mut self, side: Side, bytes: &[u8]) {
        let now = self.now;
        self.end(side).hca.on_packet(now, bytes);
    }
}

/// Bytes that tell where they are.
pub(super) fn pattern(seed: u32, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_add(seed).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}
