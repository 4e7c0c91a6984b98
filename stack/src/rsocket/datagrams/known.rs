//! What is known of peers' queue pairs, and what comes and goes by the UDP socket meanwhile.

use core::time::Duration;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::{Datagrams, Received, SLOT};
use crate::device::messages::Connections;
use crate::error::Error;
use crate::rsocket::wire::{ServiceHeader, ServiceOp};
use crate::time::Instant;

/// The most peers whose queue pairs are remembered; others' datagrams go by UDP.
const PEERS_MAX: usize = 4096;
/// The most datagrams that wait for the UDP socket.
const TO_UDP_MAX: usize = 256;

/// A datagram for the UDP socket: to whom, and its bytes.
pub type UdpDatagram = (SocketAddr, Vec<u8>);

/// How long a queue pair is believed in of which nothing was heard.
const BELIEVED: Duration = Duration::from_secs(1);
/// How long an answer may take before it is no more.
const ANSWERED: Duration = Duration::from_millis(100);

/// Peers' queue pairs.
#[derive(Debug, Default)]
pub(super) struct Known {
    peers: BTreeMap<SocketAddr, Peer>,
    /// Nobody tells of peers that are gone.
    pub(super) has_doubts: bool,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    qpn: u32,
    /// When it last said so, or sent anything.
    heard: Instant,
    /// When it was asked whether that is still so.
    asked: Option<Instant>,
}

impl Known {
    /// Where the next datagram goes; `None`: by UDP, upon which the peer says its queue pair. If there are doubts, one datagram asks so of whoever was silent for long, while the others
    /// still go to the queue pair; without an answer, all go by UDP. (librdmacm's sockets never doubt: a peer that has begun anew hears nothing until it says something.)
    pub(super) fn queue_pair_of(&mut self, now: Instant, peer: SocketAddr) -> Option<u32> {
        let known = self.peers.get_mut(&peer)?;
        if !self.has_doubts || now.since(known.heard) < BELIEVED {
            return Some(known.qpn);
        }
        let is_first = known.asked.is_none();
        let asked = *known.asked.get_or_insert(now);
        (!is_first && asked <= now && now.since(asked) < ANSWERED).then_some(known.qpn)
    }

    pub(super) fn forget(&mut self, peer: SocketAddr) {
        self.peers.remove(&peer);
    }

    fn learn(&mut self, now: Instant, peer: SocketAddr, qpn: u32) {
        if self.peers.len() < PEERS_MAX || self.peers.contains_key(&peer) {
            self.peers.insert(peer, Peer { qpn, heard: now, asked: None });
        }
    }

    /// A datagram came from a peer's queue pair.
    pub(super) fn hear(&mut self, now: Instant, peer: SocketAddr, qpn: u32) {
        if let Some(known) = self.peers.get_mut(&peer).filter(|known| known.qpn == qpn) {
            (known.heard, known.asked) = (now, None);
        }
    }
}

impl Datagrams {
    /// The next datagram for the UDP socket to send.
    pub fn poll_udp(&mut self) -> Option<UdpDatagram> {
        self.to_udp.pop_front()
    }

    /// Takes a datagram that came by the UDP socket. What is none of rsockets' is dropped.
    pub fn on_udp<D: Connections>(&mut self, now: Instant, device: &mut D, from: SocketAddr, bytes: &[u8]) {
        let Some((header, len)) = ServiceHeader::parse(bytes).filter(|(header, _)| header.address.is_ipv4() == from.is_ipv4()) else {
            return;
        };
        // Its packets come from where the datagram did, whatever else it says.
        let Some((_, _, ours)) = device.datagram_path(Some(self.local.ip()), from) else { return };
        let Ok(qp) = self.queue_pair(now, device, ours, from) else { return };
        self.known.learn(now, from, header.qpn);
        if header.op == ServiceOp::Control {
            return;
        }
        // If there is no room, the peer asks again by its next datagram.
        let _ = self.queue(from, ServiceOp::Control, qp, ours, &[]);
        if self.by_udp < usize::from(self.sizes.recv_queue) && self.takes(from) {
            self.by_udp += 1;
            self.received.push_back(Received::ByUdp { bytes: bytes[len..].to_vec(), from });
        }
    }

    pub(super) fn send_by_udp(&mut self, to: SocketAddr, qp: u32, ours: IpAddr, bytes: &[u8]) -> Result<(), Error> {
        let header_len = if ours.is_ipv4() { ServiceHeader::LEN_V4 } else { ServiceHeader::LEN_V6 };
        // The receiver has room for so much.
        if header_len + bytes.len() > SLOT as usize {
            return Err(Error::MessageTooLong);
        }
        self.queue(to, ServiceOp::Data, qp, ours, bytes)
    }

    fn queue(&mut self, to: SocketAddr, op: ServiceOp, qpn: u32, address: IpAddr, bytes: &[u8]) -> Result<(), Error> {
        if self.to_udp.len() >= TO_UDP_MAX {
            return Err(Error::WouldBlock);
        }
        let mut datagram = ServiceHeader { op, qpn, address }.emit().to_vec();
        datagram.extend_from_slice(bytes);
        self.to_udp.push_back((to, datagram));
        Ok(())
    }
}
