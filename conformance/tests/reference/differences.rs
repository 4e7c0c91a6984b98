//! Where Ringway and Linux differ, and may.

use ringway_conformance::reference::lockstep::{Difference, Verdict, Where};

/// A difference that is known.
pub struct Known {
    /// Its name.
    pub id: &'static str,
    /// Why it is no bug.
    pub reason: &'static str,
    /// Whether the worlds go on alike.
    pub goes_on: bool,
    /// Whether a difference is this one.
    pub applies: fn(&Difference<'_>) -> bool,
}

/// All of them.
pub const KNOWN: &[Known] = &[];

/// How often each was met.
#[derive(Debug)]
pub struct Usage(pub Vec<usize>);

impl Usage {
    pub fn new() -> Self {
        Self(vec![0; KNOWN.len()])
    }

    /// Whether a difference is listed.
    pub fn judge(&mut self, difference: &Difference<'_>) -> Verdict {
        match KNOWN.iter().position(|known| (known.applies)(difference)) {
            None => Verdict::Bug,
            Some(index) => {
                self.0[index] += 1;
                if KNOWN[index].goes_on { Verdict::Known } else { Verdict::KnownAndOver }
            }
        }
    }

    /// A line for each.
    pub fn print(&self) {
        for (known, count) in KNOWN.iter().zip(&self.0) {
            println!("{count:>6} x {}: {}", known.id, known.reason);
        }
    }
}

#[expect(dead_code, reason = "used by predicates")]
fn unused(_: Where) {}
