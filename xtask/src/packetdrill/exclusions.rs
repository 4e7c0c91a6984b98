//! The scripts that can say nothing about the stack, each with its reason: `ffi/packetdrill/excluded.toml`.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Deserialize;

const LIST: &str = "ffi/packetdrill/excluded.toml";

/// The list.
#[derive(Debug, Deserialize)]
pub(super) struct Exclusions {
    #[serde(default)]
    excluded: Vec<Exclusion>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exclusion {
    /// Paths below the folder of scripts, in which * stands for anything.
    scripts: Vec<String>,
    reason: String,
}

impl Exclusions {
    /// Reads the repository's.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let path = root.join(LIST);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{LIST} is not as it should be"))
    }

    /// Why a script is left out, if it is.
    pub(super) fn reason(&self, name: &str) -> Option<&str> {
        let found = self.excluded.iter().find(|exclusion| exclusion.scripts.iter().any(|pattern| matches(pattern, name)));
        found.map(|exclusion| exclusion.reason.as_str())
    }
}

/// Whether a name is as a pattern has it, in which each * stands for any characters.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == name };
    let Some(rest) = name.strip_prefix(before) else { return false };
    rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| matches(after, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        assert!(matches("a/b.pkt", "a/b.pkt") && matches("a/*.pkt", "a/b.pkt") && matches("*", "") && matches("a*b*c", "axxbyyc"));
        assert!(!matches("a/*.pkt", "a/b.pkt2") && !matches("a", "ab") && !matches("*b", "ba"));
    }

    #[test]
    fn the_list_is_well_formed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let list = Exclusions::read(root).unwrap();
        assert!(list.excluded.iter().all(|exclusion| !exclusion.reason.is_empty() && !exclusion.scripts.is_empty()));
    }
}
