//! What an mlx5 device can do beyond verbs (infiniband/mlx5dv.h).

use std::ffi::c_void;

c_items! {
    types {
        /// Compression of completions.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_cqe_comp_caps {
            /// Completions in one session at most.
            pub max_num: u32,
            /// [`mlx5dv_cqe_comp_res_format`].
            pub supported_format: u32,
        }

        /// Offsets of headers given by software.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_sw_parsing_caps {
            /// [`mlx5dv_sw_parsing_offloads`].
            pub sw_parsing_offloads: u32,
            /// A bit `1 << ibv_qp_type` for each kind of QP that can.
            pub supported_qpts: u32,
        }

        /// Receive queues whose entries hold many packets.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_striding_rq_caps {
            /// The shortest stride: 2^this bytes.
            pub min_single_stride_log_num_of_bytes: u32,
            /// The longest stride: 2^this bytes.
            pub max_single_stride_log_num_of_bytes: u32,
            /// The fewest strides of an entry: 2^this.
            pub min_single_wqe_log_num_of_strides: u32,
            /// The most strides of an entry: 2^this.
            pub max_single_wqe_log_num_of_strides: u32,
            /// A bit `1 << ibv_qp_type` for each kind of QP that can.
            pub supported_qpts: u32,
        }

        /// Streams of dynamically connected initiators.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_dci_streams_caps {
            /// Streams at a time at most: 2^this.
            pub max_log_num_concurent: u8,
            /// Streams in error before the QP is: 2^this.
            pub max_log_num_errored: u8,
        }

        /// Signatures of blocks.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_sig_caps {
            /// Sizes of blocks.
            pub block_size: u64,
            /// Kinds of signature.
            pub block_prot: u32,
            /// Guards of T10-DIF.
            pub t10dif_bg: u16,
            /// Kinds of CRC.
            pub crc_type: u16,
        }

        /// Encryption.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_crypto_caps {
            /// Self tests that failed.
            pub failed_selftests: u16,
            /// Engines.
            pub crypto_engines: u8,
            /// How keys may be imported.
            pub wrapped_import_method: u8,
            /// Keys at most: 2^this.
            pub log_max_num_deks: u8,
            /// Its state.
            pub flags: u32,
        }

        /// What an mlx5 device can do, as mlx5dv_query_device(3) gives it. Newer libraries know more.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_context {
            /// Version of this structure: 0.
            pub version: u8,
            /// [`mlx5dv_context_flags`].
            pub flags: u64,
            /// Which of the rest are asked, then which were answered: [`mlx5dv_context_comp_mask`].
            pub comp_mask: u64,
            /// Compression of completions.
            pub cqe_comp_caps: mlx5dv_cqe_comp_caps,
            /// Software parsing.
            pub sw_parsing_caps: mlx5dv_sw_parsing_caps,
            /// Striding receive queues.
            pub striding_rq_caps: mlx5dv_striding_rq_caps,
            /// [`mlx5dv_tunnel_offloads`].
            pub tunnel_offloads_caps: u32,
            /// Doorbell registers that can be had beyond those of the context.
            pub max_dynamic_bfregs: u32,
            /// How old clock information may become, ns.
            pub max_clock_info_update_nsec: u64,
            /// [`mlx5dv_flow_action_cap_flags`].
            pub flow_action_flags: u32,
            /// On-demand paging of dynamic connections: [`ibv_odp_transport_cap_bits`](crate::ibv_odp_transport_cap_bits).
            pub dc_odp_caps: u32,
            /// Where the card's clock can be read.
            pub hca_core_clock: *mut c_void,
            /// Ports that are bonded.
            pub num_lag_ports: u8,
            /// Signatures.
            pub sig_caps: mlx5dv_sig_caps,
            /// Streams of initiators.
            pub dci_streams_caps: mlx5dv_dci_streams_caps,
            /// Bytes that a request can copy within the host's memory.
            pub max_wr_memcpy_length: usize,
            /// Encryption.
            pub crypto_caps: mlx5dv_crypto_caps,
        }

        /// How a device is opened (mlx5dv_open_device(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_context_attr {
            /// [`mlx5dv_context_attr_flags`].
            pub flags: u32,
            /// Must be 0.
            pub comp_mask: u64,
        }

        /// Allocators of queues' memory (mlx5dv_set_context_attr(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_ctx_allocators {
            /// Allocates pages.
            pub alloc: Option<unsafe extern "C" fn(size: usize, priv_data: *mut c_void) -> *mut c_void>,
            /// Frees what `alloc` gave.
            pub free: Option<unsafe extern "C" fn(ptr: *mut c_void, priv_data: *mut c_void)>,
            /// Handed to both.
            pub data: *mut c_void,
        }

        /// How the card's ticks become nanoseconds (mlx5dv_get_clock_info(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_clock_info {
            /// The time at `last_cycles`, ns.
            pub nsec: u64,
            /// The card's clock then.
            pub last_cycles: u64,
            /// The part of a nanosecond, in units of 2^-shift.
            pub frac: u64,
            /// Nanoseconds of a tick, in units of 2^-shift.
            pub mult: u32,
            /// The scale of `mult` and `frac`.
            pub shift: u32,
            /// The bits of the clock that count.
            pub mask: u64,
        }
    }
    enums {
        /// Which fields of an [`mlx5dv_context`] are asked.
        pub enum mlx5dv_context_comp_mask: u32 {
            /// `cqe_comp_caps`.
            MLX5DV_CONTEXT_MASK_CQE_COMPRESION = 1 << 0,
            /// `sw_parsing_caps`.
            MLX5DV_CONTEXT_MASK_SWP = 1 << 1,
            /// `striding_rq_caps`.
            MLX5DV_CONTEXT_MASK_STRIDING_RQ = 1 << 2,
            /// `tunnel_offloads_caps`.
            MLX5DV_CONTEXT_MASK_TUNNEL_OFFLOADS = 1 << 3,
            /// `max_dynamic_bfregs`.
            MLX5DV_CONTEXT_MASK_DYN_BFREGS = 1 << 4,
            /// `max_clock_info_update_nsec`.
            MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE = 1 << 5,
            /// `flow_action_flags`.
            MLX5DV_CONTEXT_MASK_FLOW_ACTION_FLAGS = 1 << 6,
            /// `dc_odp_caps`.
            MLX5DV_CONTEXT_MASK_DC_ODP_CAPS = 1 << 7,
            /// `hca_core_clock`.
            MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK = 1 << 8,
            /// `num_lag_ports`.
            MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS = 1 << 9,
            /// `sig_caps`.
            MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD = 1 << 10,
            /// `dci_streams_caps`.
            MLX5DV_CONTEXT_MASK_DCI_STREAMS = 1 << 11,
            /// `max_wr_memcpy_length`.
            MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH = 1 << 12,
            /// `crypto_caps`.
            MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD = 1 << 13,
        }

        /// What an mlx5 device does.
        pub enum mlx5dv_context_flags: u32 {
            /// Completions name their queue by the user's index.
            MLX5DV_CONTEXT_FLAGS_CQE_V1 = 1 << 0,
            /// Means nothing any more.
            MLX5DV_CONTEXT_FLAGS_OBSOLETE = 1 << 1,
            /// Several packets of one length in a send request.
            MLX5DV_CONTEXT_FLAGS_MPW_ALLOWED = 1 << 2,
            /// Several packets of any length in a send request.
            MLX5DV_CONTEXT_FLAGS_ENHANCED_MPW = 1 << 3,
            /// Compressed completions of 128 bytes.
            MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP = 1 << 4,
            /// Completions padded to 128 bytes.
            MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD = 1 << 5,
            /// Credits counted in packets (RC).
            MLX5DV_CONTEXT_FLAGS_PACKET_BASED_CREDIT_MODE = 1 << 6,
            /// Timestamps in real time.
            MLX5DV_CONTEXT_FLAGS_REAL_TIME_TS = 1 << 7,
        }

        /// Offloads inside of tunnels, for raw packet QPs.
        pub enum mlx5dv_tunnel_offloads: u32 {
            /// VXLAN.
            MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_VXLAN = 1 << 0,
            /// GRE.
            MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GRE = 1 << 1,
            /// Geneve.
            MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_GENEVE = 1 << 2,
            /// MPLS over GRE.
            MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_CW_MPLS_OVER_GRE = 1 << 3,
            /// MPLS over UDP.
            MLX5DV_RAW_PACKET_CAP_TUNNELED_OFFLOAD_CW_MPLS_OVER_UDP = 1 << 4,
        }

        /// Abilities of ESP actions.
        pub enum mlx5dv_flow_action_cap_flags: u32 {
            /// AES-GCM.
            MLX5DV_FLOW_ACTION_FLAGS_ESP_AES_GCM = 1 << 0,
            /// AES-GCM with metadata.
            MLX5DV_FLOW_ACTION_FLAGS_ESP_AES_GCM_REQ_METADATA = 1 << 1,
            /// Steering by security parameter index.
            MLX5DV_FLOW_ACTION_FLAGS_ESP_AES_GCM_SPI_STEERING = 1 << 2,
            /// All of ESP.
            MLX5DV_FLOW_ACTION_FLAGS_ESP_AES_GCM_FULL_OFFLOAD = 1 << 3,
            /// The sequence number is the initialisation vector.
            MLX5DV_FLOW_ACTION_FLAGS_ESP_AES_GCM_TX_IV_IS_ESN = 1 << 4,
        }

        /// What a compressed completion keeps of each packet.
        pub enum mlx5dv_cqe_comp_res_format: u32 {
            /// The hash.
            MLX5DV_CQE_RES_FORMAT_HASH = 1 << 0,
            /// The checksum.
            MLX5DV_CQE_RES_FORMAT_CSUM = 1 << 1,
            /// The checksum and the stride's index.
            MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX = 1 << 2,
        }

        /// What works with offsets of headers given by software.
        pub enum mlx5dv_sw_parsing_offloads: u32 {
            /// Such offsets at all.
            MLX5DV_SW_PARSING = 1 << 0,
            /// Checksums.
            MLX5DV_SW_PARSING_CSUM = 1 << 1,
            /// Segmentation.
            MLX5DV_SW_PARSING_LSO = 1 << 2,
        }

        /// How a device is opened.
        pub enum mlx5dv_context_attr_flags: u32 {
            /// With DEVX: firmware commands.
            MLX5DV_CONTEXT_FLAGS_DEVX = 1 << 0,
        }

        /// What mlx5dv_set_context_attr(3) sets.
        pub enum mlx5dv_set_ctx_attr_type: u32 {
            /// An [`mlx5dv_ctx_allocators`].
            MLX5DV_CTX_ATTR_BUF_ALLOCATORS = 1,
        }
    }
    constants {
        /// What a parent domain's allocator is asked for: the buffer of a QP.
        pub const MLX5DV_RES_TYPE_QP: u64 = 0x1_0000_0001;

        /// The same: of a receive work queue.
        pub const MLX5DV_RES_TYPE_RWQ: u64 = 0x1_0000_0002;

        /// The same: doorbell records.
        pub const MLX5DV_RES_TYPE_DBR: u64 = 0x1_0000_0003;

        /// The same: of a shared receive queue.
        pub const MLX5DV_RES_TYPE_SRQ: u64 = 0x1_0000_0004;

        /// The same: of a completion queue.
        pub const MLX5DV_RES_TYPE_CQ: u64 = 0x1_0000_0005;

        /// mmap(2) of a UAR page of the device file: write combining.
        pub const MLX5_MMAP_GET_REGULAR_PAGES_CMD: u32 = 0;

        /// The same: not cached.
        pub const MLX5_MMAP_GET_NC_PAGES_CMD: u32 = 3;
    }
}
