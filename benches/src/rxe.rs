//! Rsockets on the kernel's soft-RoCE: librdmacm's rstream with `librsocket.so` at both ends, beside the same with librdmacm's own rsockets. It runs in a guest of `cargo xtask vm`,
//! for few machines' own kernels have such a device; what is emulated there is slow, and the same for both. Then TCP, between two of them (`tcp`).

mod tcp;

use core::time::Duration;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use std::{env, thread};

use anyhow::{Context as _, Result, bail, ensure};

use crate::row::{self, Row};

/// How often to measure.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds: each runs every pair once.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
}

/// Name; bytes of a message; messages one way before the other end answers; how often that; whether the figure is a rate; whether calls block (else rstream asks again and again).
type Figure = (&'static str, u32, u32, u32, bool, bool);
const FIGURES: [Figure; 4] = [
    ("64 B there and back: a message", 64, 1, 20_000, false, false),
    ("the same, by calls that block", 64, 1, 2000, false, true),
    ("64 KiB: rate", 65_536, 200, 2, true, false),
    ("1 MiB: rate", 1 << 20, 16, 2, true, false),
];
/// What a server takes at most to listen, and a client to be done.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Measures, prints the table.
///
/// # Errors
/// There is no such device, or a program fails.
pub(crate) fn run(library: &Path, options: &Options) -> Result<()> {
    let own = env::var("RINGWAY_VM_ADDRESS").context("cargo xtask bench rxe begins this in a guest")?;
    let bench = Bench { rsocket: library.canonicalize()?.with_file_name("librsocket.so"), own };
    let mut rows = Vec::new();
    for figure in FIGURES {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            ours.push(bench.measure(figure, true)?);
            theirs.push(bench.measure(figure, false)?);
        }
        let (name, .., is_rate, _) = figure;
        rows.push(Row::new("rstream on soft-RoCE", name, if is_rate { "Gb/s" } else { "us" }, &ours, "librdmacm", &theirs));
    }
    let peer = env::var("RINGWAY_VM_PEER").context("cargo xtask bench rxe begins a second guest")?;
    rows.extend(tcp::run(&library.canonicalize()?, &peer, options.rounds)?);
    print!("{}", row::markdown(&rows));
    Ok(())
}

struct Bench {
    rsocket: PathBuf,
    /// The device's address.
    own: String,
}

impl Bench {
    fn rstream(&self, (_, size, count, iterations, _, blocks): Figure, is_ours: bool) -> Command {
        let mut command = Command::new("timeout");
        command.arg(PATIENCE.as_secs().to_string()).args(["env", "RINGWAY_DEVICE=rxe:rxe0"]);
        if is_ours {
            command.arg(format!("LD_PRELOAD={}", self.rsocket.display()));
        }
        command.args(["rstream", "-S", &size.to_string(), "-C", &count.to_string(), "-I", &iterations.to_string()]);
        command.args(blocks.then_some(["-T", "b"]).into_iter().flatten());
        command
    }

    /// One run of both ends; what the client's last line says.
    fn measure(&self, figure: Figure, is_ours: bool) -> Result<f64> {
        let mut server = self.rstream(figure, is_ours);
        let server = Server(server.args(["-b", &self.own]).stdout(Stdio::null()).spawn()?);
        await_listener()?;
        let client = self.rstream(figure, is_ours).args(["-s", &self.own]).output()?;
        let said = String::from_utf8_lossy(&client.stdout);
        ensure!(client.status.success(), "rstream failed: {said}{}", String::from_utf8_lossy(&client.stderr));
        server.end()?;
        // (name, bytes, messages, iterations, total, time, Gb/sec, usec/xfer)
        let fields: Vec<&str> = said.lines().last().unwrap_or_default().split_whitespace().collect();
        let [.., time] = fields[..] else { bail!("rstream says {said}") };
        let micros: f64 = time.parse().with_context(|| format!("no number: {said}"))?;
        // (Of the rate, rstream says two digits.)
        Ok(if figure.4 { f64::from(figure.1) * 8.0 / (micros * 1000.0) } else { micros })
    }
}

/// Until somebody listens on the device.
fn await_listener() -> Result<()> {
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let listed = Command::new("rdma").args(["resource", "show", "cm_id", "link", "rxe0"]).output()?;
        if String::from_utf8_lossy(&listed.stdout).contains("LISTEN") {
            return Ok(());
        }
        thread::sleep(LOOK_EVERY);
    }
    bail!("nobody listens")
}

/// It ends with the bench.
struct Server(Child);

impl Server {
    fn end(mut self) -> Result<()> {
        ensure!(self.0.wait()?.success(), "the server failed");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
