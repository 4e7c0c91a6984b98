//! `ringway sim` as a program.
#![cfg(feature = "sim")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use ringway_sim::FaultSet;
use ringway_sim::workloads::WorkloadSet;

/// A folder of a test's own, empty.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Runs `ringway sim` in `folder`.
fn sim(folder: &PathBuf, arguments: &[&str]) -> (Output, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ringway")).arg("sim").args(arguments).current_dir(folder).output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap() + &String::from_utf8(output.stderr.clone()).unwrap();
    (output, text)
}

/// The word after `title` at the beginning of a line.
fn value<'a>(text: &'a str, title: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(title)).unwrap_or_else(|| panic!("no line {title:?} in:\n{text}"));
    line.trim_start().split([' ', ',', ':']).next().unwrap()
}

#[test]
fn a_seed_is_told_twice_alike() {
    let folder = folder("replay");
    let (output, text) = sim(&folder, &["--seed", "7/loss/2", "--pcap", "7.pcapng", "--timeline", "7.html", "--text", "7.txt"]);
    assert!(output.status.success(), "{text}");
    assert!(text.starts_with("outcome  passed\nscenario 7/loss/2/"), "{text}");
    assert!(!text.contains("safety phase") && text.lines().all(|line| line.len() < 200), "{text}");
    assert_eq!(value(&text, "trace "), value(&text, "again "));
    assert!(text.contains("equal, byte for byte"), "{text}");

    // And so does another process, to the last byte of its files.
    let first = ["7.pcapng", "7.html", "7.txt"].map(|file| fs::read(folder.join(file)).unwrap());
    assert!(first.iter().all(|file| file.len() > 100));
    sim(&folder, &["--seed", "7/loss/2", "--pcap", "7.pcapng", "--timeline", "7.html", "--text", "7.txt"]);
    assert!(first == ["7.pcapng", "7.html", "7.txt"].map(|file| fs::read(folder.join(file)).unwrap()));

    let (_, other) = sim(&folder, &["--seed", "8/loss/2", "--verbose"]);
    assert!(other.contains("safety phase"), "{other}");
    assert_ne!(value(&text, "trace "), value(&other, "trace "));
}

#[test]
fn a_campaign_goes_on_where_it_was() {
    let folder = folder("campaign");
    let json = |arguments: &[&str]| -> serde_json::Value {
        let (output, text) = sim(&folder, &[&["--json", "--jobs", "2"], arguments].concat());
        assert!(output.status.success(), "{text}");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let first = json(&["--seeds", "0..10", "--resume", "state.jsonl"]);
    assert_eq!((&first["seeds"], &first["seeds_earlier"]), (&10.into(), &0.into()));
    let second = json(&["--seeds", "0..16", "--resume", "state.jsonl", "--twice"]);
    assert_eq!((&second["seeds"], &second["seeds_left"]), (&16.into(), &0.into()));
    // Without a name for the code, as outside of a checkout, results never count for another campaign.
    let known = second["tree"] != "";
    assert_eq!(second["seeds_earlier"], if known { 10 } else { 0 });

    let whole = json(&["--seeds", "0..16"]);
    assert!(folder.join("target/sim/campaign.jsonl").exists());
    let shards = ["1/2", "2/2"].map(|shard| json(&["--seeds", "0..16", "--shard", shard]));
    for count in ["seeds", "events"] {
        let sum: u64 = shards.iter().map(|shard| shard[count].as_u64().unwrap()).sum();
        assert_eq!(sum, whole[count].as_u64().unwrap(), "{count}");
    }
    assert_eq!(second["events"], whole["events"]);
    assert_eq!(second["faults"], whole["faults"]);
}

#[test]
fn a_campaign_that_meets_too_little_has_failed() {
    let folder = folder("missing");
    let (output, text) = sim(&folder, &["--seeds", "0..2", "--complete-from", "2"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("never came up in 2 seeds"), "{text}");
    let (output, text) = sim(&folder, &["--seeds", "0..2"]);
    assert!(output.status.success(), "{text}");
}

#[test]
fn the_help_lists_what_a_scenario_may_name() {
    let (_, text) = sim(&folder("help"), &["--help"]);
    for name in FaultSet::names().into_iter().chain(WorkloadSet::names()).chain(["SEED/FAULTS/SCALE/WORKLOADS".to_owned()]) {
        assert!(text.contains(&name), "{name} is not in\n{text}");
    }
}

#[test]
fn what_makes_no_sense_is_said() {
    let folder = folder("nonsense");
    for (arguments, words) in [
        (&["--seed", "x"][..], "not a number"),
        (&["--seed", "1/fire"], "hidden_corruption"),
        (&["--seed", "1/none/1/war"], "half-close"),
        (&["--seeds", "5..5"], "no seed in this range"),
        (&["--seeds", "0..5", "--shard", "0/2"], "i from 1 to n"),
        (&["--seeds", "0..5", "--seed", "1"], "cannot be used with"),
        (&["--seeds", "0..5", "--pcap", "x"], "cannot be used with"),
        (&["--seed", "7/loss/2", "--pcap-of", "sent"], "--pcap <FILE>"),
        (&["--seed", "7/loss/0", "--pcap", "x", "--pcap-of", "nobody"], "all, sent, or a host"),
        (&["--seed", "1", "--jobs", "2"], "cannot be used with"),
        (&[], "--seed"),
    ] {
        let (output, text) = sim(&folder, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(words), "{arguments:?}: {text}");
    }
}
