//! python3 -m http.server with curl: a gigabyte, and many small files; and sendfile(2).

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use rustix::process::Signal;

use crate::harness::{Case, Launch, PYTHON, free_port};

const GIB: u64 = 1 << 30;

#[test]
fn gigabyte() {
    let case = Case::new("http-gigabyte");
    let path = case.path("file");
    fill(&path, GIB);
    let port = free_port();
    let server = serve(case.program(PYTHON), port, &case).serve(port);
    let copy = case.path("copy");
    case.program("curl").args(&format!("-sSf -o {} http://127.0.0.1:{port}/file", copy.display())).run();
    assert_eq!(digest(&case, &copy), digest(&case, &path));
    server.stop(Signal::INT);
    case.offloaded(&["python3", "curl"], GIB, GIB / 65_483);
}

#[test]
fn many_requests() {
    let case = Case::new("http-many");
    let path = case.path("file");
    fill(&path, 100_000);
    let port = free_port();
    let server = serve(case.program(PYTHON), port, &case).serve(port);
    // 100 requests by one curl, 8 at a time, each on a connection of its own (http.server speaks HTTP/1.0).
    let url = format!("http://127.0.0.1:{port}/file?[1-100]");
    let out = case.path("copy.#1");
    case.program("curl").args(&format!("-sSf -Z --parallel-max 8 -o {} {url}", out.display())).run();
    let expected = digest(&case, &path);
    for n in 1..=100 {
        assert_eq!(digest(&case, &case.path(&format!("copy.{n}"))), expected, "request {n}");
    }
    server.stop(Signal::INT);
    case.offloaded(&["python3", "curl"], 10_000_000, 500);
}

#[test]
fn sendfile() {
    let case = Case::new("sendfile");
    let path = case.path("file");
    fill(&path, 100_000_000);
    let port = free_port();
    let server = case.python("peer.py").args(&format!("serve_digest {port}")).serve(port);
    let answer = case.python("peer.py").args(&format!("send_file {port}")).arg(&path).run();
    assert_eq!(answer.stdout.trim(), digest(&case, &path));
    server.finish();
    case.offloaded(&["python3"], 100_000_000, 100_000_000 / 65_483);
}

/// http.server on `port` with the case's directory.
pub(crate) fn serve<'c>(launch: Launch<'c>, port: u16, case: &Case) -> Launch<'c> {
    launch.args(&format!("-m http.server {port} --bind 127.0.0.1 --directory {}", case.path("").display()))
}

/// Writes `size` bytes that repeat nowhere within the file: a xorshift's output.
pub(crate) fn fill(path: &Path, size: u64) {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).expect("the file"));
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    let mut left = size;
    while left > 0 {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        let count = left.min(8);
        file.write_all(&word.to_le_bytes()[..usize::try_from(count).expect("8 at most")]).expect("room for the file");
        left -= count;
    }
    file.flush().expect("room for the file");
}

/// A file's SHA-256, by coreutils.
pub(crate) fn digest(case: &Case, path: &Path) -> String {
    let answer = case.plain("sha256sum").arg(path).run();
    answer.stdout.split(' ').next().expect("a digest").to_owned()
}
