//! C programs that are linked with the library, by its own header. Each checks what it sees, and says what was not as it should be.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What ends a program that hangs.
const TIMEOUT_S: &str = "60";

/// A folder with the library that this build made, under the names by which programs are linked with it and find it.
fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().expect("the test has a path");
        let library = test.parent().expect("target/<profile>/deps/<test>").join("librsocket.so");
        assert!(library.exists(), "librsocket.so is built with its tests");
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rsocket");
        std::fs::create_dir_all(&folder).expect("a folder");
        for name in ["librsocket.so", "librsocket.so.1"] {
            let link = folder.join(name);
            let _ = std::fs::remove_file(&link);
            symlink(&library, &link).expect("a link");
        }
        folder
    })
}

fn run(name: &str) {
    let (package, libraries) = (Path::new(env!("CARGO_MANIFEST_DIR")), libraries());
    let program = libraries.join(name);
    let compiled = Command::new("gcc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
        .arg(package.join("include"))
        .arg(package.join("tests/c").join(format!("{name}.c")))
        .arg("-o")
        .arg(&program)
        .arg(format!("-L{}", libraries.display()))
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .arg("-lrsocket")
        .status()
        .expect("gcc must be installed");
    assert!(compiled.success(), "{name}.c does not compile");
    let output = Command::new("timeout").arg(TIMEOUT_S).arg(&program).output().expect("timeout(1) is part of coreutils");
    assert!(output.status.success(), "{name}: {:?}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
}

#[test]
fn streams() {
    run("streams");
}

#[test]
fn polls() {
    run("polls");
}

#[test]
fn a_peer_that_is_killed() {
    run("killed");
}

#[test]
fn a_peer_that_is_stopped() {
    run("stopped");
}

#[test]
fn direct_placement() {
    run("direct");
}

#[test]
fn threads_and_forks() {
    run("threads");
}

#[test]
fn instances_of_repoll() {
    run("repoll");
}

#[test]
fn datagrams() {
    run("datagrams");
}

#[test]
fn errors() {
    run("errors");
}
