//! Queue pairs with builders: requests are put together field by field (infiniband/verbs.h, ibv_wr_post(3)).

use std::ffi::{c_int, c_uint, c_void};

use crate::{__be32, ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_sge};

c_items! {
    types {
        /// A QP with builders; ibv_qp_to_qp_ex(3) gets it. A builder that was not asked for at creation may be
        /// null. Newer libraries know more of them.
        pub struct ibv_qp_ex {
            /// The QP.
            pub qp_base: ibv_qp,
            /// Unused: 0.
            pub comp_mask: u64,
            /// The number of the request that is begun next.
            pub wr_id: u64,
            /// Its flags: [`ibv_send_flags`](crate::ibv_send_flags).
            pub wr_flags: c_uint,
            /// [`ibv_wr_atomic_cmp_swp`](crate::ibv_wr_atomic_cmp_swp).
            pub wr_atomic_cmp_swp: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, compare: u64, swap: u64)>,
            /// [`ibv_wr_atomic_fetch_add`](crate::ibv_wr_atomic_fetch_add).
            pub wr_atomic_fetch_add: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, add: u64)>,
            /// [`ibv_wr_bind_mw`](crate::ibv_wr_bind_mw).
            pub wr_bind_mw: Option<
                unsafe extern "C" fn(qp: *mut ibv_qp_ex, mw: *mut ibv_mw, rkey: u32, bind_info: *const ibv_mw_bind_info),
            >,
            /// [`ibv_wr_local_inv`](crate::ibv_wr_local_inv).
            pub wr_local_inv: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, invalidate_rkey: u32)>,
            /// [`ibv_wr_rdma_read`](crate::ibv_wr_rdma_read).
            pub wr_rdma_read: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64)>,
            /// [`ibv_wr_rdma_write`](crate::ibv_wr_rdma_write).
            pub wr_rdma_write: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64)>,
            /// [`ibv_wr_rdma_write_imm`](crate::ibv_wr_rdma_write_imm).
            pub wr_rdma_write_imm: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, imm_data: __be32)>,
            /// [`ibv_wr_send`](crate::ibv_wr_send).
            pub wr_send: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex)>,
            /// [`ibv_wr_send_imm`](crate::ibv_wr_send_imm).
            pub wr_send_imm: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, imm_data: __be32)>,
            /// [`ibv_wr_send_inv`](crate::ibv_wr_send_inv).
            pub wr_send_inv: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, invalidate_rkey: u32)>,
            /// [`ibv_wr_send_tso`](crate::ibv_wr_send_tso).
            pub wr_send_tso: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, hdr: *mut c_void, hdr_sz: u16, mss: u16)>,
            /// [`ibv_wr_set_ud_addr`](crate::ibv_wr_set_ud_addr).
            pub wr_set_ud_addr: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32)>,
            /// [`ibv_wr_set_xrc_srqn`](crate::ibv_wr_set_xrc_srqn).
            pub wr_set_xrc_srqn: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, remote_srqn: u32)>,
            /// [`ibv_wr_set_inline_data`](crate::ibv_wr_set_inline_data).
            pub wr_set_inline_data: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize)>,
            /// [`ibv_wr_set_inline_data_list`](crate::ibv_wr_set_inline_data_list).
            pub wr_set_inline_data_list: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, num_buf: usize, buf_list: *const ibv_data_buf)>,
            /// [`ibv_wr_set_sge`](crate::ibv_wr_set_sge).
            pub wr_set_sge: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32)>,
            /// [`ibv_wr_set_sge_list`](crate::ibv_wr_set_sge_list).
            pub wr_set_sge_list: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, num_sge: usize, sg_list: *const ibv_sge)>,
            /// [`ibv_wr_start`](crate::ibv_wr_start).
            pub wr_start: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex)>,
            /// [`ibv_wr_complete`](crate::ibv_wr_complete).
            pub wr_complete: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex) -> c_int>,
            /// [`ibv_wr_abort`](crate::ibv_wr_abort).
            pub wr_abort: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex)>,
            /// [`ibv_wr_atomic_write`](crate::ibv_wr_atomic_write).
            pub wr_atomic_write: Option<unsafe extern "C" fn(qp: *mut ibv_qp_ex, rkey: u32, remote_addr: u64, atomic_wr: *const c_void)>,
        }
    }
}
