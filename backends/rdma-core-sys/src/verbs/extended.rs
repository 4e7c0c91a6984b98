//! What the header does through [`verbs_context`], the operations that a context has if library and driver know them (infiniband/verbs.h).
//!
//! Where an operation is not there, a function that gives an object gives null and sets errno to EOPNOTSUPP; one that gives a number gives
//! EOPNOTSUPP.

use std::ffi::{c_int, c_uint};
use std::mem::offset_of;
use std::ptr;

use libc::EOPNOTSUPP;

use crate::{
    ibv_advise_mr_advice, ibv_alloc_dm_attr, ibv_context, ibv_counter_attach_attr, ibv_counters, ibv_counters_init_attr, ibv_cq, ibv_cq_ex,
    ibv_cq_init_attr_ex, ibv_dm, ibv_flow, ibv_flow_action, ibv_flow_attr, ibv_modify_cq_attr, ibv_mr, ibv_parent_domain_init_attr, ibv_pd,
    ibv_qp, ibv_qp_open_attr, ibv_qp_rate_limit_attr, ibv_rwq_ind_table, ibv_rwq_ind_table_init_attr, ibv_sge, ibv_srq, ibv_td,
    ibv_td_init_attr, ibv_values_ex, ibv_wq, ibv_wq_attr, ibv_wq_init_attr, ibv_xrcd, ibv_xrcd_init_attr, verbs_context,
};

/// What lies around a context; null if its library is so old that nothing does.
#[inline]
pub unsafe fn verbs_get_ctx(context: *mut ibv_context) -> *mut verbs_context {
    // SAFETY: the caller's context is the library's.
    if unsafe { (*context).abi_compat }.addr() != usize::MAX {
        return ptr::null_mut();
    }
    context.cast::<u8>().wrapping_sub(offset_of!(verbs_context, context)).cast()
}

/// An operation of the [`verbs_context`] around a context, if there is one, the library's is long enough to have it, and the driver has it.
macro_rules! extended_op {
    ($context:expr, $op:ident) => {{
        let extended = $crate::verbs_get_ctx($context);
        let from_the_end = size_of::<$crate::verbs_context>() - std::mem::offset_of!($crate::verbs_context, $op);
        if extended.is_null() || (*extended).sz < from_the_end { None } else { (*extended).$op }
    }};
}
pub(crate) use extended_op;

/// C's answer where an operation is not there.
pub(crate) trait Unsupported {
    fn unsupported() -> Self;
}

impl Unsupported for c_int {
    fn unsupported() -> Self {
        EOPNOTSUPP
    }
}

impl<T> Unsupported for *mut T {
    fn unsupported() -> Self {
        set_errno(EOPNOTSUPP);
        ptr::null_mut()
    }
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: libc gives this thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

/// Functions that go through an operation of [`verbs_context`]; `via` says whose context it is.
macro_rules! extended {
    ($($(#[$meta:meta])* pub fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $op:ident via $context:expr;)*) => {
        $(
            $(#[$meta])*
            #[inline]
            pub unsafe fn $name($($arg: $type),*) -> $result {
                // SAFETY: the caller's objects are the library's, and have a context.
                unsafe {
                    match extended_op!($context, $op) {
                        Some(op) => op($($arg),*),
                        None => Unsupported::unsupported(),
                    }
                }
            }
        )*
    };
}

extended! {
    /// Makes a flow rule for a QP, from an attribute and the specifications behind it.
    pub fn ibv_create_flow(qp: *mut ibv_qp, flow: *mut ibv_flow_attr) -> *mut ibv_flow = ibv_create_flow via (*qp).context;
    /// Destroys a flow rule.
    pub fn ibv_destroy_flow(flow: *mut ibv_flow) -> c_int = ibv_destroy_flow via (*flow).context;
    /// Destroys an action object.
    pub fn ibv_destroy_flow_action(action: *mut ibv_flow_action) -> c_int = destroy_flow_action via (*action).context;

    /// Opens a domain of extended reliable connections.
    pub fn ibv_open_xrcd(context: *mut ibv_context, attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd = open_xrcd via context;
    /// Closes a domain of extended reliable connections.
    pub fn ibv_close_xrcd(xrcd: *mut ibv_xrcd) -> c_int = close_xrcd via (*xrcd).context;
    /// Opens a QP that processes share.
    pub fn ibv_open_qp(context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> *mut ibv_qp = open_qp via context;
    /// The number of a shared receive queue for extended reliable connections.
    pub fn ibv_get_srq_num(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int = get_srq_num via (*srq).context;

    /// Advises about memory under on-demand paging.
    pub fn ibv_advise_mr(pd: *mut ibv_pd, advice: ibv_advise_mr_advice, flags: u32, sg_list: *mut ibv_sge, num_sge: u32) -> c_int
        = advise_mr via (*pd).context;
    /// Makes a region that swallows writes and reads as zeros.
    pub fn ibv_alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr = alloc_null_mr via (*pd).context;
    /// Allocates memory on the card.
    pub fn ibv_alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm = alloc_dm via context;
    /// Frees memory on the card.
    pub fn ibv_free_dm(dm: *mut ibv_dm) -> c_int = free_dm via (*dm).context;
    /// Registers memory on the card; `access` must have [`IBV_ACCESS_ZERO_BASED`](crate::IBV_ACCESS_ZERO_BASED).
    pub fn ibv_reg_dm_mr(pd: *mut ibv_pd, dm: *mut ibv_dm, dm_offset: u64, length: usize, access: c_uint) -> *mut ibv_mr
        = reg_dm_mr via (*pd).context;

    /// Makes a thread domain.
    pub fn ibv_alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td = alloc_td via context;
    /// Destroys a thread domain.
    pub fn ibv_dealloc_td(td: *mut ibv_td) -> c_int = dealloc_td via (*td).context;
    /// Makes a parent domain: a protection domain with a thread domain and allocators.
    pub fn ibv_alloc_parent_domain(context: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr) -> *mut ibv_pd
        = alloc_parent_domain via context;

    /// Makes a completion queue that is asked field by field.
    pub fn ibv_create_cq_ex(context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex = create_cq_ex via context;
    /// Changes the moderation of a completion queue's events.
    pub fn ibv_modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int = modify_cq via (*cq).context;
    /// Paces a QP's send queue.
    pub fn ibv_modify_qp_rate_limit(qp: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr) -> c_int = modify_qp_rate_limit via (*qp).context;

    /// Changes a receive work queue.
    pub fn ibv_modify_wq(wq: *mut ibv_wq, attr: *mut ibv_wq_attr) -> c_int = modify_wq via (*wq).context;
    /// Destroys a receive work queue.
    pub fn ibv_destroy_wq(wq: *mut ibv_wq) -> c_int = destroy_wq via (*wq).context;
    /// Makes an indirection table.
    pub fn ibv_create_rwq_ind_table(context: *mut ibv_context, attr: *mut ibv_rwq_ind_table_init_attr) -> *mut ibv_rwq_ind_table
        = create_rwq_ind_table via context;
    /// Destroys an indirection table.
    pub fn ibv_destroy_rwq_ind_table(table: *mut ibv_rwq_ind_table) -> c_int = destroy_rwq_ind_table via (*table).context;

    /// Reads the card's clock.
    pub fn ibv_query_rt_values_ex(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int = query_rt_values via context;

    /// Makes a set of counters.
    pub fn ibv_create_counters(context: *mut ibv_context, attr: *mut ibv_counters_init_attr) -> *mut ibv_counters
        = create_counters via context;
    /// Destroys a set of counters.
    pub fn ibv_destroy_counters(counters: *mut ibv_counters) -> c_int = destroy_counters via (*counters).context;
    /// Counts what a flow rule matches.
    pub fn ibv_attach_counters_point_flow(counters: *mut ibv_counters, attr: *mut ibv_counter_attach_attr, flow: *mut ibv_flow) -> c_int
        = attach_counters_point_flow via (*counters).context;
    /// Reads counters into an array of `ncounters`.
    pub fn ibv_read_counters(counters: *mut ibv_counters, counters_value: *mut u64, ncounters: u32, flags: u32) -> c_int
        = read_counters via (*counters).context;
}

/// Makes a receive work queue; null with errno on failure. What the driver leaves to the header is filled in: the caller's
/// pointer, lock, condition and count of events.
#[inline]
pub unsafe fn ibv_create_wq(context: *mut ibv_context, attr: *mut ibv_wq_init_attr) -> *mut ibv_wq {
    // SAFETY: the caller's context and attribute are valid; the new queue is the library's, and nobody else has it yet.
    unsafe {
        let Some(op) = extended_op!(context, create_wq) else {
            return Unsupported::unsupported();
        };
        let wq = op(context, attr);
        if !wq.is_null() {
            (*wq).wq_context = (*attr).wq_context;
            (*wq).events_completed = 0;
            libc::pthread_mutex_init(&raw mut (*wq).mutex, ptr::null());
            libc::pthread_cond_init(&raw mut (*wq).cond, ptr::null());
        }
        wq
    }
}
