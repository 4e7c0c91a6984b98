//! What queues are made of beyond verbs (infiniband/mlx5dv.h).

use std::ffi::c_void;

use crate::{ibv_ah, ibv_pd, ibv_sge};

opaque! {
    /// Signatures of a key; these bindings leave it out.
    pub struct mlx5dv_sig_block_attr;

    /// Encryption of a key; these bindings leave it out.
    pub struct mlx5dv_crypto_attr;
}

c_items! {
    types {
        /// What a completion queue is made of (mlx5dv_create_cq(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_cq_init_attr {
            /// [`mlx5dv_cq_init_attr_mask`].
            pub comp_mask: u64,
            /// The format of compressed completions: [`mlx5dv_cqe_comp_res_format`](crate::mlx5dv_cqe_comp_res_format).
            pub cqe_comp_res_format: u8,
            /// [`mlx5dv_cq_init_attr_flags`].
            pub flags: u32,
            /// Bytes of a completion: 64 or 128.
            pub cqe_size: u16,
        }

        /// Streams of a dynamically connected initiator.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_dci_streams {
            /// 2^this at a time.
            pub log_num_concurent: u8,
            /// 2^this may fail before the QP does.
            pub log_num_errored: u8,
        }

        /// What a dynamically connected QP is made of.
        #[derive(Clone, Copy)]
        pub struct mlx5dv_dc_init_attr {
            /// Target or initiator.
            pub dc_type: mlx5dv_dc_type,
            /// By type.
            pub by_type: mlx5dv_dc_init_attr_by_type,
        }

        /// What a target or an initiator needs.
        #[derive(Clone, Copy)]
        pub union mlx5dv_dc_init_attr_by_type as "" {
            /// A target's key.
            pub dct_access_key: u64,
            /// An initiator's streams.
            pub dci_streams: mlx5dv_dci_streams,
        }

        /// What a QP is made of (mlx5dv_create_qp(3)).
        #[derive(Clone, Copy)]
        pub struct mlx5dv_qp_init_attr {
            /// [`mlx5dv_qp_init_attr_mask`].
            pub comp_mask: u64,
            /// [`mlx5dv_qp_create_flags`].
            pub create_flags: u32,
            /// Of dynamic connections.
            pub dc_init_attr: mlx5dv_dc_init_attr,
            /// [`mlx5dv_qp_create_send_ops_flags`].
            pub send_ops_flags: u64,
        }

        /// A receive queue whose entries hold many packets.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_striding_rq_init_attr {
            /// A stride has 2^this bytes.
            pub single_stride_log_num_of_bytes: u32,
            /// An entry has 2^this strides.
            pub single_wqe_log_num_of_strides: u32,
            /// Whether each packet begins 2 bytes into its stride, so that IP headers are aligned.
            pub two_byte_shift_en: u8,
        }

        /// What a receive work queue is made of (mlx5dv_create_wq(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_wq_init_attr {
            /// [`mlx5dv_wq_init_attr_mask`].
            pub comp_mask: u64,
            /// Its strides.
            pub striding_rq_attrs: mlx5dv_striding_rq_init_attr,
        }

        /// What memory of the device is asked for (mlx5dv_alloc_dm(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_alloc_dm_attr {
            /// Its kind.
            pub r#type: mlx5dv_alloc_dm_type,
            /// Must be 0.
            pub comp_mask: u64,
        }

        /// What an indirect memory key is made of (mlx5dv_create_mkey(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_mkey_init_attr {
            /// Its protection domain.
            pub pd: *mut ibv_pd,
            /// [`mlx5dv_mkey_init_attr_flags`].
            pub create_flags: u32,
            /// Pieces of memory at most.
            pub max_entries: u16,
        }

        /// An indirect memory key.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_mkey {
            /// The key in local scatter/gather elements.
            pub lkey: u32,
            /// The key in a peer's requests.
            pub rkey: u32,
        }

        /// One of several strided pieces that a key covers.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_mr_interleaved {
            /// Where it begins.
            pub addr: u64,
            /// Bytes that count, of each stride.
            pub bytes_count: u32,
            /// Bytes that are skipped, of each stride.
            pub bytes_skip: u32,
            /// The key of its memory region.
            pub lkey: u32,
        }

        /// How a key is configured.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_mkey_conf_attr {
            /// [`mlx5dv_mkey_conf_flags`].
            pub conf_flags: u32,
            /// Must be 0.
            pub comp_mask: u64,
        }

        /// A QP's builders beyond verbs; mlx5dv_qp_ex_from_ibv_qp_ex(3) gets it.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_qp_ex {
            /// Unused: 0.
            pub comp_mask: u64,
            /// [`mlx5dv_wr_set_dc_addr`](crate::mlx5dv_wr_set_dc_addr).
            pub wr_set_dc_addr: Option<
                unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, ah: *mut ibv_ah, remote_dctn: u32, remote_dc_key: u64),
            >,
            /// [`mlx5dv_wr_mr_interleaved`](crate::mlx5dv_wr_mr_interleaved).
            pub wr_mr_interleaved: Option<
                unsafe extern "C" fn(
                    mqp: *mut mlx5dv_qp_ex,
                    mkey: *mut mlx5dv_mkey,
                    access_flags: u32,
                    repeat_count: u32,
                    num_interleaved: u16,
                    data: *mut mlx5dv_mr_interleaved,
                ),
            >,
            /// [`mlx5dv_wr_mr_list`](crate::mlx5dv_wr_mr_list).
            pub wr_mr_list: Option<
                unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, mkey: *mut mlx5dv_mkey, access_flags: u32, num_sges: u16, sge: *mut ibv_sge),
            >,
            /// [`mlx5dv_wr_mkey_configure`](crate::mlx5dv_wr_mkey_configure).
            pub wr_mkey_configure: Option<
                unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, mkey: *mut mlx5dv_mkey, num_setters: u8, attr: *mut mlx5dv_mkey_conf_attr),
            >,
            /// [`mlx5dv_wr_set_mkey_access_flags`](crate::mlx5dv_wr_set_mkey_access_flags).
            pub wr_set_mkey_access_flags: Option<unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, access_flags: u32)>,
            /// [`mlx5dv_wr_set_mkey_layout_list`](crate::mlx5dv_wr_set_mkey_layout_list).
            pub wr_set_mkey_layout_list: Option<unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, num_sges: u16, sge: *const ibv_sge)>,
            /// [`mlx5dv_wr_set_mkey_layout_interleaved`](crate::mlx5dv_wr_set_mkey_layout_interleaved).
            pub wr_set_mkey_layout_interleaved: Option<
                unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, repeat_count: u32, num_interleaved: u16, data: *const mlx5dv_mr_interleaved),
            >,
            /// Sets signatures.
            pub wr_set_mkey_sig_block: Option<unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, attr: *const mlx5dv_sig_block_attr)>,
            /// [`mlx5dv_wr_raw_wqe`](crate::mlx5dv_wr_raw_wqe).
            pub wr_raw_wqe: Option<unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, wqe: *const c_void)>,
            /// [`mlx5dv_wr_set_dc_addr_stream`](crate::mlx5dv_wr_set_dc_addr_stream).
            pub wr_set_dc_addr_stream: Option<
                unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, ah: *mut ibv_ah, remote_dctn: u32, remote_dc_key: u64, stream_id: u16),
            >,
            /// [`mlx5dv_wr_memcpy`](crate::mlx5dv_wr_memcpy).
            pub wr_memcpy: Option<
                unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, dest_lkey: u32, dest_addr: u64, src_lkey: u32, src_addr: u64, length: usize),
            >,
            /// Sets encryption.
            pub wr_set_mkey_crypto: Option<unsafe extern "C" fn(mqp: *mut mlx5dv_qp_ex, attr: *const mlx5dv_crypto_attr)>,
        }
    }
    enums {
        /// What of an [`mlx5dv_cq_init_attr`] counts.
        pub enum mlx5dv_cq_init_attr_mask: u32 {
            /// `cqe_comp_res_format`.
            MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE = 1 << 0,
            /// `flags`.
            MLX5DV_CQ_INIT_ATTR_MASK_FLAGS = 1 << 1,
            /// `cqe_size`.
            MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE = 1 << 2,
        }

        /// How completions lie in memory.
        pub enum mlx5dv_cq_init_attr_flags: u32 {
            /// Padded to 128 bytes.
            MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD = 1 << 0,
            /// The first bit that means nothing.
            MLX5DV_CQ_INIT_ATTR_FLAGS_RESERVED = 1 << 1,
        }

        /// What of an [`mlx5dv_qp_init_attr`] counts.
        pub enum mlx5dv_qp_init_attr_mask: u32 {
            /// `create_flags`.
            MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS = 1 << 0,
            /// `dc_init_attr`.
            MLX5DV_QP_INIT_ATTR_MASK_DC = 1 << 1,
            /// `send_ops_flags`.
            MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS = 1 << 2,
            /// `dc_init_attr.dci_streams`.
            MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS = 1 << 3,
        }

        /// How a QP behaves.
        pub enum mlx5dv_qp_create_flags: u32 {
            /// Offloads inside of tunnels.
            MLX5DV_QP_CREATE_TUNNEL_OFFLOADS = 1 << 0,
            /// Its own unicast packets may come back to it.
            MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC = 1 << 1,
            /// Its own multicast packets may come back to it.
            MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC = 1 << 2,
            /// Short payloads are never put into the completion.
            MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE = 1 << 3,
            /// Short payloads may be put into the completion, of unsignalled requests, too.
            MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE = 1 << 4,
            /// Credits are counted in packets.
            MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE = 1 << 5,
            /// Signature errors stop what follows.
            MLX5DV_QP_CREATE_SIG_PIPELINING = 1 << 6,
        }

        /// Sides of a dynamic connection.
        pub enum mlx5dv_dc_type: u32 {
            /// Target.
            MLX5DV_DCTYPE_DCT = 1,
            /// Initiator.
            MLX5DV_DCTYPE_DCI = 2,
        }

        /// Builders that an [`mlx5dv_qp_ex`] has.
        pub enum mlx5dv_qp_create_send_ops_flags: u32 {
            /// [`mlx5dv_wr_mr_interleaved`](crate::mlx5dv_wr_mr_interleaved).
            MLX5DV_QP_EX_WITH_MR_INTERLEAVED = 1 << 0,
            /// [`mlx5dv_wr_mr_list`](crate::mlx5dv_wr_mr_list).
            MLX5DV_QP_EX_WITH_MR_LIST = 1 << 1,
            /// [`mlx5dv_wr_mkey_configure`](crate::mlx5dv_wr_mkey_configure).
            MLX5DV_QP_EX_WITH_MKEY_CONFIGURE = 1 << 2,
            /// [`mlx5dv_wr_raw_wqe`](crate::mlx5dv_wr_raw_wqe).
            MLX5DV_QP_EX_WITH_RAW_WQE = 1 << 3,
            /// [`mlx5dv_wr_memcpy`](crate::mlx5dv_wr_memcpy).
            MLX5DV_QP_EX_WITH_MEMCPY = 1 << 4,
        }

        /// What of an [`mlx5dv_wq_init_attr`] counts.
        pub enum mlx5dv_wq_init_attr_mask: u32 {
            /// `striding_rq_attrs`.
            MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ = 1 << 0,
        }

        /// Kinds of memory of the device.
        pub enum mlx5dv_alloc_dm_type: u32 {
            /// Memory for data.
            MLX5DV_DM_TYPE_MEMIC = 0,
            /// Steering rules written by software.
            MLX5DV_DM_TYPE_STEERING_SW_ICM = 1,
            /// Header modifications written by software.
            MLX5DV_DM_TYPE_HEADER_MODIFY_SW_ICM = 2,
            /// Patterns of header modifications.
            MLX5DV_DM_TYPE_HEADER_MODIFY_PATTERN_SW_ICM = 3,
        }

        /// What an indirect memory key is for.
        pub enum mlx5dv_mkey_init_attr_flags: u32 {
            /// Several pieces of memory.
            MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT = 1 << 0,
            /// Signatures.
            MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE = 1 << 1,
            /// Encryption.
            MLX5DV_MKEY_INIT_ATTR_FLAGS_CRYPTO = 1 << 2,
            /// Its low byte can be changed.
            MLX5DV_MKEY_INIT_ATTR_FLAGS_UPDATE_TAG = 1 << 3,
            /// A peer can invalidate it.
            MLX5DV_MKEY_INIT_ATTR_FLAGS_REMOTE_INVALIDATE = 1 << 4,
        }

        /// How a key is configured.
        pub enum mlx5dv_mkey_conf_flags: u32 {
            /// Its signatures are forgotten.
            MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR = 1 << 0,
        }

        /// What was completed, beyond verbs.
        pub enum mlx5dv_wc_opcode: u32 {
            /// A change of a memory key.
            MLX5DV_WC_UMR = 135,
            /// A request that was posted as it is.
            MLX5DV_WC_RAW_WQE = 136,
            /// A copy.
            MLX5DV_WC_MEMCPY = 137,
        }
    }
}
