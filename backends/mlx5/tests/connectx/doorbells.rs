//! How the card is told of what was posted: by registers, as the doorbell record alone does not.

use core::ptr::null_mut;
use core::sync::atomic::{Ordering, fence};
use core::time::Duration;

use rdma_core_sys as sys;
use rdma_core_sys::{Ibverbs, Mlx5dv};
use ringway_host::Clock;
use ringway_stack::device::{Queues as _, TxFrame, TxOffload};

use crate::frames::pair;
use crate::world::{HEAD, PATIENCE, bytes, on_card, path_of, receive, send, udp_frame};

#[test]
fn what_is_sent_alone_goes_into_the_register_whole() {
    let log = on_card(path_of!(what_is_sent_alone_goes_into_the_register_whole), || {
        let [(_, mut from), (_, mut to)] = pair();
        let mut sent = 0;
        // In line whole: two to four blocks, at each place of both halves; in pieces: two blocks, and six.
        for (len, head, pieces, is_whole) in [(18, HEAD, 1, true), (180, HEAD, 1, true), (1000, HEAD, 1, true), (1000, 250, 5, false)] {
            for turn in 0..5 {
                let frame = udp_frame(0, 1, (5, 7), &bytes(len, turn));
                let before = from.counters();
                send(&mut from, &frame, head, pieces, TxOffload::default()).expect("room");
                assert!(receive(&mut to, 1)[0].bytes == frame);
                from.reap();
                sent += 1;
                let after = from.counters();
                assert_eq!(after.whole_entries - before.whole_entries, u64::from(is_whole), "{len} bytes in {pieces}");
                assert_eq!((after.doorbells, after.sent), (sent, sent));
                // (So that the model sees what was written, and nothing after it.)
                std::thread::sleep(Duration::from_millis(25));
            }
        }
        let before = from.counters();
        let frame = udp_frame(0, 1, (5, 7), &bytes(100, 1));
        for count in [2, 16] {
            (0..count).for_each(|_| from.send(&TxFrame { head: &frame, body: &[], offload: TxOffload::default() }).expect("room"));
            from.doorbell();
            assert_eq!(receive(&mut to, count).len(), count);
        }
        let after = from.counters();
        assert_eq!((after.doorbells - before.doorbells, after.whole_entries), (2, before.whole_entries));
    });
    assert!(!log.contains("queue 0x"), "no rule is broken: {log}");
}

/// By hand: an entry that does nothing, and its record; and the register after a while.
#[test]
fn a_card_that_is_not_rung_for_does_nothing() {
    let log = on_card(path_of!(a_card_that_is_not_rung_for_does_nothing), || {
        let (verbs, dv) = (Ibverbs::get().expect("libibverbs"), Mlx5dv::get().expect("libmlx5"));
        // SAFETY: objects are made by the library and checked, and used before they end, which is with the process.
        unsafe {
            let list = verbs.ibv_get_device_list(null_mut());
            let context = verbs.ibv_open_device(*list);
            let pd = verbs.ibv_alloc_pd(context);
            let cq = verbs.ibv_create_cq(context, 8, null_mut(), null_mut(), 0);
            let cap = sys::ibv_qp_cap { max_send_wr: 8, max_send_sge: 1, ..Default::default() };
            let qp_type = sys::IBV_QPT_RAW_PACKET;
            let mut init = sys::ibv_qp_init_attr { send_cq: cq, recv_cq: cq, cap, qp_type, ..Default::default() };
            let qp = verbs.ibv_create_qp(pd, &raw mut init);
            assert!(!qp.is_null());
            for (state, mask) in [(sys::IBV_QPS_INIT, sys::IBV_QP_PORT), (sys::IBV_QPS_RTR, 0), (sys::IBV_QPS_RTS, 0)] {
                let mut attr = sys::ibv_qp_attr { qp_state: state, port_num: 1, ..Default::default() };
                assert_eq!(verbs.ibv_modify_qp(qp, &raw mut attr, (sys::IBV_QP_STATE | mask).cast_signed()), 0);
            }
            let mut layout = sys::mlx5dv_qp::default();
            let object = sys::mlx5dv_obj_qp { r#in: qp, out: &raw mut layout };
            let mut object = sys::mlx5dv_obj { qp: object, ..Default::default() };
            assert_eq!(dv.mlx5dv_init_obj(&raw mut object, sys::MLX5DV_OBJ_QP.into()), 0);
            let entry = sys::mlx5_wqe_ctrl_seg {
                opmod_idx_opcode: u32::from(sys::MLX5_OPCODE_NOP).to_be(),
                qpn_ds: ((*qp).qp_num << 8 | 1).to_be(),
                fm_ce_se: sys::MLX5_WQE_CTRL_CQ_UPDATE,
                ..Default::default()
            };
            layout.sq.buf.cast::<sys::mlx5_wqe_ctrl_seg>().write_volatile(entry);
            fence(Ordering::SeqCst);
            layout.dbrec.add(sys::MLX5_SND_DBR).write_volatile(1u32.to_be());
            std::thread::sleep(Duration::from_millis(300));
            let mut completion = sys::ibv_wc::default();
            assert_eq!(sys::ibv_poll_cq(cq, 1, &raw mut completion), 0, "nobody has rung");
            layout.bf.reg.cast::<u64>().write_volatile(layout.sq.buf.cast::<u64>().read());
            let end = Clock::system().now() + PATIENCE;
            while sys::ibv_poll_cq(cq, 1, &raw mut completion) == 0 {
                assert!(Clock::system().now() < end, "now somebody has");
            }
            assert_eq!(completion.status, sys::IBV_WC_SUCCESS);
        }
    });
    assert_eq!(log.matches("1 blocks are posted, and the doorbell's register was not written for them").count(), 1, "{log}");
}
