//! Addresses and routes of connections (rdma/rdma_cma.h, infiniband/sa.h, infiniband/ib.h).

use std::ffi::{c_int, c_ushort};

use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

use crate::{__be16, __be32, __be64, ibv_gid};

c_items! {
    types {
        /// The InfiniBand side of a connection's addresses.
        #[derive(Clone, Copy)]
        pub struct rdma_ib_addr {
            /// The source.
            pub sgid: ibv_gid,
            /// The destination.
            pub dgid: ibv_gid,
            /// The partition key, big endian.
            pub pkey: __be16,
        }

        /// The addresses of a connection.
        #[derive(Clone, Copy)]
        pub struct rdma_addr {
            /// The local one.
            pub src: rdma_addr_src,
            /// The peer's.
            pub dst: rdma_addr_dst,
            /// The fabric's.
            pub addr: rdma_addr_fabric,
        }

        /// A local address, by family.
        #[derive(Clone, Copy)]
        pub union rdma_addr_src as "" {
            /// Any family.
            pub src_addr: sockaddr,
            /// IPv4.
            pub src_sin: sockaddr_in,
            /// IPv6.
            pub src_sin6: sockaddr_in6,
            /// Room for all.
            pub src_storage: sockaddr_storage,
        }

        /// A peer's address, by family.
        #[derive(Clone, Copy)]
        pub union rdma_addr_dst as "" {
            /// Any family.
            pub dst_addr: sockaddr,
            /// IPv4.
            pub dst_sin: sockaddr_in,
            /// IPv6.
            pub dst_sin6: sockaddr_in6,
            /// Room for all.
            pub dst_storage: sockaddr_storage,
        }

        /// A fabric's addresses.
        #[derive(Clone, Copy)]
        pub union rdma_addr_fabric as "typeof(((struct rdma_addr *)0)->addr)" {
            /// InfiniBand's and RoCE's.
            pub ibaddr: rdma_ib_addr,
        }

        /// How a connection's packets go.
        #[derive(Clone, Copy)]
        pub struct rdma_route {
            /// Its addresses.
            pub addr: rdma_addr,
            /// Its paths; null before they are resolved, and always with iWARP.
            pub path_rec: *mut ibv_sa_path_rec,
            /// How many.
            pub num_paths: c_int,
        }

        /// A path, as the subnet administrator gives it.
        #[derive(Clone, Copy)]
        pub struct ibv_sa_path_rec {
            /// Destination.
            pub dgid: ibv_gid,
            /// Source.
            pub sgid: ibv_gid,
            /// The destination's local identifier, big endian.
            pub dlid: __be16,
            /// The source's local identifier, big endian.
            pub slid: __be16,
            /// Whether raw packets may use it.
            pub raw_traffic: c_int,
            /// Flow label, big endian.
            pub flow_label: __be32,
            /// Hops at most.
            pub hop_limit: u8,
            /// Traffic class.
            pub traffic_class: u8,
            /// Whether it serves both directions.
            pub reversible: c_int,
            /// Paths asked for, or found.
            pub numb_path: u8,
            /// Partition key, big endian.
            pub pkey: __be16,
            /// Service level.
            pub sl: u8,
            /// How `mtu` is meant: 2 is exactly.
            pub mtu_selector: u8,
            /// The path MTU: [`ibv_mtu`](crate::ibv_mtu).
            pub mtu: u8,
            /// How `rate` is meant: 2 is exactly.
            pub rate_selector: u8,
            /// The rate: [`ibv_rate`](crate::ibv_rate).
            pub rate: u8,
            /// How `packet_life_time` is meant: 2 is exactly.
            pub packet_life_time_selector: u8,
            /// How long a packet may be under way: 4.096 µs · 2^this.
            pub packet_life_time: u8,
            /// Rank among several paths; lower is better.
            pub preference: u8,
        }

        /// A path in the subnet administrator's own format, for [`RDMA_OPTION_IB_PATH`](crate::RDMA_OPTION_IB_PATH).
        #[derive(Clone, Copy)]
        pub struct ibv_path_record {
            /// Service, big endian.
            pub service_id: __be64,
            /// Destination.
            pub dgid: ibv_gid,
            /// Source.
            pub sgid: ibv_gid,
            /// The destination's local identifier, big endian.
            pub dlid: __be16,
            /// The source's local identifier, big endian.
            pub slid: __be16,
            /// Flow label in bits 27:8, hop limit in bits 7:0; big endian.
            pub flowlabel_hoplimit: __be32,
            /// Traffic class.
            pub tclass: u8,
            /// Reversible in bit 7, number of paths below.
            pub reversible_numpath: u8,
            /// Partition key, big endian.
            pub pkey: __be16,
            /// Class of service in bits 15:4, service level below; big endian.
            pub qosclass_sl: __be16,
            /// Selector in bits 7:6, [`ibv_mtu`](crate::ibv_mtu) below.
            pub mtu: u8,
            /// Selector in bits 7:6, [`ibv_rate`](crate::ibv_rate) below.
            pub rate: u8,
            /// Selector in bits 7:6, life time below.
            pub packetlifetime: u8,
            /// Rank among several paths.
            pub preference: u8,
            /// Zero.
            pub reserved: [u8; 6],
        }

        /// One path as rdma_set_option(3) takes it.
        #[derive(Clone, Copy)]
        pub struct ibv_path_data {
            /// `IBV_PATH_FLAG_*`.
            pub flags: u32,
            /// Zero.
            pub reserved: u32,
            /// The path.
            pub path: ibv_path_record,
        }

        /// An address of AF_IB: a GID.
        #[derive(Clone, Copy)]
        pub struct ib_addr {
            /// In units of several widths, all in network order.
            pub ib_u: ib_addr_words,
        }

        /// The words of an [`ib_addr`].
        #[derive(Clone, Copy)]
        pub union ib_addr_words as "typeof(((struct ib_addr *)0)->ib_u)" {
            /// Bytes.
            pub uib_addr8: [u8; 16],
            /// 16 bits each, big endian.
            pub uib_addr16: [__be16; 8],
            /// 32 bits each, big endian.
            pub uib_addr32: [__be32; 4],
            /// 64 bits each, big endian.
            pub uib_addr64: [__be64; 2],
        }

        /// A socket address of AF_IB.
        #[derive(Clone, Copy)]
        pub struct sockaddr_ib {
            /// [`AF_IB`].
            pub sib_family: c_ushort,
            /// Partition key, big endian.
            pub sib_pkey: __be16,
            /// Flow label, big endian.
            pub sib_flowinfo: __be32,
            /// The GID.
            pub sib_addr: ib_addr,
            /// Service identifier: port space and port, big endian.
            pub sib_sid: __be64,
            /// Which bits of it count, big endian.
            pub sib_sid_mask: __be64,
            /// Scope.
            pub sib_scope_id: u64,
        }
    }
    constants {
        /// The address family of InfiniBand.
        pub const AF_IB: c_int = 27;

        /// A path serves both directions.
        pub const IBV_PATH_RECORD_REVERSIBLE: u8 = 0x80;

        /// The path is for management packets, too.
        pub const IBV_PATH_FLAG_GMP: u32 = 1 << 0;

        /// The primary path.
        pub const IBV_PATH_FLAG_PRIMARY: u32 = 1 << 1;

        /// The alternate path.
        pub const IBV_PATH_FLAG_ALTERNATE: u32 = 1 << 2;

        /// Towards the peer.
        pub const IBV_PATH_FLAG_OUTBOUND: u32 = 1 << 3;

        /// From the peer.
        pub const IBV_PATH_FLAG_INBOUND: u32 = 1 << 4;

        /// From the peer, by the reverse of an outbound path.
        pub const IBV_PATH_FLAG_INBOUND_REVERSE: u32 = 1 << 5;

        /// Both directions.
        pub const IBV_PATH_FLAG_BIDIRECTIONAL: u32 = 0x28;

        /// The port space in a service identifier.
        pub const RDMA_IB_IP_PS_MASK: u64 = 0xffff_ffff_ffff_0000;

        /// The port in a service identifier.
        pub const RDMA_IB_IP_PORT_MASK: u64 = 0xffff;

        /// Service identifiers of [`RDMA_PS_TCP`](crate::RDMA_PS_TCP).
        pub const RDMA_IB_IP_PS_TCP: u64 = 0x0106_0000;

        /// Service identifiers of [`RDMA_PS_UDP`](crate::RDMA_PS_UDP).
        pub const RDMA_IB_IP_PS_UDP: u64 = 0x0111_0000;

        /// Service identifiers of [`RDMA_PS_IB`](crate::RDMA_PS_IB).
        pub const RDMA_IB_PS_IB: u64 = 0x013f_0000;
    }
}
