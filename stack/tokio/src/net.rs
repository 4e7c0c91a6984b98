//! The ring, shared between the tasks of one thread, and the one who drives it.

use core::cell::RefCell;
use core::fmt;
use core::future::poll_fn;
use core::mem;
use core::task::{Context, Poll, Waker};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use ringway_stack::device::Queues;
use ringway_stack::ring::{Event, FlowId, NextHop, Ring, UdpOptions};
use ringway_stack::{Error, Instant, tcp};

use crate::address::Ports;
use crate::error::io_error;
use crate::waiters::{Side, Waiters};

/// What new sockets are given.
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// The address that connections and datagrams leave from unless a program binds to another, as it must for peers of the other IP version.
    pub ip: IpAddr,
    /// The first local port given to a socket that asks for none; ports below 49152 count as that.
    pub port_first: u16,
    /// How an address is reached. By default each is asked for by ARP or neighbour discovery, as on one Ethernet.
    pub route: fn(IpAddr) -> NextHop,
    /// TCP connections, accepted ones included.
    pub tcp: tcp::Config,
    /// UDP sockets.
    pub udp: UdpOptions,
}

impl NetConfig {
    /// The stack's defaults, at this address.
    pub fn at(ip: impl Into<IpAddr>) -> Self {
        Self { ip: ip.into(), port_first: Ports::FIRST, route: NextHop::Neighbour, tcp: tcp::Config::default(), udp: UdpOptions::default() }
    }
}

/// One ring, shared between tasks. Clones are handles on the same one.
pub struct Net<Q: Queues> {
    shared: Rc<Shared<Q>>,
}

struct Shared<Q: Queues> {
    config: NetConfig,
    /// The driver's; `None`: time comes with the ring.
    clock: Option<Box<dyn Fn() -> Instant>>,
    state: RefCell<State<Q>>,
}

/// Invariant: no waker is woken or dropped, and so no code of a task run, while this is borrowed.
struct State<Q: Queues> {
    ring: Ring<Q>,
    /// Whether `ring` is the real one: always if owned, else while it is lent.
    present: bool,
    now: Instant,
    waiters: BTreeMap<FlowId, Waiters>,
    /// Closed while the ring was away.
    closed: Vec<(FlowId, bool)>,
    ports: Ports,
    /// A socket was used since the last poll.
    touched: bool,
    driver: Option<Waker>,
}

impl<Q: Queues> Clone for Net<Q> {
    fn clone(&self) -> Self {
        Self { shared: Rc::clone(&self.shared) }
    }
}

impl<Q: Queues> fmt::Debug for Net<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").field("ip", &self.shared.config.ip).finish_non_exhaustive()
    }
}

impl<Q: Queues> Net<Q> {
    /// Owns `ring`. `clock` is the driver's: it says what time it is whenever a socket is used or the ring is polled.
    pub fn owning(ring: Ring<Q>, config: NetConfig, clock: impl Fn() -> Instant + 'static) -> Self {
        Self::new(ring, true, config, Some(Box::new(clock)))
    }

    /// Is lent its ring for each step ([`Net::lend`]). In between `spare` stands in its place, which nobody ever uses: any ring will do, on
    /// a device that leads nowhere. Between steps a socket's call fails with [`ErrorKind::NotConnected`], and dropping a
    /// socket takes effect in the next step.
    pub fn borrowing(spare: Ring<Q>, config: NetConfig) -> Self {
        Self::new(spare, false, config, None)
    }

    fn new(ring: Ring<Q>, present: bool, config: NetConfig, clock: Option<Box<dyn Fn() -> Instant>>) -> Self {
        let state = State {
            ring,
            present,
            now: Instant::ZERO,
            waiters: BTreeMap::new(),
            closed: Vec::new(),
            ports: Ports::from(config.port_first),
            touched: false,
            driver: None,
        };
        Self { shared: Rc::new(Shared { config, clock, state: RefCell::new(state) }) }
    }

    /// What new sockets are given.
    pub fn config(&self) -> &NetConfig {
        &self.shared.config
    }

    /// The address that connections and datagrams leave from.
    pub fn ip(&self) -> IpAddr {
        self.shared.config.ip
    }

    /// Polls the ring once, and wakes the tasks whose sockets changed. Returns how much there was to do; until that is zero,
    /// there is more. Zero, and nothing done, if the ring is away.
    pub fn poll(&self) -> usize {
        let mut woken = Vec::new();
        let mut state = self.shared.state.borrow_mut();
        if !state.present {
            return 0;
        }
        if let Some(clock) = &self.shared.clock {
            state.now = clock();
        }
        state.touched = false;
        let now = state.now;
        let mut done = state.ring.poll(now);
        while let Some(event) = state.ring.take_event() {
            state.dispatch(&event, &mut woken);
            done += 1;
        }
        drop(state);
        wake(woken);
        done
    }

    /// When [`Net::poll`] must be called at the latest.
    pub fn next_deadline(&self) -> Option<Instant> {
        let state = self.shared.state.borrow();
        if state.present { state.ring.next_deadline() } else { None }
    }

    /// Resolves once a socket has been used since the last [`Net::poll`]: there may be more to do, or an earlier deadline. For one task,
    /// the driver.
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

    /// Lets `step` use the sockets on `ring`, at time `now`: it runs tasks. First the tasks are woken whose sockets changed, as
    /// `events` has it: all that [`Ring::take_event`] gave since the last step.
    ///
    /// # Panics
    /// The ring is here already: the net owns one, or `step` lends it again.
    pub fn lend<R>(&self, ring: &mut Ring<Q>, now: Instant, events: &[Event], step: impl FnOnce() -> R) -> R {
        let lent = Lent::new(self, ring);
        let mut woken = Vec::new();
        let mut state = self.shared.state.borrow_mut();
        state.now = now;
        for event in events {
            state.dispatch(event, &mut woken);
        }
        for (socket, abort) in mem::take(&mut state.closed) {
            state.ring.close(now, socket, abort);
        }
        drop(state);
        wake(woken);
        let result = step();
        drop(lent);
        result
    }

    /// Looks at the ring. `None`: it is away.
    pub fn with_ring<R>(&self, look: impl FnOnce(&mut Ring<Q>) -> R) -> Option<R> {
        let mut state = self.shared.state.borrow_mut();
        if state.present { Some(look(&mut state.ring)) } else { None }
    }

    /// Calls the ring at the present time, and tells the driver.
    pub(crate) fn call<R>(&self, op: impl FnOnce(&mut Ring<Q>, Instant) -> Result<R, Error>) -> io::Result<R> {
        let mut state = self.shared.state.borrow_mut();
        let result = self.call_in(&mut state, op)?;
        let driver = state.driver.take();
        drop(state);
        wake(driver);
        result.map_err(io_error)
    }

    /// The same for a call that may block: then the task is woken when it's worth trying again.
    pub(crate) fn poll_call<R>(
        &self,
        cx: &Context<'_>,
        socket: FlowId,
        side: Side,
        op: impl FnOnce(&mut Ring<Q>, Instant) -> Result<R, Error>,
    ) -> Poll<io::Result<R>> {
        let mut state = self.shared.state.borrow_mut();
        let result = self.call_in(&mut state, op)?;
        let blocked = matches!(result, Err(Error::WouldBlock));
        if blocked {
            state.waiters.entry(socket).or_default().add(side, cx.waker());
        }
        let driver = state.driver.take();
        drop(state);
        wake(driver);
        if blocked { Poll::Pending } else { Poll::Ready(result.map_err(io_error)) }
    }

    /// Tries local ports until `open` finds one that is free; only once if the program asked for a port.
    pub(crate) fn open_at<R>(
        &self,
        local: SocketAddr,
        mut open: impl FnMut(&mut Ring<Q>, Instant, SocketAddr) -> Result<R, Error>,
    ) -> io::Result<R> {
        if local.port() != 0 {
            return self.call(|ring, now| open(ring, now, local));
        }
        for _ in 0..Ports::COUNT {
            let port = self.shared.state.borrow_mut().ports.take();
            match self.call(|ring, now| open(ring, now, SocketAddr::new(local.ip(), port))) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                result => return result,
            }
        }
        Err(io_error(Error::AddressInUse))
    }

    /// Gives a socket up, as the kernel's `close`.
    pub(crate) fn close(&self, socket: FlowId, abort: bool) {
        let mut state = self.shared.state.borrow_mut();
        let waiters = state.waiters.remove(&socket);
        if !state.present {
            state.closed.push((socket, abort));
            return drop(state);
        }
        // It cannot fail: whatever is wrong with the socket, it is gone.
        let _gone = self.call_in(&mut state, |ring, now| {
            ring.close(now, socket, abort);
            Ok(())
        });
        let driver = state.driver.take();
        drop(state);
        wake(driver);
        wake(waiters.map(Waiters::into_all).unwrap_or_default());
    }

    fn call_in<R>(&self, state: &mut State<Q>, op: impl FnOnce(&mut Ring<Q>, Instant) -> Result<R, Error>) -> io::Result<Result<R, Error>> {
        if !state.present {
            return Err(io::Error::new(ErrorKind::NotConnected, "a socket was used while its ring was away"));
        }
        if let Some(clock) = &self.shared.clock {
            state.now = clock();
        }
        state.touched = true;
        Ok(op(&mut state.ring, state.now))
    }
}

impl<Q: Queues> State<Q> {
    fn dispatch(&mut self, event: &Event, woken: &mut Vec<Waker>) {
        if let Some(waiters) = self.waiters.get_mut(&event.flow) {
            waiters.take(event.edges, woken);
        }
    }
}

/// The ring is in the net; it goes back when this is dropped, whether or not the step panics.
struct Lent<'a, Q: Queues> {
    net: &'a Net<Q>,
    ring: &'a mut Ring<Q>,
}

impl<'a, Q: Queues> Lent<'a, Q> {
    fn new(net: &'a Net<Q>, ring: &'a mut Ring<Q>) -> Self {
        let mut state = net.shared.state.borrow_mut();
        assert!(!state.present, "a ring was lent to a net that has one");
        state.present = true;
        mem::swap(&mut state.ring, ring);
        drop(state);
        Self { net, ring }
    }
}

impl<Q: Queues> Drop for Lent<'_, Q> {
    fn drop(&mut self) {
        let mut state = self.net.shared.state.borrow_mut();
        state.present = false;
        mem::swap(&mut state.ring, self.ring);
    }
}

pub(crate) fn wake(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        waker.wake();
    }
}
