//! Small programs on event loops that others wrote: tokio, mio and libuv.

use std::path::PathBuf;

use crate::harness::{Case, free_port, source_path};

const STREAMS: u64 = 48;
const SIZE: u64 = 400_000;

#[test]
fn tokio() {
    talk("runtime-tokio", |_| example("tokio_streams"));
}

#[test]
fn mio() {
    talk("runtime-mio", |_| example("mio_streams"));
}

#[test]
fn libuv() {
    talk("runtime-libuv", uv_streams);
}

/// The one of C, made in the case's directory.
pub(crate) fn uv_streams(case: &Case) -> PathBuf {
    let binary = case.path("uv_streams");
    case.plain("cc").args("-O1 -Wall -Werror -o").arg(&binary).arg(source_path("c/uv_streams.c")).arg("-luv").run();
    binary
}

fn talk(name: &str, build: impl FnOnce(&Case) -> PathBuf) {
    let case = Case::new(name);
    let program = build(&case);
    let (program, short) = (program.to_str().expect("UTF-8"), program.file_name().expect("a name").to_str().expect("UTF-8"));
    let port = free_port();
    let server = case.program(program).args(&format!("serve {port} {STREAMS}")).serve(port);
    assert_eq!(case.program(program).args(&format!("talk {port} {STREAMS} {SIZE}")).run().stdout, "equal\n");
    server.finish();
    case.offloaded(&[short], 2 * STREAMS * SIZE, 2 * STREAMS * SIZE / 65_483);
}

/// One of this crate's examples, which `cargo xtask test` builds beside the cases.
pub(crate) fn example(name: &str) -> PathBuf {
    let cases = std::env::current_exe().expect("this program's path");
    // target/debug/deps/programs-…, and target/debug/examples/….
    let folder = cases.parent().and_then(|deps| deps.parent()).expect("cargo's folders");
    folder.join("examples").join(name)
}
