//! What the two ends of a connection say to each other when it leaves their rings for the kernels of their hosts: segments without payload, whose only option is this one, of the
//! kind that is left to experiments (RFC 4727), with a number of our own (RFC 6994).
//!
//! | bytes | |
//! |---|---|
//! | 0, 1 | kind 254, and the length: 14 |
//! | 2, 3 | the experiment: 0x5257 |
//! | 4 | version: 1 |
//! | 5 | the word: 1 to 3 |
//! | 6 to 13 | the question's number |
//! | 14, 15 | no-operations |
//!
//! Such a segment is as long as no other one of ours: who looks at the length alone need not look for the option.

use super::LEN;

const KIND: u8 = 254;
const LEN_OF_OPTION: u8 = 14;
const EXPERIMENT: [u8; 2] = *b"RW";
const VERSION: u8 = 1;
const NOP: u8 = 1;

/// Bytes of the option, with what fills the last word.
pub(crate) const PARTING_LEN: usize = 16;

/// Bytes of the header of a segment that has it.
pub(crate) const PARTING_HEADER_LEN: usize = LEN + PARTING_LEN;

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// My kernel has the connection, and says nothing before yours has it, too.
    Leave = 1,
    /// My kernel has it, and speaks.
    There = 2,
    /// My ring has it, and keeps it; or I have no such connection.
    Stay = 3,
}

/// A word, and which question it is about: its asker draws the number, which nobody else can guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parting {
    pub(crate) word: Word,
    pub(crate) number: u64,
}

impl Parting {
    /// Reads a header's options.
    #[cold]
    pub(crate) fn parse(options: &[u8]) -> Option<Self> {
        let options: &[u8; PARTING_LEN] = options.try_into().ok()?;
        let [KIND, LEN_OF_OPTION, e0, e1, VERSION, word, number @ .., NOP, NOP] = *options else { return None };
        let word = match word {
            1 => Word::Leave,
            2 => Word::There,
            3 => Word::Stay,
            _ => return None,
        };
        ([e0, e1] == EXPERIMENT).then(|| Self { word, number: u64::from_be_bytes(number) })
    }

    /// As it is in a header.
    pub(crate) fn emit(&self) -> [u8; PARTING_LEN] {
        let [a, b, c, d, e, f, g, h] = self.number.to_be_bytes();
        let [e0, e1] = EXPERIMENT;
        [KIND, LEN_OF_OPTION, e0, e1, VERSION, self.word as u8, a, b, c, d, e, f, g, h, NOP, NOP]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_word_is_sixteen_bytes_and_read_as_it_was_written() {
        for word in [Word::Leave, Word::There, Word::Stay] {
            let said = Parting { word, number: 0x0102_0304_0506_0708 };
            assert_eq!(said.emit(), [254, 14, 0x52, 0x57, 1, word as u8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1]);
            assert_eq!(Parting::parse(&said.emit()), Some(said));
        }
    }

    #[test]
    fn another_experiment_version_word_or_length_says_nothing() {
        let good = Parting { word: Word::Leave, number: 7 }.emit();
        for (at, value) in [(0, 253), (1, 16), (2, 0), (3, 0), (4, 2), (5, 0), (5, 4), (14, 0), (15, 8)] {
            let mut bytes = good;
            bytes[at] = value;
            assert_eq!(Parting::parse(&bytes), None, "byte {at} is {value}");
        }
        assert_eq!([Parting::parse(&good[..12]), Parting::parse(&[&good[..], &[1; 4]].concat())], [None, None]);
    }

    proptest! {
        #[test]
        fn any_options_are_a_word_or_none(options in proptest::collection::vec(any::<u8>(), 0..44)) {
            if let Some(said) = Parting::parse(&options) {
                prop_assert_eq!(&said.emit()[..], &options[..]);
            }
        }
    }
}
