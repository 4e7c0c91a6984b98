//! What each parameter that is heeded does, as a preloaded program and whoever starts it see it. (What only time shows has its tests
//! where the code is: VMA_RX_POLL_YIELD in mux/wait.rs, VMA_PROGRESS_ENGINE_WCE_MAX in mux/progress.rs, and so on.)

mod rules;

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use ringway_report::{ProcessReport, STATS_FILE_ENV, SocketReport};

fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let profile = test.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    let library = profile.join("deps/libvma.so");
    assert!(library.exists(), "libvma.so is built with its tests");
    library
}

fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = scratch("params");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/params.c");
        let made = Command::new("gcc").args(["-Wall", "-Wextra", "-O1", "-rdynamic", "-pthread", "-o"]).arg(&program).arg(source).output();
        let made = made.expect("gcc must be installed");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        program
    })
}

/// Runs a case with these parameters.
fn run(case: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new("timeout");
    command.arg("60").arg(program()).arg(case).env("LD_PRELOAD", library());
    // A rule file of the machine's is none of the test's.
    command.env("VMA_CONFIG_FILE", "").envs(environment.iter().copied());
    command.output().expect("timeout(1) is part of coreutils")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The words that a case prints.
fn says(case: &str, environment: &[(&str, &str)]) -> Vec<String> {
    let output = run(case, environment);
    assert!(output.status.success(), "{case} {environment:?}: {:?}\n{}", output.status, text(&output.stderr));
    text(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

/// The one number that a case prints.
fn number(case: &str, environment: &[(&str, &str)]) -> i64 {
    says(case, environment)[0].parse().expect("a number")
}

/// Runs a case, which must be offloaded or not, and returns what it says of itself.
fn report(case: &str, environment: &[(&str, &str)]) -> ProcessReport {
    static RUNS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let file = scratch(&format!("params-{}.json", RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed)));
    let _ = std::fs::remove_file(&file);
    let path = file.to_string_lossy().into_owned();
    let mut environment = environment.to_vec();
    environment.push((STATS_FILE_ENV, &path));
    says(case, &environment);
    let lines = std::fs::read_to_string(&file).expect("the process left its report");
    serde_json::from_str(lines.lines().last().expect("one line")).expect("the report is JSON")
}

#[test]
fn segments_and_timestamps() {
    assert_eq!(says("tcp", &[]), ["65495", "1"]);
    assert_eq!(says("tcp", &[("VMA_MTU", "1500")]), ["1460", "1"]);
    assert_eq!(says("tcp", &[("VMA_MSS", "1000"), ("VMA_TCP_TIMESTAMP_OPTION", "0")]), ["1000", "0"]);
}

#[test]
fn multicast_loop() {
    assert_eq!(number("multicast", &[]), 1);
    assert_eq!(number("multicast", &[("VMA_TX_MC_LOOPBACK", "0")]), 0);
}

#[test]
fn receive_buffers() {
    // Datagrams wait for the socket where it has room, and before that in the queue, from which a poll takes some at a time.
    let kept = number("waiting", &[]);
    assert!(kept > 30, "{kept}: three of sixteen are lost");
    let kept = number("waiting", &[("VMA_CQ_POLL_BATCH_MAX", "128")]);
    assert!(kept < 30, "{kept}: all but the first");
    assert_eq!(number("waiting", &[("VMA_CQ_POLL_BATCH_MAX", "128"), ("VMA_RX_BYTES_MIN", "8000000")]), 64);
}

#[test]
fn lost_datagrams() {
    assert_eq!(says("full", &[]), ["0", "soon"]);
    assert_eq!(says("full", &[("VMA_TX_NONBLOCKED_EAGAINS", "1")]), ["1", "soon"]);
}

#[test]
fn the_kernels_descriptors() {
    assert_eq!(number("both", &[]), 91, "the tenth look finds something, and so does each that follows");
    assert_eq!(number("both", &[("VMA_SELECT_SKIP_OS", "10")]), 10);
    assert_eq!(number("both", &[("VMA_SELECT_SKIP_OS", "1")]), 100);
    assert_eq!(number("both", &[("VMA_SELECT_SKIP_OS", "0")]), 0);
    assert_eq!(number("both", &[("VMA_SELECT_POLL_OS_FORCE", "1")]), 100);
    assert_eq!(number("both", &[("VMA_SELECT_POLL_OS_RATIO", "50")]), 2);
}

#[test]
fn the_worlds_take_turns_where_both_deliver() {
    for (case, half) in [("turns", 30), ("connections", 10)] {
        assert_eq!(number(case, &[]), half, "{case}");
        let eager = number(case, &[("VMA_RX_UDP_POLL_OS_RATIO", "1")]);
        assert_eq!(eager, 2 * half, "{case}: to the letter, it is each call");
        assert_eq!(number(case, &[("VMA_RX_UDP_POLL_OS_RATIO", "10")]), half / 5, "{case}");
    }
}

#[test]
fn who_has_much_waiting_in_the_kernel_receives_with_each_call() {
    assert_eq!(says("full_kernel", &[]), ["100", "100"]);
    assert_eq!(number("both_collected", &[]), 100, "an instance that was not collected from for long is looked at whole");
    assert!(number("both_collected", &[("VMA_SELECT_SKIP_OS", "10")]) < 50);
}

#[test]
fn what_the_kernel_has_is_seen_when_a_wait_is_over_at_the_latest() {
    assert_eq!(number("expiring", &[]), 3);
    assert_eq!(number("expiring", &[("VMA_SPEC", "ultra-latency")]), 3);
    let never = [("VMA_RX_POLL", "-1"), ("VMA_SELECT_POLL", "-1"), ("VMA_RX_UDP_POLL_OS_RATIO", "0"), ("VMA_SELECT_POLL_OS_RATIO", "0")];
    assert_eq!(number("expiring", &[&never[..], &[("VMA_SELECT_SKIP_OS", "0")]].concat()), 3);
}

#[test]
fn the_progress_threads_place() {
    let everywhere = says("thread", &[]);
    let first = everywhere[1].split([',', '-']).next().expect("a CPU").to_owned();
    assert_eq!(says("thread", &[("VMA_INTERNAL_THREAD_AFFINITY", &first)])[1], first);
    let output = run("thread", &[("VMA_INTERNAL_THREAD_AFFINITY", "8000")]);
    assert_eq!(text(&output.stderr).matches("VMA_INTERNAL_THREAD_AFFINITY").count(), 1, "{}", text(&output.stderr));
    let group = scratch("params-group");
    std::fs::create_dir_all(&group).expect("a directory");
    std::fs::write(group.join("tasks"), "").expect("a file");
    let thread = says("thread", &[("VMA_INTERNAL_THREAD_CPUSET", &group.to_string_lossy())])[0].clone();
    assert_eq!(std::fs::read_to_string(group.join("tasks")).expect("a file"), thread);
}

#[test]
fn send_buffers() {
    let (few, many) = (says("buffers", &[("VMA_TX_BUFS", "16")]), says("buffers", &[]));
    assert_eq!((few[1].as_str(), many[1].as_str()), ("0", "0"), "all that was taken arrives");
    let (few, many): (u64, u64) = (few[0].parse().expect("a number"), many[0].parse().expect("a number"));
    assert!(few <= 16 << 15 && few < many, "{few} and {many}");
}

#[test]
fn how_many_connections_begin() {
    assert_eq!(number("rate", &[]), 0);
    assert_eq!(number("rate", &[("VMA_TCP_MAX_SYN_RATE", "1")]), 1);
}

#[test]
fn polls_that_sends_make() {
    // The progress thread would look as well.
    let alone = [("VMA_PROGRESS_ENGINE_INTERVAL", "10000"), ("VMA_RX_BYTES_MIN", "1"), ("VMA_CQ_POLL_BATCH_MAX", "4")];
    assert_eq!(number("piling", &alone), 1);
    assert_eq!(number("piling", &[&alone[..], &[("VMA_RX_POLL_ON_TX_TCP", "1")]].concat()), 0);
}

#[test]
fn each_sockets_statistics() {
    let file = scratch("params-sockets.json");
    let _ = std::fs::remove_file(&file);
    says("use", &[("VMA_STATS_FILE", &file.to_string_lossy())]);
    let lines = std::fs::read_to_string(&file).expect("the sockets left a line each");
    let sockets: Vec<SocketReport> = lines.lines().map(|line| serde_json::from_str(line).expect("a line is a report")).collect();
    let states: Vec<_> = sockets.iter().map(|socket| (socket.protocol.as_str(), socket.state.as_str())).collect();
    assert_eq!(states[0], ("tcp", "LISTEN"), "it was closed first");
    assert_eq!(sockets.len(), 5, "and the others were open when the process ended: {states:?}");
    assert!(sockets.iter().filter(|socket| socket.rx_packets > 0).count() >= 3, "{sockets:?}");
}

#[test]
fn a_faults_place() {
    for (set, lines) in [("0", 0), ("1", 1)] {
        let output = run("crash", &[("VMA_HANDLE_SIGSEGV", set)]);
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "timeout(1) ends as its program did");
        let said = text(&output.stderr);
        assert_eq!(said.matches("VMA PANIC: segmentation fault").count(), lines, "{said}");
        assert_eq!(said.contains("main"), lines == 1, "{said}");
    }
}

#[test]
fn switched_off() {
    assert_eq!(report("use", &[]).device.map(|device| device.kind).as_deref(), Some("shm"));
    let output = run("use", &[("VMA_OFFLOADED_SOCKETS", "0"), ("VMA_TRACELEVEL", "info")]);
    let said = text(&output.stderr);
    let advice = said.lines().find(|line| line.contains("not offloading (switched-off)")).unwrap_or_else(|| panic!("{said}"));
    assert!(advice.contains("VMA_OFFLOADED_SOCKETS") && !advice.contains("RINGWAY_DEVICE"), "{advice}");
}

#[test]
fn one_bad_value_is_one_warning_whatever_it_is_the_value_of() {
    for (name, value) in [
        ("VMA_RING_ALLOCATION", "99"),
        ("VMA_HUGETBL", "abc"),
        ("VMA_RX_POLL_OS_RATIO", "abc"),
        ("VMA_API_LAYOUT", "7"),
        ("VMA_MSS", "5"),
        ("VMA_MTU", "1"),
        ("VMA_RX_PREFETCH_BYTES_BEFORE_POLL", "5"),
        ("RINGWAY_DEVICE", "foo"),
        ("RINGWAY_DEVICE", "mlx5"),
    ] {
        let output = run("use", &[(name, value)]);
        let said = text(&output.stderr);
        assert_eq!((text(&output.stdout).as_str(), said.lines().count()), ("done\n", 1), "{name}={value}: {said}");
        assert!(said.starts_with(&format!("VMA WARNING: {name}={value} ")), "{said}");
    }
    let told = text(&run("use", &[("RINGWAY_DEVICE", "foo"), ("VMA_TRACELEVEL", "info")]).stderr);
    assert!(told.contains("not offloading (unknown-device)"), "no other device takes its place: {told}");
    assert_eq!(says("tcp", &[("VMA_MSS", "5"), ("VMA_MTU", "1")]), ["65495", "1"], "the default, and not the nearest");
}

#[test]
fn a_bad_value_is_the_default_and_one_line() {
    let wrong = [("VMA_RX_POLL", "banana"), ("VMA_CQ_POLL_BATCH_MAX", "129"), ("VMA_SPEC", "warp"), ("VMA_THREAD_MODE", "9")];
    let output = run("use", &wrong);
    assert_eq!(text(&output.stdout), "done\n");
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), wrong.len(), "{said}");
    for (name, value) in wrong {
        assert_eq!(said.lines().filter(|line| line.starts_with("VMA WARNING: ") && line.contains(&format!("{name}={value} "))).count(), 1);
    }
    assert!(report("use", &wrong).ring.rx_packets > 0, "it is offloaded all the same");
}

#[test]
fn the_log_begins_with_what_was_set() {
    assert_eq!(text(&run("use", &[]).stderr), "", "nothing is said by default");
    let output = run("use", &[("VMA_TRACELEVEL", "INFO"), ("VMA_RX_POLL", "-1")]);
    assert_eq!(text(&output.stdout), "done\n");
    let said = text(&output.stderr);
    let words: Vec<Vec<&str>> = said.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(words.contains(&vec!["VMA", "INFO:", "Rx", "poll", "-1", "[VMA_RX_POLL]"]), "{said}");
    assert!(words.contains(&vec!["VMA", "INFO:", "Tracelevel", "info", "[VMA_TRACELEVEL]"]), "{said}");
    let file = scratch("params-%d.log").to_string_lossy().into_owned();
    let output = run("use", &[("VMA_TRACELEVEL", "info"), ("VMA_LOG_FILE", &file), ("VMA_LOG_DETAILS", "3")]);
    assert_eq!(text(&output.stderr), "");
    let logs = std::fs::read_dir(env!("CARGO_TARGET_TMPDIR")).expect("a directory").filter_map(Result::ok).map(|entry| entry.path());
    let logs: Vec<_> =
        logs.filter(|path| path.extension().is_some_and(|e| e == "log") && path.to_string_lossy().contains("params-")).collect();
    let said = std::fs::read_to_string(logs.last().expect("the log")).expect("the log");
    logs.iter().for_each(|log| drop(std::fs::remove_file(log)));
    assert!(said.lines().all(|line| line.starts_with("Time: ") && line.contains(" Pid: ") && line.contains(" Tid: ")), "{said}");
}
