//! Two hosts on a fabric that loses nothing, keeps the order, and knows of death: what shared memory between processes is.

use core::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::device::{
    Capabilities, ChecksumVerdict, DeviceEvent, FiveTuple, MacAddr, Queues, RxBatch, SendError, SingleQueue, TxFrame, Wake,
};
use ringway_stack::offload::DeviceKind;
use ringway_stack::wire::{ethernet, ipv4, tcp};

use crate::heap::{self, Buffer, Received};

/// Frames that wait at a host, at most: few, so that senders come to the end of them.
const ROOM: usize = 6;

/// A connection's addresses: its owner's first.
pub(super) type Ends = (SocketAddr, SocketAddr);

/// What lies between the two.
#[derive(Debug, Default)]
pub(super) struct Fabric {
    /// Frames on their way to each.
    queues: [VecDeque<Vec<u8>>; 2],
    dead: [bool; 2],
    /// Bytes of streams that each has put on the fabric, and whether their end has followed.
    pub(super) sent: BTreeMap<Ends, (usize, bool)>,
    /// Bytes of streams that have been polled by who they are for, and those of them that its stack is through with.
    polled: BTreeMap<Ends, usize>,
    processed: BTreeMap<Ends, usize>,
    /// What each has noted of its connections.
    unfinished: BTreeMap<Ends, bool>,
}

/// A host.
#[derive(Debug)]
pub(super) struct Nic {
    card: SingleQueue<Self>,
    number: usize,
    fabric: Rc<RefCell<Fabric>>,
    events: VecDeque<DeviceEvent>,
    knows: bool,
    lent: Rc<Cell<usize>>,
}

/// The address of a host.
pub(super) const fn mac(number: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, number as u8])
}

impl Nic {
    /// One of the two.
    pub(super) fn new(number: usize, fabric: &Rc<RefCell<Fabric>>) -> Self {
        let capabilities = Capabilities {
            tx_checksum: true,
            rx_checksum: true,
            point_to_point: true,
            gather_max: 4,
            ..Capabilities::least(DeviceKind::Sim, 1500)
        };
        Self {
            card: SingleQueue::new(capabilities),
            number,
            fabric: fabric.clone(),
            events: VecDeque::new(),
            knows: false,
            lent: Rc::default(),
        }
    }

    /// It dies: what it has sent is still received.
    pub(super) fn die(&self) {
        self.fabric.borrow_mut().dead[self.number] = true;
    }
}

/// The bytes of a stream that a frame brings: whose stream it is, how many they are, and whether they are the last.
fn stream_of(frame: &[u8]) -> Option<(Ends, usize, bool)> {
    let (_, at) = ethernet::Header::parse(frame).ok()?;
    let (ip, len) = ipv4::Header::parse(&frame[at..]).ok()?;
    let (tcp, head) = tcp::Header::parse(&frame[at + len..]).ok()?;
    let ends = (SocketAddr::new(ip.src.into(), tcp.src_port), SocketAddr::new(ip.dst.into(), tcp.dst_port));
    Some((ends, usize::from(ip.total_len) - len - head, tcp.flags.contains(tcp::Flags::FIN)))
}

fn ends_of(flow: &FiveTuple) -> Ends {
    (flow.local, flow.remote.expect("a connection"))
}

impl Queues for Nic {
    type Device = SingleQueue<Self>;
    type Rx = Received;
    type Tx = Buffer;

    fn device(&self) -> &SingleQueue<Self> {
        &self.card
    }

    fn mac(&self) -> MacAddr {
        mac(self.number)
    }

    fn poll_rx(&mut self, _now: Instant, batch: &mut RxBatch<Received>) -> usize {
        let fabric = &mut *self.fabric.borrow_mut();
        let mut count = 0;
        while !batch.is_full()
            && let Some(frame) = fabric.queues[self.number].pop_front()
        {
            if let Some((ends, len, _)) = stream_of(&frame) {
                *fabric.polled.entry(ends).or_default() += len;
            }
            let Some(slot) = batch.push_slot() else { break };
            slot.meta.checksum = ChecksumVerdict::Good;
            Received::fill(slot, frame);
            count += 1;
        }
        // The news comes behind everything else.
        if count == 0 && fabric.dead[1 - self.number] && !core::mem::replace(&mut self.knows, true) {
            self.events.push_back(DeviceEvent::PeerGone(mac(1 - self.number)));
        }
        count
    }

    fn rx_ready(&self) -> bool {
        !self.fabric.borrow().queues[self.number].is_empty() || !self.events.is_empty()
    }

    fn tx_alloc(&mut self, _len: usize) -> Option<Buffer> {
        Some(Buffer::lend(&self.lent))
    }

    fn send(&mut self, frame: &TxFrame<'_, Buffer>) -> Result<(), SendError> {
        let fabric = &mut *self.fabric.borrow_mut();
        if self.knows {
            return Err(SendError::NoPeer);
        }
        let queue = &mut fabric.queues[1 - self.number];
        if queue.len() >= ROOM {
            return Err(SendError::Full);
        }
        let bytes = heap::gathered(frame);
        if let Some((ends, len, is_last)) = stream_of(&bytes) {
            let (sent, ended) = fabric.sent.entry(ends).or_default();
            *sent += len;
            *ended |= is_last;
        }
        queue.push_back(bytes);
        Ok(())
    }

    fn doorbell(&mut self) {}

    fn reap(&mut self) {}

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        self.events.pop_front()
    }

    fn note_processed(&mut self) {
        let fabric = &mut *self.fabric.borrow_mut();
        fabric.processed.clone_from(&fabric.polled);
    }

    fn note_unfinished(&mut self, _mac: MacAddr, flow: &FiveTuple, is_unfinished: bool) {
        let before = self.fabric.borrow_mut().unfinished.insert(ends_of(flow), is_unfinished);
        assert!(before.unwrap_or(false) != is_unfinished, "checker deaths: what is noted does not change");
    }

    fn left_finished(&mut self, _mac: MacAddr, flow: &FiveTuple) -> bool {
        let fabric = self.fabric.borrow();
        let (local, remote) = ends_of(flow);
        let sent = fabric.sent.get(&(local, remote)).map_or(0, |(sent, _)| *sent);
        let processed = fabric.processed.get(&(local, remote)).copied().unwrap_or(0);
        sent == processed && !fabric.unfinished.get(&(remote, local)).copied().unwrap_or(false)
    }

    fn arm(&mut self, _wake: Wake) -> bool {
        false
    }

    fn disarm(&mut self) {}
}
