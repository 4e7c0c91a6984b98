//! The programs of this bench: compiled, started, and asked for their figures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Way;
use crate::apps::program::{PATIENCE, Programs, World, bound, free_port};
use crate::cacheline;
use crate::stages::callgrind;

/// How long a flood is received from, in milliseconds, and how long it is sent: the receiver begins late, and warms up.
const FLOOD_MS: u32 = 500;
const SENDING_MS: u32 = 900;
/// The same, where somebody reads the receiver's statistics meanwhile (or does not, to be compared).
const WATCHED_MS: u32 = 2500;
const WATCHED_SENDING_MS: u32 = 2900;
/// Exchanges of a ping-pong.
const EXCHANGES: u32 = 40_000;
/// Bursts under callgrind.
const BURSTS: u32 = 40;

/// What receiver.c found when datagrams came as fast as they could.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Flood {
    packets: f64,
    /// Numbers that never came.
    lost: f64,
    ns: f64,
    cpu_ns: f64,
    /// In calls that found something, and in those that did not.
    busy_ns: f64,
    idle_ns: f64,
}

impl Flood {
    pub(super) fn per_second(&self) -> f64 {
        self.packets / self.ns * 1e9
    }

    /// The part of the receiver's time in which nothing was there.
    pub(super) fn idle_share(&self) -> f64 {
        self.idle_ns / (self.idle_ns + self.busy_ns)
    }

    pub(super) fn lost_share(&self) -> f64 {
        self.lost / (self.lost + self.packets).max(1.0)
    }

    /// What a packet costs the receiver: of its processor time, the part in which something was there.
    pub(super) fn ns_per_packet(&self) -> f64 {
        self.cpu_ns * (1.0 - self.idle_share()) / self.packets
    }
}

#[derive(Deserialize)]
struct Exchanged {
    median_ns: f64,
}

#[derive(Deserialize)]
struct Bursts {
    counted: f64,
}

/// Where and how the programs run.
pub(super) struct Bench {
    programs: Programs,
    cpus: [usize; 2],
    /// What a program's line begins with.
    prefix: String,
    /// `vma_stats`, built with the library.
    reader: PathBuf,
}

impl Bench {
    /// Compiles the programs.
    pub(super) fn new(library: &Path, output: &Path, priority: Option<u32>) -> Result<Self> {
        let programs = Programs::new(library, output)?;
        for name in ["receiver", "sender"] {
            compile(name, &programs.scratch(name))?;
        }
        let prefix = priority.map_or_else(String::new, |priority| format!("chrt --rr {priority} "));
        // (What an earlier bench that failed has left.)
        programs.forget_reports();
        Ok(Self { programs, cpus: cacheline::two_cpus()?, prefix, reader: library.with_file_name("vma_stats").canonicalize()? })
    }

    /// Datagrams as fast as one sender sends them.
    pub(super) fn flood(&self, world: World, way: Way) -> Result<Flood> {
        self.flood_for((FLOOD_MS, SENDING_MS), world, way, |_| Ok(None))
    }

    /// The same for longer; `is_watched`: vma_stats asks the receiver for its statistics once a second meanwhile, from the sender's core.
    pub(super) fn flood_watched(&self, way: Way, is_watched: bool) -> Result<Flood> {
        let watch = |pid: u32| -> Result<Option<Running>> {
            let mut reader = Command::new("taskset");
            reader.args(["--cpu-list", &self.cpus[1].to_string()]).arg(&self.reader).args(["-p", &pid.to_string(), "-i", "1", "-v", "3"]);
            Ok(Some(Running(Some(reader.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("vma_stats")?))))
        };
        let times = (WATCHED_MS, WATCHED_SENDING_MS);
        self.flood_for(times, World::Ringway, way, |pid| if is_watched { watch(pid) } else { Ok(None) })
    }

    fn flood_for(
        &self,
        (receiving_ms, sending_ms): (u32, u32),
        world: World,
        way: Way,
        watch: impl FnOnce(u32) -> Result<Option<Running>>,
    ) -> Result<Flood> {
        let port = free_port()?;
        let receiver = self.receiver(world, way, port, &format!("flood {} {port} {receiving_ms}", way.word()))?;
        let reader = watch(receiver.0.as_ref().context("it was started")?.id())?;
        let sender =
            self.sender(world).args(["flood", "sendmmsg", &port.to_string(), &sending_ms.to_string()]).output().context("sender")?;
        ensure!(sender.status.success(), "sender: {}", String::from_utf8_lossy(&sender.stderr));
        let flood = figures(receiver)?;
        if let Some(mut reader) = reader {
            // (It ends when the process has ended.)
            let said = reader.0.take().context("it was started")?.wait_with_output()?;
            let samples = String::from_utf8_lossy(&said.stdout).matches("Rx Offload:").count();
            ensure!(said.status.success() && samples >= 2, "vma_stats saw the receiver {samples} times");
        }
        self.check(world, way)?;
        Ok(flood)
    }

    /// One datagram to and fro, received in the same way at both ends: the median, in microseconds.
    pub(super) fn round_trip_us(&self, world: World, way: Way) -> Result<f64> {
        let (here, there) = (free_port()?, free_port()?);
        let line = |role: &str, own, peer| format!("{role} {} {own} {peer} {EXCHANGES}", way.word());
        let pong = self.receiver(world, way, there, &line("pong", there, here))?;
        let ping = self.command(world, way, self.cpus[1], &line("ping", here, there)).spawn().context("receiver")?;
        let exchanged: Exchanged = figures(Running(Some(ping)))?;
        figures::<Exchanged>(pong)?;
        self.check(world, way)?;
        Ok(exchanged.median_ns / 1e3)
    }

    /// The instructions that one packet costs the receiver, its own few not included. Bursts that are there before they are asked for, so that
    /// nothing waits.
    pub(super) fn instructions(&self, way: Way) -> Result<f64> {
        let world = World::Ringway;
        let port = free_port()?;
        let profile = self.programs.scratch("callgrind.vma");
        let line = format!(
            "valgrind -q --tool=callgrind --toggle-collect=drain --callgrind-out-file={} ./receiver burst {} {port} {BURSTS}",
            profile.display(),
            way.word()
        );
        let mut receiver = self.programs.command(world, Some(self.cpus[0]), &line);
        receiver.envs(environment(way)).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // The progress thread stays away: it would receive what came while the receiver sleeps.
        receiver.env("VMA_PROGRESS_ENGINE_INTERVAL", "100000");
        let mut receiver = Running(Some(receiver.spawn().context("valgrind")?));
        receiver.wait_until_bound(port)?;
        let pipes = receiver.0.as_mut().and_then(|child| Some((child.stdin.take()?, child.stdout.take()?)));
        let (to, from) = pipes.context("the receiver's pipes")?;
        let mut sender = self.sender(world);
        sender.args(["burst", "send", &port.to_string()]).stdin(from).stdout(to).stderr(Stdio::null());
        let sender = Running(Some(sender.spawn().context("sender")?));
        // (The command holds the pipes' ends as well: the programs must see each other's end.)
        let bursts: Bursts = figures(receiver)?;
        drop(sender);
        self.check(world, way)?;
        let costs = callgrind::self_costs(&fs::read_to_string(&profile)?)?;
        let library = costs.iter().filter(|(file, _)| !file.ends_with("receiver.c") && !file.ends_with("ways.h")).map(|(_, cost)| *cost);
        Ok(library.sum::<u64>() as f64 / bursts.counted)
    }

    fn command(&self, world: World, way: Way, cpu: usize, arguments: &str) -> Command {
        let mut command = self.programs.command(world, Some(cpu), &format!("{}./receiver {arguments}", self.prefix));
        command.envs(environment(way)).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// A receiver whose port is bound.
    fn receiver(&self, world: World, way: Way, port: u16, arguments: &str) -> Result<Running> {
        let mut receiver = Running(Some(self.command(world, way, self.cpus[0], arguments).spawn().context("receiver")?));
        receiver.wait_until_bound(port)?;
        Ok(receiver)
    }

    fn sender(&self, world: World) -> Command {
        let mut command = self.programs.command(world, Some(self.cpus[1]), &format!("{}./sender", self.prefix));
        command.env("VMA_TX_NONBLOCKED_EAGAINS", "1");
        command
    }

    /// Ours must have been offloaded.
    fn check(&self, world: World, way: Way) -> Result<()> {
        if world == World::Ringway {
            self.programs.check_offloaded(way.word())?;
        }
        Ok(())
    }
}

fn environment(way: Way) -> Option<(&'static str, &'static str)> {
    (way == Way::Xtreme).then_some(("VMA_SOCKETXTREME", "1"))
}

fn compile(name: &str, program: &Path) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source: PathBuf = root.join("src/vma").join(name).with_extension("c");
    let mut command = Command::new("cc");
    command.args(["-O2", "-g", "-Wall", "-I"]).arg(root.join("../ffi/vma/include")).arg("-o").arg(program).arg(&source);
    ensure!(command.status().context("cc")?.success(), "{} does not compile", source.display());
    Ok(())
}

/// What a program says of itself when it ends.
fn figures<T: DeserializeOwned>(mut program: Running) -> Result<T> {
    let output = program.0.take().context("it was started")?.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "receiver: {}\n{said}", output.status);
    let line = said.lines().find(|line| line.starts_with('{')).with_context(|| format!("no figures:\n{said}"))?;
    Ok(serde_json::from_str(line)?)
}

/// Killed when it is dropped, unless it has ended.
struct Running(Option<Child>);

impl Running {
    fn wait_until_bound(&mut self, port: u16) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !bound(port)? {
            let has_ended = self.0.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
            ensure!(!has_ended, "the receiver ended before it opened its port");
            ensure!(Instant::now() < deadline, "port {port} is not open");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
