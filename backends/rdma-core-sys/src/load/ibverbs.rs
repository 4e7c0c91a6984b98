//! Functions of libibverbs (infiniband/verbs.h).

use std::ffi::{c_char, c_int, c_uint, c_void};

use crate::{
    __be16, __be64, _compat_ibv_port_attr, ibv_ah, ibv_ah_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device,
    ibv_device_attr, ibv_dm, ibv_ece, ibv_event_type, ibv_fork_status, ibv_gid, ibv_gid_entry, ibv_grh, ibv_mr, ibv_node_type, ibv_pd,
    ibv_port_state, ibv_qp, ibv_qp_attr, ibv_qp_ex, ibv_qp_init_attr, ibv_rate, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_wc,
    ibv_wc_status, ibv_wr_opcode,
};

library! {
    /// The functions of libibverbs.so.1.
    pub struct Ibverbs in c"libibverbs.so.1" {
        /// Lists the devices; null with errno on failure, ENOSYS where the kernel has no RDMA.
        required fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device;
        /// Frees a list. Devices of it that are open stay so.
        required fn ibv_free_device_list(list: *mut *mut ibv_device);
        /// The kernel's name of a device.
        required fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
        /// A device's GUID, big endian; 0 if unknown.
        required fn ibv_get_device_guid(device: *mut ibv_device) -> __be64;
        /// A device's index in the kernel; -1 if unknown.
        optional fn ibv_get_device_index(device: *mut ibv_device) -> c_int;
        /// Opens a device; null with errno on failure.
        required fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
        /// Closes a device.
        required fn ibv_close_device(context: *mut ibv_context) -> c_int;
        /// Opens a device by another process's descriptor.
        optional fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context;
        /// Uses another process's protection domain.
        optional fn ibv_import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd;
        /// Ends the use of an imported protection domain.
        optional fn ibv_unimport_pd(pd: *mut ibv_pd);
        /// Uses another process's memory region.
        optional fn ibv_import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr;
        /// Ends the use of an imported memory region.
        optional fn ibv_unimport_mr(mr: *mut ibv_mr);
        /// Uses another process's device memory.
        optional fn ibv_import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm;
        /// Ends the use of imported device memory.
        optional fn ibv_unimport_dm(dm: *mut ibv_dm);
        /// Waits for an asynchronous event; -1 with errno on failure.
        required fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
        /// Hands back an asynchronous event.
        required fn ibv_ack_async_event(event: *mut ibv_async_event);
        /// What a device can do; 0 or an errno.
        required fn ibv_query_device(context: *mut ibv_context, device_attr: *mut ibv_device_attr) -> c_int;
        /// A port's state without its last fields, as old libraries have it; 0 or an errno.
        raw fn ibv_query_port(context: *mut ibv_context, port_num: u8, port_attr: *mut _compat_ibv_port_attr) -> c_int;
        /// An entry of a port's table of GIDs; 0 or -1.
        required fn ibv_query_gid(context: *mut ibv_context, port_num: u8, index: c_int, gid: *mut ibv_gid) -> c_int;
        /// An entry of a port's table of GIDs with its kind; 0 or an errno.
        optional fn _ibv_query_gid_ex(
            context: *mut ibv_context,
            port_num: u32,
            gid_index: u32,
            entry: *mut ibv_gid_entry,
            flags: u32,
            entry_size: usize,
        ) -> c_int;
        /// All entries that are in use, of all ports; how many, or a negative errno.
        optional fn _ibv_query_gid_table(
            context: *mut ibv_context,
            entries: *mut ibv_gid_entry,
            max_entries: usize,
            flags: u32,
            entry_size: usize,
        ) -> isize;
        /// An entry of a port's table of partition keys; 0 or -1.
        required fn ibv_query_pkey(context: *mut ibv_context, port_num: u8, index: c_int, pkey: *mut __be16) -> c_int;
        /// The index of a partition key; -1 if there is none.
        optional fn ibv_get_pkey_index(context: *mut ibv_context, port_num: u8, pkey: __be16) -> c_int;
        /// Makes a protection domain; null with errno on failure.
        required fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
        /// Destroys a protection domain; 0 or an errno.
        required fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
        /// Registers memory, without access flags that a device may ignore; null with errno on failure.
        raw fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
        /// The same, at an address that the caller chooses.
        optional fn ibv_reg_mr_iova(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_int) -> *mut ibv_mr;
        /// The same, with access flags that a device may ignore.
        optional fn ibv_reg_mr_iova2(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_uint) -> *mut ibv_mr;
        /// Registers a dma-buf; null with errno on failure.
        optional fn ibv_reg_dmabuf_mr(
            pd: *mut ibv_pd,
            offset: u64,
            length: usize,
            iova: u64,
            fd: c_int,
            access: c_int,
        ) -> *mut ibv_mr;
        /// Changes a memory region; 0 or one of [`ibv_rereg_mr_err_code`](crate::ibv_rereg_mr_err_code).
        required fn ibv_rereg_mr(mr: *mut ibv_mr, flags: c_int, pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> c_int;
        /// Ends the registration of memory; 0 or an errno.
        required fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
        /// Makes a completion channel; null with errno on failure.
        required fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
        /// Destroys a completion channel; 0 or an errno.
        required fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
        /// Makes a completion queue; null with errno on failure.
        required fn ibv_create_cq(
            context: *mut ibv_context,
            cqe: c_int,
            cq_context: *mut c_void,
            channel: *mut ibv_comp_channel,
            comp_vector: c_int,
        ) -> *mut ibv_cq;
        /// Changes the size of a completion queue; 0 or an errno.
        required fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int;
        /// Destroys a completion queue; 0 or an errno.
        required fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
        /// Waits for a completion event; -1 with errno on failure.
        required fn ibv_get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void) -> c_int;
        /// Hands back completion events.
        required fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint);
        /// Makes a shared receive queue; null with errno on failure.
        required fn ibv_create_srq(pd: *mut ibv_pd, srq_init_attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
        /// Changes a shared receive queue; 0 or an errno.
        required fn ibv_modify_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr, srq_attr_mask: c_int) -> c_int;
        /// Sizes of a shared receive queue; 0 or an errno.
        required fn ibv_query_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr) -> c_int;
        /// Destroys a shared receive queue; 0 or an errno.
        required fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
        /// Makes a queue pair; null with errno on failure.
        required fn ibv_create_qp(pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
        /// Changes a queue pair; 0 or an errno.
        required fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int;
        /// State of a queue pair; 0 or an errno.
        required fn ibv_query_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int, init_attr: *mut ibv_qp_init_attr) -> c_int;
        /// Whether a QP writes payload in the order of addresses; 1 or 0.
        optional fn ibv_query_qp_data_in_order(qp: *mut ibv_qp, op: ibv_wr_opcode, flags: u32) -> c_int;
        /// Destroys a queue pair; 0 or an errno.
        required fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
        /// The builders of a queue pair; null if it has none.
        optional fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
        /// Makes an address handle; null with errno on failure.
        required fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
        /// The path back to a datagram's sender; 0 or -1.
        required fn ibv_init_ah_from_wc(
            context: *mut ibv_context,
            port_num: u8,
            wc: *mut ibv_wc,
            grh: *mut ibv_grh,
            ah_attr: *mut ibv_ah_attr,
        ) -> c_int;
        /// An address handle back to a datagram's sender; null with errno on failure.
        required fn ibv_create_ah_from_wc(pd: *mut ibv_pd, wc: *mut ibv_wc, grh: *mut ibv_grh, port_num: u8) -> *mut ibv_ah;
        /// Destroys an address handle; 0 or an errno.
        required fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int;
        /// Ethernet address and VLAN of a path's destination; 0 or an errno.
        required fn ibv_resolve_eth_l2_from_gid(
            context: *mut ibv_context,
            attr: *mut ibv_ah_attr,
            eth_mac: *mut u8,
            vid: *mut u16,
        ) -> c_int;
        /// Joins a UD QP to a multicast group; 0 or an errno.
        required fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
        /// Takes a UD QP from a multicast group; 0 or an errno.
        required fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
        /// Prepares for fork(2); 0 or an errno. Call it first.
        required fn ibv_fork_init() -> c_int;
        /// Whether this process may fork.
        optional fn ibv_is_fork_initialized() -> ibv_fork_status;
        /// Sets a vendor's options of a QP; 0 or an errno.
        optional fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
        /// A vendor's options of a QP; 0 or an errno.
        optional fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
        /// The words for a kind of node.
        required fn ibv_node_type_str(node_type: ibv_node_type) -> *const c_char;
        /// The words for a port's state.
        required fn ibv_port_state_str(port_state: ibv_port_state) -> *const c_char;
        /// The words for an asynchronous event.
        required fn ibv_event_type_str(event: ibv_event_type) -> *const c_char;
        /// The words for a completion's status.
        required fn ibv_wc_status_str(status: ibv_wc_status) -> *const c_char;
        /// A rate in units of 2.5 Gbit/s; -1 if it has none.
        required fn ibv_rate_to_mult(rate: ibv_rate) -> c_int;
        /// The rate of so many times 2.5 Gbit/s.
        required fn mult_to_ibv_rate(mult: c_int) -> ibv_rate;
        /// A rate in Mbit/s; -1 if it has none.
        required fn ibv_rate_to_mbps(rate: ibv_rate) -> c_int;
        /// The rate of so many Mbit/s.
        required fn mbps_to_ibv_rate(mbps: c_int) -> ibv_rate;
    }
}
