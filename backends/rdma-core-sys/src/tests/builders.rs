use std::ffi::{c_int, c_void};

use super::recorder::reaches;
use crate::*;

#[test]
fn each_builder_reaches_its_operation() {
    let mut qp = ibv_qp_ex::default();
    reaches! { &raw mut qp; ibv_qp_ex;
        wr_start() => ibv_wr_start;
        wr_complete() -> c_int => ibv_wr_complete;
        wr_abort() => ibv_wr_abort;
        wr_send() => ibv_wr_send;
        wr_send_imm(imm_data: u32 = 0x8000_0001) => ibv_wr_send_imm;
        wr_send_inv(invalidate_rkey: u32 = 2) => ibv_wr_send_inv;
        wr_send_tso(hdr: *mut c_void = 3, hdr_sz: u16 = 54, mss: u16 = 1460) => ibv_wr_send_tso;
        wr_rdma_read(rkey: u32 = 1, remote_addr: u64 = 1 << 40) => ibv_wr_rdma_read;
        wr_rdma_write(rkey: u32 = 2, remote_addr: u64 = 1 << 41) => ibv_wr_rdma_write;
        wr_rdma_write_imm(rkey: u32 = 3, remote_addr: u64 = 1 << 42, imm_data: u32 = 4) => ibv_wr_rdma_write_imm;
        wr_atomic_cmp_swp(rkey: u32 = 1, remote_addr: u64 = 2, compare: u64 = 3, swap: u64 = 4) => ibv_wr_atomic_cmp_swp;
        wr_atomic_fetch_add(rkey: u32 = 1, remote_addr: u64 = 2, add: u64 = 3) => ibv_wr_atomic_fetch_add;
        wr_atomic_write(rkey: u32 = 1, remote_addr: u64 = 2, atomic_wr: *const c_void = 3) => ibv_wr_atomic_write;
        wr_bind_mw(mw: *mut ibv_mw = 1, rkey: u32 = 2, bind_info: *const ibv_mw_bind_info = 3) => ibv_wr_bind_mw;
        wr_local_inv(invalidate_rkey: u32 = 1) => ibv_wr_local_inv;
        wr_set_ud_addr(ah: *mut ibv_ah = 1, remote_qpn: u32 = 2, remote_qkey: u32 = 3) => ibv_wr_set_ud_addr;
        wr_set_xrc_srqn(remote_srqn: u32 = 1) => ibv_wr_set_xrc_srqn;
        wr_set_inline_data(addr: *mut c_void = 1, length: usize = 2) => ibv_wr_set_inline_data;
        wr_set_inline_data_list(num_buf: usize = 1, buf_list: *const ibv_data_buf = 2) => ibv_wr_set_inline_data_list;
        wr_set_sge(lkey: u32 = 1, addr: u64 = 2, length: u32 = 3) => ibv_wr_set_sge;
        wr_set_sge_list(num_sge: usize = 1, sg_list: *const ibv_sge = 2) => ibv_wr_set_sge_list;
    }
}

#[test]
fn each_builder_of_mlx5_reaches_its_operation() {
    let mut qp = mlx5dv_qp_ex::default();
    reaches! { &raw mut qp; mlx5dv_qp_ex;
        wr_set_dc_addr(ah: *mut ibv_ah = 1, remote_dctn: u32 = 2, remote_dc_key: u64 = 3) => mlx5dv_wr_set_dc_addr;
        wr_set_dc_addr_stream(ah: *mut ibv_ah = 1, remote_dctn: u32 = 2, remote_dc_key: u64 = 3, stream_id: u16 = 4)
            => mlx5dv_wr_set_dc_addr_stream;
        wr_mr_interleaved(mkey: *mut mlx5dv_mkey = 1, access: u32 = 2, repeat: u32 = 3, num: u16 = 4, data: *mut mlx5dv_mr_interleaved = 5)
            => mlx5dv_wr_mr_interleaved;
        wr_mr_list(mkey: *mut mlx5dv_mkey = 1, access_flags: u32 = 2, num_sges: u16 = 3, sge: *mut ibv_sge = 4) => mlx5dv_wr_mr_list;
        wr_mkey_configure(mkey: *mut mlx5dv_mkey = 1, num_setters: u8 = 2, attr: *mut mlx5dv_mkey_conf_attr = 3)
            => mlx5dv_wr_mkey_configure;
        wr_set_mkey_access_flags(access_flags: u32 = 1) => mlx5dv_wr_set_mkey_access_flags;
        wr_set_mkey_layout_list(num_sges: u16 = 1, sge: *const ibv_sge = 2) => mlx5dv_wr_set_mkey_layout_list;
        wr_set_mkey_layout_interleaved(repeat_count: u32 = 1, num: u16 = 2, data: *const mlx5dv_mr_interleaved = 3)
            => mlx5dv_wr_set_mkey_layout_interleaved;
        wr_memcpy(dest_lkey: u32 = 1, dest_addr: u64 = 2, src_lkey: u32 = 3, src_addr: u64 = 4, length: usize = 5) => mlx5dv_wr_memcpy;
        wr_raw_wqe(wqe: *const c_void = 1) => mlx5dv_wr_raw_wqe;
    }
}

#[test]
#[should_panic = "the object has no operation wr_send_tso"]
fn a_builder_that_was_not_asked_for_is_named() {
    let mut qp = ibv_qp_ex::default();
    // SAFETY: the QP is the test's own, and its missing operation is what is tried.
    unsafe { ibv_wr_send_tso(&mut qp, std::ptr::null_mut(), 54, 1460) };
}
