//! Messages in packets, as both kinds of connections have them (IBTA spec, volume 1, s9.4 and s9.5).

use super::packet::{AtomicEth, Body, Reth, Tail};
use super::qp::SendWqe;
use super::work::SendOp;

/// A message of several packets that is not complete.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Message {
    #[default]
    None,
    /// How many bytes of it came.
    Send(u32),
    /// How many bytes of it came.
    Write(Reth, u32),
}

/// The part of a message that a packet is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    First,
    Middle,
    Last,
    Only,
}

impl Part {
    pub(super) fn is_last(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }

    /// Whether a packet of it may have `len` bytes.
    pub(super) fn holds(self, len: u32, mtu: u32) -> bool {
        match self {
            Self::First | Self::Middle => len == mtu,
            Self::Last => len > 0 && len <= mtu,
            Self::Only => len <= mtu,
        }
    }
}

/// How many packets a message of `len` bytes has; one if it has no bytes.
pub(super) const fn packets(len: u32, mtu: u32) -> u32 {
    if len == 0 { 1 } else { len.div_ceil(mtu) }
}

/// What a packet of a request is; `offset`: where a read that is asked again begins.
pub(super) fn body(wqe: &SendWqe, packet: u32, last: bool, offset: u32) -> Body {
    let first = packet == 0;
    match wqe.op {
        SendOp::Send { immediate } => {
            let tail = immediate.map_or(Tail::None, Tail::Immediate);
            match (first, last) {
                (true, true) => Body::SendOnly(tail),
                (true, false) => Body::SendFirst,
                (false, false) => Body::SendMiddle,
                (false, true) => Body::SendLast(tail),
            }
        }
        SendOp::Write { address, rkey, immediate } => {
            let reth = Reth { address, rkey, len: wqe.len };
            match (first, last) {
                (true, true) => Body::WriteOnly(reth, immediate),
                (true, false) => Body::WriteFirst(reth),
                (false, false) => Body::WriteMiddle,
                (false, true) => Body::WriteLast(immediate),
            }
        }
        // Asked again from the middle, a read begins there.
        SendOp::Read { address, rkey } => {
            Body::ReadRequest(Reth { address: address.wrapping_add(u64::from(offset)), rkey, len: wqe.len - offset })
        }
        SendOp::CompareSwap { address, rkey, compare, swap } => Body::CompareSwap(AtomicEth { address, rkey, swap_add: swap, compare }),
        SendOp::FetchAdd { address, rkey, add } => Body::FetchAdd(AtomicEth { address, rkey, swap_add: add, compare: 0 }),
        SendOp::Datagram { immediate, .. } => Body::SendOnly(immediate.map_or(Tail::None, Tail::Immediate)),
    }
}
