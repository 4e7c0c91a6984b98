//! Explicit congestion notification, by the switch (RFC 3168 s5).

use std::rc::Rc;

const ETHERTYPE_AT: usize = 12;
const IP_AT: usize = 14;

/// The frame marked; `None`: it is not capable of ECN, marked already, or no IP packet right behind an Ethernet header.
pub(super) fn marked(frame: &[u8]) -> Option<Rc<[u8]>> {
    let v4 = match frame.get(ETHERTYPE_AT..IP_AT)? {
        [0x08, 0x00] => true,
        [0x86, 0xdd] => false,
        _ => return None,
    };
    let [first, second] = *frame.get(IP_AT..)?.first_chunk()?;
    // IPv6 has the traffic class between its version and its flow label.
    let ecn = if v4 { second & 3 } else { second >> 4 & 3 };
    if ecn == 0 || ecn == 3 {
        return None;
    }
    let mut bytes = frame.to_vec();
    bytes[IP_AT + 1] |= if v4 { 3 } else { 0x30 };
    if v4 {
        // RFC 1624 s3: HC' = ~(~HC + ~m + m').
        let checksum = bytes.get_mut(IP_AT + 10..IP_AT + 12)?;
        let before = u16::from_be_bytes([checksum[0], checksum[1]]);
        let (old, new) = (u16::from_be_bytes([first, second]), u16::from_be_bytes([first, second | 3]));
        let sum = u32::from(!before) + u32::from(!old) + u32::from(new);
        let folded = (sum & 0xffff) + (sum >> 16);
        let after = !(((folded & 0xffff) + (folded >> 16)) as u16);
        checksum.copy_from_slice(&after.to_be_bytes());
    }
    Some(bytes.into())
}
