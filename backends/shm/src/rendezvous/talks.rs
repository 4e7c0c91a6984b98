//! Talks between processes of one user about things that are not frames: a connection that leaves shared memory, say.
//!
//! Each member listens under a name that tells its process. Whoever connects, member or not, asks in datagrams of a few bytes,
//! with descriptors if need be, and gets one answer to each; what the words mean is the business of whoever set the [`Correspondent`].

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::serve::{Token, accept_or_refuse};
use super::{Rendezvous, State, names};
use crate::fd::Fd;
use crate::{sys, user};

/// Bytes of a question or an answer.
pub const WORDS_MAX: usize = 256;
/// Talks at a time; the oldest gives way.
const TALKS_MAX: usize = 1024;

/// Who answers. Called by [`Rendezvous::service`], without locks held; one talk's questions come in their order.
pub trait Correspondent: Send + Sync {
    /// Answers a question of process `from` in the talk of this number, which came with these descriptors (to be [`Fd::recognised`] by whoever
    /// keeps them); the answer's are closed once they are sent.
    fn asked(&self, talk: u64, from: i32, words: &[u8], passed: Vec<Fd>) -> (Vec<u8>, Vec<Fd>);

    /// A talk has ended: its other side has closed it, or is dead.
    fn hung_up(&self, talk: u64);
}

/// The asking side of a talk. Dropping it ends the talk.
#[derive(Debug)]
pub struct Talk {
    socket: Fd,
}

impl Talk {
    /// Begins a talk with a process of the own user in this network namespace. `None`: no member runs there.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::PermissionDenied`]: somebody else has the name.
    pub fn begin(pid: i32, timeout: Duration) -> io::Result<Option<Self>> {
        Self::begin_with(pid, pid, timeout)
    }

    /// As [`Talk::begin`], with a process that is called `name`.
    pub(super) fn begin_with(name: i32, pid: i32, timeout: Duration) -> io::Result<Option<Self>> {
        let uid = user::own().map_err(|_| io::ErrorKind::PermissionDenied)?;
        let socket = sys::unix_socket(libc::SOCK_SEQPACKET)?;
        let deadline = Instant::now() + timeout;
        loop {
            match sys::connect_abstract(&socket, &names::station(uid, name)) {
                Ok(()) => break,
                Err(e) if matches!(e.raw_os_error(), Some(libc::ECONNREFUSED | libc::ENOENT)) => return Ok(None),
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(e) => return Err(e),
            }
        }
        let peer = sys::peer_credentials(&socket)?;
        if peer.uid != uid || peer.pid != pid {
            if sys::takes_rights(&socket) {
                socket.set_slow();
            }
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let _ = sys::set_takes_rights(&socket, true);
        Ok(Some(Self { socket }))
    }

    /// Asks, and waits for the answer and its descriptors.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`]; [`io::ErrorKind::UnexpectedEof`]: the other side is gone; the system's.
    ///
    /// # Panics
    /// Never, for up to [`WORDS_MAX`] bytes and three descriptors.
    pub fn ask(&self, words: &[u8], passed: &[i32], timeout: Duration) -> io::Result<(Vec<u8>, Vec<Fd>)> {
        let deadline = Instant::now() + timeout;
        // EPERM: the other side has not looked yet who we are.
        while let Err(e) = sys::send_with(&self.socket, words, passed) {
            if e.raw_os_error() != Some(libc::EPERM) || Instant::now() >= deadline {
                return Err(e);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        loop {
            match hear(&self.socket) {
                Heard::Words(words, passed) => return Ok((words, passed.into_iter().filter_map(|fd| fd.recognised().ok()).collect())),
                Heard::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
                Heard::Nothing => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            sys::wait_for(&self.socket, libc::POLLIN, left)?;
        }
    }
}

enum Heard {
    Words(Vec<u8>, Vec<Fd>),
    Nothing,
    Closed,
}

fn hear(socket: &Fd) -> Heard {
    let mut bytes = [0; WORDS_MAX];
    match sys::receive_with(socket, &mut bytes) {
        Ok((0, _)) => Heard::Closed,
        Ok((len, passed)) => Heard::Words(bytes[..len].to_vec(), passed.into_iter().collect()),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Heard::Nothing,
        Err(_) => Heard::Closed,
    }
}

/// What the answering side keeps.
#[derive(Default)]
pub(super) struct Talks {
    pub(super) station: Option<Fd>,
    under_way: VecDeque<UnderWay>,
}

struct UnderWay {
    number: u64,
    socket: Fd,
    pid: i32,
}

/// Something to tell the correspondent, once no lock is held.
pub(super) enum Matter {
    Question { number: u64, pid: i32, words: Vec<u8>, passed: Vec<Fd> },
    End(u64),
}

impl Talks {
    /// Every socket, when the member leaves.
    pub(super) fn drain(&mut self) -> Vec<Fd> {
        self.under_way.drain(..).map(|talk| talk.socket).chain(self.station.take()).collect()
    }
}

impl Rendezvous {
    /// Lets other processes begin talks. Where the name is taken (by a process of that number in another PID namespace), they
    /// find somebody else there, and none is begun.
    pub(super) fn open_station(&self) {
        self.open_station_as(self.member.pid);
    }

    pub(crate) fn open_station_as(&self, name: i32) {
        let listen = || {
            let socket = sys::unix_socket(libc::SOCK_SEQPACKET)?;
            sys::listen_abstract(&socket, &names::station(self.member.uid, name), super::BACKLOG)?;
            self.epoll.add(&socket, libc::EPOLLIN, Token::Station.pack())?;
            io::Result::Ok(socket)
        };
        match listen() {
            Ok(socket) => self.lock().talks.station = Some(socket),
            Err(error) => tracing::debug!(%error, "no station to talk at"),
        }
    }

    /// Sets who answers.
    pub fn set_correspondent(&self, correspondent: Arc<dyn Correspondent>) {
        *self.correspondent.lock().unwrap_or_else(PoisonError::into_inner) = Some(correspondent);
    }

    pub(super) fn accept_talks(&self, state: &mut State) -> Vec<Matter> {
        let mut ended = Vec::new();
        loop {
            let Some(socket) = state.talks.station.as_ref().and_then(|station| accept_or_refuse(station, &mut state.spare)) else {
                return ended;
            };
            let Ok(credentials) = sys::peer_credentials(&socket) else { continue };
            let number = state.number();
            if credentials.uid != self.member.uid || self.epoll.add(&socket, libc::EPOLLIN, Token::Talk(number).pack()).is_err() {
                continue;
            }
            let _ = sys::set_takes_rights(&socket, true);
            if state.talks.under_way.len() >= TALKS_MAX
                && let Some(oldest) = state.talks.under_way.pop_front()
            {
                ended.push(Matter::End(oldest.number));
                self.discard(oldest.socket);
            }
            state.talks.under_way.push_back(UnderWay { number, socket, pid: credentials.pid });
        }
    }

    pub(super) fn hear_talk(&self, state: &mut State, number: u64) -> Option<Matter> {
        let at = state.talks.under_way.iter().position(|talk| talk.number == number)?;
        let talk = &state.talks.under_way[at];
        match hear(&talk.socket) {
            Heard::Nothing => None,
            Heard::Words(words, passed) => Some(Matter::Question { number, pid: talk.pid, words, passed }),
            Heard::Closed => {
                if let Some(talk) = state.talks.under_way.remove(at) {
                    self.discard(talk.socket);
                }
                Some(Matter::End(number))
            }
        }
    }

    /// Tells the correspondent, without a lock, and sends its answer.
    pub(super) fn attend_to(&self, matter: Matter) {
        let Some(correspondent) = self.correspondent.lock().unwrap_or_else(PoisonError::into_inner).clone() else { return };
        match matter {
            Matter::End(number) => correspondent.hung_up(number),
            Matter::Question { number, pid, words, passed } => {
                let (answer, with) = correspondent.asked(number, pid, &words, passed);
                let raw: Vec<i32> = with.iter().map(Fd::raw).collect();
                let state = self.lock();
                if let Some(talk) = state.talks.under_way.iter().find(|talk| talk.number == number) {
                    // Who does not hear it has hung up, or will be found to have.
                    let _ = sys::send_with(&talk.socket, &answer, &raw);
                }
            }
        }
    }
}
