//! The same work on libmlx5's own data path (ibv_post_send, ibv_poll_cq) and on ours: the same frames leave, and the same completions come.

use core::ptr::null_mut;
use std::ffi::CStr;

use rdma_core_sys as sys;
use rdma_core_sys::Ibverbs;
use ringway_host::Clock;
use ringway_stack::device::{Queues as _, SendStatus, TxBuffer as _, TxFrame, TxOffload, TxSlice};

use crate::frames::pair;
use crate::world::{HEAD, PATIENCE, bytes, on_card, path_of, receive, udp_frame};

/// One send: where a frame is cut in pieces, and whether its checksums are asked for.
struct Work {
    frame: Vec<u8>,
    cuts: Vec<usize>,
    checksum: bool,
}

/// Numbers that look random, and are the same each time.
fn works() -> Vec<Work> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % limit
    };
    let one = |_| {
        let frame = udp_frame(0, 1, (5, 7), &bytes(18 + below(1454), 7));
        let mut cuts: Vec<usize> = (0..below(3)).map(|_| HEAD + 1 + below(frame.len() - HEAD - 1)).collect();
        cuts.push(HEAD);
        cuts.push(frame.len());
        cuts.sort_unstable();
        cuts.dedup();
        Work { frame, cuts, checksum: below(2) == 0 }
    };
    (0..300).map(one).collect()
}

/// Sends all of it by libmlx5's own path, and gives the statuses of the completions.
fn by_the_library(works: &[Work]) -> Vec<u32> {
    let verbs = Ibverbs::get().expect("libibverbs");
    let mut memory = vec![0u8; 1 << 16];
    // SAFETY: objects are made by the library and checked, used before they end, and the memory is there all the while.
    unsafe {
        let list = verbs.ibv_get_device_list(null_mut());
        let context = verbs.ibv_open_device(*list);
        assert_eq!(CStr::from_ptr(verbs.ibv_get_device_name(*list)), c"mlx5_0");
        verbs.ibv_free_device_list(list);
        let pd = verbs.ibv_alloc_pd(context);
        let mr = verbs.ibv_reg_mr(pd, memory.as_mut_ptr().cast(), memory.len(), 0);
        let cq = verbs.ibv_create_cq(context, 64, null_mut(), null_mut(), 0);
        let mut init = sys::ibv_qp_init_attr {
            send_cq: cq,
            recv_cq: cq,
            cap: sys::ibv_qp_cap { max_send_wr: 64, max_send_sge: 4, ..Default::default() },
            qp_type: sys::IBV_QPT_RAW_PACKET,
            ..Default::default()
        };
        let qp = verbs.ibv_create_qp(pd, &raw mut init);
        assert!(!qp.is_null() && !mr.is_null());
        for (state, mask) in [(sys::IBV_QPS_INIT, sys::IBV_QP_PORT), (sys::IBV_QPS_RTR, 0), (sys::IBV_QPS_RTS, 0)] {
            let mut attr = sys::ibv_qp_attr { qp_state: state, port_num: 1, ..Default::default() };
            assert_eq!(verbs.ibv_modify_qp(qp, &raw mut attr, (sys::IBV_QP_STATE | mask).cast_signed()), 0);
        }
        let statuses = works.iter().map(|work| {
            memory[..work.frame.len()].copy_from_slice(&work.frame);
            let starts = core::iter::once(0).chain(work.cuts.iter().copied());
            let piece = |(from, to): (usize, &usize)| sys::ibv_sge {
                addr: memory.as_ptr().add(from).addr() as u64,
                length: (to - from) as u32,
                lkey: (*mr).lkey,
            };
            let mut pieces: Vec<sys::ibv_sge> = starts.zip(&work.cuts).map(piece).collect();
            let flags = sys::IBV_SEND_SIGNALED | if work.checksum { sys::IBV_SEND_IP_CSUM } else { 0 };
            let mut request = sys::ibv_send_wr {
                sg_list: pieces.as_mut_ptr(),
                num_sge: pieces.len() as i32,
                opcode: sys::IBV_WR_SEND,
                send_flags: flags,
                ..Default::default()
            };
            let (mut bad, mut completion) = (null_mut(), sys::ibv_wc::default());
            assert_eq!(sys::ibv_post_send(qp, &raw mut request, &raw mut bad), 0);
            while sys::ibv_poll_cq(cq, 1, &raw mut completion) == 0 {}
            completion.status
        });
        let statuses = statuses.collect();
        assert_eq!((verbs.ibv_destroy_qp(qp), verbs.ibv_destroy_cq(cq), verbs.ibv_dereg_mr(mr)), (0, 0, 0));
        assert_eq!((verbs.ibv_dealloc_pd(pd), verbs.ibv_close_device(context)), (0, 0));
        statuses
    }
}

#[test]
fn the_library_s_own_path_sends_the_same_frames() {
    on_card(path_of!(the_library_s_own_path_sends_the_same_frames), || {
        let [(_, mut from), (_, mut to)] = pair();
        let works = works();
        let theirs = by_the_library(&works);
        assert!(theirs.iter().all(|status| *status == sys::IBV_WC_SUCCESS));
        let expected = receive(&mut to, works.len());
        let end = Clock::system().now() + PATIENCE;
        for (number, (work, theirs)) in works.iter().zip(&expected).enumerate() {
            let mut buffer = from.tx_alloc(work.frame.len()).expect("a buffer");
            buffer.write(0, &work.frame);
            let slice = |pair: &[usize]| TxSlice { buffer: &buffer, offset: pair[0], len: pair[1] - pair[0] };
            let body: Vec<_> = work.cuts.windows(2).map(slice).collect();
            let offload = TxOffload { checksum: work.checksum, ..TxOffload::default() };
            let frame = TxFrame { head: &work.frame[..HEAD], body: &body, offload };
            from.send_with_cookie(&frame, 1 + number as u64).expect("room");
            from.doorbell();
            let told = loop {
                from.reap();
                match from.completion() {
                    Some(told) => break told,
                    None => assert!(Clock::system().now() < end, "a completion"),
                }
            };
            assert_eq!((told.cookie, told.status), (1 + number as u64, SendStatus::Sent));
            let ours = receive(&mut to, 1).remove(0);
            assert!(ours.bytes == theirs.bytes, "send {number}");
            assert_eq!((ours.meta.checksum, ours.meta.flow_tag), (theirs.meta.checksum, theirs.meta.flow_tag));
        }
        assert_eq!(from.counters().send_failures, 0);
    });
}
