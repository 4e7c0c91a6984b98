//! Register pages: what a store into one means.

use crate::connectx::constants as c;
use crate::connectx::violation::Violation;
use crate::connectx::wqe::Control;

/// Bytes of a register page.
const PAGE: usize = 4096;
/// Most bytes that BlueFlame takes at once: half of a register of 512 (spec/uverbs.md s4, `bf_reg_size`).
const BLUEFLAME_MAX: usize = 256;

/// What a driver did to a register page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterEvent {
    /// Rang for a send queue: the first eight bytes of a control segment.
    Send {
        /// The queue's number.
        qpn: u32,
        /// Index of the entry, in blocks.
        index: u16,
        /// Whole blocks of it, where the entry itself was written (BlueFlame); else empty.
        blueflame: Vec<u8>,
    },
    /// Armed a completion queue.
    Arm {
        /// The queue's number.
        cqn: u32,
        /// As in its doorbell record: a number in bits 29:28, whether only solicited ones count in bit 24, the consumer in bits 23:0.
        request: u32,
    },
}

impl RegisterEvent {
    /// What it means that `bytes` were stored at `offset` of a page. What a processor combines is one store: eight bytes, or whole blocks of
    /// 64 for BlueFlame.
    ///
    /// # Errors
    /// [`Violation::BadRegisterWrite`].
    pub fn of(offset: usize, bytes: &[u8]) -> Result<Self, Violation> {
        let bad = Violation::BadRegisterWrite { offset, len: bytes.len() };
        if let (c::CQ_DOORBELL, Ok([r3, r2, r1, r0, _, n2, n1, n0])) = (offset, <[u8; 8]>::try_from(bytes)) {
            return Ok(Self::Arm { cqn: u32::from_be_bytes([0, n2, n1, n0]), request: u32::from_be_bytes([r3, r2, r1, r0]) });
        }
        let is_register = (c::BF_OFFSET..PAGE).contains(&offset) && offset.is_multiple_of(BLUEFLAME_MAX);
        let is_blueflame = bytes.len().is_multiple_of(c::SEND_BLOCK) && bytes.len() <= BLUEFLAME_MAX;
        let head = *bytes.first_chunk::<8>().ok_or(bad)?;
        if !is_register || bytes.len() != 8 && !is_blueflame {
            return Err(bad);
        }
        let mut first = [0; 16];
        first[..8].copy_from_slice(&head);
        let control = Control::decode(&first);
        let blueflame = if is_blueflame { bytes.to_vec() } else { Vec::new() };
        Ok(Self::Send { qpn: control.qpn, index: control.index, blueflame })
    }
}
