//! What a fuzzer calls (`stack/fuzz` has the fuzzer): each target takes any bytes, and panics where something is wrong. For nobody else.
//!
//! Tests replay what the fuzzer has kept (`stack/fuzz/corpus`), so that what it found once stays found, with no fuzzer at hand.

mod frames;
mod pieces;

#[cfg(test)]
mod tests;

use crate::tcp::fuzzing as tcp;

/// A target, and its name.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 7] = [
    ("frames", frames::frames),
    ("options", tcp::options),
    ("reassembly", reassembly),
    ("scoreboard", tcp::scoreboard),
    ("snapshot", tcp::snapshot),
    ("connection", tcp::connection),
    ("pair", tcp::pair),
];

/// Runs the target of that name.
///
/// # Panics
/// There is none of that name; or it found something.
pub fn run(name: &str, input: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(other, _)| *other == name).expect("a target's name");
    target(input);
}

/// Of TCP's segments, or of frames in UD datagrams: IP's own fragments go to the kernel.
fn reassembly(input: &[u8]) {
    let Some((&which, rest)) = input.split_first() else { return };
    if which & 1 == 0 { tcp::reassembly(rest) } else { pieces::pieces(rest) }
}
