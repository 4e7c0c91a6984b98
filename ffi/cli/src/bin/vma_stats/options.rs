//! The command line: libvma's, long and short.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use ringway_params::Level;
use ringway_report::published::Request;

/// Shows what a process on Ringway publishes.
#[derive(Debug, Parser)]
#[command(name = "vma_stats", version, disable_version_flag = true)]
pub(crate) struct Options {
    /// The process.
    #[arg(short, long, value_name = "PID", conflicts_with = "name")]
    pub(crate) pid: Option<u32>,
    /// The directory in which processes publish: what VMA_STATS_SHMEM_DIR is for them.
    #[arg(short = 'k', long, value_name = "DIRECTORY")]
    pub(crate) directory: Option<PathBuf>,
    /// The process that runs this program.
    #[arg(short, long, value_name = "PROGRAM")]
    pub(crate) name: Option<String>,
    /// Whichever process there is (the default, unless -p or -n names one).
    #[arg(short, long = "find_pid")]
    pub(crate) find_pid: bool,
    /// Leaves files where they are whose processes were killed.
    #[arg(short = 'F', long = "forbid_clean")]
    pub(crate) forbid_clean: bool,
    /// Seconds between two reports.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1)]
    pub(crate) interval: u64,
    /// Reports, then the end; 0: until interrupted.
    #[arg(short, long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) cycles: u64,
    /// 1: the basic view, 2: with queues, 3: in full, 4: groups, 5: as netstat.
    #[arg(short, long, value_name = "1-5", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(crate) view: u8,
    /// 1: totals, 2: a second's.
    #[arg(short, long, value_enum, default_value_t = Details::Totals)]
    pub(crate) details: Details,
    /// Counts from now on. (The process and other readers go on counting.)
    #[arg(short, long)]
    pub(crate) zero: bool,
    /// Sets the process's log level, by VMA_TRACELEVEL's names.
    #[arg(short, long = "log_level", value_name = "LEVEL")]
    pub(crate) log_level: Option<String>,
    /// Has the process log a socket's statistics (0: all sockets'), at this level (info).
    #[arg(short = 'S', long = "fd_dump", value_names = ["FD", "LEVEL"], num_args = 1..=2)]
    pub(crate) fd_dump: Vec<String>,
    /// Sets what lines of the process's log begin with, as VMA_LOG_DETAILS.
    #[arg(short = 'D', long = "log_details", value_name = "0-3", value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(crate) log_details: Option<u8>,
    /// Only these sockets: 5 or 5,7-9.
    #[arg(short, long, value_name = "LIST")]
    pub(crate) sockets: Option<Numbers>,
    /// Prints the version.
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

/// Totals or rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Details {
    /// Since the sockets were made.
    #[value(name = "1", alias = "totals")]
    Totals,
    /// A second's.
    #[value(name = "2", alias = "deltas")]
    Deltas,
}

/// A list of numbers and ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbers(Vec<(i32, i32)>);

impl Numbers {
    pub(crate) fn has(&self, number: i32) -> bool {
        self.0.iter().any(|&(first, last)| (first..=last).contains(&number))
    }
}

impl std::str::FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.trim().parse::<i32>().ok().filter(|&n| n >= 0).ok_or(format!("{text} is not a descriptor"));
        let range = |part: &str| match part.split_once('-') {
            Some((first, last)) => match (number(first)?, number(last)?) {
                (first, last) if first > last => Err(format!("the range {part} ends before it begins")),
                range => Ok(range),
            },
            None => number(part).map(|n| (n, n)),
        };
        text.split(',').map(range).collect::<Result<_, String>>().map(Self)
    }
}

impl Options {
    /// What the process is asked for beside a report.
    ///
    /// # Errors
    /// A level, or a descriptor, that is none.
    pub(crate) fn request(&self) -> Result<Request> {
        let level = |name: &str| Level::from_name(name).map(|level| level as u8).with_context(|| format!("{name} is not a level"));
        let dump = match &self.fd_dump[..] {
            [] => None,
            [fd, rest @ ..] => {
                let fd = fd.parse().ok().filter(|&fd: &i32| fd >= 0).with_context(|| format!("{fd} is not a descriptor"))?;
                Some((fd, level(rest.first().map_or("info", String::as_str))?))
            }
        };
        Ok(Request {
            log_level: self.log_level.as_deref().map(level).transpose()?,
            log_details: self.log_details,
            dump,
            ..Request::default()
        })
    }

    /// Only to change something, as libvma's does, and not to watch.
    pub(crate) fn is_only_a_request(&self) -> bool {
        self.cycles == 0
    }
}
