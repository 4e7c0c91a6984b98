//! What the headers define inline (rdma/rdma_cma.h, rdma/rdma_verbs.h): posting and awaiting work of an identifier that has its own queues.
//!
//! They answer as librdmacm does: 0, or -1 with errno. `context` becomes the request's `wr_id`.

use std::ffi::{c_int, c_void};
use std::ptr;

use libc::sockaddr;

use crate::verbs::extended::set_errno;
use crate::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND, Ibverbs,
    RDMA_UDP_QKEY, ibv_ah, ibv_comp_channel, ibv_cq, ibv_mr, ibv_poll_cq, ibv_post_recv, ibv_post_send, ibv_post_srq_recv, ibv_recv_wr,
    ibv_req_notify_cq, ibv_send_wr, ibv_send_wr_op, ibv_send_wr_rdma, ibv_send_wr_ud, ibv_sge, ibv_wc, ibv_wr_opcode, rdma_cm_id,
};

/// libibverbs' answer, 0 or an errno, as librdmacm gives it.
#[inline]
pub fn rdma_seterrno(ret: c_int) -> c_int {
    if ret == 0 {
        return 0;
    }
    set_errno(ret);
    -1
}

/// The local address.
#[inline]
pub unsafe fn rdma_get_local_addr(id: *mut rdma_cm_id) -> *mut sockaddr {
    // SAFETY: the caller's identifier is the library's.
    unsafe { (&raw mut (*id).route.addr.src).cast() }
}

/// The peer's address.
#[inline]
pub unsafe fn rdma_get_peer_addr(id: *mut rdma_cm_id) -> *mut sockaddr {
    // SAFETY: the caller's identifier is the library's.
    unsafe { (&raw mut (*id).route.addr.dst).cast() }
}

/// Registers memory for sends and receives; null with errno on failure.
#[inline]
pub unsafe fn rdma_reg_msgs(verbs: &Ibverbs, id: *mut rdma_cm_id, addr: *mut c_void, length: usize) -> *mut ibv_mr {
    // SAFETY: the caller's identifier has a protection domain.
    unsafe { verbs.ibv_reg_mr((*id).pd, addr, length, IBV_ACCESS_LOCAL_WRITE as c_int) }
}

/// Registers memory that the peer may read; null with errno on failure.
#[inline]
pub unsafe fn rdma_reg_read(verbs: &Ibverbs, id: *mut rdma_cm_id, addr: *mut c_void, length: usize) -> *mut ibv_mr {
    // SAFETY: the caller's identifier has a protection domain.
    unsafe { verbs.ibv_reg_mr((*id).pd, addr, length, (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ) as c_int) }
}

/// Registers memory that the peer may write; null with errno on failure.
#[inline]
pub unsafe fn rdma_reg_write(verbs: &Ibverbs, id: *mut rdma_cm_id, addr: *mut c_void, length: usize) -> *mut ibv_mr {
    // SAFETY: the caller's identifier has a protection domain.
    unsafe { verbs.ibv_reg_mr((*id).pd, addr, length, (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) as c_int) }
}

/// Ends the registration of memory.
#[inline]
pub unsafe fn rdma_dereg_mr(verbs: &Ibverbs, mr: *mut ibv_mr) -> c_int {
    // SAFETY: the caller's region is the library's.
    rdma_seterrno(unsafe { verbs.ibv_dereg_mr(mr) })
}

/// A list of one element. Without a region the key is 0, which payload in line does not need.
unsafe fn element(addr: *mut c_void, length: usize, mr: *mut ibv_mr) -> ibv_sge {
    // SAFETY: the caller's region is null or the library's.
    let lkey = if mr.is_null() { 0 } else { unsafe { (*mr).lkey } };
    ibv_sge { addr: addr.expose_provenance() as u64, length: length as u32, lkey }
}

/// Posts a receive, to the shared receive queue if there is one.
#[inline]
pub unsafe fn rdma_post_recvv(id: *mut rdma_cm_id, context: *mut c_void, sgl: *mut ibv_sge, nsge: c_int) -> c_int {
    let mut wr = ibv_recv_wr { wr_id: context.addr() as u64, next: ptr::null_mut(), sg_list: sgl, num_sge: nsge };
    let mut bad = ptr::null_mut();
    // SAFETY: the caller's identifier has a QP or a shared receive queue; requests are copied before the call returns.
    rdma_seterrno(unsafe {
        if (*id).srq.is_null() { ibv_post_recv((*id).qp, &mut wr, &mut bad) } else { ibv_post_srq_recv((*id).srq, &mut wr, &mut bad) }
    })
}

/// Posts one request to the send queue.
unsafe fn post(
    id: *mut rdma_cm_id,
    opcode: ibv_wr_opcode,
    wr: ibv_send_wr_op,
    context: *mut c_void,
    sgl: *mut ibv_sge,
    nsge: c_int,
    flags: c_int,
) -> c_int {
    let mut wr = ibv_send_wr {
        wr_id: context.addr() as u64,
        sg_list: sgl,
        num_sge: nsge,
        opcode,
        send_flags: flags as u32,
        wr,
        ..ibv_send_wr::default()
    };
    let mut bad = ptr::null_mut();
    // SAFETY: the caller's identifier has a QP; requests are copied before the call returns.
    rdma_seterrno(unsafe { ibv_post_send((*id).qp, &mut wr, &mut bad) })
}

/// Posts a send.
#[inline]
pub unsafe fn rdma_post_sendv(id: *mut rdma_cm_id, context: *mut c_void, sgl: *mut ibv_sge, nsge: c_int, flags: c_int) -> c_int {
    // SAFETY: as the caller promises of the identifier and the list.
    unsafe { post(id, IBV_WR_SEND, ibv_send_wr_op::default(), context, sgl, nsge, flags) }
}

/// Posts an RDMA read.
#[inline]
pub unsafe fn rdma_post_readv(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    sgl: *mut ibv_sge,
    nsge: c_int,
    flags: c_int,
    remote_addr: u64,
    rkey: u32,
) -> c_int {
    let target = ibv_send_wr_op { rdma: ibv_send_wr_rdma { remote_addr, rkey } };
    // SAFETY: as the caller promises of the identifier and the list.
    unsafe { post(id, IBV_WR_RDMA_READ, target, context, sgl, nsge, flags) }
}

/// Posts an RDMA write.
#[inline]
pub unsafe fn rdma_post_writev(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    sgl: *mut ibv_sge,
    nsge: c_int,
    flags: c_int,
    remote_addr: u64,
    rkey: u32,
) -> c_int {
    let target = ibv_send_wr_op { rdma: ibv_send_wr_rdma { remote_addr, rkey } };
    // SAFETY: as the caller promises of the identifier and the list.
    unsafe { post(id, IBV_WR_RDMA_WRITE, target, context, sgl, nsge, flags) }
}

/// Posts a receive into one buffer, which must be within the region.
#[inline]
pub unsafe fn rdma_post_recv(id: *mut rdma_cm_id, context: *mut c_void, addr: *mut c_void, length: usize, mr: *mut ibv_mr) -> c_int {
    // SAFETY: the caller's region is the library's; the element is copied before the call returns.
    unsafe {
        let before = addr.addr().checked_sub((*mr).addr.addr());
        let fits = before.is_some_and(|before| before <= (*mr).length && length <= (*mr).length - before);
        assert!(fits, "the buffer is not within its memory region");
        rdma_post_recvv(id, context, &mut element(addr, length, mr), 1)
    }
}

/// Posts a send of one buffer; without a region it must go in line.
#[inline]
pub unsafe fn rdma_post_send(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    addr: *mut c_void,
    length: usize,
    mr: *mut ibv_mr,
    flags: c_int,
) -> c_int {
    // SAFETY: as the caller promises; the element is copied before the call returns.
    unsafe { rdma_post_sendv(id, context, &mut element(addr, length, mr), 1, flags) }
}

/// Posts an RDMA read into one buffer.
#[inline]
pub unsafe fn rdma_post_read(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    addr: *mut c_void,
    length: usize,
    mr: *mut ibv_mr,
    flags: c_int,
    remote_addr: u64,
    rkey: u32,
) -> c_int {
    // SAFETY: as the caller promises; the element is copied before the call returns.
    unsafe { rdma_post_readv(id, context, &mut element(addr, length, mr), 1, flags, remote_addr, rkey) }
}

/// Posts an RDMA write of one buffer; without a region it must go in line.
#[inline]
pub unsafe fn rdma_post_write(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    addr: *mut c_void,
    length: usize,
    mr: *mut ibv_mr,
    flags: c_int,
    remote_addr: u64,
    rkey: u32,
) -> c_int {
    // SAFETY: as the caller promises; the element is copied before the call returns.
    unsafe { rdma_post_writev(id, context, &mut element(addr, length, mr), 1, flags, remote_addr, rkey) }
}

/// Posts a datagram of one buffer; without a region it must go in line.
#[inline]
pub unsafe fn rdma_post_ud_send(
    id: *mut rdma_cm_id,
    context: *mut c_void,
    addr: *mut c_void,
    length: usize,
    mr: *mut ibv_mr,
    flags: c_int,
    ah: *mut ibv_ah,
    remote_qpn: u32,
) -> c_int {
    let target = ibv_send_wr_op { ud: ibv_send_wr_ud { ah, remote_qpn, remote_qkey: RDMA_UDP_QKEY } };
    // SAFETY: as the caller promises; the element is copied before the call returns.
    unsafe { post(id, IBV_WR_SEND, target, context, &mut element(addr, length, mr), 1, flags) }
}

/// Takes one completion, and sleeps until there is one: 1, or -1 with errno.
unsafe fn completion(verbs: &Ibverbs, cq: *mut ibv_cq, channel: *mut ibv_comp_channel, wc: *mut ibv_wc) -> c_int {
    loop {
        // SAFETY: the caller's queue and channel belong together.
        unsafe {
            let mut taken = ibv_poll_cq(cq, 1, wc);
            if taken == 0 {
                let ret = ibv_req_notify_cq(cq, 0);
                if ret != 0 {
                    return rdma_seterrno(ret);
                }
                // What came before the event was asked for raises none.
                taken = ibv_poll_cq(cq, 1, wc);
            }
            if taken != 0 {
                return if taken < 0 { rdma_seterrno(taken) } else { taken };
            }
            let (mut of, mut context) = (ptr::null_mut(), ptr::null_mut());
            let ret = verbs.ibv_get_cq_event(channel, &mut of, &mut context);
            if ret != 0 {
                return ret;
            }
            debug_assert_eq!(of, cq, "a channel of an identifier has one queue");
            verbs.ibv_ack_cq_events(cq, 1);
        }
    }
}

/// Takes a completion of the identifier's send queue, and sleeps until there is one: 1, or -1 with errno.
#[inline]
pub unsafe fn rdma_get_send_comp(verbs: &Ibverbs, id: *mut rdma_cm_id, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's identifier has its own queues.
    unsafe { completion(verbs, (*id).send_cq, (*id).send_cq_channel, wc) }
}

/// Takes a completion of the identifier's receive queue, and sleeps until there is one: 1, or -1 with errno.
#[inline]
pub unsafe fn rdma_get_recv_comp(verbs: &Ibverbs, id: *mut rdma_cm_id, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's identifier has its own queues.
    unsafe { completion(verbs, (*id).recv_cq, (*id).recv_cq_channel, wc) }
}
