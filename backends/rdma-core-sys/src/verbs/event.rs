//! Asynchronous events: what happens to a device beside completions (infiniband/verbs.h).

use std::ffi::c_int;

use crate::{ibv_cq, ibv_qp, ibv_srq, ibv_wq};

c_items! {
    types {
        /// An event, as ibv_get_async_event(3) gives it; ibv_ack_async_event(3) hands it back.
        #[derive(Clone, Copy)]
        pub struct ibv_async_event {
            /// Whom it happened to; which member counts is `event_type`'s to say.
            pub element: ibv_async_event_element,
            /// What happened.
            pub event_type: ibv_event_type,
        }

        /// Whom an [`ibv_async_event`] happened to.
        #[derive(Clone, Copy)]
        pub union ibv_async_event_element as "typeof(((struct ibv_async_event *)0)->element)" {
            /// A completion queue.
            pub cq: *mut ibv_cq,
            /// A queue pair.
            pub qp: *mut ibv_qp,
            /// A shared receive queue.
            pub srq: *mut ibv_srq,
            /// A receive work queue.
            pub wq: *mut ibv_wq,
            /// A port, counted from 1.
            pub port_num: c_int,
        }
    }
    enums {
        /// What happened (ibv_get_async_event(3)).
        pub enum ibv_event_type: u32 {
            /// A completion queue overran.
            IBV_EVENT_CQ_ERR = 0,
            /// A QP met an error that no completion can tell of.
            IBV_EVENT_QP_FATAL = 1,
            /// A QP got an invalid request.
            IBV_EVENT_QP_REQ_ERR = 2,
            /// A QP got a request that may not touch that memory.
            IBV_EVENT_QP_ACCESS_ERR = 3,
            /// A QP in RTR received its first packet.
            IBV_EVENT_COMM_EST = 4,
            /// A send queue is drained.
            IBV_EVENT_SQ_DRAINED = 5,
            /// A QP moved to its alternate path.
            IBV_EVENT_PATH_MIG = 6,
            /// A QP could not move to its alternate path.
            IBV_EVENT_PATH_MIG_ERR = 7,
            /// The device is dead until it is opened again.
            IBV_EVENT_DEVICE_FATAL = 8,
            /// A port became active.
            IBV_EVENT_PORT_ACTIVE = 9,
            /// A port went down.
            IBV_EVENT_PORT_ERR = 10,
            /// A port has another local identifier.
            IBV_EVENT_LID_CHANGE = 11,
            /// A port's partition keys changed.
            IBV_EVENT_PKEY_CHANGE = 12,
            /// Another subnet manager.
            IBV_EVENT_SM_CHANGE = 13,
            /// A shared receive queue met an error.
            IBV_EVENT_SRQ_ERR = 14,
            /// A shared receive queue fell below its limit.
            IBV_EVENT_SRQ_LIMIT_REACHED = 15,
            /// A QP in error will take nothing more from its shared receive queue.
            IBV_EVENT_QP_LAST_WQE_REACHED = 16,
            /// The subnet manager asks clients to register again.
            IBV_EVENT_CLIENT_REREGISTER = 17,
            /// A port's GIDs changed.
            IBV_EVENT_GID_CHANGE = 18,
            /// A receive work queue met an error.
            IBV_EVENT_WQ_FATAL = 19,
        }
    }
}
