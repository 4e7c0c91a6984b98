//! Sends that send nothing (VMA's dummy send): the whole way of a packet but the last step, so that it stays in the processor's caches.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;

use super::Ring;
use super::output::{Envelope, HEADERS_MAX};
use super::slots::Flow;
use super::types::{FlowId, NextHop};
use crate::device::{MacAddr, Protocol, Queues, SendError, TxBuffer, TxSlice};
use crate::error::Error;
use crate::mutants::Mutant;
use crate::tcp;
use crate::time::Instant;
use crate::wire::udp;

impl<Q: Queues> Ring<Q> {
    /// As [`Ring::udp_send`], but the device drops what it is given, and nobody gets it. Where the neighbour's Ethernet address is not known, there is
    /// no way to keep warm yet, and nothing happens.
    ///
    /// # Errors
    /// As [`Ring::udp_send`]; [`Error::NotSupported`]: the device has no such thing ([`crate::device::Capabilities::dummy`]).
    pub fn udp_dummy(
        &mut self,
        flow: FlowId,
        data: &[IoSlice<'_>],
        source: IpAddr,
        to: Option<(SocketAddr, NextHop)>,
    ) -> Result<usize, Error> {
        let udp = self.slots.udp(flow)?;
        let (remote, hop) = to.or(udp.remote).ok_or(Error::DestinationRequired)?;
        let src = if udp.local.ip().is_unspecified() { source } else { udp.local.ip() };
        if src.is_ipv4() != remote.is_ipv4() {
            return Err(Error::Invalid);
        }
        let (ports, ttl, tos) = ((udp.local.port(), remote.port()), udp.options.ttl, udp.options.tos);
        if !self.output.caps.dummy {
            return Err(Error::NotSupported);
        }
        let len = data.iter().map(|part| part.len()).sum::<usize>();
        if len > self.output.payload_max(remote.ip(), udp::LEN) {
            return Err(Error::MessageTooLong);
        }
        let Some(mac) = self.known_mac(hop) else { return Ok(len) };
        let envelope = Envelope { src, dst: remote.ip(), mac, ttl, tos };
        self.output.set_dummy(true);
        let sent = self.udp_emit(&envelope, ports, data, len);
        self.output.set_dummy(sent.is_err() && self.config.is(Mutant::DummySticksWhenRefused));
        self.output.flush(&mut self.queues);
        match sent {
            Ok(()) | Err(SendError::Full) => {}
            Err(SendError::NoPeer) => return Err(Error::HostUnreachable),
            Err(SendError::TooLong) => return Err(Error::MessageTooLong),
            Err(SendError::Unsupported(_)) => return Err(Error::NotSupported),
        }
        self.slots.udp(flow)?.counters.tx_dummies += 1;
        Ok(len)
    }

    /// As [`Ring::tcp_send`] of one segment, but the device drops it, and the connection knows nothing of it.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]: there are bytes that were not sent yet, or these are none, more than a segment, or more than may be sent now;
    /// [`Error::NotSupported`]: the device has no such thing; and as [`Ring::tcp_send`].
    pub fn tcp_dummy(&mut self, now: Instant, flow: FlowId, data: &[IoSlice<'_>]) -> Result<usize, Error> {
        let hop = self.slots.stream(flow)?.hop;
        if !self.output.caps.dummy {
            return Err(Error::NotSupported);
        }
        let mac = self.known_mac(hop);
        let Self { slots, queues, output, .. } = self;
        let stream = slots.stream(flow)?;
        let len = data.iter().map(|part| part.len()).sum::<usize>();
        let header = stream.connection.dummy_header(now, len)?;
        let (Some(mac), Some(mut buffer)) = (mac, queues.tx_alloc(len).filter(|buffer| buffer.capacity() >= len)) else {
            return Ok(len);
        };
        let mut at = 0;
        for part in data {
            buffer.write(at, part);
            at += part.len();
        }
        let config = stream.connection.config();
        let to = Envelope { src: stream.local.ip(), dst: stream.remote.ip(), mac, ttl: config.ttl, tos: config.tos };
        let payload = [TxSlice { buffer: &buffer, offset: 0, len }];
        output.set_dummy(true);
        let segment = tcp::Segment { header, payload: &payload, payload_len: len, cut: None, unsolicited: false, capable: false };
        let sent = output.tcp(queues, &to, &segment);
        output.set_dummy(false);
        output.flush(queues);
        // (What the device refuses is lost as it would have been.)
        if sent.is_ok() {
            stream.connection.count_dummy();
        }
        Ok(len)
    }

    /// The headers of what a connected socket sends, from Ethernet on, as they are of a packet without payload. Of TCP's, sequence and
    /// acknowledgement numbers, window and checksum are zero: they are the next segment's own.
    ///
    /// # Errors
    /// [`Error::NotConnected`]: it is not connected, or its neighbour's Ethernet address is not known; [`Error::BadSocket`].
    pub fn headers(&mut self, flow: FlowId, source: IpAddr) -> Result<ArrayVec<u8, HEADERS_MAX>, Error> {
        let (protocol, local, remote, hop, ttl, tos) = match self.slots.find(flow).ok_or(Error::BadSocket)? {
            Flow::Stream(stream) => {
                let config = stream.connection.config();
                (Protocol::Tcp, stream.local, stream.remote, stream.hop, config.ttl, config.tos)
            }
            Flow::Resting(_) => return Err(Error::BadSocket),
            Flow::Udp(udp) => {
                let (remote, hop) = udp.remote.ok_or(Error::NotConnected)?;
                let local = if udp.local.ip().is_unspecified() { SocketAddr::new(source, udp.local.port()) } else { udp.local };
                (Protocol::Udp, local, remote, hop, udp.options.ttl, udp.options.tos)
            }
            Flow::Listener(_) => return Err(Error::NotConnected),
        };
        let mac = self.known_mac(hop).ok_or(Error::NotConnected)?;
        let envelope = Envelope { src: local.ip(), dst: remote.ip(), mac, ttl, tos };
        Ok(self.output.template(&envelope, protocol, (local.port(), remote.port())))
    }

    fn known_mac(&self, hop: NextHop) -> Option<MacAddr> {
        match hop {
            NextHop::Mac(mac) => Some(mac),
            NextHop::Neighbour(ip) => self.neighbours.known(ip),
            NextHop::Pending => None,
        }
    }
}

#[cfg(test)]
mod tests;
