//! A packet of 64 bytes on the data path of a ConnectX: this repository's driver beside libmlx5's own calls, on the same software ConnectX, whose work is left out
//! (`backends/mlx5/examples/packets.rs` says how).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::row::{self, Row};
use crate::stages::callgrind;

/// How often to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds of time: each runs every program once.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// A real card, by its name, in place of the software's. What doorbells it sees it does not say.
    #[arg(long)]
    card: Option<String>,
    /// Batches of a run.
    #[arg(long, default_value_t = 5000)]
    batches: u32,
}

/// Packets of a batch.
const BATCHES: [u32; 2] = [1, 16];
/// Batches that are counted: each is like the other.
const COUNTED: u32 = 500;

/// Ways to send and to receive: ours, and with whom it is compared. (Of what is sent, with whom in two ways; of what is received, ours in four.)
const WAYS: [(&str, &str, &str, &str); 6] = [
    ("ringway", "send", "libmlx5", "libmlx5, in line too"),
    ("ringway", "send", "libmlx5-by-reference", "libmlx5, by reference"),
    ("ringway", "receive", "libmlx5", "libmlx5"),
    ("ringway-compressed", "receive", "libmlx5", "libmlx5"),
    ("ringway-strides", "receive", "libmlx5", "libmlx5"),
    ("ringway-compressed-strides", "receive", "libmlx5", "libmlx5"),
];

/// Measures, writes `mlx5.jsonl`, prints the table.
///
/// # Errors
/// A program failed: rdma-core or valgrind is missing.
pub(crate) fn run(library: &Path, output: &Path, options: &Options) -> Result<()> {
    let scratch = output.join("scratch");
    fs::create_dir_all(&scratch)?;
    let bench = Bench { release: library.canonicalize()?.parent().context("a folder")?.to_owned(), scratch, card: options.card.clone() };
    let mut rows = Vec::new();
    for batch in BATCHES {
        for (own, what, whose, peer) in WAYS {
            let metric = metric(own, what, batch);
            let (ours, theirs) = (bench.instructions(own, what, batch)?, bench.instructions(whose, what, batch)?);
            rows.push(Row::new("mlx5 64 B", &*metric[0], "instr.", &[ours], peer, &[theirs]));
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..options.rounds {
                ours.push(bench.nanoseconds(own, what, batch, options.batches)?);
                theirs.push(bench.nanoseconds(whose, what, batch, options.batches)?);
            }
            rows.push(Row::new("mlx5 64 B", &*metric[1], "ns", &ours, peer, &theirs));
            if what == "send" && options.card.is_none() {
                let (ours, theirs) = (bench.doorbells("ringway", batch)?, bench.doorbells(whose, batch)?);
                rows.push(Row::new("mlx5 64 B", &*metric[2], "a packet", &[ours[0]], peer, &[theirs[0]]));
                if theirs[1] > 0.0 {
                    rows.push(Row::new("mlx5 64 B", &*metric[3], "a packet", &[ours[1]], peer, &[theirs[1]]));
                }
            }
        }
    }
    row::write(&rows, output, "mlx5")?;
    print!("{}", row::markdown(&rows));
    Ok(())
}

fn metric(own: &str, what: &str, batch: u32) -> [String; 4] {
    let many = if batch == 1 { "alone".to_owned() } else { format!("of {batch}") };
    let form = match own {
        "ringway-compressed" => ", compressed",
        "ringway-strides" => ", into strides",
        "ringway-compressed-strides" => ", compressed, into strides",
        _ => "",
    };
    ["instructions", "time", "doorbells", "of them with the entry (BlueFlame)"].map(|figure| format!("{what} {many}{form}: {figure}"))
}

struct Bench {
    /// Where everything was built.
    release: PathBuf,
    scratch: PathBuf,
    /// A real one's name.
    card: Option<String>,
}

impl Bench {
    /// A program with the software ConnectX, on a network of its own, or with a real card.
    fn with_card(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some(card) = &self.card {
            command.env("RINGWAY_TEST_CARD", card);
            return command;
        }
        command.env("LD_PRELOAD", self.release.join("libringway_connectx.so"));
        command.env("RINGWAY_CONNECTX_BUS", format!("bench-{}", std::process::id()));
        command
    }

    fn packets(&self) -> PathBuf {
        self.release.join("examples/packets")
    }

    /// Instructions of a packet.
    fn instructions(&self, whose: &str, what: &str, batch: u32) -> Result<f64> {
        let profile = self.scratch.join(format!("callgrind.mlx5.{whose}.{what}.{batch}"));
        let mut command = self.with_card(Path::new("valgrind"));
        command.args(["-q", "--tool=callgrind", "--toggle-collect=packets_*"]);
        command.arg(format!("--callgrind-out-file={}", profile.display())).arg(self.packets());
        let ran = command.args([whose, what, &batch.to_string(), &COUNTED.to_string()]).output().context("valgrind")?;
        ensure!(ran.status.success(), "{whose} {what} fails: {}", String::from_utf8_lossy(&ran.stderr));
        let all: u64 = callgrind::self_costs(&fs::read_to_string(&profile)?)?.values().sum();
        ensure!(all > 0, "nothing of {whose} {what} was counted");
        Ok(all as f64 / f64::from(batch * COUNTED))
    }

    /// Nanoseconds of a packet.
    fn nanoseconds(&self, whose: &str, what: &str, batch: u32, batches: u32) -> Result<f64> {
        let ran = self.with_card(&self.packets()).args([whose, what, &batch.to_string(), &batches.to_string()]).output()?;
        ensure!(ran.status.success(), "{whose} {what} fails: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout)?.trim().parse().context("a number")
    }

    /// Doorbells of a packet that the card saw, and those that had the entry with them.
    fn doorbells(&self, whose: &str, batch: u32) -> Result<[f64; 2]> {
        let mut command = self.with_card(&self.packets());
        let ran = command.env("RINGWAY_CONNECTX_LOG", "1").args([whose, "send", &batch.to_string(), &COUNTED.to_string()]).output()?;
        let log = String::from_utf8_lossy(&ran.stderr);
        let line = log.lines().find(|line| line.contains("doorbells of sends")).context("what the card saw")?;
        let numbers: Vec<f64> = line.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
        ensure!(ran.status.success() && numbers.len() == 2, "{log}");
        Ok([numbers[0], numbers[1]].map(|count| count / f64::from(batch * COUNTED)))
    }
}
