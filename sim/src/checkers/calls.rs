//! Socket calls, as programs make them.

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4};

use ringway_stack::ring::{self, RecvFlags, Ring, Shutdown, SocketId};
use ringway_stack::tcp::{Keepalive, State};
use ringway_stack::{Error, Instant};

use super::closing::{Closed, RESET_BOUND};
use super::datagrams::Datagram;
use super::desk::Sock;
use super::flow::Tuple;
use super::{Checkers, Moment, after_close, closing, rto, stream};
use crate::device::SimDevice;

type R = Ring<SimDevice>;

impl Checkers {
    fn call(&mut self, host: usize, now: Instant) -> Moment {
        self.desks[host].now = now;
        self.moment(host, None)
    }

    /// After a call: how the socket stands, so that what the call itself changed is nobody's edge.
    fn looked(&mut self, host: usize, ring: &R, socket: SocketId) {
        let Some(sock) = self.desks[host].sockets.get_mut(&socket) else { return };
        if let Some(info) = ring.info(socket).filter(|_| sock.closed.is_none()) {
            sock.edges.looked(ring.readiness(socket), &info);
        }
        self.desks[host].touch(socket);
    }

    fn refuse_closed(&self, moment: &Moment, socket: SocketId, call: &str, succeeded: bool) {
        let closed = self.desks[moment.host].sockets.get(&socket).is_some_and(|sock| sock.closed.is_some());
        if closed && succeeded {
            after_close::used(moment, call);
        }
    }

    /// The endpoint of a socket, once its SYN was seen.
    pub(super) fn endpoint(&mut self, host: usize, socket: SocketId) -> Option<usize> {
        let now = self.desks[host].now;
        let sock = self.desks[host].sockets.get_mut(&socket)?;
        if sock.endpoint.is_none() {
            let id = self.flows.id(sock.tuple?).filter(|&id| sock.before != Some(id) && self.flows.at(id).host == host)?;
            sock.endpoint = Some(id);
            let endpoint = self.flows.at_mut(id);
            endpoint.owner = Some(socket);
            endpoint.stream.watch();
            endpoint.timers.set_keepalive(now, sock.keepalive);
        }
        sock.endpoint
    }

    /// A connection was begun.
    pub(crate) fn connected(&mut self, host: usize, now: Instant, ring: &R, tuple: Tuple, keepalive: Option<Keepalive>, socket: SocketId) {
        let moment = self.call(host, now);
        let before = self.flows.id(tuple);
        let old = before.map(|id| self.flows.at(id)).filter(|old| old.host == host);
        let waits = |owner: &SocketId| self.desks[host].sockets.get(owner).is_some_and(|sock| sock.waiting.is_some());
        if let Some(old) = old
            && old.owner.as_ref().is_some_and(waits)
        {
            let peer = old.peer.map(|peer| self.flows.at(peer).syn);
            rto::reused(&moment, old.syn.timestamps.is_some() && peer.is_none_or(|syn| syn.timestamps.is_some()));
            // It is lawful, and the end of that wait.
            if let Some(sock) = old.owner.and_then(|owner| self.desks[host].sockets.get_mut(&owner)) {
                sock.waiting = None;
            }
        }
        self.desks[host].sockets.insert(socket, Sock { tuple: Some(tuple), before, keepalive, ..Sock::default() });
        self.looked(host, ring, socket);
    }

    /// A listener or a UDP socket was opened.
    pub(crate) fn opened(&mut self, host: usize, ring: &R, listener: bool, port: u16, keepalive: Option<Keepalive>, socket: SocketId) {
        let desk = &mut self.desks[host];
        desk.bound.insert((listener, port), socket);
        desk.sockets.insert(socket, Sock { keepalive, ..Sock::default() });
        self.looked(host, ring, socket);
    }

    /// A connection was accepted.
    pub(crate) fn accepted(&mut self, host: usize, ring: &R, listener: SocketId, socket: SocketId) {
        let moment = self.moment(host, None);
        self.refuse_closed(&moment, listener, "accept", true);
        let keepalive = self.desks[host].sockets.get(&listener).and_then(|sock| sock.keepalive);
        let tuple = ring.info(socket).and_then(|info| Some((info.local, info.remote?)));
        self.desks[host].sockets.insert(socket, Sock { tuple, keepalive, ..Sock::default() });
        self.endpoint(host, socket);
        self.looked(host, ring, socket);
        self.looked(host, ring, listener);
    }

    /// Keepalive was set, perhaps.
    pub(crate) fn configured(&mut self, host: usize, now: Instant, ring: &R, socket: SocketId, keepalive: Option<Keepalive>) {
        let moment = self.call(host, now);
        self.refuse_closed(&moment, socket, "configure", true);
        let endpoint = self.endpoint(host, socket);
        if let Some(sock) = self.desks[host].sockets.get_mut(&socket) {
            sock.keepalive = keepalive;
        }
        if let Some(id) = endpoint {
            self.flows.at_mut(id).timers.set_keepalive(now, keepalive);
        }
        self.looked(host, ring, socket);
    }

    /// A stream was written to.
    pub(crate) fn wrote(
        &mut self,
        host: usize,
        now: Instant,
        ring: &R,
        socket: SocketId,
        data: &[IoSlice<'_>],
        result: Result<usize, Error>,
    ) {
        let moment = self.call(host, now);
        self.refuse_closed(&moment, socket, "send", result.is_ok());
        let endpoint = self.endpoint(host, socket);
        if let (Ok(len), Some(id)) = (result, endpoint) {
            self.flows.at_mut(id).stream.write(data, len);
        }
        self.note_error(host, socket, result.err());
        self.looked(host, ring, socket);
    }

    /// A stream was read from.
    #[expect(clippy::too_many_arguments, reason = "a call's arguments and its result, as they are")]
    pub(crate) fn read(
        &mut self,
        host: usize,
        now: Instant,
        ring: &R,
        socket: SocketId,
        into: &[IoSliceMut<'_>],
        flags: RecvFlags,
        result: Result<usize, Error>,
    ) {
        let moment = self.call(host, now);
        self.refuse_closed(&moment, socket, "recv", result.is_ok());
        let endpoint = self.endpoint(host, socket);
        let excused = self.desks[host].sockets.get(&socket).is_none_or(|sock| sock.end_excused);
        if let (Ok(len), Some(id)) = (result, endpoint) {
            self.flows.pair(id);
            let (own, peer) = self.flows.both(id);
            let room = into.iter().any(|slice| !slice.is_empty());
            if len > 0 {
                stream::read(&moment, own, peer, into.iter().map(|slice| &slice[..]), len, flags.contains(RecvFlags::PEEK));
            } else if let Some(peer) = peer
                && room
                && !excused
            {
                stream::ended(&moment, own, peer);
            }
        }
        self.note_error(host, socket, result.err());
        self.looked(host, ring, socket);
    }

    /// An error that a program heard of explains whatever end follows.
    fn note_error(&mut self, host: usize, socket: SocketId, error: Option<Error>) {
        if let Some(error) = error
            && !matches!(error, Error::WouldBlock | Error::NoBuffers)
            && let Some(sock) = self.desks[host].sockets.get_mut(&socket)
        {
            sock.end_excused = true;
        }
    }

    /// A program took a socket's error.
    pub(crate) fn took_error(&mut self, host: usize, ring: &R, socket: SocketId, error: Option<Error>) {
        self.note_error(host, socket, error);
        self.looked(host, ring, socket);
    }

    /// A direction, or both, was ended.
    pub(crate) fn shut(&mut self, host: usize, now: Instant, ring: &R, socket: SocketId, how: Shutdown, result: Result<(), Error>) {
        let moment = self.call(host, now);
        self.refuse_closed(&moment, socket, "shutdown", result.is_ok());
        let endpoint = self.endpoint(host, socket);
        if result.is_ok() {
            if let Some(sock) = self.desks[host].sockets.get_mut(&socket) {
                sock.end_excused |= how != Shutdown::Write;
            }
            if let (Some(id), true) = (endpoint, how != Shutdown::Read) {
                self.flows.at_mut(id).stream.end();
            }
        }
        self.looked(host, ring, socket);
    }

    /// A socket is about to be closed.
    pub(crate) fn closes(&mut self, host: usize, now: Instant, ring: &R, socket: SocketId, abort: bool) {
        self.call(host, now);
        let Some(info) = ring.info(socket) else { return };
        let endpoint = self.endpoint(host, socket);
        let healed_at = self.healed_at.map(|at| at + self.desks[host].ahead);
        let desk = &mut self.desks[host];
        let Some(sock) = desk.sockets.get_mut(&socket).filter(|sock| sock.closed.is_none()) else { return };
        let Some(state) = info.state.filter(|&state| state != State::Listen) else {
            desk.sockets.remove(&socket);
            desk.bound.remove(&(info.state.is_some(), info.local.port()));
            return;
        };
        let known = !matches!(state, State::Closed | State::SynSent | State::TimeWait);
        let unread = info.recv_queue > 0;
        sock.closed = Some(Closed { at: now, reset_due: known && abort && endpoint.is_some() });
        if abort {
            desk.closing.insert((now + RESET_BOUND, socket));
        }
        desk.closing.insert((now.max(healed_at.unwrap_or(now)) + closing::BOUND, socket));
        if let Some(id) = endpoint.filter(|_| !abort && !unread) {
            self.flows.at_mut(id).stream.end();
        }
    }

    /// It is closed.
    pub(crate) fn closed(&mut self, host: usize, socket: SocketId) {
        self.desks[host].touch(socket);
    }

    /// A datagram was sent.
    #[expect(clippy::too_many_arguments, reason = "a call's arguments, as they are")]
    pub(crate) fn udp_sent(
        &mut self,
        host: usize,
        now: Instant,
        ring: &R,
        socket: SocketId,
        data: &[IoSlice<'_>],
        source: Ipv4Addr,
        to: Option<SocketAddrV4>,
    ) {
        self.call(host, now);
        let Some(info) = ring.info(socket) else { return };
        let from = if info.local.ip().is_unspecified() { SocketAddrV4::new(source, info.local.port()) } else { info.local };
        if let Some(to) = to.or(info.remote) {
            self.datagrams.written(from, to, data);
        }
        self.looked(host, ring, socket);
    }

    /// A datagram was read.
    pub(crate) fn udp_read(
        &mut self,
        host: usize,
        ring: &R,
        socket: SocketId,
        into: &[IoSliceMut<'_>],
        flags: RecvFlags,
        result: Result<ring::Datagram, Error>,
    ) {
        let moment = self.moment(host, None);
        self.refuse_closed(&moment, socket, "recv", result.is_ok());
        // What was cut off for lack of room can't be compared.
        if let (Ok(read), Some(info)) = (result, ring.info(socket))
            && read.copied == read.len
        {
            let to = SocketAddrV4::new(read.to, info.local.port());
            let datagram = match into {
                [one] => Datagram::new(read.from, to, &one[..read.len]),
                several => {
                    let mut bytes: Vec<u8> = several.iter().flat_map(|slice| slice.iter().copied()).collect();
                    bytes.truncate(read.len);
                    Datagram::new(read.from, to, &bytes)
                }
            };
            self.datagrams.read(&moment, socket, datagram, flags.contains(RecvFlags::PEEK));
        }
        self.looked(host, ring, socket);
    }
}
