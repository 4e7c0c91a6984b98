//! `cargo xtask vm`: a command in a virtual machine whose kernel has soft-RoCE (rxe), which few machines' own kernels have.
//!
//! The kernel is Debian's, from a package ([`kernel`]); the guest's root is this machine's, read-only, beneath what the guest writes, which is forgotten
//! ([`image`]). So a command finds there what it would find here, and nothing is copied. Each guest has an RDMA device `rxe0` at an address of its own.

mod guest;
mod image;
mod kernel;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::Args;

use self::guest::{Guest, Wire};
use self::image::Image;
use self::kernel::Kernel;
use crate::install::{self, Package};
use crate::workspace::Workspace;

const PACKAGES: [Package; 10] = [
    Package::QEMU_SYSTEM,
    Package::BUSYBOX,
    Package::CPIO,
    Package::DPKG,
    Package::IPROUTE,
    Package::IBVERBS_PROVIDERS,
    Package::IBVERBS_UTILS,
    Package::KMOD,
    Package::RDMACM_UTILS,
    Package::XZ,
];

/// Seconds that a guest has. Booting takes four; what it emulates, ten times as long as the machine itself, or more.
const PATIENCE_S: u64 = 600;
/// The same of two whose cases may take longer than that together.
pub(crate) const MUCH_PATIENCE_S: u64 = 900;

/// What runs where.
#[derive(Args)]
pub(crate) struct Options {
    /// Which of Debian's kernels: the beginning of its version, such as 6.1 or 6.12. The distribution's own, if not given.
    #[arg(long)]
    kernel: Option<String>,
    /// A second guest on the same wire, which runs this (by sh -c) and ends with the first. Each finds the other's address in RINGWAY_VM_PEER.
    #[arg(long, value_name = "COMMAND")]
    peer: Option<String>,
    /// What is on the wire between two guests.
    #[arg(long, value_name = "FILE", requires = "peer")]
    pcap: Option<PathBuf>,
    /// Seconds, after which the guests are killed, and the end of what their kernels said is shown.
    #[arg(long, default_value_t = PATIENCE_S)]
    patience: u64,
    /// The command, and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Obtains a kernel, starts a guest or two, and ends as the command does.
///
/// # Errors
/// A package or the kernel cannot be had, a guest does not boot or is not done in time, or the command fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let workspace = Workspace::find()?;
    let status = play(&workspace, options)?;
    ensure!(status == 0, "the command in the guest ended with {status}");
    Ok(())
}

/// A step of `cargo xtask test`: a command in a guest of the distribution's kernel.
///
/// # Errors
/// As [`run`].
pub(crate) fn in_guest(command: Vec<String>) -> Result<()> {
    run(&Options { kernel: None, peer: None, pcap: None, patience: PATIENCE_S, command })
}

/// Runs tests that only a guest has the device for, of test binaries that are built: the exit status, and what was said.
///
/// # Errors
/// As [`run`].
pub(crate) fn tests_in_guest(workspace: &Workspace, binaries: &[PathBuf], arguments: &[&str]) -> Result<(i32, String)> {
    let mut command = vec!["sh".to_owned(), "conformance/tests/rxe.sh".to_owned()];
    command.extend(binaries.iter().map(|binary| binary.to_string_lossy().into_owned()));
    command.push("--".to_owned());
    command.extend(arguments.iter().map(|&argument| argument.to_owned()));
    let status = play(workspace, &Options { kernel: None, peer: None, pcap: None, patience: PATIENCE_S, command })?;
    Ok((status, std::fs::read_to_string(workspace.target.join("vm/guest/output"))?.replace('\r', "")))
}

/// The same of two guests on one wire: `peer` is what a shell runs in the other one, which ends with the first. Their kernel is the newest one of that version, if apt knows one.
///
/// # Errors
/// As [`run`].
pub(crate) fn in_two_guests(version: Option<&str>, command: Vec<String>, peer: String) -> Result<()> {
    in_two_guests_for(PATIENCE_S, version, command, peer)
}

/// The same, for so many seconds.
///
/// # Errors
/// As [`run`].
pub(crate) fn in_two_guests_for(patience: u64, version: Option<&str>, command: Vec<String>, peer: String) -> Result<()> {
    let kernel = match version {
        Some(version) if kernel::is_known(version)? => Some(version.to_owned()),
        _ => None,
    };
    run(&Options { kernel, peer: Some(peer), pcap: None, patience, command })
}

/// The same; the command's exit status.
fn play(workspace: &Workspace, options: &Options) -> Result<i32> {
    if !cfg!(target_arch = "x86_64") {
        bail!("guests are of x86-64 only, so far: run the same on a machine whose kernel has rxe (modprobe rdma_rxe)");
    }
    install::packages(&PACKAGES)?;
    let folder = workspace.target.join("vm");
    let kernel = Kernel::obtain(&folder, options.kernel.as_deref())?;
    let end = Instant::now() + Duration::from_secs(options.patience);
    let start = |name: &str, wire: Option<Wire>, command: &str| {
        let image = Image { kernel: &kernel, workspace, wire: wire.as_ref(), command };
        Guest::start(&folder.join(name), &image, end)
    };
    let command = shell_words(&options.command);
    let Some(peer) = &options.peer else { return start("guest", None, &command)?.finish() };
    let peer_says = || std::fs::read_to_string(folder.join("peer/output")).unwrap_or_default();
    let [first, second] = Wire::between_two(options.pcap.clone())?;
    let guest = start("guest", Some(first), &command)?;
    // (It is killed when the first one has ended.)
    let _peer = start("peer", Some(second), peer)?;
    let status = guest.finish()?;
    if status != 0 {
        println!("the other guest said:\n{}", peer_says());
    }
    Ok(status)
}

/// Words as a shell reads them back.
fn shell_words(words: &[String]) -> String {
    let quoted = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_shell_reads_back_what_was_written() {
        let words = ["echo", "it's", "a b", "$HOME", ""].map(str::to_owned);
        let output =
            std::process::Command::new("sh").args(["-c", &format!("printf '%s|' {}", super::shell_words(&words))]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "echo|it's|a b|$HOME||");
    }
}
