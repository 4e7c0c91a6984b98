//! The options of IPv6's level (ipv6(7), linux/in6.h) that only the kernel does: what they ask for is in headers that the ring does not make, or
//! does not keep.

use core::ffi::c_int;

/// What they are in linux/in6.h, where libc does not name them.
const ADDRFORM: c_int = 1;
const PKTINFO_2292: c_int = 2;
const HOPOPTS_2292: c_int = 3;
const DSTOPTS_2292: c_int = 4;
const RTHDR_2292: c_int = 5;
const PKTOPTIONS_2292: c_int = 6;
const HOPLIMIT_2292: c_int = 8;
const NEXTHOP: c_int = 9;
const FLOWINFO: c_int = 11;
const FLOWLABEL_MGR: c_int = 32;
const FLOWINFO_SEND: c_int = 33;
const IPSEC_POLICY: c_int = 34;
const XFRM_POLICY: c_int = 35;
const PKTINFO: c_int = 50;
const RECVHOPLIMIT: c_int = 51;
const RECVHOPOPTS: c_int = 53;
const HOPOPTS: c_int = 54;
const RTHDRDSTOPTS: c_int = 55;
const RECVRTHDR: c_int = 56;
const RTHDR: c_int = 57;
const RECVDSTOPTS: c_int = 58;
const DSTOPTS: c_int = 59;
const RECVPATHMTU: c_int = 60;
const RECVTCLASS: c_int = 66;
const MINHOPCOUNT: c_int = 73;
const ORIGDSTADDR: c_int = 74;
const RECVFRAGSIZE: c_int = 77;

/// Turns a socket with an IPv4-mapped connection into one of IPv4.
pub(super) const ADDRESS_FORM: c_int = ADDRFORM;

/// Of any socket: what is to be in the headers that it sends, what it does not take, or what the socket is.
pub(super) fn concerns_all(name: c_int) -> bool {
    matches!(
        name,
        ADDRFORM
            | PKTOPTIONS_2292
            | NEXTHOP
            | FLOWLABEL_MGR
            | FLOWINFO_SEND
            | IPSEC_POLICY
            | XFRM_POLICY
            | PKTINFO
            | HOPOPTS
            | RTHDRDSTOPTS
            | RTHDR
            | DSTOPTS
            | MINHOPCOUNT
    )
}

/// Of a datagram socket: what is to be told of the headers that it receives. (Of a connection it means nothing.)
pub(super) fn concerns_datagrams(name: c_int) -> bool {
    matches!(
        name,
        PKTINFO_2292
            | HOPOPTS_2292
            | DSTOPTS_2292
            | RTHDR_2292
            | HOPLIMIT_2292
            | FLOWINFO
            | RECVHOPLIMIT
            | RECVHOPOPTS
            | RECVRTHDR
            | RECVDSTOPTS
            | RECVPATHMTU
            | RECVTCLASS
            | ORIGDSTADDR
            | RECVFRAGSIZE
    )
}
