//! Completion queues: bounded, and armed for one event at a time (IBTA spec, volume 1, s11.4.2).

use std::collections::VecDeque;

use super::work::{Completion, Status};
pub use crate::device::messages::Arm;

/// A completion queue.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    entries: VecDeque<Completion>,
    depth: usize,
    /// More came than it holds: it takes no more.
    overrun: bool,
    armed: Option<Arm>,
    event: bool,
    /// How many send and receive queues complete here.
    pub(super) users: usize,
}

/// Whether there was room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushed {
    Room,
    /// There was not, for the first time.
    Overrun,
    /// There was not, again.
    Lost,
}

impl CompletionQueue {
    pub(super) fn new(depth: usize) -> Self {
        Self { entries: VecDeque::with_capacity(depth), depth, overrun: false, armed: None, event: false, users: 0 }
    }

    #[inline(always)]
    pub(super) fn push(&mut self, completion: Completion) -> Pushed {
        if self.overrun {
            return Pushed::Lost;
        }
        let fires = match self.armed {
            None => false,
            Some(Arm::Next) => true,
            Some(Arm::Solicited) => completion.solicited || completion.status != Status::Success,
        };
        if fires {
            self.armed = None;
            self.event = true;
        }
        if self.entries.len() == self.depth {
            self.overrun = true;
            return Pushed::Overrun;
        }
        self.entries.push_back(completion);
        Pushed::Room
    }

    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<Completion> {
        let first = self.entries.pop_front()?;
        if self.entries.is_empty() {
            // (From its first place on: one that is never long stays in few cache lines.)
            self.entries.clear();
        }
        Some(first)
    }

    /// Whether there is room for one more.
    #[inline(always)]
    pub(super) fn has_room(&self) -> bool {
        !self.overrun && self.entries.len() < self.depth
    }

    /// Asks for one event about completions that are yet to come. [`Arm::Next`] is stronger, and stays.
    pub(super) fn arm(&mut self, arm: Arm) {
        if self.armed != Some(Arm::Next) {
            self.armed = Some(arm);
        }
    }

    /// Whether an event came since the last call.
    pub(super) fn take_event(&mut self) -> bool {
        core::mem::take(&mut self.event)
    }

    pub(super) const fn is_overrun(&self) -> bool {
        self.overrun
    }

    /// Forgets the completions of a queue pair that is no more.
    pub(super) fn forget(&mut self, qpn: u32) {
        self.entries.retain(|entry| entry.qpn != qpn);
    }
}
