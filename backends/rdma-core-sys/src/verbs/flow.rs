//! Flow rules: which received packets a QP gets; counters of them (infiniband/verbs.h).

use crate::ibv_context;

c_items! {
    types {
        /// What is matched of an Ethernet header.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_eth_filter {
            /// Destination.
            pub dst_mac: [u8; 6],
            /// Source.
            pub src_mac: [u8; 6],
            /// Type, big endian.
            pub ether_type: u16,
            /// VLAN tag, big endian.
            pub vlan_tag: u16,
        }

        /// Matches an Ethernet header.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_spec_eth {
            /// [`IBV_FLOW_SPEC_ETH`].
            pub r#type: ibv_flow_spec_type,
            /// The size of this structure, bytes.
            pub size: u16,
            /// What the header must have,
            pub val: ibv_flow_eth_filter,
            /// in these bits.
            pub mask: ibv_flow_eth_filter,
        }

        /// What is matched of an IPv4 header.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_ipv4_filter {
            /// Source, big endian.
            pub src_ip: u32,
            /// Destination, big endian.
            pub dst_ip: u32,
        }

        /// Matches an IPv4 header.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_spec_ipv4 {
            /// [`IBV_FLOW_SPEC_IPV4`].
            pub r#type: ibv_flow_spec_type,
            /// The size of this structure, bytes.
            pub size: u16,
            /// What the header must have,
            pub val: ibv_flow_ipv4_filter,
            /// in these bits.
            pub mask: ibv_flow_ipv4_filter,
        }

        /// What is matched of an IPv4 header, more of it.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_ipv4_ext_filter {
            /// Source, big endian.
            pub src_ip: u32,
            /// Destination, big endian.
            pub dst_ip: u32,
            /// Protocol.
            pub proto: u8,
            /// Type of service: DSCP in the upper 6 bits, ECN in the lower 2.
            pub tos: u8,
            /// Time to live.
            pub ttl: u8,
            /// Fragmentation: 2 is don't fragment, 4 is more fragments.
            pub flags: u8,
        }

        /// Matches an IPv4 header, more of it.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_spec_ipv4_ext {
            /// [`IBV_FLOW_SPEC_IPV4_EXT`].
            pub r#type: ibv_flow_spec_type,
            /// The size of this structure, bytes.
            pub size: u16,
            /// What the header must have,
            pub val: ibv_flow_ipv4_ext_filter,
            /// in these bits.
            pub mask: ibv_flow_ipv4_ext_filter,
        }

        /// What is matched of an IPv6 header.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_ipv6_filter {
            /// Source.
            pub src_ip: [u8; 16],
            /// Destination.
            pub dst_ip: [u8; 16],
            /// Flow label, big endian.
            pub flow_label: u32,
            /// Kind of the next header.
            pub next_hdr: u8,
            /// Traffic class.
            pub traffic_class: u8,
            /// Hop limit.
            pub hop_limit: u8,
        }

        /// Matches an IPv6 header.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_spec_ipv6 {
            /// [`IBV_FLOW_SPEC_IPV6`].
            pub r#type: ibv_flow_spec_type,
            /// The size of this structure, bytes.
            pub size: u16,
            /// What the header must have,
            pub val: ibv_flow_ipv6_filter,
            /// in these bits.
            pub mask: ibv_flow_ipv6_filter,
        }

        /// What is matched of an ESP header.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_esp_filter {
            /// Security parameter index, big endian.
            pub spi: u32,
            /// Sequence number, big endian.
            pub seq: u32,
        }

        /// Matches an ESP header.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_spec_esp {
            /// [`IBV_FLOW_SPEC_ESP`].
            pub r#type: ibv_flow_spec_type,
            /// The size of this structure, bytes.
            pub size: u16,
            /// What the header must have,
            pub val: ibv_flow_esp_filter,
            /// in these bits.
            pub mask: ibv_flow_esp_filter,
        }

        /// What is matched of a TCP or UDP header.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_tcp_udp_filter {
            /// Destination port, big endian. It comes first.
            pub dst_port: u16,
            /// Source port, big endian.
            pub src_port: u16,
        }

        /// Matches a TCP or UDP header.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_spec_tcp_udp {
            /// [`IBV_FLOW_SPEC_TCP`] or [`IBV_FLOW_SPEC_UDP`].
            pub r#type: ibv_flow_spec_type,
            /// The size of this structure, bytes.
            pub size: u16,
            /// What the header must have,
            pub val: ibv_flow_tcp_udp_filter,
            /// in these bits.
            pub mask: ibv_flow_tcp_udp_filter,
        }

        /// What is matched of a GRE header.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_gre_filter {
            /// Flags and version, big endian.
            pub c_ks_res0_ver: u16,
            /// Protocol, big endian.
            pub protocol: u16,
            /// Key, big endian.
            pub key: u32,
        }

        /// Matches a GRE header.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_spec_gre {
            /// [`IBV_FLOW_SPEC_GRE`].
            pub r#type: ibv_flow_spec_type,
            /// The size of this structure, bytes.
            pub size: u16,
            /// What the header must have,
            pub val: ibv_flow_gre_filter,
            /// in these bits.
            pub mask: ibv_flow_gre_filter,
        }

        /// What is matched of an MPLS label.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_mpls_filter {
            /// Label, traffic class, bottom of stack and TTL, big endian.
            pub label: u32,
        }

        /// Matches an MPLS label.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_spec_mpls {
            /// [`IBV_FLOW_SPEC_MPLS`].
            pub r#type: ibv_flow_spec_type,
            /// The size of this structure, bytes.
            pub size: u16,
            /// What the header must have,
            pub val: ibv_flow_mpls_filter,
            /// in these bits.
            pub mask: ibv_flow_mpls_filter,
        }

        /// What is matched of a VXLAN header.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_tunnel_filter {
            /// The network identifier, big endian.
            pub tunnel_id: u32,
        }

        /// Matches a VXLAN header; what follows with [`IBV_FLOW_SPEC_INNER`] matches inside.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_spec_tunnel {
            /// [`IBV_FLOW_SPEC_VXLAN_TUNNEL`].
            pub r#type: ibv_flow_spec_type,
            /// The size of this structure, bytes.
            pub size: u16,
            /// What the header must have,
            pub val: ibv_flow_tunnel_filter,
            /// in these bits.
            pub mask: ibv_flow_tunnel_filter,
        }

        /// Tags matching packets.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_spec_action_tag {
            /// [`IBV_FLOW_SPEC_ACTION_TAG`].
            pub r#type: ibv_flow_spec_type,
            /// The size of this structure, bytes.
            pub size: u16,
            /// The tag, 24 bits, given by the completion; 0 is none.
            pub tag_id: u32,
        }

        /// Drops matching packets.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_spec_action_drop {
            /// [`IBV_FLOW_SPEC_ACTION_DROP`].
            pub r#type: ibv_flow_spec_type,
            /// The size of this structure, bytes.
            pub size: u16,
        }

        /// Does with matching packets what an action object says.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_spec_action_handle {
            /// [`IBV_FLOW_SPEC_ACTION_HANDLE`].
            pub r#type: ibv_flow_spec_type,
            /// The size of this structure, bytes.
            pub size: u16,
            /// The action.
            pub action: *const ibv_flow_action,
        }

        /// Counts matching packets.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_spec_counter_action {
            /// [`IBV_FLOW_SPEC_ACTION_COUNT`].
            pub r#type: ibv_flow_spec_type,
            /// The size of this structure, bytes.
            pub size: u16,
            /// Where they are counted.
            pub counters: *mut ibv_counters,
        }

        /// Room for any specification. In a rule each is as long as its `size` says, and the next follows at
        /// once.
        #[derive(Clone, Copy)]
        pub struct ibv_flow_spec {
            /// Which of them, its `type` says.
            pub spec: ibv_flow_spec_any,
        }

        /// Any specification.
        #[derive(Clone, Copy)]
        pub union ibv_flow_spec_any as "" {
            /// What all begin with.
            pub hdr: ibv_flow_spec_hdr,
            /// Ethernet.
            pub eth: ibv_flow_spec_eth,
            /// IPv4.
            pub ipv4: ibv_flow_spec_ipv4,
            /// TCP or UDP.
            pub tcp_udp: ibv_flow_spec_tcp_udp,
            /// IPv4, more of it.
            pub ipv4_ext: ibv_flow_spec_ipv4_ext,
            /// IPv6.
            pub ipv6: ibv_flow_spec_ipv6,
            /// ESP.
            pub esp: ibv_flow_spec_esp,
            /// VXLAN.
            pub tunnel: ibv_flow_spec_tunnel,
            /// GRE.
            pub gre: ibv_flow_spec_gre,
            /// MPLS.
            pub mpls: ibv_flow_spec_mpls,
            /// A tag.
            pub flow_tag: ibv_flow_spec_action_tag,
            /// Dropping.
            pub drop: ibv_flow_spec_action_drop,
            /// An action object.
            pub handle: ibv_flow_spec_action_handle,
            /// Counting.
            pub flow_count: ibv_flow_spec_counter_action,
        }

        /// What every specification begins with.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_spec_hdr as "typeof(((struct ibv_flow_spec *)0)->hdr)" {
            /// Which it is: [`ibv_flow_spec_type`].
            pub r#type: ibv_flow_spec_type,
            /// Its size, bytes.
            pub size: u16,
        }

        /// A flow rule (ibv_create_flow(3)); `num_of_specs` specifications follow it in memory.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_attr {
            /// Must be 0.
            pub comp_mask: u32,
            /// Its kind.
            pub r#type: ibv_flow_attr_type,
            /// The size of this structure and of what follows, bytes.
            pub size: u16,
            /// Lower numbers match first.
            pub priority: u16,
            /// Specifications that follow.
            pub num_of_specs: u8,
            /// The local port, counted from 1.
            pub port: u8,
            /// [`ibv_flow_flags`].
            pub flags: u32,
        }

        /// A flow rule in force.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow {
            /// Unused: 0.
            pub comp_mask: u32,
            /// Its device.
            pub context: *mut ibv_context,
            /// The kernel's number of it.
            pub handle: u32,
        }

        /// An action object of flow rules.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_flow_action {
            /// Its device.
            pub context: *mut ibv_context,
        }

        /// What counters are made of: nothing beyond the usual.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_counters_init_attr {
            /// Must be 0.
            pub comp_mask: u32,
        }

        /// A set of counters (ibv_create_counters(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_counters {
            /// Its device.
            pub context: *mut ibv_context,
        }

        /// What is counted where (ibv_attach_counters_point_flow(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_counter_attach_attr {
            /// What is counted.
            pub counter_desc: ibv_counter_description,
            /// The counter's place in what [`ibv_read_counters`](crate::ibv_read_counters) gives.
            pub index: u32,
            /// Must be 0.
            pub comp_mask: u32,
        }
    }
    enums {
        /// How a rule matches.
        pub enum ibv_flow_flags: u32 {
            /// Matching packets go on to other rules, too.
            IBV_FLOW_ATTR_FLAGS_DONT_TRAP = 1 << 1,
            /// It matches sent packets.
            IBV_FLOW_ATTR_FLAGS_EGRESS = 1 << 2,
        }

        /// Kinds of rule.
        pub enum ibv_flow_attr_type: u32 {
            /// What its specifications say.
            IBV_FLOW_ATTR_NORMAL = 0x0,
            /// All packets that no other rule takes.
            IBV_FLOW_ATTR_ALL_DEFAULT = 0x1,
            /// All multicast packets that no other rule takes.
            IBV_FLOW_ATTR_MC_DEFAULT = 0x2,
            /// A copy of all packets.
            IBV_FLOW_ATTR_SNIFFER = 0x3,
        }

        /// Kinds of specification.
        pub enum ibv_flow_spec_type: u32 {
            /// Ethernet.
            IBV_FLOW_SPEC_ETH = 0x20,
            /// IPv4.
            IBV_FLOW_SPEC_IPV4 = 0x30,
            /// IPv6.
            IBV_FLOW_SPEC_IPV6 = 0x31,
            /// IPv4, more of it.
            IBV_FLOW_SPEC_IPV4_EXT = 0x32,
            /// ESP.
            IBV_FLOW_SPEC_ESP = 0x34,
            /// TCP.
            IBV_FLOW_SPEC_TCP = 0x40,
            /// UDP.
            IBV_FLOW_SPEC_UDP = 0x41,
            /// VXLAN.
            IBV_FLOW_SPEC_VXLAN_TUNNEL = 0x50,
            /// GRE.
            IBV_FLOW_SPEC_GRE = 0x51,
            /// MPLS.
            IBV_FLOW_SPEC_MPLS = 0x60,
            /// Added to another: it matches inside the tunnel.
            IBV_FLOW_SPEC_INNER = 0x100,
            /// Tags packets.
            IBV_FLOW_SPEC_ACTION_TAG = 0x1000,
            /// Drops packets.
            IBV_FLOW_SPEC_ACTION_DROP = 0x1001,
            /// An action object.
            IBV_FLOW_SPEC_ACTION_HANDLE = 0x1002,
            /// Counts packets.
            IBV_FLOW_SPEC_ACTION_COUNT = 0x1003,
        }

        /// What a counter counts.
        pub enum ibv_counter_description: u32 {
            /// Packets.
            IBV_COUNTER_PACKETS = 0,
            /// Bytes.
            IBV_COUNTER_BYTES = 1,
        }

        /// How counters are read.
        pub enum ibv_read_counters_flags: u32 {
            /// What the driver knows may do.
            IBV_READ_COUNTERS_ATTR_PREFER_CACHED = 1 << 0,
        }
    }
}
