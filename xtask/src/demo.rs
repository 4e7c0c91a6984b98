//! `cargo xtask demo`: a plain C program plays ping-pong over BSD sockets, on the kernel's loopback and on Ringway in
//! turn; both latencies, a histogram, the ratio, and proof that it was offloaded.

mod figures;
pub(crate) mod proof;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::install::{self, Package};
use crate::workspace::{Workspace, run_command};
use figures::Figures;
use proof::{Carried, Kernel};

/// How long, and of what size.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds on the kernel and on Ringway each, in turn.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Round trips a round.
    #[arg(long, default_value_t = 50_000)]
    count: u32,
    /// Bytes a message.
    #[arg(long, default_value_t = 64)]
    size: u32,
    /// Put server and client on two cores of their own, in both worlds, instead of leaving it to the scheduler.
    #[arg(long)]
    pin: bool,
    /// Print one line of JSON a protocol instead of tables.
    #[arg(long)]
    json: bool,
}

/// A transport protocol.
#[derive(Clone, Copy)]
enum Protocol {
    Tcp,
    Udp,
}

/// What carries a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum World {
    Kernel,
    Ringway,
}

/// Builds, measures, prints.
///
/// # Errors
/// Something could not be built or run, or the rounds on Ringway were not offloaded.
pub(crate) fn run(options: &Options) -> Result<()> {
    install::packages(&[Package::CC])?;
    let workspace = Workspace::find()?;
    workspace.build_release()?;
    let demo = Demo::compile(&workspace, options)?;
    if !options.json {
        println!(
            "A plain C program (ffi/vma/demo/pingpong.c) sends {} bytes and waits for them to come back: {} rounds of {} round trips on the\n\
             kernel's loopback and, with libvma.so preloaded, on Ringway, in turn.",
            options.size, options.rounds, options.count
        );
    }
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        demo.play(protocol)?;
    }
    Ok(())
}

struct Demo<'a> {
    options: &'a Options,
    program: PathBuf,
    library: PathBuf,
    scratch: PathBuf,
}

impl<'a> Demo<'a> {
    fn compile(workspace: &Workspace, options: &'a Options) -> Result<Self> {
        let scratch = workspace.target.join("demo");
        fs::create_dir_all(&scratch)?;
        let program = scratch.join("pingpong");
        let source = "ffi/vma/demo/pingpong.c";
        run_command(workspace.command("cc").args(["-O2", "-std=c11", "-Wall", "-Wextra", source, "-o"]).arg(&program))?;
        Ok(Self { options, program, library: workspace.release("libvma.so"), scratch })
    }

    /// All rounds of one protocol, and their tables.
    fn play(&self, protocol: Protocol) -> Result<()> {
        let mut figures = [Figures::default(), Figures::default()];
        let mut sent_by_kernel = [0, 0];
        let mut carried = Carried::default();
        for _ in 0..self.options.rounds {
            for world in [World::Kernel, World::Ringway] {
                let before = Kernel::now()?;
                figures[world as usize].add(&self.round(protocol, world)?);
                sent_by_kernel[world as usize] += Kernel::now()?.sent_since(before);
            }
            carried.add(&self.scratch)?;
        }
        let [kernel, ringway] = &mut figures;
        kernel.sort();
        ringway.sort();
        if self.options.json {
            println!("{}", figures::json(protocol.name(), kernel, ringway, &carried, sent_by_kernel));
        } else {
            figures::print(protocol.name(), kernel, ringway);
            proof::print(&carried, sent_by_kernel);
        }
        carried.check(u64::from(self.options.rounds) * u64::from(self.options.count))
    }

    /// One round: the round trips' times in nanoseconds.
    fn round(&self, protocol: Protocol, world: World) -> Result<Vec<u32>> {
        let port = free_port()?.to_string();
        let samples = self.scratch.join("samples");
        let mut server = Guard(self.pingpong("server", protocol, world).arg(&port).stdout(Stdio::piped()).spawn()?);
        let mut line = String::new();
        BufReader::new(server.0.stdout.take().context("the server's output")?).read_line(&mut line)?;
        ensure!(line == "ready\n", "the server said {line:?} ({world:?})");
        let mut client = self.pingpong("client", protocol, world);
        client.args(["--json", "--size", &self.options.size.to_string(), "--count", &self.options.count.to_string(), "--samples"]);
        run_command(client.arg(&samples).args(["127.0.0.1", &port]).stdout(Stdio::null()))?;
        let status = server.0.wait()?;
        ensure!(status.success(), "the server failed ({status}, {world:?})");
        let bytes = fs::read(&samples)?;
        Ok(bytes.chunks_exact(4).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect())
    }

    fn pingpong(&self, role: &str, protocol: Protocol, world: World) -> Command {
        let mut command = if self.options.pin {
            let mut taskset = Command::new("taskset");
            taskset.args(["--cpu-list", if role == "server" { "1" } else { "0" }]).arg(&self.program);
            taskset
        } else {
            Command::new(&self.program)
        };
        command.arg(role).env_remove("LD_PRELOAD");
        if matches!(protocol, Protocol::Udp) {
            command.arg("--udp");
        }
        if world == World::Ringway {
            command.env("LD_PRELOAD", &self.library).env("RINGWAY_STATS_FILE", self.scratch.join(proof::REPORTS));
        }
        command
    }
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        }
    }
}

/// A child that does not outlive a failure.
pub(crate) struct Guard(pub(crate) Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that is free for both protocols.
pub(crate) fn free_port() -> Result<u16> {
    for _ in 0..100 {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        if UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port")
}
