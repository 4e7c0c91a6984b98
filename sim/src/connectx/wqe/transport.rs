//! Segments of messages: where they go, and what they touch there.

use super::{Control, SendRules, take};
use crate::connectx::constants as c;
use crate::connectx::violation::Violation;

/// The peer's memory (infiniband/mlx5dv.h, `mlx5_wqe_raddr_seg`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Where, in the peer's addresses.
    pub addr: u64,
    /// The peer's key.
    pub rkey: u32,
}

impl Remote {
    /// The bytes of it.
    pub fn encode(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.addr.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        bytes
    }

    pub(super) fn take(rest: &mut &[u8], control: &Control, rules: &SendRules) -> Result<Self, Violation> {
        let [a7, a6, a5, a4, a3, a2, a1, a0, k3, k2, k1, k0, ..] = *take::<16>(rest, control, rules)?;
        Ok(Self { addr: u64::from_be_bytes([a7, a6, a5, a4, a3, a2, a1, a0]), rkey: u32::from_be_bytes([k3, k2, k1, k0]) })
    }
}

/// Operands of an atomic (infiniband/mlx5dv.h, `mlx5_wqe_atomic_seg`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// What is swapped in, or added.
    pub swap_add: u64,
    /// What is compared; unused by fetch and add.
    pub compare: u64,
}

impl Atomic {
    /// The bytes of it.
    pub fn encode(&self) -> [u8; 16] {
        (u128::from(self.swap_add) << 64 | u128::from(self.compare)).to_be_bytes()
    }

    pub(super) fn take(rest: &mut &[u8], control: &Control, rules: &SendRules) -> Result<Self, Violation> {
        let both = u128::from_be_bytes(*take::<16>(rest, control, rules)?);
        Ok(Self { swap_add: (both >> 64) as u64, compare: both as u64 })
    }
}

/// The path of a datagram (infiniband/mlx5dv.h, `mlx5_wqe_av`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressVector {
    /// The queue key.
    pub qkey: u32,
    /// The peer's queue pair, 24 bits.
    pub qpn: u32,
    /// Rate in bits 7:4, service level in bits 3:0.
    pub stat_rate_sl: u8,
    /// Forced loopback in bit 7, path bits below.
    pub fl_mlid: u8,
    /// The peer's local identifier; on RoCE v2 the UDP source port.
    pub rlid: u16,
    /// The rest, where the vector is an extended one.
    pub extended: Option<Grh>,
}

/// The second part of an [`AddressVector`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grh {
    /// The peer's Ethernet address.
    pub mac: [u8; 6],
    /// Traffic class.
    pub traffic_class: u8,
    /// Hops at most.
    pub hop_limit: u8,
    /// GRH in bit 30, index of the source GID in bits 27:20, flow label below.
    pub gid_index_flow_label: u32,
    /// The peer's GID.
    pub gid: [u8; 16],
}

impl AddressVector {
    /// The bytes of it: 48 with the second part, else 16.
    pub fn encode(&self) -> Vec<u8> {
        let extended = if self.extended.is_some() { c::EXTENDED_UD_AV } else { 0 };
        let mut out = self.qkey.to_be_bytes().to_vec();
        out.extend([0; 4]);
        out.extend((self.qpn & 0xff_ffff | extended).to_be_bytes());
        out.extend([self.stat_rate_sl, self.fl_mlid]);
        out.extend(self.rlid.to_be_bytes());
        if let Some(grh) = &self.extended {
            out.extend([0; 4]);
            out.extend(grh.mac);
            out.extend([grh.traffic_class, grh.hop_limit]);
            out.extend(grh.gid_index_flow_label.to_be_bytes());
            out.extend(grh.gid);
        }
        out
    }

    /// Without the bit for an extended vector, it is 16 bytes long (`guessed`: libmlx5 always sends 48).
    pub(super) fn take(rest: &mut &[u8], control: &Control, rules: &SendRules) -> Result<Self, Violation> {
        let [k3, k2, k1, k0, _, _, _, _, e, q2, q1, q0, stat_rate_sl, fl_mlid, l1, l0] = *take::<16>(rest, control, rules)?;
        let extended = match u32::from_be_bytes([e, 0, 0, 0]) & c::EXTENDED_UD_AV {
            0 => None,
            _ => Some(Grh::decode(take::<32>(rest, control, rules)?)),
        };
        let (qkey, qpn) = (u32::from_be_bytes([k3, k2, k1, k0]), u32::from_be_bytes([0, q2, q1, q0]));
        Ok(Self { qkey, qpn, stat_rate_sl, fl_mlid, rlid: u16::from_be_bytes([l1, l0]), extended })
    }
}

impl Grh {
    fn decode(bytes: &[u8; 32]) -> Self {
        let [_, _, _, _, m0, m1, m2, m3, m4, m5, traffic_class, hop_limit, g3, g2, g1, g0, gid @ ..] = *bytes;
        let gid_index_flow_label = u32::from_be_bytes([g3, g2, g1, g0]);
        Self { mac: [m0, m1, m2, m3, m4, m5], traffic_class, hop_limit, gid_index_flow_label, gid }
    }
}
