//! TCP between two guests on one wire of 1500 bytes: sockperf with `libvma.so` at both ends, whose frames are soft-RoCE's datagrams, beside the kernel's TCP on the same interface.
//! For information: rxe is the kernel's own UDP, with checksums in software, beneath our TCP, and a frame takes two datagrams.

use core::time::Duration;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use std::{fs, thread};

use anyhow::{Context as _, Result, ensure};

use crate::row::Row;

/// Of the servers (`serve.sh`): the kernel's, and ours.
const PORTS: [u16; 2] = [5101, 5102];
/// What servers take at most to listen.
const PATIENCE: Duration = Duration::from_secs(60);
/// Who goes by the device sends so many, at the least.
const DATAGRAMS_MIN: u64 = 200;
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Name, what sockperf measures, bytes of a message, the word before the figure, its unit.
type Figure = (&'static str, &'static str, u32, &'static str, &'static str);
const FIGURES: [Figure; 2] = [
    ("64 B one way, by calls that block", "ping-pong", 64, "Latency is ", "us"),
    ("16 KiB: rate", "throughput", 16_384, "BandWidth is ", "MB/s"),
];

/// Measures, interleaved. `peer`: the other guest's address.
pub(super) fn run(library: &Path, peer: &str, rounds: u32) -> Result<Vec<Row>> {
    for port in PORTS {
        await_server(SocketAddr::new(peer.parse()?, port))?;
    }
    let mut rows = Vec::new();
    for figure in FIGURES {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(measure(figure, peer, Some(library))?);
            theirs.push(measure(figure, peer, None)?);
        }
        rows.push(Row::new("TCP over soft-RoCE", figure.0, figure.4, &ours, "the kernel's TCP", &theirs));
    }
    Ok(rows)
}

fn measure((_, what, size, word, _): Figure, peer: &str, library: Option<&Path>) -> Result<f64> {
    let mut command = Command::new("timeout");
    command.args(["60", "env"]);
    if let Some(library) = library {
        command.args(["RINGWAY_DEVICE=rxe:rxe0".to_owned(), format!("LD_PRELOAD={}", library.display())]);
    }
    let port = PORTS[usize::from(library.is_some())].to_string();
    command.args(["sockperf", what, "--tcp", "-i", peer, "-p", &port, "-m", &size.to_string(), "-t", "3"]);
    let before = datagrams_sent()?;
    let client = command.output()?;
    let sent = datagrams_sent()? - before;
    let said = String::from_utf8_lossy(&client.stdout);
    ensure!(client.status.success(), "sockperf failed: {said}{}", String::from_utf8_lossy(&client.stderr));
    // (The kernel's connection has none, but for questions where the peer is.)
    ensure!((sent >= DATAGRAMS_MIN) == library.is_some(), "{sent} datagrams of the device's, for {port}: not by whom it was to be");
    // (Summary: Latency is 52.1 usec; Summary: BandWidth is 12.3 MBps.)
    let number = said.split_once(word).and_then(|(_, rest)| rest.split_whitespace().next());
    number.with_context(|| format!("sockperf says {said}"))?.parse().with_context(|| format!("no number: {said}"))
}

/// By the device, in all.
fn datagrams_sent() -> Result<u64> {
    let path = "/sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts";
    Ok(fs::read_to_string(path).context(path)?.trim().parse()?)
}

fn await_server(at: SocketAddr) -> Result<()> {
    let begin = Instant::now();
    while TcpStream::connect_timeout(&at, LOOK_EVERY).is_err() {
        ensure!(begin.elapsed() < PATIENCE, "nobody listens at {at}");
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
