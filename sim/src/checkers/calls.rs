//! Socket calls, as programs make them.

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use ringway_stack::device::Queues as _;
use ringway_stack::ring::{self, FlowId, RecvFlags, Reuse, Ring, SendFlags, Shutdown, UdpOptions};
use ringway_stack::tcp::{self, State::SynReceived};
use ringway_stack::{Error, Instant};

use super::closing::{Closed, RESET_BOUND};
use super::datagrams::Datagram;
use super::flow::{Endpoint, Tuple};
use super::ring_state::Sock;
use super::{Checkers, Moment, after_close, closing, forged, hearing, loans, moves, rto, shadow, stream, timers, window};
use crate::nic::SimQueues;
use crate::reached::State;
use crate::sockets::{gather, readiness};

type R = Ring<SimQueues>;

impl Checkers {
    fn call(&mut self, place: usize, now: Instant) -> Moment {
        self.ring_states[place].now = now;
        self.moment(place, None)
    }

    /// After a call: how the socket stands, so that what the call itself changed is nobody's edge.
    pub(super) fn looked(&mut self, place: usize, ring: &R, socket: FlowId) {
        let Some(sock) = self.ring_states[place].sockets.get_mut(&socket) else { return };
        if let Some(info) = ring.info(socket).filter(|_| sock.closed.is_none()) {
            sock.edges.looked(readiness(ring, socket), sock.arrivals(&self.flows, info.recv_queue));
            sock.loans.looked(&info, loans::dropped_bytes(ring, socket));
        }
        self.ring_states[place].touch(socket);
    }

    fn refuse_closed(&self, moment: &Moment, socket: FlowId, call: &str, succeeded: bool) {
        let closed = self.ring_states[moment.place].sockets.get(&socket).is_some_and(|sock| sock.closed.is_some());
        if closed && succeeded {
            after_close::used(moment, call);
        }
    }

    /// The endpoint of a socket, once its SYN was seen.
    pub(super) fn endpoint(&mut self, place: usize, socket: FlowId) -> Option<usize> {
        let host = self.ring_states[place].host;
        let sock = self.ring_states[place].sockets.get_mut(&socket)?;
        if sock.endpoint.is_none() {
            let id = self.flows.id(sock.tuple?).filter(|&id| sock.before != Some(id) && self.flows.at(id).host == host)?;
            self.owned(place, socket, id);
            return Some(id);
        }
        sock.endpoint
    }

    /// A socket is found to have this endpoint.
    fn owned(&mut self, place: usize, socket: FlowId, id: usize) {
        let now = self.ring_states[place].now;
        let Some(sock) = self.ring_states[place].sockets.get_mut(&socket) else { return };
        sock.endpoint = Some(id);
        let endpoint = self.flows.at_mut(id);
        endpoint.owner = Some((place, socket));
        if sock.is_unseen {
            endpoint.stream.mistake();
        }
        endpoint.stream.watch();
        let early = core::mem::take(&mut sock.early);
        endpoint.stream.write(&[IoSlice::new(&early)], early.len());
        endpoint.window.allow(sock.receive_max);
        if sock.is_unseen {
            // (Nor how much it has read by now.)
            endpoint.window.forget_reader();
        }
        endpoint.timers.set_keepalive(now, sock.keepalive);
        endpoint.shadow.config = sock.config.clone();
        endpoint.shadow.reconfigured |= sock.reconfigured;
        self.flows.pair(id);
        let moment = self.moment(place, None);
        let mtu = self.ring_states[place].mtu;
        let (own, peer) = self.flows.both(id);
        shadow::format::configured(&moment, own, peer.map(|peer| &*peer), mtu);
    }

    /// A program calls a ring unseen.
    pub(crate) fn unseen(&mut self, place: usize) {
        self.ring_states[place].unseen = true;
    }

    /// A connection was begun.
    pub(crate) fn connected(&mut self, place: usize, now: Instant, ring: &R, tuple: Tuple, config: &tcp::Config, socket: FlowId) {
        let moment = self.call(place, now);
        let before = self.flows.id(tuple);
        let host = self.ring_states[place].host;
        let old = before.map(|id| self.flows.at(id)).filter(|old| old.host == host);
        // What has waited long enough may be gone already, unseen: not every service looks at every one that waits.
        let waiting = |&(at, owner): &(usize, FlowId)| self.ring_states[at].sockets.get(&owner).and_then(|sock| sock.waiting);
        if let Some(old) = old
            && let Some(waiting) = old.owner.as_ref().and_then(waiting).filter(|waiting| waiting.lasts(moment.at))
        {
            let peer = old.peer.map(|peer| self.flows.at(peer).syn);
            // A SYN or RST that came in this very service may have ended the wait, as for the law of its length.
            if !old.disturbed {
                rto::reused(&moment, waiting, old.syn.timestamps.is_some() && peer.is_none_or(|syn| syn.timestamps.is_some()));
            }
            // It is lawful, and the end of that wait; what the checkers know of the old connection will soon be another's.
            if let Some(sock) = old.owner.and_then(|(at, owner)| self.ring_states[at].sockets.get_mut(&owner)) {
                sock.waiting = None;
            }
        }
        // Until its SYN is out, what it answers to what is left of one before it cannot be told from that one's.
        if let Some(old) = before {
            let old = self.flows.at_mut(old);
            (old.left_at, old.followed) = (None, old.host == host);
        }
        self.begun.insert(tuple);
        self.ring_states[place].sockets.insert(socket, Sock { tuple: Some(tuple), before, ..Sock::configured(config) });
        self.looked(place, ring, socket);
    }

    /// The same, and the program wrote `data` with it.
    pub(crate) fn wrote_early(&mut self, place: usize, socket: FlowId, data: &[u8]) {
        if let Some(sock) = self.ring_states[place].sockets.get_mut(&socket) {
            sock.early.extend_from_slice(data);
        }
    }

    /// A listener was opened.
    pub(crate) fn listens(&mut self, place: usize, ring: &R, port: u16, config: &tcp::Config, socket: FlowId) {
        let reuse = if config.reuse_port { Reuse::Port } else { Reuse::No };
        self.opened(place, ring, (true, port), Sock::configured(config), reuse, socket);
    }

    /// A UDP socket was opened.
    pub(crate) fn udp_opened(&mut self, place: usize, ring: &R, port: u16, options: &UdpOptions, lends: bool, socket: FlowId) {
        let hearing = hearing::State::open(*options, lends, self.ring_states[place].now, ring.queues().rx_ready());
        let sock = Sock { receive_max: options.rcvbuf, hearing, ..Sock::default() };
        self.rebound(place, ring, port);
        self.opened(place, ring, (false, port), sock, options.reuse, socket);
    }

    /// A UDP socket found its peer, or lost it.
    pub(crate) fn udp_connected(&mut self, place: usize, ring: &R, socket: FlowId) {
        if let Some(info) = ring.info(socket) {
            self.rebound(place, ring, info.local.port());
        }
        let ring_state = &mut self.ring_states[place];
        if let Some(sock) = ring_state.sockets.get_mut(&socket) {
            sock.hearing.connected(ring_state.errors_under_way.count());
        }
        if let Some(port) = ring.info(socket).and_then(|info| ring_state.bound.get_mut(&(false, info.local.port()))) {
            port.reconnected(ring_state.now, ring, socket);
        }
        if let Some(info) = ring.info(socket) {
            self.note_bound(place, (false, info.local.port()));
        }
        self.looked(place, ring, socket);
    }

    /// The UDP sockets of a port are about to be others.
    fn rebound(&mut self, place: usize, ring: &R, port: u16) {
        let ring_state = &mut self.ring_states[place];
        let (now, under_way) = (ring_state.now, ring.queues().rx_ready());
        let mut at = 0;
        while let Some(socket) = ring_state.bound.get(&(false, port)).and_then(|port| port.socket(at)) {
            if let Some(sock) = ring_state.sockets.get_mut(&socket) {
                if under_way {
                    sock.hearing.inherits(now);
                } else {
                    sock.hearing.rebound();
                }
            }
            at += 1;
        }
    }

    fn opened(&mut self, place: usize, ring: &R, bound: (bool, u16), sock: Sock, reuse: Reuse, socket: FlowId) {
        let ring_state = &mut self.ring_states[place];
        if bound.0 {
            self.opened_at.insert((ring_state.host, bound.1), ring_state.now);
        }
        ring_state.bound.entry(bound).or_default().add(ring_state.now, ring, socket, reuse);
        ring_state.sockets.insert(socket, sock);
        self.note_bound(place, bound);
        self.looked(place, ring, socket);
    }

    /// A connection was accepted.
    pub(crate) fn accepted(&mut self, place: usize, ring: &R, listener: FlowId, socket: FlowId) {
        let moment = self.moment(place, None);
        self.refuse_closed(&moment, listener, "accept", true);
        let parent = self.ring_states[place].sockets.get(&listener);
        let (keepalive, receive_max) = parent.map_or((None, 0), |sock| (sock.keepalive, sock.receive_max));
        let (config, reconfigured) = parent.map_or((None, false), |sock| (sock.config.clone(), sock.reconfigured));
        let tuple = ring.info(socket).and_then(|info| Some((info.local, info.remote?)));
        let since = self.ring_states[place].now;
        let is_early = ring.info(socket).is_some_and(|info| info.state == Some(SynReceived));
        let endpoint = tuple.filter(|_| !is_early).and_then(|tuple| self.flows.accepted(tuple, moment.host));
        // (Its SYN-ACK may have yet to go: then what has its addresses is another's.)
        let before = tuple.filter(|_| is_early).and_then(|tuple| self.flows.id(tuple)).filter(|&id| !self.flows.may_be_early(id));
        let is_unseen = is_early && tuple.and_then(|tuple| self.flows.id(tuple)) == before;
        let sock = Sock { tuple, keepalive, receive_max, config, reconfigured, since, before, is_unseen, ..Sock::default() };
        self.ring_states[place].sockets.insert(socket, sock);
        if let Some(id) = endpoint {
            self.owned(place, socket, id);
        }
        if let Some(parent) = self.ring_states[place].sockets.get_mut(&listener) {
            parent.accepted += 1;
        }
        let began_at = self.endpoint(place, socket).map(|id| self.flows.at(id).began_at);
        if let Some((local, client)) = tuple
            && let Some(port) = self.ring_states[place].bound.get_mut(&(true, local.port()))
        {
            port.accepted(&moment, ring, listener, (client, began_at));
            self.note_accepted(moment.host, local.port());
        }
        self.looked(place, ring, socket);
        self.looked(place, ring, listener);
    }

    /// Keepalive was set, perhaps, or a buffer's size.
    pub(crate) fn configured(&mut self, place: usize, now: Instant, ring: &R, socket: FlowId, config: &tcp::Config) {
        let moment = self.call(place, now);
        self.refuse_closed(&moment, socket, "configure", true);
        let endpoint = self.endpoint(place, socket);
        if let Some(sock) = self.ring_states[place].sockets.get_mut(&socket) {
            sock.keepalive = config.keepalive;
            (sock.config, sock.reconfigured) = (Some(Rc::new(config.clone())), true);
            sock.receive_max = sock.receive_max.max(window::receive_max(config));
        }
        if let Some(id) = endpoint {
            let endpoint = self.flows.at_mut(id);
            endpoint.timers.set_keepalive(now, config.keepalive);
            endpoint.window.allow(window::receive_max(config));
            endpoint.shadow.config = Some(Rc::new(config.clone()));
            endpoint.shadow.reconfigured = true;
        }
        self.looked(place, ring, socket);
    }

    /// A stream was written to.
    #[expect(clippy::too_many_arguments, reason = "a call's arguments and its result, as they are")]
    pub(crate) fn wrote(
        &mut self,
        place: usize,
        now: Instant,
        ring: &R,
        socket: FlowId,
        data: &[IoSlice<'_>],
        flags: SendFlags,
        result: Result<usize, Error>,
    ) {
        let moment = self.call(place, now);
        self.refuse_closed(&moment, socket, "send", result.is_ok());
        let endpoint = self.endpoint(place, socket);
        if let (Ok(len), Some(id)) = (result, endpoint) {
            let endpoint = self.flows.at_mut(id);
            endpoint.stream.write(data, len);
            endpoint.timers.wrote(moment.at);
            // A write of nothing pushes nothing (Linux's tcp_sendmsg, and the reference programs).
            endpoint.shadow.more = flags.contains(SendFlags::MORE) || len == 0 && endpoint.shadow.more;
            self.note_written(id, len);
        }
        self.note_error(place, socket, result.err());
        self.looked(place, ring, socket);
    }

    /// A stream was read from.
    #[expect(clippy::too_many_arguments, reason = "a call's arguments and its result, as they are")]
    pub(crate) fn read(
        &mut self,
        place: usize,
        now: Instant,
        ring: &R,
        socket: FlowId,
        into: &[IoSliceMut<'_>],
        flags: RecvFlags,
        result: Result<usize, Error>,
    ) {
        let moment = self.call(place, now);
        self.refuse_closed(&moment, socket, "recv", result.is_ok());
        let endpoint = self.endpoint(place, socket);
        let excused = self.ring_states[place].sockets.get(&socket).is_none_or(|sock| sock.end_excused);
        if let (Ok(len), Some(id)) = (result, endpoint) {
            self.flows.pair(id);
            let (own, peer) = self.flows.both(id);
            let room = into.iter().any(|slice| !slice.is_empty());
            if len > 0 {
                stream::read(&moment, own, peer, into.iter().map(|slice| &slice[..]), len, flags.contains(RecvFlags::PEEK));
                timers::read(moment.at, own);
            } else if let Some(peer) = peer
                && room
                && !excused
            {
                let is_whole = peer.stream.has_ended() && own.stream.taken() == peer.stream.written();
                match own.moves.has_lost_peer() && !is_whole {
                    true => moves::ended(&moment, own, peer),
                    false => stream::ended(&moment, own, peer),
                }
            }
        }
        self.note_error(place, socket, result.err());
        self.looked(place, ring, socket);
    }

    /// An error that a program heard of explains whatever end follows.
    fn note_error(&mut self, place: usize, socket: FlowId, error: Option<Error>) {
        if let Some(error) = error
            && !matches!(error, Error::WouldBlock | Error::NoBuffers)
            && let Some(sock) = self.ring_states[place].sockets.get_mut(&socket)
        {
            let excused = core::mem::replace(&mut sock.end_excused, true);
            if let Some(id) = sock.endpoint {
                let moment = self.moment(place, None);
                let asked_at = self.questions.get(&(moment.host, self.flows.at(id).tuple.1.ip())).map(|question| question.by_clock);
                shadow::errors::told(&moment, self.flows.at(id), error, asked_at);
                if !excused && !self.flows.at(id).moves.has_lost_peer() {
                    forged::told(&moment, self.flows.at(id), error);
                }
            }
        }
    }

    /// A program took a socket's error.
    pub(crate) fn took_error(&mut self, place: usize, ring: &R, socket: FlowId, error: Option<Error>) {
        self.note_error(place, socket, error);
        if let Some(error) = error {
            let moment = self.moment(place, None);
            self.said(&moment, socket, Some(error));
        }
        self.looked(place, ring, socket);
    }

    /// A direction, or both, was ended.
    pub(crate) fn shut(&mut self, place: usize, now: Instant, ring: &R, socket: FlowId, how: Shutdown, result: Result<(), Error>) {
        let moment = self.call(place, now);
        self.refuse_closed(&moment, socket, "shutdown", result.is_ok());
        let endpoint = self.endpoint(place, socket);
        if result.is_ok() {
            if let Some(sock) = self.ring_states[place].sockets.get_mut(&socket) {
                sock.end_excused |= how != Shutdown::Write;
            }
            if let (Some(id), true) = (endpoint, how != Shutdown::Write) {
                self.flows.at_mut(id).shadow.unread = true;
                self.flows.at_mut(id).window.forget_reader();
            }
            if let Some(id) = endpoint {
                self.note_ended(id, State::HalfClosedUntold);
            }
            if let (Some(id), true) = (endpoint, how != Shutdown::Read) {
                self.flows.at_mut(id).stream.end();
                self.flows.at_mut(id).timers.wrote(moment.at);
            }
        }
        self.looked(place, ring, socket);
    }

    /// A socket is about to be closed.
    pub(crate) fn closes(&mut self, place: usize, now: Instant, ring: &R, socket: FlowId, abort: bool) {
        self.call(place, now);
        let Some(info) = ring.info(socket) else { return };
        let endpoint = self.endpoint(place, socket);
        let healed_at = self.healed_at.map(|at| at + self.ring_states[place].ahead);
        let ring_state = &mut self.ring_states[place];
        let Some(sock) = ring_state.sockets.get_mut(&socket).filter(|sock| sock.closed.is_none()) else { return };
        if sock.tuple.is_none() {
            // A listener or a UDP socket.
            ring_state.sockets.remove(&socket);
            let bound = (info.state.is_some(), info.local.port());
            if !bound.0 {
                self.may_have_heard(self.ring_states[place].host);
                self.left_all(place, socket);
                self.rebound(place, ring, bound.1);
            }
            let ring_state = &mut self.ring_states[place];
            if ring_state.bound.get_mut(&bound).is_none_or(|port| port.remove(now, socket)) {
                ring_state.bound.remove(&bound);
            }
            self.unlisten(place, info.local);
            return;
        }
        let own = endpoint.map(|id| self.flows.at(id));
        let known = own.is_some_and(|own| own.una != own.iss && own.irs.is_some() && own.goes_on());
        let unread = own.is_some_and(shadow::has_unread);
        let may_be_unread = own.is_none_or(Endpoint::has_unread);
        sock.closed = Some(Closed { at: now, reset_due: known && (abort || unread) });
        if abort || unread {
            ring_state.closing.insert((now + RESET_BOUND, socket));
        }
        if abort || may_be_unread {
            // RFC 9293 s3.10.5: an abort ends a TIME-WAIT as well.
            sock.waiting = None;
        }
        ring_state.closing.insert((now.max(healed_at.unwrap_or(now)) + closing::BOUND, socket));
        if let Some(id) = endpoint {
            self.flows.at_mut(id).window.forget_reader();
            self.flows.at_mut(id).shadow.closed = true;
            self.flows.at_mut(id).shadow.aborted |= abort || may_be_unread;
        }
        if let Some(id) = endpoint {
            self.note_ended(id, if abort { State::AbortedUntold } else { State::ClosedUntold });
        }
        if let Some(id) = endpoint.filter(|_| !abort && !unread) {
            self.flows.at_mut(id).stream.end();
        }
    }

    /// It is closed.
    pub(crate) fn closed(&mut self, place: usize, socket: FlowId) {
        self.ring_states[place].touch(socket);
    }

    /// A connection left its ring for another; what comes to it in between is lost.
    pub(crate) fn detached(&mut self, place: usize, socket: FlowId, tuple: Tuple) {
        if let Some(sock) = self.ring_states[place].sockets.remove(&socket) {
            if let Some(id) = sock.endpoint {
                self.flows.at_mut(id).shadow.blurred = true;
            }
            self.moving.insert(tuple, sock);
        }
    }

    /// It came to its new ring.
    pub(crate) fn adopted(&mut self, place: usize, now: Instant, ring: &R, tuple: Tuple, socket: FlowId) {
        let moment = self.call(place, now);
        let Some(sock) = self.moving.remove(&tuple) else { return };
        if let Some(id) = sock.endpoint {
            let endpoint = self.flows.at_mut(id);
            if endpoint.owner.is_some_and(|(before, _)| before != place) {
                (endpoint.moved, endpoint.moved_at) = (true, moment.at);
            }
            endpoint.owner = Some((place, socket));
        }
        self.ring_states[place].sockets.insert(socket, Sock { touched: false, ..sock });
        self.looked(place, ring, socket);
    }

    /// It goes on at its new ring from what the old one wrote down, and sends again at once what was on its way.
    pub(crate) fn continued(&mut self, place: usize, socket: FlowId) {
        if let Some(id) = self.ring_states[place].sockets.get(&socket).and_then(|sock| sock.endpoint) {
            self.flows.at_mut(id).rto.forgive();
            self.flows.at_mut(id).shadow.blurred = true;
        }
    }

    /// A datagram was sent.
    #[expect(clippy::too_many_arguments, reason = "a call's arguments, as they are")]
    pub(crate) fn udp_sent(
        &mut self,
        place: usize,
        now: Instant,
        ring: &R,
        socket: FlowId,
        data: &[IoSlice<'_>],
        source: IpAddr,
        to: Option<SocketAddr>,
        result: Result<usize, Error>,
    ) {
        let moment = self.call(place, now);
        self.said(&moment, socket, result.err());
        let Some(info) = ring.info(socket) else { return };
        let from = if info.local.ip().is_unspecified() { SocketAddr::new(source, info.local.port()) } else { info.local };
        if let Some(to) = to.or(info.remote) {
            let datagram = self.datagrams.written(from, to, data);
            if result.is_ok() {
                self.said_to(&moment, to.ip(), datagram);
            }
            let options = self.ring_states[place].sockets.get(&socket).and_then(|sock| sock.hearing.options);
            if to.ip().is_multicast() && result.is_ok() && options.is_some_and(|options| options.multicast_loop) {
                self.looped(place, from, to, datagram);
            }
        }
        self.looked(place, ring, socket);
    }

    /// A datagram was read.
    pub(crate) fn udp_read(
        &mut self,
        place: usize,
        ring: &R,
        socket: FlowId,
        into: &[IoSliceMut<'_>],
        flags: RecvFlags,
        result: Result<ring::Datagram, Error>,
    ) {
        let moment = self.moment(place, None);
        self.refuse_closed(&moment, socket, "recv", result.is_ok());
        if let Ok(read) = result
            && !flags.contains(RecvFlags::PEEK)
            && let Some(sock) = self.ring_states[place].sockets.get_mut(&socket)
        {
            sock.loans.took_datagram(read.len);
        }
        let local = result.as_ref().ok().and_then(|_| ring.info(socket)).map(|info| info.local.port());
        if let (Ok(read), Some(local)) = (&result, local)
            && self.ring_states[place].ahead.is_zero()
            && let Some(port) = self.ring_states[place].bound.get(&(false, local))
        {
            port.read(&moment, socket, read);
        }
        let peek = flags.contains(RecvFlags::PEEK);
        match result {
            Ok(read) if read.copied == read.len => {}
            other => self.heard(&moment, socket, other.map(|_| None), peek),
        }
        // What was cut off for lack of room can't be compared.
        if let (Ok(read), Some(local)) = (result, local)
            && read.copied == read.len
        {
            let (from, to) = (read.from, SocketAddr::new(read.to, local));
            let datagram = match into {
                [one] => Datagram::new(from, to, &one[..read.len]),
                several => Datagram::new(from, to, &gather(several, read.len)),
            };
            let port = self.ring_states[place].bound.get(&(false, local));
            let open = port.is_none_or(|port| port.is_open(socket, from, read.received));
            self.datagrams.read(&moment, socket, datagram, peek, open);
            self.heard(&moment, socket, Ok(Some(&datagram)), peek);
            let (read, _) = self.datagrams.reads(moment.host, socket, datagram);
            if let Some(sock) = self.ring_states[place].sockets.get_mut(&socket) {
                sock.unsummed.retain(|&(_, unsummed, times)| unsummed != datagram || read < times);
            }
        }
        self.looked(place, ring, socket);
    }
}
