//! Programs of several languages, whose own libraries have their sockets.

use std::path::Path;

use super::{Ends, each_way};
use crate::harness::{Launch, PYTHON, free_port, script_path, source_path};
use crate::runtimes;

/// Bytes of a stream.
pub(super) const SIZE: u64 = 5_000_000;

/// How many streams are many, and the bytes of each.
const MANY: u64 = 32;
const SIZE_OF_MANY: u64 = 100_000;
pub(super) const SIZE_IN_ALL: u64 = MANY * SIZE_OF_MANY;

/// Two streams between programs that are started by these words.
fn talk(ends: &Ends<'_>, program: &'static str, words: &[String]) -> [&'static str; 2] {
    const STREAMS: u32 = 2;
    let (port, host) = (free_port(), ends.host());
    let (binary, words) = words.split_first().expect("a program");
    let server = with(words, ends.server(binary)).args(&format!("serve {port} {STREAMS}")).serve(port);
    assert_eq!(with(words, ends.client(binary)).args(&format!("talk {host} {port} {SIZE}")).run().stdout, "equal\n");
    server.finish();
    [program, program]
}

fn with<'c>(words: &[String], launch: Launch<'c>) -> Launch<'c> {
    words.iter().fold(launch, |launch, word| launch.arg(word))
}

/// A source of ours, and a file of the case's that is made of it.
fn source(ends: &Ends<'_>, name: &str, made: &str) -> [String; 2] {
    [source_path("peers").join(name), ends.case.path(made)].map(|path| path.to_str().expect("UTF-8").to_owned())
}

#[test]
fn java() {
    each_way("cable-java", SIZE, &[], java_talks);
}

pub(super) fn java_talks(ends: &Ends<'_>) -> [&'static str; 2] {
    let [source, classes] = source(ends, "Peer.java", "classes");
    ends.case.plain("javac").args(&format!("-d {classes} {source}")).run();
    talk(ends, "java", &["java", "-cp", &classes, "Peer"].map(str::to_owned))
}

#[test]
fn node() {
    each_way("cable-node", SIZE, &[], node_talks);
}

pub(super) fn node_talks(ends: &Ends<'_>) -> [&'static str; 2] {
    let [source, _] = source(ends, "peer.js", "");
    talk(ends, "node", &["node".to_owned(), source])
}

/// Go asks the kernel itself, so that what is preloaded hears nothing of its sockets.
#[test]
fn go() {
    each_way("cable-go", SIZE, &[("peer", 0)], go_talks);
}

pub(super) fn go_talks(ends: &Ends<'_>) -> [&'static str; 2] {
    let [source, binary] = source(ends, "peer.go", "peer");
    let cache = ends.case.path("cache");
    let build = ends.case.plain("go").env("GOCACHE", &cache).env("GOFLAGS", "-mod=mod").env("GO111MODULE", "off");
    build.args(&format!("build -o {binary} {source}")).run();
    talk(ends, "peer", &[binary])
}

/// Threads that serve, and threads that ask.
#[test]
fn python() {
    each_way("cable-python", SIZE, &[], python_talks);
}

pub(super) fn python_talks(ends: &Ends<'_>) -> [&'static str; 2] {
    const STREAMS: usize = 4;
    let (port, host) = (free_port(), ends.host());
    let server = ends.server(PYTHON).arg(script_path("peer.py")).args(&format!("serve_echo {port} {STREAMS} {host}")).serve(port);
    let talk = || ends.client(PYTHON).arg(script_path("peer.py")).args(&format!("talk {port} {SIZE} {host}")).spawn();
    let clients: Vec<_> = (0..STREAMS).map(|_| talk()).collect();
    for client in clients {
        assert_eq!(client.finish().stdout, "equal\n");
    }
    server.finish();
    ["python3", "python3"]
}

/// Many streams at once, of a program that is made for the case.
fn stream(ends: &Ends<'_>, program: &'static str, made: &Path) -> [&'static str; 2] {
    let (port, host) = (free_port(), ends.host());
    let made = made.to_str().expect("UTF-8");
    let server = ends.server(made).args(&format!("serve {port} {MANY} {host}")).serve(port);
    assert_eq!(ends.client(made).args(&format!("talk {port} {MANY} {SIZE_OF_MANY} {host}")).run().stdout, "equal\n");
    server.finish();
    [program, program]
}

/// Its datagrams are longer than the MTU in part: those the kernel sends in fragments.
#[test]
fn tokio() {
    each_way("cable-tokio", SIZE_IN_ALL, &[], tokio_streams);
}

pub(super) fn tokio_streams(ends: &Ends<'_>) -> [&'static str; 2] {
    stream(ends, "tokio_streams", &runtimes::example("tokio_streams"))
}

#[test]
fn mio() {
    each_way("cable-mio", SIZE_IN_ALL, &[], mio_streams);
}

pub(super) fn mio_streams(ends: &Ends<'_>) -> [&'static str; 2] {
    stream(ends, "mio_streams", &runtimes::example("mio_streams"))
}

#[test]
fn libuv() {
    each_way("cable-libuv", SIZE_IN_ALL, &[], libuv_streams);
}

pub(super) fn libuv_streams(ends: &Ends<'_>) -> [&'static str; 2] {
    stream(ends, "uv_streams", &runtimes::uv_streams(ends.case))
}

#[test]
fn asyncio() {
    each_way("cable-asyncio", SIZE_IN_ALL, &[], asyncio_streams);
}

pub(super) fn asyncio_streams(ends: &Ends<'_>) -> [&'static str; 2] {
    let (port, host) = (free_port(), ends.host());
    let script = script_path("streams.py");
    let server = ends.server(PYTHON).arg(&script).args(&format!("serve {port} {MANY} {host}")).serve(port);
    let client = ends.client(PYTHON).arg(&script).args(&format!("talk {port} {MANY} {SIZE_OF_MANY} {host}"));
    assert_eq!(client.run().stdout, "equal\n");
    server.finish();
    ["python3", "python3"]
}
