//! Ports and their state (infiniband/verbs.h).

use std::ffi::c_int;

c_items! {
    types {
        /// A port's state, as ibv_query_port(3) gives it. Newer libraries may know more.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_port_attr {
            /// Whether it carries traffic.
            pub state: ibv_port_state,
            /// The largest path MTU that it supports.
            pub max_mtu: ibv_mtu,
            /// The path MTU in force.
            pub active_mtu: ibv_mtu,
            /// Entries of its table of GIDs.
            pub gid_tbl_len: c_int,
            /// Abilities: [`ibv_port_cap_flags`].
            pub port_cap_flags: u32,
            /// The longest message, bytes.
            pub max_msg_sz: u32,
            /// Packets with a bad partition key.
            pub bad_pkey_cntr: u32,
            /// Packets with a bad queue key.
            pub qkey_viol_cntr: u32,
            /// Entries of its table of partition keys.
            pub pkey_tbl_len: u16,
            /// Its local identifier (InfiniBand).
            pub lid: u16,
            /// The subnet manager's local identifier.
            pub sm_lid: u16,
            /// Low bits of the LID that are the port's own to choose.
            pub lmc: u8,
            /// Virtual lanes: an encoding, not a count.
            pub max_vl_num: u8,
            /// The service level towards the subnet manager.
            pub sm_sl: u8,
            /// The longest delay through the subnet: 4.096 µs · 2^this.
            pub subnet_timeout: u8,
            /// How the subnet manager initialised it.
            pub init_type_reply: u8,
            /// Lanes in use: 1 is 1x, 2 is 4x, 4 is 8x, 8 is 12x, 16 is 2x.
            pub active_width: u8,
            /// Speed of a lane, encoded (ibv_query_port(3)).
            pub active_speed: u8,
            /// State of the physical link: 5 is up, 3 is disabled.
            pub phys_state: u8,
            /// [`IBV_LINK_LAYER_ETHERNET`] or another of that group.
            pub link_layer: u8,
            /// [`IBV_QPF_GRH_REQUIRED`].
            pub flags: u8,
            /// More abilities: [`ibv_port_cap_flags2`].
            pub port_cap_flags2: u16,
        }
    }
    enums {
        /// A path MTU: InfiniBand's payload of one packet.
        pub enum ibv_mtu: u32 {
            /// 256 bytes.
            IBV_MTU_256 = 1,
            /// 512 bytes.
            IBV_MTU_512 = 2,
            /// 1024 bytes.
            IBV_MTU_1024 = 3,
            /// 2048 bytes.
            IBV_MTU_2048 = 4,
            /// 4096 bytes.
            IBV_MTU_4096 = 5,
        }

        /// Whether a port carries traffic.
        pub enum ibv_port_state: u32 {
            /// No change: not a state that a port is in.
            IBV_PORT_NOP = 0,
            /// No link.
            IBV_PORT_DOWN = 1,
            /// A link, not configured yet.
            IBV_PORT_INIT = 2,
            /// Configured, not yet in use.
            IBV_PORT_ARMED = 3,
            /// Carries traffic.
            IBV_PORT_ACTIVE = 4,
            /// Active, with a link that is failing for the moment.
            IBV_PORT_ACTIVE_DEFER = 5,
        }

        /// Abilities of a port, as its subnet management agent has them (IBA PortInfo.CapabilityMask).
        pub enum ibv_port_cap_flags: u32 {
            /// A subnet manager runs on it.
            IBV_PORT_SM = 1 << 1,
            /// Notices.
            IBV_PORT_NOTICE_SUP = 1 << 2,
            /// Traps.
            IBV_PORT_TRAP_SUP = 1 << 3,
            /// Optional inter packet delays.
            IBV_PORT_OPT_IPD_SUP = 1 << 4,
            /// Automatic path migration.
            IBV_PORT_AUTO_MIGR_SUP = 1 << 5,
            /// A map of service levels to virtual lanes.
            IBV_PORT_SL_MAP_SUP = 1 << 6,
            /// Keeps its management key over a restart.
            IBV_PORT_MKEY_NVRAM = 1 << 7,
            /// Keeps its partition keys over a restart.
            IBV_PORT_PKEY_NVRAM = 1 << 8,
            /// A LED to find it by.
            IBV_PORT_LED_INFO_SUP = 1 << 9,
            /// A system image GUID.
            IBV_PORT_SYS_IMAGE_GUID_SUP = 1 << 11,
            /// Traps of partition keys at external ports.
            IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP = 1 << 12,
            /// Extended speeds.
            IBV_PORT_EXTENDED_SPEEDS_SUP = 1 << 14,
            /// A second mask of abilities.
            IBV_PORT_CAP_MASK2_SUP = 1 << 15,
            /// Connection management.
            IBV_PORT_CM_SUP = 1 << 16,
            /// SNMP tunnelling.
            IBV_PORT_SNMP_TUNNEL_SUP = 1 << 17,
            /// Reinitialisation.
            IBV_PORT_REINIT_SUP = 1 << 18,
            /// Device management.
            IBV_PORT_DEVICE_MGMT_SUP = 1 << 19,
            /// The vendor's own management class.
            IBV_PORT_VENDOR_CLASS_SUP = 1 << 20,
            /// Notices by directed route.
            IBV_PORT_DR_NOTICE_SUP = 1 << 21,
            /// Tells when its abilities change.
            IBV_PORT_CAP_MASK_NOTICE_SUP = 1 << 22,
            /// Boot management.
            IBV_PORT_BOOT_MGMT_SUP = 1 << 23,
            /// Measures the link's latency.
            IBV_PORT_LINK_LATENCY_SUP = 1 << 24,
            /// Asks its clients to register again.
            IBV_PORT_CLIENT_REG_SUP = 1 << 25,
            /// GIDs made of IP addresses (RoCE).
            IBV_PORT_IP_BASED_GIDS = 1 << 26,
        }

        /// The second mask of a port's abilities.
        pub enum ibv_port_cap_flags2: u32 {
            /// The node's description can be set.
            IBV_PORT_SET_NODE_DESC_SUP = 1 << 0,
            /// Extended port information.
            IBV_PORT_INFO_EXT_SUP = 1 << 1,
            /// Virtualisation.
            IBV_PORT_VIRT_SUP = 1 << 2,
            /// A table of a switch's port states.
            IBV_PORT_SWITCH_PORT_STATE_TABLE_SUP = 1 << 3,
            /// Links of two lanes.
            IBV_PORT_LINK_WIDTH_2X_SUP = 1 << 4,
            /// HDR, 50 Gbit/s a lane.
            IBV_PORT_LINK_SPEED_HDR_SUP = 1 << 5,
            /// NDR, 100 Gbit/s a lane.
            IBV_PORT_LINK_SPEED_NDR_SUP = 1 << 10,
        }
    }
    constants {
        /// Not said; InfiniBand, where the library is old.
        pub const IBV_LINK_LAYER_UNSPECIFIED: u8 = 0;

        /// InfiniBand.
        pub const IBV_LINK_LAYER_INFINIBAND: u8 = 1;

        /// Ethernet: RoCE, iWARP, raw packets.
        pub const IBV_LINK_LAYER_ETHERNET: u8 = 2;

        /// A bit of a port's `flags`: every packet needs a global route header.
        pub const IBV_QPF_GRH_REQUIRED: u8 = 1 << 0;
    }
}
