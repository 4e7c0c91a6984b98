//! What is counted for each descriptor beside the ring's own counters: failed calls, waits, what the kernel carried.
//!
//! A table by descriptor, a piece of which is made when something happens there for the first time: a descriptor that nothing is counted of costs
//! nothing. Counting is a load and a store, so that it costs next to nothing where it happens: of two threads that count the same thing of
//! one descriptor within the same nanosecond, one may get lost.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use libc::c_int;

use crate::byfd::{ByFd, Empty};
use crate::fdtable::LIMIT;
use crate::process::fork_generation;

const CHUNK: usize = 32;
const CHUNKS: usize = LIMIT as usize / CHUNK;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// Receive calls on an offloaded socket: EAGAIN, and other failures.
    RxEagain,
    RxError,
    /// The same of send calls.
    TxEagain,
    TxError,
    /// The same of sockets that are left to the kernel.
    KernelRxEagain,
    KernelRxError,
    KernelTxEagain,
    KernelTxError,
    /// Bytes that the kernel carried.
    KernelRxBytes,
    KernelTxBytes,
    /// Waits that found something while they spun; that slept, or gave up, after they had.
    PollHits,
    PollMisses,
    /// Messages that were sent to warm up.
    TxDummies,
}

const COUNTS: usize = 13;

/// Which way a call moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Rx,
    Tx,
}

/// A descriptor's counts.
#[derive(Debug)]
pub(crate) struct FdCounters {
    counts: [AtomicU64; COUNTS],
    /// The threads that last received and sent, while somebody watches.
    threads: [AtomicI32; 2],
}

/// Its counts at one moment, or several's together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    counts: [u64; COUNTS],
    threads: [i32; 2],
}

static TABLE: ByFd<FdCounters, CHUNK, CHUNKS> = ByFd::new();

impl Empty for FdCounters {
    const EMPTY: Self = Self { counts: [const { AtomicU64::new(0) }; COUNTS], threads: [const { AtomicI32::new(0) }; 2] };
}

/// Of poll, and of select, which have no descriptor. Their spinning is counted together, for both wait alike.
pub(crate) static POLL: FdCounters = FdCounters::EMPTY;
pub(crate) static SELECT: FdCounters = FdCounters::EMPTY;

/// Stands for [`POLL`] where a descriptor is asked for.
pub(crate) const NO_FD: c_int = -1;

/// Somebody reads the statistics: details are kept as well that a call would have to pay for.
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Somebody reads the statistics, or nobody does any more.
pub(crate) fn set_watched(watched: bool) {
    WATCHED.store(watched, Ordering::Relaxed);
}

/// Counts one more.
#[inline]
pub(crate) fn count(fd: c_int, what: Count) {
    add(fd, what, 1);
}

/// Counts so many more.
#[inline]
pub(crate) fn add(fd: c_int, what: Count, more: u64) {
    if let Some(counters) = TABLE.find_or_make(fd) {
        counters.add(what, more);
    }
}

/// A call on an offloaded socket has ended, by this error or well.
#[inline]
pub(crate) fn ended(fd: c_int, way: Way, error: Option<c_int>) {
    match error {
        Some(error) if error > 0 => failed(fd, way, error),
        // Another's to answer, or a call that is about to go on: neither has ended.
        Some(_) => {}
        None if WATCHED.load(Ordering::Relaxed) => note_thread(fd, way),
        None => {}
    }
}

/// A message that is to reach nobody has gone, or was refused.
pub(crate) fn warmed(fd: c_int, error: Option<c_int>) {
    match error {
        Some(error) => failed(fd, Way::Tx, error),
        None => count(fd, Count::TxDummies),
    }
}

fn failed(fd: c_int, way: Way, error: c_int) {
    let what = match (way, error == libc::EAGAIN) {
        (Way::Rx, true) => Count::RxEagain,
        (Way::Rx, false) => Count::RxError,
        (Way::Tx, true) => Count::TxEagain,
        (Way::Tx, false) => Count::TxError,
    };
    count(fd, what);
}

/// The kernel's answer to a call on a socket that is left to it: bytes, or an error in errno.
pub(crate) fn kernel_said(fd: c_int, way: Way, result: isize) {
    match (u64::try_from(result), way) {
        (Ok(bytes), Way::Rx) => add(fd, Count::KernelRxBytes, bytes),
        (Ok(bytes), Way::Tx) => add(fd, Count::KernelTxBytes, bytes),
        (Err(_), way) => {
            let what = match (way, crate::errno::current() == libc::EAGAIN) {
                (Way::Rx, true) => Count::KernelRxEagain,
                (Way::Rx, false) => Count::KernelRxError,
                (Way::Tx, true) => Count::KernelTxEagain,
                (Way::Tx, false) => Count::KernelTxError,
            };
            count(fd, what);
        }
    }
}

#[cold]
fn note_thread(fd: c_int, way: Way) {
    thread_local! {
        /// The fork generation that the number is of, and the number.
        static THREAD: Cell<(u32, i32)> = const { Cell::new((u32::MAX, 0)) };
    }
    let Some(counters) = TABLE.find_or_make(fd) else { return };
    let thread = THREAD.with(|thread| {
        let generation = fork_generation();
        if thread.get().0 != generation {
            // SAFETY: gettid has no preconditions.
            thread.set((generation, unsafe { libc::gettid() }));
        }
        thread.get().1
    });
    counters.threads[way as usize].store(thread, Ordering::Relaxed);
}

/// Where a wait on one socket or epoll instance is counted, or any other (for [`NO_FD`]). (Asked for before it, since nothing is to be
/// looked up between what it waits for and its end.)
#[inline]
pub(crate) fn of_wait(fd: c_int) -> &'static FdCounters {
    if fd == NO_FD { &POLL } else { TABLE.find_or_make(fd).unwrap_or(&POLL) }
}

/// The number means something new from now on.
#[inline]
pub(crate) fn forget(fd: c_int) {
    if let Some(counters) = TABLE.find(fd) {
        counters.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        counters.threads.iter().for_each(|thread| thread.store(0, Ordering::Relaxed));
    }
}

/// What was counted of a descriptor.
pub(crate) fn of(fd: c_int) -> Sums {
    TABLE.find(fd).map_or_else(Sums::default, FdCounters::sums)
}

impl FdCounters {
    #[inline]
    fn add(&self, what: Count, more: u64) {
        let place = &self.counts[what as usize];
        place.store(place.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }

    /// A wait has spun: and found something, or not.
    #[inline]
    pub(crate) fn spun(&self, found: bool) {
        self.add(if found { Count::PollHits } else { Count::PollMisses }, 1);
    }

    /// How a call of poll, select or epoll_wait ended: how many it found, or that it failed.
    #[inline]
    pub(crate) fn waited(&self, found: Option<usize>) {
        let [ready, timeouts, errors] = WAITED;
        self.add(
            match found {
                Some(0) => timeouts,
                Some(_) => ready,
                None => errors,
            },
            1,
        );
    }

    pub(crate) fn sums(&self) -> Sums {
        Sums {
            counts: core::array::from_fn(|at| self.counts[at].load(Ordering::Relaxed)),
            threads: core::array::from_fn(|at| self.threads[at].load(Ordering::Relaxed)),
        }
    }
}

/// [`FdCounters::waited`], of an epoll instance.
#[inline]
pub(crate) fn waited(fd: c_int, found: Option<usize>) {
    if let Some(counters) = TABLE.find_or_make(fd) {
        counters.waited(found);
    }
}

/// What waits is no socket: where its ready calls, those whose time ran out, and those that failed are counted.
const WAITED: [Count; 3] = [Count::RxEagain, Count::RxError, Count::TxEagain];

impl Sums {
    pub(crate) const fn count(&self, what: Count) -> u64 {
        self.counts[what as usize]
    }

    /// The thread that last moved bytes that way; 0: none while somebody watched.
    pub(crate) const fn thread(&self, way: Way) -> i32 {
        self.threads[way as usize]
    }

    /// Calls that found something, whose time ran out, and that failed.
    pub(crate) fn waited(&self) -> [u64; 3] {
        WAITED.map(|what| self.count(what))
    }

    /// Another descriptor's of the same socket.
    pub(crate) fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, other)| *count += other);
        self.threads.iter_mut().zip(other.threads).filter(|(_, other)| *other != 0).for_each(|(thread, other)| *thread = other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_a_descriptors_own_until_it_means_something_new() {
        let fd = 700_100;
        assert_eq!(of(fd).count(Count::RxEagain), 0);
        ended(fd, Way::Rx, Some(libc::EAGAIN));
        ended(fd, Way::Tx, Some(libc::EPIPE));
        kernel_said(fd, Way::Tx, 100);
        crate::errno::set(libc::EAGAIN);
        kernel_said(fd, Way::Rx, -1);
        of_wait(fd).spun(true);
        let sums = of(fd);
        let counts = [Count::RxEagain, Count::TxError, Count::KernelTxBytes, Count::KernelRxEagain, Count::PollHits, Count::PollMisses];
        assert_eq!(counts.map(|what| sums.count(what)), [1, 1, 100, 1, 1, 0]);
        assert_eq!(of(fd + 1).count(Count::RxEagain), 0);
        forget(fd);
        assert_eq!(of(fd).count(Count::RxEagain), 0);
    }

    #[test]
    fn threads_are_noted_while_somebody_watches() {
        let fd = 700_200;
        ended(fd, Way::Rx, None);
        assert_eq!(of(fd).thread(Way::Rx), 0);
        set_watched(true);
        ended(fd, Way::Rx, None);
        set_watched(false);
        // SAFETY: gettid has no preconditions.
        assert_eq!((of(fd).thread(Way::Rx), of(fd).thread(Way::Tx)), (unsafe { libc::gettid() }, 0));
    }

    #[test]
    fn numbers_beyond_the_table_are_not_counted() {
        count(LIMIT as c_int, Count::RxEagain);
        count(-7, Count::RxEagain);
        assert_eq!(of(LIMIT as c_int).count(Count::RxEagain), 0);
    }

    #[test]
    fn waits_are_told_by_how_they_ended() {
        let counters = FdCounters::EMPTY;
        [Some(3), Some(0), None, Some(1)].into_iter().for_each(|found| counters.waited(found));
        assert_eq!(counters.sums().waited(), [2, 1, 1]);
    }
}
