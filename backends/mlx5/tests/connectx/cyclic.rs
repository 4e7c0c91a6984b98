//! Cyclic queues: frames lie one behind the other where the card has put them, in strides, and stay there while they are held. And compressed completions, on these queues and on others.

use std::collections::VecDeque;

use ringway_host::Clock;
use ringway_mlx5::{Mlx5Device, Mlx5Queues, Received, Settings};
use ringway_stack::device::{
    ChecksumVerdict, CyclicConfig, CyclicError, CyclicId, CyclicPacket, Device as _, DeviceEvent, FlowRule, Protocol, Queues as _,
    QueuesConfig, RuleError, RuleId, RxBuffer as _, Target, TxFrame, TxOffload, Wake,
};

use crate::frames::pair_with;
use crate::world::{HEAD, PATIENCE, address, bytes, on_card, path_of, receive, send, settings, tell_card, udp_frame};

type Run = (Received, Vec<CyclicPacket>);

/// A sender; a receiver, and a cyclic queue of it that has what comes for port 9.
struct Lane {
    from: Mlx5Queues,
    to: Mlx5Queues,
    device: Mlx5Device,
    queue: CyclicId,
    rule: RuleId,
}

impl Lane {
    fn new(stride_bytes: usize, strides: usize, compresses: bool) -> Self {
        let [(_, from), (device, mut to)] = pair_with(&settings(0), &Settings { compresses, ..settings(1) });
        let queue = to.cyclic_create(&CyclicConfig { stride_bytes, strides }).expect("room");
        let rule = FlowRule::flow(Protocol::Udp, address(1, 9), None).tag(99);
        let rule = device.attach(&rule, Target::Cyclic(to.id(), queue)).expect("room").rule;
        Self { from, to, device, queue, rule }
    }

    /// Sends frames with one doorbell.
    fn send(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            let (head, body) = frame.split_at(frame.len().min(200));
            let mut buffer = self.from.tx_alloc(body.len()).expect("a buffer");
            ringway_stack::device::TxBuffer::write(&mut buffer, 0, body);
            let slice = ringway_stack::device::TxSlice { buffer: &buffer, offset: 0, len: body.len() };
            let body = if body.is_empty() { &[][..] } else { core::slice::from_ref(&slice) };
            let offload = TxOffload { checksum: true, ..TxOffload::default() };
            self.from.send(&TxFrame { head, body, offload }).expect("room");
        }
        self.from.doorbell();
    }

    /// The next run, if there is one.
    fn read(&mut self, max: usize) -> Option<Run> {
        let mut packets = Vec::new();
        self.from.reap();
        let run = self.to.cyclic_read(self.queue, max, &mut packets).expect("the queue is there");
        assert_eq!(run.is_some(), !packets.is_empty());
        run.map(|run| (run, packets))
    }

    /// Runs until there are so many frames.
    fn runs(&mut self, mut count: usize, max: usize) -> Vec<Run> {
        let (clock, mut runs) = (Clock::system(), Vec::new());
        let end = clock.now() + PATIENCE;
        while count > 0 {
            assert!(clock.now() < end, "{count} frames more; {:?}", self.to.counters());
            let Some(run) = self.read(max.min(count)) else {
                std::thread::yield_now();
                continue;
            };
            count -= run.1.len();
            runs.push(run);
        }
        runs
    }
}

/// Frames of a run.
fn frames((run, packets): &Run) -> Vec<Vec<u8>> {
    let one = |packet: &CyclicPacket| {
        let mut frame = vec![0; packet.len];
        run.copy_to(packet.offset, &mut frame);
        frame
    };
    packets.iter().map(one).collect()
}

/// Frames with so many bytes of payload each, of which no two are alike.
fn numbered(lens: impl IntoIterator<Item = usize>, salt: u64) -> Vec<Vec<u8>> {
    (salt..).zip(lens).map(|(number, len)| udp_frame(0, 1, (5, 9), &bytes(len, number))).collect()
}

/// Beside checksums, which the card fills in.
fn same(ours: &[u8], sent: &[u8]) -> bool {
    ours.len() == sent.len() && ours[..24] == sent[..24] && ours[26..40] == sent[26..40] && ours[HEAD..] == sent[HEAD..]
}

#[track_caller]
fn assert_same(runs: &[Run], sent: &[Vec<u8>]) {
    let came: Vec<Vec<u8>> = runs.iter().flat_map(frames).collect();
    assert_eq!(came.len(), sent.len());
    for (number, (ours, sent)) in came.iter().zip(sent).enumerate() {
        assert!(same(ours, sent), "frame {number} of {}", came.len());
    }
}

#[test]
fn frames_lie_one_behind_the_other_in_strides_of_their_own() {
    on_card(path_of!(frames_lie_one_behind_the_other_in_strides_of_their_own), || {
        let mut lane = Lane::new(256, 64, false);
        assert!(lane.to.capabilities().striding && lane.read(9).is_none() && !lane.to.rx_ready());
        let sent = numbered([100, 200, 214, 215, 18, 1000, 100], 1);
        lane.send(&sent);
        let runs = lane.runs(7, 9);
        assert_same(&runs, &sent);
        let packets: Vec<&CyclicPacket> = runs.iter().flat_map(|run| &run.1).collect();
        assert!(packets.iter().all(|packet| packet.meta.flow_tag == 99 && packet.meta.checksum == ChecksumVerdict::Good));
        assert!(
            packets.windows(2).all(|two| two[0].meta.hardware_time.is_some() && two[0].meta.hardware_time <= two[1].meta.hardware_time)
        );
        // Whoever looks once more often than the card works gets several runs; where frames lie in the buffer is the same.
        let strides: usize = runs.iter().map(|(run, _)| run.len() / 256).sum();
        assert_eq!((strides, runs.iter().all(|(run, _)| run.len() % 256 == 0)), (1 + 1 + 1 + 2 + 1 + 5 + 1, true));
        assert!(runs.iter().all(|(_, packets)| packets[0].offset == 0 && packets.iter().all(|packet| packet.offset % 256 == 0)));
        assert!(lane.read(9).is_none() && crate::world::poll(&mut lane.to).is_empty(), "nothing came twice, or elsewhere");
        // What is for another port still comes to the ring.
        send(&mut lane.from, &udp_frame(0, 1, (5, 7), &bytes(100, 1)), HEAD, 1, TxOffload::default()).expect("room");
        assert_eq!(receive(&mut lane.to, 1)[0].meta.flow_tag, 77);
    });
}

#[test]
fn a_run_ends_at_the_linear_end() {
    on_card(path_of!(a_run_ends_at_the_linear_end), || {
        let mut lane = Lane::new(2048, 16, false);
        let sent = numbered([500; 14], 1);
        lane.send(&sent);
        assert_same(&lane.runs(14, 99), &sent);
        // (What was let go of is the card's again with the next read, before more comes.)
        assert!(lane.read(9).is_none());
        let sent = numbered([400; 8], 50);
        lane.send(&sent);
        let mut runs = lane.runs(2, 99);
        runs.extend(lane.runs(6, 99));
        assert_same(&runs, &sent);
        let places: Vec<usize> = runs.iter().map(|(run, _)| run.len() / 2048).collect();
        let ends: Vec<usize> = places
            .iter()
            .scan(14, |at, len| {
                *at += len;
                Some(*at)
            })
            .collect();
        assert!(ends.contains(&16) && ends.last() == Some(&22), "{ends:?}");
    });
}

/// A run that is held, or a part of it, stays as it is; what finds no room is lost, and what was let go of is used again.
#[test]
fn what_is_held_is_never_overwritten() {
    let log = on_card(path_of!(what_is_held_is_never_overwritten), || {
        let mut lane = Lane::new(2048, 32, false);
        let sent = numbered([600; 40], 1);
        lane.send(&sent[..8]);
        let held = lane.runs(8, 4);
        assert_same(&held, &sent[..8]);
        lane.send(&sent[8..32]);
        let rest = lane.runs(24, 99);
        drop(rest);
        let part = held.last().map(|(run, packets)| run.slice(packets[0].offset, packets[0].len)).expect("a run");
        let mut was = vec![0; part.len()];
        part.copy_to(0, &mut was);
        drop(held);
        assert_eq!(lane.to.cyclic_destroy(lane.queue), Err(CyclicError::Busy), "held, and steered to");
        assert!(lane.read(9).is_none());
        // All entries from the held one on are free, but the buffer is used in its order: nothing has room.
        lane.send(&sent[32..]);
        for _ in 0..20 {
            std::thread::sleep(core::time::Duration::from_millis(1));
            assert!(lane.read(9).is_none_or(|(_, packets)| packets.iter().all(|packet| packet.len != 642)), "written where it is held");
        }
        let mut is = vec![0; part.len()];
        part.copy_to(0, &mut is);
        assert!(is == was);
        drop(part);
        assert!(lane.read(9).is_none());
        let sent = numbered([600; 32], 100);
        lane.send(&sent);
        assert_same(&lane.runs(32, 99), &sent);
        assert_eq!(lane.to.counters().receive_failures, 0);
    });
    assert!(!log.contains("overran") && !log.contains("is full"), "{log}");
}

/// Random frames, bursts and holds, around the buffer and around the completions' queue many times; compressed and not.
#[test]
fn all_frames_come_in_their_order_and_whole() {
    on_card(path_of!(all_frames_come_in_their_order_and_whole), || {
        for (stride_bytes, strides, compresses) in [(64, 256, false), (512, 64, true), (64, 256, true), (2048, 8, true)] {
            let mut lane = Lane::new(stride_bytes, strides, compresses);
            let mut state = 0x9e37_79b9_7f4a_7c15u64;
            let mut below = |limit: usize| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                (state >> 33) as usize % limit
            };
            let (mut held, mut came) = (VecDeque::new(), 0);
            for burst in 0..150 {
                // (As much as half of the buffer has room for: fillers take the more strides the longer frames are.)
                let longest = if below(4) == 0 { 1472 } else { 100 };
                let room = (strides / 4).div_ceil((HEAD + longest).div_ceil(stride_bytes) + 1).max(1);
                let sent = numbered((0..1 + below(room)).map(|_| 18 + below(longest - 17)).collect::<Vec<_>>(), 1000 * burst);
                lane.send(&sent);
                let runs = lane.runs(sent.len(), 1 + below(20));
                assert_same(&runs, &sent);
                came += sent.len();
                // (Of this burst some runs are held until the next one is there.)
                held.extend(runs.into_iter().map(|run| (frames(&run), run)));
                while held.len() > usize::from(strides > 8) {
                    let (was, run) = held.pop_front().expect("not empty");
                    assert_eq!(frames(&run), was, "what was held is as it was");
                }
            }
            let counters = lane.to.counters();
            assert_eq!((counters.receive_failures, lane.to.poll_event()), (0, None), "{came} frames");
            // (In a buffer of eight strides, frames come one by one: there are no runs.)
            assert_eq!(counters.compressed_runs > 0, compresses && strides > 8, "{came} frames, {counters:?}");
        }
    });
}

/// The other receive queue compresses as well: short frames and long ones, in bursts and alone, around both queues many times.
#[test]
fn compressed_completions_say_what_whole_ones_do() {
    on_card(path_of!(compressed_completions_say_what_whole_ones_do), || {
        let small = Settings { received_frames: 32, compresses: true, ..settings(1) };
        let [(_, mut from), (_, mut to)] = pair_with(&settings(0), &small);
        let mut number = 0;
        for burst in 0..300_usize {
            let count = 1 + burst * 7 % 23;
            let frame = |at: usize| udp_frame(0, 1, (5, 7), &bytes(if at.is_multiple_of(5) { 700 } else { 18 + at % 150 }, at as u64));
            let sent: Vec<Vec<u8>> = (number..number + count).map(frame).collect();
            number += count;
            for frame in &sent {
                // (A send queue rings once for all: so that they come together.)
                let whole = frame.len().min(200);
                let mut buffer = from.tx_alloc(1000).expect("a buffer");
                ringway_stack::device::TxBuffer::write(&mut buffer, 0, &frame[whole..]);
                let slice = ringway_stack::device::TxSlice { buffer: &buffer, offset: 0, len: frame.len() - whole };
                from.send(&TxFrame { head: &frame[..whole], body: &[slice], offload: TxOffload::default() }).expect("room");
            }
            from.doorbell();
            let came = receive(&mut to, count);
            from.reap();
            for (at, (ours, sent)) in came.iter().zip(&sent).enumerate() {
                assert!(ours.bytes == *sent && ours.meta.flow_tag == 77, "burst {burst}, frame {at} of {count}");
            }
        }
        let counters = to.counters();
        assert!(counters.compressed_runs > 100 && counters.receive_failures == 0, "{counters:?}");
    });
}

#[test]
fn queues_are_named_counted_and_moved_to() {
    on_card(path_of!(queues_are_named_counted_and_moved_to), || {
        let mut lane = Lane::new(2048, 8, false);
        for (stride_bytes, strides) in [(100, 8), (64, 7), (64, 0), (0, 8), (32, 64), (64, 8), (1 << 14, 8)] {
            let refused = lane.to.cyclic_create(&CyclicConfig { stride_bytes, strides });
            assert_eq!(refused, Err(CyclicError::Invalid), "{stride_bytes} {strides}");
        }
        let nobody = CyclicId(77);
        assert_eq!(lane.to.cyclic_destroy(nobody), Err(CyclicError::Unknown));
        assert_eq!(lane.to.cyclic_read(nobody, 1, &mut Vec::new()).map(|_| ()), Err(CyclicError::Unknown));
        let any = FlowRule::flow(Protocol::Udp, address(1, 10), None);
        assert_eq!(lane.device.attach(&any, Target::Cyclic(lane.to.id(), nobody)), Err(RuleError::NoQueue));
        let other = lane.to.cyclic_create(&CyclicConfig { stride_bytes: 512, strides: 64 }).expect("room");
        let sent = numbered([50; 3], 1);
        let own = lane.to.id();
        lane.send(&sent);
        assert_same(&lane.runs(3, 9), &sent);
        lane.device.retarget(lane.rule, Target::Cyclic(own, other), 5).expect("it moves");
        assert_eq!(lane.to.cyclic_destroy(lane.queue), Ok(()), "nothing leads there any more");
        lane.queue = other;
        lane.send(&sent);
        let runs = lane.runs(3, 9);
        assert!(runs[0].1[0].meta.flow_tag == 5);
        assert_same(&runs, &sent);
        lane.device.retarget(lane.rule, own.into(), 6).expect("it moves");
        assert_eq!(lane.to.cyclic_destroy(other), Err(CyclicError::Busy), "runs are held");
        drop(runs);
        assert_eq!(lane.to.cyclic_destroy(other), Ok(()));
        lane.send(&sent);
        assert!(receive(&mut lane.to, 3).iter().zip(&sent).all(|(ours, sent)| same(&ours.bytes, sent) && ours.meta.flow_tag == 6));
        lane.device.detach(lane.rule);
        assert_eq!(lane.device.rules(), 1);
    });
}

#[test]
fn who_sleeps_is_woken_by_cyclic_queues_too() {
    on_card(path_of!(who_sleeps_is_woken_by_cyclic_queues_too), || {
        let mut lane = Lane::new(2048, 16, false);
        for turn in 0..10 {
            assert!(lane.to.arm(Wake::Any), "nothing has come");
            let sent = numbered([90], turn);
            lane.send(&sent);
            let mut is_woken = false;
            // (The event of an earlier request, whose frame was read already, may come late.)
            for _ in 0..3 {
                let mut poll = libc::pollfd { fd: lane.to.wait_fd().expect("a descriptor"), events: libc::POLLIN, revents: 0 };
                // SAFETY: one entry is readable and writable.
                assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 5000) }, 1, "a frame has come");
                lane.to.disarm();
                is_woken = lane.to.rx_ready();
                if is_woken || !lane.to.arm(Wake::Any) {
                    break;
                }
            }
            assert!(is_woken && !lane.to.arm(Wake::Any));
            assert_same(&lane.runs(1, 1), &sent);
        }
    });
}

/// A queue that the card fails begins anew, behind what was read of it; what is held stays.
#[test]
fn a_queue_that_fails_begins_anew() {
    on_card(path_of!(a_queue_that_fails_begins_anew), || {
        let mut lane = Lane::new(2048, 32, true);
        for turn in 0..3 {
            let sent = numbered([300; 5], 10 * turn);
            lane.send(&sent);
            let runs = lane.runs(5, 2);
            assert_same(&runs, &sent);
            // `IB_EVENT_WQ_FATAL`, of all receive queues.
            tell_card(&[5, 19]);
            let end = Clock::system().now() + PATIENCE;
            while lane.to.poll_event() != Some(DeviceEvent::Reset) {
                assert!(Clock::system().now() < end, "it fails");
            }
            while lane.to.poll_event().is_some() {}
            let after = numbered([300; 12], 10 * turn + 100);
            lane.send(&after);
            assert_same(&lane.runs(12, 99), &after);
            assert_same(&runs, &sent);
        }
    });
}

#[test]
fn a_ring_ends_with_its_cyclic_queues_and_its_runs_outlive_it() {
    let log = on_card(path_of!(a_ring_ends_with_its_cyclic_queues_and_its_runs_outlive_it), || {
        let mut lane = Lane::new(2048, 32, false);
        let sent = numbered([300; 5], 1);
        lane.send(&sent);
        let runs = lane.runs(5, 9);
        let Lane { from, to, device, .. } = lane;
        drop((to, from));
        assert_eq!(device.rules(), 0);
        let again = device.open(&QueuesConfig { steered_only: true }).expect("a ring");
        drop((again, device));
        assert_same(&runs, &sent);
    });
    assert!(!log.contains("does not end"), "{log}");
}
