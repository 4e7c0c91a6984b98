//! `ringway broker`: has interfaces, and gives programs without privileges their rings.

use std::fmt::{Arguments, Display};
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result};
use ringway_devices::broker::{Broker, BrokerSettings, Settings, Users, default_socket};
use ringway_params::kind::{self, Driver, Named};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// What to serve, and whom.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// An interface to serve: xdp:INTERFACE. May be given several times, or with commas between them.
    #[arg(long, required = true, value_delimiter = ',', value_parser = device, value_name = "xdp:INTERFACE")]
    device: Vec<String>,
    /// The users whose programs are served, by name or number, with commas between them. Root's are always.
    #[arg(long, default_value = "", value_parser = users)]
    users: Users,
    /// Where to listen. Programs look there by RINGWAY_BROKER.
    #[arg(long, default_value_os_t = default_socket())]
    socket: PathBuf,
}

/// `xdp:eth0`, as in `RINGWAY_DEVICE`.
fn device(text: &str) -> Result<String, String> {
    match kind::interfaces(text).as_deref() {
        // (Its programs have all queues of an interface.)
        Some([Named { driver: Driver::Xdp, name, queues: None }]) => Ok((*name).to_owned()),
        _ => Err("it is xdp:INTERFACE".to_owned()),
    }
}

fn users(text: &str) -> Result<Users, String> {
    Users::parse(text).map_err(|error| error.to_string())
}

/// Lines on standard error: so many a second at most, for who is refused may come again as often as he likes.
#[derive(Default)]
struct Log {
    second: Option<Instant>,
    lines: u32,
}

impl Log {
    const LINES_MAX: u32 = 100;

    fn write(&mut self, event: impl Display) {
        if self.second.is_none_or(|began| began.elapsed().as_secs() > 0) {
            let left_out = self.lines.saturating_sub(Self::LINES_MAX);
            (self.second, self.lines) = (Some(Instant::now()), 0);
            if left_out > 0 {
                Self::line(format_args!("{left_out} lines were left out"));
            }
        }
        self.lines += 1;
        if self.lines <= Self::LINES_MAX {
            Self::line(format_args!("{event}"));
        }
    }

    /// (What cannot be told is lost, and programs go on.)
    fn line(line: Arguments<'_>) {
        let _ = writeln!(std::io::stderr(), "ringway broker: {line}");
    }
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// There can be no broker.
pub(crate) fn run(options: &Options) -> Result<()> {
    let (stop, signal) = UnixStream::pair().context("a pair of sockets")?;
    for which in [SIGTERM, SIGINT] {
        pipe::register(which, signal.try_clone()?)?;
    }
    let mut log = Log::default();
    let mut tell = |event| log.write(event);
    let interfaces = options.device.iter().map(|name| Settings::new(name)).collect();
    let settings = BrokerSettings { interfaces, users: options.users.clone(), socket: options.socket.clone() };
    let mut broker = Broker::start(settings, &mut tell)?;
    let listed: Vec<String> = options.users.listed().map(|uid| uid.to_string()).collect();
    let whom = if listed.is_empty() { "root".to_owned() } else { format!("root and {}", listed.join(", ")) };
    Log::line(format_args!("serves {} of {whom} at {}", options.device.join(", "), options.socket.display()));
    Ok(broker.run(stop.as_fd(), &mut tell)?)
}
