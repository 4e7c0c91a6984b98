//! What the checkers know of one ring of a host: its sockets as its programs see them.

use core::hash::BuildHasherDefault;
use core::time::Duration;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::rc::Rc;

use hashbrown::HashMap;
use ringway_stack::Instant;
use ringway_stack::ring::{FlowId, Readiness, UdpOptions};
use ringway_stack::tcp::{self, Keepalive};

use super::datagrams::Datagram;
use super::flow::{Flows, Tuple, TupleHasher};
use super::{closing, edges, groups, hearing, loans, rto, sharing, window};

/// A socket.
#[derive(Debug, Default)]
pub(super) struct Sock {
    /// A connection's addresses.
    pub(super) tuple: Option<Tuple>,
    /// Its endpoint, once its SYN was seen; and one that had its addresses before.
    pub(super) endpoint: Option<usize>,
    pub(super) before: Option<usize>,
    pub(super) keepalive: Option<Keepalive>,
    pub(super) closed: Option<closing::Closed>,
    /// The program heard of an error, or ended reading itself: the end of the stream says nothing.
    pub(super) end_excused: bool,
    pub(super) waiting: Option<rto::Waiting>,
    pub(super) edges: edges::State,
    /// When the program got it, and how many connections it accepted from it.
    pub(super) since: Instant,
    pub(super) accepted: u64,
    /// What its program holds by reference, and what a UDP socket makes of that.
    pub(super) loans: loans::State,
    /// The most that its receive buffer may ever hold.
    pub(super) receive_max: usize,
    /// A connection's or a listener's configuration.
    pub(super) config: Option<Rc<tcp::Config>>,
    /// It was another one: connections that it accepts may have begun with either.
    pub(super) reconfigured: bool,
    /// What a program wrote before its connection's SYN was seen.
    pub(super) early: Vec<u8>,
    /// It was accepted before its SYN-ACK was seen: what its program did by then is not known.
    pub(super) is_unseen: bool,
    /// Datagrams without a checksum that arrived for it and are to be heard: when, and how often that datagram is to be read by then.
    pub(super) unsummed: Vec<(Instant, Datagram, u32)>,
    /// How many datagrams had found no room at the end of the last service.
    pub(super) drops_before: u64,
    /// What came for a UDP socket.
    pub(super) hearing: hearing::State,
    pub(super) touched: bool,
    /// Edges of the events of this poll.
    pub(super) raised: Readiness,
}

impl Sock {
    /// How much arrived in all, by what its program read or accepted, and what `waits` for it.
    pub(super) fn arrivals(&self, flows: &Flows, waits: usize) -> u64 {
        let taken = match self.endpoint {
            Some(id) => flows.at(id).stream.taken(),
            None => self.accepted + self.loans.taken_bytes(),
        };
        taken + waits as u64
    }

    /// One of this configuration.
    pub(super) fn configured(config: &tcp::Config) -> Self {
        Self {
            keepalive: config.keepalive,
            receive_max: window::receive_max(config),
            config: Some(Rc::new(config.clone())),
            ..Self::default()
        }
    }
}

/// The sockets of a ring. Slots are few and are used again, so that the slot's number finds the socket at once; those that are gone for their ring, and still
/// remembered when their slots have others, stand apart.
#[derive(Debug, Default)]
pub(super) struct Socks {
    slots: Vec<Option<(u32, Box<Sock>)>>,
    gone: Vec<(FlowId, Box<Sock>)>,
}

impl Socks {
    pub(super) fn get(&self, socket: &FlowId) -> Option<&Sock> {
        match self.slots.get(socket.index as usize) {
            Some(Some((generation, sock))) if *generation == socket.generation => Some(sock),
            _ => self.gone.iter().find(|(gone, _)| gone == socket).map(|(_, sock)| &**sock),
        }
    }

    pub(super) fn get_mut(&mut self, socket: &FlowId) -> Option<&mut Sock> {
        match self.slots.get_mut(socket.index as usize) {
            Some(Some((generation, sock))) if *generation == socket.generation => Some(sock),
            _ => self.gone.iter_mut().find(|(gone, _)| gone == socket).map(|(_, sock)| &mut **sock),
        }
    }

    /// One that is new.
    pub(super) fn insert(&mut self, socket: FlowId, sock: Sock) {
        let (at, generation) = (socket.index as usize, socket.generation);
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || None);
        }
        if let Some((before, sock)) = self.slots[at].replace((generation, Box::new(sock)))
            && before != generation
        {
            self.gone.push((FlowId { generation: before, ..socket }, sock));
        }
    }

    pub(super) fn remove(&mut self, socket: &FlowId) -> Option<Sock> {
        let slot = self.slots.get_mut(socket.index as usize);
        if let Some((_, sock)) = slot.and_then(|slot| slot.take_if(|(generation, _)| *generation == socket.generation)) {
            return Some(*sock);
        }
        let at = self.gone.iter().position(|(gone, _)| gone == socket)?;
        Some(*self.gone.swap_remove(at).1)
    }

    /// Keeps those of which this is true.
    pub(super) fn retain(&mut self, is_kept: impl Fn(FlowId) -> bool) {
        for (slot, index) in self.slots.iter_mut().zip(0..) {
            slot.take_if(|&mut (generation, _)| !is_kept(FlowId { ring: 0, index, generation }));
        }
        self.gone.retain(|&(socket, _)| is_kept(socket));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (FlowId, &Sock)> + '_ {
        let named =
            |(slot, index): (&'_ Option<(u32, Box<Sock>)>, u32)| slot.as_ref().map(|slot| FlowId { ring: 0, index, generation: slot.0 });
        let slots = self.slots.iter().zip(0..).filter_map(named).chain(self.gone.iter().map(|&(socket, _)| socket));
        slots.filter_map(|socket| Some((socket, self.get(&socket)?)))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Sock> + '_ {
        let slots = self.slots.iter_mut().flatten().map(|(_, sock)| &mut **sock);
        slots.chain(self.gone.iter_mut().map(|(_, sock)| &mut **sock))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.slots.iter().all(Option::is_none)
    }
}

/// A ring of a host. What is looked at for every frame comes first, and lies together.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct RingState {
    pub(super) host: usize,
    pub(super) ip: Option<IpAddr>,
    /// A program's calls are not seen.
    pub(super) unseen: bool,
    /// A program beside the stack takes frames from that NIC, too.
    pub(super) raw: bool,
    /// Its host's Ethernet address changed: what still comes for the old one is dropped.
    pub(super) readdressed: bool,
    /// Its receive buffers were short at a poll since the last service, and its device refuses frames.
    pub(super) scarce: bool,
    pub(super) refused: bool,
    /// After which service it began to, if it does; and when the last service was.
    pub(super) refused_since: Option<Instant>,
    pub(super) serviced_at: Instant,
    /// It ever did, or threw frames away.
    pub(super) balked: bool,
    /// When its NIC last had no receive buffer for a frame, by the world's clock.
    pub(super) overrun_at: Instant,
    /// It has thrown frames away since strangers were looked at last.
    pub(super) dropped: bool,
    /// Its NIC may merge segments; each of its rings has a MAC address of its own.
    pub(super) merges: bool,
    pub(super) mac_per_ring: bool,
    /// When it was serviced last, by its own clock; and by how much that is ahead of the world's.
    pub(super) now: Instant,
    pub(super) ahead: Duration,
    /// When it last had a reason to be late: a neighbour had to be asked for, or its clock jumped.
    pub(super) excused: Instant,
    /// Until when it was paused, or its device in trouble: frames may wait, and timers find themselves overdue.
    pub(super) hampered: Instant,
    /// When that began.
    pub(super) hampered_since: Instant,
    /// Sockets to look at after this service; and those of UDP among them.
    pub(super) touched: Vec<FlowId>,
    pub(super) hearers: Vec<FlowId>,
    pub(super) sockets: Socks,
    /// Listeners (`true`) and UDP sockets by port.
    pub(super) bound: HashMap<(bool, u16), sharing::Port, BuildHasherDefault<TupleHasher>>,
    /// When which endpoint must have done something.
    pub(super) agenda: BTreeSet<(Instant, usize)>,
    /// When which closed socket must be gone.
    pub(super) closing: BTreeSet<(Instant, FlowId)>,
    /// Connections in TIME-WAIT, which take turns at being looked at.
    pub(super) waiting: Vec<FlowId>,
    pub(super) turn: usize,
    pub(super) time_wait: Duration,
    /// How many frames it has thrown away because its device refused them.
    pub(super) tx_drops: u64,
    /// The longest packet that its NIC carries.
    pub(super) mtu: usize,
    /// The pieces that its NIC gathers into a frame, and how long each is that is full.
    pub(super) gathers: (u32, u32),
    /// ICMP errors that arrived about what no socket is known to have sent.
    pub(super) errors_under_way: ErrorsUnderWay,
    /// What its UDP sockets are members of.
    pub(super) groups: groups::Groups,
}

impl RingState {
    /// The options of a port's UDP sockets.
    pub(super) fn options_of(&self, port: u16) -> impl Iterator<Item = UdpOptions> + Clone + '_ {
        let port = self.bound.get(&(false, port));
        let sockets = (0..).map_while(move |at| port?.socket(at));
        sockets.filter_map(|socket| self.sockets.get(&socket)?.hearing.options)
    }

    /// How many connections that began with bytes may be under way, by what the listeners of a port were told.
    pub(super) fn early_max(&self, port: u16) -> usize {
        let port = self.bound.get(&(true, port));
        let listeners = (0..).map_while(|at| port?.socket(at));
        listeners.filter_map(|socket| Some(self.sockets.get(&socket)?.config.as_ref()?.fast_open.under_way_max)).sum()
    }

    /// Looks at a socket after this service.
    pub(super) fn touch(&mut self, socket: FlowId) {
        if let Some(sock) = self.sockets.get_mut(&socket)
            && !sock.touched
        {
            sock.touched = true;
            self.touched.push(socket);
            if sock.hearing.options.is_some() {
                self.hearers.push(socket);
            }
        }
    }
}

/// ICMP errors that are on their way through a device, at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ErrorsUnderWay {
    /// Since the moment of the last poll, and before it.
    new: u32,
    old: u32,
    polled_at: Instant,
}

impl ErrorsUnderWay {
    pub(super) fn came(&mut self) {
        self.new += 1;
    }

    pub(super) fn count(&self) -> u32 {
        self.new + self.old
    }

    /// The ring was polled: what came before the moment of the last poll is out of the device.
    pub(super) fn polled(&mut self, at: Instant) {
        if at > self.polled_at {
            (self.new, self.old, self.polled_at) = (0, self.new, at);
        }
    }
}
