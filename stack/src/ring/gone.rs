//! A device that is gone: what each socket of the ring hears of it. And peers that are, of a device that goes on.
//!
//! No timer would tell them soon, and of those that only wait, none ever. (Linux's own sockets hear nothing when an interface is removed. There its routes are gone
//! with it, and a connection may go on by another interface; here what a ring has goes by its one device.)

use super::Ring;
use super::slots::Flow;
use crate::device::{FiveTuple, Protocol, Queues};
use crate::error::Error;
use crate::flow::Readiness;
use crate::marks::mark;
use crate::time::Instant;

impl<Q: Queues> Ring<Q> {
    /// Whether [`crate::device::DeviceEvent::Gone`] has come: nothing comes or goes out any more, and who has sockets elsewhere as well may close those here.
    pub const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// The device is gone: connections fail, and calls for the other sockets do from now on. What was received can still be read.
    #[cold]
    pub(super) fn device_gone(&mut self, now: Instant) {
        self.is_gone = true;
        self.partings.are_gone(|_| true);
        let all: Vec<u32> = self.slots.iter().map(|(id, _)| id.index).collect();
        for &index in &all {
            match self.slots.awake_at(index) {
                Some(Flow::Stream(stream)) => stream.connection.device_gone(),
                Some(Flow::Listener(listener)) => listener.error = Some(Error::NetworkDown),
                Some(Flow::Udp(udp)) => udp.error = Some(Error::NetworkDown),
                Some(Flow::Resting(_)) | None => continue,
            }
        }
        for index in all {
            match self.slots.at(index) {
                Some(Flow::Stream(_)) => self.after_input(now, index),
                Some(_) => self.raise(index, Readiness::ERR | Readiness::IN | Readiness::OUT),
                None => {}
            }
        }
    }

    /// Peers are gone: no timer would tell who only waits for one. What was received can still be read.
    #[cold]
    pub(super) fn peers_gone(&mut self, now: Instant) {
        let Self { slots, queues, partings, .. } = self;
        partings.are_gone(|flow| queues.is_gone(flow));
        let is_lost = |flow: &Flow<Q>| {
            let Some((local, remote)) = flow.stream_ends() else { return false };
            queues.is_gone(&FiveTuple { protocol: Protocol::Tcp, local, remote: Some(remote) })
        };
        let lost: Vec<u32> = slots.iter().filter(|(_, flow)| is_lost(flow)).map(|(id, _)| id.index).collect();
        // (As in `peer_gone`: all of them are told before one sends.)
        for &index in &lost {
            mark!(self, PeerGone);
            if let Some(stream) = self.slots.stream_at(index) {
                let is_finished = stream.connection.has_peer_ended();
                stream.connection.peer_died(is_finished);
            }
        }
        for index in lost {
            self.after_input(now, index);
        }
    }
}
