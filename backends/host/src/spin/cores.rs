//! At most one spinner a core: two on the same one only take turns at finding nothing.

use core::sync::atomic::{AtomicBool, Ordering};

/// Which cores have a spinner, of this process's threads.
#[derive(Debug)]
pub struct Cores {
    /// By the core's number, modulo the length.
    taken: Box<[AtomicBool]>,
}

/// A core's only seat for a spinner, until dropped.
#[derive(Debug)]
pub struct Seat<'a>(&'a AtomicBool);

impl Cores {
    /// Room for every core that may come online.
    pub fn new() -> Self {
        // SAFETY: no preconditions.
        let configured = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
        let count = usize::try_from(configured).unwrap_or(1).max(1);
        Self { taken: (0..count).map(|_| AtomicBool::new(false)).collect() }
    }

    /// Takes the current core's seat. `None`: somebody spins there already.
    pub fn sit(&self) -> Option<Seat<'_>> {
        // SAFETY: no preconditions.
        let core = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0);
        let seat = &self.taken[core % self.taken.len()];
        (!seat.swap(true, Ordering::Relaxed)).then(|| Seat(seat))
    }
}

impl Default for Cores {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_has_one_seat() {
        let cores = Cores::new();
        // The test may be moved to another core between two calls; yet every seat is somebody's only once.
        let seats: Vec<_> = (0..10_000).filter_map(|_| cores.sit()).collect();
        assert!((1..=cores.taken.len()).contains(&seats.len()));
        drop(seats);
        assert!(cores.sit().is_some());
    }
}
