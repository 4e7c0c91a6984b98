//! PostgreSQL, whose backends are forked for each connection and go on with it alone, with psql and pgbench.
//!
//! It refuses to be root's. In a user namespace of its own it is somebody else's, whoever runs the tests.

use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::harness::{Case, Launch, Output, PATIENCE, Running, eventually, free_port};

/// Where the server is found, unless a case says something else.
const LOCAL: &str = "127.0.0.1";

/// A query's answer: rows of a thousand bytes.
const ROWS: u64 = 5_000;
const ROUNDS: u64 = 4;
/// What goes either way in all: the same rows, by COPY.
const BYTES: u64 = 2 * ROUNDS * ROWS * 1_000;

#[test]
fn query() {
    let case = Case::new("postgres-query");
    let (server, port) = start(&case);
    for round in 0..ROUNDS {
        rows_there_and_back(&case, round, &|command| psql(&case, port, command));
    }
    server.stop(Signal::INT);
    // A quarter of the connections is enough: a child that is early by more than its parent is late has the kernel's.
    case.inherited(&["postgres"], BYTES / 2, BYTES / 65_483);
}

/// Rows that are read, and written into a table.
pub(crate) fn rows_there_and_back<'c>(case: &'c Case, round: u64, psql: &dyn Fn(&str) -> Launch<'c>) {
    let rows = case.path("rows");
    let text =
        format!("select string_agg(md5((r * 32 + c)::text), '') from generate_series(1, {ROWS}) r, generate_series(1, 31) c group by r");
    let told = psql(&format!("copy ({text} order by r) to stdout")).run().stdout;
    assert_eq!(told.lines().count() as u64, ROWS);
    std::fs::write(&rows, &told).expect("the rows");
    psql(&format!("create table t{round} (row text)")).run();
    psql(&format!("copy t{round} from stdin")).stdin(&rows).run();
    let hash = format!("select md5(string_agg(row, e'\\n') || e'\\n'), count(*) from t{round}");
    let expected = case.plain("md5sum").arg(&rows).run().stdout;
    let answer = psql(&hash).run().stdout;
    assert_eq!(answer, format!("{}|{ROWS}\n", expected.split(' ').next().expect("a digest")));
}

/// Clients that stay, and clients with a connection for each transaction.
#[test]
fn many_clients() {
    let case = Case::new("postgres-many");
    let (server, port) = start(&case);
    transactions([500, 50], &|| client(&case, port, "pgbench"), &|command| psql(&case, port, command));
    server.stop(Signal::INT);
    case.inherited(&["postgres"], 1_000_000, 8_000);
}

/// So many transactions of each of eight clients that stay, and of each of four with a connection for each transaction.
pub(crate) fn transactions<'c>([each, again]: [u32; 2], pgbench: &dyn Fn() -> Launch<'c>, psql: &dyn Fn(&str) -> Launch<'c>) {
    let bench = |args: &str| -> Output { pgbench().args(args).arg("postgres").run() };
    bench("-q -i");
    for (args, count) in [(format!("-S -c 8 -j 2 -t {each}"), 8 * each), (format!("-C -c 4 -t {again}"), 4 * again)] {
        let answer = bench(&args).stdout;
        assert!(answer.contains(&format!("actually processed: {count}/{count}\n")), "{answer}");
        assert!(answer.contains("number of failed transactions: 0 "), "{answer}");
    }
    let sum =
        "select sum(abalance) = (select sum(delta) from pgbench_history), (select count(*) from pgbench_history) from pgbench_accounts";
    assert_eq!(psql(sum).run().stdout, format!("t|{}\n", 4 * again));
}

/// Debian has its programs in a directory of its version, and only some of them in PATH.
pub(crate) fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut paths = versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.is_file());
    paths.next().unwrap_or_else(|| Path::new(name).to_path_buf())
}

/// Not as root.
fn as_somebody<'a>(launch: Launch<'a>, name: &str) -> Launch<'a> {
    launch.args("--user --map-user=1000 --map-group=1000").arg(program(name))
}

/// Not as root, but with what it takes to have an interface, which nobody has in a user namespace of their own; and with root's access to files.
pub(crate) fn with_capabilities<'a>(setpriv: Launch<'a>, name: &str) -> Launch<'a> {
    const KEPT: &str = "+net_admin,+net_raw,+bpf,+dac_override";
    setpriv.args(&format!("--reuid=1000 --regid=1000 --clear-groups --inh-caps={KEPT} --ambient-caps={KEPT}")).arg(program(name))
}

fn start(case: &Case) -> (Running, u16) {
    start_at(LOCAL, case, as_somebody(case.plain("unshare"), "initdb"), as_somebody(case.program("unshare"), "postgres"))
}

/// A server that is found at `host`.
pub(crate) fn start_at(host: &str, case: &Case, initdb: Launch<'_>, postgres: Launch<'_>) -> (Running, u16) {
    let (data, port) = (case.path("data"), free_port());
    let rules = format!("host all all {host}/{} trust\n", if host.contains(':') { 64 } else { 24 });
    initdb.args("--no-sync -A trust -U ringway -E SQL_ASCII --no-locale -D").arg(&data).run();
    let known = data.join("pg_hba.conf");
    let before = std::fs::read_to_string(&known).expect("who may connect");
    std::fs::write(&known, before + &rules).expect("the same, and the other end of a cable");
    let settings = "-c unix_socket_directories= -c fsync=off -c max_connections=20 -c shared_buffers=16MB";
    let server = postgres.arg("-D").arg(&data).args(&format!("-p {port} -c listen_addresses={host} {settings}"));
    let server = server.serve(port);
    // (It listens before that, and refuses.)
    eventually("the database is ready", PATIENCE, || {
        std::fs::read_to_string(data.join("postmaster.pid")).is_ok_and(|file| file.lines().any(|line| line.trim() == "ready"))
    });
    (server, port)
}

fn client<'a>(case: &'a Case, port: u16, name: &str) -> Launch<'a> {
    of(LOCAL, as_somebody(case.program("unshare"), name), port)
}

fn psql<'a>(case: &'a Case, port: u16, command: &str) -> Launch<'a> {
    asks(client(case, port, "psql"), command)
}

/// A client of a server that is found at `host`.
pub(crate) fn of<'a>(host: &str, client: Launch<'a>, port: u16) -> Launch<'a> {
    client.args(&format!("-h {host} -U ringway -p {port}"))
}

/// psql that asks that.
pub(crate) fn asks<'a>(psql: Launch<'a>, command: &str) -> Launch<'a> {
    psql.args("-X -q -A -t -v ON_ERROR_STOP=1 -d postgres -c").arg(command)
}
