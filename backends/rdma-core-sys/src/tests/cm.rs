use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::ptr;

use libc::{EINVAL, ENOMEM};

use super::extended::object;
use crate::*;

thread_local! {
    /// What was posted last: the request, its first element, and whether it went to a shared receive queue.
    static SENT: RefCell<Vec<(ibv_send_wr, Vec<ibv_sge>)>> = const { RefCell::new(Vec::new()) };
    static RECEIVES: RefCell<Vec<(u64, Vec<ibv_sge>, bool)>> = const { RefCell::new(Vec::new()) };
    static ANSWER: Cell<c_int> = const { Cell::new(0) };
}

/// The elements of a list.
unsafe fn list(sg_list: *mut ibv_sge, num_sge: c_int) -> Vec<ibv_sge> {
    // SAFETY: the caller's list has so many.
    unsafe { std::slice::from_raw_parts(sg_list, num_sge as usize) }.to_vec()
}

unsafe extern "C" fn post_send(_: *mut ibv_qp, wr: *mut ibv_send_wr, _: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the helper's request and list are valid.
    let sent = unsafe { (*wr, list((*wr).sg_list, (*wr).num_sge)) };
    SENT.with_borrow_mut(|s| s.push(sent));
    ANSWER.get()
}

unsafe extern "C" fn post_recv(_: *mut ibv_qp, wr: *mut ibv_recv_wr, _: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: the helper's request and list are valid.
    let posted = unsafe { ((*wr).wr_id, list((*wr).sg_list, (*wr).num_sge), false) };
    RECEIVES.with_borrow_mut(|r| r.push(posted));
    ANSWER.get()
}

unsafe extern "C" fn post_srq_recv(_: *mut ibv_srq, wr: *mut ibv_recv_wr, _: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: the helper's request and list are valid.
    let posted = unsafe { ((*wr).wr_id, list((*wr).sg_list, (*wr).num_sge), true) };
    RECEIVES.with_borrow_mut(|r| r.push(posted));
    ANSWER.get()
}

/// An identifier with a QP, and a region that begins at its second argument.
fn identifier() -> (*mut rdma_cm_id, *mut ibv_mr, *mut c_void) {
    let mut context = ibv_context::default();
    context.ops.post_send = Some(post_send);
    context.ops.post_recv = Some(post_recv);
    context.ops.post_srq_recv = Some(post_srq_recv);
    let context = object(context);
    let addr = object([0_u8; 64]).cast();
    let mr = object(ibv_mr { context, addr, length: 64, lkey: 0x11, rkey: 0x22, ..ibv_mr::default() });
    let qp = object(ibv_qp { context, ..ibv_qp::default() });
    (object(rdma_cm_id { qp, ..rdma_cm_id::default() }), mr, addr)
}

fn sent() -> (ibv_send_wr, Vec<ibv_sge>) {
    SENT.with_borrow_mut(Vec::pop).unwrap()
}

fn one(element: &[ibv_sge]) -> (u64, u32, u32) {
    let [ibv_sge { addr, length, lkey }] = *element else { panic!("{element:?}") };
    (addr, length, lkey)
}

#[test]
fn requests_are_put_together() {
    let (id, mr, addr) = identifier();
    let context = ptr::without_provenance_mut(0x77);
    let none = ptr::null_mut();
    let flags = IBV_SEND_SIGNALED as c_int;
    // SAFETY: all objects are the test's own.
    unsafe {
        assert_eq!(rdma_post_send(id, context, addr, 64, mr, flags), 0);
        let (wr, elements) = sent();
        assert_eq!((wr.wr_id, wr.opcode, wr.send_flags), (0x77, IBV_WR_SEND, IBV_SEND_SIGNALED));
        assert!(wr.next.is_null());
        assert_eq!(one(&elements), (addr.addr() as u64, 64, 0x11));

        assert_eq!(rdma_post_send(id, context, addr, 3, none, IBV_SEND_INLINE as c_int), 0);
        assert_eq!(one(&sent().1), (addr.addr() as u64, 3, 0), "in line, no key is needed");

        assert_eq!(rdma_post_write(id, context, addr, 8, mr, flags, 1 << 40, 0x33), 0);
        let (wr, elements) = sent();
        assert_eq!((wr.opcode, wr.wr.rdma.remote_addr, wr.wr.rdma.rkey), (IBV_WR_RDMA_WRITE, 1 << 40, 0x33));
        assert_eq!(one(&elements), (addr.addr() as u64, 8, 0x11));

        assert_eq!(rdma_post_read(id, context, addr, 8, mr, flags, 1 << 41, 0x44), 0);
        let (wr, elements) = sent();
        assert_eq!((wr.opcode, wr.wr.rdma.remote_addr, wr.wr.rdma.rkey), (IBV_WR_RDMA_READ, 1 << 41, 0x44));
        assert_eq!(one(&elements), (addr.addr() as u64, 8, 0x11));

        let ah = object(ibv_ah::default());
        assert_eq!(rdma_post_ud_send(id, context, addr, 8, mr, flags, ah, 0x55), 0);
        let (wr, _) = sent();
        assert_eq!((wr.opcode, wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey), (IBV_WR_SEND, ah, 0x55, RDMA_UDP_QKEY));

        let mut two = [ibv_sge { addr: 1, length: 2, lkey: 3 }, ibv_sge { addr: 4, length: 5, lkey: 6 }];
        assert_eq!(rdma_post_sendv(id, context, two.as_mut_ptr(), 2, 0), 0);
        assert_eq!(sent().1.len(), 2);
    }
}

#[test]
fn receives_go_to_the_shared_queue_if_there_is_one() {
    let (id, mr, addr) = identifier();
    let context = ptr::without_provenance_mut(0x78);
    // SAFETY: all objects are the test's own.
    unsafe {
        assert_eq!(rdma_post_recv(id, context, addr, 64, mr), 0);
        (*id).srq = object(ibv_srq { context: (*mr).context, ..ibv_srq::default() });
        assert_eq!(rdma_post_recv(id, context, addr.byte_add(32), 32, mr), 0);
    }
    let posted = RECEIVES.take();
    let [(0x78, own, false), (0x78, shared, true)] = &posted[..] else { panic!("{posted:?}") };
    assert_eq!((one(own), one(shared)), ((addr.addr() as u64, 64, 0x11), (addr.addr() as u64 + 32, 32, 0x11)));
}

#[test]
#[should_panic = "the buffer is not within its memory region"]
fn receives_stay_within_their_region() {
    let (id, mr, addr) = identifier();
    // SAFETY: all objects are the test's own; the length is what is tried.
    unsafe { rdma_post_recv(id, ptr::null_mut(), addr, 65, mr) };
}

#[test]
fn failures_are_given_by_errno() {
    let (id, mr, addr) = identifier();
    ANSWER.set(ENOMEM);
    // SAFETY: all objects are the test's own.
    assert_eq!(unsafe { rdma_post_send(id, ptr::null_mut(), addr, 1, mr, 0) }, -1);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(ENOMEM));
    assert_eq!(rdma_seterrno(0), 0);
}

#[test]
fn addresses_are_the_routes() {
    let id = object(rdma_cm_id::default());
    // SAFETY: the identifier is the test's own.
    unsafe {
        (*id).route.addr.src.src_sin.sin_family = 2;
        (*id).route.addr.dst.dst_sin6.sin6_family = 10;
        assert_eq!((*rdma_get_local_addr(id)).sa_family, 2);
        assert_eq!((*rdma_get_peer_addr(id)).sa_family, 10);
    }
}

thread_local! {
    /// How often the queue is still empty; calls, in order.
    static EMPTY: Cell<u32> = const { Cell::new(0) };
    static DONE: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

fn done(what: &'static str) {
    DONE.with_borrow_mut(|done| done.push(what));
}

#[test]
fn a_completion_is_awaited() {
    unsafe extern "C" fn poll_cq(_: *mut ibv_cq, _: c_int, wc: *mut ibv_wc) -> c_int {
        done("poll");
        let empty = EMPTY.get();
        EMPTY.set(empty.saturating_sub(1));
        if empty > 0 {
            return 0;
        }
        // SAFETY: the completion is the test's own.
        unsafe { (*wc).wr_id = 5 };
        1
    }
    unsafe extern "C" fn req_notify_cq(_: *mut ibv_cq, solicited_only: c_int) -> c_int {
        assert_eq!(solicited_only, 0);
        done("arm");
        ANSWER.get()
    }
    unsafe extern "C" fn get_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, _: *mut *mut c_void) -> c_int {
        done("sleep");
        // SAFETY: the channel is the test's own, and its context the queue's address.
        unsafe { *cq = (*channel).context.cast() };
        0
    }
    unsafe extern "C" fn ack_events(_: *mut ibv_cq, count: u32) {
        assert_eq!(count, 1);
        done("ack");
    }
    let mut verbs = Ibverbs::open(Ibverbs::FILE).unwrap_or_else(|error| panic!("{error}: apt-get install libibverbs1"));
    verbs.ibv_get_cq_event = get_event;
    verbs.ibv_ack_cq_events = ack_events;
    let mut context = ibv_context::default();
    context.ops.poll_cq = Some(poll_cq);
    context.ops.req_notify_cq = Some(req_notify_cq);
    let cq = object(ibv_cq { context: object(context), ..ibv_cq::default() });
    let channel = object(ibv_comp_channel { context: cq.cast(), ..ibv_comp_channel::default() });
    let sends = object(rdma_cm_id { send_cq: cq, send_cq_channel: channel, ..rdma_cm_id::default() });
    let receives = object(rdma_cm_id { recv_cq: cq, recv_cq_channel: channel, ..rdma_cm_id::default() });
    let mut wc = ibv_wc::default();
    // SAFETY: all objects are the test's own.
    unsafe {
        assert_eq!(rdma_get_send_comp(&verbs, sends, &mut wc), 1);
        assert_eq!((wc.wr_id, DONE.take()), (5, vec!["poll"]));
        EMPTY.set(1);
        assert_eq!(rdma_get_recv_comp(&verbs, receives, &mut wc), 1);
        assert_eq!(DONE.take(), ["poll", "arm", "poll"]);
        EMPTY.set(2);
        assert_eq!(rdma_get_send_comp(&verbs, sends, &mut wc), 1);
        assert_eq!(DONE.take(), ["poll", "arm", "poll", "sleep", "ack", "poll"]);
        EMPTY.set(1);
        ANSWER.set(EINVAL);
        assert_eq!(rdma_get_send_comp(&verbs, sends, &mut wc), -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(EINVAL));
    }
}

#[test]
fn memory_is_registered_for_its_use() {
    unsafe extern "C" fn reg_mr(pd: *mut ibv_pd, _: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr {
        object(ibv_mr { pd, length, lkey: access as u32, ..ibv_mr::default() })
    }
    unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
        // SAFETY: the region is the test's own.
        unsafe { (*mr).lkey as c_int }
    }
    let mut verbs = Ibverbs::open(Ibverbs::FILE).unwrap_or_else(|error| panic!("{error}: apt-get install libibverbs1"));
    verbs.ibv_reg_mr = reg_mr;
    verbs.ibv_dereg_mr = dereg_mr;
    let pd = object(ibv_pd::default());
    let id = object(rdma_cm_id { pd, ..rdma_cm_id::default() });
    let addr = ptr::without_provenance_mut(0x1000);
    // SAFETY: all objects are the test's own, and the memory is never touched.
    unsafe {
        let made = [rdma_reg_msgs, rdma_reg_read, rdma_reg_write].map(|register| register(&verbs, id, addr, 32));
        assert_eq!(made.map(|mr| (*mr).lkey), [1, 1 | 4, 1 | 2]);
        assert!(made.iter().all(|mr| (**mr).pd == pd && (**mr).length == 32));
        assert_eq!(rdma_dereg_mr(&verbs, made[0]), -1);
        (*made[0]).lkey = 0;
        assert_eq!(rdma_dereg_mr(&verbs, made[0]), 0);
    }
}
