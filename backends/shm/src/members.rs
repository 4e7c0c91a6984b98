//! For other programs of the same user: which members run, and what they say of themselves.

use std::io;
use std::time::{Duration, Instant};

use crate::rendezvous::member_prefix;
use crate::sys;

/// The longest reply that is read.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// A running member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberName {
    /// Its process, as this one's PID namespace numbers it; where it has no number there, as its own does.
    pub pid: i32,
    /// Its control socket, for [`query`].
    pub name: String,
}

/// Lists the members of a user in this network namespace, by process.
///
/// # Errors
/// `/proc/net/unix` could not be read.
pub fn members(uid: u32) -> io::Result<Vec<MemberName>> {
    let sockets = std::fs::read_to_string("/proc/net/unix")?;
    let mut members: Vec<_> = sockets.lines().filter_map(|line| parse(line, &member_prefix(uid))).collect();
    // Accepted connections are listed under the name too.
    members.sort_by(|a, b| (a.pid, &a.name).cmp(&(b.pid, &b.name)));
    members.dedup();
    members.retain_mut(|member| {
        let Ok(Some(holder)) = holder(&member.name) else { return false };
        if holder.pid != 0 {
            member.pid = holder.pid;
        }
        holder.uid == uid
    });
    members.sort_by(|a, b| (a.pid, &a.name).cmp(&(b.pid, &b.name)));
    Ok(members)
}

/// Who listens under a control socket's name. `None`: nobody any more.
fn holder(name: &str) -> io::Result<Option<libc::ucred>> {
    let socket = sys::unix_socket(libc::SOCK_STREAM)?;
    match sys::connect_abstract(&socket, name) {
        Ok(()) => sys::peer_credentials(&socket).map(Some),
        Err(_) => Ok(None),
    }
}

/// A line of /proc/net/unix ends with the socket's name, abstract ones behind an `@` (proc(5)).
fn parse(line: &str, prefix: &str) -> Option<MemberName> {
    let name = line.split_ascii_whitespace().next_back()?.strip_prefix('@')?;
    let (pid, _) = name.strip_prefix(prefix)?.split_once('-')?;
    Some(MemberName { pid: pid.parse().ok()?, name: name.to_owned() })
}

/// Asks a member by its control socket's name, and waits at most `timeout` for its whole reply.
///
/// # Errors
/// The member is gone, doesn't answer in time, or belongs to another user than ourselves.
pub fn query(name: &str, request: &str, timeout: Duration) -> io::Result<String> {
    let deadline = Instant::now() + timeout;
    let wait = |fd: &_, events| {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::Error::from(io::ErrorKind::TimedOut)) } else { sys::wait_for(fd, events, left) }
    };
    let socket = sys::unix_socket(libc::SOCK_STREAM)?;
    sys::connect_abstract(&socket, name)?;
    let uid = sys::peer_credentials(&socket)?.uid;
    let own = sys::effective_uid();
    if uid != own && own != 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let line = format!("{request}\n");
    if sys::send(&socket, line.as_bytes())? != line.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    let mut reply = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        match sys::receive(&socket, &mut piece) {
            Ok(0) => break,
            Ok(len) => reply.extend_from_slice(&piece[..len]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => drop(wait(&socket, libc::POLLIN)?),
            Err(e) => return Err(e),
        }
        if reply.len() > REPLY_BYTES_MAX {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
    String::from_utf8(reply).map_err(|_| io::ErrorKind::InvalidData.into())
}
