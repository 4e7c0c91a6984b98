//! Receive queues of their own, tables of them, and queue pairs that hash over a table.

use ringway_preload::Errno;
use ringway_sim::connectx::queues::{QueueBuffer, ReceiveConfig, ReceiveLayout};
use ringway_sim::connectx::rss::{HashFields, KEY_LEN};

use super::device::{RECEIVES_MAX, TABLE_LOG_MAX};
use super::queues::SGES_MAX;
use super::{Reply, Request};
use crate::abi::{Input, Output};
use crate::engine::raw::{ENTRY_STRIDES, Pace, STRIDE_BYTES, cyclic, state};
use crate::engine::{Hash, Object, Raw, Told, Wq};

/// `IB_UVERBS_WQT_RQ`.
const RECEIVE: u32 = 0;
/// `IB_WQ_FLAGS_CVLAN_STRIPPING`.
const STRIPS_TAGS: u32 = 1 << 0;
/// `MLX5_IB_CREATE_WQ_STRIDING_RQ`, the one bit of the driver's comp_mask.
const STRIDES: u32 = 1 << 0;
/// `MLX5_RX_HASH_FUNC_TOEPLITZ`.
pub(super) const TOEPLITZ: u8 = 1;
/// States of a queue: `IB_WQS_RESET`, `IB_WQS_RDY`, `IB_WQS_ERR`.
const WQ_ERR: u32 = 2;

/// `ib_uverbs_ex_create_wq` {comp_mask 0, wq_type 4, pd_handle 16, cq_handle 20, max_wr 24, max_sge 28, create_flags 32};
/// `ib_uverbs_ex_create_wq_resp` {response_length 4, wq_handle 8, max_wr 12, max_sge 16, wqn 20}; `mlx5_ib_create_wq` {buf_addr 0, db_addr 8,
/// rq_wqe_count 16, rq_wqe_shift 20, user_index 24, flags 28, comp_mask 32, single_stride_log_num_of_bytes 36, single_wqe_log_num_of_strides 40, two_byte_shift_en 44};
/// `mlx5_ib_create_wq_resp` {response_length 0}.
pub(super) fn create_wq(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let (core, driver) = (request.core(), request.driver());
    let (pd_handle, max_wr, max_sge) = (core.u32(16), core.u32(24), core.u32(28));
    let (count, shift) = (driver.u32(16), driver.u32(20));
    let flags = core.u32(32);
    if core.u32(0) != 0 || flags & !STRIPS_TAGS != 0 || driver.u32(28) != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let layout = layout(driver)?;
    let is_size = count.is_power_of_two() && count <= RECEIVES_MAX && (4..=9).contains(&shift);
    if core.u32(4) != RECEIVE || !is_size || max_wr == 0 || max_sge > SGES_MAX {
        return Err(Errno(libc::EINVAL));
    }
    let number = request.engine.raw_number();
    let context = request.context()?;
    let (pd, cqn) = (context.pd(pd_handle)?, context.cq(core.u32(20))?);
    let ring = QueueBuffer { addr: driver.u64(0), log_stride: shift as u8, log_entries: count.ilog2() as u8 };
    let config = ReceiveConfig { layout, ..cyclic(number, ring, driver.u64(8), pd, (driver.u32(24) & 0xff_ffff, cqn)) };
    if layout != ReceiveLayout::Cyclic {
        request.engine.card.completes_strides(cqn);
    }
    let told = Told::new(request.context, core.u64(8));
    request.engine.wqs.insert(number, Wq { state: state::RESET, config, strips: flags & STRIPS_TAGS != 0, told });
    request.engine.begin_wq(number);
    let handle = request.context()?.add(Object::Wq { pd: pd_handle, number });
    let core = Output::new(24).u32(4, 24).u32(8, handle).u32(12, max_wr).u32(16, max_sge).u32(20, number);
    Ok(Reply { core, driver: Output::new(8).u32(0, 8), made: Some(handle) })
}

/// How packets lie in a queue's entries: one in each, unless comp_mask says that strides are named.
fn layout(driver: Input<'_>) -> Result<ReceiveLayout, Errno> {
    match driver.u32(32) {
        0 => return Ok(ReceiveLayout::Cyclic),
        STRIDES if driver.u32(44) == 0 => {}
        // (Bytes in front of each packet, so that what follows its Ethernet header is aligned, the model does not leave.)
        _ => return Err(Errno(libc::EOPNOTSUPP)),
    }
    let (bytes, strides) = (driver.u32(36), driver.u32(40));
    // An entry has a reserved segment, and one of a buffer.
    if !STRIDE_BYTES.contains(&bytes) || !ENTRY_STRIDES.contains(&strides) || driver.u32(20) != 5 {
        return Err(Errno(libc::EINVAL));
    }
    Ok(ReceiveLayout::Striding { log_stride_bytes: bytes as u8, log_strides: strides as u8 })
}

fn wq(request: &mut Request<'_>, handle: u32) -> Result<u32, Errno> {
    match request.context()?.objects.get(&handle) {
        Some(Object::Wq { number, .. }) => Ok(*number),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// `ib_uverbs_ex_modify_wq` {attr_mask 0, wq_handle 4, wq_state 8, curr_wq_state 12}. Bits of the mask: state 0, current state 1.
pub(super) fn modify_wq(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let core = request.core();
    let (set, to) = (core.u32(0), core.u32(8));
    let number = wq(request, core.u32(4))?;
    let bad = Errno(libc::EINVAL);
    let wq = request.engine.wqs.get_mut(&number).ok_or(bad)?;
    if set & !3 != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    if to > WQ_ERR || set & 2 != 0 && core.u32(12) != u32::from(wq.state) {
        return Err(bad);
    }
    let from = wq.state;
    if set & 1 != 0 {
        wq.state = to as u8;
    }
    match (from, wq.state) {
        (state::RESET, _) | (_, state::READY) => {}
        (_, state::RESET) => request.engine.begin_wq(number),
        _ => request.engine.stop_raw(number),
    }
    Ok(Reply::nothing())
}

/// `ib_uverbs_ex_destroy_wq` {wq_handle 4}; its answer has {response_length 4, events_reported 8}. EBUSY: a table has it.
pub(super) fn destroy_wq(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let handle = request.core().u32(4);
    let number = wq(request, handle)?;
    if request.context()?.tables.values().any(|table| table.contains(&number)) {
        return Err(Errno(libc::EBUSY));
    }
    let told = request.engine.wqs.get(&number).map_or_else(Told::default, |wq| wq.told);
    let object = request.remove(handle, |object| matches!(object, Object::Wq { .. }))?;
    let read = request.engine.events_read(told);
    request.engine.end(object);
    Ok(Reply::of(Output::new(16).u32(4, 12).u32(8, read)))
}

/// `ib_uverbs_ex_create_rwq_ind_table` {log_ind_tbl_size 4, wq_handles 8}; its answer has {response_length 4, ind_tbl_handle 8, ind_tbl_num 12}.
pub(super) fn create_table(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let core = request.core();
    let log = core.u32(4);
    if core.u32(0) != 0 || log > TABLE_LOG_MAX {
        return Err(Errno(libc::EINVAL));
    }
    let table = (0..1usize << log).map(|i| wq(request, core.u32(8 + 4 * i))).collect::<Result<Vec<u32>, Errno>>()?;
    let context = request.context()?;
    let handle = context.add(Object::Table);
    context.tables.insert(handle, table);
    Ok(Reply { made: Some(handle), ..Reply::of(Output::new(16).u32(4, 16).u32(8, handle).u32(12, handle)) })
}

/// `ib_uverbs_ex_destroy_rwq_ind_table` {ind_tbl_handle 4}. EBUSY: a queue pair hashes over it.
pub(super) fn destroy_table(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let (handle, context) = (request.core().u32(4), request.context);
    let uses = |raw: &Raw| raw.context == context && raw.hash.as_ref().is_some_and(|hash| hash.handle == handle);
    if request.engine.raws.values().any(uses) {
        return Err(Errno(libc::EBUSY));
    }
    request.remove(handle, |object| matches!(object, Object::Table))?;
    request.context()?.tables.remove(&handle);
    Ok(Reply::nothing())
}

/// A queue pair that hashes: `ib_uverbs_ex_create_qp` {pd_handle 8, max_send_wr 24, rwq_ind_tbl_handle 56}; `mlx5_ib_create_qp_rss`
/// {rx_hash_fields_mask 0, rx_hash_function 8, rx_key_len 9, rx_hash_key 16, comp_mask 144, flags 148}.
pub(super) fn make(request: &mut Request<'_>, strips: bool) -> Result<Reply, Errno> {
    let (core, driver) = (request.core(), request.driver());
    let (pd_handle, handle, bad) = (core.u32(8), core.u32(56), Errno(libc::EINVAL));
    if driver.u32(144) != 0 || driver.u32(148) != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let fields = HashFields::from_bits(driver.u64(0)).ok_or(Errno(libc::EOPNOTSUPP))?;
    if driver.u8(8) != TOEPLITZ {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    if usize::from(driver.u8(9)) != KEY_LEN || !fields.is_possible() || core.u32(24) != 0 {
        return Err(bad);
    }
    let number = request.engine.raw_number();
    let context = request.context()?;
    context.pd(pd_handle)?;
    let table = context.tables.get(&handle).cloned().ok_or(bad)?;
    let raw = Raw {
        context: request.context,
        state: state::RESET,
        queues: None,
        hash: Some(Hash { key: key(driver), fields, handle, table }),
        hears_itself: [false; 2],
        strips,
        caps: [0; 5],
        signals_all: false,
        port: 0,
        pace: Pace::default(),
        told: Told::new(request.context, core.u64(0)),
    };
    request.engine.raws.insert(number, raw);
    let made = request.context()?.add(Object::Qp { pd: pd_handle, qpn: number });
    let core = Output::new(40).u32(0, made).u32(4, number).u32(36, 40);
    Ok(Reply { core, driver: Output::new(48).u32(8, 1).u32(12, number), made: Some(made) })
}

fn key(driver: Input<'_>) -> [u8; KEY_LEN] {
    core::array::from_fn(|i| driver.u8(16 + i))
}
