//! The device: packets of IP that the tester hands in, and those that the stack sent, each with its time.
//!
//! The stack speaks Ethernet, the tester IP alone: a header is put in front of what comes in, and taken off what goes out. There is one
//! peer, at one MAC address, whatever addresses of IP the tester lets it have.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_stack::Instant;
use ringway_stack::device::{
    Capabilities, ChecksumVerdict, DeviceEvent, MacAddr, Queues, RxBatch, RxBuffer, SendError, SingleQueue, TxBuffer, TxFrame, Wake,
};
use ringway_stack::offload::DeviceKind;
use ringway_stack::wire::checksum;

/// The host's MAC address, and that of its one peer (locally administered).
const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub(crate) const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// Packets that wait to be looked at, at most: a tester that looks at none is not to fill memory.
const WAITING_MAX: usize = 1 << 16;
/// The longest frame to be cut, in bytes: with a header of Ethernet before the longest packet of IP.
const TSO_MAX: usize = ETHERNET + u16::MAX as usize;
/// The longest send buffer.
const BUFFER_MAX: usize = 1 << 16;

/// A packet that the stack has sent: IP, from its header on.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    pub(crate) packet: Vec<u8>,
}

/// The one ring's queues.
pub(crate) struct Link {
    card: SingleQueue<Link>,
    inward: VecDeque<Arc<[u8]>>,
    outward: VecDeque<Sent>,
    /// What time it is: the owner sets it before it calls the ring.
    pub(crate) now: Instant,
}

impl Link {
    /// An interface with that MTU, in bytes of IP packet. What is for a device to cut the tester sees in one piece, as on Linux, where it is cut behind what can be captured.
    pub(crate) fn new(mtu: usize) -> Self {
        let least = Capabilities::least(DeviceKind::Sim, mtu);
        let capabilities = Capabilities { gather_max: 16, point_to_point: true, tso_max: Some(TSO_MAX), ..least };
        Self { card: SingleQueue::new(capabilities), inward: VecDeque::new(), outward: VecDeque::new(), now: Instant::ZERO }
    }

    /// A packet of IP arrives. What is neither of IPv4 nor of IPv6 is dropped.
    pub(crate) fn arrive(&mut self, packet: &[u8]) {
        let ether_type: [u8; 2] = match packet.first().map(|byte| byte >> 4) {
            Some(4) => [0x08, 0x00],
            Some(6) => [0x86, 0xdd],
            _ => return,
        };
        let frame = [&OURS.0[..], &PEER.0, &ether_type, packet].concat();
        self.inward.push_back(frame.into());
    }

    /// The next packet that was sent.
    pub(crate) fn take_sent(&mut self) -> Option<Sent> {
        self.outward.pop_front()
    }
}

impl Queues for Link {
    type Device = SingleQueue<Self>;
    type Rx = Received;
    type Tx = Buffer;

    fn device(&self) -> &SingleQueue<Self> {
        &self.card
    }

    fn mac(&self) -> MacAddr {
        OURS
    }

    fn poll_rx(&mut self, _: Instant, batch: &mut RxBatch<Received>) -> usize {
        let mut count = 0;
        while !batch.is_full()
            && let Some(bytes) = self.inward.pop_front()
            && let Some(frame) = batch.push_slot()
        {
            frame.fill(&bytes, Some(Received { len: bytes.len(), at: 0, bytes: bytes.clone() }));
            frame.meta.checksum = ChecksumVerdict::Unknown;
            count += 1;
        }
        count
    }

    fn rx_ready(&self) -> bool {
        !self.inward.is_empty()
    }

    fn tx_alloc(&mut self, len: usize) -> Option<Buffer> {
        Some(Buffer(Arc::new(Mutex::new(vec![0; len.clamp(1, BUFFER_MAX)]))))
    }

    fn send(&mut self, frame: &TxFrame<'_, Buffer>) -> Result<(), SendError> {
        if self.outward.len() == WAITING_MAX {
            return Err(SendError::Full);
        }
        let mut packet = frame.head.get(ETHERNET..).unwrap_or_default().to_vec();
        for slice in frame.body {
            let at = packet.len();
            packet.resize(at + slice.len, 0);
            slice.buffer.copy_to(slice.offset, &mut packet[at..]);
        }
        self.outward.push_back(Sent { at: self.now, packet });
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

/// Bytes that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    bytes: Arc<[u8]>,
    at: usize,
    len: usize,
}

impl Received {
    fn part(&self, offset: usize, len: usize) -> &[u8] {
        &self.bytes[self.at..self.at + self.len][offset..offset + len]
    }
}

impl RxBuffer for Received {
    fn len(&self) -> usize {
        self.len
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(self.part(offset, out.len()));
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        checksum::sum(self.part(offset, len))
    }

    fn slice(&self, offset: usize, len: usize) -> Self {
        assert!(offset + len <= self.len, "a part of the bytes");
        Self { bytes: self.bytes.clone(), at: self.at + offset, len }
    }
}

/// A send buffer.
#[derive(Clone, Debug)]
pub(crate) struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TxBuffer for Buffer {
    fn capacity(&self) -> usize {
        self.bytes().len()
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.bytes()[offset..offset + out.len()]);
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        checksum::sum(&self.bytes()[offset..offset + len])
    }
}
