//! Talks between processes of one user about things that are not frames: a connection that leaves shared memory, say.
//!
//! Each member listens under a name of its random id, at its [`Station`]. Whoever connects, member or not, asks in datagrams of a few bytes,
//! with descriptors if need be, and gets one answer to each; what the words mean is the business of whoever set the [`Correspondent`].
//! A peer's station is also what proves that its id is its own: see [`Rendezvous::vouch`].

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use ringway_stack::device::MacAddr;

use super::serve::{Token, accept_or_refuse};
use super::{Rendezvous, State, names};
use crate::fd::Fd;
use crate::identity::Identity;
use crate::link::Link;
use crate::{sys, user};

/// Bytes of a question or an answer.
pub const WORDS_MAX: usize = 256;
/// Talks at a time; the oldest gives way.
const TALKS_MAX: usize = 1024;
/// Of whom knows us many look at once who we are; fewer than talks, so that these do not give way to them.
const BACKLOG: i32 = 512;

/// Who answers. Called by [`Rendezvous::service`], without locks held; one talk's questions come in their order.
pub trait Correspondent: Send + Sync {
    /// Answers a question in the talk of this number, which came with these descriptors (to be [`Fd::recognised`] by whoever keeps them); the answer's
    /// are closed once they are sent. It is a process that asks: `from` has the ids of all peers that are its (a process may be several members), and
    /// none if it is no peer's.
    fn asked(&self, talk: u64, from: &[u64], words: &[u8], passed: Vec<Fd>) -> (Vec<u8>, Vec<Fd>);

    /// A talk has ended: its other side has closed it, or is dead.
    fn hung_up(&self, talk: u64);
}

/// Where a member is talked to.
#[derive(Clone, Copy, Debug)]
pub struct Station {
    id: u64,
    /// Who is there; `None`: whoever of this user.
    who: Option<Identity>,
    pid: i32,
}

impl Station {
    pub(super) const fn of(id: u64, who: Option<Identity>, pid: i32) -> Self {
        Self { id, who, pid }
    }

    /// Of a member that somebody told of, who knows it.
    pub const fn told(id: u64) -> Self {
        Self::of(id, None, 0)
    }

    /// The member's id.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Its process, as this one's namespace numbers it; 0 where it has no number there.
    pub const fn pid(&self) -> i32 {
        self.pid
    }
}

impl PartialEq for Station {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Station {}

/// The asking side of a talk. Dropping it ends the talk.
#[derive(Debug)]
pub struct Talk {
    socket: Fd,
}

impl Talk {
    /// Begins a talk with a member of the own user in this network namespace. `None`: it is gone.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::PermissionDenied`]: somebody else has its name.
    pub fn begin(station: &Station, timeout: Duration) -> io::Result<Option<Self>> {
        Ok(reach(station, timeout)?.map(|(socket, _)| Self { socket }))
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

/// What a process says at a member's station that wants a link with it, and is greeted then.
const MEET: &[u8] = b"meet";

/// Connects to a station, whose member is who it should be. `None`: it is gone.
fn reach(station: &Station, timeout: Duration) -> io::Result<Option<(Fd, Identity)>> {
    let uid = user::own().map_err(|_| io::ErrorKind::PermissionDenied)?;
    let socket = sys::unix_socket(libc::SOCK_SEQPACKET)?;
    let deadline = Instant::now() + timeout;
    loop {
        match sys::connect_abstract(&socket, &names::station(uid, station.id)) {
            Ok(()) => break,
            Err(e) if matches!(e.raw_os_error(), Some(libc::ECONNREFUSED | libc::ENOENT)) => return Ok(None),
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) => return Err(e),
        }
    }
    let found = Identity::of_peer(&socket)?;
    if found.uid != uid || station.who.is_some_and(|who| !who.is(&found)) {
        if sys::takes_rights(&socket) {
            socket.set_slow();
        }
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let _ = sys::set_takes_rights(&socket, true);
    Ok(Some((socket, found)))
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
    who: Identity,
}

/// Something to tell the correspondent, once no lock is held.
pub(super) enum Matter {
    Question { number: u64, from: Vec<u64>, words: Vec<u8>, passed: Vec<Fd> },
    End(u64),
}

impl Talks {
    /// As if the name had been lost.
    #[cfg(all(test, not(loom)))]
    pub(super) fn close_station(&mut self) {
        self.station = None;
    }

    /// Every socket, when the member leaves.
    pub(super) fn drain(&mut self) -> Vec<Fd> {
        self.under_way.drain(..).map(|talk| talk.socket).chain(self.station.take()).collect()
    }
}

impl Rendezvous {
    /// Lets other processes begin talks.
    pub(super) fn open_station(&self) -> io::Result<()> {
        let socket = sys::unix_socket(libc::SOCK_SEQPACKET)?;
        sys::listen_abstract(&socket, &names::station(self.member.uid, self.member.id), BACKLOG)?;
        self.epoll.add(&socket, libc::EPOLLIN, Token::Station.pack())?;
        self.lock().talks.station = Some(socket);
        Ok(())
    }

    /// Where this member is talked to.
    pub fn station(&self) -> Station {
        Station::of(self.member.id, None, self.member.pid)
    }

    /// Whether `who` is the member that it says it is: whether it is there where only that one can be. Nobody else could take the name before
    /// the id was first told, and while the member lives, nobody can; so who has it has to be the process that says so, and can be talked to.
    /// `None`: its station has no room for us now.
    pub(super) fn vouch(&self, id: u64, who: &Identity) -> io::Result<Option<bool>> {
        let socket = sys::unix_socket(libc::SOCK_SEQPACKET)?;
        match sys::connect_abstract(&socket, &names::station(self.member.uid, id)) {
            Ok(()) => {
                let found = Identity::of_peer(&socket);
                if !found.as_ref().is_ok_and(|found| found.is(who)) && sys::takes_rights(&socket) {
                    socket.set_slow();
                }
                found.map(|found| Some(found.is(who)))
            }
            Err(e) if matches!(e.raw_os_error(), Some(libc::ECONNREFUSED | libc::ENOENT | libc::EPROTOTYPE)) => Ok(Some(false)),
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Makes a link with a member that has no address of its own to be found by, if there is none: what it is called by then. `None`: it is gone,
    /// or wants nothing of us.
    ///
    /// # Errors
    /// [`ResolveError`].
    ///
    /// [`ResolveError`]: crate::ResolveError
    pub fn meet(&self, station: &Station) -> Result<Option<MacAddr>, crate::ResolveError> {
        let unreachable = |source| crate::ResolveError::System { what: "connect to a station's name", source };
        if let Some(link) = self.living(&mut self.lock(), station.id) {
            return Ok(Some(link.mac));
        }
        let Some((socket, who)) = reach(station, self.timeout).map_err(unreachable)? else { return Ok(None) };
        sys::send_with(&socket, MEET, &[]).map_err(unreachable)?;
        self.greeted(socket, who, Instant::now() + self.timeout)
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
            let Ok(who) = Identity::of_peer(&socket) else { continue };
            let number = state.number();
            if who.uid != self.member.uid || self.epoll.add(&socket, libc::EPOLLIN, Token::Talk(number).pack()).is_err() {
                continue;
            }
            let _ = sys::set_takes_rights(&socket, true);
            if state.talks.under_way.len() >= TALKS_MAX
                && let Some(oldest) = state.talks.under_way.pop_front()
            {
                ended.push(Matter::End(oldest.number));
                self.discard(oldest.socket);
            }
            state.talks.under_way.push_back(UnderWay { number, socket, who });
        }
    }

    pub(super) fn hear_talk(&self, state: &mut State, number: u64) -> Option<Matter> {
        let at = state.talks.under_way.iter().position(|talk| talk.number == number)?;
        let talk = &state.talks.under_way[at];
        match hear(&talk.socket) {
            Heard::Nothing => None,
            Heard::Words(words, passed) if words == MEET && passed.is_empty() => {
                let UnderWay { socket, who, .. } = state.talks.under_way.remove(at)?;
                self.epoll.remove(&socket);
                self.welcome(state, socket, who, None);
                // As a talk, it is over.
                Some(Matter::End(number))
            }
            Heard::Words(words, passed) => {
                let is_its = |link: &Link| link.is_alive() && link.who.is_some_and(|who| who.is(&talk.who));
                let from = state.links.iter().flatten().filter(|entry| is_its(&entry.link)).map(|entry| entry.link.peer.id).collect();
                Some(Matter::Question { number, from, words, passed })
            }
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
            Matter::Question { number, from, words, passed } => {
                let (answer, with) = correspondent.asked(number, &from, &words, passed);
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
