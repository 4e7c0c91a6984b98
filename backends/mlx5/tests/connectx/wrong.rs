//! Wrong entries on libmlx5's own queue and on ours, byte by byte the same: the card says the same of both.

use core::ptr::null_mut;

use rdma_core_sys as sys;
use rdma_core_sys::{Ibverbs, Mlx5dv};
use ringway_mlx5::{Mlx5Device, Settings};
use ringway_stack::device::{DeviceEvent, Queues as _, QueuesConfig, SendStatus, TxBuffer as _, TxFrame, TxOffload, TxSlice};

use crate::world::{bytes, card, numbers, on_card, path_of, settings, udp_frame};

/// Bytes of an entry: with 18 bytes in line and one piece it is one block.
const ENTRY: usize = 64;
const IN_LINE: usize = 18;
/// Sets of random changes.
const SEEDS: u64 = 300;

/// What is changed: a byte of the entry, and by which bits. (Of addresses and lengths the highest byte alone, and of keys the highest bit: then neither queue's memory has what they
/// name. That a completion is wanted is left as it is.)
fn changes() -> Vec<(usize, u8)> {
    let mut changes = vec![(0, 0)];
    // Opcode: SEND (0x0a) becomes others, and nothing that there is.
    changes.extend([0x0a, 0x01, 0x04, 0x0f, 0x02, 0x12, 0x23, 0xf5].map(|bits| (3, bits)));
    // The entry's index, the queue pair's number, and `ds` (4).
    changes.extend([(0, 1), (1, 0x80), (2, 1), (4, 0x40), (5, 1), (6, 1)]);
    changes.extend([1, 2, 4, 5, 6, 7, 8, 0x3b, 0x40, 0x80].map(|bits| (7, bits)));
    changes.extend([(8, 0xff), (9, 1), (12, 1), (16, 1), (20, 0xc0), (21, 1), (22, 1), (23, 0x40), (24, 1)]);
    // Bytes in line (18).
    changes.extend([1, 2, 0x10, 0x12, 0x20, 0x30, 0xff].map(|bits| (29, bits)));
    changes.extend([(28, 1), (48, 0x80), (48, 0x40), (52, 0x80), (56, 0x80)]);
    changes
}

/// Changes of one byte or of several at once, by a seed. Of addresses, lengths and keys as above; all else is changed as it comes, but for byte 11, which has whether a
/// completion is wanted.
fn random_changes(seed: u64) -> Vec<(usize, u8)> {
    let mut below = numbers(seed);
    let one = |_| match below(40) {
        at @ 0..=10 => (at, 1 << below(8)),
        // Several bits of what says most: opcode, `ds`, bytes in line.
        11..=18 => ([3, 7, 29][below(3)], 1 + below(255) as u8),
        at @ 19..=37 => (12 + below(36).min(at), 1 << below(8)),
        _ => [(48, 0x80), (48, 0x40), (52, 0x80), (56, 0x80)][below(4)],
    };
    (0..1 + seed as usize % 3).map(one).collect()
}

/// How an entry ended: well, badly, by the end of its queue without a completion, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Sent,
    Failed,
    Never,
}

/// libmlx5's objects, and an entry of them.
struct Theirs {
    verbs: &'static Ibverbs,
    context: *mut sys::ibv_context,
    pd: *mut sys::ibv_pd,
    mr: *mut sys::ibv_mr,
    memory: Vec<u8>,
}

impl Theirs {
    fn new(payload: &[u8]) -> Self {
        let verbs = Ibverbs::get().expect("libibverbs");
        let mut memory = payload.to_vec();
        // SAFETY: objects are made by the library and checked; the memory is there as long as the value.
        unsafe {
            let list = verbs.ibv_get_device_list(null_mut());
            let context = verbs.ibv_open_device(*list);
            verbs.ibv_free_device_list(list);
            let pd = verbs.ibv_alloc_pd(context);
            let mr = verbs.ibv_reg_mr(pd, memory.as_mut_ptr().cast(), memory.len(), 0);
            assert!(!mr.is_null());
            Self { verbs, context, pd, mr, memory }
        }
    }

    /// Has the card do what was rung for: any command does.
    fn work(&self) {
        let mut attr = sys::ibv_port_attr::default();
        // SAFETY: the context is open, and the attribute writable.
        (0..2).for_each(|_| unsafe { assert_eq!(self.verbs.ibv_query_port(self.context, 1, &raw mut attr), 0) });
    }

    /// Posts our entry to a queue pair of its own, with what is its own in place of ours, changed in the same way.
    fn post(&self, ours: &[u8; ENTRY], changes: &[(usize, u8)]) -> Ended {
        let Self { verbs, pd, mr, memory, context, .. } = self;
        // SAFETY: objects are made by the library and checked, and end before the function does; the entry is written where the library says that the queue lies.
        unsafe {
            let cq = verbs.ibv_create_cq(*context, 16, null_mut(), null_mut(), 0);
            let mut init = sys::ibv_qp_init_attr {
                send_cq: cq,
                recv_cq: cq,
                cap: sys::ibv_qp_cap { max_send_wr: 64, max_send_sge: 1, ..Default::default() },
                qp_type: sys::IBV_QPT_RAW_PACKET,
                ..Default::default()
            };
            let qp = verbs.ibv_create_qp(*pd, &raw mut init);
            assert!(!qp.is_null());
            for (state, mask) in [(sys::IBV_QPS_INIT, sys::IBV_QP_PORT), (sys::IBV_QPS_RTR, 0), (sys::IBV_QPS_RTS, 0)] {
                let mut attr = sys::ibv_qp_attr { qp_state: state, port_num: 1, ..Default::default() };
                assert_eq!(verbs.ibv_modify_qp(qp, &raw mut attr, (sys::IBV_QP_STATE | mask).cast_signed()), 0);
            }
            let mut layout = sys::mlx5dv_qp::default();
            let asked = sys::mlx5dv_obj_qp { r#in: qp, out: &raw mut layout };
            let mut object = sys::mlx5dv_obj { qp: asked, ..Default::default() };
            assert_eq!(Mlx5dv::get().expect("libmlx5").mlx5dv_init_obj(&raw mut object, sys::MLX5DV_OBJ_QP.into()), 0);
            let mut entry = *ours;
            entry[4..7].copy_from_slice(&(*qp).qp_num.to_be_bytes()[1..]);
            entry[11] = sys::MLX5_WQE_CTRL_CQ_UPDATE;
            entry[52..56].copy_from_slice(&(**mr).lkey.to_be_bytes());
            entry[56..].copy_from_slice(&(memory.as_ptr().addr() as u64).to_be_bytes());
            changes.iter().for_each(|&(at, bits)| entry[at] ^= bits);
            layout.sq.buf.cast::<[u8; ENTRY]>().write(entry);
            layout.dbrec.add(1).write_volatile(1u32.to_be());
            layout.bf.reg.cast::<u64>().write_volatile(entry.as_ptr().cast::<u64>().read_unaligned());
            self.work();
            let mut completion = sys::ibv_wc::default();
            let ended = match verbs_poll(cq, &mut completion) {
                0 => Ended::Never,
                _ if completion.status == sys::IBV_WC_SUCCESS => Ended::Sent,
                _ => Ended::Failed,
            };
            assert_eq!((verbs.ibv_destroy_qp(qp), verbs.ibv_destroy_cq(cq)), (0, 0));
            ended
        }
    }
}

/// # Safety
/// The queue is there.
unsafe fn verbs_poll(cq: *mut sys::ibv_cq, completion: &mut sys::ibv_wc) -> i32 {
    // SAFETY: the caller's promise; there is room for one.
    unsafe { sys::ibv_poll_cq(cq, 1, completion) }
}

impl Drop for Theirs {
    fn drop(&mut self) {
        // SAFETY: nothing uses them any more.
        unsafe {
            assert_eq!((self.verbs.ibv_dereg_mr(self.mr), self.verbs.ibv_dealloc_pd(self.pd)), (0, 0));
            assert_eq!(self.verbs.ibv_close_device(self.context), 0);
        }
    }
}

/// Posts an entry, changed, to a ring of its own: how it was before, and how it ended.
fn ours(device: &Mlx5Device, frame: &[u8], changes: &[(usize, u8)], theirs: &Theirs) -> ([u8; ENTRY], Ended) {
    let mut ring = device.open_ring(&QueuesConfig { steered_only: true }).expect("a ring");
    let mut buffer = ring.tx_alloc(frame.len()).expect("a buffer");
    buffer.write(0, &frame[IN_LINE..]);
    let slice = TxSlice { buffer: &buffer, offset: 0, len: frame.len() - IN_LINE };
    ring.send_with_cookie(&TxFrame { head: &frame[..IN_LINE], body: &[slice], offload: TxOffload::default() }, 1).expect("room");
    let mut was = [0; ENTRY];
    // SAFETY: what is changed names memory that the card does not have, or none.
    unsafe {
        ring.change_last_entry(|entry| {
            was = *entry;
            changes.iter().for_each(|&(at, bits)| entry[at] ^= bits);
        });
    }
    ring.doorbell();
    theirs.work();
    ring.reap();
    while ring.poll_event() == Some(DeviceEvent::Reset) {}
    let ended = match ring.completion().map(|told| told.status) {
        Some(SendStatus::Sent) => Ended::Sent,
        Some(SendStatus::Failed) => Ended::Failed,
        // (A queue that fails without a completion is made anew by its event, which is read by a thread.)
        Some(SendStatus::Flushed) | None => Ended::Never,
    };
    (was, ended)
}

#[test]
fn the_card_says_the_same_of_the_same_wrong_entry() {
    let log = on_card(path_of!(the_card_says_the_same_of_the_same_wrong_entry), || {
        compare(changes().into_iter().map(|change| vec![change]));
    });
    let broken = broken_rules(&log);
    assert!(broken > 20, "{broken} changes break a rule: {log}");
}

#[test]
fn the_card_says_the_same_of_entries_that_are_wrong_at_random() {
    let log = on_card(path_of!(the_card_says_the_same_of_entries_that_are_wrong_at_random), || compare((0..SEEDS).map(random_changes)));
    let broken = broken_rules(&log);
    assert!(broken > SEEDS as usize / 4, "{broken} changes break a rule: {log}");
}

/// Posts an entry to both queues for each set of changes.
fn compare(sets: impl Iterator<Item = Vec<(usize, u8)>>) {
    let frame = udp_frame(0, 1, (5, 7), &bytes(300, 1));
    let small = Settings { received_frames: 16, copied_frames: 0, send_blocks: 64, send_buffers: 16, ..settings(0) };
    let (device, theirs) = (card(&small), Theirs::new(&frame[IN_LINE..]));
    for (number, changes) in sets.enumerate() {
        eprintln!("ours {number}");
        let (entry, mine) = ours(&device, &frame, &changes, &theirs);
        eprintln!("theirs {number}");
        assert_eq!(theirs.post(&entry, &changes), mine, "set {number}, changes {changes:x?}");
    }
    eprintln!("ours end");
}

/// How many sets of changes break a rule: of each, the card has said the same of both queues.
fn broken_rules(log: &str) -> usize {
    let mut said = [Vec::new(), Vec::new()];
    let (mut whose, mut broken) = (0, 0);
    for line in log.lines() {
        if line.starts_with("ours ") {
            assert_eq!(said[0], said[1], "before {line}: {log}");
            broken += usize::from(!said[0].is_empty());
            (whose, said) = (0, [Vec::new(), Vec::new()]);
        } else if line.starts_with("theirs ") {
            whose = 1;
        } else if let Some((_, rule)) = line.split_once("queue 0x").and_then(|(_, rest)| rest.split_once(": ")) {
            said[whose].push(without_numbers(rule));
        }
    }
    broken
}

/// Numbers of queues and keys, and addresses, are each queue's own.
fn without_numbers(rule: &str) -> String {
    let word = |word: &str| if word.starts_with("0x") { "it".to_owned() } else { word.to_owned() };
    rule.split(' ').map(word).collect::<Vec<_>>().join(" ")
}
