//! An opened device and its tables of operations (infiniband/verbs.h).

use std::ffi::{c_int, c_uint, c_void};

use libc::{pthread_mutex_t, timespec};

use crate::{
    ibv_advise_mr_advice, ibv_alloc_dm_attr, ibv_counter_attach_attr, ibv_counters, ibv_counters_init_attr, ibv_cq, ibv_cq_ex,
    ibv_cq_init_attr_ex, ibv_device, ibv_device_attr, ibv_device_attr_ex, ibv_dm, ibv_flow, ibv_flow_action, ibv_flow_attr,
    ibv_modify_cq_attr, ibv_mr, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_parent_domain_init_attr, ibv_pd, ibv_port_attr, ibv_qp,
    ibv_qp_init_attr_ex, ibv_qp_open_attr, ibv_qp_rate_limit_attr, ibv_query_device_ex_input, ibv_recv_wr, ibv_rwq_ind_table,
    ibv_rwq_ind_table_init_attr, ibv_send_wr, ibv_sge, ibv_srq, ibv_srq_init_attr_ex, ibv_td, ibv_td_init_attr, ibv_wc, ibv_wq,
    ibv_wq_attr, ibv_wq_init_attr, ibv_xrcd, ibv_xrcd_init_attr,
};

opaque! {
    /// What an ESP action is made of; these bindings leave it out.
    pub struct ibv_flow_action_esp_attr;

    /// An operation on a tag list; these bindings leave it out.
    pub struct ibv_ops_wr;

    /// The library's own part of a context.
    pub struct verbs_ex_private;

    /// A port's state without its last fields, as libraries before rdma-core 21 filled it in.
    pub struct _compat_ibv_port_attr;
}

c_items! {
    types {
        /// The operations that every application was once compiled to reach directly; those in use are not null.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_context_ops {
            /// Kept for old applications.
            pub _compat_query_device: Option<unsafe extern "C" fn(context: *mut ibv_context, device_attr: *mut ibv_device_attr) -> c_int>,
            /// Kept for old applications.
            pub _compat_query_port: Option<
                unsafe extern "C" fn(context: *mut ibv_context, port_num: u8, port_attr: *mut _compat_ibv_port_attr) -> c_int,
            >,
            /// Kept for old applications.
            pub _compat_alloc_pd: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// Kept for old applications.
            pub _compat_dealloc_pd: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// Kept for old applications.
            pub _compat_reg_mr: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// Kept for old applications.
            pub _compat_rereg_mr: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// Kept for old applications.
            pub _compat_dereg_mr: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// [`ibv_alloc_mw`](crate::ibv_alloc_mw).
            pub alloc_mw: Option<unsafe extern "C" fn(pd: *mut ibv_pd, r#type: ibv_mw_type) -> *mut ibv_mw>,
            /// [`ibv_bind_mw`](crate::ibv_bind_mw).
            pub bind_mw: Option<unsafe extern "C" fn(qp: *mut ibv_qp, mw: *mut ibv_mw, mw_bind: *mut ibv_mw_bind) -> c_int>,
            /// [`ibv_dealloc_mw`](crate::ibv_dealloc_mw).
            pub dealloc_mw: Option<unsafe extern "C" fn(mw: *mut ibv_mw) -> c_int>,
            /// Kept for old applications.
            pub _compat_create_cq: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// [`ibv_poll_cq`](crate::ibv_poll_cq).
            pub poll_cq: Option<unsafe extern "C" fn(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int>,
            /// [`ibv_req_notify_cq`](crate::ibv_req_notify_cq).
            pub req_notify_cq: Option<unsafe extern "C" fn(cq: *mut ibv_cq, solicited_only: c_int) -> c_int>,
            /// Kept for old applications.
            pub _compat_cq_event: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// Kept for old applications.
            pub _compat_resize_cq: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// Kept for old applications.
            pub _compat_destroy_cq: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// Kept for old applications.
            pub _compat_create_srq: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// Kept for old applications.
            pub _compat_modify_srq: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// Kept for old applications.
            pub _compat_query_srq: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// Kept for old applications.
            pub _compat_destroy_srq: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// [`ibv_post_srq_recv`](crate::ibv_post_srq_recv).
            pub post_srq_recv: Option<
                unsafe extern "C" fn(srq: *mut ibv_srq, recv_wr: *mut ibv_recv_wr, bad_recv_wr: *mut *mut ibv_recv_wr) -> c_int,
            >,
            /// Kept for old applications.
            pub _compat_create_qp: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// Kept for old applications.
            pub _compat_query_qp: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// Kept for old applications.
            pub _compat_modify_qp: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// Kept for old applications.
            pub _compat_destroy_qp: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// [`ibv_post_send`](crate::ibv_post_send).
            pub post_send: Option<unsafe extern "C" fn(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) -> c_int>,
            /// [`ibv_post_recv`](crate::ibv_post_recv).
            pub post_recv: Option<unsafe extern "C" fn(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) -> c_int>,
            /// Kept for old applications.
            pub _compat_create_ah: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// Kept for old applications.
            pub _compat_destroy_ah: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// Kept for old applications.
            pub _compat_attach_mcast: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// Kept for old applications.
            pub _compat_detach_mcast: Option<unsafe extern "C" fn() -> *mut c_void>,
            /// Kept for old applications.
            pub _compat_async_event: Option<unsafe extern "C" fn() -> *mut c_void>,
        }

        /// An opened device (ibv_open_device(3)).
        pub struct ibv_context {
            /// The device.
            pub device: *mut ibv_device,
            /// Operations of the fast path.
            pub ops: ibv_context_ops,
            /// The descriptor of the kernel's device.
            pub cmd_fd: c_int,
            /// The descriptor of asynchronous events: readable when one is there.
            pub async_fd: c_int,
            /// Interrupts that completion events can be raised by.
            pub num_comp_vectors: c_int,
            /// The library's.
            pub mutex: pthread_mutex_t,
            /// All ones if a [`verbs_context`] lies around this context.
            pub abi_compat: *mut c_void,
        }

        /// What lies around an [`ibv_context`]. Newer libraries have more in front, so that distances from
        /// `context` stay.
        pub struct verbs_context {
            /// [`Ibverbs::ibv_query_port`](crate::Ibverbs::ibv_query_port).
            pub query_port: Option<
                unsafe extern "C" fn(context: *mut ibv_context, port_num: u8, port_attr: *mut ibv_port_attr, port_attr_len: usize) -> c_int,
            >,
            /// [`ibv_advise_mr`](crate::ibv_advise_mr).
            pub advise_mr: Option<
                unsafe extern "C" fn(
                    pd: *mut ibv_pd,
                    advice: ibv_advise_mr_advice,
                    flags: u32,
                    sg_list: *mut ibv_sge,
                    num_sges: u32,
                ) -> c_int,
            >,
            /// [`ibv_alloc_null_mr`](crate::ibv_alloc_null_mr).
            pub alloc_null_mr: Option<unsafe extern "C" fn(pd: *mut ibv_pd) -> *mut ibv_mr>,
            /// [`ibv_read_counters`](crate::ibv_read_counters).
            pub read_counters: Option<
                unsafe extern "C" fn(counters: *mut ibv_counters, counters_value: *mut u64, ncounters: u32, flags: u32) -> c_int,
            >,
            /// [`ibv_attach_counters_point_flow`](crate::ibv_attach_counters_point_flow).
            pub attach_counters_point_flow: Option<
                unsafe extern "C" fn(counters: *mut ibv_counters, attr: *mut ibv_counter_attach_attr, flow: *mut ibv_flow) -> c_int,
            >,
            /// [`ibv_create_counters`](crate::ibv_create_counters).
            pub create_counters: Option<
                unsafe extern "C" fn(context: *mut ibv_context, init_attr: *mut ibv_counters_init_attr) -> *mut ibv_counters,
            >,
            /// [`ibv_destroy_counters`](crate::ibv_destroy_counters).
            pub destroy_counters: Option<unsafe extern "C" fn(counters: *mut ibv_counters) -> c_int>,
            /// [`ibv_reg_dm_mr`](crate::ibv_reg_dm_mr).
            pub reg_dm_mr: Option<
                unsafe extern "C" fn(pd: *mut ibv_pd, dm: *mut ibv_dm, dm_offset: u64, length: usize, access: c_uint) -> *mut ibv_mr,
            >,
            /// [`ibv_alloc_dm`](crate::ibv_alloc_dm).
            pub alloc_dm: Option<unsafe extern "C" fn(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm>,
            /// [`ibv_free_dm`](crate::ibv_free_dm).
            pub free_dm: Option<unsafe extern "C" fn(dm: *mut ibv_dm) -> c_int>,
            /// Changes an ESP action.
            pub modify_flow_action_esp: Option<
                unsafe extern "C" fn(action: *mut ibv_flow_action, attr: *mut ibv_flow_action_esp_attr) -> c_int,
            >,
            /// [`ibv_destroy_flow_action`](crate::ibv_destroy_flow_action).
            pub destroy_flow_action: Option<unsafe extern "C" fn(action: *mut ibv_flow_action) -> c_int>,
            /// Makes an ESP action.
            pub create_flow_action_esp: Option<
                unsafe extern "C" fn(context: *mut ibv_context, attr: *mut ibv_flow_action_esp_attr) -> *mut ibv_flow_action,
            >,
            /// [`ibv_modify_qp_rate_limit`](crate::ibv_modify_qp_rate_limit).
            pub modify_qp_rate_limit: Option<unsafe extern "C" fn(qp: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr) -> c_int>,
            /// [`ibv_alloc_parent_domain`](crate::ibv_alloc_parent_domain).
            pub alloc_parent_domain: Option<
                unsafe extern "C" fn(context: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr) -> *mut ibv_pd,
            >,
            /// [`ibv_dealloc_td`](crate::ibv_dealloc_td).
            pub dealloc_td: Option<unsafe extern "C" fn(td: *mut ibv_td) -> c_int>,
            /// [`ibv_alloc_td`](crate::ibv_alloc_td).
            pub alloc_td: Option<unsafe extern "C" fn(context: *mut ibv_context, init_attr: *mut ibv_td_init_attr) -> *mut ibv_td>,
            /// [`ibv_modify_cq`](crate::ibv_modify_cq).
            pub modify_cq: Option<unsafe extern "C" fn(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int>,
            /// Operations on tag lists.
            pub post_srq_ops: Option<unsafe extern "C" fn(srq: *mut ibv_srq, op: *mut ibv_ops_wr, bad_op: *mut *mut ibv_ops_wr) -> c_int>,
            /// [`ibv_destroy_rwq_ind_table`](crate::ibv_destroy_rwq_ind_table).
            pub destroy_rwq_ind_table: Option<unsafe extern "C" fn(rwq_ind_table: *mut ibv_rwq_ind_table) -> c_int>,
            /// [`ibv_create_rwq_ind_table`](crate::ibv_create_rwq_ind_table).
            pub create_rwq_ind_table: Option<
                unsafe extern "C" fn(context: *mut ibv_context, init_attr: *mut ibv_rwq_ind_table_init_attr) -> *mut ibv_rwq_ind_table,
            >,
            /// [`ibv_destroy_wq`](crate::ibv_destroy_wq).
            pub destroy_wq: Option<unsafe extern "C" fn(wq: *mut ibv_wq) -> c_int>,
            /// [`ibv_modify_wq`](crate::ibv_modify_wq).
            pub modify_wq: Option<unsafe extern "C" fn(wq: *mut ibv_wq, wq_attr: *mut ibv_wq_attr) -> c_int>,
            /// [`ibv_create_wq`](crate::ibv_create_wq).
            pub create_wq: Option<unsafe extern "C" fn(context: *mut ibv_context, wq_init_attr: *mut ibv_wq_init_attr) -> *mut ibv_wq>,
            /// [`ibv_query_rt_values_ex`](crate::ibv_query_rt_values_ex).
            pub query_rt_values: Option<unsafe extern "C" fn(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int>,
            /// [`ibv_create_cq_ex`](crate::ibv_create_cq_ex).
            pub create_cq_ex: Option<
                unsafe extern "C" fn(context: *mut ibv_context, init_attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex,
            >,
            /// The library's.
            pub r#priv: *mut verbs_ex_private,
            /// [`Ibverbs::ibv_query_device_ex`](crate::Ibverbs::ibv_query_device_ex).
            pub query_device_ex: Option<
                unsafe extern "C" fn(
                    context: *mut ibv_context,
                    input: *const ibv_query_device_ex_input,
                    attr: *mut ibv_device_attr_ex,
                    attr_size: usize,
                ) -> c_int,
            >,
            /// [`ibv_destroy_flow`](crate::ibv_destroy_flow).
            pub ibv_destroy_flow: Option<unsafe extern "C" fn(flow: *mut ibv_flow) -> c_int>,
            /// Unused.
            pub ABI_placeholder2: Option<unsafe extern "C" fn()>,
            /// [`ibv_create_flow`](crate::ibv_create_flow).
            pub ibv_create_flow: Option<unsafe extern "C" fn(qp: *mut ibv_qp, flow_attr: *mut ibv_flow_attr) -> *mut ibv_flow>,
            /// Unused.
            pub ABI_placeholder1: Option<unsafe extern "C" fn()>,
            /// [`ibv_open_qp`](crate::ibv_open_qp).
            pub open_qp: Option<unsafe extern "C" fn(context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> *mut ibv_qp>,
            /// [`Ibverbs::ibv_create_qp_ex`](crate::Ibverbs::ibv_create_qp_ex).
            pub create_qp_ex: Option<
                unsafe extern "C" fn(context: *mut ibv_context, qp_init_attr_ex: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp,
            >,
            /// [`ibv_get_srq_num`](crate::ibv_get_srq_num).
            pub get_srq_num: Option<unsafe extern "C" fn(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int>,
            /// [`Ibverbs::ibv_create_srq_ex`](crate::Ibverbs::ibv_create_srq_ex).
            pub create_srq_ex: Option<
                unsafe extern "C" fn(context: *mut ibv_context, srq_init_attr_ex: *mut ibv_srq_init_attr_ex) -> *mut ibv_srq,
            >,
            /// [`ibv_open_xrcd`](crate::ibv_open_xrcd).
            pub open_xrcd: Option<
                unsafe extern "C" fn(context: *mut ibv_context, xrcd_init_attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd,
            >,
            /// [`ibv_close_xrcd`](crate::ibv_close_xrcd).
            pub close_xrcd: Option<unsafe extern "C" fn(xrcd: *mut ibv_xrcd) -> c_int>,
            /// Unused.
            pub _ABI_placeholder3: u64,
            /// The size that the library gives this structure, bytes.
            pub sz: usize,
            /// The context.
            pub context: ibv_context,
        }

        /// Values that are read while running (ibv_query_rt_values_ex(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_values_ex {
            /// Which are asked, then which were read: [`ibv_values_mask`].
            pub comp_mask: u32,
            /// The card's clock, in ticks, all in `tv_nsec`.
            pub raw_clock: timespec,
        }
    }
    enums {
        /// Which values of an [`ibv_values_ex`].
        pub enum ibv_values_mask: u32 {
            /// `raw_clock`.
            IBV_VALUES_MASK_RAW_CLOCK = 1 << 0,
            /// The first bit that means nothing.
            IBV_VALUES_MASK_RESERVED = 1 << 1,
        }
    }
}
