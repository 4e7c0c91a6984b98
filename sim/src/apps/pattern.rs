//! Streams of bytes that both ends can compute at any offset, so that nothing has to be remembered to be compared.

/// A pseudo-random stream, by its key. Two offsets of it, or two keys, are as different as random bytes: a byte in the wrong place is
/// noticed within a few more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern(pub u64);

impl Pattern {
    /// Writes the bytes from `offset` on into `out`.
    pub fn fill(self, offset: u64, out: &mut [u8]) {
        let skip = usize::try_from(offset % 8).unwrap_or(0);
        let (first, out) = out.split_at_mut(out.len().min((8 - skip) % 8));
        first.copy_from_slice(&self.word(offset / 8)[skip % 8..][..first.len()]);
        let (words, last) = out.as_chunks_mut::<8>();
        let mut index = offset.div_ceil(8);
        for word in words {
            *word = self.word(index);
            index += 1;
        }
        last.copy_from_slice(&self.word(index)[..last.len()]);
    }

    /// Where `bytes` first differ from the stream at `offset`.
    pub fn mismatch(self, offset: u64, bytes: &[u8]) -> Option<u64> {
        let mut expected = [0; 256];
        let mut at = offset;
        for part in bytes.chunks(expected.len()) {
            let expected = &mut expected[..part.len()];
            self.fill(at, expected);
            if part != expected {
                return part.iter().zip(expected).position(|(a, b)| a != b).map(|wrong| at + wrong as u64);
            }
            at += part.len() as u64;
        }
        None
    }

    /// Its first eight bytes as a number: a name that hardly two streams share.
    pub(crate) fn name(self) -> u64 {
        u64::from_be_bytes(self.word(0))
    }

    fn word(self, index: u64) -> [u8; 8] {
        let mut z = self.0 ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    }
}
