//! A RoCEv2 packet in its Ethernet frame.

use super::datagram::{Addresses, Datagram, DatagramError};
use crate::wire::{ParseError, ethernet};

/// A RoCEv2 packet with all headers around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The Ethernet header.
    pub ethernet: ethernet::Header,
    /// The IP packet.
    pub datagram: Datagram<'a>,
}

impl<'a> Frame<'a> {
    /// Reads a whole frame, without its check sequence.
    ///
    /// # Errors
    /// [`DatagramError`]; [`DatagramError::Other`] if it is not IP.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DatagramError> {
        let (ethernet, len) = ethernet::Header::parse(bytes)?;
        let datagram = match ethernet.ethertype {
            ethernet::ETHERTYPE_IPV4 | ethernet::ETHERTYPE_IPV6 => Datagram::parse(&bytes[len..])?,
            _ => return Err(DatagramError::Other),
        };
        let v4 = matches!(datagram.path.addresses, Addresses::V4 { .. });
        if v4 != (ethernet.ethertype == ethernet::ETHERTYPE_IPV4) {
            return Err(ParseError::Malformed.into());
        }
        Ok(Self { ethernet, datagram })
    }

    /// Writes the frame to the front of `out`, which must have room for it, and gives its length.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let len = self.ethernet.emit(out);
        len + self.datagram.emit(&mut out[len..])
    }
}
