//! Busy polling: who looks at the ring and finds nothing has the kernel look at the interface's queues (Documentation/networking/napi.rst).

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::XdpQueues;
use crate::settings::Settings;
use crate::socket::XskSocket;

/// What there is to remember of asking the kernel to poll. (Whoever only looks at the ring asks, too.)
#[derive(Debug, Default)]
pub(super) struct BusyPoll {
    was_asked: AtomicBool,
    calls: AtomicU64,
}

impl BusyPoll {
    /// System calls that have asked.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Every second time: who polls the ring asks afterwards whether there is more, and that is one question.
    fn is_turn(&self) -> bool {
        !self.was_asked.fetch_xor(true, Ordering::Relaxed)
    }
}

impl XdpQueues {
    /// Whether the kernel polls when it is asked to.
    pub(super) fn prefers_busy_poll(&self, settings: &Settings) -> bool {
        let preferred = self.sockets().try_for_each(|socket| socket.prefer_busy_poll(settings.busy_poll));
        preferred.inspect_err(|error| tracing::warn!("{}: no busy polling: {error}", settings.interface)).is_ok()
    }

    /// Whether something has come; where nothing has, the kernel is to take what lies in the interface's queues first. (An interrupt would have it do so, which may be
    /// masked as long as it is asked.)
    pub(super) fn finds_frames(&self) -> bool {
        match &self.busy_poll {
            Some(busy_poll) if !self.has_frames() && busy_poll.is_turn() => {
                self.sockets().for_each(XskSocket::wake_receiver);
                busy_poll.calls.fetch_add(1 + self.others.len() as u64, Ordering::Relaxed);
                self.has_frames()
            }
            _ => self.has_frames(),
        }
    }

    pub(super) fn has_frames(&self) -> bool {
        self.sockets().any(|socket| !socket.received.is_empty())
    }
}
