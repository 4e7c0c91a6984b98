//! UD queue pairs, one for each address of ours.

use std::net::{IpAddr, SocketAddr};

use super::{Datagrams, QKEY, Received, SLOT};
use crate::device::messages::{
    Access, Completion, Connections, Memory, Messages, Modify, Psn, QpConfig, Region, Sge, State, Status, Transport,
};
use crate::error::Error;
use crate::rsocket::stream::OpenError;
use crate::rsocket::wire::DatagramHeader;
use crate::time::Instant;

/// In a request's number: it is a receive.
const RECEIVE: u64 = 1 << 63;
/// Bytes that a device puts before a datagram: over RoCE they hold the sender's IP header. Nobody reads them here, so all receives share them.
const GRH_LEN: u32 = 40;
/// The most addresses of ours that one socket uses.
const QUEUE_PAIRS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct QueuePair {
    qp: u32,
    pub(super) cq: u32,
    /// A place for each receive, and what comes before datagrams behind them.
    pub(super) recv_buffer: Region,
}

impl QueuePair {
    pub(super) fn destroy<D: Messages>(&self, device: &mut D) {
        let _ = device.destroy_qp(self.qp);
        let _ = device.destroy_cq(self.cq);
        device.deregister(self.recv_buffer.key);
    }
}

impl Datagrams {
    /// The queue pair of one of our addresses, made if it is not there yet, by which `to` is reached.
    pub(super) fn queue_pair<D: Connections>(&mut self, now: Instant, device: &mut D, at: IpAddr, to: SocketAddr) -> Result<u32, Error> {
        if let Some(found) = self.queue_pairs.get(&at) {
            return Ok(found.qp);
        }
        // (The address may be another device's.)
        if !device.leads_to(Some(at), to) {
            return Err(device.no_way(to.ip()).into());
        }
        if self.queue_pairs.len() >= QUEUE_PAIRS_MAX {
            return Err(Error::NoBuffers);
        }
        let made = self.make(now, device).map_err(|_| Error::NoBuffers)?;
        let number = made.qp;
        self.queue_pairs.insert(at, made);
        for place in 0..self.sizes.recv_queue {
            self.post_receive(now, device, at, place);
        }
        Ok(number)
    }

    fn make<D: Messages>(&self, now: Instant, device: &mut D) -> Result<QueuePair, OpenError> {
        let (send_depth, recv_depth) = (usize::from(self.sizes.send_queue), usize::from(self.sizes.recv_queue));
        let memory = device.allocate(recv_depth * SLOT as usize + GRH_LEN as usize)?;
        let recv_buffer = device.register(self.pd, memory, Access::LOCAL_WRITE)?;
        let queues = device.create_cq(send_depth + recv_depth).and_then(|cq| {
            let config = QpConfig {
                transport: Transport::Ud,
                pd: self.pd,
                send_cq: cq,
                recv_cq: cq,
                send_depth,
                recv_depth,
                sges_max: 2,
                inline_max: self.sizes.inline.into(),
            };
            let made = device.create_qp(config).map(|qp| (qp, cq));
            made.inspect_err(|_| {
                let _ = device.destroy_cq(cq);
            })
        });
        let (qp, cq) = queues.inspect_err(|_| {
            device.deregister(recv_buffer.key);
        })?;
        let made = QueuePair { qp, cq, recv_buffer };
        let ways =
            [Modify::Init { access: Access::empty(), qkey: QKEY }, Modify::RtrDatagram, Modify::RtsDatagram { sq_psn: Psn::default() }];
        for way in ways {
            device.modify_qp(now, qp, &way).inspect_err(|_| made.destroy(device))?;
        }
        Ok(made)
    }

    pub(super) fn post_receive<D: Messages>(&self, now: Instant, device: &mut D, at: IpAddr, place: u16) {
        let Some(QueuePair { qp, recv_buffer, .. }) = self.queue_pairs.get(&at) else { return };
        let behind = u64::from(self.sizes.recv_queue) * u64::from(SLOT);
        let sge = |offset: u64, len: u32| Sge { address: recv_buffer.address + offset, len, lkey: recv_buffer.key };
        let sges = [sge(behind, GRH_LEN), sge(u64::from(place) * u64::from(SLOT), SLOT)];
        // A place that cannot be posted is lost, and so are datagrams when there is none.
        let _ = device.post_recv(now, *qp, RECEIVE | u64::from(place), &sges);
    }

    /// Takes what completed.
    pub fn poll<D: Messages>(&mut self, now: Instant, device: &mut D) {
        let addresses: Vec<IpAddr> = self.queue_pairs.keys().copied().collect();
        for at in addresses {
            let Some(QueuePair { qp, cq, .. }) = self.queue_pairs.get(&at) else { continue };
            let (qp, cq) = (*qp, *cq);
            while let Some(completion) = device.poll_cq(cq) {
                if completion.id & RECEIVE == 0 {
                    self.free.push(completion.id as u16);
                } else {
                    self.on_received(now, device, at, &completion);
                }
            }
            if device.qp_state(qp) == Some(State::Sqe) {
                // What failed was a datagram's own fault; those after it are sent.
                let _ = device.modify_qp(now, qp, &Modify::Resume);
            }
        }
    }

    fn on_received<D: Messages>(&mut self, now: Instant, device: &mut D, at: IpAddr, completion: &Completion) {
        if completion.status != Status::Success {
            // The queue pair failed, and whatever is posted comes back at once.
            return;
        }
        let place = completion.id as u16;
        let start = u32::from(place) * SLOT;
        let len = completion.len.saturating_sub(GRH_LEN).min(SLOT);
        let mut head = [0; DatagramHeader::LEN_V6];
        let head = &mut head[..DatagramHeader::LEN_V6.min(len as usize)];
        if let Some(memory) = self.queue_pairs.get(&at).and_then(|qp| device.memory(qp.recv_buffer.key)) {
            memory.read(start.into(), head);
        }
        match DatagramHeader::parse(head).filter(|(header, _)| self.takes(header.source)) {
            Some((header, header_len)) => {
                self.known.hear(now, header.source, completion.src_qp);
                let (offset, len) = (start + header_len as u32, len - header_len as u32);
                self.received.push_back(Received::Placed { at, place, offset, len, from: header.source });
            }
            None => self.post_receive(now, device, at, place),
        }
    }
}
