//! `cargo xtask conformance`: what the documents promise (`conformance/promises/*.toml`), each with its cases, as a matrix by device.
//!
//! A promise has, for each device, cases or the reason why there is none. A case is a function: `path/of/the/file.rs::name`, a test of
//! cargo's; or `path/of/the/program.c::name`, a part of a C program that one of cargo's tests compiles, preloads and runs. A case that does
//! not exist, a promise without a word for a device, and a test that fails are holes.

mod case;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use self::case::{Case, Target};
use crate::workspace::Workspace;

/// Where the promises are.
const FOLDER: &str = "conformance/promises";

/// What to show.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Runs nothing: only looks whether there are holes.
    #[arg(long)]
    list: bool,
}

/// One document's promises.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    /// Its number, with which ids begin.
    seed: String,
    title: String,
    /// Reasons that several promises share, by name.
    #[serde(default)]
    reasons: BTreeMap<String, String>,
    promise: Vec<Promise>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Promise {
    id: String,
    /// In our words.
    says: String,
    /// Cases by device.
    #[serde(default)]
    cases: BTreeMap<String, Vec<String>>,
    /// Devices without, and why: a name among the reasons, or the reason itself.
    #[serde(default)]
    without: BTreeMap<String, String>,
}

/// The devices that have a column.
const DEVICES: [&str; 2] = ["sim", "shm"];

/// Prints the matrix; fails if it has a hole.
pub(crate) fn run(options: &Options) -> Result<()> {
    let workspace = Workspace::find()?;
    let documents = read(&workspace)?;
    let mut holes = documents.iter().flat_map(Document::holes).collect::<Vec<_>>();
    let mut cases = BTreeMap::new();
    for name in documents.iter().flat_map(|document| &document.promise).flat_map(|promise| promise.cases.values().flatten()) {
        match Case::find(&workspace, name) {
            Ok(case) => drop(cases.insert(name.clone(), case)),
            Err(error) => holes.push(format!("{name}: {error:#}")),
        }
    }
    let passed = if options.list { None } else { Some(run_all(&workspace, cases.values())?) };
    for document in &documents {
        document.print(&cases, passed.as_ref(), &mut holes);
    }
    for hole in &holes {
        println!("hole: {hole}");
    }
    ensure!(holes.is_empty(), "the matrix has {} holes", holes.len());
    Ok(())
}

fn read(workspace: &Workspace) -> Result<Vec<Document>> {
    let folder = workspace.root.join(FOLDER);
    let mut files = fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    files
        .iter()
        .map(|file| {
            let text = fs::read_to_string(file)?;
            toml::from_str(&text).with_context(|| file.display().to_string())
        })
        .collect()
}

/// The tests that passed, of those that cases need.
fn run_all<'a>(workspace: &Workspace, cases: impl Iterator<Item = &'a Case>) -> Result<BTreeSet<(Target, String)>> {
    let mut by_target = BTreeMap::<&Target, BTreeSet<&str>>::new();
    for case in cases {
        by_target.entry(&case.target).or_default().insert(&case.test);
    }
    let mut passed = BTreeSet::new();
    for (target, tests) in by_target {
        let output = target.command(workspace).arg("--").args(&tests).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let ok = said.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... ok"));
        // (A test's path within its target is not known here: only its last part.)
        passed.extend(ok.filter_map(|path| Some((target.clone(), path.rsplit("::").next()?.to_owned()))));
        if !output.status.success() {
            println!("{said}{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    Ok(passed)
}

impl Document {
    /// Ids that are not counted up, and devices about which a promise says nothing, or two things, or what it doesn't name.
    fn holes(&self) -> Vec<String> {
        let mut holes = Vec::new();
        for (i, promise) in self.promise.iter().enumerate() {
            let id = format!("{}.{}", self.seed, i + 1);
            if promise.id != id {
                holes.push(format!("{}: this is the place of {id}", promise.id));
            }
            for device in DEVICES {
                match (promise.cases.get(device), promise.without.contains_key(device)) {
                    (Some(cases), false) if !cases.is_empty() => {}
                    (None, true) => {}
                    _ => holes.push(format!("{id}: neither cases nor a reason (or both) for {device}")),
                }
            }
            let named = promise.cases.keys().chain(promise.without.keys());
            holes.extend(named.filter(|name| !DEVICES.contains(&name.as_str())).map(|name| format!("{id}: no device {name}")));
        }
        holes
    }

    fn print(&self, cases: &BTreeMap<String, Case>, passed: Option<&BTreeSet<(Target, String)>>, holes: &mut Vec<String>) {
        println!("seed {}: {}", self.seed, self.title);
        let mut totals = DEVICES.map(|device| (device, 0, 0));
        for promise in &self.promise {
            println!("{:7} {}", promise.id, promise.says);
            for (device, with, without) in &mut totals {
                for name in promise.cases.get(*device).into_iter().flatten() {
                    let Some(case) = cases.get(name) else { continue };
                    let verdict = match passed {
                        None => "is there",
                        Some(passed) if passed.contains(&(case.target.clone(), case.test.clone())) => "pass",
                        Some(_) => {
                            holes.push(format!("{}: {name} did not pass", promise.id));
                            "FAIL"
                        }
                    };
                    println!("        {device:4} {verdict:8} {name}");
                }
                match promise.without.get(*device) {
                    Some(reason) => {
                        *without += 1;
                        println!("        {device:4} -        {}", self.reasons.get(reason).unwrap_or(reason));
                    }
                    None => *with += 1,
                }
            }
        }
        for (device, with, without) in totals {
            println!("seed {}, {device}: {} promises, {with} with cases, {without} without, for a reason", self.seed, self.promise.len());
        }
        println!();
    }
}
