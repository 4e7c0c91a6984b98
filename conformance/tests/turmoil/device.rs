//! A device without hardware: frames that wait to be sent, and frames that were received.

use core::cell::RefCell;
use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_stack::Instant;
use ringway_stack::device::{
    Capabilities, DeviceEvent, HEAD_MAX, MacAddr, Queues, RxBatch, RxBuffer, SendError, SingleQueue, TxBuffer, TxFrame, Wake,
};
use ringway_stack::offload::DeviceKind;

const MTU: usize = 1500;
const BUFFER_LEN: usize = 2048;
/// Frames that wait to be sent; then the stack waits, as for a card.
const SEND_QUEUE_MAX: usize = 256;

/// The frames between a device and the task that carries them.
#[derive(Clone, Default)]
pub(crate) struct Frames(Rc<Waiting>);

#[derive(Default)]
struct Waiting {
    out: RefCell<VecDeque<Vec<u8>>>,
    into: RefCell<VecDeque<Vec<u8>>>,
}

impl Frames {
    /// The next frame to send, and the address of the host that it is for.
    pub(crate) fn outgoing(&self) -> Option<(Ipv4Addr, Vec<u8>)> {
        let frame = self.0.out.borrow_mut().pop_front()?;
        let to = match frame[..6] {
            [0x02, 0, a, b, c, d] => Ipv4Addr::new(a, b, c, d),
            _ => Ipv4Addr::BROADCAST,
        };
        Some((to, frame))
    }

    /// A frame came in.
    pub(crate) fn arrived(&self, frame: &[u8]) {
        self.0.into.borrow_mut().push_back(frame.to_vec());
    }
}

/// The Ethernet address of the host at `ip`: locally administered (IEEE 802 s8.4), and it names the IP address.
fn mac_of(ip: Ipv4Addr) -> MacAddr {
    let [a, b, c, d] = ip.octets();
    MacAddr([0x02, 0, a, b, c, d])
}

/// The device.
pub(crate) struct TurmoilQueues {
    card: SingleQueue<Self>,
    mac: MacAddr,
    frames: Frames,
}

impl TurmoilQueues {
    pub(crate) fn new(ip: Ipv4Addr, frames: Frames) -> Self {
        let capabilities = Capabilities { gather_max: 8, ..Capabilities::least(DeviceKind::Sim, MTU) };
        Self { card: SingleQueue::new(capabilities), mac: mac_of(ip), frames }
    }

    fn is_for_us(&self, frame: &[u8]) -> bool {
        let (to, from) = (frame.get(..6), frame.get(6..12));
        // turmoil's broadcasts come back to their sender, Ethernet's don't.
        from != Some(&self.mac.0) && (to == Some(&self.mac.0) || to.is_some_and(|to| to[0] & 1 == 1))
    }
}

impl Queues for TurmoilQueues {
    type Device = SingleQueue<Self>;
    type Rx = Received;
    type Tx = Sent;

    fn device(&self) -> &SingleQueue<Self> {
        &self.card
    }

    fn mac(&self) -> MacAddr {
        self.mac
    }

    fn poll_rx(&mut self, _: Instant, batch: &mut RxBatch<Received>) -> usize {
        let mut polled = 0;
        let mut queue = self.frames.0.into.borrow_mut();
        while !queue.is_empty() && !batch.is_full() {
            let Some(frame) = queue.pop_front() else { break };
            if !self.is_for_us(&frame) {
                continue;
            }
            let Some(slot) = batch.push_slot() else { break };
            let (frame, len): (Arc<[u8]>, _) = (frame.as_slice().into(), frame.len());
            slot.fill(&frame, (len > HEAD_MAX).then(|| Received { frame: frame.clone(), offset: 0, len }));
            polled += 1;
        }
        polled
    }

    fn rx_ready(&self) -> bool {
        !self.frames.0.into.borrow().is_empty()
    }

    fn tx_alloc(&mut self, _: usize) -> Option<Sent> {
        Some(Sent(Arc::new(Mutex::new(vec![0; BUFFER_LEN]))))
    }

    fn send(&mut self, frame: &TxFrame<'_, Sent>) -> Result<(), SendError> {
        let mut out = self.frames.0.out.borrow_mut();
        if out.len() >= SEND_QUEUE_MAX {
            return Err(SendError::Full);
        }
        let mut bytes = frame.head.to_vec();
        for slice in frame.body {
            bytes.extend_from_slice(&slice.buffer.bytes()[slice.offset..slice.offset + slice.len]);
        }
        out.push_back(bytes);
        Ok(())
    }

    fn doorbell(&mut self) {}

    fn reap(&mut self) {}

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        None
    }

    fn arm(&mut self, _wake: Wake) -> bool {
        !self.rx_ready()
    }

    fn disarm(&mut self) {}
}

/// Received bytes.
#[derive(Clone)]
pub(crate) struct Received {
    frame: Arc<[u8]>,
    offset: usize,
    len: usize,
}

impl RxBuffer for Received {
    fn len(&self) -> usize {
        self.len
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.frame[self.offset + offset..][..out.len()]);
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        sum(&self.frame[self.offset + offset..][..len])
    }

    fn slice(&self, offset: usize, len: usize) -> Self {
        Self { frame: Arc::clone(&self.frame), offset: self.offset + offset, len }
    }
}

/// A send buffer.
#[derive(Clone)]
pub(crate) struct Sent(Arc<Mutex<Vec<u8>>>);

impl Sent {
    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TxBuffer for Sent {
    fn capacity(&self) -> usize {
        BUFFER_LEN
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self.bytes()[offset..][..out.len()]);
    }

    fn checksum(&self, offset: usize, len: usize) -> u16 {
        sum(&self.bytes()[offset..offset + len])
    }
}

/// RFC 1071's sum.
fn sum(bytes: &[u8]) -> u16 {
    let mut sum: u64 = bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
