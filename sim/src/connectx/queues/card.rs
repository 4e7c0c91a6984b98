//! The queues of a card together.

use std::collections::BTreeMap;

use super::{Action, CompletionQueue, Outcome, Posted, ReceiveQueue, RegisterEvent, SendQueue, SharedQueue, Written};
use crate::connectx::cqe::{Cqe, Received, Sent};
use crate::connectx::keys::KeyTable;
use crate::connectx::memory::Memory;
use crate::connectx::violation::{Verdict, Violation};

/// Where a queue pair's receives are.
#[derive(Clone, Debug)]
pub enum Receiver {
    /// Nowhere.
    None,
    /// In its own queue.
    Own(ReceiveQueue),
    /// In a shared queue, completed to a completion queue.
    Shared {
        /// The shared queue.
        srqn: u32,
        /// The completion queue.
        cqn: u32,
    },
}

#[derive(Clone, Debug)]
struct Pair {
    /// Nothing where the number is a receive queue's alone.
    send: Option<SendQueue>,
    receiver: Receiver,
}

/// Queues by their numbers, and the keys that they use.
///
/// Of the [`Action`]s that its functions return, completions are written already; the rest is for the caller to do. (What is received into a queue that compresses waits
/// for others of its kind: [`flush`](Card::flush) writes it, and so does any other completion there.)
#[derive(Clone, Debug, Default)]
pub struct Card {
    /// What the card may reach.
    pub keys: KeyTable,
    /// The card's clock, for completions; the caller sets it.
    pub clock: u64,
    completion: BTreeMap<u32, CompletionQueue>,
    /// What was received and is not written yet, by completion queue, of those that compress. Invariant: no list is empty or longer than its queue's longest run.
    pending: BTreeMap<u32, Vec<Received>>,
    pairs: BTreeMap<u32, Pair>,
    shared: BTreeMap<u32, SharedQueue>,
}

impl Card {
    /// Adds a completion queue under its number.
    pub fn add_completion(&mut self, cqn: u32, queue: CompletionQueue) {
        self.completion.insert(cqn, queue);
    }

    /// Adds a shared receive queue under its number.
    pub fn add_shared(&mut self, srqn: u32, queue: SharedQueue) {
        self.shared.insert(srqn, queue);
    }

    /// Adds a queue pair under its number.
    pub fn add_pair(&mut self, qpn: u32, send: SendQueue, receiver: Receiver) {
        self.pairs.insert(qpn, Pair { send: Some(send), receiver });
    }

    /// Adds a receive queue that is no queue pair's, under its number, which no queue pair has.
    pub fn add_receive(&mut self, number: u32, queue: ReceiveQueue) {
        self.pairs.insert(number, Pair { send: None, receiver: Receiver::Own(queue) });
    }

    /// Removes a completion queue. Completions that are still for it are lost, and said to be.
    pub fn remove_completion(&mut self, cqn: u32) {
        self.completion.remove(&cqn);
        self.pending.remove(&cqn);
    }

    /// What completes to this queue comes from a striding queue: see [`CompletionQueue::set_striding`].
    pub fn completes_strides(&mut self, cqn: u32) {
        if let Some(queue) = self.completion.get_mut(&cqn) {
            queue.set_striding();
        }
    }

    /// Writes the completions that wait for others of their kind. (`guessed`: when the card ends a run that could be longer is not known. Here it is when the caller says so.)
    pub fn flush<M: Memory + ?Sized>(&mut self, memory: &mut M) -> Vec<Action> {
        let waiting: Vec<u32> = self.pending.keys().copied().collect();
        waiting.into_iter().flat_map(|cqn| self.write_run(memory, cqn)).collect()
    }

    /// Writes what waits for one queue.
    fn write_run<M: Memory + ?Sized>(&mut self, memory: &mut M, cqn: u32) -> Vec<Action> {
        let (Some(run), Some(queue)) = (self.pending.remove(&cqn), self.completion.get_mut(&cqn)) else { return Vec::new() };
        let had_failed = queue.has_failed();
        match queue.push_run(memory, &run) {
            Ok(written) => told(cqn, written),
            Err(violation) => refused(cqn, violation, had_failed),
        }
    }

    /// Removes a shared receive queue.
    pub fn remove_shared(&mut self, srqn: u32) {
        self.shared.remove(&srqn);
    }

    /// Removes a queue pair, or a receive queue of its own, with all that it has not completed.
    pub fn remove_pair(&mut self, qpn: u32) {
        self.pairs.remove(&qpn);
    }

    /// Takes the next receive that is posted for the queue pair `qpn`, for a transport that puts messages into it itself and completes it by
    /// [`complete_one`](Self::complete_one).
    ///
    /// # Errors
    /// The rule that is broken; the queue has failed, and nothing more is taken from it.
    pub fn fetch<M: Memory + ?Sized>(&mut self, memory: &M, qpn: u32) -> Result<Option<Posted>, Violation> {
        match self.pairs.get_mut(&qpn).map(|pair| &mut pair.receiver) {
            Some(Receiver::Own(queue)) => queue.fetch(memory),
            Some(Receiver::Shared { srqn, .. }) => self.shared.get_mut(srqn).map_or(Ok(None), |queue| queue.fetch(memory)),
            Some(Receiver::None) | None => Ok(None),
        }
    }

    /// Writes a completion of what was [fetched](Self::fetch).
    pub fn complete_one<M: Memory + ?Sized>(&mut self, memory: &mut M, cqn: u32, cqe: Cqe) -> Vec<Action> {
        let cqe = match cqe {
            Cqe::Received(received) => Cqe::Received(Received { timestamp: self.clock, ..received }),
            other => other,
        };
        self.complete(memory, vec![Action::Complete { cqn, cqe }])
    }

    /// Takes what doorbell records say was posted to the send queue of `qpn`: see [`SendQueue::poll`].
    pub fn poll_send<M: Memory + ?Sized>(&mut self, memory: &mut M, qpn: u32, entries_max: usize) -> Vec<Action> {
        let actions = self.sender(qpn).map(|(send, keys)| send.poll(memory, keys, entries_max)).unwrap_or_default();
        self.complete(memory, actions)
    }

    /// The driver puts a queue pair, or a receive queue of its own, in error: what is posted to it is flushed, now and later.
    pub fn stop<M: Memory + ?Sized>(&mut self, memory: &mut M, number: u32) -> Vec<Action> {
        let Some(pair) = self.pairs.get_mut(&number) else { return Vec::new() };
        let mut actions = Vec::new();
        if let Some(send) = &mut pair.send {
            actions.extend(send.stop(memory, &self.keys));
        }
        if let Receiver::Own(queue) = &mut pair.receiver {
            actions.extend(queue.stop(memory));
        }
        self.complete(memory, actions)
    }

    /// The driver has a queue pair send again after a failure: see [`SendQueue::resume`].
    pub fn resume(&mut self, qpn: u32) {
        if let Some((send, _)) = self.sender(qpn) {
            send.resume();
        }
    }

    /// A completion queue fails by itself, as by an error of the hardware's: nothing is written any more, and an event tells of it.
    pub fn fail_completion(&mut self, cqn: u32) -> Vec<Action> {
        let fails = self.completion.get_mut(&cqn).is_some_and(|queue| !core::mem::replace(&mut queue.failed, true));
        fails.then_some(Action::QueueFailed { number: cqn }).into_iter().collect()
    }

    /// The entry that a queue pair's send queue, or a receive queue, takes next ends with this syndrome, by an error of the card's own: the queue fails by it, as it does where a rule is broken.
    pub fn spoil(&mut self, number: u32, syndrome: u8) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        match (&mut pair.send, &mut pair.receiver) {
            (Some(send), _) => send.spoil(syndrome),
            (None, Receiver::Own(queue)) => queue.spoil(syndrome),
            (None, Receiver::Shared { .. } | Receiver::None) => {}
        }
    }

    /// A queue pair, or a receive queue of its own, fails by itself, and an event tells of it. (What is posted to send is flushed, as ever in error; what is posted to receive stays where it is.)
    pub fn fail_queue(&mut self, number: u32) -> Vec<Action> {
        let Some(pair) = self.pairs.get_mut(&number) else { return Vec::new() };
        let mut fails = pair.send.as_mut().is_some_and(|send| !core::mem::replace(&mut send.failed, true));
        if let Receiver::Own(queue) = &mut pair.receiver {
            fails |= !core::mem::replace(&mut queue.failed, true);
        }
        fails.then_some(Action::QueueFailed { number }).into_iter().collect()
    }

    /// Arms a completion queue by what its doorbell record says: see [`CompletionQueue::poll_arm`].
    pub fn poll_arm<M: Memory + ?Sized>(&mut self, memory: &M, cqn: u32) -> Vec<Action> {
        match self.completion.get_mut(&cqn).map(|queue| queue.poll_arm(memory)) {
            Some(Ok(written)) => told(cqn, written),
            Some(Err(violation)) => vec![Action::Broken { number: cqn, violation }],
            None => Vec::new(),
        }
    }

    /// The driver rang for block `index` of the send queue of `qpn`: see [`SendQueue::note`]. `None`: it rang for something, it is not known for which block.
    pub fn ring<M: Memory + ?Sized>(&mut self, memory: &M, qpn: u32, index: Option<u16>) -> Vec<Action> {
        match self.sender(qpn) {
            Some((send, _)) => send.note(memory, index.unwrap_or_else(|| send.consumer().wrapping_sub(1))),
            None => vec![Action::Broken { number: qpn, violation: Violation::NoSuchQueue { number: qpn } }],
        }
    }

    /// Takes what was rung for of the send queue of `qpn`: see [`SendQueue::take_rung`].
    pub fn take_rung<M: Memory + ?Sized>(&mut self, memory: &mut M, qpn: u32, entries_max: usize) -> Vec<Action> {
        let actions = self.sender(qpn).map(|(send, keys)| send.take_rung(memory, keys, entries_max)).unwrap_or_default();
        self.complete(memory, actions)
    }

    /// The driver wrote an arm request into the register: see [`CompletionQueue::arm`].
    pub fn arm<M: Memory + ?Sized>(&mut self, memory: &M, cqn: u32, request: u32) -> Vec<Action> {
        match self.completion.get_mut(&cqn).map(|queue| queue.arm(memory, request)) {
            Some(Ok(written)) => told(cqn, written),
            Some(Err(violation)) => vec![Action::Broken { number: cqn, violation }],
            None => vec![Action::Broken { number: cqn, violation: Violation::NoSuchQueue { number: cqn } }],
        }
    }

    /// The arm request in a completion queue's doorbell record that no register was written for, if there is one.
    pub fn unrung_arm<M: Memory + ?Sized>(&self, memory: &M, cqn: u32) -> Option<u32> {
        self.completion.get(&cqn).and_then(|queue| queue.unrung(memory))
    }

    /// The send queue of a pair.
    pub fn send_queue(&self, qpn: u32) -> Option<&SendQueue> {
        self.pairs.get(&qpn).and_then(|pair| pair.send.as_ref())
    }

    fn sender(&mut self, qpn: u32) -> Option<(&mut SendQueue, &KeyTable)> {
        let send = self.pairs.get_mut(&qpn)?.send.as_mut()?;
        Some((send, &self.keys))
    }

    /// The driver stored `bytes` at `offset` of a register page: eight bytes, or whole blocks of 64.
    pub fn store<M: Memory + ?Sized>(&mut self, memory: &mut M, offset: usize, bytes: &[u8]) -> Vec<Action> {
        let broken = |number, violation| vec![Action::Broken { number, violation }];
        match RegisterEvent::of(offset, bytes) {
            Ok(RegisterEvent::Send { qpn, index, blueflame }) => match self.sender(qpn) {
                Some((send, keys)) => {
                    let actions = send.ring(memory, keys, index, &blueflame);
                    self.complete(memory, actions)
                }
                None => broken(qpn, Violation::NoSuchQueue { number: qpn }),
            },
            Ok(RegisterEvent::Arm { cqn, request }) => self.arm(memory, cqn, request),
            Err(violation) => broken(0, violation),
        }
    }

    /// A packet came for the queue pair `qpn`, and `facts` is what its completion says of it.
    pub fn receive<M: Memory + ?Sized>(&mut self, memory: &mut M, qpn: u32, packet: &[u8], facts: Received) -> Vec<Action> {
        let facts = Received { timestamp: self.clock, ..facts };
        let lost = vec![Action::Lost { qpn }];
        let actions = match self.pairs.get_mut(&qpn).map(|pair| &mut pair.receiver) {
            Some(Receiver::Own(queue)) => queue.receive(memory, &self.keys, packet, facts),
            Some(&mut Receiver::Shared { srqn, cqn }) => match self.shared.get_mut(&srqn) {
                Some(queue) => queue.receive(memory, &self.keys, (qpn, cqn), packet, facts),
                None => lost,
            },
            Some(Receiver::None) | None => lost,
        };
        self.complete(memory, actions)
    }

    /// The request of an [`Action::Request`] ended.
    pub fn finish<M: Memory + ?Sized>(&mut self, memory: &mut M, qpn: u32, index: u16, outcome: Outcome) -> Vec<Action> {
        let actions = self.sender(qpn).map(|(send, _)| send.finish(index, outcome)).unwrap_or_default();
        self.complete(memory, actions)
    }

    /// Writes the completions among `actions`, and adds what comes of it.
    fn complete<M: Memory + ?Sized>(&mut self, memory: &mut M, actions: Vec<Action>) -> Vec<Action> {
        let mut done = Vec::with_capacity(actions.len());
        for action in actions {
            let Action::Complete { cqn, cqe } = action else {
                done.push(action);
                continue;
            };
            let cqe = match cqe {
                Cqe::Sent(sent) => Cqe::Sent(Sent { timestamp: self.clock, ..sent }),
                other => other,
            };
            let run_max = self.completion.get(&cqn).and_then(CompletionQueue::run_max);
            if let (Cqe::Received(received), Some(run_max)) = (cqe, run_max) {
                let run = self.pending.entry(cqn).or_default();
                run.push(received);
                let is_whole = run.len() >= run_max as usize;
                done.push(Action::Complete { cqn, cqe });
                if is_whole {
                    done.extend(self.write_run(memory, cqn));
                }
                continue;
            }
            done.extend(self.write_run(memory, cqn));
            let Some(queue) = self.completion.get_mut(&cqn) else {
                done.push(Action::Broken { number: cqn, violation: Violation::NoSuchQueue { number: cqn } });
                continue;
            };
            let had_failed = queue.has_failed();
            match queue.push(memory, &cqe) {
                Ok(written) => {
                    done.push(Action::Complete { cqn, cqe });
                    done.extend(told(cqn, written));
                }
                Err(violation) => done.extend(refused(cqn, violation, had_failed)),
            }
        }
        done
    }
}

/// A completion that was not written.
fn refused(cqn: u32, violation: Violation, had_failed: bool) -> Vec<Action> {
    let fails = violation.verdict() == Verdict::QueueFails && !had_failed;
    let failed = fails.then_some(Action::QueueFailed { number: cqn });
    core::iter::once(Action::Broken { number: cqn, violation }).chain(failed).collect()
}

/// What a completion queue has to tell.
fn told(cqn: u32, written: Written) -> Vec<Action> {
    let broken = written.broken.map(|violation| Action::Broken { number: cqn, violation });
    broken.into_iter().chain(written.event.then_some(Action::Event { cqn })).collect()
}
