//! ARP in the ring: asking, answering, and what follows from both (RFC 826, RFC 5227).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;

use super::Ring;
use super::neighbour::{Lookup, Neighbours, Retry};
use super::output::Output;
use super::types::NextHop;
use crate::device::{MacAddr, Protocol, Queues, SendError};
use crate::marks::mark;
use crate::mutants::Mutant;
use crate::time::Instant;
use crate::wire::arp;

/// Answers that wait for the device; more are lost like frames on the wire.
pub(super) type Answers = ArrayVec<Answer, 16>;

/// What somebody is told who asked for the ring's MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Arp {
        from: Ipv4Addr,
        to: Ipv4Addr,
        mac: MacAddr,
    },
    /// RFC 4861 s7.2.4; not `solicited`: he has no address yet.
    Advertisement {
        from: Ipv6Addr,
        to: Ipv6Addr,
        mac: MacAddr,
        solicited: bool,
    },
}

impl Answer {
    fn send<Q: Queues>(self, output: &mut Output, queues: &mut Q) -> Result<(), SendError> {
        match self {
            Self::Arp { from, to, mac } => {
                let reply = arp::Packet {
                    operation: arp::Operation::Reply,
                    sender_mac: output.mac(),
                    sender_ip: from,
                    target_mac: mac,
                    target_ip: to,
                };
                let all = output.mutation.is(Mutant::ArpReplyToAll);
                output.arp(queues, if all { MacAddr::BROADCAST } else { mac }, &reply)
            }
            Self::Advertisement { from, to, mac, solicited } => output.advertise(queues, mac, (from, to), solicited),
        }
    }
}

/// A neighbour's address, or a request for it on its way.
#[inline]
pub(super) fn resolve<Q: Queues>(
    now: Instant,
    (from, ip): (IpAddr, IpAddr),
    neighbours: &mut Neighbours,
    output: &mut Output,
    queues: &mut Q,
) -> Option<MacAddr> {
    match neighbours.lookup(now, from, ip) {
        Lookup::Known { mac, probe: false } => Some(mac),
        Lookup::Known { mac, probe: true } => {
            if !output.ask_neighbour_at(queues, mac, from, ip) {
                neighbours.unasked(now, ip);
            }
            Some(mac)
        }
        Lookup::Unknown { ask } => {
            if ask && !output.ask_neighbour(queues, from, ip) {
                neighbours.unasked(now, ip);
            }
            None
        }
    }
}

impl<Q: Queues> Ring<Q> {
    pub(super) fn on_arp(&mut self, now: Instant, bytes: &[u8]) -> Option<()> {
        if self.output.caps.point_to_point {
            return None;
        }
        let (packet, _) = arp::Packet::parse(bytes).ok()?;
        if packet.sender_mac.is_multicast() {
            return None;
        }
        // Who wants to know whether an address is taken has none yet: there is nothing to learn of it, but it is answered (RFC 5227 s2.1.1).
        let is_probe = packet.sender_ip.is_unspecified();
        let for_us = self.config.addresses.contains(&IpAddr::V4(packet.target_ip)) || self.config.is(Mutant::ArpAnswersForOthers);
        if is_probe && self.config.is(Mutant::ProbeUnanswered) {
            return None;
        }
        if for_us && packet.operation == arp::Operation::Request {
            if !is_probe {
                self.neighbours.learn_asker(now, IpAddr::V4(packet.sender_ip), packet.sender_mac);
            }
            self.answer(now, Answer::Arp { from: packet.target_ip, to: packet.sender_ip, mac: packet.sender_mac });
        } else if is_probe || !self.neighbours.learn(now, IpAddr::V4(packet.sender_ip), packet.sender_mac) {
            // Whomever it is for, it renews what is known of its sender (RFC 826): so does an announcement (RFC 5227 s3).
            return None;
        }
        if !is_probe {
            self.neighbour_known(IpAddr::V4(packet.sender_ip), packet.sender_mac);
        }
        Some(())
    }

    /// Answers a question for the ring's MAC address, at once or as soon as the device takes frames: whoever asked would ask again only after a second.
    pub(super) fn answer(&mut self, now: Instant, answer: Answer) {
        match answer.send(&mut self.output, &mut self.queues) {
            Ok(()) => {}
            Err(SendError::Full) if self.answers.contains(&answer) => {}
            Err(SendError::Full) if !self.answers.is_full() && !self.config.is(Mutant::ArpRefusedAnswerLost) => {
                self.answers.push(answer);
                self.retry_soon(now);
            }
            Err(_) => self.output.counters.tx_drops += 1,
        }
    }

    /// Gives the answers that the device refused, in the order in which they were asked for.
    pub(super) fn answer_owed(&mut self) {
        let Self { answers, output, queues, .. } = self;
        let mut given = 0;
        for answer in answers.iter() {
            match answer.send(output, queues) {
                Ok(()) => {}
                Err(SendError::Full) => break,
                Err(_) => output.counters.tx_drops += 1,
            }
            given += 1;
        }
        answers.drain(..given);
    }

    #[inline(never)]
    pub(super) fn retry_neighbours(&mut self, now: Instant) {
        if self.neighbours.next_deadline().is_none_or(|at| at > now) {
            return;
        }
        for retry in self.neighbours.retry(now) {
            match retry {
                Retry::Ask { from, target, to } => {
                    mark!(self, ArpRetry);
                    if !self.output.ask_neighbour_at(&mut self.queues, to, from, target) {
                        self.neighbours.unasked(now, target);
                    }
                }
                Retry::Unreachable(ip) => {
                    mark!(self, NeighbourUnreachable);
                    self.neighbour_unreachable(now, ip);
                }
            }
        }
    }

    pub(super) fn neighbour_unreachable(&mut self, now: Instant, ip: IpAddr) {
        let is_kept = self.config.is(Mutant::HeldForever);
        let lost: Vec<_> = self.held.extract_if(.., |held| held.neighbour == ip && !is_kept).map(|held| held.ends()).collect();
        if self.config.is(Mutant::NeighbourMissesUntold) {
            return;
        }
        // As Linux's ipv4_link_failure: an error as if a router had sent it. (Without a kernel beside the ring datagrams that waited are lost in silence, as
        // ever: the ring's own questions may have been lost as well.)
        let told = if self.neighbours.are_the_kernels() { lost } else { Vec::new() };
        for (local, remote) in told {
            if let Some(index) = self.demux.find(Protocol::Udp, local, remote) {
                self.udp_unreachable(index, remote, (false, false));
            }
        }
        for index in core::mem::take(&mut self.waiting_neighbour) {
            let Some(stream) = self.slots.stream_at(index) else { continue };
            stream.stalled = false;
            if stream.hop == NextHop::Neighbour(ip) {
                stream.connection.on_host_unreachable();
                // What waited is lost, as on a wire: so that timers run, which ask again later and give up in the end.
                stream.connection.poll_transmit(now, &mut |_| Err(SendError::NoPeer));
                self.settle(index);
            } else if !self.config.is(Mutant::OtherWaitersForgotten) {
                self.dirty.push(index);
            }
        }
    }
}
