//! Machines on one switch, whose ports have room for so many frames.

mod at_once;
mod hostile;
mod routed;
mod switch;

use core::time::Duration;
use std::net::SocketAddr;

use self::switch::{Here, Port, Switch, mac};
use super::*;
use crate::device::messages::{
    Access, ConnectionEvent, ConnectionId, Connections, Data, Messages, Modify, QpConfig, Region, SendOp, SendWr, Sge, State, Status,
    Transport,
};
use crate::roce::hca::Dropped;
use crate::roce::memory::{AccessError, Pd, Regions};
use crate::roce::payload::Payload;
use crate::roce::qp::Mtu;
use crate::roce::{NodeConfig, Tuning};

type Machine = SoftRoce<Port, Vec<u8>, Vouched<Here>>;

/// Where B listens. All machines have this address.
const TO: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7471);

fn gid(number: u8) -> IpAddr {
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number.into()).into()
}

fn machine(switch: &Switch, number: u8) -> Machine {
    machine_that(switch, number, false)
}

/// Whose bytes are vouched for or not.
fn machine_that(switch: &Switch, number: u8, bytes_are_vouched: bool) -> Machine {
    let config = NodeConfig {
        gid: Some(gid(number)),
        mtu: if bytes_are_vouched { Mtu::B32768 } else { Mtu::B4096 },
        tuning: Tuning { retries_for_ever: true, bytes_are_vouched, acknowledges_late: bytes_are_vouched, ..Tuning::default() },
        ..NodeConfig::new(TO.ip())
    };
    SoftRoce::new(switch.port(number), Node::new(config, number.into()), Vouched::new(Here(switch.clone())))
}

/// A queue pair with a region of its own, which its peer may write.
struct End {
    qp: u32,
    cq: u32,
    region: Region,
}

fn end<W: Ways>(machine: &mut SoftRoce<Port, Vec<u8>, W>) -> End {
    let node = machine.node_mut();
    let pd = Messages::alloc_pd(node);
    let cq = node.create_cq(600).unwrap();
    let config =
        QpConfig { transport: Transport::Rc, pd, send_cq: cq, recv_cq: cq, send_depth: 500, recv_depth: 16, sges_max: 1, inline_max: 64 };
    let qp = node.create_qp(config).unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    node.modify_qp(Instant::ZERO, qp, &Modify::Init { access, qkey: 0 }).unwrap();
    let region = Messages::register(node, pd, vec![0; 20_000], access).unwrap();
    End { qp, cq, region }
}

/// Lets everybody work for so long.
fn run<W: Ways>(now: &mut Instant, time: Duration, machines: &mut [&mut SoftRoce<Port, Vec<u8>, W>]) {
    let end = *now + time;
    loop {
        machines.iter_mut().for_each(|machine| machine.transmit(*now));
        if machines.iter_mut().map(|machine| machine.poll(*now)).sum::<usize>() > 0 {
            continue;
        }
        let Some(next) = machines.iter().filter_map(|machine| machine.deadline()).min().filter(|next| *next <= end) else { break };
        *now = next.max(*now);
    }
    *now = end;
}

const MS: Duration = Duration::from_millis(1);

/// A's and B's queue pairs, connected.
fn connect(now: &mut Instant, a: &mut Machine, b: &mut Machine, number_of_b: u8) -> (End, End, [ConnectionId; 2]) {
    let (of_a, of_b) = (end(a), end(b));
    // (It may listen already.)
    let _ = b.node_mut().listen(TO, 8);
    a.node_mut().resolve(TO, gid(number_of_b));
    let asked = a.node_mut().connect(*now, of_a.qp, "0.0.0.0:0".parse().unwrap(), TO, b"ask").unwrap();
    run(now, MS, &mut [a, b]);
    let Some((id, ConnectionEvent::Request(request))) = b.node_mut().poll_connection() else { panic!("a request comes") };
    assert_eq!((request.local, request.remote.ip()), (TO, TO.ip()));
    b.node_mut().accept(*now, id, of_b.qp, b"answer").unwrap();
    run(now, MS, &mut [a, b]);
    assert!(matches!(a.node_mut().poll_connection(), Some((_, ConnectionEvent::Established(_)))));
    assert!(matches!(b.node_mut().poll_connection(), Some((_, ConnectionEvent::Established(_)))));
    (of_a, of_b, [asked, id])
}

fn write<W: Ways>(now: Instant, machine: &mut SoftRoce<Port, Vec<u8>, W>, from: &End, to: &End, len: u32) {
    let op = SendOp::Write { address: to.region.address, rkey: to.region.key, immediate: None };
    let sge = Sge { address: from.region.address, len, lkey: from.region.key };
    machine.node_mut().post_send(now, from.qp, &SendWr::new(1, op, Data::Gather(&[sge]))).unwrap();
}

fn completed<W: Ways>(machine: &mut SoftRoce<Port, Vec<u8>, W>, end: &End) -> Vec<Status> {
    core::iter::from_fn(|| machine.node_mut().poll_cq(end.cq)).map(|completion| completion.status).collect()
}

#[test]
fn machines_behind_one_address_write_to_each_other() {
    let switch = Switch::new(100);
    let (mut a, mut b, mut c) = (machine(&switch, 1), machine(&switch, 2), machine(&switch, 3));
    let mut now = Instant::ZERO;
    let (of_a, of_b, ids) = connect(&mut now, &mut a, &mut b, 2);
    let bytes: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
    Messages::memory_mut(a.node_mut(), of_a.region.key).unwrap().write(0, &bytes);
    write(now, &mut a, &of_a, &of_b, 20_000);
    run(&mut now, MS, &mut [&mut a, &mut b, &mut c]);
    assert_eq!(completed(&mut a, &of_a), [Status::Success]);
    assert!(*Messages::memory(b.node(), of_b.region.key).unwrap() == bytes);
    assert_eq!((a.traffic().lost, a.traffic().strange, b.traffic().strange), (0, 0, 0));
    assert_eq!(c.traffic(), Traffic::default());
    a.node_mut().destroy(now, ids[0]);
    run(&mut now, MS, &mut [&mut a, &mut b]);
    assert_eq!(b.node_mut().poll_connection(), Some((ids[1], ConnectionEvent::Disconnected)));
}

#[test]
fn bytes_that_are_vouched_for_go_in_long_packets_without_a_crc() {
    let switch = Switch::new(100);
    let (mut a, mut b) = (machine_that(&switch, 1, true), machine_that(&switch, 2, true));
    let mut now = Instant::ZERO;
    let (of_a, of_b, _) = connect(&mut now, &mut a, &mut b, 2);
    let bytes: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
    Messages::memory_mut(a.node_mut(), of_a.region.key).unwrap().write(0, &bytes);
    for len in [19_999, 50] {
        write(now, &mut a, &of_a, &of_b, len);
    }
    a.transmit(now);
    let frames = switch.take(2);
    assert_eq!(frames.len(), 2, "one packet each");
    for frame in frames {
        assert_eq!(frame[frame.len() - 4..], [0; 4]);
        switch.deliver(1, 2, frame);
    }
    run(&mut now, MS, &mut [&mut a, &mut b]);
    assert_eq!(completed(&mut a, &of_a), [Status::Success; 2]);
    let there = Messages::memory(b.node(), of_b.region.key).unwrap();
    assert!(there[..19_999] == bytes[..19_999] && there[19_999] == 0);
    assert_eq!((b.traffic().strange, b.traffic().lost, b.node().hca().dropped()), (0, 0, Dropped::default()));
    // Beyond the region, of a key that was taken back, and of none: nothing is written, and the connection ends.
    let past = End { region: Region { address: of_b.region.address + 1, ..of_b.region }, ..of_b };
    write(now, &mut a, &of_a, &past, 20_000);
    run(&mut now, MS, &mut [&mut a, &mut b]);
    assert_eq!(completed(&mut a, &of_a), [Status::RemoteAccess]);
    assert_eq!(Messages::memory(b.node(), past.region.key).unwrap()[19_999], 0);
    let (of_a, of_b, _) = connect(&mut now, &mut a, &mut b, 2);
    write(now, &mut a, &of_a, &of_b, 20_000);
    a.transmit(now);
    let memory = Messages::deregister(b.node_mut(), of_b.region.key).unwrap();
    run(&mut now, MS, &mut [&mut a, &mut b]);
    assert_eq!(completed(&mut a, &of_a), [Status::RemoteAccess]);
    assert!(memory.iter().all(|byte| *byte == 0));
}

#[test]
fn acknowledgments_wake_nobody_but_who_waits_for_them() {
    let switch = Switch::new(1000);
    let (mut a, mut b) = (machine(&switch, 1), machine(&switch, 2));
    let mut now = Instant::ZERO;
    let (of_a, of_b, _) = connect(&mut now, &mut a, &mut b, 2);
    let past = End { region: Region { address: of_b.region.address + 1, ..of_b.region }, ..of_b };
    let mut exchange = |to: &End, len| {
        write(now, &mut a, &of_a, to, len);
        a.transmit(now);
        let asked = switch.take(2);
        asked.iter().for_each(|frame| switch.deliver(1, 2, frame.clone()));
        b.poll(now);
        let answers = switch.take(1);
        answers.iter().for_each(|frame| switch.deliver(2, 1, frame.clone()));
        a.poll(now);
        (asked.iter().any(|frame| is_acknowledgment(frame)), answers.iter().all(|frame| is_acknowledgment(frame)), answers.len())
    };
    assert_eq!(exchange(&of_b, 100), (false, true, 1));
    assert_eq!(exchange(&of_b, 20_000), (false, true, 1));
    assert_eq!(exchange(&past, 20_000), (false, false, 1), "a refusal");
    assert!(!is_acknowledgment(&[]) && !is_acknowledgment(&[0; 60]));
    // More than may be on its way at once: the rest goes once something is acknowledged.
    let (of_a, of_b, _) = connect(&mut now, &mut a, &mut b, 2);
    for _ in 0..300 {
        write(now, &mut a, &of_a, &of_b, 10);
    }
    a.transmit(now);
    assert!(a.node().hca().awaits_acknowledgment());
    run(&mut now, MS, &mut [&mut a, &mut b]);
    assert!(!a.node().hca().awaits_acknowledgment());
    for _ in 0..300 {
        write(now, &mut a, &of_a, &of_b, 10);
    }
    a.transmit(now);
    a.node_mut().destroy_qp(of_a.qp).unwrap();
    assert!(!a.node().hca().awaits_acknowledgment(), "nothing waits any more");
}

/// A program's memory, of which there are no slices.
struct Programs(Vec<u8>);

impl Memory for Programs {
    fn len(&self) -> u64 {
        Memory::len(&self.0)
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        self.0.read(offset, out);
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.0.write(offset, bytes);
    }
}

struct Counting;

impl Source for Counting {
    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = (at % 251) as u8);
    }
}

#[test]
fn payload_is_placed_in_memory_of_either_kind_and_nowhere_else() {
    fn check<M: Memory>(memory: M) {
        let pd = Pd(1);
        let mut regions = Regions::new(1);
        let key = regions.register(pd, 1000, memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        let payload = |len| Payload::Source { source: &Counting, at: 7, len };
        let mut place = |key, address, len| regions.place(pd, key, address, Access::REMOTE_WRITE, payload(len));
        assert_eq!(place(key, 1001, 9_998), Ok(()));
        assert_eq!(place(key, 1001, 10_000), Err(AccessError::Bounds));
        assert_eq!(place(key, 999, 2), Err(AccessError::Bounds));
        assert_eq!(place(key + 1, 1000, 2), Err(AccessError::Key));
        assert_eq!(place(key + 1, 0, 0), Ok(()), "nothing is written");
        let mut bytes = [0; 10_000];
        regions.memory(key).unwrap().read(0, &mut bytes);
        assert_eq!((bytes[0], bytes[9_999]), (0, 0));
        assert!(bytes[1..9_999].iter().zip(7..).all(|(byte, at)| *byte == (at % 251) as u8));
    }
    check(vec![0; 10_000]);
    check(Programs(vec![0; 10_000]));
}

#[test]
fn whoever_was_not_resolved_is_not_found() {
    let switch = Switch::new(100);
    let mut a = machine(&switch, 1);
    let of_a = end(&mut a);
    let mut connect = |from: &str, resolved: &[u8]| {
        resolved.iter().for_each(|number| a.node_mut().resolve(TO, gid(*number)));
        a.node_mut().connect(Instant::ZERO, of_a.qp, from.parse().unwrap(), TO, b"").map(|_| ())
    };
    let unroutable = Err(crate::device::messages::CmError::Unroutable);
    assert_eq!(connect("0.0.0.0:0", &[]), unroutable);
    assert_eq!(connect("0.0.0.0:0", &[2]), Ok(()));
    assert_eq!(connect("0.0.0.0:0", &[]), unroutable, "it held for one connection");
    assert_eq!(connect("[::1]:0", &[2]), unroutable, "of two families");
    assert_eq!(a.node().path(None, TO.ip()), None, "an address alone says nothing");
}

#[test]
fn one_that_is_stopped_holds_up_nobody_and_loses_nothing() {
    let switch = Switch::new(8);
    let (mut a, mut b, mut c) = (machine(&switch, 1), machine(&switch, 2), machine(&switch, 3));
    let mut now = Instant::ZERO;
    let (to_b, of_b, _) = connect(&mut now, &mut a, &mut b, 2);
    let (to_c, of_c, _) = connect(&mut now, &mut a, &mut c, 3);
    for _ in 0..300 {
        write(now, &mut a, &to_b, &of_b, 4096);
    }
    // As long as many retries take.
    run(&mut now, Duration::from_secs(100), &mut [&mut a]);
    assert!(a.waiting.values().all(|waiting| waiting.frames.len() <= WAITING_MAX && waiting.bytes <= WAITING_BYTES_MAX));
    write(now, &mut a, &to_c, &of_c, 20_000);
    run(&mut now, MS, &mut [&mut a, &mut c]);
    assert_eq!(completed(&mut a, &to_c), [Status::Success]);
    assert_eq!(completed(&mut a, &to_b), []);
    run(&mut now, Duration::from_secs(10), &mut [&mut a, &mut b]);
    assert_eq!(completed(&mut a, &to_b), [Status::Success; 300]);
    assert!(a.waiting.is_empty());
}

#[test]
fn whoever_dies_ends_its_connections_at_once() {
    let switch = Switch::new(100);
    let (mut a, mut b, mut c) = (machine(&switch, 1), machine(&switch, 2), machine(&switch, 3));
    let mut now = Instant::ZERO;
    let (to_b, of_b, ids) = connect(&mut now, &mut a, &mut b, 2);
    let (to_c, _, _) = connect(&mut now, &mut a, &mut c, 3);
    // One more that is not answered yet.
    let asking = end(&mut a);
    a.node_mut().resolve(TO, gid(2));
    let asked = a.node_mut().connect(now, asking.qp, "0.0.0.0:0".parse().unwrap(), TO, b"ask").unwrap();
    write(now, &mut a, &to_b, &of_b, 100);
    switch.kill(2);
    drop(b);
    run(&mut now, Duration::ZERO, &mut [&mut a, &mut c]);
    let mut events = [a.node_mut().poll_connection(), a.node_mut().poll_connection()];
    events.sort_by_key(|event| event.as_ref().map(|(id, _)| *id));
    let mut expected = [Some((ids[0], ConnectionEvent::Disconnected)), Some((asked, ConnectionEvent::Unreachable))];
    expected.sort_by_key(|event| event.as_ref().map(|(id, _)| *id));
    assert_eq!(events, expected);
    assert_eq!(completed(&mut a, &to_b), [Status::Flushed]);
    assert_eq!((a.node().qp_state(to_b.qp), a.node().qp_state(to_c.qp)), (Some(State::Err), Some(State::Rts)));
    // Whoever lets go of them now has nobody to tell, and nothing stays.
    a.node_mut().destroy(now, ids[0]);
    a.node_mut().destroy(now, asked);
    run(&mut now, Duration::from_secs(100), &mut [&mut a, &mut c]);
    assert_eq!((a.node_mut().poll_connection(), a.deadline()), (None, None));
}

#[test]
fn nobody_speaks_for_somebody_else() {
    let switch = Switch::new(100);
    let (mut a, mut b, mut c) = (machine(&switch, 1), machine(&switch, 2), machine(&switch, 3));
    let mut now = Instant::ZERO;
    let (to_b, of_b, _) = connect(&mut now, &mut a, &mut b, 2);
    let _ = connect(&mut now, &mut c, &mut b, 2);
    Messages::memory_mut(a.node_mut(), to_b.region.key).unwrap().write(0, &[0xaa; 100]);
    write(now, &mut a, &to_b, &of_b, 100);
    // C has the very packet that A sends, and is first.
    a.transmit(now);
    let forged = switch.take(2).pop().unwrap();
    switch.deliver(3, 2, forged.clone());
    run(&mut now, MS, &mut [&mut b, &mut c]);
    assert_eq!(b.traffic().strange, 1);
    assert!(Messages::memory(b.node(), of_b.region.key).unwrap().iter().all(|byte| *byte == 0));
    switch.deliver(1, 2, forged);
    run(&mut now, MS, &mut [&mut b]);
    assert!(Messages::memory(b.node(), of_b.region.key).unwrap()[..100].iter().all(|byte| *byte == 0xaa));
    assert_eq!(switch.mac_of(3), mac(3));
}

#[test]
fn datagrams_go_to_whoever_was_resolved_last() {
    let switch = Switch::new(100);
    let mut a = machine(&switch, 1);
    let path = |a: &Machine, from: &str| a.node().datagram_path(Some(from.parse().unwrap()), TO);
    assert_eq!(path(&a, "0.0.0.0"), None);
    for number in [2, 3] {
        a.node_mut().resolve_datagrams(TO, Some(gid(number)));
        let (path, mtu, ours) = path(&a, "0.0.0.0").unwrap();
        assert_eq!((path.addresses.src(), path.addresses.dst(), mtu, ours), (gid(1), gid(number), Mtu::B4096, TO.ip()));
    }
    assert_eq!(path(&a, "127.0.0.9").map(|(.., ours)| ours), Some(IpAddr::from([127, 0, 0, 9])));
    assert_eq!(path(&a, "::1"), None, "of two families");
    let _three = switch.port(3);
    assert_eq!(a.ways.way(Instant::ZERO, gid(3)), Way::To(mac(3)));
    switch.kill(3);
    let mut now = Instant::ZERO;
    run(&mut now, Duration::ZERO, &mut [&mut a]);
    assert_eq!(path(&a, "0.0.0.0"), None, "who is gone is nobody's address");
    a.node_mut().resolve_datagrams(TO, Some(gid(2)));
    a.node_mut().resolve_datagrams(TO, None);
    assert_eq!(path(&a, "0.0.0.0"), None);
}

/// A message of ten bytes, inline.
fn message(now: Instant, machine: &mut Machine, from: &End, to: &End) {
    let op = SendOp::Write { address: to.region.address, rkey: to.region.key, immediate: Some(7) };
    machine.node_mut().post_send(now, from.qp, &SendWr::new(1, op, Data::Inline(b"ten bytes!"))).unwrap();
}

#[test]
fn acknowledgments_of_few_messages_wait_for_more_and_not_for_long() {
    let switch = Switch::new(100);
    let (mut a, mut b) = (machine_that(&switch, 1, true), machine_that(&switch, 2, true));
    let mut now = Instant::ZERO;
    let (of_a, of_b, _) = connect(&mut now, &mut a, &mut b, 2);
    let receive = |b: &mut Machine, id| b.node_mut().post_recv(Instant::ZERO, of_b.qp, id, &[]).unwrap();
    (0..16).for_each(|id| receive(&mut b, id));
    let mut sent = |now, count: u64, b: &mut Machine| {
        for _ in 0..count {
            message(now, &mut a, &of_a, &of_b);
        }
        a.transmit_due(now);
        assert_eq!(b.take(now), count as usize, "{:?}", b.traffic());
        b.transmit_due(now);
        let count = switch.take(1).len();
        (count, a.node().hca().predicted().sent)
    };
    assert_eq!(sent(now, 1, &mut b), (0, 1));
    now += ACKNOWLEDGES_WITHIN / 2;
    assert_eq!(sent(now, 1, &mut b), (0, 2));
    now += ACKNOWLEDGES_WITHIN / 2;
    assert_eq!(sent(now, 0, &mut b), (1, 2), "they have waited for long enough");
    now += ACKNOWLEDGES_WITHIN;
    assert_eq!(sent(now, 1, &mut b), (0, 3), "and the next one has not");
    b.transmit(now);
    assert_eq!(switch.take(1).len(), 1, "nobody polls any more, perhaps");
    for so_far in [15, 27] {
        assert_eq!(sent(now, 12, &mut b), (0, so_far));
        (0..12).for_each(|id| receive(&mut b, id));
    }
    assert_eq!(sent(now, 9, &mut b), (1, 36), "the peer waits for that, perhaps");
    assert_eq!(b.node().hca().predicted().received, 36, "all of them went the short way");
    assert_eq!(b.traffic().received - b.traffic().strange, b.traffic().received);
    assert_eq!(&Messages::memory(b.node(), of_b.region.key).unwrap()[..11], b"ten bytes!\0");
}

#[test]
fn a_packet_that_is_anothers_goes_no_short_way() {
    let switch = Switch::new(100);
    let (mut a, mut b, mut c) = (machine_that(&switch, 1, true), machine_that(&switch, 2, true), machine_that(&switch, 3, true));
    let mut now = Instant::ZERO;
    let (to_b, of_b, _) = connect(&mut now, &mut a, &mut b, 2);
    let _ = connect(&mut now, &mut c, &mut b, 2);
    b.node_mut().post_recv(now, of_b.qp, 1, &[]).unwrap();
    message(now, &mut a, &to_b, &of_b);
    a.transmit(now);
    let frame = switch.take(2).remove(0);
    // C has the very frame that A sends, and is first.
    let strange = b.traffic().strange;
    switch.deliver(3, 2, frame.clone());
    b.take(now);
    assert_eq!((b.traffic().strange - strange, b.node().hca().predicted().received), (1, 0));
    switch.deliver(1, 2, frame);
    b.take(now);
    assert_eq!((b.traffic().strange - strange, b.node().hca().predicted().received), (1, 1));
}
