//! `ringway capture`: what the rings of this user's processes send and receive, as pcapng (draft-ietf-opsawg-pcapng).
//!
//! - [`sources`]: the processes and their rings
//! - [`mod@file`]: the file that is written
//! - [`once`]: frames that are seen at both ends
//! - [`packet`]: frames as they would be on a wire

mod file;
mod once;
mod packet;
mod sources;

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;
use ringway_cli::filter::Filter;
use ringway_host::capture::{BYTES_MAX, BYTES_MIN, SNAPLEN_MAX};
use ringway_host::{Clock, Pidfd, members};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::geteuid;

use self::file::{CaptureFile, Limits};
use self::sources::Sources;

/// What to capture, and where to write it.
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
    /// Only frames that match, as tcpdump(1) has it: tcp port 80. See pcap-filter(7). Needs libpcap.
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
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
/// How long the last answers of processes may take.
const LAST_ANSWER: Duration = Duration::from_millis(500);
/// Frames wait for so long: what another ring had before may be read after.
const HOLD_BACK: Duration = Duration::from_millis(20);

/// Captures until it is interrupted, or has what was asked for.
///
/// # Errors
/// The file cannot be written; the filter is none; a process that was named cannot be captured.
pub(crate) fn run(options: &Options) -> Result<()> {
    let bytes = options.buffer_size.saturating_mul(1024);
    ensure!(
        (BYTES_MIN..=BYTES_MAX).contains(&bytes) && bytes.is_power_of_two(),
        "--buffer-size is a power of two from {} to {}",
        BYTES_MIN >> 10,
        BYTES_MAX >> 10
    );
    ensure!((1..=SNAPLEN_MAX).contains(&options.snapshot_length), "--snapshot-length is from 1 to {SNAPLEN_MAX}");
    let snaplen = options.snapshot_length as u32;
    let expression = options.filter.join(" ");
    let filter = if expression.is_empty() { None } else { Some(Filter::compile(&expression, snaplen)?) };
    let named = options.pids.iter().map(|&pid| Named::new(pid)).collect::<Result<Vec<_>>>()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // (A second one ends it even while whoever reads what it writes does not.)
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let (output, name) = output(options)?;
    let reader = output.try_clone()?;
    let limits = Limits { snaplen, count: options.count, filter };
    let mut file = CaptureFile::new(BufWriter::new(output), Clock::system(), limits).with_context(|| name.clone())?;
    let mut sources = Sources::new(options, bytes);
    let is_of_file = |error: &anyhow::Error| error.is::<io::Error>();
    capture(&named, &stop, &reader, &mut sources, &mut file)
        .map_err(|error| if is_of_file(&error) { error.context(name) } else { error })?;
    eprintln!("{} frames captured, {} lost", file.written(), file.lost());
    Ok(())
}

/// Where to write to, and what that is called. What programs say to each other is its owner's alone.
fn output(options: &Options) -> Result<(File, String)> {
    let Some(path) = options.write.as_ref().filter(|path| path.as_os_str() != "-") else {
        ensure!(
            !io::stdout().is_terminal(),
            "a terminal cannot show it: give --write FILE, or pipe it into tcpdump -r - or wireshark -k -i -"
        );
        return Ok((File::from(io::stdout().as_fd().try_clone_to_owned()?), "standard output".to_owned()));
    };
    let name = path.display().to_string();
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    Ok((file.with_context(|| name.clone())?, name))
}

/// Whether nobody will ever read what is written there: the reader of a pipe is gone (poll(2), POLLERR).
fn is_unread(output: &File) -> bool {
    let mut fds = [PollFd::new(output, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().contains(PollFlags::ERR)
}

/// A process that was asked for.
struct Named {
    pid: u32,
    process: Pidfd,
}

impl Named {
    fn new(pid: u32) -> Result<Self> {
        let number = i32::try_from(pid).context("no process has that number")?;
        Ok(Self { pid, process: Pidfd::new(number).with_context(|| format!("process {pid}"))? })
    }
}

fn capture(named: &[Named], stop: &AtomicBool, reader: &File, sources: &mut Sources<'_>, file: &mut CaptureFile<impl Write>) -> Result<()> {
    let mut searched: Option<Instant> = None;
    while !is_unread(reader) {
        // (In this order: what a process has done before its end is read after that was seen.)
        let is_over = stop.load(Ordering::Relaxed) || (!named.is_empty() && named.iter().all(|named| named.process.has_ended()));
        if is_over {
            // (What began since the last question was captured, too. Twice: an answer that was awaited already may be older than what began.)
            let asked = Instant::now();
            for _ in 0..2 {
                sources.ask_all();
                while sources.are_asked() && asked.elapsed() < LAST_ANSWER {
                    sources.hear(file)?;
                    std::thread::sleep(LOOK_EVERY);
                }
            }
        } else if searched.is_none_or(|at| at.elapsed() >= SEARCH_EVERY) {
            let members = members::members(geteuid().as_raw()).context("/proc/net/unix")?;
            sources.search(&members)?;
            searched = Some(Instant::now());
            for Named { pid, process } in named {
                if !sources.knows(*pid) && !process.has_ended() {
                    bail!("process {pid} is not on Ringway, or is another user's; ringway doctor {pid} says why");
                }
            }
        }
        sources.hear(file)?;
        let held_back_ns = Clock::system().now().as_nanos().saturating_sub(HOLD_BACK.as_nanos() as u64);
        sources.take_until(if is_over { u64::MAX } else { held_back_ns }, file)?;
        if is_over || file.is_full() {
            sources.tell_counts(file)?;
            return file.flush();
        }
        file.flush()?;
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
