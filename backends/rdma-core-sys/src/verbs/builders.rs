//! The builders of an [`ibv_qp_ex`] (infiniband/verbs.h, ibv_wr_post(3)).
//!
//! Requests are begun by [`ibv_wr_start`]; each takes `wr_id` and `wr_flags` from the QP when its opcode's builder is called,
//! then its data and address by setters; all of them are posted by [`ibv_wr_complete`] or given up by [`ibv_wr_abort`].

use std::ffi::{c_int, c_void};

use crate::{__be32, ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp_ex, ibv_sge};

forward! {
    qp: ibv_qp_ex;

    /// Begins requests. The QP is the calling thread's until they are completed or aborted.
    pub fn ibv_wr_start = wr_start();
    /// Posts what was built since [`ibv_wr_start`]; 0 or an errno, and then nothing is posted.
    pub fn ibv_wr_complete = wr_complete() -> c_int;
    /// Gives up what was built since [`ibv_wr_start`].
    pub fn ibv_wr_abort = wr_abort();

    /// Builds a send.
    pub fn ibv_wr_send = wr_send();
    /// Builds a send with 32 bits beside it, given in the order that they go over the wire.
    pub fn ibv_wr_send_imm = wr_send_imm(imm_data: __be32);
    /// Builds a send that invalidates one of the peer's keys.
    pub fn ibv_wr_send_inv = wr_send_inv(invalidate_rkey: u32);
    /// Builds a send as segments of `mss` bytes, each with the header of `hdr_sz` bytes at `hdr`.
    pub fn ibv_wr_send_tso = wr_send_tso(hdr: *mut c_void, hdr_sz: u16, mss: u16);
    /// Builds an RDMA read.
    pub fn ibv_wr_rdma_read = wr_rdma_read(rkey: u32, remote_addr: u64);
    /// Builds an RDMA write.
    pub fn ibv_wr_rdma_write = wr_rdma_write(rkey: u32, remote_addr: u64);
    /// Builds an RDMA write that completes one of the peer's receives with 32 bits, given in the order that they go over the wire.
    pub fn ibv_wr_rdma_write_imm = wr_rdma_write_imm(rkey: u32, remote_addr: u64, imm_data: __be32);
    /// Builds a compare and swap of 8 bytes.
    pub fn ibv_wr_atomic_cmp_swp = wr_atomic_cmp_swp(rkey: u32, remote_addr: u64, compare: u64, swap: u64);
    /// Builds a fetch and add of 8 bytes.
    pub fn ibv_wr_atomic_fetch_add = wr_atomic_fetch_add(rkey: u32, remote_addr: u64, add: u64);
    /// Builds a write of the 8 bytes at `atomic_wr`, at once.
    pub fn ibv_wr_atomic_write = wr_atomic_write(rkey: u32, remote_addr: u64, atomic_wr: *const c_void);
    /// Builds a binding of a memory window of type 2.
    pub fn ibv_wr_bind_mw = wr_bind_mw(mw: *mut ibv_mw, rkey: u32, bind_info: *const ibv_mw_bind_info);
    /// Builds an invalidation of a local key.
    pub fn ibv_wr_local_inv = wr_local_inv(invalidate_rkey: u32);

    /// Sets the destination of a datagram.
    pub fn ibv_wr_set_ud_addr = wr_set_ud_addr(ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32);
    /// Sets the peer's shared receive queue.
    pub fn ibv_wr_set_xrc_srqn = wr_set_xrc_srqn(remote_srqn: u32);
    /// Sets the payload, which is copied now.
    pub fn ibv_wr_set_inline_data = wr_set_inline_data(addr: *mut c_void, length: usize);
    /// Sets the payload from several buffers, which are copied now.
    pub fn ibv_wr_set_inline_data_list = wr_set_inline_data_list(num_buf: usize, buf_list: *const ibv_data_buf);
    /// Sets a scatter/gather list of one element.
    pub fn ibv_wr_set_sge = wr_set_sge(lkey: u32, addr: u64, length: u32);
    /// Sets a scatter/gather list.
    pub fn ibv_wr_set_sge_list = wr_set_sge_list(num_sge: usize, sg_list: *const ibv_sge);
}
