//! DEVX, registers, pacing indexes and flow matchers (infiniband/mlx5dv.h).

use std::ffi::{c_int, c_void};

use libc::off_t;

use crate::{ibv_counters, ibv_flow_action, ibv_flow_attr_type, ibv_qp};

opaque! {
    /// An object that a firmware command made.
    pub struct mlx5dv_devx_obj;

    /// A matcher: fields and bits that rules of one kind look at.
    pub struct mlx5dv_flow_matcher;
}

c_items! {
    types {
        /// User memory that firmware commands can name.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_devx_umem {
            /// Its number.
            pub umem_id: u32,
        }

        /// What user memory is registered (mlx5dv_devx_umem_reg_ex(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_devx_umem_in {
            /// Where it begins.
            pub addr: *mut c_void,
            /// Bytes.
            pub size: usize,
            /// [`ibv_access_flags`](crate::ibv_access_flags).
            pub access: u32,
            /// Sizes of pages that may be used: a bit for each power of two.
            pub pgsz_bitmap: u64,
            /// [`mlx5dv_devx_umem_in_mask`].
            pub comp_mask: u64,
            /// A descriptor of a dma-buf.
            pub dmabuf_fd: c_int,
        }

        /// A page of doorbell registers.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_devx_uar {
            /// The register.
            pub reg_addr: *mut c_void,
            /// The page.
            pub base_addr: *mut c_void,
            /// Its number.
            pub page_id: u32,
            /// Its offset in the device file.
            pub mmap_off: off_t,
            /// Must be 0.
            pub comp_mask: u64,
        }

        /// A page of doorbell registers for a virtual device.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_var {
            /// Its number.
            pub page_id: u32,
            /// Bytes.
            pub length: u32,
            /// Its offset in the device file.
            pub mmap_off: off_t,
            /// Must be 0.
            pub comp_mask: u64,
        }

        /// A pacing entry: a rate that queues can share (mlx5dv_pp_alloc(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_pp {
            /// Its index in the firmware's table.
            pub index: u16,
        }

        /// A register of packet metadata.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_reg {
            /// Its value,
            pub value: u32,
            /// in these bits.
            pub mask: u32,
        }

        /// A port as the firmware sees it (mlx5dv_query_port(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_port {
            /// Which of the rest count: `MLX5DV_QUERY_PORT_*`.
            pub flags: u64,
            /// The virtual port.
            pub vport: u16,
            /// Its virtual card.
            pub vport_vhca_id: u16,
            /// The virtual card that owns the switch.
            pub esw_owner_vhca_id: u16,
            /// Reserved.
            pub rsvd0: u16,
            /// Root of received steering in the device's memory.
            pub vport_steering_icm_rx: u64,
            /// Root of sent steering in the device's memory.
            pub vport_steering_icm_tx: u64,
            /// Metadata that the port's packets carry.
            pub reg_c0: mlx5dv_reg,
        }

        /// What a matcher or a rule looks at, in the firmware's format.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_flow_match_parameters {
            /// Bytes of `match_buf`.
            pub match_sz: usize,
            /// The parameters follow here.
            pub match_buf: [u64; 0],
        }

        /// What a matcher is made of (mlx5dv_create_flow_matcher(3)). Newer libraries know more.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_flow_matcher_attr {
            /// Kind of its rules.
            pub r#type: ibv_flow_attr_type,
            /// [`ibv_flow_flags`](crate::ibv_flow_flags).
            pub flags: u32,
            /// Lower numbers match first.
            pub priority: u16,
            /// Which groups of fields it looks at.
            pub match_criteria_enable: u8,
            /// Which bits.
            pub match_mask: *mut mlx5dv_flow_match_parameters,
            /// [`mlx5dv_flow_matcher_attr_mask`].
            pub comp_mask: u64,
            /// Which table it goes to.
            pub ft_type: mlx5dv_flow_table_type,
        }

        /// What is done with matching packets.
        #[derive(Clone, Copy)]
        pub struct mlx5dv_flow_action_attr {
            /// Which action.
            pub r#type: mlx5dv_flow_action_type,
            /// By type.
            pub arg: mlx5dv_flow_action_arg,
        }

        /// What an action needs.
        #[derive(Clone, Copy)]
        pub union mlx5dv_flow_action_arg as "" {
            /// The QP that gets them.
            pub qp: *mut ibv_qp,
            /// Where they are counted.
            pub counter: *mut ibv_counters,
            /// An action object.
            pub action: *mut ibv_flow_action,
            /// Their tag.
            pub tag_value: u32,
            /// A DEVX object.
            pub obj: *mut mlx5dv_devx_obj,
        }
    }
    enums {
        /// What of an [`mlx5dv_devx_umem_in`] counts.
        pub enum mlx5dv_devx_umem_in_mask: u32 {
            /// `dmabuf_fd`.
            MLX5DV_UMEM_MASK_DMABUF = 1 << 0,
        }

        /// What of an [`mlx5dv_flow_matcher_attr`] counts.
        pub enum mlx5dv_flow_matcher_attr_mask: u32 {
            /// `ft_type`.
            MLX5DV_FLOW_MATCHER_MASK_FT_TYPE = 1 << 0,
        }

        /// What is done with matching packets.
        pub enum mlx5dv_flow_action_type: u32 {
            /// They go to a QP.
            MLX5DV_FLOW_ACTION_DEST_IBV_QP = 0,
            /// They are dropped.
            MLX5DV_FLOW_ACTION_DROP = 1,
            /// They are counted.
            MLX5DV_FLOW_ACTION_IBV_COUNTER = 2,
            /// What an action object says.
            MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION = 3,
            /// They are tagged.
            MLX5DV_FLOW_ACTION_TAG = 4,
            /// They go to a DEVX object.
            MLX5DV_FLOW_ACTION_DEST_DEVX = 5,
            /// They are counted by a DEVX object.
            MLX5DV_FLOW_ACTION_COUNTERS_DEVX = 6,
            /// They go on as if nothing had matched.
            MLX5DV_FLOW_ACTION_DEFAULT_MISS = 7,
        }

        /// Steering tables.
        pub enum mlx5dv_flow_table_type: u32 {
            /// What the card receives.
            MLX5DV_FLOW_TABLE_TYPE_NIC_RX = 0x0,
            /// What the card sends.
            MLX5DV_FLOW_TABLE_TYPE_NIC_TX = 0x1,
            /// The embedded switch.
            MLX5DV_FLOW_TABLE_TYPE_FDB = 0x2,
            /// RDMA traffic received.
            MLX5DV_FLOW_TABLE_TYPE_RDMA_RX = 0x3,
            /// RDMA traffic sent.
            MLX5DV_FLOW_TABLE_TYPE_RDMA_TX = 0x4,
        }

        /// How tunnels are put on and taken off.
        pub enum mlx5dv_flow_action_packet_reformat_type: u32 {
            /// Off, from a tunnel of frames.
            MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TUNNEL_TO_L2 = 0x0,
            /// On, a tunnel of frames.
            MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L2_TUNNEL = 0x1,
            /// Off, from a tunnel of IP packets.
            MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L3_TUNNEL_TO_L2 = 0x2,
            /// On, a tunnel of IP packets.
            MLX5DV_FLOW_ACTION_PACKET_REFORMAT_TYPE_L2_TO_L3_TUNNEL = 0x3,
        }
    }
    constants {
        /// A pacing entry is not shared with others of the same rate.
        pub const MLX5DV_PP_ALLOC_FLAGS_DEDICATED_INDEX: u32 = 1 << 0;

        /// A register page for BlueFlame: write combining.
        pub const MLX5DV_UAR_ALLOC_TYPE_BF: u32 = 0;

        /// A register page that is not cached.
        pub const MLX5DV_UAR_ALLOC_TYPE_NC: u32 = 1;

        /// `vport` counts.
        pub const MLX5DV_QUERY_PORT_VPORT: u64 = 1 << 0;

        /// `vport_vhca_id` counts.
        pub const MLX5DV_QUERY_PORT_VPORT_VHCA_ID: u64 = 1 << 1;

        /// `vport_steering_icm_rx` counts.
        pub const MLX5DV_QUERY_PORT_VPORT_STEERING_ICM_RX: u64 = 1 << 2;

        /// `vport_steering_icm_tx` counts.
        pub const MLX5DV_QUERY_PORT_VPORT_STEERING_ICM_TX: u64 = 1 << 3;

        /// `reg_c0` counts.
        pub const MLX5DV_QUERY_PORT_VPORT_REG_C0: u64 = 1 << 4;

        /// `esw_owner_vhca_id` counts.
        pub const MLX5DV_QUERY_PORT_ESW_OWNER_VHCA_ID: u64 = 1 << 5;
    }
}
