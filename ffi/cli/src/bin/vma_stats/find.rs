//! Which process is meant.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use ringway_report::published::FILE_PREFIX;
use ringway_report::reader::{Published, list};

use crate::options::Options;

/// The file of the process that the options name; without a name, of the only one there is.
///
/// # Errors
/// There is none, or more than one.
pub(crate) fn find(directory: &Path, options: &Options) -> Result<PathBuf> {
    if let Some(pid) = options.pid {
        return Ok(directory.join(format!("{FILE_PREFIX}{pid}")));
    }
    let files = list(directory).with_context(|| format!("{}", directory.display()))?;
    let runs =
        |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).map_or_else(|_| String::new(), |name| name.trim_end().to_owned());
    let alive = files.into_iter().filter(|(_, path)| Published::open(path).is_ok_and(|published| published.is_held()));
    let mut found: Vec<_> = alive.map(|(pid, path)| (pid, runs(pid), path)).collect();
    if let Some(name) = &options.name {
        // (The kernel keeps 15 bytes of it.)
        found.retain(|(_, program, _)| program == name || program.len() == 15 && name.starts_with(program.as_str()));
    }
    match &found[..] {
        [] => bail!(
            "no process{} publishes statistics in {}",
            options.name.as_ref().map_or_else(String::new, |n| format!(" {n}")),
            directory.display()
        ),
        [(_, _, path)] => Ok(path.clone()),
        several => {
            let named: Vec<_> = several.iter().map(|(pid, program, _)| format!("{pid} ({program})")).collect();
            bail!("which of these, by -p or -n: {}", named.join(", "))
        }
    }
}
