//! Two members of shared memory, in one process.

use core::ops::DerefMut;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process;
use std::sync::Arc;
use std::thread;

use anyhow::Result;
use ringway_conformance::extra::{Net, Side};
use ringway_shm::{Rendezvous, Settings, ShmQueues, attach};
use ringway_stack::Instant;
use ringway_stack::device::{Device as _, FlowRule, MacAddr, Protocol, Queues};
use ringway_stack::ring::{NextHop, Ring, RingConfig};

cases! {
    run cyclic {
        fn each_geometry_keeps_what_it_says_where_it_says();
        fn a_run_has_the_least_and_the_most_that_was_asked_for();
        fn fewer_than_the_least_come_only_where_the_buffer_ends();
        fn a_long_packet_takes_several_strides_and_never_wraps();
        fn records_are_the_packets_as_they_came();
        fn what_was_given_out_stays_until_a_read_rewinds();
    }
    run dummy {
        fn a_dummy_datagram_reaches_nobody();
        fn a_dummy_returns_what_sending_would();
        fn a_dummy_segment_is_no_part_of_its_stream();
    }
    run events {
        fn what_happens_is_told_by_epolls_bits();
        fn a_connection_waits_at_the_listener_that_it_came_to();
        fn one_event_tells_of_several_things();
        fn a_connection_begins_without_waiting();
    }
    run lending {
        fn a_datagram_is_lent_from_where_the_device_put_it();
        fn senders_are_named();
        fn a_socket_whose_datagrams_are_all_held_drops_and_others_do_not();
        fn a_buffer_is_freed_with_its_last_reference();
        fn what_came_before_the_first_was_lent_comes_as_a_copy();
        fn giving_back_twice_means_nothing();
        fn what_is_held_stays_as_it_is();
        fn everything_can_be_received_by_reference();
        fn a_stream_is_lent_piece_by_piece_and_ends();
        fn the_window_stays_shut_until_what_was_lent_is_given_back();
        fn a_lending_socket_can_also_be_read();
    }
    run recv_filter {
        fn a_receive_filter_begins_and_ends_when_the_program_says_so();
        fn a_packet_is_shown_behind_its_headers_and_before_the_queue();
        fn any_call_can_be_made_before_it_is_decided();
        fn who_decides_late_loses_and_who_decides_in_time_does_not();
        fn a_datagram_is_read_once_it_is_admitted_and_never_if_it_is_dropped_or_held();
        fn a_stream_is_read_as_it_was_admitted_and_ends_behind_the_last_decision();
        fn what_is_held_stays_until_it_is_given_back();
    }
    run sizes {
        fn no_packet_is_longer_than_it_may_be();
    }
}

/// Runs a case. Memory loses nothing.
fn run(_: &str, case: fn(&mut ShmNet) -> Result<()>) {
    case(&mut ShmNet::new()).unwrap_or_else(|error| panic!("{error:#}"));
}

/// Two members, which know each other, in time of their own: frames are there at once, and the stack's timers are the rings' alone.
struct ShmNet {
    now: Instant,
    /// By side, as all that follows.
    rings: [Ring<ShmQueues>; 2],
    ips: [Ipv4Addr; 2],
    macs: [MacAddr; 2],
    _rendezvous: [Arc<Rendezvous>; 2],
}

impl ShmNet {
    fn new() -> Self {
        // Whoever shares this processor may keep the other member from answering for long.
        let settings = Settings { pool_bytes: 8 << 20, peers_max: 4, resolve_timeout: Duration::from_secs(60), ..Settings::default() };
        let members = [(); 2].map(|()| attach(&settings).expect("shared memory can be had"));
        let ips = own_ips();
        let [(mut sender, of_sender), (mut receiver, of_receiver)] = members;
        let macs = [mac_of(&of_receiver, &mut sender, &of_sender, ips[0]), mac_of(&of_sender, &mut receiver, &of_receiver, ips[1])];
        let rings = [(sender, 1), (receiver, 2)].map(|(device, seed)| Ring::new(device, RingConfig::default(), [seed; 32]));
        Self { now: Instant::ZERO, rings, ips, macs, _rendezvous: [of_sender, of_receiver] }
    }

    /// Polls until nobody has anything to do at this instant.
    fn settle(&mut self) {
        while self.rings.iter_mut().map(|ring| ring.poll(self.now)).sum::<usize>() > 0 {}
    }
}

impl Net for ShmNet {
    type Queues = ShmQueues;

    fn ring(&mut self, side: Side) -> impl DerefMut<Target = Ring<ShmQueues>> {
        &mut self.rings[side as usize]
    }

    fn ip(&self, side: Side) -> Ipv4Addr {
        self.ips[side as usize]
    }

    fn hop(&self, to: Side) -> NextHop {
        NextHop::Mac(self.macs[to as usize])
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        self.settle();
        while let Some(next) = self.rings.iter().filter_map(Ring::next_deadline).min().filter(|&next| next <= end) {
            self.now = self.now.max(next) + Duration::from_nanos(1);
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    fn delivers(&self) -> bool {
        true
    }

    /// They are the sender's.
    fn held(&mut self) -> usize {
        let device = self.rings[Side::Sender as usize].queues_mut();
        device.reap();
        device.buffers_in_use()
    }
}

/// The Ethernet address by which one member reaches another, whose address `ip` is.
fn mac_of(by: &Rendezvous, other: &mut ShmQueues, of_other: &Rendezvous, ip: Ipv4Addr) -> MacAddr {
    let address = SocketAddrV4::new(ip, 1);
    let rule = other.steer(&FlowRule::flow(Protocol::Tcp, address.into(), None)).expect("an address of this process alone");
    let met = AtomicBool::new(false);
    let found = thread::scope(|scope| {
        // The greeting waits for the other member's answer, so for a moment there are two threads. No case has a second one.
        scope.spawn(|| {
            while !met.load(Ordering::Acquire) {
                of_other.service();
                thread::yield_now();
            }
        });
        let found = by.resolve(Protocol::Tcp, address);
        met.store(true, Ordering::Release);
        found
    });
    other.device().detach(rule.rule);
    found.expect("no system error").expect("the other member").mac
}

/// Loopback addresses that no other case uses, nor another process's test at the same time.
fn own_ips() -> [Ipv4Addr; 2] {
    static NEXT: AtomicU8 = AtomicU8::new(10);
    let [_, _, high, low] = process::id().to_be_bytes();
    let last = NEXT.fetch_add(2, Ordering::Relaxed);
    [last, last + 1].map(|last| Ipv4Addr::new(127, high, low, last))
}
