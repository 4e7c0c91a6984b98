//! Who must hear what: each datagram that reached a host whole is read from the socket that it fits best, or from each member of its group, in the order in which they came, and raises an edge;
//! unless that socket's buffer was full (udp(7), RFC 1122 s4.1.3.5, RFC 1112 s7.1). And of errors: who sent what ICMP says was refused hears of it, once, and nobody else (RFC 1122 s4.1.3.3).

use core::time::Duration;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use ringway_stack::device::{ChecksumVerdict, Queues};
use ringway_stack::ring::{FlowId, Ring, UdpOptions};
use ringway_stack::{Error, Instant};

use super::datagrams::Datagram;
use super::loans::DATAGRAM_OVERHEAD;
use super::{Checkers, Moment};
use crate::checksum;
use crate::dissect::{self, Ip, UDP, be16};
use crate::fabric::{Frame, Marks};
use crate::nic::SimQueues;

const NAME: &str = "hearing";

/// The longest that a frame is on its way through a device.
const THROUGH: Duration = Duration::from_millis(1);
/// Datagrams that wait for their reader and are remembered.
pub(super) const AWAITED_MAX: usize = 4096;
const UNREACHABLE: u8 = 3;
const TIME_EXCEEDED: u8 = 11;
const PORT: u8 = 3;
/// The same of ICMPv6 (RFC 4443 s3).
const UNREACHABLE_V6: u8 = 1;
const TIME_EXCEEDED_V6: u8 = 3;
const PORT_V6: u8 = 4;

/// A datagram that came for a socket.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    at: Instant,
    datagram: Datagram,
    /// The ring has been polled since: it can be read.
    due: bool,
    /// An event has told of it.
    raised: bool,
    /// There may have been no room for it, or nobody knows whether it was heard.
    droppable: bool,
}

/// What it remembers of a UDP socket.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Its options; none: it is no UDP socket.
    pub(super) options: Option<UdpOptions>,
    /// Its reader holds what it reads, or decides about it before: what room there is nobody knows.
    lends: bool,
    awaited: VecDeque<Awaited>,
    /// Since when it may be one that hears what had come before, of which nobody knows how much room it takes.
    unknown_since: Option<Instant>,
    /// What all of them count against its buffer.
    queued: usize,
    /// What was read since the last poll, counted likewise, and how many datagrams that were.
    drained: (usize, usize),
    /// Errors about what it may have sent that came and may not have been polled, and one of which its program must hear then; and whether one was polled of which it
    /// may yet hear, or must.
    errors: u32,
    error_came: bool,
    errors_held: u32,
    error_due: bool,
}

impl State {
    /// `under_way`: something has come, and was not polled.
    pub(super) fn open(options: UdpOptions, lends: bool, now: Instant, under_way: bool) -> Self {
        Self { options: Some(options), lends, unknown_since: under_way.then_some(now), ..Self::default() }
    }

    fn room(&self) -> usize {
        self.options.map_or(0, |options| options.rcvbuf)
    }

    fn expect(&mut self, at: Instant, datagram: Datagram, is_certain: bool, due: bool) {
        if self.awaited.len() >= AWAITED_MAX {
            self.awaited.clear();
            self.queued = 0;
        }
        let len = datagram.len() + DATAGRAM_OVERHEAD;
        // One datagram has room in any buffer.
        let fits = self.awaited.is_empty() || self.queued + len <= self.room();
        let droppable = !is_certain || !fits || self.lends || self.unknown_since.is_some();
        self.queued += len;
        // (Whether what its own host said is there before what came meanwhile depends on what was polled.)
        let under_way = due && self.awaited.back().is_some_and(|awaited| !awaited.due);
        if under_way {
            self.rebound();
        }
        self.awaited.push_back(Awaited { at, datagram, due, raised: due, droppable: droppable || under_way });
    }

    /// A datagram that came before the socket was one that hears it may be on its way through the device still: then it is heard, and takes room of what comes
    /// after it.
    fn perhaps(&mut self, at: Instant, datagram: Datagram) {
        let is_known = self.awaited.iter().any(|awaited| (awaited.at, awaited.datagram) == (at, datagram));
        if is_known || self.awaited.len() >= AWAITED_MAX {
            return;
        }
        let place = self.awaited.iter().rposition(|awaited| awaited.at <= at).map_or(0, |before| before + 1);
        self.queued += datagram.len() + DATAGRAM_OVERHEAD;
        self.awaited.insert(place, Awaited { at, datagram, due: false, raised: false, droppable: true });
    }

    /// The ring was polled.
    pub(super) fn polls(&mut self) {
        self.drained = (0, 0);
    }

    /// An event of the socket says that something can be read.
    pub(super) fn raised(&mut self) {
        self.awaited.iter_mut().for_each(|awaited| awaited.raised = true);
    }

    /// All that came was polled.
    pub(super) fn polled(&mut self, moment: &Moment, calm: bool) {
        // (A frame may be on its way through the device.)
        for awaited in self.awaited.iter_mut().filter(|awaited| !awaited.due && moment.at > awaited.at + THROUGH) {
            if !awaited.raised && !awaited.droppable && calm {
                moment.breach(NAME, format_args!("epoll(7): {:?} came at {:?}, and no event says so", awaited.datagram, awaited.at));
            }
            awaited.due = true;
        }
        self.error_due |= core::mem::take(&mut self.error_came);
        self.errors_held += core::mem::take(&mut self.errors);
    }

    /// What it read was more than it had room for, and cannot be compared.
    fn forget(&mut self) {
        self.awaited.iter_mut().for_each(|awaited| awaited.droppable = true);
    }

    /// It has a peer now: an error may be under way about what another socket sent there.
    /// `under_way`: so many have arrived, and not been looked at.
    pub(super) fn connected(&mut self, under_way: u32) {
        self.errors += 1 + under_way;
    }

    /// The same, where it may be this one's without having been so when it came.
    pub(super) fn inherits(&mut self, now: Instant) {
        self.unknown_since = Some(now);
        self.rebound();
    }

    /// The socket's port has other sockets now, or this one another peer: whose was what is under way is not known.
    pub(super) fn rebound(&mut self) {
        self.awaited.iter_mut().filter(|awaited| !awaited.due).for_each(|awaited| awaited.droppable = true);
    }

    /// Its program read a datagram, or looked at it.
    fn read(&mut self, moment: &Moment, datagram: &Datagram, peek: bool, calm: bool) {
        let len = datagram.len() + DATAGRAM_OVERHEAD;
        if !peek {
            self.drained = (self.drained.0 + len, self.drained.1 + 1);
        }
        let (bytes, count) = self.drained;
        if count > 1 && bytes > self.room() && calm && !self.lends {
            moment.breach(NAME, format_args!("socket(7), SO_RCVBUF: {count} datagrams waited, that take {bytes} of {} bytes", self.room()));
        }
        let Some(at) = self.awaited.iter().position(|awaited| awaited.datagram == *datagram) else { return };
        if let Some(lost) = self.awaited.iter().take(at).find(|awaited| !awaited.droppable && calm) {
            moment.breach(NAME, format_args!("udp(7): {datagram:?} was read, and {:?}, which came before, was not", lost.datagram));
        }
        if !peek {
            // If that one may have been dropped, then one that is like it and came later may be what was read.
            if self.awaited[at].droppable
                && let Some(alike) =
                    self.awaited.iter_mut().skip(at + 1).find(|awaited| awaited.datagram == *datagram && !awaited.droppable)
            {
                alike.droppable = true;
            }
            for awaited in self.awaited.drain(..=at) {
                self.queued -= awaited.datagram.len() + DATAGRAM_OVERHEAD;
            }
        }
    }

    /// Its program found nothing to read.
    fn empty(&mut self, moment: &Moment, calm: bool) {
        self.unknown_since = self.unknown_since.filter(|&since| moment.at <= since + THROUGH);
        if let Some(lost) = self.awaited.iter().find(|awaited| awaited.due && !awaited.droppable && calm) {
            moment.breach(NAME, format_args!("udp(7): {:?} came at {:?}, and cannot be read", lost.datagram, lost.at));
        }
        let due = self.awaited.iter().take_while(|awaited| awaited.due).count();
        for awaited in self.awaited.drain(..due) {
            self.queued -= awaited.datagram.len() + DATAGRAM_OVERHEAD;
        }
    }

    /// Its program was told of an error, or not.
    fn told(&mut self, moment: &Moment, error: Option<Error>, calm: bool) {
        // (A connection's errors are another law's.)
        if self.options.is_none() {
            return;
        }
        let is_icmps = |error: &Error| matches!(error, Error::Refused | Error::HostUnreachable);
        match error.filter(is_icmps) {
            Some(error) if self.errors + self.errors_held == 0 => {
                moment.breach(NAME, format_args!("RFC 1122 s4.1.3.3: {error} is told, and nothing came about what was sent to its peer"));
            }
            // (It may be the last of several that came.)
            Some(_) => {
                let held = self.errors_held > 0;
                (self.errors_held, self.errors) = (self.errors_held - u32::from(held), self.errors - u32::from(!held));
                (self.error_came, self.error_due) = (false, false);
            }
            // (Who decides about datagrams before they are read reads by other calls, which tell of no error.)
            None if error.is_none() && self.error_due && calm && !self.lends => {
                moment.breach(NAME, "RFC 1122 s4.1.3.3: what was sent was refused, and its program is not told");
            }
            // (That a datagram was too long comes by ICMP as well, and one error takes another's place.)
            None => self.error_due &= error.is_none(),
        }
    }

    /// Its program was told of an error that need not be one of those that came.
    fn perhaps_told(&mut self) {
        (self.error_came, self.error_due) = (false, false);
    }
}

impl Checkers {
    /// A datagram for a host reached it whole: who is to hear it?
    pub(super) fn datagram_delivered(&mut self, moment: &Moment, frame: &Frame, ip: &Ip, datagram: Datagram) {
        let host = moment.host;
        let Some((from, to)) = dissect::ports(&frame.bytes, ip) else { return };
        // (Rings that share a port share out what comes.)
        let mut places = self.places[host].iter().filter(|&&place| self.ring_states[place].bound.contains_key(&(false, to.port())));
        let (Some(&place), None) = (places.next(), places.next()) else { return };
        let for_all = dissect::mac_at(&frame.bytes, 0).is_some_and(|to| to.is_multicast()) && !ip.dst.is_multicast();
        let certain = !frame.marks.intersects(Marks::CORRUPTED | Marks::HIDDEN | Marks::FORGED) && !for_all && self.is_calm(host);
        self.expect(place, moment.at, (from, to), datagram, certain, false);
    }

    fn expect(&mut self, place: usize, at: Instant, (from, to): (SocketAddr, SocketAddr), datagram: Datagram, certain: bool, due: bool) {
        let ring_state = &mut self.ring_states[place];
        let Some(port) = ring_state.bound.get(&(false, to.port())) else { return };
        if to.ip().is_multicast() && !due {
            ring_state.groups.came(at, (from, to), datagram);
        }
        let hearers: Vec<_> = match to.ip().is_multicast() {
            true => ring_state.groups.members(to.ip(), from.ip()).filter(|&socket| port.hears(socket, from, to)).collect(),
            false => port.best(from, to).into_iter().collect(),
        };
        for socket in hearers {
            if let Some(sock) = ring_state.sockets.get_mut(&socket) {
                sock.hearing.expect(at, datagram, certain, due);
            }
        }
    }

    /// A socket became a member of a group: what is on its way there may be for it, too.
    pub(super) fn hears_more(&mut self, place: usize, socket: FlowId, group: IpAddr) {
        let ring_state = &mut self.ring_states[place];
        let Some(sock) = ring_state.sockets.get_mut(&socket) else { return };
        for &(at, (from, to), datagram) in ring_state.groups.under_way(ring_state.now) {
            let hears = ring_state.bound.get(&(false, to.port())).is_some_and(|port| port.hears(socket, from, to));
            if to.ip() == group && hears && ring_state.groups.admits(group, socket, from.ip()) {
                sock.hearing.perhaps(at, datagram);
            }
        }
    }

    /// A program said something to a group whose members on this ring hear it, too (IP_MULTICAST_LOOP).
    pub(super) fn looped(&mut self, place: usize, from: SocketAddr, to: SocketAddr, datagram: Datagram) {
        let (at, host) = (self.ring_states[place].now, self.ring_states[place].host);
        self.datagrams.delivered(host, datagram, false, false);
        let calm = self.is_calm(host);
        self.expect(place, at, (from, to), datagram, calm, true);
    }

    /// A program read from a UDP socket, and got that: a datagram (`None`: a part of one), nothing, or an error.
    pub(super) fn heard(&mut self, moment: &Moment, socket: FlowId, result: Result<Option<&Datagram>, Error>, peek: bool) {
        let calm = self.is_calm(moment.host);
        let Some(sock) = self.ring_states[moment.place].sockets.get_mut(&socket) else { return };
        let hearing = &mut sock.hearing;
        hearing.told(moment, result.as_ref().err().copied().filter(|&error| error != Error::WouldBlock), calm);
        match result {
            Ok(Some(datagram)) => hearing.read(moment, datagram, peek, calm),
            Ok(None) => hearing.forget(),
            Err(Error::WouldBlock) => hearing.empty(moment, calm),
            Err(_) => {}
        }
    }

    /// A program sent a datagram, or could not.
    pub(super) fn said(&mut self, moment: &Moment, socket: FlowId, error: Option<Error>) {
        let calm = self.is_calm(moment.host);
        let Some(sock) = self.ring_states[moment.place].sockets.get_mut(&socket) else { return };
        match error {
            None | Some(Error::Refused) => sock.hearing.told(moment, error, calm),
            // (That a neighbour cannot be reached, or that a datagram is too long, a send tells of itself: whether ICMP has said so as well is not known.)
            Some(Error::HostUnreachable | Error::MessageTooLong) => sock.hearing.perhaps_told(),
            Some(_) => {}
        }
    }

    /// A UDP socket has other options.
    pub(crate) fn udp_configured(&mut self, place: usize, socket: FlowId, options: UdpOptions) {
        if let Some(sock) = self.ring_states[place].sockets.get_mut(&socket) {
            sock.hearing.options = Some(options);
            // What had no room before may have some now, or the reverse.
            sock.hearing.lends = true;
        }
    }

    /// All that came to a ring was polled.
    pub(super) fn datagrams_polled(&mut self, moment: &Moment, ring: &Ring<SimQueues>) {
        if ring.queues().rx_ready() {
            return;
        }
        let calm = self.is_calm(moment.host);
        let ring_state = &mut self.ring_states[moment.place];
        for socket in &ring_state.hearers {
            if let Some(sock) = ring_state.sockets.get_mut(socket) {
                sock.hearing.polled(moment, calm);
            }
        }
    }

    /// An ICMP error reached a host: whose datagram is it about?
    pub(super) fn error_delivered(&mut self, moment: &Moment, bytes: &[u8], ip: &Ip) {
        let at = ip.l4 + 8;
        let (Some(&kind), Some(&code), Some((protocol, l4))) = (bytes.get(ip.l4), bytes.get(ip.l4 + 1), dissect::transport_at(bytes, at))
        else {
            return;
        };
        let ends = || {
            let (src, dst) = dissect::addresses_at(bytes, at)?;
            Some((SocketAddr::new(src, be16(bytes, l4)?), SocketAddr::new(dst, be16(bytes, l4 + 2)?)))
        };
        let refused = if ip.is_v6() { (UNREACHABLE_V6, PORT_V6) } else { (UNREACHABLE, PORT) };
        let tells = kind == refused.0 || kind == if ip.is_v6() { TIME_EXCEEDED_V6 } else { TIME_EXCEEDED };
        let Some((local, remote)) = ends().filter(|_| protocol == UDP && tells) else {
            return;
        };
        if checksum::verify(bytes) == ChecksumVerdict::Bad || l4 + 8 > ip.end || ip.fragment || ip.dst.is_multicast() {
            return;
        }
        let calm = self.is_calm(moment.host) && moment.ip == Some(ip.dst);
        let alone = self.places[moment.host].len() == 1;
        for &place in &self.places[moment.host] {
            let ring_state = &mut self.ring_states[place];
            let Some(port) = ring_state.bound.get(&(false, local.port())) else {
                ring_state.errors_under_way.came();
                continue;
            };
            let peers: Vec<_> = port.with_peer(local, remote).collect();
            if peers.is_empty() {
                ring_state.errors_under_way.came();
            }
            for &socket in &peers {
                if let Some(sock) = ring_state.sockets.get_mut(&socket) {
                    sock.hearing.errors += 1;
                    sock.hearing.error_came |= calm && alone && peers.len() == 1 && (kind, code) == refused;
                }
                ring_state.touch(socket);
            }
        }
    }
}

#[cfg(test)]
mod tests;
