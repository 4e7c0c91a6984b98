//! Completion channels, completion queues, shared receive queues.

use std::os::fd::IntoRawFd as _;

use ringway_preload::Errno;
use ringway_sim::connectx::constants::CQ_ARM_DB;
use ringway_sim::connectx::cqe::CqeSize;
use ringway_sim::connectx::cqe::compressed::{Compression, MiniFormat};
use ringway_sim::connectx::queues::{CompletionQueue, CqConfig, NEVER_ARMED, QueueBuffer, SharedConfig, SharedQueue};

use super::device::{COMPLETIONS_MAX, RECEIVES_MAX};
use super::{Reply, Request};
use crate::abi::Output;
use crate::descriptors::{self, Kind};
use crate::engine::{Channel, Cq, Object, Srq, Told};

/// Receives in a compressed run at most.
pub(super) const RUN_MAX: u32 = 64;
/// Pieces of a receive at most.
pub(super) const SGES_MAX: u32 = ringway_stack::roce::work::SGES_MAX as u32;

/// `ib_uverbs_create_comp_channel_resp` {fd 0}.
pub(super) fn create_channel(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let (channel, theirs) = Channel::new()?;
    let number = request.engine.number();
    let fd = theirs.into_raw_fd();
    if !descriptors::set(fd, Kind::Channel(number)) {
        // SAFETY: a descriptor that nobody knows yet.
        unsafe { ringway_preload::next::close(fd) };
        return Err(Errno(libc::EMFILE));
    }
    request.engine.channels.insert(number, channel);
    Ok(Reply::of(Output::new(4).u32(0, fd.cast_unsigned())))
}

/// `ib_uverbs_create_cq` {user_handle 8, cqe 16, comp_vector 20, comp_channel 24}; `ib_uverbs_create_cq_resp` {cq_handle 0, cqe 4}.
pub(super) fn create_cq(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let core = request.core();
    make_cq(request, core.u64(8), core.u32(16), core.u32(20), core.u32(24).cast_signed(), 8)
}

/// `ib_uverbs_ex_create_cq` {user_handle 0, cqe 8, comp_vector 12, comp_channel 16, comp_mask 20, flags 24}; its answer has comp_mask 8 and
/// response_length 12 as well.
pub(super) fn create_cq_extended(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let core = request.core();
    if core.u32(20) != 0 {
        return Err(Errno(libc::EINVAL));
    }
    if core.u32(24) != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let reply = make_cq(request, core.u64(0), core.u32(8), core.u32(12), core.u32(16).cast_signed(), 16)?;
    Ok(Reply { core: reply.core.u32(12, 16), ..reply })
}

/// How completions are compressed (mlx5dv.h, `mlx5dv_cqe_comp_res_format`): zero for not at all.
fn compression(is_on: u8, format: u8) -> Result<Option<Compression>, Errno> {
    let format = match (is_on, format) {
        (0, _) => return Ok(None),
        (1, 1) => MiniFormat::Hash,
        (1, 2) => MiniFormat::Checksum,
        (1, 4) => MiniFormat::ChecksumStride,
        _ => return Err(Errno(libc::EINVAL)),
    };
    Ok(Some(Compression { format, striding: false, run_max: RUN_MAX }))
}

/// `mlx5_ib_create_cq` {buf_addr 0, db_addr 8, cqe_size 16, cqe_comp_en 20, cqe_comp_res_format 21}; `mlx5_ib_create_cq_resp` {cqn 0}.
fn make_cq(request: &mut Request<'_>, user_handle: u64, cqe: u32, vector: u32, channel: i32, len: usize) -> Result<Reply, Errno> {
    let driver = request.driver();
    let (addr, record) = (driver.u64(0), driver.u64(8));
    let size = match driver.u32(16) {
        64 => CqeSize::Bytes64,
        128 => CqeSize::Bytes128,
        _ => return Err(Errno(libc::EINVAL)),
    };
    if cqe == 0 || cqe > COMPLETIONS_MAX || vector != 0 {
        return Err(Errno(libc::EINVAL));
    }
    let compression = compression(driver.u8(20), driver.u8(21))?;
    let channel = request.engine.channel_of(channel)?;
    // One entry more than asked for, and a power of two (spec/uverbs.md s5).
    let entries = (cqe + 1).next_power_of_two();
    let cqn = request.engine.number();
    let never = record.wrapping_add(4 * CQ_ARM_DB as u64);
    request.engine.memory.copy_out(never, &NEVER_ARMED.to_be_bytes())?;
    let config = CqConfig { cqn, addr, log_entries: entries.ilog2() as u8, size, record, compression };
    request.engine.card.add_completion(cqn, CompletionQueue::new(config));
    let told = Told::new(request.context, user_handle);
    request.engine.cqs.insert(cqn, Cq { channel, user_handle, events: 0, told });
    let handle = request.context()?.add(Object::Cq(cqn));
    Ok(Reply { core: Output::new(len).u32(0, handle).u32(4, entries - 1), driver: Output::new(8).u32(0, cqn), made: Some(handle) })
}

/// `ib_uverbs_destroy_cq` {cq_handle 8}; `ib_uverbs_destroy_cq_resp` {comp_events_reported 0, async_events_reported 4}: events that the
/// program has read, for it waits until it has acknowledged as many. EBUSY: a queue pair completes there.
pub(super) fn destroy_cq(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let handle = request.core().u32(8);
    let cqn = request.context()?.cq(handle)?;
    let engine = &request.engine;
    if engine.qps.values().any(|qp| qp.send.cqn == cqn || qp.recv_cqn == cqn)
        || engine.raws.values().any(|raw| raw.completes_to(cqn))
        || engine.wqs.values().any(|wq| wq.config.cqn == cqn)
    {
        return Err(Errno(libc::EBUSY));
    }
    let cq = request.engine.cqs.get(&cqn).copied().ok_or(Errno(libc::EINVAL))?;
    let unread = request.engine.channels.get_mut(&cq.channel).map_or(0, |channel| channel.take_back(cq.user_handle));
    let object = request.remove(handle, |object| matches!(object, Object::Cq(_)))?;
    let read = request.engine.events_read(cq.told);
    request.engine.end(object);
    Ok(Reply::of(Output::new(8).u32(0, cq.events.wrapping_sub(unread)).u32(4, read)))
}

/// `ib_uverbs_create_srq` {pd_handle 16, max_wr 20, max_sge 24, srq_limit 28}; `ib_uverbs_create_srq_resp` {srq_handle 0, max_wr 4, max_sge 8,
/// srqn 12}; `mlx5_ib_create_srq` {buf_addr 0, db_addr 8, flags 16}; `mlx5_ib_create_srq_resp` {srqn 0}.
pub(super) fn create_srq(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let (core, driver) = (request.core(), request.driver());
    let (pd_handle, max_wr, max_sge) = (core.u32(16), core.u32(20), core.u32(24));
    let pd = request.context()?.pd(pd_handle)?;
    if max_wr == 0 || max_wr >= RECEIVES_MAX || max_sge > SGES_MAX || driver.u32(16) != 0 {
        return Err(Errno(libc::EINVAL));
    }
    // An entry has a link of 16 bytes and the list (spec/uverbs.md s5).
    let stride = (16 + 16 * max_sge).next_power_of_two().max(32);
    let entries = (max_wr + 1).next_power_of_two();
    let srqn = request.engine.number();
    let ring = QueueBuffer { addr: driver.u64(0), log_stride: stride.ilog2() as u8, log_entries: entries.ilog2() as u8 };
    request.engine.card.add_shared(srqn, SharedQueue::new(SharedConfig { srqn, ring, record: driver.u64(8), pd }));
    let told = Told::new(request.context, core.u64(8));
    let srq = Srq { max_wr: entries - 1, max_sge: (stride / 16 - 1).min(SGES_MAX), told };
    request.engine.srqs.insert(srqn, srq);
    let handle = request.context()?.add(Object::Srq { pd: pd_handle, srqn });
    let core = Output::new(16).u32(0, handle).u32(4, srq.max_wr).u32(8, srq.max_sge).u32(12, srqn);
    Ok(Reply { core, driver: Output::new(8).u32(0, srqn), made: Some(handle) })
}

/// `ib_uverbs_query_srq` {srq_handle 8}; `ib_uverbs_query_srq_resp` {max_wr 0, max_sge 4, srq_limit 8}.
pub(super) fn query_srq(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let handle = request.core().u32(8);
    let Some(Object::Srq { srqn, .. }) = request.context()?.objects.get(&handle).copied() else { return Err(Errno(libc::EINVAL)) };
    let srq = request.engine.srqs.get(&srqn).ok_or(Errno(libc::EINVAL))?;
    Ok(Reply::of(Output::new(16).u32(0, srq.max_wr).u32(4, srq.max_sge)))
}

/// `ib_uverbs_destroy_srq` {srq_handle 8}. EBUSY: a queue pair receives from it.
pub(super) fn destroy_srq(request: &mut Request<'_>) -> Result<Reply, Errno> {
    let handle = request.core().u32(8);
    let Some(Object::Srq { srqn, .. }) = request.context()?.objects.get(&handle).copied() else { return Err(Errno(libc::EINVAL)) };
    if request.engine.qps.values().any(|qp| qp.srq == srqn) {
        return Err(Errno(libc::EBUSY));
    }
    let told = request.engine.srqs.get(&srqn).map(|srq| srq.told).unwrap_or_default();
    let object = request.remove(handle, |object| matches!(object, Object::Srq { .. }))?;
    let read = request.engine.events_read(told);
    request.engine.end(object);
    Ok(Reply::of(Output::new(4).u32(0, read)))
}
