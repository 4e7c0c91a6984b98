//! Raw packet queue pairs: making, states, asking. (A hash over receive queues is one too; `hashes` makes it.)

use ringway_preload::Errno;
use ringway_sim::Bucket;
use ringway_sim::connectx::constants::DS_MAX;
use ringway_sim::connectx::queues::{QueueBuffer, SendConfig};
use ringway_sim::connectx::wqe::{SendRules, Transport};
use ringway_stack::device::Pacing;

use super::device::{RATE_MAX, RECEIVES_MAX, SEND_BLOCKS_MAX, TSO_MAX};
use super::queues::SGES_MAX;
use super::{Reply, Request};
use crate::abi::{Input, Output};
use crate::engine::raw::{FRAME_MAX, Pace, cyclic, state};
use crate::engine::{INLINE_MAX, Object, Raw, Told};

/// `enum ib_uverbs_qp_type`.
pub(super) const RAW_PACKET: u8 = 8;
/// `IB_UVERBS_QP_CREATE_CVLAN_STRIPPING`.
pub(super) const STRIPS_TAGS: u32 = 1 << 9;
/// `MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_UC` and `_MC`.
const HEARS_ITSELF: [u32; 2] = [1 << 6, 1 << 7];
/// Beside those of other queue pairs.
const FLAGS_ALLOWED: u32 = super::pairs::FLAGS_ALLOWED | HEARS_ITSELF[0] | HEARS_ITSELF[1];
/// Frames in a multi-packet send of the older kind at most (`guessed`, as in `sim::connectx`).
const MPW_MAX: usize = 5;
/// `MLX5_IB_CREATE_QP_RESP_MASK_*`: numbers of the two queues, and of what is before them.
const NUMBERS_TOLD: u32 = 0xf;

/// As `pairs::make`, from `at` on. `mlx5_ib_create_qp` {…, bfreg_index 36, sq_buf_addr 40}: send and receive queue are apart. `mlx5_ib_create_qp_resp`
/// {comp_mask 8, tirn 12, tisn 16, rqn 20, sqn 24}.
pub(super) fn make(request: &mut Request<'_>, at: usize, len: usize, create_flags: u32) -> Result<Reply, Errno> {
    let (core, driver) = (request.core(), request.driver());
    let caps: [u32; 5] = core::array::from_fn(|i| core.u32(at + 24 + 4 * i));
    let [_, _, send_sges, recv_sges, inline] = caps;
    let has_shared = core.u8(at + 46) != 0;
    if send_sges > SGES_MAX || recv_sges > SGES_MAX || inline as usize > INLINE_MAX || has_shared {
        return Err(Errno(libc::EINVAL));
    }
    let number = request.engine.raw_number();
    let (context, pd_handle) = (request.context()?, core.u32(at + 8));
    let pd = context.pd(pd_handle)?;
    let (send_cqn, recv_cqn) = (context.cq(core.u32(at + 12))?, context.cq(core.u32(at + 16))?);
    let [sends, receives, shift, flags, uidx]: [u32; 5] = core::array::from_fn(|i| driver.u32(16 + 4 * i));
    let is_size = |count: u32, max: u32| count == 0 || count.is_power_of_two() && count <= max;
    if !is_size(sends, 4 * SEND_BLOCKS_MAX) || !is_size(receives, RECEIVES_MAX) || receives != 0 && !(4..=9).contains(&shift) {
        return Err(Errno(libc::EINVAL));
    }
    if flags & !FLAGS_ALLOWED != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let log = |count: u32| count.max(1).ilog2() as u8;
    let (record, uidx) = (driver.u64(8), uidx & 0xff_ffff);
    let rules = SendRules {
        transport: Transport::Raw,
        qpn: number,
        inline_min: 0,
        ds_max: DS_MAX,
        frame_max: FRAME_MAX,
        tso_max: TSO_MAX,
        mpw_max: MPW_MAX,
        enhanced_mpw: true,
    };
    let ring = QueueBuffer { addr: driver.u64(40), log_stride: 6, log_entries: log(sends) };
    let send = SendConfig { rules, ring, record, pd, uidx, cqn: send_cqn };
    let addr = if receives == 0 { 0 } else { driver.u64(0) };
    let ring = QueueBuffer { addr, log_stride: shift as u8, log_entries: log(receives) };
    let raw = Raw {
        context: request.context,
        state: state::RESET,
        queues: Some((send, cyclic(number, ring, record, pd, (uidx, recv_cqn)))),
        hash: None,
        hears_itself: HEARS_ITSELF.map(|flag| flags & flag != 0),
        strips: create_flags & STRIPS_TAGS != 0,
        caps,
        signals_all: core.u8(at + 44) != 0,
        port: 0,
        pace: Pace::default(),
        told: Told::new(request.context, core.u64(at)),
    };
    let page = request.context()?.page(driver.u32(36));
    request.engine.rings.add(number, page);
    request.engine.raws.insert(number, raw);
    request.engine.begin_raw(number);
    request.engine.tell_wants();
    let handle = request.context()?.add(Object::Qp { pd: pd_handle, qpn: number });
    let core = caps.iter().zip(0..).fold(Output::new(len).u32(0, handle).u32(4, number), |out, (cap, i)| out.u32(8 + 4 * i, *cap));
    let driver = Output::new(48).u32(8, NUMBERS_TOLD).u32(12, number).u32(16, number).u32(20, number).u32(24, number);
    Ok(Reply { core, driver, made: Some(handle) })
}

/// Bits of `attr_mask` that a raw queue pair's transitions may have: the state, what it is thought to be, the port, the rate.
const ALLOWED: u32 = 1 << 0 | 1 << 1 | PORT | RATE;
const PORT: u32 = 1 << 5;
const RATE: u32 = 1 << 25;

/// `mlx5_ib_modify_qp` {max_burst_sz 4, typical_pkt_sz 8} beside the rate in kilobits a second. Without either, each frame waits for the one before it.
fn bucket(rate: u32, driver: Input<'_>) -> Option<Bucket> {
    let (burst_bytes, typical_packet_bytes) = (driver.u32(4), driver.u16(8));
    let burst_bytes = if typical_packet_bytes == 0 { burst_bytes.max(1) } else { burst_bytes };
    Bucket::new(Pacing { rate_bps: u64::from(rate) * 1000, burst_bytes, typical_packet_bytes }, FRAME_MAX as usize)
}

/// `pairs::modify` for a raw queue pair. The transitions and what they take are those of the kernel's `ib_modify_qp_is_ok`; its queues are
/// ready from INIT and from RTS on (drivers/infiniband/hw/mlx5/qp.c).
pub(super) fn modify(request: &mut Request<'_>, number: u32, core: Input<'_>) -> Result<(), Errno> {
    let (set, bad) = (core.u32(68), Errno(libc::EINVAL));
    let driver = request.driver();
    let raw = request.engine.raws.get_mut(&number).filter(|raw| raw.queues.is_some()).ok_or(bad)?;
    let to = if set & 1 == 0 { raw.state } else { core.u8(96) };
    let is_transition = match (raw.state, to) {
        (_, state::RESET | state::ERR) => true,
        (state::RESET, state::INIT) => set & PORT != 0,
        (state::INIT, state::INIT | state::RTR) | (state::RTR | state::RTS, state::RTS) => true,
        _ => false,
    };
    if set & !ALLOWED != 0 || !is_transition || set & PORT != 0 && core.u8(104) != 1 || set & 2 != 0 && core.u8(97) != raw.state {
        return Err(bad);
    }
    // The rate is in the extended command alone, and of the last state.
    let rate = core.u32(112);
    if set & RATE != 0 && (to != state::RTS || rate > RATE_MAX) {
        return Err(bad);
    }
    if set & RATE != 0 {
        raw.pace.bucket = bucket(rate, driver);
    }
    if set & PORT != 0 {
        raw.port = core.u8(104);
    }
    raw.state = to;
    match to {
        // The program's counters begin anew, and so do the card's.
        state::RESET => request.engine.begin_raw(number),
        state::ERR => request.engine.stop_raw(number),
        _ => {}
    }
    request.engine.turn();
    Ok(())
}

/// `ib_uverbs_query_qp_resp` of a raw queue pair: {caps 64, qp_state 108, cur_qp_state 109, port_num 116, sq_sig_all 122}.
pub(super) fn query(raw: &Raw) -> Reply {
    let out = Output::new(128).u8(108, raw.state).u8(109, raw.state).u8(116, raw.port).u8(122, raw.signals_all.into());
    Reply::of(raw.caps.iter().zip(0..).fold(out, |out, (cap, i)| out.u32(64 + 4 * i, *cap)))
}
