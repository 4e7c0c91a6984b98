//! What the fuzzer has kept, and inputs of no fuzzer's.

use std::path::Path;

use super::TARGETS;
use crate::tcp::fuzzing::Bytes;

/// Each target has a corpus, and passes it.
#[test]
fn what_the_fuzzer_kept_passes() {
    for (name, target) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(name);
        let mut files: Vec<_> = std::fs::read_dir(&folder).expect("a corpus").map(|entry| entry.expect("a file").path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{} is empty", folder.display());
        for file in files {
            let input = std::fs::read(&file).expect("an input");
            // (The name of the file, where one fails.)
            println!("{}", file.display());
            target(&input);
        }
    }
}

/// No fuzzer chose these: they only show that each target runs on whatever comes.
#[test]
fn any_bytes_pass() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    for (_, target) in TARGETS {
        for round in 0..400 {
            let input: Vec<u8> = (0..round % 60).flat_map(|_| next()).collect();
            target(&input);
        }
    }
}

#[test]
fn an_input_that_ends_goes_on_with_zeros() {
    let mut bytes = Bytes::new(&[5, 1]);
    assert_eq!((bytes.byte(), bytes.short(), bytes.is_empty()), (5, 1, true));
    assert_eq!((bytes.word(), bytes.len(100), bytes.below(7), bytes.near()), (0, 0, 0, 0));
}
