//! The world: hosts, the network between them, and the one loop in which time passes.

mod budget;
mod machines;
mod mishaps;

pub(crate) use mishaps::Turn;

use core::fmt;
use core::time::Duration;
use std::net::SocketAddr;
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::device::Queues;
use ringway_stack::marks::MarkCounts;

use crate::fabric::{Direction, LinkConfig, Strike};
use crate::faults::HostFaults;
use crate::host::{App, Context, Host, HostConfig};
use crate::network::{Event, Network};
use crate::nic::{Nic, Outstanding, SimQueues};
use crate::random::{Purpose, RandomStream};
use crate::reached::Reached;
use crate::report::Report;
use crate::trace::{Interface, NoteKind, Trace, Watch, What};
use budget::Budget;
use mishaps::Courses;

/// How much of the wire's story is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capture {
    /// Its hash.
    #[default]
    Hash,
    /// Its hash, and every frame.
    Frames,
}

/// How a world is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldConfig {
    /// Everything random follows from it.
    pub seed: u64,
    /// How much is kept.
    pub capture: Capture,
}

impl WorldConfig {
    /// The world of a seed, which keeps no frames.
    pub fn seeded(seed: u64) -> Self {
        Self { seed, capture: Capture::Hash }
    }
}

/// Names a host of one world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostId(pub(crate) usize);

/// Programs that had not finished when time was up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not finished by {} ms of virtual time: {hosts:?}", .until.as_millis())]
pub struct Unfinished {
    /// When time was up.
    pub until: Instant,
    /// The names of the hosts with unfinished programs.
    pub hosts: Vec<String>,
}

/// Hosts, wires and time.
pub struct World {
    seed: u64,
    network: Network,
    hosts: Vec<Host>,
    budget: Budget,
    watch: Watch,
    courses: Courses,
    machines: Vec<machines::Machine>,
    /// A host that had not finished when it was looked at last: the first to ask again.
    unfinished: usize,
    /// Hosts were told each other's Ethernet addresses.
    introduced: bool,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("seed", &self.seed).field("now", &self.network.now).finish_non_exhaustive()
    }
}

impl World {
    /// An empty world at the origin of time, with its faults on.
    pub fn new(config: WorldConfig) -> Self {
        let trace = Trace::new(config.seed, config.capture == Capture::Frames);
        let mut network = Network::new(trace);
        network.checkers = Some(Rc::default());
        Self {
            seed: config.seed,
            network,
            hosts: Vec::new(),
            budget: Budget::unlimited(),
            watch: Watch::default(),
            courses: Courses::default(),
            machines: Vec::new(),
            unfinished: 0,
            introduced: false,
        }
    }

    /// Without its [`checkers`](crate::checkers), to see what they cost.
    ///
    /// # Panics
    /// It has hosts already, which are being checked.
    #[must_use]
    pub fn unchecked(mut self) -> Self {
        assert!(self.hosts.is_empty(), "checkers are switched off before there is anything to check");
        self.network.checkers = None;
        self
    }

    /// Adds a host.
    ///
    /// # Panics
    /// The world has [`crate::HOSTS_MAX`] of them already.
    pub fn add_host(&mut self, config: HostConfig) -> HostId {
        let index = self.hosts.len();
        assert!(index < crate::HOSTS_MAX, "a world has at most {} hosts", crate::HOSTS_MAX);
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        let ring_seed = |ring| RandomStream::new(self.seed, Purpose::Stack, number, ring).seed();
        let (name, link) = (config.name.clone(), config.link);
        let mut host = Host::new(index, config, self.seed, ring_seed);
        if let Some(checkers) = &self.network.checkers {
            host.watch(checkers);
        }
        self.network.trace.add_interface(Interface { name, mac: host.mac(), bandwidth_bps: link.bandwidth_bps });
        self.network.fabric.attach(self.seed, host.mac(), link);
        self.network.silence.push(RandomStream::new(self.seed, Purpose::MtuSilence, u32::try_from(index).unwrap_or(u32::MAX), 0));
        self.hosts.push(host);
        self.plan_all(index);
        self.attack(index);
        HostId(index)
    }

    /// Starts a program on a host, now.
    pub fn add_app(&mut self, host: HostId, app: impl App + 'static) {
        self.add_app_on(host, 0, app);
    }

    /// Starts a program on one of a host's rings, now.
    ///
    /// # Panics
    /// The host has fewer rings ([`HostConfig::rings`]).
    pub fn add_app_on(&mut self, host: HostId, ring: usize, app: impl App + 'static) {
        self.hosts[host.0].add(ring, Box::new(app));
        self.wake(host.0, self.network.now);
    }

    /// A ring of a host's NIC that gets what its rules steer to it, for a program that speaks Ethernet itself
    /// ([`ringway_stack::raw`]). The host's programs are called when something arrives on it.
    ///
    /// # Panics
    /// The NIC has no ring left.
    pub fn add_raw_ring(&mut self, host: HostId) -> SimQueues {
        self.hosts[host.0].nic().steered_ring()
    }

    /// What comes from this address is a program's own doing, by [`World::add_raw_ring`]: no stack's, and so under no law.
    pub(crate) fn expect_stranger(&mut self, address: SocketAddr) {
        if let Some(checkers) = &self.network.checkers {
            checkers.borrow_mut().expect_stranger(address);
        }
    }

    /// Starts a program on a host, now and again each time the host starts after a crash. (A program that [`World::add_app`] started ends with
    /// its host.)
    pub fn add_restartable(&mut self, host: HostId, make: impl FnMut() -> Box<dyn App> + 'static) {
        self.add_restartable_on(host, 0, make);
    }

    /// As [`World::add_restartable`], on one of the host's rings.
    ///
    /// # Panics
    /// The host has fewer rings ([`HostConfig::rings`]).
    pub fn add_restartable_on(&mut self, host: HostId, ring: usize, make: impl FnMut() -> Box<dyn App> + 'static) {
        self.hosts[host.0].add_restartable(ring, Box::new(make));
        self.wake(host.0, self.network.now);
    }

    /// Tells every host every other's Ethernet address, so that nobody needs ARP.
    pub fn introduce_all(&mut self) {
        self.introduced = true;
        self.network.introduced = true;
        if let Some(checkers) = &self.network.checkers {
            checkers.borrow_mut().introduce();
        }
        let known: Vec<_> = self.hosts.iter().map(|h| (h.ip(), h.mac())).collect();
        for host in &mut self.hosts {
            let own = host.mac();
            for &(ip, mac) in known.iter().filter(|&&(_, mac)| mac != own) {
                host.rings_mut().iter_mut().for_each(|ring| ring.set_neighbour(ip, Some(mac)));
            }
        }
    }

    /// Virtual time.
    pub fn now(&self) -> Instant {
        self.network.now
    }

    /// A host.
    pub fn host(&self, host: HostId) -> &Host {
        &self.hosts[host.0]
    }

    /// What happened so far.
    pub fn trace(&self) -> &Trace {
        &self.network.trace
    }

    /// A check ended the run, and said so in `message`: the trace shows where.
    pub(crate) fn fail(&mut self, message: &str) {
        let handed = self.network.handed.take();
        self.network.trace.fail(self.network.now, message, handed.as_deref());
    }

    /// Switches all faults on or off: a run's safety phase ends, and its liveness phase begins. What lasts ends at once, and the configured
    /// state is restored: links, paths and partitions heal, paused hosts go on, crashed ones start again. (A clock that jumped never goes back.)
    pub fn set_faults(&mut self, on: bool) {
        if on == self.network.faults_on {
            return;
        }
        self.network.faults_on = on;
        for host in 0..self.hosts.len() {
            self.hosts[host].nic().advance(self.network.now);
            self.hosts[host].nic().set_faults(on);
            self.advance_nic(host);
        }
        self.turn_faults();
        if let Some(checkers) = &self.network.checkers {
            checkers.borrow_mut().set_faults(self.network.now, on);
        }
        let (now, text) = (self.network.now, if on { "faults begin" } else { "faults stop" });
        self.network.trace.note(now, None, NoteKind::Phase, || text.to_owned());
    }

    /// Most events from the world's beginning on; one more is a panic. Without a limit, a program that never comes to an end, and never
    /// waits for a time that `run_until` doesn't reach, goes on for ever.
    pub fn limit_events(&mut self, events: u64) {
        self.budget.limit(events);
    }

    /// How many events there were: frames that moved, and wake-ups.
    pub fn events(&self) -> u64 {
        self.budget.spent()
    }

    /// Changes a host's link, both ways.
    pub fn change_link(&mut self, host: HostId, change: impl Fn(&mut LinkConfig)) {
        for direction in [Direction::Up, Direction::Down] {
            change(self.network.fabric.lane(host.0, direction).config_mut());
        }
        self.plan_all(host.0);
    }

    /// Changes what goes wrong with a host.
    pub fn change_host_faults(&mut self, host: HostId, change: impl FnOnce(&mut HostFaults)) {
        change(&mut self.hosts[host.0].faults);
        self.plan_all(host.0);
        self.attack(host.0);
    }

    /// Lets the caller act as a program of a host, once, now. A host that pauses, or is down, obeys all the same.
    pub fn call<R>(&mut self, host: HostId, act: impl FnOnce(&mut Context<'_>) -> R) -> R {
        self.call_on(host, 0, act)
    }

    /// As [`World::call`], on one of the host's rings.
    ///
    /// # Panics
    /// The host has fewer rings ([`HostConfig::rings`]).
    pub fn call_on<R>(&mut self, host: HostId, ring: usize, act: impl FnOnce(&mut Context<'_>) -> R) -> R {
        let tainted = self.tainted();
        let target = &mut self.hosts[host.0];
        target.nic().advance(self.network.now);
        let now = target.clock(self.network.now);
        let ip = target.ip();
        let result = act(&mut Context { now, ring: &mut target.rings_mut()[ring], events: &[], ip, tainted });
        self.service(host.0);
        result
    }

    /// Lets a host's programs step now, whatever they wait for; if it is paused, when it goes on.
    pub(crate) fn rouse(&mut self, host: HostId) {
        self.hosts[host.0].rouse();
        if self.hosts[host.0].runs() {
            self.service(host.0);
        }
    }

    /// Lets time pass until `until`, and everything happen that happens by then.
    pub fn run_until(&mut self, until: Instant) {
        while let Some((at, event)) = self.network.agenda.pop_until(until) {
            self.network.now = at;
            self.happen(event);
        }
        self.network.now = until;
        self.settle();
        self.check_overdue();
    }

    /// Lets time pass for `time`.
    pub fn run_for(&mut self, time: Duration) {
        self.run_until(self.network.now + time);
    }

    /// Lets time pass until all programs have finished, `until` at the latest. Says when that was.
    ///
    /// # Errors
    /// [`Unfinished`]: time was up.
    pub fn run_until_finished(&mut self, until: Instant) -> Result<Instant, Unfinished> {
        let mut finished = self.finished_since();
        while !finished {
            let Some((at, event)) = self.network.agenda.pop_until(until) else {
                self.network.now = until;
                self.settle();
                self.check_overdue();
                let hosts = self.hosts.iter().filter(|h| !h.finished()).map(|h| h.name().to_owned()).collect();
                return Err(Unfinished { until, hosts });
            };
            self.network.now = at;
            // A frame that moves wakes programs at most: none finishes before its host looks.
            let moves = matches!(event, Event::AtSwitch { .. } | Event::AtHost { .. });
            self.happen(event);
            finished = !moves && self.finished_since();
        }
        self.settle();
        Ok(self.network.now)
    }

    /// Whether all programs have finished.
    pub fn finished(&self) -> bool {
        self.hosts.iter().all(Host::finished) && self.machines.iter().all(machines::Machine::finished)
    }

    /// As [`World::finished`], for callers that ask after each event.
    fn finished_since(&mut self) -> bool {
        if self.hosts.get(self.unfinished).is_some_and(|host| !host.finished()) {
            return false;
        }
        let unfinished = self.hosts.iter().position(|host| !host.finished());
        self.unfinished = unfinished.unwrap_or(0);
        unfinished.is_none() && self.machines.iter().all(machines::Machine::finished)
    }

    /// What each host's NIC has lent out, after reaping what is complete.
    pub fn outstanding(&mut self) -> Vec<Outstanding> {
        let lent = |host: &mut Host| {
            host.rings_mut().iter_mut().for_each(|ring| ring.queues_mut().reap());
            host.nic().outstanding()
        };
        let all: Vec<_> = self.hosts.iter_mut().map(lent).collect();
        if let Some(checkers) = &self.network.checkers {
            for (index, (host, outstanding)) in self.hosts.iter().zip(&all).enumerate() {
                checkers.borrow_mut().outstanding(index, host.rings(), outstanding);
            }
        }
        all
    }

    /// What this run came to so far.
    pub fn report(&self) -> Report {
        let trace = &self.network.trace;
        let mut marks = MarkCounts::default();
        self.hosts.iter().flat_map(Host::rings).for_each(|ring| marks.add(&ring.marks()));
        let reached = self.network.checkers.as_ref().map_or_else(Reached::default, |checkers| checkers.borrow().reached());
        let (hash, events, faults) = (trace.hash(), trace.events(), trace.faults());
        Report { marks, reached, seed: self.seed, hash, events, faults, ended: self.network.now }
    }

    fn happen(&mut self, event: Event) {
        let now = self.network.now;
        self.budget.spend(now, &event);
        match event {
            Event::AtSwitch { from, frame } => self.network.switch(from, frame),
            Event::AtHost { host, frame } if self.hosts[host].is_down() => {
                self.network.trace.record(now, host, What::Struck(Direction::Down, Strike::HostDown), &frame);
            }
            Event::AtHost { host, frame } => {
                let target = &mut self.hosts[host];
                let reception = target.nic().arrive(now, &frame.bytes, frame.sound, frame.unsolicited);
                let poll_at = reception.wake_at.map(|at| at + target.poll_delay());
                let calm = target.nic().is_calm();
                self.network.received(host, &frame, reception.outcome);
                if !self.network.attackers.is_empty() && reception.outcome.is_ok() {
                    let (mac, ip) = (self.hosts[host].mac(), self.hosts[host].ip());
                    self.network.provoke(host, &frame, mac, ip);
                }
                if let Some(at) = poll_at {
                    self.wake(host, at);
                }
                // Else nothing struck it, and nothing became due in it.
                if !calm || poll_at.is_none() {
                    self.after_nic(host);
                }
            }
            Event::Nic { host } => {
                if self.hosts[host].nic_alarm.rings(now) && !self.hosts[host].is_down() {
                    self.advance_nic(host);
                }
            }
            Event::Wake { host } => {
                if self.hosts[host].wake.rings(now) && self.hosts[host].runs() {
                    self.service(host);
                }
            }
            Event::Episode(turn) => self.turn(turn),
        }
    }

    fn service(&mut self, host: usize) {
        self.service_alone(host);
        if !self.machines.is_empty() {
            self.step_machine_of(host);
        }
    }

    fn service_alone(&mut self, host: usize) {
        let Network { now, trace, .. } = &mut self.network;
        self.hosts[host].nic().advance(*now);
        self.watch.before(trace, *now, host, self.hosts[host].rings());
        let tainted = trace.faults().hidden_corrupted > 0;
        let next = self.hosts[host].service(*now, tainted);
        self.watch.after(trace, *now, host, self.hosts[host].rings());
        self.transmit(host);
        if let Some(checkers) = &self.network.checkers {
            for sockets in self.hosts[host].rings() {
                checkers.borrow_mut().serviced(sockets.place(), self.network.now, sockets);
            }
        }
        if let Some(at) = next {
            self.wake(host, at);
        }
    }

    /// Whether bytes have changed that no checksum covers.
    fn tainted(&self) -> bool {
        self.network.trace.faults().hidden_corrupted > 0
    }

    /// Lets a NIC do what is due in it by itself.
    fn advance_nic(&mut self, host: usize) {
        let now = self.network.now;
        if self.hosts[host].nic().advance(now) {
            self.wake(host, now);
        }
        self.transmit(host);
    }

    /// What has left the NICs completes, for whoever looks at them from outside now.
    fn settle(&mut self) {
        for host in 0..self.hosts.len() {
            if self.hosts[host].nic().settle(self.network.now) {
                self.wake(host, self.network.now);
            }
        }
    }

    fn transmit(&mut self, host: usize) {
        let now = self.network.now;
        // Checkers see what a stack sends when it does, even if its NIC loses it, or keeps it to a rate.
        while let Some(bytes) = self.hosts[host].nic().take_handed() {
            self.network.show_handed(host, bytes);
        }
        while let Some(departure) = self.hosts[host].nic().depart(now) {
            let leaves = self.network.send(host, departure);
            self.hosts[host].nic().leaves(leaves);
        }
        self.after_nic(host);
    }

    /// Notes what struck a NIC, and when it is to be looked at again.
    fn after_nic(&mut self, host: usize) {
        let nic: &Nic = self.hosts[host].nic();
        let (strikes, next_at) = nic.news();
        for strike in strikes {
            self.network.trace.strike(self.network.now, host, strike);
            if let Some(checkers) = &self.network.checkers {
                checkers.borrow_mut().struck(self.network.now, host, strike.lasts);
            }
        }
        if let Some(at) = next_at.map(|at| at.max(self.network.now))
            && self.hosts[host].nic_alarm.ring_by(at)
        {
            self.network.agenda.push(at, Event::Nic { host });
        }
    }

    /// Makes every host's stack a mutant; they have done nothing yet.
    #[cfg(feature = "mutants")]
    pub fn infect(&mut self, mutant: ringway_stack::mutants::Mutant) {
        for host in &mut self.hosts {
            host.mutate(mutant);
        }
    }

    /// All connections are written down and read in again in each service, which nobody must notice.
    #[cfg(feature = "mutants")]
    pub fn rewrite(&mut self) {
        self.hosts.iter_mut().for_each(Host::rewrite);
    }

    /// How often that was done to a connection.
    #[cfg(feature = "mutants")]
    pub fn rewritten(&self) -> usize {
        self.hosts.iter().map(Host::rewritten).sum()
    }

    /// Nobody may have forgotten to ask for being woken.
    fn check_overdue(&self) {
        if let Some(checkers) = &self.network.checkers {
            for sockets in self.hosts.iter().flat_map(Host::rings) {
                checkers.borrow_mut().passed(sockets.place(), self.network.now, sockets);
            }
        }
    }

    fn wake(&mut self, host: usize, at: Instant) {
        if self.hosts[host].wake.ring_by(at) {
            self.network.plan_wake(host, at);
        }
    }
}

#[cfg(test)]
mod tests;
