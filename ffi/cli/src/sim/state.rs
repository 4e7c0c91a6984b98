//! What a campaign has done so far: a file of lines of JSON that is only ever appended to, so that whatever ends a campaign ends at most
//! its last line. A line names the code that it speaks of; lines of other code don't count.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, create_dir_all};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use ringway_sim::campaign::{Batch, Failure, Summary};
use serde::{Deserialize, Serialize};

/// A failed seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failed {
    /// The seed.
    pub(crate) seed: u64,
    /// Its scenario in full.
    pub(crate) scenario: String,
    /// The smallest scenario that fails alike.
    pub(crate) minimal: String,
    /// How many scenarios were tried to find it.
    pub(crate) tried: u32,
    /// Whether there was no time to try them all.
    pub(crate) hurried: bool,
    /// How the smallest one fails.
    pub(crate) failure: Failure,
}

/// One line of the file: seeds that were run, or a seed that failed.
#[derive(Serialize, Deserialize)]
struct Line {
    tree: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    done: Option<Done>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<Failed>,
}

/// Seeds that were run, and what they came to; those that failed have lines of their own before.
#[derive(Serialize, Deserialize)]
struct Done {
    batch: Batch,
    summary: Summary,
}

/// What a file says about the code and the seeds at hand.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    /// Seeds that were run.
    pub(crate) done: BTreeSet<u64>,
    /// What they came to.
    pub(crate) summary: Summary,
    /// Those of them that failed.
    pub(crate) failures: Vec<Failed>,
}

/// The file, open at its end.
#[derive(Debug)]
pub(crate) struct State {
    path: PathBuf,
    file: File,
    tree: String,
}

impl State {
    /// Opens `path`, or creates it and its folder.
    ///
    /// # Errors
    /// It can't be.
    pub(crate) fn open(path: &Path, tree: &str) -> Result<Self> {
        let open = || {
            if let Some(folder) = path.parent() {
                create_dir_all(folder)?;
            }
            OpenOptions::new().read(true).append(true).create(true).open(path)
        };
        let mut file = open().with_context(|| format!("the campaign's state, {}", path.display()))?;
        // A line that was cut short stays alone.
        if let Some(last) = file.metadata()?.len().checked_sub(1) {
            let mut byte = [0];
            file.read_exact_at(&mut byte, last)?;
            if byte != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        Ok(Self { path: path.to_owned(), file, tree: tree.to_owned() })
    }

    /// Adds seeds that were run.
    ///
    /// # Errors
    /// The disk is full, or the like.
    pub(crate) fn done(&mut self, batch: Batch, summary: &Summary) -> Result<()> {
        self.append(Some(Done { batch, summary: summary.clone() }), None)
    }

    /// Adds a seed that failed.
    ///
    /// # Errors
    /// As [`Self::done`].
    pub(crate) fn failed(&mut self, failed: &Failed) -> Result<()> {
        self.append(None, Some(failed.clone()))
    }

    fn append(&mut self, done: Option<Done>, failed: Option<Failed>) -> Result<()> {
        let mut line = serde_json::to_vec(&Line { tree: self.tree.clone(), done, failed })?;
        line.push(b'\n');
        self.file.write_all(&line).with_context(|| format!("the campaign's state, {}", self.path.display()))
    }
}

/// What `path` says about `tree` and the seeds of `share`. No file says nothing, and neither does code that nobody can name.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read(path: &Path, tree: &str, share: Batch) -> Result<Earlier> {
    let mut earlier = Earlier::default();
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(earlier),
        text => text.with_context(|| format!("the campaign's state, {}", path.display()))?,
    };
    if tree.is_empty() {
        return Ok(earlier);
    }
    let ours = |line: &str| serde_json::from_str::<Line>(line).ok().filter(|line| line.tree == tree);
    let mut failures: Vec<Failed> = Vec::new();
    for line in text.lines().filter_map(ours) {
        failures.extend(line.failed);
        // A batch has one summary: it counts as a whole, or not at all.
        let news = |batch: Batch, done: &BTreeSet<u64>| batch.seeds().all(|seed| share.contains(seed) && !done.contains(&seed));
        if let Some(Done { batch, summary }) = line.done.filter(|done| news(done.batch, &earlier.done)) {
            earlier.done.extend(batch.seeds());
            earlier.summary.merge(&summary);
        }
    }
    // Not those whose batch never came to its end: it is run again, and fails again.
    failures.retain(|failed| earlier.done.contains(&failed.seed));
    failures.sort_by_key(|failed| failed.seed);
    failures.dedup_by_key(|failed| failed.seed);
    earlier.failures = failures;
    Ok(earlier)
}
