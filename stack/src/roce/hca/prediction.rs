//! The short way of packets through the adapter: see [`crate::roce::rc`], and what is read and written is [`crate::roce::packet::write`]'s.

use super::Hca;
use crate::roce::memory::{Access, Memory};
use crate::roce::packet::write::WriteOnly;

/// How many packets went the short way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Predicted {
    /// Of those that came.
    pub received: u64,
    /// Of those that were sent.
    pub sent: u64,
}

impl<M: Memory> Hca<M> {
    /// Packets that went the short way.
    pub const fn predicted(&self) -> Predicted {
        self.predicted
    }

    /// Takes an IP packet, copied out of whatever memory others may write, if it is one that goes the short way; `false`, and nothing happened: it is another one.
    #[inline]
    pub(in crate::roce) fn take_predicted(&mut self, packet: &[u8]) -> bool {
        let is_taken = self.tuning.predicts() && self.take_if_predicted(packet).is_some();
        self.predicted.received += u64::from(is_taken);
        is_taken
    }

    #[inline]
    fn take_if_predicted(&mut self, packet: &[u8]) -> Option<()> {
        let write = WriteOnly::parse(packet, self.tuning.crc())?;
        let qp = self.qps.get_mut(write.dest_qp).filter(|qp| qp.expects(&self.tuning, &write))?;
        // (One that it would overrun fails all of its queue pairs.)
        let cq = self.cqs.get_mut(qp.config.recv_cq).filter(|cq| cq.has_room())?;
        // Key, bounds and rights are held against the region by this. Whoever may not write is refused by the long way. (Without bytes the key means nothing.)
        self.regions.write(qp.config.pd, write.rkey, write.address, Access::REMOTE_WRITE, write.payload).ok()?;
        cq.push(qp.take_expected(&write)?);
        self.list(write.dest_qp);
        Some(())
    }
}
