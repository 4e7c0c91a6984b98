//! A second chance for tests that wait for clocks.
//!
//! Tests of real programs and real devices have limits of time, and a machine that stands still for a second (as virtual ones do) can exceed any of them. One that has failed runs once
//! more, alone, and the summary names it: what fails twice fails, and what is named there often is looked into. Tests in virtual time get no second chance, for they repeat.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::workspace::Workspace;

/// More failures than these are no matter of chance.
const AT_MOST: usize = 6;

/// Packages whose integration tests wait for clocks: what talks to a kernel, a card's software, or other processes.
const WAIT: [&str; 9] = [
    "ringway-cli",
    "ringway-host",
    "ringway-rsocket",
    "ringway-rspreload",
    "ringway-rxe",
    "ringway-shm",
    "ringway-uverbs",
    "ringway-vma",
    "ringway-xdp",
];

/// How long what a command has said is waited for, when it has ended: what it has left behind may hold its output for ever.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Runs it; what it says goes where ours goes, and is returned.
///
/// # Errors
/// It cannot be run.
pub(crate) fn watched(command: &mut Command) -> Result<(ExitStatus, String)> {
    let (reader, writer) = std::io::pipe()?;
    let mut child = command.stdout(writer.try_clone()?).stderr(writer).spawn()?;
    // (Or the pipe would not end: the command has its ends, too.)
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
            // (Bytes of a program that is tested may be anything.)
            let text = String::from_utf8_lossy(&line).into_owned();
            line.clear();
            print!("{text}");
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    let status = child.wait()?;
    let mut said = String::new();
    let end = Instant::now() + LAST_WORDS;
    while let Ok(line) = lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
        said.push_str(&line);
    }
    Ok((status, said))
}

/// Runs `cargo test`; integration tests that fail once more, if they are of packages whose tests wait for clocks. Returns the names of those that passed then.
///
/// # Errors
/// [`alone`]'s; or another one fails.
pub(crate) fn twice_by_cargo(workspace: &Workspace, cargo: &mut Command) -> Result<Vec<String>> {
    let (status, said) = watched(cargo)?;
    if status.success() {
        return Ok(Vec::new());
    }
    let targets = failed_targets(&said);
    ensure!(!targets.is_empty(), "cargo test failed ({status})");
    let mut passed = Vec::new();
    for (target, tests) in targets {
        let Some((package, test)) = integration_test(&target).filter(|(package, _)| WAIT.contains(package)) else {
            bail!("cargo test {target} failed: what repeats gets no second chance");
        };
        let folder = workspace.folder(package)?;
        let binary = workspace.test_binary(&folder, test)?;
        let environment: Vec<_> = cargo.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned()))).collect();
        let command = || {
            let mut command = Command::new(&binary);
            command.current_dir(workspace.root.join(&folder)).envs(environment.clone());
            command
        };
        let tests = alone(tests, command).with_context(|| format!("{package}, {test}"))?;
        passed.extend(tests.into_iter().map(|name| format!("{package} {test} {name}")));
    }
    Ok(passed)
}

/// Runs the failed tests of a harness, one after the other; returns them if they pass.
///
/// # Errors
/// One fails twice, or too many have failed, or none is named.
pub(crate) fn alone(tests: Vec<String>, command: impl Fn() -> Command) -> Result<Vec<String>> {
    ensure!(!tests.is_empty(), "it failed, and does not say in which test");
    ensure!(tests.len() <= AT_MOST, "{} tests failed, which is no chance: {}", tests.len(), tests.join(" "));
    for test in &tests {
        println!("\n{test} failed; it runs once more, alone");
        let status = command().args(["--exact", test, "--nocapture"]).status()?;
        ensure!(status.success(), "{test} failed twice");
    }
    Ok(tests)
}

/// Runs what a guest has to do, and in another guest once more if that fails. Returns its name if it passes then.
///
/// # Errors
/// It fails twice.
pub(crate) fn guest(name: &str, run: impl Fn() -> Result<()>) -> Result<Option<String>> {
    let Err(error) = run() else { return Ok(None) };
    println!("\n{name}: {error:#}; it runs once more, in another guest");
    run().with_context(|| format!("{name} failed twice"))?;
    Ok(Some(format!("{name}, in a guest")))
}

/// The names that a harness lists as failed, at its end.
pub(crate) fn failures(said: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_list = false;
    for line in said.lines() {
        if line == "failures:" {
            // (There are two such lines: what the tests said, and their names. The names come last.)
            (is_list, names) = (true, Vec::new());
        } else if line.starts_with("test result:") || line.starts_with("---- ") {
            is_list = false;
        } else if is_list && let Some(name) = line.strip_prefix("    ").filter(|name| !name.is_empty() && !name.contains(' ')) {
            names.push(name.to_owned());
        }
    }
    names
}

/// By the words with which cargo would run it again, the tests of each target that failed.
fn failed_targets(said: &str) -> BTreeMap<String, Vec<String>> {
    let mut targets = BTreeMap::new();
    let mut part = String::new();
    for line in said.lines() {
        if let Some(target) = line.strip_prefix("error: test failed, to rerun pass `").and_then(|rest| rest.strip_suffix('`')) {
            targets.insert(target.to_owned(), failures(&part));
            part.clear();
        } else if line.starts_with("test result: ok") {
            part.clear();
        } else {
            part.push_str(line);
            part.push('\n');
        }
    }
    targets
}

/// The package and the test of those words, if it is an integration test.
fn integration_test(target: &str) -> Option<(&str, &str)> {
    let words: Vec<&str> = target.split_whitespace().collect();
    let ["-p", package, "--test", test] = words[..] else { return None };
    Some((package, test))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "
running 2 tests
..
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s

running 3 tests
rings::one --- FAILED
failures:

---- rings::one stdout ----

thread 'rings::one' panicked at here.rs:1:1:
    indented by itself
failures:
    rings::one
    rings::two

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 14.18s

error: test failed, to rerun pass `-p ringway-vma --test interfaces`

running 1 test
thread 'main' panicked: a crash that lists nothing
error: test failed, to rerun pass `-p ringway-sim --lib`
";

    #[test]
    fn what_failed_is_told_by_its_target() {
        let targets = failed_targets(SAID);
        let names = |target: &str| targets.get(target).map(|names| names.join(" "));
        assert_eq!(targets.len(), 2);
        assert_eq!(names("-p ringway-vma --test interfaces").as_deref(), Some("rings::one rings::two"));
        assert_eq!(names("-p ringway-sim --lib").as_deref(), Some(""));
        assert_eq!(integration_test("-p ringway-vma --test interfaces"), Some(("ringway-vma", "interfaces")));
        assert_eq!(integration_test("-p ringway-sim --lib"), None);
        assert_eq!(integration_test("--doc -p ringway-sim"), None);
    }

    /// A harness in the language of sh(1).
    fn harness(script: &str) -> impl Fn() -> Command {
        move || {
            let mut command = Command::new("sh");
            command.args(["-c", script, "sh"]);
            command
        }
    }

    #[test]
    fn who_passes_alone_is_named_and_who_fails_twice_fails() {
        let names = |count: usize| (0..count).map(|number| format!("t{number}")).collect::<Vec<_>>();
        assert_eq!(alone(names(2), harness("test \"$1\" = --exact")).unwrap(), names(2));
        let error = |count, script| alone(names(count), harness(script)).unwrap_err().to_string();
        assert_eq!(error(2, "test \"$2\" = t0"), "t1 failed twice");
        assert!(error(AT_MOST + 1, "true").contains("no chance"));
        assert!(error(0, "true").contains("does not say"));
    }

    #[test]
    fn a_guest_has_a_second_chance_and_no_third() {
        let runs = std::cell::Cell::new(0);
        let passes_at = |turn| {
            let runs = &runs;
            runs.set(0);
            move || {
                runs.set(runs.get() + 1);
                ensure!(runs.get() == turn, "it failed");
                Ok(())
            }
        };
        assert_eq!(guest("one", passes_at(1)).unwrap(), None);
        assert_eq!(guest("one", passes_at(2)).unwrap().as_deref(), Some("one, in a guest"));
        assert_eq!(guest("one", passes_at(3)).unwrap_err().to_string(), "one failed twice");
    }

    #[test]
    fn who_leaves_somebody_behind_is_not_waited_for_long() {
        let begin = Instant::now();
        let (status, said) = watched(&mut harness("echo one; sleep 60 & exit 0")()).unwrap();
        assert_eq!((status.code(), said.as_str()), (Some(0), "one\n"));
        assert!(begin.elapsed() < Duration::from_secs(50));
    }

    #[test]
    fn what_a_command_says_is_shown_and_kept() {
        let (status, said) = watched(&mut harness("echo one; echo two >&2; exit 3")()).unwrap();
        assert_eq!((status.code(), said.as_str()), (Some(3), "one\ntwo\n"));
    }
}
