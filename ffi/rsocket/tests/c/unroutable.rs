//! Addresses that no way leads to: the same errno as librdmacm's, on a device that leads elsewhere.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;

use crate::compile;

/// What makes a network namespace, for a command that follows; none: there is none to be had.
pub(crate) fn namespace() -> Option<&'static [&'static str]> {
    // (Whoever is not root may have one as root of a user namespace.)
    let ways: [&[&str]; 2] = [&["unshare", "-n"], &["unshare", "-rn"]];
    ways.into_iter().find(|way| {
        let tried = Command::new(way[0]).args(&way[1..]).args(["ip", "link", "set", "lo", "up"]).output();
        tried.is_ok_and(|output| output.status.success())
    })
}

/// Lines of sh(1) that make the routes of [`ADDRESSES`], as root of a namespace.
pub(crate) const ROUTES: &str = "
ip link add un0 type veth peer name un1
ip address add 10.77.3.1/24 dev un0
ip link set un0 up
ip link set un1 up
ip neighbour add 10.77.3.2 lladdr 02:00:00:00:00:77 dev un0 nud permanent
ip route add unreachable 198.51.100.1
ip route add prohibit 198.51.100.2
ip route add blackhole 198.51.100.3
ip -6 route add unreachable fd77::1
";

/// Addresses, and the errno of each, of streams and of datagrams.
pub(crate) fn addresses() -> Vec<String> {
    of(&[
        ("192.0.2.1", libc::ENETUNREACH),
        ("2001:db8::1", libc::ENETUNREACH),
        ("198.51.100.1", libc::EHOSTUNREACH),
        ("fd77::1", libc::EHOSTUNREACH),
        ("198.51.100.2", libc::EACCES),
        // (There is a way, by another interface than the device's.)
        ("10.77.3.2", libc::ENODEV),
    ])
}

/// The same of streams alone.
pub(crate) fn addresses_of_streams() -> Vec<String> {
    [addresses(), of(&[("198.51.100.3", libc::EINVAL)])].concat()
}

fn of(all: &[(&str, i32)]) -> Vec<String> {
    all.iter().flat_map(|(address, errno)| [(*address).to_owned(), errno.to_string()]).collect()
}

/// A folder where librdmacm's library has the name of this one, for programs that are to run with that.
pub(crate) fn librdmacm() -> PathBuf {
    let folder = compile::libraries().join("librdmacm");
    std::fs::create_dir_all(&folder).expect("a folder");
    let named = Command::new("gcc").arg("-print-file-name=librdmacm.so.1").output().expect("gcc must be installed");
    let library = PathBuf::from(String::from_utf8_lossy(&named.stdout).trim());
    assert!(library.is_absolute(), "librdmacm1 must be installed");
    let link = folder.join("librsocket.so.1");
    let _ = std::fs::remove_file(&link);
    symlink(library, &link).expect("a link");
    folder
}
