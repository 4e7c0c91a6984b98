//! The structures of the header, layout D. (What they were in older layouts is in [`super::table`].)

use core::ffi::{c_int, c_void};
use core::mem::{offset_of, size_of};

use libc::{size_t, sockaddr_in, timespec};

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

/// `vma_info_t`.
#[repr(C, packed)]
pub(super) struct Info {
    pub(super) struct_sz: size_t,
    pub(super) packet_id: *mut c_void,
    pub(super) src: *mut sockaddr_in,
    pub(super) dst: *mut sockaddr_in,
    pub(super) payload_sz: size_t,
    pub(super) socket_ready_queue_pkt_count: u32,
    pub(super) socket_ready_queue_byte_count: u32,
    pub(super) hw_timestamp: timespec,
    pub(super) sw_timestamp: timespec,
}

const _: () = assert!(size_of::<Info>() == 80 && offset_of!(Info, sw_timestamp) == 64);
const _: () = assert!(size_of::<Packets>() == 8 && size_of::<Packet>() == 16 && offset_of!(Packet, sz_iov) == 8);
