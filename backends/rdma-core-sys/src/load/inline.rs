//! What the headers define inline and hand to an exported function in the end (infiniband/verbs.h, infiniband/mlx5dv.h).

use std::ffi::{c_int, c_uint, c_void};

use libc::{EINVAL, ENOSYS, EOPNOTSUPP};

use crate::verbs::extended::{Unsupported as _, extended_op};
use crate::{
    IBV_ACCESS_OPTIONAL_RANGE, IBV_QP_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQT_BASIC, Ibverbs, Mlx5dv,
    ibv_context, ibv_device_attr_ex, ibv_gid_entry, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_init_attr_ex, ibv_query_device_ex_input,
    ibv_srq, ibv_srq_init_attr_ex, mlx5dv_port,
};

impl Ibverbs {
    /// A port's state; 0 or an errno. From a library that knows less than [`ibv_port_attr`] has, the rest is 0.
    pub unsafe fn ibv_query_port(&self, context: *mut ibv_context, port_num: u8, port_attr: *mut ibv_port_attr) -> c_int {
        // SAFETY: the caller's context is the library's, and the attribute writable.
        unsafe {
            match extended_op!(context, query_port) {
                Some(op) => op(context, port_num, port_attr, size_of::<ibv_port_attr>()),
                None => {
                    port_attr.write(ibv_port_attr::default());
                    (self.ibv_query_port)(context, port_num, port_attr.cast())
                }
            }
        }
    }

    /// What a device can do; 0 or an errno. From a device that knows only ibv_query_device(3), the rest is 0.
    pub unsafe fn ibv_query_device_ex(
        &self,
        context: *mut ibv_context,
        input: *const ibv_query_device_ex_input,
        attr: *mut ibv_device_attr_ex,
    ) -> c_int {
        // SAFETY: the caller's context is the library's, the input null or readable, and the attribute writable.
        unsafe {
            if !input.is_null() && (*input).comp_mask != 0 {
                return EINVAL;
            }
            if let Some(op) = extended_op!(context, query_device_ex) {
                let ret = op(context, input, attr, size_of::<ibv_device_attr_ex>());
                if ret != EOPNOTSUPP && ret != ENOSYS {
                    return ret;
                }
            }
            attr.write(ibv_device_attr_ex::default());
            self.ibv_query_device(context, &raw mut (*attr).orig_attr)
        }
    }

    /// An entry of a port's table of GIDs; 0 or an errno, EOPNOTSUPP from a library before rdma-core 32.
    pub unsafe fn ibv_query_gid_ex(
        &self,
        context: *mut ibv_context,
        port_num: u32,
        gid_index: u32,
        entry: *mut ibv_gid_entry,
        flags: u32,
    ) -> c_int {
        match self._ibv_query_gid_ex {
            // SAFETY: the caller promises what the manual page asks for.
            Some(query) => unsafe { query(context, port_num, gid_index, entry, flags, size_of::<ibv_gid_entry>()) },
            None => EOPNOTSUPP,
        }
    }

    /// The entries in use of all ports' tables of GIDs, `max_entries` at most; how many, or a negative errno, -EOPNOTSUPP from a
    /// library before rdma-core 32.
    pub unsafe fn ibv_query_gid_table(
        &self,
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        max_entries: usize,
        flags: u32,
    ) -> isize {
        match self._ibv_query_gid_table {
            // SAFETY: the caller promises what the manual page asks for.
            Some(query) => unsafe { query(context, entries, max_entries, flags, size_of::<ibv_gid_entry>()) },
            None => -(EOPNOTSUPP as isize),
        }
    }

    /// Registers memory; null with errno on failure. Flags of [`IBV_ACCESS_OPTIONAL_RANGE`] are left out for a library before
    /// rdma-core 28, as a device may ignore them.
    pub unsafe fn ibv_reg_mr(&self, pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr {
        let optional = access & IBV_ACCESS_OPTIONAL_RANGE as c_int;
        // SAFETY: the caller promises what the manual page asks for.
        unsafe {
            match self.ibv_reg_mr_iova2 {
                Some(register) if optional != 0 => register(pd, addr, length, addr.addr() as u64, access as c_uint),
                _ => (self.ibv_reg_mr)(pd, addr, length, access & !optional),
            }
        }
    }

    /// Registers memory, whose addresses in requests begin at `iova`; null with errno on failure, EOPNOTSUPP from a library
    /// before rdma-core 25. Flags of [`IBV_ACCESS_OPTIONAL_RANGE`] are left out for a library before rdma-core 28.
    pub unsafe fn ibv_reg_mr_iova(&self, pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_int) -> *mut ibv_mr {
        let optional = access & IBV_ACCESS_OPTIONAL_RANGE as c_int;
        // SAFETY: the caller promises what the manual page asks for.
        unsafe {
            match (self.ibv_reg_mr_iova, self.ibv_reg_mr_iova2) {
                (_, Some(register)) if optional != 0 => register(pd, addr, length, iova, access as c_uint),
                (Some(register), _) => register(pd, addr, length, iova, access & !optional),
                (None, _) => <*mut ibv_mr>::unsupported(),
            }
        }
    }

    /// Makes a queue pair; null with errno on failure. Where only a protection domain is asked for, ibv_create_qp(3) does it.
    pub unsafe fn ibv_create_qp_ex(&self, context: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
        // SAFETY: the caller promises what the manual page asks for; the attribute begins as an ibv_qp_init_attr does.
        unsafe {
            if (*attr).comp_mask == IBV_QP_INIT_ATTR_PD {
                return self.ibv_create_qp((*attr).pd, attr.cast());
            }
            match extended_op!(context, create_qp_ex) {
                Some(op) => op(context, attr),
                None => <*mut ibv_qp>::unsupported(),
            }
        }
    }

    /// Makes a shared receive queue; null with errno on failure. A basic one of which only a protection domain is asked for,
    /// ibv_create_srq(3) makes.
    pub unsafe fn ibv_create_srq_ex(&self, context: *mut ibv_context, attr: *mut ibv_srq_init_attr_ex) -> *mut ibv_srq {
        // SAFETY: the caller promises what the manual page asks for; the attribute begins as an ibv_srq_init_attr does.
        unsafe {
            let mask = (*attr).comp_mask;
            let only_basic = mask & !(IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE) == 0;
            let is_basic = mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || (*attr).srq_type == IBV_SRQT_BASIC;
            if only_basic && is_basic && mask & IBV_SRQ_INIT_ATTR_PD != 0 {
                return self.ibv_create_srq((*attr).pd, attr.cast());
            }
            match extended_op!(context, create_srq_ex) {
                Some(op) => op(context, attr),
                None => <*mut ibv_srq>::unsupported(),
            }
        }
    }
}

impl Mlx5dv {
    /// A port as the firmware sees it; 0 or an errno, EOPNOTSUPP from a library before rdma-core 35.
    pub unsafe fn mlx5dv_query_port(&self, context: *mut ibv_context, port_num: u32, info: *mut mlx5dv_port) -> c_int {
        match self._mlx5dv_query_port {
            // SAFETY: the caller promises what the manual page asks for.
            Some(query) => unsafe { query(context, port_num, info, size_of::<mlx5dv_port>()) },
            None => EOPNOTSUPP,
        }
    }
}
