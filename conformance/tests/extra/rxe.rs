//! Two openings of a soft-RoCE device, each with an address of its own, in a guest of `cargo xtask vm`: by `conformance/tests/rxe.sh`, for few machines' own kernels have such a
//! device.

use core::ops::DerefMut;
use core::time::Duration;
use std::net::Ipv4Addr;

use anyhow::Result;
use ringway_conformance::extra::{Net, Side};
use ringway_host::Clock;
use ringway_rxe::{PacketSettings, RxeDevice, RxeQueues};
use ringway_stack::Instant;
use ringway_stack::device::{MacAddr, Queues as _};
use ringway_stack::ring::{NextHop, Ring, RingConfig};

/// In the environment: the addresses of the device's interface, of the sender and of the receiver.
const ADDRESSES: [&str; 2] = ["RINGWAY_VM_ADDRESS", "RINGWAY_TEST_SECOND"];
/// What the kernel, emulated, takes at most to carry a frame over, if it is to come at all.
const CARRIED: Duration = Duration::from_millis(100);

cases! {
    #[ignore = "in a guest: cargo xtask test --only rxe"]
    run events {
        fn what_happens_is_told_by_epolls_bits();
        fn a_connection_waits_at_the_listener_that_it_came_to();
        fn one_event_tells_of_several_things();
        fn a_connection_begins_without_waiting();
    }
    #[ignore = "in a guest: cargo xtask test --only rxe"]
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
    #[ignore = "in a guest: cargo xtask test --only rxe"]
    run recv_filter {
        fn a_receive_filter_begins_and_ends_when_the_program_says_so();
        fn a_packet_is_shown_behind_its_headers_and_before_the_queue();
        fn any_call_can_be_made_before_it_is_decided();
        fn who_decides_late_loses_and_who_decides_in_time_does_not();
        fn a_datagram_is_read_once_it_is_admitted_and_never_if_it_is_dropped_or_held();
        fn a_stream_is_read_as_it_was_admitted_and_ends_behind_the_last_decision();
        fn what_is_held_stays_until_it_is_given_back();
    }
    #[ignore = "in a guest: cargo xtask test --only rxe"]
    run sizes {
        fn no_packet_is_longer_than_it_may_be();
    }
}

/// Runs a case. The device loses nothing between two ends of its own.
fn run(_: &str, case: fn(&mut RxeNet) -> Result<()>) {
    case(&mut RxeNet::new()).unwrap_or_else(|error| panic!("{error:#}"));
}

/// A ring on each opening. Time goes on as the kernel's does, which asks and answers who is where, and at once over what is only waited for.
struct RxeNet {
    now: Instant,
    /// By side, as all that follows.
    rings: [Ring<RxeQueues>; 2],
    macs: [MacAddr; 2],
    addresses: [Ipv4Addr; 2],
    clock: Clock,
}

impl RxeNet {
    fn new() -> Self {
        let addresses = ADDRESSES.map(|name| {
            let address = std::env::var(name).unwrap_or_else(|_| panic!("{name}: conformance/tests/rxe.sh says it"));
            address.parse().expect("an address of IPv4")
        });
        let queues = [0, 1].map(|_| RxeDevice::open_device(&PacketSettings::new("rxe0")).and_then(|device| device.open_ring()));
        let [sender, receiver] = queues.map(|queues| queues.expect("a ring of rxe0"));
        let macs = [sender.mac(), receiver.mac()];
        let rings = [(sender, 1), (receiver, 2)].map(|(queues, seed)| Ring::new(queues, RingConfig::default(), [seed; 32]));
        Self { now: Instant::ZERO, rings, macs, addresses, clock: Clock::system() }
    }

    /// Polls until nobody has anything to do, and what was sent has come. (What nobody listens for is waited for in vain.)
    fn settle(&mut self) {
        let mut last = self.clock.now();
        let mut since = last;
        while last.since(since) < CARRIED {
            let now = self.clock.now();
            (self.now, last) = (self.now + now.since(last), now);
            if self.rings.iter_mut().map(|ring| ring.poll(self.now)).sum::<usize>() > 0 {
                since = last;
                continue;
            }
            let [sender, receiver] = [0, 1].map(|side| self.rings[side].queues().counters());
            let waiting: usize = self.rings.iter().map(|ring| ring.queues().waiting()).sum();
            if waiting == 0 && (sender.sent, receiver.sent) == (receiver.received, sender.received) {
                return;
            }
        }
    }
}

impl Net for RxeNet {
    type Queues = RxeQueues;

    fn ring(&mut self, side: Side) -> impl DerefMut<Target = Ring<RxeQueues>> {
        &mut self.rings[side as usize]
    }

    fn ip(&self, side: Side) -> Ipv4Addr {
        self.addresses[side as usize]
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
        self.now = self.now.max(end);
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
