//! What of a packet is kept, and where: the geometry of a cyclic buffer.

use core::ops::Range;

use crate::wire::{ethernet, ipv4, udp};

/// The most bytes of a buffer.
const BYTES_MAX: usize = 1 << 30;
/// Headers begin on a cache line of their own.
const HEADERS_ALIGN: usize = 64;

/// What of a packet a record is, libvma's `vma_cb_packet_rec_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// All of it, from Ethernet on, one packet behind the other.
    Raw,
    /// What follows the network headers. The program's own header goes to an array of its own, if it has one.
    StripHeaders,
    /// What follows the network headers, and the program's own. Those go to an array of their own, in this order.
    SeparateHeaders,
    /// All of it, from Ethernet on, in as many strides as it needs: a power of two of bytes each.
    Padded,
}

/// What a program says of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// What of them it wants.
    pub records: Records,
    /// How many there is room for, at least (libvma's `num`).
    pub packets: usize,
    /// Bytes of payload of a packet, without the program's header (`stride_bytes`).
    pub payload_bytes: usize,
    /// Bytes of the program's header in front of that, if it is to lie apart (`hdr_bytes`).
    pub header_bytes: usize,
    /// Packets come with a VLAN tag.
    pub vlan: bool,
}

/// Why there is no buffer of a geometry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// The caller: packets without a byte of payload, or none of them, or a header that is to lie apart from packets that are kept whole.
    #[error("such records make no sense")]
    Invalid,
    /// The caller: more than a gibibyte.
    #[error("a cyclic buffer of more than {BYTES_MAX} bytes")]
    TooLarge,
    /// The caller: the memory that is to be used is too small.
    #[error("the memory for a cyclic buffer is too small: it takes {0} bytes")]
    NoRoom(usize),
}

/// Where records lie: payload from the memory's beginning on, then the array of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What they are.
    pub records: Records,
    /// Bytes from one record to the next.
    pub record_bytes: usize,
    /// How many there are: in [`Records::Padded`], strides.
    pub count: usize,
    /// Bytes of an entry of the array of headers. Zero: there is none.
    pub header_bytes: usize,
    /// Of that, the network's.
    pub net_bytes: usize,
    /// Where the array begins.
    pub headers_at: usize,
}

impl Geometry {
    /// Bytes of a packet's network headers, without IP options.
    pub const fn net_bytes(&self) -> usize {
        ethernet::LEN + ipv4::LEN + udp::LEN + if self.vlan { ethernet::VLAN_LEN } else { 0 }
    }

    /// Where its records lie.
    ///
    /// # Errors
    /// [`GeometryError::Invalid`], [`GeometryError::TooLarge`].
    pub fn layout(&self) -> Result<Layout, GeometryError> {
        let Self { records, packets, payload_bytes, header_bytes, .. } = *self;
        let whole = matches!(records, Records::Raw | Records::Padded);
        // vma.md s2.14: whole packets have no header apart. (With padding, the length is still that of a packet with its header.)
        if packets == 0 || payload_bytes == 0 || (records == Records::Raw && header_bytes > 0) {
            return Err(GeometryError::Invalid);
        }
        let net_bytes = self.net_bytes();
        let record_bytes = match records {
            Records::Raw => net_bytes + payload_bytes,
            Records::StripHeaders | Records::SeparateHeaders => payload_bytes,
            Records::Padded => (net_bytes + header_bytes + payload_bytes).checked_next_power_of_two().ok_or(GeometryError::TooLarge)?,
        };
        let net_bytes = if records == Records::SeparateHeaders { net_bytes } else { 0 };
        let header_bytes = if whole { 0 } else { net_bytes + header_bytes };
        let bytes_of = |each: usize| each.checked_mul(packets).filter(|&bytes| bytes <= BYTES_MAX).ok_or(GeometryError::TooLarge);
        let headers_at = bytes_of(record_bytes)?.next_multiple_of(HEADERS_ALIGN);
        let layout = Layout { records, record_bytes, count: packets, header_bytes, net_bytes, headers_at };
        if headers_at + bytes_of(header_bytes)? > BYTES_MAX { Err(GeometryError::TooLarge) } else { Ok(layout) }
    }
}

impl Layout {
    /// Bytes of all records.
    pub const fn payload_bytes(&self) -> usize {
        self.record_bytes * self.count
    }

    /// Whether packets' network headers are a part of it.
    pub const fn keeps_headers(&self) -> bool {
        !matches!(self.records, Records::StripHeaders)
    }

    /// Bytes of everything.
    pub const fn bytes(&self) -> usize {
        match self.header_bytes {
            0 => self.payload_bytes(),
            each => self.headers_at + each * self.count,
        }
    }

    /// Where these records lie.
    pub(super) const fn payload(&self, records: Range<usize>) -> Range<usize> {
        self.record_bytes * records.start..self.record_bytes * records.end
    }

    /// Where their headers do; nowhere, if they don't lie apart.
    pub(super) const fn headers(&self, records: Range<usize>) -> Range<usize> {
        match self.header_bytes {
            0 => 0..0,
            each => self.headers_at + each * records.start..self.headers_at + each * records.end,
        }
    }
}
