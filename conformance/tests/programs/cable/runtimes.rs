//! Programs of several languages, whose own libraries have their sockets.

use std::path::PathBuf;

use super::{Ends, Leaving, each_way};
use crate::harness::{Case, Launch, PYTHON, free_port, script_path, source_path};
use crate::runtimes;

/// Bytes of a stream.
const SIZE: u64 = 5_000_000;

/// How many streams are many, and the bytes of each.
const MANY: u64 = 32;
const SIZE_OF_MANY: u64 = 100_000;

/// Two streams between programs that are started by these words.
fn talks(name: &str, program: &'static str, leaving: &[Leaving], words: impl Fn(&Ends<'_>) -> Vec<String>) {
    const STREAMS: u32 = 2;
    each_way(name, SIZE, leaving, |ends| {
        let (port, host, words) = (free_port(), ends.host(), words(ends));
        let (binary, words) = words.split_first().expect("a program");
        let server = with(words, ends.server(binary)).args(&format!("serve {port} {STREAMS}")).serve(port);
        assert_eq!(with(words, ends.client(binary)).args(&format!("talk {host} {port} {SIZE}")).run().stdout, "equal\n");
        server.finish();
        [program, program]
    });
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
    talks("cable-java", "java", &[], |ends| {
        let [source, classes] = source(ends, "Peer.java", "classes");
        ends.case.plain("javac").args(&format!("-d {classes} {source}")).run();
        ["java", "-cp", &classes, "Peer"].map(str::to_owned).into()
    });
}

#[test]
fn node() {
    talks("cable-node", "node", &[], |ends| {
        let [source, _] = source(ends, "peer.js", "");
        vec!["node".to_owned(), source]
    });
}

/// Go asks the kernel itself, so that what is preloaded hears nothing of its sockets.
#[test]
fn go() {
    talks("cable-go", "peer", &[("peer", 0)], |ends| {
        let [source, binary] = source(ends, "peer.go", "peer");
        let cache = ends.case.path("cache");
        let build = ends.case.plain("go").env("GOCACHE", &cache).env("GOFLAGS", "-mod=mod").env("GO111MODULE", "off");
        build.args(&format!("build -o {binary} {source}")).run();
        vec![binary]
    });
}

/// Threads that serve, and threads that ask.
#[test]
fn python() {
    const STREAMS: usize = 4;
    each_way("cable-python", SIZE, &[], |ends| {
        let (port, host) = (free_port(), ends.host());
        let server = ends.server(PYTHON).arg(script_path("peer.py")).args(&format!("serve_echo {port} {STREAMS} {host}")).serve(port);
        let talk = || ends.client(PYTHON).arg(script_path("peer.py")).args(&format!("talk {port} {SIZE} {host}")).spawn();
        let clients: Vec<_> = (0..STREAMS).map(|_| talk()).collect();
        for client in clients {
            assert_eq!(client.finish().stdout, "equal\n");
        }
        server.finish();
        ["python3", "python3"]
    });
}

/// Many streams at once, of a program that is made for the case.
fn streams(name: &str, program: &'static str, made: impl Fn(&Case) -> PathBuf) {
    each_way(name, MANY * SIZE_OF_MANY, &[], |ends| {
        let (port, host, made) = (free_port(), ends.host(), made(ends.case));
        let made = made.to_str().expect("UTF-8");
        let server = ends.server(made).args(&format!("serve {port} {MANY} {host}")).serve(port);
        assert_eq!(ends.client(made).args(&format!("talk {port} {MANY} {SIZE_OF_MANY} {host}")).run().stdout, "equal\n");
        server.finish();
        [program, program]
    });
}

/// Its datagrams are longer than the MTU in part: those the kernel sends in fragments.
#[test]
fn tokio() {
    streams("cable-tokio", "tokio_streams", |_| runtimes::example("tokio_streams"));
}

#[test]
fn mio() {
    streams("cable-mio", "mio_streams", |_| runtimes::example("mio_streams"));
}

#[test]
fn libuv() {
    streams("cable-libuv", "uv_streams", runtimes::uv_streams);
}

#[test]
fn asyncio() {
    each_way("cable-asyncio", MANY * SIZE_OF_MANY, &[], |ends| {
        let (port, host) = (free_port(), ends.host());
        let script = script_path("streams.py");
        let server = ends.server(PYTHON).arg(&script).args(&format!("serve {port} {MANY} {host}")).serve(port);
        let client = ends.client(PYTHON).arg(&script).args(&format!("talk {port} {MANY} {SIZE_OF_MANY} {host}"));
        assert_eq!(client.run().stdout, "equal\n");
        server.finish();
        ["python3", "python3"]
    });
}
