//! One case: where it is, and which of cargo's tests runs it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::workspace::{Workspace, cargo};

/// See the parent module.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) target: Target,
    /// The test's own name, without the modules that it is in.
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
        let (path, function) = name.rsplit_once("::").context("it is not file::function")?;
        let text = fs::read_to_string(workspace.root.join(path)).context("there is no such file")?;
        if !path.ends_with(".c") {
            ensure!(has_test(&text, function), "there is no such test");
            return Ok(Self { target: Target::of(path)?, test: function.to_owned() });
        }
        ensure!(text.contains(&format!(" {function}(")), "there is no such function");
        let program = Path::new(path).file_stem().and_then(|stem| stem.to_str()).context("it has no name")?;
        Self::that_runs(workspace, program)
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
                let test = test.split('(').next().unwrap_or_default().to_owned();
                return Ok(Self { target: Target::of(&path)?, test });
            }
        }
        bail!("no test in {folder} runs it")
    }
}

fn has_test(text: &str, function: &str) -> bool {
    let declared = format!("fn {function}(");
    text.match_indices(&declared)
        .any(|(at, _)| text[..at].rsplit('\n').skip(1).take(4).any(|line| line.contains("#[test]") || line.contains("proptest!")))
        || (text.contains("proptest! {") && text.contains(&declared))
}

impl Target {
    fn of(path: &str) -> Result<Self> {
        if let Some((folder, rest)) = path.split_once("/tests/") {
            // (A folder named tests may be a module's as well.)
            if !folder.contains("/src") {
                let test = rest.split(['/', '.']).next().map(str::to_owned);
                return Ok(Self { folder: folder.to_owned(), test });
            }
        }
        let (folder, _) = path.split_once("/src/").context("it is neither a package's source nor its test")?;
        Ok(Self { folder: folder.to_owned(), test: None })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn target(folder: &str, test: Option<&str>) -> Target {
        Target { folder: folder.to_owned(), test: test.map(str::to_owned) }
    }

    #[test]
    fn a_path_names_its_test_binary() {
        assert_eq!(Target::of("stack/src/ring/lending/tests.rs").ok(), Some(target("stack", None)));
        assert_eq!(Target::of("backends/shm/src/tests/crash.rs").ok(), Some(target("backends/shm", None)));
        assert_eq!(Target::of("ffi/vma/tests/extra.rs").ok(), Some(target("ffi/vma", Some("extra"))));
        assert_eq!(Target::of("conformance/tests/sentences/main.rs").ok(), Some(target("conformance", Some("sentences"))));
        assert!(Target::of("README.md").is_err());
    }

    #[test]
    fn only_tests_are_cases() {
        let text = "#[test]\nfn one() {}\nfn two() {}\n";
        assert!(has_test(text, "one") && !has_test(text, "two") && !has_test(text, "on"));
    }
}
