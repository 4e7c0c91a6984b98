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
        let output = cargo().args(["metadata", "--no-deps", "--format-version", "1"]).stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "cargo metadata failed");
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
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

/// A command as a person would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let words: Vec<_> = std::iter::once(program).chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    words.join(" ")
}
