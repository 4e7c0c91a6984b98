//! `cargo xtask fuzz`: libFuzzer on the targets of `stack/fuzz`, one after the other.
//!
//! It needs no nightly compiler, and no cargo-fuzz: what that one has rustc do for coverage (without a sanitizer; the stack has no unsafe code) is done here. A C++
//! compiler builds libFuzzer.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::workspace::{Workspace, cargo, run_command};

/// The package, from the checkout's top.
const FOLDER: &str = "stack/fuzz";
/// What is kept of a target's corpus is no more than this: an input longer than that, in bytes, tells no more than a shorter one.
const INPUT_MAX: &str = "-max_len=4096";
/// An input that takes longer, in seconds, is a finding.
const PATIENCE: &str = "-timeout=10";
/// And one that takes more memory, in MiB.
const MEMORY: &str = "-rss_limit_mb=1024";

/// Counters at the edges of the code, and comparisons, as libFuzzer wants them.
const FLAGS: [&str; 8] = [
    "--cfg fuzzing",
    "-Ccodegen-units=1",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cforce-frame-pointers",
];

/// Which, and for how long.
#[derive(Args)]
pub(crate) struct Options {
    /// Targets; all of them, if none is named.
    targets: Vec<String>,
    /// Minutes for each.
    #[arg(long, default_value_t = 20)]
    minutes: u64,
    /// Afterwards, the corpus in the checkout is the least that covers what was covered.
    #[arg(long)]
    merge: bool,
}

/// A target, and what came of it.
struct Outcome {
    target: String,
    executions: String,
    coverage: String,
    finding: bool,
}

/// Runs them, and prints a table.
///
/// # Errors
/// There is a finding, whose input is in `stack/fuzz/artifacts`; or they cannot be built.
pub(crate) fn run(options: &Options) -> Result<()> {
    let fuzzer = Fuzzer::build(&Workspace::find()?)?;
    let all = fuzzer.targets()?;
    let chosen = if options.targets.is_empty() { all.clone() } else { options.targets.clone() };
    if let Some(unknown) = chosen.iter().find(|target| !all.contains(target)) {
        bail!("there is no target {unknown}, but {}", all.join(", "));
    }
    let mut outcomes = Vec::new();
    for target in &chosen {
        outcomes.push(fuzzer.fuzz(target, options.minutes)?);
        if options.merge {
            fuzzer.merge(target)?;
        }
    }
    println!("{:<12} {:>14} {:>9}  finding", "target", "executions", "coverage");
    for Outcome { target, executions, coverage, finding } in &outcomes {
        println!("{target:<12} {executions:>14} {coverage:>9}  {}", if *finding { "yes" } else { "no" });
    }
    let found = outcomes.iter().filter(|outcome| outcome.finding).count();
    ensure!(found == 0, "{found} targets have findings: {FOLDER}/artifacts");
    Ok(())
}

struct Fuzzer {
    folder: PathBuf,
    /// Where the programs are.
    programs: PathBuf,
    /// What is found on the way, which is not of the checkout.
    scratch: PathBuf,
}

impl Fuzzer {
    fn build(workspace: &Workspace) -> Result<Self> {
        let (folder, scratch) = (workspace.root.join(FOLDER), workspace.target.join("fuzz"));
        let host = host()?;
        // (With the target named, build scripts are not built with these flags.)
        let mut build = cargo();
        build.current_dir(&folder).env("RUSTFLAGS", FLAGS.join(" ")).args(["build", "--release", "--target", &host, "--target-dir"]);
        run_command(build.arg(&scratch)).context("libFuzzer wants a C++ compiler (Debian's package g++)")?;
        Ok(Self { folder, programs: scratch.join(host).join("release"), scratch })
    }

    /// As the package's files have them.
    fn targets(&self) -> Result<Vec<String>> {
        let mut targets = Vec::new();
        for file in fs::read_dir(self.folder.join("fuzz_targets"))? {
            targets.extend(file?.path().file_stem().and_then(|name| name.to_str()).map(str::to_owned));
        }
        targets.sort();
        Ok(targets)
    }

    fn fuzz(&self, target: &str, minutes: u64) -> Result<Outcome> {
        println!("{target}: {minutes} minutes");
        let found = self.scratch.join("corpus").join(target);
        let artifacts = self.folder.join("artifacts").join(target);
        fs::create_dir_all(&found)?;
        fs::create_dir_all(&artifacts)?;
        let mut command = self.command(target);
        command.arg(format!("-max_total_time={}", minutes * 60)).arg("-print_final_stats=1");
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        let output = command.arg(&found).arg(self.corpus(target)).stdout(Stdio::inherit()).output()?;
        let told = String::from_utf8_lossy(&output.stderr);
        let finding = !output.status.success();
        if finding {
            println!("{told}");
        }
        Ok(Outcome {
            target: target.to_owned(),
            executions: word_behind(&told, "stat::number_of_executed_units:"),
            coverage: word_behind(&told, " cov:"),
            finding,
        })
    }

    /// What covers as much as all that was found does, in as few inputs.
    fn merge(&self, target: &str) -> Result<()> {
        let (corpus, merged) = (self.corpus(target), self.scratch.join("merged").join(target));
        if merged.exists() {
            fs::remove_dir_all(&merged)?;
        }
        fs::create_dir_all(&merged)?;
        let mut command = self.command(target);
        command.arg("-merge=1").arg(&merged).arg(&corpus).arg(self.scratch.join("corpus").join(target)).stderr(Stdio::null());
        run_command(&mut command)?;
        fs::remove_dir_all(&corpus)?;
        fs::create_dir_all(&corpus)?;
        for file in fs::read_dir(&merged)? {
            let file = file?;
            fs::copy(file.path(), corpus.join(file.file_name()))?;
        }
        Ok(())
    }

    fn corpus(&self, target: &str) -> PathBuf {
        self.folder.join("corpus").join(target)
    }

    fn command(&self, target: &str) -> Command {
        let mut command = Command::new(self.programs.join(target));
        command.args([INPUT_MAX, PATIENCE, MEMORY]);
        command
    }
}

/// What rustc builds for, if it is told nothing.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("rustc")?;
    let told = String::from_utf8(output.stdout)?;
    Ok(told.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?.to_owned())
}

/// The word behind the last `name` in what libFuzzer tells.
fn word_behind(told: &str, name: &str) -> String {
    let rest = told.rfind(name).map_or("", |at| &told[at + name.len()..]);
    rest.split_whitespace().next().unwrap_or("?").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_what_libfuzzer_tells_counts() {
        let told = "#2 INITED cov: 17 ft: 18\n#99 DONE   cov: 250 ft: 900\nstat::number_of_executed_units: 1234\n";
        assert_eq!([word_behind(told, " cov:"), word_behind(told, "stat::number_of_executed_units:")], ["250", "1234"]);
        assert_eq!(word_behind("", " cov:"), "?");
    }
}
