//! Descriptors' numbers: the program's are the lowest that are free, as on the kernel (POSIX), although the library has descriptors of its own.
//!
//! The kernel gives the library's the lowest number too, from which it is moved to a high one: for that moment, a program's thread would see a number
//! taken that is free. So the two exclude each other: whoever makes a descriptor of the library's ([`make_internal`]) waits for the program's calls that
//! make one, and those for it ([`lowest`]). They are several on either side at once. A call that waits in the kernel until there is something
//! to make a descriptor of excludes nobody; whether it got too high a number is seen afterwards ([`lowest_after_waiting`]).
//!
//! All of it is a word that is changed twice a descriptor, and never on the way of a message. Nobody waits for ever: a thread may have died in
//! the middle, and a signal's handler may have interrupted the very thread that it would wait for.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::os::fd::RawFd;
use std::time::Instant;

use crate::{sleep, syscall};

/// What has a number of the program's for a moment, or is being given one, in fields of a word.
static WORD: AtomicU64 = AtomicU64::new(0);
/// How often the library has made a descriptor.
static MADE: AtomicU64 = AtomicU64::new(0);

/// A field of the word: how many there are.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Field(u32);

const LIBRARY: Field = Field(0);
const PROGRAM: Field = Field(16);
/// The program's calls that seldom wait, and perhaps for ever: open(2) of a FIFO.
const PROGRAM_SLOW: Field = Field(32);

/// How long one waits at most: whoever has not gone by then never will, and is forgotten.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the library waits for those.
const PATIENCE_WITH_SLOW: Duration = Duration::from_millis(1);

impl Field {
    const fn of(self, word: u64) -> u64 {
        word >> self.0 & 0xffff
    }

    const fn one(self) -> u64 {
        1 << self.0
    }

    const fn without(self, word: u64) -> u64 {
        word & !(0xffff << self.0)
    }
}

thread_local! {
    /// The thread is in here: what it does in a signal's handler waits for nobody.
    static IS_IN: Cell<bool> = const { Cell::new(false) };
}

/// One of a field's, while it lives.
struct Turn {
    field: Field,
    was_in: bool,
}

impl Turn {
    /// The library's: from here on, no call of the program's begins, and those that have begun are waited for.
    fn of_library() -> Self {
        let turn = Self { field: LIBRARY, was_in: IS_IN.replace(true) };
        MADE.fetch_add(1, Ordering::SeqCst);
        let mut word = WORD.fetch_add(LIBRARY.one(), Ordering::SeqCst);
        let mut began = None;
        while !turn.was_in && PROGRAM.of(word) + PROGRAM_SLOW.of(word) != 0 {
            let waited = wait(&mut began);
            if PROGRAM.of(word) == 0 && waited >= PATIENCE_WITH_SLOW {
                break;
            }
            if waited >= PATIENCE {
                let _ = WORD.compare_exchange(word, PROGRAM.without(word), Ordering::SeqCst, Ordering::Relaxed);
            }
            word = WORD.load(Ordering::SeqCst);
        }
        turn
    }

    /// A call's of the program's.
    fn of_program(field: Field) -> Self {
        let was_in = IS_IN.replace(true);
        let (mut word, mut began) = (WORD.load(Ordering::Relaxed), None);
        loop {
            if LIBRARY.of(word) != 0 && !was_in {
                if wait(&mut began) >= PATIENCE {
                    let _ = WORD.compare_exchange(word, LIBRARY.without(word), Ordering::SeqCst, Ordering::Relaxed);
                }
                word = WORD.load(Ordering::Relaxed);
                continue;
            }
            match WORD.compare_exchange_weak(word, word + field.one(), Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return Self { field, was_in },
                Err(now) => word = now,
            }
        }
    }
}

/// Lets others go on; how long one has waited.
#[cold]
fn wait(began: &mut Option<Instant>) -> Duration {
    sleep::yield_core();
    began.get_or_insert_with(Instant::now).elapsed()
}

impl Drop for Turn {
    fn drop(&mut self) {
        // (None is left where they were forgotten.)
        let less = |word| (self.field.of(word) != 0).then(|| word - self.field.one());
        let _ = WORD.fetch_update(Ordering::SeqCst, Ordering::Relaxed, less);
        IS_IN.set(self.was_in);
    }
}

/// Has `make` make descriptors of the library's, and move them to high numbers or close them again.
pub fn make_internal<T>(make: impl FnOnce() -> T) -> T {
    let _turn = Turn::of_library();
    make()
}

/// Has `make` make descriptors of the program's, without waiting for anything.
#[inline]
pub fn lowest<T>(make: impl FnOnce() -> T) -> T {
    let _turn = Turn::of_program(PROGRAM);
    make()
}

/// As [`lowest`], where it cannot be told whether it waits.
#[inline]
pub fn lowest_if_at_once<T>(make: impl FnOnce() -> T) -> T {
    let _turn = Turn::of_program(PROGRAM_SLOW);
    make()
}

/// As [`lowest`], for a call that waits: it makes a socket, or fails with a number below zero. If the library has made a descriptor meanwhile, the
/// socket may get another number. (That would not do for a file: to close one of two descriptors of it gives up the process's record locks.)
#[inline]
pub fn lowest_after_waiting(make: impl FnOnce() -> RawFd) -> RawFd {
    let before = (MADE.load(Ordering::SeqCst), LIBRARY.of(WORD.load(Ordering::SeqCst)));
    let fd = make();
    // (One that begins now takes nothing from what is made.)
    if fd < 0 || before == (MADE.load(Ordering::SeqCst), 0) {
        return fd;
    }
    lowered(fd)
}

/// The lowest number for a socket that was made just now. (Others make descriptors meanwhile: there may be a lower one by the time this returns, as on
/// the kernel.)
#[cold]
fn lowered(fd: RawFd) -> RawFd {
    let lower = lowest(|| syscall::dup_lowest(fd));
    match lower {
        Ok(lower) if lower < fd => {
            syscall::close(fd);
            lower
        }
        Ok(higher) => {
            // It had the next number for a moment.
            make_internal(|| syscall::close(higher));
            fd
        }
        Err(_) => fd,
    }
}

/// In a fork's child: threads of its parent that were in here are not in it. Async-signal-safe.
pub fn forget_all_in_child() {
    WORD.store(0, Ordering::Relaxed);
    IS_IN.set(false);
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicBool, AtomicU64};

    use super::*;

    /// The word is the process's: one test at a time.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn the_librarys_and_the_programs_exclude_each_other_and_not_themselves() {
        let _one = ONE.lock();
        // When each thread came in: two of the library's, then two of the program's. One that was without a core for long is met by all who lost patience
        // with it: those meetings are none. Nor are those of one that lost patience, as it does at each call where there are too few cores.
        let (inside, is_over) = ([const { AtomicU64::new(0) }; 4], AtomicBool::new(false));
        let began = Instant::now();
        let now = || began.elapsed().as_nanos() as u64 + 1;
        let brief = |from: u64, to: u64| u128::from(to - from) < PATIENCE.as_nanos() / 2;
        let met = |thread: usize, called: u64| {
            let (since, others) = (now(), if thread < 2 { &inside[2..] } else { &inside[..2] });
            if !brief(called, since) {
                return false;
            }
            inside[thread].store(since, Ordering::SeqCst);
            let is_met = |other: &AtomicU64| {
                let other = other.load(Ordering::SeqCst);
                other != 0 && brief(since.min(other), now())
            };
            let met = (0..50).any(|_| others.iter().any(is_met));
            inside[thread].store(0, Ordering::SeqCst);
            met
        };
        std::thread::scope(|scope| {
            let (met, now, is_over) = (&met, &now, &is_over);
            let library = [0, 1].map(|thread| {
                scope.spawn(move || {
                    let mut meetings = 0usize;
                    while !is_over.load(Ordering::Relaxed) {
                        let called = now();
                        meetings += usize::from(make_internal(|| met(thread, called)));
                    }
                    meetings
                })
            });
            let meets = move |thread| {
                let called = now();
                lowest(|| met(thread, called))
            };
            let program = [2, 3].map(|thread| scope.spawn(move || (0..2000).filter(|_| meets(thread)).count()));
            let meetings = program.map(|thread| thread.join().unwrap());
            is_over.store(true, Ordering::Relaxed);
            // (One that was without a core as it came in meets whoever is there, once.)
            assert!(
                meetings.iter().sum::<usize>() + library.map(|thread| thread.join().unwrap()).iter().sum::<usize>() < 5,
                "{meetings:?}"
            );
        });
    }

    #[test]
    fn who_is_in_here_already_and_who_has_waited_for_long_do_not_wait() {
        let _one = ONE.lock();
        // A handler's call.
        let began = Instant::now();
        assert_eq!(make_internal(|| lowest(|| 7)), 7);
        assert!(began.elapsed() < PATIENCE);
        // One that opens a FIFO, perhaps for ever.
        lowest_if_at_once(|| {
            let other = std::thread::spawn(|| {
                let began = Instant::now();
                make_internal(|| ());
                began.elapsed()
            });
            assert!(other.join().unwrap() >= PATIENCE_WITH_SLOW);
        });
        // One that died in the middle.
        core::mem::forget(Turn::of_library());
        IS_IN.set(false);
        let began = Instant::now();
        lowest(|| ());
        assert!(began.elapsed() >= PATIENCE);
        forget_all_in_child();
        let began = Instant::now();
        lowest(|| ());
        assert!(began.elapsed() < PATIENCE);
    }
}
