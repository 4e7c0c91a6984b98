//! Programs of several languages, whose own libraries have their sockets.

use super::{Ends, each_way};
use crate::harness::{Launch, PYTHON, free_port, script_path, source_path};

/// Bytes of a stream.
const SIZE: u64 = 5_000_000;

/// Two streams between programs that are started by these words.
fn talks(name: &str, program: &'static str, is_kernels: bool, words: impl Fn(&Ends<'_>) -> Vec<String>) {
    const STREAMS: u32 = 2;
    let shared: &[&str] = if is_kernels { &[program] } else { &[] };
    each_way(name, SIZE, shared, |ends| {
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
    talks("cable-java", "java", false, |ends| {
        let [source, classes] = source(ends, "Peer.java", "classes");
        ends.case.plain("javac").args(&format!("-d {classes} {source}")).run();
        ["java", "-cp", &classes, "Peer"].map(str::to_owned).into()
    });
}

#[test]
fn node() {
    talks("cable-node", "node", false, |ends| {
        let [source, _] = source(ends, "peer.js", "");
        vec!["node".to_owned(), source]
    });
}

/// Go asks the kernel itself, so that what is preloaded hears nothing of its sockets.
#[test]
fn go() {
    talks("cable-go", "peer", true, |ends| {
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
