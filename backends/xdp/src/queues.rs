//! One ring: a queue of the interface.

use std::sync::Arc;

use libc::xdp_desc;
use ringway_stack::device::{ChecksumVerdict, DeviceEvent, HEAD_MAX, MacAddr, QueueId, Queues, RxBatch, SendError, TxFrame, Wake};
use ringway_stack::time::Instant;

use crate::card::XdpDevice;
use crate::error::AttachError;
use crate::partial;
use crate::send::{SendBuffer, SendMemory};
use crate::settings::Settings;
use crate::socket::XskSocket;
use crate::umem::{CHUNK, Received, Umem};

/// Bytes of an Ethernet header, with a VLAN tag.
const ETHERNET_MAX: usize = 18;

/// What a ring has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames received.
    pub received: u64,
    /// Frames sent.
    pub sent: u64,
    /// System calls to have the kernel send.
    pub wakeups: u64,
}

/// A ring on a queue of an interface.
#[derive(Debug)]
pub struct XdpQueues {
    socket: XskSocket,
    umem: Arc<Umem>,
    memory: Arc<SendMemory>,
    /// Chunks to send from that are neither queued nor on their way.
    free: Vec<u32>,
    /// Chunks that are to go to the fill queue.
    refill: Vec<u32>,
    counters: Counters,
    queue: u32,
    device: XdpDevice,
}

impl XdpQueues {
    pub(crate) fn open(device: &XdpDevice, settings: &Settings, queue: u32) -> Result<Self, AttachError> {
        let umem = Umem::map(settings.received_frames, settings.sent_frames).map_err(AttachError::system("memory for frames"))?;
        let socket = XskSocket::open(&umem, device.interface().index, queue)?;
        let (free, refill) = (umem.sends().collect(), umem.receives().collect());
        let memory = SendMemory::new(settings.send_bytes);
        let counters = Counters::default();
        let mut queues = Self { socket, umem: Arc::new(umem), memory, free, refill, counters, queue, device: device.clone() };
        queues.refill();
        device.place(queue, queues.socket.fd()).map_err(AttachError::system("BPF_MAP_UPDATE_ELEM of a socket"))?;
        Ok(queues)
    }

    /// What it has done.
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// Gives the kernel chunks to receive into.
    fn refill(&mut self) {
        self.refill.append(&mut self.umem.returned());
        while let Some(&chunk) = self.refill.last() {
            if !self.socket.fill.push(u64::from(chunk) * CHUNK as u64) {
                break;
            }
            self.refill.pop();
        }
        if self.socket.fill.publish() > 0 && self.socket.fill.needs_wakeup() {
            self.socket.wake_receiver();
        }
    }

    /// Puts a frame together.
    fn write(&self, chunk: u32, frame: &TxFrame<'_, SendBuffer>) -> usize {
        // SAFETY: the chunk is free: it is neither queued nor on its way, and whoever else had it has it no more.
        let out = unsafe { self.umem.chunk_mut(chunk) };
        out[..frame.head.len()].copy_from_slice(frame.head);
        let mut at = frame.head.len();
        for slice in frame.body {
            out[at..at + slice.len].copy_from_slice(slice.buffer.bytes(slice.offset, slice.len));
            at += slice.len;
        }
        at
    }
}

impl Drop for XdpQueues {
    fn drop(&mut self) {
        self.device.leave(self.queue);
    }
}

impl Queues for XdpQueues {
    type Device = XdpDevice;
    type Rx = Received;
    type Tx = SendBuffer;

    fn device(&self) -> &XdpDevice {
        &self.device
    }

    fn id(&self) -> QueueId {
        QueueId(self.queue)
    }

    fn mac(&self) -> MacAddr {
        self.device.interface().mac
    }

    fn poll_rx(&mut self, _: Instant, batch: &mut RxBatch<Received>) -> usize {
        let mut count = 0;
        while !batch.is_full() {
            let Some(xdp_desc { addr, len, .. }) = self.socket.received.pop() else { break };
            let Some((chunk, at)) = self.umem.received(addr, len) else { continue };
            let Some(frame) = batch.push_slot() else { break };
            // SAFETY: the kernel has given the chunk back, and has written the frame there; nobody has a handle yet.
            let bytes = unsafe { self.umem.bytes(chunk, at, len) };
            let head = bytes.len().min(HEAD_MAX);
            frame.head[..head].copy_from_slice(&bytes[..head]);
            let is_long = bytes.len() > HEAD_MAX;
            frame.set_whole(head, is_long.then(|| self.umem.hold(chunk, at, len)));
            if !is_long {
                self.refill.push(chunk);
            }
            if self.device.interface().is_virtual && partial::is_left_to_device(frame.head()) {
                frame.meta.checksum = ChecksumVerdict::Good;
            }
            count += 1;
        }
        if count > 0 {
            self.socket.received.release();
            self.counters.received += count as u64;
        }
        self.refill();
        count
    }

    fn rx_ready(&self) -> bool {
        !self.socket.received.is_empty()
    }

    fn rx_scarce(&self) -> bool {
        // (Chunks that are held are neither with the kernel nor on their way to it.)
        let most = self.umem.receives().len();
        self.refill.len() + self.socket.fill.waiting() as usize <= most / 4
    }

    fn tx_alloc(&mut self, len: usize) -> Option<SendBuffer> {
        self.memory.take(len)
    }

    fn tx_free(&mut self, _: usize) -> usize {
        self.memory.free()
    }

    fn send(&mut self, frame: &TxFrame<'_, SendBuffer>) -> Result<(), SendError> {
        if frame.len() > (self.device.interface().mtu + ETHERNET_MAX).min(CHUNK) || frame.head.len() > HEAD_MAX {
            return Err(SendError::TooLong);
        }
        let Some(&chunk) = self.free.last() else { return Err(SendError::Full) };
        let len = self.write(chunk, frame);
        let desc = xdp_desc { addr: u64::from(chunk) * CHUNK as u64, len: len as u32, options: 0 };
        if !self.socket.send.push(desc) {
            return Err(SendError::Full);
        }
        self.free.pop();
        self.counters.sent += 1;
        Ok(())
    }

    fn doorbell(&mut self) {
        self.socket.send.publish();
        let mut waiting = self.socket.send.waiting();
        while waiting > 0 && self.socket.send.needs_wakeup() {
            self.counters.wakeups += 1;
            match self.socket.wake_sender() {
                Ok(()) => {}
                // It has sent as many as it does at a time, or the device is full.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS)) => {}
                // The interface is down, or gone: what is queued leaves when it is up again.
                Err(error) => return tracing::debug!("frames are not sent: {error}"),
            }
            let left = self.socket.send.waiting();
            if left == waiting {
                // The next doorbell goes on.
                break;
            }
            waiting = left;
        }
    }

    fn reap(&mut self) {
        while let Some(address) = self.socket.completions.pop() {
            let chunk = (address / CHUNK as u64) as u32;
            if self.umem.sends().contains(&chunk) {
                self.free.push(chunk);
            }
        }
        self.socket.completions.release();
    }

    fn poll_event(&mut self) -> Option<DeviceEvent> {
        None
    }

    fn arm(&mut self, _: Wake) -> bool {
        !self.rx_ready()
    }

    fn disarm(&mut self) {}

    fn wait_fd(&self) -> Option<i32> {
        Some(self.socket.fd())
    }
}
