//! Rings that have MAC addresses of their own ([`super::NicConfig::mac_per_ring`]): what a process that dies leaves for its peers to read, as shared memory has it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use ringway_stack::device::{FiveTuple, MacAddr, RxBatch};

use super::SimRx;
use super::hardware::Hardware;
use crate::dissect::mac_at;

/// A connection's addresses: its owner's first.
type Ends = (SocketAddr, SocketAddr);

/// What the rings of a NIC note for their peers, and what they know of those that died.
#[derive(Debug, Default)]
pub(super) struct DeathNotes {
    rings: Vec<Notes>,
    gone: BTreeMap<MacAddr, Rc<LeftBehind>>,
}

#[derive(Clone, Debug, Default)]
struct Notes {
    /// Frames that were sent to each MAC address, and polled from it.
    sent: BTreeMap<MacAddr, u64>,
    polled: BTreeMap<MacAddr, u64>,
    left: LeftBehind,
}

/// What a ring leaves behind.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeftBehind {
    /// Frames of each MAC address that its stack was through with.
    processed: BTreeMap<MacAddr, u64>,
    /// How often each connection was noted to be unfinished, for the MAC address that its peer is at.
    unfinished: BTreeMap<(MacAddr, Ends), u32>,
}

impl DeathNotes {
    fn ring(&mut self, ring: usize) -> &mut Notes {
        if self.rings.len() <= ring {
            self.rings.resize_with(ring + 1, Notes::default);
        }
        &mut self.rings[ring]
    }

    pub(super) fn processed(&mut self, ring: usize) {
        let notes = self.ring(ring);
        notes.left.processed.clone_from(&notes.polled);
    }

    pub(super) fn note(&mut self, ring: usize, mac: MacAddr, flow: &FiveTuple, is_unfinished: bool) {
        let Some(remote) = flow.remote else { return };
        let count = self.ring(ring).left.unfinished.entry((mac, (flow.local, remote))).or_default();
        *count = if is_unfinished { *count + 1 } else { count.checked_sub(1).expect("device contract: what is noted is noted once") };
    }

    /// Whether a peer that is gone was through with all that this ring had sent it, and owed the connection nothing.
    pub(super) fn left_finished(&self, ring: usize, own: MacAddr, mac: MacAddr, flow: &FiveTuple) -> bool {
        let (Some(left), Some(remote)) = (self.gone.get(&mac), flow.remote) else { return false };
        let sent = self.rings.get(ring).and_then(|notes| notes.sent.get(&mac)).copied().unwrap_or(0);
        let processed = left.processed.get(&own).copied().unwrap_or(0);
        sent == processed && left.unfinished.get(&(own, (remote, flow.local))).is_none_or(|&count| count == 0)
    }
}

impl Hardware {
    /// A ring's MAC address.
    pub(super) fn mac_of(&self, ring: usize) -> MacAddr {
        let [group, own, rest @ ..] = self.mac.0;
        let number = if self.config.mac_per_ring { u8::try_from(ring).unwrap_or(u8::MAX) } else { own };
        let [a, b, c, d] = rest;
        MacAddr([group, number, a, b, c, d])
    }

    /// The ring that a frame is for.
    pub(super) fn ring_of(&self, frame: &[u8]) -> Option<usize> {
        let to = mac_at(frame, 0)?;
        (0..self.rings.len()).find(|&ring| self.rings[ring].open && self.mac_of(ring) == to)
    }

    pub(super) fn sent(&mut self, ring: usize, head: &[u8]) {
        if let Some(to) = mac_at(head, 0) {
            *self.death_notes.ring(ring).sent.entry(to).or_default() += 1;
        }
    }

    /// What was added to a batch since it had `before` frames.
    pub(super) fn polled(&mut self, ring: usize, batch: &mut RxBatch<SimRx>, before: usize) {
        for from in batch.frames_mut().iter().skip(before).filter_map(|frame| mac_at(frame.head(), 6)) {
            *self.death_notes.ring(ring).polled.entry(from).or_default() += 1;
        }
    }

    pub(super) fn is_gone(&self, head: &[u8]) -> bool {
        !self.death_notes.gone.is_empty() && mac_at(head, 0).is_some_and(|to| self.death_notes.gone.contains_key(&to))
    }

    /// What each of its rings would leave behind if it died now.
    pub(super) fn left_behind(&mut self) -> Vec<(MacAddr, Rc<LeftBehind>)> {
        (0..self.rings.len()).map(|ring| (self.mac_of(ring), Rc::new(self.death_notes.ring(ring).left.clone()))).collect()
    }

    pub(super) fn tell_of_death(&mut self, mac: MacAddr, left: Rc<LeftBehind>) {
        self.death_notes.gone.insert(mac, left);
    }
}
