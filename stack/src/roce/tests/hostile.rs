//! A peer that sends whatever it likes: never a panic, never a write outside of what was advertised, never more memory.

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::pair::Side::{A, B};
use super::pair::{Adapter, BASE, LATENCY, Options, Pair, REGION, path};
use crate::roce::memory::Access;
use crate::roce::packet::datagram::{Datagram, OVERHEAD_MAX};
use crate::roce::packet::{Aeth, AtomicEth, Body, Header, NakCode, Packet, Reth, Syndrome, Tail};
use crate::roce::psn::Psn;
use crate::roce::qp::{Mtu, Transport};
use crate::roce::work::{Data, SendOp, SendWr};

/// The bytes of B's region that the peer may write, in a region of their own.
const ADVERTISED: usize = 4096;

struct Victim {
    pair: Pair,
    advertised: u32,
    near: Psn,
    dice: ChaCha8Rng,
    transport: Transport,
}

impl Victim {
    fn new(seed: u64, transport: Transport) -> Self {
        let mut pair = Pair::of(&Options { mtu: Mtu::B256, max_dest_rd_atomic: 2, ..Options::default() }, transport);
        pair.lose(|_| true);
        let pd = pair.end(B).pd;
        // The region that B receives into and sends from is not for peers.
        let private = pair.end(B).hca.register(pd, BASE, vec![0x55; REGION], Access::LOCAL_WRITE).unwrap();
        pair.end(B).key = private;
        let advertised = pair.end(B).hca.register(pd, BASE, vec![0; ADVERTISED], Access::all()).unwrap();
        for id in 0..20 {
            pair.post_recv(B, id, id * 512, 300);
        }
        for id in 0..4 {
            if transport == Transport::Rc {
                let read = pair.read(B, 0);
                pair.post_op(B, id * 2, read, 20_000, 1000);
            }
            pair.post(B, &SendWr::new(id * 2 + 1, SendOp::Send { immediate: None }, Data::Inline(b"answer me"))).unwrap();
        }
        pair.transmit();
        Self { pair, advertised, near: super::pair::psn(A), dice: ChaCha8Rng::seed_from_u64(seed), transport }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.dice.next_u64() % limit
    }

    fn reth(&mut self) -> Reth {
        let len = [0, 1, 256, 300, 512, 4096, 4097, 1 << 20, u32::MAX][self.below(9) as usize];
        let offset = self.below(5000);
        let address = [BASE + offset, BASE - 1, u64::MAX - 100, 0][self.below(4) as usize % 4];
        let key = self.pair.end(B).key;
        let rkey = [self.advertised, self.advertised, self.advertised, key, 0, 0x300][self.below(6) as usize];
        Reth { address, rkey, len }
    }

    fn body(&mut self) -> Body {
        let syndromes = [
            Syndrome::Ack(31),
            Syndrome::Ack(0),
            Syndrome::RnrNak(1),
            Syndrome::Nak(NakCode::SequenceError),
            Syndrome::Nak(NakCode::RemoteAccess),
            Syndrome::Nak(NakCode::RemoteOperational),
        ];
        let syndrome = syndromes[self.below(100).min(5) as usize];
        let aeth = Aeth { syndrome, msn: self.below(1 << 24) as u32 };
        let reth = self.reth();
        let atomic = AtomicEth { address: reth.address & !7, rkey: reth.rkey, swap_add: 1, compare: 0 };
        match self.below(19) {
            0 => Body::SendFirst,
            1 => Body::SendMiddle,
            2 => Body::SendLast(Tail::None),
            3 => Body::SendLast(Tail::Invalidate(self.advertised)),
            4 => Body::SendOnly(Tail::Immediate(1)),
            5 => Body::WriteFirst(reth),
            6 => Body::WriteMiddle,
            7 => Body::WriteLast(None),
            8 => Body::WriteLast(Some(1)),
            9 => Body::WriteOnly(reth, None),
            10 => Body::WriteOnly(reth, Some(1)),
            11 => Body::ReadRequest(reth),
            12 => Body::ReadResponseFirst(aeth),
            13 => Body::ReadResponseMiddle,
            14 => Body::ReadResponseLast(aeth),
            15 => Body::ReadResponseOnly(aeth),
            16 => Body::AtomicAcknowledge(aeth, u64::MAX),
            17 => Body::CompareSwap(atomic),
            _ => Body::Acknowledge(aeth),
        }
    }

    /// A request as it may be.
    fn plausible(&mut self) -> Vec<u8> {
        let len = self.below(257) as u32;
        let reth = Reth { address: BASE + self.below(2000), rkey: self.advertised, len };
        let (body, len) = match self.below(4) {
            0 => (Body::WriteOnly(reth, None), len),
            1 => (Body::SendOnly(Tail::None), len),
            2 => (Body::ReadRequest(Reth { len: len * 8, ..reth }), 0),
            _ => (Body::FetchAdd(AtomicEth { address: reth.address & !7, rkey: reth.rkey, swap_add: 1, compare: 0 }), 0),
        };
        let header = Header { ack_request: true, ..Header::new(body, self.pair.end(B).qp, self.near) };
        let header = self.of_transport(header);
        emit(&header, &vec![0xaa; len as usize])
    }

    /// As the victim's transport has it, and now and then as another one has it.
    fn of_transport(&mut self, header: Header) -> Header {
        let unreliable = header.body.is_of_uc() && (self.transport == Transport::Uc) != (self.below(20) == 0);
        if unreliable {
            self.near = header.psn + 1;
        }
        Header { unreliable, ..header }
    }

    /// A packet whose number is near to what is expected, so that it is not merely ignored.
    fn packet(&mut self) -> Vec<u8> {
        if self.below(10) < 7 {
            return self.plausible();
        }
        let body = self.body();
        let base = if body.is_response() { super::pair::psn(B) } else { self.near };
        let psn = match self.below(10) {
            0 => base - 1,
            1 => base + self.below(20) as u32,
            2 => Psn::new(self.below(1 << 24) as u32),
            _ => base,
        };
        let header =
            Header { ack_request: self.below(2) == 0, solicited: self.below(2) == 0, ..Header::new(body, self.pair.end(B).qp, psn) };
        let header = self.of_transport(header);
        let payload = vec![0xaa; [256, 256, 0, 1, 255, 257, 300, 1000][self.below(8) as usize]];
        emit(&header, if body.has_payload() { &payload } else { &[] })
    }

    fn attack(mut self, packets: usize) -> (Pair, u32) {
        for _ in 0..packets {
            let bytes = self.packet();
            self.pair.deliver(B, &bytes);
            let mut out = [0; Adapter::PACKET_MAX];
            let mut answers = 0;
            let now = self.pair.now;
            while let Some(len) = self.pair.end(B).hca.poll_transmit(now, &mut out) {
                answers += 1;
                assert!(answers < 10_000, "it answers for ever");
                // It tells what it expects, as acknowledgments do to a real peer.
                let header = Datagram::parse(&out[..len]).unwrap().packet.header;
                if let Body::Acknowledge(aeth) = header.body {
                    self.near = if matches!(aeth.syndrome, Syndrome::Ack(_)) { header.psn + 1 } else { header.psn };
                } else if header.body.is_response() {
                    self.near = header.psn + 1;
                }
            }
            self.pair.now += LATENCY;
            let now = self.pair.now;
            self.pair.end(B).hca.on_timer(now);
        }
        (self.pair, self.advertised)
    }
}

fn emit(header: &Header, payload: &[u8]) -> Vec<u8> {
    let datagram = Datagram { path: path(A, false), id: 0, packet: Packet { header: *header, payload }, ip_header: &[] };
    let mut out = vec![0; OVERHEAD_MAX + payload.len()];
    let len = datagram.emit(&mut out);
    out.truncate(len);
    out
}

/// B's own region only changes where a receive or a read's answer may put bytes.
fn check_private(pair: &mut Pair) {
    let bytes = pair.end(B).bytes(0, REGION).to_vec();
    for (at, byte) in bytes.iter().enumerate() {
        let in_receive = at < 20 * 512 && at % 512 < 300;
        let in_answer = (20_000..21_000).contains(&at);
        assert!(*byte == 0x55 || in_receive || in_answer, "byte {at} is none that anybody was given");
    }
}

#[test]
fn whatever_order_requests_come_in() {
    whatever_order(Transport::Rc);
}

#[test]
fn whatever_order_unreliable_messages_come_in() {
    whatever_order(Transport::Uc);
}

fn whatever_order(transport: Transport) {
    let mut written = 0;
    let mut completed = 0;
    for seed in 0..400 {
        let (mut pair, advertised) = Victim::new(seed, transport).attack(60);
        check_private(&mut pair);
        written += usize::from(pair.end(B).hca.memory(advertised).unwrap().contains(&0xaa));
        let completions = pair.end(B).poll();
        completed += usize::from(!completions.is_empty());
        let mut receives: Vec<_> = completions.iter().filter(|c| c.opcode as u8 >= 5).map(|c| c.id).collect();
        assert!(receives.len() <= 20);
        receives.dedup();
        assert!(receives.windows(2).all(|w| w[0] < w[1]), "in order, and once");
    }
    assert!(written > 40 && completed > 200, "the attack gets somewhere: {written} and {completed}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Real packets with bytes changed, their CRC made good again.
    #[test]
    fn mutated_packets(seed: u64, is_reliable: bool, changes in proptest::collection::vec((0..80usize, any::<u8>()), 1..5)) {
        let mut victim = Victim::new(seed, if is_reliable { Transport::Rc } else { Transport::Uc });
        for _ in 0..20 {
            let mut bytes = victim.packet();
            // Only what lies behind IP and UDP, whose lengths must stay.
            let (start, end) = (28, bytes.len() - 4);
            for (at, byte) in &changes {
                if start + at < end {
                    bytes[start + at] = *byte;
                }
            }
            let good = Packet::parse(&bytes[start..end]).map(|packet| emit(&packet.header, packet.payload));
            victim.pair.deliver(B, &good.unwrap_or(bytes));
            victim.pair.transmit();
        }
        check_private(&mut victim.pair);
    }

    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let mut pair = Pair::plain();
        pair.deliver(B, &bytes);
        prop_assert!(pair.end(B).hca.dropped().malformed + pair.end(B).hca.dropped().corrupted == 1);
    }
}
