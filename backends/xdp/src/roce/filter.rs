//! The filter of a process's packet socket: classic BPF (Documentation/networking/filter.rst), for a packet socket's is for whoever may have one.

use ringway_stack::device::messages::MULTICAST_QP;
use ringway_stack::roce::mad::GSI_QP;
use ringway_stack::roce::packet::UDP_PORT;

use super::Seat;

/// `struct sock_filter`.
pub(super) type Instruction = libc::sock_filter;

/// Where it says whether a frame comes or goes (SKF_AD_OFF + SKF_AD_PKTTYPE), and that it goes.
const PACKET_TYPE: u32 = (-0x1000_i32 + 4) as u32;
const PACKET_OUTGOING: u32 = 4;
/// All of a frame.
const ALL: u32 = u32::MAX;

/// An instruction that jumps nowhere; their codes are in include/uapi/linux/bpf_common.h.
const fn plain(code: u16, at: u32) -> Instruction {
    Instruction { code, jt: 0, jf: 0, k: at }
}

const LOAD_WORD: u16 = 0x20;

const fn load_half(at: u32) -> Instruction {
    plain(0x28, at)
}

const fn load_byte(at: u32) -> Instruction {
    plain(0x30, at)
}

const fn and(mask: u32) -> Instruction {
    plain(0x54, mask)
}

const fn give(len: u32) -> Instruction {
    plain(0x06, len)
}

/// Skips so many instructions if the value is this one, and else so many.
const fn equal(value: u32, then: u8, otherwise: u8) -> Instruction {
    Instruction { code: 0x15, jt: then, jf: otherwise, k: value }
}

/// What takes RoCE's packets whose queue pair is of that seat, or is everybody's. (A load past a frame's end drops it.)
pub(super) fn of(mark: u8) -> Vec<Instruction> {
    let transport = |udp: u32| {
        let mut code = vec![load_half(udp + 2), equal(UDP_PORT.into(), 1, 0), give(0)];
        // The base transport header's second word: eight reserved bits, and the destination's queue pair.
        code.extend([plain(LOAD_WORD, udp + 8 + 4), and(0x00ff_ffff), equal(MULTICAST_QP, 6, 0), equal(GSI_QP, 3, 0)]);
        code.extend([load_byte(udp + 8 + 5), and(Seat::MASK.into()), equal(mark.into(), 0, 3)]);
        // (What another process here has sent is for groups alone.)
        code.extend([load_byte(PACKET_TYPE), equal(PACKET_OUTGOING, 1, 0), give(ALL), give(0)]);
        debug_assert!(code.len() == TRANSPORT_LEN, "jumps are counted");
        code
    };
    let mut code = vec![load_half(12), equal(0x0800, 0, V4_LEN)];
    // No options, and no fragment (RFC 791 s3.1).
    code.extend([load_byte(14), equal(0x45, 1, 0), give(0), load_half(14 + 6), and(0x3fff), equal(0, 1, 0), give(0)]);
    code.extend([load_byte(14 + 9), equal(libc::IPPROTO_UDP as u32, 1, 0), give(0)]);
    code.extend(transport(14 + 20));
    debug_assert!(code.len() == 2 + usize::from(V4_LEN), "jumps are counted");
    code.extend([equal(0x86dd, 1, 0), give(0), load_byte(14 + 6), equal(libc::IPPROTO_UDP as u32, 1, 0), give(0)]);
    code.extend(transport(14 + 40));
    code
}

/// Instructions of [`of`] that are for UDP.
const TRANSPORT_LEN: usize = 14;
/// And for IPv4, those included.
const V4_LEN: u8 = 10 + TRANSPORT_LEN as u8;
