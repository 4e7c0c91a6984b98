//! Bits that flip: such that a checksum tells, or such that none does.

use std::rc::Rc;

use ringway_stack::device::ChecksumVerdict;

use crate::checksum;
use crate::dissect::{self, ETHERNET_LEN, Payload, TCP, UDP};
use crate::random::{SplitMix, scale};

/// The longest burst of flipped bits that a 16-bit ones'-complement sum always catches.
const BURST_BITS_MAX: u64 = 15;
/// Bursts drawn before a frame is given up as one that no checksum protects.
const BURST_TRIES: u32 = 8;

/// Flips one burst of bits behind the Ethernet header, such that a strict receiver must notice. The verdict is taken rather than argued:
/// a burst can hit UDP's length or zero its checksum, where the sum's guarantee ends.
pub(super) fn flip_detectably(frame: &[u8], detail: u64) -> Option<(Rc<[u8]>, usize, usize)> {
    let first_bit = ETHERNET_LEN * 8;
    let span = (frame.len() * 8).checked_sub(first_bit)?;
    let mut dice = SplitMix(detail);
    for _ in 0..BURST_TRIES {
        let len = usize::try_from(1 + scale(dice.next(), BURST_BITS_MAX)).unwrap_or(1).min(span);
        let bit = first_bit + usize::try_from(scale(dice.next(), (span - len + 1) as u64)).unwrap_or(0);
        // The burst's ends always flip: that is what makes it a burst of this length.
        let inner = dice.next();
        let mut bytes = frame.to_vec();
        for i in (0..len).filter(|&i| i == 0 || i + 1 == len || inner >> i & 1 == 1) {
            bytes[(bit + i) / 8] ^= 0x80 >> ((bit + i) % 8);
        }
        if checksum::verify(&bytes) == ChecksumVerdict::Bad {
            return Some((bytes.into(), bit, len));
        }
    }
    None
}

/// Changes the payload of a TCP segment or UDP datagram such that its checksums still come out right, and gives the two places that
/// changed. `None`: there is no payload.
///
/// Only payload is hit. A header that changes unnoticed makes a frame that nothing tells from a forged one: a peer may lawfully end a
/// connection for it, and no checker could say any more what is lawful.
pub(super) fn flip_undetectably(frame: &[u8], detail: u64) -> Option<(Rc<[u8]>, [usize; 2])> {
    let payload = payload_of(frame)?;
    // What a checksum tells of already, perhaps of a header, must not be made good.
    if checksum::verify(frame) == ChecksumVerdict::Bad {
        return None;
    }
    let mut dice = SplitMix(detail);
    let mut pick = || payload.start + usize::try_from(scale(dice.next(), payload.len() as u64)).unwrap_or(0);
    let (first, start) = (pick(), pick());
    let bit = 1 << (dice.next() & 7);
    let mut bytes = frame.to_vec();
    bytes[first] ^= bit;
    // What one 16-bit word gains another loses: the sum stays. It takes the same bit of the same half, with the opposite value.
    let opposite = |&at: &usize| at.abs_diff(first) % 2 == 0 && frame[at] & bit != frame[first] & bit;
    let second = (start..payload.end).chain(payload.start..start).find(opposite);
    match second {
        Some(second) => bytes[second] ^= bit,
        // Damaged in the memory of something that computes checksums anew, as some routers and NICs did (Stone and Partridge, SIGCOMM 2000).
        None => drop(checksum::fill(&mut bytes)),
    }
    (checksum::verify(&bytes) != ChecksumVerdict::Bad).then(|| (bytes.into(), [first, second.unwrap_or(first)]))
}

/// Where the payload of a whole TCP segment or UDP datagram lies, if it has one.
fn payload_of(frame: &[u8]) -> Option<core::ops::Range<usize>> {
    let Payload::Ip(ip) = dissect::payload(frame) else { return None };
    if ip.fragment {
        return None;
    }
    let header_len = match ip.protocol {
        TCP => usize::from(*frame.get(ip.l4 + 12)? >> 4) * 4,
        UDP => 8,
        _ => return None,
    };
    let range = ip.l4 + header_len..ip.end;
    (!range.is_empty()).then_some(range)
}
