//! Queue pairs: what they are made of (infiniband/verbs.h).

use std::ffi::{c_int, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

use crate::{ibv_context, ibv_cq, ibv_pd, ibv_qp_state, ibv_rwq_ind_table, ibv_srq, ibv_xrcd};

c_items! {
    types {
        /// Sizes of a QP's queues.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_qp_cap {
            /// Sends outstanding.
            pub max_send_wr: u32,
            /// Receives outstanding.
            pub max_recv_wr: u32,
            /// Elements of a gather list.
            pub max_send_sge: u32,
            /// Elements of a scatter list.
            pub max_recv_sge: u32,
            /// Bytes of payload that are copied into the queue.
            pub max_inline_data: u32,
        }

        /// What a QP is made of (ibv_create_qp(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_qp_init_attr {
            /// The caller's own pointer.
            pub qp_context: *mut c_void,
            /// Where sends complete.
            pub send_cq: *mut ibv_cq,
            /// Where receives complete.
            pub recv_cq: *mut ibv_cq,
            /// Its shared receive queue; null for a receive queue of its own.
            pub srq: *mut ibv_srq,
            /// Its sizes; changed to what it got.
            pub cap: ibv_qp_cap,
            /// Its kind.
            pub qp_type: ibv_qp_type,
            /// Whether every send completes, whatever its flags.
            pub sq_sig_all: c_int,
        }

        /// How received packets are spread over an indirection table.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_rx_hash_conf {
            /// [`ibv_rx_hash_function_flags`](crate::ibv_rx_hash_function_flags).
            pub rx_hash_function: u8,
            /// Bytes of the key: 40 for Toeplitz.
            pub rx_hash_key_len: u8,
            /// The key.
            pub rx_hash_key: *mut u8,
            /// What is hashed: [`ibv_rx_hash_fields`](crate::ibv_rx_hash_fields).
            pub rx_hash_fields_mask: u64,
        }

        /// What a QP is made of (ibv_create_qp_ex(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_qp_init_attr_ex {
            /// The caller's own pointer.
            pub qp_context: *mut c_void,
            /// Where sends complete.
            pub send_cq: *mut ibv_cq,
            /// Where receives complete.
            pub recv_cq: *mut ibv_cq,
            /// Its shared receive queue; null for a receive queue of its own.
            pub srq: *mut ibv_srq,
            /// Its sizes; changed to what it got.
            pub cap: ibv_qp_cap,
            /// Its kind.
            pub qp_type: ibv_qp_type,
            /// Whether every send completes, whatever its flags.
            pub sq_sig_all: c_int,
            /// What of the rest counts: [`ibv_qp_init_attr_mask`].
            pub comp_mask: u32,
            /// Its protection domain.
            pub pd: *mut ibv_pd,
            /// Its XRC domain.
            pub xrcd: *mut ibv_xrcd,
            /// [`ibv_qp_create_flags`].
            pub create_flags: u32,
            /// The longest header of a segmented send, bytes.
            pub max_tso_header: u16,
            /// The indirection table that received packets go through.
            pub rwq_ind_tbl: *mut ibv_rwq_ind_table,
            /// How they are hashed for it.
            pub rx_hash_conf: ibv_rx_hash_conf,
            /// The QP number that sent packets carry.
            pub source_qpn: u32,
            /// The builders that [`ibv_qp_ex`](crate::ibv_qp_ex) shall have: [`ibv_qp_create_send_ops_flags`].
            pub send_ops_flags: u64,
        }

        /// Which shared QP is opened (ibv_open_qp(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_qp_open_attr {
            /// [`ibv_qp_open_attr_mask`].
            pub comp_mask: u32,
            /// Its number.
            pub qp_num: u32,
            /// Its XRC domain.
            pub xrcd: *mut ibv_xrcd,
            /// The caller's own pointer.
            pub qp_context: *mut c_void,
            /// Its kind.
            pub qp_type: ibv_qp_type,
        }

        /// A queue pair.
        pub struct ibv_qp {
            /// Its device.
            pub context: *mut ibv_context,
            /// The caller's own pointer.
            pub qp_context: *mut c_void,
            /// Its protection domain.
            pub pd: *mut ibv_pd,
            /// Where sends complete.
            pub send_cq: *mut ibv_cq,
            /// Where receives complete.
            pub recv_cq: *mut ibv_cq,
            /// Its shared receive queue, or null.
            pub srq: *mut ibv_srq,
            /// The kernel's number of it.
            pub handle: u32,
            /// Its number, 24 bits.
            pub qp_num: u32,
            /// The state that it was last given.
            pub state: ibv_qp_state,
            /// Its kind.
            pub qp_type: ibv_qp_type,
            /// The library's.
            pub mutex: pthread_mutex_t,
            /// The library's.
            pub cond: pthread_cond_t,
            /// Events that were acknowledged.
            pub events_completed: u32,
        }
    }
    enums {
        /// Kinds of QP.
        pub enum ibv_qp_type: u32 {
            /// Reliable connection.
            IBV_QPT_RC = 2,
            /// Unreliable connection.
            IBV_QPT_UC = 3,
            /// Unreliable datagrams.
            IBV_QPT_UD = 4,
            /// Whole Ethernet frames.
            IBV_QPT_RAW_PACKET = 8,
            /// The sending side of an extended reliable connection.
            IBV_QPT_XRC_SEND = 9,
            /// The receiving side of an extended reliable connection.
            IBV_QPT_XRC_RECV = 10,
            /// The driver's own.
            IBV_QPT_DRIVER = 0xff,
        }

        /// What of an [`ibv_qp_init_attr_ex`] counts.
        pub enum ibv_qp_init_attr_mask: u32 {
            /// `pd`.
            IBV_QP_INIT_ATTR_PD = 1 << 0,
            /// `xrcd`.
            IBV_QP_INIT_ATTR_XRCD = 1 << 1,
            /// `create_flags`.
            IBV_QP_INIT_ATTR_CREATE_FLAGS = 1 << 2,
            /// `max_tso_header`.
            IBV_QP_INIT_ATTR_MAX_TSO_HEADER = 1 << 3,
            /// `rwq_ind_tbl`.
            IBV_QP_INIT_ATTR_IND_TABLE = 1 << 4,
            /// `rx_hash_conf`.
            IBV_QP_INIT_ATTR_RX_HASH = 1 << 5,
            /// `send_ops_flags`.
            IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 1 << 6,
        }

        /// How a QP behaves.
        pub enum ibv_qp_create_flags: u32 {
            /// Its own multicast packets do not come back to it.
            IBV_QP_CREATE_BLOCK_SELF_MCAST_LB = 1 << 1,
            /// Hands over the frame check sequence.
            IBV_QP_CREATE_SCATTER_FCS = 1 << 8,
            /// Takes the VLAN tag off received frames.
            IBV_QP_CREATE_CVLAN_STRIPPING = 1 << 9,
            /// `source_qpn` is what its packets carry.
            IBV_QP_CREATE_SOURCE_QPN = 1 << 10,
            /// Pads writes to whole cache lines.
            IBV_QP_CREATE_PCI_WRITE_END_PADDING = 1 << 11,
        }

        /// The builders that an [`ibv_qp_ex`](crate::ibv_qp_ex) has.
        pub enum ibv_qp_create_send_ops_flags: u32 {
            /// [`ibv_wr_rdma_write`](crate::ibv_wr_rdma_write).
            IBV_QP_EX_WITH_RDMA_WRITE = 1 << 0,
            /// [`ibv_wr_rdma_write_imm`](crate::ibv_wr_rdma_write_imm).
            IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM = 1 << 1,
            /// [`ibv_wr_send`](crate::ibv_wr_send).
            IBV_QP_EX_WITH_SEND = 1 << 2,
            /// [`ibv_wr_send_imm`](crate::ibv_wr_send_imm).
            IBV_QP_EX_WITH_SEND_WITH_IMM = 1 << 3,
            /// [`ibv_wr_rdma_read`](crate::ibv_wr_rdma_read).
            IBV_QP_EX_WITH_RDMA_READ = 1 << 4,
            /// [`ibv_wr_atomic_cmp_swp`](crate::ibv_wr_atomic_cmp_swp).
            IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP = 1 << 5,
            /// [`ibv_wr_atomic_fetch_add`](crate::ibv_wr_atomic_fetch_add).
            IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD = 1 << 6,
            /// [`ibv_wr_local_inv`](crate::ibv_wr_local_inv).
            IBV_QP_EX_WITH_LOCAL_INV = 1 << 7,
            /// [`ibv_wr_bind_mw`](crate::ibv_wr_bind_mw).
            IBV_QP_EX_WITH_BIND_MW = 1 << 8,
            /// [`ibv_wr_send_inv`](crate::ibv_wr_send_inv).
            IBV_QP_EX_WITH_SEND_WITH_INV = 1 << 9,
            /// [`ibv_wr_send_tso`](crate::ibv_wr_send_tso).
            IBV_QP_EX_WITH_TSO = 1 << 10,
            /// [`ibv_wr_atomic_write`](crate::ibv_wr_atomic_write).
            IBV_QP_EX_WITH_ATOMIC_WRITE = 1 << 12,
        }

        /// What of an [`ibv_qp_open_attr`] counts.
        pub enum ibv_qp_open_attr_mask: u32 {
            /// `qp_num`.
            IBV_QP_OPEN_ATTR_NUM = 1 << 0,
            /// `xrcd`.
            IBV_QP_OPEN_ATTR_XRCD = 1 << 1,
            /// `qp_context`.
            IBV_QP_OPEN_ATTR_CONTEXT = 1 << 2,
            /// `qp_type`.
            IBV_QP_OPEN_ATTR_TYPE = 1 << 3,
            /// The first bit that means nothing.
            IBV_QP_OPEN_ATTR_RESERVED = 1 << 4,
        }
    }
}
