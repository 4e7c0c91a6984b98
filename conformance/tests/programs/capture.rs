//! `ringway capture`: what it writes of exchanges over shared memory, as tshark and tcpdump read it, and that nobody is held up by it, whatever becomes of it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::process::{Signal, geteuid};

use crate::command::ringway;
use crate::harness::{Case, PATIENCE, PYTHON, World, eventually, free_port, library};
use crate::{http, sockperf};

const BYTES: u64 = 3_000_000;

/// Every byte is in the capture, in both directions, and nothing in it looks wrong to tshark.
#[test]
fn exchange() {
    let case = Case::new("capture-exchange");
    if case.world() == World::Kernel {
        return case.done();
    }
    http::fill(&case.path("file"), BYTES);
    let port = free_port();
    let server = http::serve(case.program(PYTHON), port, &case).serve(port);
    let (file, copy) = (case.path("capture.pcapng"), case.path("copy"));
    let capture = ringway(&case).args(&format!("capture -p {} -w {}", server.pid(), file.display())).spawn();
    eventually("it captures", PATIENCE, || fs::metadata(&file).is_ok_and(|file| file.len() > 0) && is_captured(server.pid()));
    case.program("curl").args(&format!("-sSf -o {} http://127.0.0.1:{port}/file", copy.display())).run();
    capture.stop(Signal::INT);
    let shown = |options: &str| tshark(&case, &file, options);
    let checked = "-o ip.check_checksum:TRUE -o tcp.check_checksum:TRUE";
    let wrong = "_ws.malformed||ip.checksum.status==Bad||tcp.checksum.status==Bad||tcp.analysis.lost_segment||tcp.analysis.retransmission";
    assert_eq!(shown(&format!("{checked} -Y {wrong}||tcp.analysis.out_of_order")), "");
    let times: Vec<f64> = shown("-T fields -e frame.time_epoch").lines().map(|line| line.parse().expect("a time")).collect();
    assert!(times.len() > 50 && times.is_sorted(), "{times:?}");
    for (way, flags) in [(format!("tcp.srcport=={port}"), "0x00000002"), (format!("tcp.dstport=={port}"), "0x00000001")] {
        let flagged = shown(&format!("-T fields -e frame.packet_flags -Y {way}"));
        assert!(!flagged.is_empty() && flagged.lines().all(|line| line == flags), "{way}: {flagged}");
    }
    // The server's lines begin with a tab: curl has begun the connection.
    let stream = shown("-q -z follow,tcp,raw,0");
    let answer: Vec<u8> = stream.lines().filter_map(|line| line.strip_prefix('\t')).flat_map(bytes).collect();
    let question: Vec<u8> = stream.lines().filter(|line| line.starts_with("474554")).flat_map(bytes).collect();
    assert!(question.starts_with(b"GET /file "), "{}", String::from_utf8_lossy(&question));
    let expected = fs::read(case.path("file")).expect("the file");
    assert!(answer.starts_with(b"HTTP/1.0 200") && answer.ends_with(&expected), "{} bytes", answer.len());
    server.stop(Signal::INT);
    case.offloaded(&["python3", "curl"], BYTES, BYTES / 65_483);
}

/// What programs say to each other that begin after the capture, once for both of them, and only what the filter asks for.
#[test]
fn filtered_datagrams() {
    let case = Case::new("capture-datagrams");
    if case.world() == World::Kernel {
        return case.done();
    }
    let (port, other) = (free_port(), free_port());
    let file = case.path("capture.pcapng");
    let capture = ringway(&case).args(&format!("capture -w {} udp port {port}", file.display())).spawn();
    eventually("it captures", PATIENCE, || fs::metadata(&file).is_ok_and(|file| file.len() > 0));
    let servers = [(port, ""), (other, "--tcp")].map(|(port, protocol)| {
        let server = case.program("sockperf").args(&format!("server -i 127.0.0.1 -p {port} {protocol}")).serve(port);
        eventually("it is captured", PATIENCE, || is_captured(server.pid()));
        server
    });
    for (port, protocol) in [(other, "--tcp"), (port, "")] {
        let options = format!("ping-pong -i 127.0.0.1 -p {port} {protocol} -t 2 --mps 1000 -m 64");
        sockperf::right(&case.program("sockperf").args(&options).run(), "ping-pong");
    }
    let said = capture.stop(Signal::INT).stderr;
    servers.into_iter().for_each(|server| drop(server.stop(Signal::INT)));
    let shown = |options: &str| tshark(&case, &file, options);
    assert_eq!(shown(&format!("-Y _ws.malformed||udp.checksum.status==Bad||!udp.port=={port}")), "");
    let lines = shown("-T fields -e udp.srcport -e udp.length -e udp.payload");
    let (answers, questions): (Vec<&str>, Vec<&str>) = lines.lines().partition(|line| line.starts_with(&format!("{port}\t")));
    assert!(questions.len() > 100 && lines.lines().all(|line| line.contains("\t72\t")), "{said}{lines}");
    // Each is there once, and in its turn. (The client's first ones go by the kernel, until it has found the server.)
    // A message begins with its number, of eight bytes, before what tells questions and answers apart.
    let number = |line: &&str| line.rsplit('\t').next().expect("a payload")[..16].to_owned();
    let [answers, questions] = [answers, questions].map(|lines| lines.iter().map(number).collect::<Vec<_>>());
    let by_kernel = answers.len().checked_sub(questions.len()).filter(|&count| count < 20);
    let Some(by_kernel) = by_kernel else { panic!("{} answers to {} questions: {said}", answers.len(), questions.len()) };
    let other = answers[by_kernel..].iter().zip(&questions).find(|(answer, question)| answer != question);
    assert_eq!(other, None, "{by_kernel} by the kernel: {said}");
    assert!(questions.is_sorted_by(|one, next| one < next), "{said}");
    case.done();
}

/// It is read while it is written, and ends with who reads it.
#[test]
fn live() {
    let case = Case::new("capture-live");
    if case.world() == World::Kernel {
        return case.done();
    }
    http::fill(&case.path("file"), BYTES);
    let port = free_port();
    let server = http::serve(case.program(PYTHON), port, &case).serve(port);
    let command = library().with_file_name("ringway");
    let pipe = format!("{} capture -p {} tcp port {port} | tcpdump -nr - -c 4 'greater 1000'", command.display(), server.pid());
    let shown = case.plain("sh").arg("-c").arg(pipe).spawn();
    eventually("it captures", PATIENCE, || is_captured(server.pid()));
    case.program("curl").args(&format!("-sSf -o {} http://127.0.0.1:{port}/file", case.path("copy").display())).run();
    let said = shown.finish().stdout;
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 4 && lines.iter().all(|line| line.contains(&format!(" IP 127.0.0.1.{port} > 127.0.0.1."))), "{said}");
    eventually("the memory is given back", PATIENCE, || !is_captured(server.pid()));
    server.stop(Signal::INT);
    case.done();
}

/// A process is as it was before once whoever captured it is gone, in the middle of a transfer too, and can be captured again.
#[test]
fn killed() {
    let case = Case::new("capture-killed");
    if case.world() == World::Kernel {
        return case.done();
    }
    http::fill(&case.path("file"), 20 * BYTES);
    let port = free_port();
    let server = http::serve(case.program(PYTHON), port, &case).serve(port);
    let (file, copy) = (case.path("capture.pcapng"), case.path("copy"));
    for n in 0..3 {
        let capture = ringway(&case).args(&format!("capture -p {} -w {}", server.pid(), file.display())).spawn();
        eventually("it captures", PATIENCE, || is_captured(server.pid()));
        let curl = case.program("curl").args(&format!("-sSf --limit-rate 20M -o {} http://127.0.0.1:{port}/file", copy.display())).spawn();
        eventually("some of it is captured", PATIENCE, || fs::metadata(&file).is_ok_and(|file| file.len() > BYTES));
        capture.signal(Signal::KILL);
        capture.wait();
        eventually("the memory is given back", PATIENCE, || !is_captured(server.pid()));
        curl.finish();
        assert_eq!(http::digest(&case, &copy), http::digest(&case, &case.path("file")), "capture {n}");
    }
    server.stop(Signal::INT);
    case.offloaded(&["python3", "curl"], 60 * BYTES, 60 * BYTES / 65_483);
}

/// Who does not read, or cannot write, is in nobody's way, and what it loses is told.
#[test]
fn stopped_and_full() {
    let case = Case::new("capture-stopped");
    if case.world() == World::Kernel {
        return case.done();
    }
    http::fill(&case.path("file"), 20 * BYTES);
    let port = free_port();
    let server = http::serve(case.program(PYTHON), port, &case).serve(port);
    let fetch = || case.program("curl").args(&format!("-sSf -o {} http://127.0.0.1:{port}/file", case.path("copy").display())).run();
    let file = case.path("capture.pcapng");
    let capture = ringway(&case).args(&format!("capture -B 256 -p {} -w {}", server.pid(), file.display())).spawn();
    eventually("it captures", PATIENCE, || is_captured(server.pid()));
    // (Another one at the same time is told so.)
    let second = ringway(&case).args(&format!("capture -p {} -w /dev/null", server.pid())).spawn().wait();
    assert!(!second.status.success() && second.stderr.contains("another capture"), "{}", second.stderr);
    capture.signal(Signal::STOP);
    fetch();
    assert_eq!(http::digest(&case, &case.path("copy")), http::digest(&case, &case.path("file")));
    capture.signal(Signal::CONT);
    let said = capture.stop(Signal::INT).stderr;
    let numbers: Vec<u64> = said.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect();
    let [_, lost] = numbers[..] else { panic!("{said}") };
    assert!(lost > 20 * BYTES / 65_536 / 2, "{said}");
    assert_eq!(fs::metadata(&file).expect("the file").permissions().mode() & 0o777, 0o600);
    eventually("the memory is given back", PATIENCE, || !is_captured(server.pid()));
    // No room for the file.
    let capture = ringway(&case).args(&format!("capture -p {} -w /dev/full", server.pid())).spawn().wait();
    assert!(!capture.status.success() && capture.stderr.contains("/dev/full: No space left on device"), "{}", capture.stderr);
    eventually("the memory is given back", PATIENCE, || !is_captured(server.pid()));
    fetch();
    server.stop(Signal::INT);
    case.done();
}

/// A program that forks for each connection, and then becomes another one, is captured all along, and the capture ends with it.
#[test]
fn forked_and_executed() {
    let case = Case::new("capture-forked");
    if case.world() == World::Kernel {
        return case.done();
    }
    http::fill(&case.path("file"), BYTES);
    let (port, next) = (free_port(), free_port());
    let server = case.python("forks_and_becomes.py").args(&format!("{port} {next}")).arg(case.path("")).serve(port);
    let file = case.path("capture.pcapng");
    let capture = ringway(&case).args(&format!("capture -p {} -w {}", server.pid(), file.display())).spawn();
    eventually("it captures", PATIENCE, || is_captured(server.pid()));
    for _ in 0..3 {
        let answer = case.program("curl").args(&format!("-sSf http://127.0.0.1:{port}/")).run();
        assert_eq!(answer.stdout, "from a child");
    }
    eventually("it has become another program", PATIENCE, || is_captured(server.pid()) && is_program(server.pid(), "http.server"));
    // (It may not listen yet.)
    let patient = "-sSf --retry 100 --retry-delay 1 --retry-connrefused";
    case.program("curl").args(&format!("{patient} -o {} http://127.0.0.1:{next}/file", case.path("copy").display())).run();
    server.stop(Signal::INT);
    let said = capture.finish().stderr;
    for port in [port, next] {
        let shown = tshark(&case, &file, &format!("-Y tcp.port=={port}&&tcp.flags.syn==1"));
        assert!(!shown.is_empty(), "{port}: {said}");
    }
    case.done();
}

/// A process that lets nobody look into it is not captured.
#[test]
fn refused() {
    let case = Case::new("capture-refused");
    if case.world() == World::Kernel {
        return case.done();
    }
    let port = free_port();
    let script = "import ctypes, socket, sys; l = socket.create_server(('127.0.0.1', int(sys.argv[1]))); \
                  ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); print('hidden', flush=True); l.accept()";
    let mut hidden = case.program(PYTHON).arg("-c").arg(script).arg(port.to_string()).serve(port);
    hidden.wait_line("hidden");
    let capture = ringway(&case).args(&format!("capture -p {} -w /dev/null", hidden.pid())).spawn().wait();
    assert!(!capture.status.success() && capture.stderr.contains("PR_SET_DUMPABLE"), "{}", capture.stderr);
    drop(hidden);
    case.done();
}

#[test]
fn another_user() {
    assert!(geteuid().is_root(), "two users need root; cargo xtask test uses sudo for this case where it may");
    let case = Case::new("capture-another-user");
    if case.world() == World::Kernel {
        return case.done();
    }
    let port = free_port();
    let server = http::serve(case.program(PYTHON), port, &case).serve(port);
    let command = library().with_file_name("ringway");
    let capture = case.plain("setpriv").args("--reuid 65534 --clear-groups").arg(command).args(&format!("capture -p {}", server.pid()));
    let capture = capture.spawn().wait();
    assert!(!capture.status.success() && capture.stderr.contains("another user's"), "{}", capture.stderr);
    assert!(!is_captured(server.pid()));
    server.stop(Signal::INT);
    case.done();
}

fn tshark(case: &Case, file: &Path, options: &str) -> String {
    case.plain("tshark").arg("-r").arg(file).args(options).run().stdout
}

fn is_program(pid: u32, word: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains(word))
}

/// Whether a process has memory for those who capture it.
fn is_captured(pid: u32) -> bool {
    let maps = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("maps"));
    maps.expect("a process").contains("memfd:ringway-capture")
}

/// Of a line of hexadecimal numbers.
fn bytes(line: &str) -> Vec<u8> {
    let number = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    line.as_bytes().chunks(2).filter_map(number).collect()
}
