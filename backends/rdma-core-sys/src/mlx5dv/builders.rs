//! The builders of an [`mlx5dv_qp_ex`] (infiniband/mlx5dv.h, mlx5dv_wr_post(3)): between [`ibv_wr_start`](crate::ibv_wr_start) and
//! [`ibv_wr_complete`](crate::ibv_wr_complete) of the same QP.

use std::ffi::c_void;

use crate::{ibv_ah, ibv_sge, mlx5dv_mkey, mlx5dv_mkey_conf_attr, mlx5dv_mr_interleaved, mlx5dv_qp_ex};

forward! {
    mqp: mlx5dv_qp_ex;

    /// Sets the destination of a request on a dynamically connected initiator.
    pub fn mlx5dv_wr_set_dc_addr = wr_set_dc_addr(ah: *mut ibv_ah, remote_dctn: u32, remote_dc_key: u64);
    /// The same, with the stream that it belongs to.
    pub fn mlx5dv_wr_set_dc_addr_stream = wr_set_dc_addr_stream(ah: *mut ibv_ah, remote_dctn: u32, remote_dc_key: u64, stream_id: u16);
    /// Builds a change of a key to strided pieces of memory.
    pub fn mlx5dv_wr_mr_interleaved = wr_mr_interleaved(
        mkey: *mut mlx5dv_mkey, access_flags: u32, repeat_count: u32, num_interleaved: u16, data: *mut mlx5dv_mr_interleaved
    );
    /// Builds a change of a key to a list of pieces of memory.
    pub fn mlx5dv_wr_mr_list = wr_mr_list(mkey: *mut mlx5dv_mkey, access_flags: u32, num_sges: u16, sge: *mut ibv_sge);
    /// Builds a change of a key; `num_setters` setters follow.
    pub fn mlx5dv_wr_mkey_configure = wr_mkey_configure(mkey: *mut mlx5dv_mkey, num_setters: u8, attr: *mut mlx5dv_mkey_conf_attr);
    /// Sets a key's access flags.
    pub fn mlx5dv_wr_set_mkey_access_flags = wr_set_mkey_access_flags(access_flags: u32);
    /// Sets a key's list of pieces of memory.
    pub fn mlx5dv_wr_set_mkey_layout_list = wr_set_mkey_layout_list(num_sges: u16, sge: *const ibv_sge);
    /// Sets a key's strided pieces of memory.
    pub fn mlx5dv_wr_set_mkey_layout_interleaved = wr_set_mkey_layout_interleaved(
        repeat_count: u32, num_interleaved: u16, data: *const mlx5dv_mr_interleaved
    );
    /// Builds a copy within the host's memory.
    pub fn mlx5dv_wr_memcpy = wr_memcpy(dest_lkey: u32, dest_addr: u64, src_lkey: u32, src_addr: u64, length: usize);
    /// Builds a request from a whole work queue entry; its index and queue's number are filled in.
    pub fn mlx5dv_wr_raw_wqe = wr_raw_wqe(wqe: *const c_void);
}
