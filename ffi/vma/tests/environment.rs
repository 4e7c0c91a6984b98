//! What a bad environment, or a poor one, does to a program: nothing, but for a line of the log.

#[path = "extra/programs.rs"]
mod programs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, id};

use programs::{compile, run};

/// What a program that talks to itself so many times has to say in such an environment; it ends well.
fn log(times: &str, environment: &[(&str, &str)]) -> String {
    // (The machine may have rules.)
    let environment = [&[("VMA_CONFIG_FILE", "")], environment].concat();
    let output = run(&compile("tests/c/environment.c"), &[times], &environment);
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && output.stdout.is_empty(), "{environment:?}: {:?}\n{log}", output.status);
    log
}

/// A place of this test's own.
fn place(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("environment-{name}-{}", id()));
    let _ = fs::remove_file(&path);
    let _ = fs::remove_dir_all(&path);
    path
}

#[test]
fn what_was_named_and_is_not_there_is_one_line_of_the_log() {
    assert_eq!(log("3", &[]), "");
    for name in ["VMA_LOG_FILE", "VMA_STATS_FILE", "VMA_STATS_SHMEM_DIR", "VMA_CONFIG_FILE", "RINGWAY_STATS_FILE"] {
        let said = log("3", &[(name, "/nowhere/at/all")]);
        let lines: Vec<_> = said.lines().collect();
        let [line] = lines[..] else { panic!("{name}: {said}") };
        assert!(line.starts_with("VMA WARNING: ") && line.contains("/nowhere/at/all") && line.contains("os error 2"), "{name}: {line}");
    }
}

#[test]
fn what_is_full_is_one_line_of_the_log_or_none() {
    assert_eq!(log("3", &[("VMA_LOG_FILE", "/dev/full"), ("VMA_TRACELEVEL", "fine")]), "");
    let said = log("3", &[("VMA_STATS_FILE", "/dev/full")]);
    assert!(said.lines().count() == 1 && said.contains("/dev/full"), "{said}");
}

#[test]
fn a_fifo_that_nobody_reads_or_writes_is_not_waited_for() {
    let fifo = place("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().expect("mkfifo(1) is part of coreutils");
    assert!(made.success());
    let path = fifo.to_string_lossy().into_owned();
    for name in ["VMA_LOG_FILE", "VMA_STATS_FILE", "RINGWAY_STATS_FILE", "VMA_CONFIG_FILE"] {
        let said = log("1", &[(name, &path)]);
        assert!(said.lines().count() == 1 && said.contains(&path), "{name}: {said}");
    }
    fs::remove_file(&fifo).expect("it was made here");
}

#[test]
fn the_log_begins_with_what_it_is_the_log_of() {
    let said = log("1", &[("VMA_TRACELEVEL", "info"), ("VMA_RX_POLL", "0")]);
    // (Whoever tries another library says so in the environment, and this test that there are no rules.)
    let lines: Vec<_> = said.lines().filter(|line| !line.contains("[RINGWAY_LIBVMA]") && !line.contains("[VMA_CONFIG_FILE]")).collect();
    let who = ["VMA_VERSION: ", "Cmd Line: ", "Current Time: ", "Pid: ", "Architecture: ", "Node: "];
    let all = [&who[..], &["[VMA_TRACELEVEL]", "[VMA_RX_POLL]", "offloading over shm as "]].concat();
    assert!(lines.len() == all.len() && lines.iter().zip(all).all(|(line, part)| line.contains(part)), "{said}");
    assert!(lines[1].ends_with(" 1"), "{said}");
    assert!(lines[4].ends_with(std::env::consts::ARCH), "{said}");
}

#[test]
fn details_are_less_than_debug_and_all_of_the_configuration() {
    let at = |level| log("1", &[("VMA_TRACELEVEL", level), ("VMA_LOG_DETAILS", "0")]);
    let kinds = |said: &str| -> Vec<String> {
        let mut kinds: Vec<String> = said.lines().filter_map(|line| Some(line.split_once(": ")?.0.to_owned())).collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    };
    assert_eq!(kinds(&at("info")), ["VMA INFO"]);
    let details = at("details");
    assert_eq!(kinds(&details), ["VMA DETAILS", "VMA INFO"], "{details}");
    let of_parameters = |said: &str| said.lines().filter(|line| line.ends_with(']') && line.contains("[VMA_")).count();
    assert!(of_parameters(&details) > 80 && details.contains("VMA DETAILS: Rx poll "), "{details}");
    let debug = at("debug");
    assert_eq!(kinds(&debug), ["VMA DEBUG", "VMA DETAILS", "VMA INFO"], "{debug}");
}

/// Descriptors: a program that has enough of them for itself has enough, for what the library takes in vain is given back.
#[test]
fn a_library_that_gives_up_takes_nothing() {
    let program = compile("tests/c/environment.c");
    let statistics = place("statistics");
    fs::create_dir(&statistics).expect("a directory");
    let directory = statistics.to_string_lossy().into_owned();
    for free in 3..=8 {
        let output = run(&program, &["3", &free.to_string()], &[("VMA_STATS_SHMEM_DIR", &directory)]);
        let said = String::from_utf8_lossy(&output.stderr);
        let given_up = said.lines().filter(|line| line.contains("not offloading (no-resources)")).count();
        assert!(output.status.success() && given_up == 1, "{free} free: {:?}\n{said}", output.status);
    }
    let left: Vec<_> = fs::read_dir(&statistics).expect("it is there").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    fs::remove_dir(&statistics).expect("it is empty");
}

/// So few that the library's own would be too many of them.
#[test]
fn a_program_that_may_have_few_descriptors_keeps_them() {
    let program = compile("tests/c/environment.c");
    for limit in 6..32 {
        // (Whoever runs the test may have left some open.)
        let few = format!("exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ulimit -n {limit}");
        let script = format!("{few}; LD_PRELOAD='{}' exec '{}' 3", programs::library().display(), program.display());
        let output = Command::new("timeout").args(["60", "sh", "-c", &script]).output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("not offloading (no-resources)"), "{limit}: {:?}\n{said}", output.status);
    }
}
