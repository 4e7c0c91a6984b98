//! `cargo xtask deb`: a Debian package. What is in it is [`crate::deploy`]'s list, so that a package and an installation are the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::deploy::{self, Options};
use crate::install::{self, Package};
use crate::workspace::{Workspace, run_command};

/// The oldest glibc whose symbols the library and the commands use.
const GLIBC: &str = "2.34";

/// Builds, and packs.
///
/// # Errors
/// Something does not build, or cannot be packed.
pub(crate) fn run() -> Result<()> {
    let workspace = Workspace::find()?;
    workspace.build_installed()?;
    println!("{}", pack(&workspace, &workspace.target.join("release"), &workspace.target)?.display());
    Ok(())
}

/// Packs what was built, which is in the directory `built`; where the package is.
///
/// # Errors
/// As [`run`].
pub(crate) fn pack(workspace: &Workspace, built: &Path, into: &Path) -> Result<PathBuf> {
    install::packages(&[Package::DPKG])?;
    let stage = into.join("deb");
    if stage.exists() {
        fs::remove_dir_all(&stage)?;
    }
    let architecture = told(Command::new("dpkg").arg("--print-architecture"))?;
    let triplet = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
    deploy::install(workspace, built, &Options::at(Path::new("/usr"), &stage).with_libdir(&triplet))?;
    let version = env!("CARGO_PKG_VERSION");
    let control = format!(
        "Package: ringway\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: The Ringway developers <ringway@localhost>\n\
         Depends: libc6 (>= {GLIBC}), libgcc-s1\nConflicts: libvma, libvma-utils, libvma-dev\nSection: net\nPriority: optional\n\
         Description: TCP and UDP sockets in user space\n \
         libvma.so, preloaded, carries unmodified socket programs over shared memory.\n \
         librsocket.so has rsockets for programs that are linked with it, and\n librspreload.so makes others' sockets rsockets.\n \
         ringway runs programs so, shows what their sockets carry, and says why\n something is not offloaded.\n"
    );
    fs::create_dir_all(stage.join("DEBIAN"))?;
    fs::write(stage.join("DEBIAN/control"), control)?;
    // dpkg asks before it replaces what somebody has changed.
    fs::write(stage.join("DEBIAN/conffiles"), "/etc/libvma.conf\n")?;
    let package = into.join(format!("ringway_{version}_{architecture}.deb"));
    run_command(Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).arg(&stage).arg(&package))?;
    Ok(package)
}

/// What a command prints.
///
/// # Errors
/// It fails.
pub(crate) fn told(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{}", command.get_program().display()))?;
    ensure!(output.status.success(), "{}: {}", command.get_program().display(), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
