//! What options mean to the ring, by their numbers alone.

use core::ffi::c_int;

use super::{SO_ATTACH_REUSEPORT_EBPF, TCP_ULP};
use crate::socket::six;

const TCP_ZEROCOPY_RECEIVE: c_int = 35;
const TCP_TX_DELAY: c_int = 37;
const TCP_REPAIR: c_int = 19;
const TCP_MD5SIG: c_int = 14;
const TCP_AO_ADD_KEY: c_int = 38;
const SO_ATTACH_FILTER: c_int = 26;
const SO_ATTACH_BPF: c_int = 50;
const SO_ATTACH_REUSEPORT_CBPF: c_int = 51;
const SO_TXTIME: c_int = 61;
const SO_PEEK_OFF: c_int = 42;
const SO_PREFER_BUSY_POLL: c_int = 69;
const SO_BUSY_POLL_BUDGET: c_int = 70;
const SO_TXREHASH: c_int = 74;
const UDP_ENCAP: c_int = 100;
const UDP_SEGMENT: c_int = 103;
const UDP_GRO: c_int = 104;
const IP_UNICAST_IF: c_int = 50;
const IPV6_UNICAST_IF: c_int = 76;

pub(super) fn is_group_program(name: c_int) -> bool {
    matches!(name, SO_ATTACH_REUSEPORT_CBPF | SO_ATTACH_REUSEPORT_EBPF)
}

/// Options that change what the kernel does to packets: the ring cannot do as much.
pub(super) fn kernel_only(level: c_int, name: c_int) -> bool {
    match level {
        libc::SOL_SOCKET => {
            matches!(name, SO_TXTIME | SO_ATTACH_FILTER | SO_ATTACH_BPF | SO_ATTACH_REUSEPORT_CBPF | SO_ATTACH_REUSEPORT_EBPF | SO_PEEK_OFF)
        }
        libc::IPPROTO_UDP => matches!(name, UDP_ENCAP | UDP_SEGMENT | UDP_GRO),
        libc::IPPROTO_TCP => matches!(name, TCP_REPAIR | TCP_MD5SIG | TCP_ULP | TCP_ZEROCOPY_RECEIVE | TCP_AO_ADD_KEY),
        // What a datagram's header said is not kept.
        libc::IPPROTO_IP => matches!(
            name,
            libc::IP_RECVTTL | libc::IP_RECVTOS | libc::IP_RECVOPTS | libc::IP_RETOPTS | libc::IP_RECVORIGDSTADDR | libc::IP_OPTIONS
        ),
        libc::IPPROTO_IPV6 => six::concerns_all(name) || six::concerns_datagrams(name),
        _ => false,
    }
}

/// Options by which the kernel sends another way than its tables say of the destination alone.
pub(super) fn is_route(level: c_int, name: c_int) -> bool {
    match level {
        libc::SOL_SOCKET => matches!(name, libc::SO_MARK | libc::SO_DONTROUTE),
        libc::IPPROTO_IP => name == IP_UNICAST_IF,
        libc::IPPROTO_IPV6 => name == IPV6_UNICAST_IF,
        _ => false,
    }
}

/// Options that mean nothing to a connection, in the kernel as little as here.
pub(super) fn concerns_datagrams_only(level: c_int, name: c_int) -> bool {
    match level {
        libc::IPPROTO_IP => name != libc::IP_OPTIONS,
        libc::IPPROTO_IPV6 => !six::concerns_all(name),
        libc::SOL_SOCKET => name == SO_TXTIME,
        _ => false,
    }
}

/// Options that mean nothing here, which a connection has of its listener all the same, and tells who asks.
pub(super) fn is_inherited(level: c_int, name: c_int) -> bool {
    match level {
        libc::SOL_SOCKET => matches!(
            name,
            libc::SO_OOBINLINE
                | libc::SO_PRIORITY
                | libc::SO_DONTROUTE
                | libc::SO_MARK
                | libc::SO_BUSY_POLL
                | SO_PREFER_BUSY_POLL
                | SO_BUSY_POLL_BUDGET
                | SO_TXREHASH
        ),
        libc::IPPROTO_TCP => matches!(
            name,
            libc::TCP_WINDOW_CLAMP | libc::TCP_NOTSENT_LOWAT | libc::TCP_SAVE_SYN | libc::TCP_THIN_LINEAR_TIMEOUTS | TCP_TX_DELAY
        ),
        libc::IPPROTO_IP => matches!(
            name,
            libc::IP_MTU_DISCOVER
                | libc::IP_RECVERR
                | libc::IP_FREEBIND
                | libc::IP_TRANSPARENT
                | libc::IP_MINTTL
                | libc::IP_BIND_ADDRESS_NO_PORT
                | libc::IP_MULTICAST_ALL
                | libc::IP_RECVTTL
                | libc::IP_RECVTOS
        ),
        libc::IPPROTO_IPV6 => name == libc::IPV6_V6ONLY,
        _ => false,
    }
}
