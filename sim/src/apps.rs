//! Workloads that know what they ought to receive, and panic when they receive anything else.
//!
//! A [`Client`] and a [`Server`] hold [`Conversation`](Dialogue)s over TCP: two [`Side`]s, each of which writes a known stream of bytes
//! at its own pace and then closes, aborts or leaves. A [`Reactor`] holds many of them behind one [`Epoll`], and knows clients by the first bytes
//! they send ([`Registry`]). Two [`Runner`]s pass one connection on from ring to ring, two [`Sharer`]s take theirs off its rings. A [`Stranger`]
//! keeps no law, over a raw queue, nor does a [`Prober`], who speaks all else to a [`Target`]; a [`Querier`] asks who listens. [`Pinger`] and [`Echo`] do the same with UDP datagrams. What each side came to is kept in a [`Transfer`] that
//! outlives the world.

mod churner;
mod conversation;
mod epoll;
mod group;
mod handover;
mod idler;
mod pattern;
mod prober;
mod querier;
mod reactor;
mod registry;
mod sharer;
mod stranger;
mod target;
mod tcp;
mod udp;

pub(crate) use churner::PORT_RETRY_MAX;
pub use churner::{Churner, Cycles};
pub use conversation::{Dialogue, Ending, Pace, Parting, Side, Transfer};
pub use epoll::{Epoll, Manner};
pub use group::{GroupExchange, GroupListener, GroupSpeaker, Membership, Neighbourly, Pursuit, Wish};
pub use handover::{Baton, Runner, Turns};
pub use idler::{IdleCounts, Idler};
pub use pattern::Pattern;
pub(crate) use prober::is_probers;
pub use prober::{Prober, Probing};
pub(crate) use querier::{Flaw, question};
pub use querier::{Querier, Querying};
pub use reactor::{Listening, Opening, Reactor};
pub use registry::Registry;
pub use sharer::{Line, Plan, Share, Sharer, When};
pub(crate) use stranger::segment as by_hand;
pub use stranger::{Goodbye, Stranger, Visit, Visited};
pub use target::{Ports, Target};
pub use tcp::{Client, Server};
pub use udp::{Echo, Pinger, Pings};

use core::time::Duration;
use std::cell::{Ref, RefCell};
use std::rc::Rc;

/// After how long a socket is opened again for which there was no rule or buffer: no event announces them.
const OPEN_RETRY: Duration = Duration::from_millis(10);

/// Something that a program writes and its world's owner reads.
#[derive(Debug, Default)]
pub struct Shared<T>(Rc<RefCell<T>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T> Shared<T> {
    /// Starts with `value`.
    pub fn new(value: T) -> Self {
        Self(Rc::new(RefCell::new(value)))
    }

    /// What stands there now.
    pub fn read(&self) -> Ref<'_, T> {
        self.0.borrow()
    }

    /// Replaces what stands there.
    pub fn set(&self, value: T) {
        *self.0.borrow_mut() = value;
    }

    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut self.0.borrow_mut())
    }
}

#[cfg(test)]
mod tests;
