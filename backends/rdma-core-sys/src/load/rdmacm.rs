//! Functions of librdmacm (rdma/rdma_cma.h, rdma/rdma_verbs.h).

use std::ffi::{c_char, c_int, c_void};

use libc::sockaddr;

use crate::{
    __be16, ibv_context, ibv_ece, ibv_event_type, ibv_pd, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_srq_init_attr,
    ibv_srq_init_attr_ex, rdma_addrinfo, rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_cm_join_mc_attr_ex, rdma_conn_param,
    rdma_event_channel, rdma_port_space,
};

library! {
    /// The functions of librdmacm.so.1.
    pub struct Rdmacm in c"librdmacm.so.1" {
        /// Makes an event channel; null with errno on failure.
        required fn rdma_create_event_channel() -> *mut rdma_event_channel;
        /// Destroys an event channel.
        required fn rdma_destroy_event_channel(channel: *mut rdma_event_channel);
        /// Makes an identifier; 0, or -1 with errno.
        required fn rdma_create_id(
            channel: *mut rdma_event_channel,
            id: *mut *mut rdma_cm_id,
            context: *mut c_void,
            ps: rdma_port_space,
        ) -> c_int;
        /// Makes an identifier from an address, with its QP; 0, or -1 with errno.
        required fn rdma_create_ep(
            id: *mut *mut rdma_cm_id,
            res: *mut rdma_addrinfo,
            pd: *mut ibv_pd,
            qp_init_attr: *mut ibv_qp_init_attr,
        ) -> c_int;
        /// Destroys what rdma_create_ep(3) made.
        required fn rdma_destroy_ep(id: *mut rdma_cm_id);
        /// Destroys an identifier; 0, or -1 with errno.
        required fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
        /// Binds an identifier to a local address; 0, or -1 with errno.
        required fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
        /// Resolves a peer's address, within so many ms; 0, or -1 with errno.
        required fn rdma_resolve_addr(id: *mut rdma_cm_id, src_addr: *mut sockaddr, dst_addr: *mut sockaddr, timeout_ms: c_int) -> c_int;
        /// Resolves the route, within so many ms; 0, or -1 with errno.
        required fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int;
        /// Makes an identifier's QP; 0, or -1 with errno.
        required fn rdma_create_qp(id: *mut rdma_cm_id, pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr) -> c_int;
        /// Makes an identifier's QP; 0, or -1 with errno.
        required fn rdma_create_qp_ex(id: *mut rdma_cm_id, qp_init_attr: *mut ibv_qp_init_attr_ex) -> c_int;
        /// Destroys an identifier's QP.
        required fn rdma_destroy_qp(id: *mut rdma_cm_id);
        /// Connects; 0, or -1 with errno.
        required fn rdma_connect(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int;
        /// Completes a connection of an identifier without a QP; 0, or -1 with errno.
        optional fn rdma_establish(id: *mut rdma_cm_id) -> c_int;
        /// Listens; 0, or -1 with errno.
        required fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
        /// Waits for a connection request; 0, or -1 with errno.
        required fn rdma_get_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> c_int;
        /// Accepts; 0, or -1 with errno.
        required fn rdma_accept(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int;
        /// Refuses; 0, or -1 with errno.
        required fn rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int;
        /// Refuses because of a vendor's options; 0, or -1 with errno.
        optional fn rdma_reject_ece(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int;
        /// Tells of an asynchronous event; 0, or -1 with errno.
        required fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type) -> c_int;
        /// Disconnects; 0, or -1 with errno.
        required fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int;
        /// Joins a multicast group; 0, or -1 with errno.
        required fn rdma_join_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr, context: *mut c_void) -> c_int;
        /// Leaves a multicast group; 0, or -1 with errno.
        required fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
        /// Joins a multicast group, perhaps only to send; 0, or -1 with errno.
        optional fn rdma_join_multicast_ex(
            id: *mut rdma_cm_id,
            mc_join_attr: *mut rdma_cm_join_mc_attr_ex,
            context: *mut c_void,
        ) -> c_int;
        /// Waits for an event; 0, or -1 with errno.
        required fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int;
        /// Hands back an event; 0, or -1 with errno.
        required fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;
        /// The local port, big endian.
        required fn rdma_get_src_port(id: *mut rdma_cm_id) -> __be16;
        /// The peer's port, big endian.
        required fn rdma_get_dst_port(id: *mut rdma_cm_id) -> __be16;
        /// Lists the devices, opened; null with errno on failure.
        required fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context;
        /// Frees a list of devices.
        required fn rdma_free_devices(list: *mut *mut ibv_context);
        /// The words for an event.
        required fn rdma_event_str(event: rdma_cm_event_type) -> *const c_char;
        /// Sets an option; 0, or -1 with errno.
        required fn rdma_set_option(id: *mut rdma_cm_id, level: c_int, optname: c_int, optval: *mut c_void, optlen: usize) -> c_int;
        /// Moves an identifier to another event channel; 0, or -1 with errno.
        required fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int;
        /// Resolves names; 0, or -1 with errno, or an error of getaddrinfo(3).
        required fn rdma_getaddrinfo(
            node: *const c_char,
            service: *const c_char,
            hints: *const rdma_addrinfo,
            res: *mut *mut rdma_addrinfo,
        ) -> c_int;
        /// Frees what rdma_getaddrinfo(3) gave.
        required fn rdma_freeaddrinfo(res: *mut rdma_addrinfo);
        /// What ibv_modify_qp(3) needs for the connection's next state; 0, or -1 with errno.
        optional fn rdma_init_qp_attr(id: *mut rdma_cm_id, qp_attr: *mut ibv_qp_attr, qp_attr_mask: *mut c_int) -> c_int;
        /// Sets a vendor's options; 0, or -1 with errno.
        optional fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int;
        /// The peer's options; 0, or -1 with errno.
        optional fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int;
        /// Makes an identifier's shared receive queue; 0, or -1 with errno.
        required fn rdma_create_srq(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> c_int;
        /// Makes an identifier's shared receive queue; 0, or -1 with errno.
        required fn rdma_create_srq_ex(id: *mut rdma_cm_id, attr: *mut ibv_srq_init_attr_ex) -> c_int;
        /// Destroys an identifier's shared receive queue.
        required fn rdma_destroy_srq(id: *mut rdma_cm_id);
    }
}
