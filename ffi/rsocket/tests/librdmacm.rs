//! Debian's rstream and riostream on the software ConnectX: between librsocket.so at both ends, and librdmacm's own rsockets at either of them. Each byte is checked by the programs
//! (`-T v`).

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const ADDRESS: &str = "127.0.0.1";
/// How long an end may take to fail when its peer is gone, on a machine with much to do.
const SOON: Duration = Duration::from_secs(10);
/// How long anything may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// More than it gets to.
const FOR_EVER: [&str; 6] = ["-S", "4096", "-C", "10000000", "-I", "1"];

/// Whose rsockets a program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    Ours,
    Librdmacm,
}
use Library::{Librdmacm, Ours};

/// Who serves, and who asks.
const ENDS: [[Library; 2]; 3] = [[Ours, Ours], [Librdmacm, Ours], [Ours, Librdmacm]];

/// A library that this build made.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let library = test.parent().expect("target/<profile>/deps/<test>").join(name);
    assert!(library.exists(), "{} is built with ringway-uverbs and ringway-rsocket", library.display());
    library
}

/// A program that runs on the card; it is killed where this is dropped before its end.
struct End {
    child: Child,
    complains: BufReader<ChildStderr>,
    library: Library,
    what: String,
}

impl End {
    fn start(library: Library, bus: &str, program: &str, arguments: &[&str]) -> Self {
        let card = built("libringway_connectx.so").display().to_string();
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("RINGWAY_CONNECTX_BUS", bus).env_remove("RINGWAY_DEVICE");
        match library {
            Ours => {
                let preloaded = format!("{card}:{}", built("librsocket.so").display());
                command.env("LD_PRELOAD", preloaded).env("RINGWAY_DEVICE", "mlx5:mlx5_0").env("RSOCKET_LOG", "trace")
            }
            Librdmacm => command.env("LD_PRELOAD", card),
        };
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{program} (of Debian's rdmacm-utils): {error}"));
        let complains = BufReader::new(child.stderr.take().expect("a pipe"));
        Self { child, complains, library, what: format!("{program} {arguments:?} with {library:?}") }
    }

    /// Waits until its library's log tells of that event of connection management.
    fn awaits(&mut self, event: u32) {
        let (mut line, word) = (String::new(), format!("event {event} of connection"));
        while !line.contains(&word) {
            line.clear();
            assert!(self.complains.read_line(&mut line).expect("text") > 0, "{} ends without: {word}", self.what);
        }
    }

    /// Whether it ends well, within that time, and what it says.
    fn ends(&mut self, within: Duration) -> (bool, String) {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it was started") {
                break status;
            }
            assert!(began.elapsed() < within, "{} hangs", self.what);
            thread::sleep(Duration::from_millis(10));
        };
        let mut said = String::new();
        self.child.stdout.take().expect("a pipe").read_to_string(&mut said).expect("text");
        self.complains.read_to_string(&mut said).expect("text");
        (status.success(), said)
    }

    fn ends_well(mut self) -> String {
        let (is_well, said) = self.ends(TIMEOUT);
        assert!(is_well && !said.contains("failed"), "{}: {said}", self.what);
        said
    }

    /// It has sent all, and then fails because its peer has ended, unless it was done before that.
    fn ends_before_its_peer_or_after(mut self) {
        let (_, said) = self.ends(TIMEOUT);
        assert!(!said.contains("failed"), "{}: {said}", self.what);
    }

    /// It fails by itself.
    fn ends_badly(mut self) {
        let (is_well, said) = self.ends(SOON);
        assert!(!is_well, "{}: {said}", self.what);
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < TIMEOUT, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Two programs on a bus of their own; the second begins when the first listens.
fn start(name: &str, [server, client]: [Library; 2], program: &str, arguments: &[&str]) -> (String, [End; 2]) {
    let bus = format!("{name}-{server:?}-{client:?}-{}", std::process::id());
    let server = End::start(server, &bus, program, &[&["-b", ADDRESS], arguments].concat());
    let listens = || std::fs::read_to_string("/proc/net/unix").is_ok_and(|table| table.contains(&format!("/{bus}/service-")));
    wait_for("the server listens", listens);
    let client = End::start(client, &bus, program, &[&["-s", ADDRESS], arguments].concat());
    (bus, [server, client])
}

/// Both ends in one way, to their good ends. `size` and `count` are of what goes there and back.
fn carries(ends: [Library; 2], program: &str, (size, count): (&str, &str), ways: &[&str]) {
    let arguments = [&["-S", size, "-C", count, "-I", "1", "-T", "v"], ways].concat();
    let (_, [server, client]) = start(&format!("{program}-{size}{}", ways.concat()), ends, program, &arguments);
    // (Debian's rstream ends so with librdmacm at both ends as well: its last wait sees that the peer has closed, and takes that for a failure. The server has checked what came.)
    let said = if ways.contains(&"a") {
        client.ends_before_its_peer_or_after();
        server.ends_well()
    } else {
        server.ends_well();
        client.ends_well()
    };
    // (The program's own line: name, bytes, transfers, and so on.)
    assert!(said.contains("_lat") || said.contains("_bw") || said.contains("custom"), "{said}");
}

/// The quirk that [`carries`] knows is not ours.
#[test]
fn librdmacms_own_ends_do_the_same() {
    carries([Librdmacm; 2], "rstream", ("65536", "10"), &["-T", "a"]);
}

fn all_ways(ends: [Library; 2]) {
    // Blocking, not blocking, asynchronous (by poll), by rdma_getaddrinfo, and with a short send buffer and nothing in line. (`-T s` and `-T f` are the kernel's sockets.)
    let ways: [(&str, &str, &[&str]); 7] = [
        ("64", "200", &[]),
        ("64", "200", &["-T", "b"]),
        ("4096", "50", &["-T", "n", "-k", "1"]),
        ("65536", "10", &["-T", "a"]),
        ("1000", "100", &["-T", "r"]),
        ("5000", "50", &["-B", "8192", "-i", "0"]),
        ("1048576", "2", &["-T", "b"]),
    ];
    for (size, count, way) in ways {
        carries(ends, "rstream", (size, count), way);
    }
    for (size, count, way) in [("65536", "4", &[][..]), ("1000", "50", &["-i", "256"]), ("4096", "20", &["-T", "n"])] {
        carries(ends, "riostream", (size, count), way);
    }
}

#[test]
fn both_ends_are_ours() {
    all_ways(ENDS[0]);
}

#[test]
fn ours_asks_librdmacm_serves() {
    all_ways(ENDS[1]);
}

#[test]
fn ours_serves_librdmacm_asks() {
    all_ways(ENDS[2]);
}

/// Both ends, in the middle of sending.
fn in_the_middle(name: &str, ends: [Library; 2]) -> (String, [End; 2]) {
    let (bus, mut started) = start(name, ends, "rstream", &FOR_EVER);
    // (RDMA_CM_EVENT_ESTABLISHED is what who serves is told, and RDMA_CM_EVENT_CONNECT_RESPONSE who asks.)
    let ours = started.iter_mut().enumerate().filter(|(_, end)| end.library == Ours);
    ours.for_each(|(at, end)| end.awaits(if at == 0 { 9 } else { 5 }));
    thread::sleep(Duration::from_millis(500));
    (bus, started)
}

#[test]
fn whose_peer_is_killed_hears_of_it() {
    for ends in ENDS {
        for killed in [0, 1] {
            let (_, mut both) = in_the_middle(&format!("killed{killed}"), ends);
            assert!(both.iter_mut().all(|end| end.child.try_wait().expect("it runs").is_none()), "both still run");
            // (Whether librdmacm's rstream ends is its own affair: one that serves may take the end of the stream for more to come.)
            if both[1 - killed].library == Librdmacm {
                continue;
            }
            both[killed].child.kill().expect("it runs");
            let [server, client] = both;
            if killed == 0 { client } else { server }.ends_badly();
        }
    }
}

/// Tells both cards of a bus that their ports are down.
fn ports_go_down(bus: &str) {
    // SAFETY: no memory is involved.
    let user = unsafe { libc::getuid() };
    let socket = UnixDatagram::unbound().expect("a socket");
    for slot in 0..2 {
        let name = SocketAddr::from_abstract_name(format!("ringway-connectx/{user}/{bus}/{slot}")).expect("a name");
        socket.send_to_addr(&[4, 0], &name).expect("the card hears");
    }
}

#[test]
fn whose_port_goes_down_says_so() {
    let (bus, both) = in_the_middle("down", [Ours, Ours]);
    ports_go_down(&bus);
    both.into_iter().for_each(End::ends_badly);
}
