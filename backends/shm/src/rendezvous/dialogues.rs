//! Dialogues between processes of one user about things that are not frames: a connection that leaves shared memory, say.
//!
//! Each member listens under a name of its random id, as its [`MemberRef`] says. Whoever connects, member or not, asks in datagrams of a few bytes,
//! with descriptors if need be, and gets one answer to each; what the words mean is the business of whoever set the [`DialogueHandler`].
//! That a peer can be talked to at its name is also what proves that its id is its own: see [`Rendezvous::vouch`].

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
/// Dialogues at a time; the oldest gives way.
const DIALOGUES_MAX: usize = 1024;
/// Of whom knows us many look at once who we are; fewer than dialogues, so that these do not give way to them.
const BACKLOG: i32 = 512;

/// Who answers. Called by [`Rendezvous::service`], without locks held; one dialogue's questions come in their order.
pub trait DialogueHandler: Send + Sync {
    /// Answers a question in the dialogue of this number, which came with these descriptors (to be [`Fd::recognised`] by whoever keeps them); the answer's
    /// are closed once they are sent. It is a process that asks: `from` has the ids of all peers that are its (a process may be several members), and
    /// none if it is no peer's.
    fn asked(&self, dialogue: u64, from: &[u64], words: &[u8], passed: Vec<Fd>) -> (Vec<u8>, Vec<Fd>);

    /// A dialogue has ended: its other side has closed it, or is dead. It may be told twice.
    fn hung_up(&self, dialogue: u64);
}

/// Where a member is talked to.
#[derive(Clone, Copy, Debug)]
pub struct MemberRef {
    id: u64,
    /// Who is there; `None`: whoever of this user.
    who: Option<Identity>,
    pid: i32,
}

impl MemberRef {
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

impl PartialEq for MemberRef {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for MemberRef {}

/// The asking side of a dialogue. Dropping it ends the dialogue.
#[derive(Debug)]
pub struct Dialogue {
    socket: Fd,
}

impl Dialogue {
    /// Begins a dialogue with a member of the own user in this network namespace. `None`: it is gone.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::PermissionDenied`]: somebody else has its name.
    pub fn begin(member: &MemberRef, timeout: Duration) -> io::Result<Option<Self>> {
        Ok(reach(member, timeout)?.map(|(socket, _)| Self { socket }))
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

/// What a process says that wants a link with it, and is greeted then.
const MEET: &[u8] = b"meet";

/// Connects to a member, which is who it should be. `None`: it is gone.
fn reach(member: &MemberRef, timeout: Duration) -> io::Result<Option<(Fd, Identity)>> {
    let uid = user::own().map_err(|_| io::ErrorKind::PermissionDenied)?;
    let socket = sys::unix_socket(libc::SOCK_SEQPACKET)?;
    let deadline = Instant::now() + timeout;
    loop {
        match sys::connect_abstract(&socket, &names::dialogues(uid, member.id)) {
            Ok(()) => break,
            Err(e) if matches!(e.raw_os_error(), Some(libc::ECONNREFUSED | libc::ENOENT)) => return Ok(None),
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) => return Err(e),
        }
    }
    let found = Identity::of_peer(&socket)?;
    if found.uid != uid || member.who.is_some_and(|who| !who.is(&found)) {
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
pub(super) struct Dialogues {
    pub(super) listener: Option<Fd>,
    under_way: VecDeque<UnderWay>,
}

struct UnderWay {
    number: u64,
    socket: Fd,
    who: Identity,
}

/// Something to tell the handler of dialogues, once no lock is held.
pub(super) enum Matter {
    Question { number: u64, from: Vec<u64>, words: Vec<u8>, passed: Vec<Fd> },
    End(u64),
}

impl Dialogues {
    /// As if the name had been lost.
    #[cfg(all(test, not(loom)))]
    pub(super) fn close_dialogues(&mut self) {
        self.listener = None;
    }

    /// Every socket, when the member leaves.
    pub(super) fn drain(&mut self) -> Vec<Fd> {
        self.under_way.drain(..).map(|dialogue| dialogue.socket).chain(self.listener.take()).collect()
    }
}

impl Rendezvous {
    /// Lets other processes begin dialogues.
    pub(super) fn open_dialogues(&self) -> io::Result<()> {
        let socket = sys::unix_socket(libc::SOCK_SEQPACKET)?;
        sys::listen_abstract(&socket, &names::dialogues(self.member.uid, self.member.id), BACKLOG)?;
        self.epoll.add(&socket, libc::EPOLLIN, Token::Dialogues.pack())?;
        self.lock().dialogues.listener = Some(socket);
        Ok(())
    }

    /// Where this member is talked to.
    pub fn member_ref(&self) -> MemberRef {
        MemberRef::of(self.member.id, None, self.member.pid)
    }

    /// Whether `who` is the member that it says it is: whether it is there where only that one can be. Nobody else could take the name before
    /// the id was first told, and while the member lives, nobody can; so who has it has to be the process that says so, and can be talked to.
    /// `None`: it has no room for us now.
    pub(super) fn vouch(&self, id: u64, who: &Identity) -> io::Result<Option<bool>> {
        let socket = sys::unix_socket(libc::SOCK_SEQPACKET)?;
        match sys::connect_abstract(&socket, &names::dialogues(self.member.uid, id)) {
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
    pub fn meet(&self, member: &MemberRef) -> Result<Option<MacAddr>, crate::ResolveError> {
        let unreachable = |source| crate::ResolveError::System { what: "connect to a member's name", source };
        if let Some(link) = self.living(&mut self.lock(), member.id) {
            return Ok(Some(link.mac));
        }
        if member.id == self.member.id {
            let link = self.to_myself(&mut self.lock()).map_err(crate::ResolveError::system("channel to itself"))?;
            return Ok(Some(link.mac));
        }
        let Some((socket, who)) = reach(member, self.timeout).map_err(unreachable)? else { return Ok(None) };
        sys::send_with(&socket, MEET, &[]).map_err(unreachable)?;
        self.greeted(socket, who, Instant::now() + self.timeout)
    }

    /// Sets who answers.
    pub fn set_dialogue_handler(&self, handler: Arc<dyn DialogueHandler>) {
        *self.dialogue_handler.lock().unwrap_or_else(PoisonError::into_inner) = Some(handler);
    }

    pub(super) fn accept_dialogues(&self, state: &mut State) -> Vec<Matter> {
        let mut ended = Vec::new();
        loop {
            let Some(socket) = state.dialogues.listener.as_ref().and_then(|listener| accept_or_refuse(listener, &mut state.spare)) else {
                return ended;
            };
            let Ok(who) = Identity::of_peer(&socket) else { continue };
            let number = state.number();
            if who.uid != self.member.uid || self.epoll.add(&socket, libc::EPOLLIN, Token::Dialogue(number).pack()).is_err() {
                continue;
            }
            let _ = sys::set_takes_rights(&socket, true);
            if state.dialogues.under_way.len() >= DIALOGUES_MAX
                && let Some(oldest) = state.dialogues.under_way.pop_front()
            {
                ended.push(Matter::End(oldest.number));
                self.discard(oldest.socket);
            }
            state.dialogues.under_way.push_back(UnderWay { number, socket, who });
        }
    }

    pub(super) fn hear_dialogue(&self, state: &mut State, number: u64) -> Option<Matter> {
        let at = state.dialogues.under_way.iter().position(|dialogue| dialogue.number == number)?;
        let dialogue = &state.dialogues.under_way[at];
        match hear(&dialogue.socket) {
            Heard::Nothing => None,
            Heard::Words(words, passed) if words == MEET && passed.is_empty() => {
                let UnderWay { socket, who, .. } = state.dialogues.under_way.remove(at)?;
                self.epoll.remove(&socket);
                self.welcome(state, socket, who, None);
                // As a dialogue, it is over.
                Some(Matter::End(number))
            }
            Heard::Words(words, passed) => {
                let is_its = |link: &Link| link.is_alive() && link.who.is_some_and(|who| who.is(&dialogue.who));
                let from = state.links.iter().flatten().filter(|entry| is_its(&entry.link)).map(|entry| entry.link.peer.id).collect();
                Some(Matter::Question { number, from, words, passed })
            }
            Heard::Closed => {
                if let Some(dialogue) = state.dialogues.under_way.remove(at) {
                    self.discard(dialogue.socket);
                }
                Some(Matter::End(number))
            }
        }
    }

    /// Tells the handler of dialogues, without a lock, and sends its answer.
    pub(super) fn attend_to(&self, matter: Matter) {
        let Some(handler) = self.dialogue_handler.lock().unwrap_or_else(PoisonError::into_inner).clone() else { return };
        match matter {
            Matter::End(number) => handler.hung_up(number),
            Matter::Question { number, from, words, passed } => {
                let (answer, with) = handler.asked(number, &from, &words, passed);
                let raw: Vec<i32> = with.iter().map(Fd::raw).collect();
                let state = self.lock();
                if let Some(dialogue) = state.dialogues.under_way.iter().find(|dialogue| dialogue.number == number) {
                    // Who does not hear it has hung up, or will be found to have.
                    let _ = sys::send_with(&dialogue.socket, &answer, &raw);
                    return;
                }
                // It ended meanwhile, and another thread may have told of that before this question was answered: what was promised then is to end too.
                drop(state);
                handler.hung_up(number);
            }
        }
    }
}
