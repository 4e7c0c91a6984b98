//! Datagram sockets: UD queue pairs, and a UDP socket beside them, which the layer above has. What is sent to a peer whose queue pair is not known goes by UDP,
//! with our queue pair before it; the peer answers with its own, and from then on both use the queue pairs. Nothing is repeated: datagrams may be lost.
//!
//! - `queue_pair`: one for each address of ours, with its memory
//! - `known`: what is known of peers, and what comes and goes by UDP
//!
//! librdmacm finds queue pairs so, and not by connection management's questions (SIDR), which its datagram sockets do not answer.

mod known;
mod queue_pair;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use self::known::Known;
pub use self::known::UdpDatagram;
use self::queue_pair::QueuePair;
use super::config::{SEND_LOW_WATER, Sizes};
use super::options::Options;
use super::stream::OpenError;
use super::wire::DatagramHeader;
use crate::device::messages::{Access, Connections, Data, Memory, Messages, Path, Pd, Region, SendOp, SendWr, Sge};
use crate::error::Error;
use crate::flow::Readiness;
use crate::time::Instant;

/// Bytes of a datagram's place, its header included.
const SLOT: u32 = SEND_LOW_WATER;
/// The key of all queue pairs that RDMA-CM makes for datagrams.
const QKEY: u32 = 0x0123_4567;

/// A datagram that waits to be read.
#[derive(Debug)]
enum Received {
    /// It lies in the place of that number of the address's queue pair, from there on, and is so long.
    Placed { at: IpAddr, place: u16, offset: u32, len: u32, from: SocketAddr },
    /// It came by UDP.
    ByUdp { bytes: Vec<u8>, from: SocketAddr },
}

/// A datagram socket.
#[derive(Debug)]
pub struct Datagrams {
    pd: Pd,
    sizes: Sizes,
    /// The UDP socket's own name.
    local: SocketAddr,
    /// Only its datagrams are taken, and it is whom [`Datagrams::send`] sends to.
    peer: Option<SocketAddr>,
    queue_pairs: BTreeMap<IpAddr, QueuePair>,
    known: Known,
    send_buffer: Region,
    /// Places in the send buffer that are free; each request has one, even those that are inline.
    free: Vec<u16>,
    received: VecDeque<Received>,
    /// How many of these came by UDP: no more than the receive queue's size.
    by_udp: usize,
    to_udp: VecDeque<UdpDatagram>,
}

impl Datagrams {
    /// With a UDP socket that is bound to `local`. Queues are made as long as both buffers have room for, one datagram a place.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open<D: Messages>(device: &mut D, pd: Pd, options: &Options, local: SocketAddr) -> Result<Self, OpenError> {
        let mut sizes = options.sizes.within(&device.message_limits());
        let places = |bytes: u32, queue: u16| queue.min((bytes / SLOT).clamp(1, u32::from(u16::MAX)) as u16);
        sizes.send_queue = places(sizes.send_buffer, sizes.send_queue);
        sizes.recv_queue = places(sizes.recv_buffer, sizes.recv_queue);
        let memory = device.allocate(usize::from(sizes.send_queue) * SLOT as usize)?;
        let send_buffer = device.register(pd, memory, Access::LOCAL_WRITE)?;
        Ok(Self {
            pd,
            sizes,
            local,
            peer: None,
            queue_pairs: BTreeMap::new(),
            known: Known::default(),
            send_buffer,
            free: (0..sizes.send_queue).collect(),
            received: VecDeque::new(),
            by_udp: 0,
            to_udp: VecDeque::new(),
        })
    }

    /// Its sizes, as they are.
    pub const fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// From now on, it is about this peer alone; `None`: about all again.
    pub const fn connect(&mut self, peer: Option<SocketAddr>) {
        self.peer = peer;
    }

    /// Sends to the peer.
    ///
    /// # Errors
    /// [`Error::DestinationRequired`]: there is none; [`Datagrams::send_to`]'s.
    pub fn send<D: Connections>(&mut self, now: Instant, device: &mut D, bytes: &[u8]) -> Result<usize, Error> {
        let to = self.peer.ok_or(Error::DestinationRequired)?;
        self.send_to(now, device, bytes, to)
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// [`Error::MessageTooLong`]: with its header it is longer than a place, or than a packet; a reason of [`NoWay`](crate::device::messages::NoWay); [`Error::WouldBlock`]: the send
    /// queue is full, or as much waits for the UDP socket; [`Error::NoBuffers`]: the device has no queue pair for us.
    pub fn send_to<D: Connections>(&mut self, now: Instant, device: &mut D, bytes: &[u8], to: SocketAddr) -> Result<usize, Error> {
        self.poll(now, device);
        let (path, mtu, ours) = device.datagram_path(Some(self.local.ip()), to).ok_or_else(|| device.no_way(to.ip()))?;
        let source = SocketAddr::new(ours, self.local.port());
        let header = DatagramHeader { source };
        let longest = SLOT.min(mtu.bytes()).min(device.message_limits().datagram as u32) as usize;
        if DatagramHeader::len_of(source) + bytes.len() > longest {
            return Err(Error::MessageTooLong);
        }
        let qp = self.queue_pair(now, device, source.ip(), to)?;
        match self.known.queue_pair_of(now, to) {
            Some(dest_qp) => {
                let mut message = header.emit().to_vec();
                message.extend_from_slice(bytes);
                self.post(now, device, qp, path, dest_qp, &message)?;
            }
            None => self.send_by_udp(to, qp, source.ip(), bytes)?,
        }
        Ok(bytes.len())
    }

    fn post<D: Messages>(&mut self, now: Instant, device: &mut D, qp: u32, path: Path, dest_qp: u32, message: &[u8]) -> Result<(), Error> {
        let place = self.free.pop().ok_or(Error::WouldBlock)?;
        let offset = u64::from(place) * u64::from(SLOT);
        let sge = Sge { address: self.send_buffer.address + offset, len: message.len() as u32, lkey: self.send_buffer.key };
        let data = [sge];
        let data = if message.len() <= usize::from(self.sizes.inline) {
            Data::Inline(message)
        } else {
            if let Some(memory) = device.memory_mut(self.send_buffer.key) {
                memory.write(offset, message);
            }
            Data::Gather(&data)
        };
        let op = SendOp::Datagram { path, dest_qp, qkey: QKEY, immediate: None };
        device.post_send(now, qp, &SendWr::new(place.into(), op, data)).map_err(|_| {
            self.free.push(place);
            Error::NoBuffers
        })
    }

    /// Copies the next datagram to `out`, as much as there is room for, and gives how much, and whose it is. The rest of it is gone; with `peek` nothing is.
    ///
    /// # Errors
    /// [`Error::WouldBlock`].
    pub fn recv_from<D: Messages>(
        &mut self,
        now: Instant,
        device: &mut D,
        out: &mut [u8],
        peek: bool,
    ) -> Result<(usize, SocketAddr), Error> {
        self.poll(now, device);
        let (len, from) = match self.received.front().ok_or(Error::WouldBlock)? {
            Received::Placed { at, offset, len, from, .. } => {
                let len = out.len().min(*len as usize);
                if let Some(memory) = self.queue_pairs.get(at).and_then(|qp| device.memory(qp.recv_buffer.key)) {
                    memory.read((*offset).into(), &mut out[..len]);
                }
                (len, *from)
            }
            Received::ByUdp { bytes, from } => {
                let len = out.len().min(bytes.len());
                out[..len].copy_from_slice(&bytes[..len]);
                (len, *from)
            }
        };
        if !peek {
            match self.received.pop_front() {
                Some(Received::Placed { at, place, .. }) => self.post_receive(now, device, at, place),
                Some(Received::ByUdp { .. }) => self.by_udp -= 1,
                None => {}
            }
        }
        Ok((len, from))
    }

    /// How long the next datagram is.
    pub fn next_len(&self) -> Option<usize> {
        self.received.front().map(|next| match next {
            Received::Placed { len, .. } => *len as usize,
            Received::ByUdp { bytes, .. } => bytes.len(),
        })
    }

    /// Whether peers are asked again from time to time for their queue pairs, because nobody tells of those that are gone, and begin anew: on a network.
    pub const fn set_doubts(&mut self, has_doubts: bool) {
        self.known.has_doubts = has_doubts;
    }

    /// Forgets a peer's queue pair: who has its address is somebody else, or has another one. What is sent next goes by UDP again.
    pub fn forget(&mut self, peer: SocketAddr) {
        self.known.forget(peer);
    }

    /// What can be done now without waiting. [`Datagrams::poll`] comes first.
    pub fn readiness(&self) -> Readiness {
        let mut ready = Readiness::empty();
        ready.set(Readiness::IN, !self.received.is_empty());
        ready.set(Readiness::OUT, !self.free.is_empty());
        ready
    }

    /// Its completion queues, whose events wake: one for each address of ours that it uses.
    pub fn cqs(&self) -> impl Iterator<Item = u32> {
        self.queue_pairs.values().map(|qp| qp.cq)
    }

    /// Unmakes all that it has.
    pub fn destroy<D: Messages>(&mut self, device: &mut D) {
        for qp in core::mem::take(&mut self.queue_pairs).into_values() {
            qp.destroy(device);
        }
        device.deregister(self.send_buffer.key);
        self.received.clear();
        self.free.clear();
    }

    /// Whether a datagram of that sender's is taken.
    fn takes(&self, from: SocketAddr) -> bool {
        self.peer.is_none_or(|peer| peer == from)
    }
}
