//! Deciding before reading: UDP sockets whose datagrams the program is shown first. It lets the reader have them, keeps them, or has seen enough.

use std::collections::VecDeque;
use std::net::SocketAddr;

use ringway_stack::device::Queues;
use ringway_stack::ring::{Candidate, Decision, FlowId, Readiness, Ring};

use crate::nic::{SimQueues, SimRx};
use crate::random::RandomStream;

/// Of a million sockets of a ring that lends, so many get a receive filter with their first read.
const FILTERED_PPM: u32 = 250_000;
/// Of a million reads, so many are the first without it.
const ENOUGH_PPM: u32 = 10_000;

/// What was admitted: who sent it, and its bytes. Of what was there before anybody decided, nothing is known.
type Admitted = Option<(SocketAddr, Vec<u8>)>;

/// A socket with a receive filter.
#[derive(Debug, Default)]
pub(super) struct Filter {
    /// What waits to be read, in order.
    admitted: VecDeque<Admitted>,
}

impl Filter {
    /// Begins to filter what a socket receives, or does not.
    pub(super) fn draw(stream: &mut RandomStream, ring: &mut Ring<SimQueues>, socket: FlowId) -> Option<Self> {
        if !stream.chance_ppm(FILTERED_PPM) || ring.set_recv_filter(socket, true).is_err() {
            return None;
        }
        let before = ring.udp_backlog(socket).map_or(0, |backlog| backlog.packets);
        Some(Self { admitted: (0..before).map(|_| None).collect() })
    }

    /// Whether the program has seen enough; the rest is the reader's.
    pub(super) fn ends(stream: &mut RandomStream, ring: &mut Ring<SimQueues>, socket: FlowId) -> bool {
        stream.chance_ppm(ENOUGH_PPM) && ring.set_recv_filter(socket, false).is_ok()
    }

    /// Whether something was admitted that nobody has read yet.
    pub(super) fn has_admitted(&self) -> bool {
        !self.admitted.is_empty()
    }

    /// What is to become of the candidate: something else than being read only where nothing waits before it, since order is kept.
    pub(super) fn decision(&self, stream: &mut RandomStream) -> Option<Decision> {
        match stream.below(4) {
            0 | 1 => Some(Decision::Admit),
            _ if self.has_admitted() => None,
            2 => Some(Decision::Drop),
            _ => Some(Decision::Hold),
        }
    }

    /// The candidate is the reader's.
    pub(super) fn admit(&mut self, candidate: &Candidate<SimRx>, bytes: Vec<u8>) {
        self.admitted.push_back(Some((candidate.from, bytes)));
    }

    /// A datagram was read, of whose bytes these had room: what is wrong with that.
    pub(super) fn misread(&mut self, from: SocketAddr, read: &[u8]) -> Option<String> {
        match self.admitted.pop_front() {
            Some(Some((sender, bytes))) if sender == from && bytes.starts_with(read) => None,
            Some(None) => None,
            Some(Some((sender, bytes))) => {
                Some(format!("{} bytes of {from} were read; what was admitted was {} bytes of {sender}", read.len(), bytes.len()))
            }
            None => Some(format!("{} bytes of {from} were read, which nobody admitted", read.len())),
        }
    }
}

/// What a socket is ready for, as its events tell it: that somebody is to decide is told as if there were something to read.
pub(crate) fn readiness<Q: Queues>(ring: &Ring<Q>, socket: FlowId) -> Readiness {
    let undecided = if ring.has_candidate(socket) { Readiness::IN } else { Readiness::empty() };
    ring.readiness(socket) | undecided
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    #[test]
    fn only_what_was_admitted_is_read_and_in_order() {
        let [one, other] = [1, 2].map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
        let mut filter = Filter { admitted: [None, Some((one, b"first".to_vec())), Some((one, b"second".to_vec()))].into() };
        assert_eq!(filter.misread(other, b"what was there before"), None);
        // (A reader may have room for less.)
        assert_eq!(filter.misread(one, b"fir"), None);
        assert!(filter.misread(one, b"first").is_some());
        assert!(filter.misread(one, b"second").is_some(), "nothing is left");
        filter.admitted.push_back(Some((one, b"third".to_vec())));
        assert!(filter.misread(other, b"third").is_some());
    }
}
