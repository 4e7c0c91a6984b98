//! Connection identifiers, their events and parameters (rdma/rdma_cma.h).

use std::ffi::{c_char, c_int, c_void};

use libc::{sockaddr, socklen_t};

use crate::{ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_qp_type, ibv_srq, rdma_route};

c_items! {
    types {
        /// A channel that events of connections come through.
        #[derive(Clone, Copy, Debug)]
        pub struct rdma_event_channel {
            /// Its descriptor: readable when an event is there.
            pub fd: c_int,
        }

        /// What stands for a connection or a listener, as a socket does.
        #[derive(Clone, Copy)]
        pub struct rdma_cm_id {
            /// The device, once it is known.
            pub verbs: *mut ibv_context,
            /// Where its events go.
            pub channel: *mut rdma_event_channel,
            /// The caller's own pointer.
            pub context: *mut c_void,
            /// The QP that rdma_create_qp(3) made, or null.
            pub qp: *mut ibv_qp,
            /// Its addresses and paths.
            pub route: rdma_route,
            /// Its port space.
            pub ps: rdma_port_space,
            /// The local port, counted from 1.
            pub port_num: u8,
            /// The event at hand, where calls are synchronous.
            pub event: *mut rdma_cm_event,
            /// Completion events of sends, if the library made the queues.
            pub send_cq_channel: *mut ibv_comp_channel,
            /// Where sends complete.
            pub send_cq: *mut ibv_cq,
            /// Completion events of receives, if the library made the queues.
            pub recv_cq_channel: *mut ibv_comp_channel,
            /// Where receives complete.
            pub recv_cq: *mut ibv_cq,
            /// Its shared receive queue, or null.
            pub srq: *mut ibv_srq,
            /// Its protection domain.
            pub pd: *mut ibv_pd,
            /// The kind of its QP.
            pub qp_type: ibv_qp_type,
        }

        /// How a connection is made or accepted (rdma_connect(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct rdma_conn_param {
            /// Bytes that the peer gets.
            pub private_data: *const c_void,
            /// How many of them.
            pub private_data_len: u8,
            /// Reads and atomics that the peer may have under way towards us.
            pub responder_resources: u8,
            /// Reads and atomics that we may have under way.
            pub initiator_depth: u8,
            /// Whether the hardware controls the flow.
            pub flow_control: u8,
            /// Retries after a timeout, 0 to 7.
            pub retry_count: u8,
            /// Retries after an RNR NAK, 0 to 6; 7 is for ever.
            pub rnr_retry_count: u8,
            /// Whether the QP has a shared receive queue; only where the identifier has no QP.
            pub srq: u8,
            /// The QP's number; only where the identifier has no QP.
            pub qp_num: u32,
        }

        /// What is needed to send datagrams to a peer.
        #[derive(Clone, Copy)]
        pub struct rdma_ud_param {
            /// Bytes that the peer sent.
            pub private_data: *const c_void,
            /// How many of them.
            pub private_data_len: u8,
            /// The path.
            pub ah_attr: ibv_ah_attr,
            /// The peer's QP number.
            pub qp_num: u32,
            /// The queue key.
            pub qkey: u32,
        }

        /// An event, as rdma_get_cm_event(3) gives it; rdma_ack_cm_event(3) hands it back.
        #[derive(Clone, Copy)]
        pub struct rdma_cm_event {
            /// Whose it is; of a request, the new identifier.
            pub id: *mut rdma_cm_id,
            /// The listener, of a request.
            pub listen_id: *mut rdma_cm_id,
            /// What happened.
            pub event: rdma_cm_event_type,
            /// 0, a negative errno, or the reason of a rejection.
            pub status: c_int,
            /// By port space.
            pub param: rdma_cm_event_param,
        }

        /// What an [`rdma_cm_event`] brings.
        #[derive(Clone, Copy)]
        pub union rdma_cm_event_param as "typeof(((struct rdma_cm_event *)0)->param)" {
            /// Of connections.
            pub conn: rdma_conn_param,
            /// Of datagrams.
            pub ud: rdma_ud_param,
        }

        /// An address and what is needed for it (rdma_getaddrinfo(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct rdma_addrinfo {
            /// `RAI_*`.
            pub ai_flags: c_int,
            /// Address family.
            pub ai_family: c_int,
            /// Kind of QP.
            pub ai_qp_type: c_int,
            /// Port space.
            pub ai_port_space: c_int,
            /// Length of the local address, bytes.
            pub ai_src_len: socklen_t,
            /// Length of the peer's address, bytes.
            pub ai_dst_len: socklen_t,
            /// The local address.
            pub ai_src_addr: *mut sockaddr,
            /// The peer's address.
            pub ai_dst_addr: *mut sockaddr,
            /// The local host's name.
            pub ai_src_canonname: *mut c_char,
            /// The peer's name.
            pub ai_dst_canonname: *mut c_char,
            /// Length of the route, bytes.
            pub ai_route_len: usize,
            /// Paths, as [`RDMA_OPTION_IB_PATH`] takes them.
            pub ai_route: *mut c_void,
            /// Length of the connection's data, bytes.
            pub ai_connect_len: usize,
            /// Data for the private data of a connection request.
            pub ai_connect: *mut c_void,
            /// The next one, or null.
            pub ai_next: *mut rdma_addrinfo,
        }

        /// Which multicast group is joined (rdma_join_multicast_ex(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct rdma_cm_join_mc_attr_ex {
            /// [`rdma_cm_join_mc_attr_mask`].
            pub comp_mask: u32,
            /// [`rdma_cm_mc_join_flags`].
            pub join_flags: u32,
            /// The group.
            pub addr: *mut sockaddr,
        }
    }
    enums {
        /// What happened (rdma_get_cm_event(3)).
        pub enum rdma_cm_event_type: u32 {
            /// The peer's address is resolved, the device is known.
            RDMA_CM_EVENT_ADDR_RESOLVED = 0,
            /// The peer's address could not be resolved.
            RDMA_CM_EVENT_ADDR_ERROR = 1,
            /// The route is known.
            RDMA_CM_EVENT_ROUTE_RESOLVED = 2,
            /// No route.
            RDMA_CM_EVENT_ROUTE_ERROR = 3,
            /// Somebody wants to connect.
            RDMA_CM_EVENT_CONNECT_REQUEST = 4,
            /// The peer accepts; rdma_establish(3) completes it, for the identifier has no QP.
            RDMA_CM_EVENT_CONNECT_RESPONSE = 5,
            /// Connecting failed.
            RDMA_CM_EVENT_CONNECT_ERROR = 6,
            /// The peer does not answer.
            RDMA_CM_EVENT_UNREACHABLE = 7,
            /// The peer refused.
            RDMA_CM_EVENT_REJECTED = 8,
            /// The connection stands.
            RDMA_CM_EVENT_ESTABLISHED = 9,
            /// The connection ended.
            RDMA_CM_EVENT_DISCONNECTED = 10,
            /// The device goes away.
            RDMA_CM_EVENT_DEVICE_REMOVAL = 11,
            /// The group is joined.
            RDMA_CM_EVENT_MULTICAST_JOIN = 12,
            /// The group could not be joined, or was lost.
            RDMA_CM_EVENT_MULTICAST_ERROR = 13,
            /// The interface of the address changed.
            RDMA_CM_EVENT_ADDR_CHANGE = 14,
            /// The QP may be used again.
            RDMA_CM_EVENT_TIMEWAIT_EXIT = 15,
        }

        /// In which space ports are counted, and so what kind of connection it is.
        pub enum rdma_port_space: u32 {
            /// Datagrams of IP over InfiniBand.
            RDMA_PS_IPOIB = 0x2,
            /// Reliable connections.
            RDMA_PS_TCP = 0x106,
            /// Datagrams.
            RDMA_PS_UDP = 0x111,
            /// InfiniBand's own services, any kind of QP.
            RDMA_PS_IB = 0x13f,
        }

        /// What of an [`rdma_cm_join_mc_attr_ex`] counts.
        pub enum rdma_cm_join_mc_attr_mask: u32 {
            /// `addr`.
            RDMA_CM_JOIN_MC_ATTR_ADDRESS = 1 << 0,
            /// `join_flags`.
            RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS = 1 << 1,
            /// The first bit that means nothing.
            RDMA_CM_JOIN_MC_ATTR_RESERVED = 1 << 2,
        }

        /// How a group is joined.
        pub enum rdma_cm_mc_join_flags: u32 {
            /// To send and to receive.
            RDMA_MC_JOIN_FLAG_FULLMEMBER = 0,
            /// Only to send.
            RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER = 1,
            /// The first that means nothing.
            RDMA_MC_JOIN_FLAG_RESERVED = 2,
        }
    }
    constants {
        /// The queue key of datagrams in [`RDMA_PS_UDP`].
        pub const RDMA_UDP_QKEY: u32 = 0x0123_4567;

        /// As many responder resources as the device has.
        pub const RDMA_MAX_RESP_RES: u8 = 0xff;

        /// As much initiator depth as the device has.
        pub const RDMA_MAX_INIT_DEPTH: u8 = 0xff;

        /// For a listener.
        pub const RAI_PASSIVE: c_int = 1 << 0;

        /// The node is a number: no name is looked up.
        pub const RAI_NUMERICHOST: c_int = 1 << 1;

        /// The route is not resolved.
        pub const RAI_NOROUTE: c_int = 1 << 2;

        /// `ai_family` says how the node is written.
        pub const RAI_FAMILY: c_int = 1 << 3;

        /// The level of options of an identifier (rdma_set_option(3)).
        pub const RDMA_OPTION_ID: c_int = 0;

        /// The level of options of InfiniBand.
        pub const RDMA_OPTION_IB: c_int = 1;

        /// Type of service: `u8`.
        pub const RDMA_OPTION_ID_TOS: c_int = 0;

        /// Whether the address may be bound again: `c_int`.
        pub const RDMA_OPTION_ID_REUSEADDR: c_int = 1;

        /// Whether an IPv6 listener leaves IPv4 alone: `c_int`.
        pub const RDMA_OPTION_ID_AFONLY: c_int = 2;

        /// How long the QP awaits an acknowledgment: `u8`, 4.096 µs · 2^this.
        pub const RDMA_OPTION_ID_ACK_TIMEOUT: c_int = 3;

        /// The paths: an array of [`ibv_path_data`](crate::ibv_path_data).
        pub const RDMA_OPTION_IB_PATH: c_int = 1;
    }
}
