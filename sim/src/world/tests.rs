use super::*;
use crate::faults::Faults;
use crate::frames;
use crate::report::assert_deterministic;
use crate::trace::What;
use ringway_stack::device::{MacAddr, TxFrame, TxOffload};

/// Sends one frame that no stack answers.
fn send(world: &mut World, from: HostId, to: MacAddr, payload: &[u8]) {
    world.call(from, |cx| {
        let device = cx.ring.queues_mut();
        let head = frames::experimental(to, device.mac(), payload);
        device.send(&TxFrame { head: &head, body: &[], offload: TxOffload::default() }).unwrap();
        device.doorbell();
    });
}

fn pair(seed: u64, faults: Faults) -> (World, [HostId; 2]) {
    let mut world = World::new(WorldConfig { seed, capture: Capture::Frames });
    let link = LinkConfig { faults, ..LinkConfig::default() };
    let hosts = ["a", "b"].map(|name| world.add_host(HostConfig::named(name).link(link)));
    (world, hosts)
}

fn whats(world: &World) -> Vec<(usize, What)> {
    world.trace().records().iter().map(|r| (r.host, r.what)).collect()
}

#[test]
fn a_frame_crosses_two_links() {
    let (mut world, [a, b]) = pair(1, Faults::default());
    let mac = world.host(b).mac();
    send(&mut world, a, mac, &[1; 100]);
    world.run_for(Duration::from_millis(1));
    assert_eq!(whats(&world), [(0, What::Sent), (1, What::Delivered)]);
    // Twice 5 µs of latency and twice (114 + 24) bytes at 10 Gbit/s.
    assert_eq!(world.trace().records()[1].at, Instant::from_nanos(10_000 + 2 * 111));
    assert_eq!(world.now(), Instant::from_nanos(1_000_000));
    assert_eq!(world.outstanding(), [Outstanding::default(); 2]);
}

#[test]
fn strangers_end_at_the_switch_and_broadcasts_reach_everyone_else() {
    let (mut world, [a, _]) = pair(1, Faults::default());
    world.add_host(HostConfig::named("c"));
    send(&mut world, a, frames::mac(200), &[]);
    send(&mut world, a, MacAddr::BROADCAST, &[]);
    world.run_for(Duration::from_millis(1));
    assert_eq!(whats(&world), [(0, What::Sent), (0, What::Sent), (0, What::NoReceiver), (1, What::Delivered), (2, What::Delivered)]);
}

fn story(seed: u64) -> Report {
    let faults = Faults {
        loss_ppm: 200_000,
        duplication_ppm: 200_000,
        duplication_delay_max: Duration::from_millis(1),
        reordering_ppm: 200_000,
        reordering_delay_max: Duration::from_millis(1),
        corruption_ppm: 200_000,
        ..Faults::default()
    };
    let (mut world, [a, b]) = pair(seed, faults);
    let mac = world.host(b).mac();
    for i in 0..200 {
        send(&mut world, a, mac, &[i; 64]);
        world.run_for(Duration::from_micros(10));
    }
    world.run_for(Duration::from_millis(10));
    world.report()
}

#[test]
fn a_seed_tells_one_story_and_another_seed_another() {
    let first = assert_deterministic(7, story);
    assert!(first.faults.lost > 0 && first.faults.duplicated > 0 && first.faults.held_back > 0 && first.faults.frame_check > 0);
    assert_ne!(first.hash, story(8).hash);
}

#[test]
#[should_panic(expected = "one seed, two stories")]
fn two_stories_are_noticed() {
    let mut run = 7;
    assert_deterministic(7, |_| {
        run += 1;
        story(run)
    });
}

/// A program that wakes itself a few times.
struct Clockwork {
    left: u32,
}

impl App for Clockwork {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        let Some(left) = self.left.checked_sub(1) else { return Step::Finished };
        self.left = left;
        Step::Until(cx.now + Duration::from_secs(1))
    }
}

use crate::host::Step;

#[test]
fn programs_wake_when_they_asked_to() {
    let (mut world, [a, b]) = pair(1, Faults::default());
    world.add_app(a, Clockwork { left: 3 });
    world.add_app(b, Clockwork { left: 9 });
    let unfinished = world.run_until_finished(Instant::from_nanos(8_000_000_000)).unwrap_err();
    assert_eq!(unfinished.hosts, ["b"]);
    assert_eq!(world.run_until_finished(Instant::from_nanos(20_000_000_000)), Ok(Instant::from_nanos(9_000_000_000)));
}

/// A program that speaks Ethernet itself.
struct Listens {
    queue: ringway_stack::raw::RawQueue<crate::SimQueues>,
    heard: usize,
}

impl App for Listens {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        let mut batch = ringway_stack::device::RxBatch::new(8);
        self.heard += self.queue.poll(cx.now, &mut batch);
        if self.heard == 2 { Step::Finished } else { Step::Wait }
    }
}

#[test]
fn a_program_is_called_for_frames_on_its_own_ring() {
    let (mut world, [a, b]) = pair(1, Faults::default());
    let mut queue = ringway_stack::raw::RawQueue::new(world.add_raw_ring(b));
    queue.steer(&ringway_stack::device::FlowRule::any()).unwrap();
    world.add_app(b, Listens { queue, heard: 0 });
    let mac = world.host(b).mac();
    for _ in 0..2 {
        world.run_for(Duration::from_millis(1));
        assert!(!world.finished());
        send(&mut world, a, mac, b"raw");
    }
    world.run_until_finished(Instant::from_nanos(5_000_000)).unwrap();
}
