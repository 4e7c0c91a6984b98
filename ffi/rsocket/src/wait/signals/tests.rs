use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use libc::{SIGUSR1, SIGUSR2};
use ringway_host::Clock;

use super::*;

/// The process's handlers are of one test at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

static RAN: AtomicU32 = AtomicU32::new(0);

extern "C" fn handler(_: i32) {
    RAN.fetch_add(1, Ordering::SeqCst);
}

fn install(signal: i32, flags: i32) {
    // SAFETY: the handler does nothing that a handler may not; zero is an empty set.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &raw const action, null_mut()), 0);
    }
}

/// Sends signals to the thread that made it, until that drops it.
pub(in crate::wait) struct Signalled {
    /// (Whose end is what the other thread waits for.)
    end: Option<mpsc::Sender<()>>,
    sender: Option<JoinHandle<()>>,
}

fn signal_every(time: Duration, signal: i32) -> Signalled {
    let (end, ended) = mpsc::channel::<()>();
    // SAFETY: no preconditions.
    let thread = unsafe { libc::pthread_self() };
    let sender = std::thread::spawn(move || {
        while ended.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout) {
            // SAFETY: the thread lives: it waits for this one.
            unsafe { libc::pthread_kill(thread, signal) };
        }
    });
    Signalled { end: Some(end), sender: Some(sender) }
}

/// The same, for tests of others: a handler runs on the calling thread.
pub(in crate::wait) fn signalled_every(time: Duration) -> (Signalled, MutexGuard<'static, ()>) {
    let one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    install(SIGUSR1, 0);
    (signal_every(time, SIGUSR1), one)
}

impl Drop for Signalled {
    fn drop(&mut self) {
        drop(self.end.take());
        let ended = self.sender.take().map(JoinHandle::join);
        assert!(matches!(ended, Some(Ok(()))), "it ended well");
    }
}

/// A wait that only looks: whether a handler of `signal`, which comes once signals are blocked, ends it. In any case the handler runs.
fn is_ended(restarts: bool, mask: Option<&sigset_t>, signal: i32) -> bool {
    let before = RAN.load(Ordering::SeqCst);
    let (clock, mut signals) = (Clock::new(), Signals::new(restarts, mask));
    let began = clock.now();
    while signals.blocked.is_none() {
        signals.between_looks(began, clock.now());
    }
    // SAFETY: the calling thread, and a signal.
    assert_eq!(unsafe { libc::pthread_kill(libc::pthread_self(), signal) }, 0);
    assert_eq!(RAN.load(Ordering::SeqCst), before, "it is blocked");
    let looks_on_until = clock.now() + 5 * LET_IN_EVERY;
    // (However late it comes to look, it looks once more.)
    loop {
        let now = clock.now();
        signals.between_looks(began, now);
        if signals.is_over() || now >= looks_on_until {
            break;
        }
    }
    let is_over = signals.is_over();
    if mask.is_none() {
        assert_eq!(RAN.load(Ordering::SeqCst), before + 1, "it ran, once, though the thread never slept");
    }
    drop(signals);
    assert!(!contains(&mask_of_thread(), signal), "the thread's mask is what it was");
    assert_eq!(RAN.load(Ordering::SeqCst), before + 1);
    is_over
}

#[test]
fn a_handler_ends_a_wait_that_only_looks() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    install(SIGUSR1, 0);
    install(SIGUSR2, SA_RESTART);
    assert!(is_ended(true, None, SIGUSR1), "a call on a socket");
    assert!(!is_ended(true, None, SIGUSR2), "one that is begun anew by itself");
    assert!(is_ended(false, None, SIGUSR1) && is_ended(false, None, SIGUSR2), "a call that waits for several");
    let mut mask = mask_of_thread();
    // SAFETY: a set.
    unsafe { libc::sigaddset(&raw mut mask, SIGUSR1) };
    assert!(!is_ended(false, Some(&mask), SIGUSR1), "the program has it blocked for this wait");
    assert!(is_ended(false, Some(&mask), SIGUSR2));
}

#[test]
fn what_comes_at_first_is_before_the_call() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    install(SIGUSR1, 0);
    let mut signals = Signals::new(true, None);
    let began = Clock::new().now();
    signals.between_looks(began, began + OPEN_FOR / 2);
    assert!(signals.blocked.is_none() && signals.mask().is_none(), "a short wait makes no system call");
    signals.between_looks(began, began + OPEN_FOR);
    assert!(signals.blocked.is_some() && signals.mask().is_some());
}

#[test]
fn what_ended_a_sleep_ends_the_wait_or_does_not() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let sleeps = |restarts| {
        let mut signals = Signals::new(restarts, None);
        let signalled = signal_every(Duration::from_millis(2), SIGUSR2);
        let said = ppoll(&mut [], None, signals.mask()).map_err(|error| Errno(error.raw_os_error().unwrap_or(0)));
        drop(signalled);
        assert_eq!(signals.heard(said), Ok(None));
        signals.is_over()
    };
    install(SIGUSR1, SA_RESTART);
    install(SIGUSR2, SA_RESTART);
    assert!(!sleeps(true));
    assert!(sleeps(false));
    install(SIGUSR2, 0);
    assert!(sleeps(true));
    assert_eq!(Signals::new(true, None).heard::<()>(Err(Errno(libc::ENOMEM))), Err(Errno(libc::ENOMEM)));
}
