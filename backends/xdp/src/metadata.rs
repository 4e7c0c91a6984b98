//! What the kernel is told of a frame that it sends, in front of the frame (`struct xsk_tx_metadata`, Documentation/networking/xsk-tx-metadata.rst): that its
//! checksum is to be filled in. On veth that is the kernel's own doing, where the interface has no offloads, or nobody's, since nothing could damage the frame. In zero-copy
//! mode it is the driver's, where that says so. Of other drivers' copy mode no kernel says whether it does so: of some (IFF_TX_SKB_NO_LINEAR, virtio_net's) it
//! has not for long.

use ringway_host::netlink::{XdpMode, XdpOffer, xdp_offer};
use ringway_stack::wire::checksum::{self, Checksum};
use ringway_stack::wire::{ethernet, ipv4, ipv6, tcp};

use crate::interface::Interface;
use crate::socket;
use crate::umem::Umem;

/// Bytes of it: flags, and what is asked for. (Later kernels have more behind it, which nobody asks for.)
pub(crate) const LEN: usize = 16;

/// XDP_TX_METADATA, of a descriptor: there is some in front of the frame.
pub(crate) const IS_THERE: u32 = 1 << 1;

/// Where the checksum goes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// What it is over begins there, which is the transport's header, in bytes from the frame's beginning.
    pub(crate) from: u16,
    /// Where it is, from there on.
    pub(crate) at: u16,
    /// UDP's or TCP's.
    pub(crate) protocol: u8,
}

impl Left {
    /// As the kernel reads it.
    pub(crate) fn metadata(self) -> [u8; LEN] {
        let mut metadata = [0; LEN];
        metadata[..8].copy_from_slice(&u64::from(libc::XDP_TXMD_FLAGS_CHECKSUM).to_ne_bytes());
        metadata[8..10].copy_from_slice(&self.from.to_ne_bytes());
        metadata[10..12].copy_from_slice(&self.at.to_ne_bytes());
        metadata
    }
}

/// Whether checksums of what an interface sends may be left to it.
pub(crate) fn is_offered(interface: &Interface) -> bool {
    let is_done = match xdp_offer(interface.index) {
        Ok(Some(XdpOffer { mode: XdpMode::Native | XdpMode::Generic, .. })) => interface.is_virtual,
        Ok(Some(XdpOffer { mode: XdpMode::ZeroCopy, send })) => send.checksum,
        Ok(None) | Err(_) => false,
    };
    is_done && is_taken()
}

/// Whether the kernel takes memory with metadata in it.
fn is_taken() -> bool {
    let tried = Umem::map(1, 1, 0).map_err(|error| error.to_string()).and_then(|umem| {
        let umem = umem.with_metadata();
        socket::make(Some(&umem), [1, 1]).map(drop).map_err(|error| error.to_string())
    });
    tried.inspect_err(|error| tracing::debug!("checksums are not left to the interface: {error}")).is_ok()
}

/// Leaves TCP's, or UDP's, checksum of a frame of `len` bytes, whose headers these are, to be filled in: the sum of the pseudo-header is in its place then. The IPv4 header's
/// is filled in at once. `None`: it is neither's.
pub(crate) fn leave(head: &mut [u8], len: usize) -> Option<Left> {
    let (link, ip_at) = ethernet::Header::parse(head).ok()?;
    let (_, packet) = head.split_at_mut_checked(ip_at)?;
    let (ip_len, protocol, addresses) = match link.ethertype {
        ethernet::ETHERTYPE_IPV4 => (usize::from(packet.first()? & 0xf) * 4, *packet.get(9)?, 12..20),
        ethernet::ETHERTYPE_IPV6 => (ipv6::LEN, *packet.get(6)?, 8..40),
        _ => return None,
    };
    let (ip, transport) = packet.split_at_mut_checked(ip_len)?;
    if link.ethertype == ethernet::ETHERTYPE_IPV4 {
        ip.get_mut(10..12)?.fill(0);
        let sum = !checksum::sum(ip);
        ip.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
    }
    let at = match protocol {
        ipv4::PROTOCOL_TCP => tcp::CHECKSUM_OFFSET,
        ipv4::PROTOCOL_UDP => UDP_CHECKSUM_OFFSET,
        _ => return None,
    };
    let place = transport.get_mut(at..at + 2)?;
    let transport_len = len.checked_sub(ip_at + ip_len)?;
    // (The pseudo-header of both families comes to this sum: RFC 9293 s3.1, RFC 8200 s8.1.)
    let mut sum = Checksum::pseudo_header([0; 4].into(), [0; 4].into(), protocol, transport_len);
    sum.add(ip.get(addresses)?);
    place.copy_from_slice(&sum.folded().to_be_bytes());
    Some(Left { from: (ip_at + ip_len) as u16, at: at as u16, protocol })
}

/// RFC 768.
const UDP_CHECKSUM_OFFSET: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers of IPv4 from 10.0.0.1 to 10.0.0.2, with a VLAN tag or without, and `len` bytes behind them.
    fn frame(tag: bool, protocol: u8, len: usize) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend(if tag { &[0x81, 0, 0, 7, 8, 0][..] } else { &[8, 0] });
        frame.extend([0x45, 0, 0, 20 + len as u8, 0, 0, 0, 0, 64, protocol, 0xff, 0xff, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(vec![0; len]);
        frame
    }

    #[test]
    fn the_kernel_is_told_where_the_checksum_goes_and_finds_the_sum_of_the_pseudo_header_there() {
        for (tag, protocol, place) in [(false, 6, 16), (false, 17, 6), (true, 6, 16), (true, 17, 6)] {
            let from = if tag { 38 } else { 34 };
            let mut frame = frame(tag, protocol, 32);
            let len = frame.len() + 1000;
            assert_eq!(leave(&mut frame, len), Some(Left { from: from as u16, at: place as u16, protocol }));
            let sum = 0x0a00 + 1 + 0x0a00 + 2 + u16::from(protocol) + 1032;
            assert_eq!(frame[from + place..from + place + 2], sum.to_be_bytes());
            assert!(ipv4::verify_checksum(&frame[from - 20..]));
        }
    }

    #[test]
    fn what_has_another_checksum_or_none_is_left_alone_but_for_its_ipv4_headers() {
        let mut icmp = frame(false, 1, 8);
        let len = icmp.len();
        assert_eq!(leave(&mut icmp, len), None);
        assert!(ipv4::verify_checksum(&icmp[14..]));
        let mut arp = vec![0; 42];
        arp[12..14].copy_from_slice(&[8, 6]);
        assert_eq!((leave(&mut arp, 42), arp[14..].iter().all(|&byte| byte == 0)), (None, true));
        for short in 0..50 {
            let _ = leave(&mut frame(false, 6, 20)[..short], short);
        }
    }

    #[test]
    fn it_is_as_the_kernel_reads_it() {
        let metadata = Left { from: 34, at: 16, protocol: 6 }.metadata();
        let mut bytes = [0; size_of::<libc::xsk_tx_metadata>()];
        bytes[..LEN].copy_from_slice(&metadata);
        // SAFETY: all fields are plain numbers.
        let read: libc::xsk_tx_metadata = unsafe { core::mem::transmute(bytes) };
        // SAFETY: as above.
        let request = unsafe { read.xsk_tx_metadata_union.request };
        assert_eq!((read.flags, request.csum_start, request.csum_offset), (2, 34, 16));
    }
}
