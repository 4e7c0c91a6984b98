//! OpenSSH's server and client: a command, a pipe, and scp of a gigabyte; rsync through it and by its own daemon.
//!
//! sshd hands a connection from process to process (a fork, an exec of itself, a child without privileges in a seccomp sandbox), so that
//! it may be left to the kernel; then it must say so.

use std::fs;

use rustix::process::Signal;

use crate::harness::{Case, Launch, Running, Side, World, before_port, free_port};
use crate::http;

const GIB: u64 = 1 << 30;

/// The largest of the files that rsync copies, bytes.
const LARGE: u64 = 50_000_000;

/// The directory that sshd insists on, which Debian makes when it boots.
const PRIVILEGE_SEPARATION: &str = "/run/sshd";

#[test]
fn command() {
    let case = Case::new("ssh-command");
    let server = commands(&case);
    end(case, server);
}

/// sshd, after several commands: how they end, and what goes to them and comes from them.
pub(crate) fn commands(case: &Case) -> Running {
    let (server, port) = start(case, None);
    for n in 0..3 {
        assert_eq!(ssh(case, None, port).arg(format!("echo answer {n}; exit 0")).run().stdout, format!("answer {n}\n"));
    }
    assert_eq!(ssh(case, None, port).arg("exit 7").spawn().wait().status.code(), Some(7));
    // Both directions, and the end of each.
    let path = case.path("file");
    http::fill(&path, 20_000_000);
    let expected = http::digest(case, &path);
    assert_eq!(ssh(case, None, port).arg("cat | sha256sum").stdin(&path).run().stdout.split(' ').next(), Some(expected.as_str()));
    let answer = ssh(case, None, port).arg(format!("cat {} | base64", path.display())).run().stdout;
    let copy = case.path("copy");
    fs::write(&copy, answer).expect("the copy");
    let digest = case.plain("sh").arg("-c").arg(format!("base64 -d {} | sha256sum", copy.display())).run().stdout;
    assert_eq!(digest.split(' ').next(), Some(expected.as_str()));
    server
}

#[test]
fn scp() {
    let case = Case::new("ssh-scp");
    let (server, port) = start(&case, None);
    copy(LOCAL, &case, case.program("scp"), port, GIB);
    end(case, server);
}

/// Copies so many bytes to a server that is found at `host`.
pub(crate) fn copy(host: &str, case: &Case, scp: Launch<'_>, port: u16, size: u64) {
    let (path, copy) = (case.path("file"), case.path("copy"));
    http::fill(&path, size);
    let remote = format!("{}:{}", before_port(host), copy.display());
    options(case, scp.args(&format!("-q -P {port}"))).arg(&path).arg(remote).run();
    assert_eq!(http::digest(case, &copy), http::digest(case, &path));
}

#[test]
fn one_end_only() {
    for side in Side::BOTH {
        let case = Case::new("ssh-mixed");
        let (server, port) = start(&case, Some(side));
        let path = case.path("file");
        http::fill(&path, 20_000_000);
        let answer = ssh(&case, Some(side), port).arg("cat | sha256sum").stdin(&path).run();
        assert_eq!(answer.stdout.split(' ').next(), Some(http::digest(&case, &path).as_str()));
        stop(server);
        case.on_the_kernel(300);
    }
}

#[test]
fn rsync_through_it() {
    let case = Case::new("rsync-ssh");
    let (server, port) = start(&case, None);
    rsync_by_ssh(LOCAL, &case, &|| case.program("rsync"), port, LARGE);
    end(case, server);
}

/// By a server that is found at `host`.
pub(crate) fn rsync_by_ssh<'c>(host: &str, case: &'c Case, client: &dyn Fn() -> Launch<'c>, port: u16, large: u64) {
    let known = format!("-oUserKnownHostsFile={}", case.path("known").display());
    let shell = format!("ssh -p {port} {OPTIONS} -i {} {known}", case.path("user").display());
    let remote = format!("{}:{}/", before_port(host), case.path("there").display());
    rsync(case, &|| client().arg("-e").arg(&shell), &remote, large);
}

/// rsync's daemon forks for each connection, and its client into a generator and a receiver, which share one.
#[test]
fn rsync_daemon() {
    let case = Case::new("rsync-daemon");
    rsync_by_its_daemon(LOCAL, &case, case.program("rsync"), &|| case.program("rsync"), LARGE);
    case.shared(&["rsync"], 500);
}

/// By a daemon that is found at `host`.
pub(crate) fn rsync_by_its_daemon<'c>(host: &str, case: &'c Case, daemon: Launch<'c>, client: &dyn Fn() -> Launch<'c>, large: u64) {
    let port = free_port();
    let config = case.path("rsyncd.conf");
    fs::create_dir_all(case.path("there")).expect("a directory");
    let text = format!("use chroot = no\nuid = root\ngid = root\n[files]\npath = {}\nread only = no\n", case.path("there").display());
    fs::write(&config, text).expect("the configuration");
    let server = daemon.args(&format!("--daemon --no-detach --address={host} --port={port}")).arg("--config").arg(&config);
    let server = server.serve(port);
    rsync(case, client, &format!("rsync://{}:{port}/files/", before_port(host)), large);
    server.signal(Signal::TERM);
    server.wait();
}

/// Many small files and a large one, there and back, and once more with a change.
fn rsync<'c>(case: &Case, client: &dyn Fn() -> Launch<'c>, remote: &str, large: u64) {
    let (here, back) = (case.path("here"), case.path("back"));
    fs::create_dir_all(here.join("many")).expect("a directory");
    for n in 0..200 {
        http::fill(&here.join("many").join(n.to_string()), 10 * n);
    }
    http::fill(&here.join("large"), large);
    let copy = |from: &str, to: &str| client().args("-a --whole-file --timeout=30").args(&format!("{from} {to}")).run();
    for change in ["first", "second"] {
        fs::write(here.join("name"), change).expect("a file");
        copy(&format!("{}/", here.display()), remote);
        copy(remote, &format!("{}/", back.display()));
        case.plain("diff").arg("-r").arg(&here).arg(&back).run();
    }
}

/// Where sshd is found, unless a case says something else.
const LOCAL: &str = "127.0.0.1";

/// Nothing of the user's own configuration.
const OPTIONS: &str = "-F none -oBatchMode=yes -oIdentitiesOnly=yes";

/// sshd on a port of its own, with keys and configuration of this case.
fn start(case: &Case, preloaded: Option<Side>) -> (Running, u16) {
    let program = "/usr/sbin/sshd";
    start_at(LOCAL, case, preloaded.map_or_else(|| case.program(program), |side| case.server(side, program)))
}

/// The same, for one that is found at `host`.
pub(crate) fn start_at(host: &str, case: &Case, sshd: Launch<'_>) -> (Running, u16) {
    for name in ["host", "user"] {
        case.plain("ssh-keygen").args("-q -t ed25519 -f").arg(case.path(name)).arg("-N").arg("").run();
    }
    let port = free_port();
    let public = fs::read_to_string(case.path("host.pub")).expect("the host's key");
    fs::write(case.path("known"), format!("[{host}]:{port} {public}")).expect("the known hosts");
    let config = case.path("sshd_config");
    let at = before_port(host);
    let text = format!(
        "ListenAddress {at}:{port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\nUseDNS no\n\
         PermitRootLogin yes\nPasswordAuthentication no\nSubsystem sftp internal-sftp\n",
        case.path("host").display(),
        case.path("user.pub").display()
    );
    fs::write(&config, text).expect("the configuration");
    fs::create_dir_all(PRIVILEGE_SEPARATION).expect("sshd's own directory");
    (sshd.args("-D -e -f").arg(config).serve(port), port)
}

fn ssh(case: &Case, preloaded: Option<Side>, port: u16) -> Launch<'_> {
    let launch = preloaded.map_or_else(|| case.program("ssh"), |side| case.client(side, "ssh"));
    ask_at(LOCAL, case, launch, port)
}

/// The same, for a server that is found at `host`.
pub(crate) fn ask_at<'c>(host: &str, case: &Case, ssh: Launch<'c>, port: u16) -> Launch<'c> {
    options(case, ssh.args(&format!("-p {port}"))).arg(host)
}

fn options<'c>(case: &Case, launch: Launch<'c>) -> Launch<'c> {
    let known = format!("-oUserKnownHostsFile={}", case.path("known").display());
    launch.args(OPTIONS).arg("-i").arg(case.path("user")).arg(known)
}

/// What sshd wrote to standard error until its end.
pub(crate) fn stop(server: Running) -> String {
    server.signal(Signal::TERM);
    server.wait().stderr
}

/// The server was offloaded, or said why not.
fn end(case: Case, server: Running) {
    let said = stop(server);
    if case.world() == World::Ringway {
        let carried = case.reports().iter().any(|r| r.program == "sshd" && r.ring.rx_bytes > 0);
        assert!(carried || said.contains("not offloading (prefork-server): sshd"), "neither offloaded nor said why not:\n{said}");
    }
    case.done();
}
