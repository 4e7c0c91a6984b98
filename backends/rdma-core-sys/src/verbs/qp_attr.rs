//! Queue pairs: their states and what is changed between them (infiniband/verbs.h).

use std::ffi::c_uint;

use crate::{ibv_ah_attr, ibv_mtu, ibv_qp_cap};

c_items! {
    types {
        /// What is changed of a QP, or asked (ibv_modify_qp(3), ibv_query_qp(3)).
        #[derive(Clone, Copy)]
        pub struct ibv_qp_attr {
            /// The state it shall have.
            pub qp_state: ibv_qp_state,
            /// The state it is assumed to have.
            pub cur_qp_state: ibv_qp_state,
            /// The path MTU.
            pub path_mtu: ibv_mtu,
            /// The state of path migration.
            pub path_mig_state: ibv_mig_state,
            /// The queue key (UD).
            pub qkey: u32,
            /// The first packet sequence number expected, 24 bits.
            pub rq_psn: u32,
            /// The first packet sequence number sent, 24 bits.
            pub sq_psn: u32,
            /// The peer's QP number.
            pub dest_qp_num: u32,
            /// What a peer may do: [`ibv_access_flags`](crate::ibv_access_flags).
            pub qp_access_flags: c_uint,
            /// Sizes of the queues.
            pub cap: ibv_qp_cap,
            /// The path.
            pub ah_attr: ibv_ah_attr,
            /// The alternate path.
            pub alt_ah_attr: ibv_ah_attr,
            /// Index of the partition key.
            pub pkey_index: u16,
            /// Index of the partition key of the alternate path.
            pub alt_pkey_index: u16,
            /// Whether [`IBV_EVENT_SQ_DRAINED`](crate::IBV_EVENT_SQ_DRAINED) is raised.
            pub en_sqd_async_notify: u8,
            /// Whether the send queue is being drained (asked only).
            pub sq_draining: u8,
            /// Reads and atomics under way as initiator.
            pub max_rd_atomic: u8,
            /// Reads and atomics under way as target.
            pub max_dest_rd_atomic: u8,
            /// How long a peer waits after an RNR NAK: an encoding, 0 is 655.36 ms, 1 is 10 µs.
            pub min_rnr_timer: u8,
            /// The local port, counted from 1.
            pub port_num: u8,
            /// How long an acknowledgment is awaited: 4.096 µs · 2^this; 0 is for ever.
            pub timeout: u8,
            /// Retries after a timeout, 0 to 7.
            pub retry_cnt: u8,
            /// Retries after an RNR NAK, 0 to 6; 7 is for ever.
            pub rnr_retry: u8,
            /// The local port of the alternate path.
            pub alt_port_num: u8,
            /// The timeout of the alternate path.
            pub alt_timeout: u8,
            /// The send queue's rate, kbit/s; 0 is no limit.
            pub rate_limit: u32,
        }

        /// Pacing of a send queue (ibv_modify_qp_rate_limit(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_qp_rate_limit_attr {
            /// The rate, kbit/s; 0 is no limit.
            pub rate_limit: u32,
            /// The largest burst, bytes; 0 leaves it to the device.
            pub max_burst_sz: u32,
            /// The usual size of a packet, bytes; 0 leaves it to the device.
            pub typical_pkt_sz: u16,
            /// Must be 0.
            pub comp_mask: u32,
        }

        /// Options of a vendor that two sides of a connection agree on (ibv_set_ece(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_ece {
            /// The vendor's IEEE OUI.
            pub vendor_id: u32,
            /// The vendor's own bits.
            pub options: u32,
            /// Must be 0.
            pub comp_mask: u32,
        }
    }
    enums {
        /// What of an [`ibv_qp_attr`] counts.
        pub enum ibv_qp_attr_mask: u32 {
            /// `qp_state`.
            IBV_QP_STATE = 1 << 0,
            /// `cur_qp_state`.
            IBV_QP_CUR_STATE = 1 << 1,
            /// `en_sqd_async_notify`.
            IBV_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2,
            /// `qp_access_flags`.
            IBV_QP_ACCESS_FLAGS = 1 << 3,
            /// `pkey_index`.
            IBV_QP_PKEY_INDEX = 1 << 4,
            /// `port_num`.
            IBV_QP_PORT = 1 << 5,
            /// `qkey`.
            IBV_QP_QKEY = 1 << 6,
            /// `ah_attr`.
            IBV_QP_AV = 1 << 7,
            /// `path_mtu`.
            IBV_QP_PATH_MTU = 1 << 8,
            /// `timeout`.
            IBV_QP_TIMEOUT = 1 << 9,
            /// `retry_cnt`.
            IBV_QP_RETRY_CNT = 1 << 10,
            /// `rnr_retry`.
            IBV_QP_RNR_RETRY = 1 << 11,
            /// `rq_psn`.
            IBV_QP_RQ_PSN = 1 << 12,
            /// `max_rd_atomic`.
            IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
            /// The fields of the alternate path.
            IBV_QP_ALT_PATH = 1 << 14,
            /// `min_rnr_timer`.
            IBV_QP_MIN_RNR_TIMER = 1 << 15,
            /// `sq_psn`.
            IBV_QP_SQ_PSN = 1 << 16,
            /// `max_dest_rd_atomic`.
            IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
            /// `path_mig_state`.
            IBV_QP_PATH_MIG_STATE = 1 << 18,
            /// `cap`.
            IBV_QP_CAP = 1 << 19,
            /// `dest_qp_num`.
            IBV_QP_DEST_QPN = 1 << 20,
            /// `rate_limit`.
            IBV_QP_RATE_LIMIT = 1 << 25,
        }

        /// States of a QP (IBA 10.3.1).
        pub enum ibv_qp_state: u32 {
            /// As created.
            IBV_QPS_RESET = 0,
            /// Receives can be posted.
            IBV_QPS_INIT = 1,
            /// Ready to receive.
            IBV_QPS_RTR = 2,
            /// Ready to send, too.
            IBV_QPS_RTS = 3,
            /// The send queue is drained, or being drained.
            IBV_QPS_SQD = 4,
            /// The send queue met an error; not of RC.
            IBV_QPS_SQE = 5,
            /// In error: everything posted is flushed.
            IBV_QPS_ERR = 6,
            /// Not known.
            IBV_QPS_UNKNOWN = 7,
        }

        /// States of path migration.
        pub enum ibv_mig_state: u32 {
            /// On the alternate path, or never armed.
            IBV_MIG_MIGRATED = 0,
            /// Both sides shall arm.
            IBV_MIG_REARM = 1,
            /// Ready to migrate.
            IBV_MIG_ARMED = 2,
        }
    }
}
