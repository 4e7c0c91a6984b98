//! Processes on the bus with which this one has connections: when one ends, however that came, what it had connected ends, as by its kernel's last words.

use core::time::Duration;
use std::collections::BTreeSet;
use std::net::IpAddr;

use ringway_stack::time::Instant;

use super::Engine;
use crate::sysfs;

/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Batches of packets that are taken first of what an ended process has sent: others go on sending.
const LAST_BATCHES_MAX: usize = 64;

/// The slot of a queue pair's process.
fn slot_of(qpn: u32) -> u8 {
    (qpn >> 16) as u8
}

impl Engine {
    /// Looks at who has ended, from time to time. Whether somebody had.
    pub(super) fn members(&mut self, now: Instant) -> bool {
        if now < self.look_at {
            return false;
        }
        self.look_at = now + LOOK_EVERY;
        self.bus.receive_visitors();
        // (What is connected over the interface is another machine's to part.)
        let here = IpAddr::V4(sysfs::address());
        let on_bus = self.node.remote_queue_pairs().filter(|(peer, _)| *peer == here);
        let mut slots: BTreeSet<u8> = on_bus.map(|(_, qpn)| slot_of(qpn)).collect();
        slots.remove(&self.bus.slot());
        self.bus.watch(&slots);
        let ended = self.bus.ended();
        if ended.is_empty() {
            return false;
        }
        // What they had sent is there by now, and comes first.
        for _ in 0..LAST_BATCHES_MAX {
            if !self.packets() {
                break;
            }
        }
        let now = self.now();
        self.node.on_queue_pairs_gone(now, &|peer, qpn| peer == here && ended.contains(&slot_of(qpn)));
        true
    }
}
