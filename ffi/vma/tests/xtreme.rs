//! SocketXtreme from the outside: C programs with the library preloaded.

#[path = "extra/programs.rs"]
mod programs;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use programs::{compile, finds_nothing_wrong, library, run};

const ON: (&str, &str) = ("VMA_SOCKETXTREME", "1");

#[test]
fn completions_buffers_and_their_bad_inputs() {
    finds_nothing_wrong("xtreme", &[], &[ON]);
    finds_nothing_wrong("xtreme", &[], &[ON, ("VMA_API_LAYOUT", "9.2")]);
}

#[test]
fn without_the_parameter_there_are_rings_and_nothing_to_poll() {
    let output = run(&compile("tests/extra/xtreme.c"), &["off"], &[]);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout.is_empty(), "{}{log}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(log.matches("VMA_SOCKETXTREME=1").count(), 1, "{log}");
}

#[test]
fn rings_are_slept_on_and_shared_by_threads() {
    finds_nothing_wrong("xtreme_sleep", &[], &[ON]);
    finds_nothing_wrong("xtreme_sleep", &[], &[ON, ("VMA_SELECT_POLL", "0")]);
}

#[test]
fn sockets_share_rings_by_the_allocation_logic() {
    for logic in ["0", "1", "10", "20", "30", "31"] {
        finds_nothing_wrong("xtreme_rings", &[logic], &[ON, ("VMA_RING_ALLOCATION_LOGIC_RX", logic)]);
    }
    let limited = [ON, ("VMA_RING_ALLOCATION_LOGIC_RX", "10"), ("VMA_RING_LIMIT_PER_INTERFACE", "1")];
    finds_nothing_wrong("xtreme_rings", &["limited"], &limited);
}

#[test]
fn a_socket_follows_the_thread_that_uses_it() {
    let by_thread = ("VMA_RING_ALLOCATION_LOGIC_RX", "20");
    for (ratio, does) in [("5", "migrates"), ("-1", "never migrates")] {
        finds_nothing_wrong("xtreme_rings", &[does], &[ON, by_thread, ("VMA_RING_MIGRATION_RATIO_RX", ratio)]);
    }
}

#[test]
fn what_is_of_a_nics_own_queues_is_answered_without_one() {
    finds_nothing_wrong("direct", &[], &[ON]);
}

#[test]
fn forks_and_kills_leave_nothing_behind() {
    // A pool that a few receivers' worth of buffers would empty.
    finds_nothing_wrong("xtreme_ends", &[], &[ON, ("VMA_TX_BUFS", "1216")]);
}

#[test]
fn programs_that_are_not_on_ringway_are_told_of_too() {
    finds_nothing_wrong("xtreme_kernel", &[], &[ON]);
}

#[test]
fn programs_of_8_4_have_their_own_structures() {
    finds_nothing_wrong("xtreme_84", &[], &[ON, ("VMA_API_LAYOUT", "8.4")]);
}

/// No byte of a payload is copied on its way from the sender's memory to the receiver's program, by the device's own count.
#[test]
fn nothing_is_copied_on_the_way_to_the_program() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("xtreme-zero-{}", std::process::id()));
    let name = file.to_string_lossy().into_owned();
    finds_nothing_wrong("xtreme_zero", &[], &[ON, ("RINGWAY_STATS_FILE", &name)]);
    let text = std::fs::read_to_string(&file).expect("both processes left their statistics");
    std::fs::remove_file(&file).expect("it was just read");
    let of = |line: &str, field: &str| -> u64 {
        let at = line.find(&format!("\"{field}\":")).expect("it is in every report") + field.len() + 3;
        line[at..].chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number")
    };
    // (The ring's counters come before those of sockets.)
    let counts: Vec<(u64, u64)> = text.lines().map(|line| (of(line, "rx_bytes"), of(line, "copied_bytes"))).collect();
    let (received, copied) = counts.iter().copied().max().expect("there is a receiver");
    assert!(received >= 10 << 20, "{counts:?}");
    assert_eq!(copied, 0, "{counts:?}");
    let (_, by_sender) = counts.iter().copied().min().expect("there is a sender");
    assert!(by_sender >= 10 << 20, "the same counter sees the sender's copies: {counts:?}");
}

/// A server, until it is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server that says on its first line where it listens: which port.
fn serve(program: &Path, arguments: &[&str]) -> (Server, String) {
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", library()).envs([ON]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it was just compiled");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("it says so");
    (Server(child), line)
}

/// The example, with clients of both worlds.
#[test]
fn the_example_echoes() {
    let (_server, said) = serve(&compile("examples/socketxtreme_echo.c"), &["127.0.0.1", "0"]);
    let port: u16 = said.rsplit(' ').next().and_then(|port| port.trim().parse().ok()).unwrap_or_else(|| panic!("{said}"));
    finds_nothing_wrong("echo_client", &[&port.to_string()], &[]);
    // (This process does not run the library.)
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.write_all(b"by the kernel").expect("it is connected");
    let mut got = [0; 13];
    stream.read_exact(&mut got).expect("it echoes");
    assert_eq!(&got, b"by the kernel");
}
