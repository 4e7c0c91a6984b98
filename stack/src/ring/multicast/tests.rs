use std::io::IoSliceMut;

use super::*;
use crate::ring::tests::{A, A4, B, B4, Pair};
use crate::ring::{NextHop, RecvFlags, RingConfig, UdpOptions};

const GROUP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(239, 129, 2, 3));

fn open(ring: &mut Ring<impl Queues>, local: IpAddr, port: u16) -> FlowId {
    ring.udp_open(SocketAddr::new(local, port), &UdpOptions::default()).unwrap()
}

fn tell(pair: &mut Pair, from: FlowId, bytes: &[u8]) {
    let to = Some((SocketAddr::new(GROUP, 7000), NextHop::Neighbour(GROUP)));
    assert_eq!(pair.a.udp_send(pair.now, from, &[IoSlice::new(bytes)], A, to), Ok(bytes.len()));
    pair.settle();
}

fn hear(ring: &mut Ring<impl Queues>, id: FlowId) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; 2000];
    let got = ring.udp_recv(id, &mut [IoSliceMut::new(&mut bytes)], RecvFlags::empty())?;
    assert_eq!((got.from, got.to), (SocketAddr::new(A, 5000), GROUP));
    bytes.truncate(got.copied);
    Ok(bytes)
}

/// Frames on their way to B.
fn frames(pair: &Pair) -> Vec<Vec<u8>> {
    pair.a.queues().out.lock().unwrap().iter().cloned().collect()
}

#[test]
fn every_member_gets_its_copy_and_nobody_else() {
    let mut pair = Pair::new();
    let speaker = open(&mut pair.a, A, 5000);
    let (any, bound) = (open(&mut pair.b, IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 7000), open(&mut pair.b, GROUP, 7000));
    let other_port = open(&mut pair.b, IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 7001);
    tell(&mut pair, speaker, b"too early");
    for member in [any, bound, other_port] {
        pair.b.udp_join(pair.now, member, GROUP, B).unwrap();
    }
    let long = vec![7; 1000];
    for bytes in [&b"one"[..], b"", &long] {
        tell(&mut pair, speaker, bytes);
        assert_eq!(hear(&mut pair.b, any), Ok(bytes.to_vec()));
        assert_eq!(hear(&mut pair.b, bound), Ok(bytes.to_vec()));
    }
    assert_eq!(hear(&mut pair.b, other_port), Err(Error::WouldBlock));
    pair.b.udp_leave(pair.now, any, GROUP).unwrap();
    tell(&mut pair, speaker, b"two");
    assert_eq!(hear(&mut pair.b, any), Err(Error::WouldBlock));
    assert_eq!(hear(&mut pair.b, bound), Ok(b"two".to_vec()));
}

#[test]
fn a_sender_hears_itself_unless_it_says_otherwise() {
    let mut pair = Pair::new();
    let speaker = open(&mut pair.a, A, 5000);
    let own = open(&mut pair.a, IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 7000);
    pair.a.udp_join(pair.now, own, GROUP, A).unwrap();
    tell(&mut pair, speaker, b"heard");
    assert_eq!(hear(&mut pair.a, own), Ok(b"heard".to_vec()));
    pair.a.udp_configure(speaker, |options| options.multicast_loop = false).unwrap();
    tell(&mut pair, speaker, b"unheard");
    assert_eq!(hear(&mut pair.a, own), Err(Error::WouldBlock));
}

/// RFC 1112 s6.4 and s6.1.
#[test]
fn datagrams_go_to_the_groups_own_mac_address_and_no_further_than_the_link() {
    let mut pair = Pair::new();
    let speaker = open(&mut pair.a, A, 5000);
    let to = Some((SocketAddr::new(GROUP, 7000), NextHop::Neighbour(GROUP)));
    pair.a.udp_send(pair.now, speaker, &[IoSlice::new(b"x")], A, to).unwrap();
    pair.a.udp_configure(speaker, |options| options.multicast_ttl = 9).unwrap();
    pair.a.udp_send(pair.now, speaker, &[IoSlice::new(b"x")], A, to).unwrap();
    let sent = frames(&pair);
    // 129 is 1 without its high bit.
    assert!(sent.iter().all(|frame| frame[..6] == [0x01, 0x00, 0x5e, 0x01, 2, 3]));
    assert_eq!(sent.iter().map(|frame| frame[22]).collect::<Vec<_>>(), [1, 9]);
}

/// RFC 2236 s2, s3, s9: time to live 1, a router alert, to the group; once more within ten seconds; leaving is told to all routers.
#[test]
fn membership_is_reported_twice_and_its_end_once() {
    let mut pair = Pair::new();
    let (one, two) = (
        open(&mut pair.a, IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 7000),
        open(&mut pair.a, IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 7001),
    );
    pair.a.udp_join(pair.now, one, GROUP, A).unwrap();
    pair.a.udp_join(pair.now, two, GROUP, A).unwrap();
    let report = frames(&pair);
    assert_eq!(report.len(), 1, "the second member of a ring changes nothing");
    let frame = &report[0];
    assert_eq!(frame[..6], [0x01, 0x00, 0x5e, 0x01, 2, 3]);
    assert_eq!((frame[14], frame[22], frame[23], &frame[34..38]), (0x46, 1, 2, &[0x94, 0x04, 0, 0][..]));
    assert_eq!((frame[38], &frame[42..46]), (0x16, &[239, 129, 2, 3][..]));
    assert_eq!(crate::wire::checksum::sum(&frame[14..38]), 0xffff);
    pair.settle();
    let until = pair.a.next_deadline().expect("the report is repeated");
    assert!(until <= pair.now + Duration::from_secs(10));
    pair.a.poll(until);
    assert_eq!(frames(&pair).len(), 1);
    pair.settle();
    pair.a.udp_leave(pair.now, one, GROUP).unwrap();
    assert_eq!(frames(&pair).len(), 0);
    pair.a.close(pair.now, two, false);
    let leave = frames(&pair);
    assert_eq!((leave.len(), leave[0][38], &leave[0][30..34]), (1, 0x17, &[224, 0, 0, 2][..]));
    assert_eq!(pair.a.next_deadline(), None);
}

#[test]
fn a_query_is_answered_in_time_unless_another_member_does() {
    let mut pair = Pair::new();
    for (ring, ip) in [(&mut pair.a, A), (&mut pair.b, B)] {
        let member = open(ring, IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 7000);
        ring.udp_join(pair.now, member, GROUP, ip).unwrap();
    }
    pair.pass(Duration::from_secs(20));
    assert_eq!((pair.a.next_deadline(), pair.b.next_deadline()), (None, None));
    let query = Message::Query { group: None, max_response_ds: 20 };
    pair.a.on_igmp(pair.now, ALL_SYSTEMS, &query.emit_packet(B4, ALL_SYSTEMS, 1)[24..]).unwrap();
    pair.b.on_igmp(pair.now, ALL_SYSTEMS, &query.emit_packet(A4, ALL_SYSTEMS, 1)[24..]).unwrap();
    let (a, b) = (pair.a.next_deadline().unwrap(), pair.b.next_deadline().unwrap());
    assert!(a.max(b) <= pair.now + Duration::from_secs(2) && a != b);
    let before = pair.a.counters().tx_packets + pair.b.counters().tx_packets;
    pair.pass(Duration::from_secs(3));
    assert_eq!(pair.a.counters().tx_packets + pair.b.counters().tx_packets, before + 1, "one report is enough");
    assert_eq!((pair.a.next_deadline(), pair.b.next_deadline()), (None, None));
    let mut corrupted = query.emit_packet(B4, ALL_SYSTEMS, 1);
    corrupted[30] ^= 1;
    assert_eq!(pair.a.on_igmp(pair.now, ALL_SYSTEMS, &corrupted[24..]), None);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut pair = Pair::new();
    let socket = open(&mut pair.a, IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 7000);
    assert_eq!(pair.a.udp_join(pair.now, socket, B, A), Err(Error::Invalid));
    assert_eq!(pair.a.udp_leave(pair.now, socket, GROUP), Err(Error::AddressNotAvailable));
    pair.a.udp_join(pair.now, socket, GROUP, A).unwrap();
    assert_eq!(pair.a.udp_join(pair.now, socket, GROUP, A), Err(Error::AddressInUse));
    for n in 1..20 {
        pair.a.udp_join(pair.now, socket, IpAddr::V4(std::net::Ipv4Addr::new(239, 0, 0, n)), A).unwrap();
    }
    assert_eq!(pair.a.udp_join(pair.now, socket, IpAddr::V4(std::net::Ipv4Addr::new(239, 0, 0, 99)), A), Err(Error::NoBuffers));
    assert!(RingConfig::default().addresses.is_empty() && !pair.a.groups.hears(IpAddr::V4(std::net::Ipv4Addr::new(239, 0, 0, 99))));
}

#[test]
fn rules_come_with_the_first_member_and_go_with_the_last() {
    let mut pair = Pair::new();
    let (any, bound) = (open(&mut pair.a, IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 7000), open(&mut pair.a, GROUP, 7000));
    let rules = |pair: &Pair| pair.a.queues().table().rules.len();
    assert_eq!(rules(&pair), 1, "a socket that is bound to a group is no member yet");
    pair.a.udp_join(pair.now, any, GROUP, A).unwrap();
    pair.a.udp_join(pair.now, bound, GROUP, A).unwrap();
    assert_eq!(rules(&pair), 2);
    pair.a.close(pair.now, any, false);
    assert_eq!(rules(&pair), 1);
    pair.a.close(pair.now, bound, false);
    assert_eq!(rules(&pair), 0);
}

/// Where a kernel is beside the device, it is the kernel that reports, counts and may have the group back.
#[test]
fn beside_a_kernel_nothing_is_reported_and_the_kernel_may_have_a_group_back() {
    let mut pair = Pair::new();
    pair.b.output.caps.is_beside_kernel = true;
    let speaker = open(&mut pair.a, A, 5000);
    let (one, two) = (open(&mut pair.b, GROUP, 7000), open(&mut pair.b, IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 7000));
    pair.b.udp_join(pair.now, one, GROUP, B).unwrap();
    pair.b.udp_listen(pair.now, two, GROUP, B, Filter::Exclude(BTreeSet::from([A]))).unwrap();
    for n in 0..30 {
        pair.b.udp_join(pair.now, two, IpAddr::V4(std::net::Ipv4Addr::new(239, 0, 0, n)), B).unwrap();
    }
    assert_eq!((pair.b.counters().tx_packets, pair.b.next_deadline()), (0, None), "nothing is reported, now or later");
    tell(&mut pair, speaker, b"by the ring");
    let rules = |pair: &Pair| pair.b.queues().table().rules.len();
    let before = rules(&pair);
    pair.b.udp_leave_group_to_kernel(SocketAddr::new(GROUP, 7000));
    assert_eq!(rules(&pair), before - 1);
    // (Here nothing but the ring takes frames: it stands for one that had come before.)
    tell(&mut pair, speaker, b"on its way");
    assert_eq!([hear(&mut pair.b, one), hear(&mut pair.b, one)], [Ok(b"by the ring".to_vec()), Ok(b"on its way".to_vec())]);
    assert_eq!(hear(&mut pair.b, two), Err(Error::WouldBlock));
    for member in [one, two] {
        pair.b.udp_leave(pair.now, member, GROUP).unwrap();
    }
    assert_eq!(rules(&pair), before - 1);
    pair.b.udp_join(pair.now, one, GROUP, B).unwrap();
    assert_eq!(rules(&pair), before, "and the ring has it again");
    assert_eq!(pair.b.counters().tx_packets, 0);
}
