//! Numbers of the mlx5 queues: opcodes, bits and sizes.
//!
//! They are the model's own, since the simulator may not depend on a backend. A test in `backends/rdma-core-sys` compares each that
//! infiniband/mlx5dv.h has too; of the others the documentation says where they are from.

/// Work queue entry that does nothing.
pub const OPCODE_NOP: u8 = 0x00;
/// Send with invalidate.
pub const OPCODE_SEND_INVAL: u8 = 0x01;
/// RDMA write.
pub const OPCODE_RDMA_WRITE: u8 = 0x08;
/// RDMA write with immediate.
pub const OPCODE_RDMA_WRITE_IMM: u8 = 0x09;
/// Send; on a raw queue pair, a frame.
pub const OPCODE_SEND: u8 = 0x0a;
/// Send with immediate.
pub const OPCODE_SEND_IMM: u8 = 0x0b;
/// Large send; with [`OPMOD_MPW`], several frames.
pub const OPCODE_TSO: u8 = 0x0e;
/// RDMA read.
pub const OPCODE_RDMA_READ: u8 = 0x10;
/// Compare and swap.
pub const OPCODE_ATOMIC_CS: u8 = 0x11;
/// Fetch and add.
pub const OPCODE_ATOMIC_FA: u8 = 0x12;
/// Enhanced multi-packet send (linux/mlx5/device.h; mlx5dv.h has no name for it).
pub const OPCODE_ENHANCED_MPSW: u8 = 0x29;

/// Modifier of [`OPCODE_TSO`]: legacy multi-packet send. `guessed`: from open drivers, no header of rdma-core has it.
pub const OPMOD_MPW: u8 = 0x01;

/// Bytes of a block of a send queue.
pub const SEND_BLOCK: usize = 64;
/// Bytes of a unit of `ds`.
pub const DS_UNIT: usize = 16;
/// Largest value of the field `ds`, six bits (mlx5dv.h, `qpn_ds`).
pub const DS_MAX: u8 = 63;

/// A completion is wanted.
pub const CTRL_CQ_UPDATE: u8 = 1 << 3;
/// The peer's completion is a solicited one.
pub const CTRL_SOLICITED: u8 = 1 << 1;
/// After earlier reads and atomics.
pub const CTRL_FENCE: u8 = 1 << 7;
/// After earlier local invalidates.
pub const CTRL_SMALL_FENCE: u8 = 1 << 5;

/// Fill in the inner IPv4 checksum (linux/mlx5/qp.h).
pub const ETH_L3_INNER_CSUM: u8 = 1 << 4;
/// Fill in the inner TCP or UDP checksum (linux/mlx5/qp.h).
pub const ETH_L4_INNER_CSUM: u8 = 1 << 5;
/// Fill in IPv4's checksum.
pub const ETH_L3_CSUM: u8 = 1 << 6;
/// Fill in TCP's or UDP's checksum.
pub const ETH_L4_CSUM: u8 = 1 << 7;
/// In place of the inline header's size: insert the VLAN tag that follows (linux/mlx5/qp.h).
pub const ETH_INSERT_VLAN: u16 = 1 << 15;
/// Bytes of headers in line that a card without `eth_min_inline` none wants (providers/mlx5/wqe.h; spec/uverbs.md s4).
pub const ETH_INLINE_L2: usize = 18;

/// A segment's payload follows in line.
pub const INLINE_SEG: u32 = 0x8000_0000;
/// Key that ends a scatter list.
pub const INVALID_LKEY: u32 = 0x100;
/// All 48 bytes of an address vector count.
pub const EXTENDED_UD_AV: u32 = 0x8000_0000;

/// Word of the doorbell record that holds the receive producer.
pub const RCV_DBR: usize = 0;
/// Word of the doorbell record that holds the send producer, in blocks.
pub const SND_DBR: usize = 1;
/// Word of a completion queue's doorbell record that holds the consumer (mlx5dv.h).
pub const CQ_SET_CI: usize = 0;
/// Word of a completion queue's doorbell record that holds the arm request (providers/mlx5/mlx5.h).
pub const CQ_ARM_DB: usize = 1;

/// Where in a register page a completion queue is armed.
pub const CQ_DOORBELL: usize = 0x20;
/// Where in a register page send doorbells and BlueFlame begin (providers/mlx5/mlx5.h).
pub const BF_OFFSET: usize = 0x800;
/// Arms for solicited completions only.
pub const CQ_DB_REQ_NOT_SOL: u32 = 1 << 24;
/// Arms for any completion.
pub const CQ_DB_REQ_NOT: u32 = 0;

/// A send completed.
pub const CQE_REQ: u8 = 0;
/// A peer's write with immediate.
pub const CQE_RESP_WR_IMM: u8 = 1;
/// A receive.
pub const CQE_RESP_SEND: u8 = 2;
/// A receive with immediate.
pub const CQE_RESP_SEND_IMM: u8 = 3;
/// A receive that invalidated a key.
pub const CQE_RESP_SEND_INV: u8 = 4;
/// The queue goes on in its new buffer.
pub const CQE_RESIZE: u8 = 5;
/// A send failed.
pub const CQE_REQ_ERR: u8 = 13;
/// A receive failed.
pub const CQE_RESP_ERR: u8 = 14;
/// Never written.
pub const CQE_INVALID: u8 = 15;
/// The owner's bit.
pub const CQE_OWNER_MASK: u8 = 1;
/// Value of the format field of a compressed completion (linux/mlx5/device.h).
pub const CQE_FORMAT_COMPRESSED: u8 = 3;

/// The frame is in order.
pub const CQE_L2_OK: u8 = 1 << 0;
/// IPv4's checksum is right.
pub const CQE_L3_OK: u8 = 1 << 1;
/// TCP's or UDP's checksum is right.
pub const CQE_L4_OK: u8 = 1 << 2;
/// Neither IPv4 nor IPv6.
pub const CQE_L3_NONE: u8 = 0;
/// IPv6.
pub const CQE_L3_IPV6: u8 = 1;
/// IPv4.
pub const CQE_L3_IPV4: u8 = 2;

/// Payload is longer than its buffers.
pub const SYNDROME_LOCAL_LENGTH: u8 = 0x01;
/// The entry is malformed, or not for this queue pair.
pub const SYNDROME_LOCAL_QP_OP: u8 = 0x02;
/// A local key does not allow it.
pub const SYNDROME_LOCAL_PROT: u8 = 0x04;
/// The queue had failed before.
pub const SYNDROME_WR_FLUSH: u8 = 0x05;
/// The peer's answer makes no sense.
pub const SYNDROME_BAD_RESP: u8 = 0x10;
/// A peer's write met a local buffer that does not allow it.
pub const SYNDROME_LOCAL_ACCESS: u8 = 0x11;
/// The peer refused a request as invalid.
pub const SYNDROME_REMOTE_INVAL_REQ: u8 = 0x12;
/// The peer's key does not allow it.
pub const SYNDROME_REMOTE_ACCESS: u8 = 0x13;
/// The peer failed.
pub const SYNDROME_REMOTE_OP: u8 = 0x14;
/// Nobody answered.
pub const SYNDROME_RETRY_EXC: u8 = 0x15;
/// The peer had no receive for too long.
pub const SYNDROME_RNR_RETRY_EXC: u8 = 0x16;
