//! Sockets that receive nothing from the device any more (SO_VMA_SHUTDOWN_RX).

use super::Ring;
use super::demux::FlowKey;
use super::slots::Socket;
use super::types::SocketId;
use crate::device::{Device, Protocol};
use crate::error::Error;
use crate::mutants::Mutant;

impl<D: Device> Ring<D> {
    /// Takes a UDP socket's, or a connection's, flow away from the device: what comes for it is a stranger's from now on (for a connection's
    /// peer, that is a reset). What it has received already can still be read, and a UDP socket goes on sending.
    ///
    /// # Errors
    /// [`Error::BadSocket`]; [`Error::NotSupported`]: a listener.
    pub fn deafen(&mut self, socket: SocketId) -> Result<(), Error> {
        self.leave_all(socket);
        let (rule, key) = match self.slots.find_mut(socket)? {
            Socket::Udp(udp) => (udp.rule.take(), udp.key()),
            Socket::Stream(stream) if stream.orphan => return Err(Error::BadSocket),
            Socket::Stream(stream) => (stream.rule.take(), FlowKey::new(Protocol::Tcp, stream.local, stream.remote)),
            Socket::Listener(_) => return Err(Error::NotSupported),
        };
        let rule = rule.filter(|_| !self.config.is(Mutant::DeafKeepsRule));
        rule.into_iter().for_each(|rule| self.device.detach(rule));
        self.demux.leave(key, socket.index);
        Ok(())
    }
}
