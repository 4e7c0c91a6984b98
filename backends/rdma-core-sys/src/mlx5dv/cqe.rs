//! Completions as they lie in memory (infiniband/mlx5dv.h, mlx5 PRM).

use crate::{__be16, __be32, __be64};

c_items! {
    types {
        /// A completion of a failed request.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5_err_cqe {
            /// Reserved.
            pub rsvd0: [u8; 32],
            /// The shared receive queue or the user's index, in bits 23:0, big endian.
            pub srqn: u32,
            /// Reserved.
            pub rsvd1: [u8; 18],
            /// The vendor's own syndrome.
            pub vendor_err_synd: u8,
            /// `MLX5_CQE_SYNDROME_*`.
            pub syndrome: u8,
            /// Opcode of the request in bits 31:24, QP below; big endian.
            pub s_wqe_opcode_qpn: u32,
            /// Index of the request, big endian.
            pub wqe_counter: u16,
            /// Signature.
            pub signature: u8,
            /// Opcode, format and owner, as in [`mlx5_cqe64`].
            pub op_own: u8,
        }

        /// What a completion of tag matching begins with.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5_tm_cqe {
            /// [`MLX5_TMC_SUCCESS`], big endian.
            pub success: __be32,
            /// Messages that the hardware matched, big endian.
            pub hw_phase_cnt: __be16,
            /// Reserved.
            pub rsvd0: [u8; 12],
        }

        /// A completion; the second half of an entry of 128 bytes.
        #[derive(Clone, Copy)]
        pub struct mlx5_cqe64 {
            /// By opcode.
            pub head: mlx5_cqe64_head,
            /// The shared receive queue or the user's index, in bits 23:0, big endian.
            pub srqn_uidx: __be32,
            /// Immediate data, a key, or a partition key; big endian.
            pub imm_inval_pkey: __be32,
            /// Which application it is of.
            pub app: u8,
            /// The application's operation.
            pub app_op: u8,
            /// The application's own.
            pub app_info: __be16,
            /// Bytes received, big endian. Of a striding queue also the strides.
            pub byte_cnt: __be32,
            /// The card's clock, big endian.
            pub timestamp: __be64,
            /// Opcode in bits 31:24, QP or flow tag below; big endian.
            pub sop_drop_qpn: __be32,
            /// Index of the request, big endian.
            pub wqe_counter: __be16,
            /// Signature.
            pub signature: u8,
            /// Opcode in bits 7:4, format in bits 3:2, solicited in bit 1, owner in bit 0.
            pub op_own: u8,
        }

        /// The first 32 bytes of an [`mlx5_cqe64`], by opcode.
        #[derive(Clone, Copy)]
        pub union mlx5_cqe64_head as "" {
            /// Of a received packet.
            pub packet: mlx5_cqe64_packet,
            /// Of tag matching.
            pub tm_cqe: mlx5_tm_cqe,
            /// The header of a matched message.
            pub tmh: ibv_tmh,
        }

        /// What a completion says of a received packet.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5_cqe64_packet as "" {
            /// Reserved.
            pub rsvd0: [u8; 2],
            /// Entry of a striding receive queue, big endian.
            pub wqe_id: __be16,
            /// Reserved here; LRO and hash in the PRM.
            pub rsvd4: [u8; 13],
            /// Path bits.
            pub ml_path: u8,
            /// Reserved here; the checksum in bytes 2 and 3 of it.
            pub rsvd20: [u8; 4],
            /// The sender's local identifier, big endian.
            pub slid: __be16,
            /// Flags in bits 31:24, the sender's QP below; big endian.
            pub flags_rqpn: __be32,
            /// `MLX5_CQE_L2_OK`, `MLX5_CQE_L3_OK`, `MLX5_CQE_L4_OK`.
            pub hds_ip_ext: u8,
            /// L4 in bits 6:4, L3 in bits 3:2 (`MLX5_CQE_L3_HDR_TYPE_*`), VLAN taken off in bit 0.
            pub l4_hdr_type_etc: u8,
            /// The VLAN tag that was taken off, big endian.
            pub vlan_info: __be16,
        }

        /// The header of a message with a tag (infiniband/tm_types.h).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_tmh {
            /// [`ibv_tmh_op`].
            pub opcode: u8,
            /// Zero.
            pub reserved: [u8; 3],
            /// The application's own, big endian.
            pub app_ctx: __be32,
            /// The tag, big endian.
            pub tag: __be64,
        }
    }
    enums {
        /// Kinds of message with a tag.
        pub enum ibv_tmh_op: u32 {
            /// Without one.
            IBV_TMH_NO_TAG = 0,
            /// A rendezvous.
            IBV_TMH_RNDV = 1,
            /// The end of a rendezvous.
            IBV_TMH_FIN = 2,
            /// With its data.
            IBV_TMH_EAGER = 3,
        }
    }
    constants {
        /// A bit of `op_own`: up to 32 bytes of payload are in the completion.
        pub const MLX5_INLINE_SCATTER_32: u8 = 0x4;

        /// A bit of `op_own`: up to 64 bytes of payload are in the first half of 128.
        pub const MLX5_INLINE_SCATTER_64: u8 = 0x8;

        /// [`IBV_WC_LOC_LEN_ERR`](crate::IBV_WC_LOC_LEN_ERR).
        pub const MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR: u8 = 0x1;

        /// [`IBV_WC_LOC_QP_OP_ERR`](crate::IBV_WC_LOC_QP_OP_ERR).
        pub const MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR: u8 = 0x2;

        /// [`IBV_WC_LOC_PROT_ERR`](crate::IBV_WC_LOC_PROT_ERR).
        pub const MLX5_CQE_SYNDROME_LOCAL_PROT_ERR: u8 = 0x4;

        /// [`IBV_WC_WR_FLUSH_ERR`](crate::IBV_WC_WR_FLUSH_ERR).
        pub const MLX5_CQE_SYNDROME_WR_FLUSH_ERR: u8 = 0x5;

        /// [`IBV_WC_MW_BIND_ERR`](crate::IBV_WC_MW_BIND_ERR).
        pub const MLX5_CQE_SYNDROME_MW_BIND_ERR: u8 = 0x6;

        /// [`IBV_WC_BAD_RESP_ERR`](crate::IBV_WC_BAD_RESP_ERR).
        pub const MLX5_CQE_SYNDROME_BAD_RESP_ERR: u8 = 0x10;

        /// [`IBV_WC_LOC_ACCESS_ERR`](crate::IBV_WC_LOC_ACCESS_ERR).
        pub const MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR: u8 = 0x11;

        /// [`IBV_WC_REM_INV_REQ_ERR`](crate::IBV_WC_REM_INV_REQ_ERR).
        pub const MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR: u8 = 0x12;

        /// [`IBV_WC_REM_ACCESS_ERR`](crate::IBV_WC_REM_ACCESS_ERR).
        pub const MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR: u8 = 0x13;

        /// [`IBV_WC_REM_OP_ERR`](crate::IBV_WC_REM_OP_ERR).
        pub const MLX5_CQE_SYNDROME_REMOTE_OP_ERR: u8 = 0x14;

        /// [`IBV_WC_RETRY_EXC_ERR`](crate::IBV_WC_RETRY_EXC_ERR).
        pub const MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR: u8 = 0x15;

        /// [`IBV_WC_RNR_RETRY_EXC_ERR`](crate::IBV_WC_RNR_RETRY_EXC_ERR).
        pub const MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR: u8 = 0x16;

        /// [`IBV_WC_REM_ABORT_ERR`](crate::IBV_WC_REM_ABORT_ERR).
        pub const MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR: u8 = 0x22;

        /// A vendor's syndrome: a page fault under on-demand paging.
        pub const MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT: u8 = 0x93;

        /// The Ethernet frame is in order.
        pub const MLX5_CQE_L2_OK: u8 = 1 << 0;

        /// IPv4's checksum is right.
        pub const MLX5_CQE_L3_OK: u8 = 1 << 1;

        /// TCP's or UDP's checksum is right.
        pub const MLX5_CQE_L4_OK: u8 = 1 << 2;

        /// Neither IPv4 nor IPv6.
        pub const MLX5_CQE_L3_HDR_TYPE_NONE: u8 = 0x0;

        /// IPv6.
        pub const MLX5_CQE_L3_HDR_TYPE_IPV6: u8 = 0x1;

        /// IPv4.
        pub const MLX5_CQE_L3_HDR_TYPE_IPV4: u8 = 0x2;

        /// The owner's bit of `op_own`.
        pub const MLX5_CQE_OWNER_MASK: u8 = 1;

        /// A send completed.
        pub const MLX5_CQE_REQ: u8 = 0;

        /// A peer's write with immediate.
        pub const MLX5_CQE_RESP_WR_IMM: u8 = 1;

        /// A receive.
        pub const MLX5_CQE_RESP_SEND: u8 = 2;

        /// A receive with immediate.
        pub const MLX5_CQE_RESP_SEND_IMM: u8 = 3;

        /// A receive that invalidated a key.
        pub const MLX5_CQE_RESP_SEND_INV: u8 = 4;

        /// The queue goes on in its new buffer.
        pub const MLX5_CQE_RESIZE_CQ: u8 = 5;

        /// No packet: tag matching's own.
        pub const MLX5_CQE_NO_PACKET: u8 = 6;

        /// A signature is wrong.
        pub const MLX5_CQE_SIG_ERR: u8 = 12;

        /// A send failed.
        pub const MLX5_CQE_REQ_ERR: u8 = 13;

        /// A receive failed.
        pub const MLX5_CQE_RESP_ERR: u8 = 14;

        /// Never written.
        pub const MLX5_CQE_INVALID: u8 = 15;

        /// Offset of the arm register in a register page, bytes.
        pub const MLX5_CQ_DOORBELL: usize = 0x20;

        /// Arms for solicited events.
        pub const MLX5_CQ_DB_REQ_NOT_SOL: u32 = 1 << 24;

        /// Arms for any event.
        pub const MLX5_CQ_DB_REQ_NOT: u32 = 0;

        /// Tag matching worked.
        pub const MLX5_TMC_SUCCESS: u32 = 0x8000_0000;
    }
}
