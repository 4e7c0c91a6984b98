//! Steps that compute, beside those that wait.
//!
//! Tests of sockets wait much of their time: for peers, for timers, for programs. What only computes, and has no clock that decides how it ends (but for
//! the limits of what hangs: ten minutes for a seed, forty for tests under emulation), takes the processors meanwhile. It runs in processes of its own,
//! which the kernel runs when nothing else is to be run (SCHED_IDLE, sched(7)): so it takes no time from what is tested. What such a step says is shown
//! as a whole, when it has ended and no other step is speaking.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::Scope;
use std::time::Instant;

use anyhow::{Context as _, Result};

use super::{Options, Outcome, Step};
use crate::arm;
use crate::workspace::{Workspace, run_command};

/// The steps that run so, one after the other.
pub(super) struct Beside {
    ended: Receiver<Ended>,
    /// The last one that has been shown. (They end in their order.)
    shown: Option<Step>,
}

/// A step's end, and the file with what it said.
struct Ended {
    outcome: Outcome,
    said: PathBuf,
}

impl Beside {
    /// Starts them.
    pub(super) fn start<'s>(scope: &'s Scope<'s, '_>, workspace: &'s Workspace, options: &'s Options, steps: &[Step]) -> Self {
        if steps.contains(&Step::ArmStack) {
            // Only one may install packages at a time. (If that fails, the step says so.)
            _ = arm::tools();
        }
        let (sender, ended) = mpsc::channel();
        let steps = steps.to_vec();
        scope.spawn(move || {
            let played = steps.into_iter().map(|step| play(workspace, options, step));
            // (If nobody listens any more, there is nothing to go on for.)
            _ = played.map(|one| sender.send(one)).find(Result::is_err);
        });
        Self { ended, shown: None }
    }

    /// Shows what has ended since.
    pub(super) fn ended(&mut self) -> Vec<Outcome> {
        let ended: Vec<_> = self.ended.try_iter().collect();
        ended.into_iter().map(|one| self.show(one)).collect()
    }

    /// Waits for the end of one of them, if that has not been shown yet, and of those before it.
    pub(super) fn until(&mut self, step: Step) -> Vec<Outcome> {
        let mut outcomes = self.ended();
        while self.shown < Some(step) {
            let Ok(one) = self.ended.recv() else { break };
            outcomes.push(self.show(one));
        }
        outcomes
    }

    /// Waits for all.
    pub(super) fn rest(mut self) -> Vec<Outcome> {
        self.until(Step::Programs)
    }

    fn show(&mut self, one: Ended) -> Outcome {
        // (Bytes of a program that is tested may be anything.)
        print!("{}", String::from_utf8_lossy(&fs::read(&one.said).unwrap_or_default()));
        if let Err(error) = &one.outcome.result {
            println!("{}: {error:#}", one.outcome.step.name());
        }
        self.shown = Some(one.outcome.step);
        one.outcome
    }
}

fn play(workspace: &Workspace, options: &Options, step: Step) -> Ended {
    let start = Instant::now();
    let said = workspace.target.join("test").join(format!("{}.log", step.name()));
    let result = play_into(&said, workspace, options, step);
    Ended { outcome: Outcome { step, result, took: start.elapsed(), again: Vec::new() }, said }
}

/// In a process of its own.
fn play_into(said: &Path, workspace: &Workspace, options: &Options, step: Step) -> Result<()> {
    // (What an earlier run said is not this one's.)
    _ = fs::remove_file(said);
    fs::create_dir_all(said.parent().context("a file without a folder")?)?;
    let output = File::create(said)?;
    let mut command = when_idle(&std::env::current_exe()?);
    command.args(["test", "--only", &step.name()]).current_dir(&workspace.root);
    if options.ci {
        command.env("CI", "true");
    }
    run_command(command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output))
}

/// A program that is run when nothing else is to be; like any other, where there is no chrt(1) that may say so.
fn when_idle(program: &Path) -> Command {
    let idle = ["--idle", "0"];
    let may_be = Command::new("chrt").args(idle).arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !may_be {
        return Command::new(program);
    }
    let mut command = Command::new("chrt");
    command.args(idle).arg(program);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_nothing_has_the_lowest_priority() {
        let policy = |mut command: Command| {
            let output = command.args(["-c", "chrt --pid $$ || :"]).output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let usual = policy(Command::new("sh"));
        // (Without chrt, neither says anything.)
        assert!(usual.is_empty() || policy(when_idle(Path::new("sh"))).contains("SCHED_IDLE"), "{usual}");
    }

    #[test]
    fn one_that_is_waited_for_comes_with_those_before_it() {
        let (sender, ended) = mpsc::channel();
        let mut beside = Beside { ended, shown: None };
        let end = |step| {
            let outcome = Outcome { step, result: Ok(()), took: std::time::Duration::ZERO, again: Vec::new() };
            sender.send(Ended { outcome, said: PathBuf::new() }).unwrap();
        };
        let steps = |outcomes: Vec<Outcome>| outcomes.into_iter().map(|outcome| outcome.step).collect::<Vec<_>>();
        end(Step::Build);
        end(Step::Mutants);
        assert_eq!(steps(beside.until(Step::Mutants)), [Step::Build, Step::Mutants]);
        // (It would wait for ever.)
        assert_eq!(steps(beside.until(Step::Build)), []);
        end(Step::Sim);
        drop(sender);
        assert_eq!(steps(beside.rest()), [Step::Sim]);
    }
}
