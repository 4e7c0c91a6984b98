//! Two simulated NICs on one switch, with and without faults.

use core::cell::RefCell;
use core::fmt::Debug;
use core::ops::DerefMut;
use core::time::Duration;
use std::net::Ipv4Addr;
use std::rc::Rc;

use anyhow::Result;
use ringway_conformance::extra::{Net, Side};
use ringway_sim::{App, Context, Faults, HostConfig, HostId, LinkConfig, SimQueues, Step, World, WorldConfig};
use ringway_stack::Instant;
use ringway_stack::device::{MacAddr, Queues};
use ringway_stack::ring::{NextHop, Ring, RingConfig};

cases! {
    run cyclic {
        fn each_geometry_keeps_what_it_says_where_it_says();
        fn a_run_has_the_least_and_the_most_that_was_asked_for();
        fn fewer_than_the_least_come_only_where_the_buffer_ends();
        fn a_long_packet_takes_several_strides_and_never_wraps();
    }
    run_with_faults cyclic {
        fn records_are_the_packets_as_they_came();
        fn what_was_given_out_stays_until_a_read_rewinds();
    }
    run dummy {
        fn a_dummy_datagram_reaches_nobody();
        fn a_dummy_returns_what_sending_would();
    }
    run_with_faults dummy {
        fn a_dummy_segment_is_no_part_of_its_stream();
    }
    run events {
        fn what_happens_is_told_by_epolls_bits();
    }
    run_with_faults events {
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
    }
    run_with_faults lending {
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
    }
    run_with_faults recv_filter {
        fn a_datagram_is_read_once_it_is_admitted_and_never_if_it_is_dropped_or_held();
        fn a_stream_is_read_as_it_was_admitted_and_ends_behind_the_last_decision();
        fn what_is_held_stays_until_it_is_given_back();
    }
    run_with_faults sizes {
        fn no_packet_is_longer_than_it_may_be();
    }
    run strides {
        fn the_device_writes_records_as_the_packets_came();
        fn a_packet_longer_than_the_device_s_record_is_told_of();
        fn who_wants_more_of_each_datagram_has_them_in_the_socket_again();
    }
    run_with_faults strides {
        fn the_device_writes_no_record_that_is_damaged();
        fn what_the_device_wrote_stays_until_a_read_goes_on_behind_a_linear_end();
    }
}

/// How long a ring that nothing arrives on goes unpolled, though a call since then may have set a timer.
const TICK: Duration = Duration::from_millis(1);

/// A case for these networks.
pub(crate) type Case<Q = SimQueues> = fn(&mut SimNet<Q>) -> Result<()>;

/// Runs a case where every frame arrives.
fn run(_: &str, case: Case) {
    for seed in 0..3 {
        case(&mut SimNet::new(seed, Faults::default())).unwrap_or_else(|error| panic!("seed {seed}: {error:#}"));
    }
}

/// Runs a case where every frame arrives, and where not: much goes wrong, for few frames pass in a case.
fn run_with_faults(test: &str, case: Case) {
    run(test, case);
    let faults = Faults {
        loss_ppm: 50_000,
        duplication_ppm: 50_000,
        duplication_delay_max: Duration::from_millis(2),
        reordering_ppm: 100_000,
        reordering_delay_max: Duration::from_millis(15),
        corruption_ppm: 20_000,
        ..Faults::default()
    };
    for seed in 0..10 {
        case(&mut SimNet::new(seed, faults)).unwrap_or_else(|error| panic!("seed {seed}, with faults: {error:#}"));
    }
}

/// Two hosts. Each has a ring beside the one of the host's own stack, which has nothing to do with the cases.
pub(crate) struct SimNet<Q: Queues = SimQueues> {
    world: World,
    /// By side, as all that follows.
    hosts: [HostId; 2],
    rings: [Rc<RefCell<Ring<Q>>>; 2],
    macs: [MacAddr; 2],
    delivers: bool,
}

impl SimNet {
    fn new(seed: u64, faults: Faults) -> Self {
        Self::wrapped(seed, faults, |device| device)
    }
}

impl<Q: Queues + 'static> SimNet<Q> {
    /// The receiver's device is what `wrap` makes of it, and so is the sender's.
    pub(crate) fn wrapped(seed: u64, faults: Faults, wrap: impl Fn(SimQueues) -> Q) -> Self {
        // The world's checkers compare what programs call with what the wire shows: of the calls on these rings they see nothing.
        let mut world = World::new(WorldConfig::seeded(seed)).unchecked();
        let link = LinkConfig { faults, ..LinkConfig::default() };
        let hosts = ["sender", "receiver"].map(|name| world.add_host(HostConfig::named(name).link(link)));
        let devices = hosts.map(|host| wrap(world.add_raw_ring(host)));
        let macs = [devices[0].mac(), devices[1].mac()];
        let mut side = 0;
        let rings = devices.map(|device| {
            let config = RingConfig { addresses: vec![ip(side).into()], ..RingConfig::default() };
            let mut ring = Ring::new(device, config, [seed as u8; 32]);
            // (Nothing steers ARP to a ring of this kind.)
            ring.set_neighbour(ip(1 - side).into(), Some(macs[1 - side]));
            side += 1;
            Rc::new(RefCell::new(ring))
        });
        for (host, ring) in hosts.into_iter().zip(&rings) {
            world.add_app(host, Poller(Rc::clone(ring)));
        }
        Self { world, hosts, rings, macs, delivers: faults == Faults::default() }
    }
}

impl<Q: Queues<Rx: Debug> + 'static> Net for SimNet<Q> {
    type Queues = Q;

    fn ring(&mut self, side: Side) -> impl DerefMut<Target = Ring<Q>> {
        self.rings[side as usize].borrow_mut()
    }

    fn ip(&self, side: Side) -> Ipv4Addr {
        ip(side as usize)
    }

    fn hop(&self, to: Side) -> NextHop {
        NextHop::Mac(self.macs[to as usize])
    }

    fn now(&self) -> Instant {
        self.world.now()
    }

    fn pass(&mut self, time: Duration) {
        // Doorbells rang outside of the world: it looks at the queues now.
        for host in self.hosts {
            self.world.call(host, |_| ());
        }
        self.world.run_for(time);
        self.rings.iter().for_each(|ring| ring.borrow_mut().queues_mut().reap());
    }

    fn delivers(&self) -> bool {
        self.delivers
    }

    fn held(&mut self) -> usize {
        self.world.host(self.hosts[Side::Receiver as usize]).nic().outstanding().rx_buffers
    }
}

/// Not the hosts' own: their stacks are not concerned.
fn ip(side: usize) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, 1 + side as u8)
}

/// Polls a ring when something has arrived on it, and when it must be.
struct Poller<Q: Queues>(Rc<RefCell<Ring<Q>>>);

impl<Q: Queues> App for Poller<Q> {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        let mut ring = self.0.borrow_mut();
        while ring.poll(cx.now) > 0 {}
        let tick = cx.now + TICK;
        Step::Until(ring.next_deadline().map_or(tick, |at| at.clamp(cx.now + Duration::from_nanos(1), tick)))
    }
}
