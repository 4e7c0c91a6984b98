//! A process that is connected to a program's rsockets over shared memory, and sends whatever it likes: packets of real sessions that are changed here and
//! there, frames of nothing in particular, and requests without end.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use ringway_shm::{Ports, Rendezvous, RxBuf, Settings, ShmQueues};
use ringway_stack::device::{MacAddr, Protocol, Queues as _, RxBatch, TxBuffer as _, TxFrame, TxOffload, TxSlice};
use ringway_stack::roce::packet::Packet;
use ringway_stack::roce::packet::datagram::{Crc, Datagram, OVERHEAD_MAX};
use ringway_stack::roce::qp::Mtu;
use ringway_stack::roce::{Node, NodeConfig, Tuning};
use ringway_stack::rsocket::{Host, SocketId, Sockets};
use ringway_stack::{Error, Instant};

/// Bytes of an IPv6 and a UDP header.
const HEADERS: usize = 48;
const ETHERNET: usize = 14;

fn gid_of(id: u64) -> IpAddr {
    Ipv6Addr::from(0xfe80_u128 << 112 | u128::from(id)).into()
}

/// Numbers that are the same each time (xorshift64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }
}

/// As the victim's, but that each packet is acknowledged at once.
const TUNING: Tuning = Tuning {
    window: 128,
    count_credits: false,
    datagram_mtu: Mtu::B2048,
    retries_for_ever: true,
    bytes_are_vouched: true,
    acknowledges_late: false,
    dcqcn: None,
};

/// An honest client tries again after so long.
const AGAIN: Duration = Duration::from_millis(500);

pub(crate) struct Attacker {
    queues: ShmQueues,
    rendezvous: Arc<Rendezvous>,
    node: Node<Vec<u8>>,
    sockets: Sockets,
    batch: RxBatch<RxBuf>,
    dice: Dice,
    began: Clock,
    /// How often in a hundred packets there is one more, which is bad.
    badness: usize,
    /// Bad ones that went.
    pub(crate) sent: usize,
    to: SocketAddr,
    victim: MacAddr,
}

impl Attacker {
    pub(crate) fn new(port: u16) -> Self {
        let settings = Settings { ports: Ports::RdmaCm, is_listed: false, ..Settings::default() };
        let (queues, rendezvous) = ringway_shm::attach(&settings).expect("shared memory");
        let gid = gid_of(rendezvous.member_ref().id());
        let to = SocketAddr::from(([127, 0, 0, 1], port));
        let config = NodeConfig { gid: Some(gid), mtu: Mtu::B32768, tuning: TUNING, ..NodeConfig::new(to.ip()) };
        let mut node = Node::new(config, 1);
        let sockets = Sockets::new(&mut node, ringway_stack::rsocket::Settings::default(), Host::default());
        let victim = rendezvous.resolve(Protocol::Tcp, to).expect("it answers").expect("it listens").mac;
        let (batch, dice, began) = (RxBatch::new(32), Dice(0x9e37_79b9_7f4a_7c15), Clock::now());
        Self { queues, rendezvous, node, sockets, batch, dice, began, badness: 25, sent: 0, to, victim }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(1 + self.began.elapsed().as_nanos() as u64)
    }

    /// Asks for a connection.
    fn connect(&mut self) -> SocketId {
        let victim = self.rendezvous.peers().into_iter().find(|peer| peer.mac == self.victim).expect("it lives");
        self.node.resolve(self.to, gid_of(victim.id));
        let socket = self.sockets.socket();
        let now = self.now();
        assert_eq!(self.sockets.connect(now, &mut self.node, socket, self.to), Err(Error::InProgress));
        socket
    }

    /// Takes what came, and sends what there is to send, and worse.
    fn turn(&mut self) {
        self.rendezvous.service();
        let now = self.now();
        self.queues.poll_rx(now, &mut self.batch);
        for frame in self.batch.frames_mut() {
            self.node.on_packet(now, &frame.to_vec()[ETHERNET..]);
        }
        self.batch.clear();
        self.node.on_timer(now);
        self.sockets.poll(now, &mut self.node);
        let mut packet = vec![0; Node::<Vec<u8>>::PACKET_MAX];
        while let Some(len) = self.node.poll_transmit(now, &mut packet) {
            if self.dice.below(100) < self.badness {
                let bad = self.bad(&packet[..len]);
                self.send(&bad);
                self.sent += 1;
            }
            self.send(&packet[..len]);
        }
        self.queues.doorbell();
        self.queues.reap();
    }

    /// Something like that packet, or like nothing.
    fn bad(&mut self, packet: &[u8]) -> Vec<u8> {
        if self.dice.below(4) == 0 {
            let len = self.dice.below(9000);
            return (0..len).map(|_| self.dice.below(256) as u8).collect();
        }
        let (end, mut changed) = (packet.len() - 4, packet.to_vec());
        for _ in 0..1 + self.dice.below(3) {
            // Among headers and private data, mostly.
            let at = HEADERS + self.dice.below((end - HEADERS).min(300));
            changed[at] = self.dice.below(256) as u8;
        }
        let path = Datagram::parse_with(packet, Crc::LeftOut).expect("one of ours").path;
        let Ok(parsed) = Packet::parse(&changed[HEADERS..end]) else { return changed };
        // Nobody looks at its CRC.
        let mut out = vec![0; OVERHEAD_MAX + parsed.payload.len()];
        let len = Datagram { path, id: 0, packet: parsed, ip_header: &[] }.emit(&mut out);
        out.truncate(len);
        out
    }

    fn send(&mut self, packet: &[u8]) {
        let mut head = [0; ETHERNET];
        head[..6].copy_from_slice(&self.victim.0);
        head[12..].copy_from_slice(&[0x86, 0xdd]);
        let Some(mut buffer) = self.queues.tx_alloc(packet.len().max(1)) else { return };
        let len = packet.len().min(buffer.capacity());
        buffer.write(0, &packet[..len]);
        let body = [TxSlice { buffer: &buffer, offset: 0, len }];
        let body = if len == 0 { &body[..0] } else { &body[..] };
        // Where there is no room, it is lost.
        let _ = self.queues.send(&TxFrame { head: &head, body, offload: TxOffload::default() });
    }

    /// So many sessions one after the other, some of them at once, most of which end badly; and more of them, until so many bad packets were sent. (A victim that does not get to run
    /// answers little that could be made worse. There is an end all the same.)
    pub(crate) fn attack(&mut self, sessions: usize, bad: usize) {
        let mut open = Vec::new();
        for session in 0..20 * sessions {
            if session >= sessions && self.sent >= bad {
                break;
            }
            open.push(self.connect());
            for _ in 0..30 {
                self.turn();
                let (now, at, len) = (self.now(), self.dice.below(open.len()), self.dice.below(3000));
                let mut bytes = vec![0x41; len];
                // Whatever comes of it.
                let _ = self.sockets.send(now, &mut self.node, open[at], &bytes);
                let _ = self.sockets.recv(now, &mut self.node, open[at], &mut bytes, false);
                let _ = self.sockets.write_direct(now, &mut self.node, open[at], &bytes, 0);
            }
            if open.len() > 8 {
                let socket = open.remove(self.dice.below(8));
                let now = self.now();
                let _ = self.sockets.close(now, &mut self.node, socket);
            }
        }
    }

    /// An honest client's exchange, by the same process: whether what it says comes back, before so many seconds are over.
    pub(crate) fn ask(&mut self, word: &[u8], seconds: u64) -> bool {
        self.badness = 0;
        let began = Clock::now();
        let (mut asked, mut socket) = (began, self.connect());
        let (mut sent, mut back) = (0, Vec::new());
        while began.elapsed().as_secs() < seconds {
            self.turn();
            // (It may be refused: the backlog is full of what the attack began, or a bad request has named this queue pair before. It asks again then, as clients do.)
            if sent == 0 && asked.elapsed() > AGAIN {
                (asked, socket) = (Clock::now(), self.connect());
            }
            let now = self.now();
            sent += self.sockets.send(now, &mut self.node, socket, &word[sent..]).unwrap_or(0);
            let mut some = [0; 100];
            if let Ok(len) = self.sockets.recv(now, &mut self.node, socket, &mut some, false) {
                back.extend_from_slice(&some[..len]);
            }
            if back == word {
                return true;
            }
        }
        false
    }
}
