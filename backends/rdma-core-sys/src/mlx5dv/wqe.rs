//! Segments of work queue entries: 16 bytes each or a multiple, big endian (infiniband/mlx5dv.h, mlx5 PRM).

use crate::{__be16, __be32, __be64};

c_items! {
    types {
        /// The first segment of an entry in a shared or striding receive queue.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5_wqe_srq_next_seg {
            /// Zero.
            pub rsvd0: [u8; 2],
            /// The entry after it, big endian.
            pub next_wqe_index: __be16,
            /// Signature.
            pub signature: u8,
            /// Zero.
            pub rsvd1: [u8; 11],
        }

        /// One element of a scatter/gather list.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5_wqe_data_seg {
            /// Bytes, big endian.
            pub byte_count: __be32,
            /// Key, big endian; [`MLX5_INVALID_LKEY`] ends a list.
            pub lkey: __be32,
            /// Address, big endian.
            pub addr: __be64,
        }

        /// The first segment of a send request.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5_wqe_ctrl_seg {
            /// Modifier in bits 31:24, index of the block in bits 23:8, opcode in bits 7:0; big endian.
            pub opmod_idx_opcode: __be32,
            /// Queue's number in bits 31:8, length in units of 16 bytes in bits 5:0; big endian.
            pub qpn_ds: __be32,
            /// Signature.
            pub signature: u8,
            /// Stream of a dynamically connected initiator, big endian. It is not aligned, so these are its
            /// bytes.
            pub dci_stream_channel_id: [u8; 2],
            /// `MLX5_WQE_CTRL_*`: fence, completion, solicited event.
            pub fm_ce_se: u8,
            /// Immediate data or a key to invalidate, as it goes over the wire.
            pub imm: __be32,
        }

        /// An entry of a striding receive queue.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5_mprq_wqe {
            /// Its first segment.
            pub nseg: mlx5_wqe_srq_next_seg,
            /// Its buffer.
            pub dseg: mlx5_wqe_data_seg,
        }

        /// A path, as datagram requests carry it.
        #[derive(Clone, Copy)]
        pub struct mlx5_wqe_av {
            /// The queue key, or a target's key.
            pub key: mlx5_wqe_av_key,
            /// The peer's QP or target, big endian; [`MLX5_EXTENDED_UD_AV`] says that all 48 bytes count.
            pub dqp_dct: __be32,
            /// Rate in bits 7:4, service level in bits 3:0.
            pub stat_rate_sl: u8,
            /// Forced loopback in bit 7, path bits of the source below.
            pub fl_mlid: u8,
            /// The peer's local identifier; on RoCE v2 the UDP source port. Big endian.
            pub rlid: __be16,
            /// Zero.
            pub reserved0: [u8; 4],
            /// The peer's Ethernet address.
            pub rmac: [u8; 6],
            /// Traffic class.
            pub tclass: u8,
            /// Hops at most.
            pub hop_limit: u8,
            /// GRH in bit 30, index of the source GID in bits 27:20, flow label below; big endian.
            pub grh_gid_fl: __be32,
            /// The peer's GID.
            pub rgid: [u8; 16],
        }

        /// A key in an [`mlx5_wqe_av`].
        #[derive(Clone, Copy)]
        pub union mlx5_wqe_av_key as "typeof(((struct mlx5_wqe_av *)0)->key)" {
            /// Of unreliable datagrams.
            pub qkey: mlx5_wqe_av_qkey,
            /// Of dynamic connections, big endian.
            pub dc_key: __be64,
        }

        /// A queue key.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5_wqe_av_qkey as "typeof(((typeof(((struct mlx5_wqe_av *)0)->key) *)0)->qkey)" {
            /// The key, big endian.
            pub qkey: __be32,
            /// Zero.
            pub reserved: __be32,
        }

        /// The path of a datagram request.
        #[derive(Clone, Copy)]
        pub struct mlx5_wqe_datagram_seg {
            /// The path.
            pub av: mlx5_wqe_av,
        }

        /// The target of an RDMA request.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5_wqe_raddr_seg {
            /// Where at the peer, big endian.
            pub raddr: __be64,
            /// The peer's key, big endian.
            pub rkey: __be32,
            /// Zero.
            pub reserved: __be32,
        }

        /// The operands of an atomic.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5_wqe_atomic_seg {
            /// What is swapped in or added, big endian.
            pub swap_add: __be64,
            /// What is compared, big endian.
            pub compare: __be64,
        }

        /// What stands before payload that is in the request itself.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5_wqe_inl_data_seg {
            /// Bytes that follow, with [`MLX5_INLINE_SEG`]; big endian.
            pub byte_count: u32,
        }

        /// The Ethernet segment of a frame: offloads, and the headers that go in line.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5_wqe_eth_seg {
            /// Zero.
            pub rsvd0: __be32,
            /// `MLX5_ETH_WQE_*`: checksums to fill in.
            pub cs_flags: u8,
            /// Zero.
            pub rsvd1: u8,
            /// Payload of a segment, bytes, big endian; 0 where nothing is segmented.
            pub mss: __be16,
            /// Zero.
            pub rsvd2: __be32,
            /// Bytes of headers in line, big endian.
            pub inline_hdr_sz: __be16,
            /// Their first two bytes.
            pub inline_hdr_start: [u8; 2],
            /// The bytes after them; longer headers go on behind this segment.
            pub inline_hdr: [u8; 16],
        }

        /// An operation on a tag list.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5_wqe_tm_seg {
            /// What is done.
            pub opcode: u8,
            /// How.
            pub flags: u8,
            /// Index of the tag, big endian.
            pub index: __be16,
            /// Zero.
            pub rsvd0: [u8; 2],
            /// Messages that software took, big endian.
            pub sw_cnt: __be16,
            /// Zero.
            pub rsvd1: [u8; 8],
            /// The tag, big endian.
            pub append_tag: __be64,
            /// Its bits that count, big endian.
            pub append_mask: __be64,
        }

        /// The control segment of a change of a memory key.
        #[derive(Clone, Copy)]
        pub struct mlx5_wqe_umr_ctrl_seg {
            /// `MLX5_WQE_UMR_CTRL_FLAG_*`.
            pub flags: u8,
            /// Zero.
            pub rsvd0: [u8; 3],
            /// Length of the list that follows, in units of 16 bytes, big endian.
            pub klm_octowords: __be16,
            /// By flags.
            pub offset: mlx5_wqe_umr_ctrl_seg_offset,
            /// What is changed: `MLX5_WQE_UMR_CTRL_MKEY_MASK_*`, big endian.
            pub mkey_mask: __be64,
            /// Zero.
            pub rsvd1: [u8; 32],
        }

        /// A length or an offset, in units of 16 bytes.
        #[derive(Clone, Copy)]
        pub union mlx5_wqe_umr_ctrl_seg_offset as "" {
            /// Where the list goes in the key's own, big endian.
            pub translation_offset: __be16,
            /// Length of the signature's description, big endian.
            pub bsf_octowords: __be16,
        }

        /// One piece of memory of a key.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5_wqe_umr_klm_seg {
            /// Bytes, big endian.
            pub byte_count: __be32,
            /// The key of its memory region, big endian.
            pub mkey: __be32,
            /// Where it begins, big endian.
            pub address: __be64,
        }

        /// One piece in a list in line.
        #[derive(Clone, Copy)]
        pub union mlx5_wqe_umr_inline_seg {
            /// The piece.
            pub klm: mlx5_wqe_umr_klm_seg,
        }

        /// One strided piece of memory of a key.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5_wqe_umr_repeat_ent_seg {
            /// Bytes from one to the next, big endian.
            pub stride: __be16,
            /// Bytes of each, big endian.
            pub byte_count: __be16,
            /// The key of its memory region, big endian.
            pub memkey: __be32,
            /// Where it begins, big endian.
            pub va: __be64,
        }

        /// What stands before strided pieces.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5_wqe_umr_repeat_block_seg {
            /// Bytes of one round, big endian.
            pub byte_count: __be32,
            /// Always 0x400, big endian.
            pub op: __be32,
            /// Rounds, big endian.
            pub repeat_count: __be32,
            /// Zero.
            pub reserved: __be16,
            /// Pieces, big endian.
            pub num_ent: __be16,
            /// The pieces.
            pub entries: [mlx5_wqe_umr_repeat_ent_seg; 0],
        }

        /// What a memory key becomes.
        #[derive(Clone, Copy)]
        pub struct mlx5_wqe_mkey_context_seg {
            /// [`MLX5_WQE_MKEY_CONTEXT_FREE`], or 0.
            pub free: u8,
            /// Zero.
            pub reserved1: u8,
            /// `MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_*`.
            pub access_flags: u8,
            /// Scatter format.
            pub sf: u8,
            /// QP in bits 31:8, the key's low byte below; big endian.
            pub qpn_mkey: __be32,
            /// Zero.
            pub reserved2: __be32,
            /// Flags in bits 31:24, protection domain below; big endian.
            pub flags_pd: __be32,
            /// Where it begins, big endian.
            pub start_addr: __be64,
            /// Bytes, big endian.
            pub len: __be64,
            /// Length of the signature's description, in units of 16 bytes, big endian.
            pub bsf_octword_size: __be32,
            /// Zero.
            pub reserved3: [__be32; 4],
            /// Length of its list, in units of 16 bytes, big endian.
            pub translations_octword_size: __be32,
            /// Zero.
            pub reserved4: [u8; 3],
            /// A page has 2^this bytes.
            pub log_page_size: u8,
            /// Zero.
            pub reserved: __be32,
            /// Pieces in line.
            pub inseg: [mlx5_wqe_umr_inline_seg; 0],
        }
    }
    constants {
        /// Does nothing.
        pub const MLX5_OPCODE_NOP: u8 = 0x0;

        /// Send with invalidate.
        pub const MLX5_OPCODE_SEND_INVAL: u8 = 0x1;

        /// RDMA write.
        pub const MLX5_OPCODE_RDMA_WRITE: u8 = 0x8;

        /// RDMA write with immediate.
        pub const MLX5_OPCODE_RDMA_WRITE_IMM: u8 = 0x9;

        /// Send; of a raw QP, a frame.
        pub const MLX5_OPCODE_SEND: u8 = 0xa;

        /// Send with immediate.
        pub const MLX5_OPCODE_SEND_IMM: u8 = 0xb;

        /// Send as segments.
        pub const MLX5_OPCODE_TSO: u8 = 0xe;

        /// RDMA read.
        pub const MLX5_OPCODE_RDMA_READ: u8 = 0x10;

        /// Compare and swap.
        pub const MLX5_OPCODE_ATOMIC_CS: u8 = 0x11;

        /// Fetch and add.
        pub const MLX5_OPCODE_ATOMIC_FA: u8 = 0x12;

        /// Compare and swap under a mask.
        pub const MLX5_OPCODE_ATOMIC_MASKED_CS: u8 = 0x14;

        /// Fetch and add under a mask.
        pub const MLX5_OPCODE_ATOMIC_MASKED_FA: u8 = 0x15;

        /// Fast registration of memory.
        pub const MLX5_OPCODE_FMR: u8 = 0x19;

        /// Local invalidate.
        pub const MLX5_OPCODE_LOCAL_INVAL: u8 = 0x1b;

        /// Configuration.
        pub const MLX5_OPCODE_CONFIG_CMD: u8 = 0x1f;

        /// Sets a signature's state.
        pub const MLX5_OPCODE_SET_PSV: u8 = 0x20;

        /// Changes a memory key.
        pub const MLX5_OPCODE_UMR: u8 = 0x25;

        /// Changes a tag list.
        pub const MLX5_OPCODE_TAG_MATCHING: u8 = 0x28;

        /// Changes a steering table.
        pub const MLX5_OPCODE_FLOW_TBL_ACCESS: u8 = 0x2c;

        /// Operations on memory alone, such as copies.
        pub const MLX5_OPCODE_MMO: u8 = 0x2f;

        /// A key that ends a scatter list.
        pub const MLX5_INVALID_LKEY: u32 = 0x100;

        /// An [`mlx5_wqe_av`] has all of its 48 bytes.
        pub const MLX5_EXTENDED_UD_AV: u32 = 0x8000_0000;

        /// Payload follows in line.
        pub const MLX5_INLINE_SEG: u32 = 0x8000_0000;

        /// With a completion.
        pub const MLX5_WQE_CTRL_CQ_UPDATE: u8 = 1 << 3;

        /// With a solicited event at the peer.
        pub const MLX5_WQE_CTRL_SOLICITED: u8 = 1 << 1;

        /// After earlier reads and atomics.
        pub const MLX5_WQE_CTRL_FENCE: u8 = 1 << 7;

        /// After earlier local invalidates.
        pub const MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE: u8 = 1 << 5;

        /// Bytes of a block of a send queue.
        pub const MLX5_SEND_WQE_BB: usize = 64;

        /// A block has 2^this bytes.
        pub const MLX5_SEND_WQE_SHIFT: usize = 6;

        /// Fill in IPv4's checksum.
        pub const MLX5_ETH_WQE_L3_CSUM: u8 = 1 << 6;

        /// Fill in TCP's or UDP's checksum.
        pub const MLX5_ETH_WQE_L4_CSUM: u8 = 1 << 7;

        /// The list is in line.
        pub const MLX5_WQE_UMR_CTRL_FLAG_INLINE: u8 = 1 << 7;

        /// The key must be free.
        pub const MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE: u8 = 1 << 5;

        /// `translation_offset` counts.
        pub const MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET: u8 = 1 << 4;

        /// The key must belong to this QP.
        pub const MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN: u8 = 1 << 3;

        /// The length.
        pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN: u64 = 1 << 0;

        /// The beginning.
        pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR: u64 = 1 << 6;

        /// Signature errors.
        pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR: u64 = 1 << 9;

        /// Whether there is a signature.
        pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE: u64 = 1 << 12;

        /// The key's low byte.
        pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY: u64 = 1 << 13;

        /// The QP.
        pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN: u64 = 1 << 14;

        /// Local writing.
        pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE: u64 = 1 << 18;

        /// A peer's reading.
        pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ: u64 = 1 << 19;

        /// A peer's writing.
        pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE: u64 = 1 << 20;

        /// Atomics.
        pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC: u64 = 1 << 21;

        /// Whether it is free.
        pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE: u64 = 1 << 29;

        /// The key is free.
        pub const MLX5_WQE_MKEY_CONTEXT_FREE: u8 = 1 << 6;

        /// Atomics.
        pub const MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC: u8 = 1 << 6;

        /// A peer's writing.
        pub const MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE: u8 = 1 << 5;

        /// A peer's reading.
        pub const MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ: u8 = 1 << 4;

        /// Local writing.
        pub const MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE: u8 = 1 << 3;

        /// Local reading.
        pub const MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ: u8 = 1 << 2;
    }
}
