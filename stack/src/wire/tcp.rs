//! TCP headers and options (RFC 9293 s3.1, RFC 2018, RFC 7323, RFC 7413), and sequence numbers.

mod fast_open;
pub(super) mod options;
mod parting;
mod seq;

pub use fast_open::{Cookie, FastOpen};
pub use options::{Options, SackBlock, SackBlocks};
pub use seq::SeqNumber;

pub(crate) use parting::{PARTING_HEADER_LEN, Parting, Word};

use super::{ParseError, be16, first};

/// Bytes of a header without options.
pub const LEN: usize = 20;
/// The most bytes of a header.
pub const LEN_MAX: usize = 60;
/// Bytes of timestamps, padding included.
pub(crate) const STAMPS_LEN: usize = 12;
/// Where the checksum is in the header.
pub const CHECKSUM_OFFSET: usize = 16;

bitflags::bitflags! {
    /// The control bits.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Flags: u8 {
        /// No more data from the sender.
        const FIN = 0x01;
        /// Synchronise sequence numbers.
        const SYN = 0x02;
        /// Reset the connection.
        const RST = 0x04;
        /// Push.
        const PSH = 0x08;
        /// The acknowledgment field counts.
        const ACK = 0x10;
        /// The urgent pointer counts.
        const URG = 0x20;
        /// ECN-Echo (RFC 3168).
        const ECE = 0x40;
        /// Congestion window reduced (RFC 3168).
        const CWR = 0x80;
    }
}

/// A TCP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// The sequence number of the first payload byte (or of the SYN).
    pub seq: SeqNumber,
    /// The next sequence number that the sender expects, if [`Flags::ACK`] is set.
    pub ack: SeqNumber,
    /// The control bits.
    pub flags: Flags,
    /// The receive window as on the wire, unscaled.
    pub window: u16,
    /// The checksum, emitted as it is here.
    pub checksum: u16,
    /// The urgent pointer.
    pub urgent: u16,
    /// The options.
    pub options: Options,
}

impl Header {
    /// Whether it asks for a new connection, and for nothing else.
    pub fn opens(&self) -> bool {
        self.flags.contains(Flags::SYN) && !self.flags.intersects(Flags::ACK | Flags::RST | Flags::FIN)
    }

    /// Reads the header at the front of `bytes`; also gives its length, options included. Unknown and ill-formed options are
    /// skipped.
    ///
    /// # Errors
    /// [`ParseError::Truncated`]; [`ParseError::Malformed`]: a data offset below the header's own length.
    #[inline(always)]
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), ParseError> {
        let b = first::<LEN>(bytes)?;
        let len = usize::from(b[12] >> 4) * 4;
        if len < LEN {
            return Err(ParseError::Malformed);
        }
        let options = bytes.get(LEN..len).ok_or(ParseError::Truncated)?;
        let header = Self {
            src_port: be16(b[0], b[1]),
            dst_port: be16(b[2], b[3]),
            seq: SeqNumber(u32::from_be_bytes([b[4], b[5], b[6], b[7]])),
            ack: SeqNumber(u32::from_be_bytes([b[8], b[9], b[10], b[11]])),
            flags: Flags::from_bits_retain(b[13]),
            window: be16(b[14], b[15]),
            checksum: be16(b[16], b[17]),
            urgent: be16(b[18], b[19]),
            options: Options::parse(options),
        };
        Ok((header, len))
    }

    /// The header's length in bytes, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        LEN + self.options.len()
    }

    /// Writes the header to the front of `out`, which must have room for [`Header::header_len`] bytes, and gives that
    /// length.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let len = LEN + self.options.emit(&mut out[LEN..]);
        self.emit_fixed(out, len);
        len
    }

    /// As [`Header::emit`], of a header without options, or with timestamps alone; `out` has room for these.
    #[inline(always)]
    pub(crate) fn emit_of_fixed_layout(&self, out: &mut [u8]) -> usize {
        let len = match self.options.timestamps {
            Some(stamps) => {
                options::emit_stamps(stamps, &mut out[LEN..]);
                LEN + STAMPS_LEN
            }
            None => LEN,
        };
        self.emit_fixed(out, len);
        len
    }

    /// As [`Header::emit`], with these options, of whole words, in the place of its own.
    pub(crate) fn emit_with(&self, options: &[u8], out: &mut [u8]) -> usize {
        let len = LEN + options.len();
        debug_assert!(options.len().is_multiple_of(4) && len <= LEN_MAX, "the data offset counts words");
        out[LEN..len].copy_from_slice(options);
        self.emit_fixed(out, len);
        len
    }

    /// All but the options, of a header that is as long as that with them.
    #[inline(always)]
    fn emit_fixed(&self, out: &mut [u8], len: usize) {
        let fixed = &mut out[..LEN];
        fixed[..2].copy_from_slice(&self.src_port.to_be_bytes());
        fixed[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        fixed[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        fixed[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        fixed[12] = (len as u8 / 4) << 4;
        fixed[13] = self.flags.bits();
        fixed[14..16].copy_from_slice(&self.window.to_be_bytes());
        fixed[16..18].copy_from_slice(&self.checksum.to_be_bytes());
        fixed[18..20].copy_from_slice(&self.urgent.to_be_bytes());
    }
}
