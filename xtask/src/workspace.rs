//! Where things are, how they are built, and how other programs are run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

/// The checkout that this xtask belongs to.
pub(crate) struct Workspace {
    /// Its top folder.
    pub(crate) root: PathBuf,
    /// Where cargo puts what it builds.
    pub(crate) target: PathBuf,
}

impl Workspace {
    /// Asks cargo.
    pub(crate) fn find() -> Result<Self> {
        let metadata = metadata()?;
        let path = |key: &str| metadata[key].as_str().map(PathBuf::from).with_context(|| format!("cargo metadata has no {key}"));
        Ok(Self { root: path("workspace_root")?, target: path("target_directory")? })
    }

    /// Something that [`Workspace::build_release`] built.
    pub(crate) fn release(&self, name: &str) -> PathBuf {
        self.target.join("release").join(name)
    }

    /// Builds what users get: `libvma.so`, `ringway` and `vma_stats`.
    pub(crate) fn build_release(&self) -> Result<()> {
        self.build(&["--package", "ringway-vma", "--package", "ringway-cli"])
    }

    /// Builds that, and the libraries of rsockets: all that is installed.
    pub(crate) fn build_installed(&self) -> Result<()> {
        self.build_release()?;
        self.build_rsockets()
    }

    /// Builds `librsocket.so` and `librspreload.so`.
    pub(crate) fn build_rsockets(&self) -> Result<()> {
        self.build(&["--package", "ringway-rsocket", "--package", "ringway-rspreload"])
    }

    /// Builds what users get for tests, whose simulator counts the rare paths of the stack's code. One after the other: the library refuses to be built
    /// from a stack that counts.
    pub(crate) fn build_tested(&self) -> Result<()> {
        self.build_simulator()?;
        self.build(&["--package", "ringway-vma", "--package", "ringway-rspreload", "--package", "ringway-uverbs"])
    }

    /// Builds `ringway` with that simulator.
    pub(crate) fn build_simulator(&self) -> Result<()> {
        self.build(&["--package", "ringway-cli", "--features", "marks"])
    }

    fn build(&self, what: &[&str]) -> Result<()> {
        run_command(cargo().current_dir(&self.root).args(["build", "--release"]).args(what))
    }

    /// What `cargo test --workspace` has built, where users of a debug build find it: libraries, commands, and examples.
    ///
    /// cargo unites the features of the packages that a call chooses, so each choice has dependencies of its own: the stack, too, would be built again
    /// for a package alone. So all calls of a test run choose all packages, and say which targets of them they want. (Examples are among them for one
    /// more reason: with them, cargo unites what tests depend on as well.)
    pub(crate) fn build_debug(&self) -> Result<()> {
        let targets = ["--lib", "--bin", "ringway", "--bin", "vma_stats", "--examples"];
        run_command(cargo().current_dir(&self.root).args(["build", "--quiet", "--workspace"]).args(targets))
    }

    /// The binary of an integration test, built: of the package in that folder, with all packages' features (see [`Workspace::build_debug`]).
    pub(crate) fn test_binary(&self, folder: &str, test: &str) -> Result<PathBuf> {
        let mut build = cargo();
        build.current_dir(&self.root).args(["test", "--quiet", "--workspace", "--test", test, "--no-run"]);
        let output = build.args(["--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "{folder}/tests/{test} does not build");
        let messages = String::from_utf8(output.stdout)?;
        let manifest = self.root.join(folder).join("Cargo.toml");
        executable(&messages, &manifest, test).with_context(|| format!("{folder}/tests/{test} is no binary"))
    }

    /// The folder of a package, relative to the workspace's top.
    pub(crate) fn folder(&self, package: &str) -> Result<String> {
        let metadata = metadata()?;
        let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
        let manifest = packages.iter().find(|one| one["name"] == package).and_then(|one| one["manifest_path"].as_str());
        let folder = Path::new(manifest.with_context(|| format!("no package {package}"))?).parent().context("a file without a folder")?;
        Ok(folder.strip_prefix(&self.root)?.to_str().context("a path that is not UTF-8")?.to_owned())
    }

    /// The command that runs it, where cargo would.
    pub(crate) fn test_command(&self, folder: &str, test: &str) -> Result<Command> {
        let mut command = Command::new(self.test_binary(folder, test)?);
        command.current_dir(self.root.join(folder));
        Ok(command)
    }

    /// A program, run in the workspace's top folder.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root);
        command
    }

    /// The files of the checkout, relative to its top: tracked, and new ones that are not ignored.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>> {
        let output = self.command("git").args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]).output()?;
        ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
        let names = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
        let files = names.split('\0').filter(|n| !n.is_empty()).map(PathBuf::from);
        Ok(files.filter(|f| self.root.join(f).is_file()).collect())
    }
}

/// What cargo knows of the workspace and its packages.
fn metadata() -> Result<serde_json::Value> {
    let output = cargo().args(["metadata", "--no-deps", "--format-version", "1"]).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "cargo metadata failed");
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The cargo that runs this xtask.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs `command`, its output going where ours goes.
pub(crate) fn run_command(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", shown(command)))?;
    if !status.success() {
        bail!("{} failed ({status})", shown(command));
    }
    Ok(())
}

/// The executable of a target, in what cargo says in JSON.
fn executable(messages: &str, manifest: &Path, target: &str) -> Option<PathBuf> {
    let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut of_target =
        artifacts.filter(|a| a["manifest_path"].as_str().map(Path::new) == Some(manifest) && a["target"]["name"].as_str() == Some(target));
    of_target.find_map(|a| a["executable"].as_str().map(PathBuf::from))
}

/// A command as a person would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words: Vec<_> = std::iter::once(program).chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_tests_with_one_name_the_packages_own_is_found() {
        let artifact = |folder: &str, name: &str, file: &str| {
            format!(r#"{{"manifest_path":"/w/{folder}/Cargo.toml","target":{{"name":"{name}"}},"executable":{file}}}"#)
        };
        let lines = [artifact("a", "c", r#""/t/c-1""#), artifact("b", "b", "null"), artifact("b", "c", r#""/t/c-2""#), "{}".to_owned()];
        let found = |folder: &str, name: &str| executable(&lines.join("\n"), &Path::new("/w").join(folder).join("Cargo.toml"), name);
        assert_eq!(found("a", "c"), Some("/t/c-1".into()));
        assert_eq!(found("b", "c"), Some("/t/c-2".into()));
        assert_eq!([found("b", "b"), found("c", "c")], [None, None]);
    }
}
