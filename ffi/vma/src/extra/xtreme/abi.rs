//! `vma_completion_t` and `vma_packet_desc_t`, as programs of each layout know them.

use core::mem::{offset_of, size_of};
use core::time::Duration;
use std::net::{IpAddr, SocketAddr};

use libc::{c_int, sockaddr_in, timespec};

use super::buffers::{Buff, Described};

/// VMA_SOCKETXTREME_PACKET.
pub(super) const PACKET: u64 = 1 << 32;
/// VMA_SOCKETXTREME_NEW_CONNECTION_ACCEPTED.
pub(super) const ACCEPTED: u64 = 1 << 33;

/// A completion, in any layout.
#[derive(Clone, Copy, Debug)]
pub(in crate::extra) struct Completed {
    pub(super) packet: Option<Described>,
    pub(super) events: u64,
    pub(super) user_data: u64,
    pub(super) from: Option<SocketAddr>,
    pub(super) listener: Option<c_int>,
    /// When a card received the packet, by the clock that VMA_HW_TS_CONVERSION names.
    pub(super) by_card: Option<Duration>,
}

/// The structures of a layout.
pub(in crate::extra) trait Layout {
    type Packet;
    type Completion;

    fn completion(of: &Completed) -> Self::Completion;

    /// A packet's first buffer.
    ///
    /// # Safety
    /// A packet is there.
    unsafe fn first_of(packet: *const Self::Packet) -> *const Buff;
}

/// From 8.6.1 on.
pub(in crate::extra) enum Timed {}

#[repr(C)]
pub(in crate::extra) struct TimedPacket {
    num_bufs: usize,
    total_len: u16,
    buff_lst: *mut Buff,
    hw_timestamp: timespec,
}

#[repr(C)]
pub(in crate::extra) struct TimedCompletion {
    packet: TimedPacket,
    events: u64,
    user_data: u64,
    src: sockaddr_in,
    listen_fd: c_int,
}

/// Up to 8.6.0.
pub(in crate::extra) enum Untimed {}

#[repr(C)]
pub(in crate::extra) struct UntimedPacket {
    num_bufs: usize,
    total_len: u16,
    buff_lst: *mut Buff,
}

#[repr(C)]
pub(in crate::extra) struct UntimedCompletion {
    packet: UntimedPacket,
    events: u64,
    user_data: u64,
    src: sockaddr_in,
    listen_fd: c_int,
}

const NO_PACKET: Described = Described { nodes: 0, bytes: 0, first: core::ptr::null_mut() };

impl Layout for Timed {
    type Packet = TimedPacket;
    type Completion = TimedCompletion;

    #[inline]
    fn completion(of: &Completed) -> TimedCompletion {
        let Described { nodes, bytes, first } = of.packet.unwrap_or(NO_PACKET);
        TimedCompletion {
            packet: TimedPacket { num_bufs: nodes, total_len: bytes, buff_lst: first, hw_timestamp: time(of.by_card) },
            events: of.events,
            user_data: of.user_data,
            src: source(of.from),
            listen_fd: of.listener.unwrap_or(-1),
        }
    }

    unsafe fn first_of(packet: *const TimedPacket) -> *const Buff {
        // SAFETY: the caller's promise. (The program's array may lie anywhere.)
        unsafe { (&raw const (*packet).buff_lst).read_unaligned() }
    }
}

impl Layout for Untimed {
    type Packet = UntimedPacket;
    type Completion = UntimedCompletion;

    #[inline]
    fn completion(of: &Completed) -> UntimedCompletion {
        let Described { nodes, bytes, first } = of.packet.unwrap_or(NO_PACKET);
        UntimedCompletion {
            packet: UntimedPacket { num_bufs: nodes, total_len: bytes, buff_lst: first },
            events: of.events,
            user_data: of.user_data,
            src: source(of.from),
            listen_fd: of.listener.unwrap_or(-1),
        }
    }

    unsafe fn first_of(packet: *const UntimedPacket) -> *const Buff {
        // SAFETY: as in `Timed`.
        unsafe { (&raw const (*packet).buff_lst).read_unaligned() }
    }
}

/// Zero where nobody says.
#[inline]
fn time(at: Option<Duration>) -> timespec {
    let at = at.unwrap_or_default();
    timespec { tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(at.subsec_nanos()) }
}

fn source(from: Option<SocketAddr>) -> sockaddr_in {
    // (There is no room for an address of IPv6: its family and its port are told.)
    let (family, ip, port) = match from.map(|from| (from.ip(), from.port())) {
        Some((IpAddr::V4(ip), port)) => (libc::AF_INET, ip.to_bits(), port),
        Some((IpAddr::V6(_), port)) => (libc::AF_INET6, 0, port),
        None => (0, 0, 0),
    };
    sockaddr_in {
        sin_family: family as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: ip.to_be() },
        sin_zero: [0; 8],
    }
}

const _: () = assert!(size_of::<TimedPacket>() == 40 && offset_of!(TimedPacket, buff_lst) == 16);
const _: () = assert!(size_of::<TimedCompletion>() == 80 && offset_of!(TimedCompletion, listen_fd) == 72);
const _: () = assert!(size_of::<UntimedPacket>() == 24 && size_of::<UntimedCompletion>() == 64);
const _: () = assert!(offset_of!(UntimedCompletion, events) == 24 && offset_of!(UntimedCompletion, listen_fd) == 56);
