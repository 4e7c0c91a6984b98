//! Shared receive queues, receive work queues and the tables that spread packets over them (infiniband/verbs.h).

use std::ffi::{c_int, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use crate::{ibv_context, ibv_cq, ibv_pd, ibv_recv_wr, ibv_xrcd};

c_items! {
    types {
        /// Sizes of a shared receive queue.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_srq_attr {
            /// Work requests outstanding.
            pub max_wr: u32,
            /// Elements of a scatter list.
            pub max_sge: u32,
            /// Below so many, [`IBV_EVENT_SRQ_LIMIT_REACHED`](crate::IBV_EVENT_SRQ_LIMIT_REACHED) is raised once; 0 for never.
            pub srq_limit: u32,
        }

        /// What a shared receive queue is made of (ibv_create_srq(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_srq_init_attr {
            /// The caller's own pointer.
            pub srq_context: *mut c_void,
            /// Its sizes; changed to what it got.
            pub attr: ibv_srq_attr,
        }

        /// Sizes of a tag matching queue.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_tm_cap {
            /// Tags in its list.
            pub max_num_tags: u32,
            /// List operations outstanding.
            pub max_ops: u32,
        }

        /// What a shared receive queue is made of (ibv_create_srq_ex(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_srq_init_attr_ex {
            /// The caller's own pointer.
            pub srq_context: *mut c_void,
            /// Its sizes.
            pub attr: ibv_srq_attr,
            /// What of the rest counts: [`ibv_srq_init_attr_mask`].
            pub comp_mask: u32,
            /// Its kind.
            pub srq_type: ibv_srq_type,
            /// Its protection domain.
            pub pd: *mut ibv_pd,
            /// Its XRC domain.
            pub xrcd: *mut ibv_xrcd,
            /// Its completion queue (XRC, tag matching).
            pub cq: *mut ibv_cq,
            /// Sizes of tag matching.
            pub tm_cap: ibv_tm_cap,
        }

        /// A shared receive queue.
        pub struct ibv_srq {
            /// Its device.
            pub context: *mut ibv_context,
            /// The caller's own pointer.
            pub srq_context: *mut c_void,
            /// Its protection domain.
            pub pd: *mut ibv_pd,
            /// The kernel's number of it.
            pub handle: u32,
            /// The library's.
            pub mutex: pthread_mutex_t,
            /// The library's.
            pub cond: pthread_cond_t,
            /// Events that were acknowledged.
            pub events_completed: u32,
        }

        /// What a receive work queue is made of (ibv_create_wq(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_wq_init_attr {
            /// The caller's own pointer.
            pub wq_context: *mut c_void,
            /// Its kind.
            pub wq_type: ibv_wq_type,
            /// Work requests outstanding.
            pub max_wr: u32,
            /// Elements of a scatter list.
            pub max_sge: u32,
            /// Its protection domain.
            pub pd: *mut ibv_pd,
            /// Its completion queue.
            pub cq: *mut ibv_cq,
            /// [`ibv_wq_init_attr_mask`].
            pub comp_mask: u32,
            /// [`ibv_wq_flags`], if `comp_mask` says so.
            pub create_flags: u32,
        }

        /// What is changed of a work queue (ibv_modify_wq(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_wq_attr {
            /// [`ibv_wq_attr_mask`].
            pub attr_mask: u32,
            /// The state it shall have.
            pub wq_state: ibv_wq_state,
            /// The state it is assumed to have.
            pub curr_wq_state: ibv_wq_state,
            /// [`ibv_wq_flags`].
            pub flags: u32,
            /// Which of `flags` are changed.
            pub flags_mask: u32,
        }

        /// A receive work queue: receives without a QP of their own, filled by receive side scaling.
        pub struct ibv_wq {
            /// Its device.
            pub context: *mut ibv_context,
            /// The caller's own pointer.
            pub wq_context: *mut c_void,
            /// Its protection domain.
            pub pd: *mut ibv_pd,
            /// Its completion queue.
            pub cq: *mut ibv_cq,
            /// Its number.
            pub wq_num: u32,
            /// The kernel's number of it.
            pub handle: u32,
            /// Its state.
            pub state: ibv_wq_state,
            /// Its kind.
            pub wq_type: ibv_wq_type,
            /// Posts receives; [`ibv_post_wq_recv`](crate::ibv_post_wq_recv) calls it.
            pub post_recv: Option<
                unsafe extern "C" fn(current: *mut ibv_wq, recv_wr: *mut ibv_recv_wr, bad_recv_wr: *mut *mut ibv_recv_wr) -> c_int,
            >,
            /// The library's.
            pub mutex: pthread_mutex_t,
            /// The library's.
            pub cond: pthread_cond_t,
            /// Events that were acknowledged.
            pub events_completed: u32,
            /// Unused: 0.
            pub comp_mask: u32,
        }

        /// An indirection table: a hash's low bits choose the work queue.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_rwq_ind_table {
            /// Its device.
            pub context: *mut ibv_context,
            /// The kernel's number of it.
            pub ind_tbl_handle: c_int,
            /// Its number.
            pub ind_tbl_num: c_int,
            /// Unused: 0.
            pub comp_mask: u32,
        }

        /// What an indirection table is made of (ibv_create_rwq_ind_table(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_rwq_ind_table_init_attr {
            /// It has 2^this entries.
            pub log_ind_tbl_size: u32,
            /// Its entries.
            pub ind_tbl: *mut *mut ibv_wq,
            /// Must be 0.
            pub comp_mask: u32,
        }
    }
    enums {
        /// What ibv_modify_srq(3) changes.
        pub enum ibv_srq_attr_mask: u32 {
            /// `max_wr`: resizes it.
            IBV_SRQ_MAX_WR = 1 << 0,
            /// `srq_limit`: arms it.
            IBV_SRQ_LIMIT = 1 << 1,
        }

        /// Kinds of shared receive queue.
        pub enum ibv_srq_type: u32 {
            /// For QPs of one protection domain.
            IBV_SRQT_BASIC = 0,
            /// For extended reliable connections.
            IBV_SRQT_XRC = 1,
            /// With tag matching.
            IBV_SRQT_TM = 2,
        }

        /// What of an [`ibv_srq_init_attr_ex`] counts.
        pub enum ibv_srq_init_attr_mask: u32 {
            /// `srq_type`.
            IBV_SRQ_INIT_ATTR_TYPE = 1 << 0,
            /// `pd`.
            IBV_SRQ_INIT_ATTR_PD = 1 << 1,
            /// `xrcd`.
            IBV_SRQ_INIT_ATTR_XRCD = 1 << 2,
            /// `cq`.
            IBV_SRQ_INIT_ATTR_CQ = 1 << 3,
            /// `tm_cap`.
            IBV_SRQ_INIT_ATTR_TM = 1 << 4,
            /// The first bit that means nothing.
            IBV_SRQ_INIT_ATTR_RESERVED = 1 << 5,
        }

        /// Kinds of work queue.
        pub enum ibv_wq_type: u32 {
            /// Receives.
            IBV_WQT_RQ = 0,
        }

        /// What of an [`ibv_wq_init_attr`] counts.
        pub enum ibv_wq_init_attr_mask: u32 {
            /// `create_flags`.
            IBV_WQ_INIT_ATTR_FLAGS = 1 << 0,
            /// The first bit that means nothing.
            IBV_WQ_INIT_ATTR_RESERVED = 1 << 1,
        }

        /// What a work queue does with frames.
        pub enum ibv_wq_flags: u32 {
            /// Takes the VLAN tag off.
            IBV_WQ_FLAGS_CVLAN_STRIPPING = 1 << 0,
            /// Hands over the frame check sequence.
            IBV_WQ_FLAGS_SCATTER_FCS = 1 << 1,
            /// Holds frames back for a while where no receive is posted.
            IBV_WQ_FLAGS_DELAY_DROP = 1 << 2,
            /// Pads writes to whole cache lines.
            IBV_WQ_FLAGS_PCI_WRITE_END_PADDING = 1 << 3,
            /// The first bit that means nothing.
            IBV_WQ_FLAGS_RESERVED = 1 << 4,
        }

        /// States of a work queue.
        pub enum ibv_wq_state: u32 {
            /// As created.
            IBV_WQS_RESET = 0,
            /// Receives.
            IBV_WQS_RDY = 1,
            /// In error.
            IBV_WQS_ERR = 2,
            /// Not known.
            IBV_WQS_UNKNOWN = 3,
        }

        /// What ibv_modify_wq(3) looks at.
        pub enum ibv_wq_attr_mask: u32 {
            /// `wq_state`.
            IBV_WQ_ATTR_STATE = 1 << 0,
            /// `curr_wq_state`.
            IBV_WQ_ATTR_CURR_STATE = 1 << 1,
            /// `flags` and `flags_mask`.
            IBV_WQ_ATTR_FLAGS = 1 << 2,
            /// The first bit that means nothing.
            IBV_WQ_ATTR_RESERVED = 1 << 3,
        }

        /// What of an [`ibv_rwq_ind_table_init_attr`] counts: nothing yet.
        pub enum ibv_ind_table_init_attr_mask: u32 {
            /// The first bit that means nothing.
            IBV_CREATE_IND_TABLE_RESERVED = 1 << 0,
        }
    }
}
