//! Frames on their way out.

use libc::xdp_desc;
use ringway_host::SendBuffer;
use ringway_stack::device::{Queues as _, SendError, TxFrame};

use super::XdpQueues;
use crate::interface::longest;
use crate::metadata;
use crate::socket::CONTINUES;
use crate::tso;
use crate::umem::CHUNK;

impl XdpQueues {
    /// Queues a frame that one chunk has room for.
    pub(super) fn queue(&mut self, frame: &TxFrame<'_, SendBuffer>) -> Result<(), SendError> {
        let Some(&chunk) = self.free.last() else { return Err(SendError::Full) };
        let (len, options) = self.write(chunk, frame);
        if !self.first.send.push(self.descriptor(chunk, len, options)) {
            return Err(SendError::Full);
        }
        self.free.pop();
        Ok(())
    }

    /// Queues one that takes several: all of it, or nothing.
    pub(super) fn queue_long(&mut self, frame: &TxFrame<'_, SendBuffer>) -> Result<(), SendError> {
        let room = self.umem.send_room();
        let chunks = frame.len().div_ceil(room);
        if self.free.len() < chunks || !self.first.send.has_room(chunks as u32) {
            return Err(SendError::Full);
        }
        let own = self.free.split_off(self.free.len() - chunks);
        let mut options = self.write_long(&own, frame);
        let mut left = frame.len();
        for chunk in own {
            let len = left.min(room);
            left -= len;
            options |= if left > 0 { CONTINUES } else { 0 };
            let is_queued = self.first.send.push(self.descriptor(chunk, len, core::mem::take(&mut options)));
            debug_assert!(is_queued, "there was room");
        }
        Ok(())
    }

    /// Sends a frame in segments, behind what is queued.
    pub(super) fn send_cut(&mut self, frame: &TxFrame<'_, SendBuffer>, mss: u16) -> Result<(), SendError> {
        self.doorbell();
        let device = self.device.clone();
        let Some(segmenter) = device.segmenter() else { return Err(self.capabilities().lacks("TSO").into()) };
        // (Seed 003: segments beyond the MTU are refused, and not left for the kernel to lose.)
        let segment = frame.head.len() + usize::from(mss);
        if frame.len() > tso::FRAME_MAX || mss == 0 || segment > longest(self.device.interface(), frame.head) {
            return Err(SendError::TooLong);
        }
        if self.first.send.waiting() > 0 {
            return Err(SendError::Full);
        }
        self.counters.wakeups += 1;
        match segmenter.send(frame, mss) {
            Ok(()) => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS)) => return Err(SendError::Full),
            // It is lost, as where the interface is down.
            Err(error) => tracing::debug!("a frame is not sent: {error}"),
        }
        self.counters.sent += (frame.len() - frame.head.len()).div_ceil(usize::from(mss)) as u64;
        self.counters.sent_bytes += frame.len() as u64;
        Ok(())
    }

    /// Puts a frame together: its length, and what its descriptor says of it.
    fn write(&self, chunk: u32, frame: &TxFrame<'_, SendBuffer>) -> (usize, u32) {
        // SAFETY: the chunk is free: it is neither queued nor on its way, and whoever else had it has it no more.
        let (metadata, out) = unsafe { self.umem.chunk_mut(chunk) }.split_at_mut(self.umem.send_at());
        let head = &mut out[..frame.head.len()];
        head.copy_from_slice(frame.head);
        let options = self::metadata(metadata, head, frame);
        let mut at = frame.head.len();
        for slice in frame.body {
            out[at..at + slice.len].copy_from_slice(slice.buffer.bytes(slice.offset, slice.len));
            at += slice.len;
        }
        (at, options)
    }

    /// The same in several chunks, which have room for it, one behind the other: what the first descriptor says of it.
    fn write_long(&self, chunks: &[u32], frame: &TxFrame<'_, SendBuffer>) -> u32 {
        let (send_at, mut place, mut at) = (self.umem.send_at(), 0, self.umem.send_at());
        let bodies = frame.body.iter().map(|slice| slice.buffer.bytes(slice.offset, slice.len));
        for mut bytes in core::iter::once(frame.head).chain(bodies) {
            while !bytes.is_empty() {
                if at == CHUNK {
                    (place, at) = (place + 1, send_at);
                }
                // SAFETY: as in `write`, of each; and one at a time.
                let out = unsafe { self.umem.chunk_mut(chunks[place]) };
                let (now, later) = bytes.split_at(bytes.len().min(CHUNK - at));
                out[at..at + now.len()].copy_from_slice(now);
                (bytes, at) = (later, at + now.len());
            }
        }
        for &chunk in chunks {
            // SAFETY: as above.
            let room = unsafe { self.umem.chunk_mut(chunk) };
            room[..send_at].fill(0);
        }
        // SAFETY: as above.
        let (metadata, out) = unsafe { self.umem.chunk_mut(chunks[0]) }.split_at_mut(send_at);
        self::metadata(metadata, &mut out[..frame.head.len()], frame)
    }

    fn descriptor(&self, chunk: u32, len: usize, options: u32) -> xdp_desc {
        xdp_desc { addr: u64::from(chunk) * CHUNK as u64 + self.umem.send_at() as u64, len: len as u32, options }
    }
}

/// Fills in what is in front of a frame, where there is room for that, and is what its descriptor says. (Some drivers read it whatever that says.)
fn metadata(room: &mut [u8], head: &mut [u8], frame: &TxFrame<'_, SendBuffer>) -> u32 {
    let left = if frame.offload.checksum { metadata::leave(head, frame.len()) } else { None };
    match left {
        Some(left) => {
            room.copy_from_slice(&left.metadata());
            metadata::IS_THERE
        }
        None => {
            room.fill(0);
            0
        }
    }
}
