//! The sockets of a device, shared between the tasks of one thread, and the one who drives it.

use core::cell::RefCell;
use core::fmt;
use core::future::poll_fn;
use core::task::{Context, Poll, Waker};
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use ringway_stack::device::messages::Connections;
use ringway_stack::rsocket::{Host, Settings, SocketId, Sockets};
use ringway_stack::{Error, Instant};

use crate::error::io_error;
use crate::net::wake;
use crate::waiters::{Side, Waiters};

/// A device's rsockets, shared between tasks. Clones are handles on the same ones.
pub struct Net<D> {
    shared: Rc<Shared<D>>,
}

struct Shared<D> {
    clock: Box<dyn Fn() -> Instant>,
    state: RefCell<State<D>>,
}

/// Invariant: no waker is woken or dropped, and so no code of a task run, while this is borrowed.
pub(super) struct State<D> {
    pub(super) device: D,
    pub(super) sockets: Sockets,
    waiters: BTreeMap<SocketId, Waiters>,
    /// A socket was used since the last poll.
    touched: bool,
    driver: Option<Waker>,
}

impl<D> Clone for Net<D> {
    fn clone(&self) -> Self {
        Self { shared: Rc::clone(&self.shared) }
    }
}

impl<D> fmt::Debug for Net<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").finish_non_exhaustive()
    }
}

impl<D: Connections> Net<D> {
    /// Sockets over `device`, whose connections are all theirs. `clock` says what time it is.
    pub fn new(mut device: D, settings: Settings, clock: impl Fn() -> Instant + 'static) -> Self {
        let sockets = Sockets::new(&mut device, settings, Host::default());
        let state = State { device, sockets, waiters: BTreeMap::new(), touched: false, driver: None };
        Self { shared: Rc::new(Shared { clock: Box::new(clock), state: RefCell::new(state) }) }
    }

    /// Takes what the device has to tell, does what is due, and wakes the tasks whose sockets changed; gives how many those are.
    pub fn poll(&self) -> usize {
        let now = (self.shared.clock)();
        let mut woken = Vec::new();
        let mut state = self.shared.state.borrow_mut();
        let State { device, sockets, waiters, touched, .. } = &mut *state;
        *touched = false;
        sockets.poll(now, device);
        sockets.on_timer(now, device);
        for (id, waiters) in waiters.iter_mut() {
            // One that is gone has no tasks.
            if let Ok(readiness) = sockets.readiness(now, device, *id) {
                waiters.take(readiness, &mut woken);
            }
        }
        waiters.retain(|_, waiters| !waiters.is_empty());
        drop(state);
        let count = woken.len();
        wake(woken);
        count
    }

    /// When [`Net::poll`] must be called at the latest. The device has deadlines of its own.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.shared.state.borrow().sockets.deadline()
    }

    /// Resolves once a socket has been used since the last [`Net::poll`]: the device may have something to send. For one task, the driver.
    pub async fn touched(&self) {
        poll_fn(|cx| self.poll_touched(cx)).await;
    }

    /// [`Net::touched`], for a driver without `async`.
    pub fn poll_touched(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.shared.state.borrow_mut();
        if state.touched {
            return Poll::Ready(());
        }
        let displaced = state.driver.replace(cx.waker().clone());
        drop(state);
        drop(displaced);
        Poll::Pending
    }

    /// Uses the device: whoever drives it carries its packets.
    pub fn with_device<R>(&self, carry: impl FnOnce(&mut D) -> R) -> R {
        carry(&mut self.shared.state.borrow_mut().device)
    }

    /// Calls a socket at the present time, and tells the driver.
    pub(super) fn call<R>(&self, op: impl FnOnce(&mut State<D>, Instant) -> Result<R, Error>) -> io::Result<R> {
        let now = (self.shared.clock)();
        let mut state = self.shared.state.borrow_mut();
        let result = op(&mut state, now);
        state.touched = true;
        let driver = state.driver.take();
        drop(state);
        wake(driver);
        result.map_err(io_error)
    }

    /// The same for a call that may block: then the task is woken when it's worth trying again.
    pub(super) fn poll_call<R>(
        &self,
        cx: &Context<'_>,
        socket: SocketId,
        side: Side,
        op: impl FnOnce(&mut State<D>, Instant) -> Result<R, Error>,
    ) -> Poll<io::Result<R>> {
        let result = self.call(|state, now| match op(state, now) {
            Err(Error::WouldBlock) => {
                state.waiters.entry(socket).or_default().add(side, cx.waker());
                Ok(None)
            }
            done => done.map(Some),
        });
        match result {
            Ok(None) => Poll::Pending,
            Ok(Some(done)) => Poll::Ready(Ok(done)),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Gives a socket up, as rclose: what was sent still arrives.
    pub(super) fn close(&self, socket: SocketId) {
        let mut all = Vec::new();
        // It cannot fail: whatever is wrong with the socket, it is gone.
        let _gone = self.call(|state, now| {
            all = state.waiters.remove(&socket).map(Waiters::into_all).unwrap_or_default();
            state.sockets.close(now, &mut state.device, socket)
        });
        wake(all);
    }
}
