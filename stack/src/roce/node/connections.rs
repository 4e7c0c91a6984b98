//! What a program asks for.

use std::net::{IpAddr, SocketAddr};

use super::{Node, Pending, Reads};
use crate::device::messages::{CmError, ConnectionEvent, ConnectionId, Connections, Mtu, Path};
use crate::roce::cm::{Accept, Connect};
use crate::roce::mad::private::{HEADER_LEN, IpHeader, REQUEST_LEN_MAX};
use crate::roce::mad::{Reject, RejectReason, Reply, Request};
use crate::roce::memory::Memory;
use crate::roce::packet::datagram::Addresses;
use crate::roce::psn::Psn;
use crate::roce::qp::{Modify, Peer, Sending};
use crate::time::Instant;

/// How often packets are sent again, and after how many waits for a receive a connection fails: 7 is for ever (rsockets counts on it).
const RETRIES: u8 = 7;
const RNR_RETRIES: u8 = 7;

impl<M: Memory + From<Vec<u8>>> Connections for Node<M> {
    fn path(&self, from: Option<IpAddr>, to: IpAddr) -> Option<(Path, Mtu)> {
        // Behind an address alone there may be several adapters.
        self.config.gid.is_none().then_some(())?;
        let from = match from.filter(|ip| !ip.is_unspecified()) {
            Some(ip) => Some(ip).filter(|ip| self.config.addresses.contains(ip))?,
            None => self.config.addresses.iter().copied().find(|ip| ip.is_ipv4() == to.is_ipv4())?,
        };
        Some((Path::new(Addresses::new(from, to)?, flow_of(to)), self.config.mtu))
    }

    fn datagram_path(&self, from: Option<IpAddr>, to: SocketAddr) -> Option<(Path, Mtu, IpAddr)> {
        let Some(own) = self.config.gid else {
            return self.path(from, to.ip()).map(|(path, mtu)| (path, mtu, path.addresses.src()));
        };
        let (path, src) = self.way_to(own, *self.datagrams_to.get(&to)?, from, to)?;
        Some((path, self.config.mtu, src))
    }

    fn listen(&mut self, at: SocketAddr, backlog: usize) -> Result<(), CmError> {
        self.cm.listen(Self::service(at.port()), backlog)?;
        self.listeners.insert(at.port(), at);
        Ok(())
    }

    fn unlisten(&mut self, port: u16) {
        if self.listeners.remove(&port).is_some() {
            // It was there.
            let _ = self.cm.unlisten(Self::service(port));
        }
    }

    fn connect(&mut self, now: Instant, qp: u32, from: SocketAddr, to: SocketAddr, private_data: &[u8]) -> Result<ConnectionId, CmError> {
        if private_data.len() > REQUEST_LEN_MAX {
            return Err(CmError::TooLong);
        }
        let (path, mtu, src) = self.way(from.ip(), to).ok_or(CmError::Unroutable)?;
        let port = if from.port() == 0 { self.ephemeral_port() } else { from.port() };
        let header = IpHeader { src: SocketAddr::new(src, port), dst: to.ip() };
        let mut private = [0; Request::PRIVATE_LEN];
        private[..HEADER_LEN].copy_from_slice(&header.emit());
        private[HEADER_LEN..HEADER_LEN + private_data.len()].copy_from_slice(private_data);
        let rq_psn = self.psn();
        let connect = Connect {
            path,
            service_id: Self::service(to.port()),
            qpn: qp,
            starting_psn: rq_psn,
            mtu,
            ack_timeout: self.config.ack_timeout,
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: true,
            retry_count: RETRIES,
            rnr_retry_count: RNR_RETRIES,
            private_data: private,
        };
        let id = self.cm.connect(now, &connect)?;
        self.pending.insert(id, Pending::Asked { qp, path, rq_psn });
        Ok(id)
    }

    fn accept(&mut self, now: Instant, id: ConnectionId, qp: u32, private_data: &[u8]) -> Result<(), CmError> {
        let Some(Pending::Waits { path, dest_qp, sq_psn, mtu, reads }) = self.pending.get(&id).copied() else { return Err(CmError::State) };
        let mut private = [0; Reply::PRIVATE_LEN];
        private.get_mut(..private_data.len()).ok_or(CmError::TooLong)?.copy_from_slice(private_data);
        let rq_psn = self.psn();
        self.make_ready(now, qp, path, mtu, dest_qp, (rq_psn, sq_psn), reads)?;
        let accept = Accept {
            qpn: qp,
            starting_psn: rq_psn,
            responder_resources: reads.answered,
            initiator_depth: reads.asked,
            flow_control: true,
            rnr_retry_count: RNR_RETRIES,
            private_data: private,
        };
        self.pending.remove(&id);
        self.cm.accept(now, id, &accept)
    }

    fn reject(&mut self, now: Instant, id: ConnectionId) {
        self.pending.remove(&id);
        // Whatever is no request that waits needs no refusal.
        let _ = self.cm.reject(now, id, RejectReason::CONSUMER_DEFINED, [0; Reject::PRIVATE_LEN]);
        self.cm.destroy(now, id);
    }

    fn on_communication(&mut self, id: ConnectionId) {
        self.cm.on_communication(id);
    }

    fn destroy(&mut self, now: Instant, id: ConnectionId) {
        self.pending.remove(&id);
        self.cm.destroy(now, id);
        self.events.retain(|(of, _)| *of != id);
    }

    fn poll_connection(&mut self) -> Option<(ConnectionId, ConnectionEvent)> {
        self.events.pop_front()
    }
}

const fn flow_of(to: IpAddr) -> u32 {
    match to {
        IpAddr::V4(ip) => ip.to_bits(),
        IpAddr::V6(ip) => ip.to_bits() as u32,
    }
}

impl<M: Memory + From<Vec<u8>>> Node<M> {
    /// The way of a connection, and which address of ours its peer is to know.
    fn way(&mut self, from: IpAddr, to: SocketAddr) -> Option<(Path, Mtu, IpAddr)> {
        let Some(own) = self.config.gid else {
            let (path, mtu) = self.path(Some(from), to.ip())?;
            return Some((path, mtu, path.addresses.src()));
        };
        let gid = self.resolved.remove(&to)?;
        let (path, src) = self.way_to(own, gid, Some(from), to)?;
        Some((path, self.config.mtu, src))
    }

    /// The way from our adapter to another one, and which address of ours is shown there.
    fn way_to(&self, own: IpAddr, gid: IpAddr, from: Option<IpAddr>, to: SocketAddr) -> Option<(Path, IpAddr)> {
        let path = Path::new(Addresses::new(own, gid)?, flow_of(gid));
        // Both are on one machine, where each address is anybody's who asks for none.
        let src = from.filter(|from| !from.is_unspecified()).unwrap_or(to.ip());
        (src.is_ipv4() == to.is_ipv4()).then_some((path, src))
    }
}

impl<M: Memory> Node<M> {
    /// A queue pair from INIT to RTS. `psns`: of the peer's first packet, and of ours.
    #[expect(clippy::too_many_arguments, reason = "they are the attributes of one transition")]
    pub(super) fn make_ready(
        &mut self,
        now: Instant,
        qp: u32,
        path: Path,
        mtu: Mtu,
        dest_qp: u32,
        (rq_psn, sq_psn): (Psn, Psn),
        reads: Reads,
    ) -> Result<(), CmError> {
        let peer = Peer { path, mtu, dest_qp, rq_psn, max_dest_rd_atomic: reads.answered, min_rnr_timer: self.config.min_rnr_timer };
        let timeout = self.config.ack_timeout;
        let sending = Sending { sq_psn, timeout, retry_count: RETRIES, rnr_retry: RNR_RETRIES, max_rd_atomic: reads.asked };
        for modify in [Modify::Rtr(peer), Modify::Rts(sending)] {
            self.hca.modify_qp(now, qp, &modify).map_err(|_| CmError::State)?;
        }
        Ok(())
    }
}
