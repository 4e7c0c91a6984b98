//! What the commands print, as programs.

use std::process::{Command, Output};

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
