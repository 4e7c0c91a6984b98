//! The world: hosts, the network between them, and the one loop in which time passes.

use core::fmt;
use core::time::Duration;
use std::rc::Rc;

use ringway_stack::Instant;
use ringway_stack::device::Device;
use ringway_stack::marks::MarkCounts;

use crate::device::{Outstanding, SimDevice};
use crate::fabric::{Direction, LinkConfig};
use crate::host::{App, Context, Host, HostConfig};
use crate::network::{Event, Network};
use crate::random::{Purpose, Stream};
use crate::report::Report;
use crate::trace::{Interface, Trace};

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
        Self { seed: config.seed, network, hosts: Vec::new() }
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
        let seed = Stream::new(self.seed, Purpose::Stack, u32::try_from(index).unwrap_or(u32::MAX), 0).seed();
        let (name, link) = (config.name.clone(), config.link);
        let mut host = Host::new(index, config, seed);
        if let Some(checkers) = &self.network.checkers {
            host.watch(checkers);
        }
        self.network.trace.add_interface(Interface { name, mac: host.mac(), bandwidth_bps: link.bandwidth_bps });
        self.network.fabric.attach(self.seed, host.mac(), link);
        self.hosts.push(host);
        HostId(index)
    }

    /// Starts a program on a host, now.
    pub fn add_app(&mut self, host: HostId, app: impl App + 'static) {
        self.hosts[host.0].add(Box::new(app));
        self.wake(host.0, self.network.now);
    }

    /// Tells every host every other's Ethernet address, so that nobody needs ARP.
    pub fn introduce_all(&mut self) {
        let known: Vec<_> = self.hosts.iter().map(|h| (h.ip(), h.mac())).collect();
        for host in &mut self.hosts {
            let own = host.mac();
            for &(ip, mac) in known.iter().filter(|&&(_, mac)| mac != own) {
                host.ring_mut().set_neighbour(ip, Some(mac));
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

    /// Switches all faults on or off: a run's safety phase ends, and its liveness phase begins.
    pub fn set_faults(&mut self, on: bool) {
        self.network.faults_on = on;
        if let Some(checkers) = &self.network.checkers {
            checkers.borrow_mut().set_faults(self.network.now, on);
        }
    }

    /// Changes a host's link, both ways.
    pub fn change_link(&mut self, host: HostId, change: impl Fn(&mut LinkConfig)) {
        for direction in [Direction::Up, Direction::Down] {
            change(self.network.fabric.lane(host.0, direction).config_mut());
        }
    }

    /// Lets the caller act as a program of a host, once, now.
    pub fn call<R>(&mut self, host: HostId, act: impl FnOnce(&mut Context<'_>) -> R) -> R {
        let now = self.network.now;
        let target = &mut self.hosts[host.0];
        let ip = target.ip();
        let result = act(&mut Context { now, ring: target.sockets_mut(), events: &[], ip });
        self.service(host.0);
        result
    }

    /// Lets time pass until `until`, and everything happen that happens by then.
    pub fn run_until(&mut self, until: Instant) {
        while let Some((at, event)) = self.network.agenda.pop_until(until) {
            self.network.now = at;
            self.happen(event);
        }
        self.network.now = until;
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
        while !self.finished() {
            let Some((at, event)) = self.network.agenda.pop_until(until) else {
                self.network.now = until;
                self.check_overdue();
                let hosts = self.hosts.iter().filter(|h| !h.finished()).map(|h| h.name().to_owned()).collect();
                return Err(Unfinished { until, hosts });
            };
            self.network.now = at;
            self.happen(event);
        }
        Ok(self.network.now)
    }

    /// Whether all programs have finished.
    pub fn finished(&self) -> bool {
        self.hosts.iter().all(Host::finished)
    }

    /// What each host's NIC has lent out, after reaping what is complete.
    pub fn outstanding(&mut self) -> Vec<Outstanding> {
        let lent = |host: &mut Host| {
            let device: &mut SimDevice = host.ring_mut().device_mut();
            device.reap();
            device.outstanding()
        };
        let all: Vec<_> = self.hosts.iter_mut().map(lent).collect();
        if let Some(checkers) = &self.network.checkers {
            for (index, (host, outstanding)) in self.hosts.iter().zip(&all).enumerate() {
                checkers.borrow_mut().outstanding(index, host.ring(), outstanding);
            }
        }
        all
    }

    /// What this run came to so far.
    pub fn report(&self) -> Report {
        let trace = &self.network.trace;
        let mut marks = MarkCounts::default();
        self.hosts.iter().for_each(|host| marks.add(&host.ring().marks()));
        Report { marks, seed: self.seed, hash: trace.hash(), events: trace.events(), faults: trace.faults(), ended: self.network.now }
    }

    fn happen(&mut self, event: Event) {
        let now = self.network.now;
        match event {
            Event::AtSwitch { from, frame } => self.network.switch(from, frame),
            Event::AtHost { host, frame } => {
                let target = &mut self.hosts[host];
                let outcome = target.ring_mut().device_mut().receive(now, &frame.bytes);
                let poll_at = now + target.poll_delay();
                self.network.received(host, &frame, outcome);
                self.wake(host, poll_at);
            }
            Event::Departed { host } => {
                if self.hosts[host].ring_mut().device_mut().complete() {
                    self.wake(host, now);
                }
            }
            Event::Wake { host } => {
                if self.hosts[host].woken(now) {
                    self.service(host);
                }
            }
        }
    }

    fn service(&mut self, host: usize) {
        let next = self.hosts[host].service(self.network.now);
        let device = self.hosts[host].ring_mut().device_mut();
        while let Some(bytes) = device.transmit() {
            self.network.send(host, bytes);
        }
        if let Some(checkers) = &self.network.checkers {
            checkers.borrow_mut().serviced(host, self.network.now, self.hosts[host].ring());
        }
        if let Some(at) = next {
            self.wake(host, at);
        }
    }

    /// Makes every host's stack a mutant; they have done nothing yet.
    #[cfg(feature = "mutants")]
    pub fn infect(&mut self, mutant: ringway_stack::mutants::Mutant) {
        for host in &mut self.hosts {
            host.ring_mut().mutate(mutant);
        }
    }

    /// Nobody may have forgotten to ask for being woken.
    fn check_overdue(&self) {
        if let Some(checkers) = &self.network.checkers {
            for (index, host) in self.hosts.iter().enumerate() {
                checkers.borrow_mut().passed(index, self.network.now, host.ring());
            }
        }
    }

    fn wake(&mut self, host: usize, at: Instant) {
        if self.hosts[host].wake_by(at) {
            self.network.agenda.push(at, Event::Wake { host });
        }
    }
}

#[cfg(test)]
mod tests;
