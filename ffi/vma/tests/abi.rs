//! Nobody can tell: C programs print what they observe of every call (results, errno, bytes), once on the kernel and once
//! with the library preloaded, and both must print the same. The second run must also have been offloaded.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What ends a program that hangs. (One that waits for a processor each time may need a minute.)
const TIMEOUT_S: &str = "300";

fn compile(name: &str) -> PathBuf {
    compile_as(name, name, &[])
}

fn compile_as(name: &str, program: &str, defines: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/abi").join(format!("{name}.c"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(program);
    let status = Command::new("gcc")
        .args(["-O1", "-Wall", "-Wextra", "-Wno-unused-result", "-pthread"])
        .args(defines)
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .status()
        .expect("gcc must be installed");
    assert!(status.success(), "{} does not compile", source.display());
    program
}

/// The library that this build made: beside the test. (One directory up is what `cargo build` made last, perhaps long ago.)
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let profile = test.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    let library = profile.join("deps/libvma.so");
    assert!(library.exists(), "libvma.so is built with its tests");
    library
}

fn run_with(program: &Path, preload: Option<(&Path, &Path)>, settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new("timeout");
    command.arg(TIMEOUT_S).arg(program).env_remove("LD_PRELOAD").envs(settings.iter().copied());
    if let Some((library, statistics)) = preload {
        command.env("LD_PRELOAD", library).env("RINGWAY_STATS_FILE", statistics);
    }
    command.output().expect("timeout(1) is part of coreutils")
}

/// What the preloaded run reported.
fn same_on_both(name: &str) -> String {
    observe(name, &compile(name))
}

/// The same program, whose sockets are IPv6's.
fn same_on_both_by_ipv6(name: &str) -> String {
    let name_of_it = format!("{name}6");
    observe(&name_of_it, &compile_as(name, &name_of_it, &["-DSIX"]))
}

/// The same program, whose listeners are IPv6's and take IPv4 too, which its clients are of.
fn same_on_both_by_either(name: &str) -> String {
    let name_of_it = format!("{name}46");
    observe(&name_of_it, &compile_as(name, &name_of_it, &["-DBOTH"]))
}

/// The same program, whose sockets are on different rings: by this number of VMA_RING_ALLOCATION_LOGIC_RX.
fn same_with_rings(name: &str, logic: &str) -> String {
    let name_of_it = format!("{name}-{logic}");
    observe_with(&name_of_it, &compile_as(name, &name_of_it, &[]), &[("VMA_RING_ALLOCATION_LOGIC_RX", logic)])
}

fn observe(name: &str, program: &Path) -> String {
    observe_with(name, program, &[])
}

fn observe_with(name: &str, program: &Path, settings: &[(&str, &str)]) -> String {
    same(name, &on_the_kernel(program), &on_the_ring(name, program, settings))
}

/// What the program is to observe.
fn on_the_kernel(program: &Path) -> Output {
    let kernel = run_with(program, None, &[]);
    assert!(kernel.status.success(), "on the kernel: {:?}\n{}", kernel.status, String::from_utf8_lossy(&kernel.stdout));
    kernel
}

/// Where a preloaded run of that name writes its statistics.
fn statistics_of(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.stats"))
}

/// What the program observes with the library preloaded, and so set.
fn on_the_ring(name: &str, program: &Path, settings: &[(&str, &str)]) -> Output {
    let statistics = statistics_of(name);
    let _ = std::fs::remove_file(&statistics);
    run_with(program, Some((&library(), &statistics)), settings)
}

/// Both observed the same; what the preloaded run reported.
fn same(name: &str, kernel: &Output, ring: &Output) -> String {
    let (kernel_says, ring_says) = (String::from_utf8_lossy(&kernel.stdout), String::from_utf8_lossy(&ring.stdout));
    let (mut differences, mut lines, mut heading) = (String::new(), ring_says.lines(), "");
    for (at, expected) in kernel_says.lines().enumerate() {
        if !expected.starts_with(' ') {
            heading = expected;
        }
        let found = lines.next().unwrap_or("(nothing)");
        if expected != found {
            differences += &format!("line {}, under \"{heading}\":\nkernel: {expected}\nring:   {found}\n", at + 1);
        }
    }
    lines.for_each(|extra| differences += &format!("ring only: {extra}\n"));
    let ended = format!("{:?}, on the kernel {:?}\n{}", ring.status, kernel.status, String::from_utf8_lossy(&ring.stderr));
    assert!(differences.is_empty(), "{name} can tell: it ended with {ended}\n{differences}");
    assert_eq!(ring.status.code(), kernel.status.code(), "{ended}");
    assert!(kernel_says.lines().count() > 10, "{name} observed something");
    let report = std::fs::read_to_string(statistics_of(name)).expect("the preloaded program wrote its statistics");
    let carried: u64 = report
        .lines()
        .map(|line| {
            // (A process that is killed while it writes its line leaves half of it, and the next one goes on behind that.)
            let whole = line.rfind("{\"pid\":").map_or(line, |at| &line[at..]);
            let report: serde_json::Value = serde_json::from_str(whole).expect("a line is a report");
            report["ring"]["rx_packets"].as_u64().unwrap_or(0)
        })
        .sum();
    assert!(carried > 0, "{name} was not offloaded: {report}");
    report
}

#[test]
fn streams() {
    same_on_both("stream");
}

#[test]
fn ipv6() {
    same_on_both("six");
}

/// What the others show of IPv4's sockets, of IPv6's.
#[test]
fn streams_of_ipv6() {
    for name in ["stream", "endings", "undone", "halved", "asked", "alike", "ports"] {
        same_on_both_by_ipv6(name);
    }
}

#[test]
fn processes_of_ipv6() {
    for name in ["forked", "inherited", "child", "told", "owed", "kept", "killed", "share"] {
        same_on_both_by_ipv6(name);
    }
}

#[test]
fn datagrams_and_waits_of_ipv6() {
    for name in ["datagram", "batches", "nowhere", "fits", "spread", "wide", "late", "gathered", "ready", "urgent"] {
        same_on_both_by_ipv6(name);
    }
}

#[test]
fn listeners_of_both_families() {
    for name in ["stream", "endings", "forked", "inherited", "kept", "share", "urgent"] {
        same_on_both_by_either(name);
    }
}

/// With one ring for all, with one for each thread, for each core, and for each socket.
#[test]
fn threads_that_use_each_others_connections() {
    same_on_both("crossed");
    for logic in ["20", "30", "10"] {
        same_with_rings("crossed", logic);
    }
}

/// Where nothing is gained by spinning, too: VMA_RX_POLL=0 and VMA_SELECT_POLL=0.
#[test]
fn a_thread_that_sleeps_for_one_socket() {
    sleeps("asleep", "asleep", &[]);
}

#[test]
fn a_thread_that_sleeps_for_several_sockets() {
    sleeps("asleep", "asleep_for_several", &["-DSEVERAL"]);
}

#[test]
fn a_thread_that_waits_for_room() {
    // (It writes much, and sleeps for shorter.)
    in_every_way("full", "full", &[], 2);
}

#[test]
fn a_thread_that_is_stopped_while_it_waits() {
    sleeps("resumed", "resumed", &[]);
}

#[test]
fn a_thread_that_waits_for_others_sockets() {
    // (Its threads do not sleep much.)
    in_every_way("gathers", "gathers", &[], 2);
}

/// With one ring for all, with one for each thread, and for each socket; each where nothing is gained by spinning, too. Such a program does little but
/// sleep: four of its runs have room beside each other.
fn sleeps(source: &str, name: &str, defines: &[&str]) {
    in_every_way(source, name, defines, 4);
}

/// The same, so many runs at once.
fn in_every_way(source: &str, name: &str, defines: &[&str], at_once: usize) {
    let program = compile_as(source, name, defines);
    let mut runs = vec![None, Some((name.to_owned(), vec![]))];
    for logic in ["0", "20", "10"] {
        for poll in [None, Some("0")] {
            let spins = poll.map(|poll| [("VMA_RX_POLL", poll), ("VMA_SELECT_POLL", poll)]);
            let settings = core::iter::once(("VMA_RING_ALLOCATION_LOGIC_RX", logic)).chain(spins.into_iter().flatten()).collect();
            runs.push(Some((format!("{name}-{logic}-{}", poll.unwrap_or("default")), settings)));
        }
    }
    // (The first is the kernel's.)
    let run = |run: &Option<(String, Vec<_>)>| match run {
        None => on_the_kernel(&program),
        Some((name, settings)) => on_the_ring(name, &program, settings),
    };
    let mut observed = Vec::new();
    for runs in runs.chunks(at_once) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = runs.iter().map(|one| scope.spawn(|| run(one))).collect();
            observed.extend(threads.into_iter().map(|thread| thread.join().expect("it runs")));
        });
    }
    for (one, ring) in runs.iter().zip(&observed).skip(1) {
        same(&one.as_ref().expect("only the first is the kernel's").0, &observed[0], ring);
    }
}

/// Connections go over to the rings of the threads that use them, while they do: after so many calls, or each time.
#[test]
fn threads_that_go_on_with_others_connections() {
    let connections = 120;
    for (logic, ratio, least, most) in
        [("20", "100", 40, 3 * connections), ("20", "0", 60, u64::MAX), ("30", "5", 1, u64::MAX), ("20", "-1", 0, 0)]
    {
        let name = format!("over-{logic}-{ratio}");
        let ratios = [("VMA_RING_MIGRATION_RATIO_RX", ratio), ("VMA_RING_MIGRATION_RATIO_TX", ratio)];
        let settings = [("VMA_RING_ALLOCATION_LOGIC_RX", logic), ratios[0], ratios[1]];
        let report = observe_with(&name, &compile_as("over", &name, &[]), &settings);
        let went_over = migrations(&report);
        assert!((least..=most).contains(&went_over), "{name}: {went_over} went over");
    }
    let by_default = same_on_both("over");
    assert!(migrations(&by_default) >= 40, "each thread has a ring where nobody says otherwise");
    assert!(migrations(&same_on_both_by_ipv6("over")) >= 40);
}

/// UDP sockets go over, too, while other processes send to them: no datagram is lost, comes twice, or before its turn.
#[test]
fn threads_that_hand_datagram_sockets_to_each_other() {
    for name in ["handed", "handed6"] {
        let report = if name == "handed" { same_on_both("handed") } else { same_on_both_by_ipv6("handed") };
        // (Of seven, each may go over five times.)
        let went_over = migrations(&report);
        assert!(went_over >= 14, "{name}: {went_over} went over");
    }
    let settings = [("VMA_RING_MIGRATION_RATIO_RX", "-1"), ("VMA_RING_MIGRATION_RATIO_TX", "-1")];
    let report = observe_with("handed-never", &compile_as("handed", "handed-never", &[]), &settings);
    assert_eq!(migrations(&report), 0, "none is to go over");
}

/// A peer that dies then, or is stopped for a while, ends the connection as ever, or goes on with it.
#[test]
fn processes_that_die_as_their_connections_go_over() {
    for ratio in ["0", "20"] {
        let name = format!("bereft-{ratio}");
        let settings = [("VMA_RING_MIGRATION_RATIO_RX", ratio), ("VMA_RING_MIGRATION_RATIO_TX", ratio)];
        let report = observe_with(&name, &compile_as("bereft", &name, &[]), &settings);
        assert!(migrations(&report) > 0, "{name}: none went over");
    }
}

/// How many connections went over to other rings, in all processes of a program.
fn migrations(report: &str) -> u64 {
    let of = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?["ring"]["migrations"].as_u64();
    report.lines().filter_map(of).sum()
}

/// The same for UDP.
#[test]
fn threads_that_change_each_others_sockets() {
    same_on_both("apart");
    for logic in ["20", "30", "10"] {
        same_with_rings("apart", logic);
    }
}

/// Who looks for ever finds what has come, although nothing else happens.
#[test]
fn threads_that_look_for_ever() {
    same_on_both("spun");
    for logic in ["0", "20"] {
        let name = format!("spun-{logic}");
        let settings = [("VMA_RING_ALLOCATION_LOGIC_RX", logic), ("VMA_RX_POLL", "-1"), ("VMA_SELECT_POLL", "-1")];
        observe_with(&name, &compile_as("spun", &name, &[]), &settings);
    }
}

/// Two rings of a process are to each other what two processes are: with one for each socket, every connection is between two.
#[test]
fn rings_of_streams() {
    for name in ["stream", "undone", "asked", "alike", "ports", "stale", "again", "held", "urgent"] {
        same_with_rings(name, "10");
    }
}

#[test]
fn rings_of_datagrams() {
    for name in ["datagram", "fits", "spread", "gathered", "late"] {
        same_with_rings(name, "10");
    }
}

#[test]
fn rings_of_processes() {
    for name in ["forked", "inherited", "child", "told", "owed", "kept", "share", "crowd"] {
        same_with_rings(name, "10");
    }
}

#[test]
fn system_calls_of_a_connection() {
    same_on_both("needless");
}

#[test]
fn ports_that_nobody_named() {
    same_on_both("ports");
}

#[test]
fn datagrams() {
    same_on_both("datagram");
}

#[test]
fn pointers_that_lead_nowhere() {
    same_on_both("nowhere");
}

#[test]
fn messages_in_batches() {
    same_on_both("batches");
}

#[test]
fn flags_and_control_messages() {
    same_on_both("flags");
}

#[test]
fn options_of_every_level() {
    same_on_both("answers");
}

#[test]
fn connections_that_are_half_closed() {
    same_on_both("halved");
}

#[test]
fn sockets_of_an_interface_or_a_processor() {
    same_on_both("devices");
}

#[test]
fn programs_that_choose_among_sockets() {
    same_on_both("chosen");
}

#[test]
fn drops_are_told() {
    let report = same_on_both("drops");
    assert!(!report.contains("kernel-only-option"), "it was asked of the ring: {report}");
}

#[test]
fn groups_and_who_wants_all_of_them() {
    same_on_both("groups");
}

#[test]
fn processes() {
    same_on_both("process");
}

#[test]
fn forks_that_no_handler_sees() {
    same_on_both("unannounced");
}

#[test]
fn both_ends_say_why_a_connection_moved() {
    same_on_both("told");
    let report = std::fs::read_to_string(Path::new(env!("CARGO_TARGET_TMPDIR")).join("told.stats")).expect("it was there just now");
    let mut moved = 0;
    for line in report.lines() {
        let report: serde_json::Value = serde_json::from_str(line).expect("a line is a report");
        for decision in report["decisions"].as_array().into_iter().flatten() {
            let (what, reason) = (decision["what"].as_str(), decision["reason"].as_str());
            if what == Some("move") || what == Some("accept") && reason != Some("") {
                assert_eq!(reason, Some("kernel-only-option"), "{report}");
                moved += decision["count"].as_u64().unwrap_or(0);
            }
        }
    }
    // Two connections, each of which has two ends.
    assert_eq!(moved, 4, "{report}");
}

#[test]
fn many_short_connections_that_change_hands() {
    same_on_both("crowd");
}

#[test]
fn listeners_that_go_while_clients_come() {
    same_on_both("withdrawn");
}

#[test]
fn inherited_listeners() {
    same_on_both("inherited");
}

#[test]
fn what_a_parent_leaves() {
    same_on_both("child");
}

#[test]
fn late_calls() {
    same_on_both("late");
}

#[test]
fn endings() {
    same_on_both("endings");
}

#[test]
fn killed_processes_end_their_streams() {
    same_on_both("killed");
}

#[test]
fn what_is_owed_at_the_end() {
    same_on_both("owed");
}

#[test]
fn what_is_kept_for_others() {
    same_on_both("kept");
}

#[test]
fn silent_peers_hold_up_nobody() {
    same_on_both("silent");
}

#[test]
fn names_of_processes_matter_to_nobody() {
    same_on_both("namespaces");
}

#[test]
fn who_has_not_bound_an_address_gets_nothing() {
    same_on_both("unbound");
}

#[test]
fn strangers_leave_nothing() {
    let output = run_with(&compile("stranger"), Some((&library(), &Path::new(env!("CARGO_TARGET_TMPDIR")).join("stranger.stats"))), &[]);
    let says = String::from_utf8_lossy(&output.stdout);
    assert_eq!(says.lines().filter(|line| line.ends_with(": gone")).count(), 5, "{says}");
}

#[test]
fn what_is_lost_at_the_end_is_told() {
    let program = compile("stopped");
    let statistics = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stopped.stats");
    let output = run_with(&program, Some((&library(), &statistics)), &[]);
    let (says, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(says.contains("some of it 1, then ECONNRESET"), "{says}");
    assert!(says.contains("status = 0"), "{says}");
    let warnings: Vec<&str> = log.lines().filter(|line| line.starts_with("VMA WARNING: the ")).collect();
    assert_eq!(warnings.len(), 1, "{log}");
    assert!(warnings[0].contains("bytes of the connection 127.0.0.1:") && warnings[0].contains("are lost"), "{log}");
    assert!(warnings[0].contains("(and so with "), "{log}");
}

/// A log that cannot be written is not written: neither a pipe that is full, nor one that nobody has any more, is the program's end.
#[test]
fn a_log_that_nobody_reads_stops_nothing() {
    let program = compile("stopped");
    let statistics = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unread.stats");
    let told = |stderr: std::process::Stdio| {
        let mut command = Command::new("timeout");
        command.arg(TIMEOUT_S).arg(&program).env("LD_PRELOAD", library()).env("RINGWAY_STATS_FILE", &statistics).stderr(stderr);
        let output = command.output().expect("it runs");
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
    };
    let (unread, full) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&full, true).expect("it is a descriptor");
    while rustix::io::write(&full, &[b'.'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&full, false).expect("it is a descriptor");
    let (says, code) = told(full.into());
    assert!(says.contains("status = 0") && code == Some(0), "{code:?}: {says}");
    drop(unread);
    let (reader, broken) = std::io::pipe().expect("a pipe");
    drop(reader);
    let (says, code) = told(broken.into());
    assert!(says.contains("status = 0") && code == Some(0), "{code:?}: {says}");
}

#[test]
fn what_is_held_goes_on_by_itself() {
    same_on_both("held");
}

#[test]
fn addresses_used_again() {
    same_on_both("again");
}

#[test]
fn what_the_peer_has_done_is_known() {
    same_on_both("stale");
}

#[test]
fn what_is_ready_comes_before_a_signal() {
    same_on_both("ready");
}

/// A library that was opened by dlopen(3) does not see which handlers the program installs; and calls that look for ever see signals all the same.
#[test]
fn signals_that_come_while_a_call_looks() {
    let program = compile("opened");
    let kernel = run_with(&program, None, &[]);
    let says = |output: &Output| (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned());
    assert!(kernel.status.success(), "{:?}", says(&kernel));
    for poll in [None, Some("-1")] {
        for opened in [false, true] {
            let mut command = Command::new("timeout");
            command.arg(TIMEOUT_S).arg(&program).env_remove("LD_PRELOAD");
            if let Some(poll) = poll {
                command.env("VMA_RX_POLL", poll).env("VMA_SELECT_POLL", poll);
            }
            if opened {
                command.arg(library())
            } else {
                command.env("LD_PRELOAD", library())
            };
            let ours = command.output().expect("timeout(1) is part of coreutils");
            assert_eq!(says(&ours), says(&kernel), "opened by dlopen: {opened}, poll {poll:?}");
        }
    }
}

#[test]
fn restarts() {
    same_on_both("restart");
}

#[test]
fn shared_connections() {
    same_on_both("share");
}

#[test]
fn a_server_that_forks_for_each_connection() {
    let report = same_on_both("forked");
    let of = |process: &serde_json::Value, what: &str, reason: &str| -> u64 {
        let decisions = process["decisions"].as_array().expect("a report has decisions");
        let is_it = |decision: &&serde_json::Value| decision["what"] == what && decision["reason"] == reason;
        decisions.iter().filter(is_it).filter_map(|decision| decision["count"].as_u64()).sum()
    };
    let processes: Vec<serde_json::Value> = report.lines().map(|line| serde_json::from_str(line).expect("a line is a report")).collect();
    let taken: Vec<_> = processes.iter().filter(|process| of(process, "fork", "") > 0).collect();
    // Of 19 children that have a connection for themselves, and whose parents close it at once, a loaded machine may keep some parents from it.
    assert!(taken.len() >= 12, "{} children went on with their parent's connection on a ring of their own", taken.len());
    let served = taken.iter().filter(|process| process["ring"]["rx_packets"].as_u64().unwrap_or(0) >= 50);
    assert!(served.count() >= 10, "they were served there: {report}");
}

#[test]
fn deaths_while_a_connection_changes_hands() {
    same_on_both("children_killed");
}

#[test]
fn connections_are_shared_out_among_listeners() {
    same_on_both("spread");
}

#[test]
fn a_socket_that_finds_its_peer_stays_on_the_ring() {
    let report = same_on_both("wide");
    let report: serde_json::Value = serde_json::from_str(report.trim()).expect("the report of one process");
    let carried = report["ring"]["rx_packets"].as_u64().unwrap_or(0);
    assert!(carried >= 1200, "{carried} frames: three times 100 exchanges without a peer, and as many with one");
}

/// That the first datagram takes the kernel has no consequences: who answers finds the one to answer.
#[test]
fn who_answers_a_datagram_of_the_kernels_finds_the_asker() {
    for report in [same_on_both("answered"), same_on_both_by_ipv6("answered")] {
        assert!(!report.contains("no-offloaded-peer"), "{report}");
    }
}

#[test]
fn datagrams_go_to_the_socket_that_fits_best() {
    same_on_both("fits");
}

#[test]
fn numbers() {
    same_on_both("numbers");
}

#[test]
fn numbers_while_the_library_makes_descriptors_of_its_own() {
    same_on_both("lowest");
}

#[test]
fn cancellation() {
    same_on_both("cancel");
}

#[test]
fn streams_of_stdio() {
    same_on_both("stdio");
}

#[test]
fn pipes_and_files() {
    same_on_both("pipes");
}

#[test]
fn how_much_at_once() {
    same_on_both("marks");
}

#[test]
fn what_is_taken_back() {
    same_on_both("undone");
}

#[test]
fn gathered_datagrams() {
    same_on_both("gathered");
}

#[test]
fn what_is_asked() {
    same_on_both("asked");
}

#[test]
fn what_is_sent_again_is_counted_in_bytes() {
    let report = same_on_both("resent");
    let reports = report.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let again = |report: serde_json::Value| -> u64 {
        report["sockets"].as_array().into_iter().flatten().filter_map(|socket| socket["retransmissions"].as_u64()).sum()
    };
    assert!(reports.map(again).sum::<u64>() > 0, "nothing was sent again: {report}");
}

#[test]
fn signals() {
    same_on_both("signals");
}

#[test]
fn alike_connections() {
    same_on_both("alike");
}

#[test]
fn congestion_controllers() {
    let report = same_on_both("congestion");
    assert!(!report.contains("kernel-only-option"), "an option moved a connection: {report}");
}

#[test]
fn how_much_more_there_is() {
    let report = same_on_both("inq");
    assert!(!report.contains("kernel-only-option"), "an option moved a connection: {report}");
}

#[test]
fn urgent_data() {
    let report = same_on_both("urgent");
    assert!(report.contains("urgent-data"), "the reason of a move is told: {report}");
}
