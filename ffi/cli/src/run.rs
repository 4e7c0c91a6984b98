//! `ringway run`: becomes the program, with `libvma.so` preloaded.

use std::convert::Infallible;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;

use crate::{binary, library};

/// How to run which program.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The device to use (RINGWAY_DEVICE).
    #[arg(long, value_enum, default_value_t = Device::Auto)]
    device: Device,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    pub(crate) program: Vec<OsString>,
}

/// What `RINGWAY_DEVICE` may say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Device {
    /// The best that there is.
    Auto,
    /// Shared memory.
    Shm,
    /// None: the library is loaded and stays out of the way.
    Off,
}

/// Does not return, unless it fails.
///
/// # Errors
/// No library, or no such program.
pub(crate) fn run(options: &Options) -> Result<()> {
    let library = library::find()?;
    let splits = |b: &u8| b.is_ascii_whitespace() || *b == b':';
    ensure!(
        !library.as_os_str().as_bytes().iter().any(splits),
        "ld.so splits at blanks and colons, so it cannot preload {}",
        library.display()
    );
    if let Some(obstacle) = binary::obstacle(&options.program[0]) {
        eprintln!("ringway: it will run on the kernel: {obstacle}");
    }
    let device = options.device.to_possible_value().context("a device without a name")?;
    let failed: Result<Infallible, _> = Err(Command::new(&options.program[0])
        .args(&options.program[1..])
        .env("LD_PRELOAD", preload(library.as_os_str(), env::var_os("LD_PRELOAD")))
        .env("RINGWAY_DEVICE", device.get_name())
        .exec());
    match failed.with_context(|| format!("cannot run {}", options.program[0].display()))? {}
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
