//! Completions, from verbs' form.

use rdma_core_sys as sys;
use ringway_stack::device::messages::{Completion, Opcode, Status};

/// How a request ended. What has no name in the stack stands beside what is nearest.
pub(crate) const fn status_of(status: sys::ibv_wc_status) -> Status {
    match status {
        sys::IBV_WC_SUCCESS => Status::Success,
        sys::IBV_WC_LOC_LEN_ERR => Status::LocalLength,
        sys::IBV_WC_LOC_PROT_ERR | sys::IBV_WC_LOC_ACCESS_ERR => Status::LocalProtection,
        // (That the device failed is as much as that the queue pair did.)
        sys::IBV_WC_WR_FLUSH_ERR | sys::IBV_WC_FATAL_ERR | sys::IBV_WC_GENERAL_ERR => Status::Flushed,
        sys::IBV_WC_BAD_RESP_ERR => Status::BadResponse,
        sys::IBV_WC_REM_INV_REQ_ERR => Status::RemoteInvalidRequest,
        sys::IBV_WC_REM_ACCESS_ERR => Status::RemoteAccess,
        sys::IBV_WC_REM_OP_ERR | sys::IBV_WC_REM_ABORT_ERR => Status::RemoteOperation,
        sys::IBV_WC_RETRY_EXC_ERR | sys::IBV_WC_RESP_TIMEOUT_ERR => Status::RetryExceeded,
        sys::IBV_WC_RNR_RETRY_EXC_ERR => Status::RnrRetryExceeded,
        // Operations of kinds of queue pairs that are not made here, and windows.
        _ => Status::LocalQpOperation,
    }
}

const fn opcode_of(opcode: sys::ibv_wc_opcode) -> Opcode {
    match opcode {
        sys::IBV_WC_RDMA_WRITE => Opcode::Write,
        sys::IBV_WC_RDMA_READ => Opcode::Read,
        sys::IBV_WC_COMP_SWAP => Opcode::CompareSwap,
        sys::IBV_WC_FETCH_ADD => Opcode::FetchAdd,
        sys::IBV_WC_RECV_RDMA_WITH_IMM => Opcode::ReceiveWithImmediate,
        opcode if opcode & sys::IBV_WC_RECV != 0 => Opcode::Receive,
        _ => Opcode::Send,
    }
}

/// A completion.
pub(crate) fn completion_of(wc: &sys::ibv_wc) -> Completion {
    // SAFETY: both members of the union are 32 bits that the library has written, or the zeros from before.
    let immediate = unsafe { wc.imm.imm_data };
    Completion {
        id: wc.wr_id,
        status: status_of(wc.status),
        opcode: opcode_of(wc.opcode),
        len: wc.byte_len,
        immediate: (wc.wc_flags & sys::IBV_WC_WITH_IMM != 0).then(|| u32::from_be(immediate)),
        qpn: wc.qp_num,
        src_qp: wc.src_qp,
        grh: wc.wc_flags & sys::IBV_WC_GRH != 0,
        solicited: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_that_both_have_keep_their_numbers() {
        for number in 0..=sys::IBV_WC_TM_RNDV_INCOMPLETE {
            let status = status_of(number);
            assert_eq!(status == Status::Success, number == 0);
            if matches!(number, 0 | 1 | 2 | 4 | 5 | 7 | 9 | 10 | 11 | 12 | 13) {
                assert_eq!(status as u32, number);
            }
        }
        assert_eq!(status_of(sys::IBV_WC_RESP_TIMEOUT_ERR), Status::RetryExceeded);
        assert_eq!(status_of(u32::MAX), Status::LocalQpOperation);
    }

    #[test]
    fn a_write_with_immediate_data_is_received() {
        let wc = sys::ibv_wc {
            wr_id: 1 << 63,
            opcode: sys::IBV_WC_RECV_RDMA_WITH_IMM,
            byte_len: 16,
            imm: sys::ibv_wc_imm { imm_data: 0x8000_0180_u32.to_be() },
            qp_num: 17,
            wc_flags: sys::IBV_WC_WITH_IMM,
            ..sys::ibv_wc::default()
        };
        let completion = completion_of(&wc);
        assert_eq!((completion.id, completion.status, completion.opcode), (1 << 63, Status::Success, Opcode::ReceiveWithImmediate));
        assert_eq!((completion.len, completion.immediate, completion.qpn), (16, Some(0x8000_0180), 17));
        let plain = completion_of(&sys::ibv_wc { wc_flags: sys::IBV_WC_GRH, opcode: sys::IBV_WC_RECV, ..wc });
        assert_eq!((plain.immediate, plain.grh, plain.opcode), (None, true, Opcode::Receive));
    }
}
