//! The table of stream sockets: names, listening, accepting, connecting, closing. Datagrams' sockets need a UDP socket beside them, and stand by themselves
//! ([`super::Datagrams`]).
//!
//! - `connections`: what connection management says
//! - `calls`: what programs do with one socket
//! - `table`: sockets by their names

mod calls;
mod connections;
mod table;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use self::table::Table;
use super::config::{Host, Settings};
use super::options::Options;
use super::stream::Stream;
use crate::device::messages::{ConnectionId, Connections, Messages, Pd};
use crate::error::Error;
use crate::roce::Flaw;
use crate::time::{Instant, earlier};

const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A socket's name. None is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketId(u64);

#[derive(Debug)]
struct Socket {
    options: Options,
    /// Its own name, as far as it is known.
    local: SocketAddr,
    kind: Kind,
}

impl Socket {
    /// When its stream's timer is due, if it has one.
    const fn deadline(&self) -> Option<Instant> {
        match &self.kind {
            Kind::Stream(connected) => connected.stream.deadline(),
            Kind::Fresh | Kind::Listener(_) => None,
        }
    }
}

#[derive(Debug)]
enum Kind {
    /// Neither listens nor is connected.
    Fresh,
    Listener(Listener),
    Stream(Box<Connected>),
}

#[derive(Debug)]
struct Listener {
    backlog: usize,
    /// Connections that nobody has accepted yet; some of them were not heard of yet.
    waiting: VecDeque<SocketId>,
}

#[derive(Debug)]
struct Connected {
    stream: Stream,
    connection: Option<ConnectionId>,
    remote: SocketAddr,
}

/// A stream that its program has let go of.
#[derive(Debug)]
struct Closing {
    connected: Box<Connected>,
    /// Until when it waits for what it sent to arrive.
    until: Instant,
}

/// All stream sockets of a process on one device.
#[derive(Debug)]
pub struct Sockets {
    settings: Settings,
    host: Host,
    pd: Pd,
    sockets: Table,
    by_connection: BTreeMap<ConnectionId, SocketId>,
    closing: BTreeMap<SocketId, Closing>,
    /// Those that listen.
    listening: BTreeSet<SocketId>,
    /// Connections that wait for all of these to be accepted.
    unaccepted: usize,
    /// When to look at streams' timers: no later than the first of them.
    timer: Option<Instant>,
    next_id: u64,
}

impl Sockets {
    /// Without sockets.
    pub fn new<D: Messages>(device: &mut D, settings: Settings, host: Host) -> Self {
        let pd = device.alloc_pd();
        let (sockets, by_connection, closing) = (Table::default(), BTreeMap::new(), BTreeMap::new());
        Self { settings, host, pd, sockets, by_connection, closing, listening: BTreeSet::new(), unaccepted: 0, timer: None, next_id: 0 }
    }

    /// What holds for all of them.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A new socket.
    pub fn socket(&mut self) -> SocketId {
        let options = Options::new(self.settings.sizes);
        self.insert(Socket { options, local: ANY, kind: Kind::Fresh })
    }

    fn insert(&mut self, socket: Socket) -> SocketId {
        let id = SocketId(self.next_id);
        self.next_id += 1;
        self.sockets.push(id, socket);
        id
    }

    fn get(&self, id: SocketId) -> Result<&Socket, Error> {
        self.sockets.get(id).ok_or(Error::BadSocket)
    }

    #[inline(always)]
    fn get_mut(&mut self, id: SocketId) -> Result<&mut Socket, Error> {
        self.sockets.get_mut(id).ok_or(Error::BadSocket)
    }

    /// The stream of a socket that has one.
    #[inline(always)]
    fn stream(&mut self, id: SocketId) -> Result<&mut Stream, Error> {
        match &mut self.get_mut(id)?.kind {
            Kind::Stream(connected) => Ok(&mut connected.stream),
            Kind::Fresh | Kind::Listener(_) => Err(Error::NotConnected),
        }
    }

    /// Takes what happened to connections, and looks after sockets that their programs have let go of. To be called whenever packets came, or completions.
    pub fn poll<D: Connections>(&mut self, now: Instant, device: &mut D) {
        while let Some((connection, event)) = device.poll_connection() {
            self.on_connection(now, device, connection, event);
        }
        if self.unaccepted > 0 {
            self.look_for_first_messages(now, device);
        }
        if !self.closing.is_empty() {
            self.finish_closing(now, device);
        }
    }

    /// When [`Sockets::on_timer`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        if self.closing.is_empty() {
            return self.timer;
        }
        self.closing.values().map(|closing| Some(closing.until)).fold(self.timer, earlier)
    }

    /// A stream may have a timer that it had not.
    fn has_timer(&mut self, at: Option<Instant>) {
        self.timer = earlier(self.timer, at);
    }

    /// Does what is due.
    pub fn on_timer<D: Connections>(&mut self, now: Instant, device: &mut D) {
        if self.timer.is_some_and(|at| at <= now) {
            self.timer = None;
            for (_, socket) in self.sockets.iter_mut() {
                if let Kind::Stream(connected) = &mut socket.kind {
                    connected.stream.on_timer(now, device);
                    self.timer = earlier(self.timer, connected.stream.deadline());
                }
            }
        }
        self.finish_closing(now, device);
    }

    /// What there is to say of a stream; `None`: it is a listener, or was never connected.
    pub fn info(&self, id: SocketId) -> Option<super::StreamInfo> {
        match &self.sockets.get(id)?.kind {
            Kind::Stream(connected) => Some(connected.stream.info()),
            Kind::Fresh | Kind::Listener(_) => None,
        }
    }

    /// Of a listener: how many connections wait to be accepted, and how many may.
    pub fn backlog_of(&self, id: SocketId) -> Option<(usize, usize)> {
        match &self.sockets.get(id)?.kind {
            Kind::Listener(listener) => Some((listener.waiting.len(), listener.backlog)),
            Kind::Fresh | Kind::Stream(_) => None,
        }
    }

    /// A stream, as long as there is anything of it.
    #[cfg(test)]
    pub(super) fn stream_of(&self, id: SocketId) -> Option<&Stream> {
        let open = self.sockets.get(id).and_then(|socket| if let Kind::Stream(connected) = &socket.kind { Some(connected) } else { None });
        open.map(|connected| &connected.stream).or_else(|| self.closing.get(&id).map(|closing| &closing.connected.stream))
    }

    /// Holds each stream's counts against what there is.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let closing = self.closing.values().map(|closing| &closing.connected);
        let open =
            self.sockets.values().filter_map(|socket| if let Kind::Stream(connected) = &socket.kind { Some(connected) } else { None });
        closing.chain(open).for_each(|connected| connected.stream.check());
    }

    /// How many sockets their programs have let go of, and are not done.
    pub fn closing(&self) -> usize {
        self.closing.len()
    }

    /// Ends all connections at once, without a word to anybody's program, as the end of a process does. Its sockets are gone.
    pub fn abort_all<D: Connections>(&mut self, now: Instant, device: &mut D) {
        (self.timer, self.listening, self.unaccepted) = (None, BTreeSet::new(), 0);
        let closing = core::mem::take(&mut self.closing).into_values().map(|closing| closing.connected);
        let mut all: Vec<_> = closing.collect();
        for socket in self.sockets.take_all() {
            match socket.kind {
                Kind::Fresh => {}
                Kind::Listener(_) => device.unlisten(socket.local.port()),
                Kind::Stream(connected) => all.push(connected),
            }
        }
        for connected in all {
            self.unmake(now, device, connected);
        }
    }

    /// Unmakes streams that were let go of, once what they sent has arrived or cannot any more, or the time is up.
    fn finish_closing<D: Connections>(&mut self, now: Instant, device: &mut D) {
        let mut done = Vec::new();
        for (id, closing) in &mut self.closing {
            let stream = &mut closing.connected.stream;
            stream.poll(now, device);
            if stream.is_drained() || closing.until <= now || self.host.has(Flaw::ClosesAtOnce) {
                done.push(*id);
            }
        }
        for id in done {
            if let Some(closing) = self.closing.remove(&id) {
                self.unmake(now, device, closing.connected);
            }
        }
    }

    /// Ends a connection, and all that it had.
    fn unmake<D: Connections>(&mut self, now: Instant, device: &mut D, mut connected: Box<Connected>) {
        if let Some(connection) = connected.connection {
            self.by_connection.remove(&connection);
            if !self.host.has(Flaw::EndsUntold) {
                device.destroy(now, connection);
            }
        }
        connected.stream.destroy(device);
    }
}
