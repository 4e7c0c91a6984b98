//! The header before each piece of a frame:
//!
//! | bytes | |
//! |---|---|
//! | 0 | version: 1 |
//! | 1 | flags: none is defined; a datagram with one set is refused |
//! | 2, 3 | the frame's number, of its sender's queue pair |
//! | 4, 5 | the frame's length |
//! | 6 | which of its pieces this is, from zero on |
//! | 7 | how many pieces it has: 1 to 64 |
//!
//! Numbers are big endian. All pieces but the last have the frame's length by their count, rounded up: so where a piece belongs, and how long it is, follow from its
//! header, and a datagram of another length is refused.

/// Bytes before each piece.
pub const HEADER_LEN: usize = 8;

/// The version that is spoken.
pub const VERSION: u8 = 1;

/// The most pieces of one frame.
pub const PIECES_MAX: usize = 64;

/// What stands before a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The frame's number: what its pieces have in common.
    pub frame: u16,
    /// Bytes of the whole frame. Invariant: not zero.
    pub frame_len: u16,
    /// Which piece it is. Invariant: less than `count`.
    pub index: u8,
    /// How many there are. Invariant: 1 to [`PIECES_MAX`], and none of them is empty.
    pub count: u8,
}

/// Why a datagram was refused: its sender's mistake, or malice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Shorter than a header.
    #[error("a datagram without a header")]
    Short,
    /// Another version's.
    #[error("a header of version {0}")]
    Version(u8),
    /// A flag that means nothing to us.
    #[error("a header with flags {0:#x}")]
    Flags(u8),
    /// No frame has such pieces: none, too many, empty ones, or one behind the last.
    #[error("piece {index} of {count} of a frame of {len} bytes")]
    Pieces {
        /// Which.
        index: u8,
        /// Of how many.
        count: u8,
        /// The frame's length.
        len: u16,
    },
    /// The piece is not as long as its header says.
    #[error("a piece of {0} bytes")]
    Len(usize),
}

/// Where a piece lies in its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its first byte.
    pub at: usize,
    /// Its bytes.
    pub len: usize,
}

impl Header {
    /// Where the piece belongs.
    pub fn piece(&self) -> Piece {
        let len = usize::from(self.frame_len);
        let unit = len.div_ceil(usize::from(self.count));
        let at = unit * usize::from(self.index);
        Piece { at, len: unit.min(len - at) }
    }

    /// As it is sent.
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let ([f0, f1], [l0, l1]) = (self.frame.to_be_bytes(), self.frame_len.to_be_bytes());
        [VERSION, 0, f0, f1, l0, l1, self.index, self.count]
    }

    /// Reads a datagram: its header, and the piece of the frame.
    ///
    /// # Errors
    /// [`HeaderError`].
    pub fn parse(datagram: &[u8]) -> Result<(Self, &[u8]), HeaderError> {
        let (head, bytes) = datagram.split_first_chunk::<HEADER_LEN>().ok_or(HeaderError::Short)?;
        let [version, flags, f0, f1, l0, l1, index, count] = *head;
        if version != VERSION {
            return Err(HeaderError::Version(version));
        }
        if flags != 0 {
            return Err(HeaderError::Flags(flags));
        }
        let header = Self { frame: u16::from_be_bytes([f0, f1]), frame_len: u16::from_be_bytes([l0, l1]), index, count };
        if !header.is_of_a_frame() {
            return Err(HeaderError::Pieces { index, count, len: header.frame_len });
        }
        if bytes.len() != header.piece().len {
            return Err(HeaderError::Len(bytes.len()));
        }
        Ok((header, bytes))
    }

    /// Whether a frame of that length has so many pieces, none of them empty, and this one.
    fn is_of_a_frame(&self) -> bool {
        let (len, count) = (usize::from(self.frame_len), usize::from(self.count));
        (1..=PIECES_MAX).contains(&count) && self.index < self.count && len.div_ceil(count) * (count - 1) < len
    }
}

/// The pieces in which a frame goes, where a datagram has room for so many bytes, header and all. `None`: there would be too many, or the frame is empty or longer than a header
/// can say.
pub fn pieces(frame: u16, frame_len: usize, datagram_max: usize) -> Option<impl Iterator<Item = Header>> {
    let room = datagram_max.checked_sub(HEADER_LEN).filter(|room| *room > 0)?;
    let len = u16::try_from(frame_len).ok().filter(|len| *len > 0)?;
    let count = frame_len.div_ceil(room);
    // (Rounded up, a few long pieces of a short frame may leave nothing for the last ones.)
    let count = frame_len.div_ceil(frame_len.div_ceil(count));
    let count = u8::try_from(count).ok().filter(|count| usize::from(*count) <= PIECES_MAX)?;
    Some((0..count).map(move |index| Header { frame, frame_len: len, index, count }))
}
