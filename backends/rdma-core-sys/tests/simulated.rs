//! The simulator's ConnectX has numbers and layouts of its own, since it may not depend on a backend. Here they are held against this
//! crate's, which are held against infiniband/mlx5dv.h: each constant that both have, what this crate's functions fill in as the model reads
//! it, and what the model writes as this crate's structures and functions read it.

use std::mem::offset_of;

use rdma_core_sys as sys;
use rdma_core_sys::{mlx5_cqe64, mlx5_err_cqe};
use ringway_sim::connectx::constants as sim;
use ringway_sim::connectx::cqe::{Cqe, CqeBytes, Failed, Receipt, Received, Sent};
use ringway_sim::connectx::wqe::{Body, Control, DataSegment, HeaderField, Piece, SendRules, SendWqe, Transport};

/// Compares pairs of constants, which are integers of the same type.
macro_rules! same {
    ($($sim:ident = $sys:ident),* $(,)?) => {
        [$((stringify!($sim), sim::$sim == sys::$sys)),*]
    };
}

#[test]
fn constants_are_the_headers() {
    let pairs = same![
        OPCODE_NOP = MLX5_OPCODE_NOP,
        OPCODE_SEND_INVAL = MLX5_OPCODE_SEND_INVAL,
        OPCODE_RDMA_WRITE = MLX5_OPCODE_RDMA_WRITE,
        OPCODE_RDMA_WRITE_IMM = MLX5_OPCODE_RDMA_WRITE_IMM,
        OPCODE_SEND = MLX5_OPCODE_SEND,
        OPCODE_SEND_IMM = MLX5_OPCODE_SEND_IMM,
        OPCODE_TSO = MLX5_OPCODE_TSO,
        OPCODE_RDMA_READ = MLX5_OPCODE_RDMA_READ,
        OPCODE_ATOMIC_CS = MLX5_OPCODE_ATOMIC_CS,
        OPCODE_ATOMIC_FA = MLX5_OPCODE_ATOMIC_FA,
        SEND_BLOCK = MLX5_SEND_WQE_BB,
        CTRL_CQ_UPDATE = MLX5_WQE_CTRL_CQ_UPDATE,
        CTRL_SOLICITED = MLX5_WQE_CTRL_SOLICITED,
        CTRL_FENCE = MLX5_WQE_CTRL_FENCE,
        CTRL_SMALL_FENCE = MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE,
        ETH_L3_CSUM = MLX5_ETH_WQE_L3_CSUM,
        ETH_L4_CSUM = MLX5_ETH_WQE_L4_CSUM,
        INLINE_SEG = MLX5_INLINE_SEG,
        INVALID_LKEY = MLX5_INVALID_LKEY,
        EXTENDED_UD_AV = MLX5_EXTENDED_UD_AV,
        RCV_DBR = MLX5_RCV_DBR,
        SND_DBR = MLX5_SND_DBR,
        CQ_DOORBELL = MLX5_CQ_DOORBELL,
        CQ_DB_REQ_NOT_SOL = MLX5_CQ_DB_REQ_NOT_SOL,
        CQ_DB_REQ_NOT = MLX5_CQ_DB_REQ_NOT,
        CQE_REQ = MLX5_CQE_REQ,
        CQE_RESP_WR_IMM = MLX5_CQE_RESP_WR_IMM,
        CQE_RESP_SEND = MLX5_CQE_RESP_SEND,
        CQE_RESP_SEND_IMM = MLX5_CQE_RESP_SEND_IMM,
        CQE_RESP_SEND_INV = MLX5_CQE_RESP_SEND_INV,
        CQE_RESIZE = MLX5_CQE_RESIZE_CQ,
        CQE_REQ_ERR = MLX5_CQE_REQ_ERR,
        CQE_RESP_ERR = MLX5_CQE_RESP_ERR,
        CQE_INVALID = MLX5_CQE_INVALID,
        CQE_OWNER_MASK = MLX5_CQE_OWNER_MASK,
        CQE_L2_OK = MLX5_CQE_L2_OK,
        CQE_L3_OK = MLX5_CQE_L3_OK,
        CQE_L4_OK = MLX5_CQE_L4_OK,
        CQE_L3_NONE = MLX5_CQE_L3_HDR_TYPE_NONE,
        CQE_L3_IPV6 = MLX5_CQE_L3_HDR_TYPE_IPV6,
        CQE_L3_IPV4 = MLX5_CQE_L3_HDR_TYPE_IPV4,
        SYNDROME_LOCAL_LENGTH = MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR,
        SYNDROME_LOCAL_QP_OP = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR,
        SYNDROME_LOCAL_PROT = MLX5_CQE_SYNDROME_LOCAL_PROT_ERR,
        SYNDROME_WR_FLUSH = MLX5_CQE_SYNDROME_WR_FLUSH_ERR,
        SYNDROME_BAD_RESP = MLX5_CQE_SYNDROME_BAD_RESP_ERR,
        SYNDROME_LOCAL_ACCESS = MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR,
        SYNDROME_REMOTE_INVAL_REQ = MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR,
        SYNDROME_REMOTE_ACCESS = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR,
        SYNDROME_REMOTE_OP = MLX5_CQE_SYNDROME_REMOTE_OP_ERR,
        SYNDROME_RETRY_EXC = MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR,
        SYNDROME_RNR_RETRY_EXC = MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR,
    ];
    let differ: Vec<_> = pairs.iter().filter(|(_, same)| !same).collect();
    assert!(differ.is_empty(), "{differ:?}");
    assert_eq!(sim::SEND_BLOCK, 1 << sys::MLX5_SEND_WQE_SHIFT);
}

const QPN: u32 = 0xab_cdef;

fn rules(transport: Transport) -> SendRules {
    let (frame_max, tso_max) = (9216, 1 << 18);
    SendRules { transport, qpn: QPN, inline_min: 18, ds_max: 63, frame_max, tso_max, mpw_max: 5, enhanced_mpw: true }
}

/// Bytes of a segment that this crate filled in.
fn bytes<T>(of: &T) -> &[u8] {
    // SAFETY: the segments have no padding, and all of them is initialised.
    unsafe { std::slice::from_raw_parts((&raw const *of).cast(), size_of::<T>()) }
}

fn control(opcode: u8, ds: u8) -> sys::mlx5_wqe_ctrl_seg {
    let mut segment = sys::mlx5_wqe_ctrl_seg::default();
    // SAFETY: the segment is the test's own.
    unsafe { sys::mlx5dv_set_ctrl_seg(&mut segment, 0xfedc, opcode, 0, QPN, 0x8a, ds, 0x77, 0x0102_0304) };
    segment
}

fn data() -> sys::mlx5_wqe_data_seg {
    let mut segment = sys::mlx5_wqe_data_seg::default();
    // SAFETY: the segment is the test's own.
    unsafe { sys::mlx5dv_set_data_seg(&mut segment, 0x0102, 0xa0b0_c0d0, 0x1122_3344) };
    segment
}

const DATA: DataSegment = DataSegment { byte_count: 0x0102, lkey: 0xa0b0_c0d0, addr: 0x1122_3344 };

#[test]
fn a_frame_that_the_builders_fill_in() {
    for header in [18u16, 30, 54] {
        let mut ethernet = [sys::mlx5_wqe_eth_seg::default(); 3];
        let headers: [u8; 54] = std::array::from_fn(|i| 200 - i as u8);
        // SAFETY: three segments have room for the headers, which are written through the pointer to all of them.
        unsafe { sys::mlx5dv_set_eth_seg(ethernet.as_mut_ptr(), sys::MLX5_ETH_WQE_L3_CSUM, 0, header, headers.as_ptr()) };
        let units = (14 + usize::from(header)).div_ceil(16);
        let control = control(sys::MLX5_OPCODE_SEND, 2 + units as u8);
        let entry = [bytes(&control), &bytes(&ethernet)[..16 * units], bytes(&data())].concat();
        let wqe = SendWqe::parse(&entry, 0xfedc, &rules(Transport::Raw)).unwrap();
        let Control { imm, fm_ce_se, signature, .. } = wqe.control;
        assert_eq!((u32::from_ne_bytes(imm.to_be_bytes()), fm_ce_se, signature), (0x0102_0304, 0x8a, 0x77));
        let Body::Frame(ethernet, pieces) = &wqe.body else { panic!("{wqe:?}") };
        assert_eq!(ethernet.cs_flags, sim::ETH_L3_CSUM);
        assert_eq!(ethernet.header, HeaderField::Inline(headers[..header.into()].to_vec()));
        assert_eq!(pieces[..], [Piece::Memory(DATA)]);
        assert_eq!(wqe.encode(), entry);
    }
}

#[test]
fn a_datagram_that_the_builders_fill_in() {
    let mut path = sys::mlx5_wqe_datagram_seg::default();
    let (mac, gid) = ([1, 2, 3, 4, 5, 6], std::array::from_fn(|i| 9 + i as u8));
    // The queue key is in the upper half of the key (mlx5dv.h, `mlx5_wqe_av`).
    let key = 0x0102_0304 << 32;
    // SAFETY: the segment is the test's own.
    unsafe { sys::mlx5dv_set_dgram_seg(&mut path, key, 0x12_3456, 1, 2, 0x83, 0xc001, &mac, 5, 64, 0x4010_0abc, &gid) };
    let entry = [bytes(&control(sys::MLX5_OPCODE_SEND_IMM, 5)), bytes(&path), bytes(&data())].concat();
    let wqe = SendWqe::parse(&entry, 0xfedc, &rules(Transport::Ud)).unwrap();
    let Body::Send(Some(vector), pieces) = &wqe.body else { panic!("{wqe:?}") };
    assert_eq!((vector.qkey, vector.qpn, vector.rlid, vector.fl_mlid), (0x0102_0304, 0x12_3456, 0xc001, 0x83));
    let grh = vector.extended.unwrap();
    assert_eq!((grh.mac, grh.traffic_class, grh.hop_limit, grh.gid_index_flow_label, grh.gid), (mac, 5, 64, 0x4010_0abc, gid));
    assert_eq!(pieces[..], [Piece::Memory(DATA)]);
    assert_eq!(wqe.encode(), entry);
}

/// The completion as this crate's structure.
fn cqe64(bytes: &CqeBytes) -> mlx5_cqe64 {
    assert_eq!(size_of::<mlx5_cqe64>(), bytes.len());
    // SAFETY: the structure has as many bytes, and any of them are valid.
    unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) }
}

#[test]
fn a_receive_that_the_structures_read() {
    let received = Received {
        receipt: Receipt::SendImmediate,
        solicited: true,
        wqe_id: 0x1122,
        slid: 0x3344,
        flags_rqpn: 0x1055_6677,
        checks: 7,
        l4_type: 5,
        l3_type: 2,
        vlan: Some(0x0aaa),
        srqn_uidx: 0x12_3456,
        imm: 0xdead_beef,
        byte_count: 1514,
        timestamp: 0x0102_0304_0506_0708,
        qpn_or_tag: QPN,
        wqe_counter: 0x7788,
        ..Received::default()
    };
    let cqe = cqe64(&Cqe::Received(received).encode(true));
    // SAFETY: the completion is the test's own, and its head is a packet's.
    let (owner, solicited, format, opcode, packet) = unsafe {
        let cqe = &raw const cqe;
        let byte = (sys::mlx5dv_get_cqe_owner(cqe), sys::mlx5dv_get_cqe_se(cqe));
        (byte.0, byte.1, sys::mlx5dv_get_cqe_format(cqe), sys::mlx5dv_get_cqe_opcode(cqe), (*cqe).head.packet)
    };
    assert_eq!((owner, solicited, format, opcode), (1, 1, 0, sys::MLX5_CQE_RESP_SEND_IMM));
    assert_eq!((u16::from_be(packet.wqe_id), u16::from_be(packet.slid), u32::from_be(packet.flags_rqpn)), (0x1122, 0x3344, 0x1055_6677));
    assert_eq!((packet.hds_ip_ext, packet.l4_hdr_type_etc, u16::from_be(packet.vlan_info)), (7, 5 << 4 | 2 << 2 | 1, 0x0aaa));
    assert_eq!((u32::from_be(cqe.srqn_uidx), u32::from_be(cqe.imm_inval_pkey)), (0x12_3456, 0xdead_beef));
    assert_eq!((u32::from_be(cqe.byte_cnt), u64::from_be(cqe.timestamp)), (1514, 0x0102_0304_0506_0708));
    assert_eq!((u32::from_be(cqe.sop_drop_qpn), u16::from_be(cqe.wqe_counter)), (QPN, 0x7788));
}

#[test]
fn a_send_that_the_structures_read() {
    let sent = Sent { uidx: 0x12_3456, byte_count: 8, timestamp: 99, opcode: 0xa, qpn: QPN, wqe_counter: 3 };
    let cqe = cqe64(&Cqe::Sent(sent).encode(false));
    assert_eq!((u32::from_be(cqe.srqn_uidx), u32::from_be(cqe.byte_cnt), u64::from_be(cqe.timestamp)), (0x12_3456, 8, 99));
    assert_eq!((u32::from_be(cqe.sop_drop_qpn), u16::from_be(cqe.wqe_counter)), (0xa << 24 | QPN, 3));
    assert_eq!(cqe.op_own, sys::MLX5_CQE_REQ << 4);
}

#[test]
fn a_failure_that_the_structures_read() {
    let failed = Failed { receive: true, srqn_uidx: 0x12_3456, vendor: 0x51, syndrome: 4, opcode: 0xa, qpn: QPN, wqe_counter: 3 };
    let bytes = Cqe::Failed(failed).encode(true);
    assert_eq!(bytes[offset_of!(mlx5_err_cqe, vendor_err_synd)], 0x51);
    assert_eq!(bytes[offset_of!(mlx5_err_cqe, syndrome)], sys::MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
    assert_eq!(bytes[offset_of!(mlx5_err_cqe, op_own)], sys::MLX5_CQE_RESP_ERR << 4 | 1);
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(word(offset_of!(mlx5_err_cqe, srqn)), 0x12_3456);
    assert_eq!(word(offset_of!(mlx5_err_cqe, s_wqe_opcode_qpn)), 0xa << 24 | QPN);
    assert_eq!(bytes[offset_of!(mlx5_err_cqe, wqe_counter)..][..2], [0, 3]);
}
