//! The message plane on a ConnectX, by libibverbs and libmlx5: queue pairs of RC and UD of two processes, on the software ConnectX. It has no RDMA-CM, so the processes
//! tell each other of their queue pairs themselves.

mod world;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant as Clock;

use ringway_rxe::{Adapter, Pages, Settings};
use ringway_stack::Instant;
use ringway_stack::device::Wake;
use ringway_stack::device::messages::{
    Access, Addresses, CmError, Completion, Connections as _, Data, Memory as _, Messages as _, Modify, Mtu, Opcode, Path, Peer, Psn,
    QpConfig, Region, SendOp, SendWr, Sending, Sge, State, Status, Transport,
};

use self::world::{Other, PATIENCE, on_cards};

const LEN: usize = 60_000;
const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);
const QKEY: u32 = 0x1234;
/// The card looks at its own clock.
const NOW: Instant = Instant::ZERO;

/// A card, with one queue pair, and one region.
struct Card {
    adapter: Adapter<Pages>,
    qp: u32,
    cq: u32,
    region: Region,
}

impl Card {
    fn open(transport: Transport) -> Self {
        let mut adapter = Adapter::<Pages>::open_unconnected(Settings::new("mlx5_0")).expect("the software ConnectX");
        let pd = adapter.alloc_pd();
        let cq = adapter.create_cq(64).expect("a completion queue");
        let config = QpConfig { transport, pd, send_cq: cq, recv_cq: cq, send_depth: 16, recv_depth: 16, sges_max: 2, inline_max: 64 };
        let qp = adapter.create_qp(config).expect("a queue pair");
        let access = if transport == Transport::Rc { ALL } else { Access::empty() };
        adapter.modify_qp(NOW, qp, &Modify::Init { access, qkey: QKEY }).expect("INIT");
        let memory = adapter.allocate(LEN).expect("memory");
        let region = adapter.register(pd, memory, ALL).expect("a region");
        Self { adapter, qp, cq, region }
    }

    /// Connects it with the other process's; gives the region there.
    fn connect(&mut self, other: &mut Other) -> Region {
        let psn = 7 + u64::from(std::process::id() & 0xffff);
        let own = [u64::from(self.qp), psn, self.region.address, u64::from(self.region.key)];
        let [qp, rq_psn, address, key] = other.exchange(own);
        let peer = Peer {
            path: path(),
            mtu: Mtu::B1024,
            dest_qp: qp as u32,
            rq_psn: Psn::new(rq_psn as u32),
            max_dest_rd_atomic: 4,
            min_rnr_timer: 12,
        };
        let sending = Sending { sq_psn: Psn::new(psn as u32), max_rd_atomic: 4, ..Sending::default() };
        for modify in [Modify::Rtr(peer), Modify::Rts(sending)] {
            self.adapter.modify_qp(NOW, self.qp, &modify).expect("a transition");
        }
        assert_eq!(self.adapter.qp_state(self.qp), Some(State::Rts));
        Region { address, key: key as u32, len: LEN as u64 }
    }

    fn sge(&self, len: usize) -> Sge {
        Sge { address: self.region.address, len: len as u32, lkey: self.region.key }
    }

    fn fill(&mut self, seed: usize) -> Vec<u8> {
        let bytes: Vec<u8> = (0..LEN).map(|at| (at * 7 + at / 251 + seed) as u8).collect();
        self.adapter.memory_mut(self.region.key).expect("the region").write(0, &bytes);
        bytes
    }

    fn bytes(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.adapter.memory(self.region.key).expect("the region").read(0, &mut bytes);
        bytes
    }

    fn post(&mut self, op: SendOp, data: Data<'_>) {
        self.adapter.post_send(NOW, self.qp, &SendWr::new(1, op, data)).expect("room");
    }

    /// The next completion, which is slept for.
    fn completion(&mut self) -> Completion {
        let began = Clock::now();
        loop {
            self.adapter.poll(NOW);
            if let Some(completion) = self.adapter.poll_cq(self.cq) {
                return completion;
            }
            assert!(began.elapsed() < PATIENCE, "nothing completes");
            if self.adapter.arm(Wake::Any) && self.adapter.poll_cq(self.cq).is_none() {
                self.sleep(100);
            }
        }
    }

    /// Sleeps until there is something to poll for, or so many milliseconds are over. Whether there is.
    fn sleep(&mut self, milliseconds: i32) -> bool {
        let mut fd = libc::pollfd { fd: self.adapter.wait_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry is readable and writable.
        let is_woken = unsafe { libc::poll(&raw mut fd, 1, milliseconds) } == 1;
        if is_woken {
            self.adapter.on_woken();
        }
        is_woken
    }

    fn succeeds(&mut self) -> Completion {
        let completion = self.completion();
        assert_eq!(completion.status, Status::Success, "{completion:?}");
        completion
    }
}

/// All processes of a bus have one address, and are told apart by the numbers of their queue pairs.
fn path() -> Path {
    let own = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Path::new(Addresses::new(own, own).expect("of one family"), 1)
}

fn rc_asks(mut other: Other) {
    let mut card = Card::open(Transport::Rc);
    let there = card.connect(&mut other);
    other.meet();
    // Bytes into the peer's memory, with a message: what an rsocket sends.
    let bytes = card.fill(1);
    let write = SendOp::Write { address: there.address, rkey: there.key, immediate: Some(0x1234_5678) };
    card.post(write, Data::Gather(&[card.sge(LEN)]));
    assert_eq!(card.succeeds().opcode, Opcode::Write);
    card.post(SendOp::Send { immediate: None }, Data::Inline(b"hello"));
    assert_eq!(card.succeeds().opcode, Opcode::Send);
    other.meet();
    // And back.
    card.fill(2);
    card.post(SendOp::Read { address: there.address, rkey: there.key }, Data::Gather(&[card.sge(LEN)]));
    assert_eq!(card.succeeds().opcode, Opcode::Read);
    assert_eq!(card.bytes(LEN)[5..], bytes[5..]);
    card.post(SendOp::FetchAdd { address: there.address + 8, rkey: there.key, add: 3 }, Data::Gather(&[card.sge(8)]));
    assert_eq!(card.succeeds().opcode, Opcode::FetchAdd);
    assert_eq!(card.bytes(8), bytes[8..16]);
    // What is not the peer's to give ends the connection, and the peer's memory stays as it is.
    let beyond = SendOp::Write { address: there.address + 1, rkey: there.key, immediate: None };
    card.post(beyond, Data::Gather(&[card.sge(LEN)]));
    assert_eq!(card.completion().status, Status::RemoteAccess);
    assert_eq!(card.adapter.qp_state(card.qp), Some(State::Err));
    other.meet();
}

fn rc_serves(mut other: Other) {
    let mut card = Card::open(Transport::Rc);
    let sge = card.sge(100);
    card.adapter.post_recv(NOW, card.qp, 10, &[]).expect("room");
    card.adapter.post_recv(NOW, card.qp, 11, &[sge]).expect("room");
    card.connect(&mut other);
    other.meet();
    let written = card.succeeds();
    assert_eq!(
        (written.id, written.opcode, written.immediate, written.len),
        (10, Opcode::ReceiveWithImmediate, Some(0x1234_5678), LEN as u32)
    );
    let sent = card.succeeds();
    assert_eq!((sent.id, sent.opcode, sent.len), (11, Opcode::Receive, 5));
    let mut expected: Vec<u8> = (0..LEN).map(|at| (at * 7 + at / 251 + 1) as u8).collect();
    expected[..5].copy_from_slice(b"hello");
    assert!(card.bytes(LEN) == expected);
    other.meet();
    // (Nothing of a read, an addition and a refusal is told here.)
    other.meet();
    let sum = u64::from_ne_bytes(expected[8..16].try_into().expect("eight")) + 3;
    expected[8..16].copy_from_slice(&sum.to_ne_bytes());
    assert!(card.bytes(LEN) == expected);
}

#[test]
fn connected_queue_pairs_of_two_processes() {
    on_cards("connected_queue_pairs_of_two_processes", rc_asks, rc_serves);
}

fn says_twice(mut other: Other) {
    let mut card = Card::open(Transport::Rc);
    card.connect(&mut other);
    other.meet();
    for word in [b"1", b"2"] {
        card.post(SendOp::Send { immediate: None }, Data::Inline(word));
        card.succeeds();
        other.meet();
        other.meet();
    }
}

fn hears_both(mut other: Other) {
    let mut card = Card::open(Transport::Rc);
    let sge = card.sge(100);
    for id in [10, 11] {
        card.adapter.post_recv(NOW, card.qp, id, &[sge]).expect("room");
    }
    card.connect(&mut other);
    other.meet();
    other.meet();
    // The first one is taken from the device, to see whether there is one, and left to whoever polls.
    assert!(!card.adapter.arm(Wake::Any));
    assert_eq!(card.adapter.poll(NOW), 1);
    other.meet();
    other.meet();
    // The second one wakes. Who is woken asks for the next event before it polls.
    assert!(card.sleep(PATIENCE.as_millis() as i32));
    assert_eq!(card.adapter.poll(NOW), 1);
    card.adapter.arm(Wake::Any);
    assert_eq!([card.adapter.poll_cq(card.cq), card.adapter.poll_cq(card.cq)].map(|one| one.map(|one| one.id)), [Some(10), Some(11)]);
    other.meet();
}

/// What was taken ahead is not all that there is.
#[test]
fn who_is_woken_finds_what_came_behind_a_completion_that_was_taken_ahead() {
    on_cards("who_is_woken_finds_what_came_behind_a_completion_that_was_taken_ahead", says_twice, hears_both);
}

fn datagrams(card: &mut Card) {
    let sq_psn = Psn::new(0);
    for modify in [Modify::RtrDatagram, Modify::RtsDatagram { sq_psn }] {
        card.adapter.modify_qp(NOW, card.qp, &modify).expect("a transition");
    }
}

fn ud_asks(mut other: Other) {
    let mut card = Card::open(Transport::Ud);
    datagrams(&mut card);
    let [dest_qp] = other.exchange([u64::from(card.qp)]);
    let dest_qp = dest_qp as u32;
    card.fill(3);
    let data = [card.sge(1000)];
    // One with another key comes to nobody.
    for (qkey, immediate) in [(QKEY + 1, None), (QKEY, Some(9))] {
        card.post(SendOp::Datagram { path: path(), dest_qp, qkey, immediate }, Data::Gather(&data));
        card.succeeds();
    }
    other.meet();
}

fn ud_serves(mut other: Other) {
    let mut card = Card::open(Transport::Ud);
    datagrams(&mut card);
    let sge = card.sge(2000);
    card.adapter.post_recv(NOW, card.qp, 5, &[sge]).expect("room");
    let [from] = other.exchange([u64::from(card.qp)]);
    let got = card.succeeds();
    assert_eq!((got.id, got.len, got.immediate, u64::from(got.src_qp), got.grh), (5, 1040, Some(9), from, true));
    let expected: Vec<u8> = (0..1000).map(|at: usize| (at * 7 + at / 251 + 3) as u8).collect();
    assert!(card.bytes(1040)[40..] == expected);
    other.meet();
}

#[test]
fn datagrams_between_two_processes() {
    on_cards("datagrams_between_two_processes", ud_asks, ud_serves);
}

/// A process that dies is noticed by who sends to it.
#[test]
fn a_process_that_dies_is_noticed() {
    fn asks(mut other: Other) {
        let mut card = Card::open(Transport::Rc);
        let there = card.connect(&mut other);
        other.meet();
        std::thread::sleep(std::time::Duration::from_millis(200));
        let write = SendOp::Write { address: there.address, rkey: there.key, immediate: None };
        card.post(write, Data::Inline(b"x"));
        assert_ne!(card.completion().status, Status::Success);
        assert_eq!(card.adapter.qp_state(card.qp), Some(State::Err));
    }
    fn serves(mut other: Other) {
        let mut card = Card::open(Transport::Rc);
        card.connect(&mut other);
        other.meet();
        // SAFETY: the process ends here, with all that it has.
        unsafe { libc::_exit(0) };
    }
    on_cards("a_process_that_dies_is_noticed", asks, serves);
}

#[test]
fn without_connection_management_nobody_connects() {
    fn alone(_: Other) {
        let mut card = Card::open(Transport::Rc);
        let to: SocketAddr = "127.0.0.1:7471".parse().expect("an address");
        let any: SocketAddr = "0.0.0.0:0".parse().expect("an address");
        assert_eq!(card.adapter.connect(NOW, card.qp, any, to, b""), Err(CmError::Unsupported));
        assert_eq!(card.adapter.listen(to, 4), Err(CmError::Unsupported));
    }
    on_cards("without_connection_management_nobody_connects", alone, alone);
}
