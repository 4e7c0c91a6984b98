//! Where a broker listens, and what it is to know of the sockets that come to it.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::events::StartError;
use super::message::namespace;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// Its file goes when it does.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    path: PathBuf,
    /// Nobody else listens there as long as this is open (after the file has gone, that is).
    _locks: Vec<OwnedFd>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Anybody may connect, to be told why he is not served.
const MODE: u32 = 0o666;
const FOLDER_MODE: u32 = 0o755;
/// (Whoever may open it may lock it.)
const LOCK_MODE: u32 = 0o600;

/// Those who have the place of a broker: at a path, and on interfaces. Files beside its socket, each of which one process at a time has a lock on (flock(2)): it ends with the process.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    locks: Vec<OwnedFd>,
}

impl Place {
    /// At that path.
    pub(super) fn take(path: PathBuf) -> Result<Self, StartError> {
        let at = |error| StartError::Socket { path: path.clone(), error };
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
            fs::create_dir_all(folder).map_err(at)?;
            fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE)).map_err(at)?;
        }
        let name = path.file_name().ok_or_else(|| at(io::ErrorKind::InvalidFilename.into()))?;
        let mut beside = name.to_owned();
        beside.push(".lock");
        match lock(&path.with_file_name(beside))? {
            Some(lock) => Ok(Self { path, locks: vec![lock] }),
            None => Err(StartError::Running(path)),
        }
    }

    /// On that interface of the calling thread's network namespace.
    pub(super) fn and_interface(&mut self, interface: &str) -> Result<(), StartError> {
        let beside = self.path.with_file_name(format!("{interface}-{}.lock", namespace()));
        let lock = lock(&beside)?.ok_or_else(|| StartError::Served(interface.to_owned()))?;
        self.locks.push(lock);
        Ok(())
    }
}

/// `None`: another process has it. (The file stays: whoever removed it could remove another one's.)
fn lock(path: &Path) -> Result<Option<OwnedFd>, StartError> {
    let at = |error: Errno| StartError::Socket { path: path.to_owned(), error: error.into() };
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = open(path, flags, Mode::from(LOCK_MODE)).map_err(at)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(at(error)),
    }
}

/// Listens at a broker's place.
pub(super) fn listen(Place { path, locks }: Place) -> Result<Listener, StartError> {
    let at = |error: io::Error| StartError::Socket { path: path.clone(), error };
    let make = || net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None);
    let address = SocketAddrUnix::new(&path).map_err(|error| at(error.into()))?;
    if path.exists() {
        match net::connect(make().map_err(|error| at(error.into()))?, &address) {
            Ok(()) | Err(Errno::AGAIN) => return Err(StartError::Running(path)),
            // (Its broker was killed, else it had the lock. What is no socket is nobody's to remove.)
            Err(Errno::CONNREFUSED) if is_socket(&path) => fs::remove_file(&path).map_err(at)?,
            Err(error) => return Err(at(error.into())),
        }
    }
    let socket = make().map_err(|error| at(error.into()))?;
    net::bind(&socket, &address).map_err(|error| at(error.into()))?;
    let listener = Listener { socket, path: path.clone(), _locks: locks };
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
    number_of(socket, SO_NETNS_COOKIE)
}

/// Which socket that is, by a number that no other has until the machine starts anew.
pub(super) fn cookie_of(socket: BorrowedFd<'_>) -> Option<u64> {
    number_of(socket, libc::SO_COOKIE)
}

/// (For neither the kernel takes the socket's lock.)
fn number_of(socket: BorrowedFd<'_>, name: i32) -> Option<u64> {
    let (mut number, mut len) = (0_u64, size_of::<u64>() as libc::socklen_t);
    let (value, size) = ((&raw mut number).cast(), &raw mut len);
    // SAFETY: both are writable for their lengths.
    let found = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, value, size) };
    (found == 0).then_some(number)
}

/// Whether descriptors may be passed to a Unix socket. (Before Linux 6.16 they always may.)
pub(super) fn set_takes_descriptors(socket: &OwnedFd, takes: bool) {
    /// include/uapi/asm-generic/socket.h.
    const SO_PASSRIGHTS: i32 = 83;
    let value = i32::from(takes);
    // SAFETY: the value is readable for its length.
    unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const value).cast(), size_of::<i32>() as u32) };
}
