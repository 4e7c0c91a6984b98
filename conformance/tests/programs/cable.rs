//! Real programs at the two ends of a cable: those that serve on Ringway's interface, those that ask, and both, and the kernel at the other end, where one of them
//! is not. They get what they would get of the kernel at both.

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Cable, Case, End, Launch, PATIENCE, PYTHON, World, eventually, free_port, library, script_path};
use crate::{http, iperf3, nginx, redis, ssh};

/// Whether who serves is on Ringway, and who asks.
const WAYS: [[bool; 2]; 3] = [[true, false], [false, true], [true, true]];

/// A case on a cable.
struct Ends<'c> {
    case: &'c Case,
    cable: &'c Cable,
    ringway: [bool; 2],
}

/// Runs a case each way. Of the programs that are on Ringway, each moves so many bytes by its rings; none of `shared`, whose connections are the kernel's.
fn each_way(name: &str, bytes: u64, shared: &[&str], test: impl Fn(&Ends<'_>) -> Vec<&'static str>) {
    for ringway in WAYS {
        let case = Case::new(name);
        let cable = Cable::lay();
        let programs = test(&Ends { case: &case, cable: &cable, ringway });
        cable.is_bare();
        if case.world() == World::Ringway {
            let reports = case.reports();
            let [serves, asks] = ringway;
            for (program, _) in programs.iter().zip([serves, asks]).filter(|(program, is_on)| *is_on && !shared.contains(program)) {
                let mine =
                    reports.iter().filter(|report| program.starts_with(report.program.as_str()) || report.program.starts_with(program));
                let moved: u64 = mine.map(|report| report.ring.rx_bytes + report.ring.tx_bytes).sum();
                assert!(moved >= bytes, "{program} moved {moved} bytes by its rings, of {bytes} ({ringway:?}): {reports:#?}");
            }
        }
        case.done();
    }
}

impl<'c> Ends<'c> {
    fn on(&self, end: &'c End, is_on_ringway: bool, program: &str) -> Launch<'c> {
        let launch = self.case.plain(program).at(end);
        if !is_on_ringway || self.case.world() == World::Kernel {
            return launch;
        }
        let launch = launch.env("LD_PRELOAD", library()).env(ringway_report::STATS_FILE_ENV, self.case.path("report.%d"));
        launch.env("RINGWAY_DEVICE", format!("shm,xdp:{}", end.interface))
    }

    fn server(&self, program: &str) -> Launch<'c> {
        self.on(&self.cable.serves, self.ringway[0], program)
    }

    fn client(&self, program: &str) -> Launch<'c> {
        self.on(&self.cable.asks, self.ringway[1], program)
    }

    /// The server's address.
    fn host(&self) -> String {
        self.cable.serves.address.to_string()
    }
}

/// A file of a quarter of a gigabyte, by a server of one process, which accepts and sends it by sendfile(2).
#[test]
fn nginx_and_curl() {
    const SIZE: u64 = 256 << 20;
    each_way("cable-nginx", SIZE, &[], |ends| {
        let (case, port, host) = (ends.case, free_port(), ends.host());
        let server = nginx::start_at(&host, case, ends.server("nginx"), port, "master_process off;");
        let (file, copy) = (case.path("file"), case.path("copy"));
        http::fill(&file, SIZE);
        ends.client("curl").args(&format!("-sSf -o {} http://{host}:{port}/file", copy.display())).run();
        assert_eq!(http::digest(case, &copy), http::digest(case, &file));
        ends.client("curl").args(&format!("-sSf -Z --parallel-max 8 -o /dev/null http://{host}:{port}/small?[1-100]")).run();
        server.stop(Signal::QUIT);
        vec!["nginx", "curl"]
    });
}

/// A master that forks: its listener is the kernel's on interfaces.
#[test]
fn nginx_with_workers() {
    each_way("cable-workers", 1_000_000, &["nginx"], |ends| {
        let (port, host) = (free_port(), ends.host());
        let server = nginx::start_at(&host, ends.case, ends.server("nginx"), port, "worker_processes 2;");
        for _ in 0..3 {
            ends.client("curl").args(&format!("-sSf -Z --parallel-max 8 -o /dev/null http://{host}:{port}/small?[1-1000]")).run();
        }
        server.stop(Signal::QUIT);
        vec!["nginx", "curl"]
    });
}

#[test]
fn redis_and_its_benchmark() {
    each_way("cable-redis", 1_000_000, &[], |ends| {
        let (port, host) = (free_port(), ends.host());
        let server = ends.server("redis-server").args(&redis::options_at(&host, port)).serve(port);
        let benchmark = |options: &str| ends.client("redis-benchmark").args(&format!("-h {host} -p {port} {options} --csv")).run().stdout;
        redis::measured(&benchmark("-n 10000 -c 50 -d 100 -t set,get,lpush"), 3);
        redis::measured(&benchmark("-n 20000 -c 20 -P 16 -t set,get"), 2);
        server.stop(Signal::TERM);
        vec!["redis-server", "redis-benchmark"]
    });
}

#[test]
fn iperf3() {
    each_way("cable-iperf3", 1_000_000, &[], |ends| {
        for options in ["-t 1", "-t 1 -P 4", "-t 1 --bidir", "-t 1 -R"] {
            let bytes = iperf3::received(&measured(ends, options));
            assert!(bytes > 1_000_000, "{bytes} bytes in a second ({options})");
        }
        let answer = measured(ends, "-t 1 -u -b 20M -l 1400");
        let sum = &answer["end"]["sum"];
        let (sent, lost) = (sum["packets"].as_u64().expect("packets"), sum["lost_packets"].as_u64().expect("loss"));
        assert!(sent > 500 && lost < sent / 2, "{lost} lost of {sent}");
        vec!["iperf3", "iperf3"]
    });
}

fn measured(ends: &Ends<'_>, options: &str) -> Value {
    let (port, host) = (free_port(), ends.host());
    let server = ends.server("iperf3").args(&format!("-s -1 -p {port}")).serve(port);
    let answer = ends.client("iperf3").args(&format!("-c {host} -p {port} -J {options}")).run().stdout;
    server.finish();
    let answer: Value = serde_json::from_str(&answer).expect("iperf3's JSON");
    assert!(answer.get("error").is_none(), "{}", answer["error"]);
    answer
}

#[test]
fn socat_copies_a_file() {
    const SIZE: u64 = 32 << 20;
    each_way("cable-socat", SIZE, &[], |ends| {
        let (case, port, host) = (ends.case, free_port(), ends.host());
        let (file, copy) = (case.path("file"), case.path("copy"));
        http::fill(&file, SIZE);
        let server = ends.server("socat").args(&format!("-u TCP-LISTEN:{port},bind={host} CREATE:{}", copy.display())).serve(port);
        ends.client("socat").args(&format!("-u FILE:{} TCP:{host}:{port}", file.display())).run();
        server.finish();
        assert_eq!(http::digest(case, &copy), http::digest(case, &file));
        vec!["socat", "socat"]
    });
}

/// As inetd does: a connection that the kernel has is another program's standard input and output.
#[test]
fn socat_hands_connections_to_programs() {
    const SIZE: u64 = 2_000_000;
    each_way("cable-inetd", SIZE, &["socat"], |ends| {
        let (port, host) = (free_port(), ends.host());
        let server = ends.server("socat").args(&format!("TCP-LISTEN:{port},bind={host},fork EXEC:cat,nofork")).serve(port);
        for _ in 0..2 {
            let client = ends.client(PYTHON).arg(script_path("peer.py")).args(&format!("talk {port} {SIZE} {host}"));
            assert_eq!(client.run().stdout, "equal\n");
        }
        server.signal(Signal::TERM);
        server.wait();
        vec!["socat", "python3"]
    });
}

/// A datagram there, and its echo.
#[test]
fn socat_datagrams() {
    each_way("cable-datagrams", 4, &[], |ends| {
        let (case, port, host) = (ends.case, free_port(), ends.host());
        let question = case.path("question");
        std::fs::write(&question, "word").expect("the question");
        let server = ends.server("socat").args(&format!("UDP-LISTEN:{port},bind={host} PIPE")).serve(port);
        let mut client = ends.client("socat").args(&format!("-t 20 -,ignoreeof UDP:{host}:{port}")).stdin(&question).spawn();
        client.wait_said("word");
        client.signal(Signal::TERM);
        client.wait();
        server.signal(Signal::TERM);
        server.wait();
        vec!["socat", "socat"]
    });
}

/// Threads that serve, and threads that ask.
#[test]
fn python() {
    const SIZE: u64 = 5_000_000;
    each_way("cable-python", SIZE, &[], |ends| {
        let (port, host) = (free_port(), ends.host());
        let server = ends.server(PYTHON).arg(script_path("peer.py")).args(&format!("serve_echo {port} 4")).serve(port);
        let talk = || ends.client(PYTHON).arg(script_path("peer.py")).args(&format!("talk {port} {SIZE} {host}")).spawn();
        let clients: Vec<_> = (0..4).map(|_| talk()).collect();
        for client in clients {
            assert_eq!(client.finish().stdout, "equal\n");
        }
        server.finish();
        vec!["python3", "python3"]
    });
}

/// sshd hands each connection to a child, whose it is in the kernel.
#[test]
fn ssh_and_sshd() {
    each_way("cable-ssh", 1_000_000, &["sshd", "ssh"], |ends| {
        let (case, host) = (ends.case, ends.host());
        let file = case.path("file");
        http::fill(&file, 10_000_000);
        let (server, port) = ssh::start_at(&host, case, ends.server("/usr/sbin/sshd"));
        let ask = |command: &str| ssh::ask_at(&host, case, ends.client("ssh"), port).arg(command);
        assert_eq!(ask("echo answer").run().stdout, "answer\n");
        let answer = ask("cat | sha256sum").stdin(&file).run();
        assert_eq!(answer.stdout.split(' ').next(), Some(http::digest(case, &file).as_str()));
        server.signal(Signal::TERM);
        server.wait();
        vec!["sshd", "ssh"]
    });
}

/// A server that is killed, by far the most frequent end that is none in order: its clients hear of it, though they only wait.
#[test]
fn who_subscribed_hears_of_a_killed_server() {
    each_way("cable-killed", 4, &["redis-server"], |ends| {
        let (port, host) = (free_port(), ends.host());
        let server = ends.server("redis-server").args(&redis::options_at(&host, port)).serve(port);
        let mut subscribers: Vec<_> =
            (0..4).map(|_| ends.client("redis-cli").args(&format!("-h {host} -p {port} subscribe news")).spawn()).collect();
        subscribers.iter_mut().for_each(|subscriber| subscriber.wait_said("subscribe"));
        server.signal(Signal::KILL);
        server.wait();
        // redis-cli says that the connection is lost, and connects again, which is refused now.
        for subscriber in &mut subscribers {
            eventually("a subscriber hears of the end", PATIENCE, || {
                subscriber.stderr().contains("refused") || subscriber.stdout().contains("refused")
            });
        }
        for subscriber in subscribers {
            subscriber.signal(Signal::TERM);
            subscriber.wait();
        }
        vec!["redis-server", "redis-cli"]
    });
}
