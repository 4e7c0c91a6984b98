//! Entries of the tables that a peer writes: numbers in the byte order of who reads them.

/// A machine's byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// The least significant byte first.
    Little,
    /// The most significant byte first.
    Big,
}

impl ByteOrder {
    /// This machine's.
    pub const NATIVE: Self = if cfg!(target_endian = "big") { Self::Big } else { Self::Little };

    const fn get32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    const fn get64(self, bytes: [u8; 8]) -> u64 {
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }

    const fn put32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    const fn put64(self, value: u64) -> [u8; 8] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }

    /// A message's bits, where it is sent by itself.
    pub const fn word(self, bytes: [u8; 4]) -> u32 {
        self.get32(bytes)
    }

    /// The same, to send.
    pub const fn word_bytes(self, word: u32) -> [u8; 4] {
        self.put32(word)
    }
}

/// A piece of the receiver's memory: where data go next. In private data it says where a table is, and how many entries it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetSge {
    /// Its first byte.
    pub address: u64,
    /// Its region.
    pub key: u32,
    /// Bytes.
    pub len: u32,
}

impl TargetSge {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Reads it.
    pub fn parse(bytes: &[u8; Self::LEN], order: ByteOrder) -> Self {
        Self { address: order.get64(part(bytes, 0)), key: order.get32(part(bytes, 8)), len: order.get32(part(bytes, 12)) }
    }

    /// Its bytes, for a reader of that byte order.
    pub fn emit(&self, order: ByteOrder) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&order.put64(self.address));
        bytes[8..12].copy_from_slice(&order.put32(self.key));
        bytes[12..].copy_from_slice(&order.put32(self.len));
        bytes
    }
}

/// A mapping: a buffer of the sender's that the receiver of this entry may write to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IomapEntry {
    /// The offset that its first byte has in direct writes.
    pub offset: u64,
    /// The buffer.
    pub buffer: TargetSge,
}

impl IomapEntry {
    /// Bytes on the wire.
    pub const LEN: usize = 24;

    /// Reads it.
    pub fn parse(bytes: &[u8; Self::LEN], order: ByteOrder) -> Self {
        Self { offset: order.get64(part(bytes, 0)), buffer: TargetSge::parse(&part(bytes, 8), order) }
    }

    /// Its bytes, for a reader of that byte order.
    pub fn emit(&self, order: ByteOrder) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&order.put64(self.offset));
        bytes[8..].copy_from_slice(&self.buffer.emit(order));
        bytes
    }

    /// How many bytes of the buffer lie at `offset` and behind it; `None` if it does not cover `offset`.
    pub fn covers(&self, offset: u64) -> Option<u32> {
        let at = offset.checked_sub(self.offset)?;
        u64::from(self.buffer.len).checked_sub(at).filter(|left| *left > 0).map(|left| left as u32)
    }
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}
