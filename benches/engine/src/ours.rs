//! Ringway's stack: a ring at each end of the wire, as its defaults are (SACK, timestamps, window scaling, CUBIC).

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, bail};
use ringway_stack::device::{
    Capabilities, ChecksumVerdict, Device as _, DeviceEvent, HEAD_MAX, MacAddr, Queues, RxBatch, SendError, SingleQueue, TxBuffer as _,
    TxFrame, Wake,
};
use ringway_stack::offload::DeviceKind;
use ringway_stack::ring::{FlowId, NextHop, RecvFlags, Ring, RingConfig, SendFlags};
use ringway_stack::tcp::Config;
use ringway_stack::{Error, Instant};

use crate::wire::{Bytes, Checksums, Direction, Pool};

/// Bytes of a send buffer.
const SEND_BUFFER: usize = 16 << 10;
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const SERVER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const PORT: u16 = 80;
/// Ports of a client's address.
const PORTS: u32 = 50_000;

/// One end.
pub(crate) struct End {
    card: SingleQueue<Self>,
    mac: MacAddr,
    buffers: Rc<Pool>,
    frames: Rc<Pool>,
    inward: Rc<Direction>,
    outward: Rc<Direction>,
}

impl Queues for End {
    type Device = SingleQueue<Self>;
    type Rx = Bytes;
    type Tx = Bytes;

    fn device(&self) -> &SingleQueue<Self> {
        &self.card
    }
    fn mac(&self) -> MacAddr {
        self.mac
    }
    fn poll_rx(&mut self, _: Instant, batch: &mut RxBatch<Bytes>) -> usize {
        let mut count = 0;
        while !batch.is_full() {
            let Some(bytes) = self.inward.pop() else { break };
            let Some(frame) = batch.push_slot() else { break };
            let head_len = bytes.read(|bytes| {
                let head_len = bytes.len().min(HEAD_MAX);
                frame.head[..head_len].copy_from_slice(&bytes[..head_len]);
                head_len
            });
            let is_longer = bytes.capacity() > head_len;
            frame.set_whole(head_len, is_longer.then_some(bytes));
            frame.meta.checksum = if self.card.capabilities().rx_checksum { ChecksumVerdict::Good } else { ChecksumVerdict::Unknown };
            count += 1;
        }
        count
    }
    fn rx_ready(&self) -> bool {
        !self.inward.is_empty()
    }
    fn tx_alloc(&mut self, _: usize) -> Option<Bytes> {
        self.buffers.take()
    }
    fn send(&mut self, frame: &TxFrame<'_, Bytes>) -> Result<(), SendError> {
        if self.outward.is_full() {
            return Err(SendError::Full);
        }
        let mut sent = self.frames.take().ok_or(SendError::Full)?;
        sent.fill(frame.len(), |bytes| {
            let (head, mut rest) = bytes.split_at_mut(frame.head.len());
            head.copy_from_slice(frame.head);
            for slice in frame.body {
                let (part, behind) = rest.split_at_mut(slice.len);
                slice.buffer.read(|buffer| part.copy_from_slice(&buffer[slice.offset..slice.offset + slice.len]));
                rest = behind;
            }
        });
        self.outward.push(sent);
        Ok(())
    }
    fn doorbell(&mut self) {}
    fn reap(&mut self) {}
    fn poll_event(&mut self) -> Option<DeviceEvent> {
        None
    }
    fn arm(&mut self, _: Wake) -> bool {
        !self.rx_ready()
    }
    fn disarm(&mut self) {}
}

/// A client and a server.
pub(crate) struct Hosts {
    pub(crate) now: Instant,
    pub(crate) client: Ring<End>,
    pub(crate) server: Ring<End>,
    listener: FlowId,
    config: Config,
    there: Rc<Direction>,
    begun: u32,
}

impl Hosts {
    /// With frames of up to `mtu` bytes of IP packet. `buffer`: bytes of each socket's buffers; `None`: as they come, tuned by themselves.
    pub(crate) fn new(mtu: usize, buffer: Option<usize>, checksums: Checksums) -> Result<Self> {
        let (there, back, frames) = (Direction::new(), Direction::new(), Pool::new(mtu + 14));
        let by_device = checksums == Checksums::Device;
        let caps = Capabilities {
            gather_max: 8,
            point_to_point: true,
            tx_checksum: by_device,
            rx_checksum: by_device,
            ..Capabilities::least(DeviceKind::Sim, mtu)
        };
        let ring = |number: u8, inward: &Rc<Direction>, outward: &Rc<Direction>| {
            let card = SingleQueue::new(caps.clone());
            let (inward, outward, frames) = (Rc::clone(inward), Rc::clone(outward), Rc::clone(&frames));
            let end = End { card, mac: MacAddr([2, 0, 0, 0, 0, number]), buffers: Pool::new(SEND_BUFFER), frames, inward, outward };
            // (TIME-WAIT as short as that: what is counted is connections that stand, and a hundred of those.)
            let config = RingConfig { flows_max: 4 << 20, time_wait: Duration::from_millis(10), ..RingConfig::default() };
            Ring::new(end, config, [number; 32])
        };
        let (client, mut server) = (ring(1, &back, &there), ring(2, &there, &back));
        let config = Config { mss_max: u16::MAX, rcvbuf: buffer, sndbuf: buffer, ..Config::default() };
        let listener = server.tcp_listen(SocketAddr::new(SERVER.into(), PORT), 1 << 20, &config)?;
        Ok(Self { now: Instant::from_nanos(1_000_000_000), client, server, listener, config, there, begun: 0 })
    }

    /// Segments with payload that the client has sent.
    pub(crate) fn segments(&self) -> u64 {
        self.there.segments()
    }

    /// A connection from both ends, the client's and the server's, accepted.
    pub(crate) fn connect(&mut self) -> Result<(FlowId, FlowId)> {
        let (host, port) = (self.begun / PORTS, 1024 + (self.begun % PORTS) as u16);
        self.begun += 1;
        let local = SocketAddr::new(Ipv4Addr::from_bits(CLIENT.to_bits() + 256 * host).into(), port);
        let remote = SocketAddr::new(SERVER.into(), PORT);
        let client = self.client.tcp_connect(self.now, local, remote, NextHop::Mac(SERVER_MAC), &self.config)?;
        self.settle();
        Ok((client, self.server.tcp_accept(self.listener)?))
    }

    /// Closes both ends, the client's first.
    pub(crate) fn close(&mut self, (client, server): (FlowId, FlowId)) -> Result<()> {
        self.client.close(self.now, client, false);
        self.settle();
        let end = self.server.tcp_recv(self.now, server, &mut [IoSliceMut::new(&mut [0; 8])], RecvFlags::empty())?;
        if end != 0 {
            bail!("{end} bytes that nobody sent");
        }
        self.server.close(self.now, server, false);
        self.settle();
        Ok(())
    }

    /// Both look until nothing comes any more.
    pub(crate) fn settle(&mut self) {
        while self.client.poll(self.now) + self.server.poll(self.now) > 0 {}
        self.take_events();
    }

    /// What programs would be told.
    pub(crate) fn take_events(&mut self) {
        for ring in [&mut self.client, &mut self.server] {
            while ring.take_event().is_some() {}
        }
    }

    /// Time passes, and what is due happens.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        let next = |hosts: &Self| [hosts.client.next_deadline(), hosts.server.next_deadline()].into_iter().flatten().min();
        while let Some(next) = next(self).filter(|next| *next <= end) {
            self.now = self.now.max(next) + Duration::from_nanos(1);
            self.settle();
        }
        self.now = end;
        self.settle();
    }
}

/// Looks until nothing comes any more.
pub(crate) fn poll_all(ring: &mut Ring<End>, now: Instant) {
    while ring.poll(now) > 0 {}
}

/// Sends what fits. How many bytes that were.
///
/// # Errors
/// The connection's.
pub(crate) fn send(ring: &mut Ring<End>, now: Instant, flow: FlowId, bytes: &[u8]) -> Result<usize> {
    match ring.tcp_send(now, flow, &[IoSlice::new(bytes)], SendFlags::empty()) {
        Ok(taken) => Ok(taken),
        Err(Error::WouldBlock | Error::NoBuffers) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Receives what is there. How many bytes that were.
///
/// # Errors
/// The connection's, or it has ended.
pub(crate) fn receive(ring: &mut Ring<End>, now: Instant, flow: FlowId, into: &mut [u8]) -> Result<usize> {
    match ring.tcp_recv(now, flow, &mut [IoSliceMut::new(into)], RecvFlags::empty()) {
        Ok(0) => bail!("the stream has ended"),
        Ok(len) => Ok(len),
        Err(Error::WouldBlock) => Ok(0),
        Err(error) => Err(error.into()),
    }
}
