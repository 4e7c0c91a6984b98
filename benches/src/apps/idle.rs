//! What costs while nothing happens: memory of idle connections, CPU of idle servers.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;

use super::program::{Programs, Server, World, free_port};
use super::redis;
use crate::row::Row;

/// Rounds. The kernel's slabs are the machine's, so a median must see past what else it does.
const ROUNDS: usize = 3;

/// Connections whose memory is measured.
const CONNECTIONS: u64 = 1000;

/// How long an idle server is watched.
const WATCHED: Duration = Duration::from_secs(10);

/// Holds both ends of connections: accepts, or connects, as many as it is told, and says when it has them.
const HOLDER: &str = r#"
import resource, socket, sys, time
role, port = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
if role == "server":
    listener = socket.socket()
    listener.bind(("127.0.0.1", port))
    listener.listen(1024)
print("ready", flush=True)
held = []
for step in sys.stdin:
    for _ in range(int(step)):
        held.append(listener.accept()[0] if role == "server" else socket.create_connection(("127.0.0.1", port)))
    print("held", flush=True)
"#;

pub(super) fn rows(programs: &Programs) -> Result<Vec<Row>> {
    let [mut ours, mut theirs] = [const { Figures::new() }; 2];
    for world in World::BOTH.into_iter().cycle().take(2 * ROUNDS) {
        let figures = if world == World::Ringway { &mut ours } else { &mut theirs };
        let (user, kernel) = bytes_per_end(programs, world)?;
        figures.user.push(user);
        figures.kernel.push(kernel);
        figures.cpu.push(idle_cpu_percent(programs, world)?);
    }
    let bench = "idle connections";
    Ok(vec![
        Row::new(bench, "user-space memory of one end, the program's own included", "B", &ours.user, "the kernel", &theirs.user),
        Row::new(bench, "the kernel's slabs of one end's descriptor", "B", &ours.kernel, "the kernel", &theirs.kernel),
        Row::new("idle redis-server", "CPU", "%", &ours.cpu, "the kernel", &theirs.cpu),
    ])
}

/// One world's measurements.
struct Figures {
    user: Vec<f64>,
    kernel: Vec<f64>,
    cpu: Vec<f64>,
}

impl Figures {
    const fn new() -> Self {
        Self { user: Vec::new(), kernel: Vec::new(), cpu: Vec::new() }
    }
}

/// How much two processes grow, private and shared memory together, by holding the two ends of a connection; and the kernel's slabs
/// (a socket of its own, or the placeholder of one of ours). Half of each: one end's.
fn bytes_per_end(programs: &Programs, world: World) -> Result<(f64, f64)> {
    let port = free_port()?.to_string();
    let mut server = Holder::start(programs, world, "server", &port)?;
    let mut client = Holder::start(programs, world, "client", &port)?;
    // The first hundred pay for what is there once: the device, tables, the interpreter's own.
    hold(&mut server, &mut client, 100)?;
    let before = (server.memory()? + client.memory()?, slabs()?);
    hold(&mut server, &mut client, CONNECTIONS)?;
    let after = (server.memory()? + client.memory()?, slabs()?);
    #[expect(clippy::cast_precision_loss, reason = "less than 2^53 bytes")]
    let per_end = |before: u64, after: u64| after.saturating_sub(before) as f64 / (2 * CONNECTIONS) as f64;
    Ok((per_end(before.0, after.0), per_end(before.1, after.1)))
}

fn hold(server: &mut Holder, client: &mut Holder, count: u64) -> Result<()> {
    // In portions that fit into any backlog.
    for _ in 0..count / 100 {
        server.say("100\n")?;
        client.say("100\n")?;
        client.wait_for("held")?;
        server.wait_for("held")?;
    }
    Ok(())
}

/// One process that holds connections.
struct Holder {
    process: Server,
    output: BufReader<std::process::ChildStdout>,
    input: std::process::ChildStdin,
}

impl Holder {
    fn start(programs: &Programs, world: World, role: &str, port: &str) -> Result<Self> {
        let mut command = programs.command(world, None, "/usr/bin/python3");
        command.args(["-c", HOLDER, role, port]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Server(command.spawn()?);
        let output = BufReader::new(process.0.stdout.take().context("its output")?);
        let input = process.0.stdin.take().context("its input")?;
        let mut holder = Self { process, output, input };
        holder.wait_for("ready")?;
        Ok(holder)
    }

    fn say(&mut self, line: &str) -> Result<()> {
        Ok(self.input.write_all(line.as_bytes())?)
    }

    fn wait_for(&mut self, word: &str) -> Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(line.trim() == word, "a holder said {line:?} instead of {word}");
        Ok(())
    }

    /// Its proportional set size: memory that two processes map is counted once.
    fn memory(&self) -> Result<u64> {
        kib(&format!("/proc/{}/smaps_rollup", self.process.pid()), "Pss:").map(|kib| kib * 1024)
    }
}

/// The memory of the kernel's own objects, sockets among them.
fn slabs() -> Result<u64> {
    kib("/proc/meminfo", "Slab:").map(|kib| kib * 1024)
}

/// A line's value in a file of proc(5) that counts in KiB.
fn kib(path: &str, name: &str) -> Result<u64> {
    let text = fs::read_to_string(path).with_context(|| path.to_owned())?;
    let value = text.lines().find_map(|l| l.strip_prefix(name)?.split_whitespace().next()?.parse().ok());
    value.with_context(|| format!("{path} has no {name}"))
}

/// User and system time of a redis-server that nobody asks anything.
fn idle_cpu_percent(programs: &Programs, world: World) -> Result<f64> {
    let port = free_port()?;
    let server = programs.serve(world, None, &redis::server(port), port)?;
    thread::sleep(Duration::from_secs(1));
    let before = cpu_time(server.pid())?;
    thread::sleep(WATCHED);
    let used = cpu_time(server.pid())? - before;
    server.stop(Signal::TERM)?;
    Ok(used.as_secs_f64() / WATCHED.as_secs_f64() * 100.0)
}

/// A process's CPU time: /proc/PID/schedstat's first field of all its threads, in nanoseconds.
fn cpu_time(pid: u32) -> Result<Duration> {
    let mut ns = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        ns += text.split_whitespace().next().context("schedstat")?.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(ns))
}
