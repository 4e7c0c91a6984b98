use core::time::Duration;
use std::net::Ipv4Addr;

use ringway_sim::SimQueues;
use ringway_stack::Instant;
use ringway_stack::device::{Capabilities, MacAddr, Unsupported};
use ringway_stack::offload::DeviceKind;
use ringway_stack::raw::{RawError, RawQueue};

use super::*;

/// A rig for looking at tables: no case runs on it.
enum NoRig {}

impl Rig for NoRig {
    type Queues = SimQueues;

    fn capabilities(&self) -> Capabilities {
        match *self {}
    }
    fn ring(&mut self, _: Side, _: usize) -> Result<&mut RawQueue<SimQueues>, Unsupported> {
        match *self {}
    }
    fn mac(&self, _: Side) -> MacAddr {
        match *self {}
    }
    fn ip(&self, _: Side) -> Ipv4Addr {
        match *self {}
    }
    fn now(&self) -> Instant {
        match *self {}
    }
    fn run_for(&mut self, _: Duration) {
        match *self {}
    }
}

/// Every sentence of the seed in its place: line, and number in the line; none stands for the whole line.
fn places(seed: &Seed<NoRig>) -> Vec<(u16, Option<u16>)> {
    let promises = seed.sentences.iter().map(|sentence| (sentence.at.0, Some(sentence.at.1)));
    let others = seed.others.iter().flat_map(|other| (other.lines.0..=other.lines.1).map(|line| (line, other.sentence)));
    let mut places: Vec<_> = promises.chain(others).collect();
    places.sort_unstable();
    places
}

/// How many sentences the table has on a line, if they are numbered from one without a gap.
fn sentences_of(places: &[(u16, Option<u16>)], line: u16) -> Result<u16, String> {
    let on_line: Vec<_> = places.iter().filter(|place| place.0 == line).map(|place| place.1).collect();
    match on_line[..] {
        [] => Err(format!("line {line} is missing")),
        [None] => Ok(1),
        _ => (1..).zip(&on_line).try_fold(0, |_, (number, place)| {
            if *place == Some(number) { Ok(number) } else { Err(format!("line {line}: sentence {number} is missing, or named twice")) }
        }),
    }
}

#[test]
fn every_line_of_the_seed_is_accounted_for() {
    let seed = seed003::seed::<NoRig>();
    let places = places(&seed);
    for line in 1..=seed.lines {
        sentences_of(&places, line).unwrap();
    }
    assert!(places.iter().all(|place| (1..=seed.lines).contains(&place.0)));
}

#[test]
fn ids_count_up_in_the_seeds_order_and_every_sentence_has_a_case() {
    let seed = seed003::seed::<NoRig>();
    for (number, sentence) in (1..).zip(&seed.sentences) {
        assert_eq!(sentence.id, format!("{}.{number}", seed.number));
        assert!(!sentence.cases.is_empty() && !sentence.says.is_empty(), "{}", sentence.id);
    }
    assert!(seed.sentences.is_sorted_by_key(|sentence| sentence.at));
    assert!(seed.others.is_sorted_by_key(|other| other.lines));
}

/// The text of the seed is no part of this repository. With it at hand: as many sentences on each line as the table has.
#[test]
#[ignore = "needs the seed's text: RINGWAY_SEED_003 names the file"]
fn the_seed_has_no_other_sentences() {
    let file = std::env::var_os("RINGWAY_SEED_003").expect("RINGWAY_SEED_003 names the file");
    let text = std::fs::read_to_string(file).unwrap();
    let seed = seed003::seed::<NoRig>();
    let places = places(&seed);
    assert_eq!(text.lines().count(), usize::from(seed.lines));
    for (line, text) in (1..).zip(text.lines()) {
        let ends = text.match_indices(". ").filter(|(at, end)| text[at + end.len()..].starts_with(char::is_uppercase));
        let wanted = if seed.others.iter().any(|other| other.sentence.is_none() && (other.lines.0..=other.lines.1).contains(&line)) {
            1
        } else {
            1 + ends.count() as u16
        };
        assert_eq!(sentences_of(&places, line), Ok(wanted), "line {line}: {text}");
    }
}

#[test]
fn a_verdict_holds_the_outcome_against_the_capabilities() {
    let refused = || Unsupported { device: DeviceKind::Sim, what: "wings" };
    assert_eq!(judge(true, Ok(())), Verdict::Pass);
    assert_eq!(judge(false, Err(refused().into())), Verdict::Cannot("wings".to_owned()));
    assert_eq!(
        judge(false, Err(anyhow::Error::from(RawError::Unsupported(refused())).context("flying"))),
        Verdict::Cannot("wings".to_owned())
    );
    let fails = |can, outcome| matches!(judge(can, outcome), Verdict::Fail(_));
    assert!(fails(false, Ok(())), "a silent no");
    assert!(fails(true, Err(refused().into())), "a refusal of what it has");
    assert!(fails(true, Err(anyhow::anyhow!("wrong bytes"))));
    assert!(fails(false, Err(RawError::NoBuffers.into())), "no typed refusal");
}
