//! Who calls on a ring's connections: VMA_RING_MIGRATION_RATIO_RX and _TX count the calls of a thread, or core, that the ring is not for.
//!
//! A call compares the calling thread with one word, which is the thread's whose ring it is as long as nobody is counted; all else is
//! off its path. While somebody is, each call on the ring looks at its connection's count. By the ring's lock.

use ringway_stack::ring::FlowId;
use ringway_stack::socket::Direction;

use crate::lock::thread_pointer;

/// No thread's word: calls are looked at, whoever makes them.
const LOOK: usize = 1;

/// After so many calls that need not have been looked at, counts of connections that are closed are looked for.
const PRUNED_AFTER: u32 = 4096;

/// A connection that stays for now is not asked about for so many calls.
const STAYS_FOR: i32 = 1 << 16;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    /// Who needs no look. Zero: nobody is counted, ever.
    expected: usize,
    /// Whose ring it is: a thread, or a core.
    owner: usize,
    is_by_core: bool,
    /// So many calls of another's one after the other make a connection go over, for receiving and for sending; `None`: they don't.
    ratios: [Option<u32>; 2],
    /// By the flows' slots.
    counts: Vec<Count>,
    /// Of these, those that count.
    counted: u32,
    /// Calls that need not have been looked at.
    quiet: u32,
}

/// Calls of one other thread, or core, on a connection, one after the other.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// Who calls; zero: nobody.
    caller: usize,
    /// Below zero: so many come before those that count.
    calls: i32,
    /// The flow's.
    generation: u32,
}

impl Callers {
    /// The ring is the calling thread's from now on, or the core's that it is on.
    pub(crate) fn claim(&mut self, is_by_core: bool, ratios: [Option<u32>; 2]) {
        *self = Self { is_by_core, ratios, ..Self::default() };
        if ratios != [None; 2] {
            self.owner = self.caller();
            self.settle();
        }
    }

    /// Whether a call needs no look.
    #[inline(always)]
    pub(crate) fn expects_caller(&self) -> bool {
        self.expected == thread_pointer() || self.expected == 0
    }

    /// A call that may be another's receives, or sends, on a connection. Whether it is one more than it takes for the connection to go over.
    #[cold]
    #[inline(never)]
    pub(crate) fn note(&mut self, flow: FlowId, direction: Direction) -> bool {
        let caller = self.caller();
        if caller == self.owner {
            self.quiet += 1;
            self.forget(flow);
            return false;
        }
        let Some(ratio) = self.ratios[direction as usize] else { return false };
        let slot = flow.index as usize;
        if slot >= self.counts.len() {
            self.counts.resize(slot + 1, Count::default());
        }
        let count = &mut self.counts[slot];
        if count.caller != caller || count.generation != flow.generation {
            self.counted += u32::from(count.caller == 0);
            *count = Count { caller, calls: 0, generation: flow.generation };
        }
        count.calls = count.calls.saturating_add(1);
        let is_due = u32::try_from(count.calls).is_ok_and(|calls| calls > ratio);
        self.settle();
        is_due
    }

    /// A connection is going over, or stays: its calls do not count for a while.
    pub(crate) fn rest(&mut self, flow: FlowId) {
        if let Some(count) = self.counts.get_mut(flow.index as usize) {
            count.calls = -STAYS_FOR;
        }
    }

    /// A connection is used by whom its ring is for, or is on this ring no more.
    pub(crate) fn forget(&mut self, flow: FlowId) {
        if let Some(count) = self.counts.get_mut(flow.index as usize).filter(|count| count.caller != 0) {
            *count = Count::default();
            self.counted -= 1;
            self.settle();
        }
    }

    /// Lets go of the counts of connections that are none any more, if that is due.
    #[inline]
    pub(super) fn prune(&mut self, is_open: impl Fn(u32, u32) -> bool) {
        if self.quiet < PRUNED_AFTER {
            return;
        }
        self.quiet = 0;
        for (slot, count) in (0u32..).zip(&mut self.counts) {
            if count.caller != 0 && !is_open(slot, count.generation) {
                *count = Count::default();
                self.counted -= 1;
            }
        }
        self.settle();
    }

    fn settle(&mut self) {
        self.expected = if self.counted > 0 || self.is_by_core { LOOK } else { self.owner };
    }

    fn caller(&self) -> usize {
        // SAFETY: sched_getcpu has no preconditions.
        let core = || usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0);
        if self.is_by_core { core() + 1 } else { thread_pointer() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RX: Direction = Direction::Rx;

    fn flow(index: u32) -> FlowId {
        FlowId { ring: 0, index, generation: 1 }
    }

    /// A ring that is another thread's, which has ended.
    fn anothers(ratios: [Option<u32>; 2]) -> Callers {
        let claim = move || {
            let mut callers = Callers::default();
            callers.claim(false, ratios);
            assert!(callers.expects_caller());
            callers
        };
        let mut callers = std::thread::spawn(claim).join().expect("it does not panic");
        // (The next thread may have its control block.)
        callers.owner = usize::MAX;
        callers.settle();
        callers
    }

    #[test]
    fn another_thread_takes_a_connection_over_by_one_call_more_than_the_ratio() {
        let mut callers = anothers([Some(3), Some(0)]);
        assert!(!callers.expects_caller());
        assert_eq!([(); 4].map(|()| callers.note(flow(7), RX)), [false, false, false, true]);
        assert!(callers.note(flow(8), Direction::Tx));
        callers.rest(flow(7));
        assert!(!callers.note(flow(7), RX), "it is on its way");
        assert_eq!(callers.counted, 2);
        callers.forget(flow(7));
        callers.forget(flow(7));
        callers.forget(flow(8));
        assert_eq!((callers.counted, callers.expected), (0, usize::MAX));
    }

    #[test]
    fn calls_of_the_rings_own_thread_come_between() {
        let mut callers = anothers([Some(1), None]);
        let own = callers.owner;
        assert!(!callers.note(flow(1), RX) && callers.expected == LOOK);
        callers.owner = thread_pointer();
        assert!(!callers.note(flow(1), RX) && callers.expects_caller(), "nobody is counted any more");
        callers.owner = own;
        assert!(!callers.note(flow(1), RX) && callers.note(flow(1), RX));
        assert!(!callers.note(flow(2), Direction::Tx), "sends do not count");
    }

    #[test]
    fn another_connection_in_the_same_slot_is_another_one() {
        let mut callers = anothers([Some(1), None]);
        assert!(!callers.note(flow(1), RX));
        let next = FlowId { generation: 2, ..flow(1) };
        assert!(!callers.note(next, RX) && callers.counted == 1);
        callers.quiet = PRUNED_AFTER;
        callers.prune(|slot, generation| (slot, generation) == (1, 1));
        assert_eq!((callers.counted, callers.quiet), (0, 0));
    }

    #[test]
    fn what_is_nobodys_and_what_never_moves_is_not_looked_at() {
        let mut callers = Callers::default();
        assert!(callers.expects_caller());
        callers.claim(false, [None; 2]);
        assert!(callers.expects_caller() && anothers([None; 2]).ratios == [None; 2]);
        callers.claim(true, [Some(1), None]);
        assert!(!callers.expects_caller(), "a thread may be on another core by now");
    }
}
