//! Filling segments of work queue entries, and reading completions (infiniband/mlx5dv.h).
//!
//! The header has a second form of two of these for SSE3, with the same result; compilers find it by themselves.

use std::ptr;

use crate::{mlx5_cqe64, mlx5_wqe_ctrl_seg, mlx5_wqe_data_seg, mlx5_wqe_datagram_seg, mlx5_wqe_eth_seg, mlx5dv_clock_info};

/// Fills a control segment: index of the block, opcode and its modifier, queue's number, `MLX5_WQE_CTRL_*`, length in units of 16
/// bytes, signature, and what goes over the wire as it is.
#[inline]
pub unsafe fn mlx5dv_set_ctrl_seg(
    seg: *mut mlx5_wqe_ctrl_seg,
    pi: u16,
    opcode: u8,
    opmod: u8,
    qp_num: u32,
    fm_ce_se: u8,
    ds: u8,
    signature: u8,
    imm: u32,
) {
    // SAFETY: the caller's segment is writable.
    unsafe {
        (*seg).opmod_idx_opcode = (u32::from(opmod) << 24 | u32::from(pi) << 8 | u32::from(opcode)).to_be();
        (*seg).qpn_ds = (qp_num << 8 | u32::from(ds)).to_be();
        (*seg).fm_ce_se = fm_ce_se;
        (*seg).signature = signature;
        (*seg).imm = imm;
    }
}

/// Fills the path of a datagram: queue key or target's key, peer, whether all of the path counts (`ext`), and the path.
#[inline]
pub unsafe fn mlx5dv_set_dgram_seg(
    seg: *mut mlx5_wqe_datagram_seg,
    key: u64,
    dqp_dct: u32,
    ext: u8,
    stat_rate_sl: u8,
    fl_mlid: u8,
    rlid: u16,
    rmac: *const [u8; 6],
    tclass: u8,
    hop_limit: u8,
    grh_gid_fi: u32,
    rgid: *const [u8; 16],
) {
    // SAFETY: the caller's segment is writable, and the addresses are readable.
    unsafe {
        let av = &mut (*seg).av;
        av.key.dc_key = key.to_be();
        av.dqp_dct = (u32::from(ext) << 31 | dqp_dct).to_be();
        av.stat_rate_sl = stat_rate_sl;
        av.fl_mlid = fl_mlid;
        av.rlid = rlid.to_be();
        av.rmac = *rmac;
        av.tclass = tclass;
        av.hop_limit = hop_limit;
        av.grh_gid_fl = grh_gid_fi.to_be();
        av.rgid = *rgid;
    }
}

/// Fills an element of a scatter/gather list.
#[inline]
pub unsafe fn mlx5dv_set_data_seg(seg: *mut mlx5_wqe_data_seg, length: u32, lkey: u32, address: usize) {
    // SAFETY: the caller's segment is writable.
    unsafe {
        (*seg).byte_count = length.to_be();
        (*seg).lkey = lkey.to_be();
        (*seg).addr = (address as u64).to_be();
    }
}

/// Fills an Ethernet segment: `MLX5_ETH_WQE_*`, payload of a segment, and the headers in line, which go on behind the segment
/// where they are longer than 18 bytes. That memory must be writable, too.
#[inline]
pub unsafe fn mlx5dv_set_eth_seg(seg: *mut mlx5_wqe_eth_seg, cs_flags: u8, mss: u16, inline_hdr_sz: u16, inline_hdr_start: *const u8) {
    // SAFETY: the caller's segment is writable, and what follows it as far as the headers go; they are readable.
    unsafe {
        (*seg).cs_flags = cs_flags;
        (*seg).mss = mss.to_be();
        (*seg).inline_hdr_sz = inline_hdr_sz.to_be();
        let start = seg.cast::<u8>().add(std::mem::offset_of!(mlx5_wqe_eth_seg, inline_hdr_start));
        ptr::copy_nonoverlapping(inline_hdr_start, start, usize::from(inline_hdr_sz));
    }
}

/// The byte that the card writes last. It may write it at any time, and so each read is one of memory.
#[inline]
unsafe fn op_own(cqe: *const mlx5_cqe64) -> u8 {
    // SAFETY: the caller's completion is readable.
    unsafe { ptr::read_volatile(&raw const (*cqe).op_own) }
}

/// The owner's bit. The completion is software's when it is the parity of the rounds through the queue; what else the completion
/// says is read only after an acquire fence.
#[inline]
pub unsafe fn mlx5dv_get_cqe_owner(cqe: *const mlx5_cqe64) -> u8 {
    // SAFETY: the caller's completion is readable.
    unsafe { op_own(cqe) & 1 }
}

/// Sets the owner's bit to the lowest of `val`.
#[inline]
pub unsafe fn mlx5dv_set_cqe_owner(cqe: *mut mlx5_cqe64, val: u8) {
    // SAFETY: the caller's completion is writable, and software's.
    unsafe { ptr::write_volatile(&raw mut (*cqe).op_own, op_own(cqe) & !1 | val & 1) };
}

/// Whether the completion is a solicited one: 1 or 0.
#[inline]
pub unsafe fn mlx5dv_get_cqe_se(cqe: *const mlx5_cqe64) -> u8 {
    // SAFETY: the caller's completion is readable.
    unsafe { op_own(cqe) >> 1 & 1 }
}

/// Where the payload is: 0 in its buffer, 1 or 2 in the completion; 3 says that the completion is a compressed one.
#[inline]
pub unsafe fn mlx5dv_get_cqe_format(cqe: *const mlx5_cqe64) -> u8 {
    // SAFETY: the caller's completion is readable.
    unsafe { op_own(cqe) >> 2 & 3 }
}

/// `MLX5_CQE_REQ` to `MLX5_CQE_INVALID`.
#[inline]
pub unsafe fn mlx5dv_get_cqe_opcode(cqe: *const mlx5_cqe64) -> u8 {
    // SAFETY: the caller's completion is readable.
    unsafe { op_own(cqe) >> 4 }
}

/// A time of the card's clock, in nanoseconds: the nearest to what [`mlx5dv_clock_info`] was read at, before or after it.
#[inline]
pub fn mlx5dv_ts_to_ns(clock_info: &mlx5dv_clock_info, device_timestamp: u64) -> u64 {
    let &mlx5dv_clock_info { nsec, last_cycles, frac, mult, shift, mask } = clock_info;
    let ahead = device_timestamp.wrapping_sub(last_cycles) & mask;
    if ahead > mask / 2 {
        let behind = last_cycles.wrapping_sub(device_timestamp) & mask;
        nsec.wrapping_sub(behind.wrapping_mul(mult.into()).wrapping_sub(frac).wrapping_shr(shift))
    } else {
        nsec.wrapping_add(ahead.wrapping_mul(mult.into()).wrapping_add(frac).wrapping_shr(shift))
    }
}
