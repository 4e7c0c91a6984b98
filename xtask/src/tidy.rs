//! `cargo xtask tidy`: what lints cannot check. Every finding is one line, `file:line: what`.

mod arrows;
mod features;
mod modules;
mod pages;
mod requirements;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::workspace::Workspace;

/// The longest file, its tests apart.
const LINES_MAX: usize = 800;

/// Crates that must replay: no clock, no threads, no order that differs from run to run, and no unsafe code.
const REPLAYED: [&str; 3] = ["stack/", "sim/", "conformance/"];

/// Real programs take real time (`conformance/tests/programs/main.rs` says so).
const REAL_TIME: &str = "conformance/tests/programs/";

/// Members of shared memory greet each other from two threads, before a case begins.
const GREETING: (&str, &str) = ("conformance/tests/extra/shm.rs", "std::thread");

/// What may not be in a crate that must replay. Lints see most of it; this sees it in macros and strings of types, too.
const FORBIDDEN: [&str; 7] =
    ["std::time::Instant", "std::time::SystemTime", "std::thread", "std::net::TcpStream", "HashMap<", "HashSet<", "RandomState"];

/// What says that something is not done; a test that is ignored for a stated reason (`ignore = "…"`) is in order. (One letter of each is escaped, here and below, for this file is checked, too.)
const UNFINISHED: [&str; 7] = ["to\u{64}o!(", "unimplemente\u{64}!(", "TO\u{44}O", "FIXM\u{45}", "XX\u{58}", "HAC\u{4b}", "#[ignor\u{65}]"];

/// Beginnings of paths that only exist on one machine.
const MACHINE_PATHS: [&str; 4] = ["/wor\u{6b}/", "/roo\u{74}/", "/hom\u{65}/", "/User\u{73}/"];

/// Checks the checkout.
///
/// # Errors
/// There are findings; they were printed.
pub(crate) fn run() -> Result<()> {
    let workspace = Workspace::find()?;
    let mut texts = BTreeMap::new();
    for file in workspace.files()? {
        // What is not UTF-8 is not text.
        if let Ok(text) = fs::read_to_string(workspace.root.join(&file)) {
            texts.insert(file, text);
        }
    }
    let mut findings = check(&texts);
    features::united(&workspace, &mut findings)?;
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    println!("{} files are tidy", texts.len());
    Ok(())
}

/// All findings in the files `texts`.
fn check(texts: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let mut findings = Vec::new();
    for (file, text) in texts {
        if file.extension().is_some_and(|e| e == "rs") {
            length(file, text, &mut findings);
            forbidden(file, text, &mut findings);
        }
        marks(file, text, &mut findings);
    }
    arrows::check(texts, &mut findings);
    modules::dead(texts, &mut findings);
    pages::check(texts, &mut findings);
    requirements::check(texts, &mut findings);
    findings
}

fn length(file: &Path, text: &str, findings: &mut Vec<String>) {
    let tests = file.components().any(|c| c.as_os_str() == "tests" || c.as_os_str() == "tests.rs");
    let lines = text.lines().count();
    if !tests && lines > LINES_MAX {
        findings.push(format!("{}:{lines}: {lines} lines, {LINES_MAX} at most: which second concern moved in?", file.display()));
    }
}

fn forbidden(file: &Path, text: &str, findings: &mut Vec<String>) {
    let name = file.to_string_lossy();
    if !REPLAYED.iter().any(|folder| name.starts_with(folder)) {
        return;
    }
    for (number, line) in numbered(text) {
        let code = line.split("//").next().unwrap_or_default();
        if code.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe") {
            findings.push(format!("{name}:{number}: unsafe code; it belongs into backends/ or ffi/"));
        }
        if name.starts_with(REAL_TIME) {
            continue;
        }
        for what in FORBIDDEN.into_iter().filter(|what| (&*name, *what) != GREETING) {
            // A map with a hasher of its own, named, is in order: it is hashbrown's here, and never iterated.
            if code.contains(what) && !(what.starts_with("Hash") && text.contains("hashbrown")) {
                findings.push(format!("{name}:{number}: {what} in a crate that must replay"));
            }
        }
    }
}

fn marks(file: &Path, text: &str, findings: &mut Vec<String>) {
    for (number, line) in numbered(text) {
        for what in UNFINISHED.iter().filter(|what| stands_alone(line, what)) {
            findings.push(format!("{}:{number}: {what} says that it is unfinished", file.display()));
        }
        for what in MACHINE_PATHS.iter().filter(|what| starts_a_path(line, what)) {
            findings.push(format!("{}:{number}: a path under {what} is one machine's own", file.display()));
        }
    }
}

/// Whether `line` has `mark`, and not as part of a longer word, such as mkstemp(3)'s template.
fn stands_alone(line: &str, mark: &str) -> bool {
    let letter = |c: Option<char>| c.is_some_and(char::is_alphabetic);
    line.match_indices(mark).any(|(at, _)| {
        let (before, after) = (line[..at].chars().next_back(), line[at + mark.len()..].chars().next());
        let goes_on = mark.ends_with(char::is_alphabetic) && letter(after);
        !letter(before) && !goes_on
    })
}

/// Whether `line` has the absolute path `start`: not the middle of another one, such as `target/work/`.
fn starts_a_path(line: &str, start: &str) -> bool {
    line.match_indices(start).any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-*}>".contains(c)))
}

/// Lines with their numbers, from one.
fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().zip(1..).map(|(line, number)| (number, line))
}
