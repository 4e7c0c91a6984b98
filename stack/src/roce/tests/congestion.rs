//! Congestion control: two adapters send to a third, by a switch whose way there is no wider than the way of each of them, and whose queue is short.

use core::time::Duration;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::pair::{Adapter, BASE, LATENCY};
use crate::roce::memory::Access;
use crate::roce::packet::Body;
use crate::roce::packet::datagram::{Addresses, Datagram, Path};
use crate::roce::psn::Psn;
use crate::roce::qp::{Modify, Mtu, Peer, QpConfig, Sending, Transport};
use crate::roce::work::{Data, SendOp, SendWr, Sge, Status};
use crate::roce::{Dcqcn, Flaw, Limits, Tuning};
use crate::time::Instant;
use crate::wire::ipv4;

/// 10 Gb/s, of each link.
const LINE_BPS: u64 = 10_000_000_000;
/// Bytes that the switch's queue has room for, and from which on it marks.
const QUEUE_MAX: usize = 200_000;
const MARKS_FROM: usize = 30_000;
/// Bytes of a work request, and how many are posted at once.
const CHUNK: u32 = 64 << 10;
const POSTED: u64 = 4;
/// The third adapter.
const SINK: usize = 2;

/// A queue pair that moves bytes to the sink: by writes of its own, or because the sink reads them.
struct Flow {
    /// The adapter that has the requester, and its queue pair there.
    by: usize,
    qp: u32,
    op: SendOp,
    lkey: u32,
    done: u64,
}

struct Net {
    now: Instant,
    hosts: [Adapter; 3],
    /// When the last bit of what a host sent has left.
    free_at: [Instant; 3],
    /// On the links: when it arrives, whether at the switch, and from whom or to whom.
    wire: VecDeque<(Instant, bool, usize, Vec<u8>)>,
    /// The queue before the sink: when each packet has left it.
    queue: VecDeque<(Instant, usize)>,
    flows: Vec<Flow>,
    dropped: usize,
    marked: usize,
    /// When a notification was sent, and to which queue pair of whom.
    notified: Vec<(Instant, Addresses, u32)>,
    cq: [u32; 3],
}

fn addresses(from: usize, to: usize) -> Addresses {
    let host = |host: usize| [10, 9, 0, 1 + host as u8].into();
    Addresses::V4 { src: host(from), dst: host(to) }
}

fn serialisation(len: usize) -> Duration {
    Duration::from_nanos((len as u64 + 38) * 8 * 1_000_000_000 / LINE_BPS)
}

impl Net {
    fn new(tuning: Tuning, reads: bool) -> Self {
        let mut hosts = [(); 3].map(|()| Adapter::new(Limits::default(), tuning));
        let cq = [0, 1, 2].map(|host: usize| hosts[host].create_cq(1024).unwrap());
        let mut flows = Vec::new();
        for sender in [0, 1] {
            let ends = [sender, SINK].map(|host: usize| {
                let pd = hosts[host].alloc_pd();
                let config = QpConfig {
                    transport: Transport::Rc,
                    pd,
                    send_cq: cq[host],
                    recv_cq: cq[host],
                    send_depth: 16,
                    recv_depth: 1,
                    sges_max: 1,
                    inline_max: 0,
                };
                let qp = hosts[host].create_qp(config).unwrap();
                let key = hosts[host].register(pd, BASE, vec![0; CHUNK as usize], Access::all()).unwrap();
                (host, qp, key)
            });
            for ([own, peer], psn) in [([ends[0], ends[1]], 5), ([ends[1], ends[0]], 9)] {
                let to = Peer {
                    path: Path::new(addresses(own.0, peer.0), 7),
                    mtu: Mtu::B4096,
                    dest_qp: peer.1,
                    rq_psn: Psn::new(14 - psn),
                    max_dest_rd_atomic: 8,
                    min_rnr_timer: 12,
                };
                let sending = Sending { sq_psn: Psn::new(psn), timeout: 14, max_rd_atomic: 8, ..Sending::default() };
                for step in [Modify::Init { access: Access::all(), qkey: 0 }, Modify::Rtr(to), Modify::Rts(sending)] {
                    hosts[own.0].modify_qp(Instant::ZERO, own.1, &step).unwrap();
                }
            }
            let [mine, sink] = ends;
            let (address, immediate) = (BASE, None);
            flows.push(if reads {
                Flow { by: SINK, qp: sink.1, op: SendOp::Read { address, rkey: mine.2 }, lkey: sink.2, done: 0 }
            } else {
                Flow { by: sender, qp: mine.1, op: SendOp::Write { address, rkey: sink.2, immediate }, lkey: mine.2, done: 0 }
            });
        }
        let mut net = Self {
            now: Instant::ZERO,
            hosts,
            free_at: [Instant::ZERO; 3],
            wire: VecDeque::new(),
            queue: VecDeque::new(),
            flows,
            dropped: 0,
            marked: 0,
            notified: Vec::new(),
            cq,
        };
        (0..2).for_each(|flow| (0..POSTED).for_each(|_| net.post(flow)));
        net
    }

    fn post(&mut self, flow: usize) {
        let Flow { by, qp, op, lkey, .. } = self.flows[flow];
        let sges = [Sge { address: BASE, len: CHUNK, lkey }];
        self.hosts[by].post_send(self.now, qp, &SendWr::new(flow as u64, op, Data::Gather(&sges))).unwrap();
    }

    fn put(&mut self, at: Instant, at_switch: bool, host: usize, bytes: Vec<u8>) {
        let place = self.wire.partition_point(|(other, ..)| *other <= at);
        self.wire.insert(place, (at, at_switch, host, bytes));
    }

    /// The switch's way to the sink: a queue that marks, and that is full at some time.
    fn enqueue(&mut self, mut bytes: Vec<u8>) {
        while self.queue.front().is_some_and(|(leaves, _)| *leaves <= self.now) {
            self.queue.pop_front();
        }
        let backlog: usize = self.queue.iter().map(|(_, len)| len).sum();
        if backlog + bytes.len() > QUEUE_MAX {
            self.dropped += 1;
            return;
        }
        // What is capable of ECN is marked.
        if backlog > MARKS_FROM && bytes[1] & 3 != 0 {
            self.marked += 1;
            let ip = ipv4::Header::parse(&bytes).unwrap().0;
            ipv4::Header { tos: ip.tos | 3, ..ip }.emit(&mut bytes, true);
        }
        let begins = self.queue.back().map_or(self.now, |(leaves, _)| *leaves);
        let leaves = begins + serialisation(bytes.len());
        self.queue.push_back((leaves, bytes.len()));
        self.put(leaves + LATENCY, false, SINK, bytes);
    }

    fn transmit(&mut self) {
        let mut out = vec![0; Adapter::PACKET_MAX];
        for host in 0..3 {
            while self.free_at[host] <= self.now {
                let Some(len) = self.hosts[host].poll_transmit(self.now, &mut out) else { break };
                self.free_at[host] = self.now + serialisation(len);
                let packet = Datagram::parse(&out[..len]).unwrap();
                if packet.packet.header.body == Body::CongestionNotification {
                    assert!(packet.packet.header.becn && packet.packet.payload.len() == 16 && packet.path.traffic_class == 48 << 2);
                    self.notified.push((self.now, packet.path.addresses, packet.packet.header.dest_qp));
                }
                self.put(self.free_at[host] + LATENCY, true, host, out[..len].to_vec());
            }
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.transmit();
            let timers = self.hosts.iter().filter_map(Adapter::deadline).filter(|at| *at > self.now);
            let links = self.free_at.iter().copied().filter(|at| *at > self.now);
            let next = self.wire.front().map(|(at, ..)| *at).into_iter().chain(timers).chain(links).min();
            let Some(next) = next.filter(|at| *at <= end) else { break };
            self.now = next;
            while self.wire.front().is_some_and(|(at, ..)| *at <= self.now) {
                let Some((_, at_switch, host, bytes)) = self.wire.pop_front() else { break };
                let to = usize::from(bytes[19]) - 1;
                match (at_switch, to) {
                    (true, SINK) => self.enqueue(bytes),
                    (true, _) => self.put(self.now + LATENCY, false, to, bytes),
                    (false, _) => self.hosts[host].on_packet(self.now, &bytes),
                }
            }
            for host in 0..3 {
                self.hosts[host].on_timer(self.now);
                while let Some(completion) = self.hosts[host].poll_cq(self.cq[host]) {
                    assert_eq!(completion.status, Status::Success);
                    self.flows[completion.id as usize].done += u64::from(CHUNK);
                    self.post(completion.id as usize);
                }
            }
        }
        self.now = end;
    }
}

fn tuning(dcqcn: Option<Dcqcn>, flaw: Flaw) -> Tuning {
    Tuning { window: 512, dcqcn, flaw, ..Tuning::default() }
}

/// Runs for a while, until rates are found, and then for as long as it counts. The two flows' shares of the link, in percent.
fn share(tuning: Tuning, reads: bool) -> (Net, [f64; 2]) {
    let mut net = Net::new(tuning, reads);
    net.run(Duration::from_millis(20));
    net.flows.iter_mut().for_each(|flow| flow.done = 0);
    let time = Duration::from_millis(30);
    net.run(time);
    let all = LINE_BPS as f64 / 8.0 * time.as_secs_f64();
    let shares = [0, 1].map(|flow: usize| net.flows[flow].done as f64 / all * 100.0);
    (net, shares)
}

/// Two senders share a bottleneck, and nothing is lost.
fn two_share(flaw: Flaw, reads: bool) {
    let (net, [a, b]) = share(tuning(Some(Dcqcn::new(LINE_BPS)), flaw), reads);
    assert!(net.dropped == 0, "{} lost, {a} and {b} percent", net.dropped);
    assert!(a + b > 80.0 && a.min(b) / a.max(b) > 0.5, "{a} and {b} percent");
    assert!(net.marked > 0 && !net.notified.is_empty());
    for (place, (at, to, qp)) in net.notified.iter().enumerate() {
        let last = net.notified[..place].iter().rev().find(|(_, other, number)| (other, number) == (to, qp));
        assert!(last.is_none_or(|(last, ..)| at.since(*last) >= Duration::from_micros(50)), "one notification for all marks within 50 us");
    }
}

#[test]
fn two_senders_share_a_bottleneck_without_loss() {
    two_share(Flaw::None, false);
}

#[test]
fn two_that_are_read_from_share_it_too() {
    two_share(Flaw::None, true);
}

#[test]
fn without_it_packets_are_lost() {
    for reads in [false, true] {
        let (net, shares) = share(tuning(None, Flaw::None), reads);
        assert!(net.dropped > 100, "{} lost, {shares:?} percent", net.dropped);
        assert!(net.marked == 0 && net.notified.is_empty(), "it is off: nothing is capable of ECN, and nobody is told");
    }
}

#[test]
fn flaws_are_caught() {
    for flaw in Flaw::OF_CONGESTION {
        let is_caught = [false, true].into_iter().any(|reads| catch_unwind(AssertUnwindSafe(|| two_share(flaw, reads))).is_err());
        assert!(is_caught, "{flaw:?}");
    }
}

/// Who is told by anybody but its peer does not slow down; and who does not control congestion is not told at all.
#[test]
fn strangers_slow_nobody_down() {
    let mut net = Net::new(tuning(Some(Dcqcn::new(LINE_BPS)), Flaw::None), false);
    let header = crate::roce::packet::Header {
        becn: true,
        ..crate::roce::packet::Header::new(Body::CongestionNotification, net.flows[0].qp, Psn::default())
    };
    let mut bytes = [0; 100];
    let path = |from: usize| Path::new(addresses(from, 0), 1);
    let len = path(1).emit_with(0, Default::default(), &header, 16, &mut bytes, |_| Some(())).unwrap();
    net.hosts[0].on_packet(net.now, &bytes[..len]);
    assert_eq!(net.hosts[0].dropped().congestion, 1);
    let len = path(SINK).emit_with(0, Default::default(), &header, 16, &mut bytes, |_| Some(())).unwrap();
    net.hosts[0].on_packet(net.now, &bytes[..len]);
    assert_eq!(net.hosts[0].dropped().congestion, 1, "its peer may");
    let mut off = Net::new(tuning(None, Flaw::None), false);
    off.hosts[0].on_packet(off.now, &bytes[..len]);
    assert_eq!(off.hosts[0].dropped().congestion, 1);
}
