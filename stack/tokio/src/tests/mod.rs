//! Two nets on one wire, and programs on them that are polled only when they were woken.

mod device;
mod lent;
mod tcp;
mod udp;

use core::cell::Cell;
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Wake;

use ringway_stack::Instant;
use ringway_stack::ring::{Ring, RingConfig};

use self::device::Wire;
use crate::{Net, NetConfig};

const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PORT: SocketAddrV4 = SocketAddrV4::new(B, 80);
const A6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

/// Two nets that share a wire and a clock.
struct Pair {
    a: Net<Wire>,
    b: Net<Wire>,
    clock: Rc<Cell<Instant>>,
}

impl Pair {
    fn new() -> Self {
        Self::at(A.into(), B.into())
    }

    /// Two nets with these addresses.
    fn at(ip_a: IpAddr, ip_b: IpAddr) -> Self {
        let clock = Rc::new(Cell::new(Instant::ZERO));
        let (a, b) = Wire::pair();
        let net = |device, ip, seed| {
            let clock = Rc::clone(&clock);
            Net::owning(ring(device, ip, seed), NetConfig::at(ip), move || clock.get())
        };
        Self { a: net(a, ip_a, 1), b: net(b, ip_b, 2), clock }
    }

    /// Lets both nets do what they have to do right now. Says whether there was anything.
    fn poll(&self) -> bool {
        let mut busy = false;
        while self.a.poll() + self.b.poll() > 0 {
            busy = true;
        }
        busy
    }

    /// Jumps to the next deadline. `false`: there is none.
    fn jump(&self) -> bool {
        let next = self.a.next_deadline().into_iter().chain(self.b.next_deadline()).min();
        if let Some(at) = next {
            self.clock.set(at.max(self.clock.get()));
        }
        next.is_some()
    }

    /// Lets `time` pass.
    fn pass(&self, time: Duration) {
        let until = self.clock.get() + time;
        loop {
            self.poll();
            let next = self.a.next_deadline().into_iter().chain(self.b.next_deadline()).min();
            match next.filter(|&at| at <= until) {
                Some(at) => self.clock.set(at.max(self.clock.get())),
                None => break,
            }
        }
        self.clock.set(until);
    }

    /// Runs both programs to their end.
    fn run<T, U>(&self, a: impl Future<Output = T>, b: impl Future<Output = U>) -> (T, U) {
        let (mut a, mut b) = (Program::new(a), Program::new(b));
        for _ in 0..1_000_000 {
            let stepped = a.step() | b.step();
            if a.result.is_some() && b.result.is_some() {
                self.poll();
                break;
            }
            assert!(stepped | self.poll() || self.jump(), "everybody waits, and nothing will happen");
        }
        (a.result.expect("the first program ends"), b.result.expect("the second program ends"))
    }
}

fn ring(device: Wire, ip: IpAddr, seed: u8) -> Ring<Wire> {
    Ring::new(device, RingConfig { addresses: vec![ip], ..RingConfig::default() }, [seed; 32])
}

/// A future, polled when it was woken.
pub(crate) struct Program<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    flag: Arc<Flag>,
    pub(crate) result: Option<T>,
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<'a, T> Program<'a, T> {
    pub(crate) fn new(future: impl Future<Output = T> + 'a) -> Self {
        Self { future: Box::pin(future), flag: Arc::new(Flag(AtomicBool::new(true))), result: None }
    }

    pub(crate) fn step(&mut self) -> bool {
        let woken = self.result.is_none() && self.flag.0.swap(false, Ordering::Relaxed);
        if woken {
            let waker = Waker::from(Arc::clone(&self.flag));
            if let Poll::Ready(result) = self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
                self.result = Some(result);
            }
        }
        woken
    }
}
