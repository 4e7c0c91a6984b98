//! Multicast listener discovery in the ring (RFC 3810): what its sockets want to hear of IPv6's groups comes together in a [`Listener`], whose
//! reports go out here, and to which routers' questions are handed.
//!
//! For devices without a kernel beside them: where there is one, it speaks for the host, and a ring has no groups of IPv6.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv6Addr};

use arrayvec::ArrayVec;

use super::Ring;
use super::input::Packet as Received;
use super::output::Output;
use super::udp::{SLICES_MAX, fill_buffers};
use crate::device::{HEAD_MAX, MacAddr, Queues, SendError, TxSlice};
use crate::error::Error;
use crate::marks::mark;
use crate::mld::filter::Filter;
use crate::mld::{ListenError, Listener, Packet};
use crate::mutants::Mutant;
use crate::time::Instant;
use crate::wire::icmpv6::mld::{HEADERS_LEN, Message};
use crate::wire::{ethernet, ipv6};

/// Who listens where neighbours ask: no socket has that slot.
const NEIGHBOURS: u32 = u32::MAX;

/// A listener that reports from the link-local one of these addresses, or from nobody (RFC 3810 s5.2.13).
pub(super) fn listener(seed: u64, addresses: &[IpAddr]) -> Listener {
    let mut listener = Listener::new(seed);
    let link_local = addresses.iter().find_map(|address| match address {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(*ip),
        _ => None,
    });
    // (There is nothing to report yet.)
    listener.set_source(Instant::ZERO, link_local.unwrap_or(Ipv6Addr::UNSPECIFIED));
    listener
}

impl<Q: Queues> Ring<Q> {
    /// Becomes a member of the groups in which neighbours ask for the ring's own addresses (RFC 4861 s7.2.1), as routers and switches are to
    /// hear: without it they may pass no question on (RFC 4541 s3). For the ring that gets what no flow rule steers.
    ///
    /// # Errors
    /// [`Error::NotSupported`]: the device knows MAC addresses only, or has a kernel beside it, which does that; [`Error::NoBuffers`]: too many
    /// groups.
    pub fn join_solicited_nodes(&mut self, now: Instant) -> Result<(), Error> {
        if self.output.caps.point_to_point || self.output.caps.is_beside_kernel {
            return Err(Error::NotSupported);
        }
        for at in 0..self.config.addresses.len() {
            if let IpAddr::V6(own) = self.config.addresses[at] {
                self.listen_v6(now, NEIGHBOURS, ipv6::solicited_node(own), Filter::ANY)?;
            }
        }
        self.output.flush(&mut self.queues);
        Ok(())
    }

    /// A socket wants to hear that of a group from now on; `Filter::NONE`: nothing more.
    pub(super) fn listen_v6(&mut self, now: Instant, index: u32, group: Ipv6Addr, filter: Filter) -> Result<(), Error> {
        let leaves = filter.is_none();
        self.groups.listener.listen(now, index, group, filter).map_err(|error| match error {
            ListenError::NoGroup => Error::Invalid,
            ListenError::Full => Error::NoBuffers,
        })?;
        if leaves && self.config.is(Mutant::ListenerLeavesInSilence) {
            while self.groups.listener.poll_transmit().is_some() {}
        }
        self.report_listening();
        Ok(())
    }

    /// Sends what is to be told.
    pub(super) fn report_listening(&mut self) {
        while let Some(packet) = self.groups.listener.poll_transmit() {
            mark!(self, ListenerReported);
            // What the device does not take is lost like a frame on the wire: reports are repeated.
            match self.output.listener_report(&mut self.queues, &packet) {
                Ok(()) => {}
                Err(_) => self.output.counters.tx_drops += 1,
            }
        }
    }

    /// A message of listener discovery, whose checksum is right.
    pub(super) fn on_listener_discovery(
        &mut self,
        now: Instant,
        header: &ipv6::Header,
        router_alert: Option<u16>,
        packet: &Received<'_, Q::Rx>,
    ) -> Option<()> {
        if self.output.caps.point_to_point || self.output.caps.is_beside_kernel {
            return None;
        }
        // (A question may name more sources than a head has room for.)
        let mut bytes = packet.head.to_vec();
        bytes.resize(packet.len(), 0);
        packet.copy_rest(&mut bytes[packet.head.len()..]);
        let near = ipv6::Header { hop_limit: 1, ..*header };
        let header = if self.config.is(Mutant::ListenersAskedFromAfar) { &near } else { header };
        let message = Message::parse(header, router_alert, &bytes).ok()?;
        if matches!(message, Message::Query { .. }) {
            if self.config.is(Mutant::ListenersUnheard) {
                return None;
            }
            mark!(self, ListenersAsked);
        }
        self.groups.listener.on_message(now, header.dst, &message);
        Some(())
    }
}

impl Output {
    /// A packet about groups, whole as it is: with its checksum, which no device fills in behind a hop-by-hop header.
    fn listener_report<Q: Queues>(&mut self, queues: &mut Q, packet: &Packet) -> Result<(), SendError> {
        let mut head = [0; HEAD_MAX];
        let at = self.ethernet(MacAddr::of_group(packet.dst.into()), ethernet::ETHERTYPE_IPV6).emit(&mut head);
        // A long report's records are in buffers.
        let inline = if at + packet.bytes.len() <= HEAD_MAX { packet.bytes.len() } else { HEADERS_LEN };
        let (first, rest) = packet.bytes.split_at(inline);
        head[at..at + inline].copy_from_slice(first);
        let mut buffers = ArrayVec::<(Q::Tx, usize), SLICES_MAX>::new();
        fill_buffers(queues, &[IoSlice::new(rest)], rest.len(), &mut buffers)?;
        let body: ArrayVec<TxSlice<'_, Q::Tx>, SLICES_MAX> =
            buffers.iter().map(|(buffer, len)| TxSlice { buffer, offset: 0, len: *len }).collect();
        self.send_summed(queues, &head[..at + inline], &body)
    }
}

#[cfg(test)]
mod tests;
