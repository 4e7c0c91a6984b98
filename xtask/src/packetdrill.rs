//! `cargo xtask packetdrill`: the scripts that the user has, run by the packetdrill that the user has built, against Ringway's stack.
//!
//! A script is run as it is, but for its shell commands: they would configure this machine's kernel, which is not what is tested. The sysctls that they set
//! are handed to the library instead ([`script`]). What can say nothing about the stack is left out, with a reason ([`exclusions`]); all else passes or fails.

mod exclusions;
mod script;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};

use self::exclusions::Exclusions;
use self::script::Script;
use crate::workspace::{Workspace, run_command};

/// How long (of real time) a script may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Where packetdrill is in a checkout, or in a folder of its own.
const PROGRAMS: [&str; 2] = ["gtests/net/packetdrill/packetdrill", "packetdrill"];
/// Where its own scripts are.
const SCRIPTS: &str = "gtests/net/tcp";

/// The user's packetdrill and scripts.
#[derive(Args)]
pub(crate) struct Options {
    /// A checkout of packetdrill, built there.
    #[arg(long)]
    path: PathBuf,
    /// Scripts: a folder with all that is below it, a file, or a pattern in which * stands for anything. Those of the checkout, if not given.
    #[arg(long)]
    scripts: Option<PathBuf>,
    /// Over what a script's connections go.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "ipv4,ipv4-mapped-ipv6,ipv6")]
    over: Vec<Over>,
    /// Whether to print a line for what passes too.
    #[arg(long)]
    all: bool,
}

/// The variants that packetdrill's own runner has. A script whose name ends in `v4` or `v6` has one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Over {
    Ipv4,
    #[value(name = "ipv4-mapped-ipv6")]
    Mapped,
    Ipv6,
}

impl Over {
    const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Mapped => "ipv4-mapped-ipv6",
            Self::Ipv6 => "ipv6",
        }
    }

    /// Whether a script is for it.
    fn serves(self, path: &Path) -> bool {
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if self == Self::Ipv6 { !name.ends_with("v4") } else { !name.ends_with("v6") }
    }

    /// The host's address, unless the script has one.
    const fn local(self) -> &'static str {
        if matches!(self, Self::Ipv6) { "fd3d:0a0b:17d6::1" } else { "192.168.0.1" }
    }

    /// The interface's MTU, so that the largest segment is the same.
    const fn mtu(self) -> usize {
        if matches!(self, Self::Ipv6) { 1520 } else { 1500 }
    }

    /// Arguments as packetdrill's runner and the kernel's selftests have them: addresses, and what scripts call by a name.
    fn arguments(self) -> Vec<String> {
        let mut arguments = vec![format!("--ip_version={}", self.name()), format!("--local_ip={}", self.local())];
        let (more, defined): (&[&str], &[&str]) = match self {
            Self::Ipv6 => (
                &["--mtu=1520", "--gateway_ip=fd3d:0a0b:17d6:8888::1", "--remote_ip=fd3d:fa7b:d17d::1"],
                &[
                    "TFO_COOKIE=c1d1e9742a47a9bc",
                    "TFO_COOKIE_ZERO=82af1a8f9a205c34",
                    "CODE=address_unreachable",
                    "CMSG_LEVEL_IP=SOL_IPV6",
                    "CMSG_TYPE_RECVERR=IPV6_RECVERR",
                ],
            ),
            _ => (
                &["--gateway_ip=192.168.0.1", "--netmask_ip=255.255.0.0", "--remote_ip=192.0.2.1"],
                &["TFO_COOKIE=3021b9d889017eeb", "TFO_COOKIE_ZERO=b7c12350a90dc8f5", "CODE=host_unreachable"],
            ),
        };
        arguments.extend(more.iter().map(|&argument| argument.to_owned()));
        let messages: &[&str] = match self {
            Self::Ipv4 => &["CMSG_LEVEL_IP=SOL_IP", "CMSG_TYPE_RECVERR=IP_RECVERR"],
            Self::Mapped => &["CMSG_LEVEL_IP=SOL_IPV6", "CMSG_TYPE_RECVERR=IPV6_RECVERR"],
            Self::Ipv6 => &[],
        };
        for name in defined.iter().chain(messages) {
            arguments.extend(["-D".to_owned(), (*name).to_owned()]);
        }
        arguments
    }
}

/// How a script went.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed(String),
    Excluded(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed(why) => write!(f, "failed    {why}"),
            Self::Excluded(why) => write!(f, "excluded  {why}"),
        }
    }
}

/// Runs what was asked for.
///
/// # Errors
/// Something is missing, or a script failed.
pub(crate) fn run(options: &Options) -> Result<()> {
    let workspace = Workspace::find()?;
    let runner = Runner::new(&workspace, options)?;
    let exclusions = Exclusions::read(&workspace.root)?;
    let scripts = options.scripts.clone().unwrap_or_else(|| options.path.join(SCRIPTS));
    let (base, files) = script::find(&scripts)?;
    ensure!(!files.is_empty(), "no scripts at {}", scripts.display());
    let mut totals = Totals::default();
    for file in &files {
        let name = file.strip_prefix(&base).unwrap_or(file).display().to_string();
        for over in options.over.iter().filter(|over| over.serves(file)) {
            let outcome = match exclusions.reason(&name) {
                Some(reason) => Outcome::Excluded(reason.to_owned()),
                None => runner.run(file, *over)?,
            };
            if options.all || outcome != Outcome::Passed {
                println!("{name:<64} {:<16} {outcome}", over.name());
            }
            totals.count(&name, &outcome);
        }
    }
    println!("{totals}");
    ensure!(totals.all().failed == 0, "{} of {} runs failed", totals.all().failed, totals.all().sum());
    Ok(())
}

/// What all scripts are run by.
struct Runner {
    program: PathBuf,
    library: PathBuf,
    /// Where the scripts as they are run are put.
    folder: PathBuf,
}

impl Runner {
    fn new(workspace: &Workspace, options: &Options) -> Result<Self> {
        let programs = PROGRAMS.map(|program| options.path.join(program));
        let Some(program) = programs.iter().find(|program| program.is_file()) else {
            bail!("no packetdrill at {}: build it there first", options.path.display());
        };
        // (With debug assertions: in virtual time nobody waits for the code to be fast.)
        run_command(crate::workspace::cargo().current_dir(&workspace.root).args(["build", "--package", "ringway-packetdrill"]))?;
        let folder = workspace.target.join("packetdrill");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { program: program.canonicalize()?, library: workspace.target.join("debug/libringway_packetdrill.so"), folder })
    }

    fn run(&self, file: &Path, over: Over) -> Result<Outcome> {
        let changes = self.folder.join("sysctls");
        std::fs::write(&changes, "").with_context(|| format!("cannot write {}", changes.display()))?;
        let script = Script::read(file, &changes)?;
        let copy = self.folder.join("script.pkt");
        std::fs::write(&copy, &script.text).with_context(|| format!("cannot write {}", copy.display()))?;
        let errors = self.folder.join("stderr");
        let mut child = self
            .command(&script, file.parent().unwrap_or(Path::new(".")), over)
            .arg(&copy)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&errors)?)
            .spawn()
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break Some(status);
            }
            if begin.elapsed() > PATIENCE {
                child.kill()?;
                child.wait()?;
                break None;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        Ok(match status {
            Some(status) if status.success() => Outcome::Passed,
            Some(status) => Outcome::Failed(reason(&std::fs::read_to_string(&errors)?, &copy).unwrap_or_else(|| status.to_string())),
            None => Outcome::Failed(format!("no end within {} s", PATIENCE.as_secs())),
        })
    }

    fn command(&self, script: &Script, folder: &Path, over: Over) -> Command {
        let local = script.option("local_ip").unwrap_or(over.local());
        let mtu = script.option("mtu").map_or_else(|| over.mtu().to_string(), str::to_owned);
        let changes = self.folder.join("sysctls");
        let mut flags = vec![format!("local_ip={local}"), format!("mtu={mtu}"), format!("sysctls={}", changes.display())];
        flags.extend(script.sysctls.iter().map(|(name, value)| format!("{name}={value}")));
        let mut command = Command::new(&self.program);
        command.current_dir(folder).arg("--send_omit_free").args(over.arguments());
        command.arg(format!("--so_filename={}", self.library.display())).arg(format!("--so_flags={}", flags.join(",")));
        // (For what a script's code asks the system, see the crate's page.)
        command.env("LD_PRELOAD", &self.library);
        command
    }
}

/// What packetdrill says of a failure, as one line without the script's path: the line's number stays.
fn reason(errors: &str, script: &Path) -> Option<String> {
    let prefix = format!("{}:", script.display());
    let lines: Vec<_> = errors.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let said = lines.iter().find(|line| line.contains(&prefix)).or_else(|| lines.last())?.replace(&prefix, "");
    // A failed assertion of a script's code is told by its interpreter: what was asserted, and the value.
    let asserted = lines.iter().find(|line| line.starts_with("assert "));
    let value = lines.iter().find(|line| line.starts_with("AssertionError"));
    Some(match (asserted, value) {
        (Some(asserted), Some(value)) => format!("{said}: {asserted} ({value})"),
        (None, Some(value)) => format!("{said}: {value}"),
        _ => said,
    })
}

/// How many runs ended how.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    passed: usize,
    failed: usize,
    excluded: usize,
}

impl Count {
    const fn sum(self) -> usize {
        self.passed + self.failed + self.excluded
    }
}

/// The same for each folder.
#[derive(Debug, Default)]
struct Totals(BTreeMap<String, Count>);

impl Totals {
    fn count(&mut self, name: &str, outcome: &Outcome) {
        let folder = name.rsplit_once('/').map_or(".", |(folder, _)| folder);
        let count = self.0.entry(folder.to_owned()).or_default();
        match outcome {
            Outcome::Passed => count.passed += 1,
            Outcome::Failed(_) => count.failed += 1,
            Outcome::Excluded(_) => count.excluded += 1,
        }
    }

    fn all(&self) -> Count {
        self.0.values().fold(Count::default(), |sum, count| Count {
            passed: sum.passed + count.passed,
            failed: sum.failed + count.failed,
            excluded: sum.excluded + count.excluded,
        })
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{:<48} {:>8} {:>8} {:>8}", "runs", "passed", "failed", "excluded")?;
        let all = self.all();
        for (folder, count) in self.0.iter().map(|(folder, count)| (folder.as_str(), count)).chain([("all", &all)]) {
            writeln!(f, "{folder:<48} {:>8} {:>8} {:>8}", count.passed, count.failed, count.excluded)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_without_the_path() {
        let script = Path::new("/t/script.pkt");
        let packet = "/t/script.pkt:22: error handling packet: bad\nscript packet: x\nactual packet: y\n";
        assert_eq!(reason(packet, script).unwrap(), "22: error handling packet: bad");
        let code = "/t/script.pkt:23: error in Python code\nTraceback:\n  File \"/tmp/code_1\", line 100\n    assert a == 9, a\nAssertionError: 7\n";
        assert_eq!(reason(code, script).unwrap(), "23: error in Python code: assert a == 9, a (AssertionError: 7)");
        assert_eq!(reason("", script), None);
    }

    #[test]
    fn a_name_may_say_what_a_script_goes_over() {
        let served = |name: &str| [Over::Ipv4, Over::Mapped, Over::Ipv6].map(|over| over.serves(Path::new(name)));
        assert_eq!(served("a/b.pkt"), [true; 3]);
        assert_eq!(served("a/icmp-v4.pkt"), [true, true, false]);
        assert_eq!(served("a/icmp-v6.pkt"), [false, false, true]);
    }
}
