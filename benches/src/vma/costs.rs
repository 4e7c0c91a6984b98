//! What is paid for beside the packets: a callback, and somebody who reads the statistics. Each is compared with the same flood without it,
//! in the same run.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::programs::{Bench, Flood};
use super::{RECEIVERS, Rounds, Way};
use crate::row::median;

/// What a reader of statistics may take.
const READER_MAX: f64 = 0.02;

/// How those receive whose statistics are read.
const WATCHED: [Way; 2] = [Way::Recvfrom, Way::Xtreme];

/// Floods without a reader and with one, in turn.
#[derive(Default)]
pub(super) struct Watched(BTreeMap<Way, Vec<[Flood; 2]>>);

impl Watched {
    /// One round.
    pub(super) fn measure(&mut self, bench: &Bench) -> Result<()> {
        for way in WATCHED {
            let pair = [bench.flood_watched(way, false)?, bench.flood_watched(way, true)?];
            self.0.entry(way).or_default().push(pair);
        }
        Ok(())
    }

    /// Appends to `vma.jsonl`, prints the table.
    pub(super) fn report(&self, output: &Path) -> Result<()> {
        println!(
            "\n| vma_stats reads once a second | packets a second without | with | less | receiver's time a packet without | with | more |"
        );
        println!("|---|--:|--:|--:|--:|--:|--:|");
        for (way, pairs) in &self.0 {
            let of = |which: usize, figure: fn(&Flood) -> f64| median(&pairs.iter().map(|pair| figure(&pair[which])).collect::<Vec<_>>());
            // Of each pair, which was measured at one time.
            let change =
                |figure: fn(&Flood) -> f64| median(&pairs.iter().map(|[without, with]| figure(with) / figure(without)).collect::<Vec<_>>());
            let (rates, times) = ([0, 1].map(|which| of(which, Flood::per_second)), [0, 1].map(|which| of(which, Flood::ns_per_packet)));
            let (less, more) = (1.0 - change(Flood::per_second), change(Flood::ns_per_packet) - 1.0);
            println!(
                "| {} | {:.0} | {:.0} | {:.1} % | {:.0} ns | {:.0} ns | {:.1} % |",
                name(*way),
                rates[0],
                rates[1],
                less * 100.0,
                times[0],
                times[1],
                more * 100.0
            );
            let row = serde_json::json!({
                "bench": "vma", "cost_of": "a reader of statistics", "received_by": name(*way), "packets_per_second": rates[1], "without": rates[0],
                "less": less, "receiver_ns_per_packet": times[1], "receiver_ns_per_packet_without": times[0], "more": more, "allowed": READER_MAX,
            });
            append(output, &row)?;
        }
        Ok(())
    }
}

/// What a callback costs that lets everything through: appends to `vma.jsonl`, prints a line.
pub(super) fn callback(all: &BTreeMap<usize, Rounds>, output: &Path) -> Result<()> {
    let of = |way: Way| {
        let number = RECEIVERS.iter().position(|receiver| (receiver.1, receiver.2) == (crate::apps::program::World::Ringway, way));
        number.and_then(|number| all.get(&number)).context("it was measured")
    };
    let (without, with) = (of(Way::Recvfrom)?, of(Way::Behind)?);
    // Of each round, in which both were measured one after the other.
    let pairs = without.floods.iter().zip(&with.floods);
    let ns = median(&pairs.map(|(without, with)| with.ns_per_packet() - without.ns_per_packet()).collect::<Vec<_>>());
    let instructions = with.instructions.zip(without.instructions).map(|(with, without)| with - without);
    let counted = instructions.map_or_else(|| "an unknown number of".to_owned(), |count| format!("{count:.0}"));
    println!("\nA callback costs {ns:.0} ns and {counted} instructions a packet.");
    append(
        output,
        &serde_json::json!({ "bench": "vma", "cost_of": "a callback", "ns_per_packet": ns, "instructions_per_packet": instructions }),
    )
}

fn name(way: Way) -> &'static str {
    RECEIVERS.iter().rev().find(|receiver| receiver.2 == way).map_or("", |receiver| receiver.0)
}

fn append(output: &Path, row: &serde_json::Value) -> Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(output.join("vma.jsonl"))?;
    Ok(writeln!(file, "{row}")?)
}
