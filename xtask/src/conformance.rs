//! `cargo xtask conformance`: what the documents promise (`conformance/promises/*.toml`), each with its cases, as a matrix by device.
//!
//! A promise has, for each device, cases or the reason why there is none. A case is a function: `path/of/the/file.rs::name`, a test of
//! cargo's (with the modules between file and name, if it is in some within that file); or `path/of/the/program.c::name`, a part of a C program
//! that one of cargo's tests compiles, preloads and runs. A case that does not exist, a promise without a word for a device, a test that
//! fails or does not run, and a test binary that does not build, or dies, are holes.

mod case;
mod outcome;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use self::case::{Case, Target};
use self::outcome::{Outcome, Verdict};
use crate::workspace::Workspace;

/// Where the promises are.
const FOLDER: &str = "conformance/promises";

/// What to show.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Runs nothing: only looks whether there are holes.
    #[arg(long)]
    pub(crate) list: bool,
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

/// What the test binaries' runs came to.
type Outcomes = BTreeMap<Target, Outcome>;

/// What has a column: the stack alone, on a cable in memory; the simulated network; shared memory, from the outside; interfaces; cards.
const DEVICES: [&str; 5] = ["stack", "sim", "shm", "xdp", "mlx5"];

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
    let outcomes = if options.list { None } else { Some(run_all(&workspace, cases.values())?) };
    for (target, outcome) in outcomes.iter().flatten() {
        holes.extend(outcome.trouble.iter().map(|trouble| format!("{target}: {trouble}")));
    }
    for document in &documents {
        document.print(&cases, outcomes.as_ref(), &mut holes);
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

/// Runs the tests that cases need, and no others; what that came to, by test binary.
fn run_all<'a>(workspace: &Workspace, cases: impl Iterator<Item = &'a Case>) -> Result<Outcomes> {
    let mut by_target = BTreeMap::<&Target, BTreeSet<&str>>::new();
    for case in cases {
        by_target.entry(&case.target).or_default().insert(&case.test);
    }
    let run = |(target, tests): (&Target, BTreeSet<&str>)| {
        let output = target.command(workspace).args(["--", "--exact"]).args(&tests).output()?;
        let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            println!("{said}{errors}");
        }
        Ok((target.clone(), Outcome::read(output.status.success(), &said, &errors)))
    };
    by_target.into_iter().map(run).collect()
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

    fn print(&self, cases: &BTreeMap<String, Case>, outcomes: Option<&Outcomes>, holes: &mut Vec<String>) {
        println!("seed {}: {}", self.seed, self.title);
        let mut totals = DEVICES.map(|device| (device, 0, 0));
        for promise in &self.promise {
            println!("{:7} {}", promise.id, promise.says);
            for (device, with, without) in &mut totals {
                for name in promise.cases.get(*device).into_iter().flatten() {
                    let Some(case) = cases.get(name) else { continue };
                    let outcome =
                        outcomes.map(|outcomes| outcomes.get(&case.target).map_or(Verdict::NotRun, |outcome| outcome.of(&case.test)));
                    let verdict = match outcome {
                        None => "is there",
                        Some(Verdict::Passed) => "pass",
                        Some(Verdict::Failed) => {
                            holes.push(format!("{}: {name} failed", promise.id));
                            "FAIL"
                        }
                        Some(Verdict::NotRun) => {
                            holes.push(format!("{}: {name} did not run, as {} of {}", promise.id, case.test, case.target));
                            "NOT RUN"
                        }
                    };
                    println!("        {device:5} {verdict:8} {name}");
                }
                match promise.without.get(*device) {
                    Some(reason) => {
                        *without += 1;
                        println!("        {device:5} -        {}", self.reasons.get(reason).unwrap_or(reason));
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
