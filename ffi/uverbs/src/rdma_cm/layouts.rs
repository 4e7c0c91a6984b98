//! Structures of rdma/rdma_user_cm.h, rdma/ib_user_sa.h and rdma/ib_user_verbs.h that commands and events have in common.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ringway_stack::cm::ConnectParams;
use ringway_stack::device::messages::{ConnectionParams, DatagramPeer, Modify, Path};

use crate::abi::{Input, Output};
use crate::commands::mask;

/// Bytes of `struct sockaddr_in6`, in which an address of either family is.
pub(super) const SOCKADDR: usize = 28;
/// Bytes of `struct rdma_ucm_conn_param`.
pub(super) const CONN_PARAM: usize = 272;
/// Bytes of private data in it.
const PRIVATE: usize = 256;

/// The address at `at` ({family 0, port 2} and then {address 4}, or {flowinfo 4, address 8, scope_id 24}); `None`: none, or of another family.
pub(super) fn address(input: Input<'_>, at: usize) -> Option<SocketAddr> {
    let port = u16::from_be(input.u16(at + 2));
    match i32::from(input.u16(at)) {
        libc::AF_INET => Some(SocketAddr::new(Ipv4Addr::from(input.u32(at + 4).to_ne_bytes()).into(), port)),
        libc::AF_INET6 => Some(SocketAddr::new(Ipv6Addr::from(input.gid(at + 8)).into(), port)),
        _ => None,
    }
}

/// The output with such an address at `at`.
pub(super) fn with_address(output: Output, at: usize, address: SocketAddr) -> Output {
    let output = output.with(at + 2, address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => output.u16(at, libc::AF_INET as u16).with(at + 4, ip.octets()),
        IpAddr::V6(ip) => output.u16(at, libc::AF_INET6 as u16).with(at + 8, ip.octets()),
    }
}

/// An IP address as a GID.
pub(super) fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// `struct rdma_ucm_conn_param` {qp_num 0, qkey 4, private_data 8, private_data_len 264, srq 265, responder_resources 266, initiator_depth 267, flow_control 268, retry_count 269,
/// rnr_retry_count 270, valid 271} at `at`; `None`: it is not valid.
pub(super) fn conn_param(bytes: &[u8], at: usize) -> Option<ConnectParams<'_>> {
    let input = Input(bytes);
    let of = |offset: usize| input.u8(at + offset);
    if of(271) == 0 {
        return None;
    }
    let private = bytes.get(at + 8..at + 8 + usize::from(of(264)))?;
    let terms = ConnectionParams {
        private_data: private,
        responder_resources: of(266),
        initiator_depth: of(267),
        flow_control: of(268) != 0,
        retry_count: of(269) & 7,
        rnr_retry_count: of(270) & 7,
        ..ConnectionParams::default()
    };
    Some(ConnectParams { terms, qp_num: input.u32(at), qkey: input.u32(at + 4) })
}

/// The output with what a peer's program said in such a structure at `at`.
pub(super) fn with_private_data(mut output: Output, at: usize, said: &[u8]) -> Output {
    for (place, byte) in said.iter().take(PRIVATE - 1).enumerate() {
        output = output.u8(at + 8 + place, *byte);
    }
    output.u8(at + 264, said.len().min(PRIVATE - 1) as u8)
}

/// The output with `struct ib_uverbs_ah_attr` {dgid 0, flow_label 16, sgid_index 20, hop_limit 21, traffic_class 22, dlid 24, sl 26, is_global 29, port_num 30} at `at`.
pub(super) fn with_path(output: Output, at: usize, path: &Path) -> Output {
    let output = output.with(at, gid(path.addresses.dst())).u32(at + 16, path.flow_label);
    output.u8(at + 21, path.hop_limit).u8(at + 22, path.traffic_class).u8(at + 29, 1).u8(at + 30, 1)
}

/// `struct rdma_ucm_ud_param` {qp_num 0, qkey 4, ah_attr 8, private_data 40, private_data_len 296} at `at`.
pub(super) fn with_datagram_peer(mut output: Output, at: usize, peer: &DatagramPeer) -> Output {
    output = with_path(output.u32(at, peer.qpn).u32(at + 4, peer.qkey), at + 8, &peer.path);
    with_datagrams_private_data(output, at, &peer.private_data)
}

/// As [`with_private_data`], in such a structure.
pub(super) fn with_datagrams_private_data(mut output: Output, at: usize, said: &[u8]) -> Output {
    for (place, byte) in said.iter().take(PRIVATE - 1).enumerate() {
        output = output.u8(at + 40 + place, *byte);
    }
    output.u8(at + 296, said.len().min(PRIVATE - 1) as u8)
}

/// `struct ib_uverbs_qp_attr`: {qp_attr_mask 0, qp_state 4, path_mtu 12, qkey 20, rq_psn 24, sq_psn 28, dest_qp_num 32, qp_access_flags 36, ah_attr 40, pkey_index 124, max_rd_atomic 130,
/// max_dest_rd_atomic 131, min_rnr_timer 132, port_num 133, timeout 134, retry_cnt 135, rnr_retry 136}. `None`: rdma_cm makes no queue pair ready so.
pub(super) fn qp_attributes(modify: &Modify, is_datagrams: bool) -> Option<Output> {
    let output = |state: u32, set: u32| Output::new(144).u32(0, mask::STATE | set).u32(4, state);
    Some(match modify {
        Modify::Init { qkey, .. } if is_datagrams => output(1, mask::PKEY_INDEX | mask::PORT | mask::QKEY).u32(20, *qkey).u8(133, 1),
        Modify::Init { access, .. } => output(1, mask::PKEY_INDEX | mask::PORT | mask::ACCESS).u32(36, access.bits()).u8(133, 1),
        Modify::RtrDatagram => output(2, 0),
        Modify::RtsDatagram { sq_psn } => output(3, mask::SQ_PSN).u32(28, sq_psn.value()),
        Modify::Rtr(peer) => {
            let set = mask::AV | mask::PATH_MTU | mask::DEST_QP | mask::RQ_PSN | mask::MAX_DEST_RD_ATOMIC | mask::MIN_RNR_TIMER;
            let output = output(2, set).u32(12, peer.mtu as u32).u32(24, peer.rq_psn.value()).u32(32, peer.dest_qp);
            with_path(output, 40, &peer.path).u8(131, peer.max_dest_rd_atomic).u8(132, peer.min_rnr_timer)
        }
        Modify::Rts(sending) => {
            let set = mask::TIMEOUT | mask::RETRY | mask::RNR_RETRY | mask::SQ_PSN | mask::MAX_RD_ATOMIC;
            let output = output(3, set).u32(28, sending.sq_psn.value()).u8(130, sending.max_rd_atomic).u8(134, sending.timeout);
            output.u8(135, sending.retry_count).u8(136, sending.rnr_retry)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families_are_read_as_they_were_written() {
        for text in ["10.0.0.7:80", "[fd00::7]:65535"] {
            let address: SocketAddr = text.parse().unwrap();
            let output = with_address(Output::new(SOCKADDR + 8), 8, address);
            assert_eq!(super::address(Input(output.bytes()), 8), Some(address));
        }
        assert_eq!(address(Input(&[0; SOCKADDR]), 0), None);
        assert_eq!(address(Input(&[]), 0), None);
    }

    #[test]
    fn what_a_program_says_of_a_connection_is_bounded_by_its_own_words() {
        let mut bytes = vec![0; CONN_PARAM];
        assert!(conn_param(&bytes, 0).is_none(), "not valid");
        (bytes[271], bytes[264], bytes[8], bytes[266]) = (1, 2, 7, 3);
        let params = conn_param(&bytes, 0).unwrap();
        assert_eq!((params.terms.private_data, params.terms.responder_resources), (&[7, 0][..], 3));
        bytes.truncate(9);
        assert!(conn_param(&bytes, 0).is_none(), "cut off");
    }
}
