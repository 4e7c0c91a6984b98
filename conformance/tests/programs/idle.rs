//! An idle process uses no CPU.

use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Case, PYTHON, cpu_time, free_port};
use crate::{http, redis};

const WATCHED: Duration = Duration::from_secs(5);

/// redis wakes ten times a second for its own housekeeping, and a little of that is allowed.
const ALLOWED: Duration = Duration::from_millis(250);

#[test]
fn redis_with_an_idle_client() {
    let case = Case::new("idle-redis");
    let (server, port) = redis::idle_server(&case);
    let subscriber = case.program("redis-cli").args(&format!("-p {port} subscribe news")).spawn();
    watch(&[("redis-server", server.pid()), ("redis-cli", subscriber.pid())]);
    drop(subscriber);
    server.stop(Signal::TERM);
    case.done();
}

#[test]
fn accept_and_recv() {
    let case = Case::new("idle-accept");
    let port = free_port();
    let web = http::serve(case.program(PYTHON), port, &case).serve(port);
    let held = free_port();
    let mut holder = case.python("peer.py").args(&format!("serve_hold {held}")).serve(held);
    let mut watcher = case.python("peer.py").args(&format!("watch {held}")).spawn();
    watcher.wait_line("connected");
    holder.wait_line("listening");
    watch(&[("http.server", web.pid()), ("the holder", holder.pid()), ("recv", watcher.pid())]);
    drop((holder, watcher));
    web.stop(Signal::INT);
    case.done();
}

fn watch(processes: &[(&str, u32)]) {
    // What they do at their start is not idleness.
    std::thread::sleep(Duration::from_secs(1));
    let before: Vec<_> = processes.iter().map(|&(_, pid)| cpu_time(pid)).collect();
    std::thread::sleep(WATCHED);
    for (&(name, pid), before) in processes.iter().zip(before) {
        let used = cpu_time(pid) - before;
        assert!(used <= ALLOWED, "{name} used {used:?} in {WATCHED:?} of idleness");
    }
}
