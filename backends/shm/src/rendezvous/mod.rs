//! How members find, greet and lose each other, without a broker: the kernel's abstract Unix names are the table of flow rules.
//!
//! A member binds one listening socket a rule, named after it; connecting to that name is asking who has the address.
//! The connection then carries both sides' descriptors, stays open, and is each side's proof that the other lives.
//! All of it has its own lock, which is never held while waiting, so that it can be used under a ring's lock or without.
//!
//! What is promised, and to whom. Another user's process is not talked to: its socket takes no descriptors, is refused as soon as the kernel has told
//! whose it is, and cannot block a thread, fill the log or hold more than a bounded number of descriptors. It can bind a name that a member would
//! bind; then the kernel carries what would go there. Of a process of the own user, nothing that it sends is trusted to be well formed, and
//! it gets nothing of what is sent to an address which the kernel has no socket of that user's for ([`Settings::listeners_are_bound`]); but
//! it is believed that such a socket is its own: it can publish what another process of the user has bound, and then receives
//! what other members send there. (Such a process may in general trace or kill the others. Where it may not, for it is confined to less
//! than its user, let it have a user or a network namespace of its own.) On kernels before Linux 6.16, a process of the own user that is
//! connected can pass descriptors with its wake-ups, and closing those may take long.

mod bound;
mod control;
mod dialogues;
mod groups;
mod held;
mod hello;
mod links;
pub(crate) mod names;
mod receivers;
mod regions;
mod resolve;
mod serve;
mod sharing;
mod silence;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, not(loom)))]
pub(crate) use hello::{Kind, send as send_hello};
/// What a process does that says it is a member which it is not.
#[cfg(all(test, not(loom)))]
pub(crate) mod posing {
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::time::Duration;

    use ringway_stack::device::Protocol;

    use super::hello::{self, Half, Kind};
    use super::names;
    use crate::member::Member;
    use crate::settings::Settings;
    use crate::sys;

    /// Makes an offer. `true`: it was accepted.
    pub(crate) fn offer_as(to: impl Into<SocketAddr>, id: u64) -> bool {
        let member = Arc::new(Member::new(&Settings { pool_bytes: 1 << 20, ..Settings::default() }, id).unwrap());
        let socket = sys::unix_socket(libc::SOCK_SEQPACKET).unwrap();
        sys::connect_abstract(&socket, &names::rule(member.whose(), Protocol::Tcp, to)).unwrap();
        let hear = || loop {
            sys::wait_for(&socket, libc::POLLIN, Duration::from_secs(5)).unwrap();
            match hello::receive(&socket) {
                hello::Incoming::Message(message) => return Some(message),
                hello::Incoming::Nothing => {}
                _ => return None,
            }
        };
        let greeting = hear().expect("a greeting");
        let half = Half::new(&member, greeting.id).unwrap();
        half.fds.send(&socket, Kind::Offer, &member).unwrap();
        hear().is_some_and(|answer| answer.kind == Kind::Answer)
    }

    /// Greets whoever comes.
    pub(crate) fn greet_as(own: impl Into<SocketAddr>, id: u64, ready: impl FnOnce()) {
        let listener = sys::unix_socket(libc::SOCK_SEQPACKET).unwrap();
        sys::listen_abstract(&listener, &names::rule(sys::effective_uid(), Protocol::Tcp, own), 8).unwrap();
        ready();
        let mut kept = Vec::new();
        loop {
            sys::wait_for(&listener, libc::POLLIN, Duration::from_secs(5)).unwrap();
            if let Ok(socket) = sys::accept(&listener) {
                let _ = hello::send(&socket, Kind::Greeting, id, &[]);
                kept.push(socket);
            }
        }
    }
}

pub use dialogues::{Dialogue, DialogueHandler, MemberRef, WORDS_MAX};
pub use regions::{PublishedRegion, RegionWrite};

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use ringway_stack::device::{FlowRule, MacAddr, Protocol, RuleError, RuleId, Unsupported};
use ringway_stack::offload::DeviceKind;

use self::bound::Bound;
use self::control::Client;
use self::dialogues::Dialogues;
use self::held::Held;
use self::links::Entry;
use self::receivers::Receivers;
use self::serve::{Deferred, Incoming, Token};
pub(crate) use self::silence::Silences;
use crate::error::AttachError;
use crate::fd::{self, Fd};
use crate::layout::RULES_MAX;
use crate::link::Link;
use crate::member::Member;
use crate::rules::{self, Rule, RuleTable};
use crate::settings::Settings;
use crate::sys::{self, Epoll};

/// Answers a request that came over the control socket, in JSON. Called by [`Rendezvous::service`], without locks held.
pub type ControlHandler = Box<dyn Fn(&str) -> String + Send + Sync>;

/// Connections that wait to be accepted, on each rule.
const BACKLOG: i32 = 64;

/// Who has an address.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The MAC address to send to.
    pub mac: MacAddr,
    /// The generation of its rules when it was asked.
    pub generation: u64,
    /// Others may come to have the address as well, of whom this member knows nothing: the answer does not hold for long.
    pub is_shared: bool,
    link: Arc<Link>,
}

impl Resolved {
    fn new(link: &Arc<Link>) -> Self {
        Self { mac: link.mac, generation: rules::version(&link.peer.view), is_shared: false, link: link.clone() }
    }
}

/// What is known of an address without asking anybody.
#[derive(Clone, Debug)]
pub struct Search {
    /// Who has it, as far as is known.
    pub found: Option<Resolved>,
    /// Somebody has, or may have, it who has not been asked yet: [`Rendezvous::resolve`] asks, and takes its time.
    pub unasked: bool,
}

/// A connected member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Its process.
    pub pid: i32,
    /// Its MAC address, as this member uses it.
    pub mac: MacAddr,
    /// Its random id.
    pub id: u64,
    /// Frames received from it that were copied, because its buffers were held for too long.
    pub frames_copied: u64,
}

/// A member's side of the rendezvous. See the module's documentation.
pub struct Rendezvous {
    member: Arc<Member>,
    epoll: Epoll,
    name: String,
    /// `None`: it is not listed.
    control: Option<Fd>,
    slots: usize,
    timeout: Duration,
    listeners_are_bound: bool,
    state: Mutex<State>,
    /// A negotiation ended.
    settled: Condvar,
    handler: Mutex<Option<Arc<ControlHandler>>>,
    dialogue_handler: Mutex<Option<Arc<dyn DialogueHandler>>>,
    receivers: Receivers,
    losses: AtomicU64,
    /// Held while this member writes to a peer's region: the link of the last such write.
    writing: Mutex<Weak<Link>>,
    /// Under a lock of its own, inside the state's.
    silences: Arc<Silences>,
}

#[derive(Default)]
struct State {
    /// By slot. The first is this member's channel to itself.
    links: Vec<Option<Entry>>,
    generations: Vec<u32>,
    free_slots: Vec<u16>,
    /// Slots of living peers.
    by_id: HashMap<u64, u16>,
    /// Members that a thread of ours negotiates with.
    outgoing: Vec<u64>,
    incoming: VecDeque<Incoming>,
    deferred: Vec<Deferred>,
    rules: HashMap<u64, Published>,
    names: HashMap<u64, Name>,
    /// The names' numbers.
    named: HashMap<Key, u64>,
    table: RuleTable,
    clients: VecDeque<Client>,
    dialogues: Dialogues,
    groups: groups::Groups,
    bound: Bound,
    /// Numbers rules, names, incoming connections and clients; never reused.
    next_number: u64,
    pub(super) pause: serve::Pause,
    /// A descriptor to give up for a moment when there is no other.
    spare: Option<Fd>,
    /// The device is gone.
    has_left: bool,
}

/// A rule of ours.
struct Published {
    rule: Rule,
    /// The number of its name.
    name: u64,
    place: u16,
}

/// What is asked for by a name: an address, or a socket of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Address(Protocol, SocketAddr),
    Socket(u64),
}

impl Key {
    const fn of(rule: &Rule) -> Self {
        if rule.cookie == 0 { Self::Address(rule.protocol, rule.address) } else { Self::Socket(rule.cookie) }
    }
}

/// A name of ours: where one asks, and for how many rules.
struct Name {
    socket: Fd,
    key: Key,
    /// Which of its group's it is.
    place: usize,
    rules: usize,
    is_shared: bool,
}

impl State {
    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}

fn listen_for_questions(name: &str, epoll: &Epoll) -> Result<Fd, AttachError> {
    let control = sys::unix_socket(libc::SOCK_STREAM).map_err(AttachError::system("control socket"))?;
    sys::listen_abstract(&control, name, BACKLOG).map_err(AttachError::system("control socket's name"))?;
    epoll.add(&control, libc::EPOLLIN, Token::Control.pack()).map_err(AttachError::system("epoll entry"))?;
    Ok(control)
}

impl Rendezvous {
    pub(crate) fn new(member: Arc<Member>, settings: &Settings, silences: Arc<Silences>) -> Result<Self, AttachError> {
        let epoll = Epoll::new().map_err(AttachError::system("epoll instance"))?;
        let name = names::member(member.uid, member.pid, member.id);
        let control = settings.is_listed.then(|| listen_for_questions(&name, &epoll)).transpose()?;
        let rendezvous = Self {
            member,
            epoll,
            name,
            control,
            slots: settings.slots(),
            timeout: settings.resolve_timeout,
            listeners_are_bound: settings.listeners_are_bound,
            state: Mutex::new(State { spare: sys::eventfd().ok(), ..State::default() }),
            settled: Condvar::new(),
            handler: Mutex::default(),
            dialogue_handler: Mutex::default(),
            receivers: Receivers::default(),
            losses: AtomicU64::new(0),
            writing: Mutex::default(),
            silences,
        };
        // Nothing is offloaded by whom nobody could ask to give it up again.
        rendezvous.open_dialogues().map_err(AttachError::system("name for dialogues"))?;
        Ok(rendezvous)
    }

    /// What it knows together with other members of its process.
    pub(crate) fn silences(&self) -> Arc<Silences> {
        Arc::clone(&self.silences)
    }

    /// Finds out who has an address, and connects to it. `None`: no member of this user has, in this network namespace. The first time it
    /// takes a greeting with the peer's progress thread, typically 100 us, and at most
    /// [`Settings::resolve_timeout`] in all; later, for any address of the same peer, it takes no system call. Who did not answer is not
    /// asked again for a while, and then not waited for as long.
    ///
    /// # Errors
    /// [`ResolveError`].
    ///
    /// [`ResolveError`]: crate::ResolveError
    pub fn resolve(&self, protocol: Protocol, to: impl Into<SocketAddr>) -> Result<Option<Resolved>, crate::ResolveError> {
        resolve::resolve(self, protocol, to.into())
    }

    /// As [`Rendezvous::resolve`], for datagrams between these addresses: which socket they are for is the kernel's choice among all that it has
    /// there, and the answer is the member that has published a rule for that one ([`FlowRule::cookie`]). `None`: no member has, and
    /// the datagrams are to go through the kernel. Takes a system call each time. Where [`Rendezvous::knows_receivers`] says no, members go by
    /// addresses alone.
    ///
    /// # Errors
    /// [`ResolveError`].
    ///
    /// [`ResolveError`]: crate::ResolveError
    pub fn resolve_datagram(
        &self,
        from: impl Into<SocketAddr>,
        to: impl Into<SocketAddr>,
    ) -> Result<Option<Resolved>, crate::ResolveError> {
        resolve::resolve_datagram(self, from.into(), to.into())
    }

    /// As [`Rendezvous::resolve`], for those who must not wait: who is not known yet is not asked.
    ///
    /// # Errors
    /// [`ResolveError`].
    ///
    /// [`ResolveError`]: crate::ResolveError
    pub fn search(&self, protocol: Protocol, to: impl Into<SocketAddr>) -> Result<Search, crate::ResolveError> {
        resolve::search(self, protocol, to.into())
    }

    /// As [`Rendezvous::resolve_datagram`], for those who must not wait: who is not known yet is not asked.
    ///
    /// # Errors
    /// [`ResolveError`].
    ///
    /// [`ResolveError`]: crate::ResolveError
    pub fn search_datagram(&self, from: impl Into<SocketAddr>, to: impl Into<SocketAddr>) -> Result<Search, crate::ResolveError> {
        resolve::search_datagram(self, from.into(), to.into())
    }

    /// Whether the kernel says which of its sockets a datagram is for.
    pub fn knows_receivers(&self) -> bool {
        self.receivers.answer()
    }

    /// Which socket of the kernel's gets what goes from there to there; `None`: none, or the kernel doesn't say.
    pub fn receiver(&self, from: impl Into<SocketAddr>, to: impl Into<SocketAddr>) -> Option<u64> {
        self.receivers.of(from.into(), to.into()).ok().flatten().map(|socket| socket.cookie)
    }

    /// A socket has come, or has a peer now, that gets datagrams which `receiver` got before (see [`Rendezvous::receiver`]), if that is known: whoever sends
    /// to that one's member, or to this one, asks again. Talks to that member's progress thread.
    pub fn unsettle(&self, receiver: Option<u64>) {
        resolve::unsettle(self, receiver);
    }

    /// Whether the answer still holds: the peer lives, and has not changed its rules since. One load of its memory.
    #[inline]
    pub fn still_valid(&self, resolved: &Resolved) -> bool {
        resolved.link.is_alive() && rules::version(&resolved.link.peer.view) == resolved.generation
    }

    /// How many peers were lost so far. What was resolved to one of them keeps its memory until it is dropped; who keeps such
    /// answers looks here when to go through them.
    #[inline]
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// Publishes a rule: from now on, this member is found under its address, and after [`Rendezvous::await_joined`] also by those who knew
    /// before that others have it. A rule with a remote address is of one flow,
    /// whose peer knows this member already, and is not published. One that is shared may be published several times: of what the
    /// members of its group get, this one gets as many shares.
    ///
    /// # Errors
    /// [`RuleError::Taken`]: another ring or process holds it (or sixteen of them, if it is shared); [`RuleError::Full`]: the table, or the system's descriptors, are
    /// used up, or the device is gone; [`RuleError::Unsupported`]: it asks for more than [`FlowRule::as_five_tuple`] tells.
    pub fn publish(&self, rule: &FlowRule) -> Result<RuleId, RuleError> {
        let lacks = |what| RuleError::from(Unsupported { device: DeviceKind::Shm, what });
        let exclusive = FlowRule { shared: false, ..*rule };
        let flow = exclusive.as_five_tuple().ok_or_else(|| lacks("steering beyond protocol and addresses"))?;
        if rule.shared && rule.cookie == 0 && flow.protocol == Protocol::Udp {
            return Err(lacks("sharing out datagrams among sockets that the kernel does not know"));
        }
        let mut state = self.lock();
        let number = state.number();
        if flow.remote.is_some() {
            return Ok(RuleId(number));
        }
        if state.has_left || state.rules.len() >= RULES_MAX {
            return Err(RuleError::Full);
        }
        let rule = Rule { protocol: flow.protocol, address: flow.local, is_shared: rule.shared, cookie: rule.cookie };
        let name = self.name(&mut state, &rule)?;
        let Some(place) = state.table.insert(&*self.member.segment, &rule) else {
            self.unname(&mut state, name);
            return Err(RuleError::Full);
        };
        state.rules.insert(number, Published { rule, name, place });
        // (Where it has listeners there already, whoever knows them sees that there is one more.)
        if rule.is_shared && rule.protocol == Protocol::Tcp && state.names.get(&name).is_some_and(|name| name.rules == 1) {
            self.tell_joined(&mut state, rule.address);
        }
        Ok(RuleId(number))
    }

    /// Has members ask here for what one rule more is for.
    fn name(&self, state: &mut State, rule: &Rule) -> Result<u64, RuleError> {
        let key = Key::of(rule);
        if let Some(&number) = state.named.get(&key)
            && let Some(name) = state.names.get_mut(&number)
        {
            // (Of a socket, one rule takes the other's place.)
            if matches!(key, Key::Address(..)) && !(rule.is_shared && name.is_shared) {
                return Err(RuleError::Taken);
            }
            name.is_shared |= rule.is_shared;
            name.rules += 1;
            return Ok(number);
        }
        let (socket, place) = self.claim(key, if rule.is_shared { names::GROUP_MAX } else { 1 })?;
        let number = state.number();
        self.epoll.add(&socket, libc::EPOLLIN, Token::Rule(number).pack()).map_err(|_| RuleError::Full)?;
        state.names.insert(number, Name { socket, key, place, rules: 1, is_shared: rule.is_shared });
        state.named.insert(key, number);
        Ok(number)
    }

    /// One rule less needs a name. The last one gives it up.
    fn unname(&self, state: &mut State, number: u64) {
        let Some(name) = state.names.get_mut(&number) else { return };
        name.rules -= 1;
        if name.rules == 0
            && let Some(name) = state.names.remove(&number)
        {
            state.named.remove(&name.key);
            self.discard(name.socket);
        }
    }

    /// Takes the name, or another one of its group's.
    fn claim(&self, key: Key, places: usize) -> Result<(Fd, usize), RuleError> {
        let (uid, whose) = (self.member.uid, self.member.whose());
        let (name, places): (Box<dyn Fn(usize) -> String>, _) = match key {
            Key::Address(protocol, local) => (Box::new(move |place| names::rule_at(whose, protocol, local, place)), places),
            Key::Socket(cookie) => (Box::new(move |_| names::socket(uid, cookie)), 1),
        };
        for place in 0..places {
            let socket = sys::unix_socket(libc::SOCK_SEQPACKET).map_err(|_| RuleError::Full)?;
            match sys::listen_abstract(&socket, &name(place), BACKLOG) {
                Ok(()) => return Ok((socket, place)),
                Err(e) if e.raw_os_error() == Some(libc::EADDRINUSE) => {}
                Err(_) => return Err(RuleError::Full),
            }
        }
        Err(RuleError::Taken)
    }

    /// Takes a rule back. Unknown rules are ignored.
    pub fn withdraw(&self, rule: RuleId) {
        let mut state = self.lock();
        if let Some(Published { rule, name, place }) = state.rules.remove(&rule.0) {
            state.table.remove(&*self.member.segment, &rule, place);
            self.unname(&mut state, name);
        }
    }

    /// The descriptor that is readable when [`Rendezvous::service`] has work.
    pub fn epoll_fd(&self) -> RawFd {
        self.epoll.raw()
    }

    /// Does what is there to do: greets those who connect, notices who is gone, answers control requests. Never waits; a
    /// connector that stops in the middle holds up nobody. For the progress thread, but any thread may.
    pub fn service(&self) {
        serve::service(self);
    }

    /// Sets who answers control requests.
    pub fn set_control_handler(&self, handler: ControlHandler) {
        *self.handler.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(handler));
    }

    /// The name of the control socket, for [`ringway_host::members::query`].
    pub fn member_name(&self) -> String {
        self.name.clone()
    }

    /// The connected members, this one's channel to itself included.
    pub fn peers(&self) -> Vec<PeerInfo> {
        let info = |entry: &Entry| PeerInfo {
            pid: entry.link.pid,
            mac: entry.link.mac,
            id: entry.link.peer.id,
            frames_copied: entry.link.copied.load(core::sync::atomic::Ordering::Relaxed),
        };
        self.lock().links.iter().flatten().filter(|entry| entry.link.is_alive()).map(info).collect()
    }

    /// Where the member is talked to that an address means, while it lives.
    pub fn member_at(&self, mac: MacAddr) -> Option<MemberRef> {
        let state = self.lock();
        let entry = state.links.get(crate::member::slot_of(mac))?.as_ref()?;
        (entry.link.mac == mac && entry.link.is_alive()).then(|| MemberRef::of(entry.link.peer.id, entry.link.who, entry.link.pid))
    }

    /// To be called in a fork's child, before anything else: closes the child's copies of all descriptors, so that peers can
    /// see the parent end. The child has none of the mappings; device, rendezvous and handles that it inherited can only be
    /// forgotten or dropped. Takes no lock and allocates nothing.
    pub fn after_fork_in_child(&self) {
        self.member.set_forked();
        fd::close_all_in_child();
    }

    /// Ends membership: peers see this member gone, its names vanish.
    pub(crate) fn leave(&self) {
        if self.member.is_forked() {
            return;
        }
        let mut state = self.lock();
        state.has_left = true;
        if let Some(control) = &self.control {
            self.epoll.remove(control);
        }
        for entry in state.links.drain(..).flatten() {
            entry.link.alive.store(false, core::sync::atomic::Ordering::Relaxed);
            if let Some(socket) = entry.socket {
                self.hang_up(&socket);
            }
        }
        // Peers look here before they hear of the end: what is theirs to find must not be who has left, while another has the address too.
        let State { rules, table, .. } = &mut *state;
        for (_, Published { rule, place, .. }) in rules.drain() {
            table.remove(&*self.member.segment, &rule, place);
        }
        let names = state.names.drain().map(|(_, name)| name.socket).collect::<Vec<_>>();
        let incoming = state.incoming.drain(..).map(|incoming| incoming.socket).collect::<Vec<_>>();
        let clients = state.clients.drain(..).map(|client| client.socket).collect::<Vec<_>>();
        let dialogues = state.dialogues.drain();
        for socket in names.into_iter().chain(incoming).chain(clients).chain(dialogues) {
            self.discard(socket);
        }
        state.deferred.clear();
        state.pause = serve::Pause::default();
        state.spare = None;
        state.by_id.clear();
        // Notices hold links, and links hold the member, which holds notices.
        self.member.take_notices();
        drop(state);
        self.settled.notify_all();
    }

    fn lock(&self) -> Held<'_> {
        Held::new(&self.state)
    }

    /// Closes a socket that may be in the epoll instance.
    fn discard(&self, socket: Fd) {
        self.epoll.remove(&socket);
    }
}

impl fmt::Debug for Rendezvous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rendezvous").field("name", &self.name).finish_non_exhaustive()
    }
}
