//! What a socket is: one enum says what state it is in, and which flows it has then.

use std::net::{IpAddr, SocketAddr};

use super::choice::{Allocation, Spread};
use super::datagram::Datagrams;
use super::kernel::{Beside, Kernel};
use super::listen::Listener;
use super::stream::Stream;
use super::{Env, FlowRing, Rings, merge};
use crate::device::Protocol;
use crate::error::Error;
use crate::flow::Readiness;
use crate::mutants::Mutant;
use crate::net::{LinkId, Query};
use crate::ring::{FlowId, Shutdown, UdpOptions};
use crate::tcp;
use crate::time::Instant;

/// Names a socket among its owner's; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u64);

/// What a program has set of a socket, as far as it concerns this layer.
#[derive(Clone, Debug)]
pub struct Setup {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Of a stream, or of what a listener accepts.
    pub tcp: tcp::Config,
    /// Of a datagram socket.
    pub udp: UdpOptions,
    /// Which rings its flows are on.
    pub allocation: Allocation,
    /// In how many of them a listener or datagram socket is.
    pub spread: Spread,
    /// The link that it is bound to (SO_BINDTODEVICE).
    pub link: Option<LinkId>,
    /// SO_MARK.
    pub mark: u32,
    /// Its owner.
    pub uid: u32,
}

impl Setup {
    /// With everything else as it is by default.
    pub fn new(protocol: Protocol) -> Self {
        Self {
            protocol,
            tcp: tcp::Config::default(),
            udp: UdpOptions::default(),
            allocation: Allocation::default(),
            spread: Spread::default(),
            link: None,
            mark: 0,
            uid: 0,
        }
    }

    /// What is to be asked of the tables; the destination is yet to be filled in.
    pub(super) fn query(&self, local: SocketAddr) -> Query {
        let (tos, protocol) = match self.protocol {
            Protocol::Tcp => (self.tcp.tos, 6),
            Protocol::Udp => (self.udp.tos, 17),
        };
        let source = Some(local.ip()).filter(|ip| !ip.is_unspecified() && !ip.is_multicast());
        let (link, mark, uid, source_port) = (self.link, self.mark, self.uid, local.port());
        Query { source, link, tos, mark, uid, protocol, source_port, ..Query::to(local.ip()) }
    }
}

/// A TCP socket that has an address, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// It.
    pub local: SocketAddr,
}

/// What state a socket is in.
#[derive(Debug)]
pub enum State {
    /// It has nothing.
    Fresh,
    /// TCP: it has an address.
    Bound(Bound),
    /// It accepts connections, from each of its flows.
    Listening(Listener),
    /// Its handshake is under way, or has failed, and nobody has asked yet.
    Connecting(Stream),
    /// It is one end of a connection, perhaps of one that has ended.
    Connected(Stream),
    /// UDP: it has an address, and perhaps a peer.
    Datagram(Datagrams),
    /// No ring serves it: all calls are the kernel's.
    Kernel,
    /// It has nothing any more.
    Closed,
}

/// A socket.
pub struct Socket {
    pub(super) id: SocketId,
    pub(super) setup: Setup,
    pub(super) state: State,
    pub(super) beside: Option<Beside>,
}

impl core::fmt::Debug for Socket {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Socket").field("id", &self.id).field("state", &self.state).finish_non_exhaustive()
    }
}

impl Socket {
    /// A fresh one. `kernel`: the kernel's socket beside it, where there is one. Without, it is up to the owner that no two sockets bind one address.
    pub fn new(id: SocketId, setup: Setup, kernel: Option<Box<dyn Kernel>>) -> Self {
        Self { id, setup, state: State::Fresh, beside: kernel.map(Beside::new) }
    }

    /// Its name.
    pub const fn id(&self) -> SocketId {
        self.id
    }

    /// What state it is in.
    pub const fn state(&self) -> &State {
        &self.state
    }

    /// What the program has set of it.
    pub const fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Its flows, in whatever ring. (A connection that is between two rings has none.)
    pub fn flows(&self) -> &[FlowId] {
        match &self.state {
            State::Listening(listener) => &listener.flows,
            State::Connecting(stream) | State::Connected(stream) => stream.flows(),
            State::Datagram(datagrams) => &datagrams.flows,
            State::Fresh | State::Bound(_) | State::Kernel | State::Closed => &[],
        }
    }

    /// Its own address, as far as it has one.
    pub fn local(&self) -> Option<SocketAddr> {
        match &self.state {
            State::Bound(bound) => Some(bound.local),
            State::Listening(listener) => Some(listener.local),
            State::Connecting(stream) | State::Connected(stream) => Some(stream.local),
            State::Datagram(datagrams) => Some(datagrams.local()),
            State::Fresh | State::Kernel | State::Closed => None,
        }
    }

    /// Gives it an address. A datagram socket receives from now on.
    ///
    /// # Errors
    /// [`Error::Invalid`]: it has one, or the port is not given and there is no kernel to choose one; [`Error::AddressInUse`],
    /// [`Error::NoBuffers`], [`Error::NotSupported`]: a ring's; [`Error::AddressNotAvailable`]: no link has it.
    pub fn bind(&mut self, env: &mut Env<'_>, local: SocketAddr) -> Result<SocketAddr, Error> {
        if !matches!(self.state, State::Fresh) {
            return Err(Error::Invalid);
        }
        let local = match &mut self.beside {
            Some(beside) => beside.part.bind(local)?,
            None if local.port() == 0 => return Err(Error::Invalid),
            None => local,
        };
        self.state = match self.setup.protocol {
            Protocol::Tcp => State::Bound(Bound { local }),
            Protocol::Udp => match self.open_datagrams(env, local) {
                Ok(datagrams) => State::Datagram(datagrams),
                Err(_) if self.beside.is_some() => State::Kernel,
                Err(error) => return Err(error),
            },
        };
        Ok(local)
    }

    /// What can be done with it without blocking.
    pub fn readiness(&self, rings: &mut dyn Rings, choice: &super::Choice) -> Readiness {
        match &self.state {
            // (As Linux says of a stream without a peer.)
            State::Fresh if self.setup.protocol == Protocol::Udp => Readiness::OUT,
            State::Fresh | State::Bound(_) => Readiness::OUT | Readiness::HUP,
            State::Closed => Readiness::ERR | Readiness::HUP,
            // (Between two rings it is ready for nothing.)
            State::Connected(stream) if stream.flows().is_empty() => Readiness::empty(),
            State::Connecting(_) | State::Connected(_) => merge::readiness(rings, self.flows(), None, choice.mutation()),
            State::Listening(_) | State::Datagram(_) | State::Kernel => {
                merge::readiness(rings, self.flows(), self.beside.as_ref(), choice.mutation())
            }
        }
    }

    /// Takes its pending error (SO_ERROR). A connection attempt that failed is over then: the socket can be connected again.
    pub fn take_error(&mut self, env: &mut Env<'_>) -> Option<Error> {
        if let (State::Kernel, Some(beside)) = (&self.state, &mut self.beside) {
            return beside.part.take_error();
        }
        let flows = self.flows().to_vec();
        let error = flows.iter().find_map(|flow| env.rings.at(flow.ring)?.take_error(*flow))?;
        self.give_up_attempt(env);
        Some(error)
    }

    /// A connection attempt has failed: it has its address, and nothing else.
    pub(super) fn give_up_attempt(&mut self, env: &mut Env<'_>) {
        if let State::Connecting(stream) = &self.state {
            let local = stream.bound;
            self.close_flows(env, false);
            self.state = State::Bound(Bound { local });
        }
    }

    /// Ends one or both directions.
    ///
    /// # Errors
    /// [`Error::NotConnected`] and the ring's.
    pub fn shutdown(&mut self, env: &mut Env<'_>, how: Shutdown) -> Result<(), Error> {
        self.settle(env);
        match &self.state {
            State::Connecting(_) | State::Connected(_) | State::Datagram(_) => {}
            State::Kernel => return self.beside.as_mut().ok_or(Error::BadSocket)?.part.shutdown(how),
            State::Listening(_) => return Err(Error::NotSupported),
            State::Fresh | State::Bound(_) => return Err(Error::NotConnected),
            State::Closed => return Err(Error::BadSocket),
        }
        if self.flows().is_empty() {
            return Err(Error::WouldBlock);
        }
        let mut result = Ok(());
        for flow in self.flows().to_vec() {
            if let Some(ring) = env.rings.at(flow.ring) {
                result = ring.shutdown(env.now, flow, how);
            }
        }
        result
    }

    /// Gives it up, with all its flows and the kernel's part. `abort`: a connection ends by a reset.
    pub fn close(&mut self, env: &mut Env<'_>, abort: bool) {
        // (A connection that finds no room in a ring even now is dropped with its state.)
        self.settle(env);
        self.close_flows(env, abort);
        if let Some(mut beside) = self.beside.take() {
            beside.part.close();
        }
        env.choice.release(super::Place::Socket(self.id));
        self.state = State::Closed;
    }

    /// When [`Socket::settle`] is to be called at the latest. `None`: whenever it is used.
    pub fn next_deadline(&self, now: Instant) -> Option<Instant> {
        match &self.state {
            State::Connected(stream) => stream.try_again_at(now),
            _ => None,
        }
    }

    fn close_flows(&self, env: &mut Env<'_>, abort: bool) {
        for flow in self.flows() {
            if let Some(ring) = env.rings.at(flow.ring) {
                ring.close(env.now, *flow, abort);
            }
            if env.choice.is(Mutant::CloseLeavesFlows) {
                break;
            }
        }
    }

    /// Opens a flow in each ring that what is for `local` may come to; all of them, or none. What opens one is told whether it shares its address with
    /// other rings of its device.
    pub(super) fn open_everywhere(
        &self,
        env: &mut Env<'_>,
        local: IpAddr,
        mut open: impl FnMut(&mut dyn FlowRing, bool) -> Result<FlowId, Error>,
    ) -> Result<Vec<FlowId>, Error> {
        let mut flows: Vec<FlowId> = Vec::new();
        for link in self.links_of(env, local) {
            let rings: Vec<u16> = match self.setup.spread {
                Spread::Every => env.choice.rings_of(link).collect(),
                Spread::One => {
                    let place = self.setup.allocation.home(self.id, local, env.caller);
                    env.choice.ring(link, place).into_iter().collect()
                }
            };
            let is_shared = rings.len() > 1;
            for number in rings {
                let Some(ring) = env.rings.at(number) else { continue };
                match open(ring, is_shared) {
                    Ok(flow) => flows.push(flow),
                    Err(error) => {
                        if !env.choice.is(Mutant::FailedOpenLeavesFlows) {
                            close_all(env, &flows);
                        }
                        return Err(error);
                    }
                }
            }
        }
        if flows.is_empty() { Err(Error::AddressNotAvailable) } else { Ok(flows) }
    }

    /// The links with rings that what is for `local` may come by.
    fn links_of(&self, env: &Env<'_>, local: IpAddr) -> Vec<LinkId> {
        let mut links = env.choice.links();
        links.retain(|link| self.setup.link.is_none_or(|only| only == *link));
        if !local.is_unspecified() && !local.is_multicast() {
            let owner = env.tables.owner(local);
            links.retain(|link| Some(*link) == owner);
        }
        links
    }
}

fn close_all(env: &mut Env<'_>, flows: &[FlowId]) {
    for flow in flows {
        if let Some(ring) = env.rings.at(flow.ring) {
            ring.close(env.now, *flow, false);
        }
    }
}
