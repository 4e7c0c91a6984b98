//! The page of RFC 9293's requirements: each of them is there once, the totals are those of the rows, and what it names as tests exists.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::numbered;

pub(super) const PAGE: &str = "stack/docs/rfc9293.md";

/// How many identifiers of each kind the RFC has (its appendix B).
const KINDS: [(&str, usize); 4] = [("MUST", 69), ("SHLD", 31), ("MAY", 18), ("REC", 1)];

/// What may be said of a requirement. The columns of the totals are these, and the first of them is two: shown by a test, and not.
const VERDICTS: [&str; 4] = ["yes", "in part", "elsewhere", "no"];

/// Where tests are, and drills.
const SOURCES: [&str; 4] = ["stack/", "sim/", "conformance/", "ffi/"];
const DRILLS: &str = "sim/src/drills/";

/// Adds a finding for each requirement that is missing or there twice, each total that is not that of the rows, and each test that does not exist.
pub(super) fn check(texts: &BTreeMap<PathBuf, String>, findings: &mut Vec<String>) {
    let Some(page) = texts.get(Path::new(PAGE)) else { return };
    let mut known: Vec<String> = KINDS.iter().flat_map(|(kind, count)| (1..=*count).map(move |n| format!("{kind}-{n}"))).collect();
    let mut counts = [[0; 5]; KINDS.len()];
    let mut totals = Vec::new();
    for (number, line) in numbered(page) {
        let mut found = |what: String| findings.push(format!("{PAGE}:{number}: {what}"));
        names(line).filter(|name| !exists(name, texts)).for_each(|name| found(format!("there is no {name}")));
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", first, .., ""] = &cells[..] else { continue };
        let kind = KINDS.iter().position(|(kind, _)| first.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')));
        match (kind, &cells[..]) {
            (Some(kind), [_, id, _, verdict, shown, _]) if id.contains('-') => {
                match known.iter().position(|known| known == *id) {
                    Some(at) => drop(known.remove(at)),
                    None => found(format!("{id} is there twice, or is none of the RFC's")),
                }
                match VERDICTS.iter().position(|known| known == verdict) {
                    Some(0) if names(shown).next().is_some() => counts[kind][0] += 1,
                    Some(at) => counts[kind][at + 1] += 1,
                    None => found(format!("{id}: {verdict} is no answer")),
                }
            }
            (Some(kind), [_, _, sums @ .., _]) => totals.push((number, kind, sums.join(" "))),
            _ => {}
        }
    }
    findings.extend(known.iter().map(|id| format!("{PAGE}:1: {id} is missing")));
    for (number, kind, said) in totals {
        let right = counts[kind].map(|count: usize| count.to_string()).join(" ");
        if said != right {
            findings.push(format!("{PAGE}:{number}: {said} of {}, and the rows have {right}", KINDS[kind].0));
        }
    }
}

/// What a line names: tests and checkers between backticks, drills between quotation marks.
fn names(line: &str) -> impl Iterator<Item = Name<'_>> {
    let is_test = |word: &&str| word.contains('_') && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let tests = between(line, '`').filter(is_test).map(Name::Test);
    let checkers = between(line, '`').filter_map(|word| word.strip_prefix("checkers/")).map(Name::Checker);
    tests.chain(checkers).chain(between(line, '"').map(Name::Drill))
}

fn between(line: &str, mark: char) -> impl Iterator<Item = &str> {
    line.split(mark).skip(1).step_by(2)
}

/// What a page names.
enum Name<'a> {
    Test(&'a str),
    Checker(&'a str),
    Drill(&'a str),
}

impl core::fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Test(name) => write!(f, "test {name}"),
            Self::Checker(name) => write!(f, "checker {name}"),
            Self::Drill(name) => write!(f, "drill \"{name}\""),
        }
    }
}

fn exists(name: &Name<'_>, texts: &BTreeMap<PathBuf, String>) -> bool {
    let sources = |folder: &'static str| texts.iter().filter(move |(file, _)| file.starts_with(folder));
    match name {
        Name::Test(name) => {
            let head = format!("fn {name}(");
            let is_of_tests = |file: &Path| file.components().any(|c| c.as_os_str().to_string_lossy().starts_with("tests"));
            SOURCES.into_iter().flat_map(sources).any(|(file, text)| is_of_tests(file) && text.contains(&head))
        }
        Name::Checker(name) => texts.contains_key(Path::new(&format!("sim/src/checkers/{name}.rs"))),
        Name::Drill(name) => sources(DRILLS).any(|(_, text)| text.contains(&format!("(\"{name}\", "))),
    }
}
