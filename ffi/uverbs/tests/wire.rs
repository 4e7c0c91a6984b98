//! The card's port, plugged into an interface: two network namespaces and a veth pair, which are the test's own. They take root and ip(8); where CI is set they must be had.

#[path = "../../../backends/host/tests/leave/namespaces.rs"]
#[allow(dead_code, reason = "each test has its own needs")]
mod namespaces;

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use namespaces::{enter, ip, new_namespace};

/// Addresses of both ends, of IP and of Ethernet.
const ENDS: [&str; 2] = ["10.79.0.1", "10.79.0.2"];
const MACS: [&str; 2] = ["02:00:00:00:79:01", "02:00:00:00:79:02"];

/// A cable, of which the end a0 is the calling thread's.
struct Cable {
    there: File,
}

/// Runs a test at one end of a cable, in a thread of its own.
fn on_cable(test: impl FnOnce(&Cable) + Send + 'static) {
    let is_laid = thread::spawn(move || Cable::lay().map(|cable| test(&cable)).is_some()).join();
    if !is_laid.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
        assert!(std::env::var_os("CI").is_none(), "no network namespaces, or no ip(8), are to be had");
        eprintln!("left out: network namespaces need root, and ip(8)");
    }
}

impl Cable {
    fn lay() -> Option<Self> {
        let (here, there) = (new_namespace()?, new_namespace()?);
        Command::new("ip").arg("-V").output().ok()?;
        let (id, fd) = (std::process::id(), here.as_raw_fd());
        let [ours, theirs] = MACS;
        ip(&format!("link add b0 address {theirs} type veth peer name a0 address {ours}\nlink set a0 netns /proc/{id}/fd/{fd}\n"));
        let up = |name, address| format!("link set lo up\nlink set {name} up\naddr add {address}/24 dev {name}\n");
        ip(&up("b0", ENDS[1]));
        enter(&here);
        ip(&up("a0", ENDS[0]));
        Some(Self { there })
    }

    /// Does something at the other end.
    fn there<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let there = self.there.try_clone().expect("a descriptor");
        // (Who has entered a namespace stays there.)
        let done = thread::spawn(move || {
            enter(&there);
            work()
        });
        done.join().expect("it is done")
    }
}

/// A program on a card that is plugged into that interface of the calling thread's namespace.
fn plugged(interface: &str, program: &str, arguments: &[&str]) -> Child {
    let test = std::env::current_exe().expect("the test has a path");
    let library = test.parent().expect("target/<profile>/deps/<test>").join("libringway_connectx.so");
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60", "env"]).arg(format!("LD_PRELOAD={}", library.display())).arg(program).args(arguments);
    command.env("RINGWAY_CONNECTX_WIRE", interface).env("RINGWAY_CONNECTX_LOG", "1").env_remove("LD_PRELOAD");
    command.env("RINGWAY_CONNECTX_BUS", format!("wire-{}", std::process::id()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// What a program says that ends well.
fn ends_well(program: Child) -> String {
    let output = program.wait_with_output().expect("its output");
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A program of ours, compiled.
fn compiled(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name).with_extension("c");
    let compiled = Command::new("gcc").args(["-O2", "-Wall", "-Wextra", "-o"]).args([&program, &source]).arg("-libverbs").status();
    assert!(compiled.expect("gcc must be installed").success(), "libibverbs-dev must be installed");
    program
}

/// Frames that a0 was given to send: those that went, and those that the other end had no room for.
fn given() -> u64 {
    let counters = fs::read_to_string("/proc/thread-self/net/dev").expect("counters");
    let line = counters.lines().find_map(|line| line.trim().strip_prefix("a0:")).expect("a0");
    let fields: Vec<u64> = line.split_whitespace().map(|field| field.parse().expect("a number")).collect();
    fields[9] + fields[11]
}

#[test]
fn no_frame_is_lost_for_want_of_room_at_the_interface() {
    on_cable(|_| {
        let before = given();
        let told = ends_well(plugged("a0", &compiled("burst").to_string_lossy(), &[]));
        // (Many times as many as the interface's ring has room for, in one turn of the card.)
        assert!(told.contains("38400 frames") && !told.contains(" is lost"), "{told}");
        assert!(given() - before >= 38_400, "{} frames", given() - before);
    });
}

#[test]
fn a_neighbour_to_which_the_card_sends_is_in_use_to_the_kernel() {
    on_cable(|cable| {
        let state = || {
            let shown = Command::new("ip").args(["neigh", "show", ENDS[1], "dev", "a0"]).output().expect("ip(8)");
            String::from_utf8_lossy(&shown.stdout).into_owned()
        };
        let neighbour = |end: usize, name| format!("neigh replace {} lladdr {} dev {name} nud stale\n", ENDS[end], MACS[end]);
        ip(&neighbour(1, "a0"));
        cable.there(move || ip(&neighbour(0, "b0")));
        assert!(state().contains("STALE"), "{}", state());
        // (Both ends find each other by RoCE's own packets: the kernels send each other nothing.)
        let server = cable.there(|| {
            let server = plugged("b0", "rping", &["-s", "-a", ENDS[1], "-C", "10", "-S", "500"]);
            let listens = || fs::read_to_string("/proc/thread-self/net/unix").expect("the kernel's list").contains("/service-");
            wait_for("the server listens", listens);
            server
        });
        ends_well(plugged("a0", "rping", &["-c", "-a", ENDS[1], "-C", "10", "-S", "500"]));
        ends_well(server);
        assert!(!state().contains("STALE"), "{}", state());
    });
}
