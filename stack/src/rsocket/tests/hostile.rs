//! A peer that says anything, and writes anything wherever its keys let it: our side does not panic, does not hang, and touches no memory that is not of this
//! connection.

use core::time::Duration;

use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::pair::{A, B, End, LATENCY, Machine, Options, PORT, Pair};
use crate::device::messages::{
    Access, ConnectionEvent, Connections, Data, Memory, Messages, Modify, QpConfig, Region, SendOp, SendWr, Status, Transport,
};
use crate::error::Error;
use crate::roce::packet::Packet;
use crate::roce::packet::datagram::{Addresses, Datagram, OVERHEAD_MAX, Path};
use crate::rsocket::wire::{ByteOrder, ConnectionData, Control, IomapEntry, Message, TargetSge};
use crate::rsocket::{Shutdown, Sizes};
use crate::time::Instant;

/// A queue pair that speaks rsockets by hand.
pub(super) struct Raw {
    pub(super) qp: u32,
    cq: u32,
    /// What it says of itself.
    pub(super) data: ConnectionData,
    /// Its memory: tables first, then the buffer.
    region: Region,
    /// What the peer said of itself.
    peer: Option<ConnectionData>,
}

const TABLES: u64 = 32 + 24 * 4;
const BUFFER: u64 = 8192;

pub(super) fn raw(node: &mut Machine) -> Raw {
    let pd = Messages::alloc_pd(node);
    let cq = node.create_cq(4000).unwrap();
    let (transport, depth) = (Transport::Rc, 1000);
    let config = QpConfig { transport, pd, send_cq: cq, recv_cq: cq, send_depth: depth, recv_depth: depth, sges_max: 1, inline_max: 64 };
    let qp = node.create_qp(config).unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    node.modify_qp(Instant::ZERO, qp, &Modify::Init { access, qkey: 0 }).unwrap();
    for _ in 0..depth {
        node.post_recv(Instant::ZERO, qp, 0, &[]).unwrap();
    }
    let region = Messages::register(node, pd, vec![0; (TABLES + BUFFER) as usize], access).unwrap();
    let table = TargetSge { address: region.address, key: region.key, len: 2 };
    let buffer = TargetSge { address: region.address + TABLES, key: region.key, len: BUFFER as u32 / 2 };
    let order = ByteOrder::NATIVE;
    let data = ConnectionData { order, has_iomap: true, credits: 384, iomap_size: 4, target_table: table, data_buffer: buffer };
    Raw { qp, cq, data, region, peer: None }
}

impl Raw {
    /// Writes bytes to the peer, with an immediate or without.
    fn write(&self, now: Instant, node: &mut Machine, address: u64, rkey: u32, bytes: &[u8], immediate: Option<u32>) -> bool {
        let op = SendOp::Write { address, rkey, immediate };
        node.post_send(now, self.qp, &SendWr::new(1, op, Data::Inline(bytes))).is_ok()
    }

    fn message(&self, pair: &mut Pair, word: u32) {
        self.write(pair.now, &mut pair.ends[A].node, 0, 0, &[], Some(word));
        pair.settle();
    }

    /// Takes completions, and posts receives again.
    fn reap(&self, now: Instant, node: &mut Machine) {
        while let Some(completion) = node.poll_cq(self.cq) {
            // Once its queue pair has failed, they would come back at once.
            if completion.id == 0 && completion.status == Status::Success {
                let _ = node.post_recv(now, self.qp, 0, &[]);
            }
        }
    }
}

/// A's queue pair by hand, connected with B's socket.
fn connected(options: [Options; 2], change: impl FnOnce(&mut ConnectionData)) -> (Pair, Raw) {
    let mut pair = Pair::new(options);
    let listener = pair.listen();
    let mut raw = raw(&mut pair.ends[A].node);
    change(&mut raw.data);
    // Connection management's events are the sockets' to take, so they do not look meanwhile.
    let (now, private) = (pair.now, raw.data.emit());
    let to = ([10, 9, 0, 2], PORT).into();
    pair.ends[A].node.connect(now, raw.qp, "0.0.0.0:0".parse().unwrap(), to, &private).unwrap();
    let mut said = None;
    let end = pair.now + Duration::from_secs(1);
    let hook = |pair: &mut Pair| {
        pair.accept(listener);
        pair.ends[B].sockets.remote(pair.ends[B].socket).is_ok()
    };
    pair.take_events_of_a = true;
    assert!(pair.run_until(end, hook), "B accepts");
    for (_, event) in core::mem::take(&mut pair.events_of_a) {
        if let ConnectionEvent::Established(private_data) = event {
            said = Some(ConnectionData::parse(&private_data).unwrap());
        }
    }
    raw.peer = said;
    assert!(raw.peer.is_some());
    (pair, raw)
}

fn plain() -> (Pair, Raw) {
    connected([Options::new(A), Options::new(B)], |_| ())
}

#[test]
fn more_data_than_was_granted_end_the_connection() {
    let (mut pair, raw) = plain();
    pair.settle();
    let peer = raw.peer.unwrap();
    let buffer = peer.data_buffer;
    raw.write(pair.now, &mut pair.ends[A].node, buffer.address, buffer.key, b"four", Some(4));
    pair.settle();
    assert_eq!(pair.drain(B), (b"four".to_vec(), Err(Error::WouldBlock)));
    // It says more than it wrote.
    raw.write(pair.now, &mut pair.ends[A].node, buffer.address, buffer.key, b"four", Some(Message::Data(131_072).word()));
    pair.settle();
    assert_eq!(pair.drain(B), (vec![], Err(Error::Reset)));
    assert_eq!(pair.send(B, b"x"), Err(Error::Reset));
    pair.close(B);
    pair.settle();
    assert_eq!(pair.ends[B].sockets.closing(), 0);
}

#[test]
fn more_messages_than_there_are_credits_end_the_connection() {
    let mut options = [Options::new(A), Options::new(B)];
    options[B].settings.sizes = Sizes { recv_queue: 16, ..Sizes::default() };
    let (mut pair, raw) = connected(options, |_| ());
    pair.settle();
    let buffer = raw.peer.unwrap().data_buffer;
    for round in 0..17 {
        assert_eq!(pair.ends[B].sockets.is_drained(pair.ends[B].socket), Ok(true), "{round}");
        raw.write(pair.now, &mut pair.ends[A].node, buffer.address + round, buffer.key, b"x", Some(1));
        pair.settle();
    }
    assert_eq!(pair.drain(B), (vec![b'x'; 16], Err(Error::Reset)), "what it may send can be read");
}

#[test]
fn messages_of_nothing_are_nothing() {
    let (mut pair, raw) = plain();
    for _ in 0..1000 {
        raw.message(&mut pair, 0);
    }
    assert_eq!(pair.recv(B, &mut [0]), Err(Error::WouldBlock));
    assert!(pair.readiness(B).contains(crate::flow::Readiness::OUT));
}

#[test]
fn a_send_where_writes_are_due_ends_the_connection() {
    let (mut pair, raw) = plain();
    pair.settle();
    let wr = SendWr::new(1, SendOp::Send { immediate: None }, Data::Inline(&[]));
    pair.ends[A].node.post_send(pair.now, raw.qp, &wr).unwrap();
    pair.settle();
    assert_eq!(pair.recv(B, &mut [0]), Err(Error::Reset));
}

#[test]
fn a_peer_s_table_with_one_entry_is_written_in_its_bounds() {
    let (mut pair, raw) = connected([Options::new(A), Options::new(B)], |data| data.target_table.len = 1);
    pair.settle();
    let memory = Messages::memory(&pair.ends[A].node, raw.region.key).unwrap();
    let mut bytes = [0; 32];
    memory.read(0, &mut bytes);
    let sge = TargetSge::parse(bytes[..16].try_into().unwrap(), ByteOrder::NATIVE);
    assert_eq!(sge.len, 65_536);
    assert_eq!(bytes[16..], [0; 16]);
}

#[test]
fn a_table_of_mappings_that_lies_only_harms_the_liar() {
    let mut options = [Options::new(A), Options::new(B)];
    options[B].settings.sizes = Sizes { iomap: 4, ..Sizes::default() };
    let (mut pair, raw) = connected(options, |_| ());
    pair.settle();
    let peer = raw.peer.unwrap();
    // A key and an address that it never had.
    let entry = IomapEntry { offset: 0, buffer: TargetSge { address: u64::MAX - 5, key: 0xdead, len: u32::MAX } };
    let table = peer.target_table;
    raw.write(pair.now, &mut pair.ends[A].node, table.address + 32, table.key, &entry.emit(ByteOrder::NATIVE), Some(0xc000_0000));
    pair.settle();
    assert_eq!(pair.write_direct(B, b"where to?", 3), Ok(9));
    pair.settle();
    assert_eq!(pair.send(B, b"x"), Err(Error::Reset), "its own adapter refuses");
}

/// Random things from a peer that knows everything about us, for a while; and our program does all that it can meanwhile.
fn storm(seed: u64) {
    let mut dice = ChaCha8Rng::seed_from_u64(seed);
    let below = |dice: &mut ChaCha8Rng, limit: u64| dice.next_u64() % limit;
    let mut options = [Options::new(A), Options::new(B)];
    options[B].settings.close_timeout = Duration::from_secs(5);
    let sizes = Sizes { iomap: below(&mut dice, 5) as u16, recv_buffer: 1 + below(&mut dice, 9000) as u32, ..Sizes::default() };
    options[B].settings.sizes = Sizes { recv_queue: 16 + below(&mut dice, 30) as u16, inline: below(&mut dice, 65) as u16, ..sizes };
    let lies = below(&mut dice, 3) == 0;
    let lie: [u64; 4] = core::array::from_fn(|_| dice.next_u64());
    let (mut pair, raw) = connected(options, |data| {
        if lies {
            data.order = if lie[0] & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big };
            data.credits = lie[1] as u16;
            data.iomap_size = (lie[1] >> 16) as u16 % 100;
            data.target_table.len = 1 + lie[2] as u32 % 3;
            data.data_buffer.len = lie[3] as u32;
        }
    });
    let canaries = canaries(&mut pair);
    let peer = raw.peer.unwrap();
    let mut some = vec![0; 3000];
    for _ in 0..150 {
        let words: [u64; 4] = core::array::from_fn(|_| dice.next_u64());
        let place = if words[0] & 1 == 0 { peer.data_buffer } else { TargetSge { len: 100, ..peer.target_table } };
        // Mostly where it may write, or its queue pair is soon no more.
        let slip = if words[0] & 0x3f0 == 0 { 1 << 20 } else { 1 };
        let address = place.address + words[1] % u64::from(place.len.max(1)) * slip;
        let len = (words[1] >> 40) as usize % 25;
        let len = if slip == 1 { len.min((place.address + u64::from(place.len) - address) as usize) } else { len };
        let bytes: Vec<u8> = (0..len).map(|i| (words[2] >> (i % 8 * 8)) as u8).collect();
        let immediate = match words[3] % 8 {
            0 => None,
            1 => Some((words[3] >> 32) as u32),
            2 => Some(Message::Sgl((words[3] >> 32) as u16).word()),
            3 => Some(Message::IomapSgl((words[3] >> 32) as u16).word()),
            4 if words[3] >> 60 == 0 => Some(Message::Control(Control::Shutdown).word()),
            _ => Some(Message::Data(len as u32).word()),
        };
        let now = pair.now;
        raw.write(now, &mut pair.ends[A].node, address, place.key, &bytes, immediate);
        raw.reap(now, &mut pair.ends[A].node);
        match words[0] >> 60 {
            0..=3 => drop(pair.send(B, &some[..words[1] as usize % 3000])),
            4..=9 => drop(pair.recv(B, &mut some)),
            10 => drop(pair.write_direct(B, &some, words[2])),
            11 => drop(pair.write_direct(B, &some, words[2] >> 52)),
            12 => {
                let End { node, sockets, socket } = &mut pair.ends[B];
                let _ = sockets.map(node, *socket, vec![0; 100], words[1] & 1 == 0, Some(words[2]));
            }
            13 if words[1] & 7 == 0 => drop(pair.shutdown(B, if words[1] & 8 == 0 { Shutdown::Write } else { Shutdown::Read })),
            _ => drop(pair.readiness(B)),
        }
        pair.run(Duration::from_micros(words[1] % 100));
    }
    for (key, len) in canaries {
        let mut bytes = vec![0; len];
        Messages::memory(&pair.ends[B].node, key).unwrap().read(0, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 0x5a), "seed {seed}: another's memory is untouched");
    }
    pair.close(B);
    let end = pair.now + Duration::from_secs(6);
    assert!(pair.run_until(end, |pair| pair.ends[B].sockets.closing() == 0), "seed {seed}: closing ends");
}

/// A's packet, changed here and there, with a good CRC.
fn changed(dice: &mut ChaCha8Rng, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = bytes.to_vec();
    // Only what lies behind IP and UDP, whose lengths must stay.
    let (start, end) = (28, bytes.len() - 4);
    for _ in 0..1 + dice.next_u64() % 3 {
        let at = start + dice.next_u64() as usize % (end - start).min(60);
        bytes[at] = dice.next_u64() as u8;
    }
    let path = Path::new(Addresses::new([10, 9, 0, 1].into(), [10, 9, 0, 2].into()).unwrap(), 0);
    let packet = Packet::parse(&bytes[start..end]).ok()?;
    let mut out = vec![0; OVERHEAD_MAX + packet.payload.len()];
    let len = Datagram { path, id: 0, packet, ip_header: &[] }.emit(&mut out);
    out.truncate(len);
    Some(out)
}

/// A real session of streams, in which A's packets also come as others: as long as B's program goes on, nothing that it counts is wrong.
#[test]
fn changed_packets() {
    let mut ended = 0;
    for seed in 0..200 {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let mut pair = Pair::connected([Options::new(A), Options::new(B)]);
        let canaries = canaries(&mut pair);
        let mut of_fate = ChaCha8Rng::seed_from_u64(seed + 1000);
        pair.fate = Box::new(move |from, bytes| {
            // Before the packet itself, which would make it one that came again.
            let other = if from == A && of_fate.next_u64() % 8 == 0 { changed(&mut of_fate, bytes) } else { None };
            other.into_iter().chain([bytes.to_vec()]).map(|bytes| (LATENCY, bytes)).collect()
        });
        let mut some = [0; 3000];
        for _ in 0..60 {
            let words: [u64; 2] = core::array::from_fn(|_| dice.next_u64());
            let len = words[1] as usize % 3000;
            match words[0] % 4 {
                0 | 1 => drop(pair.send(A, &some[..len])),
                2 => drop(pair.send(B, &some[..len])),
                _ => drop((pair.recv(A, &mut some), pair.recv(B, &mut some))),
            }
            pair.run(Duration::from_micros(words[0] >> 32 & 0x3f));
            pair.ends[B].sockets.check();
        }
        ended += usize::from(pair.recv(B, &mut some).is_err_and(|error| error != Error::WouldBlock));
        for (key, len) in canaries {
            let mut bytes = vec![0; len];
            Messages::memory(&pair.ends[B].node, key).unwrap().read(0, &mut bytes);
            assert!(bytes.iter().all(|byte| *byte == 0x5a), "seed {seed}: another's memory is untouched");
        }
        pair.close(B);
        let end = pair.now + Duration::from_secs(31);
        assert!(pair.run_until(end, |pair| pair.ends[B].sockets.closing() == 0), "seed {seed}: closing ends");
    }
    assert!(ended > 20, "the changes get somewhere: {ended}");
}

/// Memory of B's that is not the connection's: of the same protection domain, and of another. Keys and lengths.
fn canaries(pair: &mut Pair) -> Vec<(u32, usize)> {
    let End { node, sockets, socket } = &mut pair.ends[B];
    let other = Messages::alloc_pd(node);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let other = Messages::register(node, other, vec![0x5a; 9000], access).unwrap();
    let local = sockets.map(node, *socket, vec![0x5a; 9000], false, None).unwrap().region;
    vec![(other.key, 9000), (local.key, 9000)]
}

#[test]
fn storms() {
    for seed in 0..400 {
        storm(seed);
    }
}

/// Private data of a stranger's: half of them begin as they should.
fn private_data(len: core::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    (any::<bool>(), proptest::collection::vec(any::<u8>(), len)).prop_map(|(is_version, mut bytes)| {
        if let Some(version) = bytes.first_mut().filter(|_| is_version) {
            *version = 1;
        }
        bytes
    })
}

/// B's program does what it can with a connection to whoever said that; nothing else of B's memory changes, and it ends.
fn go_on(mut pair: Pair) {
    let canary = {
        let node = &mut pair.ends[B].node;
        let pd = Messages::alloc_pd(node);
        Messages::register(node, pd, vec![0x5a; 9000], Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap().key
    };
    let mut some = [7; 3000];
    for _ in 0..20 {
        // All of these may fail.
        let _ = (pair.send(B, &some), pair.recv(B, &mut some), pair.write_direct(B, &some, 0));
        pair.run(Duration::from_micros(50));
        pair.ends[B].sockets.check();
    }
    let mut bytes = vec![0; 9000];
    Messages::memory(&pair.ends[B].node, canary).unwrap().read(0, &mut bytes);
    assert!(bytes.iter().all(|byte| *byte == 0x5a));
    pair.close(B);
    let end = pair.now + Duration::from_secs(31);
    assert!(pair.run_until(end, |pair| pair.ends[B].sockets.closing() == 0), "closing ends");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Who asks may say anything.
    #[test]
    fn any_private_data_of_a_request(bytes in private_data(0..57)) {
        let mut pair = Pair::plain();
        let listener = pair.listen();
        let raw = raw(&mut pair.ends[A].node);
        pair.take_events_of_a = true;
        let now = pair.now;
        pair.ends[A].node.connect(now, raw.qp, "0.0.0.0:0".parse().unwrap(), ([10, 9, 0, 2], PORT).into(), &bytes).unwrap();
        pair.settle();
        if pair.accept(listener).is_some() {
            prop_assert_eq!(bytes[0], 1, "no other version is accepted");
            pair.ends[B].sockets.close(pair.now, &mut pair.ends[B].node, listener).unwrap();
        }
        go_on(pair);
    }

    /// And so may who answers.
    #[test]
    fn any_private_data_of_a_reply(bytes in private_data(0..197)) {
        let mut pair = Pair::plain();
        let raw = raw(&mut pair.ends[A].node);
        let at = ([10, 9, 0, 1], PORT).into();
        pair.ends[A].node.listen(at, 4).unwrap();
        pair.take_events_of_a = true;
        let (now, End { node, sockets, socket }) = (pair.now, &mut pair.ends[B]);
        prop_assert_eq!(sockets.connect(now, node, *socket, at), Err(Error::InProgress));
        pair.settle();
        let asked = pair.events_of_a.iter().find(|(_, event)| matches!(event, ConnectionEvent::Request(_))).map(|(id, _)| *id).unwrap();
        let now = pair.now;
        pair.ends[A].node.accept(now, asked, raw.qp, &bytes).unwrap();
        pair.settle();
        if bytes.first() != Some(&1) {
            prop_assert!(pair.send(B, b"x").is_err(), "no other version is taken");
        }
        go_on(pair);
    }
}
