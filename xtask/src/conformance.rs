//! `cargo xtask conformance`: what the documents promise (`conformance/promises/*.toml`), each with its cases, as a matrix by device.
//!
//! A promise has, for each device, cases or the reason why there is none. A case is a function: `path/of/the/file.rs::name`, a test of
//! cargo's (with the modules between file and name, if it is in some within that file); or `path/of/the/program.c::name`, a part of a C program
//! that one of cargo's tests compiles, preloads and runs. A case that does not exist, a promise without a word for a device, a test that
//! fails or does not run, and a test binary that does not build, or dies, are holes.

mod case;
pub(crate) mod guest;
mod outcome;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use self::case::{Case, Target};
use self::outcome::{Outcome, Verdict};
use crate::vm;
use crate::workspace::Workspace;

/// Where the promises are.
const FOLDER: &str = "conformance/promises";

/// What to show.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Runs nothing: only looks whether there are holes.
    #[arg(long)]
    pub(crate) list: bool,
    /// A real card, as mlx5:NAME: its column alone, and seed 003's cases on it.
    #[arg(long, value_parser = parse_card)]
    pub(crate) device: Option<String>,
}

/// The card's name.
fn parse_card(device: &str) -> Result<String, String> {
    let name = device.strip_prefix("mlx5:").filter(|name| !name.is_empty() && !name.contains('/'));
    name.map(str::to_owned).ok_or_else(|| "mlx5:NAME is meant: ibv_devices lists the names".to_owned())
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

/// What the test binaries' runs came to: here, and in a guest.
#[derive(Default)]
struct Outcomes {
    here: BTreeMap<Target, Outcome>,
    in_guest: BTreeMap<Target, Outcome>,
}

impl Outcomes {
    /// Of a device's cases.
    fn of(&self, device: &str) -> &BTreeMap<Target, Outcome> {
        if device == RXE { &self.in_guest } else { &self.here }
    }
}

/// What has a column: the stack alone, on a cable in memory; the simulated network; shared memory, from the outside; interfaces; cards; soft-RoCE, in a guest whose kernel has it.
const DEVICES: [&str; 6] = ["stack", "sim", "shm", "xdp", "mlx5", RXE];
const RXE: &str = "rxe";

/// In the environment of tests that are to have a real card in place of the software's: its name.
const CARD: &str = "RINGWAY_TEST_CARD";
/// Where the cases are that can have one. (Others connect two network namespaces, of which a card's port can be in one.)
const ON_A_CARD: &str = "conformance/";

/// Prints the matrix; fails if it has a hole.
pub(crate) fn run(options: &Options) -> Result<()> {
    let workspace = Workspace::find()?;
    let mut documents = read(&workspace)?;
    if options.device.is_some() {
        documents.iter_mut().flat_map(|document| &mut document.promise).for_each(Promise::keep_those_of_a_card);
    }
    let devices = if options.device.is_some() { &["mlx5"][..] } else { &DEVICES };
    let mut holes = if options.device.is_some() { Vec::new() } else { documents.iter().flat_map(Document::holes).collect() };
    let mut cases = BTreeMap::new();
    for name in documents.iter().flat_map(|document| &document.promise).flat_map(|promise| promise.cases.values().flatten()) {
        match Case::find(&workspace, name) {
            Ok(case) => drop(cases.insert(name.clone(), case)),
            Err(error) => holes.push(format!("{name}: {error:#}")),
        }
    }
    if let Some(card) = options.device.as_deref().filter(|_| !options.list) {
        holes.extend(seed_003_on(&workspace, card)?);
    }
    let outcomes = if options.list { None } else { Some(run_all(&workspace, &documents, &cases, options.device.as_deref())?) };
    for (target, outcome) in outcomes.iter().flat_map(|outcomes| outcomes.here.iter().chain(&outcomes.in_guest)) {
        holes.extend(outcome.trouble.iter().map(|trouble| format!("{target}: {trouble}")));
    }
    for document in &documents {
        document.print(devices, &cases, outcomes.as_ref(), &mut holes);
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
fn run_all(workspace: &Workspace, documents: &[Document], cases: &BTreeMap<String, Case>, card: Option<&str>) -> Result<Outcomes> {
    let promises = documents.iter().flat_map(|document| &document.promise);
    let mut by_target = [BTreeMap::<&Target, BTreeSet<&str>>::new(), BTreeMap::new()];
    for (device, names) in promises.flat_map(|promise| &promise.cases) {
        for case in names.iter().filter_map(|name| cases.get(name)) {
            by_target[usize::from(device == RXE)].entry(&case.target).or_default().insert(&case.test);
        }
    }
    let [here, in_guest] = by_target;
    let run = |(target, tests): (&Target, BTreeSet<&str>)| {
        let output = target.command(workspace).args(["--", "--exact"]).args(&tests).envs(card.map(|card| (CARD, card))).output()?;
        let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            println!("{said}{errors}");
        }
        Ok((target.clone(), Outcome::read(output.status.success(), &said, &errors)))
    };
    let run_in_guest = |(target, tests): (&Target, BTreeSet<&str>)| {
        let arguments: Vec<_> = ["--exact"].into_iter().chain(tests).collect();
        let (status, said) = vm::tests_in_guest(workspace, &[target.binary(workspace)?], &arguments)?;
        Ok((target.clone(), Outcome::read(status == 0, &said, "")))
    };
    if !in_guest.is_empty() {
        guest::compile_programs(workspace)?;
    }
    Ok(Outcomes {
        here: here.into_iter().map(run).collect::<Result<_>>()?,
        in_guest: in_guest.into_iter().map(run_in_guest).collect::<Result<_>>()?,
    })
}

/// Prints seed 003's sentences, each with what the card does of it. What is not as it should be.
fn seed_003_on(workspace: &Workspace, card: &str) -> Result<Option<String>> {
    let (target, test) = (Target::of("conformance/tests/sentences/main.rs")?.0, "seed_003_on_a_card");
    let status = target.command(workspace).args(["--", "--exact", "--nocapture", test]).env(CARD, card).status()?;
    Ok((!status.success()).then(|| format!("{test} fails on {card}")))
}

impl Promise {
    /// What a real card can show.
    fn keep_those_of_a_card(&mut self) {
        self.cases.retain(|device, _| device == "mlx5");
        self.without.retain(|device, _| device == "mlx5");
        let there = self.cases.values_mut().next();
        if let Some(cases) = there {
            cases.retain(|case| case.starts_with(ON_A_CARD));
            if cases.is_empty() {
                self.cases.clear();
                self.without.insert("mlx5".to_owned(), "shown on the software ConnectX alone".to_owned());
            }
        }
    }
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

    fn print(&self, devices: &[&str], cases: &BTreeMap<String, Case>, outcomes: Option<&Outcomes>, holes: &mut Vec<String>) {
        println!("seed {}: {}", self.seed, self.title);
        let mut totals: Vec<_> = devices.iter().map(|device| (*device, 0, 0)).collect();
        for promise in &self.promise {
            println!("{:7} {}", promise.id, promise.says);
            for (device, with, without) in &mut totals {
                for name in promise.cases.get(*device).into_iter().flatten() {
                    let Some(case) = cases.get(name) else { continue };
                    let outcome = outcomes
                        .map(|outcomes| outcomes.of(device).get(&case.target).map_or(Verdict::NotRun, |outcome| outcome.of(&case.test)));
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
