//! What may take as long as a program likes is done by threads: closing what it has passed (a socket that lingers, SO_LINGER; a file of a file system of its own), and what
//! takes its socket's lock, which a thread of the program may hold (one that sends from a page of such a file). The broker's loop waits for none of it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_host::leave;
use rustix::event::{EventfdFlags, eventfd};

use super::message::Refusal;
use super::repair::Repaired;

/// Descriptors of one user's that threads have, beyond which the user's programs are not heard. (One message may bring more of them, once.)
pub(super) const HELD_MAX: usize = 64;
/// A thread calls the kernel, and little else.
const STACK: usize = 128 << 10;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Threads(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Readable when a thread has ended.
    ended: OwnedFd,
}

#[derive(Default)]
struct State {
    /// How many descriptors threads have, by users.
    held: BTreeMap<u32, usize>,
    done: Vec<Done>,
    /// For which there was no thread to be had.
    waiting: Vec<Work>,
}

type Work = Box<dyn FnOnce() + Send>;

/// A question that a thread has answered.
#[derive(Debug)]
pub(super) struct Done {
    /// Whose ([`super::guest::Guest::id`]).
    pub(super) guest: u64,
    pub(super) uid: u32,
    pub(super) answer: Result<(), Refusal>,
    /// What is in repair mode since.
    pub(super) began: Option<Repaired>,
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shared").field("held", &self.state().held).finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Threads {
    pub(super) fn new() -> io::Result<Self> {
        let ended = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Shared { state: Mutex::default(), ended })))
    }

    /// Closes what a user's program has passed.
    pub(super) fn close(&self, user: u32, descriptors: Vec<OwnedFd>) {
        if !descriptors.is_empty() {
            self.run(user, descriptors.len(), move || drop(descriptors));
        }
    }

    /// Takes a socket out of repair mode, in which it is not to be any longer, and closes it.
    pub(super) fn retire(&self, user: u32, repaired: Repaired) {
        self.run(user, 1, move || {
            if let Err(error) = leave::retire(repaired.socket()) {
                tracing::warn!("a socket of user {user} does not leave repair mode: {error}");
            }
            drop(repaired);
        });
    }

    /// Answers a question about so many descriptors, which `work` closes that are not in its answer.
    pub(super) fn ask(&self, user: u32, descriptors: usize, work: impl FnOnce() -> Done + Send + 'static) {
        let own = self.clone();
        self.run(user, descriptors, move || {
            let done = work();
            own.0.state().done.push(done);
        });
    }

    fn run(&self, user: u32, descriptors: usize, work: impl FnOnce() + Send + 'static) {
        *self.0.state().held.entry(user).or_default() += descriptors;
        let own = self.clone();
        self.spawn(Box::new(move || {
            work();
            own.has_ended(user, descriptors);
        }));
    }

    fn spawn(&self, work: Work) {
        // (Where there is no thread, the work is not to be done, nor given up, by who wanted one.)
        let work = Arc::new(Mutex::new(Some(work)));
        let take = |work: &Mutex<Option<Work>>| work.lock().unwrap_or_else(PoisonError::into_inner).take();
        let own = Arc::clone(&work);
        let run = move || take(&own).into_iter().for_each(|work| work());
        if std::thread::Builder::new().name("at sockets".to_owned()).stack_size(STACK).spawn(run).is_err() {
            self.0.state().waiting.extend(take(&work));
        }
    }

    fn has_ended(&self, user: u32, descriptors: usize) {
        let mut state = self.0.state();
        if let Some(held) = state.held.get_mut(&user) {
            *held -= descriptors;
            if *held == 0 {
                state.held.remove(&user);
            }
        }
        drop(state);
        let _ = rustix::io::write(&self.0.ended, &1_u64.to_ne_bytes());
    }

    /// How many descriptors of that user's they have.
    pub(super) fn held(&self, user: u32) -> usize {
        self.0.state().held.get(&user).copied().unwrap_or(0)
    }

    /// Readable when there is something to [`Threads::take`].
    pub(super) fn ended(&self) -> BorrowedFd<'_> {
        self.0.ended.as_fd()
    }

    /// Whether some work has no thread yet.
    pub(super) fn is_waiting(&self) -> bool {
        !self.0.state().waiting.is_empty()
    }

    /// What was answered; what has no thread yet is given one.
    pub(super) fn take(&self) -> Vec<Done> {
        let _ = rustix::io::read(&self.0.ended, &mut [0; 8]);
        let (done, waiting) = {
            let mut state = self.0.state();
            (core::mem::take(&mut state.done), core::mem::take(&mut state.waiting))
        };
        waiting.into_iter().for_each(|work| self.spawn(work));
        done
    }
}
