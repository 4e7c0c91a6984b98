//! Cyclic rings whose records the card writes by itself, into striding receive queues: a read gives out where they lie, and nothing is copied.
//!
//! There is one such queue for each of the process's rings on a card that a socket of the cyclic ring has flows on. What comes for the sockets by another way
//! (shared memory, the kernel, a ring without such queues) is written by software, beside them.

use ringway_stack::Instant;
use ringway_stack::cyclic::{CyclicError, Layout, Run};
use ringway_stack::device::{CyclicId, Protocol};
use ringway_stack::ring::FlowId;

use super::CyclicRing;
use crate::card_time::CardTime;
use crate::process::Offload;
use crate::rings::Rings;
use crate::slab::Key;
use crate::socket::Socket;

/// A striding queue of a ring of the process's.
#[derive(Debug)]
pub(super) struct Striding {
    ring: u16,
    queue: CyclicId,
    /// Its memory: where it begins, how long it is, and by which key the card knows it. Invariant: it is there as long as the queue.
    base: *mut u8,
    pub(super) len: usize,
    pub(super) lkey: u32,
    clock: CardTime,
}

// SAFETY: an address, which the program alone follows.
unsafe impl Send for Striding {}

impl Striding {
    /// Where a byte of its buffer is.
    pub(super) fn at(&self, place: usize) -> *mut u8 {
        self.base.wrapping_add(place)
    }

    /// The next run, with its time by the process's clock. `None` also of a ring that is gone.
    pub(super) fn read(&mut self, rings: &mut Rings, now: Instant, min: usize, max: usize) -> Result<Option<Run>, CyclicError> {
        let read = rings.at_mut(self.ring).ring.strides_read(now, self.queue, min, max);
        match read {
            Ok(Some(mut run)) => {
                run.received = run.hardware_time.map_or(run.received, |at| self.clock.told(at, run.received));
                Ok(Some(run))
            }
            Err(CyclicError::Socket(_)) => Ok(None),
            other => other,
        }
    }

    fn close(&self, rings: &mut Rings) {
        rings.at_mut(self.ring).ring.strides_close(self.queue);
    }
}

impl CyclicRing {
    /// The striding queue of one of the process's rings, made if there is none yet. `None`, and a line in the log: there is none to be had.
    fn striding_on(&mut self, rings: &mut Rings, ring: u16) -> Option<CyclicId> {
        if let Some(there) = self.striding.iter().find(|striding| striding.ring == ring) {
            return Some(there.queue);
        }
        let layout = self.buffer.layout();
        let of = &mut rings.at_mut(ring).ring;
        let made = of.strides_open(layout).map_err(|error| {
            tracing::info!("a cyclic ring's records on a card are written by software: {error}");
        });
        let queue = made.ok()?;
        let Some((base, len, lkey)) = of.strides_memory(queue) else {
            of.strides_close(queue);
            return None;
        };
        tracing::info!("a cyclic ring whose records the card writes: {len} bytes, in strides of {}", layout.record_bytes);
        self.striding.push(Striding { ring, queue, base, len, lkey, clock: CardTime::default() });
        Some(queue)
    }

    /// It ends.
    pub(super) fn end(self, rings: &mut Rings) {
        self.striding.iter().for_each(|striding| striding.close(rings));
    }
}

impl Offload {
    /// Whether a socket is on a cyclic ring, or is to be.
    pub(crate) fn is_on_cyclic_ring(&self, socket: &Socket) -> bool {
        let profile = socket.rare.as_ref().map_or(0, |rare| rare.rings.profile());
        self.cyclic.geometry(profile).is_some()
    }

    /// Whether a UDP socket is on a cyclic ring, or is to be, whose records a card could write.
    pub(crate) fn is_for_strides(&self, socket: &Socket) -> bool {
        let Some(rare) = socket.rare.as_ref().filter(|_| socket.protocol == Protocol::Udp) else { return false };
        // (Records in the program's own memory are written by software: the card knows nothing of it.)
        let is_simple = rare.rings.user_memory.is_none() && socket.callback().is_none() && socket.peer.is_none();
        let layout = self.cyclic.geometry(rare.rings.profile()).and_then(|geometry| geometry.layout().ok());
        is_simple && layout.as_ref().and_then(Layout::striding).is_some()
    }

    /// Whether a ring's device has striding receive queues, whose bytes a program can be shown.
    pub(crate) fn has_strides(&self, ring: u16) -> bool {
        self.rings.interfaces.contains(ring) && self.rings.at(ring).ring.capabilities().striding
    }

    /// A socket of a cyclic ring has a flow: if a card can write its records, it does from now on.
    pub(in crate::extra) fn lead_to_strides(&mut self, flow: FlowId, index: u32) {
        let is_meant = self.has_strides(flow.ring) && self.sockets.get(index).is_some_and(|socket| self.is_for_strides(socket));
        let Self { cyclic, rings, .. } = self;
        let Some(cyclic) = cyclic.rings.iter_mut().find(|cyclic| is_meant && cyclic.members.contains(&index)) else { return };
        let Some(queue) = cyclic.striding_on(rings, flow.ring) else { return };
        if let Err(error) = rings.of_mut(flow).udp_to_strides(flow, queue) {
            tracing::info!("a socket's records on a card are written by software: {error}");
        }
    }

    /// A socket has left a cyclic ring, which ends with its last.
    pub(in crate::extra) fn leave_cyclic(&mut self, ring: Key, index: u32) {
        for ended in self.cyclic.leave(ring, index) {
            ended.end(&mut self.rings);
        }
    }
}
