//! Pages for readers (`*.md`): their commands exist, their links lead somewhere, and their tables fit on a screen.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;

use super::numbered;
use crate::Arguments;

/// `ringway`'s subcommands; its own tests hold this against its command line.
const RINGWAY: [&str; 10] = ["run", "stats", "sockets", "capture", "doctor", "broker", "route", "sim", "completions", "man"];

/// A row of a table is no wider than this, in characters: a wider one is a list.
pub(super) const ROW_MAX: usize = 125;

/// Adds a finding for each command that a page names and that does not exist, each link to a file that does not exist, and each row of a
/// table that is too wide.
pub(super) fn check(texts: &BTreeMap<PathBuf, String>, findings: &mut Vec<String>) {
    if !texts.contains_key(Path::new("README.md")) {
        findings.push("README.md:1: missing".to_owned());
    }
    let tasks: Vec<String> = Arguments::command().get_subcommands().map(|c| c.get_name().to_owned()).collect();
    for (file, text) in texts.iter().filter(|(file, _)| file.extension().is_some_and(|e| e == "md")) {
        let mut code_block = false;
        for (number, line) in numbered(text) {
            let mut found = |what: String| findings.push(format!("{}:{number}: {what}", file.display()));
            code_block ^= line.starts_with("```");
            // Outside of code blocks, only what stands between backticks is a command.
            let commands: Vec<&str> = if code_block { vec![line] } else { line.split('`').skip(1).step_by(2).collect() };
            commands.into_iter().filter_map(|command| unknown(command, &tasks)).for_each(&mut found);
            if !code_block {
                links(line).filter(|link| !leads_somewhere(file, link, texts)).for_each(|link| found(format!("{link} does not exist")));
            }
            let width = line.chars().count();
            if !code_block && line.starts_with('|') && width > ROW_MAX {
                found(format!("a row of {width} characters, {ROW_MAX} at most: make it a list"));
            }
        }
    }
}

/// What is wrong with a command, if anything is.
fn unknown(command: &str, tasks: &[String]) -> Option<String> {
    let words: Vec<&str> = command.split_whitespace().collect();
    for three in words.windows(3).filter(|w| w[0] == "cargo" && w[1] == "xtask") {
        if !tasks.iter().any(|t| t == three[2]) {
            return Some(format!("there is no `cargo xtask {}`", three[2]));
        }
    }
    let is_ringway = words.len() > 1 && (words[0] == "ringway" || words[0].ends_with("/ringway"));
    let is_subcommand = |word: &str| word.starts_with('-') || RINGWAY.contains(&word);
    (is_ringway && !is_subcommand(words[1])).then(|| format!("there is no `ringway {}`", words[1]))
}

/// The targets of a line's links: `[text](target)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// Whether a link leads outside of the checkout, within its page, or to a file that is there.
fn leads_somewhere(page: &Path, link: &str, texts: &BTreeMap<PathBuf, String>) -> bool {
    let path = link.split('#').next().unwrap_or_default();
    if path.is_empty() || link.contains("://") {
        return true;
    }
    let mut target = page.parent().map(Path::to_path_buf).unwrap_or_default();
    for part in Path::new(path).components() {
        match part {
            std::path::Component::ParentDir => _ = target.pop(),
            std::path::Component::Normal(name) => target.push(name),
            _ => {}
        }
    }
    texts.keys().any(|file| file.starts_with(&target))
}
