//! The executor of one program: tasks, run one at a time in the order in which they were woken.

use core::cell::RefCell;
use core::fmt;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

/// Tasks polled at one point in virtual time before it counts as a livelock.
const POLLS_MAX: u32 = 1_000_000;

type Future = Pin<Box<dyn core::future::Future<Output = ()>>>;

/// The tasks of one program.
#[derive(Default)]
pub(super) struct Executor {
    tasks: BTreeMap<u64, Future>,
    spawner: Spawner,
}

impl Executor {
    pub(super) fn spawner(&self) -> Spawner {
        self.spawner.clone()
    }

    /// Runs tasks until all wait, or `done` says that enough is done.
    ///
    /// # Panics
    /// They never come to rest.
    pub(super) fn run(&mut self, done: impl Fn() -> bool) {
        for _ in 0..POLLS_MAX {
            self.tasks.append(&mut self.spawner.0.born.borrow_mut());
            let Some(id) = self.spawner.0.ready.take() else { return };
            // Woken after its end.
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            let waker = Waker::from(Arc::new(TaskWaker { id, ready: Arc::clone(&self.spawner.0.ready) }));
            if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                let ended = self.tasks.remove(&id);
                drop(ended);
            }
            if done() {
                return;
            }
        }
        panic!("{POLLS_MAX} times a task was polled, and time stood still");
    }

    /// Drops all tasks, those included that others spawn as they are dropped.
    pub(super) fn clear(&mut self) {
        loop {
            self.tasks.append(&mut self.spawner.0.born.borrow_mut());
            let Some((_, task)) = self.tasks.pop_first() else { return };
            drop(task);
        }
    }
}

/// Begins tasks of one program.
#[derive(Clone, Default)]
pub(super) struct Spawner(Rc<Nursery>);

#[derive(Default)]
struct Nursery {
    ready: Arc<Ready>,
    born: RefCell<BTreeMap<u64, Future>>,
    made: core::cell::Cell<u64>,
}

impl Spawner {
    pub(super) fn spawn<T: 'static>(&self, future: impl core::future::Future<Output = T> + 'static) -> Task<T> {
        let id = self.0.made.get();
        self.0.made.set(id + 1);
        let end: Rc<RefCell<End<T>>> = Rc::new(RefCell::new(End { result: None, waiting: None }));
        let told = Rc::clone(&end);
        let task = async move {
            let result = future.await;
            let mut end = told.borrow_mut();
            end.result = Some(result);
            let waiting = end.waiting.take();
            drop(end);
            waiting.into_iter().for_each(Waker::wake);
        };
        self.0.born.borrow_mut().insert(id, Box::pin(task));
        self.0.ready.push(id);
        Task { end }
    }
}

/// A spawned task. Awaiting it gives its result; dropping it lets it run on by itself.
pub struct Task<T> {
    end: Rc<RefCell<End<T>>>,
}

struct End<T> {
    result: Option<T>,
    waiting: Option<Waker>,
}

impl<T> Task<T> {
    /// Its result, once.
    pub(super) fn result(&self) -> Option<T> {
        self.end.borrow_mut().result.take()
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("ended", &self.end.borrow().result.is_some()).finish_non_exhaustive()
    }
}

impl<T> core::future::Future for Task<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut end = self.end.borrow_mut();
        if let Some(result) = end.result.take() {
            return Poll::Ready(result);
        }
        let displaced = end.waiting.replace(cx.waker().clone());
        drop(end);
        drop(displaced);
        Poll::Pending
    }
}

/// Tasks that were woken, each once. Shared with wakers, which may be anywhere: hence the lock, which one thread never contends for.
#[derive(Default)]
struct Ready(Mutex<VecDeque<u64>>);

impl Ready {
    fn push(&self, id: u64) {
        let mut queue = self.queue();
        if !queue.contains(&id) {
            queue.push_back(id);
        }
    }

    fn take(&self) -> Option<u64> {
        self.queue().pop_front()
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct TaskWaker {
    id: u64,
    ready: Arc<Ready>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.push(self.id);
    }
}
