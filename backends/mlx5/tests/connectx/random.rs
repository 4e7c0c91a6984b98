//! Random work, by a seed, on libmlx5's own data path (ibv_post_send, ibv_post_recv, ibv_poll_cq) and on ours: several send queues and receive queues with flow rules, frames
//! of all lengths, in pieces and in line, alone and in batches, cut by the card, with and without completions. The same frames leave, the same come, and so do completions.

use std::collections::BTreeMap;

use ringway_host::Clock;
use ringway_mlx5::{Mlx5Queues, SendBuffer};
use ringway_stack::device::{
    ChecksumVerdict, Device as _, FlowRule, Protocol, Queues as _, QueuesConfig, SendStatus, TxBuffer as _, TxFrame, TxOffload, TxSlice,
};

use crate::library::{Library, Received, Work};
use crate::world::{HEAD, MACS, PATIENCE, address, bytes, card, numbers, on_card, path_of, poll, settings, udp_frame};

/// Seeds of one run.
const SEEDS: u64 = 300;
/// Send queues, and receive queues, of either.
const QUEUES: usize = 3;
/// The first port that a receive queue has a rule for; what goes to others comes to nobody.
const PORT: u16 = 100;

/// A seed's work: batches, each for one send queue.
fn batches(seed: u64) -> Vec<(usize, Vec<Work>)> {
    let mut below = numbers(seed);
    let mut id = 0;
    let mut batch = |_| {
        let queue = below(QUEUES);
        let most = [1, 1, 4, 12][below(4)];
        let works = (0..1 + below(most)).map(|_| {
            id += 1;
            work(&mut below, queue, id)
        });
        (queue, works.collect())
    };
    (0..4 + seed as usize % 5).map(&mut batch).collect()
}

impl Work {
    /// Frames that leave for a port that a receive queue has.
    fn frames_for_somebody(&self) -> usize {
        let port = u16::from_be_bytes([self.frame[36], self.frame[37]]);
        let payload = self.frame.len() - self.head;
        let frames = self.mss.map_or(1, |mss| payload.div_ceil(mss.into()));
        if port < PORT + QUEUES as u16 { frames } else { 0 }
    }
}

fn work(below: &mut impl FnMut(usize) -> usize, queue: usize, id: u64) -> Work {
    // (One port more than there are rules.)
    let ports = (queue as u16 + 1, PORT + below(QUEUES + 1) as u16);
    let len = [18 + below(30), 18 + below(200), below(1473), 1472][below(4)];
    let cut = below(6) == 0 && len > 200;
    let mut frame = udp_frame(0, 1, ports, &bytes(len, id));
    let head = if cut { tcp(&mut frame, below) } else { [18, HEAD, HEAD + below(len.min(180) + 1)][below(3)].min(frame.len()) };
    let mut cuts: Vec<usize> =
        if head < frame.len() { (0..below(4)).map(|_| head + 1 + below(frame.len() - head)).collect() } else { Vec::new() };
    cuts.extend([head, frame.len()]);
    cuts.sort_unstable();
    cuts.dedup();
    let mss = if cut { Some(64 + below(400) as u16) } else { None };
    Work { frame, head, cuts, checksum: cut || below(2) == 0, mss, in_line: below(3) == 0, cookie: if below(3) > 0 { id } else { 0 } }
}

/// Makes a frame one of TCP, with as many bytes: bytes of its headers.
fn tcp(frame: &mut [u8], below: &mut impl FnMut(usize) -> usize) -> usize {
    frame[23] = 6;
    frame[18..20].copy_from_slice(&(below(65_536) as u16).to_be_bytes());
    frame[38..54].fill(0);
    frame[41] = below(256) as u8;
    frame[46..48].copy_from_slice(&[0x50, 0x10 | (below(2) as u8 * 8)]);
    54
}

/// Sends a batch by a ring; the last frame asks for a completion, as the library's does.
fn send(from: &mut Mlx5Queues, works: &[Work]) {
    for work in works {
        let len = work.frame.len() - work.head;
        let mut buffers: Vec<SendBuffer> = Vec::new();
        if len > 0 {
            let mut buffer = from.tx_alloc(len).expect("a buffer");
            buffer.write(0, &work.frame[work.head..]);
            buffers.push(buffer);
        }
        let slice = |pair: &[usize]| TxSlice { buffer: &buffers[0], offset: pair[0] - work.head, len: pair[1] - pair[0] };
        let body: Vec<_> = work.cuts.windows(2).map(slice).collect();
        let offload = TxOffload { checksum: work.checksum, tso_mss: work.mss, ..TxOffload::default() };
        from.send_with_cookie(&TxFrame { head: &work.frame[..work.head], body: &body, offload }, work.cookie).expect("room");
    }
    from.doorbell();
}

/// What came to a receive queue, by the port that it came from: of one send queue, in its order.
type Streams = BTreeMap<(usize, u16), Vec<Received>>;

fn add(streams: &mut Streams, queue: usize, frame: Received) {
    let from = u16::from_be_bytes([frame.bytes[34], frame.bytes[35]]);
    streams.entry((queue, from)).or_default().push(frame);
}

/// What has become of a seed's work: frames at the receive queues, and completions, by send queue.
type Outcome = (Streams, Vec<Vec<(u64, bool)>>);

/// Both data paths' send queues, and the receive queues of one of them: two rules for the same frames are not what is to be seen here.
struct Run {
    from: Vec<Mlx5Queues>,
    library: Library,
    /// Ours; none, if the library's receive.
    to: Vec<Mlx5Queues>,
}

impl Run {
    fn new(ours_receive: bool) -> Self {
        let open = |end: usize, count| {
            let device = card(&settings(end));
            (0..count).map(|_| device.open(&QueuesConfig { steered_only: true }).expect("a ring")).collect::<Vec<_>>()
        };
        let [from, to] = [(0, QUEUES), (1, if ours_receive { QUEUES } else { 0 })].map(|(end, count)| open(end, count));
        for (queue, ring) in to.iter().enumerate() {
            for protocol in [Protocol::Udp, Protocol::Tcp] {
                ring.steer(&FlowRule::flow(protocol, address(1, PORT + queue as u16), None)).expect("room");
            }
        }
        let mut library = Library::new(QUEUES);
        if !ours_receive {
            library.steer(MACS[1], PORT);
        }
        Self { from, library, to }
    }

    /// Does a seed's work by our send queues, or by the library's.
    fn outcome(&mut self, batches: &[(usize, Vec<Work>)], by_ours: bool) -> Outcome {
        let (mut streams, mut told, mut frames) = (Streams::new(), vec![Vec::new(); QUEUES], 0);
        for (queue, works) in batches {
            if by_ours {
                send(&mut self.from[*queue], works);
            } else {
                self.library.post(*queue, works);
            }
            // (A command has the card do what was rung for. What was sent may take a moment longer to arrive.)
            self.library.work();
            frames += works.iter().map(Work::frames_for_somebody).sum::<usize>();
            let end = Clock::system().now() + PATIENCE;
            loop {
                self.receive(&mut streams);
                self.reap(*queue, &mut told[*queue]);
                let come = streams.values().map(Vec::len).sum::<usize>();
                if come >= frames && !self.is_busy(*queue, by_ours) {
                    break;
                }
                assert!(Clock::system().now() < end, "{come} frames of {frames}");
            }
        }
        (streams, told)
    }

    /// Takes completions of both.
    fn reap(&mut self, queue: usize, told: &mut Vec<(u64, bool)>) {
        let from = &mut self.from[queue];
        from.reap();
        while let Some(completion) = from.completion() {
            told.push((completion.cookie, completion.status == SendStatus::Sent));
        }
        self.library.reap(queue, told);
    }

    /// Whether the card has not said yet that it has sent all of a queue's.
    fn is_busy(&self, queue: usize, by_ours: bool) -> bool {
        if by_ours { self.from[queue].unsent() > 0 } else { self.library.is_busy(queue) }
    }

    /// All that has come.
    fn receive(&mut self, streams: &mut Streams) {
        for (queue, ring) in self.to.iter_mut().enumerate() {
            loop {
                let frames = poll(ring);
                if frames.is_empty() {
                    break;
                }
                for frame in frames {
                    let is_good = frame.meta.checksum == ChecksumVerdict::Good;
                    add(streams, queue, Received { bytes: frame.bytes, is_good });
                }
            }
        }
        self.library.receive(|queue, frame| add(streams, queue, frame));
    }
}

#[test]
fn random_work_has_the_same_frames_and_completions_on_both_data_paths() {
    on_card(path_of!(random_work_has_the_same_frames_and_completions_on_both_data_paths), || {
        let mut at_ours = Vec::new();
        let (mut frames, mut segments, mut completions, mut received) = (0, 0, 0, 0);
        for ours_receive in [true, false] {
            let mut run = Run::new(ours_receive);
            for seed in 0..SEEDS {
                let batches = batches(seed);
                run.library.renew();
                let (theirs, mine) = (run.outcome(&batches, false), run.outcome(&batches, true));
                assert_same(&theirs, &mine, &format!("seed {seed}, by libmlx5 and by our send queues"));
                let works = || batches.iter().flat_map(|(_, works)| works);
                let wanted: Vec<u64> = works().map(|work| work.cookie).filter(|cookie| *cookie > 0).collect();
                assert_eq!(mine.1.iter().map(Vec::len).sum::<usize>(), wanted.len(), "seed {seed}: a completion for each cookie");
                received += mine.0.values().map(Vec::len).sum::<usize>();
                if ours_receive {
                    frames += works().count();
                    segments += works().filter(|work| work.mss.is_some()).count();
                    completions += wanted.len();
                    at_ours.push(mine);
                } else {
                    assert_same(&mine, &at_ours[seed as usize], &format!("seed {seed}, at libmlx5's and at our receive queues"));
                }
            }
            let failures: u64 = run.from.iter().map(|ring| ring.counters().send_failures).sum();
            assert_eq!(failures + run.to.iter().map(|ring| ring.counters().receive_failures).sum::<u64>(), 0);
        }
        let all = [frames, segments, completions, received];
        assert!(frames > 4000 && segments > 200 && completions > 2000 && received > frames, "{all:?}");
    });
}

fn assert_same((left, told): &Outcome, (right, told_right): &Outcome, what: &str) {
    assert_eq!(told, told_right, "{what}: completions");
    assert!(left.keys().eq(right.keys()), "{what}: {:?} {:?}", left.keys(), right.keys());
    for (stream, frames) in left {
        let others = &right[stream];
        assert_eq!(frames.len(), others.len(), "{what}: frames of {stream:?}");
        for (number, (frame, other)) in frames.iter().zip(others).enumerate() {
            assert_eq!(frame, other, "{what}: frame {number} of {stream:?}");
        }
    }
}
