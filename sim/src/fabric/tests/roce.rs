//! RoCE's congestion control on the fabric: two adapters write to a third, whose link is as wide as each of theirs.

use std::collections::VecDeque;

use ringway_stack::roce::memory::Access;
use ringway_stack::roce::packet::datagram::{Addresses, Path};
use ringway_stack::roce::psn::Psn;
use ringway_stack::roce::qp::{Modify, Mtu, Peer, QpConfig, Sending, Transport};
use ringway_stack::roce::work::{Data, SendOp, SendWr, Sge, Status};
use ringway_stack::roce::{Dcqcn, Hca, Limits, Tuning};

use super::*;

type Adapter = Hca<Vec<u8>>;

const SINK: usize = 2;
/// Bytes of a write, and how many are posted at once.
const CHUNK: u32 = 64 << 10;
const POSTED: u64 = 4;
const BASE: u64 = 1 << 40;
const ETHERNET: usize = 14;

struct Net {
    now: Instant,
    fabric: Fabric,
    hosts: Vec<Adapter>,
    cqs: Vec<u32>,
    /// When a host's link is free.
    free_at: [Instant; 3],
    /// When it arrives, whether at the switch, and from whom or to whom.
    wire: VecDeque<(Instant, bool, usize, Frame)>,
    /// Of both senders: what a write is, and how many bytes are written.
    writes: Vec<(u32, SendOp, u32, u64)>,
    full: usize,
}

fn mac(host: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, 1 + host as u8])
}

fn path(from: usize, to: usize) -> Path {
    let [src, dst] = [from, to].map(|host| [10, 0, 0, 1 + host as u8].into());
    Path::new(Addresses::V4 { src, dst }, 1)
}

impl Net {
    fn new(dcqcn: Option<Dcqcn>) -> Self {
        let tuning = Tuning { window: 512, dcqcn, ..Tuning::default() };
        let mut hosts: Vec<Adapter> = (0..3).map(|_| Adapter::new(Limits::default(), tuning)).collect();
        let cqs: Vec<u32> = hosts.iter_mut().map(|hca| hca.create_cq(256).unwrap()).collect();
        let link = LinkConfig { queue_bytes_max: 200_000, mark_bytes: Some(30_000), ..LinkConfig::default() };
        let mut fabric = Fabric::default();
        for host in 0..3 {
            fabric.attach(1, mac(host), link);
        }
        let mut writes = Vec::new();
        for sender in [0, 1] {
            let [mine, sink] = [sender, SINK].map(|host: usize| {
                let hca = &mut hosts[host];
                let pd = hca.alloc_pd();
                let (send_cq, recv_cq, transport) = (cqs[host], cqs[host], Transport::Rc);
                let config = QpConfig { transport, pd, send_cq, recv_cq, send_depth: 8, recv_depth: 1, sges_max: 1, inline_max: 0 };
                (host, hca.create_qp(config).unwrap(), hca.register(pd, BASE, vec![0; CHUNK as usize], Access::all()).unwrap())
            });
            for (own, peer) in [(mine, sink), (sink, mine)] {
                let peer = Peer {
                    path: path(own.0, peer.0),
                    mtu: Mtu::B4096,
                    dest_qp: peer.1,
                    rq_psn: Psn::new(7),
                    max_dest_rd_atomic: 1,
                    min_rnr_timer: 12,
                };
                for step in [
                    Modify::Init { access: Access::all(), qkey: 0 },
                    Modify::Rtr(peer),
                    Modify::Rts(Sending { sq_psn: Psn::new(7), ..Sending::default() }),
                ] {
                    hosts[own.0].modify_qp(Instant::ZERO, own.1, &step).unwrap();
                }
            }
            writes.push((mine.1, SendOp::Write { address: BASE, rkey: sink.2, immediate: None }, mine.2, 0));
        }
        let mut net = Self { now: Instant::ZERO, fabric, hosts, cqs, free_at: [Instant::ZERO; 3], wire: VecDeque::new(), writes, full: 0 };
        (0..2).for_each(|sender| (0..POSTED).for_each(|_| net.post(sender)));
        net
    }

    fn post(&mut self, sender: usize) {
        let (qp, op, lkey, _) = self.writes[sender];
        let sges = [Sge { address: BASE, len: CHUNK, lkey }];
        self.hosts[sender].post_send(self.now, qp, &SendWr::new(0, op, Data::Gather(&sges))).unwrap();
    }

    fn carry(&mut self, link: usize, direction: Direction, frame: Frame) -> Instant {
        let passage = self.fabric.lane(link, direction).offer(self.now, frame, false);
        self.full += passage.strikes.iter().filter(|strike| **strike == Strike::QueueFull).count();
        for arrival in passage.arrivals {
            let place = self.wire.partition_point(|(at, ..)| *at <= arrival.at);
            self.wire.insert(place, (arrival.at, direction == Direction::Up, link, arrival.frame));
        }
        passage.departs
    }

    fn transmit(&mut self) {
        let mut out = vec![0; Adapter::PACKET_MAX];
        for host in 0..3 {
            while self.free_at[host] <= self.now {
                let Some(len) = self.hosts[host].poll_transmit(self.now, &mut out) else { break };
                let to = usize::from(out[19]) - 1;
                let bytes = [&mac(to).0[..], &mac(host).0, &[8, 0], &out[..len]].concat();
                self.free_at[host] = self.carry(host, Direction::Up, frame(bytes));
            }
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.transmit();
            let timers = self.hosts.iter().filter_map(Adapter::deadline).chain(self.free_at).filter(|at| *at > self.now);
            let next = self.wire.front().map(|(at, ..)| *at).into_iter().chain(timers).min();
            let Some(next) = next.filter(|at| *at <= end) else { break };
            self.now = next;
            while self.wire.front().is_some_and(|(at, ..)| *at <= self.now) {
                let Some((_, at_switch, host, frame)) = self.wire.pop_front() else { break };
                if at_switch {
                    let to: Vec<usize> = self.fabric.route(host, &frame.bytes).collect();
                    self.carry(to[0], Direction::Down, frame);
                } else {
                    self.hosts[host].on_packet(self.now, &frame.bytes[ETHERNET..]);
                }
            }
            for host in 0..3 {
                self.hosts[host].on_timer(self.now);
                while let Some(completion) = self.hosts[host].poll_cq(self.cqs[host]) {
                    assert_eq!(completion.status, Status::Success);
                    self.writes[host].3 += u64::from(CHUNK);
                    self.post(host);
                }
            }
        }
        self.now = end;
    }

    /// The senders' shares of the link in percent, once they have found their rates.
    fn shares(&mut self) -> [f64; 2] {
        self.run(Duration::from_millis(20));
        let before = [0, 1].map(|sender: usize| self.writes[sender].3);
        self.run(Duration::from_millis(30));
        [0, 1].map(|sender: usize| (self.writes[sender].3 - before[sender]) as f64 * 100.0 / (10e9 / 8.0 * 0.03))
    }
}

#[test]
fn two_senders_share_a_link_without_loss_and_lose_without_congestion_control() {
    let mut net = Net::new(Some(Dcqcn::new(10_000_000_000)));
    let [a, b] = net.shares();
    assert!(net.full == 0 && a + b > 80.0 && a.min(b) / a.max(b) > 0.5, "{} lost, {a} and {b} percent", net.full);
    let mut net = Net::new(None);
    let shares = net.shares();
    // Enough for one of them to be starved: who sends again loses that, too.
    assert!(net.full > 10, "{} lost, {shares:?} percent", net.full);
}
