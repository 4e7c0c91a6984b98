//! A peer that changes the queue which its frames come by, in the middle of what it does: it is one of ours, with a ring on each queue of its end.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use ringway_host::Clock;
use ringway_stack::Error;
use ringway_stack::device::{Device as _, FlowRule, HEAD_MAX, Protocol, QueueId, Queues as _, Target, TxFrame, TxOffload};
use ringway_stack::ring::{FlowId, NextHop, RecvFlags, Ring, RingConfig, SendFlags, UdpOptions};
use ringway_stack::tcp::Config;
use ringway_stack::wire::checksum::Checksum;
use ringway_stack::wire::tcp::{Flags, Options, SeqNumber};
use ringway_stack::wire::{ethernet, ipv4, tcp};
use ringway_xdp::{Settings, XdpDevice, XdpQueues};

use crate::link::{Cable, Link, OUR_MAC, PEERS_MAC};
use crate::world::{PATIENCE, on_link};

const QUEUES: u32 = 4;

type Rings = Vec<Ring<XdpQueues>>;

/// Both ends.
struct Ends {
    clock: Clock,
    here: Rings,
    there: Rings,
    local: SocketAddr,
    remote: SocketAddr,
}

fn rings(interface: &str, address: IpAddr, seed: u8) -> Rings {
    let device = XdpDevice::attach(&Settings::new(interface)).expect("an interface with XDP");
    let config = |number| RingConfig { number, addresses: vec![address], ..RingConfig::default() };
    let queues = device.open_rings(QUEUES).expect("its rings");
    (0..).zip(queues).map(|(number, queues)| Ring::new(queues, config(number), [seed + number as u8; 32])).collect()
}

/// Runs a test over each family that is asked for.
fn with_ends(families: &[bool], test: impl Fn(&mut Ends) + Sync) {
    for &is_v6 in families {
        on_link(Cable { is_v6, queues: QUEUES, ..Cable::default() }, |link: Link| {
            let (ours, theirs) = (link.local, link.remote);
            let there = link.as_peer(move || rings("b0", theirs, 50)).join().expect("the peer");
            let [local, remote] = [(ours, 5001), (theirs, 9001)].map(SocketAddr::from);
            test(&mut Ends { clock: Clock::system(), here: rings("a0", ours, 7), there, local, remote });
        });
    }
}

fn of(rings: &mut Rings, flow: FlowId) -> &mut Ring<XdpQueues> {
    &mut rings[usize::from(flow.ring)]
}

fn passed_on(rings: &Rings) -> u64 {
    rings.iter().map(|ring| ring.queues().counters().passed_on).sum()
}

impl Ends {
    fn until<T>(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        let end = self.clock.now() + PATIENCE;
        loop {
            let now = self.clock.now();
            self.here.iter_mut().chain(&mut self.there).for_each(|ring| _ = ring.poll(now));
            if let Some(result) = done(self) {
                return result;
            }
            assert!(now < end, "not within {PATIENCE:?}: {what}");
        }
    }

    /// Has one end say something, and the other hear it.
    fn say(&mut self, is_there: bool, from: FlowId, to: FlowId) {
        let now = self.clock.now();
        let speaker = if is_there { &mut self.there } else { &mut self.here };
        assert_eq!(of(speaker, from).tcp_send(now, from, &[IoSlice::new(&[7; 1000])], SendFlags::empty()), Ok(1000));
        let mut heard = 0;
        self.until("what was said", |ends| {
            let now = ends.clock.now();
            let listener = if is_there { &mut ends.here } else { &mut ends.there };
            match of(listener, to).tcp_recv(now, to, &mut [IoSliceMut::new(&mut [0; 2000])], RecvFlags::empty()) {
                Ok(len) => heard += len,
                Err(error) => assert_eq!(error, Error::WouldBlock),
            }
            (heard == 1000).then_some(())
        });
    }
}

#[test]
fn a_connection_that_was_accepted_is_found_whatever_queue_it_comes_by_later() {
    with_ends(&[false, true], |ends| {
        let (now, local, remote) = (ends.clock.now(), ends.local, ends.remote);
        let listeners: Vec<_> = ends.here.iter_mut().map(|ring| ring.tcp_listen(local, 4, &Config::default()).expect("room")).collect();
        let hop = NextHop::Mac(OUR_MAC);
        let mut theirs = ends.there[0].tcp_connect(now, remote, local, hop, &Config::default()).expect("room");
        let ours = ends
            .until("a connection", |ends| listeners.iter().find_map(|&listener| of(&mut ends.here, listener).tcp_accept(listener).ok()));
        assert_eq!(ours.ring, 0, "who sends by a queue comes by the other end's of that number");
        for ring in [2, 1, 3, 0] {
            ends.say(true, theirs, ours);
            ends.say(false, ours, theirs);
            let now = ends.clock.now();
            let handover = of(&mut ends.there, theirs).detach_stream(now, theirs).expect("it is established");
            theirs = ends.there[ring].adopt(now, handover).map_err(|(error, _)| error).expect("room");
        }
        ends.say(true, theirs, ours);
        // (On their side, the connection has a rule of its own; on ours it came by the listener's, and is looked for.)
        assert!(passed_on(&ends.here) > 0 && passed_on(&ends.there) > 0);
        let resets = |rings: &Rings| rings.iter().map(|ring| ring.counters().rx_drops).sum::<u64>();
        assert_eq!((resets(&ends.here), resets(&ends.there)), (0, 0), "nothing was for nobody");
    });
}

/// A SYN from the peer to us.
fn syn((remote, local): (SocketAddr, SocketAddr), seq: u32) -> Vec<u8> {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (remote.ip(), local.ip()) else { panic!("addresses of IPv4") };
    let mut bytes = vec![0; ethernet::LEN + ipv4::LEN + tcp::LEN];
    let link = ethernet::Header { dst: OUR_MAC, src: PEERS_MAC, vlan: None, ethertype: ethernet::ETHERTYPE_IPV4 };
    link.emit(&mut bytes);
    let total_len = (ipv4::LEN + tcp::LEN) as u16;
    let header = ipv4::Header {
        src,
        dst,
        protocol: ipv4::PROTOCOL_TCP,
        ttl: 64,
        tos: 0,
        id: 0,
        total_len,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        header_len: ipv4::LEN as u8,
    };
    header.emit(&mut bytes[ethernet::LEN..], true);
    let mut header = tcp::Header {
        src_port: remote.port(),
        dst_port: local.port(),
        seq: SeqNumber(seq),
        ack: SeqNumber(0),
        flags: Flags::SYN,
        window: 1000,
        checksum: 0,
        urgent: 0,
        options: Options::default(),
    };
    let at = ethernet::LEN + ipv4::LEN;
    header.emit(&mut bytes[at..]);
    let mut sum = Checksum::pseudo_header(src, dst, ipv4::PROTOCOL_TCP, tcp::LEN);
    sum.add(&bytes[at..]);
    header.checksum = sum.finish();
    header.emit(&mut bytes[at..]);
    bytes
}

#[test]
fn a_syn_that_is_sent_again_by_another_queue_begins_no_second_connection() {
    with_ends(&[false], |ends| {
        let (local, remote) = (ends.local, ends.remote);
        let listeners: Vec<_> = ends.here.iter_mut().map(|ring| ring.tcp_listen(local, 4, &Config::default()).expect("room")).collect();
        // (What answers it gets lies unread, and not with a kernel that would refuse them.)
        let rule = FlowRule::flow(Protocol::Tcp, remote, Some(local));
        ends.there[0].queues().device().attach(&rule, Target::Queue(QueueId(0))).expect("a rule");
        let frame = syn((remote, local), 1000);
        assert!(frame.len() <= HEAD_MAX);
        for queue in [1, 3, 0, 2] {
            let queues = ends.there[queue].queues_mut();
            queues.send(&TxFrame { head: &frame, body: &[], offload: TxOffload::default() }).expect("room");
            queues.doorbell();
            let all = |ends: &Ends| ends.here.iter().map(|ring| ring.counters().rx_packets).sum::<u64>();
            let (before, end) = (all(ends), ends.clock.now() + PATIENCE);
            while all(ends) == before {
                let now = ends.clock.now();
                assert!(now < end, "no SYN by queue {queue}");
                ends.here.iter_mut().for_each(|ring| _ = ring.poll(now));
            }
        }
        let half_open: Vec<_> = listeners.iter().map(|&listener| of(&mut ends.here, listener).tcp_half_open(listener)).collect();
        assert_eq!(half_open, [0, 1, 0, 0]);
    });
}

/// The error comes by whatever queue the peer's kernel sends it by.
#[test]
fn an_icmp_error_reaches_the_ring_whose_datagram_it_is_about() {
    for is_v6 in [false, true] {
        on_link(Cable { is_v6, queues: QUEUES, ..Cable::default() }, |link| {
            let (clock, mut here) = (Clock::system(), rings("a0", link.local, 7));
            let closed = SocketAddr::new(link.remote, 9);
            for ring in 0..QUEUES as usize {
                let local = SocketAddr::new(link.local, 5100 + ring as u16);
                let own = &mut here[ring];
                let flow = own.udp_open(local, &UdpOptions::default()).expect("room");
                own.udp_connect(flow, local.ip(), Some((closed, NextHop::Mac(PEERS_MAC)))).expect("a peer");
                assert_eq!(own.udp_send(clock.now(), flow, &[IoSlice::new(b"anybody?")], local.ip(), None), Ok(8));
                let end = clock.now() + PATIENCE;
                let error = loop {
                    here.iter_mut().for_each(|ring| _ = ring.poll(clock.now()));
                    if let Some(error) = here[ring].take_error(flow) {
                        break error;
                    }
                    assert!(clock.now() < end, "ring {ring} hears nothing");
                };
                assert_eq!(error, Error::Refused);
            }
            assert!(passed_on(&here) > 0, "not all of them came to where they belong");
        });
    }
}
