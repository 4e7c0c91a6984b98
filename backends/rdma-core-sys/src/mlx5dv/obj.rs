//! Where a device's queues lie in memory, as mlx5dv_init_obj(3) tells (infiniband/mlx5dv.h).

use std::ffi::c_void;

use libc::off_t;

use crate::{__be32, ibv_ah, ibv_cq, ibv_dm, ibv_pd, ibv_qp, ibv_srq, ibv_wq, mlx5_wqe_av};

c_items! {
    types {
        /// A QP's queues.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_qp {
            /// The doorbell record: two words, [`MLX5_RCV_DBR`] and [`MLX5_SND_DBR`], big endian.
            pub dbrec: *mut __be32,
            /// The send queue.
            pub sq: mlx5dv_qp_queue_sq,
            /// The receive queue.
            pub rq: mlx5dv_qp_queue_rq,
            /// The doorbell register.
            pub bf: mlx5dv_qp_bf,
            /// Which of the rest are asked, then which were answered: [`mlx5dv_qp_comp_mask`].
            pub comp_mask: u64,
            /// The register page's offset in the device file.
            pub uar_mmap_offset: off_t,
            /// Number of the transport interface receive.
            pub tirn: u32,
            /// Number of the transport interface send.
            pub tisn: u32,
            /// Number of the receive queue.
            pub rqn: u32,
            /// Number of the send queue.
            pub sqn: u32,
            /// Address of the TIR in the device's memory.
            pub tir_icm_addr: u64,
        }

        /// A send queue in memory.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_qp_queue_sq as "typeof(((struct mlx5dv_qp *)0)->sq)" {
            /// Where it begins.
            pub buf: *mut c_void,
            /// Blocks of [`MLX5_SEND_WQE_BB`](crate::MLX5_SEND_WQE_BB) bytes.
            pub wqe_cnt: u32,
            /// Bytes of a block.
            pub stride: u32,
        }

        /// A receive queue in memory.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_qp_queue_rq as "typeof(((struct mlx5dv_qp *)0)->rq)" {
            /// Where it begins.
            pub buf: *mut c_void,
            /// Entries.
            pub wqe_cnt: u32,
            /// Bytes of an entry.
            pub stride: u32,
        }

        /// A doorbell register.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_qp_bf as "typeof(((struct mlx5dv_qp *)0)->bf)" {
            /// Where it is: write-only memory of the card.
            pub reg: *mut c_void,
            /// Bytes of one half of it for BlueFlame; 0 allows doorbells only.
            pub size: u32,
        }

        /// A completion queue in memory.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_cq {
            /// Where it begins.
            pub buf: *mut c_void,
            /// The doorbell record: two words, consumer index and arm, big endian.
            pub dbrec: *mut __be32,
            /// Entries: a power of two.
            pub cqe_cnt: u32,
            /// Bytes of an entry.
            pub cqe_size: u32,
            /// The register page: arming is written at [`MLX5_CQ_DOORBELL`](crate::MLX5_CQ_DOORBELL).
            pub cq_uar: *mut c_void,
            /// Its number.
            pub cqn: u32,
            /// Must be 0.
            pub comp_mask: u64,
        }

        /// A shared receive queue in memory.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_srq {
            /// Where it begins.
            pub buf: *mut c_void,
            /// The doorbell record: the producer's index, big endian.
            pub dbrec: *mut __be32,
            /// Bytes of an entry.
            pub stride: u32,
            /// The first entry that is free.
            pub head: u32,
            /// The last entry that is free.
            pub tail: u32,
            /// [`mlx5dv_srq_comp_mask`].
            pub comp_mask: u64,
            /// Its number.
            pub srqn: u32,
        }

        /// A receive work queue in memory.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_rwq {
            /// Where it begins.
            pub buf: *mut c_void,
            /// The doorbell record: the producer's index, big endian.
            pub dbrec: *mut __be32,
            /// Entries.
            pub wqe_cnt: u32,
            /// Bytes of an entry.
            pub stride: u32,
            /// Must be 0.
            pub comp_mask: u64,
        }

        /// Device memory as mapped into this process.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_dm {
            /// Where it begins.
            pub buf: *mut c_void,
            /// Bytes.
            pub length: u64,
            /// [`mlx5dv_dm_comp_mask`].
            pub comp_mask: u64,
            /// The address that a peer uses.
            pub remote_va: u64,
        }

        /// An address handle in the form of a WQE segment.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_ah {
            /// The segment.
            pub av: *mut mlx5_wqe_av,
            /// Must be 0.
            pub comp_mask: u64,
        }

        /// A protection domain.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_pd {
            /// Its number.
            pub pdn: u32,
            /// Must be 0.
            pub comp_mask: u64,
        }

        /// What mlx5dv_init_obj(3) is asked: from which objects, into which structures.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_obj {
            /// QP.
            pub qp: mlx5dv_obj_qp,
            /// Completion queue.
            pub cq: mlx5dv_obj_cq,
            /// Shared receive queue.
            pub srq: mlx5dv_obj_srq,
            /// Receive work queue.
            pub rwq: mlx5dv_obj_rwq,
            /// Device memory.
            pub dm: mlx5dv_obj_dm,
            /// Address handle.
            pub ah: mlx5dv_obj_ah,
            /// Protection domain.
            pub pd: mlx5dv_obj_pd,
        }

        /// A question about a QP.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_obj_qp as "typeof(((struct mlx5dv_obj *)0)->qp)" {
            /// The object.
            pub r#in: *mut ibv_qp,
            /// The answer.
            pub out: *mut mlx5dv_qp,
        }

        /// A question about a completion queue.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_obj_cq as "typeof(((struct mlx5dv_obj *)0)->cq)" {
            /// The object.
            pub r#in: *mut ibv_cq,
            /// The answer.
            pub out: *mut mlx5dv_cq,
        }

        /// A question about a shared receive queue.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_obj_srq as "typeof(((struct mlx5dv_obj *)0)->srq)" {
            /// The object.
            pub r#in: *mut ibv_srq,
            /// The answer.
            pub out: *mut mlx5dv_srq,
        }

        /// A question about a receive work queue.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_obj_rwq as "typeof(((struct mlx5dv_obj *)0)->rwq)" {
            /// The object.
            pub r#in: *mut ibv_wq,
            /// The answer.
            pub out: *mut mlx5dv_rwq,
        }

        /// A question about device memory.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_obj_dm as "typeof(((struct mlx5dv_obj *)0)->dm)" {
            /// The object.
            pub r#in: *mut ibv_dm,
            /// The answer.
            pub out: *mut mlx5dv_dm,
        }

        /// A question about an address handle.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_obj_ah as "typeof(((struct mlx5dv_obj *)0)->ah)" {
            /// The object.
            pub r#in: *mut ibv_ah,
            /// The answer.
            pub out: *mut mlx5dv_ah,
        }

        /// A question about a protection domain.
        #[derive(Clone, Copy, Debug)]
        pub struct mlx5dv_obj_pd as "typeof(((struct mlx5dv_obj *)0)->pd)" {
            /// The object.
            pub r#in: *mut ibv_pd,
            /// The answer.
            pub out: *mut mlx5dv_pd,
        }
    }
    enums {
        /// Which objects mlx5dv_init_obj(3) is asked about.
        pub enum mlx5dv_obj_type: u32 {
            /// `qp`.
            MLX5DV_OBJ_QP = 1 << 0,
            /// `cq`.
            MLX5DV_OBJ_CQ = 1 << 1,
            /// `srq`.
            MLX5DV_OBJ_SRQ = 1 << 2,
            /// `rwq`.
            MLX5DV_OBJ_RWQ = 1 << 3,
            /// `dm`.
            MLX5DV_OBJ_DM = 1 << 4,
            /// `ah`.
            MLX5DV_OBJ_AH = 1 << 5,
            /// `pd`.
            MLX5DV_OBJ_PD = 1 << 6,
        }

        /// What of an [`mlx5dv_qp`] is asked.
        pub enum mlx5dv_qp_comp_mask: u32 {
            /// `uar_mmap_offset`.
            MLX5DV_QP_MASK_UAR_MMAP_OFFSET = 1 << 0,
            /// `tirn`, `tisn`, `rqn`, `sqn`.
            MLX5DV_QP_MASK_RAW_QP_HANDLES = 1 << 1,
            /// `tir_icm_addr`.
            MLX5DV_QP_MASK_RAW_QP_TIR_ADDR = 1 << 2,
        }

        /// What of an [`mlx5dv_srq`] is asked.
        pub enum mlx5dv_srq_comp_mask: u32 {
            /// `srqn`.
            MLX5DV_SRQ_MASK_SRQN = 1 << 0,
        }

        /// What of an [`mlx5dv_dm`] is asked.
        pub enum mlx5dv_dm_comp_mask: u32 {
            /// `remote_va`.
            MLX5DV_DM_MASK_REMOTE_VA = 1 << 0,
        }
    }
    constants {
        /// The receive queue's word in a doorbell record.
        pub const MLX5_RCV_DBR: usize = 0;

        /// The send queue's word in a doorbell record.
        pub const MLX5_SND_DBR: usize = 1;
    }
}
