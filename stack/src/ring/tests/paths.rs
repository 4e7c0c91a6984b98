//! ICMP errors, forged and true, and neighbours that come, move and go.

use super::*;
use crate::wire::checksum::Checksum;
use crate::wire::tcp::SeqNumber;
use crate::wire::{arp, ethernet, icmp, ipv4};

/// What A sent and nobody polled yet, by frame.
fn last_sent(pair: &Pair) -> Vec<u8> {
    pair.a.queues().out.lock().unwrap().back().cloned().expect("A has sent")
}

/// An ICMP error to A that quotes a frame of A's.
fn error(pair: &Pair, about: &[u8], code: u8, mtu: u16, seq: Option<SeqNumber>) -> Vec<u8> {
    let (header, len) = ipv4::Header::parse(&about[14..]).unwrap();
    let mut quote = about[14..14 + len + icmp::QUOTED_MIN].to_vec();
    if let Some(seq) = seq {
        quote[len + 4..].copy_from_slice(&seq.0.to_be_bytes());
    }
    let message = icmp::Message::DestinationUnreachable { code, mtu, quoted: icmp::Quoted::parse(&quote).unwrap() };
    let mut frame = vec![0; 14 + 20 + icmp::LEN];
    let link = ethernet::Header { dst: pair.a.mac, src: MacAddr([2; 6]), vlan: None, ethertype: ethernet::ETHERTYPE_IPV4 };
    link.emit(&mut frame);
    let mut sum = Checksum::new();
    sum.add(&quote);
    let icmp_len = message.emit(&mut frame[34..], sum) + quote.len();
    let ip = ipv4::Header { src: B4, dst: A4, protocol: ipv4::PROTOCOL_ICMP, total_len: (20 + icmp_len) as u16, ..header };
    ip.emit(&mut frame[14..], true);
    [frame, quote].concat()
}

fn to_a(pair: &mut Pair, frame: Vec<u8>) {
    pair.a.queues().inward.lock().unwrap().push_back(frame);
    pair.a.poll(pair.now);
}

fn seq_of(frame: &[u8]) -> SeqNumber {
    SeqNumber(u32::from_be_bytes(*frame[38..].first_chunk().unwrap()))
}

/// A has bytes in flight, of which B hasn't seen anything yet; the last frame of them.
fn in_flight(pair: &mut Pair, client: FlowId) -> Vec<u8> {
    write(&mut pair.a, pair.now, client, &[7; 20_000]).unwrap();
    last_sent(pair)
}

fn mss(pair: &Pair, socket: FlowId) -> u16 {
    pair.a.info(socket).unwrap().mss
}

#[test]
fn a_true_report_shrinks_every_connection_to_that_host() {
    let mut pair = Pair::new();
    let (client, server, listener) = pair.connected();
    let other = pair.connect(5001);
    pair.settle();
    pair.b.tcp_accept(listener).unwrap();
    let frame = in_flight(&mut pair, client);
    let report = error(&pair, &frame, icmp::CODE_FRAGMENTATION_NEEDED, 1200, None);
    to_a(&mut pair, report);
    assert_eq!((mss(&pair, client), mss(&pair, other)), (1148, 1148));
    let newcomer = pair.connect(5002);
    pair.settle();
    assert_eq!(mss(&pair, newcomer), 1148);
    assert_eq!(read(&mut pair.b, pair.now, server, 65536).map(|b| b.len()), Ok(20_000));
    pair.pass(Duration::from_secs(601));
    let later = pair.connect(5003);
    pair.settle();
    assert_eq!((mss(&pair, client), mss(&pair, later)), (1448, 1448), "ten minutes later it is tried again");
}

/// RFC 1191 s6.4: only the connection that the message is about sends again at once.
#[test]
fn a_report_makes_only_whom_it_is_about_send_again() {
    let mut pair = Pair::new();
    let (client, _, listener) = pair.connected();
    let other = pair.connect(5001);
    pair.settle();
    pair.b.tcp_accept(listener).unwrap();
    write(&mut pair.a, pair.now, other, b"short").unwrap();
    let frame = in_flight(&mut pair, client);
    let report = error(&pair, &frame, icmp::CODE_FRAGMENTATION_NEEDED, 1200, None);
    to_a(&mut pair, report);
    let resent = |socket| pair.a.info(socket).unwrap().counters.retransmissions > 0;
    assert_eq!([client, other].map(resent), [true, false]);
    assert_eq!([client, other].map(|socket| mss(&pair, socket)), [1148, 1148]);
}

#[test]
fn a_forged_report_changes_nothing() {
    let mut pair = Pair::new();
    let (client, ..) = pair.connected();
    let frame = in_flight(&mut pair, client);
    let seq = seq_of(&frame);
    for (off, code, mtu) in [(1 << 20, 4, 576), (1 << 31, 4, 0), (1 << 30, 3, 0), (1 << 24, 1, 0)] {
        let report = error(&pair, &frame, code, mtu, Some(seq + off));
        to_a(&mut pair, report);
    }
    // In the window, but it claims more than fits nowhere.
    let report = error(&pair, &frame, icmp::CODE_FRAGMENTATION_NEEDED, 9000, None);
    to_a(&mut pair, report);
    assert_eq!(mss(&pair, client), 1448);
    assert_eq!(pair.a.info(client).unwrap().state, Some(tcp::State::Established));
    // Even in the window, it cannot make segments tiny.
    let report = error(&pair, &frame, icmp::CODE_FRAGMENTATION_NEEDED, 68, None);
    to_a(&mut pair, report);
    assert_eq!(mss(&pair, client), 500);
}

#[test]
fn a_router_without_a_number_means_the_next_plateau() {
    let mut pair = Pair::new();
    let (client, ..) = pair.connected();
    let mut frame = in_flight(&mut pair, client);
    frame[16..18].copy_from_slice(&1500u16.to_be_bytes());
    let report = error(&pair, &frame, icmp::CODE_FRAGMENTATION_NEEDED, 0, None);
    to_a(&mut pair, report);
    assert_eq!(mss(&pair, client), 1492 - 52);
}

#[test]
fn an_error_ends_a_handshake_but_no_connection() {
    for (code, reason) in [(icmp::CODE_PORT_UNREACHABLE, Error::Refused), (1, Error::HostUnreachable)] {
        let mut pair = Pair::new();
        pair.a.set_neighbour(B, Some(pair.b.mac));
        let client = pair.connect(5000);
        let syn = last_sent(&pair);
        let blind = error(&pair, &syn, code, 0, Some(seq_of(&syn) + 1));
        to_a(&mut pair, blind);
        // RFC 1191's report about a SYN, which is as short as can be, can only be a lie.
        let absurd = error(&pair, &syn, icmp::CODE_FRAGMENTATION_NEEDED, 40, None);
        to_a(&mut pair, absurd);
        assert_eq!(pair.a.info(client).unwrap().state, Some(tcp::State::SynSent));
        let told = error(&pair, &syn, code, 0, None);
        to_a(&mut pair, told);
        assert_eq!(pair.a.take_error(client), Some(reason));

        let mut pair = Pair::new();
        let (client, server, _) = pair.connected();
        let frame = in_flight(&mut pair, client);
        let told = error(&pair, &frame, code, 0, None);
        to_a(&mut pair, told);
        pair.settle();
        assert_eq!(read(&mut pair.b, pair.now, server, 65536).map(|b| b.len()), Ok(20_000));
        assert_eq!(pair.a.take_error(client), None);
    }
}

#[test]
fn a_connected_udp_socket_hears_that_a_datagram_was_too_long() {
    let mut pair = Pair::new();
    pair.a.set_neighbour(B, Some(pair.b.mac));
    let a = pair.a.udp_open(SocketAddr::new(A, 1000), &UdpOptions::default()).unwrap();
    let to = (SocketAddr::new(B, 9), NextHop::Neighbour(B));
    pair.a.udp_connect(a, IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), Some(to)).unwrap();
    pair.a.udp_send(pair.now, a, &[IoSlice::new(&[1; 1400])], A, None).unwrap();
    let frame = last_sent(&pair);
    let report = error(&pair, &frame, icmp::CODE_FRAGMENTATION_NEEDED, 1000, None);
    to_a(&mut pair, report);
    assert_eq!(pair.a.udp_recv(a, &mut [], RecvFlags::empty()).unwrap_err(), Error::MessageTooLong);
}

/// Gives B another Ethernet address.
fn move_b(pair: &mut Pair, announce: bool) {
    pair.b.queues_mut().mac = MacAddr([2, 0, 0, 0, 1, 2]);
    pair.b.readdress(announce);
}

#[test]
fn an_announcement_moves_a_known_neighbour_and_enters_no_unknown_one() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    move_b(&mut pair, true);
    pair.settle();
    write(&mut pair.a, pair.now, client, b"found").unwrap();
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, server, 8), Ok(b"found".to_vec()));

    let stranger = std::net::Ipv4Addr::new(10, 0, 0, 77);
    let claim = arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: MacAddr([2; 6]),
        sender_ip: stranger,
        target_mac: MacAddr::default(),
        target_ip: stranger,
    };
    let mut frame = [0; 64];
    let link = ethernet::Header { dst: MacAddr::BROADCAST, src: MacAddr([2; 6]), vlan: None, ethertype: ethernet::ETHERTYPE_ARP };
    let at = link.emit(&mut frame);
    claim.emit(&mut frame[at..]);
    let before = pair.a.counters().rx_drops;
    to_a(&mut pair, frame.to_vec());
    assert_eq!(pair.a.counters().rx_drops, before + 1);
}

/// What anybody can send, through any router: a SYN to A's port 80 in B's name, from a MAC address where B is not.
fn forged_syn(pair: &Pair) -> Vec<u8> {
    let (a_ip, b_ip) = (A4.octets(), B4.octets());
    let mut syn = vec![0; 54];
    syn[..6].copy_from_slice(&pair.a.mac.0);
    syn[6..12].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
    syn[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    syn[16..18].copy_from_slice(&40u16.to_be_bytes());
    (syn[22], syn[23]) = (64, 6);
    syn[26..30].copy_from_slice(&b_ip);
    syn[30..34].copy_from_slice(&a_ip);
    syn[34..38].copy_from_slice(&[0, 9, 0, 80]);
    (syn[46], syn[47], syn[48]) = (0x50, 2, 200);
    for (at, from, to, pseudo) in [(24, 14, 34, false), (50, 34, 54, true)] {
        let mut sum = Checksum::new();
        if pseudo {
            sum.add(&[&b_ip[..], &a_ip, &[0, 6, 0, 20]].concat());
        }
        sum.add(&syn[from..to]);
        let sum = sum.finish();
        syn[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    syn
}

/// It must not take what is for that neighbour elsewhere.
#[test]
fn a_syn_moves_no_neighbour_that_is_known() {
    let mut pair = Pair::new();
    pair.a.tcp_listen(SocketAddr::new(A, 80), 4, &tcp::Config::default()).unwrap();
    let (client, server, _) = pair.connected();
    let before = pair.a.counters().tx_packets;
    let syn = forged_syn(&pair);
    to_a(&mut pair, syn);
    assert_eq!(pair.a.counters().tx_packets, before + 1, "it is answered");
    write(&mut pair.a, pair.now, client, b"still here").unwrap();
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, server, 16), Ok(b"still here".to_vec()));
}

/// Found by the simulator: a connection that came to a ring which knew its neighbour by such a SYN alone was lost.
#[test]
fn what_a_syn_says_of_a_neighbour_that_is_not_known_is_for_its_answer_alone() {
    let mut pair = Pair::new();
    pair.a.tcp_listen(SocketAddr::new(A, 80), 4, &tcp::Config::default()).unwrap();
    pair.b.tcp_listen(SocketAddr::new(B, 80), 4, &tcp::Config::default()).unwrap();
    let syn = forged_syn(&pair);
    to_a(&mut pair, syn.clone());
    let answer = last_sent(&pair);
    assert_eq!((&answer[..6], pair.a.counters().tx_packets), (&[2, 9, 9, 9, 9, 9][..], 1), "it is answered there, and nobody is asked");
    // A's own connection asks, and another such SYN meanwhile is no answer.
    let client = pair.connect(5000);
    to_a(&mut pair, syn);
    pair.settle();
    assert_eq!(pair.a.info(client).unwrap().state, Some(tcp::State::Established));
    assert!(pair.now < Instant::ZERO + Duration::from_secs(1), "it waited for no timer");
}

/// RFC 4861 s7.3.1: who answers a SYN-ACK has read it. (Else each server asked once more for each of its clients.)
#[test]
fn who_completes_a_handshake_is_where_it_said() {
    let mut pair = Pair::new();
    pair.a.tcp_listen(SocketAddr::new(A, 80), 4, &tcp::Config::default()).unwrap();
    let (listener, client) = (pair.b.tcp_listen(SocketAddr::new(B, 80), 4, &tcp::Config::default()).unwrap(), pair.connect(5000));
    pair.settle();
    let server = pair.b.tcp_accept(listener).unwrap();
    let before = pair.b.counters().tx_packets;
    write(&mut pair.b, pair.now, server, b"hello").unwrap();
    assert_eq!(pair.b.counters().tx_packets, before + 1, "and no question");
    pair.settle();
    assert_eq!(read(&mut pair.a, pair.now, client, 16), Ok(b"hello".to_vec()));
}

/// As Linux's NUD_PERMANENT.
#[test]
fn an_announcement_moves_no_neighbour_that_was_taught() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    let mac = pair.b.mac;
    pair.a.set_neighbour(B, Some(mac));
    let claim = arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: MacAddr([2; 6]),
        sender_ip: B4,
        target_mac: MacAddr::default(),
        target_ip: B4,
    };
    let mut frame = [0; 64];
    let link = ethernet::Header { dst: MacAddr::BROADCAST, src: MacAddr([2; 6]), vlan: None, ethertype: ethernet::ETHERTYPE_ARP };
    let at = link.emit(&mut frame);
    claim.emit(&mut frame[at..]);
    to_a(&mut pair, frame.to_vec());
    write(&mut pair.a, pair.now, client, b"still here").unwrap();
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, server, 16), Ok(b"still here".to_vec()));
}

#[test]
fn a_neighbour_that_moved_silently_is_asked_for_once_its_entry_is_old() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    move_b(&mut pair, false);
    pair.pass(Duration::from_secs(31));
    write(&mut pair.a, pair.now, client, b"where?").unwrap();
    // Three questions to the old address, one to everyone; then the timer's next retransmission.
    pair.pass(Duration::from_secs(8));
    assert_eq!(read(&mut pair.b, pair.now, server, 8), Ok(b"where?".to_vec()));
}

#[test]
fn a_neighbour_that_stays_is_asked_now_and_then_and_used_meanwhile() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    pair.pass(Duration::from_secs(31));
    let before = pair.a.counters().tx_packets;
    write(&mut pair.a, pair.now, client, b"hello").unwrap();
    assert_eq!(pair.a.counters().tx_packets - before, 2, "the segment, and the question");
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, server, 8), Ok(b"hello".to_vec()));
    pair.pass(Duration::from_secs(5));
    assert!(pair.a.neighbours.next_deadline().is_none_or(|at| at <= pair.now), "it has answered");
}

/// Found by the simulator (all faults, seed 2): the connection waited for an answer to a question that had been taken back.
#[test]
fn a_neighbour_that_is_forgotten_while_it_is_asked_is_asked_on() {
    let mut pair = Pair::new();
    pair.b.tcp_listen(SocketAddr::new(B, 80), 4, &tcp::Config::default()).unwrap();
    let client = pair.connect(5000);
    pair.a.queues().out.lock().unwrap().clear();
    pair.a.set_neighbour(B, None);
    pair.pass(Duration::from_secs(2));
    assert_eq!(pair.a.info(client).unwrap().state, Some(tcp::State::Established));
}

#[test]
fn a_full_neighbour_table_refuses_no_question() {
    let mut pair = Pair::new();
    for n in 0..5000 {
        pair.a.neighbours.learn_asker(pair.now, IpAddr::V4(std::net::Ipv4Addr::from_bits(n)), MacAddr([2; 6]));
    }
    let (client, ..) = pair.connected();
    assert_eq!(pair.a.info(client).unwrap().state, Some(tcp::State::Established));
}

#[test]
fn a_dead_neighbour_ends_a_connection_that_has_something_to_say() {
    let mut pair = Pair::new();
    let (client, ..) = pair.connected();
    pair.a.tcp_configure(pair.now, client, |config| config.retries = 3).unwrap();
    pair.pass(Duration::from_secs(31));
    // B is gone: nothing that A sends gets anywhere any more.
    let void = Wire::default();
    pair.a.queues_mut().out = void.clone();
    pair.a.set_neighbour(B, None);
    write(&mut pair.a, pair.now, client, b"anyone?").unwrap();
    let mut asked = 0;
    for _ in 0..600 {
        pair.pass(Duration::from_millis(100));
        asked += void.lock().unwrap().drain(..).count();
    }
    assert_eq!(pair.a.take_error(client), Some(Error::HostUnreachable));
    assert!(asked < 30, "{asked} frames");
}

#[test]
fn a_carrier_that_comes_back_wakes_what_waits() {
    let mut pair = Pair::new();
    let (client, server, _) = pair.connected();
    let (wire, void) = (pair.a.queues().out.clone(), Wire::default());
    pair.a.queues_mut().out = void;
    pair.a.queues_mut().events.push_back(DeviceEvent::Link { up: false });
    write(&mut pair.a, pair.now, client, b"later").unwrap();
    pair.pass(Duration::from_millis(3500));
    pair.a.queues_mut().out = wire;
    pair.a.queues_mut().events.push_back(DeviceEvent::Link { up: true });
    pair.settle();
    assert_eq!(read(&mut pair.b, pair.now, server, 8), Ok(b"later".to_vec()));
}

/// Found by the simulator (162/loss+corruption+hidden_corruption+mtu+send_error+send_full+neighbour/5/handover): the flow waited for a second,
/// as if its request had been lost on the wire.
#[test]
fn a_request_that_the_device_refuses_is_made_up_for_at_once() {
    let mut pair = Pair::new();
    let listener = pair.b.tcp_listen(SocketAddr::new(B, 80), 4, &tcp::Config::default()).unwrap();
    pair.a.set_neighbour(B, None);
    pair.a.queues_mut().room = 0;
    let client = pair.connect(5000);
    pair.a.queues_mut().room = usize::MAX;
    pair.pass(Duration::from_millis(20));
    assert_eq!(pair.a.info(client).unwrap().state, Some(tcp::State::Established));
    assert!(pair.b.tcp_accept(listener).is_ok());
}

/// Found by the simulator (195243/none/9/abort+meeting): a host whose send queue was full swallowed the question, and whoever had asked
/// waited for a second.
#[test]
fn an_answer_that_the_device_refuses_is_given_as_soon_as_it_takes_frames() {
    let mut pair = Pair::new();
    let listener = pair.b.tcp_listen(SocketAddr::new(B, 80), 4, &tcp::Config::default()).unwrap();
    pair.a.set_neighbour(B, None);
    pair.b.queues_mut().room = 0;
    let client = pair.connect(5000);
    pair.b.queues_mut().room = usize::MAX;
    pair.pass(Duration::from_millis(20));
    assert_eq!(pair.a.info(client).unwrap().state, Some(tcp::State::Established));
    assert!(pair.b.tcp_accept(listener).is_ok());
}

/// Found by the simulator (16277/flap/0/idle): who had waited for the device longest sent as others were told of the link, and again when told itself.
#[test]
fn what_timed_out_is_sent_once_when_the_link_comes_up() {
    let mut pair = Pair::new();
    let (first, ..) = pair.connected();
    let second = pair.connect(5001);
    pair.settle();
    let wire = core::mem::take(&mut pair.a.queues_mut().out);
    for client in [first, second] {
        write(&mut pair.a, pair.now, client, b"lost").unwrap();
    }
    pair.a.queues_mut().room = 0;
    pair.pass(Duration::from_millis(300));
    let retransmissions = |pair: &Pair| [first, second].map(|id| pair.a.info(id).unwrap().counters.retransmissions);
    assert_eq!(retransmissions(&pair), [0, 0], "the device takes nothing");
    pair.a.queues_mut().out = wire;
    pair.a.queues_mut().room = usize::MAX;
    pair.a.queues_mut().events.push_back(DeviceEvent::Link { up: true });
    pair.a.poll(pair.now);
    assert_eq!(retransmissions(&pair), [1, 1]);
    let counters = pair.a.counters();
    assert_eq!((counters.retransmissions, counters.retransmitted_bytes), (2, 8), "the ring counts them as well");
}

/// Beside a kernel, whose are all answers, the ring's owner asks it. Nothing leaves before that has an answer, and then what waited does.
#[test]
fn beside_a_kernel_the_owner_is_asked_for_neighbours() {
    let mut pair = Pair::new();
    pair.a.neighbours = Neighbours::new(true);
    let listener = pair.b.tcp_listen(SocketAddr::new(B, 80), 4, &tcp::Config::default()).unwrap();
    let client = pair.connect(5000);
    assert_eq!((pair.a.take_neighbour_question(), pair.a.take_neighbour_question()), (Some(B), None));
    // Who has not been answered is asked again, by the ring's own clock.
    pair.pass(Duration::from_millis(1500));
    assert_eq!((pair.a.take_neighbour_question(), pair.a.counters().tx_packets), (Some(B), 0));
    pair.a.set_neighbour(B, Some(pair.b.queues.mac));
    pair.settle();
    assert_eq!(pair.a.info(client).unwrap().state, Some(tcp::State::Established));
    assert!(pair.b.tcp_accept(listener).is_ok() && !pair.a.has_neighbour_questions());
    // What is in use is said to be so, and goes on meanwhile.
    pair.pass(Duration::from_secs(6));
    write(&mut pair.a, pair.now, client, b"?").unwrap();
    assert_eq!((pair.a.take_neighbour_question(), pair.a.counters().tx_packets), (Some(B), 3));
}

#[test]
fn a_neighbour_of_whom_the_kernel_says_nothing_is_unreachable_in_the_end() {
    let mut pair = Pair::new();
    pair.a.neighbours = Neighbours::new(true);
    let client = pair.connect(5000);
    pair.pass(Duration::from_secs(9));
    assert_eq!(pair.a.take_error(client), None);
    pair.pass(Duration::from_secs(2));
    assert_eq!((pair.a.take_error(client), pair.a.counters().tx_packets), (Some(Error::HostUnreachable), 0));
}

#[test]
fn who_waits_for_a_neighbour_that_failed_hears_it_at_once() {
    let mut pair = Pair::new();
    pair.a.neighbours = Neighbours::new(true);
    let client = pair.connect(5000);
    let to = SocketAddr::new(B, 9);
    let mut open = |port, peer| {
        let flow = pair.a.udp_open(SocketAddr::new(A, port), &UdpOptions::default()).unwrap();
        let hop = NextHop::Neighbour(B);
        if peer {
            pair.a.udp_connect(flow, A, Some((to, hop))).unwrap();
        }
        pair.a.udp_send(pair.now, flow, &[IoSlice::new(b"?")], A, (!peer).then_some((to, hop))).unwrap();
        flow
    };
    let (with_peer, without) = (open(6000, true), open(6001, false));
    pair.a.neighbour_failed(pair.now, B);
    let errors = [client, with_peer, without].map(|flow| pair.a.take_error(flow));
    assert_eq!(
        errors,
        [Some(Error::HostUnreachable), Some(Error::HostUnreachable), None],
        "who has no peer never asked (RFC 1122 s4.1.3.3)"
    );
}

/// A program's options are written over all of a configuration: what is the device's in it stays so.
#[test]
fn whatever_is_configured_a_connection_keeps_to_what_the_device_can_do() {
    let mut pair = Pair::new();
    let (client, ..) = pair.connected();
    let before = pair.a.slots.stream(client).unwrap().connection.config().clone();
    let asked = tcp::Config {
        nodelay: true,
        mss_max: u16::MAX,
        gather_max: 99,
        family: tcp::Family::V6,
        urgent_waits: true,
        ..tcp::Config::default()
    };
    pair.a.tcp_configure(pair.now, client, |config| config.clone_from(&asked)).unwrap();
    let now = pair.a.slots.stream(client).unwrap().connection.config().clone();
    assert!(now.nodelay);
    let of_device = |config: &tcp::Config| (config.mss_max, config.gather_max, config.family, config.tso_max, config.time_wait);
    assert_eq!(of_device(&now), of_device(&before));
    assert_eq!((now.mss_max, now.gather_max, now.urgent_waits), (1460, 8, false));
}

#[test]
fn errors_that_may_pass_are_told_to_datagram_sockets_that_are_to_hear_them() {
    for passing_errors in [true, false] {
        let mut pair = Pair::new();
        pair.a.neighbours = Neighbours::new(true);
        let to = SocketAddr::new(B, 9);
        let flow = pair.a.udp_open(SocketAddr::new(A, 6000), &UdpOptions { passing_errors, ..UdpOptions::default() }).unwrap();
        pair.a.udp_connect(flow, A, Some((to, NextHop::Neighbour(B)))).unwrap();
        pair.a.udp_send(pair.now, flow, &[IoSlice::new(b"?")], A, None).unwrap();
        pair.a.neighbour_failed(pair.now, B);
        assert_eq!(pair.a.readiness(flow).contains(Readiness::ERR), passing_errors);
        assert_eq!(pair.a.take_error(flow), passing_errors.then_some(Error::HostUnreachable));
    }
}

/// Linux's icmp_err_convert, and what udp(7) tells a socket with a peer.
#[test]
fn a_routers_refusal_that_lasts_is_told_to_every_datagram_socket_with_a_peer() {
    let told = [(0, false), (1, false), (2, true), (3, true), (5, false), (9, true), (10, true), (12, false), (13, true)];
    for (code, lasts) in told {
        for passing_errors in [true, false] {
            let mut pair = Pair::new();
            pair.a.set_neighbour(B, Some(pair.b.mac));
            let flow = pair.a.udp_open(SocketAddr::new(A, 6000), &UdpOptions { passing_errors, ..UdpOptions::default() }).unwrap();
            let to = (SocketAddr::new(B, 9), NextHop::Neighbour(B));
            pair.a.udp_connect(flow, A, Some(to)).unwrap();
            pair.a.udp_send(pair.now, flow, &[IoSlice::new(b"?")], A, None).unwrap();
            let refusal = error(&pair, &last_sent(&pair), code, 0, None);
            to_a(&mut pair, refusal);
            let reason = if matches!(code, 2 | 3) { Error::Refused } else { Error::HostUnreachable };
            assert_eq!(pair.a.take_error(flow), (lasts || passing_errors).then_some(reason), "{code}");
        }
    }
}
