//! `cargo xtask install`: libraries, header, rules, manual pages, pkg-config file, commands and examples, under a prefix.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::workspace::Workspace;

/// Where to.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where it will be used from.
    #[arg(long)]
    prefix: PathBuf,
    /// Puts it below this directory, as packages are made.
    #[arg(long, default_value = "/")]
    destdir: PathBuf,
    /// Where libvma.conf goes; default: PREFIX/etc, or /etc for the prefix /usr.
    #[arg(long)]
    sysconfdir: Option<PathBuf>,
}

/// Where the examples are.
const EXAMPLES: &str = "ffi/vma/examples";

/// What those in Rust share: the header, in Rust.
pub(crate) const BINDINGS: &str = "vma_extra/mod.rs";

/// The version of libvma whose programs run with this library: what the library's file and pkg-config say.
const API: &str = "9.8.70";

/// Builds, and installs.
///
/// # Errors
/// Something does not build, or cannot be written.
pub(crate) fn run(options: &Options) -> Result<()> {
    let workspace = Workspace::find()?;
    workspace.build_release()?;
    let built = Built { library: workspace.release("libvma.so"), commands: workspace.target.join("release") };
    install(&workspace, &built, options)?;
    println!("installed under {}", options.destdir.join(below(&options.prefix)).display());
    Ok(())
}

/// What was built.
pub(crate) struct Built {
    /// libvma.so.
    pub(crate) library: PathBuf,
    /// The directory that `ringway` and `vma_stats` are in.
    pub(crate) commands: PathBuf,
}

/// Installs for a test: everything below `prefix`, which is where it will be used from as well.
///
/// # Errors
/// As [`run`].
pub(crate) fn install_at(workspace: &Workspace, built: &Built, prefix: &Path, destdir: &Path) -> Result<()> {
    install(workspace, built, &Options { prefix: prefix.to_owned(), destdir: destdir.to_owned(), sysconfdir: None })
}

fn install(workspace: &Workspace, built: &Built, options: &Options) -> Result<()> {
    ensure!(options.prefix.is_absolute(), "--prefix is an absolute path");
    let place = |path: &Path| options.destdir.join(below(path));
    let prefix = |path: &str| place(&options.prefix.join(path));
    library(&built.library, &prefix("lib"))?;
    for command in ["ringway", "vma_stats"] {
        put(&built.commands.join(command), &prefix("bin").join(command), 0o755)?;
    }
    let source = |path: &str| workspace.root.join(path);
    put(&source("ffi/vma/include/mellanox/vma_extra.h"), &prefix("include/mellanox/vma_extra.h"), 0o644)?;
    put(&source("ffi/cli/man/ringway.1"), &prefix("share/man/man1/ringway.1"), 0o644)?;
    put(&source("ffi/cli/man/vma_stats.8"), &prefix("share/man/man8/vma_stats.8"), 0o644)?;
    let page = Command::new(built.commands.join("ringway")).args(["doctor", "--params", "--man"]).output()?;
    ensure!(page.status.success() && !page.stdout.is_empty(), "ringway doctor --params --man: {}", page.status);
    write(&prefix("share/man/man7/ringway-params.7"), &page.stdout)?;
    write(&prefix("lib/pkgconfig/libvma.pc"), pkg_config(&options.prefix).as_bytes())?;
    let from = source(EXAMPLES);
    for example in examples(workspace)?.iter().chain([&from.join(BINDINGS)]) {
        put(example, &prefix("share/doc/ringway/examples").join(example.strip_prefix(&from)?), 0o644)?;
    }
    let etc = match &options.sysconfdir {
        Some(directory) => directory.clone(),
        None if options.prefix == Path::new("/usr") => PathBuf::from("/etc"),
        None => options.prefix.join("etc"),
    };
    let rules = place(&etc.join("libvma.conf"));
    // Somebody may have written rules of their own there.
    if rules.exists() {
        println!("{} is left as it is", rules.display());
    } else {
        put(&source("ffi/vma/libvma.conf"), &rules, 0o644)?;
    }
    Ok(())
}

/// The examples: every C and Rust file of their folder.
///
/// # Errors
/// The folder cannot be listed.
pub(crate) fn examples(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let folder = workspace.root.join(EXAMPLES);
    let entries = fs::read_dir(&folder).with_context(|| format!("{}", folder.display()))?;
    let files = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    let mut files: Vec<_> = files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "c" || end == "rs")).collect();
    files.sort();
    Ok(files)
}

/// The library under its full name, and the two names by which it is looked for: by loaders, and by people and compilers.
fn library(built: &Path, folder: &Path) -> Result<()> {
    let full = format!("libvma.so.{API}");
    put(built, &folder.join(&full), 0o755)?;
    let major = API.split('.').next().unwrap_or(API);
    for (name, target) in [(format!("libvma.so.{major}"), full.as_str()), ("libvma.so".to_owned(), &format!("libvma.so.{major}"))] {
        let link = folder.join(name);
        // (A link cannot be written over.)
        let _ = fs::remove_file(&link);
        symlink(target, &link).with_context(|| format!("{}", link.display()))?;
    }
    Ok(())
}

fn pkg_config(prefix: &Path) -> String {
    format!(
        "prefix={}\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\nName: libvma\n\
         Description: Socket programs in user space; the VMA Extra API. Programs are preloaded, not linked.\n\
         Version: {API}\nLibs:\nCflags: -I${{includedir}}\n",
        prefix.display()
    )
}

/// An absolute path, relative to the root.
fn below(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn put(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let bytes = fs::read(from).with_context(|| format!("{}", from.display()))?;
    write(to, &bytes)?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

/// As a new file: a program may be running from the old one.
fn write(to: &Path, bytes: &[u8]) -> Result<()> {
    let folder = to.parent().context("a file in no folder")?;
    fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    let _ = fs::remove_file(to);
    fs::write(to, bytes).with_context(|| format!("{}", to.display()))
}
