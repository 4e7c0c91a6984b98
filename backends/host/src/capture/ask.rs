//! Asking a process to show its rings.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect,
    recvmsg, send, socket_with,
};
use rustix::process::geteuid;

use super::Reader;
use crate::members::{self, MemberName};

/// A process that is asked; as long as this lives, it shows what it was asked for.
#[derive(Debug)]
pub struct Watched {
    socket: OwnedFd,
}

/// What a process answers about one of its rings.
#[derive(Debug)]
pub enum Answer {
    /// It shows that ring, whose device this is.
    Shown {
        /// `shm`, or `xdp:eth0`.
        device: String,
        /// The process's short name.
        program: String,
        /// What passes there.
        reader: Reader,
    },
    /// That ring is on another device than the one that was asked for.
    Other,
    /// It has no such ring, or not yet.
    None,
    /// Another one captures there.
    Busy,
    /// It does not: the process lets nobody look into it (prctl(2), PR_SET_DUMPABLE), or has no memory, or no such feature.
    Refused(String),
}

impl Watched {
    /// Connects to a process of this user.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::PermissionDenied`]: it is another user's.
    pub fn new(member: &MemberName) -> io::Result<Self> {
        let uid = geteuid().as_raw();
        let id = member.name.rsplit_once('-').map(|(_, id)| id).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(format!("ringway/{uid}/dialogue/{id}").as_bytes())?)?;
        if members::credentials(&socket)?.uid != uid {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Self { socket })
    }

    /// Asks for a ring: to show what passes there, in so much memory, so many bytes of each frame, if it is on `device` (`None`: on any).
    ///
    /// # Errors
    /// The process is gone.
    pub fn ask(&self, ring: u16, bytes: usize, snaplen: usize, device: Option<&str>) -> io::Result<()> {
        let words = format!("capture {ring} {bytes} {snaplen} {}", device.unwrap_or("*"));
        if send(&self.socket, words.as_bytes(), SendFlags::NOSIGNAL)? != words.len() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        Ok(())
    }

    /// What it answers; `None`: nothing yet.
    ///
    /// # Errors
    /// The process is gone, or answers with something else.
    pub fn answer(&self) -> io::Result<Option<Answer>> {
        match self.hear() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            heard => {
                let (answer, passed) = heard?;
                Answer::parse(&answer, passed).map(Some)
            }
        }
    }

    fn hear(&self) -> io::Result<(String, Option<OwnedFd>)> {
        let mut bytes = [0; 256];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
        let len = match received {
            Ok(message) if message.bytes == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(message) => message.bytes,
            Err(Errno::INTR) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => return Err(error.into()),
        };
        let passed = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        Ok((String::from_utf8_lossy(&bytes[..len.min(256)]).into_owned(), passed))
    }
}

impl Answer {
    fn parse(answer: &str, passed: Option<OwnedFd>) -> io::Result<Self> {
        let mut parts = answer.splitn(3, ' ');
        Ok(match (parts.next(), parts.next(), parts.next(), passed) {
            (Some("ring"), Some(device), Some(program), Some(fd)) => {
                Self::Shown { device: device.to_owned(), program: program.to_owned(), reader: Reader::new(&fd)? }
            }
            (Some("other"), ..) => Self::Other,
            (Some("none"), ..) => Self::None,
            (Some("busy"), ..) => Self::Busy,
            (Some("undumpable"), ..) => Self::Refused("it lets nobody look into it (PR_SET_DUMPABLE, prctl(2))".to_owned()),
            (Some("no"), ..) => Self::Refused(format!("it has {answer} for that")),
            // (What a library says that knows nothing of captures.)
            _ => Self::Refused("its library cannot be captured".to_owned()),
        })
    }
}
