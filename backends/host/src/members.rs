//! The processes on Ringway, as other programs of the same user see them: which run, and what they say of themselves.
//!
//! Each has a control socket with a name of its own, whatever devices it has rings on: an abstract one (unix(7)), which goes with its process. Who connects
//! writes a line, and reads until the end.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send, socket_with};
use rustix::process::geteuid;

use crate::syscall::check;

/// The longest reply that is read.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// Whether descriptors can be passed to a socket (Linux 6.16).
const SO_PASSRIGHTS: i32 = 83;

/// A running process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberName {
    /// Its number, as this one's PID namespace has it; where it has none there, as its own does.
    pub pid: i32,
    /// Its control socket, for [`query`].
    pub name: String,
}

/// What the names of a user's control sockets begin with; the process's number follows, a `-`, and what makes it the only one.
pub fn prefix(uid: u32) -> String {
    format!("ringway/{uid}/member/")
}

/// Lists the processes of a user in this network namespace.
///
/// # Errors
/// `/proc/net/unix` could not be read.
pub fn members(uid: u32) -> io::Result<Vec<MemberName>> {
    let sockets = std::fs::read_to_string("/proc/net/unix")?;
    let mut members: Vec<_> = sockets.lines().filter_map(|line| parse(line, &prefix(uid))).collect();
    // Accepted connections are listed under the name too.
    members.sort_by(|a, b| (a.pid, &a.name).cmp(&(b.pid, &b.name)));
    members.dedup();
    members.retain_mut(|member| {
        let Ok(holder) = connected(&member.name).and_then(|socket| credentials(&socket)) else { return false };
        if holder.pid != 0 {
            member.pid = holder.pid;
        }
        holder.uid == uid
    });
    members.sort_by(|a, b| (a.pid, &a.name).cmp(&(b.pid, &b.name)));
    Ok(members)
}

/// A line of /proc/net/unix ends with the socket's name, abstract ones behind an `@` (proc(5)).
fn parse(line: &str, prefix: &str) -> Option<MemberName> {
    let name = line.split_ascii_whitespace().next_back()?.strip_prefix('@')?;
    let (pid, _) = name.strip_prefix(prefix)?.split_once('-')?;
    Some(MemberName { pid: pid.parse().ok()?, name: name.to_owned() })
}

/// Asks a process by its control socket's name, and waits at most `timeout` for its whole reply.
///
/// # Errors
/// The process is gone, doesn't answer in time, or belongs to another user than ourselves.
pub fn query(name: &str, request: &str, timeout: Duration) -> io::Result<String> {
    let deadline = Instant::now() + timeout;
    let socket = connected(name)?;
    let (uid, own) = (credentials(&socket)?.uid, geteuid().as_raw());
    if uid != own && own != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let line = format!("{request}\n");
    if send(&socket, line.as_bytes(), SendFlags::NOSIGNAL)? != line.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    let mut reply = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        match recv(&socket, piece.as_mut_slice(), RecvFlags::empty()) {
            Ok((0, _)) => break,
            Ok((len, _)) => reply.extend_from_slice(&piece[..len]),
            Err(Errno::AGAIN) => wait_until(&socket, deadline)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if reply.len() > REPLY_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    String::from_utf8(reply).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Waits until there is something to read.
fn wait_until(socket: &OwnedFd, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
    match poll(&mut [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)], Some(&left)) {
        Err(error) if error != Errno::INTR => Err(error.into()),
        _ => Ok(()),
    }
}

/// A connection to a control socket, which doesn't block.
fn connected(name: &str) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    let off = 0i32;
    // SAFETY: four readable bytes. (An older kernel has no such option, and what is passed is closed unseen.)
    unsafe { libc::syscall(libc::SYS_setsockopt, socket.as_raw_fd(), libc::SOL_SOCKET, SO_PASSRIGHTS, &raw const off, 4) };
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

/// Who is at the other end, as the kernel vouches. (A number of zero is a process that this PID namespace does not know.)
///
/// # Errors
/// Those of getsockopt(2).
pub fn credentials(socket: &OwnedFd) -> io::Result<libc::ucred> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (value, size) = (&raw mut credentials, &raw mut len);
    // SAFETY: the structure is writable for `len` bytes.
    check(unsafe { libc::syscall(libc::SYS_getsockopt, socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, value, size) })?;
    Ok(credentials)
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use super::*;

    #[test]
    fn a_line_names_a_member_or_somebody_else() {
        let prefix = prefix(7);
        let found = |line: &str| parse(line, &prefix);
        let name = "ringway/7/member/12-00ff".to_owned();
        assert_eq!(found("0000: 00000002 00000000 00010000 0001 01 23 @ringway/7/member/12-00ff"), Some(MemberName { pid: 12, name }));
        let others = ["@ringway/77/member/12-00ff", "@ringway/7/member/x-1", "@ringway/7/member/12", "/run/ringway/7/member/12-00ff", ""];
        assert_eq!(others.map(|line| found(line).is_some()), [false; 5]);
    }

    /// Under a name that is another user's nobody is listed but that user.
    #[test]
    fn who_listens_under_anothers_name_is_not_listed_and_is_asked_no_longer_than_is_said() {
        let another = geteuid().as_raw() ^ 0x4000_0000;
        let name = format!("{}{}-0001", prefix(another), std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        assert_eq!(members(another).unwrap(), []);
        assert_eq!(query(&name, "stats", Duration::from_millis(20)).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(listener);
        assert_eq!(query(&name, "stats", Duration::from_secs(1)).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
