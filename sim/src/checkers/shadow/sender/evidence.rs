//! What the peer said that tells of a loss.

use super::super::super::flow::Endpoint;
use super::super::super::segment::ACK;
use super::{DUPACK_THRESHOLD, MSS_LEAST};

/// How many acknowledgments said that this is what the peer awaits, as many as anybody might count.
pub(super) fn duplicates_of(own: &Endpoint, seq: u32) -> usize {
    let arrived = own.shadow.arrivals.iter().filter(|arrival| arrival.has(ACK) && arrival.len() == 0 && arrival.ack == seq).count();
    let before = own.shadow.sender.una.filter(|&una| una == seq).map_or(0, |_| own.shadow.sender.dups_most as usize);
    arrived + before
}

/// Whether acknowledgments say that something was lost: three duplicates, or as much reported above a hole.
pub(super) fn evidence(own: &Endpoint) -> bool {
    let state = &own.shadow.sender;
    let dups =
        own.shadow.arrivals.iter().filter(|arrival| arrival.has(ACK) && (arrival.len() == 0 || !arrival.options.sack().is_empty())).count();
    let mss = if state.shrunk { MSS_LEAST } else { state.mss };
    let blocks = own.shadow.arrivals.iter().flat_map(|arrival| arrival.options.sack());
    let above: u32 = blocks.map(|&(start, end)| end.wrapping_sub(start)).sum();
    let una = state.una.unwrap_or(own.una);
    // (One of them may have come when it was not known yet what it duplicates.)
    state.dups_most as usize + dups + 1 >= DUPACK_THRESHOLD as usize || state.sacked_bytes(una).saturating_add(above) > 2 * mss
}
