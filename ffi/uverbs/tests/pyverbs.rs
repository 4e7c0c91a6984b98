//! rdma-core's own tests, of Debian's python3-pyverbs and rdma-core, on the software ConnectX: those that `data/pyverbs.txt` names pass, and nothing else fails than what it
//! says, for the reason that it gives.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where Debian's rdma-core has them, packed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";
/// Runs the tests of a module, which look for the device's name among the program's arguments.
const RUN: &str = "
import sys, unittest
module = sys.argv[1]
sys.argv[1:] = ['--dev', 'mlx5_0']
from args_parser import parser
parser.parse_args()
suite = unittest.defaultTestLoader.loadTestsFromName('tests.' + module)
class Result(unittest.TestResult):
    def say(self, what, test): print(what, test.id().removeprefix('tests.'), flush=True)
    def addSuccess(self, test): self.say('passes', test)
    def addFailure(self, test, error): self.say('fails', test); super().addFailure(test, error); print(self.failures[-1][1], file=sys.stderr)
    def addError(self, test, error): self.say('fails', test); super().addError(test, error); print(self.errors[-1][1], file=sys.stderr)
suite.run(Result())
print('done')
";

/// The library that this build made.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    test.parent().expect("target/<profile>/deps/<test>").join("libringway_connectx.so")
}

/// The tests' files, unpacked.
fn unpacked() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pyverbs-{}", std::process::id()));
    let tests = folder.join("tests");
    fs::create_dir_all(&tests).expect("a folder");
    for file in fs::read_dir(TESTS).expect("Debian's rdma-core must be installed, with its documentation") {
        let path = file.expect("an entry").path();
        fs::copy(&path, tests.join(path.file_name().expect("a name"))).expect("a copy");
    }
    let packed = fs::read_dir(&tests)
        .expect("the copies")
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "gz"));
    assert!(Command::new("gunzip").args(packed).status().expect("gunzip(1)").success());
    folder
}

#[test]
fn rdma_core_s_own_tests_pass_as_far_as_the_device_has_what_they_ask_for() {
    let expected = include_str!("data/pyverbs.txt").lines().filter(|line| !line.starts_with('#'));
    let (fail, pass): (Vec<&str>, Vec<&str>) = expected.partition(|line| line.starts_with('-'));
    let fail: BTreeSet<&str> = fail.iter().filter_map(|line| line[1..].split_once(": ")).map(|(test, _)| test).collect();
    let pass: BTreeSet<&str> = pass.into_iter().collect();
    let modules: BTreeSet<&str> = pass.iter().chain(&fail).filter_map(|test| test.split_once('.')).map(|(module, _)| module).collect();
    let folder = unpacked();
    let (mut passed, mut failed, mut said) = (BTreeSet::new(), BTreeSet::new(), String::new());
    for module in modules {
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "120", "env"]).arg(format!("LD_PRELOAD={}", library().display()));
        command.args(["/usr/bin/python3", "-c", RUN, module]).current_dir(&folder).env("PYTHONPATH", ".:tests");
        command.env("RINGWAY_CONNECTX_BUS", format!("pyverbs-{module}-{}", std::process::id())).stdin(Stdio::null());
        let output = command.output().expect("timeout(1) and env(1)");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        said += &String::from_utf8_lossy(&output.stderr);
        assert!(text.ends_with("done\n"), "{module} (Debian's python3-pyverbs is needed): {text}{said}");
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("passes", test)) => drop(passed.insert(test.to_owned())),
                Some(("fails", test)) => drop(failed.insert(test.to_owned())),
                _ => {}
            }
        }
    }
    fs::remove_dir_all(&folder).expect("it is there");
    let missing: Vec<_> = pass.iter().filter(|test| !passed.contains(**test)).collect();
    let surprises: Vec<_> = failed.iter().filter(|test| !fail.contains(test.as_str())).collect();
    assert!(missing.is_empty() && surprises.is_empty(), "do not pass: {missing:?}; fail: {surprises:?}\n{said}");
}
