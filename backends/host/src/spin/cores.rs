//! At most one spinner a core: two on the same one only take turns at finding nothing.

/// Which cores have a spinner, of this process's threads. What other processes do there is the device's to know: it is
/// asked by the closures.
#[derive(Debug)]
pub struct Cores {
    /// By the core's number, modulo the length.
    taken: Box<[bool]>,
}

/// A thread's claim to be the only one that spins on a core. Given back by [`Cores::release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a claim that is not given back stays taken"]
pub struct CoreClaim {
    core: usize,
}

impl Cores {
    /// Room for every core that may come online.
    pub fn new() -> Self {
        // SAFETY: no preconditions.
        let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        let count = usize::try_from(configured).unwrap_or(1).max(1);
        Self { taken: vec![false; count].into() }
    }

    /// Claims `core`. `among_processes` claims it among them, and is only asked if no thread of this one has it.
    /// `None`: somebody spins there already.
    pub fn claim(&mut self, core: usize, among_processes: impl FnOnce(usize) -> bool) -> Option<CoreClaim> {
        let taken = &mut self.taken[core % self.taken.len()];
        if *taken || !among_processes(core) {
            return None;
        }
        *taken = true;
        Some(CoreClaim { core })
    }

    /// Gives a claim back, also to other processes by `release`.
    pub fn release(&mut self, claim: CoreClaim, release: impl FnOnce(usize)) {
        self.taken[claim.core % self.taken.len()] = false;
        release(claim.core);
    }
}

impl Default for Cores {
    fn default() -> Self {
        Self::new()
    }
}

impl CoreClaim {
    /// Whether the calling thread runs on another core than when it claimed its own.
    #[inline]
    pub fn is_left(self) -> bool {
        self.core != current_core()
    }
}

/// The core on which the calling thread runs; it may be another one at once.
#[inline]
pub fn current_core() -> usize {
    // SAFETY: no preconditions.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use core::cell::RefCell;

    use super::*;

    #[test]
    fn a_core_has_one_spinner() {
        let mut cores = Cores::new();
        let claim = cores.claim(0, |_| true).unwrap();
        assert_eq!(cores.claim(0, |_| panic!("a thread of ours has it: nobody else need be asked")), None);
        cores.release(claim, |_| ());
        assert!(cores.claim(0, |_| true).is_some());
    }

    #[test]
    fn a_claim_of_another_process_is_not_taken() {
        let mut cores = Cores::new();
        assert_eq!(cores.claim(0, |_| false), None);
        assert!(cores.claim(0, |_| true).is_some(), "a refusal leaves nothing behind");
    }

    #[test]
    fn other_processes_hear_of_every_claim_by_its_cores_number() {
        let mut cores = Cores::new();
        // More than there are here: the table is shorter, but what others hear is the number itself.
        let beyond = cores.taken.len() + 5;
        let heard = RefCell::new(Vec::new());
        let claim = cores.claim(beyond, |core| {
            heard.borrow_mut().push((core, true));
            true
        });
        cores.release(claim.unwrap(), |core| heard.borrow_mut().push((core, false)));
        assert_eq!(heard.into_inner(), [(beyond, true), (beyond, false)]);
    }

    #[test]
    fn a_claim_is_left_by_moving_to_another_core() {
        assert!(CoreClaim { core: usize::MAX }.is_left());
        // The scheduler may move the test between the two looks, but not every time.
        assert!((0..1000).any(|_| !CoreClaim { core: current_core() }.is_left()));
    }
}
