//! Services of datagrams, and groups: what RDMA-CM has for queue pairs without connections (RDMA_PS_UDP, RDMA_PS_IPOIB).

use super::{Mtu, Path, PrivateData};

/// The queue pair that a datagram to a group names: all ones (IBTA spec, volume 1, s9.2.7).
pub const MULTICAST_QP: u32 = 0x00ff_ffff;

/// Where datagrams go (`struct rdma_ud_param`): to a service's queue pair, or to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatagramPeer {
    /// The way there.
    pub path: Path,
    /// How much goes into one datagram.
    pub mtu: Mtu,
    /// The queue pair; [`MULTICAST_QP`] of a group.
    pub qpn: u32,
    /// The key that its datagrams have.
    pub qkey: u32,
    /// What the service's program says; zeros may follow.
    pub private_data: PrivateData,
}
