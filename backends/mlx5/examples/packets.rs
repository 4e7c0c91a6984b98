//! What a packet of 64 bytes takes on the data path alone: this crate's, and libmlx5's own (ibv_post_send, ibv_poll_cq, ibv_post_recv).
//!
//!     packets ringway|libmlx5|libmlx5-by-reference send|receive BATCH ROUNDS
//!     packets ringway-compressed|ringway-strides|ringway-compressed-strides receive BATCH ROUNDS
//!
//! (With compressed completions; into a striding queue, whose frames are read where they lie; and both.)
//!
//! A round is a batch that is posted with one doorbell, and then completions that are taken; or a batch that has come, which is taken, and whose buffers are posted
//! again. Between the two the card works, of which nothing is measured: any command of the library makes the software ConnectX do first what was posted before it, in the
//! calling thread (its own thread finds nothing to do then). It prints nanoseconds for a packet, the median of all rounds, less what it takes to look at the clock. For callgrind,
//! what is measured is in functions whose names begin with `packets_`. RINGWAY_TEST_CARD=NAME names a real card, which is left a millisecond for its work.

use core::ptr::null_mut;
use core::time::Duration;
use std::ffi::CStr;

use rdma_core_sys as sys;
use rdma_core_sys::Ibverbs;
use ringway_host::Clock;
use ringway_mlx5::{Mlx5Device, Mlx5Queues, Received, Settings};
use ringway_stack::device::{
    CyclicConfig, CyclicId, CyclicPacket, Device as _, FlowRule, MacAddr, Protocol, Queues as _, QueuesConfig, RxBatch, Target, TxFrame,
    TxOffload,
};

/// Bytes of a frame, and packets of the largest batch.
const FRAME: usize = 64;
const BATCH_MAX: usize = 64;
/// Entries of a queue: so few that one whose completions are not taken is full soon.
const ENTRIES: u32 = 256;
/// Bytes of a buffer to receive into.
const BUFFER: usize = 2048;
const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 0x0a]), MacAddr([2, 0, 0, 0, 0, 0x0b])];

type Frame = [u8; FRAME];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [whose, what, batch, rounds] = &arguments[..] else { panic!("packets WHOSE send|receive BATCH ROUNDS") };
    let batch: usize = batch.parse().expect("a number");
    assert!((1..=BATCH_MAX).contains(&batch), "a batch of 1 to {BATCH_MAX}");
    let mut run = Run { rounds: rounds.parse().expect("a number"), batch, card: Card::open(), times: Vec::new() };
    match (&**whose, &**what) {
        ("ringway", "send") => run.ours_sends(),
        ("ringway", "receive") => run.ours_receives(false),
        ("ringway-compressed", "receive") => run.ours_receives(true),
        ("ringway-strides", "receive") => run.strides_receive(false),
        ("ringway-compressed-strides", "receive") => run.strides_receive(true),
        ("libmlx5", "send") => run.theirs_sends(sys::IBV_SEND_INLINE),
        ("libmlx5-by-reference", "send") => run.theirs_sends(0),
        ("libmlx5", "receive") => run.theirs_receives(),
        _ => panic!("not {whose} and {what}"),
    }
    println!("{:.1}", run.nanoseconds());
}

/// The library's own objects, of one opening of the card.
struct Card {
    verbs: &'static Ibverbs,
    context: *mut sys::ibv_context,
    pd: *mut sys::ibv_pd,
    mr: *mut sys::ibv_mr,
    cq: *mut sys::ibv_cq,
    qp: *mut sys::ibv_qp,
    /// What is registered.
    memory: Vec<u8>,
}

impl Card {
    fn open() -> Self {
        let verbs = Ibverbs::get().expect("libibverbs");
        let mut memory = vec![0; BUFFER * ENTRIES as usize];
        // SAFETY: objects are made by the library and checked, and used before they end, which is when the value is dropped, with the memory after them.
        unsafe {
            let list = verbs.ibv_get_device_list(null_mut());
            assert!(!list.is_null() && !(*list).is_null(), "a card");
            let mut device = list;
            while let Some(name) = card_name()
                && !(*device).is_null()
                && CStr::from_ptr(verbs.ibv_get_device_name(*device)).to_bytes() != name.as_bytes()
            {
                device = device.add(1);
            }
            assert!(!(*device).is_null(), "a card of that name");
            let context = verbs.ibv_open_device(*device);
            verbs.ibv_free_device_list(list);
            let pd = verbs.ibv_alloc_pd(context);
            let mr = verbs.ibv_reg_mr(pd, memory.as_mut_ptr().cast(), memory.len(), sys::IBV_ACCESS_LOCAL_WRITE.cast_signed());
            let cq = verbs.ibv_create_cq(context, ENTRIES.cast_signed(), null_mut(), null_mut(), 0);
            let cap = sys::ibv_qp_cap {
                max_send_wr: ENTRIES,
                max_recv_wr: ENTRIES,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: FRAME as u32,
            };
            let qp_type = sys::IBV_QPT_RAW_PACKET;
            let mut init = sys::ibv_qp_init_attr { send_cq: cq, recv_cq: cq, cap, qp_type, ..Default::default() };
            let qp = verbs.ibv_create_qp(pd, &raw mut init);
            assert!(!qp.is_null() && !mr.is_null());
            for (state, mask) in [(sys::IBV_QPS_INIT, sys::IBV_QP_PORT), (sys::IBV_QPS_RTR, 0), (sys::IBV_QPS_RTS, 0)] {
                let mut attr = sys::ibv_qp_attr { qp_state: state, port_num: 1, ..Default::default() };
                assert_eq!(verbs.ibv_modify_qp(qp, &raw mut attr, (sys::IBV_QP_STATE | mask).cast_signed()), 0);
            }
            Self { verbs, context, pd, mr, cq, qp, memory }
        }
    }

    /// Has the card do what was posted.
    fn work(&self) {
        let mut attr = sys::ibv_port_attr::default();
        // SAFETY: the context is open, and the attribute writable.
        assert_eq!(unsafe { self.verbs.ibv_query_port(self.context, 1, &raw mut attr) }, 0);
        if card_name().is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// An element for each buffer, of so many bytes.
    fn elements(&self, len: usize) -> Vec<sys::ibv_sge> {
        // SAFETY: the region is there, and its key never changes.
        let lkey = unsafe { (*self.mr).lkey };
        self.memory.chunks(BUFFER).map(|buffer| sys::ibv_sge { addr: buffer.as_ptr().addr() as u64, length: len as u32, lkey }).collect()
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        let Self { verbs, context, pd, mr, cq, qp, .. } = self;
        // SAFETY: nothing uses them any more.
        unsafe {
            assert_eq!((verbs.ibv_destroy_qp(*qp), verbs.ibv_destroy_cq(*cq), verbs.ibv_dereg_mr(*mr)), (0, 0, 0));
            assert_eq!((verbs.ibv_dealloc_pd(*pd), verbs.ibv_close_device(*context)), (0, 0));
        }
    }
}

/// What is measured, and what it took.
struct Run {
    rounds: usize,
    batch: usize,
    card: Card,
    /// Nanoseconds of each round, and how often the clock was looked at for them.
    times: Vec<(u64, u64)>,
}

impl Run {
    /// Does something, and adds what it takes to the round's time.
    #[inline(always)]
    fn measured<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let clock = Clock::system();
        let begin = clock.now();
        let done = work();
        let took = clock.now() - begin;
        if let Some((time, looks)) = self.times.last_mut() {
            (*time, *looks) = (*time + took.as_nanos() as u64, *looks + 1);
        }
        done
    }

    /// Of a packet.
    fn nanoseconds(&mut self) -> f64 {
        let mut empty: Vec<u64> = Vec::new();
        for _ in 0..1001 {
            self.times.push((0, 0));
            self.measured(|| ());
            empty.extend(self.times.pop().map(|(time, _)| time));
        }
        empty.sort_unstable();
        let look = empty[empty.len() / 2];
        let mut all: Vec<u64> = self.times.iter().map(|(time, looks)| time.saturating_sub(looks * look)).collect();
        all.sort_unstable();
        all[all.len() / 2] as f64 / self.batch as f64
    }

    fn begin_round(&mut self) {
        self.times.push((0, 0));
    }

    fn ours_sends(&mut self) {
        let mut from = ring(0, true);
        for round in 0..self.rounds {
            let frames = frames(round, self.batch);
            self.begin_round();
            self.measured(|| packets_ringway_post(&mut from, &frames));
            self.card.work();
            self.measured(|| packets_ringway_reap(&mut from));
        }
        let counters = from.counters();
        assert_eq!((counters.sent, counters.doorbells, counters.send_failures), ((self.rounds * self.batch) as u64, self.rounds as u64, 0));
    }

    fn ours_receives(&mut self, compresses: bool) {
        let (mut from, mut to) = (ring(0, true), ring_with(1, false, compresses));
        let mut into = RxBatch::<Received>::new(BATCH_MAX);
        for round in 0..self.rounds {
            self.come(&mut from, round);
            self.begin_round();
            assert_eq!(self.measured(|| packets_ringway_receive(&mut to, &mut into)), self.batch);
        }
        // (A run has two frames at least.)
        assert_eq!(to.counters().compressed_runs > 0, compresses && self.batch > 1, "{:?}", to.counters());
    }

    fn strides_receive(&mut self, compresses: bool) {
        let (mut from, mut to) = (ring(0, true), ring_with(1, true, compresses));
        let queue = to.cyclic_create(&CyclicConfig { stride_bytes: 64, strides: 4096 }).expect("a striding queue");
        let rule = FlowRule::flow(Protocol::Udp, "10.9.0.2:7".parse().expect("an address"), None);
        to.device().attach(&rule, Target::Cyclic(to.id(), queue)).expect("room");
        let mut packets = Vec::with_capacity(BATCH_MAX);
        for round in 0..self.rounds {
            self.come(&mut from, round);
            self.begin_round();
            let mut count = self.measured(|| packets_ringway_strides(&mut to, queue, &mut packets));
            if count < self.batch {
                // (A run ends where the buffer does.)
                count += self.measured(|| packets_ringway_strides(&mut to, queue, &mut packets));
            }
            assert_eq!(count, self.batch);
        }
        assert_eq!(to.counters().compressed_runs > 0, compresses && self.batch > 1, "{:?}", to.counters());
    }

    fn theirs_sends(&mut self, flags: u32) {
        let mut elements = self.card.elements(FRAME);
        let mut requests = vec![sys::ibv_send_wr::default(); self.batch];
        let (qp, cq) = (self.card.qp, self.card.cq);
        for round in 0..self.rounds {
            for (buffer, frame) in self.card.memory.chunks_mut(BUFFER).zip(frames(round, self.batch)) {
                buffer[..FRAME].copy_from_slice(&frame);
            }
            for (at, element) in (0..self.batch).zip(&mut elements) {
                let is_last = at + 1 == self.batch;
                requests[at] = sys::ibv_send_wr {
                    sg_list: element,
                    num_sge: 1,
                    opcode: sys::IBV_WR_SEND,
                    // (As ours: one completion for each doorbell.)
                    send_flags: flags | if is_last { sys::IBV_SEND_SIGNALED } else { 0 },
                    ..Default::default()
                };
            }
            for at in 1..self.batch {
                requests[at - 1].next = &raw mut requests[at];
            }
            self.begin_round();
            self.measured(|| packets_libmlx5_post(qp, &mut requests));
            self.card.work();
            assert_eq!(self.measured(|| packets_libmlx5_reap(cq)), 1);
        }
    }

    fn theirs_receives(&mut self) {
        let mut from = ring(0, true);
        let mut elements = self.card.elements(BUFFER);
        let mut requests: Vec<sys::ibv_recv_wr> =
            elements.iter_mut().map(|sg_list| sys::ibv_recv_wr { wr_id: 0, next: null_mut(), sg_list, num_sge: 1 }).collect();
        for at in 1..requests.len() {
            requests[at - 1].next = &raw mut requests[at];
        }
        let (qp, cq, mut bad) = (self.card.qp, self.card.cq, null_mut());
        // SAFETY: the queue pair is there, and so are elements and requests.
        unsafe { assert_eq!(sys::ibv_post_recv(qp, requests.as_mut_ptr(), &raw mut bad), 0) };
        let flow = rule(qp);
        requests[self.batch - 1].next = null_mut();
        for round in 0..self.rounds {
            self.come(&mut from, round);
            self.begin_round();
            assert_eq!(self.measured(|| packets_libmlx5_receive(qp, cq, &mut requests)), self.batch);
        }
        // SAFETY: the rule is there.
        assert_eq!(unsafe { sys::ibv_destroy_flow(flow) }, 0);
    }

    /// A batch comes.
    fn come(&self, from: &mut Mlx5Queues, round: usize) {
        post_frames(from, &frames(round, self.batch));
        self.card.work();
        from.reap();
    }
}

/// A ring, which has what comes for port 7 if it does not send.
fn ring(end: usize, sends: bool) -> Mlx5Queues {
    ring_with(end, sends, false)
}

fn ring_with(end: usize, sends: bool, compresses: bool) -> Mlx5Queues {
    let plain = Settings { compresses, ..Settings::new(&card_name().unwrap_or_else(|| "mlx5_0".to_owned())) };
    let settings =
        Settings { mac: Some(MACS[end]), mtu: Some(1500), received_frames: ENTRIES, copied_frames: 64, send_blocks: ENTRIES, ..plain };
    let queues = Mlx5Device::open_card(&settings).expect("the card").open(&QueuesConfig { steered_only: true }).expect("a ring");
    if !sends {
        queues.steer(&FlowRule::flow(Protocol::Udp, "10.9.0.2:7".parse().expect("an address"), None)).expect("room");
    }
    queues
}

/// A real card's, if there is to be one.
fn card_name() -> Option<String> {
    std::env::var("RINGWAY_TEST_CARD").ok()
}

/// A rule for what is for the second address.
fn rule(qp: *mut sys::ibv_qp) -> *mut sys::ibv_flow {
    #[repr(C)]
    struct Rule {
        attr: sys::ibv_flow_attr,
        ethernet: sys::ibv_flow_spec_eth,
    }
    let to = |dst_mac| sys::ibv_flow_eth_filter { dst_mac, src_mac: [0; 6], ether_type: 0, vlan_tag: 0 };
    let mut rule = Rule {
        attr: sys::ibv_flow_attr {
            comp_mask: 0,
            r#type: sys::IBV_FLOW_ATTR_NORMAL,
            size: size_of::<Rule>() as u16,
            priority: 0,
            num_of_specs: 1,
            port: 1,
            flags: 0,
        },
        ethernet: sys::ibv_flow_spec_eth {
            r#type: sys::IBV_FLOW_SPEC_ETH,
            size: size_of::<sys::ibv_flow_spec_eth>() as u16,
            val: to(MACS[1].0),
            mask: to([0xff; 6]),
        },
    };
    // SAFETY: the queue pair is there, and the rule as long as it says.
    let flow = unsafe { sys::ibv_create_flow(qp, (&raw mut rule).cast()) };
    assert!(!flow.is_null(), "a rule");
    flow
}

/// Frames of UDP, of which no two of a program are alike.
fn frames(round: usize, count: usize) -> Vec<Frame> {
    let one = |at: usize| {
        let mut frame = [0; FRAME];
        let head = [&MACS[1].0[..], &MACS[0].0, &[8, 0, 0x45, 0, 0, 50, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]].concat();
        frame[..head.len()].copy_from_slice(&head);
        frame[34..42].copy_from_slice(&[0, 5, 0, 7, 0, 30, 0, 0]);
        frame[42..50].copy_from_slice(&((round * BATCH_MAX + at) as u64).to_be_bytes());
        frame
    };
    (0..count).map(one).collect()
}

fn post_frames(queues: &mut Mlx5Queues, frames: &[Frame]) {
    for frame in frames {
        // (How long it is the compiler does not know in a program either.)
        let head = core::hint::black_box(&frame[..]);
        queues.send(&TxFrame { head, body: &[], offload: TxOffload::default() }).expect("room");
    }
    queues.doorbell();
}

#[unsafe(no_mangle)]
#[inline(never)]
fn packets_ringway_post(queues: &mut Mlx5Queues, frames: &[Frame]) {
    post_frames(queues, frames);
}

#[unsafe(no_mangle)]
#[inline(never)]
fn packets_ringway_reap(queues: &mut Mlx5Queues) {
    queues.reap();
}

#[unsafe(no_mangle)]
#[inline(never)]
fn packets_ringway_receive(queues: &mut Mlx5Queues, into: &mut RxBatch<Received>) -> usize {
    let count = queues.poll_rx(ringway_stack::Instant::ZERO, into);
    into.clear();
    count
}

#[unsafe(no_mangle)]
#[inline(never)]
fn packets_ringway_strides(queues: &mut Mlx5Queues, queue: CyclicId, packets: &mut Vec<CyclicPacket>) -> usize {
    packets.clear();
    let run = queues.cyclic_read(queue, BATCH_MAX, packets).expect("the queue");
    drop(run);
    packets.len()
}

#[unsafe(no_mangle)]
#[inline(never)]
fn packets_libmlx5_post(qp: *mut sys::ibv_qp, requests: &mut [sys::ibv_send_wr]) {
    let mut bad = null_mut();
    // SAFETY: the queue pair is there, and so is what the requests refer to.
    assert_eq!(unsafe { sys::ibv_post_send(qp, requests.as_mut_ptr(), &raw mut bad) }, 0);
}

#[unsafe(no_mangle)]
#[inline(never)]
fn packets_libmlx5_reap(cq: *mut sys::ibv_cq) -> usize {
    let mut completions = [const { core::mem::MaybeUninit::<sys::ibv_wc>::uninit() }; 16];
    // SAFETY: the queue is there; completions are written as far as they are counted, and the first alone is looked at if there is one.
    unsafe {
        let count = sys::ibv_poll_cq(cq, completions.len() as i32, completions.as_mut_ptr().cast());
        assert!(count < 1 || completions[0].assume_init_ref().status == sys::IBV_WC_SUCCESS);
        usize::try_from(count).expect("no error")
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn packets_libmlx5_receive(qp: *mut sys::ibv_qp, cq: *mut sys::ibv_cq, requests: &mut [sys::ibv_recv_wr]) -> usize {
    let mut completions = [const { core::mem::MaybeUninit::<sys::ibv_wc>::uninit() }; BATCH_MAX];
    let mut bad = null_mut();
    // SAFETY: as above; the queue pair is there, and so are the requests.
    unsafe {
        let count = sys::ibv_poll_cq(cq, completions.len() as i32, completions.as_mut_ptr().cast());
        assert!(count > 0 && completions[0].assume_init_ref().status == sys::IBV_WC_SUCCESS);
        assert_eq!(sys::ibv_post_recv(qp, requests.as_mut_ptr(), &raw mut bad), 0);
        usize::try_from(count).expect("no error")
    }
}
