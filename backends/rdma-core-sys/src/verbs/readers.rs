//! Polling an [`ibv_cq_ex`], completion by completion, field by field (infiniband/verbs.h, ibv_create_cq_ex(3)).

use std::ffi::{c_int, c_uint};

use crate::{__be32, ibv_cq, ibv_cq_ex, ibv_poll_cq_attr, ibv_wc_opcode, ibv_wc_tm_info};

/// The queue as calls take it that know no [`ibv_cq_ex`]: both begin alike.
#[inline]
pub fn ibv_cq_ex_to_cq(cq: *mut ibv_cq_ex) -> *mut ibv_cq {
    cq.cast()
}

forward! {
    cq: ibv_cq_ex;

    /// Takes the first completion, whose `wr_id` and `status` are then in the queue; 0, ENOENT if there is none, or another errno. After 0,
    /// [`ibv_end_poll`] must follow.
    pub fn ibv_start_poll = start_poll(attr: *mut ibv_poll_cq_attr) -> c_int;
    /// Takes the next completion; 0, ENOENT if there is none, or another errno.
    pub fn ibv_next_poll = next_poll() -> c_int;
    /// Ends what [`ibv_start_poll`] began.
    pub fn ibv_end_poll = end_poll();

    /// What was completed.
    pub fn ibv_wc_read_opcode = read_opcode() -> ibv_wc_opcode;
    /// The vendor's own syndrome of an error.
    pub fn ibv_wc_read_vendor_err = read_vendor_err() -> u32;
    /// Bytes received.
    pub fn ibv_wc_read_byte_len = read_byte_len() -> u32;
    /// The immediate data, as it came.
    pub fn ibv_wc_read_imm_data = read_imm_data() -> __be32;
    /// The key that the message invalidated: it comes by way of the immediate data.
    pub fn ibv_wc_read_invalidated_rkey = read_imm_data() -> u32;
    /// The local QP's number.
    pub fn ibv_wc_read_qp_num = read_qp_num() -> u32;
    /// The sender's QP number.
    pub fn ibv_wc_read_src_qp = read_src_qp() -> u32;
    /// [`ibv_wc_flags`](crate::ibv_wc_flags).
    pub fn ibv_wc_read_wc_flags = read_wc_flags() -> c_uint;
    /// The sender's local identifier.
    pub fn ibv_wc_read_slid = read_slid() -> u32;
    /// The service level.
    pub fn ibv_wc_read_sl = read_sl() -> u8;
    /// Path bits of the destination's LID.
    pub fn ibv_wc_read_dlid_path_bits = read_dlid_path_bits() -> u8;
    /// The card's clock, in ticks.
    pub fn ibv_wc_read_completion_ts = read_completion_ts() -> u64;
    /// The card's wall clock, in nanoseconds.
    pub fn ibv_wc_read_completion_wallclock_ns = read_completion_wallclock_ns() -> u64;
    /// The VLAN tag that was taken off.
    pub fn ibv_wc_read_cvlan = read_cvlan() -> u16;
    /// The tag of the flow rule that matched.
    pub fn ibv_wc_read_flow_tag = read_flow_tag() -> u32;
    /// The matched tag.
    pub fn ibv_wc_read_tm_info = read_tm_info(tm_info: *mut ibv_wc_tm_info);
}
