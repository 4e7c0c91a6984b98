//! Programs of a bench: preloaded or not, pinned or not, and killed when their bench is over.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ringway_report::{ProcessReport, STATS_FILE_ENV};
use rustix::process::{Pid, Signal, kill_process};

/// The longest that a program may take to open its port, or to end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What carries a program's sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum World {
    Ringway,
    Kernel,
}

impl World {
    /// Ours first, then theirs: each round takes both.
    pub(crate) const BOTH: [Self; 2] = [Self::Ringway, Self::Kernel];
}

/// How programs are started.
pub(crate) struct Programs {
    library: PathBuf,
    scratch: PathBuf,
}

impl Programs {
    pub(crate) fn new(library: &Path, output: &Path) -> Result<Self> {
        let scratch = output.join("scratch");
        fs::create_dir_all(&scratch)?;
        Ok(Self { library: library.canonicalize().context("libvma.so")?, scratch })
    }

    /// A program and its arguments, separated by blanks; on one CPU, if one is named.
    pub(crate) fn command(&self, world: World, cpu: Option<usize>, line: &str) -> Command {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap_or_default();
        // taskset has no sockets: that it is preloaded, too, does nothing.
        let mut command = match cpu {
            Some(cpu) => {
                let mut taskset = Command::new("taskset");
                taskset.args(["--cpu-list", &cpu.to_string(), program]);
                taskset
            }
            None => Command::new(program),
        };
        command.args(words).current_dir(&self.scratch).stdin(Stdio::null()).env_remove("LD_PRELOAD").env_remove("RINGWAY_DEVICE");
        if world == World::Ringway {
            command.env("LD_PRELOAD", &self.library).env(STATS_FILE_ENV, self.reports());
        }
        command
    }

    /// Starts a server, and waits until its port is bound.
    pub(crate) fn serve(&self, world: World, cpu: Option<usize>, line: &str, port: u16) -> Result<Server> {
        let child = self.command(world, cpu, line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().with_context(|| line.to_owned())?;
        let mut server = Server(child);
        let deadline = Instant::now() + PATIENCE;
        while !bound(port)? {
            ensure!(server.0.try_wait()?.is_none(), "{line}: ended before it opened its port");
            ensure!(Instant::now() < deadline, "{line}: port {port} is not open");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// Runs a client to its end: what it wrote.
    pub(crate) fn ask(&self, world: World, cpu: Option<usize>, line: &str) -> Result<String> {
        let output = self.command(world, cpu, line).output().with_context(|| line.to_owned())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "{line}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
        Ok(text)
    }

    /// Fails if Ringway's programs, all ended by now, were not offloaded: then a figure would be the kernel's. What they reported.
    pub(crate) fn check_offloaded(&self, what: &str) -> Result<Vec<ProcessReport>> {
        let text = fs::read_to_string(self.reports()).with_context(|| format!("{what}: no reports"))?;
        fs::remove_file(self.reports())?;
        let reports = text.lines().map(serde_json::from_str::<ProcessReport>).collect::<Result<Vec<_>, _>>()?;
        let moved: u64 = reports.iter().map(|r| r.ring.rx_packets).sum();
        if moved < 100 {
            bail!("{what}: not offloaded ({moved} frames): {:?}", reports.iter().flat_map(|r| &r.decisions).collect::<Vec<_>>());
        }
        Ok(reports)
    }

    /// Reports that nobody has asked for.
    pub(crate) fn forget_reports(&self) {
        let _ = fs::remove_file(self.reports());
    }

    /// A file in the benches' own directory.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    fn reports(&self) -> PathBuf {
        self.scratch.join("reports")
    }
}

/// A server, killed when it is dropped.
pub(crate) struct Server(pub(crate) Child);

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Ends it in good order, and waits.
    pub(crate) fn stop(mut self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.0), signal)?;
        let deadline = Instant::now() + PATIENCE;
        while self.0.try_wait()?.is_none() {
            ensure!(Instant::now() < deadline, "a server does not end");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that is free for both protocols at this moment.
pub(crate) fn free_port() -> Result<u16> {
    for _ in 0..100 {
        let port = std::net::TcpListener::bind("0.0.0.0:0")?.local_addr()?.port();
        if std::net::UdpSocket::bind(("0.0.0.0", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port")
}

/// Whether anything is bound to `port`, as /proc/net has it: asking it would be traffic.
pub(crate) fn bound(port: u16) -> Result<bool> {
    let ours = format!(":{port:04X}");
    for table in ["tcp", "tcp6", "udp", "udp6"] {
        let text = fs::read_to_string(Path::new("/proc/net").join(table)).unwrap_or_default();
        let wanted = if table.starts_with("tcp") { "0A" } else { "07" };
        let found = text.lines().skip(1).any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            fields.next().is_some_and(|local| local.ends_with(&ours)) && fields.nth(1) == Some(wanted)
        });
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}
