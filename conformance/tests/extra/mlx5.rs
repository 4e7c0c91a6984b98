//! Two openings of a software ConnectX, in a process of their own.

use core::ops::DerefMut;
use core::time::Duration;
use std::net::Ipv4Addr;

use anyhow::Result;
use ringway_conformance::extra::{Net, Side};
use ringway_host::Clock;
use ringway_mlx5::Mlx5Queues;
use ringway_stack::Instant;
use ringway_stack::device::{Device as _, QueuesConfig};
use ringway_stack::ring::{NextHop, Ring, RingConfig};

use crate::connectx::{MACS, card, on_card};

/// What the card takes at most to carry a frame over, if it is to come at all: its thread may wait for a processor.
const CARRIED: Duration = Duration::from_millis(100);

cases! {
    run cyclic {
        fn records_are_the_packets_as_they_came();
        fn each_geometry_keeps_what_it_says_where_it_says();
        fn a_run_has_the_least_and_the_most_that_was_asked_for();
        fn fewer_than_the_least_come_only_where_the_buffer_ends();
        fn what_was_given_out_stays_until_a_read_rewinds();
        fn a_long_packet_takes_several_strides_and_never_wraps();
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
    run strides {
        fn the_device_writes_records_as_the_packets_came();
        fn what_the_device_wrote_stays_until_a_read_goes_on_behind_a_linear_end();
        fn the_device_writes_no_record_that_is_damaged();
        fn a_packet_longer_than_the_device_s_record_is_told_of();
        fn who_wants_more_of_each_datagram_has_them_in_the_socket_again();
    }
}

/// Runs a case. The card loses nothing that there is room for.
fn run(test: &str, case: fn(&mut CardNet) -> Result<()>) {
    on_card(test, || case(&mut CardNet::new()).unwrap_or_else(|error| panic!("{error:#}")));
}

/// A ring on each opening, in virtual time: frames are there as soon as the card has carried them, and the stack's timers are the rings' alone.
struct CardNet {
    now: Instant,
    /// By side.
    rings: [Ring<Mlx5Queues>; 2],
    clock: Clock,
}

impl CardNet {
    fn new() -> Self {
        let rings = [0, 1].map(|side| {
            let queues = card(MACS[side]).open(&QueuesConfig::default()).expect("a ring");
            Ring::new(queues, RingConfig::default(), [side as u8 + 1; 32])
        });
        Self { now: Instant::ZERO, rings, clock: Clock::system() }
    }

    /// Polls until nobody has anything to do at this instant, and what was sent has come. (What nobody listens for, and a dummy, is waited for in vain.)
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
            core::hint::spin_loop();
        }
    }
}

impl Net for CardNet {
    type Queues = Mlx5Queues;

    fn ring(&mut self, side: Side) -> impl DerefMut<Target = Ring<Mlx5Queues>> {
        &mut self.rings[side as usize]
    }

    fn ip(&self, side: Side) -> Ipv4Addr {
        Ipv4Addr::new(10, 9, 0, 1 + side as u8)
    }

    fn hop(&self, to: Side) -> NextHop {
        NextHop::Mac(MACS[to as usize])
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
