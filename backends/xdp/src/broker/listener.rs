//! Where a broker listens, and what it is to know of the sockets that come to it.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::events::StartError;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// Its file goes when it does.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    path: PathBuf,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Anybody may connect, to be told why he is not served.
const MODE: u32 = 0o666;
const FOLDER_MODE: u32 = 0o755;

/// Listens there, where nobody else does.
pub(super) fn listen(path: PathBuf) -> Result<Listener, StartError> {
    let at = |error: io::Error| StartError::Socket { path: path.clone(), error };
    let make = || net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None);
    let address = SocketAddrUnix::new(&path).map_err(|error| at(error.into()))?;
    if path.exists() {
        match net::connect(make().map_err(|error| at(error.into()))?, &address) {
            Ok(()) | Err(Errno::AGAIN) => return Err(StartError::Running(path)),
            // (Its broker was killed. What is no socket is nobody's to remove.)
            Err(Errno::CONNREFUSED) if is_socket(&path) => fs::remove_file(&path).map_err(at)?,
            Err(error) => return Err(at(error.into())),
        }
    }
    if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
        fs::create_dir_all(folder).map_err(at)?;
        fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE)).map_err(at)?;
    }
    let socket = make().map_err(|error| at(error.into()))?;
    net::bind(&socket, &address).map_err(|error| at(error.into()))?;
    let listener = Listener { socket, path: path.clone() };
    // (Who connects has this of the listener: nobody can pass anything before it is known who it is.)
    set_takes_descriptors(&listener.socket, false);
    fs::set_permissions(&path, Permissions::from_mode(MODE)).map_err(at)?;
    net::listen(&listener.socket, BACKLOG).map_err(|error| at(error.into()))?;
    Ok(listener)
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

/// Of which network namespace a socket is, by a number (since Linux 5.14).
pub(super) fn namespace_of(socket: BorrowedFd<'_>) -> Option<u64> {
    /// include/uapi/asm-generic/socket.h.
    const SO_NETNS_COOKIE: i32 = 71;
    let (mut cookie, mut len) = (0_u64, size_of::<u64>() as libc::socklen_t);
    let (value, size) = ((&raw mut cookie).cast(), &raw mut len);
    // SAFETY: both are writable for their lengths.
    let found = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_NETNS_COOKIE, value, size) };
    (found == 0).then_some(cookie)
}

/// Whether descriptors may be passed to a Unix socket. (Before Linux 6.16 they always may.)
pub(super) fn set_takes_descriptors(socket: &OwnedFd, takes: bool) {
    /// include/uapi/asm-generic/socket.h.
    const SO_PASSRIGHTS: i32 = 83;
    let value = i32::from(takes);
    // SAFETY: the value is readable for its length.
    unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const value).cast(), size_of::<i32>() as u32) };
}
