//! The control segment, with which every entry begins.

use super::{SendRules, Transport};
use crate::connectx::constants as c;
use crate::connectx::violation::Violation;

/// The first 16 bytes of an entry (infiniband/mlx5dv.h, `mlx5_wqe_ctrl_seg`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Modifier of the opcode.
    pub opmod: u8,
    /// Where the entry begins in the queue: the running counter of blocks, 16 bits.
    pub index: u16,
    /// `OPCODE_*`.
    pub opcode: u8,
    /// The queue's number, 24 bits.
    pub qpn: u32,
    /// Units of 16 bytes in the entry, this one included, 6 bits. The two bits above are reserved and not kept.
    pub ds: u8,
    /// Signature; not checked.
    pub signature: u8,
    /// Stream of a dynamically connected initiator; not looked at.
    pub stream: [u8; 2],
    /// `CTRL_*`.
    pub fm_ce_se: u8,
    /// Immediate data, or a key to invalidate, as it goes over the wire.
    pub imm: u32,
}

impl Control {
    /// What the bytes say; any bytes say something.
    pub fn decode(bytes: &[u8; 16]) -> Self {
        let [opmod, i1, i0, opcode, q2, q1, q0, ds, signature, s1, s0, fm_ce_se, m3, m2, m1, m0] = *bytes;
        Self {
            opmod,
            index: u16::from_be_bytes([i1, i0]),
            opcode,
            qpn: u32::from_be_bytes([0, q2, q1, q0]),
            ds: ds & c::DS_MAX,
            signature,
            stream: [s1, s0],
            fm_ce_se,
            imm: u32::from_be_bytes([m3, m2, m1, m0]),
        }
    }

    /// The bytes of it. Bits that a field does not have are lost.
    pub fn encode(&self) -> [u8; 16] {
        let [i1, i0] = self.index.to_be_bytes();
        let [_, q2, q1, q0] = self.qpn.to_be_bytes();
        let [m3, m2, m1, m0] = self.imm.to_be_bytes();
        let [s1, s0] = self.stream;
        [self.opmod, i1, i0, self.opcode, q2, q1, q0, self.ds & c::DS_MAX, self.signature, s1, s0, self.fm_ce_se, m3, m2, m1, m0]
    }

    /// Whether a completion is wanted when all goes well. Of the two bits, the upper decides (`guessed`; the lower is for events).
    pub fn wants_completion(&self) -> bool {
        self.fm_ce_se & c::CTRL_CQ_UPDATE != 0
    }

    /// Whether the peer's completion is a solicited one.
    pub fn is_solicited(&self) -> bool {
        self.fm_ce_se & c::CTRL_SOLICITED != 0
    }

    /// Blocks of the queue that the entry occupies: at least one.
    pub fn blocks(&self) -> u16 {
        u16::from(self.ds.max(1)).div_ceil(4)
    }

    /// Checks what does not depend on other segments.
    pub(super) fn check(&self, index: u16, rules: &SendRules) -> Result<(), Violation> {
        if self.index != index {
            return Err(Violation::WrongIndex { found: self.index, expected: index });
        }
        if self.qpn != rules.qpn {
            return Err(Violation::WrongQueue { found: self.qpn, expected: rules.qpn });
        }
        if self.ds == 0 || self.ds > rules.ds_max {
            return Err(Violation::BadDs { ds: self.ds, min: 1, max: rules.ds_max });
        }
        if !is_known(self.opcode) {
            return Err(Violation::OpcodeNotModelled { opcode: self.opcode });
        }
        match self.is_allowed(rules) {
            true => Ok(()),
            false => Err(Violation::OpcodeNotAllowed { opcode: self.opcode, opmod: self.opmod }),
        }
    }

    /// Whether the queue pair's type has the opcode (InfiniBand Architecture Specification, table of operations by transport).
    fn is_allowed(&self, rules: &SendRules) -> bool {
        let plain = self.opmod == 0;
        match (self.opcode, rules.transport) {
            (c::OPCODE_NOP, _) => plain,
            (c::OPCODE_SEND, _) | (c::OPCODE_SEND_IMM, Transport::Rc | Transport::Uc | Transport::Ud) => plain,
            (c::OPCODE_RDMA_WRITE | c::OPCODE_RDMA_WRITE_IMM, Transport::Rc | Transport::Uc) => plain,
            (c::OPCODE_SEND_INVAL | c::OPCODE_RDMA_READ | c::OPCODE_ATOMIC_CS | c::OPCODE_ATOMIC_FA, Transport::Rc) => plain,
            (c::OPCODE_TSO, Transport::Raw) => plain || self.opmod == c::OPMOD_MPW && rules.mpw_max > 0,
            (c::OPCODE_ENHANCED_MPSW, Transport::Raw) => plain && rules.enhanced_mpw,
            _ => false,
        }
    }
}

fn is_known(opcode: u8) -> bool {
    matches!(
        opcode,
        c::OPCODE_NOP
            | c::OPCODE_SEND_INVAL
            | c::OPCODE_RDMA_WRITE
            | c::OPCODE_RDMA_WRITE_IMM
            | c::OPCODE_SEND
            | c::OPCODE_SEND_IMM
            | c::OPCODE_TSO
            | c::OPCODE_RDMA_READ
            | c::OPCODE_ATOMIC_CS
            | c::OPCODE_ATOMIC_FA
            | c::OPCODE_ENHANCED_MPSW
    )
}
