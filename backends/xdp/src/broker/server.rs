//! The broker: a listener, and one loop over it and the programs. Each of them is heard once a round, and whatever it says takes bounded time and memory: what need not, a
//! thread does (`threads`). Who does not take its answer is let go.

use core::time::Duration;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::time::Instant;

use ringway_host::members;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags};

use super::descriptors;
use super::events::{Event, StartError};
use super::guest::{Guest, Reply};
use super::house::House;
use super::listener::{Listener, Place, listen, namespace_of, set_takes_descriptors};
use super::message::{Answer, MESSAGE_MAX, Refusal, decode};
use super::threads::{Done, HELD_MAX, Threads};
use super::users::Users;
use super::wire;
use crate::settings::Settings;

/// Connections in all, and of one user.
pub(super) const GUESTS_MAX: usize = 256;
const GUESTS_OF_ONE_MAX: usize = 32;
/// Of all users together who are not listed, and wait to be told so.
const STRANGERS_MAX: usize = 32;
const OUT_OF_DESCRIPTORS: Duration = Duration::from_millis(10);
/// How long a connection may last that has no ring.
const WITHOUT_RING_MAX: Duration = Duration::from_secs(5);

/// What a broker does.
#[derive(Clone, Debug)]
pub struct BrokerSettings {
    /// The interfaces, with the memory of their rings.
    pub interfaces: Vec<Settings>,
    /// Whom it serves.
    pub users: Users,
    /// Where it listens.
    pub socket: PathBuf,
}

/// A broker.
#[derive(Debug)]
pub struct Broker {
    listener: Listener,
    users: Users,
    house: House,
    guests: Vec<Guest>,
    /// How many there were.
    last: u64,
}

/// What is ready: to stop, the listener, threads' answers, and the programs.
struct Ready {
    stops: bool,
    accepts: bool,
    guests: Vec<PollFlags>,
}

impl Broker {
    /// Attaches to the interfaces, and listens. Nobody is served before [`Broker::run`].
    ///
    /// # Errors
    /// [`StartError`]. (An interface that another program has for now is none.)
    pub fn start(settings: BrokerSettings, tell: &mut dyn FnMut(Event)) -> Result<Self, StartError> {
        let BrokerSettings { interfaces, users, socket } = settings;
        // (Before anything is touched that another broker may have.)
        let mut place = Place::take(socket)?;
        interfaces.iter().try_for_each(|settings| place.and_interface(&settings.interface))?;
        descriptors::raise_limit(interfaces.len(), users.listed().filter(|&uid| uid != 0).count() + 1, tell);
        let threads = Threads::new().map_err(|error| StartError::System { what: "eventfd", error })?;
        let mut house = House::open(interfaces, threads, tell)?;
        let listener = listen(place)?;
        house.namespace = namespace_of(listener.socket.as_fd());
        Ok(Self { listener, users, house, guests: Vec::new(), last: 0 })
    }

    /// Serves programs until `stop` is readable.
    ///
    /// # Errors
    /// The system's: it cannot wait.
    pub fn run(&mut self, stop: BorrowedFd<'_>, tell: &mut dyn FnMut(Event)) -> io::Result<()> {
        let mut buffer = vec![0; MESSAGE_MAX + 1];
        loop {
            let mut ready = self.wait(stop)?;
            if ready.stops {
                return Ok(());
            }
            // Whoever has ended makes room for the others first.
            for at in (0..ready.guests.len()).rev() {
                let has_ended = ready.guests[at].intersects(PollFlags::HUP | PollFlags::ERR);
                let is_late = self.guests[at].ring.is_none() && self.guests[at].since.elapsed() > WITHOUT_RING_MAX;
                if has_ended || is_late {
                    ready.guests.swap_remove(at);
                    self.end(at, tell);
                }
            }
            for at in (0..ready.guests.len()).rev() {
                if ready.guests[at].intersects(PollFlags::IN) && !self.hear(at, &mut buffer, tell) {
                    self.end(at, tell);
                }
            }
            for done in self.house.threads.take() {
                self.answer(done, tell);
            }
            for guest in &mut self.guests {
                if let Some(ring) = &mut guest.ring {
                    ring.retire_late(&self.house.threads, guest.uid);
                }
            }
            if ready.accepts {
                self.accept();
            }
        }
    }

    fn wait(&self, stop: BorrowedFd<'_>) -> io::Result<Ready> {
        let listener = self.listener.socket.as_fd();
        let own = [stop, listener, self.house.threads.ended()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        // (Whoever has ended is told of in any case.)
        let what = |guest: &Guest| if self.is_heard(guest) { PollFlags::IN } else { PollFlags::empty() };
        let guests = self.guests.iter().map(|guest| PollFd::from_borrowed_fd(guest.socket.as_fd(), what(guest)));
        let mut fds: Vec<_> = own.into_iter().chain(guests).collect();
        let is_timed = |guest: &Guest| guest.ring.as_ref().is_none_or(|ring| !ring.repairs.is_empty());
        let looks_again = self.house.threads.is_waiting() || self.guests.iter().any(is_timed);
        let timeout = Timespec { tv_sec: 1, tv_nsec: 0 };
        loop {
            match poll(&mut fds, looks_again.then_some(&timeout)) {
                Ok(_) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let is_ready = |at: usize| fds[at].revents().intersects(PollFlags::IN);
        Ok(Ready { stops: is_ready(0), accepts: is_ready(1), guests: fds[3..].iter().map(PollFd::revents).collect() })
    }

    /// Whether a program may ask something now: a thread answers nothing of its, and threads do not have too much of its user's. (Who is refused is told so.)
    fn is_heard(&self, guest: &Guest) -> bool {
        guest.refusal.is_some() || !guest.is_asked && self.house.threads.held(guest.uid) < HELD_MAX
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match net::accept_with(&self.listener.socket, flags) {
            Ok(socket) => socket,
            Err(error) => {
                // (Whoever waits is there still, and there may be a descriptor for him soon.)
                if matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) {
                    std::thread::sleep(OUT_OF_DESCRIPTORS);
                }
                return;
            }
        };
        let Ok(libc::ucred { uid, pid, .. }) = members::credentials(&socket) else { return };
        set_takes_descriptors(&socket, false);
        let (of_one, held) = (self.guests.iter().filter(|guest| guest.uid == uid).count(), self.house.threads.held(uid));
        let strangers = self.guests.iter().filter(|guest| matches!(guest.refusal, Some(Refusal::NotListed { .. }))).count();
        if self.guests.len() >= GUESTS_MAX || !self.users.has(uid) && strangers >= STRANGERS_MAX {
            return;
        }
        let refusal = match uid {
            _ if !self.users.has(uid) => Some(Refusal::NotListed { uid }),
            _ if of_one >= GUESTS_OF_ONE_MAX => Some(Refusal::TooMany(of_one)),
            _ if held >= HELD_MAX => Some(Refusal::Lingering(held)),
            _ => None,
        };
        // (Beyond twice as many nobody is told why.)
        if of_one < 2 * GUESTS_OF_ONE_MAX {
            self.last += 1;
            let (id, since) = (self.last, Instant::now());
            self.guests.push(Guest { id, socket, uid, pid, refusal, since, ring: None, is_asked: false });
        }
    }

    /// Hears a program once. `false`: it is let go.
    fn hear(&mut self, at: usize, buffer: &mut [u8], tell: &mut dyn FnMut(Event)) -> bool {
        let Self { guests, house, .. } = self;
        let guest = &mut guests[at];
        let (message, mut descriptors) = match wire::receive(guest.socket.as_fd(), buffer, RecvFlags::DONTWAIT) {
            Ok(received) => received,
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        };
        let reply = match guest.refusal.clone() {
            Some(refusal) => Err(refusal),
            None if message.is_cut => Err(Refusal::Malformed("it is too long".to_owned())),
            None => decode(&buffer[..message.len]).and_then(|(question, packet)| guest.hear(house, question, packet, &mut descriptors)),
        };
        house.threads.close(guest.uid, descriptors);
        match reply {
            Ok(None) => true,
            Ok(Some(reply)) => said(guest, Ok(reply), tell),
            Err(why) => said(guest, Err(why), tell),
        }
    }

    /// A thread has the answer to a program's question.
    fn answer(&mut self, done: Done, tell: &mut dyn FnMut(Event)) {
        let Done { guest, uid, answer, began } = done;
        let Some(at) = self.guests.iter().position(|there| there.id == guest) else {
            began.into_iter().for_each(|repaired| self.house.threads.retire(uid, repaired));
            return;
        };
        let guest = &mut self.guests[at];
        guest.is_asked = false;
        let begun = began.map_or(Ok(()), |repaired| guest.has_begun(repaired, &self.house.threads));
        if !said(guest, answer.and(begun).map(|()| Answer::Done.into()), tell) {
            self.end(at, tell);
        }
    }

    /// A program has gone, or is let go: nothing of it is left.
    fn end(&mut self, at: usize, tell: &mut dyn FnMut(Event)) {
        let Guest { uid, pid, ring, socket, .. } = self.guests.swap_remove(at);
        if let Some(ring) = ring {
            let interface = ring.interface.clone();
            ring.end(&self.house.threads, uid);
            tell(Event::Returned { uid, pid, interface });
        }
        // (What it has said that nobody has heard may have brought descriptors.)
        self.house.threads.close(uid, vec![socket]);
    }
}

/// Answers a program. `false`: it is let go.
fn said(guest: &Guest, reply: Result<Reply, Refusal>, tell: &mut dyn FnMut(Event)) -> bool {
    let (uid, pid) = (guest.uid, guest.pid);
    // Who speaks nonsense is not heard again.
    let is_nonsense = matches!(reply, Err(Refusal::Malformed(_) | Refusal::Descriptor | Refusal::Version { .. }));
    let reply = reply.unwrap_or_else(|why| {
        if !matches!(why, Refusal::NotYet(_)) {
            tell(Event::Refused { uid, pid, why: why.clone() });
        }
        Answer::Refused(why).into()
    });
    let brings_ring = matches!(reply.answer, Answer::Opened { .. });
    if brings_ring {
        set_takes_descriptors(&guest.socket, true);
    }
    let Ok(words) = serde_json::to_vec(&reply.answer) else { return false };
    let is_sent = wire::send(guest.socket.as_fd(), &words, &reply.descriptors(), SendFlags::DONTWAIT).is_ok();
    if let Some(ring) = guest.ring.as_ref().filter(|_| brings_ring && is_sent) {
        tell(Event::Lent { uid, pid, interface: ring.interface.clone() });
    }
    is_sent && !is_nonsense && guest.refusal.is_none()
}
