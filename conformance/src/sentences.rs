//! What the documents promise, sentence by sentence: an id, a place in its seed, and cases.
//!
//! A [`Seed`] lists every sentence of one document in the document's order. Each that promises something has [`Case`]s; a case's body is
//! written once, generic over a [`Rig`], which provides two hosts of some device. [`Matrix`] runs every case on a rig of its own and
//! has a row a case and a column a device: it passed, or the device cannot, with the reason in its own words.
//!
//! "Cannot" is as strict as "pass" ([`Verdict`]). A case says which capabilities it needs: a device that names them must pass; one that does
//! not must refuse with the typed error [`Unsupported`](ringway_stack::device::Unsupported). To refuse what the capabilities name, or to
//! take what they don't, is a failure: a silent no is found as surely as a wrong byte.

pub mod frames;
pub mod matrix;
mod rig;
pub mod roce;
pub mod rsockets;
pub mod seed003;
mod verdict;

pub use matrix::Matrix;
pub use rig::{Received, Rig, Side};
pub use verdict::{Verdict, judge, refusal};

use ringway_stack::device::Capabilities;

/// One document.
#[derive(Debug)]
pub struct Seed<R> {
    /// Its number, with which ids begin.
    pub number: &'static str,
    /// How many lines it has.
    pub lines: u16,
    /// What promises something, in order.
    pub sentences: Vec<Sentence<R>>,
    /// What promises nothing, in order.
    pub others: &'static [Other],
}

/// One sentence that promises something.
#[derive(Debug)]
pub struct Sentence<R> {
    /// `003.7`: the seed's number, and the sentence's among those that promise something.
    pub id: &'static str,
    /// Its line, and which sentence of that line it is, both from one.
    pub at: (u16, u16),
    /// The sentence, shortened where it is long.
    pub says: &'static str,
    /// What it comes to: at least one case.
    pub cases: Vec<Case<R>>,
}

/// What promises nothing: headings, links, and examples that belong to a sentence.
#[derive(Clone, Copy, Debug)]
pub struct Other {
    /// Its lines, first and last, from one.
    pub lines: (u16, u16),
    /// Which sentence of its line it is, from one; none: all of its lines.
    pub sentence: Option<u16>,
    /// Why it promises nothing.
    pub why: &'static str,
}

/// One thing that a sentence promises.
#[derive(Debug)]
pub struct Case<R> {
    /// What is promised.
    pub name: &'static str,
    /// How it is found out.
    pub check: Check<R>,
}

/// How it is found out whether a device keeps a promise.
#[derive(Debug)]
pub enum Check<R> {
    /// By a case.
    Run {
        /// Whether a device with these capabilities must pass.
        needs: fn(&Capabilities) -> bool,
        /// The case.
        run: fn(&mut R) -> anyhow::Result<()>,
    },
    /// Not yet, on any device: the contract has no words for it. Counts as "cannot".
    NotYet(&'static str),
}

impl<R> Case<R> {
    /// A case for devices whose capabilities meet `needs`.
    pub const fn new(name: &'static str, needs: fn(&Capabilities) -> bool, run: fn(&mut R) -> anyhow::Result<()>) -> Self {
        Self { name, check: Check::Run { needs, run } }
    }

    /// A promise that no device can be held to yet, and why.
    pub const fn not_yet(name: &'static str, why: &'static str) -> Self {
        Self { name, check: Check::NotYet(why) }
    }
}

impl Other {
    const fn lines(first: u16, last: u16, why: &'static str) -> Self {
        Self { lines: (first, last), sentence: None, why }
    }

    const fn sentence(line: u16, sentence: u16, why: &'static str) -> Self {
        Self { lines: (line, line), sentence: Some(sentence), why }
    }
}

#[cfg(test)]
mod tests;
