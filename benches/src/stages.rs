//! Where the time of a small message goes, stage by stage, in instructions: callgrind counts what `send` and `recv` of a preloaded
//! program execute, and each instruction belongs to the source file that it was compiled from, inlined or not.

pub(crate) mod callgrind;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// Messages of a run.
const MESSAGES: u32 = 500;

/// Which instructions are whose: the first line whose part a source file's path contains. What has no line is the libraries'.
const STAGES: [(&str, &str); 18] = [
    ("ffi/vma/src/socket/", "socket"),
    ("ffi/vma/src/mux", "socket"),
    ("ffi/vma/src/process.rs", "socket"),
    ("ffi/vma/src/slab.rs", "socket"),
    ("ffi/vma/", "exports"),
    ("ffi/preload/", "exports"),
    ("stack/src/tcp/", "stack: TCP"),
    ("stack/src/wire/", "stack: headers"),
    ("stack/src/ring", "stack: ring"),
    ("stack/src/timer.rs", "stack: ring"),
    ("stack/src/device", "stack: ring"),
    ("stack/", "stack: ring"),
    ("backends/shm/", "device shm"),
    ("backends/host/", "host: clock, sleeping"),
    ("rdtsc.rs", "host: clock, sleeping"),
    ("memmove", "libc: copies"),
    ("memcpy", "libc: copies"),
    ("memset", "libc: copies"),
];
const REST: &str = "libraries: Rust's, libc";

/// What is counted.
const COLUMNS: [(&str, &str); 4] = [("tcp", "send"), ("tcp", "recv"), ("udp", "send"), ("udp", "recv")];

/// The table's order, from the program down to the device.
const ORDER: [&str; 9] =
    ["exports", "socket", "stack: ring", "stack: TCP", "stack: headers", "device shm", "host: clock, sleeping", "libc: copies", REST];

/// Counts, writes `stages.jsonl`, prints the table.
///
/// # Errors
/// valgrind or cc is missing, or a program failed.
pub(crate) fn run(library: &Path, output: &Path) -> Result<()> {
    let scratch = output.join("scratch");
    fs::create_dir_all(&scratch)?;
    let library = library.canonicalize().context("libvma.so")?;
    let program = compile(&scratch)?;
    let mut columns = Vec::new();
    for (protocol, function) in COLUMNS {
        columns.push(count(&library, &program, &scratch, (protocol, function))?);
    }
    let mut table = "| stage | tcp send | tcp recv | udp send | udp recv |\n|---|--:|--:|--:|--:|\n".to_owned();
    let mut rows = String::new();
    let mut totals = [0; COLUMNS.len()];
    for stage in ORDER {
        write!(table, "| {stage} |")?;
        for ((column, total), (protocol, function)) in columns.iter().zip(&mut totals).zip(COLUMNS) {
            let per_message = column.get(stage).copied().unwrap_or(0) / u64::from(MESSAGES);
            *total += per_message;
            write!(table, " {per_message} |")?;
            let row = serde_json::json!({ "stage": stage, "protocol": protocol, "call": function, "instructions": per_message });
            writeln!(rows, "{row}")?;
        }
        table.push('\n');
    }
    writeln!(table, "| **all** | {} |", totals.map(|total| total.to_string()).join(" | "))?;
    fs::write(output.join("stages.jsonl"), rows)?;
    print!("{table}");
    Ok(())
}

fn compile(scratch: &Path) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/stages/message.c");
    let program = scratch.join("message");
    let status = Command::new("cc").args(["-O1", "-Wall", "-o"]).arg(&program).arg(&source).status().context("cc")?;
    ensure!(status.success(), "{} does not compile", source.display());
    Ok(program)
}

/// The instructions of all calls of `function` in a client, by stage.
fn count(library: &Path, program: &Path, scratch: &Path, (protocol, function): (&str, &str)) -> Result<BTreeMap<&'static str, u64>> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let preloaded = |program: &Path| {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library).stdin(Stdio::null());
        command
    };
    let mut server = Server(preloaded(program).args(["server", protocol, &port]).spawn().context("the server")?);
    wait_for_server(&mut server.0, protocol, &port)?;
    let profile = scratch.join(format!("callgrind.{protocol}.{function}"));
    let mut client = preloaded(Path::new("valgrind"));
    // The progress thread stays away: it would receive what came while the client sleeps.
    client.env("VMA_PROGRESS_ENGINE_INTERVAL", "100000").args(["-q", "--tool=callgrind"]);
    client.arg(format!("--toggle-collect={function}")).arg(format!("--callgrind-out-file={}", profile.display()));
    let ran = client.arg(program).args(["client", protocol, &port, &MESSAGES.to_string()]).output().context("valgrind")?;
    ensure!(ran.status.success(), "the client failed: {}", String::from_utf8_lossy(&ran.stderr));
    let mut stages = BTreeMap::new();
    for (file, instructions) in callgrind::self_costs(&fs::read_to_string(&profile)?)? {
        *stages.entry(stage_of(&file)).or_insert(0) += instructions;
    }
    ensure!(stages.contains_key("device shm"), "{protocol} {function} was not offloaded: {stages:?}");
    Ok(stages)
}

fn stage_of(file: &str) -> &'static str {
    STAGES.iter().find(|(part, _)| file.contains(part)).map_or(REST, |&(_, stage)| stage)
}

/// Killed when it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for_server(server: &mut Child, protocol: &str, port: &str) -> Result<()> {
    let ours = format!(":{:04X} ", port.parse::<u16>()?);
    let deadline = Instant::now() + Duration::from_secs(10);
    // A line of its: its address, no peer, and the state of a listener, or of a socket that is not connected.
    let state = if protocol == "tcp" { " 0A " } else { " 07 " };
    while !fs::read_to_string(format!("/proc/net/{protocol}"))?.lines().any(|l| l.contains(&ours) && l.contains(state)) {
        if server.try_wait()?.is_some() || Instant::now() > deadline {
            bail!("the server is not there");
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_has_a_row() {
        for (_, stage) in STAGES {
            assert!(ORDER.contains(&stage), "{stage}");
        }
        assert_eq!(stage_of("/somewhere/stack/src/tcp/connection/ack.rs"), "stack: TCP");
        assert_eq!(stage_of("/rustc/0123/library/alloc/src/vec/mod.rs"), REST);
    }
}
