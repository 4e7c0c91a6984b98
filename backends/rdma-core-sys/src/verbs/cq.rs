//! Completion queues and channels (infiniband/verbs.h).

use std::ffi::{c_int, c_uint, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use crate::{__be32, ibv_context, ibv_pd, ibv_wc_opcode, ibv_wc_status, ibv_wc_tm_info};

c_items! {
    types {
        /// A channel that completion events come through (ibv_create_comp_channel(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_comp_channel {
            /// Its device.
            pub context: *mut ibv_context,
            /// Its descriptor: readable when an event is there.
            pub fd: c_int,
            /// Completion queues that use it.
            pub refcnt: c_int,
        }

        /// A completion queue.
        pub struct ibv_cq {
            /// Its device.
            pub context: *mut ibv_context,
            /// Where its events go; null for nowhere.
            pub channel: *mut ibv_comp_channel,
            /// The caller's own pointer.
            pub cq_context: *mut c_void,
            /// The kernel's number of it.
            pub handle: u32,
            /// Its entries.
            pub cqe: c_int,
            /// The library's.
            pub mutex: pthread_mutex_t,
            /// The library's.
            pub cond: pthread_cond_t,
            /// Completion events that were acknowledged.
            pub comp_events_completed: u32,
            /// Asynchronous events that were acknowledged.
            pub async_events_completed: u32,
        }

        /// How a completion queue is polled: nothing is defined.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_poll_cq_attr {
            /// Must be 0.
            pub comp_mask: u32,
        }

        /// A completion queue that is asked field by field. It begins as an [`ibv_cq`] does.
        pub struct ibv_cq_ex {
            /// Its device.
            pub context: *mut ibv_context,
            /// Where its events go; null for nowhere.
            pub channel: *mut ibv_comp_channel,
            /// The caller's own pointer.
            pub cq_context: *mut c_void,
            /// The kernel's number of it.
            pub handle: u32,
            /// Its entries.
            pub cqe: c_int,
            /// The library's.
            pub mutex: pthread_mutex_t,
            /// The library's.
            pub cond: pthread_cond_t,
            /// Completion events that were acknowledged.
            pub comp_events_completed: u32,
            /// Asynchronous events that were acknowledged.
            pub async_events_completed: u32,
            /// Unused: 0.
            pub comp_mask: u32,
            /// How the request of the completion at hand ended.
            pub status: ibv_wc_status,
            /// Its number.
            pub wr_id: u64,
            /// [`ibv_start_poll`](crate::ibv_start_poll).
            pub start_poll: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int>,
            /// [`ibv_next_poll`](crate::ibv_next_poll).
            pub next_poll: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> c_int>,
            /// [`ibv_end_poll`](crate::ibv_end_poll).
            pub end_poll: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex)>,
            /// [`ibv_wc_read_opcode`](crate::ibv_wc_read_opcode).
            pub read_opcode: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> ibv_wc_opcode>,
            /// [`ibv_wc_read_vendor_err`](crate::ibv_wc_read_vendor_err).
            pub read_vendor_err: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
            /// [`ibv_wc_read_byte_len`](crate::ibv_wc_read_byte_len).
            pub read_byte_len: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
            /// [`ibv_wc_read_imm_data`](crate::ibv_wc_read_imm_data).
            pub read_imm_data: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> __be32>,
            /// [`ibv_wc_read_qp_num`](crate::ibv_wc_read_qp_num).
            pub read_qp_num: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
            /// [`ibv_wc_read_src_qp`](crate::ibv_wc_read_src_qp).
            pub read_src_qp: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
            /// [`ibv_wc_read_wc_flags`](crate::ibv_wc_read_wc_flags).
            pub read_wc_flags: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> c_uint>,
            /// [`ibv_wc_read_slid`](crate::ibv_wc_read_slid).
            pub read_slid: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
            /// [`ibv_wc_read_sl`](crate::ibv_wc_read_sl).
            pub read_sl: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u8>,
            /// [`ibv_wc_read_dlid_path_bits`](crate::ibv_wc_read_dlid_path_bits).
            pub read_dlid_path_bits: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u8>,
            /// [`ibv_wc_read_completion_ts`](crate::ibv_wc_read_completion_ts).
            pub read_completion_ts: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u64>,
            /// [`ibv_wc_read_cvlan`](crate::ibv_wc_read_cvlan).
            pub read_cvlan: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u16>,
            /// [`ibv_wc_read_flow_tag`](crate::ibv_wc_read_flow_tag).
            pub read_flow_tag: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u32>,
            /// [`ibv_wc_read_tm_info`](crate::ibv_wc_read_tm_info).
            pub read_tm_info: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex, tm_info: *mut ibv_wc_tm_info)>,
            /// [`ibv_wc_read_completion_wallclock_ns`](crate::ibv_wc_read_completion_wallclock_ns).
            pub read_completion_wallclock_ns: Option<unsafe extern "C" fn(current: *mut ibv_cq_ex) -> u64>,
        }

        /// When events are raised.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_moderate_cq {
            /// After so many completions,
            pub cq_count: u16,
            /// or after this time, µs.
            pub cq_period: u16,
        }

        /// What is changed of a completion queue (ibv_modify_cq(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_modify_cq_attr {
            /// [`ibv_cq_attr_mask`].
            pub attr_mask: u32,
            /// Moderation of its events.
            pub moderate: ibv_moderate_cq,
        }

        /// What a completion queue is made of (ibv_create_cq_ex(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_cq_init_attr_ex {
            /// Its entries at least.
            pub cqe: u32,
            /// The caller's own pointer.
            pub cq_context: *mut c_void,
            /// Where its events go; null for nowhere.
            pub channel: *mut ibv_comp_channel,
            /// Which interrupt raises them, below the context's `num_comp_vectors`.
            pub comp_vector: u32,
            /// What its completions can be asked: [`ibv_create_cq_wc_flags`](crate::ibv_create_cq_wc_flags).
            pub wc_flags: u64,
            /// What of the rest counts: [`ibv_cq_init_attr_mask`].
            pub comp_mask: u32,
            /// [`ibv_create_cq_attr_flags`].
            pub flags: u32,
            /// Its parent domain.
            pub parent_domain: *mut ibv_pd,
        }
    }
    enums {
        /// What of an [`ibv_modify_cq_attr`] counts.
        pub enum ibv_cq_attr_mask: u32 {
            /// `moderate`.
            IBV_CQ_ATTR_MODERATE = 1 << 0,
            /// The first bit that means nothing.
            IBV_CQ_ATTR_RESERVED = 1 << 1,
        }

        /// What of an [`ibv_cq_init_attr_ex`] counts.
        pub enum ibv_cq_init_attr_mask: u32 {
            /// `flags`.
            IBV_CQ_INIT_ATTR_MASK_FLAGS = 1 << 0,
            /// `parent_domain`.
            IBV_CQ_INIT_ATTR_MASK_PD = 1 << 1,
        }

        /// How a completion queue is used.
        pub enum ibv_create_cq_attr_flags: u32 {
            /// By one thread at a time: it takes no lock.
            IBV_CREATE_CQ_ATTR_SINGLE_THREADED = 1 << 0,
            /// Its overruns are not reported.
            IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN = 1 << 1,
        }
    }
}
