//! Work requests, in verbs' form.

use core::mem::MaybeUninit;
use core::ptr;

use rdma_core_sys as sys;
use ringway_stack::device::messages::{Data, PostError, SGES_MAX, SendOp, SendWr, Sge};

/// The pieces of a request, with the device's keys. They are put where they stay: most requests have one piece or none, and there is room for many.
#[derive(Debug)]
pub(crate) struct Pieces {
    /// Invariant: the first `len` were written.
    list: [MaybeUninit<sys::ibv_sge>; SGES_MAX],
    len: usize,
}

impl Pieces {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        Self { list: [const { MaybeUninit::uninit() }; SGES_MAX], len: 0 }
    }

    /// Pieces of regions, whose keys `key_of` gives as the device has them.
    ///
    /// # Errors
    /// [`PostError::TooLong`]: there are more than can be.
    #[inline(always)]
    pub(crate) fn gather(&mut self, sges: &[Sge], key_of: impl Fn(u32) -> u32) -> Result<(), PostError> {
        let room = self.list.get_mut(..sges.len()).ok_or(PostError::TooLong)?;
        for (to, sge) in room.iter_mut().zip(sges) {
            to.write(sys::ibv_sge { addr: sge.address, length: sge.len, lkey: key_of(sge.lkey) });
        }
        self.len = sges.len();
        Ok(())
    }

    /// Bytes that are copied as they are posted.
    ///
    /// # Errors
    /// [`PostError::TooLong`].
    #[inline(always)]
    pub(crate) fn inline(&mut self, bytes: &[u8]) -> Result<(), PostError> {
        let length = u32::try_from(bytes.len()).map_err(|_| PostError::TooLong)?;
        // (No request has fewer than one place.)
        self.list[0].write(sys::ibv_sge { addr: bytes.as_ptr().expose_provenance() as u64, length, lkey: 0 });
        self.len = usize::from(length > 0);
        Ok(())
    }

    /// What a request is given: the pieces stay where they are until it was posted.
    #[inline(always)]
    pub(crate) const fn raw(&mut self) -> (*mut sys::ibv_sge, i32) {
        (if self.len == 0 { ptr::null_mut() } else { self.list.as_mut_ptr().cast() }, self.len as i32)
    }
}

/// A request, but for its pieces. `address`: of a datagram, the address handle.
#[inline(always)]
pub(crate) fn request(send: &SendWr<'_>, address: *mut sys::ibv_ah) -> sys::ibv_send_wr {
    let rdma = |remote_addr, rkey| sys::ibv_send_wr_op { rdma: sys::ibv_send_wr_rdma { remote_addr, rkey } };
    let atomic = |remote_addr, rkey, compare_add, swap| sys::ibv_send_wr_op {
        atomic: sys::ibv_send_wr_atomic { remote_addr, compare_add, swap, rkey },
    };
    let with = |immediate: Option<u32>, plain, with| if immediate.is_some() { with } else { plain };
    let (opcode, wr, immediate) = match send.op {
        SendOp::Send { immediate } => (with(immediate, sys::IBV_WR_SEND, sys::IBV_WR_SEND_WITH_IMM), rdma(0, 0), immediate),
        SendOp::Write { address, rkey, immediate } => {
            (with(immediate, sys::IBV_WR_RDMA_WRITE, sys::IBV_WR_RDMA_WRITE_WITH_IMM), rdma(address, rkey), immediate)
        }
        SendOp::Read { address, rkey } => (sys::IBV_WR_RDMA_READ, rdma(address, rkey), None),
        SendOp::CompareSwap { address, rkey, compare, swap } => {
            (sys::IBV_WR_ATOMIC_CMP_AND_SWP, atomic(address, rkey, compare, swap), None)
        }
        SendOp::FetchAdd { address, rkey, add } => (sys::IBV_WR_ATOMIC_FETCH_AND_ADD, atomic(address, rkey, add, 0), None),
        SendOp::Datagram { dest_qp, qkey, immediate, .. } => {
            let to = sys::ibv_send_wr_ud { ah: address, remote_qpn: dest_qp, remote_qkey: qkey };
            (with(immediate, sys::IBV_WR_SEND, sys::IBV_WR_SEND_WITH_IMM), sys::ibv_send_wr_op { ud: to }, immediate)
        }
    };
    let flag = |set: bool, flag| if set { flag } else { 0 };
    let is_inline = matches!(send.data, Data::Inline(bytes) if !bytes.is_empty());
    sys::ibv_send_wr {
        wr_id: send.id,
        opcode,
        wr,
        imm: sys::ibv_send_wr_imm { imm_data: immediate.unwrap_or(0).to_be() },
        send_flags: flag(send.signaled, sys::IBV_SEND_SIGNALED)
            | flag(send.solicited, sys::IBV_SEND_SOLICITED)
            | flag(send.fence, sys::IBV_SEND_FENCE)
            | flag(is_inline, sys::IBV_SEND_INLINE),
        ..sys::ibv_send_wr::default()
    }
}

/// Why a request was not taken, by the library's errno.
pub(crate) const fn refusal(errno: i32) -> PostError {
    match errno {
        libc::ENOMEM | libc::ENOSPC => PostError::Full,
        libc::EOPNOTSUPP => PostError::Operation,
        // (Drivers say EINVAL of a state, of lengths, and of operations alike; lengths and operations were looked at before.)
        _ => PostError::State,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_with_immediate_data_has_it_in_network_order() {
        let op = SendOp::Write { address: 7, rkey: 8, immediate: Some(0x8000_0180) };
        let mut send = SendWr::new(3, op, Data::Inline(&[1, 2]));
        send.fence = true;
        let wr = request(&send, ptr::null_mut());
        assert_eq!((wr.wr_id, wr.opcode), (3, sys::IBV_WR_RDMA_WRITE_WITH_IMM));
        assert_eq!(wr.send_flags, sys::IBV_SEND_SIGNALED | sys::IBV_SEND_FENCE | sys::IBV_SEND_INLINE);
        // SAFETY: these members were written.
        let (imm, to) = unsafe { (wr.imm.imm_data, wr.wr.rdma) };
        assert_eq!((imm.to_ne_bytes(), to.remote_addr, to.rkey), ([0x80, 0, 1, 0x80], 7, 8));
    }

    #[test]
    fn nothing_has_no_pieces_and_pieces_have_the_devices_keys() {
        let mut pieces = Pieces::new();
        pieces.inline(&[]).unwrap();
        assert_eq!(pieces.raw(), (ptr::null_mut(), 0));
        let sge = Sge { address: 1, len: 2, lkey: 3 };
        pieces.gather(&[sge; 2], |key| key + 10).unwrap();
        // SAFETY: two pieces were written.
        let second = unsafe { pieces.list[1].assume_init() };
        assert_eq!((pieces.raw().1, second.lkey, second.length), (2, 13, 2));
        assert_eq!(pieces.gather(&[sge; SGES_MAX + 1], |key| key), Err(PostError::TooLong));
    }

    #[test]
    fn a_full_queue_is_told_from_a_state() {
        assert_eq!([refusal(libc::ENOMEM), refusal(libc::EINVAL)], [PostError::Full, PostError::State]);
    }
}
