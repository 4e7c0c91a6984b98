//! C programs that know nothing of rsockets, with the library preloaded on both ends, or on one. Each says whether an rsocket carries it.

mod card;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// What ends a program that hangs.
const TIMEOUT_S: &str = "60";

/// The library that this build made.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let library = test.parent().expect("target/<profile>/deps/<test>").join("librspreload.so");
    assert!(library.exists(), "librspreload.so is built with its tests");
    library
}

/// Both programs, compiled.
fn programs() -> &'static [PathBuf; 2] {
    static PROGRAMS: OnceLock<[PathBuf; 2]> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        ["server", "client"].map(|name| {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(format!("{name}.c"));
            let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rspreload-{name}"));
            let mut gcc = Command::new("gcc");
            gcc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]).arg(source).arg("-o").arg(&program);
            assert!(gcc.status().expect("gcc must be installed").success(), "{name}.c does not compile");
            program
        })
    })
}

/// A program, with the library if `is_preloaded`, and with these of the environment: below it is the software ConnectX, if they name its bus.
fn command(program: &Path, is_preloaded: bool, environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new("timeout");
    command.arg(TIMEOUT_S);
    if is_preloaded {
        // (timeout(1) itself has no use for it.)
        let is_on_card = environment.iter().any(|(name, _)| *name == "RINGWAY_CONNECTX_BUS");
        let card = if is_on_card { format!("{}:", card::card().display()) } else { String::new() };
        command.arg("env").arg(format!("LD_PRELOAD={card}{}", library().display()));
    }
    command.arg(program).env("RSPRELOAD_CONFIG", "/dev/null").env_remove("RDMAV_FORK_SAFE").envs(environment.iter().copied());
    command
}

struct Server {
    child: Child,
    lines: BufReader<ChildStdout>,
    port: String,
}

impl Server {
    fn start(mode: &str, count: u32, is_preloaded: bool, environment: &[(&str, &str)]) -> Self {
        let mut command = command(&programs()[0], is_preloaded, environment);
        let mut child = command.args([mode, &count.to_string()]).stdout(Stdio::piped()).stdin(Stdio::piped()).spawn().expect("it runs");
        let lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut server = Self { child, lines, port: String::new() };
        server.port = server.line();
        server
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a pipe");
        line.trim().to_owned()
    }

    fn client(&self, mode: &str, carrier: &str, is_preloaded: bool, environment: &[(&str, &str)]) -> Command {
        let mut command = command(&programs()[1], is_preloaded, environment);
        // (What fails says why.)
        command.args([mode, &self.port, carrier]).env("RSPRELOAD_LOG", "debug");
        command
    }

    fn ends(mut self) {
        assert!(self.child.wait().expect("it was started").success(), "the server");
    }
}

fn succeeds(mut client: Command) {
    let output = client.output().expect("timeout(1) is part of coreutils");
    assert!(output.status.success(), "{client:?}: {:?}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
}

const FORK_SAFE: &[(&str, &str)] = &[("RDMAV_FORK_SAFE", "1")];

/// Clients of a server of that kind, on both ends of which the library is.
fn several_by(mode: &str) {
    let server = Server::start(mode, 4, true, &[]);
    succeeds(server.client("several", "rsocket", true, &[]));
    server.ends();
}

#[test]
fn echo_by_poll() {
    several_by("poll");
}

#[test]
fn echo_by_select() {
    several_by("select");
}

#[test]
fn echo_by_epoll() {
    several_by("epoll");
}

#[test]
fn echo_by_the_edges_of_epoll() {
    several_by("edges");
}

#[test]
fn numbers_flags_and_files() {
    let server = Server::start("poll", 1, true, &[]);
    succeeds(server.client("numbers", "rsocket", true, &[]));
    server.ends();
}

#[test]
fn threads_wait_for_each_other() {
    let server = Server::start("poll", 1, true, &[]);
    succeeds(server.client("threads", "rsocket", true, &[]));
    server.ends();
}

#[test]
fn handlers_of_signals() {
    let server = Server::start("poll", 1, true, &[]);
    succeeds(server.client("signals", "rsocket", true, &[]));
    server.ends();
}

/// All of what rsockets do is what the kernel's sockets do: the same program without the library.
#[test]
fn the_kernel_agrees() {
    let server = Server::start("edges", 7, false, &[]);
    succeeds(server.client("several", "tcp", false, &[]));
    succeeds(server.client("numbers", "tcp", false, &[]));
    succeeds(server.client("threads", "tcp", false, &[]));
    succeeds(server.client("signals", "tcp", false, &[]));
    server.ends();
}

#[test]
fn peers_without_the_library_are_reached_by_tcp() {
    let server = Server::start("edges", 6, false, &[]);
    succeeds(server.client("several", "tcp", true, &[]));
    succeeds(server.client("numbers", "tcp", true, &[]));
    succeeds(server.client("threads", "tcp", true, &[]));
    server.ends();
    for mode in ["edges", "poll", "select"] {
        let server = Server::start(mode, 9, true, &[]);
        succeeds(server.client("several", "tcp", false, &[]));
        succeeds(server.client("plain", "rsocket", true, &[]));
        succeeds(server.client("several", "tcp", false, &[]));
        server.ends();
    }
}

#[test]
fn processes_that_fork_use_connections_in_their_children() {
    let server = Server::start("fork", 3, true, FORK_SAFE);
    succeeds(server.client("three", "rsocket", true, FORK_SAFE));
    server.ends();
    let server = Server::start("edges", 6, true, FORK_SAFE);
    succeeds(server.client("numbers", "rsocket", true, FORK_SAFE));
    succeeds(server.client("several", "rsocket", true, FORK_SAFE));
    succeeds(server.client("plain", "tcp", false, &[]));
    server.ends();
    // On one side alone: by TCP, or as an rsocket at once.
    let server = Server::start("fork", 2, true, FORK_SAFE);
    succeeds(server.client("plain", "tcp", true, &[]));
    succeeds(server.client("plain", "tcp", false, &[]));
    server.ends();
    // (Clients that do not wait have begun with an rsocket, which nobody accepts.)
    let server = Server::start("fork", 4, true, FORK_SAFE);
    succeeds(server.client("several", "tcp", true, &[]));
    server.ends();
    let server = Server::start("edges", 5, true, &[]);
    succeeds(server.client("plain", "rsocket", true, FORK_SAFE));
    succeeds(server.client("several", "rsocket", true, FORK_SAFE));
    server.ends();
    let server = Server::start("fork", 1, false, &[]);
    succeeds(server.client("plain", "tcp", true, FORK_SAFE));
    server.ends();
}

#[test]
fn connections_stay_the_kernels_for_a_program_that_is_executed() {
    let server = Server::start("exec", 1, true, FORK_SAFE);
    succeeds(server.client("plain", "tcp", true, FORK_SAFE));
    server.ends();
}

#[test]
fn whoever_forks_goes_on_listening() {
    let mut server = Server::start("forks", 2, true, &[]);
    assert_eq!(server.line(), "ready");
    succeeds(server.client("plain", "rsocket", true, &[]));
    succeeds(server.client("plain", "tcp", false, &[]));
    server.ends();
}

#[test]
fn preload_config_names_programs_and_sockets() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload_config");
    let server = Server::start("poll", 3, true, &[]);
    let client = |text: &str, carrier| {
        std::fs::write(&file, text).expect("a file");
        let path = file.to_string_lossy();
        succeeds(server.client("plain", carrier, true, &[("RSPRELOAD_CONFIG", &path)]));
    };
    client("# nothing but this\n", "rsocket");
    client("other * * *\nrspreload-client INET DGRAM *\n", "tcp");
    client("RSPRELOAD AF_INET SOCK_STREAM IPPROTO_TCP\n", "rsocket");
    server.ends();
}

#[test]
fn datagrams_between_both_worlds() {
    let server = Server::start("datagrams", 2, true, &[]);
    succeeds(server.client("datagrams", "rsocket", true, &[]));
    succeeds(server.client("datagrams", "tcp", false, &[]));
    server.ends();
    let server = Server::start("datagrams", 1, false, &[]);
    succeeds(server.client("datagrams", "tcp", true, &[]));
    server.ends();
}

/// What timeout(1) has started.
fn below_timeout(timeout: &Child) -> String {
    let id = timeout.id();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("its id");
    children.trim().to_owned()
}

fn signal_below_timeout(timeout: &Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &below_timeout(timeout)]).status().expect("kill(1)").success());
}

fn kill_below_timeout(timeout: &Child) {
    signal_below_timeout(timeout, "-KILL");
}

/// Fault: a client does not answer when the server's child asks whether it waits for word of an rsocket. It does, and hears the stream's first bytes all the same.
#[test]
fn a_client_that_is_stopped_loses_nothing_of_what_a_child_says_first() {
    let mut server = Server::start("greets", 1, true, FORK_SAFE);
    let mut client = server.client("stopped", "tcp", true, FORK_SAFE).spawn().expect("it runs");
    let is_stopped = |client: &Child| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", below_timeout(client))).unwrap_or_default();
        stat.contains(") T ")
    };
    while !is_stopped(&client) {
        assert!(client.try_wait().expect("it was started").is_none(), "it has ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    server.child.stdin.as_mut().expect("a pipe").write_all(b"\n").expect("it reads");
    assert_eq!(server.line(), "greeted");
    signal_below_timeout(&client, "-CONT");
    assert!(client.wait().expect("it was started").success(), "the client");
    server.ends();
}

/// Fault: the server is killed while clients wait for it.
#[test]
fn a_server_that_is_killed_ends_its_clients_waits() {
    let mut server = Server::start("silent", 3, true, &[]);
    let mut client = server.client("waits", "rsocket", true, &[]).stdout(Stdio::piped()).spawn().expect("it runs");
    let mut line = String::new();
    BufReader::new(client.stdout.take().expect("a pipe")).read_line(&mut line).expect("a pipe");
    assert_eq!((line.trim(), server.line().as_str()), ("waiting", "full"));
    kill_below_timeout(&server.child);
    assert!(client.wait().expect("it was started").success(), "the client");
    let _ = server.child.wait();
}
