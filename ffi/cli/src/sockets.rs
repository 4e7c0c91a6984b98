//! `ringway sockets`: the sockets of all processes on Ringway, as `ss` shows the kernel's (ss(8)).
//!
//! - [`show`]: sockets as lines

mod show;

use std::io::{self, Write as _};

use anyhow::Result;
use ringway_report::{ProcessReport, SOCKETS, SocketReport};
use serde::Serialize;

use self::show::{Family, Shown};
use crate::stats::sources;

/// Which sockets, and what of them. The short options are those of ss(8).
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Only these processes; else all that may be asked: this user's in this network namespace, and those that publish their statistics.
    pids: Vec<u32>,
    /// TCP sockets, and streams of rsockets.
    #[arg(short, long)]
    tcp: bool,
    /// UDP sockets, and datagram sockets of rsockets. Without this and --tcp: both.
    #[arg(short, long)]
    udp: bool,
    /// Only what listens: listeners, and UDP sockets without a peer.
    #[arg(short, long)]
    listening: bool,
    /// All; else what is connected.
    #[arg(short, long)]
    all: bool,
    /// Addresses and ports are numbers, which they always are here.
    #[arg(short, long)]
    numeric: bool,
    /// Which process has it, by which descriptor.
    #[arg(short, long)]
    processes: bool,
    /// What TCP knows of the connection; times are milliseconds, and the windows of congestion control segments, as in ss.
    #[arg(short, long)]
    info: bool,
    /// Which timer runs, how long yet, and how often it ran out in a row. (--info has it, too.)
    #[arg(short = 'o', long)]
    options: bool,
    /// No line of headers.
    #[arg(short = 'H', long)]
    no_header: bool,
    /// IPv4's.
    #[arg(short = '4', long)]
    ipv4: bool,
    /// IPv6's. Without this and --ipv4: both.
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Those in this state, by its beginning (listen, estab, time-wait), whether they are connected or not.
    #[arg(long)]
    state: Option<String>,
    /// Those with this port at either end.
    #[arg(long)]
    port: Option<u16>,
    /// A JSON array of these sockets (the fields are `ringway_report::SocketReport`'s, and the process's `pid` and `program`).
    #[arg(long)]
    json: bool,
}

/// A socket of a process.
#[derive(Clone, Debug, Serialize)]
struct Owned {
    pid: u32,
    program: String,
    #[serde(flatten)]
    socket: SocketReport,
}

/// Lists them once.
///
/// # Errors
/// The processes cannot be listed, or a process was asked for that is not on Ringway.
pub(crate) fn run(options: &Options) -> Result<()> {
    sources::remove_leftovers();
    let chosen = options.choose(sources::asked(&options.pids, SOCKETS)?);
    let text = if options.json { serde_json::to_string(&chosen)? + "\n" } else { show::lines(&chosen, options) };
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

impl Options {
    /// The sockets that are asked for.
    fn choose(&self, processes: Vec<ProcessReport>) -> Vec<Owned> {
        let mut chosen = Vec::new();
        for ProcessReport { pid, program, device, sockets, without_owner, .. } in processes {
            let of_device = device.map_or_else(String::new, |device| device.kind);
            for mut socket in sockets.into_iter().chain(without_owner) {
                // (A library that is older does not say.)
                if socket.device.is_empty() {
                    socket.device = if socket.offloaded { of_device.clone() } else { "kernel".to_owned() };
                }
                if self.takes(&socket) {
                    chosen.push(Owned { pid, program: program.clone(), socket });
                }
            }
        }
        chosen
    }

    fn takes(&self, socket: &SocketReport) -> bool {
        let shown = Shown::of(socket);
        let is_udp = matches!(socket.protocol.as_str(), "udp" | "rdgram");
        let is_of_protocol = self.tcp == self.udp || self.udp == is_udp;
        let family = shown.family();
        let is_of_family = self.ipv4 == self.ipv6 || family == Some(if self.ipv4 { Family::V4 } else { Family::V6 });
        let is_in_state = match &self.state {
            Some(state) => shown.is_in(state),
            None => self.all || if self.listening { shown.listens() } else { shown.is_connected() },
        };
        is_of_protocol && is_of_family && is_in_state && self.port.is_none_or(|port| shown.has_port(port))
    }
}

#[cfg(test)]
mod tests;
