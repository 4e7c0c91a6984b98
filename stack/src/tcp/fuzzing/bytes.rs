//! A fuzzer's input as a program: numbers and choices, one after the other.

/// What is left of an input. Behind its end everything is zero.
pub(crate) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) const fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    /// Whether all was read.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    pub(crate) fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub(crate) fn word(&mut self) -> u32 {
        u32::from(self.short()) | u32::from(self.short()) << 16
    }

    /// One of so many, from zero on.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        match count {
            0 | 1 => 0,
            2..=256 => usize::from(self.byte()) % count,
            _ => self.word() as usize % count,
        }
    }

    /// A length: mostly a small one.
    pub(crate) fn len(&mut self, most: usize) -> usize {
        let len = match self.byte() {
            0 => 0,
            small @ 1..=127 => usize::from(small),
            _ => usize::from(self.short()),
        };
        len % (most + 1)
    }

    /// A number that is near zero, or anywhere.
    pub(crate) fn near(&mut self) -> u32 {
        match self.byte() % 8 {
            0..=3 => 0,
            4 => i32::from(self.byte() as i8) as u32,
            5 => i32::from(self.short() as i16) as u32,
            6 => u32::from(self.short()),
            _ => self.word(),
        }
    }
}
