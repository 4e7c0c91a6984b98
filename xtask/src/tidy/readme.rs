//! The README's commands exist.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;

use super::numbered;
use crate::Arguments;

/// `ringway`'s subcommands; its own tests hold this against its command line.
const RINGWAY: [&str; 4] = ["run", "stats", "doctor", "sim"];

/// Adds a finding for each command that the README names and that does not exist.
pub(super) fn commands(texts: &BTreeMap<PathBuf, String>, findings: &mut Vec<String>) {
    let Some(text) = texts.get(Path::new("README.md")) else {
        findings.push("README.md:1: missing".to_owned());
        return;
    };
    let tasks: Vec<String> = Arguments::command().get_subcommands().map(|c| c.get_name().to_owned()).collect();
    let mut code_block = false;
    for (number, line) in numbered(text) {
        code_block ^= line.starts_with("```");
        // Outside of code blocks, only what stands between backticks is a command.
        let commands: Vec<&str> = if code_block { vec![line] } else { line.split('`').skip(1).step_by(2).collect() };
        for command in commands {
            let words: Vec<&str> = command.split_whitespace().collect();
            for pair in words.windows(3).filter(|w| w[0] == "cargo" && w[1] == "xtask") {
                if !tasks.iter().any(|t| t == pair[2]) {
                    findings.push(format!("README.md:{number}: there is no `cargo xtask {}`", pair[2]));
                }
            }
            if words.len() > 1 && (words[0] == "ringway" || words[0].ends_with("/ringway")) && !RINGWAY.contains(&words[1]) {
                findings.push(format!("README.md:{number}: there is no `ringway {}`", words[1]));
            }
        }
    }
}
