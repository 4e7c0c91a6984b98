//! A packet's payload, where it lies: with the packet's headers, or still in the device's buffer, so that it is copied once, to where it belongs.

/// Bytes that are not in memory of ours: a peer may write them meanwhile, so they are only copied.
pub(super) trait Source {
    /// Copies bytes from `offset` on out. There are as many.
    fn copy_to(&self, offset: usize, out: &mut [u8]);
}

/// A payload.
#[derive(Clone, Copy)]
pub(super) enum Payload<'a> {
    /// Copied already.
    Bytes(&'a [u8]),
    /// `len` bytes of a source, from `at` on.
    Source { source: &'a dyn Source, at: usize, len: usize },
}

impl Payload<'_> {
    /// In bytes.
    pub(super) const fn len(&self) -> usize {
        match *self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Source { len, .. } => len,
        }
    }
}
