//! Paths to peers: routes, rates and address handles (infiniband/verbs.h).

use crate::{__be16, __be32, ibv_context, ibv_gid, ibv_pd};

c_items! {
    types {
        /// The part of a path that goes into the global route header; always used on RoCE.
        #[derive(Clone, Copy)]
        pub struct ibv_global_route {
            /// The destination.
            pub dgid: ibv_gid,
            /// The flow label, 20 bits. RoCE v2 derives the UDP source port from it.
            pub flow_label: u32,
            /// Index of the source in the port's table of GIDs.
            pub sgid_index: u8,
            /// Hops at most.
            pub hop_limit: u8,
            /// Traffic class; on RoCE v2 the IP header's ToS byte.
            pub traffic_class: u8,
        }

        /// A global route header, as it lies in the first 40 bytes of a UD receive. On RoCE v2 with IPv4 the IP
        /// header is in the last 20 of them.
        #[derive(Clone, Copy)]
        pub struct ibv_grh {
            /// Version, traffic class and flow label, big endian.
            pub version_tclass_flow: __be32,
            /// Length of what follows, bytes, big endian.
            pub paylen: __be16,
            /// Kind of the next header.
            pub next_hdr: u8,
            /// Hops left.
            pub hop_limit: u8,
            /// The source.
            pub sgid: ibv_gid,
            /// The destination.
            pub dgid: ibv_gid,
        }

        /// A path to a peer (ibv_create_ah(3), ibv_modify_qp(3)).
        #[derive(Clone, Copy)]
        pub struct ibv_ah_attr {
            /// The global route.
            pub grh: ibv_global_route,
            /// The destination's local identifier (InfiniBand).
            pub dlid: u16,
            /// Service level; on RoCE the VLAN's priority.
            pub sl: u8,
            /// Path bits of the source's LID.
            pub src_path_bits: u8,
            /// A limit of the rate: [`ibv_rate`].
            pub static_rate: u8,
            /// Whether `grh` counts; needed on RoCE.
            pub is_global: u8,
            /// The local port, counted from 1.
            pub port_num: u8,
        }

        /// An address handle: a path in a form that the card uses.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_ah {
            /// Its device.
            pub context: *mut ibv_context,
            /// Its protection domain.
            pub pd: *mut ibv_pd,
            /// The kernel's number of it.
            pub handle: u32,
        }
    }
    enums {
        /// The rate of a path.
        pub enum ibv_rate: u32 {
            /// No limit.
            IBV_RATE_MAX = 0,
            /// 2.5 Gbit/s.
            IBV_RATE_2_5_GBPS = 2,
            /// 5 Gbit/s.
            IBV_RATE_5_GBPS = 5,
            /// 10 Gbit/s.
            IBV_RATE_10_GBPS = 3,
            /// 20 Gbit/s.
            IBV_RATE_20_GBPS = 6,
            /// 30 Gbit/s.
            IBV_RATE_30_GBPS = 4,
            /// 40 Gbit/s.
            IBV_RATE_40_GBPS = 7,
            /// 60 Gbit/s.
            IBV_RATE_60_GBPS = 8,
            /// 80 Gbit/s.
            IBV_RATE_80_GBPS = 9,
            /// 120 Gbit/s.
            IBV_RATE_120_GBPS = 10,
            /// 14 Gbit/s.
            IBV_RATE_14_GBPS = 11,
            /// 56 Gbit/s.
            IBV_RATE_56_GBPS = 12,
            /// 112 Gbit/s.
            IBV_RATE_112_GBPS = 13,
            /// 168 Gbit/s.
            IBV_RATE_168_GBPS = 14,
            /// 25 Gbit/s.
            IBV_RATE_25_GBPS = 15,
            /// 100 Gbit/s.
            IBV_RATE_100_GBPS = 16,
            /// 200 Gbit/s.
            IBV_RATE_200_GBPS = 17,
            /// 300 Gbit/s.
            IBV_RATE_300_GBPS = 18,
            /// 28 Gbit/s.
            IBV_RATE_28_GBPS = 19,
            /// 50 Gbit/s.
            IBV_RATE_50_GBPS = 20,
            /// 400 Gbit/s.
            IBV_RATE_400_GBPS = 21,
            /// 600 Gbit/s.
            IBV_RATE_600_GBPS = 22,
            /// 800 Gbit/s.
            IBV_RATE_800_GBPS = 23,
            /// 1200 Gbit/s.
            IBV_RATE_1200_GBPS = 24,
        }
    }
    constants {
        /// Bytes of an Ethernet address.
        pub const ETHERNET_LL_SIZE: usize = 6;

        /// The lowest UDP source port of RoCE v2.
        pub const IB_ROCE_UDP_ENCAP_VALID_PORT_MIN: u32 = 0xc000;

        /// The highest UDP source port of RoCE v2.
        pub const IB_ROCE_UDP_ENCAP_VALID_PORT_MAX: u32 = 0xffff;

        /// The bits of a flow label.
        pub const IB_GRH_FLOWLABEL_MASK: u32 = 0x000f_ffff;
    }
}
