//! Groups: datagrams to many, and the queue pairs that they come to (IBTA spec, volume 1, s10.5.2).

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{CreateError, Flaw, Hca, MEMBERS_MAX};
use crate::device::messages::MULTICAST_QP;
use crate::roce::memory::Memory;
use crate::roce::packet::Body;
use crate::roce::packet::datagram::Datagram;
use crate::roce::payload::Payload;
use crate::roce::qp::Transport;
use crate::time::Instant;

impl<M: Memory> Hca<M> {
    /// Has datagrams to a group come to a UD queue pair. Twice is once.
    ///
    /// # Errors
    /// [`CreateError::Missing`]: no such queue pair of datagrams; [`CreateError::Full`].
    pub fn join(&mut self, qp: u32, group: IpAddr) -> Result<(), CreateError> {
        self.qps.get(qp).filter(|qp| qp.config.transport == Transport::Ud).ok_or(CreateError::Missing)?;
        if self.groups.values().map(BTreeSet::len).sum::<usize>() >= MEMBERS_MAX {
            return Err(CreateError::Full);
        }
        self.groups.entry(group).or_default().insert(qp);
        Ok(())
    }

    /// Ends that.
    ///
    /// # Errors
    /// [`CreateError::Missing`]: it is no member.
    pub fn leave(&mut self, qp: u32, group: IpAddr) -> Result<(), CreateError> {
        let members = self.groups.get_mut(&group).filter(|members| members.contains(&qp)).ok_or(CreateError::Missing)?;
        if !self.tuning.has(Flaw::StaysInGroups) {
            members.remove(&qp);
        }
        self.groups.retain(|_, members| !members.is_empty());
        Ok(())
    }

    /// Whether what a UD queue pair sends to a group of its own comes to it, too: it does, until this says otherwise.
    ///
    /// # Errors
    /// [`CreateError::Missing`]: no such queue pair of datagrams.
    pub fn set_multicast_loopback(&mut self, qp: u32, has_loopback: bool) -> Result<(), CreateError> {
        let qp = self.qps.get_mut(qp).filter(|qp| qp.config.transport == Transport::Ud).ok_or(CreateError::Missing)?;
        qp.has_multicast_loopback = has_loopback;
        Ok(())
    }

    /// Groups that queue pairs are members of.
    pub fn groups(&self) -> impl Iterator<Item = IpAddr> {
        self.groups.keys().copied()
    }

    pub(super) fn leave_all(&mut self, qp: u32) {
        self.groups.retain(|_, members| {
            members.remove(&qp);
            !members.is_empty()
        });
    }

    /// A datagram to a group: each member gets it that has the key and a receive (IBTA spec, volume 1, s10.5.2), but for its sender, if that has no loopback.
    pub(super) fn on_group_packet(&mut self, now: Instant, datagram: &Datagram<'_>, but_for: Option<u32>) {
        let mut members: Vec<u32> = self.groups.get(&datagram.path.addresses.dst()).into_iter().flatten().copied().collect();
        if members.is_empty() {
            return self.dropped.no_qp += 1;
        }
        if self.tuning.has(Flaw::OneOfAGroup) {
            members.truncate(1);
        }
        for member in members.into_iter().filter(|member| but_for != Some(*member)) {
            let mut datagram = *datagram;
            datagram.packet.header.dest_qp = member;
            self.on_qp_packet(now, &datagram, Payload::Bytes(datagram.packet.payload));
        }
    }

    /// What was sent to a group is heard here, too, where there are members.
    pub(super) fn hear_own(&mut self, now: Instant, packet: &[u8]) {
        let datagram = Datagram::parse_with(packet, self.tuning.crc()).ok();
        if let Some(datagram) = datagram.filter(|datagram| datagram.packet.header.dest_qp == MULTICAST_QP) {
            let sender = match datagram.packet.header.body {
                Body::Datagram(deth, _) => self.qps.get(deth.src_qp),
                _ => None,
            };
            let but_for = sender.filter(|qp| !qp.has_multicast_loopback).map(|qp| qp.number);
            self.on_group_packet(now, &datagram, but_for);
        }
    }
}
