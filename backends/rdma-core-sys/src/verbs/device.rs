//! Devices and what they can do (infiniband/verbs.h).

use std::ffi::{c_char, c_int, c_uint};

use crate::{__be64, ibv_context, ibv_node_type, ibv_transport_type};

c_items! {
    types {
        /// Two pointers that were entry points once, and keep the layout of [`ibv_device`].
        #[derive(Clone, Copy, Debug)]
        pub struct _ibv_device_ops {
            /// Unused.
            pub _dummy1: Option<unsafe extern "C" fn(device: *mut ibv_device, cmd_fd: c_int) -> *mut ibv_context>,
            /// Unused.
            pub _dummy2: Option<unsafe extern "C" fn(context: *mut ibv_context)>,
        }

        /// A device, opened or not, as ibv_get_device_list(3) lists it.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_device {
            /// Unused.
            pub _ops: _ibv_device_ops,
            /// What it is in its fabric.
            pub node_type: ibv_node_type,
            /// Which transport it speaks.
            pub transport_type: ibv_transport_type,
            /// The kernel's name of it (mlx5_0), ended by NUL.
            pub name: [c_char; 64],
            /// The name of its character device (uverbs0), ended by NUL.
            pub dev_name: [c_char; 64],
            /// The sysfs path of the character device, ended by NUL.
            pub dev_path: [c_char; 256],
            /// The sysfs path of the device, ended by NUL.
            pub ibdev_path: [c_char; 256],
        }

        /// What a device can do, as ibv_query_device(3) gives it.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_device_attr {
            /// The firmware's version, ended by NUL.
            pub fw_ver: [c_char; 64],
            /// The node's GUID, big endian.
            pub node_guid: __be64,
            /// The GUID of the system that the node belongs to, big endian.
            pub sys_image_guid: __be64,
            /// The largest memory region, bytes.
            pub max_mr_size: u64,
            /// Supported page sizes: a bit for each power of two, bytes.
            pub page_size_cap: u64,
            /// The vendor's IEEE OUI.
            pub vendor_id: u32,
            /// The vendor's number of the part.
            pub vendor_part_id: u32,
            /// The hardware's version.
            pub hw_ver: u32,
            /// Queue pairs at most.
            pub max_qp: c_int,
            /// Work requests outstanding in a queue at most.
            pub max_qp_wr: c_int,
            /// Abilities: [`ibv_device_cap_flags`].
            pub device_cap_flags: c_uint,
            /// Elements of a scatter/gather list at most, except for reads.
            pub max_sge: c_int,
            /// Elements of an RDMA read's scatter list at most.
            pub max_sge_rd: c_int,
            /// Completion queues at most.
            pub max_cq: c_int,
            /// Entries of a completion queue at most.
            pub max_cqe: c_int,
            /// Memory regions at most.
            pub max_mr: c_int,
            /// Protection domains at most.
            pub max_pd: c_int,
            /// RDMA reads and atomics that a QP can be the target of at a time.
            pub max_qp_rd_atom: c_int,
            /// The same of an EE context (reliable datagrams).
            pub max_ee_rd_atom: c_int,
            /// The same of the whole device.
            pub max_res_rd_atom: c_int,
            /// RDMA reads and atomics that a QP can have under way as initiator.
            pub max_qp_init_rd_atom: c_int,
            /// The same of an EE context.
            pub max_ee_init_rd_atom: c_int,
            /// How far atomics are atomic.
            pub atomic_cap: ibv_atomic_cap,
            /// EE contexts at most.
            pub max_ee: c_int,
            /// Reliable datagram domains at most.
            pub max_rdd: c_int,
            /// Memory windows at most.
            pub max_mw: c_int,
            /// Raw IPv6 QPs at most.
            pub max_raw_ipv6_qp: c_int,
            /// Raw Ethertype QPs at most.
            pub max_raw_ethy_qp: c_int,
            /// Multicast groups at most.
            pub max_mcast_grp: c_int,
            /// QPs in one multicast group at most.
            pub max_mcast_qp_attach: c_int,
            /// QPs in multicast groups at most, over all groups.
            pub max_total_mcast_qp_attach: c_int,
            /// Address handles at most.
            pub max_ah: c_int,
            /// Fast memory regions at most.
            pub max_fmr: c_int,
            /// Mappings of a fast memory region at most.
            pub max_map_per_fmr: c_int,
            /// Shared receive queues at most.
            pub max_srq: c_int,
            /// Work requests of a shared receive queue at most.
            pub max_srq_wr: c_int,
            /// Elements of a scatter list in a shared receive queue at most.
            pub max_srq_sge: c_int,
            /// Partition keys at most.
            pub max_pkeys: u16,
            /// The device's own delay of an acknowledgment: 4.096 µs · 2^this.
            pub local_ca_ack_delay: u8,
            /// Physical ports.
            pub phys_port_cnt: u8,
        }

        /// What a caller of ibv_query_device_ex(3) asks beyond the usual: nothing is defined.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_query_device_ex_input {
            /// Must be 0.
            pub comp_mask: u32,
        }

        /// On-demand paging: what may fault.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_odp_caps {
            /// [`ibv_odp_general_caps`].
            pub general_caps: u64,
            /// By transport.
            pub per_transport_caps: ibv_odp_transport_caps,
        }

        /// What may fault on which transport: [`ibv_odp_transport_cap_bits`].
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_odp_transport_caps as "typeof(((struct ibv_odp_caps *)0)->per_transport_caps)" {
            /// On reliable connections.
            pub rc_odp_caps: u32,
            /// On unreliable connections.
            pub uc_odp_caps: u32,
            /// On unreliable datagrams.
            pub ud_odp_caps: u32,
        }

        /// Segmentation of TCP by the card.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_tso_caps {
            /// The most payload of one request, bytes; 0 where there is none.
            pub max_tso: u32,
            /// A bit `1 << ibv_qp_type` for each kind of QP that can.
            pub supported_qpts: u32,
        }

        /// Spreading of received packets over queues.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_rss_caps {
            /// A bit `1 << ibv_qp_type` for each kind of QP that can.
            pub supported_qpts: u32,
            /// Indirection tables at most.
            pub max_rwq_indirection_tables: u32,
            /// Entries of a table at most.
            pub max_rwq_indirection_table_size: u32,
            /// What can be hashed: [`ibv_rx_hash_fields`].
            pub rx_hash_fields_mask: u64,
            /// How it can be hashed: [`ibv_rx_hash_function_flags`].
            pub rx_hash_function: u8,
        }

        /// Pacing of a send queue.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_packet_pacing_caps {
            /// The lowest rate, kbit/s.
            pub qp_rate_limit_min: u32,
            /// The highest rate, kbit/s; 0 where there is no pacing.
            pub qp_rate_limit_max: u32,
            /// A bit `1 << ibv_qp_type` for each kind of QP that can.
            pub supported_qpts: u32,
        }

        /// Tag matching by the card.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_tm_caps {
            /// The longest header of a rendezvous request, bytes.
            pub max_rndv_hdr_size: u32,
            /// Tags in a list at most.
            pub max_num_tags: u32,
            /// [`ibv_tm_cap_flags`].
            pub flags: u32,
            /// List operations outstanding at most.
            pub max_ops: u32,
            /// Elements of a scatter list at most.
            pub max_sge: u32,
        }

        /// How far completion events can be moderated.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_cq_moderation_caps {
            /// Completions before an event at most.
            pub max_cq_count: u16,
            /// Time before an event at most, µs.
            pub max_cq_period: u16,
        }

        /// Atomic operations of PCIe by size: [`ibv_pci_atomic_op_size`].
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_pci_atomic_caps {
            /// Fetch and add.
            pub fetch_add: u16,
            /// Swap.
            pub swap: u16,
            /// Compare and swap.
            pub compare_swap: u16,
        }

        /// What a device can do, as ibv_query_device_ex(3) gives it. Newer libraries may know more.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_device_attr_ex {
            /// What ibv_query_device(3) gives.
            pub orig_attr: ibv_device_attr,
            /// Unused: 0.
            pub comp_mask: u32,
            /// On-demand paging.
            pub odp_caps: ibv_odp_caps,
            /// The bits of a completion's timestamp that count; 0 where there are none.
            pub completion_timestamp_mask: u64,
            /// The frequency of the clock of timestamps, kHz.
            pub hca_core_clock: u64,
            /// All abilities: [`ibv_device_cap_flags`] and those above bit 31.
            pub device_cap_flags_ex: u64,
            /// Segmentation.
            pub tso_caps: ibv_tso_caps,
            /// Receive side scaling.
            pub rss_caps: ibv_rss_caps,
            /// Receive work queues at most.
            pub max_wq_type_rq: u32,
            /// Pacing.
            pub packet_pacing_caps: ibv_packet_pacing_caps,
            /// Of raw packet QPs: [`ibv_raw_packet_caps`].
            pub raw_packet_caps: u32,
            /// Tag matching.
            pub tm_caps: ibv_tm_caps,
            /// Moderation of completion events.
            pub cq_mod_caps: ibv_cq_moderation_caps,
            /// Device memory, bytes.
            pub max_dm_size: u64,
            /// Atomic operations towards the host.
            pub pci_atomic_caps: ibv_pci_atomic_caps,
            /// On-demand paging of XRC: [`ibv_odp_transport_cap_bits`].
            pub xrc_odp_caps: u32,
            /// Physical ports, where there may be more than 255.
            pub phys_port_cnt_ex: u32,
        }
    }
    enums {
        /// Abilities of a device (ibv_query_device(3)).
        pub enum ibv_device_cap_flags: u32 {
            /// Queues of a QP can be resized.
            IBV_DEVICE_RESIZE_MAX_WR = 1,
            /// Counts bad partition keys.
            IBV_DEVICE_BAD_PKEY_CNTR = 1 << 1,
            /// Counts bad queue keys.
            IBV_DEVICE_BAD_QKEY_CNTR = 1 << 2,
            /// Raw packets to multicast groups.
            IBV_DEVICE_RAW_MULTI = 1 << 3,
            /// Migrates to the alternate path by itself.
            IBV_DEVICE_AUTO_PATH_MIG = 1 << 4,
            /// A QP's port can be changed.
            IBV_DEVICE_CHANGE_PHY_PORT = 1 << 5,
            /// Checks the port of address handles.
            IBV_DEVICE_UD_AV_PORT_ENFORCE = 1 << 6,
            /// ibv_modify_qp(3) may name the current state.
            IBV_DEVICE_CURR_QP_STATE_MOD = 1 << 7,
            /// Ports can be shut down.
            IBV_DEVICE_SHUTDOWN_PORT = 1 << 8,
            /// Has the port's InitType.
            IBV_DEVICE_INIT_TYPE = 1 << 9,
            /// Tells when a port becomes active.
            IBV_DEVICE_PORT_ACTIVE_EVENT = 1 << 10,
            /// Has a system image GUID.
            IBV_DEVICE_SYS_IMAGE_GUID = 1 << 11,
            /// Answers RNR NAK where no receive is posted.
            IBV_DEVICE_RC_RNR_NAK_GEN = 1 << 12,
            /// Shared receive queues can be resized.
            IBV_DEVICE_SRQ_RESIZE = 1 << 13,
            /// Events after N completions.
            IBV_DEVICE_N_NOTIFY_CQ = 1 << 14,
            /// Memory windows.
            IBV_DEVICE_MEM_WINDOW = 1 << 17,
            /// IPv4, TCP and UDP checksums on UD QPs.
            IBV_DEVICE_UD_IP_CSUM = 1 << 18,
            /// Extended reliable connections.
            IBV_DEVICE_XRC = 1 << 20,
            /// Local invalidate, send with invalidate, fast registration.
            IBV_DEVICE_MEM_MGT_EXTENSIONS = 1 << 21,
            /// Memory windows of type 2A.
            IBV_DEVICE_MEM_WINDOW_TYPE_2A = 1 << 23,
            /// Memory windows of type 2B.
            IBV_DEVICE_MEM_WINDOW_TYPE_2B = 1 << 24,
            /// Checksums on RC QPs.
            IBV_DEVICE_RC_IP_CSUM = 1 << 25,
            /// Checksums on raw packet QPs.
            IBV_DEVICE_RAW_IP_CSUM = 1 << 26,
            /// Flow rules ([`ibv_create_flow`](crate::ibv_create_flow)).
            IBV_DEVICE_MANAGED_FLOW_STEERING = 1 << 29,
        }

        /// How far atomics are atomic.
        pub enum ibv_atomic_cap: u32 {
            /// There are none.
            IBV_ATOMIC_NONE = 0,
            /// Among QPs of this device.
            IBV_ATOMIC_HCA = 1,
            /// Among everything that touches the memory, processors included.
            IBV_ATOMIC_GLOB = 2,
        }

        /// What may fault under on-demand paging.
        pub enum ibv_odp_transport_cap_bits: u32 {
            /// Sends.
            IBV_ODP_SUPPORT_SEND = 1 << 0,
            /// Receives.
            IBV_ODP_SUPPORT_RECV = 1 << 1,
            /// RDMA writes.
            IBV_ODP_SUPPORT_WRITE = 1 << 2,
            /// RDMA reads.
            IBV_ODP_SUPPORT_READ = 1 << 3,
            /// Atomics.
            IBV_ODP_SUPPORT_ATOMIC = 1 << 4,
            /// Receives from a shared receive queue.
            IBV_ODP_SUPPORT_SRQ_RECV = 1 << 5,
        }

        /// On-demand paging as a whole.
        pub enum ibv_odp_general_caps: u32 {
            /// There is some.
            IBV_ODP_SUPPORT = 1 << 0,
            /// One region may span the whole address space.
            IBV_ODP_SUPPORT_IMPLICIT = 1 << 1,
        }

        /// Hash functions of receive side scaling.
        pub enum ibv_rx_hash_function_flags: u32 {
            /// Toeplitz, with a key of 40 bytes.
            IBV_RX_HASH_FUNC_TOEPLITZ = 1 << 0,
        }

        /// Which fields of a received packet are hashed. Ports of TCP and UDP exclude each other.
        pub enum ibv_rx_hash_fields: u32 {
            /// IPv4 source.
            IBV_RX_HASH_SRC_IPV4 = 1 << 0,
            /// IPv4 destination.
            IBV_RX_HASH_DST_IPV4 = 1 << 1,
            /// IPv6 source.
            IBV_RX_HASH_SRC_IPV6 = 1 << 2,
            /// IPv6 destination.
            IBV_RX_HASH_DST_IPV6 = 1 << 3,
            /// TCP source port.
            IBV_RX_HASH_SRC_PORT_TCP = 1 << 4,
            /// TCP destination port.
            IBV_RX_HASH_DST_PORT_TCP = 1 << 5,
            /// UDP source port.
            IBV_RX_HASH_SRC_PORT_UDP = 1 << 6,
            /// UDP destination port.
            IBV_RX_HASH_DST_PORT_UDP = 1 << 7,
            /// IPsec's security parameter index.
            IBV_RX_HASH_IPSEC_SPI = 1 << 8,
            /// The inner headers of a tunnel instead of the outer ones.
            IBV_RX_HASH_INNER = 1 << 31,
        }

        /// Abilities of raw packet QPs.
        pub enum ibv_raw_packet_caps: u32 {
            /// Takes the VLAN tag off received frames and reports it in the completion.
            IBV_RAW_PACKET_CAP_CVLAN_STRIPPING = 1 << 0,
            /// Can hand over the frame check sequence.
            IBV_RAW_PACKET_CAP_SCATTER_FCS = 1 << 1,
            /// Computes and checks IPv4, TCP and UDP checksums.
            IBV_RAW_PACKET_CAP_IP_CSUM = 1 << 2,
            /// Holds frames back for a while where no receive is posted.
            IBV_RAW_PACKET_CAP_DELAY_DROP = 1 << 3,
        }

        /// Where tag matching works.
        pub enum ibv_tm_cap_flags: u32 {
            /// On reliable connections.
            IBV_TM_CAP_RC = 1 << 0,
        }

        /// Sizes of PCIe's atomics.
        pub enum ibv_pci_atomic_op_size: u32 {
            /// 4 bytes.
            IBV_PCI_ATOMIC_OPERATION_4_BYTE_SIZE_SUP = 1 << 0,
            /// 8 bytes.
            IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP = 1 << 1,
            /// 16 bytes.
            IBV_PCI_ATOMIC_OPERATION_16_BYTE_SIZE_SUP = 1 << 2,
        }

        /// Whether this process may fork and keep its registered memory (ibv_is_fork_initialized(3)).
        pub enum ibv_fork_status: u32 {
            /// It may not.
            IBV_FORK_DISABLED = 0,
            /// It may, by ibv_fork_init(3).
            IBV_FORK_ENABLED = 1,
            /// It may: the kernel copies pinned pages when forking.
            IBV_FORK_UNNEEDED = 2,
        }
    }
    constants {
        /// Bytes of a device's name, NUL included.
        pub const IBV_SYSFS_NAME_MAX: usize = 64;

        /// Bytes of a sysfs path, NUL included.
        pub const IBV_SYSFS_PATH_MAX: usize = 256;

        /// A bit of `device_cap_flags_ex`: raw packet QPs can hand over the frame check sequence.
        pub const IBV_DEVICE_RAW_SCATTER_FCS: u64 = 1 << 34;

        /// A bit of `device_cap_flags_ex`: writes to memory can be padded to whole cache lines.
        pub const IBV_DEVICE_PCI_WRITE_END_PADDING: u64 = 1 << 36;
    }
}
