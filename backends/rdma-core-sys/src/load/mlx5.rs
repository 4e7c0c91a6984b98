//! Functions of libmlx5 (infiniband/mlx5dv.h).

use std::ffi::{c_int, c_void};

use crate::{
    ibv_ah, ibv_alloc_dm_attr, ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_device, ibv_dm, ibv_flow, ibv_flow_action, ibv_qp,
    ibv_qp_ex, ibv_qp_init_attr_ex, ibv_rwq_ind_table, ibv_srq, ibv_wq, ibv_wq_init_attr, mlx5dv_alloc_dm_attr, mlx5dv_clock_info,
    mlx5dv_context, mlx5dv_context_attr, mlx5dv_cq_init_attr, mlx5dv_devx_obj, mlx5dv_devx_uar, mlx5dv_devx_umem, mlx5dv_devx_umem_in,
    mlx5dv_flow_action_attr, mlx5dv_flow_action_packet_reformat_type, mlx5dv_flow_match_parameters, mlx5dv_flow_matcher,
    mlx5dv_flow_matcher_attr, mlx5dv_flow_table_type, mlx5dv_mkey, mlx5dv_mkey_init_attr, mlx5dv_obj, mlx5dv_port, mlx5dv_pp, mlx5dv_qp_ex,
    mlx5dv_qp_init_attr, mlx5dv_set_ctx_attr_type, mlx5dv_var, mlx5dv_wq_init_attr,
};

library! {
    /// The functions of libmlx5.so.1 for direct verbs.
    pub struct Mlx5dv in c"libmlx5.so.1" {
        /// What an mlx5 device can do; 0 or an errno.
        required fn mlx5dv_query_device(ctx_in: *mut ibv_context, attrs_out: *mut mlx5dv_context) -> c_int;
        /// Where queues lie in memory; 0 or an errno.
        required fn mlx5dv_init_obj(obj: *mut mlx5dv_obj, obj_type: u64) -> c_int;
        /// Whether a device is an mlx5.
        optional fn mlx5dv_is_supported(device: *mut ibv_device) -> bool;
        /// Opens a device, with DEVX perhaps; null with errno on failure.
        optional fn mlx5dv_open_device(device: *mut ibv_device, attr: *mut mlx5dv_context_attr) -> *mut ibv_context;
        /// Sets a device's allocators; 0 or an errno.
        required fn mlx5dv_set_context_attr(context: *mut ibv_context, r#type: mlx5dv_set_ctx_attr_type, attr: *mut c_void) -> c_int;
        /// How the card's ticks become nanoseconds; 0 or an errno.
        required fn mlx5dv_get_clock_info(context: *mut ibv_context, clock_info: *mut mlx5dv_clock_info) -> c_int;
        /// Makes a completion queue; null with errno on failure.
        required fn mlx5dv_create_cq(
            context: *mut ibv_context,
            cq_attr: *mut ibv_cq_init_attr_ex,
            mlx5_cq_attr: *mut mlx5dv_cq_init_attr,
        ) -> *mut ibv_cq_ex;
        /// Makes a queue pair; null with errno on failure.
        required fn mlx5dv_create_qp(
            context: *mut ibv_context,
            qp_attr: *mut ibv_qp_init_attr_ex,
            mlx5_qp_attr: *mut mlx5dv_qp_init_attr,
        ) -> *mut ibv_qp;
        /// Makes a receive work queue; null with errno on failure.
        required fn mlx5dv_create_wq(
            context: *mut ibv_context,
            wq_init_attr: *mut ibv_wq_init_attr,
            mlx5_wq_attr: *mut mlx5dv_wq_init_attr,
        ) -> *mut ibv_wq;
        /// The builders beyond verbs.
        optional fn mlx5dv_qp_ex_from_ibv_qp_ex(qp: *mut ibv_qp_ex) -> *mut mlx5dv_qp_ex;
        /// Allocates device memory; null with errno on failure.
        optional fn mlx5dv_alloc_dm(
            context: *mut ibv_context,
            dm_attr: *mut ibv_alloc_dm_attr,
            mlx5_dm_attr: *mut mlx5dv_alloc_dm_attr,
        ) -> *mut ibv_dm;
        /// Maps an operation of device memory; null with errno on failure.
        optional fn mlx5dv_dm_map_op_addr(dm: *mut ibv_dm, op: u8) -> *mut c_void;
        /// Makes an indirect memory key; null with errno on failure.
        optional fn mlx5dv_create_mkey(mkey_init_attr: *mut mlx5dv_mkey_init_attr) -> *mut mlx5dv_mkey;
        /// Destroys an indirect memory key; 0 or an errno.
        optional fn mlx5dv_destroy_mkey(mkey: *mut mlx5dv_mkey) -> c_int;
        /// Makes a matcher; null with errno on failure.
        optional fn mlx5dv_create_flow_matcher(
            context: *mut ibv_context,
            matcher_attr: *mut mlx5dv_flow_matcher_attr,
        ) -> *mut mlx5dv_flow_matcher;
        /// Destroys a matcher; 0 or an errno.
        optional fn mlx5dv_destroy_flow_matcher(matcher: *mut mlx5dv_flow_matcher) -> c_int;
        /// Makes a flow rule; null with errno on failure.
        optional fn mlx5dv_create_flow(
            matcher: *mut mlx5dv_flow_matcher,
            match_value: *mut mlx5dv_flow_match_parameters,
            num_actions: usize,
            actions_attr: *mut mlx5dv_flow_action_attr,
        ) -> *mut ibv_flow;
        /// Makes an action that changes headers; null with errno on failure.
        optional fn mlx5dv_create_flow_action_modify_header(
            ctx: *mut ibv_context,
            actions_sz: usize,
            actions: *mut u64,
            ft_type: mlx5dv_flow_table_type,
        ) -> *mut ibv_flow_action;
        /// Makes an action that puts a tunnel on or takes it off; null with errno on failure.
        optional fn mlx5dv_create_flow_action_packet_reformat(
            ctx: *mut ibv_context,
            data_sz: usize,
            data: *mut c_void,
            reformat_type: mlx5dv_flow_action_packet_reformat_type,
            ft_type: mlx5dv_flow_table_type,
        ) -> *mut ibv_flow_action;
        /// Ties an address handle to a QP; 0 or an errno.
        optional fn mlx5dv_map_ah_to_qp(ah: *mut ibv_ah, qp_num: u32) -> c_int;
        /// Allocates a pacing entry; null with errno on failure.
        optional fn mlx5dv_pp_alloc(
            context: *mut ibv_context,
            pp_context_sz: usize,
            pp_context: *const c_void,
            flags: u32,
        ) -> *mut mlx5dv_pp;
        /// Frees a pacing entry.
        optional fn mlx5dv_pp_free(pp: *mut mlx5dv_pp);
        /// Which port of a bond a QP uses; 0 or an errno.
        optional fn mlx5dv_query_qp_lag_port(qp: *mut ibv_qp, port_num: *mut u8, active_port_num: *mut u8) -> c_int;
        /// Sets which port of a bond a QP uses; 0 or an errno.
        optional fn mlx5dv_modify_qp_lag_port(qp: *mut ibv_qp, port_num: u8) -> c_int;
        /// Sets a QP's UDP source port; 0 or an errno.
        optional fn mlx5dv_modify_qp_udp_sport(qp: *mut ibv_qp, udp_sport: u16) -> c_int;
        /// Makes a stream usable again; 0 or an errno.
        optional fn mlx5dv_dci_stream_id_reset(qp: *mut ibv_qp, stream_id: u16) -> c_int;
        /// Cancels posted requests of one number; how many, or a negative errno.
        optional fn mlx5dv_qp_cancel_posted_send_wrs(mqp: *mut mlx5dv_qp_ex, wr_id: u64) -> c_int;
        /// Makes an object by a firmware command; null with errno on failure.
        optional fn mlx5dv_devx_obj_create(
            context: *mut ibv_context,
            r#in: *const c_void,
            inlen: usize,
            out: *mut c_void,
            outlen: usize,
        ) -> *mut mlx5dv_devx_obj;
        /// Asks about an object; 0 or an errno.
        optional fn mlx5dv_devx_obj_query(
            obj: *mut mlx5dv_devx_obj,
            r#in: *const c_void,
            inlen: usize,
            out: *mut c_void,
            outlen: usize,
        ) -> c_int;
        /// Changes an object; 0 or an errno.
        optional fn mlx5dv_devx_obj_modify(
            obj: *mut mlx5dv_devx_obj,
            r#in: *const c_void,
            inlen: usize,
            out: *mut c_void,
            outlen: usize,
        ) -> c_int;
        /// Destroys an object; 0 or an errno.
        optional fn mlx5dv_devx_obj_destroy(obj: *mut mlx5dv_devx_obj) -> c_int;
        /// A firmware command of no object; 0 or an errno.
        optional fn mlx5dv_devx_general_cmd(
            context: *mut ibv_context,
            r#in: *const c_void,
            inlen: usize,
            out: *mut c_void,
            outlen: usize,
        ) -> c_int;
        /// A port as the firmware sees it; 0 or an errno.
        optional fn _mlx5dv_query_port(
            context: *mut ibv_context,
            port_num: u32,
            info: *mut mlx5dv_port,
            info_len: usize,
        ) -> c_int;
        /// Registers user memory; null with errno on failure.
        optional fn mlx5dv_devx_umem_reg(
            ctx: *mut ibv_context,
            addr: *mut c_void,
            size: usize,
            access: u32,
        ) -> *mut mlx5dv_devx_umem;
        /// Registers user memory; null with errno on failure.
        optional fn mlx5dv_devx_umem_reg_ex(ctx: *mut ibv_context, umem_in: *mut mlx5dv_devx_umem_in) -> *mut mlx5dv_devx_umem;
        /// Ends the registration of user memory; 0 or an errno.
        optional fn mlx5dv_devx_umem_dereg(umem: *mut mlx5dv_devx_umem) -> c_int;
        /// Allocates a register page; null with errno on failure.
        optional fn mlx5dv_devx_alloc_uar(context: *mut ibv_context, flags: u32) -> *mut mlx5dv_devx_uar;
        /// Frees a register page.
        optional fn mlx5dv_devx_free_uar(devx_uar: *mut mlx5dv_devx_uar);
        /// Allocates a register page of a virtual device; null with errno on failure.
        optional fn mlx5dv_alloc_var(context: *mut ibv_context, flags: u32) -> *mut mlx5dv_var;
        /// Frees a register page of a virtual device.
        optional fn mlx5dv_free_var(dv_var: *mut mlx5dv_var);
        /// The event queue of a completion vector; 0 or an errno.
        optional fn mlx5dv_devx_query_eqn(context: *mut ibv_context, vector: u32, eqn: *mut u32) -> c_int;
        /// Asks the firmware about a completion queue; 0 or an errno.
        optional fn mlx5dv_devx_cq_query(
            cq: *mut ibv_cq,
            r#in: *const c_void,
            inlen: usize,
            out: *mut c_void,
            outlen: usize,
        ) -> c_int;
        /// Changes a completion queue; 0 or an errno.
        optional fn mlx5dv_devx_cq_modify(
            cq: *mut ibv_cq,
            r#in: *const c_void,
            inlen: usize,
            out: *mut c_void,
            outlen: usize,
        ) -> c_int;
        /// Asks the firmware about a QP; 0 or an errno.
        optional fn mlx5dv_devx_qp_query(
            qp: *mut ibv_qp,
            r#in: *const c_void,
            inlen: usize,
            out: *mut c_void,
            outlen: usize,
        ) -> c_int;
        /// Changes a QP; 0 or an errno.
        optional fn mlx5dv_devx_qp_modify(
            qp: *mut ibv_qp,
            r#in: *const c_void,
            inlen: usize,
            out: *mut c_void,
            outlen: usize,
        ) -> c_int;
        /// Asks the firmware about a shared receive queue; 0 or an errno.
        optional fn mlx5dv_devx_srq_query(
            srq: *mut ibv_srq,
            r#in: *const c_void,
            inlen: usize,
            out: *mut c_void,
            outlen: usize,
        ) -> c_int;
        /// Changes a shared receive queue; 0 or an errno.
        optional fn mlx5dv_devx_srq_modify(
            srq: *mut ibv_srq,
            r#in: *const c_void,
            inlen: usize,
            out: *mut c_void,
            outlen: usize,
        ) -> c_int;
        /// Asks the firmware about a work queue; 0 or an errno.
        optional fn mlx5dv_devx_wq_query(
            wq: *mut ibv_wq,
            r#in: *const c_void,
            inlen: usize,
            out: *mut c_void,
            outlen: usize,
        ) -> c_int;
        /// Changes a work queue; 0 or an errno.
        optional fn mlx5dv_devx_wq_modify(
            wq: *mut ibv_wq,
            r#in: *const c_void,
            inlen: usize,
            out: *mut c_void,
            outlen: usize,
        ) -> c_int;
        /// Asks the firmware about an indirection table; 0 or an errno.
        optional fn mlx5dv_devx_ind_tbl_query(
            ind_tbl: *mut ibv_rwq_ind_table,
            r#in: *const c_void,
            inlen: usize,
            out: *mut c_void,
            outlen: usize,
        ) -> c_int;
        /// Changes an indirection table; 0 or an errno.
        optional fn mlx5dv_devx_ind_tbl_modify(
            ind_tbl: *mut ibv_rwq_ind_table,
            r#in: *const c_void,
            inlen: usize,
            out: *mut c_void,
            outlen: usize,
        ) -> c_int;
        /// Reserves a QP number; 0 or an errno.
        optional fn mlx5dv_reserved_qpn_alloc(ctx: *mut ibv_context, qpn: *mut u32) -> c_int;
        /// Gives back a reserved QP number; 0 or an errno.
        optional fn mlx5dv_reserved_qpn_dealloc(ctx: *mut ibv_context, qpn: u32) -> c_int;
    }
}
