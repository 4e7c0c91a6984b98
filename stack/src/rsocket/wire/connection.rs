//! What each side says of itself as a connection is made, in the private data of request and reply. Big endian.

use super::{ByteOrder, TargetSge};

const VERSION: u8 = 1;
const FLAG_NET: u8 = 1;
const FLAG_IOMAP: u8 = 2;

/// The most mappings that eight bits can tell.
const SCALED_MAX: u16 = 127 << 8;

/// What a peer says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionData {
    /// Its byte order.
    pub order: ByteOrder,
    /// It has a table of mappings. (librdmacm always says so.)
    pub has_iomap: bool,
    /// How many messages it can take.
    pub credits: u16,
    /// How many mappings its table has room for, as far as eight bits can tell ([`to_scale`]).
    pub iomap_size: u16,
    /// Where its table of targets is, and how many entries it has; the table of mappings follows it.
    pub target_table: TargetSge,
    /// The first piece of its receive buffer.
    pub data_buffer: TargetSge,
}

/// Why a peer's private data are of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionDataError {
    /// It speaks another version.
    #[error("another version of rsockets")]
    Version,
    /// There is less than there must be, or a table without entries.
    #[error("malformed private data")]
    Malformed,
}

impl ConnectionData {
    /// Bytes on the wire.
    pub const LEN: usize = 40;

    /// Reads it from the front of private data; what follows is padding.
    ///
    /// # Errors
    /// [`ConnectionDataError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ConnectionDataError> {
        let bytes: &[u8; Self::LEN] = bytes.first_chunk().ok_or(ConnectionDataError::Malformed)?;
        if bytes[0] != VERSION {
            return Err(ConnectionDataError::Version);
        }
        let sge = |at: usize| {
            let mut part = [0; TargetSge::LEN];
            part.copy_from_slice(&bytes[at..at + TargetSge::LEN]);
            TargetSge::parse(&part, ByteOrder::Big)
        };
        let (target_table, data_buffer) = (sge(8), sge(24));
        if target_table.len == 0 {
            return Err(ConnectionDataError::Malformed);
        }
        Ok(Self {
            order: if bytes[1] & FLAG_NET != 0 { ByteOrder::Big } else { ByteOrder::Little },
            has_iomap: bytes[1] & FLAG_IOMAP != 0,
            credits: u16::from_be_bytes([bytes[2], bytes[3]]),
            iomap_size: from_scale(bytes[7]),
            target_table,
            data_buffer,
        })
    }

    /// Its bytes.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = VERSION;
        bytes[1] = if self.order == ByteOrder::Big { FLAG_NET } else { 0 } | if self.has_iomap { FLAG_IOMAP } else { 0 };
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[7] = to_scale(self.iomap_size);
        bytes[8..24].copy_from_slice(&self.target_table.emit(ByteOrder::Big));
        bytes[24..].copy_from_slice(&self.data_buffer.emit(ByteOrder::Big));
        bytes
    }
}

/// A count in eight bits: up to 128 as it is, above in units of 256, rounded down.
pub const fn to_scale(count: u16) -> u8 {
    let count = if count > SCALED_MAX { SCALED_MAX } else { count };
    if count <= 128 { count as u8 } else { 128 | (count >> 8) as u8 }
}

/// The count that eight bits stand for.
pub const fn from_scale(scaled: u8) -> u16 {
    if scaled <= 128 { scaled as u16 } else { ((scaled & 127) as u16) << 8 }
}
