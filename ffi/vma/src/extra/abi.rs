//! The structures of the header, layout D. (What they were in older layouts is in [`super::table`].)

use core::ffi::{c_int, c_void};
use core::mem::{offset_of, size_of};

use libc::size_t;

/// In: fail rather than copy.
pub(super) const MSG_ZCOPY_FORCE: c_int = 0x0100_0000;
/// Out: the buffer holds packets.
pub(super) const MSG_ZCOPY: c_int = 0x0004_0000;

/// `vma_packets_t`, without its packets.
#[repr(C, packed)]
pub(super) struct Packets {
    pub(super) n_packet_num: size_t,
}

/// `vma_packet_t`, without its iovecs.
#[repr(C, packed)]
#[derive(Clone, Copy)]
pub(super) struct Packet {
    pub(super) packet_id: *mut c_void,
    pub(super) sz_iov: size_t,
}

const _: () = assert!(size_of::<Packets>() == 8 && size_of::<Packet>() == 16 && offset_of!(Packet, sz_iov) == 8);
