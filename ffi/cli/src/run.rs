//! `ringway run`: becomes the program, with `libvma.so` preloaded, or `librspreload.so`, or `libringway_connectx.so`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Result, bail, ensure};
use ringway_params::Id;

use crate::{binary, library};

/// How to run which program.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The devices to use: auto, shm, shm,xdp:INTERFACE, mlx5:NAME (or several of them), or off. Without this, what RINGWAY_DEVICE says, or auto.
    #[arg(long, value_parser = device, conflicts_with = "rsocket")]
    device: Option<String>,
    /// Its sockets become rsockets (rsocket(7)), where their peers have them too: LD_PRELOAD=…/librspreload.so PROGRAM. With RDMAV_FORK_SAFE=1 on both sides, also
    /// those of servers that fork.
    #[arg(long)]
    rsocket: bool,
    /// Programs of verbs find a ConnectX in software: LD_PRELOAD=…/libringway_connectx.so PROGRAM. With --device mlx5:mlx5_0, so does libvma.so, and the program's
    /// sockets are on it.
    #[arg(long, conflicts_with = "rsocket")]
    software_connectx: bool,
    /// The program and its arguments. Options of `ringway run` come before it.
    #[arg(trailing_var_arg = true, required = true)]
    pub(crate) program: Vec<OsString>,
}

/// What `RINGWAY_DEVICE` may say.
fn device(text: &str) -> Result<String, String> {
    let kind = Id::Device.row().kind;
    kind.parse(text).map(|(text, _)| text).ok_or_else(|| format!("it may be {}", kind.allowed()))
}

/// The program could not be executed.
#[derive(Debug)]
pub(crate) struct NotExecuted {
    program: OsString,
    error: io::Error,
}

impl NotExecuted {
    /// As shells, env(1) and timeout(1) end then: 127 where there is no such program, 126 where there is one and it cannot be executed.
    pub(crate) fn status(&self) -> u8 {
        if self.error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
    }
}

impl fmt::Display for NotExecuted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot run {}: {}", self.program.display(), self.error)
    }
}

impl std::error::Error for NotExecuted {}

/// Does not return, unless it fails.
///
/// # Errors
/// No library; or [`NotExecuted`].
pub(crate) fn run(options: &Options) -> Result<()> {
    let libraries: &[library::Library] = match options {
        Options { rsocket: true, .. } => &[library::RSPRELOAD],
        Options { software_connectx: true, device: None, .. } => &[library::CONNECTX],
        // (The card comes first: what libvma.so asks of files and devices goes through it.)
        Options { software_connectx: true, .. } => &[library::CONNECTX, library::VMA],
        _ => &[library::VMA],
    };
    let mut all = env::var_os("LD_PRELOAD");
    for library in libraries.iter().rev() {
        let library = library.find()?;
        let splits = |b: &u8| b.is_ascii_whitespace() || *b == b':';
        ensure!(
            !library.as_os_str().as_bytes().iter().any(splits),
            "ld.so splits at blanks and colons, so it cannot preload {}",
            library.display()
        );
        all = Some(preload(library.as_os_str(), all));
    }
    if let Some(obstacle) = binary::obstacle(&options.program[0]) {
        let without = if libraries == [library::CONNECTX] { "find no software ConnectX" } else { "run on the kernel" };
        eprintln!("ringway: it will {without}: {obstacle}");
    }
    let mut command = Command::new(&options.program[0]);
    command.args(&options.program[1..]);
    if let Some(all) = all {
        command.env("LD_PRELOAD", all);
    }
    if let Some(device) = &options.device {
        command.env("RINGWAY_DEVICE", device);
    }
    let error = command.exec();
    bail!(NotExecuted { program: options.program[0].clone(), error });
}

/// The library comes first, so that its calls are the program's; what else was to be preloaded stays.
fn preload(library: &OsStr, others: Option<OsString>) -> OsString {
    let mut all = library.to_owned();
    if let Some(others) = others.filter(|o| !o.is_empty()) {
        all.push(":");
        all.push(others);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_preloaded_stays_so() {
        assert_eq!(preload(OsStr::new("/a.so"), None), "/a.so");
        assert_eq!(preload(OsStr::new("/a.so"), Some("".into())), "/a.so");
        assert_eq!(preload(OsStr::new("/a.so"), Some("/b.so /c.so".into())), "/a.so:/b.so /c.so");
    }
}
