//! `ringway capture`: what the rings of this user's processes send and receive, as pcapng (draft-ietf-opsawg-pcapng).
//!
//! - [`sources`]: the processes and their rings
//! - [`file`]: the file that is written
//! - [`once`]: frames that are seen at both ends
//! - [`packet`]: frames as they would be on a wire

mod file;
mod once;
mod packet;
mod sources;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use ringway_host::capture::{BYTES_MAX, BYTES_MIN, SNAPLEN_MAX};
use ringway_host::{Clock, members};
use rustix::process::geteuid;

use self::file::CaptureFile;
use self::sources::Sources;

/// What to capture, and where to write it. There is no filter: ringway capture -w - | tcpdump -r - FILTER has all of pcap-filter(7).
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// Only rings on this device: shm, or an interface's name (eth0).
    #[arg(short, long)]
    interface: Option<String>,
    /// Only these processes, with what they send and what they receive; the capture ends with the last of them. Else all of this user's in this network
    /// namespace, those that begin meanwhile included; a frame from one of them to another is then shown once, where it was sent.
    #[arg(short, long = "pid", value_name = "PID")]
    pids: Vec<u32>,
    /// The file to write; - is standard output, as it is without this.
    #[arg(short, long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Bytes of each frame.
    #[arg(short, long, value_name = "BYTES", default_value_t = SNAPLEN_MAX)]
    snapshot_length: usize,
    /// Memory for each ring's frames, in KiB: 256 to 65536, a power of two. Where frames come faster than they are read, the oldest are lost, and counted.
    #[arg(short = 'B', long, value_name = "KIB", default_value_t = 4096)]
    buffer_size: usize,
    /// End after so many frames.
    #[arg(short, long)]
    count: Option<u64>,
    /// Only frames that come, or that leave, or both, at each process.
    #[arg(short = 'Q', long, value_enum)]
    direction: Option<Direction>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Direction {
    In,
    Out,
    Inout,
}

/// Between two looks at what the rings have.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Between two looks at which processes and rings there are.
const SEARCH_EVERY: Duration = Duration::from_millis(500);
/// Frames wait for so long: what another ring had before may be read after.
const HOLD_BACK: Duration = Duration::from_millis(20);

/// Captures until it is interrupted, or has what was asked for.
///
/// # Errors
/// The file cannot be written; a process that was named cannot be captured.
pub(crate) fn run(options: &Options) -> Result<()> {
    let bytes = options.buffer_size.saturating_mul(1024);
    ensure!(
        (BYTES_MIN..=BYTES_MAX).contains(&bytes) && bytes.is_power_of_two(),
        "--buffer-size is a power of two from {} to {}",
        BYTES_MIN >> 10,
        BYTES_MAX >> 10
    );
    ensure!(options.snapshot_length > 0, "--snapshot-length is at least 1");
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let mut file = CaptureFile::new(output(options)?, Clock::system())?;
    let mut sources = Sources::new(options, bytes);
    let ended = capture(options, &stop, &mut sources, &mut file);
    // (Who has ended its reader has seen enough.)
    match ended.and_then(|()| Ok(file.end()?)) {
        Err(error) if is_closed(&error) => {}
        ended => ended?,
    }
    eprintln!("{} frames captured, {} lost", file.written(), file.lost());
    Ok(())
}

fn is_closed(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe))
}

fn output(options: &Options) -> Result<Box<dyn Write>> {
    let Some(path) = options.write.as_ref().filter(|path| path.as_os_str() != "-") else {
        ensure!(
            !io::stdout().is_terminal(),
            "a terminal cannot show it: give --write FILE, or pipe it into tcpdump -r - or wireshark -k -i -"
        );
        return Ok(Box::new(BufWriter::new(io::stdout())));
    };
    Ok(Box::new(BufWriter::new(File::create(path).with_context(|| path.display().to_string())?)))
}

fn capture(options: &Options, stop: &AtomicBool, sources: &mut Sources, file: &mut CaptureFile<Box<dyn Write>>) -> Result<()> {
    let mut searched: Option<Instant> = None;
    loop {
        let is_last = stop.load(Ordering::Relaxed);
        if !is_last && searched.is_none_or(|at| at.elapsed() >= SEARCH_EVERY) {
            let members = members::members(geteuid().as_raw()).context("/proc/net/unix")?;
            sources.search(&members, file)?;
            searched = Some(Instant::now());
            for pid in &options.pids {
                if !sources.knows(*pid) {
                    bail!("process {pid} is not on Ringway; ringway doctor {pid} says why");
                }
            }
        }
        let is_over = is_last || (!options.pids.is_empty() && sources.are_all_gone());
        let until = Clock::system().now().as_nanos().saturating_sub(if is_over { 0 } else { HOLD_BACK.as_nanos() as u64 });
        sources.take_until(if is_over { u64::MAX } else { until }, |seen| {
            let is_more = options.count.is_none_or(|count| file.written() < count);
            if is_more { file.write(seen) } else { Ok(()) }
        })?;
        file.flush()?;
        if is_over || options.count.is_some_and(|count| file.written() >= count) {
            return sources.tell_counts(file);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests;
