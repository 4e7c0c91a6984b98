//! `mellanox/vma_extra.h` in Rust: the table of functions, and what they take. The header says what each does.
//!
//! It needs no crate: copy it beside a program of yours.

#![allow(dead_code, reason = "each program uses a part of it")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::size_of;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ptr::null_mut;

const SOL_SOCKET: c_int = 1;
const SO_VMA_GET_API: c_int = 2800;

unsafe extern "C" {
    pub(crate) fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut u32) -> c_int;
    pub(crate) fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: u32) -> c_int;
    pub(crate) fn send(fd: c_int, data: *const c_void, len: usize, flags: c_int) -> isize;
    pub(crate) fn poll(entries: *mut PollFd, count: u64, timeout_ms: c_int) -> c_int;
}

/// The table (`vma_get_api`), if the library is preloaded. It is valid for the life of the process.
pub(crate) fn api() -> Option<&'static Api> {
    let (mut table, mut len) = (null_mut::<Api>(), size_of::<*mut Api>() as u32);
    // SAFETY: there is room for a pointer. The library writes one to a table that is never freed; without it, the kernel writes nothing.
    unsafe {
        getsockopt(-1, SOL_SOCKET, SO_VMA_GET_API, (&raw mut table).cast(), &raw mut len);
        table.as_ref()
    }
}

/// One of the header's socket options.
pub(crate) fn set_option<T>(fd: c_int, name: c_int, value: &T) -> std::io::Result<()> {
    // SAFETY: the value is as long as it is said to be.
    let result = unsafe { setsockopt(fd, SOL_SOCKET, name, (&raw const *value).cast(), size_of::<T>() as u32) };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// `struct vma_api_t`.
#[repr(C)]
pub(crate) struct Api {
    pub(crate) register_recv_callback: unsafe extern "C" fn(c_int, Option<RecvCallback>, *mut c_void) -> c_int,
    pub(crate) recvfrom_zcopy: unsafe extern "C" fn(c_int, *mut c_void, usize, *mut c_int, *mut SockAddr, *mut u32) -> c_int,
    pub(crate) free_packets: unsafe extern "C" fn(c_int, *const Packet, usize) -> c_int,
    pub(crate) add_conf_rule: unsafe extern "C" fn(*const c_char) -> c_int,
    pub(crate) thread_offload: unsafe extern "C" fn(c_int, usize) -> c_int,
    pub(crate) socketxtreme_poll: unsafe extern "C" fn(c_int, *mut Completion, c_uint, c_int) -> c_int,
    pub(crate) get_socket_rings_num: unsafe extern "C" fn(c_int) -> c_int,
    pub(crate) get_socket_rings_fds: unsafe extern "C" fn(c_int, *mut c_int, c_int) -> c_int,
    pub(crate) get_socket_tx_ring_fd: unsafe extern "C" fn(c_int, *const SockAddr, u32) -> c_int,
    pub(crate) socketxtreme_free_vma_packets: unsafe extern "C" fn(*const PacketDesc, c_int) -> c_int,
    pub(crate) socketxtreme_ref_vma_buff: unsafe extern "C" fn(*const Buff) -> c_int,
    pub(crate) socketxtreme_free_vma_buff: unsafe extern "C" fn(*const Buff) -> c_int,
    pub(crate) dump_fd_stats: unsafe extern "C" fn(c_int, c_int) -> c_int,
    pub(crate) vma_add_ring_profile: unsafe extern "C" fn(*const RingType, *mut c_int) -> c_int,
    pub(crate) get_socket_network_header: unsafe extern "C" fn(c_int, *mut c_void, *mut u16) -> c_int,
    pub(crate) get_ring_direct_descriptors: unsafe extern "C" fn(c_int, *mut c_void) -> c_int,
    pub(crate) register_memory_on_ring: unsafe extern "C" fn(c_int, *mut c_void, usize, *mut u32) -> c_int,
    pub(crate) deregister_memory_on_ring: unsafe extern "C" fn(c_int, *mut c_void, usize) -> c_int,
    pub(crate) vma_modify_ring: unsafe extern "C" fn(*const c_void) -> c_int,
    pub(crate) vma_extra_supported_mask: u64,
    pub(crate) ioctl: unsafe extern "C" fn(*const c_void, usize) -> c_int,
    pub(crate) vma_cyclic_buffer_read: unsafe extern "C" fn(c_int, *mut CyclicCompletion, usize, usize, c_int) -> c_int,
    pub(crate) get_mem_info: unsafe extern "C" fn(c_int, *mut *mut c_void, *mut usize, *mut u32) -> c_int,
}

pub(crate) const SO_VMA_USER_DATA: c_int = 2801;
pub(crate) const SO_VMA_RING_ALLOC_LOGIC: c_int = 2810;
pub(crate) const MSG_DONTWAIT: c_int = 0x40;
pub(crate) const MSG_VMA_ZCOPY_FORCE: c_int = 0x0100_0000;
pub(crate) const MSG_VMA_ZCOPY: c_int = 0x0004_0000;
pub(crate) const VMA_SND_FLAGS_DUMMY: c_int = 0x400;

/// `vma_recv_callback_t`; it returns one of `PACKET_…`.
pub(crate) type RecvCallback = unsafe extern "C" fn(c_int, usize, *const Piece, *const Info, *mut c_void) -> c_int;

pub(crate) const PACKET_DROP: c_int = 0;
pub(crate) const PACKET_RECV: c_int = 1;
pub(crate) const PACKET_HOLD: c_int = 2;

/// `struct iovec`, of bytes that are only read.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) base: *const u8,
    pub(crate) len: usize,
}

impl Piece {
    /// # Safety
    /// It is the library's, and its packet was not given back.
    pub(crate) unsafe fn bytes<'a>(&self) -> &'a [u8] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }
    }
}

/// `struct vma_packet_t`; `sz_iov` pieces follow.
#[repr(C, packed)]
pub(crate) struct Packet {
    pub(crate) packet_id: *const c_void,
    pub(crate) sz_iov: usize,
}

/// The beginning of `struct vma_packets_t`: the first packet's pieces follow.
#[repr(C, packed)]
pub(crate) struct Packets {
    pub(crate) count: usize,
    pub(crate) first: Packet,
}

/// `struct vma_info_t`.
#[repr(C, packed)]
pub(crate) struct Info {
    pub(crate) struct_sz: usize,
    pub(crate) packet_id: *const c_void,
    pub(crate) src: *const SockAddr,
    pub(crate) dst: *const SockAddr,
    pub(crate) payload_sz: usize,
    pub(crate) ready_packets: u32,
    pub(crate) ready_bytes: u32,
    pub(crate) hw_timestamp: [i64; 2],
    pub(crate) sw_timestamp: [i64; 2],
}

/// `struct sockaddr_in`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct SockAddr {
    pub(crate) family: u16,
    pub(crate) port: [u8; 2],
    pub(crate) address: [u8; 4],
    pub(crate) zero: [u8; 8],
}

impl SockAddr {
    pub(crate) fn to_std(self) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::from(self.address), u16::from_be_bytes(self.port))
    }
}

pub(crate) const SOCKETXTREME_PACKET: u64 = 1 << 32;
pub(crate) const SOCKETXTREME_NEW_CONNECTION_ACCEPTED: u64 = 1 << 33;

/// `struct vma_buff_t`.
#[repr(C)]
pub(crate) struct Buff {
    pub(crate) next: *const Self,
    pub(crate) payload: *const u8,
    pub(crate) len: u16,
}

/// `struct vma_packet_desc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PacketDesc {
    pub(crate) num_bufs: usize,
    pub(crate) total_len: u16,
    pub(crate) buff_lst: *const Buff,
    pub(crate) hw_timestamp: [i64; 2],
}

impl PacketDesc {
    /// The pieces that it lies in.
    ///
    /// # Safety
    /// It is one of socketxtreme_poll's, and was not given back; none of the pieces is used afterwards.
    pub(crate) unsafe fn pieces<'a>(&self) -> impl Iterator<Item = &'a [u8]> {
        // SAFETY: the caller's promise.
        let first = unsafe { self.buff_lst.as_ref::<'a>() };
        // SAFETY: likewise, of each behind it.
        let all = std::iter::successors(first, |buff| unsafe { buff.next.as_ref() });
        // SAFETY: likewise.
        all.map(|buff| unsafe { std::slice::from_raw_parts(buff.payload, buff.len.into()) })
    }
}

/// `struct vma_completion_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Completion {
    pub(crate) packet: PacketDesc,
    pub(crate) events: u64,
    pub(crate) user_data: u64,
    pub(crate) src: SockAddr,
    pub(crate) listen_fd: c_int,
}

impl Completion {
    pub(crate) const NONE: Self = Self {
        packet: PacketDesc { num_bufs: 0, total_len: 0, buff_lst: std::ptr::null(), hw_timestamp: [0; 2] },
        events: 0,
        user_data: 0,
        src: SockAddr { family: 0, port: [0; 2], address: [0; 4], zero: [0; 8] },
        listen_fd: -1,
    };
}

/// `struct pollfd`.
#[repr(C)]
pub(crate) struct PollFd {
    pub(crate) fd: c_int,
    pub(crate) events: i16,
    pub(crate) revents: i16,
}

pub(crate) const POLLIN: i16 = 1;

pub(crate) const RING_CYCLIC_BUFFER: u32 = 2;
pub(crate) const STRIP_NETWORK_HDRS: u32 = 1;

/// `struct vma_ring_type_attr`, of a cyclic ring.
#[repr(C)]
pub(crate) struct RingType {
    pub(crate) comp_mask: u32,
    pub(crate) ring_type: u32,
    pub(crate) cyclic_comp_mask: u32,
    pub(crate) num: u32,
    pub(crate) stride_bytes: u16,
    pub(crate) hdr_bytes: u16,
    pub(crate) packet_receive_mode: u32,
}

pub(crate) const RING_LOGIC_PER_SOCKET: u32 = 10;
pub(crate) const RING_ALLOC_MASK_RING_PROFILE_KEY: u32 = 1;
pub(crate) const RING_ALLOC_MASK_RING_INGRESS: u32 = 4;
/// `ingress` of [`RingAllocLogic::directions`].
pub(crate) const INGRESS: u32 = 1;

/// `struct vma_ring_alloc_logic_attr`.
#[repr(C)]
pub(crate) struct RingAllocLogic {
    pub(crate) comp_mask: u32,
    pub(crate) ring_alloc_logic: u32,
    pub(crate) ring_profile_key: u32,
    pub(crate) user_id: u32,
    pub(crate) directions: u32,
}

/// `struct vma_completion_cb_t`.
#[repr(C)]
pub(crate) struct CyclicCompletion {
    pub(crate) comp_mask: u32,
    pub(crate) payload: *const u8,
    pub(crate) payload_len: usize,
    pub(crate) packets: usize,
    pub(crate) headers: *const u8,
    pub(crate) headers_len: usize,
    pub(crate) hw_timestamp: [i64; 2],
}

impl CyclicCompletion {
    pub(crate) const NONE: Self = Self {
        comp_mask: 0,
        payload: std::ptr::null(),
        payload_len: 0,
        packets: 0,
        headers: std::ptr::null(),
        headers_len: 0,
        hw_timestamp: [0; 2],
    };
}

const _: () = assert!(size_of::<Api>() == 184 && std::mem::offset_of!(Api, vma_extra_supported_mask) == 152);
const _: () = assert!(size_of::<Completion>() == 80 && size_of::<PacketDesc>() == 40 && size_of::<Buff>() == 24);
const _: () = assert!(size_of::<Info>() == 80 && size_of::<Packet>() == 16 && size_of::<RingType>() == 24);
const _: () = assert!(size_of::<RingAllocLogic>() == 20 && size_of::<CyclicCompletion>() == 64 && size_of::<SockAddr>() == 16);
