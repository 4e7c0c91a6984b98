//! Queue pairs: making, asking, ending. `states` has what changes them.

use std::collections::BTreeSet;

use ringway_preload::Errno;
use ringway_sim::connectx::constants::DS_MAX;
use ringway_sim::connectx::queues::{QueueBuffer, ReceiveConfig, ReceiveLayout, ReceiveQueue, Receiver, SendConfig, SendQueue};
use ringway_sim::connectx::wqe::{self, SendRules};
use ringway_stack::roce::CreateError;
use ringway_stack::roce::memory::Pd;
use ringway_stack::roce::qp::{QpConfig, Transport};

use super::device::{RECEIVES_MAX, SEND_BLOCKS_MAX};
use super::queues::SGES_MAX;
use super::{Reply, Request, hashes, raw, states};
use crate::abi::Output;
use crate::engine::{Attributes, INLINE_MAX, Object, Qp, Told};

/// `enum ib_uverbs_qp_type`.
const RC: u8 = 2;
const UC: u8 = 3;
const UD: u8 = 4;
/// `MLX5_QP_FLAG_SCATTER_CQE`, `MLX5_QP_FLAG_BFREG_INDEX`, `MLX5_QP_FLAG_ALLOW_SCATTER_CQE`, `MLX5_QP_FLAG_UAR_PAGE_INDEX`: payload in
/// completions is the card's choice, and the model's is never.
pub(super) const FLAGS_ALLOWED: u32 = 1 << 1 | 1 << 3 | 1 << 8 | 1 << 10;

/// `ib_uverbs_create_qp`: as the extended one, behind the word of the response.
pub(super) fn create(request: &mut Request<'_>) -> Result<Reply, Errno> {
    match request.core().u8(8 + 45) {
        raw::RAW_PACKET => raw::make(request, 8, 32, 0),
        _ => make(request, 8, 32),
    }
}

/// `IB_UVERBS_CREATE_QP_MASK_IND_TABLE`.
const HAS_TABLE: u32 = 1;

/// `IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK`: of UD, what it sends to a group does not come to it.
const BLOCK_MULTICAST_LOOPBACK: u32 = 1 << 1;

/// `ib_uverbs_ex_create_qp`, which goes on {comp_mask 48, create_flags 52, rwq_ind_tbl_handle 56}; its answer has comp_mask 32 and
/// response_length 36 as well.
pub(super) fn create_extended(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let core = request.core();
    let (kind, mask, flags) = (core.u8(45), core.u32(48), core.u32(52));
    let is_raw = kind == raw::RAW_PACKET;
    let (masks, flags_known) = match kind {
        raw::RAW_PACKET => (HAS_TABLE, raw::STRIPS_TAGS),
        UD => (0, BLOCK_MULTICAST_LOOPBACK),
        _ => (0, 0),
    };
    if mask & !masks != 0 || flags & !flags_known != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let reply = match (is_raw, mask & HAS_TABLE != 0) {
        (true, true) => hashes::make(request, flags & raw::STRIPS_TAGS != 0)?,
        (true, false) => raw::make(request, 0, 40, flags)?,
        _ => make(request, 0, 40)?,
    };
    if !is_raw && flags & BLOCK_MULTICAST_LOOPBACK != 0 {
        let qpn = find(request, reply.made.unwrap_or_default())?;
        request.engine.node.hca_mut().set_multicast_loopback(qpn, false).map_err(|_| Errno(libc::EINVAL))?;
    }
    Ok(Reply { core: reply.core.u32(36, 40), ..reply })
}

/// From `at` on: {user_handle 0, pd_handle 8, send_cq_handle 12, recv_cq_handle 16, srq_handle 20, max_send_wr 24, max_recv_wr 28,
/// max_send_sge 32, max_recv_sge 36, max_inline_data 40, sq_sig_all 44, qp_type 45, is_srq 46}; `ib_uverbs_create_qp_resp` {qp_handle 0, qpn 4,
/// and the five limits from 8 on}.
fn make(request: &mut Request<'_>, at: usize, len: usize) -> Result<Reply, Errno> {
    let core = request.core();
    let transport = match core.u8(at + 45) {
        RC => Transport::Rc,
        UC => Transport::Uc,
        UD => Transport::Ud,
        _ => return Err(Errno(libc::EOPNOTSUPP)),
    };
    let caps: [u32; 5] = core::array::from_fn(|i| core.u32(at + 24 + 4 * i));
    let [_, _, send_sges, recv_sges, inline] = caps;
    if send_sges > SGES_MAX || recv_sges > SGES_MAX || inline as usize > INLINE_MAX {
        return Err(Errno(libc::EINVAL));
    }
    let context = request.context()?;
    let pd_handle = core.u32(at + 8);
    let pd = context.pd(pd_handle)?;
    let (send_cqn, recv_cqn) = (context.cq(core.u32(at + 12))?, context.cq(core.u32(at + 16))?);
    let srq = match (core.u8(at + 46), context.objects.get(&core.u32(at + 20))) {
        (0, _) => 0,
        (_, Some(Object::Srq { srqn, .. })) => *srqn,
        _ => return Err(Errno(libc::EINVAL)),
    };
    let queues = Queues::read(request, srq != 0)?;
    let config = QpConfig {
        transport,
        pd: Pd(pd),
        send_cq: request.engine.hca_cq,
        recv_cq: request.engine.hca_cq,
        send_depth: queues.send.entries() as usize,
        // Of a shared queue's receives it has one at a time.
        recv_depth: if srq == 0 { queues.receive.entries() as usize } else { 1 },
        sges_max: SGES_MAX as usize,
        inline_max: INLINE_MAX,
    };
    let qpn = request.engine.node.hca_mut().create_qp(config).map_err(|error| match error {
        CreateError::Full => Errno(libc::ENOMEM),
        _ => Errno(libc::EINVAL),
    })?;
    let uidx = queues.uidx;
    let rules = SendRules {
        transport: match transport {
            Transport::Rc => wqe::Transport::Rc,
            Transport::Uc => wqe::Transport::Uc,
            Transport::Ud => wqe::Transport::Ud,
        },
        qpn,
        inline_min: 0,
        ds_max: DS_MAX,
        frame_max: 0,
        tso_max: 0,
        mpw_max: 0,
        enhanced_mpw: false,
    };
    let send = SendConfig { rules, ring: queues.send, record: queues.record, pd, uidx, cqn: send_cqn };
    let layout = ReceiveLayout::Cyclic;
    let receive = ReceiveConfig { number: qpn, ring: queues.receive, record: queues.record, pd, uidx, cqn: recv_cqn, layout };
    let receiver = match srq {
        0 => Receiver::Own(ReceiveQueue::new(receive)),
        srqn => Receiver::Shared { srqn, cqn: recv_cqn },
    };
    request.engine.card.add_pair(qpn, SendQueue::new(send), receiver.clone());
    let signals_all = core.u8(at + 44) != 0;
    let attributes = Attributes::default();
    // (How long its receive queue is, the kernel's driver tells who asks later, not who makes it: drivers/infiniband/hw/mlx5/qp.c.)
    let received = if srq == 0 { queues.receive.entries() } else { caps[1] };
    let told_caps = [caps[0], received, send_sges, recv_sges, inline];
    let told = Told::new(request.context, core.u64(at));
    let qp = Qp {
        transport,
        srq,
        recv_cqn,
        uidx,
        send,
        receiver,
        caps: told_caps,
        signals_all,
        attributes,
        told,
        knows: false,
        groups: BTreeSet::new(),
    };
    let page = request.driver().u32(36);
    let page = request.context()?.page(page);
    request.engine.rings.add(qpn, page);
    request.engine.qps.insert(qpn, qp);
    let handle = request.context()?.add(Object::Qp { pd: pd_handle, qpn });
    let core = caps.iter().zip(0..).fold(Output::new(len).u32(0, handle).u32(4, qpn), |out, (cap, i)| out.u32(8 + 4 * i, *cap));
    // `mlx5_ib_create_qp_resp`: all zero, for the library chose the register page.
    Ok(Reply { core, driver: Output::new(48), made: Some(handle) })
}

/// Where a queue pair's queues are: `mlx5_ib_create_qp` {buf_addr 0, db_addr 8, sq_wqe_count 16, rq_wqe_count 20, rq_wqe_shift 24, flags 28,
/// uidx 32, bfreg_index 36}. The receive queue is first, the send queue behind it (spec/uverbs.md s5).
struct Queues {
    send: QueueBuffer,
    receive: QueueBuffer,
    record: u64,
    uidx: u32,
}

impl Queues {
    fn read(request: &Request<'_>, is_shared: bool) -> Result<Self, Errno> {
        let driver = request.driver();
        let [sends, receives, shift, flags, uidx]: [u32; 5] = core::array::from_fn(|i| driver.u32(16 + 4 * i));
        let is_size = |count: u32, max: u32| count == 0 || count.is_power_of_two() && count <= max;
        if !is_size(sends, 4 * SEND_BLOCKS_MAX) || !is_size(receives, RECEIVES_MAX) || !(receives == 0 || (4..=9).contains(&shift)) {
            return Err(Errno(libc::EINVAL));
        }
        if flags & !FLAGS_ALLOWED != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let addr = driver.u64(0);
        let before = if is_shared { 0 } else { u64::from(receives) << shift };
        let log = |count: u32| count.max(1).ilog2() as u8;
        Ok(Self {
            send: QueueBuffer { addr: addr.wrapping_add(before), log_stride: 6, log_entries: log(sends) },
            receive: QueueBuffer { addr, log_stride: shift as u8, log_entries: log(receives) },
            record: driver.u64(8),
            uidx: uidx & 0xff_ffff,
        })
    }
}

/// The queue pair of a handle.
pub(super) fn find(request: &mut Request<'_>, handle: u32) -> Result<u32, Errno> {
    match request.context()?.objects.get(&handle) {
        Some(Object::Qp { qpn, .. }) => Ok(*qpn),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// `ib_uverbs_query_qp` {qp_handle 8}; `ib_uverbs_query_qp_resp`.
pub(super) fn query(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let handle = request.core().u32(8);
    let qpn = find(request, handle)?;
    if let Some(raw) = request.engine.raws.get(&qpn) {
        return Ok(raw::query(raw));
    }
    let qp = request.engine.qps.get(&qpn).ok_or(Errno(libc::EINVAL))?;
    let state = request.engine.node.hca().qp_state(qpn).map_or(0, states::number);
    let a = &qp.attributes;
    let out = Output::new(128)
        .with(0, a.gid)
        .u32(16, a.flow_label)
        .u8(25, a.hop_limit)
        .u8(26, a.traffic_class)
        .u8(27, a.sl)
        .u8(30, a.is_global)
        .u8(31, a.port)
        .u32(84, a.qkey)
        .u32(88, a.rq_psn)
        .u32(92, a.sq_psn)
        .u32(96, a.dest_qp)
        .u32(100, a.access)
        .u8(108, state)
        .u8(109, state)
        .u8(110, a.path_mtu)
        .u8(113, a.max_rd_atomic)
        .u8(114, a.max_dest_rd_atomic)
        .u8(115, a.min_rnr_timer)
        .u8(116, a.port)
        .u8(117, a.timeout)
        .u8(118, a.retry_count)
        .u8(119, a.rnr_retry)
        .u8(122, qp.signals_all.into());
    Ok(Reply::of(qp.caps.iter().zip(0..).fold(out, |out, (cap, i)| out.u32(64 + 4 * i, *cap))))
}

/// `ib_uverbs_destroy_qp` {qp_handle 8}; `ib_uverbs_destroy_qp_resp` {events_reported 0}. EBUSY: a flow rule leads to it, or it hears a group.
pub(super) fn destroy(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let handle = request.core().u32(8);
    let qpn = find(request, handle)?;
    let hears = request.engine.qps.get(&qpn).is_some_and(|qp| !qp.groups.is_empty());
    if request.engine.steering.has(qpn) || hears {
        return Err(Errno(libc::EBUSY));
    }
    let engine = &request.engine;
    let told = engine.qps.get(&qpn).map(|qp| qp.told).or_else(|| engine.raws.get(&qpn).map(|raw| raw.told)).unwrap_or_default();
    let object = request.remove(handle, |object| matches!(object, Object::Qp { .. }))?;
    let read = request.engine.events_read(told);
    request.engine.end(object);
    Ok(Reply::of(Output::new(4).u32(0, read)))
}
