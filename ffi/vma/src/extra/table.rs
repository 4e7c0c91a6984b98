//! The table that programs get, in each of its layouts (vma.md s1.1).
//!
//! Every slot has a function. Those that can but fail, whatever their arguments, have their bits in the mask off: a program that asks first
//! is told the truth.

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::mem::{offset_of, size_of};

use libc::{pthread_t, size_t, sockaddr, socklen_t};
use ringway_params::Layout;

use super::abi::Packet;
use super::cyclic::{Completion, RingType};
use super::rings::{calls, direct};
use super::xtreme::{self, Buff, Timed, TimedCompletion, TimedPacket, Untimed, UntimedCompletion, UntimedPacket};
use super::{callback, control, cyclic, ioctl, network, threads, zcopy};
use crate::{errno, params};

/// REGISTER_RECV_CALLBACK, RECVFROM_ZCOPY, FREE_PACKETS, ADD_CONF_RULE, THREAD_OFFLOAD, DUMP_FD_STATS and GET_SOCKET_NETWORK_HEADER of
/// `vma_extra_api_mask`; SocketXtreme's four, and the three that tell of rings; GET_RING_DIRECT_DESCRIPTORS, CYCLIC_BUFFER_READ,
/// ADD_RING_PROFILE, GET_MEM_INFO and MODIFY_RING.
const SUPPORTED: u64 = 0b11_1111 | 0b1111 << 6 | 0b111 << 10 | 0b11 << 13 | 0b11 << 15 | 0b11 << 19;

/// IOCTL, which is another function's bit in older layouts.
const SUPPORTED_D: u64 = SUPPORTED | 1 << 21;

/// A function that fails whatever its arguments.
type Unserved = extern "C" fn() -> c_int;

extern "C" fn unserved() -> c_int {
    errno::fail(libc::EOPNOTSUPP)
}

/// `socketxtreme_poll`, with a layout's completions.
type Poll<C> = unsafe extern "C-unwind" fn(c_int, *mut C, c_uint, c_int) -> c_int;
/// `socketxtreme_free_vma_packets`, with a layout's packets.
type FreePackets<P> = unsafe extern "C" fn(*mut P, c_int) -> c_int;
/// `socketxtreme_ref_vma_buff`, and its opposite.
type Count = extern "C" fn(*mut Buff) -> c_int;
/// `get_socket_tx_ring_fd`.
type TxRing = unsafe extern "C" fn(c_int, *mut sockaddr, socklen_t) -> c_int;

/// `vma_add_ring_profile`.
type AddProfile = unsafe extern "C" fn(*const RingType, *mut c_int) -> c_int;
/// `vma_cyclic_buffer_read`.
type CyclicRead = unsafe extern "C-unwind" fn(c_int, *mut Completion, size_t, size_t, c_int) -> c_int;
/// `get_mem_info`.
type MemInfo = unsafe extern "C" fn(c_int, *mut *mut c_void, *mut size_t, *mut u32) -> c_int;

/// The slots that the tables of all layouts have, with a layout's completions.
#[repr(C)]
struct Receiving<C> {
    register_recv_callback: extern "C" fn(c_int, Option<callback::Function>, *mut c_void) -> c_int,
    recvfrom_zcopy: unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, *mut c_int, *mut sockaddr, *mut socklen_t) -> c_int,
    free_packets: unsafe extern "C" fn(c_int, *mut Packet, size_t) -> c_int,
    add_conf_rule: unsafe extern "C" fn(*const c_char) -> c_int,
    thread_offload: extern "C" fn(c_int, pthread_t) -> c_int,
    socketxtreme_poll: Poll<C>,
    get_socket_rings_num: extern "C" fn(c_int) -> c_int,
    get_socket_rings_fds: unsafe extern "C" fn(c_int, *mut c_int, c_int) -> c_int,
}

impl<C> Receiving<C> {
    const fn with(socketxtreme_poll: Poll<C>) -> Self {
        Self {
            register_recv_callback: callback::register_recv_callback,
            recvfrom_zcopy: zcopy::recvfrom_zcopy,
            free_packets: zcopy::free_packets,
            add_conf_rule: control::add_conf_rule,
            thread_offload: threads::thread_offload,
            socketxtreme_poll,
            get_socket_rings_num: calls::get_socket_rings_num,
            get_socket_rings_fds: calls::get_socket_rings_fds,
        }
    }
}

/// get_dpcp_devices, which stands in the place of ioctl in layout C1; without DPCP it fails in this way (vma.md s2.13).
extern "C" fn no_dpcp_devices(_devices: *const c_void, _count: size_t) -> c_int {
    unserved()
}

/// 9.8.70 and later; MP-RQ's two functions, which are gone there, behind the last.
#[repr(C)]
struct LayoutD {
    receiving: Receiving<TimedCompletion>,
    get_socket_tx_ring_fd: TxRing,
    socketxtreme_free_vma_packets: FreePackets<TimedPacket>,
    socketxtreme_ref_vma_buff: Count,
    socketxtreme_free_vma_buff: Count,
    dump_fd_stats: extern "C" fn(c_int, c_int) -> c_int,
    vma_add_ring_profile: AddProfile,
    get_socket_network_header: unsafe extern "C" fn(c_int, *mut c_void, *mut u16) -> c_int,
    get_ring_direct_descriptors: unsafe extern "C" fn(c_int, *mut direct::Queues) -> c_int,
    register_memory_on_ring: extern "C" fn(c_int, *mut c_void, size_t, *mut u32) -> c_int,
    deregister_memory_on_ring: extern "C" fn(c_int, *mut c_void, size_t) -> c_int,
    vma_modify_ring: unsafe extern "C" fn(*const direct::Change) -> c_int,
    vma_extra_supported_mask: u64,
    ioctl: unsafe extern "C" fn(*const c_void, size_t) -> c_int,
    vma_cyclic_buffer_read: CyclicRead,
    get_mem_info: MemInfo,
}

impl LayoutD {
    /// With what it has at 160.
    const fn with(vma_extra_supported_mask: u64, ioctl: unsafe extern "C" fn(*const c_void, size_t) -> c_int) -> Self {
        Self {
            receiving: Receiving::with(xtreme::poll::<Timed>),
            get_socket_tx_ring_fd: calls::get_socket_tx_ring_fd,
            socketxtreme_free_vma_packets: xtreme::free_packets::<Timed>,
            socketxtreme_ref_vma_buff: xtreme::reference,
            socketxtreme_free_vma_buff: xtreme::unreference,
            dump_fd_stats: control::dump_fd_stats,
            vma_add_ring_profile: cyclic::add_ring_profile,
            get_socket_network_header: network::get_socket_network_header,
            get_ring_direct_descriptors: direct::get_ring_direct_descriptors,
            register_memory_on_ring: direct::register_memory_on_ring,
            deregister_memory_on_ring: direct::deregister_memory_on_ring,
            vma_modify_ring: direct::vma_modify_ring,
            vma_extra_supported_mask,
            ioctl,
            vma_cyclic_buffer_read: cyclic::cyclic_buffer_read,
            get_mem_info: cyclic::mem_info,
        }
    }
}

static LAYOUT_D: LayoutD = LayoutD::with(SUPPORTED_D, ioctl::ioctl);

/// 9.3.0 to 9.8.31: D, whose ioctl was get_dpcp_devices.
static LAYOUT_C1: LayoutD = LayoutD::with(SUPPORTED, no_dpcp_devices);

/// 9.0.1 to 9.2.2.
#[repr(C)]
struct LayoutB {
    receiving: Receiving<TimedCompletion>,
    get_socket_tx_ring_fd: TxRing,
    socketxtreme_free_vma_packets: FreePackets<TimedPacket>,
    socketxtreme_ref_vma_buff: Count,
    socketxtreme_free_vma_buff: Count,
    dump_fd_stats: extern "C" fn(c_int, c_int) -> c_int,
    vma_cyclic_buffer_read: CyclicRead,
    vma_add_ring_profile: AddProfile,
    get_socket_network_header: unsafe extern "C" fn(c_int, *mut c_void, *mut u16) -> c_int,
    get_ring_direct_descriptors: unsafe extern "C" fn(c_int, *mut direct::Queues) -> c_int,
    register_memory_on_ring: extern "C" fn(c_int, *mut c_void, size_t, *mut u32) -> c_int,
    deregister_memory_on_ring: extern "C" fn(c_int, *mut c_void, size_t) -> c_int,
    get_mem_info: MemInfo,
    vma_modify_ring: unsafe extern "C" fn(*const direct::Change) -> c_int,
    vma_extra_supported_mask: u64,
    get_dpcp_devices: Unserved,
}

static LAYOUT_B: LayoutB = LayoutB {
    receiving: Receiving::with(xtreme::poll::<Timed>),
    get_socket_tx_ring_fd: calls::get_socket_tx_ring_fd,
    socketxtreme_free_vma_packets: xtreme::free_packets::<Timed>,
    socketxtreme_ref_vma_buff: xtreme::reference,
    socketxtreme_free_vma_buff: xtreme::unreference,
    dump_fd_stats: control::dump_fd_stats,
    vma_cyclic_buffer_read: cyclic::cyclic_buffer_read,
    vma_add_ring_profile: cyclic::add_older,
    get_socket_network_header: network::get_socket_network_header,
    get_ring_direct_descriptors: direct::get_ring_direct_descriptors,
    register_memory_on_ring: direct::register_memory_on_ring,
    deregister_memory_on_ring: direct::deregister_memory_on_ring,
    get_mem_info: cyclic::mem_info,
    vma_modify_ring: direct::vma_modify_ring,
    vma_extra_supported_mask: SUPPORTED,
    get_dpcp_devices: unserved,
};

/// 8.4.
#[repr(C)]
struct LayoutA0 {
    receiving: Receiving<UntimedCompletion>,
    free_vma_packets: FreePackets<UntimedPacket>,
    ref_vma_buff: Count,
    free_vma_buff: Count,
    dump_fd_stats: extern "C" fn(c_int, c_int) -> c_int,
    vma_cyclic_buffer_read: CyclicRead,
    vma_add_ring_profile: AddProfile,
}

static LAYOUT_A0: LayoutA0 = LayoutA0 {
    receiving: Receiving::with(xtreme::poll::<Untimed>),
    free_vma_packets: xtreme::free_packets::<Untimed>,
    ref_vma_buff: xtreme::reference,
    free_vma_buff: xtreme::unreference,
    dump_fd_stats: control::dump_fd_stats,
    vma_cyclic_buffer_read: cyclic::cyclic_buffer_read,
    vma_add_ring_profile: cyclic::add_older,
};

/// The table that VMA_API_LAYOUT names; the same for the life of the process.
pub(super) fn chosen() -> *const c_void {
    let settings = params::settings();
    // (A program may ask for no more than this; it is told what it should not rely on.)
    if !settings.warnings().is_empty() {
        crate::log::start();
    }
    match settings.api_layout() {
        Layout::D => (&raw const LAYOUT_D).cast(),
        Layout::C1 => (&raw const LAYOUT_C1).cast(),
        Layout::B => (&raw const LAYOUT_B).cast(),
        Layout::A0 => (&raw const LAYOUT_A0).cast(),
    }
}

const _: () = assert!(size_of::<LayoutD>() == 184 && size_of::<LayoutB>() == 184 && size_of::<LayoutA0>() == 112);
const _: () = assert!(offset_of!(LayoutD, get_socket_tx_ring_fd) == 64 && offset_of!(LayoutD, dump_fd_stats) == 96);
const _: () = assert!(offset_of!(LayoutD, vma_add_ring_profile) == 104 && offset_of!(LayoutD, vma_extra_supported_mask) == 152);
const _: () = assert!(offset_of!(LayoutD, ioctl) == 160 && offset_of!(LayoutD, vma_cyclic_buffer_read) == 168);
const _: () = assert!(offset_of!(LayoutB, vma_cyclic_buffer_read) == 104 && offset_of!(LayoutB, get_mem_info) == 152);
const _: () = assert!(offset_of!(LayoutB, vma_modify_ring) == 160 && offset_of!(LayoutB, vma_extra_supported_mask) == 168);
const _: () = assert!(offset_of!(LayoutA0, free_vma_packets) == 64 && offset_of!(LayoutA0, vma_add_ring_profile) == 104);
