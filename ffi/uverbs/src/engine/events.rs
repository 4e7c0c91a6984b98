//! Asynchronous events (`enum ib_event_type`), and the port's state, which is what most programs wait for.
//!
//! A queue pair that fails by a completion of its own tells of it so. Of what no completion tells there is an event: a peer's request that its
//! regions do not allow, a queue that the card cannot reach, a completion queue that is full.

use ringway_sim::connectx::constants as c;
use ringway_sim::connectx::cqe::Failed;
use ringway_stack::roce::qp::{Modify, State};

use super::{Engine, now_of};

/// Kinds of events, as verbs number them.
pub(crate) mod kind {
    pub(crate) const CQ_ERROR: u32 = 0;
    pub(crate) const QP_FATAL: u32 = 1;
    pub(crate) const QP_ACCESS: u32 = 3;
    pub(crate) const DEVICE_FATAL: u32 = 8;
    pub(crate) const PORT_ACTIVE: u32 = 9;
    pub(crate) const PORT_ERROR: u32 = 10;
    pub(crate) const SRQ_ERROR: u32 = 14;
    pub(crate) const WQ_FATAL: u32 = 19;
}

/// In a datagram that says what happens to the card, beside the kinds of events that are so told: it is removed.
pub(super) const REMOVAL: u8 = 255;

/// The same, and which one, from now on: a flow rule is refused.
pub(super) const REFUSAL: u8 = 254;

/// Whether there is a card that works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Works,
    /// It has failed as a whole: it reads and writes nothing, and does no command but to end things (mlx5_core's `mlx5_internal_err_ret_value`).
    Failed,
    /// It is no more: there is no command (EIO), and nothing comes by its descriptors after what is there (uverbs_main.c, `ib_uverbs_remove_one`).
    Removed,
}

/// Whom an object's events are told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    pub(crate) context: u32,
    /// What the program calls it.
    pub(crate) user_handle: u64,
    /// How often it was told.
    pub(crate) times: u32,
}

impl Told {
    pub(crate) fn new(context: u32, user_handle: u64) -> Self {
        Self { context, user_handle, times: 0 }
    }
}

impl Engine {
    /// A queue of the card's has failed.
    pub(super) fn queue_failed(&mut self, number: u32) {
        let (told, kind) = if let Some(cq) = self.cqs.get_mut(&number) {
            (&mut cq.told, kind::CQ_ERROR)
        } else if let Some(qp) = self.qps.get_mut(&number) {
            // (The event tells of it, and is all that does: it is in error as a whole.)
            qp.knows = true;
            let now = now_of(self.origin);
            let _ = self.node.hca_mut().modify_qp(now, number, &Modify::Err);
            (&mut qp.told, kind::QP_FATAL)
        } else if let Some(raw) = self.raws.get_mut(&number) {
            (&mut raw.told, kind::QP_FATAL)
        } else if let Some(srq) = self.srqs.get_mut(&number) {
            (&mut srq.told, kind::SRQ_ERROR)
        } else if let Some(wq) = self.wqs.get_mut(&number) {
            (&mut wq.told, kind::WQ_FATAL)
        } else {
            return;
        };
        let events = self.contexts.get_mut(&told.context).and_then(|context| context.events.as_mut());
        if events.is_some_and(|events| events.send_async(told.user_handle, kind)) {
            told.times += 1;
        }
    }

    /// A completion has told of an entry that failed, after all those before it: no more is sent of its queue pair, by what the card knows of the entry or by what the adapter has found.
    pub(super) fn entry_failed(&mut self, failed: &Failed) {
        if failed.receive || failed.syndrome == c::SYNDROME_WR_FLUSH {
            return;
        }
        if let Some(qp) = self.qps.get_mut(&failed.qpn) {
            qp.knows = true;
            let now = self.now();
            self.node.hca_mut().fail_sends(now, failed.qpn);
        }
    }

    /// Tells of queue pairs that a peer's request has failed.
    pub(super) fn refused(&mut self) {
        for (qpn, qp) in &mut self.qps {
            if qp.knows || self.node.hca().qp_state(*qpn) != Some(State::Err) {
                continue;
            }
            qp.knows = true;
            let events = self.contexts.get_mut(&qp.told.context).and_then(|context| context.events.as_mut());
            if events.is_some_and(|events| events.send_async(qp.told.user_handle, kind::QP_ACCESS)) {
                qp.told.times += 1;
            }
        }
    }

    /// How many events of an object that ends the program has read: it waits until it has acknowledged as many.
    pub(crate) fn events_read(&mut self, told: Told) -> u32 {
        let events = self.contexts.get_mut(&told.context).and_then(|context| context.events.as_mut());
        told.times.saturating_sub(events.map_or(0, |events| events.take_back(told.user_handle)))
    }

    /// Whether the card works.
    pub(crate) fn life(&self) -> Life {
        self.life
    }

    /// Something happens to the card, as if of itself: all its queues of a kind fail, or it does, or it is removed.
    pub(super) fn fault(&mut self, what: u8) {
        let actions = match u32::from(what) {
            kind::CQ_ERROR => self.cqs.keys().flat_map(|cqn| self.card.fail_completion(*cqn)).collect(),
            kind::QP_FATAL => self.raws.keys().flat_map(|number| self.card.fail_queue(*number)).collect(),
            kind::WQ_FATAL => self.wqs.keys().flat_map(|number| self.card.fail_queue(*number)).collect(),
            kind::DEVICE_FATAL => return self.fail(Life::Failed),
            _ if what == REMOVAL => return self.fail(Life::Removed),
            _ => return,
        };
        self.act(actions);
    }

    fn fail(&mut self, into: Life) {
        crate::log::say(format_args!("the card: {into:?}"));
        let had_failed = core::mem::replace(&mut self.life, into) != Life::Works;
        for events in self.contexts.values_mut().filter_map(|context| context.events.as_mut()).filter(|_| !had_failed) {
            events.send_async(0, kind::DEVICE_FATAL);
        }
    }

    /// Whether the port is up.
    pub(crate) fn is_port_up(&self) -> bool {
        self.port_up
    }

    /// The port goes up or down; all contexts hear of it.
    pub(super) fn set_port(&mut self, up: bool) {
        if self.port_up == up {
            return;
        }
        self.port_up = up;
        if let Some(wire) = self.wire.as_mut().filter(|_| !up) {
            wire.lose_waiting();
        }
        let kind = if up { kind::PORT_ACTIVE } else { kind::PORT_ERROR };
        for events in self.contexts.values_mut().filter_map(|context| context.events.as_mut()) {
            events.send_async(1, kind);
        }
    }
}
