//! Calls that stop in the middle, have the program's callbacks run, and go on.
//!
//! A callback may do anything: call any function of ours, throw, longjmp, end its thread. So it runs where nothing of ours is on the stack but the
//! exported function: a call that finds that callbacks are due, and that it could not end without them, fails with [`DUE`] inside the
//! library, holds nothing any more, and is made again by [`receiving_point`](crate::receiving_point) once they have run. What it must not begin anew (its time, the
//! bytes that it has) is kept for it here.

use core::ffi::c_int;

use ringway_stack::Instant;

use super::callback;
use crate::errno::{self, Errno};
use crate::mux::thread::{self, Marks};
use crate::process::Offload;
use crate::slab::Key;

/// Not a failure: callbacks are due, and then the call is to be made again. It has no number that errno could have.
pub(crate) const DUE: Errno = Errno(-2);

/// A call that doesn't wait goes on without callbacks after so many rounds of them, should others arrive as fast as they run.
const ROUNDS_MAX: u32 = 64;

/// What a call that is made again knows of its beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resume {
    /// When it began.
    pub(crate) began: Instant,
    /// Bytes that it has received.
    pub(crate) done: usize,
    /// How often callbacks have run for it.
    rounds: u32,
    /// errno as it was when it stopped.
    errno: c_int,
    /// It waits for readiness.
    polls: bool,
    /// Handlers that had run then: one that runs among the callbacks ends the call as well. `None`: there were no callbacks when it began, and
    /// whoever waits for it asks for itself.
    pub(crate) marks: Option<Marks>,
}

impl Resume {
    pub(crate) fn new(began: Instant) -> Self {
        Self { marks: Some(thread::with(|thread| thread.marks())), ..Self::unheeded(began) }
    }

    /// Of a call that has waited since then, when so many handlers had run.
    pub(crate) fn since(began: Instant, marks: Marks) -> Self {
        Self { marks: Some(marks), ..Self::unheeded(began) }
    }

    /// Of a call that begins where no socket has a callback.
    #[inline]
    const fn unheeded(began: Instant) -> Self {
        Self { began, done: 0, rounds: 0, errno: 0, polls: false, marks: None }
    }

    /// Whether a handler has run since that ends a call which restarts, or the thread is to end.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.marks.is_some_and(|marks| thread::with(|thread| thread.interrupted(marks, true)))
    }

    /// With so many bytes received.
    pub(crate) fn with(self, done: usize) -> Self {
        Self { done, ..self }
    }

    /// Of a call that waits for readiness.
    pub(crate) fn polling(self) -> Self {
        Self { polls: true, ..self }
    }

    /// The call is to be made again, from here.
    #[cold]
    pub(crate) fn due(self) -> Errno {
        thread::with(|thread| {
            let marks = self.marks.or_else(|| Some(thread.marks()));
            thread.resume.set(Some(Self { errno: errno::current(), marks, ..self }));
        });
        DUE
    }

    /// Whether callbacks may stop a call whose time is over then: `None`: never.
    #[inline]
    pub(crate) fn may_stop(&self, now: impl FnOnce() -> Instant, deadline: Option<Instant>) -> bool {
        self.rounds < ROUNDS_MAX || deadline.is_none_or(|deadline| now() < deadline)
    }
}

/// How the call under way began, if it is made again: for whoever asks first.
#[inline]
pub(crate) fn taken() -> Option<Resume> {
    thread::with(|thread| thread.resume.take())
}

/// When the call under way began, for whoever only looks.
pub(crate) fn began_or(now: Instant) -> Instant {
    thread::with(|thread| thread.resume.get().map_or(now, |resume| resume.began))
}

/// The call that was to be made again is over.
pub(crate) fn forget() {
    thread::with(|thread| thread.resume.set(None));
}

/// Puts back what [`taken`] gave: of a call that is made again, which alone clears it at its end ([`end`]).
pub(crate) fn put_back(resume: Resume) {
    thread::with(|thread| thread.resume.set(Some(resume)));
}

/// The call that is to be made again began earlier than the part of it that stopped.
pub(crate) fn rebase(began: Instant) {
    if let Some(resume) = taken() {
        put_back(Resume { began, ..resume });
    }
}

impl Offload {
    /// How the call under way began, if it is made again; or it begins now. For whoever asks first.
    #[inline]
    pub(crate) fn call_under_way(&self, now: Instant) -> Resume {
        if !self.callbacks.are_used() {
            return Resume::unheeded(now);
        }
        taken().unwrap_or_else(|| Resume::new(now))
    }

    /// Why a call that found nothing, and is about to wait until then (`None`: for ever), is to stop: callbacks are due, or (EDEADLK) its thread is
    /// in the callback that what it waits for would be shown to next.
    #[inline]
    pub(crate) fn stop(&self, resume: Resume, key: Key, now: Instant, deadline: Option<Instant>) -> Option<Errno> {
        if self.callbacks.are_due() && resume.may_stop(|| now, deadline) {
            return Some(resume.due());
        }
        (deadline.is_none() && self.callbacks.is_mine(key)).then_some(Errno(libc::EDEADLK))
    }
}

/// A call of the program's failed: if it only stopped, callbacks run, and `true`: it is to be made again. `rounds`: how often that was so.
///
/// Nothing that needs dropping may be on the stack.
#[inline]
pub(crate) fn again(rounds: &mut u32) -> bool {
    errno::current() == DUE.0 && run(rounds)
}

#[cold]
#[inline(never)]
fn run(rounds: &mut u32) -> bool {
    *rounds += 1;
    // (Whoever took it, the call has not ended, and is not to tell of it. It begins anew.)
    let Some(resume) = taken() else { return true };
    errno::set(resume.errno);
    let outer = thread::with(|thread| thread.polls.replace(resume.polls));
    callback::run();
    thread::with(|thread| thread.polls.set(outer));
    errno::set(resume.errno);
    put_back(Resume { rounds: *rounds, ..resume });
    true
}

/// The end of a call that was made again: the next one begins anew.
#[inline]
pub(crate) fn end(rounds: u32) {
    if rounds > 0 {
        forget();
    }
}

/// Makes a call that is a cancellation point, and in which callbacks may run.
#[macro_export]
#[doc(hidden)]
macro_rules! receiving_point {
    ($call:expr) => {{
        $crate::cancel::enter();
        let mut rounds = 0;
        loop {
            let result = $call;
            if result != -1 || !($crate::extra::resume::again(&mut rounds) || $crate::cancel::again()) {
                $crate::extra::resume::end(rounds);
                break result;
            }
        }
    }};
}
