//! Network namespaces of a test's own, and what is in them.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::{Command, Stdio};

use ringway_stack::device::MacAddr;

pub(crate) fn mac(MacAddr(bytes): MacAddr) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

/// The calling thread's from now on.
pub(crate) fn new_namespace() -> Option<File> {
    // SAFETY: no memory is involved.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return None;
    }
    File::open("/proc/thread-self/ns/net").ok()
}

pub(crate) fn enter(namespace: &File) {
    // SAFETY: no memory is involved.
    let entered = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    assert_eq!(entered, 0, "setns: {}", io::Error::last_os_error());
}

/// Runs lines of ip(8), each of which must do.
pub(crate) fn ip(lines: &str) {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("ip(8)");
    child.stdin.take().expect("piped").write_all(lines.as_bytes()).expect("ip(8) reads");
    let output = child.wait_with_output().expect("ip(8)");
    assert!(output.status.success(), "ip: {}\n{lines}", String::from_utf8_lossy(&output.stderr));
}

/// ethtool's commands that switch off what a sender leaves to its device: frames come as a wire would carry them, no longer than its MTU, with whole
/// checksums (ETHTOOL_STXCSUM, ETHTOOL_SSG, ETHTOOL_STSO, ETHTOOL_SGSO).
const OFFLOADS: [u32; 4] = [0x17, 0x19, 0x1f, 0x24];

pub(crate) fn offloads_off(name: &str) {
    OFFLOADS.iter().for_each(|what| ethtool_off(name, *what));
}

/// `struct ethtool_value`, behind a `struct ifreq`.
fn ethtool_off(name: &str, command: u32) {
    let mut value = [command, 0u32];
    // SAFETY: all zeroes is a valid ifreq.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    // SAFETY: the kernel has just made it, for us.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the request, and what it points to, are readable and writable.
    let done = unsafe {
        libc::ioctl(fd.as_raw_fd(), 0x8946 /* SIOCETHTOOL */, &raw mut request)
    };
    assert_eq!(done, 0, "ethtool {command:#x}: {}", io::Error::last_os_error());
}
