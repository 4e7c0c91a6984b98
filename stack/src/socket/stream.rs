//! Connections: one flow, in one ring, which may become another's.

use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;

use super::Env;
use super::choice::Direction;
use super::migrate::{Home, Stranger};
use super::routes::{Way, way};
use super::state::{Bound, Socket, State};
use crate::device::Protocol;
use crate::error::Error;
use crate::mutants::Mutant;
use crate::net::Query;
use crate::ring::{FlowId, RecvFlags, SendFlags};
use crate::tcp;
use crate::time::Instant;

/// After how long it is tried again to give a connection a ring, where none had room for it.
const TRY_AGAIN: Duration = Duration::from_millis(1);

/// A connection's flow, and who uses it.
#[derive(Debug)]
pub struct Stream {
    /// What it was bound to before it was connected.
    pub(super) bound: SocketAddr,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) home: Home,
    pub(super) stranger: Stranger,
    /// How often it went over to another ring.
    pub(super) migrations: u64,
}

impl Stream {
    pub(super) fn at(flow: FlowId, bound: SocketAddr, local: SocketAddr, remote: SocketAddr) -> Self {
        Self { bound, local, remote, home: Home::Ring(flow), stranger: Stranger::default(), migrations: 0 }
    }

    pub(super) fn flows(&self) -> &[FlowId] {
        match &self.home {
            Home::Ring(flow) => core::slice::from_ref(flow),
            Home::Between { .. } => &[],
        }
    }

    /// Our address.
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// The peer's.
    pub const fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// How often it went over to another ring.
    pub const fn migrations(&self) -> u64 {
        self.migrations
    }

    pub(super) fn try_again_at(&self, now: Instant) -> Option<Instant> {
        matches!(self.home, Home::Between { .. }).then(|| now + TRY_AGAIN)
    }
}

impl Socket {
    /// Opens a connection, or gives a datagram socket its peer.
    ///
    /// # Errors
    /// [`Error::InProgress`]: the handshake has begun, and the socket is writable once it is over; [`Error::Already`]: it had; [`Error::AlreadyConnected`];
    /// [`Error::HostUnreachable`]: no ring, and no kernel, leads there; why an earlier attempt failed; a ring's.
    pub fn connect(&mut self, env: &mut Env<'_>, remote: SocketAddr) -> Result<(), Error> {
        self.settle(env);
        match &self.state {
            State::Fresh | State::Bound(_) if self.setup.protocol == Protocol::Tcp => self.open_stream(env, remote),
            // (What is sent and received before bind(2) goes by a port of the kernel's choice.)
            State::Fresh => {
                let any = if remote.is_ipv4() { SocketAddr::from(([0; 4], 0)) } else { SocketAddr::from(([0; 16], 0)) };
                self.bind(env, any)?;
                self.connect(env, remote)
            }
            State::Datagram(_) => self.set_peer(env, Some(remote)),
            State::Connecting(_) => self.connect_again(env, remote),
            State::Connected(_) | State::Listening(_) => Err(Error::AlreadyConnected),
            State::Kernel => self.beside.as_mut().ok_or(Error::BadSocket)?.part.connect(remote),
            State::Bound(_) | State::Closed => Err(Error::BadSocket),
        }
    }

    /// The attempt before may be under way, or have failed: then that is said once, here or by whatever call asked first.
    fn connect_again(&mut self, env: &mut Env<'_>, remote: SocketAddr) -> Result<(), Error> {
        if let Some(error) = self.take_error(env) {
            return Err(error);
        }
        let State::Connecting(stream) = &self.state else { return Err(Error::BadSocket) };
        let state = stream.flows().first().and_then(|flow| env.rings.at(flow.ring)?.info(*flow)?.state);
        if !matches!(state, None | Some(tcp::State::Closed)) {
            return Err(Error::Already);
        }
        self.give_up_attempt(env);
        self.open_stream(env, remote)
    }

    fn open_stream(&mut self, env: &mut Env<'_>, remote: SocketAddr) -> Result<(), Error> {
        let any = if remote.is_ipv4() { SocketAddr::from(([0; 4], 0)) } else { SocketAddr::from(([0; 16], 0)) };
        let mut bound = if let State::Bound(Bound { local }) = self.state { local } else { any };
        let query = Query { destination: remote.ip(), destination_port: remote.port(), ..self.setup.query(bound) };
        // (What only the kernel can route is the kernel's; it also says why nothing leads there.)
        // (So is what would leave by one link from the address of another: the answers would not come to the ring that has the flow.)
        let is_its = |way: &Way| env.tables.owner(way.source) == Some(way.link);
        let found = way(env.tables, &query).ok().filter(is_its).and_then(|way| {
            let place = self.setup.allocation.home(self.id, way.source, env.caller);
            Some((way, env.choice.ring(way.link, place)?))
        });
        let Some((way, number)) = found else {
            let beside = self.beside.as_mut().ok_or(Error::HostUnreachable)?;
            let connected = beside.part.connect(remote);
            self.state = State::Kernel;
            return connected;
        };
        if bound.port() == 0 {
            bound = self.beside.as_mut().ok_or(Error::AddressNotAvailable)?.part.bind(bound)?;
            self.state = State::Bound(Bound { local: bound });
        }
        let local = SocketAddr::new(way.source, bound.port());
        let ring = env.rings.at(number).ok_or(Error::HostUnreachable)?;
        let flow = ring.connect(env.now, local, remote, way.hop, &self.setup.tcp)?;
        self.state = State::Connecting(Stream::at(flow, bound, local, remote));
        Err(Error::InProgress)
    }

    /// Writes to a connection.
    ///
    /// # Errors
    /// The ring's; [`Error::WouldBlock`] also between two rings.
    pub fn send(&mut self, env: &mut Env<'_>, data: &[IoSlice<'_>], flags: SendFlags) -> Result<usize, Error> {
        if let Some(result) = self.kernel_sends(data, None) {
            return result;
        }
        let flow = self.used_flow(env, Direction::Tx)?;
        env.rings.at(flow.ring).ok_or(Error::BadSocket)?.send(env.now, flow, data, flags)
    }

    /// Reads from a connection; `Ok(0)` with room in `into` is the end of the stream.
    ///
    /// # Errors
    /// The ring's; [`Error::WouldBlock`] also between two rings.
    pub fn recv(&mut self, env: &mut Env<'_>, into: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<usize, Error> {
        if let (State::Kernel, Some(beside)) = (&self.state, &mut self.beside) {
            return beside.part.recv(into, flags).map(|received| received.copied);
        }
        let flow = self.used_flow(env, Direction::Rx)?;
        env.rings.at(flow.ring).ok_or(Error::BadSocket)?.recv(env.now, flow, into, flags)
    }

    pub(super) fn kernel_sends(&mut self, data: &[IoSlice<'_>], to: Option<SocketAddr>) -> Option<Result<usize, Error>> {
        match (&self.state, &mut self.beside) {
            (State::Kernel, Some(beside)) => Some(beside.part.send(data, to)),
            _ => None,
        }
    }

    /// The flow that a call on a connection is for: in the caller's ring, if it has used it alone for long enough.
    fn used_flow(&mut self, env: &mut Env<'_>, direction: Direction) -> Result<FlowId, Error> {
        self.settle(env);
        if matches!(self.state, State::Connected(_)) {
            self.note_use(env, direction);
        }
        match &self.state {
            State::Connecting(stream) | State::Connected(stream) => stream.flows().first().copied().ok_or(Error::WouldBlock),
            State::Listening(_) | State::Fresh | State::Bound(_) => Err(Error::NotConnected),
            State::Datagram(_) => Err(Error::NotSupported),
            State::Kernel | State::Closed => Err(Error::BadSocket),
        }
    }

    /// Goes on with what could not be done before: a handshake that is over by now, a connection that found no room in a ring. Every call on the socket
    /// does it first; its owner also at [`Socket::next_deadline`], and when its flow has an event.
    pub fn settle(&mut self, env: &mut Env<'_>) {
        match &mut self.state {
            State::Connected(stream) => {
                stream.land(env);
            }
            State::Connecting(stream) => {
                let Some(&flow) = stream.flows().first() else { return };
                let state = env.rings.at(flow.ring).and_then(|ring| ring.info(flow)?.state);
                use tcp::State as Tcp;
                if matches!(state, None | Some(Tcp::SynSent | Tcp::SynReceived | Tcp::Closed)) && !env.choice.is(Mutant::AttemptIsSuccess) {
                    return;
                }
                let State::Connecting(stream) = core::mem::replace(&mut self.state, State::Closed) else { return };
                self.state = State::Connected(stream);
            }
            _ => {}
        }
    }
}
