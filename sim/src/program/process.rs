//! An async program as an [`App`]: it owns its executor, and lends it the host's ring for each step.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::pin::Pin;
use std::net::IpAddr;
use std::rc::Rc;

use ringway_stack::device::MacAddr;
use ringway_stack::ring::{Ring, RingConfig};
use ringway_tokio::NetConfig;

use super::executor::{Executor, Task};
use super::timers::Timers;
use super::{Env, Net, Storage};
use crate::host::{App, Context, Host, Step};
use crate::nic::{NicConfig, SimQueues};
use crate::random::RandomStream;
use crate::world::{HostId, World};

/// How a program ended.
pub trait Outcome: 'static {
    /// Why it failed, if it did.
    fn failure(self) -> Option<String>;
}

impl Outcome for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: fmt::Display + 'static> Outcome for Result<(), E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

/// Whether the world waits for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It does.
    Task,
    /// It doesn't.
    Service,
}

/// A program that runs on a host, to be killed and started again.
#[derive(Clone, Debug)]
pub struct Process {
    host: HostId,
    order: Rc<Cell<Order>>,
    storage: Storage,
}

/// What the world's owner wants of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Run,
    /// Its host closes its sockets.
    Die,
}

impl Process {
    /// Its disk, for whoever checks what it came to.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Kills it, now. Its host lives: it closes the program's sockets, which peers see as an end or, if bytes were unread, a reset.
    /// Nothing happens to a program that has finished. If its host is paused, it dies when that goes on; if its host is down, or crashes later,
    /// it stays dead until [`Process::start`].
    pub fn kill(&self, world: &mut World) {
        self.order.set(Order::Die);
        world.rouse(self.host);
    }

    /// Starts it again, now, if it was killed: the closure is called afresh.
    pub fn start(&self, world: &mut World) {
        self.order.set(Order::Run);
        world.rouse(self.host);
    }
}

type Main = Pin<Box<dyn Future<Output = Option<String>>>>;
type Make = Rc<RefCell<dyn FnMut(Env) -> Main>>;

/// What a host needs to run a program, and to run it again after a crash.
#[derive(Clone)]
pub(super) struct Blueprint {
    name: Rc<str>,
    ip: IpAddr,
    kind: Kind,
    order: Rc<Cell<Order>>,
    random: Rc<RefCell<RandomStream>>,
    storage: Storage,
    /// It came to its end: a host that starts again does not run it again.
    done: Rc<Cell<bool>>,
    make: Make,
}

impl Blueprint {
    pub(super) fn new<F, T>(host: &Host, kind: Kind, random: RandomStream, mut program: F) -> Self
    where
        F: FnMut(Env) -> T + 'static,
        T: Future<Output: Outcome> + 'static,
    {
        let make = move |env| -> Main {
            let main = program(env);
            Box::pin(async move { main.await.failure() })
        };
        Self {
            name: host.name().into(),
            ip: host.ip(),
            kind,
            order: Rc::new(Cell::new(Order::Run)),
            random: Rc::new(RefCell::new(random)),
            storage: Storage::default(),
            done: Rc::default(),
            make: Rc::new(RefCell::new(make)),
        }
    }

    pub(super) fn process(&self, host: HostId) -> Process {
        Process { host, order: Rc::clone(&self.order), storage: self.storage.clone() }
    }

    /// The program as it is when its host starts.
    pub(super) fn program(&self) -> Program {
        self.storage.power_up();
        Program { plan: self.clone(), run: None }
    }
}

/// The [`App`].
pub(super) struct Program {
    plan: Blueprint,
    run: Option<Run>,
}

/// One life of a program.
struct Run {
    net: Net,
    timers: Timers,
    executor: Executor,
    ended: Rc<Cell<bool>>,
    main: Task<Option<String>>,
}

impl Program {
    fn begin(&mut self) -> Run {
        // As on Linux, where a process begins is not where the last one did: its peers may still know that.
        let port_first = u16::try_from(self.plan.random.borrow_mut().between(49_152, 65_000)).unwrap_or(0);
        let net = Net::borrowing(nowhere(), NetConfig { port_first, ..NetConfig::at(self.plan.ip) });
        let (timers, executor, ended) = (Timers::default(), Executor::default(), Rc::new(Cell::new(false)));
        let env = Env {
            name: Rc::clone(&self.plan.name),
            net: net.clone(),
            timers: timers.clone(),
            spawner: executor.spawner(),
            random: Rc::clone(&self.plan.random),
            storage: self.plan.storage.clone(),
        };
        // The program's own part runs as a task too, and so does the closure that makes it: before the first `await` they may already
        // use sockets and time.
        let (make, over) = (Rc::clone(&self.plan.make), Rc::clone(&ended));
        let main = env.clone().spawn(async move {
            let main = (make.borrow_mut())(env);
            let failure = main.await;
            over.set(true);
            failure
        });
        Run { net, timers, executor, ended, main }
    }

    fn waits(&self) -> Step {
        match (self.plan.kind, self.run.as_ref().and_then(|run| run.timers.next())) {
            (Kind::Task, Some(at)) => Step::Until(at),
            (Kind::Task, None) => Step::Wait,
            (Kind::Service, Some(at)) => Step::IdleUntil(at),
            (Kind::Service, None) => Step::Idle,
        }
    }
}

impl App for Program {
    fn step(&mut self, cx: &mut Context<'_>) -> Step {
        if self.plan.done.get() {
            return Step::Finished;
        }
        if self.plan.order.get() == Order::Die {
            if let Some(mut run) = self.run.take() {
                run.net.clone().lend(cx.ring, cx.now, &[], || run.executor.clear());
            }
            return self.waits();
        }
        let mut run = self.run.take().unwrap_or_else(|| self.begin());
        run.timers.advance(cx.now);
        cx.ring.call_unseen();
        let (net, ended) = (run.net.clone(), Rc::clone(&run.ended));
        net.lend(cx.ring, cx.now, cx.events, || {
            run.executor.run(|| ended.get());
            if ended.get() {
                run.executor.clear();
            }
        });
        if !ended.get() {
            self.run = Some(run);
            return self.waits();
        }
        self.plan.done.set(true);
        if let Some(failure) = run.main.result().flatten() {
            panic!("the program of host {} failed at {} ms: {failure}", self.plan.name, cx.now.as_millis());
        }
        Step::Finished
    }

    fn crash(&mut self) {
        // First the disk: destructors run in no real crash, and whatever these would write is not written.
        self.plan.storage.lose_power();
        if let Some(mut run) = self.run.take() {
            run.executor.clear();
        }
    }
}

/// A ring that stands in for the host's while that is away.
fn nowhere() -> Ring<SimQueues> {
    let device = SimQueues::new(MacAddr::default(), NicConfig::default());
    Ring::new(device, RingConfig { flows_max: 0, ..RingConfig::default() }, [0; 32])
}
