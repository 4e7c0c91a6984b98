//! `ringway capture`: what it writes of an exchange over shared memory, as tshark reads it, and what is left of it when it is killed.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use crate::command::ringway;
use crate::harness::{Case, PATIENCE, PYTHON, World, eventually, free_port};
use crate::http;

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
    let shown = |options: &str| case.plain("tshark").args("-r").arg(&file).args(options).run().stdout;

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

/// A process is as it was before once whoever captured it is gone, and can be captured again.
#[test]
fn killed() {
    let case = Case::new("capture-killed");
    if case.world() == World::Kernel {
        return case.done();
    }
    http::fill(&case.path("file"), BYTES);
    let port = free_port();
    let server = http::serve(case.program(PYTHON), port, &case).serve(port);
    for n in 0..3 {
        let file = case.path("capture.pcapng");
        let capture = ringway(&case).args(&format!("capture -p {} -w {}", server.pid(), file.display())).spawn();
        eventually("it captures", PATIENCE, || is_captured(server.pid()));
        let copy = case.path("copy");
        case.program("curl").args(&format!("-sSf -o {} http://127.0.0.1:{port}/file", copy.display())).run();
        capture.signal(Signal::KILL);
        capture.wait();
        eventually("the memory is given back", PATIENCE, || !is_captured(server.pid()));
        assert_eq!(fs::read(&copy).expect("a copy"), fs::read(case.path("file")).expect("the file"), "capture {n}");
    }
    server.stop(Signal::INT);
    case.done();
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
