//! Receive queues of strides (mlx5dv_create_wq(3)).

use rdma_core_sys as sys;
use ringway_sim::connectx::queues::ReceiveLayout;

use super::objects::make_wq;

pub(super) unsafe extern "C" fn mlx5dv_create_wq(
    context: *mut sys::ibv_context,
    attr: *mut sys::ibv_wq_init_attr,
    more: *mut sys::mlx5dv_wq_init_attr,
) -> *mut sys::ibv_wq {
    // SAFETY: the driver's context and attributes, and what these name.
    unsafe {
        let strides = (*more).striding_rq_attrs;
        let layout = ReceiveLayout::Striding {
            log_stride_bytes: strides.single_stride_log_num_of_bytes as u8,
            log_strides: strides.single_wqe_log_num_of_strides as u8,
        };
        make_wq(context, attr, layout)
    }
}
