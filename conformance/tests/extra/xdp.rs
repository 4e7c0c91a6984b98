//! Two interfaces, the ends of a veth pair.

use core::ops::DerefMut;
use core::time::Duration;
use std::net::Ipv4Addr;

use anyhow::Result;
use ringway_conformance::extra::{Net, Side};
use ringway_host::Clock;
use ringway_stack::Instant;
use ringway_stack::device::{MacAddr, Queues as _};
use ringway_stack::ring::{NextHop, Ring, RingConfig};
use ringway_xdp::{Settings, XdpDevice, XdpQueues};

use crate::cable::Cable;

/// What the kernel takes at most to carry a frame over, if it is to come at all.
const CARRIED: Duration = Duration::from_millis(20);

cases! {
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

/// Runs a case. A veth pair loses nothing. (It takes root; where CI is set that must be had.)
fn run(_: &str, case: fn(&mut XdpNet) -> Result<()>) {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "network namespaces take root");
        println!("left out: network namespaces take root");
        return;
    }
    case(&mut XdpNet::new()).unwrap_or_else(|error| panic!("{error:#}"));
}

/// A ring on each end, in virtual time: frames are there as soon as the kernel has carried them, and the stack's timers are the rings' alone.
struct XdpNet {
    now: Instant,
    /// By side, as all that follows.
    rings: [Ring<XdpQueues>; 2],
    macs: [MacAddr; 2],
    clock: Clock,
    cable: Cable,
}

impl XdpNet {
    fn new() -> Self {
        let cable = Cable::lay();
        let queues = [&cable.asks, &cable.serves].map(|end| {
            let queues = end.within(|| XdpDevice::attach(&Settings::new(end.interface)).and_then(|device| device.open_ring()));
            queues.expect("an interface with XDP")
        });
        let macs = [queues[0].mac(), queues[1].mac()];
        let [sender, receiver] = queues;
        let rings = [(sender, 1), (receiver, 2)].map(|(queues, seed)| Ring::new(queues, RingConfig::default(), [seed; 32]));
        Self { now: Instant::ZERO, rings, macs, clock: Clock::system(), cable }
    }

    /// Polls until nobody has anything to do at this instant, and what was sent has come. (What nobody listens for is the kernel's, and is waited for in vain.)
    fn settle(&mut self) {
        let mut since = self.clock.now();
        while self.clock.now().since(since) < CARRIED {
            if self.rings.iter_mut().map(|ring| ring.poll(self.now)).sum::<usize>() > 0 {
                since = self.clock.now();
                continue;
            }
            let [sender, receiver] = [0, 1].map(|side| self.rings[side].queues().counters());
            if (sender.sent, receiver.sent) == (receiver.received, sender.received) {
                return;
            }
        }
    }
}

impl Net for XdpNet {
    type Queues = XdpQueues;

    fn ring(&mut self, side: Side) -> impl DerefMut<Target = Ring<XdpQueues>> {
        &mut self.rings[side as usize]
    }

    fn ip(&self, side: Side) -> Ipv4Addr {
        match side {
            Side::Sender => self.cable.asks.v4,
            Side::Receiver => self.cable.serves.v4,
        }
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

    fn held(&mut self) -> usize {
        self.rings[Side::Receiver as usize].poll(self.now);
        self.rings[Side::Receiver as usize].queues().held()
    }
}
