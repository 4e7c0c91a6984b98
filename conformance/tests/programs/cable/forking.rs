//! Servers that hand what they accept to another process, and those who ask them. A connection that a process accepted before it forked for the first time is on its
//! ring, and leaves for the kernel when the other process uses it; what comes after that is the kernel's from the beginning.

use rustix::process::Signal;

use super::{Ends, a_few_ways, each_way};
use crate::harness::{Launch, PYTHON, Running, free_port, script_path};
use crate::{git, http, inetd, postgres, ssh};

/// Bytes there, and back again.
pub(super) const SIZE: u64 = 2_000_000;

/// The connection is another program's standard input and output.
#[test]
fn inetd() {
    each_way("cable-inetd", SIZE, &[(inetd::INETD, 1)], inetd_asked);
}

pub(super) fn inetd_asked(ends: &Ends<'_>) -> [&'static str; 2] {
    let (case, port, host) = (ends.case, free_port(), ends.host());
    let protocol = if ends.is_v6 { "tcp6" } else { "tcp" };
    let server = inetd::start(case, ends.server(inetd::INETD), &inetd::cats(&format!("{host}:{port}"), protocol), port);
    for _ in 0..3 {
        let client = ends.client(PYTHON).arg(script_path("peer.py")).args(&format!("talk {port} {SIZE} {host}"));
        assert_eq!(client.run().stdout, "equal\n");
    }
    ends.ask_who_serves();
    inetd::stop(server);
    [inetd::INETD, "python3"]
}

/// The same by socat, which becomes the program.
#[test]
fn socat() {
    each_way("cable-socat-forks", SIZE, &[("socat", 1)], forking_socat_asked);
}

pub(super) fn forking_socat_asked(ends: &Ends<'_>) -> [&'static str; 2] {
    let (port, host, at, v) = (free_port(), ends.host(), ends.authority(), ends.version());
    let server = ends.server("socat").args(&format!("TCP{v}-LISTEN:{port},bind={at},fork EXEC:cat,nofork")).serve(port);
    for _ in 0..2 {
        let client = ends.client(PYTHON).arg(script_path("peer.py")).args(&format!("talk {port} {SIZE} {host}"));
        assert_eq!(client.run().stdout, "equal\n");
    }
    server.signal(Signal::TERM);
    server.wait();
    ["socat", "python3"]
}

/// The daemon starts a program for each connection, and so do those who ask, which keeps it open.
#[test]
fn git() {
    a_few_ways("cable-git", 0, &[("git", 1)], git_exchanged);
}

pub(super) fn git_exchanged(ends: &Ends<'_>) -> [&'static str; 2] {
    let daemon = git::exchange(ends.case, &ends.host(), SIZE, &|program| ends.server(program), &|program| ends.client(program));
    ends.ask_who_serves();
    git::stop(daemon);
    ["git", "git"]
}

/// It forks at once, for work of its own, so that all of its connections are the kernel's.
#[test]
fn postgres() {
    a_few_ways("cable-postgres", 10_000, &[("postgres", 0)], postgres_asked);
}

pub(super) fn postgres_asked(ends: &Ends<'_>) -> [&'static str; 2] {
    let (server, port) = ends.postgres();
    let psql = |command: &str| postgres::asks(ends.of_postgres("psql", port), command);
    postgres::rows_there_and_back(ends.case, 0, &psql);
    postgres::transactions([100, 10], &|| ends.of_postgres("pgbench", port), &psql);
    server.stop(Signal::INT);
    ["postgres", "psql"]
}

impl<'c> Ends<'c> {
    /// PostgreSQL's server, and its port.
    pub(super) fn postgres(&self) -> (Running, u16) {
        let initdb = postgres::with_capabilities(self.case.plain("setpriv"), "initdb");
        postgres::start_at(&self.host(), self.case, initdb, postgres::with_capabilities(self.server("setpriv"), "postgres"))
    }

    /// A client of it.
    pub(super) fn of_postgres(&self, name: &str, port: u16) -> Launch<'c> {
        postgres::of(&self.host(), self.client(postgres::program(name).to_str().expect("UTF-8")), port)
    }
}

/// sshd's children change their user, and enter a sandbox.
#[test]
fn ssh_and_scp() {
    a_few_ways("cable-ssh", SIZE, &[("sshd", 1)], ssh_asked);
}

pub(super) fn ssh_asked(ends: &Ends<'_>) -> [&'static str; 2] {
    let (case, host) = (ends.case, ends.host());
    let (server, port) = ssh::start_at(&host, case, ends.server("/usr/sbin/sshd"));
    let file = case.path("file");
    http::fill(&file, SIZE);
    let ask = |command: &str| ssh::ask_at(&host, case, ends.client("ssh"), port).arg(command);
    assert_eq!(ask("echo answer").run().stdout, "answer\n");
    let answer = ask("cat | sha256sum").stdin(&file).run();
    assert_eq!(answer.stdout.split(' ').next(), Some(http::digest(case, &file).as_str()));
    ssh::copy(&host, case, ends.client("scp"), port, 5 * SIZE);
    ssh::stop(server);
    ["sshd", "ssh"]
}

#[test]
fn rsync_by_ssh() {
    a_few_ways("cable-rsync-ssh", SIZE, &[("sshd", 1)], rsync_by_ssh_done);
}

pub(super) fn rsync_by_ssh_done(ends: &Ends<'_>) -> [&'static str; 2] {
    let (case, host) = (ends.case, ends.host());
    let (server, port) = ssh::start_at(&host, case, ends.server("/usr/sbin/sshd"));
    ssh::rsync_by_ssh(&host, case, &|| ends.client("rsync"), port, SIZE);
    ssh::stop(server);
    ["sshd", "ssh"]
}

/// The daemon forks for each connection, and who asks into a generator and a receiver, which share one.
#[test]
fn rsync_by_its_daemon() {
    a_few_ways("cable-rsync", 0, &[("rsync", 1)], rsync_by_daemon_done);
}

pub(super) fn rsync_by_daemon_done(ends: &Ends<'_>) -> [&'static str; 2] {
    ssh::rsync_by_its_daemon(&ends.host(), ends.case, ends.server("rsync"), &|| ends.client("rsync"), SIZE);
    ["rsync", "rsync"]
}
