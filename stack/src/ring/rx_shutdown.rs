//! Sockets that receive nothing from the device any more (SO_VMA_SHUTDOWN_RX).

use super::Ring;
use super::demux::FlowKey;
use super::slots::{Flow, Silent};
use super::types::FlowId;
use crate::device::{Protocol, Queues};
use crate::error::Error;
use crate::mutants::Mutant;

impl<Q: Queues> Ring<Q> {
    /// Takes a UDP socket's, or a connection's, flow away from the device: what comes for it is a stranger's from now on (for a connection's
    /// peer, that is a reset). What it has received already can still be read, and a UDP socket goes on sending.
    ///
    /// # Errors
    /// [`Error::BadSocket`]; [`Error::NotSupported`]: a listener.
    pub fn shutdown_rx(&mut self, flow: FlowId) -> Result<(), Error> {
        // (That is no call of every day: what it has to say of groups goes by the time of the last poll.)
        self.leave_all(self.polled_at, flow);
        let (rule, key) = match self.slots.find_mut(flow)? {
            Flow::Udp(udp) => (udp.rule.take(), udp.key()),
            Flow::Resting(_) => return Err(Error::BadSocket),
            Flow::Stream(stream) if stream.orphan => return Err(Error::BadSocket),
            Flow::Stream(stream) => {
                // (No rule will steer what its SYN waits for.)
                if stream.silent.ends(Silent::UntilSteered) {
                    self.dirty.push(flow.index);
                }
                (stream.rule.take(), FlowKey::new(Protocol::Tcp, stream.local, stream.remote))
            }
            Flow::Listener(_) => return Err(Error::NotSupported),
        };
        let rule = rule.filter(|_| !self.config.is(Mutant::RxShutdownKeepsRule));
        rule.into_iter().for_each(|rule| self.detach(rule));
        self.demux.leave(key, flow.index);
        Ok(())
    }
}
