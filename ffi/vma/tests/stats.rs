//! Statistics from the outside: what a preloaded program publishes, when it does, and that no reader can hurt it.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use ringway_report::birth::Birth;
use ringway_report::published::{BODY, FILE_PREFIX, HEADER, Header, LOOK, REQUEST, Request};
use ringway_report::reader::{Published, ReadError, Snapshot, remove_leftovers};
use ringway_report::{ProcessReport, SOCKETS, SocketReport, TimerKind, TimerReport};

/// However busy the machine is, an answer comes within this.
const PATIENCE: Duration = Duration::from_secs(20);

/// The preloaded program, in a directory of its own.
struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    folder: PathBuf,
    /// The receiver, the sender, and both ends of the connection.
    fds: Vec<i32>,
}

fn compiled() -> PathBuf {
    // (Tests of one binary run at the same time.)
    static ONCE: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    ONCE.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stats-program");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/stats.c");
        let mut compiler = Command::new("gcc");
        compiler.args(["-O1", "-Wall", "-Wextra", "-Wno-unused-result", "-pthread", "-o"]).arg(&program).arg(&source);
        compiler.arg("-I").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"));
        assert!(compiler.status().expect("gcc must be installed").success(), "stats.c does not compile");
        program
    })
    .clone()
}

/// The library that this build made: beside the test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let profile = test.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    profile.join("deps/libvma.so")
}

impl Program {
    fn start(name: &str, environment: &[(&str, &str)]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stats-{name}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new(compiled());
        command.env("LD_PRELOAD", library()).env("VMA_STATS_SHMEM_DIR", &folder).env("VMA_LOG_FILE", folder.join("log"));
        command.envs(environment.iter().copied()).current_dir(&folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut program = Self { child, input, output, folder, fds: Vec::new() };
        program.fds = program.line().split_whitespace().skip(1).map(|fd| fd.parse().unwrap()).collect();
        program
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    fn say(&mut self, what: &str) {
        writeln!(self.input.as_mut().unwrap(), "{what}").unwrap();
    }

    fn does(&mut self, what: &str) {
        self.say(what);
        assert_eq!(self.line(), "done\n", "{what}");
    }

    fn path_of(&self, pid: u32) -> PathBuf {
        self.folder.join(format!("{FILE_PREFIX}{pid}"))
    }

    fn path(&self) -> PathBuf {
        self.path_of(self.child.id())
    }

    fn open(&self) -> Published {
        Published::open(&self.path()).unwrap()
    }

    fn header(&self) -> Header {
        let mut bytes = [0; HEADER.end];
        File::open(self.path()).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        Header::decode(&bytes).unwrap()
    }

    /// Ends in order.
    fn end(mut self) -> PathBuf {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
        self.folder.clone()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ask_for(published: &mut Published, request: Request) -> Snapshot {
    published.ask(request).unwrap();
    ringway_host::members::query(published.control(), LOOK, PATIENCE).unwrap();
    let snapshot = published.read(PATIENCE).unwrap();
    assert!(snapshot.is_answer, "no answer came");
    snapshot
}

fn ask(published: &mut Published) -> Snapshot {
    ask_for(published, Request::default())
}

fn socket(snapshot: &Snapshot, fd: i32) -> &SocketReport {
    snapshot.report.sockets.iter().find(|socket| socket.fd == fd).unwrap_or_else(|| panic!("no {fd} among {snapshot:#?}"))
}

#[test]
fn a_reader_is_told_what_happened() {
    let mut program = Program::start("told", &[]);
    assert_eq!(fs::metadata(program.path()).unwrap().permissions().mode() & 0o133, 0, "others may read, and no more");
    let mut published = program.open();
    assert!(published.may_ask() && published.is_held());
    assert!(matches!(published.read(Duration::ZERO), Err(ReadError::Empty(_))));
    program.does("work");
    let snapshot = ask(&mut published);
    let report = &snapshot.report;
    assert_eq!((report.pid, report.program.as_str(), report.sockets_total), (program.child.id(), "stats-program", 4));
    let [receiver, sender, client, server] = program.fds[..] else { panic!("{:?}", program.fds) };
    let udp = socket(&snapshot, receiver);
    assert_eq!((udp.rx_packets, udp.rx_bytes, udp.rx_eagains, udp.rx_errors), (100, 1400, 1, 0));
    assert!(udp.offloaded && udp.blocking && udp.multicast_loop && udp.recv_packets_max >= 1 && udp.recv_queue_max >= 14);
    assert_eq!((udp.recv_queue, udp.recv_limit > 100_000, udp.rx_thread), (0, true, 0));
    let udp = socket(&snapshot, sender);
    assert_eq!((udp.tx_packets, udp.tx_bytes), (100, 1400));
    let (client, server) = (socket(&snapshot, client), socket(&snapshot, server));
    assert_eq!((client.tx_bytes, server.rx_bytes, client.rx_bytes), (300_000, 300_000, 10));
    assert_eq!((client.state.as_str(), client.remote.as_str()), ("ESTABLISHED", server.local.as_str()));
    let tcp = client.tcp.expect("a connection of the ring");
    assert!(tcp.mss > 1000 && tcp.cwnd > 0 && tcp.snd_wnd > 0 && tcp.rtt_us > 0 && tcp.rto_us > 0, "{tcp:?}");
    let ring = &report.ring;
    assert!(ring.batches > 0 && ring.batch_max > 0 && ring.sockets >= 4 && ring.tx_buffers > 1000 && report.gathering_ns > 0, "{ring:?}");

    // Since somebody watches, more is kept.
    program.does("work");
    let snapshot = ask(&mut published);
    let threads = (socket(&snapshot, receiver).rx_thread, socket(&snapshot, sender).tx_thread);
    assert_eq!(threads, (program.child.id().cast_signed(), program.child.id().cast_signed()));
    program.end();
}

/// As `ringway sockets` asks.
fn sockets(control: &str) -> ProcessReport {
    serde_json::from_str(&ringway_host::members::query(control, SOCKETS, PATIENCE).unwrap()).unwrap()
}

#[test]
fn sockets_are_told_as_ss_shows_them() {
    let mut program = Program::start("sockets", &[]);
    program.does("work");
    let header = program.header();
    let report = sockets(&header.control);
    assert_eq!(report.without_owner, []);
    let of = |report: &ProcessReport, fd: i32| report.sockets.iter().find(|socket| socket.fd == fd).unwrap().clone();
    let (client, server) = (of(&report, program.fds[2]), of(&report, program.fds[3]));
    assert_eq!((client.device.as_str(), server.device.as_str(), client.kernel_tcp), ("shm", "shm", None));
    let tcp = client.tcp.unwrap();
    assert_eq!((tcp.acked_bytes, tcp.retransmitted_bytes, tcp.timer, tcp.sack), (300_000, 0, None, true));
    assert_eq!((tcp.window_scales.is_some(), tcp.since_sent_ms < 60_000), (true, true));

    // Who closes first keeps the connection on the ring for a while, and its program has it no more.
    program.does("part");
    let report = sockets(&header.control);
    let waiting = &report.without_owner[..];
    assert!(matches!(waiting, [one] if one.fd == -1 && one.state == "TIME-WAIT" && one.local == client.local), "{waiting:#?}");
    assert!(matches!(waiting[0].tcp.unwrap().timer, Some(TimerReport { kind: TimerKind::TimeWait, left_us: 1.. })), "{waiting:#?}");
    assert_eq!((report.sockets.len(), report.sockets_total, waiting[0].device.as_str()), (2, 2, "shm"));
    assert_eq!(ask(&mut program.open()).report.without_owner, [], "who asks for statistics is not told");

    // A connection that waits to be accepted, a listener, and both ends of what is the kernel's.
    program.say("wait");
    let listener = numbers(&mut program, "waits ")[0];
    assert_eq!(program.line(), "done\n");
    let report = sockets(&header.control);
    let told = of(&report, listener);
    assert_eq!((told.recv_queue, told.kernel_recv_queue, told.backlog, told.device.as_str()), (1, 0, 16, "shm"));
    let waits = report.without_owner.iter().find(|one| one.state == "ESTABLISHED").unwrap();
    assert_eq!(waits.local, told.local);
    program.end();
}

#[test]
fn what_waits_in_the_kernel_is_told() {
    let mut program = Program::start("sockets-kernel", &[]);
    program.say("kernels");
    let numbers = numbers(&mut program, "kernels ");
    assert_eq!(program.line(), "done\n");
    let report = sockets(&program.header().control);
    let of = |fd: i32| report.sockets.iter().find(|socket| socket.fd == fd).unwrap();
    let (listener, accepted) = (of(numbers[0]), of(numbers[1]));
    assert_eq!((listener.backlog, listener.kernel_recv_queue, accepted.device.as_str()), (16, 0, "kernel"));
    let tcp = accepted.kernel_tcp.unwrap();
    assert!(tcp.mss > 1000 && tcp.cwnd > 0 && tcp.rto_us > 0 && accepted.tcp.is_none(), "{tcp:?}");
    program.end();
}

#[test]
fn what_the_extra_api_does_is_told() {
    let mut program = Program::start("extra", &[]);
    program.does("extra");
    let snapshot = ask(&mut program.open());
    let (receiver, sender) = (socket(&snapshot, program.fds[0]), socket(&snapshot, program.fds[1]));
    assert_eq!((sender.tx_dummies, sender.tx_packets, receiver.rx_packets, receiver.held_packets), (3, 1, 1, 1));
    program.end();
}

#[test]
fn dummies_that_a_getsockname_sends_are_counted_and_those_it_cannot_are_no_errors() {
    let mut program = Program::start("named", &[("VMA_TRIGGER_DUMMY_SEND_GETSOCKNAME", "1")]);
    program.does("name");
    let snapshot = ask(&mut program.open());
    // (The receiver has nobody to send to.)
    let of = |fd| (socket(&snapshot, fd).tx_dummies, socket(&snapshot, fd).tx_errors);
    assert_eq!((of(program.fds[1]), of(program.fds[0])), ((5, 0), (0, 0)));
    program.end();
}

#[test]
fn rings_are_told() {
    let mut program = Program::start("rings", &[("VMA_RING_ALLOCATION_LOGIC_RX", "20"), ("VMA_RING_MIGRATION_RATIO_RX", "10")]);
    let mut published = program.open();
    let told = |snapshot: &Snapshot, fd| {
        let socket = socket(snapshot, fd);
        ([socket.rx_ring_user_id, socket.tx_ring_user_id], [socket.rx_ring_migrations, socket.tx_ring_migrations])
    };
    program.does("migrate");
    let snapshot = ask(&mut published);
    let [receiver, sender, ..] = program.fds[..] else { panic!("{:?}", program.fds) };
    assert_eq!((told(&snapshot, receiver), told(&snapshot, sender)), (([None; 2], [1, 0]), ([None; 2], [0; 2])));
    program.does("rings");
    let snapshot = ask(&mut published);
    assert_eq!((told(&snapshot, receiver).0, told(&snapshot, sender).0), ([Some(77); 2], [None; 2]));
    program.end();
}

/// Numbers behind a word, of the line that comes next.
fn numbers(program: &mut Program, word: &str) -> Vec<i32> {
    let line = program.line();
    line.strip_prefix(word).expect(&line).split_whitespace().map(|number| number.parse().unwrap()).collect()
}

#[test]
fn the_kernels_connections_have_names_and_states() {
    let mut program = Program::start("kernels", &[("VMA_STATS_FILE", "closed.%d")]);
    program.say("kernels");
    let numbers = numbers(&mut program, "kernels ");
    assert_eq!(program.line(), "done\n");
    let [listener, accepted, client, port, plain] = numbers[..] else { panic!("{numbers:?}") };
    let snapshot = ask(&mut program.open());
    let told = |fd| {
        let SocketReport { state, local, remote, offloaded, .. } = socket(&snapshot, fd).clone();
        (state, local, remote, offloaded)
    };
    let (state, local, remote, offloaded) = told(accepted);
    assert_eq!((state.as_str(), local, offloaded), ("ESTABLISHED", format!("127.0.0.1:{port}"), false));
    assert!(remote.starts_with("127.0.0.1:"), "{remote}");
    let (state, local, remote, offloaded) = told(client);
    assert_eq!((state.as_str(), remote, offloaded), ("ESTABLISHED", format!("127.0.0.1:{plain}"), false));
    assert!(local.starts_with("127.0.0.1:"), "{local}");
    assert_eq!((told(listener).0.as_str(), told(listener).1), ("LISTEN", format!("127.0.0.1:{port}")));
    // In the file of those that are closed, too.
    let file = program.folder.join(format!("closed.{}", program.child.id()));
    program.does("close");
    let lines = fs::read_to_string(&file).unwrap();
    let closed: SocketReport = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!((closed.fd, closed.local, closed.state.as_str()), (client, local, "ESTABLISHED"));
    program.end();
}

#[test]
fn a_listener_that_a_rule_left_to_the_kernel_has_its_name() {
    let rules = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stats-rules.conf");
    fs::write(&rules, "application-id stats-program *\nuse os tcp_server 127.0.0.2:*\n").unwrap();
    let mut program = Program::start("rule", &[("VMA_CONFIG_FILE", rules.to_str().unwrap())]);
    program.say("rule");
    let listener = numbers(&mut program, "listens ")[0];
    assert_eq!(program.line(), "done\n");
    let snapshot = ask(&mut program.open());
    let told = socket(&snapshot, listener);
    assert!(told.local.starts_with("127.0.0.2:") && told.remote.is_empty() && told.rule.is_some(), "{told:?}");
    assert_eq!(told.state, "LISTEN");
    program.end();
}

#[test]
fn members_of_groups_are_told() {
    let mut program = Program::start("groups", &[]);
    program.does("join");
    let snapshot = ask(&mut program.open());
    let socket = socket(&snapshot, program.fds[0]);
    assert_eq!((socket.groups.clone(), socket.multicast_interface.as_deref()), (vec!["239.1.2.3".to_owned()], Some("127.0.0.1")));
    assert!(!socket.multicast_loop);
    program.end();
}

#[test]
fn nothing_is_written_while_nobody_asks() {
    let mut program = Program::start("unasked", &[]);
    let before = fs::metadata(program.path()).unwrap().modified().unwrap();
    for _ in 0..5 {
        program.does("work");
        std::thread::sleep(Duration::from_millis(120));
    }
    assert_eq!(program.header().version, 0);
    assert_eq!(fs::metadata(program.path()).unwrap().modified().unwrap(), before);
    program.end();
}

#[test]
fn readers_in_other_network_namespaces_are_heard_while_the_program_works() {
    let mut program = Program::start("unheard", &[]);
    let mut published = program.open();
    published.ask(Request::default()).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !published.read(Duration::ZERO).is_ok_and(|snapshot| snapshot.is_answer) {
        assert!(Instant::now() < deadline, "nobody woke it, and it does not look by itself");
        program.does("work");
    }
    program.end();
}

#[test]
fn no_reader_hurts_the_program() {
    let mut program = Program::start("hurt", &[]);
    let mut published = program.open();
    ask(&mut published);
    let file = File::options().write(true).open(program.path()).unwrap();
    file.set_len(0).unwrap();
    program.does("work");
    let snapshot = ask(&mut published);
    assert_eq!(socket(&snapshot, program.fds[0]).rx_packets, 100, "what was cut off is written again");
    // Anything at all in the readers' part, and in the process's.
    for seed in 0..200_u64 {
        let noise: Vec<u8> = (0..64).map(|at| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(at) >> 7) as u8).collect();
        file.write_all_at(&noise, REQUEST.start as u64 - seed % 32).unwrap();
        ringway_host::members::query(published.control(), LOOK, PATIENCE).unwrap();
    }
    let wild = Request { number: 1, log_level: Some(255), log_details: Some(255), dump: Some((i32::MIN, 255)) };
    file.write_all_at(&wild.encode(), REQUEST.start as u64).unwrap();
    ringway_host::members::query(published.control(), LOOK, PATIENCE).unwrap();
    program.does("work");
    assert_eq!(socket(&ask(&mut published), program.fds[0]).rx_packets, 200);
    fs::remove_file(program.path()).unwrap();
    program.does("work");
    ask(&mut published);
    program.end();
}

#[test]
fn readers_cost_a_fiftieth_of_a_core_at_most() {
    let program = Program::start("cost", &[]);
    let mut published = program.open();
    let (began, first) = (Instant::now(), program.header().version);
    let mut spent = Duration::ZERO;
    let mut seen = 0;
    while began.elapsed() < Duration::from_secs(2) {
        published.ask(Request::default()).unwrap();
        ringway_host::members::query(published.control(), LOOK, PATIENCE).unwrap();
        if let Ok(snapshot) = published.read(Duration::ZERO)
            && snapshot.taken_ns != seen
        {
            seen = snapshot.taken_ns;
            spent += Duration::from_nanos(snapshot.report.gathering_ns);
        }
    }
    let (elapsed, reports) = (began.elapsed(), (program.header().version - first) / 2);
    assert!(reports > 1, "{reports} reports in {elapsed:?}");
    assert!(spent < elapsed / 50, "{reports} reports took {spent:?} of {elapsed:?}");
    program.end();
}

#[test]
fn files_go_with_their_processes() {
    let program = Program::start("gone", &[]);
    let path = program.path();
    assert!(path.exists());
    program.end();
    assert!(!path.exists(), "it ended in order");

    let mut program = Program::start("killed", &[]);
    let path = program.path();
    let folder = program.folder.clone();
    assert_eq!(remove_leftovers(&folder).unwrap(), 0, "it lives");
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    assert!(path.exists(), "nobody could remove it");
    assert_eq!(remove_leftovers(&folder).unwrap(), 1);
    assert!(!path.exists());
}

#[test]
fn a_program_that_reads_its_own_file_is_not_taken_for_dead() {
    let mut program = Program::start("own", &[]);
    program.does("look");
    assert!(program.open().is_held());
    assert_eq!(remove_leftovers(&program.folder).unwrap(), 0);
    program.does("work");
    ask(&mut program.open());
    program.end();
}

/// What lies where a process is to publish, and who has a lock on it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum There {
    /// Nobody has.
    Left,
    /// A process in another pid namespace.
    Another,
    /// Somebody who can read it.
    Reader,
    /// One that the process with that number made and the library has not heard of, which has outlived it.
    Clone,
}

/// In a directory that pid namespaces share, two processes may have the same number: the file is the first one's. What a dead one left is in nobody's way,
/// whoever has a lock on it.
#[test]
fn the_file_of_a_living_process_of_the_same_number_is_left_alone() {
    let here = std::os::unix::fs::MetadataExt::ino(&fs::metadata("/proc/self/ns/pid").unwrap()) as u32;
    for there in [There::Left, There::Another, There::Reader, There::Clone] {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stats-number-{there:?}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "read go; export LD_PRELOAD=$1; exec $0"]).arg(compiled()).arg(library()).current_dir(&folder);
        command.env("VMA_STATS_SHMEM_DIR", &folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let path = folder.join(format!("{FILE_PREFIX}{}", child.id()));
        let birth = Birth { namespace: if there == There::Another { here + 1 } else { here }, started: 1 };
        let old = Header { pid: child.id(), birth, control: "another's".to_owned(), ..Header::default() };
        fs::write(&path, old.encode()).unwrap();
        let reader = File::open(&path).unwrap();
        let writer = File::options().read(true).write(true).open(&path).unwrap();
        match there {
            There::Left => {}
            There::Reader => reader.lock().unwrap(),
            There::Another | There::Clone => lock_for_all(&writer),
        }
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut program = Program { child, input, output, folder, fds: Vec::new() };
        program.say("go");
        assert!(program.line().starts_with("ready "));
        program.does("work");
        assert_eq!(program.header() == old, there == There::Another, "{there:?}");
        if there != There::Another {
            ask(&mut program.open());
            assert!(program.open().is_held());
        }
        program.end();
        assert_eq!(path.exists(), there == There::Another, "{there:?}");
    }
}

/// As a process locks its file.
fn lock_for_all(file: &File) {
    let (kind, from) = (libc::F_WRLCK as libc::c_short, libc::SEEK_SET as libc::c_short);
    let lock = libc::flock { l_type: kind, l_whence: from, l_start: 0, l_len: 0, l_pid: 0 };
    // SAFETY: a lock's description, which outlives the call.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }, 0);
}

/// A clone that outlives its process has its lock still.
#[test]
fn a_lock_says_nothing_of_a_process_that_is_over() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stats-over-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let here = std::os::unix::fs::MetadataExt::ino(&fs::metadata("/proc/self/ns/pid").unwrap()) as u32;
    let path = folder.join(format!("{FILE_PREFIX}{}", std::process::id()));
    // This process's number, which another one had that began long before; or one of another namespace, of which nothing is known.
    for (namespace, is_held) in [(here, false), (here + 1, true)] {
        let header = Header { pid: std::process::id(), birth: Birth { namespace, started: 1 }, ..Header::default() };
        let mut whole = vec![0; BODY];
        whole[HEADER].copy_from_slice(&header.encode());
        fs::write(&path, whole).unwrap();
        let writer = File::options().read(true).write(true).open(&path).unwrap();
        lock_for_all(&writer);
        assert_eq!(Published::open(&path).unwrap().is_held(), is_held);
        assert_eq!(remove_leftovers(&folder).unwrap(), usize::from(!is_held));
    }
    fs::remove_dir_all(&folder).unwrap();
}

/// Whoever can read a process's file may lock it as readers can: the process lives all the same.
#[test]
fn a_readers_lock_hides_no_process() {
    let mut program = Program::start("locked", &[]);
    let reader = File::open(program.path()).unwrap();
    assert!(reader.try_lock().is_ok(), "it is in nobody's way");
    assert!(program.open().is_held());
    assert_eq!(remove_leftovers(&program.folder).unwrap(), 0);
    // Another file, since somebody removed this one.
    let elsewhere = program.folder.join("elsewhere");
    fs::rename(program.path(), &elsewhere).unwrap();
    fs::write(program.path(), "another's").unwrap();
    let (folder, path) = (program.folder.clone(), program.path());
    program.does("work");
    program.end();
    assert!(path.exists() && folder.exists(), "what has its name by now is not its own");
}

#[test]
fn a_slow_file_holds_up_nobody_but_who_closes() {
    let mut program = Program::start("slow", &[("VMA_STATS_FILE", "closed.%d")]);
    let file = program.folder.join(format!("closed.{}", program.child.id()));
    program.does("open");
    // From now on, a pipe that is full: who writes to it waits.
    fs::remove_file(&file).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let mut pipe = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&file).unwrap();
    let mut filler = 0;
    while let Ok(len) = pipe.write(&[0; 4096]) {
        filler += len;
    }
    program.say("close");
    std::thread::sleep(Duration::from_millis(100));
    let mut published = program.open();
    for _ in 0..5 {
        ask(&mut published);
    }
    pipe.read_exact(&mut vec![0; filler]).unwrap();
    assert_eq!(program.line(), "done\n");
    let mut bytes = [0; 4096];
    let len = pipe.read(&mut bytes).unwrap();
    assert!(bytes[..len].starts_with(b"{") && bytes[..len].ends_with(b"}\n"), "{}", String::from_utf8_lossy(&bytes[..len]));
    program.end();
}

#[test]
fn a_child_has_a_file_of_its_own() {
    let mut program = Program::start("child", &[]);
    program.does("work");
    program.say("fork");
    let said = program.line();
    let child: u32 = said.strip_prefix("child ").and_then(|pid| pid.trim().parse().ok()).expect(&said);
    let mut theirs = Published::open(&program.path_of(child)).unwrap();
    assert!(theirs.is_held());
    let snapshot = ask(&mut theirs);
    assert_eq!(snapshot.report.pid, child);
    assert_eq!(socket(&ask(&mut program.open()), program.fds[0]).rx_packets, 100, "the parent's goes on");
    program.does("");
    assert!(!program.path_of(child).exists() && program.path().exists());
    program.end();
}

#[test]
fn an_exec_that_fails_changes_nothing() {
    let mut program = Program::start("exec", &[]);
    // There it is, and may be executed: but it is no program.
    let broken = program.folder.join("broken");
    fs::write(&broken, "\0").unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    ask(&mut program.open());
    program.does("exec");
    ask(&mut program.open());
    program.end();
}

#[test]
fn parameters_do_what_they_say() {
    let mut program = Program::start("few", &[("VMA_STATS_FD_NUM", "2")]);
    let snapshot = ask(&mut program.open());
    assert_eq!((snapshot.report.sockets.len(), snapshot.report.sockets_total), (2, 4));
    program.does("work");
    program.end();

    let mut program = Program::start("none", &[("VMA_STATS_SHMEM_DIR", "")]);
    program.does("work");
    let folder = program.end();
    let names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| name == "log"), "{names:?}");

    let mut program = Program::start("nowhere", &[("VMA_STATS_SHMEM_DIR", "/nonexistent")]);
    program.does("work");
    program.end();

    let mut program = Program::start("file", &[("VMA_STATS_FILE", "closed.%d")]);
    let file = program.folder.join(format!("closed.{}", program.child.id()));
    program.does("open");
    program.does("close");
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 2, "the listener of its connection was closed, and that one");
    program.does("work");
    program.end();
    let lines = fs::read_to_string(&file).unwrap();
    let sockets: Vec<SocketReport> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(sockets.len(), 6);
    assert!(sockets.iter().any(|socket| socket.rx_bytes == 300_000 && socket.tcp.is_some()), "{lines}");
}

#[test]
fn the_log_is_changed_while_the_program_runs() {
    let mut program = Program::start("log", &[("VMA_TRACELEVEL", "error")]);
    let mut published = program.open();
    let log = |program: &Program| fs::read_to_string(program.folder.join("log")).unwrap_or_default();
    program.does("work");
    ask_for(&mut published, Request { dump: Some((0, 4)), ..Request::default() });
    assert_eq!(log(&program), "", "info is not logged");
    ask_for(&mut published, Request { log_level: Some(4), log_details: Some(1), ..Request::default() });
    let receiver = program.fds[0];
    ask_for(&mut published, Request { dump: Some((receiver, 4)), ..Request::default() });
    let said = log(&program);
    assert!(said.contains(&format!("VMA INFO: \tFd=[{receiver}]")) && said.starts_with("Tid: "), "{said}");
    assert!(said.contains("Rx Offload: 1 / 100 / 1 / 0 [kilobytes/packets/eagains/errors]"), "{said}");
    assert_eq!(said.matches("Fd=[").count(), 1, "one socket alone: {said}");
    program.end();
}
