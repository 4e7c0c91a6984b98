//! The short way of packets through the adapter: see [`crate::roce::rc`], and what is read and written is [`crate::roce::packet::write`]'s.

use super::Hca;
use crate::roce::memory::{Access, Memory};
use crate::roce::packet::write::WriteOnly;
use crate::roce::work::{PostError, SendWr};
use crate::time::Instant;

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
    #[inline(always)]
    pub(in crate::roce) fn take_predicted(&mut self, packet: &[u8]) -> bool {
        let is_taken = self.tuning.predicts() && self.take_if_predicted(packet).is_some();
        self.predicted.received += u64::from(is_taken);
        is_taken
    }

    #[inline(always)]
    fn take_if_predicted(&mut self, packet: &[u8]) -> Option<()> {
        let write = WriteOnly::parse(packet, self.tuning.crc())?;
        let qp = self.qps.get_mut(write.dest_qp).filter(|qp| qp.expects(&self.tuning, &write))?;
        // (One that it would overrun fails all of its queue pairs.)
        let cq = self.cqs.get_mut(qp.config.recv_cq).filter(|cq| cq.has_room())?;
        // Key, bounds and rights are held against the region by this. Whoever may not write is refused by the long way. (Without bytes the key means nothing.)
        self.regions.write(qp.config.pd, write.rkey, write.address, Access::REMOTE_WRITE, write.payload).ok()?;
        cq.push(qp.take_expected(&write)?);
        // (One that owes an acknowledgment already, which may still wait, stands where it belongs.)
        if !qp.goes_on_owing() {
            self.list(write.dest_qp);
        }
        Some(())
    }

    /// [`Hca::post_send`]; and if it is the queue pair's turn to send nothing but this, and it goes the short way, writes its IP packet to `out` and gives the length.
    ///
    /// # Errors
    /// [`PostError`]; it was not taken.
    #[inline(always)]
    pub(in crate::roce) fn post_and_transmit(
        &mut self,
        now: Instant,
        number: u32,
        wr: &SendWr<'_>,
        out: &mut [u8],
    ) -> Result<Option<usize>, PostError> {
        let predicts = self.tuning.predicts();
        let sent = self.with_qp_quietly(now, number, |qp, cx| {
            let goes_first = predicts && qp.has_nothing_to_send();
            qp.post_send(cx, wr)?;
            Ok(if goes_first { qp.transmit_predicted(cx, out) } else { None })
        });
        let len = sent.unwrap_or(Err(PostError::NoQp))?;
        match len {
            Some(_) => self.predicted.sent += 1,
            None => self.list(number),
        }
        Ok(len)
    }
}
