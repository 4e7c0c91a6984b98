//! What the commands print, as programs.

use std::fs;
use std::process::{Command, Output};

use ringway_report::ProcessReport;
use ringway_report::published::{BODY, FILE_PREFIX, HEADER, Header, checksum};

fn shell(script: &str) -> Output {
    let (ringway, vma_stats) = (env!("CARGO_BIN_EXE_ringway"), env!("CARGO_BIN_EXE_vma_stats"));
    Command::new("sh").args(["-c", script]).env("ringway", ringway).env("vma_stats", vma_stats).output().expect("a shell")
}

#[test]
fn who_reads_a_part_hears_no_complaint() {
    for command in ["doctor --params", "doctor --params --man", "doctor --params --json"] {
        // (Nothing reads: the first line already finds the pipe shut.)
        let output = shell(&format!("{{ sleep 0.2; \"$ringway\" {command}; }} | true"));
        assert!(output.status.success() && output.stderr.is_empty(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn a_route_to_this_host_is_printed_and_none_is_an_error() {
    let output = shell("\"$ringway\" route 127.0.0.1");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.starts_with("127.0.0.1: local, over lo, from 127.0.0.1, MTU 65535\n"), "{output:?}");
    assert!(!said.contains("the kernel:"), "{said}");
    let output = shell("\"$ringway\" route 192.0.2.1 --link nowhere");
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("there is no link nowhere"), "{output:?}");
}

#[test]
fn samples_come_as_long_as_an_interval_was_asked_for_and_somebody_reads() {
    let lines = |output: &Output| String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.starts_with('[')).count();
    for (options, expected) in [("", 1), ("--once --interval 0.05", 1), ("--interval 0.05", 3)] {
        let output = shell(&format!("\"$ringway\" stats --json {options} | head -n 3"));
        assert!(lines(&output) == expected && output.stderr.is_empty(), "{options}: {output:?}");
    }
    // Whether SIGPIPE ends it, or cannot.
    for blocked in ["", "--block-signal=PIPE"] {
        let output = shell(&format!("env {blocked} \"$ringway\" stats --json --interval 0.05 | head -n 1"));
        assert!(lines(&output) == 1 && output.stderr.is_empty(), "{blocked}: {output:?}");
    }
}

#[test]
fn a_process_that_publishes_nothing_is_named_once() {
    let output = shell("\"$vma_stats\" -k /nowhere -p 77");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.matches("No such file").count() == 1 && said.contains("/nowhere/vmastat.77"), "{said}");
}

#[test]
fn rules_that_are_not_there_are_missed_if_they_were_named() {
    let output = shell("VMA_CONFIG_FILE=/nowhere/at/all \"$ringway\" doctor --rules x 127.0.0.1:1");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("/nowhere/at/all") && said.lines().count() == 1, "{said}");
}

#[test]
fn a_name_that_a_terminal_would_obey_is_printed_without_that() {
    let output = shell("printf '\\033[31mred' >/proc/$$/comm && \"$ringway\" doctor $$");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.trim_start().starts_with("[31mred (") && !said.contains('\u{1b}'), "{said:?}");
}

/// As a process that was asked has it: this one.
fn publish(folder: &std::path::Path) {
    let body = serde_json::to_vec(&ProcessReport { program: "publisher".into(), ..Default::default() }).unwrap();
    let header = Header { pid: std::process::id(), version: 2, len: body.len() as u64, checksum: checksum(&body), ..Header::default() };
    let mut whole = vec![0; BODY];
    whole[HEADER].copy_from_slice(&header.encode());
    whole.extend(body);
    fs::write(folder.join(format!("{FILE_PREFIX}{}", std::process::id())), whole).unwrap();
}

#[test]
fn who_may_not_ask_hears_so_where_something_was_to_be_changed() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("printed-asked");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    publish(&folder);
    let asked = |options: &str| {
        // (Root may write whatever a file's mode says, by a capability.)
        shell(&format!(
            "cd {} && chmod 444 vmastat.*; if [ $(id -u) = 0 ]; then set -- setpriv --bounding-set=-dac_override; fi
            \"$@\" \"$vma_stats\" -F -k . -p {} {options}",
            folder.display(),
            std::process::id()
        ))
    };
    let read = asked("-v 5 -c 1");
    assert!(read.status.success() && String::from_utf8_lossy(&read.stdout).starts_with("Proto"), "{read:?}");
    for options in ["-l debug", "-D 1", "-S 0", "-S 3 debug -c 1"] {
        let output = asked(options);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("ask as the process's user, or as root"), "{options}: {output:?}");
    }
    fs::remove_dir_all(&folder).unwrap();
}
