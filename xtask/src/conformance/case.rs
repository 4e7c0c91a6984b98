//! One case: where it is, and which of cargo's tests runs it.

use core::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::workspace::{Workspace, cargo};

/// See the parent module.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) target: Target,
    /// The test's name as cargo prints it: with the modules that it is in.
    pub(super) test: String,
}

/// A test binary of cargo's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    /// The package's folder, from the workspace's top.
    folder: String,
    /// Its integration test; none: the library's own tests.
    test: Option<String>,
}

impl Case {
    /// # Errors
    /// There is no such file, no such function in it, or no test that runs it.
    pub(super) fn find(workspace: &Workspace, name: &str) -> Result<Self> {
        let (path, item) = name.split_once("::").context("it is not file::function")?;
        let function = item.rsplit("::").next().unwrap_or(item);
        let text = fs::read_to_string(workspace.root.join(path)).context("there is no such file")?;
        if !path.ends_with(".c") {
            let place = tests_of(&text, function);
            ensure!(!place.is_empty(), "there is no such test");
            ensure!(place.iter().any(|place| place == item), "the test is called {}", place.join(", or "));
            return Self::test(path, item);
        }
        ensure!(text.contains(&format!(" {function}(")), "there is no such function");
        let program = Path::new(path).file_stem().and_then(|stem| stem.to_str()).context("it has no name")?;
        Self::that_runs(workspace, program)
    }

    /// The test that is `item` of a file: a function, perhaps in modules within that file.
    fn test(path: &str, item: &str) -> Result<Self> {
        let (target, mut modules) = Target::of(path)?;
        modules.push(item);
        Ok(Self { target, test: modules.join("::") })
    }

    /// The test, among the integration tests of the library, that runs a C program.
    fn that_runs(workspace: &Workspace, program: &str) -> Result<Self> {
        let folder = "ffi/vma/tests";
        let mut files = fs::read_dir(workspace.root.join(folder))?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<Vec<_>>>()?;
        files.sort();
        for file in files.iter().filter(|file| file.ends_with(".rs")) {
            let path = format!("{folder}/{file}");
            let text = fs::read_to_string(workspace.root.join(&path))?;
            let names = [format!("\"{program}\""), format!("\"{program}.c\""), format!("/{program}.c\"")];
            let runs = |test: &&str| names.iter().any(|name| test.contains(name.as_str()));
            if let Some(test) = text.split("#[test]\nfn ").skip(1).find(runs) {
                return Self::test(&path, test.split('(').next().unwrap_or_default());
            }
        }
        bail!("no test in {folder} runs it")
    }
}

/// The functions of that name which are tests, with the modules of the file that they are in: their attributes say so, or they are among a
/// property's, or those of a list of cases.
fn tests_of(text: &str, function: &str) -> Vec<String> {
    let declared = format!("fn {function}(");
    let lines: Vec<&str> = text.lines().collect();
    let is_test = |at: usize| {
        let attributes = lines[..at].iter().rev().map(|line| line.trim());
        let mut attributes = attributes.take_while(|line| line.starts_with("#[") || line.starts_with("///"));
        attributes.any(|line| line == "#[test]") || is_listed(&lines, at)
    };
    let found = lines.iter().enumerate().filter(|&(at, line)| line.trim_start().starts_with(&declared) && is_test(at));
    let name = |at| {
        let mut modules: Vec<&str> = around(&lines, at).filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(" {")).collect();
        modules.reverse();
        modules.push(function);
        modules.join("::")
    };
    found.map(|(at, _)| name(at)).collect()
}

/// Whether a line is within one of the macros whose functions are tests.
fn is_listed(lines: &[&str], at: usize) -> bool {
    around(lines, at).any(|line| matches!(line, "proptest! {" | "cases! {"))
}

/// The lines that open the blocks which a line is in, the innermost first.
fn around<'a>(lines: &[&'a str], at: usize) -> impl Iterator<Item = &'a str> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut least = indent(lines[at]);
    let before = lines[..at].iter().rev().filter(|line| !line.trim().is_empty());
    let opens = move |line: &&&str| {
        let is_outer = indent(line) < least;
        least = least.min(indent(line));
        is_outer
    };
    before.filter(opens).map(|line| line.trim())
}

impl Target {
    /// The binary that a file is a part of, and the modules in it that the file is.
    pub(super) fn of(path: &str) -> Result<(Self, Vec<&str>)> {
        let file = path.strip_suffix(".rs").context("it is no source file")?;
        if let Some((folder, rest)) = file.split_once("/tests/") {
            // (A folder named tests may be a module's as well.)
            if !folder.contains("/src") {
                let (test, rest) = rest.split_once('/').unwrap_or((rest, "main"));
                return Ok((Self { folder: folder.to_owned(), test: Some(test.to_owned()) }, modules(rest)));
            }
        }
        let (folder, rest) = file.split_once("/src/").context("it is neither a package's source nor its test")?;
        Ok((Self { folder: folder.to_owned(), test: None }, modules(rest)))
    }

    /// The command that runs it.
    pub(super) fn command(&self, workspace: &Workspace) -> Command {
        let mut command = cargo();
        command.current_dir(workspace.root.join(&self.folder)).arg("test");
        match &self.test {
            Some(test) => command.args(["--test", test]),
            None => command.arg("--lib"),
        };
        command
    }
}

impl Target {
    /// The binary, built.
    ///
    /// # Errors
    /// It does not build, or is the library's own tests: those have no device.
    pub(super) fn binary(&self, workspace: &Workspace) -> Result<PathBuf> {
        workspace.test_binary(&self.folder, self.test.as_deref().with_context(|| format!("{self} is no integration test"))?)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.test {
            Some(test) => write!(f, "{}/tests/{test}", self.folder),
            None => write!(f, "{}/src", self.folder),
        }
    }
}

/// The modules that a file is, by its path from its root's folder.
fn modules(path: &str) -> Vec<&str> {
    let mut modules: Vec<&str> = path.split('/').collect();
    modules.pop_if(|last| matches!(*last, "lib" | "main" | "mod"));
    modules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(folder: &str, test: Option<&str>) -> Target {
        Target { folder: folder.to_owned(), test: test.map(str::to_owned) }
    }

    #[test]
    fn a_path_names_its_test_binary_and_its_modules() {
        let of = |path| Target::of(path).ok().map(|(target, modules)| (target, modules.join("::")));
        let named = |folder, test, modules: &str| Some((target(folder, test), modules.to_owned()));
        assert_eq!(of("stack/src/ring/lending/tests.rs"), named("stack", None, "ring::lending::tests"));
        assert_eq!(of("backends/shm/src/tests/crash.rs"), named("backends/shm", None, "tests::crash"));
        assert_eq!(of("stack/src/tcp/tests/mod.rs"), named("stack", None, "tcp::tests"));
        assert_eq!(of("stack/src/lib.rs"), named("stack", None, ""));
        assert_eq!(of("ffi/vma/tests/extra.rs"), named("ffi/vma", Some("extra"), ""));
        assert_eq!(of("conformance/tests/extra/main.rs"), named("conformance", Some("extra"), ""));
        assert_eq!(of("conformance/tests/extra/sim.rs"), named("conformance", Some("extra"), "sim"));
        assert_eq!(of("README.md"), None);
    }

    #[test]
    fn tests_of_one_name_are_told_apart_by_where_they_are() {
        let test = |path, item| Case::test(path, item).unwrap();
        assert_eq!(test("conformance/tests/extra/sim.rs", "same").test, "sim::same");
        assert_eq!(test("conformance/tests/extra/shm.rs", "same").test, "shm::same");
        assert_eq!(test("ffi/vma/tests/extra.rs", "same").test, "same");
        assert_eq!(test("xtask/src/conformance/case.rs", "tests::same").test, "conformance::case::tests::same");
    }

    #[test]
    fn only_tests_are_cases() {
        let names = |text, function| tests_of(text, function).join(" ");
        let text = "#[test]\nfn one() {}\nfn two() {}\n";
        assert_eq!([names(text, "one"), names(text, "two"), names(text, "on")], ["one", "", ""]);
        let text = "cases! {\n    run theme {\n        fn one();\n    }\n}\n\nfn two() {\n}\n";
        assert_eq!([names(text, "one"), names(text, "two")], ["one", ""]);
        let text =
            "fn one(n: u8) {\n}\n\nproptest! {\n    #[test]\n    fn two(n in 0..9u8) {\n        three();\n    }\n}\n\nfn three() {}\n";
        assert_eq!([names(text, "one"), names(text, "two"), names(text, "three")], ["", "two", ""]);
    }

    #[test]
    fn a_test_is_called_by_the_modules_that_it_is_in() {
        // Of two functions of one name, either may be the test.
        let text =
            "fn one() {}\nmod tests {\n    #[test]\n    fn one() {}\n\n    mod inner {\n        #[test]\n        fn two() {}\n    }\n}\n";
        assert_eq!([tests_of(text, "one"), tests_of(text, "two")], [["tests::one"], ["tests::inner::two"]]);
    }
}
