//! The broker: a listener, and one loop over it and the programs. Each of them is heard once a round, and whatever it says takes bounded time and memory; who does not
//! take its answer is let go.

use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::time::Instant;

use ringway_host::leave::Injector;
use ringway_host::{Monitor, members};
use ringway_stack::net::LinkId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags};

use super::closing::Closing;
use super::events::{Event, StartError};
use super::guest::Guest;
use super::holders::Holders;
use super::listener::{Listener, listen, namespace_of, set_takes_descriptors};
use super::message::{Answer, MESSAGE_MAX, Refusal, decode};
use super::users::Users;
use super::wire;
use crate::card::XdpDevice;
use crate::error::AttachError;
use crate::settings::Settings;

/// Connections in all, and of one user.
const GUESTS_MAX: usize = 256;
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
}

/// What all programs have a part in.
#[derive(Debug)]
pub(super) struct House {
    pub(super) interfaces: BTreeMap<String, Served>,
    pub(super) monitor: Monitor,
    pub(super) holders: Holders,
    /// Of IPv4, and of IPv6.
    pub(super) injectors: [Option<Injector>; 2],
    pub(super) closing: Closing,
    namespace: Option<u64>,
}

/// An interface.
#[derive(Debug)]
pub(super) struct Served {
    settings: Settings,
    device: Option<XdpDevice>,
}

impl Broker {
    /// Attaches to the interfaces, and listens. Nobody is served before [`Broker::run`].
    ///
    /// # Errors
    /// [`StartError`]. (An interface that another program has for now is none.)
    pub fn start(settings: BrokerSettings, tell: &mut dyn FnMut(Event)) -> Result<Self, StartError> {
        let BrokerSettings { interfaces, users, socket } = settings;
        let system = |what| move |error| StartError::System { what, error };
        let mut served = BTreeMap::new();
        for settings in interfaces {
            let interface = settings.interface.clone();
            let device = match attached(&settings) {
                Ok(device) => Some(device),
                Err(why @ AttachError::Taken { .. }) => {
                    tell(Event::NotAttached { interface: interface.clone(), why });
                    None
                }
                Err(why) => return Err(StartError::Attach { interface, why }),
            };
            served.insert(interface, Served { settings, device });
        }
        let holders = Holders::open().map_err(system("NETLINK_SOCK_DIAG"))?;
        let injectors = [false, true].map(|is_v6| Injector::open(is_v6).ok());
        let listener = listen(socket)?;
        let namespace = namespace_of(listener.socket.as_fd());
        let (monitor, closing) = (Monitor::open()?, Closing::default());
        let house = House { interfaces: served, monitor, holders, injectors, closing, namespace };
        Ok(Self { listener, users, house, guests: Vec::new() })
    }

    /// Serves programs until `stop` is readable.
    ///
    /// # Errors
    /// The system's: it cannot wait.
    pub fn run(&mut self, stop: BorrowedFd<'_>, tell: &mut dyn FnMut(Event)) -> io::Result<()> {
        let mut buffer = vec![0; MESSAGE_MAX + 1];
        loop {
            let ready = self.wait(stop)?;
            if ready[0].intersects(PollFlags::IN) {
                return Ok(());
            }
            let (accepts, mut states) = (ready[1].intersects(PollFlags::IN), ready[2..].to_vec());
            // Whoever has ended makes room for the others first.
            for at in (0..states.len()).rev() {
                let has_ended = states[at].intersects(PollFlags::HUP | PollFlags::ERR);
                let is_late = self.guests[at].ring.is_none() && self.guests[at].since.elapsed() > WITHOUT_RING_MAX;
                if has_ended || is_late {
                    states.swap_remove(at);
                    self.end(at, tell);
                }
            }
            for at in (0..states.len()).rev() {
                if states[at].intersects(PollFlags::IN) && !hear(&mut self.guests[at], &mut self.house, &mut buffer, tell) {
                    self.end(at, tell);
                }
            }
            if accepts {
                self.accept();
            }
        }
    }

    /// What is ready: to stop, the listener, and the programs.
    fn wait(&self, stop: BorrowedFd<'_>) -> io::Result<Vec<PollFlags>> {
        let sockets = [stop, self.listener.socket.as_fd()].into_iter().chain(self.guests.iter().map(|guest| guest.socket.as_fd()));
        let mut fds: Vec<_> = sockets.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let looks_again = self.guests.iter().any(|guest| guest.ring.is_none());
        let timeout = Timespec { tv_sec: 1, tv_nsec: 0 };
        loop {
            match poll(&mut fds, looks_again.then_some(&timeout)) {
                Ok(_) => return Ok(fds.iter().map(PollFd::revents).collect()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
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
        let of_one = self.guests.iter().filter(|guest| guest.uid == uid).count() + self.house.closing.count(uid);
        let strangers = self.guests.iter().filter(|guest| matches!(guest.refusal, Some(Refusal::NotListed { .. }))).count();
        if self.guests.len() >= GUESTS_MAX || !self.users.has(uid) && strangers >= STRANGERS_MAX {
            return;
        }
        let refusal = match uid {
            _ if !self.users.has(uid) => Some(Refusal::NotListed { uid }),
            _ if of_one >= GUESTS_OF_ONE_MAX => Some(Refusal::TooMany(of_one)),
            _ => None,
        };
        // (Beyond twice as many nobody is told why.)
        if of_one < 2 * GUESTS_OF_ONE_MAX {
            self.guests.push(Guest { socket, uid, pid, refusal, since: Instant::now(), ring: None });
        }
    }

    /// A program has gone, or is let go: nothing of it is left.
    fn end(&mut self, at: usize, tell: &mut dyn FnMut(Event)) {
        let Guest { uid, pid, ring, .. } = self.guests.swap_remove(at);
        if let Some(ring) = ring {
            let interface = ring.interface.clone();
            ring.end();
            tell(Event::Returned { uid, pid, interface });
        }
    }
}

/// An interface that rings can be had on: one is made, and given back, so that what is in the way is told at once, and not to each program.
fn attached(settings: &Settings) -> Result<XdpDevice, AttachError> {
    let device = XdpDevice::attach(settings)?;
    device.lend_ring()?;
    device.leave();
    Ok(device)
}

/// Hears a program once. `false`: it is let go.
fn hear(guest: &mut Guest, house: &mut House, buffer: &mut [u8], tell: &mut dyn FnMut(Event)) -> bool {
    let received = wire::receive(guest.socket.as_fd(), buffer, RecvFlags::DONTWAIT);
    let (message, descriptors) = match received {
        Ok(received) => received,
        Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
    };
    let had_ring = guest.ring.is_some();
    let reply = match guest.refusal.clone() {
        Some(refusal) => Err(refusal),
        None if message.is_cut => Err(Refusal::Malformed("it is too long".to_owned())),
        None => decode(&buffer[..message.len]).and_then(|(question, packet)| guest.hear(house, question, packet, &descriptors)),
    };
    let (uid, pid) = (guest.uid, guest.pid);
    let is_closing = house.closing.close(uid, descriptors);
    // Who speaks nonsense is not heard again.
    let is_nonsense = matches!(reply, Err(Refusal::Malformed(_) | Refusal::Descriptor | Refusal::Version { .. }));
    let goes_on = is_closing && !is_nonsense && guest.refusal.is_none();
    let reply = reply.unwrap_or_else(|why| {
        if !matches!(why, Refusal::NotYet(_)) {
            tell(Event::Refused { uid, pid, why: why.clone() });
        }
        Answer::Refused(why).into()
    });
    if !had_ring && guest.ring.is_some() {
        set_takes_descriptors(&guest.socket, true);
    }
    let Ok(words) = serde_json::to_vec(&reply.answer) else { return false };
    let is_sent = wire::send(guest.socket.as_fd(), &words, &reply.descriptors(), SendFlags::DONTWAIT).is_ok();
    if let Some(ring) = guest.ring.as_ref().filter(|_| !had_ring && is_sent) {
        tell(Event::Lent { uid, pid, interface: ring.interface.clone() });
    }
    goes_on && is_sent
}

impl House {
    /// An interface that it serves, with its program in front of it.
    pub(super) fn device(&mut self, interface: &str) -> Result<(XdpDevice, LinkId), Refusal> {
        let served = self.interfaces.get_mut(interface).ok_or_else(|| Refusal::NotServed(interface.to_owned()))?;
        // (The interface may have been made anew, or somebody has taken the program away.)
        served.device.take_if(|device| !device.is_in_front());
        if served.device.is_none() {
            served.device = Some(XdpDevice::attach(&served.settings).map_err(|error| Refusal::CannotAttach(error.to_string()))?);
        }
        let _ = self.monitor.refresh();
        let link = self.monitor.tables().link_named(interface).map(|link| link.id);
        match (&served.device, link) {
            (Some(device), Some(link)) => Ok((device.clone(), link)),
            _ => Err(Refusal::CannotAttach(format!("no interface is called {interface}"))),
        }
    }

    pub(super) const fn injects(&self) -> bool {
        self.injectors[0].is_some()
    }

    /// Whether a socket is of the broker's network namespace, as far as this kernel tells.
    pub(super) fn is_here(&self, socket: BorrowedFd<'_>) -> bool {
        self.namespace.is_none() || namespace_of(socket) == self.namespace
    }
}
