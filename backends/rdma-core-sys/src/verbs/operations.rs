//! What the header does through the operations that every context has, and by arithmetic alone (infiniband/verbs.h).

use std::ffi::{c_int, c_void};

use libc::{EINVAL, EPERM};

use crate::{
    IB_ROCE_UDP_ENCAP_VALID_PORT_MIN, IBV_MW_TYPE_1, absent, ibv_cq, ibv_dm, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_pd, ibv_qp, ibv_qp_type,
    ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_wc, ibv_wq,
};

/// Calls an operation of a context.
macro_rules! of_context {
    ($context:expr, $op:ident($($arg:expr),*)) => {
        match (*$context).ops.$op {
            Some(op) => op($($arg),*),
            None => absent(stringify!($op)),
        }
    };
}

/// Posts a list of requests to the send queue; 0, or an errno, and `bad_wr` is the first that was not posted.
#[inline]
pub unsafe fn ibv_post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the caller's QP is the library's, and has a context.
    unsafe { of_context!((*qp).context, post_send(qp, wr, bad_wr)) }
}

/// Posts a list of requests to the receive queue; 0, or an errno, and `bad_wr` is the first that was not posted.
#[inline]
pub unsafe fn ibv_post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: the caller's QP is the library's, and has a context.
    unsafe { of_context!((*qp).context, post_recv(qp, wr, bad_wr)) }
}

/// Posts a list of requests to a shared receive queue; 0, or an errno, and `bad_wr` is the first that was not posted.
#[inline]
pub unsafe fn ibv_post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: the caller's queue is the library's, and has a context.
    unsafe { of_context!((*srq).context, post_srq_recv(srq, wr, bad_wr)) }
}

/// Takes up to `num_entries` completions into the array `wc`; how many, or a negative number.
#[inline]
pub unsafe fn ibv_poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the caller's queue is the library's, and has a context.
    unsafe { of_context!((*cq).context, poll_cq(cq, num_entries, wc)) }
}

/// Asks for one event at the next completion, or at the next solicited one; 0 or an errno.
#[inline]
pub unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: the caller's queue is the library's, and has a context.
    unsafe { of_context!((*cq).context, req_notify_cq(cq, solicited_only)) }
}

/// Makes a memory window; null with errno (EOPNOTSUPP where there are none).
#[inline]
pub unsafe fn ibv_alloc_mw(pd: *mut ibv_pd, r#type: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: the caller's domain is the library's, and has a context.
    unsafe {
        match (*(*pd).context).ops.alloc_mw {
            Some(op) => op(pd, r#type),
            None => crate::verbs::extended::Unsupported::unsupported(),
        }
    }
}

/// Destroys a memory window; 0 or an errno.
#[inline]
pub unsafe fn ibv_dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the caller's window is the library's, and has a context.
    unsafe { of_context!((*mw).context, dealloc_mw(mw)) }
}

/// Posts a binding of a memory window of type 1; 0 or an errno: EINVAL for another type or for an address without a region, EPERM
/// if the region is of another protection domain.
#[inline]
pub unsafe fn ibv_bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, mw_bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the caller's objects are the library's, and the window has a context.
    unsafe {
        let info = &(*mw_bind).bind_info;
        if (*mw).r#type != IBV_MW_TYPE_1 {
            return EINVAL;
        }
        if info.mr.is_null() {
            if info.addr != 0 || info.length != 0 {
                return EINVAL;
            }
        } else if (*info.mr).pd != (*mw).pd {
            return EPERM;
        }
        of_context!((*mw).context, bind_mw(qp, mw, mw_bind))
    }
}

/// Posts a list of requests to a receive work queue; 0, or an errno, and `bad_wr` is the first that was not posted.
#[inline]
pub unsafe fn ibv_post_wq_recv(wq: *mut ibv_wq, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: the caller's queue is the library's, which filled in its operation.
    unsafe {
        match (*wq).post_recv {
            Some(op) => op(wq, wr, bad_wr),
            None => absent("post_recv"),
        }
    }
}

/// Copies `length` bytes to device memory; 0 or an errno. mlx5 wants multiples of 4.
#[inline]
pub unsafe fn ibv_memcpy_to_dm(dm: *mut ibv_dm, dm_offset: u64, host_addr: *const c_void, length: usize) -> c_int {
    // SAFETY: the caller's memory is the library's, which filled in its operations.
    unsafe {
        match (*dm).memcpy_to_dm {
            Some(op) => op(dm, dm_offset, host_addr, length),
            None => absent("memcpy_to_dm"),
        }
    }
}

/// Copies `length` bytes from device memory; 0 or an errno. mlx5 wants multiples of 4.
#[inline]
pub unsafe fn ibv_memcpy_from_dm(host_addr: *mut c_void, dm: *mut ibv_dm, dm_offset: u64, length: usize) -> c_int {
    // SAFETY: the caller's memory is the library's, which filled in its operations.
    unsafe {
        match (*dm).memcpy_from_dm {
            Some(op) => op(host_addr, dm, dm_offset, length),
            None => absent("memcpy_from_dm"),
        }
    }
}

/// The key with its low byte, the part that a consumer owns, one higher.
#[inline]
pub fn ibv_inc_rkey(rkey: u32) -> u32 {
    (rkey & !0xff) | (rkey.wrapping_add(1) & 0xff)
}

/// Whether a mask of QP kinds, such as [`ibv_tso_caps::supported_qpts`](crate::ibv_tso_caps::supported_qpts), has a kind.
#[inline]
pub fn ibv_is_qpt_supported(caps: u32, qpt: ibv_qp_type) -> bool {
    1_u32.checked_shl(qpt).is_some_and(|bit| caps & bit != 0)
}

/// The UDP source port that RoCE v2 derives from a flow label: its upper 6 bits are folded into the lower 14.
#[inline]
pub fn ibv_flow_label_to_udp_sport(fl: u32) -> u16 {
    let (low, high) = (fl & 0x3fff, (fl >> 14) & 0x3f);
    (low ^ high) as u16 | IB_ROCE_UDP_ENCAP_VALID_PORT_MIN as u16
}
