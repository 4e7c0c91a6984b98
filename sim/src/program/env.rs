//! What a program has of its host.

use core::cell::RefCell;
use core::fmt;
use core::future::poll_fn;
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use std::cell::RefMut;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;

use ringway_stack::Instant;

use super::executor::{Spawner, Task};
use super::timers::{Sleep, Timers};
use super::{Net, Storage};
use crate::random::RandomStream;

/// What a program has of its host. Clones are handles on the same things.
#[derive(Clone)]
pub struct Env {
    pub(super) name: Rc<str>,
    pub(super) net: Net,
    pub(super) timers: Timers,
    pub(super) spawner: Spawner,
    pub(super) random: Rc<RefCell<RandomStream>>,
    pub(super) storage: Storage,
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").field("name", &self.name).field("now", &self.now()).finish_non_exhaustive()
    }
}

impl Env {
    /// The host's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The host's address.
    pub fn ip(&self) -> IpAddr {
        self.net.ip()
    }

    /// The host's network: what sockets are made with.
    pub fn net(&self) -> &Net {
        &self.net
    }

    /// Virtual time, by the host's clock.
    pub fn now(&self) -> Instant {
        self.timers.now()
    }

    /// Resolves when `time` has passed.
    pub fn sleep(&self, time: Duration) -> Sleep {
        self.sleep_until(self.now() + time)
    }

    /// Resolves at `at`, at once if that is past.
    pub fn sleep_until(&self, at: Instant) -> Sleep {
        self.timers.sleep_until(at)
    }

    /// The future's result, if it comes within `time`; else it is dropped.
    ///
    /// # Errors
    /// [`TimedOut`].
    pub async fn timeout<T>(&self, time: Duration, future: impl Future<Output = T>) -> Result<T, TimedOut> {
        let (mut future, mut sleep) = (pin!(future), self.sleep(time));
        poll_fn(|cx| {
            if let Poll::Ready(result) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(result));
            }
            pin!(&mut sleep).poll(cx).map(|()| Err(TimedOut))
        })
        .await
    }

    /// Begins another task of this program. It ends with the program at the latest.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Task<T> {
        self.spawner.spawn(future)
    }

    /// The program's random numbers, which follow from the world's seed. Don't keep it across an `await`.
    pub fn random(&self) -> RefMut<'_, RandomStream> {
        self.random.borrow_mut()
    }

    /// The program's disk.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }
}

/// Nobody: time was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("time was up")]
pub struct TimedOut;

impl From<TimedOut> for io::Error {
    fn from(timed_out: TimedOut) -> Self {
        Self::new(io::ErrorKind::TimedOut, timed_out)
    }
}
