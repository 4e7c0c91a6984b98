//! Global identifiers, and what kinds of node and transport there are (infiniband/verbs.h).

use crate::__be64;

c_items! {
    types {
        /// A global identifier of a port: 16 bytes, on RoCE made of an IP address (RoCE v2 annex A17).
        #[derive(Clone, Copy)]
        pub union ibv_gid {
            /// All 16 bytes, as they go over the wire.
            pub raw: [u8; 16],
            /// The two halves of it.
            pub global: ibv_gid_global,
        }

        /// The two halves of an [`ibv_gid`].
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_gid_global as "typeof(((union ibv_gid *)0)->global)" {
            /// The subnet's prefix, big endian.
            pub subnet_prefix: __be64,
            /// The port's identifier in the subnet, big endian.
            pub interface_id: __be64,
        }

        /// One entry of a port's table of GIDs, as ibv_query_gid_ex(3) gives it.
        #[derive(Clone, Copy)]
        pub struct ibv_gid_entry {
            /// The identifier.
            pub gid: ibv_gid,
            /// Its index in the port's table.
            pub gid_index: u32,
            /// The port, counted from 1.
            pub port_num: u32,
            /// What it is used with: an [`ibv_gid_type`].
            pub gid_type: u32,
            /// The network interface that has the address; 0 for none.
            pub ndev_ifindex: u32,
        }
    }
    enums {
        /// With which packets a GID is used.
        pub enum ibv_gid_type: u32 {
            /// InfiniBand's own.
            IBV_GID_TYPE_IB = 0,
            /// RoCE v1: a GRH directly on Ethernet.
            IBV_GID_TYPE_ROCE_V1 = 1,
            /// RoCE v2: on UDP, port 4791.
            IBV_GID_TYPE_ROCE_V2 = 2,
        }

        /// What a device is in its fabric.
        pub enum ibv_node_type: i32 {
            /// Not known to the library.
            IBV_NODE_UNKNOWN = -1,
            /// A channel adapter: InfiniBand's and RoCE's NICs.
            IBV_NODE_CA = 1,
            /// A switch.
            IBV_NODE_SWITCH = 2,
            /// A router.
            IBV_NODE_ROUTER = 3,
            /// An iWARP NIC.
            IBV_NODE_RNIC = 4,
            /// A usNIC, its own transport.
            IBV_NODE_USNIC = 5,
            /// A usNIC that uses UDP.
            IBV_NODE_USNIC_UDP = 6,
            /// The driver does not say.
            IBV_NODE_UNSPECIFIED = 7,
        }

        /// Which transport a device speaks.
        pub enum ibv_transport_type: i32 {
            /// Not known to the library.
            IBV_TRANSPORT_UNKNOWN = -1,
            /// InfiniBand's transport, RoCE's too.
            IBV_TRANSPORT_IB = 0,
            /// RDMA over TCP.
            IBV_TRANSPORT_IWARP = 1,
            /// usNIC's own.
            IBV_TRANSPORT_USNIC = 2,
            /// usNIC's on UDP.
            IBV_TRANSPORT_USNIC_UDP = 3,
            /// The driver does not say.
            IBV_TRANSPORT_UNSPECIFIED = 4,
        }
    }
}
