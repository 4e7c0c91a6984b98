//! C programs that use the Extra API: compiled with the header that is installed, run with the library preloaded.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What ends a program that hangs.
const TIMEOUT_S: &str = "100";

/// Compiles a program of this crate's, by its path.
pub(crate) fn compile(path: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let name = Path::new(path).file_stem().expect("a file").to_string_lossy().into_owned();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("program-{name}"));
    let mut command = Command::new("gcc");
    command.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program).arg("-I").arg(root.join("include"));
    let status = command.arg(root.join(path)).status().expect("gcc must be installed");
    assert!(status.success(), "{path} does not compile");
    program
}

/// The library that this build made: beside the test.
pub(crate) fn library() -> PathBuf {
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
    let said = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{arguments:?} {environment:?}: {:?}\n{said}{log}", output.status);
}
