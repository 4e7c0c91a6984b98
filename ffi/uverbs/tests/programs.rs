//! Unmodified programs of Debian's rdma-core and perftest on the software ConnectX, two processes each, and a program that checks what each
//! operation of verbs does (`c/verbs.c`).

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The library that this build made.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    // (Beside the test: the one above is what `cargo build` made last.)
    let library = test.parent().expect("target/<profile>/deps/<test>").join("libringway_connectx.so");
    assert!(library.exists(), "it is built with the package's tests");
    library
}

/// A bus of its own for each test.
fn bus(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

/// A program on the device. It ends by itself, or after a minute.
fn on_device(bus: &str, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60", "env"]).arg(format!("LD_PRELOAD={}", library().display())).arg(program).args(arguments);
    command.env_remove("LD_PRELOAD").env("RINGWAY_CONNECTX_BUS", bus).env_remove("RINGWAY_CONNECTX_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(bus: &str, program: &str, arguments: &[&str]) -> Child {
    on_device(bus, program, arguments).spawn().unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// What a program says that ends well.
fn run(bus: &str, program: &str, arguments: &[&str]) -> String {
    let output = start(bus, program, arguments).wait_with_output().expect("its output");
    assert!(output.status.success(), "{program} {arguments:?} (Debian's ibverbs-utils and perftest are needed): {}", said(&output));
    said(&output)
}

/// A port of TCP that is free, over which programs tell each other of their queue pairs.
fn port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr()).expect("a port").port()
}

/// Whether somebody listens on the port. (Asked of the kernel: to connect would be to be the program's peer.)
fn listens(port: u16) -> bool {
    let is_listener = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.len() > 3 && fields[1].ends_with(&format!(":{port:04X}")) && fields[3] == "0A"
    };
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| fs::read_to_string(table).unwrap_or_default().lines().any(is_listener))
}

fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// What server and client say, both of which end well.
fn both(name: &str, program: &str, arguments: &[&str]) -> [String; 2] {
    let (bus, port) = (bus(name), port());
    let number = port.to_string();
    let arguments = [arguments, &["-p", &number]].concat();
    let server = start(&bus, program, &arguments);
    wait_for("the server listens", || listens(port));
    let client = run(&bus, program, &[&arguments[..], &["127.0.0.1"]].concat());
    let server = server.wait_with_output().expect("its output");
    assert!(server.status.success(), "{program} {arguments:?}, the server: {}", said(&server));
    [said(&server), client]
}

#[test]
fn the_device_is_listed() {
    let bus = bus("list");
    let listed = run(&bus, "ibv_devices", &[]);
    let device: Vec<&str> = listed.lines().nth(2).unwrap_or_default().split_whitespace().collect();
    assert_eq!(device, ["mlx5_0", "0c42a10300123456"], "{listed}");
}

#[test]
fn its_files_are_there_for_other_programs_too() {
    let bus = bus("files");
    assert_eq!(
        run(&bus, "ls", &["-d", "/sys/class/infiniband", "/dev/infiniband/uverbs0"]),
        "/dev/infiniband/uverbs0\n/sys/class/infiniband\n"
    );
    assert_eq!(run(&bus, "ls", &["/sys/class/infiniband_verbs"]), "abi_version\nuverbs0\n");
    assert_eq!(run(&bus, "cat", &["/sys/class/infiniband/mlx5_0/fw_ver"]), "16.35.3006\n");
    let missing = start(&bus, "cat", &["/sys/class/infiniband/mlx5_1/fw_ver"]).wait_with_output().expect("its output");
    assert!(!missing.status.success() && said(&missing).contains("No such file or directory"));
}

#[test]
fn the_device_says_what_it_can_do() {
    let told = run(&bus("info"), "ibv_devinfo", &["-v"]);
    let expected = include_str!("data/devinfo.txt");
    assert_eq!(told.trim(), expected.trim(), "what it says now:\n{told}");
}

/// A line of each pingpong that counts bytes: both ways, so many messages.
fn pingpong(name: &str, program: &str, options: &[&str], bytes: u64) {
    let arguments = [&["-g", "0", "-n", "100", "-c"], options].concat();
    for told in both(name, program, &arguments) {
        assert!(told.contains(&format!("{bytes} bytes in ")), "{told}");
        assert!(told.contains("100 iters in "), "{told}");
    }
}

#[test]
fn rc_pingpong() {
    pingpong("rc", "ibv_rc_pingpong", &[], 100 * 2 * 4096);
}

#[test]
fn rc_pingpong_that_sleeps_until_events() {
    pingpong("rc-events", "ibv_rc_pingpong", &["-e"], 100 * 2 * 4096);
}

#[test]
fn ud_pingpong() {
    // (Its messages have 1024 bytes unless it is told otherwise.)
    pingpong("ud", "ibv_ud_pingpong", &["-s", "2048"], 100 * 2 * 2048);
}

#[test]
fn srq_pingpong() {
    pingpong("srq", "ibv_srq_pingpong", &["-q", "4"], 100 * 2 * 4096);
}

#[test]
fn srq_pingpong_that_sleeps_until_events() {
    pingpong("srq-events", "ibv_srq_pingpong", &["-q", "4", "-e"], 100 * 2 * 4096);
}

/// Bytes and iterations of perftest's one line of figures.
fn perftest(name: &str, program: &str, options: &[&str], iterations: &str) {
    let arguments = [&["-d", "mlx5_0", "-x", "0", "-F", "-n", "200"], options].concat();
    let size = options.iter().skip_while(|option| **option != "-s").nth(1).expect("a size");
    let [_, client] = both(name, program, &arguments);
    let figures = client.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|fields| fields.first() == Some(size));
    let figures = figures.unwrap_or_else(|| panic!("no figures: {client}"));
    assert_eq!(figures[1], iterations, "{client}");
    assert!(figures[3].parse::<f64>().is_ok_and(|figure| figure > 0.0), "{client}");
}

#[test]
fn perftest_s_bandwidths() {
    perftest("send-bw", "ib_send_bw", &["-s", "4096"], "200");
    perftest("send-bw-ud", "ib_send_bw", &["-c", "UD", "-s", "1024"], "200");
    perftest("write-bw", "ib_write_bw", &["-q", "3", "-s", "16384"], "600");
    perftest("read-bw", "ib_read_bw", &["-s", "16384"], "200");
}

#[test]
fn perftest_s_latencies() {
    perftest("send-lat", "ib_send_lat", &["-e", "-s", "64"], "200");
    perftest("write-lat", "ib_write_lat", &["-I", "64", "-s", "16"], "200");
}

#[test]
fn each_operation_does_what_it_should() {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("verbs");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/verbs.c");
    let compiled = Command::new("gcc").args(["-O2", "-Wall", "-Wextra", "-o"]).args([&program, &source]).arg("-libverbs").status();
    assert!(compiled.expect("gcc must be installed").success(), "libibverbs-dev must be installed");
    let told = run(&bus("verbs"), &program.to_string_lossy(), &[]);
    let lines: Vec<&str> = told.lines().collect();
    let expected = "send with immediate data, write and read, atomics, query, reset and again, wrong local key, outside of the region, \
                    wrong remote key, no receive posted, nobody answers, events, shared receives, refusals, executed, processes, done";
    assert_eq!(lines.join(", "), expected);
}

/// Sockets of the bus.
fn on_bus(bus: &str) -> usize {
    let name = format!("/{bus}/");
    fs::read_to_string("/proc/net/unix").expect("the kernel's list").lines().filter(|line| line.contains(&name)).count()
}

#[test]
fn nothing_is_left_of_a_process_that_is_killed() {
    let (bus, port) = (bus("kill"), port());
    let number = port.to_string();
    let mut command = on_device(&bus, "ibv_rc_pingpong", &["-g", "0", "-p", &number]);
    // One group, so that `timeout` and what it started end together.
    let mut server = command.process_group(0).spawn().expect("it starts");
    wait_for("the server listens", || listens(port));
    assert_eq!(on_bus(&bus), 1);
    let group = format!("-{}", server.id());
    assert!(Command::new("kill").args(["-KILL", "--", &group]).status().expect("kill(1)").success());
    assert!(!server.wait().expect("its end").success());
    wait_for("its place on the bus is free", || on_bus(&bus) == 0);
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
}

#[test]
fn what_is_unknown_is_logged_once_a_line_if_it_is_asked_for() {
    let bus = bus("log");
    let output = on_device(&bus, "ibv_devinfo", &[]).env("RINGWAY_CONNECTX_LOG", "1").output().expect("its output");
    let lines = String::from_utf8_lossy(&output.stderr);
    assert!(lines.contains("ringway-connectx: get_context: Operation not permitted (os error 1)\n"), "{lines}");
    assert!(lines.lines().all(|line| line.starts_with("ringway-connectx: ")), "{lines}");
    let quiet = on_device(&bus, "ibv_devinfo", &[]).output().expect("its output");
    assert_eq!(String::from_utf8_lossy(&quiet.stderr), "");
}
