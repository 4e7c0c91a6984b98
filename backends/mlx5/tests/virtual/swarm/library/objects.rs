//! Objects: each is made at the card, and ends there.

use core::ffi::{c_int, c_uint, c_void};

use std::rc::Rc;

use rdma_core_sys as sys;
use ringway_host::EventFd;
use ringway_sim::connectx::cqe::compressed::{Compression, MiniFormat};
use ringway_sim::connectx::queues::ReceiveLayout;

use super::super::card::objects::{Made, RUN_MAX};
use super::{Shared, answer, card_of, end, given, make, of};

/// Behind a protection domain: its number; and whether it is a thread's part of one, which has a register page.
pub(super) type Pd = (u32, bool);
type Channel = Rc<EventFd>;
/// Of a queue pair: what it sends by, or the number of its hash.
pub(super) enum Pair {
    Sends(Made),
    Hashes(u32),
}

/// Makes an object of which the card knows no more than that there is one more.
unsafe fn counted<V, T>(context: *mut sys::ibv_context, verbs: V, rest: impl FnOnce(&Shared) -> T) -> *mut V {
    // SAFETY: the caller's context was opened here.
    let card = unsafe { card_of(context) };
    let may = card.borrow_mut().may();
    given(may.map(|()| {
        card.borrow_mut().count_one(true);
        let rest = rest(&card);
        make(verbs, &card, rest)
    }))
}

/// Ends such an object. (That of a card that is gone ends too, and the kernel says EIO.)
unsafe fn uncounted<V, T>(raw: *mut V) -> c_int {
    // SAFETY: the caller's object was made by `counted`, of these types.
    let object = unsafe { end::<V, T>(raw) };
    let mut card = object.card.borrow_mut();
    card.count_one(false);
    card.end_answer()
}

pub(super) unsafe extern "C" fn ibv_alloc_pd(context: *mut sys::ibv_context) -> *mut sys::ibv_pd {
    // SAFETY: the driver's context.
    unsafe { counted(context, sys::ibv_pd { context, handle: 0 }, |card| -> Pd { (card.borrow_mut().number(), false) }) }
}

pub(super) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut sys::ibv_pd) -> c_int {
    // SAFETY: made above, or below.
    unsafe { uncounted::<_, Pd>(pd) }
}

pub(super) unsafe extern "C" fn alloc_td(context: *mut sys::ibv_context, _: *mut sys::ibv_td_init_attr) -> *mut sys::ibv_td {
    // SAFETY: the driver's context.
    unsafe {
        if card_of(context).borrow().trouble.shares_registers {
            return given(Err(libc::EOPNOTSUPP));
        }
        counted(context, sys::ibv_td { context }, |_| ())
    }
}

pub(super) unsafe extern "C" fn dealloc_td(td: *mut sys::ibv_td) -> c_int {
    // SAFETY: made above.
    unsafe { uncounted::<_, ()>(td) }
}

pub(super) unsafe extern "C" fn alloc_parent_domain(
    context: *mut sys::ibv_context,
    attr: *mut sys::ibv_parent_domain_init_attr,
) -> *mut sys::ibv_pd {
    // SAFETY: the driver's context, and a domain of it.
    unsafe {
        let number = of::<_, Pd>((*attr).pd).rest.0;
        counted(context, sys::ibv_pd { context, handle: 0 }, |_| -> Pd { (number, true) })
    }
}

pub(super) unsafe extern "C" fn ibv_reg_mr(pd: *mut sys::ibv_pd, addr: *mut c_void, length: usize, _: c_int) -> *mut sys::ibv_mr {
    // SAFETY: the driver's domain; it promises that the memory is there until the region ends.
    unsafe {
        let domain = of::<_, Pd>(pd);
        let key = domain.card.borrow_mut().register(domain.rest.0, addr.cast(), length);
        given(key.map(|lkey| {
            let context = domain.verbs.context;
            make(sys::ibv_mr { context, pd, addr, length, lkey, rkey: lkey, ..Default::default() }, &domain.card, ())
        }))
    }
}

pub(super) unsafe extern "C" fn ibv_dereg_mr(mr: *mut sys::ibv_mr) -> c_int {
    // SAFETY: made above.
    let region = unsafe { end::<_, ()>(mr) };
    let mut card = region.card.borrow_mut();
    card.deregister(region.verbs.lkey);
    card.end_answer()
}

pub(super) unsafe extern "C" fn ibv_create_comp_channel(context: *mut sys::ibv_context) -> *mut sys::ibv_comp_channel {
    let event_fd = Rc::new(EventFd::new().expect("a descriptor"));
    let verbs = sys::ibv_comp_channel { context, fd: event_fd.fd(), refcnt: 0 };
    // SAFETY: the driver's context.
    unsafe { counted(context, verbs, |_| -> Channel { event_fd }) }
}

pub(super) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut sys::ibv_comp_channel) -> c_int {
    // SAFETY: made above.
    unsafe { uncounted::<_, Channel>(channel) }
}

/// A completion queue of either kind.
unsafe fn create_cq(
    context: *mut sys::ibv_context,
    entries: u32,
    cq_context: *mut c_void,
    channel: *mut sys::ibv_comp_channel,
    compression: Option<Compression>,
) -> *mut sys::ibv_cq {
    // SAFETY: the driver's context and channel, or none. The object is made before its queue, for the card to know it.
    unsafe {
        let card = card_of(context);
        let by = (!channel.is_null()).then(|| Rc::clone(&of::<_, Channel>(channel).rest));
        let verbs = sys::ibv_cq { context, channel, cq_context, cqe: entries as c_int, ..Default::default() };
        let raw = make(verbs, &card, None::<Made>);
        let made = card.borrow_mut().make_cq(raw, entries, by, compression);
        match made {
            Ok(made) => (*raw.cast::<super::Of<sys::ibv_cq, Option<Made>>>()).rest = Some(made),
            Err(_) => drop(end::<_, Option<Made>>(raw)),
        }
        given(made.map(|_| raw))
    }
}

pub(super) unsafe extern "C" fn ibv_create_cq(
    context: *mut sys::ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut sys::ibv_comp_channel,
    _: c_int,
) -> *mut sys::ibv_cq {
    // SAFETY: the caller's objects.
    unsafe { create_cq(context, cqe.cast_unsigned(), cq_context, channel, None) }
}

pub(super) unsafe extern "C" fn mlx5dv_create_cq(
    context: *mut sys::ibv_context,
    attr: *mut sys::ibv_cq_init_attr_ex,
    more: *mut sys::mlx5dv_cq_init_attr,
) -> *mut sys::ibv_cq_ex {
    // SAFETY: the caller's objects and attributes.
    unsafe {
        let striding = u32::from((*more).cqe_comp_res_format) == sys::MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX;
        let format = if striding { MiniFormat::ChecksumStride } else { MiniFormat::Checksum };
        let compression = Compression { format, striding, run_max: RUN_MAX };
        create_cq(context, (*attr).cqe, (*attr).cq_context, (*attr).channel, Some(compression)).cast()
    }
}

pub(super) unsafe extern "C" fn ibv_destroy_cq(cq: *mut sys::ibv_cq) -> c_int {
    // SAFETY: made above.
    let object = unsafe { end::<_, Option<Made>>(cq) };
    let mut card = object.card.borrow_mut();
    object.rest.iter().for_each(|made| card.end_cq(made));
    card.end_answer()
}

/// # Safety
/// The queue was made here.
unsafe fn made_cq(cq: *mut sys::ibv_cq) -> Made {
    // SAFETY: the caller's promise.
    unsafe { of::<_, Option<Made>>(cq) }.rest.expect("it was made")
}

pub(super) unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut sys::ibv_comp_channel,
    cq: *mut *mut sys::ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the driver's channel; both places are writable.
    unsafe {
        let by = of::<_, Channel>(channel);
        let taken = by.card.borrow_mut().take_event_of(&by.rest);
        let Some(raw) = taken else { return -1 };
        cq.write(raw);
        cq_context.write((*raw).cq_context);
    }
    0
}

pub(super) unsafe extern "C" fn ibv_ack_cq_events(_: *mut sys::ibv_cq, _: c_uint) {}

pub(super) unsafe extern "C" fn ibv_create_qp(pd: *mut sys::ibv_pd, attr: *mut sys::ibv_qp_init_attr) -> *mut sys::ibv_qp {
    // SAFETY: the driver's domain, attribute and completion queue.
    unsafe {
        let (domain, attr) = (of::<_, Pd>(pd), *attr);
        let (number, has_page) = domain.rest;
        let verbs = sys::ibv_qp { context: domain.verbs.context, qp_context: attr.qp_context, pd, ..Default::default() };
        let raw = make(verbs, &domain.card, Pair::Hashes(0));
        let of_pair = (number, made_cq(attr.send_cq).number, attr.qp_context.addr() as u32);
        let made = domain.card.borrow_mut().make_sender(raw, of_pair, attr.cap.max_send_wr, has_page);
        match made {
            Ok(made) => {
                (*raw).qp_num = made.number;
                (*raw.cast::<super::Of<sys::ibv_qp, Pair>>()).rest = Pair::Sends(made);
            }
            Err(_) => drop(end::<_, Pair>(raw)),
        }
        given(made.map(|_| raw))
    }
}

pub(super) unsafe extern "C" fn ibv_modify_qp(qp: *mut sys::ibv_qp, attr: *mut sys::ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: made above; the attribute is readable.
    unsafe {
        let pair = of::<_, Pair>(qp);
        answer(match pair.rest {
            Pair::Sends(made) if mask.cast_unsigned() & sys::IBV_QP_RATE_LIMIT != 0 => {
                pair.card.borrow_mut().pace_sender(made.number, (*attr).rate_limit)
            }
            Pair::Sends(made) => pair.card.borrow_mut().modify_sender(made.number, (*attr).qp_state),
            Pair::Hashes(_) => Err(libc::EINVAL),
        })
    }
}

/// (What is allowed to come at once is left to the card: this one allows one frame.)
pub(super) unsafe extern "C" fn modify_qp_rate_limit(qp: *mut sys::ibv_qp, attr: *mut sys::ibv_qp_rate_limit_attr) -> c_int {
    // SAFETY: made above; the attribute is readable.
    unsafe {
        let pair = of::<_, Pair>(qp);
        answer(match pair.rest {
            Pair::Sends(made) => pair.card.borrow_mut().pace_sender(made.number, (*attr).rate_limit),
            Pair::Hashes(_) => Err(libc::EINVAL),
        })
    }
}

pub(super) unsafe extern "C" fn create_qp_ex(context: *mut sys::ibv_context, attr: *mut sys::ibv_qp_init_attr_ex) -> *mut sys::ibv_qp {
    // SAFETY: the driver's context, attribute, and what that names.
    unsafe {
        let (card, conf) = (card_of(context), (*attr).rx_hash_conf);
        let table = of::<_, Vec<u32>>((*attr).rwq_ind_tbl).rest.clone();
        let key = *conf.rx_hash_key.cast();
        let hash = card.borrow_mut().make_hash(key, conf.rx_hash_fields_mask, table);
        given(hash.map(|number| {
            let verbs = sys::ibv_qp { context, pd: (*attr).pd, qp_num: number, ..Default::default() };
            make(verbs, &card, Pair::Hashes(number))
        }))
    }
}

pub(super) unsafe extern "C" fn ibv_destroy_qp(qp: *mut sys::ibv_qp) -> c_int {
    // SAFETY: made above.
    let pair = unsafe { end::<_, Pair>(qp) };
    let mut card = pair.card.borrow_mut();
    match pair.rest {
        Pair::Sends(made) => card.end_sender(&made),
        Pair::Hashes(number) => card.end_hash(number),
    }
    card.end_answer()
}

pub(super) unsafe extern "C" fn create_wq(context: *mut sys::ibv_context, attr: *mut sys::ibv_wq_init_attr) -> *mut sys::ibv_wq {
    // SAFETY: the driver's context, attribute, and what that names.
    unsafe { make_wq(context, attr, ReceiveLayout::Cyclic) }
}

/// A receive queue of either kind.
///
/// # Safety
/// The driver's context, attribute, and what that names.
pub(super) unsafe fn make_wq(context: *mut sys::ibv_context, attr: *mut sys::ibv_wq_init_attr, layout: ReceiveLayout) -> *mut sys::ibv_wq {
    // SAFETY: the caller's promise.
    unsafe {
        let (card, attr) = (card_of(context), *attr);
        let verbs = sys::ibv_wq { context, wq_context: attr.wq_context, pd: attr.pd, cq: attr.cq, ..Default::default() };
        let raw = make(verbs, &card, None::<Made>);
        let of_queue = (of::<_, Pd>(attr.pd).rest.0, made_cq(attr.cq).number, attr.wq_context.addr() as u32);
        let strips = attr.create_flags & sys::IBV_WQ_FLAGS_CVLAN_STRIPPING != 0;
        let made = card.borrow_mut().make_receiver(raw, of_queue, attr.max_wr, strips, layout);
        match made {
            Ok(made) => (*raw.cast::<super::Of<sys::ibv_wq, Option<Made>>>()).rest = Some(made),
            Err(_) => drop(end::<_, Option<Made>>(raw)),
        }
        given(made.map(|_| raw))
    }
}

pub(super) unsafe extern "C" fn modify_wq(wq: *mut sys::ibv_wq, attr: *mut sys::ibv_wq_attr) -> c_int {
    // SAFETY: made above; the attribute is readable.
    unsafe {
        let queue = of::<_, Option<Made>>(wq);
        let made = queue.rest.expect("it was made");
        answer(queue.card.borrow_mut().modify_receiver(&made, (*attr).wq_state))
    }
}

pub(super) unsafe extern "C" fn destroy_wq(wq: *mut sys::ibv_wq) -> c_int {
    // SAFETY: made above.
    let queue = unsafe { end::<_, Option<Made>>(wq) };
    let mut card = queue.card.borrow_mut();
    queue.rest.iter().for_each(|made| card.end_receiver(made));
    card.end_answer()
}

pub(super) unsafe extern "C" fn create_rwq_ind_table(
    context: *mut sys::ibv_context,
    attr: *mut sys::ibv_rwq_ind_table_init_attr,
) -> *mut sys::ibv_rwq_ind_table {
    // SAFETY: the driver's context, and a list of as many queues as it says.
    unsafe {
        let queues = core::slice::from_raw_parts((*attr).ind_tbl, 1 << (*attr).log_ind_tbl_size);
        let numbers = queues.iter().map(|wq| of::<_, Option<Made>>(*wq).rest.expect("it was made").number).collect::<Vec<u32>>();
        counted(context, sys::ibv_rwq_ind_table { context, ..Default::default() }, |_| numbers)
    }
}

pub(super) unsafe extern "C" fn destroy_rwq_ind_table(table: *mut sys::ibv_rwq_ind_table) -> c_int {
    // SAFETY: made above.
    unsafe { uncounted::<_, Vec<u32>>(table) }
}

/// Where queues lie.
pub(super) unsafe extern "C" fn mlx5dv_init_obj(object: *mut sys::mlx5dv_obj, kind: u64) -> c_int {
    // SAFETY: the pair of pointers that the kind names: an object that was made here, and a place for the answer.
    unsafe {
        let object = &*object;
        if kind == u64::from(sys::MLX5DV_OBJ_QP) {
            let Pair::Sends(made) = of::<_, Pair>(object.qp.r#in).rest else { return libc::EINVAL };
            let sq = sys::mlx5dv_qp_queue_sq { buf: made.buf.cast(), wqe_cnt: made.entries, stride: made.stride };
            let bf = sys::mlx5dv_qp_bf { reg: made.page.add(0x800).cast(), size: 256 };
            object.qp.out.write(sys::mlx5dv_qp { dbrec: made.record, sq, bf, ..Default::default() });
        } else if kind == u64::from(sys::MLX5DV_OBJ_CQ) {
            let Made { number, buf, record, entries, stride, page } = made_cq(object.cq.r#in);
            object.cq.out.write(sys::mlx5dv_cq {
                buf: buf.cast(),
                dbrec: record,
                cqe_cnt: entries,
                cqe_size: stride,
                cq_uar: page.cast(),
                cqn: number,
                comp_mask: 0,
            });
        } else {
            let made = of::<_, Option<Made>>(object.rwq.r#in).rest.expect("it was made");
            let (wqe_cnt, stride) = (made.entries, made.stride);
            object.rwq.out.write(sys::mlx5dv_rwq { buf: made.buf.cast(), dbrec: made.record, wqe_cnt, stride, comp_mask: 0 });
        }
    }
    0
}
