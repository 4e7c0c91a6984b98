//! Datagram sockets: a flow in each ring that datagrams may come to, one queue of them for the program, and one way out for each destination.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};

use super::Env;
use super::choice::{Direction, Spread};
use super::homes::Homes;
use super::merge::{self, Source};
use super::migrate::Stranger;
use super::routes::{Routes, Way};
use super::state::{Setup, Socket, SocketId, State};
use crate::error::Error;
use crate::mutants::Mutant;
use crate::net::{LinkId, Query, Unroutable};
use crate::ring::{Datagram, FlowId, NextHop, RecvFlags, Reuse, UdpOptions};

/// A datagram socket's flows, destinations and memberships.
#[derive(Debug)]
pub struct Datagrams {
    /// What it is bound to.
    bound: SocketAddr,
    pub(super) flows: Vec<FlowId>,
    /// Where it is, if it is in one ring of each link.
    pub(super) homes: Homes,
    /// Its peer, and the address that it has for it.
    peer: Option<(SocketAddr, IpAddr)>,
    routes: Routes,
    /// Which of a link's flows sends.
    senders: Vec<Sender>,
    memberships: Vec<(IpAddr, FlowId)>,
}

#[derive(Debug)]
struct Sender {
    link: LinkId,
    flow: FlowId,
    stranger: Stranger,
}

impl Datagrams {
    /// Its address: with a peer, the one that it has for that.
    pub fn local(&self) -> SocketAddr {
        self.peer.map_or(self.bound, |(_, source)| SocketAddr::new(source, self.bound.port()))
    }

    /// Its peer.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer.map(|(remote, _)| remote)
    }

    /// How often it went over to another ring.
    pub const fn migrations(&self) -> u64 {
        self.homes.migrations
    }

    /// How its destinations are reached.
    pub const fn routes(&self) -> &Routes {
        &self.routes
    }

    fn way(&mut self, env: &Env<'_>, setup: &Setup, to: SocketAddr) -> Result<Way, Unroutable> {
        let query = setup.query(self.local());
        self.routes.way_of(env.tables, to, &query, env.choice.mutation())
    }

    /// The flow that sends over a link: the caller's ring's, if the socket has one there, and if that caller has sent for long enough.
    fn sender(&mut self, env: &mut Env<'_>, setup: &Setup, id: SocketId, link: LinkId) -> Option<FlowId> {
        let on_link = |flow: &&FlowId| env.choice.link_of(flow.ring) == Some(link);
        let mut flows = self.flows.iter().filter(on_link).filter(|&&flow| !self.homes.is_former(flow));
        let &first = flows.next()?;
        if flows.next().is_none() {
            return Some(first);
        }
        let place = setup.allocation.place(Direction::Tx, id, self.bound.ip(), env.caller);
        let sender = self.senders.iter_mut().find(|sender| sender.link == link);
        let ring = match (&sender, env.choice.known(link, place)) {
            (Some(sender), known) if known == Some(sender.flow.ring) => None,
            (_, known) => known.or_else(|| env.choice.ring(link, place)),
        };
        let own = ring.and_then(|ring| self.flows.iter().find(|flow| flow.ring == ring)).copied();
        let Some(sender) = sender else {
            let flow = own.unwrap_or(first);
            self.senders.push(Sender { link, flow, stranger: Stranger::default() });
            return Some(flow);
        };
        match own {
            None => sender.stranger.forget(),
            Some(own) => {
                if env.choice.ratio(Direction::Tx).is_some_and(|ratio| sender.stranger.calls(place, ratio)) {
                    (sender.flow, sender.stranger) = (own, Stranger::default());
                }
            }
        }
        Some(sender.flow)
    }
}

impl Socket {
    pub(super) fn open_datagrams(&self, env: &mut Env<'_>, bound: SocketAddr) -> Result<Datagrams, Error> {
        let options = self.setup.udp;
        let flows = self.open_everywhere(env, bound.ip(), |ring, is_shared| {
            ring.open(bound, &UdpOptions { reuse: if is_shared { Reuse::Port } else { options.reuse }, ..options })
        })?;
        let homes = if self.setup.spread == Spread::One { Homes::new(&flows, env.choice) } else { Homes::default() };
        let (routes, senders, memberships) = (Routes::default(), Vec::new(), Vec::new());
        Ok(Datagrams { bound, flows, homes, peer: None, routes, senders, memberships })
    }

    /// Gives it a peer, or none: datagrams of others are not received, and its address is the one by which the peer is reached.
    ///
    /// # Errors
    /// [`Error::HostUnreachable`]: nothing leads there; a ring's, and all is as before; [`Error::NotSupported`]: it is no datagram socket.
    pub fn set_peer(&mut self, env: &mut Env<'_>, remote: Option<SocketAddr>) -> Result<(), Error> {
        let State::Datagram(datagrams) = &mut self.state else { return Err(Error::NotSupported) };
        let before = datagrams.peer.take();
        datagrams.routes.forget();
        let peer = match remote.map(|remote| (remote, datagrams.way(env, &self.setup, remote))) {
            None => None,
            Some((remote, Ok(way))) => Some((remote, way.source)),
            Some((_, Err(_))) => {
                datagrams.peer = before;
                return Err(Error::HostUnreachable);
            }
        };
        // (What waits in a ring that it has left came before.)
        datagrams.homes.close_formers(env, &mut datagrams.flows);
        for at in 0..datagrams.flows.len() {
            if datagrams.homes.is_former(datagrams.flows[at]) {
                continue;
            }
            if let Err(error) = give_peer(env, datagrams.flows[at], peer, datagrams.bound) {
                for &flow in datagrams.flows[..at].iter().filter(|flow| !datagrams.homes.is_former(**flow)) {
                    let _ = give_peer(env, flow, before, datagrams.bound);
                }
                datagrams.peer = before;
                return Err(error);
            }
        }
        datagrams.peer = peer;
        // (What was asked before it had an address of its own.)
        datagrams.routes.forget();
        Ok(())
    }

    /// Sends a datagram: over the link, from the address and to the neighbour that the tables say now, or by the kernel where no ring leads there.
    ///
    /// # Errors
    /// [`Error::DestinationRequired`]: it has no peer, and none is named; [`Error::HostUnreachable`] (and [`Error::AddressNotAvailable`],
    /// [`Error::Invalid`]: as [`Unroutable`] has it): nothing leads there; a ring's.
    pub fn send_to(&mut self, env: &mut Env<'_>, data: &[IoSlice<'_>], to: Option<SocketAddr>) -> Result<usize, Error> {
        if let Some(result) = self.kernel_sends(data, to) {
            return result;
        }
        if let (State::Fresh, Some(to)) = (&self.state, to) {
            let any = if to.is_ipv4() { SocketAddr::from(([0; 4], 0)) } else { SocketAddr::from(([0; 16], 0)) };
            self.bind(env, any)?;
            return self.send_to(env, data, Some(to));
        }
        let State::Datagram(datagrams) = &mut self.state else { return Err(Error::NotSupported) };
        let remote = to.or(datagrams.peer()).ok_or(Error::DestinationRequired)?;
        let way = datagrams.way(env, &self.setup, remote);
        if let Ok(way) = &way {
            let used = (Direction::Tx, Some(way.link));
            let who = (&self.setup, self.id, datagrams.bound.ip());
            datagrams.homes.note_use(env, who, used, &mut datagrams.flows);
        }
        let found = way.ok().and_then(|way| Some((way, datagrams.sender(env, &self.setup, self.id, way.link)?)));
        let Some((way, flow)) = found else {
            return match &mut self.beside {
                Some(beside) => beside.part.send(data, to),
                None => Err(way.err().map_or(Error::HostUnreachable, unroutable)),
            };
        };
        let source = if env.choice.is(Mutant::SourceOfFirstLink) { first_address(env).unwrap_or(way.source) } else { way.source };
        let ring = env.rings.at(flow.ring).ok_or(Error::BadSocket)?;
        ring.send_to(env.now, flow, data, source, Some((remote, way.hop)))
    }

    /// Takes (or peeks at) the datagram that came first, whichever ring has it, or the kernel.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]: there is none; a pending error of one of its flows; [`Error::NotSupported`]: it is no datagram socket.
    pub fn recv_from(&mut self, env: &mut Env<'_>, into: &mut [IoSliceMut<'_>], flags: RecvFlags) -> Result<Datagram, Error> {
        let (mut none, mut ready) = (Vec::new(), Vec::new());
        let (homes, flows) = match &mut self.state {
            State::Datagram(Datagrams { homes, flows, bound, .. }) => {
                homes.note_use(env, (&self.setup, self.id, bound.ip()), (Direction::Rx, None), flows);
                homes.close_formers(env, flows);
                (Some(homes), flows)
            }
            State::Kernel => (None, &mut none),
            State::Closed => return Err(Error::BadSocket),
            _ => return Err(Error::NotSupported),
        };
        let mut turns = &flows[..];
        let homes = homes.filter(|homes| homes.have_formers());
        if let Some(homes) = &homes {
            ready.extend(flows.iter().filter(|&&flow| !homes.waits(env, flow)));
            turns = &ready;
        }
        match merge::next(env.rings, turns, self.beside.as_mut(), env.now, env.choice.mutation()) {
            None => Err(Error::WouldBlock),
            Some(Source::Flow(flow)) => {
                let datagram = env.rings.at(flow.ring).ok_or(Error::BadSocket)?.recv_from(flow, into, flags)?;
                if let Some(homes) = homes.filter(|_| !flags.contains(RecvFlags::PEEK)) {
                    homes.was_read(env, flow, datagram.len);
                    homes.close_formers(env, flows);
                }
                Ok(datagram)
            }
            Some(Source::Kernel) => {
                let beside = self.beside.as_mut().ok_or(Error::BadSocket)?;
                let received = beside.arrived(env.now).unwrap_or(env.now);
                let datagram = beside.part.recv(into, flags);
                if !flags.contains(RecvFlags::PEEK) {
                    beside.taken();
                }
                Ok(Datagram { received, ..datagram? })
            }
        }
    }

    /// Becomes a member of a group, on `link` or on the one that the tables name for it (IP_ADD_MEMBERSHIP). One flow hears it: a device copies a
    /// group's datagrams to each ring that asks. (Where a kernel is beside the device, the ring reports nothing: somebody's socket of the kernel's is a member.)
    ///
    /// # Errors
    /// [`Error::AddressInUse`]: it is one; [`Error::AddressNotAvailable`]: no ring is on that link; a ring's.
    pub fn join(&mut self, env: &mut Env<'_>, group: IpAddr, link: Option<LinkId>) -> Result<(), Error> {
        let State::Datagram(datagrams) = &mut self.state else { return Err(Error::NotSupported) };
        let query = Query { destination: group, link: link.or(self.setup.link), ..self.setup.query(datagrams.local()) };
        let way = super::way(env.tables, &query).map_err(unroutable)?;
        let on_link = |flow: &&FlowId| env.choice.link_of(flow.ring) == Some(way.link);
        let hears = |flow: &&FlowId| !datagrams.homes.is_former(**flow);
        let flow = *datagrams.flows.iter().filter(hears).find(on_link).ok_or(Error::AddressNotAvailable)?;
        if datagrams.memberships.contains(&(group, flow)) {
            return Err(Error::AddressInUse);
        }
        env.rings.at(flow.ring).ok_or(Error::BadSocket)?.join(env.now, flow, group, way.source)?;
        datagrams.memberships.push((group, flow));
        Ok(())
    }

    /// Leaves a group (IP_DROP_MEMBERSHIP), on `link` or on the first on which it is a member.
    ///
    /// # Errors
    /// [`Error::AddressNotAvailable`]: it is no member.
    pub fn leave(&mut self, env: &mut Env<'_>, group: IpAddr, link: Option<LinkId>) -> Result<(), Error> {
        let State::Datagram(datagrams) = &mut self.state else { return Err(Error::NotSupported) };
        let is_it = |(of, flow): &(IpAddr, FlowId)| *of == group && link.is_none_or(|link| env.choice.link_of(flow.ring) == Some(link));
        let at = datagrams.memberships.iter().position(is_it).ok_or(Error::AddressNotAvailable)?;
        let (_, flow) = datagrams.memberships.remove(at);
        env.rings.at(flow.ring).ok_or(Error::BadSocket)?.leave(env.now, flow, group)
    }
}

fn give_peer(env: &mut Env<'_>, flow: FlowId, peer: Option<(SocketAddr, IpAddr)>, bound: SocketAddr) -> Result<(), Error> {
    let source = peer.map_or(bound.ip(), |(_, source)| source);
    // (Where it sends to is said with each datagram.)
    let remote = peer.map(|(remote, _)| (remote, NextHop::Neighbour(remote.ip())));
    env.rings.at(flow.ring).ok_or(Error::BadSocket)?.set_peer(flow, source, remote)
}

/// The address of the first link with a ring.
fn first_address(env: &Env<'_>) -> Option<IpAddr> {
    let link = *env.choice.links().first()?;
    env.tables.addresses_of(link).first().map(|address| address.address)
}

/// Why nothing leads to a destination, where there is no kernel to say so.
const fn unroutable(why: Unroutable) -> Error {
    match why {
        Unroutable::NoSource => Error::AddressNotAvailable,
        Unroutable::Blackhole | Unroutable::InvalidSource | Unroutable::InvalidDestination => Error::Invalid,
        Unroutable::LinkDown => Error::NetworkDown,
        _ => Error::HostUnreachable,
    }
}
