//! nginx's small file: by wrk, with one worker, and with more busy threads than the cores that they share; and by ab, a connection for each request.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Signal, geteuid};

use super::program::{Programs, World, free_port};
use crate::row::Row;

/// A small file's size in bytes.
const SMALL: usize = 612;

/// Workers of nginx's, threads of wrk's.
const LOADS: [(&str, u32, u32); 2] = [("nginx, one worker, wrk", 1, 1), ("nginx, two workers, wrk with two threads", 2, 2)];

/// Requests of ab's, one after the other.
const ONE_BY_ONE: u32 = 5_000;

/// What no connection may take (a connect that goes without an answer is tried again after a second).
const LONGEST_MS: u32 = 900;

pub(super) fn rows(programs: &Programs, rounds: u32) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (bench, workers, threads) in LOADS {
        rows.push(compared(programs, rounds, bench, |world| requests_per_second(programs, world, workers, threads))?);
    }
    rows.push(compared(programs, rounds, "nginx, one worker, ab -c 1", |world| connections_per_second(programs, world))?);
    Ok(rows)
}

fn compared(programs: &Programs, rounds: u32, bench: &'static str, rate: impl Fn(World) -> Result<f64>) -> Result<Row> {
    let [mut ours, mut theirs] = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for world in World::BOTH {
            let rate = rate(world)?;
            if world == World::Ringway { ours.push(rate) } else { theirs.push(rate) }
        }
        programs.check_offloaded(bench)?;
    }
    Ok(Row::new(bench, "requests", "/s", &ours, "the kernel", &theirs))
}

/// A connection for each request, none before the last one has ended.
fn connections_per_second(programs: &Programs, world: World) -> Result<f64> {
    let port = free_port()?;
    let config = configure(programs, 1, port)?;
    let server = programs.serve(world, None, &format!("nginx -e stderr -c {}", config.display()), port)?;
    let text = programs.ask(world, None, &format!("ab -q -c 1 -n {ONE_BY_ONE} http://127.0.0.1:{port}/small"))?;
    server.stop(Signal::QUIT)?;
    let word = |line: &str, at: usize| -> Result<&str> {
        let found = text
            .lines()
            .find(|l| l.trim_start().starts_with(line))
            .and_then(|l| l[l.find(line)? + line.len()..].split_whitespace().nth(at));
        found.with_context(|| format!("ab does not say \"{line}\":\n{text}"))
    };
    ensure!(word("Failed requests:", 0)? == "0" && !text.contains("Non-2xx"), "ab met errors:\n{text}");
    let longest: u32 = word("100%", 0)?.parse()?;
    ensure!(longest < LONGEST_MS, "a request took {longest} ms:\n{text}");
    Ok(word("Requests per second:", 0)?.parse()?)
}

fn requests_per_second(programs: &Programs, world: World, workers: u32, threads: u32) -> Result<f64> {
    let port = free_port()?;
    let config = configure(programs, workers, port)?;
    let server = programs.serve(world, None, &format!("nginx -e stderr -c {}", config.display()), port)?;
    let text =
        programs.ask(world, None, &format!("wrk -t {threads} -c {} -d 2s --timeout 10s http://127.0.0.1:{port}/small", 25 * threads))?;
    server.stop(Signal::QUIT)?;
    ensure!(!text.contains("Socket errors") && !text.contains("Non-2xx"), "wrk met errors:\n{text}");
    let line = text.lines().find_map(|l| l.strip_prefix("Requests/sec:")).context("wrk gives no rate")?;
    Ok(line.trim().parse()?)
}

/// A configuration with nothing in it that would be the disk's.
fn configure(programs: &Programs, workers: u32, port: u16) -> Result<PathBuf> {
    let root = programs.scratch("nginx");
    fs::create_dir_all(&root)?;
    fs::write(root.join("small"), vec![b'x'; SMALL])?;
    let root = root.display();
    // Peers of another user do not meet.
    let user = if geteuid().is_root() { "user root;" } else { "" };
    let temporary: String =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].iter().map(|kind| format!("{kind}_temp_path {root}/{kind};\n")).collect();
    let text = format!(
        "{user}\ndaemon off;\nworker_processes {workers};\npid {root}/pid;\nevents {{ worker_connections 1024; }}\nhttp {{\n{temporary}\
         access_log off;\nsendfile on;\nopen_file_cache max=10;\nkeepalive_requests 100000000;\n\
         server {{ listen 127.0.0.1:{port}; location / {{ root {root}; }} }}\n}}\n"
    );
    let path = programs.scratch("nginx.conf");
    fs::write(&path, text)?;
    Ok(path)
}
