//! Work completions (infiniband/verbs.h).

use std::ffi::c_uint;

use crate::__be32;

c_items! {
    types {
        /// One completion, as [`ibv_poll_cq`](crate::ibv_poll_cq) gives it. Of a failed one only `wr_id`, `status`, `qp_num`
        /// and `vendor_err` count.
        #[derive(Clone, Copy)]
        pub struct ibv_wc {
            /// The work request's number.
            pub wr_id: u64,
            /// How it ended.
            pub status: ibv_wc_status,
            /// What was completed.
            pub opcode: ibv_wc_opcode,
            /// The vendor's own syndrome of an error.
            pub vendor_err: u32,
            /// Bytes received.
            pub byte_len: u32,
            /// By `wc_flags`: immediate data or a key.
            pub imm: ibv_wc_imm,
            /// The local QP's number.
            pub qp_num: u32,
            /// The sender's QP number (UD).
            pub src_qp: u32,
            /// [`ibv_wc_flags`].
            pub wc_flags: c_uint,
            /// Index of the partition key (GSI QPs).
            pub pkey_index: u16,
            /// The sender's local identifier (UD on InfiniBand).
            pub slid: u16,
            /// Service level (UD).
            pub sl: u8,
            /// Path bits of the destination's LID (UD).
            pub dlid_path_bits: u8,
        }

        /// What came with a message.
        #[derive(Clone, Copy)]
        pub union ibv_wc_imm as "" {
            /// The immediate data, big endian as it came.
            pub imm_data: __be32,
            /// The key that the message invalidated.
            pub invalidated_rkey: u32,
        }

        /// What a completion says of a matched tag.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_wc_tm_info {
            /// The tag of the message.
            pub tag: u64,
            /// The sender's own 32 bits beside it.
            pub r#priv: u32,
        }
    }
    enums {
        /// How a work request ended (ibv_wc_status_str(3)).
        pub enum ibv_wc_status: u32 {
            /// It is done.
            IBV_WC_SUCCESS = 0,
            /// The message does not fit, or is longer than allowed.
            IBV_WC_LOC_LEN_ERR = 1,
            /// The work request is inconsistent in itself.
            IBV_WC_LOC_QP_OP_ERR = 2,
            /// The same of an EE context.
            IBV_WC_LOC_EEC_OP_ERR = 3,
            /// A local buffer is not in a valid memory region.
            IBV_WC_LOC_PROT_ERR = 4,
            /// Flushed: the QP was in the error state.
            IBV_WC_WR_FLUSH_ERR = 5,
            /// A memory window could not be bound.
            IBV_WC_MW_BIND_ERR = 6,
            /// The responder answered with an unexpected opcode.
            IBV_WC_BAD_RESP_ERR = 7,
            /// A peer's write with immediate could not touch local memory.
            IBV_WC_LOC_ACCESS_ERR = 8,
            /// The responder refused an invalid message.
            IBV_WC_REM_INV_REQ_ERR = 9,
            /// The responder refused access to its memory.
            IBV_WC_REM_ACCESS_ERR = 10,
            /// The responder could not carry it out.
            IBV_WC_REM_OP_ERR = 11,
            /// No acknowledgment in spite of all retries.
            IBV_WC_RETRY_EXC_ERR = 12,
            /// The responder had no receive posted in spite of all retries.
            IBV_WC_RNR_RETRY_EXC_ERR = 13,
            /// The reliable datagram domains differ.
            IBV_WC_LOC_RDD_VIOL_ERR = 14,
            /// The responder refused an invalid reliable datagram.
            IBV_WC_REM_INV_RD_REQ_ERR = 15,
            /// The responder aborted.
            IBV_WC_REM_ABORT_ERR = 16,
            /// No such EE context.
            IBV_WC_INV_EECN_ERR = 17,
            /// The EE context is in the wrong state.
            IBV_WC_INV_EEC_STATE_ERR = 18,
            /// A fatal error of the device.
            IBV_WC_FATAL_ERR = 19,
            /// No answer in time.
            IBV_WC_RESP_TIMEOUT_ERR = 20,
            /// Something else.
            IBV_WC_GENERAL_ERR = 21,
            /// Tag matching failed.
            IBV_WC_TM_ERR = 22,
            /// A rendezvous is left to software.
            IBV_WC_TM_RNDV_INCOMPLETE = 23,
        }

        /// What was completed. Bit 7 stands for receives.
        pub enum ibv_wc_opcode: u32 {
            /// A send.
            IBV_WC_SEND = 0,
            /// An RDMA write.
            IBV_WC_RDMA_WRITE = 1,
            /// An RDMA read.
            IBV_WC_RDMA_READ = 2,
            /// A compare and swap.
            IBV_WC_COMP_SWAP = 3,
            /// A fetch and add.
            IBV_WC_FETCH_ADD = 4,
            /// A binding of a memory window.
            IBV_WC_BIND_MW = 5,
            /// A local invalidate.
            IBV_WC_LOCAL_INV = 6,
            /// A send that the card segmented.
            IBV_WC_TSO = 7,
            /// An atomic write.
            IBV_WC_ATOMIC_WRITE = 9,
            /// A receive.
            IBV_WC_RECV = 1 << 7,
            /// A peer's write with immediate, which took a receive.
            IBV_WC_RECV_RDMA_WITH_IMM = 129,
            /// A tag was added.
            IBV_WC_TM_ADD = 130,
            /// A tag was taken away.
            IBV_WC_TM_DEL = 131,
            /// The lists of tags are in step.
            IBV_WC_TM_SYNC = 132,
            /// A message matched a tag.
            IBV_WC_TM_RECV = 133,
            /// A message came without a tag.
            IBV_WC_TM_NO_TAG = 134,
            /// The driver's own, first.
            IBV_WC_DRIVER1 = 135,
            /// The driver's own, second.
            IBV_WC_DRIVER2 = 136,
            /// The driver's own, third.
            IBV_WC_DRIVER3 = 137,
        }

        /// What an [`ibv_wc`] has beside the usual.
        pub enum ibv_wc_flags: u32 {
            /// A global route header lies before the payload (UD).
            IBV_WC_GRH = 1 << 0,
            /// Immediate data.
            IBV_WC_WITH_IMM = 1 << 1,
            /// The card checked the checksums of IPv4 and TCP or UDP, and they are right.
            IBV_WC_IP_CSUM_OK = 1 << 2,
            /// A key that was invalidated.
            IBV_WC_WITH_INV = 1 << 3,
            /// The lists of tags must be brought in step.
            IBV_WC_TM_SYNC_REQ = 1 << 4,
            /// The message matched a tag.
            IBV_WC_TM_MATCH = 1 << 5,
            /// The message's data is there.
            IBV_WC_TM_DATA_VALID = 1 << 6,
        }

        /// What the completions of an [`ibv_cq_ex`](crate::ibv_cq_ex) can be asked.
        pub enum ibv_create_cq_wc_flags: u32 {
            /// The length.
            IBV_WC_EX_WITH_BYTE_LEN = 1 << 0,
            /// Immediate data.
            IBV_WC_EX_WITH_IMM = 1 << 1,
            /// The local QP's number.
            IBV_WC_EX_WITH_QP_NUM = 1 << 2,
            /// The sender's QP number.
            IBV_WC_EX_WITH_SRC_QP = 1 << 3,
            /// The sender's local identifier.
            IBV_WC_EX_WITH_SLID = 1 << 4,
            /// The service level.
            IBV_WC_EX_WITH_SL = 1 << 5,
            /// The destination's path bits.
            IBV_WC_EX_WITH_DLID_PATH_BITS = 1 << 6,
            /// The card's time, in ticks of its clock.
            IBV_WC_EX_WITH_COMPLETION_TIMESTAMP = 1 << 7,
            /// The VLAN tag that was taken off.
            IBV_WC_EX_WITH_CVLAN = 1 << 8,
            /// The tag of the flow rule that matched.
            IBV_WC_EX_WITH_FLOW_TAG = 1 << 9,
            /// The matched tag.
            IBV_WC_EX_WITH_TM_INFO = 1 << 10,
            /// The card's time, in nanoseconds of the wall clock.
            IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK = 1 << 11,
        }
    }
    constants {
        /// The bit of [`IBV_WC_IP_CSUM_OK`].
        pub const IBV_WC_IP_CSUM_OK_SHIFT: u32 = 2;

        /// What an [`ibv_wc`] has too.
        pub const IBV_WC_STANDARD_FLAGS: u64 = 127;

        /// Everything that these headers know.
        pub const IBV_CREATE_CQ_SUP_WC_FLAGS: u64 = 4095;
    }
}
