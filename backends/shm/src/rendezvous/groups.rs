//! Listeners that share an address (SO_REUSEPORT, or workers of one parent): who they are, whose turn it is, and how those who connect learn that there
//! is one more.
//!
//! Whoever connects looks for the members of an address by their names, which costs a system call for each place in the group. It does so again
//! when a second has passed, or as soon as the rules are others that the members which it knows have there: each has a stamp. A member that joins
//! has one that is there already give its rule a new stamp: everybody who has looked knows that one, or a rule of another which has gone since.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use ringway_stack::device::Protocol;

use super::hello::{self, Kind};
use super::{Key, Published, Rendezvous, State, names};
use crate::error::ResolveError;
use crate::fd::Fd;
use crate::link::Link;
use crate::rules::{self, Found, wildcard_of};
use crate::sys;

/// How long it is believed that nobody joined or left an address, where nobody says so: one that joins may find the others stopped.
const GROUP_TIME: Duration = Duration::from_secs(1);
/// Addresses whose groups are remembered.
const GROUPS_MAX: usize = 1024;
/// How long a member is waited for that is told of one that joins. (In tests as long as it takes on a busy machine: none is stopped there.)
const JOIN_TIME: Duration = Duration::from_millis(if cfg!(test) { 5000 } else { 20 });

/// When the members of an address were last looked for, and whose turn it is to get a connection.
#[derive(Default)]
pub(super) struct Groups {
    looked: HashMap<SocketAddr, Looked>,
    turn: usize,
    /// Connections to members that were told of a listener of ours: they close them when they have.
    joining: ArrayVec<Fd, 2>,
}

/// A look for an address's members.
struct Looked {
    at: Instant,
    /// Of their rules there: a sum of [`Mark`]s.
    rules: u64,
}

impl Groups {
    /// Whether nobody has looked of late for those of this address, or their rules are others by now.
    fn is_due(&self, to: SocketAddr, rules: u64) -> bool {
        self.looked.get(&to).is_none_or(|looked| looked.rules != rules || looked.at.elapsed() >= GROUP_TIME)
    }

    fn note(&mut self, to: SocketAddr, rules: u64) {
        if self.looked.len() >= GROUPS_MAX {
            self.looked.clear();
        }
        self.looked.insert(to, Looked { at: Instant::now(), rules });
    }
}

/// A member's rules for an address, as a number: others give another one.
#[derive(Clone, Copy)]
struct Mark {
    member: u64,
    rules: u64,
}

impl Mark {
    fn new(member: u64, found: &Found) -> Self {
        let mix = |sum: u64, part: u64| (sum ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        Self { member, rules: [found.exact as u64, found.wildcard as u64, found.stamps].into_iter().fold(member, mix) }
    }
}

fn sum(marks: impl IntoIterator<Item = Mark>) -> u64 {
    marks.into_iter().fold(0, |sum, mark| sum.wrapping_add(mark.rules))
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

impl Rendezvous {
    /// The answer for TCP of which nothing remains to be found out: all in one hold of the lock, for a hold costs two system calls.
    pub(super) fn known(&self, protocol: Protocol, to: SocketAddr) -> Result<Option<Arc<Link>>, ResolveError> {
        let mut state = self.lock();
        if protocol != Protocol::Tcp || state.has_left {
            return Ok(None);
        }
        let (candidates, rules) = self.candidates(&state, protocol, to);
        if candidates.is_empty() || state.groups.is_due(to, rules) {
            return Ok(None);
        }
        let turn = state.groups.turn;
        let link = self.take_turn(&mut state, &candidates)?;
        if self.listeners_are_bound && link.peer.id != self.member.id && !state.bound.is_known(to) {
            // Whose turn it was, it is still.
            state.groups.turn = turn;
            return Ok(None);
        }
        Ok(Some(link))
    }

    /// Looks into our own table and those of connected peers. An exact rule wins over one for every address; of several members with
    /// an equally good one, each has its turn. (A peer that is not connected yet might have an exact rule beside a connected
    /// one's wildcard: TCP's groups have been looked for, and for datagrams the kernel is asked, where it answers.)
    pub(super) fn look_up(&self, protocol: Protocol, to: SocketAddr) -> Result<Option<Arc<Link>>, ResolveError> {
        let mut state = self.lock();
        if state.has_left {
            return Ok(None);
        }
        let (candidates, _) = self.candidates(&state, protocol, to);
        if candidates.is_empty() { Ok(None) } else { self.take_turn(&mut state, &candidates).map(Some) }
    }

    /// Who has the best rules for an address, and the sum of the marks of all that have any.
    fn candidates(&self, state: &State, protocol: Protocol, to: SocketAddr) -> (Candidates, u64) {
        let mine = state.table.find(protocol, to);
        let (mut exact, mut wildcard) = (Candidates::default(), Candidates::default());
        exact.myself = mine.exact;
        wildcard.myself = mine.wildcard;
        let marks = self.marks(state, protocol, to, |link, found| {
            if found.exact > 0 {
                exact.add(link, found.exact);
            } else {
                wildcard.add(link, found.wildcard);
            }
        });
        let rules = sum(marks);
        (if exact.is_empty() { wildcard } else { exact }, rules)
    }

    /// The marks of those who have rules for an address; `each` is told the others.
    fn marks(
        &self,
        state: &State,
        protocol: Protocol,
        to: SocketAddr,
        mut each: impl FnMut(&Arc<Link>, &Found),
    ) -> impl Iterator<Item = Mark> {
        let own = self.member.id;
        let mine = Some(state.table.find(protocol, to)).filter(|mine| mine.exact + mine.wildcard > 0);
        let others = state.links.iter().flatten().filter(move |entry| entry.link.is_alive() && entry.link.peer.id != own);
        let others = others.filter_map(move |entry| {
            let found = rules::find(&entry.link.peer.view, protocol, to);
            (found.exact + found.wildcard > 0).then(|| {
                each(&entry.link, &found);
                Mark::new(entry.link.peer.id, &found)
            })
        });
        mine.map(|mine| Mark::new(own, &mine)).into_iter().chain(others)
    }

    fn take_turn(&self, state: &mut State, candidates: &Candidates) -> Result<Arc<Link>, ResolveError> {
        state.groups.turn = state.groups.turn.wrapping_add(1);
        match candidates.at(state.groups.turn) {
            Some(link) => Ok(link),
            None => self.to_myself(state).map_err(ResolveError::system("channel to itself")),
        }
    }

    /// Whether the members that share an address are to be looked for.
    pub(super) fn group_is_due(&self, to: SocketAddr) -> bool {
        let state = self.lock();
        let rules = sum(self.marks(&state, Protocol::Tcp, to, |_, _| ()));
        state.groups.is_due(to, rules)
    }

    /// Looks for the members that share an address, if that is due: `ask` is told the names. What goes wrong is the matter of whoever asks for one
    /// of them by name.
    pub(super) fn look_for_group(&self, to: SocketAddr, mut ask: impl FnMut(&str)) {
        let before: Vec<Mark> = {
            let mut state = self.lock();
            let marks: Vec<_> = self.marks(&state, Protocol::Tcp, to, |_, _| ()).collect();
            if !state.groups.is_due(to, sum(marks.iter().copied())) {
                return;
            }
            state.groups.note(to, sum(marks.iter().copied()));
            marks
        };
        for address in [to, wildcard_of(to)] {
            for place in 0..names::GROUP_MAX {
                // Workers that ended leave gaps, so every name is tried.
                ask(&names::rule_at(self.member.whose(), Protocol::Tcp, address, place));
            }
        }
        // Those who had rules before may have been told meanwhile of one that joined.
        let mut state = self.lock();
        let found: Vec<_> = self.marks(&state, Protocol::Tcp, to, |_, _| ()).collect();
        let new = found.into_iter().filter(|mark| before.iter().all(|other| other.member != mark.member));
        let rules = sum(before.iter().copied().chain(new));
        state.groups.note(to, rules);
    }

    /// A listener of ours is at an address that others may share: one of those who have it is told, and one of those who have its port on every
    /// address. Never waits: see [`Rendezvous::await_joined`].
    pub(super) fn tell_joined(&self, state: &mut State, local: SocketAddr) {
        state.groups.joining.clear();
        let key = Key::Address(Protocol::Tcp, local);
        let own_place = state.named.get(&key).and_then(|number| state.names.get(number)).map(|name| name.place);
        let others = self.tell_one(local, (0..names::GROUP_MAX).filter(|&place| Some(place) != own_place));
        let wildcard = wildcard_of(local);
        let everywhere = if wildcard == local { None } else { self.tell_one(wildcard, 0..names::GROUP_MAX) };
        state.groups.joining.extend(others.into_iter().chain(everywhere));
    }

    /// Tells the first who has one of those places and takes what it is told.
    fn tell_one(&self, address: SocketAddr, places: impl Iterator<Item = usize>) -> Option<Fd> {
        // (Refused, it is as new.)
        let mut socket = sys::unix_socket(libc::SOCK_SEQPACKET).ok()?;
        for place in places {
            if sys::connect_abstract(&socket, &names::rule_at(self.member.whose(), Protocol::Tcp, address, place)).is_ok() {
                if hello::send(&socket, Kind::Joined, self.member.id, &[]).is_ok() {
                    return Some(socket);
                }
                socket = sys::unix_socket(libc::SOCK_SEQPACKET).ok()?;
            }
        }
        None
    }

    /// Waits, for a short time, until those know who have an address already where this member published a rule last: from then on, whoever connects to
    /// it finds this member too.
    pub fn await_joined(&self) {
        let joining = core::mem::take(&mut self.lock().groups.joining);
        let deadline = Instant::now() + JOIN_TIME.min(self.timeout);
        for socket in joining {
            let left = deadline.saturating_duration_since(Instant::now());
            // (What comes before the end is the greeting.)
            let _ = sys::wait_for(&socket, libc::POLLRDHUP, left);
        }
    }

    /// Somebody has joined whoever has that name.
    pub(super) fn note_joined(&self, state: &mut State, name: Option<u64>) {
        let State { rules, table, .. } = state;
        if let Some(Published { rule, place, .. }) = rules.values().find(|published| Some(published.name) == name)
            && rule.protocol == Protocol::Tcp
        {
            table.stamp(&*self.member.segment, rule, *place);
        }
    }
}
