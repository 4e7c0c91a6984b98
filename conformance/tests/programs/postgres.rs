//! PostgreSQL, whose backends are forked for each connection and go on with it alone, with psql and pgbench.
//!
//! It refuses to be root's. In a user namespace of its own it is somebody else's, whoever runs the tests.

use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::harness::{Case, Launch, Output, Running, free_port};

/// A query's answer: rows of a thousand bytes.
const ROWS: u64 = 5_000;
const ROUNDS: u64 = 4;
/// What goes either way in all: the same rows, by COPY.
const BYTES: u64 = 2 * ROUNDS * ROWS * 1_000;

#[test]
fn query() {
    let case = Case::new("postgres-query");
    let (server, port) = start(&case);
    let rows = case.path("rows");
    let text =
        format!("select string_agg(md5((r * 32 + c)::text), '') from generate_series(1, {ROWS}) r, generate_series(1, 31) c group by r");
    for round in 0..ROUNDS {
        let told = psql(&case, port, &format!("copy ({text} order by r) to stdout")).run().stdout;
        assert_eq!(told.lines().count() as u64, ROWS);
        std::fs::write(&rows, &told).expect("the rows");
        psql(&case, port, &format!("create table t{round} (row text)")).run();
        psql(&case, port, &format!("copy t{round} from stdin")).stdin(&rows).run();
        let hash = format!("select md5(string_agg(row, e'\\n') || e'\\n'), count(*) from t{round}");
        let expected = case.plain("md5sum").arg(&rows).run().stdout;
        let answer = psql(&case, port, &hash).run().stdout;
        assert_eq!(answer, format!("{}|{ROWS}\n", expected.split(' ').next().expect("a digest")));
    }
    server.stop(Signal::INT);
    // A quarter of the connections is enough: a child that is early by more than its parent is late has the kernel's.
    case.inherited(&["postgres"], BYTES / 2, BYTES / 65_483);
}

/// Clients that stay, and clients with a connection for each transaction.
#[test]
fn many_clients() {
    let case = Case::new("postgres-many");
    let (server, port) = start(&case);
    let bench = |args: &str| -> Output { client(&case, port, "pgbench").args(args).arg("postgres").run() };
    bench("-q -i");
    for (args, count) in [("-S -c 8 -j 2 -t 500", 4000), ("-C -c 4 -t 50", 200)] {
        let answer = bench(args).stdout;
        assert!(answer.contains(&format!("actually processed: {count}/{count}\n")), "{answer}");
        assert!(answer.contains("number of failed transactions: 0 "), "{answer}");
    }
    let sum =
        "select sum(abalance) = (select sum(delta) from pgbench_history), (select count(*) from pgbench_history) from pgbench_accounts";
    assert_eq!(psql(&case, port, sum).run().stdout, "t|200\n");
    server.stop(Signal::INT);
    case.inherited(&["postgres"], 1_000_000, 8_000);
}

/// Debian has its programs in a directory of its version, and only some of them in PATH.
fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut paths = versions.map(|version| version.path().join("bin").join(name)).filter(|path| path.is_file());
    paths.next().unwrap_or_else(|| Path::new(name).to_path_buf())
}

/// Not as root.
fn as_somebody<'a>(launch: Launch<'a>, name: &str) -> Launch<'a> {
    launch.args("--user --map-user=1000 --map-group=1000").arg(program(name))
}

fn start(case: &Case) -> (Running, u16) {
    let (data, port) = (case.path("data"), free_port());
    as_somebody(case.plain("unshare"), "initdb").args("--no-sync -A trust -U ringway -E SQL_ASCII --no-locale -D").arg(&data).run();
    let server = as_somebody(case.program("unshare"), "postgres").arg("-D").arg(&data).args(&format!("-p {port}"));
    let settings = "-c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off -c max_connections=20 -c shared_buffers=16MB";
    (server.args(settings).serve(port), port)
}

fn client<'a>(case: &'a Case, port: u16, name: &str) -> Launch<'a> {
    as_somebody(case.program("unshare"), name).args(&format!("-h 127.0.0.1 -U ringway -p {port}"))
}

fn psql<'a>(case: &'a Case, port: u16, command: &str) -> Launch<'a> {
    client(case, port, "psql").args("-X -q -A -t -v ON_ERROR_STOP=1 -d postgres -c").arg(command)
}
