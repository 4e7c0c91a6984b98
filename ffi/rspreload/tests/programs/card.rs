//! On a ConnectX (RINGWAY_DEVICE=mlx5:NAME): the software one, preloaded below the library, on a bus of each test's own. Its processes are this machine's, at the loopback.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{FORK_SAFE, Server, kill_below_timeout, library, succeeds};

/// The card.
pub(crate) fn card() -> PathBuf {
    let card = library().with_file_name("libringway_connectx.so");
    assert!(card.exists(), "{} is built with ringway-uverbs", card.display());
    card
}

/// What has a program's rsockets on a card of that bus, after these of the environment.
fn on_card<'a>(bus: &'a str, others: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [&[("RINGWAY_DEVICE", "mlx5:mlx5_0"), ("RINGWAY_CONNECTX_BUS", bus)], others].concat()
}

fn bus(name: &str) -> String {
    format!("rspreload-{name}-{}", std::process::id())
}

/// Clients of a server of that kind, by these of their ways, each of which is one that it accepts or more.
fn clients(mode: &str, count: u32, ways: &[&str]) {
    let bus = bus(mode);
    let environment = on_card(&bus, &[]);
    let server = Server::start(mode, count, true, &environment);
    ways.iter().for_each(|way| succeeds(server.client(way, "rsocket", true, &environment)));
    server.ends();
}

#[test]
fn echo_by_poll_select_epoll_and_its_edges() {
    for mode in ["poll", "select", "epoll", "edges"] {
        clients(mode, 4, &["several"]);
    }
}

/// (`numbers` is not among them: it closes all descriptors from 100 on, and with them libibverbs' own.)
#[test]
fn threads_and_signals() {
    clients("poll", 2, &["threads", "signals"]);
}

#[test]
fn peers_without_the_library_are_reached_by_tcp() {
    let bus = bus("tcp");
    let environment = on_card(&bus, &[]);
    let server = Server::start("edges", 4, false, &[]);
    succeeds(server.client("several", "tcp", true, &environment));
    server.ends();
    let server = Server::start("poll", 5, true, &environment);
    succeeds(server.client("several", "tcp", false, &[]));
    succeeds(server.client("plain", "rsocket", true, &environment));
    server.ends();
    // Datagrams are the kernel's.
    let server = Server::start("datagrams", 1, true, &environment);
    succeeds(server.client("datagrams", "tcp", true, &environment));
    server.ends();
}

#[test]
fn whoever_forks_goes_on_listening() {
    let bus = bus("forks");
    let environment = on_card(&bus, &[]);
    let mut server = Server::start("forks", 2, true, &environment);
    assert_eq!(server.line(), "ready");
    succeeds(server.client("plain", "rsocket", true, &environment));
    succeeds(server.client("plain", "tcp", false, &[]));
    server.ends();
}

/// With RDMAV_FORK_SAFE, connections are the kernel's: the child that uses one, or the program that it executes, has them.
#[test]
fn connections_of_processes_that_fork_stay_the_kernels() {
    let bus = bus("safe");
    let environment = on_card(&bus, FORK_SAFE);
    for (mode, count, way) in [("fork", 3, "three"), ("exec", 1, "plain")] {
        let server = Server::start(mode, count, true, &environment);
        succeeds(server.client(way, "tcp", true, &environment));
        server.ends();
    }
}

/// Fault: the server is killed while clients wait for it.
#[test]
fn a_server_that_is_killed_ends_its_clients_waits() {
    let bus = bus("killed");
    let environment = on_card(&bus, &[]);
    let mut server = Server::start("silent", 3, true, &environment);
    let mut client = server.client("waits", "rsocket", true, &environment).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    BufReader::new(client.stdout.take().expect("a pipe")).read_line(&mut line).expect("a pipe");
    assert_eq!((line.trim(), server.line().as_str()), ("waiting", "full"));
    kill_below_timeout(&server.child);
    assert!(client.wait().expect("it was started").success(), "the client");
    let _ = server.child.wait();
}

/// Lines of sh(1), in a network namespace of their own where nobody else's segments are counted: `preload` goes on as a program with the library on the card, `listens` waits for who listens at a
/// port (four digits of base 16), and `few` fails if the kernel's TCP has carried more than a few segments so far.
fn in_namespace(name: &str, lines: &str) {
    const HELPERS: &str = r#"
        ip link set lo up
        preload() { exec env LD_PRELOAD="$LIBRARIES" timeout 100 "$@"; }
        listens() { for look in $(seq 500); do if grep -q "^ *[0-9]*: [0-9A-F]*:$1 .* 0A " /proc/net/tcp; then return 0; fi; sleep 0.1; done; echo "nobody listens"; exit 1; }
        few() { sent=$(awk '/^Tcp:/ && n++ { print $12 }' /proc/net/snmp); if [ "$sent" -gt 40 ]; then echo "$sent segments by TCP"; exit 1; fi; }
    "#;
    let ways: [&[&str]; 2] = [&["-n"], &["-rn"]];
    let is_there = |way: &&&[&str]| Command::new("unshare").args(**way).arg("true").status().is_ok_and(|status| status.success());
    let Some(way) = ways.iter().find(is_there) else {
        assert!(std::env::var_os("CI").is_none(), "no network namespaces are to be had");
        return eprintln!("left out: {name} needs a network namespace");
    };
    let mut command = Command::new("unshare");
    command.args(*way).args(["timeout", "150", "sh", "-euc", &format!("{HELPERS}{lines}")]);
    command.env("LIBRARIES", format!("{}:{}", card().display(), library().display()));
    command.env("RSPRELOAD_CONFIG", "/dev/null").env_remove("RDMAV_FORK_SAFE").envs(on_card(&bus(name), &[]));
    let output = command.output().expect("unshare(1) is part of util-linux");
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{name}: {:?}\n{said}", output.status);
}

#[test]
fn sockperf_checks_its_bytes() {
    in_namespace(
        "sockperf",
        r#"
        preload sockperf server --tcp -i 127.0.0.1 -p 8002 &
        listens 1F42
        (preload sockperf ping-pong --tcp -i 127.0.0.1 -p 8002 -t 2 -m 1400 --data-integrity)
        few
        kill "$!"
        "#,
    );
}

/// More connections than a card has queue pairs, and than queues of Unix sockets have room for. (One may be refused as an rsocket, and is TCP then: a client's queue pair may, by
/// chance, have the number of another one's before it, whose time of waiting is not over.)
#[test]
fn curl_gets_all_of_a_file_from_pythons_web_server_each_time() {
    in_namespace(
        "curl",
        r#"
        folder=$(mktemp -d)
        trap 'rm -r "$folder"' EXIT
        head -c 300000 /dev/urandom >"$folder/file"
        preload /usr/bin/python3 -m http.server 8003 --bind 127.0.0.1 --directory "$folder" >"$folder/log" 2>&1 &
        server=$!
        listens 1F43
        get() { (preload curl -sSf --max-time 30 -o "$folder/$1" http://127.0.0.1:8003/file) && cmp "$folder/file" "$folder/$1" && rm "$folder/$1"; }
        for turn in $(seq 100); do
            get a & first=$!
            get b & second=$!
            get c & third=$!
            wait $first && wait $second && wait $third || { tail -n 30 "$folder/log"; exit 1; }
        done
        sent=$(awk '/^Tcp:/ && n++ { print $12 }' /proc/net/snmp)
        if [ "$sent" -gt 2000 ]; then echo "$sent segments by TCP"; exit 1; fi
        kill "$server"
        "#,
    );
}

/// The program is executed in a child, and socat goes on with the connection.
#[test]
fn what_socat_executes_gets_its_bytes() {
    in_namespace(
        "socat",
        r#"
        folder=$(mktemp -d)
        trap 'rm -r "$folder"' EXIT
        head -c 3000000 /dev/urandom >"$folder/in"
        for how in EXEC:cat EXEC:cat,pipes 'SYSTEM:cat'; do
            preload socat TCP-LISTEN:8004,bind=127.0.0.1,reuseaddr "$how" &
            listens 1F44
            (preload socat -t 60 - TCP:127.0.0.1:8004 <"$folder/in" >"$folder/out")
            cmp "$folder/in" "$folder/out"
            wait
        done
        few
        "#,
    );
}
