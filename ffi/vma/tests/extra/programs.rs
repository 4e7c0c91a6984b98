//! C programs that use the Extra API: compiled with the header that is installed, run with the library preloaded.
#![allow(dead_code, reason = "each test has its own needs")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, id};
use std::sync::atomic::{AtomicU32, Ordering};

/// What ends a program that hangs.
const TIMEOUT_S: &str = "100";

/// Compiles a program of this crate's, by its path.
pub(crate) fn compile(path: &str) -> PathBuf {
    compile_with(&["gcc"], path)
}

/// The same, with a compiler and its switches.
pub(crate) fn compile_with(compiler: &[&str], path: &str) -> PathBuf {
    static SERIAL: AtomicU32 = AtomicU32::new(0);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let name = Path::new(path).file_stem().expect("a file").to_string_lossy().into_owned();
    let switches = compiler.concat().replace(['+', '=', '-', '/'], "");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("program-{name}-{switches}"));
    // (Another test may compile the same at this moment, or run it.)
    let mine = program.with_extension(format!("{}-{}", id(), SERIAL.fetch_add(1, Ordering::Relaxed)));
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&mine);
    let status = command.arg("-I").arg(root.join("include")).arg(root.join(path)).status().expect("the compiler must be installed");
    assert!(status.success(), "{path} does not compile with {compiler:?}");
    fs::rename(&mine, &program).expect("it was just made");
    program
}

/// The library that this build made: beside the test. (Or another one, by RINGWAY_LIBVMA.)
pub(crate) fn library() -> PathBuf {
    if let Some(library) = std::env::var_os("RINGWAY_LIBVMA") {
        return library.into();
    }
    let test = std::env::current_exe().expect("the test has a path");
    let profile = test.parent().and_then(Path::parent).expect("target/<profile>/deps/<test>");
    profile.join("deps/libvma.so")
}

/// A run of a program.
pub(crate) fn run(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new("timeout");
    command.arg(TIMEOUT_S).arg(program).args(arguments).env("LD_PRELOAD", library()).envs(environment.iter().copied());
    command.output().expect("timeout(1) is part of coreutils")
}

/// Runs a program of `tests/extra` that prints what is wrong, and nothing else.
pub(crate) fn finds_nothing_wrong(name: &str, arguments: &[&str], environment: &[(&str, &str)]) {
    let output = run(&compile(&format!("tests/extra/{name}.c")), arguments, environment);
    says_nothing(&output, &format!("{name} {arguments:?} {environment:?}"));
}

/// It ended well, and had nothing to say.
pub(crate) fn says_nothing(output: &Output, what: &str) {
    let (said, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.is_empty(), "{what}: {:?}\n{said}{log}", output.status);
}
