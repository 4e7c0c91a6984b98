//! What goes wrong with a card.

use core::time::Duration;
use std::collections::BTreeSet;

use rdma_core_sys as sys;
use ringway_sim::connectx::constants as c;
use ringway_sim::random::RandomStream;
use ringway_stack::Instant;

use super::{Card, Told};

/// Whether there is a card that works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Works,
    /// It has failed as a whole, or was removed: it does nothing any more, and each call of the library's fails (EIO).
    Gone,
}

/// What strikes again and again, and the dice for it.
pub(crate) struct Trouble {
    pub(crate) dice: RandomStream,
    /// Until when it strikes.
    pub(crate) until: Instant,
    /// Doorbells that are lost, and that come late, of a million; and how late at most.
    pub(crate) lost_bells_ppm: u32,
    pub(crate) late_bells_ppm: u32,
    pub(crate) late_max: Duration,
    /// Objects that are not made, of a million, since the system refuses them.
    pub(crate) refused_ppm: u32,
    /// Completions have 128 bytes; entries of receive queues have room for two segments.
    pub(crate) has_long_cqes: bool,
    pub(crate) has_long_receives: bool,
    /// Bytes of the card's own memory.
    pub(crate) own_memory: usize,
    /// There are no registers for queues of their own.
    pub(crate) shares_registers: bool,
    pub(crate) life: Life,
    /// Send queues whose last doorbell was not heard.
    pub(crate) unheard: BTreeSet<u32>,
}

/// A fault that strikes once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The next entry that is sent, or received into, ends by an error.
    SendSpoiled,
    ReceiveSpoiled,
    /// A queue fails in silence.
    SendFails,
    ReceiveFails,
    /// A completion queue fails, as if it had overrun.
    SendCqFails,
    ReceiveCqFails,
    PortDown,
    PortUp,
    Gone,
}

impl Trouble {
    fn strikes(&mut self, now: Instant, ppm: u32) -> bool {
        ppm > 0 && now < self.until && self.dice.chance_ppm(ppm)
    }

    pub(super) fn loses_bell(&mut self, now: Instant) -> bool {
        self.strikes(now, self.lost_bells_ppm)
    }

    pub(super) fn delays_bell(&mut self, now: Instant) -> Option<Duration> {
        let is_late = self.strikes(now, self.late_bells_ppm);
        let most = u64::try_from(self.late_max.as_nanos()).unwrap_or(u64::MAX);
        is_late.then(|| Duration::from_nanos(self.dice.magnitude(100, most)))
    }

    /// Why an object is not made, as an errno.
    pub(super) fn refuses(&mut self, now: Instant) -> Result<(), i32> {
        if self.life == Life::Gone {
            return Err(libc::EIO);
        }
        if self.strikes(now, self.refused_ppm) { Err(libc::ENOMEM) } else { Ok(()) }
    }
}

impl Card {
    /// A fault strikes one of the queues, as `dice` has it. Whether there was one to strike.
    pub(crate) fn strike(&mut self, fault: Fault) -> bool {
        let senders: Vec<u32> = self.senders.keys().copied().collect();
        let receivers: Vec<u32> = self.receivers.keys().copied().collect();
        let one = |card: &mut Self, of: &[u32]| (!of.is_empty()).then(|| card.trouble.dice.pick(of));
        // What hardware gives where an entry is in order: an error of the queue's own, of memory, or of the length.
        let syndromes = [c::SYNDROME_LOCAL_QP_OP, c::SYNDROME_LOCAL_PROT, c::SYNDROME_LOCAL_LENGTH];
        match fault {
            Fault::SendSpoiled | Fault::SendFails | Fault::SendCqFails => {
                let Some(number) = one(self, &senders) else { return false };
                let syndrome = self.trouble.dice.pick(&syndromes);
                match fault {
                    Fault::SendSpoiled => self.queues.spoil(number, syndrome),
                    Fault::SendFails => self.fail_queue(number),
                    _ => self.fail_completions(self.senders[&number].cqn),
                }
            }
            Fault::ReceiveSpoiled | Fault::ReceiveFails | Fault::ReceiveCqFails => {
                let Some(number) = one(self, &receivers) else { return false };
                let syndrome = self.trouble.dice.pick(&syndromes);
                match fault {
                    Fault::ReceiveSpoiled => self.queues.spoil(number, syndrome),
                    Fault::ReceiveFails => self.fail_queue(number),
                    _ => self.fail_completions(self.receivers[&number].config.cqn),
                }
            }
            Fault::PortDown => self.set_port(false),
            Fault::PortUp => self.set_port(true),
            Fault::Gone => {
                self.trouble.life = Life::Gone;
                // (Doorbells that are on their way come to nothing; nor does anything happen any more when they would have come.)
                self.late.clear();
                self.tell(Told::Fatal);
            }
        }
        true
    }

    fn fail_queue(&mut self, number: u32) {
        let actions = self.queues.fail_queue(number);
        self.act(actions);
    }

    fn fail_completions(&mut self, cqn: u32) {
        if let Some(cq) = self.completions.get_mut(&cqn) {
            cq.is_broken = true;
        }
        let actions = self.queues.fail_completion(cqn);
        self.act(actions);
    }

    fn set_port(&mut self, up: bool) {
        if self.port_up != up {
            self.port_up = up;
            self.tell(Told::Port(up));
        }
    }

    /// A queue has failed, and no completion says so.
    pub(super) fn failed(&mut self, number: u32) {
        if let Some(cq) = self.completions.get(&number) {
            self.tell(Told::Cq(cq.raw));
        } else if let Some(sender) = self.senders.get(&number) {
            self.tell(Told::Qp(sender.raw));
        } else if let Some(receiver) = self.receivers.get(&number) {
            self.failed.insert(number);
            self.tell(Told::Wq(receiver.raw));
        }
    }

    fn tell(&mut self, what: Told) {
        self.told.push_back(what);
        self.async_fd.signal();
    }

    /// Queues that did not give all that came to them, and how many frames they kept. (Of one of strides whose completion queue has failed nobody expects more; the others of its host are
    /// to give all.)
    pub(crate) fn unpolled(&self) -> Vec<(u32, usize)> {
        let mut kept = self.laws.unpolled();
        kept.retain(|(owner, _)| !self.has_lost_strides(*owner));
        kept
    }

    /// Whether a queue is one of strides whose completion queue has failed.
    fn has_lost_strides(&self, owner: u32) -> bool {
        let mut its = self.receivers.values().filter(|receiver| owner & super::STRIDING != 0 && receiver.owner == owner);
        its.any(|receiver| self.completions.get(&receiver.config.cqn).is_some_and(|cq| cq.is_broken))
    }

    /// Whether there is something to be told of.
    pub(crate) fn has_news(&self) -> bool {
        !self.told.is_empty()
    }

    /// The next thing that is told, as the library says it.
    pub(crate) fn next_event(&mut self) -> Option<sys::ibv_async_event> {
        let told = self.told.pop_front();
        if self.told.is_empty() {
            self.async_fd.clear();
        }
        let mut event = sys::ibv_async_event::default();
        match told? {
            Told::Cq(cq) => (event.event_type, event.element.cq) = (sys::IBV_EVENT_CQ_ERR, cq),
            Told::Qp(qp) => (event.event_type, event.element.qp) = (sys::IBV_EVENT_QP_FATAL, qp),
            Told::Wq(wq) => (event.event_type, event.element.wq) = (sys::IBV_EVENT_WQ_FATAL, wq),
            Told::Port(up) => event.event_type = if up { sys::IBV_EVENT_PORT_ACTIVE } else { sys::IBV_EVENT_PORT_ERR },
            Told::Fatal => event.event_type = sys::IBV_EVENT_DEVICE_FATAL,
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use ringway_sim::connectx::cqe::Received;
    use ringway_sim::connectx::queues::ReceiveLayout;
    use ringway_stack::Instant;

    use super::super::super::plan::Plan;
    use super::Card;

    /// (A card of which one queue of strides had failed was asked for nothing that came to its others.)
    #[test]
    fn a_queue_of_strides_that_has_failed_excuses_no_other() {
        let mut card = Card::new(1_000_000, Plan::of_seed(0).trouble(0));
        card.trouble.until = Instant::ZERO;
        let strides = ReceiveLayout::Striding { log_stride_bytes: 6, log_strides: 5 };
        let mut make = |ring, layout| {
            let cq = card.make_cq(core::ptr::null_mut(), 64, None, None).expect("room").number;
            card.make_receiver(core::ptr::null_mut(), (1, cq, ring), 8, false, layout).expect("room").number
        };
        let [first, other, plain] = [make(1, strides), make(1, strides), make(2, ReceiveLayout::Cyclic)];
        let owners = [first, other, plain].map(|number| card.receivers[&number].owner);
        let facts = || Received { byte_count: 60, ..Received::default() };
        owners.iter().for_each(|owner| card.laws.arrived(*owner, vec![0; 60], facts(), Instant::ZERO));
        assert_eq!(card.unpolled(), [(owners[2], 1), (owners[0], 1), (owners[1], 1)]);
        card.fail_completions(card.receivers[&first].config.cqn);
        assert_eq!(card.unpolled(), [(owners[2], 1), (owners[1], 1)]);
    }
}
