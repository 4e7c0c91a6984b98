use std::ffi::{c_int, c_uint};

use super::recorder::reaches;
use crate::*;

#[test]
fn each_reader_reaches_its_operation() {
    let mut cq = ibv_cq_ex::default();
    reaches! { &raw mut cq; ibv_cq_ex;
        start_poll(attr: *mut ibv_poll_cq_attr = 1) -> c_int => ibv_start_poll;
        next_poll() -> c_int => ibv_next_poll;
        end_poll() => ibv_end_poll;
        read_opcode() -> ibv_wc_opcode => ibv_wc_read_opcode;
        read_vendor_err() -> u32 => ibv_wc_read_vendor_err;
        read_byte_len() -> u32 => ibv_wc_read_byte_len;
        read_imm_data() -> __be32 => ibv_wc_read_imm_data;
        read_imm_data() -> u32 => ibv_wc_read_invalidated_rkey;
        read_qp_num() -> u32 => ibv_wc_read_qp_num;
        read_src_qp() -> u32 => ibv_wc_read_src_qp;
        read_wc_flags() -> c_uint => ibv_wc_read_wc_flags;
        read_slid() -> u32 => ibv_wc_read_slid;
        read_sl() -> u8 => ibv_wc_read_sl;
        read_dlid_path_bits() -> u8 => ibv_wc_read_dlid_path_bits;
        read_completion_ts() -> u64 => ibv_wc_read_completion_ts;
        read_completion_wallclock_ns() -> u64 => ibv_wc_read_completion_wallclock_ns;
        read_cvlan() -> u16 => ibv_wc_read_cvlan;
        read_flow_tag() -> u32 => ibv_wc_read_flow_tag;
        read_tm_info(tm_info: *mut ibv_wc_tm_info = 1) => ibv_wc_read_tm_info;
    }
}

#[test]
fn both_forms_of_a_queue_begin_alike() {
    let mut cq = ibv_cq_ex { cqe: 127, handle: 5, ..ibv_cq_ex::default() };
    // SAFETY: the queue is the test's own.
    let plain = unsafe { &*ibv_cq_ex_to_cq(&mut cq) };
    assert_eq!((plain.cqe, plain.handle), (127, 5));
}
