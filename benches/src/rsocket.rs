//! rsockets on shared memory beside TCP: Ringway's on shared memory, and the kernel's on its loopback. One program for all, which is compiled for rsockets and
//! for sockets: `rsocket/rsocket.c`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::apps::program::{Programs, World};
use crate::row::{self, Row};

/// How often, and how long.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Rounds: each measures everything once.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
}

const TCP: [&str; 2] = ["Ringway's TCP", "the kernel's TCP"];

/// What is compared: the row's name, the program's word for rsockets, and for sockets, the figure's name and unit.
const WORK: [(&str, &str, &str, &str, &str); 4] = [
    ("rsend and rrecv", "ping", "ping", "round trips of 64 B", "/s"),
    ("rsend and rrecv", "bulk", "bulk", "throughput, 64 KiB at a time", "MB/s"),
    ("riowrite to who looks", "write-ping", "ping", "round trips of 64 B", "/s"),
    ("riowrite to who looks", "write-bulk", "bulk", "throughput, 64 KiB at a time", "MB/s"),
];

/// Measures, writes `rsocket.jsonl`, prints the table. `library`: libvma.so, beside which librsocket.so is.
///
/// # Errors
/// A program failed, or was not offloaded.
pub(crate) fn run(library: &Path, output: &Path, options: &Options) -> Result<()> {
    let bench = Bench { programs: Programs::new(library, output)?, seconds: options.seconds };
    let [sockets, rsockets] = [bench.compile(None)?, bench.compile(Some(&library.with_file_name("librsocket.so")))?];
    let mut figures = WORK.map(|_| [const { Vec::new() }; 3]);
    for _ in 0..options.rounds {
        for ((_, rsocket, tcp, ..), [ours, ringway, kernel]) in WORK.iter().zip(&mut figures) {
            // (librsocket.so has no other way than shared memory.)
            ours.push(bench.rate(World::Kernel, &rsockets, rsocket)?);
            ringway.push(bench.rate(World::Ringway, &sockets, tcp)?);
            kernel.push(bench.rate(World::Kernel, &sockets, tcp)?);
        }
    }
    let mut rows = Vec::new();
    for ((name, .., metric, unit), [ours, peers @ ..]) in WORK.iter().zip(&figures) {
        rows.extend(TCP.iter().zip(peers).map(|(peer, theirs)| Row::new(name, *metric, unit, ours, peer, theirs)));
    }
    row::write(&rows, output, "rsocket")?;
    print!("{}", row::markdown(&rows));
    Ok(())
}

struct Bench {
    programs: Programs,
    seconds: f64,
}

impl Bench {
    /// Compiles the program: for rsockets by this library, or for sockets.
    fn compile(&self, rsockets: Option<&Path>) -> Result<PathBuf> {
        let source = self.programs.scratch("rsocket.c");
        fs::write(&source, include_str!("rsocket/rsocket.c"))?;
        let program = self.programs.scratch(if rsockets.is_some() { "rsockets" } else { "sockets" });
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-o"]).arg(&program).arg(&source);
        if let Some(library) = rsockets {
            let folder = self.programs.scratch("librsocket");
            fs::create_dir_all(&folder)?;
            // The name by which programs are linked with it, and the one by which they find it.
            for name in ["librsocket.so", "librsocket.so.1"] {
                let link = folder.join(name);
                let _ = fs::remove_file(&link);
                symlink(library.canonicalize().context("librsocket.so")?, link)?;
            }
            let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ffi/rsocket/include");
            cc.arg("-DRSOCKETS").arg("-I").arg(headers);
            cc.arg(format!("-L{}", folder.display())).arg(format!("-Wl,-rpath,{}", folder.display())).arg("-lrsocket");
        }
        ensure!(cc.status().context("cc")?.success(), "rsocket.c does not compile");
        Ok(program)
    }

    fn rate(&self, world: World, program: &Path, what: &str) -> Result<f64> {
        self.programs.forget_reports();
        let line = format!("{} {what} {}", program.display(), self.seconds);
        let rate = self.programs.ask(world, None, &line)?.trim().parse().context("a rate")?;
        if world == World::Ringway {
            self.programs.check_offloaded(&line)?;
        }
        Ok(rate)
    }
}
