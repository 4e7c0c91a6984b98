//! git with its own daemon, which forks a program for each connection that is its standard input and output: clone, push, fetch.

use std::path::Path;

use rustix::process::Signal;

use crate::harness::{Case, Launch, Running, Side, before_port, free_port};
use crate::http;

/// What a commit's file holds, bytes.
const SIZE: u64 = 20_000_000;

/// Where the daemon is found, unless a case says something else.
const LOCAL: &str = "127.0.0.1";

#[test]
fn both_ends() {
    let case = Case::new("git-daemon");
    stop(exchange(&case, LOCAL, SIZE, &|program| case.program(program), &|program| case.program(program)));
    // "git" is the daemon, the client, and the programs in between, by whatever name they go.
    case.shared(&["git"], 600);
}

#[test]
fn one_end_only() {
    for side in Side::BOTH {
        let case = Case::new("git-mixed");
        stop(exchange(&case, LOCAL, SIZE, &|program| case.server(side, program), &|program| case.client(side, program)));
        case.on_the_kernel(600);
    }
}

/// Two commits with a file of `size` bytes each, by a daemon that is found at `host`; the daemon.
pub(crate) fn exchange<'c>(
    case: &'c Case,
    host: &str,
    size: u64,
    server: &dyn Fn(&str) -> Launch<'c>,
    client: &dyn Fn(&str) -> Launch<'c>,
) -> Running {
    let root = case.path("served");
    std::fs::create_dir_all(&root).expect("the served directory");
    git(case, case.plain("git"), case.path("").as_path()).args("init -q --bare served/repository.git").run();
    let port = free_port();
    let daemon = git(case, server("git"), &root);
    let options = format!("daemon --reuseaddr --listen={host} --port={port} --export-all --enable=receive-pack");
    let daemon: Running = daemon.args(&options).arg(format!("--base-path={}", root.display())).serve(port);
    let url = format!("git://{}:{port}/repository.git", before_port(host));

    let (first, second) = (case.path("first"), case.path("second"));
    git(case, client("git"), case.path("").as_path()).args(&format!("clone -q {url} first")).run();
    for commit in ["one", "two"] {
        http::fill(&first.join(commit), size);
        std::fs::write(first.join("name"), commit).expect("a file");
        git(case, case.plain("git"), &first).args("add .").run();
        git(case, case.plain("git"), &first).args(&format!("commit -q -m {commit}")).run();
        git(case, client("git"), &first).args("push -q origin HEAD:refs/heads/main").run();
        if second.exists() {
            git(case, client("git"), &second).args("pull -q").run();
        } else {
            git(case, client("git"), case.path("").as_path()).args(&format!("clone -q -b main {url} second")).run();
        }
        assert_eq!(http::digest(case, &second.join(commit)), http::digest(case, &first.join(commit)));
    }
    git(case, case.plain("git"), &second).args("fsck --strict").run();
    daemon
}

pub(crate) fn stop(daemon: Running) {
    daemon.signal(Signal::TERM);
    daemon.wait();
}

/// git in `directory`, with no configuration but ours.
fn git<'c>(case: &Case, launch: Launch<'c>, directory: &Path) -> Launch<'c> {
    let pairs = [("user.name", "case"), ("user.email", "case@example.invalid"), ("init.defaultBranch", "main"), ("core.compression", "0")];
    let mut launch = launch.env("HOME", case.path("")).env("GIT_CONFIG_NOSYSTEM", "1").arg("-C").arg(directory);
    for (name, value) in pairs {
        launch = launch.arg("-c").arg(format!("{name}={value}"));
    }
    launch
}
