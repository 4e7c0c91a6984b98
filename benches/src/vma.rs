//! Small datagrams, received in each way that the VMA Extra API has beside the socket calls, and by the kernel's recvmmsg(2): how many a second
//! from one sender that sends all it can, what one costs the receiver, and how long one takes to and fro.
//!
//! All of it non-blocking, spinning, each program on a core of its own: `vma/receiver.c`, `vma/sender.c`. A sender of ours is told when a queue is
//! full (VMA_TX_NONBLOCKED_EAGAINS), and sends again; the kernel's loopback delivers in the sender's own call, and drops.

mod costs;
mod programs;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::apps::program::World;
use crate::row::median;
use costs::Watched;
use programs::{Bench, Flood};

/// How often, and how undisturbed.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds: each measures every way once.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Runs the programs in real time, with this priority (needs CAP_SYS_NICE): what else the machine does disturbs less.
    #[arg(long)]
    priority: Option<u32>,
}

/// A way to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Recvfrom,
    Recvmmsg,
    Zcopy,
    Xtreme,
    Cyclic,
    Callback,
    Behind,
}

impl Way {
    /// As the programs know it.
    const fn word(self) -> &'static str {
        match self {
            Self::Recvfrom => "recvfrom",
            Self::Recvmmsg => "recvmmsg",
            Self::Zcopy => "zcopy",
            Self::Xtreme => "xtreme",
            Self::Cyclic => "cyclic",
            Self::Callback => "callback",
            Self::Behind => "behind",
        }
    }
}

/// Who receives in which way: name, world, way. The first is what the others are compared with.
const RECEIVERS: [(&str, World, Way); 9] = [
    ("the kernel's recvmmsg, 64 at a time", World::Kernel, Way::Recvmmsg),
    ("the kernel's recvfrom", World::Kernel, Way::Recvfrom),
    ("recvfrom", World::Ringway, Way::Recvfrom),
    ("recvmmsg, 64 at a time", World::Ringway, Way::Recvmmsg),
    ("recvfrom_zcopy", World::Ringway, Way::Zcopy),
    ("socketxtreme_poll, 64 at a time", World::Ringway, Way::Xtreme),
    ("vma_cyclic_buffer_read, 64 at a time", World::Ringway, Way::Cyclic),
    ("recvfrom behind a callback that lets all through", World::Ringway, Way::Behind),
    ("a callback that drops what it has seen, in recvfrom", World::Ringway, Way::Callback),
];

/// A receiver that waits for less than this part of its time is what limits the rate.
const IDLE_MIN: f64 = 0.1;

/// What one receiver's rounds showed.
#[derive(Default)]
struct Rounds {
    floods: Vec<Flood>,
    round_trips_us: Vec<f64>,
    instructions: Option<f64>,
}

impl Rounds {
    fn median(&self, figure: impl Fn(&Flood) -> f64) -> f64 {
        median(&self.floods.iter().map(figure).collect::<Vec<_>>())
    }
}

/// Measures, writes `vma.jsonl`, prints the table.
///
/// # Errors
/// A program failed, or was not offloaded when it should have been.
pub(crate) fn run(library: &Path, output: &Path, options: &Options) -> Result<()> {
    let bench = Bench::new(library, output, options.priority)?;
    let mut all: BTreeMap<usize, Rounds> = BTreeMap::new();
    let mut watched = Watched::default();
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        for (number, &(_, world, way)) in RECEIVERS.iter().enumerate() {
            let rounds = all.entry(number).or_default();
            rounds.floods.push(bench.flood(world, way)?);
            rounds.round_trips_us.push(bench.round_trip_us(world, way)?);
        }
        watched.measure(&bench)?;
    }
    eprintln!("counting instructions");
    for (number, &(_, world, way)) in RECEIVERS.iter().enumerate() {
        // (callgrind does not see the kernel's.)
        if world == World::Ringway {
            all.entry(number).or_default().instructions = Some(bench.instructions(way)?);
        }
    }
    report(&all, output)?;
    costs::callback(&all, output)?;
    watched.report(output)
}

fn report(all: &BTreeMap<usize, Rounds>, output: &Path) -> Result<()> {
    // "time" and "instr." are the receiver's for one packet; "idle" is the receiver's share of time without work.
    let mut table = "| received by | packets/s | of kernel | limit (idle) | lost | time | instr. | round trip |\n\
                     |---|--:|--:|---|--:|--:|--:|--:|\n"
        .to_owned();
    let mut rows = String::new();
    let rate = |rounds: &Rounds| rounds.median(Flood::per_second);
    let kernels = all.get(&0).map_or(f64::NAN, rate);
    for (&number, rounds) in all {
        let (name, world, _) = RECEIVERS[number];
        let (per_second, idle, lost, ns) =
            (rate(rounds), rounds.median(Flood::idle_share), rounds.median(Flood::lost_share), rounds.median(Flood::ns_per_packet));
        let (ratio, round_trip_us) = (per_second / kernels, median(&rounds.round_trips_us));
        let limit = if idle < IDLE_MIN { "receiver" } else { "sender" };
        let instructions = rounds.instructions.map_or_else(|| "not seen".to_owned(), |count| format!("{count:.0}"));
        writeln!(
            table,
            "| {name} | {per_second:.0} | {ratio:.2} | {limit} ({:.0} %) | {:.1} % | {ns:.0} ns | {instructions} | {round_trip_us:.2} us |",
            idle * 100.0,
            lost * 100.0
        )?;
        let row = serde_json::json!({
            "bench": "vma", "received_by": name, "by": if world == World::Kernel { "kernel" } else { "ringway" },
            "packets_per_second": per_second, "ratio_to_kernel_recvmmsg": ratio, "limit": limit, "receiver_idle": idle, "lost": lost,
            "receiver_ns_per_packet": ns, "instructions_per_packet": rounds.instructions, "round_trip_us": round_trip_us,
        });
        writeln!(rows, "{row}")?;
    }
    fs::write(output.join("vma.jsonl"), rows)?;
    print!("{table}");
    Ok(())
}
