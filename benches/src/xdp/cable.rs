//! The cable, and programs at its ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::apps::program::{PATIENCE, Programs, Server, World};
use crate::cacheline;

/// Who asks, and who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) asks: World,
    pub(super) serves: World,
}

impl Ends {
    pub(super) const KERNELS: Self = Self { asks: World::Kernel, serves: World::Kernel };
    pub(super) const ALL: [Self; 4] = [
        Self::KERNELS,
        Self { asks: World::Ringway, serves: World::Kernel },
        Self { asks: World::Kernel, serves: World::Ringway },
        Self { asks: World::Ringway, serves: World::Ringway },
    ];
}

/// Which end of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Asks,
    Serves,
}

/// The address of the end that serves.
pub(super) const HOST: &str = "10.80.0.2";

/// Two namespaces, and the veth pair between them.
pub(super) struct Cable {
    programs: Programs,
    holders: [Child; 2],
    cpus: [usize; 2],
}

impl Cable {
    pub(super) fn lay(library: &Path, output: &Path) -> Result<Self> {
        let programs = Programs::new(library, output)?;
        let holders = [hold()?, hold()?];
        let cable = Self { programs, holders, cpus: cacheline::two_cpus()? };
        let [asks, serves] = cable.holders.each_ref().map(Child::id);
        run(Command::new("ip").args(format!("link add name a0 netns {asks} type veth peer name b0 netns {serves}").split(' ')))?;
        for (at, number) in [(At::Asks, 1), (At::Serves, 2)] {
            let interface = at.interface();
            for words in
                ["link set lo up".to_owned(), format!("link set {interface} up"), format!("addr add 10.80.0.{number}/24 dev {interface}")]
            {
                run(&mut cable.inside(at, &format!("ip {words}")))?;
            }
        }
        // (A carrier is there a moment after both ends are up.)
        thread::sleep(Duration::from_millis(300));
        Ok(cable)
    }

    /// Has the kernel cut and merge segments, and leave checksums to whoever wants them, or not, at both ends.
    pub(super) fn set_offloads(&self, are_on: bool) -> Result<()> {
        let word = if are_on { "on" } else { "off" };
        for at in [At::Asks, At::Serves] {
            run(self.inside(at, &format!("ethtool -K {} tso {word} gso {word} gro {word}", at.interface())).stdout(Stdio::null()))?;
        }
        Ok(())
    }

    /// A program at an end, on the kernel.
    fn inside(&self, at: At, line: &str) -> Command {
        self.command(at, World::Kernel, false, line)
    }

    /// A program at an end, on a processor of that end's own if it is pinned.
    pub(super) fn command(&self, at: At, world: World, is_pinned: bool, line: &str) -> Command {
        let holder = self.holders[at as usize].id();
        let cpu = is_pinned.then_some(self.cpus[at as usize]);
        // nsenter and taskset have no sockets: that they are preloaded, too, does nothing.
        let mut command = self.programs.command(world, cpu, &format!("nsenter --net=/proc/{holder}/ns/net {line}"));
        if world == World::Ringway {
            command.env("RINGWAY_DEVICE", format!("shm,xdp:{}", at.interface()));
        }
        command
    }

    /// Starts a server, and waits until its port is bound.
    pub(super) fn serve(&self, world: World, is_pinned: bool, line: &str, port: u16) -> Result<Server> {
        let mut command = self.command(At::Serves, world, is_pinned, line);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().with_context(|| line.to_owned())?;
        let mut server = Server(child);
        let deadline = Instant::now() + PATIENCE;
        while !self.is_bound(port) {
            ensure!(server.0.try_wait()?.is_none(), "{line}: ended before it opened its port");
            ensure!(Instant::now() < deadline, "{line}: port {port} is not open");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// Runs a client to its end: what it wrote.
    pub(super) fn ask(&self, world: World, is_pinned: bool, line: &str) -> Result<String> {
        said(&mut self.command(At::Asks, world, is_pinned, line), line)
    }

    /// Fails if Ringway's programs, all ended by now, were not offloaded.
    pub(super) fn check_offloaded(&self) -> Result<Vec<ringway_report::ProcessReport>> {
        self.programs.check_offloaded("a program on an interface")
    }

    pub(super) fn scratch(&self, name: &str) -> PathBuf {
        self.programs.scratch(name)
    }

    fn is_bound(&self, port: u16) -> bool {
        let ours = format!(":{port:04X} ");
        let holder = self.holders[At::Serves as usize].id();
        [("tcp", " 0A "), ("tcp6", " 0A "), ("udp", " 07 "), ("udp6", " 07 ")].iter().any(|(table, state)| {
            let text = fs::read_to_string(format!("/proc/{holder}/net/{table}")).unwrap_or_default();
            text.lines().any(|line| line.contains(&ours) && line.contains(state))
        })
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for holder in &mut self.holders {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

impl At {
    pub(super) const fn interface(self) -> &'static str {
        match self {
            Self::Asks => "a0",
            Self::Serves => "b0",
        }
    }
}

/// What a program wrote.
pub(super) fn said(command: &mut Command, line: &str) -> Result<String> {
    let output = command.output().with_context(|| line.to_owned())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{line}: {}\n{text}{}", output.status, String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status} (it takes root)");
    Ok(())
}

/// A process in a network namespace of its own, which lasts as long as it.
fn hold() -> Result<Child> {
    let holder = Command::new("unshare").args(["--net", "sleep", "infinity"]).spawn().context("unshare(1)")?;
    let own = fs::read_link("/proc/self/ns/net")?;
    let deadline = Instant::now() + PATIENCE;
    while fs::read_link(format!("/proc/{}/ns/net", holder.id())).is_ok_and(|namespace| namespace == own) {
        ensure!(Instant::now() < deadline, "no network namespace is to be had: it takes root");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(holder)
}
