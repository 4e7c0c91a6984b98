use std::ffi::{c_int, c_void};
use std::ptr;

use libc::{EINVAL, EOPNOTSUPP, EPERM};

use super::recorder::{RESULT, Word, calls, recorder};
use crate::*;

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

#[test]
fn posting_and_polling_reach_the_contexts_operations() {
    let mut context = ibv_context::default();
    context.ops.post_send = recorder!(post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int);
    context.ops.post_recv = recorder!(post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int);
    context.ops.post_srq_recv = recorder!(post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int);
    context.ops.poll_cq = recorder!(poll_cq(cq: *mut ibv_cq, entries: c_int, wc: *mut ibv_wc) -> c_int);
    context.ops.req_notify_cq = recorder!(req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int);
    let context = &raw mut context;
    let (qp, srq, cq) = (
        &mut ibv_qp { context, ..ibv_qp::default() },
        &mut ibv_srq { context, ..ibv_srq::default() },
        &mut ibv_cq { context, ..ibv_cq::default() },
    );
    let (send, mut bad_send) = (&mut ibv_send_wr::default(), ptr::null_mut());
    let (recv, mut bad_recv) = (&mut ibv_recv_wr::default(), ptr::null_mut());
    let wc = &mut [ibv_wc::default(); 4];
    let results = |word: u64| assert_eq!(word, RESULT);
    // SAFETY: all objects are the test's own.
    unsafe {
        let (qp, srq, cq, wc) = (&raw mut *qp, &raw mut *srq, &raw mut *cq, wc.as_mut_ptr());
        let (send, bad_send, recv, bad_recv) = (&raw mut *send, &raw mut bad_send, &raw mut *recv, &raw mut bad_recv);
        results(ibv_post_send(qp, send, bad_send).word());
        assert_eq!(calls(), [("post_send", vec![qp.word(), send.word(), bad_send.word()])]);
        results(ibv_post_recv(qp, recv, bad_recv).word());
        assert_eq!(calls(), [("post_recv", vec![qp.word(), recv.word(), bad_recv.word()])]);
        results(ibv_post_srq_recv(srq, recv, bad_recv).word());
        assert_eq!(calls(), [("post_srq_recv", vec![srq.word(), recv.word(), bad_recv.word()])]);
        results(ibv_poll_cq(cq, 4, wc).word());
        assert_eq!(calls(), [("poll_cq", vec![cq.word(), 4, wc.word()])]);
        results(ibv_req_notify_cq(cq, 1).word());
        assert_eq!(calls(), [("req_notify_cq", vec![cq.word(), 1])]);
    }
}

#[test]
fn objects_operations_of_their_own_are_reached() {
    let mut wq = ibv_wq {
        post_recv: recorder!(post_recv(wq: *mut ibv_wq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int),
        ..ibv_wq::default()
    };
    let mut dm = ibv_dm {
        memcpy_to_dm: recorder!(memcpy_to_dm(dm: *mut ibv_dm, offset: u64, host: *const c_void, length: usize) -> c_int),
        memcpy_from_dm: recorder!(memcpy_from_dm(host: *mut c_void, dm: *mut ibv_dm, offset: u64, length: usize) -> c_int),
        ..ibv_dm::default()
    };
    let (mut recv, mut bad) = (ibv_recv_wr::default(), ptr::null_mut());
    let mut host = [0_u8; 8];
    let (wq, dm, recv, bad, host) = (&raw mut wq, &raw mut dm, &raw mut recv, &raw mut bad, host.as_mut_ptr().cast::<c_void>());
    // SAFETY: all objects are the test's own.
    unsafe {
        assert_eq!(ibv_post_wq_recv(wq, recv, bad).word(), RESULT);
        assert_eq!(calls(), [("post_recv", vec![wq.word(), recv.word(), bad.word()])]);
        assert_eq!(ibv_memcpy_to_dm(dm, 64, host, 8).word(), RESULT);
        assert_eq!(calls(), [("memcpy_to_dm", vec![dm.word(), 64, host.word(), 8])]);
        assert_eq!(ibv_memcpy_from_dm(host, dm, 128, 4).word(), RESULT);
        assert_eq!(calls(), [("memcpy_from_dm", vec![host.word(), dm.word(), 128, 4])]);
    }
}

#[test]
fn memory_windows_are_checked_before_they_are_bound() {
    let mut context = ibv_context::default();
    context.ops.bind_mw = recorder!(bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int);
    context.ops.dealloc_mw = recorder!(dealloc_mw(mw: *mut ibv_mw) -> c_int);
    let context = &raw mut context;
    let (mut pd, mut other) = (ibv_pd { context, handle: 1 }, ibv_pd { context, handle: 2 });
    let (pd, other) = (&raw mut pd, &raw mut other);
    let mut mr = ibv_mr { context, pd, ..ibv_mr::default() };
    let mut qp = ibv_qp { context, ..ibv_qp::default() };
    let mut bind_to = |r#type, mr: *mut ibv_mr, pd: *mut ibv_pd, length| {
        let mut mw = ibv_mw { context, pd, r#type, ..ibv_mw::default() };
        let mut bind = ibv_mw_bind { bind_info: ibv_mw_bind_info { mr, length, ..ibv_mw_bind_info::default() }, ..ibv_mw_bind::default() };
        // SAFETY: all objects are the test's own.
        unsafe { ibv_bind_mw(&mut qp, &mut mw, &mut bind) }
    };
    assert_eq!(bind_to(IBV_MW_TYPE_2, &mut mr, pd, 8), EINVAL);
    assert_eq!(bind_to(IBV_MW_TYPE_1, ptr::null_mut(), pd, 8), EINVAL);
    assert_eq!(bind_to(IBV_MW_TYPE_1, &mut mr, other, 8), EPERM);
    assert_eq!(calls(), []);
    assert_eq!(bind_to(IBV_MW_TYPE_1, &mut mr, pd, 8).word(), RESULT);
    assert_eq!(bind_to(IBV_MW_TYPE_1, ptr::null_mut(), pd, 0).word(), RESULT);
    assert_eq!(calls().len(), 2);
    // SAFETY: all objects are the test's own; the device has no memory windows until it is given the operation.
    unsafe {
        assert!(ibv_alloc_mw(pd, IBV_MW_TYPE_1).is_null());
        assert_eq!(errno(), EOPNOTSUPP);
        (*context).ops.alloc_mw = recorder!(alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw);
        assert_eq!(ibv_alloc_mw(pd, IBV_MW_TYPE_2).word(), RESULT);
        assert_eq!(calls(), [("alloc_mw", vec![pd.word(), 2])]);
        let mut mw = ibv_mw { context, ..ibv_mw::default() };
        assert_eq!(ibv_dealloc_mw(&mut mw).word(), RESULT);
        assert_eq!(calls(), [("dealloc_mw", vec![(&raw mut mw).word()])]);
    }
}

#[test]
fn arithmetic_is_the_headers() {
    assert_eq!(ibv_inc_rkey(0x1234_56ff), 0x1234_5600);
    assert_eq!(ibv_inc_rkey(0x1234_5600), 0x1234_5601);
    assert!(ibv_is_qpt_supported(1 << 8, IBV_QPT_RAW_PACKET));
    assert!(!ibv_is_qpt_supported(1 << 8, IBV_QPT_RC));
    assert!(!ibv_is_qpt_supported(u32::MAX, IBV_QPT_DRIVER), "no mask of 32 bits has it");
    let labels = [0, 1, 0x3fff, 0x4000, 0x8_0001, 0xf_ffff, 0xa_bcde, 0xfff0_0001];
    let printed =
        super::cc::printed(&labels.map(|label: u32| format!("printf(\"%u \", ibv_flow_label_to_udp_sport({label}u));\n")).concat());
    assert_eq!(printed.trim_end(), labels.map(|label| ibv_flow_label_to_udp_sport(label).to_string()).join(" "));
}
