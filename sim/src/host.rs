//! A simulated host: a NIC, its rings, and the programs that use their sockets.

use core::cell::RefCell;
use core::time::Duration;
use std::net::IpAddr;
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::device::{MacAddr, Queues as _};
use ringway_stack::ring::{Event, Ring, RingConfig};

use crate::addresses::Family;
use crate::alarm::Alarm;
use crate::checkers::Checkers;
use crate::fabric::LinkConfig;
use crate::faults::HostFaults;
use crate::nic::{Nic, NicConfig, SimQueues};
use crate::random::{Purpose, RandomStream};
use crate::sockets::{Lending, Sockets};

/// Rounds of polling and stepping at one point in virtual time before it counts as a livelock.
const ROUNDS_MAX: u32 = 20_000;

/// A program on a simulated host. It never blocks and never asks for the time: it is called when there is something to do.
pub trait App {
    /// Does what can be done now, and says when to be called next at the latest. Called when sockets of the host changed, when the wake-up
    /// asked for has come, and once at the start.
    fn step(&mut self, cx: &mut Context<'_>) -> Step;

    /// Its host loses power: the last call before it is dropped, and its sockets are gone. For what outlives it, such as a
    /// [`Storage`](crate::program::Storage), to lose what was not saved.
    fn crash(&mut self) {}
}

/// What a program sees of its host.
pub struct Context<'a> {
    /// The time on the host's clock: virtual time, and by how much that clock has jumped ahead of it.
    pub now: Instant,
    /// The sockets of the program's ring.
    pub ring: &'a mut Sockets,
    /// Sockets (of all programs of the ring) that changed since the last call; none at the start and at a wake-up.
    pub events: &'a [Event],
    /// The host's address.
    pub ip: IpAddr,
    /// Somewhere in this world payload has changed unnoticed ([`crate::FaultSet::HIDDEN_CORRUPTION`]): what a program reads may not be what
    /// was written.
    pub tainted: bool,
}

/// What a program does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It waits for its sockets.
    Wait,
    /// It waits for its sockets, or for this time.
    Until(Instant),
    /// It waits for its sockets, but counts as finished: a server without clients.
    Idle,
    /// It waits for its sockets, or for this time, but counts as finished.
    IdleUntil(Instant),
    /// It has finished, and is not called again.
    Finished,
}

/// How a host is set up.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Its name in traces.
    pub name: String,
    /// Its address; `None`: 10.0.0.1 for the first host, 10.0.0.2 for the second, and so on.
    pub ip: Option<IpAddr>,
    /// Its NIC.
    pub nic: NicConfig,
    /// Its link to the switch.
    pub link: LinkConfig,
    /// Its rings. The host's address is added to theirs.
    pub ring: RingConfig,
    /// How many rings it has. What no rule steers goes to the first, but for frames that aren't IP, and ICMP
    /// errors: those go to all.
    pub rings: usize,
    /// The number of the first of them, where they are some of a machine's ([`crate::machine`]), whose rings have numbers of their own. `None`: all have zero.
    pub first_ring: Option<u16>,
    /// How programs read from each of them; a ring that there is no entry for copies.
    pub lending: Vec<Option<Lending>>,
    /// Its programs read before anybody polls, and their reads poll for what they wait for ([`Ring::tcp_recv_polling`]): as threads do that spin in a receive. (But
    /// for those who read by reference.)
    pub reads_first: bool,
    /// How long a frame lies in the receive queue before the host polls: what comes meanwhile is polled with it.
    pub poll_delay: Duration,
    /// What goes wrong with it.
    pub faults: HostFaults,
    /// In IPv6: it has a link-local address, too.
    pub link_local: bool,
}

impl HostConfig {
    /// A host like any other.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ip: None,
            nic: NicConfig::default(),
            link: LinkConfig::default(),
            ring: RingConfig::default(),
            rings: 1,
            first_ring: None,
            lending: Vec::new(),
            reads_first: false,
            poll_delay: Duration::ZERO,
            faults: HostFaults::default(),
            link_local: false,
        }
    }

    /// With this NIC.
    #[must_use]
    pub fn nic(self, nic: NicConfig) -> Self {
        Self { nic, ..self }
    }

    /// With this link.
    #[must_use]
    pub fn link(self, link: LinkConfig) -> Self {
        Self { link, ..self }
    }

    /// With these faults.
    #[must_use]
    pub fn faults(self, faults: HostFaults) -> Self {
        Self { faults, ..self }
    }
}

/// A host of a world.
pub struct Host {
    /// Its place in the world.
    number: usize,
    name: String,
    ip: IpAddr,
    nic: Nic,
    /// Invariant: at least one.
    rings: Vec<Sockets>,
    poll_delay: Duration,
    programs: Vec<Program>,
    /// How many programs were ever given to it.
    launched: usize,
    pub(crate) faults: HostFaults,
    /// By how much its clock is ahead of the world's.
    ahead: Duration,
    pub(crate) paused: bool,
    down: bool,
    /// How often it started, after the first time.
    boots: u32,
    /// What it starts with.
    nic_config: NicConfig,
    ring_config: RingConfig,
    lending: Vec<Option<Lending>>,
    reads_first: bool,
    first_ring: Option<u16>,
    /// Its rings had events since that was last asked.
    stirred: bool,
    /// With the number of the ring that the program is to use.
    factories: Vec<(usize, Factory)>,
    /// How often connections of it were written down and read in again, if they are in each service.
    #[cfg(feature = "mutants")]
    rewritten: Option<usize>,
    /// When the agenda wakes it.
    pub(crate) wake: Alarm,
    /// When the agenda looks at its NIC.
    pub(crate) nic_alarm: Alarm,
    events: Vec<Event>,
}

/// Makes a program anew each time its host starts.
pub(crate) type Factory = Box<dyn FnMut() -> Box<dyn App>>;

struct Program {
    ring: usize,
    app: Box<dyn App>,
    last: Step,
}

impl Host {
    pub(crate) fn new(index: usize, config: HostConfig, seed: u64, ring_seed: impl Fn(u8) -> [u8; 32]) -> Self {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let ip = config.ip.unwrap_or_else(|| Family::V4.address(number));
        let [_, _, hi, lo] = number.to_be_bytes();
        // Locally administered (IEEE 802 s8.4).
        let mac = MacAddr([0x02, 0, 0, 0, hi, lo]);
        let mut ring_config = config.ring;
        ring_config.addresses.push(ip);
        ring_config.addresses.extend(Family::link_local(ip).filter(|_| config.link_local));
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        let nic = Nic::seeded(mac, config.nic.clone(), seed, number);
        let mut rings = open_rings(&nic, config.rings, config.first_ring, &ring_config, ring_seed);
        lend(&mut rings, &config.lending, seed, number);
        Self {
            number: index,
            name: config.name,
            ip,
            nic,
            rings,
            reads_first: config.reads_first,
            poll_delay: config.poll_delay,
            programs: Vec::new(),
            launched: 0,
            faults: config.faults,
            ahead: Duration::ZERO,
            paused: false,
            down: false,
            boots: 0,
            nic_config: config.nic,
            ring_config,
            lending: config.lending,
            first_ring: config.first_ring,
            stirred: false,
            factories: Vec::new(),
            #[cfg(feature = "mutants")]
            rewritten: None,
            wake: Alarm::default(),
            nic_alarm: Alarm::default(),
            events: Vec::new(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address.
    pub fn ip(&self) -> IpAddr {
        self.ip
    }

    /// Its Ethernet address.
    pub fn mac(&self) -> MacAddr {
        self.nic.mac()
    }

    /// Its first ring, to look at.
    pub fn ring(&self) -> &Ring<SimQueues> {
        &self.rings[0]
    }

    /// Its rings, to look at.
    pub fn rings(&self) -> &[Sockets] {
        &self.rings
    }

    /// Its NIC.
    pub fn nic(&self) -> &Nic {
        &self.nic
    }

    /// Whether all of its programs have finished. Those that a crash ended have; a host that is down has not if it starts again with
    /// programs.
    pub fn finished(&self) -> bool {
        let restarts = self.down && !self.factories.is_empty();
        !restarts && self.programs.iter().all(|p| matches!(p.last, Step::Idle | Step::IdleUntil(_) | Step::Finished))
    }

    /// Whether it has crashed and not started again yet.
    pub fn is_down(&self) -> bool {
        self.down
    }

    /// How often it started again after a crash.
    pub fn boots(&self) -> u32 {
        self.boots
    }

    /// By how much its clock is ahead of the world's.
    pub fn clock_ahead(&self) -> Duration {
        self.ahead
    }

    /// What its clock shows at this point in virtual time.
    pub(crate) fn clock(&self, now: Instant) -> Instant {
        now + self.ahead
    }

    /// When, in virtual time, its clock will show `at`.
    fn world_time(&self, at: Instant) -> Instant {
        Instant::ZERO + at.since(Instant::ZERO + self.ahead)
    }

    /// Whether it polls and runs programs.
    pub(crate) fn runs(&self) -> bool {
        !self.paused && !self.down
    }

    pub(crate) fn jump(&mut self, by: Duration) {
        self.ahead += by;
    }

    /// Power is gone: with it every socket, frame, rule and program. Nobody is told.
    /// What its NIC starts with follows from `seed` and `index`, and its rings' from `ring_seed`.
    pub(crate) fn crash(&mut self, seed: u64, index: u32, ring_seed: impl Fn(u8) -> [u8; 32]) {
        self.programs.iter_mut().for_each(|program| program.app.crash());
        let count = self.rings.len();
        let nic = Nic::seeded(self.mac(), self.nic_config.clone(), seed, index);
        self.rings = open_rings(&nic, count, self.first_ring, &self.ring_config, ring_seed);
        lend(&mut self.rings, &self.lending, seed, index);
        self.nic = nic;
        self.nic_alarm.switch_off();
        self.programs.clear();
        self.events.clear();
        self.wake.switch_off();
        self.down = true;
        self.boots += 1;
    }

    /// Power is back: the programs that can be made anew start.
    pub(crate) fn restart(&mut self) {
        self.down = false;
        let Self { factories, programs, .. } = self;
        programs.extend(factories.iter_mut().map(|(ring, make)| Program { ring: *ring, app: make(), last: Step::Until(Instant::ZERO) }));
    }

    pub(crate) fn add_restartable(&mut self, ring: usize, mut make: Factory) {
        if self.down {
            self.launched += 1;
        } else {
            self.add(ring, make());
        }
        self.factories.push((ring, make));
    }

    /// How many programs were ever given to it, those that a crash ended included.
    pub(crate) fn launched(&self) -> usize {
        self.launched
    }

    /// Lets every program step at the next service, whatever it waits for.
    pub(crate) fn rouse(&mut self) {
        for program in self.programs.iter_mut().filter(|p| p.last != Step::Finished) {
            program.last = Step::Until(Instant::ZERO);
        }
    }

    /// Lets the checkers see all that its programs do.
    pub(crate) fn watch(&mut self, checkers: &Rc<RefCell<Checkers>>) {
        for (number, ring) in self.rings.iter_mut().enumerate() {
            ring.watch(checkers, (self.number, number), self.ip, self.ring_config.time_wait);
        }
    }

    /// Makes its stacks mutants, now and after each crash.
    #[cfg(feature = "mutants")]
    pub(crate) fn mutate(&mut self, mutant: ringway_stack::mutants::Mutant) {
        self.rings.iter_mut().for_each(|ring| ring.infect(mutant));
        self.ring_config.mutant = mutant;
    }

    /// From now on its connections are written down and read in again in each service.
    #[cfg(feature = "mutants")]
    pub(crate) fn rewrite(&mut self) {
        self.rewritten = Some(0);
    }

    /// How often connections were.
    #[cfg(feature = "mutants")]
    pub(crate) fn rewritten(&self) -> usize {
        self.rewritten.unwrap_or(0)
    }

    /// Whether its rings had events since the last call.
    pub(crate) fn take_stirred(&mut self) -> bool {
        core::mem::take(&mut self.stirred)
    }

    pub(crate) fn rings_mut(&mut self) -> &mut [Sockets] {
        &mut self.rings
    }

    pub(crate) fn poll_delay(&self) -> Duration {
        self.poll_delay
    }

    pub(crate) fn add(&mut self, ring: usize, app: Box<dyn App>) {
        assert!(ring < self.rings.len(), "host {} has {} rings", self.name, self.rings.len());
        self.launched += 1;
        self.programs.push(Program { ring, app, last: Step::Until(Instant::ZERO) });
    }

    /// Polls and steps until nothing is left to do at this instant of virtual time, then says when to do so again.
    pub(crate) fn service(&mut self, now: Instant, tainted: bool) -> Option<Instant> {
        let now = self.clock(now);
        self.rings.iter_mut().for_each(|ring| ring.queues_mut().disarm());
        for _ in 0..ROUNDS_MAX {
            let mut busy = false;
            // What arrived on a ring that a program polls itself concerns every program: no ring's events tell of it.
            let news = self.nic.take_news();
            for ring in 0..self.rings.len() {
                busy |= self.round(now, ring, news, tainted);
            }
            self.nic.check_doorbells();
            // A round in which nothing was done follows each in which something was, unless nobody could find anything in it.
            busy = busy && !self.pauses(now);
            let next = self.next_wake();
            if !busy && next.is_none_or(|at| at > now) {
                self.rings.iter_mut().for_each(Sockets::sleep);
                return next.map(|at| self.world_time(at));
            }
        }
        let deadlines: Vec<_> = self.rings.iter().map(|ring| ring.next_deadline()).collect();
        panic!("host {} never comes to rest at {} ns: deadlines {deadlines:?}", self.name, now.as_nanos());
    }

    /// Whether another round would find nothing to do: nothing to poll, no event, no news. (Programs that are due make a round of their own.)
    fn pauses(&self, now: Instant) -> bool {
        !self.nic.has_news() && self.rings.iter().all(|ring| !ring.is_due(now) && !ring.has_events())
    }

    /// Polls one ring and steps its programs, once. Whether there was anything to do.
    fn round(&mut self, now: Instant, ring: usize, news: bool, tainted: bool) -> bool {
        let has_read = self.reads_first && self.read_first(now, ring, tainted);
        let polled = self.rings[ring].poll(now);
        #[cfg(feature = "mutants")]
        if let Some(rewritten) = &mut self.rewritten {
            *rewritten += self.rings[ring].rewrite_streams(now);
        }
        self.events.clear();
        while let Some(event) = self.rings[ring].take_event() {
            self.events.push(event);
        }
        self.stirred |= !self.events.is_empty();
        let mut busy = has_read || polled > 0 || !self.events.is_empty();
        for program in self.programs.iter_mut().filter(|program| program.ring == ring) {
            let due = match program.last {
                Step::Finished => continue,
                Step::Until(at) | Step::IdleUntil(at) => at <= now,
                Step::Wait | Step::Idle => false,
            };
            if due || news || !self.events.is_empty() {
                busy = true;
                self.rings[ring].program_runs();
                let mut cx = Context { now, ring: &mut self.rings[ring], events: &self.events, ip: self.ip, tainted };
                program.last = program.app.step(&mut cx);
            }
        }
        busy
    }

    /// Lets a ring's programs read what has come, if anything has, before the ring is polled. Whether they did.
    fn read_first(&mut self, now: Instant, ring: usize, tainted: bool) -> bool {
        if !self.rings[ring].begin_reading(now) {
            return false;
        }
        for program in self.programs.iter_mut().filter(|program| program.ring == ring && program.last != Step::Finished) {
            self.rings[ring].program_runs();
            let mut cx = Context { now, ring: &mut self.rings[ring], events: &[], ip: self.ip, tainted };
            program.last = program.app.step(&mut cx);
        }
        self.rings[ring].end_reading();
        true
    }

    fn next_wake(&self) -> Option<Instant> {
        let programs = self.programs.iter().filter_map(|p| match p.last {
            Step::Until(at) | Step::IdleUntil(at) => Some(at),
            _ => None,
        });
        programs.chain(self.rings.iter().filter_map(Sockets::next_wake)).min()
    }
}

fn open_rings(nic: &Nic, count: usize, first: Option<u16>, config: &RingConfig, seed: impl Fn(u8) -> [u8; 32]) -> Vec<Sockets> {
    let count = u8::try_from(count.max(1)).unwrap_or(u8::MAX);
    let number = |i: u8| first.map_or(config.number, |first| first + u16::from(i));
    (0..count).map(|i| Sockets::new(Ring::new(nic.ring(), RingConfig { number: number(i), ..config.clone() }, seed(i)))).collect()
}

/// Lets programs read by reference where they are to.
fn lend(rings: &mut [Sockets], lending: &[Option<Lending>], seed: u64, host: u32) {
    for ((ring, lending), number) in rings.iter_mut().zip(lending).zip(0..) {
        if let Some(lending) = *lending {
            ring.lend(
                lending,
                [Purpose::Loans, Purpose::RecvFilter, Purpose::StreamFilter].map(|purpose| RandomStream::new(seed, purpose, host, number)),
            );
        }
    }
}
