//! Queue pair 1, the one of general services: management datagrams come and go by it. Both ways are bounded: what is too much is lost, as
//! datagrams may be.

use std::collections::VecDeque;

use super::mad::{self, GSI_QKEY, GSI_QP};
use super::packet::datagram::{Crc, Datagram, Path};
use super::packet::{Body, Deth, Header};
use super::psn::Psn;

/// How many datagrams wait in each direction.
pub const BACKLOG_MAX: usize = 128;

/// A management datagram, and how it came or is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Management {
    /// Received: from whom to whom; to send: the way.
    pub path: Path,
    /// The datagram.
    pub bytes: [u8; mad::LEN],
}

#[derive(Debug, Default)]
pub(super) struct Gsi {
    received: VecDeque<Management>,
    to_send: VecDeque<Management>,
    psn: Psn,
}

impl Gsi {
    /// Takes a datagram. Whether it could.
    pub(super) fn on_datagram(&mut self, datagram: &Datagram<'_>, deth: Deth) -> bool {
        let payload: Option<&[u8; mad::LEN]> = datagram.packet.payload.first_chunk();
        let Some(bytes) = payload.filter(|_| deth.qkey == GSI_QKEY && self.received.len() < BACKLOG_MAX) else { return false };
        self.received.push_back(Management { path: datagram.path, bytes: *bytes });
        true
    }

    pub(super) fn receive(&mut self) -> Option<Management> {
        self.received.pop_front()
    }

    /// Sends a datagram. Whether there was room.
    pub(super) fn send(&mut self, management: Management) -> bool {
        let room = self.to_send.len() < BACKLOG_MAX;
        if room {
            self.to_send.push_back(management);
        }
        room
    }

    pub(super) fn may_transmit(&self) -> bool {
        !self.to_send.is_empty()
    }

    pub(super) fn transmit(&mut self, id: u16, crc: Crc, out: &mut [u8]) -> Option<usize> {
        let Management { path, bytes } = self.to_send.pop_front()?;
        let body = Body::Datagram(Deth { qkey: GSI_QKEY, src_qp: GSI_QP }, None);
        // It means nothing in a datagram; Linux sets it.
        let header = Header { ack_request: true, ..Header::new(body, GSI_QP, self.psn) };
        self.psn += 1;
        let fill = |out: &mut [u8]| {
            out.copy_from_slice(&bytes);
            Some(())
        };
        path.emit_with(id, crc, &header, mad::LEN, out, fill)
    }
}
