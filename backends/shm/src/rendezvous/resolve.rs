//! The connecting side: from an address to a peer.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use ringway_stack::device::{MacAddr, Protocol};

use super::hello::{self, Half, Incoming, Kind, Message, PeerHalf};
use super::{Rendezvous, Resolved, State, names};
use crate::error::ResolveError;
use crate::fd::Fd;
use crate::link::Link;
use crate::rules;
use crate::sys;

/// Between two attempts to connect to a listener whose backlog is full.
const RETRY: Duration = Duration::from_millis(1);

/// What is behind a name.
enum Outcome {
    /// Nobody, or somebody who does not answer.
    Nobody,
    /// This member.
    Myself,
    Peer(Arc<Link>),
}

/// How long a member is waited for that is to be unsettled. (One that is stopped receives nothing, and its senders ask again by themselves soon.)
const UNSETTLE_TIME: Duration = Duration::from_millis(20);

/// How long it is believed that nobody joined or left an address.
const GROUP_TIME: Duration = Duration::from_secs(1);
/// Addresses whose groups are remembered.
const GROUPS_MAX: usize = 1024;

/// When the members of an address were last looked for, and whose turn it is to get a connection.
#[derive(Default)]
pub(super) struct Groups {
    looked: HashMap<SocketAddrV4, Instant>,
    turn: usize,
}

pub(super) fn resolve(rendezvous: &Rendezvous, protocol: Protocol, to: SocketAddrV4) -> Result<Option<Resolved>, ResolveError> {
    let to = if to.ip().is_unspecified() { SocketAddrV4::new(Ipv4Addr::LOCALHOST, to.port()) } else { to };
    let deadline = Instant::now() + rendezvous.timeout;
    if protocol == Protocol::Tcp {
        rendezvous.find_group(to, deadline);
    }
    if let Some(link) = rendezvous.look_up(protocol, to)? {
        return Ok(Some(Resolved::new(&link)));
    }
    for address in [to, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, to.port())] {
        let name = names::rule(rendezvous.member.uid, protocol, address);
        match rendezvous.connect(&name, deadline)? {
            Outcome::Nobody => {}
            Outcome::Peer(link) => return Ok(Some(Resolved::new(&link))),
            // Published since we looked.
            Outcome::Myself => return rendezvous.look_up(protocol, to).map(|link| link.map(|link| Resolved::new(&link))),
        }
    }
    Ok(None)
}

pub(super) fn resolve_datagram(rendezvous: &Rendezvous, from: SocketAddrV4, to: SocketAddrV4) -> Result<Option<Resolved>, ResolveError> {
    match rendezvous.receivers.of(from, to) {
        Ok(Some(cookie)) => rendezvous.resolve_socket(cookie),
        Ok(None) => Ok(None),
        // Nobody has published a rule by its socket then.
        Err(_) => resolve(rendezvous, Protocol::Udp, to),
    }
}

pub(super) fn unsettle(rendezvous: &Rendezvous, receiver: Option<u64>) {
    let (is_mine, uid) = {
        let mut state = rendezvous.lock();
        state.table.unsettle(&*rendezvous.member.segment);
        (receiver.is_none_or(|cookie| state.table.find_socket(cookie).is_some()), rendezvous.member.uid)
    };
    let Some(cookie) = receiver.filter(|_| !is_mine) else { return };
    // To be asked for the name is what unsettles a member; it greets when that is done.
    let deadline = Instant::now() + rendezvous.timeout.min(UNSETTLE_TIME);
    let asked = dial(&names::socket(uid, cookie), deadline);
    if let Ok(Some(socket)) = asked {
        let _ = await_message(&socket, Kind::Greeting, deadline);
    }
}

impl Rendezvous {
    /// Who has published a rule for a socket of the kernel's.
    fn resolve_socket(&self, cookie: u64) -> Result<Option<Resolved>, ResolveError> {
        if let Some(found) = self.look_up_socket(cookie)? {
            return Ok(Some(found));
        }
        match self.connect(&names::socket(self.member.uid, cookie), Instant::now() + self.timeout)? {
            Outcome::Nobody => Ok(None),
            Outcome::Myself | Outcome::Peer(_) => self.look_up_socket(cookie),
        }
    }

    fn look_up_socket(&self, cookie: u64) -> Result<Option<Resolved>, ResolveError> {
        let mut state = self.lock();
        if state.has_left {
            return Ok(None);
        }
        if let Some(is_shared) = state.table.find_socket(cookie) {
            let link = self.to_myself(&mut state).map_err(ResolveError::system("channel to itself"))?;
            return Ok(Some(Resolved { is_shared, ..Resolved::new(&link) }));
        }
        let others = state.links.iter().flatten().filter(|entry| entry.link.is_alive() && entry.link.peer.id != self.member.id);
        let found = others.filter_map(|entry| Some((&entry.link, rules::find_socket(&entry.link.peer.view, cookie)?))).next();
        Ok(found.map(|(link, (is_shared, generation))| Resolved { is_shared, generation, ..Resolved::new(link) }))
    }

    /// Connects to the members that share an address, if nobody has looked for them of late. What goes wrong is the matter of
    /// whoever asks for one of them by name.
    fn find_group(&self, to: SocketAddrV4, deadline: Instant) {
        {
            let now = Instant::now();
            let mut state = self.lock();
            if state.groups.looked.get(&to).is_some_and(|&looked| now < looked + GROUP_TIME) {
                return;
            }
            if state.groups.looked.len() >= GROUPS_MAX {
                state.groups.looked.clear();
            }
            state.groups.looked.insert(to, now);
        }
        for address in [to, SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, to.port())] {
            for place in 0..names::GROUP_MAX {
                let name = names::rule_at(self.member.uid, Protocol::Tcp, address, place);
                // Workers that ended leave gaps, so every name is tried.
                let _ = self.connect(&name, deadline);
            }
        }
    }

    /// Looks into our own table and those of connected peers. An exact rule wins over one for every address; of several members with
    /// an equally good one, each has its turn. (A peer that is not connected yet might have an exact rule beside a connected
    /// one's wildcard: TCP's groups have been looked for, and for datagrams the kernel is asked, where it answers.)
    fn look_up(&self, protocol: Protocol, to: SocketAddrV4) -> Result<Option<Arc<Link>>, ResolveError> {
        let mut state = self.lock();
        if state.has_left {
            return Ok(None);
        }
        let mine = state.table.find(protocol, to);
        let (mut exact, mut wildcard) = (Candidates::default(), Candidates::default());
        exact.myself = mine.exact;
        wildcard.myself = mine.wildcard;
        for entry in state.links.iter().flatten().filter(|entry| entry.link.is_alive() && entry.link.peer.id != self.member.id) {
            let found = rules::find(&entry.link.peer.view, protocol, to);
            if found.exact > 0 {
                exact.add(&entry.link, found.exact);
            } else if found.wildcard > 0 {
                wildcard.add(&entry.link, found.wildcard);
            }
        }
        let candidates = if exact.is_empty() { wildcard } else { exact };
        if candidates.is_empty() {
            return Ok(None);
        }
        state.groups.turn = state.groups.turn.wrapping_add(1);
        match candidates.at(state.groups.turn) {
            Some(link) => Ok(Some(link)),
            None => self.to_myself(&mut state).map(Some).map_err(ResolveError::system("channel to itself")),
        }
    }

    /// Connects to who bound `name`.
    fn connect(&self, name: &str, deadline: Instant) -> Result<Outcome, ResolveError> {
        let Some(socket) = dial(name, deadline)? else { return Ok(Outcome::Nobody) };
        let credentials = sys::peer_credentials(&socket).map_err(ResolveError::system("peer's credentials"))?;
        if credentials.uid != self.member.uid {
            return Err(ResolveError::OtherUser { uid: credentials.uid });
        }
        let _ = sys::set_takes_rights(&socket, true);
        let socket = Arc::new(socket);
        let Some(greeting) = await_message(&socket, Kind::Greeting, deadline)? else { return Ok(Outcome::Nobody) };
        let id = greeting.id;
        if id == self.member.id {
            return Ok(Outcome::Myself);
        }
        let mac = match self.begin(id, deadline)? {
            Begun::Connected(link) => return Ok(Outcome::Peer(link)),
            Begun::Nothing => return Ok(Outcome::Nobody),
            Begun::Reserved(mac) => mac,
        };
        let negotiated = self.negotiate(&socket, id, credentials.pid, mac, deadline);
        self.finish(id, mac, negotiated)
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

    /// Exchanges descriptors. `None`: the peer closed, or did not answer in time.
    fn negotiate(&self, socket: &Arc<Fd>, id: u64, pid: i32, mac: MacAddr, deadline: Instant) -> Result<Option<Arc<Link>>, ResolveError> {
        let half = Half::new(&self.member, id).map_err(ResolveError::system("channel"))?;
        if Half::send(half.channel_fd(), socket, Kind::Offer, &self.member).is_err() {
            return Ok(None);
        }
        let Some(answer) = await_message(socket, Kind::Answer, deadline)? else { return Ok(None) };
        let _ = sys::set_takes_rights(socket, false);
        if answer.id != id {
            return Err(ResolveError::Incompatible);
        }
        let peer = PeerHalf::open(&self.member, id, pid, answer.passed).map_err(|e| match e.kind() {
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

/// Members with equally good rules, and how many each of them has: a connection is shared out among sockets, not among members.
#[derive(Default)]
struct Candidates {
    others: ArrayVec<(Arc<Link>, usize), { names::GROUP_MAX }>,
    myself: usize,
}

impl Candidates {
    fn add(&mut self, link: &Arc<Link>, rules: usize) {
        // More than a group has are liars.
        let _ = self.others.try_push((link.clone(), rules));
    }

    fn is_empty(&self) -> bool {
        self.others.is_empty() && self.myself == 0
    }

    /// Whose turn it is; `None`: ours.
    fn at(&self, turn: usize) -> Option<Arc<Link>> {
        let all = self.others.iter().map(|(_, rules)| rules).sum::<usize>() + self.myself;
        let mut turn = turn % all.max(1);
        let whose = |(link, rules): &(Arc<Link>, usize)| {
            let is_its = turn < *rules;
            turn = turn.wrapping_sub(*rules);
            is_its.then(|| link.clone())
        };
        self.others.iter().find_map(whose)
    }
}

enum Begun {
    Connected(Arc<Link>),
    Reserved(MacAddr),
    Nothing,
}

/// Connects a socket. `None`: nobody listens, or not before the deadline.
fn dial(name: &str, deadline: Instant) -> Result<Option<Fd>, ResolveError> {
    let socket = sys::unix_socket(libc::SOCK_SEQPACKET).map_err(ResolveError::system("socket"))?;
    loop {
        match sys::connect_abstract(&socket, name) {
            Ok(()) => return Ok(Some(socket)),
            Err(e) => match e.raw_os_error() {
                // EPROTOTYPE: a stranger's socket of another type has the name.
                Some(libc::ECONNREFUSED | libc::ENOENT | libc::EPROTOTYPE) => return Ok(None),
                Some(libc::EAGAIN) if Instant::now() + RETRY < deadline => std::thread::sleep(RETRY),
                Some(libc::EAGAIN) => return Ok(None),
                _ => return Err(ResolveError::System { what: "connect to a rule's name", source: e }),
            },
        }
    }
}

/// Waits for a message of that kind. `None`: the peer closed, or said nothing until the deadline.
fn await_message(socket: &Fd, kind: Kind, deadline: Instant) -> Result<Option<Message>, ResolveError> {
    loop {
        match hello::receive(socket) {
            Incoming::Message(message) if message.kind == kind => return Ok(Some(message)),
            Incoming::Message(_) | Incoming::Garbage => return Err(ResolveError::Incompatible),
            Incoming::Closed => return Ok(None),
            Incoming::NoRoom(e) => return Err(ResolveError::System { what: "a peer's descriptors", source: e }),
            Incoming::Nothing | Incoming::WakeUp => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        sys::wait_for(socket, libc::POLLIN, left).map_err(ResolveError::system("poll"))?;
    }
}
