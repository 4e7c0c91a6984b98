//! Unmodified programs of Debian's rdma-core and perftest on the software ConnectX, two processes each, and programs that check what each
//! operation of verbs does: on connections and datagrams (`c/verbs.c`), and on Ethernet (`c/ethernet.c`).

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
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
    command
        .env_remove("LD_PRELOAD")
        .env("RINGWAY_CONNECTX_BUS", bus)
        .env_remove("RINGWAY_CONNECTX_LOG")
        .env_remove("RINGWAY_CONNECTX_DOORBELLS");
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

/// Whether somebody on the bus listens by librdmacm.
fn is_listened_at(bus: &str) -> bool {
    fs::read_to_string("/proc/net/unix").expect("the kernel's table").contains(&format!("/{bus}/service-"))
}

/// Both ends of a program that connects by librdmacm.
fn connects(name: &str, program: &str, server: &[&str], client: &[&str]) -> [String; 2] {
    let bus = bus(name);
    let server = start(&bus, program, server);
    wait_for("the server listens", || is_listened_at(&bus));
    let client = run(&bus, program, client);
    let server = server.wait_with_output().expect("its output");
    assert!(server.status.success(), "{program} (Debian's rdmacm-utils are needed), the server: {}", said(&server));
    [said(&server), client]
}

#[test]
fn programs_of_librdmacm_connect() {
    let address = "127.0.0.1";
    connects("rping", "rping", &["-s", "-a", address, "-C", "20", "-S", "4000"], &["-c", "-a", address, "-C", "20", "-S", "4000", "-V"]);
    let options = ["-c", "4", "-C", "10"];
    for program in ["ucmatose", "udaddy"] {
        let all = connects(program, program, &options, &[&options[..], &["-s", address]].concat());
        assert!(all.iter().all(|said| said.contains("return status 0")), "{all:?}");
    }
}

#[test]
fn a_service_that_nobody_has_is_refused_at_once() {
    let begin = Instant::now();
    let output = start(&bus("refused"), "ucmatose", &["-s", "127.0.0.1"]).wait_with_output().expect("its output");
    // (IBTA's reason 8: no such service.)
    assert!(said(&output).contains("RDMA_CM_EVENT_REJECTED, error: 8"), "{}", said(&output));
    // (A request that nobody answers is sent again after four seconds, and that often.)
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[test]
fn rsockets_of_librdmacm_run_on_it() {
    let address = "127.0.0.1";
    for (program, size) in [("rstream", "65536"), ("riostream", "4096")] {
        let options = ["-S", size, "-C", "50", "-I", "1", "-T", "v"];
        let [server, client] = [["-b", address], ["-s", address]].map(|end| [&end[..], &options].concat());
        connects(program, program, &server, &client);
    }
}

#[test]
fn groups_are_joined_by_librdmacm() {
    let (bus, options) = (bus("mckey"), ["-m", "239.1.2.3", "-b", "127.0.0.1", "-c", "2", "-C", "10", "-S", "900"]);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&bus);
    let mut member = on_device(&bus, "stdbuf", &[&["-o0", "mckey"], &options[..]].concat());
    let member = member.stdout(fs::File::create(&path).expect("a file")).spawn().expect("it starts");
    let printed = || fs::read_to_string(&path).unwrap_or_default();
    // (Whoever has joined says so before it waits for what is sent.)
    wait_for("both of its queue pairs have joined", || printed().contains("receiving data transfers"));
    let sender = run(&bus, "mckey", &[&options[..], &["-s"]].concat());
    let member = member.wait_with_output().expect("its output");
    assert!(member.status.success(), "{}{}", printed(), said(&member));
    assert!(sender.contains("return status 0") && printed().contains("data transfers complete"), "{sender}{}", printed());
    fs::remove_file(&path).expect("it is there");
}

#[test]
fn perftest_connects_by_librdmacm() {
    let arguments = ["-R", "-F", "-n", "100", "-p", "18600"];
    connects("send-bw-cm", "ib_send_bw", &arguments, &[&arguments[..], &["127.0.0.1"]].concat());
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
fn uc_pingpong() {
    pingpong("uc", "ibv_uc_pingpong", &[], 100 * 2 * 4096);
}

#[test]
fn uc_pingpong_that_sleeps_until_events() {
    pingpong("uc-events", "ibv_uc_pingpong", &["-e"], 100 * 2 * 4096);
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
    perftest("send-bw-uc", "ib_send_bw", &["-c", "UC", "-s", "4096"], "200");
    perftest("write-bw-uc", "ib_write_bw", &["-c", "UC", "-s", "16384"], "200");
    perftest("write-bw", "ib_write_bw", &["-q", "3", "-s", "16384"], "600");
    perftest("read-bw", "ib_read_bw", &["-s", "16384"], "200");
}

#[test]
fn perftest_s_latencies() {
    perftest("send-lat", "ib_send_lat", &["-e", "-s", "64"], "200");
    perftest("send-lat-uc", "ib_send_lat", &["-c", "UC", "-s", "64"], "200");
    perftest("write-lat-uc", "ib_write_lat", &["-c", "UC", "-s", "64"], "200");
    perftest("write-lat", "ib_write_lat", &["-I", "64", "-s", "16"], "200");
}

/// Ethernet's addresses of perftest's server and client, which tell each other nothing.
const MACS: [&str; 2] = ["02:00:00:00:00:0a", "02:00:00:00:00:0b"];

/// What server and client of a program on Ethernet say, both of which end well. The server has its flow rule when it prints the head of its
/// table, and its receives right after that.
fn on_ethernet(name: &str, program: &str, options: &[&str]) -> [String; 2] {
    let bus = bus(name);
    let arguments = |role, own: usize| [&["-d", "mlx5_0", role, "-B", MACS[own], "-E", MACS[1 - own], "-F"], options].concat();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&bus);
    let mut server = on_device(&bus, "stdbuf", &[&["-o0", program], &arguments("--server", 0)[..]].concat());
    let server = server.stdout(fs::File::create(&path).expect("a file")).spawn().expect("it starts");
    let printed = || fs::read_to_string(&path).unwrap_or_default();
    wait_for("the server has its flow rule", || printed().contains("#bytes"));
    thread::sleep(Duration::from_millis(300));
    let client = run(&bus, program, &arguments("--client", 1));
    let server = server.wait_with_output().expect("its output");
    assert!(server.status.success(), "{program} {options:?}, the server: {}{}", printed(), said(&server));
    let told = [printed(), client];
    fs::remove_file(&path).expect("it is there");
    told
}

/// Perftest's line of figures that begins with `size`: the rest of it.
fn figures(told: &str, size: &str) -> Vec<String> {
    let line = told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).find(|fields| fields.first() == Some(&size));
    line.unwrap_or_else(|| panic!("no figures: {told}")).iter().map(|field| (*field).to_owned()).collect()
}

#[test]
fn raw_ethernet_bandwidth() {
    // No more frames than the server has receives: what comes for none is lost, as at a card.
    let [server, client] = on_ethernet("raw-bw", "raw_ethernet_bw", &["-n", "400", "-s", "1500"]);
    assert!(server.contains("MAC attached  : 02:00:00:00:00:0A"), "{server}");
    let figures = figures(&client, "1500");
    assert_eq!(figures[1], "400", "{client}");
    assert!(figures[3].parse::<f64>().is_ok_and(|megabytes| megabytes > 0.0), "{client}");
}

#[test]
fn raw_ethernet_latency() {
    for (name, options) in [("raw-lat", &[][..]), ("raw-lat-udp", &["-J", "10.0.0.1", "-j", "10.0.0.2", "-K", "7", "-k", "7"])] {
        for told in on_ethernet(name, "raw_ethernet_lat", &[&["-n", "200", "-s", "100"], options].concat()) {
            let figures = figures(&told, "100");
            assert_eq!(figures[1], "200", "{told}");
            assert!(figures[4].parse::<f64>().is_ok_and(|typical| typical > 0.0), "{told}");
        }
    }
}

#[test]
fn raw_ethernet_latency_of_bursts() {
    // (Debian's has to be given a rate, which it refuses to itself on Ethernet and then keeps to as well as it can, and to signal each send. Who answers
    // drops what his send queue has no room for, so there are no more than it holds.)
    let options = ["-n", "100", "-s", "64", "--rate_limit=10", "-Q", "1", "-r", "512"];
    let [_, client] = on_ethernet("raw-burst", "raw_ethernet_burst_lat", &options);
    let figures = figures(&client, "64");
    assert!(figures[4].parse::<f64>().is_ok_and(|typical| typical > 0.0), "{client}");
}

/// A program of ours, compiled.
fn compiled(name: &str, libraries: &[&str]) -> String {
    compiled_as(name, name, libraries)
}

/// The same, under another name. (No two tests write the same file.)
fn compiled_as(own: &str, name: &str, libraries: &[&str]) -> String {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(own);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name).with_extension("c");
    let compiled = Command::new("gcc").args(["-O2", "-Wall", "-Wextra", "-o"]).args([&program, &source]).args(libraries).status();
    assert!(compiled.expect("gcc must be installed").success(), "libibverbs-dev must be installed");
    program.to_string_lossy().into_owned()
}

#[test]
fn each_operation_does_what_it_should() {
    let told = run(&bus("verbs"), &compiled("verbs", &["-libverbs"]), &[]);
    let lines: Vec<&str> = told.lines().collect();
    let expected = "send with immediate data, write and read, atomics, query, reset and again, wrong local key, outside of the region, \
                    wrong remote key, no receive posted, nobody answers, events, shared receives, unreliable connections, send queues in error, groups, refusals, executed, processes, done";
    assert_eq!(lines.join(", "), expected);
}

/// Neither the card's handlers of forks nor its thread want anything of a malloc whose locks are held meanwhile.
#[test]
fn forks_do_not_wait_for_the_programs_malloc() {
    let malloc = compiled_as("malloc.so", "malloc", &["-shared", "-fPIC"]);
    let program = compiled("forks", &["-libverbs", "-pthread"]);
    let libraries = format!("LD_PRELOAD={}:{malloc}", library().display());
    let told = run(&bus("malloc"), "env", &[&libraries, &program]);
    assert_eq!(told, "done\n");
}

#[test]
fn each_operation_on_ethernet_does_what_it_should_and_what_is_wrong_is_named() {
    let mut command = on_device(&bus("ethernet"), &compiled("ethernet", &["-libverbs", "-lmlx5"]), &[]);
    let output = command.env("RINGWAY_CONNECTX_LOG", "1").output().expect("its output");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = told.lines().collect();
    let expected = "frames, checksums, own frames, priorities, copies, drop, layers, tunnels, defaults and sniffers, refusals, memory on the card, tags, \
                    tags taken off, hashes, loopback, rates, \
                    large sends, several frames in one entry, wrong sends, wrong receives, events, done";
    assert_eq!(lines.join(", "), expected);
    let log = String::from_utf8_lossy(&output.stderr);
    for rule in [
        "no region has key",
        "a frame of 10 bytes",
        "9100 bytes, the card takes 9018",
        "ds is 0; this entry needs 1 to 63",
        "an entry of 5 blocks, 1 are posted",
        "the entry says index 64, the queue is at 0",
        "opcode 0x08 with modifier 0x00 is not allowed on this queue pair",
        "1042 bytes for a receive of 100",
        "are not all in the region of key",
        "is full",
    ] {
        assert!(log.contains(rule), "{rule}: {log}");
    }
}

/// The device's last line about what it counted.
fn counted<'a>(log: &'a str, what: &str) -> &'a str {
    log.lines().rfind(|line| line.contains(what)).unwrap_or_else(|| panic!("nothing of {what}: {log}"))
}

/// What a program says, and what the device does, with doorbells seen in that way.
fn with_doorbells(mode: &str, program: &str, arguments: &[&str]) -> [String; 2] {
    let mut command = on_device(&bus(&format!("doorbells-{mode}{}", arguments.concat())), program, arguments);
    let output = command.env("RINGWAY_CONNECTX_DOORBELLS", mode).env("RINGWAY_CONNECTX_LOG", "1").output().expect("its output");
    assert!(output.status.success(), "{mode}: {}", said(&output));
    [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[test]
fn doorbells_are_seen_whoever_rings_and_by_whatever_instruction() {
    let program = compiled("doorbells", &["-libverbs", "-lmlx5", "-lpthread"]);
    let expected = "threads, other instructions, a handler for faults, a fault that is none's, a small stack, the clock, a child, done";
    let told = |mode| {
        let [said, log] = with_doorbells(mode, &program, &[]);
        assert_eq!(said.lines().collect::<Vec<_>>().join(", "), expected, "{mode}");
        log
    };
    told("poll");
    let log = told("trap");
    if cfg!(target_arch = "x86_64") {
        // 8 threads with 300 messages each, and 48 others; five of these are rung without libmlx5, of which four are stores of usual forms, three of them of 16 bytes. Each of libmlx5's is 64 bytes of
        // BlueFlame. The other one is one instruction, which stops at each of four words.
        assert!(counted(&log, "doorbells of sends").contains("2448 doorbells of sends, 2446 of them with their entry"), "{log}");
        assert!(counted(&log, "trapped").contains(&format!("{} stores trapped, and 4 other instructions", 2443 * 8 + 4)), "{log}");
    }
}

#[test]
fn handlers_cancellation_and_what_programs_do_to_pages_and_descriptors_disturb_no_doorbell() {
    let program = compiled_as("doorbells-disturbed", "doorbells", &["-libverbs", "-lmlx5", "-lpthread"]);
    for mode in ["poll", "trap"] {
        let [said, log] = with_doorbells(mode, &program, &["disturbed"]);
        let left = if mode == "trap" && cfg!(target_arch = "x86_64") { "a step that was left, " } else { "" };
        let expected =
            format!("a handler that waits, threads that are cancelled, {left}registers that are moved, descriptors that are closed, done");
        assert_eq!(said.lines().collect::<Vec<_>>().join(", "), expected, "{mode}: {log}");
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn each_doorbell_of_unmodified_programs_is_trapped() {
    for (name, options) in [("trap-rc", &[][..]), ("trap-events", &["-e"])] {
        let (bus, port) = (bus(name), port().to_string());
        let arguments = [&["-g", "0", "-n", "200", "-c", "-p", &port], options].concat();
        let program = |address: &[&str]| {
            let mut command = on_device(&bus, "ibv_rc_pingpong", &[&arguments, address].concat());
            command.env("RINGWAY_CONNECTX_DOORBELLS", "trap").env("RINGWAY_CONNECTX_LOG", "1").spawn().expect("it starts")
        };
        let server = program(&[]);
        wait_for("the server listens", || listens(port.parse().expect("a number")));
        for program in [program(&["127.0.0.1"]), server] {
            let output = program.wait_with_output().expect("its output");
            let all = said(&output);
            assert!(output.status.success() && all.contains("200 iters in"), "{all}");
            assert!(counted(&all, "doorbells of sends").contains(" 200 doorbells of sends, 200 of them with their entry"), "{all}");
        }
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn each_operation_does_what_it_should_where_doorbells_are_trapped() {
    for (name, libraries) in [("verbs", &["-libverbs"][..]), ("ethernet", &["-libverbs", "-lmlx5"])] {
        let [said, log] = with_doorbells("trap", &compiled_as(&format!("{name}-trapped"), name, libraries), &[]);
        assert!(said.ends_with("done\n") && !said.contains("not so"), "{said}");
        assert!(counted(&log, "trapped").ends_with("and 0 other instructions"), "{log}");
    }
}

#[test]
fn a_port_that_goes_down_is_an_event() {
    let bus = bus("async");
    let mut watch = on_device(&bus, "stdbuf", &["-o0", "ibv_asyncwatch"]).process_group(0).spawn().expect("it starts");
    let mut output = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let mut line = || output.next().expect("a line").expect("text");
    assert!(line().starts_with("mlx5_0: async event FD "));
    for (state, event) in [(0, "IBV_EVENT_PORT_ERR (10), port 1"), (0, ""), (1, "IBV_EVENT_PORT_ACTIVE (9), port 1")] {
        tell_card(&bus, &[4, state]);
        if !event.is_empty() {
            assert!(line().contains(event), "the event of {state}");
        }
    }
    tell_card(&bus, &[5, 8]);
    assert!(line().contains("IBV_EVENT_DEVICE_FATAL (8)"));
    // When the card is removed, it hears nothing more, and ends by that.
    tell_card(&bus, &[5, 255]);
    assert!(!watch.wait().expect("its end").success() && output.next().is_none());
    assert_eq!(on_bus(&bus), 0);
}

#[test]
fn events_of_librdmacm_wait_where_the_program_reads_them() {
    let told = run(&bus("events"), &compiled("connections", &["-lrdmacm", "-libverbs"]), &[]);
    let expected = [
        "a listener without an address",
        "an event that could not be told",
        "a listener that goes over",
        "a channel that is closed",
        "done",
    ];
    assert_eq!(told.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn who_waits_for_an_event_of_librdmacm_hears_that_the_card_is_removed() {
    let (bus, program) = (bus("removed"), compiled_as("connections-removed", "connections", &["-lrdmacm", "-libverbs"]));
    let mut waiting = start(&bus, &program, &["removed"]);
    let mut output = BufReader::new(waiting.stdout.take().expect("a pipe")).lines();
    let mut line = || output.next().expect("a line").expect("text");
    assert_eq!(line(), "waits");
    // (It waits in the call, or is about to: either is ended.)
    thread::sleep(Duration::from_millis(100));
    tell_card(&bus, &[5, 255]);
    assert_eq!(line(), "removed");
    assert!(waiting.wait().expect("its end").success());
}

/// Tells the only card of a bus something, as from outside. (It has the first place, or, if the program has just closed another, the next one.)
fn tell_card(bus: &str, what: &[u8]) {
    let user = fs::metadata("/proc/self").map(|meta| std::os::unix::fs::MetadataExt::uid(&meta)).expect("our own");
    let socket = UnixDatagram::unbound().expect("a socket");
    let told = (0..4).any(|slot| {
        let address = SocketAddr::from_abstract_name(format!("ringway-connectx/{user}/{bus}/{slot}")).expect("a name");
        socket.send_to_addr(what, &address).is_ok()
    });
    assert!(told, "no card is on {bus}");
}

/// Kills a program, `timeout` before it, and what either started.
fn kill_group(program: &Child) {
    let group = format!("-{}", program.id());
    assert!(Command::new("kill").args(["-KILL", "--", &group]).status().expect("kill(1)").success());
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
    assert_eq!(on_bus(&bus), 2, "its place, and by what others see that it lives");
    kill_group(&server);
    assert!(!server.wait().expect("its end").success());
    wait_for("its place on the bus is free", || on_bus(&bus) == 0);
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
}

#[test]
fn a_child_keeps_nothing_of_its_parent_s_place_on_the_bus() {
    let (bus, program) = (bus("left"), compiled_as("doorbells-left", "doorbells", &["-libverbs", "-lmlx5", "-lpthread"]));
    let child = run(&bus, &program, &["leave"]);
    let child = child.trim();
    let is_free = || on_bus(&bus) == 0;
    let begin = Instant::now();
    while !is_free() && begin.elapsed() < Duration::from_secs(5) {
        thread::sleep(Duration::from_millis(10));
    }
    let (was_free, lives) = (is_free(), Path::new("/proc").join(child).exists());
    Command::new("kill").args(["-KILL", child]).status().expect("kill(1)");
    assert!(was_free && lives, "free: {was_free}, the child {child} lives: {lives}");
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
