//! Work requests (infiniband/verbs.h).

use std::ffi::{c_int, c_uint, c_void};

use crate::{__be32, ibv_ah, ibv_mw, ibv_mw_bind_info};

c_items! {
    types {
        /// A buffer that is copied into the queue.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_data_buf {
            /// Where it begins.
            pub addr: *mut c_void,
            /// Bytes.
            pub length: usize,
        }

        /// One element of a scatter/gather list.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_sge {
            /// Where it begins; an offset in a region that is based at zero.
            pub addr: u64,
            /// Bytes.
            pub length: u32,
            /// The key of its memory region.
            pub lkey: u32,
        }

        /// A request for the send queue (ibv_post_send(3)).
        #[derive(Clone, Copy)]
        pub struct ibv_send_wr {
            /// The caller's number, given back by the completion.
            pub wr_id: u64,
            /// The next request, or null.
            pub next: *mut ibv_send_wr,
            /// What is sent, or where a read goes.
            pub sg_list: *mut ibv_sge,
            /// Elements of `sg_list`.
            pub num_sge: c_int,
            /// What is done.
            pub opcode: ibv_wr_opcode,
            /// [`ibv_send_flags`].
            pub send_flags: c_uint,
            /// By opcode: immediate data, or a key.
            pub imm: ibv_send_wr_imm,
            /// What some opcodes need.
            pub wr: ibv_send_wr_op,
            /// What some kinds of QP need.
            pub qp_type: ibv_send_wr_qp_type,
            /// What binding and segmentation need.
            pub tail: ibv_send_wr_tail,
        }

        /// What goes along with a message.
        #[derive(Clone, Copy)]
        pub union ibv_send_wr_imm as "" {
            /// Immediate data, big endian as it goes over the wire.
            pub imm_data: __be32,
            /// The key that the peer shall invalidate.
            pub invalidate_rkey: u32,
        }

        /// What an opcode needs beside its list.
        #[derive(Clone, Copy)]
        pub union ibv_send_wr_op as "typeof(((struct ibv_send_wr *)0)->wr)" {
            /// Reads and writes.
            pub rdma: ibv_send_wr_rdma,
            /// Atomics.
            pub atomic: ibv_send_wr_atomic,
            /// Unreliable datagrams.
            pub ud: ibv_send_wr_ud,
        }

        /// The target of an RDMA read or write.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_send_wr_rdma as "typeof(((typeof(((struct ibv_send_wr *)0)->wr) *)0)->rdma)" {
            /// Where at the peer.
            pub remote_addr: u64,
            /// The peer's key.
            pub rkey: u32,
        }

        /// The target and operands of an atomic.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_send_wr_atomic as "typeof(((typeof(((struct ibv_send_wr *)0)->wr) *)0)->atomic)" {
            /// Where at the peer; a multiple of 8.
            pub remote_addr: u64,
            /// What is compared, or added.
            pub compare_add: u64,
            /// What is put there if the comparison holds.
            pub swap: u64,
            /// The peer's key.
            pub rkey: u32,
        }

        /// The destination of a datagram.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_send_wr_ud as "typeof(((typeof(((struct ibv_send_wr *)0)->wr) *)0)->ud)" {
            /// The path.
            pub ah: *mut ibv_ah,
            /// The peer's QP number.
            pub remote_qpn: u32,
            /// The queue key.
            pub remote_qkey: u32,
        }

        /// What a kind of QP needs.
        #[derive(Clone, Copy)]
        pub union ibv_send_wr_qp_type as "typeof(((struct ibv_send_wr *)0)->qp_type)" {
            /// Extended reliable connections.
            pub xrc: ibv_send_wr_xrc,
        }

        /// The target of a send over an extended reliable connection.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_send_wr_xrc as "typeof(((typeof(((struct ibv_send_wr *)0)->qp_type) *)0)->xrc)" {
            /// The peer's shared receive queue.
            pub remote_srqn: u32,
        }

        /// What an opcode needs at the end of an [`ibv_send_wr`].
        #[derive(Clone, Copy)]
        pub union ibv_send_wr_tail as "" {
            /// [`IBV_WR_BIND_MW`].
            pub bind_mw: ibv_send_wr_bind_mw,
            /// [`IBV_WR_TSO`].
            pub tso: ibv_send_wr_tso,
        }

        /// A binding of a memory window.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_send_wr_bind_mw as "typeof(((struct ibv_send_wr *)0)->bind_mw)" {
            /// The window.
            pub mw: *mut ibv_mw,
            /// The key that it shall have.
            pub rkey: u32,
            /// What it is bound to.
            pub bind_info: ibv_mw_bind_info,
        }

        /// A send that the card segments.
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_send_wr_tso as "typeof(((struct ibv_send_wr *)0)->tso)" {
            /// The header that every segment gets, from Ethernet's to TCP's.
            pub hdr: *mut c_void,
            /// Its length, bytes.
            pub hdr_sz: u16,
            /// Payload of a segment, bytes.
            pub mss: u16,
        }

        /// A request for a receive queue (ibv_post_recv(3)).
        #[derive(Clone, Copy, Debug)]
        pub struct ibv_recv_wr {
            /// The caller's number, given back by the completion.
            pub wr_id: u64,
            /// The next request, or null.
            pub next: *mut ibv_recv_wr,
            /// Where the message goes.
            pub sg_list: *mut ibv_sge,
            /// Elements of `sg_list`.
            pub num_sge: c_int,
        }
    }
    enums {
        /// What a send request does.
        pub enum ibv_wr_opcode: u32 {
            /// Writes to the peer's memory.
            IBV_WR_RDMA_WRITE = 0,
            /// The same, and completes one of the peer's receives with 32 bits.
            IBV_WR_RDMA_WRITE_WITH_IMM = 1,
            /// Sends to the peer's next receive.
            IBV_WR_SEND = 2,
            /// The same, with 32 bits beside it.
            IBV_WR_SEND_WITH_IMM = 3,
            /// Reads the peer's memory.
            IBV_WR_RDMA_READ = 4,
            /// Compares and swaps 8 bytes at the peer.
            IBV_WR_ATOMIC_CMP_AND_SWP = 5,
            /// Adds to 8 bytes at the peer.
            IBV_WR_ATOMIC_FETCH_AND_ADD = 6,
            /// Invalidates a local key.
            IBV_WR_LOCAL_INV = 7,
            /// Binds a memory window of type 2.
            IBV_WR_BIND_MW = 8,
            /// Sends, and invalidates one of the peer's keys.
            IBV_WR_SEND_WITH_INV = 9,
            /// Sends a long TCP payload as segments.
            IBV_WR_TSO = 10,
            /// The driver's own.
            IBV_WR_DRIVER1 = 11,
            /// Writes 8 bytes at the peer at once.
            IBV_WR_ATOMIC_WRITE = 15,
        }

        /// How a send request is done.
        pub enum ibv_send_flags: u32 {
            /// Only after earlier reads and atomics.
            IBV_SEND_FENCE = 1 << 0,
            /// With a completion.
            IBV_SEND_SIGNALED = 1 << 1,
            /// Wakes a peer that waits for solicited events.
            IBV_SEND_SOLICITED = 1 << 2,
            /// The payload is copied now, and needs no memory region.
            IBV_SEND_INLINE = 1 << 3,
            /// The card fills in the checksums of IPv4 and TCP or UDP.
            IBV_SEND_IP_CSUM = 1 << 4,
        }
    }
}
