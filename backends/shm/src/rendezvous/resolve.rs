//! The connecting side: from an address to a peer.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_stack::device::{MacAddr, Protocol};

use super::hello::{self, Half, Incoming, Kind, Message, PeerHalf};
use super::receivers::KernelSocket;
use super::silence::Silence;
use super::{Rendezvous, Resolved, Search, State, names};
use crate::error::ResolveError;
use crate::fd::Fd;
use crate::identity::Identity;
use crate::link::Link;
use crate::rules::{self, Family, wildcard_of};
use crate::sys;

/// Between two attempts to connect to a listener whose backlog is full.
const RETRY: Duration = Duration::from_millis(1);

/// How long a listener's backlog may stay full.
const FULL_FOR: Duration = Duration::from_millis(100);
/// How long a process that is killed may take to lose all that it has open.
const DYING: Duration = Duration::from_millis(20);
/// Whoever was given less time than this is not called silent.
const SILENT_AFTER: Duration = Duration::from_millis(20);

/// What is behind a name.
enum Outcome {
    /// Nobody, or somebody who wants nothing of us.
    Nobody,
    /// Somebody who does not answer.
    Silent,
    /// This member.
    Myself,
    Peer(Arc<Link>),
}

/// How long a member is waited for that is to be unsettled. (One that is stopped receives nothing, and its senders ask again by themselves soon. In tests, none
/// is.)
const UNSETTLE_TIME: Duration = Duration::from_millis(if cfg!(test) { 5000 } else { 20 });

/// Where an address leads: none in particular means this host. (A scope is not part of it: names and rules know none.)
fn destination(to: SocketAddr) -> SocketAddr {
    let ip = match to.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, to.port())
}

pub(super) fn resolve(rendezvous: &Rendezvous, protocol: Protocol, to: SocketAddr) -> Result<Option<Resolved>, ResolveError> {
    let to = destination(to);
    if let Some(known) = rendezvous.known(protocol, to)? {
        return Ok(Some(Resolved::new(&known)));
    }
    rendezvous.if_bound(protocol, to, find(rendezvous, protocol, to)?)
}

/// As [`resolve`], whatever the kernel says of the address.
fn find(rendezvous: &Rendezvous, protocol: Protocol, to: SocketAddr) -> Result<Option<Resolved>, ResolveError> {
    let deadline = Instant::now() + rendezvous.timeout;
    if protocol == Protocol::Tcp {
        rendezvous.look_for_group(to, |name| {
            let _ = rendezvous.connect(name, deadline);
        });
    }
    if let Some(link) = rendezvous.look_up(protocol, to)? {
        return Ok(Some(Resolved::new(&link)));
    }
    let mut silent = false;
    for address in [to, wildcard_of(to)] {
        let name = names::rule(rendezvous.member.whose(), protocol, address);
        match rendezvous.connect(&name, deadline)? {
            Outcome::Nobody => {}
            Outcome::Silent => silent = true,
            Outcome::Peer(link) => return Ok(Some(Resolved::new(&link))),
            // Published since we looked.
            Outcome::Myself => return rendezvous.look_up(protocol, to).map(|link| link.map(|link| Resolved::new(&link))),
        }
    }
    if silent { Err(ResolveError::Silent) } else { Ok(None) }
}

/// As [`resolve`], without a word to anybody: names are only attempted at.
pub(super) fn search(rendezvous: &Rendezvous, protocol: Protocol, to: SocketAddr) -> Result<Search, ResolveError> {
    let to = destination(to);
    if let Some(known) = rendezvous.known(protocol, to)? {
        return Ok(Search { found: Some(Resolved::new(&known)), unasked: false });
    }
    let is_due = protocol == Protocol::Tcp && rendezvous.group_is_due(to);
    if let Some(link) = rendezvous.look_up(protocol, to)? {
        let found = rendezvous.if_bound(protocol, to, Some(Resolved::new(&link)))?;
        return Ok(Search { found, unasked: is_due });
    }
    let mut refused = None;
    for address in [to, wildcard_of(to)] {
        for place in 0..if is_due { names::GROUP_MAX } else { 1 } {
            match rendezvous.attempt(&names::rule_at(rendezvous.member.whose(), protocol, address, place)) {
                Ok(Attempt::Nobody) => {}
                Ok(Attempt::Somebody) => return Ok(Search { found: None, unasked: true }),
                Ok(Attempt::Silent) => refused = refused.or(Some(ResolveError::Silent)),
                Err(error) if place == 0 => refused = refused.or(Some(error)),
                Err(_) => {}
            }
        }
    }
    if is_due {
        rendezvous.look_for_group(to, |_| ());
    }
    refused.map_or(Ok(Search { found: None, unasked: false }), Err)
}

pub(super) fn resolve_datagram(rendezvous: &Rendezvous, from: SocketAddr, to: SocketAddr) -> Result<Option<Resolved>, ResolveError> {
    match rendezvous.receivers.of(from, to) {
        Ok(Some(socket)) if rendezvous.is_of_own_user(socket) => rendezvous.resolve_socket(Family::of(to), socket.cookie),
        Ok(_) => Ok(None),
        // Nobody has published a rule by its socket then.
        Err(_) => resolve(rendezvous, Protocol::Udp, to),
    }
}

/// As [`resolve_datagram`], without a word to anybody.
pub(super) fn search_datagram(rendezvous: &Rendezvous, from: SocketAddr, to: SocketAddr) -> Result<Search, ResolveError> {
    let Ok(receiver) = rendezvous.receivers.of(from, to) else { return search(rendezvous, Protocol::Udp, to) };
    let nobody = Search { found: None, unasked: false };
    let Some(KernelSocket { cookie, .. }) = receiver.filter(|&socket| rendezvous.is_of_own_user(socket)) else { return Ok(nobody) };
    if let Some(found) = rendezvous.look_up_socket(Family::of(to), cookie)? {
        return Ok(Search { found: Some(found), unasked: false });
    }
    match rendezvous.attempt(&names::socket(rendezvous.member.uid, cookie))? {
        Attempt::Nobody => Ok(nobody),
        Attempt::Somebody => Ok(Search { found: None, unasked: true }),
        Attempt::Silent => Err(ResolveError::Silent),
    }
}

pub(super) fn unsettle(rendezvous: &Rendezvous, receiver: Option<u64>) {
    let (is_mine, uid) = {
        let mut state = rendezvous.lock();
        state.table.unsettle(&*rendezvous.member.segment);
        (receiver.is_none_or(|cookie| state.table.has_socket(cookie)), rendezvous.member.uid)
    };
    let Some(cookie) = receiver.filter(|_| !is_mine) else { return };
    // To be asked for the name is what unsettles a member; it greets when that is done.
    let deadline = Instant::now() + rendezvous.timeout.min(UNSETTLE_TIME);
    if let Ok(Dialled::Connected(socket)) = dial_until(&names::socket(uid, cookie), deadline) {
        let _ = await_message(&socket, Kind::Greeting, deadline);
    }
}

impl Rendezvous {
    /// Who has published a rule for a socket of the kernel's.
    fn resolve_socket(&self, family: Family, cookie: u64) -> Result<Option<Resolved>, ResolveError> {
        if let Some(found) = self.look_up_socket(family, cookie)? {
            return Ok(Some(found));
        }
        match self.connect(&names::socket(self.member.uid, cookie), Instant::now() + self.timeout)? {
            Outcome::Nobody => Ok(None),
            Outcome::Silent => Err(ResolveError::Silent),
            Outcome::Myself | Outcome::Peer(_) => self.look_up_socket(family, cookie),
        }
    }

    fn look_up_socket(&self, family: Family, cookie: u64) -> Result<Option<Resolved>, ResolveError> {
        let mut state = self.lock();
        if state.has_left {
            return Ok(None);
        }
        if let Some(is_shared) = state.table.find_socket(family, cookie) {
            let link = self.to_myself(&mut state).map_err(ResolveError::system("channel to itself"))?;
            return Ok(Some(Resolved { is_shared, ..Resolved::new(&link) }));
        }
        let others = state.links.iter().flatten().filter(|entry| entry.link.is_alive() && entry.link.peer.id != self.member.id);
        let found = others.filter_map(|entry| Some((&entry.link, rules::find_socket(&entry.link.peer.view, family, cookie)?))).next();
        Ok(found.map(|(link, (is_shared, generation))| Resolved { is_shared, generation, ..Resolved::new(link) }))
    }

    /// Whether somebody has that name, who would have to be asked for more.
    fn attempt(&self, name: &str) -> Result<Attempt, ResolveError> {
        let silence = self.silences.find(name);
        let believed = silence.filter(|silence| silence.is_believed(Instant::now()));
        let socket = match dial(name)? {
            Dialled::Nobody => {
                self.heard(name, silence);
                return Ok(Attempt::Nobody);
            }
            Dialled::Full => return Ok(if believed.is_some() { Attempt::Silent } else { Attempt::Somebody }),
            Dialled::Connected(socket) => socket,
        };
        let pid = self.holder(&socket)?.pid;
        Ok(if believed.is_some_and(|silence| silence.pid == Some(pid)) { Attempt::Silent } else { Attempt::Somebody })
    }

    /// Nobody has that name any more, or its holder answers.
    fn heard(&self, name: &str, silence: Option<Silence>) {
        if silence.is_some() {
            self.silences.forget(name);
        }
    }

    pub(super) fn note_silence(&self, name: &str, pid: Option<i32>) {
        self.silences.note(name, pid, Instant::now());
    }

    /// Who has accepted, or will: a process of this user.
    fn holder(&self, socket: &Fd) -> Result<Identity, ResolveError> {
        let who = Identity::of_peer(socket).map_err(ResolveError::system("peer's credentials"))?;
        if who.uid != self.member.uid {
            return Err(ResolveError::OtherUser { uid: who.uid });
        }
        Ok(who)
    }

    /// Connects to who bound `name`.
    fn connect(&self, name: &str, deadline: Instant) -> Result<Outcome, ResolveError> {
        let began = Instant::now();
        let silence = self.silences.find(name);
        // Who did not answer is not waited for as long again.
        let soon = silence.map_or(deadline, |silence| deadline.min(began + silence.patience()));
        let is_believed = |pid| silence.is_some_and(|silence| silence.is_believed(began) && silence.pid == pid);
        let full_until = if is_believed(None) { began } else { soon.min(began + FULL_FOR) };
        let (outcome, pid) = match dial_until(name, full_until)? {
            Dialled::Nobody => (Ok(Outcome::Nobody), None),
            Dialled::Full => (Ok(Outcome::Silent), None),
            Dialled::Connected(socket) => {
                let who = self.holder(&socket)?;
                if is_believed(Some(who.pid)) {
                    return Ok(Outcome::Silent);
                }
                let is_new = silence.is_some_and(|silence| silence.is_of_another(who.pid));
                (self.greet(socket, who, if is_new { deadline } else { soon }), Some(who.pid))
            }
        };
        match outcome {
            Ok(Outcome::Silent) if began.elapsed() >= SILENT_AFTER => self.note_silence(name, pid),
            Ok(Outcome::Silent) => {}
            _ => self.heard(name, silence),
        }
        outcome
    }

    /// As [`Rendezvous::greet`], with a member that is another for certain.
    pub(super) fn greeted(&self, socket: Fd, who: Identity, deadline: Instant) -> Result<Option<MacAddr>, ResolveError> {
        match self.greet(socket, who, deadline)? {
            Outcome::Peer(link) => Ok(Some(link.mac)),
            Outcome::Silent => Err(ResolveError::Silent),
            Outcome::Nobody | Outcome::Myself => Ok(None),
        }
    }

    /// Waits for the words of whoever accepted, and answers with our offer.
    fn greet(&self, socket: Fd, who: Identity, deadline: Instant) -> Result<Outcome, ResolveError> {
        let _ = sys::set_takes_rights(&socket, true);
        let socket = Arc::new(socket);
        let id = match await_message(&socket, Kind::Greeting, deadline)? {
            Awaited::Message(greeting) => greeting.id,
            Awaited::Closed => return Ok(Outcome::Nobody),
            Awaited::Nothing => return Ok(Outcome::Silent),
        };
        if id == self.member.id {
            return Ok(Outcome::Myself);
        }
        if let Some(outcome) = self.doubt(&socket, id, &who, deadline)? {
            return Ok(outcome);
        }
        let mac = match self.begin(id, deadline)? {
            Begun::Connected(link) => return Ok(Outcome::Peer(link)),
            Begun::Nothing => return Ok(Outcome::Nobody),
            Begun::Reserved(mac) => mac,
        };
        let mut silent = false;
        let negotiated = self.negotiate(&socket, id, who, mac, deadline, &mut silent);
        match self.finish(id, mac, negotiated)? {
            Outcome::Nobody if silent => Ok(Outcome::Silent),
            outcome => Ok(outcome),
        }
    }

    /// Makes sure that a peer is who it says, once a link: nothing is offloaded to somebody who could not be found again. `None`: it is.
    fn doubt(&self, socket: &Fd, id: u64, who: &Identity, deadline: Instant) -> Result<Option<Outcome>, ResolveError> {
        let linked = self.living(&mut self.lock(), id);
        if let Some(link) = linked {
            return if link.who.is_some_and(|known| known.is(who)) { Ok(None) } else { Err(ResolveError::Unverified) };
        }
        loop {
            match self.vouch(id, who).map_err(ResolveError::system("connect to a member's name"))? {
                Some(true) => return Ok(None),
                Some(false) => break,
                None if Instant::now() + RETRY < deadline => std::thread::sleep(RETRY),
                None => return Ok(Some(Outcome::Silent)),
            }
        }
        // One that dies loses its names one after the other, and the connection with them.
        let _ = sys::wait_for(socket, libc::POLLRDHUP, DYING);
        if sys::is_hung_up(socket) { Ok(Some(Outcome::Nobody)) } else { Err(ResolveError::Unverified) }
    }

    /// Claims the negotiation with member `id`, unless there is a link already. One at a time: another thread's is waited for.
    fn begin(&self, id: u64, deadline: Instant) -> Result<Begun, ResolveError> {
        let mut state = self.lock();
        loop {
            if state.has_left {
                return Ok(Begun::Nothing);
            }
            if let Some(link) = self.living(&mut state, id) {
                return Ok(Begun::Connected(link));
            }
            if !state.outgoing.contains(&id) {
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Begun::Nothing);
            }
            state = state.wait(&self.settled, left);
        }
        let mac = self.reserve(&mut state).ok_or(ResolveError::Full)?;
        state.outgoing.push(id);
        Ok(Begun::Reserved(mac))
    }

    /// Exchanges descriptors. `None`: the peer closed, or did not answer in time, which makes it `silent`.
    fn negotiate(
        &self,
        socket: &Arc<Fd>,
        id: u64,
        who: Identity,
        mac: MacAddr,
        deadline: Instant,
        silent: &mut bool,
    ) -> Result<Option<Arc<Link>>, ResolveError> {
        let half = Half::new(&self.member, id).map_err(ResolveError::system("channel"))?;
        if half.fds.send(socket, Kind::Offer, &self.member).is_err() {
            return Ok(None);
        }
        let answer = match await_message(socket, Kind::Answer, deadline)? {
            Awaited::Message(answer) => answer,
            Awaited::Closed => return Ok(None),
            Awaited::Nothing => {
                *silent = true;
                return Ok(None);
            }
        };
        let _ = sys::set_takes_rights(socket, false);
        if answer.id != id {
            return Err(ResolveError::Incompatible);
        }
        let peer = PeerHalf::open(&self.member, id, who, answer.passed).map_err(|e| match e.kind() {
            io::ErrorKind::InvalidData => ResolveError::Incompatible,
            _ => ResolveError::System { what: "peer's memory", source: e },
        })?;
        Ok(Some(half.join(&self.member, peer, mac, Some(socket.clone())).0))
    }

    /// Ends the negotiation, and answers those who had to wait for its end.
    fn finish(&self, id: u64, mac: MacAddr, negotiated: Result<Option<Arc<Link>>, ResolveError>) -> Result<Outcome, ResolveError> {
        let mut state = self.lock();
        state.outgoing.retain(|&other| other != id);
        let outcome = self.conclude(&mut state, id, mac, negotiated);
        self.answer_deferred(&mut state);
        drop(state);
        self.settled.notify_all();
        outcome
    }

    fn conclude(
        &self,
        state: &mut State,
        id: u64,
        mac: MacAddr,
        negotiated: Result<Option<Arc<Link>>, ResolveError>,
    ) -> Result<Outcome, ResolveError> {
        if state.has_left {
            return Ok(Outcome::Nobody);
        }
        // The peer may have connected to us meanwhile, and closed this connection for that reason.
        if let Some(link) = self.living(state, id) {
            Self::unreserve(state, mac);
            return Ok(Outcome::Peer(link));
        }
        let installed = negotiated.and_then(|link| {
            let Some(link) = link else { return Ok(None) };
            self.install(state, &link).map_err(ResolveError::system("epoll entry"))?;
            Ok(Some(link))
        });
        match installed {
            Ok(Some(link)) => Ok(Outcome::Peer(link)),
            Ok(None) => {
                Self::unreserve(state, mac);
                Ok(Outcome::Nobody)
            }
            Err(e) => {
                Self::unreserve(state, mac);
                Err(e)
            }
        }
    }
}

enum Begun {
    Connected(Arc<Link>),
    Reserved(MacAddr),
    Nothing,
}

/// What an attempt at a name brought.
enum Attempt {
    /// Nobody has it.
    Nobody,
    /// A process of this user that is to be asked, or somebody whose backlog is full.
    Somebody,
    /// Who did not answer a short time ago.
    Silent,
}

/// What connecting to a name brought.
enum Dialled {
    Connected(Fd),
    /// Nobody listens.
    Nobody,
    /// The listener's backlog is full.
    Full,
}

/// Connects a socket. Never waits.
fn dial(name: &str) -> Result<Dialled, ResolveError> {
    let socket = sys::unix_socket(libc::SOCK_SEQPACKET).map_err(ResolveError::system("socket"))?;
    match sys::connect_abstract(&socket, name) {
        Ok(()) => Ok(Dialled::Connected(socket)),
        Err(e) => match e.raw_os_error() {
            // EPROTOTYPE: a stranger's socket of another type has the name.
            Some(libc::ECONNREFUSED | libc::ENOENT | libc::EPROTOTYPE) => Ok(Dialled::Nobody),
            Some(libc::EAGAIN) => Ok(Dialled::Full),
            _ => Err(ResolveError::System { what: "connect to a rule's name", source: e }),
        },
    }
}

/// As [`dial`], but for that long somebody may have no room.
fn dial_until(name: &str, until: Instant) -> Result<Dialled, ResolveError> {
    loop {
        match dial(name)? {
            Dialled::Full if Instant::now() + RETRY < until => std::thread::sleep(RETRY),
            dialled => return Ok(dialled),
        }
    }
}

enum Awaited {
    Message(Message),
    /// The peer closed.
    Closed,
    /// It said nothing until the deadline.
    Nothing,
}

/// Waits for a message of that kind.
fn await_message(socket: &Fd, kind: Kind, deadline: Instant) -> Result<Awaited, ResolveError> {
    loop {
        match hello::receive(socket) {
            Incoming::Message(message) if message.kind == kind => return Ok(Awaited::Message(message)),
            Incoming::Message(_) | Incoming::Garbage => return Err(ResolveError::Incompatible),
            Incoming::Closed => return Ok(Awaited::Closed),
            Incoming::NoRoom(e) => return Err(ResolveError::System { what: "a peer's descriptors", source: e }),
            Incoming::Nothing | Incoming::WakeUp => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Awaited::Nothing);
        }
        sys::wait_for(socket, libc::POLLIN, left).map_err(ResolveError::system("poll"))?;
    }
}
