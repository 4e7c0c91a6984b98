//! Opening the device, and what it says of itself.

use std::os::fd::IntoRawFd as _;

use ringway_preload::Errno;
use ringway_sim::connectx::rss::HashFields;
use ringway_stack::roce::MEMBERS_MAX;
use ringway_stack::roce::qp::RD_ATOMIC_MAX;
use ringway_stack::roce::work::SGES_MAX;

use super::{Reply, Request};
use crate::abi::Output;
use crate::engine::device_memory::BYTES;
use crate::engine::raw::{ENTRY_STRIDES, STRIDE_BYTES};
use crate::engine::{Channel, QPS_MAX};
use crate::sysfs::{FIRMWARE, NODE_GUID, PART};
use crate::wire::port::{Plug, plug};

/// Blocks of a send queue at most.
pub(super) const SEND_BLOCKS_MAX: u32 = 8192;
/// Entries of a receive queue at most.
pub(super) const RECEIVES_MAX: u32 = 1 << 15;
/// Completions of a queue at most.
pub(super) const COMPLETIONS_MAX: u32 = (1 << 22) - 1;
/// Payload of a large send at most, bytes.
pub(super) const TSO_MAX: u32 = 1 << 18;
/// Entries of a table of receive queues, 2^this at most.
pub(super) const TABLE_LOG_MAX: u32 = 9;
/// Rates of a raw queue pair, kilobits a second.
pub(super) const RATE_MIN: u32 = 1;
pub(super) const RATE_MAX: u32 = 100_000_000;
/// In rdma/ib_verbs.h, `IB_DEVICE_RAW_IP_CSUM` and `IB_DEVICE_MANAGED_FLOW_STEERING`.
const RAW_CHECKSUMS: u32 = 1 << 26;
const FLOW_STEERING: u32 = 1 << 29;
/// `IB_UVERBS_RAW_PACKET_CAP_CVLAN_STRIPPING` and `_IP_CSUM`.
const RAW_PACKET_CAPS: u32 = 1 << 0 | 1 << 2;
/// `MLX5_IB_ALLOW_MPW` and `MLX5_IB_SUPPORT_EMPW`.
const MULTI_PACKET: u32 = 1 << 1 | 1 << 2;
/// `MLX5_IB_PP_SUPPORT_BURST`.
const PACES_BURSTS: u8 = 1 << 0;
/// Formats of compressed completions: by hash, by checksum, by checksum and stride (mlx5dv.h, `mlx5dv_cqe_comp_res_format`).
const COMPRESSES: u32 = 1 << 0 | 1 << 1 | 1 << 2;
/// The bit of raw packet queue pairs.
const ON_RAW: u32 = 1 << super::raw::RAW_PACKET;
/// The card's clock, which counts nanoseconds, in cycles a millisecond.
const CLOCK_KHZ: u64 = 1_000_000;
/// Longest message, bytes: what `stack::roce` carries.
const MESSAGE_MAX: u32 = 1 << 30;

/// In rdma/mlx5-abi.h, `mlx5_ib_alloc_ucontext_req_v2`.
const WANTS_DEVX: u32 = 1 << 0;
/// `MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE` and `_CREATE_AH`.
const DRIVER_PARTS: u8 = 1 << 0 | 1 << 1;
/// `MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET`: the clock's counter may be mapped, and is at the offset in its page.
const HAS_CORE_CLOCK: u32 = 1 << 0;
/// Its conversion may be mapped: a bit a version, of `MLX5_IB_CLOCK_INFO_V1`.
const CLOCK_INFO_VERSIONS: u8 = 1 << 0;
/// `MLX5_USER_INLINE_MODE_NONE`.
const INLINE_MODE_NONE: u8 = 1;

/// Opens: `ib_uverbs_get_context_resp` {async_fd 0, num_comp_vectors 4}; `mlx5_ib_alloc_ucontext_req_v2` {flags 8}.
pub(super) fn get_context(request: &mut Request<'_>) -> Result<Reply, Errno> {
    if request.driver().u32(8) & WANTS_DEVX != 0 {
        // Firmware's commands are not modelled; libmlx5 opens without them then.
        return Err(Errno(libc::EPERM));
    }
    let context = request.context()?;
    if context.events.is_some() {
        return Err(Errno(libc::EINVAL));
    }
    let (ours, theirs) = Channel::new()?;
    context.events = Some(ours);
    let core = Output::new(8).u32(0, theirs.into_raw_fd().cast_unsigned()).u32(4, 1);
    Ok(Reply { driver: ucontext(), ..Reply::of(core) })
}

/// `mlx5_ib_alloc_ucontext_resp`. There is no static register page, so that libmlx5 allocates each.
fn ucontext() -> Output {
    let (cache_line, cqe_version, len) = (64, 1, 72);
    Output::new(len)
        .u32(0, 1 << 17) // qp_tab_size
        .u32(4, 512) // bf_reg_size
        .u32(12, cache_line)
        .u16(16, 1024) // max_sq_desc_sz
        .u16(18, 512) // max_rq_desc_sz
        .u32(20, SEND_BLOCKS_MAX)
        .u32(24, RECEIVES_MAX)
        .u32(28, RECEIVES_MAX - 1)
        .u16(32, 1) // num_ports
        .u32(36, HAS_CORE_CLOCK) // comp_mask
        .u32(40, len as u32) // response_length
        .u8(44, cqe_version)
        .u8(45, DRIVER_PARTS)
        .u8(46, INLINE_MODE_NONE)
        .u8(47, CLOCK_INFO_VERSIONS)
        .u64(48, 0) // hca_core_clock_offset
        .u32(56, 12) // log_uar_size
        .u32(60, 1) // num_uars_per_page
}

/// `ib_uverbs_query_device_resp`.
fn attributes(len: usize) -> Output {
    let [major, minor, sub] = FIRMWARE.map(u64::from);
    let many = 1 << 16;
    Output::new(len)
        .u64(0, major << 32 | minor << 16 | sub)
        .with(8, NODE_GUID)
        .with(16, NODE_GUID)
        .u64(24, u64::from(MESSAGE_MAX) << 10) // max_mr_size
        .u64(32, !0xfff) // page_size_cap
        .u32(40, 0x02c9) // vendor_id
        .u32(44, PART)
        .u32(52, QPS_MAX as u32)
        .u32(56, SEND_BLOCKS_MAX) // max_qp_wr
        .u32(60, 1 << 11 | 1 << 12 | RAW_CHECKSUMS | FLOW_STEERING) // sys_image_guid, rc_rnr_nak_gen
        .u32(64, SGES_MAX as u32)
        .u32(68, SGES_MAX as u32)
        .u32(72, many) // max_cq
        .u32(76, COMPLETIONS_MAX)
        .u32(80, many - 2) // max_mr
        .u32(84, many) // max_pd
        .u32(88, RD_ATOMIC_MAX.into()) // max_qp_rd_atom
        .u32(96, u32::from(RD_ATOMIC_MAX) * QPS_MAX as u32) // max_res_rd_atom
        .u32(100, RD_ATOMIC_MAX.into()) // max_qp_init_rd_atom
        .u32(108, 1) // atomic_cap: among the queue pairs of one adapter
        .u32(132, MEMBERS_MAX as u32) // max_mcast_grp
        .u32(136, QPS_MAX as u32) // max_mcast_qp_attach
        .u32(140, MEMBERS_MAX as u32) // max_total_mcast_qp_attach
        .u32(144, i32::MAX as u32) // max_ah
        .u32(156, many) // max_srq
        .u32(160, RECEIVES_MAX - 1)
        .u32(164, SGES_MAX as u32)
        .u16(168, 1) // max_pkeys
        .u8(170, 16) // local_ca_ack_delay
        .u8(171, 1) // phys_port_cnt
}

/// The device's attributes.
pub(super) fn query(_: &mut Request<'_>) -> Result<Reply, Errno> {
    Ok(Reply::of(attributes(176)))
}

/// `ib_uverbs_ex_query_device_resp`: what follows the device's attributes and is not named here is zero, since the model has none of it:
/// {comp_mask 176, response_length 180, timestamp_mask 208, hca_core_clock 216, device_cap_flags_ex 224, rss_caps 232, max_wq_type_rq 248, raw_packet_caps 252, max_dm_size 288}. The driver's part is
/// `mlx5_ib_query_device_resp` {response_length 4, tso_caps 8, rss_caps 16, cqe_comp_caps 32, packet_pacing_caps 40 (cap_flags 52), mlx5_ib_support_multi_pkt_send_wqes 56, striding_rq_caps 72}.
pub(super) fn query_extended(request: &mut Request<'_>) -> Result<Reply, Errno> {
    if request.core().u32(0) != 0 || request.core().u32(4) != 0 {
        return Err(Errno(libc::EINVAL));
    }
    let (len, driver) = (304, 112);
    let core = attributes(len)
        .u32(180, len as u32)
        .u64(208, u64::MAX) // timestamp_mask
        .u64(216, CLOCK_KHZ)
        .u64(224, u64::from(1u32 << 11 | 1 << 12 | RAW_CHECKSUMS | FLOW_STEERING))
        .u32(232, ON_RAW)
        .u32(236, 1 << 16) // tables
        .u32(240, 1 << TABLE_LOG_MAX)
        .u32(248, 1 << 15)
        .u32(252, RAW_PACKET_CAPS)
        .u64(288, BYTES as u64);
    let driver = Output::new(driver)
        .u32(4, driver as u32)
        .u32(8, TSO_MAX)
        .u32(12, ON_RAW)
        .u64(16, HashFields::all().bits())
        .u8(24, super::hashes::TOEPLITZ)
        .u32(32, super::queues::RUN_MAX)
        .u32(36, COMPRESSES)
        .u32(40, RATE_MIN)
        .u32(44, RATE_MAX)
        .u32(48, ON_RAW)
        .u8(52, PACES_BURSTS)
        .u32(56, MULTI_PACKET)
        .u32(72, *STRIDE_BYTES.start())
        .u32(76, *STRIDE_BYTES.end())
        .u32(80, *ENTRY_STRIDES.start())
        .u32(84, *ENTRY_STRIDES.end())
        .u32(88, ON_RAW);
    Ok(Reply { driver, ..Reply::of(core) })
}

/// `ib_uverbs_query_port_resp` of `ib_uverbs_query_port` {port_num 8}: an Ethernet port at 100 Gb/s, up unless it was put down.
pub(super) fn query_port(request: &mut Request<'_>) -> Result<Reply, Errno> {
    if request.core().u8(8) != 1 {
        return Err(Errno(libc::EINVAL));
    }
    let (cm, ip_based_gids) = (1 << 16, 1 << 26);
    let (mtu_4096, ethernet) = (5, 2);
    let active_mtu = match plug() {
        Plug::Interface(port) => port.roce_mtu() as u8,
        Plug::Bus | Plug::Nothing => mtu_4096,
    };
    // `IB_PORT_ACTIVE` and `IB_PORT_DOWN`; `IB_PORT_PHYS_STATE_LINK_UP` and `_DISABLED`.
    let (state, link) = if request.engine.is_port_up() { (4, 5) } else { (1, 3) };
    let (four_lanes, edr) = (2, 32);
    let port = Output::new(40)
        .u32(0, cm | ip_based_gids)
        .u32(4, MESSAGE_MAX)
        .u32(16, 1) // gid_tbl_len
        .u16(20, 1) // pkey_tbl_len
        .u8(26, state)
        .u8(27, mtu_4096)
        .u8(28, active_mtu)
        .u8(30, 1) // max_vl_num
        .u8(34, four_lanes)
        .u8(35, edr)
        .u8(36, link)
        .u8(37, ethernet);
    Ok(Reply::of(port))
}
